//! Durations in milliseconds.

use std::time::Duration;

#[must_use]
pub fn ms_text(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1000.0;
    if ms < 1.0 { format!("{ms:.3} ms") } else { format!("{ms:.1} ms") }
}
