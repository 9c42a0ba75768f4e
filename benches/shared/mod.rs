//! Servers, clients of little cost, and statistics for the benchmarks.
#![allow(dead_code, reason = "each benchmark uses a part of it")]

pub mod raw;
pub mod redis;

use std::fs;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const MQKV: &str = env!("CARGO_BIN_EXE_mqkv");

/// A server process; killed when dropped.
pub struct Process {
    child: Child,
    /// The port of its listener on 127.0.0.1.
    pub port: u16,
    /// Its configuration, kept as long as it runs.
    _folder: Option<tempfile::TempDir>,
}

impl Process {
    pub fn new(child: Child, port: u16) -> Self {
        Self { child, port, _folder: None }
    }

    /// Sends SIGTERM and waits until it exits.
    pub fn terminate(mut self) {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        self.child.wait().unwrap();
    }

    /// Returns the CPU time that it has used, in seconds.
    pub fn cpu_s(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // The name before it may contain spaces. Linux counts in hundredths of a second.
        let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: f64 = fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum();
        ticks / 100.0
    }

    /// Returns its resident memory in MiB.
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

/// Starts `mqkv serve` with these options and waits until it listens.
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

/// Starts Mosquitto with TCP_NODELAY and waits until it listens.
pub fn mosquitto() -> Process {
    mosquitto_with(&[])
}

/// As [`mosquitto`], with more lines of its configuration, such as those of another listener.
pub fn mosquitto_with(more: &[String]) -> Process {
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
    fs::write(&file, [&lines[..], more].concat().join("\n") + "\n").unwrap();
    let mut command = Command::new("mosquitto");
    command.arg("-c").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    let child = spawn(&mut command, "mosquitto");
    let server = Process { child, port, _folder: Some(folder) };
    wait_until_open(port);
    server
}

/// Starts the benchmark's executable again, with an argument that selects its role.
pub fn spawn_self(argument: &str, port: u16) -> Process {
    let executable: PathBuf = std::env::current_exe().unwrap();
    let child = Command::new(executable).args([argument, &port.to_string()]).spawn().unwrap();
    Process { child, port, _folder: None }
}

/// Starts a program of this Debian package.
///
/// # Panics
/// If it is not installed.
pub fn spawn(command: &mut Command, package: &str) -> Child {
    match command.spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("{package} is missing: apt-get install {package}")
        }
        other => other.unwrap(),
    }
}

/// Waits until a server accepts connections.
pub fn wait_until_open(port: u16) {
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns a free port.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Requests of which some are in flight at a time.
pub struct Window {
    inflight: usize,
    count: usize,
    sent: usize,
    pub answered: usize,
}

impl Window {
    fn new(inflight: usize, count: usize) -> Self {
        Self { inflight, count, sent: 0, answered: 0 }
    }

    fn is_done(&self) -> bool {
        self.answered >= self.count
    }

    /// Calls `push` with the number of each request that is to be sent now.
    fn fill(&mut self, mut push: impl FnMut(usize)) {
        while self.sent < self.count && self.sent - self.answered < self.inflight {
            push(self.sent);
            self.sent += 1;
        }
    }
}

/// Runs `count` operations and returns how many took place per second.
pub fn rate(count: usize, run: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    run();
    count as f64 / begun.elapsed().as_secs_f64()
}

/// Measures all subjects once per round, in an order that changes from round to round, after a round that warms up.
/// Returns the figures of each.
pub fn in_turn(rounds: usize, subjects: &mut [Box<dyn FnMut() -> f64 + '_>]) -> Vec<Vec<f64>> {
    let count = subjects.len();
    let mut figures = vec![Vec::new(); count];
    for round in 0..=rounds {
        for turn in 0..count {
            let at = (round + turn) % count;
            let figure = subjects[at]();
            if round > 0 {
                figures[at].push(figure);
            }
        }
    }
    figures
}

/// Runs a future, and what it spawns, on this thread.
pub fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

/// Prints the figures of each subject, and the ratio of the first one's to those of each other.
pub fn print_against_others(names: &[&str], figures: &[Vec<f64>], unit: &str, digits: usize) {
    for (name, figures) in names.iter().zip(figures) {
        println!("  {name:<40} {} {unit}", spread(figures, digits));
    }
    for (name, others) in names.iter().zip(figures).skip(1) {
        println!("  {:<40} {}", format!("ratio to {name}"), spread(&ratios(&figures[0], others), 2));
    }
}

/// Formats the median, minimum and maximum of some figures.
pub fn spread(figures: &[f64], digits: usize) -> String {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (least, median, most) = (sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1]);
    format!("median {median:.digits$}  ({least:.digits$} to {most:.digits$})")
}

/// Returns the ratio of each pair of figures.
pub fn ratios(ones: &[f64], others: &[f64]) -> Vec<f64> {
    ones.iter().zip(others).map(|(one, other)| one / other).collect()
}
