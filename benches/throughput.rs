//! Requests per second of `mqkv serve`, and of Debian's Mosquitto with a responder that keeps a map, both with
//! TCP_NODELAY and the same client, in turn.
//!
//! `cargo bench --bench throughput` prints the rates and their ratios: one client with one request in flight, one with
//! 64, and 50 clients with one each. Half of the requests are SETs of 100 bytes, half are GETs. The first case has a
//! third server, which sends a fixed response to each read: its rate is an upper bound for any server on this system.
//! Needs Debian's `mosquitto`.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::arithmetic_side_effects, clippy::panic)]
#![allow(clippy::indexing_slicing, clippy::disallowed_methods)]

mod shared;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::rc::Rc;
use std::{env, io};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::task::LocalSet;

use shared::raw::{self, BlockingClient, RawClient, command, text, varint};
use shared::{rate, ratios, spread};

/// Name, clients, requests in flight per client, requests of all clients per round, rounds.
const CASES: [(&str, usize, usize, usize, usize); 3] = [
    (SEQUENTIAL, 1, 1, 20_000, 15),
    ("1 client, 64 in flight", 1, 64, 100_000, 5),
    ("50 clients", 50, 1, 100_000, 5),
];
const SEQUENTIAL: &str = "1 client";
/// The client id of the sequential client.
const SEQUENTIAL_ID: &str = "bench-single";

fn main() {
    let arguments: Vec<String> = env::args().collect();
    if let [_, role, port] = &arguments[..] {
        let port = port.parse().unwrap();
        // Both run until the benchmark kills them or their connection is closed.
        match role.as_str() {
            "respond" => return drop(run(respond(port))),
            "respond-blindly" => return drop(respond_blindly(port)),
            _ => {}
        }
    }
    let ours = shared::serve(&[]);
    let theirs = shared::mosquitto();
    let _responder = shared::spawn_self("respond", theirs.port);
    let bare = shared::spawn_self("respond-blindly", shared::free_port());
    run(wait_for_responder(theirs.port));
    for (name, clients, inflight, count, rounds) in CASES {
        let is_single = name == SEQUENTIAL;
        let servers =
            [("mqkv serve", &ours), ("mosquitto and responder", &theirs), ("fixed response", &bare)];
        let servers = if is_single { &servers[..] } else { &servers[..2] };
        let mut rates = vec![Vec::new(); servers.len()];
        for round in 0..=rounds {
            for ((_, server), rates) in servers.iter().zip(&mut rates) {
                let figure = rate(count, || match is_single {
                    true => request_sequentially(server.port, count).unwrap(),
                    false => run(load(server.port, clients, inflight, count)),
                });
                // The first round warms up.
                if round > 0 {
                    rates.push(figure);
                }
            }
        }
        println!("{name}");
        for ((name, _), rates) in servers.iter().zip(&rates) {
            println!("  {name:<23} {} requests a second", spread(rates, 0));
        }
        println!("  ratio                   {}", spread(&ratios(&rates[0], &rates[1]), 2));
        if is_single {
            println!("  of the fixed response   {}", spread(&ratios(&rates[2], &rates[1]), 2));
        }
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, work)
}

/// Sends `count` requests by several clients.
async fn load(port: u16, clients: usize, inflight: usize, count: usize) {
    let timestamp: Rc<str> = raw::timestamp().into();
    let tasks: Vec<_> = (0..clients)
        .map(|number| {
            let timestamp = Rc::clone(&timestamp);
            tokio::task::spawn_local(async move {
                let id = format!("bench-{number:03}");
                let mut client = RawClient::connect(port, &id).await.unwrap();
                client.subscribe(&raw::response_topic(&id)).await.unwrap();
                let requests = requests(&id, &timestamp);
                client.request_all(&requests, inflight, count / clients).await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Sends `count` requests by one client, one at a time.
fn request_sequentially(port: u16, count: usize) -> io::Result<()> {
    let mut client = BlockingClient::connect(port, SEQUENTIAL_ID)?;
    let requests = requests(SEQUENTIAL_ID, &raw::timestamp());
    for request in requests.iter().cycle().take(count) {
        client.buffers.push_request(request);
        client.wait_for_message()?;
    }
    Ok(())
}

/// Serves one client after the other: sends the same response to each read, undecoded, and polls without sleeping.
fn respond_blindly(port: u16) -> io::Result<()> {
    let (mut welcome, mut answer, mut body) = (BytesMut::new(), BytesMut::new(), BytesMut::new());
    raw::packet(&mut welcome, 0x20, &[0, 0, 0]);
    raw::packet(&mut welcome, 0x90, &[0, 1, 0, 1]);
    raw::packet(&mut answer, 0x40, &[0, 1]);
    text(&mut body, &raw::response_topic(SEQUENTIAL_ID));
    // Packet identifier, properties and payload, about as long as those of a response.
    body.put_slice(&[0; 180]);
    raw::packet(&mut answer, 0x32, &body);
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut bytes = [0; 4096];
        // The client writes CONNECT and SUBSCRIBE at once.
        let _ = stream.read(&mut bytes)?;
        stream.write_all(&welcome)?;
        stream.set_nonblocking(true)?;
        loop {
            match stream.read(&mut bytes) {
                Ok(0) => break,
                Ok(_) => stream.write_all(&answer)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
    }
}

/// Encodes a SET and a GET.
fn requests(id: &str, timestamp: &str) -> [Bytes; 2] {
    let key = format!("bench/{id}");
    let set = command(&[b"SET", key.as_bytes(), &[b'v'; 100]]);
    let get = command(&[b"GET", key.as_bytes()]);
    [set, get].map(|payload| raw::request(id, &payload, timestamp))
}

/// Waits until the server responds to requests.
async fn wait_for_responder(port: u16) {
    let mut client = RawClient::connect(port, "bench-first").await.unwrap();
    client.subscribe(&raw::response_topic("bench-first")).await.unwrap();
    let request = raw::request("bench-first", &command(&[b"GET", b"bench-key"]), &raw::timestamp());
    loop {
        client.buffers.push_request(&request);
        client.flush().await.unwrap();
        let answer =
            tokio::time::timeout(std::time::Duration::from_millis(100), client.wait_for_messages(1)).await;
        if answer.is_ok() {
            return;
        }
    }
}

/// Responds to requests from a map: the least that a store behind another broker does.
async fn respond(port: u16) -> io::Result<()> {
    let mut broker = RawClient::connect(port, "bench-responder").await?;
    broker.subscribe(raw::REQUEST_TOPIC).await?;
    let mut values = HashMap::<Bytes, Bytes>::new();
    let mut body = BytesMut::new();
    let mut packet_id = 0u16;
    loop {
        let mut packet = Some(broker.next().await?);
        while let Some(request) = packet {
            if request.kind & 0xF0 == 0x30 {
                packet_id = packet_id.checked_add(1).unwrap_or(1);
                answer(request.body, packet_id, &mut values, &mut body);
                broker.buffers.push_packet(0x32, &body);
            }
            packet = broker.buffers.next_packet();
        }
        broker.flush().await?;
    }
}

fn answer(mut request: Bytes, packet_id: u16, values: &mut HashMap<Bytes, Bytes>, out: &mut BytesMut) {
    let topic = usize::from(request.get_u16());
    request.advance(topic + 2);
    let length = get_varint(&mut request);
    let mut properties = request.split_to(length);
    let (mut response_topic, mut correlation) = (Bytes::new(), Bytes::new());
    while properties.has_remaining() {
        match properties.get_u8() {
            0x02 => properties.advance(4),
            0x08 => response_topic = get_text(&mut properties),
            0x09 => correlation = get_text(&mut properties),
            0x03 => drop(get_text(&mut properties)),
            0x26 => drop((get_text(&mut properties), get_text(&mut properties))),
            other => panic!("property {other:#x}"),
        }
    }
    let words: Vec<Bytes> = words(request);
    let payload = match &words[..] {
        [verb, key, value] if verb == "SET" => {
            values.insert(key.clone(), value.clone());
            b"+OK\r\n".to_vec()
        }
        [_, key] => match values.get(key) {
            Some(value) => [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
            None => b"$-1\r\n".to_vec(),
        },
        _ => b"-ERR unknown command\r\n".to_vec(),
    };
    let mut properties = BytesMut::new();
    properties.put_u8(0x09);
    properties.put_u16(u16::try_from(correlation.len()).unwrap());
    properties.put_slice(&correlation);
    properties.put_u8(0x03);
    text(&mut properties, "application/octet-stream");
    for (name, value) in
        [("__stat", "200"), ("__ts", "001763669639958:00003:StateStore"), ("__protVer", "1.0")]
    {
        properties.put_u8(0x26);
        text(&mut properties, name);
        text(&mut properties, value);
    }
    out.clear();
    out.put_u16(u16::try_from(response_topic.len()).unwrap());
    out.put_slice(&response_topic);
    out.put_u16(packet_id);
    varint(out, properties.len());
    out.put_slice(&properties);
    out.put_slice(&payload);
}

fn get_varint(bytes: &mut Bytes) -> usize {
    let mut value = 0;
    for shift in [0, 7, 14, 21] {
        let byte = bytes.get_u8();
        value |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn get_text(bytes: &mut Bytes) -> Bytes {
    let length = usize::from(bytes.get_u16());
    bytes.split_to(length)
}

/// Splits a well-formed command into its words.
fn words(mut payload: Bytes) -> Vec<Bytes> {
    let length = |rest: &mut Bytes| -> usize {
        let end = rest.iter().position(|byte| *byte == b'\r').unwrap();
        let length = std::str::from_utf8(&rest[1..end]).unwrap().parse().unwrap();
        rest.advance(end + 2);
        length
    };
    let count = length(&mut payload);
    (0..count)
        .map(|_| {
            let word_length = length(&mut payload);
            let word = payload.split_to(word_length);
            payload.advance(2);
            word
        })
        .collect()
}
