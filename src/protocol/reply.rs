//! Replies of the store and their frames (protocol §2).

use std::fmt;

use bytes::{Bytes, BytesMut};

use super::frame::{BULK_OVERHEAD_MAX, Frame, FrameError, put_bulk};
use super::key::Value;
use super::refusal::Refusal;

/// One reply. What it means depends on the request: see protocol §2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`: a SET was applied, a KEYNOTIFY is in force or ended.
    Done,
    /// `$n`: the value of a GET.
    Value(Value),
    /// `:n`: how many keys a DEL or VDEL removed; `:0` to a STOP: was not watched.
    Count(u64),
    /// `:-1`: the condition of a SET or VDEL does not hold.
    NotApplied,
    /// `$-1`: no such key.
    Absent,
    /// `*1 [keys]` or `*2 [keys] token`: a page of a SCAN.
    Keys {
        /// The keys of this page, perhaps none.
        keys: Vec<Bytes>,
        /// Where the next page begins; none: this was the last.
        token: Option<Bytes>,
    },
    /// `-ERR text`
    Refused(Refusal),
}

/// Why a payload is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// The payload is not one frame.
    Frame(FrameError),
    /// The payload is a frame that no reply consists of.
    Unexpected,
}

impl Reply {
    /// The reply's payload, as our store sends it (protocol §0).
    #[must_use]
    pub fn encode(&self) -> Bytes {
        match self {
            Self::Done => Bytes::from_static(b"+OK\r\n"),
            Self::NotApplied => Bytes::from_static(b":-1\r\n"),
            Self::Absent => Bytes::from_static(b"$-1\r\n"),
            Self::Count(0) => Bytes::from_static(b":0\r\n"),
            Self::Count(1) => Bytes::from_static(b":1\r\n"),
            Self::Count(count) => Bytes::from(format!(":{count}\r\n")),
            Self::Refused(refusal) => Bytes::from(format!("-ERR {}\r\n", refusal.text())),
            Self::Value(value) => {
                let mut out = BytesMut::with_capacity(value.len().saturating_add(BULK_OVERHEAD_MAX));
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

    /// Decodes a payload, in every spelling that a page or an SDK knows (protocol §0 rows 1, 2, 5).
    ///
    /// # Errors
    /// [`ReplyError`] for anything else.
    pub fn decode(payload: &Bytes) -> Result<Self, ReplyError> {
        if let Some(refusal) = decode_refusal(payload) {
            return Ok(Self::Refused(refusal));
        }
        match Frame::decode(payload).map_err(ReplyError::Frame)? {
            Frame::Simple(text) if &text[..] == b"OK" => Ok(Self::Done),
            Frame::Bulk(value) => Ok(Self::Value(value)),
            Frame::Null => Ok(Self::Absent),
            Frame::Integer(number) => Ok(u64::try_from(number).map_or(Self::NotApplied, Self::Count)),
            // `-1` without its colon, as the published page prints it.
            Frame::Error(text) if &text[..] == b"1" => Ok(Self::NotApplied),
            Frame::Array(frames) => decode_page(frames),
            Frame::Simple(_) | Frame::Error(_) => Err(ReplyError::Unexpected),
        }
    }
}

/// `-ERR text`, `-ERR: text`, and either without its CRLF.
fn decode_refusal(payload: &[u8]) -> Option<Refusal> {
    let line = payload.strip_prefix(b"-ERR")?;
    let line = line.strip_suffix(b"\r\n").unwrap_or(line);
    let line = line.strip_prefix(b":").unwrap_or(line);
    let text = line.strip_prefix(b" ")?;
    let one_line =
        text.len() <= super::frame::LINE_BYTES_MAX && !text.contains(&b'\r') && !text.contains(&b'\n');
    one_line.then(|| Refusal::parse(&String::from_utf8_lossy(text)))
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
