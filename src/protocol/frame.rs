//! The RESP3 frames that the state store uses, with limits on depth, count and length.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// How deep arrays may nest. A page of keys, the deepest answer, nests twice.
pub const DEPTH_MAX: usize = 4;
/// The most elements of one array.
pub const ELEMENTS_MAX: usize = 1 << 20;
/// The longest simple string or error line in bytes, without its CRLF.
pub const LINE_BYTES_MAX: usize = 4096;

/// One RESP3 value in its only (canonical) encoding: `encode(decode(x)) == x`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// `+text\r\n`
    Simple(Bytes),
    /// `-text\r\n`
    Error(Bytes),
    /// `:n\r\n`
    Integer(i64),
    /// `$n\r\nbytes\r\n`
    Bulk(Bytes),
    /// `$-1\r\n`
    Null,
    /// `*n\r\n` and n frames
    Array(Vec<Frame>),
}

/// Why bytes are not one frame, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameError {
    /// The offset in bytes at which the trouble begins.
    pub offset: usize,
    /// The trouble.
    pub kind: FrameErrorKind,
}

/// What can be wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameErrorKind {
    /// The bytes end before the frame does.
    Truncated,
    /// The frame ends before the bytes do.
    Trailing,
    /// The first byte is none of `+ - : $ *`.
    UnknownType(u8),
    /// A number is missing, has a sign, a blank or a leading zero where none may be, or overflows.
    Number,
    /// Something else stands where CRLF must be.
    MissingCrlf,
    /// A line is longer than [`LINE_BYTES_MAX`].
    LineTooLong,
    /// Arrays nest deeper than [`DEPTH_MAX`].
    TooDeep,
    /// An array announces more than [`ELEMENTS_MAX`] elements, or more than its bytes can hold.
    TooMany,
}

impl Frame {
    /// Decodes exactly one frame; bulk strings share the memory of `bytes`.
    ///
    /// # Errors
    /// [`FrameError`] for anything but one whole canonical frame. Every announced length is held against the
    /// bytes that are there before anything is allocated.
    pub fn decode(bytes: &Bytes) -> Result<Self, FrameError> {
        let mut reader = Reader { rest: bytes.clone(), len: bytes.len() };
        let frame = reader.frame(DEPTH_MAX)?;
        if reader.rest.is_empty() { Ok(frame) } else { Err(reader.error(FrameErrorKind::Trailing)) }
    }

    /// Appends the frame's bytes.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Simple(text) => put_line(out, b'+', text),
            Self::Error(text) => put_line(out, b'-', text),
            Self::Integer(number) => put_integer(out, *number),
            Self::Bulk(bytes) => put_bulk(out, bytes),
            Self::Null => out.put_slice(b"$-1\r\n"),
            Self::Array(frames) => {
                put_array(out, frames.len());
                for frame in frames {
                    frame.encode(out);
                }
            }
        }
    }
}

/// Decodes an array of bulk strings, and nothing else: whatever the payload, it takes no more memory than `words_max`
/// words do. Of more words only so many are kept. `None` if something in the array is no bulk string.
pub(super) fn decode_words(bytes: &Bytes, words_max: usize) -> Result<Option<Vec<Bytes>>, FrameError> {
    let mut reader = Reader { rest: bytes.clone(), len: bytes.len() };
    if reader.rest.first() != Some(&b'*') {
        // Another frame is no request, but what is no frame is told apart.
        return Frame::decode(bytes).map(|_| None);
    }
    reader.rest.advance(1);
    let count = reader.count()?;
    let mut words = Vec::with_capacity(count.min(words_max));
    for _ in 0..count {
        if reader.rest.first().is_some_and(|marker| *marker != b'$') {
            return Ok(None);
        }
        let Frame::Bulk(word) = reader.frame(0)? else {
            return Ok(None);
        };
        if words.len() < words_max {
            words.push(word);
        }
    }
    if reader.rest.is_empty() { Ok(Some(words)) } else { Err(reader.error(FrameErrorKind::Trailing)) }
}

/// Appends the head of an array of `count` frames.
pub(super) fn put_array(out: &mut BytesMut, count: usize) {
    put_number(out, b'*', count);
}

/// Appends a bulk string.
pub(super) fn put_bulk(out: &mut BytesMut, bytes: &[u8]) {
    out.reserve(bytes.len().saturating_add(BULK_OVERHEAD_MAX));
    put_number(out, b'$', bytes.len());
    out.put_slice(bytes);
    out.put_slice(b"\r\n");
}

/// Appends an integer.
pub(super) fn put_integer(out: &mut BytesMut, number: i64) {
    out.put_u8(b':');
    put_display(out, number);
}

/// `$`, the longest length, and two CRLF.
pub(super) const BULK_OVERHEAD_MAX: usize = 1 + 20 + 2 + 2;

fn put_number(out: &mut BytesMut, marker: u8, number: usize) {
    out.put_u8(marker);
    put_display(out, number);
}

fn put_display(out: &mut BytesMut, number: impl fmt::Display) {
    use fmt::Write;
    // Writing to a BytesMut fails only at usize::MAX bytes.
    let _ = write!(out, "{number}\r\n");
}

fn put_line(out: &mut BytesMut, marker: u8, text: &[u8]) {
    out.put_u8(marker);
    out.put_slice(text);
    out.put_slice(b"\r\n");
}

struct Reader {
    rest: Bytes,
    len: usize,
}

impl Reader {
    fn error(&self, kind: FrameErrorKind) -> FrameError {
        FrameError { offset: self.len.saturating_sub(self.rest.len()), kind }
    }

    fn frame(&mut self, depth: usize) -> Result<Frame, FrameError> {
        let marker = *self.rest.first().ok_or_else(|| self.error(FrameErrorKind::Truncated))?;
        if !b"+-:$*".contains(&marker) {
            return Err(self.error(FrameErrorKind::UnknownType(marker)));
        }
        self.rest.advance(1);
        match marker {
            b'+' => Ok(Frame::Simple(self.line()?)),
            b'-' => Ok(Frame::Error(self.line()?)),
            b':' => self.integer().map(Frame::Integer),
            b'$' => self.bulk(),
            _ => self.array(depth),
        }
    }

    /// Everything up to the next CRLF, which is taken too. A lone CR or LF is an error.
    fn line(&mut self) -> Result<Bytes, FrameError> {
        let window = self.rest.get(..LINE_BYTES_MAX.saturating_add(1)).unwrap_or(&self.rest);
        let end = window.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        let Some(end) = end else {
            let cut = window.len() <= LINE_BYTES_MAX;
            return Err(self.error(if cut {
                FrameErrorKind::Truncated
            } else {
                FrameErrorKind::LineTooLong
            }));
        };
        let line = self.rest.split_to(end);
        self.crlf()?;
        Ok(line)
    }

    fn crlf(&mut self) -> Result<(), FrameError> {
        if self.rest.starts_with(b"\r\n") {
            self.rest.advance(2);
            return Ok(());
        }
        let cut = b"\r\n".starts_with(&self.rest);
        Err(self.error(if cut { FrameErrorKind::Truncated } else { FrameErrorKind::MissingCrlf }))
    }

    fn integer(&mut self) -> Result<i64, FrameError> {
        let malformed = self.error(FrameErrorKind::Number);
        let line = self.line()?;
        let digits = line.strip_prefix(b"-").unwrap_or(&line);
        let canonical = is_canonical(digits) && &line[..] != b"-0";
        let text = std::str::from_utf8(&line).ok().filter(|_| canonical);
        text.and_then(|text| text.parse().ok()).ok_or(malformed)
    }

    fn length(&mut self) -> Result<Option<usize>, FrameError> {
        let malformed = self.error(FrameErrorKind::Number);
        let line = self.line()?;
        if &line[..] == b"-1" {
            return Ok(None);
        }
        let text = std::str::from_utf8(&line).ok().filter(|_| is_canonical(&line));
        text.and_then(|text| text.parse().ok()).map(Some).ok_or(malformed)
    }

    fn bulk(&mut self) -> Result<Frame, FrameError> {
        let Some(len) = self.length()? else {
            return Ok(Frame::Null);
        };
        if len > self.rest.len() {
            return Err(self.error(FrameErrorKind::Truncated));
        }
        let bytes = self.rest.split_to(len);
        self.crlf()?;
        Ok(Frame::Bulk(bytes))
    }

    /// How many frames an array announces, held against the bytes that are there.
    fn count(&mut self) -> Result<usize, FrameError> {
        /// The shortest frame: a marker and CRLF.
        const FRAME_BYTES_MIN: usize = 3;
        let malformed = self.error(FrameErrorKind::Number);
        let count = self.length()?.ok_or(malformed)?;
        if count > ELEMENTS_MAX || count > self.rest.len() / FRAME_BYTES_MIN {
            return Err(self.error(FrameErrorKind::TooMany));
        }
        Ok(count)
    }

    fn array(&mut self, depth: usize) -> Result<Frame, FrameError> {
        /// The longest request has six words.
        const ELEMENTS_AT_ONCE: usize = 8;
        let Some(depth) = depth.checked_sub(1) else {
            return Err(self.error(FrameErrorKind::TooDeep));
        };
        let count = self.count()?;
        // A frame takes more memory than its shortest encoding: room grows with what has come, not with what
        // is announced.
        let mut frames = Vec::with_capacity(count.min(ELEMENTS_AT_ONCE));
        for _ in 0..count {
            frames.push(self.frame(depth)?);
        }
        Ok(Frame::Array(frames))
    }
}

fn is_canonical(digits: &[u8]) -> bool {
    digits.iter().all(u8::is_ascii_digit) && (digits.len() == 1 || !digits.starts_with(b"0"))
}

impl fmt::Display for FrameError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, kind } = self;
        match kind {
            FrameErrorKind::Truncated => write!(out, "cut off at byte {offset}"),
            FrameErrorKind::Trailing => write!(out, "something follows the frame at byte {offset}"),
            FrameErrorKind::UnknownType(byte) => {
                write!(out, "no frame begins with '{}' (byte {offset})", byte.escape_ascii())
            }
            FrameErrorKind::Number => write!(out, "malformed number at byte {offset}"),
            FrameErrorKind::MissingCrlf => write!(out, "CRLF missing at byte {offset}"),
            FrameErrorKind::LineTooLong => write!(out, "line over {LINE_BYTES_MAX} bytes at byte {offset}"),
            FrameErrorKind::TooDeep => write!(out, "arrays nest over {DEPTH_MAX} deep at byte {offset}"),
            FrameErrorKind::TooMany => write!(out, "array longer than its bytes at byte {offset}"),
        }
    }
}

impl std::error::Error for FrameError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::generators::{bytes, frame, mutated};
    use super::super::vectors::{Case, check, escape};
    use super::*;

    fn encoded(frame: &Frame) -> Bytes {
        let mut out = BytesMut::new();
        frame.encode(&mut out);
        out.freeze()
    }

    fn show(frame: &Frame) -> String {
        let named = |name: &str, text: &[u8]| format!("{name} {}", escape(text)).trim_end().to_owned();
        match frame {
            Frame::Simple(text) => named("simple", text),
            Frame::Error(text) => named("error", text),
            Frame::Integer(number) => format!("integer {number}"),
            Frame::Bulk(bytes) => named("bulk", bytes),
            Frame::Null => "null".to_owned(),
            Frame::Array(frames) => {
                format!("array [{}]", frames.iter().map(show).collect::<Vec<_>>().join(", "))
            }
        }
    }

    fn show_error(FrameError { offset, kind }: FrameError) -> String {
        match kind {
            FrameErrorKind::UnknownType(byte) => format!("UnknownType {} at {offset}", escape(&[byte])),
            kind => format!("{kind:?} at {offset}"),
        }
    }

    fn run(case: &Case<'_>) -> String {
        let ["decode"] = case.operation() else { case.unknown() };
        let payload = case.bytes();
        match Frame::decode(&payload) {
            Ok(frame) if encoded(&frame) == payload => show(&frame),
            Ok(frame) => format!("{}\nencodes {}", show(&frame), escape(&encoded(&frame))),
            Err(error) => show_error(error),
        }
    }

    #[test]
    fn frames_are_as_in_the_vectors() {
        check(include_str!("../../tests/vectors/frame.txt"), run);
    }

    fn line_of(len: usize, end: &str) -> Bytes {
        ["+", &"x".repeat(len), end].concat().into()
    }

    #[test]
    fn a_line_ends_at_its_limit() {
        let limit = LINE_BYTES_MAX;
        let too_long = Err(FrameError { offset: 1, kind: FrameErrorKind::LineTooLong });
        assert!(Frame::decode(&line_of(limit, "\r\n")).is_ok());
        assert_eq!(Frame::decode(&line_of(limit + 1, "\r\n")), too_long);
        assert_eq!(Frame::decode(&line_of(limit + 1, "")), too_long);
        // No byte more may come than CRLF, so this one is only cut off.
        assert_eq!(Frame::decode(&line_of(limit, "")).unwrap_err().kind, FrameErrorKind::Truncated);
    }

    #[test]
    fn a_length_is_no_longer_than_a_line() {
        let digits = Bytes::from("$".to_owned() + &"9".repeat(1 << 20));
        assert_eq!(Frame::decode(&digits).unwrap_err().kind, FrameErrorKind::LineTooLong);
    }

    #[test]
    fn an_array_has_as_many_elements_as_its_limit_and_no_more() {
        let array = |count: usize| Bytes::from(format!("*{count}\r\n{}", "+\r\n".repeat(count)));
        assert!(Frame::decode(&array(ELEMENTS_MAX)).is_ok());
        assert_eq!(Frame::decode(&array(ELEMENTS_MAX + 1)).unwrap_err().kind, FrameErrorKind::TooMany);
    }

    #[test]
    fn a_deep_nest_is_refused_without_recursion_to_its_bottom() {
        let nest = Bytes::from("*1\r\n".repeat(1 << 20));
        assert_eq!(Frame::decode(&nest).unwrap_err().kind, FrameErrorKind::TooDeep);
    }

    #[test]
    fn every_cut_of_a_frame_is_truncated_or_announces_too_much() {
        let whole = encoded(&Frame::Array(vec![
            Frame::Array(vec![Frame::Bulk("ab".into()), Frame::Null, Frame::Integer(-1)]),
            Frame::Simple("OK".into()),
            Frame::Error("ERR".into()),
        ]));
        for len in 0..whole.len() {
            let kind = Frame::decode(&whole.slice(..len)).unwrap_err().kind;
            let expected = [FrameErrorKind::Truncated, FrameErrorKind::TooMany];
            assert!(expected.contains(&kind), "{kind:?} at a cut to {len}");
        }
    }

    #[test]
    fn a_bulk_string_shares_the_memory_of_its_payload() {
        let payload = Bytes::from("$4\r\n1234\r\n");
        let Ok(Frame::Bulk(value)) = Frame::decode(&payload) else { panic!("not a bulk string") };
        assert_eq!(value.as_ptr(), payload[4..].as_ptr());
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_the_same_frame(frame in frame()) {
            prop_assert_eq!(Frame::decode(&encoded(&frame)), Ok(frame));
        }

        #[test]
        fn what_is_decoded_encodes_to_the_same_bytes(
            payload in prop_oneof![bytes(64), mutated(frame().prop_map(|frame| encoded(&frame)))],
        ) {
            match Frame::decode(&payload) {
                Ok(frame) => prop_assert_eq!(encoded(&frame), payload),
                Err(error) => prop_assert!(error.offset <= payload.len()),
            }
        }

        #[test]
        fn two_frames_are_not_one(first in frame(), second in frame()) {
            let first = encoded(&first);
            let both = [&first[..], &encoded(&second)].concat().into();
            let offset = first.len();
            prop_assert_eq!(Frame::decode(&both), Err(FrameError { offset, kind: FrameErrorKind::Trailing }));
        }
    }
}
