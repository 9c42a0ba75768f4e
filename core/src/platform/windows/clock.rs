//! Clocks that the standard library does not have.

use std::time::Duration;

use windows_sys::Win32::System::SystemInformation::GetTickCount64;

/// Returns the time since the start of the machine, sleep included, in steps of some 16 ms.
#[must_use]
#[expect(unsafe_code, reason = "no safe function reads the time since the start of the machine")]
pub fn since_boot() -> Option<Duration> {
    // SAFETY: the call has no preconditions.
    Some(Duration::from_millis(unsafe { GetTickCount64() }))
}

#[must_use]
pub fn boot_id() -> Option<u64> {
    None
}

#[must_use]
pub fn is_clock_synchronized() -> Option<bool> {
    None
}
