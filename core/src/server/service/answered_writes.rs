//! The writes that another instance of the cluster has handled lately (pure).

use std::collections::{BTreeMap, VecDeque};

use crate::server::duplicate_detection::Fingerprint;

/// How long a write is known, in milliseconds: longer than any instance holds a request.
const KEPT_MS: u64 = 60_000;
/// The most writes that are known: those of a minute at 17,000 a second. 40 MiB.
const WRITES_MAX: usize = 1024 * 1024;
/// The most writes that are forgotten with each new one, because requests wait meanwhile.
const FORGOTTEN_MAX: usize = 8;

/// The fingerprints of writes whose responses are in etcd.
///
/// Of the responses, a bounded number is recorded for each client. A write without a recorded response must not be applied
/// once more, when an instance that takes over handles the requests that it has held.
#[derive(Debug, Default)]
pub(super) struct AnsweredWrites {
    in_order: VecDeque<(u64, Fingerprint)>,
    /// When each was noted last, in monotonic milliseconds.
    /// Not a hash table: a large one is rehashed at once, and all requests wait meanwhile.
    known: BTreeMap<Fingerprint, u64>,
}

impl AnsweredWrites {
    /// Notes a write, and forgets those that no instance holds any more.
    pub(super) fn note(&mut self, fingerprint: Fingerprint, monotonic_ms: u64) {
        self.in_order.push_back((monotonic_ms, fingerprint));
        self.known.insert(fingerprint, monotonic_ms);
        let is_old = |at_ms: u64| at_ms.saturating_add(KEPT_MS) <= monotonic_ms;
        for _ in 0..FORGOTTEN_MAX {
            let is_full = self.in_order.len() > WRITES_MAX;
            let Some((at_ms, first)) = self.in_order.pop_front_if(|(at_ms, _)| is_full || is_old(*at_ms))
            else {
                break;
            };
            if self.known.get(&first) == Some(&at_ms) {
                self.known.remove(&first);
            }
        }
    }

    pub(super) fn contains(&self, fingerprint: Fingerprint) -> bool {
        self.known.contains_key(&fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_known_for_a_time_since_they_were_noted_last() {
        let mut answered = AnsweredWrites::default();
        let [first, second, third] = [1, 2, 3].map(Fingerprint);
        answered.note(first, 0);
        answered.note(second, 10);
        answered.note(first, 20);
        answered.note(third, KEPT_MS + 15);
        assert!(answered.contains(first) && !answered.contains(second) && answered.contains(third));
        answered.note(second, 2 * KEPT_MS + 15);
        assert!(!answered.contains(first) && !answered.contains(third));
        assert_eq!((answered.in_order.len(), answered.known.len()), (1, 1));
    }

    #[test]
    fn a_bounded_number_of_writes_is_known() {
        let mut answered = AnsweredWrites::default();
        (0..WRITES_MAX as u64 + 8).for_each(|number| answered.note(Fingerprint(number), 0));
        assert_eq!((answered.in_order.len(), answered.known.len()), (WRITES_MAX, WRITES_MAX));
        assert!(!answered.contains(Fingerprint(0)));
    }
}
