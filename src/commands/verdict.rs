//! How a verb ends when nothing failed.

use super::error::Kind;

/// The result of a verb that did not fail; it decides the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done, found, deleted.
    Yes,
    /// The store's answer is no: the key does not exist, or a condition does not hold.
    No,
    /// The same, with an exit status that the user has chosen for it.
    NoAs(u8),
    /// A check failed, and the records have reported it.
    Failed(Kind),
    /// SIGINT ended it.
    Interrupted,
    /// SIGTERM ended it.
    Terminated,
    /// The exit status of a child process; 128 plus the signal's number if a signal ended it.
    Child(u8),
}
