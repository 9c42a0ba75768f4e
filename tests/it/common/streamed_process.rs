//! A process whose output the test reads line by line while it runs.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::spawn;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::bounded::wait_for_exit;
use crate::a_watchdog::bounded;

/// Far longer than any step of a test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running process; killed when dropped.
pub struct StreamedProcess {
    child: Child,
    output: Receiver<String>,
    errors: Receiver<String>,
}

impl StreamedProcess {
    pub fn start(command: &mut Command) -> Self {
        Self::read(command.spawn().unwrap())
    }

    /// Reads the output of a process that has been started with pipes.
    pub fn read(mut child: Child) -> Self {
        let output = lines(child.stdout.take().unwrap());
        let errors = lines(child.stderr.take().unwrap());
        Self { child, output, errors }
    }

    /// Waits for the next line of standard output.
    pub fn line(&self) -> String {
        next(&self.output, "standard output").unwrap_or_else(|| {
            let errors = std::iter::from_fn(|| next(&self.errors, "standard error")).collect::<Vec<_>>();
            panic!("standard output has ended; standard error: {errors:#?}")
        })
    }

    /// Waits for the next line of standard error.
    pub fn error_line(&self) -> String {
        next(&self.errors, "standard error").unwrap_or_else(|| panic!("standard error has ended"))
    }

    /// Waits for the next line of a server's log, and returns it without its time, whose format is checked.
    #[track_caller]
    pub fn log_line(&self) -> String {
        let line = self.error_line();
        let (time, message) = line.split_once("  ").unwrap_or_else(|| panic!("no time: {line}"));
        let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000Z", "{line}");
        message.to_owned()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Waits for the process to exit. Returns the unread lines of standard output and standard error, and the exit code.
    pub fn end(mut self) -> (Vec<String>, Vec<String>, Option<i32>) {
        let output = std::iter::from_fn(|| next(&self.output, "standard output")).collect();
        let errors = std::iter::from_fn(|| next(&self.errors, "standard error")).collect();
        (output, errors, wait_for_exit(&mut self.child).code())
    }
}

impl Drop for StreamedProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = bounded(|| self.child.wait());
    }
}

/// Reads lines in a thread, so that the test can wait for the next one with a timeout.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            let text = String::from_utf8_lossy(&line);
            if sender.send(text.trim_end_matches('\n').to_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}

#[track_caller]
fn next(lines: &Receiver<String>, name: &str) -> Option<String> {
    match lines.recv_timeout(TIMEOUT) {
        Ok(line) => Some(line),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => panic!("timed out: a line of {name}"),
    }
}
