//! Origin of a setting (pure).

use std::path::PathBuf;
use std::rc::Rc;

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

/// Origin of a setting: its layer, and what set it there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub rank: Rank,
    pub source: Source,
}

/// What sets a setting in a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
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
    pub context: Rc<str>,
    pub file: Rc<PathBuf>,
    /// From 1.
    pub line: usize,
}

impl Origin {
    /// The origin of the options.
    pub const FLAG: Self = Self { rank: Rank::Flags, source: Source::Flag };

    /// Returns whether a context contains the setting.
    #[must_use]
    pub fn is_of_context(&self) -> bool {
        matches!(self.source, Source::File(_))
    }
}

impl Line {
    /// Returns `FILE:LINE`.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}:{}", self.file.display(), self.line)
    }
}
