//! A `mqkv serve` process that can be stopped, killed and measured.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::port::reserved_port;

/// Lines of a file of users for these names, whose password is `right`. Its hash has the default cost.
pub fn users(names: impl IntoIterator<Item = String>) -> String {
    const HASH: &str =
        "$argon2id$v=19$m=19456,t=2,p=1$UE5eG5k27CQFTr4ce9agIw$cQcfOkyV22Klaf9ZOQ9+YfIXC1lLJq4bnJFK8wSRlQk";
    names.into_iter().map(|name| format!("{name}:{HASH}\n")).collect()
}

/// Makes the calling thread, and those that it starts, give way to all others: on a network, hostile clients have
/// processors of their own.
pub fn give_way() {
    rustix::process::nice(19).unwrap();
}

/// Far longer than any start takes.
const START_TRIES_MAX: u32 = 3_000;

/// Returns a command of the `mqkv` binary with an environment of its own: the binary of `MQKV_BIN`, or else the release
/// build of this repository.
pub fn mqkv<S: AsRef<OsStr>>(home: &Path, words: &[S]) -> Command {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/mqkv");
    let mut command = Command::new(std::env::var_os("MQKV_BIN").map_or_else(built, PathBuf::from));
    command.args(words).env_clear().env("HOME", home).current_dir(home).stdin(Stdio::null());
    command
}

/// A running server with one listener on this machine; killed when dropped.
pub struct Server {
    child: Child,
    port: u16,
    options: Vec<String>,
    folder: TempDir,
}

impl Server {
    /// Starts a server on a free port. Its working directory is a temporary one, which goes with the server.
    pub fn start(options: &[&str]) -> Self {
        Self::start_with_files(&[], options)
    }

    /// As [`Self::start`], with a file in the working directory.
    pub fn start_with_file(name: &str, content: &str, options: &[&str]) -> Self {
        Self::start_with_files(&[(name, content)], options)
    }

    /// As [`Self::start`], with files in the working directory: names and contents.
    pub fn start_with_files(files: &[(&str, &str)], options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            fs::write(folder.path().join(name), content).unwrap();
        }
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let (child, port) = spawn(folder.path(), reserved_port(), &options);
        Self { child, port, options, folder }
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the process with SIGTERM.
    pub fn end(&mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    /// Starts the killed server again, on the same port.
    pub fn start_again(&mut self) {
        (self.child, _) = spawn(self.folder.path(), self.port, &self.options);
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the greatest resident memory so far, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib: u64 = line.and_then(|line| line.split_whitespace().next()).unwrap().parse().unwrap();
        kib * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(folder: &Path, port: u16, options: &[String]) -> (Child, u16) {
    let port_file = folder.join("port");
    let _ = fs::remove_file(&port_file);
    // The credentials of clients that have some are checked nevertheless.
    let listen = format!("mqtt://127.0.0.1:{port}?anonymous=yes");
    let mut command = mqkv(folder, &["serve", "--quiet", "--listen", &listen, "--port-file", "port"]);
    let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap();
    let mut child = command.args(options).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    for _ in 0..START_TRIES_MAX {
        let port = fs::read_to_string(&port_file).ok().and_then(|text| text.trim().parse().ok());
        if let Some(port) = port {
            return (child, port);
        }
        if let Some(status) = child.try_wait().unwrap() {
            let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
            panic!("the server has exited: {status}\n{log}");
        }
        sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    panic!("the server did not start");
}
