//! Round trips of each verb, and the state that it leaves on the broker.

use super::common::fake_broker::FakeBroker;
use super::common::proxy::{Flight, Proxy, Sender};
use super::common::{Place, Server};

/// Runs a command line and returns its flights, each with the names of its packets.
fn flights(line: &str) -> Vec<String> {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let proxy = Proxy::start(&server.url());
    let words: Vec<&str> = line.split_whitespace().collect();
    let shown = place.run_at(&proxy.url(), &words);
    assert!(!shown.contains("stderr") || shown.ends_with("--- exit 1\n"), "{shown}");
    let named = |Flight { from, packets }: Flight| {
        let mark = if from == Sender::Client { ">" } else { "<" };
        format!("{mark} {}", packets.join(" "))
    };
    proxy.end().into_iter().map(named).collect()
}

#[test]
fn a_read_takes_two_round_trips_including_tcp() {
    for read in ["get k", "holder k", "keys", "raw GET k"] {
        assert_eq!(
            flights(read),
            ["> CONNECT SUBSCRIBE PUBLISH", "< CONNACK SUBACK PUBACK PUBLISH", "> PUBACK DISCONNECT",],
            "{read}"
        );
    }
}

#[test]
fn a_write_takes_three_round_trips_including_tcp() {
    for write in ["set k v", "del k", "vdel k v", "unlock k --holder h"] {
        assert_eq!(
            flights(write),
            [
                "> CONNECT SUBSCRIBE",
                "< CONNACK SUBACK",
                "> PUBLISH",
                "< PUBACK PUBLISH",
                "> PUBACK DISCONNECT",
            ],
            "{write}"
        );
    }
}

#[test]
fn a_cautious_client_waits_for_the_connack() {
    assert_eq!(
        flights("get k --cautious"),
        ["> CONNECT", "< CONNACK", "> SUBSCRIBE PUBLISH", "< SUBACK PUBACK PUBLISH", "> PUBACK DISCONNECT",],
    );
}

#[test]
fn reading_a_few_keys_takes_as_many_round_trips_as_one() {
    assert_eq!(flights("get a b c d e f g h").len(), flights("get a").len());
}

#[test]
fn deleting_many_keys_takes_as_many_round_trips_as_one() {
    assert_eq!(flights("del a b c").len(), flights("del a").len());
}

/// Its round trip is measured without those of the connection.
#[test]
fn a_ping_waits_until_it_is_connected_and_each_further_one_takes_one_round_trip() {
    assert_eq!(
        flights("ping -c 3"),
        [
            "> CONNECT",
            "< CONNACK",
            "> SUBSCRIBE PUBLISH",
            "< SUBACK PUBACK PUBLISH",
            "> PUBACK PUBLISH",
            "< PUBACK PUBLISH",
            "> PUBACK PUBLISH",
            "< PUBACK PUBLISH",
            "> PUBACK DISCONNECT",
        ]
    );
}

#[test]
fn no_state_is_left_on_the_broker() {
    const CLEAN_START: u8 = 0x02;
    const SESSION_EXPIRY_0: &[u8] = &[0x11, 0, 0, 0, 0];
    let fake = FakeBroker::start(|connection| {
        let connect = connection.expect("CONNECT");
        connection.send(&super::common::wire::connack(0, &[]));
        connection.subscribe(1);
        let request = connection.request();
        connection.answer(&request, "+OK\r\n", &[]);
        let last_packets = [connection.next(), connection.next()].map(Option::unwrap);
        (connect, last_packets, connection.next())
    });
    assert_eq!(Place::new().run_at(&fake.url(), &["set", "k", "v"]), "--- exit 0\n");
    let (connect, [acknowledgement, disconnect], end) = fake.end();
    assert_eq!(connect.body.get(7).copied(), Some(CLEAN_START), "clean start, no will, no password");
    assert!(connect.body.windows(5).any(|bytes| bytes == SESSION_EXPIRY_0), "{connect:?}");
    assert_eq!((acknowledgement.name(), disconnect.name()), ("PUBACK", "DISCONNECT"));
    // Normal disconnection, and the session expiry of the CONNECT is not overridden.
    assert!([&[][..], &[0], &[0, 0]].contains(&disconnect.body.as_slice()), "{disconnect:?}");
    assert_eq!(end, None);
}

#[test]
fn each_run_has_its_own_client_id() {
    let id = || {
        let fake = FakeBroker::start(|connection| {
            let request = connection.serve();
            connection.answer(&request, "$-1\r\n", &[]);
            connection.listen();
            request.user_property("__srcId").unwrap().to_owned()
        });
        assert_eq!(
            Place::new().run_at(&fake.url(), &["get", "k"]),
            "--- stderr\nerror: key not found: k\n--- exit 1\n"
        );
        fake.end()
    };
    let (one, other) = (id(), id());
    assert!(one.starts_with("mqkv-"), "{one}");
    assert_ne!(one, other);
}

#[test]
fn a_request_has_the_properties_that_the_protocol_requires() {
    let fake = FakeBroker::start(|connection| {
        let request = connection.serve();
        connection.answer(&request, "+OK\r\n", &[]);
        connection.listen();
        request
    });
    let words = ["set", "k", "v", "--ttl", "5s", "--nex", "--fence", "1:2:n", "--persist", "-i", "me"];
    assert_eq!(Place::new().run_at(&fake.url(), &words), "--- exit 0\n");
    let request = fake.end();
    assert_eq!(request.topic, "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke");
    assert_eq!(
        String::from_utf8_lossy(&request.payload),
        "*6\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$3\r\nNEX\r\n$2\r\nPX\r\n$4\r\n5000\r\n"
    );
    assert_eq!(request.correlation.len(), 16);
    assert!(request.response_topic.starts_with("clients/me/"), "{}", request.response_topic);
    for (name, value) in [
        ("__srcId", "me"),
        ("__protVer", "1.0"),
        ("$partition", "me"),
        ("__ft", "000000000000001:00002:n"),
        ("aio-persistence", "true"),
    ] {
        assert_eq!(request.user_property(name), Some(value), "{name}");
    }
    assert!(request.user_property("__ts").is_some());
}
