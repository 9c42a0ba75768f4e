//! Delays between connection attempts (pure).

use std::time::{Duration, Instant};

use super::settings::Reconnect;

/// Exponential backoff with jitter.
///
/// A connection that is lost sooner than the delay before it counts as a failed attempt: a broker that accepts every client
/// and closes the connection at once must not be connected to ten times a second.
///
/// Contract: call [`Backoff::handle_connected`] after each successful attempt, [`Backoff::handle_lost`] after each loss and
/// each failed attempt.
#[derive(Clone, Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    /// Failed attempts since the last connection that lasted.
    failures: u32,
    connected_since: Option<Instant>,
}

impl Backoff {
    /// Returns a backoff whose delays are at most `min` after the first failure, then at most twice the last one each time, up
    /// to `max`.
    #[must_use]
    pub fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, failures: 0, connected_since: None }
    }

    pub fn handle_connected(&mut self, now: Instant) {
        self.connected_since = Some(now);
    }

    /// Handles a loss or a failed attempt. Returns the delay before the next attempt. Half of it is random, so that many clients
    /// do not reconnect at once; `random` is the jitter.
    pub fn handle_lost(&mut self, now: Instant, random: u64) -> Duration {
        let lasted = self.connected_since.take().map(|since| now.saturating_duration_since(since));
        if lasted.is_some_and(|lasted| lasted >= self.longest(self.failures.saturating_sub(1))) {
            self.failures = 0;
        }
        let half = self.longest(self.failures).div_f64(2.0);
        self.failures = self.failures.saturating_add(1);
        half.saturating_add(half.mul_f64(random as f64 / u64::MAX as f64))
    }

    /// Returns the longest delay after a number of failures.
    fn longest(&self, failures: u32) -> Duration {
        let factor = 1u32 << failures.min(16);
        self.min.saturating_mul(factor).min(self.max)
    }
}

/// The delays of a client that reconnects by itself.
impl Default for Backoff {
    fn default() -> Self {
        Self::new(Reconnect::DELAY_MIN, Reconnect::DELAY_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: u64 = u64::MAX;

    fn ms(delay: Duration) -> u128 {
        delay.as_millis()
    }

    #[test]
    fn each_failure_doubles_the_delay_up_to_a_maximum() {
        let (mut backoff, now) = (Backoff::default(), crate::clock::monotonic());
        let delays: Vec<_> = (0..8).map(|_| ms(backoff.handle_lost(now, LONGEST))).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(ms(Backoff::default().handle_lost(now, 0)), 50);
    }

    #[test]
    fn a_connection_that_is_lost_at_once_counts_as_a_failure() {
        let (mut backoff, now) = (Backoff::default(), crate::clock::monotonic());
        let mut lost_after = |ms_connected| {
            backoff.handle_connected(now);
            ms(backoff.handle_lost(now + Duration::from_millis(ms_connected), LONGEST))
        };
        assert_eq!([lost_after(5), lost_after(5), lost_after(199)], [100, 200, 400]);
        // This connection lasted as long as the delay before it.
        assert_eq!([lost_after(400), lost_after(5)], [100, 200]);
    }
}
