//! The command that is run for changes: one at a time, the value on its standard input.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{ExitStatus, Stdio};

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::pending::{Change, Pending};
use crate::commands::error::{CommandError, Kind};
use crate::commands::output::{Ended, Output};

use crate::commands::process::signal::Signal;
use crate::protocol::{Key, Value};

/// Runs a command for changes.
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
    /// Who writes the value.
    feeder: Option<JoinHandle<()>>,
}

impl Handler {
    /// A handler that runs this command.
    #[must_use]
    pub fn new(program: OsString, arguments: Vec<OsString>) -> Self {
        Self { program, arguments, pending: Pending::default(), running: None }
    }

    /// Runs the command for a change, now or when those before it are done.
    ///
    /// # Errors
    /// The command cannot be run.
    pub fn handle(&mut self, change: Change) -> Result<(), CommandError> {
        self.pending.push(change);
        self.run_next()
    }

    /// Resolves when a run has ended, to what is to be said about it; never if there is none. May be dropped at any
    /// time.
    ///
    /// # Errors
    /// The system's: the end of the run cannot be learnt.
    pub async fn ended(&mut self) -> Result<Option<Output>, CommandError> {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        let status = running.child.wait().await;
        let Some(Running { key, feeder, .. }) = self.running.take() else { return Ok(None) };
        // A child of the command's may still hold its standard input, and never read it.
        feeder.inspect(JoinHandle::abort);
        let status = status.map_err(|error| self.trouble(&error))?;
        Ok(ended(status).map(|ended| Output::HandlerEnded { key, ended }))
    }

    /// Runs the command for the next change, unless it is running.
    ///
    /// # Errors
    /// The command cannot be run.
    pub fn run_next(&mut self) -> Result<(), CommandError> {
        if self.running.is_none()
            && let Some(change) = self.pending.pop()
        {
            self.running = Some(self.spawn(change).map_err(|error| self.trouble(&error))?);
        }
        Ok(())
    }

    /// Whether nothing runs, so that nothing waits either.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running.is_none()
    }

    /// Passes a signal on to what runs; what waits is forgotten.
    pub fn forward(&mut self, signal: Signal) {
        self.pending.clear();
        if let Some(running) = &self.running {
            signal.send_to_group_of(&running.child);
        }
    }

    /// Forgets what waits.
    pub fn forget(&mut self) {
        self.pending.clear();
    }

    fn spawn(&self, change: Change) -> io::Result<Running> {
        let Change { trigger, key, found, value, version, sequence } = change;
        let value = value.filter(|value| !value.is_empty());
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env("MQKV_EVENT", trigger.name())
            .env("MQKV_KEY", variable(key.as_bytes()))
            .env("MQKV_FOUND", if found { "true" } else { "false" })
            .env("MQKV_SEQ", sequence.to_string())
            .stdin(if value.is_some() { Stdio::piped() } else { Stdio::null() });
        match version {
            Some(version) => command.env("MQKV_VERSION", version.to_string()),
            // A watch within a handler: the outer one's version is not this one's.
            None => command.env_remove("MQKV_VERSION"),
        };
        // Ctrl-C reaches it once, through us, and so do the processes that it starts.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn()?;
        let feeder = value.and_then(|value| feed(&mut child, value));
        Ok(Running { key, child, feeder })
    }

    fn trouble(&self, error: &io::Error) -> CommandError {
        let (kind, what) = match error.kind() {
            io::ErrorKind::NotFound => (Kind::NotFound, "command not found".to_owned()),
            _ => (Kind::NotExecutable, format!("cannot run it: {error}")),
        };
        CommandError::new(kind, format!("{}: {what}", self.program.display()))
    }
}

/// Writes the value beside everything else: a command that reads late, or never, holds nobody up.
fn feed(child: &mut Child, value: Value) -> Option<JoinHandle<()>> {
    let mut stdin = child.stdin.take()?;
    Some(tokio::spawn(async move {
        // A command that does not want the value is no error.
        let _ = stdin.write_all(&value).await;
    }))
}

/// What is to be said about a run; nothing if all went well.
fn ended(status: ExitStatus) -> Option<Ended> {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return Some(Ended::Signal(signal));
    }
    status.code().filter(|code| *code != 0).map(Ended::Code)
}

/// A key as an environment variable, which holds any byte but NUL.
#[cfg(unix)]
fn variable(key: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    if key.contains(&0) { key.escape_ascii().to_string().into() } else { OsStr::from_bytes(key).to_owned() }
}

#[cfg(not(unix))]
fn variable(key: &[u8]) -> OsString {
    match std::str::from_utf8(key) {
        Ok(text) if !text.contains('\0') => OsStr::new(text).to_owned(),
        _ => key.escape_ascii().to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_into_the_environment_as_it_is_unless_it_holds_nul() {
        assert_eq!(variable(b"line 1/\"temp\""), "line 1/\"temp\"");
        assert_eq!(variable(b"a\0\xff"), "a\\x00\\xff");
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_is_no_text_stays_as_it_is() {
        use std::os::unix::ffi::OsStrExt;
        assert_eq!(variable(b"\xff\n").as_bytes(), b"\xff\n");
    }
}
