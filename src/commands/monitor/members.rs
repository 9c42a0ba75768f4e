//! Members of the JSON objects of requests, replies and notifications that a monitor sees (pure).

use bytes::Bytes;
use serde::{Serialize, Serializer};

use crate::protocol::{Condition, Notification, Reply, Request, Value};
use crate::render::encoding::to_hex;
use crate::render::json::{self, reply_name};

/// A payload that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    pub error: String,
    pub payload: Bytes,
}

impl Malformed {
    #[must_use]
    pub fn new(error: impl ToString, payload: &Bytes) -> Self {
        Self { error: error.to_string(), payload: payload.clone() }
    }
}

/// A value with its length in bytes.
#[derive(Serialize)]
struct Content<'a> {
    #[serde(flatten, serialize_with = "json::value")]
    value: &'a Value,
    size: usize,
}

impl<'a> Content<'a> {
    fn new(value: &'a Value) -> Self {
        Self { value, size: value.len() }
    }
}

/// Writes a payload that cannot be decoded.
fn malformed<S: Serializer>(malformed: &Malformed, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Members<'a> {
        malformed: &'a str,
        #[serde(flatten, serialize_with = "json::payload")]
        payload: &'a Bytes,
        size: usize,
    }
    let Malformed { error, payload } = malformed;
    Members { malformed: error, payload, size: payload.len() }.serialize(serializer)
}

/// Writes what a request asks for, besides its verb and its key.
pub fn request<S: Serializer>(
    request: &Result<Request, Malformed>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Members<'a> {
        Set {
            #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::condition")]
            condition: Option<Condition>,
            #[serde(skip_serializing_if = "Option::is_none")]
            ttl_ms: Option<u64>,
            #[serde(flatten)]
            value: Content<'a>,
        },
        VDel(Content<'a>),
        KeyNotify {
            stop: bool,
        },
        Scan {
            #[serde(flatten, serialize_with = "json::pattern")]
            pattern: &'a Bytes,
            #[serde(flatten, serialize_with = "json::token")]
            token: &'a Option<Bytes>,
        },
        Other {},
    }
    let members = match request {
        Ok(Request::Set { value, condition, ttl_ms, .. }) => Members::Set {
            condition: *condition,
            ttl_ms: ttl_ms.map(std::num::NonZeroU64::get),
            value: Content::new(value),
        },
        Ok(Request::VDel { value, .. }) => Members::VDel(Content::new(value)),
        Ok(Request::KeyNotify { stop, .. }) => Members::KeyNotify { stop: *stop },
        Ok(Request::Scan { pattern, token }) => Members::Scan { pattern, token },
        Ok(Request::Get { .. } | Request::Del { .. }) => Members::Other {},
        Err(error) => return malformed(error, serializer),
    };
    members.serialize(serializer)
}

/// Writes what a reply is.
pub fn reply<S: Serializer>(reply: &Result<Reply, Malformed>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Members<'a> {
        reply: &'static str,
        #[serde(flatten)]
        details: Details<'a>,
    }
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Details<'a> {
        Value(Content<'a>),
        Count { count: u64 },
        Keys { count: usize, more: bool },
        Refusal { refused: &'a str },
        None {},
    }
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => return malformed(error, serializer),
    };
    let details = match reply {
        Reply::Value(value) => Details::Value(Content::new(value)),
        Reply::Count(count) => Details::Count { count: *count },
        Reply::Keys { keys, token } => Details::Keys { count: keys.len(), more: token.is_some() },
        Reply::Error(refusal) => Details::Refusal { refused: refusal.text() },
        Reply::Done | Reply::NotApplied | Reply::Absent => Details::None {},
    };
    Members { reply: reply_name(reply), details }.serialize(serializer)
}

/// Writes the change of a notification.
pub fn notification<S: Serializer>(
    change: &Result<Notification, Malformed>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Members<'a> {
        change: &'static str,
        #[serde(flatten)]
        value: Option<Content<'a>>,
    }
    let (change, value) = match change {
        Ok(Notification::Set(value)) => ("set", value.as_ref()),
        Ok(Notification::Delete) => ("delete", None),
        Err(error) => return malformed(error, serializer),
    };
    Members { change, value: value.map(Content::new) }.serialize(serializer)
}

/// Writes correlation data in hexadecimal; with `skip_serializing_if`.
pub fn correlation<S: Serializer>(data: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
    data.as_ref().map(|data| to_hex(data)).serialize(serializer)
}
