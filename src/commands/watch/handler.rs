//! Runs a command for each change, one at a time, with the value on standard input.

use std::ffi::OsString;
use std::io;
use std::process::{ExitStatus, Stdio};

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::pending::{Change, Pending};
use super::record::{CommandEnded, Ended};
use crate::commands::error::{CommandError, Kind};
use crate::platform::{self, Signal};
use crate::protocol::{Key, Value};

/// The command of a watch.
#[derive(Debug)]
pub struct Handler {
    program: OsString,
    arguments: Vec<OsString>,
    pending: Pending,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    key: Key,
    child: Child,
    /// The task that writes the value.
    writer: Option<JoinHandle<()>>,
}

impl Handler {
    /// Creates a handler that runs this command.
    #[must_use]
    pub fn new(program: OsString, arguments: Vec<OsString>) -> Self {
        Self { program, arguments, pending: Pending::default(), running: None }
    }

    /// Runs the command for a change, now or after the changes before it.
    pub fn handle(&mut self, change: Change) -> Result<(), CommandError> {
        self.pending.push(change);
        self.run_next()
    }

    /// Waits for the end of the command, and returns a record if it failed. Never returns if no command runs.
    /// Cancel-safe.
    pub async fn ended(&mut self) -> Result<Option<CommandEnded>, CommandError> {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        let status = running.child.wait().await;
        let Some(Running { key, writer, .. }) = self.running.take() else { return Ok(None) };
        // A descendant of the command may have inherited its standard input, and never read it.
        writer.inspect(JoinHandle::abort);
        let status = status.map_err(|error| self.error(&error))?;
        Ok(ended(status).map(|ended| CommandEnded { key, ended }))
    }

    /// Runs the command for the next change, if it is not running.
    pub fn run_next(&mut self) -> Result<(), CommandError> {
        if self.running.is_none()
            && let Some(change) = self.pending.pop()
        {
            self.running = Some(self.spawn(change).map_err(|error| self.error(&error))?);
        }
        Ok(())
    }

    /// Returns whether no command runs; then no change waits either.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running.is_none()
    }

    /// Forwards a signal to the command, and drops the changes that wait.
    pub fn forward(&mut self, signal: Signal) {
        self.pending.clear();
        if let Some(running) = &self.running {
            signal.send_to_group_of(&running.child);
        }
    }

    /// Drops the changes that wait.
    pub fn clear(&mut self) {
        self.pending.clear();
    }

    fn spawn(&self, change: Change) -> io::Result<Running> {
        let Change { trigger, key, found, value, version, sequence } = change;
        let value = value.filter(|value| !value.is_empty());
        let mut command = Command::new(platform::program(&self.program));
        command
            .args(&self.arguments)
            .env("MQKV_EVENT", trigger.name())
            .env("MQKV_KEY", variable(key.as_bytes()))
            .env("MQKV_FOUND", if found { "true" } else { "false" })
            .env("MQKV_SEQ", sequence.to_string())
            .stdin(if value.is_some() { Stdio::piped() } else { Stdio::null() });
        match version {
            Some(version) => command.env("MQKV_VERSION", version.to_string()),
            // This watch may itself run in the handler of another one.
            None => command.env_remove("MQKV_VERSION"),
        };
        // In a group of its own the command and its children get Ctrl-C once: forwarded, not from the terminal.
        let mut child = platform::spawn_in_group(&mut command)?;
        let writer = value.and_then(|value| write_value(&mut child, value));
        Ok(Running { key, child, writer })
    }

    fn error(&self, error: &io::Error) -> CommandError {
        let (kind, what) = match error.kind() {
            io::ErrorKind::NotFound => (Kind::NotFound, "command not found".to_owned()),
            _ => (Kind::NotExecutable, error.to_string()),
        };
        CommandError::new(kind, format!("cannot run {}: {what}", self.program.display()))
    }
}

/// Writes the value in a task: a command that reads late or never must not block the watch.
fn write_value(child: &mut Child, value: Value) -> Option<JoinHandle<()>> {
    let mut stdin = child.stdin.take()?;
    Some(tokio::spawn(async move {
        // A command that closes its standard input has not failed.
        let _ = stdin.write_all(&value).await;
    }))
}

/// Returns how a command ended; None if it succeeded.
fn ended(status: ExitStatus) -> Option<Ended> {
    if let Some(signal) = platform::ended_by(status) {
        return Some(Ended::Signal(signal));
    }
    status.code().filter(|code| *code != 0).map(Ended::Code)
}

/// Returns a key as the value of an environment variable, which cannot contain NUL.
fn variable(key: &[u8]) -> OsString {
    if key.contains(&0) { key.escape_ascii().to_string().into() } else { platform::os_string(key.to_vec()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_unchanged_in_the_environment_unless_it_contains_nul() {
        assert_eq!(variable(b"line 1/\"temp\""), "line 1/\"temp\"");
        assert_eq!(variable(b"a\0\xff"), "a\\x00\\xff");
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_is_not_utf_8_is_unchanged_in_the_environment() {
        use std::os::unix::ffi::OsStrExt;
        assert_eq!(variable(b"\xff\n").as_bytes(), b"\xff\n");
    }
}
