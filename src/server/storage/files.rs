//! The files of one store in a directory: lock, tables, write-ahead log, and their atomic replacement.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
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
const LOCK_NAME: &str = "store.lock";
/// File name of tables that are not complete yet.
const NEW_TABLES_NAME: &str = "store.redb.new";

/// The files of one store. Tests use a simulated disk, which fails where a real one seldom does.
///
/// No other process can use the files while the value lives.
pub trait StorageFiles: Debug + Send {
    /// Path of the tables, for messages.
    fn path(&self) -> PathBuf;

    /// Opens the tables; `None` if none were ever completed.
    fn open_tables(&mut self) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind>;

    /// Creates an empty file for new tables, in place of one that was never completed.
    fn create_new_tables(&mut self) -> Result<Box<dyn StorageBackend>, StorageErrorKind>;

    /// Removes the new tables, because they take room.
    fn discard_new_tables(&mut self);

    /// Replaces the tables by the new ones, atomically even if the power is lost.
    ///
    /// # Errors
    /// It is unknown afterwards which of the two are in place.
    fn install_new_tables(&mut self) -> Result<(), StorageErrorKind>;

    /// Opens the write-ahead log; `None` if there is none.
    fn open_wal(&mut self) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind>;

    /// Creates an empty write-ahead log in place of any other. Its name survives a loss of power.
    fn create_wal(&mut self) -> Result<Box<dyn StorageBackend>, StorageErrorKind>;

    /// Removes a write-ahead log that the tables no longer need.
    fn remove_wal(&mut self);

    /// Draws a generation that no write-ahead log of this store has had.
    fn draw_wal_generation(&mut self) -> u64;
}

/// A locked directory of the file system.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The lock ends when the file is closed.
    _lock: File,
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
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(StorageErrorKind::InUse),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    fn open_file(&self, name: &str) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind> {
        match open_regular(OpenOptions::new().read(true).write(true), &self.path.join(name)) {
            Ok(file) => Ok(Some(Box::new(FileBackend::new(file)?))),
            Err(StorageErrorKind::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create_file(&self, name: &str) -> Result<Box<dyn StorageBackend>, StorageErrorKind> {
        let mut options = OpenOptions::new();
        for_owner_only(options.read(true).write(true).create(true).truncate(true));
        Ok(Box::new(FileBackend::new(open_regular(&options, &self.path.join(name))?)?))
    }
}

impl StorageFiles for Directory {
    fn path(&self) -> PathBuf {
        self.path.join(TABLES_NAME)
    }

    fn open_tables(&mut self) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind> {
        let file = self.open_file(TABLES_NAME)?;
        Ok(file.filter(|file| !matches!(file.len(), Ok(0))))
    }

    fn create_new_tables(&mut self) -> Result<Box<dyn StorageBackend>, StorageErrorKind> {
        self.create_file(NEW_TABLES_NAME)
    }

    fn discard_new_tables(&mut self) {
        // A file that cannot be removed is overwritten by the next attempt.
        let _ = fs::remove_file(self.path.join(NEW_TABLES_NAME));
    }

    fn install_new_tables(&mut self) -> Result<(), StorageErrorKind> {
        fs::rename(self.path.join(NEW_TABLES_NAME), self.path())?;
        // Without a sync of the directory, the new name may be lost with the power.
        sync_directory(&self.path)?;
        if let Some(parent) = self.path.parent() {
            // The directory may be new itself. A parent that cannot be opened is not ours, and existed before.
            let _ = sync_directory(parent);
        }
        Ok(())
    }

    fn open_wal(&mut self) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind> {
        self.open_file(WAL_NAME)
    }

    fn create_wal(&mut self) -> Result<Box<dyn StorageBackend>, StorageErrorKind> {
        let file = self.create_file(WAL_NAME)?;
        sync_directory(&self.path)?;
        Ok(file)
    }

    fn remove_wal(&mut self) {
        // The tables name no generation of a log that stays, so it is never read, and is overwritten by the next one.
        let _ = fs::remove_file(self.path.join(WAL_NAME));
    }

    fn draw_wal_generation(&mut self) -> u64 {
        random::u64()
    }
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
