//! The only file that reads the clocks: all other code has the time as an argument.
#![expect(clippy::disallowed_methods, reason = "this file is the owner of the clocks")]

#[cfg(target_os = "linux")]
use std::sync::OnceLock;
#[cfg(target_os = "linux")]
use std::time::Duration;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;
#[cfg(target_os = "linux")]
use nix::time::{ClockId, clock_gettime};

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Milliseconds since the Unix epoch. It jumps when the machine's clock is set.
    pub wall_ms: u64,
    /// Never goes back.
    pub monotonic: Instant,
}

/// Returns wall clock and monotonic clock.
#[must_use]
pub fn now() -> Reading {
    Reading { wall_ms: wall_ms(), monotonic: monotonic() }
}

/// Returns milliseconds since the Unix epoch; 0 if the machine's clock is before it.
#[must_use]
pub fn wall_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| u64::try_from(since.as_millis()).ok())
        .unwrap_or(0)
}

#[must_use]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// Returns whether a time server disciplines the wall clock; None if the system does not report it.
#[cfg(target_os = "linux")]
#[must_use]
#[expect(unsafe_code, reason = "no safe function reads the state of the kernel's clock")]
pub fn is_synchronized() -> Option<bool> {
    let mut state = std::mem::MaybeUninit::<nix::libc::timex>::zeroed();
    // SAFETY: the pointer is valid, all-zero is a valid `timex`, and `modes` 0 changes nothing.
    let result = unsafe { nix::libc::adjtimex(state.as_mut_ptr()) };
    match result {
        -1 => None,
        result => Some(result != nix::libc::TIME_ERROR),
    }
}

/// Returns None: this system has no common way to report it.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn is_synchronized() -> Option<bool> {
    None
}

/// Returns the offset of the machine's time zone from UTC in seconds, at this time.
#[must_use]
pub fn utc_offset_s(at_ms: u64) -> i32 {
    let at = i64::try_from(at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or(0, |at| TimeZone::system().to_offset(at).seconds())
}

/// Returns a time as RFC 3339 text in UTC with milliseconds; empty after the year 9999.
#[must_use]
pub fn utc_text(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or_else(String::new, |at| format!("{at:.3}"))
}

/// Returns a monotonic time that advances while the machine sleeps, as leases and sessions on other machines
/// do.
///
/// Timers do not advance during sleep, so that no timer can be set to this time.
#[cfg(target_os = "linux")]
#[must_use]
pub fn boottime() -> Instant {
    static ORIGIN: OnceLock<(Instant, Duration)> = OnceLock::new();
    let Ok(since_boot) = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from) else {
        return monotonic();
    };
    let (origin, before) = *ORIGIN.get_or_init(|| (monotonic(), since_boot));
    origin.checked_add(since_boot.saturating_sub(before)).unwrap_or(origin)
}

/// Returns a number that identifies the start of the machine, and the milliseconds since then, sleep included; `None` if
/// the system does not report them.
#[cfg(target_os = "linux")]
#[must_use]
pub fn since_boot() -> Option<(u64, u64)> {
    static BOOT: OnceLock<Option<u64>> = OnceLock::new();
    let read = || {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
        u64::from_str_radix(&digits, 16).ok().filter(|boot| *boot != 0)
    };
    let boot = (*BOOT.get_or_init(read))?;
    let since_boot = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?);
    Some((boot, u64::try_from(since_boot.as_millis()).ok()?))
}

/// Returns `None`: this system has no common way to report them.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn since_boot() -> Option<(u64, u64)> {
    None
}

/// Returns the monotonic time: this system has no other.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn boottime() -> Instant {
    monotonic()
}
