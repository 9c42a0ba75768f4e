//! Errors of starting a server.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::broker::StartError;
use crate::ledger::StorageError;

/// The kind of error that keeps an instance from a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterErrorKind {
    /// The settings are invalid.
    Settings,
    /// A file of the TLS settings cannot be used.
    Files,
    /// etcd cannot be reached.
    Unavailable,
    /// etcd does not accept the user, or does not allow it to use the cluster.
    Authentication,
    /// The state in etcd has another format.
    Incompatible,
}

/// The cause of a failed start.
#[derive(Debug)]
pub enum Error {
    /// The settings contradict each other.
    Settings(&'static str),
    /// A listener could not be bound.
    Bind { address: SocketAddr, cause: io::Error },
    /// An admin listener could not be bound.
    Admin { address: SocketAddr, cause: io::Error },
    /// The storage cannot be opened.
    Storage(StorageError),
    /// etcd, or what is in it, cannot be used.
    Cluster { kind: ClusterErrorKind, reason: String, hint: Option<String> },
    /// The system cannot create a thread.
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
            Self::Settings(what) => write!(f, "invalid server settings: {what}"),
            Self::Bind { address, cause } | Self::Admin { address, cause } => {
                write!(f, "cannot listen on {address}: {cause}")
            }
            Self::Storage(error) => error.fmt(f),
            Self::Cluster { reason, .. } => f.write_str(reason),
            Self::Thread(cause) => write!(f, "cannot start a thread: {cause}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Settings(_) | Self::Cluster { .. } => None,
            Self::Bind { cause, .. } | Self::Admin { cause, .. } | Self::Thread(cause) => Some(cause),
            Self::Storage(error) => Some(error),
        }
    }
}
