//! A disk that loses power: what was written and not synced is lost, torn, or there before what was written earlier.

use std::io;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use redb::{BackendError, StorageBackend};

use super::error::StorageErrorKind;
use super::medium::Medium;

/// What a disk writes at once, or not at all.
const SECTOR: usize = 512;

/// Random numbers that are the same for the same seed.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One of so many numbers, from 0 on.
    pub fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % count
    }
}

/// What is the matter with a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// How many things it does before its power is cut.
    pub cut_after: Option<u64>,
    /// How many bytes a file may have.
    pub bytes_max: Option<u64>,
    /// Up to where a file can be written: it may be longer, with nothing in it, for that takes no room.
    pub written_max: Option<u64>,
    /// Whether the next sync fails: what was to be synced is lost, and can be read nonetheless.
    pub fails_next_sync: bool,
    /// Whether it says that it has synced, and has not.
    pub lies: bool,
}

/// The disk, with a file, one that is being made, and a log. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk(Arc<Mutex<World>>);

#[derive(Debug, Default)]
struct World {
    trouble: Trouble,
    is_off: bool,
    files: Vec<File>,
    main: Option<usize>,
    new: Option<usize>,
    log: Option<usize>,
    tags: u64,
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
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    pub fn trouble(&self, change: impl FnOnce(&mut Trouble)) {
        change(&mut self.world().trouble);
    }

    pub fn is_off(&self) -> bool {
        self.world().is_off
    }

    /// The disk after its power has come back: of what was not synced, any sectors may be there, and any may not.
    pub fn after_the_cut(&self, chance: &mut Chance) -> Self {
        let world = self.world();
        let trouble = Trouble { cut_after: None, fails_next_sync: false, ..world.trouble };
        let mut new = World { trouble, tags: world.tags, ..World::default() };
        let mut survive = |file: Option<usize>| {
            new.files.push(File::new(world.files.get(file?)?.survivor(chance)));
            Some(new.files.len() - 1)
        };
        (new.main, new.log) = (survive(world.main), survive(world.log));
        Self(Arc::new(Mutex::new(new)))
    }

    /// The disk after its process was killed: the system still has all that was written, the disk perhaps not.
    pub fn after_the_kill(&self) -> Self {
        {
            let mut world = self.world();
            world.is_off = false;
            (world.trouble.cut_after, world.trouble.fails_next_sync) = (None, false);
            world.new = None;
        }
        self.clone()
    }
}

impl World {
    /// Counts what is done; the last thing is not.
    fn act(&mut self) -> io::Result<()> {
        if let Some(left) = &mut self.trouble.cut_after {
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

    fn survivor(&self, chance: &mut Chance) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        let mut len = bytes.len();
        // Everything, nothing, or something in between: a disk that is nearly done is as likely as one that has not begun.
        let odds = [0, 10, 50, 90, 100][usize::try_from(chance.below(5)).unwrap()];
        for pending in &self.pending {
            match pending {
                Pending::SetLen(to) => {
                    if chance.below(100) < odds {
                        bytes.resize(*to, 0);
                        len = *to;
                    }
                }
                Pending::Write(at, data) => {
                    for (sector, part) in data.chunks(SECTOR).enumerate() {
                        if chance.below(100) < odds {
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

impl Medium for SimulatedDisk {
    fn path(&self) -> PathBuf {
        PathBuf::from("simulated")
    }

    fn open(&mut self) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind> {
        let world = self.world();
        let file = world.main.filter(|main| !world.files[*main].current.is_empty());
        Ok(file.map(|file| Box::new(Handle { disk: self.clone(), file }) as Box<dyn StorageBackend>))
    }

    fn create(&mut self) -> Result<Box<dyn StorageBackend>, StorageErrorKind> {
        let mut world = self.world();
        world.act()?;
        world.files.push(File::default());
        let file = world.files.len() - 1;
        world.new = Some(file);
        Ok(Box::new(Handle { disk: self.clone(), file }))
    }

    fn discard(&mut self) {
        self.world().new = None;
    }

    /// A journaling file system: the name is there when this returns, and before that one or the other is.
    fn install(&mut self) -> Result<(), StorageErrorKind> {
        let mut world = self.world();
        let done = world.act();
        // Whether it has happened when the power goes, is told by what was done before.
        if done.is_ok() || world.files.len().is_multiple_of(2) {
            world.main = world.new.take();
        }
        Ok(done?)
    }

    fn log(&mut self) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind> {
        let file = self.world().log;
        Ok(file.map(|file| Box::new(Handle { disk: self.clone(), file }) as Box<dyn StorageBackend>))
    }

    fn create_log(&mut self) -> Result<Box<dyn StorageBackend>, StorageErrorKind> {
        let mut world = self.world();
        world.act()?;
        world.files.push(File::default());
        let file = world.files.len() - 1;
        world.log = Some(file);
        Ok(Box::new(Handle { disk: self.clone(), file }))
    }

    fn remove_log(&mut self) {
        let mut world = self.world();
        if world.act().is_ok() {
            world.log = None;
        }
    }

    fn draw_tag(&mut self) -> u64 {
        let mut world = self.world();
        world.tags += 1;
        world.tags
    }
}

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        let mut world = self.disk.world();
        world.act()?;
        Ok(world.files[self.file].current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut world = self.disk.world();
        world.act()?;
        let at = usize::try_from(offset).unwrap();
        let bytes = world.files[self.file].current.get(at..at + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut world = self.disk.world();
        world.act()?;
        if world.trouble.bytes_max.is_some_and(|bytes_max| len > bytes_max) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let len = usize::try_from(len).unwrap();
        let file = &mut world.files[self.file];
        file.current.resize(len, 0);
        file.pending.push(Pending::SetLen(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut world = self.disk.world();
        world.act()?;
        let (fails, lies) = (std::mem::take(&mut world.trouble.fails_next_sync), world.trouble.lies);
        let file = &mut world.files[self.file];
        if fails {
            // The system has given up, and takes for written what is not.
            file.pending.clear();
            return Err(io::Error::other("the sync has failed"));
        }
        if !lies {
            // Only what was to be written: what an earlier sync has lost stays lost.
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
        let mut world = self.disk.world();
        world.act()?;
        if world.trouble.written_max.is_some_and(|max| offset + data.len() as u64 > max) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let at = usize::try_from(offset).unwrap();
        let file = &mut world.files[self.file];
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
