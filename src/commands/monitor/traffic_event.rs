//! The events of `monitor`, as data (pure).

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::members::{self, Malformed};
use crate::protocol::{Key, Notification, Reply, Request};
use crate::render::json;

/// An event of a monitor. In JSON it is all that follows its name, its time and its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum TrafficEvent {
    /// The subscriptions are acknowledged.
    Listening {
        /// The broker's address.
        broker: String,
        filters: Vec<String>,
        /// The broker's reason for rejecting a wider filter, if it did.
        #[serde(skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// A request to the store.
    Request(DecodedRequest),
    /// A reply of the store.
    Reply(DecodedReply),
    /// A request whose reply did not come.
    Unanswered {
        #[serde(flatten)]
        summary: RequestSummary,
        /// How long the reply was awaited.
        #[serde(rename = "ms", serialize_with = "json::ms")]
        waited: Duration,
    },
    /// A notification to a client that watches a key.
    Notification(DecodedNotification),
    /// The connection is lost and will be restored.
    Lost {
        /// The end of the complete record, in milliseconds since the Unix epoch.
        #[serde(rename = "since", serialize_with = "json::time")]
        since_ms: u64,
        cause: String,
    },
    /// The connection is restored: messages between the two times are missing.
    #[serde(serialize_with = "json::gap")]
    Gap {
        /// The end of the complete record, in milliseconds since the Unix epoch.
        since_ms: u64,
        /// The beginning of the complete record, in milliseconds since the Unix epoch.
        until_ms: u64,
    },
}

/// The client, the command and the key of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestSummary {
    /// The client id by the request or its response topic. Only the broker knows it for certain.
    #[serde(flatten, serialize_with = "json::client")]
    pub client: Option<Bytes>,
    /// The command; None if the payload is malformed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<&'static str>,
    #[serde(flatten, serialize_with = "json::key")]
    pub key: Option<Key>,
}

/// The properties by which a reply is matched with its request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Correlation {
    /// The response topic of the request, which is the topic of the reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_topic: Option<String>,
    /// The correlation data of both.
    #[serde(
        rename = "correlation",
        skip_serializing_if = "Option::is_none",
        serialize_with = "members::correlation"
    )]
    pub data: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DecodedRequest {
    #[serde(flatten)]
    pub summary: RequestSummary,
    #[serde(flatten, serialize_with = "members::request")]
    pub request: Result<Request, Malformed>,
    /// Whether the store is asked to persist the value.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub persist: bool,
    /// The fencing token, as sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<String>,
    /// The client's clock, `__ts`, as sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// The message expiry in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry_s: Option<u32>,
    #[serde(flatten)]
    pub correlation: Correlation,
    /// Why the store cannot answer the request, or why the answer cannot be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DecodedReply {
    /// The summary of the request. If the request was not seen: only the client, if the topic has it.
    #[serde(flatten)]
    pub summary: RequestSummary,
    #[serde(flatten, serialize_with = "members::reply")]
    pub reply: Result<Reply, Malformed>,
    /// The version, as sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The time since the request; None if the request was not seen.
    #[serde(rename = "ms", skip_serializing_if = "Option::is_none", serialize_with = "json::ms")]
    pub elapsed: Option<Duration>,
    #[serde(flatten)]
    pub correlation: Correlation,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DecodedNotification {
    /// The client to which it is sent.
    #[serde(flatten, serialize_with = "json::client")]
    pub client: Bytes,
    #[serde(flatten, serialize_with = "json::key")]
    pub key: Key,
    #[serde(flatten, serialize_with = "members::notification")]
    pub change: Result<Notification, Malformed>,
    /// The version, as sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl TrafficEvent {
    /// Returns the name of the event in JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Listening { .. } => "listening",
            Self::Request(_) => "request",
            Self::Reply(_) => "reply",
            Self::Unanswered { .. } => "no-reply",
            Self::Notification(_) => "notification",
            Self::Gap { .. } => "gap",
            Self::Lost { .. } => "lost",
        }
    }

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
