//! Text of the page: escapes, and numbers with units.

use std::time::Duration;

use crate::clock;

/// Returns untrusted bytes as HTML text: markup, control characters and bidirectional marks are escaped.
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    escape_but(bytes, &[])
}

/// Does the same, but keeps line ends and tabs.
#[must_use]
pub fn escape_lines(bytes: &[u8]) -> String {
    escape_but(bytes, &['\n', '\t'])
}

fn escape_but(bytes: &[u8], kept: &[char]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '&' => text.push_str("&amp;"),
                '<' => text.push_str("&lt;"),
                '>' => text.push_str("&gt;"),
                '"' => text.push_str("&quot;"),
                '\'' => text.push_str("&#39;"),
                _ if kept.contains(&c) => text.push(c),
                // Escapes control characters and bidirectional marks, among others.
                _ => text.extend(c.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Returns the beginning of bytes, without an incomplete last character.
#[must_use]
pub fn beginning(bytes: &[u8], bytes_max: usize) -> &[u8] {
    let Some(start) = bytes.get(..bytes_max) else { return bytes };
    match std::str::from_utf8(start) {
        Err(error) if error.error_len().is_none() => start.get(..error.valid_up_to()).unwrap_or(start),
        Ok(_) | Err(_) => start,
    }
}

/// Returns the beginning of untrusted bytes as HTML text, with an ellipsis if it is cut. `len` is the number of all bytes.
#[must_use]
pub fn shortened(bytes: &[u8], len: usize, bytes_max: usize) -> String {
    let start = beginning(bytes, bytes_max);
    let ellipsis = if start.len() < len { "…" } else { "" };
    format!("{}{ellipsis}", escape(start))
}

/// Returns a number with separators.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && digits.len().saturating_sub(at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a number of bytes with a binary unit.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a rounded number need not be exact")]
pub fn bytes(number: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let Some((shift, unit)) = units.into_iter().find(|(shift, _)| number >> shift > 0) else {
        return format!("{number} B");
    };
    let value = number as f64 / (1_u64 << shift) as f64;
    let decimals = usize::from(number.trailing_zeros() < shift && value < 100.0);
    format!("{value:.decimals$} {unit}")
}

/// Returns a number of events in a second.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is not negative, and a cast saturates"
)]
pub fn rate(number: f64) -> String {
    if number < 9.95 && number > 0.0 { format!("{number:.1}") } else { count(number.round() as u64) }
}

/// Returns a short time.
#[must_use]
pub fn latency(us: f64) -> String {
    let (value, unit) = match us {
        _ if us < 999.5 => (us, "µs"),
        _ if us < 999_500.0 => (us / 1e3, "ms"),
        _ => (us / 1e6, "s"),
    };
    let is_whole = (value * 10.0).round() % 10.0 < 0.5;
    let decimals = usize::from(value < 9.95 && !is_whole);
    format!("{value:.decimals$} {unit}")
}

/// Returns a time with at most two units.
#[must_use]
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Returns a time as HTML: `label`, with the date and time in its attributes.
#[must_use]
pub fn time(wall_ms: u64, label: &str) -> String {
    let utc = clock::utc_text(wall_ms);
    format!("<time datetime=\"{utc}\" title=\"{utc}\">{label}</time>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_bytes_are_escaped() {
        assert_eq!(
            escape(b"<script>alert('1')</script>&\""),
            "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;"
        );
        assert_eq!(escape(b"a\xff\x00\x1b[31m"), "a\\xff\\0\\u{1b}[31m");
        assert_eq!(escape("\u{202e}ä".as_bytes()), "\\u{202e}ä");
        assert_eq!(escape(b"\\\n"), "\\\\\\n");
        assert_eq!(escape_lines(b"{\n\t\"a\"\r\n}"), "{\n\t&quot;a&quot;\\r\n}");
    }

    #[test]
    fn invisible_characters_are_shown() {
        for hidden in [
            '\u{200b}',
            '\u{ad}',
            '\u{feff}',
            '\u{2066}',
            '\u{e0041}',
            '\u{7f}',
            '\u{85}',
            '\u{2028}',
            '\u{a0}',
        ] {
            let text = escape(hidden.to_string().as_bytes());
            assert_eq!(text, format!("\\u{{{:x}}}", u32::from(hidden)));
        }
    }

    #[test]
    fn long_texts_are_cut_with_an_ellipsis_at_a_character() {
        let long = "ä".repeat(100);
        let text = shortened(long.as_bytes().get(..121).unwrap(), long.len(), 121);
        assert_eq!(text, format!("{}…", "ä".repeat(60)));
        assert_eq!(shortened(b"abc", 4, 10), "abc…");
        assert_eq!(shortened(b"abc", 3, 3), "abc");
    }

    #[test]
    fn durations_have_at_most_two_units() {
        let of = |seconds| duration(Duration::from_secs(seconds));
        assert_eq!([59, 61, 3_661, 90_000].map(of), ["59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn numbers_are_rounded_to_what_can_be_read_at_a_glance() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0, 1_023, 1_024, 1_536, 64 << 20, (64 << 20) + 99_999, 150_000, 3 << 40].map(bytes),
            ["0 B", "1023 B", "1 KiB", "1.5 KiB", "64 MiB", "64.1 MiB", "146 KiB", "3 TiB"]
        );
        assert_eq!([0.0, 0.26, 9.96, 1_234.5].map(rate), ["0", "0.3", "10", "1,235"]);
        assert_eq!(
            [4.5, 12.4, 999.9, 1_500.0, 10_000.0, 2_500_000.0].map(latency),
            ["4.5 µs", "12 µs", "1 ms", "1.5 ms", "10 ms", "2.5 s"]
        );
    }
}
