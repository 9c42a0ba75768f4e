//! Three etcd, Mosquitto and three `mqkv store --etcd`, each a process that can be killed, paused and started again.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::network::{self, Machine, Network, PROGRAM};

const ETCD_PORT: u16 = 2379;
pub const BROKER_PORT: u16 = 1883;
/// Debian's `faketime`; the dynamic linker replaces $LIB.
const FAKETIME: &str = "/usr/$LIB/faketime/libfaketimeMT.so.1";
/// How long a start or an election may take, on a machine that does something else too.
const START_MAX: Duration = Duration::from_secs(60);

/// A program that runs at most once at a time.
pub struct Process {
    pub name: String,
    /// `None`: it runs where this program does.
    machine: Option<Machine>,
    program: OsString,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    folder: PathBuf,
    child: Option<Child>,
    /// Where the log of this start begins.
    log_from: usize,
}

impl Process {
    pub fn start(&mut self) -> Result<(), String> {
        let mut command = match &self.machine {
            Some(machine) => machine.command(&self.program),
            None => Command::new(&self.program),
        };
        self.log_from = self.log().len();
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_file());
        let log = log.map_err(|error| error.to_string())?;
        command.args(&self.arguments).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", &self.folder).envs(self.environment.iter().cloned()).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().map_err(|error| format!("{}: {error}", self.name))?);
        Ok(())
    }

    pub fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        }
    }

    /// Sends a signal that ends the process, and waits for its end.
    pub fn end(&mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.child.take().unwrap().wait().unwrap()
    }

    /// Whether a store serves. One that starts ends if it does not reach its broker.
    fn is_ready(&self) -> bool {
        self.log().get(self.log_from..).is_some_and(|log| log.contains("\"event\":\"ready\""))
    }

    /// # Errors
    /// The process has ended by itself.
    pub fn check_running(&mut self) -> Result<(), String> {
        match self.child.as_mut().and_then(|child| child.try_wait().unwrap()) {
            None => Ok(()),
            Some(status) => Err(format!("{} has ended by itself: {status}", self.name)),
        }
    }

    pub fn set_links(&self, networks: &[Network], is_up: bool) -> Result<(), String> {
        let machine = self.machine.as_ref().unwrap();
        networks.iter().try_for_each(|network| machine.set_link(*network, is_up))
    }

    /// Sets the clock of the process: seconds before or after the machine's.
    pub fn set_clock(&self, offset_s: i32) {
        // A file that is replaced is never read half.
        let next = self.folder.join(format!("{}.clock.next", self.name));
        fs::write(&next, format!("{offset_s:+}\n")).unwrap();
        fs::rename(next, self.clock_file()).unwrap();
    }

    fn clock_file(&self) -> PathBuf {
        self.folder.join(format!("{}.clock", self.name))
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join(format!("{}.log", self.name))
    }

    fn log(&self) -> String {
        fs::read(self.log_file())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Returns the end of the log.
    pub fn last_lines(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        let last: Vec<_> =
            lines.iter().skip(lines.len().saturating_sub(30)).map(|line| format!("  {line}\n")).collect();
        format!("{}:\n{}", self.name, last.concat())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = (child.kill(), child.wait());
        }
    }
}

/// All processes of a cluster.
pub struct Cluster {
    pub processes: Vec<Process>,
}

impl Cluster {
    pub const ETCD: Range<usize> = 0..3;
    pub const BROKER: usize = 3;
    pub const STORES: Range<usize> = 4..7;

    /// Makes the networks and starts all, until an instance owns the store.
    ///
    /// # Errors
    /// There is no permission for the networks, or a program is missing or does not start.
    pub fn start(folder: &Path) -> Result<Self, String> {
        let mut cluster = Self::without_stores(folder)?;
        cluster.start_stores(Self::STORES)?;
        Ok(cluster)
    }

    /// As [`Self::start`], with etcd and the broker only.
    pub fn without_stores(folder: &Path) -> Result<Self, String> {
        network::create()?;
        let etcd = Self::ETCD.map(|number| etcd(folder, number));
        let stores = Self::STORES.map(|number| store(folder, number));
        let processes = etcd.chain([Ok(broker(folder))]).chain(stores).collect::<Result<_, _>>()?;
        let mut cluster = Self { processes };
        for process in &mut cluster.processes[..Self::STORES.start] {
            process.start()?;
        }
        let listens = || TcpStream::connect(("127.0.0.1", BROKER_PORT)).ok().map(drop);
        wait_for("Mosquitto does not listen", listens)?;
        wait_for("etcd has no leader", || cluster.etcd_leader())?;
        Ok(cluster)
    }

    /// Starts these stores, and waits until an instance owns the store.
    pub fn start_stores(&mut self, stores: Range<usize>) -> Result<(), String> {
        for store in &mut self.processes[stores] {
            store.set_clock(0);
            store.start()?;
        }
        let owner = wait_for("no instance owns the store", || self.owner());
        owner.map(drop).map_err(|error| self.with_logs(error))
    }

    /// Returns a metric of an instance; `None` if it does not answer.
    pub fn metric(&self, store: usize, name: &str) -> Option<u64> {
        let mut stream = TcpStream::connect(admin_address(store)).ok()?;
        stream.set_read_timeout(Some(START_MAX)).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        // With labels or without.
        let is_metric =
            |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
        answer.lines().find(is_metric)?.rsplit(' ').next()?.parse().ok()
    }

    /// Returns the instance that took the store over last.
    pub fn owner(&self) -> Option<usize> {
        let epoch_of = |number: usize| -> Option<u64> {
            let log = self.processes[number].log();
            let line = log.lines().rev().find(|line| line.contains("\"cluster-took-over\""))?;
            number_of(line, "epoch")
        };
        let owners = Self::STORES.filter_map(|number| Some((epoch_of(number)?, number)));
        owners.max().map(|(_, number)| number)
    }

    /// Returns the member of etcd that reports itself as the leader.
    pub fn etcd_leader(&self) -> Option<usize> {
        Self::ETCD.into_iter().find(|number| is_leader(*number) == Some(true))
    }

    /// Whether all stores serve.
    pub fn is_ready(&self) -> bool {
        self.processes[Self::STORES].iter().all(Process::is_ready)
    }

    /// # Errors
    /// A process has ended by itself.
    pub fn check_running(&mut self) -> Result<(), String> {
        self.processes.iter_mut().try_for_each(Process::check_running)
    }

    /// Adds the ends of the stores' logs to a failure.
    pub fn with_logs(&self, failure: String) -> String {
        let logs: String = self.processes[Self::STORES].iter().map(Process::last_lines).collect();
        format!("{failure}\n{logs}")
    }
}

fn etcd(folder: &Path, number: usize) -> Result<Process, String> {
    let name = format!("etcd{number}");
    let peer = |number| format!("http://{}:2380", Network::Etcd.address(machine_number(number)));
    let all: Vec<_> = Cluster::ETCD.map(|number| format!("etcd{number}={}", peer(number))).collect();
    let (client, peer) = (client_url(number), peer(number));
    let arguments = [
        ["--name", &name],
        ["--data-dir", &format!("data-{name}")],
        ["--listen-client-urls", &client],
        ["--advertise-client-urls", &client],
        ["--listen-peer-urls", &peer],
        ["--initial-advertise-peer-urls", &peer],
        ["--initial-cluster", &all.join(",")],
        ["--heartbeat-interval", "100"],
        ["--election-timeout", "1000"],
        ["--log-level", "error"],
    ];
    Ok(Process {
        machine: Some(Machine::create(&name, machine_number(number), &[Network::Etcd])?),
        program: std::env::var_os("MQKV_TEST_ETCD").unwrap_or_else(|| "etcd".into()),
        arguments: arguments.as_flattened().iter().map(|&word| word.to_owned()).collect(),
        environment: Vec::new(),
        folder: folder.to_owned(),
        child: None,
        log_from: 0,
        name,
    })
}

/// The program itself has number 1.
fn machine_number(process: usize) -> usize {
    PROGRAM + 1 + process
}

fn client_url(etcd: usize) -> String {
    format!("http://{}:{ETCD_PORT}", Network::Etcd.address(machine_number(etcd)))
}

fn admin_address(store: usize) -> String {
    format!("{}:9883", Network::Broker.address(machine_number(store)))
}

fn broker(folder: &Path) -> Process {
    // Started by root, Mosquitto would switch to a user that cannot write its files.
    let config = format!(
        "user root\nlistener {BROKER_PORT}\nallow_anonymous true\npersistence true\npersistence_location {}/\n\
         set_tcp_nodelay true\nmax_inflight_messages 1000\nmax_queued_messages 10000\n",
        folder.display()
    );
    fs::write(folder.join("mosquitto.conf"), config).unwrap();
    Process {
        name: "mosquitto".to_owned(),
        machine: None,
        program: "mosquitto".into(),
        arguments: ["-c", "mosquitto.conf"].map(str::to_owned).to_vec(),
        environment: Vec::new(),
        folder: folder.to_owned(),
        child: None,
        log_from: 0,
    }
}

fn store(folder: &Path, number: usize) -> Result<Process, String> {
    let name = format!("store{number}");
    let program = std::env::var_os("MQKV_BIN").ok_or("MQKV_BIN is not set: run .ci/cluster")?;
    let url = format!("mqtt://{}:{BROKER_PORT}", Network::Broker.address(PROGRAM));
    let members = Cluster::ETCD.map(client_url).collect::<Vec<_>>().join(",");
    let admin = admin_address(number);
    let mut words = vec!["store", "-b", &url, "--etcd", &members, "--instance", &name, "--admin", &admin];
    words.extend(["-v", "--log", "json"]);
    let machine = Machine::create(&name, machine_number(number), &[Network::Etcd, Network::Broker])?;
    Ok(with_clock(&name, folder, Some(machine), program, &words))
}

/// Returns a server with a store of its own, in memory, at a port of this program's machine.
pub fn serve(folder: &Path, port: u16) -> Result<Process, String> {
    let program = std::env::var_os("MQKV_BIN").ok_or("MQKV_BIN is not set: run .ci/cluster")?;
    let listen = format!("127.0.0.1:{port}");
    Ok(with_clock("serve", folder, None, program, &["serve", "--quiet", "--listen", &listen]))
}

/// Returns a process whose clock can be set.
fn with_clock(
    name: &str,
    folder: &Path,
    machine: Option<Machine>,
    program: OsString,
    words: &[&str],
) -> Process {
    let mut process = Process {
        machine,
        program,
        arguments: words.iter().map(|&word| word.to_owned()).collect(),
        environment: Vec::new(),
        folder: folder.to_owned(),
        child: None,
        log_from: 0,
        name: name.to_owned(),
    };
    process.environment = vec![
        ("LD_PRELOAD", FAKETIME.to_owned()),
        ("FAKETIME_TIMESTAMP_FILE", process.clock_file().display().to_string()),
        ("FAKETIME_CACHE_DURATION", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ];
    process
}

/// Asks a member of etcd whether it is the leader; `None` if it does not answer.
fn is_leader(number: usize) -> Option<bool> {
    let address = format!("{}:{ETCD_PORT}", Network::Etcd.address(machine_number(number)));
    let address: SocketAddr = address.parse().unwrap();
    let patience = Duration::from_millis(500);
    let mut stream = TcpStream::connect_timeout(&address, patience).ok()?;
    stream.set_read_timeout(Some(patience)).ok()?;
    let request = "POST /v3/maintenance/status HTTP/1.0\r\nHost: etcd\r\nContent-Length: 2\r\n\r\n{}";
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(number_of(&answer, "member_id")? == number_of(&answer, "leader")?)
}

/// Returns a number of a JSON object, with or without quotation marks.
fn number_of(json: &str, field: &str) -> Option<u64> {
    let (_, rest) = json.split_once(&format!("\"{field}\":"))?;
    let digits = rest.trim_start_matches(['"', ' ']);
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Waits until `found` returns something.
///
/// # Errors
/// It does not within a minute: returns `failure`.
pub fn wait_for<T>(failure: &str, mut found: impl FnMut() -> Option<T>) -> Result<T, String> {
    let deadline = Instant::now() + START_MAX;
    loop {
        if let Some(value) = found() {
            return Ok(value);
        }
        if Instant::now() > deadline {
            return Err(failure.to_owned());
        }
        sleep(Duration::from_millis(20));
    }
}
