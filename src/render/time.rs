//! Times of records: the time of day on a terminal, RFC 3339 in UTC elsewhere.

use super::duration;
use super::format::{Style, Zone};

/// Formats Unix milliseconds for a stream.
#[must_use]
pub fn of_stream(ms: u64, is_terminal: bool, style: &Style) -> String {
    if is_terminal { of_day(ms, style) } else { in_utc(ms) }
}

/// Formats the time of day in the zone of the style.
fn of_day(ms: u64, style: &Style) -> String {
    let offset_s = match style.zone {
        Zone::Utc => 0,
        Zone::Local(offset_s) => offset_s(ms),
    };
    duration::time_of_day(ms, offset_s)
}

/// Formats date and time in UTC.
#[must_use]
pub fn in_utc(ms: u64) -> String {
    duration::rfc3339(ms).unwrap_or_else(|| format!("{ms} ms"))
}

/// Formats the length, the beginning and the end of a gap.
#[must_use]
pub fn gap(since_ms: u64, until_ms: u64, is_terminal: bool, style: &Style) -> String {
    const DAY_MS: u64 = 24 * 60 * 60 * 1000;
    let ms = until_ms.saturating_sub(since_ms);
    // Across midnight the time of day is not enough.
    let moment = |at| of_stream(at, is_terminal && ms < DAY_MS, style);
    format!("{}, from {} to {}", duration::of_ms(ms), moment(since_ms), moment(until_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_shows_the_local_time_of_day_and_a_file_the_date_in_utc() {
        let local = Style { zone: Zone::Local(|_| 3600), ..Style::PLAIN };
        assert_eq!(of_stream(1_763_669_639_958, true, &local), "21:13:59.958");
        assert_eq!(of_stream(1_763_669_639_958, true, &Style::PLAIN), "20:13:59.958");
        assert_eq!(of_stream(1_763_669_639_958, false, &local), "2025-11-20T20:13:59.958Z");
    }
}
