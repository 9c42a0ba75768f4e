//! Commits: a group of changes in parts that etcd takes, each as one transaction.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use bytes::Bytes;

use super::codec::{EncodedResponses, Head, encode_row, presence};
use super::layout::Layout;
use super::operation::{Condition, OPERATIONS_MAX, Operation, TXN_BYTES_MAX, Txn};
use super::responses::{IndexedRecord, OldRecords};
use crate::ledger::{Group, KeyRecord, Record, RegistrationRecord};
use crate::store::{Now, Version};

/// The operations of a commit besides those of rows and registrations: of the head, of its responses, of old ones.
const OWN_OPERATIONS: usize = 3;
/// More than the bytes of these operations, without the responses.
const OWN_BYTES: usize = 4 * 1024;

/// Changes that form one commit: whole requests.
#[derive(Debug, Default)]
pub struct Part {
    /// The last change of each key; `None`: it is deleted.
    changes: BTreeMap<Bytes, Option<Bytes>>,
    responses: EncodedResponses,
    /// Responses of earlier parts, which were committed without them.
    carried: EncodedResponses,
    has_puts: bool,
    /// The greatest version that was given out, also one that was overwritten since.
    greatest: Version,
    bytes: usize,
    /// The last sequence number that is committed with it.
    pub sequence: u64,
}

/// The changes of one request.
#[derive(Default)]
struct Unit {
    changes: Vec<(Bytes, Option<Bytes>)>,
    responses: EncodedResponses,
    greatest: Version,
    bytes: usize,
}

impl Part {
    /// A part without changes.
    pub fn empty(sequence: u64) -> Self {
        Self { sequence, ..Self::default() }
    }

    /// Whether it has neither changes nor responses.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.responses.is_empty()
    }

    /// Whether a request of it has written a row or a registration, for which etcd needs space: also if a later request has
    /// deleted it, because the version that was given out must be recorded.
    pub fn has_puts(&self) -> bool {
        self.has_puts
    }

    /// Returns the entry of its responses in the index, if it has any; `seq` is the number of its commit.
    pub fn indexed(&self, seq: u64) -> Option<IndexedRecord> {
        let (carried, own) = (&self.carried, &self.responses);
        let count = carried.count().saturating_add(own.count());
        self.has_responses().then(|| IndexedRecord {
            seq,
            count,
            until_ms: carried.until_ms().max(own.until_ms()),
        })
    }

    /// Adds the responses of earlier parts.
    pub fn carry(&mut self, carried: EncodedResponses) {
        self.carried = carried;
    }

    /// Returns the responses of earlier parts.
    pub fn take_carried(&mut self) -> EncodedResponses {
        std::mem::take(&mut self.carried)
    }

    pub fn into_responses(self) -> EncodedResponses {
        self.responses
    }

    fn has_responses(&self) -> bool {
        !self.responses.is_empty() || !self.carried.is_empty()
    }

    /// Whether a request deletes a key that this part has written. Other instances must receive the version that was written, which
    /// the key continues above; and nothing would be received of a key that was absent before, so that an instance whose watch has
    /// lost its deletion would not notice that.
    fn is_undone_by(&self, unit: &Unit) -> bool {
        let was_put = |key| self.changes.get(key).is_some_and(Option::is_some);
        unit.changes.iter().any(|(key, value)| value.is_none() && was_put(key))
    }

    fn has_room_for(&self, unit: &Unit) -> bool {
        let new = unit.changes.iter().filter(|(key, _)| !self.changes.contains_key(key)).count();
        let operations = self.changes.len().saturating_add(new).saturating_add(OWN_OPERATIONS);
        let bytes = self.bytes.saturating_add(unit.bytes).saturating_add(OWN_BYTES);
        operations <= OPERATIONS_MAX && bytes <= TXN_BYTES_MAX
    }

    fn add(&mut self, mut unit: Unit) {
        for (key, value) in unit.changes {
            self.has_puts |= value.is_some();
            self.changes.insert(key, value);
        }
        self.responses.append(&mut unit.responses);
        self.greatest = self.greatest.max(unit.greatest);
        // The changes that are overwritten count too: the limit is far below that of etcd, but so are most commits.
        self.bytes = self.bytes.saturating_add(unit.bytes);
    }

    /// Returns the head that follows `head` with this commit.
    pub fn next_head(&self, head: &Head, wall_ms: u64) -> Head {
        let count = |changes: usize| u32::try_from(changes).unwrap_or(u32::MAX);
        let puts = self.changes.values().flatten().count();
        Head {
            seq: head.seq.saturating_add(1),
            greatest: head.greatest.max(self.greatest),
            wall_ms: head.wall_ms.max(wall_ms),
            puts: count(puts.saturating_add(usize::from(self.has_responses()))),
            deletions: count(self.changes.len().saturating_sub(puts)),
            ..head.clone()
        }
    }

    /// Returns the transaction that commits the part, if the head was changed last at `revision`.
    pub fn txn(&self, layout: &Layout, revision: u64, next: &Head, old: Option<OldRecords>) -> Txn {
        let mut operations = vec![put(layout.head(), next.encode())];
        operations.extend(self.operations());
        if self.has_responses() {
            let responses = self.carried.encode_with(&self.responses);
            operations.push(put(layout.responses(next.seq), responses));
        }
        operations.extend(old.map(|old| Operation::DeleteRange {
            from: layout.responses(old.first_seq),
            to: layout.responses(old.last_seq.saturating_add(1)),
        }));
        guarded(layout, revision, operations)
    }

    /// Returns a transaction that deletes what the part deletes, and changes nothing else, not even the head: etcd takes it
    /// without space.
    pub fn deletions(&self, layout: &Layout, revision: u64) -> Txn {
        let deletes = |operation: &Operation| matches!(operation, Operation::Delete { .. });
        let mut operations: Vec<_> = self.operations().filter(deletes).collect();
        if operations.is_empty() {
            // No commit has this number. Without a change, the transaction would be a read.
            operations.push(Operation::Delete { key: layout.responses(0) });
        }
        guarded(layout, revision, operations)
    }

    fn operations(&self) -> impl Iterator<Item = Operation> {
        self.changes.iter().map(|(key, change)| match change {
            Some(value) => put(key.clone(), value.clone()),
            None => Operation::Delete { key: key.clone() },
        })
    }
}

/// Returns a transaction that is applied if the head was changed last at `revision`.
pub fn guarded(layout: &Layout, revision: u64, operations: Vec<Operation>) -> Txn {
    let head = layout.head();
    let condition = Condition { key: head.clone(), mod_revision: revision };
    Txn { conditions: vec![condition], operations, otherwise: vec![head] }
}

/// Returns keys that do not exist: with them, a transaction has as many operations and bytes as a commit may have.
pub fn padding(layout: &Layout) -> impl Iterator<Item = Bytes> {
    /// More than the longest value with its key, the longest responses and the head.
    const BYTES: usize = 1_500 * 1024;
    const KEYS: usize = OPERATIONS_MAX - 1;
    let responses = layout.responses(0);
    (0..KEYS).map(move |number| {
        let number = number.to_string().into_bytes();
        [&responses[..], &number, &[b'-'; BYTES / KEYS]].concat().into()
    })
}

pub fn put(key: Bytes, value: Bytes) -> Operation {
    Operation::Put { key, value, lease: None }
}

/// Divides a group into commits, at least one. A request is never divided: if it is larger than a commit should be, it is
/// one by itself. Returns `None` if something is too long for any request.
pub fn divide(group: Group, layout: &Layout, now: Now, clock_ms: u64) -> Option<VecDeque<Part>> {
    let mut parts = VecDeque::new();
    let mut part = Part::empty(0);
    let mut records = group.records.into_iter().peekable();
    while let Some((sequence, record)) = records.next() {
        let mut unit = Unit::default();
        unit.add(record, layout, now, clock_ms)?;
        while let Some((_, record)) = records.next_if(|(next, _)| *next == sequence) {
            unit.add(record, layout, now, clock_ms)?;
        }
        if !part.is_empty() && (!part.has_room_for(&unit) || part.is_undone_by(&unit)) {
            parts.push_back(std::mem::take(&mut part));
        }
        part.add(unit);
        part.sequence = sequence;
    }
    part.sequence = group.sequence;
    parts.push_back(part);
    Some(parts)
}

impl Unit {
    fn add(&mut self, record: Record, layout: &Layout, now: Now, clock_ms: u64) -> Option<()> {
        match record {
            Record::Key(KeyRecord { key, version, content }) => {
                self.greatest = self.greatest.max(version);
                let value = match content {
                    Some(stored) => Some(encode_row(&key, version, &stored, now, clock_ms)?),
                    None => None,
                };
                self.change(layout.row(&key), value);
            }
            Record::Registration(RegistrationRecord { key, client_id, is_registered }) => {
                let value = is_registered.then(presence);
                self.change(layout.registration(&key, &client_id), value);
            }
            Record::Response(response) => {
                self.greatest = self.greatest.max(response.version.unwrap_or_default());
                let len = self.responses.len();
                self.responses.push(&response, now, clock_ms);
                let added = self.responses.len().saturating_sub(len);
                self.bytes = self.bytes.saturating_add(added);
            }
            // A node of an exchange has a disk.
            Record::Exchange(..) => return None,
        }
        Some(())
    }

    fn change(&mut self, key: Bytes, value: Option<Bytes>) {
        let value_len = value.as_ref().map_or(0, Bytes::len);
        self.bytes = self.bytes.saturating_add(key.len()).saturating_add(value_len);
        self.changes.push((key, value));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ledger::ResponseRecord;
    use crate::protocol::Key;
    use crate::protocol::reply::Outcome;
    use crate::store::StoredValue;

    const NOW: Now = Now { wall_ms: 1_000, monotonic_ms: 10 };

    fn layout() -> Layout {
        Layout::new("c")
    }

    fn set(key: &str, len: usize) -> Record {
        let stored =
            StoredValue { value: vec![7; len].into(), fence: None, deadline_ms: None, persist: true };
        let version = Version { ms: 5, counter: 1 };
        Record::Key(KeyRecord { key: Key::new(key.to_owned()).unwrap(), version, content: Some(stored) })
    }

    fn delete(key: &str) -> Record {
        Record::Key(KeyRecord::new(Key::new(key.to_owned()).unwrap(), None))
    }

    fn response() -> Record {
        Record::Response(ResponseRecord {
            client_id: "client".into(),
            fingerprint: 1,
            payload: "+OK\r\n".into(),
            version: None,
            outcome: Outcome::Ok,
            until_ms: 20,
        })
    }

    fn divided(records: Vec<(u64, Record)>) -> VecDeque<Part> {
        let sequence = records.last().map_or(9, |(sequence, _)| *sequence + 1);
        divide(Group { records, sequence, ..Group::default() }, &layout(), NOW, NOW.wall_ms).unwrap()
    }

    fn operations(part: &Part) -> Vec<Operation> {
        part.txn(&layout(), 3, &part.next_head(&Head::default(), 0), None).operations
    }

    #[test]
    fn a_group_without_records_is_one_part_without_changes() {
        let parts = divided(Vec::new());
        assert_eq!((parts.len(), parts[0].is_empty(), parts[0].sequence), (1, true, 9));
    }

    #[test]
    fn a_large_group_is_divided_between_requests() {
        let records = (1..=300).flat_map(|at| [(at, set(&format!("{at}"), 1)), (at, response())]).collect();
        let parts = divided(records);
        let sequences: Vec<_> = parts.iter().map(|part| part.sequence).collect();
        assert_eq!(sequences, [117, 234, 301]);
        for part in &parts {
            assert!(operations(part).len() < OPERATIONS_MAX);
        }
        let large = divided((1..=4).map(|at| (at, set(&format!("{at}"), TXN_BYTES_MAX / 2))).collect());
        assert_eq!(large.len(), 4);
        let one = divided(vec![(1, set("a", TXN_BYTES_MAX)), (1, response()), (2, set("b", 1))]);
        assert_eq!(one.iter().map(|part| part.sequence).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn the_last_change_of_a_key_counts_and_no_key_has_two() {
        let records =
            vec![(1, delete("a")), (2, set("a", 1)), (3, delete("d")), (4, delete("b")), (5, set("b", 9))];
        let parts = divided(records.into_iter().chain([(6, set("c", 1)), (7, set("c", 2))]).collect());
        let operations = operations(&parts[0]);
        let keys: BTreeSet<_> = operations
            .iter()
            .map(|operation| match operation {
                Operation::Put { key, .. } | Operation::Delete { key } => key.clone(),
                Operation::DeleteRange { from, .. } => from.clone(),
            })
            .collect();
        assert_eq!((keys.len(), operations.len()), (5, 5));
        let head = parts[0].next_head(&Head::default(), 7);
        assert_eq!((head.puts, head.deletions), (3, 1));
        assert_eq!((head.seq, head.wall_ms, head.greatest), (1, 7, Version { ms: 5, counter: 1 }));
    }

    #[test]
    fn a_deletion_of_a_written_key_is_a_commit_of_its_own_so_that_its_loss_would_be_noticed() {
        let parts = divided(vec![(1, set("a", 1)), (2, set("b", 1)), (3, delete("a")), (4, set("a", 2))]);
        assert_eq!(parts.iter().map(|part| part.sequence).collect::<Vec<_>>(), [2, 5]);
        let counts = parts.iter().map(|part| part.next_head(&Head::default(), 7));
        assert_eq!(counts.map(|head| (head.puts, head.deletions)).collect::<Vec<_>>(), [(2, 0), (1, 0)]);
    }

    #[test]
    fn a_version_that_was_written_over_a_deletion_is_received_before_it_is_deleted_again() {
        let parts = divided(vec![(1, delete("a")), (2, set("a", 1)), (3, delete("a"))]);
        assert_eq!(parts.iter().map(|part| part.sequence).collect::<Vec<_>>(), [2, 4]);
    }

    #[test]
    fn deletions_need_no_space_and_guard_the_head_all_the_same() {
        let parts = divided(vec![(1, delete("a")), (1, response())]);
        assert!(!parts[0].has_puts());
        let txn = parts[0].deletions(&layout(), 3);
        assert_eq!(txn.operations, [Operation::Delete { key: layout().row(&Key::new("a").unwrap()) }]);
        assert_eq!(txn.conditions, [Condition { key: layout().head(), mod_revision: 3 }]);
        let overwritten = divided(vec![(1, delete("a")), (2, set("a", 1)), (3, delete("a"))]);
        assert_eq!(overwritten.iter().map(Part::has_puts).collect::<Vec<_>>(), [true, false]);
        let none = Part::empty(1).deletions(&layout(), 3);
        assert!(matches!(&none.operations[..], [Operation::Delete { .. }]));
    }

    #[test]
    fn old_responses_are_deleted_in_the_commit() {
        let part = Part::empty(1);
        let old = Some(OldRecords { first_seq: 3, last_seq: 7 });
        let txn = part.txn(&layout(), 9, &part.next_head(&Head::default(), 0), old);
        let Some(Operation::DeleteRange { from, to }) = txn.operations.last() else { panic!() };
        let layout = layout();
        assert!(*from == layout.responses(3) && *to == layout.responses(8));
    }
}
