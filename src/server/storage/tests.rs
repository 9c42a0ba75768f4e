//! The file itself: what comes back, what is refused.

use std::fs;

use super::simulated::{Chance, SimulatedDisk};
use super::*;
use crate::protocol::Timestamp;
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

fn all(journal: &mut Storage, now: Now) -> Vec<(Key, Version, StoredValue)> {
    let mut all = Vec::new();
    journal.load(now, |key, version, content| all.push((key, version, content))).unwrap();
    all
}

fn kind(directory: &Path) -> StorageErrorKind {
    Storage::open(directory).unwrap_err().kind
}

#[test]
fn what_was_committed_is_there_when_the_file_is_opened_again() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("made/when/missing");
    let mut journal = Storage::open(&directory).unwrap();
    let changes = [
        change("gone", 40, Some(content("v", None))),
        change("kept", 20, Some(content("old", None))),
        change("kept", 30, Some(content("v", None))),
        change("gone", 40, None),
    ];
    journal.commit(&changes, Version::default(), NOW).unwrap();
    drop(journal);
    let mut journal = Storage::open(&directory).unwrap();
    let kept = (Key::new("kept").unwrap(), Version { ms: 30, counter: 7 }, content("v", None));
    assert_eq!(all(&mut journal, NOW), [kept]);
    assert_eq!(journal.past().greatest, Version { ms: 40, counter: 7 });
}

/// Neither what is gone nor what was never kept can say it.
#[test]
fn the_greatest_version_and_the_clock_are_known_of_every_commit() {
    let home = TempDir::new().unwrap();
    let at = |ms| Version { ms, counter: 7 };
    let set = |ms| vec![change("k", ms, Some(content("v", None)))];
    for has_log in [false, true] {
        let mut journal = Storage::open(home.path()).unwrap();
        if has_log {
            begin_log(&mut journal);
        }
        let commits = [(set(1), 0, 0), (set(1), 2, 10), (vec![change("k", 3, None)], 0, 5), (vec![], 4, 20)];
        for (round, (changes, greatest, wall_ms)) in commits.into_iter().enumerate() {
            let expected = changes.iter().map(|change| change.version.ms).max().unwrap_or(0).max(greatest);
            let wall_ms = NOW.wall_ms + wall_ms;
            journal.commit(&changes, at(greatest), Now { wall_ms, ..NOW }).unwrap();
            assert_eq!(journal.logged(), has_log.then_some(round as u64 + 1));
            drop(journal);
            journal = Storage::open(home.path()).unwrap();
            assert_eq!(
                journal.past(),
                Past { greatest: at(expected.max(if has_log { 4 } else { 0 })), wall_ms }
            );
        }
    }
}

/// The file has become longer before there was no room to write: what was last committed must not be looked for there.
#[test]
fn what_a_commit_without_room_has_added_to_the_file_is_given_back() {
    let large: &'static str = "x".repeat(2_000_000).leak();
    for earlier in 0..12 {
        let disk = SimulatedDisk::default();
        let mut journal = Storage::open_on(Box::new(disk.clone()), LogPolicy::default()).unwrap();
        for version_ms in 1..=earlier {
            journal
                .commit(&[change("k", version_ms, Some(content("v", None)))], Version::default(), NOW)
                .unwrap();
        }
        let len = journal.len;
        disk.trouble(|trouble| trouble.written_max = Some(len));
        let change = |version_ms, value| change("k", version_ms, Some(content(value, None)));
        journal.commit(&[change(98, large)], Version::default(), NOW).unwrap_err();
        journal.reopen().unwrap_or_else(|error| panic!("after {earlier} commits: {error}"));
        assert!(!journal.must_rewrite() && journal.open.as_ref().unwrap().tables.len() <= len);
        journal.commit(&[change(99, "w")], Version::default(), NOW).unwrap();
        drop(journal);
        let mut journal = Storage::open_on(Box::new(disk), LogPolicy::default()).unwrap();
        assert_eq!(all(&mut journal, NOW)[0].2.value, "w");
    }
}

#[test]
fn a_second_opener_is_refused() {
    let home = TempDir::new().unwrap();
    let _first = Storage::open(home.path()).unwrap();
    let error = Storage::open(home.path()).unwrap_err();
    assert!(matches!(error.kind, StorageErrorKind::InUse));
    assert!(error.to_string().ends_with("store.redb is in use by another process"), "{error}");
}

#[test]
fn another_format_is_refused() {
    let home = TempDir::new().unwrap();
    drop(Storage::open(home.path()).unwrap());
    let database = redb::Database::open(home.path().join(FILE_NAME)).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(tables::FORMATS).unwrap().insert((), 2).unwrap();
    write.commit().unwrap();
    drop(database);
    assert!(matches!(kind(home.path()), StorageErrorKind::UnsupportedFormat(2)));
}

#[test]
fn what_is_no_store_is_refused() {
    let home = TempDir::new().unwrap();
    for garbage in ["x".repeat(10), "x".repeat(100_000)] {
        fs::write(home.path().join(FILE_NAME), garbage).unwrap();
        assert!(matches!(kind(home.path()), StorageErrorKind::Corrupt(_)));
    }
    let occupied = home.path().join(FILE_NAME);
    assert!(matches!(kind(&occupied), StorageErrorKind::Io(_)));
}

/// Cuts and flips at many places: an error or an older state, never a panic.
#[test]
fn a_damaged_file_is_no_reason_to_panic() {
    let home = TempDir::new().unwrap();
    let mut journal = Storage::open(home.path()).unwrap();
    for round in 0..20 {
        journal.commit(&[change("k", round, Some(content("v", None)))], Version::default(), NOW).unwrap();
    }
    drop(journal);
    let path = home.path().join(FILE_NAME);
    let whole = fs::read(&path).unwrap();
    let damage = (0..60).flat_map(|part| {
        let at = whole.len() * part / 60;
        let mut flipped = whole.clone();
        flipped[at..(at + 64).min(whole.len())].iter_mut().for_each(|byte| *byte ^= 0x55);
        [whole[..at].to_vec(), flipped]
    });
    for bytes in damage {
        fs::write(&path, bytes).unwrap();
        if let Ok(mut journal) = Storage::open(home.path()) {
            let _ = journal.load(NOW, |_, _, _| {});
            let _ = journal.commit(&[change("k", 99, None)], Version::default(), NOW);
        }
    }
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let home = TempDir::new().unwrap();
    let directory = home.path().join("new");
    let _journal = Storage::open(&directory).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&directory), mode(&directory.join(FILE_NAME))), (0o700, 0o600));
}

/// As many commits to a key of its own as it takes until there is a log.
fn begin_log(journal: &mut Storage) {
    let mut commits = 0;
    while journal.logged().is_none() {
        assert!(commits < LogPolicy::default().commits_before);
        journal.commit(&[change("first", 1, Some(content("v", None)))], Version::default(), NOW).unwrap();
        commits += 1;
    }
    assert_eq!(journal.logged(), Some(0));
}

/// Leaves a folder as a process that is killed does, with two keys, one of them in the log alone; and where its two files
/// are.
fn leave_log(home: &TempDir) -> (PathBuf, PathBuf) {
    let mut journal = Storage::open(home.path()).unwrap();
    begin_log(&mut journal);
    journal.commit(&[change("k", 2, Some(content("v", None)))], Version::default(), NOW).unwrap();
    (home.path().join(FILE_NAME), home.path().join(LOG_NAME))
}

fn on(disk: &SimulatedDisk) -> Storage {
    Storage::open_on(Box::new(disk.clone()), LogPolicy::default()).unwrap()
}

fn values(journal: &Storage) -> Vec<(String, usize)> {
    let mut values = Vec::new();
    let name = |key: Key| String::from_utf8(key.as_bytes().to_vec()).unwrap();
    journal.load(NOW, |key, _, content| values.push((name(key), content.value.len()))).unwrap();
    values.sort();
    values
}

#[test]
fn what_the_log_says_is_newer_than_what_the_tables_say() {
    let mut disk = SimulatedDisk::default();
    let mut journal = on(&disk);
    journal.commit(&[change("gone", 1, Some(content("v", None)))], Version::default(), NOW).unwrap();
    begin_log(&mut journal);
    let changes = [
        change("first", 2, Some(content("newer", None))),
        change("gone", 1, None),
        change("new", 2, Some(content("vvv", None))),
        change("never", 2, Some(content("v", None))),
        change("never", 2, None),
    ];
    for change in changes {
        journal.commit(&[change], Version::default(), NOW).unwrap();
    }
    let expected = [("first".to_owned(), 5), ("new".to_owned(), 3)];
    // As it is, after a crash, and after a good end.
    assert_eq!((values(&journal), journal.logged()), (expected.to_vec(), Some(5)));
    drop(journal);
    let mut journal = on(&disk);
    assert_eq!((values(&journal), journal.logged()), (expected.to_vec(), Some(5)));
    journal.commit(&[], Version::default(), NOW).unwrap();
    assert_eq!(journal.logged(), Some(6));
    journal.close().unwrap();
    assert!(disk.log().unwrap().is_none());
    let journal = on(&disk);
    assert_eq!((values(&journal), journal.logged()), (expected.to_vec(), None));
    assert_eq!(journal.past().greatest, Version { ms: 2, counter: 7 });
}

/// The tables take what is in the log, and what had no room in it, at once.
#[test]
fn a_full_log_begins_again_and_a_value_that_is_too_large_for_it_is_kept() {
    let large: &'static str = "x".repeat(2 * LogPolicy::default().bytes).leak();
    let some: &'static str = "x".repeat(100_000).leak();
    let disk = SimulatedDisk::default();
    let mut journal = on(&disk);
    begin_log(&mut journal);
    let mut has_begun_again = 0;
    for round in 0..50_u64 {
        let value = if round % 20 == 13 { large } else { some };
        let key = ["a", "b", "c"][usize::try_from(round % 3).unwrap()];
        let before = journal.logged();
        journal.commit(&[change(key, round, Some(content(value, None)))], Version::default(), NOW).unwrap();
        has_begun_again += u64::from(journal.logged() <= before);
        drop(journal);
        journal = on(&disk);
        assert!(values(&journal).contains(&(key.to_owned(), value.len())), "round {round}");
    }
    assert_eq!(has_begun_again, 2 + 3, "for the large ones, and after every ten others");
    assert_eq!(values(&journal).len(), 4);
}

#[test]
fn without_room_for_a_log_there_is_none_and_all_is_kept_nonetheless() {
    let disk = SimulatedDisk::default();
    let policy = LogPolicy { bytes: 8 * 1024 * 1024, ..LogPolicy::default() };
    let open = || Storage::open_on(Box::new(disk.clone()), policy).unwrap();
    let mut journal = open();
    disk.trouble(|trouble| trouble.written_max = Some(6 * 1024 * 1024));
    for round in 0..3 * u64::from(LogPolicy::default().commits_before) {
        journal.commit(&[change("k", round, Some(content("v", None)))], Version::default(), NOW).unwrap();
        assert_eq!((journal.logged(), disk.clone().log().unwrap().is_none()), (None, true));
    }
    assert!(!journal.must_rewrite());
    disk.trouble(|trouble| trouble.written_max = None);
    begin_log(&mut journal);
    assert_eq!(values(&open()), [("first".to_owned(), 1), ("k".to_owned(), 1)]);
}

/// A sync of the log is as good a reason as one of the tables.
#[test]
fn after_a_sync_of_the_log_that_has_failed_nothing_on_the_disk_is_believed() {
    let mut disk = SimulatedDisk::default();
    let mut journal = on(&disk);
    begin_log(&mut journal);
    disk.trouble(|trouble| trouble.fails_next_sync = true);
    journal.commit(&[change("k", 2, Some(content("v", None)))], Version::default(), NOW).unwrap_err();
    assert!(journal.must_rewrite() && !journal.is_open());
    let mut portions = Some(vec![(Key::new("mem").unwrap(), Version::default(), content("v", None))]);
    journal.rewrite(|| portions.take(), NOW).unwrap();
    assert!(!journal.must_rewrite() && journal.is_open() && disk.log().unwrap().is_none());
    assert_eq!(values(&on(&disk)), [("mem".to_owned(), 1)]);
    // Neither is what a process before this one has written and not waited for.
    begin_log(&mut journal);
    drop(journal);
    disk.trouble(|trouble| trouble.fails_next_sync = true);
    let error = Storage::open_on(Box::new(disk), LogPolicy::default()).unwrap_err();
    assert!(matches!(error.kind, StorageErrorKind::Io(_)), "{error}");
}

#[test]
fn a_log_that_is_not_that_of_the_tables_is_refused_or_nothing_to_them() {
    let home = TempDir::new().unwrap();
    let (main, log) = leave_log(&home);
    let (tables, whole) = (fs::read(&main).unwrap(), fs::read(&log).unwrap());
    let damage = || match kind(home.path()) {
        StorageErrorKind::CorruptWal(damage) => damage,
        other => panic!("{other:?}"),
    };
    fs::remove_file(&log).unwrap();
    assert_eq!(damage(), "store.log is missing");
    fs::write(&log, &whole[..4_096]).unwrap();
    assert_eq!(damage(), "store.log has lost its end");
    assert!(fs::read(&main).unwrap() == tables, "nothing is touched");
    fs::write(&log, &whole).unwrap();
    Storage::open(home.path()).unwrap().close().unwrap();
    // One that was left behind, or put there.
    fs::write(&log, &whole).unwrap();
    let mut journal = Storage::open(home.path()).unwrap();
    assert_eq!((values(&journal).len(), journal.logged()), (2, None));
    begin_log(&mut journal);
    journal.commit(&[change("first", 3, Some(content("vvv", None)))], Version::default(), NOW).unwrap();
    drop(journal);
    assert_eq!(values(&Storage::open(home.path()).unwrap())[0], ("first".to_owned(), 3));
}

/// It would take the room that the tables lacked.
#[test]
fn a_log_that_the_tables_do_not_name_is_thrown_away() {
    let large: &'static str = "x".repeat(2_000_000).leak();
    let mut disk = SimulatedDisk::default();
    let mut journal = on(&disk);
    for _ in 1..LogPolicy::default().commits_before {
        journal.commit(&[change("k", 1, Some(content("v", None)))], Version::default(), NOW).unwrap();
    }
    disk.trouble(|trouble| trouble.written_max = Some(1_700_000));
    journal.commit(&[change("k", 2, Some(content(large, None)))], Version::default(), NOW).unwrap_err();
    assert!(disk.log().unwrap().is_some(), "it had room");
    journal.reopen().unwrap();
    assert!(disk.log().unwrap().is_none() && !journal.must_rewrite());
    assert_eq!((values(&journal), journal.logged()), (vec![("k".to_owned(), 1)], None));
}

#[test]
fn tables_that_are_missing_although_there_is_a_log_are_told_and_not_made_anew() {
    let home = TempDir::new().unwrap();
    let (main, log) = leave_log(&home);
    let (tables, whole) = (fs::read(&main).unwrap(), fs::read(&log).unwrap());
    fs::remove_file(&main).unwrap();
    for is_empty in [false, true] {
        if is_empty {
            fs::write(&main, "").unwrap();
        }
        let StorageErrorKind::Corrupt(damage) = kind(home.path()) else { panic!("it is told") };
        assert_eq!(damage, "it is missing, and store.log is not");
        assert_eq!((main.exists(), fs::read(&log).unwrap() == whole), (is_empty, true));
    }
    fs::write(&main, tables).unwrap();
    assert_eq!(values(&Storage::open(home.path()).unwrap()).len(), 2);
}

/// Wherever it was: the next process reads what the system has, and answers with it.
#[test]
fn what_a_killed_process_has_left_is_on_the_disk_before_it_is_read() {
    for has_log in [false, true] {
        let mut was_there = 0;
        for acts in 0.. {
            let disk = SimulatedDisk::default();
            let mut journal = on(&disk);
            if has_log {
                begin_log(&mut journal);
            }
            disk.trouble(|trouble| trouble.cut_after = Some(acts));
            let committed =
                journal.commit(&[change("k", 2, Some(content("v", None)))], Version::default(), NOW);
            drop(journal);
            let disk = disk.after_the_kill();
            // It stays open: at the end the storage crate syncs.
            let journal = on(&disk);
            let seen = values(&journal);
            was_there += u32::from(committed.is_err() && seen.iter().any(|(key, _)| key == "k"));
            for seed in 0..10 {
                assert_eq!(values(&on(&disk.after_the_cut(&mut Chance::new(seed)))), seen, "after {acts}");
            }
            if committed.is_ok() {
                break;
            }
        }
        assert!(was_there > 0, "the last thing is a sync");
    }
}

/// What is in memory would be lost with the next restart.
#[test]
fn tables_that_were_taken_away_meanwhile_are_written_anew_from_memory() {
    let home = TempDir::new().unwrap();
    let mut journal = Storage::open(home.path()).unwrap();
    journal.commit(&[change("k", 1, Some(content("v", None)))], Version::default(), NOW).unwrap();
    fs::remove_file(home.path().join(FILE_NAME)).unwrap();
    journal.open = None;
    let error = journal.reopen().unwrap_err();
    assert!(error.to_string().ends_with("it is missing") && journal.must_rewrite(), "{error}");
    assert!(!home.path().join(FILE_NAME).exists());
}

#[test]
fn what_is_the_matter_with_the_log_is_not_said_of_the_tables() {
    let home = TempDir::new().unwrap();
    let log = home.path().join(LOG_NAME);
    let mut journal = Storage::open(home.path()).unwrap();
    begin_log(&mut journal);
    drop(journal);
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
