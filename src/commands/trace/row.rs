//! A line of a trace as data, and as JSON.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::render::json;

/// The value of a field.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// A flag: only its name is shown.
    Word(&'static str),
    Number(u64),
    /// A string, not escaped.
    Text(String),
    /// Escaped bytes, which can be read back if they are not cut.
    Escaped(String),
    /// Several of them.
    Words(Vec<String>),
    /// The length of a secret.
    Secret(Option<usize>),
    User(Vec<(String, String)>),
}

/// The parts of a line.
#[derive(Debug)]
pub(super) struct TraceRow {
    /// The event.
    pub(super) what: &'static str,
    /// The packet type, if it is a packet.
    pub(super) packet: Option<String>,
    /// Names and values.
    pub(super) fields: Vec<(&'static str, Field)>,
    /// The text of an event other than a packet.
    pub(super) text: String,
}

impl TraceRow {
    /// Formats the line as JSON.
    pub(super) fn json(&self, at_ms: u64) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            trace: &'static str,
            #[serde(serialize_with = "json::time")]
            at: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            packet: Option<&'a str>,
            #[serde(flatten, serialize_with = "members")]
            fields: &'a [(&'static str, Field)],
        }
        let Self { what, packet, fields, .. } = self;
        json::text_of(&Line { trace: what, at: at_ms, packet: packet.as_deref(), fields })
    }
}

/// Writes fields as members.
fn members<S: Serializer>(fields: &[(&'static str, Field)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut members = serializer.serialize_map(None)?;
    for (name, field) in fields {
        let name = &name.replace('-', "_");
        match field {
            // Where the word is the name, it is true; else it is a matter of choice.
            Field::Word(word) if word.replace('-', "_") == *name => members.serialize_entry(name, &true)?,
            Field::Word(word) => members.serialize_entry(name, word)?,
            Field::Number(number) => members.serialize_entry(name, number)?,
            Field::Text(text) | Field::Escaped(text) => members.serialize_entry(name, text)?,
            Field::Words(words) => members.serialize_entry(name, words)?,
            Field::Secret(bytes) => members.serialize_entry(name, &redacted(*bytes))?,
            Field::User(pairs) => members.serialize_entry(name, pairs)?,
        }
    }
    members.end()
}

/// Returns the replacement of a secret.
pub(super) fn redacted(bytes: Option<usize>) -> String {
    match bytes {
        Some(bytes) => format!("<{bytes} bytes redacted>"),
        None => "<redacted>".to_owned(),
    }
}
