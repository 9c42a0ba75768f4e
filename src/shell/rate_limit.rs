//! Keeps a flood of events from the terminal: so many a second are shown, the rest is counted (pure).

use std::time::{Duration, Instant};

/// How many events are shown in a second.
pub const SHOWN_MAX: u32 = 50;

const SECOND: Duration = Duration::from_secs(1);

/// A counter of events.
///
/// Contract: the owner asks [`Flood::admits`] for each event, and calls [`Flood::poll_summary`] at [`Flood::due`].
#[derive(Debug, Default)]
pub struct Flood {
    begun: Option<Instant>,
    shown: u32,
    withheld: u64,
}

impl Flood {
    /// Whether an event that comes now is shown; if not, it is counted.
    pub fn admits(&mut self, now: Instant) -> bool {
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

    /// When there is something to sum up, if there is.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let begun = self.begun.filter(|_| self.withheld > 0)?;
        begun.checked_add(SECOND)
    }

    /// How many events were not shown, if it is time to say so.
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

    #[expect(clippy::disallowed_methods, reason = "any instant will do, and the shell knows no clock")]
    fn any() -> Instant {
        Instant::now()
    }

    fn after(begun: Instant, ms: u64) -> Instant {
        begun + Duration::from_millis(ms)
    }

    #[test]
    fn fifty_a_second_are_shown_and_the_rest_is_counted() {
        let begun = any();
        let mut flood = Flood::default();
        let shown = (0..1000).filter(|at| flood.admits(after(begun, at / 2))).count();
        assert_eq!(shown, 50);
        assert_eq!(flood.poll_summary(after(begun, 999)), None);
        assert_eq!(flood.due(), Some(after(begun, 1000)));
        assert_eq!(flood.poll_summary(after(begun, 1000)), Some(950));
        assert_eq!(flood.due(), None);
        assert!(flood.admits(after(begun, 1001)));
    }

    #[test]
    fn a_trickle_is_never_withheld() {
        let begun = any();
        let mut flood = Flood::default();
        assert!((0..1000).all(|at| flood.admits(after(begun, at * 21))));
        assert_eq!(flood.due(), None);
    }
}
