//! Tests of the files as a whole: opening, commits, snapshots, faults and damage.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use bytes::Bytes;
use tempfile::TempDir;

use super::disk::{Disk, LOCK_NAME, RESERVE_NAME, log_name};
use super::frame::{BLOCK_BYTES, HEADER_BYTES, Kind, intact};
use super::ledger::FileLedger;
use super::policy::Policy;
use super::simulated::{Faults, POLICY, SeededRandom, SimulatedDisk};
use super::snapshot::SnapshotWriter;
use super::work::{Done, Work};
use crate::exchange::row::{Row, RowId, Term};
use crate::ledger::room::{Admission, group_bytes, key_bytes};
use crate::ledger::{CommitMetadata, KeyRecord, Record, StorageError, StorageErrorKind};
use crate::protocol::timestamp::STORE_NODE;
use crate::protocol::{Key, Timestamp};
use crate::store::{Now, StoredValue, Version};

pub(super) const NOW: Now = Now { wall_ms: 1_000_000, monotonic_ms: 5_000 };
const HOUR_MS: u64 = 3_600_000;
/// The policy of a process that serves clients: it has room before the first change.
pub(super) const SERVING: Policy = Policy { commits_before: 0, ..POLICY };
/// The most segments that one write claims.
const CLAIMS_MAX: u32 = 4;
/// The most pieces of work that follow each other: one that never ends is reported instead of a test that never ends.
const WORK_MAX: u32 = 1_000;

fn at(ms: u64) -> Version {
    Version { ms, counter: 7 }
}

pub(super) fn record(name: &str, ms: u64, content: Option<StoredValue>) -> (u64, Record) {
    (0, Record::Key(KeyRecord { key: Key::new(name.to_owned()).unwrap(), version: at(ms), content }))
}

pub(super) fn content(value: &[u8], ttl_ms: Option<u64>) -> StoredValue {
    let deadline_ms = ttl_ms.map(|ttl_ms| NOW.monotonic_ms + ttl_ms);
    let fence = Some(Timestamp::of_store(9, 2));
    StoredValue { value: Bytes::copy_from_slice(value), fence, deadline_ms, persist: true }
}

pub(super) fn set(name: &str, value: &[u8]) -> (u64, Record) {
    record(name, 1, Some(content(value, None)))
}

pub(super) fn delete(name: &str) -> (u64, Record) {
    record(name, 1, None)
}

pub(super) fn commit(ledger: &mut FileLedger, records: &[(u64, Record)]) -> Result<(), StorageError> {
    ledger.commit(records, at(1), NOW)
}

pub(super) fn on(disk: &SimulatedDisk) -> Result<FileLedger, StorageError> {
    FileLedger::open_on(Arc::new(disk.clone()), POLICY)
}

pub(super) type Values = BTreeMap<String, Vec<u8>>;

pub(super) fn load(ledger: &mut FileLedger) -> Result<Values, StorageError> {
    let mut values = Values::new();
    let name = |key: Key| String::from_utf8(key.as_bytes().to_vec()).unwrap();
    ledger.load(NOW, |key, _, content| drop(values.insert(name(key), content.value.to_vec())))?;
    ledger.load_rows(|address, row| drop(values.insert(format!("row {}", address.len()), row.to_vec())));
    Ok(values)
}

/// Opens the files and returns all that they hold.
pub(super) fn values(disk: &SimulatedDisk) -> Result<Values, StorageError> {
    load(&mut on(disk)?)
}

/// A store and what was acknowledged.
pub(super) struct Model {
    pub disk: SimulatedDisk,
    pub ledger: FileLedger,
    pub values: Values,
    pub snapshots: u64,
    /// Whether another program takes all room that is left on a full disk after each snapshot.
    pub is_disk_shared: bool,
    /// Time that has passed for the work.
    passed_ms: u64,
}

impl Model {
    pub fn new() -> Self {
        Self::start(SimulatedDisk::default())
    }

    pub fn start(disk: SimulatedDisk) -> Self {
        Self::start_with(disk, POLICY)
    }

    pub fn start_with(disk: SimulatedDisk, policy: Policy) -> Self {
        let ledger = FileLedger::open_on(Arc::new(disk.clone()), policy);
        let mut ledger = ledger.unwrap_or_else(|error| panic!("{error}"));
        let values = load(&mut ledger).unwrap();
        Self { disk, ledger, values, snapshots: 0, is_disk_shared: false, passed_ms: 0 }
    }

    /// Starts a store that serves clients on a disk with this many blocks.
    pub fn serving(blocks: usize) -> Self {
        let disk = SimulatedDisk::default();
        disk.set_faults(|faults| faults.blocks_max = Some(blocks));
        Self::start_with(disk, SERVING)
    }

    /// Ends the ledger, as a failed commit does, and starts another one on what the disk has.
    pub fn restart(self) -> Self {
        let Self { disk, ledger, .. } = self;
        drop(ledger);
        Self::start(disk.after_kill())
    }

    pub fn set(&mut self, name: &str, value: &[u8]) {
        commit(&mut self.ledger, &[set(name, value)]).unwrap();
        self.values.insert(name.to_owned(), value.to_vec());
    }

    pub fn delete(&mut self, name: &str) {
        commit(&mut self.ledger, &[delete(name)]).unwrap();
        self.values.remove(name);
    }

    /// Sets some keys, each in a group.
    pub fn fill(&mut self, groups: u64) {
        for number in 0..groups {
            let len = usize::try_from(number * 997 % 3_000).unwrap();
            self.set(&format!("k{}", number % 9), format!("{number}{}", "x".repeat(len)).as_bytes());
        }
    }

    /// Sets some keys, each in a group, until there is another snapshot.
    pub fn fill_until_snapshot(&mut self) {
        let before = self.snapshots;
        for _ in 0..WORK_MAX {
            self.fill(3);
            self.work();
            if self.snapshots > before {
                return;
            }
        }
        panic!("no snapshot after many groups: {:?}", self.disk.all_names());
    }

    /// Whether a write may begin, as the service decides it. It gets room for it, if there is more.
    pub fn admits(&mut self, name: &str, value: Option<&[u8]>) -> bool {
        let key = Key::new(name.to_owned()).unwrap();
        let fence = value.map_or(0, |_| STORE_NODE.len());
        let (bytes, grows) = (key_bytes(&key, value.map_or(0, <[u8]>::len), fence), value.is_some());
        let stored = self.bytes();
        self.ledger.note_stored(Some(stored));
        let mut admission = Admission::default();
        for _ in 0..CLAIMS_MAX {
            admission.set_room(self.ledger.room(NOW));
            if admission.fits(bytes, grows) || self.ledger.lack().is_some() {
                break;
            }
            self.ledger.claim(group_bytes(bytes), 0);
        }
        admission.set_room(self.ledger.room(NOW));
        admission.fits(bytes, grows)
    }

    /// Commits a write if it may begin. Returns whether it has: what has begun never fails, and takes no further room of the disk.
    pub fn write(&mut self, name: &str, value: Option<&[u8]>) -> bool {
        let is_admitted = self.admits(name, value);
        if is_admitted {
            let before = self.disk.blocks();
            match value {
                Some(value) => self.set(name, value),
                None => self.delete(name),
            }
            assert_eq!(self.disk.blocks(), before);
        }
        is_admitted
    }

    /// Returns the time of the work: more than any pause passes between two looks.
    pub fn later(&mut self) -> Now {
        self.passed_ms += 100_000;
        Now { monotonic_ms: NOW.monotonic_ms + self.passed_ms, ..NOW }
    }

    /// Returns all that a snapshot has.
    pub fn records(&self) -> Vec<(u64, Record)> {
        self.values.iter().map(|(name, value)| set(name, value)).collect()
    }

    /// Returns what the persistent keys take, as the store counts it.
    pub fn bytes(&self) -> u64 {
        self.values.iter().map(|(name, value)| (name.len() + value.len() + 64) as u64).sum()
    }

    /// Does all work that another thread does.
    pub fn work(&mut self) {
        let stored = self.bytes();
        self.ledger.note_stored(Some(stored));
        let now = self.later();
        let mut pieces = 0;
        while let Some(work) = self.ledger.take_work(now, group_bytes(0)) {
            pieces += 1;
            assert!(pieces < WORK_MAX, "the work has no end");
            let done = work.run().unwrap_or_else(|mut snapshot| {
                let written = snapshot.write_records(&self.records(), NOW);
                let (number, metadata) = (self.ledger.number(), self.ledger.metadata());
                let result = written.and_then(|()| snapshot.finish(number, metadata));
                if result.is_ok() {
                    self.snapshots += 1;
                    self.share_disk();
                }
                Done::Snapshot(result)
            });
            self.ledger.handle_done(done, now);
        }
    }

    fn share_disk(&self) {
        if self.is_disk_shared && self.ledger.lack().is_some() {
            let blocks = self.disk.blocks();
            self.disk.set_faults(|faults| faults.blocks_max = Some(blocks));
        }
    }

    /// Does all work, as about a second later: also what has failed before.
    pub fn settle(&mut self) {
        self.ledger.settle();
        self.work();
    }

    /// Sets keys, each in a group, until the disk has no room for another one. Returns their names.
    pub fn fill_disk(&mut self, value: &[u8]) -> Vec<String> {
        let (mut names, mut refusals) = (Vec::new(), 0);
        while refusals < 5 {
            assert!(names.len() < 2_000, "it is not full");
            let name = format!("k{}", names.len());
            if self.write(&name, Some(value)) {
                names.push(name);
                refusals = 0;
            } else {
                refusals += 1;
            }
            self.settle();
            let last = names.last().cloned();
            assert!(last.is_none_or(|last| self.admits(&last, None)), "{} keys: no deletion", names.len());
        }
        names
    }

    /// Deletes a key in a group of its own: at once, or after the work that gives room back.
    pub fn delete_from_full_disk(&mut self, name: &str) {
        let is_deleted = (0..5).any(|_| {
            let is_deleted = self.write(name, None);
            self.settle();
            is_deleted
        });
        let (left, blocks) = (self.values.len(), self.disk.blocks());
        assert!(is_deleted, "{name}, {left} keys, {blocks} blocks: {:?}", self.ledger.room(NOW));
    }
}

fn kind(result: Result<Values, StorageError>) -> StorageErrorKind {
    result.unwrap_err().kind
}

pub(super) fn is_corrupt(error: &StorageError) -> bool {
    matches!(error.kind, StorageErrorKind::Corrupt(_) | StorageErrorKind::Lost)
}

#[test]
fn committed_records_are_read_after_a_reopen() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("made/when/missing");
    for is_closed in [false, true] {
        let mut ledger = FileLedger::open(&directory, Policy::default()).unwrap();
        load(&mut ledger).unwrap();
        let records = [
            record("gone", 40, Some(content(b"v", None))),
            record("stays", 20, Some(content(b"old", None))),
            record("stays", 30, Some(content(b"v", None))),
            record("gone", 40, None),
        ];
        ledger.commit(&records, at(40), NOW).unwrap();
        if is_closed {
            ledger.close();
        } else {
            drop(ledger);
        }
        let mut ledger = FileLedger::open(&directory, Policy::default()).unwrap();
        let mut all = Vec::new();
        ledger.load(NOW, |key, version, content| all.push((key, version, content))).unwrap();
        assert_eq!(all, [(Key::new("stays").unwrap(), at(30), content(b"v", None))]);
        assert_eq!(ledger.metadata().ceiling, at(40));
    }
}

/// Neither deleted keys nor keys in memory only can show the greatest version.
#[test]
fn every_commit_stores_the_ceiling_and_the_clock() {
    let disk = SimulatedDisk::default();
    let commits = [(1, 0, 0), (1, 2, 10), (3, 0, 5), (0, 4, 20)];
    for (round, (ms, greatest, wall_ms)) in commits.into_iter().enumerate() {
        let mut ledger = on(&disk).unwrap();
        let wall_ms = NOW.wall_ms + wall_ms;
        let records = if ms == 0 { vec![] } else { vec![record("k", ms, Some(content(b"v", None)))] };
        ledger.commit(&records, at(greatest), Now { wall_ms, ..NOW }).unwrap();
        drop(ledger);
        let CommitMetadata { ceiling, wall_ms: written_ms, .. } = on(&disk).unwrap().metadata();
        assert_eq!((ceiling, written_ms), (at([0, 2, 2, 4][round]), wall_ms));
    }
}

#[test]
fn a_key_whose_last_version_is_ahead_of_the_ceiling_leaves_a_tombstone() {
    let disk = SimulatedDisk::default();
    let ceiling = Version { ms: 100, counter: 0 };
    let in_memory = StoredValue { persist: false, ..content(b"v", None) };
    let records = [
        record("stays", 150, Some(content(b"v", None))),
        record("gone", 151, None),
        record("passed", 99, None),
        record("passing", 152, Some(in_memory)),
    ];
    let mut ledger = on(&disk).unwrap();
    records.iter().for_each(|record| ledger.commit(std::slice::from_ref(record), ceiling, NOW).unwrap());
    drop(ledger);
    let mut ledger = on(&disk).unwrap();
    let mut found = Vec::new();
    let mut tombstones = ledger.load(NOW, |key, _, _| found.push(key)).unwrap();
    tombstones.sort();
    let expected = [("gone", 151), ("passing", 152)].map(|(key, ms)| (Key::new(key).unwrap(), at(ms)));
    assert_eq!((tombstones, found), (expected.to_vec(), vec![Key::new("stays").unwrap()]));
    assert_eq!(ledger.metadata().ceiling, ceiling);
}

#[test]
fn a_directory_cannot_be_opened_twice() {
    let home = TempDir::new().unwrap();
    let _first = FileLedger::open(home.path(), Policy::default()).unwrap();
    let error = FileLedger::open(home.path(), Policy::default()).unwrap_err();
    assert!(matches!(error.kind, StorageErrorKind::InUse));
    assert!(error.to_string().ends_with("is in use by another process"), "{error}");
}

#[test]
fn files_of_another_format_are_refused_and_left_as_they_are() {
    for name in ["store.redb", "store.log"] {
        let home = TempDir::new().unwrap();
        fs::write(home.path().join(name), "x").unwrap();
        let error = FileLedger::open(home.path(), Policy::default()).unwrap_err();
        assert!(matches!(error.kind, StorageErrorKind::UnsupportedFormat(0)), "{error}");
        assert!(error.to_string().ends_with("has the files of an earlier version of mqkv"), "{error}");
    }
    let home = TempDir::new().unwrap();
    fs::write(home.path().join(LOCK_NAME), "mqkv store, format 7\n").unwrap();
    let error = FileLedger::open(home.path(), Policy::default()).unwrap_err();
    assert!(matches!(error.kind, StorageErrorKind::UnsupportedFormat(7)), "{error}");
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let home = TempDir::new().unwrap();
    let directory = home.path().join("new");
    let mut ledger = FileLedger::open(&directory, Policy::default()).unwrap();
    commit(&mut ledger, &[set("k", b"v")]).unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&directory), mode(&directory.join("log-1"))), (0o700, 0o600));
}

#[test]
fn groups_fill_segments_snapshots_replace_them_and_segments_are_used_again() {
    let mut model = Model::new();
    let mut longest = 0;
    for round in 0..12 {
        for _ in 0..10 {
            model.fill(5);
            model.work();
        }
        // A group that is longer than any segment has one of its own.
        model.set("large", &vec![round; 300_000]);
        model.work();
        longest = longest.max(model.disk.all_names().len());
        assert!(values(&model.disk.copy()).unwrap() == model.values, "round {round}");
    }
    assert!(model.snapshots > 5, "{}", model.snapshots);
    assert!(longest < 16, "{longest} files: {:?}", model.disk.all_names());
    let reused = model.disk.all_names().iter().any(|name| {
        let is_log = name.starts_with("log-");
        is_log
            && intact(Kind::Group, &model.disk.file(name), None).count() > 0
            && intact(Kind::Group, &model.disk.file(name), None).next().unwrap().0 == 0
    });
    assert!(reused);
}

#[test]
fn a_process_goes_on_in_its_segment_after_an_orderly_end_and_in_a_new_one_after_any_other() {
    let mut model = Model::new();
    model.set("a", b"1");
    model.ledger.close();
    let logs = |disk: &SimulatedDisk| disk.all_names().iter().filter(|name| name.starts_with("log-")).count();
    let mut model = Model::start(model.disk);
    model.set("b", b"2");
    assert_eq!(logs(&model.disk), 1);
    let mut model = Model::start(model.disk.after_kill());
    model.set("c", b"3");
    assert_eq!(logs(&model.disk), 2);
    model.ledger.close();
    assert_eq!(values(&model.disk).unwrap(), model.values);
    assert_eq!(model.values.len(), 3);
}

#[test]
fn a_start_that_writes_nothing_changes_nothing() {
    let mut model = Model::new();
    model.fill(20);
    model.ledger.close();
    let before: Vec<_> = model.disk.all_names().into_iter().map(|name| model.disk.file(&name)).collect();
    Model::start(model.disk.clone()).ledger.close();
    let after: Vec<_> = model.disk.all_names().into_iter().map(|name| model.disk.file(&name)).collect();
    assert!(before == after);
}

#[test]
fn a_snapshot_that_is_interrupted_at_any_of_its_writes_loses_nothing() {
    let mut model = Model::new();
    model.fill(60);
    let (disk, acknowledged) = (model.disk.clone(), model.values.clone());
    let mut completed = 0;
    for acts in 0.. {
        let mut copy = Model::start(disk.copy());
        copy.fill(3);
        copy.disk.set_faults(|faults| faults.cut_after = Some(acts));
        copy.work();
        completed += copy.snapshots;
        let is_off = copy.disk.is_off();
        for seed in 0..5 {
            let after = copy.disk.after_power_cut(&mut SeededRandom::new(seed));
            assert!(values(&after).unwrap() == copy.values, "after {acts} operations");
        }
        if !is_off {
            break;
        }
    }
    assert!(completed > 0);
    assert!(values(&disk).unwrap() == acknowledged);
}

/// The walk of a snapshot sees changes before their commit, and the snapshot waits for it.
#[test]
fn a_change_whose_commit_fails_is_in_no_snapshot_although_one_has_seen_it() {
    for fails_for_lack_of_room in [false, true] {
        let mut model = Model::new();
        let (mut snapshot, _) = begin_snapshot(&mut model);
        let lost = set("lost", &[b'v'; 100_000]);
        let mut seen = model.records();
        seen.push(lost.clone());
        snapshot.write_records(&seen, NOW).unwrap();
        model.disk.set_faults(|faults| match fails_for_lack_of_room {
            true => faults.blocks_max = Some(0),
            false => faults.fails_next_sync = true,
        });
        commit(&mut model.ledger, &[lost]).unwrap_err();
        drop(snapshot);
        model.disk.set_faults(|faults| faults.blocks_max = None);
        assert!(model.disk.all_names().iter().all(|name| !name.ends_with(".new")));
        let acknowledged = model.values.clone();
        let mut model = model.restart();
        assert!(model.values == acknowledged);
        model.fill_until_snapshot();
        assert!(values(&model.disk.copy()).unwrap() == model.values);
        assert!(values(&model.disk.after_power_cut(&mut SeededRandom::new(1))).unwrap() == model.values);
    }
}

/// Does work until a snapshot is due. Returns it, and the time of its begin.
pub(super) fn begin_snapshot(model: &mut Model) -> (SnapshotWriter, Now) {
    for _ in 0..WORK_MAX {
        let now = model.later();
        match model.ledger.take_work(now, group_bytes(0)).map(Work::run) {
            Some(Ok(done)) => drop(model.ledger.handle_done(done, now)),
            Some(Err(snapshot)) => return (*snapshot, now),
            None => model.fill(3),
        }
    }
    panic!("no snapshot is due: {:?}", model.disk.all_names());
}

/// Ends a ledger in order, with a snapshot.
fn end_with_snapshot(model: Model) -> Result<(), StorageError> {
    let records = model.records();
    let mut ledger = model.ledger;
    let mut snapshot = ledger.begin_last_snapshot(NOW)?;
    let written = snapshot.write_records(&records, NOW);
    written.map_err(|kind| StorageError { path: ledger.path(), kind })?;
    ledger.finish_last_snapshot(snapshot)?;
    ledger.close();
    Ok(())
}

#[test]
fn an_orderly_end_with_a_snapshot_that_is_interrupted_at_any_of_its_writes_loses_nothing() {
    let mut base = Model::new();
    base.fill(20);
    let (mut ended, mut interrupted) = (0, 0);
    for acts in 0.. {
        let mut model = Model::start(base.disk.copy());
        model.fill(3);
        let (disk, acknowledged) = (model.disk.clone(), model.values.clone());
        disk.set_faults(|faults| faults.cut_after = Some(acts));
        let is_ended = end_with_snapshot(model).is_ok();
        ended += u64::from(is_ended);
        interrupted += u64::from(!is_ended);
        for seed in 0..3 {
            let after = disk.after_power_cut(&mut SeededRandom::new(seed));
            assert!(values(&after).unwrap() == acknowledged, "after {acts} operations, seed {seed}");
        }
        if !disk.is_off() {
            disk.set_faults(|faults| faults.cut_after = None);
            assert_eq!(on(&disk).unwrap().log_bytes(), 0, "the next start has no group to read");
            break;
        }
    }
    assert!(ended > 0 && interrupted > 5, "{ended} {interrupted}");
}

#[test]
fn without_room_for_a_snapshot_commits_go_on_and_the_files_stay_valid() {
    let mut model = Model::new();
    while model.snapshots < 1 {
        model.fill(4);
        model.work();
    }
    for room in 0..30 {
        let mut copy = Model::start(model.disk.copy());
        copy.fill(30);
        let blocks = copy.disk.blocks() + room;
        copy.disk.set_faults(|faults| faults.blocks_max = Some(blocks));
        for round in 0..40_u64 {
            copy.write(&format!("k{}", round % 9), Some(b"small"));
            copy.settle();
        }
        assert!(values(&copy.disk.copy()).unwrap() == copy.values, "with {room} blocks");
        assert!(copy.disk.all_names().iter().all(|name| !name.ends_with(".new")));
        copy.disk.set_faults(|faults| faults.blocks_max = None);
        copy.settle();
        assert!(copy.ledger.lack().is_none(), "with {room} blocks");
        copy.fill(10);
        assert!(values(&copy.disk.copy()).unwrap() == copy.values, "with {room} blocks");
    }
}

/// The reserve is its file, and the older snapshot is the next reserve.
#[test]
fn snapshots_on_a_full_disk_need_no_room_but_that_of_the_reserve() {
    let mut model = Model::start_with(SimulatedDisk::default(), SERVING);
    for number in 0..60 {
        assert!(model.write(&format!("k{number}"), Some(&[b'v'; 3_000])));
        model.work();
    }
    let (blocks, before) = (model.disk.blocks(), model.snapshots);
    assert!(before > 0);
    model.disk.set_faults(|faults| faults.blocks_max = Some(blocks));
    let value: &[u8] = &[b'v'; 3_000];
    for round in 0..200 {
        model.write("k0", (round % 2 > 0).then_some(value));
        model.settle();
        assert!(model.disk.blocks() <= blocks && model.admits("k0", None), "round {round}");
    }
    assert!(model.snapshots > before + 3, "{}", model.snapshots - before);
    assert!(values(&model.disk.copy()).unwrap() == model.values);
}

/// Also if nothing else is written meanwhile.
#[test]
fn a_long_value_that_a_full_disk_has_refused_is_accepted_when_there_is_room_again() {
    for is_written_meanwhile in [false, true] {
        let mut model = Model::start_with(SimulatedDisk::default(), SERVING);
        assert!(model.write("small", Some(b"v")));
        model.work();
        let (blocks, long) = (model.disk.blocks() + 20, vec![b'v'; 500_000]);
        model.disk.set_faults(|faults| faults.blocks_max = Some(blocks));
        for _ in 0..3 {
            assert!(!model.write("long", Some(&long)));
            assert!(model.ledger.lack().is_some());
            if is_written_meanwhile {
                model.write("small", Some(b"v"));
            }
            model.settle();
        }
        model.disk.set_faults(|faults| faults.blocks_max = None);
        (0..2).for_each(|_| model.settle());
        assert!(model.write("long", Some(&long)), "{:?}", model.ledger.lack());
        model.work();
        assert!(values(&model.disk.copy()).unwrap() == model.values);
    }
}

/// The new process reads what the disk has, not what the system has in memory.
#[test]
fn a_failed_sync_a_restart_and_a_power_cut_lose_nothing_and_are_not_refused() {
    for seed in 0..500 {
        let random = &mut SeededRandom::new(seed);
        let mut model = Model::new();
        model.fill(1 + random.below(12));
        model.work();
        if random.below(2) == 0 {
            model.ledger.close();
            model = Model::start(model.disk);
            model.fill(random.below(3));
        }
        model.disk.set_faults(|faults| faults.fails_next_sync = true);
        let value = vec![b'f'; usize::try_from(random.below(9_000)).unwrap()];
        if commit(&mut model.ledger, &[set("failed", &value)]).is_ok() {
            // The sync was that of a new segment, or of work.
            model.values.insert("failed".to_owned(), value);
        }
        let acknowledged = model.values.clone();
        let mut model = model.restart();
        assert!(model.values == acknowledged, "seed {seed}: what was not acknowledged is not on disk");
        for round in 0..=random.below(3) {
            model.set(&format!("after {round}"), b"v");
        }
        let disk = model.disk.after_power_cut(random);
        let mut model = Model { values: model.values, ..Model::start(disk) };
        assert!(load(&mut on(&model.disk).unwrap()).unwrap() == model.values, "seed {seed}: acknowledged");
        model.set("again", b"v");
        assert!(values(&model.disk.after_power_cut(random)).unwrap() == model.values, "seed {seed}");
    }
}

/// Returns a store whose commits need no new segment, or, after a kill, one that is used again.
fn before_failure(is_killed: bool) -> Model {
    let mut model = Model::new();
    model.fill(10);
    model.work();
    if is_killed { model.restart() } else { model }
}

#[test]
fn after_a_commit_that_fails_the_next_start_has_every_acknowledged_value() {
    type Fault = fn(&mut Faults);
    let short: &[u8] = b"failed";
    let long: &[u8] = &[b'v'; 100_000];
    // Whether the commit fails in a segment in use, and in one that is used again.
    let faults: [(&str, Fault, &[u8], [bool; 2]); 7] = [
        ("write", |faults| faults.written_max = Some(0), short, [true, true]),
        ("sync", |faults| faults.fails_next_sync = true, short, [true, true]),
        ("operation", |faults| faults.fails_at = Some(0), short, [true, true]),
        ("rename", |faults| faults.fails_renames = true, short, [false, true]),
        ("sync of the names", |faults| faults.fails_name_syncs = true, short, [false, true]),
        ("room for a block", |faults| faults.blocks_max = Some(0), short, [true, true]),
        ("room for a segment", |faults| faults.bytes_max = Some(90_000), long, [true, true]),
    ];
    for (what, fault, value, fails) in faults {
        for is_killed in [false, true] {
            let mut model = before_failure(is_killed);
            model.disk.set_faults(fault);
            let committed = commit(&mut model.ledger, &[set("failed", value)]);
            assert_eq!(
                committed.is_err(),
                fails[usize::from(is_killed)],
                "{what}, {is_killed}: {committed:?}"
            );
            let acknowledged = model.values.clone();
            model.disk.set_faults(|faults| *faults = Faults::default());
            let cut = values(&model.disk.after_power_cut(&mut SeededRandom::new(1))).unwrap();
            let mut model = model.restart();
            // It is unknown whether a group whose commit has failed is on disk.
            for found in [&cut, &model.values] {
                let mut expected = acknowledged.clone();
                if committed.is_ok() || found.contains_key("failed") {
                    expected.insert("failed".to_owned(), value.to_vec());
                }
                assert!(*found == expected, "{what}, {is_killed}");
            }
            model.set("after", b"v");
            assert!(values(&model.disk.after_power_cut(&mut SeededRandom::new(2))).unwrap() == model.values);
        }
    }
}

/// An input or output error of each operation in turn, in commits and in work.
#[test]
fn after_any_operation_that_fails_once_every_acknowledged_value_is_there_and_snapshots_go_on() {
    let mut base = Model::new();
    base.fill(26);
    let (mut ended, mut went_on) = (0, 0);
    for operation in 0.. {
        let mut model = Model::start(base.disk.copy());
        model.disk.set_faults(|faults| faults.fails_at = Some(operation));
        let mut failed = Values::new();
        for round in 0..12 {
            let (name, value) = (format!("k{}", round % 9), format!("{operation} {round}"));
            if commit(&mut model.ledger, &[set(&name, value.as_bytes())]).is_err() {
                failed.insert(name, value.into_bytes());
                break;
            }
            model.values.insert(name, value.into_bytes());
            model.settle();
        }
        if model.disk.is_failure_ahead() {
            break;
        }
        if failed.is_empty() {
            went_on += 1;
            model.settle();
            assert!(model.ledger.lack().is_none(), "operation {operation}: {:?}", model.ledger.lack());
        } else {
            ended += 1;
        }
        let without = model.values.clone();
        let with: Values = without.clone().into_iter().chain(failed).collect();
        let cut = values(&model.disk.after_power_cut(&mut SeededRandom::new(operation))).unwrap();
        let mut model = model.restart();
        for found in [&cut, &model.values] {
            assert!(*found == without || *found == with, "operation {operation}");
        }
        model.fill(30);
        model.settle();
        assert!(model.snapshots > 0, "operation {operation}: {:?}", model.disk.all_names());
        assert!(values(&model.disk.copy()).unwrap() == model.values, "operation {operation}");
    }
    assert!(ended > 10 && went_on > 20, "{ended} {went_on}");
}

/// Keys, each with the number of its value: its row in the exchange has that number, too.
type Numbers = BTreeMap<Key, u64>;

fn row_of(number: u64) -> Row {
    Row::Terms(vec![Term { first: number, run: 7 }])
}

/// Returns the records of a key, and of its row.
fn value_and_row(key: &Key, number: Option<u64>) -> [(u64, Record); 2] {
    let value = |number: u64| number.to_string().repeat(1 + usize::try_from(number % 400).unwrap());
    let content = number.map(|number| content(value(number).as_bytes(), None));
    let row = number.map(|number| Box::new(row_of(number)));
    [
        (0, Record::Key(KeyRecord { key: key.clone(), version: at(1), content })),
        (0, Record::Exchange(RowId::Key(key.clone()), row)),
    ]
}

/// Returns the records of all keys and rows.
fn all_of(numbers: &Numbers) -> Vec<(u64, Record)> {
    numbers.iter().flat_map(|(key, number)| value_and_row(key, Some(*number))).collect()
}

/// Returns whether a ledger that was opened holds exactly these values, and the rows that belong to them.
fn holds(ledger: &mut FileLedger, numbers: &Numbers) -> bool {
    let (mut values, mut rows) = (Vec::new(), BTreeMap::new());
    ledger.load(NOW, |key, _, content| values.push((key, content))).unwrap();
    ledger.load_rows(|address, row| drop(rows.insert(address, row)));
    values.sort_by(|(one, _), (other, _)| one.cmp(other));
    let (mut expected_values, mut expected_rows) = (Vec::new(), BTreeMap::new());
    for (_, record) in all_of(numbers) {
        match record {
            Record::Key(KeyRecord { key, content, .. }) => expected_values.push((key, content.unwrap())),
            Record::Exchange(id, row) => drop(expected_rows.insert(id.encode(), row.unwrap().encode())),
            _ => {}
        }
    }
    values == expected_values && rows == expected_rows
}

/// I7: all of a group is there, values and rows, or nothing of it.
#[test]
fn after_any_power_cut_values_and_rows_agree() {
    let (mut commits, mut finished, mut undone, mut snapshots, mut failures) = (0, 0, 0, 0, 0);
    for seed in 0..25 {
        let random = &mut SeededRandom::new(seed);
        let (mut disk, mut numbers, mut interrupted) = (SimulatedDisk::default(), Numbers::new(), None);
        for _ in 0..12 {
            let mut ledger = on(&disk).unwrap();
            let is_finished =
                interrupted.as_ref().is_some_and(|after| holds(&mut on(&disk.copy()).unwrap(), after));
            finished += u64::from(is_finished);
            undone += u64::from(interrupted.is_some() && !is_finished);
            numbers = interrupted.take().filter(|_| is_finished).unwrap_or(numbers);
            assert!(
                holds(&mut ledger, &numbers),
                "seed {seed}: neither the state before a commit nor after it"
            );
            disk.set_faults(|faults| faults.cut_after = Some(random.below(300)));
            while !disk.is_off() {
                if random.below(150) == 0 {
                    disk.set_faults(|faults| faults.fails_next_sync = true);
                }
                let mut after = numbers.clone();
                let mut group = Vec::new();
                for _ in 0..=random.below(12) {
                    let key = Key::new(format!("k{}", random.below(40))).unwrap();
                    let number = (random.below(4) > 0).then(|| random.below(1_000_000));
                    group.extend(value_and_row(&key, number));
                    match number {
                        Some(number) => drop(after.insert(key, number)),
                        None => drop(after.remove(&key)),
                    }
                }
                if commit(&mut ledger, &group).is_ok() {
                    (numbers, interrupted, commits) = (after, None, commits + 1);
                } else {
                    // The process ends.
                    (interrupted, failures) = (Some(after), failures + u64::from(!disk.is_off()));
                    break;
                }
                let mut pieces = 0;
                while let Some(work) = ledger.take_work(NOW, group_bytes(0)) {
                    pieces += 1;
                    assert!(pieces < WORK_MAX, "seed {seed}: the work has no end");
                    let done = work.run().unwrap_or_else(|mut snapshot| {
                        let written = snapshot.write_records(&all_of(&numbers), NOW);
                        let (number, metadata) = (ledger.number(), ledger.metadata());
                        let result = written.and_then(|()| snapshot.finish(number, metadata));
                        snapshots += u64::from(result.is_ok());
                        Done::Snapshot(result)
                    });
                    ledger.handle_done(done, NOW);
                }
            }
            drop(ledger);
            let is_killed = !disk.is_off() && random.below(2) == 0;
            disk = if is_killed { disk.after_kill() } else { disk.after_power_cut(random) };
        }
    }
    let least = [commits, finished, undone, snapshots, failures].into_iter().min();
    assert!(least > Some(5), "{commits} {finished} {undone} {snapshots} {failures}");
}

/// No process may build on what a killed one has not synced.
#[test]
fn a_start_fails_if_what_a_killed_process_has_written_cannot_be_synced() {
    let mut model = Model::new();
    model.fill(3);
    model.disk.set_faults(|faults| faults.fails_next_sync = true);
    let error = on(&model.disk).unwrap_err();
    assert!(matches!(error.kind, StorageErrorKind::Io(_)), "{error}");
    assert!(error.to_string().contains("log-1"), "{error}");
    assert_eq!(values(&model.disk).unwrap(), model.values);
}

/// Returns what is left of a key with a time to live of an hour.
fn left_ms(disk: &SimulatedDisk, wall_ms: u64) -> u64 {
    let mut left = None;
    let now = Now { wall_ms, monotonic_ms: 0 };
    on(disk).unwrap().load(now, |_, _, stored| left = stored.deadline_ms).unwrap();
    left.unwrap()
}

/// What is left of a key does not depend on the wall clock alone.
#[test]
fn a_wall_clock_that_was_set_before_a_kill_does_not_end_a_key() {
    const DAY_MS: u64 = 24 * HOUR_MS;
    let disk = SimulatedDisk::default();
    let mut ledger = on(&disk).unwrap();
    ledger.commit(&[record("k", 1, Some(content(b"v", Some(HOUR_MS))))], at(1), NOW).unwrap();
    drop(ledger);
    disk.pass(1_500);
    let disk = disk.after_kill();
    for wall_ms in [NOW.wall_ms + DAY_MS, 0, NOW.wall_ms] {
        assert_eq!(left_ms(&disk, wall_ms), HOUR_MS + 1 - 1_500, "at {wall_ms}");
    }
    // After a restart of the machine, the wall clock counts, but at least the time since the start.
    let restarted = disk.after_power_cut(&mut SeededRandom::new(0));
    restarted.pass(2_000);
    assert_eq!(left_ms(&restarted, NOW.wall_ms + 60_000), HOUR_MS + 1 - 60_000);
    assert_eq!(left_ms(&restarted, 0), HOUR_MS + 1 - 2_000);
    // One that no time server disciplines may be wrong: the key expires late rather than early.
    restarted.set_synchronized(false);
    assert_eq!(left_ms(&restarted, NOW.wall_ms + DAY_MS), HOUR_MS + 1 - 2_000);
}

#[test]
fn a_step_of_the_wall_clock_is_noticed_and_shortens_no_time_to_live() {
    let disk = SimulatedDisk::default();
    let mut ledger = on(&disk).unwrap();
    ledger.load(NOW, |_, _, _| {}).unwrap();
    ledger.commit(&[record("k", 1, Some(content(b"v", Some(HOUR_MS))))], at(1), NOW).unwrap();
    let later = |step_ms: i64| Now {
        wall_ms: NOW.wall_ms.checked_add_signed(step_ms).unwrap() + 60_000,
        monotonic_ms: NOW.monotonic_ms + 60_000,
    };
    assert!(!ledger.clock_was_set(later(0)) && !ledger.clock_was_set(later(500)));
    for step_ms in [7_200_000, -900_000] {
        assert!(ledger.clock_was_set(later(step_ms)));
        ledger.commit(&[], at(1), later(step_ms)).unwrap();
        assert!(!ledger.clock_was_set(later(step_ms)));
        let restarted = disk.after_power_cut(&mut SeededRandom::new(0));
        assert_eq!(left_ms(&restarted, later(step_ms).wall_ms), HOUR_MS + 1 - 60_000);
    }
}

/// Deletes each key in a group of its own, on disks of many sizes that the store has filled by itself.
#[test]
fn a_full_disk_of_any_size_refuses_before_anything_has_changed_takes_all_deletions_and_then_writes_again() {
    let sizes = (24..=144).step_by(6).map(|blocks| (blocks, 3_000));
    for (blocks, bytes) in sizes.chain([(40, 100), (60, 100), (300, 20_000)]) {
        let mut model = Model::serving(blocks);
        let value = vec![b'v'; bytes];
        let names = model.fill_disk(&value);
        assert!(values(&model.disk.copy()).unwrap() == model.values, "{blocks} blocks, {bytes} bytes");
        names.iter().for_each(|name| model.delete_from_full_disk(name));
        assert!(model.values.is_empty());
        (0..3).for_each(|_| model.settle());
        let is_refused = names.first().is_some_and(|name| !model.write(name, Some(&value)));
        let (lack, room) = (model.ledger.lack(), model.ledger.room(NOW));
        assert!(!is_refused, "{blocks} blocks, {bytes} bytes, {} before: {lack:?}, {room:?}", names.len());
        assert!(values(&model.disk.copy()).unwrap() == model.values, "{blocks} blocks, {bytes} bytes");
    }
}

/// It takes what a snapshot gives back before the store does.
#[test]
fn all_keys_can_be_deleted_from_a_full_disk_that_another_program_fills_after_each_snapshot() {
    for (blocks, bytes) in [(40, 3_000), (80, 3_000), (120, 3_000), (160, 3_000), (60, 100), (300, 20_000)] {
        let mut model = Model::serving(blocks);
        let names = model.fill_disk(&vec![b'v'; bytes]);
        assert!(names.len() > 2, "{blocks} blocks, {bytes} bytes");
        model.is_disk_shared = true;
        names.iter().for_each(|name| model.delete_from_full_disk(name));
        assert!(model.values.is_empty() && values(&model.disk.copy()).unwrap().is_empty());
    }
}

/// An error of the disk ends the process, also of a full one.
#[test]
fn all_keys_can_be_deleted_from_a_full_disk_after_a_kill() {
    for blocks in (40..=160).step_by(20) {
        let mut model = Model::serving(blocks);
        let names = model.fill_disk(&[b'v'; 3_000]);
        let Model { disk, ledger, values: acknowledged, .. } = model;
        drop(ledger);
        let mut model = Model::start_with(disk.after_kill(), SERVING);
        assert!(model.values == acknowledged);
        // As a start does, which writes a ceiling.
        model.ledger.claim_first();
        if model.ledger.lack().is_none() {
            commit(&mut model.ledger, &[]).unwrap();
        }
        model.settle();
        names.iter().for_each(|name| model.delete_from_full_disk(name));
        assert!(model.values.is_empty() && values(&model.disk.copy()).unwrap().is_empty());
    }
}

#[test]
fn what_a_start_has_read_after_an_interrupted_first_commit_stays() {
    let mut found_after_kill = 0;
    for acts in 0..12 {
        let mut model = Model::new();
        model.disk.set_faults(|faults| faults.cut_after = Some(acts));
        let is_committed = commit(&mut model.ledger, &[set("k", b"v")]).is_ok();
        let disk = model.disk.after_kill();
        let found = values(&disk).unwrap();
        found_after_kill += u64::from(!found.is_empty() && !is_committed);
        for seed in 0..16 {
            let after = disk.after_power_cut(&mut SeededRandom::new(seed));
            assert_eq!(values(&after).unwrap(), found, "after {acts} operations, seed {seed}");
        }
    }
    assert!(found_after_kill > 0);
}

/// Zeros over the end of the log are refused if a file shows that there were groups.
#[test]
fn a_lost_end_of_the_log_is_refused_where_anything_shows_that_there_was_more() {
    // The number of the last orderly end.
    let mut model = Model::new();
    model.fill(3);
    model.ledger.close();
    let erase = |disk: &SimulatedDisk, name: &str, from: usize| {
        disk.change_file(name, |bytes| bytes[from * BLOCK_BYTES..].fill(0));
    };
    let disk = model.disk.copy();
    erase(&disk, "log-1", 1);
    let error = values(&disk).unwrap_err().to_string();
    assert!(error.contains("and group 3 was the last one at the last end"), "{error}");
    // A later group.
    let disk = model.disk.copy();
    disk.change_file("log-1", |bytes| bytes[BLOCK_BYTES..2 * BLOCK_BYTES].fill(0));
    let error = values(&disk).unwrap_err().to_string();
    assert!(
        error.contains("log-1, byte 4096: group 2 is damaged or missing, and group 3 is in log-1, byte 8192"),
        "{error}"
    );
    // A group of a later segment.
    let mut model = Model::new();
    model.fill(5);
    let first = model.disk.clone();
    let mut model = Model::start(first.after_kill());
    model.set("later", b"v");
    let disk = model.disk.copy();
    erase(&disk, "log-1", 3);
    assert!(is_corrupt(&values(&disk).unwrap_err()));
    // The number of the snapshot.
    while model.snapshots == 0 {
        model.fill(3);
        model.work();
    }
    let names = model.disk.all_names();
    let snapshot = names.iter().find_map(|name| name.strip_prefix("snapshot-")).unwrap();
    let log = log_name(snapshot.parse().unwrap());
    assert!(values(&model.disk.copy()).unwrap() == model.values);
    let disk = model.disk.copy();
    disk.change_file(LOCK_NAME, |bytes| bytes.truncate(0));
    disk.change_file(&log, |bytes| bytes.truncate(0));
    assert!(is_corrupt(&values(&disk).unwrap_err()));
    // The first group.
    let mut model = Model::new();
    model.set("k", b"v");
    erase(&model.disk, "log-1", 0);
    let error = values(&model.disk).unwrap_err().to_string();
    assert!(error.contains("log-1: the first group is damaged or missing"), "{error}");
}

/// A copy that was interrupted: no orderly end shows what is missing.
#[test]
fn a_log_that_is_cut_off_within_a_group_is_refused() {
    let mut model = Model::new();
    model.set("a", b"1");
    model.set("b", &[b'v'; 9_000]);
    let (whole, mut refused) = (model.disk.file("log-1").len(), 0);
    for bytes in (0..whole).step_by(512) {
        let disk = model.disk.copy();
        disk.change_file("log-1", |content| content.truncate(bytes));
        match values(&disk) {
            Ok(found) if bytes <= BLOCK_BYTES => {
                assert_eq!(found.len(), 1, "{bytes}: nothing shows that there was more")
            }
            Ok(found) => assert_eq!(found, model.values, "{bytes}: only the padding is missing"),
            Err(error) if bytes <= BLOCK_BYTES => assert!(is_corrupt(&error), "{bytes}: {error}"),
            Err(error) => {
                assert!(
                    error.to_string().ends_with("log-1: it is cut off in the group at byte 4096"),
                    "{error}"
                );
                refused += 1;
            }
        }
    }
    assert!(refused > 16, "{refused}");
}

#[test]
fn missing_files_are_refused() {
    let mut model = Model::new();
    // Until segments are used again, the log from its beginning is as good as the snapshot.
    while model.snapshots < 4 {
        model.fill(3);
        model.work();
    }
    model.fill(1);
    let names = model.disk.all_names();
    for name in names.iter().filter(|name| name.starts_with("snapshot-")) {
        let disk = model.disk.copy();
        disk.remove(name).unwrap();
        let error = values(&disk).unwrap_err();
        assert!(is_corrupt(&error), "{name}: {error}");
    }
    let number = |name: &String| name.strip_prefix("snapshot-")?.parse::<u64>().ok();
    let first = names.iter().filter_map(number).max().unwrap();
    let disk = model.disk.copy();
    disk.remove(&log_name(first)).unwrap();
    let error = values(&disk).unwrap_err();
    assert!(error.to_string().contains(&format!("log-{first} is missing")), "{error}");
    let disk = model.disk.copy();
    names.iter().filter(|name| *name != LOCK_NAME).for_each(|name| disk.remove(name).unwrap());
    assert!(matches!(kind(values(&disk)), StorageErrorKind::Lost));
}

#[test]
fn files_of_another_store_or_of_another_time_are_refused() {
    let mut model = Model::new();
    while model.snapshots == 0 {
        model.fill(3);
        model.work();
    }
    let older = model.disk.copy();
    while model.snapshots == 1 {
        model.fill(3);
        model.work();
    }
    model.fill(5);
    model.ledger.close();
    let newer = model.disk;
    let snapshot = |disk: &SimulatedDisk| {
        disk.all_names().into_iter().find(|name| name.starts_with("snapshot-")).unwrap()
    };
    // The log and the lock file of now, and the snapshot of then.
    let disk = newer.copy();
    disk.remove(&snapshot(&newer)).unwrap();
    disk.add_file(&snapshot(&older), older.file(&snapshot(&older)));
    // All of the log since then may be there.
    match values(&disk) {
        Ok(found) => assert!(found == model.values),
        Err(error) => assert!(is_corrupt(&error), "{error}"),
    }
    // The other way round.
    let disk = older.copy();
    disk.remove(&snapshot(&older)).unwrap();
    disk.add_file(&snapshot(&newer), newer.file(&snapshot(&newer)));
    assert!(is_corrupt(&values(&disk).unwrap_err()));
    // A log of another store.
    let (mut first, mut second) = (
        Model::new(),
        Model::start({
            let disk = SimulatedDisk::default();
            disk.random();
            disk
        }),
    );
    first.fill(5);
    first.ledger.close();
    second.fill(5);
    let log = second.disk.file("log-1");
    first.disk.change_file("log-1", |bytes| *bytes = log);
    assert!(is_corrupt(&values(&first.disk).unwrap_err()));
}

/// Flips every bit of the headers and of the lock file, and some of each block, each in a copy of the disk: the files are
/// refused, or hold all that was acknowledged. Without an orderly end, the last group may be missing.
#[test]
fn a_flipped_bit_is_refused_or_loses_nothing() {
    let row = |name: &str| (0, Record::Exchange(RowId::Key(Key::new(name.to_owned()).unwrap()), None));
    let mut refused = 0;
    for (groups, has_snapshot, is_closed) in
        [(4, false, false), (4, false, true), (8, true, false), (8, true, true)]
    {
        let mut model = Model::new();
        while has_snapshot && model.snapshots == 0 {
            model.fill(3);
            model.work();
        }
        model.fill(groups);
        commit(&mut model.ledger, &[row("k"), row("l"), set("r", b"v")]).unwrap();
        model.values.insert("r".to_owned(), b"v".to_vec());
        let before_last = model.values.clone();
        model.set("last", b"value");
        let disk = model.disk.clone();
        if is_closed {
            model.ledger.close();
        }
        for name in disk.all_names() {
            let bytes = disk.file(&name);
            let kind = if name.starts_with("snapshot") { Kind::Snapshot } else { Kind::Group };
            let headers = intact(kind, &bytes, None).flat_map(|(at, _)| at * 8..(at + HEADER_BYTES) * 8);
            let headers: Vec<_> = match name.as_str() {
                LOCK_NAME => (0..bytes.len() * 8).collect(),
                RESERVE_NAME => Vec::new(),
                _ => headers.collect(),
            };
            let blocks = (0..bytes.len() / BLOCK_BYTES).flat_map(|block| {
                (0..4).map(move |number| block * BLOCK_BYTES * 8 + (number * 7_919 + block * 31) % 3_000)
            });
            for bit in headers.into_iter().chain(blocks) {
                let disk = disk.copy();
                disk.change_file(&name, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
                let place = format!("bit {bit} of {name}, {groups} groups, {has_snapshot}, {is_closed}");
                match values(&disk) {
                    Ok(found) => {
                        let is_whole = found == model.values || (!is_closed && found == before_last);
                        assert!(is_whole, "{place}");
                    }
                    Err(error) => {
                        let is_format = matches!(error.kind, StorageErrorKind::UnsupportedFormat(_));
                        assert!(is_corrupt(&error) || (is_format && name == LOCK_NAME), "{place}: {error}");
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(refused > 1_000, "{refused}");
}

/// A value that contains a frame is not taken for one: a client cannot know the number of the store.
#[test]
fn a_value_that_contains_a_group_is_not_one() {
    let mut other = Model::start({
        let disk = SimulatedDisk::default();
        (0..5).for_each(|_| _ = disk.random());
        disk
    });
    other.fill(9);
    let frames = other.disk.file("log-1");
    let mut model = Model::new();
    for shift in (0..BLOCK_BYTES).step_by(8) {
        let mut value = vec![b'v'; shift];
        value.extend_from_slice(&frames[BLOCK_BYTES..]);
        model.set("crafted", &value);
        if shift % 512 == 0 {
            model.work();
            assert!(values(&model.disk.copy()).unwrap() == model.values);
        }
    }
    model.delete("crafted");
    model.work();
    assert!(values(&model.disk.copy()).unwrap() == model.values);
}

#[test]
fn a_file_that_is_not_regular_is_refused_at_once() {
    let home = TempDir::new().unwrap();
    let mut ledger = FileLedger::open(home.path(), Policy::default()).unwrap();
    commit(&mut ledger, &[set("k", b"v")]).unwrap();
    drop(ledger);
    fs::remove_file(home.path().join("log-1")).unwrap();
    fs::create_dir(home.path().join("log-1")).unwrap();
    let error = FileLedger::open(home.path(), Policy::default()).unwrap_err();
    let path = home.path().join("log-1");
    assert!(matches!(&error.kind, StorageErrorKind::NotAFile(found) if *found == path), "{error}");
}
