//! The log of `serve` as text and as JSON, its rate limit, and notifications of the service manager.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};

use super::common::pki::Ca;
use super::common::{Place, RawClient, StreamedProcess, make_fifo, wire};

fn serve(place: &Place, options: &[&str]) -> (StreamedProcess, u16) {
    let words = [&["serve", "--listen", "127.0.0.1:0"], options].concat();
    let server = StreamedProcess::start(place.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let ready = server.error_line();
    let rest = ready.split("127.0.0.1:").nth(1).unwrap();
    (server, rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap())
}

/// Returns the encoded value of a member in a JSON line.
fn value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.split_once(&format!("\"{name}\":"))?.1;
    let end = match rest.strip_prefix('"') {
        Some(text) => text.find("\",").or_else(|| text.find("\"}")).unwrap() + 2,
        None => rest.find([',', '}']).unwrap(),
    };
    Some(&rest[..end])
}

#[test]
fn each_event_of_a_connection_is_an_object_on_a_line() {
    let place = Place::new();
    let (server, port) = serve(&place, &["--log", "json"]);
    let mut client = RawClient::connect(port);
    client.send(&wire::connect("a\"b\u{9b}31m"));
    assert_eq!(client.receive().unwrap().name(), "CONNACK");
    let line = server.error_line();
    assert!(line.starts_with(r#"{"v":1,"event":"connected","time":"20"#) && line.ends_with('}'), "{line}");
    assert_eq!(value(&line, "client_id"), Some(r#""a\"b\u009b31m""#), "{line}");
    assert!(value(&line, "remote").unwrap().starts_with("\"127.0.0.1:"), "{line}");
    assert_eq!(value(&line, "session"), Some("\"new\""));
    client.send(&wire::disconnect(0));
    let line = server.error_line();
    assert_eq!(
        (value(&line, "event"), value(&line, "reason")),
        (Some("\"disconnected\""), Some("\"closed by the client\""))
    );
    let mut http_client = RawClient::connect(port);
    http_client.send(b"GET / HTTP/1.1\r\n\r\n");
    let line = server.error_line();
    assert_eq!(value(&line, "event"), Some("\"refused\""), "{line}");
    server.signal(Signal::SIGTERM);
    assert_eq!(value(&server.error_line(), "event"), Some("\"stopping\""));
    assert_eq!(server.end().2, Some(0));
}

#[test]
fn quiet_logs_nothing_and_text_logs_connections_on_request() {
    let place = Place::new();
    let (server, port) = serve(&place, &["--log", "text"]);
    let mut client = RawClient::connect(port);
    client.send(&wire::connect("me"));
    let line = server.log_line();
    assert!(line.starts_with("me connected from 127.0.0.1:"), "{line}");
    let words = ["serve", "-q", "--log", "json", "--listen", "127.0.0.1:0", "--exec", "--", "/bin/true"];
    assert_eq!(place.run_bounded(&words), "--- exit 0\n");
}

#[test]
fn log_lines_of_one_client_are_rate_limited() {
    for (format, more) in [
        ("text", "… and 399 more of flood within 10 s"),
        ("json", r#""subject":"flood","count":399,"message":"… and 399 more of flood within 10 s"}"#),
    ] {
        let place = Place::new();
        let (server, port) = serve(&place, &["--log", format]);
        let mut client = RawClient::connect(port);
        client.send(&wire::connect("flood"));
        assert_eq!(client.receive().unwrap().name(), "CONNACK");
        let topic = mqkv::protocol::topic::REQUEST;
        // The store cannot reply to any of these requests and logs each one.
        client.send(&wire::publish_qos_0(topic, b"junk").repeat(499));
        client.send(&wire::disconnect(0));
        assert_eq!(client.rest(), b"");
        server.signal(Signal::SIGTERM);
        let (_, words, code) = server.end();
        assert_eq!(code, Some(0));
        let flood_lines = words.iter().filter(|line| line.contains("flood")).count();
        // 100 lines, their summary, and two lines that are not limited: connected and disconnected.
        assert_eq!(flood_lines, 103, "{words:#?}");
        assert!(words.iter().any(|line| line.ends_with(more)), "{words:#?}");
    }
}

/// Returns the socket of a service manager and an environment that names it in `NOTIFY_SOCKET`.
fn manager(place: Place) -> (UnixDatagram, Place) {
    let socket = UnixDatagram::bind(place.path("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let path = place.path("notify").to_str().unwrap().to_owned();
    (socket, place.with_variable("NOTIFY_SOCKET", &path))
}

/// Returns the next notification of the service manager.
fn notification(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 1_000];
    let len = socket.recv(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes[..len]).trim_end().to_owned()
}

#[test]
fn the_service_manager_is_notified_of_ready_and_stopping() {
    let (socket, place) = manager(Place::new());
    let (server, port) = serve(&place, &[]);
    let ready = format!("READY=1\nSTATUS=listening on 127.0.0.1:{port}, in memory");
    assert_eq!(notification(&socket), ready);
    server.signal(Signal::SIGTERM);
    assert_eq!(notification(&socket), "STOPPING=1\nSTATUS=answering pending requests");
    assert_eq!(server.end().2, Some(0));
}

#[test]
fn the_service_manager_waits_for_a_reload_even_if_it_is_rejected() {
    let place = Place::new();
    let (socket, place) = manager(place);
    Ca::new(&place, "ca.pem").issue(&place, "server", &["127.0.0.1"]);
    place.write("rules", "rules: []\n");
    let options =
        ["--authz", "rules", "--tls-cert", "server.pem", "--tls-key", "server.key", "--log", "text"];
    let (server, _) = serve(&place, &options);
    let log_line_with = |text: &str| while !server.error_line().contains(text) {};
    assert!(notification(&socket).starts_with("READY=1\n"));
    let time = || {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
        now.tv_sec() * 1_000_000 + now.tv_nsec() / 1_000
    };
    let reload = || {
        let before = time();
        server.signal(Signal::SIGHUP);
        let received = notification(&socket);
        let at =
            received.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap_or_else(|| panic!("{received}"));
        assert!((before..=time()).contains(&at.parse().unwrap()), "{received}");
    };
    reload();
    log_line_with("rules reloaded: 0");
    assert_eq!(notification(&socket), "READY=1");
    fs::remove_file(place.path("server.key")).unwrap();
    make_fifo(&place.path("server.key"));
    // Certificates that are rejected end a reload, too.
    for _ in 0..2 {
        reload();
        assert_eq!(notification(&socket), "READY=1");
    }
    place.write("rules", "junk");
    reload();
    assert_eq!(notification(&socket), "READY=1");
    server.signal(Signal::SIGTERM);
    assert!(notification(&socket).starts_with("STOPPING=1\n"));
    assert_eq!(server.end().2, Some(0));
}

#[test]
fn a_hangup_under_exec_is_not_reported_to_the_service_manager() {
    let place = Place::new();
    place.write("rules", "rules: []\n");
    let (socket, place) = manager(place);
    let script = "echo ready; until [ -e go ]; do sleep 0.02; done; exit 3";
    let exec = ["--authz", "rules", "--exec", "--", "/bin/sh", "-c", script];
    let words = [&["serve", "--log", "text"], &exec[..]].concat();
    let server = StreamedProcess::start(&mut place.command(&words));
    assert_eq!(server.line(), "ready");
    server.signal(Signal::SIGHUP);
    while !server.error_line().contains("rules reloaded: 0") {}
    place.write("go", "");
    assert_eq!(server.end().2, Some(3));
    assert!(notification(&socket).starts_with("STOPPING=1\n"), "the first notification");
}
