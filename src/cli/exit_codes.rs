//! The table of exit codes: their meaning, for the help. The numbers are in `commands/error.rs`.

use std::process::ExitCode;

use crate::commands::{Exit, Kind};

/// The codes with their meaning, for `help exit-codes`.
pub const TABLE: [(Exit, &str); 16] = [
    (Exit::Yes, "yes: done, found, deleted, acquired"),
    (Exit::No, "no: key not found, --nx or --nex not met, value differs, lock held"),
    (Exit::Failed(Kind::Usage), "usage error"),
    (Exit::Failed(Kind::Data), "invalid input data"),
    (
        Exit::Failed(Kind::Unavailable),
        "unavailable: name not found, connection refused or lost, no store at this broker",
    ),
    (Exit::Failed(Kind::Bug), "internal error"),
    (Exit::Failed(Kind::File), "a local file cannot be read or written"),
    (
        Exit::Failed(Kind::Refused),
        "the store refused: quota, fencing, clock skew, unknown command, malformed reply",
    ),
    (Exit::Failed(Kind::Authorization), "authentication or authorization failed"),
    (Exit::Failed(Kind::Configuration), "invalid configuration, or a write through a read-only context"),
    (
        Exit::Failed(Kind::Timeout),
        "no answer in time, or no change; for a write the outcome is unknown, and the message reports it",
    ),
    (Exit::Failed(Kind::LockLost), "the lock was lost while the command ran, and the command was stopped"),
    (Exit::Failed(Kind::NotExecutable), "the command is not executable"),
    (Exit::Failed(Kind::NotFound), "the command was not found"),
    (Exit::Failed(Kind::Interrupted), "ended by SIGINT"),
    (Exit::Failed(Kind::Terminated), "ended by SIGTERM"),
];

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
    fn the_worst_of_several_failures_has_the_greatest_code() {
        let kinds = TABLE.into_iter().filter_map(|(exit, _)| match exit {
            Exit::Failed(kind) => Some(kind),
            _ => None,
        });
        let mut by_code: Vec<_> = kinds.collect();
        by_code.sort_by_key(|kind| kind.code());
        assert!(by_code.len() == 14 && by_code.is_sorted());
    }
}
