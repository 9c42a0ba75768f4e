//! Running processes: waited for by what they do, told signals, killed when dropped.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process that a test has started.
pub struct Process {
    child: Child,
    output: Option<JoinHandle<String>>,
    errors: BufReader<std::process::ChildStderr>,
}

/// What a process has left.
#[derive(Debug)]
pub struct Left {
    pub code: Option<i32>,
    /// What has ended it, if it was a signal.
    pub signal: Option<i32>,
    pub output: String,
    /// What was not read by [`Process::error_line`] before.
    pub errors: String,
}

impl Process {
    /// Starts a command.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let output = spawn(move || {
            let mut output = String::new();
            stdout.read_to_string(&mut output).unwrap();
            output
        });
        let errors = BufReader::new(child.stderr.take().unwrap());
        Self { child, output: Some(output), errors }
    }

    /// The next line on standard error, without its end.
    pub fn error_line(&mut self) -> String {
        let mut line = String::new();
        self.errors.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Sends a signal to the process, and to no other.
    pub fn signal(&mut self, signal: Signal) {
        // One that has been waited for may be somebody else by now.
        assert!(self.child.try_wait().unwrap().is_none(), "it has ended");
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub fn end(mut self) -> Left {
        until("it ends", || self.child.try_wait().unwrap());
        let mut errors = String::new();
        self.errors.read_to_string(&mut errors).unwrap();
        let output = self.output.take().unwrap().join().unwrap();
        let status = self.child.wait().unwrap();
        Left { code: status.code(), signal: status.signal(), output, errors }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something is there.
#[track_caller]
pub fn until<T>(what: &str, mut there: impl FnMut() -> Option<T>) -> T {
    const PATIENCE: Duration = Duration::from_secs(60);
    let begun = mqkv::clock::monotonic();
    loop {
        if let Some(found) = there() {
            return found;
        }
        assert!(mqkv::clock::monotonic() - begun < PATIENCE, "waited in vain: {what}");
        sleep(Duration::from_millis(5));
    }
}

/// Waits until a file has a whole line, and returns it.
#[track_caller]
pub fn line_in(path: &Path) -> String {
    until(&path.display().to_string(), || {
        let text = fs::read_to_string(path).ok()?;
        text.split_once('\n').map(|(line, _)| line.to_owned())
    })
}

/// Whether a process runs; one that has ended and is not yet waited for does not.
pub fn is_running(id: &str) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{id}/stat")) else { return false };
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}
