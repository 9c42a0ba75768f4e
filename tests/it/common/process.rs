//! A process whose output is read at its end, and functions that wait for what processes do.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

use crate::a_watchdog::bounded;

/// Returns the most memory that a running process has had.
pub fn peak_bytes(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

/// A running process; killed when dropped.
pub struct Process {
    child: Child,
    output: Option<JoinHandle<String>>,
    errors: BufReader<std::process::ChildStderr>,
}

/// How a process ended, and its output.
#[derive(Debug)]
pub struct Exit {
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    pub output: String,
    /// Standard error without the lines that [`Process::error_line`] has returned.
    pub errors: String,
}

impl Process {
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

    /// Waits for the next line of standard error and returns it without its line feed.
    pub fn error_line(&mut self) -> String {
        let mut line = String::new();
        bounded(|| self.errors.read_line(&mut line)).unwrap();
        line.trim_end().to_owned()
    }

    /// Sends a signal to the process only, not to its group.
    pub fn signal(&mut self, signal: Signal) {
        // After a wait the process id may belong to another process.
        assert!(self.child.try_wait().unwrap().is_none(), "it has ended");
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the process to exit.
    pub fn end(mut self) -> Exit {
        wait_until("it ends", || self.child.try_wait().unwrap());
        let mut errors = String::new();
        bounded(|| self.errors.read_to_string(&mut errors)).unwrap();
        let output = bounded(|| self.output.take().unwrap().join()).unwrap();
        let status = bounded(|| self.child.wait()).unwrap();
        Exit { code: status.code(), signal: status.signal(), output, errors }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = bounded(|| self.child.wait());
    }
}

/// Waits until `condition` returns a value. Panics after a minute.
#[track_caller]
pub fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    const TIMEOUT: Duration = Duration::from_secs(60);
    let begun = mqkv::clock::monotonic();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(mqkv::clock::monotonic() - begun < TIMEOUT, "timed out: {what}");
        sleep(Duration::from_millis(2));
    }
}

/// Writes a script for its owner, which can be executed at once. A process writes it: one that another test starts meanwhile has, for a
/// moment, copies of the files that are open here, and a file that is open for writing is not executed.
pub fn write_script(path: &Path, text: &str) {
    let mut child = Command::new("sh")
        .args(["-c", "cat >\"$0\" && chmod 700 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(bounded(|| child.wait()).unwrap().success(), "{}", path.display());
}

pub fn make_fifo(path: &Path) {
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
}

/// Opens the write end of a FIFO, which waits until a process reads it.
#[track_caller]
pub fn open_fifo(path: &Path) -> File {
    bounded(|| OpenOptions::new().write(true).open(path)).unwrap()
}

/// Waits until a process that was sent SIGSTOP has stopped: it goes on for a moment.
pub fn wait_until_stopped(id: u32) {
    let stat = format!("/proc/{id}/stat");
    wait_until("the process is stopped", || {
        let stat = fs::read_to_string(&stat).ok()?;
        stat.rsplit(')').next()?.trim_start().starts_with('T').then_some(())
    });
}

/// Waits until a file has a complete line, and returns the line.
#[track_caller]
pub fn line_in(path: &Path) -> String {
    wait_until(&path.display().to_string(), || {
        let text = fs::read_to_string(path).ok()?;
        text.split_once('\n').map(|(line, _)| line.to_owned())
    })
}

/// Returns whether a process runs; a zombie does not.
pub fn is_running(id: &str) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{id}/stat")) else { return false };
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}
