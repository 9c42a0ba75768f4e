//! Clients that cost next to nothing, so that a benchmark measures the server: requests are encoded once, responses are
//! counted but not decoded.

use std::io::{self, Read, Write};
use std::net;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Window;

pub const REQUEST_TOPIC: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

const CONNACK: u8 = 0x20;
const PUBLISH_QOS_1: u8 = 0x32;
const PUBLISH: u8 = 0x30;
const PUBACK: u8 = 0x40;
const SUBACK: u8 = 0x90;
const CONTENT_TYPE: &str = "application/octet-stream";
/// Offset of the packet identifier in an encoded request, which each copy replaces.
const REQUEST_ID_AT: usize = 5 + REQUEST_TOPIC.len();
/// Offset of the correlation data, after the property length and the content type. Each copy replaces its first half.
const CORRELATION_AT: usize = REQUEST_ID_AT + 2 + 2 + (3 + CONTENT_TYPE.len()) + 3;

/// The length of the keys of [`SetRequest`].
pub const KEY_BYTES: usize = 16;
/// The requests in flight of [`fill`].
pub const FILL_INFLIGHT: usize = 1_000;
/// The length of the values of [`SetRequest`].
pub const VALUE_BYTES: usize = 100;

/// An encoded SET of which each copy gets its own key.
pub struct SetRequest {
    encoded: Bytes,
    key_at: usize,
}

impl SetRequest {
    pub fn new(client_id: &str) -> Self {
        Self::with_options(client_id, &[])
    }

    /// As [`Self::new`], with more words after the value.
    pub fn with_options(client_id: &str, options: &[&[u8]]) -> Self {
        let mut words: Vec<&[u8]> = vec![b"SET", &[b'k'; KEY_BYTES], &[b'v'; VALUE_BYTES]];
        words.extend_from_slice(options);
        let encoded = request(client_id, &command(&words), &timestamp());
        let key_at = encoded.windows(KEY_BYTES).position(|window| window == [b'k'; KEY_BYTES]).unwrap();
        Self { encoded, key_at }
    }

    /// Appends the request with this key to the output.
    pub fn push(&self, buffers: &mut Buffers, key: &[u8; KEY_BYTES]) {
        buffers.push_request_with(&self.encoded, |request| {
            request[self.key_at..self.key_at + KEY_BYTES].copy_from_slice(key);
        });
    }
}

/// Sends `count` SETs by clients with one request in flight each.
pub async fn set_by_each(port: u16, clients: usize, count: usize) {
    let tasks: Vec<_> = (0..clients)
        .map(|number| {
            tokio::task::spawn_local(async move {
                let id = format!("bench-{number}");
                let mut client = RawClient::for_requests(port, &id).await;
                let set = SetRequest::new(&id);
                for round in 0..count / clients {
                    set.push(&mut client.buffers, &key(round * clients + number));
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

/// Sends `count` SETs, the one of each number with the key that `key` returns, with [`FILL_INFLIGHT`] of them at a time.
pub async fn fill(port: u16, count: usize, key: impl Fn(usize) -> [u8; KEY_BYTES]) {
    let (mut client, set) = (RawClient::for_requests(port, "fill").await, SetRequest::new("fill"));
    let push = |buffers: &mut Buffers, at: usize| set.push(buffers, &key(at));
    client.request_each(FILL_INFLIGHT, count, push).await.unwrap();
}

/// Returns the key of this number: its digits.
pub fn key(number: usize) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key.copy_from_slice(format!("{number:0KEY_BYTES$}").as_bytes());
    key
}

/// The input and output of a connection.
#[derive(Default)]
pub struct Buffers {
    input: BytesMut,
    output: BytesMut,
    next_id: u16,
    requests: u64,
}

/// A received packet.
pub struct Packet {
    /// The first byte: type and flags.
    pub kind: u8,
    /// The bytes after the Remaining Length.
    pub body: Bytes,
}

impl Packet {
    fn is_message(&self) -> bool {
        self.kind & 0xF0 == PUBLISH
    }
}

impl Buffers {
    /// Appends a request to the output, with its own packet identifier and correlation data.
    pub fn push_request(&mut self, request: &[u8]) {
        self.push_request_with(request, |_| {});
    }

    /// As [`Self::push_request`], with changes to the encoded request.
    pub fn push_request_with(&mut self, request: &[u8], change: impl FnOnce(&mut [u8])) {
        self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        self.requests += 1;
        let at = self.output.len();
        self.output.extend_from_slice(request);
        let request = &mut self.output[at..];
        request[REQUEST_ID_AT..REQUEST_ID_AT + 2].copy_from_slice(&self.next_id.to_be_bytes());
        request[CORRELATION_AT..CORRELATION_AT + 8].copy_from_slice(&self.requests.to_be_bytes());
        change(request);
    }

    /// Appends a packet to the output.
    pub fn push_packet(&mut self, kind: u8, body: &[u8]) {
        packet(&mut self.output, kind, body);
    }

    /// CONNECT of MQTT 5 with Clean Start, no Keep Alive and the default Receive Maximum of 65,535.
    fn push_connect(&mut self, client_id: &str) {
        let mut body = BytesMut::new();
        text(&mut body, "MQTT");
        body.put_slice(&[5, 2, 0, 0, 0]);
        text(&mut body, client_id);
        self.push_packet(0x10, &body);
    }

    fn push_subscribe(&mut self, filter: &str) {
        let mut body = BytesMut::new();
        body.put_u16(1);
        body.put_u8(0);
        text(&mut body, filter);
        body.put_u8(1);
        self.push_packet(0x82, &body);
    }

    /// Removes a complete packet from the input. For a PUBLISH with QoS 1, a PUBACK is appended to the output.
    pub fn next_packet(&mut self) -> Option<Packet> {
        let (length, header) = remaining_length(&self.input)?;
        if self.input.len() < header + length {
            return None;
        }
        let kind = self.input[0];
        self.input.advance(header);
        let body = self.input.split_to(length).freeze();
        if kind & 0xF6 == PUBLISH_QOS_1 {
            let topic = usize::from(u16::from_be_bytes([body[0], body[1]]));
            self.output.extend_from_slice(&[0x40, 2, body[topic + 2], body[topic + 3]]);
        }
        Some(Packet { kind, body })
    }

    /// Removes all complete packets from the input and returns how many are PUBLISH.
    pub fn count_messages(&mut self) -> usize {
        let mut messages = 0;
        while let Some(packet) = self.next_packet() {
            messages += usize::from(packet.is_message());
        }
        messages
    }
}

/// A client that shares its thread with many others.
pub struct RawClient {
    stream: TcpStream,
    pub buffers: Buffers,
}

impl RawClient {
    /// Connects with this client id.
    pub async fn connect(port: u16, client_id: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let mut raw = Self { stream, buffers: Buffers::default() };
        raw.buffers.push_connect(client_id);
        raw.flush().await?;
        let connack = raw.next().await?;
        assert!(connack.kind == CONNACK && connack.body.get(1) == Some(&0), "not accepted");
        Ok(raw)
    }

    /// Connects with this client id and subscribes to its responses.
    pub async fn for_requests(port: u16, client_id: &str) -> Self {
        let mut raw = Self::connect(port, client_id).await.unwrap();
        raw.subscribe(&response_topic(client_id)).await.unwrap();
        raw
    }

    /// Subscribes and waits for SUBACK.
    pub async fn subscribe(&mut self, filter: &str) -> io::Result<()> {
        self.buffers.push_subscribe(filter);
        self.flush().await?;
        while self.next().await?.kind != SUBACK {}
        Ok(())
    }

    /// Writes the output to the socket.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all_buf(&mut self.buffers.output).await
    }

    /// Waits for the next packet.
    pub async fn next(&mut self) -> io::Result<Packet> {
        loop {
            if let Some(packet) = self.buffers.next_packet() {
                return Ok(packet);
            }
            self.buffers.input.reserve(16 * 1024);
            if self.stream.read_buf(&mut self.buffers.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Sends `count` requests in turn, with `inflight` at a time, and waits for the responses.
    pub async fn request_all(&mut self, requests: &[Bytes], inflight: usize, count: usize) -> io::Result<()> {
        self.request_each(inflight, count, |buffers, at| buffers.push_request(&requests[at % requests.len()]))
            .await
    }

    /// As [`Self::request_all`]; `push` appends the request of this number.
    pub async fn request_each(
        &mut self,
        inflight: usize,
        count: usize,
        mut push: impl FnMut(&mut Buffers, usize),
    ) -> io::Result<()> {
        let mut window = Window::new(inflight, count);
        while !window.is_done() {
            window.fill(|number| push(&mut self.buffers, number));
            self.flush().await?;
            self.wait_for_messages(1).await?;
            window.answered += 1 + self.buffers.count_messages();
        }
        Ok(())
    }

    /// Waits for `count` PUBLISH packets.
    pub async fn wait_for_messages(&mut self, count: usize) -> io::Result<()> {
        let mut messages = 0;
        while messages < count {
            messages += usize::from(self.next().await?.is_message());
        }
        Ok(())
    }
}

/// A client with a thread of its own and blocking I/O, so that no runtime is part of the measured time.
pub struct BlockingClient {
    stream: net::TcpStream,
    pub buffers: Buffers,
}

impl BlockingClient {
    /// Connects with this client id and subscribes to its responses.
    pub fn connect(port: u16, client_id: &str) -> io::Result<Self> {
        let stream = net::TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        let mut single = Self { stream, buffers: Buffers::default() };
        single.buffers.push_connect(client_id);
        single.buffers.push_subscribe(&response_topic(client_id));
        while single.exchange()?.kind != SUBACK {}
        Ok(single)
    }

    /// Subscribes and waits for SUBACK.
    pub fn subscribe(&mut self, filter: &str) -> io::Result<()> {
        self.buffers.push_subscribe(filter);
        while self.exchange()?.kind != SUBACK {}
        Ok(())
    }

    /// Writes the output to the socket and waits for the next PUBLISH.
    pub fn wait_for_message(&mut self) -> io::Result<()> {
        while !self.exchange()?.is_message() {}
        Ok(())
    }

    /// Writes the output to the socket and waits for the next PUBACK.
    pub fn wait_for_puback(&mut self) -> io::Result<()> {
        while self.exchange()?.kind != PUBACK {}
        Ok(())
    }

    /// Writes the output to the socket.
    pub fn flush(&mut self) -> io::Result<()> {
        if !self.buffers.output.is_empty() {
            self.stream.write_all(&self.buffers.output)?;
            self.buffers.output.clear();
        }
        Ok(())
    }

    fn exchange(&mut self) -> io::Result<Packet> {
        self.flush()?;
        loop {
            if let Some(packet) = self.buffers.next_packet() {
                return Ok(packet);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.buffers.input.extend_from_slice(&bytes[..read]),
            }
        }
    }
}

/// Encodes a request with all properties that the SDKs send.
pub fn request(client_id: &str, payload: &[u8], timestamp: &str) -> Bytes {
    let mut properties = BytesMut::new();
    properties.put_u8(0x03);
    text(&mut properties, CONTENT_TYPE);
    properties.put_u8(0x09);
    text(&mut properties, "0123456789abcdef");
    properties.put_slice(&[0x02, 0, 0, 0, 10]);
    properties.put_u8(0x08);
    text(&mut properties, &response_topic(client_id));
    for (name, value) in
        [("__srcId", client_id), ("__ts", timestamp), ("__protVer", "1.0"), ("$partition", client_id)]
    {
        properties.put_u8(0x26);
        text(&mut properties, name);
        text(&mut properties, value);
    }
    let mut body = BytesMut::new();
    text(&mut body, REQUEST_TOPIC);
    body.put_u16(0);
    assert!(properties.len() >= 128, "two bytes of length");
    varint(&mut body, properties.len());
    body.put_slice(&properties);
    body.put_slice(payload);
    let mut request = BytesMut::new();
    // A Remaining Length of two bytes fixes the offset of the packet identifier.
    request.put_u8(PUBLISH_QOS_1);
    assert!((128..16_384).contains(&body.len()), "two bytes of length");
    varint(&mut request, body.len());
    request.put_slice(&body);
    request.freeze()
}

/// Returns the response topic of a client.
pub fn response_topic(client_id: &str) -> String {
    format!("clients/{client_id}/services/{REQUEST_TOPIC}/response")
}

/// Encodes a command as an array of bulk strings.
pub fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Returns the current time as a timestamp of a request.
pub fn timestamp() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    format!("{:015}:00000:bench", since.as_millis())
}

pub fn text(out: &mut BytesMut, text: &str) {
    out.put_u16(u16::try_from(text.len()).unwrap());
    out.put_slice(text.as_bytes());
}

pub fn packet(out: &mut BytesMut, kind: u8, body: &[u8]) {
    out.put_u8(kind);
    varint(out, body.len());
    out.put_slice(body);
}

pub fn varint(out: &mut BytesMut, mut value: usize) {
    loop {
        let low = u8::try_from(value & 0x7F).unwrap();
        value >>= 7;
        out.put_u8(if value > 0 { low | 0x80 } else { low });
        if value == 0 {
            return;
        }
    }
}

/// Decodes the Remaining Length: its value, and the length of the fixed header. `None` if it is incomplete.
fn remaining_length(input: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0;
    for (at, byte) in input.get(1..)?.iter().take(4).enumerate() {
        value |= usize::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, at + 2));
        }
    }
    None
}
