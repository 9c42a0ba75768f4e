//! Tests of the rows of an exchange: their commits, their format, and simulated power cuts.

use std::collections::BTreeMap;

use super::*;
use crate::server::storage::files::WAL_NAME;
use crate::server::storage::record::{FORMAT_VERSION, ROWS_FORMAT_VERSION};
use crate::server::storage::simulated::{SeededRandom, SimulatedDisk};

const NOW: Now = Now { wall_ms: 1_000_000, monotonic_ms: 5_000 };
/// A log that is created early and is soon full.
const POLICY: WalPolicy = WalPolicy { commits_before: 3, bytes: 64 * 1024 };

type Rows = BTreeMap<Bytes, Bytes>;
type Values = BTreeMap<Key, Bytes>;

fn on(disk: &SimulatedDisk) -> Storage {
    Storage::open_in(Box::new(disk.clone()), POLICY).unwrap()
}

fn change(key: &str, value: Option<&str>) -> Change {
    let stored = |value: &str| StoredValue {
        value: value.to_owned().into(),
        fence: None,
        deadline_ms: None,
        persist: true,
    };
    Change {
        key: Key::new(key.to_owned()).unwrap(),
        version: Version { ms: 7, counter: 0 },
        content: value.map(stored),
        persist: true,
        watchers: vec![],
        notification: None,
    }
}

fn rows<const N: usize>(rows: [(&'static str, Option<&'static str>); N]) -> EncodedRows {
    rows.into_iter().map(|(address, row)| (address.into(), row.map(Bytes::from))).collect()
}

fn commit(storage: &mut Storage, changes: &[Change], rows: EncodedRows) {
    storage.commit(changes, rows, Version::default(), NOW).unwrap();
}

fn loaded(storage: &Storage) -> Vec<(String, String)> {
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let mut rows = Vec::new();
    storage.load_rows(|address, row| rows.push((text(address), text(row)))).unwrap();
    rows
}

fn keys(storage: &Storage) -> usize {
    let mut count = 0;
    storage.load(NOW, |_, _, _| count += 1).unwrap();
    count
}

/// The format that the tables have on disk.
fn format(disk: &SimulatedDisk) -> u64 {
    let file = disk.copy().open(TABLES_NAME).unwrap().unwrap();
    Tables::open(file, &SyncFailure::default(), u64::MAX).unwrap().2
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
    pairs.into_iter().map(|(address, row)| (address.to_owned(), row.to_owned())).collect()
}

#[test]
fn rows_are_read_in_the_order_of_their_addresses_from_tables_and_log() {
    let disk = SimulatedDisk::default();
    let mut storage = on(&disk);
    // The first commits go to the tables, the later ones to the log.
    let first = rows([("b", Some("1")), ("d", Some("1")), ("f", Some("1")), ("g", Some("1"))]);
    commit(&mut storage, &[change("k", Some("v"))], first);
    while storage.wal_groups().is_none() {
        commit(&mut storage, &[], EncodedRows::new());
    }
    commit(&mut storage, &[], rows([("a", Some("2")), ("d", Some("2")), ("e", Some("")), ("x", Some("2"))]));
    commit(&mut storage, &[change("l", Some("v"))], rows([("f", None), ("x", None), ("z", Some("3"))]));
    let expected = pairs([("a", "2"), ("b", "1"), ("d", "2"), ("e", ""), ("g", "1"), ("z", "3")]);
    assert_eq!((loaded(&storage), storage.wal_groups()), (expected.clone(), Some(2)));
    let row = |address: &'static str| storage.row(&address.into()).unwrap();
    assert_eq!(["b", "d", "z"].map(row), ["1", "2", "3"].map(|row| Some(row.into())));
    assert_eq!(["c", "f", "x"].map(row), [None, None, None]);
    drop(storage);
    let storage = on(&disk);
    assert_eq!((loaded(&storage), keys(&storage)), (expected.clone(), 2));
    storage.close().unwrap();
    assert!(!disk.has(WAL_NAME));
    let storage = on(&disk);
    assert_eq!((loaded(&storage), keys(&storage), storage.has_rows()), (expected, 2, true));
}

#[test]
fn the_first_rows_change_the_format_with_their_commit() {
    let disk = SimulatedDisk::default();
    let mut storage = on(&disk);
    while storage.wal_groups().is_none_or(|groups| groups < 2) {
        commit(&mut storage, &[change("k", Some("v"))], EncodedRows::new());
    }
    assert_eq!((format(&disk), storage.has_rows(), loaded(&storage)), (FORMAT_VERSION, false, vec![]));
    commit(&mut storage, &[change("l", Some("v"))], rows([("n", Some("node"))]));
    assert_eq!(
        (format(&disk), storage.has_rows(), storage.wal_groups()),
        (ROWS_FORMAT_VERSION, true, Some(0))
    );
    // Later rows go to the log.
    commit(&mut storage, &[], rows([("n", None)]));
    assert_eq!(storage.wal_groups(), Some(1));
    drop(storage);
    let storage = on(&disk);
    assert_eq!((loaded(&storage), keys(&storage), storage.has_rows()), (vec![], 2, true));
    storage.close().unwrap();
    assert_eq!(format(&disk), ROWS_FORMAT_VERSION);
}

#[test]
fn rows_and_values_of_any_length_are_committed_beside_the_log() {
    let disk = SimulatedDisk::default();
    let mut storage = on(&disk);
    commit(&mut storage, &[], rows([("n", Some("node"))]));
    while storage.wal_groups().is_none() {
        commit(&mut storage, &[], EncodedRows::new());
    }
    let address = Bytes::from([b"k/", &[b'x'; 65_535][..]].concat());
    let row = Bytes::from(vec![b'r'; 2 * POLICY.bytes]);
    let both =
        EncodedRows::from([(address.clone(), Some(Bytes::from("short"))), ("o".into(), Some(row.clone()))]);
    for round in 0..2 {
        commit(&mut storage, &[], both.clone());
        assert_eq!(loaded(&storage).len(), 3, "round {round}");
        storage = on(&disk);
    }
    let mut found = Rows::new();
    storage.load_rows(|address, row| drop(found.insert(address, row))).unwrap();
    assert_eq!((found.get(&address), found.get(&b"o"[..])), (Some(&Bytes::from("short")), Some(&row)));
}

#[test]
fn files_rewritten_from_memory_have_the_rows() {
    let disk = SimulatedDisk::default();
    let mut storage = on(&disk);
    commit(&mut storage, &[change("old", Some("v"))], rows([("old", Some("r"))]));
    disk.set_faults(|faults| faults.fails_next_sync = true);
    storage.commit(&[], rows([("n", Some("r"))]), Version::default(), NOW).unwrap_err();
    assert!(storage.must_rewrite());
    let mut entries = Some(vec![]);
    let mut portions = vec![vec![("b".into(), "2".into())], vec![], vec![("a".into(), "1".into())]];
    storage.rewrite(|| entries.take(), || portions.pop(), NOW).unwrap();
    assert!(storage.has_rows());
    drop(storage);
    assert_eq!((loaded(&on(&disk)), format(&disk)), (pairs([("a", "1"), ("b", "2")]), ROWS_FORMAT_VERSION));
    // A store without rows has the format without rows.
    let mut storage = on(&disk);
    storage.rewrite(|| None, || None, NOW).unwrap();
    assert_eq!((loaded(&storage), storage.has_rows(), format(&disk)), (vec![], false, FORMAT_VERSION));
}

#[test]
fn a_store_without_its_rows_has_all_its_keys_and_the_format_without_rows() {
    for has_wal in [false, true] {
        let disk = SimulatedDisk::default();
        let mut storage = on(&disk);
        commit(&mut storage, &[change("k", Some("v"))], rows([("a", Some("1")), ("b", Some("1"))]));
        if has_wal {
            while storage.wal_groups().is_none() {
                commit(&mut storage, &[], EncodedRows::new());
            }
        }
        commit(&mut storage, &[change("l", Some("v"))], rows([("c", Some("1"))]));
        storage.close_without_rows().unwrap();
        assert_eq!((format(&disk), disk.has(WAL_NAME)), (FORMAT_VERSION, false));
        let mut storage = on(&disk);
        assert_eq!((loaded(&storage), keys(&storage), storage.has_rows()), (vec![], 2, false));
        commit(&mut storage, &[], rows([("d", Some("1"))]));
        assert_eq!(loaded(&on(&disk.copy())), pairs([("d", "1")]), "no row comes back");
    }
}

/// The state of a store whose rows repeat its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Content {
    values: Values,
    rows: Rows,
}

impl Content {
    fn of(storage: &Storage) -> Self {
        let mut content = Self::default();
        storage.load(NOW, |key, _, stored| drop(content.values.insert(key, stored.value))).unwrap();
        storage.load_rows(|address, row| drop(content.rows.insert(address, row))).unwrap();
        content
    }

    /// Draws changes of some keys, each with a row that repeats it, and applies them.
    fn draw(&mut self, random: &mut SeededRandom) -> (Vec<Change>, EncodedRows) {
        let (mut changes, mut rows) = (Vec::new(), EncodedRows::new());
        for _ in 0..=random.below(4) {
            let name = format!("k{}", random.below(12));
            let len = [3, 300, 9_000][usize::try_from(random.below(3)).unwrap()];
            let value = format!("{}{}", random.below(1_000_000), "v".repeat(len));
            let value = (random.below(4) > 0).then_some(value);
            let (change, address) = (change(&name, value.as_deref()), Bytes::from(name));
            match &value {
                Some(value) => {
                    self.values.insert(change.key.clone(), value.clone().into());
                    self.rows.insert(address.clone(), value.clone().into());
                }
                None => {
                    self.values.remove(&change.key);
                    self.rows.remove(&address);
                }
            }
            changes.push(change);
            rows.insert(address, value.map(Bytes::from));
        }
        (changes, rows)
    }

    fn agrees(&self) -> bool {
        let values = self.values.iter().map(|(key, value)| (key.as_bytes(), value));
        self.rows.is_empty() || values.eq(self.rows.iter().map(|(address, row)| (address.as_ref(), row)))
    }
}

/// What has happened, to prove that each kind of cut has.
#[derive(Debug, Default)]
struct Figures {
    commits: u64,
    interrupted: u64,
    /// Interrupted commits that were on disk afterwards.
    finished: u64,
    /// First rows of a store with values.
    joined: u64,
    left: u64,
    rewritten: u64,
    /// Checkpoints in portions.
    in_portions: u64,
}

/// A store whose disk loses power.
struct Scenario {
    random: SeededRandom,
    disk: SimulatedDisk,
    acknowledged: Content,
    /// The state after the commit that was interrupted.
    interrupted: Option<Content>,
    figures: Figures,
}

impl Scenario {
    fn new(seed: u64, figures: Figures) -> Self {
        let (random, disk) = (SeededRandom::new(seed), SimulatedDisk::default());
        Self { random, disk, acknowledged: Content::default(), interrupted: None, figures }
    }

    /// Opens the files, checks them, and commits until the power is cut.
    fn run_process(&mut self) {
        let mut storage = on(&self.disk);
        let found = Content::of(&storage);
        assert!(found.agrees(), "values and rows differ");
        let is_finished = self.interrupted.take().as_ref() == Some(&found) && found != self.acknowledged;
        assert!(
            is_finished || found == self.acknowledged,
            "neither the state before the commit nor after it"
        );
        self.figures.finished += u64::from(is_finished);
        self.acknowledged = found;
        let cut_after = self.random.below(600);
        self.disk.set_faults(|faults| faults.cut_after = Some(cut_after));
        while !self.disk.is_off() {
            match self.random.below(60) {
                0 => return self.leave(storage),
                1 => self.disk.set_faults(|faults| faults.fails_next_sync = true),
                // Without a reserve, the next checkpoint is written in portions.
                2 => storage.release_reserve(),
                _ => {}
            }
            if self.commit(&mut storage).is_err() && !(storage.must_rewrite() && self.rewrite(&mut storage)) {
                break;
            }
        }
    }

    fn commit(&mut self, storage: &mut Storage) -> Result<(), StorageError> {
        let mut after = self.acknowledged.clone();
        let (changes, mut rows) = after.draw(&mut self.random);
        let joins = !storage.has_rows() && self.random.below(8) == 0;
        if joins {
            // The rows of all other values join too.
            let all = after.values.iter().map(|(key, value)| (key.to_bytes(), value.clone()));
            after.rows = all.collect();
            rows.extend(after.rows.iter().map(|(address, row)| (address.clone(), Some(row.clone()))));
        } else if !storage.has_rows() {
            (after.rows, rows) = (Rows::new(), EncodedRows::new());
        }
        self.interrupted = Some(after.clone());
        let is_short_of_room = storage.is_short_of_room();
        let has_begun = storage.wal_groups().is_some_and(|groups| groups > 0);
        let committed = storage.commit(&changes, rows, Version::default(), NOW);
        if committed.is_ok() {
            let is_checkpoint = has_begun && storage.wal_groups() == Some(0);
            self.figures.in_portions += u64::from(is_checkpoint && is_short_of_room);
            (self.acknowledged, self.interrupted) = (after, None);
            self.figures.joined += u64::from(joins);
            self.figures.commits += 1;
        } else {
            self.figures.interrupted += 1;
        }
        committed
    }

    /// Rewrites the files from memory after a failed sync.
    fn rewrite(&mut self, storage: &mut Storage) -> bool {
        let stored = |value: &Bytes| StoredValue {
            value: value.clone(),
            fence: None,
            deadline_ms: None,
            persist: true,
        };
        let values = self.acknowledged.values.iter();
        let mut entries =
            Some(values.map(|(key, value)| (key.clone(), Version::default(), stored(value))).collect());
        let mut rows = Some(self.acknowledged.rows.clone().into_iter().collect());
        let is_rewritten = storage.rewrite(|| entries.take(), || rows.take(), NOW).is_ok();
        if is_rewritten {
            self.interrupted = None;
            self.figures.rewritten += 1;
        }
        is_rewritten
    }

    fn leave(&mut self, storage: Storage) {
        let after = Content { rows: Rows::new(), ..self.acknowledged.clone() };
        self.interrupted = Some(after.clone());
        if storage.close_without_rows().is_ok() {
            (self.acknowledged, self.interrupted) = (after, None);
            self.figures.left += 1;
        }
    }
}

/// I7: all of a group is there, values and rows, or nothing of it.
#[test]
fn after_any_power_cut_values_and_rows_agree() {
    let mut figures = Figures::default();
    for seed in 0..25 {
        let mut scenario = Scenario::new(seed, figures);
        for _ in 0..12 {
            scenario.run_process();
            scenario.disk = scenario.disk.after_power_cut(&mut scenario.random);
        }
        figures = scenario.figures;
    }
    let Figures { commits, interrupted, finished, joined, left, rewritten, in_portions } = figures;
    let least = [commits, interrupted, finished, joined, left, rewritten, in_portions].into_iter().min();
    assert!(least > Some(5), "{figures:?}");
}
