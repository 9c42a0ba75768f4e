//! The settings: their names on the command line, as variables and in the file, and their values (pure).

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Command};

use super::origin::{Origin, Rank, Source};
use super::value::{self, EmbeddedStore, PathBases, RawValue, Shown, Url};
use crate::cli::options::{ColorWhen, ConnectionArgs, DisplayArgs, OutputFormat};
use crate::commands::{CommandError, Kind};
use crate::render::style::CustomColor;

/// Prefix of the variables.
pub const PREFIX: &str = "MQKV_";

/// Default time to wait for an answer.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Default time to wait for the connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Default keep-alive interval.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A value with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sourced<T> {
    pub value: T,
    pub origin: Origin,
}

impl<T> Sourced<T> {
    /// Returns a value of the command line.
    pub fn typed(value: T) -> Self {
        Self { value, origin: Origin::FLAG }
    }
}

/// Declares [`Setting`] and [`Settings`] by a list: the name of a setting, its field, the parsed options that have it unless only
/// contexts do, and the type and the form of its value.
macro_rules! settings {
    (
        of ($($args:ident: $args_type:ty),*)
        $($name:ident $field:ident $(of $of:ident)?: $type:ty = $form:ident;)*
    ) => {
        /// Name of a setting of the connection, of the output, or of a context.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Setting {
            $($name),*
        }

        /// The settings of one layer, or of all layers together.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Settings {
            $(pub $field: Option<Sourced<$type>>),*
        }

        impl Setting {
            /// All settings, in the order of output.
            const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the name in the file.
            #[must_use]
            pub fn key(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($field)),*
                }
            }
        }

        impl Settings {
            /// Returns the settings of the options on the command line.
            pub fn of_options($($args: &$args_type),*) -> Result<Self, CommandError> {
                Ok(Self {
                    $($($field: $of.$field.value()?.map(Sourced::typed),)?)*
                    ..Self::default()
                })
            }

            /// Reads the value of a setting.
            ///
            /// # Errors
            /// Describes the values that are allowed. The message does not contain a value that can be a secret.
            pub fn read(
                &mut self,
                setting: Setting,
                raw: RawValue<'_>,
                bases: PathBases<'_>,
                origin: &Origin,
            ) -> Result<(), String> {
                let origin = origin.clone();
                match setting {
                    $(Setting::$name => {
                        self.$field = Some(Sourced { value: (value::$form.read)(raw, bases)?, origin });
                    })*
                }
                Ok(())
            }

            /// Returns the value of a setting and its origin.
            #[must_use]
            pub fn get(&self, setting: Setting) -> Option<(Shown<'_>, &Origin)> {
                match setting {
                    $(Setting::$name => {
                        self.$field.as_ref().map(|Sourced { value, origin }| ((value::$form.show)(value), origin))
                    })*
                }
            }

            pub fn remove(&mut self, setting: Setting) {
                match setting {
                    $(Setting::$name => self.$field = None),*
                }
            }

            /// Takes a setting of another layer.
            pub fn copy(&mut self, setting: Setting, from: &Self) {
                match setting {
                    $(Setting::$name => self.$field.clone_from(&from.$field)),*
                }
            }

            pub fn set_rank(&mut self, rank: Rank) {
                $(self.$field.iter_mut().for_each(|sourced| sourced.origin.rank = rank);)*
            }
        }
    };
}

settings! {
    of (connection: ConnectionArgs, display: DisplayArgs)

    Broker broker of connection: Url = URL;
    Hostname hostname of connection: String = TEXT;
    Port port of connection: u16 = PORT;
    Notls notls of connection: bool = SWITCH;
    Embedded embedded of connection: EmbeddedStore = STORE;
    Cafile cafile of connection: PathBuf = FILE;
    Certfile certfile of connection: PathBuf = FILE;
    Keyfile keyfile of connection: PathBuf = FILE;
    Keypasswordfile keypasswordfile of connection: PathBuf = FILE;
    ServerName server_name of connection: String = TEXT;
    Insecure insecure of connection: bool = SWITCH;
    Username username of connection: String = TEXT;
    PasswordFile password_file of connection: PathBuf = INPUT;
    AskPassword ask_password of connection: bool = SWITCH;
    SatFile sat_file of connection: PathBuf = FILE;
    ClientId client_id of connection: String = TEXT;
    Timeout timeout of connection: Duration = WAIT;
    ConnectTimeout connect_timeout of connection: Duration = WAIT;
    Retries retries of connection: u32 = COUNT;
    KeepAlive keep_alive of connection: Duration = KEEP_ALIVE;
    Cautious cautious of connection: bool = SWITCH;
    Output output of display: OutputFormat = FORMAT;
    Json json of display: bool = SWITCH;
    Quiet quiet of display: bool = SWITCH;
    Verbose verbose of display: bool = SWITCH;
    Color color of display: ColorWhen = WHEN;
    Utc utc of display: bool = SWITCH;
    ReadOnly read_only: bool = SWITCH;
    PromptColor prompt_color: CustomColor = COLOR;
}

/// The value of a setting in the parsed options.
trait Typed<T> {
    fn value(&self) -> Result<Option<T>, CommandError>;
}

impl<T: Clone> Typed<T> for Option<T> {
    fn value(&self) -> Result<Option<T>, CommandError> {
        Ok(self.clone())
    }
}

impl Typed<bool> for bool {
    fn value(&self) -> Result<Option<bool>, CommandError> {
        Ok(self.then_some(true))
    }
}

impl Typed<Url> for Option<String> {
    fn value(&self) -> Result<Option<Url>, CommandError> {
        self.as_deref().map(Url::parse).transpose()
    }
}

impl Typed<EmbeddedStore> for Option<Option<PathBuf>> {
    fn value(&self) -> Result<Option<EmbeddedStore>, CommandError> {
        Ok(self.clone().map(|folder| folder.map_or(EmbeddedStore::Memory, EmbeddedStore::Folder)))
    }
}

impl Setting {
    /// Returns all settings, in the order of output.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        Self::ALL.iter().copied()
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
    pub fn long(self) -> String {
        self.key().replace('_', "-")
    }

    #[must_use]
    pub fn variable(self) -> String {
        format!("{PREFIX}{}", self.key().to_ascii_uppercase())
    }

    /// Returns the option with its dashes, the short one if it exists.
    #[must_use]
    pub fn flag(self) -> String {
        let options = DisplayArgs::augment_args(ConnectionArgs::augment_args(Command::new("options")));
        let option = options.get_arguments().find(|option| option.get_id() == self.key());
        match option.and_then(|option| option.get_short()) {
            Some(short) => format!("-{short}"),
            None => format!("--{}", self.long()),
        }
    }

    /// Returns whether there is an option; otherwise the setting belongs to contexts only.
    #[must_use]
    pub fn has_flag(self) -> bool {
        !matches!(self, Self::ReadOnly | Self::PromptColor)
    }

    /// Returns the default value of a setting.
    #[must_use]
    pub fn built_in(self) -> Option<Shown<'static>> {
        Some(match self {
            Self::Timeout => Shown::Wait(TIMEOUT),
            Self::ConnectTimeout => Shown::Wait(CONNECT_TIMEOUT),
            Self::KeepAlive => Shown::Wait(KEEP_ALIVE),
            Self::Retries => Shown::Number(0),
            Self::Output | Self::Color => Shown::Text("auto".into()),
            Self::ClientId => Shown::Text("mqkv-HOST-RANDOM".into()),
            _ => return None,
        })
    }
}

impl Origin {
    /// Describes the origin: `-n`, `MQKV_BROKER`, `context prod, FILE:7`.
    #[must_use]
    pub fn text(&self, setting: Setting) -> String {
        match &self.source {
            Source::Flag => setting.flag(),
            Source::Variable(name) => name.clone(),
            Source::File(line) => format!("context {}, {}", line.context, line.place()),
        }
    }

    /// Returns the error `what` of a setting: a usage error, or an error of the configuration with its place.
    #[must_use]
    pub fn error(&self, setting: Setting, what: &str) -> CommandError {
        let message = match &self.source {
            Source::Flag => return CommandError::usage(what),
            Source::Variable(name) => format!("{name}: {what}"),
            Source::File(line) => format!("{}: {}: {what}", line.place(), setting.key()),
        };
        CommandError::new(Kind::Configuration, message)
    }
}

impl Settings {
    /// Returns the settings that are set, in the order of output.
    pub fn iter(&self) -> impl Iterator<Item = (Setting, Shown<'_>, &Origin)> {
        Setting::all().filter_map(|setting| {
            let (value, origin) = self.get(setting)?;
            Some((setting, value, origin))
        })
    }

    /// Returns whether one of the settings is set, other than switched off.
    #[must_use]
    pub fn has_any(&self, settings: &[Setting]) -> bool {
        settings.iter().any(|setting| self.get(*setting).is_some_and(|(value, _)| !value.is_off()))
    }
}

#[must_use]
pub fn value<T>(setting: &Option<Sourced<T>>) -> Option<&T> {
    setting.as_ref().map(|sourced| &sourced.value)
}

#[must_use]
pub fn is_on(switch: &Option<Sourced<bool>>) -> bool {
    value(switch) == Some(&true)
}

#[must_use]
pub fn rank<T>(setting: &Option<Sourced<T>>) -> Option<Rank> {
    setting.as_ref().map(|sourced| sourced.origin.rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_and_output_option_is_a_setting() {
        let options = DisplayArgs::augment_args(ConnectionArgs::augment_args(Command::new("x")));
        // A trace is for one run: a forgotten variable would write values to a file for ever.
        let others = ["context", "no-context", "config", "trace"];
        let longs = options.get_arguments().filter_map(|option| option.get_long());
        let mut defined: Vec<_> = longs.filter(|long| !others.contains(long)).map(str::to_owned).collect();
        let mut settings: Vec<_> =
            Setting::all().filter(|setting| setting.has_flag()).map(Setting::long).collect();
        defined.sort();
        settings.sort();
        assert_eq!(settings, defined);
    }

    #[test]
    fn a_setting_has_an_option_a_variable_and_a_key() {
        assert_eq!(Setting::of_key("server_name"), Some(Setting::ServerName));
        assert_eq!(Setting::of_variable("SERVER_NAME"), Some(Setting::ServerName));
        assert_eq!(Setting::of_variable("READ_ONLY"), None);
        assert_eq!(Setting::ServerName.variable(), "MQKV_SERVER_NAME");
        assert_eq!((Setting::Hostname.flag(), Setting::Notls.flag()), ("-n".into(), "--notls".into()));
    }

    fn read(setting: Setting, raw: RawValue<'_>, bases: PathBases<'_>) -> Result<Settings, String> {
        let mut settings = Settings::default();
        settings.read(setting, raw, bases, &Origin::FLAG).map(|()| settings)
    }

    fn text(setting: Setting, text: &str) -> Result<Settings, String> {
        read(setting, RawValue::Word(text.as_ref()), PathBases::default())
    }

    #[test]
    fn texts_are_validated_as_options_are() {
        assert_eq!(value(&text(Setting::Port, "1884").unwrap().port), Some(&1884));
        let timeout = text(Setting::Timeout, "250ms").unwrap().timeout;
        assert_eq!(value(&timeout), Some(&Duration::from_millis(250)));
        assert_eq!(value(&text(Setting::Output, "hex").unwrap().output), Some(&OutputFormat::Hex));
        for yes in ["1", "true", "YES"] {
            assert!(is_on(&text(Setting::Notls, yes).unwrap().notls), "{yes}");
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
        let of = |setting: Setting, raw| read(setting, raw, PathBases::default());
        assert_eq!(value(&of(Setting::Port, RawValue::Number(1)).unwrap().port), Some(&1));
        assert!(is_on(&of(Setting::Notls, RawValue::Switch(true)).unwrap().notls));
        let embedded = of(Setting::Embedded, RawValue::Switch(true)).unwrap().embedded;
        assert_eq!(value(&embedded), Some(&EmbeddedStore::Memory));
        assert_eq!(
            of(Setting::Timeout, RawValue::Number(5)).unwrap_err(),
            "expected a duration, for example \"30s\", found 5"
        );
        assert_eq!(
            of(Setting::Port, RawValue::Other("an array")).unwrap_err(),
            "expected a number from 1 to 65535, found an array"
        );
        assert_eq!(
            of(Setting::Output, RawValue::Text("yaml")).unwrap_err(),
            "expected one of auto, text, raw, hex, base64, json, jsonl"
        );
        assert!(
            of(Setting::Port, RawValue::Number(-1)).is_err()
                && of(Setting::Quiet, RawValue::Number(1)).is_err()
        );
    }

    #[test]
    fn paths_are_relative_to_the_file_that_contains_them() {
        let bases = PathBases { folder: Some("/etc/mqkv".as_ref()), home: Some("/home/ann".as_ref()) };
        let path = |setting: Setting, text: &str| {
            let settings = read(setting, RawValue::Text(text), bases).unwrap();
            match settings.get(setting) {
                Some((Shown::Path(path), _)) => path.display().to_string(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(path(Setting::Cafile, "ca"), "/etc/mqkv/ca");
        assert_eq!(path(Setting::Cafile, "~/ca"), "/home/ann/ca");
        assert_eq!(path(Setting::Cafile, "/ca"), "/ca");
        assert_eq!(path(Setting::PasswordFile, "-"), "-");
        assert_eq!(path(Setting::Embedded, "s"), "/etc/mqkv/s");
        let typed = text(Setting::Cafile, "~/ca").unwrap().cafile;
        assert_eq!(value(&typed), Some(&"~/ca".into()), "the shell has expanded it already");
    }
}
