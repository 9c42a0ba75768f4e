//! Frames as text, in the notation of the wire, and as JSON.

use std::fmt::Write;

use bytes::Bytes;
use serde::{Serialize, Serializer};

use super::escape::{escape, quote};
use super::json;
use crate::protocol::frame::Frame;

/// Formats a frame: `+OK`, `-ERR text`, `:1`, `"value"`, `(nil)`, and `1)` before each element of an array. Without a
/// line feed at the end.
#[must_use]
pub fn text(frame: &Frame) -> String {
    let mut out = String::new();
    put(&mut out, frame, 0);
    out
}

fn put(out: &mut String, frame: &Frame, indent: usize) {
    match frame {
        Frame::Simple(text) => put_all(out, &["+", &escape(text)]),
        Frame::Error(text) => put_all(out, &["-", &escape(text)]),
        Frame::Integer(number) => put_all(out, &[":", &number.to_string()]),
        Frame::Bulk(bytes) => out.push_str(&quote(bytes)),
        Frame::Null => out.push_str("(nil)"),
        Frame::Array(frames) if frames.is_empty() => out.push_str("(empty array)"),
        Frame::Array(frames) => {
            let width = frames.len().to_string().len();
            for (number, frame) in (1_usize..).zip(frames) {
                if number > 1 {
                    // Writing to a String does not fail.
                    let _ = write!(out, "\n{:indent$}", "");
                }
                let _ = write!(out, "{number:width$}) ");
                put(out, frame, indent.saturating_add(width).saturating_add(2));
            }
        }
    }
}

fn put_all(out: &mut String, parts: &[&str]) {
    for part in parts {
        out.push_str(part);
    }
}

/// A frame as an object.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Node<'a> {
    Simple(Value<'a>),
    Error(Value<'a>),
    Bulk(Value<'a>),
    Integer { value: i64 },
    Null,
    Array { items: Vec<Node<'a>> },
}

#[derive(Serialize)]
struct Value<'a> {
    #[serde(flatten, serialize_with = "json::value")]
    value: &'a Bytes,
}

impl<'a> From<&'a Frame> for Node<'a> {
    fn from(frame: &'a Frame) -> Self {
        match frame {
            Frame::Simple(value) => Self::Simple(Value { value }),
            Frame::Error(value) => Self::Error(Value { value }),
            Frame::Bulk(value) => Self::Bulk(Value { value }),
            Frame::Integer(value) => Self::Integer { value: *value },
            Frame::Null => Self::Null,
            Frame::Array(frames) => Self::Array { items: frames.iter().map(Self::from).collect() },
        }
    }
}

/// Writes a frame as a tree of objects, for `serialize_with`.
pub fn serialize<S: Serializer>(frame: &Frame, serializer: S) -> Result<S::Ok, S::Error> {
    Node::from(frame).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn formatted(payload: &'static [u8]) -> String {
        text(&Frame::decode(&Bytes::from_static(payload)).unwrap())
    }

    #[test]
    fn each_frame_type_has_its_notation() {
        assert_eq!(formatted(b"+OK\r\n"), "+OK");
        assert_eq!(formatted(b"-ERR unknown command\r\n"), "-ERR unknown command");
        assert_eq!(formatted(b":-1\r\n"), ":-1");
        assert_eq!(formatted(b"$-1\r\n"), "(nil)");
        assert_eq!(formatted(b"$5\r\nOK\"\x1b\n\r\n"), "\"OK\\\"\\x1B\\x0A\"");
        assert_eq!(formatted(b"*0\r\n"), "(empty array)");
    }

    #[test]
    fn arrays_are_numbered_and_nest() {
        assert_eq!(
            formatted(b"*2\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nt\r\n"),
            "1) 1) \"a\"\n   2) \"b\"\n2) \"t\""
        );
    }
}
