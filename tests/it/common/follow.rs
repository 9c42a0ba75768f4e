//! A process that runs beside the test, followed line by line.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// Far more than anything takes: whoever waits longer waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);
const TRY_EVERY: Duration = Duration::from_millis(5);
const TRIES_MAX: u32 = 12_000;

/// A running process; killed when dropped.
pub struct Follow {
    child: Child,
    output: Option<Receiver<String>>,
    words: Receiver<String>,
}

impl Follow {
    /// Starts it.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let output = Some(lines(child.stdout.take().unwrap()));
        let words = lines(child.stderr.take().unwrap());
        Self { child, output, words }
    }

    /// Starts it with a standard output that nobody will read; the reader is to be dropped.
    pub fn start_unread(mut command: Command) -> (Self, std::process::ChildStdout) {
        let mut child = command.spawn().unwrap();
        let output = child.stdout.take().unwrap();
        let words = lines(child.stderr.take().unwrap());
        (Self { child, output: None, words }, output)
    }

    /// The next line of standard output.
    #[track_caller]
    pub fn line(&self) -> String {
        next(self.output.as_ref().unwrap()).unwrap_or_else(|| panic!("standard output has ended"))
    }

    /// The next line of standard error.
    #[track_caller]
    pub fn words(&self) -> String {
        next(&self.words).unwrap_or_else(|| panic!("standard error has ended"))
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let words = format!("kill -{name} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &words]).stderr(Stdio::null()).status().unwrap();
        assert!(status.success(), "cannot send {name}");
    }

    /// Waits for its end: what is left of its output and of its words, and its exit code.
    #[track_caller]
    pub fn end(mut self) -> (Vec<String>, Vec<String>, Option<i32>) {
        let output = self.output.take();
        let output = output.iter().flat_map(|lines| std::iter::from_fn(|| next(lines))).collect();
        let words = std::iter::from_fn(|| next(&self.words)).collect();
        for _ in 0..TRIES_MAX {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (output, words, status.code());
            }
            sleep(TRY_EVERY);
        }
        panic!("it does not come to an end");
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines in a thread, so that a test does not wait for one for ever.
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
fn next(lines: &Receiver<String>) -> Option<String> {
    match lines.recv_timeout(PATIENCE) {
        Ok(line) => Some(line),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => panic!("waited in vain for a line"),
    }
}
