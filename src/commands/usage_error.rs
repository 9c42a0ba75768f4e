//! Usage errors of clap as errors of a verb, on the command line, in a batch and at the prompt.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use super::error::CommandError;
use super::similarity::closest;
use super::url_secret::without_secret;
use crate::protocol::Timestamp;
use crate::protocol::topic::Topic;

/// The command line that an error is about.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The program and the verbs before a suggested verb, with a blank at the end.
    pub program: &'a str,
    /// Whether the verbs are those of the first level.
    pub is_first_level: bool,
    /// Whether a verb can be used here.
    pub is_available: fn(&str) -> bool,
    pub words: &'a [OsString],
}

/// Converts an error of clap.
#[must_use]
pub fn explain(error: &Error, context: &Context<'_>) -> CommandError {
    match error.kind() {
        ErrorKind::InvalidSubcommand => unknown_verb(error, context),
        ErrorKind::MissingRequiredArgument => missing(error).unwrap_or_else(|| reshape(error, context)),
        _ => reshape(error, context),
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

fn unknown_verb(error: &Error, context: &Context<'_>) -> CommandError {
    let verb = texts(error, ContextKind::InvalidSubcommand).join(" ");
    let mut failure = CommandError::usage(format!("unknown command '{}'", without_secret(&verb)));
    if let Some(what) = what_to_decode(&verb).filter(|_| context.program.ends_with(" decode ")) {
        return failure.hint(format!("{}{what} {verb}", context.program));
    }
    if !context.is_first_level {
        // Clap's candidates are similar by a measure that suggests `set` for `list`.
        let similar = texts(error, ContextKind::SuggestedSubcommand);
        failure.hints.extend(closest(&verb, similar.into_iter()).map(|verb| did_you_mean(context, &verb)));
        return failure;
    }
    if let Some(explanation) = feature_of_other_tools(&verb) {
        return failure.hint(explanation);
    }
    let similar = texts(error, ContextKind::SuggestedSubcommand).into_iter();
    let meant = verb_of_other_tools(&verb)
        .map(str::to_owned)
        .or_else(|| closest(&verb, similar.filter(|verb| (context.is_available)(verb))))
        .filter(|verb| (context.is_available)(verb));
    failure.hints.extend(meant.map(|verb| did_you_mean(context, &verb)));
    failure
}

/// Returns what `decode` explains a word as.
fn what_to_decode(word: &str) -> Option<&'static str> {
    match word {
        "-" => Some("frame"),
        topic if Topic::parse(topic).is_some() => Some("topic"),
        version => version.parse::<Timestamp>().ok().map(|_| "hlc"),
    }
}

fn did_you_mean(context: &Context<'_>, verb: &str) -> String {
    format!("did you mean '{}{verb}'?", context.program)
}

/// Returns what replaces a verb of another tool that has no counterpart here.
fn feature_of_other_tools(verb: &str) -> Option<&'static str> {
    Some(match verb.to_ascii_lowercase().as_str() {
        "ttl" | "pttl" | "expiretime" => "the protocol does not report a remaining time; see mqkv help ttl",
        "expire" | "pexpire" | "persist" => "set the key again, with --ttl or without; see mqkv help ttl",
        "exists" => "mqkv get KEY exits with 1 if the key does not exist",
        "setnx" => "mqkv set KEY VALUE --nx",
        "setex" | "psetex" => "mqkv set KEY VALUE --ttl 30s",
        "mget" => "mqkv get KEY...",
        "dbsize" | "count" => "mqkv keys --count",
        "version" => "mqkv --version",
        "info" | "status" | "health" => "mqkv doctor checks each step to the store and back",
        "auth" | "login" => "-u USER --password-file FILE, or a context; see mqkv help options",
        "incr" | "decr" | "append" => {
            "the store has no such request; read and write under a lock; see mqkv help locks"
        }
        _ => return None,
    })
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
        "benchmark" | "perf" | "load-test" => "bench",
        "completion" => "completions",
        _ => return None,
    })
}

/// Returns the verb whose argument an error is about.
fn verb_of(error: &Error) -> Option<String> {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return None };
    let usage = usage.to_string();
    usage.split_whitespace().find(|word| !["Usage:", "mqkv"].contains(word)).map(str::to_owned)
}

/// Returns what is meant by an argument that other tools or other verbs have: Redis's `EX 10` after the key and the value of
/// `set`, for example.
fn argument_of_other_tools(error: &Error, context: &Context<'_>) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let verb = &*verb_of(error)?;
    let word = texts(error, ContextKind::InvalidArg).concat();
    let typed: Vec<_> = context.words.iter().filter_map(|typed| typed.to_str()).collect();
    let at = typed.iter().rposition(|typed| typed.split('=').next() == Some(&word))?;
    let joined = typed.get(at)?.split_once('=').map(|(_, value)| value);
    let value = joined.or_else(|| typed.get(at.saturating_add(1)).copied());
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let ttl = |unit: &str, default: &str| match value {
        None => format!("--ttl {default}{unit}"),
        Some(number) if is_number(number) => format!("--ttl {number}{unit}"),
        Some(_) => "--ttl DURATION".to_owned(),
    };
    let is_option = word.starts_with('-');
    Some(match (verb, word.trim_start_matches('-').to_ascii_lowercase().as_str()) {
        ("set", "nx") => "--nx".to_owned(),
        ("set", "nex") => "--nex".to_owned(),
        ("set", "px") => ttl("ms", "5000"),
        ("set", "ex" | "expire" | "expiry") => ttl("s", "5"),
        ("set", "xx" | "keepttl" | "get" | "exat" | "pxat") => return None,
        ("set" | "vdel", _) if !is_option => {
            format!("{verb} takes one KEY and one VALUE; quote those with blanks")
        }
        ("get" | "del" | "keys" | "export", "prefix") if is_option => {
            // In a line there is no program, and `export` runs in none.
            let is_line = context.program.is_empty();
            let (program, verb) = match verb {
                _ if is_line => ("", "keys"),
                "get" => ("mqkv ", "export"),
                "del" => ("mqkv ", "keys"),
                verb => ("mqkv ", verb),
            };
            let is_plain = |text: &&str| {
                text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_.:-".contains(&byte))
            };
            let prefix = value.filter(is_plain).unwrap_or("PREFIX");
            format!("a pattern has the keys with a prefix: {program}{verb} '{prefix}*'")
        }
        ("lock", "nonblock" | "nb" | "nowait" | "no-wait" | "try") if is_option => {
            "use -w 0 to try once".to_owned()
        }
        ("watch", "limit" | "max" | "max-count") if is_option => "use --count N".to_owned(),
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
fn reshape(error: &Error, context: &Context<'_>) -> CommandError {
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
    let mut failure = CommandError::usage(message);
    if let Some(hint) = argument_of_other_tools(error, context) {
        return failure.hint(hint);
    }
    let similar = texts(error, ContextKind::SuggestedArg);
    if let [typed] = texts(error, ContextKind::InvalidArg).as_slice() {
        let meant = closest(typed.trim_start_matches('-'), similar.iter().map(|name| bare_name(name)));
        failure.hints.extend(meant.map(|name| format!("did you mean --{name}?")));
    }
    let may_be_value = may_be_value(error, context.words);
    // A tip about similar arguments is replaced by the hint.
    let lines = lines.filter(|line| similar.is_empty() || !line.contains("similar"));
    let lines = lines.filter(|line| may_be_value || !line.starts_with("tip: to pass '"));
    failure.causes.extend(lines.map(|line| line.strip_prefix("tip: ").unwrap_or(line).to_owned()));
    failure
}

/// Returns whether an unknown option may be meant as a value: as that of `set KEY` and `vdel KEY`, or as a word of `raw`.
fn may_be_value(error: &Error, words: &[OsString]) -> bool {
    let (Some(verb), [option]) = (verb_of(error), &*texts(error, ContextKind::InvalidArg)) else {
        return false;
    };
    let is_option = |word: &&OsString| word.as_encoded_bytes().starts_with(option.as_bytes());
    let before = words.iter().skip_while(|word| **word != *verb).take_while(|word| !is_option(word));
    let operands = before.filter(|word| !word.as_encoded_bytes().starts_with(b"-")).count().saturating_sub(1);
    match &*verb {
        "set" | "vdel" => operands == 1,
        verb => verb == "raw",
    }
}

/// Returns the name of an option without dashes and value.
fn bare_name(option: &str) -> String {
    option.trim_start_matches('-').split([' ', '=']).next().unwrap_or_default().to_owned()
}
