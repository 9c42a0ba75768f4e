//! Content of the configuration file, validated (pure).

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::document::{self, Content, Node, Position, Syntax};
use super::origin::{Line, Origin, Rank, Source};
use super::setting::{Setting, Settings};
use super::value::PathBases;
use crate::commands::similarity::closest;
use crate::commands::{CommandError, Kind};
use crate::files::text;

/// Maximum size of the file in bytes, far above that of any real file.
pub const BYTES_MAX: usize = 1024 * 1024;

/// A valid configuration file.
#[derive(Clone, Debug, Default)]
pub struct File {
    pub path: Rc<PathBuf>,
    /// Name of the default context.
    pub default: Option<String>,
    /// In the order of the file.
    pub contexts: Vec<Context>,
}

#[derive(Clone, Debug)]
pub struct Context {
    pub name: Rc<str>,
    pub settings: Settings,
}

impl File {
    /// Parses and validates the text of a file.
    ///
    /// # Errors
    /// The first error, with its line.
    pub fn read(path: &Path, text: &[u8], home: Option<&Path>) -> Result<Self, CommandError> {
        let nodes = parse(path, text)?;
        let mut reading = Reading { file: Rc::new(path.to_owned()), home, found: Self::default() };
        reading.found.path = Rc::clone(&reading.file);
        for node in nodes {
            reading.take(node)?;
        }
        Ok(reading.found)
    }

    /// Returns the context of this name.
    ///
    /// # Errors
    /// There is no such context; the error lists those that exist.
    pub fn context(&self, name: &str) -> Result<&Context, CommandError> {
        self.contexts.iter().find(|context| &*context.name == name).ok_or_else(|| {
            let error = configuration(format!("unknown context {name} in {}", self.path.display()));
            let names = || self.contexts.iter().map(|context| context.name.to_string());
            let error = match closest(name, names()) {
                Some(near) => error.hint(near),
                None => error,
            };
            match names().collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => {
                    error.cause("the file contains no context").hint("mqkv context add NAME -b URL")
                }
                names => error.cause(format!("contexts: {names}")),
            }
        })
    }
}

/// Keys outside the contexts.
const KEYS: [&str; 2] = ["default_context", "context"];

struct Reading<'a> {
    file: Rc<PathBuf>,
    home: Option<&'a Path>,
    found: File,
}

impl Reading<'_> {
    fn take(&mut self, node: Node) -> Result<(), CommandError> {
        match (node.key.as_str(), node.content) {
            ("default_context", Content::Text(name)) => {
                self.found.default = Some(name);
                Ok(())
            }
            ("default_context", _) => {
                Err(self.wrong(node.at.line, "default_context: the name of a context is required"))
            }
            ("context", Content::Table(contexts)) => {
                contexts.into_iter().try_for_each(|node| self.take_context(node))
            }
            ("context", _) => Err(self.wrong(node.at.line, "context: a table is required: [context.NAME]")),
            (key, Content::Table(_)) => {
                let error = self.wrong(node.at.line, &format!("unknown table [{key}]"));
                Err(error.hint(format!("[context.{key}]")))
            }
            (key, _) if Setting::of_key(key).is_some() => {
                let error = self.wrong(node.at.line, &format!("{key} belongs to a context"));
                Err(error.hint("write it below [context.NAME]"))
            }
            (key, _) => Err(self.unknown(node.at.line, key, KEYS.into_iter())),
        }
    }

    fn take_context(&mut self, node: Node) -> Result<(), CommandError> {
        let Content::Table(settings) = node.content else {
            let message = format!("{} is neither a setting of a context nor a context", node.key);
            return Err(self.wrong(node.at.line, &message).hint("[context.NAME]"));
        };
        check_name(&node.key).map_err(|what| self.wrong(node.at.line, &what))?;
        let name: Rc<str> = node.key.into();
        let mut found = Settings::default();
        for node in settings {
            self.take_setting(&node, &name, &mut found)?;
        }
        found.check()?;
        self.found.contexts.push(Context { name, settings: found });
        Ok(())
    }

    fn take_setting(
        &self,
        node: &Node,
        context: &Rc<str>,
        settings: &mut Settings,
    ) -> Result<(), CommandError> {
        let key = node.key.as_str();
        if let Some(file) = secret_file_of(key) {
            let error = self.wrong(node.at.line, &format!("{key}: secrets are not accepted in this file"));
            return Err(error.hint(format!("{} = \"FILE\"", file.key())));
        }
        let Some(setting) = Setting::of_key(key) else {
            return Err(self.unknown(node.at.line, key, Setting::all().map(Setting::key)));
        };
        check_characters(&self.file, node)?;
        let bases = PathBases { folder: self.file.parent(), home: self.home };
        let line = Line { context: Rc::clone(context), file: Rc::clone(&self.file), line: node.at.line };
        let origin = Origin { rank: Rank::DefaultContext, source: Source::File(line) };
        let read = settings.read(setting, (&node.content).into(), bases, &origin);
        read.map_err(|what| origin.error(setting, &what))
    }

    fn wrong(&self, line: usize, what: &str) -> CommandError {
        wrong(&self.file, line, what)
    }

    fn unknown(&self, line: usize, key: &str, names: impl Iterator<Item = &'static str>) -> CommandError {
        let error = self.wrong(line, &format!("unknown setting {key}"));
        error.hint(meant(key, names.map(str::to_owned)).unwrap_or_else(|| "mqkv help config".to_owned()))
    }
}

/// Returns the key that a mistyped one means; it may be in the spelling of the command line.
#[must_use]
pub fn meant(key: &str, names: impl Iterator<Item = String>) -> Option<String> {
    closest(&key.trim_start_matches('-').replace('-', "_").to_lowercase(), names)
}

/// Returns the setting for the file of a secret, if a key is meant to contain the secret itself.
#[must_use]
pub fn secret_file_of(key: &str) -> Option<Setting> {
    match key {
        "key_password" | "keypassword" => Some(Setting::Keypasswordfile),
        "password" => Some(Setting::PasswordFile),
        "token" | "sat" => Some(Setting::SatFile),
        _ => None,
    }
}

/// Checks that the value of a key has no control character: no setting has one, and it would reach the terminal.
///
/// # Errors
/// The place of the first one.
pub fn check_characters(path: &Path, node: &Node) -> Result<(), CommandError> {
    let Some(Position { line, column }) = node.control_character() else { return Ok(()) };
    let key = &node.key;
    let message =
        format!("{}:{line}:{column}: {key}: the value contains a control character", path.display());
    Err(configuration(message))
}

/// Checks whether a name is allowed for a context.
///
/// # Errors
/// The rule that the name breaks.
pub fn check_name(name: &str) -> Result<(), String> {
    const CHARS_MAX: usize = 64;
    if name.is_empty() {
        return Err("the name of the context is empty".to_owned());
    }
    if name.chars().count() > CHARS_MAX {
        return Err(format!("the name of the context has more than {CHARS_MAX} characters"));
    }
    if name.starts_with('-')
        || name.contains("://")
        || name.contains(|c: char| c.is_control() || c.is_whitespace())
    {
        return Err("the name of a context must not contain blanks, begin with - or be a URL".to_owned());
    }
    Ok(())
}

fn configuration(message: String) -> CommandError {
    CommandError::new(Kind::Configuration, message)
}

/// Returns the error of a line of a file.
#[must_use]
pub fn wrong(path: &Path, line: usize, what: &str) -> CommandError {
    configuration(format!("{}:{line}: {what}", path.display()))
}

/// Parses the text of a file in TOML.
///
/// # Errors
/// The text is not UTF-8, or its first syntax error.
pub fn parse(path: &Path, text: &[u8]) -> Result<Vec<Node>, CommandError> {
    let text = text::unmarked(text)
        .map_err(|error| configuration(format!("{} {error}", path.display())).hint(error.hint()))?;
    let text = str::from_utf8(text).map_err(|error| {
        let lines = text.iter().take(error.valid_up_to()).filter(|byte| **byte == b'\n').count();
        wrong(path, lines.saturating_add(1), "invalid UTF-8")
    })?;
    document::read(text).map_err(|error| of_syntax(path, &error))
}

/// Returns the error message for a syntax error: with the line, unless it can contain a secret.
#[must_use]
pub fn of_syntax(path: &Path, error: &Syntax) -> CommandError {
    /// Columns of a line that are shown.
    const COLUMNS_MAX: usize = 100;
    let Syntax { line, column, message, text } = error;
    let failure = configuration(format!("{}:{line}:{column}: {message}", path.display()));
    let may_be_secret =
        ["password", "secret", "token", "@"].iter().any(|word| text.to_lowercase().contains(word));
    if text.trim().is_empty() || *column > COLUMNS_MAX || may_be_secret {
        return failure;
    }
    let text: String = text.chars().map(|c| if c == '\t' { ' ' } else { c }).take(COLUMNS_MAX).collect();
    failure.cause(text).cause(format!("{}^", " ".repeat(column.saturating_sub(1))))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<File, CommandError> {
        File::read("/etc/mqkv/config.toml".as_ref(), text.as_bytes(), Some("/home/ann".as_ref()))
    }

    #[track_caller]
    fn assert_wrong(text: &str, message: &str, hints: &[&str]) {
        let error = read(text).unwrap_err();
        assert_eq!(error.kind, Kind::Configuration);
        assert_eq!(error.message, format!("/etc/mqkv/config.toml:{message}"));
        assert_eq!(error.hints, hints);
    }

    #[test]
    fn contexts_are_read_with_their_lines() {
        let file =
            read("default_context = 'lab'\n[context.lab]\nbroker = 'mqtt://h'\nread_only = true\n").unwrap();
        assert_eq!(file.default.as_deref(), Some("lab"));
        let settings = &file.context("lab").unwrap().settings;
        assert_eq!(settings.iter().count(), 2);
        let origin = &settings.read_only.as_ref().unwrap().origin;
        assert_eq!(origin.text(Setting::ReadOnly), "context lab, /etc/mqkv/config.toml:4");
        assert!(read("").unwrap().contexts.is_empty());
    }

    #[test]
    fn an_unknown_setting_is_an_error_with_a_suggestion() {
        assert_wrong("[context.a]\nread_onyl = true", "2: unknown setting read_onyl", &["read_only"]);
        assert_wrong("[context.a]\nread-only = true", "2: unknown setting read-only", &["read_only"]);
        assert_wrong("[context.a]\nx = 1", "2: unknown setting x", &["mqkv help config"]);
        assert_wrong("defualt_context = 'a'", "1: unknown setting defualt_context", &["default_context"]);
        assert_wrong("\nport = 1", "2: port belongs to a context", &["write it below [context.NAME]"]);
        assert_wrong("[prod]\nport = 1", "1: unknown table [prod]", &["[context.prod]"]);
    }

    #[test]
    fn wrong_types_and_secrets_are_rejected() {
        assert_wrong("[context.a]\nnotls = 'yes'", "2: notls: expected true or false, found a text", &[]);
        assert_wrong(
            "[context.a]\ntimeout = 5",
            "2: timeout: expected a duration, for example \"30s\", found 5",
            &[],
        );
        assert_wrong("[context.a]\ncafile = ['a']", "2: cafile: expected a file name, found an array", &[]);
        assert_wrong("context = 1", "1: context: a table is required: [context.NAME]", &[]);
        assert_wrong("default_context = 1", "1: default_context: the name of a context is required", &[]);
        let secret = "2: password: secrets are not accepted in this file";
        assert_wrong("[context.a]\npassword = 'hunter2'", secret, &["password_file = \"FILE\""]);
        let both = "3: hostname: it cannot be used with broker";
        assert_wrong("[context.a]\nbroker = 'mqtt://h'\nhostname = 'h'", both, &[]);
    }

    #[test]
    fn bad_syntax_is_shown_with_a_caret() {
        let error = read("[context.a]\nbroker = mqtt://h\n").unwrap_err();
        assert!(error.message.starts_with("/etc/mqkv/config.toml:2:10: "), "{error:?}");
        assert_eq!(error.causes, ["broker = mqtt://h", "         ^"]);
        let secret = read("[context.a]\npassword = hunter2").unwrap_err();
        assert!(!format!("{secret:?}").contains("hunter2"), "{secret:?}");
        let error = File::read("c".as_ref(), b"a = 1\nb = \xff", None).unwrap_err();
        assert_eq!(error.message, "c:2: invalid UTF-8");
    }

    #[test]
    fn a_value_with_a_control_character_is_an_error_with_its_place() {
        for (text, place) in [
            ("[context.a]\nusername = \"a\\u001B[31m\"", "2:12: username"),
            ("[context.a]\nbroker = 'mqtt://h'\ncafile = '''a\nb'''", "3:10: cafile"),
        ] {
            let message = format!("/etc/mqkv/config.toml:{place}: the value contains a control character");
            assert_eq!(read(text).unwrap_err().message, message);
        }
    }

    #[test]
    fn an_unknown_context_is_reported_with_the_known_ones() {
        let file = read("[context.prod]\n[context.lab]\n").unwrap();
        let error = file.context("prdo").unwrap_err();
        assert_eq!(error.message, "unknown context prdo in /etc/mqkv/config.toml");
        assert_eq!(
            (error.hints, error.causes),
            (vec!["prod".to_owned()], vec!["contexts: prod, lab".to_owned()])
        );
    }

    /// Pieces of a file for the generator.
    const PIECES: [&str; 16] = [
        "[context.a]\n",
        "[context]\n",
        "broker",
        " = ",
        "'mqtt://h'",
        "1",
        "true",
        "\n",
        "{",
        "}",
        "[",
        "# é\n",
        "default_context",
        "port",
        "\"\\u00e9\"",
        "\u{1f600}",
    ];

    proptest! {
        #[test]
        fn any_file_is_accepted_or_rejected_with_a_line(
            pieces in vec(0..PIECES.len(), 0..24), bytes in vec(any::<u8>(), 0..4), at in 0..64_usize,
        ) {
            let mut text: Vec<u8> = pieces.iter().flat_map(|piece| PIECES[*piece].bytes()).collect();
            let at = at.min(text.len());
            text.splice(at..at, bytes);
            if let Err(error) = File::read("c".as_ref(), &text, None) {
                prop_assert!(error.message.starts_with("c:"), "{error:?}");
                prop_assert_eq!(error.kind, Kind::Configuration);
            } else if let Ok(text) = String::from_utf8(text) {
                // A valid file stays valid after changes.
                let settings = [("port".to_owned(), Content::Number(1))];
                let changed = document::put_context(&text, "new", &settings).unwrap();
                let changed = document::set_default(&changed, Some("new")).unwrap();
                let file = File::read("c".as_ref(), changed.as_bytes(), None).unwrap();
                prop_assert_eq!(file.default.as_deref(), Some("new"));
                prop_assert_eq!(file.context("new").unwrap().settings.iter().count(), 1);
                let removed = document::remove_context(&changed, "new").unwrap();
                let removed = document::set_default(&removed, None).unwrap();
                let file = File::read("c".as_ref(), removed.as_bytes(), None).unwrap();
                prop_assert!(file.default.is_none() && file.context("new").is_err());
            }
        }
    }

    #[test]
    fn names_of_contexts_are_checked() {
        for bad in ["", "a b", "-x", "mqtt://h", "a\u{1b}"] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        assert!(check_name("plant-7.line_1/é").is_ok());
    }
}
