//! Where the file is: opened, made, and replaced as a whole.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::error::StorageErrorKind;
use super::{FILE_NAME, LOCK_NAME, LOG_NAME, NEW_NAME};
use crate::random;

/// A place for one store: the tables, and a log beside them. It belongs to nobody else for as long as it is held.
pub trait Medium: Debug + Send {
    /// The file's name, for people.
    fn path(&self) -> PathBuf;

    /// The file; none, if none was ever finished.
    ///
    /// # Errors
    /// The system's.
    fn open(&mut self) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind>;

    /// An empty file beside it, in place of one that was never finished.
    ///
    /// # Errors
    /// The system's.
    fn create(&mut self) -> Result<Box<dyn StorageBackend>, StorageErrorKind>;

    /// Throws away the file made last: it takes room.
    fn discard(&mut self);

    /// Has the file made last take the place of the other, all at once, whatever happens meanwhile.
    ///
    /// # Errors
    /// The system's; it is not known then which of the two will be there.
    fn install(&mut self) -> Result<(), StorageErrorKind>;

    /// The log; none, if there is none.
    ///
    /// # Errors
    /// The system's.
    fn log(&mut self) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind>;

    /// An empty log in place of what there may be of one. It will be found after a power cut.
    ///
    /// # Errors
    /// The system's.
    fn create_log(&mut self) -> Result<Box<dyn StorageBackend>, StorageErrorKind>;

    /// Throws away the log, which nothing needs any more.
    fn remove_log(&mut self);

    /// What no log of this store has ever begun with.
    fn draw_tag(&mut self) -> u64;
}

/// A folder of this machine.
#[derive(Debug)]
pub struct Folder {
    directory: PathBuf,
    /// Its lock ends with it.
    _lock: File,
}

impl Folder {
    /// Takes a folder for this process alone; makes it, for its owner only, where it is missing.
    ///
    /// # Errors
    /// Another process has it, or the system refused.
    pub fn take(directory: &Path) -> Result<Self, StorageErrorKind> {
        create_directory(directory)?;
        let mut options = OpenOptions::new();
        owned(options.read(true).write(true).create(true).truncate(false));
        let lock = open_regular(&options, &directory.join(LOCK_NAME))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { directory: directory.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(StorageErrorKind::InUse),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    fn open_file(&self, name: &str) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind> {
        match open_regular(OpenOptions::new().read(true).write(true), &self.directory.join(name)) {
            Ok(file) => Ok(Some(Box::new(FileBackend::new(file)?))),
            Err(StorageErrorKind::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create_file(&self, name: &str) -> Result<Box<dyn StorageBackend>, StorageErrorKind> {
        let mut options = OpenOptions::new();
        owned(options.read(true).write(true).create(true).truncate(true));
        Ok(Box::new(FileBackend::new(open_regular(&options, &self.directory.join(name))?)?))
    }
}

impl Medium for Folder {
    fn path(&self) -> PathBuf {
        self.directory.join(FILE_NAME)
    }

    fn open(&mut self) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind> {
        let file = self.open_file(FILE_NAME)?;
        Ok(file.filter(|file| !matches!(file.len(), Ok(0))))
    }

    fn create(&mut self) -> Result<Box<dyn StorageBackend>, StorageErrorKind> {
        self.create_file(NEW_NAME)
    }

    fn discard(&mut self) {
        // What stays is overwritten the next time.
        let _ = fs::remove_file(self.directory.join(NEW_NAME));
    }

    fn install(&mut self) -> Result<(), StorageErrorKind> {
        fs::rename(self.directory.join(NEW_NAME), self.path())?;
        sync_directory(&self.directory)?;
        if let Some(parent) = self.directory.parent() {
            // The folder may be new itself. Not everybody may look into the one above.
            let _ = sync_directory(parent);
        }
        Ok(())
    }

    fn log(&mut self) -> Result<Option<Box<dyn StorageBackend>>, StorageErrorKind> {
        self.open_file(LOG_NAME)
    }

    fn create_log(&mut self) -> Result<Box<dyn StorageBackend>, StorageErrorKind> {
        let file = self.create_file(LOG_NAME)?;
        sync_directory(&self.directory)?;
        Ok(file)
    }

    fn remove_log(&mut self) {
        // What stays is of no tag, and overwritten the next time.
        let _ = fs::remove_file(self.directory.join(LOG_NAME));
    }

    fn draw_tag(&mut self) -> u64 {
        random::u64()
    }
}

/// Opens what is a file, or nothing yet. A pipe would be waited for, and a device may have no end.
///
/// # Errors
/// It is something else, or the system refused.
pub fn open_regular(options: &OpenOptions, path: &Path) -> Result<File, StorageErrorKind> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(StorageErrorKind::NotAFile(path.to_owned())),
        _ => Ok(options.open(path)?),
    }
}

#[cfg(unix)]
fn owned(options: &mut OpenOptions) -> &mut OpenOptions {
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600)
}

#[cfg(not(unix))]
fn owned(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

fn create_directory(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory).map_err(|error| match error.kind() {
        // What exists is something else.
        io::ErrorKind::AlreadyExists => io::ErrorKind::NotADirectory.into(),
        _ => error,
    })
}

/// Makes sure that the file can still be found after a power cut.
fn sync_directory(directory: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}
