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
    /// What there is to stop when the lock is lost.
    pub stop: Stop,
    /// How long to wait while another client holds the lock; None for ever.
    pub wait: Option<Duration>,
}

/// What is stopped when the lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Nothing,
    /// A command, with this time between SIGTERM and SIGKILL; None for the default.
    Command(Option<Duration>),
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
    /// The time between SIGTERM and SIGKILL for the command.
    pub kill_after: Duration,
}

/// The default time between SIGTERM and SIGKILL; at most a quarter of the lease, so that a short lease has room for it.
const KILL_AFTER: Duration = Duration::from_secs(5);

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
        let Self { ttl, wait, .. } = self;
        let (renew, kill_after, grace) = (self.renew(), self.kill_after(), self.grace());
        let margin = kill_after.saturating_add(grace);
        let slack = ttl.saturating_sub(renew.saturating_add(margin));
        let request_timeout = part(slack, 2).max(REQUEST_TIMEOUT_MIN.min(renew));
        if slack.is_zero() || request_timeout.is_zero() {
            return Err(self.too_short());
        }
        let lease = LeaseOptions { ttl, renew, margin, wait, seed };
        Ok(Timing { lease, request_timeout, reserve: part(grace, 2), kill_after })
    }

    fn renew(&self) -> Duration {
        self.renew.unwrap_or_else(|| part(self.ttl, 3))
    }

    fn kill_after(&self) -> Duration {
        match self.stop {
            Stop::Nothing => Duration::ZERO,
            Stop::Command(kill_after) => kill_after.unwrap_or_else(|| part(self.ttl, 4).min(KILL_AFTER)),
        }
    }

    fn grace(&self) -> Duration {
        match self.stop {
            Stop::Nothing => part(self.ttl, 10).min(MARGIN_MAX),
            Stop::Command(_) => part(self.ttl, 5).min(GRACE_MAX),
        }
    }

    /// Returns the time that the lease must exceed.
    fn needed(&self) -> Duration {
        self.renew().saturating_add(self.kill_after()).saturating_add(self.grace())
    }

    fn too_short(&self) -> CommandError {
        let stop = match self.stop {
            Stop::Nothing => String::new(),
            Stop::Command(_) => {
                format!(" + {} to stop the command (--kill-after)", duration::text(self.kill_after()))
            }
        };
        let sum = format!(
            "{} until the renewal (--renew){stop} + {} of grace = {}",
            duration::text(self.renew()),
            duration::text(self.grace()),
            duration::text(self.needed())
        );
        let options = match self.stop {
            Stop::Nothing => "--renew",
            Stop::Command(_) => "--kill-after or --renew",
        };
        CommandError::usage(format!("--ttl {} is too short", duration::text(self.ttl)))
            .cause(format!("{sum}, which must be less than --ttl"))
            .hint(match self.least_ttl_s() {
                Some(least_s) => format!("use --ttl {least_s}s or longer, or a shorter {options}"),
                None => format!("use a shorter {options}"),
            })
    }

    /// Returns the shortest lease in whole seconds that is long enough; None if there is none.
    fn least_ttl_s(&self) -> Option<u64> {
        // A lease of this length is too short by a few seconds at most.
        let least = match self.renew {
            Some(renew) => renew.saturating_add(self.kill_after()),
            None => part(self.kill_after().saturating_mul(3), 2),
        };
        let is_enough = |ttl_s: &u64| {
            let ttl = Duration::from_secs(*ttl_s);
            Self { ttl, ..*self }.needed() < ttl
        };
        const TRIED_MAX: u64 = 16;
        let first = least.as_secs();
        (first..=first.saturating_add(TRIED_MAX)).find(is_enough)
    }
}

/// Returns a part in whole milliseconds, so that error messages have short numbers.
fn part(whole: Duration, parts: u32) -> Duration {
    let part = whole.checked_div(parts).unwrap_or_default();
    Duration::new(part.as_secs(), part.subsec_millis().saturating_mul(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn options(ttl: Duration, stop: Stop) -> TimingOptions {
        TimingOptions { ttl, renew: None, stop, wait: None }
    }

    fn stop_within(kill_after: Duration) -> Stop {
        Stop::Command(Some(kill_after))
    }

    #[test]
    fn the_defaults_leave_time_for_a_second_try() {
        let timing = options(seconds(30), Stop::Command(None)).resolve(0).unwrap();
        assert_eq!((timing.lease.renew, timing.kill_after), (seconds(10), seconds(5)));
        assert_eq!(timing.lease.margin, seconds(7));
        assert_eq!(timing.reserve, seconds(1));
        assert_eq!(timing.request_timeout, Duration::from_millis(6_500));
    }

    #[test]
    fn a_short_lease_has_a_grace_period_of_a_fifth() {
        let timing = options(seconds(3), stop_within(Duration::ZERO)).resolve(0).unwrap();
        assert_eq!(timing.lease.margin, Duration::from_millis(600));
        assert_eq!(timing.reserve, Duration::from_millis(300));
    }

    #[test]
    fn with_the_default_options_a_lease_of_three_seconds_or_more_is_long_enough() {
        for ttl_s in 3..60 {
            let timing = options(seconds(ttl_s), Stop::Command(None)).resolve(0).unwrap();
            assert!(timing.kill_after >= Duration::from_millis(750) && timing.kill_after <= seconds(5));
        }
        assert_eq!(options(seconds(20), Stop::Command(None)).resolve(0).unwrap().kill_after, seconds(5));
    }

    #[test]
    fn a_lease_too_short_to_stop_the_command_is_rejected_with_the_sum_and_the_least() {
        let error = options(seconds(9), stop_within(seconds(5))).resolve(0).unwrap_err();
        assert_eq!(error.message, "--ttl 9s is too short");
        assert_eq!(
            error.causes,
            ["3s until the renewal (--renew) + 5s to stop the command (--kill-after) + 1s 800ms of grace = \
              9s 800ms, which must be less than --ttl"]
        );
        assert_eq!(error.hints, ["use --ttl 11s or longer, or a shorter --kill-after or --renew"]);
        let renew = Some(seconds(27));
        let error = TimingOptions { renew, ..options(seconds(28), Stop::Nothing) }.resolve(0).unwrap_err();
        assert_eq!(
            error.causes,
            ["27s until the renewal (--renew) + 1s of grace = 28s, which must be less than --ttl"]
        );
        assert_eq!(error.hints, ["use --ttl 29s or longer, or a shorter --renew"]);
    }

    #[test]
    fn the_least_lease_is_accepted_and_a_second_less_is_not() {
        for kill_after in [0, 1, 5, 60, 86_400].map(seconds) {
            for renew in [None, Some(seconds(1)), Some(seconds(600))] {
                let of = |ttl_s| TimingOptions { renew, ..options(seconds(ttl_s), stop_within(kill_after)) };
                let least_s = of(1).least_ttl_s().unwrap();
                assert!(of(least_s).resolve(0).is_ok() && of(least_s - 1).resolve(0).is_err(), "{least_s}");
            }
        }
    }

    #[test]
    fn no_lease_is_long_enough_for_an_enormous_time_to_stop() {
        let error = options(seconds(30), stop_within(Duration::MAX)).resolve(0).unwrap_err();
        assert_eq!(error.hints, ["use a shorter --kill-after or --renew"]);
    }

    #[test]
    fn an_accepted_lease_is_renewed_before_it_is_given_up() {
        for ttl_ms in [50, 300, 2_000, 11_000, 60_000] {
            for kill_ms in [0, 10, 500, 5_000] {
                let options =
                    options(Duration::from_millis(ttl_ms), stop_within(Duration::from_millis(kill_ms)));
                let Ok(Timing { lease, reserve, .. }) = options.resolve(0) else { continue };
                assert!(lease.renew + lease.margin < lease.ttl, "{ttl_ms} {kill_ms}");
                assert!(reserve <= lease.margin, "{ttl_ms} {kill_ms}");
            }
        }
    }
}
