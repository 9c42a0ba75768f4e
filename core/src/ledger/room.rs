//! Room of a ledger: whether a change may begin (pure).
//!
//! A group is in one segment of the log. Steps are put into segments before they are committed, by lengths that they do not exceed;
//! what is committed fits into the same segments or into earlier ones.

use std::collections::VecDeque;

use super::file::frame::{BLOCK_BYTES, HEADER_BYTES};
use super::record::{KeyRecord, Record};
use crate::exchange::row::{Row, RowId};
use crate::protocol::{ErrorReply, Key};

/// What a group takes besides its records, at most: its header and its metadata.
const GROUP_BYTES: u64 = HEADER_BYTES as u64 + 64;
/// What a record takes besides its key and its value, at most, without a fencing token.
const RECORD_BYTES: usize = 160;

/// Room that a ledger has, as it reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Lengths in bytes of what groups can be written to, in order.
    pub segments: VecDeque<u64>,
    /// How many bytes of them are left to changes that do not grow the store.
    pub spare_bytes: u64,
    /// By how many bytes the store may grow, so that its next snapshot has room.
    pub growth_bytes: u64,
    /// Whether more is coming, although no more can be had from the disk.
    pub is_coming: bool,
    /// Why no more room can be had at present; `None` if it can.
    pub lack: Option<ErrorReply>,
}

/// The room, less what the uncommitted steps take.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    room: Room,
    /// The last step of each group that is followed by one in another segment, with its length.
    closed: VecDeque<(u64, u64)>,
    /// Length of the last group: of its earlier steps, and of its present one.
    group_bytes: u64,
    step_bytes: u64,
}

impl Admission {
    #[must_use]
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// Whether a step of this length may begin.
    #[must_use]
    pub fn fits(&self, bytes: u64, grows: bool) -> bool {
        let mut segments = self.room.segments.iter();
        let first = segments.next().copied().unwrap_or(0);
        let in_first = group_bytes(self.group_bytes.saturating_add(self.step_bytes).saturating_add(bytes));
        let alone = group_bytes(bytes);
        let left = if in_first <= first {
            Some(first.saturating_sub(in_first))
        } else {
            segments.find(|segment| **segment >= alone).map(|segment| segment.saturating_sub(alone))
        };
        let rest: u64 = segments.copied().fold(0, u64::saturating_add);
        let may_grow = |left: u64| {
            let growth = self.pending_bytes().saturating_add(group_bytes(bytes));
            growth <= self.room.growth_bytes && left.saturating_add(rest) >= self.room.spare_bytes
        };
        left.is_some_and(|left| !grows || may_grow(left))
    }

    /// Begins a step.
    pub fn begin_step(&mut self) {
        self.group_bytes = self.group_bytes.saturating_add(std::mem::take(&mut self.step_bytes));
    }

    /// Adds a record to the present step, whose number is `sequence`.
    pub fn add(&mut self, sequence: u64, record: &Record) {
        self.step_bytes = self.step_bytes.saturating_add(record_bytes(record));
        let all = group_bytes(self.group_bytes.saturating_add(self.step_bytes));
        if self.group_bytes > 0 && self.room.segments.front().is_none_or(|first| all > *first) {
            self.closed.push_back((sequence.saturating_sub(1), std::mem::take(&mut self.group_bytes)));
            self.room.segments.pop_front();
        }
        self.skip_short();
    }

    /// Leaves out the segments that are too short for the last group.
    fn skip_short(&mut self) {
        let bytes = group_bytes(self.group_bytes.saturating_add(self.step_bytes));
        while self.room.segments.len() > 1 && self.room.segments.front().is_some_and(|first| bytes > *first) {
            self.room.segments.pop_front();
        }
    }

    /// Takes the next group. Returns its last step, unless it has all.
    pub fn take_group(&mut self) -> Option<u64> {
        let closed = self.closed.pop_front();
        if closed.is_none() {
            self.begin_step();
        }
        let bytes = closed.map_or_else(|| std::mem::take(&mut self.group_bytes), |(_, bytes)| bytes);
        let bytes = group_bytes(bytes);
        self.room.growth_bytes = self.room.growth_bytes.saturating_sub(bytes);
        if let Some((last, _)) = closed {
            return Some(last);
        }
        if let Some(first) = self.room.segments.front_mut() {
            *first = first.saturating_sub(bytes);
        }
        None
    }

    /// Sets the room when no group is under way.
    pub fn set_room(&mut self, room: Room) {
        let (group, step) = (self.group_bytes, self.step_bytes);
        self.room = room;
        for (_, bytes) in self.closed.clone() {
            (self.group_bytes, self.step_bytes) = (bytes, 0);
            self.skip_short();
            self.room.segments.pop_front();
        }
        (self.group_bytes, self.step_bytes) = (group, step);
        if group.saturating_add(step) > 0 {
            self.skip_short();
        }
    }

    /// Returns the number of groups that another one follows.
    #[must_use]
    pub fn closed(&self) -> u64 {
        self.closed.len() as u64
    }

    /// Returns the length of the groups that are not taken.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        let open = match self.group_bytes.saturating_add(self.step_bytes) {
            0 => 0,
            bytes => group_bytes(bytes),
        };
        self.closed.iter().map(|(_, bytes)| group_bytes(*bytes)).fold(open, u64::saturating_add)
    }
}

/// Returns the length of a group with records of this length.
#[must_use]
pub fn group_bytes(bytes: u64) -> u64 {
    GROUP_BYTES.saturating_add(bytes).checked_next_multiple_of(BLOCK_BYTES as u64).unwrap_or(u64::MAX)
}

/// Returns the length that the record of a key does not exceed, if its value and its fencing token have these lengths.
#[must_use]
pub fn key_bytes(key: &Key, value: usize, fence: usize) -> u64 {
    RECORD_BYTES.saturating_add(key.as_bytes().len()).saturating_add(value).saturating_add(fence) as u64
}

/// Returns the length that a record does not exceed.
fn record_bytes(record: &Record) -> u64 {
    match record {
        Record::Key(KeyRecord { key, content, .. }) => {
            // Of a key in memory, a version is all that is on disk.
            let stored = content.as_ref().filter(|stored| stored.persist);
            let fence = stored.and_then(|stored| stored.fence.as_ref()).map_or(0, |fence| fence.node().len());
            key_bytes(key, stored.map_or(0, |stored| stored.value.len()), fence)
        }
        Record::Exchange(id, row) => {
            let key = if let RowId::Key(key) = id { key.as_bytes().len() } else { 0 };
            let row = row.as_deref().map_or(0, Row::bytes_max);
            RECORD_BYTES.saturating_add(key).saturating_add(row) as u64
        }
        // Files have none of them.
        Record::Registration(_) | Record::Response(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ledger::file::codec;
    use crate::ledger::file::entry::{CommitMetadata, entries_of};
    use crate::ledger::file::frame;
    use crate::protocol::Timestamp;
    use crate::store::{Now, StoredValue, Version};

    fn record(len: usize, has_fence: bool, is_deletion: bool) -> Record {
        let fence = has_fence.then(|| Timestamp::of_store(u64::MAX, u32::MAX));
        let value = StoredValue { value: vec![b'v'; len].into(), fence, deadline_ms: Some(9), persist: true };
        let key = Key::new(vec![b'k'; 1 + len % 7]).unwrap();
        let version = Version { ms: u64::MAX, counter: 9 };
        Record::Key(KeyRecord { key, version, content: (!is_deletion).then_some(value) })
    }

    /// Returns the length of a group as the ledger writes it.
    fn written(records: &[(u64, Record)]) -> u64 {
        let now = Now { wall_ms: 1, monotonic_ms: 1 };
        let entries = entries_of(records, Version::default(), now, 1).unwrap();
        let mut out = Vec::new();
        frame::begin(&mut out);
        codec::put_group(&mut out, &CommitMetadata::default(), &entries).unwrap();
        frame::end(&mut out, frame::Kind::Group, 7, frame::Chain::default()).unwrap();
        out.len() as u64
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// Steps that are admitted are written to the segments in their order, whenever groups are taken.
        #[test]
        fn what_is_admitted_has_room_in_the_segments(
            segments in prop::collection::vec(1_u64..12, 1..6),
            steps in prop::collection::vec((0_usize..9_000, any::<bool>(), any::<bool>(), any::<bool>()), 1..60),
        ) {
            let segments: VecDeque<u64> = segments.into_iter().map(|blocks| blocks * BLOCK_BYTES as u64).collect();
            let mut admission = Admission::default();
            admission.set_room(Room { segments: segments.clone(), growth_bytes: u64::MAX, ..Room::default() });
            let (mut left, mut records) = (segments, Vec::new());
            let mut write = |records: &mut Vec<(u64, Record)>, last: Option<u64>| {
                let rest = records.split_off(records.partition_point(|(step, _)| last.is_none_or(|last| *step <= last)));
                let bytes = written(records);
                while left.front().is_some_and(|first| *first < bytes) {
                    left.pop_front();
                }
                *records = rest;
                left.front_mut().map(|first| *first -= bytes).is_some()
            };
            for (number, (len, has_fence, is_deletion, is_taken)) in steps.into_iter().enumerate() {
                let (step, record) = (number as u64 + 1, record(len, has_fence, is_deletion));
                if admission.fits(record_bytes(&record), true) {
                    admission.begin_step();
                    admission.add(step, &record);
                    records.push((step, record));
                }
                if is_taken && !records.is_empty() {
                    let last = admission.take_group();
                    prop_assert!(write(&mut records, last));
                }
            }
            while !records.is_empty() {
                let last = admission.take_group();
                prop_assert!(write(&mut records, last));
            }
        }
    }
}
