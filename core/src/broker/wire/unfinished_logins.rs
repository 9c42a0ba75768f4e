//! Unfinished logins: the connections before their CONNACK, by address, and which of them ends when there is no room.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How long the server must have waited for the client of a login before a login of an address with as many ends it.
///
/// While all others have waited for less, a new login of the address that has the most is refused: its connection is closed
/// without an answer. A thousand TLS clients behind one address that connect at the same time, for example after a restart of the
/// server, get there, and succeed when they connect again. Without this time the clients that come later would end the
/// handshakes of those before them, so that none is completed while they keep coming.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// Why there is no room for a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Of connections, memory or descriptors of the server: the end of any login makes room.
    OfServer,
    /// Of what the address of the login may take: only the end of another login of that address makes room.
    OfAddress,
}

/// Whose turn it is in a login. Logins end in this order: the one that has waited for its client for longest is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Activity {
    /// The client's, since then.
    Waiting { since: Instant, id: u64 },
    /// The server's.
    Busy { id: u64 },
}

/// The connections before their CONNACK, each with its address and a value that ends it. Pure: time is an argument.
#[derive(Debug)]
pub struct UnfinishedLogins<A, T> {
    last_id: u64,
    by_id: HashMap<u64, (A, Activity)>,
    by_address: HashMap<A, BTreeMap<Activity, T>>,
    /// Each address with the number of its logins and the one of them that ends first. The last row is the one to look at when
    /// there is no room.
    by_count: BTreeSet<(usize, Reverse<Activity>, A)>,
}

impl<A, T> Default for UnfinishedLogins<A, T> {
    fn default() -> Self {
        let (by_id, by_address, by_count) = (HashMap::new(), HashMap::new(), BTreeSet::new());
        Self { last_id: 0, by_id, by_address, by_count }
    }
}

impl<A: Copy + Ord + Hash, T> UnfinishedLogins<A, T> {
    /// Adds a login in which it is the server's turn; returns its number.
    pub fn begin(&mut self, address: A, value: T) -> u64 {
        // 64 bits do not overflow: 2^64 connections take centuries.
        self.last_id = self.last_id.wrapping_add(1);
        let id = self.last_id;
        self.insert(id, address, Activity::Busy { id }, value);
        id
    }

    /// Notes since when the server waits for the client; None: it is the server's turn.
    pub fn set_waiting(&mut self, id: u64, since: Option<Instant>) {
        let activity = match since {
            Some(since) => Activity::Waiting { since, id },
            None => Activity::Busy { id },
        };
        if let Some((address, value)) = self.remove(id) {
            self.insert(id, address, activity, value);
        }
    }

    /// Removes a login, unless it has been taken already.
    pub fn end(&mut self, id: u64) {
        self.remove(id);
    }

    /// Takes the login that ends so that there is room for `newcomer`, or for any, if None.
    ///
    /// It is one of the address with the most logins or, if that does not help the newcomer, of its own address: the one that has
    /// waited for its client for longest. Of an address that has no more than the newcomer's, only one that has
    /// stalled (`STALLED_AFTER`).
    pub fn take_for(&mut self, newcomer: Option<u64>, shortage: Shortage, now: Instant) -> Option<T> {
        let newcomer = newcomer.and_then(|id| self.by_id.get(&id));
        let own = newcomer.and_then(|(address, _)| self.by_address.get(address));
        let (most, first) = match shortage {
            Shortage::OfServer => self.by_count.last().map(|(most, Reverse(first), _)| (*most, *first))?,
            Shortage::OfAddress => own.and_then(|own| Some((own.len(), *own.first_key_value()?.0)))?,
        };
        let own = own.map(BTreeMap::len);
        let (id, has_stalled) = match first {
            Activity::Waiting { since, id } => (id, now.saturating_duration_since(since) >= STALLED_AFTER),
            Activity::Busy { id } => (id, false),
        };
        let has_more = own.is_some_and(|own| most > own);
        if !has_more && !has_stalled {
            return None;
        }
        self.remove(id).map(|(_, value)| value)
    }

    fn insert(&mut self, id: u64, address: A, activity: Activity, value: T) {
        self.by_id.insert(id, (address, activity));
        self.change(address, |logins| logins.insert(activity, value));
    }

    fn remove(&mut self, id: u64) -> Option<(A, T)> {
        let (address, activity) = self.by_id.remove(&id)?;
        let value = self.change(address, |logins| logins.remove(&activity))?;
        Some((address, value))
    }

    fn change<R>(&mut self, address: A, change: impl FnOnce(&mut BTreeMap<Activity, T>) -> R) -> R {
        let row = |logins: &BTreeMap<Activity, T>| {
            logins.first_key_value().map(|(first, _)| (logins.len(), Reverse(*first), address))
        };
        let logins = self.by_address.entry(address).or_default();
        if let Some(row) = row(logins) {
            self.by_count.remove(&row);
        }
        let result = change(logins);
        match row(logins) {
            Some(row) => _ = self.by_count.insert(row),
            None => _ = self.by_address.remove(&address),
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: &str = "192.0.2.1";
    const FEW: &str = "192.0.2.2";

    fn begin(
        logins: &mut UnfinishedLogins<&'static str, &'static str>,
        address: &'static str,
        value: &'static str,
    ) -> u64 {
        logins.begin(address, value)
    }

    #[test]
    fn the_login_that_waits_longest_of_the_address_with_the_most_ends_for_one_of_another_address() {
        let (mut logins, now) = (UnfinishedLogins::default(), crate::clock::monotonic());
        let after = |ms| now + Duration::from_millis(ms);
        let few = begin(&mut logins, FEW, "few");
        logins.set_waiting(few, Some(now));
        let many = ["busy", "second", "first", "third"].map(|name| begin(&mut logins, MANY, name));
        for (id, ms) in many.into_iter().skip(1).zip([2, 1, 3]) {
            logins.set_waiting(id, Some(after(ms)));
        }
        let newcomer = begin(&mut logins, FEW, "newcomer");
        for expected in [Some("first"), Some("second"), None] {
            assert_eq!(logins.take_for(Some(newcomer), Shortage::OfServer, after(4)), expected);
        }
        let other = begin(&mut logins, "192.0.2.3", "other");
        assert_eq!(
            logins.take_for(Some(other), Shortage::OfServer, after(4)),
            Some("few"),
            "of two addresses with as many"
        );
    }

    #[test]
    fn a_login_in_which_the_server_has_work_to_do_ends_after_those_that_wait() {
        let (mut logins, now) = (UnfinishedLogins::default(), crate::clock::monotonic());
        let many = ["back", "busy", "waiting"].map(|name| begin(&mut logins, MANY, name));
        logins.set_waiting(many[0], Some(now));
        logins.set_waiting(many[2], Some(now));
        logins.set_waiting(many[0], None);
        let newcomer = begin(&mut logins, FEW, "newcomer");
        assert_eq!(logins.take_for(Some(newcomer), Shortage::OfServer, now), Some("waiting"));
        assert_eq!(logins.take_for(Some(newcomer), Shortage::OfServer, now), Some("back"));
        assert_eq!(logins.take_for(Some(newcomer), Shortage::OfServer, now), None, "both addresses have one");
    }

    #[test]
    fn within_an_address_only_a_login_that_has_stalled_ends_for_a_new_one() {
        let (mut logins, now) = (UnfinishedLogins::default(), crate::clock::monotonic());
        let first = begin(&mut logins, MANY, "first");
        logins.set_waiting(first, Some(now));
        let second = begin(&mut logins, MANY, "second");
        let almost = now + STALLED_AFTER - Duration::from_millis(1);
        assert_eq!(logins.take_for(Some(second), Shortage::OfServer, almost), None);
        assert_eq!(logins.take_for(None, Shortage::OfServer, almost), None, "for any");
        assert_eq!(logins.take_for(Some(second), Shortage::OfServer, now + STALLED_AFTER), Some("first"));
        assert_eq!(
            logins.take_for(Some(second), Shortage::OfServer, now + STALLED_AFTER),
            None,
            "not the new one itself"
        );
    }

    #[test]
    fn an_address_that_has_taken_its_share_ends_no_login_of_another_one() {
        let (mut logins, now) = (UnfinishedLogins::default(), crate::clock::monotonic());
        for name in ["first", "second", "third"] {
            let id = begin(&mut logins, MANY, name);
            logins.set_waiting(id, Some(now));
        }
        let own = begin(&mut logins, FEW, "own");
        logins.set_waiting(own, Some(now));
        let newcomer = begin(&mut logins, FEW, "newcomer");
        assert_eq!(logins.take_for(Some(newcomer), Shortage::OfAddress, now), None);
        let later = now + STALLED_AFTER;
        assert_eq!(logins.take_for(Some(newcomer), Shortage::OfAddress, later), Some("own"));
        assert_eq!(logins.take_for(Some(newcomer), Shortage::OfAddress, later), None);
        assert_eq!(logins.take_for(Some(newcomer), Shortage::OfServer, now), Some("first"));
    }

    #[test]
    fn a_login_that_has_ended_is_not_counted_and_leaves_nothing() {
        let (mut logins, now) = (UnfinishedLogins::default(), crate::clock::monotonic());
        let ids = [MANY, MANY, FEW].map(|address| begin(&mut logins, address, "x"));
        logins.set_waiting(ids[0], Some(now));
        assert_eq!(logins.take_for(Some(ids[2]), Shortage::OfServer, now), Some("x"));
        for id in ids {
            logins.set_waiting(id, Some(now));
            logins.end(id);
            logins.end(id);
        }
        assert!(logins.by_id.is_empty() && logins.by_address.is_empty() && logins.by_count.is_empty());
        assert_eq!(logins.take_for(None, Shortage::OfServer, now + STALLED_AFTER), None);
    }
}
