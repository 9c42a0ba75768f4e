//! Result of reading one line from the terminal.

/// What reading a line has returned.
#[derive(Debug)]
pub enum Input {
    Line(String),
    /// Ctrl-C has cleared the line.
    Cleared,
    /// The line is not valid UTF-8.
    InvalidUtf8,
    /// Ctrl-D on an empty line, or the end of standard input.
    End,
    /// The terminal is gone or cannot be read.
    Lost,
}
