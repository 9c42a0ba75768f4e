//! Log lines of the server as text and JSON, and records of its commands as JSON.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::duration::rfc3339;
use super::escape::escape;
use super::json::{put_bytes, text_of};
use super::wrap::wrapped;
use super::{Style, time};

/// The value of a field of a log line or of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    Text(String),
    Number(u64),
    Signed(i64),
    List(Vec<String>),
    Switch(bool),
    /// Bytes: a string if they are UTF-8, else base64.
    Bytes(Vec<u8>),
    /// A list of objects.
    Records(Vec<Vec<(&'static str, Field)>>),
}

/// Returns a log line of text without a line feed, for standard error: its time comes first. The message cannot control the
/// terminal, whatever names are in it.
#[must_use]
pub fn text(at_ms: u64, message: &str, style: &Style) -> String {
    let message = escape(message.as_bytes());
    format!("{}  {message}", time::of_stream(at_ms, style.stderr_is_terminal, style))
}

/// Returns a warning as [`text`] does, broken at blanks on a terminal. Events are one line each.
#[must_use]
pub fn sentence(at_ms: u64, message: &str, style: &Style) -> String {
    let time = time::of_stream(at_ms, style.stderr_is_terminal, style);
    let message = wrapped(&escape(message.as_bytes()), style.stderr_columns(), time.len().saturating_add(2));
    format!("{time}  {message}")
}

/// Returns a record with a line feed.
#[must_use]
pub fn answer(op: &str, fields: impl IntoIterator<Item = (&'static str, Field)>) -> String {
    #[derive(Serialize)]
    struct Answer<'a> {
        op: &'a str,
        #[serde(flatten)]
        fields: Fields<'a>,
    }
    let fields: Vec<_> = fields.into_iter().collect();
    text_of(&Answer { op, fields: Fields(&fields) })
}

/// Returns a log line without a line feed; schema, event and time come first.
#[must_use]
pub fn json(at_ms: u64, event: &str, fields: impl IntoIterator<Item = (&'static str, Field)>) -> String {
    #[derive(Serialize)]
    struct Line<'a> {
        event: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        time: Option<String>,
        #[serde(flatten)]
        fields: Fields<'a>,
    }
    let fields: Vec<_> = fields.into_iter().collect();
    let mut line = text_of(&Line { event, time: rfc3339(at_ms), fields: Fields(&fields) });
    line.truncate(line.trim_end().len());
    line
}

/// Fields as the members of an object.
struct Fields<'a>(&'a [(&'static str, Field)]);

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        for (name, field) in self.0 {
            match field {
                Field::Text(text) => members.serialize_entry(name, text)?,
                Field::Number(number) => members.serialize_entry(name, number)?,
                Field::Signed(number) => members.serialize_entry(name, number)?,
                Field::List(texts) => members.serialize_entry(name, texts)?,
                Field::Switch(switch) => members.serialize_entry(name, switch)?,
                Field::Bytes(bytes) => put_bytes(&mut members, name, &format!("{name}_encoding"), bytes)?,
                Field::Records(records) => {
                    let objects: Vec<_> = records.iter().map(|fields| Fields(fields)).collect();
                    members.serialize_entry(name, &objects)?;
                }
            }
        }
        members.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_text_begins_with_its_time() {
        let at_ms = 1_763_669_639_958;
        let terminal = Style { stderr_is_terminal: true, ..Style::PLAIN };
        assert_eq!(text(at_ms, "ready", &terminal), "20:13:59.958  ready");
        assert_eq!(text(at_ms, "ready", &Style::PLAIN), "2025-11-20T20:13:59.958Z  ready");
    }

    #[test]
    fn a_sentence_is_broken_at_blanks_on_a_terminal_and_an_event_is_one_line() {
        let on_terminal = Style { columns: Some(40), stderr_is_terminal: true, ..Style::PLAIN };
        let message = "warning: clients need no password on 0.0.0.0:1883";
        let broken = "00:00:00.000  warning: clients need no\n              password on 0.0.0.0:1883";
        assert_eq!(sentence(0, message, &on_terminal), broken);
        assert_eq!(text(0, message, &on_terminal), format!("00:00:00.000  {message}"));
        assert_eq!(sentence(0, message, &Style::PLAIN), text(0, message, &Style::PLAIN));
    }

    #[test]
    fn a_line_of_text_cannot_control_the_terminal() {
        let line = text(0, "data in x\x1b[2J\ny", &Style::PLAIN);
        assert_eq!(line, "1970-01-01T00:00:00.000Z  data in x\\x1B[2J\\x0Ay");
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_base64() {
        let fields = |bytes: &[u8]| [("key", Field::Bytes(bytes.to_vec())), ("found", Field::Switch(true))];
        assert_eq!(answer("o", fields(b"k")), "{\"v\":1,\"op\":\"o\",\"key\":\"k\",\"found\":true}\n");
        assert_eq!(
            answer("o", fields(b"\xff")),
            "{\"v\":1,\"op\":\"o\",\"key\":\"/w==\",\"key_encoding\":\"base64\",\"found\":true}\n"
        );
    }

    #[test]
    fn control_characters_of_a_client_are_escaped() {
        let hostile = Field::Text("a\"\n\x1b[31m\u{9b}\u{202e}".to_owned());
        let list = Field::List(vec!["x".to_owned()]);
        let line = json(
            0,
            "gone",
            [
                ("client_id", hostile),
                ("list", list),
                ("count", Field::Number(3)),
                ("left", Field::Signed(-1)),
            ],
        );
        assert_eq!(
            line,
            r#"{"v":1,"event":"gone","time":"1970-01-01T00:00:00.000Z","client_id":"a\"\n\u001b[31m\u009b\u202e","list":["x"],"count":3,"left":-1}"#
        );
    }
}
