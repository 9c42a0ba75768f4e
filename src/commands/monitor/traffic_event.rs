//! What a monitor sees, as data.

use std::time::Duration;

use bytes::Bytes;

use crate::protocol::{Key, Notification, Reply, Request};

/// One thing that a monitor tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrafficEvent {
    /// The subscriptions are in force.
    Listening {
        /// Where the broker is.
        broker: String,
        /// The topic filters.
        filters: Vec<String>,
        /// A wider filter, and why the broker refused it, if it did.
        refused: Option<String>,
    },
    /// A request to the store.
    Request(DecodedRequest),
    /// A reply of the store.
    Reply(DecodedReply),
    /// A request whose reply did not come.
    Unanswered {
        /// What was summary.
        summary: RequestSummary,
        /// How long the reply was waited for.
        waited: Duration,
    },
    /// A change of a key, told to a client that watches it.
    Notification(DecodedNotification),
    /// The connection is lost; another one is on its way.
    Lost {
        /// Milliseconds since the Unix epoch: until then everything was seen.
        since_ms: u64,
        /// Why.
        cause: String,
    },
    /// The connection is back: what went over the broker between the two times was not seen.
    Gap {
        /// Milliseconds since the Unix epoch: until then everything was seen.
        since_ms: u64,
        /// Milliseconds since the Unix epoch: from here on everything is seen.
        until_ms: u64,
    },
}

/// Who summary what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSummary {
    /// The client, as the request or its response topic says: only the broker knows for sure.
    pub client: Option<Bytes>,
    /// The command; none for what makes no sense.
    pub verb: Option<&'static str>,
    /// The key, where the command has one.
    pub key: Option<Key>,
}

/// How request and reply find each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Correlation {
    /// The request's response topic, which is the reply's topic.
    pub response_topic: Option<String>,
    /// The correlation data of both.
    pub data: Option<Bytes>,
}

/// A request, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedRequest {
    /// Who summary what.
    pub summary: RequestSummary,
    /// The request, or what is wrong with its payload.
    pub request: Result<Request, String>,
    /// The payload as sent.
    pub payload: Bytes,
    /// The client's clock, `__ts`, as sent.
    pub timestamp: Option<String>,
    /// The fencing token, as sent.
    pub fence: Option<String>,
    /// Whether the store shall keep the value on disk.
    pub persist: bool,
    /// Seconds after which nobody waits for the reply.
    pub expiry_s: Option<u32>,
    /// Where the reply goes.
    pub correlation: Correlation,
    /// Why the store cannot answer it, if so; or why its answer cannot be seen.
    pub trouble: Option<&'static str>,
}

/// A reply, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedReply {
    /// Who summary what; of a reply whose request was not seen no more than the client, if its topic tells.
    pub summary: RequestSummary,
    /// From seeing the request to seeing the reply; none if the request was not seen.
    pub elapsed: Option<Duration>,
    /// The reply, or what is wrong with its payload.
    pub reply: Result<Reply, String>,
    /// The payload as sent.
    pub payload: Bytes,
    /// The version, as sent.
    pub version: Option<String>,
    /// What it answers.
    pub correlation: Correlation,
}

/// A notification, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedNotification {
    /// Who is told.
    pub client: Bytes,
    /// The key that has changed.
    pub key: Key,
    /// The change, or what is wrong with the payload.
    pub change: Result<Notification, String>,
    /// The payload as sent.
    pub payload: Bytes,
    /// The version, as sent.
    pub version: Option<String>,
}

impl TrafficEvent {
    /// The client that it is about, as far as can be told.
    #[must_use]
    pub fn client(&self) -> Option<&[u8]> {
        match self {
            Self::Notification(seen) => Some(&seen.client),
            _ => self.summary()?.client.as_deref(),
        }
    }

    /// The key that it is about, if any.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Notification(seen) => Some(&seen.key),
            _ => self.summary()?.key.as_ref(),
        }
    }

    fn summary(&self) -> Option<&RequestSummary> {
        match self {
            Self::Request(seen) => Some(&seen.summary),
            Self::Reply(seen) => Some(&seen.summary),
            Self::Unanswered { summary, .. } => Some(summary),
            _ => None,
        }
    }
}
