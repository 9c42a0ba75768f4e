//! The terminal's size; the only user of the `terminal_size` crate.

use std::io;
use std::os::fd::AsFd;

/// How wide the terminal is that standard output is; none if it is no terminal, or does not tell.
#[must_use]
pub fn columns() -> Option<usize> {
    columns_of(io::stdout())
}

/// The same of standard error.
#[must_use]
pub fn columns_of_words() -> Option<usize> {
    columns_of(io::stderr())
}

fn columns_of(stream: impl AsFd) -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(stream)?;
    Some(usize::from(width.0)).filter(|columns| *columns > 0)
}
