//! The settings: their names on the command line, as variables and in the file, and their values (pure).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;

use crate::cli::broker::{self, BrokerUrl};
use crate::cli::options::{ColorWhen, OutputFormat};
use crate::commands::duration;
use crate::render::style::CustomColor;

/// A setting of the connection, of the output, or of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    Broker,
    Hostname,
    Port,
    Notls,
    Embedded,
    Cafile,
    Certfile,
    Keyfile,
    Keypasswordfile,
    ServerName,
    Insecure,
    Username,
    PasswordFile,
    AskPassword,
    SatFile,
    ClientId,
    Timeout,
    ConnectTimeout,
    Retries,
    KeepAlive,
    Cautious,
    Output,
    Json,
    Quiet,
    Verbose,
    Color,
    Utc,
    ReadOnly,
    PromptColor,
}

/// Type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Url,
    Text,
    Port,
    Count,
    Switch,
    File,
    Store,
    Wait,
    KeepAlive,
    Format,
    When,
    CustomColor,
}

/// Row of the table of settings.
struct Row {
    setting: Setting,
    /// Long option, without dashes.
    long: &'static str,
    short: Option<char>,
    kind: Kind,
}

const fn row(setting: Setting, long: &'static str, short: Option<char>, kind: Kind) -> Row {
    Row { setting, long, short, kind }
}

/// In the order of output. The last ones belong to contexts only.
const TABLE: [Row; 29] = [
    row(Setting::Broker, "broker", Some('b'), Kind::Url),
    row(Setting::Hostname, "hostname", Some('n'), Kind::Text),
    row(Setting::Port, "port", Some('p'), Kind::Port),
    row(Setting::Notls, "notls", None, Kind::Switch),
    row(Setting::Embedded, "embedded", None, Kind::Store),
    row(Setting::Cafile, "cafile", Some('T'), Kind::File),
    row(Setting::Certfile, "certfile", Some('C'), Kind::File),
    row(Setting::Keyfile, "keyfile", Some('K'), Kind::File),
    row(Setting::Keypasswordfile, "keypasswordfile", Some('P'), Kind::File),
    row(Setting::ServerName, "server-name", None, Kind::Text),
    row(Setting::Insecure, "insecure", None, Kind::Switch),
    row(Setting::Username, "username", Some('u'), Kind::Text),
    row(Setting::PasswordFile, "password-file", None, Kind::File),
    row(Setting::AskPassword, "ask-password", None, Kind::Switch),
    row(Setting::SatFile, "sat-file", None, Kind::File),
    row(Setting::ClientId, "client-id", Some('i'), Kind::Text),
    row(Setting::Timeout, "timeout", Some('t'), Kind::Wait),
    row(Setting::ConnectTimeout, "connect-timeout", None, Kind::Wait),
    row(Setting::Retries, "retries", None, Kind::Count),
    row(Setting::KeepAlive, "keep-alive", None, Kind::KeepAlive),
    row(Setting::Cautious, "cautious", None, Kind::Switch),
    row(Setting::Output, "output", Some('o'), Kind::Format),
    row(Setting::Json, "json", Some('j'), Kind::Switch),
    row(Setting::Quiet, "quiet", Some('q'), Kind::Switch),
    row(Setting::Verbose, "verbose", Some('v'), Kind::Switch),
    row(Setting::Color, "color", None, Kind::When),
    row(Setting::Utc, "utc", None, Kind::Switch),
    row(Setting::ReadOnly, "read-only", None, Kind::Switch),
    row(Setting::PromptColor, "prompt-color", None, Kind::CustomColor),
];

/// Value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Url(Box<Url>),
    Text(String),
    Number(u32),
    Switch(bool),
    Path(PathBuf),
    Store(EmbeddedStore),
    Wait(Duration),
    Format(OutputFormat),
    When(ColorWhen),
    CustomColor(CustomColor),
}

/// URL of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// As written.
    pub text: String,
    pub broker: BrokerUrl,
}

/// Value of `embedded`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmbeddedStore {
    /// No embedded store, stated explicitly.
    Off,
    Memory,
    /// Directory of the data.
    Folder(PathBuf),
}

/// A value before validation.
#[derive(Clone, Copy, Debug)]
pub enum RawValue<'a> {
    Text(&'a OsStr),
    Number(i64),
    Switch(bool),
    /// A type that no setting has, by its name.
    Other(&'a str),
}

/// Base directories of relative paths.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathBases<'a> {
    /// Directory of the configuration file; `None` for the working directory.
    pub folder: Option<&'a Path>,
    /// Replacement of `~`; `None` to leave it.
    pub home: Option<&'a Path>,
}

impl Setting {
    /// Returns all settings, in the order of output.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.setting)
    }

    /// Returns the setting with this name in the file.
    #[must_use]
    pub fn of_key(key: &str) -> Option<Self> {
        Self::all().find(|setting| setting.key() == key)
    }

    /// Returns the setting of a variable, named without `MQKV_`.
    #[must_use]
    pub fn of_variable(name: &str) -> Option<Self> {
        Self::all().find(|setting| setting.has_flag() && setting.key().to_ascii_uppercase() == name)
    }

    /// Returns the long option, without dashes.
    #[must_use]
    pub fn long(self) -> &'static str {
        self.row().map_or("", |row| row.long)
    }

    /// Returns the name in the file.
    #[must_use]
    pub fn key(self) -> String {
        self.long().replace('-', "_")
    }

    /// Returns the name of the variable.
    #[must_use]
    pub fn variable(self) -> String {
        format!("{PREFIX}{}", self.key().to_ascii_uppercase())
    }

    /// Returns the option with its dashes, the short one if it exists.
    #[must_use]
    pub fn flag(self) -> String {
        match self.row().and_then(|row| row.short) {
            Some(short) => format!("-{short}"),
            None => format!("--{}", self.long()),
        }
    }

    /// Returns whether there is an option; otherwise the setting belongs to contexts only.
    #[must_use]
    pub fn has_flag(self) -> bool {
        !matches!(self, Self::ReadOnly | Self::PromptColor)
    }

    /// Returns whether the value is true or false.
    #[must_use]
    pub fn is_switch(self) -> bool {
        self.row().is_some_and(|row| row.kind == Kind::Switch)
    }

    fn row(self) -> Option<&'static Row> {
        TABLE.iter().find(|row| row.setting == self)
    }

    /// Validates a value.
    ///
    /// # Errors
    /// Describes the values that are allowed. The message does not contain the value, which can be a secret.
    pub fn read(self, plain: RawValue<'_>, bases: PathBases<'_>) -> Result<Value, String> {
        let Some(Row { kind, .. }) = self.row() else {
            return Err("unknown setting".to_owned());
        };
        let takes = |what: &str| match plain {
            RawValue::Other(name) => format!("expected {what}, found {name}"),
            RawValue::Number(_) | RawValue::Switch(_) | RawValue::Text(_) => format!("expected {what}"),
        };
        let text = match plain {
            RawValue::Text(text) => text.to_str(),
            _ => None,
        };
        match kind {
            Kind::File => match plain {
                RawValue::Text(path) if !path.is_empty() => Ok(Value::Path(match path.to_str() {
                    // Standard input.
                    Some("-") if self == Self::PasswordFile => path.into(),
                    _ => rooted(path, bases),
                })),
                _ => Err(takes("a file name")),
            },
            Kind::Store => match plain {
                RawValue::Switch(is_on) => Ok(Value::Store(embedded_store(is_on))),
                RawValue::Text(text) if !text.is_empty() => {
                    Ok(Value::Store(match text.to_str().and_then(yes_or_no) {
                        Some(is_on) => embedded_store(is_on),
                        None => EmbeddedStore::Folder(rooted(text, bases)),
                    }))
                }
                _ => Err(takes("true, false or a directory")),
            },
            Kind::Switch => match plain {
                RawValue::Switch(is_on) => Some(is_on),
                _ => text.and_then(yes_or_no),
            }
            .map(Value::Switch)
            .ok_or_else(|| takes("true or false")),
            Kind::Port => match plain {
                RawValue::Number(number) => u16::try_from(number).ok(),
                _ => text.and_then(|text| text.parse().ok()),
            }
            .filter(|port| *port > 0)
            .map(|port| Value::Number(port.into()))
            .ok_or_else(|| takes("a number from 1 to 65535")),
            Kind::Count => match plain {
                RawValue::Number(number) => u32::try_from(number).ok(),
                _ => text.and_then(|text| text.parse().ok()),
            }
            .map(Value::Number)
            .ok_or_else(|| takes("a number")),
            _ => {
                let text = text.filter(|text| !text.is_empty()).ok_or_else(|| takes(kind.takes()))?;
                read_text(*kind, text)
            }
        }
    }
}

/// Prefix of the variables.
pub const PREFIX: &str = "MQKV_";

fn read_text(kind: Kind, text: &str) -> Result<Value, String> {
    match kind {
        Kind::Url => Value::url(text).map_err(|error| error.message),
        Kind::Wait => duration::parse(text).map(Value::Wait),
        Kind::KeepAlive => duration::parse_keep_alive(text).map(Value::Wait),
        Kind::Format => OutputFormat::from_str(text, false).map(Value::Format).map_err(|_| one_of(kind)),
        Kind::When => ColorWhen::from_str(text, false).map(Value::When).map_err(|_| one_of(kind)),
        Kind::CustomColor => CustomColor::parse(text).map(Value::CustomColor).ok_or_else(|| one_of(kind)),
        _ => Ok(Value::Text(text.to_owned())),
    }
}

fn one_of(kind: Kind) -> String {
    format!("expected {}", kind.takes())
}

impl Kind {
    fn takes(self) -> &'static str {
        match self {
            Self::Url => "the URL of a broker, for example \"mqtts://aio-broker:18883\"",
            Self::Wait | Self::KeepAlive => "a duration, for example \"30s\"",
            Self::Format => "one of auto, text, raw, hex, base64, json, jsonl",
            Self::When => "one of auto, always, never",
            Self::CustomColor => {
                "one of black, red, green, yellow, blue, magenta, cyan, white, one of these after \"bright \", or \
                 \"#rrggbb\""
            }
            _ => "a text",
        }
    }
}

impl Value {
    /// Parses the URL of a broker.
    ///
    /// # Errors
    /// A usage error, which never contains a password.
    pub fn url(text: &str) -> Result<Self, crate::commands::CommandError> {
        let broker = broker::parse(text)?;
        Ok(Self::Url(Box::new(Url { text: text.to_owned(), broker })))
    }

    /// Returns whether the value is off, which is the same as no value.
    #[must_use]
    pub fn is_off(&self) -> bool {
        matches!(self, Self::Switch(false) | Self::Store(EmbeddedStore::Off))
    }
}

fn embedded_store(is_on: bool) -> EmbeddedStore {
    if is_on { EmbeddedStore::Memory } else { EmbeddedStore::Off }
}

fn yes_or_no(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" => Some(true),
        "0" | "false" | "no" => Some(false),
        _ => None,
    }
}

fn rooted(path: &OsStr, bases: PathBases<'_>) -> PathBuf {
    let path = Path::new(path);
    match (bases.home, path.strip_prefix("~")) {
        (Some(home), Ok(rest)) => home.join(rest),
        _ => bases.folder.map_or_else(|| path.to_owned(), |folder| folder.join(path)),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::*;
    use crate::cli::options::{ConnectionArgs, DisplayArgs};

    fn text(setting: Setting, text: &str) -> Result<Value, String> {
        setting.read(RawValue::Text(text.as_ref()), PathBases::default())
    }

    #[test]
    fn every_connection_and_output_option_is_a_setting() {
        let definer = DisplayArgs::augment_args(ConnectionArgs::augment_args(Command::new("x")));
        // A trace is for one run: a forgotten variable would write values to a file for ever.
        let others = ["context", "no-context", "config", "trace"];
        let defined: Vec<_> = definer
            .get_arguments()
            .filter_map(|arg| Some((arg.get_long()?.to_owned(), arg.get_short())))
            .filter(|(long, _)| !others.contains(&long.as_str()))
            .collect();
        for (long, short) in &defined {
            let row = TABLE.iter().find(|row| row.long == long).unwrap_or_else(|| panic!("--{long}"));
            assert_eq!(row.short, *short, "--{long}");
        }
        assert_eq!(defined.len(), Setting::all().filter(|setting| setting.has_flag()).count());
    }

    #[test]
    fn every_setting_is_in_the_table_once() {
        let all: Vec<_> = Setting::all().collect();
        assert!(all.is_sorted() && all.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(Setting::of_key("server_name"), Some(Setting::ServerName));
        assert_eq!(Setting::of_variable("SERVER_NAME"), Some(Setting::ServerName));
        assert_eq!(Setting::of_variable("READ_ONLY"), None);
        assert_eq!(Setting::ServerName.variable(), "MQKV_SERVER_NAME");
        assert_eq!((Setting::Hostname.flag(), Setting::Notls.flag()), ("-n".into(), "--notls".into()));
    }

    #[test]
    fn texts_are_validated_as_options_are() {
        assert_eq!(text(Setting::Port, "1884"), Ok(Value::Number(1884)));
        assert_eq!(text(Setting::Timeout, "250ms"), Ok(Value::Wait(Duration::from_millis(250))));
        assert_eq!(text(Setting::Output, "hex"), Ok(Value::Format(OutputFormat::Hex)));
        for yes in ["1", "true", "YES"] {
            assert_eq!(text(Setting::Notls, yes), Ok(Value::Switch(true)), "{yes}");
        }
        for (setting, bad) in [
            (Setting::Port, "0"),
            (Setting::Port, "65536"),
            (Setting::Notls, "on"),
            (Setting::Timeout, "5"),
            (Setting::Output, "yaml"),
            (Setting::Broker, "http://h"),
            (Setting::PromptColor, "reddish"),
            (Setting::KeepAlive, "500ms"),
            (Setting::Retries, "-1"),
            (Setting::Cafile, ""),
        ] {
            assert!(text(setting, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn types_of_the_file_are_accepted_where_they_fit() {
        let of = |setting: Setting, plain| setting.read(plain, PathBases::default());
        assert_eq!(of(Setting::Port, RawValue::Number(1)), Ok(Value::Number(1)));
        assert_eq!(of(Setting::Notls, RawValue::Switch(true)), Ok(Value::Switch(true)));
        assert_eq!(of(Setting::Embedded, RawValue::Switch(true)), Ok(Value::Store(EmbeddedStore::Memory)));
        assert_eq!(
            of(Setting::Timeout, RawValue::Number(5)).unwrap_err(),
            "expected a duration, for example \"30s\""
        );
        assert_eq!(
            of(Setting::Port, RawValue::Other("an array")).unwrap_err(),
            "expected a number from 1 to 65535, found an array"
        );
        assert!(
            of(Setting::Port, RawValue::Number(-1)).is_err()
                && of(Setting::Quiet, RawValue::Number(1)).is_err()
        );
    }

    #[test]
    fn paths_are_relative_to_the_file_that_contains_them() {
        let bases = PathBases { folder: Some("/etc/mqkv".as_ref()), home: Some("/home/ann".as_ref()) };
        let path = |setting: Setting, text: &str| setting.read(RawValue::Text(text.as_ref()), bases).unwrap();
        assert_eq!(path(Setting::Cafile, "ca"), Value::Path("/etc/mqkv/ca".into()));
        assert_eq!(path(Setting::Cafile, "~/ca"), Value::Path("/home/ann/ca".into()));
        assert_eq!(path(Setting::Cafile, "/ca"), Value::Path("/ca".into()));
        assert_eq!(path(Setting::PasswordFile, "-"), Value::Path("-".into()));
        assert_eq!(path(Setting::Embedded, "s"), Value::Store(EmbeddedStore::Folder("/etc/mqkv/s".into())));
        assert_eq!(
            text(Setting::Cafile, "~/ca"),
            Ok(Value::Path("~/ca".into())),
            "the shell has expanded it already"
        );
    }
}
