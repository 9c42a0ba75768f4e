//! TLS and mutual TLS between client and server, and the errors of failed handshakes.

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use mqkv::client::trace::TraceEvent;
use mqkv::client::{Client, Settings, Target, Tracer};
use mqkv::net::{ClientTls, TlsOptions};
use mqkv::protocol::Key;
use nix::sys::signal::Signal;

use super::common::pki::Ca;
use super::common::proxy::{Proxy, Sender};
use super::common::tls12;
use super::common::{LoggedServer, Place, Server, StreamedProcess, non_mqtt_server};

/// Creates a CA in `ca.pem` and starts a server with a certificate from it.
fn served(options: &[&str]) -> (Place, Ca, Server) {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    ca.issue(&place, "server", &["localhost", "127.0.0.1"]);
    let server = serve(&place, "server", options);
    (place, ca, server)
}

fn serve(place: &Place, name: &str, options: &[&str]) -> Server {
    let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
    Server::start(place, &[&["-q", "--tls-cert", &certificate, "--tls-key", &key], options].concat())
}

/// Runs a command line against a port of this machine and returns its output with `:PORT` for the port.
fn run_at_port(place: &Place, port: u16, line: &str) -> String {
    let port = port.to_string();
    let line = line.replace("PORT", &port);
    let words: Vec<&str> = line.split_whitespace().collect();
    place.run(&words).replace(&format!(":{port}"), ":PORT")
}

fn error(message: &str, hint: &str) -> String {
    format!("--- stderr\nerror: {message}\nhint: {hint}\n--- exit 69\n")
}

const GET: &str = "get k -n localhost -p PORT -T ca.pem";
const PORT_HINT: &str = "check the port; without TLS: -b mqtt://HOST:PORT or --notls";
const CA_HINT: &str = "mqkv doctor\nhint: trust the CA that signed it: -T FILE, or MQKV_CAFILE=FILE";

#[test]
fn a_value_is_written_and_read_over_tls() {
    let (place, _, server) = served(&[]);
    let port = server.port();
    assert_eq!(run_at_port(&place, port, "set k v -n localhost -p PORT -T ca.pem"), "--- exit 0\n");
    assert_eq!(
        place.bytes_at(&format!("mqtts://127.0.0.1:{port}"), &["get", "k", "--cafile", "ca.pem"]),
        b"v"
    );
    let ping = run_at_port(&place, port, "ping -n localhost -p PORT -T ca.pem");
    assert!(
        ping.contains("localhost:PORT  connect ") && ping.contains(" ms (TLS 1.3)  round trip "),
        "{ping}"
    );
    let ping = run_at_port(&place, port, "ping -c 2 -j -n localhost -p PORT -T ca.pem");
    assert_eq!(ping.matches("\"tls\":\"1.3\"").count(), 1, "{ping}");
}

#[test]
fn tls_1_2_is_accepted() {
    let place = Place::new();
    Ca::new(&place, "ca.pem").issue(&place, "server", &["localhost"]);
    let server = Server::start(&place, &["-q"]);
    let port = tls12::proxy(&place.path("server.pem"), &place.path("server.key"), server.port());
    assert_eq!(run_at_port(&place, port, "set k v -n localhost -p PORT -T ca.pem"), "--- exit 0\n");
    let ping = run_at_port(&place, port, "ping -n localhost -p PORT -T ca.pem");
    assert!(ping.contains(" ms (TLS 1.2)  round trip "), "{ping}");
    let shown = run_at_port(&place, port, "get k -n 127.0.0.1 -p PORT --insecure");
    assert!(shown.contains("--- stdout\nv"), "{shown}");
}

#[test]
fn a_value_larger_than_any_buffer_is_sent_in_both_directions() {
    let (place, _, server) = served(&[]);
    let big: Vec<u8> =
        (0..6_000_000u32).map(|number| number.to_le_bytes()[0] ^ number.to_le_bytes()[1]).collect();
    place.write("big", &big);
    let port = server.port();
    assert_eq!(run_at_port(&place, port, "set k -f big -n localhost -p PORT -T ca.pem"), "--- exit 0\n");
    assert!(place.bytes_at(&format!("mqtts://localhost:{port}"), &["get", "k", "-T", "ca.pem"]) == big);
}

const AT: &str = "-n localhost -p PORT";

/// Returns the round trips of what `run` does at the port of a proxy, that of TCP included. The last flight of the client, with its
/// DISCONNECT, is no round trip: the client does not wait for the close.
///
/// A busy machine may cut a flight in two, and never makes one of two: the least number of some runs counts.
fn round_trips(port: u16, expected: usize, run: impl Fn(u16)) -> usize {
    let count = || {
        let proxy = Proxy::start(&format!("mqtts://127.0.0.1:{port}"));
        run(proxy.url().rsplit(':').next().unwrap().parse().unwrap());
        proxy.end().iter().filter(|flight| flight.from == Sender::Client).count()
    };
    (0..10).map(|_| count()).find(|count| *count <= expected).unwrap_or(usize::MAX)
}

#[track_caller]
fn assert_round_trips(place: &Place, port: u16, verb: &str, expected: usize) {
    let round_trips = round_trips(port, expected, |port| {
        let shown = run_at_port(place, port, &format!("{verb} -T ca.pem"));
        assert!(shown.ends_with("--- exit 0\n") || shown.ends_with("--- exit 1\n"), "{shown}");
    });
    assert_eq!(round_trips, expected, "{verb}");
}

#[test]
fn a_read_over_tls_takes_three_round_trips_including_tcp_and_a_write_four() {
    let (place, _, server) = served(&[]);
    for (verb, expected) in [("get k", 3), ("set k v", 4), ("get k --cautious", 4)] {
        assert_round_trips(&place, server.port(), &format!("{verb} {AT}"), expected);
    }
}

#[test]
fn a_websocket_adds_a_round_trip() {
    let place = Place::new();
    Ca::new(&place, "ca.pem").issue(&place, "server", &["localhost"]);
    let options = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--listen", "wss://127.0.0.1:0"];
    let server = LoggedServer::start(&place, &options);
    assert_round_trips(&place, server.port(0), "get k -b wss://localhost:PORT", 4);
}

#[test]
fn tls_1_2_adds_a_round_trip() {
    let place = Place::new();
    Ca::new(&place, "ca.pem").issue(&place, "server", &["localhost"]);
    let server = Server::start(&place, &["-q"]);
    let port = tls12::proxy(&place.path("server.pem"), &place.path("server.key"), server.port());
    assert_round_trips(&place, port, &format!("get k {AT}"), 4);
    assert_round_trips(&place, port, &format!("set k v {AT}"), 5);
}

/// With TLS 1.2 this saves a round trip. With TLS 1.3 it saves signatures and certificates only, because the client sends no
/// early data.
#[test]
fn a_connection_of_the_same_process_resumes_its_tls_session() {
    let (place, _, server) = served(&[]);
    let plain = Server::start(&place, &["-q"]);
    let old = tls12::proxy(&place.path("server.pem"), &place.path("server.key"), plain.port());
    let options = TlsOptions { cafile: Some(place.path("ca.pem")), ..TlsOptions::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (port, version) in [(server.port(), "1.3"), (old, "1.2")] {
        let tls = ClientTls::load(&options).unwrap();
        let read = |port| {
            let traced = Arc::new(Mutex::new(Vec::new()));
            let sink = Arc::clone(&traced);
            let tracer = Tracer::new(true, move |event: &TraceEvent, _| {
                if let TraceEvent::Connected { tls, is_resumed, .. } = event {
                    sink.lock().unwrap().push((*tls, *is_resumed));
                }
            });
            let target = Target::Tcp { host: "localhost".to_owned(), port };
            let (tls, tracer) = (Some(tls.clone()), Some(tracer));
            let settings = Settings { tls, tracer, ..Settings::new(target, "me".to_owned()) };
            runtime.block_on(async {
                let client = Client::lazy(settings).unwrap();
                assert!(matches!(client.get(&Key::new("k").unwrap()).await, Ok(None)));
                client.close().await;
            });
            traced.lock().unwrap().clone()
        };
        assert_eq!(read(port), [(Some(version), false)]);
        let resumed = round_trips(port, 3, |port| assert_eq!(read(port), [(Some(version), true)]));
        assert_eq!(resumed, 3, "{version}");
    }
}

/// Returns the error of a certificate that no CA of this file has signed.
fn unknown_ca(cafile: &str) -> String {
    let message =
        format!("the certificate of localhost:PORT is from an unknown CA: no CA in {cafile} has signed it");
    error(&message, CA_HINT)
}

#[test]
fn a_certificate_of_an_unknown_ca_is_rejected_and_the_file_of_the_trusted_ones_is_named() {
    let (place, _, server) = served(&[]);
    Ca::new(&place, "other.pem");
    let shown = run_at_port(&place, server.port(), "get k -n localhost -p PORT -T other.pem");
    assert_eq!(shown, unknown_ca("other.pem"));
    // A CA with the same name and another key is not trusted.
    let other = Place::new();
    Ca::new(&other, "ca.pem");
    let shown = run_at_port(&other, server.port(), GET);
    assert_eq!(shown, unknown_ca("ca.pem"));
    let shown = run_at_port(&place, server.port(), "get k -n localhost -p PORT -T other.pem -j");
    assert!(shown.contains("\"kind\":\"unavailable\",\"code\":69"), "{shown}");
    let shown = run_at_port(&place, server.port(), "get k -n localhost -p PORT");
    assert!(shown.contains(" is from an unknown CA: no CA of this machine has signed it\n"), "{shown}");
}

#[test]
fn the_system_s_cas_are_trusted_by_default() {
    let (place, _, server) = served(&[]);
    let ca = place.path("ca.pem").display().to_string();
    let place = place.with_variable("SSL_CERT_FILE", &ca);
    assert_eq!(
        run_at_port(&place, server.port(), "get k -n localhost -p PORT"),
        "--- stderr\nerror: key not found: k\n--- exit 1\n"
    );
    Ca::new(&place, "other.pem");
    let shown = run_at_port(&place, server.port(), "get k -n localhost -p PORT -T other.pem");
    assert_eq!(shown, unknown_ca("other.pem"));
    let no_cas = place.with_variable("SSL_CERT_FILE", "/dev/null");
    assert_eq!(
        run_at_port(&no_cas, server.port(), "get k -n localhost -p PORT"),
        "--- stderr\nerror: this machine has no trusted CA certificates\n\
         hint: trust the CA of the broker: -T FILE\n--- exit 78\n"
    );
}

#[test]
fn an_expired_certificate_is_reported_with_the_days() {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    let hint = "renew the broker's certificate, or correct the clock of this machine";
    for (name, years, before, after) in [
        ("old", [2020, 2021], "the certificate of localhost:PORT expired ", " days ago"),
        (
            "young",
            [4000, 4096],
            "the certificate of localhost:PORT is not valid yet: it becomes valid in ",
            " days",
        ),
    ] {
        ca.issue_between(&place, name, &["localhost"], years);
        let server = serve(&place, name, &[]);
        let shown = run_at_port(&place, server.port(), GET);
        let (head, rest) = shown.split_at(before.len() + "--- stderr\nerror: ".len());
        assert_eq!(head, format!("--- stderr\nerror: {before}"));
        let tail = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        assert_ne!(tail, rest);
        assert_eq!(tail, format!("{after}\nhint: {hint}\n--- exit 69\n"));
    }
}

#[test]
fn a_certificate_for_another_name_is_reported_with_its_names() {
    let place = Place::new();
    Ca::new(&place, "ca.pem").issue(&place, "plant", &["plant.example", "*.plant.example"]);
    let server = serve(&place, "plant", &[]);
    let hint = "use a name of the certificate: -n NAME, or --server-name NAME";
    let shown = run_at_port(&place, server.port(), GET);
    let message =
        "the certificate of localhost:PORT is for plant.example and *.plant.example, not for localhost";
    assert_eq!(shown, error(message, hint));
    let shown = run_at_port(&place, server.port(), "get k -n 127.0.0.1 -p PORT -T ca.pem");
    let message =
        "the certificate of 127.0.0.1:PORT is for plant.example and *.plant.example, not for 127.0.0.1";
    assert_eq!(shown, error(message, hint));
    for name in ["plant.example", "a.plant.example"] {
        assert_eq!(
            run_at_port(&place, server.port(), &format!("{GET} --server-name {name}")),
            "--- stderr\nerror: key not found: k\n--- exit 1\n"
        );
    }
    let shown = run_at_port(&place, server.port(), &format!("{GET} --server-name a/b"));
    assert_eq!(shown, "--- stderr\nerror: invalid server name: a/b\n--- exit 2\n");
}

#[test]
fn a_self_signed_ca_certificate_is_accepted_where_exactly_this_one_is_trusted() {
    const GET: &str = "get k -p PORT --connect-timeout 30s -n";
    let place = Place::new();
    for (name, names, years) in [
        ("own", ["localhost"], [1975, 4096]),
        ("other", ["localhost"], [1975, 4096]),
        ("old", ["localhost"], [1975, 2020]),
    ] {
        Ca::self_signed(&place, name, &names, years);
    }
    let found = "--- stderr\nerror: key not found: k\n--- exit 1\n";
    let server = serve(&place, "own", &[]);
    let get = |options: &str| run_at_port(&place, server.port(), &format!("{GET} {options}"));
    assert_eq!(get("localhost -T own.pem"), found);
    let untrusted = get("localhost -T other.pem");
    let words = "the certificate of localhost:PORT is one of a CA, and not itself trusted\n";
    assert!(untrusted.contains(words) && untrusted.ends_with("--- exit 69\n"), "{untrusted}");
    assert!(untrusted.contains("hint: trust this certificate itself: -T FILE"), "{untrusted}");
    let unnamed = get("127.0.0.1 -T own.pem");
    assert!(unnamed.contains("is for localhost, not for 127.0.0.1\n"), "{unnamed}");
    let old = serve(&place, "old", &[]);
    let expired = run_at_port(&place, old.port(), &format!("{GET} localhost -T old.pem"));
    assert!(expired.contains("the certificate of localhost:PORT expired "), "{expired}");
}

#[test]
fn insecure_accepts_any_certificate_and_warns_once() {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    ca.issue_between(&place, "old", &["plant.example"], [2020, 2021]);
    let server = serve(&place, "old", &[]);
    let warning = "warning: --insecure: the broker's certificate is not verified, an attacker can read and change everything\n";
    assert_eq!(
        run_at_port(&place, server.port(), "del a b -q -n localhost -p PORT --insecure"),
        format!("--- stderr\n{warning}--- exit 1\n")
    );
    let shown = run_at_port(&place, server.port(), "del a b -j -n localhost -p PORT --insecure");
    assert!(shown.starts_with("--- stdout\n{") && !shown.contains("warning"), "{shown}");
}

#[test]
fn a_client_certificate_is_accepted_by_a_server_that_requires_one() {
    let (place, ca, server) = served(&["--client-ca", "ca.pem"]);
    ca.issue(&place, "me", &["me"]);
    assert_eq!(
        run_at_port(&place, server.port(), &format!("{GET} -C me.pem -K me.key")),
        "--- stderr\nerror: key not found: k\n--- exit 1\n"
    );
    let shown = run_at_port(&place, server.port(), GET);
    let hint = "use a client certificate: -C FILE with the certificate, -K FILE with its key";
    assert_eq!(shown, error("localhost:PORT requires a client certificate", hint));
    let shown = run_at_port(&place, server.port(), "set k v -n localhost -p PORT -T ca.pem");
    assert!(shown.contains("requires a client certificate\n  nothing was changed\n"), "{shown}");
    assert!(shown.ends_with("--- exit 69\n"), "{shown}");
}

#[test]
fn a_rejected_client_certificate_is_reported_with_the_reason() {
    let (place, ca, server) = served(&["--client-ca", "ca.pem"]);
    let hint = "use a valid certificate of a CA that the broker trusts: -C and -K";
    let refused =
        |reason: &str| error(&format!("localhost:PORT rejected the client certificate: {reason}"), hint);
    Ca::new(&place, "other.pem").issue(&place, "untrusted", &["me"]);
    let shown = run_at_port(&place, server.port(), &format!("{GET} -C untrusted.pem -K untrusted.key"));
    assert_eq!(shown, refused("unknown CA (untrusted.pem)"));
    ca.issue_between(&place, "old", &["me"], [2020, 2021]);
    let shown = run_at_port(&place, server.port(), &format!("{GET} -C old.pem -K old.key"));
    assert_eq!(shown, refused("certificate expired (old.pem)"));
}

#[test]
fn plain_mqtt_to_a_tls_port_is_reported() {
    let (place, _, server) = served(&[]);
    let shown = run_at_port(&place, server.port(), "get k -b mqtt://127.0.0.1:PORT");
    let hint = "use TLS: -b mqtts://HOST:PORT, or -n without --notls";
    assert_eq!(shown, error("127.0.0.1:PORT requires TLS", hint));
}

#[test]
fn tls_to_a_plain_port_is_reported() {
    let place = Place::new();
    Ca::new(&place, "ca.pem");
    let server = Server::start(&place, &["-q"]);
    let shown = run_at_port(&place, server.port(), GET);
    let message = "TLS handshake with localhost:PORT failed: connection closed by the other side";
    assert_eq!(shown, error(message, PORT_HINT));
}

#[test]
fn a_peer_without_tls_or_with_a_broken_handshake_is_reported() {
    let place = Place::new();
    Ca::new(&place, "ca.pem");
    let shown = run_at_port(&place, non_mqtt_server(b"HTTP/1.1 400 Bad Request\r\n\r\n"), GET);
    assert_eq!(shown, error("localhost:PORT does not speak TLS", PORT_HINT));
    let cut = "TLS handshake with localhost:PORT failed: connection closed by the other side";
    assert_eq!(run_at_port(&place, non_mqtt_server(b"\x16\x03\x03\0\x7a\x02"), GET), error(cut, PORT_HINT));
    let alert = "localhost:PORT refused the TLS handshake: handshake failure";
    let hint = "if the broker requires a client certificate: -C and -K";
    assert_eq!(run_at_port(&place, non_mqtt_server(b"\x15\x03\x03\0\x02\x02\x28"), GET), error(alert, hint));
}

#[test]
fn an_unanswered_handshake_exits_with_124() {
    let place = Place::new();
    Ca::new(&place, "ca.pem");
    // The kernel establishes connections in the listener's queue; no process answers them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let shown = run_at_port(&place, port, &format!("{GET} --connect-timeout 1s"));
    let message = "TLS handshake with localhost:PORT timed out after 1s";
    let hint = "the server is stopped or overloaded, or the port is wrong; without TLS: -b mqtt://HOST:PORT or --notls";
    assert_eq!(shown, error(message, hint).replace("exit 69", "exit 124"));
}

#[test]
fn every_failed_handshake_is_logged() {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    ca.issue(&place, "server", &["localhost"]);
    Ca::new(&place, "other.pem").issue(&place, "untrusted", &["me"]);
    let words = ["serve", "--listen", "127.0.0.1:0", "--tls-cert", "server.pem", "--tls-key", "server.key"];
    let server =
        StreamedProcess::start(&mut place.command(&[&words[..], &["--client-ca", "ca.pem"]].concat()));
    let ready = server.log_line();
    let port = ready.split([':', ' ']).nth(3).unwrap().parse().unwrap();
    assert_eq!(
        ready,
        format!(
            "listening on 127.0.0.1:{port} with TLS and client certificates, in memory, with authentication"
        )
    );
    for (line, reason) in [
        (GET, "no client certificate"),
        (
            "get k -n localhost -p PORT -T ca.pem -C untrusted.pem -K untrusted.key",
            "client certificate is from an unknown CA",
        ),
        ("get k -n localhost -p PORT -T other.pem", "client refused the TLS handshake: unknown CA"),
        ("get k -b mqtt://127.0.0.1:PORT", "client does not speak TLS"),
    ] {
        assert!(run_at_port(&place, port, line).ends_with("--- exit 69\n"));
        let event = server.log_line();
        assert!(event.starts_with("connection from 127.0.0.1:"), "{event}");
        assert!(event.ends_with(&format!(" refused: {reason}")), "{event}");
    }
    drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let event = server.log_line();
    assert!(event.ends_with(" refused: connection closed during the TLS handshake"), "{event}");
}

#[test]
fn a_client_that_ends_without_a_close_of_tls_is_logged_without_a_url() {
    let place = Place::new();
    Ca::new(&place, "ca.pem").issue(&place, "server", &["localhost"]);
    let tls = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--listen", "mqtts://127.0.0.1:0"];
    let server = LoggedServer::start(&place, &tls);
    let port = server.port(0).to_string();
    let words = ["watch", "k", "-n", "localhost", "-p", &port, "-T", "ca.pem", "-i", "c"];
    let watch = StreamedProcess::start(&mut place.command(&words));
    watch.line();
    watch.signal(Signal::SIGKILL);
    assert_eq!(
        server.log_line_with("disconnected"),
        "c disconnected: connection lost: connection closed by the other side"
    );
}

#[test]
fn a_watch_reconnects_over_tls_until_its_certificate_is_rejected() {
    let (place, ca, mut server) = served(&["--client-ca", "ca.pem"]);
    ca.issue(&place, "me", &["me"]);
    Ca::new(&place, "other.pem");
    let port = server.port().to_string();
    let identity = ["-n", "localhost", "-p", &port, "-T", "ca.pem", "-C", "me.pem", "-K", "me.key"];
    let watch = StreamedProcess::start(&mut place.command(&[&["watch", "k", "-j"], &identity[..]].concat()));
    assert!(watch.line().contains("\"event\":\"current\""));
    let again = |server: &mut Server, client_ca: &str| {
        server.kill();
        let files = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--client-ca", client_ca];
        server.start_again(&place, &[&["-q"], &files[..]].concat());
    };
    again(&mut server, "ca.pem");
    assert!(watch.line().contains("\"event\":\"gap\""));
    again(&mut server, "other.pem");
    let (_, words, code) = watch.end();
    assert_eq!(code, Some(69), "{words:?}");
    assert!(
        words.iter().any(|words| words.contains("rejected the client certificate: unknown CA")),
        "{words:?}"
    );
}
