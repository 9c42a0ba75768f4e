//! Durations and times: parsing and formatting.

use std::num::NonZeroU64;
use std::time::Duration;

pub use crate::render::duration::{of_ms, text};

/// A hundred years. A longer time to live is a mistake in its unit, or stands for none.
pub(super) const TTL_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

const OUT_OF_RANGE: &str = "a duration is from 1ns to 18446744073709551615s";

const TOO_SHORT: &str = "a duration must be longer than zero";

/// Parses a duration. It needs a unit and must not be zero.
pub fn parse(text: &str) -> Result<Duration, String> {
    if text.parse::<f64>().is_ok_and(|number| number == 0.0) {
        return Err(TOO_SHORT.to_owned());
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(format!("a duration needs a unit, for example {text}s"));
    }
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err(TOO_SHORT.to_owned()),
        Ok(duration) => Ok(duration),
        Err(humantime::DurationError::NumberOverflow) => Err(OUT_OF_RANGE.to_owned()),
        Err(_) => {
            Err("invalid duration: expected a number and a unit, for example 250ms, 30s, 5m, 1h30m"
                .to_owned())
        }
    }
}

/// Parses a duration that may be zero.
pub fn parse_or_zero(text: &str) -> Result<Duration, String> {
    if text == "0" || humantime::parse_duration(text).is_ok_and(|duration| duration.is_zero()) {
        return Ok(Duration::ZERO);
    }
    parse(text)
}

/// A time to wait; None for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait(pub Option<Duration>);

/// Parses a time to wait: `0`, a duration, or `forever`.
pub fn parse_wait(text: &str) -> Result<Wait, String> {
    if text == "forever" {
        return Ok(Wait(None));
    }
    parse_or_zero(text).map(|wait| Wait(Some(wait)))
}

/// Parses a time to live in whole milliseconds.
pub fn parse_ttl(text: &str) -> Result<NonZeroU64, String> {
    let duration = match parse(text) {
        Ok(duration) if duration <= TTL_MAX => duration,
        Err(error) if error != OUT_OF_RANGE => return Err(error),
        _ => {
            let range = "a time to live is at most 100 years; without --ttl the key does not expire";
            return Err(range.to_owned());
        }
    };
    let ms = u64::try_from(duration.as_millis()).ok().and_then(NonZeroU64::new);
    ms.filter(|ms| Duration::from_millis(ms.get()) == duration)
        .ok_or_else(|| "a time to live must be a whole number of milliseconds".to_owned())
}

/// Parses a keep-alive interval, which MQTT counts in whole seconds.
pub fn parse_keep_alive(text: &str) -> Result<Duration, String> {
    let duration = parse(text)?;
    let whole = duration.subsec_nanos() == 0 && duration.as_secs() <= u16::MAX.into();
    if whole { Ok(duration) } else { Err("a keep-alive interval is 1 to 65535 whole seconds".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_needs_a_unit() {
        assert_eq!(parse("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse("0"), parse("0s"));
        assert_eq!(parse("30"), Err("a duration needs a unit, for example 30s".to_owned()));
        for text in ["", "s", "-5s", "0s", "0", "1 fortnight"] {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in ["99999999999999999999s", "0.1ns"] {
            assert_eq!(parse(text), Err(OUT_OF_RANGE.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_wait_may_be_zero_or_forever() {
        assert_eq!(parse_wait("0"), Ok(Wait(Some(Duration::ZERO))));
        assert_eq!(parse_wait("0s"), Ok(Wait(Some(Duration::ZERO))));
        assert_eq!(parse_wait("90s"), Ok(Wait(Some(Duration::from_secs(90)))));
        assert_eq!(parse_wait("forever"), Ok(Wait(None)));
        assert!(parse_wait("5").is_err() && parse_wait("-1").is_err() && parse_wait("never").is_err());
    }

    #[test]
    fn a_time_to_live_has_whole_milliseconds() {
        assert_eq!(parse_ttl("250ms").map(NonZeroU64::get), Ok(250));
        assert_eq!(parse_ttl("5m").map(NonZeroU64::get), Ok(300_000));
        assert!(parse_ttl("100y").is_ok());
        for text in ["101y", "99999999999999999999s"] {
            assert!(parse_ttl(text).unwrap_err().starts_with("a time to live is at most 100 years"));
        }
        for text in ["1us", "1ms 1us", "0ms", "30"] {
            assert!(parse_ttl(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_keep_alive_has_whole_seconds() {
        assert_eq!(parse_keep_alive("1m"), Ok(Duration::from_secs(60)));
        for text in ["500ms", "1s 1ms", "0s", "65536s", "10"] {
            assert!(parse_keep_alive(text).is_err(), "{text}");
        }
    }
}
