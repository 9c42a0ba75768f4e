//! Status of a client's connection.

use std::time::Instant;

use super::error::Error;

/// The status of a client's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionStatus {
    /// The broker has not accepted the client yet.
    Connecting,
    /// The broker has accepted the client.
    Connected,
    /// The connection was lost; the client tries to reconnect.
    Lost {
        since: Instant,
        /// The cause of the loss, or of the last failed attempt.
        cause: String,
    },
    /// The session has ended with this error; every request fails.
    Ended(Error),
}

impl ConnectionStatus {
    /// Returns the error of a request after the end of the session.
    pub(super) fn end_error(&self) -> Error {
        match self {
            Self::Ended(error) => error.clone(),
            Self::Connecting | Self::Connected | Self::Lost { .. } => Error::Closed,
        }
    }

    /// Changes the status to `Lost`. A status that is `Lost` already keeps its time.
    pub(super) fn set_lost(&mut self, now: Instant, cause: &str) {
        let since = match self {
            Self::Lost { since, .. } => *since,
            _ => now,
        };
        *self = Self::Lost { since, cause: cause.to_owned() };
    }
}
