//! Traffic of one connection: counted without atomics, and added to the broker's counters now and then.

use crate::broker::counters::Counters;

/// Packets of one connection that are not yet in the broker's counters.
///
/// Those are shared by all threads, so a write to them costs much more than one here.
#[derive(Debug, Default)]
pub struct TrafficCounters {
    received: u64,
    publishes_received: u64,
    sent: u64,
    publishes_sent: u64,
}

impl TrafficCounters {
    /// Returns the counters of a connection that has exchanged CONNECT and CONNACK.
    #[must_use]
    pub fn after_connack() -> Self {
        Self { received: 1, sent: 1, ..Self::default() }
    }

    /// Counts a packet from the client.
    pub fn count_received(&mut self) {
        self.received = self.received.saturating_add(1);
    }

    /// Counts the packet that was counted last as a PUBLISH too.
    pub fn count_publish_received(&mut self) {
        self.publishes_received = self.publishes_received.saturating_add(1);
    }

    /// Counts a packet to the client.
    pub fn count_sent(&mut self) {
        self.sent = self.sent.saturating_add(1);
    }

    /// Counts a PUBLISH to the client.
    pub fn count_publish_sent(&mut self) {
        self.count_sent();
        self.publishes_sent = self.publishes_sent.saturating_add(1);
    }

    /// Adds everything to the broker's counters and starts again from 0.
    pub fn add_to(&mut self, counters: &Counters) {
        let Self { received, publishes_received, sent, publishes_sent } = std::mem::take(self);
        for (counter, count) in [
            (&counters.received.packets, received),
            (&counters.received.publishes, publishes_received),
            (&counters.sent.packets, sent),
            (&counters.sent.publishes, publishes_sent),
        ] {
            if count > 0 {
                counter.add(count);
            }
        }
    }
}
