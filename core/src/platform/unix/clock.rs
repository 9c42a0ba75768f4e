//! Clocks that the standard library does not have.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The clock that advances while the machine sleeps.
#[cfg(target_os = "linux")]
const BOOT_CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const BOOT_CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// Returns the time since the start of the machine, sleep included; None if the system does not report it. On systems other than
/// Linux and macOS, sleep may be left out.
#[must_use]
pub fn since_boot() -> Option<Duration> {
    clock_gettime(BOOT_CLOCK).ok().map(Duration::from)
}

/// Returns a number that identifies the start of the machine; None if the system does not report one, as all but Linux.
#[must_use]
pub fn boot_id() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).ok().filter(|boot| *boot != 0)
}

/// Returns whether a time server disciplines the wall clock; None if the system does not report it, as all but Linux.
#[cfg(target_os = "linux")]
#[must_use]
#[expect(unsafe_code, reason = "no safe function reads the state of the kernel's clock")]
pub fn is_clock_synchronized() -> Option<bool> {
    let mut state = std::mem::MaybeUninit::<nix::libc::timex>::zeroed();
    // SAFETY: the pointer is valid, all-zero is a valid `timex`, and `modes` 0 changes nothing.
    let result = unsafe { nix::libc::adjtimex(state.as_mut_ptr()) };
    match result {
        -1 => None,
        result => Some(result != nix::libc::TIME_ERROR),
    }
}

#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn is_clock_synchronized() -> Option<bool> {
    None
}
