//! What is known of the connection: up, lost, or gone for good.

use std::time::Instant;

use super::error::Error;

/// The state of a client's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// The broker has let the client in.
    Up,
    /// It is lost; another one is tried for.
    Lost {
        /// Since when.
        since: Instant,
        /// Why, or why the last try has failed.
        cause: String,
    },
    /// There is none, and there will be none: every request fails.
    Ended(Error),
}

impl LinkState {
    /// What it is after a loss: one that lasts goes on.
    pub(super) fn lost(&mut self, now: Instant, cause: &str) {
        let since = match self {
            Self::Lost { since, .. } => *since,
            _ => now,
        };
        *self = Self::Lost { since, cause: cause.to_owned() };
    }
}
