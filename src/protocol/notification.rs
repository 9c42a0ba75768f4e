//! What a watcher is told (protocol §3).

use bytes::{Bytes, BytesMut};

use super::frame::{BULK_OVERHEAD_MAX, Frame, put_array, put_bulk};
use super::key::Value;
use super::reply::ReplyError;

/// One change of a watched key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notification {
    /// The key was set, to this value where the sender names it (protocol §0 row 10).
    Set(Option<Value>),
    /// The key was deleted or has expired.
    Delete,
}

impl Notification {
    /// The notification's payload: `NOTIFY SET [VALUE v]` or `NOTIFY DELETE`.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let Self::Set(value) = self else {
            return Bytes::from_static(b"*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n");
        };
        let len = value.as_ref().map_or(0, Bytes::len);
        let mut out = BytesMut::with_capacity(len.saturating_add(BULK_OVERHEAD_MAX.saturating_mul(3)));
        put_array(&mut out, if value.is_some() { 4 } else { 2 });
        put_bulk(&mut out, b"NOTIFY");
        put_bulk(&mut out, b"SET");
        if let Some(value) = value {
            put_bulk(&mut out, b"VALUE");
            put_bulk(&mut out, value);
        }
        out.freeze()
    }

    /// Decodes a payload, with either word for a deletion and with or without the value (protocol §0 rows 3, 10).
    ///
    /// # Errors
    /// [`ReplyError`] for anything else.
    pub fn decode(payload: &Bytes) -> Result<Self, ReplyError> {
        let Frame::Array(frames) = Frame::decode(payload).map_err(ReplyError::Frame)? else {
            return Err(ReplyError::Unexpected);
        };
        let word = |frame| match frame {
            Frame::Bulk(word) => Ok(word),
            _ => Err(ReplyError::Unexpected),
        };
        let words = frames.into_iter().map(word).collect::<Result<Vec<_>, _>>()?;
        match words.as_slice() {
            [notify, set] if notify == "NOTIFY" && set == "SET" => Ok(Self::Set(None)),
            [notify, set, key, value] if notify == "NOTIFY" && set == "SET" && key == "VALUE" => {
                Ok(Self::Set(Some(value.clone())))
            }
            [notify, delete] if notify == "NOTIFY" && (delete == "DELETE" || delete == "DEL") => {
                Ok(Self::Delete)
            }
            _ => Err(ReplyError::Unexpected),
        }
    }
}
