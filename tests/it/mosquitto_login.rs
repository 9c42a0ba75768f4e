//! Authentication with Debian's Mosquitto in each way that it supports, with a minimal store as its client.

use std::collections::HashMap;
use std::net::TcpStream;
use std::process::Command;
use std::thread::spawn;

use super::common::fake_broker::{Connection, answer};
use super::common::pki::Ca;
use super::common::wire::{self, Publish};
use super::common::{Place, Relay};
use super::mosquitto::{KilledOnDrop, mosquitto_at};
use crate::a_watchdog::bounded;

const REQUESTS: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";
const PASSWORD: &str = "hunter2-and-more";

/// Mosquitto with a store connected to one listener, and a second listener with the given configuration.
struct MosquittoWithStore {
    _broker: KilledOnDrop,
    port: u16,
}

impl MosquittoWithStore {
    fn start(place: &Place, listener: &str) -> Self {
        let (broker, [store_port, port]) = mosquitto_at(place, |[store_port, port]| {
            format!(
                "per_listener_settings true\nlistener {store_port} 127.0.0.1\nallow_anonymous true\n\
                 listener {port} 127.0.0.1\n{listener}"
            )
        });
        let mut store = Connection::new(TcpStream::connect(("127.0.0.1", store_port)).unwrap());
        store.send(&wire::connect("store"));
        store.expect("CONNACK");
        store.send(&wire::subscribe(1, REQUESTS));
        store.expect("SUBACK");
        spawn(move || respond(&mut store));
        Self { _broker: broker, port }
    }

    fn url(&self, scheme: &str) -> String {
        format!("{scheme}://127.0.0.1:{}", self.port)
    }
}

/// Answers GET and SET from a map until the broker exits.
fn respond(store: &mut Connection) {
    let mut values = HashMap::new();
    while let Some(packet) = store.next() {
        if packet.name() != "PUBLISH" {
            continue;
        }
        let request = Publish::decode(&packet);
        let payload = String::from_utf8(request.payload.clone()).unwrap();
        let words: Vec<&str> = payload.split("\r\n").skip(2).step_by(2).collect();
        let reply = match words[..] {
            ["SET", key, value, ..] => {
                values.insert(key.to_owned(), value.to_owned());
                "+OK\r\n".to_owned()
            }
            ["GET", key, ..] => match values.get(key) {
                Some(value) => format!("${}\r\n{value}\r\n", value.len()),
                None => "$-1\r\n".to_owned(),
            },
            _ => "-ERR unknown command\r\n".to_owned(),
        };
        let now = format!("{:015}:00000:StateStore", mqkv::clock::wall_ms());
        store.send(&wire::puback(request.packet_id, 0));
        store.send(&answer(&request, &reply, &[("__ts", &now)]).encode());
    }
}

/// Writes and reads a value with these options.
#[track_caller]
fn works(place: &Place, url: &str, options: &str) {
    let run = |line: &str| place.run_at(url, &line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(run(&format!("set k v {options}")), "--- exit 0\n", "{options}");
    assert_eq!(run(&format!("get k {options}")), "--- stdout\nv(no line feed)\n--- exit 0\n", "{options}");
}

#[track_caller]
fn fails(place: &Place, url: &str, options: &str, message: &str, hint: &str, code: u8) {
    let line = format!("get k {options}");
    assert_eq!(
        place.run_at(url, &line.split_whitespace().collect::<Vec<_>>()),
        format!("--- stderr\nerror: {message}\nhint: {hint}\n--- exit {code}\n"),
        "{options}"
    );
}

/// Creates a CA and certificates of server and client; returns the configuration of a TLS listener.
fn with_tls(place: &Place, more: &str) -> String {
    let ca = Ca::new(place, "ca.pem");
    ca.issue(place, "server", &["127.0.0.1"]);
    ca.issue(place, "me", &["me"]);
    let file = |name: &str| place.path(name).display().to_string();
    format!(
        "cafile {}\ncertfile {}\nkeyfile {}\n{more}",
        file("ca.pem"),
        file("server.pem"),
        file("server.key")
    )
}

/// Creates the user `ann`; returns the configuration of a listener that requires a password.
fn with_password(place: &Place) -> String {
    let file = place.path("users");
    let made = bounded(|| {
        Command::new("mosquitto_passwd").args(["-b", "-c"]).arg(&file).args(["ann", PASSWORD]).output()
    });
    assert!(made.unwrap().status.success());
    place.write("right", format!("{PASSWORD}\n"));
    place.write("wrong", "guess\n");
    format!("allow_anonymous false\npassword_file {}\n", file.display())
}

const ANONYMOUS_HINT: &str =
    "authenticate with -u NAME and --password-file FILE, with --sat-file FILE, or with -C and -K";

fn hint_for(user: &str) -> String {
    format!("check the credentials, and whether the rules of the broker allow user {user} to connect")
}

const REJECTED: &str = "BROKER rejected the connection: not authorized (0x87)";

#[test]
#[ignore = "needs Debian's mosquitto"]
fn an_anonymous_client_is_accepted_and_a_token_is_rejected() {
    let place = Place::new();
    let broker = MosquittoWithStore::start(&place, "allow_anonymous true\n");
    works(&place, &broker.url("mqtt"), "");
    place.write("token", "t");
    fails(
        &place,
        &broker.url("mqtt"),
        "--sat-file token",
        "BROKER rejected the connection: bad authentication method (0x8C)",
        "use an authentication method that the broker supports: -u with --password-file, or -C and -K",
        77,
    );
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn tls_and_client_certificates_are_verified() {
    let place = Place::new();
    let listener = with_tls(&place, "allow_anonymous true\n");
    let broker = MosquittoWithStore::start(&place, &listener);
    works(&place, &broker.url("mqtts"), "-T ca.pem");
    let place = Place::new();
    let listener =
        with_tls(&place, "allow_anonymous true\nrequire_certificate true\nuse_identity_as_username true\n");
    Ca::new(&place, "other.pem").issue(&place, "untrusted", &["me"]);
    let broker = MosquittoWithStore::start(&place, &listener);
    let url = broker.url("mqtts");
    works(&place, &url, "-T ca.pem -C me.pem -K me.key");
    let hint = "use a client certificate: -C FILE with the certificate, -K FILE with its key";
    fails(&place, &url, "-T ca.pem", "BROKER requires a client certificate", hint, 69);
    let options = "-T ca.pem -C untrusted.pem -K untrusted.key";
    let hint = "use a valid certificate of a CA that the broker trusts: -C and -K";
    fails(
        &place,
        &url,
        options,
        "BROKER rejected the client certificate: unknown CA (untrusted.pem)",
        hint,
        69,
    );
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn only_the_right_password_is_accepted() {
    let place = Place::new();
    let listener = with_password(&place);
    let broker = MosquittoWithStore::start(&place, &listener);
    works(&place, &broker.url("mqtt"), "-u ann --password-file right");
    for (wrong, hint) in [
        ("-u ann --password-file wrong", hint_for("ann")),
        ("-u bob --password-file right", hint_for("bob")),
        ("-u ann", hint_for("ann")),
        ("", ANONYMOUS_HINT.to_owned()),
    ] {
        let relay = Relay::start(broker.port);
        fails(&place, &relay.url(), &format!("{wrong} --retries 5"), REJECTED, &hint, 77);
        assert_eq!(relay.connections(), 1, "{wrong}");
    }
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn a_password_is_accepted_over_tls_with_and_without_a_client_certificate() {
    for more in ["", "require_certificate true\n"] {
        let place = Place::new();
        let users = with_password(&place);
        let listener = with_tls(&place, &format!("{users}{more}"));
        let broker = MosquittoWithStore::start(&place, &listener);
        let identity = if more.is_empty() { "" } else { "-C me.pem -K me.key" };
        let tls = format!("-T ca.pem {identity}");
        works(&place, &broker.url("mqtts"), &format!("{tls} -u ann --password-file right"));
        fails(
            &place,
            &broker.url("mqtts"),
            &format!("{tls} -u ann --password-file wrong"),
            REJECTED,
            &hint_for("ann"),
            77,
        );
    }
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn a_monitor_whose_password_was_changed_exits_with_77() {
    let place = Place::new();
    let listener = with_password(&place);
    let broker = MosquittoWithStore::start(&place, &listener);
    let relay = Relay::start(broker.port);
    let words =
        ["monitor", "-b", &relay.url(), "-u", "ann", "--password-file", "right", "-j", "--keep-alive", "1s"];
    let monitor = super::common::StreamedProcess::start(&mut place.command(&words));
    assert!(monitor.line().contains("\"event\":\"listening\""));
    place.write("right", "changed\n");
    relay.cut();
    assert!(monitor.error_line().contains("\"event\":\"lost\""));
    relay.restore();
    let (_, words, code) = monitor.end();
    assert_eq!(code, Some(77), "{words:?}");
    assert!(words.last().unwrap().contains("rejected the connection: not authorized (0x87)"), "{words:?}");
}
