//! Tests of opening, committing and reopening the files.

use std::fs;

use super::*;
use crate::protocol::Timestamp;
use crate::server::storage::files::WAL_NAME;
use crate::server::storage::record::{CHECKSUM_SEED, extend_checksum};
use crate::server::storage::simulated::{SeededRandom, SimulatedDisk};
use crate::server::storage::tables;
use tempfile::TempDir;

const NOW: Now = Now { wall_ms: 1_000_000, monotonic_ms: 5_000 };

fn change(key: &'static str, version_ms: u64, content: Option<StoredValue>) -> Change {
    let version = Version { ms: version_ms, counter: 7 };
    Change {
        key: Key::new(key).unwrap(),
        version,
        content,
        persist: true,
        watchers: vec![],
        notification: None,
    }
}

fn content(value: &'static str, ttl_ms: Option<u64>) -> StoredValue {
    let deadline_ms = ttl_ms.map(|ttl_ms| NOW.monotonic_ms + ttl_ms);
    StoredValue { value: value.into(), fence: Some(Timestamp::of_store(9, 2)), deadline_ms, persist: true }
}

/// Commits changes without rows of an exchange.
fn commit(storage: &mut Storage, changes: &[Change]) -> Result<(), StorageError> {
    commit_at(storage, changes, NOW)
}

fn commit_at(storage: &mut Storage, changes: &[Change], now: Now) -> Result<(), StorageError> {
    let ceiling = changes.iter().map(|change| change.version).max().unwrap_or_default();
    storage.commit(changes, EncodedRows::new(), ceiling, now)
}

fn all(storage: &mut Storage, now: Now) -> Vec<(Key, Version, StoredValue)> {
    let mut all = Vec::new();
    storage.load(now, |key, version, content| all.push((key, version, content))).unwrap();
    all
}

fn kind(directory: &Path) -> StorageErrorKind {
    Storage::open(directory).unwrap_err().kind
}

#[test]
fn committed_changes_are_read_after_a_reopen() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("made/when/missing");
    let mut storage = Storage::open(&directory).unwrap();
    let changes = [
        change("gone", 40, Some(content("v", None))),
        change("stays", 20, Some(content("old", None))),
        change("stays", 30, Some(content("v", None))),
        change("gone", 40, None),
    ];
    commit(&mut storage, &changes).unwrap();
    drop(storage);
    let mut storage = Storage::open(&directory).unwrap();
    let expected = (Key::new("stays").unwrap(), Version { ms: 30, counter: 7 }, content("v", None));
    assert_eq!(all(&mut storage, NOW), [expected]);
    assert_eq!(storage.metadata().ceiling, Version { ms: 40, counter: 7 });
}

/// Neither deleted keys nor keys in memory only can show the greatest version.
#[test]
fn every_commit_stores_the_ceiling_and_the_clock() {
    let home = TempDir::new().unwrap();
    let at = |ms| Version { ms, counter: 7 };
    let set = |ms| vec![change("k", ms, Some(content("v", None)))];
    for has_wal in [false, true] {
        let mut storage = Storage::open(home.path()).unwrap();
        if has_wal {
            commit_until_wal(&mut storage);
        }
        let commits = [(set(1), 0, 0), (set(1), 2, 10), (vec![change("k", 3, None)], 0, 5), (vec![], 4, 20)];
        for (round, (changes, greatest, wall_ms)) in commits.into_iter().enumerate() {
            let expected = if has_wal { 4 } else { [0, 2, 2, 4][round] };
            let wall_ms = NOW.wall_ms + wall_ms;
            storage.commit(&changes, EncodedRows::new(), at(greatest), Now { wall_ms, ..NOW }).unwrap();
            assert_eq!(storage.wal_groups(), has_wal.then_some(round as u64 + 1));
            drop(storage);
            storage = Storage::open(home.path()).unwrap();
            assert_eq!(
                storage.metadata(),
                CommitMetadata { ceiling: at(expected), wall_ms, clock_ms: storage.metadata().clock_ms }
            );
        }
    }
}

#[test]
fn a_key_whose_last_version_is_ahead_of_the_ceiling_leaves_a_tombstone() {
    let home = TempDir::new().unwrap();
    let ceiling = Version { ms: 100, counter: 0 };
    let in_memory = |key, ms| Change { persist: false, ..change(key, ms, Some(content("v", None))) };
    let changes = [
        change("stays", 150, Some(content("v", None))),
        change("gone", 151, None),
        change("passed", 99, None),
        in_memory("passing", 152),
    ];
    let mut storage = Storage::open(home.path()).unwrap();
    for change in &changes {
        storage.commit(std::slice::from_ref(change), EncodedRows::new(), ceiling, NOW).unwrap();
    }
    for is_closed in [false, true] {
        if is_closed {
            storage.close().unwrap();
        } else {
            drop(storage);
        }
        storage = Storage::open(home.path()).unwrap();
        let mut found = Vec::new();
        let tombstones = storage.load(NOW, |key, _, _| found.push(key)).unwrap();
        let expected = [("gone", 151), ("passing", 152)]
            .map(|(key, ms)| (Key::new(key).unwrap(), Version { ms, counter: 7 }));
        assert_eq!((tombstones, found), (expected.to_vec(), vec![Key::new("stays").unwrap()]));
        assert_eq!(storage.record(&Key::new("gone").unwrap()).unwrap(), None);
        assert_eq!(storage.metadata().ceiling, ceiling);
    }
    let report = crate::server::storage::offline::verify(home.path(), NOW.wall_ms);
    assert!(report.is_err(), "it is in use");
    drop(storage);
    let report = crate::server::storage::offline::verify(home.path(), NOW.wall_ms).unwrap();
    assert_eq!((report.keys, report.greatest.ms), (1, 152));
}

/// The file grew before the write failed: the storage crate must not look for the last commit at its end.
#[test]
fn a_commit_that_fails_for_lack_of_room_does_not_leave_the_file_longer() {
    let large: &'static str = "x".repeat(2_000_000).leak();
    for earlier in 0..12 {
        let disk = SimulatedDisk::default();
        let mut storage = Storage::open_in(Box::new(disk.clone()), WalPolicy::default()).unwrap();
        for version_ms in 1..=earlier {
            commit(&mut storage, &[change("k", version_ms, Some(content("v", None)))]).unwrap();
        }
        let len = storage.tables_len;
        disk.set_faults(|faults| faults.written_max = Some(len));
        let change = |version_ms, value| change("k", version_ms, Some(content(value, None)));
        commit(&mut storage, &[change(98, large)]).unwrap_err();
        storage.reopen().unwrap_or_else(|error| panic!("after {earlier} commits: {error}"));
        assert!(!storage.must_rewrite() && storage.open.as_ref().unwrap().tables.len() <= len);
        commit(&mut storage, &[change(99, "w")]).unwrap();
        drop(storage);
        let mut storage = Storage::open_in(Box::new(disk), WalPolicy::default()).unwrap();
        assert_eq!(all(&mut storage, NOW)[0].2.value, "w");
    }
}

#[test]
fn a_directory_cannot_be_opened_twice() {
    let home = TempDir::new().unwrap();
    let _first = Storage::open(home.path()).unwrap();
    let error = Storage::open(home.path()).unwrap_err();
    assert!(matches!(error.kind, StorageErrorKind::InUse));
    assert!(error.to_string().ends_with("store.redb is in use by another process"), "{error}");
}

#[test]
fn another_format_is_rejected() {
    let home = TempDir::new().unwrap();
    drop(Storage::open(home.path()).unwrap());
    let database = redb::Database::open(home.path().join(TABLES_NAME)).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(tables::FORMATS).unwrap().insert((), 2).unwrap();
    write.commit().unwrap();
    drop(database);
    assert!(matches!(kind(home.path()), StorageErrorKind::UnsupportedFormat(2)));
}

#[test]
fn a_file_that_is_no_store_is_rejected() {
    let home = TempDir::new().unwrap();
    for garbage in ["x".repeat(10), "x".repeat(100_000)] {
        fs::write(home.path().join(TABLES_NAME), garbage).unwrap();
        assert!(matches!(kind(home.path()), StorageErrorKind::Corrupt(_)));
    }
    let occupied = home.path().join(TABLES_NAME);
    assert!(matches!(kind(&occupied), StorageErrorKind::Io(_)));
}

/// The file is truncated or changed at many places: the result is an error or an older state, never a panic.
#[test]
fn a_corrupt_file_does_not_cause_a_panic() {
    let home = TempDir::new().unwrap();
    let mut storage = Storage::open(home.path()).unwrap();
    for round in 0..20 {
        commit(&mut storage, &[change("k", round, Some(content("v", None)))]).unwrap();
    }
    drop(storage);
    let path = home.path().join(TABLES_NAME);
    let whole = fs::read(&path).unwrap();
    let corrupted = (0..60).flat_map(|part| {
        let at = whole.len() * part / 60;
        let mut flipped = whole.clone();
        flipped[at..(at + 64).min(whole.len())].iter_mut().for_each(|byte| *byte ^= 0x55);
        [whole[..at].to_vec(), flipped]
    });
    for bytes in corrupted {
        fs::write(&path, bytes).unwrap();
        if let Ok(mut storage) = Storage::open(home.path()) {
            let _ = storage.load(NOW, |_, _, _| {});
            let _ = commit(&mut storage, &[change("k", 99, None)]);
        }
    }
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let home = TempDir::new().unwrap();
    let directory = home.path().join("new");
    let _journal = Storage::open(&directory).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&directory), mode(&directory.join(TABLES_NAME))), (0o700, 0o600));
}

/// Commits to one key until there is a write-ahead log.
fn commit_until_wal(storage: &mut Storage) {
    let mut commits = 0;
    while storage.wal_groups().is_none() {
        assert!(commits < WalPolicy::default().commits_before);
        commit(storage, &[change("first", 1, Some(content("v", None)))]).unwrap();
        commits += 1;
    }
    assert_eq!(storage.wal_groups(), Some(0));
}

/// Leaves a directory as a killed process does, with two keys, one of them in the write-ahead log alone.
/// Returns the paths of tables and log.
fn leave_wal(home: &TempDir) -> (PathBuf, PathBuf) {
    let mut storage = Storage::open(home.path()).unwrap();
    commit_until_wal(&mut storage);
    commit(&mut storage, &[change("k", 2, Some(content("v", None)))]).unwrap();
    (home.path().join(TABLES_NAME), home.path().join(WAL_NAME))
}

fn on(disk: &SimulatedDisk) -> Storage {
    Storage::open_in(Box::new(disk.clone()), WalPolicy::default()).unwrap()
}

fn values(storage: &Storage) -> Vec<(String, usize)> {
    let mut values = Vec::new();
    let name = |key: Key| String::from_utf8(key.as_bytes().to_vec()).unwrap();
    storage.load(NOW, |key, _, content| values.push((name(key), content.value.len()))).unwrap();
    values.sort();
    values
}

#[test]
fn changes_in_the_log_are_newer_than_the_tables() {
    let disk = SimulatedDisk::default();
    let mut storage = on(&disk);
    commit(&mut storage, &[change("gone", 1, Some(content("v", None)))]).unwrap();
    commit_until_wal(&mut storage);
    let changes = [
        change("first", 2, Some(content("newer", None))),
        change("gone", 1, None),
        change("new", 2, Some(content("vvv", None))),
        change("never", 2, Some(content("v", None))),
        change("never", 2, None),
    ];
    for change in changes {
        commit(&mut storage, &[change]).unwrap();
    }
    let expected = [("first".to_owned(), 5), ("new".to_owned(), 3)];
    // While open, after a crash, and after an orderly close.
    assert_eq!((values(&storage), storage.wal_groups()), (expected.to_vec(), Some(5)));
    drop(storage);
    let mut storage = on(&disk);
    assert_eq!((values(&storage), storage.wal_groups()), (expected.to_vec(), Some(5)));
    commit(&mut storage, &[]).unwrap();
    assert_eq!(storage.wal_groups(), Some(6));
    storage.close().unwrap();
    assert!(!disk.has(WAL_NAME));
    let storage = on(&disk);
    assert_eq!((values(&storage), storage.wal_groups()), (expected.to_vec(), None));
    assert_eq!(storage.metadata().ceiling, Version { ms: 2, counter: 7 });
}

/// A checkpoint takes the groups of the log together with the change that did not fit.
#[test]
fn a_full_log_starts_again_and_a_value_larger_than_the_log_is_committed() {
    let large: &'static str = "x".repeat(2 * WalPolicy::default().bytes).leak();
    let some: &'static str = "x".repeat(100_000).leak();
    let disk = SimulatedDisk::default();
    let mut storage = on(&disk);
    commit_until_wal(&mut storage);
    let mut has_begun_again = 0;
    for round in 0..50_u64 {
        let value = if round % 20 == 13 { large } else { some };
        let key = ["a", "b", "c"][usize::try_from(round % 3).unwrap()];
        let before = storage.wal_groups();
        commit(&mut storage, &[change(key, round, Some(content(value, None)))]).unwrap();
        has_begun_again += u64::from(storage.wal_groups() <= before);
        drop(storage);
        storage = on(&disk);
        assert!(values(&storage).contains(&(key.to_owned(), value.len())), "round {round}");
    }
    assert_eq!(has_begun_again, 2 + 3, "for each large value, and after every ten others");
    assert_eq!(values(&storage).len(), 4);
}

#[test]
fn without_room_for_a_log_commits_go_to_the_tables() {
    let disk = SimulatedDisk::default();
    let policy = WalPolicy { bytes: 8 * 1024 * 1024, ..WalPolicy::default() };
    let open = || Storage::open_in(Box::new(disk.clone()), policy).unwrap();
    let mut storage = open();
    disk.set_faults(|faults| faults.written_max = Some(6 * 1024 * 1024));
    for round in 0..3 * u64::from(WalPolicy::default().commits_before) {
        commit(&mut storage, &[change("k", round, Some(content("v", None)))]).unwrap();
        assert_eq!((storage.wal_groups(), !disk.has(WAL_NAME)), (None, true));
    }
    assert!(!storage.must_rewrite());
    disk.set_faults(|faults| faults.written_max = None);
    commit_until_wal(&mut storage);
    assert_eq!(values(&open()), [("first".to_owned(), 1), ("k".to_owned(), 1)]);
}

/// A failed sync of the log counts like one of the tables.
#[test]
fn after_a_failed_sync_of_the_log_the_files_are_not_trusted() {
    let disk = SimulatedDisk::default();
    let mut storage = on(&disk);
    commit_until_wal(&mut storage);
    disk.set_faults(|faults| faults.fails_next_sync = true);
    commit(&mut storage, &[change("k", 2, Some(content("v", None)))]).unwrap_err();
    assert!(storage.must_rewrite() && !storage.is_open());
    let mut portions = Some(vec![(Key::new("mem").unwrap(), Version::default(), content("v", None))]);
    storage.rewrite(|| portions.take(), || None, NOW).unwrap();
    assert!(!storage.must_rewrite() && storage.is_open() && !disk.has(WAL_NAME));
    assert_eq!(values(&on(&disk)), [("mem".to_owned(), 1)]);
    // Nor are writes of an earlier process that were not synced.
    commit_until_wal(&mut storage);
    drop(storage);
    disk.set_faults(|faults| faults.fails_next_sync = true);
    let error = Storage::open_in(Box::new(disk), WalPolicy::default()).unwrap_err();
    assert!(matches!(error.kind, StorageErrorKind::Io(_)), "{error}");
}

#[test]
fn a_log_that_does_not_belong_to_the_tables_is_rejected_or_ignored() {
    let home = TempDir::new().unwrap();
    let (main, log) = leave_wal(&home);
    let (tables, whole) = (fs::read(&main).unwrap(), fs::read(&log).unwrap());
    let corruption = || match kind(home.path()) {
        StorageErrorKind::CorruptWal(corruption) => corruption,
        other => panic!("{other:?}"),
    };
    fs::remove_file(&log).unwrap();
    assert_eq!(corruption(), "store.log is missing");
    fs::write(&log, &whole[..4_096]).unwrap();
    assert_eq!(corruption(), "store.log is too short");
    assert!(fs::read(&main).unwrap() == tables, "nothing is written");
    fs::write(&log, &whole).unwrap();
    Storage::open(home.path()).unwrap().close().unwrap();
    // A log that was left behind, or copied from elsewhere.
    fs::write(&log, &whole).unwrap();
    let mut storage = Storage::open(home.path()).unwrap();
    assert_eq!((values(&storage).len(), storage.wal_groups()), (2, None));
    commit_until_wal(&mut storage);
    commit(&mut storage, &[change("first", 3, Some(content("vvv", None)))]).unwrap();
    drop(storage);
    assert_eq!(values(&Storage::open(home.path()).unwrap())[0], ("first".to_owned(), 3));
}

/// The log takes room that the tables may lack.
#[test]
fn a_log_that_the_tables_do_not_name_is_removed() {
    let large: &'static str = "x".repeat(2_000_000).leak();
    let disk = SimulatedDisk::default();
    let mut storage = on(&disk);
    for _ in 1..WalPolicy::default().commits_before {
        commit(&mut storage, &[change("k", 1, Some(content("v", None)))]).unwrap();
    }
    disk.set_faults(|faults| faults.written_max = Some(1_700_000));
    commit(&mut storage, &[change("k", 2, Some(content(large, None)))]).unwrap_err();
    assert!(disk.has(WAL_NAME), "it had room");
    storage.reopen().unwrap();
    assert!(!disk.has(WAL_NAME) && !storage.must_rewrite());
    assert_eq!((values(&storage), storage.wal_groups()), (vec![("k".to_owned(), 1)], None));
}

#[test]
fn missing_tables_beside_a_log_are_an_error_and_are_not_created() {
    let home = TempDir::new().unwrap();
    let (main, log) = leave_wal(&home);
    let (tables, whole) = (fs::read(&main).unwrap(), fs::read(&log).unwrap());
    fs::remove_file(&main).unwrap();
    for is_empty in [false, true] {
        if is_empty {
            fs::write(&main, "").unwrap();
        }
        let StorageErrorKind::Corrupt(corruption) = kind(home.path()) else { panic!("the loss is reported") };
        assert_eq!(corruption, if is_empty { "it is empty" } else { "it is missing, and store.log is not" });
        assert_eq!((main.exists(), fs::read(&log).unwrap() == whole), (is_empty, true));
    }
    fs::write(&main, tables).unwrap();
    assert_eq!(values(&Storage::open(home.path()).unwrap()).len(), 2);
}

/// The next process reads what the system has in memory, and answers with it: a power cut must not take it
/// back.
#[test]
fn writes_of_a_killed_process_are_durable_before_they_are_read() {
    for has_wal in [false, true] {
        let mut was_there = 0;
        for acts in 0.. {
            let disk = SimulatedDisk::default();
            let mut storage = on(&disk);
            if has_wal {
                commit_until_wal(&mut storage);
            }
            disk.set_faults(|faults| faults.cut_after = Some(acts));
            let committed = commit(&mut storage, &[change("k", 2, Some(content("v", None)))]);
            drop(storage);
            let disk = disk.after_kill();
            // It stays open, for the storage crate syncs when it is closed.
            let storage = on(&disk);
            let seen = values(&storage);
            was_there += u32::from(committed.is_err() && seen.iter().any(|(key, _)| key == "k"));
            for seed in 0..10 {
                assert_eq!(
                    values(&on(&disk.after_power_cut(&mut SeededRandom::new(seed)))),
                    seen,
                    "after {acts}"
                );
            }
            if committed.is_ok() {
                break;
            }
        }
        assert!(was_there > 0, "the last operation is a sync");
    }
}

#[test]
fn files_of_a_process_that_was_killed_while_it_created_them_are_durable_before_they_are_used() {
    for acts in 0.. {
        let disk = SimulatedDisk::default();
        disk.set_faults(|faults| faults.cut_after = Some(acts));
        let is_created = Storage::open_in(Box::new(disk.clone()), WalPolicy::default()).is_ok();
        let is_off = disk.is_off();
        let disk = disk.after_kill();
        let mut storage = on(&disk);
        commit(&mut storage, &[change("k", 1, Some(content("v", None)))]).unwrap();
        for seed in 0..10 {
            let disk = disk.after_power_cut(&mut SeededRandom::new(seed));
            assert_eq!(values(&on(&disk)).len(), 1, "after {acts}");
        }
        if !is_off {
            assert!(is_created);
            break;
        }
    }
}

/// Otherwise the next restart would lose all keys that are in memory.
#[test]
fn tables_that_were_removed_must_be_rewritten() {
    let home = TempDir::new().unwrap();
    let mut storage = Storage::open(home.path()).unwrap();
    commit(&mut storage, &[change("k", 1, Some(content("v", None)))]).unwrap();
    fs::remove_file(home.path().join(TABLES_NAME)).unwrap();
    storage.open = None;
    let error = storage.reopen().unwrap_err();
    let expected = "is missing, although store.lock shows that it was there";
    assert!(error.to_string().ends_with(expected) && storage.must_rewrite(), "{error}");
    assert!(!home.path().join(TABLES_NAME).exists());
}

#[test]
fn an_error_of_the_log_names_the_log() {
    let home = TempDir::new().unwrap();
    let log = home.path().join(WAL_NAME);
    let mut storage = Storage::open(home.path()).unwrap();
    commit_until_wal(&mut storage);
    drop(storage);
    fs::remove_file(&log).unwrap();
    std::os::unix::fs::symlink(&log, &log).unwrap();
    let error = Storage::open(home.path()).unwrap_err();
    assert!(matches!(error.kind, StorageErrorKind::Io(_)), "{error}");
    assert!(error.to_string().contains("store.redb: store.log: "), "{error}");
    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    let error = Storage::open(home.path()).unwrap_err();
    assert!(matches!(&error.kind, StorageErrorKind::NotAFile(path) if *path == log), "{error}");
}

/// Commits until there are a full round and a few groups of the log, and returns what was acknowledged.
fn fill(storage: &mut Storage, commits: u64, has_rows: bool) -> Vec<(String, usize)> {
    for number in 0..commits {
        let key = ["a", "b", "c", "d", "e"][usize::try_from(number % 5).unwrap()];
        let value = content("x".repeat(usize::try_from(number * 13 % 900).unwrap()).leak(), None);
        let row = (Bytes::from(format!("row {}", number % 7)), Some(Bytes::from(vec![b'r'; 70])));
        let rows = has_rows.then_some(row).into_iter().collect();
        storage.commit(&[change(key, number, Some(value))], rows, Version::default(), NOW).unwrap();
    }
    values_and_rows(storage)
}

fn values_and_rows(storage: &Storage) -> Vec<(String, usize)> {
    let mut content = values(storage);
    let name = |address: Bytes| String::from_utf8(address.to_vec()).unwrap();
    storage.load_rows(|address, row| content.push((name(address), row.len()))).unwrap();
    content
}

/// Flips every `step`th bit of the tables, each in a copy of the disk.
fn flip(step: usize) {
    const HEADER_BITS: usize = 320 * 8;
    let policy = WalPolicy { commits_before: 6, bytes: 64 * 1024 };
    let open = |disk: &SimulatedDisk| Storage::open_in(Box::new(disk.clone()), policy);
    let mut refused = 0;
    // Without a log; with one that no checkpoint has emptied; with one that a checkpoint has; and after an orderly end.
    let without_rows =
        [(4, false), (12, false), (40, false), (4, true), (40, true)].map(|case| (case, false));
    let with_rows = [(12, false), (40, true)].map(|case| (case, true));
    for ((commits, is_closed), has_rows) in without_rows.into_iter().chain(with_rows) {
        let disk = SimulatedDisk::default();
        let mut storage = open(&disk).unwrap();
        let acknowledged = fill(&mut storage, commits, has_rows);
        let crashed = disk.copy();
        let disk = if is_closed { storage.close().map(|()| disk).unwrap() } else { crashed };
        let bits = disk.file(TABLES_NAME).len() * 8;
        // All flags are in one byte.
        let flags = 9 * 8..10 * 8;
        let header = (0..HEADER_BITS).step_by(step);
        for bit in flags.chain(header).chain((HEADER_BITS..bits).step_by(step * 401)) {
            let disk = disk.copy();
            disk.change_file(TABLES_NAME, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
            let log = disk.has(WAL_NAME).then(|| disk.file(WAL_NAME));
            match open(&disk) {
                Ok(storage) => {
                    let found = values_and_rows(&storage);
                    assert_eq!(found, acknowledged, "bit {bit} after {commits} commits, {is_closed}");
                }
                Err(error) => {
                    assert!(error.kind.is_corrupt(), "bit {bit} after {commits} commits: {error}");
                    let left = disk.has(WAL_NAME).then(|| disk.file(WAL_NAME));
                    assert!(left == log, "the log is left as it was");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 100 / step, "{refused}");
}

#[test]
fn a_flipped_bit_of_the_tables_is_refused_or_loses_nothing() {
    flip(17);
}

#[test]
#[ignore = "takes minutes: see CONTRIBUTING.md"]
fn any_flipped_bit_of_the_header_is_refused_or_loses_nothing() {
    flip(1);
}

/// The tables and the log are of one store, and each is intact.
#[test]
fn tables_that_are_older_than_their_log_are_refused() {
    let disk = SimulatedDisk::default();
    let large: &'static str = "x".repeat(WalPolicy::default().bytes).leak();
    let mut storage = on(&disk);
    let before_the_log = disk.copy();
    commit_until_wal(&mut storage);
    let mut older = vec![("without a log", before_the_log), ("before the last checkpoint", disk.copy())];
    // The first checkpoint comes when the log has no group.
    for round in 0..2 {
        commit(&mut storage, &[change("large", round, Some(content(large, None)))]).unwrap();
        older.push(("before the last checkpoint", disk.copy()));
        commit(&mut storage, &[change("k", round, Some(content("v", None)))]).unwrap();
        older.push(("with a group of an earlier round", disk.copy()));
    }
    commit(&mut storage, &[change("large", 9, Some(content(large, None)))]).unwrap();
    commit(&mut storage, &[change("k", 9, Some(content("newest", None)))]).unwrap();
    let log = disk.file(WAL_NAME);
    assert_eq!(values(&on(&disk.copy())).len(), 3);
    drop(storage);
    for (which, older) in older {
        if older.has(WAL_NAME) {
            older.change_file(WAL_NAME, |bytes| bytes.clone_from(&log));
        } else {
            older.add_file(WAL_NAME, log.clone());
        }
        let error = Storage::open_in(Box::new(older.clone()), WalPolicy::default()).unwrap_err();
        assert!(error.to_string().ends_with("store.log does not belong to store.redb"), "{which}: {error}");
        assert!(older.file(WAL_NAME) == log, "{which}: the log is left as it was");
    }
}

/// Only a log of the round before the checkpoint may be taken for an empty one.
#[test]
fn a_log_that_is_older_than_the_tables_by_two_rounds_is_refused() {
    let large: &'static str = "x".repeat(WalPolicy::default().bytes).leak();
    let disk = SimulatedDisk::default();
    let mut storage = on(&disk);
    commit_until_wal(&mut storage);
    let mut logs = Vec::new();
    for round in 0..3 {
        commit(&mut storage, &[change("k", round, Some(content("v", None)))]).unwrap();
        logs.push(disk.file(WAL_NAME));
        commit(&mut storage, &[change("large", round, Some(content(large, None)))]).unwrap();
    }
    for (log, is_accepted) in logs.into_iter().zip([false, false, true]) {
        let copy = disk.copy();
        copy.change_file(WAL_NAME, |bytes| *bytes = log);
        assert_eq!(Storage::open_in(Box::new(copy), WalPolicy::default()).is_ok(), is_accepted);
    }
}

#[test]
fn a_checkpoint_leaves_nothing_for_the_next_one() {
    let disk = SimulatedDisk::default();
    let mut storage = on(&disk);
    commit_until_wal(&mut storage);
    let large: &'static str = "x".repeat(WalPolicy::default().bytes).leak();
    for (number, value) in ["v", "v", large].into_iter().enumerate() {
        let key = ["a", "b", "c"][number];
        commit(&mut storage, &[change(key, 1, Some(content(value, None)))]).unwrap();
    }
    assert!(storage.open.as_ref().unwrap().pending.is_empty());
    assert_eq!(values(&on(&disk.copy())).len(), 4);
    // Nor does a checkpoint of an empty log change which groups the log begins with.
    commit(&mut storage, &[change("c", 2, Some(content(large, None)))]).unwrap();
    assert_eq!(values(&on(&disk.copy())).len(), 4);
}

#[test]
fn missing_tables_are_an_error_after_an_orderly_end_and_are_not_created() {
    let home = TempDir::new().unwrap();
    Storage::open(home.path()).unwrap().close().unwrap();
    fs::remove_file(home.path().join(TABLES_NAME)).unwrap();
    let StorageErrorKind::Lost(what) = kind(home.path()) else { panic!("the loss is reported") };
    assert_eq!(what, "is missing, although store.lock shows that it was there");
    assert!(!home.path().join(TABLES_NAME).exists());
    // A start that was interrupted before there were tables.
    fs::write(home.path().join("store.lock"), "").unwrap();
    assert!(Storage::open(home.path()).is_ok());
}

/// A wall clock that is set forward while a process runs ends no time to live at the next start.
#[test]
fn a_step_of_the_wall_clock_does_not_shorten_a_time_to_live() {
    const HOUR_MS: u64 = 3_600_000;
    let left = |disk: &SimulatedDisk, wall_ms| {
        let storage = on(&disk.copy());
        let mut left = None;
        let each = |_, _, stored: StoredValue| left = stored.deadline_ms;
        storage.load(Now { wall_ms, monotonic_ms: 0 }, each).unwrap();
        left.unwrap()
    };
    for has_wal in [false, true] {
        let disk = SimulatedDisk::default();
        let mut storage = on(&disk);
        storage.load(NOW, |_, _, _| {}).unwrap();
        if has_wal {
            commit_until_wal(&mut storage);
        }
        commit(&mut storage, &[change("first", 2, Some(content("v", Some(HOUR_MS))))]).unwrap();
        let at = |step_ms: i64| Now {
            wall_ms: NOW.wall_ms.checked_add_signed(step_ms).unwrap() + 60_000,
            monotonic_ms: NOW.monotonic_ms + 60_000,
        };
        assert!(!storage.clock_was_set(at(0)) && !storage.clock_was_set(at(500)));
        let forward = at(2 * 3_600_000);
        assert!(storage.clock_was_set(forward));
        commit_at(&mut storage, &[], forward).unwrap();
        assert!(!storage.clock_was_set(forward));
        let minute_ms = 60_000;
        assert_eq!(left(&disk, forward.wall_ms), HOUR_MS + 1 - minute_ms);
        assert_eq!(left(&disk, forward.wall_ms + 1_000), HOUR_MS + 1 - minute_ms - 1_000, "while none ran");
        assert_eq!(left(&disk, NOW.wall_ms), HOUR_MS + 1 - minute_ms, "the wall clock was corrected");
        // The clock is set back while the process runs.
        let back = Now { monotonic_ms: forward.monotonic_ms + 1_000, wall_ms: 500_000 };
        assert!(storage.clock_was_set(back));
        commit_at(&mut storage, &[], back).unwrap();
        assert_eq!(left(&disk, back.wall_ms), HOUR_MS + 1 - minute_ms - 1_000);
        assert!(!storage.clock_was_set(back));
    }
}

/// Rewrites the files of [`leave_wal`] as the previous version of this program wrote them.
fn to_old_format(tables: &Path, log: &Path) {
    let database = redb::Database::open(tables).unwrap();
    let (checkpoint, _) = tables::read_checkpoint(&database).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(tables::FORMATS).unwrap().insert((), 3).unwrap();
    let definition = redb::TableDefinition::<(), (u64, u32, u64, Option<u64>)>::new("mark");
    let Version { ms, counter } = checkpoint.metadata.ceiling;
    let row = (ms, counter, checkpoint.metadata.wall_ms, checkpoint.wal_generation);
    write.open_table(definition).unwrap().insert((), row).unwrap();
    write.commit().unwrap();
    // A group has magic bytes, the length of the body, generation, number, checksum; its body has the greatest version,
    // the wall clock and, in the present format, the store's clock.
    let mut bytes = fs::read(log).unwrap();
    let len = u32::from_be_bytes(bytes[4..8].try_into().unwrap()) as usize;
    let body = [&bytes[32..52], &bytes[60..32 + len]].concat();
    let sum = extend_checksum(extend_checksum(CHECKSUM_SEED, &bytes[8..24]), &body);
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let group = [&[0xA7, b'k', b'l', 3][..], &length, &bytes[8..24], &sum.to_be_bytes(), &body].concat();
    bytes.fill(0);
    bytes[..group.len()].copy_from_slice(&group);
    fs::write(log, bytes).unwrap();
}

#[test]
fn files_of_the_previous_format_are_read_and_replaced() {
    let home = TempDir::new().unwrap();
    let (tables, log) = leave_wal(&home);
    to_old_format(&tables, &log);
    let expected = [("first".to_owned(), 1), ("k".to_owned(), 1)];
    let storage = Storage::open(home.path()).unwrap();
    assert_eq!((values(&storage), storage.wal_groups(), log.exists()), (expected.to_vec(), None, false));
    assert_eq!(storage.metadata().clock_ms, NOW.wall_ms, "deadlines were those of the wall clock");
    drop(storage);
    let mut storage = Storage::open(home.path()).unwrap();
    commit_until_wal(&mut storage);
    drop(storage);
    assert_eq!(values(&Storage::open(home.path()).unwrap()), expected);
}

/// The changes of a full log are scattered over more pages than the reserve has.
#[test]
fn a_checkpoint_of_deletions_fits_into_the_reserve() {
    let policy = WalPolicy { commits_before: 3, bytes: 256 * 1024 };
    let disk = SimulatedDisk::default();
    let mut storage = Storage::open_in(Box::new(disk.clone()), policy).unwrap();
    let value: &'static str = "x".repeat(1_300).leak();
    let key = |number: usize| &*format!("{number:05}").leak();
    for from in (0..4_000).step_by(500) {
        let set = |number| change(key(number), 1, Some(content(value, None)));
        commit(&mut storage, &(from..from + 500).map(set).collect::<Vec<_>>()).unwrap();
    }
    assert!(!storage.is_short_of_room());
    // No room is left, neither in the file nor on the disk.
    storage.open.as_mut().unwrap().tables.compact().unwrap();
    let blocks = disk.blocks();
    disk.set_faults(|faults| faults.blocks_max = Some(blocks));
    storage.release_reserve();
    for group in 0..80_usize {
        let deleted: Vec<_> = (0..15).map(|number| change(key(group * 3 + number * 260), 2, None)).collect();
        if commit(&mut storage, &deleted).is_err() {
            // The room was enough for the reserve alone.
            storage.release_reserve();
            storage.reopen().unwrap();
            commit(&mut storage, &deleted).unwrap();
        }
    }
    drop(storage);
    let storage = Storage::open_in(Box::new(disk), policy).unwrap();
    assert_eq!(values(&storage).len(), 4_000 - 80 * 15);
}
