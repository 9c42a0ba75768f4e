//! Hints in gray behind the cursor: the usage of the verb, or the rest of an earlier line (pure).

use super::backslash;
use clap::{Arg, Command};

use super::definition::{self, Expected, is_many, value_name};
use super::line::{is_open, split_partial};
use crate::commands::args::kind::OtherForm;
use crate::render::escape::is_safe;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    pub shown: String,
    /// Whether it is text of an earlier line, which the Right key adds to the line.
    pub is_text: bool,
}

/// Returns the hint behind a text; `earlier` has the lines of the history, the newest first.
#[must_use]
pub fn hint<'a>(
    text: &str,
    definition: &Command,
    earlier: impl IntoIterator<Item = &'a str>,
) -> Option<Hint> {
    if text.trim().is_empty() {
        return None;
    }
    if is_open(text.as_bytes()) {
        let shown = "   open quote: the line continues; Ctrl-C clears it".to_owned();
        return Some(Hint { shown, is_text: false });
    }
    if let Some(usage) = usage(text, definition) {
        return Some(Hint { shown: usage, is_text: false });
    }
    let rest =
        earlier.into_iter().find_map(|line| line.strip_prefix(text).filter(|rest| !rest.is_empty()))?;
    // A line of the history can contain line feeds; the hint has one row.
    let shown = rest.lines().next().filter(|line| !line.is_empty() && line.chars().all(is_safe))?.to_owned();
    Some(Hint { shown, is_text: true })
}

fn usage(text: &str, definition: &Command) -> Option<String> {
    if let Some((_, prefix, _)) = backslash::expectation(text) {
        let name = text.trim();
        let (_, argument, about) = backslash::NAMES.iter().find(|(known, ..)| *known == name)?;
        let argument = if argument.is_empty() { String::new() } else { format!("{argument}  ") };
        let blank = if prefix.is_empty() { "" } else { " " };
        return Some(format!("{blank}{argument}({about})"));
    }
    let partial = split_partial(text.as_bytes())?;
    if partial.operator.is_some() {
        return None;
    }
    let is_behind_blank = partial.prefix.is_empty() && text.ends_with(char::is_whitespace);
    if !is_behind_blank {
        // A complete verb shows its usage already before a blank is typed.
        let name = partial.prefix.to_ascii_lowercase();
        let verb = definition::below(definition, &name).filter(|_| partial.words.is_empty())?;
        return Some(format!(" {}", formatted(verb, 0)?));
    }
    let parsed = definition::parse(definition, &partial.words)?;
    match parsed.expected {
        Expected::Value(option) => Some(value_name(option)),
        Expected::Word { .. } if std::ptr::eq(parsed.verb, definition) => None,
        Expected::Word { count, .. } => formatted(parsed.verb, count),
        Expected::Argument(_) => None,
    }
}

/// Formats the operands from one on, then the verb's own options.
fn formatted(verb: &Command, from: usize) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    if verb.has_subcommands() {
        let below: Vec<_> = definition::verbs(verb).map(Command::get_name).collect();
        parts.push(below.join("|"));
    }
    if let Some(first) = definition::operand(verb, from, false) {
        let after = definition::operands(verb).skip(from.saturating_add(1));
        parts.extend(std::iter::once(first).chain(after).map(|operand| {
            let more = if is_many(operand) { "..." } else { "" };
            format!("{}{more}", value_name(operand))
        }));
    }
    for option in definition::options(verb).filter(|option| is_hinted(option)) {
        if let Some(long) = option.get_long() {
            let has_value = option.get_action().takes_values();
            let value = if has_value { format!(" {}", value_name(option)) } else { String::new() };
            parts.push(format!("[--{long}{value}]"));
        }
    }
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// Options that every verb has stand under a heading. Those, `--help` and every way to write a key or a value would fill the
/// line.
fn is_hinted(option: &Arg) -> bool {
    option.get_help_heading().is_none() && option.get::<OtherForm>().is_none() && option.get_id() != "help"
}

#[cfg(test)]
mod tests {
    use super::super::definition::sample;
    use super::*;

    fn hinted(text: &str) -> Option<Hint> {
        hint(text, &sample::definition(), ["get line1/temp", "get line1/rpm", "set 'a\nb' c"])
    }

    fn formatted(text: &str) -> String {
        hinted(text).map_or_else(String::new, |hint| hint.shown)
    }

    #[test]
    fn a_verb_shows_its_remaining_usage() {
        assert!(formatted("get").starts_with(" KEY [--file FILE]"));
        assert!(formatted("set ").starts_with("KEY VALUE [--value STR]"));
        assert!(formatted("set k ").starts_with("VALUE [--value STR]"));
        assert!(formatted("DEL a ").starts_with("KEY..."));
        assert_eq!(formatted("set k v --ttl "), "DURATION");
        assert_eq!(formatted("decode "), "topic");
    }

    #[test]
    fn within_a_word_the_newest_earlier_line_is_offered() {
        assert_eq!(hinted("get l"), Some(Hint { shown: "ine1/temp".into(), is_text: true }));
        assert_eq!(hinted("get line1/r"), Some(Hint { shown: "pm".into(), is_text: true }));
        assert_eq!(hinted("nonsense"), None);
        assert_eq!(hinted(" "), None);
    }

    #[test]
    fn an_earlier_line_that_a_terminal_does_not_show_as_it_is_is_not_offered() {
        let offered = |earlier| hint("get l", &sample::definition(), [earlier]);
        assert_eq!(offered("get l\u{202E}x"), None);
        assert_eq!(offered("get lx\u{200B}"), None);
        assert!(offered("get lx").is_some());
    }

    #[test]
    fn an_open_quote_is_reported() {
        assert!(formatted("set k 'v").contains("open quote"));
    }

    #[test]
    fn backslash_commands_show_their_description() {
        assert_eq!(formatted("\\i"), " FILE  (run the lines of a file, up to the first error)");
        assert_eq!(formatted("\\q"), " (exit, like Ctrl-D, exit or quit)");
    }
}
