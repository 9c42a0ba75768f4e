//! Backslash commands: commands about the prompt itself, not the store (pure).

use crate::commands::CommandError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackslashCommand {
    /// `\?`
    Help,
    /// `\q`
    Quit,
    /// `\c [CONTEXT|URL]`, to the same broker without one; `\c!` also if keys are lost by it.
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
    /// `\unwatch [N|all]`; without one the only watch.
    Unwatch(Option<WatchSelection>),
    /// `\locks`
    Locks,
    /// `\i FILE`
    Include(String),
    /// `\! [COMMAND]`; without one an interactive shell.
    System(Option<String>),
}

/// The watches that a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchSelection {
    /// The watch with this number.
    Number(u32),
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

/// Name, argument and description of each command.
pub const NAMES: &[(&str, &str, &str)] = &[
    ("\\?", "", "print this help"),
    ("\\q", "", "exit, like Ctrl-D, exit or quit"),
    ("\\c", "[CONTEXT|URL]", "connect to another broker, or again to this one"),
    ("\\conninfo", "", "print broker, context and state of the connection"),
    ("\\watches", "", "list the running watches"),
    ("\\unwatch", "[N|all]", "stop a watch, or all watches"),
    ("\\locks", "", "list the held locks and their fencing tokens"),
    ("\\timing", "[on|off]", "print the duration of each command"),
    ("\\trace", "[on|off]", "print every MQTT packet above the line"),
    ("\\o", "[FORMAT]", "print or set the output format: auto, raw, json, ..."),
    ("\\i", "FILE", "run the lines of a file, up to the first error"),
    ("\\!", "[COMMAND]", "run a command of the system, or a shell"),
];

pub fn parse(line: &str) -> Result<BackslashCommand, CommandError> {
    let line = line.trim();
    let (name, rest) = match line.strip_prefix("\\!") {
        Some(rest) => ("\\!", rest.trim()),
        None => line.split_once(char::is_whitespace).map_or((line, ""), |(name, rest)| (name, rest.trim())),
    };
    let word = (!rest.is_empty()).then(|| unquoted(rest));
    let command = match name {
        "\\?" | "\\h" | "\\help" => BackslashCommand::Help,
        "\\q" | "\\quit" => BackslashCommand::Quit,
        "\\c" | "\\connect" => BackslashCommand::Connect(word.clone(), false),
        "\\c!" | "\\connect!" => BackslashCommand::Connect(word.clone(), true),
        "\\conninfo" => BackslashCommand::ConnInfo,
        "\\timing" => BackslashCommand::Timing(on_or_off(name, word.as_deref())?),
        "\\trace" => BackslashCommand::Trace(on_or_off(name, word.as_deref())?),
        "\\o" => BackslashCommand::Format(word.as_deref().map(format).transpose()?),
        "\\watches" => BackslashCommand::Watches,
        "\\unwatch" => BackslashCommand::Unwatch(word.as_deref().map(selection).transpose()?),
        "\\locks" => BackslashCommand::Locks,
        "\\i" => match &word {
            Some(file) => BackslashCommand::Include(file.clone()),
            None => return Err(CommandError::usage("\\i requires a file name")),
        },
        "\\!" => BackslashCommand::System((!rest.is_empty()).then(|| rest.to_owned())),
        other => return Err(unknown(other)),
    };
    let takes_none = matches!(
        command,
        BackslashCommand::Help
            | BackslashCommand::Quit
            | BackslashCommand::ConnInfo
            | BackslashCommand::Watches
            | BackslashCommand::Locks
    );
    if takes_none && word.is_some() {
        return Err(CommandError::usage(format!("{name} takes no argument")));
    }
    Ok(command)
}

/// Returns whether a statement is a backslash command.
#[must_use]
pub fn is_backslash_command(statement: &[u8]) -> bool {
    statement.trim_ascii_start().starts_with(b"\\")
}

/// Finds the word at the end of a text that is a backslash command: where it starts, its text, and what it is.
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
    Err(CommandError::usage(format!("unknown format: {word}")).hint(FORMATS.join(", ")))
}

fn selection(word: &str) -> Result<WatchSelection, CommandError> {
    match (word, word.parse()) {
        ("all", _) => Ok(WatchSelection::All),
        (_, Ok(number)) => Ok(WatchSelection::Number(number)),
        _ => Err(CommandError::usage("\\unwatch takes the number of a watch, or all").hint("\\watches")),
    }
}

fn unknown(name: &str) -> CommandError {
    let error = CommandError::usage(format!("unknown command: {name}"));
    let similar = NAMES.iter().find(|(known, ..)| name.len() > 1 && known.starts_with(name));
    let similar =
        similar.or_else(|| NAMES.iter().find(|(known, ..)| known.len() > 2 && name.starts_with(known)));
    match similar {
        Some((known, ..)) => error.hint(*known),
        None => error.hint("\\? lists the commands"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_command_is_a_name_and_an_argument() {
        assert_eq!(parse(" \\q ").unwrap(), BackslashCommand::Quit);
        assert_eq!(parse("\\c").unwrap(), BackslashCommand::Connect(None, false));
        assert_eq!(parse("\\c prod").unwrap(), BackslashCommand::Connect(Some("prod".into()), false));
        assert_eq!(
            parse("\\c! mqtt://h:1884").unwrap(),
            BackslashCommand::Connect(Some("mqtt://h:1884".into()), true)
        );
        assert_eq!(parse("\\timing").unwrap(), BackslashCommand::Timing(None));
        assert_eq!(parse("\\timing off").unwrap(), BackslashCommand::Timing(Some(false)));
        assert_eq!(parse("\\trace on").unwrap(), BackslashCommand::Trace(Some(true)));
        assert_eq!(parse("\\unwatch 2").unwrap(), BackslashCommand::Unwatch(Some(WatchSelection::Number(2))));
        assert_eq!(parse("\\unwatch all").unwrap(), BackslashCommand::Unwatch(Some(WatchSelection::All)));
        assert_eq!(parse("\\i 'a file'").unwrap(), BackslashCommand::Include("a file".into()));
        assert_eq!(parse("\\o json").unwrap(), BackslashCommand::Format(Some("json".into())));
    }

    #[test]
    fn a_system_command_is_passed_on_unchanged() {
        assert_eq!(parse("\\!").unwrap(), BackslashCommand::System(None));
        assert_eq!(
            parse("\\! ls 'a b' | wc").unwrap(),
            BackslashCommand::System(Some("ls 'a b' | wc".into()))
        );
        assert_eq!(parse("\\!ls").unwrap(), BackslashCommand::System(Some("ls".into())));
    }

    #[test]
    fn an_unknown_command_or_argument_is_rejected_with_a_hint() {
        assert_eq!(parse("\\tim").unwrap_err().hints, ["\\timing"]);
        assert_eq!(parse("\\x").unwrap_err().hints, ["\\? lists the commands"]);
        for line in ["\\q now", "\\timing maybe", "\\trace k", "\\o yaml", "\\unwatch x", "\\i"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
