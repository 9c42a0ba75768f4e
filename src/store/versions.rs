//! Versions that never go back: a monotonic wall clock, and the versions of removed keys.

use std::collections::HashMap;

use crate::protocol::Timestamp;

use super::entry::Version;

/// The most removed keys that are remembered individually.
const REMOVED_MAX: usize = 65_536;
/// The most bytes of removed keys.
const REMOVED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Source of versions.
///
/// A key that is removed and set again gets a greater version than any it had (protocol §4). Once the clock
/// has passed its last version, that is so without remembering it, so only versions at or ahead of the clock
/// are remembered.
#[derive(Debug, Default)]
pub(super) struct Versions {
    wall_ms: u64,
    removed: HashMap<Box<[u8]>, Version>,
    removed_bytes: usize,
    /// The greatest version in `removed`: once the clock has passed it, the map can be cleared.
    removed_latest: Version,
    /// A version that any absent key may have had.
    floor: Version,
    greatest: Version,
}

impl Versions {
    /// Advances the clock to `wall_ms`, unless it is there already, and returns the time.
    pub(super) fn advance_clock(&mut self, wall_ms: u64) -> u64 {
        self.wall_ms = self.wall_ms.max(wall_ms);
        if self.wall_ms > self.removed_latest.ms && !self.removed.is_empty() {
            self.removed = HashMap::new();
            self.removed_bytes = 0;
        }
        self.wall_ms
    }

    pub(super) fn greatest(&self) -> Version {
        self.greatest
    }

    /// Makes all absent keys get versions greater than `floor`.
    pub(super) fn raise_floor(&mut self, floor: Version) {
        self.floor = self.floor.max(floor);
        self.raise_greatest(floor);
    }

    /// Notes that a version has been given out.
    pub(super) fn raise_greatest(&mut self, version: Version) {
        self.greatest = self.greatest.max(version);
    }

    /// Returns the next version of a key, given its last one; `None` if the key is absent.
    pub(super) fn next(&mut self, key: &[u8], last: Option<Version>, received: &Timestamp) -> Version {
        let last = last.unwrap_or_else(|| {
            let removed = if self.removed.is_empty() { None } else { self.removed.get(key) };
            removed.copied().unwrap_or_default().max(self.floor)
        });
        let next = last.next(received, self.wall_ms);
        self.raise_greatest(next);
        next
    }

    /// Remembers the last version of a removed key, if that can matter.
    pub(super) fn remember_removed(&mut self, key: &[u8], last: Version) {
        if last.ms < self.wall_ms {
            return;
        }
        self.removed_latest = self.removed_latest.max(last);
        if self.removed.insert(key.into(), last).is_none() {
            self.removed_bytes = self.removed_bytes.saturating_add(key.len());
        }
        if self.removed.len() > REMOVED_MAX || self.removed_bytes > REMOVED_BYTES_MAX {
            self.floor = self.floor.max(self.removed_latest);
            self.removed = HashMap::new();
            self.removed_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, counter: u32) -> Version {
        Version { ms, counter }
    }

    #[test]
    fn the_clock_never_goes_back() {
        let mut versions = Versions::default();
        assert_eq!([5, 3, 6].map(|wall_ms| versions.advance_clock(wall_ms)), [5, 5, 6]);
    }

    #[test]
    fn a_removed_key_is_remembered_until_the_clock_has_passed_its_version() {
        let mut versions = Versions::default();
        versions.advance_clock(10);
        versions.remember_removed(b"behind", at(9, 7));
        versions.remember_removed(b"now", at(10, 7));
        assert_eq!(versions.removed.len(), 1);
        assert_eq!(versions.next(b"now", None, &Timestamp::of_store(0, 0)), at(10, 8));
        assert_eq!(versions.next(b"another", None, &Timestamp::of_store(0, 0)), at(10, 0));
        versions.advance_clock(11);
        assert!(versions.removed.is_empty());
        assert_eq!(versions.next(b"now", None, &Timestamp::of_store(0, 0)), at(11, 0));
    }

    #[test]
    fn a_timestamp_of_the_current_millisecond_moves_the_version_to_the_next_one_at_most() {
        let mut versions = Versions::default();
        versions.advance_clock(10);
        let here = Timestamp::of_store(10, 4);
        assert_eq!(versions.next(b"k", None, &here), at(11, 0));
        assert_eq!(versions.next(b"k", Some(at(9, 3)), &here), at(11, 0));
        assert_eq!(versions.next(b"k", Some(at(10, 3)), &here), at(10, 5));
        assert_eq!(versions.next(b"k", Some(at(11, 0)), &here), at(11, 1));
    }

    #[test]
    fn too_many_removed_keys_are_replaced_by_one_floor() {
        let mut versions = Versions::default();
        versions.advance_clock(10);
        for key in 0..=u32::try_from(REMOVED_MAX).unwrap() {
            versions.remember_removed(&key.to_be_bytes(), at(20, key));
        }
        assert!(versions.removed.is_empty());
        let next = versions.next(&[0], None, &Timestamp::of_store(0, 0));
        assert_eq!(next, at(20, u32::try_from(REMOVED_MAX).unwrap() + 1));
    }

    #[test]
    fn the_greatest_version_is_the_greatest_of_all_keys() {
        let mut versions = Versions::default();
        versions.advance_clock(10);
        versions.raise_floor(at(3, 0));
        assert_eq!(versions.greatest(), at(3, 0));
        versions.next(b"ahead", None, &Timestamp::of_store(50, 0));
        versions.next(b"k", None, &Timestamp::of_store(0, 0));
        assert_eq!(versions.greatest(), at(50, 1));
    }
}
