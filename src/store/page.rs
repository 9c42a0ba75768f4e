//! Views for operators: statistics of the store, and its keys page by page.

use bytes::Bytes;

use super::entry::Version;
use super::expiry::Slot;
use super::machine::Store;
use super::request::Now;

/// The most bytes of a key or a value in a summary.
const SHOWN_BYTES_MAX: usize = 256;
/// The most slots that one page looks at, because requests wait meanwhile. A page may be empty.
const SLOTS_PER_PAGE_MAX: usize = 32_768;

/// Statistics of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStatistics {
    /// Number of keys, including expired ones that were not polled.
    pub keys: usize,
    /// Total length of keys and values in bytes, without the overhead.
    pub bytes: u64,
    /// Memory of the keys in bytes, with the overhead, as limited by [`Limits::memory_bytes_max`](super::Limits).
    pub memory_bytes: u64,
    pub memory_bytes_max: u64,
    /// Number of watches.
    pub watches: usize,
}

/// Beginning and properties of a key, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySummary {
    /// The beginning of the key.
    pub key: Bytes,
    pub key_len: usize,
    /// The beginning of the value.
    pub value: Bytes,
    pub value_len: usize,
    pub version: Version,
    /// Milliseconds until the key expires; `None`: never.
    pub ttl_ms: Option<u64>,
    /// Whether a fencing token protects the key.
    pub is_fenced: bool,
    /// Number of connections that watch the key.
    pub watchers: usize,
}

/// Some keys, in no particular order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub keys: Vec<KeySummary>,
    /// The position of the next page; `None` after the last one.
    pub next: Option<Slot>,
}

impl Store {
    #[must_use]
    pub fn statistics(&self) -> StoreStatistics {
        StoreStatistics {
            keys: self.len(),
            bytes: self.entries.bytes(),
            memory_bytes: self.memory_bytes(),
            memory_bytes_max: self.limits.memory_bytes_max,
            watches: self.watchers.len(),
        }
    }

    /// Returns up to `keys_max` keys from a position on, 0 at first. A key that exists throughout is returned
    /// exactly once.
    #[must_use]
    pub fn page(&self, from: Slot, keys_max: usize, now: Now) -> Page {
        let mut keys = Vec::new();
        for (seen, (slot, entry)) in self.entries.iter_from(from).enumerate() {
            if keys.len() >= keys_max || seen >= SLOTS_PER_PAGE_MAX {
                return Page { keys, next: Some(slot) };
            }
            let deadline_ms = self.expiry.get(slot);
            if entry.key().is_empty() || deadline_ms.is_some_and(|at| at <= now.monotonic_ms) {
                continue;
            }
            keys.push(KeySummary {
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
        Page { keys, next: None }
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
        page.keys.iter().map(|row| &row.key[..]).collect()
    }

    #[test]
    fn pages_list_every_key_that_has_not_expired_once() {
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
    fn a_summary_has_the_beginnings_and_the_lengths() {
        let mut store = Store::new(Limits::default());
        put(&mut store, &"k".repeat(300), Some(&"v".repeat(1_000)), Some(250));
        let row = store.page(0, 1, NOW).keys.remove(0);
        assert_eq!((row.key.len(), row.key_len, row.value.len(), row.value_len), (256, 300, 256, 1_000));
        assert_eq!(row.ttl_ms, Some(150));
    }

    #[test]
    fn statistics_count_the_bytes_of_keys_and_values_through_all_changes() {
        let mut store = Store::new(Limits::default());
        put(&mut store, "key", Some("value"), None);
        put(&mut store, "k", Some(&"v".repeat(100)), None);
        let StoreStatistics { keys, bytes, memory_bytes, .. } = store.statistics();
        assert_eq!((keys, bytes), (2, 109));
        assert!(memory_bytes > bytes);
        put(&mut store, "k", Some("v"), None);
        put(&mut store, "key", None, None);
        let StoreStatistics { keys, bytes, watches, .. } = store.statistics();
        assert_eq!((keys, bytes, watches), (1, 2, 0));
    }
}
