//! Records: what a verb returns, and how one is formatted.

use std::fmt;

use bytes::Bytes;

use super::encoding::{to_base64, to_hex};
use super::json::Json;
use super::{Format, Rendered, Style, Widths};
use crate::protocol::Key;

/// A result, an event or a message of a verb, in the file of the verb.
///
/// Its fields are those of its JSON object, in their order (`derive(Serialize)`, with the functions of [`super::json`] for bytes,
/// times and durations); fields that only the text needs are skipped.
pub trait Record: fmt::Debug {
    /// Formats the record as JSON; `json` has a function for each stream.
    fn json(&self, json: &Json<'_>) -> Rendered;

    /// Formats the record as text: for a terminal if that is the format of the style, else as lines for a pipe, which are data
    /// without confirmations. `widths` are those of the records before it on the same terminal.
    fn text(&self, style: &Style, widths: &mut Widths) -> Rendered;

    /// Returns the bytes of the record, which `raw`, `hex` and `base64` print. Without them they print its text.
    fn bytes(&self) -> Option<&Bytes> {
        None
    }

    /// Returns the key that the record shows to exist or to be of interest, for completion.
    fn key(&self) -> Option<&Key> {
        None
    }

    /// Returns the number of the record in its stream, if it is data.
    fn sequence(&self) -> Option<u64> {
        None
    }

    /// Returns whether the record reports the loss of the connection.
    fn is_connection_loss(&self) -> bool {
        false
    }

    /// Returns the text, if the record is a hint.
    fn hint(&self) -> Option<&str> {
        None
    }

    /// Returns the progress, if the record is nothing else. It replaces the one before it.
    fn progress(&self) -> Option<Progress<'_>> {
        None
    }
}

/// The progress of a verb, a record that nothing but a progress bar shows.
#[derive(Clone, Copy)]
pub struct Progress<'a> {
    /// The part that is done.
    pub done: u64,
    /// The whole, where it is known.
    pub total: Option<u64>,
    pub text: &'a dyn fmt::Display,
}

impl fmt::Debug for Progress<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total.map_or_else(String::new, |total| format!("/{total}"));
        write!(out, "{}{total} {}", self.done, self.text)
    }
}

impl Record for Progress<'_> {
    fn json(&self, _: &Json<'_>) -> Rendered {
        Rendered::default()
    }

    fn text(&self, _: &Style, _: &mut Widths) -> Rendered {
        Rendered::default()
    }

    fn progress(&self) -> Option<Progress<'_>> {
        Some(*self)
    }
}

/// Formats a record in the format of the style.
#[must_use]
pub fn rendered(record: &dyn Record, style: &Style, widths: &mut Widths) -> Rendered {
    match (style.format, record.bytes()) {
        (Format::Json, _) => record.json(&Json::new(style.quiet)),
        (Format::Raw, Some(bytes)) => Rendered::stdout(bytes.clone()),
        (Format::Hex, Some(bytes)) => Rendered::stdout(to_hex(bytes) + "\n"),
        (Format::Base64, Some(bytes)) => Rendered::stdout(to_base64(bytes) + "\n"),
        _ => record.text(style, widths),
    }
}

/// Returns what a record writes to standard output and to standard error.
#[cfg(test)]
pub fn shown(record: &dyn Record, style: &Style) -> (String, String) {
    let Rendered { stdout, stderr } = rendered(record, style, &mut Widths::default());
    (String::from_utf8(stdout.to_vec()).unwrap(), stderr)
}
