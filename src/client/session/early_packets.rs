//! The limits of the packets that are sent before CONNACK (pure).

/// The most reads. A CONNACK may have a Receive Maximum; the common brokers grant 10 or more.
const READS_MAX: usize = 8;
/// The most bytes of topics and payloads. A broker may close the connection if it gets "too much data before authentication is
/// complete" (MQTT 5, 3.1.4), or a packet that is larger than the Maximum Packet Size of its CONNACK.
const BYTES_MAX: usize = 4096;

/// The packets that were sent before CONNACK.
#[derive(Debug, Default)]
pub(super) struct EarlyPackets {
    reads: usize,
    bytes: usize,
    /// Whether there are any, and the broker has sent none after its CONNACK.
    are_unanswered: bool,
}

impl EarlyPackets {
    /// Handles a packet that the broker has sent after its CONNACK.
    pub(super) fn handle_answered(&mut self) {
        self.are_unanswered = false;
    }

    pub(super) fn are_unanswered(&self) -> bool {
        self.are_unanswered
    }

    /// Adds a subscription. Returns false if there is no room for it.
    pub(super) fn add_subscription(&mut self, bytes: usize) -> bool {
        let bytes = self.bytes.saturating_add(bytes);
        let has_room = bytes <= BYTES_MAX;
        if has_room {
            (self.bytes, self.are_unanswered) = (bytes, true);
        }
        has_room
    }

    /// Adds a read. Returns false if there is no room for it.
    pub(super) fn add_read(&mut self, bytes: usize) -> bool {
        let has_room = self.reads < READS_MAX && self.add_subscription(bytes);
        if has_room {
            self.reads = self.reads.saturating_add(1);
        }
        has_room
    }
}
