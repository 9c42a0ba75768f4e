//! One holder's way to a lock as a state machine: try, wait, hold, renew, lose (pure).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::protocol::Timestamp;

/// Over how long the waiters of a lock that has come free spread their tries.
///
/// Each sees the winner's SET and stays quiet, so of many waiters only a few try.
pub const SPREAD: Duration = Duration::from_millis(100);
/// After how long a try that had no answer is made again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// How a lock is to be held.
#[derive(Clone, Copy, Debug)]
pub struct LeaseOptions {
    /// How long the lease lasts from the last renewal on.
    pub ttl: Duration,
    /// How long after a renewal the next one is sent. Shorter than `ttl`.
    pub renew: Duration,
    /// How long before the lease's end, not renewed, the lock is given up: the time that its user needs to stop.
    pub margin: Duration,
    /// How long to wait for a lock that somebody else holds; none: for ever.
    pub wait: Option<Duration>,
    /// Any number, another one for each holder.
    pub seed: u64,
}

/// What the machine asks of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send `SET key holder NEX PX ttl`; answered by [`Lock::handle_tried`].
    Try,
    /// Watch the key; its state and every change of it go to [`Lock::handle_change`].
    Watch,
    /// End the watch.
    Unwatch,
}

/// What became of a try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    /// `+OK`, and the version that came with it.
    Applied(Timestamp),
    /// `:-1`: somebody else holds the key.
    NotApplied,
    /// No answer: the lease may have been taken or renewed, or not.
    Unanswered,
}

/// What the owner should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockEvent {
    /// Somebody else holds the lock. Told once, before any waiting.
    Busy,
    /// The lock is held, until `end` if it is not renewed.
    Acquired {
        /// The fencing token.
        token: Timestamp,
        /// The lease's end.
        end: Instant,
    },
    /// The lock is held for longer.
    Renewed {
        /// The newer fencing token.
        token: Timestamp,
        /// The lease's new end.
        end: Instant,
    },
    /// The lock is lost, or will be at `end`: whoever relies on it must have stopped by then. The last event.
    Lost {
        /// Why.
        reason: Loss,
        /// The lease's end; may be over.
        end: Instant,
    },
    /// The time to wait is over. The last event.
    GaveUp,
}

/// Why a lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// No renewal succeeded in time.
    NotRenewed,
    /// The store says that the key holds something else.
    Taken,
}

/// One holder's way to a lock.
///
/// Contract: the owner carries out every step of [`Lock::poll_step`], calls [`Lock::handle_timeout`] at
/// [`Lock::poll_timeout`], and reports every try with the time *before* it was sent: from there the lease is
/// reckoned, so that it ends here no later than in the store, whatever the network does.
#[derive(Debug)]
pub struct Lock {
    terms: LeaseOptions,
    /// When waiting ends.
    give_up: Option<Instant>,
    state: State,
    busy_told: bool,
    watching: bool,
    /// The watch said so while a try was under way: its answer may be older than that.
    freed: bool,
    chance: u64,
    steps: VecDeque<Step>,
    events: VecDeque<LockEvent>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// A try is under way.
    Trying,
    /// Somebody else holds the lock.
    Waiting {
        retry: Instant,
    },
    Held {
        end: Instant,
        /// When to renew; none: a renewal is under way.
        renew: Option<Instant>,
    },
    Over,
}

impl Lock {
    /// A lock that is wanted from now on: the first step is a try.
    #[must_use]
    pub fn new(terms: LeaseOptions, now: Instant) -> Self {
        Self {
            give_up: terms.wait.map(|wait| after(now, wait)),
            state: State::Trying,
            busy_told: false,
            watching: false,
            freed: false,
            // A state of zero would stay zero.
            chance: terms.seed | 1,
            steps: VecDeque::from([Step::Try]),
            events: VecDeque::new(),
            terms,
        }
    }

    /// A try has had its answer, or will have none. `sent` is when it was sent, or earlier.
    pub fn handle_tried(&mut self, sent: Instant, tried: Tried, now: Instant) {
        match (self.state, tried) {
            (State::Over, _) => {}
            (State::Trying, Tried::Applied(token)) => self.acquire(token, sent, now),
            (State::Trying, Tried::NotApplied) => self.wait(now),
            (State::Trying, Tried::Unanswered) => {
                self.state = State::Waiting { retry: after(now, RETRY_AFTER) }
            }
            (State::Held { .. }, Tried::Applied(token)) => self.renew(token, sent, now),
            (State::Held { end, .. }, Tried::NotApplied) => self.lose(Loss::Taken, end),
            (State::Held { end, .. }, Tried::Unanswered) => {
                let renew = Some(after(now, RETRY_AFTER.min(self.terms.renew)));
                self.state = State::Held { end, renew };
                self.handle_timeout(now);
            }
            // An answer that was given up already.
            (State::Waiting { .. }, _) => {}
        }
    }

    fn acquire(&mut self, token: Timestamp, sent: Instant, now: Instant) {
        let end = after(sent, self.terms.ttl);
        if self.is_too_late(end, now) {
            // The lease may be over before anything can be done under it: the next try renews it.
            self.steps.push_back(Step::Try);
            return;
        }
        self.unwatch();
        self.state = State::Held { end, renew: Some(after(sent, self.terms.renew)) };
        self.events.push_back(LockEvent::Acquired { token, end });
    }

    fn renew(&mut self, token: Timestamp, sent: Instant, now: Instant) {
        let end = after(sent, self.terms.ttl);
        self.state = State::Held { end, renew: Some(after(sent, self.terms.renew)) };
        // An answer can lie unread for longer than the lease lasts: a stopped process, a stalled network.
        self.handle_timeout(now);
        if matches!(self.state, State::Held { .. }) {
            self.events.push_back(LockEvent::Renewed { token, end });
        }
    }

    fn wait(&mut self, now: Instant) {
        if !self.busy_told {
            self.busy_told = true;
            self.events.push_back(LockEvent::Busy);
        }
        if self.give_up.is_some_and(|give_up| give_up <= now) {
            return self.give_up();
        }
        if !self.watching {
            self.watching = true;
            self.steps.push_back(Step::Watch);
        }
        let retry = match self.freed {
            true => after(now, self.spread()),
            false => self.unwatched_retry(now),
        };
        self.state = State::Waiting { retry };
    }

    /// When to try though nothing was heard: the holder's lease is unknown, ours is the best guess.
    fn unwatched_retry(&mut self, now: Instant) -> Instant {
        let spread = self.spread();
        after(after(now, self.terms.ttl), spread)
    }

    /// The watch says that the key exists (again), or that it does not (any more).
    pub fn handle_change(&mut self, exists: bool, now: Instant) {
        self.freed = !exists;
        if let State::Waiting { retry } = self.state {
            let retry = if exists {
                self.unwatched_retry(now)
            } else {
                let spread = self.spread();
                retry.min(after(now, spread))
            };
            self.state = State::Waiting { retry };
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        match self.state {
            State::Waiting { .. } if self.give_up.is_some_and(|give_up| give_up <= now) => self.give_up(),
            State::Waiting { retry } if retry <= now => {
                self.state = State::Trying;
                self.freed = false;
                self.steps.push_back(Step::Try);
            }
            State::Held { end, .. } if self.is_too_late(end, now) => self.lose(Loss::NotRenewed, end),
            State::Held { end, renew: Some(renew) } if renew <= now => {
                self.state = State::Held { end, renew: None };
                self.steps.push_back(Step::Try);
            }
            State::Trying | State::Waiting { .. } | State::Held { .. } | State::Over => {}
        }
    }

    fn is_too_late(&self, end: Instant, now: Instant) -> bool {
        end.saturating_duration_since(now) <= self.terms.margin
    }

    /// When [`Lock::handle_timeout`] wants to be called, if nothing comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { retry } => self.give_up.into_iter().chain([retry]).min(),
            State::Held { end, renew } => {
                let lost = end.checked_sub(self.terms.margin).unwrap_or(end);
                renew.into_iter().chain([lost]).min()
            }
            State::Trying | State::Over => None,
        }
    }

    /// Whether the lock is held, for all that is known here.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.state, State::Held { .. })
    }

    /// What to do next, if anything.
    pub fn poll_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// What to know next, if anything.
    pub fn poll_event(&mut self) -> Option<LockEvent> {
        self.events.pop_front()
    }

    fn unwatch(&mut self) {
        if std::mem::take(&mut self.watching) {
            self.steps.push_back(Step::Unwatch);
        }
    }

    fn give_up(&mut self) {
        self.unwatch();
        self.state = State::Over;
        self.events.push_back(LockEvent::GaveUp);
    }

    fn lose(&mut self, reason: Loss, end: Instant) {
        self.state = State::Over;
        self.events.push_back(LockEvent::Lost { reason, end });
    }

    /// Some time up to [`SPREAD`], another one each time (xorshift64).
    fn spread(&mut self) -> Duration {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        let millis = u64::try_from(SPREAD.as_millis()).unwrap_or(1).max(1);
        Duration::from_millis(self.chance.checked_rem(millis).unwrap_or(0))
    }
}

/// A time so far off that the clock cannot name it is as good as now plus nothing: leases are short.
fn after(from: Instant, by: Duration) -> Instant {
    from.checked_add(by).unwrap_or(from)
}

#[cfg(test)]
mod tests;
