//! Counters of the broker's traffic: relaxed atomics, so that counting takes no lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Raises the counter to `value`, unless it is greater already.
    pub fn raise(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }
}

/// Traffic in one direction.
#[derive(Debug, Default)]
pub struct Traffic {
    /// MQTT packets of every type.
    pub packets: Counter,
    /// PUBLISH packets.
    pub publishes: Counter,
    /// Bytes of MQTT, without the overhead of TLS and WebSockets.
    pub bytes: Counter,
}

/// What the broker counts.
#[derive(Debug, Default)]
pub struct Counters {
    /// From clients.
    pub received: Traffic,
    /// To clients.
    pub sent: Traffic,
    /// Accepted connections.
    pub connections: Counter,
    /// The greatest number of clients that were connected at one time.
    pub connections_max: Counter,
}
