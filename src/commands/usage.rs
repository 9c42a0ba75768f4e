//! Usage errors of clap, as errors of a verb.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use super::error::CommandError;
use super::url_secret::without_secret;

/// Converts an error of clap; `program` is put before a suggested verb, with its blank.
#[must_use]
pub fn explain(error: &Error, program: &str) -> CommandError {
    match error.kind() {
        ErrorKind::InvalidSubcommand => unknown_verb(error, program),
        ErrorKind::MissingRequiredArgument => missing(error).unwrap_or_else(|| reshape(error)),
        _ => reshape(error),
    }
}

/// Returns the missing arguments, with the usage as a hint.
fn missing(error: &Error) -> Option<CommandError> {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return None };
    let bare = |text: &str| text.replace(['<', '>'], "");
    let names: Vec<_> = texts(error, ContextKind::InvalidArg).iter().map(|name| bare(name)).collect();
    let (last, others) = names.split_last()?;
    let message = match others {
        [] => format!("{} is missing", last.trim_end_matches('.')),
        others => format!("{} and {last} are missing", others.join(", ")),
    };
    let usage = bare(&usage.to_string()).replace("[OPTIONS] ", "");
    // The part after `--` is optional, so it is not what is missing.
    let usage = usage.split(" [--").next().unwrap_or_default().trim_start_matches("Usage: ");
    Some(CommandError::usage(message).hint(usage.trim()))
}

fn unknown_verb(error: &Error, program: &str) -> CommandError {
    let verb = texts(error, ContextKind::InvalidSubcommand).join(" ");
    let mut failure = CommandError::usage(format!("unknown command '{}'", without_secret(&verb)));
    let similar = texts(error, ContextKind::SuggestedSubcommand);
    let did_you_mean = |verb: &str| format!("did you mean '{program}{verb}'?");
    // Clap puts the most similar last.
    failure.hints.extend(similar.iter().rev().map(|verb| did_you_mean(verb)));
    if failure.hints.is_empty() {
        failure.hints.extend(verb_of_other_tools(&verb).map(did_you_mean));
    }
    failure
}

/// Returns the verb for its name in another tool, or for a typing error in a short name.
fn verb_of_other_tools(verb: &str) -> Option<&'static str> {
    Some(match verb.to_ascii_lowercase().as_str() {
        "get" | "gte" | "teg" | "egt" | "read" | "fetch" | "show" | "cat" => "get",
        "set" | "ste" | "est" | "put" | "write" | "store" | "pub" | "publish" => "set",
        "del" | "dle" | "remove" | "unset" | "rmkey" => "del",
        "sub" | "subscribe" | "tail" | "follow" | "keynotify" => "watch",
        "server" | "start" | "broker" | "run" => "serve",
        "ls" | "list" | "scan" => "keys",
        "dump" | "backup" => "export",
        "load" | "restore" => "import",
        "pipe" | "script" => "batch",
        "completion" => "completions",
        _ => return None,
    })
}

/// Returns the option for one of Redis, after the key and the value of `set`.
fn option_of_redis(error: &Error) -> Option<&'static str> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return None };
    if !usage.to_string().contains("set [OPTIONS] [KEY] [VALUE]") {
        return None;
    }
    let word = texts(error, ContextKind::InvalidArg).concat();
    Some(match word.to_ascii_uppercase().as_str() {
        "NX" => "--nx",
        "NEX" => "--nex",
        "PX" => "--ttl 5000ms",
        "EX" => "--ttl 5s",
        _ => return None,
    })
}

fn texts(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

/// Clap writes `error: MESSAGE`, then paragraphs: `  tip: ...`, `Usage: ...`, `For more information, ...`.
fn reshape(error: &Error) -> CommandError {
    let mut text = error.render().to_string();
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidValue] {
        for word in texts(error, kind).iter().filter(|word| !word.is_empty()) {
            text = text.replace(word, &without_secret(word));
        }
    }
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .take_while(|line| !line.starts_with("Usage: ") && !line.starts_with("For more information"));
    let message = lines.next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let mut failure = CommandError::usage(reword(message));
    failure.hints.extend(option_of_redis(error).map(str::to_owned));
    failure.causes.extend(lines.map(|line| line.strip_prefix("tip: ").unwrap_or(line).to_owned()));
    failure
}

/// Rewords the errors of Rust's number parsers.
fn reword(message: &str) -> String {
    let words = [
        ("number would be zero for non-zero type", "it must be at least 1"),
        ("invalid digit found in string", "it is not a number"),
        ("number too large to fit in target type", "it is too large"),
    ];
    let reworded = words.iter().find_map(|(from, to)| Some((message.strip_suffix(from)?, to)));
    reworded.map_or_else(|| message.to_owned(), |(start, to)| format!("{start}{to}"))
}
