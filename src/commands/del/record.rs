//! The record of a deleted key.

use serde::Serialize;

use crate::client::DeleteOutcome;
use crate::commands::exit::Exit;
use crate::protocol::{Key, Timestamp};
use crate::render::json::{self, Json};
use crate::render::{Record, Rendered, Style, Widths, confirmation, name, negative, not_found};

/// The result of `del` or `vdel` for one key.
#[derive(Debug, Serialize)]
pub struct Deleted {
    op: &'static str,
    #[serde(flatten, serialize_with = "json::key")]
    pub key: Key,
    /// The number of deleted keys.
    deleted: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<NotDeleted>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::version")]
    version: Option<Timestamp>,
    #[serde(skip)]
    shown: Shown,
}

/// When the text of a record is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Always,
    /// A key that does not exist is no failure.
    UnlessMissing,
    /// A summary follows.
    IfVerbose,
}

/// Why a key was not deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum NotDeleted {
    Missing,
    ValueDiffers,
}

impl Deleted {
    /// Creates the record of a verb.
    #[must_use]
    pub fn new(op: &'static str, key: Key, outcome: DeleteOutcome) -> Self {
        let (reason, version) = match outcome {
            DeleteOutcome::Deleted { version } => (None, version),
            DeleteOutcome::Missing => (Some(NotDeleted::Missing), None),
            DeleteOutcome::ValueDiffers { version } => (Some(NotDeleted::ValueDiffers), version),
        };
        let deleted = u8::from(reason.is_none());
        Self { op, key, deleted, reason, version, shown: Shown::Always }
    }

    #[must_use]
    pub fn shown(self, shown: Shown) -> Self {
        Self { shown, ..self }
    }

    #[must_use]
    pub fn exit(&self) -> Exit {
        if self.reason.is_none() { Exit::Yes } else { Exit::No }
    }
}

impl Record for Deleted {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        match self.reason {
            _ if self.shown == Shown::IfVerbose && !style.verbose => Rendered::default(),
            None => confirmation(|| format!("deleted {}", name(&self.key)), self.version.as_ref(), style),
            Some(NotDeleted::Missing) if self.shown != Shown::Always => Rendered::default(),
            Some(NotDeleted::Missing) => not_found(&self.key, style),
            Some(NotDeleted::ValueDiffers) => {
                negative(&format!("not deleted: {} has another value", name(&self.key)), style)
            }
        }
    }

    fn key(&self) -> Option<&Key> {
        Some(&self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::shown;

    fn deleted(op: &'static str, outcome: DeleteOutcome) -> Deleted {
        Deleted::new(op, Key::new("k").unwrap(), outcome)
    }

    #[test]
    fn a_deletion_counts_and_gives_its_reason() {
        let json = |op, outcome| shown(&deleted(op, outcome), &Style::JSON).0;
        assert_eq!(
            json("del", DeleteOutcome::Deleted { version: None }),
            "{\"v\":1,\"op\":\"del\",\"key\":\"k\",\"deleted\":1}\n"
        );
        assert_eq!(
            json("vdel", DeleteOutcome::ValueDiffers { version: None }),
            "{\"v\":1,\"op\":\"vdel\",\"key\":\"k\",\"deleted\":0,\"reason\":\"value-differs\"}\n"
        );
    }

    #[test]
    fn a_no_goes_to_standard_error() {
        let differs = deleted("vdel", DeleteOutcome::ValueDiffers { version: None });
        let message = "error: not deleted: k has another value\n";
        assert_eq!(shown(&differs, &Style::PLAIN), (String::new(), message.to_owned()));
        assert_eq!(shown(&differs, &Style::LINES), (String::new(), message.to_owned()), "also in a pipe");
        assert_eq!(shown(&differs, &Style::QUIET), Default::default());
        let ignored = deleted("del", DeleteOutcome::Missing).shown(Shown::UnlessMissing);
        assert_eq!(shown(&ignored, &Style::PLAIN), Default::default());
    }
}
