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
/// File that exists while a new store does not have all keys with which it begins.
pub const SEEDING_NAME: &str = "seeding";
const LOG: &str = "log-";
const SNAPSHOT: &str = "snapshot-";
/// The end of the name of a file that is not complete.
const NEW: &str = ".new";
/// The greatest number in a name: a store that writes a segment a second gets there in millions of years.
const NUMBER_MAX: u64 = 1 << 48;
/// Files of the versions before the first release.
const OLD_NAMES: [&str; 2] = ["store.redb", "store.log"];

/// A directory of files. A name that was created, replaced or removed is durable after [`Disk::sync_names`] only.
pub trait Disk: Debug + Send + Sync {
    /// Path of the directory, for messages.
    fn path(&self) -> PathBuf;

    /// Checks that the path still leads to this directory, and that the file that is locked is in it. Whatever creates, renames or
    /// removes a file checks it first.
    ///
    /// # Errors
    /// [`StorageErrorKind::Replaced`], or the system cannot find out.
    fn check(&self) -> Result<(), StorageErrorKind>;

    fn names(&self) -> io::Result<Vec<String>>;

    /// Opens a regular file.
    ///
    /// # Errors
    /// The file does not exist, is not a regular one, or cannot be opened.
    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, StorageErrorKind>;

    /// Creates an empty file in place of any other.
    fn create(&self, name: &str) -> Result<Box<dyn DiskFile>, StorageErrorKind>;

    /// Replaces the file `to`, if any, by the file `from`, atomically.
    fn rename(&self, from: &str, to: &str) -> Result<(), StorageErrorKind>;

    fn remove(&self, name: &str) -> Result<(), StorageErrorKind>;

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

    /// Returns what no other file has at the same time, whatever its name.
    fn identity(&self) -> io::Result<(u64, u64)>;

    /// Fills `out` from an offset on.
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()>;

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Takes room for a length without writing, where the file system can do so.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// Makes content and length durable. Fails if the file has no name any more.
    fn sync(&self) -> io::Result<()>;

    /// Makes the system forget the content, so that it is read from the disk. It must have been synced.
    fn drop_cache(&self) -> io::Result<()>;
}

/// Returns the name of a segment of the log.
#[must_use]
pub fn log_name(number: u64) -> String {
    format!("{LOG}{number}")
}

/// Returns the name of the snapshot that was begun with a segment.
#[must_use]
pub fn snapshot_name(number: u64) -> String {
    format!("{SNAPSHOT}{number}")
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
    /// A name whose number no store gets to.
    pub out_of_range: Option<String>,
}

impl Names {
    /// Whether a file of this name is one of a store.
    #[must_use]
    pub fn has(name: &str) -> bool {
        let own = [LOCK_NAME, RESERVE_NAME, SEEDING_NAME];
        let sorted = Self::sort(&[name.to_owned()]);
        own.contains(&name) || sorted != Self::default()
    }

    #[must_use]
    pub fn sort(names: &[String]) -> Self {
        let number = |name: &str, prefix: &str| {
            let digits = name.strip_prefix(prefix)?;
            let is_number = digits == "0" || (!digits.is_empty() && !digits.starts_with('0'));
            let is_number = is_number && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| digits.parse().unwrap_or(u64::MAX))
        };
        let mut sorted = Self::default();
        for name in names {
            let (log, snapshot) = (number(name, LOG), number(name, SNAPSHOT));
            match (log, snapshot) {
                (Some(number), _) | (_, Some(number)) if !(1..=NUMBER_MAX).contains(&number) => {
                    sorted.out_of_range = Some(name.clone());
                }
                (Some(number), _) => sorted.logs.push(number),
                (_, Some(number)) => sorted.snapshots.push(number),
                _ => {
                    let is_new = |of: &str| of == RESERVE_NAME || number(of, SNAPSHOT).is_some();
                    if name.strip_suffix(NEW).is_some_and(is_new) {
                        sorted.new.push(name.clone());
                    }
                }
            }
            sorted.has_reserve |= name == RESERVE_NAME;
            sorted.is_old |= OLD_NAMES.contains(&name.as_str());
        }
        sorted.logs.sort_unstable();
        sorted.snapshots.sort_unstable();
        sorted
    }
}
