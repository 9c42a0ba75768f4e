//! Busy polling: decides whether a connection waits for its client's next bytes without letting its thread sleep.
//!
//! Waking a thread takes longer than answering a request. A client that sends one request after the other, each as soon
//! as it has the last answer, would wait for that each time.

use std::time::{Duration, Instant};

/// The longest busy poll.
const WINDOW: Duration = Duration::from_micros(50);
/// A pause shorter than this counts as short: it includes the time to fall asleep and to be woken.
const SHORT: Duration = Duration::from_micros(150);
/// The most successful polls in a row before other connections of the thread get a turn. They wait for at most this many
/// windows and requests.
const TURNS_MAX: u8 = 4;
/// The most short pauses in a row that are required before the next poll, after many polls without success.
const CAUTION_MAX: u32 = 1024;

/// What is known of the pauses of one client. Pure: `handle_bytes` notes that bytes have arrived, `poll_pause` returns
/// what to do while none do.
///
/// Each poll without success doubles the number of short pauses that must come before the next one, and a successful poll
/// resets it: a client that is always a little late costs nearly nothing, and a fast one is served without a delay.
#[derive(Debug)]
pub struct BusyPoll {
    /// When the current pause began.
    since: Option<Instant>,
    /// Whether the connection polls in the current pause.
    is_polling: bool,
    /// The number of short pauses in a row.
    short: u32,
    /// How many of them are required for a poll.
    caution: u32,
    turns: u8,
}

/// What to do while no bytes arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseAction {
    /// Poll until this time, then ask again.
    PollUntil(Instant),
    /// Let other connections run, then ask again.
    Yield,
    /// Sleep until the system reports bytes.
    Sleep,
}

impl Default for BusyPoll {
    /// Returns the state of a new connection: the first short pause is enough for a poll.
    fn default() -> Self {
        Self { since: None, is_polling: false, short: 0, caution: 1, turns: 0 }
    }
}

impl BusyPoll {
    /// Returns what to do when there is nothing to read.
    ///
    /// `is_alone` is whether no other connection of the broker has received bytes since this one did. If others have, the
    /// pause counts for nothing, so that `now` is not read.
    pub fn poll_pause(&mut self, now: impl FnOnce() -> Instant, is_alone: bool) -> PauseAction {
        if !is_alone {
            (self.since, self.is_polling, self.short) = (None, false, 0);
            return PauseAction::Sleep;
        }
        let now = now();
        let since = *self.since.get_or_insert_with(|| {
            self.is_polling = self.short >= self.caution;
            now
        });
        if !self.is_polling {
            return PauseAction::Sleep;
        }
        let Some(until) = since.checked_add(WINDOW).filter(|until| now < *until) else {
            self.is_polling = false;
            self.short = 0;
            self.caution = self.caution.saturating_mul(2).min(CAUTION_MAX);
            return PauseAction::Sleep;
        };
        if self.turns >= TURNS_MAX {
            self.turns = 0;
            return PauseAction::Yield;
        }
        PauseAction::PollUntil(until)
    }

    /// Notes that bytes have arrived; `now` and `is_alone` as for [`BusyPoll::poll_pause`].
    pub fn handle_bytes(&mut self, now: impl FnOnce() -> Instant, is_alone: bool) {
        // Bytes that were there at once tell nothing about the next pause.
        let Some(since) = self.since.take() else { return };
        if self.is_polling {
            self.caution = 1;
            self.turns = self.turns.saturating_add(1);
        }
        let is_short = is_alone && now().saturating_duration_since(since) < SHORT;
        self.short = if is_short { self.short.saturating_add(1) } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUICK: Duration = Duration::from_micros(20);
    const LATE: Duration = Duration::from_micros(100);

    /// A simulated client, and the cost of polling for it.
    struct Peer {
        busy_poll: BusyPoll,
        now: Instant,
        /// The time of polls without success.
        lost: Duration,
        /// The number of successful polls.
        found: u32,
        yields: u32,
    }

    impl Peer {
        fn new() -> Self {
            let now = crate::clock::monotonic();
            Self { busy_poll: BusyPoll::default(), now, lost: Duration::ZERO, found: 0, yields: 0 }
        }

        /// Simulates a pause, then bytes.
        fn pause(&mut self, pause: Duration, is_alone: bool) {
            let arrival = self.now + pause;
            loop {
                match self.busy_poll.poll_pause(|| self.now, is_alone) {
                    PauseAction::PollUntil(until) if arrival < until => {
                        self.found += 1;
                        break;
                    }
                    PauseAction::PollUntil(until) => {
                        self.lost += until - self.now;
                        self.now = until;
                    }
                    PauseAction::Yield => self.yields += 1,
                    PauseAction::Sleep => break,
                }
            }
            self.now = arrival;
            self.busy_poll.handle_bytes(|| self.now, is_alone);
        }
    }

    #[test]
    fn a_client_that_answers_at_once_is_polled_from_the_second_pause_on() {
        let mut peer = Peer::new();
        for _ in 0..100 {
            peer.pause(QUICK, true);
        }
        assert_eq!((peer.found, peer.lost), (99, Duration::ZERO));
    }

    #[test]
    fn other_connections_get_a_turn_between_polls() {
        let mut peer = Peer::new();
        for _ in 0..100 {
            peer.pause(QUICK, true);
        }
        assert_eq!(peer.yields, 24);
    }

    #[test]
    fn there_is_no_poll_while_other_connections_receive_bytes() {
        let mut peer = Peer::new();
        for _ in 0..100 {
            peer.pause(QUICK, false);
        }
        assert_eq!(peer.found, 0);
        peer.pause(QUICK, true);
        peer.pause(QUICK, true);
        assert_eq!(peer.found, 1);
        assert_eq!(peer.busy_poll.poll_pause(|| peer.now, false), PauseAction::Sleep);
    }

    #[test]
    fn a_client_that_is_always_a_little_late_costs_nearly_nothing() {
        let mut peer = Peer::new();
        for _ in 0..100_000 {
            peer.pause(LATE, true);
        }
        assert!(peer.lost > Duration::ZERO);
        assert!(peer.lost < LATE * 100_000 / 500, "{:?}", peer.lost);
    }

    #[test]
    fn a_client_that_becomes_fast_is_polled_again() {
        let mut peer = Peer::new();
        for _ in 0..100_000 {
            peer.pause(LATE, true);
        }
        for _ in 0..2 * CAUTION_MAX {
            peer.pause(QUICK, true);
        }
        assert!(peer.found >= CAUTION_MAX, "{}", peer.found);
    }

    proptest! {
        #[test]
        fn polls_without_success_take_at_most_the_time_of_the_pauses_and_one_window(
            pauses in prop::collection::vec((1u64..300, prop::bool::weighted(0.9)), 0..500),
        ) {
            let mut peer = Peer::new();
            let begun = peer.now;
            for (pause_us, is_alone) in pauses {
                peer.pause(Duration::from_micros(pause_us), is_alone);
            }
            prop_assert!(peer.lost <= (peer.now - begun) + WINDOW);
        }
    }
}
