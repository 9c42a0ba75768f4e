//! A broker of the tests that lets clients in, judges their subscriptions, and says what it is told to say.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // a panic here is a failed test

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// What becomes of one connection.
pub struct Visit {
    /// The SUBACK's reason for a topic filter.
    pub judge: fn(&str) -> u8,
    /// How many subscriptions it hears before it goes on.
    pub subscriptions: usize,
    /// What it sends then.
    pub publishes: Vec<u8>,
    /// Whether it stays until the client leaves.
    pub stays: bool,
}

/// Plays broker for so many connections, one after the other. Returns the URL.
pub fn gatekeeper(visits: Vec<Visit>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("mqtt://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for visit in visits {
            let (stream, _) = listener.accept().unwrap();
            // A client may leave at any time: that is no failure of the broker.
            let _ = receive(stream, &visit);
        }
    });
    url
}

/// The first byte of an UNSUBSCRIBE.
const UNSUBSCRIBE: u8 = 0xA2;

fn receive(mut stream: TcpStream, visit: &Visit) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    packet(&mut stream)?;
    stream.write_all(&[0x20, 3, 0, 0, 0])?;
    let mut subscriptions = 0;
    while subscriptions < visit.subscriptions {
        let (first, body) = packet(&mut stream)?;
        if first == UNSUBSCRIBE {
            stream.write_all(&[0xB0, 4, body[0], body[1], 0, 0])?;
            continue;
        }
        subscriptions += 1;
        let filter = usize::from(u16::from_be_bytes([body[3], body[4]]));
        let reason = (visit.judge)(std::str::from_utf8(&body[5..5 + filter]).unwrap());
        stream.write_all(&[0x90, 4, body[0], body[1], 0, reason])?;
    }
    stream.write_all(&visit.publishes)?;
    if !visit.stays {
        return Ok(());
    }
    loop {
        packet(&mut stream)?;
    }
}

fn packet(stream: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    let first = byte[0];
    let (mut len, mut shift) = (0, 0);
    loop {
        stream.read_exact(&mut byte)?;
        len |= usize::from(byte[0] & 0x7F) << shift;
        shift += 7;
        if byte[0] & 0x80 == 0 {
            break;
        }
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body)?;
    Ok((first, body))
}

/// A PUBLISH of QoS 0 without properties.
pub fn publish(topic: &str, payload: &str) -> Vec<u8> {
    let len = 2 + topic.len() + 1 + payload.len();
    assert!(len < 128, "one byte of length is enough for the tests");
    let mut bytes = vec![0x30, u8::try_from(len).unwrap(), 0, u8::try_from(topic.len()).unwrap()];
    bytes.extend(topic.as_bytes());
    bytes.push(0);
    bytes.extend(payload.as_bytes());
    bytes
}
