//! What it costs that a SET is on the disk before it is answered: `mqkv serve --data`, a bare loop of append and
//! fdatasync, and Debian's etcd-server, in turn and on the same disk; and how long a store of a million keys takes to
//! open. `cargo bench --bench durable` prints it. Without etcd-server that part is left out, and it says so.
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

use shared::raw::{self, Raw, Single, command};
use shared::{Process, free_port, rate, ratios, serve, spread};

const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;
const WRITERS: usize = 64;
const ROUNDS: usize = 5;
/// SETs a round, by one writer and by many.
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
        figures.push(rate(FEW, || set_one_after_the_other(ours.port, FEW)));
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

/// Appends as many bytes as a SET has, and waits for the disk behind so many of them.
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

/// The request again with a key of its own.
fn ask(wire: &mut raw::Wire, request: &[u8], key: usize) {
    let key_at = request.windows(KEY_BYTES).position(|window| window == [b'k'; KEY_BYTES]).unwrap();
    wire.ask_changed(request, |request| {
        let key = format!("{key:0KEY_BYTES$}");
        request[key_at..key_at + KEY_BYTES].copy_from_slice(key.as_bytes());
    });
}

fn set_one_after_the_other(port: u16, count: usize) {
    let mut client = Single::connect(port, "bench").unwrap();
    let request = request("bench");
    for number in 0..count {
        ask(&mut client.wire, &request, number);
        client.message().unwrap();
    }
}

/// So many clients with one SET in flight each.
async fn set(port: u16, clients: usize, count: usize) {
    let tasks: Vec<_> = (0..clients)
        .map(|number| {
            tokio::task::spawn_local(async move {
                let id = format!("bench-{number}");
                let mut client = Raw::connect(port, &id).await.unwrap();
                client.subscribe(&raw::response_topic(&id)).await.unwrap();
                let request = request(&id);
                for round in 0..count / clients {
                    ask(&mut client.wire, &request, round * clients + number);
                    client.flush().await.unwrap();
                    client.messages(1).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Starts Debian's etcd on loopback, and waits until it takes a put; none, if it is not installed.
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
            println!("without etcd: apt-get install etcd-server, and it is measured too");
            return None;
        }
        other => other.unwrap(),
    };
    let server = Process::of(child, port);
    while try_put(port).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Some(server)
}

fn try_put(port: u16) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    put_once(&mut stream, 0).and_then(|is_done| if is_done { Ok(()) } else { Err(ErrorKind::Other.into()) })
}

/// So many clients, each a thread, with one put in flight each; by the JSON that etcd takes beside gRPC.
fn put(port: u16, clients: usize, count: usize) {
    std::thread::scope(|scope| {
        for number in 0..clients {
            scope.spawn(move || {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                stream.set_nodelay(true).unwrap();
                for round in 0..count / clients {
                    assert!(
                        put_once(&mut stream, round * clients + number).unwrap(),
                        "etcd has not taken it"
                    );
                }
            });
        }
    });
}

fn put_once(stream: &mut TcpStream, key: usize) -> std::io::Result<bool> {
    // Sixteen digits and a hundred bytes in base64, without a library: three digits are four letters of this.
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
    let mut room = [0; 2048];
    loop {
        let read = stream.read(&mut room)?;
        answer.extend_from_slice(&room[..read]);
        if read == 0 || is_whole(&answer) {
            return Ok(answer.starts_with(b"HTTP/1.1 200"));
        }
    }
}

fn base64(three: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = three.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
    [18, 12, 6, 0].iter().map(|shift| char::from(LETTERS[bits >> shift & 63])).collect()
}

/// Whether an answer has the length that it says, or its last chunk.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    match length {
        Some(length) => body.len() >= length.parse().unwrap(),
        None => body.ends_with("0\r\n\r\n"),
    }
}

/// How long a start takes with many keys, after an orderly end and after a kill, and what memory they take then.
fn opening(home: &Path) {
    let folder = home.join("many");
    let options = ["--data", folder.to_str().unwrap(), "--keys-max", "2000000"];
    let server = serve(&options);
    let begun = Instant::now();
    run(fill(server.port));
    println!("{KEYS_MANY} kept keys of {KEY_BYTES} + {VALUE_BYTES} bytes, {KEYS_AT_ONCE} in flight");
    println!("  written in                   {:.1} s", begun.elapsed().as_secs_f64());
    println!("  memory                       {:.0} MiB", server.resident_mib());
    drop(server);
    let bytes = fs::metadata(folder.join("store.redb")).unwrap().len();
    println!("  file                         {} MiB", bytes / (1024 * 1024));
    for after in ["a kill", "an orderly end"] {
        let begun = Instant::now();
        let server = serve(&options);
        let seconds = begun.elapsed().as_secs_f64();
        println!("  open after {after:17} {seconds:.2} s, {:.0} MiB", server.resident_mib());
        server.terminate();
    }
}

async fn fill(port: u16) {
    let mut client = Raw::connect(port, "bench").await.unwrap();
    client.subscribe(&raw::response_topic("bench")).await.unwrap();
    let request = request("bench");
    let (mut asked, mut answered) = (0, 0);
    while answered < KEYS_MANY {
        while asked < KEYS_MANY && asked - answered < KEYS_AT_ONCE {
            ask(&mut client.wire, &request, asked);
            asked += 1;
        }
        client.flush().await.unwrap();
        client.messages(1).await.unwrap();
        answered += 1 + client.wire.come();
    }
}
