//! The terminal's size; the only user of the `terminal_size` crate.

use std::io;

/// How wide the terminal is that standard output is; none if it is no terminal, or does not tell.
#[must_use]
pub fn columns() -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
    Some(usize::from(width.0)).filter(|columns| *columns > 0)
}
