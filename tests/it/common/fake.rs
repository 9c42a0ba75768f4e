//! A broker that does what a script says, on a free port of this machine.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // a panic here is a failed test

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::wire::{self, Connect, Packet, Publish};

/// Longer than any test takes: a script must end, whatever its client does.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker for one connection.
pub struct Fake<T> {
    address: SocketAddr,
    script: JoinHandle<T>,
}

impl<T: Send + 'static> Fake<T> {
    /// Runs the script with the first connection that comes.
    pub fn start(script: impl FnOnce(&mut Line) -> T + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let script = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            script(&mut Line::new(stream))
        });
        Self { address, script }
    }

    /// The URL to connect to.
    pub fn url(&self) -> String {
        format!("mqtt://{}", self.address)
    }

    /// Waits for the script's end.
    pub fn end(self) -> T {
        self.script.join().unwrap()
    }
}

/// A broker for as many connections as come, which are counted.
pub struct Fakes {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Fakes {
    /// Runs the script with each connection, and its number from 1 on. It lives as long as the test's process.
    pub fn start(script: impl Fn(usize, &mut Line) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (counted, script) = (Arc::clone(&connections), Arc::new(script));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
                let script = Arc::clone(&script);
                thread::spawn(move || script(number, &mut Line::new(stream.unwrap())));
            }
        });
        Self { address, connections }
    }

    /// The URL to connect to.
    pub fn url(&self) -> String {
        format!("mqtt://{}", self.address)
    }

    /// How many connections there have been.
    pub fn count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// The broker's end of a connection.
pub struct Line {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Line {
    /// An end of a connection.
    pub fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, input: Vec::new() }
    }

    /// Sends bytes. Who has left does not hear them.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// The next packet; none at the connection's end.
    pub fn next(&mut self) -> Option<Packet> {
        loop {
            if let Some((packet, len)) = Packet::split(&self.input) {
                self.input.drain(..len);
                return Some(packet);
            }
            let mut bytes = [0; 65_536];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(len) => self.input.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("the client said nothing: {error}"),
            }
        }
    }

    /// The next packet, which must be this one.
    #[track_caller]
    pub fn expect(&mut self, name: &str) -> Packet {
        let packet = self.next();
        assert_eq!(packet.as_ref().map(Packet::name), Some(name));
        packet.unwrap()
    }

    /// Lets the client in.
    pub fn accept(&mut self) {
        self.expect("CONNECT");
        self.send(&wire::connack(0, &[]));
    }

    /// Lets the client in, and returns what it says of itself.
    pub fn accept_and_hear(&mut self) -> Connect {
        let connect = Connect::decode(&self.expect("CONNECT"));
        self.send(&wire::connack(0, &[]));
        connect
    }

    /// Takes the next subscription, or refuses it.
    pub fn subscribe(&mut self, reason: u8) {
        let subscribe = self.expect("SUBSCRIBE");
        self.send(&wire::suback(subscribe.packet_id(), reason));
    }

    /// The next request.
    pub fn request(&mut self) -> Publish {
        Publish::decode(&self.expect("PUBLISH"))
    }

    /// Lets the client in, takes its subscription, and returns its request.
    pub fn serve(&mut self) -> Publish {
        self.accept();
        self.subscribe(1);
        self.request()
    }

    /// Takes a request and answers it, with a good status and these user properties.
    pub fn answer(&mut self, request: &Publish, payload: &str, properties: &[(&str, &str)]) {
        self.send(&wire::puback(request.packet_id, 0));
        self.send(&answer(request, payload, properties).encode());
    }

    /// Says nothing more; returns the names of what the client says until it leaves.
    pub fn listen(&mut self) -> Vec<&'static str> {
        std::iter::from_fn(|| self.next()).map(|packet| packet.name()).collect()
    }
}

/// An answer to a request; `__stat` is 200 unless it is among the properties.
pub fn answer(request: &Publish, payload: &str, properties: &[(&str, &str)]) -> Publish {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let mut user_properties: Vec<_> = properties.iter().map(own).collect();
    if !user_properties.iter().any(|(name, _)| name == "__stat") {
        user_properties.push(("__stat".to_owned(), "200".to_owned()));
    }
    Publish {
        topic: request.response_topic.clone(),
        packet_id: 1,
        response_topic: String::new(),
        correlation: request.correlation.clone(),
        user_properties,
        payload: payload.as_bytes().to_vec(),
    }
}
