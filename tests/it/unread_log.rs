//! A server whose log is not read.

use std::io::Write;
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use super::common::{Place, wait_until, wire};
use crate::a_watchdog::bounded;

#[test]
fn an_unread_log_blocks_no_client() {
    let place = Place::new();
    let words = ["serve", "--listen", "127.0.0.1:0", "--port-file", "port", "-v"];
    let mut server = place.command(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let port = wait_until("the port", || std::fs::read_to_string(place.path("port")).ok());
    let port = port.trim();
    // The log lines exceed a pipe's buffer by far. The store cannot reply to these requests and logs each one; each
    // client stays below the rate limit.
    let topic = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";
    let junk = wire::publish_qos_0(topic, b"junk").repeat(50);
    let clients: Vec<TcpStream> = (0..100)
        .map(|number| {
            let mut client = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
            client.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
            client.write_all(&wire::connect(&format!("flood-{number}"))).unwrap();
            client.write_all(&junk).unwrap();
            client
        })
        .collect();
    let url = format!("mqtt://127.0.0.1:{port}");
    for _ in 0..3 {
        let served = place.run(&["get", "k", "-b", &url, "-t", "20s", "--connect-timeout", "20s"]);
        assert_eq!(served, "--- stderr\nerror: key not found: k\n--- exit 1\n");
    }
    drop(clients);
    let _ = server.kill();
    let _ = bounded(|| server.wait());
}
