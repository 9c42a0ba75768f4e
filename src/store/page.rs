//! What an operator may look at: how much there is, and the keys a page at a time.

use bytes::Bytes;

use super::expiry::Slot;
use super::{Now, Store, Version};

/// How many bytes of a key or a value a row has at most.
const SHOWN_BYTES_MAX: usize = 256;
/// The most slots looked at for one page: requests wait meanwhile. A page may be empty.
const SLOTS_PER_PAGE_MAX: usize = 32_768;

/// How much a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStatistics {
    /// Keys, those included that have expired and were not polled.
    pub keys: usize,
    /// Bytes of keys and values, without what it takes to keep them.
    pub bytes: u64,
    /// Registrations of watchers.
    pub watches: usize,
}

/// A key as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySummary {
    /// The beginning of the key.
    pub key: Bytes,
    /// How long the key is.
    pub key_len: usize,
    /// The beginning of the value.
    pub value: Bytes,
    /// How long the value is.
    pub value_len: usize,
    /// Its version.
    pub version: Version,
    /// Milliseconds until it expires.
    pub ttl_ms: Option<u64>,
    /// Whether only who has a fencing token may change it.
    pub is_fenced: bool,
    /// How many watch it.
    pub watchers: usize,
}

/// Some keys, in no order that means anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The keys.
    pub rows: Vec<KeySummary>,
    /// Where to go on; none: there are no more.
    pub next: Option<Slot>,
}

impl Store {
    /// How much there is.
    #[must_use]
    pub fn tally(&self) -> StoreStatistics {
        StoreStatistics { keys: self.len(), bytes: self.entries.bytes(), watches: self.watchers.len() }
    }

    /// At most so many keys from a slot on. A key keeps its slot for as long as it lives.
    #[must_use]
    pub fn page(&self, from: Slot, keys_max: usize, now: Now) -> Page {
        let mut rows = Vec::new();
        for (seen, (slot, entry)) in self.entries.iter_from(from).enumerate() {
            if rows.len() >= keys_max || seen >= SLOTS_PER_PAGE_MAX {
                return Page { rows, next: Some(slot) };
            }
            let deadline_ms = self.expiry.get(slot);
            if entry.key().is_empty() || deadline_ms.is_some_and(|at| at <= now.monotonic_ms) {
                continue;
            }
            rows.push(KeySummary {
                key: beginning(entry.key()),
                key_len: entry.key().len(),
                value: beginning(entry.value()),
                value_len: entry.value().len(),
                version: entry.version(),
                ttl_ms: deadline_ms.map(|at| at.saturating_sub(now.monotonic_ms)),
                is_fenced: entry.fence().is_some(),
                watchers: self.watchers.count(entry.key()),
            });
        }
        Page { rows, next: None }
    }
}

fn beginning(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes.get(..SHOWN_BYTES_MAX).unwrap_or(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, StoredValue};
    use super::*;
    use crate::protocol::Key;

    const NOW: Now = Now { wall_ms: 0, monotonic_ms: 100 };

    fn put(store: &mut Store, key: &str, value: Option<&str>, deadline_ms: Option<u64>) {
        let content = |value: &str| StoredValue {
            value: value.to_owned().into(),
            fence: None,
            deadline_ms,
            persist: false,
        };
        let was = value.map(|value| (Version { ms: 1, counter: 0 }, content(value)));
        store.restore(&Key::new(key.to_owned()).unwrap(), was);
    }

    fn keys(page: &Page) -> Vec<&[u8]> {
        page.rows.iter().map(|row| &row.key[..]).collect()
    }

    #[test]
    fn pages_list_every_living_key_once() {
        let mut store = Store::new(Limits::default());
        for key in ["a", "b", "c", "d"] {
            put(&mut store, key, Some("v"), None);
        }
        put(&mut store, "b", None, None);
        put(&mut store, "c", Some("v"), Some(100));
        let first = store.page(0, 1, NOW);
        assert_eq!(keys(&first), [b"a"]);
        let second = store.page(first.next.unwrap(), 5, NOW);
        assert_eq!((keys(&second), second.next), (vec![&b"d"[..]], None));
    }

    #[test]
    fn a_row_has_the_beginnings_and_the_lengths() {
        let mut store = Store::new(Limits::default());
        put(&mut store, &"k".repeat(300), Some(&"v".repeat(1_000)), Some(250));
        let row = store.page(0, 1, NOW).rows.remove(0);
        assert_eq!((row.key.len(), row.key_len, row.value.len(), row.value_len), (256, 300, 256, 1_000));
        assert_eq!(row.ttl_ms, Some(150));
    }

    #[test]
    fn bytes_are_those_of_keys_and_values_whatever_became_of_them() {
        let mut store = Store::new(Limits::default());
        put(&mut store, "key", Some("value"), None);
        put(&mut store, "k", Some(&"v".repeat(100)), None);
        assert_eq!(store.tally(), StoreStatistics { keys: 2, bytes: 109, watches: 0 });
        put(&mut store, "k", Some("v"), None);
        put(&mut store, "key", None, None);
        assert_eq!(store.tally(), StoreStatistics { keys: 1, bytes: 2, watches: 0 });
    }
}
