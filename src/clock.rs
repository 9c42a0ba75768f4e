//! The only reader of time: everything else takes it as an argument.
#![expect(clippy::disallowed_methods, reason = "this file is the owner of the clocks")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

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
