//! Commit queue: the only list of what is not durable yet, and the answers that wait for it.

use std::collections::{BTreeMap, VecDeque};

use super::group::Group;
use super::record::Record;
use crate::exchange::row::{Conflict, Entry, Row};
use crate::protocol::{ErrorReply, Key};
use crate::store::{Change, Version};

/// The most waiting answers.
const ANSWERS_MAX: usize = 65_536;
/// The most bytes of waiting answers, with the keys and values of their changes.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// The number of uncommitted changes of rows at which an exchange takes nothing more from other nodes and from a walk.
const ROWS_MAX: usize = 32_768;
/// The same for their bytes, before and after.
const ROW_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The number of records of a group while the disk fails, because it may be nearly full. A step is never divided.
const RECORDS_AFTER_FAILURE: usize = 1_000;
/// The most answers and undo records that one step of a commit handles, because requests wait meanwhile.
const HANDLED_PER_STEP_MAX: usize = 512;

/// What makes groups durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LedgerKind {
    /// Nothing does: all is lost with the process.
    #[default]
    Memory,
    File,
    Etcd,
}

/// What an answer depends on.
#[derive(Clone, Copy, Debug)]
pub enum DependsOn<'a> {
    /// On no key: an error.
    Nothing,
    Key(&'a Key),
    /// On the change that its request has made.
    Change(&'a Change),
    AllKeys,
}

/// What becomes of a record whose commit fails.
#[derive(Debug)]
pub enum Undo {
    /// The record before it is put back.
    Restore(Record),
    /// It stays as it is and is committed again: a key that has expired, a registration that no request has ended.
    Repeat(Record),
}

/// Queue of records in front of a ledger.
///
/// Each step has the records of one request or event, and the answers that wait for them: a client that has seen a change
/// must find it after a crash. Answers keep their order.
///
/// ```text
/// begin_step, add_record, add_answer → take_group → handle_commit, or take_all_undone
/// ```
#[derive(Debug)]
pub struct CommitQueue<A> {
    ledger: LedgerKind,
    undo: VecDeque<Uncommitted>,
    answers: VecDeque<Waiting<A>>,
    /// For each key with records that a file has not committed, the last step that has one.
    /// Not a hash table: a large one is rehashed at once, and all requests wait meanwhile.
    keys: BTreeMap<Key, u64>,
    /// The records that no group has taken yet.
    next_group: Vec<(u64, Record)>,
    /// Bytes of the answers.
    bytes: usize,
    /// Number of changed rows of the exchange that are not committed, and their bytes.
    rows: usize,
    row_bytes: usize,
    /// Sequence number of the last step with a record. With etcd each answer has a step, too. It counts from 1 and does not reach the
    /// end of 64 bits.
    sequence: u64,
    /// Whether the present step has its number.
    has_number: bool,
    committed: u64,
    /// The last step of the last group.
    taken: u64,
    /// No greater version of a key without a record on disk may be sent: after a crash, such keys continue above it.
    ceiling: Version,
    /// Number of failed commits.
    failures: u64,
    /// Whether persistent keys may be deleted only, because the disk or etcd has no room for more.
    is_short_of_room: bool,
    /// Whether a commit has failed, and not all that has changed since is committed.
    has_failed: bool,
}

/// A record of a step that is not committed.
#[derive(Debug)]
struct Uncommitted {
    sequence: u64,
    /// Bytes of a row.
    row_bytes: usize,
    undo: Undo,
}

#[derive(Debug)]
struct Waiting<A> {
    sequence: u64,
    bytes: usize,
    answer: A,
}

/// What a failed commit leaves to be done.
#[derive(Debug)]
pub struct Failed<A> {
    /// The last committed step, and the last step of all: those between them are undone.
    pub committed: u64,
    pub last: u64,
    /// In the order of their steps: to be undone from the last to the first.
    pub undo: Vec<Undo>,
    /// In their order.
    pub answers: Vec<A>,
}

impl<A> CommitQueue<A> {
    #[must_use]
    pub fn new(ledger: LedgerKind) -> Self {
        Self {
            ledger,
            undo: VecDeque::new(),
            answers: VecDeque::new(),
            keys: BTreeMap::new(),
            next_group: Vec::new(),
            bytes: 0,
            rows: 0,
            row_bytes: 0,
            sequence: 0,
            has_number: false,
            committed: 0,
            taken: 0,
            ceiling: Version::default(),
            failures: 0,
            is_short_of_room: false,
            has_failed: false,
        }
    }

    #[must_use]
    pub fn ledger(&self) -> LedgerKind {
        self.ledger
    }

    /// Whether an answer waits for a commit.
    ///
    /// With a file, it does if it depends on a record that is not committed, or on a version above the ceiling. With etcd it
    /// always does: another instance may have become the owner and changed the keys since the last commit, so that each answer
    /// waits for a commit or a confirmation that begins after it.
    ///
    /// While the disk fails, a change of a key in memory does not wait for an earlier record of the key, and adds none: that one
    /// removes the key from the disk, and no room would be needed to write such a key again and again.
    #[must_use]
    pub fn waits(&self, depends_on: DependsOn<'_>) -> bool {
        match (self.ledger, depends_on) {
            (LedgerKind::Memory, _) | (LedgerKind::File, DependsOn::Nothing) => false,
            (LedgerKind::File, DependsOn::Key(key)) => self.keys.contains_key(key),
            (LedgerKind::File, DependsOn::Change(change)) => {
                let has_earlier = !self.has_failed && self.keys.contains_key(&change.key);
                change.persist || self.is_above_ceiling(change) || has_earlier
            }
            (LedgerKind::File, DependsOn::AllKeys) => !self.undo.is_empty() || !self.answers.is_empty(),
            (LedgerKind::Etcd, _) => true,
        }
    }

    /// Whether the response to a write may wait for a commit of the file; `latest_ms` is no less than the time of the version that it
    /// would make.
    #[must_use]
    pub fn may_wait(&self, key: &Key, is_persistent: bool, latest_ms: u64) -> bool {
        match self.ledger {
            LedgerKind::Memory | LedgerKind::Etcd => false,
            LedgerKind::File => is_persistent || latest_ms >= self.ceiling.ms || self.keys.contains_key(key),
        }
    }

    /// Returns the error with which a write to `key` is rejected at present, if any.
    ///
    /// A write to a persistent key needs a ledger that works, room in it unless the write deletes, and room in the queue. A
    /// write to any other key needs room only if it waits for an earlier change of the same key.
    #[must_use]
    pub fn write_error(&self, key: &Key, is_persistent: bool, deletes: bool) -> Option<ErrorReply> {
        if is_persistent && (self.has_failed || (self.is_short_of_room && !deletes)) {
            return Some(match self.ledger {
                LedgerKind::Etcd => ErrorReply::QuotaExceeded,
                // What has failed may be on the disk all the same. This has not been written.
                LedgerKind::Memory | LedgerKind::File if self.has_failed => ErrorReply::NotPersisted,
                LedgerKind::Memory | LedgerKind::File => ErrorReply::DiskFull,
            });
        }
        let waits = is_persistent || self.waits(DependsOn::Key(key));
        if waits { self.error_if_full() } else { None }
    }

    /// Returns the error with which a change is rejected although its key is in memory only, if any: its version must not
    /// be sent before a commit, and no commit is possible, or the queue has no room.
    #[must_use]
    pub fn ceiling_error(&self, change: &Change) -> Option<ErrorReply> {
        if self.ledger != LedgerKind::File || !self.is_above_ceiling(change) {
            return None;
        }
        if self.has_failed { Some(ErrorReply::NotPersisted) } else { self.error_if_full() }
    }

    /// Whether the version of a change is new, and not covered by what is on disk.
    fn is_above_ceiling(&self, change: &Change) -> bool {
        change.content.is_some() && !change.persist && change.version > self.ceiling
    }

    /// Returns the error with which requests that must wait are rejected at present, if any. With etcd there is none:
    /// see [`CommitQueue::is_full`].
    #[must_use]
    pub fn error_if_full(&self) -> Option<ErrorReply> {
        (self.ledger == LedgerKind::File && self.is_full()).then_some(ErrorReply::QuotaExceeded)
    }

    /// Whether there is no room for further requests. With etcd these get no answer: an error would have to wait, too.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.has_reached(ANSWERS_MAX, BYTES_MAX)
    }

    /// Whether expiry must pause, so that the second half of the queue is left to requests. While the disk fails, no answer
    /// waits, and keys may expire for hours.
    #[must_use]
    pub fn is_half_full(&self) -> bool {
        let has_many_records = self.has_failed && self.undo.len() >= ANSWERS_MAX / 2;
        has_many_records || self.has_reached(ANSWERS_MAX / 2, BYTES_MAX / 2)
    }

    /// Whether requests may come that wait at their source without room: without etcd always, because there one too many is
    /// answered with an error. The last quarter is left to expiry, and to requests that have begun.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let three_quarters = |limit: usize| limit.saturating_sub(limit / 4);
        self.ledger != LedgerKind::Etcd
            || !self.has_reached(three_quarters(ANSWERS_MAX), three_quarters(BYTES_MAX))
    }

    fn has_reached(&self, answers: usize, bytes: usize) -> bool {
        self.answers.len() >= answers || self.bytes >= bytes
    }

    /// Whether so many rows of the exchange wait for commits that nothing more is taken from other nodes and from a walk.
    #[must_use]
    pub fn has_many_rows(&self) -> bool {
        self.rows >= ROWS_MAX || self.row_bytes >= ROW_BYTES_MAX
    }

    #[must_use]
    pub fn is_short_of_room(&self) -> bool {
        self.is_short_of_room
    }

    pub fn set_short_of_room(&mut self, is_short_of_room: bool) {
        self.is_short_of_room = is_short_of_room;
    }

    /// Returns the version that is on disk as the one above which the store continues after a crash.
    #[must_use]
    pub fn ceiling(&self) -> Version {
        self.ceiling
    }

    /// Sets the version above which the store continues after a crash: one that is on disk, or less than that.
    pub fn set_ceiling(&mut self, ceiling: Version) {
        self.ceiling = ceiling;
    }

    /// Returns the number of waiting answers.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.answers.len()
    }

    /// Returns the number of failed commits.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Returns the sequence number of the last step.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Begins a step: the records and answers that follow belong together.
    pub fn begin_step(&mut self) {
        self.has_number = false;
    }

    fn number_step(&mut self) {
        if !std::mem::replace(&mut self.has_number, true) {
            self.sequence = self.sequence.saturating_add(1);
        }
    }

    /// Adds a record to the present step. `undo` is what is left to be done if its commit by a file fails. While the disk fails
    /// no record is undone: what is written anew may have it already.
    pub fn add_record(&mut self, undo: Option<Undo>, record: Record) {
        if self.ledger == LedgerKind::Memory {
            return;
        }
        self.number_step();
        let sequence = self.sequence;
        if let Some(undo) = undo {
            if let Record::Key(record) = &record {
                self.keys.insert(record.key.clone(), sequence);
            }
            let undo = if self.has_failed { Undo::Repeat(record.clone()) } else { undo };
            let row_bytes = row_bytes(&record).saturating_add(row_bytes(undo.record()));
            self.rows = self.rows.saturating_add(usize::from(row_bytes > 0));
            self.row_bytes = self.row_bytes.saturating_add(row_bytes);
            self.undo.push_back(Uncommitted { sequence, row_bytes, undo });
        }
        self.next_group.push((sequence, record));
    }

    /// Adds an answer to the present step, or to the last one if that has no records. Returns it if it must not wait, because
    /// commits fail: what it depends on is true all the same.
    pub fn add_answer(&mut self, answer: A, bytes: usize) -> Option<A> {
        if self.has_failed || self.ledger == LedgerKind::Memory {
            return Some(answer);
        }
        if self.ledger == LedgerKind::Etcd {
            self.number_step();
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.answers.push_back(Waiting { sequence: self.sequence, bytes, answer });
        None
    }

    /// Whether there is something to commit that no group has taken, or, with etcd, to confirm.
    #[must_use]
    pub fn has_uncommitted(&self) -> bool {
        !self.next_group.is_empty() || (self.ledger == LedgerKind::Etcd && self.taken < self.sequence)
    }

    /// Takes what the next commit must have; `None` if there is nothing to commit or to confirm. The ceiling is the present
    /// one. While the disk fails, it is a portion of whole steps.
    pub fn take_group(&mut self) -> Option<Group> {
        self.has_uncommitted().then(|| {
            let rest = self.next_group.split_off(self.next_len());
            let records = std::mem::replace(&mut self.next_group, rest);
            let last = records.last().filter(|_| !self.next_group.is_empty());
            self.taken = last.map_or(self.sequence, |(sequence, _)| *sequence);
            // What follows is another step.
            self.has_number = false;
            Group { records, sequence: self.taken, ceiling: self.ceiling }
        })
    }

    /// Returns the number of records that the next group takes.
    fn next_len(&self) -> usize {
        let len = self.next_group.len();
        let least = if self.has_failed { RECORDS_AFTER_FAILURE.min(len) } else { len };
        let (taken, rest) = self.next_group.split_at(least);
        let last = taken.last().map(|(sequence, _)| *sequence);
        least.saturating_add(rest.iter().take_while(|(sequence, _)| Some(*sequence) == last).count())
    }

    /// Handles the commit of all steps up to this one and of a ceiling: passes some of the answers that waited for them to
    /// `send`. Returns whether there is more; then it must be called again, before any other commit is handled.
    ///
    /// What is added between two calls keeps its place: a key is uncommitted until the answers of its last step are sent.
    #[must_use]
    pub fn handle_commit(&mut self, sequence: u64, ceiling: Version, mut send: impl FnMut(A)) -> bool {
        (self.committed, self.ceiling) = (sequence, ceiling);
        for _ in 0..HANDLED_PER_STEP_MAX {
            let waiting = self.answers.front().map_or(u64::MAX, |waiting| waiting.sequence);
            if let Some(done) = self.undo.pop_front_if(|it| it.sequence <= sequence && it.sequence < waiting)
            {
                self.handle_committed(&done);
            } else if let Some(Waiting { bytes, answer, .. }) =
                self.answers.pop_front_if(|_| waiting <= sequence)
            {
                self.bytes = self.bytes.saturating_sub(bytes);
                send(answer);
            } else {
                self.has_failed &= self.has_uncommitted();
                return false;
            }
        }
        true
    }

    fn handle_committed(&mut self, Uncommitted { sequence, row_bytes, undo }: &Uncommitted) {
        self.rows = self.rows.saturating_sub(usize::from(*row_bytes > 0));
        self.row_bytes = self.row_bytes.saturating_sub(*row_bytes);
        if let Record::Key(record) = undo.record()
            && self.keys.get(&record.key) == Some(sequence)
        {
            self.keys.remove(&record.key);
        }
    }

    /// Handles a failed commit by a file: returns all that is not committed, to be undone and handled again. Nothing of it is in the
    /// queue any more.
    ///
    /// No change of a persistent key is accepted until a commit succeeds, and all that has expired meanwhile is committed.
    pub fn take_all_undone(&mut self) -> Failed<A> {
        let undo: Vec<_> = std::mem::take(&mut self.undo).into_iter().map(|it| it.undo).collect();
        self.has_failed = true;
        let answers = std::mem::take(&mut self.answers).into_iter();
        let answers = answers.map(|waiting| waiting.answer).collect();
        let committed = self.committed;
        self.empty();
        self.committed = committed;
        self.failures = self.failures.saturating_add(1);
        Failed { committed, last: self.sequence, undo, answers }
    }

    /// Drops everything that waits, without an answer: the instance does not own the keys any more.
    pub fn clear(&mut self) {
        self.empty();
        self.is_short_of_room = false;
    }

    fn empty(&mut self) {
        self.undo.clear();
        self.answers.clear();
        self.keys.clear();
        self.next_group.clear();
        (self.bytes, self.rows, self.row_bytes, self.has_number) = (0, 0, 0, false);
        // A commit that was under way is not handled any more: the numbers go on, so that it could not be taken for another.
        (self.committed, self.taken) = (self.sequence, self.sequence);
    }

    /// Whether a commit has failed and the disk does not work yet.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }
}

impl Undo {
    /// Returns the record that is put back, or committed again.
    #[must_use]
    pub fn record(&self) -> &Record {
        let (Self::Restore(record) | Self::Repeat(record)) = self;
        record
    }
}

/// Returns about how many bytes a row takes in memory; 0 for other records.
fn row_bytes(record: &Record) -> usize {
    const OVERHEAD_BYTES: usize = 128;
    let Record::Exchange(_, row) = record else { return 0 };
    let value = match row.as_deref() {
        Some(Row::Entry(Entry { value, .. })) => value.as_ref(),
        Some(Row::Conflict(Conflict { lost, .. })) => lost.value(),
        _ => None,
    };
    value.map_or(0, bytes::Bytes::len).saturating_add(OVERHEAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::super::record::KeyRecord;
    use super::*;
    use crate::exchange::row::RowId;
    use crate::store::StoredValue;

    fn key(name: &str) -> Key {
        Key::new(name.to_owned()).unwrap()
    }

    fn record(name: &str, value: Option<&str>) -> Record {
        let stored = |value: &str| StoredValue {
            value: value.to_owned().into(),
            fence: None,
            deadline_ms: None,
            persist: true,
        };
        let version = Version { ms: 1, counter: 0 };
        Record::Key(KeyRecord { key: key(name), version, content: value.map(stored) })
    }

    /// Adds a change with an answer, as one step.
    fn add(queue: &mut CommitQueue<&'static str>, name: &str, before: Option<&str>, answer: &'static str) {
        queue.begin_step();
        queue.add_record(Some(Undo::Restore(record(name, before))), record(name, Some(answer)));
        assert_eq!(queue.add_answer(answer, 1), None);
    }

    fn commit(queue: &mut CommitQueue<&'static str>, sequence: u64) -> Vec<&'static str> {
        let mut sent = Vec::new();
        while queue.handle_commit(sequence, Version::default(), |answer| sent.push(answer)) {}
        sent
    }

    #[test]
    fn answers_wait_with_a_file_for_what_they_depend_on_and_with_etcd_for_all() {
        for (ledger, expected) in [
            (LedgerKind::Memory, [false; 4]),
            (LedgerKind::File, [false, true, false, true]),
            (LedgerKind::Etcd, [true; 4]),
        ] {
            let mut queue = CommitQueue::<()>::new(ledger);
            queue.begin_step();
            queue.add_record(Some(Undo::Restore(record("k", None))), record("k", Some("v")));
            let (k, other) = (key("k"), key("other"));
            let depends_on =
                [DependsOn::Nothing, DependsOn::Key(&k), DependsOn::Key(&other), DependsOn::AllKeys];
            assert_eq!(depends_on.map(|on| queue.waits(on)), expected, "{ledger:?}");
            assert_eq!(queue.add_answer((), 0).is_some(), ledger == LedgerKind::Memory);
            assert_eq!(queue.has_uncommitted(), ledger != LedgerKind::Memory);
        }
    }

    #[test]
    fn a_key_is_uncommitted_until_the_answers_of_its_last_step_are_sent() {
        let mut queue = CommitQueue::new(LedgerKind::File);
        add(&mut queue, "k", None, "first");
        add(&mut queue, "k", Some("first"), "second");
        let group = queue.take_group().unwrap();
        assert_eq!((group.sequence, group.records.len()), (2, 2));
        assert_eq!(commit(&mut queue, 1), ["first"]);
        assert!(queue.waits(DependsOn::Key(&key("k"))));
        queue.begin_step();
        assert_eq!(queue.add_answer("read", 1), None);
        assert!(queue.take_group().is_none(), "a read needs no commit of its own");
        assert_eq!(commit(&mut queue, 2), ["second", "read"]);
        assert!(!queue.waits(DependsOn::Key(&key("k"))) && !queue.waits(DependsOn::AllKeys));
    }

    #[test]
    fn a_long_commit_is_handled_in_bounded_steps() {
        let mut queue = CommitQueue::new(LedgerKind::File);
        (0..1_000).for_each(|_| add(&mut queue, "k", None, "v"));
        let mut sent = 0;
        assert!(queue.handle_commit(1_000, Version::default(), |_| sent += 1));
        assert!((1..1_000).contains(&sent), "{sent}");
        assert_eq!(commit(&mut queue, 1_000).len(), 1_000 - sent);
        assert_eq!((queue.waiting(), queue.bytes, queue.keys.len()), (0, 0, 0));
    }

    #[test]
    fn a_failed_commit_returns_all_records_before_and_all_answers_and_a_file_accepts_no_change_until_it_recovers()
     {
        let mut queue = CommitQueue::new(LedgerKind::File);
        add(&mut queue, "k", None, "committed");
        assert!(queue.take_group().is_some());
        assert_eq!(commit(&mut queue, 1), ["committed"]);
        add(&mut queue, "k", Some("committed"), "lost");
        assert!(queue.take_group().is_some());
        add(&mut queue, "k", Some("lost"), "later");
        let Failed { committed, last, undo, answers } = queue.take_all_undone();
        assert_eq!((committed, last, answers), (1, 3, vec!["lost", "later"]));
        let before: Vec<_> = undo.iter().map(|undo| undo.record().clone()).collect();
        assert_eq!(before, [record("k", Some("committed")), record("k", Some("lost"))]);
        assert_eq!(queue.write_error(&key("k"), true, true), Some(ErrorReply::NotPersisted));
        let mut full = CommitQueue::<&str>::new(LedgerKind::File);
        full.set_short_of_room(true);
        let errors = [false, true].map(|deletes| full.write_error(&key("k"), true, deletes));
        assert_eq!(errors, [Some(ErrorReply::DiskFull), None]);
        assert_eq!(queue.write_error(&key("k"), false, false), None);
        // What expires meanwhile is sent at once, and brought up to date on disk.
        queue.begin_step();
        queue.add_record(Some(Undo::Repeat(record("e", None))), record("e", None));
        assert_eq!(queue.add_answer("expired", 1), Some("expired"));
        let group = queue.take_group().unwrap();
        assert_eq!(group.records, [(4, record("e", None))]);
        assert!(queue.has_failed());
        assert_eq!(commit(&mut queue, group.sequence), [""; 0]);
        assert_eq!(queue.write_error(&key("k"), true, false), None);
        assert_eq!(queue.failures(), 1);
    }

    #[test]
    fn what_changes_while_the_disk_fails_is_committed_in_portions_of_whole_steps_and_never_undone() {
        let mut queue = CommitQueue::<()>::new(LedgerKind::File);
        let (keys, steps) = (|number| key(&format!("k{number}")), 700);
        let add = |queue: &mut CommitQueue<()>, number: usize| {
            let records =
                [record(&format!("k{number}"), None), Record::Exchange(RowId::Key(keys(number)), None)];
            queue.begin_step();
            records.into_iter().for_each(|it| queue.add_record(Some(Undo::Restore(it.clone())), it));
        };
        add(&mut queue, 0);
        assert_eq!(queue.take_all_undone().undo.len(), 2);
        for failures in 1..3 {
            (0..steps).for_each(|number| add(&mut queue, number));
            let first = queue.take_group().unwrap();
            assert_eq!(first.records.len(), RECORDS_AFTER_FAILURE);
            assert!(!queue.handle_commit(first.sequence, Version::default(), drop) || queue.has_failed());
            assert_eq!(queue.failures(), failures);
            // The second portion fails: what is in it, and what has come since, is committed again.
            assert!(queue.take_group().is_some());
            add(&mut queue, 0);
            let undo = queue.take_all_undone().undo;
            assert!(undo.iter().all(|undo| matches!(undo, Undo::Repeat(_))));
            assert!(!queue.has_uncommitted() && queue.has_failed());
        }
        let mut portions = Vec::new();
        (0..steps).for_each(|number| add(&mut queue, number));
        while let Some(group) = queue.take_group() {
            assert!(queue.has_failed());
            portions.push(group.records.len());
            while queue.handle_commit(group.sequence, Version::default(), drop) {}
        }
        assert_eq!(portions, [1_000, 400]);
        assert!(!queue.has_failed() && queue.keys.is_empty() && queue.undo.is_empty());
    }

    #[test]
    fn with_etcd_each_answer_is_confirmed_by_a_group_that_is_taken_after_it() {
        let mut queue = CommitQueue::new(LedgerKind::Etcd);
        queue.begin_step();
        assert_eq!(queue.add_answer("read", 1), None);
        let group = queue.take_group().unwrap();
        assert_eq!((group.records.len(), group.sequence), (0, 1));
        queue.begin_step();
        assert_eq!(queue.add_answer("later", 1), None);
        assert_eq!(commit(&mut queue, 1), ["read"]);
        assert_eq!(queue.take_group().unwrap().sequence, 2);
        queue.set_short_of_room(true);
        queue.clear();
        assert_eq!(commit(&mut queue, 2), [""; 0], "nothing is answered after the ownership is lost");
        assert!(!queue.is_short_of_room() && queue.take_group().is_none());
    }
}
