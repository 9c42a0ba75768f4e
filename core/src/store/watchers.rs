//! Watches: which connections are notified of which keys.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::protocol::{ConnectionId, Key};

use super::limits::Limits;

/// A connection that watches a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watcher {
    pub connection: ConnectionId,
    /// The client id, which is part of the notification's topic.
    pub client_id: Arc<str>,
    /// Whether its notifications have time to live and fencing token.
    pub details: bool,
}

/// The mean length of watched keys up to which only their number is limited.
const KEY_BYTES_MEAN: usize = 512;
/// The bytes of watched keys that are always allowed.
const KEY_BYTES_MIN: usize = 1024 * 1024;

/// Returns the limit on the bytes of watched keys that goes with a limit on their number: keys of 64 KB must
/// not take a thousand times the memory of short ones.
fn bytes_max(watches_max: usize) -> usize {
    watches_max.saturating_mul(KEY_BYTES_MEAN).max(KEY_BYTES_MIN)
}

/// The most watches that one call looks at or ends, because requests wait meanwhile.
const WATCHES_PER_CALL_MAX: usize = 256;

/// An owner may watch at most so many times what it leaves free: four fifths alone, and many owners equal parts. So there is
/// always room for one that watches little.
pub(super) const OWNER_FACTOR: usize = 4;

/// A limit on watches is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WatchLimitReached;

/// All watches, indexed by key and by connection.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    /// Not a hash table: a large one is rehashed at once, and all requests wait meanwhile.
    by_key: BTreeMap<Key, BTreeMap<ConnectionId, (Arc<str>, bool)>>,
    by_connection: HashMap<ConnectionId, Watched>,
    /// What the connections of each owner watch: see [`StoreRequest::owner`](super::StoreRequest::owner).
    by_owner: HashMap<Arc<str>, Usage>,
    all: Usage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    len: usize,
    /// Total length of the watched keys; a key that several connections watch counts once for each.
    bytes: usize,
}

impl Usage {
    fn add(&mut self, key: &Key) {
        self.len = self.len.saturating_add(1);
        self.bytes = self.bytes.saturating_add(key.as_bytes().len());
    }

    fn subtract(&mut self, key: &Key) {
        self.len = self.len.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(key.as_bytes().len());
    }
}

/// The watches of one connection.
#[derive(Debug, Default)]
struct Watched {
    keys: BTreeSet<Key>,
    bytes: usize,
    /// None if another instance of the cluster has accepted all watches.
    owner: Option<Arc<str>>,
}

impl Watchers {
    /// Adds a watch. A second watch of the same key by the same connection has no effect.
    pub(super) fn add(
        &mut self,
        key: &Key,
        watcher: Watcher,
        owner: &Arc<str>,
        limits: &Limits,
    ) -> Result<(), WatchLimitReached> {
        let watched = self.by_connection.get(&watcher.connection);
        if watched.is_some_and(|watched| watched.keys.contains(key)) {
            self.add_details(key, &watcher);
            return Ok(());
        }
        let (count, bytes) = watched.map_or((0, 0), |watched| (watched.keys.len(), watched.bytes));
        let key_bytes = key.as_bytes().len();
        let max = limits.watches_per_connection_max;
        let has_room = count < max && bytes.saturating_add(key_bytes) <= bytes_max(max);
        if !has_room || !self.has_room_for(owner, key_bytes, limits.watches_max) {
            return Err(WatchLimitReached);
        }
        self.insert_of(key, watcher, Some(owner));
        Ok(())
    }

    fn has_room_for(&self, owner: &Arc<str>, key_bytes: usize, max: usize) -> bool {
        let own = self.by_owner.get(owner).copied().unwrap_or_default();
        let bytes = self.all.bytes.saturating_add(key_bytes);
        let (free, free_bytes) = (max.saturating_sub(self.all.len), bytes_max(max).checked_sub(bytes));
        own.len < free.saturating_mul(OWNER_FACTOR)
            && free_bytes.is_some_and(|free| own.bytes <= free.saturating_mul(OWNER_FACTOR))
    }

    /// Adds a watch, whatever the limits.
    pub(super) fn insert(&mut self, key: &Key, watcher: Watcher) {
        self.insert_of(key, watcher, None);
    }

    fn insert_of(&mut self, key: &Key, watcher: Watcher, owner: Option<&Arc<str>>) {
        let Watcher { connection, client_id, details } = watcher;
        if self.client_of(key, connection).is_some() {
            return;
        }
        let key_bytes = key.as_bytes().len();
        let shared = self.by_key.get_key_value(key).map(|(key, _)| key.clone());
        let key = shared.unwrap_or_else(|| copied(key));
        let watched = self.by_connection.entry(connection).or_default();
        if let (None, Some(owner)) = (&watched.owner, owner) {
            // Earlier watches were restored: from now on they are this owner's.
            let of_owner = self.by_owner.entry(Arc::clone(owner)).or_default();
            of_owner.len = of_owner.len.saturating_add(watched.keys.len());
            of_owner.bytes = of_owner.bytes.saturating_add(watched.bytes);
            watched.owner = Some(Arc::clone(owner));
        }
        if let Some(owner) = &watched.owner {
            self.by_owner.entry(Arc::clone(owner)).or_default().add(&key);
        }
        self.all.add(&key);
        watched.keys.insert(key.clone());
        watched.bytes = watched.bytes.saturating_add(key_bytes);
        self.by_key.entry(key).or_default().insert(connection, (client_id, details));
    }

    /// Returns the client of a connection, if it watches a key.
    pub(super) fn client_of(&self, key: &Key, connection: ConnectionId) -> Option<&Arc<str>> {
        self.by_key.get(key)?.get(&connection).map(|(client_id, _)| client_id)
    }

    /// Adds time to live and fencing token to the notifications of a watch, if it is repeated with them.
    fn add_details(&mut self, key: &Key, repeated: &Watcher) {
        let watch = self.by_key.get_mut(key).and_then(|of_key| of_key.get_mut(&repeated.connection));
        watch.into_iter().for_each(|(_, details)| *details |= repeated.details);
    }

    /// Returns the client ids of all connections, in no order.
    pub(super) fn clients(&self) -> Vec<Arc<str>> {
        let client = |(connection, watched): (&ConnectionId, &Watched)| {
            watched.keys.first().and_then(|key| self.client_of(key, *connection)).cloned()
        };
        self.by_connection.iter().filter_map(client).collect()
    }

    /// Removes a watch; returns whether there was one.
    pub(super) fn remove(&mut self, key: &Key, connection: ConnectionId) -> bool {
        let Some(watched) = self.by_connection.get_mut(&connection) else {
            return false;
        };
        if !watched.keys.remove(key) {
            return false;
        }
        watched.bytes = watched.bytes.saturating_sub(key.as_bytes().len());
        if let Some(owner) = &watched.owner
            && let Some(of_owner) = self.by_owner.get_mut(owner)
        {
            of_owner.subtract(key);
            if of_owner.len == 0 {
                self.by_owner.remove(owner);
            }
        }
        if watched.keys.is_empty() {
            self.by_connection.remove(&connection);
        }
        self.forget(key, connection);
        true
    }

    /// Removes watches of a connection, some of them; returns whether there are more.
    pub(super) fn remove_some(&mut self, connection: ConnectionId) -> bool {
        for key in self.keys_after(connection, None) {
            self.remove(&key, connection);
        }
        self.by_connection.contains_key(&connection)
    }

    /// Returns the next keys that a connection watches, in their order; none after the last one.
    pub(super) fn keys_after(&self, connection: ConnectionId, last: Option<&Key>) -> Vec<Key> {
        let Some(watched) = self.by_connection.get(&connection) else { return Vec::new() };
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        watched.keys.range::<Key, _>((from, Bound::Unbounded)).take(WATCHES_PER_CALL_MAX).cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len
    }

    /// Returns the number of keys that a connection watches.
    pub(super) fn count_of(&self, connection: ConnectionId) -> usize {
        self.by_connection.get(&connection).map_or(0, |watched| watched.keys.len())
    }

    /// Returns the number of connections that watch a key.
    pub(super) fn count(&self, key: &[u8]) -> usize {
        self.by_key.get(key).map_or(0, BTreeMap::len)
    }

    /// Returns the watchers of a key, without an allocation if there are none.
    pub(super) fn of(&self, key: &[u8]) -> Vec<Watcher> {
        let of_key = self.by_key.get(key).into_iter().flatten();
        let watcher = |(connection, (client_id, details)): (&ConnectionId, &(Arc<str>, bool))| Watcher {
            connection: *connection,
            client_id: Arc::clone(client_id),
            details: *details,
        };
        of_key.map(watcher).collect()
    }

    fn forget(&mut self, key: &Key, connection: ConnectionId) {
        if let Some(of_key) = self.by_key.get_mut(key) {
            of_key.remove(&connection);
            if of_key.is_empty() {
                self.by_key.remove(key);
            }
            self.all.subtract(key);
        }
    }
}

/// Copies a key, because a slice of the packet that it arrived in would keep the whole packet in memory.
fn copied(key: &Key) -> Key {
    Key::new(Bytes::copy_from_slice(key.as_bytes())).unwrap_or_else(|_| key.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &'static str) -> Key {
        Key::new(text).unwrap()
    }

    fn watcher(connection: u64) -> Watcher {
        Watcher { connection: ConnectionId(connection), client_id: "c".into(), details: false }
    }

    /// Each connection has an owner of its own.
    fn owner(connection: u64) -> Arc<str> {
        connection.to_string().into()
    }

    fn connections(watchers: &Watchers, key: &str) -> Vec<u64> {
        watchers.of(key.as_bytes()).iter().map(|watcher| watcher.connection.0).collect()
    }

    #[test]
    fn a_repeated_watch_counts_once() {
        let mut watchers = Watchers::default();
        for _ in 0..2 {
            watchers.add(&key("k"), watcher(1), &owner(1), &Limits::default()).unwrap();
        }
        assert_eq!(connections(&watchers, "k"), [1]);
        assert!(watchers.remove(&key("k"), ConnectionId(1)));
        assert!(!watchers.remove(&key("k"), ConnectionId(1)));
        assert_eq!(watchers.len(), 0);
    }

    #[test]
    fn a_disconnect_removes_the_watches_of_that_connection_only() {
        let mut watchers = Watchers::default();
        for (name, connection) in [("a", 1), ("b", 1), ("a", 2)] {
            watchers.add(&key(name), watcher(connection), &owner(connection), &Limits::default()).unwrap();
        }
        watchers.remove_some(ConnectionId(1));
        assert_eq!(connections(&watchers, "a"), [2]);
        assert!(connections(&watchers, "b").is_empty());
        watchers.remove_some(ConnectionId(2));
        assert!(watchers.by_key.is_empty() && watchers.by_connection.is_empty());
        assert!(watchers.by_owner.is_empty() && watchers.len() == 0);
    }

    #[test]
    fn both_limits_hold_and_do_not_reject_an_existing_watch() {
        let limits = Limits { watches_max: 3, watches_per_connection_max: 2, ..Limits::default() };
        let mut watchers = Watchers::default();
        let mut add =
            |name, connection| watchers.add(&key(name), watcher(connection), &owner(connection), &limits);
        assert_eq!(add("a", 1), Ok(()));
        assert_eq!(add("b", 1), Ok(()));
        assert_eq!(add("c", 1), Err(WatchLimitReached));
        assert_eq!(add("a", 2), Ok(()));
        assert_eq!(add("b", 2), Err(WatchLimitReached));
        assert_eq!(add("a", 1), Ok(()));
    }

    #[test]
    fn the_bytes_of_watched_keys_are_limited_and_released() {
        let limits = Limits { watches_max: 4096, watches_per_connection_max: 100, ..Limits::default() };
        let long = |number: usize| Key::new(format!("{number:030000}")).unwrap();
        let mut watchers = Watchers::default();
        let fill = |watchers: &mut Watchers, connection| {
            (0..100)
                .take_while(|number| {
                    watchers.add(&long(*number), watcher(connection), &owner(connection), &limits).is_ok()
                })
                .count()
        };
        // One MiB for each connection, and two for all, of which each leaves a fifth of what is free.
        assert_eq!((fill(&mut watchers, 1), fill(&mut watchers, 2), fill(&mut watchers, 3)), (34, 28, 6));
        watchers.remove(&long(0), ConnectionId(1));
        assert_eq!((watchers.len(), watchers.all.bytes), (67, 67 * 30_000));
        watchers.remove_some(ConnectionId(1));
        assert_eq!(fill(&mut watchers, 3), 33);
        (2..4).for_each(|connection| _ = watchers.remove_some(ConnectionId(connection)));
        assert_eq!(watchers.all, Usage::default());
    }

    #[test]
    fn many_watches_of_a_connection_are_listed_and_removed_in_several_calls() {
        let mut watchers = Watchers::default();
        let count = 2 * WATCHES_PER_CALL_MAX + 1;
        for number in 0..count {
            let key = Key::new(format!("{number:04}")).unwrap();
            watchers.add(&key, watcher(1), &owner(1), &Limits::default()).unwrap();
        }
        let mut keys = Vec::new();
        for expected in [WATCHES_PER_CALL_MAX, WATCHES_PER_CALL_MAX, 1, 0] {
            let more = watchers.keys_after(ConnectionId(1), keys.last());
            assert_eq!(more.len(), expected);
            keys.extend(more);
        }
        assert!(keys.is_sorted() && keys.len() == count);
        let has_more = [(); 3].map(|()| watchers.remove_some(ConnectionId(1)));
        assert_eq!((has_more, watchers.len()), ([true, true, false], 0));
    }

    #[test]
    fn owners_with_as_many_watches_as_they_can_have_leave_room_for_another_one() {
        let limits = Limits { watches_max: 1_000, ..Limits::default() };
        let mut watchers = Watchers::default();
        let owners = 7;
        let mut refused = 0;
        for number in 0..1_000 {
            // Each connection watches one key, and the owners have many connections.
            let (key, of) = (Key::new(number.to_string()).unwrap(), owner(number % owners));
            refused += usize::from(watchers.add(&key, watcher(number), &of, &limits).is_err());
        }
        assert!(refused > 0);
        let left = (0..1_000)
            .take_while(|number| {
                let key = Key::new(number.to_string()).unwrap();
                watchers.add(&key, watcher(1_000), &owner(1_000), &limits).is_ok()
            })
            .count();
        assert!((20..=35).contains(&left), "{left} watches are left");
    }

    #[test]
    fn restored_watches_count_for_the_owner_that_watches_more() {
        let (limits, mut watchers) = (Limits::default(), Watchers::default());
        watchers.insert(&key("a"), watcher(1));
        assert!(watchers.by_owner.is_empty());
        watchers.add(&key("bc"), watcher(1), &owner(1), &limits).unwrap();
        assert_eq!(watchers.by_owner[&owner(1)], Usage { len: 2, bytes: 3 });
        assert!(watchers.remove(&key("a"), ConnectionId(1)) && watchers.remove(&key("bc"), ConnectionId(1)));
        assert!(watchers.by_owner.is_empty() && watchers.by_connection.is_empty());
    }
}
