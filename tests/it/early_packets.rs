//! Packets that are sent together with CONNECT: brokers that do not accept them, and clients that may not send them.

use std::sync::{Arc, Mutex};

use mqkv::client::trace::{Packet, TraceEvent};
use mqkv::client::{Client, Error, Outcome, Reconnect, SetOptions, Settings, Target, Tracer};
use mqkv::protocol::Key;

use super::common::fake_broker::{Connection, FakeBroker, FakeBrokers};
use super::common::proxy::Proxy;
use super::common::{Place, Server, wire};

const UNCHANGED: &str = "  nothing was changed\n";
const MALFORMED_PACKET: u8 = 0x81;
const PROTOCOL_ERROR: u8 = 0x82;
const RECEIVE_MAXIMUM_EXCEEDED: u8 = 0x93;
const PACKET_TOO_LARGE: u8 = 0x95;
const QUOTA_EXCEEDED: u8 = 0x97;
const SESSION_TAKEN_OVER: u8 = 0x8E;

/// Runs a line and returns its output and its trace: each packet with `>` if it was sent and `<` if it was received, `-` for a lost
/// connection, and `cautious` where the client decided to wait for CONNACK.
fn traced(url: &str, line: &str) -> (String, Vec<String>) {
    let place = Place::new();
    place.write("token", "t");
    let words: Vec<&str> = line.split(' ').chain(["--trace=trace"]).collect();
    let shown = place.run_at(url, &words);
    let trace = std::fs::read_to_string(place.path("trace")).unwrap();
    let event = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[1..] {
            ["->", packet, ..] => Some(format!("> {packet}")),
            ["<-", packet, ..] => Some(format!("< {packet}")),
            ["--", "no", "connection:", ..] => Some("-".to_owned()),
            ["--", "packets", "before", ..] => Some("cautious".to_owned()),
            _ => None,
        }
    };
    (shown, trace.lines().filter_map(event).collect())
}

/// Reads the CONNECT and an early packet.
fn read_early(connection: &mut Connection) {
    connection.expect("CONNECT");
    connection.expect("SUBSCRIBE");
}

fn answer_all(connection: &mut Connection) {
    let request = connection.serve();
    connection.answer(&request, "+OK\r\n", &[]);
    connection.listen();
}

#[test]
fn a_broker_that_closes_on_early_packets_is_connected_to_again_without_them() {
    let closes: [fn(&mut Connection); 3] = [
        read_early,
        // After it has accepted the client, silently or with a reason.
        |connection| {
            read_early(connection);
            connection.send(&wire::connack(0, &[]));
        },
        |connection| {
            read_early(connection);
            connection.send(&[&wire::connack(0, &[])[..], &wire::disconnect(PROTOCOL_ERROR)].concat());
        },
    ];
    for close in closes {
        let broker = FakeBrokers::start(move |number, connection| match number {
            1 => close(connection),
            _ => answer_all(connection),
        });
        let (shown, packets) = traced(&broker.url(), "set k v");
        assert!(shown.ends_with("--- exit 0\n"), "{shown}");
        let cautious = packets.iter().position(|packet| packet == "cautious").unwrap();
        assert_eq!(packets[..2], ["> CONNECT", "> SUBSCRIBE"]);
        assert_eq!(
            packets[cautious..],
            [
                "cautious",
                "-",
                "> CONNECT",
                "< CONNACK",
                "> SUBSCRIBE",
                "< SUBACK",
                "> PUBLISH",
                "< PUBACK",
                "< PUBLISH",
                "> PUBACK",
                "> DISCONNECT",
            ],
        );
        assert_eq!(broker.count(), 2);
    }
}

#[test]
fn a_broker_that_answers_early_packets_in_place_of_the_connect_is_connected_to_again_without_them() {
    fn rejects<const REASON: u8>(connection: &mut Connection) {
        connection.send(&wire::connack(REASON, &[]));
    }
    let answers: [fn(&mut Connection); 7] = [
        rejects::<MALFORMED_PACKET>,
        rejects::<PROTOCOL_ERROR>,
        rejects::<RECEIVE_MAXIMUM_EXCEEDED>,
        rejects::<PACKET_TOO_LARGE>,
        rejects::<QUOTA_EXCEEDED>,
        |connection| connection.send(&wire::disconnect(PROTOCOL_ERROR)),
        |connection| connection.send(&wire::suback(1, 1)),
    ];
    for answer in answers {
        for (line, reply) in [("get k", "$1\r\nv\r\n"), ("set k v", "+OK\r\n")] {
            let broker = FakeBrokers::start(move |number, connection| {
                if number == 1 {
                    read_early(connection);
                    return answer(connection);
                }
                let request = connection.serve();
                connection.answer(&request, reply, &[]);
                connection.listen();
            });
            let (shown, packets) = traced(&broker.url(), line);
            assert!(shown.ends_with("--- exit 0\n"), "{shown}{packets:?}");
            let cautious = packets.iter().position(|packet| packet == "cautious").unwrap();
            assert_eq!(packets[cautious..][..4], ["cautious", "-", "> CONNECT", "< CONNACK"], "{packets:?}");
            assert_eq!(broker.count(), 2);
        }
    }
}

#[test]
fn early_reads_that_violate_the_limits_of_the_connack_are_sent_again_after_it() {
    const RECEIVE_MAX_2: &[u8] = &[0x21, 0, 2];
    const PACKET_BYTES_MAX_1024: &[u8] = &[0x27, 0, 0, 4, 0];
    for (limit, reason) in
        [(RECEIVE_MAX_2, RECEIVE_MAXIMUM_EXCEEDED), (PACKET_BYTES_MAX_1024, PACKET_TOO_LARGE)]
    {
        let broker = FakeBrokers::start(move |number, connection| {
            connection.expect("CONNECT");
            connection.send(&wire::connack(0, limit));
            connection.subscribe(1);
            for at in 0..4 {
                let request = connection.request();
                connection.answer(&request, "$1\r\nv\r\n", &[]);
                if number == 1 && at == 1 {
                    return connection.send(&wire::disconnect(reason));
                }
            }
            connection.listen();
        });
        let (shown, packets) = traced(&broker.url(), "get a b c d");
        assert!(shown.ends_with("--- exit 0\n"), "{shown}{packets:?}");
        assert_eq!(broker.count(), 2);
    }
    // What the CONNACK does not allow at all is an error.
    let broker = FakeBrokers::start(|_, connection| {
        connection.expect("CONNECT");
        connection.send(&wire::connack(0, PACKET_BYTES_MAX_1024));
        connection.subscribe(1);
        if connection.next().is_some_and(|packet| packet.name() == "PUBLISH") {
            connection.send(&wire::disconnect(PACKET_TOO_LARGE));
        }
    });
    let (shown, _) = traced(&broker.url(), &format!("get {}", "k".repeat(1024)));
    assert!(shown.contains("error: request too large: "), "{shown}");
    assert_eq!(broker.count(), 2);
}

/// Reads the early packets, accepts the client, and serves what follows.
fn drop_early(connection: &mut Connection, early: &[&str], reply: &str) {
    connection.expect("CONNECT");
    early.iter().for_each(|packet| drop(connection.expect(packet)));
    connection.send(&wire::connack(0, &[]));
    connection.subscribe(1);
    let request = connection.request();
    connection.answer(&request, reply, &[]);
}

#[test]
fn early_packets_that_a_broker_drops_are_sent_again_on_the_same_connection() {
    let get: (&str, &[&str], &str) = ("get k", &["SUBSCRIBE", "PUBLISH"], "$1\r\nv\r\n");
    let set: (&str, &[&str], &str) = ("set k v", &["SUBSCRIBE"], "+OK\r\n");
    for (line, early, reply) in [get, set] {
        let broker = FakeBrokers::start(move |_, connection| {
            drop_early(connection, early, reply);
            connection.listen();
        });
        let (shown, packets) = traced(&broker.url(), line);
        assert!(shown.ends_with("--- exit 0\n"), "{shown}{packets:?}");
        let (before, after) = packets.split_at(early.len() + 1);
        assert_eq!(before[1], "> SUBSCRIBE", "{packets:?}");
        assert_eq!(after[..3], ["< CONNACK", "cautious", "> SUBSCRIBE"], "{packets:?}");
        assert_eq!(after.iter().filter(|packet| *packet == "> PUBLISH").count(), 1, "{packets:?}");
        assert_eq!(broker.count(), 1);
    }
}

#[test]
fn a_broker_that_closes_every_connection_is_connected_to_twice() {
    let broker = FakeBrokers::start(|_, connection| {
        connection.accept_client();
    });
    let (shown, _) = traced(&broker.url(), "set k v");
    assert!(shown.contains("by the other side") && shown.contains("69"), "{shown}");
    assert_eq!(broker.count(), 2);
    let broker = FakeBrokers::start(|_, connection| connection.accept_client());
    let shown = Place::new().run_at(&broker.url(), &["set", "k", "v", "--cautious"]);
    assert!(shown.contains(UNCHANGED) && shown.ends_with("--- exit 69\n"), "{shown}");
    assert_eq!(broker.count(), 1);
}

#[test]
fn the_rejection_of_a_client_is_its_error_whatever_followed_the_connect() {
    for line in ["get k", "set k v"] {
        let broker = FakeBrokers::start(|_, connection| {
            // The early packets are not read, so that the close resets the connection.
            connection.expect("CONNECT");
            connection.send(&wire::connack(0x86, &[]));
        });
        let (shown, packets) = traced(&broker.url(), line);
        assert!(shown.contains("bad user name or password (0x86)"), "{shown}");
        assert!(shown.ends_with("--- exit 77\n"), "{shown}");
        assert_eq!(packets.last().map(String::as_str), Some("-"), "{packets:?}");
        assert!(packets.contains(&"< CONNACK".to_owned()) && broker.count() == 1, "{packets:?}");
    }
}

#[test]
fn a_client_whose_session_was_taken_over_does_not_connect_again() {
    let broker = FakeBrokers::start(|_, connection| {
        read_early(connection);
        connection.send(&[&wire::connack(0, &[])[..], &wire::disconnect(SESSION_TAKEN_OVER)].concat());
        connection.listen();
    });
    let (shown, _) = traced(&broker.url(), "set k v");
    assert!(shown.contains("session taken over (0x8E)") && shown.ends_with("--- exit 69\n"), "{shown}");
    assert_eq!(broker.count(), 1);
}

#[test]
fn nothing_follows_a_connect_with_an_authentication_method() {
    let broker = FakeBroker::start(answer_all);
    let (shown, packets) = traced(&broker.url(), "set k v --sat-file token");
    assert!(shown.ends_with("--- exit 0\n"), "{shown}");
    assert_eq!(packets[..3], ["> CONNECT", "< CONNACK", "> SUBSCRIBE"]);
    broker.end();
}

fn target(broker: &FakeBrokers) -> Target {
    let port = broker.url().rsplit(':').next().unwrap().parse().unwrap();
    Target::Tcp { host: "127.0.0.1".to_owned(), port }
}

/// Gets a key several times on one client, which connects again when the broker closes the connection. Returns the order of its
/// attempts, CONNACKs and subscriptions.
fn attempts(broker: &FakeBrokers, reads: usize) -> Vec<&'static str> {
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&events);
    let tracer = Tracer::new(true, move |event: &TraceEvent, _| {
        let name = match event {
            TraceEvent::Connecting { .. } => "connecting",
            TraceEvent::Received(Packet::ConnAck { .. }) => "CONNACK",
            TraceEvent::Sent(Packet::Subscribe { .. }) => "SUBSCRIBE",
            _ => return,
        };
        sink.lock().unwrap().push(name);
    });
    let settings = Settings {
        tracer: Some(tracer),
        reconnect: Reconnect::WithBackoff,
        ..Settings::new(target(broker), "me".to_owned())
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::lazy(settings).unwrap();
        let key = Key::new("k").unwrap();
        for _ in 0..reads {
            assert!(matches!(client.get(&key).await, Ok(None)));
        }
        client.close().await;
    });
    std::mem::take(&mut *events.lock().unwrap())
}

const EARLY: [&str; 3] = ["connecting", "SUBSCRIBE", "CONNACK"];
const CAUTIOUS: [&str; 3] = ["connecting", "CONNACK", "SUBSCRIBE"];

#[test]
fn a_reconnect_sends_pending_reads_together_with_connect() {
    let broker = FakeBrokers::start(|number, connection| {
        let request = connection.serve();
        connection.answer(&request, "$-1\r\n", &[]);
        connection.expect("PUBACK");
        if number == 1 {
            // The second read is lost with the connection.
            connection.request();
        } else {
            connection.listen();
        }
    });
    assert_eq!(attempts(&broker, 2), [EARLY, EARLY].concat());
}

#[test]
fn a_broker_that_closes_on_early_packets_is_remembered_for_the_session() {
    let broker = FakeBrokers::start(|number, connection| {
        if number == 1 {
            return read_early(connection);
        }
        let request = connection.serve();
        connection.answer(&request, "$-1\r\n", &[]);
        connection.expect("PUBACK");
        if number == 2 {
            connection.request();
        } else {
            connection.listen();
        }
    });
    assert_eq!(attempts(&broker, 2), [&EARLY[..2], &CAUTIOUS, &CAUTIOUS].concat());
}

#[test]
fn a_broker_that_drops_early_packets_after_a_reconnect_is_remembered_for_the_session() {
    let broker = FakeBrokers::start(|number, connection| {
        if number == 2 {
            drop_early(connection, &["SUBSCRIBE", "PUBLISH"], "$-1\r\n");
        } else {
            let request = connection.serve();
            connection.answer(&request, "$-1\r\n", &[]);
        }
        connection.expect("PUBACK");
        if number < 3 {
            connection.request();
        } else {
            connection.listen();
        }
    });
    assert_eq!(attempts(&broker, 3), [&EARLY[..], &EARLY, &["SUBSCRIBE"], &CAUTIOUS].concat());
}

#[test]
fn a_write_that_is_lost_beside_an_unacknowledged_early_read_is_not_repeated() {
    let broker = FakeBrokers::start(|number, connection| {
        connection.accept_client();
        connection.subscribe(1);
        let read = connection.request();
        if number == 1 {
            let write = connection.request();
            assert!(write.payload.starts_with(b"*3\r\n$3\r\nSET"), "{write:?}");
            connection.send(&wire::disconnect(RECEIVE_MAXIMUM_EXCEEDED));
        } else {
            connection.answer(&read, "$-1\r\n", &[]);
            assert_eq!(connection.listen(), ["PUBACK", "DISCONNECT"]);
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::lazy(Settings::new(target(&broker), "me".to_owned())).unwrap();
        let (key, value) = (Key::new("k").unwrap(), "v".into());
        let (read, write) = tokio::join!(client.get(&key), client.set(&key, &value, SetOptions::default()));
        assert!(matches!(read, Ok(None)), "{read:?}");
        assert!(matches!(write, Err(Error::Lost { outcome: Outcome::Unknown, .. })), "{write:?}");
        client.close().await;
    });
    assert_eq!(broker.count(), 2);
}

/// The key derivation of a password takes a while, in which the early packets wait.
#[test]
fn our_server_answers_early_packets_of_users_with_permissions() {
    const TAIL: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";
    let place = Place::new();
    place.write("password", "p");
    place.write("wrong", "x");
    assert_eq!(place.run_with_input(&["serve", "user", "add", "users", "ann", "-q"], b"p\n"), "--- exit 0\n");
    place.write(
        "rules",
        format!(
            "rules:
- principals: {{usernames: [ann]}}
  brokerResources:
  - method: Connect
  - {{method: Publish, topics: [\"{TAIL}\", \"clients/{{principal.clientId}}/#\"]}}
  - {{method: Subscribe, topics: [\"clients/{{principal.clientId}}/#\"]}}
  stateStoreResources: [{{method: ReadWrite, keyType: String, keys: [k]}}]
"
        ),
    );
    let server =
        Server::start(&place, &["-q", "--users", "users", "--authz", "rules", "--login-failures-max", "4"]);
    let run = |line: &str| {
        let proxy = Proxy::start(&server.url());
        let words: Vec<&str> = line.split(' ').collect();
        let shown = place.run_at(&proxy.url(), &[&words[..], &["-u", "ann"]].concat());
        (shown, proxy.end().len())
    };
    // A flight of each side for each round trip, then the last one of the client.
    assert_eq!(run("set k v --password-file password"), ("--- exit 0\n".to_owned(), 5));
    assert_eq!(
        run("get k --password-file password"),
        ("--- stdout\nv(no line feed)\n--- exit 0\n".to_owned(), 3)
    );
    let (shown, _) = run("get other --password-file password");
    assert!(shown.contains("not authorized") && shown.ends_with("--- exit 77\n"), "{shown}");
    for error in ["bad user name or password (0x86)", "bad user name or password (0x86)", "(0x9F)"] {
        let (shown, flights) = run("set k v --password-file wrong");
        assert!(shown.contains(error), "{shown}");
        assert!(flights <= 3, "{flights}: {shown}");
    }
}
