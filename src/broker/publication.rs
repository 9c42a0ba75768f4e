//! A published message on its way: shared by all who get it, with its size and its deadline.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::protocol::message::{Message, Qos};

/// What a queue is charged for a message besides its bytes.
const OVERHEAD_BYTES: usize = 128;

/// What it is charged for a user property besides its bytes: there may be very many of them that are empty.
const USER_PROPERTY_BYTES: usize = 96;

/// So many user properties are nothing out of the ordinary.
const USER_PROPERTIES_FEW: usize = 16;

/// A message that has arrived, never copied however many get it.
#[derive(Debug)]
pub struct Publication {
    /// The message as it was published.
    pub message: Message,
    /// What a queue is charged for it, in bytes.
    pub bytes: usize,
    /// From when on it must not be delivered any more.
    expires_at: Option<Instant>,
}

impl Publication {
    /// Wraps a message that arrived `now`.
    #[must_use]
    pub fn new(message: Message, now: Instant) -> Self {
        let expires_at =
            message.expiry_s.and_then(|seconds| now.checked_add(Duration::from_secs(u64::from(seconds))));
        let bytes = bytes_of(&message);
        Self { message, bytes, expires_at }
    }

    /// Whether the message is too old to be delivered.
    #[must_use]
    pub fn is_expired(&self, now: Instant) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// The message expiry interval to forward, in seconds: what is left of the one received (MQTT 5, 3.3.2.3.3).
    #[must_use]
    pub fn remaining_s(&self, now: Instant) -> Option<u32> {
        let received = self.message.expiry_s?;
        let left = self.expires_at?.saturating_duration_since(now);
        // Rounded up, so that a message that did not wait is forwarded with the interval it came with.
        let seconds = left.as_secs().saturating_add(u64::from(left.subsec_nanos() > 0));
        Some(u32::try_from(seconds).unwrap_or(received).min(received))
    }
}

/// Whether a queue with so many bytes has room for a message that came in a packet of fewer.
#[must_use]
pub fn is_within(message: &Message, queue_bytes_max: usize) -> bool {
    // With few of them it takes hardly more room than its packet.
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

/// A publication as one session gets it.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// What is delivered.
    pub publication: Arc<Publication>,
    /// The lower one of the message's and the subscription's.
    pub qos: Qos,
    /// The retain flag as forwarded.
    pub retain: bool,
    /// The identifiers of all subscriptions that matched.
    pub subscription_ids: Vec<u32>,
    /// The group in which it was this session's turn.
    pub group: Option<GroupId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expiry_counts_down_and_ends() {
        let start = crate::clock::monotonic();
        let message = Message { expiry_s: Some(10), ..Message::default() };
        let publication = Publication::new(message, start);
        assert_eq!(publication.remaining_s(start), Some(10));
        assert_eq!(publication.remaining_s(start + Duration::from_millis(3_500)), Some(7));
        assert!(!publication.is_expired(start + Duration::from_millis(9_999)));
        assert!(publication.is_expired(start + Duration::from_secs(10)));
    }

    #[test]
    fn a_message_is_charged_for_what_its_user_properties_take_also_if_they_are_empty() {
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
