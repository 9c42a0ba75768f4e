//! The exit codes: one enum, one table.

use std::process::ExitCode;

use crate::commands::{Kind, Verdict};

/// How the process ends. What a code means never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Yes: done.
    Yes,
    /// The store says no.
    No,
    /// The command line makes no sense.
    Usage,
    /// Bad input data.
    Data,
    /// The broker or the store cannot be reached.
    Unavailable,
    /// A bug of ours.
    Bug,
    /// A local file.
    File,
    /// The store refused.
    Refused,
    /// Authentication or authorization.
    Authorization,
    /// The configuration makes no sense.
    Configuration,
    /// No answer in time.
    Timeout,
    /// The lock was lost while the child ran.
    LockLost,
    /// The child cannot be executed.
    NotExecutable,
    /// There is no such child to execute.
    NotFound,
    /// SIGINT.
    Interrupted,
    /// SIGTERM.
    Terminated,
    /// The child's own, or one that the caller has chosen (`lock -E`).
    Child(u8),
}

/// Every code and what it means, for `help exit-codes`.
pub const TABLE: [(Exit, &str); 16] = [
    (Exit::Yes, "yes: done, found, deleted, acquired"),
    (Exit::No, "the store says no: no such key, --nx or --nex not met, value differs, lock held"),
    (Exit::Usage, "the command line makes no sense"),
    (Exit::Data, "bad input data"),
    (Exit::Unavailable, "unavailable: name not found, connection refused or lost, no store there"),
    (Exit::Bug, "a bug of mqkv"),
    (Exit::File, "a local file cannot be read or written"),
    (Exit::Refused, "the store refused: quota, fencing, clock skew, unknown command, malformed reply"),
    (Exit::Authorization, "authentication or authorization"),
    (Exit::Configuration, "the configuration makes no sense, or says that nothing is to be written"),
    (
        Exit::Timeout,
        "no answer in time, or no change; for a write the outcome is unknown, and the message says so",
    ),
    (Exit::LockLost, "the lock was lost while the command ran, and the command was stopped"),
    (Exit::NotExecutable, "the command to run cannot be executed"),
    (Exit::NotFound, "the command to run is not found"),
    (Exit::Interrupted, "ended by SIGINT"),
    (Exit::Terminated, "ended by SIGTERM"),
];

impl Exit {
    /// The number that the caller sees.
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
    fn the_codes_are_what_they_have_always_been() {
        let codes: Vec<u8> = TABLE.iter().map(|(exit, _)| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 65, 69, 70, 74, 76, 77, 78, 124, 125, 126, 127, 130, 143]);
    }

    #[test]
    fn each_kind_of_failure_has_a_code_of_its_own() {
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
        assert!(kinds.is_sorted(), "the worst of many failures is the one with the greatest code");
        assert_eq!(Exit::from(Verdict::Yes).code(), 0);
        assert_eq!(Exit::from(Verdict::No).code(), 1);
    }
}
