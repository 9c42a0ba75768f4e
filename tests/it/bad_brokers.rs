//! Brokers that misbehave: messages, JSON errors and exit codes.
//!
//! A run that need not wait for a timeout gets timeouts of an hour and must end within half a minute.

use super::common::Place;
use super::common::fake_broker::{Connection, FakeBroker, FakeBrokers};
use super::common::wire;

const AN_HOUR: &[&str] = &["--timeout", "1h", "--connect-timeout", "1h"];
const UNKNOWN: &str = "  the write may or may not have happened\n";
const UNCHANGED: &str = "  nothing was changed\n";

/// Runs a line against a broker that runs a script with each connection and then reads until the client has disconnected.
#[track_caller]
fn run(line: &str, script: impl Fn(&mut Connection) + Clone + Send + 'static) -> String {
    let serve = move |connection: &mut Connection| {
        script(connection);
        connection.listen();
    };
    let fake = FakeBroker::start_and_continue(serve.clone(), serve);
    let words: Vec<&str> = line.split_whitespace().collect();
    let timeouts = if line.contains("timeout") { &[][..] } else { AN_HOUR };
    let shown = Place::new().run_at(&fake.url(), &[timeouts, &words].concat());
    fake.end();
    shown
}

fn error(message: &str, more: &str, code: u8) -> String {
    format!("--- stderr\nerror: {message}\n{more}--- exit {code}\n")
}

fn hint(hint: &str) -> String {
    format!("hint: {hint}\n")
}

const ANSWERS: [&str; 2] = ["mqkv doctor", "increase --timeout"];
const VERSION_HINT: &str = "connect to a broker with MQTT 5: Azure IoT Operations, or `mqkv serve`";
const LOGIN_HINT: &str = "check the user name (-u) and the password (--password-file or --ask-password)";
const IDENTITY_HINT: &str =
    "authenticate with -u NAME and --password-file FILE, with --sat-file FILE, or with -C and -K";
const SUBSCRIBE_HINT: &str =
    "the rules of the broker must allow this user (-u) or client id (-i) to subscribe to that topic";
const PUBLISH_HINT: &str = "the rules of the broker must allow this user (-u) or client id (-i) to publish to \
                            statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke, and to receive the response \
                            on clients/CLIENT-ID/services/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke/response";

#[test]
fn an_unauthorized_client_exits_with_77_and_a_busy_broker_with_69() {
    let reject = |line: &str, reason| {
        run(line, move |connection| {
            connection.expect("CONNECT");
            connection.send(&wire::connack(reason, &[]));
        })
    };
    assert_eq!(
        reject("set k v", 0x87),
        error(
            "BROKER rejected the connection: not authorized (0x87)",
            &format!("{UNCHANGED}{}", hint(IDENTITY_HINT)),
            77
        )
    );
    assert_eq!(
        reject("get k", 0x86),
        error("BROKER rejected the connection: bad user name or password (0x86)", &hint(LOGIN_HINT), 77)
    );
    let later = "try again later, or use --retries N";
    assert_eq!(
        reject("get k", 0x89),
        error("BROKER rejected the connection: server busy (0x89)", &hint(later), 69)
    );
    assert_eq!(
        reject("set k v -j", 0x89),
        "--- stderr\n{\"v\":1,\"error\":{\"kind\":\"unavailable\",\"code\":69,\"message\":\
         \"BROKER rejected the connection: server busy (0x89)\",\
         \"hints\":[\"try again later, or use --retries N\"],\"outcome\":\"unchanged\",\"retryable\":true}}\n\
         --- exit 69\n"
    );
}

#[test]
fn the_reason_string_of_the_broker_is_printed_with_control_characters_escaped() {
    let shown = run("get k", |connection| {
        connection.expect("CONNECT");
        let words = b"come back\x1b[2J";
        let mut properties = vec![0x1F, 0, u8::try_from(words.len()).unwrap()];
        properties.extend_from_slice(words);
        connection.send(&wire::connack(0x89, &properties));
    });
    let message = "BROKER rejected the connection: server busy (0x89): come back\\u{1b}[2J";
    assert_eq!(shown, error(message, &hint("try again later, or use --retries N"), 69));
}

#[test]
fn a_peer_that_does_not_speak_mqtt_is_recognized_by_its_first_bytes() {
    let answered = |words: &'static [u8], line: &str| {
        run(line, move |connection| {
            connection.expect("CONNECT");
            connection.send(words);
        })
    };
    let port = hint("check the port: 1883 is the default for MQTT without TLS");
    let not_mqtt = |cause: &str, outcome: &str| {
        error(&format!("BROKER does not speak MQTT 5: {cause}"), &format!("{outcome}{port}"), 76)
    };
    // As MQTT, these bytes would be the beginnings of long packets.
    assert_eq!(
        answered(b"HTTP/1.1 400 Bad Request\r\n\r\n", "get k"),
        not_mqtt("received HTTP/1.1 400 Bad Request\\r\\n\\r\\n", "")
    );
    assert_eq!(
        answered(b"SSH-2.0-OpenSSH\r\n", "set k v"),
        not_mqtt("received SSH-2.0-OpenSSH\\r\\n", UNCHANGED)
    );
    assert_eq!(
        answered(b"\x15\x03\x03\0\x02\x02\x50", "set k v"),
        error(
            "BROKER requires TLS",
            &format!("{UNCHANGED}{}", hint("use TLS: -b mqtts://HOST:PORT, or -n without --notls")),
            69
        )
    );
    let suback = answered(&[0x90, 4, 0, 1, 0, 0], "get k");
    assert_eq!(suback, not_mqtt("received \\x90\\x04\\x00\\x01\\x00\\x00", ""));
    assert_eq!(answered(b"\x20\x02\0\x01", "get k"), old_version(""));
    assert_eq!(answered(b"\x20\x02\0\x01", "set k v"), old_version(UNCHANGED));
    let long = answered(&[0xFF; 5000], "get k");
    assert_eq!(long, not_mqtt(&format!("received {}", "\\xff".repeat(32)), ""));
    for garbage in
        [&b"\x20\0"[..], b"\x20\x03\0\0\x05", b"\x20\x03\0\xEE\0", b"\xE0\x02\0\0", b"\xF0\x02\0\0"]
    {
        let shown = answered(garbage, "get k");
        assert!(
            shown.starts_with("--- stderr\nerror: BROKER does not speak MQTT 5: "),
            "{garbage:?}: {shown}"
        );
        assert!(shown.ends_with(&format!("{port}--- exit 76\n")), "{garbage:?}: {shown}");
    }
}

/// The error at a broker without MQTT 5.
fn old_version(outcome: &str) -> String {
    let message = "BROKER does not speak MQTT 5: the broker supports older versions only";
    error(message, &format!("{outcome}{}", hint(VERSION_HINT)), 76)
}

#[test]
fn a_broker_that_rejects_the_version_of_a_connect_is_named_with_what_to_use() {
    let shown = run("get k", |connection| {
        connection.expect("CONNECT");
        connection.send(&wire::connack(0x84, &[]));
    });
    let message = "BROKER rejected the connection: unsupported protocol version (0x84)";
    assert_eq!(shown, error(message, &hint(VERSION_HINT), 69));
}

#[test]
fn a_broker_that_names_another_server_is_rejected_with_its_name() {
    let shown = run("get k", |connection| {
        connection.expect("CONNECT");
        connection.send(&wire::connack(0x9D, b"\x1c\0\x06b:1883"));
    });
    let message = "BROKER rejected the connection: server moved (0x9D): b:1883";
    let more = hint("connect to the server that the broker names: -b mqtt://HOST:PORT");
    assert_eq!(shown, error(message, &more, 69));
    let shown = run("set k v", |connection| {
        connection.serve();
        connection.send(b"\xe0\x0b\x9c\x09\x1c\0\x06b:1883");
    });
    let message = "the broker ended the connection: use another server (0x9C): b:1883";
    assert!(shown.contains(message), "{shown}");
}

#[test]
fn a_session_after_a_clean_start_ends_the_connection() {
    let shown = run("set k v", |connection| {
        connection.expect("CONNECT");
        connection.send(&[0x20, 3, 1, 0, 0]);
    });
    let message = "BROKER does not speak MQTT 5: its CONNACK has a session after a clean start";
    let more = hint("check the port: 1883 is the default for MQTT without TLS");
    assert_eq!(shown, error(message, &format!("{UNCHANGED}{more}"), 76));
}

#[test]
fn a_broker_that_announces_maximum_qos_0_is_refused_and_gets_no_request() {
    let connack = |connection: &mut Connection| {
        connection.expect("CONNECT");
        connection.send(&wire::connack(0, b"\x24\0"));
    };
    let message = "BROKER supports only QoS 0, but requests to the store need QoS 1";
    let more = hint("use a broker or a listener that supports QoS 1");
    assert_eq!(run("set k v", connack), error(message, &format!("{UNCHANGED}{more}"), 76));
    assert_eq!(run("get k", connack), error(message, &more, 76));
    assert_eq!(run("watch k", connack), error(message, &more, 76));
}

#[test]
fn a_broker_whose_maximum_packet_size_is_too_small_for_a_subscription_is_named_at_once() {
    let shown = run("set k v -i me", |connection| {
        connection.expect("CONNECT");
        connection.send(&wire::connack(0, b"\x27\0\0\0\x28"));
    });
    let message = "packet too large (0x95): 102 bytes; the broker accepts at most 40";
    assert!(
        shown.starts_with("--- stderr\nerror: the broker refused the subscription to clients/me/"),
        "{shown}"
    );
    assert!(shown.ends_with(&format!("{message}\n{UNCHANGED}--- exit 76\n")), "{shown}");
}

#[test]
fn a_puback_with_a_reason_code_of_other_packets_is_named_with_what_it_means_for_the_write() {
    let puback = |code| {
        run("set k v", move |connection| {
            let request = connection.serve();
            connection.send(&wire::puback(request.packet_id, code));
        })
    };
    let message = "the broker refused the request: QoS not supported (0x9B)";
    assert_eq!(puback(0x9B), error(message, UNCHANGED, 76));
    assert_eq!(puback(0xEE), error("the broker refused the request: reason 0xEE", UNCHANGED, 76));
    let shown = puback(0x04);
    let message = "error: lost the connection to BROKER: PUBACK with the unexpected reason code 0x04\n";
    assert!(shown.starts_with(&format!("--- stderr\n{message}{UNKNOWN}")), "{shown}");
    assert!(shown.ends_with("--- exit 69\n"), "{shown}");
}

#[test]
fn a_connection_that_closes_before_its_connack_exits_with_69() {
    let fake = FakeBrokers::start(|_, connection| drop(connection.expect("CONNECT")));
    let shown = Place::new().run_at(&fake.url(), &[AN_HOUR, &["set", "k", "v"]].concat());
    let causes =
        "check port and protocol (mqtts:// for TLS, ws:// for WebSockets); the broker must support MQTT 5";
    assert!(shown.contains("connection closed by the other side"), "{shown}");
    assert!(shown.contains(&hint(causes)), "{shown}");
    assert!(shown.contains(UNCHANGED) && shown.ends_with("--- exit 69\n"), "{shown}");
}

#[test]
fn half_a_connack_times_out() {
    let shown = run("get k --connect-timeout 500ms", |connection| {
        connection.expect("CONNECT");
        let connack = wire::connack(0, &[]);
        let (half, _) = connack.split_at(connack.len() / 2);
        connection.send(half);
    });
    assert!(shown.starts_with("--- stderr\nerror: no CONNACK from BROKER within 500ms"), "{shown}");
    assert!(shown.ends_with("--- exit 124\n"), "{shown}");
}

#[test]
fn a_huge_remaining_length_fails_at_once_without_an_allocation() {
    let shown = run("get k", |connection| {
        connection.expect("CONNECT");
        connection.send(&[0x20, 0xFF, 0xFF, 0xFF, 0x7F]);
    });
    assert!(shown.starts_with("--- stderr\nerror: BROKER does not speak MQTT 5: "), "{shown}");
    assert!(shown.ends_with("--- exit 76\n"), "{shown}");
    let shown = run("set k v", |connection| {
        connection.serve();
        connection.send(&[0x32, 0xFF, 0xFF, 0xFF, 0x7F, 0, 1]);
    });
    assert!(
        shown.starts_with("--- stderr\nerror: lost the connection to BROKER: malformed packet: "),
        "{shown}"
    );
    assert!(shown.contains(UNKNOWN) && shown.ends_with("--- exit 69\n"), "{shown}");
}

#[test]
fn a_rejected_subscription_exits_with_77() {
    for (request, outcome) in [("get k", ""), ("set k v", UNCHANGED)] {
        let shown = run(request, |connection| {
            connection.accept_client();
            connection.subscribe(0x87);
        });
        assert!(
            shown.starts_with("--- stderr\nerror: the broker refused the subscription to clients/"),
            "{shown}"
        );
        let end = format!(": not authorized (0x87)\n{outcome}{}--- exit 77\n", hint(SUBSCRIBE_HINT));
        assert!(shown.ends_with(&end), "{shown}");
    }
}

#[test]
fn a_request_that_the_broker_rejects_exits_with_77_or_76() {
    let refuse = |request: &str, reason| {
        run(request, move |connection| {
            let request = connection.serve();
            connection.send(&wire::puback(request.packet_id, reason));
        })
    };
    let message = "the broker refused the request: not authorized (0x87)";
    assert_eq!(refuse("set k v", 0x87), error(message, &format!("{UNCHANGED}{}", hint(PUBLISH_HINT)), 77));
    assert_eq!(refuse("get k", 0x87), error(message, &hint(PUBLISH_HINT), 77));
    let message = "the broker refused the request: quota exceeded (0x97)";
    assert_eq!(refuse("set k v", 0x97), error(message, UNCHANGED, 76));
}

#[test]
fn a_broker_without_a_store_is_reported() {
    let without_store = |request: &str| {
        run(request, |connection| {
            let request = connection.serve();
            connection.send(&wire::puback(request.packet_id, 0x10));
        })
    };
    let message = "no state store at BROKER: no subscriber to its request topic";
    let other_broker = hint(
        "connect to Azure IoT Operations or to `mqkv serve`, or connect a store to this broker: mqkv store -b URL",
    );
    assert_eq!(without_store("get k"), error(message, &other_broker, 69));
    assert_eq!(without_store("set k v"), error(message, &format!("{UNCHANGED}{other_broker}"), 69));
    assert_eq!(without_store("ping"), error(message, &other_broker, 69));
}

#[test]
fn a_missing_answer_exits_with_124_and_the_outcome_of_a_write_is_unknown() {
    let silent = |request: &str| {
        run(request, |connection| {
            let request = connection.serve();
            connection.send(&wire::puback(request.packet_id, 0));
        })
    };
    let message = "no answer from BROKER within 1s";
    assert_eq!(silent("get k --timeout 1s"), error(message, &ANSWERS.map(hint).concat(), 124));
    for write in ["set k v", "vdel k v", "raw NONSENSE"] {
        let shown = silent(&format!("{write} --timeout 1s"));
        assert_eq!(
            shown,
            error(message, &format!("{UNKNOWN}{}", ANSWERS.map(hint).concat()), 124),
            "{write}"
        );
    }
    assert_eq!(
        silent("set k v --timeout 1s -j"),
        format!(
            "--- stderr\n{{\"v\":1,\"error\":{{\"kind\":\"timeout\",\"code\":124,\"message\":\"{message}\",\
             \"hints\":[\"mqkv doctor\",\"increase --timeout\"],\"outcome\":\"unknown\",\"retryable\":true}}}}\n--- exit 124\n"
        )
    );
}

#[test]
fn a_write_whose_subscription_times_out_was_not_sent() {
    let shown = run("set k v --timeout 200ms", Connection::accept_client);
    let message = "no answer from BROKER within 200ms";
    assert_eq!(shown, error(message, &format!("{UNCHANGED}{}", ANSWERS.map(hint).concat()), 124));
}

#[test]
fn a_connection_lost_during_a_write_leaves_its_outcome_unknown() {
    let disconnect = |request: &str| {
        run(request, |connection| {
            connection.serve();
            connection.send(&wire::disconnect(0x8B));
        })
    };
    let message =
        "lost the connection to BROKER: the broker ended the connection: server shutting down (0x8B)";
    assert_eq!(disconnect("get k"), error(message, "", 69));
    assert_eq!(disconnect("set k v"), error(message, UNKNOWN, 69));
    assert_eq!(disconnect("del k l"), error(message, &format!("  2 of 2 keys failed: k, l\n{UNKNOWN}"), 69));
    // Without a DISCONNECT.
    let fake = FakeBroker::start(|connection| drop(connection.serve()));
    let shown = Place::new().run_at(&fake.url(), &[AN_HOUR, &["set", "k", "v", "-j"]].concat());
    assert!(shown.contains("\"kind\":\"unavailable\",\"code\":69,"), "{shown}");
    assert!(shown.contains("\"outcome\":\"unknown\",\"retryable\":true"), "{shown}");
}

#[test]
fn a_write_is_sent_once_and_a_read_is_repeated() {
    let requests = |request: &'static str| {
        let fake = FakeBroker::start(|connection| {
            let request = connection.serve();
            connection.send(&wire::puback(request.packet_id, 0));
            connection.listen().into_iter().filter(|name| *name == "PUBLISH").count() + 1
        });
        let words: Vec<&str> = request.split_whitespace().collect();
        let shown = Place::new().run_at(&fake.url(), &[&["--timeout", "2s"], &words[..]].concat());
        assert!(shown.ends_with("--- exit 124\n"), "{shown}");
        fake.end()
    };
    assert_eq!(requests("set k v"), 1);
    assert_eq!(requests("get k"), 2);
}

const OTHER_ID: &str = "hint: use a unique client id with -i, or omit -i\n";

#[test]
fn a_session_takeover_is_reported() {
    let shown = run("set k v", |connection| {
        connection.serve();
        connection.send(&wire::disconnect(0x8E));
    });
    let message = "lost the connection to BROKER: the broker ended the connection: session taken over (0x8E)";
    assert_eq!(shown, error(message, &format!("{UNKNOWN}{OTHER_ID}"), 69));
}

#[test]
fn a_disconnect_and_a_puback_may_omit_their_properties() {
    let shown = run("set k v", |connection| {
        connection.serve();
        connection.send(&[0xE0, 1, 0x8E]);
    });
    let message = "lost the connection to BROKER: the broker ended the connection: session taken over (0x8E)";
    assert_eq!(shown, error(message, &format!("{UNKNOWN}{OTHER_ID}"), 69));
    let shown = run("set k v", |connection| {
        let [high, low] = connection.serve().packet_id.to_be_bytes();
        connection.send(&[0x40, 3, high, low, 0x97]);
    });
    assert_eq!(shown, error("the broker refused the request: quota exceeded (0x97)", UNCHANGED, 76));
}

#[test]
fn a_truncated_packet_body_is_malformed_at_once() {
    for packet in [&[0x32, 3, 0, 9, b'x'][..], &[0x40, 1, 0], &[0x90, 2, 0, 1]] {
        let shown = run("set k v", move |connection| {
            connection.serve();
            connection.send(packet);
        });
        let message = "--- stderr\nerror: lost the connection to BROKER: malformed packet";
        assert!(shown.starts_with(message), "{packet:?}: {shown}");
        assert!(shown.ends_with(&format!("{UNKNOWN}--- exit 69\n")), "{packet:?}: {shown}");
    }
}
