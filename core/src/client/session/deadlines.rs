//! Deadlines of the requests, in order (pure).

use std::collections::VecDeque;
use std::time::Instant;

/// The deadlines of the requests, by number.
///
/// All requests have the same time limit, so their deadlines are added in order and need no sorted collection. The deadline of
/// a request that has ended is removed when it is the first one, or together with many others.
#[derive(Debug, Default)]
pub(super) struct Deadlines(VecDeque<(Instant, u64)>);

/// The most deadlines of ended requests that are stored if few requests are pending.
const ENDED_MAX: usize = 64;

impl Deadlines {
    /// Adds a deadline that is not before the last one.
    pub(super) fn add(&mut self, at: Instant, id: u64) {
        self.0.push_back((at, id));
    }

    pub(super) fn first(&self) -> Option<Instant> {
        self.0.front().map(|(at, _)| *at)
    }

    /// Removes the first deadline if it is due, and returns its request.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<u64> {
        self.0.pop_front_if(|(at, _)| *at <= now).map(|(_, id)| id)
    }

    /// Handles that requests have ended, and `pending` are left.
    pub(super) fn handle_ended(&mut self, pending: usize, is_pending: impl Fn(u64) -> bool) {
        while self.0.pop_front_if(|(_, id)| !is_pending(*id)).is_some() {}
        // A single request without a response must not keep the deadlines of all that follow it.
        if self.0.len() > pending.saturating_mul(2).saturating_add(ENDED_MAX) {
            self.0.retain(|(_, id)| is_pending(*id));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn deadlines_are_due_in_order_and_those_of_ended_requests_are_not() {
        let start = crate::clock::monotonic();
        let at = |ms| start + Duration::from_millis(ms);
        let mut deadlines = Deadlines::default();
        for id in 1..=4 {
            deadlines.add(at(id * 10), id);
        }
        deadlines.handle_ended(2, |id| id == 2 || id == 4);
        assert_eq!(deadlines.first(), Some(at(20)));
        assert_eq!(deadlines.pop_due(at(19)), None);
        assert_eq!(deadlines.pop_due(at(20)), Some(2));
        deadlines.handle_ended(1, |id| id == 4);
        assert_eq!(deadlines.pop_due(at(99)), Some(4));
        assert_eq!((deadlines.first(), deadlines.pop_due(at(99))), (None, None));
    }

    #[test]
    fn a_request_without_a_response_does_not_keep_the_deadlines_of_later_ones() {
        let start = crate::clock::monotonic();
        let mut deadlines = Deadlines::default();
        for id in 0..10_000 {
            deadlines.add(start, id);
            deadlines.handle_ended(1, |id| id == 0);
            assert!(deadlines.0.len() <= 2 + ENDED_MAX, "{}", deadlines.0.len());
        }
        assert_eq!(deadlines.pop_due(start), Some(0));
    }
}
