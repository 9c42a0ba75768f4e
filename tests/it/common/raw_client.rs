//! A client that sends and receives single packets and bytes, without a session.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::wire::Packet;

/// Far longer than any step of a test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A connection to a port of this machine.
pub struct RawClient {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Drop for RawClient {
    fn drop(&mut self) {
        // A process that another test starts may have a copy of the stream, which would keep the connection open. An error: it
        // has ended.
        _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl RawClient {
    /// Opens a network connection and sends nothing.
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, input: Vec::new() }
    }

    /// Sends bytes. An error is ignored: it shows when the test receives something.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Waits for the next packet; `None` once the server has closed the connection.
    pub fn receive(&mut self) -> Option<Packet> {
        loop {
            if let Some((packet, len)) = Packet::split(&self.input) {
                self.input.drain(..len);
                return Some(packet);
            }
            if !self.read() {
                assert_eq!(self.input, b"", "an incomplete packet at the end");
                return None;
            }
        }
    }

    /// Returns everything until the server closes the connection.
    pub fn rest(mut self) -> Vec<u8> {
        while self.read() {}
        std::mem::take(&mut self.input)
    }

    /// Returns everything up to these bytes, which are included.
    pub fn receive_until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.input.windows(end.len()).position(|window| window == end) {
                return self.input.drain(..at + end.len()).collect();
            }
            assert!(self.read(), "{}", self.input.escape_ascii());
        }
    }

    /// Waits for `len` bytes.
    pub fn receive_bytes(&mut self, len: usize) -> Vec<u8> {
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
            Err(error) => panic!("nothing was received: {error}"),
        };
        self.input.extend_from_slice(&bytes[..len]);
        len > 0
    }
}
