//! The server: its data after a kill, its users, TLS, the commands that it starts.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::a_watchdog::bounded;
use crate::place::{Place, Running, is_open, wait_for};

#[test]
fn acknowledged_writes_are_there_after_a_kill_and_a_restart() {
    let place = Place::new();
    for round in 0..3 {
        let mut server = place.serve(&["--data", "state"]);
        let lines: String = (0..200).map(|n| format!("set {round}/{n} {n}\n")).collect();
        let ran = place.run_with_input(&["-b", &server.broker, "batch", "-"], lines.as_bytes());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        server.child.0.kill().unwrap();
        server.child.code();
    }
    let server = place.serve(&["--data", "state"]);
    let keys = place.output(&["-b", &server.broker, "keys"]);
    assert_eq!(keys.lines().count(), 600);
    let other = place.run(&["serve", "--listen", "127.0.0.1:0", "--data", "state"]);
    assert_eq!(other.code, Some(74), "{other:?}");
    let copied = place.run(&["data", "copy", "state", "copied"]);
    assert_eq!(copied.code, Some(0), "{copied:?}");
    drop(server);
    for folder in ["state", "copied"] {
        let verified = place.run(&["data", "verify", folder]);
        assert_eq!(verified.code, Some(0), "{verified:?}");
        assert_eq!(place.output(&[&format!("--embedded={folder}"), "get", "2/199"]), "199");
    }
}

#[test]
fn a_store_in_a_folder_needs_no_server() {
    let place = Place::new();
    place.output(&["--embedded=state", "set", "k", "v"]);
    assert_eq!(place.output(&["--embedded=state", "get", "k"]), "v");
}

#[test]
fn the_command_of_a_server_has_its_store_and_ends_it() {
    let place = Place::new();
    place.write("seed.jsonl", "{\"key\":\"k\",\"value\":\"seeded\"}\r\n");
    let mqkv = place.mqkv();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--seed", "seed.jsonl", "--exec", "--"];
    let ran = place.run(&[&serve[..], &[&mqkv, "get", "k"]].concat());
    assert_eq!((ran.code, ran.stdout.trim_end()), (Some(0), "seeded"), "{ran:?}");
    let ran = place.run(&[&serve[..], &[&mqkv, "get", "other"]].concat());
    assert_eq!(ran.code, Some(1), "{ran:?}");
}

#[test]
fn a_connection_with_tls_is_verified() {
    let place = Place::new();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    place.write("ca.pem", params.self_signed(&ca_key).unwrap().pem());
    let ca = Issuer::new(params, ca_key);
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &ca).unwrap();
    place.write("server.pem", certificate.pem());
    place.write("server.key", key.serialize_pem());
    let server = place.serve(&["--tls-cert", "server.pem", "--tls-key", "server.key"]);
    let broker = format!("mqtts://127.0.0.1:{}", server.port);
    place.output(&["-b", &broker, "-T", "ca.pem", "set", "k", "v"]);
    assert_eq!(place.output(&["-b", &broker, "-T", "ca.pem", "get", "k"]), "v");
    let distrusted = place.run(&["-b", &broker, "get", "k"]);
    assert_eq!(distrusted.code, Some(69), "{distrusted:?}");
}

#[test]
fn a_user_has_a_password_in_a_file() {
    let place = Place::new();
    place.write("password", "secret\r\n");
    let added = place.run(&["serve", "user", "add", "users", "anna", "--password-file", "password"]);
    assert_eq!(added.code, Some(0), "{added:?}");
    let server = place.serve(&["--users", "users"]);
    let with = ["-b", &server.broker, "-u", "anna", "--password-file", "password"];
    place.output(&[&with[..], &["set", "k", "v"]].concat());
    assert_eq!(place.run(&["-b", &server.broker, "get", "k"]).code, Some(77));
}

#[test]
fn the_status_page_is_served() {
    let place = Place::new();
    let mut command = place.command(&["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let mut server = Running(command.stdout(Stdio::null()).spawn().unwrap());
    let (mut log, mut line) = (BufReader::new(server.0.stderr.take().unwrap()), String::new());
    let address = loop {
        assert!(bounded(|| log.read_line(&mut line)).unwrap() > 0, "{line}");
        if let Some((_, url)) = line.split_once("status page: http://") {
            break url.trim().trim_end_matches('/').to_owned();
        }
    };
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    bounded(|| stream.read_to_string(&mut answer)).unwrap();
    assert!(answer.contains(" 200 "), "{answer}");
}

#[test]
fn an_exchange_carries_changes_between_two_stores() {
    let place = Place::new();
    const RULE: &str = "[[rule]]\nkeys = [\"**\"]\nchange = \"leaves\"\n";
    let exchange = "exchange = \"plant\"\n";
    place.write(
        "root.toml",
        format!("{exchange}node = \"root\"\nrole = \"root\"\nadmit = [\"press-*\"]\n{RULE}"),
    );
    let root = place.serve(&["--data", "root", "--exchange", "root.toml"]);
    let leaf = format!("{exchange}node = \"press-7\"\nrole = \"leaf\"\nroot = \"{}\"\n", root.broker);
    place.write("leaf.toml", leaf);
    let leaf = place.serve(&["--data", "leaf", "--exchange", "leaf.toml"]);
    place.output(&["-b", &leaf.broker, "exchange", "status", "--wait", "30s", "-q"]);
    place.output(&["-b", &leaf.broker, "set", "k", "v"]);
    wait_for(|| (place.run(&["-b", &root.broker, "get", "k"]).stdout.trim_end() == "v").then_some(()));
}

#[test]
fn a_terminated_server_frees_its_port_and_folder() {
    let place = Place::new();
    let mut server = place.serve(&["--data", "state"]);
    server.child.0.kill().unwrap();
    server.child.code();
    wait_for(|| (!is_open(server.port)).then_some(()));
    assert!(fs::exists(place.path("state")).unwrap());
}
