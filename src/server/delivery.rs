//! What the service sends: the answer to a request, and after it what the watchers are told.

use std::borrow::Borrow;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::clock;
use crate::protocol::message::{
    CONTENT_TYPE, PROTOCOL_VERSION, PROTOCOL_VERSION_1, PropertyText, Qos, STATUS, STATUS_OK, TIMESTAMP,
};
use crate::protocol::{ConnectionId, ErrorReply, Message, Notification, Reply, Timestamp, topic};
use crate::store::{Change, Version};

use super::operations::metrics::{Metrics, Outcome, Verb};
use crate::broker::Broker;

/// Where the service's messages go. Called while the service is locked: it must not come back from there.
pub trait Outlet: Send + Sync {
    /// Delivers to whoever subscribes.
    fn publish(&self, message: Message);

    /// Delivers to one connection of a client exactly once, subscribed or not.
    fn push(&self, to: ConnectionId, client_id: &str, message: Message);

    /// Whether anybody subscribes to the requests.
    fn is_overheard(&self) -> bool;

    /// Delivers a copy of a request to whoever subscribes to the requests.
    fn overhear(&self, from: ConnectionId, request: Message);

    /// Counts a request that was answered.
    fn count_request(&self, _verb: Verb, _outcome: Outcome, _took: Duration) {}

    /// Counts a commit to the disk.
    fn count_commit(&self, _took: Duration) {}
}

/// The broker as an outlet, with the metrics of the requests. Both are borrowed in the task of a connection, and owned
/// by a task of the service.
#[derive(Clone, Debug)]
pub struct BrokerOutlet<B, M> {
    pub broker: B,
    pub metrics: M,
}

impl<B, M> Outlet for BrokerOutlet<B, M>
where
    B: Borrow<Broker> + Send + Sync,
    M: Borrow<Metrics> + Send + Sync,
{
    fn publish(&self, message: Message) {
        self.broker.borrow().publish(None, message);
    }

    fn push(&self, to: ConnectionId, client_id: &str, message: Message) {
        self.broker.borrow().push(to, client_id, message);
    }

    fn is_overheard(&self) -> bool {
        self.broker.borrow().has_monitors()
    }

    fn overhear(&self, from: ConnectionId, request: Message) {
        self.broker.borrow().publish_monitor_copy(from, request);
    }

    fn count_request(&self, verb: Verb, outcome: Outcome, took: Duration) {
        self.metrics.borrow().count_request(verb, outcome, took);
    }

    fn count_commit(&self, took: Duration) {
        self.metrics.borrow().commits.observe(took);
    }
}

/// Where an answer goes.
#[derive(Debug)]
pub struct Asker {
    /// The request's response topic.
    pub response_topic: String,
    /// Its correlation data.
    pub correlation: Bytes,
    /// What was asked for.
    pub verb: Verb,
    /// When it was taken out of its connection's input.
    pub since: Instant,
}

/// An answer, ready to be sent: payload and `__ts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    payload: Bytes,
    version: Option<Version>,
    outcome: Outcome,
}

impl Answer {
    /// How many bytes the payload has.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.payload.len()
    }

    /// The answer for a reply and its version, if it has one (protocol §2).
    #[must_use]
    pub fn new(reply: &Reply, version: Option<Version>) -> Self {
        Self { payload: reply.encode(), version, outcome: outcome(reply) }
    }

    /// The answer for a error.
    #[must_use]
    pub fn error(error: ErrorReply) -> Self {
        Self::new(&Reply::Error(error), None)
    }
}

/// What goes out together and in this order: an answer, then the notifications of what was done (protocol §3).
#[derive(Debug, Default)]
pub struct Delivery {
    /// The answer, and who gets it.
    pub answer: Option<(Asker, Answer)>,
    /// What was done.
    pub change: Option<Change>,
}

impl Delivery {
    /// Hands everything to the broker.
    pub fn send(self, outlet: &dyn Outlet) {
        if let Some((asker, answer)) = self.answer {
            let (verb, outcome, since) = (asker.verb, answer.outcome, asker.since);
            outlet.publish(response(asker, answer));
            outlet.count_request(verb, outcome, clock::monotonic().saturating_duration_since(since));
        }
        if let Some(change) = self.change {
            notify(change, outlet);
        }
    }
}

impl From<(Asker, Answer)> for Delivery {
    fn from(answer: (Asker, Answer)) -> Self {
        Self { answer: Some(answer), change: None }
    }
}

impl From<Change> for Delivery {
    fn from(change: Change) -> Self {
        Self { answer: None, change: Some(change) }
    }
}

fn outcome(reply: &Reply) -> Outcome {
    match reply {
        Reply::Error(_) => Outcome::Refused,
        Reply::NotApplied | Reply::Absent | Reply::Count(0) => Outcome::No,
        Reply::Done | Reply::Value(_) | Reply::Count(_) | Reply::Keys { .. } => Outcome::Ok,
    }
}

fn response(asker: Asker, answer: Answer) -> Message {
    Message {
        topic: asker.response_topic,
        payload: answer.payload,
        qos: Qos::AtLeastOnce,
        correlation: Some(asker.correlation),
        content_type: Some(CONTENT_TYPE.into()),
        user_properties: properties(Some((STATUS, STATUS_OK)), answer.version),
        ..Message::default()
    }
}

fn notify(change: Change, outlet: &dyn Outlet) {
    let Change { key, version, content, watchers, .. } = change;
    if watchers.is_empty() {
        return;
    }
    let notification = content.map_or(Notification::Delete, |content| Notification::Set(Some(content.value)));
    let payload = notification.encode();
    for watcher in watchers {
        // The store lets nobody watch a key for which there is no topic.
        let Some(topic) = topic::notify(&watcher.client_id, &key) else {
            continue;
        };
        let message = Message {
            topic,
            payload: payload.clone(),
            qos: Qos::AtLeastOnce,
            content_type: Some(CONTENT_TYPE.into()),
            user_properties: properties(None, Some(version)),
            ..Message::default()
        };
        outlet.push(watcher.connection, &watcher.client_id, message);
    }
}

fn properties(
    first: Option<(&'static str, &'static str)>,
    version: Option<Version>,
) -> Vec<(PropertyText, PropertyText)> {
    let mut properties = Vec::with_capacity(3);
    let known = first.into_iter().chain([(PROTOCOL_VERSION, PROTOCOL_VERSION_1)]);
    properties.extend(known.map(|(name, value)| (name.into(), value.into())));
    properties.extend(version.map(|version| (TIMESTAMP.into(), Timestamp::from(version).to_text().into())));
    properties
}
