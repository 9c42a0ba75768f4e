//! A listener that speaks another protocol than MQTT.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::spawn;

/// Starts a listener on a free port, which it returns. It accepts one connection, answers the first bytes with `answer`
/// and closes.
pub fn non_mqtt_server(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 65_536];
        let _ = stream.read(&mut bytes).and_then(|_| stream.write_all(answer));
    });
    port
}
