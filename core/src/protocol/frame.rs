//! RESP3 frames of the state store, with limits on depth, count and length.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use super::decimal;

/// The greatest nesting of arrays. A page of keys, the deepest reply, has two levels.
pub const DEPTH_MAX: usize = 4;
/// The most elements of one array.
pub const ELEMENTS_MAX: usize = 1 << 20;
/// The longest simple string or error line in bytes, without its CRLF.
pub const LINE_BYTES_MAX: usize = 4096;

/// One RESP3 value in canonical encoding: `encode(decode(x)) == x`.
///
/// ```
/// # extern crate mqkv_core as mqkv;
/// use bytes::{Bytes, BytesMut};
/// use mqkv::protocol::frame::Frame;
///
/// let payload = Bytes::from("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
/// let frame = Frame::decode(&payload)?;
/// assert_eq!(frame, Frame::Array(vec![Frame::Bulk("GET".into()), Frame::Bulk("k".into())]));
///
/// let mut encoded = BytesMut::new();
/// frame.encode(&mut encoded);
/// assert_eq!(encoded, payload);
/// # Ok::<(), mqkv::protocol::frame::FrameError>(())
/// ```
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

/// Error of decoding a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameError {
    /// Offset of the error in bytes.
    pub offset: usize,
    pub kind: FrameErrorKind,
}

/// Cause of a [`FrameError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameErrorKind {
    /// The bytes end before the frame does.
    Truncated,
    /// More bytes follow the frame.
    Trailing,
    /// The first byte is none of `+ - : $ *`.
    UnknownType(u8),
    /// A number is missing, has a forbidden sign, blank or leading zero, or overflows.
    Number,
    /// CRLF was expected.
    MissingCrlf,
    /// A line is longer than [`LINE_BYTES_MAX`].
    LineTooLong,
    /// Arrays nest deeper than [`DEPTH_MAX`].
    TooDeep,
    /// The count of an array is above [`ELEMENTS_MAX`], or above what the remaining bytes can hold.
    TooMany,
}

impl Frame {
    /// Decodes exactly one frame. Bulk strings share the memory of `bytes`.
    ///
    /// # Errors
    /// [`FrameError`] for anything but one whole canonical frame. Every length is compared with the bytes
    /// that are there before memory is allocated for it.
    pub fn decode(bytes: &Bytes) -> Result<Self, FrameError> {
        let mut reader = Reader::new(bytes);
        let frame = reader.frame(DEPTH_MAX)?;
        if reader.rest.is_empty() { Ok(frame) } else { Err(reader.error(FrameErrorKind::Trailing)) }
    }

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

/// Decodes an array of bulk strings into `words` without allocating memory. Returns the number of strings,
/// which may exceed the length of `words`; `None` if the frame is no array of bulk strings.
pub(super) fn decode_bulk_array<'a>(
    bytes: &'a Bytes,
    words: &mut [&'a [u8]],
) -> Result<Option<usize>, FrameError> {
    let mut reader = Reader::new(bytes);
    if reader.rest.first() != Some(&b'*') {
        // A frame of another type is well-formed, unlike bytes that are no frame.
        return Frame::decode(bytes).map(|_| None);
    }
    reader.skip(1);
    let count = reader.count()?;
    let mut places = words.iter_mut();
    for _ in 0..count {
        match reader.rest.first() {
            None => return Err(reader.error(FrameErrorKind::Truncated)),
            Some(b'$') => reader.skip(1),
            Some(_) => return Ok(None),
        }
        let Some(word) = reader.bulk()? else {
            return Ok(None);
        };
        if let Some(place) = places.next() {
            *place = word;
        }
    }
    if reader.rest.is_empty() { Ok(Some(count)) } else { Err(reader.error(FrameErrorKind::Trailing)) }
}

/// Appends the header of an array of `count` frames.
pub(super) fn put_array(out: &mut BytesMut, count: usize) {
    put_number(out, b'*', count);
}

pub(super) fn put_bulk(out: &mut BytesMut, bytes: &[u8]) {
    out.reserve(bulk_len(bytes));
    put_number(out, b'$', bytes.len());
    out.put_slice(bytes);
    out.put_slice(b"\r\n");
}

pub(super) fn put_integer(out: &mut BytesMut, number: i64) {
    out.put_slice(if number < 0 { b":-" } else { b":" });
    decimal::put(out, number.unsigned_abs(), 1);
    out.put_slice(b"\r\n");
}

/// Returns the encoded length of the header of an array.
pub(super) fn array_len(count: usize) -> usize {
    const MARKS_BYTES: usize = b"*\r\n".len();
    decimal::count(count).saturating_add(MARKS_BYTES)
}

/// Returns the encoded length of a bulk string.
pub(super) fn bulk_len(bytes: &[u8]) -> usize {
    const MARKS_BYTES: usize = b"$\r\n\r\n".len();
    bytes.len().saturating_add(decimal::count(bytes.len())).saturating_add(MARKS_BYTES)
}

/// The most bytes of a bulk string besides its content: `$`, the longest length, two CRLF.
pub(super) const BULK_OVERHEAD_MAX: usize = 1 + 20 + 2 + 2;

fn put_number(out: &mut BytesMut, marker: u8, number: usize) {
    // Most numbers are lengths of few digits. One call for the line, because each one checks the capacity.
    let digit = |number: usize| b'0' | u8::try_from(number % 10).unwrap_or(0);
    match number {
        0..10 => return out.put_slice(&[marker, digit(number), b'\r', b'\n']),
        10..100 => return out.put_slice(&[marker, digit(number / 10), digit(number), b'\r', b'\n']),
        _ => {}
    }
    out.put_u8(marker);
    decimal::put(out, number as u64, 1);
    out.put_slice(b"\r\n");
}

fn put_line(out: &mut BytesMut, marker: u8, text: &[u8]) {
    out.put_u8(marker);
    out.put_slice(text);
    out.put_slice(b"\r\n");
}

/// The bytes that are not decoded yet. Only the content of frames shares their memory.
struct Reader<'a> {
    whole: &'a Bytes,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(whole: &'a Bytes) -> Self {
        Self { whole, rest: whole }
    }

    fn error(&self, kind: FrameErrorKind) -> FrameError {
        FrameError { offset: self.whole.len().saturating_sub(self.rest.len()), kind }
    }

    fn skip(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn frame(&mut self, depth: usize) -> Result<Frame, FrameError> {
        let marker = *self.rest.first().ok_or_else(|| self.error(FrameErrorKind::Truncated))?;
        if !b"+-:$*".contains(&marker) {
            return Err(self.error(FrameErrorKind::UnknownType(marker)));
        }
        self.skip(1);
        let whole = self.whole;
        match marker {
            b'+' => self.line().map(|text| Frame::Simple(whole.slice_ref(text))),
            b'-' => self.line().map(|text| Frame::Error(whole.slice_ref(text))),
            b':' => self.integer().map(Frame::Integer),
            b'$' => Ok(self.bulk()?.map_or(Frame::Null, |bytes| Frame::Bulk(whole.slice_ref(bytes)))),
            _ => self.array(depth),
        }
    }

    /// Takes a line with its CRLF. A lone CR or LF is an error.
    fn line(&mut self) -> Result<&'a [u8], FrameError> {
        let window = self.rest.get(..LINE_BYTES_MAX.saturating_add(1)).unwrap_or(self.rest);
        let end = window.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        let Some(end) = end else {
            let is_truncated = window.len() <= LINE_BYTES_MAX;
            return Err(self.error(if is_truncated {
                FrameErrorKind::Truncated
            } else {
                FrameErrorKind::LineTooLong
            }));
        };
        let line = self.take(end).unwrap_or_default();
        self.crlf()?;
        Ok(line)
    }

    fn crlf(&mut self) -> Result<(), FrameError> {
        if self.rest.starts_with(b"\r\n") {
            self.skip(2);
            return Ok(());
        }
        let is_truncated = b"\r\n".starts_with(self.rest);
        Err(self.error(if is_truncated { FrameErrorKind::Truncated } else { FrameErrorKind::MissingCrlf }))
    }

    fn integer(&mut self) -> Result<i64, FrameError> {
        let malformed = self.error(FrameErrorKind::Number);
        let line = self.line()?;
        let digits = line.strip_prefix(b"-").unwrap_or(line);
        let canonical = is_canonical(digits) && line != b"-0";
        let text = std::str::from_utf8(line).ok().filter(|_| canonical);
        text.and_then(|text| text.parse().ok()).ok_or(malformed)
    }

    /// Takes a length of up to eight digits, which nearly all lengths have; otherwise takes nothing and
    /// returns `None`.
    fn short_length(&mut self) -> Option<usize> {
        const DIGITS_MAX: usize = 8;
        let mut length = 0_usize;
        for (at, byte) in self.rest.iter().take(DIGITS_MAX).enumerate() {
            if *byte == b'\r' && at > 0 {
                self.rest = self.rest.get(at..)?.strip_prefix(b"\r\n")?;
                return Some(length);
            }
            // A leading zero is not canonical.
            let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9 && (at == 0 || length > 0))?;
            length = length.saturating_mul(10).saturating_add(digit.into());
        }
        None
    }

    fn length(&mut self) -> Result<Option<usize>, FrameError> {
        if let Some(length) = self.short_length() {
            return Ok(Some(length));
        }
        let malformed = self.error(FrameErrorKind::Number);
        let line = self.line()?;
        if line == b"-1" {
            return Ok(None);
        }
        let length = decimal::parse(line).filter(|_| is_canonical(line));
        length.and_then(|length| usize::try_from(length).ok()).map(Some).ok_or(malformed)
    }

    /// Takes a bulk string; `None` if it is null.
    fn bulk(&mut self) -> Result<Option<&'a [u8]>, FrameError> {
        let Some(len) = self.length()? else {
            return Ok(None);
        };
        let bytes = self.take(len).ok_or_else(|| self.error(FrameErrorKind::Truncated))?;
        self.crlf()?;
        Ok(Some(bytes))
    }

    /// Takes the count of an array, bounded by the bytes that are there.
    fn count(&mut self) -> Result<usize, FrameError> {
        /// The shortest frame: a type byte and CRLF.
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
        // A decoded frame takes more memory than its shortest encoding, so the capacity grows with the frames
        // that have been decoded, not with the announced count.
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
            FrameErrorKind::Truncated => write!(out, "truncated at byte {offset}"),
            FrameErrorKind::Trailing => write!(out, "trailing bytes at byte {offset}"),
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

    use super::super::strategies::{bytes, frame, mutated};
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
        check(include_str!("../../../tests/vectors/frame.txt"), run);
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
        // The next bytes may still be CRLF, so this line is only truncated.
        assert_eq!(Frame::decode(&line_of(limit, "")).unwrap_err().kind, FrameErrorKind::Truncated);
    }

    #[test]
    fn a_length_is_bounded_by_the_length_of_a_line() {
        let digits = Bytes::from("$".to_owned() + &"9".repeat(1 << 20));
        assert_eq!(Frame::decode(&digits).unwrap_err().kind, FrameErrorKind::LineTooLong);
    }

    #[test]
    fn an_array_is_limited_in_its_elements() {
        let array = |count: usize| Bytes::from(format!("*{count}\r\n{}", "+\r\n".repeat(count)));
        assert!(Frame::decode(&array(ELEMENTS_MAX)).is_ok());
        assert_eq!(Frame::decode(&array(ELEMENTS_MAX + 1)).unwrap_err().kind, FrameErrorKind::TooMany);
    }

    #[test]
    fn deep_nesting_is_rejected_without_recursion_to_its_bottom() {
        let nest = Bytes::from("*1\r\n".repeat(1 << 20));
        assert_eq!(Frame::decode(&nest).unwrap_err().kind, FrameErrorKind::TooDeep);
    }

    #[test]
    fn every_prefix_of_a_frame_is_truncated_or_announces_too_much() {
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
        fn an_encoded_frame_decodes_to_itself(frame in frame()) {
            prop_assert_eq!(Frame::decode(&encoded(&frame)), Ok(frame));
        }

        #[test]
        fn a_decoded_frame_encodes_to_the_same_bytes(
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
