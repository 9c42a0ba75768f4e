//! What clap says about words that make no sense, in our own shape.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use super::error::CommandError;

/// Turns clap's verdict into ours; `program` goes before a verb that is suggested, with its blank.
#[must_use]
pub fn explain(error: &Error, program: &str) -> CommandError {
    match error.kind() {
        ErrorKind::InvalidSubcommand => no_such_verb(error, program),
        ErrorKind::MissingRequiredArgument => missing(error).unwrap_or_else(|| reshape(error)),
        _ => reshape(error),
    }
}

/// What is missing, and how the line would look with it; none if clap does not say.
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
    // What may stand behind -- is not what is missing.
    let usage = usage.split(" [--").next().unwrap_or_default().trim_start_matches("Usage: ");
    Some(CommandError::usage(message).hint(usage.trim()))
}

fn no_such_verb(error: &Error, program: &str) -> CommandError {
    let verb = texts(error, ContextKind::InvalidSubcommand).join(" ");
    let mut failure = CommandError::usage(format!("no such verb: {verb}"));
    let similar = texts(error, ContextKind::SuggestedSubcommand);
    // Clap puts the most similar last.
    failure.hints.extend(similar.iter().rev().map(|similar| format!("{program}{similar}")));
    if failure.hints.is_empty() {
        failure.hints.extend(habit(&verb).map(|habit| format!("{program}{habit}")));
    }
    failure
}

/// What other tools call our verbs, and how fingers mistype the short ones.
fn habit(verb: &str) -> Option<&'static str> {
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

/// What Redis writes behind a key and its value, as an option of ours.
fn option_meant(error: &Error) -> Option<&'static str> {
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
    let text = error.render().to_string();
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .take_while(|line| !line.starts_with("Usage: ") && !line.starts_with("For more information"));
    let message = lines.next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let mut failure = CommandError::usage(plain(message));
    failure.hints.extend(option_meant(error).map(str::to_owned));
    failure.causes.extend(lines.map(|line| line.strip_prefix("tip: ").unwrap_or(line).to_owned()));
    failure
}

/// What Rust says of numbers is for programmers.
fn plain(message: &str) -> String {
    let words = [
        ("number would be zero for non-zero type", "it is 1 at least"),
        ("invalid digit found in string", "it is no number"),
        ("number too large to fit in target type", "it is too large"),
    ];
    let odd = words.iter().find_map(|(odd, plain)| Some((message.strip_suffix(odd)?, plain)));
    odd.map_or_else(|| message.to_owned(), |(front, plain)| format!("{front}{plain}"))
}
