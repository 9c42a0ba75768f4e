//! Keep-alive: when a client has been silent for too long (MQTT 5, 3.1.2.10).

use std::time::{Duration, Instant};

/// How much of an incomplete packet must arrive within 1.5 times the keep-alive.
const PROGRESS_BYTES: usize = 1024;

/// The time of the last sign of life of a client. Pure: time is an argument.
///
/// Packets count, not bytes: a client that sends one byte now and then is not alive. The exception is a large packet on a
/// slow network, during which the client cannot send another one: each KiB of it counts as a packet. So a connection
/// without a complete packet ends in any case, because the size of a packet is limited.
#[derive(Debug)]
pub struct KeepAlive {
    /// 1.5 times the keep-alive.
    period: Duration,
    last: Instant,
    /// The bytes received since then.
    bytes: usize,
}

impl KeepAlive {
    #[must_use]
    pub fn new(period: Duration, now: Instant) -> Self {
        Self { period, last: now, bytes: 0 }
    }

    /// Handles bytes that were received, which may be a part of a packet; returns whether they count as a packet.
    pub fn handle_bytes(&mut self, len: usize) -> bool {
        self.bytes = self.bytes.saturating_add(len);
        self.bytes >= PROGRESS_BYTES
    }

    /// Handles a complete packet, or another sign of life.
    pub fn handle_packet(&mut self, now: Instant) {
        self.last = now;
        self.bytes = 0;
    }

    /// Returns when the connection is to be closed; None if that is beyond the range of the clock.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.last.checked_add(self.period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(15);

    #[test]
    fn packets_count_and_not_bytes() {
        let start = crate::clock::monotonic();
        let later = |seconds| start + Duration::from_secs(seconds);
        let mut keep_alive = KeepAlive::new(PERIOD, start);
        assert!(!keep_alive.handle_bytes(1) && !keep_alive.handle_bytes(1));
        assert_eq!(keep_alive.deadline(), Some(start + PERIOD));
        keep_alive.handle_packet(later(14));
        assert_eq!(keep_alive.deadline(), Some(later(14) + PERIOD));
    }

    #[test]
    fn each_kib_of_an_incomplete_packet_counts_as_a_packet() {
        let start = crate::clock::monotonic();
        let mut keep_alive = KeepAlive::new(PERIOD, start);
        for _ in 0..2 {
            assert!(!keep_alive.handle_bytes(1023));
            assert!(keep_alive.handle_bytes(1));
            keep_alive.handle_packet(start);
        }
        assert!(!keep_alive.handle_bytes(1023));
        keep_alive.handle_packet(start);
        assert!(!keep_alive.handle_bytes(1023), "bytes of an earlier packet do not count");
    }
}
