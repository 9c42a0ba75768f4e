//! A process that runs beside the test, read line by line.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{sleep, spawn};
use std::time::Duration;

use mqkv::clock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Far more than anything takes: whoever waits longer waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running process; killed when dropped.
pub struct Running {
    child: Child,
    output: Receiver<String>,
    words: Receiver<String>,
}

impl Running {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        Self::read(command.spawn().unwrap())
    }

    /// Begins to read what a process says.
    pub fn read(mut child: Child) -> Self {
        let output = lines(child.stdout.take().unwrap());
        let words = lines(child.stderr.take().unwrap());
        Self { child, output, words }
    }

    /// Waits for the next line of standard output.
    pub fn line(&self) -> String {
        next(&self.output, "standard output").unwrap_or_else(|| {
            let words = std::iter::from_fn(|| next(&self.words, "standard error")).collect::<Vec<_>>();
            panic!("standard output has ended, and standard error says {words:#?}")
        })
    }

    /// Waits for the next line of standard error.
    pub fn words(&self) -> String {
        next(&self.words, "standard error").unwrap_or_else(|| panic!("standard error has ended"))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Waits for its end: what is left of its output and of its words, and its exit code.
    pub fn end(mut self) -> (Vec<String>, Vec<String>, Option<i32>) {
        let output = std::iter::from_fn(|| next(&self.output, "standard output")).collect();
        let words = std::iter::from_fn(|| next(&self.words, "standard error")).collect();
        (output, words, self.status().code())
    }

    fn status(&mut self) -> ExitStatus {
        wait_until("the process ends", || self.child.try_wait().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for something to come true.
#[track_caller]
pub fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let begun = clock::monotonic();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        sleep(Duration::from_millis(2));
    }
}

/// Reads lines in a thread, so that the test can wait for one without waiting forever.
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
    match lines.recv_timeout(PATIENCE) {
        Ok(line) => Some(line),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => panic!("waited in vain for a line of {name}"),
    }
}
