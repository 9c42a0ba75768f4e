//! A server whose operator does not read what it tells.

use std::io::Write;
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use super::common::{Place, wait_until, wire};

#[test]
fn an_unread_log_blocks_no_client() {
    let place = Place::new();
    let words = ["serve", "--listen", "127.0.0.1:0", "--port-file", "port", "-v"];
    let mut server = place.command(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let port = wait_until("the port", || std::fs::read_to_string(place.path("port")).ok());
    let port = port.trim();
    // Far more lines than a pipe takes, each client causing as many as are told of one: each of these requests cannot
    // be answered, which is told.
    let topic = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";
    let junk = wire::publish_qos_0(topic, b"junk").repeat(50);
    let floods: Vec<TcpStream> = (0..100)
        .map(|number| {
            let mut flood = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
            flood.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
            flood.write_all(&wire::connect(&format!("flood-{number}"))).unwrap();
            flood.write_all(&junk).unwrap();
            flood
        })
        .collect();
    let url = format!("mqtt://127.0.0.1:{port}");
    for _ in 0..3 {
        let served = place.run(&["get", "k", "-b", &url, "-t", "20s", "--connect-timeout", "20s"]);
        assert_eq!(served, "--- exit 1\n");
    }
    drop(floods);
    let _ = server.kill();
    let _ = server.wait();
}
