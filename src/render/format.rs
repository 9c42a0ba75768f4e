//! The formats of standard output, and a formatted record.

use bytes::Bytes;

/// The format of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text for a terminal.
    Text,
    /// Lines for a pipe: exact values and no confirmations.
    Lines,
    /// Exact bytes without a line feed.
    Raw,
    /// One value per line in hexadecimal.
    Hex,
    /// One value per line in base64.
    Base64,
    /// One JSON object per line.
    Json,
}

/// A time zone.
#[derive(Clone, Copy, Debug)]
pub enum Zone {
    Utc,
    /// The offset from UTC in seconds, at a time in Unix milliseconds.
    Local(fn(u64) -> i32),
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Utc, Self::Utc) | (Self::Local(_), Self::Local(_)))
    }
}

impl Eq for Zone {}

/// How records are formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    pub format: Format,
    /// Whether standard output is colored.
    pub color_stdout: bool,
    /// Whether standard error is colored.
    pub color_stderr: bool,
    pub stdout_is_terminal: bool,
    pub stderr_is_terminal: bool,
    /// The width of the terminal, if there is one.
    pub columns: Option<usize>,
    /// The time zone of times on a terminal.
    pub zone: Zone,
    pub verbose: bool,
    /// Whether only data and errors are printed.
    pub quiet: bool,
}

impl Style {
    /// Returns the width in which data on standard output is wrapped or cut.
    #[must_use]
    pub fn stdout_columns(&self) -> Option<usize> {
        self.columns.filter(|_| self.stdout_is_terminal)
    }

    /// Returns the width in which messages on standard error are wrapped.
    #[must_use]
    pub fn stderr_columns(&self) -> Option<usize> {
        self.columns.filter(|_| self.stderr_is_terminal)
    }
}

#[cfg(test)]
impl Style {
    /// Text without color.
    pub const PLAIN: Self = Self {
        format: Format::Text,
        color_stdout: false,
        color_stderr: false,
        stdout_is_terminal: true,
        stderr_is_terminal: false,
        columns: None,
        zone: Zone::Utc,
        verbose: false,
        quiet: false,
    };
    /// Lines for a pipe.
    pub const LINES: Self = Self { format: Format::Lines, ..Self::PLAIN };
    pub const JSON: Self = Self { format: Format::Json, ..Self::PLAIN };
    pub const QUIET: Self = Self { quiet: true, ..Self::PLAIN };
}

/// A formatted record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    pub stdout: Bytes,
    pub stderr: String,
}

impl Rendered {
    #[must_use]
    pub fn stdout(stdout: impl Into<Bytes>) -> Self {
        Self { stdout: stdout.into(), stderr: String::new() }
    }

    #[must_use]
    pub fn stderr(stderr: String) -> Self {
        Self { stdout: Bytes::new(), stderr }
    }
}
