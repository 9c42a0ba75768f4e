//! Decides whether a connection looks out for its peer's next bytes for a moment before it lets its thread sleep.
//!
//! To be woken takes longer than to answer a request. A client that asks one request after the other, each as soon as
//! it has the answer to the last, would wait for that each time.

use std::time::{Duration, Instant};

/// How long it looks out at a time, at most.
const WINDOW: Duration = Duration::from_micros(50);
/// A silence in which it might have been worth it, the time of falling asleep and being woken included.
const SHORT: Duration = Duration::from_micros(150);
/// How often in a row it may find what it looks for before others of the same thread have their turn: what they may have
/// to wait is so many windows, and as many requests.
const TURNS_MAX: u8 = 4;
/// The most short silences that must come before it looks again, after it has often looked for nothing.
const CAUTION_MAX: u32 = 1024;

/// What a connection has learned of the silences of its peer. Pure: `handle_bytes` says that something came,
/// `poll_silence` what to do while nothing does.
#[derive(Debug)]
pub struct BusyPoll {
    /// When the silence began, if there is one.
    since: Option<Instant>,
    /// Whether it looks out in this silence.
    is_looking: bool,
    /// Short silences in a row.
    short: u32,
    /// How many of them make it look.
    caution: u32,
    turns: u8,
}

/// What to do while nothing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Look until then, and ask again.
    LookUntil(Instant),
    /// Let others have their turn, and ask again.
    Yield,
    /// Sleep.
    Sleep,
}

impl Default for BusyPoll {
    /// That of a connection of whose peer nothing is known.
    fn default() -> Self {
        Self { since: None, is_looking: false, short: 0, caution: 1, turns: 0 }
    }
}

impl BusyPoll {
    /// What to do now, when there is nothing to read. `is_alone`: since this peer's last bytes, none came from others.
    pub fn poll_silence(&mut self, now: Instant, is_alone: bool) -> Silence {
        let since = *self.since.get_or_insert_with(|| {
            self.is_looking = self.short >= self.caution;
            now
        });
        if !self.is_looking || !is_alone {
            self.is_looking = false;
            return Silence::Sleep;
        }
        let Some(until) = since.checked_add(WINDOW).filter(|until| now < *until) else {
            self.is_looking = false;
            self.short = 0;
            self.caution = self.caution.saturating_mul(2).min(CAUTION_MAX);
            return Silence::Sleep;
        };
        if self.turns >= TURNS_MAX {
            self.turns = 0;
            return Silence::Yield;
        }
        Silence::LookUntil(until)
    }

    /// Something came; `is_alone` as above.
    pub fn handle_bytes(&mut self, now: Instant, is_alone: bool) {
        // Bytes that were not waited for say nothing of the next silence.
        let Some(since) = self.since.take() else { return };
        if self.is_looking {
            self.caution = 1;
            self.turns = self.turns.saturating_add(1);
        }
        let is_short = is_alone && now.saturating_duration_since(since) < SHORT;
        self.short = if is_short { self.short.saturating_add(1) } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUICK: Duration = Duration::from_micros(20);
    const LATE: Duration = Duration::from_micros(100);

    /// A peer, and what it costs to look out for it.
    struct Peer {
        lookout: BusyPoll,
        now: Instant,
        /// The time that was spent in looking for nothing.
        lost: Duration,
        /// How often its bytes were found by looking.
        found: u32,
        yields: u32,
    }

    impl Peer {
        fn new() -> Self {
            let now = crate::clock::monotonic();
            Self { lookout: BusyPoll::default(), now, lost: Duration::ZERO, found: 0, yields: 0 }
        }

        /// Nothing comes for so long, then something does.
        fn is_silent_for(&mut self, silence: Duration, is_alone: bool) {
            let arrival = self.now + silence;
            loop {
                match self.lookout.poll_silence(self.now, is_alone) {
                    Silence::LookUntil(until) if arrival < until => {
                        self.found += 1;
                        break;
                    }
                    Silence::LookUntil(until) => {
                        self.lost += until - self.now;
                        self.now = until;
                    }
                    Silence::Yield => self.yields += 1,
                    Silence::Sleep => break,
                }
            }
            self.now = arrival;
            self.lookout.handle_bytes(self.now, is_alone);
        }
    }

    #[test]
    fn whoever_answers_at_once_is_not_slept_for_again() {
        let mut peer = Peer::new();
        for _ in 0..100 {
            peer.is_silent_for(QUICK, true);
        }
        assert_eq!((peer.found, peer.lost), (99, Duration::ZERO));
    }

    #[test]
    fn others_have_their_turn_between() {
        let mut peer = Peer::new();
        for _ in 0..100 {
            peer.is_silent_for(QUICK, true);
        }
        assert_eq!(peer.yields, 24);
    }

    #[test]
    fn nobody_is_looked_out_for_while_others_are_heard() {
        let mut peer = Peer::new();
        for _ in 0..100 {
            peer.is_silent_for(QUICK, false);
        }
        assert_eq!(peer.found, 0);
        peer.is_silent_for(QUICK, true);
        peer.is_silent_for(QUICK, true);
        assert_eq!(peer.found, 1);
        assert_eq!(peer.lookout.poll_silence(peer.now, false), Silence::Sleep);
    }

    #[test]
    fn whoever_is_always_a_little_late_costs_next_to_nothing() {
        let mut peer = Peer::new();
        for _ in 0..100_000 {
            peer.is_silent_for(LATE, true);
        }
        assert!(peer.lost > Duration::ZERO);
        assert!(peer.lost < LATE * 100_000 / 500, "{:?}", peer.lost);
    }

    #[test]
    fn whoever_becomes_quick_is_looked_out_for_in_the_end() {
        let mut peer = Peer::new();
        for _ in 0..100_000 {
            peer.is_silent_for(LATE, true);
        }
        for _ in 0..2 * CAUTION_MAX {
            peer.is_silent_for(QUICK, true);
        }
        assert!(peer.found >= CAUTION_MAX, "{}", peer.found);
    }

    proptest! {
        #[test]
        fn no_more_than_half_of_the_time_is_looked_for_nothing_and_one_window(
            silences in prop::collection::vec((1u64..300, prop::bool::weighted(0.9)), 0..500),
        ) {
            let mut peer = Peer::new();
            let begun = peer.now;
            for (silence_us, is_alone) in silences {
                peer.is_silent_for(Duration::from_micros(silence_us), is_alone);
            }
            prop_assert!(peer.lost <= (peer.now - begun) + WINDOW);
        }
    }
}
