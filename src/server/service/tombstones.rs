//! Tombstones: keys of which the disk has nothing but a version that is ahead of the ceiling.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;

use crate::protocol::Key;
use crate::server::storage::needs_tombstone;
use crate::store::{Change, Version};

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
    versions: HashMap<Key, Version>,
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

    /// Completes the changes of a commit group with the ceiling `ceiling`: drops those of keys in memory that need no
    /// tombstone, and removes tombstones that the ceiling has passed, except of keys that have a record now. Returns the
    /// ceiling of the group: `greatest`, the greatest version given out, if there is no room for its tombstones.
    pub(super) fn complete(
        &mut self,
        changes: &mut Vec<Change>,
        ceiling: Version,
        greatest: Version,
        is_persistent: impl Fn(&Key) -> bool,
    ) -> Version {
        let new = || changes.iter().filter(|change| needs_tombstone(change, ceiling));
        let new_bytes = new().fold(0_usize, |sum, change| sum.saturating_add(bytes_of(&change.key)));
        let has_room = new_bytes == 0 || self.bytes.saturating_add(new_bytes) <= BYTES_MAX;
        let ceiling = if has_room { ceiling } else { ceiling.max(greatest) };
        changes.retain(|change| change.persist || needs_tombstone(change, ceiling));
        for change in changes.iter().filter(|change| needs_tombstone(change, ceiling)) {
            self.note(&change.key, change.version);
        }
        let passed = self.take_passed(ceiling);
        let removed = passed.into_iter().filter(|key| !is_persistent(key)).map(removal);
        // A later change of the same key in the group counts.
        changes.splice(0..0, removed);
        ceiling
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

/// Returns the change that removes the tombstone of a key.
fn removal(key: Key) -> Change {
    let version = Version::default();
    Change { key, version, content: None, persist: true, watchers: Vec::new(), notification: None }
}

fn bytes_of(key: &Key) -> usize {
    key.as_bytes().len().saturating_add(OVERHEAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CEILING: Version = Version { ms: 100, counter: 0 };

    fn at(ms: u64) -> Version {
        Version { ms, counter: 0 }
    }

    fn deletion(name: String, ms: u64) -> Change {
        Change { version: at(ms), ..removal(Key::new(name).unwrap()) }
    }

    fn names(changes: &[Change]) -> Vec<&[u8]> {
        changes.iter().map(|change| change.key.as_bytes()).collect()
    }

    #[test]
    fn a_tombstone_is_removed_once_the_ceiling_has_passed_its_last_version_unless_the_key_has_a_record() {
        let mut tombstones = Tombstones::default();
        let mut complete = |changes: &mut Vec<Change>, ms| {
            tombstones.complete(changes, at(ms), at(1_000), |key| key.as_bytes() == b"set")
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
        let in_memory = |ms| Change { persist: false, ..deletion("k".to_owned(), ms) };
        let mut changes = vec![in_memory(99), in_memory(101)];
        Tombstones::default().complete(&mut changes, CEILING, at(101), |_| false);
        assert_eq!(changes.iter().map(|change| change.version.ms).collect::<Vec<_>>(), [101]);
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
