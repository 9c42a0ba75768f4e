//! A broker that runs a script for each connection, on a free port of this machine.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // a panic here is a failed test

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::wire::{self, Connect, Packet, Publish};
use crate::a_watchdog::bounded;

/// Longer than any test takes: a script must end, whatever its client does.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A broker for one connection.
pub struct FakeBroker<T> {
    address: SocketAddr,
    script: JoinHandle<T>,
}

impl<T: Send + 'static> FakeBroker<T> {
    /// Starts a broker that runs the script with its first connection.
    pub fn start(script: impl FnOnce(&mut Connection) -> T + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let script = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            script(&mut Connection::new(stream))
        });
        Self { address, script }
    }

    /// Starts a broker that runs the script with its first connection, and another one with each further connection.
    pub fn start_and_continue(
        script: impl FnOnce(&mut Connection) -> T + Send + 'static,
        further: impl Fn(&mut Connection) + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let script = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let result = script(&mut Connection::new(stream));
            thread::spawn(move || {
                for stream in listener.incoming() {
                    further(&mut Connection::new(stream.unwrap()));
                }
            });
            result
        });
        Self { address, script }
    }

    pub fn url(&self) -> String {
        format!("mqtt://{}", self.address)
    }

    /// Waits for the end of the script and returns its result.
    pub fn end(self) -> T {
        bounded(|| self.script.join()).unwrap()
    }
}

/// A broker for any number of connections.
pub struct FakeBrokers {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl FakeBrokers {
    /// Starts a broker that runs the script with each connection and its number, which counts from 1. It lives as long as
    /// the test's process.
    pub fn start(script: impl Fn(usize, &mut Connection) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (counted, script) = (Arc::clone(&connections), Arc::new(script));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
                let script = Arc::clone(&script);
                thread::spawn(move || script(number, &mut Connection::new(stream.unwrap())));
            }
        });
        Self { address, connections }
    }

    pub fn url(&self) -> String {
        format!("mqtt://{}", self.address)
    }

    /// Returns the number of connections so far, closed ones included.
    pub fn count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// The broker's side of a connection.
pub struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Connection {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, input: Vec::new() }
    }

    /// Sends bytes, if the client is still connected.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Waits for the next packet; `None` once the client has closed the connection.
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
                Err(error) => panic!("the client sent no packet: {error}"),
            }
        }
    }

    /// Waits for the next packet, which must be of this type.
    #[track_caller]
    pub fn expect(&mut self, name: &str) -> Packet {
        let packet = self.next();
        assert_eq!(packet.as_ref().map(Packet::name), Some(name));
        packet.unwrap()
    }

    /// Waits for CONNECT and accepts the client.
    pub fn accept_client(&mut self) {
        self.expect("CONNECT");
        self.send(&wire::connack(0, &[]));
    }

    /// Accepts the client and returns its CONNECT.
    pub fn accept_connect(&mut self) -> Connect {
        let connect = Connect::decode(&self.expect("CONNECT"));
        self.send(&wire::connack(0, &[]));
        connect
    }

    /// Waits for SUBSCRIBE and answers it with this reason code.
    pub fn subscribe(&mut self, reason: u8) {
        let subscribe = self.expect("SUBSCRIBE");
        self.send(&wire::suback(subscribe.packet_id(), reason));
    }

    /// Waits for the next request.
    pub fn request(&mut self) -> Publish {
        Publish::decode(&self.expect("PUBLISH"))
    }

    /// Accepts the client and its subscription, and waits for its request.
    pub fn serve(&mut self) -> Publish {
        self.accept_client();
        self.subscribe(1);
        self.request()
    }

    /// Acknowledges a request and responds to it, with status 200 and these user properties.
    pub fn answer(&mut self, request: &Publish, payload: &str, properties: &[(&str, &str)]) {
        self.send(&wire::puback(request.packet_id, 0));
        self.send(&answer(request, payload, properties).encode());
    }

    /// Sends nothing more. Returns the names of the packets that the client sends until it closes the connection.
    pub fn listen(&mut self) -> Vec<&'static str> {
        std::iter::from_fn(|| self.next()).map(|packet| packet.name()).collect()
    }
}

/// Returns the response to a request; `__stat` is 200 unless it is among the properties.
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
