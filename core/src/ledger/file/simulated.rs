//! Simulated disk that loses power: writes that were not synced are lost, torn or reordered.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use super::disk::{Disk, DiskFile, LOCK_NAME};
use super::entry::Moment;
use super::policy::Policy;
use crate::ledger::StorageErrorKind;

/// Segments that are soon full, and snapshots that are soon due.
pub const POLICY: Policy = Policy {
    first_bytes: 16 * 1024,
    segment_bytes: 64 * 1024,
    snapshot_bytes: 96 * 1024,
    close_bytes: 64 * 1024,
    reserve_bytes: 64 * 1024,
    commits_before: 3,
};

/// The unit that a disk writes whole or not at all.
const SECTOR: usize = 512;
/// The system's number of an input or output error.
const EIO: i32 = 5;
/// The unit in which files take room.
const BLOCK: usize = 4096;

/// Random numbers that a seed determines.
#[derive(Clone, Debug)]
pub struct SeededRandom(u64);

impl SeededRandom {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number less than `count`.
    pub fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % count
    }
}

/// Faults of a simulated disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Number of operations before the power is cut.
    pub cut_after: Option<u64>,
    /// The most bytes of a file.
    pub bytes_max: Option<u64>,
    /// The offset up to which a file can be written. It may be longer: a sparse file takes no room.
    pub written_max: Option<u64>,
    /// The number of blocks of all files together. A block that was never written takes no room.
    pub blocks_max: Option<usize>,
    /// Whether the next sync fails: its writes are lost, and are read nevertheless until the cache is dropped.
    pub fails_next_sync: bool,
    /// Whether syncs succeed without writing anything.
    pub ignores_syncs: bool,
    /// An offset at which no file can be read.
    pub unreadable_at: Option<usize>,
    pub fails_renames: bool,
    pub panics_in_renames: bool,
    /// Whether another directory has the path.
    pub is_replaced: bool,
    /// Whether syncs of the names fail.
    pub fails_name_syncs: bool,
    /// Whether the system cannot forget what it has read.
    pub keeps_cache: bool,
}

/// A disk with one directory. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

/// The files of a directory by their names.
type Names = BTreeMap<String, usize>;

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    is_off: bool,
    files: Vec<File>,
    names: Names,
    /// The names after each change that is not durable, in order. A journaling file system keeps the first of them.
    pending_names: Vec<Names>,
    durable_names: Names,
    /// Whether the directory itself survives a power cut.
    is_durable: bool,
    randoms: u64,
    /// The start of the machine, and the milliseconds since then.
    moment: Moment,
}

#[derive(Debug, Default)]
struct File {
    durable: Vec<u8>,
    current: Vec<u8>,
    pending: Vec<Pending>,
    /// The blocks that take room.
    blocks: BTreeSet<usize>,
    /// Whether a sync has failed: the ledger must not write to it before its cache was dropped.
    has_failed: bool,
}

#[derive(Debug)]
enum Pending {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

#[derive(Debug)]
struct Handle {
    disk: SimulatedDisk,
    file: usize,
}

impl SimulatedDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub fn set_faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.state().faults);
    }

    fn faults(&self) -> Faults {
        self.state().faults
    }

    pub fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// Whether there is a file of this name.
    pub fn has(&self, name: &str) -> bool {
        self.state().names.contains_key(name)
    }

    /// Changes the content of a file, as damage to the disk does.
    pub fn change_file(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        let file = state.names[name];
        let file = &mut state.files[file];
        change(&mut file.current);
        *file = File::new(file.current.clone());
    }

    /// Adds a file as it is after a sync.
    pub fn add_file(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.state();
        let file = state.files.len();
        state.files.push(File::new(bytes));
        state.names.insert(name.to_owned(), file);
    }

    /// Returns the content of a file.
    pub fn file(&self, name: &str) -> Vec<u8> {
        let state = self.state();
        state.files[state.names[name]].current.clone()
    }

    /// Returns the number of blocks that all files take together.
    pub fn blocks(&self) -> usize {
        self.state().blocks()
    }

    /// Returns another disk with the same files.
    pub fn copy(&self) -> Self {
        let state = self.state();
        let files = state.files.iter().map(|file| File::new(file.current.clone())).collect();
        Self::with(state.next(state.faults), files, state.names.clone())
    }

    /// Returns the disk after the power has come back: each sector that was not synced is there or not, at
    /// random, and so are the last changes of the names.
    pub fn after_power_cut(&self, random: &mut SeededRandom) -> Self {
        let state = self.state();
        let faults = Faults { cut_after: None, fails_next_sync: false, ..state.faults };
        let new = state.next(faults);
        if !state.is_durable && random.below(2) == 0 {
            return Self::with(new, Vec::new(), Names::new());
        }
        let surviving = random.below(state.pending_names.len() as u64 + 1);
        let last = usize::try_from(surviving).unwrap().checked_sub(1).map(|last| &state.pending_names[last]);
        let names = last.unwrap_or(&state.durable_names).clone();
        let files = state.files.iter().map(|file| File::new(file.survivor(random))).collect();
        Self::with(new, files, names)
    }

    fn with(state: State, files: Vec<File>, names: Names) -> Self {
        let is_durable = !names.is_empty();
        Self(Arc::new(Mutex::new(State { files, durable_names: names.clone(), names, is_durable, ..state })))
    }

    /// Returns the disk after the process was killed: the system still has all writes, synced or not.
    pub fn after_kill(&self) -> Self {
        {
            let mut state = self.state();
            state.is_off = false;
            (state.faults.cut_after, state.faults.fails_next_sync) = (None, false);
        }
        self.clone()
    }

    /// Lets time pass on the clock that counts from the start of the machine.
    pub fn pass(&self, ms: u64) {
        self.state().moment.boot_ms += ms;
    }

    /// Sets whether a time server disciplines the wall clock.
    pub fn set_synchronized(&self, is_synchronized: bool) {
        self.state().moment.is_unsynchronized = !is_synchronized;
    }

    /// Returns the names of all files, in order.
    pub fn all_names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }
}

impl State {
    /// Returns the state of a machine that was started anew, without files.
    fn next(&self, faults: Faults) -> Self {
        let moment = Moment { boot: self.moment.boot + 1, boot_ms: 0, is_unsynchronized: false };
        Self { faults, randoms: self.randoms, moment, ..Self::default() }
    }

    /// Counts an operation; fails with the one at which the power is cut.
    fn act(&mut self) -> io::Result<()> {
        if let Some(left) = &mut self.faults.cut_after {
            self.is_off |= *left == 0;
            *left = left.saturating_sub(1);
        }
        if self.is_off { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }

    /// Changes the names. If the power is cut during the change, whether it happened depends on earlier operations, as
    /// on the seed.
    fn change_names(&mut self, change: impl FnOnce(&mut Names)) -> io::Result<()> {
        let was_off = self.is_off;
        let done = self.act();
        if done.is_ok() || (!was_off && self.files.len().is_multiple_of(2)) {
            change(&mut self.names);
            self.pending_names.push(self.names.clone());
        }
        done
    }

    fn blocks(&self) -> usize {
        self.names.values().map(|file| self.files[*file].blocks.len()).sum()
    }
}

impl File {
    fn new(bytes: Vec<u8>) -> Self {
        let blocks = (0..bytes.len().div_ceil(BLOCK)).collect();
        Self { current: bytes.clone(), durable: bytes, pending: Vec::new(), blocks, has_failed: false }
    }

    /// Makes durable what is pending: what an earlier sync has lost stays lost.
    fn write_back(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::SetLen(len) => self.durable.resize(len, 0),
                Pending::Write(at, data) => Self::apply(&mut self.durable, at, &data),
            }
        }
    }

    fn apply(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
        bytes.resize(bytes.len().max(at + data.len()), 0);
        bytes[at..at + data.len()].copy_from_slice(data);
    }

    fn survivor(&self, random: &mut SeededRandom) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        let mut len = bytes.len();
        // All, none, or a part: a disk that is nearly done is as likely as one that has not begun.
        let odds = [0, 10, 50, 90, 100][usize::try_from(random.below(5)).unwrap()];
        for pending in &self.pending {
            match pending {
                Pending::SetLen(to) => {
                    if random.below(100) < odds {
                        bytes.resize(*to, 0);
                        len = *to;
                    }
                }
                Pending::Write(at, data) => {
                    for (sector, part) in data.chunks(SECTOR).enumerate() {
                        if random.below(100) < odds {
                            Self::apply(&mut bytes, at + sector * SECTOR, part);
                        }
                    }
                }
            }
        }
        bytes.resize(len, 0);
        bytes
    }
}

impl Disk for SimulatedDisk {
    fn path(&self) -> PathBuf {
        PathBuf::from("simulated")
    }

    fn check(&self) -> Result<(), StorageErrorKind> {
        if self.faults().is_replaced { Err(StorageErrorKind::Replaced("it was moved")) } else { Ok(()) }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.act()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, StorageErrorKind> {
        let file = self.state().names.get(name).copied();
        let file = file.ok_or_else(|| StorageErrorKind::Io(io::ErrorKind::NotFound.into()))?;
        Ok(Box::new(Handle { disk: self.clone(), file }))
    }

    fn create(&self, name: &str) -> Result<Box<dyn DiskFile>, StorageErrorKind> {
        self.check()?;
        let mut state = self.state();
        let file = state.files.len();
        state.files.push(File::default());
        state.change_names(|names| {
            names.insert(name.to_owned(), file);
        })?;
        Ok(Box::new(Handle { disk: self.clone(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageErrorKind> {
        assert!(!self.faults().panics_in_renames);
        self.check()?;
        if self.faults().fails_renames {
            return Err(io::Error::other("the rename has failed").into());
        }
        let renamed = self.state().change_names(|names| {
            let file = names.remove(from).unwrap();
            names.insert(to.to_owned(), file);
        });
        Ok(renamed?)
    }

    fn remove(&self, name: &str) -> Result<(), StorageErrorKind> {
        self.check()?;
        let removed = self.state().change_names(|names| {
            names.remove(name);
        });
        Ok(removed?)
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state();
        state.act()?;
        if state.faults.fails_name_syncs {
            return Err(io::Error::other("the sync of the names has failed"));
        }
        if !state.faults.ignores_syncs {
            state.durable_names = state.names.clone();
            state.pending_names.clear();
        }
        Ok(())
    }

    fn sync_own_name(&self) -> io::Result<()> {
        let mut state = self.state();
        state.act()?;
        state.is_durable |= !state.faults.ignores_syncs;
        Ok(())
    }

    fn read_lock(&self) -> io::Result<Vec<u8>> {
        let state = self.state();
        Ok(state.names.get(LOCK_NAME).map(|file| state.files[*file].current.clone()).unwrap_or_default())
    }

    /// The file exists from the beginning on a real disk; its content is not synced.
    fn write_lock(&self, content: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.act()?;
        if !state.names.contains_key(LOCK_NAME) {
            let file = state.files.len();
            state.files.push(File::default());
            state.names.insert(LOCK_NAME.to_owned(), file);
            state.durable_names.insert(LOCK_NAME.to_owned(), file);
            state.pending_names.iter_mut().for_each(|names| _ = names.insert(LOCK_NAME.to_owned(), file));
        }
        let file = state.names[LOCK_NAME];
        let file = &mut state.files[file];
        File::apply(&mut file.current, 0, content);
        let len = file.current.len();
        file.pending.push(Pending::SetLen(len));
        file.pending.push(Pending::Write(0, content.to_vec()));
        Ok(())
    }

    fn random(&self) -> u64 {
        let mut state = self.state();
        state.randoms += 1;
        SeededRandom::new(state.randoms).below(u64::MAX)
    }

    fn moment(&self) -> Moment {
        let state = self.state();
        // 0 stands for an unknown one.
        Moment { boot: state.moment.boot + 1, ..state.moment }
    }
}

impl DiskFile for Handle {
    fn identity(&self) -> io::Result<(u64, u64)> {
        Ok((0, self.file as u64))
    }

    fn bytes(&self) -> io::Result<u64> {
        let mut state = self.disk.state();
        state.act()?;
        Ok(state.files[self.file].current.len() as u64)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        state.act()?;
        let at = usize::try_from(at).unwrap();
        if state.faults.unreadable_at.is_some_and(|bad| (at..at + out.len()).contains(&bad)) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let bytes = state.files[self.file].current.get(at..at + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.act()?;
        if state.faults.bytes_max.is_some_and(|bytes_max| len > bytes_max) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let len = usize::try_from(len).unwrap();
        let file = &mut state.files[self.file];
        file.current.resize(len, 0);
        file.blocks.retain(|block| block * BLOCK < len);
        file.pending.push(Pending::SetLen(len));
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.act()?;
        let faults = state.faults;
        let bytes_max = [faults.written_max, faults.bytes_max].into_iter().flatten().min();
        let blocks = state.blocks() + usize::try_from(bytes).unwrap().div_ceil(BLOCK);
        if bytes_max.is_some_and(|max| bytes > max) || faults.blocks_max.is_some_and(|max| blocks > max) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.act()?;
        let (fails, ignores_syncs) =
            (std::mem::take(&mut state.faults.fails_next_sync), state.faults.ignores_syncs);
        let file = &mut state.files[self.file];
        if fails {
            // The system drops the writes and marks their pages as written.
            file.pending.clear();
            file.has_failed = true;
            return Err(io::Error::other("the sync has failed"));
        }
        if !ignores_syncs {
            file.write_back();
        }
        Ok(())
    }

    /// Only pages that are marked as written are dropped.
    fn drop_cache(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.act()?;
        if state.faults.keeps_cache {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let ignores_syncs = state.faults.ignores_syncs;
        let file = &mut state.files[self.file];
        if file.pending.is_empty() && !ignores_syncs {
            file.current = file.durable.clone();
        }
        // It is known again what is on the disk.
        file.has_failed = false;
        Ok(())
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        state.act()?;
        let faults = state.faults;
        let bytes_max = [faults.written_max, faults.bytes_max].into_iter().flatten().min();
        if bytes_max.is_some_and(|max| at + data.len() as u64 > max) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let at = usize::try_from(at).unwrap();
        let touched = at / BLOCK..(at + data.len()).div_ceil(BLOCK);
        let new = touched.clone().filter(|block| !state.files[self.file].blocks.contains(block)).count();
        if faults.blocks_max.is_some_and(|max| state.blocks() + new > max) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = &mut state.files[self.file];
        assert!(!file.has_failed, "no write follows a failed one in the same file");
        file.blocks.extend(touched);
        File::apply(&mut file.current, at, data);
        file.pending.push(Pending::Write(at, data.to_vec()));
        Ok(())
    }
}
