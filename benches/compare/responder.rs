//! The least that a state store behind another broker does: responds to requests from a map. And the least that any server
//! does: sends a fixed response to each read.

use std::collections::HashMap;
use std::io;
use std::io::{Read, Write};
use std::net::TcpListener;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::shared::raw::{self, RawClient, command, text, varint};
use crate::shared::{self, Process};

/// The client id of the only client of the server with the fixed response.
pub const FIXED_ID: &str = "bench-single";

/// Runs until the benchmark kills the process, or the connection ends.
pub fn run(role: &str, port: u16) {
    let result = match role {
        "respond" => shared::run(respond(port)),
        _ => respond_blindly(port),
    };
    drop(result);
}

/// Starts a responder at the broker with this port.
pub fn start(port: u16) -> Process {
    let responder = shared::spawn_self("respond", port);
    shared::run(wait_for_responder(port));
    responder
}

/// Starts a server that sends a fixed response to each read.
pub fn start_fixed() -> Process {
    shared::spawn_self("respond-blindly", shared::free_port())
}

/// Serves one client after the other: sends the same response to each read, undecoded, and polls without sleeping.
fn respond_blindly(port: u16) -> io::Result<()> {
    let (mut welcome, mut answer, mut body) = (BytesMut::new(), BytesMut::new(), BytesMut::new());
    raw::packet(&mut welcome, 0x20, &[0, 0, 0]);
    raw::packet(&mut welcome, 0x90, &[0, 1, 0, 1]);
    raw::packet(&mut answer, 0x40, &[0, 1]);
    text(&mut body, &raw::response_topic(FIXED_ID));
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

/// Waits until the server responds to requests.
async fn wait_for_responder(port: u16) {
    let mut client = RawClient::for_requests(port, "bench-first").await;
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
