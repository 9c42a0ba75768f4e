//! The packets of a client that wait until it has acknowledged more of what it was sent.

use std::collections::VecDeque;

use super::packet::Incoming;

/// What a packet is charged besides its bytes on the wire.
const OVERHEAD_BYTES: usize = 512;

/// Packets in the order in which they came, bounded in bytes. Acknowledgements overtake them: a client that asks
/// much at once sends those behind its requests, and only they make room for the answers.
#[derive(Debug)]
pub struct Postponed {
    packets: VecDeque<(Incoming, usize)>,
    bytes: usize,
    bytes_max: usize,
}

impl Postponed {
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
    pub fn must_wait(&self, packet: &Incoming, is_laden: impl FnOnce() -> bool) -> bool {
        match packet {
            Incoming::Publish(_) => !self.is_empty() || is_laden(),
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

    /// Lets a packet of so many bytes wait.
    pub fn push(&mut self, packet: Incoming, bytes: usize) {
        let bytes = bytes.saturating_add(OVERHEAD_BYTES);
        self.bytes = self.bytes.saturating_add(bytes);
        self.packets.push_back((packet, bytes));
    }

    /// Takes the packet that has waited longest.
    pub fn pop(&mut self) -> Option<Incoming> {
        let (packet, bytes) = self.packets.pop_front()?;
        self.bytes = self.bytes.saturating_sub(bytes);
        Some(packet)
    }
}
