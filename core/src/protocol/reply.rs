//! Replies of the store (protocol §2).

use std::fmt;

use bytes::{Bytes, BytesMut};

use super::error_reply::ErrorReply;
use super::frame::{Frame, FrameError, LINE_BYTES_MAX, bulk_len, put_bulk};
use super::key::Value;

/// The payload of [`Reply::Done`].
pub const DONE: &[u8] = b"+OK\r\n";

/// A reply. Its meaning depends on the request (protocol §2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`: a SET was applied, a watch was started or stopped.
    Done,
    /// `$n`: the value of a GET.
    Value(Value),
    /// `:n`: the number of keys that a DEL or VDEL removed; `:0` to a STOP: the key was not watched.
    Count(u64),
    /// `:-1`: the condition of a SET or VDEL does not hold.
    NotApplied,
    /// `$-1`: the key is absent.
    Absent,
    /// `*1 [keys]` or `*2 [keys] token`: a page of a SCAN.
    Keys {
        /// The keys of this page; there may be none.
        keys: Vec<Bytes>,
        /// Token of the next page; `None` after the last one.
        token: Option<Bytes>,
    },
    /// `-ERR text`
    Error(ErrorReply),
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Applied, found or deleted.
    Ok,
    /// Not applied, not found or nothing deleted.
    No,
    /// The reply is an error.
    Refused,
}

impl Outcome {
    pub const ALL: [Self; 3] = [Self::Ok, Self::No, Self::Refused];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::No => "no",
            Self::Refused => "refused",
        }
    }
}

/// Error of decoding a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// The payload is not one frame.
    Frame(FrameError),
    /// The payload is a frame that is no reply.
    Unexpected,
}

impl Reply {
    /// Returns what a reply reports of its request.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Error(_) => Outcome::Refused,
            Self::NotApplied | Self::Absent | Self::Count(0) => Outcome::No,
            Self::Done | Self::Value(_) | Self::Count(_) | Self::Keys { .. } => Outcome::Ok,
        }
    }

    /// Encodes the payload as this store sends it (protocol §0).
    #[must_use]
    pub fn encode(&self) -> Bytes {
        match self {
            Self::Done => Bytes::from_static(DONE),
            Self::NotApplied => Bytes::from_static(b":-1\r\n"),
            Self::Absent => Bytes::from_static(b"$-1\r\n"),
            Self::Count(0) => Bytes::from_static(b":0\r\n"),
            Self::Count(1) => Bytes::from_static(b":1\r\n"),
            Self::Count(count) => Bytes::from(format!(":{count}\r\n")),
            Self::Error(error_reply) => Bytes::from(format!("-ERR {}\r\n", error_reply.text())),
            Self::Value(value) => {
                let mut out = BytesMut::with_capacity(bulk_len(value));
                put_bulk(&mut out, value);
                out.freeze()
            }
            Self::Keys { keys, token } => {
                let keys = Frame::Array(keys.iter().cloned().map(Frame::Bulk).collect());
                let token = token.clone().map(Frame::Bulk);
                let mut out = BytesMut::new();
                Frame::Array(std::iter::once(keys).chain(token).collect()).encode(&mut out);
                out.freeze()
            }
        }
    }

    /// Decodes a payload in every form of the published page and the SDKs (protocol §0 rows 1, 2, 5).
    ///
    /// # Errors
    /// [`ReplyError`] for anything else.
    pub fn decode(payload: &Bytes) -> Result<Self, ReplyError> {
        // The reply to nearly every SET.
        if &payload[..] == DONE {
            return Ok(Self::Done);
        }
        if let Some(error_reply) = decode_error_reply(payload) {
            return Ok(Self::Error(error_reply));
        }
        match Frame::decode(payload).map_err(ReplyError::Frame)? {
            Frame::Simple(text) if &text[..] == b"OK" => Ok(Self::Done),
            Frame::Bulk(value) => Ok(Self::Value(value)),
            Frame::Null => Ok(Self::Absent),
            Frame::Integer(number) => Ok(u64::try_from(number).map_or(Self::NotApplied, Self::Count)),
            // `-1` without its colon, as in the published page.
            Frame::Error(text) if &text[..] == b"1" => Ok(Self::NotApplied),
            Frame::Array(frames) => decode_page(frames),
            Frame::Simple(_) | Frame::Error(_) => Err(ReplyError::Unexpected),
        }
    }
}

/// Decodes `-ERR text` and `-ERR: text`, each with or without CRLF.
fn decode_error_reply(payload: &[u8]) -> Option<ErrorReply> {
    let line = payload.strip_prefix(b"-ERR")?;
    let line = line.strip_suffix(b"\r\n").unwrap_or(line);
    let line = line.strip_prefix(b":").unwrap_or(line);
    let text = line.strip_prefix(b" ")?;
    let is_line = text.len() <= LINE_BYTES_MAX && !text.contains(&b'\r') && !text.contains(&b'\n');
    let text = is_line.then(|| String::from_utf8_lossy(text))?;
    // The replacements for what is not UTF-8 are longer.
    (text.len() <= LINE_BYTES_MAX).then(|| ErrorReply::parse(&text))
}

fn decode_page(frames: Vec<Frame>) -> Result<Reply, ReplyError> {
    let bulk = |frame| match frame {
        Frame::Bulk(bytes) => Ok(bytes),
        _ => Err(ReplyError::Unexpected),
    };
    let mut frames = frames.into_iter();
    let (Some(Frame::Array(keys)), token, None) = (frames.next(), frames.next(), frames.next()) else {
        return Err(ReplyError::Unexpected);
    };
    let keys = keys.into_iter().map(bulk).collect::<Result<_, _>>()?;
    Ok(Reply::Keys { keys, token: token.map(bulk).transpose()? })
}

impl fmt::Display for ReplyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(error) => error.fmt(out),
            Self::Unexpected => out.write_str("a frame that is no reply of the state store"),
        }
    }
}

impl std::error::Error for ReplyError {}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::super::frame::FrameErrorKind;
    use super::super::strategies::{bytes, frame, line, mutated};
    use super::super::vectors::{Case, check, escape};
    use super::*;

    fn formatted(bytes: &[u8]) -> String {
        if bytes.is_empty() { "<empty>".to_owned() } else { escape(bytes) }
    }

    fn show(reply: &Reply) -> String {
        match reply {
            Reply::Value(value) => format!("Value {}", formatted(value)),
            Reply::Count(count) => format!("Count {count}"),
            Reply::Error(error_reply) => format!("Error {error_reply:?}"),
            Reply::Keys { keys, token } => {
                let keys: Vec<_> = keys.iter().map(|key| formatted(key)).collect();
                let token = token.as_ref().map(|token| format!("; token {}", formatted(token)));
                format!("Keys [{}]{}", keys.join(", "), token.unwrap_or_default())
            }
            Reply::Done | Reply::NotApplied | Reply::Absent => format!("{reply:?}"),
        }
    }

    fn run(case: &Case<'_>) -> String {
        let ["decode"] = case.operation() else { case.unknown() };
        let payload = case.bytes();
        match Reply::decode(&payload) {
            Ok(reply) if reply.encode() == payload => show(&reply),
            Ok(reply) => format!("{}\nencodes {}", show(&reply), escape(&reply.encode())),
            Err(ReplyError::Unexpected) => "Unexpected".to_owned(),
            Err(ReplyError::Frame(FrameError { offset, kind })) => match kind {
                FrameErrorKind::UnknownType(byte) => format!("UnknownType {} at {offset}", escape(&[byte])),
                kind => format!("{kind:?} at {offset}"),
            },
        }
    }

    #[test]
    fn replies_are_as_in_the_vectors() {
        check(include_str!("../../../tests/vectors/reply.txt"), run);
    }

    #[test]
    fn every_known_error_reply_is_decoded_in_all_four_forms() {
        for error_reply in ErrorReply::known() {
            let text = error_reply.text();
            for spelling in [
                format!("-ERR {text}\r\n"),
                format!("-ERR: {text}\r\n"),
                format!("-ERR {text}"),
                format!("-ERR: {text}"),
            ] {
                let reply = Reply::decode(&Bytes::from(spelling));
                assert_eq!(reply, Ok(Reply::Error(error_reply.clone())));
            }
            let sent = Reply::Error(error_reply.clone()).encode();
            assert_eq!(sent, format!("-ERR {text}\r\n"));
        }
    }

    #[test]
    fn an_error_text_that_is_not_utf8_is_decoded() {
        let reply = Reply::decode(&Bytes::from_static(b"-ERR \xff\r\n"));
        assert_eq!(reply, Ok(Reply::Error(ErrorReply::Unknown("\u{FFFD}".to_owned()))));
    }

    #[test]
    fn an_error_reply_longer_than_a_line_is_rejected() {
        let text = |len: usize| Bytes::from(format!("-ERR {}\r\n", "x".repeat(len)));
        assert!(Reply::decode(&text(LINE_BYTES_MAX)).is_ok());
        assert!(Reply::decode(&text(LINE_BYTES_MAX + 1)).is_err());
        // Each byte that is not UTF-8 becomes three.
        let invalid = |len: usize| Bytes::from([b"-ERR ", &b"\xff".repeat(len)[..], b"\r\n"].concat());
        let decoded = Reply::decode(&invalid(LINE_BYTES_MAX / 3)).unwrap();
        assert_eq!(Reply::decode(&decoded.encode()), Ok(decoded));
        assert!(Reply::decode(&invalid(LINE_BYTES_MAX / 3 + 1)).is_err());
    }

    fn reply() -> impl Strategy<Value = Reply> {
        let known: Vec<_> = ErrorReply::known().cloned().collect();
        prop_oneof![
            Just(Reply::Done),
            Just(Reply::NotApplied),
            Just(Reply::Absent),
            bytes(40).prop_map(Reply::Value),
            // Integers on the wire are signed.
            (0..=i64::MAX as u64).prop_map(Reply::Count),
            (vec(bytes(10), 0..5), option::of(bytes(10)))
                .prop_map(|(keys, token)| Reply::Keys { keys, token }),
            prop::sample::select(known).prop_map(Reply::Error),
            line().prop_map(|text| Reply::Error(ErrorReply::parse(&text))),
        ]
    }

    fn encoded(frame: &Frame) -> Bytes {
        let mut out = BytesMut::new();
        frame.encode(&mut out);
        out.freeze()
    }

    proptest! {
        #[test]
        fn an_encoded_reply_decodes_to_itself(reply in reply()) {
            prop_assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        }

        #[test]
        fn a_decoded_reply_survives_another_round_trip(
            payload in prop_oneof![
                bytes(64),
                frame().prop_map(|frame| encoded(&frame)),
                mutated(reply().prop_map(|reply| reply.encode())),
            ],
        ) {
            if let Ok(reply) = Reply::decode(&payload) {
                prop_assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
            }
        }
    }
}
