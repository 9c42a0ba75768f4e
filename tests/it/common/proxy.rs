//! A proxy in front of a broker that records the order of the packets of both sides.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // a panic here is a failed test

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::wire::Packet;
use crate::a_watchdog::bounded;

/// How long a side must be quiet before its bytes are forwarded. Packets that were sent without waiting for the other
/// side so become one flight.
const QUIET: Duration = Duration::from_millis(40);
/// The first byte of a TLS connection, from either side.
const TLS_HANDSHAKE: u8 = 0x16;
/// Longer than any test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    Client,
    Broker,
}

/// The packets that one side sent before the other side sent any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flight {
    pub from: Sender,
    /// Empty over TLS.
    pub packets: Vec<&'static str>,
}

/// A proxy for one connection.
pub struct Proxy {
    address: SocketAddr,
    forwarding: JoinHandle<Vec<Flight>>,
}

impl Proxy {
    /// Starts a proxy to a broker on this machine, given by its URL.
    pub fn start(broker: &str) -> Self {
        let broker = broker.rsplit('/').next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let forwarding = thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            forward_all(Side::new(client), Side::new(TcpStream::connect(broker).unwrap()))
        });
        Self { address, forwarding }
    }

    pub fn url(&self) -> String {
        format!("mqtt://{}", self.address)
    }

    /// Waits until the client has disconnected. A flight of the client and the flight of the broker after it are a round
    /// trip.
    pub fn end(self) -> Vec<Flight> {
        bounded(|| self.forwarding.join()).unwrap()
    }
}

struct Side {
    stream: TcpStream,
    /// The bytes of an incomplete packet; over TLS, all bytes.
    unread: Vec<u8>,
    is_closed: bool,
}

impl Side {
    fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(QUIET)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Self { stream, unread: Vec::new(), is_closed: false }
    }

    /// Reads until the side is quiet.
    fn receive(&mut self) -> Vec<u8> {
        let mut bytes_read = Vec::new();
        let mut bytes = [0; 65_536];
        while !self.is_closed {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.is_closed = true,
                Ok(len) => bytes_read.extend_from_slice(&bytes[..len]),
                Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => break,
                Err(_) => self.is_closed = true,
            }
        }
        bytes_read
    }

    fn packets(&mut self, bytes: &[u8]) -> Vec<&'static str> {
        self.unread.extend_from_slice(bytes);
        let mut names = Vec::new();
        // In MQTT, this byte would be a CONNECT with reserved flags.
        if self.unread.first() == Some(&TLS_HANDSHAKE) {
            return names;
        }
        while let Some((packet, len)) = Packet::split(&self.unread) {
            self.unread.drain(..len);
            names.push(packet.name());
        }
        names
    }
}

fn forward_all(mut client: Side, mut broker: Side) -> Vec<Flight> {
    let mut flights: Vec<Flight> = Vec::new();
    while !client.is_closed {
        forward(Sender::Client, &mut client, &mut broker, &mut flights);
        forward(Sender::Broker, &mut broker, &mut client, &mut flights);
    }
    flights
}

fn forward(from: Sender, side: &mut Side, other: &mut Side, flights: &mut Vec<Flight>) {
    let bytes = side.receive();
    if bytes.is_empty() {
        return;
    }
    let packets = side.packets(&bytes);
    // The other side may have closed its connection.
    let _ = other.stream.write_all(&bytes);
    match flights.last_mut() {
        Some(flight) if flight.from == from => flight.packets.extend(packets),
        _ => flights.push(Flight { from, packets }),
    }
}
