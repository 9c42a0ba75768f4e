//! What the benchmarks share: servers that end with them, a client that costs next to nothing, and figures.
#![allow(dead_code, reason = "each benchmark takes what it needs")]

pub mod raw;

use std::fs;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const MQKV: &str = env!("CARGO_BIN_EXE_mqkv");

/// A process that ends with the benchmark.
pub struct Process {
    child: Child,
    /// Where it listens, on loopback.
    pub port: u16,
    /// What it needs as long as it lives.
    _folder: Option<tempfile::TempDir>,
}

impl Process {
    /// One that was started already.
    pub fn of(child: Child, port: u16) -> Self {
        Self { child, port, _folder: None }
    }

    /// Ends it in an orderly way, and waits for that.
    pub fn terminate(mut self) {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        self.child.wait().unwrap();
    }

    /// Megabytes of memory that are its own now.
    pub fn resident_mib(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib / 1024.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `mqkv serve` with these options besides, and waits until it listens.
pub fn serve(options: &[&str]) -> Process {
    let folder = tempfile::tempdir().unwrap();
    let port_file = folder.path().join("port");
    let mut command = Command::new(MQKV);
    command.args(["serve", "-q", "--listen", "127.0.0.1:0", "--port-file"]).arg(&port_file).args(options);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut server = Process { child, port: 0, _folder: Some(folder) };
    loop {
        match fs::read_to_string(&port_file) {
            Ok(text) if text.ends_with('\n') => {
                server.port = text.trim().parse().unwrap();
                return server;
            }
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Starts Debian's Mosquitto without its delay for small packets, and waits until it listens.
pub fn mosquitto() -> Process {
    let port = free_port();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mosquitto.conf");
    let lines = [
        format!("listener {port} 127.0.0.1"),
        "allow_anonymous true".to_owned(),
        "set_tcp_nodelay true".to_owned(),
        "max_inflight_messages 0".to_owned(),
        "max_queued_messages 0".to_owned(),
    ];
    fs::write(&file, lines.join("\n") + "\n").unwrap();
    let mut command = Command::new("mosquitto");
    command.arg("-c").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    let child = match command.spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("mosquitto is missing: apt-get install mosquitto")
        }
        other => other.unwrap(),
    };
    let server = Process { child, port, _folder: Some(folder) };
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::sleep(Duration::from_millis(1));
    }
    server
}

/// Starts this benchmark's own executable again with an argument.
pub fn this_again(argument: &str, port: u16) -> Process {
    let me: PathBuf = std::env::current_exe().unwrap();
    let child = Command::new(me).args([argument, &port.to_string()]).spawn().unwrap();
    Process { child, port, _folder: None }
}

/// A port that nobody listens at now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// How often a second.
pub fn rate(count: usize, run: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    run();
    count as f64 / begun.elapsed().as_secs_f64()
}

/// The middle of some figures, and the least and the greatest of them.
pub fn spread(figures: &[f64], digits: usize) -> String {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (least, median, most) = (sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1]);
    format!("median {median:.digits$}  ({least:.digits$} to {most:.digits$})")
}

/// The ratio of each pair of figures.
pub fn ratios(ones: &[f64], others: &[f64]) -> Vec<f64> {
    ones.iter().zip(others).map(|(one, other)| one / other).collect()
}
