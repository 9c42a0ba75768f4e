//! Publications: a published message with its size and its deadline, shared by all sessions that get it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::protocol::message::{Message, Qos};

/// The bytes that a queue is charged for a message in addition to its content.
const OVERHEAD_BYTES: usize = 128;

/// The bytes charged for a user property in addition to its text: a message may have very many empty ones.
const USER_PROPERTY_BYTES: usize = 96;

/// A number of user properties that is not unusual.
const USER_PROPERTIES_FEW: usize = 16;

/// A published message. Sessions share it, so that it is never copied.
#[derive(Debug)]
pub struct Publication {
    pub message: Message,
    /// The bytes that a queue is charged for it.
    pub bytes: usize,
    /// When the message expires: from then on it must not be delivered.
    expires_at: Option<Instant>,
}

impl Publication {
    /// Wraps a message that is published now.
    #[must_use]
    pub fn new(message: Message, now: Instant) -> Self {
        let expires_at =
            message.expiry_s.and_then(|seconds| now.checked_add(Duration::from_secs(u64::from(seconds))));
        let bytes = bytes_of(&message);
        Self { message, bytes, expires_at }
    }

    #[must_use]
    pub fn expires_at(&self) -> Option<Instant> {
        self.expires_at
    }

    #[must_use]
    pub fn is_expired(&self, now: Instant) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// Returns the message expiry interval to forward, in seconds: the rest of the received one (MQTT 5, 3.3.2.3.3).
    #[must_use]
    pub fn remaining_s(&self, now: Instant) -> Option<u32> {
        let received = self.message.expiry_s?;
        let left = self.expires_at?.saturating_duration_since(now);
        // Rounded up, so that a message that did not wait keeps its interval.
        let seconds = left.as_secs().saturating_add(u64::from(left.subsec_nanos() > 0));
        Some(u32::try_from(seconds).unwrap_or(received).min(received))
    }
}

/// Whether an empty queue of `queue_bytes_max` has room for a message, whose packet is smaller than that.
#[must_use]
pub fn is_within(message: &Message, queue_bytes_max: usize) -> bool {
    // With few user properties, a message takes hardly more room than its packet.
    message.user_properties.len() <= USER_PROPERTIES_FEW || bytes_of(message) <= queue_bytes_max
}

fn bytes_of(message: &Message) -> usize {
    let properties = message.user_properties.iter();
    let properties = properties
        .map(|(name, value)| USER_PROPERTY_BYTES.saturating_add(name.len()).saturating_add(value.len()));
    [
        OVERHEAD_BYTES,
        message.topic.len(),
        message.payload.len(),
        message.response_topic.as_ref().map_or(0, String::len),
        message.content_type.as_ref().map_or(0, |text| text.len()),
        message.correlation.as_ref().map_or(0, bytes::Bytes::len),
    ]
    .into_iter()
    .chain(properties)
    .fold(0, usize::saturating_add)
}

/// Number of a group of a shared subscription, unique within one broker and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub(super) u64);

/// A publication with the options of one session that gets it.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub publication: Arc<Publication>,
    /// The lower one of the message's QoS and the subscription's.
    pub qos: Qos,
    /// The retain flag as forwarded.
    pub retain: bool,
    /// The Subscription Identifiers of all matching subscriptions.
    pub subscription_ids: Vec<u32>,
    /// The group of the shared subscription that chose this session.
    pub group: Option<GroupId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expiry_interval_counts_down_to_the_expiry() {
        let start = crate::clock::monotonic();
        let message = Message { expiry_s: Some(10), ..Message::default() };
        let publication = Publication::new(message, start);
        assert_eq!(publication.remaining_s(start), Some(10));
        assert_eq!(publication.remaining_s(start + Duration::from_millis(3_500)), Some(7));
        assert!(!publication.is_expired(start + Duration::from_millis(9_999)));
        assert!(publication.is_expired(start + Duration::from_secs(10)));
    }

    #[test]
    fn a_message_is_charged_for_the_memory_of_empty_user_properties_too() {
        let user_properties = vec![("".into(), "".into()); 1_000];
        let taken = size_of_val(&*user_properties);
        let message = Message { user_properties, ..Message::default() };
        assert!(!is_within(&message, taken));
        assert!(Publication::new(message, crate::clock::monotonic()).bytes > taken);
    }

    #[test]
    fn a_message_without_expiry_never_expires() {
        let start = crate::clock::monotonic();
        let publication = Publication::new(Message::default(), start);
        assert_eq!(publication.remaining_s(start), None);
        assert!(!publication.is_expired(start + Duration::from_secs(1_000_000)));
    }
}
