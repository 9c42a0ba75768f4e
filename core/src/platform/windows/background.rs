//! A program in the background, which ends with this process.

use std::io;
use std::process::{Command, ExitStatus, Stdio};

use tokio::process::{Child, ChildStderr, ChildStdout, Command as AsyncCommand};

use super::child::Job;

/// A running program. Dropping it ends it with its descendants.
#[derive(Debug)]
pub struct Background {
    child: Child,
    _job: Job,
}

impl Background {
    pub fn spawn(mut command: Command) -> io::Result<(Self, ChildStdout, ChildStderr)> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let job = Job::new()?;
        // Ctrl-C on the console does not reach another group.
        let mut child = job.spawn(AsyncCommand::from(command).kill_on_drop(true))?;
        let outputs = child.stdout.take().zip(child.stderr.take());
        let (stdout, stderr) = outputs.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((Self { child, _job: job }, stdout, stderr))
    }

    pub async fn ended(&mut self) -> Option<ExitStatus> {
        self.child.wait().await.ok()
    }
}
