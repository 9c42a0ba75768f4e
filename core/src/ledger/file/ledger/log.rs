//! The segments of the log: the one that groups are written to, those that follow it, and those that are used again.

use std::collections::VecDeque;

use crate::ledger::file::disk::log_name;
use crate::ledger::file::frame::Chain;
use crate::ledger::file::policy::Policy;
use crate::ledger::file::work::OpenSegment;

/// The segments of a log.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The segment that groups are written to; `None` if the next group begins one.
    pub active: Option<OpenSegment>,
    /// The last group before the active segment.
    pub base: Chain,
    /// Segments that follow, in the order of their numbers.
    pub prepared: VecDeque<OpenSegment>,
    /// Numbers and lengths of the segments since the snapshot.
    pub used: Vec<(u64, u64)>,
    /// Segments that are no longer needed, and are used again.
    pub free: Vec<(u64, u64)>,
    /// Segments without their length, which are removed.
    pub dropped: Vec<u64>,
    /// The greatest number of a segment.
    pub last_number: u64,
    /// Length of the groups since the snapshot.
    pub bytes: u64,
}

impl Log {
    /// Makes a segment with room for a group the active one. Returns false if there is none.
    pub fn activate_for(&mut self, group_bytes: u64, chain: Chain) -> bool {
        let has_room = |segment: &OpenSegment| segment.bytes.saturating_sub(segment.at) >= group_bytes;
        if self.active.as_ref().is_some_and(has_room) {
            return true;
        }
        let Some(at) = self.prepared.iter().position(has_room) else { return false };
        // Groups must be in the order of the segments: one that is too short comes under a later number.
        for segment in self.prepared.drain(..at) {
            match segment.is_blank {
                true => self.dropped.push(segment.number),
                false => self.free.push((segment.number, segment.bytes)),
            }
        }
        self.activate_next(chain);
        true
    }

    /// Makes the next segment the active one, after the last group. Returns its number.
    pub fn activate_next(&mut self, chain: Chain) -> Option<u64> {
        let segment = self.prepared.pop_front()?;
        let number = segment.number;
        self.used.push((number, segment.bytes));
        (self.active, self.base) = (Some(segment), chain);
        Some(number)
    }

    /// Adds a segment that was prepared. Returns false if a later one is in use meanwhile.
    pub fn add(&mut self, segment: OpenSegment) -> bool {
        if self.active.as_ref().is_some_and(|active| active.number > segment.number) {
            return false;
        }
        let at = self.prepared.partition_point(|other| other.number < segment.number);
        self.prepared.insert(at, segment);
        true
    }

    /// Returns the number of the next segment.
    pub fn next_number(&mut self) -> u64 {
        self.last_number = self.last_number.saturating_add(1);
        self.last_number
    }

    /// Returns the length of the last segment, or 0.
    pub fn last_bytes(&self) -> u64 {
        self.prepared.back().or(self.active.as_ref()).map_or(0, |segment| segment.bytes)
    }

    pub fn is_half_used(&self) -> bool {
        self.active.as_ref().is_some_and(|segment| segment.at >= segment.bytes / 2)
    }

    /// Returns how much can be written to each segment, in order.
    pub fn room(&self) -> VecDeque<u64> {
        let segments = self.active.iter().chain(&self.prepared);
        segments.map(|segment| segment.bytes.saturating_sub(segment.at)).collect()
    }

    /// Handles a snapshot that was begun with a segment: the earlier ones are used again, up to `free_max` bytes. Returns the names of
    /// the others.
    pub fn handle_snapshot(&mut self, first: u64, policy: Policy, free_max: u64) -> Vec<String> {
        let mut obsolete = Vec::new();
        let mut free_bytes: u64 = self.free.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
        let needed_no_more: Vec<_> = self.used.extract_if(.., |(number, _)| *number < first).collect();
        // The last ones are used again: without its snapshot, the log must not seem to begin with the first one.
        for (number, bytes) in needed_no_more.into_iter().rev() {
            let is_usual = (policy.first_bytes..=policy.segment_bytes).contains(&bytes);
            if is_usual && (free_bytes == 0 || free_bytes.saturating_add(bytes) <= free_max) {
                free_bytes = free_bytes.saturating_add(bytes);
                self.free.push((number, bytes));
            } else {
                obsolete.push(log_name(number));
            }
        }
        // What has been committed since it was begun is in the segments from its own on.
        let active = self.active.as_ref().map_or(0, |segment| segment.at);
        let full = self.used.iter().rev().skip(1).map(|(_, bytes)| *bytes);
        self.bytes = full.fold(active, u64::saturating_add);
        obsolete
    }
}
