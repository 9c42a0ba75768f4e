//! Texts from the network as the log shows them: escaped, and no more of them than a log needs.

use std::borrow::Cow;
use std::fmt;

/// The most bytes that are shown of a text: a topic, a client id or a user name may have 65,535.
pub(super) const SHOWN_BYTES_MAX: usize = 512;

/// A text from the network, escaped.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match beginning(self.0) {
            None => write!(out, "{}", self.0.escape_debug()),
            Some(start) => write!(out, "{}… ({} bytes)", start.escape_debug(), self.0.len()),
        }
    }
}

/// The user and certificate of a client, behind its id; nothing if it has not authenticated.
#[derive(Clone, Copy, Debug)]
pub struct As<'a>(pub Option<&'a str>);

impl fmt::Display for As<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |principal| write!(out, " as {}", Shown(principal)))
    }
}

/// Returns the text, or the beginning of a long one, not escaped.
pub(super) fn shortened(text: &str) -> Cow<'_, str> {
    match beginning(text) {
        None => text.into(),
        Some(start) => format!("{start}… ({} bytes)", text.len()).into(),
    }
}

/// Returns the part of a long text that is shown.
pub(super) fn beginning(text: &str) -> Option<&str> {
    (text.len() > SHOWN_BYTES_MAX)
        .then(|| text.get(..text.floor_char_boundary(SHOWN_BYTES_MAX)).unwrap_or_default())
}
