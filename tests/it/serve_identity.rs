//! Authentication by `mqkv serve`: accepted and rejected credentials, and the reports on both sides.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread::{self, spawn};

use nix::sys::signal::Signal;

use super::common::pki::Ca;
use super::common::wire::{self, ConnectOptions, PINGREQ, Packet};
use super::common::{LoggedServer, Place, RawClient, StreamedProcess, Terminal, make_fifo};
use crate::a_watchdog::bounded;

/// The subject of every certificate of the tests.
const ME: &str = "CN=rcgen self signed cert";

/// Creates the user `ann` with a right and a wrong password, the token of `sat`, and certificates.
fn place() -> Place {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    ca.issue(&place, "server", &["localhost", "127.0.0.1"]);
    ca.issue(&place, "me", &["me"]);
    place.write("right", "p 1");
    place.write("wrong", "p 2");
    place.write("token", "tok.en\n");
    place.write("forged", "tok.em");
    place.write("tokens", "# of the line\nsat tok.en\nother tok.er\n");
    let add = ["serve", "user", "add", "users", "ann", "-q", "--password-file", "right"];
    assert_eq!(place.run_with_input(&add, b"not this\n"), "--- exit 0\n");
    place
}

const LISTS: [&str; 4] = ["--users", "users", "--sat-tokens", "tokens"];
const TLS: [&str; 6] = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--client-ca", "ca.pem"];

#[test]
fn each_listener_accepts_only_its_kinds_of_credentials() {
    let place = place();
    let credentials = [
        "",
        "-u ann --password-file right",
        "-u ann --password-file wrong",
        "-u ann",
        "--sat-file token",
        "--sat-file forged",
        "-C me.pem -K me.key",
        "-C me.pem -K me.key -u ann --password-file right",
        "-C me.pem -K me.key -u ann --password-file wrong",
        "-C me.pem -K me.key --sat-file token",
    ];
    let user = "bad user name or password (0x86)";
    let (wrong, none) =
        (format!("{user}: wrong password for the user ann"), format!("{user}: no password for the user ann"));
    let anonymous = "not authorized (0x87): no credentials";
    let forged = "not authorized (0x87): unknown token";
    let no_certificate = "no client certificate";
    let (ann_and_me, sat_and_me) = (format!("ann, {ME}"), format!("sat, {ME}"));
    let plain = |first| [first, "ann", &wrong, &none, "sat", forged].map(str::to_owned).to_vec();
    let with =
        |first, certificate: [&str; 4]| [plain(first), certificate.map(str::to_owned).to_vec()].concat();
    // A client sends no certificate that the server does not request.
    let not_requested = |first| with(first, [first, "ann", &wrong, "sat"]);
    let requested = |first| with(first, [ME, &ann_and_me, &wrong, &sat_and_me]);
    let required = with(no_certificate, [ME, &ann_and_me, &wrong, &sat_and_me]);
    let required = [vec![no_certificate.to_owned(); 6], required[6..].to_vec()].concat();
    let listeners = [
        ("mqtt://127.0.0.1:0", plain(anonymous)),
        ("mqtt://127.0.0.1:0?anonymous=yes", plain("")),
        ("ws://127.0.0.1:0/mqtt", plain(anonymous)),
        ("ws://127.0.0.1:0?anonymous=yes", plain("")),
        ("mqtts://127.0.0.1:0", required.clone()),
        ("mqtts://127.0.0.1:0?client-cert=optional", requested(anonymous)),
        ("mqtts://127.0.0.1:0?client-cert=none", not_requested(anonymous)),
        ("mqtts://127.0.0.1:0?client-cert=optional&anonymous=yes", requested("")),
        ("wss://127.0.0.1:0", required),
        ("wss://127.0.0.1:0/mqtt?client-cert=optional", requested(anonymous)),
        ("wss://127.0.0.1:0?client-cert=none&anonymous=yes", not_requested("")),
    ];
    let listen: Vec<&str> = listeners.iter().flat_map(|(url, _)| ["--listen", url]).collect();
    let server = LoggedServer::start(&place, &[&LISTS[..], &TLS, &listen].concat());
    for (number, (listener, expected)) in listeners.iter().enumerate() {
        let scheme = listener.split_once("://").unwrap().0;
        let url = format!("{scheme}://127.0.0.1:{}", server.port(number));
        for (options, expected) in credentials.iter().zip(expected) {
            let mut words: Vec<&str> = vec!["get", "k", "-b", &url, "-i", "c"];
            words.extend(options.split_whitespace());
            if scheme.ends_with('s') && scheme != "ws" {
                words.extend(["-T", "ca.pem"]);
            }
            let shown = place.run(&words);
            let log_line = server.log_line();
            if *expected == no_certificate {
                assert!(shown.ends_with("--- exit 69\n"), "{listener} {options}: {shown}");
                assert!(shown.contains("requires a client certificate"), "{listener} {options}: {shown}");
                assert_eq!(
                    log_line,
                    format!("connection from PORT refused: {no_certificate}"),
                    "{listener} {options}"
                );
            } else if expected.contains("(0x") {
                assert!(shown.ends_with("--- exit 77\n"), "{listener} {options}: {shown}");
                assert_eq!(log_line, format!("c from PORT rejected: {expected}"), "{listener} {options}");
            } else {
                assert_eq!(
                    shown, "--- stderr\nerror: key not found: k\n--- exit 1\n",
                    "{listener} {options}"
                );
                let identity = if expected.is_empty() { String::new() } else { format!(" as {expected}") };
                assert_eq!(
                    log_line,
                    format!("c connected from PORT{identity}, new session"),
                    "{listener} {options}"
                );
                assert_eq!(server.log_line(), "c disconnected: closed by the client");
            }
        }
    }
}

/// Connects and returns the reason code of the CONNACK. After a success it disconnects and waits until the server closes
/// the connection: until then a client with another identity cannot use the client id.
fn answer(port: u16, hello: ConnectOptions<'_>) -> u8 {
    let mut client = RawClient::connect(port);
    client.send(&hello.encode());
    let connack = client.receive().unwrap();
    assert_eq!(connack.name(), "CONNACK");
    if connack.body[1] == 0 {
        client.send(&wire::disconnect(0));
    }
    assert_eq!(client.receive(), None);
    connack.body[1]
}

#[test]
fn each_refusal_has_its_reason_code() {
    let place = place();
    let listen = ["--listen", "mqtt://127.0.0.1:0", "--listen", "mqtt://127.0.0.1:0?anonymous=yes"];
    let server = LoggedServer::start(&place, &[&LISTS[..], &listen].concat());
    let hello = ConnectOptions { client_id: "c", ..ConnectOptions::default() };
    let (ann, sat) = (Some("ann"), Some("K8S-SAT"));
    let (right, wrong): (Option<&[u8]>, Option<&[u8]>) = (Some(b"p 1"), Some(b"p 2"));
    let token: Option<&[u8]> = Some(b"tok.en");
    for (code, open_code, hello) in [
        (0x87, 0x00, hello),
        (0x86, 0x86, ConnectOptions { user: ann, ..hello }),
        (0x86, 0x86, ConnectOptions { user: ann, password: wrong, ..hello }),
        (0x86, 0x86, ConnectOptions { user: Some("bob"), password: right, ..hello }),
        (0x86, 0x86, ConnectOptions { user: Some(""), password: Some(b""), ..hello }),
        (0x00, 0x00, ConnectOptions { user: ann, password: right, ..hello }),
        // A password without a user name does not authenticate (MQTT 5, 3.1.2.9).
        (0x87, 0x00, ConnectOptions { password: right, ..hello }),
        (0x00, 0x00, ConnectOptions { method: sat, data: token, ..hello }),
        (0x87, 0x87, ConnectOptions { method: sat, data: Some(b"tok.eN"), ..hello }),
        (0x87, 0x87, ConnectOptions { method: sat, data: Some(b""), ..hello }),
        (0x87, 0x87, ConnectOptions { method: sat, ..hello }),
        (0x86, 0x86, ConnectOptions { method: sat, data: token, user: ann, password: right, ..hello }),
        (0x8C, 0x8C, ConnectOptions { method: Some("k8s-sat"), data: token, ..hello }),
        (0x8C, 0x8C, ConnectOptions { method: Some("SCRAM-SHA-1"), ..hello }),
        (0x82, 0x82, ConnectOptions { data: token, ..hello }),
    ] {
        assert_eq!(answer(server.port(0), hello), code, "{hello:?}");
        assert_eq!(answer(server.port(1), hello), open_code, "{hello:?}");
    }
}

#[test]
fn without_users_names_and_passwords_are_ignored() {
    let place = Place::new();
    let server = LoggedServer::start(&place, &["--listen", "127.0.0.1:0"]);
    let hello = ConnectOptions { client_id: "c", ..ConnectOptions::default() };
    assert_eq!(
        answer(server.port(0), ConnectOptions { user: Some("ann"), password: Some(b"x"), ..hello }),
        0x00
    );
    assert_eq!(server.log_line(), "c connected from PORT, new session");
    assert_eq!(
        answer(server.port(0), ConnectOptions { method: Some("K8S-SAT"), data: Some(b"x"), ..hello }),
        0x8C
    );
}

#[test]
fn client_data_is_escaped_in_the_log() {
    let place = place();
    let server = LoggedServer::start(&place, &[&LISTS[..], &["--listen", "127.0.0.1:0"]].concat());
    let hello = ConnectOptions {
        client_id: "a\x1b[2J",
        user: Some("b\nc"),
        password: Some(b"d"),
        ..ConnectOptions::default()
    };
    assert_eq!(answer(server.port(0), hello), 0x86);
    let line = "a\\u{1b}[2J from PORT rejected: bad user name or password (0x86): unknown user b\\nc";
    assert_eq!(server.log_line(), line);
}

/// Connects a client with a token.
fn with_token(port: u16, token: &[u8]) -> RawClient {
    let mut client = RawClient::connect(port);
    let hello = ConnectOptions {
        client_id: "c",
        method: Some("K8S-SAT"),
        data: Some(token),
        ..ConnectOptions::default()
    };
    client.send(&hello.encode());
    let connack = client.receive().unwrap();
    assert_eq!((connack.name(), connack.body[1]), ("CONNACK", 0));
    let method = b"\x15\0\x07K8S-SAT";
    assert!(connack.body.windows(method.len()).any(|window| window == method), "{connack:?}");
    client
}

/// Returns the reason code of the DISCONNECT that ends the connection.
fn disconnected(client: &mut RawClient) -> u8 {
    let packet = client.receive().unwrap();
    assert_eq!(packet.name(), "DISCONNECT");
    assert_eq!(client.receive(), None);
    packet.body[0]
}

#[test]
fn a_session_re_authenticates_with_a_renewed_token() {
    let place = place();
    let server = LoggedServer::start(&place, &[&LISTS[..], &["--listen", "127.0.0.1:0"]].concat());
    let mut client = with_token(server.port(0), b"tok.en\n");
    assert_eq!(server.log_line(), "c connected from PORT as sat, new session");
    place.write("tokens", "sat tok.new\nother tok.er\n");
    client.send(&[wire::auth(0x19, Some("K8S-SAT"), Some(b"tok.new")), PINGREQ.to_vec()].concat());
    let mut packets = [client.receive().unwrap(), client.receive().unwrap()];
    // Packets that are sent meanwhile do not wait for the token's verification, so the order is open.
    packets.sort_by_key(|packet| packet.first);
    let [pong, auth] = packets;
    assert_eq!(pong.name(), "PINGRESP");
    assert_eq!(auth, Packet { first: 0xF0, body: b"\0\x0A\x15\0\x07K8S-SAT".to_vec() });
    assert_eq!(server.log_line(), "c authenticated again");
    client.send(&PINGREQ);
    assert_eq!(client.receive().unwrap().name(), "PINGRESP");
    client.send(&wire::auth(0x19, Some("K8S-SAT"), Some(b"tok.en")));
    assert_eq!(disconnected(&mut client), 0x87);
    assert_eq!(server.log_line(), "c from PORT rejected: not authorized (0x87): unknown token");
    assert_eq!(server.log_line(), "c disconnected: not authorized (0x87): unknown token");
    assert_eq!(
        answer(
            server.port(0),
            ConnectOptions {
                client_id: "d",
                method: Some("K8S-SAT"),
                data: Some(b"tok.en"),
                ..ConnectOptions::default()
            }
        ),
        0x87
    );
}

#[test]
fn an_unexpected_auth_ends_the_session() {
    let place = place();
    let server = LoggedServer::start(&place, &[&LISTS[..], &["--listen", "127.0.0.1:0"]].concat());
    let good: Option<&[u8]> = Some(b"tok.en");
    let sat = Some("K8S-SAT");
    for (code, auth) in [
        (0x82, wire::auth(0x19, Some("other"), good)),
        (0x82, wire::auth(0x19, None, good)),
        (0x82, wire::auth(0x18, sat, good)),
        (0x82, wire::auth(0x00, sat, good)),
        (0x82, [wire::auth(0x19, sat, good), wire::auth(0x19, sat, good)].concat()),
        (0x81, wire::auth(0x01, sat, good)),
        (0x87, wire::auth(0x19, sat, None)),
        (0x87, wire::auth(0x19, sat, Some(b"nonsense"))),
        // The token of another identity.
        (0x87, wire::auth(0x19, sat, Some(b"tok.er"))),
    ] {
        let mut client = with_token(server.port(0), b"tok.en");
        client.send(&auth);
        assert_eq!(disconnected(&mut client), code, "{auth:02X?}");
    }
    let mut client = RawClient::connect(server.port(0));
    client.send(
        &ConnectOptions {
            client_id: "c",
            user: Some("ann"),
            password: Some(b"p 1"),
            ..ConnectOptions::default()
        }
        .encode(),
    );
    assert_eq!(client.receive().unwrap().body[1], 0);
    client.send(&wire::auth(0x19, sat, good));
    assert_eq!(disconnected(&mut client), 0x82);
}

#[test]
fn simultaneous_logins_succeed_and_delay_no_other_client() {
    let place = place();
    let server = LoggedServer::start(&place, &[&LISTS[..], &["--listen", "127.0.0.1:0"]].concat());
    let mut other = with_token(server.port(0), b"tok.en");
    let port = server.port(0);
    // Many more would last longer on a busy machine than a login may.
    let logins: Vec<_> = (0..8)
        .map(|number| {
            spawn(move || {
                let client_id = format!("c{number}");
                let (user, password) = (Some("ann"), Some(&b"p 1"[..]));
                answer(
                    port,
                    ConnectOptions { client_id: &client_id, user, password, ..ConnectOptions::default() },
                )
            })
        })
        .collect();
    other.send(&PINGREQ);
    assert_eq!(other.receive().unwrap().name(), "PINGRESP");
    for login in logins {
        assert_eq!(bounded(|| login.join()).unwrap(), 0);
    }
}

#[test]
fn users_are_added_and_removed_while_the_server_runs() {
    let place = place();
    let server = LoggedServer::start(&place, &["--users", "users", "--listen", "127.0.0.1:0"]);
    let url = format!("mqtt://bob@127.0.0.1:{}", server.port(0));
    let get = || place.run(&["get", "k", "-b", &url, "--password-file", "right"]);
    assert!(get().ends_with("--- exit 77\n"));
    let add = ["serve", "user", "add", "users", "bob"];
    assert_eq!(place.run_with_input(&add, b"p 1\nignored"), "--- stderr\nadded bob\n--- exit 0\n");
    assert_eq!(get(), "--- stderr\nerror: key not found: k\n--- exit 1\n");
    let hint = "mqkv serve user passwd FILE NAME changes the password";
    let refused = format!("--- stderr\nerror: user exists: bob\nhint: {hint}\n--- exit 1\n");
    assert_eq!(place.run_with_input(&add, b"p 2"), refused);
    assert!(get().ends_with("--- exit 1\n"), "the password is the first one");
    let passwd = ["serve", "user", "passwd", "users", "bob"];
    assert_eq!(
        place.run_with_input(&passwd, b"p 2"),
        "--- stderr\nchanged the password of bob\n--- exit 0\n"
    );
    assert!(get().ends_with("--- exit 77\n"));
    let forced = place.run_with_input(&[&add[..], &["--force"]].concat(), b"p 1");
    assert_eq!(forced, "--- stderr\nchanged the password of bob\n--- exit 0\n");
    assert!(get().ends_with("--- exit 1\n"));
    assert_eq!(place.run(&["serve", "user", "ls", "users"]), "--- stdout\nann\nbob\n--- exit 0\n");
    let remove = ["serve", "user", "rm", "users", "bob"];
    assert_eq!(place.run(&remove), "--- stderr\nremoved bob\n--- exit 0\n");
    for unknown in [&remove, &passwd] {
        assert_eq!(place.run(unknown), "--- stderr\nerror: user not found: bob\n--- exit 1\n");
    }
    let object = |fields: &str| format!("--- stdout\n{{\"v\":1,\"op\":\"user\",{fields}}}\n--- exit ");
    let shown = |words: &[&str]| place.run_with_input(&[&["-j", "serve", "user"], words].concat(), b"p 3");
    assert_eq!(shown(&["ls", "users"]), object("\"users\":[\"ann\"]") + "0\n");
    for (verb, change, code) in [
        ("add", "added", 0),
        ("add --force", "changed", 0),
        ("passwd", "changed", 0),
        ("rm", "removed", 0),
        ("rm", "unchanged", 1),
        ("passwd", "unchanged", 1),
    ] {
        let expected = object(&format!("\"user\":\"bob\",\"change\":\"{change}\""));
        let words = verb.split(' ').chain(["users", "bob"]).collect::<Vec<_>>();
        assert_eq!(shown(&words), format!("{expected}{code}\n"), "{verb}");
    }
    assert_eq!(fs::metadata(place.path("users")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn users_that_many_processes_add_at_the_same_time_are_all_added() {
    let place = Place::new();
    // What an earlier version has left when it was killed.
    place.write("users.new", "");
    std::os::unix::fs::symlink("folder/users", place.path("users")).unwrap();
    fs::create_dir(place.path("folder")).unwrap();
    let names: Vec<String> = (0..10).map(|number| format!("user{number}")).collect();
    thread::scope(|scope| {
        for name in &names {
            let add = ["serve", "user", "add", "users", name, "-q"];
            let place = &place;
            scope.spawn(move || assert_eq!(place.run_with_input(&add, b"p"), "--- exit 0\n"));
        }
    });
    let listed = place.run(&["serve", "user", "ls", "folder/users"]);
    assert!(names.iter().all(|name| listed.contains(&format!("{name}\n"))), "{listed}");
    assert_eq!(fs::read_dir(place.path("folder")).unwrap().count(), 1);
}

#[test]
fn a_typed_password_is_hidden_and_confirmed() {
    let place = Place::new();
    let add = ["serve", "user", "add", "users", "ann"];
    for (second, words) in [("other", "the passwords differ; nothing was changed"), ("secret", "added ann")] {
        let terminal = Terminal::start(place.command(&add));
        terminal.shows("Password for ann:");
        terminal.secret("secret");
        terminal.shows("Repeat the password:");
        terminal.secret(second);
        terminal.shows(words);
        assert!(!terminal.screen().contains("secret"), "{}", terminal.screen());
        assert_eq!(place.path("users").exists(), second == "secret");
    }
}

#[test]
fn invalid_files_are_reported_with_their_line() {
    let place = Place::new();
    place.write("users", "# a\nann:secret\n");
    place.write("tokens", "sat\n");
    place.write("empty", "");
    let serve = |option: &str, file: &str| place.run(&["serve", "--listen", "127.0.0.1:0", option, file]);
    let error = |words: &str, code: u8| format!("--- stderr\nerror: {words}\n--- exit {code}\n");
    assert_eq!(serve("--users", "users"), error("line 2 of users has no hash in the PHC format", 78));
    assert_eq!(serve("--sat-tokens", "tokens"), error("line 1 of tokens is not NAME TOKEN", 78));
    assert_eq!(serve("--sat-tokens", "empty"), error("empty is empty", 78));
    assert_eq!(serve("--users", "empty"), error("empty is empty", 78));
    place.write("wide", "a b".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
    assert_eq!(serve("--sat-tokens", "wide"), error("wide is encoded in UTF-16LE; UTF-8 is required", 78));
    let gone = error("cannot read gone: No such file or directory (os error 2)", 74);
    assert_eq!(serve("--users", "gone"), gone);
    assert_eq!(serve("--sat-tokens", "gone"), gone);
    let name =
        "invalid user name: it starts with #, starts or ends with white space, or has control characters";
    let filed = ["serve", "user", "add", "fresh", "bob", "--password-file"];
    place.write("empty", "\nsecond line");
    let from = |file: &str| place.run_with_input(&[&filed[..], &[file]].concat(), b"not this");
    assert_eq!(from("empty"), "--- stderr\nerror: empty contains no password\n--- exit 2\n");
    let missing =
        "--- stderr\nerror: cannot read missing: No such file or directory (os error 2)\n--- exit 74\n";
    assert_eq!(from("missing"), missing);
    let unnamed = ["serve", "user", "add", "fresh", "bob "];
    assert_eq!(place.run_with_input(&unnamed, b"x"), error(name, 2));
    let add = ["serve", "user", "add", "users", "bob"];
    let nonsense = error("line 2 of users has no hash in the PHC format", 78);
    assert_eq!(place.run_with_input(&add, b"x"), nonsense);
    let fresh = ["serve", "user", "add", "fresh", "bob"];
    assert_eq!(place.run_with_input(&fresh, b""), error("standard input contains no password", 2));
}

#[test]
fn a_file_readable_by_others_causes_a_warning() {
    let place = place();
    let secrets = ["users", "tokens", "server.key"];
    for file in secrets {
        fs::set_permissions(place.path(file), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let options = [&["serve", "--listen", "127.0.0.1:0"], &LISTS[..], &TLS[..]].concat();
    let server = StreamedProcess::start(&mut place.command(&options));
    for file in secrets {
        let words = "contains a secret, and other users can access it (mode 0644)";
        assert_eq!(server.log_line(), format!("warning: {file} {words}: chmod 600 {file}"));
    }
    assert!(server.log_line().starts_with("listening on "));
}

#[test]
fn a_password_file_readable_by_others_causes_a_warning_unless_quiet_or_json() {
    let place = Place::new();
    place.write("password", "x");
    fs::set_permissions(place.path("password"), fs::Permissions::from_mode(0o644)).unwrap();
    let add = ["serve", "user", "add", "users", "ann", "--force", "--password-file", "password"];
    let shown = |option| place.run(&[&add[..], option].concat());
    assert!(shown(&[]).starts_with("--- stderr\nwarning: password contains a secret, and other users"));
    assert_eq!(shown(&["-q"]), "--- exit 0\n");
    assert!(!shown(&["-j"]).contains("--- stderr"), "{}", shown(&["-j"]));
}

/// Connects a user with a password; returns the client.
fn with_password<'a>(port: u16, client_id: &'a str, user: &'a str, password: &'a [u8]) -> RawClient {
    let mut client = RawClient::connect(port);
    let password = Some(password);
    let hello = ConnectOptions { client_id, user: Some(user), password, ..ConnectOptions::default() };
    client.send(&hello.encode());
    assert_eq!(client.receive().unwrap().body[1], 0, "{user}");
    client
}

#[test]
fn a_hangup_disconnects_removed_users_changed_passwords_and_removed_tokens_only() {
    let place = place();
    let add = |user: &str, password: &[u8]| {
        let add = ["serve", "user", "add", "users", user, "-q", "--force"];
        let shown = place.run_with_input(&add, password);
        assert_eq!(shown, "--- exit 0\n");
    };
    add("bob", b"p b");
    add("eve", b"p e");
    let server = LoggedServer::start(&place, &[&LISTS[..], &["--listen", "127.0.0.1:0"]].concat());
    let port = server.port(0);
    let mut ann = with_password(port, "a", "ann", b"p 1");
    let mut bob = with_password(port, "b", "bob", b"p b");
    let mut eve = with_password(port, "e", "eve", b"p e");
    let mut sat = with_token(port, b"tok.en");
    assert_eq!(place.run(&["serve", "user", "rm", "users", "bob"]), "--- stderr\nremoved bob\n--- exit 0\n");
    add("eve", b"p 2");
    place.write("tokens", "sat tok.new\nother tok.er\n");
    // A login reads the files, too, and disconnects no other client.
    drop(with_password(port, "e2", "eve", b"p 2"));
    for client in [&mut ann, &mut bob, &mut eve, &mut sat] {
        client.send(&PINGREQ);
        assert_eq!(client.receive().unwrap().name(), "PINGRESP");
    }
    server.signal(Signal::SIGHUP);
    for client in [&mut bob, &mut eve, &mut sat] {
        assert_eq!(disconnected(client), 0x87);
    }
    assert_eq!(server.log_line_with("reloaded"), "users and tokens reloaded, connections closed: 3");
    ann.send(&PINGREQ);
    assert_eq!(ann.receive().unwrap().name(), "PINGRESP");
    let hello = ConnectOptions { client_id: "b", user: Some("bob"), ..ConnectOptions::default() };
    assert_eq!(answer(port, ConnectOptions { password: Some(b"p b"), ..hello }), 0x86);
}

#[test]
fn a_renewed_token_outlives_the_one_that_the_client_has_connected_with() {
    let place = place();
    let server = LoggedServer::start(&place, &[&LISTS[..], &["--listen", "127.0.0.1:0"]].concat());
    let mut client = with_token(server.port(0), b"tok.en");
    place.write("tokens", "sat tok.en\nsat tok.new\n");
    client.send(&wire::auth(0x19, Some("K8S-SAT"), Some(b"tok.new")));
    assert_eq!(client.receive().unwrap().name(), "AUTH");
    place.write("tokens", "sat tok.new\n");
    server.signal(Signal::SIGHUP);
    assert_eq!(server.log_line_with("reloaded"), "users and tokens reloaded, connections closed: 0");
    place.write("tokens", "other tok.er\n");
    server.signal(Signal::SIGHUP);
    assert_eq!(disconnected(&mut client), 0x87);
    let line = server.log_line_with("c disconnected");
    assert_eq!(line, "c disconnected: not authorized (0x87): the password or token is no longer valid");
}

#[test]
fn a_pipe_in_the_place_of_the_users_delays_no_login_and_no_reload() {
    let place = place();
    let server = LoggedServer::start(&place, &[&LISTS[..], &["--listen", "127.0.0.1:0"]].concat());
    fs::remove_file(place.path("users")).unwrap();
    make_fifo(&place.path("users"));
    let mut ann = with_password(server.port(0), "a", "ann", b"p 1");
    let line = "cannot read users: not a regular file; its last valid content stays in force";
    assert_eq!(server.log_line_with("in force"), line);
    server.signal(Signal::SIGHUP);
    let line =
        "cannot read users: not a regular file; the last valid content stays in force, connections closed: 0";
    assert_eq!(server.log_line_with("connections closed"), line);
    ann.send(&PINGREQ);
    assert_eq!(ann.receive().unwrap().name(), "PINGRESP");
}

#[test]
fn many_failed_logins_of_one_user_are_refused_and_lock_no_other_user_out() {
    let place = place();
    let options = ["--login-failures-max", "6", "--listen", "127.0.0.1:0"];
    let server = LoggedServer::start(&place, &[&LISTS[..], &options].concat());
    let port = server.port(0);
    let attempt = |number: usize| {
        let (client_id, user, password) = (format!("c{number}"), Some("eve"), Some(&b"wrong"[..]));
        answer(port, ConnectOptions { client_id: &client_id, user, password, ..ConnectOptions::default() })
    };
    let codes: Vec<u8> = (0..5).map(attempt).collect();
    assert_eq!(codes, [0x86, 0x86, 0x86, 0x9F, 0x9F]);
    let line = "c3 from PORT rejected: connection rate exceeded (0x9F): too many failed logins, the last one for the \
                user eve";
    assert_eq!(server.log_line_with("c3"), line);
    let mut ann = with_password(port, "a", "ann", b"p 1");
    ann.send(&PINGREQ);
    assert_eq!(ann.receive().unwrap().name(), "PINGRESP");
}

#[test]
fn a_session_belongs_to_the_subject_and_the_issuer_of_a_certificate() {
    let place = place();
    let other = Ca::new(&place, "other.pem");
    other.issue(&place, "it", &["me"]);
    let both = [fs::read(place.path("ca.pem")).unwrap(), fs::read(place.path("other.pem")).unwrap()].concat();
    place.write("both.pem", both);
    let tls = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--client-ca", "both.pem"];
    let server = LoggedServer::start(&place, &[&tls[..], &["--listen", "mqtts://127.0.0.1:0"]].concat());
    let url = format!("mqtts://127.0.0.1:{}", server.port(0));
    let words = |verb: &[&str], certificate: &str| {
        let options = format!("-b {url} -T ca.pem -i c -C {certificate}.pem -K {certificate}.key");
        verb.iter().copied().chain(options.split(' ')).map(str::to_owned).collect::<Vec<_>>()
    };
    let run = |verb: &[&str], certificate: &str| {
        let words = words(verb, certificate);
        place.run(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let watch = words(&["watch", "k"], "me");
    let watch =
        StreamedProcess::start(&mut place.command(&watch.iter().map(String::as_str).collect::<Vec<_>>()));
    assert!(watch.line().contains("\tk"), "the watch reports the missing key");
    let shown = run(&["get", "k"], "it");
    assert!(shown.ends_with("--- exit 77\n"), "{shown}");
    let line = server.log_line_with("rejected");
    assert!(line.ends_with("another user is connected with this client id"), "{line}");
}

#[test]
fn a_file_that_becomes_invalid_is_reported_once_and_at_each_reload_and_changes_nothing() {
    let place = place();
    let server = LoggedServer::start(&place, &[&LISTS[..], &["--listen", "127.0.0.1:0"]].concat());
    place.write("tokens", "nonsense\n");
    drop(with_token(server.port(0), b"tok.en"));
    assert_eq!(
        server.log_line(),
        "line 1 of tokens is not NAME TOKEN; its last valid content stays in force"
    );
    assert_eq!(server.log_line(), "c connected from PORT as sat, new session");
    assert!(server.log_line().starts_with("c disconnected: "));
    drop(with_token(server.port(0), b"tok.en"));
    assert_eq!(server.log_line(), "c connected from PORT as sat, new session");
    assert!(server.log_line().starts_with("c disconnected: "));
    place.write("tokens", "");
    server.signal(Signal::SIGHUP);
    let line = "tokens is empty; the last valid content stays in force, connections closed: 0";
    assert_eq!(server.log_line(), line);
    drop(with_token(server.port(0), b"tok.en"));
    assert_eq!(server.log_line(), "c connected from PORT as sat, new session");
}
