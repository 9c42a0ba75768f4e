//! A program in the background: in its own process group, so that Ctrl-C on the terminal does not end it, and ended with this process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};

use nix::sys::signal::Signal as Number;
use tokio::process::{Child, ChildStderr, ChildStdout, Command as AsyncCommand};

use super::child::end_with_this_process;
use crate::platform::types::Signal;

/// A running program. Dropping it kills its process group.
#[derive(Debug)]
pub struct Background {
    child: Child,
    has_ended: bool,
}

impl Background {
    /// Starts a program with empty input. Returns its standard output and standard error too.
    ///
    /// # Errors
    /// Those of the system.
    pub fn spawn(mut command: Command) -> io::Result<(Self, ChildStdout, ChildStderr)> {
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        end_with_this_process(&mut command);
        let mut child = AsyncCommand::from(command).kill_on_drop(true).spawn()?;
        let outputs = child.stdout.take().zip(child.stderr.take());
        let (stdout, stderr) = outputs.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((Self { child, has_ended: false }, stdout, stderr))
    }

    /// Waits for the end of the program; its status is None if another part of this process has taken it. Cancel safe.
    pub async fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.wait().await.ok();
        self.has_ended = true;
        status
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if !self.has_ended {
            Signal::Other(Number::SIGKILL as i32).send_to_group_of(&self.child);
        }
    }
}
