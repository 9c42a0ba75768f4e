//! Deferred packets: packets of a client that wait until it has acknowledged more messages.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::mqtt::Incoming;
use crate::protocol::Message;

/// The bytes charged for a packet in addition to its bytes on the wire.
const OVERHEAD_BYTES: usize = 512;
/// The bytes charged for each topic filter of a packet, in addition to its text.
pub(super) const LISTED_BYTES: usize = 64;

/// Packets in the order of their arrival, limited in bytes.
///
/// Acknowledgements are not deferred: a client that sends many requests at once sends its acknowledgements behind them,
/// and only these make room for the answers.
#[derive(Debug)]
pub struct DeferredPackets {
    packets: VecDeque<Waiting>,
    bytes: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Waiting {
    packet: Incoming,
    bytes: usize,
    since: Instant,
}

impl DeferredPackets {
    /// Returns an empty queue that accepts packets until it holds `bytes_max` or more.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { packets: VecDeque::new(), bytes: 0, bytes_max }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Whether no other packet may be deferred.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes >= self.bytes_max
    }

    /// Whether a packet must be deferred. A client `is_backlogged` if it must acknowledge messages before it gets more.
    #[must_use]
    pub fn must_defer(&self, packet: &Incoming, is_backlogged: impl FnOnce() -> bool) -> bool {
        match packet {
            Incoming::Publish(_) => !self.is_empty() || is_backlogged(),
            Incoming::PubAck(_)
            | Incoming::PubRec { .. }
            | Incoming::PubRel(_)
            | Incoming::PubComp(_)
            | Incoming::PingReq => false,
            // Their answers are small, but they must not overtake deferred packets.
            Incoming::Connect(_)
            | Incoming::Subscribe { .. }
            | Incoming::Unsubscribe { .. }
            | Incoming::Disconnect { .. }
            | Incoming::Auth { .. }
            | Incoming::Unexpected(_) => !self.is_empty(),
        }
    }

    /// Returns the bytes that the packets take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Defers a packet of `bytes` on the wire.
    pub fn push(&mut self, packet: Incoming, bytes: usize, now: Instant) {
        let listed = match &packet {
            Incoming::Publish(publish) => publish.message.user_properties.capacity(),
            // What an entry of a list takes besides its text.
            Incoming::Subscribe { requests, .. } => requests.capacity().saturating_mul(LISTED_BYTES),
            Incoming::Unsubscribe { filters, .. } => filters.capacity().saturating_mul(LISTED_BYTES),
            _ => 0,
        };
        let bytes = listed.saturating_add(bytes).saturating_add(OVERHEAD_BYTES);
        self.bytes = self.bytes.saturating_add(bytes);
        self.packets.push_back(Waiting { packet, bytes, since: now });
    }

    /// Removes the packet that has waited longest, and returns it with whether its message has expired meanwhile. The
    /// expiry interval of a message is reduced by its wait (MQTT 5, 3.3.2.3.3).
    pub fn pop(&mut self, now: Instant) -> Option<(Incoming, bool)> {
        let Waiting { mut packet, bytes, since } = self.packets.pop_front()?;
        self.bytes = self.bytes.saturating_sub(bytes);
        let has_expired = match &mut packet {
            Incoming::Publish(publish) => {
                reduce_expiry(&mut publish.message, now.saturating_duration_since(since))
            }
            _ => false,
        };
        Some((packet, has_expired))
    }
}

/// Reduces the expiry interval of a message by a wait, and returns whether it has passed.
fn reduce_expiry(message: &mut Message, waited: Duration) -> bool {
    let Some(expiry_s) = message.expiry_s else { return false };
    // A wait of 136 years is over every interval, also over the longest one, so stopping at the maximum is no error.
    let waited_s = u32::try_from(waited.as_secs()).unwrap_or(u32::MAX);
    message.expiry_s = Some(expiry_s.saturating_sub(waited_s));
    // An SDK that counts in whole seconds sends 0 for a timeout of half a second: that message has not expired at once.
    waited_s >= expiry_s.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::packet::Publish;

    #[test]
    fn the_expiry_of_a_message_runs_while_it_waits() {
        let now = crate::clock::monotonic();
        for (expiry_s, waited_ms, expected) in [
            (None, 1_000_000, (None, false)),
            (Some(2), 999, (Some(2), false)),
            (Some(2), 1_999, (Some(1), false)),
            (Some(2), 2_000, (Some(0), true)),
            (Some(0), 999, (Some(0), false)),
            (Some(0), 1_000, (Some(0), true)),
        ] {
            let message = Message { expiry_s, ..Message::default() };
            let publish = Publish { packet_id: 1, topic_alias: None, message };
            let mut deferred = DeferredPackets::new(1000);
            deferred.push(Incoming::Publish(publish), 10, now);
            let Some((Incoming::Publish(publish), has_expired)) =
                deferred.pop(now + Duration::from_millis(waited_ms))
            else {
                panic!("no packet was deferred")
            };
            assert_eq!((publish.message.expiry_s, has_expired), expected, "{expiry_s:?} {waited_ms}");
        }
    }
}
