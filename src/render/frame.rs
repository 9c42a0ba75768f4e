//! Frames as text, in the notation of the wire.

use std::fmt::Write;

use super::escape::{escape, quote};
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
