//! What the broker does with packets, over real sockets: one test for each part that `core/src/broker/tests` replaces by a pipe or
//! by a call. In the steps of the Paho project's interoperability suite for MQTT 5.

mod client;
mod state_store;

use self::client::{CLEAN, Client, DUP, Message, serve};
use super::common::RawClient;
use super::common::wire::{length, packet, text};

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
    client.disconnect();
}

/// A will of QoS 1 for the topic `will` with these encoded properties. Returns the flags and the fields of CONNECT.
fn will(properties: &[u8]) -> (u8, Vec<u8>) {
    let fields = [&length(properties.len())[..], properties, &text("will"), &text("gone")].concat();
    (CLEAN | 0x0C, fields)
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
fn unacknowledged_messages_are_sent_again_after_a_reconnect() {
    let (_place, server) = serve();
    let mut client = Client::resume(&server, "a");
    client.subscribe("t", 2);
    let mut other = Client::connect(&server, "b");
    for payload in ["one", "two"] {
        other.publish("t", payload);
    }
    let sent = [client.receive_publish(), client.receive_publish()];
    drop(client);
    let mut client = Client::resume(&server, "a");
    for message in sent {
        let again = client.receive_publish();
        assert_eq!(again, Message { flags: message.flags | DUP, ..message });
        client.raw.send(&packet(0x50, again.id.to_be_bytes().to_vec()));
        client.receive_pubrel(again.id);
    }
    drop(client);
    let mut client = Client::resume(&server, "a");
    for _ in 0..2 {
        let pubrel = client.receive();
        assert_eq!(pubrel.name(), "PUBREL");
        client.raw.send(&packet(0x70, pubrel.body[..2].to_vec()));
    }
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
