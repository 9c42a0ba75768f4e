//! A hermetic environment for the real binary: no variables, a home and a folder of its own.

pub mod bounded;
mod doors;
pub mod fake;
mod gatekeeper;
pub mod http;
pub mod pki;
mod process;
pub mod proxy;
mod raw;
mod relay;
mod running;
mod server;
pub mod store;
mod stranger;
mod tap;
mod terminal;
pub mod tls12;
pub mod wire;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{SigHandler, Signal, signal};
use tempfile::TempDir;

pub use doors::Doors;
pub use gatekeeper::{Visit, gatekeeper, publish};
pub use process::{Left, Process, is_running, line_in, until};
pub use raw::Raw;
pub use relay::Relay;
pub use running::{Running, wait_until};
pub use server::Server;
pub use stranger::stranger;
pub use tap::Tap;
pub use terminal::{CTRL_C, CTRL_D, ENTER, HOME, RIGHT, TAB, Terminal, UP};

/// Has signals mean to a command what they mean at a prompt. Whoever starts the tests with `nohup`, or in the background
/// of a script, has SIGHUP or SIGINT ignored, and all that they start would inherit it.
#[expect(unsafe_code, reason = "what a child does between fork and exec cannot be said otherwise")]
fn hear_signals(command: &mut Command) {
    let default = || {
        for heard in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
            // SAFETY: no handler is installed, one is taken away.
            unsafe { signal(heard, SigHandler::SigDfl) }?;
        }
        Ok(())
    };
    // SAFETY: only system calls that are safe after a fork; nothing is allocated, no lock is taken.
    unsafe { command.pre_exec(default) };
}

/// A place to run the binary in; removed at the end.
pub struct Place {
    folder: TempDir,
    variables: Vec<(String, String)>,
}

impl Place {
    /// An empty place.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, variables: Vec::new() }
    }

    /// Sets an environment variable for all that runs here.
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The path of a file here.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file, for nobody else to read: it may be one with a secret.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// The command, ready to be run here with an empty standard input.
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
        hear_signals(&mut command);
        command
    }

    /// Runs it and returns everything that it did.
    pub fn run(&self, words: &[&str]) -> String {
        shown(&self.command(words).output().unwrap())
    }

    /// Runs it with bytes on standard input.
    pub fn run_with_input(&self, words: &[&str], input: &[u8]) -> String {
        let mut child = self.command(words).stdin(Stdio::piped()).spawn().unwrap();
        feed(&mut child, input);
        shown(&child.wait_with_output().unwrap())
    }

    /// Where it all happens.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

fn feed(child: &mut Child, input: &[u8]) {
    let mut stdin = child.stdin.take().unwrap();
    // A process that does not read its input is no failure of the test.
    let _ = stdin.write_all(input);
}

/// Standard output, standard error and the exit status as one text.
fn shown(output: &Output) -> String {
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

/// Text stays as it is; what is no text can be compared, too.
fn printable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.replace('\x1b', "\\x1b").replace('\r', "\\r"),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}
