//! Errors of identity files.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An error in the text of a file: the line, from 1, or 0 for the whole file, and a predicate about it.
pub(super) type LineError = (usize, String);

/// The cause of a failed operation on an identity file.
#[derive(Debug)]
pub enum IdentityError {
    /// The user name is invalid.
    Name(&'static str),
    /// The file cannot be read or written.
    Io {
        /// The operation, such as `read`.
        what: &'static str,
        path: PathBuf,
        cause: io::Error,
    },
    /// The content of the file is invalid.
    Invalid {
        path: PathBuf,
        /// The line, from 1. None: the whole file.
        line: Option<usize>,
        /// A predicate. It never repeats content of the file.
        what: String,
    },
}

impl IdentityError {
    pub(super) fn invalid(path: &Path, (line, what): LineError) -> Self {
        Self::Invalid { path: path.to_owned(), line: (line > 0).then_some(line), what }
    }
}

impl fmt::Display for IdentityError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(what) => write!(out, "invalid user name: {what}"),
            Self::Io { what, path, cause } => write!(out, "cannot {what} {}: {cause}", path.display()),
            Self::Invalid { path, line: None, what } => write!(out, "{} {what}", path.display()),
            Self::Invalid { path, line: Some(line), what } => {
                write!(out, "line {line} of {} {what}", path.display())
            }
        }
    }
}

impl std::error::Error for IdentityError {}
