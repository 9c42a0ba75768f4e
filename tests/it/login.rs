//! Credentials: sources of a password, rejections of a broker, and redaction of secrets.

use super::common::bounded::bounded_transcript;
use super::common::fake_broker::{FakeBroker, FakeBrokers};
use super::common::{Place, Relay, Server, Terminal, make_fifo, wire};

pub const SECRET: &str = "hunter2-and-more";

/// A broker that rejects every connection with this reason code and counts them.
pub fn rejecting(reason: u8) -> FakeBrokers {
    FakeBrokers::start(move |_, connection| {
        connection.expect("CONNECT");
        connection.send(&wire::connack(reason, &[]));
        connection.listen();
    })
}

#[test]
fn every_connack_reason_code_has_an_exit_code_a_name_and_a_hint() {
    const LOGIN: &str = "check the user name (-u) and the password (--password-file or --ask-password)";
    const IDENTITY: &str =
        "authenticate with -u NAME and --password-file FILE, with --sat-file FILE, or with -C and -K";
    const METHOD: &str =
        "use an authentication method that the broker supports: -u with --password-file, or -C and -K";
    const MQTT_5: &str = "connect to a broker with MQTT 5: Azure IoT Operations, or `mqkv serve`";
    let place = Place::new();
    for (reason, name, code, hint) in [
        (0x80, "unspecified error", 69, ""),
        (0x81, "malformed packet", 69, ""),
        (0x82, "protocol error", 69, ""),
        (0x83, "implementation specific error", 69, ""),
        (0x84, "unsupported protocol version", 69, MQTT_5),
        (0x85, "client identifier not valid", 69, "use another client id: -i ID"),
        (0x86, "bad user name or password", 77, LOGIN),
        (0x87, "not authorized", 77, IDENTITY),
        (0x88, "server unavailable", 69, "try again later, or use --retries N"),
        (0x89, "server busy", 69, "try again later, or use --retries N"),
        (0x8A, "banned", 77, IDENTITY),
        (0x8C, "bad authentication method", 77, METHOD),
        (0x95, "packet too large", 69, ""),
        (
            0x97,
            "quota exceeded",
            69,
            "close other connections of this client, or raise the limits of the broker",
        ),
        (0x9C, "use another server", 69, ""),
        (0x9D, "server moved", 69, ""),
        (0x9F, "connection rate exceeded", 69, "try again later, or use --retries N"),
    ] {
        let broker = rejecting(reason);
        let hint = if hint.is_empty() { String::new() } else { format!("hint: {hint}\n") };
        assert_eq!(
            place.run_at(&broker.url(), &["get", "k"]),
            format!(
                "--- stderr\nerror: BROKER rejected the connection: {name} (0x{reason:02X})\n{hint}--- exit {code}\n"
            )
        );
        // A code that may be about the early packets leads to an attempt without them.
        let attempts = if matches!(reason, 0x80..=0x83 | 0x95 | 0x97) { 2 } else { 1 };
        assert_eq!(broker.count(), attempts, "{name}");
    }
}

#[test]
fn a_wrong_password_exits_with_77_at_once_and_is_not_retried() {
    let place = Place::new();
    place.write("password", SECRET);
    for reason in [0x86, 0x87, 0x8A, 0x8C] {
        let broker = rejecting(reason);
        let words = ["set", "k", "v", "-u", "ann", "--password-file", "password", "--retries", "5"];
        let shown = place.run_at(&broker.url(), &words);
        assert!(shown.contains("\n  nothing was changed\n") && shown.ends_with("--- exit 77\n"), "{shown}");
        assert_eq!(broker.count(), 1);
    }
    let broker = rejecting(0x86);
    let shown = place.run_at(&broker.url(), &["watch", "k", "-j", "-u", "ann", "--retries", "5"]);
    assert_eq!(
        shown,
        "--- stderr\n{\"v\":1,\"error\":{\"kind\":\"authorization\",\"code\":77,\"message\":\"BROKER rejected the \
         connection: bad user name or password (0x86)\",\"hints\":[\"check \
         the user name (-u) and the password (--password-file or --ask-password)\"],\"retryable\":false}}\n--- exit 77\n"
    );
    assert_eq!(broker.count(), 1);
}

#[test]
fn the_server_accepts_a_correct_password_and_a_wrong_one_is_not_retried() {
    let place = Place::new();
    place.write("right", SECRET);
    place.write("wrong", "guess");
    let add = ["serve", "user", "add", "users", "ann", "-q"];
    assert_eq!(place.run_with_input(&add, SECRET.as_bytes()), "--- exit 0\n");
    let server = Server::start(&place, &["-q", "--users", "users"]);
    let words = |file| ["get", "k", "-u", "ann", "--password-file", file, "--retries", "5"];
    assert_eq!(
        place.run_at(&server.url(), &words("right")),
        "--- stderr\nerror: key not found: k\n--- exit 1\n"
    );
    let relay = Relay::start(server.port());
    assert_eq!(
        place.run_at(&relay.url(), &words("wrong")),
        "--- stderr\nerror: BROKER rejected the connection: bad user name or password (0x86): unknown user \
         name or wrong password\n\
         hint: check the user name (-u) and the password (--password-file or --ask-password)\n--- exit 77\n"
    );
    assert_eq!(relay.connections(), 1);
}

/// A broker that records the CONNECT and has no key.
pub fn recording() -> FakeBroker<wire::Connect> {
    FakeBroker::start(|connection| {
        let connect = connection.accept_connect();
        connection.subscribe(1);
        let request = connection.request();
        connection.answer(&request, "$-1\r\n", &[]);
        connection.listen();
        connect
    })
}

pub fn password(username: &str, password: &[u8]) -> (Option<String>, Option<Vec<u8>>) {
    (Some(username.to_owned()), Some(password.to_vec()))
}

#[test]
fn a_password_is_the_first_line_of_a_file_or_of_standard_input() {
    let place = Place::new();
    for (bytes, sent) in [
        (&b"pw"[..], &b"pw"[..]),
        (b"pw\n", b"pw"),
        (b" p w \r\nsecond\n", b" p w "),
        (b"\xff\x00\n", b"\xff\x00"),
    ] {
        place.write("password", bytes);
        let broker = recording();
        let words = ["get", "k", "-u", "ann", "--password-file", "password"];
        assert_eq!(place.run_at(&broker.url(), &words), "--- stderr\nerror: key not found: k\n--- exit 1\n");
        let connect = broker.end();
        assert_eq!((connect.username, connect.password), password("ann", sent));
        assert_eq!((connect.method, connect.data), (None, None));
        let broker = recording();
        let url = broker.url().replace("mqtt://", "mqtt://ann@");
        assert_eq!(
            place.run_at_with_input(&url, &["get", "k", "--password-file", "-"], bytes),
            "--- stderr\nerror: key not found: k\n--- exit 1\n"
        );
        let connect = broker.end();
        assert_eq!((connect.username, connect.password), password("ann", sent));
    }
    let broker = recording();
    assert_eq!(
        place.run_at(&broker.url(), &["get", "k", "-u", "ann"]),
        "--- stderr\nerror: key not found: k\n--- exit 1\n"
    );
    let connect = broker.end();
    assert_eq!((connect.username.as_deref(), connect.password), (Some("ann"), None));
}

#[test]
fn standard_input_cannot_be_both_the_password_and_the_value() {
    let place = Place::new();
    for (line, instead) in [
        ("set k - -u ann --password-file -", "-f FILE"),
        ("vdel k - -u ann --password-file -", "-f FILE"),
        ("batch - -u a --password-file -", "the name of a file in place of -"),
    ] {
        // Standard input has no data and no end.
        let mut command = place.command(&line.split(' ').collect::<Vec<_>>());
        let (held, end) = std::io::pipe().unwrap();
        command.stdin(held);
        assert_eq!(
            bounded_transcript(&mut command),
            format!(
                "--- stderr\nerror: standard input cannot be read from here\nhint: {instead}\n--- exit 2\n"
            ),
            "{line}"
        );
        drop(end);
    }
    let shown = place.run_bounded(&["get", "k", "-u", "ann", "--password-file", "-"]);
    assert_eq!(shown, "--- stderr\nerror: standard input contains no password\n--- exit 2\n");
    let words = ["get", "k", "-u", "ann", "--password-file", "-"];
    let shown = place.run_at_with_input("mqtt://127.0.0.1:1", &words, &[b'p'; 65_536]);
    let error = "standard input has more than 65535 bytes, the limit for a password";
    assert_eq!(shown, format!("--- stderr\nerror: {error}\n--- exit 2\n"));
}

#[test]
fn a_file_without_a_secret_is_reported_by_name_before_any_connection() {
    let place = Place::new();
    place.write("empty", "");
    place.write("blank", "\nsecond");
    place.write("long", vec![b'x'; 65_536]);
    std::fs::create_dir(place.path("folder")).unwrap();
    let broker = rejecting(0x87);
    let hint = "hint: use a file with the secret: --password-file or --sat-file\n";
    for (file, message, code) in [
        ("gone", "cannot read gone: no such file or directory", 74),
        ("folder", "cannot read folder: is a directory", 74),
        ("empty", "empty is empty", 78),
        ("long", "long is too long for a secret: more than 65535 bytes", 78),
    ] {
        let expected = format!("--- stderr\nerror: {message}\n{hint}--- exit {code}\n");
        for option in [&["--sat-file", file][..], &["-u", "ann", "--password-file", file]] {
            // An unusable file is not a reason to retry.
            let words = [&["get", "k", "--retries", "3"], option].concat();
            assert_eq!(place.run_at(&broker.url(), &words), expected);
        }
    }
    let shown = place.run_at(&broker.url(), &["get", "k", "-u", "ann", "--password-file", "blank"]);
    assert_eq!(shown, format!("--- stderr\nerror: blank is empty\n{hint}--- exit 78\n"));
    assert_eq!(broker.count(), 0);
}

#[test]
fn reading_a_secret_from_a_silent_pipe_ends_at_the_connect_timeout() {
    let place = Place::new();
    make_fifo(&place.path("fifo"));
    for line in [
        "get k --sat-file fifo --connect-timeout 100ms",
        "get k -u ann --password-file fifo --connect-timeout 100ms",
        "watch k --sat-file fifo --connect-timeout 100ms",
    ] {
        assert_eq!(
            place.run_bounded(&line.split(' ').collect::<Vec<_>>()),
            "--- stderr\nerror: cannot read fifo: timed out after 100ms\n\
             hint: use a file with the secret: --password-file or --sat-file\n--- exit 74\n"
        );
    }
}

#[test]
fn no_secret_is_printed() {
    let place = Place::new();
    place.write("secret", format!("{SECRET}\n"));
    for option in [&["-u", "ann", "--password-file", "secret"][..], &["--sat-file", "secret"]] {
        for reason in [0x00, 0x86, 0x8C] {
            for trace in ["--trace", "--trace=trace"] {
                for format in ["-v", "-j"] {
                    let broker = FakeBrokers::start(move |_, connection| {
                        connection.expect("CONNECT");
                        connection.send(&wire::connack(reason, &[]));
                        // The broker sends the secret back.
                        connection.send(&wire::auth(0x18, Some("K8S-SAT"), Some(SECRET.as_bytes())));
                        connection.listen();
                    });
                    let words = [&["get", "k", trace, format], option].concat();
                    let shown = place.run_at(&broker.url(), &words);
                    assert!(shown.contains("error") && !shown.contains("hunter2"), "{words:?}: {shown}");
                }
            }
        }
    }
    let trace = std::fs::read_to_string(place.path("trace")).unwrap();
    assert!(trace.contains("password=<redacted>") && trace.contains("data=<17 bytes redacted>"), "{trace}");
    assert!(trace.contains("\"password\":\"<redacted>\"") && !trace.contains("hunter2"), "{trace}");
}

#[test]
fn the_prompt_does_not_print_its_password() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    place.write("secret", SECRET);
    let url = server.url();
    let words = ["shell", "-b", &url, "-u", "ann", "--password-file", "secret", "--trace=trace"];
    let mut terminal = Terminal::start(place.command(&words));
    terminal.shows("connected to");
    for line in ["\\conninfo", "\\c", "set k v", "\\trace off"] {
        terminal.line(line);
    }
    let screen = terminal.shows("trace is off");
    assert!(screen.contains("session open for") && !screen.contains("hunter2"), "{screen}");
    terminal.press_ctrl_d();
    assert_eq!(terminal.end(), Some(0));
    let trace = std::fs::read_to_string(place.path("trace")).unwrap();
    assert_eq!(trace.matches("password=<redacted>").count(), 2, "{trace}");
    assert!(!trace.contains("hunter2"), "{trace}");
}
