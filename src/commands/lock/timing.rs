//! The times of a lease: its duration, its renewal, and the margin before its end (pure).

use std::time::Duration;

use crate::client::lock::LeaseOptions;
use crate::commands::duration;
use crate::commands::error::CommandError;

/// The times as given on the command line.
#[derive(Clone, Copy, Debug)]
pub struct TimingOptions {
    /// The duration of the lease.
    pub ttl: Duration,
    /// The time between renewals; None for a third of `ttl`.
    pub renew: Option<Duration>,
    /// The time between SIGTERM and SIGKILL for the command; None if there is nothing to stop.
    pub kill_after: Option<Duration>,
    /// How long to wait while another client holds the lock; None for ever.
    pub wait: Option<Duration>,
}

/// Times that are consistent with each other.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The options of the lock's state machine.
    pub lease: LeaseOptions,
    /// How long to wait for the answer to a renewal, so that there is time for another.
    pub request_timeout: Duration,
    /// The time before the lease's end at which the command must be gone.
    pub reserve: Duration,
}

/// The grace period between giving a lock up and the end of its lease, beside the time for stopping the command.
const GRACE_MAX: Duration = Duration::from_secs(2);
/// The margin if there is nothing to stop.
const MARGIN_MAX: Duration = Duration::from_secs(1);
/// The shortest timeout of a renewal, unless renewals are more frequent.
const REQUEST_TIMEOUT_MIN: Duration = Duration::from_secs(1);

impl TimingOptions {
    /// Checks the times; `seed` is a random number.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::commands::Kind::Usage) if the lease is too short; the cause has the sum.
    pub fn resolve(self, seed: u64) -> Result<Timing, CommandError> {
        let Self { ttl, renew, kill_after, wait } = self;
        let renew = renew.unwrap_or_else(|| part(ttl, 3));
        let grace = part(ttl, 5).min(GRACE_MAX);
        let margin = match kill_after {
            Some(kill_after) => kill_after.saturating_add(grace),
            None => part(ttl, 10).min(MARGIN_MAX),
        };
        let needed = renew.saturating_add(margin);
        let slack = ttl.saturating_sub(needed);
        if slack.is_zero() {
            return Err(too_short(ttl, renew, kill_after, margin, needed));
        }
        let request_timeout = part(slack, 2).max(REQUEST_TIMEOUT_MIN.min(renew));
        let lease = LeaseOptions { ttl, renew, margin, wait, seed };
        Ok(Timing { lease, request_timeout, reserve: part(grace, 2) })
    }
}

/// Returns a part in whole milliseconds, so that error messages have short numbers.
fn part(whole: Duration, parts: u32) -> Duration {
    let part = whole.checked_div(parts).unwrap_or_default();
    Duration::new(part.as_secs(), part.subsec_millis().saturating_mul(1_000_000))
}

fn too_short(
    ttl: Duration,
    renew: Duration,
    kill_after: Option<Duration>,
    margin: Duration,
    needed: Duration,
) -> CommandError {
    let reserve = duration::text(margin.saturating_sub(kill_after.unwrap_or_default()));
    let stop = kill_after.map_or_else(String::new, |kill_after| {
        format!(" + {} to stop the command (--kill-after)", duration::text(kill_after))
    });
    let sum = format!(
        "{} until the renewal (--renew){stop} + {reserve} of grace = {}",
        duration::text(renew),
        duration::text(needed)
    );
    CommandError::usage(format!("--ttl {} is too short", duration::text(ttl)))
        .cause(format!("{sum}, which must be less than --ttl"))
        .hint(match kill_after {
            Some(_) => "use a longer --ttl, or a shorter --kill-after or --renew",
            None => "use a longer --ttl, or a shorter --renew",
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn options(ttl: Duration, kill_after: Option<Duration>) -> TimingOptions {
        TimingOptions { ttl, renew: None, kill_after, wait: None }
    }

    #[test]
    fn the_defaults_leave_time_for_a_second_try() {
        let timing = options(seconds(30), Some(seconds(5))).resolve(0).unwrap();
        assert_eq!(timing.lease.renew, seconds(10));
        assert_eq!(timing.lease.margin, seconds(7));
        assert_eq!(timing.reserve, seconds(1));
        assert_eq!(timing.request_timeout, Duration::from_millis(6_500));
    }

    #[test]
    fn a_short_lease_has_a_grace_period_of_a_fifth() {
        let timing = options(seconds(3), Some(Duration::ZERO)).resolve(0).unwrap();
        assert_eq!(timing.lease.margin, Duration::from_millis(600));
        assert_eq!(timing.reserve, Duration::from_millis(300));
    }

    #[test]
    fn a_lease_too_short_to_stop_the_command_is_rejected_with_the_sum() {
        let error = options(seconds(9), Some(seconds(5))).resolve(0).unwrap_err();
        assert_eq!(error.message, "--ttl 9s is too short");
        assert_eq!(
            error.causes,
            ["3s until the renewal (--renew) + 5s to stop the command (--kill-after) + 1s 800ms of grace = \
              9s 800ms, which must be less than --ttl"]
        );
        let renew = Some(seconds(27));
        let error = TimingOptions { renew, ..options(seconds(28), None) }.resolve(0).unwrap_err();
        assert_eq!(
            error.causes,
            ["27s until the renewal (--renew) + 1s of grace = 28s, which must be less than --ttl"]
        );
    }

    #[test]
    fn an_accepted_lease_is_renewed_before_it_is_given_up() {
        for ttl_ms in [50, 300, 2_000, 11_000, 60_000] {
            for kill_ms in [0, 10, 500, 5_000] {
                let options = options(Duration::from_millis(ttl_ms), Some(Duration::from_millis(kill_ms)));
                let Ok(Timing { lease, reserve, .. }) = options.resolve(0) else { continue };
                assert!(lease.renew + lease.margin < lease.ttl, "{ttl_ms} {kill_ms}");
                assert!(reserve <= lease.margin, "{ttl_ms} {kill_ms}");
            }
        }
    }
}
