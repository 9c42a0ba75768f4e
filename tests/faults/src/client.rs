//! A raw MQTT client of the state store: it keeps its session, redelivers after a lost connection, and reports an outcome
//! that it cannot know as unknown.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::socket::sockopt::IpBindAddressNoPort;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, setsockopt, socket};

use crate::wire::{self, ConnectOptions, Packet, Publish};

/// Topic of all requests.
pub const REQUEST_TOPIC: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

/// DISCONNECT without a reason: the session ends if it is not to be kept.
pub const DISCONNECT: [u8; 2] = [0xE0, 0];

/// A version as milliseconds and counter.
pub type Version = (u64, u32);

/// A request without its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    Set(String),
    /// SET with NX: only if the key is absent.
    SetAbsent(String),
    /// SET with NEX: only if the key is absent or has this value.
    SetAbsentOrEqual(String),
    Get,
    Del,
    VDel(String),
}

impl Verb {
    /// Encodes the request as a RESP3 array.
    pub fn encode(&self, key: &str) -> Vec<u8> {
        let words: Vec<&str> = match self {
            Self::Set(value) => vec!["SET", key, value],
            Self::SetAbsent(value) => vec!["SET", key, value, "NX"],
            Self::SetAbsentOrEqual(value) => vec!["SET", key, value, "NEX"],
            Self::Get => vec!["GET", key],
            Self::Del => vec!["DEL", key],
            Self::VDel(value) => vec!["VDEL", key, value],
        };
        encode(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>())
    }
}

/// Encodes words as a RESP3 array of bulk strings.
pub fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend_from_slice(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// The payload of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Done,
    Number(i64),
    Value(String),
    Absent,
    Error(String),
}

impl Reply {
    pub fn decode(payload: &[u8]) -> Self {
        let text = String::from_utf8_lossy(payload);
        let line = text.split("\r\n").next().unwrap_or_default();
        match (line.get(..1), line.get(1..).unwrap_or_default()) {
            (Some("+"), "OK") => Self::Done,
            (Some(":"), number) => Self::Number(number.parse().unwrap()),
            (Some("$"), "-1") => Self::Absent,
            (Some("$"), len) => {
                let begin = line.len() + 2;
                let len: usize = len.parse().unwrap();
                Self::Value(text.get(begin..begin + len).unwrap().to_owned())
            }
            (Some("-"), text) => Self::Error(text.to_owned()),
            _ => panic!("the reply is {text:?}"),
        }
    }
}

/// A response with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub reply: Reply,
    pub version: Option<Version>,
}

impl Response {
    pub fn decode(publish: &Publish) -> Self {
        Self {
            reply: Reply::decode(&publish.payload),
            version: publish.user_property("__ts").map(parse_version),
        }
    }
}

fn parse_version(text: &str) -> Version {
    let mut parts = text.split(':');
    let mut part = || parts.next().unwrap().parse::<u64>().unwrap();
    (part(), u32::try_from(part()).unwrap())
}

/// Returns the wall clock as a version that a client sends.
pub fn timestamp(node: &str) -> String {
    let ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    format!("{ms:015}:00000:{node}")
}

/// Where a client connects from, and as which user. What it makes the server hold is that of the user, or without one of
/// the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub address: Ipv4Addr,
    /// Its password is `right`.
    pub user: Option<&'static str>,
}

impl Origin {
    pub const HERE: Self = Self::at(1);

    /// Returns the address 127.0.0.`number`.
    pub const fn at(number: u8) -> Self {
        Self { address: Ipv4Addr::new(127, 0, 0, number), user: None }
    }

    pub const fn user(user: &'static str) -> Self {
        Self { address: Ipv4Addr::LOCALHOST, user: Some(user) }
    }

    /// Encodes a CONNECT.
    fn connect(self, client_id: &str, keeps_session: bool) -> Vec<u8> {
        let password = self.user.map(|_| &b"right"[..]);
        ConnectOptions { client_id, user: self.user, password, keeps_session, ..ConnectOptions::default() }
            .encode()
    }
}

/// One network connection, packet by packet.
pub struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Connection {
    pub fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, input: Vec::new() })
    }

    /// Opens a connection from one of the addresses of this machine, such as 127.0.0.2.
    pub fn open_from(address: Ipv4Addr, port: u16) -> io::Result<Self> {
        let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        // The port is chosen for this destination: otherwise those of closed connections would soon be missing.
        setsockopt(&socket, IpBindAddressNoPort, &true)?;
        bind(socket.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(address, 0)))?;
        connect(socket.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)))?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        Ok(Self { stream, input: Vec::new() })
    }

    /// Connects and waits for the CONNACK, which must accept; returns whether the session was present.
    pub fn accepted(
        origin: Origin,
        port: u16,
        client_id: &str,
        keeps_session: bool,
        within: Duration,
    ) -> io::Result<(Self, bool)> {
        let mut connection = Self::open_from(origin.address, port)?;
        connection.send(&origin.connect(client_id, keeps_session))?;
        let connack = connection.receive(Instant::now() + within)?;
        match (connack.name(), connack.body.as_slice()) {
            ("CONNACK", [flags, 0, ..]) => Ok((connection, flags & 1 == 1)),
            _ => Err(io::Error::new(io::ErrorKind::ConnectionRefused, format!("{connack:?}"))),
        }
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Waits for the next packet.
    pub fn receive(&mut self, deadline: Instant) -> io::Result<Packet> {
        loop {
            if let Some((packet, len)) = Packet::split(&self.input) {
                self.input.drain(..len);
                return Ok(packet);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut bytes = [0; 65_536];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.input.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for the next packet of this type; others are dropped.
    pub fn receive_type(&mut self, name: &str, deadline: Instant) -> io::Result<Packet> {
        loop {
            let packet = self.receive(deadline)?;
            if packet.name() == name {
                return Ok(packet);
            }
        }
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

/// A client that keeps its session over lost connections.
pub struct Client {
    id: String,
    /// What no other client of this process has: a store answers a request of the same client with the same correlation data as before.
    run: u64,
    origin: Origin,
    port: u16,
    connection: Option<Connection>,
    /// The request whose PUBACK has not come: sent again after a reconnect, answered or not.
    unacknowledged: Option<(u16, Vec<u8>)>,
    /// Whether the proxy may have lost a CONNACK that TCP has acknowledged to the server. The session that is present then may be a
    /// new one, so that nothing may be sent again: a promise that the server cannot make (docs/server.md).
    may_have_lost_connack: bool,
    requests: u64,
    /// Whether a SET asks for the disk.
    pub persists: bool,
    /// Requests that were sent again.
    pub redelivered: u64,
    /// Connections that were lost while a response was awaited.
    pub losses: u64,
    /// The reason code of the last request, if the broker has refused it.
    pub refused: Option<u8>,
}

/// Why a response is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown;

impl Client {
    pub fn new(id: &str, port: u16) -> Self {
        Self::new_at(Origin::HERE, id, port)
    }

    pub fn new_at(origin: Origin, id: &str, port: u16) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        Self {
            id: id.to_owned(),
            run: RUNS.fetch_add(1, Ordering::Relaxed),
            origin,
            port,
            connection: None,
            unacknowledged: None,
            may_have_lost_connack: false,
            requests: 0,
            persists: false,
            redelivered: 0,
            losses: 0,
            refused: None,
        }
    }

    /// Connects until it succeeds; returns whether the session was present, so that the request may be sent again.
    fn reconnect(&mut self, deadline: Instant) -> io::Result<bool> {
        loop {
            match self.try_connect(deadline) {
                Ok(was_present) => return Ok(was_present),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    fn try_connect(&mut self, deadline: Instant) -> io::Result<bool> {
        // A connection behind a proxy that holds everything back is tried anew.
        let within = Duration::from_millis(500).min(deadline.saturating_duration_since(Instant::now()));
        let may_have_lost_connack = std::mem::replace(&mut self.may_have_lost_connack, true);
        let (mut connection, is_present) =
            Connection::accepted(self.origin, self.port, &self.id, true, within)?;
        self.may_have_lost_connack = false;
        let was_present = is_present && !may_have_lost_connack;
        if !was_present {
            self.unacknowledged = None;
        }
        connection.send(&wire::subscribe(1, &response_topic(&self.id)))?;
        if let Some((_, bytes)) = &self.unacknowledged {
            let mut bytes = bytes.clone();
            bytes[0] |= 0x08;
            connection.send(&bytes)?;
            self.redelivered += 1;
        }
        self.connection = Some(connection);
        Ok(was_present)
    }

    /// Sends a request and waits for its response, over as many connections as it takes.
    pub fn request(&mut self, key: &str, verb: &Verb, within: Duration) -> Result<Response, Unknown> {
        let deadline = Instant::now() + within;
        self.refused = None;
        if self.connection.is_none() && self.reconnect(deadline).is_err() {
            return Err(Unknown);
        }
        self.requests += 1;
        let number = self.requests;
        let packet_id = u16::try_from(2 + number % 50_000).unwrap();
        let correlation = format!("{}-{}-{number}", self.id, self.run).into_bytes();
        let bytes = self.publish(packet_id, &correlation, verb.encode(key));
        self.unacknowledged = Some((packet_id, bytes.clone()));
        let mut sent = self.connection.as_mut().is_some_and(|connection| connection.send(&bytes).is_ok());
        loop {
            let result = match (sent, &mut self.connection) {
                (true, Some(connection)) => connection.receive(deadline),
                _ => Err(io::ErrorKind::NotConnected.into()),
            };
            match result {
                Ok(packet) => {
                    if let Some(response) = self.handle(&packet, &correlation) {
                        return Ok(response);
                    }
                    if self.refused.is_some() {
                        return Err(Unknown);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    self.connection = None;
                    return Err(Unknown);
                }
                Err(_) => {
                    self.losses += u64::from(self.connection.take().is_some());
                    sent = true;
                    if !self.reconnect(deadline).is_ok_and(|was_present| was_present) {
                        return Err(Unknown);
                    }
                }
            }
        }
    }

    fn publish(&self, packet_id: u16, correlation: &[u8], payload: Vec<u8>) -> Vec<u8> {
        request_packet(&self.id, &response_topic(&self.id), packet_id, correlation, payload, self.persists)
    }

    fn handle(&mut self, packet: &Packet, correlation: &[u8]) -> Option<Response> {
        match packet.name() {
            "PUBACK" => {
                let is_acknowledged =
                    self.unacknowledged.as_ref().is_some_and(|(id, _)| *id == packet.packet_id());
                if is_acknowledged {
                    self.unacknowledged = None;
                    self.refused = refusal(packet);
                }
                None
            }
            "PUBLISH" => {
                let publish = Publish::decode(packet);
                if let Some(connection) = &mut self.connection {
                    let _ = connection.send(&wire::puback(publish.packet_id, 0));
                }
                (publish.correlation == correlation).then(|| Response::decode(&publish))
            }
            _ => None,
        }
    }
}

/// Returns the reason code of a PUBACK that refuses a message.
fn refusal(puback: &Packet) -> Option<u8> {
    puback.body.get(2).copied().filter(|reason| *reason >= 0x80)
}

pub fn response_topic(client_id: &str) -> String {
    format!("clients/{client_id}/services/{REQUEST_TOPIC}/response")
}

/// Connects with Clean Start, subscribes, sets a key, waits for PUBACK and response, and disconnects: as a script does. It
/// does not acknowledge the response, as one that subscribes with QoS 0 or not at all.
///
/// # Errors
/// What was refused, or did not come.
pub fn set_once(
    origin: Origin,
    port: u16,
    client_id: &str,
    key: &str,
    value: &str,
    within: Duration,
) -> Result<(), String> {
    let lost = |error: io::Error| format!("connection lost: {error}");
    let deadline = Instant::now() + within;
    let mut connection = Connection::open_from(origin.address, port).map_err(lost)?;
    let topic = response_topic(client_id);
    let request =
        request_packet(client_id, &topic, 2, b"once", Verb::Set(value.to_owned()).encode(key), false);
    let packets = [origin.connect(client_id, false), wire::subscribe(1, &topic), request];
    connection.send(&packets.concat()).map_err(lost)?;
    let (mut is_acknowledged, mut is_answered) = (false, false);
    while !(is_acknowledged && is_answered) {
        let packet = connection.receive(deadline).map_err(lost)?;
        match (packet.name(), packet.body.as_slice()) {
            ("CONNACK", [_, 0, ..]) => {}
            ("SUBACK", [.., reason]) if *reason < 0x80 => {}
            ("PUBACK", _) if refusal(&packet).is_none() => is_acknowledged = true,
            ("PUBLISH", _) => match Response::decode(&Publish::decode(&packet)).reply {
                Reply::Done => is_answered = true,
                other => return Err(format!("{other:?}")),
            },
            (name, body) => {
                // The reason code of a DISCONNECT comes first, that of a CONNACK behind its flags, others behind the id.
                let at = ["DISCONNECT", "CONNACK"].iter().position(|first| *first == name).unwrap_or(2);
                return Err(format!("{name} {:02X}", body.get(at).copied().unwrap_or_default()));
            }
        }
    }
    connection.send(&DISCONNECT).map_err(lost)?;
    // The server closes first: the port is free again.
    let _ = connection.receive(deadline);
    Ok(())
}

/// Encodes a SUBSCRIBE with these filters and QoS 1.
pub fn subscribe_all(packet_id: u16, filters: impl IntoIterator<Item = String>) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    body.push(0);
    for filter in filters {
        body.extend(wire::text(&filter));
        body.push(1);
    }
    wire::packet(0x82, body)
}

/// Encodes a request to the store.
pub fn request_packet(
    client_id: &str,
    response_topic: &str,
    packet_id: u16,
    correlation: &[u8],
    payload: Vec<u8>,
    persists: bool,
) -> Vec<u8> {
    let property = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut user_properties = vec![property("__ts", &timestamp(client_id)), property("__srcId", client_id)];
    if persists {
        user_properties.push(property("aio-persistence", "true"));
    }
    Publish {
        topic: REQUEST_TOPIC.to_owned(),
        packet_id,
        response_topic: response_topic.to_owned(),
        correlation: correlation.to_vec(),
        user_properties,
        payload,
    }
    .encode()
}
