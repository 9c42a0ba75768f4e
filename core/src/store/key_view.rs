//! Views of single keys, for operators.

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::protocol::{ConnectionId, Key, Timestamp};

use super::deadlines::Slot;
use super::entry::{Entry, Version};
use super::key_walk::KeyWalk;
use super::machine::Store;
use super::request::Now;

/// A key and its properties. Each costs something only when it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct KeyView<'a> {
    store: &'a Store,
    slot: Slot,
    entry: &'a Entry,
    now: Now,
}

impl<'a> KeyView<'a> {
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        self.entry.key()
    }

    #[must_use]
    pub fn value_len(&self) -> usize {
        self.entry.value().len()
    }

    /// Returns a copy of the value's beginning.
    #[must_use]
    pub fn value(&self, bytes_max: usize) -> Bytes {
        let value = self.entry.value();
        Bytes::copy_from_slice(value.get(..bytes_max).unwrap_or(value))
    }

    #[must_use]
    pub fn version(&self) -> Version {
        self.entry.version()
    }

    /// Returns the milliseconds until the key expires; `None`: never.
    #[must_use]
    pub fn ttl_ms(&self) -> Option<u64> {
        self.store.deadlines.get(self.slot).map(|at_ms| at_ms.saturating_sub(self.now.monotonic_ms))
    }

    #[must_use]
    pub fn fence(&self) -> Option<&'a Timestamp> {
        self.entry.fence()
    }

    /// Returns the number of watches of the key and of its prefixes.
    #[must_use]
    pub fn watchers(&self) -> usize {
        let (store, key) = (self.store, self.entry.key());
        store.watchers.count(key).saturating_add(store.prefix_watchers.of(key).count())
    }

    #[must_use]
    pub fn is_persistent(&self) -> bool {
        self.entry.is_persistent()
    }

    /// Returns the memory of the key in bytes, with the overhead.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.entry.cost()
    }
}

impl Store {
    /// Looks at some more keys of a walk, and calls `visit` for those that match and have not expired.
    pub fn walk(&self, walk: &mut KeyWalk, now: Now, mut visit: impl FnMut(KeyView<'_>)) {
        walk.advance(&self.entries, |slot, entry| {
            if let Some(view) = self.view_of(slot, entry, now) {
                visit(view);
            }
            ControlFlow::Continue(())
        });
    }

    /// Returns a key, unless it is absent or has expired.
    #[must_use]
    pub fn view(&self, key: &Key, now: Now) -> Option<KeyView<'_>> {
        let slot = self.entries.find(key.as_bytes())?;
        self.view_of(slot, self.entries.get(slot)?, now)
    }

    fn view_of<'a>(&'a self, slot: Slot, entry: &'a Entry, now: Now) -> Option<KeyView<'a>> {
        let deadline_ms = self.deadlines.get(slot);
        let is_expired = deadline_ms.is_some_and(|at_ms| at_ms <= now.monotonic_ms);
        (!is_expired).then_some(KeyView { store: self, slot, entry, now })
    }

    /// Returns the number of keys and prefixes that a connection watches.
    #[must_use]
    pub fn watches_of(&self, connection: ConnectionId) -> usize {
        self.watchers.count_of(connection).saturating_add(self.prefix_watchers.count_of(connection))
    }
}

#[cfg(test)]
mod tests {
    use super::super::key_walk::{SLOTS_PER_CALL_MAX, SLOTS_PER_WALK_MAX};
    use super::super::{Limits, StoredValue};
    use super::*;

    const NOW: Now = Now { wall_ms: 0, monotonic_ms: 100 };

    fn put(store: &mut Store, key: impl Into<Bytes>, value: Option<&str>, deadline_ms: Option<u64>) {
        let content = |value: &str| StoredValue {
            value: value.to_owned().into(),
            fence: None,
            deadline_ms,
            persist: false,
        };
        let was = value.map(|value| (Version { ms: 1, counter: 0 }, content(value)));
        store.restore(&Key::new(key.into()).unwrap(), was);
    }

    fn keys(store: &Store, filter: &str) -> Vec<Bytes> {
        let mut walk = KeyWalk::new(filter, 0).unwrap();
        let mut keys = Vec::new();
        while !walk.is_complete() {
            store.walk(&mut walk, NOW, |view| keys.push(Bytes::copy_from_slice(view.key())));
        }
        keys
    }

    #[test]
    fn a_walk_visits_every_key_that_has_not_expired_once() {
        let mut store = Store::new(Limits::default());
        for key in ["a", "b", "c", "d"] {
            put(&mut store, key, Some("v"), None);
        }
        put(&mut store, "b", None, None);
        put(&mut store, "c", Some("v"), Some(100));
        assert_eq!(keys(&store, ""), ["a", "d"]);
    }

    #[test]
    fn a_filter_is_a_part_of_the_key_or_a_pattern() {
        let mut store = Store::new(Limits::default());
        for key in [&b"line1/temp"[..], b"line2/temp", b"line1/speed", b"\xff"] {
            put(&mut store, Bytes::from_static(key), Some("v"), None);
        }
        assert_eq!(keys(&store, "/temp"), ["line1/temp", "line2/temp"]);
        assert_eq!(keys(&store, "line1*"), ["line1/temp", "line1/speed"]);
        assert_eq!(keys(&store, "line?/s*"), ["line1/speed"]);
        assert!(keys(&store, "emp?").is_empty(), "a pattern matches the whole key");
        assert_eq!(keys(&store, "").len(), 4);
        assert!(KeyWalk::new("[", 0).is_err());
    }

    #[test]
    fn one_call_looks_at_few_keys_and_one_walk_at_a_part_of_a_large_store() {
        const KEYS: usize = SLOTS_PER_WALK_MAX + 10;
        let mut store = Store::new(Limits::default());
        for number in 0..KEYS {
            put(&mut store, number.to_string(), Some("v"), None);
        }
        let (mut walk, mut seen) = (KeyWalk::new("", 0).unwrap(), 0);
        while !walk.is_complete() {
            let before = seen;
            store.walk(&mut walk, NOW, |_| seen += 1);
            assert!(seen - before <= SLOTS_PER_CALL_MAX);
        }
        let next = walk.next_slot().unwrap();
        assert_eq!((seen, walk.seen()), (SLOTS_PER_WALK_MAX, SLOTS_PER_WALK_MAX));
        let mut walk = KeyWalk::new("", next).unwrap();
        store.walk(&mut walk, NOW, |_| seen += 1);
        assert_eq!((seen, walk.next_slot()), (KEYS, None));
    }

    #[test]
    fn long_keys_and_patterns_make_the_steps_shorter() {
        let mut store = Store::new(Limits::default());
        for number in 0..100 {
            put(&mut store, format!("{number:03}{}", "k".repeat(60_000)), Some("v"), None);
        }
        let mut walk = KeyWalk::new("nowhere", 0).unwrap();
        store.walk(&mut walk, NOW, |_| {});
        assert!(walk.seen() < 10, "{} long keys in one call", walk.seen());
    }

    #[test]
    fn a_view_has_the_properties_of_a_key() {
        let mut store = Store::new(Limits::default());
        put(&mut store, "key", Some(&"v".repeat(1_000)), Some(250));
        let view = store.view(&Key::new("key").unwrap(), NOW).unwrap();
        assert_eq!((view.value_len(), view.value(300).len(), view.value(2_000).len()), (1_000, 300, 1_000));
        assert_eq!((view.ttl_ms(), view.watchers(), view.version().ms), (Some(150), 0, 1));
        assert!(view.memory_bytes() > 1_003 && view.fence().is_none());
        let later = Now { monotonic_ms: 250, ..NOW };
        assert!(store.view(&Key::new("key").unwrap(), later).is_none(), "expired");
    }
}
