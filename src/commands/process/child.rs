//! Child processes of verbs: their errors, and the exit codes of shells.

use std::ffi::OsString;
use std::io;
use std::process::Command;

use crate::commands::error::{CommandError, Kind};
use crate::platform::{self, Group};

/// Returns whether a shell that ended with this exit code could run its command.
#[must_use]
pub fn could_run(code: Option<i32>) -> bool {
    !matches!(code, Some(126 | 127))
}

/// Starts a command, searched for in `PATH`, in its own process group, with `variables` set and the variables `without` removed. It
/// inherits the standard streams.
///
/// # Errors
/// [`Kind::NotFound`], [`Kind::NotExecutable`].
pub fn spawn(
    words: &[OsString],
    variables: &[(&str, OsString)],
    without: &[String],
) -> Result<Group, CommandError> {
    let (program, arguments) = words.split_first().ok_or_else(|| CommandError::usage("CMD is missing"))?;
    let mut command = Command::new(platform::program(program));
    command.args(arguments);
    for name in without {
        command.env_remove(name);
    }
    command.envs(variables.iter().map(|(name, value)| (*name, value)));
    Group::spawn(command).map_err(|error| {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => Kind::NotFound,
            _ => Kind::NotExecutable,
        };
        CommandError::new(kind, format!("cannot run {}: {error}", program.display()))
            .hint("for pipes, variables and shell built-ins: sh -c '...'")
    })
}
