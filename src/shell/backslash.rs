//! The commands that begin with a backslash: about the prompt itself, not the store (pure).

use crate::commands::CommandError;

/// A backslash command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meta {
    /// `\?`
    Help,
    /// `\q`
    Quit,
    /// `\c [CONTEXT|URL]`: another broker, or the same anew; with `!` whatever is lost by it.
    Connect(Option<String>, bool),
    /// `\conninfo`
    ConnInfo,
    /// `\timing [on|off]`
    Timing(Option<bool>),
    /// `\trace [on|off]`
    Trace(Option<bool>),
    /// `\o [FORMAT]`
    Format(Option<String>),
    /// `\watches`
    Watches,
    /// `\unwatch [N|all]`; none: the only one there is.
    Unwatch(Option<Which>),
    /// `\locks`
    Locks,
    /// `\i FILE`
    Include(String),
    /// `\! [COMMAND]`; none: a shell.
    System(Option<String>),
}

/// Which watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one with this number.
    Number(u32),
    /// All of them.
    All,
}

/// What the word at the cursor is, in a line with a backslash command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The name of the command itself.
    Name,
    OneOf(&'static [&'static str]),
    File,
    /// The number of a watch.
    Watch,
    /// A context, or the URL of a broker.
    Broker,
    Other,
}

/// The formats of `\o`.
pub const FORMATS: &[&str] = &["auto", "text", "raw", "hex", "base64", "json", "jsonl"];

/// The names, what may follow, and what each is for.
pub const NAMES: &[(&str, &str, &str)] = &[
    ("\\?", "", "this help"),
    ("\\q", "", "leave (Ctrl-D does, too)"),
    ("\\c", "[CONTEXT|URL]", "connect to another broker, or anew"),
    ("\\conninfo", "", "where we are, and since when"),
    ("\\watches", "", "what is watched in the background"),
    ("\\unwatch", "[N|all]", "end a watch"),
    ("\\locks", "", "the locks that are held, and their tokens"),
    ("\\timing", "[on|off]", "tell how long each line took"),
    ("\\trace", "[on|off]", "show every MQTT packet, above the line"),
    ("\\o", "[FORMAT]", "the shape of the output: auto, text, raw, hex, base64, json"),
    ("\\i", "FILE", "run the lines of a file"),
    ("\\!", "[COMMAND]", "run a command of the system, or a shell"),
];

/// Reads a backslash command.
///
/// # Errors
/// There is no such command, or it takes other words.
pub fn parse(line: &str) -> Result<Meta, CommandError> {
    let line = line.trim();
    let (name, rest) = match line.strip_prefix("\\!") {
        Some(rest) => ("\\!", rest.trim()),
        None => line.split_once(char::is_whitespace).map_or((line, ""), |(name, rest)| (name, rest.trim())),
    };
    let word = (!rest.is_empty()).then(|| unquoted(rest));
    let meta = match name {
        "\\?" | "\\h" | "\\help" => Meta::Help,
        "\\q" | "\\quit" => Meta::Quit,
        "\\c" | "\\connect" => Meta::Connect(word.clone(), false),
        "\\c!" | "\\connect!" => Meta::Connect(word.clone(), true),
        "\\conninfo" => Meta::ConnInfo,
        "\\timing" => Meta::Timing(on_or_off(name, word.as_deref())?),
        "\\trace" => Meta::Trace(on_or_off(name, word.as_deref())?),
        "\\o" => Meta::Format(word.as_deref().map(format).transpose()?),
        "\\watches" => Meta::Watches,
        "\\unwatch" => Meta::Unwatch(word.as_deref().map(which).transpose()?),
        "\\locks" => Meta::Locks,
        "\\i" => match &word {
            Some(file) => Meta::Include(file.clone()),
            None => return Err(CommandError::usage("\\i takes the name of a file")),
        },
        "\\!" => Meta::System((!rest.is_empty()).then(|| rest.to_owned())),
        other => return Err(unknown(other)),
    };
    let is_alone = matches!(meta, Meta::Help | Meta::Quit | Meta::ConnInfo | Meta::Watches | Meta::Locks);
    if is_alone && word.is_some() {
        return Err(CommandError::usage(format!("{name} takes nothing behind it")));
    }
    Ok(meta)
}

/// Whether a statement is such a command.
#[must_use]
pub fn is_meta(statement: &[u8]) -> bool {
    statement.trim_ascii_start().starts_with(b"\\")
}

/// What can be completed in a text that ends at the cursor: from where on, what there is of it, and what it is.
#[must_use]
pub fn expectation(text: &str) -> Option<(usize, String, Argument)> {
    let line = text.rsplit('\n').next().unwrap_or(text);
    if !line.trim_start().starts_with('\\') {
        return None;
    }
    let trimmed = line.trim_start();
    let offset = text.len().saturating_sub(trimmed.len());
    let Some((name, rest)) = trimmed.split_once(char::is_whitespace) else {
        return Some((offset, trimmed.to_owned(), Argument::Name));
    };
    let prefix = rest.trim_start();
    let argument = match name {
        "\\o" => Argument::OneOf(FORMATS),
        "\\timing" | "\\trace" => Argument::OneOf(&["on", "off"]),
        "\\i" => Argument::File,
        "\\unwatch" => Argument::Watch,
        "\\c" | "\\connect" | "\\c!" | "\\connect!" => Argument::Broker,
        _ => Argument::Other,
    };
    Some((text.len().saturating_sub(prefix.len()), prefix.to_owned(), argument))
}

fn unquoted(text: &str) -> String {
    let within = |quote| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    within('\'').or_else(|| within('"')).unwrap_or(text).to_owned()
}

fn on_or_off(name: &str, word: Option<&str>) -> Result<Option<bool>, CommandError> {
    match word {
        None => Ok(None),
        Some("on") => Ok(Some(true)),
        Some("off") => Ok(Some(false)),
        Some(_) => Err(CommandError::usage(format!("{name} takes on or off"))),
    }
}

fn format(word: &str) -> Result<String, CommandError> {
    if FORMATS.contains(&word) {
        return Ok(word.to_owned());
    }
    Err(CommandError::usage(format!("there is no format {word}")).hint(FORMATS.join(", ")))
}

fn which(word: &str) -> Result<Which, CommandError> {
    match (word, word.parse()) {
        ("all", _) => Ok(Which::All),
        (_, Ok(number)) => Ok(Which::Number(number)),
        _ => Err(CommandError::usage("\\unwatch takes the number of a watch, or all").hint("\\watches")),
    }
}

fn unknown(name: &str) -> CommandError {
    let error = CommandError::usage(format!("there is no {name}"));
    let begun = NAMES.iter().find(|(known, ..)| name.len() > 1 && known.starts_with(name));
    let begun = begun.or_else(|| NAMES.iter().find(|(known, ..)| known.len() > 2 && name.starts_with(known)));
    match begun {
        Some((known, ..)) => error.hint(*known),
        None => error.hint("\\? lists what there is"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_command_is_a_name_and_a_word() {
        assert_eq!(parse(" \\q ").unwrap(), Meta::Quit);
        assert_eq!(parse("\\c").unwrap(), Meta::Connect(None, false));
        assert_eq!(parse("\\c prod").unwrap(), Meta::Connect(Some("prod".into()), false));
        assert_eq!(parse("\\c! mqtt://h:1884").unwrap(), Meta::Connect(Some("mqtt://h:1884".into()), true));
        assert_eq!(parse("\\timing").unwrap(), Meta::Timing(None));
        assert_eq!(parse("\\timing off").unwrap(), Meta::Timing(Some(false)));
        assert_eq!(parse("\\trace on").unwrap(), Meta::Trace(Some(true)));
        assert_eq!(parse("\\unwatch 2").unwrap(), Meta::Unwatch(Some(Which::Number(2))));
        assert_eq!(parse("\\unwatch all").unwrap(), Meta::Unwatch(Some(Which::All)));
        assert_eq!(parse("\\i 'a file'").unwrap(), Meta::Include("a file".into()));
        assert_eq!(parse("\\o json").unwrap(), Meta::Format(Some("json".into())));
    }

    #[test]
    fn a_command_of_the_system_is_taken_as_it_is() {
        assert_eq!(parse("\\!").unwrap(), Meta::System(None));
        assert_eq!(parse("\\! ls 'a b' | wc").unwrap(), Meta::System(Some("ls 'a b' | wc".into())));
        assert_eq!(parse("\\!ls").unwrap(), Meta::System(Some("ls".into())));
    }

    #[test]
    fn what_there_is_not_is_refused_with_what_there_is() {
        assert_eq!(parse("\\tim").unwrap_err().hints, ["\\timing"]);
        assert_eq!(parse("\\x").unwrap_err().hints, ["\\? lists what there is"]);
        for line in ["\\q now", "\\timing maybe", "\\trace k", "\\o yaml", "\\unwatch x", "\\i"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
