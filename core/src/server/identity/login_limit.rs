//! Limits of logins: a few passwords are checked at a time, in turns by address and by user, and few may fail.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hashbrown::{DefaultHashBuilder, HashMap};
use tokio::sync::oneshot;

use crate::broker::{Counter, address};
use crate::clock;

/// The period in which failed logins are counted.
const PERIOD: Duration = Duration::from_secs(60);
/// The most addresses and users that are counted in a period. Others are not limited, but still take turns.
const COUNTED_MAX: usize = 20_000;

/// Origin of a login: hashes of the client's address and of the user at this address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    address: u64,
    user: u64,
}

/// Limits of logins: of password checks, each of which takes a processor and 19 MiB or more for a while, and of failed ones.
///
/// Checks run in turns by address, and those of one address in turns by user: many checks from one address delay checks
/// from other addresses by one turn each.
#[derive(Debug)]
pub struct LoginLimit {
    state: Mutex<State>,
    /// The most failed logins of one address in a period; half of it is the most of one user at an address.
    failures_max: u32,
    /// The number of logins that the limit has refused.
    limited: Counter,
    hasher: DefaultHashBuilder,
}

#[derive(Debug)]
struct State {
    /// The number of checks that may start.
    free: usize,
    waiting: Turns<Turns<Line>>,
    /// The number of checks in `waiting`.
    waiting_count: usize,
    next_ticket: u64,
    failures: Failures,
}

/// The right to run one check. Dropping it lets the next one start.
#[derive(Debug)]
pub struct Permit(Arc<LoginLimit>);

impl LoginLimit {
    #[must_use]
    pub fn new(checks_max: usize, failures_max: u32) -> Self {
        let state = State {
            free: checks_max,
            waiting: Turns::default(),
            waiting_count: 0,
            next_ticket: 0,
            failures: Failures::default(),
        };
        let (limited, hasher) = (Counter::default(), DefaultHashBuilder::default());
        Self { state: Mutex::new(state), failures_max, limited, hasher }
    }

    /// Returns the origin of a login. `remote` is an address with a port, or any other text for a connection in memory.
    #[must_use]
    pub fn origin(&self, remote: &str, user: &str) -> Origin {
        let address = self.hash(address(remote));
        Origin { address, user: self.hash((address, user)) }
    }

    /// Returns whether too many logins from this origin have failed, and counts a login that is refused for it.
    pub fn is_limited(&self, origin: Origin) -> bool {
        let is_limited = self.state().failures.is_limited(origin, self.failures_max, clock::monotonic());
        self.limited.add(u64::from(is_limited));
        is_limited
    }

    pub fn count_failure(&self, origin: Origin) {
        self.state().failures.count(origin, clock::monotonic());
    }

    /// Returns the number of checks that wait for their turn.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state().waiting_count
    }

    /// Returns the number of logins that have been refused because too many had failed.
    #[must_use]
    pub fn limited(&self) -> u64 {
        self.limited.get()
    }

    #[must_use]
    pub fn failures_max(&self) -> u32 {
        self.failures_max
    }

    /// Waits for a turn. If the future is dropped, its place in the queue is free.
    pub async fn acquire(self: &Arc<Self>, origin: Origin) -> Option<Permit> {
        let (ticket, turn) = {
            let mut state = self.state();
            if let Some(free) = state.free.checked_sub(1) {
                state.free = free;
                return Some(Permit(Arc::clone(self)));
            }
            let ticket = state.next_ticket;
            // 64 bits do not overflow: each ticket takes a CONNECT.
            state.next_ticket = ticket.wrapping_add(1);
            let (sender, turn) = oneshot::channel();
            state.waiting.line(origin.address).line(origin.user).0.insert(ticket, sender);
            state.waiting_count = state.waiting_count.saturating_add(1);
            (ticket, turn)
        };
        let _place = Place { limit: self, origin, ticket };
        // The sender is dropped with the queue only, which this future holds.
        turn.await.ok()
    }

    fn release(self: &Arc<Self>) {
        let next = {
            let mut state = self.state();
            let next = state.waiting.pop();
            match next {
                Some(_) => state.waiting_count = state.waiting_count.saturating_sub(1),
                None => state.free = state.free.saturating_add(1),
            }
            next
        };
        // If the receiver has just been dropped, so is the permit, which lets the next check start.
        drop(next.map(|next| next.send(Permit(Arc::clone(self)))));
    }

    fn hash(&self, value: impl Hash) -> u64 {
        self.hasher.hash_one(value)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// A place in the queue, given up when it is dropped.
struct Place<'a> {
    limit: &'a LoginLimit,
    origin: Origin,
    ticket: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.limit.state();
        let mut was_waiting = false;
        state.waiting.change(self.origin.address, |users| {
            users.change(self.origin.user, |line| was_waiting = line.0.remove(&self.ticket).is_some());
        });
        if was_waiting {
            state.waiting_count = state.waiting_count.saturating_sub(1);
        }
    }
}

/// What can wait: one line, or several that take turns.
trait Waiting: Default {
    fn pop(&mut self) -> Option<oneshot::Sender<Permit>>;

    fn is_empty(&self) -> bool;
}

/// Checks of one origin, in the order of their arrival.
#[derive(Debug, Default)]
struct Line(BTreeMap<u64, oneshot::Sender<Permit>>);

impl Waiting for Line {
    fn pop(&mut self) -> Option<oneshot::Sender<Permit>> {
        self.0.pop_first().map(|(_, first)| first)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Lines that take turns. None of them is empty.
#[derive(Debug)]
struct Turns<L> {
    /// The keys of the lines, by their turn.
    order: BTreeMap<u64, u64>,
    /// The turn of each line, and the line.
    lines: HashMap<u64, (u64, L)>,
    next_turn: u64,
}

impl<L> Default for Turns<L> {
    fn default() -> Self {
        Self { order: BTreeMap::new(), lines: HashMap::new(), next_turn: 0 }
    }
}

impl<L: Waiting> Turns<L> {
    /// Returns the line with this key. A new one has the last turn; the caller must add to it.
    fn line(&mut self, key: u64) -> &mut L {
        let Self { order, lines, next_turn } = self;
        let (_, line) = lines.entry(key).or_insert_with(|| {
            let turn = *next_turn;
            *next_turn = turn.wrapping_add(1);
            order.insert(turn, key);
            (turn, L::default())
        });
        line
    }

    /// Changes the line with this key, if there is one, and removes it if that has emptied it.
    fn change(&mut self, key: u64, change: impl FnOnce(&mut L)) {
        let Some((turn, line)) = self.lines.get_mut(&key) else { return };
        change(line);
        if line.is_empty() {
            self.order.remove(turn);
            self.lines.remove(&key);
        }
    }
}

impl<L: Waiting> Waiting for Turns<L> {
    fn pop(&mut self) -> Option<oneshot::Sender<Permit>> {
        let (_, key) = self.order.pop_first()?;
        let (turn, line) = self.lines.get_mut(&key)?;
        let next = line.pop();
        if line.is_empty() {
            self.lines.remove(&key);
        } else {
            *turn = self.next_turn;
            self.next_turn = turn.wrapping_add(1);
            self.order.insert(*turn, key);
        }
        next
    }

    fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// Counts of the failed logins of a period (pure).
#[derive(Debug, Default)]
struct Failures {
    since: Option<Instant>,
    /// By address, and by user at an address.
    counts: HashMap<u64, u32>,
}

impl Failures {
    fn is_limited(&mut self, origin: Origin, failures_max: u32, now: Instant) -> bool {
        self.end_period(now);
        let count = |key: u64| self.counts.get(&key).copied().unwrap_or(0);
        count(origin.address) >= failures_max || count(origin.user) >= failures_max.div_ceil(2)
    }

    fn count(&mut self, origin: Origin, now: Instant) {
        self.end_period(now);
        self.since.get_or_insert(now);
        for key in [origin.address, origin.user] {
            if self.counts.len() < COUNTED_MAX || self.counts.contains_key(&key) {
                let count = self.counts.entry(key).or_insert(0);
                *count = count.saturating_add(1);
            }
        }
    }

    fn end_period(&mut self, now: Instant) {
        if self.since.is_some_and(|since| now.saturating_duration_since(since) >= PERIOD) {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Acquiring<'a> = Pin<Box<dyn Future<Output = Option<Permit>> + 'a>>;

    fn poll(acquiring: &mut Acquiring<'_>) -> Option<Permit> {
        match acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => permit,
            Poll::Pending => None,
        }
    }

    /// Lets one check after the other run, and returns their names in this order. The future of a name that is dropped is
    /// polled once and dropped.
    fn order(logins: &[(&'static str, &str, &str)], dropped: &[&str]) -> Vec<&'static str> {
        let limit = Arc::new(LoginLimit::new(1, 10));
        let acquire = |remote, user| -> Acquiring<'_> { Box::pin(limit.acquire(limit.origin(remote, user))) };
        let mut running = poll(&mut acquire("192.0.2.9:1", "x"));
        assert!(running.is_some());
        let mut waiting = Vec::new();
        for (name, remote, user) in logins {
            let mut acquiring = acquire(remote, user);
            assert!(poll(&mut acquiring).is_none());
            waiting.push((*name, acquiring));
        }
        waiting.retain(|(name, _)| !dropped.contains(name));
        assert_eq!(limit.waiting(), waiting.len());
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(running.take());
            let next = waiting.iter_mut().position(|(_, acquiring)| {
                running = poll(acquiring);
                running.is_some()
            });
            order.push(waiting.remove(next.unwrap()).0);
        }
        assert_eq!(limit.waiting(), 0);
        drop(running);
        assert!(poll(&mut acquire("192.0.2.9:1", "x")).is_some());
        order
    }

    #[test]
    fn addresses_take_turns_and_so_do_the_users_of_an_address() {
        let logins = [
            ("a1", "192.0.2.1:1", "ann"),
            ("a2", "192.0.2.1:2", "ann"),
            ("a3", "192.0.2.1:3", "ann"),
            ("b1", "192.0.2.1:4", "bob"),
            ("c1", "192.0.2.2:1", "ann"),
            ("b2", "192.0.2.1:5", "bob"),
            ("c2", "192.0.2.2:2", "ann"),
        ];
        assert_eq!(order(&logins, &[]), ["a1", "c1", "b1", "c2", "a2", "b2", "a3"]);
        assert_eq!(order(&logins, &["a1", "c1", "c2"]), ["a2", "b1", "a3", "b2"]);
    }

    #[test]
    fn the_interface_part_of_an_ipv6_address_makes_no_other_origin() {
        let limit = LoginLimit::new(1, 10);
        let origin = |remote: &str| limit.origin(remote, "ann");
        assert_eq!(origin("[2001:db8::1]:1"), origin("[2001:db8::2]:2"));
        assert_ne!(origin("[2001:db8::1]:1"), origin("[2001:db8:0:1::1]:1"));
        assert_eq!(origin("[::ffff:192.0.2.1]:1"), origin("192.0.2.1:7"));
        assert_ne!(origin("192.0.2.1:1"), origin("192.0.2.2:1"));
        assert_ne!(origin("memory"), origin("192.0.2.1:1"));
        assert_ne!(limit.origin("192.0.2.1:1", "ann"), limit.origin("192.0.2.1:1", "bob"));
    }

    #[test]
    fn failed_logins_of_an_address_and_of_a_user_are_limited_for_a_period() {
        let limit = LoginLimit::new(1, 4);
        let (ann, bob) = (limit.origin("192.0.2.1:1", "ann"), limit.origin("192.0.2.1:1", "bob"));
        let other = limit.origin("192.0.2.2:1", "ann");
        let now = clock::monotonic();
        let mut failures = Failures::default();
        let limited =
            |failures: &mut Failures, now| [ann, bob, other].map(|of| failures.is_limited(of, 4, now));
        failures.count(ann, now);
        assert_eq!(limited(&mut failures, now), [false, false, false]);
        failures.count(ann, now);
        assert_eq!(limited(&mut failures, now), [true, false, false]);
        failures.count(bob, now);
        failures.count(limit.origin("192.0.2.1:1", "eve"), now);
        let last = now + PERIOD - Duration::from_millis(1);
        assert_eq!(limited(&mut failures, last), [true, true, false]);
        assert_eq!(limited(&mut failures, now + PERIOD), [false, false, false]);
    }

    #[test]
    fn the_number_of_counted_origins_is_bounded() {
        let now = clock::monotonic();
        let mut failures = Failures::default();
        for key in 0..COUNTED_MAX as u64 {
            failures.count(Origin { address: 2 * key, user: 2 * key + 1 }, now);
        }
        assert_eq!(failures.counts.len(), COUNTED_MAX);
        let late = Origin { address: u64::MAX, user: u64::MAX - 1 };
        (0..10).for_each(|_| failures.count(late, now));
        assert!(!failures.is_limited(late, 4, now));
    }
}
