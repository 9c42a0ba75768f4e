//! A locked directory of the file system.

use std::fs::File;
use std::io;
use std::path::{self, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::disk::{Disk, DiskFile, LOCK_NAME, Names};
use super::entry::Moment;
use crate::ledger::StorageErrorKind;
use crate::platform::{self, Access};
use crate::{clock, random};

/// For how long the state of the kernel's clock is not asked for again: that takes microseconds of each commit.
const SYNCHRONIZATION_MS: u64 = 1_000;
/// The most bytes of the lock file that are read.
const LOCK_BYTES_MAX: usize = 1024;

/// A locked directory. No other process can use it while the value lives.
///
/// The lock is on the directory itself, because a file in it can be removed, and another one be made in its place. All names are
/// relative to the open directory, because another directory can get its path. Where a file system has no locks on directories (NFS),
/// only the file `lock` keeps other processes out.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The path that must lead to this directory.
    absolute: PathBuf,
    directory: platform::Directory,
    lock: Locked,
    is_writable: bool,
    /// Whether the wall clock may be wrong, and until when that is known.
    synchronization: Mutex<Option<(u64, bool)>>,
}

impl Directory {
    /// Locks a directory for this process; creates it, readable by its owner only, if it is missing.
    ///
    /// # Errors
    /// Another process has locked it, or it cannot be created.
    pub fn lock(path: &Path) -> Result<Self, StorageErrorKind> {
        create_directory(path)?;
        let directory = platform::Directory::lock(path).map_err(of_lock)?;
        let lock = Locked::file(&directory, path, Access::Create)?;
        Ok(Self::new(path, directory, lock, true))
    }

    /// Locks the directory of a store that exists. If it is only read, it need not be writable.
    ///
    /// # Errors
    /// Another process has locked it, or there is no store in it.
    pub fn lock_existing(path: &Path, is_writable: bool) -> Result<Self, StorageErrorKind> {
        let directory = platform::Directory::lock(path).map_err(of_existing)?;
        match Locked::file(&directory, path, access(is_writable)) {
            Ok(lock) => Ok(Self::new(path, directory, lock, is_writable)),
            Err(kind) if kind.is_not_found() => Err(cause_of_missing_lock(&directory.names()?)),
            Err(kind) => Err(kind),
        }
    }

    /// Opens the directory of a store that exists, which another process may use: it is only read, and nothing in it is locked.
    ///
    /// # Errors
    /// There is no store in it, or it cannot be read.
    pub fn unlocked(path: &Path) -> Result<Self, StorageErrorKind> {
        let directory = platform::Directory::open(path).map_err(of_existing)?;
        match directory.open_regular(LOCK_NAME, Access::Read) {
            Ok(Some(lock)) => Ok(Self::new(path, directory, Locked(lock), false)),
            Ok(None) => Err(StorageErrorKind::NotAFile(path.join(LOCK_NAME))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(cause_of_missing_lock(&directory.names()?))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn new(path: &Path, directory: platform::Directory, lock: Locked, is_writable: bool) -> Self {
        // Without a working directory, the path is all that is known.
        let absolute = path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self {
            path: path.to_owned(),
            absolute,
            directory,
            lock,
            is_writable,
            synchronization: Mutex::default(),
        }
    }

    fn open_regular(&self, name: &str, access: Access) -> Result<Box<dyn DiskFile>, StorageErrorKind> {
        let file = self.directory.open_regular(name, access)?;
        RegularFile::open(file.ok_or_else(|| StorageErrorKind::NotAFile(self.path.join(name)))?)
    }
}

fn access(is_writable: bool) -> Access {
    if is_writable { Access::Write } else { Access::Read }
}

/// Returns why the directory of a store that exists cannot be used.
fn of_existing(error: io::Error) -> StorageErrorKind {
    match error.kind() {
        io::ErrorKind::NotFound => StorageErrorKind::Missing,
        _ => of_lock(error),
    }
}

fn of_lock(error: io::Error) -> StorageErrorKind {
    match error.kind() {
        io::ErrorKind::ResourceBusy => StorageErrorKind::InUse,
        _ => error.into(),
    }
}

/// The lock file, which this process has locked, but for [`Directory::unlocked`].
#[derive(Debug)]
struct Locked(File);

impl Locked {
    fn file(directory: &platform::Directory, path: &Path, access: Access) -> Result<Self, StorageErrorKind> {
        let file = directory.lock_file(LOCK_NAME, access).map_err(of_lock)?;
        file.map(Self).ok_or_else(|| StorageErrorKind::NotAFile(path.join(LOCK_NAME)))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // As for the directory: another process may have a copy of it.
        _ = self.0.unlock();
    }
}

impl Disk for Directory {
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn check(&self) -> Result<(), StorageErrorKind> {
        if !self.directory.is_at(&self.absolute)? {
            return Err(StorageErrorKind::Replaced(
                "it was moved, removed or replaced: restart with the directory to use",
            ));
        }
        if !self.directory.contains(LOCK_NAME, &self.lock.0)? {
            return Err(StorageErrorKind::Replaced(
                "its file lock was removed or replaced: restart to read the directory again",
            ));
        }
        Ok(())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.directory.names()
    }

    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, StorageErrorKind> {
        if name == LOCK_NAME {
            // Windows opens it once while it is locked.
            return RegularFile::open(self.lock.0.try_clone()?);
        }
        self.open_regular(name, access(self.is_writable))
    }

    fn create(&self, name: &str) -> Result<Box<dyn DiskFile>, StorageErrorKind> {
        self.check()?;
        self.open_regular(name, Access::Truncate)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageErrorKind> {
        self.check()?;
        Ok(self.directory.rename(from, to)?)
    }

    fn remove(&self, name: &str) -> Result<(), StorageErrorKind> {
        self.check()?;
        Ok(self.directory.remove(name)?)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.directory.sync()
    }

    fn sync_own_name(&self) -> io::Result<()> {
        sync_parents(&self.path)
    }

    fn read_lock(&self) -> io::Result<Vec<u8>> {
        // From its beginning: it is read again after an unclean end.
        let mut content = vec![0; LOCK_BYTES_MAX];
        let len = platform::read_at(&self.lock.0, 0, &mut content)?;
        content.truncate(len);
        Ok(content)
    }

    fn write_lock(&self, content: &[u8]) -> io::Result<()> {
        platform::write_at(&self.lock.0, 0, content)
    }

    fn random(&self) -> u64 {
        random::u64()
    }

    fn moment(&self) -> Moment {
        let (boot, boot_ms) = clock::since_boot().unwrap_or_default();
        let mut known = self.synchronization.lock().unwrap_or_else(PoisonError::into_inner);
        let (until_ms, is_unsynchronized) = known.unwrap_or_default();
        if boot_ms < until_ms {
            return Moment { boot, boot_ms, is_unsynchronized };
        }
        let is_unsynchronized = clock::is_synchronized() == Some(false);
        *known = Some((boot_ms.saturating_add(SYNCHRONIZATION_MS), is_unsynchronized));
        Moment { boot, boot_ms, is_unsynchronized }
    }
}

#[derive(Debug)]
struct RegularFile {
    file: File,
    /// Whether the file system counted the names of the file when it was opened.
    has_links: bool,
}

impl RegularFile {
    fn open(file: File) -> Result<Box<dyn DiskFile>, StorageErrorKind> {
        let has_links = platform::Directory::links(&file)? > 0;
        Ok(Box::new(Self { file, has_links }))
    }
}

impl DiskFile for RegularFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        platform::file_id(&self.file)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        platform::read_exact_at(&self.file, at, out)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        platform::write_at(&self.file, at, bytes)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        platform::allocate(&self.file, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        platform::sync_data(&self.file)?;
        if self.has_links && platform::Directory::links(&self.file)? == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it was removed"));
        }
        Ok(())
    }

    fn drop_cache(&self) -> io::Result<()> {
        platform::drop_cache(&self.file)
    }
}

/// Returns why a directory that has no lock file cannot be used.
fn cause_of_missing_lock(names: &[String]) -> StorageErrorKind {
    let names = Names::sort(names);
    if !names.logs.is_empty() || !names.snapshots.is_empty() {
        StorageErrorKind::Other(format!("its file {LOCK_NAME} is missing; create an empty one"))
    } else if names.is_old {
        StorageErrorKind::UnsupportedFormat(0)
    } else {
        StorageErrorKind::Missing
    }
}

fn create_directory(path: &Path) -> io::Result<()> {
    platform::create_private_directory(path).map_err(|error| match error.kind() {
        // The path exists and is something else than a directory.
        io::ErrorKind::AlreadyExists => io::ErrorKind::NotADirectory.into(),
        _ => error,
    })
}

/// Makes the names of a directory and of those above it durable: each of them may be new.
pub(super) fn sync_parents(path: &Path) -> io::Result<()> {
    path.ancestors().skip(1).try_for_each(|parent| {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        match platform::sync_directory(parent) {
            // One that cannot be opened or synced by this process is not ours, and existed before.
            Err(error) if is_not_ours(&error) => Ok(()),
            other => other,
        }
    })
}

fn is_not_ours(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    matches!(error.kind(), InvalidInput | PermissionDenied | ReadOnlyFilesystem | Unsupported)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::ledger::file::disk::{RESERVE_NAME, log_name, new_name, snapshot_name};

    fn is_replaced<T>(result: Result<T, StorageErrorKind>) -> bool {
        matches!(result, Err(StorageErrorKind::Replaced(_)))
    }

    #[test]
    fn a_moved_directory_creates_renames_and_removes_no_file_in_the_one_that_has_its_path() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("kept");
        let moved = Directory::lock(&path).unwrap();
        let names = [log_name(1), snapshot_name(1), new_name(&snapshot_name(2)), RESERVE_NAME.to_owned()];
        let create = |disk: &Directory, text: &[u8]| {
            names.iter().for_each(|name| disk.create(name).unwrap().write(0, text).unwrap());
        };
        create(&moved, b"moved");
        fs::rename(&path, home.path().join("moved")).unwrap();
        let other = Directory::lock(&path).unwrap();
        create(&other, b"other");
        for name in &names {
            assert!(is_replaced(moved.create("new")));
            assert!(is_replaced(moved.rename(name, "renamed")));
            assert!(is_replaced(moved.remove(name)));
            let mut content = [0; 5];
            moved.open(name).unwrap().read(0, &mut content).unwrap();
            assert_eq!(&content, b"moved");
            assert_eq!(fs::read(path.join(name)).unwrap(), b"other");
        }
        let mut sorted = moved.names().unwrap();
        sorted.sort_unstable();
        let mut all = [&names[..], &[LOCK_NAME.to_owned()]].concat();
        all.sort_unstable();
        assert_eq!(sorted, all);
        drop(other);
        fs::remove_dir_all(&path).unwrap();
        assert!(is_replaced(moved.check()));
        fs::rename(home.path().join("moved"), &path).unwrap();
        moved.check().unwrap();
    }

    #[test]
    fn a_directory_with_another_lock_file_is_not_changed_and_stays_locked() {
        let home = tempfile::tempdir().unwrap();
        let disk = Directory::lock(home.path()).unwrap();
        disk.create("log-1").unwrap();
        for is_replaced_by_file in [false, true] {
            fs::remove_file(home.path().join(LOCK_NAME)).unwrap();
            if is_replaced_by_file {
                fs::write(home.path().join(LOCK_NAME), "").unwrap();
            }
            assert!(is_replaced(disk.remove("log-1")));
            for is_writable in [false, true] {
                let other = Directory::lock_existing(home.path(), is_writable);
                assert!(matches!(other, Err(StorageErrorKind::InUse)), "{other:?}");
            }
            let other = Directory::lock(home.path());
            assert!(matches!(other, Err(StorageErrorKind::InUse)), "{other:?}");
            fs::write(home.path().join(LOCK_NAME), "").unwrap();
        }
        assert!(home.path().join("log-1").exists());
    }

    #[test]
    fn a_file_that_has_no_name_any_more_is_not_durable() {
        let home = tempfile::tempdir().unwrap();
        let disk = Directory::lock(home.path()).unwrap();
        let file = disk.create("log-1").unwrap();
        file.sync().unwrap();
        fs::remove_file(home.path().join("log-1")).unwrap();
        assert_eq!(file.sync().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
