//! Errors of rule files.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// An error in the text of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RuleError {
    /// The line, from 1; 0 for the whole file.
    pub(super) line: usize,
    pub(super) what: String,
}

impl RuleError {
    pub(super) fn new(line: usize, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }
}

/// The cause of an invalid rule file.
#[derive(Debug)]
pub enum AuthorizationError {
    /// The file cannot be read.
    Io { path: PathBuf, cause: io::Error },
    /// The content of the file is invalid.
    Invalid {
        path: PathBuf,
        /// The line, from 1. None: the whole file.
        line: Option<usize>,
        /// Not escaped.
        what: String,
    },
}

impl fmt::Display for AuthorizationError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, cause } => write!(out, "cannot read {}: {cause}", path.display()),
            Self::Invalid { path, line: None, what } => {
                write!(out, "{}: {what}", path.display())
            }
            Self::Invalid { path, line: Some(line), what } => {
                write!(out, "{}:{line}: {what}", path.display())
            }
        }
    }
}

impl std::error::Error for AuthorizationError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_not_escaped_because_the_printer_escapes() {
        let (path, what) = (PathBuf::from("rules"), "invalid YAML: unexpected '@' in \"a\"".to_owned());
        let error = AuthorizationError::Invalid { path, line: Some(2), what };
        assert_eq!(error.to_string(), "rules:2: invalid YAML: unexpected '@' in \"a\"");
        let event = crate::server::event::Event::Rules { outcome: Err(error.to_string()) };
        assert!(!event.to_string().contains('\\'), "{event}");
    }
}
