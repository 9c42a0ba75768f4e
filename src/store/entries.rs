//! The entries themselves: found by key, named by slot.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::entry::{Entry, Version};
use super::expiry::Slot;
use crate::protocol::Timestamp;

/// How many parts the index has. They grow one by one: with a single part, the request that comes when a million
/// keys must be placed anew would wait 300 ms. With so many, a million keys, or a thousand, fill most of the room there
/// is; with a power of two they would have just made it twice as large.
const PARTS: u64 = 300;

/// A table of entries. An entry keeps its slot for as long as it lives.
///
/// The index holds slots only: its vacant half costs 5 bytes each instead of a whole entry.
#[derive(Debug)]
pub(super) struct Entries {
    index: Box<[HashTable<Slot>]>,
    slots: Vec<Entry>,
    vacant: Vec<Slot>,
    /// Of all keys and values.
    bytes: u64,
    /// Keyed by what only this process knows, its time among it: whoever chooses keys does not know which collide.
    hasher: RandomState,
}

fn size(entry: &Entry) -> u64 {
    let bytes = entry.key().len().saturating_add(entry.value().len());
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

impl Default for Entries {
    fn default() -> Self {
        Self {
            index: (0..PARTS).map(|_| HashTable::new()).collect(),
            slots: Vec::new(),
            vacant: Vec::new(),
            bytes: 0,
            hasher: RandomState::default(),
        }
    }
}

/// The part of the index for a hash, by bits that the part itself makes least use of.
fn part(hash: u64) -> usize {
    usize::try_from((hash >> 40) % PARTS).unwrap_or(0)
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.slots.len().saturating_sub(self.vacant.len())
    }

    /// How many bytes keys and values have.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<Slot> {
        let is_it = |slot: &Slot| self.get(*slot).is_some_and(|entry| entry.key() == key);
        let hash = self.hasher.hash_one(key);
        self.index.get(part(hash))?.find(hash, is_it).copied()
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Entry> {
        self.slots.get(slot as usize)
    }

    fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.slots.get_mut(slot as usize)
    }

    /// The entries from a slot on; a vacant slot's has an empty key.
    pub(super) fn iter_from(&self, slot: Slot) -> impl Iterator<Item = (Slot, &Entry)> {
        (slot..=Slot::MAX).zip(self.slots.get(slot as usize..).unwrap_or_default())
    }

    /// Writes another value over an entry's.
    pub(super) fn overwrite(&mut self, slot: Slot, value: &[u8], version: Version, fence: Option<Timestamp>) {
        let Some(entry) = self.get_mut(slot) else { return };
        let before = size(entry);
        entry.overwrite(value, version, fence);
        let after = size(entry);
        self.bytes = self.bytes.saturating_sub(before).saturating_add(after);
    }

    /// Marks an entry that is to be kept on disk.
    pub(super) fn persist(&mut self, slot: Slot) {
        if let Some(entry) = self.get_mut(slot) {
            entry.persist();
        }
    }

    /// Adds the entry of a key that has none.
    pub(super) fn insert(&mut self, entry: Entry) -> Slot {
        let Self { index, slots, vacant, bytes, hasher } = self;
        *bytes = bytes.saturating_add(size(&entry));
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
        let hash_of = |slot: &Slot| slots.get(*slot as usize).map_or(0, |entry| hasher.hash_one(entry.key()));
        if let Some(part) = index.get_mut(part(hash)) {
            part.insert_unique(hash, slot, hash_of);
        }
        slot
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let hash = self.hasher.hash_one(self.get(slot)?.key());
        let part = self.index.get_mut(part(hash))?;
        part.find_entry(hash, |known| *known == slot).ok()?.remove();
        self.vacant.push(slot);
        let removed = self.get_mut(slot).map(std::mem::take)?;
        self.bytes = self.bytes.saturating_sub(size(&removed));
        Some(removed)
    }
}
