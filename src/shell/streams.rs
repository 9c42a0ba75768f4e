//! Output streams of the process, as the process edge provides them.

use std::io;

/// Output functions; each takes whether color is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    /// Writes bytes to standard output.
    pub data: fn(&[u8], bool) -> io::Result<()>,
    /// Writes text to standard error.
    pub words: fn(&str, bool),
}
