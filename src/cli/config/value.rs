//! Values of settings: how a variable or a file writes them, and how they are shown (pure).

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;

use super::document::Content;
use crate::cli::broker_url::{self, BrokerUrl};
use crate::cli::options::{ColorWhen, OutputFormat};
use crate::commands::config_record::SettingValue;
use crate::commands::number::number;
use crate::commands::{CommandError, duration};
use crate::render::style::CustomColor;

/// A value before validation.
#[derive(Clone, Copy, Debug)]
pub enum RawValue<'a> {
    /// The text of a variable or an option.
    Word(&'a OsStr),
    /// A text in a file.
    Text(&'a str),
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

/// A value of a setting as it is shown and stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown<'a> {
    Text(Cow<'a, str>),
    Number(u32),
    Switch(bool),
    Path(&'a Path),
    Wait(Duration),
}

/// How a type of values is read from a variable or a file, and how it is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form<T> {
    /// Reads a value, or describes the values that are allowed.
    pub read: fn(RawValue<'_>, PathBases<'_>) -> Result<T, String>,
    pub show: fn(&T) -> Shown<'_>,
}

pub(super) const URL: Form<Url> = Form { read: url, show: |url| Shown::Text((&*url.text).into()) };
pub(super) const TEXT: Form<String> = Form { read: text, show: |text| Shown::Text(text.into()) };
pub(super) const PORT: Form<u16> = Form { read: port, show: |port| Shown::Number((*port).into()) };
pub(super) const COUNT: Form<u32> = Form { read: count, show: |count| Shown::Number(*count) };
pub(super) const SWITCH: Form<bool> = Form { read: switch, show: |is_on| Shown::Switch(*is_on) };
pub(super) const FILE: Form<PathBuf> = Form { read: file, show: |path| Shown::Path(path) };
/// A file, or `-` for standard input.
pub(super) const INPUT: Form<PathBuf> = Form { read: file_or_input, ..FILE };
pub(super) const STORE: Form<EmbeddedStore> = Form { read: store, show: EmbeddedStore::shown };
pub(super) const WAIT: Form<Duration> = Form { read: wait, show: |wait| Shown::Wait(*wait) };
pub(super) const KEEP_ALIVE: Form<Duration> = Form { read: keep_alive, ..WAIT };
pub(super) const FORMAT: Form<OutputFormat> = Form { read: one_of, show: |format| name(format) };
pub(super) const WHEN: Form<ColorWhen> = Form { read: one_of, show: |when| name(when) };
pub(super) const COLOR: Form<CustomColor> =
    Form { read: color, show: |color| Shown::Text(color.name().into()) };

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

impl<'a> RawValue<'a> {
    /// Returns the error message that only `what` is allowed, with the value as in [`found`](Self::found).
    fn expected(self, what: &str) -> String {
        self.found(format!("expected {what}"))
    }

    /// Adds the value to an error message if it begins as a number does. Another text can be a secret.
    fn found(self, error: String) -> String {
        match self {
            Self::Other(name) => format!("{error}, found {name}"),
            Self::Number(number) => format!("{error}, found {number}"),
            _ => match self.text().filter(|text| text.starts_with(|first: char| first.is_ascii_digit())) {
                Some(text) => format!("{error}, found {text}"),
                None => error,
            },
        }
    }

    /// Returns the text of the value; `None` if it is not a text, empty, or not UTF-8.
    fn text(self) -> Option<&'a str> {
        self.os_text()?.to_str()
    }

    fn os_text(self) -> Option<&'a OsStr> {
        match self {
            Self::Word(text) => Some(text),
            Self::Text(text) => Some(text.as_ref()),
            Self::Number(_) | Self::Switch(_) | Self::Other(_) => None,
        }
        .filter(|text| !text.is_empty())
    }
}

impl<'a> From<&'a Content> for RawValue<'a> {
    fn from(content: &'a Content) -> Self {
        match content {
            Content::Text(text) => Self::Text(text),
            Content::Number(number) => Self::Number(*number),
            Content::Switch(switch) => Self::Switch(*switch),
            other => Self::Other(other.type_name()),
        }
    }
}

fn url(raw: RawValue<'_>, _: PathBases<'_>) -> Result<Url, String> {
    let what = "the URL of a broker, for example \"mqtts://aio-broker:18883\"";
    let text = raw.text().ok_or_else(|| raw.expected(what))?;
    Url::parse(text).map_err(|error| error.message)
}

fn text(raw: RawValue<'_>, _: PathBases<'_>) -> Result<String, String> {
    raw.text().map(str::to_owned).ok_or_else(|| raw.expected("a text"))
}

fn port(raw: RawValue<'_>, _: PathBases<'_>) -> Result<u16, String> {
    in_range(raw, 1..=u16::MAX)
}

fn count(raw: RawValue<'_>, _: PathBases<'_>) -> Result<u32, String> {
    in_range(raw, 0..=u32::MAX)
}

fn in_range<T>(raw: RawValue<'_>, range: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync,
{
    let text = match raw {
        RawValue::Number(number) => number.to_string(),
        _ => raw.text().unwrap_or_default().to_owned(),
    };
    number(range)(&text).map_err(|error| raw.found(error))
}

fn switch(raw: RawValue<'_>, _: PathBases<'_>) -> Result<bool, String> {
    let what = "true or false";
    match raw {
        RawValue::Switch(is_on) => Ok(is_on),
        RawValue::Word(word) => word.to_str().and_then(yes_or_no).ok_or_else(|| raw.expected(what)),
        // A text in a file is a mistake: only variables accept "yes".
        RawValue::Text(_) => Err(RawValue::Other("a text").expected(what)),
        _ => Err(raw.expected(what)),
    }
}

fn file(raw: RawValue<'_>, bases: PathBases<'_>) -> Result<PathBuf, String> {
    raw.os_text().map(|path| rooted(path, bases)).ok_or_else(|| raw.expected("a file name"))
}

fn file_or_input(raw: RawValue<'_>, bases: PathBases<'_>) -> Result<PathBuf, String> {
    if raw.text() == Some("-") { Ok("-".into()) } else { file(raw, bases) }
}

fn store(raw: RawValue<'_>, bases: PathBases<'_>) -> Result<EmbeddedStore, String> {
    let is_on = match raw {
        RawValue::Switch(is_on) => Some(is_on),
        _ => raw.text().and_then(yes_or_no),
    };
    match (is_on, raw.os_text()) {
        (Some(true), _) => Ok(EmbeddedStore::Memory),
        (Some(false), _) => Ok(EmbeddedStore::Off),
        (None, Some(folder)) => Ok(EmbeddedStore::Folder(rooted(folder, bases))),
        (None, None) => Err(raw.expected("true, false or a directory")),
    }
}

fn wait(raw: RawValue<'_>, _: PathBases<'_>) -> Result<Duration, String> {
    duration::parse(duration_text(raw)?).map_err(|error| raw.found(error))
}

fn keep_alive(raw: RawValue<'_>, _: PathBases<'_>) -> Result<Duration, String> {
    duration::parse_keep_alive(duration_text(raw)?).map_err(|error| raw.found(error))
}

fn duration_text(raw: RawValue<'_>) -> Result<&str, String> {
    raw.text().ok_or_else(|| raw.expected("a duration, for example \"30s\""))
}

fn one_of<T: ValueEnum>(raw: RawValue<'_>, _: PathBases<'_>) -> Result<T, String> {
    let value = raw.text().and_then(|text| T::from_str(text, false).ok());
    value.ok_or_else(|| {
        let names = T::value_variants().iter().filter_map(T::to_possible_value);
        let names: Vec<_> = names.map(|value| value.get_name().to_owned()).collect();
        raw.expected(&format!("one of {}", names.join(", ")))
    })
}

fn color(raw: RawValue<'_>, _: PathBases<'_>) -> Result<CustomColor, String> {
    let what = "one of black, red, green, yellow, blue, magenta, cyan, white, one of these after \"bright \", or \
                \"#rrggbb\"";
    raw.text().and_then(CustomColor::parse).ok_or_else(|| raw.expected(what))
}

fn name<T: ValueEnum>(value: &T) -> Shown<'_> {
    let name = value.to_possible_value().map(|value| value.get_name().to_owned());
    Shown::Text(name.unwrap_or_default().into())
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

impl Url {
    /// Parses the URL of a broker.
    ///
    /// # Errors
    /// A usage error, which never contains a password.
    pub fn parse(text: &str) -> Result<Self, CommandError> {
        Ok(Self { text: text.to_owned(), broker: broker_url::parse(text)? })
    }
}

impl EmbeddedStore {
    fn shown(&self) -> Shown<'_> {
        match self {
            Self::Off => Shown::Switch(false),
            Self::Memory => Shown::Switch(true),
            Self::Folder(folder) => Shown::Path(folder),
        }
    }
}

impl Shown<'_> {
    /// Returns whether the value is off, which is the same as no value.
    #[must_use]
    pub fn is_off(&self) -> bool {
        *self == Self::Switch(false)
    }
}

impl From<Shown<'_>> for SettingValue {
    fn from(value: Shown<'_>) -> Self {
        match value {
            Shown::Text(text) => Self::Text(text.into_owned()),
            Shown::Number(number) => Self::Number(number),
            Shown::Switch(is_on) => Self::Switch(is_on),
            Shown::Path(path) => Self::Text(path.display().to_string()),
            Shown::Wait(wait) => Self::Text(duration::text(wait)),
        }
    }
}
