//! Messages that wait to be published at an external broker.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::sync::Notify;

use crate::protocol::reply::Outcome;
use crate::protocol::topic::Topic;
use crate::protocol::{ConnectionId, Key, Message};
use crate::server::delivery::Publisher;
use crate::server::event::EventSink;
use crate::server::event::external::ExternalEvent;
use crate::server::metrics::{Metrics, Verb};

/// Above these, no requests are read, because their responses would wait, too.
const BYTES_ENOUGH: usize = 8 * 1024 * 1024;
const MESSAGES_ENOUGH: usize = 16_384;
/// Above these, notifications are dropped: keys that expire notify also while no requests are read.
const BYTES_MAX: usize = 64 * 1024 * 1024;
const MESSAGES_MAX: usize = 131_072;
/// What a message takes beside its topic and payload.
const MESSAGE_COST_BYTES: usize = 512;

/// The queue between the service and the connection with the broker.
pub struct Outbox {
    queue: Mutex<Queue>,
    changed: Notify,
    events: EventSink,
}

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<(Message, u64)>,
    bytes: usize,
    /// Number of the last request that was received.
    last_request: u64,
    last_tag: u64,
    /// The recipients of notifications without a PUBACK, by tag.
    notified: HashMap<u64, Recipient>,
}

/// The recipient of a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipient {
    pub client_id: String,
    /// The key that has changed.
    pub key: Option<Key>,
    /// Number of the last request of any client before the notification.
    pub last_request: u64,
}

impl Outbox {
    pub fn new(events: EventSink) -> Self {
        Self { queue: Mutex::default(), changed: Notify::new(), events }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, message: Message, recipient: Option<&str>) {
        let mut queue = self.queue();
        let cost = cost(&message);
        let is_full = queue.messages.len() >= MESSAGES_MAX || queue.bytes.saturating_add(cost) > BYTES_MAX;
        if let Some(client_id) = recipient.filter(|_| is_full) {
            drop(queue);
            return (self.events)(ExternalEvent::Dropped { client_id: client_id.into() }.into());
        }
        let mut tag = 0;
        if let Some(client_id) = recipient {
            queue.last_tag = queue.last_tag.wrapping_add(1).max(1);
            tag = queue.last_tag;
            let key = match Topic::parse(&message.topic) {
                Some(Topic::Notify { key, .. }) => Some(key),
                _ => None,
            };
            let last_request = queue.last_request;
            let recipient = Recipient { client_id: client_id.to_owned(), key, last_request };
            queue.notified.insert(tag, recipient);
        }
        queue.bytes = queue.bytes.saturating_add(cost);
        queue.messages.push_back((message, tag));
        drop(queue);
        self.changed.notify_one();
    }

    /// Returns the next message, with a tag that is 0 unless it is a notification.
    pub fn poll(&self) -> Option<(Message, u64)> {
        let mut queue = self.queue();
        let (message, tag) = queue.messages.pop_front()?;
        queue.bytes = queue.bytes.saturating_sub(cost(&message));
        Some((message, tag))
    }

    /// Whether the response to one more request may wait.
    pub fn has_room(&self) -> bool {
        let queue = self.queue();
        queue.messages.len() < MESSAGES_ENOUGH && queue.bytes < BYTES_ENOUGH
    }

    /// Notes the number of the last request that was received.
    pub fn note_request(&self, number: u64) {
        self.queue().last_request = number;
    }

    /// Returns the recipient of a notification that has its PUBACK.
    pub fn take_recipient(&self, tag: u64) -> Option<Recipient> {
        self.queue().notified.remove(&tag)
    }

    pub fn changed(&self) -> &Notify {
        &self.changed
    }
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Outbox").finish_non_exhaustive()
    }
}

fn cost(message: &Message) -> usize {
    let correlation = message.correlation.as_ref().map_or(0, Bytes::len);
    [message.topic.len(), message.payload.len(), correlation]
        .into_iter()
        .fold(MESSAGE_COST_BYTES, usize::saturating_add)
}

/// Publishes by way of the outbox.
#[derive(Clone, Debug)]
pub struct ExternalPublisher {
    outbox: Arc<Outbox>,
    metrics: Arc<Metrics>,
}

impl ExternalPublisher {
    pub fn new(outbox: Arc<Outbox>, metrics: Arc<Metrics>) -> Self {
        Self { outbox, metrics }
    }
}

impl Publisher for ExternalPublisher {
    fn publish(&self, message: Message, _: Instant) {
        self.outbox.push(message, None);
    }

    fn push(&self, _: ConnectionId, client_id: &str, message: Message) {
        self.outbox.push(message, Some(client_id));
    }

    fn deliver(&self, _: ConnectionId, message: Message) {
        self.outbox.push(message, None);
    }

    /// Monitors receive the requests from the broker itself.
    fn has_monitors(&self) -> bool {
        false
    }

    fn publish_monitor_copy(&self, _: ConnectionId, _: Message) {}

    fn count_request(&self, verb: Verb, outcome: Outcome, took: Duration) {
        self.metrics.count_request(verb, outcome, took);
    }

    fn count_commit(&self, took: Duration) {
        self.metrics.commits.observe(took);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn message(bytes: usize) -> Message {
        Message { topic: "t".into(), payload: vec![0; bytes].into(), ..Message::default() }
    }

    #[test]
    fn the_recipient_of_a_notification_is_known_until_its_acknowledgement() {
        let outbox = Outbox::new(Arc::new(|_| {}));
        outbox.note_request(7);
        outbox.push(message(1), None);
        let key = Key::new("k").unwrap();
        let topic = crate::protocol::topic::notify("a", &key).unwrap();
        outbox.push(Message { topic: topic.into(), ..message(1) }, Some("a"));
        assert_eq!(outbox.poll().unwrap().1, 0);
        let (_, tag) = outbox.poll().unwrap();
        assert!(tag > 0 && outbox.poll().is_none());
        outbox.note_request(8);
        assert_eq!(
            outbox.take_recipient(tag),
            Some(Recipient { client_id: "a".to_owned(), key: Some(key), last_request: 7 })
        );
        assert_eq!(outbox.take_recipient(tag), None);
    }

    #[test]
    fn without_room_no_request_is_read_and_later_notifications_are_dropped_and_reported() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&dropped);
        let outbox = Outbox::new(Arc::new(move |_| _ = count.fetch_add(1, Ordering::Relaxed)));
        assert!(outbox.has_room());
        for _ in 0..BYTES_MAX / (1024 * 1024) {
            outbox.push(message(1024 * 1024), Some("a"));
        }
        assert!(!outbox.has_room() && dropped.load(Ordering::Relaxed) > 0);
        outbox.push(message(1024 * 1024), None);
        let polled = std::iter::from_fn(|| outbox.poll()).map(|(_, tag)| tag);
        assert_eq!(polled.filter(|tag| *tag == 0).count(), 1, "a response is not dropped");
        assert!(outbox.has_room() && outbox.queue().bytes == 0);
    }
}
