//! Standard output and standard error: their size.

use std::io::{self, IsTerminal};

pub use crate::platform::{stderr_has_room, stdout_closed as closed};

/// Returns the width of the terminal at standard output, in columns.
#[must_use]
pub fn columns() -> Option<usize> {
    columns_of(terminal_size::terminal_size_of(io::stdout())?)
}

/// Returns the height of the terminal at standard output, in rows.
#[must_use]
pub fn rows() -> Option<usize> {
    let (_, height) = terminal_size::terminal_size_of(io::stdout())?;
    Some(usize::from(height.0)).filter(|rows| *rows > 0)
}

/// Returns the width of the terminal at standard error, in columns.
#[must_use]
pub fn stderr_columns() -> Option<usize> {
    columns_of(terminal_size::terminal_size_of(io::stderr())?)
}

#[must_use]
pub fn is_stderr_terminal() -> bool {
    io::stderr().is_terminal()
}

fn columns_of((width, _): (terminal_size::Width, terminal_size::Height)) -> Option<usize> {
    Some(usize::from(width.0)).filter(|columns| *columns > 0)
}
