//! Why the file of the store cannot be opened, read or written.

use std::fmt;
use std::io;
use std::path::PathBuf;

use redb::DatabaseError;

/// Why the file cannot be opened, read or written.
#[derive(Debug)]
pub struct StorageError {
    /// The file.
    pub path: PathBuf,
    /// The trouble.
    pub kind: StorageErrorKind,
}

/// What can be wrong with the file.
#[derive(Debug)]
pub enum StorageErrorKind {
    /// Another process has it open.
    InUse,
    /// There is none; only where nobody means to make one.
    Missing,
    /// This is in its place, or in that of a file beside it, and a pipe, a device or a folder.
    NotAFile(PathBuf),
    /// It holds something else than it should, in these words.
    Corrupt(String),
    /// What was written last, in the log, is missing or not whole, in these words.
    CorruptWal(String),
    /// It was written by another version of this program, in this format.
    UnsupportedFormat(u64),
    /// The system refused.
    Io(io::Error),
    /// The storage crate refused, in these words.
    Other(String),
}

impl StorageErrorKind {
    /// Whether something is there that is not as it was written.
    pub(super) fn is_corrupt(&self) -> bool {
        matches!(self, Self::Corrupt(_) | Self::CorruptWal(_))
    }
}

impl From<io::Error> for StorageErrorKind {
    fn from(error: io::Error) -> Self {
        // What is no file of this kind is reported so.
        if error.kind() == io::ErrorKind::InvalidData {
            Self::Corrupt(error.to_string())
        } else {
            Self::Io(error)
        }
    }
}

impl From<redb::Error> for StorageErrorKind {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::DatabaseAlreadyOpen => Self::InUse,
            redb::Error::Io(error) => error.into(),
            error @ (redb::Error::Corrupted(_)
            | redb::Error::TableTypeMismatch { .. }
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

from_each!(DatabaseError, redb::StorageError, redb::TransactionError, redb::TableError, redb::CommitError);

impl fmt::Display for StorageError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.kind {
            StorageErrorKind::InUse => write!(out, "{path} is in use by another process"),
            StorageErrorKind::Missing => write!(out, "there is no {path}"),
            StorageErrorKind::NotAFile(path) => {
                write!(out, "{} is not a regular file", path.display())
            }
            StorageErrorKind::Corrupt(what) => write!(out, "{path} is damaged or no store: {what}"),
            StorageErrorKind::CorruptWal(what) => {
                let folder = self.path.parent().unwrap_or(&self.path).display();
                write!(out, "{folder} is damaged: {what}")
            }
            StorageErrorKind::UnsupportedFormat(format) => {
                let ours = super::tables::FORMAT;
                write!(out, "{path} has format {format}; this version reads and writes format {ours}")
            }
            StorageErrorKind::Io(error) => write!(out, "cannot use {path}: {error}"),
            StorageErrorKind::Other(what) => write!(out, "cannot use {path}: {what}"),
        }
    }
}

impl std::error::Error for StorageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            StorageErrorKind::Io(error) => Some(error),
            _ => None,
        }
    }
}
