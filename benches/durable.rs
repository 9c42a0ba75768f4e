//! Durable SETs per second of `mqkv serve --data`, of a bare loop of append and fdatasync, and of Debian's etcd-server,
//! in turn on the same disk; and the time that a store with a million keys takes to open.
//!
//! `cargo bench --bench durable` prints the rates and the ratios. Without etcd-server its rows are left out.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::arithmetic_side_effects, clippy::panic)]
#![allow(clippy::indexing_slicing, clippy::disallowed_methods)]

mod shared;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use tokio::task::LocalSet;

use shared::raw::{self, BlockingClient, RawClient, command};
use shared::{Process, free_port, rate, ratios, serve, spread};

const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;
const WRITERS: usize = 64;
const ROUNDS: usize = 5;
/// SETs per round: by one writer, and by many.
const FEW: usize = 1_000;
const MANY: usize = 20_000;
const KEYS_MANY: usize = 1_000_000;
const KEYS_AT_ONCE: usize = 1_000;

fn main() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    writes(home.path());
    opening(home.path());
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, work)
}

fn writes(home: &Path) {
    let ours = serve(&["--data", home.join("ours").to_str().unwrap()]);
    let theirs = etcd(&home.join("theirs"));
    let mut bare = OpenOptions::new().create(true).append(true).open(home.join("bare")).unwrap();
    let names = [
        "append + fdatasync, each",
        "mqkv, 1 writer",
        "etcd, 1 writer",
        "append + fdatasync, every 64",
        "mqkv, 64 writers",
        "etcd, 64 writers",
    ];
    let mut rates: [Vec<f64>; 6] = Default::default();
    for round in 0..=ROUNDS {
        let mut figures = vec![rate(FEW, || append(&mut bare, FEW, 1))];
        figures.push(rate(FEW, || set_sequentially(ours.port, FEW)));
        figures.push(theirs.as_ref().map_or(0.0, |etcd| rate(FEW, || put(etcd.port, 1, FEW))));
        figures.push(rate(MANY, || append(&mut bare, MANY, WRITERS)));
        figures.push(rate(MANY, || run(set(ours.port, WRITERS, MANY))));
        figures.push(theirs.as_ref().map_or(0.0, |etcd| rate(FEW * 4, || put(etcd.port, WRITERS, FEW * 4))));
        // The first round warms up.
        if round > 0 {
            rates.iter_mut().zip(figures).for_each(|(rates, figure)| rates.push(figure));
        }
    }
    println!("durable SETs of {KEY_BYTES} + {VALUE_BYTES} bytes");
    for (name, figures) in names.iter().zip(&rates).filter(|(_, figures)| figures[0] > 0.0) {
        println!("  {name:28} {} a second", spread(figures, 0));
    }
    let against = |name: &str, one: usize, other: usize| {
        println!("  {name:28} {}", spread(&ratios(&rates[one], &rates[other]), 2));
    };
    against("1 writer / bare loop", 1, 0);
    against("64 writers / bare loop", 4, 0);
    against("64 writers / bare, every 64", 4, 3);
    if theirs.is_some() {
        against("1 writer / etcd", 1, 2);
        against("64 writers / etcd", 4, 5);
    }
}

/// Appends `count` times the bytes of a SET, with fdatasync after each `group` of them.
fn append(file: &mut File, count: usize, group: usize) {
    for number in 1..=count {
        file.write_all(&[b'v'; KEY_BYTES + VALUE_BYTES]).unwrap();
        if number % group == 0 {
            file.sync_data().unwrap();
        }
    }
}

fn request(client_id: &str) -> bytes::Bytes {
    let payload = command(&[b"SET", &[b'k'; KEY_BYTES], &[b'v'; VALUE_BYTES]]);
    raw::request(client_id, &payload, &raw::timestamp())
}

/// Appends the request with the key of this number.
fn push(buffers: &mut raw::Buffers, request: &[u8], key: usize) {
    let key_at = request.windows(KEY_BYTES).position(|window| window == [b'k'; KEY_BYTES]).unwrap();
    buffers.push_request_with(request, |request| {
        let key = format!("{key:0KEY_BYTES$}");
        request[key_at..key_at + KEY_BYTES].copy_from_slice(key.as_bytes());
    });
}

fn set_sequentially(port: u16, count: usize) {
    let mut client = BlockingClient::connect(port, "bench").unwrap();
    let request = request("bench");
    for number in 0..count {
        push(&mut client.buffers, &request, number);
        client.wait_for_message().unwrap();
    }
}

/// Sends `count` SETs by clients with one request in flight each.
async fn set(port: u16, clients: usize, count: usize) {
    let tasks: Vec<_> = (0..clients)
        .map(|number| {
            tokio::task::spawn_local(async move {
                let id = format!("bench-{number}");
                let mut client = RawClient::connect(port, &id).await.unwrap();
                client.subscribe(&raw::response_topic(&id)).await.unwrap();
                let request = request(&id);
                for round in 0..count / clients {
                    push(&mut client.buffers, &request, round * clients + number);
                    client.flush().await.unwrap();
                    client.wait_for_messages(1).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Starts etcd on loopback and waits until it accepts a put; `None` if it is not installed.
fn etcd(folder: &Path) -> Option<Process> {
    let [port, peers] = [free_port(), free_port()];
    let [client, peer] = [port, peers].map(|port| format!("http://127.0.0.1:{port}"));
    let mut command = Command::new("etcd");
    command.arg("--data-dir").arg(folder).args(["--log-level", "error", "--logger", "zap"]);
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    let child = match command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("etcd is missing: apt-get install etcd-server to measure it");
            return None;
        }
        other => other.unwrap(),
    };
    let server = Process::new(child, port);
    while try_put(port).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Some(server)
}

fn try_put(port: u16) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    put_once(&mut stream, 0).and_then(|is_done| if is_done { Ok(()) } else { Err(ErrorKind::Other.into()) })
}

/// Sends `count` puts by threads with one put in flight each, over etcd's JSON gateway.
fn put(port: u16, clients: usize, count: usize) {
    std::thread::scope(|scope| {
        for number in 0..clients {
            scope.spawn(move || {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                stream.set_nodelay(true).unwrap();
                for round in 0..count / clients {
                    assert!(
                        put_once(&mut stream, round * clients + number).unwrap(),
                        "etcd has refused the put"
                    );
                }
            });
        }
    });
}

fn put_once(stream: &mut TcpStream, key: usize) -> std::io::Result<bool> {
    // Base64 of three digits is four letters, so 18 digits need no padding.
    let key: String = format!("{key:018}").bytes().map(char::from).collect();
    let key: String = key.as_bytes().chunks(3).map(base64).collect();
    let value = "dnZ2".repeat(VALUE_BYTES / 3);
    let body = format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}");
    let head = format!(
        "POST /v3/kv/put HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes())?;
    let mut answer = Vec::new();
    let mut bytes = [0; 2048];
    loop {
        let read = stream.read(&mut bytes)?;
        answer.extend_from_slice(&bytes[..read]);
        if read == 0 || is_complete(&answer) {
            return Ok(answer.starts_with(b"HTTP/1.1 200"));
        }
    }
}

fn base64(three: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = three.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
    [18, 12, 6, 0].iter().map(|shift| char::from(LETTERS[bits >> shift & 63])).collect()
}

/// Returns whether a response is complete, by its Content-Length or its last chunk.
fn is_complete(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    match length {
        Some(length) => body.len() >= length.parse().unwrap(),
        None => body.ends_with("0\r\n\r\n"),
    }
}

/// Measures a start with many keys, after a kill and after a shutdown, and its memory.
fn opening(home: &Path) {
    let folder = home.join("many");
    let options = ["--data", folder.to_str().unwrap(), "--keys-max", "2000000"];
    let server = serve(&options);
    let begun = Instant::now();
    run(fill(server.port));
    println!("{KEYS_MANY} persistent keys of {KEY_BYTES} + {VALUE_BYTES} bytes, {KEYS_AT_ONCE} in flight");
    println!("  written in                   {:.1} s", begun.elapsed().as_secs_f64());
    println!("  memory                       {:.0} MiB", server.resident_mib());
    drop(server);
    let bytes = fs::metadata(folder.join("store.redb")).unwrap().len();
    println!("  file                         {} MiB", bytes / (1024 * 1024));
    for after in ["a kill", "a shutdown"] {
        let begun = Instant::now();
        let server = serve(&options);
        let seconds = begun.elapsed().as_secs_f64();
        println!("  open after {after:17} {seconds:.2} s, {:.0} MiB", server.resident_mib());
        server.terminate();
    }
}

async fn fill(port: u16) {
    let mut client = RawClient::connect(port, "bench").await.unwrap();
    client.subscribe(&raw::response_topic("bench")).await.unwrap();
    let request = request("bench");
    let (mut sent, mut answered) = (0, 0);
    while answered < KEYS_MANY {
        while sent < KEYS_MANY && sent - answered < KEYS_AT_ONCE {
            push(&mut client.buffers, &request, sent);
            sent += 1;
        }
        client.flush().await.unwrap();
        client.wait_for_messages(1).await.unwrap();
        answered += 1 + client.buffers.count_messages();
    }
}
