//! Exit codes.

use std::process::ExitCode;

use crate::commands::{Kind, Verdict};

/// Result of the process. The meaning of a code never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done, found, deleted, acquired.
    Yes,
    /// The key does not exist, or a condition is not met.
    No,
    /// Invalid command line.
    Usage,
    /// Invalid input data.
    Data,
    /// Broker or store unavailable.
    Unavailable,
    /// Internal error.
    Bug,
    /// Error of a local file.
    File,
    /// The store refused the request.
    Refused,
    /// Authentication or authorization failed.
    Authorization,
    /// Invalid configuration.
    Configuration,
    Timeout,
    /// The lock was lost while the child ran.
    LockLost,
    /// The child is not executable.
    NotExecutable,
    /// The child does not exist.
    NotFound,
    /// SIGINT.
    Interrupted,
    /// SIGTERM.
    Terminated,
    /// Code of the child, or the one of `lock -E`.
    Child(u8),
}

/// The codes with their meaning, for `help exit-codes`.
pub const TABLE: [(Exit, &str); 16] = [
    (Exit::Yes, "yes: done, found, deleted, acquired"),
    (Exit::No, "no: key not found, --nx or --nex not met, value differs, lock held"),
    (Exit::Usage, "usage error"),
    (Exit::Data, "invalid input data"),
    (Exit::Unavailable, "unavailable: name not found, connection refused or lost, no store at this broker"),
    (Exit::Bug, "internal error"),
    (Exit::File, "a local file cannot be read or written"),
    (Exit::Refused, "the store refused: quota, fencing, clock skew, unknown command, malformed reply"),
    (Exit::Authorization, "authentication or authorization failed"),
    (Exit::Configuration, "invalid configuration, or a write through a read-only context"),
    (
        Exit::Timeout,
        "no answer in time, or no change; for a write the outcome is unknown, and the message reports it",
    ),
    (Exit::LockLost, "the lock was lost while the command ran, and the command was stopped"),
    (Exit::NotExecutable, "the command is not executable"),
    (Exit::NotFound, "the command was not found"),
    (Exit::Interrupted, "ended by SIGINT"),
    (Exit::Terminated, "ended by SIGTERM"),
];

impl Exit {
    /// Returns the exit code of the process.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Yes => 0,
            Self::No => 1,
            Self::Usage => Kind::Usage.code(),
            Self::Data => Kind::Data.code(),
            Self::Unavailable => Kind::Unavailable.code(),
            Self::Bug => Kind::Bug.code(),
            Self::File => Kind::File.code(),
            Self::Refused => Kind::Refused.code(),
            Self::Authorization => Kind::Authorization.code(),
            Self::Configuration => Kind::Configuration.code(),
            Self::Timeout => Kind::Timeout.code(),
            Self::LockLost => Kind::LockLost.code(),
            Self::NotExecutable => Kind::NotExecutable.code(),
            Self::NotFound => Kind::NotFound.code(),
            Self::Interrupted => Kind::Interrupted.code(),
            Self::Terminated => Kind::Terminated.code(),
            Self::Child(code) => code,
        }
    }
}

impl From<Kind> for Exit {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Usage => Self::Usage,
            Kind::Data => Self::Data,
            Kind::Unavailable => Self::Unavailable,
            Kind::Bug => Self::Bug,
            Kind::File => Self::File,
            Kind::Refused => Self::Refused,
            Kind::Authorization => Self::Authorization,
            Kind::Configuration => Self::Configuration,
            Kind::Timeout => Self::Timeout,
            Kind::LockLost => Self::LockLost,
            Kind::NotExecutable => Self::NotExecutable,
            Kind::NotFound => Self::NotFound,
            Kind::Interrupted => Self::Interrupted,
            Kind::Terminated => Self::Terminated,
        }
    }
}

impl From<Verdict> for Exit {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Yes => Self::Yes,
            Verdict::No => Self::No,
            Verdict::NoAs(code) => Self::Child(code),
            Verdict::Failed(kind) => Self::from(kind),
            Verdict::Interrupted => Self::Interrupted,
            Verdict::Terminated => Self::Terminated,
            Verdict::Child(code) => Self::Child(code),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_codes_never_change() {
        let codes: Vec<u8> = TABLE.iter().map(|(exit, _)| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 65, 69, 70, 74, 76, 77, 78, 124, 125, 126, 127, 130, 143]);
    }

    #[test]
    fn each_kind_of_failure_has_its_own_exit_code() {
        let kinds = [
            (Kind::Usage, 2),
            (Kind::Data, 65),
            (Kind::Unavailable, 69),
            (Kind::Bug, 70),
            (Kind::File, 74),
            (Kind::Refused, 76),
            (Kind::Authorization, 77),
            (Kind::Configuration, 78),
            (Kind::Timeout, 124),
            (Kind::LockLost, 125),
            (Kind::NotExecutable, 126),
            (Kind::NotFound, 127),
            (Kind::Interrupted, 130),
            (Kind::Terminated, 143),
        ];
        for (kind, code) in kinds {
            assert_eq!(Exit::from(kind).code(), code, "{}", kind.name());
        }
        assert!(kinds.is_sorted(), "the worst of several failures has the greatest code");
        assert_eq!(Exit::from(Verdict::Yes).code(), 0);
        assert_eq!(Exit::from(Verdict::No).code(), 1);
    }
}
