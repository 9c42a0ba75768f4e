//! Tests of the copy of a store while it is used: whatever happens between two reads of the copy.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;

use super::copy::{CopyReport, Copying, copy};
use super::directory::Directory;
use super::disk::{Disk, DiskFile, LOCK_NAME, SEEDING_NAME, log_name};
use super::entry::Moment;
use super::frame::BLOCK_BYTES;
use super::ledger::FileLedger;
use super::simulated::{SeededRandom, SimulatedDisk};
use super::tests::{Model, Values, commit, load, set, values};
use crate::ledger::{StorageError, StorageErrorKind};

/// The disk of a store that goes on between two operations of the process that copies it.
#[derive(Clone)]
struct Used {
    disk: SimulatedDisk,
    /// Gets the name of the operation that follows.
    go_on: Arc<dyn Fn(&str) + Send + Sync>,
}

impl std::fmt::Debug for Used {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.disk.fmt(out)
    }
}

impl Disk for Used {
    fn path(&self) -> PathBuf {
        self.disk.path()
    }
    fn names(&self) -> io::Result<Vec<String>> {
        (self.go_on)("names");
        self.disk.names()
    }
    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, StorageErrorKind> {
        (self.go_on)("open");
        Ok(Box::new(UsedFile { file: self.disk.open(name)?, used: self.clone() }))
    }
    fn read_lock(&self) -> io::Result<Vec<u8>> {
        (self.go_on)("read_lock");
        self.disk.read_lock()
    }
    fn check(&self) -> Result<(), StorageErrorKind> {
        panic!("it is only read")
    }
    fn create(&self, _: &str) -> Result<Box<dyn DiskFile>, StorageErrorKind> {
        panic!("it is only read")
    }
    fn rename(&self, _: &str, _: &str) -> Result<(), StorageErrorKind> {
        panic!("it is only read")
    }
    fn remove(&self, _: &str) -> Result<(), StorageErrorKind> {
        panic!("it is only read")
    }
    fn sync_names(&self) -> io::Result<()> {
        panic!("it is only read")
    }
    fn sync_own_name(&self) -> io::Result<()> {
        panic!("it is only read")
    }
    fn write_lock(&self, _: &[u8]) -> io::Result<()> {
        panic!("it is only read")
    }
    fn random(&self) -> u64 {
        panic!("it is only read")
    }
    fn moment(&self) -> Moment {
        panic!("it is only read")
    }
}

#[derive(Debug)]
struct UsedFile {
    file: Box<dyn DiskFile>,
    used: Used,
}

impl DiskFile for UsedFile {
    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }
    fn identity(&self) -> io::Result<(u64, u64)> {
        self.file.identity()
    }
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        (self.used.go_on)("read");
        self.file.read(at, out)
    }
    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        panic!("it is only read")
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        panic!("it is only read")
    }
    fn allocate(&self, _: u64) -> io::Result<()> {
        panic!("it is only read")
    }
    fn sync(&self) -> io::Result<()> {
        panic!("it is only read")
    }
    fn drop_cache(&self) -> io::Result<()> {
        panic!("it is only read")
    }
}

/// A store, and what it held after each of its groups.
struct History {
    model: Model,
    states: Vec<Values>,
    random: SeededRandom,
}

impl History {
    fn new(seed: u64) -> Self {
        Self { model: Model::new(), states: vec![Values::new()], random: SeededRandom::new(seed) }
    }

    /// Commits a group, and does the work of the other thread now and then.
    fn step(&mut self) {
        let number = self.states.len();
        let len = usize::try_from(self.random.below(6_000)).unwrap();
        let name = format!("k{}", self.random.below(20));
        match self.random.below(5) {
            0 => self.model.delete(&name),
            _ => self.model.set(&name, format!("{number} {}", "x".repeat(len)).as_bytes()),
        }
        self.states.push(self.model.values.clone());
        if self.random.below(4) == 0 {
            self.model.work();
        }
    }
}

fn copy_of(source: &dyn Disk, part_bytes: usize) -> (SimulatedDisk, Result<CopyReport, StorageError>) {
    let target = SimulatedDisk::default();
    target.write_lock(b"").unwrap();
    target.sync_own_name().unwrap();
    let copying =
        Copying { source, target: &target, part_bytes, pause: Duration::ZERO, is_canceled: &|| false };
    let report = copying.run();
    (target, report)
}

#[test]
fn a_copy_of_a_store_that_goes_on_is_its_state_at_one_moment_of_the_copy() {
    let (mut copied, mut later, mut snapshots) = (0, 0, 0);
    for seed in 0..100 {
        let history = Arc::new(Mutex::new(History::new(seed)));
        let steps = {
            let mut history = history.lock().unwrap();
            (0..history.random.below(120)).for_each(|_| history.step());
            history.step();
            // From a store that does hardly anything to one that writes many groups between two reads.
            history.random.below(8)
        };
        let begun = history.lock().unwrap().states.len() - 1;
        let disk = history.lock().unwrap().model.disk.clone();
        let shared = Arc::clone(&history);
        let go_on = move |_: &str| {
            let mut history = shared.lock().unwrap();
            (0..history.random.below(steps + 1)).for_each(|_| history.step());
        };
        let used = Used { disk, go_on: Arc::new(go_on) };
        let (target, report) = copy_of(&used, BLOCK_BYTES);
        let report = match report {
            Ok(report) => report,
            Err(StorageError { kind: StorageErrorKind::Changing(_), .. }) => continue,
            Err(error) => panic!("seed {seed}: {error}"),
        };
        copied += 1;
        // As it is after a power cut: all of it is durable.
        let target = target.after_power_cut(&mut SeededRandom::new(seed));
        let found = values(&target).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let history = history.lock().unwrap();
        let at = (begun..history.states.len()).find(|at| history.states[*at] == found);
        let at = at.unwrap_or_else(|| panic!("seed {seed}: no state since group {begun}"));
        assert_eq!(report.keys, found.len(), "seed {seed}");
        later += usize::from(at > begun);
        snapshots += history.model.snapshots;
        // The copy goes on like any store.
        let mut restored = Model::start(target);
        restored.fill(30);
        restored.work();
        assert_eq!(values(&restored.disk).unwrap(), restored.values);
    }
    assert!(copied > 60 && later > 30 && snapshots > 300, "{copied} {later} {snapshots}");
}

#[test]
fn a_store_that_changes_too_fast_is_reported_after_some_attempts() {
    let history = Arc::new(Mutex::new(History::new(1)));
    history.lock().unwrap().step();
    let disk = history.lock().unwrap().model.disk.clone();
    let shared = Arc::clone(&history);
    // More between two reads than the log is long.
    let go_on = move |_: &str| (0..60).for_each(|_| shared.lock().unwrap().step());
    let (_, report) = copy_of(&Used { disk, go_on: Arc::new(go_on) }, BLOCK_BYTES);
    assert!(matches!(report.unwrap_err().kind, StorageErrorKind::Changing(10)));
}

#[test]
fn a_segment_that_is_used_again_while_it_is_read_is_not_taken_for_an_empty_one() {
    let mut model = Model::new();
    for name in ["a", "b"] {
        // The second group has the second segment for itself.
        model.set(name, &[b'x'; 10_000]);
    }
    let mut later = Model::start(model.disk.copy());
    later.fill(100);
    later.work();
    assert!(later.snapshots > 0);
    let (disk, after) = (model.disk.clone(), later.disk.clone());
    let is_done = Mutex::new(false);
    let go_on = move |operation: &str| {
        let mut is_done = is_done.lock().unwrap();
        if operation == "read" && !std::mem::replace(&mut *is_done, true) {
            disk.change_file(&log_name(2), |bytes| bytes.fill(0));
            disk.all_names().iter().for_each(|name| disk.remove(name).unwrap());
            let names = after.all_names().into_iter().filter(|name| *name != log_name(2));
            names.for_each(|name| disk.add_file(&name, after.file(&name)));
        }
    };
    let (target, report) = copy_of(&Used { disk: model.disk.clone(), go_on: Arc::new(go_on) }, BLOCK_BYTES);
    report.unwrap();
    assert_eq!(values(&target).unwrap(), later.values);
}

#[test]
fn a_copy_of_corrupt_files_is_refused_with_the_place() {
    let mut model = Model::new();
    model.fill(8);
    model.disk.change_file(&log_name(1), |bytes| bytes[3 * BLOCK_BYTES] ^= 1);
    let (_, report) = copy_of(&model.disk, BLOCK_BYTES);
    let StorageError { kind: StorageErrorKind::Corrupt(what), .. } = report.unwrap_err() else { panic!() };
    assert!(what.starts_with("log-1, byte "), "{what}");
    let mut model = Model::new();
    model.fill(200);
    model.work();
    let snapshot = model.disk.all_names().into_iter().find(|name| name.starts_with("snapshot-")).unwrap();
    model.disk.change_file(&snapshot, |bytes| bytes[BLOCK_BYTES + 100] ^= 1);
    let (_, report) = copy_of(&model.disk, BLOCK_BYTES);
    let kind = report.unwrap_err().kind;
    assert!(matches!(&kind, StorageErrorKind::Corrupt(what) if what.starts_with(&snapshot)), "{kind:?}");
}

#[test]
fn a_torn_last_group_is_a_normal_end() {
    let mut model = Model::new();
    model.fill(5);
    let expected = model.values.clone();
    commit(&mut model.ledger, &[set("torn", &[b'x'; 9_000])]).unwrap();
    // Of its three blocks the last one is not there yet.
    let begins = |name: &String| name.starts_with("log-") && model.disk.file(name)[0] != 0;
    let last = model.disk.all_names().into_iter().rfind(begins).unwrap();
    let end = model.disk.file(&last).iter().rposition(|byte| *byte != 0).unwrap();
    model.disk.change_file(&last, |bytes| bytes[end / BLOCK_BYTES * BLOCK_BYTES..].fill(0));
    let (target, report) = copy_of(&model.disk, BLOCK_BYTES);
    assert_eq!((report.unwrap().keys, values(&target).unwrap()), (expected.len(), expected));
}

#[test]
fn a_full_disk_and_a_failed_sync_leave_no_copy_and_the_store_as_it_was() {
    let mut model = Model::new();
    model.fill(20);
    for fault in 0..2 {
        let target = SimulatedDisk::default();
        target.set_faults(|faults| match fault {
            0 => faults.blocks_max = Some(3),
            _ => faults.fails_next_sync = true,
        });
        let copying = Copying {
            source: &model.disk,
            target: &target,
            part_bytes: BLOCK_BYTES,
            pause: Duration::ZERO,
            is_canceled: &|| false,
        };
        let kind = copying.run().unwrap_err().kind;
        assert_eq!(kind.is_lack_of_room(), fault == 0, "{kind:?}");
    }
    assert_eq!(values(&model.disk).unwrap(), model.values);
}

/// Returns all files of a directory with their content.
fn files(directory: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .map(|path| {
            (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap_or_default())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn a_store_in_use_is_copied_without_a_change_of_its_files_or_its_lock() {
    let home = TempDir::new().unwrap();
    let [directory, to] = ["store", "copy"].map(|name| home.path().join(name));
    let mut ledger = FileLedger::open(&directory).unwrap();
    load(&mut ledger).unwrap();
    commit(&mut ledger, &[set("a", b"1"), set("b", b"2")]).unwrap();
    fs::write(directory.join("users"), "x").unwrap();
    fs::write(directory.join(SEEDING_NAME), "").unwrap();
    let before = files(&directory);
    let report = copy(&directory, &to, &|| false).unwrap();
    assert_eq!((report.keys, report.others), (2, vec!["users".to_owned()]));
    assert_eq!(files(&directory), before);
    assert!(matches!(FileLedger::open(&directory).unwrap_err().kind, StorageErrorKind::InUse));
    let names = files(&to).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names, [LOCK_NAME, &log_name(1), SEEDING_NAME]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(to.clone()), mode(to.join("log-1")), mode(to.join("lock"))), (0o700, 0o600, 0o600));
    }
    // No longer than its groups.
    assert_eq!(fs::metadata(to.join("log-1")).unwrap().len(), report.log_bytes);
    drop(ledger);
    let [copied, original] =
        [&to, &directory].map(|path| load(&mut FileLedger::open(path).unwrap()).unwrap());
    assert_eq!(copied, original);
}

#[test]
fn a_copy_replaces_nothing_but_an_empty_directory_and_leaves_nothing_if_it_fails() {
    let home = TempDir::new().unwrap();
    let [directory, to] = ["store", "copy"].map(|name| home.path().join(name));
    let missing = copy(&directory, &to, &|| false).unwrap_err();
    assert!(matches!(missing.kind, StorageErrorKind::Missing), "{missing}");
    let mut ledger = FileLedger::open(&directory).unwrap();
    let empty = copy(&directory, &to, &|| false).unwrap_err();
    assert!(matches!(empty.kind, StorageErrorKind::Missing), "{empty}");
    load(&mut ledger).unwrap();
    commit(&mut ledger, &[set("a", b"1")]).unwrap();
    let canceled = copy(&directory, &to, &|| true).unwrap_err();
    assert!(
        matches!(&canceled.kind, StorageErrorKind::Io(error) if error.kind() == io::ErrorKind::Interrupted)
    );
    let only = |names: &[&str]| {
        assert_eq!(files(home.path()).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), names)
    };
    only(&["store"]);
    fs::create_dir(&to).unwrap();
    copy(&directory, &to, &|| false).unwrap();
    let first = files(&to);
    commit(&mut ledger, &[set("a", b"2")]).unwrap();
    let exists = copy(&directory, &to, &|| false).unwrap_err();
    assert!(
        matches!(&exists.kind, StorageErrorKind::Io(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty),
        "{exists}"
    );
    assert_eq!(exists.path, to);
    assert_eq!(files(&to), first);
    only(&["copy", "store"]);
    // The other process has not let go of it.
    assert!(Directory::lock_existing(&directory, false).is_err());
}
