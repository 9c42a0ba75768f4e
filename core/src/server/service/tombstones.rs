//! Tombstones: keys of which the disk has nothing but a version that is ahead of the ceiling.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;

use crate::ledger::{KeyRecord, Record};
use crate::protocol::Key;
use crate::store::Version;

/// The most memory that tombstones take: those of about 40,000 keys with short names, which is what clients write within
/// 60 s at 700 writes a second with clocks that are more than 10 s ahead. No client is refused at this bound. The ceiling
/// then follows these clients, as long as that lasts: after a crash, the versions of all keys may be as far ahead.
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// What a tombstone takes besides its key.
const OVERHEAD_BYTES: usize = 160;
/// The most tombstones that one commit group removes from the disk.
const REMOVED_PER_GROUP_MAX: usize = 1_000;

/// The tombstones that are on disk, or will be with the next commit.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    /// Not a hash table: a large one is rehashed at once, and all requests wait meanwhile.
    versions: BTreeMap<Key, Version>,
    in_order: BTreeSet<(Version, Key)>,
    bytes: usize,
}

impl Tombstones {
    /// Notes that a key has a tombstone with this version.
    pub(super) fn note(&mut self, key: &Key, version: Version) {
        // Not the memory of a packet.
        let Ok(key) = Key::new(Bytes::copy_from_slice(key.as_bytes())) else { return };
        match self.versions.insert(key.clone(), version) {
            Some(before) => _ = self.in_order.remove(&(before, key.clone())),
            None => self.bytes = self.bytes.saturating_add(bytes_of(&key)),
        }
        self.in_order.insert((version, key));
    }

    /// Completes the records of a commit group with the ceiling `ceiling`: drops those of keys in memory that need no
    /// tombstone, and removes tombstones that the ceiling has passed, except of keys that have a record now. Returns the
    /// ceiling of the group: `greatest`, the greatest version given out, if there is no room for its tombstones.
    pub(super) fn complete(
        &mut self,
        records: &mut Vec<(u64, Record)>,
        ceiling: Version,
        greatest: Version,
        is_persistent: impl Fn(&Key) -> bool,
    ) -> Version {
        let new_bytes = with_tombstone(records, ceiling)
            .fold(0_usize, |sum, record| sum.saturating_add(bytes_of(&record.key)));
        let has_room = new_bytes == 0 || self.bytes.saturating_add(new_bytes) <= BYTES_MAX;
        let ceiling = if has_room { ceiling } else { ceiling.max(greatest) };
        records.retain(|(_, record)| match record {
            Record::Key(record) => !record.is_in_memory() || record.needs_tombstone(ceiling),
            _ => true,
        });
        for record in with_tombstone(records, ceiling) {
            self.note(&record.key, record.version);
        }
        let passed = self.take_passed(ceiling);
        let removed = passed.into_iter().filter(|key| !is_persistent(key)).map(removal);
        // A later record of the same key in the group counts.
        records.splice(0..0, removed);
        ceiling
    }

    /// Returns up to `max` tombstones after this one, in the order of their versions.
    pub(super) fn after(&self, last: Option<&(Version, Key)>, max: usize) -> Vec<(Version, Key)> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.in_order.range((from, Bound::Unbounded)).take(max).cloned().collect()
    }

    fn take_passed(&mut self, ceiling: Version) -> Vec<Key> {
        let mut passed = Vec::new();
        while passed.len() < REMOVED_PER_GROUP_MAX
            && self.in_order.first().is_some_and(|(version, _)| *version <= ceiling)
            && let Some((_, key)) = self.in_order.pop_first()
        {
            self.versions.remove(&key);
            self.bytes = self.bytes.saturating_sub(bytes_of(&key));
            passed.push(key);
        }
        passed
    }
}

/// Returns the records of keys of which the disk will have nothing but a version.
fn with_tombstone(records: &[(u64, Record)], ceiling: Version) -> impl Iterator<Item = &KeyRecord> {
    records.iter().filter_map(move |(_, record)| match record {
        Record::Key(record) if record.needs_tombstone(ceiling) => Some(record),
        _ => None,
    })
}

/// Returns the record that removes the tombstone of a key.
fn removal(key: Key) -> (u64, Record) {
    (0, Record::Key(KeyRecord::new(key, None)))
}

fn bytes_of(key: &Key) -> usize {
    key.as_bytes().len().saturating_add(OVERHEAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoredValue;

    const CEILING: Version = Version { ms: 100, counter: 0 };

    fn at(ms: u64) -> Version {
        Version { ms, counter: 0 }
    }

    fn deletion(name: String, ms: u64) -> (u64, Record) {
        let key = Key::new(name).unwrap();
        (1, Record::Key(KeyRecord { key, version: at(ms), content: None }))
    }

    fn keys(records: &[(u64, Record)]) -> impl Iterator<Item = &KeyRecord> {
        records.iter().map(|(_, record)| if let Record::Key(record) = record { record } else { panic!() })
    }

    fn names(records: &[(u64, Record)]) -> Vec<&[u8]> {
        keys(records).map(|record| record.key.as_bytes()).collect()
    }

    #[test]
    fn a_tombstone_is_removed_once_the_ceiling_has_passed_its_last_version_unless_the_key_has_a_record() {
        let mut tombstones = Tombstones::default();
        let mut complete = |records: &mut Vec<(u64, Record)>, ms| {
            tombstones.complete(records, at(ms), at(1_000), |key| key.as_bytes() == b"set")
        };
        let mut changes = vec![deletion("a".to_owned(), 150), deletion("set".to_owned(), 150)];
        changes.push(deletion("passed".to_owned(), 50));
        assert_eq!(complete(&mut changes, 100), CEILING);
        assert_eq!(names(&changes), [&b"a"[..], b"set", b"passed"]);
        // Its version has become greater meanwhile.
        assert_eq!(complete(&mut vec![deletion("a".to_owned(), 170)], 110), at(110));
        for (ms, expected) in [(160, &[][..]), (170, &[&b"a"[..]]), (180, &[])] {
            let mut changes = Vec::new();
            complete(&mut changes, ms);
            assert_eq!(names(&changes), expected, "{ms}");
        }
    }

    #[test]
    fn a_change_of_a_key_in_memory_is_committed_only_with_a_version_ahead_of_the_ceiling() {
        let in_memory = |ms| {
            let content =
                Some(StoredValue { value: "v".into(), fence: None, deadline_ms: None, persist: false });
            let key = Key::new("k".to_owned()).unwrap();
            (1, Record::Key(KeyRecord { key, version: at(ms), content }))
        };
        let mut changes = vec![in_memory(99), in_memory(101)];
        Tombstones::default().complete(&mut changes, CEILING, at(101), |_| false);
        assert_eq!(keys(&changes).map(|record| record.version.ms).collect::<Vec<_>>(), [101]);
    }

    #[test]
    fn without_room_the_ceiling_follows_all_versions_and_the_tombstones_go() {
        let mut tombstones = Tombstones::default();
        let long = "k".repeat(60_000);
        let mut group = |number: usize| {
            let mut changes = vec![deletion(format!("{number}{long}"), 150)];
            tombstones.complete(&mut changes, CEILING, at(160), |_| false)
        };
        let kept = BYTES_MAX / (long.len() + OVERHEAD_BYTES + 3);
        assert!((0..kept).all(|number| group(number) == CEILING));
        assert!((0..10).any(|number| group(kept + number) == at(160)));
        assert_eq!((tombstones.bytes, tombstones.versions.len(), tombstones.in_order.len()), (0, 0, 0));
    }
}
