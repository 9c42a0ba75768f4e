//! `mqkv store --etcd` behind Mosquitto, against etcd's own puts and compare-and-puts in the same run; and how
//! long nothing answers after the owner is killed.
//!
//! `cargo bench --features cluster --bench cluster [-- SECTION...]` needs Debian's `etcd-server` and `mosquitto`. `MQKV_KILLS` sets the
//! number of kills.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::arithmetic_side_effects, clippy::panic)]
#![allow(clippy::indexing_slicing, clippy::disallowed_methods)]

mod shared;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mqkv::ledger::etcd::operation::{Condition, EtcdError, Operation, Txn, TxnAnswer, TxnOutcome};
use mqkv::server::etcd::{Etcd, EtcdSettings};
use shared::raw::{self, KEY_BYTES, RawClient, VALUE_BYTES, command, key};
use shared::{MQKV, Process, free_port, in_turn, mosquitto, rate, ratios, run, spread, wait_until_open};

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

/// Measures something of a store on the etcd with these URLs.
type Section = fn(&[String]);

const SECTIONS: [(&str, Section); 3] = [("throughput", throughput), ("gaps", gaps), ("joining", joining)];

fn main() {
    // Cargo adds options of its own.
    let wanted: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for name in &wanted {
        assert!(SECTIONS.iter().any(|(section, _)| section == name), "no section {name}");
    }
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (_members, urls) = etcd(home.path());
    for (name, run) in SECTIONS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            run(&urls);
        }
    }
}

/// Starts three members of etcd; returns them with their client URLs.
fn etcd(home: &Path) -> (Vec<Process>, Vec<String>) {
    let [ports, peers] = [(); 2].map(|()| [(); 3].map(|()| free_port()));
    let url = |port: &u16| format!("http://127.0.0.1:{port}");
    let all: Vec<_> =
        peers.iter().enumerate().map(|(index, port)| format!("n{index}={}", url(port))).collect();
    let start = |(index, port): (usize, &u16)| {
        let (client, peer) = (url(port), url(&peers[index]));
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("n{index}"), "--data-dir"]).arg(home.join(format!("n{index}")));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &all.join(","), "--log-level", "error", "--logger", "zap"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Process::new(shared::spawn(&mut command, "etcd-server"), *port)
    };
    let members: Vec<_> = ports.iter().enumerate().map(start).collect();
    ports.iter().for_each(|port| wait_until_open(*port));
    (members, ports.iter().map(url).collect())
}

/// Starts an instance of a cluster of this name, behind a broker.
fn store(urls: &[String], broker: u16, cluster: &str, instance: &str) -> Process {
    let mut command = Command::new(MQKV);
    command.args(["store", "-q", "-b", &format!("mqtt://127.0.0.1:{broker}"), "--etcd", &urls.join(",")]);
    command.args(["--cluster", cluster, "--instance", instance]);
    Process::new(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(), broker)
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

async fn connect(urls: &[String]) -> Etcd {
    let settings = EtcdSettings { endpoints: urls.to_vec(), ..EtcdSettings::default() };
    loop {
        match Etcd::connect(&settings).await {
            Ok(etcd) => return etcd,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Puts values in etcd by writers with one transaction in flight each, with a comparison of the key's last revision or without.
async fn put(urls: &[String], writers: usize, count: usize, compares: bool) {
    let etcd = connect(urls).await;
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

fn throughput(urls: &[String]) {
    let broker = mosquitto();
    let _store = store(urls, broker.port, "bench", "bench");
    wait_until_served(broker.port);
    for (writers, sets, puts) in [(1, FEW, FEW), (WRITERS, MANY, MANY_PUTS)] {
        println!("writes of {KEY_BYTES} + {VALUE_BYTES} bytes, writers: {writers}");
        let mut subjects: [Box<dyn FnMut() -> f64>; 3] = [
            Box::new(|| rate(puts, || run(put(urls, writers, puts, false)))),
            Box::new(|| rate(puts, || run(put(urls, writers, puts, true)))),
            Box::new(|| rate(sets, || run(raw::set_by_each(broker.port, writers, sets)))),
        ];
        let figures = in_turn(ROUNDS, &mut subjects);
        for (name, figures) in ["etcd, put", "etcd, compare-and-put", "mqkv"].into_iter().zip(&figures) {
            println!("  {name:28} {} a second", spread(figures, 0));
        }
        println!("  {:28} {}", "  ratio to compare-and-put", spread(&ratios(&figures[2], &figures[1]), 2));
    }
    println!("GET: {} ms", spread(&run(get(broker.port, 4 * FEW)), 2));
}

/// Kills the owner of two instances again and again, and measures how long nothing answers.
fn gaps(urls: &[String]) {
    let kills = std::env::var("MQKV_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let broker = mosquitto();
    let names = ["one", "two"];
    let start = |name: &str| store(urls, broker.port, "gaps", name);
    let mut owner = start(names[0]);
    wait_until_served(broker.port);
    let mut waits = Vec::new();
    for number in 0..kills {
        // The next one follows before the owner is killed.
        let next = start(names[(number + 1) % 2]);
        std::thread::sleep(Duration::from_secs(3));
        waits.push(run(gap(broker.port, owner)));
        owner = next;
        // The name is free once the lease of the one that was killed has ended.
        std::thread::sleep(Duration::from_secs(3));
    }
    println!("from the kill of the owner to the first answer, {kills} kills: {} s", spread(&waits, 2));
}

/// Starts an instance beside an owner with many keys, and measures how long it reads, how many writes of one client are answered
/// meanwhile, and how long `store check` takes.
fn joining(urls: &[String]) {
    let broker = mosquitto();
    let _owner = store(urls, broker.port, "joining", "owner");
    wait_until_served(broker.port);
    fill(broker.port, JOINED_KEYS);
    let writes = || rate(FEW, || run(raw::set_by_each(broker.port, 1, FEW)));
    let alone = writes();
    let check = |begun: Instant| {
        let mut check = Command::new(MQKV);
        check.args(["store", "check", "-q", "--etcd", &urls.join(","), "--cluster", "joining"]);
        assert!(check.stdout(Stdio::null()).status().unwrap().success());
        begun.elapsed().as_secs_f64()
    };
    println!("{JOINED_KEYS} keys: store check takes {:.1} s", check(Instant::now()));
    let admin = free_port();
    let begun = Instant::now();
    let mut command = Command::new(MQKV);
    command.args([
        "store",
        "-q",
        "-b",
        &format!("mqtt://127.0.0.1:{}", broker.port),
        "--etcd",
        &urls.join(","),
    ]);
    command.args(["--cluster", "joining", "--instance", "other", "--admin", &admin.to_string()]);
    let _other =
        Process::new(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(), broker.port);
    let follows = std::thread::spawn(move || {
        while !shows(admin, "mqkv_keys ", JOINED_KEYS) {
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

/// Whether a metric of an instance has at least this value.
fn shows(admin: u16, metric: &str, least: usize) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", admin)) else { return false };
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost:{admin}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    if stream.write_all(request.as_bytes()).is_err() || stream.read_to_string(&mut answer).is_err() {
        return false;
    }
    let value = answer.lines().find_map(|line| line.strip_prefix(metric));
    value.is_some_and(|value| value.trim().parse().is_ok_and(|value: f64| value >= least as f64))
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
