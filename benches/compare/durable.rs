//! Durable SETs per second of `mqkv serve --data`, of etcd, of Redis that syncs its file before each reply, and of a bare loop
//! of append and fdatasync, in turn on the same disk.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::shared::raw::{self, BlockingClient, KEY_BYTES, SetRequest, VALUE_BYTES, command, key};
use crate::shared::{Process, free_port, in_turn, print_against_others, rate, redis, run as block_on, serve};

const WRITERS: usize = 64;
const ROUNDS: usize = 7;
/// SETs per round: by one writer, and by many.
const FEW: usize = 1_000;
const MANY: usize = 20_000;

pub fn run() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let ours = serve(&["--data", home.path().join("ours").to_str().unwrap()]);
    let etcd = etcd(&home.path().join("etcd"));
    let redis = redis::serve(Some(&home.path().join("redis")));
    let bare = OpenOptions::new().create(true).append(true).open(home.path().join("bare")).unwrap();
    println!(" 1 writer");
    let names = ["mqkv", "append and fdatasync", "Redis, appendfsync always", "etcd"];
    let mut subjects: Vec<Box<dyn FnMut() -> f64>> = vec![
        Box::new(|| rate(FEW, || set_one_by_one(ours.port, FEW))),
        Box::new(|| rate(FEW, || append(&bare, FEW, 1))),
        Box::new(|| rate(FEW, || set_in_redis_one_by_one(redis.port, FEW))),
    ];
    if let Some(etcd) = &etcd {
        subjects.push(Box::new(|| rate(FEW, || put(etcd.port, 1, FEW))));
    }
    print_against_others(&names, &in_turn(ROUNDS, &mut subjects), "a second", 0);
    println!(" {WRITERS} writers");
    let names = ["mqkv", "append, fdatasync every 64", "Redis, appendfsync always", "etcd"];
    let mut subjects: Vec<Box<dyn FnMut() -> f64>> = vec![
        Box::new(|| rate(MANY, || block_on(raw::set_by_each(ours.port, WRITERS, MANY)))),
        Box::new(|| rate(MANY, || append(&bare, MANY, WRITERS))),
        Box::new(|| rate(MANY, || block_on(set_in_redis(redis.port, WRITERS, MANY)))),
    ];
    if let Some(etcd) = &etcd {
        subjects.push(Box::new(|| rate(FEW * 4, || put(etcd.port, WRITERS, FEW * 4))));
    }
    print_against_others(&names, &in_turn(ROUNDS, &mut subjects), "a second", 0);
}

/// Appends `count` times the bytes of a SET, with fdatasync after each `group` of them.
fn append(mut file: &File, count: usize, group: usize) {
    for number in 1..=count {
        file.write_all(&[b'v'; KEY_BYTES + VALUE_BYTES]).unwrap();
        if number % group == 0 {
            file.sync_data().unwrap();
        }
    }
}

fn set_one_by_one(port: u16, count: usize) {
    let mut client = BlockingClient::connect(port, "bench").unwrap();
    let set = SetRequest::new("bench");
    for number in 0..count {
        set.push(&mut client.buffers, &key(number));
        client.wait_for_message().unwrap();
    }
}

fn redis_command(number: usize) -> Vec<u8> {
    command(&[b"SET", &key(number), &[b'v'; VALUE_BYTES]])
}

fn set_in_redis_one_by_one(port: u16, count: usize) {
    let mut client = redis::BlockingClient::connect(port).unwrap();
    (0..count).for_each(|number| client.request(&redis_command(number)).unwrap());
}

async fn set_in_redis(port: u16, clients: usize, count: usize) {
    let tasks: Vec<_> = (0..clients)
        .map(|number| {
            tokio::task::spawn_local(async move {
                let mut client = redis::Client::connect(port).await.unwrap();
                let push = |output: &mut bytes::BytesMut, round: usize| {
                    output.extend_from_slice(&redis_command(round * clients + number));
                };
                client.request_each(1, count / clients, push).await.unwrap();
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
