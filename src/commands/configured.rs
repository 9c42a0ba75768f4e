//! What `config` and `context` tell of the configuration.

use std::path::PathBuf;

/// One record of `config` or `context`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Configured {
    /// Where the file is.
    Path {
        /// Its path.
        file: PathBuf,
        /// Whether it is there.
        exists: bool,
    },
    /// The settings that are in force.
    Settings {
        /// The context in use.
        context: Option<String>,
        /// The file of the context.
        file: Option<PathBuf>,
        /// The settings.
        settings: Vec<Row>,
        /// Whether it is asked where they come from.
        with_origin: bool,
    },
    /// All contexts.
    Contexts(Vec<Listed>),
    /// One context.
    Context {
        /// Its name.
        name: String,
        /// Its file.
        file: PathBuf,
        /// Whether it is the default one.
        is_default: bool,
        /// What it sets.
        settings: Vec<Row>,
    },
    /// There is no context in use.
    NoContext,
    /// The file was changed, or was not.
    Changed {
        /// What was done.
        change: Change,
        /// The context, where it is about one.
        context: Option<String>,
        /// The file.
        file: PathBuf,
    },
}

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name in the file.
    pub name: String,
    /// What it is set to.
    pub value: Shown,
    /// Where it comes from, in words.
    pub origin: String,
}

/// What a setting is set to; what is secret is in files, and only their names are here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// A text.
    Text(String),
    /// A number.
    Number(u32),
    /// Yes or no.
    Switch(bool),
}

/// A context in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Where its broker is.
    pub broker: String,
    /// Whether it is the default one.
    pub is_default: bool,
    /// Whether nothing is written through it.
    pub is_read_only: bool,
}

/// What was done to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A context is new.
    Added,
    /// A context is another one now.
    Replaced,
    /// A context is gone.
    Removed,
    /// A context is the default one now.
    Used,
    /// There is no default context any more.
    NoneUsed,
    /// It was edited.
    Edited,
    /// It was opened and left as it was.
    Unchanged,
}

impl Change {
    /// The word for it in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Replaced => "replaced",
            Self::Removed => "removed",
            Self::Used => "used",
            Self::NoneUsed => "none-used",
            Self::Edited => "edited",
            Self::Unchanged => "unchanged",
        }
    }
}
