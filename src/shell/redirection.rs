//! Output redirection: the output of one line goes to a command or a file instead of the screen.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tokio::process::{Child, Command as SystemCommand};

use crate::commands::process::{child, file};
use crate::commands::{CommandError, Kind};
use crate::platform;

/// The destination of a redirected output.
#[derive(Debug)]
pub enum Redirection {
    Command {
        child: Child,
        /// The standard input of the command.
        input: File,
    },
    /// A file that is written when the output is complete.
    File { path: PathBuf, bytes: Vec<u8> },
}

impl Redirection {
    pub fn to_command(line: Vec<u8>) -> Result<Self, CommandError> {
        let (child, input) = start(line)?;
        Ok(Self::Command { child, input })
    }

    /// Collects the output for a file.
    #[must_use]
    pub fn to_file(path: Vec<u8>) -> Self {
        Self::File { path: platform::os_string(path).into(), bytes: Vec::new() }
    }

    pub fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Self::File { bytes, .. } => bytes.extend_from_slice(data),
            Self::Command { input, .. } => input.write_all(data)?,
        }
        Ok(())
    }

    /// Waits for the command, or writes the file if `is_complete`. Returns a message about the file.
    ///
    /// # Errors
    /// The file cannot be written, or the command not be waited for.
    pub async fn finish(self, is_complete: bool) -> Result<Option<String>, CommandError> {
        match self {
            Self::Command { child, input } => {
                drop(input);
                wait(child).await?;
                Ok(None)
            }
            Self::File { path, .. } if !is_complete => {
                Ok(Some(format!("{} was not changed", path.display())))
            }
            Self::File { path, bytes } => {
                file::write(&path, &bytes)?;
                let count =
                    if bytes.len() == 1 { "1 byte".to_owned() } else { format!("{} bytes", bytes.len()) };
                Ok(Some(format!("wrote {count} to {}", path.display())))
            }
        }
    }
}

/// Shows a text in a pager until it ends. Returns whether the pager could be run.
pub async fn page(pager: Vec<u8>, text: &[u8]) -> Result<bool, CommandError> {
    let (child, mut input) = start(pager)?;
    // A pager may end before it has read everything.
    let _ = input.write_all(text);
    drop(input);
    Ok(child::could_run(wait(child).await?))
}

/// Starts a command. Returns its standard input too.
fn start(line: Vec<u8>) -> Result<(Child, File), CommandError> {
    let mut command = SystemCommand::from(platform::shell_command(&platform::os_string(line)));
    command.stdin(Stdio::piped());
    let mut child = command.spawn().map_err(cannot_run)?;
    // A verb emits its records synchronously, so the pipe has to block.
    let input = child.stdin.take().ok_or_else(|| io::ErrorKind::BrokenPipe.into());
    let input = input.and_then(platform::blocking_stdin).map_err(cannot_run)?;
    Ok((child, input))
}

/// Runs a line of the shell in the foreground of the terminal; without one, the login shell. Returns its exit code if that is
/// not zero.
pub async fn run_program(line: Option<&str>, login_shell: OsString) -> Result<Option<i32>, CommandError> {
    let command = line.map(|line| platform::shell_command(line.as_ref()));
    let mut command = SystemCommand::from(command.unwrap_or_else(|| Command::new(login_shell)));
    let child = command.spawn().map_err(cannot_run)?;
    Ok(wait(child).await?.filter(|code| *code != 0))
}

async fn wait(mut child: Child) -> Result<Option<i32>, CommandError> {
    Ok(child.wait().await.map_err(cannot_run)?.code())
}

fn cannot_run(error: io::Error) -> CommandError {
    CommandError::new(Kind::NotExecutable, format!("cannot run the command: {error}"))
}
