//! Answers to the completion scripts in `completions/`.
//!
//! A script calls `mqkv __complete SHELL ...` with the words in front of the cursor. The first line of the answer names
//! what the script has to complete itself, because the shell does it best: `files N`, `directories N` or `command N`. It
//! is `words` if the lines that follow are the candidates. N is the number of characters to leave as they are, or of
//! words in front of the command.

use std::ffi::OsString;

use clap::{Arg, Args, Command, FromArgMatches, ValueEnum};

use super::bash_line::{self, BashLine};
use super::stored;
use crate::cli::args::definition;
use crate::cli::completion_script::Shell;
use crate::cli::config::context_names;
use crate::cli::config::variables::Variables;
use crate::cli::options::{ConnectionArgs, has_connection};
use crate::commands::CommandError;
use crate::commands::args::kind::ValueKind;
use crate::platform::os_string;
use crate::render::escape::is_safe;
use crate::shell::completion::engine::{Candidate, Candidates, Completion, beginning_with, complete};
use crate::shell::definition::Given;

/// The verb that the scripts use. The definition of the command line does not contain it, so that no help names it and no
/// error suggests it.
pub const VERB: &str = "__complete";

/// Returns the answer to a completion script.
///
/// # Errors
/// The arguments name no shell.
pub fn answer(arguments: &[OsString], variables: &Variables) -> Result<Vec<u8>, CommandError> {
    let shell = arguments.first().and_then(|name| Shell::from_str(name.to_str()?, false).ok());
    let (Some(shell), Some((_, arguments))) = (shell, arguments.split_first()) else {
        return Err(CommandError::usage(format!("{VERB} takes the name of a shell")));
    };
    let line = Line::of(shell, arguments);
    let lister = |given: &[Given<'_>], kind, prefix: &str| list(given, kind, prefix, variables);
    let answer = line.map(|line| line.answer(&definition(), &lister)).unwrap_or_default();
    Ok(answer.into_bytes())
}

/// Lists values of a kind, with the options that were typed; of keys, those that begin with a prefix.
type Lister<'a> = dyn Fn(&[Given<'_>], ValueKind, &str) -> Vec<String> + 'a;

/// Reads a file or asks a broker only here, where the cursor stands at a context or at a name that the broker knows.
fn list(given: &[Given<'_>], kind: ValueKind, prefix: &str, variables: &Variables) -> Vec<String> {
    let Some(connection) = connection(given) else { return Vec::new() };
    match kind {
        ValueKind::Context => context_names(&connection, variables),
        _ if stored::are_wanted(variables) => stored::list(&connection, variables, kind, prefix),
        _ => Vec::new(),
    }
}

/// Returns the options of the connection among those that were typed, or `None` if they are invalid.
fn connection(given: &[Given<'_>]) -> Option<ConnectionArgs> {
    let command = ConnectionArgs::augment_args(Command::new("connection").no_binary_name(true));
    let longs: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
    let mut words = Vec::new();
    for Given { option, value } in given {
        let Some(long) = option.get_long().filter(|long| longs.contains(long)) else { continue };
        let mut word = OsString::from(format!("--{long}"));
        if let Some(value) = value {
            word.push("=");
            word.push(os_string(value.clone()));
        }
        words.push(word);
    }
    let matches = command.try_get_matches_from(words).ok()?;
    ConnectionArgs::from_arg_matches(&matches).ok()
}

/// A command line up to the cursor, of any shell.
#[derive(Debug)]
struct Line {
    shell: Shell,
    bash: BashLine,
}

impl Line {
    fn of(shell: Shell, arguments: &[OsString]) -> Option<Self> {
        let bytes = |word: &OsString| word.as_encoded_bytes().to_owned();
        if shell == Shell::Bash {
            let [breaks, line] = arguments else { return None };
            return Some(Self {
                shell,
                bash: BashLine::parse(line.as_encoded_bytes(), breaks.as_encoded_bytes())?,
            });
        }
        // The other shells split words as they run them.
        let (current, words) = arguments.split_last()?;
        // PowerShell drops empty arguments, so its script puts a sign in front of this one.
        let current = match current.as_encoded_bytes() {
            [b'=', current @ ..] if shell == Shell::Powershell => current,
            current => current,
        };
        let words: Vec<_> = words.iter().map(bytes).collect();
        let preceding = (1..=words.len().saturating_add(1)).collect();
        let bash = BashLine { words, current: current.to_owned(), preceding, ..BashLine::default() };
        Some(Self { shell, bash })
    }

    fn answer(&self, definition: &Command, list: &Lister<'_>) -> String {
        let BashLine { words, current, preceding, .. } = &self.bash;
        if self.bash.is_redirection {
            return "files 0\n".to_owned();
        }
        let Some(Completion { parsed, kept, candidates }) = complete(definition, words, current) else {
            return String::new();
        };
        let prefix = current.get(kept..).and_then(|prefix| std::str::from_utf8(prefix).ok());
        let (Some(prefix), Some(before)) = (prefix, current.get(..kept)) else { return String::new() };
        let before = String::from_utf8_lossy(before);
        let characters = before.chars().count();
        match candidates {
            Candidates::Words(candidates) => self.words(&before, candidates),
            // The keys of a verb without a connection are in files.
            Candidates::Listed(ValueKind::Key) if !has_connection(parsed.verb) => {
                self.words(&before, Vec::new())
            }
            Candidates::Listed(kind) => {
                let listed = list(&parsed.given, kind, prefix).into_iter();
                let listed = listed.map(|word| Candidate { word, about: String::new() });
                self.words(&before, beginning_with(prefix.as_bytes(), listed))
            }
            Candidates::Files => format!("files {characters}\n"),
            Candidates::Directories => format!("directories {characters}\n"),
            Candidates::Command(first) => {
                preceding.get(first).map(|preceding| format!("command {preceding}\n")).unwrap_or_default()
            }
        }
    }

    fn words(&self, before: &str, candidates: Vec<Candidate>) -> String {
        let mut out = "words\n".to_owned();
        for Candidate { word, about } in candidates {
            let word = format!("{before}{word}");
            // A list of candidates has a line for each, and the shell prints it as it is.
            if !word.chars().all(is_safe) {
                continue;
            }
            let about = about.lines().next().unwrap_or_default();
            let line = match self.shell {
                Shell::Bash => {
                    let replaced = word.get(self.bash.replaced_from..).unwrap_or_default();
                    bash_line::quote(replaced, self.bash.quote)
                }
                Shell::Zsh => {
                    let word = word.replace('\\', "\\\\").replace(':', "\\:");
                    if about.is_empty() { word } else { format!("{word}:{about}") }
                }
                Shell::Elvish | Shell::Fish | Shell::Powershell => format!("{word}\t{about}"),
            };
            out.push_str(&line);
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::definition;

    fn answered(shell: Shell, arguments: &[&str]) -> String {
        let arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
        let list = |_: &[Given<'_>], kind: ValueKind, _: &str| {
            let names: &[&str] = match kind {
                ValueKind::Context => &["lab", "prod"],
                ValueKind::Leaf => &["press-7", "mill"],
                ValueKind::Conflict => &["40", "41"],
                ValueKind::Key => &["a b", "line1/temp", "tab\there"],
            };
            names.iter().map(ToString::to_string).collect()
        };
        Line::of(shell, &arguments).map(|line| line.answer(&definition(), &list)).unwrap_or_default()
    }

    fn bash(line: &str) -> String {
        answered(Shell::Bash, &[" \t\n\"'@><=;|&(:", line])
    }

    #[test]
    fn bash_gets_the_part_of_a_word_that_it_replaces_quoted() {
        assert_eq!(bash("mqkv get --output=j"), "words\njson\njsonl\n");
        assert_eq!(bash("mqkv get -x p"), "words\nprod\n");
        assert_eq!(bash("mqkv get k -b k"), "words\nkube:\n");
        assert_eq!(bash("mqkv get k -b mqtt"), "words\n", "a host cannot be known");
        assert_eq!(bash("mqkv get a"), "words\na\\ b\n");
        assert_eq!(bash("mqkv data clear-fence ./state a"), "words\n", "the key is in the files");
        assert_eq!(bash("mqkv get 'a"), "words\na b\n");
        assert_eq!(bash("mqkv get k > "), "files 0\n");
        assert_eq!(bash("mqkv get k --file=o"), "files 7\n");
        assert_eq!(bash("mqkv -b mqtt://h lock d -- l"), "command 8\n");
        assert_eq!(bash("mqk"), "");
        for line in ["status p", "conflicts --leaf=p", "drop-leaf p", "resync p"] {
            assert_eq!(bash(&format!("mqkv exchange {line}")), "words\npress-7\n", "{line}");
        }
        assert_eq!(bash("mqkv exchange add-leaf p"), "words\n", "a new leaf");
        assert_eq!(bash("mqkv exchange value "), "words\n40\n41\n");
        assert_eq!(bash("mqkv exchange clear 40 "), "words\n40\n41\n");
        assert_eq!(bash("mqkv exchange check "), "files 0\n");
        assert_eq!(bash("mqkv get -i "), "words\n", "a client id is no conflict");
    }

    #[test]
    fn the_other_shells_get_descriptions() {
        let verbs = answered(Shell::Fish, &["hol"]);
        assert!(verbs.starts_with("words\nholder\t") && verbs.len() > "words\nholder\t\n".len(), "{verbs}");
        assert!(answered(Shell::Zsh, &["hol"]).starts_with("words\nholder:"));
        assert_eq!(answered(Shell::Zsh, &["get", "-x", "l"]), "words\nlab\n");
        assert_eq!(answered(Shell::Fish, &["lock", "d", "--", "l"]), "command 4\n");
        assert_eq!(answered(Shell::Fish, &["get", "-f", ""]), "files 0\n");
        assert_eq!(answered(Shell::Fish, &["--embedded=st"]), "directories 11\n");
        assert_eq!(answered(Shell::Fish, &["nonsense", ""]), "");
    }

    #[test]
    fn a_key_with_control_characters_is_left_out() {
        assert_eq!(answered(Shell::Fish, &["get", "t"]), "words\n");
    }

    #[test]
    fn options_of_the_connection_are_found_wherever_they_were_typed() {
        let definition = definition();
        let words = ["-x", "lab", "get", "--config", "c", "-o", "json", "-f", "f"]
            .map(|word| word.as_bytes().to_vec());
        let given = definition::parse(&definition, &words).unwrap().given;
        let connection = connection(&given).unwrap();
        assert_eq!((connection.context.as_deref(), connection.config.is_some()), (Some("lab"), true));
    }
}
