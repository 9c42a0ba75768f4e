//! Durations and times as text.

use std::time::{Duration, UNIX_EPOCH};

/// The first millisecond of the year 10000, which RFC 3339 cannot express.
const YEAR_10000_MS: u64 = 253_402_300_800_000;

/// Formats milliseconds, for example `1m 30s`.
#[must_use]
pub fn of_ms(ms: u64) -> String {
    text(Duration::from_millis(ms))
}

/// Formats Unix milliseconds as RFC 3339 in UTC; None after the year 9999.
#[must_use]
pub fn rfc3339(ms: u64) -> Option<String> {
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(ms))?;
    (ms < YEAR_10000_MS).then(|| humantime::format_rfc3339_millis(time).to_string())
}

/// Parses a time in UTC as [`rfc3339`] writes it; None if it is malformed or before 1970.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let since = humantime::parse_rfc3339(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// Formats a duration, for example `1m 30s`.
#[must_use]
pub fn text(duration: Duration) -> String {
    const DAY_S: u64 = 24 * 60 * 60;
    // The crate writes days, months and years as words.
    let days = match duration.as_secs() / DAY_S {
        0 => return humantime::format_duration(duration).to_string(),
        days => format!("{days}d"),
    };
    let rest = Duration::new(duration.as_secs() % DAY_S, duration.subsec_nanos());
    if rest.is_zero() { days } else { format!("{days} {}", humantime::format_duration(rest)) }
}

/// Formats milliseconds in their greatest unit alone, for example `3 d`.
#[must_use]
pub fn rough(ms: u64) -> String {
    const UNITS: [(u64, &str); 3] =
        [(24 * 60 * 60 * 1_000, "d"), (60 * 60 * 1_000, "h"), (60 * 1_000, "min")];
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| ms >= *unit).unwrap_or((1_000, "s"));
    format!("{} {name}", ms.checked_div(unit).unwrap_or(0))
}

/// Formats a duration in milliseconds, for example `1.2 ms`.
#[must_use]
pub fn ms_text(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1000.0;
    if ms < 1.0 { format!("{ms:.3} ms") } else { format!("{ms:.1} ms") }
}

/// Formats the time of day of Unix milliseconds, with an offset from UTC in seconds.
#[must_use]
pub fn time_of_day(ms: u64, utc_offset_s: i32) -> String {
    const DAY: u64 = 24 * 60 * 60 * 1000;
    let ms = ms.saturating_add_signed(i64::from(utc_offset_s).saturating_mul(1000));
    let (seconds, ms) = (ms % DAY / 1000, ms % 1000);
    format!("{:02}:{:02}:{:02}.{ms:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted() {
        assert_eq!(of_ms(90_250), "1m 30s 250ms");
        assert_eq!(rfc3339(1_763_669_639_958).unwrap(), "2025-11-20T20:13:59.958Z");
        assert!(rfc3339(YEAR_10000_MS - 1).is_some());
        assert_eq!(rfc3339(YEAR_10000_MS), None);
        assert_eq!(parse_rfc3339("2025-11-20T20:13:59.958Z"), Some(1_763_669_639_958));
        assert_eq!(["2025-11-20", "x", "1969-12-31T23:59:59Z"].map(parse_rfc3339), [None; 3]);
        assert_eq!(rfc3339(u64::MAX), None);
        assert_eq!(time_of_day(1_763_669_639_958, 0), "20:13:59.958");
        assert_eq!(time_of_day(1_763_683_200_001, -3600), "23:00:00.001");
        assert_eq!(text(Duration::from_millis(1_500)), "1s 500ms");
        assert_eq!(text(Duration::ZERO), "0s");
        assert_eq!(of_ms(172_800_000), "2d");
        assert_eq!(of_ms(40_000_000_000), "462d 23h 6m 40s");
        assert_eq!(
            [999, 59_999, 60_000, 7_199_999, 86_400_000].map(rough),
            ["0 s", "59 s", "1 min", "1 h", "1 d"]
        );
    }
}
