//! As little HTTP as it takes to look at a server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Far more than anything takes: whoever waits longer waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends a request as it is, and returns the head and the body of the answer.
pub fn ask(port: u16, request: &[u8]) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    // Who sends too much may find the connection reset behind the answer.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Gets a path, as a browser on this machine does.
pub fn get(port: u16, path: &str) -> (String, String) {
    ask(port, format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n").as_bytes())
}
