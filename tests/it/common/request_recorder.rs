//! A proxy in front of a server that records the requests that clients send.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::wire::variable;

/// A running proxy; it lives as long as the test's process.
pub struct RequestRecorder {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl RequestRecorder {
    /// Starts a proxy to a server on this machine.
    pub fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorder = Self { port, requests: Arc::clone(&requests) };
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, requests) = (client.unwrap(), Arc::clone(&requests));
                let server = TcpStream::connect(("127.0.0.1", server_port)).unwrap();
                for stream in [&client, &server] {
                    stream.set_nodelay(true).unwrap();
                }
                let (back, forth) =
                    ((server.try_clone().unwrap(), client.try_clone().unwrap()), (client, server));
                thread::spawn(move || carry(back.0, back.1, |_| {}));
                thread::spawn(move || {
                    let mut unread = Vec::new();
                    carry(forth.0, forth.1, |bytes| {
                        unread.extend_from_slice(bytes);
                        requests.lock().unwrap().extend(requests_in(&mut unread));
                    });
                });
            }
        });
        recorder
    }

    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    /// Returns the requests so far, as words separated by spaces.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns the number of requests so far that begin with this text.
    pub fn count(&self, beginning: &str) -> usize {
        self.requests().iter().filter(|request| request.starts_with(beginning)).count()
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, mut seen: impl FnMut(&[u8])) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        seen(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Removes complete packets from the front and returns the requests among them.
fn requests_in(unread: &mut Vec<u8>) -> Vec<String> {
    let mut requests = Vec::new();
    while let Some((head, len)) = variable(unread.get(1..).unwrap_or(&[])) {
        let end = 1 + head + len;
        if unread.len() < end {
            break;
        }
        let packet: Vec<u8> = unread.drain(..end).collect();
        const PUBLISH: u8 = 3;
        if packet[0] >> 4 == PUBLISH {
            requests.push(request_of(packet[0], &packet[1 + head..]));
        }
    }
    requests
}

fn request_of(first: u8, body: &[u8]) -> String {
    let topic = usize::from(u16::from_be_bytes([body[0], body[1]]));
    let packet_id = if first & 0b110 == 0 { 0 } else { 2 };
    let body = &body[2 + topic + packet_id..];
    let (head, properties) = variable(body).unwrap();
    let payload = String::from_utf8_lossy(&body[head + properties..]).into_owned();
    // *3, $3, GET, $1, k
    let words: Vec<_> = payload.split("\r\n").skip(2).step_by(2).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}
