//! Versions that never go back: a monotonic wall clock, and the versions of removed keys.

use crate::protocol::{Key, Timestamp};

use super::deadlines::{Deadlines, Slot};
use super::entries::Entries;
use super::entry::{Entry, Version};

/// The removed keys that a request forgets besides its own work.
const FORGOTTEN_PER_REQUEST_MAX: usize = 8;

/// Source of versions.
///
/// A key that is removed and set again gets a greater version than any it had (protocol §4). Once the clock has passed its
/// last version, that is so without remembering it, so only versions at or ahead of the clock are remembered: each with
/// its key, so that a client whose timestamps are ahead raises the versions of no key but those that it writes. A removed
/// key takes no more memory than before and counts like a key without a value, so that the limits of the store bound these
/// too.
#[derive(Debug, Default)]
pub(super) struct Versions {
    wall_ms: u64,
    /// Removed keys with their last versions.
    removed: Entries,
    /// When the clock passes each of `removed`, in Unix milliseconds.
    passed: Deadlines,
    /// A version that any absent key may have had. Only the versions of an earlier process raise it.
    floor: Version,
    greatest: Version,
}

impl Versions {
    /// Advances the clock to `wall_ms`, unless it is there already, and returns the time.
    pub(super) fn advance_clock(&mut self, wall_ms: u64) -> u64 {
        self.wall_ms = self.wall_ms.max(wall_ms);
        self.forget_passed(FORGOTTEN_PER_REQUEST_MAX);
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

    /// Returns the time of the clock, in Unix milliseconds.
    pub(super) fn wall_ms(&self) -> u64 {
        self.wall_ms
    }

    /// Returns a version that any absent key may have had.
    pub(super) fn floor(&self) -> Version {
        self.floor
    }

    /// Returns the next version of a key, given its last one; `None` if the key is absent.
    pub(super) fn next(&mut self, key: &[u8], last: Option<Version>, received: &Timestamp) -> Version {
        let last = last.unwrap_or_else(|| self.removed(key).unwrap_or_default().max(self.floor));
        let next = last.next(received, self.wall_ms);
        self.raise_greatest(next);
        next
    }

    /// Returns the last version of a removed key, if it is remembered.
    pub(super) fn removed(&self, key: &[u8]) -> Option<Version> {
        if self.removed.len() == 0 {
            return None;
        }
        self.removed.find(key).and_then(|slot| self.removed.get(slot)).map(Entry::version)
    }

    /// Remembers the last version of a removed key, if that can matter.
    pub(super) fn remember_removed(&mut self, key: &Key, last: Version) {
        if last.ms < self.wall_ms {
            return;
        }
        let slot = match self.removed.find(key.as_bytes()) {
            Some(slot) => {
                self.removed.overwrite(slot, (b"", None), last, None);
                slot
            }
            None => self.removed.insert(Entry::new(key, (b"", None), last, None)),
        };
        self.passed.set(slot, Some(last.ms));
    }

    /// Forgets removed keys whose versions the clock has passed, at most `keys_max`.
    pub(super) fn forget_passed(&mut self, keys_max: usize) {
        for _ in 0..keys_max {
            let Some(slot) = self.first_passed() else { return };
            self.passed.set(slot, None);
            self.removed.remove(slot);
        }
    }

    /// Whether there are removed keys to forget.
    pub(super) fn has_passed(&self) -> bool {
        self.first_passed().is_some()
    }

    fn first_passed(&self) -> Option<Slot> {
        self.passed.first().filter(|(ms, _)| *ms < self.wall_ms).map(|(_, slot)| slot)
    }

    /// Returns the memory of the removed keys in bytes.
    pub(super) fn cost(&self) -> u64 {
        self.removed.cost()
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::KEY_COST_BYTES;
    use super::*;

    fn key(name: &[u8]) -> Key {
        Key::new(name.to_vec()).unwrap()
    }

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
        versions.remember_removed(&key(b"behind"), at(9, 7));
        versions.remember_removed(&key(b"now"), at(10, 7));
        assert_eq!(versions.removed.len(), 1);
        assert_eq!(versions.next(b"now", None, &Timestamp::of_store(0, 0)), at(10, 8));
        assert_eq!(versions.next(b"another", None, &Timestamp::of_store(0, 0)), at(10, 0));
        versions.advance_clock(11);
        assert_eq!((versions.removed.len(), versions.cost()), (0, 0));
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
    fn removed_keys_raise_the_versions_of_no_other_key_however_many_they_are() {
        let mut versions = Versions::default();
        versions.advance_clock(10);
        for name in 0..70_000_u32 {
            versions.remember_removed(&key(&name.to_be_bytes()), at(20, name));
        }
        let zero = Timestamp::of_store(0, 0);
        assert_eq!(versions.next(b"other", None, &zero), at(10, 0));
        assert_eq!(versions.next(&[0; 4], None, &zero), at(20, 1));
        assert_eq!(versions.next(&69_999_u32.to_be_bytes(), None, &zero), at(20, 70_000));
    }

    #[test]
    fn a_removed_key_costs_what_a_key_without_a_value_costs_until_the_clock_has_passed_it() {
        let mut versions = Versions::default();
        versions.advance_clock(10);
        for ms in [20, 30] {
            versions.remember_removed(&key(b"four"), at(ms, 0));
        }
        assert_eq!(versions.cost(), KEY_COST_BYTES + 4);
        versions.advance_clock(30);
        assert_eq!((versions.cost(), versions.has_passed()), (KEY_COST_BYTES + 4, false));
        versions.advance_clock(31);
        assert_eq!(versions.cost(), 0);
    }

    #[test]
    fn a_request_forgets_a_bounded_number_of_removed_keys_and_polls_forget_the_rest() {
        let mut versions = Versions::default();
        for name in 0..100_u8 {
            versions.remember_removed(&key(&[name]), at(20, 0));
        }
        versions.advance_clock(21);
        assert_eq!(versions.removed.len(), 100 - FORGOTTEN_PER_REQUEST_MAX);
        assert!(versions.has_passed());
        versions.forget_passed(100);
        assert!(!versions.has_passed());
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
