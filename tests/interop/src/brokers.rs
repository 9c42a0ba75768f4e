//! Brokers on free ports of this machine, killed at the end of a test.

use std::ffi::OsStr;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use tempfile::TempDir;

/// Far longer than any step of a test takes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running `mqkv serve`.
pub struct Mqkv {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl Mqkv {
    /// Starts the broker and waits until it listens.
    pub fn start(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port_file = folder.path().join("port");
        let mut command = mqkv(folder.path());
        command
            .args(["serve", "--quiet", "--listen", "127.0.0.1:0", "--port-file"])
            .arg(&port_file)
            .args(options);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let port = wait_until("mqkv serve listens", || {
            assert!(child.try_wait().unwrap().is_none(), "mqkv serve has exited");
            fs::read_to_string(&port_file).ok()?.trim().parse().ok()
        });
        Self { child, port, _folder: folder }
    }

    /// Returns the port of its listener.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Mqkv {
    fn drop(&mut self) {
        kill(&mut self.child);
    }
}

/// A running Mosquitto, as packaged by Debian.
pub struct Mosquitto {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl Mosquitto {
    /// Starts the broker and waits until it listens.
    pub fn start() -> Self {
        const TRIES_MAX: u32 = 20;
        for _ in 0..TRIES_MAX {
            // It cannot choose a free port itself, and another process may take this one before it listens.
            let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let folder = tempfile::tempdir().unwrap();
            let config = folder.path().join("mosquitto.conf");
            fs::write(&config, format!("listener {} 127.0.0.1\nallow_anonymous true\n", free.port()))
                .unwrap();
            let mut command = Command::new("/usr/sbin/mosquitto");
            command.arg("-c").arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
            let child = command.spawn();
            let mut child = child.unwrap_or_else(|error| panic!("{error}: apt-get install mosquitto"));
            let listens = wait_until("mosquitto listens or exits", || {
                let listens = TcpStream::connect(free).is_ok();
                (listens || child.try_wait().unwrap().is_some()).then_some(listens)
            });
            if listens {
                return Self { child, port: free.port(), _folder: folder };
            }
        }
        panic!("mosquitto does not listen");
    }

    /// Returns the port of its listener.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        kill(&mut self.child);
    }
}

/// Runs `mqkv` against a broker on this machine until it exits. Blocks the thread: sessions of the SDK need another one.
pub fn run(port: u16, words: &[impl AsRef<OsStr>]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    mqkv(folder.path()).args(["-b", &format!("mqtt://127.0.0.1:{port}")]).args(words).output().unwrap()
}

/// Adds a user to a file for `mqkv serve --users`.
pub fn add_user(users: &Path, name: &str, password: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = mqkv(folder.path());
    command.args(["serve", "user", "add"]).arg(users).arg(name).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(password.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// Returns the command of the binary, with an empty environment.
pub fn mqkv(folder: &Path) -> Command {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let binary = env::var_os("MQKV_BIN").map_or_else(|| here.join("../../target/debug/mqkv"), PathBuf::from);
    assert!(
        binary.is_file(),
        "{} is missing: cargo build --features cluster, or set MQKV_BIN",
        binary.display()
    );
    let mut command = Command::new(binary.canonicalize().unwrap());
    command.env_clear().env("HOME", folder).current_dir(folder).stdin(Stdio::null());
    command
}

/// Kills a process and waits for its end.
pub fn kill(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Waits until the condition returns something. Panics after half a minute.
#[track_caller]
pub fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(begun.elapsed() < TIMEOUT, "timed out: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
