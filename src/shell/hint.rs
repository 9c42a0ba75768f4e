//! What is shown grey behind the cursor: what the verb still takes, or how an earlier line went on (pure).

use super::definition::{Definition, Expected, Verb};
use super::line::{is_open, split_open};
use crate::shell::backslash;

/// A hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// What is shown.
    pub shown: String,
    /// Whether it can be taken over into the line.
    pub is_text: bool,
}

/// What to show behind a text; `earlier` has the lines of the history, the newest first.
#[must_use]
pub fn hint<'a>(
    text: &str,
    definition: &Definition,
    earlier: impl IntoIterator<Item = &'a str>,
) -> Option<Hint> {
    if text.trim().is_empty() {
        return None;
    }
    if is_open(text.as_bytes()) {
        let shown = "   the quote is open: the line goes on; Ctrl-C clears it".to_owned();
        return Some(Hint { shown, is_text: false });
    }
    if let Some(usage) = usage(text, definition) {
        return Some(Hint { shown: usage, is_text: false });
    }
    let rest =
        earlier.into_iter().find_map(|line| line.strip_prefix(text).filter(|rest| !rest.is_empty()))?;
    // A hint is one line, whatever the history has.
    let shown = rest.lines().next().filter(|line| !line.is_empty())?.to_owned();
    Some(Hint { shown, is_text: true })
}

/// The part of a hint that fits behind what is there already.
#[must_use]
pub fn cut(shown: &str, room: usize) -> String {
    let count = shown.chars().count();
    if count <= room {
        return shown.to_owned();
    }
    let mut cut: String = shown.chars().take(room.saturating_sub(1)).collect();
    if room > 1 {
        cut.push('…');
    }
    cut
}

fn usage(text: &str, definition: &Definition) -> Option<String> {
    if let Some((_, prefix, _)) = backslash::expectation(text) {
        let name = text.trim();
        let (_, takes, about) = backslash::NAMES.iter().find(|(known, ..)| *known == name)?;
        let takes = if takes.is_empty() { String::new() } else { format!("{takes}  ") };
        let blank = if prefix.is_empty() { "" } else { " " };
        return Some(format!("{blank}{takes}({about})"));
    }
    let open = split_open(text.as_bytes())?;
    if open.target.is_some() {
        return None;
    }
    let is_behind_blank = open.prefix.is_empty() && text.ends_with(char::is_whitespace);
    if !is_behind_blank {
        // A verb that is written out shows what it takes before there is a blank.
        let verb = definition.verb(&open.prefix).filter(|_| open.words.is_empty())?;
        return Some(format!(" {}", shown(verb, 0)?));
    }
    let place = definition.place(&open.words)?;
    match place.expected {
        Expected::Value(operand) => Some(operand.name.clone()),
        Expected::Word { .. } if std::ptr::eq(place.verb, &definition.root) => None,
        Expected::Word { count, .. } => shown(place.verb, count),
        Expected::Argument(_) => None,
    }
}

/// The operands from one on, then the verb's own options.
fn shown(verb: &Verb, from: usize) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    if !verb.verbs.is_empty() {
        let below: Vec<_> = verb.verbs.iter().map(|below| below.name.as_str()).collect();
        parts.push(below.join("|"));
    }
    if let Some(first) = verb.operand(from, false) {
        let after = verb.operands.iter().skip(from.saturating_add(1));
        parts.extend(std::iter::once(first).chain(after).map(|operand| {
            let more = if operand.is_many { "..." } else { "" };
            format!("{}{more}", operand.name)
        }));
    }
    for option in verb.options.iter().filter(|option| option.is_hinted) {
        if let Some(long) = option.longs.first() {
            let value =
                option.value.as_ref().map_or_else(String::new, |operand| format!(" {}", operand.name));
            parts.push(format!("[--{long}{value}]"));
        }
    }
    (!parts.is_empty()).then(|| parts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::super::definition::sample;
    use super::*;

    fn hinted(text: &str) -> Option<Hint> {
        hint(text, &sample::definition(), ["get line1/temp", "get line1/rpm", "set 'a\nb' c"])
    }

    fn shown(text: &str) -> String {
        hinted(text).map_or_else(String::new, |hint| hint.shown)
    }

    #[test]
    fn a_verb_shows_what_it_still_takes() {
        assert!(shown("get").starts_with(" KEY [--key KEY]"));
        assert!(shown("set ").starts_with("KEY VALUE [--value STR]"));
        assert!(shown("set k ").starts_with("VALUE [--value STR]"));
        assert!(shown("del a ").starts_with("KEY..."));
        assert_eq!(shown("set k v --ttl "), "DURATION");
        assert_eq!(shown("decode "), "topic");
    }

    #[test]
    fn within_a_word_an_earlier_line_is_offered_the_newest_first() {
        assert_eq!(hinted("get l"), Some(Hint { shown: "ine1/temp".into(), is_text: true }));
        assert_eq!(hinted("get line1/r"), Some(Hint { shown: "pm".into(), is_text: true }));
        assert_eq!(hinted("nonsense"), None);
        assert_eq!(hinted(" "), None);
    }

    #[test]
    fn an_open_quote_is_told() {
        assert!(shown("set k 'v").contains("the quote is open"));
    }

    #[test]
    fn backslash_commands_say_what_they_are_for() {
        assert_eq!(shown("\\i"), " FILE  (run the lines of a file)");
        assert_eq!(shown("\\q"), " (leave (Ctrl-D does, too))");
    }

    #[test]
    fn a_hint_does_not_go_over_the_edge() {
        assert_eq!(cut("KEY VALUE", 20), "KEY VALUE");
        assert_eq!(cut("KEY VALUE", 5), "KEY …");
        assert_eq!(cut("KEY VALUE", 0), "");
    }
}
