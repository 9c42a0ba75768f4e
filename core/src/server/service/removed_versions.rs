//! The last versions of keys that other owners have removed: an instance that takes over continues above them.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::protocol::Key;
use crate::store::Version;

/// The most memory of the keys: those of about 40,000 with short names. At this bound the older half of the versions becomes one that
/// all absent keys continue above. No client notices: these versions are in the past, unless clients whose clocks are ahead have removed
/// some 20,000 keys within a minute.
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// What a version takes besides its key.
const OVERHEAD_BYTES: usize = 160;

/// The last versions of removed keys.
///
/// A key that is removed and set again gets a greater version than any it had. The greatest version that was ever given out would do,
/// but a client whose clock is ahead has raised it, and all absent keys would follow that client.
#[derive(Debug, Default)]
pub(super) struct RemovedVersions {
    /// Not a hash table: a large one is rehashed at once, and all requests wait meanwhile.
    versions: BTreeMap<Key, Version>,
    bytes: usize,
    /// A version that no key has passed that was forgotten.
    floor: Version,
}

impl RemovedVersions {
    /// Notes that a key with this version was removed.
    pub(super) fn note(&mut self, key: &Key, last: Version) {
        // Not the memory of a response of etcd.
        let Ok(key) = Key::new(Bytes::copy_from_slice(key.as_bytes())) else { return };
        let bytes = bytes_of(&key);
        if self.versions.insert(key, last).is_none() {
            self.bytes = self.bytes.saturating_add(bytes);
        }
        if self.bytes > BYTES_MAX {
            self.forget_half();
        }
    }

    /// Notes that a key is present: its version is greater.
    pub(super) fn note_present(&mut self, key: &Key) {
        if self.versions.remove(key).is_some() {
            self.bytes = self.bytes.saturating_sub(bytes_of(key));
        }
    }

    /// Returns the keys with their versions, and a version that all other absent keys must continue above.
    pub(super) fn into_parts(self) -> (impl Iterator<Item = (Key, Version)>, Version) {
        (self.versions.into_iter(), self.floor)
    }

    fn forget_half(&mut self) {
        let mut all: Vec<_> = self.versions.values().copied().collect();
        let middle = all.len().div_euclid(2);
        let floor = *all.select_nth_unstable(middle).1;
        self.floor = self.floor.max(floor);
        let Self { versions, bytes, floor } = self;
        versions.retain(|_, version| *version > *floor);
        *bytes = versions.keys().map(bytes_of).fold(0, usize::saturating_add);
    }
}

fn bytes_of(key: &Key) -> usize {
    key.as_bytes().len().saturating_add(OVERHEAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key::new(format!("{number:08}")).unwrap()
    }

    fn version(ms: u64) -> Version {
        Version { ms, counter: 0 }
    }

    #[test]
    fn each_removed_key_has_its_last_version_and_a_present_one_has_none() {
        let mut removed = RemovedVersions::default();
        removed.note(&key(1), version(5));
        removed.note(&key(1), version(9));
        removed.note(&key(2), version(7));
        removed.note_present(&key(2));
        let (keys, floor) = removed.into_parts();
        assert_eq!((keys.collect::<Vec<_>>(), floor), (vec![(key(1), version(9))], Version::default()));
    }

    #[test]
    fn at_the_bound_the_older_half_becomes_a_floor_and_the_newer_ones_stay() {
        let mut removed = RemovedVersions::default();
        for number in 0..200_000 {
            removed.note(&key(number), version(number));
            assert!(removed.bytes <= BYTES_MAX);
        }
        let (keys, floor) = removed.into_parts();
        let least = keys.map(|(_, version)| version).min().unwrap();
        assert!(floor < least && least.ms - floor.ms == 1, "nothing is lost: {floor:?}, {least:?}");
    }
}
