//! How long to wait before the next connection is tried (pure).

use std::time::{Duration, Instant};

use super::settings::Reconnect;

/// The waits between one connection and the next.
///
/// A connection that is lost sooner than the wait before it took counts as one more failure: a broker that lets
/// everybody in and ends it at once is not asked ten times a second.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// Failed attempts since a connection last proved worth its wait.
    failures: u32,
    up_since: Option<Instant>,
}

impl Backoff {
    /// There is a connection.
    pub(super) fn handle_up(&mut self, now: Instant) {
        self.up_since = Some(now);
    }

    /// It is lost, or could not be made. Returns how long to wait; `chance` is any number.
    pub(super) fn handle_lost(&mut self, now: Instant, chance: u64) -> Duration {
        let lasted = self.up_since.take().map(|since| now.saturating_duration_since(since));
        if lasted.is_some_and(|lasted| lasted >= longest(self.failures.saturating_sub(1))) {
            self.failures = 0;
        }
        let delay = delay(self.failures, chance);
        self.failures = self.failures.saturating_add(1);
        delay
    }
}

/// The wait after so many failures: half of it by chance, so that many clients do not come back at once.
pub(super) fn delay(failures: u32, chance: u64) -> Duration {
    let half = longest(failures).div_f64(2.0);
    half.saturating_add(half.mul_f64(chance as f64 / u64::MAX as f64))
}

/// Twice the last one each time.
fn longest(failures: u32) -> Duration {
    let factor = 1u32.checked_shl(failures.min(16)).unwrap_or(u32::MAX);
    Reconnect::DELAY_MIN.saturating_mul(factor).min(Reconnect::DELAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: u64 = u64::MAX;

    fn ms(delay: Duration) -> u128 {
        delay.as_millis()
    }

    #[test]
    fn failures_wait_twice_as_long_each_time_up_to_a_bound() {
        let (mut backoff, now) = (Backoff::default(), crate::clock::monotonic());
        let delays: Vec<_> = (0..8).map(|_| ms(backoff.handle_lost(now, LONGEST))).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(ms(delay(0, 0)), 50);
    }

    #[test]
    fn a_connection_that_ends_at_once_is_one_more_failure() {
        let (mut backoff, now) = (Backoff::default(), crate::clock::monotonic());
        let mut lost_after = |ms_up| {
            backoff.handle_up(now);
            ms(backoff.handle_lost(now + Duration::from_millis(ms_up), LONGEST))
        };
        assert_eq!([lost_after(5), lost_after(5), lost_after(199)], [100, 200, 400]);
        // This one has lasted as long as the wait before it.
        assert_eq!([lost_after(400), lost_after(5)], [100, 200]);
    }
}
