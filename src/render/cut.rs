//! Lines cut to a number of columns; colors are applied after the cut, so that no escape sequence is cut.

use super::style::{Paint, paint};

/// An escaped text and its color.
pub type Span = (String, Option<Paint>);

/// Marks the place of a cut.
const ELLIPSIS: char = '…';

/// Joins spans to a line of at most `columns_max` columns.
#[must_use]
pub fn cut(spans: &[Span], columns_max: usize, color: bool) -> String {
    let painted = |text: &str, how: &Option<Paint>| match how {
        Some(how) if !text.is_empty() => paint(text, *how, color),
        _ => text.to_owned(),
    };
    let total = spans.iter().map(|(text, _)| width_of(text)).fold(0, usize::saturating_add);
    if total <= columns_max {
        return spans.iter().map(|(text, how)| painted(text, how)).collect();
    }
    let mut left = columns_max.saturating_sub(columns_of(ELLIPSIS));
    let mut line = String::new();
    for (text, how) in spans {
        let mut end = text.len();
        for (at, c) in text.char_indices() {
            match left.checked_sub(columns_of(c)) {
                Some(rest) => left = rest,
                None => {
                    end = at;
                    break;
                }
            }
        }
        line.push_str(&painted(text.get(..end).unwrap_or(text), how));
        if end < text.len() {
            break;
        }
    }
    line.push(ELLIPSIS);
    line
}

/// Returns the end of a text, at most `columns_max` columns.
#[must_use]
pub fn cut_front(text: &str, columns_max: usize) -> String {
    if width_of(text) <= columns_max {
        return text.to_owned();
    }
    let mut left = columns_max.saturating_sub(columns_of(ELLIPSIS));
    let mut start = text.len();
    for (at, c) in text.char_indices().rev() {
        match left.checked_sub(columns_of(c)) {
            Some(rest) => (left, start) = (rest, at),
            None => break,
        }
    }
    format!("{ELLIPSIS}{}", text.get(start..).unwrap_or_default())
}

/// Returns the width of a text in columns.
#[must_use]
pub fn width_of(text: &str) -> usize {
    text.chars().map(columns_of).fold(0, usize::saturating_add)
}

/// Returns the width of a character in columns: 2 for East Asian wide characters and emoji, 0 for combining marks.
#[must_use]
pub fn columns_of(c: char) -> usize {
    match u32::from(c) {
        0..0x300 => 1,
        0x300..=0x36F | 0x483..=0x489 | 0x591..=0x5BD | 0x610..=0x61A | 0x64B..=0x65F | 0x200B..=0x200D => 0,
        0x1AB0..=0x1AFF | 0x1DC0..=0x1DFF | 0x20D0..=0x20FF | 0xFE00..=0xFE0F | 0xFE20..=0xFE2F => 0,
        0x1100..=0x115F | 0x2E80..=0x303E | 0x3041..=0xA4CF | 0xA960..=0xA97C | 0xAC00..=0xD7A3 => 2,
        0xF900..=0xFAFF | 0xFE30..=0xFE6F | 0xFF00..=0xFF60 | 0xFFE0..=0xFFE6 => 2,
        0x1F300..=0x1F64F | 0x1F680..=0x1F6FF | 0x1F900..=0x1F9FF | 0x1FA70..=0x1FAFF => 2,
        0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str, columns_max: usize) -> String {
        cut(&[(text.to_owned(), None)], columns_max, false)
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_with_an_ellipsis() {
        assert_eq!(plain("12345", 5), "12345");
        assert_eq!(plain("123456", 5), "1234…");
        assert_eq!(plain("", 0), "");
        assert_eq!(plain("12", 1), "…");
    }

    #[test]
    fn the_front_can_be_cut_instead() {
        assert_eq!(cut_front("mqkv-host-12345678", 10), "…-12345678");
        assert_eq!(cut_front("12345", 5), "12345");
        assert_eq!(cut_front("温度計", 4), "…計");
    }

    #[test]
    fn wide_characters_take_two_columns_and_combining_marks_none() {
        assert_eq!(width_of("温度"), 4);
        assert_eq!(width_of("e\u{301}"), 1);
        assert_eq!(plain("温度計", 5), "温度…");
        assert_eq!(plain("温度計", 4), "温…");
        assert_eq!(plain("温度", 4), "温度");
    }

    #[test]
    fn a_color_ends_at_the_cut() {
        let spans = [("ab".to_owned(), None), ("cdef".to_owned(), Some(Paint::Dim))];
        assert_eq!(cut(&spans, 4, true), "ab\x1b[2mc\x1b[0m…");
        assert_eq!(cut(&spans, 6, true), "ab\x1b[2mcdef\x1b[0m");
        assert_eq!(cut(&spans, 2, true), "a…");
    }
}
