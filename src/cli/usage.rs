//! What clap says about a command line that makes no sense, in our own shape.

use std::ffi::{OsStr, OsString};

use clap::CommandFactory;
use clap::error::{Error, ErrorKind};

use super::args::Cli;
use crate::commands::{CommandError, usage};

/// What is to be shown instead of running a verb.
#[derive(Debug)]
pub enum Instead {
    /// Help or the version, which was asked for.
    Show(Box<Error>),
    /// An error.
    Fail(CommandError),
}

/// Turns clap's verdict on a command line into ours.
#[must_use]
pub fn judge(error: Error, words: &[OsString]) -> Instead {
    match error.kind() {
        ErrorKind::DisplayHelp if is_host_after_h(words) => Instead::Fail(host_after_h(words)),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Instead::Show(Box::new(error)),
        ErrorKind::InvalidUtf8 => Instead::Fail(no_text(words).hint(help_hint(words))),
        _ => {
            let program = format!("{} ", verbs(words).join(" "));
            Instead::Fail(usage::explain(&error, &program).hint(help_hint(words)))
        }
    }
}

/// Whether JSON is asked for, as far as can be told of a command line that makes no sense.
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

/// Clap does not say which word it is: all that it can be are named.
fn no_text(words: &[OsString]) -> CommandError {
    let odd = words.iter().filter(|word| word.to_str().is_none());
    let odd: Vec<_> = odd.map(|word| word.as_encoded_bytes().escape_ascii().to_string()).collect();
    CommandError::usage(format!("no UTF-8: {}", odd.join(" ")))
        .cause("only keys, values and names of files may hold any byte")
}

/// Users of mosquitto's tools write `-h localhost`, and a script would take the help for success.
fn is_host_after_h(words: &[OsString]) -> bool {
    let Some(place) = words.iter().position(|word| word.as_encoded_bytes().starts_with(b"-h")) else {
        return false;
    };
    let joined = words.get(place).is_some_and(|word| word != "-h");
    let next = words.get(place.saturating_add(1));
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

/// The help of the verb that was typed, or of all.
fn help_hint(words: &[OsString]) -> String {
    let names = verbs(words);
    if names.len() == 1 { "mqkv help".to_owned() } else { format!("{} --help", names.join(" ")) }
}

/// The verbs that were typed, each below the one before it, behind the program.
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
    fn a_host_after_h_is_told_from_a_wish_for_help() {
        for trap in ["mqkv -h localhost get k", "mqkv get -h HOST", "mqkv -hlocalhost get"] {
            assert!(is_host_after_h(&words(trap)), "{trap}");
        }
        for help in ["mqkv -h", "mqkv get -h", "mqkv -h get", "mqkv get -h -j", "mqkv get --help x"] {
            assert!(!is_host_after_h(&words(help)), "{help}");
        }
    }

    #[test]
    fn json_is_recognised_on_a_line_that_makes_no_sense() {
        for line in ["mqkv gte -j", "mqkv -o json gte", "mqkv --output=jsonl", "mqkv -ojson x"] {
            assert!(wants_json(&words(line)), "{line}");
        }
        for line in ["mqkv gte", "mqkv set k -- -j", "mqkv -o text json"] {
            assert!(!wants_json(&words(line)), "{line}");
        }
    }
}
