//! Encoded requests and their responses.

use std::sync::Arc;

use bytes::Bytes;

use super::denial::Denial;
use super::error::{Error, Outcome};
use crate::protocol::request::encode_bulk_array;
use crate::protocol::{Details, Reply, Request, Timestamp};

/// Whether a request may change the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It may be sent twice.
    Read,
    /// It must not be sent twice; without a response its outcome is unknown.
    Write,
}

impl Access {
    /// Returns the access of a command by its first word. Unknown commands count as writes.
    #[must_use]
    pub fn of(verb: &[u8]) -> Self {
        match verb {
            b"GET" | b"SCAN" | b"KEYNOTIFY" => Self::Read,
            _ => Self::Write,
        }
    }

    /// Returns the outcome of a request that was sent and got no response.
    #[must_use]
    pub fn outcome_when_unanswered(self) -> Outcome {
        match self {
            Self::Read => Outcome::Unchanged,
            Self::Write => Outcome::Unknown,
        }
    }
}

/// An encoded request.
#[derive(Clone, Debug)]
pub struct RawRequest {
    pub payload: Bytes,
    pub access: Access,
    /// None: those of most requests, which have no options.
    pub properties: Option<Arc<RequestProperties>>,
}

impl RawRequest {
    #[must_use]
    pub fn new(request: &Request, properties: RequestProperties) -> Self {
        let access = Access::of(request.verb().as_bytes());
        Self { payload: request.encode(), access, properties: properties.shared() }
    }

    /// Asks for [`Response::details`] and [`Response::is_pending`].
    pub fn ask_for_details(&mut self) {
        let properties = self.properties.as_deref().cloned().unwrap_or_default();
        self.properties = RequestProperties { details: true, ..properties }.shared();
    }

    /// Returns a request of any words, also unknown ones.
    #[must_use]
    pub fn of_words(words: &[impl AsRef<[u8]>], properties: RequestProperties) -> Self {
        let access = Access::of(words.first().map_or(b"", |verb| verb.as_ref()));
        Self { payload: encode_bulk_array(words), access, properties: properties.shared() }
    }
}

/// The MQTT properties of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestProperties {
    /// The fencing token (protocol §5).
    pub fence: Option<Timestamp>,
    /// Store the value on disk (protocol §7).
    pub persist: bool,
    /// Replaces the timestamp of the session's clock (protocol §1). The session's clock then ignores the response's
    /// version, and any version is accepted, however far it is ahead.
    pub timestamp: Option<Timestamp>,
    /// Ask for [`Response::details`].
    pub details: bool,
    /// Ask for [`Response::is_prefix`].
    pub prefix: bool,
    /// Replaces the topic of the state store's requests.
    pub topic: Option<&'static str>,
}

impl RequestProperties {
    /// Returns the properties of a [`RawRequest`].
    #[must_use]
    pub fn shared(self) -> Option<Arc<Self>> {
        let Self { fence, persist, timestamp, details, prefix, topic } = &self;
        let has_flag = *persist || *details || *prefix;
        let has_options = has_flag || fence.is_some() || timestamp.is_some() || topic.is_some();
        has_options.then(|| Arc::new(self))
    }
}

/// A response, not decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub payload: Bytes,
    /// The version in the response's properties.
    pub version: Option<Timestamp>,
    /// Whether it has a status property. Microsoft's clients reject responses without one (protocol §2).
    pub has_status: bool,
    /// What the reply denies, if it reports that no rule allows the request.
    pub denial: Option<Box<Denial>>,
    /// None if the request has not asked for them, the key does not exist, or the store does not have this extension.
    pub details: Option<Box<Details>>,
    /// Whether a SCAN leaves out keys that this client may not read; a store of mqkv reports it.
    pub is_limited: bool,
    /// Whether the change of a write waits at a leaf of an exchange, which is not linked with its root; a store of mqkv reports it to
    /// requests that ask for [`Response::details`].
    pub is_pending: bool,
    /// Whether a KEYNOTIFY is about all keys with a prefix; a store of mqkv reports it.
    pub is_prefix: bool,
}

/// Decodes the response to a request; `verb` is its first word.
///
/// # Errors
/// [`Error::Denied`] or [`Error::Refused`] if the reply is an error of the store, [`Error::MalformedReply`].
pub fn decode_response(verb: &str, response: Response) -> Result<(Reply, Option<Timestamp>), Error> {
    match Reply::decode(&response.payload) {
        Ok(Reply::Error(error)) => Err(response.denial.map_or(Error::Refused(error), Error::Denied)),
        Ok(reply) => Ok((reply, response.version)),
        Err(error) => {
            let outcome = Access::of(verb.as_bytes()).outcome_when_unanswered();
            Err(Error::MalformedReply { cause: error.to_string(), outcome })
        }
    }
}

/// Returns the error for a reply of the wrong type for the request.
#[must_use]
pub fn unexpected_reply(verb: &str, reply: &Reply) -> Error {
    let what = match reply {
        Reply::Done => "+OK",
        Reply::Value(_) => "a value",
        Reply::Count(_) => "a count",
        Reply::NotApplied => "-1",
        Reply::Absent => "nothing",
        Reply::Keys { .. } => "a page of keys",
        Reply::Error(error) => return Error::Refused(error.clone()),
    };
    let outcome = Access::of(verb.as_bytes()).outcome_when_unanswered();
    Error::MalformedReply { cause: format!("{what} is not a reply to {verb}"), outcome }
}
