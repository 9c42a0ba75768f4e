//! What a connection counts by itself until it adds it to the counters of all, which costs more than to count here.

use crate::server::operations::metrics::Metrics;

/// Packets that have not been added to the counters of all connections.
#[derive(Debug, Default)]
pub struct Tally {
    received: u64,
    publishes_received: u64,
    sent: u64,
    publishes_sent: u64,
}

impl Tally {
    /// That of a connection that has sent a CONNECT and gets a CONNACK.
    #[must_use]
    pub fn begun() -> Self {
        Self { received: 1, sent: 1, ..Self::default() }
    }

    /// Counts a packet from the client.
    pub fn count_received(&mut self) {
        self.received = self.received.saturating_add(1);
    }

    /// Says of the packet that was counted last that it is a PUBLISH.
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

    /// Adds everything to the counters of all, and begins anew.
    pub fn add_to(&mut self, metrics: &Metrics) {
        let Self { received, publishes_received, sent, publishes_sent } = std::mem::take(self);
        for (counter, count) in [
            (&metrics.received.packets, received),
            (&metrics.received.publishes, publishes_received),
            (&metrics.sent.packets, sent),
            (&metrics.sent.publishes, publishes_sent),
        ] {
            if count > 0 {
                counter.add(count);
            }
        }
    }
}
