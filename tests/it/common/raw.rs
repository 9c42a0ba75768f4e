//! A client that says and hears bytes and packets one by one.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::wire::Packet;

/// Far more than anything takes: whoever waits longer waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection to a port of this machine.
pub struct Raw {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Raw {
    /// Connects, and says nothing.
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, input: Vec::new() }
    }

    /// Says some bytes. That nobody takes them shows when something is to be heard.
    pub fn say(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// The next packet; none when the other side has closed.
    pub fn hear(&mut self) -> Option<Packet> {
        loop {
            if let Some((packet, len)) = Packet::split(&self.input) {
                self.input.drain(..len);
                return Some(packet);
            }
            if !self.read() {
                assert_eq!(self.input, b"", "half a packet at the end");
                return None;
            }
        }
    }

    /// Everything until the other side closes.
    pub fn rest(mut self) -> Vec<u8> {
        while self.read() {}
        self.input
    }

    /// Everything until these bytes, and them.
    pub fn hear_until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.input.windows(end.len()).position(|window| window == end) {
                return self.input.drain(..at + end.len()).collect();
            }
            assert!(self.read(), "{}", self.input.escape_ascii());
        }
    }

    /// So many bytes.
    pub fn hear_bytes(&mut self, len: usize) -> Vec<u8> {
        while self.input.len() < len {
            assert!(self.read(), "{}", self.input.escape_ascii());
        }
        self.input.drain(..len).collect()
    }

    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let len = match self.stream.read(&mut bytes) {
            Ok(len) => len,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("nothing is heard: {error}"),
        };
        self.input.extend_from_slice(&bytes[..len]);
        len > 0
    }
}
