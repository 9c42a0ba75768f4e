//! The result of a verb and its exit status.

use super::error::Kind;

/// The result of a verb; it decides the exit status. The meaning of a status never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done, found, deleted, acquired.
    Yes,
    /// The store's answer is no: the key does not exist, or a condition does not hold.
    No,
    /// An error or a signal ended it, or a check failed that the records have reported.
    Failed(Kind),
    /// The exit status of a child process, 128 plus the signal's number if a signal ended it; or the one of `lock -E`.
    Child(u8),
}

impl Exit {
    /// Returns the exit status of the process.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Yes => 0,
            Self::No => 1,
            Self::Failed(kind) => kind.code(),
            Self::Child(code) => code,
        }
    }
}
