//! A client on the bare wire: packets made beforehand, answers counted and not looked into, so that what is measured is
//! the other side.

use std::io::{self, Read, Write};
use std::net;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const REQUEST_TOPIC: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

const CONNACK: u8 = 0x20;
const PUBLISH_QOS_1: u8 = 0x32;
const PUBLISH: u8 = 0x30;
const SUBACK: u8 = 0x90;
const CONTENT_TYPE: &str = "application/octet-stream";
/// Where the packet id of a request stands, so that it can be sent under another one.
const REQUEST_ID_AT: usize = 5 + REQUEST_TOPIC.len();
/// Where the first half of its correlation data stands: behind the length of the properties and the content type.
const CORRELATION_AT: usize = REQUEST_ID_AT + 2 + 2 + (3 + CONTENT_TYPE.len()) + 3;

/// What has come and what is to be sent, without a socket.
#[derive(Default)]
pub struct Wire {
    input: BytesMut,
    output: BytesMut,
    next_id: u16,
    asked: u64,
}

/// A packet that came.
pub struct Packet {
    /// The first byte: what it is.
    pub kind: u8,
    /// What comes after the length.
    pub body: Bytes,
}

impl Packet {
    fn is_message(&self) -> bool {
        self.kind & 0xF0 == PUBLISH
    }
}

impl Wire {
    /// Puts a request behind what is to be sent, under a packet id and correlation data of its own.
    pub fn ask(&mut self, request: &[u8]) {
        self.ask_changed(request, |_| {});
    }

    /// The same with changes to its bytes.
    pub fn ask_changed(&mut self, request: &[u8], change: impl FnOnce(&mut [u8])) {
        self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        self.asked += 1;
        let at = self.output.len();
        self.output.extend_from_slice(request);
        let request = &mut self.output[at..];
        request[REQUEST_ID_AT..REQUEST_ID_AT + 2].copy_from_slice(&self.next_id.to_be_bytes());
        request[CORRELATION_AT..CORRELATION_AT + 8].copy_from_slice(&self.asked.to_be_bytes());
        change(request);
    }

    /// Puts any packet behind what is to be sent.
    pub fn put(&mut self, kind: u8, body: &[u8]) {
        packet(&mut self.output, kind, body);
    }

    /// Level 5, clean start, no keep-alive; a receive maximum of 65,535 is the default.
    fn put_connect(&mut self, client_id: &str) {
        let mut body = BytesMut::new();
        text(&mut body, "MQTT");
        body.put_slice(&[5, 2, 0, 0, 0]);
        text(&mut body, client_id);
        self.put(0x10, &body);
    }

    fn put_subscribe(&mut self, filter: &str) {
        let mut body = BytesMut::new();
        body.put_u16(1);
        body.put_u8(0);
        text(&mut body, filter);
        body.put_u8(1);
        self.put(0x82, &body);
    }

    /// A packet that has come; a message of QoS 1 is acknowledged with what is sent next.
    pub fn take(&mut self) -> Option<Packet> {
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

    /// How many of the packets that have come are messages.
    pub fn come(&mut self) -> usize {
        let mut come = 0;
        while let Some(packet) = self.take() {
            come += usize::from(packet.is_message());
        }
        come
    }
}

/// A connection among many.
pub struct Raw {
    stream: TcpStream,
    /// What has come and what is to be sent.
    pub wire: Wire,
}

impl Raw {
    /// Connects as this client.
    pub async fn connect(port: u16, client_id: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let mut raw = Self { stream, wire: Wire::default() };
        raw.wire.put_connect(client_id);
        raw.flush().await?;
        let connack = raw.next().await?;
        assert!(connack.kind == CONNACK && connack.body.get(1) == Some(&0), "not let in");
        Ok(raw)
    }

    /// Subscribes, and waits until that is in force.
    pub async fn subscribe(&mut self, filter: &str) -> io::Result<()> {
        self.wire.put_subscribe(filter);
        self.flush().await?;
        while self.next().await?.kind != SUBACK {}
        Ok(())
    }

    /// Sends what is to be sent.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all_buf(&mut self.wire.output).await
    }

    /// The next packet.
    pub async fn next(&mut self) -> io::Result<Packet> {
        loop {
            if let Some(packet) = self.wire.take() {
                return Ok(packet);
            }
            self.wire.input.reserve(16 * 1024);
            if self.stream.read_buf(&mut self.wire.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Asks one request after the other, in turn, so many at a time and so many altogether.
    pub async fn ask_all(&mut self, requests: &[Bytes], inflight: usize, count: usize) -> io::Result<()> {
        self.ask_each(inflight, count, |wire, at| wire.ask(&requests[at % requests.len()])).await
    }

    /// Asks so many requests at a time and so many altogether; `ask` asks the one of this number.
    pub async fn ask_each(
        &mut self,
        inflight: usize,
        count: usize,
        mut ask: impl FnMut(&mut Wire, usize),
    ) -> io::Result<()> {
        let (mut asked, mut answered) = (0, 0);
        while answered < count {
            while asked < count && asked - answered < inflight {
                ask(&mut self.wire, asked);
                asked += 1;
            }
            self.flush().await?;
            self.messages(1).await?;
            answered += 1 + self.wire.come();
        }
        Ok(())
    }

    /// Waits for so many messages.
    pub async fn messages(&mut self, count: usize) -> io::Result<()> {
        let mut come = 0;
        while come < count {
            come += usize::from(self.next().await?.is_message());
        }
        Ok(())
    }
}

/// A connection that has a thread to itself: what waits is the system, nothing else.
pub struct Single {
    stream: net::TcpStream,
    /// What has come and what is to be sent.
    pub wire: Wire,
}

impl Single {
    /// Connects as this client, and subscribes to its answers.
    pub fn connect(port: u16, client_id: &str) -> io::Result<Self> {
        let stream = net::TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        let mut single = Self { stream, wire: Wire::default() };
        single.wire.put_connect(client_id);
        single.wire.put_subscribe(&response_topic(client_id));
        while single.turn()?.kind != SUBACK {}
        Ok(single)
    }

    /// Sends what is to be sent, and waits for the next message.
    pub fn message(&mut self) -> io::Result<()> {
        while !self.turn()?.is_message() {}
        Ok(())
    }

    fn turn(&mut self) -> io::Result<Packet> {
        if !self.wire.output.is_empty() {
            self.stream.write_all(&self.wire.output)?;
            self.wire.output.clear();
        }
        loop {
            if let Some(packet) = self.wire.take() {
                return Ok(packet);
            }
            let mut room = [0; 4096];
            match self.stream.read(&mut room)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.wire.input.extend_from_slice(&room[..read]),
            }
        }
    }
}

/// A request as the SDKs send it, with all their properties.
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
    // Two bytes of length whatever there is: the packet id has its place.
    request.put_u8(PUBLISH_QOS_1);
    assert!((128..16_384).contains(&body.len()), "two bytes of length");
    varint(&mut request, body.len());
    request.put_slice(&body);
    request.freeze()
}

/// Where the answers go.
pub fn response_topic(client_id: &str) -> String {
    format!("clients/{client_id}/services/{REQUEST_TOPIC}/response")
}

/// A command as the wire has it.
pub fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// A timestamp that every store takes: the clock's at the start.
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

/// The remaining length and the bytes before it, once they have come.
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
