//! Tests of the work on files that no server has open.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::disk::LOCK_NAME;
use super::ledger::FileLedger;
use super::offline::*;
use crate::exchange::names::Name;
use crate::exchange::row::{Identity, Row, RowId};
use crate::ledger::{KeyRecord, LoweredVersions, Record, StorageErrorKind};
use crate::protocol::timestamp::SKEW_MAX_MS;
use crate::protocol::{Key, Timestamp};
use crate::store::{Now, StoredValue, Version};

const NOW_MS: u64 = 1_700_000_000_000;
const HOUR_MS: u64 = 3_600_000;

fn version(ms: u64) -> Version {
    Version { ms, counter: 3 }
}

fn set(name: &'static str, version_ms: u64, fence_ms: Option<u64>) -> (u64, Record) {
    let content = StoredValue {
        value: "v".into(),
        fence: fence_ms.map(|ms| Timestamp::of_store(ms, 7)),
        deadline_ms: None,
        persist: true,
    };
    let key = Key::new(name).unwrap();
    (0, Record::Key(KeyRecord { key, version: version(version_ms), content: Some(content) }))
}

fn fill(records: &[(u64, Record)], greatest_ms: u64) -> TempDir {
    let home = TempDir::new().unwrap();
    let mut ledger = FileLedger::open(home.path()).unwrap();
    let now = Now { wall_ms: greatest_ms, monotonic_ms: 0 };
    // Each in a group of its own.
    for record in records {
        ledger.commit(std::slice::from_ref(record), version(greatest_ms), now).unwrap();
    }
    ledger.commit(&[], version(greatest_ms), now).unwrap();
    ledger.close();
    home
}

/// A key, the milliseconds of its version, and its fencing token.
type Shown = (Key, u64, Option<(u64, u32)>);

fn states(directory: &Path) -> Vec<Shown> {
    let mut states = Vec::new();
    let mut ledger = FileLedger::open(directory).unwrap();
    ledger
        .load_states(|key, state| {
            states.push((key, state.version.ms, state.fence.map(|fence| (fence.ms, fence.counter))));
        })
        .unwrap();
    states.sort();
    states
}

#[test]
fn versions_far_ahead_are_lowered_to_the_present_and_others_stay() {
    let ahead_ms = NOW_MS + HOUR_MS;
    let records = [
        set("ahead", ahead_ms, Some(ahead_ms)),
        set("behind", NOW_MS - HOUR_MS, None),
        set("fenced", NOW_MS - 1, Some(ahead_ms)),
        set("within", NOW_MS + SKEW_MAX_MS, Some(NOW_MS + SKEW_MAX_MS)),
    ];
    let home = fill(&records, ahead_ms + 5);
    let lowered = lower_versions(home.path(), NOW_MS).unwrap();
    assert_eq!(lowered, LoweredVersions { keys: 1, fences: 2, floor: true });
    let expected = [
        ("ahead", NOW_MS, Some((NOW_MS, 0))),
        ("behind", NOW_MS - HOUR_MS, None),
        ("fenced", NOW_MS - 1, Some((NOW_MS, 0))),
        ("within", NOW_MS + SKEW_MAX_MS, Some((NOW_MS + SKEW_MAX_MS, 7))),
    ];
    assert_eq!(states(home.path()), expected.map(|(name, ms, fence)| (Key::new(name).unwrap(), ms, fence)));
    assert_eq!(verify(home.path(), NOW_MS).unwrap().greatest, version(NOW_MS + SKEW_MAX_MS));
    assert_eq!(lower_versions(home.path(), NOW_MS).unwrap(), LoweredVersions::default());
}

#[test]
fn a_store_that_was_there_is_lost_and_others_are_missing() {
    let home = fill(&[set("k", 1, None)], NOW_MS);
    fs::remove_file(home.path().join("log-1")).unwrap();
    let kind = || verify(home.path(), NOW_MS).unwrap_err().kind;
    assert!(matches!(kind(), StorageErrorKind::Lost), "{:?}", kind());
    let other = fill(&[set("k", 1, None)], NOW_MS);
    fs::remove_file(other.path().join(LOCK_NAME)).unwrap();
    let error = verify(other.path(), NOW_MS).unwrap_err().to_string();
    assert!(error.ends_with(": its file lock is missing; create an empty one"), "{error}");
    fs::write(other.path().join(LOCK_NAME), "").unwrap();
    assert_eq!(verify(other.path(), NOW_MS).unwrap().keys, 1);
    // A start that was interrupted before the first commit leaves an empty file.
    fs::write(home.path().join(LOCK_NAME), "").unwrap();
    assert!(matches!(kind(), StorageErrorKind::Missing), "{:?}", kind());
    fs::remove_file(home.path().join(LOCK_NAME)).unwrap();
    assert!(matches!(kind(), StorageErrorKind::Missing), "{:?}", kind());
    fs::write(home.path().join("store.redb"), "").unwrap();
    assert!(matches!(kind(), StorageErrorKind::UnsupportedFormat(0)), "{:?}", kind());
}

#[test]
fn a_fence_is_cleared_and_nothing_else_is_changed() {
    let home = fill(&[set("fenced", 5, Some(9)), set("k", 6, None)], NOW_MS);
    let clear = |name: &'static str| clear_fence(home.path(), &Key::new(name).unwrap(), NOW_MS).unwrap();
    assert_eq!(clear("fenced"), ClearFenceOutcome::Cleared(Timestamp::of_store(9, 7)));
    assert_eq!(clear("fenced"), ClearFenceOutcome::NotFenced);
    assert_eq!(clear("other"), ClearFenceOutcome::KeyNotFound);
    let expected = [("fenced", 5, None), ("k", 6, None)];
    assert_eq!(states(home.path()), expected.map(|(name, ms, fence)| (Key::new(name).unwrap(), ms, fence)));
}

fn row() -> (u64, Record) {
    let name = |text: &str| Name::new(text).unwrap();
    let identity = Identity { exchange: name("plant"), node: name("root"), store: 5 };
    let exchange = crate::exchange::Exchange::Root(Box::new(crate::exchange::root::Root::new(
        identity,
        crate::exchange::rules::tests::keys(&["a/*"]),
        crate::exchange::rules::Patterns::default(),
        7,
    )));
    let (id, row): (RowId, Row) = exchange.first_rows().remove(0);
    (0, Record::Exchange(id, Some(Box::new(row))))
}

#[test]
fn a_store_that_leaves_an_exchange_keeps_its_keys() {
    let home = fill(&[set("k", 1, None), row()], NOW_MS);
    assert_eq!(verify(home.path(), NOW_MS).unwrap().rows, Some(1));
    assert_eq!(leave_exchange(home.path(), NOW_MS).unwrap(), 1);
    let report = verify(home.path(), NOW_MS).unwrap();
    assert_eq!((report.integrity, report.rows, report.keys), (Integrity::Intact, None, 1));
    assert_eq!(leave_exchange(home.path(), NOW_MS).unwrap(), 0);
    let missing = leave_exchange(&home.path().join("other"), NOW_MS).unwrap_err();
    assert!(matches!(missing.kind, StorageErrorKind::Missing));
}

#[test]
fn each_record_whose_group_is_intact_is_recovered() {
    let home = fill(&[set("a", 1, None), set("b", 2, None), set("c", 3, None)], NOW_MS);
    let path = home.path().join("log-1");
    let mut bytes = fs::read(&path).unwrap();
    bytes[4096 + 60] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert!(matches!(FileLedger::open(home.path()).unwrap_err().kind, StorageErrorKind::Corrupt(_)));
    let report = verify(home.path(), NOW_MS).unwrap();
    assert!(matches!(report.integrity, Integrity::IncompleteLog { .. }) && report.keys == 2, "{report:?}");
    let (_, to) = recover(home.path(), NOW_MS).unwrap();
    let to = to.unwrap();
    assert!(fs::read(&path).unwrap() == bytes, "the corrupt file is not changed");
    assert_eq!(
        states(&to).into_iter().map(|(key, ms, _)| (key, ms)).collect::<Vec<_>>(),
        [(Key::new("a").unwrap(), 1), (Key::new("c").unwrap(), 3)]
    );
    assert_eq!(verify(&to, NOW_MS).unwrap().integrity, Integrity::Intact);
    assert!(recover(home.path(), NOW_MS).is_err(), "it exists already");
    // The snapshot of the recovered store is damaged.
    let path = to.join("snapshot-1");
    let mut bytes = fs::read(&path).unwrap();
    bytes[4096 + 60] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let report = verify(&to, NOW_MS).unwrap();
    assert!(matches!(report.integrity, Integrity::IncompleteSnapshot { lost: Some(2), .. }), "{report:?}");
    assert!(recover(&to, NOW_MS).is_err(), "no key in it can be read");
    // What is before the log is missing.
    let path = home.path().join("log-1");
    let mut bytes = fs::read(&path).unwrap();
    bytes[60] ^= 1;
    fs::write(home.path().join("log-2"), &bytes).unwrap();
    fs::remove_file(path).unwrap();
    let report = verify(home.path(), NOW_MS).unwrap();
    assert!(matches!(report.integrity, Integrity::IncompleteSnapshot { lost: None, .. }), "{report:?}");
    assert_eq!(report.keys, 1);
}

#[test]
fn versions_of_many_long_values_are_lowered_in_several_groups() {
    let home = TempDir::new().unwrap();
    let mut ledger = FileLedger::open(home.path()).unwrap();
    let ahead_ms = NOW_MS + HOUR_MS;
    let now = Now { wall_ms: ahead_ms, monotonic_ms: 0 };
    for name in ["a", "b", "c", "d", "e"] {
        let (_, mut record) = set(name, ahead_ms, None);
        if let Record::Key(KeyRecord { content: Some(content), .. }) = &mut record {
            content.value = vec![b'v'; 5 * 1024 * 1024].into();
        }
        ledger.commit(&[(0, record)], version(ahead_ms), now).unwrap();
    }
    let before = ledger.number();
    ledger.close();
    let lowered = lower_versions(home.path(), NOW_MS).unwrap();
    assert_eq!(lowered, LoweredVersions { keys: 5, fences: 0, floor: true });
    assert!(states(home.path()).iter().all(|(_, version_ms, _)| *version_ms == NOW_MS));
    let ledger = FileLedger::open(home.path()).unwrap();
    assert_eq!((ledger.number() - before, ledger.metadata().ceiling.ms), (2, NOW_MS));
}
