//! A temporary folder, in which the program runs without the settings of the machine.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::a_watchdog::bounded;

/// What the program needs from the environment: without them Windows has no sockets and no random numbers.
const OF_THE_SYSTEM: [&str; 9] =
    ["SystemRoot", "windir", "PATH", "PATHEXT", "TEMP", "TMP", "WINEPREFIX", "WINEDEBUG", "WINELOADER"];

/// The result of a run.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A temporary folder; removed when dropped.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the path of the program, for commands that it starts.
    pub fn mqkv(&self) -> String {
        program().to_str().unwrap().to_owned()
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
        #[cfg(unix)]
        fs::set_permissions(self.path(name), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }

    /// Returns the program with these arguments, and an empty standard input.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(words).env_clear();
        for name in OF_THE_SYSTEM {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        for name in ["HOME", "APPDATA", "LOCALAPPDATA"] {
            command.env(name, self.0.path());
        }
        command.current_dir(self.0.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run(&self, words: &[&str]) -> Ran {
        self.run_with_input(words, b"")
    }

    pub fn run_with_input(&self, words: &[&str], input: &[u8]) -> Ran {
        let mut child = self.command(words).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        // In a thread: the program may print much before it has read all.
        let writer = std::thread::spawn(move || _ = stdin.write_all(&input));
        let output = bounded(|| child.wait_with_output()).unwrap();
        bounded(|| writer.join()).unwrap();
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs the program, which must succeed without a message, and returns its output without the last end of line.
    #[track_caller]
    pub fn output(&self, words: &[&str]) -> String {
        let ran = self.run(words);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{words:?}: {ran:?}");
        ran.stdout.trim_end().to_owned()
    }

    /// Starts a server on a free port.
    pub fn serve(&self, words: &[&str]) -> Server {
        let port_file = self.path("port");
        let _ = fs::remove_file(&port_file);
        let all = [&["serve", "--listen", "127.0.0.1:0", "--port-file", "port", "-q"], words].concat();
        let mut command = self.command(&all);
        command.stdout(Stdio::null()).stderr(Stdio::inherit());
        let child = Running(command.spawn().unwrap());
        let port = wait_for(|| fs::read_to_string(&port_file).ok()?.trim().parse().ok());
        Server { child, broker: format!("mqtt://127.0.0.1:{port}"), port }
    }
}

/// The program: built with the tests, or beside them.
fn program() -> PathBuf {
    let beside =
        std::env::current_exe().unwrap().with_file_name(format!("mqkv{}", std::env::consts::EXE_SUFFIX));
    if beside.exists() { beside } else { Path::new(env!("CARGO_BIN_EXE_mqkv")).to_owned() }
}

/// A running process; killed when dropped.
pub struct Running(pub Child);

impl Running {
    /// Waits for its end.
    pub fn code(&mut self) -> Option<i32> {
        bounded(|| self.0.wait()).unwrap().code()
    }

    /// Waits for a line of its standard output, and returns it.
    pub fn line(&mut self) -> String {
        let mut stdout = BufReader::with_capacity(1, self.0.stdout.as_mut().unwrap());
        let mut line = String::new();
        bounded(|| stdout.read_line(&mut line)).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = bounded(|| self.0.wait());
    }
}

/// A running `mqkv serve`.
pub struct Server {
    pub child: Running,
    /// Its URL.
    pub broker: String,
    pub port: u16,
}

/// Returns whether a server listens on this port.
pub fn is_open(port: u16) -> bool {
    TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), Duration::from_secs(2)).is_ok()
}

/// Waits until a value is there.
#[track_caller]
pub fn wait_for<T>(mut value: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = value() {
            return value;
        }
        assert!(Instant::now() < end, "waited for a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}
