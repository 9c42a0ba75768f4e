//! Properties of PUBLISH: topic aliases, subscription identifiers, and those that are forwarded unchanged.

use super::client::{CLEAN, Client, NO_LOCAL, serve};
use crate::common::wire::{packet, text};

#[test]
fn topic_aliases_work_in_both_directions() {
    let (_place, server) = serve();
    let (mut client, connack) = Client::connect_with(&server, "a", CLEAN, b"\x22\0\x01", b"");
    assert!(connack.windows(3).any(|window| window == b"\x22\0\x10"), "{connack:?}");
    client.subscribe("long/#", 0);
    for (topic, alias) in [("long/topic", 2), ("", 2), ("", 2)] {
        client.send_publish(0, topic, &[0x23, 0, alias], b"x");
    }
    let message = [client.receive_publish(), client.receive_publish(), client.receive_publish()];
    assert_eq!(message.each_ref().map(|message| message.topic.as_str()), ["long/topic", "", ""]);
    assert!(message.iter().all(|message| message.properties == b"\x23\0\x01"), "{message:?}");
    client.send_publish(0, "", b"\x23\0\x05", b"x");
    assert_eq!(client.disconnect_reason(), 0x82);
}

#[test]
fn topic_aliases_end_with_the_connection_and_0_or_beyond_the_maximum_is_an_error() {
    let (_place, server) = serve();
    let (mut client, _) = Client::resume(&server, "a", b"");
    client.subscribe("long/topic", 0);
    client.send_publish(0, "long/topic", b"\x23\0\x01", b"one");
    client.send_publish(0, "", b"\x23\0\x01", b"two");
    assert_eq!(client.receive_payloads(2), ["one", "two"]);
    client.disconnect(b"");
    let (mut client, is_present) = Client::resume(&server, "a", b"");
    assert!(is_present);
    client.send_publish(0, "", b"\x23\0\x01", b"three");
    assert_eq!(client.disconnect_reason(), 0x82, "the alias is unknown");
    for alias in [0, 17] {
        let mut client = Client::connect(&server, "b");
        client.send_publish(0, "long/topic", &[0x23, 0, alias], b"x");
        assert_eq!(client.disconnect_reason(), 0x94, "{alias}");
    }
}

#[test]
fn topic_aliases_are_sent_at_each_qos_if_the_client_accepts_any() {
    let (_place, server) = serve();
    for (maximum, alias) in [(&b"\x22\0\x01"[..], &b"\x23\0\x01"[..]), (b"\x22\0\0", b""), (b"", b"")] {
        let (mut client, _) = Client::connect_with(&server, "a", CLEAN, maximum, b"");
        client.subscribe("long/topic", 2);
        let mut publisher = Client::connect(&server, "publisher");
        for qos in 0..3 {
            publisher.publish(qos << 1, "long/topic", "x");
            let message = client.receive_publish();
            client.acknowledge(&message);
            let topic = if qos > 0 && !alias.is_empty() { "" } else { "long/topic" };
            assert_eq!((message.qos(), message.topic.as_str(), &message.properties[..]), (qos, topic, alias));
        }
    }
}

#[test]
fn each_client_gets_the_identifiers_of_its_own_subscriptions() {
    let (_place, server) = serve();
    let mut one = Client::connect(&server, "a");
    // The identifier 456,789 takes three bytes.
    let subscribe = [&[0, 9, 4, 0x0B, 0xD5, 0xF0, 0x1B][..], &text("t"), &[2]].concat();
    one.raw.send(&packet(0x82, subscribe));
    assert_eq!(one.receive().body, [0, 9, 0, 2]);
    let mut other = Client::connect(&server, "b");
    assert_eq!(other.subscribe_with("t", 2, 2), 2);
    assert_eq!(other.subscribe_with("t/#", 2, 3), 2);
    Client::connect(&server, "publisher").publish(2, "t", "x");
    assert_eq!(one.receive_publish().properties, b"\x0B\xD5\xF0\x1B");
    let mut identifiers = other.receive_publish().properties;
    identifiers.retain(|byte| *byte != 0x0B);
    identifiers.sort_unstable();
    assert_eq!(identifiers, [2, 3]);
}

#[test]
fn user_properties_and_the_payload_format_are_forwarded_at_each_qos() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    client.subscribe("t", 2);
    let mut other = Client::connect(&server, "b");
    for qos in 0..3 {
        let user = b"\x26\0\x01a\0\x012\x26\0\x01c\0\x013";
        let format = b"\x01\x01\x03\0\x07My name";
        other.send_publish(qos << 1, "t", &[&format[..], user].concat(), b"");
        let message = client.receive_publish();
        assert_eq!(message.qos(), qos);
        for property in [&b"\x01\x01"[..], b"\x03\0\x07My name", user] {
            assert!(
                message.properties.windows(property.len()).any(|window| window == property),
                "{message:?}"
            );
        }
        assert_eq!(message.properties.len(), format.len() + user.len());
        client.acknowledge(&message);
    }
}

#[test]
fn requests_and_responses_keep_all_properties() {
    let (_place, server) = serve();
    let mut responder = Client::connect(&server, "responder");
    responder.subscribe("request", 2);
    let mut requester = Client::connect(&server, "requester");
    requester.subscribe("answer", 2);
    // Payload format, expiry, response topic, correlation, two user properties in their order, content type.
    let properties =
        b"\x01\x01\x02\0\0\x0e\x10\x08\0\x06answer\x09\0\x02\0\xff\x26\0\x01b\0\x011\x26\0\x01b\0\x010\x03\0\x04text";
    requester.send_publish(0, "request", properties, b"?");
    let message = responder.receive_publish();
    let sorted = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes.sort_unstable();
        bytes
    };
    assert_eq!(sorted(&message.properties), sorted(properties));
    assert!(message.properties.windows(14).any(|window| window == b"\x26\0\x01b\0\x011\x26\0\x01b\0\x010"));
    assert!(message.properties.windows(5).any(|window| window == b"\x09\0\x02\0\xff"));
    responder.send_publish(0, "answer", b"\x09\0\x02\0\xff", b"!");
    let answer = requester.receive_publish();
    assert_eq!((&answer.properties[..], &answer.payload[..]), (&b"\x09\0\x02\0\xff"[..], &b"!"[..]));
}

#[test]
fn no_local_separates_requests_and_responses_on_one_topic() {
    let (_place, server) = serve();
    let mut requester = Client::connect(&server, "requester");
    requester.subscribe("t", 2 | NO_LOCAL);
    let mut responder = Client::connect(&server, "responder");
    responder.subscribe("t", 2 | NO_LOCAL);
    let properties = b"\x08\0\x01t\x09\0\x03334";
    requester.send_publish(0, "t", properties, b"request");
    let request = responder.receive_publish();
    assert_eq!((&request.payload[..], request.properties.len()), (&b"request"[..], properties.len()));
    responder.send_publish(0, "t", b"\x09\0\x03334", b"response");
    assert_eq!(requester.receive_payloads(1), ["response"]);
    requester.expect_nothing();
    responder.expect_nothing();
}
