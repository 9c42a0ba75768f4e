//! Requests of the client with their options, and their results.

use std::num::NonZeroU64;

use bytes::Bytes;

use super::error::Error;
use super::request::{Access, RawRequest, RequestProperties, Response, decode_response, unexpected_reply};
use crate::protocol::request::encode_set;
use crate::protocol::{Condition, Details, Key, Reply, Timestamp, Value};

/// A value and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionedValue {
    pub value: Value,
    /// None if the store sent no version.
    pub version: Option<Timestamp>,
    /// As in [`Response::details`].
    pub details: Option<Box<Details>>,
}

impl VersionedValue {
    /// Returns the request for the value of a key.
    #[must_use]
    pub fn request(key: &Key) -> RawRequest {
        RawRequest::of_words(&[b"GET", key.as_bytes()], RequestProperties::default())
    }

    /// Returns the request for the value of a key with its time to live and fencing token, which only a store of mqkv reports.
    #[must_use]
    pub fn detailed_request(key: &Key) -> RawRequest {
        let properties = RequestProperties { details: true, ..RequestProperties::default() };
        RawRequest::of_words(&[b"GET", key.as_bytes()], properties)
    }

    /// Decodes the response to a GET; None if the key does not exist.
    ///
    /// # Errors
    /// As [`decode_response`].
    pub fn decode(mut response: Response) -> Result<Option<Self>, Error> {
        const VERB: &str = "GET";
        let details = response.details.take();
        match decode_response(VERB, response)? {
            (Reply::Value(value), version) => Ok(Some(Self { value, version, details })),
            (Reply::Absent, _) => Ok(None),
            (other, _) => Err(unexpected_reply(VERB, &other)),
        }
    }
}

/// A page of a key listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// May be empty, also in a page that is not the last.
    pub keys: Vec<Key>,
    /// The token of the next page. None: this is the last page.
    pub token: Option<Bytes>,
    /// As in [`Response::is_limited`].
    pub is_limited: bool,
}

/// Options of a SET.
#[derive(Clone, Debug, Default)]
pub struct SetOptions {
    pub condition: Option<Condition>,
    /// Milliseconds until the key expires.
    pub ttl_ms: Option<NonZeroU64>,
    /// The fencing token.
    pub fence: Option<Timestamp>,
    /// Store the value on disk.
    pub persist: bool,
}

impl SetOptions {
    /// Returns the request that sets a key.
    #[must_use]
    pub fn request(self, key: &Key, value: &[u8]) -> RawRequest {
        let Self { condition, ttl_ms, fence, persist } = self;
        let payload = encode_set(key, value, condition, ttl_ms);
        let properties = RequestProperties { fence, persist, ..RequestProperties::default() };
        RawRequest { payload, access: Access::Write, properties: properties.shared() }
    }
}

/// The result of a SET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetOutcome {
    /// Whether the value was set. False: the condition was not met.
    pub applied: bool,
    /// The new version, or the version of the unchanged value.
    pub version: Option<Timestamp>,
}

impl SetOutcome {
    /// Decodes the response to a SET.
    ///
    /// # Errors
    /// As [`decode_response`].
    pub fn decode(response: Response, condition: Option<Condition>) -> Result<Self, Error> {
        const VERB: &str = "SET";
        let (reply, version) = decode_response(VERB, response)?;
        match reply {
            Reply::Done => Ok(Self { applied: true, version }),
            // Stores reply in three ways that the condition was not met (protocol §0 row 1).
            Reply::NotApplied | Reply::Absent | Reply::Count(0) if condition.is_some() => {
                Ok(Self { applied: false, version })
            }
            other => Err(unexpected_reply(VERB, &other)),
        }
    }
}

/// The result of a DEL or VDEL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// The key was deleted; the version is the deleted one.
    Deleted { version: Option<Timestamp> },
    /// The key did not exist.
    Missing,
    /// The key has another value and was not deleted (VDEL only); the version is the current one.
    ValueDiffers { version: Option<Timestamp> },
}

impl DeleteOutcome {
    /// Returns the request that deletes a key; with a value, only if the key has it.
    #[must_use]
    pub fn request(key: &Key, value: Option<&Value>, fence: Option<Timestamp>) -> RawRequest {
        let properties = RequestProperties { fence, ..RequestProperties::default() };
        match value {
            None => RawRequest::of_words(&[b"DEL", key.as_bytes()], properties),
            Some(value) => RawRequest::of_words(&[b"VDEL", key.as_bytes(), value], properties),
        }
    }

    /// Decodes the response to a DEL, or a VDEL if it has a value.
    ///
    /// # Errors
    /// As [`decode_response`].
    pub fn decode(response: Response, has_value: bool) -> Result<Self, Error> {
        let verb = if has_value { "VDEL" } else { "DEL" };
        let (reply, version) = decode_response(verb, response)?;
        match reply {
            Reply::Count(0) => Ok(Self::Missing),
            Reply::Count(1) => Ok(Self::Deleted { version }),
            Reply::NotApplied if has_value => Ok(Self::ValueDiffers { version }),
            other => Err(unexpected_reply(verb, &other)),
        }
    }
}
