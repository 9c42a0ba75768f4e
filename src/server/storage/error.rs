//! Errors of the storage: files that cannot be opened, read or written.

use std::path::PathBuf;
use std::{error, fmt, io};

use super::record::{FORMAT_VERSION, ROWS_FORMAT_VERSION, RecordTooLong};

/// Failure to open, read or write the files of a store.
#[derive(Debug)]
pub struct StorageError {
    /// The file of the tables, also if the write-ahead log beside it is the cause.
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
    /// This path, of the tables or of a file beside them, is a pipe, a device or a directory.
    NotAFile(PathBuf),
    /// The tables are missing or empty, and there is no write-ahead log that could have keys.
    Lost(&'static str),
    /// The tables are corrupt, or are no tables of this program.
    Corrupt(String),
    /// The write-ahead log is missing or corrupt, although the tables need it.
    CorruptWal(String),
    /// Another version of this program wrote the files, in this format.
    UnsupportedFormat(u64),
    /// The folder belongs to this node of an exchange, and is not opened as such.
    OtherNode(String),
    Io(io::Error),
    /// The storage crate failed for another reason.
    Other(String),
}

impl StorageErrorKind {
    /// Whether the disk, a quota or the limit of a file has no room left.
    #[must_use]
    pub fn is_lack_of_room(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self, Self::Io(error) if matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge))
    }

    pub(super) fn is_corrupt(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Corrupt(_) | Self::CorruptWal(_))
    }
}

impl From<io::Error> for StorageErrorKind {
    fn from(error: io::Error) -> Self {
        // The storage crate reports a file that is not one of its own as invalid data, and reads beyond the end of one
        // with a corrupt length.
        if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) {
            Self::Corrupt(error.to_string())
        } else {
            Self::Io(error)
        }
    }
}

impl From<RecordTooLong> for StorageErrorKind {
    fn from(_: RecordTooLong) -> Self {
        Self::Other("a key, a value or a row is too long for the format".to_owned())
    }
}

impl From<redb::Error> for StorageErrorKind {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::DatabaseAlreadyOpen => Self::InUse,
            redb::Error::Io(error) => error.into(),
            // Without the prefix "DB corrupted": the message says that already.
            redb::Error::Corrupted(what) => Self::Corrupt(what),
            error @ (redb::Error::TableTypeMismatch { .. }
            | redb::Error::TableIsMultimap(_)
            | redb::Error::TableDoesNotExist(_)
            | redb::Error::TypeDefinitionChanged { .. }
            | redb::Error::UpgradeRequired(_)) => Self::Corrupt(error.to_string()),
            error => Self::Other(error.to_string()),
        }
    }
}

macro_rules! from_each {
    ($($error:ty),*) => {
        $(impl From<$error> for StorageErrorKind {
            fn from(error: $error) -> Self {
                redb::Error::from(error).into()
            }
        })*
    };
}

from_each!(
    redb::DatabaseError,
    redb::StorageError,
    redb::TransactionError,
    redb::TableError,
    redb::CommitError,
    redb::CompactionError
);

impl fmt::Display for StorageError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.kind {
            StorageErrorKind::InUse => write!(out, "{path} is in use by another process"),
            StorageErrorKind::Missing => {
                // ENOENT is 2 on every Unix.
                write!(out, "cannot read {path}: {}", io::Error::from_raw_os_error(2))
            }
            StorageErrorKind::NotAFile(path) => {
                write!(out, "{} is not a regular file", path.display())
            }
            StorageErrorKind::Lost(what) => write!(out, "{path} {what}"),
            StorageErrorKind::Corrupt(what) => write!(out, "{path} is corrupt or not a store: {what}"),
            StorageErrorKind::CorruptWal(what) => {
                let directory = self.path.parent().unwrap_or(&self.path).display();
                write!(out, "{directory} is corrupt: {what}")
            }
            StorageErrorKind::UnsupportedFormat(format) => {
                write!(
                    out,
                    "{path} has format {format}; this version reads and writes formats {FORMAT_VERSION} and \
                     {ROWS_FORMAT_VERSION}"
                )
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
