//! Where the output of one line goes instead of to the screen: into a command, or into a file.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command as System, Stdio};

use crate::commands::process::file;
use crate::commands::{CommandError, Kind};
use crate::net::detached::run_detached;

/// What reads the lines of `|` and `\!`.
pub const SHELL: &str = "/bin/sh";

/// A way out for bytes.
#[derive(Debug)]
pub enum Outlet {
    /// A command's standard input; none when it has closed it.
    Command {
        /// The command.
        child: Child,
        /// Its standard input, until it has had enough.
        input: Option<ChildStdin>,
    },
    /// A file, written when all is there.
    File {
        /// The file.
        path: PathBuf,
        /// What it will hold.
        bytes: Vec<u8>,
    },
}

impl Outlet {
    /// Starts a command.
    ///
    /// # Errors
    /// The system cannot start it.
    pub fn command(line: Vec<u8>) -> Result<Self, CommandError> {
        let spawned =
            System::new(SHELL).arg("-c").arg(OsString::from_vec(line)).stdin(Stdio::piped()).spawn();
        let mut child = spawned.map_err(not_started)?;
        let input = child.stdin.take();
        Ok(Self::Command { child, input })
    }

    /// Collects for a file.
    #[must_use]
    pub fn file(path: Vec<u8>) -> Self {
        Self::File { path: OsString::from_vec(path).into(), bytes: Vec::new() }
    }

    /// Takes bytes.
    ///
    /// # Errors
    /// The command has had enough.
    pub fn put(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Self::File { bytes, .. } => bytes.extend_from_slice(data),
            Self::Command { input: Some(input), .. } => input.write_all(data)?,
            Self::Command { input: None, .. } => return Err(io::ErrorKind::BrokenPipe.into()),
        }
        Ok(())
    }

    /// Waits for the command, or writes the file if all went well. Returns what to say.
    ///
    /// # Errors
    /// The system has no thread to wait in, or the file cannot be written.
    pub async fn finish(self, is_well: bool) -> Result<Option<String>, CommandError> {
        match self {
            Self::Command { child, input } => {
                drop(input);
                wait(child).await?;
                Ok(None)
            }
            Self::File { path, .. } if !is_well => Ok(Some(format!("{} is not touched", path.display()))),
            Self::File { path, bytes } => {
                file::write(&path, &bytes)?;
                Ok(Some(format!("wrote {} bytes to {}", bytes.len(), path.display())))
            }
        }
    }
}

/// Runs a command of the system, with the terminal as its own. Returns its code, if it is not zero.
///
/// # Errors
/// The system cannot start it, or has no thread to wait in.
pub async fn system(program: OsString, line: Option<&str>) -> Result<Option<i32>, CommandError> {
    let mut command = System::new(program);
    if let Some(line) = line {
        command.arg("-c").arg(line);
    }
    let child = command.spawn().map_err(not_started)?;
    Ok(wait(child).await?.filter(|code| *code != 0))
}

async fn wait(mut child: Child) -> Result<Option<i32>, CommandError> {
    let status = run_detached(move || child.wait()).await.flatten();
    let cannot_wait =
        |error| CommandError::new(Kind::NotExecutable, format!("cannot wait for a command: {error}"));
    Ok(status.map_err(cannot_wait)?.code())
}

fn not_started(error: io::Error) -> CommandError {
    CommandError::new(Kind::NotExecutable, format!("cannot start a command: {error}"))
}
