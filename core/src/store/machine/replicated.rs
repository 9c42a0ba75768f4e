//! Changes that another node of an exchange or another instance of a cluster has decided, and what these read of the store.

use std::sync::Arc;

use bytes::Bytes;

use super::{Change, ConnectionId, Key, Now, Set, Store, StoreResponse, StoredValue, Timestamp, Watcher};
use crate::protocol::Reply;

impl Store {
    /// Writes or deletes a key as another node has decided: no condition, fencing token or limit counts. The version is
    /// the store's own next one.
    pub fn apply(&mut self, key: Key, content: Option<(Bytes, Option<u64>)>, now: Now) -> StoreResponse {
        let wall_ms = self.advance_clocks(now);
        let (found, expired) = self.find(&key);
        let change = match content {
            Some((value, ttl_ms)) => {
                let ttl_ms = ttl_ms.and_then(std::num::NonZeroU64::new);
                let set = Set { key, value, condition: None, ttl_ms, encoded: None, persist: true };
                Some(self.put(found, set, &Timestamp::of_store(wall_ms, 0), None).1)
            }
            None => found.and_then(|slot| self.remove(slot, key)),
        };
        StoreResponse { expired, change, ..Reply::Done.into() }
    }

    /// Makes a key persistent; returns the change for the disk, or `None` if the key is absent or was persistent.
    pub fn persist(&mut self, key: &Key) -> Option<Change> {
        let slot = self.entries.find(key.as_bytes())?;
        if self.entries.get(slot)?.is_persistent() {
            return None;
        }
        self.entries.set_persistent(slot);
        let (version, stored) = self.stored(slot, self.entries.get(slot)?);
        let key = key.clone();
        Some(Change {
            key,
            version,
            content: Some(stored),
            persist: true,
            watchers: Vec::new(),
            notification: None,
            ttl_ms: None,
        })
    }

    /// Returns the value of a key with the time that it has left in milliseconds; `None` if the key is absent or has
    /// expired.
    #[must_use]
    pub fn content(&self, key: &Key, now: Now) -> Option<(Bytes, Option<u64>)> {
        let (_, StoredValue { value, deadline_ms, .. }) = self.read(key)?;
        let left_ms = deadline_ms.map(|deadline_ms| deadline_ms.saturating_sub(now.monotonic_ms));
        (left_ms != Some(0)).then_some((value, left_ms))
    }

    /// Whether the limits let a value in.
    #[must_use]
    pub fn has_room_for(&self, key: &Key, value: &[u8]) -> bool {
        let current = self.entries.find(key.as_bytes()).and_then(|slot| self.entries.get(slot));
        self.has_room(current, key, value, None)
    }

    /// Returns the keys at up to `slots_max` positions from `from` on, 0 at first, and the position of the next ones, or
    /// `None` at the end. A key that exists throughout is returned exactly once, whatever changes between the calls.
    #[must_use]
    pub fn keys_from(&self, from: u32, slots_max: usize) -> (Vec<Key>, Option<u32>) {
        let mut found = Vec::new();
        for (number, (slot, entry)) in self.entries.iter_from(from).enumerate() {
            if number >= slots_max {
                return (found, Some(slot));
            }
            // A vacant slot has an empty key.
            found.extend(Key::new(Bytes::copy_from_slice(entry.key())).ok());
        }
        (found, None)
    }
}

impl Store {
    /// Returns the client of a connection, if it watches a key.
    #[must_use]
    pub fn watching_client(&self, key: &Key, connection: ConnectionId) -> Option<&Arc<str>> {
        self.watchers.client_of(key, connection)
    }

    /// Sets whether a connection watches a key, as another instance of a cluster has decided, or because a change of it
    /// could not be committed: no limit counts.
    pub fn restore_watch(&mut self, key: &Key, watcher: Watcher, is_watching: bool) {
        if is_watching {
            self.watchers.insert(key, watcher);
        } else {
            self.watchers.remove(key, watcher.connection);
        }
    }

    /// Advances the wall clock to that of an earlier owner of the keys, if it is behind.
    pub fn raise_clock(&mut self, wall_ms: u64) {
        self.versions.advance_clock(wall_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Limits;
    use super::*;

    const NOW: Now = Now { wall_ms: 1_700_000_000_000, monotonic_ms: 1_000 };

    fn key(text: &str) -> Key {
        Key::new(text.to_owned()).unwrap()
    }

    fn applied(store: &mut Store, text: &str, value: Option<&str>, ttl_ms: Option<u64>) -> Option<Change> {
        let content = value.map(|value| (value.to_owned().into(), ttl_ms));
        store.apply(key(text), content, NOW).change
    }

    #[test]
    fn an_applied_value_is_persistent_and_has_the_next_version_of_this_store() {
        let mut store = Store::new(Limits::default());
        let first = applied(&mut store, "k", Some("1"), None).unwrap();
        let second = applied(&mut store, "k", Some("2"), Some(500)).unwrap();
        assert!(second.version > first.version && second.persist);
        assert_eq!(store.content(&key("k"), NOW), Some(("2".into(), Some(501))));
        let later = Now { monotonic_ms: NOW.monotonic_ms + 501, ..NOW };
        assert_eq!(store.content(&key("k"), later), None);
        let deleted = applied(&mut store, "k", None, None).unwrap();
        assert!(deleted.content.is_none() && store.read(&key("k")).is_none());
        assert_eq!(applied(&mut store, "k", None, None), None, "an absent key does not change");
    }

    #[test]
    fn limits_do_not_hold_what_another_node_decided_but_are_known() {
        let mut store = Store::new(Limits { memory_bytes_max: 300, ..Limits::default() });
        assert!(store.has_room_for(&key("k"), b"v") && !store.has_room_for(&key("k"), &[0; 300]));
        assert!(applied(&mut store, "k", Some(&"x".repeat(1_000)), None).is_some());
        assert!(store.has_room_for(&key("k"), &[0; 1_000]) && !store.has_room_for(&key("l"), b"v"));
    }

    #[test]
    fn a_watch_of_another_instance_counts_like_any_other_but_no_limit_rejects_it() {
        let limits = Limits { watches_max: 1, watches_per_connection_max: 1, ..Limits::default() };
        let mut store = Store::new(limits);
        let watcher = |connection| Watcher {
            connection: ConnectionId(connection),
            client_id: "c".into(),
            details: false,
        };
        for _ in 0..2 {
            (1..=2).for_each(|connection| store.restore_watch(&key("k"), watcher(connection), true));
        }
        assert_eq!(store.watching_client(&key("k"), ConnectionId(2)).map(|id| &**id), Some("c"));
        assert_eq!(applied(&mut store, "k", Some("1"), None).unwrap().watchers, [watcher(1), watcher(2)]);
        [1, 1, 2].iter().for_each(|of| store.restore_watch(&key("k"), watcher(*of), false));
        assert_eq!(applied(&mut store, "k", Some("1"), None).unwrap().watchers, []);
        assert_eq!(store.watching_client(&key("k"), ConnectionId(2)), None);
        assert!(!store.is_watching(ConnectionId(1)));
    }

    #[test]
    fn versions_follow_the_clock_of_an_earlier_owner() {
        let mut store = Store::new(Limits::default());
        store.raise_clock(NOW.wall_ms + 5);
        store.raise_clock(NOW.wall_ms);
        assert!(applied(&mut store, "k", Some("1"), None).unwrap().version.ms >= NOW.wall_ms + 5);
    }

    #[test]
    fn all_keys_are_found_in_bounded_steps() {
        let mut store = Store::new(Limits::default());
        for number in 0..25 {
            assert!(applied(&mut store, &number.to_string(), Some("v"), None).is_some());
        }
        assert!(applied(&mut store, "7", None, None).is_some());
        let (mut seen, mut from) = (Vec::new(), Some(0));
        while let Some(position) = from {
            let (keys, next) = store.keys_from(position, 10);
            assert!(keys.len() <= 10);
            seen.extend(keys);
            from = next;
        }
        assert_eq!(seen.len(), 24);
    }
}
