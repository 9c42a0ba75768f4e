//! The packets of a client that wait until it has acknowledged more of what it was sent.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::mqtt::Incoming;
use crate::protocol::Message;

/// What a packet is charged besides its bytes on the connection.
const OVERHEAD_BYTES: usize = 512;

/// Packets in the order in which they came, bounded in bytes. Acknowledgements overtake them: a client that asks
/// much at once sends those behind its requests, and only they make room for the answers.
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
    /// Begins with nothing, and with room for so much and one packet.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { packets: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Whether nothing more may wait.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes >= self.bytes_max
    }

    /// Whether a packet has to wait; a client that is `laden` has much to acknowledge before it is given more.
    #[must_use]
    pub fn must_wait(&self, packet: &Incoming, is_backlogged: impl FnOnce() -> bool) -> bool {
        match packet {
            Incoming::Publish(_) => !self.is_empty() || is_backlogged(),
            Incoming::PubAck(_)
            | Incoming::PubRec { .. }
            | Incoming::PubRel(_)
            | Incoming::PubComp(_)
            | Incoming::PingReq => false,
            // They bring no answer that is large, but keep their order.
            Incoming::Connect(_)
            | Incoming::Subscribe { .. }
            | Incoming::Unsubscribe { .. }
            | Incoming::Disconnect { .. }
            | Incoming::Auth { .. }
            | Incoming::Unexpected(_) => !self.is_empty(),
        }
    }

    /// Lets a packet of so many bytes wait from now on.
    pub fn push(&mut self, packet: Incoming, bytes: usize, now: Instant) {
        let bytes = bytes.saturating_add(OVERHEAD_BYTES);
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
                panic!("it is gone")
            };
            assert_eq!((publish.message.expiry_s, has_expired), expected, "{expiry_s:?} {waited_ms}");
        }
    }
}
