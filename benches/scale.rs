//! Memory and speed of `mqkv serve` with many keys, connections, watchers and wildcard subscriptions, and without any; and
//! the start of a store with a million keys on disk.
//!
//! `cargo bench --bench scale` prints both. Needs Debian's `mosquitto` to compare the start.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::arithmetic_side_effects, clippy::panic)]
#![allow(clippy::indexing_slicing, clippy::disallowed_methods)]

mod shared;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use bytes::Bytes;
use shared::raw::{self, KEY_BYTES, RawClient, SetRequest, VALUE_BYTES, command, key};
use shared::{MQKV, Process, free_port, ratios, run, serve, spread};

const KEYS_FEW: usize = 1_000;
const KEYS_MANY: usize = 1_000_000;
/// With the writer, the default limit.
const CONNECTIONS: usize = 9_999;
const WILDCARDS: usize = 1_000;
const INFLIGHT: usize = 64;
const ROUNDS: usize = 5;
const STARTS: usize = 30;

fn main() {
    run(idle());
    starts();
    run(keys());
    run(connections());
    run(wildcards());
    opening();
}

/// Starts a server and connects one client with a subscription to its responses.
async fn one_client(options: &[&str]) -> (Process, RawClient) {
    let server = serve(options);
    let client = RawClient::for_requests(server.port, "bench").await;
    (server, client)
}

async fn idle() {
    let (server, mut client) = one_client(&[]).await;
    ask(&mut client, &command(&[b"GET", b"bench/nothing-here"])).await;
    println!("idle: {:.1} MiB", server.resident_mib());
}

async fn ask(client: &mut RawClient, payload: &[u8]) {
    client.buffers.push_request(&raw::request("bench", payload, &raw::timestamp()));
    client.flush().await.unwrap();
    client.wait_for_messages(1).await.unwrap();
}

/// Measures the time from the start of the process to the first response, or to Mosquitto's first CONNACK.
fn starts() {
    let mut figures: [Vec<f64>; 2] = Default::default();
    for _ in 0..STARTS {
        figures[0].push(start(Command::new(MQKV).args(["serve", "-q", "--listen"]), |port| {
            format!("127.0.0.1:{port}")
        }));
        figures[1].push(start(Command::new("mosquitto").arg("-p"), |port| port.to_string()));
    }
    println!("from the start to the first response, ms");
    println!("  mqkv serve, a GET       {}", spread(&figures[0], 2));
    println!("  mosquitto, its CONNACK  {}", spread(&figures[1], 2));
    println!("  ratio                   {}", spread(&ratios(&figures[0], &figures[1]), 2));
}

fn start(command: &mut Command, address: impl Fn(u16) -> String) -> f64 {
    let port = free_port();
    let is_ours = command.get_program() == MQKV;
    command.arg(address(port)).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let mut child = command.spawn().unwrap();
    run(async {
        let mut client = loop {
            match RawClient::connect(port, "bench").await {
                Ok(client) => break client,
                Err(_) => std::thread::sleep(std::time::Duration::from_micros(100)),
            }
        };
        if is_ours {
            client.subscribe(&raw::response_topic("bench")).await.unwrap();
            ask(&mut client, &self::command(&[b"GET", b"bench/nothing-here"])).await;
        }
    });
    let taken = begun.elapsed();
    child.kill().unwrap();
    child.wait().unwrap();
    taken.as_secs_f64() * 1e3
}

/// Measures throughput with few keys and with many, all with a TTL, and their memory.
async fn keys() {
    let (few, mut client_of_few) = one_client(&[]).await;
    let (many, mut client_of_many) = one_client(&["--keys-max", "2000000"]).await;
    fill(&mut client_of_few, KEYS_FEW, KEYS_FEW).await;
    let before = many.resident_mib();
    fill(&mut client_of_many, KEYS_MANY, KEYS_MANY).await;
    let after = many.resident_mib();
    let each = (after - before) * 1024.0 * 1024.0 / KEYS_MANY as f64 - (KEY_BYTES + VALUE_BYTES) as f64;
    println!("{KEYS_MANY} keys of {KEY_BYTES} + {VALUE_BYTES} bytes with a TTL");
    println!("  memory                  {after:.0} MiB, {each:.0} bytes a key over key and value");
    let mut rates: [Vec<f64>; 2] = Default::default();
    for _ in 0..ROUNDS {
        for (at, client, keys) in [(0, &mut client_of_few, KEYS_FEW), (1, &mut client_of_many, KEYS_MANY)] {
            let begun = Instant::now();
            fill(client, 200_000, keys).await;
            rates[at].push(200_000.0 / begun.elapsed().as_secs_f64());
        }
    }
    println!("  with {KEYS_FEW:9} keys     {} SETs a second", spread(&rates[0], 0));
    println!("  with {KEYS_MANY:9} keys     {} SETs a second", spread(&rates[1], 0));
    println!("  ratio                   {}", spread(&ratios(&rates[1], &rates[0]), 2));
    drop((few, many));
}

/// Sends `count` SETs of different keys out of `keys`, with consecutive ones far apart.
async fn fill(client: &mut RawClient, count: usize, keys: usize) {
    let set = SetRequest::with_options("bench", &[b"PX", b"3600000"]);
    // A stride that shares no factor with the number of keys visits all of them.
    let stride = 7_919;
    let push = |buffers: &mut raw::Buffers, at: usize| set.push(buffers, &key(at * stride % keys));
    client.request_each(INFLIGHT, count, push).await.unwrap();
}

/// Measures many connections; then all of them watch one key that is set.
async fn connections() {
    let (server, mut writer) = one_client(&[]).await;
    let before = server.resident_mib();
    let begun = Instant::now();
    let mut clients = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        clients.push(RawClient::connect(server.port, &format!("bench-{number}")).await.unwrap());
    }
    let seconds = begun.elapsed().as_secs_f64();
    let connected = server.resident_mib();
    let each = |before: f64, after: f64| (after - before) * 1024.0 / CONNECTIONS as f64;
    println!("{CONNECTIONS} connections");
    println!("  made in                 {seconds:.2} s, one after the other");
    println!("  memory                  {connected:.0} MiB, {:.1} KiB each", each(before, connected));
    for (number, client) in clients.iter_mut().enumerate() {
        let id = format!("bench-{number}");
        client.subscribe(&raw::response_topic(&id)).await.unwrap();
        let keynotify = command(&[b"KEYNOTIFY", b"bench/watched-key"]);
        client.buffers.push_request(&raw::request(&id, &keynotify, &raw::timestamp()));
        client.flush().await.unwrap();
        client.wait_for_messages(1).await.unwrap();
        client.flush().await.unwrap();
    }
    let watching = server.resident_mib();
    println!("the same, all watching one key");
    println!("  memory                  {watching:.0} MiB, {:.1} KiB more each", each(connected, watching));
    let mut figures = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        ask(&mut writer, &command(&[b"SET", b"bench/watched-key", b"a value of no account"])).await;
        for client in &mut clients {
            client.wait_for_messages(1).await.unwrap();
            client.flush().await.unwrap();
        }
        figures.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    println!("  one SET reaches all in  {} ms", spread(&figures, 0));
    println!("  memory after it         {:.0} MiB", server.resident_mib());
}

/// Measures requests while there are many wildcard subscriptions, and a message that matches all of them.
async fn wildcards() {
    let (server, mut client) = one_client(&[]).await;
    let (bare, mut bare_client) = one_client(&[]).await;
    let before = server.resident_mib();
    let mut others = Vec::new();
    for number in 0..WILDCARDS {
        let mut other = RawClient::connect(server.port, &format!("bench-{number}")).await.unwrap();
        other.subscribe(&format!("plant/+/line{number}/#")).await.unwrap();
        other.subscribe("all/+/#").await.unwrap();
        others.push(other);
    }
    let get = raw::request("bench", &command(&[b"GET", b"bench/nothing-here"]), &raw::timestamp());
    let mut rates: [Vec<f64>; 2] = Default::default();
    for _ in 0..ROUNDS {
        for (at, client) in [(0, &mut bare_client), (1, &mut client)] {
            rates[at].push(gets(client, &get).await);
        }
    }
    println!("{WILDCARDS} clients with wildcard subscriptions");
    println!("  memory                  {:.1} MiB more", server.resident_mib() - before);
    println!("  requests beside them    {} of those without", spread(&ratios(&rates[1], &rates[0]), 2));
    let mut body = bytes::BytesMut::new();
    raw::text(&mut body, "all/at/once");
    body.extend_from_slice(&[0, b'x']);
    let mut figures = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        client.buffers.push_packet(0x30, &body);
        client.flush().await.unwrap();
        for other in &mut others {
            other.wait_for_messages(1).await.unwrap();
        }
        figures.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    println!("  one message reaches all {} ms", spread(&figures, 1));
    drop(bare);
}

async fn gets(client: &mut RawClient, get: &Bytes) -> f64 {
    const COUNT: usize = 50_000;
    let begun = Instant::now();
    client.request_all(std::slice::from_ref(get), INFLIGHT, COUNT).await.unwrap();
    COUNT as f64 / begun.elapsed().as_secs_f64()
}

/// Measures the start of a store with many keys on disk, after a kill and after a shutdown.
fn opening() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = ["--data", home.path().to_str().unwrap(), "--keys-max", "2000000"];
    let server = serve(&options);
    let begun = Instant::now();
    run(raw::fill(server.port, KEYS_MANY, key));
    println!(
        "{KEYS_MANY} persistent keys of {KEY_BYTES} + {VALUE_BYTES} bytes, {} in flight",
        raw::FILL_INFLIGHT
    );
    println!("  written in              {:.1} s", begun.elapsed().as_secs_f64());
    println!("  memory                  {:.0} MiB", server.resident_mib());
    drop(server);
    let files = fs::read_dir(home.path()).unwrap();
    let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    println!("  files                   {} MiB", bytes / (1024 * 1024));
    for after in ["a kill", "a shutdown"] {
        let begun = Instant::now();
        let server = serve(&options);
        let seconds = begun.elapsed().as_secs_f64();
        println!("  open after {after:12} {seconds:.2} s, {:.0} MiB", server.resident_mib());
        server.terminate();
    }
}
