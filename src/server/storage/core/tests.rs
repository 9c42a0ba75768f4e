//! Tests of opening, committing and reopening the files.

use std::fs;

use super::*;
use crate::protocol::Timestamp;
use crate::server::storage::simulated::{SeededRandom, SimulatedDisk};
use crate::server::storage::tables;
use tempfile::TempDir;

const NOW: Now = Now { wall_ms: 1_000_000, monotonic_ms: 5_000 };

fn change(key: &'static str, version_ms: u64, content: Option<StoredValue>) -> Change {
    let version = Version { ms: version_ms, counter: 7 };
    Change { key: Key::new(key).unwrap(), version, content, persist: true, watchers: vec![] }
}

fn content(value: &'static str, ttl_ms: Option<u64>) -> StoredValue {
    let deadline_ms = ttl_ms.map(|ttl_ms| NOW.monotonic_ms + ttl_ms);
    StoredValue { value: value.into(), fence: Some(Timestamp::of_store(9, 2)), deadline_ms, persist: true }
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
    storage.commit(&changes, Version::default(), NOW).unwrap();
    drop(storage);
    let mut storage = Storage::open(&directory).unwrap();
    let expected = (Key::new("stays").unwrap(), Version { ms: 30, counter: 7 }, content("v", None));
    assert_eq!(all(&mut storage, NOW), [expected]);
    assert_eq!(storage.metadata().greatest_version, Version { ms: 40, counter: 7 });
}

/// Neither deleted keys nor keys in memory only can show the greatest version.
#[test]
fn every_commit_stores_the_greatest_version_and_the_clock() {
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
            let expected = changes.iter().map(|change| change.version.ms).max().unwrap_or(0).max(greatest);
            let wall_ms = NOW.wall_ms + wall_ms;
            storage.commit(&changes, at(greatest), Now { wall_ms, ..NOW }).unwrap();
            assert_eq!(storage.wal_groups(), has_wal.then_some(round as u64 + 1));
            drop(storage);
            storage = Storage::open(home.path()).unwrap();
            assert_eq!(
                storage.metadata(),
                CommitMetadata { greatest_version: at(expected.max(if has_wal { 4 } else { 0 })), wall_ms }
            );
        }
    }
}

/// The file grew before the write failed: the storage crate must not look for the last commit at its end.
#[test]
fn a_commit_that_fails_for_lack_of_room_does_not_leave_the_file_longer() {
    let large: &'static str = "x".repeat(2_000_000).leak();
    for earlier in 0..12 {
        let disk = SimulatedDisk::default();
        let mut storage = Storage::open_files(Box::new(disk.clone()), WalPolicy::default()).unwrap();
        for version_ms in 1..=earlier {
            storage
                .commit(&[change("k", version_ms, Some(content("v", None)))], Version::default(), NOW)
                .unwrap();
        }
        let len = storage.tables_len;
        disk.set_faults(|faults| faults.written_max = Some(len));
        let change = |version_ms, value| change("k", version_ms, Some(content(value, None)));
        storage.commit(&[change(98, large)], Version::default(), NOW).unwrap_err();
        storage.reopen().unwrap_or_else(|error| panic!("after {earlier} commits: {error}"));
        assert!(!storage.must_rewrite() && storage.open.as_ref().unwrap().tables.len() <= len);
        storage.commit(&[change(99, "w")], Version::default(), NOW).unwrap();
        drop(storage);
        let mut storage = Storage::open_files(Box::new(disk), WalPolicy::default()).unwrap();
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
        storage.commit(&[change("k", round, Some(content("v", None)))], Version::default(), NOW).unwrap();
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
            let _ = storage.commit(&[change("k", 99, None)], Version::default(), NOW);
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
        storage.commit(&[change("first", 1, Some(content("v", None)))], Version::default(), NOW).unwrap();
        commits += 1;
    }
    assert_eq!(storage.wal_groups(), Some(0));
}

/// Leaves a directory as a killed process does, with two keys, one of them in the write-ahead log alone.
/// Returns the paths of tables and log.
fn leave_wal(home: &TempDir) -> (PathBuf, PathBuf) {
    let mut storage = Storage::open(home.path()).unwrap();
    commit_until_wal(&mut storage);
    storage.commit(&[change("k", 2, Some(content("v", None)))], Version::default(), NOW).unwrap();
    (home.path().join(TABLES_NAME), home.path().join(WAL_NAME))
}

fn on(disk: &SimulatedDisk) -> Storage {
    Storage::open_files(Box::new(disk.clone()), WalPolicy::default()).unwrap()
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
    let mut disk = SimulatedDisk::default();
    let mut storage = on(&disk);
    storage.commit(&[change("gone", 1, Some(content("v", None)))], Version::default(), NOW).unwrap();
    commit_until_wal(&mut storage);
    let changes = [
        change("first", 2, Some(content("newer", None))),
        change("gone", 1, None),
        change("new", 2, Some(content("vvv", None))),
        change("never", 2, Some(content("v", None))),
        change("never", 2, None),
    ];
    for change in changes {
        storage.commit(&[change], Version::default(), NOW).unwrap();
    }
    let expected = [("first".to_owned(), 5), ("new".to_owned(), 3)];
    // While open, after a crash, and after an orderly close.
    assert_eq!((values(&storage), storage.wal_groups()), (expected.to_vec(), Some(5)));
    drop(storage);
    let mut storage = on(&disk);
    assert_eq!((values(&storage), storage.wal_groups()), (expected.to_vec(), Some(5)));
    storage.commit(&[], Version::default(), NOW).unwrap();
    assert_eq!(storage.wal_groups(), Some(6));
    storage.close().unwrap();
    assert!(disk.open_wal().unwrap().is_none());
    let storage = on(&disk);
    assert_eq!((values(&storage), storage.wal_groups()), (expected.to_vec(), None));
    assert_eq!(storage.metadata().greatest_version, Version { ms: 2, counter: 7 });
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
        storage.commit(&[change(key, round, Some(content(value, None)))], Version::default(), NOW).unwrap();
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
    let open = || Storage::open_files(Box::new(disk.clone()), policy).unwrap();
    let mut storage = open();
    disk.set_faults(|faults| faults.written_max = Some(6 * 1024 * 1024));
    for round in 0..3 * u64::from(WalPolicy::default().commits_before) {
        storage.commit(&[change("k", round, Some(content("v", None)))], Version::default(), NOW).unwrap();
        assert_eq!((storage.wal_groups(), disk.clone().open_wal().unwrap().is_none()), (None, true));
    }
    assert!(!storage.must_rewrite());
    disk.set_faults(|faults| faults.written_max = None);
    commit_until_wal(&mut storage);
    assert_eq!(values(&open()), [("first".to_owned(), 1), ("k".to_owned(), 1)]);
}

/// A failed sync of the log counts like one of the tables.
#[test]
fn after_a_failed_sync_of_the_log_the_files_are_not_trusted() {
    let mut disk = SimulatedDisk::default();
    let mut storage = on(&disk);
    commit_until_wal(&mut storage);
    disk.set_faults(|faults| faults.fails_next_sync = true);
    storage.commit(&[change("k", 2, Some(content("v", None)))], Version::default(), NOW).unwrap_err();
    assert!(storage.must_rewrite() && !storage.is_open());
    let mut portions = Some(vec![(Key::new("mem").unwrap(), Version::default(), content("v", None))]);
    storage.rewrite(|| portions.take(), NOW).unwrap();
    assert!(!storage.must_rewrite() && storage.is_open() && disk.open_wal().unwrap().is_none());
    assert_eq!(values(&on(&disk)), [("mem".to_owned(), 1)]);
    // Nor are writes of an earlier process that were not synced.
    commit_until_wal(&mut storage);
    drop(storage);
    disk.set_faults(|faults| faults.fails_next_sync = true);
    let error = Storage::open_files(Box::new(disk), WalPolicy::default()).unwrap_err();
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
    storage.commit(&[change("first", 3, Some(content("vvv", None)))], Version::default(), NOW).unwrap();
    drop(storage);
    assert_eq!(values(&Storage::open(home.path()).unwrap())[0], ("first".to_owned(), 3));
}

/// The log takes room that the tables may lack.
#[test]
fn a_log_that_the_tables_do_not_name_is_removed() {
    let large: &'static str = "x".repeat(2_000_000).leak();
    let mut disk = SimulatedDisk::default();
    let mut storage = on(&disk);
    for _ in 1..WalPolicy::default().commits_before {
        storage.commit(&[change("k", 1, Some(content("v", None)))], Version::default(), NOW).unwrap();
    }
    disk.set_faults(|faults| faults.written_max = Some(1_700_000));
    storage.commit(&[change("k", 2, Some(content(large, None)))], Version::default(), NOW).unwrap_err();
    assert!(disk.open_wal().unwrap().is_some(), "it had room");
    storage.reopen().unwrap();
    assert!(disk.open_wal().unwrap().is_none() && !storage.must_rewrite());
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
        assert_eq!(corruption, "it is missing, and store.log is not");
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
            let committed =
                storage.commit(&[change("k", 2, Some(content("v", None)))], Version::default(), NOW);
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

/// Otherwise the next restart would lose all keys that are in memory.
#[test]
fn tables_that_were_removed_must_be_rewritten() {
    let home = TempDir::new().unwrap();
    let mut storage = Storage::open(home.path()).unwrap();
    storage.commit(&[change("k", 1, Some(content("v", None)))], Version::default(), NOW).unwrap();
    fs::remove_file(home.path().join(TABLES_NAME)).unwrap();
    storage.open = None;
    let error = storage.reopen().unwrap_err();
    assert!(error.to_string().ends_with("it is missing") && storage.must_rewrite(), "{error}");
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
