//! The system's shell, and text that it passes to processes.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::windows::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use tokio::process::ChildStdin;

pub const SHELL: &str = "cmd.exe";

pub const EDITOR: &str = "notepad.exe";

#[must_use]
pub fn program(word: &OsStr) -> OsString {
    which::which(word).map_or_else(|_| word.to_owned(), PathBuf::into_os_string)
}

#[must_use]
pub fn shell_command(line: &OsStr) -> Command {
    let mut command = Command::new(SHELL);
    // With /S the quotes around the line are removed, and all others stay.
    let mut quoted = OsString::from("\"");
    quoted.push(line);
    quoted.push("\"");
    command.raw_arg("/D /S /C").raw_arg(quoted);
    command
}

/// Blanks separate words, except in quotes.
#[must_use]
pub fn editor_command(editor: &OsStr, file: &Path) -> Vec<OsString> {
    let (mut words, mut is_quoted) = (vec![String::new()], false);
    for c in editor.to_string_lossy().chars() {
        match (c, words.last_mut()) {
            ('"', _) => is_quoted = !is_quoted,
            (' ', _) if !is_quoted => words.push(String::new()),
            (c, Some(word)) => word.push(c),
            (_, None) => {}
        }
    }
    let words = words.into_iter().filter(|word| !word.is_empty()).map(OsString::from);
    words.chain([file.into()]).collect()
}

pub fn blocking_stdin(input: ChildStdin) -> io::Result<File> {
    input.into_owned_handle().map(File::from)
}

#[must_use]
pub fn os_string(bytes: Vec<u8>) -> OsString {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

#[must_use]
pub fn ended_by(_: ExitStatus) -> Option<i32> {
    None
}
