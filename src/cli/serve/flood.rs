//! Keeps one client from filling the log: so many lines, then a count. Pure: time comes as an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How many lines one may cause within [`WINDOW`].
const LINES_MAX: u32 = 100;
/// After so long a count is told, and lines are again.
const WINDOW: Duration = Duration::from_secs(10);
/// How many are told apart; all others share what one may cause.
const SUBJECTS_MAX: usize = 1_000;

/// Who has caused how many lines lately.
#[derive(Debug, Default)]
pub struct Flood {
    subjects: HashMap<String, Lately>,
}

#[derive(Debug)]
struct Lately {
    since: Instant,
    lines: u32,
    untold: u64,
}

/// Lines that were not told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untold {
    /// Who has caused them; empty: several.
    pub subject: String,
    /// How many.
    pub count: u64,
}

impl Flood {
    /// Whether a line that somebody causes is told; if not, it is counted.
    pub fn admit(&mut self, subject: &str, now: Instant) -> bool {
        let is_known = self.subjects.contains_key(subject);
        let subject = if is_known || self.subjects.len() < SUBJECTS_MAX { subject } else { "" };
        let lately =
            self.subjects.entry(subject.to_owned()).or_insert(Lately { since: now, lines: 0, untold: 0 });
        if lately.lines < LINES_MAX {
            lately.lines = lately.lines.saturating_add(1);
            return true;
        }
        lately.untold = lately.untold.saturating_add(1);
        false
    }

    /// Begins anew with those whose time is over; what was not told of them is to be told.
    pub fn poll(&mut self, now: Instant) -> Vec<Untold> {
        self.take(|lately| now.saturating_duration_since(lately.since) >= WINDOW)
    }

    /// Begins anew with all.
    pub fn end(&mut self) -> Vec<Untold> {
        self.take(|_| true)
    }

    fn take(&mut self, is_over: impl Fn(&Lately) -> bool) -> Vec<Untold> {
        let over = self.subjects.extract_if(|_, lately| is_over(lately));
        let untold = over.map(|(subject, Lately { untold: count, .. })| Untold { subject, count });
        untold.filter(|untold| untold.count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_who_floods_is_counted_and_others_are_heard() {
        let now = crate::clock::monotonic();
        let mut flood = Flood::default();
        let told = (0..500).filter(|_| flood.admit("loud", now)).count();
        assert_eq!(told, 100);
        assert!(flood.admit("quiet", now));
        assert!(flood.poll(now + WINDOW / 2).is_empty());
        let untold = flood.poll(now + WINDOW);
        assert_eq!(untold, [Untold { subject: "loud".to_owned(), count: 400 }]);
        assert!(flood.admit("loud", now + WINDOW));
        assert!(flood.end().is_empty());
    }

    #[test]
    fn so_many_that_they_cannot_be_told_apart_share_one_allowance() {
        let now = crate::clock::monotonic();
        let mut flood = Flood::default();
        let told = (0..5_000).filter(|number| flood.admit(&number.to_string(), now)).count();
        assert_eq!(told, 1_100);
        assert_eq!(flood.subjects.len(), 1_001);
        assert_eq!(flood.end(), [Untold { subject: String::new(), count: 3_900 }]);
    }
}
