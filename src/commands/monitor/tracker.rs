//! Decodes messages, and matches replies with requests (pure).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::commands::monitor::members::Malformed;
use crate::commands::monitor::traffic_event::{
    Correlation, DecodedNotification, DecodedReply, DecodedRequest, RequestSummary, TrafficEvent,
};
use crate::protocol::message::{FENCE, Message, PERSIST, Qos, SOURCE, TIMESTAMP};
use crate::protocol::topic::{self, Topic};
use crate::protocol::{Key, Notification, Reply, Request};

/// The maximum number of pending requests; the oldest are dropped.
const PENDING_MAX: usize = 16_384;
/// The maximum memory of all pending requests, in bytes.
const PENDING_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The memory of a pending request beside its strings, in bytes.
const PENDING_OVERHEAD_BYTES: usize = 256;
/// How long the reply to a request without expiry is awaited; the default timeouts of the SDKs are shorter.
const WAIT: Duration = Duration::from_secs(30);
/// Added to the expiry of a request, because its reply may be in transit.
const GRACE: Duration = Duration::from_secs(1);

/// Requests whose replies are pending.
///
/// Contract: pass each message in order, with the time at which it was received; call [`Tracker::poll_unanswered`] at
/// [`Tracker::poll_timeout`]. The memory is bounded whatever the messages are.
#[derive(Debug)]
pub struct Tracker {
    filters: Vec<String>,
    numbers: HashMap<Correlation, u64>,
    pending: BTreeMap<u64, Pending>,
    deadlines: BTreeSet<(Instant, u64)>,
    bytes: usize,
    next: u64,
}

#[derive(Debug)]
struct Pending {
    summary: RequestSummary,
    correlation: Correlation,
    received: Instant,
    deadline: Instant,
    /// The number of deliveries, each of which gets a reply: QoS 1 may deliver a request more than once.
    copies: u32,
    bytes: usize,
}

impl Tracker {
    /// Creates a tracker for the messages of these topic filters.
    #[must_use]
    pub fn new(filters: Vec<String>) -> Self {
        Self {
            filters,
            numbers: HashMap::new(),
            pending: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            bytes: 0,
            next: 0,
        }
    }

    /// Decodes a message; returns None if it is not about the state store.
    pub fn handle_message(&mut self, message: Message, now: Instant) -> Option<TrafficEvent> {
        if message.topic == topic::REQUEST {
            return Some(TrafficEvent::Request(self.request(message, now)));
        }
        let correlation = message.correlation.clone();
        let correlation = Correlation { response_topic: Some(message.topic.to_string()), data: correlation };
        if let Some((summary, elapsed)) = self.answered(&correlation, now) {
            return Some(TrafficEvent::Reply(reply(message, correlation, summary, Some(elapsed))));
        }
        match Topic::parse(&message.topic)? {
            Topic::Request => None,
            Topic::Response { client_id } => {
                let summary = RequestSummary { client: Some(client_id.into()), verb: None, key: None };
                Some(TrafficEvent::Reply(reply(message, correlation, summary, None)))
            }
            Topic::Notify { client_id, key } => Some(TrafficEvent::Notification(DecodedNotification {
                client: client_id.into(),
                key,
                change: Notification::decode(&message.payload)
                    .map_err(|error| Malformed::new(error, &message.payload)),
                version: message.user_property(TIMESTAMP).map(str::to_owned),
            })),
        }
    }

    /// Drops all pending requests, because their replies may have been missed.
    pub fn handle_lost(&mut self) {
        *self = Self { next: self.next, ..Self::new(std::mem::take(&mut self.filters)) };
    }

    /// Returns when to call [`Tracker::poll_unanswered`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Returns a request whose reply has not come in time.
    pub fn poll_unanswered(&mut self, now: Instant) -> Option<TrafficEvent> {
        let (_, number) = self.deadlines.first().copied().filter(|(at, _)| *at <= now)?;
        let pending = self.remove(number)?;
        let waited = now.saturating_duration_since(pending.received);
        Some(TrafficEvent::Unanswered { summary: pending.summary, waited })
    }

    fn request(&mut self, message: Message, now: Instant) -> DecodedRequest {
        let request =
            Request::decode(&message.payload).map_err(|error| Malformed::new(error, &message.payload));
        let property = |name| message.user_property(name).map(str::to_owned);
        let known = request.as_ref().ok();
        let summary = RequestSummary {
            client: client_of(&message),
            verb: known.map(Request::verb),
            key: known.and_then(Request::key).cloned(),
        };
        let problem = self.problem(&message);
        let decoded = DecodedRequest {
            timestamp: property(TIMESTAMP),
            fence: property(FENCE),
            persist: message.user_property(PERSIST) == Some("true"),
            expiry_s: message.expiry_s,
            summary,
            request,
            correlation: Correlation { response_topic: message.response_topic, data: message.correlation },
            problem,
        };
        if problem.is_none() {
            self.add_pending(&decoded, now);
        }
        decoded
    }

    /// Returns why no reply will be seen (protocol §1).
    fn problem(&self, message: &Message) -> Option<&'static str> {
        if message.qos != Qos::AtLeastOnce {
            return Some("no reply: its QoS is not 1");
        }
        let Some(response_topic) = message.response_topic.as_deref() else {
            return Some("no reply: it has no response topic");
        };
        if message.correlation.is_none() {
            return Some("no reply: it has no correlation data");
        }
        let is_subscribed = self.filters.iter().any(|filter| topic::filter_matches(filter, response_topic));
        (!is_subscribed).then_some("reply not visible: its topic is not subscribed")
    }

    fn add_pending(&mut self, request: &DecodedRequest, now: Instant) {
        if let Some(known) =
            self.numbers.get(&request.correlation).and_then(|number| self.pending.get_mut(number))
        {
            known.copies = known.copies.saturating_add(1);
            return;
        }
        let wait = request.expiry_s.map_or(WAIT, |seconds| Duration::from_secs(seconds.into()));
        // An expiry beyond the range of the clock never ends.
        let Some(deadline) = now.checked_add(wait.saturating_add(GRACE)) else { return };
        // Copied, because a part of a packet keeps the memory of the whole packet.
        let summary = RequestSummary {
            key: request.summary.key.as_ref().and_then(copy_key),
            ..request.summary.clone()
        };
        let correlation = request.correlation.data.as_deref().map(Bytes::copy_from_slice);
        let correlation = Correlation { data: correlation, ..request.correlation.clone() };
        let bytes = bytes_of(&summary, &correlation);
        let pending = Pending { summary, correlation, received: now, deadline, copies: 1, bytes };
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.bytes = self.bytes.saturating_add(pending.bytes);
        self.deadlines.insert((deadline, number));
        self.numbers.insert(pending.correlation.clone(), number);
        self.pending.insert(number, pending);
        while self.pending.len() > PENDING_MAX || self.bytes > PENDING_BYTES_MAX {
            let Some(oldest) = self.pending.first_key_value().map(|(number, _)| *number) else { return };
            self.remove(oldest);
        }
    }

    fn answered(&mut self, correlation: &Correlation, now: Instant) -> Option<(RequestSummary, Duration)> {
        let number = *self.numbers.get(correlation)?;
        let pending = self.pending.get_mut(&number)?;
        let elapsed = now.saturating_duration_since(pending.received);
        pending.copies = pending.copies.saturating_sub(1);
        if pending.copies > 0 {
            return Some((pending.summary.clone(), elapsed));
        }
        self.remove(number).map(|pending| (pending.summary, elapsed))
    }

    fn remove(&mut self, number: u64) -> Option<Pending> {
        let pending = self.pending.remove(&number)?;
        self.numbers.remove(&pending.correlation);
        self.deadlines.remove(&(pending.deadline, number));
        self.bytes = self.bytes.saturating_sub(pending.bytes);
        Some(pending)
    }
}

fn reply(
    message: Message,
    correlation: Correlation,
    summary: RequestSummary,
    elapsed: Option<Duration>,
) -> DecodedReply {
    DecodedReply {
        summary,
        elapsed,
        reply: Reply::decode(&message.payload).map_err(|error| Malformed::new(error, &message.payload)),
        version: message.user_property(TIMESTAMP).map(str::to_owned),
        correlation,
    }
}

/// Returns the client id of the request's user property, else of its response topic.
fn client_of(message: &Message) -> Option<Bytes> {
    let id = message.user_property(SOURCE).map(str::to_owned);
    let id = id.or_else(|| match Topic::parse(message.response_topic.as_deref()?) {
        Some(Topic::Response { client_id }) => Some(client_id),
        _ => None,
    });
    id.map(Bytes::from)
}

fn copy_key(key: &Key) -> Option<Key> {
    Key::new(Bytes::copy_from_slice(key.as_bytes())).ok()
}

/// Returns the memory of a pending request.
fn bytes_of(summary: &RequestSummary, correlation: &Correlation) -> usize {
    let texts = [
        summary.key.as_ref().map_or(0, |key| key.as_bytes().len()),
        summary.client.as_ref().map_or(0, Bytes::len),
        correlation.response_topic.as_ref().map_or(0, |topic| topic.len().saturating_mul(2)),
        correlation.data.as_ref().map_or(0, Bytes::len),
    ];
    texts.into_iter().fold(PENDING_OVERHEAD_BYTES, usize::saturating_add)
}

#[cfg(test)]
mod tests;
