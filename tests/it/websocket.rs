//! MQTT over WebSockets between client and server, and other protocols on such a port.

use std::io::{Read, Write, copy};
use std::net::{TcpListener, TcpStream};
use std::thread::{sleep, spawn};
use std::time::Duration;

use super::common::pki::Ca;
use super::common::wire::{self, PINGREQ};
use super::common::{LoggedServer, Place, RawClient, Server, StreamedProcess, non_mqtt_server};

fn served() -> (Place, LoggedServer, String) {
    let place = Place::new();
    let server = LoggedServer::start(&place, &["--listen", "ws://127.0.0.1:0/mqtt"]);
    let url = format!("ws://127.0.0.1:{}", server.port(0));
    (place, server, url)
}

const HANDSHAKE: &str = "GET /mqtt HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                     Sec-WebSocket-Protocol: mqtt\r\n\r\n";
/// The end of an HTTP head.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Encodes a client's frame with a mask of zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first, 0x80 | u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}

/// Connects a client and waits until its CONNECT is accepted.
fn connected(server: &LoggedServer, client_id: &str) -> RawClient {
    let mut client = RawClient::connect(server.port(0));
    client.send(HANDSHAKE.as_bytes());
    let answer = String::from_utf8(client.receive_until(HEAD_END)).unwrap().to_lowercase();
    assert!(
        answer.starts_with("http/1.1 101 ") && answer.contains("sec-websocket-protocol: mqtt\r\n"),
        "{answer}"
    );
    client.send(&frame(0x82, &wire::connect(client_id)));
    let connack = payload(&mut client, 4);
    assert_eq!((connack[0], connack[3]), (0x20, 0));
    assert_eq!(server.log_line(), format!("{client_id} connected from PORT, new session"));
    client
}

/// Receives `len` bytes from any number of messages.
fn payload(client: &mut RawClient, len: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    while payload.len() < len {
        let [first, len] = client.receive_bytes(2)[..] else { panic!("no frame") };
        assert_eq!(first, 0x82);
        payload.extend(client.receive_bytes(len.into()));
    }
    payload
}

fn is_served(client: &mut RawClient) {
    client.send(&frame(0x82, &PINGREQ));
    assert_eq!(client.receive_bytes(4), [0x82, 2, 0xD0, 0]);
}

#[test]
fn values_of_all_sizes_are_sent_in_both_directions() {
    let (place, _server, url) = served();
    assert_eq!(place.run_at(&url, &["set", "k", "v"]), "--- exit 0\n");
    assert_eq!(place.bytes_at(&format!("{url}/mqtt"), &["get", "k"]), b"v");
    let big: Vec<u8> =
        (0..6_000_000u32).map(|number| number.to_le_bytes()[0] ^ number.to_le_bytes()[1]).collect();
    place.write("big", &big);
    assert_eq!(place.run_at(&url, &["set", "big", "-f", "big"]), "--- exit 0\n");
    assert!(place.bytes_at(&url, &["get", "big"]) == big);
}

#[test]
fn a_batch_uses_one_websocket() {
    let (place, _server, url) = served();
    let lines: String = (0..3000).map(|number| format!("set k{number} v{number}\n")).collect();
    let shown = place.run_at_with_input(&url, &["batch", "-"], lines.as_bytes());
    assert!(shown.ends_with("--- exit 0\n"), "{shown}");
    assert_eq!(place.bytes_at(&url, &["get", "k2999"]), b"v2999");
}

#[test]
fn a_watch_receives_changes_and_closes_cleanly() {
    let (place, server, url) = served();
    let watch =
        StreamedProcess::start(&mut place.command(&["watch", "k", "-j", "-c", "1", "-b", &url, "-i", "w"]));
    assert_eq!(server.log_line(), "w connected from PORT, new session");
    assert!(watch.line().contains("\"event\":\"current\""));
    assert_eq!(place.run_at(&url, &["set", "k", "v", "-i", "s"]), "--- exit 0\n");
    assert!(watch.line().contains("\"value\":\"v\""));
    assert_eq!(watch.end().2, Some(0));
    let mut lines: Vec<String> = (0..3).map(|_| server.log_line()).collect();
    lines.sort();
    let gone = |id: &str| format!("{id} disconnected: closed by the client");
    assert_eq!(lines, ["s connected from PORT, new session".to_owned(), gone("s"), gone("w")]);
}

#[test]
fn tls_below_a_websocket_is_verified() {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    ca.issue(&place, "server", &["localhost"]);
    ca.issue(&place, "me", &["me"]);
    Ca::new(&place, "other.pem");
    let files = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--client-ca", "ca.pem"];
    let server = LoggedServer::start(&place, &[&files[..], &["--listen", "wss://127.0.0.1:0"]].concat());
    let url = format!("wss://localhost:{}", server.port(0));
    let run = |options: &str| {
        let words: Vec<&str> = options.split_whitespace().collect();
        place.run(&[&["-b", &url], &words[..]].concat()).replace(&format!(":{}", server.port(0)), ":PORT")
    };
    let me = "-T ca.pem -C me.pem -K me.key";
    assert_eq!(run(&format!("set k v {me}")), "--- exit 0\n");
    assert_eq!(run(&format!("get k {me}")), "--- stdout\nv(no line feed)\n--- exit 0\n");
    assert!(run(&format!("ping {me}")).contains(" ms (TLS 1.3)  round trip "));
    for (options, message) in [
        ("get k -T ca.pem", "localhost:PORT requires a client certificate"),
        (
            "get k -T other.pem",
            "the certificate of localhost:PORT is from an unknown CA: no CA in other.pem has signed it",
        ),
        ("get k -n localhost --notls", ""),
    ] {
        let shown = run(options);
        if message.is_empty() {
            assert!(shown.ends_with("--- exit 2\n"), "{shown}");
        } else {
            assert!(shown.starts_with(&format!("--- stderr\nerror: {message}\n")), "{shown}");
            assert!(shown.ends_with("--- exit 69\n"), "{shown}");
        }
    }
    let plain = place.run(&["get", "k", "-b", &url.replace("wss:", "ws:")]);
    assert!(plain.contains("no WebSocket at ") && plain.contains(": the answer is not HTTP\n"), "{plain}");
    let without = place.run(&["get", "k", "-T", "ca.pem", "-b", &url.replace("wss:", "ws:")]);
    assert!(without.ends_with("--- exit 2\n"), "{without}");
}

/// Starts a server that answers with `words` and returns its URL.
fn non_mqtt_server_at(words: &'static [u8]) -> String {
    format!("ws://127.0.0.1:{}", non_mqtt_server(words))
}

#[test]
fn an_unexpected_answer_is_described() {
    let (place, server, url) = served();
    let mqtt = Server::start(&place, &["-q"]);
    let path_hint = "check the path: -b ws://HOST:PORT/PATH; the default is /mqtt";
    let port_hint = "check the port; with TLS: wss://, without WebSockets: mqtt://";
    let cut = "WebSocket handshake with BROKER failed: connection closed by the other side";
    for (url, message, hint, code) in [
        (format!("{url}/other"), "no WebSocket at BROKER: HTTP status 404", path_hint, 69),
        (
            non_mqtt_server_at(b"HTTP/1.1 401 No\r\n\r\n"),
            "no WebSocket at BROKER: HTTP status 401",
            path_hint,
            77,
        ),
        (
            non_mqtt_server_at(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
            "no WebSocket at BROKER: HTTP status 200",
            path_hint,
            69,
        ),
        (
            non_mqtt_server_at(b"\x20\x03\0\x84\0"),
            "no WebSocket at BROKER: the answer is not HTTP",
            port_hint,
            69,
        ),
        (non_mqtt_server_at(b""), cut, port_hint, 69),
        (mqtt.url().replace("mqtt:", "ws:"), cut, port_hint, 69),
    ] {
        let shown = place.run_at(&url, &["get", "k"]);
        assert_eq!(shown, format!("--- stderr\nerror: {message}\nhint: {hint}\n--- exit {code}\n"));
    }
    Ca::new(&place, "any.pem");
    let shown = place.run_at(&mqtt.url().replace("mqtt:", "wss:"), &["get", "k", "-T", "any.pem"]);
    let cut = "TLS handshake with BROKER failed: connection closed by the other side";
    let hint = "check the port; without TLS: -b ws://HOST:PORT";
    assert_eq!(shown, format!("--- stderr\nerror: {cut}\nhint: {hint}\n--- exit 69\n"));
    assert_eq!(server.log_line(), "connection from PORT refused: no WebSocket at path /other");
}

#[test]
fn a_silent_port_exits_with_124() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let shown = place.run_at(&url, &["get", "k", "--connect-timeout", "1s"]);
    let message = "WebSocket handshake with BROKER timed out after 1s";
    assert!(shown.starts_with(&format!("--- stderr\nerror: {message}\n")), "{shown}");
    assert!(shown.ends_with("--- exit 124\n"), "{shown}");
}

#[test]
fn a_page_of_another_origin_is_rejected_unless_allowed() {
    let place = Place::new();
    let allowed = ["--ws-origin", "https://dash.example"];
    let listen = ["--listen", "ws://127.0.0.1:0", "--listen", "ws://localhost:0"];
    let server = LoggedServer::start(&place, &[&listen[..], &allowed].concat());
    let status = |origin: &str, host: &str| {
        let mut client = RawClient::connect(server.port(0));
        let origin = format!("Host: {host}\r\nOrigin: {origin}\r\n");
        client.send(HANDSHAKE.replace("Host: h\r\n", &origin).as_bytes());
        let head = String::from_utf8(client.receive_until(HEAD_END)).unwrap();
        head.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(status("http://localhost:3000", "127.0.0.1:8080"), "101");
    assert_eq!(status("https://dash.example", "store.example"), "101");
    for (origin, host) in [
        ("https://evil.example", "127.0.0.1:8080"),
        ("http://evil.example:8080", "evil.example:8080"),
        ("null", "127.0.0.1:8080"),
    ] {
        assert_eq!(status(origin, host), "403");
        assert_eq!(
            server.log_line_with("web page"),
            format!(
                "connection from PORT refused: web page of origin {origin} is not allowed; --ws-origin allows it"
            )
        );
    }
}

#[test]
fn packets_may_span_and_share_frames() {
    let (_place, server, _) = served();
    let mut client = connected(&server, "c");
    let packets = [wire::subscribe(1, "a"), PINGREQ.to_vec()].concat();
    for byte in &packets {
        client.send(&frame(0x82, &[*byte]));
    }
    assert_eq!(payload(&mut client, 8), [0x90, 4, 0, 1, 0, 1, 0xD0, 0]);
    client.send(&frame(0x82, &[PINGREQ, PINGREQ].concat()));
    assert_eq!(payload(&mut client, 4), [0xD0, 0, 0xD0, 0]);
}

#[test]
fn the_subprotocol_mqtt_may_be_one_of_several_that_a_client_offers() {
    let (_place, server, _) = served();
    for offer in ["chat, mqtt", "mqtt,chat", "chat\r\nSec-WebSocket-Protocol: mqtt"] {
        let mut client = RawClient::connect(server.port(0));
        client.send(HANDSHAKE.replace("Protocol: mqtt", &format!("Protocol: {offer}")).as_bytes());
        let answer = String::from_utf8(client.receive_until(HEAD_END)).unwrap().to_lowercase();
        assert!(answer.starts_with("http/1.1 101 "), "{answer}");
        assert_eq!(answer.matches("sec-websocket-protocol: mqtt\r\n").count(), 1, "{answer}");
    }
}

#[test]
fn an_invalid_frame_ends_its_own_connection_only() {
    let (_place, server, _) = served();
    let mut other = connected(&server, "other");
    for (bytes, words, code) in [
        (frame(0x81, b"text"), "WebSocket: text message", 1003u16),
        (b"\x82\x02\xC0\x00".to_vec(), "WebSocket: Received an unmasked frame from client", 1002),
        (frame(0xF2, b"a"), "WebSocket: Reserved bits are non-zero", 1002),
        (
            b"\x82\xFF\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0\0\0\0".to_vec(),
            "WebSocket: Message too long: 9223372036854775807 > 67108864",
            1009,
        ),
    ] {
        let mut client = connected(&server, "c");
        client.send(&bytes);
        let received = client.rest();
        // DISCONNECT of MQTT, then the close frame of the WebSocket.
        assert_eq!((received[0], received[2], received[4]), (0x82, 0xE0, 0x81), "{words}");
        let [high, low] = code.to_be_bytes();
        assert!(received.ends_with(&[0x88, 2, high, low]), "{words}: {received:02X?}");
        assert_eq!(server.log_line(), format!("c disconnected: malformed packet (0x81): {words}"));
    }
    // An invalid packet in a valid frame is an error of MQTT, not of the WebSocket.
    let mut client = connected(&server, "c");
    client.send(&frame(0x82, b"\xFF\xFF\xFF\xFF\xFF"));
    assert!(client.rest().ends_with(&[0x88, 2, 0x03, 0xE8]));
    assert!(server.log_line().starts_with("c disconnected: malformed packet (0x81)"));
    is_served(&mut other);
}

#[test]
fn frames_are_bounded_until_the_client_is_accepted() {
    const LEN: u32 = 3 * 1024 * 1024;
    let (_place, server, _) = served();
    let head = [&[0x82, 0xFF, 0, 0, 0, 0][..], &LEN.to_be_bytes(), &[0; 4]].concat();
    let mut unauthenticated = RawClient::connect(server.port(0));
    unauthenticated.send(HANDSHAKE.as_bytes());
    unauthenticated.receive_until(HEAD_END);
    unauthenticated.send(&head);
    assert_eq!(unauthenticated.rest(), b"\x88\x02\x03\xF1");
    let line = server.log_line();
    assert!(
        line.ends_with(" refused: WebSocket: Message too long for a CONNECT: 3145728 > 2097152"),
        "{line}"
    );
    // A client may send packets before it receives its CONNACK.
    let mut client = RawClient::connect(server.port(0));
    client.send(HANDSHAKE.as_bytes());
    client.receive_until(HEAD_END);
    let publish = wire::publish_qos_0("t", &vec![b'x'; 3 * 1024 * 1024 - 9]);
    assert_eq!(u32::try_from(publish.len()), Ok(LEN));
    client.send(&[&frame(0x82, &wire::connect("c"))[..], &head, &publish, &frame(0x82, &PINGREQ)].concat());
    assert_eq!(client.receive_bytes(3)[2], 0x20);
    client.receive_until(&[0x82, 2, 0xD0, 0]);
}

#[test]
fn invalid_handshakes_are_answered_and_disturb_no_other_client() {
    let (_place, server, _) = served();
    let mut other = connected(&server, "other");
    // This client never completes its request.
    let mut slow = RawClient::connect(server.port(0));
    slow.send(b"GET /mqtt HTTP/1.1\r\nHost: ");
    let long = format!("GET /mqtt HTTP/1.1\r\nX: {}", "x".repeat(100_000));
    for (bytes, answer, reason) in [
        (long.as_bytes(), "HTTP/1.1 431 ", "HTTP request is too long"),
        (
            b"GET /mqtt HTTP/1.1\r\nHost: h\r\n\r\n",
            "HTTP/1.1 426 ",
            "HTTP request without an upgrade to a WebSocket",
        ),
        (
            HANDSHAKE.replace("Protocol: mqtt", "Protocol: chat").as_bytes(),
            "HTTP/1.1 400 ",
            "subprotocol mqtt not offered",
        ),
        (
            HANDSHAKE.replace("Sec-WebSocket-Protocol: mqtt\r\n", "").as_bytes(),
            "HTTP/1.1 400 ",
            "subprotocol mqtt not offered",
        ),
        (
            HANDSHAKE.replace("Protocol: mqtt", "Protocol: mqttv3.1, xmqtt").as_bytes(),
            "HTTP/1.1 400 ",
            "subprotocol mqtt not offered",
        ),
        (&wire::connect("c"), "", "MQTT without a WebSocket"),
        (b"\x16\x03\x01\0\xA5", "", "TLS on a listener without TLS"),
    ] {
        let mut client = RawClient::connect(server.port(0));
        client.send(bytes);
        let answered = String::from_utf8(client.rest()).unwrap();
        assert!(answered.starts_with(answer) && answered.is_empty() == answer.is_empty(), "{answered}");
        assert_eq!(server.log_line(), format!("connection from PORT refused: {reason}"));
    }
    drop(RawClient::connect(server.port(0)));
    let closed = "connection from PORT refused: connection closed before the WebSocket handshake";
    assert_eq!(server.log_line(), closed);
    drop(slow);
    assert_eq!(server.log_line(), closed);
    is_served(&mut other);
}

#[test]
fn one_timeout_bounds_all_steps_of_a_connection() {
    const STEP: Duration = Duration::from_millis(600);
    let (place, _server, url) = served();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let slow = format!("ws://{}", listener.local_addr().unwrap());
    let broker = url.trim_start_matches("ws://").split('/').next().unwrap().to_owned();
    // The upgrade response and the CONNACK each take less than the timeout, but together they take longer.
    spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let broker = TcpStream::connect(broker).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), broker.try_clone().unwrap());
        spawn(move || copy(&mut from, &mut to));
        let (mut broker, mut client) = (broker, client);
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = broker.read(&mut bytes) {
            sleep(STEP);
            if client.write_all(&bytes[..count]).is_err() {
                return;
            }
        }
    });
    let shown = place.run_at(&slow, &["get", "k", "--connect-timeout", "1s"]);
    assert!(shown.contains(" within 1s\n") && shown.ends_with("--- exit 124\n"), "{shown}");
}
