//! Habits from other tools: options that have another name or another meaning here.

use std::ffi::OsString;
use std::path::Path;

use super::args::{Cli, Verb};
use crate::commands::similarity::closest;
use crate::commands::{Command, CommandError, Kind};
use crate::protocol::Key;
use crate::render::escape::escape;

const TRY_ONCE: &str = "use -w 0 to try once; -n names the host of the broker";

/// `lock -n HOST`. With flock, `-n` means to fail rather than wait, so HOST may be meant as the lock.
#[derive(Debug)]
pub struct LockAtHost {
    host: String,
    /// If it is valid.
    key: Option<Key>,
    is_key_a_word: bool,
}

impl LockAtHost {
    /// Returns the host and the key if the command line has the form.
    #[must_use]
    pub fn of(cli: &Cli, words: &[OsString]) -> Option<Self> {
        let Some(Verb::Command(Command::Lock(args))) = &cli.verb else { return None };
        let host = cli.options.connection.hostname.clone()?;
        if !follows(words, "-n", host.as_bytes()) {
            return None;
        }
        let key = args.valid_key();
        let is_key_a_word = key
            .as_ref()
            .is_some_and(|key| ["-k", "--key"].iter().all(|option| !follows(words, option, key.as_bytes())));
        Some(Self { host, key, is_key_a_word })
    }

    /// Rejects a path as the key, which is a command of flock.
    ///
    /// # Errors
    /// [`Kind::Usage`].
    pub fn check(&self) -> Result<(), CommandError> {
        let Some(key) = self.key.as_ref().filter(|key| self.is_key_a_word && is_path(key.as_bytes())) else {
            return Ok(());
        };
        let (host, key) = (&self.host, String::from_utf8_lossy(key.as_bytes()));
        Err(CommandError::usage(format!("{key} would be the lock, at the host {host}"))
            .hint(format!("use -w 0 to try once: mqkv lock {host} -w 0 -- {key}"))
            .hint(format!("if it is the lock: mqkv lock -k {key} -n {host}")))
    }

    /// Adds a hint to an error that the other meaning of `-n` can be the cause of.
    #[must_use]
    pub fn explain(&self, mut error: CommandError) -> CommandError {
        if error.kind == Kind::Unavailable || self.key.is_none() {
            error.hints.insert(0, TRY_ONCE.to_owned());
        }
        error
    }
}

fn follows(words: &[OsString], option: &str, value: &[u8]) -> bool {
    words.array_windows().any(|[first, second]| first == option && second.as_encoded_bytes() == value)
}

/// Rejects `lock -- CMD`, where CMD would be the key: most likely an empty variable was meant as the key.
///
/// # Errors
/// [`Kind::Usage`].
pub fn check_lock_key(cli: &Cli, words: &[OsString]) -> Result<(), CommandError> {
    let Some(Verb::Command(Command::Lock(args))) = &cli.verb else { return Ok(()) };
    let mut parts = words.splitn(2, |word| word == "--");
    let (Some(before), Some(_), Some(key)) = (parts.next(), parts.next(), args.valid_key()) else {
        return Ok(());
    };
    let has_key = |word: &OsString| {
        let word = word.as_encoded_bytes();
        word.ends_with(key.as_bytes()) || word.starts_with(b"--key-")
    };
    if before.iter().any(has_key) {
        return Ok(());
    }
    Err(CommandError::usage("KEY is missing").hint("mqkv lock KEY [options] [-- CMD ARG...]"))
}

/// Returns the warning for a verb on keys of a store in memory, which begins empty and ends with the verb. The value of
/// `--embedded` needs a `=`: a folder that follows a blank is an argument of the verb, most likely by mistake.
#[must_use]
pub fn warning_of_memory(command: &Command, words: &[OsString]) -> Option<String> {
    if !command.needs_lasting_store() {
        return None;
    }
    let folder = words
        .array_windows()
        .find(|[option, word]| option == "--embedded" && Path::new(word).is_dir())
        .map(|[_, folder]| folder.display().to_string());
    let hint = match folder {
        Some(folder) => format!("did you mean --embedded={}?", escape(folder.as_bytes())),
        None => "keep keys in a folder: --embedded=DIR".to_owned(),
    };
    Some(format!(
        "warning: --embedded: the store begins empty, and its keys are lost at the end\nhint: {hint}"
    ))
}

fn is_path(word: &[u8]) -> bool {
    word.starts_with(b"./") || word.starts_with(b"../")
}

/// Rejects `--embedded ./DIR`, in which the folder would be an argument of the verb.
///
/// # Errors
/// [`Kind::Usage`].
pub fn check_embedded_folder(cli: &Cli, words: &[OsString]) -> Result<(), CommandError> {
    // It may be the command of a lock.
    let is_lock = matches!(cli.verb, Some(Verb::Command(Command::Lock(_))));
    let folder = words.split(|word| word == "--").next().and_then(folder_behind_embedded);
    match folder.filter(|folder| !is_lock && is_path(folder.as_bytes())) {
        None => Ok(()),
        Some(folder) => Err(CommandError::usage(format!("{folder} would not be the folder of --embedded"))
            .hint(format!("--embedded={folder}"))),
    }
}

fn folder_behind_embedded(words: &[OsString]) -> Option<&str> {
    let pair = words
        .array_windows()
        .find(|[option, word]| option == "--embedded" && !word.as_encoded_bytes().starts_with(b"-"));
    pair.and_then(|[_, folder]| folder.to_str())
}

/// Returns what is meant by an argument that the verb does not take: the folder of `--embedded`, or where to listen.
#[must_use]
pub fn hint_of_argument(verb: Option<&str>, argument: &str, words: &[OsString]) -> Option<String> {
    if folder_behind_embedded(words) == Some(argument) {
        return Some(format!("--embedded={argument}"));
    }
    let is_place = verb == Some("serve") && !argument.starts_with('-');
    is_place.then(|| format!("mqkv serve --listen {argument}"))
}

/// Returns the hint for `watch -n 1`, where other tools have a number, if the host could not be reached.
#[must_use]
pub fn hint_of_number(cli: &Cli, words: &[OsString]) -> Option<&'static str> {
    let host = cli.options.connection.hostname.as_ref()?;
    let is_watch = matches!(cli.verb, Some(Verb::Command(Command::Watch(_))));
    let is_number = host.bytes().all(|byte| byte.is_ascii_digit()) && follows(words, "-n", host.as_bytes());
    (is_watch && is_number).then_some("-n names the host of the broker; --count N exits after N changes")
}

/// Returns the hint for `--format`, which other tools have for --output.
#[must_use]
pub fn hint_of_format(option: &str) -> Option<String> {
    let name = option.trim_start_matches('-').split('=').next().unwrap_or_default();
    let formats = ["format".to_owned()].into_iter();
    closest(name, formats).map(|_| "did you mean --output?".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn of(line: &str) -> Option<LockAtHost> {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        LockAtHost::of(&Cli::try_parse_from(&words).unwrap(), &words)
    }

    #[test]
    fn a_path_behind_n_and_a_word_is_not_taken_for_the_key() {
        for line in
            ["mqkv lock -n deploy ./x", "mqkv lock -n deploy -- ./x a", "mqkv lock -w 0 -n deploy ../x"]
        {
            assert!(of(line).unwrap().check().is_err(), "{line}");
        }
        for line in ["mqkv lock -n host key ./x", "mqkv lock -k ./x -n host", "mqkv lock -n host /line1"] {
            assert!(of(line).unwrap().check().is_ok(), "{line}");
        }
        for line in
            ["mqkv lock --hostname deploy ./x", "mqkv lock deploy -- ./x -n deploy", "mqkv get -n host ./x"]
        {
            assert!(of(line).is_none(), "{line}");
        }
    }

    #[test]
    fn a_command_behind_two_dashes_is_not_taken_for_the_key_of_a_lock() {
        let check = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            check_lock_key(&Cli::try_parse_from(&words).unwrap(), &words)
        };
        assert!(check("mqkv lock -- true").is_err() && check("mqkv lock -w 0 -- ./x a").is_err());
        for line in
            ["mqkv lock k -- true", "mqkv lock -k k -- true", "mqkv lock --key=k -- true", "mqkv lock k true"]
        {
            assert!(check(line).is_ok(), "{line}");
        }
        assert!(check("mqkv lock --key-hex 6b -- true").is_ok() && check("mqkv get -- k").is_ok());
    }

    #[test]
    fn a_number_as_the_host_of_a_watch_has_a_hint() {
        let has_hint = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            hint_of_number(&Cli::try_parse_from(&words).unwrap(), &words).is_some()
        };
        assert!(has_hint("mqkv watch k -n 1"));
        for line in ["mqkv watch k -n host1", "mqkv watch k --hostname 1", "mqkv get k -n 1", "mqkv watch k"]
        {
            assert!(!has_hint(line), "{line}");
        }
    }

    #[test]
    fn a_folder_behind_a_blank_is_no_argument_of_the_verb() {
        let check = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            check_embedded_folder(&Cli::try_parse_from(&words).unwrap(), &words)
        };
        for line in
            ["mqkv get k --embedded ./dir", "mqkv get k --embedded ../dir", "mqkv keys --embedded ./d"]
        {
            assert!(check(line).is_err(), "{line}");
        }
        for line in [
            "mqkv get --embedded k",
            "mqkv lock k --embedded ./x",
            "mqkv get k --embedded=./d",
            "mqkv get -- --embedded ./x",
        ] {
            assert!(check(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn a_format_is_taken_for_the_output() {
        let hint = Some("did you mean --output?".to_owned());
        assert_eq!([hint_of_format("--formt"), hint_of_format("--format=json")], [hint.clone(), hint]);
        assert_eq!(hint_of_format("--frobnicate"), None);
    }
}
