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
use super::simulated::{POLICY, SeededRandom, SimulatedDisk};
use super::work::Done;
use crate::exchange::row::{Row, RowId, Term};
use crate::ledger::{CommitMetadata, KeyRecord, Record, StorageError, StorageErrorKind};
use crate::protocol::{Key, Timestamp};
use crate::store::{Now, StoredValue, Version};

pub(super) const NOW: Now = Now { wall_ms: 1_000_000, monotonic_ms: 5_000 };
const HOUR_MS: u64 = 3_600_000;

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
        Self { disk, ledger, values, snapshots: 0, passed_ms: 0 }
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

    /// Returns the time of the work: more than any pause passes between two looks.
    pub fn later(&mut self) -> Now {
        self.passed_ms += 100_000;
        Now { monotonic_ms: NOW.monotonic_ms + self.passed_ms, ..NOW }
    }

    /// Returns all that a snapshot has.
    pub fn records(&self) -> Vec<(u64, Record)> {
        self.values.iter().map(|(name, value)| set(name, value)).collect()
    }

    /// Fails a commit, so that the ledger must recover.
    pub fn fail_commit(&mut self, name: &str) {
        self.disk.set_faults(|faults| faults.fails_next_sync = true);
        commit(&mut self.ledger, &[set(name, b"v")]).unwrap_err();
    }

    /// Returns what the persistent keys take, or somewhat more.
    pub fn bytes(&self) -> u64 {
        self.values.iter().map(|(name, value)| (name.len() + value.len() + 64) as u64).sum()
    }

    /// Does all work that another thread does.
    pub fn work(&mut self) {
        let now = self.later();
        while let Some(work) = self.ledger.take_work(now, self.bytes()) {
            let done = work.run().unwrap_or_else(|mut snapshot| {
                let epoch = snapshot.epoch();
                let written = snapshot.write_records(&self.records(), NOW);
                let (number, metadata) = (self.ledger.number(), self.ledger.metadata());
                let result = written.and_then(|()| snapshot.finish(number, metadata));
                self.snapshots += u64::from(result.is_ok());
                Done::Snapshot(epoch, result)
            });
            self.ledger.handle_done(done, now);
        }
    }

    pub fn recover(&mut self) {
        let mut snapshot = self.ledger.begin_rewrite(NOW).unwrap();
        snapshot.write_records(&self.records(), NOW).unwrap();
        self.ledger.finish_rewrite(snapshot).unwrap();
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
        let mut ledger = FileLedger::open(&directory).unwrap();
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
        let mut ledger = FileLedger::open(&directory).unwrap();
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
    let _first = FileLedger::open(home.path()).unwrap();
    let error = FileLedger::open(home.path()).unwrap_err();
    assert!(matches!(error.kind, StorageErrorKind::InUse));
    assert!(error.to_string().ends_with("is in use by another process"), "{error}");
}

#[test]
fn files_of_another_format_are_refused_and_left_as_they_are() {
    for name in ["store.redb", "store.log"] {
        let home = TempDir::new().unwrap();
        fs::write(home.path().join(name), "x").unwrap();
        let error = FileLedger::open(home.path()).unwrap_err();
        assert!(matches!(error.kind, StorageErrorKind::UnsupportedFormat(0)), "{error}");
        assert!(error.to_string().ends_with("has the files of an earlier version of mqkv"), "{error}");
    }
    let home = TempDir::new().unwrap();
    fs::write(home.path().join(LOCK_NAME), "mqkv store, format 7\n").unwrap();
    let error = FileLedger::open(home.path()).unwrap_err();
    assert!(matches!(error.kind, StorageErrorKind::UnsupportedFormat(7)), "{error}");
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let home = TempDir::new().unwrap();
    let directory = home.path().join("new");
    let mut ledger = FileLedger::open(&directory).unwrap();
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

/// One write of one file and one sync.
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

/// What the walk of a snapshot has seen is durable before the snapshot counts, and is not if a commit has failed.
#[test]
fn a_failed_commit_cancels_a_snapshot_that_has_seen_its_changes() {
    let mut model = Model::new();
    let snapshot = loop {
        model.fill(3);
        match model.ledger.take_work(NOW, u64::MAX).map(|work| work.run()) {
            Some(Ok(done)) => drop(model.ledger.handle_done(done, NOW)),
            Some(Err(snapshot)) => break snapshot,
            None => {}
        }
    };
    let mut snapshot = *snapshot;
    let mut seen = model.records();
    seen.push(set("rolled back", b"v"));
    snapshot.write_records(&seen, NOW).unwrap();
    model.fail_commit("rolled back");
    assert!(snapshot.epoch().is_over() && !model.ledger.is_open());
    drop(snapshot);
    assert!(commit(&mut model.ledger, &[set("k", b"v")]).is_err(), "it waits for the recovery");
    model.recover();
    model.set("after", b"v");
    assert!(model.disk.all_names().iter().all(|name| !name.ends_with(".new")));
    assert_eq!(values(&model.disk.copy()).unwrap(), model.values);
    assert_eq!(values(&model.disk.after_power_cut(&mut SeededRandom::new(1))).unwrap(), model.values);
}

/// What has expired since the last group is not in the snapshot, and rows of the exchange may show that.
#[test]
fn the_clock_shows_no_earlier_time_after_a_recovery_that_no_group_has_followed() {
    let mut model = Model::new();
    model.fill(3);
    model.fail_commit("k");
    let later = Now { wall_ms: NOW.wall_ms + HOUR_MS, monotonic_ms: NOW.monotonic_ms + HOUR_MS };
    let clock_ms = model.ledger.clock_ms(later);
    let snapshot = model.ledger.begin_rewrite(later).unwrap();
    model.ledger.finish_rewrite(snapshot).unwrap();
    // Nothing shows how long the machine was off.
    let restarted = model.disk.copy();
    restarted.set_synchronized(false);
    assert_eq!(on(&restarted).unwrap().clock_ms(NOW), clock_ms);
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
            let name = format!("k{}", round % 9);
            match commit(&mut copy.ledger, &[set(&name, b"small")]) {
                Ok(()) => drop(copy.values.insert(name, b"small".to_vec())),
                Err(error) => assert!(error.kind.is_lack_of_room() && copy.ledger.is_open(), "{error}"),
            }
            copy.work();
        }
        assert!(values(&copy.disk.copy()).unwrap() == copy.values, "with {room} blocks");
        assert!(copy.disk.all_names().iter().all(|name| !name.ends_with(".new")));
        copy.disk.set_faults(|faults| faults.blocks_max = None);
        copy.ledger.retry_work();
        copy.work();
        assert!(!copy.ledger.is_short_of_room());
        copy.fill(10);
        assert!(values(&copy.disk.copy()).unwrap() == copy.values, "with {room} blocks");
    }
}

#[test]
fn a_disk_without_room_for_a_group_is_known_until_there_is_room_for_it() {
    for is_written_again in [false, true] {
        let mut model = Model::new();
        model.fill(2);
        model.disk.set_faults(|faults| faults.bytes_max = Some(100_000));
        let large = vec![b'v'; 200_000];
        assert!(commit(&mut model.ledger, &[set("large", &large)]).unwrap_err().kind.is_lack_of_room());
        for _ in 0..3 {
            model.set("small", b"v");
            model.ledger.retry_work();
            model.work();
            assert!(model.ledger.lacks_room() && !model.ledger.is_short_of_room());
        }
        model.disk.set_faults(|faults| faults.bytes_max = None);
        if is_written_again {
            model.set("large", &large);
        } else {
            model.work();
            assert!(model.ledger.lacks_room(), "no one has looked");
            model.ledger.retry_work();
            model.work();
        }
        assert!(!model.ledger.lacks_room());
        assert!(model.disk.all_names().iter().all(|name| !name.ends_with(".new")));
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
        let disk = model.disk.after_kill();
        let acknowledged = model.values;
        let mut model = Model::start(disk);
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
    let (mut commits, mut finished, mut undone, mut snapshots, mut recoveries) = (0, 0, 0, 0, 0);
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
                if random.below(40) == 0 {
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
                    interrupted = Some(after);
                    let Ok(mut snapshot) = ledger.begin_rewrite(NOW) else { break };
                    let written = snapshot.write_records(&all_of(&numbers), NOW);
                    if written.is_err() || ledger.finish_rewrite(snapshot).is_err() {
                        break;
                    }
                    (interrupted, recoveries) = (None, recoveries + 1);
                }
                while let Some(work) = ledger.take_work(NOW, u64::MAX) {
                    let done = work.run().unwrap_or_else(|mut snapshot| {
                        let written = snapshot.write_records(&all_of(&numbers), NOW);
                        let epoch = snapshot.epoch();
                        let (number, metadata) = (ledger.number(), ledger.metadata());
                        let result = written.and_then(|()| snapshot.finish(number, metadata));
                        snapshots += u64::from(result.is_ok());
                        Done::Snapshot(epoch, result)
                    });
                    ledger.handle_done(done, NOW);
                }
            }
            drop(ledger);
            disk = disk.after_power_cut(random);
        }
    }
    let least = [commits, finished, undone, snapshots, recoveries].into_iter().min();
    assert!(least > Some(5), "{commits} {finished} {undone} {snapshots} {recoveries}");
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

#[test]
fn the_reserve_has_random_bytes_and_counts_only_if_its_sync_succeeds() {
    let mut model = Model::new();
    model.set("k", &vec![b'v'; 50_000]);
    model.fill(POLICY.commits_before);
    let reserve = loop {
        match model.ledger.take_work(NOW, u64::MAX).unwrap() {
            super::work::Work::Reserve(filling) => break filling,
            other => drop(model.ledger.handle_done(other.run().unwrap(), NOW)),
        }
    };
    model.disk.set_faults(|faults| faults.fails_next_sync = true);
    model.ledger.handle_done(reserve.run(), NOW);
    assert!(!model.disk.all_names().contains(&RESERVE_NAME.to_owned()), "it is made anew");
    model.ledger.retry_work();
    model.work();
    let bytes = model.disk.file(RESERVE_NAME);
    assert!(bytes.len() >= 50_000 + 192 * 1024, "{}", bytes.len());
    let distinct: std::collections::HashSet<_> = bytes.as_chunks::<8>().0.iter().collect();
    assert!(distinct.len() > bytes.len() / 8 - 10, "no two words are the same, as far as chance permits");
}

/// Deletes each key in a group of its own, on disks of several sizes that the store has filled by itself.
#[test]
fn a_store_that_has_filled_a_small_disk_accepts_writes_again_after_everything_was_deleted() {
    for (blocks, value_bytes) in [(180, 100), (180, 9_000), (750, 100), (750, 3_000), (3_000, 20_000)] {
        let mut model = Model::new();
        model.disk.set_faults(|faults| faults.blocks_max = Some(blocks));
        let value = vec![b'v'; value_bytes];
        let mut count = 0;
        let mut refusals = 0;
        while refusals < 5 && count < 3_000 {
            let name = format!("k{count}");
            let is_refused =
                model.ledger.is_short_of_room() || commit(&mut model.ledger, &[set(&name, &value)]).is_err();
            if is_refused {
                refusals += 1;
                model.ledger.retry_work();
            } else {
                (count, refusals) = (count + 1, 0);
                model.values.insert(name, value.clone());
            }
            model.work();
        }
        assert!(count > 5 && model.values.len() == count, "{count} keys in {blocks} blocks");
        for number in 0..count {
            let name = format!("k{number}");
            let mut deleted = commit(&mut model.ledger, &[delete(&name)]);
            for _ in 0..5 {
                if deleted.is_err() {
                    model.ledger.release_reserve();
                    model.work();
                    deleted = commit(&mut model.ledger, &[delete(&name)]);
                }
            }
            deleted.unwrap_or_else(|error| panic!("{name} of {count}, {blocks} blocks: {error}"));
            model.values.remove(&name);
            model.work();
        }
        model.ledger.retry_work();
        model.work();
        assert!(!model.ledger.is_short_of_room(), "{blocks} blocks, {value_bytes} bytes");
        for number in 0..count / 2 {
            model.set(&format!("k{number}"), &value);
            model.work();
        }
        assert!(values(&model.disk.copy()).unwrap() == model.values);
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
    let base = intact(Kind::Group, &model.disk.file(&log), None).count();
    assert_eq!(base, 0, "no commit came between");
    let disk = model.disk.copy();
    disk.change_file(LOCK_NAME, |bytes| bytes.truncate(0));
    disk.change_file(&log, |bytes| bytes.truncate(0));
    assert!(values(&disk).unwrap() == model.values, "nothing was in it");
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
    // Until then, the log from its beginning is as good as the snapshot.
    while model.snapshots == 0 || model.disk.has("log-1") {
        model.fill(3);
        model.work();
    }
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
    let mut ledger = FileLedger::open(home.path()).unwrap();
    commit(&mut ledger, &[set("k", b"v")]).unwrap();
    drop(ledger);
    fs::remove_file(home.path().join("log-1")).unwrap();
    fs::create_dir(home.path().join("log-1")).unwrap();
    let error = FileLedger::open(home.path()).unwrap_err();
    let path = home.path().join("log-1");
    assert!(matches!(&error.kind, StorageErrorKind::NotAFile(found) if *found == path), "{error}");
}
