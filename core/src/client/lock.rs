//! A holder's lock as a state machine: try, wait, hold, renew, lose (pure).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::protocol::Timestamp;

/// The time over which the waiters of a released lock spread their attempts. Each one sees the winner's SET and does not try,
/// so only a few of many waiters send a request.
pub const SPREAD: Duration = Duration::from_millis(100);
/// Delay after an attempt without a response.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Options of a lease.
#[derive(Clone, Copy, Debug)]
pub struct LeaseOptions {
    /// Length of the lease, from the last renewal.
    pub ttl: Duration,
    /// Time between renewals. Shorter than `ttl`.
    pub renew: Duration,
    /// Time before the end of the lease at which a lock that could not be renewed counts as lost: the time that the holder's
    /// work needs to stop.
    pub margin: Duration,
    /// Time to wait for a lock that another holder has. None: no limit.
    pub wait: Option<Duration>,
    /// The seed of the jitter, different for each holder.
    pub seed: u64,
}

/// An action for the owner of the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAction {
    /// Send `SET key holder NEX PX ttl`; answered by [`Lock::handle_try_result`].
    Try,
    /// Watch the key; report its state and every change with [`Lock::handle_change`].
    Watch,
    /// End the watch.
    Unwatch,
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TryResult {
    /// The response is `+OK` with this version, the fencing token.
    Applied(Timestamp),
    /// The response is `:-1`: another holder has the lock.
    NotApplied,
    /// There is no response: the lease may or may not have been acquired or renewed.
    Unanswered,
}

/// An event of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockEvent {
    /// Another holder has the lock. Reported once, before any waiting.
    Busy,
    /// The lock was acquired, with this fencing token. The lease ends at `end` if it is not renewed.
    Acquired { token: Timestamp, end: Instant },
    /// The lease was renewed until `end`, with a newer fencing token.
    Renewed { token: Timestamp, end: Instant },
    /// The lock is lost, or will be at `end`: work that relies on it must have stopped by then. The last event.
    Lost {
        reason: LossReason,
        /// The end of the lease; may be in the past.
        end: Instant,
    },
    /// The waiting time is over. The last event.
    GaveUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// No renewal succeeded in time.
    NotRenewed,
    /// The store reports that the key has another value.
    Taken,
}

/// A lock as one holder sees it.
///
/// Contract: the owner carries out every action of [`Lock::poll_action`], calls [`Lock::handle_timeout`] at
/// [`Lock::poll_timeout`], and reports the result of every attempt with a time *before* it was sent. The lease is computed
/// from that time, so that it ends here no later than in the store, whatever the delay of the network.
#[derive(Debug)]
pub struct Lock {
    options: LeaseOptions,
    /// The end of the waiting time.
    give_up: Option<Instant>,
    state: State,
    is_busy_reported: bool,
    is_watching: bool,
    /// The watch reported the key as absent during an attempt, whose response may be older than this report.
    is_released: bool,
    random: u64,
    actions: VecDeque<LockAction>,
    events: VecDeque<LockEvent>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// An attempt has no result yet.
    Trying,
    /// Another holder has the lock, or an attempt has failed.
    Waiting {
        retry: Instant,
    },
    Held {
        end: Instant,
        /// The time of the next renewal. None: a renewal has no result yet.
        renew: Option<Instant>,
    },
    Over,
}

impl Lock {
    /// Starts to acquire the lock: the first action is an attempt.
    #[must_use]
    pub fn new(options: LeaseOptions, now: Instant) -> Self {
        Self {
            give_up: options.wait.map(|wait| after(now, wait)),
            state: State::Trying,
            is_busy_reported: false,
            is_watching: false,
            is_released: false,
            // The generator would stay at a state of zero.
            random: options.seed | 1,
            actions: VecDeque::from([LockAction::Try]),
            events: VecDeque::new(),
            options,
        }
    }

    /// Handles the result of an attempt. `sent` is the time when it was sent, or earlier.
    pub fn handle_try_result(&mut self, sent: Instant, tried: TryResult, now: Instant) {
        match (self.state, tried) {
            (State::Over, _) => {}
            (State::Trying, TryResult::Applied(token)) => self.acquire(token, sent, now),
            (State::Trying, TryResult::NotApplied) => self.wait(now),
            (State::Trying, TryResult::Unanswered) => {
                self.state = State::Waiting { retry: after(now, RETRY_AFTER) }
            }
            (State::Held { .. }, TryResult::Applied(token)) => self.renew(token, sent, now),
            (State::Held { end, .. }, TryResult::NotApplied) => self.lose(LossReason::Taken, end),
            (State::Held { end, .. }, TryResult::Unanswered) => {
                let renew = Some(after(now, RETRY_AFTER.min(self.options.renew)));
                self.state = State::Held { end, renew };
                self.handle_timeout(now);
            }
            // The attempt was given up already.
            (State::Waiting { .. }, _) => {}
        }
    }

    fn acquire(&mut self, token: Timestamp, sent: Instant, now: Instant) {
        let end = after(sent, self.options.ttl);
        if self.is_too_late(end, now) {
            // The lease would end before any work could be done. The next attempt renews it.
            self.actions.push_back(LockAction::Try);
            return;
        }
        self.unwatch();
        self.state = State::Held { end, renew: Some(after(sent, self.options.renew)) };
        self.events.push_back(LockEvent::Acquired { token, end });
    }

    fn renew(&mut self, token: Timestamp, sent: Instant, now: Instant) {
        let end = after(sent, self.options.ttl);
        self.state = State::Held { end, renew: Some(after(sent, self.options.renew)) };
        // After a stop of the process or of the network the response may be older than the lease.
        self.handle_timeout(now);
        if matches!(self.state, State::Held { .. }) {
            self.events.push_back(LockEvent::Renewed { token, end });
        }
    }

    fn wait(&mut self, now: Instant) {
        if !self.is_busy_reported {
            self.is_busy_reported = true;
            self.events.push_back(LockEvent::Busy);
        }
        if self.give_up.is_some_and(|give_up| give_up <= now) {
            return self.give_up();
        }
        if !self.is_watching {
            self.is_watching = true;
            self.actions.push_back(LockAction::Watch);
        }
        let retry = match self.is_released {
            true => after(now, self.spread()),
            false => self.fallback_retry(now),
        };
        self.state = State::Waiting { retry };
    }

    /// Returns the time of the next attempt without a report of the watch. The length of the holder's lease is unknown; the
    /// best estimate is the length of our own.
    fn fallback_retry(&mut self, now: Instant) -> Instant {
        let spread = self.spread();
        after(after(now, self.options.ttl), spread)
    }

    /// Handles a report of the watch: the key exists, or does not.
    pub fn handle_change(&mut self, exists: bool, now: Instant) {
        self.is_released = !exists;
        if let State::Waiting { retry } = self.state {
            let retry = if exists {
                self.fallback_retry(now)
            } else {
                let spread = self.spread();
                retry.min(after(now, spread))
            };
            self.state = State::Waiting { retry };
        }
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, now: Instant) {
        match self.state {
            State::Waiting { .. } if self.give_up.is_some_and(|give_up| give_up <= now) => self.give_up(),
            State::Waiting { retry } if retry <= now => {
                self.state = State::Trying;
                self.is_released = false;
                self.actions.push_back(LockAction::Try);
            }
            State::Held { end, .. } if self.is_too_late(end, now) => self.lose(LossReason::NotRenewed, end),
            State::Held { end, renew: Some(renew) } if renew <= now => {
                self.state = State::Held { end, renew: None };
                self.actions.push_back(LockAction::Try);
            }
            State::Trying | State::Waiting { .. } | State::Held { .. } | State::Over => {}
        }
    }

    /// Renews a lock that is held now, not at the next regular time: this process was stopped, or the connection was
    /// restored and the store may have been restarted.
    pub fn renew_now(&mut self, now: Instant) {
        if let State::Held { renew: Some(renew), .. } = &mut self.state {
            *renew = now;
        }
        self.handle_timeout(now);
    }

    fn is_too_late(&self, end: Instant, now: Instant) -> bool {
        end.saturating_duration_since(now) <= self.options.margin
    }

    /// Returns the time at which [`Lock::handle_timeout`] must be called, if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { retry } => self.give_up.into_iter().chain([retry]).min(),
            State::Held { end, renew } => {
                let lost = end.checked_sub(self.options.margin).unwrap_or(end);
                renew.into_iter().chain([lost]).min()
            }
            State::Trying | State::Over => None,
        }
    }

    /// Returns whether the lock is held, as far as this holder knows.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.state, State::Held { .. })
    }

    /// Returns the next action.
    pub fn poll_action(&mut self) -> Option<LockAction> {
        self.actions.pop_front()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<LockEvent> {
        self.events.pop_front()
    }

    fn unwatch(&mut self) {
        if std::mem::take(&mut self.is_watching) {
            self.actions.push_back(LockAction::Unwatch);
        }
    }

    fn give_up(&mut self) {
        self.unwatch();
        self.state = State::Over;
        self.events.push_back(LockEvent::GaveUp);
    }

    fn lose(&mut self, reason: LossReason, end: Instant) {
        self.state = State::Over;
        self.events.push_back(LockEvent::Lost { reason, end });
    }

    /// Returns a pseudo-random time below [`SPREAD`] (xorshift64).
    fn spread(&mut self) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let millis = u64::try_from(SPREAD.as_millis()).unwrap_or(1).max(1);
        Duration::from_millis(self.random.checked_rem(millis).unwrap_or(0))
    }
}

/// Adds a duration to a time. Leases are far too short for an overflow.
fn after(from: Instant, by: Duration) -> Instant {
    from.checked_add(by).unwrap_or(from)
}

#[cfg(test)]
mod tests;
