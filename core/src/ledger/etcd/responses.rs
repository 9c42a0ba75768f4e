//! Index of the records of responses in etcd: which are there, and which can be deleted.

use std::collections::VecDeque;

/// The most responses in etcd: the oldest above are deleted before their time.
const RESPONSES_MAX: u64 = 1 << 18;
/// The most records that one commit deletes.
const DELETED_PER_COMMIT_MAX: usize = 1_000;

/// The records of responses in etcd, in the order of their commits.
#[derive(Debug, Default)]
pub struct ResponseIndex {
    records: VecDeque<IndexedRecord>,
    /// Number of responses of all records.
    responses: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexedRecord {
    pub seq: u64,
    pub count: u32,
    /// The last time until which one of its responses is stored, on the store's clock.
    pub until_ms: u64,
}

/// The oldest records, to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldRecords {
    pub first_seq: u64,
    pub last_seq: u64,
}

impl ResponseIndex {
    pub fn push(&mut self, record: IndexedRecord) {
        self.responses = self.responses.saturating_add(u64::from(record.count));
        self.records.push_back(record);
    }

    /// Returns the oldest records that are not needed any more.
    pub fn old(&self, clock_ms: u64) -> Option<OldRecords> {
        let mut left = self.responses;
        let mut is_old = |record: &&IndexedRecord| {
            let is_surplus = left > RESPONSES_MAX;
            left = left.saturating_sub(u64::from(record.count));
            is_surplus || record.until_ms < clock_ms
        };
        let old = self.records.iter().take(DELETED_PER_COMMIT_MAX).take_while(|record| is_old(record));
        let last_seq = old.last()?.seq;
        Some(OldRecords { first_seq: self.records.front()?.seq, last_seq })
    }

    /// Notes that all records up to a commit have been deleted.
    pub fn handle_deleted(&mut self, last_seq: u64) {
        while let Some(record) = self.records.pop_front_if(|record| record.seq <= last_seq) {
            self.responses = self.responses.saturating_sub(u64::from(record.count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(records: impl IntoIterator<Item = (u64, u32, u64)>) -> ResponseIndex {
        let mut index = ResponseIndex::default();
        for (seq, count, until_ms) in records {
            index.push(IndexedRecord { seq, count, until_ms });
        }
        index
    }

    #[test]
    fn records_are_old_from_the_oldest_on_when_the_clock_has_passed_them() {
        let mut index = index([(3, 1, 10), (4, 1, 20), (6, 1, 90), (7, 1, 5)]);
        assert_eq!(index.old(10), None);
        assert_eq!(index.old(21), Some(OldRecords { first_seq: 3, last_seq: 4 }));
        index.handle_deleted(4);
        assert_eq!(index.old(90), None);
        assert_eq!(index.old(91), Some(OldRecords { first_seq: 6, last_seq: 7 }));
        index.handle_deleted(7);
        assert_eq!((index.old(u64::MAX), index.responses), (None, 0));
    }

    #[test]
    fn the_number_of_responses_is_bounded_and_so_are_the_deletions_of_one_commit() {
        let full = u32::try_from(RESPONSES_MAX).unwrap();
        let index = index([(1, full - 1, u64::MAX), (2, 1, u64::MAX), (3, 1, u64::MAX)]);
        assert_eq!(index.old(0), Some(OldRecords { first_seq: 1, last_seq: 1 }));
        let many = self::index((1..2_000).map(|seq| (seq, 1, 0)));
        assert_eq!(many.old(u64::MAX), Some(OldRecords { first_seq: 1, last_seq: 1_000 }));
    }
}
