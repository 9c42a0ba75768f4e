//! Memory budget: what clients make the broker hold, in bytes, with one bound for all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Charges are multiples of this, so that small changes cost no write to memory that all threads share.
const GRAIN_BYTES: usize = 1024;
/// A charge is not reduced by less than this, for the same reason.
const SLACK_BYTES: usize = 4 * 1024;

/// What memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Connections whose client has not authenticated: handshakes, CONNECT packets.
    Unauthenticated,
    /// Buffers of the other connections: partial packets, deferred packets, answers that are not written.
    Connections,
    /// Sessions: messages that are queued or not acknowledged, subscriptions, Will Messages.
    Sessions,
    /// Retained messages.
    Retained,
}

impl MemoryKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Unauthenticated, Self::Connections, Self::Sessions, Self::Retained];

    /// Returns the name of the kind in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unauthenticated => "unauthenticated",
            Self::Connections => "connections",
            Self::Sessions => "sessions",
            Self::Retained => "retained",
        }
    }

    /// Returns the eighths of the budget that the kind may take at most.
    fn eighths(self) -> usize {
        match self {
            Self::Unauthenticated => 1,
            Self::Connections | Self::Sessions => 6,
            // Retained messages are limited to a quarter. The rest is for replaced ones that are still being delivered.
            Self::Retained => 3,
        }
    }
}

/// The bytes that clients make the broker hold.
///
/// A holder (a session, a connection) may take at most as much as it leaves free. So a single one can take half, many large
/// ones take equal parts, and there is always room for a small one: as in shared packet buffers of switches, where this
/// rule is called dynamic thresholds. Nothing is searched, and no lock is taken.
#[derive(Debug)]
pub struct MemoryBudget {
    bytes_max: usize,
    /// The bytes in use by kind. There is no counter of all, because each one that threads share costs time.
    used_by: [AtomicUsize; MemoryKind::ALL.len()],
}

impl MemoryBudget {
    /// Returns an unused budget.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, used_by: Default::default() }
    }

    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns the bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used_by.iter().map(|used| used.load(Ordering::Relaxed)).fold(0, usize::wrapping_add)
    }

    /// Returns the bytes in use for one kind.
    #[must_use]
    pub fn used_by(&self, kind: MemoryKind) -> usize {
        self.counter(kind).load(Ordering::Relaxed)
    }

    /// Whether a holder of `held` bytes may take `more`. Two threads that ask at the same time may both be permitted.
    #[must_use]
    pub fn has_room(&self, kind: MemoryKind, held: usize, more: usize) -> bool {
        let kind_max = self.max_of(kind);
        let free = |bytes_max: usize, used: usize| bytes_max.checked_sub(used.saturating_add(more));
        let free_of_kind = free(kind_max, self.used_by(kind));
        let free = free(self.bytes_max, self.used());
        let free = free.zip(free_of_kind).map(|(all, of_kind)| all.min(of_kind));
        free.is_some_and(|free| held.saturating_add(more) <= free)
    }

    /// Whether a message for a client that is not connected may be queued; its session holds `held` bytes. Half of the
    /// sessions' memory is kept for clients that can receive their messages.
    #[must_use]
    pub fn has_room_to_wait(&self, held: usize, more: usize) -> bool {
        let half = self.max_of(MemoryKind::Sessions) / 2;
        self.has_room(MemoryKind::Sessions, held.max(half), more)
    }

    /// Whether more than a quarter is in use, so that buffers without contents are released.
    #[must_use]
    pub fn is_scarce(&self) -> bool {
        self.used() > self.bytes_max / 4
    }

    /// Whether more than half is in use, so that connections that hold much and do not read are closed.
    #[must_use]
    pub fn is_under_pressure(&self) -> bool {
        self.used() > self.bytes_max / 2
    }

    fn max_of(&self, kind: MemoryKind) -> usize {
        (self.bytes_max / 8).saturating_mul(kind.eighths())
    }

    fn counter(&self, kind: MemoryKind) -> &AtomicUsize {
        let [unauthenticated, connections, sessions, retained] = &self.used_by;
        match kind {
            MemoryKind::Unauthenticated => unauthenticated,
            MemoryKind::Connections => connections,
            MemoryKind::Sessions => sessions,
            MemoryKind::Retained => retained,
        }
    }

    // The counters wrap around rather than saturate: each byte is added and subtracted exactly once.
    fn add(&self, kind: MemoryKind, bytes: usize) {
        self.counter(kind).fetch_add(bytes, Ordering::Relaxed);
    }

    fn subtract(&self, kind: MemoryKind, bytes: usize) {
        self.counter(kind).fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What one holder is charged. The bytes are given back when it is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<MemoryBudget>,
    kind: MemoryKind,
    /// A multiple of [`GRAIN_BYTES`].
    bytes: usize,
}

impl Charge {
    /// Returns a charge of `bytes`.
    #[must_use]
    pub fn new(budget: &Arc<MemoryBudget>, kind: MemoryKind, bytes: usize) -> Self {
        let mut charge = Self { budget: Arc::clone(budget), kind, bytes: 0 };
        charge.set(bytes);
        charge
    }

    #[must_use]
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the holder may hold `bytes` in all.
    #[must_use]
    pub fn may_hold(&self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        more == 0 || self.budget.has_room(self.kind, self.bytes, more)
    }

    /// Charges the holder for `bytes` in all, which it holds already.
    pub fn set(&mut self, bytes: usize) {
        if bytes <= self.bytes && self.bytes.saturating_sub(bytes) < SLACK_BYTES {
            return;
        }
        // A sum that overflowed would be more than the address space has.
        let bytes = bytes.checked_next_multiple_of(GRAIN_BYTES).unwrap_or(bytes);
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.budget.add(self.kind, more),
            None => self.budget.subtract(self.kind, self.bytes.saturating_sub(bytes)),
        }
        self.bytes = bytes;
    }

    /// Charges another kind from now on.
    pub fn move_to(&mut self, kind: MemoryKind) {
        self.budget.subtract(self.kind, self.bytes);
        self.budget.add(kind, self.bytes);
        self.kind = kind;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.subtract(self.kind, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: usize = 1024 * 1024;

    #[test]
    fn a_charge_is_given_back_when_its_holder_is_dropped() {
        let budget = Arc::new(MemoryBudget::new(MEGABYTE));
        let mut charge = Charge::new(&budget, MemoryKind::Unauthenticated, 10_000);
        assert_eq!(budget.used(), 10 * 1024);
        charge.move_to(MemoryKind::Connections);
        charge.set(100_000);
        assert_eq!(budget.used_by(MemoryKind::Connections), 98 * 1024);
        charge.set(1);
        assert_eq!(budget.used(), 1024);
        drop(charge);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn small_changes_of_a_charge_do_not_write_to_the_budget() {
        let budget = Arc::new(MemoryBudget::new(MEGABYTE));
        let mut charge = Charge::new(&budget, MemoryKind::Sessions, 3_000);
        for bytes in [3_072, 0, 1_500, 3_000] {
            charge.set(bytes);
            assert_eq!(budget.used(), 3_072, "{bytes}");
        }
    }

    #[test]
    fn however_many_take_what_they_can_there_is_room_for_a_small_one() {
        let budget = Arc::new(MemoryBudget::new(MEGABYTE));
        let mut greedy: Vec<_> = (0..50).map(|_| Charge::new(&budget, MemoryKind::Sessions, 0)).collect();
        for _ in 0..1_000 {
            for charge in &mut greedy {
                let more = charge.bytes + 4_096;
                if charge.may_hold(more) {
                    charge.set(more);
                }
            }
        }
        let (least, most) =
            (greedy.iter().map(|one| one.bytes).min(), greedy.iter().map(|one| one.bytes).max());
        assert!(least >= Some(8_192) && most <= Some(20_480), "{least:?} to {most:?}");
        assert!(budget.used() < MEGABYTE * 6 / 8);
        assert!(budget.has_room(MemoryKind::Sessions, 0, 4_096));
        assert!(!budget.has_room_to_wait(0, 1));
    }

    #[test]
    fn a_kind_leaves_room_for_the_others() {
        for kind in MemoryKind::ALL {
            let budget = Arc::new(MemoryBudget::new(MEGABYTE));
            let mut charges = Vec::new();
            while budget.has_room(kind, 0, 1_024) {
                charges.push(Charge::new(&budget, kind, 1_024));
            }
            for other in MemoryKind::ALL.into_iter().filter(|other| *other != kind) {
                assert!(budget.has_room(other, 0, 10_000), "{kind:?} {other:?}");
            }
        }
    }
}
