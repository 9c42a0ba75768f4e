//! Rate limit for events on the terminal: some are shown each second, the others are counted (pure).

use std::time::{Duration, Instant};

/// How many events are shown in a second.
pub const SHOWN_MAX: u32 = 50;
const SECOND: Duration = Duration::from_secs(1);

/// A counter of events in the current second.
///
/// Contract: the owner calls [`RateLimit::allows`] for each event, and [`RateLimit::poll_summary`] at [`RateLimit::due`].
#[derive(Debug, Default)]
pub struct RateLimit {
    begun: Option<Instant>,
    shown: u32,
    withheld: u64,
}

impl RateLimit {
    /// Returns whether an event is shown; counts it if not.
    pub fn allows(&mut self, now: Instant) -> bool {
        let is_over = self.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= SECOND);
        if is_over && self.withheld == 0 {
            self.begun = Some(now);
            self.shown = 0;
        }
        if self.shown < SHOWN_MAX {
            self.shown = self.shown.saturating_add(1);
            return true;
        }
        self.withheld = self.withheld.saturating_add(1);
        false
    }

    /// Returns when a summary is due, if events were withheld.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let begun = self.begun.filter(|_| self.withheld > 0)?;
        begun.checked_add(SECOND)
    }

    /// Returns the number of withheld events once the summary is due, and starts a new second.
    pub fn poll_summary(&mut self, now: Instant) -> Option<u64> {
        self.due().filter(|due| *due <= now)?;
        self.begun = Some(now);
        self.shown = 0;
        Some(std::mem::take(&mut self.withheld))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn after(begun: Instant, ms: u64) -> Instant {
        begun + Duration::from_millis(ms)
    }

    #[test]
    fn fifty_events_a_second_are_shown_and_the_others_counted() {
        let begun = clock::monotonic();
        let mut limit = RateLimit::default();
        let shown = (0..1000).filter(|at| limit.allows(after(begun, at / 2))).count();
        assert_eq!(shown, 50);
        assert_eq!(limit.poll_summary(after(begun, 999)), None);
        assert_eq!(limit.due(), Some(after(begun, 1000)));
        assert_eq!(limit.poll_summary(after(begun, 1000)), Some(950));
        assert_eq!(limit.due(), None);
        assert!(limit.allows(after(begun, 1001)));
    }

    #[test]
    fn events_below_the_limit_are_never_withheld() {
        let begun = clock::monotonic();
        let mut limit = RateLimit::default();
        assert!((0..1000).all(|at| limit.allows(after(begun, at * 21))));
        assert_eq!(limit.due(), None);
    }
}
