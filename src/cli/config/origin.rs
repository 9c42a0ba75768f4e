//! Where a setting comes from (pure).

use std::path::PathBuf;
use std::rc::Rc;

use super::setting::Setting;
use crate::commands::{CommandError, Kind};

/// Where a setting comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was typed.
    Flag,
    /// The variable of this name.
    Variable(String),
    /// A line of the file.
    File(Line),
    /// Nobody has said anything.
    BuiltIn,
}

/// A line of a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The context's name.
    pub context: Rc<str>,
    /// The file.
    pub file: Rc<PathBuf>,
    /// The line, from 1.
    pub line: usize,
}

impl Origin {
    /// In words: `-n`, `MQKV_BROKER`, `context prod, FILE:7`, `built in`.
    #[must_use]
    pub fn text(&self, setting: Setting) -> String {
        match self {
            Self::Flag => setting.flag(),
            Self::Variable(name) => name.clone(),
            Self::File(line) => format!("context {}, {}", line.context, line.place()),
            Self::BuiltIn => "built in".to_owned(),
        }
    }

    /// Whether it is a context's.
    #[must_use]
    pub fn is_of_context(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// What is wrong with a setting: with the command line, or with the configuration and where.
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
    /// `FILE:LINE`.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}:{}", self.file.display(), self.line)
    }
}
