//! Hostile clients with the server's default limits: its memory stays bounded, and a well-behaved client is served in time.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;

use crate::client::{Client, Connection, Reply, Verb, encode, request_packet};
use crate::effort::Effort;
use crate::port::reserved_port;
use crate::server::{Server, give_way, users};
use crate::wire::{self, ConnectOptions, Publish, packet, text};

const MIB: u64 = 1024 * 1024;
/// `--memory-max` of the servers under attack.
const MEMORY_MAX: &str = "256M";
/// What the process may take: `--memory-max`, and what it needs beside it: code, stacks, buffers of connections, freed
/// memory that the allocator keeps.
const MEMORY_BYTES_MAX: u64 = (256 + 128) * MIB;
/// The well-behaved client sends a request every so often. Its latency counts from the time at which a request is due,
/// so a server that is blocked for a second is slow for all requests of that second.
const INTERVAL: Duration = Duration::from_millis(2);
const QUIET_TIME: Duration = Duration::from_millis(1500);
const P99_MAX: Duration = Duration::from_millis(100);
/// A walk under a lock blocks the server for seconds. Other machines than an idle one can take a part of this by themselves.
const P99_BLOCKED: Duration = Duration::from_secs(1);
/// Below this, the scheduling of two cores decides, not the server.
const P99_NOISE: Duration = Duration::from_millis(10);
const QUIET_FACTOR: u32 = 5;
const TIMEOUT: Duration = Duration::from_secs(60);

/// An attack: prepares, then returns what is done while the other client is measured.
struct Attack {
    name: &'static str,
    prepare: fn(&Target) -> Run,
}

type Run = Box<dyn FnOnce(&Target) + Send>;

/// The server that is attacked.
#[derive(Clone)]
struct Target {
    port: u16,
    web_socket_port: u16,
    /// Turns true when the attack is to end.
    is_over: Arc<AtomicBool>,
}

impl Target {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

const ATTACKS: &[Attack] = &[
    Attack { name: "2,000 sessions without a client, small uploads", prepare: offline_queues },
    Attack { name: "120 strangers with wrong passwords, again and again", prepare: strangers },
    Attack { name: "many matching subscription identifiers", prepare: identifiers },
    Attack { name: "answers that are not read", prepare: unread_answers },
    Attack { name: "SUBSCRIBE over 10,000 retained messages", prepare: retained_walks },
    Attack { name: "5,000 offline members of a shared subscription", prepare: shared_members },
    Attack { name: "SCAN of 50,000 keys", prepare: scans },
    Attack { name: "GETs of 15 MB", prepare: large_values },
    Attack {
        name: "44 unfinished packets of 64 MB, half of them in WebSocket frames",
        prepare: unfinished_packets,
    },
    Attack { name: "500 Will Messages of 1 MB of properties", prepare: wills },
    Attack { name: "a packet of 60 MB of empty properties", prepare: empty_properties },
];

/// What the well-behaved client and the process showed.
#[derive(Clone, Copy, Debug)]
struct Measured {
    quiet: Duration,
    p99: Duration,
    greatest: Duration,
    peak_bytes: u64,
}

pub fn run(effort: Effort) -> Result<String, String> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|error| error.to_string())?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(|error| error.to_string())?;
    // For work on one attack: the part of its name.
    let only = std::env::var("MQKV_ATTACK").unwrap_or_default();
    let attacks: Vec<_> = ATTACKS.iter().filter(|attack| attack.name.contains(&only)).collect();
    if attacks.is_empty() {
        return Err(format!("no attack has '{only}' in its name"));
    }
    if only.is_empty() {
        detects()?;
    }
    let mut failures = 0;
    for Attack { name, prepare } in &attacks {
        let measured = measure(*prepare, MEMORY_MAX, effort.pick(3, 20));
        let found = verdict(&measured, effort);
        failures += usize::from(!found.is_empty());
        let Measured { quiet, p99, greatest, peak_bytes } = measured;
        println!(
            "  {name}: {} MiB, p99 {:.1} ms (quiet {:.1}, greatest {:.1}){}",
            peak_bytes / MIB,
            ms(p99),
            ms(quiet),
            ms(greatest),
            found.iter().map(|what| format!("; {what}")).collect::<String>(),
        );
    }
    match failures {
        0 if only.is_empty() => Ok(format!("{} attacks withstood; both detectors work", attacks.len())),
        0 => Ok(format!("{} of {} attacks withstood; no detector was tried", attacks.len(), ATTACKS.len())),
        _ => Err(format!("{failures} of {} attacks succeeded", attacks.len())),
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn verdict(measured: &Measured, effort: Effort) -> Vec<&'static str> {
    let mut found = Vec::new();
    if measured.peak_bytes > MEMORY_BYTES_MAX {
        found.push("TOO MUCH MEMORY");
    }
    // A short measurement on a machine that does something else is too noisy for more than the question whether the
    // server was blocked.
    let p99_max = match effort {
        Effort::Short => P99_BLOCKED,
        Effort::Long => (measured.quiet * QUIET_FACTOR).clamp(P99_NOISE, P99_MAX),
    };
    if measured.p99 > p99_max {
        found.push("TOO SLOW");
    }
    found
}

/// Measures the well-behaved client alone, then during an attack of at least `seconds`.
fn measure(prepare: fn(&Target) -> Run, memory_max: &str, seconds: u64) -> Measured {
    let web_socket_port = reserved_port();
    let listen = format!("ws://127.0.0.1:{web_socket_port}?anonymous=yes");
    let options = ["--users", "users", "--memory-max", memory_max, "--listen", &listen];
    let server = Server::start_with_file("users", &users(["ann".to_owned()]), &options);
    let target = Target { port: server.port(), web_socket_port, is_over: Arc::default() };
    let run = prepare(&target);
    let good = GoodClient::start(target.port);
    thread::sleep(QUIET_TIME);
    let quiet = good.take_p99().0;
    let attacker = {
        let target = target.clone();
        thread::spawn(move || {
            give_way();
            run(&target);
        })
    };
    thread::sleep(Duration::from_secs(seconds));
    target.is_over.store(true, Ordering::SeqCst);
    // An attack ends only after it has done all that it is about.
    attacker.join().unwrap();
    let (p99, greatest) = good.end();
    Measured { quiet, p99, greatest, peak_bytes: server.peak_bytes() }
}

/// A client that sets and gets one key at a steady rate.
struct GoodClient {
    latencies: Arc<Mutex<Vec<Duration>>>,
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl GoodClient {
    fn start(port: u16) -> Self {
        let (latencies, is_over) = (Arc::<Mutex<Vec<Duration>>>::default(), Arc::<AtomicBool>::default());
        let (shared, is_ended) = (Arc::clone(&latencies), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            let mut client = Client::new("good", port);
            let mut due = Instant::now();
            for number in 0_u64.. {
                if is_ended.load(Ordering::SeqCst) {
                    break;
                }
                let verb = if number % 2 == 0 { Verb::Set(format!("{number}")) } else { Verb::Get };
                let response = client.request("good", &verb, TIMEOUT).expect("the good client is answered");
                assert!(matches!(response.reply, Reply::Done | Reply::Value(_)), "{response:?}");
                shared.lock().unwrap().push(due.elapsed());
                due += INTERVAL;
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        });
        Self { latencies, is_over, thread }
    }

    /// Returns the p99 and the greatest latency since the last call.
    fn take_p99(&self) -> (Duration, Duration) {
        let mut latencies = std::mem::take(&mut *self.latencies.lock().unwrap());
        latencies.sort();
        (latencies[latencies.len() * 99 / 100], *latencies.last().unwrap())
    }

    fn end(self) -> (Duration, Duration) {
        self.is_over.store(true, Ordering::SeqCst);
        let Self { latencies, is_over, thread } = self;
        thread.join().unwrap();
        Self { latencies, is_over, thread: thread::spawn(|| ()) }.take_p99()
    }
}

/// Checks that both measurements detect what they are there for: an attack on a server with a higher bound takes more
/// memory than allowed, and a server that stands still for half of the time is too slow.
fn detects() -> Result<(), String> {
    let fills: fn(&Target) -> Run = |_| {
        Box::new(|target| {
            let mut client = Client::new("filler", target.port);
            for number in 0..450 {
                client
                    .request(&format!("big{number}"), &Verb::Set("x".repeat(1024 * 1024)), TIMEOUT)
                    .unwrap();
            }
        })
    };
    let measured = measure(fills, "2G", 0);
    if !verdict(&measured, Effort::Short).contains(&"TOO MUCH MEMORY") {
        return Err(format!("a server with a higher bound was not detected: {measured:?}"));
    }
    let server = Server::start(&[]);
    let good = GoodClient::start(server.port());
    thread::sleep(QUIET_TIME);
    let quiet = good.take_p99().0;
    for _ in 0..2 {
        server.signal(Signal::SIGSTOP);
        thread::sleep(P99_BLOCKED + P99_BLOCKED / 2);
        server.signal(Signal::SIGCONT);
        thread::sleep(Duration::from_millis(200));
    }
    let (p99, greatest) = good.end();
    let measured = Measured { quiet, p99, greatest, peak_bytes: 0 };
    match verdict(&measured, Effort::Short).contains(&"TOO SLOW") {
        true => Ok(()),
        false => Err(format!("a server that stands still was not detected: {measured:?}")),
    }
}

/// Connects; `None` if the server refuses or is too slow, as it may.
fn connect(port: u16, client_id: &str, keeps_session: bool) -> Option<Connection> {
    let options = ConnectOptions { client_id, keeps_session, ..ConnectOptions::default() };
    Connection::accepted(port, &options, TIMEOUT).ok().map(|(connection, _)| connection)
}

/// Creates sessions with one subscription and leaves them, `count` in all.
fn leave_sessions(port: u16, count: usize, prefix: &str, filter: &str) {
    for number in 0..count {
        let Some(mut connection) = connect(port, &format!("{prefix}{number}"), true) else { continue };
        let _ = connection.send(&wire::subscribe(1, filter));
        let _ = connection.receive_type("SUBACK", Instant::now() + TIMEOUT);
        let _ = connection.send(&[0xE0, 0]);
    }
}

/// Publishes with QoS 1, a few in flight.
fn publish_all(connection: &mut Connection, topic: &str, count: u16) {
    const WINDOW: u16 = 100;
    let publish = Publish { topic: topic.to_owned(), ..Publish::default() };
    let (mut sent, mut acknowledged) = (0_u16, 0_u16);
    for _ in 0..count {
        sent += 1;
        let packet_id = sent % 1_000 + 1;
        if connection.send(&Publish { packet_id, ..publish.clone() }.encode()).is_err() {
            return;
        }
        while sent - acknowledged >= WINDOW {
            if connection.receive_type("PUBACK", Instant::now() + TIMEOUT).is_err() {
                return;
            }
            acknowledged += 1;
        }
    }
    while sent != acknowledged {
        if connection.receive_type("PUBACK", Instant::now() + TIMEOUT).is_err() {
            return;
        }
        acknowledged += 1;
    }
}

/// Reads and drops everything.
fn discard(stream: &TcpStream) {
    let mut stream = stream.try_clone().unwrap();
    thread::spawn(move || {
        let mut bytes = vec![0; 1024 * 1024];
        while stream.read(&mut bytes).is_ok_and(|len| len > 0) {}
    });
}

fn is_end_awaited(target: &Target) {
    while !target.is_over() {
        thread::sleep(Duration::from_millis(20));
    }
}

fn offline_queues(target: &Target) -> Run {
    leave_sessions(target.port, 2_000, "offline", "f");
    Box::new(|target| {
        let Some(mut connection) = connect(target.port, "uploader", false) else { return };
        publish_all(&mut connection, "f", 6_000);
    })
}

/// Encodes a CONNECT with a Will Message with the most properties for the bytes: names and values are empty.
fn connect_with_will(client_id: &str, properties: usize, credentials: &[&str]) -> Vec<u8> {
    let properties = [0x26, 0, 0, 0, 0].repeat(properties);
    let mut body = text("MQTT");
    body.extend([5, if credentials.is_empty() { 0x06 } else { 0xC6 }, 0, 0, 0]);
    body.extend(text(client_id));
    body.extend(wire::length(properties.len()));
    body.extend(&properties);
    body.extend([text("will"), text("")].concat());
    body.extend(credentials.iter().flat_map(|word| text(word)));
    packet(0x10, body)
}

fn strangers(_: &Target) -> Run {
    Box::new(|target| {
        // The first have more properties than a packet may have. The passwords of the others are checked.
        let connects = [400_000, 8_000]
            .map(|properties| Arc::new(connect_with_will("stranger", properties, &["ann", "wrong"])));
        let strangers: Vec<_> = (0..120)
            .map(|number| {
                let (target, connect) = (target.clone(), Arc::clone(&connects[number % 2]));
                thread::spawn(move || {
                    loop {
                        if let Ok(mut connection) = Connection::open(target.port) {
                            let _ = connection.send(&connect);
                            let _ = connection.receive(Instant::now() + Duration::from_secs(15));
                        }
                        if target.is_over() {
                            return;
                        }
                    }
                })
            })
            .collect();
        strangers.into_iter().for_each(|stranger| stranger.join().unwrap());
    })
}

fn identifiers(target: &Target) -> Run {
    // Each filter has `+` or `a` at each of ten levels: all match.
    for session in 0..20 {
        let Some(mut connection) = connect(target.port, &format!("identifiers{session}"), true) else {
            continue;
        };
        for number in 0..512_u16 {
            let levels: Vec<_> =
                (0..10).map(|level| if number >> level & 1 == 1 { "+" } else { "a" }).collect();
            let mut body = (number + 1).to_be_bytes().to_vec();
            // A subscription identifier of three bytes.
            body.extend([4, 0x0B, 0x80 | (number & 0x7F) as u8, 0x80, 1]);
            body.extend(text(&levels.join("/")));
            body.push(1);
            let _ = connection.send(&packet(0x82, body));
        }
        for _ in 0..512 {
            let _ = connection.receive_type("SUBACK", Instant::now() + TIMEOUT);
        }
        let _ = connection.send(&[0xE0, 0]);
    }
    Box::new(|target| {
        let Some(mut connection) = connect(target.port, "uploader", false) else { return };
        publish_all(&mut connection, &["a"; 10].join("/"), 6_000);
    })
}

fn unread_answers(target: &Target) -> Run {
    let value = "x".repeat(1024 * 1024);
    Client::new("owner", target.port).request("big", &Verb::Set(value), TIMEOUT).unwrap();
    Box::new(|target| {
        let mut connections = Vec::new();
        for number in 0..30 {
            let id = format!("unread{number}");
            let Some(mut connection) = connect(target.port, &id, false) else { continue };
            let topic = format!("clients/{id}/response");
            let mut bytes = wire::subscribe(1, &topic);
            for request in 0..120_u16 {
                let payload = Verb::Get.encode("big");
                bytes.extend(request_packet(
                    &id,
                    &topic,
                    request + 2,
                    &request.to_be_bytes(),
                    payload,
                    false,
                ));
            }
            let _ = connection.send(&bytes);
            connections.push(connection);
        }
        is_end_awaited(target);
    })
}

fn retained_walks(target: &Target) -> Run {
    let mut connection = connect(target.port, "retainer", false).unwrap();
    let mut bytes = Vec::new();
    for number in 0..10_000 {
        let mut body = text(&format!("r/{number}/a/b/c"));
        body.extend([0, b'x']);
        bytes.extend(packet(0x31, body));
    }
    connection.send(&bytes).unwrap();
    connection.send(&wire::PINGREQ).unwrap();
    connection.receive_type("PINGRESP", Instant::now() + TIMEOUT).unwrap();
    Box::new(|target| {
        let Some(mut connection) = connect(target.port, "walker", false) else { return };
        let mut body = vec![0, 1, 0];
        for number in 0..98 {
            body.extend(text(&format!("+/+/{number}/#")));
            body.push(1);
        }
        while !target.is_over() {
            let _ = connection.send(&packet(0x82, body.clone()));
            let _ = connection.receive_type("SUBACK", Instant::now() + TIMEOUT);
        }
    })
}

fn shared_members(target: &Target) -> Run {
    leave_sessions(target.port, 5_000, "member", "$share/group/jobs/#");
    Box::new(|target| {
        while !target.is_over() {
            // The member that is connected gets the messages, does not acknowledge them, and leaves them to the others.
            let Some(mut member) = connect(target.port, "member", false) else { continue };
            let _ = member.send(&wire::subscribe(1, "$share/group/jobs/#"));
            let _ = member.receive_type("SUBACK", Instant::now() + TIMEOUT);
            let Some(mut publisher) = connect(target.port, "publisher", false) else { continue };
            publish_all(&mut publisher, "jobs/1", 2_000);
            let _ = member.stream().shutdown(Shutdown::Both);
        }
    })
}

fn scans(target: &Target) -> Run {
    let mut connection = connect(target.port, "loader", false).unwrap();
    discard(connection.stream());
    let value = "v";
    for number in 0..50_000_u32 {
        let payload = Verb::Set(value.to_owned())
            .encode(&format!("line{}/aaaaaaaaaaaaaaaaaaaaaaaa{number}", number % 100));
        let id = u16::try_from(number % 1_000 + 1).unwrap();
        let request = request_packet("loader", "unread", id, &number.to_be_bytes(), payload, false);
        connection.send(&request).unwrap();
    }
    // Until the last one is applied.
    while Client::new("loaded", target.port)
        .request("line99/aaaaaaaaaaaaaaaaaaaaaaaa49999", &Verb::Get, TIMEOUT)
        .is_ok_and(|response| response.reply == Reply::Absent)
    {
        thread::sleep(Duration::from_millis(20));
    }
    Box::new(|target| {
        let scanners: Vec<_> = (0..6)
            .map(|number| {
                let target = target.clone();
                thread::spawn(move || {
                    let id = format!("scanner{number}");
                    let Some(mut connection) = connect(target.port, &id, false) else { return };
                    let topic = format!("clients/{id}/response");
                    let _ = connection.send(&wire::subscribe(1, &topic));
                    for request in 0_u16.. {
                        if target.is_over() {
                            return;
                        }
                        let payload = encode(&[b"SCAN", b"*a*a*a*a*a*a*a*a*b"]);
                        let id_of_packet = request % 1_000 + 2;
                        let _ = connection.send(&request_packet(
                            &id,
                            &topic,
                            id_of_packet,
                            &request.to_be_bytes(),
                            payload,
                            false,
                        ));
                        let Ok(answer) = connection.receive_type("PUBLISH", Instant::now() + TIMEOUT) else {
                            return;
                        };
                        let _ = connection.send(&wire::puback(Publish::decode(&answer).packet_id, 0));
                    }
                })
            })
            .collect();
        scanners.into_iter().for_each(|scanner| scanner.join().unwrap());
    })
}

fn large_values(target: &Target) -> Run {
    // The largest packet with this `--memory-max` has 16 MiB. A client whose packet is too large would send it again.
    let set = Verb::Set("x".repeat(15 * 1024 * 1024));
    let response = Client::new("owner", target.port).request("large", &set, TIMEOUT);
    assert_eq!(response.map(|response| response.reply), Ok(Reply::Done));
    Box::new(|target| {
        let mut connections = Vec::new();
        for number in 0..2 {
            let id = format!("large{number}");
            let Some(mut connection) = connect(target.port, &id, false) else { continue };
            discard(connection.stream());
            let _ = connection.send(&wire::subscribe(1, "unread"));
            connections.push((id, connection));
        }
        for number in 0_u16.. {
            if target.is_over() {
                return;
            }
            for (id, connection) in &mut connections {
                let payload = Verb::Get.encode("large");
                let packet_id = number % 1_000 + 2;
                let _ = connection.send(&request_packet(
                    id,
                    "unread",
                    packet_id,
                    &number.to_be_bytes(),
                    payload,
                    false,
                ));
            }
            thread::sleep(Duration::from_millis(50));
        }
    })
}

fn unfinished_packets(_: &Target) -> Run {
    Box::new(|target| {
        // The first bytes of a PUBLISH of 64 MB, in a binary frame that is masked with zeros.
        let publish = [&[0x30, 0xF0, 0xFF, 0xFF, 0x1F, 0, 1, b't'][..], &vec![0; 16 * 1024 * 1024]].concat();
        let mut frame = vec![0x82, 0xFF];
        frame.extend((64 * 1024 * 1024_u64 - 64).to_be_bytes());
        frame.extend([0; 4]);
        let mut connections = Vec::new();
        for number in 0..22 {
            if let Some(mut connection) = connect(target.port, &format!("unfinished{number}"), false) {
                let _ = connection.send(&publish);
                connections.push(connection.stream().try_clone().unwrap());
            }
            if let Ok(mut stream) = connect_web_socket(target.web_socket_port, &format!("frames{number}")) {
                let _ = stream.write_all(&[&frame[..], &publish].concat());
                connections.push(stream);
            }
        }
        is_end_awaited(target);
    })
}

/// Opens a WebSocket and connects.
fn connect_web_socket(port: u16, client_id: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let handshake = format!(
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    );
    stream.write_all(handshake.as_bytes())?;
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    let connect = wire::connect(client_id);
    let frame = [&[0x82, 0x80 | u8::try_from(connect.len()).unwrap(), 0, 0, 0, 0][..], &connect].concat();
    stream.write_all(&frame)?;
    // The frame of the CONNACK.
    stream.read_exact(&mut [0; 4])?;
    Ok(stream)
}

fn wills(_: &Target) -> Run {
    Box::new(|target| {
        let mut connections = Vec::new();
        for number in 0..500 {
            let Ok(mut connection) = Connection::open(target.port) else { continue };
            let _ = connection.send(&connect_with_will(&format!("will{number}"), 200_000, &[]));
            let _ = connection.receive(Instant::now() + TIMEOUT);
            connections.push(connection);
            if target.is_over() {
                return;
            }
        }
        is_end_awaited(target);
    })
}

fn empty_properties(_: &Target) -> Run {
    Box::new(|target| {
        let properties = [0x26, 0, 0, 0, 0].repeat(12_000_000);
        let mut body = text("t");
        body.extend(wire::length(properties.len()));
        body.extend(&properties);
        let publish = packet(0x30, body);
        while !target.is_over() {
            let Some(mut connection) = connect(target.port, "properties", false) else { continue };
            let _ = connection.send(&publish);
            let _ = connection.send(&wire::PINGREQ);
            let _ = connection.receive(Instant::now() + TIMEOUT);
        }
    })
}
