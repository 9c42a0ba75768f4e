//! The system's shell, and text that it passes to processes.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

use tokio::process::ChildStdin;

/// The shell that runs the commands of `|` and `\!` at the prompt.
pub const SHELL: &str = "/bin/sh";

/// The editor of a user who has named none.
pub const EDITOR: &str = "vi";

/// Returns the program that a word names, for [`Command::new`]. Windows: with the ending that it has, such as `code.cmd` for `code`.
#[must_use]
pub fn program(word: &OsStr) -> &OsStr {
    word
}

/// Returns a command that runs a line of the shell.
#[must_use]
pub fn shell_command(line: &OsStr) -> Command {
    let mut command = Command::new(SHELL);
    command.arg("-c").arg(line);
    command
}

/// Returns the words that run an editor, a command with options, for a file. The shell splits the command into words, and opens
/// quotes.
#[must_use]
pub fn editor_command(editor: &OsStr, file: &Path) -> Vec<OsString> {
    let mut line = editor.to_owned();
    line.push(" \"$1\"");
    vec![SHELL.into(), "-c".into(), line, "sh".into(), file.into()]
}

/// Returns the standard input of a process as a file, which blocks.
///
/// # Errors
/// Those of the system.
pub fn blocking_stdin(input: ChildStdin) -> io::Result<File> {
    input.into_owned_fd().map(File::from)
}

/// Returns bytes as text of the system. Windows: what is not UTF-8 is replaced by U+FFFD.
#[must_use]
pub fn os_string(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes)
}

/// Returns the number of the signal that has ended a process.
#[must_use]
pub fn ended_by(status: ExitStatus) -> Option<i32> {
    status.signal()
}
