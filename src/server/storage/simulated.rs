//! Simulated disk that loses power: writes that were not synced are lost, torn or reordered.

use std::io;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use redb::{BackendError, StorageBackend};

use super::error::StorageErrorKind;
use super::files::StorageFiles;

/// The unit that a disk writes whole or not at all.
const SECTOR: usize = 512;

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
    /// Whether the next sync fails: its writes are lost, and are read nevertheless.
    pub fails_next_sync: bool,
    /// Whether syncs succeed without writing anything.
    pub ignores_syncs: bool,
}

/// A disk with tables, new tables and a write-ahead log. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    is_off: bool,
    files: Vec<File>,
    tables: Option<usize>,
    new_tables: Option<usize>,
    wal: Option<usize>,
    generations: u64,
}

#[derive(Debug, Default)]
struct File {
    durable: Vec<u8>,
    current: Vec<u8>,
    pending: Vec<Pending>,
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

    pub fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// Returns the disk after the power has come back: each sector that was not synced is there or not, at
    /// random.
    pub fn after_power_cut(&self, random: &mut SeededRandom) -> Self {
        let state = self.state();
        let faults = Faults { cut_after: None, fails_next_sync: false, ..state.faults };
        let mut new = State { faults, generations: state.generations, ..State::default() };
        let mut survive = |file: Option<usize>| {
            new.files.push(File::new(state.files.get(file?)?.survivor(random)));
            Some(new.files.len() - 1)
        };
        (new.tables, new.wal) = (survive(state.tables), survive(state.wal));
        Self(Arc::new(Mutex::new(new)))
    }

    /// Returns the disk after the process was killed: the system still has all writes, synced or not.
    pub fn after_kill(&self) -> Self {
        {
            let mut state = self.state();
            state.is_off = false;
            (state.faults.cut_after, state.faults.fails_next_sync) = (None, false);
            state.new_tables = None;
        }
        self.clone()
    }
}

impl State {
    /// Counts an operation; fails with the one at which the power is cut.
    fn act(&mut self) -> io::Result<()> {
        if let Some(left) = &mut self.faults.cut_after {
            self.is_off |= *left == 0;
            *left = left.saturating_sub(1);
        }
        if self.is_off { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }
}

impl File {
    fn new(bytes: Vec<u8>) -> Self {
        Self { current: bytes.clone(), durable: bytes, pending: Vec::new() }
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

impl StorageFiles for SimulatedDisk {
    fn path(&self) -> PathBuf {
        PathBuf::from("simulated")
    }

    fn open_tables(&mut self) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind> {
        let state = self.state();
        let file = state.tables.filter(|tables| !state.files[*tables].current.is_empty());
        Ok(file.map(|file| Box::new(Handle { disk: self.clone(), file }) as Box<dyn StorageBackend>))
    }

    fn create_new_tables(&mut self) -> Result<Box<dyn StorageBackend>, StorageErrorKind> {
        let mut state = self.state();
        state.act()?;
        state.files.push(File::default());
        let file = state.files.len() - 1;
        state.new_tables = Some(file);
        Ok(Box::new(Handle { disk: self.clone(), file }))
    }

    fn discard_new_tables(&mut self) {
        self.state().new_tables = None;
    }

    /// A rename on a journaling file system: it has happened when this returns, and before that it may have.
    fn install_new_tables(&mut self) -> Result<(), StorageErrorKind> {
        let mut state = self.state();
        let done = state.act();
        // If the power is cut here, whether the rename happened depends on earlier operations, as on the
        // seed.
        if done.is_ok() || state.files.len().is_multiple_of(2) {
            state.tables = state.new_tables.take();
        }
        Ok(done?)
    }

    fn open_wal(&mut self) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind> {
        let file = self.state().wal;
        Ok(file.map(|file| Box::new(Handle { disk: self.clone(), file }) as Box<dyn StorageBackend>))
    }

    fn create_wal(&mut self) -> Result<Box<dyn StorageBackend>, StorageErrorKind> {
        let mut state = self.state();
        state.act()?;
        state.files.push(File::default());
        let file = state.files.len() - 1;
        state.wal = Some(file);
        Ok(Box::new(Handle { disk: self.clone(), file }))
    }

    fn remove_wal(&mut self) {
        let mut state = self.state();
        if state.act().is_ok() {
            state.wal = None;
        }
    }

    fn draw_wal_generation(&mut self) -> u64 {
        let mut state = self.state();
        state.generations += 1;
        state.generations
    }
}

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        let mut state = self.disk.state();
        state.act()?;
        Ok(state.files[self.file].current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        state.act()?;
        let at = usize::try_from(offset).unwrap();
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
        file.pending.push(Pending::SetLen(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.act()?;
        let (fails, ignores_syncs) =
            (std::mem::take(&mut state.faults.fails_next_sync), state.faults.ignores_syncs);
        let file = &mut state.files[self.file];
        if fails {
            // The system drops the writes and marks their pages as written.
            file.pending.clear();
            return Err(io::Error::other("the sync has failed"));
        }
        if !ignores_syncs {
            // Only pending writes: those that an earlier sync has lost stay lost.
            for pending in std::mem::take(&mut file.pending) {
                match pending {
                    Pending::SetLen(len) => file.durable.resize(len, 0),
                    Pending::Write(at, data) => File::apply(&mut file.durable, at, &data),
                }
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        state.act()?;
        if state.faults.written_max.is_some_and(|max| offset + data.len() as u64 > max) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let at = usize::try_from(offset).unwrap();
        let file = &mut state.files[self.file];
        File::apply(&mut file.current, at, data);
        file.pending.push(Pending::Write(at, data.to_vec()));
        Ok(())
    }

    fn try_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn unlock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }
}
