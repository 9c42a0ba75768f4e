//! The keep-alive of a connection (pure).

use std::time::{Duration, Instant};

use super::event::KeepAliveTimeout;

/// When packets were last received and sent, and when the next PINGREQ is due.
#[derive(Debug)]
pub(in crate::client) struct KeepAlive {
    /// Zero: there is no keep-alive.
    interval: Duration,
    last_received: Instant,
    last_sent: Instant,
    /// Whether a PINGREQ was sent since the last received packet.
    is_pinged: bool,
}

impl KeepAlive {
    pub(in crate::client) fn new(interval: Duration, now: Instant) -> Self {
        Self { interval, last_received: now, last_sent: now, is_pinged: false }
    }

    pub(in crate::client) fn handle_received(&mut self, now: Instant) {
        self.last_received = now;
        self.is_pinged = false;
    }

    pub(in crate::client) fn handle_sent(&mut self, now: Instant) {
        self.last_sent = now;
    }

    /// Returns whether a PINGREQ is to be sent.
    ///
    /// # Errors
    /// [`KeepAliveTimeout`]: the connection is dead.
    pub(in crate::client) fn handle_timeout(&mut self, now: Instant) -> Result<bool, KeepAliveTimeout> {
        if self.interval.is_zero() {
            return Ok(false);
        }
        let silent = now.saturating_duration_since(self.last_received);
        let idle = now.saturating_duration_since(self.last_sent);
        if silent >= one_and_a_half(self.interval) {
            return Err(KeepAliveTimeout { since: self.last_received });
        }
        let is_due = (silent >= self.interval && !self.is_pinged) || idle >= self.interval;
        if is_due {
            (self.is_pinged, self.last_sent) = (true, now);
        }
        Ok(is_due)
    }

    /// Returns the time at which [`KeepAlive::handle_timeout`] is due.
    pub(in crate::client) fn poll_timeout(&self) -> Option<Instant> {
        if self.interval.is_zero() {
            return None;
        }
        let limit = if self.is_pinged { one_and_a_half(self.interval) } else { self.interval };
        let silent = self.last_received.checked_add(limit)?;
        Some(silent.min(self.last_sent.checked_add(self.interval)?))
    }
}

fn one_and_a_half(interval: Duration) -> Duration {
    interval.saturating_mul(3).checked_div(2).unwrap_or(interval)
}
