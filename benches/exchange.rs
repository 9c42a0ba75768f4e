//! What the exchange costs: durable SETs of a store that takes part against one that does not, the way to the other node, the
//! catch-up after a long time offline, the delay of a notification, and memory.
//!
//! `cargo bench --bench exchange` prints the rates, and the ratios of one run.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::arithmetic_side_effects, clippy::panic)]
#![allow(clippy::indexing_slicing, clippy::disallowed_methods)]

mod shared;

use std::cell::Cell;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use shared::raw::{self, KEY_BYTES, RawClient, SetRequest, VALUE_BYTES, command};
use shared::{Process, free_port, in_turn, rate, ratios, run, serve, spread};

const WRITERS: usize = 64;
const ROUNDS: usize = 10;
const SETS: usize = 20_000;
const QUEUED: usize = 100_000;
const RECORDS: usize = 200_000;
const NOTIFICATIONS: usize = 500;
/// A key that does not take part.
const OTHER: u8 = b'0';
/// First byte of the keys that take part.
const SHARED: u8 = b'x';

fn main() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    writes(home.path());
    run(async {
        memory(home.path()).await;
        for delay_ms in [0, 25] {
            queued(home.path(), Duration::from_millis(delay_ms)).await;
        }
    });
}

/// A node with its files.
struct Node {
    folder: String,
    file: String,
    listen: String,
    port: u16,
}

impl Node {
    fn new(home: &Path, name: &str, port: u16, role: &str) -> Self {
        let file = home.join(format!("{name}.toml"));
        fs::write(&file, format!("exchange = \"bench\"\nnode = \"{name}\"\n{role}")).unwrap();
        let [folder, file] = [home.join(name), file].map(|path| path.to_str().unwrap().to_owned());
        Self { folder, file, listen: format!("127.0.0.1:{port}"), port }
    }

    fn root(home: &Path, name: &str) -> Self {
        let rule = "role = \"root\"\nadmit = [\"*\"]\n[[rule]]\nkeys = [\"x*\"]\nchange = \"leaves\"\n";
        Self::new(home, name, free_port(), rule)
    }

    /// The leaf of the root at this port.
    fn leaf(home: &Path, name: &str, root: u16) -> Self {
        let role = format!("role = \"leaf\"\nroot = \"mqtt://127.0.0.1:{root}\"\n");
        Self::new(home, name, free_port(), &role)
    }

    fn start(&self) -> Process {
        let mut process =
            serve(&["--data", &self.folder, "--exchange", &self.file, "--listen", &self.listen]);
        process.port = self.port;
        process
    }
}

fn name(first: u8, key: usize) -> [u8; KEY_BYTES] {
    let mut name = raw::key(key);
    name[0] = first;
    name
}

/// Sends `count` SETs by clients with one request in flight each.
async fn set(port: u16, first: u8, count: usize) {
    let tasks: Vec<_> = (0..WRITERS)
        .map(|number| {
            tokio::task::spawn_local(async move {
                let id = format!("bench-{number}");
                let (mut client, set) = (RawClient::for_requests(port, &id).await, SetRequest::new(&id));
                for round in 0..count / WRITERS {
                    set.push(&mut client.buffers, &name(first, round * WRITERS + number));
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

/// Sends SETs of keys with this first byte.
async fn fill(port: u16, first: u8, count: usize) {
    raw::fill(port, count, |at| name(first, at)).await;
}

/// Sets a new key at one node and waits until the other one has it on its disk, with all changes before it.
async fn wait_until_applied(from: u16, to: u16, mark: usize) {
    let (mut writer, set) = (RawClient::for_requests(from, "mark").await, SetRequest::new("mark"));
    set.push(&mut writer.buffers, &name(SHARED, mark));
    writer.flush().await.unwrap();
    writer.wait_for_messages(1).await.unwrap();
    let mut reader = RawClient::for_requests(to, "reader").await;
    let get = raw::request("reader", &command(&[b"GET", &name(SHARED, mark)]), &raw::timestamp());
    loop {
        reader.buffers.push_request(&get);
        reader.flush().await.unwrap();
        let answer = loop {
            let packet = reader.next().await.unwrap();
            if packet.kind & 0xF0 == 0x30 {
                break packet.body;
            }
        };
        if !answer.ends_with(b"$-1\r\n") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn writes(home: &Path) {
    let plain = serve(&["--data", home.join("plain").to_str().unwrap()]);
    let [beside, lone] = ["beside", "lone"].map(|name| Node::root(home, name).start());
    let root = Node::root(home, "root");
    let leaf = Node::leaf(home, "leaf", root.port);
    let (root, leaf) = (root.start(), leaf.start());
    run(wait_until_applied(root.port, leaf.port, 999_999_999));
    let names = [
        "no exchange",
        "exchange, other keys",
        "root without leaves",
        "root to leaf, applied",
        "leaf to root, applied",
    ];
    let mark = Cell::new(1_000_000);
    let at = |port: u16, first: u8| -> Box<dyn FnMut() -> f64> {
        Box::new(move || rate(SETS, || run(set(port, first, SETS))))
    };
    let applied = |from: u16, to: u16| -> Box<dyn FnMut() -> f64 + '_> {
        let mark = &mark;
        Box::new(move || {
            mark.set(mark.get() + 1);
            rate(SETS, || {
                run(async {
                    set(from, SHARED, SETS).await;
                    wait_until_applied(from, to, mark.get()).await;
                });
            })
        })
    };
    let rates = in_turn(
        ROUNDS,
        &mut [
            at(plain.port, SHARED),
            at(beside.port, OTHER),
            at(lone.port, SHARED),
            applied(root.port, leaf.port),
            applied(leaf.port, root.port),
        ],
    );
    println!("durable SETs of {KEY_BYTES} + {VALUE_BYTES} bytes, {WRITERS} writers");
    for (name, figures) in names.iter().zip(&rates) {
        println!("  {name:28} {} a second", spread(figures, 0));
    }
    for (at, name) in names.iter().enumerate().skip(1) {
        println!("  {:28} {}", format!("{name} / no"), spread(&ratios(&rates[at], &rates[0]), 2));
    }
    run(notifications(root.port, leaf.port));
}

/// Measures the time from the answer at the root to the notification at the leaf.
async fn notifications(root: u16, leaf: u16) {
    let mut watcher = RawClient::for_requests(leaf, "watcher").await;
    let keynotify = command(&[b"KEYNOTIFY", &name(SHARED, 1)]);
    watcher.buffers.push_request(&raw::request("watcher", &keynotify, &raw::timestamp()));
    watcher.flush().await.unwrap();
    watcher.wait_for_messages(1).await.unwrap();
    let (mut writer, set) = (RawClient::for_requests(root, "writer").await, SetRequest::new("writer"));
    let (mut answers, mut delays) = (Vec::new(), Vec::new());
    for _ in 0..NOTIFICATIONS {
        set.push(&mut writer.buffers, &name(SHARED, 1));
        let begun = Instant::now();
        writer.flush().await.unwrap();
        writer.wait_for_messages(1).await.unwrap();
        let answered = Instant::now();
        watcher.wait_for_messages(1).await.unwrap();
        watcher.flush().await.unwrap();
        answers.push((answered - begun).as_secs_f64() * 1e3);
        delays.push(answered.elapsed().as_secs_f64() * 1e3);
    }
    println!("one SET at the root after the other");
    println!("  request to answer            {} ms", spread(&answers, 2));
    println!("  answer to notification       {} ms", spread(&delays, 2));
    println!("  delay / answer               {}", spread(&ratios(&delays, &answers), 2));
}

/// Measures what a record takes in memory beside its key: keys that take part against as many that do not.
async fn memory(home: &Path) {
    let mut bytes = [0.0; 2];
    for (first, bytes) in [OTHER, SHARED].into_iter().zip(&mut bytes) {
        let root = Node::root(home, &format!("memory-{}", char::from(first))).start();
        let before = root.resident_mib();
        fill(root.port, first, RECORDS).await;
        *bytes = (root.resident_mib() - before) * 1024.0 * 1024.0 / RECORDS as f64;
    }
    println!("{RECORDS} keys of {KEY_BYTES} + {VALUE_BYTES} bytes at a root");
    println!("  memory, outside the rules    {:.0} bytes a key", bytes[0]);
    println!("  memory, in the rules         {:.0} bytes more", bytes[1] - bytes[0]);
}

/// Measures the catch-up of a leaf, and of a root, over a link with this delay of each way.
async fn queued(home: &Path, delay: Duration) {
    let label = format!("{}", delay.as_millis());
    println!(
        "{QUEUED} changes of {} bytes, {} ms round trip",
        KEY_BYTES + VALUE_BYTES,
        2 * delay.as_millis()
    );
    let (down, up) = (Node::root(home, &format!("down-{label}")), Node::root(home, &format!("up-{label}")));
    let [to_down, to_up] = [down.port, up.port].map(|port| delayed(port, delay));
    let leaves = [
        Node::leaf(home, &format!("of-down-{label}"), to_down),
        Node::leaf(home, &format!("of-up-{label}"), to_up),
    ];

    let root = down.start();
    fill(root.port, SHARED, QUEUED).await;
    let begun = Instant::now();
    let leaf = leaves[0].start();
    wait_until_applied(root.port, leaf.port, QUEUED + 1).await;
    println!("  root to new leaf             {:.1} s", begun.elapsed().as_secs_f64());
    drop((root, leaf));

    // The leaf has the rules once it has been linked.
    let (root, leaf) = (up.start(), leaves[1].start());
    wait_until_applied(root.port, leaf.port, QUEUED + 2).await;
    root.terminate();
    let before = leaf.resident_mib();
    fill(leaf.port, SHARED, QUEUED).await;
    println!("  memory of the leaf           {:.0} MiB more", leaf.resident_mib() - before);
    let root = up.start();
    // The leaf tries again after up to 30 seconds, which is no part of the measured time.
    wait_until_linked(leaf.port).await;
    let begun = Instant::now();
    let stop = Rc::new(Cell::new(false));
    let beside = tokio::task::spawn_local(gets(root.port, Rc::clone(&stop)));
    wait_until_applied(leaf.port, root.port, QUEUED + 3).await;
    println!("  leaf to root                 {:.1} s", begun.elapsed().as_secs_f64());
    stop.set(true);
    let mut waits = beside.await.unwrap();
    waits.sort_by(f64::total_cmp);
    let at = |share: usize| waits[(waits.len() - 1) * share / 100];
    println!("  a GET at the root meanwhile  p50 {:.2} ms, p99 {:.2} ms", at(50), at(99));
}

/// Sends one GET after the other until `stop` is set, and returns how long each took, in milliseconds.
async fn gets(port: u16, stop: Rc<Cell<bool>>) -> Vec<f64> {
    let mut client = RawClient::for_requests(port, "gets").await;
    let get = raw::request("gets", &command(&[b"GET", b"absent"]), &raw::timestamp());
    let mut waits = Vec::new();
    while !stop.get() {
        let begun = Instant::now();
        client.buffers.push_request(&get);
        client.flush().await.unwrap();
        client.wait_for_messages(1).await.unwrap();
        waits.push(begun.elapsed().as_secs_f64() * 1e3);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    waits
}

/// Returns a port that leads to this one, over a link that delays each way.
fn delayed(port: u16, delay: Duration) -> u16 {
    if delay.is_zero() {
        return port;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap().port();
    // In a thread of its own: a blocking fill on this one must not delay it more.
    std::thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            // The root may be away: then the connection ends.
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            for (from, to) in [(&client, &server), (&server, &client)] {
                from.set_nodelay(true).unwrap();
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                pass_on(from, to, delay);
            }
        }
    });
    local
}

/// Copies what comes from one socket to the other, later.
fn pass_on(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, receiver) = std::sync::mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if sender.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        for (due, bytes) in receiver {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// Waits until the leaf is linked with its root.
async fn wait_until_linked(port: u16) {
    let url = format!("mqtt://127.0.0.1:{port}");
    loop {
        let output = std::process::Command::new(shared::MQKV)
            .args(["exchange", "status", "-j", "-b", &url])
            .output()
            .unwrap();
        if String::from_utf8_lossy(&output.stdout).contains("\"state\":\"linked\"") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
