//! The entries themselves: found by key, named by slot.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use super::entry::Entry;
use super::expiry::Slot;

/// A table of entries. An entry keeps its slot for as long as it lives.
///
/// The index holds slots only: its vacant half costs 5 bytes each instead of a whole entry.
#[derive(Debug, Default)]
pub(super) struct Entries {
    index: HashTable<Slot>,
    slots: Vec<Entry>,
    vacant: Vec<Slot>,
    hasher: RandomState,
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<Slot> {
        let is_it = |slot: &Slot| self.get(*slot).is_some_and(|entry| entry.key() == key);
        self.index.find(self.hasher.hash_one(key), is_it).copied()
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Entry> {
        self.slots.get(slot as usize)
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.slots.get_mut(slot as usize)
    }

    /// The entries from a slot on, vacant slots left out.
    pub(super) fn iter_from(&self, slot: Slot) -> impl Iterator<Item = (Slot, &Entry)> {
        let entries = (slot..=Slot::MAX).zip(self.slots.get(slot as usize..).unwrap_or_default());
        entries.filter(|(_, entry)| !entry.key().is_empty())
    }

    /// Adds the entry of a key that has none.
    pub(super) fn insert(&mut self, entry: Entry) -> Slot {
        let Self {
            index,
            slots,
            vacant,
            hasher,
        } = self;
        let hash = hasher.hash_one(entry.key());
        let slot = match vacant.pop() {
            Some(slot) => {
                if let Some(at) = slots.get_mut(slot as usize) {
                    *at = entry;
                }
                slot
            }
            None => {
                slots.push(entry);
                // `Limits::keys_max` keeps the count within 32 bits.
                Slot::try_from(slots.len().saturating_sub(1)).unwrap_or(Slot::MAX)
            }
        };
        index.insert_unique(hash, slot, |slot| {
            slots
                .get(*slot as usize)
                .map_or(0, |entry| hasher.hash_one(entry.key()))
        });
        slot
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let hash = self.hasher.hash_one(self.get(slot)?.key());
        self.index.find_entry(hash, |known| *known == slot).ok()?.remove();
        self.vacant.push(slot);
        self.get_mut(slot).map(std::mem::take)
    }
}
