//! `serve --listen`: several listeners of several kinds, and contradicting options.

use std::fs;

use nix::sys::signal::Signal;

use super::common::pki::Ca;
use super::common::{LoggedServer, Place, Process, Server, make_fifo, wait_until};

#[test]
fn several_listeners_share_one_store() {
    let place = Place::new();
    Ca::new(&place, "ca.pem").issue(&place, "server", &["127.0.0.1"]);
    let server = LoggedServer::start(
        &place,
        &[
            "--listen",
            "mqtt://127.0.0.1:0",
            "--listen",
            "127.0.0.1:0",
            "--listen",
            "ws://127.0.0.1:0/store",
            "--listen",
            "wss://127.0.0.1:0",
            "--tls-cert",
            "server.pem",
            "--tls-key",
            "server.key",
            "--port-file",
            "port",
        ],
    );
    assert_eq!(
        server.ready(),
        "listening on mqtt://127.0.0.1:PORT and mqtts://127.0.0.1:PORT and ws://127.0.0.1:PORT/store and \
         wss://127.0.0.1:PORT, in memory"
    );
    assert_eq!(fs::read_to_string(place.path("port")).unwrap(), format!("{}\n", server.port(0)));
    let [mqtt, mqtts, ws, wss] = [0, 1, 2, 3].map(|number| format!("127.0.0.1:{}", server.port(number)));
    let set = ["set", "k", "v"];
    assert_eq!(place.run_at(&format!("mqtt://{mqtt}"), &set), "--- exit 0\n");
    let get = |url: String, options: &[&str]| place.bytes_at(&url, &[&["get", "k"], options].concat());
    assert_eq!(get(format!("mqtts://{mqtts}"), &["-T", "ca.pem"]), b"v");
    assert_eq!(get(format!("ws://{ws}/store"), &[]), b"v");
    assert_eq!(get(format!("wss://{wss}/anywhere"), &["-T", "ca.pem"]), b"v");
}

#[test]
fn the_port_file_exists_while_the_server_listens() {
    let place = Place::new();
    let mut server = Server::start(&place, &["-q"]);
    server.kill();
    let port = fs::read_to_string(place.path("port")).unwrap();
    // One that does not start leaves the file of another one, which may run.
    place.write("seed", "no JSON");
    place.run_bounded(&["serve", "--listen", "127.0.0.1:0", "--port-file", "port", "--seed", "seed"]);
    assert_eq!(fs::read_to_string(place.path("port")).unwrap(), port);
    // While one starts, there is none.
    make_fifo(&place.path("pipe"));
    let words = ["serve", "--listen", "127.0.0.1:0", "--port-file", "port", "--seed", "pipe"];
    let mut starting = Process::start(place.command(&words));
    wait_until("the file is gone", || (!place.path("port").exists()).then_some(()));
    starting.signal(Signal::SIGTERM);
    starting.end();
    let mut server = Server::start(&place, &["-q"]);
    server.signal(Signal::SIGTERM);
    assert_eq!(server.end(), Some(0));
    assert!(!place.path("port").exists() && !place.path("port.new").exists());
}

#[test]
fn listeners_of_one_kind_are_printed_as_addresses() {
    let place = Place::new();
    let server = LoggedServer::start(&place, &["--listen", "127.0.0.1:0", "--listen", "mqtt://127.0.0.1:0"]);
    assert_eq!(server.ready(), "listening on 127.0.0.1:PORT and 127.0.0.1:PORT, in memory");
}

#[test]
fn listeners_that_contradict_other_options_are_usage_errors() {
    let place = Place::new();
    Ca::new(&place, "ca.pem").issue(&place, "server", &["127.0.0.1"]);
    let tls = "--tls-cert server.pem --tls-key server.key";
    for (options, message, hint) in [
        (
            "--listen mqtts://h:1",
            "mqtts://: TLS requires a certificate and its key",
            "--tls-cert FILE --tls-key FILE",
        ),
        (
            "--listen wss://h:1/a",
            "wss://: TLS requires a certificate and its key",
            "--tls-cert FILE --tls-key FILE",
        ),
        (
            "--listen ws://h:1?anonymous=no",
            "ws://: no client can authenticate: there are no users, tokens or certificates",
            "--users FILE, --sat-tokens FILE, or --client-ca FILE",
        ),
        (
            &format!("{tls} --listen mqtts://h:1?client-cert=optional"),
            "mqtts://: client certificates require a CA to verify them",
            "--client-ca FILE",
        ),
        (
            &format!("{tls} --listen mqtt://h:1"),
            "--tls-cert has no effect: no --listen uses TLS",
            "--listen mqtts://HOST:PORT",
        ),
    ] {
        let words: Vec<&str> = ["serve"].into_iter().chain(options.split_whitespace()).collect();
        let shown = place.run_bounded(&words);
        assert_eq!(shown, format!("--- stderr\nerror: {message}\nhint: {hint}\n--- exit 2\n"), "{options}");
    }
    for listen in ["65536", "http://h:1", "mqtt://h:1/a", "mqtt://h:1?tls=yes", "ws://h:1/a b"] {
        let shown = place.run_bounded(&["serve", "--listen", listen]);
        assert!(shown.ends_with("--- exit 2\n"), "{listen}: {shown}");
    }
    let both = place.run_bounded(&["serve", "--users", "users", "user", "ls", "users"]);
    assert!(both.ends_with("--- exit 2\n"), "{both}");
}
