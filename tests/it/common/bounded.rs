//! Runs that must come to an end by themselves, and what is the same in each of them.

use std::ffi::OsStr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::{Place, shown};

/// Longer than any run takes on a slow machine, and far shorter than the timeouts that a test gives to one that must
/// not wait for them.
const TRIES_MAX: u32 = 3000;
const TRY_EVERY: Duration = Duration::from_millis(10);

impl Place {
    /// Runs it and returns everything that it did, without what differs from run to run. Whoever does not come to an
    /// end within half a minute has failed.
    #[track_caller]
    pub fn run_bounded(&self, words: &[&str]) -> String {
        shown_bounded(&mut self.command(words))
    }

    /// Alike, against a broker.
    #[track_caller]
    pub fn run_at(&self, url: &str, words: &[&str]) -> String {
        self.run_bounded(&[&["-b", url], words].concat())
    }

    /// Alike, with bytes on standard input.
    #[track_caller]
    pub fn run_at_with_input(&self, url: &str, words: &[&str], input: &[u8]) -> String {
        stable(&self.run_with_input(&[&["-b", url], words].concat(), input))
    }

    /// A command with words of any bytes.
    pub fn command_os(&self, words: &[&OsStr]) -> Command {
        let mut command = self.command(&[]);
        command.args(words);
        command
    }

    /// Standard output as it is, of a run that must have gone well.
    #[track_caller]
    pub fn bytes_at(&self, url: &str, words: &[&str]) -> Vec<u8> {
        let output = self.command(&[&["-b", url], words].concat()).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", shown(&output));
        output.stdout
    }
}

/// Runs a command, bounded, and returns what is the same in each run.
#[track_caller]
pub fn shown_bounded(command: &mut Command) -> String {
    let mut child = command.spawn().unwrap();
    // Nobody here says more than fits into a pipe before it ends.
    ended(&mut child);
    stable(&shown(&child.wait_with_output().unwrap()))
}

/// Waits for a process's end.
#[track_caller]
pub fn ended(child: &mut Child) -> ExitStatus {
    for _ in 0..TRIES_MAX {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        sleep(TRY_EVERY);
    }
    let _ = child.kill();
    let _ = child.wait();
    panic!("it does not come to an end");
}

/// Sends a signal.
pub fn signal(child: &Child, name: &str) {
    let status = Command::new("sh")
        .args(["-c", &format!("kill -{name} {}", child.id())])
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "cannot send {name}");
}

/// Waits until something holds.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..TRIES_MAX {
        if holds() {
            return;
        }
        sleep(TRY_EVERY);
    }
    panic!("{what}: waited in vain");
}

/// Versions and ports differ from run to run: `VERSION` and `BROKER` stand for them.
pub fn stable(text: &str) -> String {
    const NODE: &str = ":StateStore";
    const ADDRESS: &str = "127.0.0.1:";
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(NODE) {
        let (before, after) = rest.split_at(at);
        out.push_str(before.trim_end_matches(|c: char| c.is_ascii_digit() || c == ':'));
        out.push_str("VERSION");
        rest = after.strip_prefix(NODE).unwrap_or(after);
    }
    out.push_str(rest);
    let mut parts = out.split(ADDRESS);
    let mut stable = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        stable.push_str("BROKER");
        stable.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    stable
}
