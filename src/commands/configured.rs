//! The records of `config` and `context`.

use std::path::PathBuf;

/// A record of `config` or `context`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigRecord {
    /// The path of the configuration file.
    Path { file: PathBuf, exists: bool },
    /// The effective settings.
    Settings {
        /// The name of the context in use.
        context: Option<String>,
        /// The file of the context.
        file: Option<PathBuf>,
        settings: Vec<SettingRow>,
        /// Whether the origins are printed.
        with_origin: bool,
    },
    /// All contexts.
    Contexts(Vec<ContextRow>),
    /// One context.
    Context { name: String, file: PathBuf, is_default: bool, settings: Vec<SettingRow> },
    /// No context is in use.
    NoContext,
    /// The result of a change of the configuration file.
    Changed {
        change: FileChange,
        /// The context that was changed.
        context: Option<String>,
        file: PathBuf,
    },
}

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingRow {
    /// The name in the configuration file.
    pub name: String,
    pub value: SettingValue,
    /// The origin of the value, as text.
    pub origin: String,
}

/// The value of a setting. It contains no secrets, only the names of their files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    Text(String),
    Number(u32),
    Switch(bool),
}

/// A context in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextRow {
    pub name: String,
    /// The URL of the broker.
    pub broker: String,
    pub is_default: bool,
    pub is_read_only: bool,
}

/// A change of the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// A context was added.
    Added,
    /// The first context was added, which is the default.
    AddedAsDefault,
    /// A context was replaced.
    Replaced,
    /// A context was removed.
    Removed,
    /// A context has a new name.
    Renamed,
    /// A context was made the default.
    Used,
    /// There is no default context any more.
    NoneUsed,
    /// The file was edited.
    Edited,
    /// The file was opened in an editor and not changed.
    Unchanged,
}

impl FileChange {
    /// Returns the name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Added | Self::AddedAsDefault => "added",
            Self::Replaced => "replaced",
            Self::Removed => "removed",
            Self::Renamed => "renamed",
            Self::Used => "used",
            Self::NoneUsed => "none-used",
            Self::Edited => "edited",
            Self::Unchanged => "unchanged",
        }
    }
}
