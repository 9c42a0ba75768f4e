//! Errors of a ledger: files that cannot be opened, read or written.

use std::path::PathBuf;
use std::{error, fmt, io};

/// Failure to open, read or write the files of a store.
#[derive(Debug)]
pub struct StorageError {
    /// The directory.
    pub path: PathBuf,
    pub kind: StorageErrorKind,
}

/// Cause of a [`StorageError`].
#[derive(Debug)]
pub enum StorageErrorKind {
    /// Another process has the files open.
    InUse,
    /// There is no store, where none is created.
    Missing,
    /// This path, of a file in the directory, is a pipe, a device or a directory.
    NotAFile(PathBuf),
    /// This path, of a file in the directory, has a number that no store gets to.
    OutOfRange(PathBuf),
    /// The directory, or its lock file, is not the one any more that this process has locked: what has become of it, and what to do.
    Replaced(&'static str),
    /// The directory had a store, and there is neither a snapshot nor a log.
    Lost,
    /// A file is corrupt or missing: its name, and the place.
    Corrupt(String),
    /// Another version of this program wrote the files, in this format; 0: one before the numbered ones.
    UnsupportedFormat(u64),
    /// Files were replaced while they were copied, in each of these attempts.
    Changing(u32),
    /// The directory belongs to this node of an exchange, and is not opened as such.
    OtherNode(String),
    Io(io::Error),
    /// The files cannot be used for another reason.
    Other(String),
}

/// A key, a value or a row is too long for the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordTooLong;

impl StorageErrorKind {
    /// Whether the disk, a quota or the limit of a file has no room left.
    #[must_use]
    pub fn is_lack_of_room(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self, Self::Io(error) if matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge))
    }

    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// Returns the error of a record that cannot be decoded although the checksum is right.
    #[must_use]
    pub fn malformed_record(file: &str) -> Self {
        Self::Corrupt(format!("{file}: a record is malformed"))
    }

    /// Adds the name of a file to the system's error.
    #[must_use]
    pub fn of_file(self, name: &str) -> Self {
        match self {
            Self::Io(error) => Self::Io(io::Error::new(error.kind(), format!("{name}: {error}"))),
            other => other,
        }
    }
}

impl From<io::Error> for StorageErrorKind {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<RecordTooLong> for StorageErrorKind {
    fn from(_: RecordTooLong) -> Self {
        Self::Other("a key, a value or a row is too long for the format".to_owned())
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.kind {
            StorageErrorKind::InUse => write!(out, "{path} is in use by another process"),
            StorageErrorKind::Missing => write!(out, "there is no store in {path}"),
            StorageErrorKind::NotAFile(path) => {
                write!(out, "{} is not a regular file", path.display())
            }
            StorageErrorKind::OutOfRange(path) => {
                write!(out, "{} is no file of a store: its number is out of range", path.display())
            }
            StorageErrorKind::Replaced(what) => write!(out, "cannot use {path}: {what}"),
            StorageErrorKind::Lost => write!(out, "the snapshot and the log of {path} are missing"),
            StorageErrorKind::Corrupt(what) => write!(out, "{path} is corrupt: {what}"),
            StorageErrorKind::UnsupportedFormat(0) => {
                write!(out, "{path} has the files of an earlier version of mqkv")
            }
            StorageErrorKind::UnsupportedFormat(format) => {
                write!(out, "{path} has format {format}; this version reads and writes another one")
            }
            StorageErrorKind::Changing(attempts) => {
                write!(out, "the files of {path} changed in each of {attempts} attempts to copy them")
            }
            StorageErrorKind::OtherNode(node) => write!(out, "{path} belongs to {node}"),
            StorageErrorKind::Io(error) => write!(out, "cannot use {path}: {error}"),
            StorageErrorKind::Other(what) => write!(out, "cannot use {path}: {what}"),
        }
    }
}

impl error::Error for StorageError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &self.kind {
            StorageErrorKind::Io(error) => Some(error),
            _ => None,
        }
    }
}
