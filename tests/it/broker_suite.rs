//! The broker over real sockets, in the steps of the Paho project's interoperability suite for MQTT 5.

mod client;
mod properties;
mod state_store;

use self::client::{
    CLEAN, Client, DUP, Message, NO_LOCAL, RETAIN, RETAIN_AS_PUBLISHED, RETAINED_IF_NEW, RETAINED_NEVER,
    serve,
};
use super::common::RawClient;
use super::common::wire::{self, length, packet, text};

#[test]
fn messages_of_each_qos_arrive() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    client.subscribe("t/#", 2);
    for qos in 0..3 {
        client.send_publish(qos << 1, "t/a", b"", &[b'0' + qos]);
        if qos > 0 {
            let answer = client.receive();
            assert_eq!(answer.name(), if qos == 1 { "PUBACK" } else { "PUBREC" });
        }
        let message = client.receive_publish();
        assert_eq!((message.qos(), &message.payload[..]), (qos, &[b'0' + qos][..]));
        client.acknowledge(&message);
    }
    client.disconnect(b"");
}

#[test]
fn retained_messages_are_sent_to_new_subscribers() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    for qos in 0..3 {
        client.publish(RETAIN | qos << 1, &format!("t/{qos}"), &format!("qos {qos}"));
    }
    client.subscribe("t/+", 2);
    let mut message: Vec<_> = (0..3).map(|_| client.receive_publish()).collect();
    for message in &message {
        client.acknowledge(message);
    }
    message.sort_by(|one, other| one.topic.cmp(&other.topic));
    let messages: Vec<_> = message.iter().map(|message| (message.flags, &message.payload[..])).collect();
    assert_eq!(messages, [(1, &b"qos 0"[..]), (3, b"qos 1"), (5, b"qos 2")]);
    let mut other = Client::connect(&server, "b");
    for qos in 0..3 {
        other.publish(RETAIN | qos << 1, &format!("t/{qos}"), "");
    }
    other.subscribe("t/+", 2);
    other.expect_nothing();
}

#[test]
fn a_second_connect_and_an_unknown_protocol_name_are_rejected() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    client.raw.send(&wire::connect("a"));
    assert_eq!(client.disconnect_reason(), 0x82);
    let mut other = RawClient::connect(server.port());
    other.send(b"\x10\x0c\0\x02hj\x05\x02\0\0\0\0\x01a");
    let connack = other.receive().unwrap();
    assert_eq!((connack.name(), connack.body[1], other.receive()), ("CONNACK", 0x84, None));
}

/// A will of QoS 1 for the topic `will` with these encoded properties. Returns the flags and the fields of CONNECT.
fn will(properties: &[u8]) -> (u8, Vec<u8>) {
    let fields = [&length(properties.len())[..], properties, &text("will"), &text("gone")].concat();
    (CLEAN | 0x0C, fields)
}

#[test]
fn a_will_is_published_when_a_connection_breaks() {
    let (_place, server) = serve();
    let mut subscriber = Client::connect(&server, "subscriber");
    subscriber.subscribe("will", 2);
    let (flags, fields) = will(b"\x26\0\x01a\0\x01b");
    Client::connect_with(&server, "a", flags, b"", &fields).0.disconnect(b"");
    drop(Client::connect_with(&server, "b", flags, b"", &fields));
    let message = subscriber.receive_publish();
    assert_eq!(
        (message.qos(), &message.payload[..], &message.properties[..]),
        (1, &b"gone"[..], &b"\x26\0\x01a\0\x01b"[..])
    );
    subscriber.expect_nothing();
}

#[test]
fn a_will_is_published_after_its_delay_or_at_the_end_of_the_session() {
    let (_place, server) = serve();
    let mut subscriber = Client::connect(&server, "subscriber");
    subscriber.subscribe("will", 2);
    // The session ends after a second, before the delay of an hour.
    let (flags, fields) = will(b"\x18\0\0\x0e\x10");
    drop(Client::connect_with(&server, "a", flags, b"\x11\0\0\0\x01", &fields));
    subscriber.expect_nothing();
    assert_eq!(subscriber.receive_payloads(1), ["gone"]);
    // A client that reconnects in time cancels its will.
    let (mut client, _) = Client::connect_with(&server, "a", flags & !CLEAN, b"\x11\0\0\x0e\x10", &fields);
    client.expect_nothing();
    drop(client);
    let (back, is_present) = Client::resume(&server, "a", b"");
    assert!(is_present);
    back.disconnect(b"");
    subscriber.expect_nothing();
}

#[test]
fn a_will_is_published_at_its_delay_or_at_once_if_the_session_ends() {
    let (_place, server) = serve();
    let mut subscriber = Client::connect(&server, "subscriber");
    subscriber.subscribe("will", 2);
    for (delay, expiry) in [(b"\x18\0\0\0\x01", &b"\x11\0\0\x0e\x10"[..]), (b"\x18\0\0\x0e\x10", b"")] {
        let (flags, fields) = will(delay);
        drop(Client::connect_with(&server, "a", flags, expiry, &fields));
        assert_eq!(subscriber.receive_payloads(1), ["gone"]);
        subscriber.expect_nothing();
    }
}

#[test]
fn a_keep_alive_timeout_disconnects_the_client_and_publishes_its_will() {
    let (_place, server) = serve();
    let mut subscriber = Client::connect(&server, "subscriber");
    subscriber.subscribe("will", 2);
    let (flags, fields) = will(b"");
    let mut silent = RawClient::connect(server.port());
    // Keep Alive is one second.
    let head = [&text("MQTT")[..], &[5, flags, 0, 1, 0], &text("a"), &fields].concat();
    silent.send(&packet(0x10, head));
    assert_eq!(silent.receive().unwrap().name(), "CONNACK");
    assert_eq!(subscriber.receive_payloads(1), ["gone"]);
    let disconnect = silent.receive().unwrap();
    assert_eq!((disconnect.name(), disconnect.body[0], silent.receive()), ("DISCONNECT", 0x8D, None));
}

#[test]
fn an_invalid_topic_filter_fails_alone() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    for filter in ["t/#/x", "t+", "$share/group", "$share//t", ""] {
        assert_eq!(client.subscribe_with(filter, 2, 0), 0x8F, "{filter}");
    }
    client.subscribe("t", 2);
    client.send_publish(0, "t", b"", b"x");
    assert_eq!(client.receive_payloads(1), ["x"]);
}

#[test]
fn a_client_without_a_client_id_is_assigned_one() {
    let (_place, server) = serve();
    let id = |connack: &[u8]| {
        let at = connack.iter().position(|byte| *byte == 0x12).unwrap();
        let len = usize::from(u16::from_be_bytes([connack[at + 1], connack[at + 2]]));
        String::from_utf8(connack[at + 3..at + 3 + len].to_vec()).unwrap()
    };
    let (one, first) = Client::connect_with(&server, "", CLEAN, b"\x11\0\0\x0e\x10", b"");
    let (_two, second) = Client::connect_with(&server, "", 0, b"", b"");
    let first = id(&first);
    assert_ne!(first, id(&second));
    one.disconnect(b"");
    assert!(Client::resume(&server, &first, b"").1, "it is a client id like any other");
}

#[test]
fn messages_are_queued_for_a_disconnected_session() {
    let (_place, server) = serve();
    let (mut client, is_present) = Client::resume(&server, "a", b"");
    assert!(!is_present);
    client.subscribe("t/#", 2);
    client.disconnect(b"");
    let mut other = Client::connect(&server, "b");
    for qos in 0..3 {
        other.publish(qos << 1, &format!("t/{qos}"), &format!("qos {qos}"));
    }
    let (mut client, is_present) = Client::resume(&server, "a", b"");
    assert!(is_present);
    assert_eq!(client.receive_payloads(2), ["qos 1", "qos 2"]);
    client.expect_nothing();
}

#[test]
fn overlapping_subscriptions_deliver_once_with_the_highest_qos_and_all_identifiers() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    assert_eq!(client.subscribe_with("t/#", 2, 1), 2);
    assert_eq!(client.subscribe_with("t/+", 1, 2), 1);
    client.publish(RETAIN, "other", "x");
    client.send_publish(4, "t/a", b"", b"x");
    assert_eq!(client.receive().name(), "PUBREC");
    let message = client.receive_publish();
    assert_eq!(message.qos(), 2);
    let mut identifiers: Vec<_> = message.properties.chunks(2).map(<[u8]>::to_vec).collect();
    identifiers.sort();
    assert_eq!(identifiers, [[0x0B, 1], [0x0B, 2]]);
    client.acknowledge(&message);
    client.expect_nothing();
}

#[test]
fn unacknowledged_messages_are_sent_again_after_a_reconnect() {
    let (_place, server) = serve();
    let (mut client, _) = Client::resume(&server, "a", b"");
    client.subscribe("t", 2);
    let mut other = Client::connect(&server, "b");
    for payload in ["one", "two"] {
        other.publish(4, "t", payload);
    }
    let sent = [client.receive_publish(), client.receive_publish()];
    drop(client);
    let (mut client, _) = Client::resume(&server, "a", b"");
    for message in sent {
        let again = client.receive_publish();
        assert_eq!(again, Message { flags: message.flags | DUP, ..message });
        client.raw.send(&packet(0x50, again.id.to_be_bytes().to_vec()));
        client.receive_pubrel(again.id);
    }
    drop(client);
    let (mut client, _) = Client::resume(&server, "a", b"");
    for _ in 0..2 {
        let pubrel = client.receive();
        assert_eq!(pubrel.name(), "PUBREL");
        client.raw.send(&packet(0x70, pubrel.body[..2].to_vec()));
    }
    client.expect_nothing();
}

#[test]
fn topics_that_begin_with_a_dollar_match_no_leading_wildcard() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    client.subscribe("#", 2);
    client.subscribe("+/x", 2);
    client.publish(0, "$x/x", "hidden");
    client.subscribe("$x/#", 2);
    client.send_publish(0, "$x/x", b"", b"seen");
    assert_eq!(client.receive_payloads(1), ["seen"]);
    client.expect_nothing();
}

#[test]
fn an_unsubscribe_ends_the_subscription() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    client.subscribe("t/a", 2);
    client.subscribe("t/#", 2);
    assert_eq!((client.unsubscribe("t/#"), client.unsubscribe("t/#")), (0, 0x11));
    client.publish(2, "t/b", "gone");
    client.send_publish(0, "t/a", b"", b"still there");
    assert_eq!(client.receive_payloads(1), ["still there"]);
}

#[test]
fn the_last_session_expiry_interval_applies() {
    let (_place, server) = serve();
    let (client, _) = Client::resume(&server, "a", b"");
    client.disconnect(b"");
    let (client, is_present) = Client::resume(&server, "a", b"");
    assert!(is_present);
    client.disconnect(b"\x11\0\0\0\0");
    assert!(!Client::resume(&server, "a", b"").1, "the DISCONNECT ended it");
    drop(Client::connect(&server, "a"));
    let (mut client, is_present) = Client::resume(&server, "a", b"");
    assert!(!is_present, "Clean Start ended it");
    client.expect_nothing();
    drop(client);
    let (client, connack) = Client::connect_with(&server, "a", 0, b"", b"");
    assert_eq!(connack[0], 1);
    client.disconnect(b"");
    assert!(!Client::resume(&server, "a", b"").1, "without an expiry it ends with its connection");
}

#[test]
fn a_shared_subscription_gives_each_message_to_one_member() {
    let (_place, server) = serve();
    let mut members = [Client::connect(&server, "a"), Client::connect(&server, "b")];
    for client in &mut members {
        client.subscribe("$share/group/t/#", 2);
        client.subscribe("t/0", 1);
    }
    let mut publisher = Client::connect(&server, "publisher");
    for number in 0..10 {
        publisher.publish(4, &format!("t/{number}"), &number.to_string());
    }
    let mut all = Vec::new();
    for mut client in members {
        // Five of the shared messages, and `t/0` once more for the subscription of each client.
        let payloads = client.receive_payloads(6);
        assert!(payloads.contains(&"0".to_owned()));
        all.extend(payloads);
        client.expect_nothing();
    }
    all.sort();
    let expected: Vec<_> = [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9].iter().map(u8::to_string).collect();
    assert_eq!(all, expected);
}

#[test]
fn packets_respect_the_maximum_packet_size_of_their_receiver() {
    let (_place, server) = serve();
    let (mut small, _) = Client::connect_with(&server, "small", CLEAN, b"\x27\0\0\0\x64", b"");
    small.subscribe("t", 2);
    let mut other = Client::connect(&server, "b");
    other.publish(2, "t", &"x".repeat(100));
    other.publish(2, "t", "fits");
    assert_eq!(small.receive_payloads(1), ["fits"]);
    // The limit of the broker is 64 MB; the fixed header already announces more.
    other.raw.send(b"\x30\xff\xff\xff\x7f");
    assert_eq!(other.disconnect_reason(), 0x95);
}

#[test]
fn the_receive_maximum_limits_both_directions() {
    let (_place, server) = serve();
    let (mut client, _) = Client::connect_with(&server, "a", CLEAN, b"\x21\0\x02", b"");
    client.subscribe("t", 2);
    let mut other = Client::connect(&server, "b");
    for number in 0..5 {
        other.publish(4, "t", &number.to_string());
    }
    let first = [client.receive_publish(), client.receive_publish()];
    client.expect_nothing();
    for message in &first {
        client.acknowledge(message);
    }
    assert_eq!(client.receive_payloads(3), ["2", "3", "4"]);
    // In the other direction the broker accepts 1024 messages before their PUBREL.
    for _ in 0..1025 {
        other.send_publish(4, "t", b"", b"");
    }
    let last = loop {
        let packet = other.receive();
        if packet.name() != "PUBREC" {
            break packet;
        }
    };
    assert_eq!((last.name(), last.body[0]), ("DISCONNECT", 0x93));
}

#[test]
fn the_subscription_options_apply() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    client.subscribe("mine", 2 | NO_LOCAL);
    client.publish(2, "mine", "not delivered");
    client.subscribe("plain", 2);
    client.subscribe("kept", 2 | RETAIN_AS_PUBLISHED);
    for topic in ["plain", "kept"] {
        client.send_publish(RETAIN, topic, b"", b"x");
    }
    assert_eq!([client.receive_publish().flags, client.receive_publish().flags], [0, RETAIN]);
    let mut late = Client::connect(&server, "b");
    late.subscribe("kept", 2 | RETAINED_NEVER);
    late.expect_nothing();
    late.subscribe("kept", 2 | RETAINED_IF_NEW);
    late.expect_nothing();
    late.subscribe("plain", 2 | RETAINED_IF_NEW);
    assert_eq!(late.receive_publish().topic, "plain");
    late.subscribe("kept", 2);
    assert_eq!(late.receive_publish().topic, "kept");
}

#[test]
fn a_queued_message_that_expires_is_not_delivered() {
    let (_place, server) = serve();
    let (mut client, _) = Client::resume(&server, "a", b"");
    client.subscribe("t", 1);
    client.disconnect(b"");
    let mut other = Client::connect(&server, "b");
    for (expiry, payload) in [(0, "old"), (100, "new")] {
        other.send_publish(2, "t", &[2, 0, 0, 0, expiry], payload.as_bytes());
        assert_eq!(other.receive().name(), "PUBACK");
    }
    let (mut client, _) = Client::resume(&server, "a", b"");
    let message = client.receive_publish();
    assert_eq!((&message.payload[..], &message.properties[..4]), (&b"new"[..], &[2, 0, 0, 0][..]));
    assert!((1..=100).contains(&message.properties[4]));
    client.acknowledge(&message);
    client.expect_nothing();
}

#[test]
fn clients_of_mqtt_3_1_1_and_mqtt_5_exchange_messages() {
    let (_place, server) = serve();
    let mut old = RawClient::connect(server.port());
    old.send(b"\x10\x0f\0\x04MQTT\x04\x02\0\0\0\x03old");
    assert_eq!(old.receive_bytes(4), b"\x20\x02\0\0");
    old.send(b"\x82\x06\0\x01\0\x01t\x01");
    assert_eq!(old.receive_bytes(5), b"\x90\x03\0\x01\x01");
    let mut new = Client::connect(&server, "new");
    new.subscribe("t", 0);
    new.send_publish(2, "t", b"\x03\0\x04text", b"x");
    assert_eq!(new.receive().name(), "PUBACK");
    assert_eq!(new.receive_publish().properties, b"\x03\0\x04text");
    assert_eq!(old.receive_bytes(8), b"\x32\x06\0\x01t\0\x01x");
    old.send(b"\x30\x04\0\x01ty");
    assert_eq!(new.receive_payloads(1), ["y"]);
}
