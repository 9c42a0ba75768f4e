//! Errors of clap for the command line: usage errors, with hints that only the process edge knows, and requests for help.

use std::ffi::{OsStr, OsString};

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use super::args::Cli;
use super::habits;
use super::help::topics::TOPICS;
use crate::commands::{CommandError, usage_error};

/// What to do instead of running a verb.
#[derive(Debug)]
pub enum Instead {
    /// Print the help that the words request.
    Help,
    /// Print the version.
    Version(String),
    Fail(CommandError),
}

/// Converts an error of clap; `words` are the command line.
#[must_use]
pub fn explain(error: Error, words: &[OsString]) -> Instead {
    match error.kind() {
        ErrorKind::DisplayHelp if is_host_after_h(words) => Instead::Fail(host_after_h(words)),
        ErrorKind::DisplayHelp => Instead::Help,
        ErrorKind::DisplayVersion => Instead::Version(error.render().to_string()),
        ErrorKind::InvalidUtf8 => Instead::Fail(not_utf8(words).hint(help_hint(&verbs(words)))),
        kind => {
            let verbs = verbs(words);
            let program = format!("{} ", verbs.join(" "));
            let context = usage_error::Context {
                program: &program,
                is_first_level: verbs.len() == 1,
                is_available: |_| true,
                words,
            };
            let mut failure = usage_error::explain(&error, &context);
            if kind == ErrorKind::InvalidSubcommand && verbs.get(1).is_some_and(|verb| verb == "config") {
                failure.hints =
                    vec!["mqkv context edit, or mqkv context set NAME, changes the file".to_owned()];
            }
            if kind == ErrorKind::UnknownArgument
                && failure.hints.is_empty()
                && let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
                && let Some(hint) = habits::hint_of_format(option)
            {
                failure.causes.clear();
                failure.hints.push(hint);
            }
            if kind == ErrorKind::InvalidSubcommand
                && verbs.len() == 1
                && let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand)
                && TOPICS.iter().any(|topic| topic.name == typed)
                && !failure.hints.iter().any(|hint| hint.contains("mqkv help"))
            {
                failure.hints.push(format!("mqkv help {typed}"));
            }
            if kind == ErrorKind::MissingSubcommand {
                failure = missing_verb(&error, &verbs);
            }
            let verb = verbs.get(1).map(String::as_str);
            if kind == ErrorKind::UnknownArgument
                && verb == Some("serve")
                && let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
                && let Some(hint) = option_of_serve(option)
            {
                // Clap's suggestions are options of similar spelling, which have another meaning.
                failure.causes.clear();
                failure.hints.push(hint.to_owned());
            }
            if kind == ErrorKind::UnknownArgument
                && let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg)
                && let Some(hint) = habits::hint_of_argument(verb, argument, words)
            {
                failure.hints = vec![hint];
            }
            if let Some(hint) = hint_of_exec(&error, &verbs, words) {
                failure.causes.clear();
                failure.hints = vec![hint];
            }
            Instead::Fail(failure.hint(help_hint(&verbs)))
        }
    }
}

/// Reports that the verb below a verb is missing, with those that exist.
fn missing_verb(error: &Error, verbs: &[String]) -> CommandError {
    let below = match error.get(ContextKind::ValidSubcommand) {
        Some(ContextValue::Strings(below)) => below.join("|"),
        _ => String::new(),
    };
    CommandError::usage("a verb is missing").hint(format!("{} {below}", verbs.join(" ")))
}

/// Returns how to write `serve --exec CMD` and `serve --exec=CMD`.
fn hint_of_exec(error: &Error, verbs: &[String], words: &[OsString]) -> Option<String> {
    const EXEC: &str = "--exec";
    let is_serve = verbs.get(1).is_some_and(|verb| verb == "serve");
    let command =
        match (error.kind(), error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue)) {
            (ErrorKind::UnknownArgument, Some(ContextValue::String(word)), _) => {
                words.iter().any(|word| word == EXEC).then_some(word)
            }
            (
                ErrorKind::TooManyValues,
                Some(ContextValue::String(option)),
                Some(ContextValue::String(value)),
            ) => (option == EXEC).then_some(value),
            _ => None,
        };
    let command = command.filter(|word| is_serve && !word.starts_with('-'))?;
    Some(format!("the command of --exec follows --: mqkv serve --exec -- {command}"))
}

/// Returns what replaces an option that `serve` does not have: those of clients, and those that have become verbs.
fn option_of_serve(option: &str) -> Option<&'static str> {
    let name = option.split('=').next().unwrap_or(option);
    Some(match name {
        "-b" | "--broker" | "-n" | "--hostname" | "--host" | "-p" | "--port" | "-x" | "--context" => {
            "--listen HOST:PORT sets where to listen"
        }
        "--notls" | "--no-tls" => "--listen mqtt://HOST:PORT listens without TLS",
        "-T" | "--cafile" => "--client-ca FILE sets the CAs of client certificates",
        "-C" | "--certfile" => "--tls-cert FILE sets the server's certificate",
        "-K" | "--keyfile" => "--tls-key FILE sets the key of the server's certificate",
        "-P" | "--keypasswordfile" => "--tls-key FILE needs a key that is not encrypted",
        "--server-name" => "--tls-cert FILE: the certificate contains the names",
        "-u" | "--username" | "--password-file" | "--ask-password" => {
            "--users FILE requires a user of this file; mqkv serve user add FILE NAME adds one"
        }
        "--sat-file" => "--sat-tokens FILE requires a token of this file",
        "--config" => "mqkv serve --config FILE reads options of the server",
        "--embedded" => "--data DIR stores the data in DIR",
        "--trace" => "--log text logs each connection",
        "--verify" => "mqkv data verify DIR",
        "--salvage" => "mqkv data recover DIR",
        "--clear-fence" => "mqkv data clear-fence DIR KEY",
        _ => return None,
    })
}

/// Returns whether a command line that cannot be parsed requests JSON.
#[must_use]
pub fn wants_json(words: &[OsString]) -> bool {
    let options = || words.iter().take_while(|word| *word != "--");
    let json = |word: &OsStr| word == "json" || word == "jsonl";
    options().any(|word| {
        let text = word.to_string_lossy();
        let joined = text.strip_prefix("--output=").or_else(|| text.strip_prefix("-o"));
        text == "-j" || text == "--json" || joined.is_some_and(|value| json(OsStr::new(value)))
    }) || options()
        .zip(options().skip(1))
        .any(|(option, value)| (option == "-o" || option == "--output") && json(value))
}

/// Clap does not report which word it is: the error contains all candidates.
fn not_utf8(words: &[OsString]) -> CommandError {
    let invalid = words.iter().filter(|word| word.to_str().is_none());
    let invalid: Vec<_> = invalid.map(|word| word.as_encoded_bytes().escape_ascii().to_string()).collect();
    CommandError::usage(format!("invalid UTF-8: {}", invalid.join(" ")))
        .cause("only keys, values and file names may contain arbitrary bytes")
}

/// Detects `-h localhost`, as mosquitto's tools take it: a script would take the help for success.
fn is_host_after_h(words: &[OsString]) -> bool {
    let Some(at) = words.iter().position(|word| word.as_encoded_bytes().starts_with(b"-h")) else {
        return false;
    };
    let joined = words.get(at).is_some_and(|word| word != "-h");
    let next = words.get(at.saturating_add(1));
    let separate = next.is_some_and(|word| !word.as_encoded_bytes().starts_with(b"-") && !is_verb(word));
    joined || separate
}

fn host_after_h(words: &[OsString]) -> CommandError {
    match verbs(words).get(1).map(String::as_str) {
        Some("serve") => CommandError::usage("-h prints help; where to listen is --listen HOST:PORT")
            .hint("mqkv serve --listen HOST:PORT"),
        _ => CommandError::usage("-h prints help; the host is -n HOST or -b mqtt://HOST")
            .hint("mqkv get KEY -n HOST --notls"),
    }
}

fn is_verb(word: &OsStr) -> bool {
    let command = Cli::command();
    word.to_str().is_some_and(|word| command.find_subcommand(word).is_some())
}

/// Returns the command that prints the help of the verb on the command line, or of all verbs.
fn help_hint(names: &[String]) -> String {
    if names.len() == 1 { "mqkv help".to_owned() } else { format!("{} --help", names.join(" ")) }
}

/// Returns the program and the verbs on the command line, each below the one before it.
fn verbs(words: &[OsString]) -> Vec<String> {
    let root = Cli::command();
    let mut command = &root;
    let mut names = vec!["mqkv".to_owned()];
    for word in words.iter().skip(1) {
        let below = word.to_str().and_then(|word| command.find_subcommand(word));
        if let Some(below) = below {
            names.push(below.get_name().to_owned());
            command = below;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_host_after_h_is_not_a_request_for_help() {
        for line in ["mqkv -h localhost get k", "mqkv get -h HOST", "mqkv -hlocalhost get"] {
            assert!(is_host_after_h(&words(line)), "{line}");
        }
        for help in ["mqkv -h", "mqkv get -h", "mqkv -h get", "mqkv get -h -j", "mqkv get --help x"] {
            assert!(!is_host_after_h(&words(help)), "{help}");
        }
    }

    #[test]
    fn a_request_for_json_is_recognized_on_an_invalid_command_line() {
        for line in ["mqkv gte -j", "mqkv -o json gte", "mqkv --output=jsonl", "mqkv -ojson x"] {
            assert!(wants_json(&words(line)), "{line}");
        }
        for line in ["mqkv gte", "mqkv set k -- -j", "mqkv -o text json"] {
            assert!(!wants_json(&words(line)), "{line}");
        }
    }
}
