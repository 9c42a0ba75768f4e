//! A minimal HTTP client.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Sends a request as it is, and returns the head and the body of the response.
pub fn ask(port: u16, request: &[u8]) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(request).unwrap();
    let mut response = Vec::new();
    // If the request is too long, the server may reset the connection after its response.
    let _ = stream.read_to_end(&mut response);
    let response = String::from_utf8(response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Sends a GET request, as a browser on this machine would.
pub fn get(port: u16, path: &str) -> (String, String) {
    ask(port, format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n").as_bytes())
}
