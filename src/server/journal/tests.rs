//! The file itself: what comes back, what is refused.

use std::fs;

use super::simulated::SimulatedDisk;
use super::*;
use crate::protocol::Timestamp;
use tempfile::TempDir;

const NOW: Now = Now { wall_ms: 1_000_000, monotonic_ms: 5_000 };

fn change(key: &'static str, version_ms: u64, content: Option<Content>) -> Change {
    let version = Version { ms: version_ms, counter: 7 };
    Change { key: Key::new(key).unwrap(), version, content, persist: true, watchers: vec![] }
}

fn content(value: &'static str, ttl_ms: Option<u64>) -> Content {
    let deadline_ms = ttl_ms.map(|ttl_ms| NOW.monotonic_ms + ttl_ms);
    Content { value: value.into(), fence: Some(Timestamp::of_store(9, 2)), deadline_ms, persist: true }
}

fn all(journal: &mut Journal, now: Now) -> Vec<(Key, Version, Content)> {
    let mut all = Vec::new();
    journal.load(now, |key, version, content| all.push((key, version, content))).unwrap();
    all
}

fn kind(directory: &Path) -> JournalErrorKind {
    Journal::open(directory).unwrap_err().kind
}

#[test]
fn what_was_committed_is_there_when_the_file_is_opened_again() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("made/when/missing");
    let mut journal = Journal::open(&directory).unwrap();
    let changes = [
        change("gone", 40, Some(content("v", None))),
        change("kept", 20, Some(content("old", None))),
        change("kept", 30, Some(content("v", None))),
        change("gone", 40, None),
    ];
    journal.commit(&changes, Version::default(), NOW).unwrap();
    drop(journal);
    let mut journal = Journal::open(&directory).unwrap();
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
    let mut journal = Journal::open(home.path()).unwrap();
    // Of the tables, and then of the log.
    for round in 1..=2 * u64::from(COMMITS_WITHOUT_LOG) {
        let ms = round * 100;
        for (changes, greatest, back_ms) in
            [(set(ms), 0, 1), (set(ms + 1), ms + 2, 0), (vec![change("k", ms + 3, None)], 0, 50), (vec![], ms + 4, 0)]
        {
            let expected = changes.iter().map(|change| change.version.ms).max().unwrap_or(0).max(greatest);
            let wall_ms = NOW.wall_ms + ms - back_ms;
            journal.commit(&changes, at(greatest), Now { wall_ms, ..NOW }).unwrap();
            drop(journal);
            journal = Journal::open(home.path()).unwrap();
            assert_eq!(journal.past(), Past { greatest: at(expected), wall_ms });
        }
    }
}

/// The file has become longer before there was no room to write: what was last committed must not be looked for there.
#[test]
fn what_a_commit_without_room_has_added_to_the_file_is_given_back() {
    let large: &'static str = "x".repeat(2_000_000).leak();
    for earlier in 0..12 {
        let disk = SimulatedDisk::default();
        let mut journal = Journal::open_on(Box::new(disk.clone())).unwrap();
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
        let mut journal = Journal::open_on(Box::new(disk)).unwrap();
        assert_eq!(all(&mut journal, NOW)[0].2.value, "w");
    }
}

#[test]
fn a_second_opener_is_refused() {
    let home = TempDir::new().unwrap();
    let _first = Journal::open(home.path()).unwrap();
    let error = Journal::open(home.path()).unwrap_err();
    assert!(matches!(error.kind, JournalErrorKind::InUse));
    assert!(error.to_string().ends_with("store.redb is in use by another process"), "{error}");
}

#[test]
fn another_format_is_refused() {
    let home = TempDir::new().unwrap();
    drop(Journal::open(home.path()).unwrap());
    let database = redb::Database::open(home.path().join(FILE_NAME)).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(tables::FORMATS).unwrap().insert((), 2).unwrap();
    write.commit().unwrap();
    drop(database);
    assert!(matches!(kind(home.path()), JournalErrorKind::OtherFormat(2)));
}

#[test]
fn what_is_no_store_is_refused() {
    let home = TempDir::new().unwrap();
    for garbage in ["x".repeat(10), "x".repeat(100_000)] {
        fs::write(home.path().join(FILE_NAME), garbage).unwrap();
        assert!(matches!(kind(home.path()), JournalErrorKind::Damaged(_)));
    }
    let occupied = home.path().join(FILE_NAME);
    assert!(matches!(kind(&occupied), JournalErrorKind::Io(_)));
}

/// Cuts and flips at many places: an error or an older state, never a panic.
#[test]
fn a_damaged_file_is_no_reason_to_panic() {
    let home = TempDir::new().unwrap();
    let mut journal = Journal::open(home.path()).unwrap();
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
        if let Ok(mut journal) = Journal::open(home.path()) {
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
    let _journal = Journal::open(&directory).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&directory), mode(&directory.join(FILE_NAME))), (0o700, 0o600));
}
