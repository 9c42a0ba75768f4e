//! A hermetic environment for the binary, and the brokers, proxies and clients that the tests use.

pub mod bounded;
pub mod chromium;
#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "cluster")]
pub mod etcd;
pub mod exchange;
pub mod fake_broker;
pub mod fake_store;
pub mod http;
mod logged_server;
mod non_mqtt_server;
pub mod pki;
pub mod plain_broker;
mod port;
mod process;
pub mod proxy;
mod raw_client;
mod relay;
mod request_recorder;
mod server;
mod short_port;
mod streamed_process;
mod subscription_broker;
mod terminal;
pub mod tls12;
pub mod wire;
pub mod yaml;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use nix::sys::signal::{SigHandler, Signal, signal};
use tempfile::TempDir;

use crate::a_watchdog::bounded;

pub use logged_server::LoggedServer;
pub use non_mqtt_server::non_mqtt_server;
pub use port::reserved_port;
pub use process::{
    Exit, Process, is_running, line_in, make_fifo, open_fifo, peak_bytes, wait_until, wait_until_stopped,
    write_script,
};
pub use raw_client::RawClient;
pub use relay::Relay;
pub use request_recorder::RequestRecorder;
pub use server::Server;
pub use short_port::reserved_short_port;
pub use streamed_process::StreamedProcess;
pub use subscription_broker::{ConnectionScript, subscription_broker};
pub use terminal::{CTRL_C, CTRL_D, CTRL_Z, ENTER, HOME, RIGHT, TAB, Terminal, UP};

/// Gives the command the default signal handlers of an interactive shell. If the tests run under `nohup` or in the
/// background of a script, SIGHUP, SIGINT and SIGQUIT are ignored, and every child process would inherit that.
///
/// Only then: such a command is started by a fork, which copies the tables of this process's memory. That took a seventh of all time.
#[expect(unsafe_code, reason = "only `pre_exec` runs code between fork and exec")]
fn reset_signals(command: &mut Command) {
    static IS_IGNORED: OnceLock<bool> = OnceLock::new();
    const RESET: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];
    if !IS_IGNORED.get_or_init(|| RESET.into_iter().any(is_ignored)) {
        return;
    }
    let reset = || {
        for number in RESET {
            // SAFETY: no handler is installed; the default one is restored.
            unsafe { signal(number, SigHandler::SigDfl) }?;
        }
        Ok(())
    };
    // SAFETY: only system calls that are safe after a fork; nothing is allocated, no lock is taken.
    unsafe { command.pre_exec(reset) };
}

/// Whether this process ignores a signal. True where the system does not report it.
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask =
        status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_none_or(|mask| mask >> (signal as u32 - 1) & 1 == 1)
}

/// A temporary working directory and environment for the binary; removed when dropped.
pub struct Place {
    folder: TempDir,
    variables: Vec<(String, String)>,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, variables: Vec::new() }
    }

    /// Sets an environment variable for every command.
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file that only its owner can read: secrets in other files are refused.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Returns the command, with an empty standard input.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mqkv"));
        command
            .args(words)
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("HOME", self.folder.path())
            .env("TMPDIR", self.folder.path())
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        reset_signals(&mut command);
        command
    }

    /// Runs the command and returns its transcript.
    pub fn run(&self, words: &[&str]) -> String {
        transcript(&bounded(|| self.command(words).output()).unwrap())
    }

    /// As [`Self::run`], with bytes on standard input.
    pub fn run_with_input(&self, words: &[&str], input: &[u8]) -> String {
        let mut child = self.command(words).stdin(Stdio::piped()).spawn().unwrap();
        feed(&mut child, input);
        transcript(&bounded(|| child.wait_with_output()).unwrap())
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

fn feed(child: &mut Child, input: &[u8]) {
    let mut stdin = child.stdin.take().unwrap();
    // A command may exit before it has read its input.
    let _ = stdin.write_all(input);
}

/// Returns the transcript of a run: standard output, standard error and the exit status as one text.
fn transcript(output: &Output) -> String {
    let mut text = String::new();
    for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        if !bytes.is_empty() {
            text.push_str(&format!("--- {name}\n{}", printable(bytes)));
            if !text.ends_with('\n') {
                text.push_str("(no line feed)\n");
            }
        }
    }
    match output.status.code() {
        Some(code) => text.push_str(&format!("--- exit {code}\n")),
        None => text.push_str(&format!("--- {}\n", output.status)),
    }
    text
}

/// Escapes control characters of text, and every byte of output that is not UTF-8.
fn printable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.replace('\x1b', "\\x1b").replace('\r', "\\r"),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}
