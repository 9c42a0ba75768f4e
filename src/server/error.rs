//! What can keep a server from starting.

use std::fmt;
use std::io;

use crate::broker::StartError;
use crate::server::storage::StorageError;
use std::net::SocketAddr;

/// Why a server did not start.
#[derive(Debug)]
pub enum Error {
    /// The settings contradict each other.
    Settings(&'static str),
    /// An address could not be listened on.
    Bind {
        /// The address as given.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// The address for operators could not be listened on.
    Admin {
        /// The address as given.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// The store cannot be read from the disk.
    Storage(StorageError),
    /// The system starts no other thread.
    Thread(io::Error),
}

impl From<StartError> for Error {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Settings(what) => Self::Settings(what),
            StartError::Bind { address, cause } => Self::Bind { address, cause },
            StartError::Thread(cause) => Self::Thread(cause),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(what) => write!(f, "the server's settings do not fit: {what}"),
            Self::Bind { address, cause } | Self::Admin { address, cause } => {
                write!(f, "cannot listen on {address}: {cause}")
            }
            Self::Storage(error) => error.fmt(f),
            Self::Thread(cause) => write!(f, "cannot start a thread: {cause}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Settings(_) => None,
            Self::Bind { cause, .. } | Self::Admin { cause, .. } | Self::Thread(cause) => Some(cause),
            Self::Storage(error) => Some(error),
        }
    }
}
