//! How long a lease lasts, when it is renewed, and when it is given up: the arithmetic of `lock`.

use std::time::Duration;

use crate::client::lock::LeaseOptions;
use crate::commands::duration;
use crate::commands::error::CommandError;

/// The times as they were asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    /// How long the lease lasts.
    pub ttl: Duration,
    /// How long after a renewal the next one is sent.
    pub renew: Option<Duration>,
    /// How long a command that is told to end may take; none: there is nothing to stop.
    pub kill_after: Option<Duration>,
    /// How long to wait for a lock that somebody else holds; none: for ever.
    pub wait: Option<Duration>,
}

/// The times as they hold together.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What the lock's machine goes by.
    pub terms: LeaseOptions,
    /// How long a renewal may wait for its answer, so that another one can be tried.
    pub patience: Duration,
    /// How long before the lease's end nothing of the command may be left.
    pub spare: Duration,
}

/// Between giving a lock up and its end, beside what the command needs to stop; less for a short lease.
const GRACE_MAX: Duration = Duration::from_secs(2);
/// The same where there is nothing to stop.
const NOTICE_MAX: Duration = Duration::from_secs(1);
/// No answer is given up sooner, unless renewals come faster.
const PATIENCE_MIN: Duration = Duration::from_secs(1);

impl Wishes {
    /// Holds the times together; `seed` is any number.
    ///
    /// # Errors
    /// A usage error that says the arithmetic.
    pub fn settle(self, seed: u64) -> Result<Plan, CommandError> {
        let Self { ttl, renew, kill_after, wait } = self;
        let renew = renew.unwrap_or_else(|| part(ttl, 3));
        let grace = part(ttl, 5).min(GRACE_MAX);
        let margin = match kill_after {
            Some(kill_after) => kill_after.saturating_add(grace),
            None => part(ttl, 10).min(NOTICE_MAX),
        };
        let needed = renew.saturating_add(margin);
        let slack = ttl.saturating_sub(needed);
        if slack.is_zero() {
            return Err(too_short(ttl, renew, kill_after, margin, needed));
        }
        let patience = part(slack, 2).max(PATIENCE_MIN.min(renew));
        let terms = LeaseOptions { ttl, renew, margin, wait, seed };
        Ok(Plan { terms, patience, spare: part(grace, 2) })
    }
}

/// In whole milliseconds: the times are shown to people.
fn part(whole: Duration, parts: u64) -> Duration {
    Duration::from_millis(ms(whole).checked_div(parts).unwrap_or(0))
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn too_short(
    ttl: Duration,
    renew: Duration,
    kill_after: Option<Duration>,
    margin: Duration,
    needed: Duration,
) -> CommandError {
    let shown = |duration| duration::of_ms(ms(duration));
    let spare = shown(margin.saturating_sub(kill_after.unwrap_or_default()));
    let stop = kill_after.map_or_else(String::new, |kill_after| {
        format!(" + {} to stop the command (--kill-after)", shown(kill_after))
    });
    let sum = format!(
        "{} until it is renewed (--renew){stop} + {spare} to spare = {}",
        shown(renew),
        shown(needed)
    );
    CommandError::usage(format!("--ttl {} is too short", shown(ttl)))
        .cause(format!("{sum}, which must be less than --ttl"))
        .hint(match kill_after {
            Some(_) => "a longer --ttl, or a shorter --kill-after or --renew",
            None => "a longer --ttl, or a shorter --renew",
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn wishes(ttl: Duration, kill_after: Option<Duration>) -> Wishes {
        Wishes { ttl, renew: None, kill_after, wait: None }
    }

    #[test]
    fn the_defaults_leave_room_for_a_second_try() {
        let plan = wishes(seconds(30), Some(seconds(5))).settle(0).unwrap();
        assert_eq!(plan.terms.renew, seconds(10));
        assert_eq!(plan.terms.margin, seconds(7));
        assert_eq!(plan.spare, seconds(1));
        assert_eq!(plan.patience, Duration::from_millis(6_500));
    }

    #[test]
    fn a_short_lease_spares_a_fifth_of_itself() {
        let plan = wishes(seconds(3), Some(Duration::ZERO)).settle(0).unwrap();
        assert_eq!(plan.terms.margin, Duration::from_millis(600));
        assert_eq!(plan.spare, Duration::from_millis(300));
    }

    #[test]
    fn a_lease_too_short_to_stop_the_command_is_refused_with_the_sum() {
        let error = wishes(seconds(9), Some(seconds(5))).settle(0).unwrap_err();
        assert_eq!(error.message, "--ttl 9s is too short");
        assert_eq!(
            error.causes,
            [
                "3s until it is renewed (--renew) + 5s to stop the command (--kill-after) + 1s 800ms to spare = \
              9s 800ms, which must be less than --ttl"
            ]
        );
        let renew = Some(seconds(27));
        let error = Wishes { renew, ..wishes(seconds(28), None) }.settle(0).unwrap_err();
        assert_eq!(
            error.causes,
            ["27s until it is renewed (--renew) + 1s to spare = 28s, which must be less than --ttl"]
        );
    }

    #[test]
    fn whatever_is_accepted_can_be_renewed_before_it_is_given_up() {
        for ttl_ms in [50, 300, 2_000, 11_000, 60_000] {
            for kill_ms in [0, 10, 500, 5_000] {
                let wishes = wishes(Duration::from_millis(ttl_ms), Some(Duration::from_millis(kill_ms)));
                let Ok(Plan { terms, spare, .. }) = wishes.settle(0) else { continue };
                assert!(terms.renew + terms.margin < terms.ttl, "{ttl_ms} {kill_ms}");
                assert!(spare <= terms.margin, "{ttl_ms} {kill_ms}");
            }
        }
    }
}
