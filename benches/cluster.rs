//! Two `mqkv store --etcd` behind Mosquitto, with TLS to the broker and to three members of etcd on disk, against etcd's own puts and
//! compare-and-puts in the same run; and how long nothing answers after the owner is killed.
//!
//! `cargo bench --features cluster --bench cluster [-- SECTION...]` needs Debian's `etcd-server` and `mosquitto`. `MQKV_TEST_ETCD` names
//! another etcd, such as that of `.ci/unstable etcd-server`; `MQKV_KILLS` sets the number of kills.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::arithmetic_side_effects, clippy::panic)]
#![allow(clippy::indexing_slicing, clippy::disallowed_methods)]

mod shared;

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mqkv::ledger::etcd::operation::{Condition, EtcdError, Operation, Txn, TxnAnswer, TxnOutcome};
use mqkv::net::TlsOptions;
use mqkv::server::etcd::{Etcd, EtcdSettings};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use shared::raw::{self, RawClient, VALUE_BYTES, command, key};
use shared::{
    MQKV, Process, free_port, in_turn, mosquitto_with, print_against_others, rate, run, spread,
    wait_until_open,
};

const WRITERS: usize = 64;
const ROUNDS: usize = 5;
/// Requests per round: by one client, and by many.
const FEW: usize = 500;
const MANY: usize = 20_000;
/// As many puts of etcd as many writers send in a similar time.
const MANY_PUTS: usize = 4_000;
/// The keys of a store that another instance joins.
const JOINED_KEYS: usize = 500_000;
const KILLS: usize = 20;
/// Between two requests while the owner is killed.
const PROBE_PAUSE: Duration = Duration::from_millis(10);

/// Three members of etcd, and the certificate authority of all.
struct Machines {
    members: Vec<Process>,
    urls: Vec<String>,
    ca: PathBuf,
}

/// Measures something of a store on etcd.
type Section = fn(&Machines);

const SECTIONS: [(&str, Section); 3] = [("throughput", throughput), ("gaps", gaps), ("joining", joining)];

fn main() {
    // Cargo adds options of its own.
    let wanted: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for name in &wanted {
        assert!(SECTIONS.iter().any(|(section, _)| section == name), "no section {name}");
    }
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let etcd = etcd(home.path());
    for (name, run) in SECTIONS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            println!("== {name}");
            run(&etcd);
        }
    }
}

/// Writes `ca.pem`, and a certificate of this machine: `server.pem` with `server.key`.
fn certificates(home: &Path) {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
    let files = [("ca.pem", ca.pem()), ("server.pem", server.pem()), ("server.key", key.serialize_pem())];
    files.iter().for_each(|(name, text)| std::fs::write(home.join(name), text).unwrap());
}

/// Starts three members of etcd, with TLS for clients and between them.
fn etcd(home: &Path) -> Machines {
    certificates(home);
    let [ports, peers] = [(); 2].map(|()| [(); 3].map(|()| free_port()));
    let url = |port: &u16| format!("https://127.0.0.1:{port}");
    let all: Vec<_> =
        peers.iter().enumerate().map(|(index, port)| format!("n{index}={}", url(port))).collect();
    let program = std::env::var("MQKV_TEST_ETCD").unwrap_or_else(|_| "etcd".to_owned());
    let start = |(index, port): (usize, &u16)| {
        let (client, peer) = (url(port), url(&peers[index]));
        let mut command = Command::new(&program);
        command.args(["--name", &format!("n{index}"), "--data-dir", &format!("n{index}")]).current_dir(home);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &all.join(","), "--log-level", "error", "--logger", "zap"]);
        command.args(["--cert-file", "server.pem", "--key-file", "server.key"]);
        command.args(["--peer-cert-file", "server.pem", "--peer-key-file", "server.key"]);
        command.args(["--peer-trusted-ca-file", "ca.pem"]).stdout(Stdio::null()).stderr(Stdio::null());
        Process::new(shared::spawn(&mut command, "etcd-server"), *port)
    };
    let members: Vec<_> = ports.iter().enumerate().map(start).collect();
    ports.iter().for_each(|port| wait_until_open(*port));
    Machines { members, urls: ports.iter().map(url).collect(), ca: home.join("ca.pem") }
}

/// A broker for clients without TLS and stores with it.
struct Broker {
    process: Process,
    tls_port: u16,
}

impl Machines {
    fn broker(&self) -> Broker {
        let tls_port = free_port();
        let folder = self.ca.parent().unwrap().display();
        let lines = [
            format!("listener {tls_port} 127.0.0.1"),
            format!("certfile {folder}/server.pem"),
            format!("keyfile {folder}/server.key"),
        ];
        Broker { process: mosquitto_with(&lines), tls_port }
    }

    /// Starts an instance of a cluster of this name, behind a broker.
    fn store(&self, broker: &Broker, cluster: &str, instance: &str) -> Store {
        let (mut command, admin) = (Command::new(MQKV), free_port());
        command.args(["store", "-q", "-b", &format!("mqtts://127.0.0.1:{}", broker.tls_port), "-T"]);
        command.arg(&self.ca).args(["--etcd", &self.urls.join(","), "--etcd-ca"]).arg(&self.ca);
        command.args(["--cluster", cluster, "--instance", instance, "--admin", &admin.to_string()]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Store { process: Process::new(child, broker.process.port), admin }
    }

    async fn connect(&self) -> Etcd {
        let tls = TlsOptions { cafile: Some(self.ca.clone()), ..TlsOptions::default() };
        let settings = EtcdSettings { endpoints: self.urls.clone(), tls, ..EtcdSettings::default() };
        loop {
            match Etcd::connect(&settings).await {
                Ok(etcd) => return etcd,
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Returns the CPU time of all members.
    fn cpu_s(&self) -> f64 {
        self.members.iter().map(Process::cpu_s).sum()
    }
}

/// An instance, with the port of its metrics.
struct Store {
    process: Process,
    admin: u16,
}

/// Waits until a store answers.
fn wait_until_served(broker: u16) {
    let get = || {
        let mut get = Command::new(MQKV);
        get.args(["get", "absent", "-b", &format!("mqtt://127.0.0.1:{broker}"), "-t", "30s"]);
        get.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().code()
    };
    // 1: the key is absent.
    while get() != Some(1) {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Puts values in etcd by writers with one transaction in flight each, with a comparison of the key's last revision or without.
async fn put(machines: &Machines, writers: usize, count: usize, compares: bool) {
    let etcd = machines.connect().await;
    let tasks: Vec<_> = (0..writers)
        .map(|number| {
            let etcd = etcd.clone();
            tokio::task::spawn_local(async move {
                let key: bytes::Bytes = format!("bench/{}", String::from_utf8_lossy(&key(number))).into();
                let mut seen = revision(&etcd, &key).await;
                for _ in 0..count / writers {
                    let condition = Condition { key: key.clone(), mod_revision: seen };
                    let put = Operation::Put {
                        key: key.clone(),
                        value: vec![b'v'; VALUE_BYTES].into(),
                        lease: None,
                    };
                    let conditions = if compares { vec![condition] } else { Vec::new() };
                    let txn = Txn { conditions, operations: vec![put], otherwise: Vec::new() };
                    let answer: Result<TxnAnswer, EtcdError> = etcd.txn(&txn).await;
                    let answer = answer.unwrap();
                    assert_eq!(answer.outcome, TxnOutcome::Applied);
                    seen = answer.revision;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn revision(etcd: &Etcd, key: &bytes::Bytes) -> u64 {
    let never = Condition { key: key.clone(), mod_revision: i64::MAX.cast_unsigned() };
    let txn = Txn { conditions: vec![never], operations: Vec::new(), otherwise: vec![key.clone()] };
    match etcd.txn(&txn).await.unwrap().outcome {
        TxnOutcome::NotApplied(pairs) => pairs[0].as_ref().map_or(0, |pair| pair.mod_revision),
        TxnOutcome::Applied => panic!("no key has this revision"),
    }
}

/// Sends GETs one after the other, and returns how long each took, in milliseconds.
async fn get(port: u16, count: usize) -> Vec<f64> {
    let mut client = RawClient::for_requests(port, "bench-get").await;
    let mut waits = Vec::new();
    for number in 0..count {
        let get = raw::request("bench-get", &command(&[b"GET", &key(number)]), &raw::timestamp());
        let begun = Instant::now();
        client.buffers.push_request(&get);
        client.flush().await.unwrap();
        client.wait_for_messages(1).await.unwrap();
        waits.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    waits
}

fn throughput(machines: &Machines) {
    let broker = machines.broker();
    let port = broker.process.port;
    let owner = machines.store(&broker, "bench", "owner");
    wait_until_served(port);
    let standby = machines.store(&broker, "bench", "standby");
    wait_until_served(port);
    while metric(standby.admin, "mqkv_cluster_following ") != Some(1.0) {
        std::thread::sleep(Duration::from_millis(50));
    }
    for (writers, sets, puts) in [(1, FEW, FEW), (WRITERS, MANY, MANY_PUTS)] {
        println!(" {writers} writer{}", if writers == 1 { "" } else { "s" });
        let (put_cpu, mqkv_cpu) = (RefCell::default(), RefCell::default());
        let put = |compares| {
            let begun = machines.cpu_s();
            let rate = rate(puts, || run(put(machines, writers, puts, compares)));
            note(&put_cpu, [(machines.cpu_s() - begun) / puts as f64]);
            rate
        };
        let mut subjects: [Box<dyn FnMut() -> f64 + '_>; 3] = [
            Box::new(|| {
                let used = || {
                    let processes = [&broker.process, &owner.process, &standby.process];
                    let [broker, answering, following] = processes.map(Process::cpu_s);
                    let commits = metric(owner.admin, "mqkv_cluster_sequence ").unwrap();
                    [machines.cpu_s(), broker, answering, following, commits]
                };
                let begun = used();
                let rate = rate(sets, || run(raw::set_by_each(port, writers, sets)));
                let ended = used();
                note(&mqkv_cpu, std::array::from_fn::<_, 5, _>(|at| (ended[at] - begun[at]) / sets as f64));
                rate
            }),
            Box::new(|| put(false)),
            Box::new(|| put(true)),
        ];
        let figures = in_turn(ROUNDS, &mut subjects);
        drop(subjects);
        print_against_others(&["mqkv store", "etcd, put", "etcd, compare-and-put"], &figures, "a second", 0);
        let mean = |rows: &[f64]| rows.iter().sum::<f64>() / rows.len() as f64;
        let column =
            |at: usize| mean(&mqkv_cpu.borrow().iter().map(|row: &[f64; 5]| row[at]).collect::<Vec<_>>());
        let put_cpu: Vec<_> = put_cpu.borrow().iter().map(|row: &[f64; 1]| row[0]).collect();
        println!("  CPU time of etcd for a put: {:.0} µs", mean(&put_cpu) * 1e6);
        let [etcd, broker, owner, standby] = [0, 1, 2, 3].map(|at| column(at) * 1e6);
        print!("  CPU time for a write of mqkv: etcd {etcd:.0} µs, broker {broker:.0}, ");
        println!("owner {owner:.0}, standby {standby:.0}; writes in a commit: {:.1}", 1.0 / column(4));
    }
    println!("GET: {} ms", spread(&run(get(port, 4 * FEW)), 2));
}

fn note<const N: usize>(rows: &RefCell<Vec<[f64; N]>>, row: [f64; N]) {
    rows.borrow_mut().push(row);
}

/// Kills the owner of two instances again and again, and measures how long nothing answers.
fn gaps(machines: &Machines) {
    let kills = std::env::var("MQKV_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let broker = machines.broker();
    let port = broker.process.port;
    let names = ["one", "two"];
    let start = |name: &str| machines.store(&broker, "gaps", name).process;
    let mut owner = start(names[0]);
    wait_until_served(port);
    let mut waits = Vec::new();
    for number in 0..kills {
        // The next one follows before the owner is killed.
        let next = start(names[(number + 1) % 2]);
        std::thread::sleep(Duration::from_secs(3));
        waits.push(run(gap(port, owner)));
        owner = next;
        // The name is free once the lease of the one that was killed has ended.
        std::thread::sleep(Duration::from_secs(3));
    }
    println!("from the kill of the owner to the first answer, {kills} kills: {} s", spread(&waits, 2));
}

/// Starts an instance beside an owner with many keys, and measures how long it reads, how many writes of one client are answered
/// meanwhile, and how long `store check` takes.
fn joining(machines: &Machines) {
    let broker = machines.broker();
    let port = broker.process.port;
    let _owner = machines.store(&broker, "joining", "owner");
    wait_until_served(port);
    fill(port, JOINED_KEYS);
    let writes = || rate(FEW, || run(raw::set_by_each(port, 1, FEW)));
    let alone = writes();
    let check = |begun: Instant| {
        let mut check = Command::new(MQKV);
        check.args(["store", "check", "-q", "--etcd", &machines.urls.join(","), "--cluster", "joining"]);
        check.arg("--etcd-ca").arg(&machines.ca);
        assert!(check.stdout(Stdio::null()).status().unwrap().success());
        begun.elapsed().as_secs_f64()
    };
    println!("{JOINED_KEYS} keys: store check takes {:.1} s", check(Instant::now()));
    let begun = Instant::now();
    let other = machines.store(&broker, "joining", "other");
    let admin = other.admin;
    let follows = std::thread::spawn(move || {
        while metric(admin, "mqkv_keys ").is_none_or(|keys| keys < JOINED_KEYS as f64) {
            std::thread::sleep(Duration::from_millis(50));
        }
        begun.elapsed().as_secs_f64()
    });
    let mut meanwhile = Vec::new();
    while !follows.is_finished() {
        meanwhile.push(writes());
    }
    println!("an instance has read them after {:.1} s", follows.join().unwrap());
    println!("writes of one client: {alone:.0} a second alone, {} meanwhile", spread(&meanwhile, 0));
}

/// Stores values of as many keys.
fn fill(port: u16, keys: usize) {
    let lines: String = (0..keys)
        .map(|number| {
            format!("{{\"key\":\"line1/machine{number:07}/temperature\",\"value\":\"{:0>100}\"}}\n", number)
        })
        .collect();
    let mut import = Command::new(MQKV);
    import.args(["import", "-q", "-b", &format!("mqtt://127.0.0.1:{port}"), "-"]).stdin(Stdio::piped());
    let mut import = import.stdout(Stdio::null()).spawn().unwrap();
    import.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(import.wait().unwrap().success());
}

/// Returns a metric of an instance.
fn metric(admin: u16, name: &str) -> Option<f64> {
    let mut stream = TcpStream::connect(("127.0.0.1", admin)).ok()?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost:{admin}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer)).ok()?;
    answer.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

/// Kills the owner, and returns after how many seconds a GET is answered that was sent later.
async fn gap(port: u16, owner: Process) -> f64 {
    let get = raw::request("probe", &command(&[b"GET", b"absent"]), &raw::timestamp());
    drop(owner);
    let begun = Instant::now();
    let mut client = RawClient::for_requests(port, "probe").await;
    loop {
        client.buffers.push_request(&get);
        client.flush().await.unwrap();
        if tokio::time::timeout(PROBE_PAUSE, client.wait_for_messages(1)).await.is_ok() {
            return begun.elapsed().as_secs_f64();
        }
    }
}
