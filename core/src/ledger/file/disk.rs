//! What the ledger needs of a directory. Tests implement it by a disk that loses power and fails.

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;

use super::entry::Moment;
use crate::ledger::StorageErrorKind;

/// File that a process locks while it uses the directory.
pub const LOCK_NAME: &str = "lock";
/// File that only takes room, so that keys can be deleted from a store that has filled the disk.
pub const RESERVE_NAME: &str = "reserve";
/// The end of the name of a file that is not complete.
const NEW: &str = ".new";
/// Files of the versions before the first release.
const OLD_NAMES: [&str; 2] = ["store.redb", "store.log"];

/// A directory of files. A name that was created, replaced or removed is durable after [`Disk::sync_names`] only.
pub trait Disk: Debug + Send + Sync {
    /// Path of the directory, for messages.
    fn path(&self) -> PathBuf;

    fn names(&self) -> io::Result<Vec<String>>;

    /// Opens a regular file.
    ///
    /// # Errors
    /// The file does not exist, is not a regular one, or cannot be opened.
    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, StorageErrorKind>;

    /// Creates an empty file in place of any other.
    fn create(&self, name: &str) -> Result<Box<dyn DiskFile>, StorageErrorKind>;

    /// Replaces the file `to`, if any, by the file `from`, atomically.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names of all files durable.
    fn sync_names(&self) -> io::Result<()>;

    /// Makes the name of the directory durable.
    fn sync_own_name(&self) -> io::Result<()>;

    /// Returns the content of the file that is locked.
    fn read_lock(&self) -> io::Result<Vec<u8>>;

    /// Overwrites the beginning of the file that is locked.
    fn write_lock(&self, content: &[u8]) -> io::Result<()>;

    /// Draws a random number.
    fn random(&self) -> u64;

    fn moment(&self) -> Moment;
}

/// A regular file.
pub trait DiskFile: Debug + Send + Sync {
    fn bytes(&self) -> io::Result<u64>;

    /// Fills `out` from an offset on.
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()>;

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Takes room for a length without writing, where the file system can do so.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// Makes content and length durable.
    fn sync(&self) -> io::Result<()>;

    /// Makes the system forget the content, so that it is read from the disk. It must have been synced.
    fn drop_cache(&self) -> io::Result<()>;
}

/// Returns the name of a segment of the log.
#[must_use]
pub fn log_name(number: u64) -> String {
    format!("log-{number}")
}

/// Returns the name of the snapshot that was begun with a segment.
#[must_use]
pub fn snapshot_name(number: u64) -> String {
    format!("snapshot-{number}")
}

/// Returns the name of a file while it is written.
#[must_use]
pub fn new_name(name: &str) -> String {
    format!("{name}{NEW}")
}

/// The names of a directory, by what they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Numbers of the segments, in order.
    pub logs: Vec<u64>,
    /// Numbers of the snapshots, in order.
    pub snapshots: Vec<u64>,
    /// Files that were not completed.
    pub new: Vec<String>,
    pub has_reserve: bool,
    /// Whether there are files of an earlier format.
    pub is_old: bool,
}

impl Names {
    #[must_use]
    pub fn sort(names: &[String]) -> Self {
        let number = |name: &str, of: fn(u64) -> String| {
            let number = name.split_once('-')?.1.parse().ok()?;
            (of(number) == name).then_some(number)
        };
        let mut sorted = Self::default();
        for name in names {
            if let Some(number) = number(name, log_name) {
                sorted.logs.push(number);
            } else if let Some(number) = number(name, snapshot_name) {
                sorted.snapshots.push(number);
            } else if let Some(of) = name.strip_suffix(NEW)
                && (of == RESERVE_NAME || number(of, snapshot_name).is_some())
            {
                sorted.new.push(name.clone());
            }
            sorted.has_reserve |= name == RESERVE_NAME;
            sorted.is_old |= OLD_NAMES.contains(&name.as_str());
        }
        sorted.logs.sort_unstable();
        sorted.snapshots.sort_unstable();
        sorted
    }
}
