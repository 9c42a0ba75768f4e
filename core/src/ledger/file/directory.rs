//! A locked directory of the file system.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::disk::{Disk, DiskFile, LOCK_NAME};
use super::entry::Moment;
use crate::ledger::StorageErrorKind;
use crate::{clock, random};

/// For how long the state of the kernel's clock is not asked for again: that takes microseconds of each commit.
const SYNCHRONIZATION_MS: u64 = 1_000;
/// The most bytes of the lock file that are read.
const LOCK_BYTES_MAX: usize = 1024;

/// A locked directory. No other process can use it while the value lives.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    lock: File,
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
        let mut options = OpenOptions::new();
        for_owner_only(options.read(true).write(true).create(true).truncate(false));
        Self::lock_with(path, &options, true)
    }

    /// Locks a directory that is only read; it need not be writable.
    ///
    /// # Errors
    /// Another process has locked it, or there is none.
    pub fn lock_to_read(path: &Path) -> Result<Self, StorageErrorKind> {
        let locked = Self::lock_with(path, OpenOptions::new().read(true), false);
        locked.map_err(|kind| match kind {
            StorageErrorKind::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                StorageErrorKind::Missing
            }
            kind => kind,
        })
    }

    fn lock_with(path: &Path, options: &OpenOptions, is_writable: bool) -> Result<Self, StorageErrorKind> {
        let lock = open_regular(options, &path.join(LOCK_NAME))?;
        match lock.try_lock() {
            Ok(()) => {
                Ok(Self { path: path.to_owned(), lock, is_writable, synchronization: Mutex::default() })
            }
            Err(TryLockError::WouldBlock) => Err(StorageErrorKind::InUse),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread starts has a copy of it until it runs its program. An
        // error changes nothing: the lock ends with the last copy then.
        _ = self.lock.unlock();
    }
}

impl Disk for Directory {
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
        fs::read_dir(&self.path)?.map(name).collect()
    }

    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, StorageErrorKind> {
        let mut options = OpenOptions::new();
        options.read(true).write(self.is_writable);
        Ok(Box::new(RegularFile(open_regular(&options, &self.path.join(name))?)))
    }

    fn create(&self, name: &str) -> Result<Box<dyn DiskFile>, StorageErrorKind> {
        let mut options = OpenOptions::new();
        for_owner_only(options.read(true).write(true).create(true).truncate(true));
        Ok(Box::new(RegularFile(open_regular(&options, &self.path.join(name))?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        sync_directory(&self.path)
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
        let len = self.lock.read_at(&mut content, 0)?;
        content.truncate(len);
        Ok(content)
    }

    fn write_lock(&self, content: &[u8]) -> io::Result<()> {
        self.lock.write_all_at(content, 0)
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
struct RegularFile(File);

impl DiskFile for RegularFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, at)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    #[cfg(target_os = "linux")]
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.0, rustix::fs::FallocateFlags::empty(), 0, bytes)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn allocate(&self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    #[cfg(target_os = "linux")]
    fn drop_cache(&self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(&self.0, 0, None, rustix::fs::Advice::DontNeed)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn drop_cache(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a path that is a regular file or does not exist. Opening a pipe would block, and a device may have no end. A symbolic link
/// is not followed: what it names may belong to another store, or to none.
///
/// # Errors
/// The path is neither, or cannot be opened.
fn open_regular(options: &OpenOptions, path: &Path) -> Result<File, StorageErrorKind> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(StorageErrorKind::NotAFile(path.to_owned())),
        _ => Ok(options.open(path)?),
    }
}

fn for_owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600)
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
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

/// Makes the names of new files durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
