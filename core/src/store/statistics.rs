//! Statistics of the store.

use super::machine::Store;

/// Statistics of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStatistics {
    /// Number of keys, including expired ones that were not polled.
    pub keys: usize,
    pub keys_max: usize,
    /// Total length of keys and values in bytes, without the overhead.
    pub bytes: u64,
    /// Memory of the keys in bytes, with the overhead, as limited by [`Limits::memory_bytes_max`](super::Limits).
    pub memory_bytes: u64,
    pub memory_bytes_max: u64,
    /// Number of watches, of keys and prefixes.
    pub watches: usize,
    pub watches_max: usize,
}

impl Store {
    #[must_use]
    pub fn statistics(&self) -> StoreStatistics {
        StoreStatistics {
            keys: self.len(),
            keys_max: self.limits.keys_max,
            bytes: self.entries.bytes(),
            memory_bytes: self.memory_bytes(),
            memory_bytes_max: self.limits.memory_bytes_max,
            watches: self.watchers.len().saturating_add(self.prefix_watchers.len()),
            watches_max: self.limits.watches_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, StoredValue, Version};
    use super::*;
    use crate::protocol::Key;

    fn put(store: &mut Store, key: &str, value: Option<&str>) {
        let content = |value: &str| StoredValue {
            value: value.to_owned().into(),
            fence: None,
            deadline_ms: None,
            persist: false,
        };
        let was = value.map(|value| (Version { ms: 1, counter: 0 }, content(value)));
        store.restore(&Key::new(key.to_owned()).unwrap(), was);
    }

    #[test]
    fn statistics_count_the_bytes_of_keys_and_values_through_all_changes() {
        let mut store = Store::new(Limits::default());
        put(&mut store, "key", Some("value"));
        put(&mut store, "k", Some(&"v".repeat(100)));
        let StoreStatistics { keys, bytes, memory_bytes, .. } = store.statistics();
        assert_eq!((keys, bytes), (2, 109));
        assert!(memory_bytes > bytes);
        put(&mut store, "k", Some("v"));
        put(&mut store, "key", None);
        let StoreStatistics { keys, bytes, watches, .. } = store.statistics();
        assert_eq!((keys, bytes, watches), (1, 2, 0));
    }
}
