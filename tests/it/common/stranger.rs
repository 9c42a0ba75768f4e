//! Whoever listens and speaks of something else.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::spawn;

/// A listener of this machine that says something once it is spoken to, and then closes: its port.
pub fn stranger(words: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 65_536];
        let _ = stream.read(&mut bytes).and_then(|_| stream.write_all(words));
    });
    port
}
