//! The user's editor.

use std::ffi::OsStr;
use std::path::Path;

use super::child;
use crate::commands::error::{CommandError, Kind};
use crate::platform::{self, GroupChange, Signal, Signals};

/// Runs an editor, a command with options, until it ends. Signals are passed on to it. Returns the last one that asked
/// this process to end, SIGINT and SIGQUIT excepted: their keys have a meaning in editors.
///
/// # Errors
/// [`Kind::File`] if the editor cannot be run, or if it fails without such a signal.
pub async fn run(editor: &OsStr, file: &Path, signals: &mut Signals) -> Result<Option<Signal>, CommandError> {
    let mut group = child::spawn(&platform::editor_command(editor, file), &[], &[])?;
    let mut ended_by = None;
    let code = loop {
        tokio::select! {
            biased;
            change = group.next() => match change.map_err(|error| failed(&error.to_string()))? {
                GroupChange::Ended(code) => break code,
                GroupChange::Suspended => group.suspend(),
                GroupChange::Gone => {}
            },
            signal = signals.next() => {
                group.signal(signal);
                if matches!(signal, Signal::Terminate | Signal::Hangup) {
                    ended_by = Some(signal);
                }
            }
        }
    };
    // An editor may have started a process that other windows use.
    group.leave();
    match (ended_by, code) {
        (Some(signal), _) => Ok(Some(signal)),
        (None, 0) => Ok(None),
        (None, code) => Err(failed_with(code.into())),
    }
}

/// Returns the error of an editor that ended with an exit status other than 0. Most do so because the user asked for it.
fn failed_with(code: i32) -> CommandError {
    let cause = format!("exit status {code}");
    match code {
        // The shell could not run the command.
        126 | 127 => failed(&cause),
        _ => CommandError::new(Kind::File, format!("the editor failed: {cause}")),
    }
}

/// Returns the error of an editor that could not be run.
#[must_use]
pub fn failed(cause: &str) -> CommandError {
    CommandError::new(Kind::File, format!("the editor failed: {cause}"))
        .hint("VISUAL or EDITOR sets the editor")
}
