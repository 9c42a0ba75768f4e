//! Publications: a published message with its size and its deadline, shared by all sessions that get it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::memory::{Account, Share, SharedCharge};
use crate::protocol::message::{Message, Qos};

/// The bytes that a queue takes for a message besides its content: the place in the queue, which may be half empty, and
/// in the table of messages in flight.
const DELIVERY_BYTES: usize = 3 * size_of::<Delivery>();

/// The bytes charged for a message in addition to its content.
const OVERHEAD_BYTES: usize = size_of::<Publication>() + DELIVERY_BYTES;

/// The bytes charged for a Subscription Identifier: their list may have room for twice as many.
const SUBSCRIPTION_ID_BYTES: usize = 2 * size_of::<u32>();

/// A publication of this size is charged once for all queues, and once to each of their owners; each queue is charged for a
/// smaller one, so that a request and its answer change no counter that threads share.
const CHARGED_BYTES_MIN: usize = 8 * 1024;

/// A published message. Sessions share it, so that it is never copied.
#[derive(Debug)]
pub struct Publication {
    pub message: Message,
    /// The bytes that a queue is charged for it.
    pub bytes: usize,
    /// When the message expires: from then on it must not be delivered.
    expires_at: Option<Instant>,
    /// None: each queue is charged for it.
    shared: Option<SharedCharge>,
}

impl Publication {
    /// Wraps a message that is published now.
    #[inline]
    #[must_use]
    pub fn new(message: Message, now: Instant) -> Self {
        let expires_at =
            message.expiry_s.and_then(|seconds| now.checked_add(Duration::from_secs(u64::from(seconds))));
        let bytes = bytes_of(&message);
        let shared = (bytes >= CHARGED_BYTES_MIN).then(|| SharedCharge::new(bytes));
        Self { message, bytes, expires_at, shared }
    }

    /// Whether it is not charged to each queue that takes it.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.shared.is_some()
    }

    /// Charges an owner for the publication if it is large, instead of the queue that takes it.
    #[must_use]
    pub fn share(&self, account: &Arc<Account>) -> Option<Arc<Share>> {
        self.shared.as_ref().map(|shared| shared.share(account))
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

/// Whether an empty queue of `queue_bytes_max` has room for a message, which takes more memory than its packet has bytes.
#[must_use]
pub fn is_within(message: &Message, queue_bytes_max: usize) -> bool {
    bytes_of(message) <= queue_bytes_max
}

/// Returns the bytes that a message takes, with everything that keeps it.
#[must_use]
pub fn bytes_of(message: &Message) -> usize {
    [
        OVERHEAD_BYTES,
        message.user_properties.capacity(),
        message.topic.len(),
        message.payload.len(),
        message.response_topic.as_ref().map_or(0, String::len),
        message.content_type.as_ref().map_or(0, |text| text.len()),
        message.correlation.as_ref().map_or(0, bytes::Bytes::len),
    ]
    .into_iter()
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
    /// The charge of the session's owner if the publication is large, once a queue has taken it.
    pub share: Option<Arc<Share>>,
}

impl Delivery {
    /// Returns the bytes that count for the limit of a queue.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.publication.bytes.saturating_add(self.id_bytes())
    }

    /// Returns the bytes that its queue is charged in the memory budget.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let bytes = if self.publication.is_large() { DELIVERY_BYTES } else { self.publication.bytes };
        bytes.saturating_add(self.id_bytes())
    }

    fn id_bytes(&self) -> usize {
        // Of the length: the capacity of each copy of the list is another one.
        self.subscription_ids.len().saturating_mul(SUBSCRIPTION_ID_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::UserProperties;

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
        let user_properties: UserProperties = std::iter::repeat_n(("", ""), 1_000).collect();
        let taken = user_properties.capacity();
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
