//! The writer of JSON lines.

use serde::Serialize;
use serde_json::Value;

use crate::render::Rendered;
use crate::render::escape::is_safe;

/// The version of the schema.
pub(crate) const SCHEMA: u32 = 1;

/// Formats records as lines. A line begins with the schema, then it has the marks of a line of input, then the record.
#[derive(Clone, Copy, Debug)]
pub struct Json<'a> {
    /// Whether messages are left out.
    pub quiet: bool,
    id: Option<&'a Value>,
    line: Option<u64>,
}

impl<'a> Json<'a> {
    #[must_use]
    pub fn new(quiet: bool) -> Self {
        Self { quiet, id: None, line: None }
    }

    /// Returns the same for a record about a line of input, which has an id of its own or not.
    #[must_use]
    pub fn of_line(self, id: Option<&'a Value>, line: u64) -> Self {
        Self { id, line: Some(line), ..self }
    }

    pub fn data(&self, record: &impl Serialize) -> Rendered {
        Rendered::stdout(line_of(&Line { v: SCHEMA, id: self.id, line: self.line, record }))
    }

    /// Formats a list of records as one array.
    pub fn array<T: Serialize>(&self, records: impl Iterator<Item = T>) -> Rendered {
        Rendered::stdout(line_of(&records.map(Line::plain).collect::<Vec<_>>()))
    }

    /// Formats a message on standard error, which --quiet leaves out.
    pub fn message(&self, record: &impl Serialize) -> Rendered {
        if self.quiet { Rendered::default() } else { self.warning(record) }
    }

    /// Formats a message on standard error.
    pub fn warning(&self, record: &impl Serialize) -> Rendered {
        Rendered::stderr(text_of(record))
    }
}

/// Returns the line of a record.
pub fn text_of(record: &impl Serialize) -> String {
    // JSON is UTF-8.
    String::from_utf8(line_of(&Line::plain(record))).unwrap_or_default()
}

#[derive(Serialize)]
struct Line<'a, T> {
    v: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(flatten)]
    record: T,
}

impl<T> Line<'_, T> {
    fn plain(record: T) -> Self {
        Self { v: SCHEMA, id: None, line: None, record }
    }
}

/// Escapes control characters beyond ASCII, which JSON allows in strings but which control a terminal.
fn line_of(value: &impl Serialize) -> Vec<u8> {
    const USUAL_BYTES: usize = 256;
    let mut line = Vec::with_capacity(USUAL_BYTES);
    // It cannot fail, because all names are strings.
    let _ = serde_json::to_writer(&mut line, value);
    // Most lines are ASCII, and this check of theirs is much faster.
    if !line.iter().all(|byte| matches!(byte, b' '..=b'~'))
        && let Ok(text) = str::from_utf8(&line)
        && text.contains(|c| !is_safe(c))
    {
        let escaped =
            |c: char| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
        let text: String =
            text.chars().map(|c| if is_safe(c) { c.to_string() } else { escaped(c) }).collect();
        line = text.into_bytes();
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::protocol::Key;
    use crate::render::json::{key, value};

    #[derive(Serialize)]
    #[serde(tag = "op", rename = "test")]
    struct Test {
        #[serde(flatten, serialize_with = "key")]
        key: Key,
        #[serde(flatten, serialize_with = "value")]
        value: Option<Bytes>,
    }

    fn record(key: &'static [u8], value: Option<&'static [u8]>) -> Test {
        Test { key: Key::new(key).unwrap(), value: value.map(Bytes::from) }
    }

    fn line(record: &Test) -> String {
        String::from_utf8(Json::new(false).data(record).stdout.to_vec()).unwrap()
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_base64_in_values_and_in_keys() {
        assert_eq!(
            line(&record(b"\xff", Some(b"\x00\xff"))),
            "{\"v\":1,\"op\":\"test\",\"key\":\"/w==\",\"key_encoding\":\"base64\",\"value\":\"AP8=\",\
             \"encoding\":\"base64\"}\n"
        );
        assert_eq!(line(&record(b"k", None)), "{\"v\":1,\"op\":\"test\",\"key\":\"k\"}\n");
    }

    #[test]
    fn control_characters_are_escaped_and_can_be_read_back() {
        let text = "\u{9b}2J\x7f\u{202e}°";
        let line = line(&record(b"k", Some(text.as_bytes())));
        assert!(line.contains("\"value\":\"\\u009b2J\\u007f\\u202e°\""), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["value"], text);
    }

    #[test]
    fn the_marks_of_a_line_follow_the_schema() {
        let id = serde_json::json!([7]);
        let marked = Json::new(true).of_line(Some(&id), 3);
        let expected = "{\"v\":1,\"id\":[7],\"line\":3,\"op\":\"test\",\"key\":\"k\"}\n";
        assert_eq!(marked.data(&record(b"k", None)).stdout, expected);
        assert_eq!(marked.message(&record(b"k", None)), Rendered::default());
    }
}
