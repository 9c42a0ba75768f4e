//! The exit codes: one enum, one table.

use std::process::ExitCode;

use crate::commands::{Kind, Verdict};

/// How the process ends. What a code means never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Yes: done.
    Yes = 0,
    /// The store says no.
    No = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// Bad input data.
    Data = 65,
    /// The broker or the store cannot be reached.
    Unavailable = 69,
    /// A bug of ours.
    Bug = 70,
    /// A local file.
    File = 74,
    /// The store refused.
    Refused = 76,
    /// Authentication or authorization.
    Authorization = 77,
    /// The configuration makes no sense.
    Configuration = 78,
    /// No answer in time.
    Timeout = 124,
}

/// Every code and what it means, for `help exit-codes`.
pub const TABLE: [(Exit, &str); 11] = [
    (Exit::Yes, "yes: done, found, deleted"),
    (Exit::No, "the store says no: no such key, --nx or --nex not met, value differs"),
    (Exit::Usage, "the command line makes no sense"),
    (Exit::Data, "bad input data"),
    (Exit::Unavailable, "unavailable: name not found, connection refused or lost, no store there"),
    (Exit::Bug, "a bug of mqkv"),
    (Exit::File, "a local file cannot be read or written"),
    (Exit::Refused, "the store refused: quota, fencing, clock skew, unknown command, malformed reply"),
    (Exit::Authorization, "authentication or authorization"),
    (Exit::Configuration, "the configuration makes no sense"),
    (Exit::Timeout, "no answer in time; for a write the outcome is unknown, and the message says so"),
];

impl Exit {
    /// The number that the caller sees.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
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
        }
    }
}

impl From<Verdict> for Exit {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Yes => Self::Yes,
            Verdict::No => Self::No,
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
        assert_eq!(codes, [0, 1, 2, 65, 69, 70, 74, 76, 77, 78, 124]);
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
        ];
        for (kind, code) in kinds {
            assert_eq!(Exit::from(kind).code(), code, "{}", kind.name());
        }
        assert_eq!(Exit::from(Verdict::Yes).code(), 0);
        assert_eq!(Exit::from(Verdict::No).code(), 1);
    }
}
