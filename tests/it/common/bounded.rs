//! Commands that must exit by themselves, and transcripts without what differs from run to run.

use std::ffi::OsStr;
use std::process::{Child, Command, ExitStatus};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Place, transcript};
use crate::a_watchdog::bounded;

impl Place {
    /// Runs the command and returns its normalized transcript. Panics if it does not exit within a minute.
    #[track_caller]
    pub fn run_bounded(&self, words: &[&str]) -> String {
        bounded_transcript(&mut self.command(words))
    }

    /// As [`Self::run_bounded`], with a broker.
    #[track_caller]
    pub fn run_at(&self, url: &str, words: &[&str]) -> String {
        self.run_bounded(&[&["-b", url], words].concat())
    }

    /// As [`Self::run_at`], with bytes on standard input.
    #[track_caller]
    pub fn run_at_with_input(&self, url: &str, words: &[&str], input: &[u8]) -> String {
        normalized(&self.run_with_input(&[&["-b", url], words].concat(), input))
    }

    /// Returns the command with arguments that need not be UTF-8.
    pub fn command_os(&self, words: &[&OsStr]) -> Command {
        let mut command = self.command(&[]);
        command.args(words);
        command
    }

    /// Runs a command that must succeed and returns its standard output.
    #[track_caller]
    pub fn bytes_at(&self, url: &str, words: &[&str]) -> Vec<u8> {
        let output = bounded(|| self.command(&[&["-b", url], words].concat()).output()).unwrap();
        assert!(output.status.success(), "{words:?}: {}", transcript(&output));
        output.stdout
    }
}

/// Runs a command and returns its normalized transcript. Panics if it does not exit within a minute.
#[track_caller]
pub fn bounded_transcript(command: &mut Command) -> String {
    let mut child = command.spawn().unwrap();
    // Otherwise it would be closed before the wait.
    let _stdin = child.stdin.take();
    normalized(&transcript(&bounded(|| child.wait_with_output()).unwrap()))
}

/// Waits for a process to exit. Panics after a minute.
#[track_caller]
pub fn wait_for_exit(child: &mut Child) -> ExitStatus {
    // `wait` would close it.
    let stdin = child.stdin.take();
    let status = bounded(|| child.wait()).unwrap();
    child.stdin = stdin;
    status
}

pub fn signal(child: &Child, name: &str) {
    let signal: Signal = format!("SIG{name}").parse().unwrap();
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

/// Replaces what differs from run to run: versions by `VERSION`, addresses by `BROKER`.
pub fn normalized(text: &str) -> String {
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
