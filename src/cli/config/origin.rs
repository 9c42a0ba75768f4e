//! Origin of a setting (pure).

use std::path::PathBuf;
use std::rc::Rc;

use super::setting::Setting;
use crate::commands::{CommandError, Kind};

/// Rank of a layer, the highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Options on the command line.
    Flags,
    /// The context of `-x`.
    TypedContext,
    /// The variables `MQKV_*`.
    Variables,
    /// The context of `MQKV_CONTEXT`.
    NamedContext,
    /// The variables `AIO_*`.
    Sdk,
    /// The default context of the file.
    DefaultContext,
}

/// Source of a setting: its layer, and the place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub rank: Rank,
    pub place: Place,
}

/// Place of a setting in its layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An option.
    Flag,
    /// A variable, with its name.
    Variable(String),
    /// A line of the configuration file.
    File(Line),
}

/// A line of the configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Name of the context.
    pub context: Rc<str>,
    pub file: Rc<PathBuf>,
    /// From 1.
    pub line: usize,
}

impl Origin {
    /// The origin of the options.
    pub const FLAG: Self = Self { rank: Rank::Flags, place: Place::Flag };

    /// Describes the origin: `-n`, `MQKV_BROKER`, `context prod, FILE:7`.
    #[must_use]
    pub fn text(&self, setting: Setting) -> String {
        match &self.place {
            Place::Flag => setting.flag(),
            Place::Variable(name) => name.clone(),
            Place::File(line) => format!("context {}, {}", line.context, line.place()),
        }
    }

    /// Returns whether a context contains the setting.
    #[must_use]
    pub fn is_of_context(&self) -> bool {
        matches!(self.place, Place::File(_))
    }

    /// Returns the error `what` of a setting: a usage error, or an error of the configuration with its place.
    #[must_use]
    pub fn error(&self, setting: Setting, what: &str) -> CommandError {
        let message = match &self.place {
            Place::Flag => return CommandError::usage(what),
            Place::Variable(name) => format!("{name}: {what}"),
            Place::File(line) => format!("{}: {}: {what}", line.place(), setting.key()),
        };
        CommandError::new(Kind::Configuration, message)
    }
}

impl Line {
    /// Returns `FILE:LINE`.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}:{}", self.file.display(), self.line)
    }
}
