//! Rate limit for events on the terminal: some are shown each second, of the others the last one of each key (pure).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

/// How many events are shown in a second as they arrive.
const SHOWN_MAX: usize = 50;
/// Of how many keys the last event is stored.
pub const KEYS_MAX: usize = 1_000;
/// How many bytes the stored events have, with their keys.
const BYTES_MAX: usize = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

/// The events of the current second.
///
/// Contract: the owner calls [`RateLimit::offer`] for each event, and [`RateLimit::poll_summary`] at [`RateLimit::due`].
#[derive(Debug, Default)]
pub struct RateLimit {
    begun: Option<Instant>,
    shown: usize,
    /// The number of withheld events.
    withheld: u64,
    /// The last withheld event of each key: its place in the order of arrival, and its text.
    last: BTreeMap<Vec<u8>, (u64, String)>,
    bytes: usize,
    /// Whether an event was neither shown nor stored.
    has_dropped_key: bool,
}

/// What is shown of the withheld events.
#[derive(Debug, PartialEq, Eq)]
pub struct Summary {
    /// The number of events that are not shown.
    pub omitted: u64,
    /// The last event of each key, in the order of arrival.
    pub last: Vec<String>,
    /// Whether the last event of some key is missing, because the bounds of the storage were reached.
    pub is_incomplete: bool,
}

impl RateLimit {
    /// Returns the text of an event that is shown now, or stores it as the last one of its key. `has_room` is whether the
    /// terminal keeps up with the output.
    pub fn offer(&mut self, now: Instant, key: &[u8], text: String, has_room: bool) -> Option<String> {
        let is_over = self.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= SECOND);
        if is_over && self.withheld == 0 {
            self.begun = Some(now);
            self.shown = 0;
        }
        // Behind a withheld event no other is shown, so that the order stays.
        if self.shown < SHOWN_MAX && has_room && self.withheld == 0 {
            self.shown = self.shown.saturating_add(1);
            return Some(text);
        }
        self.withheld = self.withheld.saturating_add(1);
        self.store(key, text);
        None
    }

    fn store(&mut self, key: &[u8], text: String) {
        let is_full = self.last.len() >= KEYS_MAX;
        let entry = self.last.entry(key.to_owned());
        let before = match &entry {
            Entry::Occupied(stored) => key.len().saturating_add(stored.get().1.len()),
            Entry::Vacant(_) => 0,
        };
        let size = key.len().saturating_add(text.len());
        let bytes = self.bytes.saturating_sub(before).saturating_add(size);
        if bytes > BYTES_MAX || (is_full && matches!(entry, Entry::Vacant(_))) {
            // An older event of the key would be taken for its last one.
            if let Entry::Occupied(stored) = entry {
                stored.remove();
                self.bytes = self.bytes.saturating_sub(before);
            }
            self.has_dropped_key = true;
            return;
        }
        self.bytes = bytes;
        entry.insert_entry((self.withheld, text));
    }

    /// Returns when a summary is due, if events were withheld.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let begun = self.begun.filter(|_| self.withheld > 0)?;
        begun.checked_add(SECOND)
    }

    /// Returns the summary of the withheld events once it is due.
    pub fn poll_summary(&mut self, now: Instant) -> Option<Summary> {
        self.due().filter(|due| *due <= now)?;
        self.take_summary(now)
    }

    /// Returns the summary of the withheld events before it is due, and starts a new second.
    pub fn take_summary(&mut self, now: Instant) -> Option<Summary> {
        if self.withheld == 0 {
            return None;
        }
        let mut last: Vec<_> = std::mem::take(&mut self.last).into_values().collect();
        last.sort_unstable_by_key(|(number, _)| *number);
        let shown = last.len() as u64;
        let summary = Summary {
            omitted: self.withheld.saturating_sub(shown),
            last: last.into_iter().map(|(_, text)| text).collect(),
            is_incomplete: self.has_dropped_key,
        };
        *self = Self { begun: Some(now), shown: summary.last.len(), ..Self::default() };
        Some(summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn after(begun: Instant, ms: u64) -> Instant {
        begun + Duration::from_millis(ms)
    }

    /// Offers an event whose text names its key and number.
    fn offer(limit: &mut RateLimit, now: Instant, key: &str, number: u64) -> bool {
        limit.offer(now, key.as_bytes(), format!("{key}={number}"), true).is_some()
    }

    #[test]
    fn fifty_events_a_second_are_shown_and_then_the_last_of_each_key() {
        let begun = clock::monotonic();
        let mut limit = RateLimit::default();
        let keys = ["a", "b"];
        let shown = (0..1000)
            .filter(|at| offer(&mut limit, after(begun, at / 2), keys[usize::from(*at < 900)], *at))
            .count();
        assert_eq!(shown, 50);
        assert_eq!(limit.poll_summary(after(begun, 999)), None);
        assert_eq!(limit.due(), Some(after(begun, 1000)));
        let last = vec!["b=899".to_owned(), "a=999".to_owned()];
        let summary = Summary { omitted: 948, last, is_incomplete: false };
        assert_eq!(limit.poll_summary(after(begun, 1000)), Some(summary));
        assert_eq!(limit.due(), None);
        assert!(offer(&mut limit, after(begun, 1001), "a", 1000));
    }

    #[test]
    fn events_below_the_limit_are_never_withheld() {
        let begun = clock::monotonic();
        let mut limit = RateLimit::default();
        assert!((0..1000).all(|at| offer(&mut limit, after(begun, at * 21), "k", at)));
        assert_eq!(limit.due(), None);
    }

    #[test]
    fn the_stored_events_are_bounded_in_number_and_bytes() {
        let now = clock::monotonic();
        let mut limit = RateLimit { begun: Some(now), shown: SHOWN_MAX, ..RateLimit::default() };
        for key in 0..5000 {
            offer(&mut limit, now, &format!("{key:04}"), 1);
        }
        // A key that is stored already is updated.
        offer(&mut limit, now, "0000", 2);
        let summary = limit.take_summary(now).unwrap();
        assert_eq!((summary.last.len(), summary.omitted, summary.is_incomplete), (KEYS_MAX, 4001, true));
        assert_eq!(summary.last.last().map(String::as_str), Some("0000=2"));

        let mut limit = RateLimit { begun: Some(now), shown: SHOWN_MAX, ..RateLimit::default() };
        offer(&mut limit, now, "k", 1);
        for key in 0..100 {
            limit.offer(now, &[key], "v".repeat(BYTES_MAX / 10), true);
        }
        assert!(limit.bytes <= BYTES_MAX);
        // The stored event of this key is no longer its last one.
        limit.offer(now, b"k", "v".repeat(BYTES_MAX), true);
        let summary = limit.take_summary(now).unwrap();
        assert!(summary.last.len() == 9 && summary.is_incomplete, "{}", summary.last.len());
        assert!(!summary.last.contains(&"k=1".to_owned()));
    }

    #[test]
    fn a_terminal_that_is_behind_gets_summaries_only() {
        let now = clock::monotonic();
        let mut limit = RateLimit::default();
        assert_eq!(limit.offer(now, b"k", "1".to_owned(), false), None);
        assert_eq!(limit.offer(now, b"k", "2".to_owned(), true), None, "it would be shown before the first");
        let summary = Summary { omitted: 1, last: vec!["2".to_owned()], is_incomplete: false };
        assert_eq!(limit.take_summary(now), Some(summary));
        assert_eq!(limit.take_summary(now), None);
    }
}
