//! Entries and their metadata: records as a file has them.

use bytes::Bytes;

use crate::ledger::{KeyRecord, KeyState, Record, RecordTooLong};
use crate::protocol::Key;
use crate::store::{Now, Version};

/// What an entry takes besides its place and its content: a kind and two lengths.
const OVERHEAD_BYTES: usize = 1 + 4 + 4;

/// Where an entry belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Key(Key),
    /// A row of the exchange, by its encoded address.
    Row(Bytes),
}

/// A record as a file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub place: Place,
    /// The encoded [`KeyState`] of a key, or the encoded row; `None`: it is absent.
    pub content: Option<Bytes>,
}

/// The entries of one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryGroup {
    /// The first group of a store has 1, and no number is skipped.
    pub number: u64,
    pub metadata: CommitMetadata,
    /// In their order: of several entries of the same place, the last one counts.
    pub entries: Vec<Entry>,
}

/// A reading of the clock that counts from the start of the machine, and does so during sleep too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Identifies the start of the machine; 0 if unknown.
    pub boot: u64,
    /// Milliseconds since then.
    pub boot_ms: u64,
    /// Whether the wall clock may be wrong, because no time server disciplines it.
    pub is_unsynchronized: bool,
}

/// What every commit stores besides its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitMetadata {
    /// The version above which keys without a record continue. A key that was deleted, or that was in memory only, must
    /// not come back with a lower version than it had (protocol §4): that is at most this one, unless it has a tombstone.
    pub ceiling: Version,
    /// The wall clock at the commit, in Unix milliseconds; 0 before the first commit.
    pub wall_ms: u64,
    /// The store's clock at the commit, in milliseconds: see [`CommitMetadata::clock_ms_at`].
    pub clock_ms: u64,
    pub moment: Moment,
}

impl CommitMetadata {
    /// Returns what the store's clock shows when the next process opens the store.
    ///
    /// The store's clock measures the deadlines on disk. While a process runs, it follows the monotonic clock, so that a
    /// step of the wall clock ends no time to live. Between two processes it follows the clock of the machine since its
    /// start, which no one sets.
    ///
    /// After a restart of the machine, at least the time since the start has passed. More has if the wall clock shows it,
    /// and was synchronized at both ends: a clock without a battery, or one that was set by mistake, makes a key expire late
    /// rather than early.
    #[must_use]
    pub fn clock_ms_at(&self, wall_ms: u64, now: Moment) -> u64 {
        let by_wall_ms = wall_ms.saturating_sub(self.wall_ms);
        let elapsed_ms = if self.wall_ms == 0 {
            by_wall_ms
        } else if now.boot != 0 && now.boot == self.moment.boot {
            now.boot_ms.saturating_sub(self.moment.boot_ms)
        } else if self.moment.is_unsynchronized || now.is_unsynchronized {
            now.boot_ms
        } else {
            by_wall_ms.max(now.boot_ms)
        };
        self.clock_ms.saturating_add(elapsed_ms)
    }
}

/// Returns the entries of records. A key that holds nothing on disk, and whose version is greater than the ceiling, gets a
/// tombstone. `clock_ms` is the store's clock at `now`.
///
/// # Errors
/// A fencing token is too long.
pub fn entries_of(
    records: &[(u64, Record)],
    ceiling: Version,
    now: Now,
    clock_ms: u64,
) -> Result<Vec<Entry>, RecordTooLong> {
    let entry = |(_, record): &(u64, Record)| match record {
        Record::Key(record) => key_entry(record, ceiling, now, clock_ms).map(Some),
        Record::Exchange(id, row) => {
            let content = row.as_ref().map(|row| row.encode());
            Ok(Some(Entry { place: Place::Row(id.encode()), content }))
        }
        // No other instance of the store needs them.
        Record::Registration(_) | Record::Response(_) => Ok(None),
    };
    records.iter().filter_map(|record| entry(record).transpose()).collect()
}

fn key_entry(record: &KeyRecord, ceiling: Version, now: Now, clock_ms: u64) -> Result<Entry, RecordTooLong> {
    let state = match &record.content {
        _ if record.needs_tombstone(ceiling) => Some(KeyState::tombstone(record.version)),
        Some(stored) if stored.persist => Some(KeyState::new(record.version, stored, now, clock_ms)),
        _ => None,
    };
    let content = state.map(|state| state.encode()).transpose()?;
    Ok(Entry { place: Place::Key(record.key.clone()), content })
}

impl Entry {
    /// Returns the entry of what a key holds.
    ///
    /// # Errors
    /// The fencing token is too long.
    pub fn of_key(key: Key, state: &KeyState) -> Result<Self, RecordTooLong> {
        Ok(Self { place: Place::Key(key), content: Some(state.encode()?) })
    }

    /// Returns what the entry takes in a snapshot, which has none of an absent place.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        let place_bytes = match &self.place {
            Place::Key(key) => key.as_bytes().len(),
            Place::Row(row) => row.len(),
        };
        let bytes =
            |content: &Bytes| content.len().saturating_add(place_bytes).saturating_add(OVERHEAD_BYTES);
        self.content.as_ref().map_or(0, |content| bytes(content) as u64)
    }
}
