//! Memory budget: what clients make the broker hold, in bytes, with one bound for all and a share for each owner.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Charges are multiples of this, so that small changes cost no write to memory that all threads share.
const GRAIN_BYTES: usize = 1024;
/// A charge is not reduced by less than this, for the same reason.
const SLACK_BYTES: usize = 4 * 1024;

/// What each connection may hold with its session however full the budget is: it is charged for it from its first byte on,
/// and never refused below it. A CONNECT, a few subscriptions, a SET and its answer need no more. An idle connection takes
/// about 12 KiB.
///
/// All connections together have `connections_max` times as much, 160 MB with the defaults. An eighth of the budget is set
/// aside for it; more of it exceeds the budget rather than refuses a client that holds little.
pub const RESERVED_BYTES: usize = CONNECTION_SHARE_BYTES + SESSION_SHARE_BYTES;
/// The part of [`RESERVED_BYTES`] for the buffers of a connection.
pub const CONNECTION_SHARE_BYTES: usize = 12 * 1024;
/// The part of [`RESERVED_BYTES`] for the session of a connected client.
pub const SESSION_SHARE_BYTES: usize = 4 * 1024;

/// A holder may take at most so many times what its owner leaves: nearly all of it while the owner has one, and those of an
/// owner at its bound still have room for a small one among them.
const HOLDER_FACTOR: usize = 4;

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
    /// [`RESERVED_BYTES`] of each connection, which the others do not count again.
    Reserved,
}

impl MemoryKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Unauthenticated, Self::Connections, Self::Sessions, Self::Retained, Self::Reserved];

    /// Returns the name of the kind in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unauthenticated => "unauthenticated",
            Self::Connections => "connections",
            Self::Sessions => "sessions",
            Self::Retained => "retained",
            Self::Reserved => "reserved",
        }
    }

    /// Returns the eighths of the budget that the kind may take at most.
    fn eighths(self) -> usize {
        match self {
            Self::Unauthenticated => 1,
            Self::Connections | Self::Sessions => 6,
            Self::Retained => 2,
            // The number of connections is its bound.
            Self::Reserved => 8,
        }
    }
}

/// The bytes in use by kind. There is no counter of all, because each one that threads share costs time.
#[derive(Debug, Default)]
struct Counters([AtomicUsize; MemoryKind::ALL.len()]);

impl Counters {
    fn of(&self, kind: MemoryKind) -> &AtomicUsize {
        let Self([unauthenticated, connections, sessions, retained, reserved]) = self;
        match kind {
            MemoryKind::Unauthenticated => unauthenticated,
            MemoryKind::Connections => connections,
            MemoryKind::Sessions => sessions,
            MemoryKind::Retained => retained,
            MemoryKind::Reserved => reserved,
        }
    }

    fn get(&self, kind: MemoryKind) -> usize {
        self.of(kind).load(Ordering::Relaxed)
    }

    fn all(&self) -> usize {
        MemoryKind::ALL.map(|kind| self.get(kind)).into_iter().fold(0, usize::wrapping_add)
    }

    /// Returns the bytes in use without those that are reserved.
    fn unreserved(&self) -> usize {
        // Not a difference of two sums: another thread may change the counter of the reserved bytes between them.
        let kinds = MemoryKind::ALL.into_iter().filter(|kind| *kind != MemoryKind::Reserved);
        kinds.map(|kind| self.get(kind)).fold(0, usize::wrapping_add)
    }

    // The counters wrap around rather than saturate: each byte is added and subtracted exactly once.
    fn add(&self, kind: MemoryKind, bytes: usize) {
        self.of(kind).fetch_add(bytes, Ordering::Relaxed);
    }

    fn subtract(&self, kind: MemoryKind, bytes: usize) {
        self.of(kind).fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The bytes that clients make the broker hold.
///
/// An owner (a user, a certificate or an address) may take at most as much as it leaves free, over all of its sessions,
/// connections and retained messages: in all, and of each kind. So a single one can take half, many large ones take equal
/// parts, and there is always room for a small one: as in shared packet buffers of switches, where this rule is called
/// dynamic thresholds. At the bound the largest owners are refused. Nothing is searched, and no lock is taken. The
/// holders of an owner (a session, a connection) share what it may take by the same rule: see `HOLDER_FACTOR`. Besides,
/// each connection has [`RESERVED_BYTES`].
#[derive(Debug)]
pub struct MemoryBudget {
    bytes_max: usize,
    /// What is set aside of it for the connections.
    reserve_bytes: usize,
    used: Counters,
    /// The owners that hold something.
    accounts: Mutex<HashMap<Arc<str>, Weak<Account>>>,
}

impl MemoryBudget {
    /// Returns an unused budget for at most so many connections.
    #[must_use]
    pub fn new(bytes_max: usize, connections_max: u32) -> Self {
        let connections_max = usize::try_from(connections_max).unwrap_or(usize::MAX);
        let reserve_bytes = connections_max.saturating_mul(RESERVED_BYTES).min(bytes_max / 8);
        Self { bytes_max, reserve_bytes, used: Counters::default(), accounts: Mutex::default() }
    }

    /// Returns the account of an owner, which exists as long as anything refers to it.
    #[must_use]
    pub fn account(self: &Arc<Self>, owner: &str) -> Arc<Account> {
        let mut accounts = self.accounts();
        if let Some(account) = accounts.get(owner).and_then(Weak::upgrade) {
            return account;
        }
        let owner: Arc<str> = owner.into();
        let account = Arc::new(Account {
            owner: Arc::clone(&owner),
            budget: Arc::clone(self),
            used: Counters::default(),
        });
        accounts.insert(owner, Arc::downgrade(&account));
        account
    }

    fn accounts(&self) -> MutexGuard<'_, HashMap<Arc<str>, Weak<Account>>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns the bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.all()
    }

    /// Returns the bytes in use for one kind.
    #[must_use]
    pub fn used_by(&self, kind: MemoryKind) -> usize {
        self.used.get(kind)
    }

    /// Whether an owner that holds nothing may take `bytes`.
    #[must_use]
    pub fn has_room(&self, kind: MemoryKind, bytes: usize) -> bool {
        self.free_after(kind, bytes).is_some_and(|(all, of_kind)| bytes <= all.min(of_kind))
    }

    /// Returns what is left of all and of a kind after `more`; None if there is less.
    fn free_after(&self, kind: MemoryKind, more: usize) -> Option<(usize, usize)> {
        let free = |bytes_max: usize, used: usize| bytes_max.checked_sub(used.saturating_add(more));
        let all = free(self.unreserved_max(), self.used.unreserved())?;
        let of_kind = free((self.bytes_max / 8).saturating_mul(kind.eighths()), self.used_by(kind))?;
        Some((all, of_kind))
    }

    fn unreserved_max(&self) -> usize {
        self.bytes_max.saturating_sub(self.reserve_bytes)
    }

    /// Whether more than a quarter is in use, so that buffers without contents are released.
    #[must_use]
    pub fn is_scarce(&self) -> bool {
        self.used.unreserved() > self.bytes_max / 4
    }

    /// Whether more than half is in use.
    fn is_under_pressure(&self) -> bool {
        self.used.unreserved() > self.bytes_max / 2
    }
}

/// What one owner holds, over all of its sessions, connections and retained messages.
#[derive(Debug)]
pub struct Account {
    owner: Arc<str>,
    budget: Arc<MemoryBudget>,
    used: Counters,
}

impl Account {
    /// Returns the name of the owner: see [`Principal::owner`](super::principal::Principal::owner).
    #[must_use]
    pub fn owner(&self) -> &Arc<str> {
        &self.owner
    }

    /// Returns the account of an owner in a budget of its own.
    #[cfg(test)]
    #[must_use]
    pub fn test(owner: &str, bytes_max: usize) -> Arc<Self> {
        Arc::new(MemoryBudget::new(bytes_max, 0)).account(owner)
    }

    /// Returns the bytes that the owner holds.
    #[cfg(test)]
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.all()
    }

    #[must_use]
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Whether the owner may take `more`: what it holds then is at most what is left free. Two threads that ask at the
    /// same time may both be permitted.
    #[must_use]
    pub fn has_room(&self, kind: MemoryKind, more: usize) -> bool {
        self.has_part(kind, more, more, 1)
    }

    /// Whether a holder that then has `total` bytes may take `more` of them.
    fn has_part(&self, kind: MemoryKind, more: usize, total: usize, divisor: usize) -> bool {
        self.budget.free_after(kind, more).is_some_and(|(all, of_kind)| {
            let is_within = |held: usize, free: usize| {
                let part = free.checked_div(divisor).unwrap_or_default();
                let left = part.checked_sub(held.saturating_add(more));
                left.is_some_and(|left| total <= left.saturating_mul(HOLDER_FACTOR))
            };
            // What an address holds otherwise does not keep its clients, which may be users with a password, from a login.
            let is_login = kind == MemoryKind::Unauthenticated;
            (is_login || is_within(self.used.unreserved(), all)) && is_within(self.used.get(kind), of_kind)
        })
    }

    /// Whether memory is scarce and the owner holds much, so that its connections that do not read are closed.
    #[must_use]
    pub fn is_under_pressure(&self) -> bool {
        self.budget.is_under_pressure() && !self.has_part(MemoryKind::Connections, 0, 0, 4)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut accounts = self.budget.accounts();
        // Another one may have taken its place already.
        if accounts.get(&self.owner).is_some_and(|account| account.strong_count() == 0) {
            accounts.remove(&self.owner);
        }
    }
}

/// What one holder is charged, and its owner with it. The bytes are given back when it is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    kind: MemoryKind,
    /// A multiple of [`GRAIN_BYTES`].
    bytes: usize,
}

impl Charge {
    /// Returns a charge of `bytes`.
    #[must_use]
    pub fn new(account: &Arc<Account>, kind: MemoryKind, bytes: usize) -> Self {
        let mut charge = Self { account: Arc::clone(account), kind, bytes: 0 };
        charge.set(bytes);
        charge
    }

    #[must_use]
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the holder may hold `bytes` in all.
    #[must_use]
    pub fn may_hold(&self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        more == 0 || self.account.has_part(self.kind, more, bytes, 1)
    }

    /// Whether the holder may hold `bytes` in all if they wait for a client that is not connected: what its owner holds then
    /// is at most half of what is left free, because others can receive their messages.
    #[must_use]
    pub fn may_wait(&self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        more == 0 || self.account.has_part(self.kind, more, bytes, 2)
    }

    /// Charges the holder for `bytes` in all, which it holds already.
    pub fn set(&mut self, bytes: usize) {
        if bytes <= self.bytes && self.bytes.saturating_sub(bytes) < SLACK_BYTES {
            return;
        }
        // A sum that overflowed would be more than the address space has.
        let bytes = bytes.checked_next_multiple_of(GRAIN_BYTES).unwrap_or(bytes);
        let Account { budget, used, .. } = &*self.account;
        for counters in [&budget.used, used] {
            match bytes.checked_sub(self.bytes) {
                Some(more) => counters.add(self.kind, more),
                None => counters.subtract(self.kind, self.bytes.saturating_sub(bytes)),
            }
        }
        self.bytes = bytes;
    }

    /// Charges another owner or kind from now on.
    pub fn move_to(&mut self, account: &Arc<Account>, kind: MemoryKind) {
        if kind != self.kind || !Arc::ptr_eq(account, &self.account) {
            *self = Self::new(account, kind, self.bytes);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Account { budget, used, .. } = &*self.account;
        budget.used.subtract(self.kind, self.bytes);
        used.subtract(self.kind, self.bytes);
    }
}

/// The charge of a large message that many queues share: once in all, and once to each owner of such a queue, for as long
/// as one of its queues holds the message. So an owner pays for what its own clients do not read.
#[derive(Debug)]
pub struct SharedCharge {
    bytes: usize,
    shares: Mutex<Shares>,
}

#[derive(Debug, Default)]
struct Shares {
    total: Weak<Total>,
    by_owner: HashMap<Arc<str>, Weak<Share>>,
}

/// The part of the budget that a shared message takes.
#[derive(Debug)]
struct Total {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl Drop for Total {
    fn drop(&mut self) {
        self.budget.used.subtract(MemoryKind::Sessions, self.bytes);
    }
}

/// What one owner is charged for a shared message.
#[derive(Debug)]
pub struct Share {
    account: Arc<Account>,
    total: Arc<Total>,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.account.used.subtract(MemoryKind::Sessions, self.total.bytes);
    }
}

impl SharedCharge {
    /// Returns the charge of a message of `bytes` that no queue holds yet.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { bytes, shares: Mutex::default() }
    }

    /// Charges an owner, one of whose queues takes the message. The charge is given back with the last copy.
    #[must_use]
    pub fn share(&self, account: &Arc<Account>) -> Arc<Share> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.by_owner.get(&account.owner).and_then(Weak::upgrade) {
            return share;
        }
        let total = shares.total.upgrade().unwrap_or_else(|| {
            account.budget.used.add(MemoryKind::Sessions, self.bytes);
            Arc::new(Total { budget: Arc::clone(&account.budget), bytes: self.bytes })
        });
        shares.total = Arc::downgrade(&total);
        // A session that moves from owner to owner leaves a share behind each time: without this, memory that is charged to no one.
        if shares.by_owner.len().is_power_of_two() {
            shares.by_owner.retain(|_, share| share.strong_count() > 0);
        }
        account.used.add(MemoryKind::Sessions, self.bytes);
        let share = Arc::new(Share { account: Arc::clone(account), total });
        shares.by_owner.insert(Arc::clone(&account.owner), Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: usize = 1024 * 1024;

    fn budget() -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget::new(MEGABYTE, 1))
    }

    /// Lets each charge take `step` bytes in turn until no one may take more.
    fn take_all(charges: &mut [Charge], step: usize) {
        let mut is_taking = true;
        while is_taking {
            is_taking = false;
            for charge in &mut *charges {
                let more = charge.bytes + step;
                if charge.may_hold(more) {
                    charge.set(more);
                    is_taking = true;
                }
            }
        }
    }

    #[test]
    fn a_message_does_not_remember_the_owners_that_its_session_has_left() {
        let (budget, message) = (budget(), SharedCharge::new(1_024));
        let mut share = message.share(&budget.account("first"));
        for number in 0..1_000 {
            share = message.share(&budget.account(&number.to_string()));
        }
        assert!(message.shares.lock().unwrap().by_owner.len() <= 4);
        drop(share);
        assert_eq!(budget.used_by(MemoryKind::Sessions), 0);
    }

    #[test]
    fn a_charge_is_given_back_when_its_holder_is_dropped_and_an_account_goes_with_its_last_holder() {
        let budget = budget();
        let (ann, bob) = (budget.account("ann"), budget.account("bob"));
        let mut charge = Charge::new(&ann, MemoryKind::Unauthenticated, 10_000);
        assert_eq!((budget.used(), ann.used.all()), (10 * 1024, 10 * 1024));
        charge.move_to(&bob, MemoryKind::Connections);
        charge.set(100_000);
        assert_eq!(budget.used_by(MemoryKind::Connections), 98 * 1024);
        assert_eq!((ann.used.all(), bob.used.all()), (0, 98 * 1024));
        charge.set(1);
        assert_eq!(budget.used(), 1024);
        drop((ann, bob));
        assert_eq!(budget.accounts().len(), 1);
        drop(charge);
        assert_eq!((budget.used(), budget.accounts().len()), (0, 0));
    }

    #[test]
    fn small_changes_of_a_charge_do_not_write_to_the_budget() {
        let budget = budget();
        let mut charge = Charge::new(&budget.account("a"), MemoryKind::Sessions, 3_000);
        for bytes in [3_072, 0, 1_500, 3_000] {
            charge.set(bytes);
            assert_eq!(budget.used(), 3_072, "{bytes}");
        }
    }

    #[test]
    fn one_owner_with_any_number_of_holders_takes_half_and_many_owners_take_equal_parts() {
        for (owners, holders_of_each, part) in [(1, 1, 2), (1, 50, 2), (3, 20, 4), (15, 4, 16), (63, 1, 64)] {
            let budget = budget();
            let accounts: Vec<_> = (0..owners).map(|owner| budget.account(&owner.to_string())).collect();
            let of_each = (0..holders_of_each).flat_map(|_| &accounts);
            let mut greedy: Vec<_> =
                of_each.map(|account| Charge::new(account, MemoryKind::Sessions, 0)).collect();
            take_all(&mut greedy, 1_024);
            let (all, step) = (MEGABYTE / 8 * 6, 1_024);
            let each = all / part;
            for account in &accounts {
                let held = account.used.all();
                // A single holder takes four ninths of it instead of half.
                assert!((each * 4 / 5..=each + step).contains(&held), "{owners} owners: {held} bytes");
            }
            let mut modest = Charge::new(&budget.account("modest"), MemoryKind::Sessions, 0);
            assert!(modest.may_hold(each / 3 - 2 * step), "{owners} owners");
            assert!(modest.may_wait(each / 4 - 2 * step), "{owners} owners");
            assert!(!Charge::new(&accounts[0], MemoryKind::Sessions, 0).may_wait(1));
            // A small one of an owner with few large ones has room, too.
            modest.move_to(&accounts[0], MemoryKind::Sessions);
            let left = all / (owners * 4 * holders_of_each + 4 * holders_of_each + 1);
            assert!(left < 4 * step || modest.may_hold(left / 3), "{owners} owners, {left} bytes");
        }
    }

    #[test]
    fn a_kind_leaves_room_for_the_others() {
        let unreserved = [
            MemoryKind::Unauthenticated,
            MemoryKind::Connections,
            MemoryKind::Sessions,
            MemoryKind::Retained,
        ];
        for kind in unreserved {
            let budget = budget();
            let mut charges = Vec::new();
            while budget.has_room(kind, 1_024) {
                charges.push(Charge::new(&budget.account(&charges.len().to_string()), kind, 1_024));
            }
            for other in unreserved.into_iter().filter(|other| *other != kind) {
                assert!(budget.account("other").has_room(other, 10_000), "{kind:?} {other:?}");
            }
        }
    }

    #[test]
    fn what_is_reserved_for_connections_is_set_aside_and_refuses_nothing_else() {
        let budget = Arc::new(MemoryBudget::new(MEGABYTE, 8));
        let (ann, bob) = (budget.account("ann"), budget.account("bob"));
        let _connections: Vec<_> =
            (0..8).map(|_| Charge::new(&ann, MemoryKind::Reserved, RESERVED_BYTES)).collect();
        let half = (MEGABYTE - MEGABYTE / 8) / 2;
        let mut taken = Vec::new();
        for kind in [MemoryKind::Connections, MemoryKind::Sessions] {
            let mut charges = [Charge::new(&ann, kind, 0)];
            take_all(&mut charges, 1_024);
            taken.extend(charges);
        }
        let held = ann.used.unreserved();
        assert!((half * 4 / 5..=half).contains(&held), "{held} of {half}");
        assert!(bob.has_room(MemoryKind::Sessions, half / 3));
        assert!(budget.used() < MEGABYTE);
    }

    #[test]
    fn only_the_connections_of_an_owner_that_holds_much_are_under_pressure() {
        let budget = budget();
        let accounts = ["a", "b", "c", "modest"].map(|owner| budget.account(owner));
        let new = |account| Charge::new(account, MemoryKind::Sessions, 0);
        let mut greedy = [new(&accounts[0]), new(&accounts[1]), new(&accounts[2])];
        assert!(!accounts[0].is_under_pressure());
        take_all(&mut greedy, 1_024);
        let _small = Charge::new(&accounts[3], MemoryKind::Connections, 20_000);
        let are_under_pressure = accounts.each_ref().map(|account| account.is_under_pressure());
        assert_eq!(are_under_pressure, [true, true, true, false]);
    }

    #[test]
    fn a_shared_message_is_charged_once_in_all_and_to_each_owner_until_its_last_queue_has_sent_it() {
        let budget = budget();
        let (ann, bob) = (budget.account("ann"), budget.account("bob"));
        let shared = SharedCharge::new(10_000);
        let first = [shared.share(&ann), shared.share(&ann)];
        let of_bob = shared.share(&bob);
        assert_eq!((budget.used(), ann.used.all(), bob.used.all()), (10_000, 10_000, 10_000));
        drop(first);
        assert_eq!((budget.used(), ann.used.all(), bob.used.all()), (10_000, 0, 10_000));
        drop(of_bob);
        assert_eq!((budget.used(), bob.used.all()), (0, 0));
        let _again = shared.share(&ann);
        assert_eq!((budget.used(), ann.used.all()), (10_000, 10_000));
    }
}
