//! A locked directory of the file system.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{self, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::disk::{Disk, DiskFile, LOCK_NAME, Names};
use super::entry::Moment;
use crate::ledger::StorageErrorKind;
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
    directory: Locked,
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
        let directory = Locked::directory(path)?;
        let lock = Locked::file(&directory, path, OFlags::RDWR | OFlags::CREATE)?;
        Ok(Self::new(path, directory, lock, true))
    }

    /// Locks the directory of a store that exists. If it is only read, it need not be writable.
    ///
    /// # Errors
    /// Another process has locked it, or there is no store in it.
    pub fn lock_existing(path: &Path, is_writable: bool) -> Result<Self, StorageErrorKind> {
        let directory = Locked::directory(path).map_err(|kind| match kind {
            kind if kind.is_not_found() => StorageErrorKind::Missing,
            kind => kind,
        })?;
        let access = if is_writable { OFlags::RDWR } else { OFlags::RDONLY };
        match Locked::file(&directory, path, access) {
            Ok(lock) => Ok(Self::new(path, directory, lock, is_writable)),
            Err(kind) if kind.is_not_found() => Err(cause_of_missing_lock(&names(&directory.0)?)),
            Err(kind) => Err(kind),
        }
    }

    fn new(path: &Path, directory: Locked, lock: Locked, is_writable: bool) -> Self {
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

    fn open_regular(&self, name: &str, flags: OFlags) -> Result<Box<dyn DiskFile>, StorageErrorKind> {
        let file = open_regular(&self.directory.0, &self.path, name, flags)?;
        let has_links = fstat(&file)?.st_nlink > 0;
        Ok(Box::new(RegularFile { file, has_links }))
    }
}

impl From<Errno> for StorageErrorKind {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// An open file or directory that this process has locked.
#[derive(Debug)]
struct Locked(File);

impl Locked {
    fn directory(path: &Path) -> Result<Self, StorageErrorKind> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = File::from(openat(CWD, path, flags, Mode::empty())?);
        match directory.try_lock() {
            Err(TryLockError::WouldBlock) => Err(StorageErrorKind::InUse),
            // The file system may have no such locks.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Self(directory)),
        }
    }

    fn file(directory: &Self, path: &Path, flags: OFlags) -> Result<Self, StorageErrorKind> {
        let file = open_regular(&directory.0, path, LOCK_NAME, flags)?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(StorageErrorKind::InUse),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread starts has a copy of it until it runs its program. An
        // error changes nothing: the lock ends with the last copy then.
        _ = self.0.unlock();
    }
}

impl Disk for Directory {
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn check(&self) -> Result<(), StorageErrorKind> {
        let is_same = |named: rustix::io::Result<Stat>, held: &File| match named {
            Ok(named) => fstat(held).map(|held| (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(error),
        };
        if !is_same(statat(CWD, &self.absolute, AtFlags::empty()), &self.directory.0)? {
            return Err(StorageErrorKind::Replaced(
                "it was moved, removed or replaced: restart with the directory to use",
            ));
        }
        if !is_same(statat(&self.directory.0, LOCK_NAME, AtFlags::SYMLINK_NOFOLLOW), &self.lock.0)? {
            return Err(StorageErrorKind::Replaced(
                "its file lock was removed or replaced: restart to read the directory again",
            ));
        }
        Ok(())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        names(&self.directory.0)
    }

    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, StorageErrorKind> {
        self.open_regular(name, if self.is_writable { OFlags::RDWR } else { OFlags::RDONLY })
    }

    fn create(&self, name: &str) -> Result<Box<dyn DiskFile>, StorageErrorKind> {
        self.check()?;
        self.open_regular(name, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageErrorKind> {
        self.check()?;
        Ok(renameat(&self.directory.0, from, &self.directory.0, to)?)
    }

    fn remove(&self, name: &str) -> Result<(), StorageErrorKind> {
        self.check()?;
        Ok(unlinkat(&self.directory.0, name, AtFlags::empty())?)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.directory.0.sync_all()
    }

    fn sync_own_name(&self) -> io::Result<()> {
        // Each of the directories above may be new too.
        self.path.ancestors().skip(1).try_for_each(|parent| {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            match sync_directory(parent) {
                // One that cannot be opened or synced by this process is not ours, and existed before.
                Err(error) if is_not_ours(&error) => Ok(()),
                other => other,
            }
        })
    }

    fn read_lock(&self) -> io::Result<Vec<u8>> {
        // From its beginning: it is read again after an unclean end.
        let mut content = vec![0; LOCK_BYTES_MAX];
        let len = self.lock.0.read_at(&mut content, 0)?;
        content.truncate(len);
        Ok(content)
    }

    fn write_lock(&self, content: &[u8]) -> io::Result<()> {
        self.lock.0.write_all_at(content, 0)
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

impl DiskFile for RegularFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, at)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    #[cfg(target_os = "linux")]
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), 0, bytes)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn allocate(&self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()?;
        if self.has_links && fstat(&self.file)?.st_nlink == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it was removed"));
        }
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn drop_cache(&self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn drop_cache(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a name in a directory of this path that is a regular file or does not exist. Opening a pipe would block, and a device may have no end. A symbolic link
/// is not followed: what it names may belong to another store, or to none.
///
/// # Errors
/// The name is neither, or cannot be opened.
fn open_regular(directory: &File, path: &Path, name: &str, flags: OFlags) -> Result<File, StorageErrorKind> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
            Err(StorageErrorKind::NotAFile(path.join(name)))
        }
        _ => {
            let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            Ok(openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?.into())
        }
    }
}

fn names(directory: &File) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| name != "." && name != "..");
    Ok(names)
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
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path).map_err(|error| match error.kind() {
        // The path exists and is something else than a directory.
        io::ErrorKind::AlreadyExists => io::ErrorKind::NotADirectory.into(),
        _ => error,
    })
}

fn is_not_ours(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    matches!(error.kind(), InvalidInput | PermissionDenied | ReadOnlyFilesystem | Unsupported)
}

/// Whether the disk cannot read a sector. Everything else can be read nevertheless.
pub(super) fn is_unreadable(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

/// Makes the names of new files durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
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
