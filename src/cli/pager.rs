//! Pager: long help on a terminal, page by page.

use std::ffi::OsString;
use std::io::Write;
use std::process::Stdio;

use crate::cli::environment;
use crate::cli::report::Reporter;
use crate::commands::CommandError;
use crate::commands::process::{child, stdout};
use crate::platform;

/// Returns the shell command of the pager for a text; None if the text fits on the terminal, or if there is no pager.
#[must_use]
pub fn command_for(text: &str) -> Option<OsString> {
    // The last row is for what follows: the prompt of the shell.
    let is_long = stdout::rows().is_some_and(|rows| text.lines().count() >= rows);
    is_long.then(environment::pager).flatten()
}

/// Shows a text: in a pager if it is longer than the terminal, else on standard output.
pub fn show(text: &str, reporter: &mut Reporter) -> Result<(), CommandError> {
    if command_for(text).is_some_and(|command| page(command, text)) {
        return Ok(());
    }
    Ok(reporter.data(text.as_bytes())?)
}

/// Runs a pager until it ends; returns whether it could be run.
fn page(command: OsString, text: &str) -> bool {
    let mut shell = platform::shell_command(&command);
    let Ok(mut pager) = shell.stdin(Stdio::piped()).spawn() else { return false };
    // Ctrl-C is a key of the pager. It is ignored from here on only, because a child would inherit that.
    platform::ignore_keys();
    if let Some(mut input) = pager.stdin.take() {
        // A pager may end before it has read everything.
        let _ = input.write_all(text.as_bytes());
    }
    pager.wait().is_ok_and(|status| child::could_run(status.code()))
}
