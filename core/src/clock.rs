//! The only file that reads the clocks: all other code has the time as an argument.
#![expect(clippy::disallowed_methods, reason = "this file is the owner of the clocks")]

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::platform;

pub use crate::platform::is_clock_synchronized as is_synchronized;

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
#[must_use]
pub fn boottime() -> Instant {
    static ORIGIN: OnceLock<(Instant, Duration)> = OnceLock::new();
    let Some(since_boot) = platform::since_boot() else {
        return monotonic();
    };
    let (origin, before) = *ORIGIN.get_or_init(|| (monotonic(), since_boot));
    origin.checked_add(since_boot.saturating_sub(before)).unwrap_or(origin)
}

/// Returns a number that identifies the start of the machine, and the milliseconds since then, sleep included; `None` if
/// the system does not report them.
#[must_use]
pub fn since_boot() -> Option<(u64, u64)> {
    static BOOT: OnceLock<Option<u64>> = OnceLock::new();
    let boot = (*BOOT.get_or_init(platform::boot_id))?;
    Some((boot, u64::try_from(platform::since_boot()?.as_millis()).ok()?))
}
