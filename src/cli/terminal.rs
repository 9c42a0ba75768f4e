//! Width of the terminal.

use std::io;
use std::os::fd::AsFd;

/// Returns the number of columns of the terminal on standard output; `None` if there is none or its size is unknown.
#[must_use]
pub fn columns() -> Option<usize> {
    columns_of(io::stdout())
}

/// Returns the number of columns of the terminal on standard error.
#[must_use]
pub fn columns_of_words() -> Option<usize> {
    columns_of(io::stderr())
}

fn columns_of(stream: impl AsFd) -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(stream)?;
    Some(usize::from(width.0)).filter(|columns| *columns > 0)
}
