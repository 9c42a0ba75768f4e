//! An open directory, whose files are found by their names in it, also after it was moved.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::platform::types::Access;

/// An open directory. A lock on it ends with it.
#[derive(Debug)]
pub struct Directory(File);

impl Directory {
    /// Opens a directory.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat(CWD, path, flags, Mode::empty())?.into()))
    }

    /// Opens and locks a directory. Windows: without a lock.
    ///
    /// # Errors
    /// Those of the system, and [`io::ErrorKind::ResourceBusy`] if another process has locked it.
    pub fn lock(path: &Path) -> io::Result<Self> {
        let directory = Self::open(path)?;
        match directory.0.try_lock() {
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::ResourceBusy.into()),
            Ok(()) | Err(TryLockError::Error(_)) => Ok(directory),
        }
    }

    /// Returns whether a path leads to this directory. Windows: a directory that is open cannot be moved.
    ///
    /// # Errors
    /// Those of the system.
    pub fn is_at(&self, path: &Path) -> io::Result<bool> {
        is_same(statat(CWD, path, AtFlags::empty()), &self.0)
    }

    /// Returns whether a name leads to an open file. Windows: a file that is open keeps its name.
    ///
    /// # Errors
    /// Those of the system.
    pub fn contains(&self, name: &str, file: &File) -> io::Result<bool> {
        is_same(statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW), file)
    }

    /// Opens a name that is a regular file; None if it is something else. Opening a pipe would block, and a device may have no end. A
    /// symbolic link is not followed: what it names may belong to another store, or to none.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open_regular(&self, name: &str, access: Access) -> io::Result<Option<File>> {
        match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => Ok(None),
            _ => {
                let flags = match access {
                    Access::Read => OFlags::RDONLY,
                    Access::Write => OFlags::RDWR,
                    Access::Create => OFlags::RDWR | OFlags::CREATE,
                    Access::Truncate => OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC,
                };
                let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                Ok(Some(openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?.into()))
            }
        }
    }

    /// Opens and locks a file, like [`Directory::open_regular`]. Windows: by the sharing of the open file, because a lock on its content
    /// would keep other processes from reading it; it keeps its name meanwhile.
    ///
    /// # Errors
    /// Those of the system, and [`io::ErrorKind::ResourceBusy`] if another process has locked it.
    pub fn lock_file(&self, name: &str, access: Access) -> io::Result<Option<File>> {
        let file = self.open_regular(name, access)?;
        match file.as_ref().map(File::try_lock) {
            Some(Err(TryLockError::WouldBlock)) => Err(io::ErrorKind::ResourceBusy.into()),
            Some(Err(TryLockError::Error(error))) => Err(error),
            Some(Ok(())) | None => Ok(file),
        }
    }

    /// Returns the names in the directory.
    ///
    /// # Errors
    /// Those of the system.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.retain(|name| name != "." && name != "..");
        Ok(names)
    }

    /// Renames a file; one that has the new name is replaced.
    ///
    /// # Errors
    /// Those of the system.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Makes the names of files durable. Windows: does nothing, the file system's journal does it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    /// Returns the number of names that a file has; None if the file system does not count them. Windows: a file that is open keeps its
    /// name.
    ///
    /// # Errors
    /// Those of the system.
    pub fn links(file: &File) -> io::Result<u64> {
        Ok(file.metadata()?.nlink())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Closing it is not enough: a process that another thread starts has a copy of it until it runs its program. An error
        // changes nothing: the lock ends with the last copy then.
        _ = self.0.unlock();
    }
}

fn is_same(named: rustix::io::Result<Stat>, held: &File) -> io::Result<bool> {
    match named {
        Ok(named) => {
            let held = fstat(held)?;
            Ok((named.st_dev, named.st_ino) == (held.st_dev, held.st_ino))
        }
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
