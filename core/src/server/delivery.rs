//! What the service sends: the response to a request, and after it the notifications of its change.

use std::borrow::Borrow;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::metrics::{Metrics, Verb};
use crate::broker::Broker;
use crate::clock;
use crate::protocol::message::{
    CONTENT_TYPE, PROTOCOL_VERSION, PROTOCOL_VERSION_1, Qos, STATUS, STATUS_OK, TIMESTAMP,
};
use crate::protocol::reply::Outcome;
use crate::protocol::{
    ConnectionId, Details, ErrorReply, Message, Notification, Reply, UserProperties, topic,
};
use crate::store::{Change, Version};

/// Room for the user properties of a response, so that they are allocated once.
const USER_PROPERTIES_BYTES: usize = 80;

/// The user properties of all responses and of all notifications, before the version: they are encoded once.
static RESPONSE_PROPERTIES: LazyLock<UserProperties> =
    LazyLock::new(|| [(STATUS, STATUS_OK), (PROTOCOL_VERSION, PROTOCOL_VERSION_1)].into_iter().collect());
static NOTIFICATION_PROPERTIES: LazyLock<UserProperties> =
    LazyLock::new(|| [(PROTOCOL_VERSION, PROTOCOL_VERSION_1)].into_iter().collect());

/// Publishes the service's messages. It is called under the service's lock and must not call the service.
pub trait Publisher: Send + Sync {
    /// Publishes to all subscribers.
    fn publish(&self, message: Message, now: Instant);

    /// Publishes to one connection of a client, exactly once, whether or not it has subscribed (protocol §3).
    fn push(&self, to: ConnectionId, client_id: &str, message: Message);

    /// Delivers to one connection and to no other one, whatever these subscribe to.
    fn deliver(&self, to: ConnectionId, message: Message);

    /// Whether any client subscribes to the requests.
    fn has_monitors(&self) -> bool;

    /// Publishes a copy of a request to its subscribers.
    fn publish_monitor_copy(&self, from: ConnectionId, request: Message);

    /// Counts a request that was answered.
    fn count_request(&self, _verb: Verb, _outcome: Outcome, _took: Duration) {}

    /// Counts a commit.
    fn count_commit(&self, _took: Duration) {}
}

/// The broker as publisher, with the metrics of the requests. Both are borrowed in the task of a connection, and owned
/// by the background tasks.
#[derive(Clone, Debug)]
pub struct BrokerPublisher<B, M> {
    pub broker: B,
    pub metrics: M,
}

impl<B, M> Publisher for BrokerPublisher<B, M>
where
    B: Borrow<Broker> + Send + Sync,
    M: Borrow<Metrics> + Send + Sync,
{
    fn publish(&self, message: Message, now: Instant) {
        self.broker.borrow().publish_at(None, message, now);
    }

    fn push(&self, to: ConnectionId, client_id: &str, message: Message) {
        self.broker.borrow().push(to, client_id, message);
    }

    fn deliver(&self, to: ConnectionId, message: Message) {
        self.broker.borrow().deliver(to, message);
    }

    fn has_monitors(&self) -> bool {
        self.broker.borrow().has_monitors()
    }

    fn publish_monitor_copy(&self, from: ConnectionId, request: Message) {
        self.broker.borrow().publish_monitor_copy(from, request);
    }

    fn count_request(&self, verb: Verb, outcome: Outcome, took: Duration) {
        self.metrics.borrow().count_request(verb, outcome, took);
    }

    fn count_commit(&self, took: Duration) {
        self.metrics.borrow().commits.observe(took);
    }
}

/// Where the response to a request goes, and what is counted with it.
#[derive(Debug)]
pub struct ReplyTo {
    pub response_topic: String,
    /// The correlation data, which the response echoes byte for byte.
    pub correlation: Bytes,
    pub verb: Verb,
    /// When the request was received.
    pub received: Instant,
    /// User properties that the request has asked for; `None`: it has asked for none.
    pub details: Option<UserProperties>,
}

/// An encoded response: payload and `__ts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    payload: Bytes,
    version: Option<Version>,
    outcome: Outcome,
}

impl Response {
    /// Encodes a reply and its version (protocol §2).
    #[must_use]
    pub fn new(reply: &Reply, version: Option<Version>) -> Self {
        Self::with_payload(None, reply, version)
    }

    /// Returns the response with a payload that was encoded before, if there is one.
    #[must_use]
    pub fn with_payload(payload: Option<Bytes>, reply: &Reply, version: Option<Version>) -> Self {
        Self { payload: payload.unwrap_or_else(|| reply.encode()), version, outcome: reply.outcome() }
    }

    #[must_use]
    pub fn error(error: ErrorReply) -> Self {
        Self::new(&Reply::Error(error), None)
    }

    /// Returns a response that another instance has encoded.
    #[must_use]
    pub fn restored(payload: &[u8], version: Option<Version>, outcome: Outcome) -> Self {
        // A slice of what was received would keep all of that in memory.
        Self { payload: Bytes::copy_from_slice(payload), version, outcome }
    }

    #[must_use]
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Returns the length of the payload in bytes.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.payload.len()
    }
}

/// A response, followed by the notifications of a change. Both are sent together and in this order (protocol §11).
#[derive(Debug, Default)]
pub struct Outbound {
    pub response: Option<(ReplyTo, Response)>,
    pub change: Option<Change>,
}

impl Outbound {
    pub fn send(self, publisher: &dyn Publisher) {
        if let Some((reply_to, response)) = self.response {
            let (verb, outcome, received) = (reply_to.verb, response.outcome, reply_to.received);
            // Read once: for the time that the request took, and for the response.
            let now = clock::monotonic();
            publisher.count_request(verb, outcome, now.saturating_duration_since(received));
            publisher.publish(response_message(reply_to, response), now);
        }
        if let Some(change) = self.change {
            notify(change, publisher);
        }
    }
}

impl From<(ReplyTo, Response)> for Outbound {
    fn from(response: (ReplyTo, Response)) -> Self {
        Self { response: Some(response), change: None }
    }
}

impl From<Change> for Outbound {
    fn from(change: Change) -> Self {
        Self { response: None, change: Some(change) }
    }
}

fn response_message(reply_to: ReplyTo, response: Response) -> Message {
    let mut user_properties = user_properties(&RESPONSE_PROPERTIES, response.version);
    if let Some(details) = &reply_to.details {
        user_properties.extend(details);
    }
    Message {
        topic: reply_to.response_topic.into(),
        payload: response.payload,
        qos: Qos::AtLeastOnce,
        correlation: Some(reply_to.correlation),
        content_type: Some(CONTENT_TYPE.into()),
        user_properties,
        ..Message::default()
    }
}

fn notify(change: Change, publisher: &dyn Publisher) {
    let Change { key, version, content, watchers, notification, ttl_ms, .. } = change;
    if watchers.is_empty() {
        return;
    }
    let has_details = watchers.iter().any(|watcher| watcher.details);
    let details = content.as_ref().filter(|_| has_details);
    let details = details.map(|stored| Details { ttl_ms, fence: stored.fence.clone() }.properties());
    let payload = notification.unwrap_or_else(|| {
        content.map_or(Notification::Delete, |stored| Notification::Set(Some(stored.value))).encode()
    });
    for watcher in watchers {
        // The store rejects a watch of a key that is too long for a topic, so there always is one.
        let Some(topic) = topic::notify(&watcher.client_id, &key) else {
            continue;
        };
        let mut user_properties = user_properties(&NOTIFICATION_PROPERTIES, Some(version));
        if let Some(details) = details.as_ref().filter(|_| watcher.details) {
            user_properties.extend(details);
        }
        let message = Message {
            topic: topic.into(),
            payload: payload.clone(),
            qos: Qos::AtLeastOnce,
            content_type: Some(CONTENT_TYPE.into()),
            user_properties,
            ..Message::default()
        };
        publisher.push(watcher.connection, &watcher.client_id, message);
    }
}

/// Returns these properties and, after them, the version.
fn user_properties(first: &UserProperties, version: Option<Version>) -> UserProperties {
    let mut properties = UserProperties::with_capacity(USER_PROPERTIES_BYTES);
    properties.extend(first);
    if let Some(version) = version {
        properties.push_timestamp(TIMESTAMP, &version.into());
    }
    properties
}
