//! Re-authentication of long sessions with a service account token whose file changes.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use nix::sys::signal::Signal;

use super::common::fake_broker::{Connection, FakeBrokers};
use super::common::wire::{self, Packet, Publish};
use super::common::{ENTER, Place, Server, StreamedProcess, Terminal, make_fifo};

const METHOD: &str = "K8S-SAT";

/// Replaces a file atomically, as Kubernetes does.
fn swap(place: &Place, name: &str, token: &str) {
    place.write("beside", token);
    fs::rename(place.path("beside"), place.path(name)).unwrap();
}

/// A broker that accepts tokens with the reason code of `admit`, has the value `v` for every key, and reports the
/// tokens and requests that it receives; `on_auth` handles an AUTH.
struct Kubernetes {
    broker: FakeBrokers,
    received: Receiver<Received>,
}

#[derive(Debug, PartialEq, Eq)]
enum Received {
    Token(Vec<u8>),
    Auth(Vec<u8>),
    /// The verb of a request, or `PINGREQ`.
    Request(String),
}

impl Kubernetes {
    fn start(
        admit: impl Fn(usize) -> u8 + Send + Sync + 'static,
        on_auth: impl Fn(usize, &mut Connection) + Send + Sync + 'static,
    ) -> Self {
        let (sender, received) = channel();
        let sender = Arc::new(Mutex::new(sender));
        let broker = FakeBrokers::start(move |number, connection| {
            // The receiver is dropped when the test ends.
            let report = |packet| drop(sender.lock().unwrap().send(packet));
            let connect = wire::Connect::decode(&connection.expect("CONNECT"));
            assert_eq!((connect.method.as_deref(), connect.username), (Some(METHOD), None));
            report(Received::Token(connect.data.unwrap()));
            connection.send(&wire::connack(admit(number), &[]));
            while let Some(packet) = connection.next() {
                match packet.name() {
                    "SUBSCRIBE" => connection.send(&wire::suback(packet.packet_id(), 1)),
                    "PUBLISH" => {
                        let request = Publish::decode(&packet);
                        let words = String::from_utf8_lossy(&request.payload).into_owned();
                        let verb = words.split("\r\n").nth(2).unwrap().to_owned();
                        let payload = match verb.as_str() {
                            "GET" => "$1\r\nv\r\n",
                            "VDEL" | "DEL" => ":1\r\n",
                            _ => "+OK\r\n",
                        };
                        let now = format!("{:015}:00000:StateStore", mqkv::clock::wall_ms());
                        connection.answer(&request, payload, &[("__ts", &now)]);
                        report(Received::Request(verb));
                    }
                    "AUTH" => {
                        report(Received::Auth(packet.encode()));
                        on_auth(number, connection);
                    }
                    "PINGREQ" => {
                        connection.send(&[0xD0, 0]);
                        report(Received::Request("PINGREQ".to_owned()));
                    }
                    _ => {}
                }
            }
        });
        Self { broker, received }
    }

    /// Returns the next token in a CONNECT or AUTH and skips requests.
    fn next(&self) -> Received {
        loop {
            match self.received.recv_timeout(std::time::Duration::from_secs(60)).unwrap() {
                Received::Request(_) => {}
                packet => return packet,
            }
        }
    }

    /// Waits for a request with this verb, or for `PINGREQ`; panics if a token comes first.
    fn wait_for(&self, verb: &str) {
        loop {
            match self.received.recv_timeout(std::time::Duration::from_secs(60)).unwrap() {
                Received::Request(received) if received == verb => return,
                Received::Request(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

fn token(bytes: &str) -> Received {
    Received::Token(bytes.into())
}

fn auth(bytes: &str) -> Received {
    Received::Auth(wire::auth(0x19, Some(METHOD), Some(bytes.as_bytes())))
}

/// AUTH with reason code success, in its long and in its shortest encoding.
const AUTH_SUCCESS: [&[u8]; 2] = [&[0xF0, 0x02, 0x00, 0x00], &[0xF0, 0x00]];

fn watch(place: &Place, broker: &Kubernetes, options: &[&str]) -> StreamedProcess {
    let words = ["watch", "k", "-j", "--sat-file", "token", "--trace"];
    let watch = StreamedProcess::start(
        &mut place.command(&[&words[..], &["-b", &broker.broker.url()], options].concat()),
    );
    assert!(watch.line().contains("\"event\":\"current\""));
    watch
}

/// Waits for a line of the trace that contains `text`.
fn traced(watch: &StreamedProcess, text: &str) {
    while !watch.error_line().contains(text) {}
}

#[test]
fn a_changed_token_is_sent_unmodified_and_the_session_continues() {
    for success in AUTH_SUCCESS {
        let place = Place::new();
        place.write("token", " first\n");
        let broker = Kubernetes::start(|_| 0, move |_, connection| connection.send(success));
        let watch = watch(&place, &broker, &[]);
        assert_eq!(broker.next(), token(" first\n"));
        for bytes in [" second \r\n\0", "third"] {
            swap(&place, "token", bytes);
            assert_eq!(broker.next(), auth(bytes));
            traced(&watch, "\"packet\":\"AUTH\",\"reason\":\"success\"");
        }
        watch.signal(Signal::SIGTERM);
        let (_, words, code) = watch.end();
        assert_eq!(code, Some(143));
        assert!(!words.iter().any(|line| line.contains("\"trace\":\"lost\"")), "{words:?}");
        assert_eq!(broker.broker.count(), 1);
    }
}

#[test]
fn a_token_file_that_is_missing_or_empty_for_a_moment_is_awaited() {
    let in_place: [fn(&Path); 4] = [
        |_| {},
        |path| fs::write(path, "").unwrap(),
        |path| fs::create_dir(path).unwrap(),
        // Opening it blocks for ever.
        |path| make_fifo(path),
    ];
    let check = |in_place: fn(&Path)| {
        let place = Place::new();
        place.write("token", "first");
        let broker = Kubernetes::start(|_| 0, |_, connection| connection.send(AUTH_SUCCESS[0]));
        let _watch = watch(&place, &broker, &["--keep-alive", "1s"]);
        assert_eq!(broker.next(), token("first"));
        let path = place.path("token");
        fs::remove_file(&path).unwrap();
        in_place(&path);
        // The client pings and checks the file once a second.
        for _ in 0..2 {
            broker.wait_for("PINGREQ");
        }
        if path.is_dir() {
            fs::remove_dir(&path).unwrap();
        }
        swap(&place, "token", "second");
        assert_eq!(broker.next(), auth("second"));
        assert_eq!(broker.broker.count(), 1);
    };
    std::thread::scope(|scope| {
        for in_place in in_place {
            scope.spawn(move || check(in_place));
        }
    });
}

#[test]
fn a_rejected_token_reconnects_with_the_newest_one() {
    let place = Place::new();
    place.write("token", "first");
    let broker = Kubernetes::start(|_| 0, |_, connection| connection.send(&wire::disconnect(0x87)));
    let watch = watch(&place, &broker, &[]);
    assert_eq!(broker.next(), token("first"));
    swap(&place, "token", "second");
    assert_eq!(broker.next(), auth("second"));
    assert_eq!(broker.next(), token("second"));
    assert!(watch.line().contains("\"event\":\"gap\""));
    traced(&watch, "\"packet\":\"DISCONNECT\",\"reason\":\"not authorized (0x87)\"");
}

#[test]
fn a_permanently_rejected_token_ends_the_session_with_77() {
    let place = Place::new();
    place.write("token", "first");
    let admit = |number| if number == 1 { 0 } else { 0x87 };
    let broker = Kubernetes::start(admit, |_, connection| connection.send(&wire::disconnect(0x8C)));
    let watch = watch(&place, &broker, &[]);
    swap(&place, "token", "second");
    let (_, words, code) = watch.end();
    assert_eq!(code, Some(77), "{words:?}");
    let contains = |text: &str| words.iter().any(|line| line.contains(text));
    assert!(contains("the broker ended the connection: bad authentication method (0x8C)"), "{words:?}");
    assert!(contains("rejected the connection: not authorized (0x87)"), "{words:?}");
    assert_eq!(broker.broker.count(), 2);
}

#[test]
fn a_broker_that_continues_the_authentication_is_disconnected() {
    let place = Place::new();
    place.write("token", "first");
    let broker = Kubernetes::start(
        |_| 0,
        |_, connection| connection.send(&wire::auth(0x18, Some(METHOD), Some(b"more"))),
    );
    let watch = watch(&place, &broker, &[]);
    assert_eq!(broker.next(), token("first"));
    swap(&place, "token", "second");
    assert_eq!(broker.next(), auth("second"));
    assert_eq!(broker.next(), token("second"));
    traced(&watch, "unexpected authentication step");
}

#[test]
fn a_broker_that_ignores_a_token_is_traced_and_gets_the_next_one() {
    let place = Place::new();
    place.write("token", "first");
    let broker = Kubernetes::start(|_| 0, |_, _| {});
    let watch = watch(&place, &broker, &["-t", "1s"]);
    assert_eq!(broker.next(), token("first"));
    for bytes in ["second", "third"] {
        swap(&place, "token", bytes);
        assert_eq!(broker.next(), auth(bytes));
        traced(&watch, "\"trace\":\"token-unanswered\"");
    }
    assert_eq!(broker.broker.count(), 1);
}

#[test]
fn a_reconnect_without_a_token_is_repeated_until_there_is_one() {
    let place = Place::new();
    place.write("token", "first");
    let token_path = place.path("token");
    // The file is removed before the broker ends the connection.
    let broker = Kubernetes::start(
        |_| 0,
        move |_, connection| {
            fs::remove_file(&token_path).unwrap();
            connection.send(&wire::disconnect(0x98));
        },
    );
    let watch = watch(&place, &broker, &[]);
    assert_eq!(broker.next(), token("first"));
    swap(&place, "token", "second");
    assert_eq!(broker.next(), auth("second"));
    for _ in 0..2 {
        traced(&watch, "cannot read token: no such file or directory");
    }
    swap(&place, "token", "third");
    assert_eq!(broker.next(), token("third"));
    assert!(watch.line().contains("\"event\":\"gap\""));
}

#[test]
fn a_held_lock_re_authenticates() {
    let place = Place::new();
    place.write("token", "first");
    let broker = Kubernetes::start(|_| 0, |_, connection| connection.send(AUTH_SUCCESS[0]));
    let url = broker.broker.url();
    let lock = StreamedProcess::start(
        place
            .command(&["lock", "k", "--ttl", "1h", "--sat-file", "token", "-b", &url])
            .stdin(std::process::Stdio::piped()),
    );
    assert_eq!(broker.next(), token("first"));
    lock.line();
    swap(&place, "token", "second");
    assert_eq!(broker.next(), auth("second"));
    lock.signal(Signal::SIGTERM);
    broker.wait_for("VDEL");
    assert_eq!(lock.end().2, Some(143));
}

#[test]
fn the_prompt_re_authenticates() {
    let place = Place::new();
    place.write("token", "first");
    let broker = Kubernetes::start(|_| 0, |_, connection| connection.send(AUTH_SUCCESS[0]));
    let words = ["shell", "--sat-file", "token", "-b", &broker.broker.url()];
    let terminal = Terminal::start(place.command(&words));
    terminal.shows("connected to");
    assert_eq!(broker.next(), token("first"));
    swap(&place, "token", "second");
    assert_eq!(broker.next(), auth("second"));
    terminal.keys(&format!("get k{ENTER}"));
    terminal.shows("\nv\n");
    assert_eq!(broker.broker.count(), 1);
}

/// Returns a JSON Web Token with these claims, and one that is `expires_in_s` seconds from its end.
fn jwt(subject: &str, audience: &str, expires_in_s: i64) -> String {
    use base64::Engine;
    let part = |text: &str| base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(text);
    let now_s = i64::try_from(mqkv::clock::wall_ms() / 1000).unwrap();
    let (from, to) = (now_s - 24 * 3600, now_s + expires_in_s);
    let claims =
        format!(r#"{{"sub":"{subject}","aud":["{audience}"],"iat":{from},"nbf":{from},"exp":{to}}}"#);
    format!("{}.{}.{}", part(r#"{"alg":"RS256"}"#), part(&claims), part("signature"))
}

const ACCOUNT: &str = "system:serviceaccount:plant:client";

#[test]
fn the_error_of_a_rejected_token_shows_what_the_token_states_and_never_the_token() {
    let place = Place::new();
    let broker = Kubernetes::start(|_| 0x87, |_, _| {});
    let run = |token: &str| {
        place.write("token", token);
        let shown = place.run_at(&broker.broker.url(), &["get", "k", "--sat-file", "token"]);
        assert!(shown.ends_with("--- exit 77\n") && !shown.contains(token), "{shown}");
        let hints: Vec<_> = shown.lines().filter_map(|line| line.strip_prefix("hint: ")).collect();
        hints.iter().map(|hint| (*hint).to_owned()).collect::<Vec<_>>()
    };
    let expired = run(&jwt(ACCOUNT, "aio-internal", -3 * 3600 - 60));
    assert!(expired[0].starts_with("the token in token expired 3 h ago (20"), "{expired:?}");
    assert!(expired[0].ends_with("Z): get another one, or correct the clock") && expired.len() == 1);
    let other = run(&jwt(ACCOUNT, "https://kubernetes.default.svc", 23 * 3600 + 60));
    assert_eq!(
        other,
        [
            "check whether the broker accepts the account plant/client: the token in token is valid for 23 h more",
            "the token in token is for the audience https://kubernetes.default.svc; the broker of Azure IoT Operations \
             requires aio-internal",
        ]
    );
    let hostile = run(&jwt("\\u001b[2J", "aio-internal", 23 * 3600 + 60));
    assert!(hostile[0].contains("the account \\x1B[2J"), "{hostile:?}");
    assert_eq!(
        run("opaque"),
        ["token contains no JSON Web Token (JWT), as Kubernetes issues them: check the file of --sat-file"]
    );
}

#[test]
fn doctor_shows_account_audience_and_expiry_of_the_token() {
    let place = Place::new();
    let [long, late] = [23 * 3600 + 60, 300].map(|left_s| jwt(ACCOUNT, "aio-internal", left_s));
    place.write("tokens", format!("pod {long}\npod {late}\npod opaque\n"));
    let server = Server::start(&place, &["-q", "--sat-tokens", "tokens"]);
    let run = |token: &str, options: &[&str]| {
        place.write("token", token);
        let words = [&["doctor", "--read-only", "--sat-file", "token"], options].concat();
        let shown = place.run_at(&server.url(), &words);
        assert!(shown.ends_with("--- exit 0\n") && (token == "opaque" || !shown.contains(token)), "{shown}");
        shown
    };
    let check = |shown: &str| shown.lines().find(|line| line.contains("\ttoken\t")).unwrap().to_owned();
    let shown = check(&run(&long, &[]));
    assert!(shown.starts_with("ok\t"), "{shown}");
    assert!(shown.ends_with("\tplant/client; for the audience aio-internal; expires in 23 h"), "{shown}");
    let shown = run(&late, &[]);
    assert!(check(&shown).contains("\tthe token expires in "), "{shown}");
    assert!(check(&shown).starts_with("warn\t"), "{shown}");
    assert!(shown.contains("hint: get another token: kubectl create token "), "{shown}");
    assert!(check(&run("opaque", &[])).ends_with("\tnot a JSON Web Token (JWT)"));
    let shown = run(&long, &["-j"]);
    let json = shown.lines().find(|line| line.contains("\"check\":\"token\"")).unwrap();
    for member in [
        r#""subject":"system:serviceaccount:plant:client""#,
        r#""audiences":["aio-internal"]"#,
        r#""expires":"20"#,
    ] {
        assert!(json.contains(member), "{json}");
    }
}

#[test]
fn a_single_request_sends_its_token_once_unmodified() {
    let place = Place::new();
    place.write("token", " t\n");
    let broker = Kubernetes::start(|_| 0, |_, _| {});
    let shown = place.run_at(&broker.broker.url(), &["get", "k", "--sat-file", "token"]);
    assert_eq!(shown, "--- stdout\nv(no line feed)\n--- exit 0\n");
    assert_eq!(broker.next(), token(" t\n"));
    assert!(broker.received.try_iter().all(|packet| matches!(packet, Received::Request(_))));
}

#[test]
fn serve_accepts_a_new_token_within_a_session_and_rejects_a_forged_one() {
    let place = Place::new();
    place.write("tokens", "pod first\npod second\n");
    place.write("token", "first");
    let server = Server::start(&place, &["-q", "--sat-tokens", "tokens"]);
    let url = server.url();
    let words = ["watch", "k", "-j", "--sat-file", "token", "--trace", "-b", &url];
    let watch = StreamedProcess::start(&mut place.command(&words));
    assert!(watch.line().contains("\"event\":\"current\""));
    swap(&place, "token", "second");
    traced(&watch, "\"packet\":\"AUTH\",\"reason\":\"success\"");
    assert_eq!(place.run_at(&url, &["set", "k", "v", "--sat-file", "token"]), "--- exit 0\n");
    // There is no gap because the connection is the same.
    assert!(watch.line().contains("\"event\":\"set\""));
    swap(&place, "token", "forged");
    let (lines, words, code) = watch.end();
    assert_eq!((lines, code), (Vec::new(), Some(77)), "{words:?}");
    assert!(words.last().unwrap().contains("rejected the connection: not authorized (0x87)"), "{words:?}");
}

#[test]
fn an_auth_packet_is_encoded_as_the_standard_requires() {
    // MQTT 5, 3.15: the reason code, the length of the properties, method (0x15) and data (0x16).
    let bytes = wire::auth(0x19, Some("K8S-SAT"), Some(b"t\n"));
    let expected = b"\xF0\x11\x19\x0F\x15\x00\x07K8S-SAT\x16\x00\x02t\n";
    assert_eq!(bytes, expected);
    assert_eq!(Packet::split(&bytes).unwrap().0.name(), "AUTH");
}
