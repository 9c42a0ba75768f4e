//! A fake broker that accepts every client, answers its subscriptions by a rule, and then publishes.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // a panic here is a failed test

use std::net::TcpListener;
use std::thread;

use super::fake_broker::Connection;
use super::wire;

/// What the broker does with one connection.
pub struct ConnectionScript {
    /// Returns the SUBACK's reason code for a topic filter.
    pub suback_reason: fn(&str) -> u8,
    /// How many subscriptions it answers before it publishes.
    pub subscriptions: usize,
    /// The packets that it sends after the subscriptions.
    pub publishes: Vec<u8>,
    /// Whether it stays connected until the client disconnects.
    pub stays_connected: bool,
}

/// Starts a broker on a free port for as many connections as there are scripts, one after the other. Returns its URL.
pub fn subscription_broker(scripts: Vec<ConnectionScript>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("mqtt://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for script in scripts {
            let (stream, _) = listener.accept().unwrap();
            // A client may disconnect at any time: that is no failure of the broker.
            let _ = run(Connection::new(stream), &script);
        }
    });
    url
}

/// Returns `None` once the client has disconnected.
fn run(mut connection: Connection, script: &ConnectionScript) -> Option<()> {
    connection.accept_client();
    let mut subscriptions = 0;
    while subscriptions < script.subscriptions {
        let packet = connection.next()?;
        let [high, low] = packet.packet_id().to_be_bytes();
        if packet.name() == "UNSUBSCRIBE" {
            connection.send(&wire::packet(0xB0, vec![high, low, 0, 0]));
            continue;
        }
        subscriptions += 1;
        let body = &packet.body;
        let filter = usize::from(u16::from_be_bytes([body[3], body[4]]));
        let reason = (script.suback_reason)(std::str::from_utf8(&body[5..5 + filter]).unwrap());
        connection.send(&wire::suback(packet.packet_id(), reason));
    }
    connection.send(&script.publishes);
    if script.stays_connected {
        while connection.next().is_some() {}
    }
    Some(())
}
