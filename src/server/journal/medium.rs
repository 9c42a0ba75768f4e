//! Where the file is: opened, made, and replaced as a whole.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::error::JournalErrorKind;
use super::{FILE_NAME, LOCK_NAME, NEW_NAME};

/// A place for one store. It belongs to nobody else for as long as it is held.
pub trait Medium: Debug + Send {
    /// The file's name, for people.
    fn path(&self) -> PathBuf;

    /// The file; none, if none was ever finished.
    ///
    /// # Errors
    /// The system's.
    fn open(&mut self) -> Result<Option<Box<dyn StorageBackend>>, JournalErrorKind>;

    /// An empty file beside it, in place of one that was never finished.
    ///
    /// # Errors
    /// The system's.
    fn create(&mut self) -> Result<Box<dyn StorageBackend>, JournalErrorKind>;

    /// Throws away the file made last: it takes room.
    fn discard(&mut self);

    /// Has the file made last take the place of the other, all at once, whatever happens meanwhile.
    ///
    /// # Errors
    /// The system's; it is not known then which of the two will be there.
    fn install(&mut self) -> Result<(), JournalErrorKind>;
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
    pub fn take(directory: &Path) -> Result<Self, JournalErrorKind> {
        create_directory(directory)?;
        let lock = directory.join(LOCK_NAME);
        let lock =
            owned(OpenOptions::new().read(true).write(true).create(true).truncate(false)).open(lock)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { directory: directory.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(JournalErrorKind::InUse),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }
}

impl Medium for Folder {
    fn path(&self) -> PathBuf {
        self.directory.join(FILE_NAME)
    }

    fn open(&mut self) -> Result<Option<Box<dyn StorageBackend>>, JournalErrorKind> {
        let file = match OpenOptions::new().read(true).write(true).open(self.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        if file.metadata()?.len() == 0 {
            return Ok(None);
        }
        Ok(Some(Box::new(FileBackend::new(file)?)))
    }

    fn create(&mut self) -> Result<Box<dyn StorageBackend>, JournalErrorKind> {
        let path = self.directory.join(NEW_NAME);
        let file = owned(OpenOptions::new().read(true).write(true).create(true).truncate(true)).open(path)?;
        Ok(Box::new(FileBackend::new(file)?))
    }

    fn discard(&mut self) {
        // What stays is overwritten the next time.
        let _ = fs::remove_file(self.directory.join(NEW_NAME));
    }

    fn install(&mut self) -> Result<(), JournalErrorKind> {
        fs::rename(self.directory.join(NEW_NAME), self.path())?;
        sync_directory(&self.directory)?;
        if let Some(parent) = self.directory.parent() {
            // The folder may be new itself. Not everybody may look into the one above.
            let _ = sync_directory(parent);
        }
        Ok(())
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
