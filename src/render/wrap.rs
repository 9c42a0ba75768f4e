//! Texts broken at blanks, so that a terminal breaks no word (pure).

use super::cut::width_of;

/// A text column that is narrower than this is not broken: hardly a word would fit.
const COLUMNS_MIN: usize = 24;

/// Breaks a text behind `indent` columns, which stand before it, into lines of at most `columns`; further lines begin with
/// blanks up to `indent`.
///
/// What stands between two backquotes is not broken, because it is a command to copy; a command alone is returned as it is.
#[must_use]
pub fn wrapped(text: &str, columns: Option<usize>, indent: usize) -> String {
    let Some(columns) = columns.filter(|columns| *columns >= indent.saturating_add(COLUMNS_MIN)) else {
        return text.to_owned();
    };
    if text.starts_with("mqkv ") || text.starts_with('\\') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let (mut at, mut is_first) = (indent, true);
    for word in words(text) {
        let width = width_with_colors(word);
        let end = at.saturating_add(width).saturating_add(usize::from(!is_first));
        if is_first {
            at = end;
        } else if end > columns {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            at = indent.saturating_add(width);
        } else {
            out.push(' ');
            at = end;
        }
        out.push_str(word);
        is_first = false;
    }
    out
}

/// Returns the parts between blanks; blanks between two backquotes separate nothing.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |c| {
        is_quoted ^= c == '`';
        c == ' ' && !is_quoted
    })
}

/// Returns the width of a text in columns; escape sequences for colors have none.
fn width_with_colors(text: &str) -> usize {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default();
    let behind = parts.map(|part| part.split_once('m').map_or("", |(_, behind)| behind));
    std::iter::once(first).chain(behind).map(width_of).fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_at_blanks_and_continues_in_its_column() {
        let text = "check host, port, protocol (mqtts:// for TLS) and firewalls";
        assert_eq!(
            wrapped(text, Some(34), 6),
            "check host, port, protocol\n      (mqtts:// for TLS) and\n      firewalls"
        );
        assert_eq!(wrapped(text, None, 6), text);
        assert_eq!(wrapped(text, Some(20), 6), text, "a narrow terminal");
        assert_eq!(wrapped("a  b", Some(80), 0), "a  b", "blanks stay");
    }

    #[test]
    fn a_command_is_not_broken() {
        let hint = "mqkv context add NAME -b URL --read-only --force";
        assert_eq!(wrapped(hint, Some(30), 6), hint);
        assert_eq!(
            wrapped("start a broker with `mqkv serve --listen h:1`, or", Some(40), 6),
            "start a broker with\n      `mqkv serve --listen h:1`, or"
        );
    }

    #[test]
    fn colors_take_no_columns() {
        let text = "\x1b[1;31mabcdefghijk\x1b[0m lmnopqrstuvw xyz";
        assert_eq!(wrapped(text, Some(24), 0), "\x1b[1;31mabcdefghijk\x1b[0m lmnopqrstuvw\nxyz");
    }
}
