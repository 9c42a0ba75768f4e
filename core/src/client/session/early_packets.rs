//! The packets that were sent before CONNACK: their limits, and which of them the broker has not acknowledged (pure).

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
    /// The packet ids of those without a SUBACK or PUBACK, in the order in which they were sent.
    unacknowledged: Vec<u16>,
}

impl EarlyPackets {
    /// Returns whether there is room for a subscription, and counts it.
    pub(super) fn add_subscription(&mut self, bytes: usize) -> bool {
        let bytes = self.bytes.saturating_add(bytes);
        let has_room = bytes <= BYTES_MAX;
        if has_room {
            self.bytes = bytes;
        }
        has_room
    }

    /// Returns whether there is room for a read, and counts it.
    pub(super) fn add_read(&mut self, bytes: usize) -> bool {
        let has_room = self.reads < READS_MAX && self.add_subscription(bytes);
        if has_room {
            self.reads = self.reads.saturating_add(1);
        }
        has_room
    }

    pub(super) fn handle_sent(&mut self, packet_id: u16) {
        self.unacknowledged.push(packet_id);
    }

    pub(super) fn handle_acknowledged(&mut self, packet_id: u16) {
        self.unacknowledged.retain(|id| *id != packet_id);
    }

    /// Returns the packet ids of those without an acknowledgement, in the order in which they were sent.
    pub(super) fn unacknowledged(&self) -> &[u16] {
        &self.unacknowledged
    }
}
