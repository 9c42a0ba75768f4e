//! The files of one store in a directory: lock, tables, write-ahead log, and their atomic replacement.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::error::StorageErrorKind;
use crate::random;

/// File name of the tables.
pub const TABLES_NAME: &str = "store.redb";
/// File name of the write-ahead log.
pub const WAL_NAME: &str = "store.log";
/// File that a process locks while it uses the directory. The tables cannot take this part: they are replaced.
pub const LOCK_NAME: &str = "store.lock";
/// Content of the lock file once tables have been created.
const MARK: &[u8] = b"The keys of this store are in store.redb.\n";
/// File that only takes room, so that keys can be deleted from a store that has filled the disk.
const RESERVE_NAME: &str = "store.reserve";
/// Bytes of the reserve that are written at once.
const RESERVE_PART: usize = 64 * 1024;
/// File name of tables that are not complete yet.
const NEW_TABLES_NAME: &str = "store.redb.new";

/// Directory of a file system. Tests use a simulated disk, which loses power and fails where a real one seldom does.
///
/// A name that was created, replaced or removed is durable after [`FileSystem::sync_names`] only.
pub trait FileSystem: Debug + Send {
    /// Path of the directory, for messages.
    fn path(&self) -> PathBuf;

    /// Opens a file; `None` if there is none.
    fn open(&mut self, name: &str) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind>;

    /// Creates an empty file in place of any other.
    fn create(&mut self, name: &str) -> Result<Box<dyn StorageBackend>, StorageErrorKind>;

    /// Replaces the file `to`, if any, by the file `from`, atomically.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    fn remove(&mut self, name: &str) -> io::Result<()>;

    /// Makes the names of all files durable.
    fn sync_names(&mut self) -> io::Result<()>;

    /// Makes the name of the directory durable.
    fn sync_own_name(&mut self) -> io::Result<()>;

    /// Whether [`FileSystem::mark`] has been called in this directory before.
    fn is_marked(&self) -> io::Result<bool>;

    /// Marks the directory durably as one in which tables have been created.
    fn mark(&mut self) -> io::Result<()>;

    /// Draws a random number.
    fn draw(&mut self) -> u64;
}

/// The files of one store. No other process can use them while the value lives.
#[derive(Debug)]
pub struct StorageFiles(Box<dyn FileSystem>);

impl StorageFiles {
    pub fn new(file_system: Box<dyn FileSystem>) -> Self {
        Self(file_system)
    }

    /// Returns the path of the tables, for messages.
    pub fn path(&self) -> PathBuf {
        self.0.path().join(TABLES_NAME)
    }

    /// Opens the tables; `None` if none were ever completed.
    ///
    /// # Errors
    /// The tables cannot be opened, or were completed and are missing.
    pub fn open_tables(&mut self) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind> {
        let file = self.0.open(TABLES_NAME)?;
        let bytes = file.as_ref().map(|file| file.len()).transpose()?;
        check_presence(bytes, self.0.is_marked()?, || Ok(self.open_wal()?.is_some()))?;
        Ok(file)
    }

    /// Creates an empty file for new tables, in place of one that was never completed.
    pub fn create_new_tables(&mut self) -> Result<Box<dyn StorageBackend>, StorageErrorKind> {
        self.0.create(NEW_TABLES_NAME)
    }

    /// Removes the new tables, because they take room.
    pub fn discard_new_tables(&mut self) {
        // A file that cannot be removed is overwritten by the next attempt.
        let _ = self.0.remove(NEW_TABLES_NAME);
    }

    /// Replaces the tables by the new ones, atomically even if the power is lost.
    ///
    /// # Errors
    /// It is unknown afterwards which of the two are in place.
    pub fn install_new_tables(&mut self) -> Result<(), StorageErrorKind> {
        self.0.rename(NEW_TABLES_NAME, TABLES_NAME)?;
        self.sync_names()
    }

    /// Makes the names of all files durable, and that of the directory.
    pub fn sync_names(&mut self) -> Result<(), StorageErrorKind> {
        self.0.sync_names()?;
        // Until it is marked, the directory may be new itself. A parent that cannot be opened is not ours, and existed before.
        if !matches!(self.0.is_marked(), Ok(true)) {
            let _ = self.0.sync_own_name();
        }
        Ok(())
    }

    /// Notes durably that tables exist, so that their loss is detected even if no other file is left.
    pub fn mark(&mut self) {
        // Without the mark, which a full disk may have no room for, only the detection is missing.
        if self.0.is_marked().is_ok_and(|is_marked| !is_marked) {
            let _ = self.0.mark();
        }
    }

    /// Opens the write-ahead log; `None` if there is none.
    pub fn open_wal(&mut self) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind> {
        self.0.open(WAL_NAME).map_err(name_wal)
    }

    /// Creates an empty write-ahead log in place of any other. Its name survives a loss of power.
    pub fn create_wal(&mut self) -> Result<Box<dyn StorageBackend>, StorageErrorKind> {
        let file = self.0.create(WAL_NAME)?;
        self.0.sync_names()?;
        Ok(file)
    }

    /// Removes a write-ahead log that the tables no longer need.
    pub fn remove_wal(&mut self) {
        // The tables name no generation of a log that stays, so it is never read, and is overwritten by the next one.
        let _ = self.0.remove(WAL_NAME);
    }

    /// Makes the reserve `bytes` long, or as long as there is room.
    ///
    /// # Errors
    /// It is shorter.
    pub fn fill_reserve(&mut self, bytes: u64) -> Result<(), StorageErrorKind> {
        let file = match self.0.open(RESERVE_NAME)? {
            Some(file) => file,
            None => self.0.create(RESERVE_NAME)?,
        };
        let mut at = file.len()?;
        if at >= bytes {
            return Ok(());
        }
        let part = vec![0; RESERVE_PART];
        while at < bytes {
            file.write(at, &part)?;
            at = at.saturating_add(part.len() as u64);
        }
        Ok(file.sync_data()?)
    }

    /// Gives the room of the reserve back to the disk.
    pub fn release_reserve(&mut self) {
        if self.0.remove(RESERVE_NAME).is_ok() {
            // Some file systems give room back when the removal is durable.
            let _ = self.0.sync_names();
        }
    }

    /// Draws a generation that no write-ahead log of this store has had.
    pub fn draw_wal_generation(&mut self) -> u64 {
        self.0.draw()
    }
}

/// Checks that tables of this length, if there are any, are not what is left of a store.
///
/// Tables are complete before they have their name. They are created before a log and before the mark, and never removed.
///
/// # Errors
/// The tables are lost, or `has_wal` fails.
pub fn check_presence(
    bytes: Option<u64>,
    is_marked: bool,
    has_wal: impl FnOnce() -> Result<bool, StorageErrorKind>,
) -> Result<(), StorageErrorKind> {
    let (what, and_wal) = match bytes {
        None if is_marked => {
            ("is missing, although store.lock shows that it was there", "it is missing, and store.log is not")
        }
        None => ("", "it is missing, and store.log is not"),
        // The storage crate takes an empty file for a new one.
        Some(0) => ("is empty", "it is empty"),
        Some(_) => return Ok(()),
    };
    match has_wal()? {
        true => Err(StorageErrorKind::Corrupt(and_wal.to_owned())),
        false if what.is_empty() => Ok(()),
        false => Err(StorageErrorKind::Lost(what)),
    }
}

/// Adds the name of the write-ahead log: [`super::StorageError`] names the tables.
pub fn name_wal(kind: StorageErrorKind) -> StorageErrorKind {
    match kind {
        StorageErrorKind::Io(error) => {
            StorageErrorKind::Io(io::Error::new(error.kind(), format!("{WAL_NAME}: {error}")))
        }
        other => other,
    }
}

/// A locked directory of the file system.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The lock ends when the file is closed. The file is empty until tables have been created.
    lock: File,
}

impl Directory {
    /// Locks a directory for this process; creates it, readable by its owner only, if it is missing.
    ///
    /// # Errors
    /// Another process has locked it, or it cannot be created.
    pub fn lock(path: &Path) -> Result<Self, StorageErrorKind> {
        create_directory(path)?;
        let mut options = OpenOptions::new();
        for_owner_only(options.read(true).write(true).create(true).truncate(false));
        let lock = open_regular(&options, &path.join(LOCK_NAME))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), lock }),
            Err(TryLockError::WouldBlock) => Err(StorageErrorKind::InUse),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }
}

impl FileSystem for Directory {
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn open(&mut self, name: &str) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind> {
        match open_regular(OpenOptions::new().read(true).write(true), &self.path.join(name)) {
            Ok(file) => Ok(Some(Box::new(FileBackend::new(file)?))),
            Err(StorageErrorKind::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create(&mut self, name: &str) -> Result<Box<dyn StorageBackend>, StorageErrorKind> {
        let mut options = OpenOptions::new();
        for_owner_only(options.read(true).write(true).create(true).truncate(true));
        Ok(Box::new(FileBackend::new(open_regular(&options, &self.path.join(name))?)?))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_names(&mut self) -> io::Result<()> {
        sync_directory(&self.path)
    }

    fn sync_own_name(&mut self) -> io::Result<()> {
        // Each of the directories above may be new too.
        self.path.ancestors().skip(1).try_for_each(|parent| {
            sync_directory(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
        })
    }

    fn is_marked(&self) -> io::Result<bool> {
        Ok(self.lock.metadata()?.len() > 0)
    }

    fn mark(&mut self) -> io::Result<()> {
        (&self.lock).write_all(MARK)?;
        self.lock.sync_all()
    }

    fn draw(&mut self) -> u64 {
        random::u64()
    }
}

/// Whether tables have been created in `directory`, for a process that does not lock it.
pub fn is_marked(directory: &Path) -> bool {
    fs::metadata(directory.join(LOCK_NAME)).is_ok_and(|lock| lock.len() > 0)
}

/// Opens a path that is a regular file or does not exist. Opening a pipe would block, and a device may have no end.
///
/// # Errors
/// The path is neither, or cannot be opened.
pub fn open_regular(options: &OpenOptions, path: &Path) -> Result<File, StorageErrorKind> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(StorageErrorKind::NotAFile(path.to_owned())),
        _ => Ok(options.open(path)?),
    }
}

#[cfg(unix)]
fn for_owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600)
}

#[cfg(not(unix))]
fn for_owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

fn create_directory(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path).map_err(|error| match error.kind() {
        // The path exists and is something else than a directory.
        io::ErrorKind::AlreadyExists => io::ErrorKind::NotADirectory.into(),
        _ => error,
    })
}

/// Makes the names of new files durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}
