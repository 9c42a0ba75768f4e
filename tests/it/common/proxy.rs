//! A proxy in front of a broker that writes down who spoke in what order.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // a panic here is a failed test

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::wire::Packet;

/// How long a side must be quiet before what it said is passed on: what was sent without waiting for the other side
/// travels together.
const QUIET: Duration = Duration::from_millis(40);
/// Longer than any test takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Client,
    Broker,
}

/// All that one side said before the other side said anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flight {
    pub from: From,
    pub packets: Vec<&'static str>,
}

/// A proxy for one connection.
pub struct Proxy {
    address: SocketAddr,
    carrying: JoinHandle<Vec<Flight>>,
}

impl Proxy {
    /// A proxy in front of a broker of this machine.
    pub fn start(broker: &str) -> Self {
        let broker = broker.rsplit('/').next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let carrying = thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            carry(Side::new(client), Side::new(TcpStream::connect(broker).unwrap()))
        });
        Self { address, carrying }
    }

    /// The URL to connect to.
    pub fn url(&self) -> String {
        format!("mqtt://{}", self.address)
    }

    /// Waits until the client has left. A flight out and the flight back are a round trip.
    pub fn end(self) -> Vec<Flight> {
        self.carrying.join().unwrap()
    }
}

struct Side {
    stream: TcpStream,
    unread: Vec<u8>,
    left: bool,
}

impl Side {
    fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(QUIET)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream, unread: Vec::new(), left: false }
    }

    /// Whatever is said until there is quiet.
    fn hear(&mut self) -> Vec<u8> {
        let mut heard = Vec::new();
        let mut bytes = [0; 65_536];
        while !self.left {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.left = true,
                Ok(len) => heard.extend_from_slice(&bytes[..len]),
                Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => break,
                Err(_) => self.left = true,
            }
        }
        heard
    }

    fn packets(&mut self, heard: &[u8]) -> Vec<&'static str> {
        self.unread.extend_from_slice(heard);
        let mut names = Vec::new();
        while let Some((packet, len)) = Packet::split(&self.unread) {
            self.unread.drain(..len);
            names.push(packet.name());
        }
        names
    }
}

fn carry(mut client: Side, mut broker: Side) -> Vec<Flight> {
    let mut flights: Vec<Flight> = Vec::new();
    while !client.left {
        pass(From::Client, &mut client, &mut broker, &mut flights);
        pass(From::Broker, &mut broker, &mut client, &mut flights);
    }
    flights
}

fn pass(from: From, side: &mut Side, other: &mut Side, flights: &mut Vec<Flight>) {
    let heard = side.hear();
    if heard.is_empty() {
        return;
    }
    let packets = side.packets(&heard);
    // Who has left does not hear it.
    let _ = other.stream.write_all(&heard);
    match flights.last_mut() {
        Some(flight) if flight.from == from => flight.packets.extend(packets),
        _ => flights.push(Flight { from, packets }),
    }
}
