//! Values that travel in frames.

use bytes::Bytes;

use super::super::elements::{Elements, number};
use crate::protocol::frame::Frame;

/// A value and the time that it has left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Content {
    pub value: Bytes,
    /// `None`: it does not expire; never 0.
    pub ttl_ms: Option<u64>,
}

pub(super) fn decode(rest: &mut Elements<'_>) -> Option<Option<Content>> {
    let (value, ttl_ms) = (rest.next()?, rest.next()?);
    let ttl_ms = match ttl_ms {
        Frame::Null => None,
        // A store would take 0 for "no expiry".
        ttl_ms => Some(Elements(std::slice::from_ref(ttl_ms)).number().filter(|ttl_ms| *ttl_ms > 0)?),
    };
    match value {
        Frame::Null => Some(None),
        Frame::Bulk(value) => Some(Some(Content { value: value.clone(), ttl_ms })),
        _ => None,
    }
}

/// Returns the value and the time that it has left, as two elements.
pub(super) fn to_frames(content: Option<&Content>) -> [Frame; 2] {
    let value = content.map_or(Frame::Null, |content| Frame::Bulk(content.value.clone()));
    let ttl = content.and_then(|content| content.ttl_ms).map_or(Frame::Null, number);
    [value, ttl]
}
