//! Origin of a setting (pure).

use std::path::PathBuf;
use std::rc::Rc;

use super::setting::Setting;
use crate::commands::{CommandError, Kind};

/// Source of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An option.
    Flag,
    /// A variable, with its name.
    Variable(String),
    /// A line of the configuration file.
    File(Line),
    BuiltIn,
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
    /// Describes the origin: `-n`, `MQKV_BROKER`, `context prod, FILE:7`, `built in`.
    #[must_use]
    pub fn text(&self, setting: Setting) -> String {
        match self {
            Self::Flag => setting.flag(),
            Self::Variable(name) => name.clone(),
            Self::File(line) => format!("context {}, {}", line.context, line.place()),
            Self::BuiltIn => "built in".to_owned(),
        }
    }

    /// Returns whether a context contains the setting.
    #[must_use]
    pub fn is_of_context(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// Returns the error `what` of a setting: a usage error, or an error of the configuration with its place.
    #[must_use]
    pub fn error(&self, setting: Setting, what: &str) -> CommandError {
        match self {
            Self::Flag | Self::BuiltIn => CommandError::usage(what),
            Self::Variable(name) => CommandError::new(Kind::Configuration, format!("{name}: {what}")),
            Self::File(line) => {
                let key = setting.key();
                CommandError::new(Kind::Configuration, format!("{}: {key}: {what}", line.place()))
            }
        }
    }
}

impl Line {
    /// Returns `FILE:LINE`.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}:{}", self.file.display(), self.line)
    }
}
