//! `serve --config`: options from a file, which complete those of the command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::error::ContextKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command as Definition, ValueHint};

use super::args::ServeArgs;
use crate::cli::config::document::{Content, Node};
use crate::cli::config::file;
use crate::cli::config::location::Location;
use crate::cli::options::{self, DisplayArgs};
use crate::commands::{CommandError, usage_error};

const VERB: &str = "serve";
/// Identifier of `--config`: the connection options have another one of this name.
const FILE: &str = "config_file";
/// Options that belong to one run.
const NOT_IN_A_FILE: [&str; 4] = [FILE, "exec", "leave_exchange", "help"];

/// A command line that the options of a file have completed.
#[derive(Debug)]
pub struct Completed {
    pub words: Vec<OsString>,
    pub file: PathBuf,
}

/// Completes a command line of `serve` by the file of its --config. Returns `None` for all other command lines, and for one
/// that is invalid before --config. May block.
///
/// The file's options are added to the words, before clap parses and checks all of them together.
pub fn complete(words: &[OsString]) -> Result<Option<Completed>, CommandError> {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (options, command) = words.split_at(end);
    let is_config = |word: &OsString| word.as_encoded_bytes().starts_with(b"--config");
    if !options.iter().any(|word| word == VERB) || !options.iter().any(is_config) {
        return Ok(None);
    }
    // Of this verb alone: a server would hold the memory of the whole definition for as long as it runs.
    let serve = ServeArgs::augment_args(Definition::new(VERB));
    let root = options::add_to::<DisplayArgs>(Definition::new("mqkv").subcommand(serve.clone()));
    let Ok(matches) = root.ignore_errors(true).try_get_matches_from(words) else { return Ok(None) };
    let Some((VERB, matches)) = matches.subcommand() else { return Ok(None) };
    let Some(path) = matches.get_one::<PathBuf>(FILE) else { return Ok(None) };
    if matches.subcommand().is_some() {
        return Ok(None);
    }
    let location = Location { path: path.clone(), named_by: Some("--config") };
    let text = location.read()?.ok_or_else(|| CommandError::missing_file(path))?;
    let added = File { path, serve: &serve, typed: matches }.options(&text)?;
    Ok(Some(Completed { words: [options, &added, command].concat(), file: path.clone() }))
}

struct File<'a> {
    path: &'a Path,
    serve: &'a Definition,
    /// What the command line has.
    typed: &'a ArgMatches,
}

impl File<'_> {
    /// Returns the options that the command line does not have, as its words.
    fn options(&self, text: &[u8]) -> Result<Vec<OsString>, CommandError> {
        let mut all = Vec::new();
        for node in &file::parse(self.path, text)? {
            let arg = self.arg(node)?;
            file::check_characters(self.path, node)?;
            let words = self.words(arg, node)?;
            self.check(arg, node, &words)?;
            if self.typed.value_source(arg.get_id().as_str()) != Some(ValueSource::CommandLine) {
                all.extend(words);
            }
        }
        Ok(all)
    }

    /// Returns the option of a key.
    fn arg(&self, node: &Node) -> Result<&Arg, CommandError> {
        let known = || {
            let args = self.serve.get_arguments().filter(|arg| arg.get_long().is_some());
            args.filter(|arg| !NOT_IN_A_FILE.contains(&arg.get_id().as_str()))
        };
        let key = |arg: &Arg| arg.get_long().unwrap_or_default().replace('-', "_");
        if let Some(arg) = known().find(|arg| key(arg) == node.key) {
            return Ok(arg);
        }
        let error = self.wrong(node.at.line, &format!("unknown option {}", node.key));
        let meant = file::meant(&node.key, known().map(key));
        Err(error.hint(meant.unwrap_or_else(|| "mqkv help serve".to_owned())))
    }

    fn words(&self, arg: &Arg, node: &Node) -> Result<Vec<OsString>, CommandError> {
        let is_switch = matches!(arg.get_action(), ArgAction::SetTrue);
        match &node.content {
            Content::Switch(false) if is_switch => Ok(Vec::new()),
            Content::Switch(true) if is_switch => {
                Ok(vec![OsString::from(format!("--{}", arg.get_long().unwrap_or_default()))])
            }
            other if is_switch => Err(self.type_error(node, "true or false", other)),
            // An empty list would mean the default, as if the key were not there.
            Content::List(elements) if elements.is_empty() => {
                let error = self.wrong(node.value_at.line, &format!("{}: the array is empty", node.key));
                Err(error.hint(format!("omit {} for its default", node.key)))
            }
            Content::List(elements) if matches!(arg.get_action(), ArgAction::Append) => {
                elements.iter().map(|element| self.word(arg, node, &element.content)).collect()
            }
            one => Ok(vec![self.word(arg, node, one)?]),
        }
    }

    /// Returns an option with one value.
    fn word(&self, arg: &Arg, node: &Node, content: &Content) -> Result<OsString, CommandError> {
        let value = match content {
            Content::Text(text)
                if matches!(arg.get_value_hint(), ValueHint::AnyPath | ValueHint::DirPath) =>
            {
                self.path.parent().unwrap_or(Path::new("")).join(text).into_os_string()
            }
            Content::Text(text) => OsString::from(text),
            Content::Number(number) => OsString::from(number.to_string()),
            other => return Err(self.type_error(node, "a text or a number", other)),
        };
        let mut word = OsString::from(format!("--{}=", arg.get_long().unwrap_or_default()));
        word.push(value);
        Ok(word)
    }

    /// Checks the values of one key, so that an error has its line.
    fn check(&self, arg: &Arg, node: &Node, words: &[OsString]) -> Result<(), CommandError> {
        // Without what it requires and conflicts with: the command line may have that.
        let alone = arg.clone().requires(Resettable::Reset).conflicts_with(Resettable::Reset);
        let definition = Definition::new(VERB).no_binary_name(true).arg(alone);
        let Err(error) = definition.try_get_matches_from(words) else { return Ok(()) };
        let context =
            usage_error::Context { program: "", is_first_level: false, is_available: |_| false, words };
        let CommandError { message, causes, .. } = usage_error::explain(&error, &context);
        let option = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
        let message = message.replace(&format!(" for '{option}'"), "");
        let failure = self.wrong(node.value_at.line, &format!("{}: {message}", node.key));
        Err(causes.into_iter().fold(failure, CommandError::cause))
    }

    fn type_error(&self, node: &Node, expected: &str, found: &Content) -> CommandError {
        let what = format!("{}: expected {expected}, found {}", node.key, found.type_name());
        self.wrong(node.value_at.line, &what)
    }

    fn wrong(&self, line: usize, what: &str) -> CommandError {
        file::wrong(self.path, line, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Kind;

    /// Completes `line` by a file with this text.
    fn completed(line: &str, text: &str) -> Result<Option<Vec<String>>, CommandError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mqkv.toml");
        std::fs::write(&file, text).unwrap();
        let folder = folder.path().display().to_string();
        let here = |text: &str| text.replace(&folder, "/etc/mqkv");
        let words: Vec<_> =
            line.split(' ').map(|word| word.replace("FILE", &file.display().to_string())).collect();
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        let all =
            complete(&words).map_err(|error| CommandError { message: here(&error.message), ..error })?;
        let text = |words: Vec<OsString>| words.iter().map(|word| here(&word.to_string_lossy())).collect();
        Ok(all.map(|all| text(all.words)))
    }

    #[track_caller]
    fn assert_wrong(text: &str, message: &str, hints: &[&str]) {
        let error = completed("mqkv serve --config FILE", text).unwrap_err();
        assert_eq!(error.kind, Kind::Configuration);
        assert_eq!(error.message, format!("/etc/mqkv/mqkv.toml:{message}"));
        assert_eq!(error.hints, hints);
    }

    #[test]
    fn the_options_of_the_file_follow_those_of_the_command_line() {
        let text = "listen = ['127.0.0.1:1', '[::1]:1']\nkeys_max = 5\nno_compaction = true\nlog = 'json'\n";
        let words =
            completed("mqkv -v serve --config FILE --exec -- ./test --config x", text).unwrap().unwrap();
        let expected = "mqkv -v serve --config /etc/mqkv/mqkv.toml --exec --listen=127.0.0.1:1 --listen=[::1]:1 \
            --keys-max=5 --no-compaction --log=json -- ./test --config x";
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn an_option_of_the_command_line_replaces_that_of_the_file() {
        let text = "listen = ['127.0.0.1:1', '[::1]:1']\nmemory_max = '1G'\nno_compaction = false\n";
        let line = "mqkv serve --listen 127.0.0.1:2 --memory-max=2G --config=FILE";
        let words = completed(line, text).unwrap().unwrap();
        assert_eq!(words.join(" "), line.replace("FILE", "/etc/mqkv/mqkv.toml"));
    }

    #[test]
    fn paths_are_relative_to_the_folder_of_the_file() {
        let text = "data = 'state'\nusers = '/run/users'\ntls_cert = '../cert.pem'\n";
        let words = completed("mqkv serve --config FILE --tls-key k", text).unwrap().unwrap();
        let expected = ["--data=/etc/mqkv/state", "--users=/run/users", "--tls-cert=/etc/mqkv/../cert.pem"];
        assert_eq!(words[6..], expected);
    }

    #[test]
    fn an_unknown_option_is_an_error_with_a_suggestion() {
        assert_wrong("\nmemory-max = '1G'", "2: unknown option memory-max", &["memory_max"]);
        assert_wrong("memroy_max = '1G'", "1: unknown option memroy_max", &["memory_max"]);
        assert_wrong("[context.lab]", "1: unknown option context", &["mqkv help serve"]);
        assert_wrong("config = 'more.toml'", "1: unknown option config", &["mqkv help serve"]);
        assert_wrong("exec = true", "1: unknown option exec", &["mqkv help serve"]);
    }

    #[test]
    fn invalid_values_are_errors_with_their_line() {
        let error = completed("mqkv serve --config FILE", "\nmemory_max = 'much'").unwrap_err();
        let message = "/etc/mqkv/mqkv.toml:2: memory_max: invalid value 'much': ";
        assert!(error.message.starts_with(message), "{error:?}");
        let error = completed("mqkv serve --config FILE", "log = 'xml'").unwrap_err();
        assert_eq!(error.message, "/etc/mqkv/mqkv.toml:1: log: invalid value 'xml'");
        assert_eq!(error.causes, ["[possible values: text, json]"]);
        assert_wrong("listen = true", "1: listen: expected a text or a number, found true or false", &[]);
        assert_wrong("data = ['a', 'b']", "1: data: expected a text or a number, found an array", &[]);
        assert_wrong("no_compaction = 'yes'", "1: no_compaction: expected true or false, found a text", &[]);
        assert_wrong("listen = []", "1: listen: the array is empty", &["omit listen for its default"]);
        let control = "the value contains a control character";
        assert_wrong("data = \"a\\u001B]0;t\\u0007\"", &format!("1:8: data: {control}"), &[]);
        assert_wrong("\nlisten = ['a', \"b\\n\"]", &format!("2:16: listen: {control}"), &[]);
        assert_wrong("data = '''a\nb'''", &format!("1:8: data: {control}"), &[]);
        let error = completed("mqkv serve --config FILE", "data = /var").unwrap_err();
        assert!(error.message.starts_with("/etc/mqkv/mqkv.toml:1:8: "), "{error:?}");
    }

    #[test]
    fn a_file_that_does_not_exist_is_an_error() {
        let words = ["mqkv", "serve", "--config", "/nonexistent/mqkv.toml"].map(OsString::from);
        let error = complete(&words).unwrap_err();
        assert_eq!(
            error.message,
            "cannot read /nonexistent/mqkv.toml: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn other_command_lines_stay_as_they_are() {
        for line in [
            "mqkv get serve --config FILE",
            "mqkv --config FILE serve",
            "mqkv serve --exec -- serve --config FILE",
            "mqkv serve user ls --config FILE",
            "mqkv serve --bad --config FILE",
        ] {
            assert_eq!(completed(line, "keys_max = 5").unwrap(), None, "{line}");
        }
    }

    #[test]
    fn every_option_of_the_list_exists() {
        let serve = ServeArgs::augment_args(Definition::new(VERB));
        let ids: Vec<_> = serve.get_arguments().map(|arg| arg.get_id().as_str()).collect();
        for id in NOT_IN_A_FILE.iter().filter(|id| **id != "help") {
            assert!(ids.contains(id), "{id}");
        }
    }
}
