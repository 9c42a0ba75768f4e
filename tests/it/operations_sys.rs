//! The topics below `$SYS`.

use std::collections::BTreeMap;

use super::common::wire::{self, Publish};
use super::common::{Place, RawClient, Server};

/// Returns the topics as soon as each of `numbers` has at least its value and all of `others` were received.
fn topics(port: u16, numbers: &[(&str, f64)], others: &[&str]) -> BTreeMap<String, String> {
    let mut raw = RawClient::connect(port);
    raw.send(&wire::connect("reader"));
    raw.send(&wire::subscribe(1, "$SYS/#"));
    let mut topics = BTreeMap::<String, String>::new();
    let is_complete = |topics: &BTreeMap<String, String>| {
        let number = |name: &str| topics.get(&format!("$SYS/broker/{name}"))?.parse::<f64>().ok();
        numbers.iter().all(|(name, least)| number(name).is_some_and(|number| number >= *least))
            && others.iter().all(|name| topics.contains_key(&format!("$SYS/broker/{name}")))
    };
    while !is_complete(&topics) {
        let packet = raw.receive().unwrap();
        if packet.name() == "PUBLISH" {
            // QoS 0: topic, no properties, payload.
            let len = usize::from(u16::from_be_bytes([packet.body[0], packet.body[1]]));
            let (name, payload) = packet.body[2..].split_at(len);
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            topics.insert(text(name), text(&payload[1..]));
        }
    }
    topics
}

#[test]
fn counters_are_published_under_mosquitto_s_topic_names() {
    let place = Place::new();
    let server = Server::start(&place, &["--sys-interval", "20ms"]);
    assert_eq!(place.run_at(&server.url(), &["set", "k", "v"]), "--- exit 0\n");
    let numbers = [
        "clients/connected",
        "clients/disconnected",
        "clients/total",
        "subscriptions/count",
        "retained messages/count",
        "store/messages/count",
        "store/messages/bytes",
        "publish/messages/sent",
        "load/messages/received/1min",
        "load/bytes/sent/15min",
    ];
    let others = [&numbers[..], &["version", "uptime"]].concat();
    // The SET alone sends CONNECT, SUBSCRIBE, PUBLISH, PUBACK and DISCONNECT.
    let topics = topics(
        server.port(),
        &[
            ("clients/maximum", 1.0),
            ("messages/received", 5.0),
            ("messages/sent", 4.0),
            ("publish/messages/received", 1.0),
            ("publish/messages/sent", 1.0),
            ("bytes/received", 100.0),
            ("bytes/sent", 50.0),
        ],
        &others,
    );
    let number = |name: &str| topics[&format!("$SYS/broker/{name}")].parse::<f64>().unwrap();
    assert_eq!(topics["$SYS/broker/version"], concat!("mqkv version ", env!("CARGO_PKG_VERSION")));
    assert!(topics["$SYS/broker/uptime"].ends_with(" seconds"));
    for name in numbers {
        assert!(number(name) >= 0.0, "{name}");
    }
}

#[test]
fn sys_topics_can_be_switched_off() {
    let place = Place::new();
    let server = Server::start(&place, &["--sys-interval", "0"]);
    let mut raw = RawClient::connect(server.port());
    raw.send(&wire::connect("reader"));
    raw.send(&wire::subscribe(1, "$SYS/#"));
    raw.send(&wire::subscribe(2, "end"));
    raw.send(&Publish { topic: "end".to_owned(), packet_id: 3, ..Publish::default() }.encode());
    let names: Vec<_> = (0..5).map(|_| raw.receive().unwrap().name()).collect();
    assert_eq!(names.iter().filter(|name| **name == "PUBLISH").count(), 1, "{names:?}");
}

#[test]
fn no_client_can_publish_or_leave_a_will_on_sys_topics() {
    let place = Place::new();
    let server = Server::start(&place, &["--sys-interval", "0", "-q"]);
    let mut raw = RawClient::connect(server.port());
    raw.send(&wire::connect("forger"));
    raw.send(&wire::subscribe(1, "$SYS/#"));
    raw.send(
        &Publish { topic: "$SYS/broker/version".to_owned(), packet_id: 3, ..Publish::default() }.encode(),
    );
    let answers: Vec<_> = (0..3).map(|_| raw.receive().unwrap()).collect();
    assert_eq!((answers[2].name(), answers[2].body[2]), ("PUBACK", 0x87), "not authorized");
    let will = b"\0\x04MQTT\x05\x06\0\0\0\0\x01w\0\0\x0b$SYS/broker\0\x01x";
    let mut raw = RawClient::connect(server.port());
    raw.send(&wire::Packet { first: 0x10, body: will.to_vec() }.encode());
    let connack = raw.receive().unwrap();
    assert_eq!((connack.name(), connack.body[1]), ("CONNACK", 0x90), "topic name invalid");
}
