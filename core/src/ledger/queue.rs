//! Commit queue: the only list of what is not durable yet, and the answers that wait for it.

use std::collections::{BTreeMap, VecDeque};

use super::group::Group;
use super::record::Record;
use super::room::{Admission, Room};
use crate::exchange::row::{Conflict, Entry, Row};
use crate::protocol::{ErrorReply, Key};
use crate::store::{Change, Version};

/// The most waiting answers.
const ANSWERS_MAX: usize = 65_536;
/// The most bytes of waiting answers, with the keys and values of their changes.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// The number of uncommitted changes of rows at which an exchange takes nothing more from other nodes and from a walk.
const ROWS_MAX: usize = 32_768;
/// The same for their bytes.
const ROW_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The most answers and records that one step of a commit handles, because requests wait meanwhile.
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

/// A write that asks for admission.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    pub key: &'a Key,
    pub is_persistent: bool,
    /// No less than the time of the version that it would make.
    pub latest_ms: u64,
    /// Length in bytes that its records do not exceed.
    pub bytes: u64,
    /// Whether it does more than delete.
    pub grows: bool,
}

/// Queue of records in front of a ledger.
///
/// Each step has the records of one request or event, and the answers that wait for them: a client that has seen a change
/// must find it after a crash. Answers keep their order. What can be refused is refused before a step: nothing is taken back.
///
/// ```text
/// admit → begin_step, add_record, add_answer → take_group → handle_commit
/// ```
#[derive(Debug)]
pub struct CommitQueue<A> {
    ledger: LedgerKind,
    /// The records of files that are not committed.
    uncommitted: VecDeque<Uncommitted>,
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
    /// The last step of the last group.
    taken: u64,
    /// No greater version of a key without a record on disk may be sent: after a crash, such keys continue above it.
    ceiling: Version,
    admission: Admission,
}

/// A record of a step that a file has not committed.
#[derive(Debug)]
struct Uncommitted {
    sequence: u64,
    of: Address,
}

#[derive(Debug)]
enum Address {
    Key(Key),
    /// A row of this many bytes.
    Row(usize),
}

#[derive(Debug)]
struct Waiting<A> {
    sequence: u64,
    bytes: usize,
    answer: A,
}

impl<A> CommitQueue<A> {
    #[must_use]
    pub fn new(ledger: LedgerKind) -> Self {
        Self {
            ledger,
            uncommitted: VecDeque::new(),
            answers: VecDeque::new(),
            keys: BTreeMap::new(),
            next_group: Vec::new(),
            bytes: 0,
            rows: 0,
            row_bytes: 0,
            sequence: 0,
            has_number: false,
            taken: 0,
            ceiling: Version::default(),
            admission: Admission::default(),
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
    #[must_use]
    pub fn waits(&self, depends_on: DependsOn<'_>) -> bool {
        match (self.ledger, depends_on) {
            (LedgerKind::Memory, _) | (LedgerKind::File, DependsOn::Nothing) => false,
            (LedgerKind::File, DependsOn::Key(key)) => self.keys.contains_key(key),
            (LedgerKind::File, DependsOn::Change(change)) => {
                let is_above_ceiling = change.content.is_some() && change.version > self.ceiling;
                change.persist || is_above_ceiling || self.keys.contains_key(&change.key)
            }
            (LedgerKind::File, DependsOn::AllKeys) => {
                !self.uncommitted.is_empty() || !self.answers.is_empty()
            }
            (LedgerKind::Etcd, _) => true,
        }
    }

    /// Decides whether a write may begin. Otherwise it must change nothing.
    ///
    /// # Errors
    /// The reply, if the disk or etcd has no room for it, or too much waits for the disk.
    pub fn admit(&self, write: &Write<'_>) -> Result<(), ErrorReply> {
        match self.ledger {
            LedgerKind::Memory => Ok(()),
            LedgerKind::Etcd => self.lack().filter(|_| write.grows).cloned().map_or(Ok(()), Err),
            LedgerKind::File => {
                let Write { key, is_persistent, latest_ms, bytes, grows } = *write;
                if !is_persistent && latest_ms < self.ceiling.ms && !self.keys.contains_key(key) {
                    return Ok(());
                }
                match self.error_if_full() {
                    Some(error) => Err(error),
                    None if self.has_room_for(bytes, grows && is_persistent) => Ok(()),
                    None => Err(self.lack().cloned().unwrap_or(ErrorReply::DiskFull)),
                }
            }
        }
    }

    /// Whether the ledger has room for a step whose records do not exceed this length; `grows`: for more than deletions.
    #[must_use]
    pub fn has_room_for(&self, bytes: u64, grows: bool) -> bool {
        self.ledger != LedgerKind::File || self.admission.fits(bytes, grows)
    }

    /// Returns why no more room can be had at present, so that what grows is refused; `None` if it can.
    #[must_use]
    pub fn lack(&self) -> Option<&ErrorReply> {
        self.admission.room().lack.as_ref()
    }

    /// Returns the length of the groups of a file that are not taken.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.admission.pending_bytes()
    }

    /// Whether room is coming for a step of this length that does not grow the store, and has none yet.
    #[must_use]
    pub fn waits_for_room(&self, bytes: u64) -> bool {
        self.admission.room().is_coming && !self.has_room_for(bytes, false)
    }

    /// Sets the room of the ledger, when no group is under way.
    pub fn set_room(&mut self, room: Room) {
        self.admission.set_room(room);
    }

    /// Returns the error with which requests that must wait are rejected at present, if any. With etcd there is none:
    /// see [`CommitQueue::is_full`].
    #[must_use]
    pub fn error_if_full(&self) -> Option<ErrorReply> {
        (self.ledger == LedgerKind::File && self.is_full()).then_some(ErrorReply::QuotaExceeded)
    }

    /// Whether too much waits for further requests. With etcd these get no answer: an error would have to wait, too.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.has_reached(ANSWERS_MAX, BYTES_MAX)
    }

    /// Whether expiry must pause, so that the second half of the queue is left to requests.
    #[must_use]
    pub fn is_half_full(&self) -> bool {
        self.has_reached(ANSWERS_MAX / 2, BYTES_MAX / 2)
    }

    /// Whether requests may come that wait at their source otherwise: without etcd always, because there one too many is
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
            self.admission.begin_step();
        }
    }

    /// Adds a record to the present step.
    pub fn add_record(&mut self, record: Record) {
        if self.ledger == LedgerKind::Memory {
            return;
        }
        self.number_step();
        if self.ledger == LedgerKind::File {
            self.admission.add(self.sequence, &record);
            self.note_uncommitted(&record);
        }
        self.next_group.push((self.sequence, record));
    }

    fn note_uncommitted(&mut self, record: &Record) {
        let of = match record {
            Record::Key(record) => {
                self.keys.insert(record.key.clone(), self.sequence);
                Address::Key(record.key.clone())
            }
            Record::Exchange(_, row) => {
                let bytes = row.as_deref().map_or(0, row_bytes);
                self.rows = self.rows.saturating_add(1);
                self.row_bytes = self.row_bytes.saturating_add(bytes);
                Address::Row(bytes)
            }
            Record::Registration(_) | Record::Response(_) => return,
        };
        self.uncommitted.push_back(Uncommitted { sequence: self.sequence, of });
    }

    /// Adds an answer to the present step, or to the last one if that has no records. Returns it if nothing makes it wait.
    pub fn add_answer(&mut self, answer: A, bytes: usize) -> Option<A> {
        match self.ledger {
            LedgerKind::Memory => return Some(answer),
            LedgerKind::File => {}
            LedgerKind::Etcd => self.number_step(),
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

    /// Returns the number of groups that are not taken.
    #[must_use]
    pub fn groups(&self) -> u64 {
        if self.has_uncommitted() { self.admission.closed().saturating_add(1) } else { 0 }
    }

    /// Takes what the next commit must have; `None` if there is nothing to commit or to confirm. The ceiling is the present one.
    /// What a file has in the next segment is left to the next group.
    pub fn take_group(&mut self) -> Option<Group> {
        self.has_uncommitted().then(|| {
            let last = self.admission.take_group();
            let is_next = |(sequence, _): &(u64, Record)| last.is_none_or(|last| *sequence <= last);
            let rest = self.next_group.split_off(self.next_group.partition_point(is_next));
            let records = std::mem::replace(&mut self.next_group, rest);
            self.taken = last.unwrap_or(self.sequence);
            // What follows is another step.
            self.has_number = false;
            Group { records, sequence: self.taken, ceiling: self.ceiling }
        })
    }

    /// Takes a group without records, while no other is to be taken.
    pub fn take_empty_group(&mut self) -> Group {
        self.admission.take_group();
        Group { records: Vec::new(), sequence: self.sequence, ceiling: self.ceiling }
    }

    /// Handles the commit of all steps up to this one and of a ceiling: passes some of the answers that waited for them to
    /// `send`. Returns whether there is more; then it must be called again, before any other commit is handled.
    ///
    /// What is added between two calls keeps its place: a key is uncommitted until the answers of its last step are sent.
    #[must_use]
    pub fn handle_commit(&mut self, sequence: u64, ceiling: Version, mut send: impl FnMut(A)) -> bool {
        self.ceiling = ceiling;
        for _ in 0..HANDLED_PER_STEP_MAX {
            let waiting = self.answers.front().map_or(u64::MAX, |waiting| waiting.sequence);
            let is_done = |it: &mut Uncommitted| it.sequence <= sequence && it.sequence < waiting;
            if let Some(done) = self.uncommitted.pop_front_if(is_done) {
                self.handle_committed(&done);
            } else if let Some(Waiting { bytes, answer, .. }) =
                self.answers.pop_front_if(|_| waiting <= sequence)
            {
                self.bytes = self.bytes.saturating_sub(bytes);
                send(answer);
            } else {
                return false;
            }
        }
        true
    }

    fn handle_committed(&mut self, Uncommitted { sequence, of }: &Uncommitted) {
        match of {
            Address::Key(key) if self.keys.get(key) == Some(sequence) => _ = self.keys.remove(key),
            Address::Key(_) => {}
            Address::Row(bytes) => {
                self.rows = self.rows.saturating_sub(1);
                self.row_bytes = self.row_bytes.saturating_sub(*bytes);
            }
        }
    }

    /// Drops everything that waits, without an answer: the instance does not own the keys any more.
    pub fn clear(&mut self) {
        self.uncommitted.clear();
        self.answers.clear();
        self.keys.clear();
        self.next_group.clear();
        (self.bytes, self.rows, self.row_bytes, self.has_number) = (0, 0, 0, false);
        self.admission = Admission::default();
        // A commit that was under way is not handled any more: the numbers go on, so that it could not be taken for another.
        self.taken = self.sequence;
    }
}

/// Returns about how many bytes a row takes in memory.
fn row_bytes(row: &Row) -> usize {
    const OVERHEAD_BYTES: usize = 128;
    let value = match row {
        Row::Entry(Entry { value, .. }) => value.as_ref(),
        Row::Conflict(Conflict { lost, .. }) => lost.value(),
        _ => None,
    };
    value.map_or(0, bytes::Bytes::len).saturating_add(OVERHEAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::super::record::KeyRecord;
    use super::*;
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
    fn add(queue: &mut CommitQueue<&'static str>, name: &str, answer: &'static str) {
        queue.begin_step();
        queue.add_record(record(name, Some(answer)));
        assert_eq!(queue.add_answer(answer, 1), None);
    }

    /// Returns a queue in front of files with room.
    fn with_room<A>() -> CommitQueue<A> {
        let mut queue = CommitQueue::new(LedgerKind::File);
        queue.set_room(Room { segments: [u64::MAX].into(), growth_bytes: u64::MAX, ..Room::default() });
        queue
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
            queue.add_record(record("k", Some("v")));
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
        let mut queue = with_room();
        add(&mut queue, "k", "first");
        add(&mut queue, "k", "second");
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
        let mut queue = with_room();
        (0..1_000).for_each(|_| add(&mut queue, "k", "v"));
        let mut sent = 0;
        assert!(queue.handle_commit(1_000, Version::default(), |_| sent += 1));
        assert!((1..1_000).contains(&sent), "{sent}");
        assert_eq!(commit(&mut queue, 1_000).len(), 1_000 - sent);
        assert_eq!((queue.waiting(), queue.bytes, queue.keys.len()), (0, 0, 0));
    }

    /// A write of a persistent key, unless `is_persistent` is false.
    fn write<'a>(key: &'a Key, is_persistent: bool, grows: bool) -> Write<'a> {
        Write { key, is_persistent, latest_ms: 1, bytes: 500, grows }
    }

    #[test]
    fn without_room_a_write_that_grows_the_store_is_refused_and_a_deletion_is_not() {
        let mut queue = CommitQueue::<&str>::new(LedgerKind::File);
        queue.set_ceiling(Version { ms: 2, counter: 0 });
        let k = key("k");
        let room = |segments: &[u64], spare_bytes, growth_bytes| Room {
            segments: segments.iter().copied().collect(),
            spare_bytes,
            growth_bytes,
            is_coming: false,
            lack: Some(ErrorReply::DiskFull),
        };
        for (room, grows, deletes) in [
            (room(&[4096], 0, 4096), true, true),
            (room(&[4095], 0, 4096), false, false),
            (room(&[4096], 1, 4096), false, true),
            (room(&[4096], 0, 4095), false, true),
            (room(&[0, 4096], 0, 4096), true, true),
        ] {
            queue.set_room(room.clone());
            let is_admitted = |grows| match queue.admit(&write(&k, true, grows)) {
                Ok(()) => true,
                Err(error) => {
                    assert_eq!(error, ErrorReply::DiskFull);
                    false
                }
            };
            assert_eq!((is_admitted(true), is_admitted(false)), (grows, deletes), "{room:?}");
            assert_eq!(queue.admit(&write(&k, false, true)), Ok(()), "a key in memory needs none");
        }
        // Unless its version has no room below the ceiling, or an earlier record of the key waits.
        queue.set_room(room(&[], 0, 0));
        queue.set_ceiling(Version { ms: 1, counter: 0 });
        assert_eq!(queue.admit(&write(&k, false, true)), Err(ErrorReply::DiskFull));
        assert_eq!(CommitQueue::<&str>::new(LedgerKind::Memory).admit(&write(&k, true, true)), Ok(()));
        let mut etcd = CommitQueue::<&str>::new(LedgerKind::Etcd);
        etcd.set_room(Room { lack: Some(ErrorReply::QuotaExceeded), ..Room::default() });
        assert_eq!(etcd.admit(&write(&k, true, true)), Err(ErrorReply::QuotaExceeded));
        assert_eq!(etcd.admit(&write(&k, true, false)), Ok(()));
    }

    #[test]
    fn a_group_ends_with_the_segment_that_its_steps_have_room_in() {
        let mut queue = CommitQueue::new(LedgerKind::File);
        queue.set_room(Room { segments: [8192, 8192].into(), growth_bytes: u64::MAX, ..Room::default() });
        let long = "v".repeat(3_500);
        for name in ["a", "b", "c"] {
            queue.begin_step();
            queue.add_record(record(name, Some(&long)));
            assert_eq!(queue.add_answer(name, 1), None);
        }
        assert_eq!(queue.groups(), 2);
        let first = queue.take_group().unwrap();
        assert_eq!((first.sequence, first.records.len()), (2, 2));
        assert!(queue.has_uncommitted());
        assert_eq!(commit(&mut queue, first.sequence), ["a", "b"]);
        let second = queue.take_group().unwrap();
        assert_eq!((second.sequence, second.records.len()), (3, 1));
        assert_eq!(commit(&mut queue, second.sequence), ["c"]);
        assert!(!queue.has_uncommitted() && !queue.waits(DependsOn::AllKeys));
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
        queue.set_room(Room { lack: Some(ErrorReply::QuotaExceeded), ..Room::default() });
        queue.clear();
        assert_eq!(commit(&mut queue, 2), [""; 0], "nothing is answered after the ownership is lost");
        assert!(queue.lack().is_none() && queue.take_group().is_none());
    }
}
