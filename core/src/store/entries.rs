//! Table of entries: found by key, addressed by slot.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::deadlines::Slot;
use super::entry::{Entry, Version};
use crate::protocol::{EncodedValue, Timestamp};

/// Number of shards of the index. They grow one by one: with a single table, the request at which a million
/// keys are rehashed would wait for 300 ms. The number is no power of two, so that a million keys, or a
/// thousand, do not fill all shards to just above the size at which they double.
const SHARDS: u64 = 300;
/// What a file has of a key besides its name and its value, at most: lengths, version, deadline, fencing token.
const OVERHEAD_BYTES: u64 = 64;

/// A table of entries. An entry keeps its slot until it is removed.
///
/// The index holds slots only, so that an unused place in it takes 5 bytes instead of a whole entry.
#[derive(Debug)]
pub(super) struct Entries {
    index: Box<[HashTable<Slot>]>,
    slots: Vec<Entry>,
    vacant: Vec<Slot>,
    /// Total length of all keys and values.
    bytes: u64,
    /// What the persistent ones take in a file, or somewhat more.
    persistent_bytes: u64,
    /// Memory of all entries, in bytes.
    cost: u64,
    /// Seeded at random in each process, so that a client cannot choose keys that collide.
    hasher: RandomState,
}

fn size(entry: &Entry) -> u64 {
    let bytes = entry.key().len().saturating_add(entry.value().len());
    bytes as u64
}

fn persistent_bytes(entry: &Entry) -> u64 {
    if entry.is_persistent() { size(entry).saturating_add(OVERHEAD_BYTES) } else { 0 }
}

impl Default for Entries {
    fn default() -> Self {
        Self {
            index: (0..SHARDS).map(|_| HashTable::new()).collect(),
            slots: Vec::new(),
            vacant: Vec::new(),
            bytes: 0,
            persistent_bytes: 0,
            cost: 0,
            hasher: RandomState::default(),
        }
    }
}

/// Selects the shard by bits of the hash that the table inside the shard hardly uses.
fn shard(hash: u64) -> usize {
    usize::try_from((hash >> 40) % SHARDS).unwrap_or(0)
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.slots.len().saturating_sub(self.vacant.len())
    }

    /// Returns the total length of all keys and values in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns what the persistent entries take in a file, in bytes, or somewhat more.
    pub(super) fn persistent_bytes(&self) -> u64 {
        self.persistent_bytes
    }

    /// Returns the memory of all entries in bytes, with their overhead.
    pub(super) fn cost(&self) -> u64 {
        self.cost
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<Slot> {
        let is_key = |slot: &Slot| self.get(*slot).is_some_and(|entry| entry.key() == key);
        let hash = self.hasher.hash_one(key);
        self.index.get(shard(hash))?.find(hash, is_key).copied()
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Entry> {
        self.slots.get(slot as usize)
    }

    fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.slots.get_mut(slot as usize)
    }

    /// Returns the entries from a slot on. A vacant slot has an empty key.
    pub(super) fn iter_from(&self, slot: Slot) -> impl Iterator<Item = (Slot, &Entry)> {
        (slot..=Slot::MAX).zip(self.slots.get(slot as usize..).unwrap_or_default())
    }

    pub(super) fn overwrite(
        &mut self,
        slot: Slot,
        value: (&[u8], Option<EncodedValue>),
        version: Version,
        fence: Option<Timestamp>,
    ) {
        let Some(entry) = self.get_mut(slot) else { return };
        let before = (size(entry), entry.cost(), persistent_bytes(entry));
        entry.overwrite(value, version, fence);
        let after = (size(entry), entry.cost(), persistent_bytes(entry));
        self.persistent_bytes = self.persistent_bytes.saturating_sub(before.2).saturating_add(after.2);
        self.bytes = self.bytes.saturating_sub(before.0).saturating_add(after.0);
        self.cost = self.cost.saturating_sub(before.1).saturating_add(after.1);
    }

    pub(super) fn set_persistent(&mut self, slot: Slot) {
        let Some(entry) = self.get_mut(slot) else { return };
        let before = persistent_bytes(entry);
        entry.set_persistent();
        let after = persistent_bytes(entry);
        self.persistent_bytes = self.persistent_bytes.saturating_sub(before).saturating_add(after);
    }

    /// Inserts the entry of a key that is absent.
    pub(super) fn insert(&mut self, entry: Entry) -> Slot {
        self.persistent_bytes = self.persistent_bytes.saturating_add(persistent_bytes(&entry));
        let Self { index, slots, vacant, bytes, cost, hasher, .. } = self;
        *bytes = bytes.saturating_add(size(&entry));
        *cost = cost.saturating_add(entry.cost());
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
                // The conversion cannot fail: `Limits::keys_max` bounds the number of slots by 32 bits.
                Slot::try_from(slots.len().saturating_sub(1)).unwrap_or(Slot::MAX)
            }
        };
        let hash_of = |slot: &Slot| slots.get(*slot as usize).map_or(0, |entry| hasher.hash_one(entry.key()));
        if let Some(shard) = index.get_mut(shard(hash)) {
            shard.insert_unique(hash, slot, hash_of);
        }
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let hash = self.hasher.hash_one(self.get(slot)?.key());
        let shard = self.index.get_mut(shard(hash))?;
        shard.find_entry(hash, |known| *known == slot).ok()?.remove();
        self.vacant.push(slot);
        let removed = self.get_mut(slot).map(std::mem::take)?;
        self.bytes = self.bytes.saturating_sub(size(&removed));
        self.persistent_bytes = self.persistent_bytes.saturating_sub(persistent_bytes(&removed));
        self.cost = self.cost.saturating_sub(removed.cost());
        Some(removed)
    }
}
