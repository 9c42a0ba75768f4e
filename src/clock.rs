//! The only reader of time: everything else takes it as an argument.
#![expect(clippy::disallowed_methods, reason = "this file is the owner of the clocks")]

#[cfg(target_os = "linux")]
use std::sync::OnceLock;
#[cfg(target_os = "linux")]
use std::time::Duration;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

#[cfg(target_os = "linux")]
use nix::time::{ClockId, clock_gettime};

/// Both clocks, read together.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Milliseconds since the Unix epoch. May jump when the machine's clock is set.
    pub wall_ms: u64,
    /// Never goes back, and does not know what day it is.
    pub monotonic: Instant,
}

/// Reads the wall clock and the monotonic clock.
#[must_use]
pub fn now() -> Reading {
    Reading { wall_ms: wall_ms(), monotonic: monotonic() }
}

/// Milliseconds since the Unix epoch; 0 on a machine whose clock stands before it.
#[must_use]
pub fn wall_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| u64::try_from(since.as_millis()).ok())
        .unwrap_or(0)
}

/// The monotonic clock.
#[must_use]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// A clock that never goes back either, and goes on while the machine sleeps: what others count on goes on as well.
///
/// Its instants fit no timer, for timers stand still meanwhile.
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

/// The monotonic clock: this system has no other.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn boottime() -> Instant {
    monotonic()
}
