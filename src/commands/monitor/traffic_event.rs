//! The events of `monitor`, as data (pure).

use std::time::Duration;

use bytes::Bytes;

use crate::protocol::{Key, Notification, Reply, Request};

/// An event of a monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrafficEvent {
    /// The subscriptions are acknowledged.
    Listening {
        /// The broker's address.
        broker: String,
        filters: Vec<String>,
        /// The broker's reason for rejecting a wider filter, if it did.
        refused: Option<String>,
    },
    /// A request to the store.
    Request(DecodedRequest),
    /// A reply of the store.
    Reply(DecodedReply),
    /// A request whose reply did not come.
    Unanswered {
        summary: RequestSummary,
        /// How long the reply was awaited.
        waited: Duration,
    },
    /// A notification to a client that watches a key.
    Notification(DecodedNotification),
    /// The connection is lost and will be restored.
    Lost {
        /// The end of the complete record, in milliseconds since the Unix epoch.
        since_ms: u64,
        cause: String,
    },
    /// The connection is restored: messages between the two times are missing.
    Gap {
        /// The end of the complete record, in milliseconds since the Unix epoch.
        since_ms: u64,
        /// The beginning of the complete record, in milliseconds since the Unix epoch.
        until_ms: u64,
    },
}

/// The client, the command and the key of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSummary {
    /// The client id by the request or its response topic. Only the broker knows it for certain.
    pub client: Option<Bytes>,
    /// The command; None if the payload is malformed.
    pub verb: Option<&'static str>,
    pub key: Option<Key>,
}

/// The properties by which a reply is matched with its request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Correlation {
    /// The response topic of the request, which is the topic of the reply.
    pub response_topic: Option<String>,
    /// The correlation data of both.
    pub data: Option<Bytes>,
}

/// A decoded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedRequest {
    pub summary: RequestSummary,
    /// The request, or the error of its payload.
    pub request: Result<Request, String>,
    pub payload: Bytes,
    /// The client's clock, `__ts`, as sent.
    pub timestamp: Option<String>,
    /// The fencing token, as sent.
    pub fence: Option<String>,
    /// Whether the store is asked to persist the value.
    pub persist: bool,
    /// The message expiry in seconds.
    pub expiry_s: Option<u32>,
    pub correlation: Correlation,
    /// Why the store cannot answer the request, or why the answer cannot be seen.
    pub problem: Option<&'static str>,
}

/// A decoded reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedReply {
    /// The summary of the request. If the request was not seen: only the client, if the topic has it.
    pub summary: RequestSummary,
    /// The time since the request; None if the request was not seen.
    pub elapsed: Option<Duration>,
    /// The reply, or the error of its payload.
    pub reply: Result<Reply, String>,
    pub payload: Bytes,
    /// The version, as sent.
    pub version: Option<String>,
    pub correlation: Correlation,
}

/// A decoded notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedNotification {
    /// The client to which it is sent.
    pub client: Bytes,
    pub key: Key,
    /// The change, or the error of its payload.
    pub change: Result<Notification, String>,
    pub payload: Bytes,
    /// The version, as sent.
    pub version: Option<String>,
}

impl TrafficEvent {
    /// Returns the client id, if it is known.
    #[must_use]
    pub fn client(&self) -> Option<&[u8]> {
        match self {
            Self::Notification(notification) => Some(&notification.client),
            _ => self.summary()?.client.as_deref(),
        }
    }

    /// Returns the key, if the event is about one.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Notification(notification) => Some(&notification.key),
            _ => self.summary()?.key.as_ref(),
        }
    }

    fn summary(&self) -> Option<&RequestSummary> {
        match self {
            Self::Request(request) => Some(&request.summary),
            Self::Reply(reply) => Some(&reply.summary),
            Self::Unanswered { summary, .. } => Some(summary),
            _ => None,
        }
    }
}
