//! What is said beside a message: aliases, identifiers of subscriptions, and what goes on as it came.

use super::client::{CLEAN, Client, NO_LOCAL, serve};
use crate::common::wire::{packet, text};

#[test]
fn aliases_are_taken_from_clients_and_given_to_them() {
    let (_place, server) = serve();
    let (mut client, connack) = Client::connect_with(&server, "a", CLEAN, b"\x22\0\x01", b"");
    assert!(connack.windows(3).any(|window| window == b"\x22\0\x10"), "{connack:?}");
    client.subscribe("long/#", 0);
    for (topic, alias) in [("long/topic", 2), ("", 2), ("", 2)] {
        client.send_publish(0, topic, &[0x23, 0, alias], b"x");
    }
    let heard = [client.receive_publish(), client.receive_publish(), client.receive_publish()];
    assert_eq!(heard.each_ref().map(|heard| heard.topic.as_str()), ["long/topic", "", ""]);
    assert!(heard.iter().all(|heard| heard.properties == b"\x23\0\x01"), "{heard:?}");
    client.send_publish(0, "", b"\x23\0\x05", b"x");
    assert_eq!(client.disconnect_reason(), 0x82);
}

#[test]
fn aliases_end_with_their_connection_and_none_is_0_or_beyond_what_is_taken() {
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
    assert_eq!(client.disconnect_reason(), 0x82, "it stands for nothing");
    for alias in [0, 17] {
        let mut client = Client::connect(&server, "b");
        client.send_publish(0, "long/topic", &[0x23, 0, alias], b"x");
        assert_eq!(client.disconnect_reason(), 0x94, "{alias}");
    }
}

#[test]
fn a_client_gets_an_alias_at_each_qos_if_it_takes_any() {
    let (_place, server) = serve();
    for (maximum, alias) in [(&b"\x22\0\x01"[..], &b"\x23\0\x01"[..]), (b"\x22\0\0", b""), (b"", b"")] {
        let (mut client, _) = Client::connect_with(&server, "a", CLEAN, maximum, b"");
        client.subscribe("long/topic", 2);
        let mut publisher = Client::connect(&server, "publisher");
        for qos in 0..3 {
            publisher.publish(qos << 1, "long/topic", "x");
            let heard = client.receive_publish();
            client.acknowledge(&heard);
            let topic = if qos > 0 && !alias.is_empty() { "" } else { "long/topic" };
            assert_eq!((heard.qos(), heard.topic.as_str(), &heard.properties[..]), (qos, topic, alias));
        }
    }
}

#[test]
fn each_client_gets_the_identifiers_of_its_own_subscriptions() {
    let (_place, server) = serve();
    let mut one = Client::connect(&server, "a");
    // 456789, which takes three bytes.
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
fn user_properties_and_the_payloads_format_come_at_each_qos() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    client.subscribe("t", 2);
    let mut other = Client::connect(&server, "b");
    for qos in 0..3 {
        let user = b"\x26\0\x01a\0\x012\x26\0\x01c\0\x013";
        let format = b"\x01\x01\x03\0\x07My name";
        other.send_publish(qos << 1, "t", &[&format[..], user].concat(), b"");
        let heard = client.receive_publish();
        assert_eq!(heard.qos(), qos);
        for property in [&b"\x01\x01"[..], b"\x03\0\x07My name", user] {
            assert!(heard.properties.windows(property.len()).any(|window| window == property), "{heard:?}");
        }
        assert_eq!(heard.properties.len(), format.len() + user.len());
        client.acknowledge(&heard);
    }
}

#[test]
fn requests_and_answers_keep_all_that_they_say() {
    let (_place, server) = serve();
    let mut responder = Client::connect(&server, "responder");
    responder.subscribe("request", 2);
    let mut asker = Client::connect(&server, "asker");
    asker.subscribe("answer", 2);
    // Payload format, expiry, content type, response topic, correlation, user properties twice and in their order.
    let properties =
        b"\x01\x01\x02\0\0\x0e\x10\x08\0\x06answer\x09\0\x02\0\xff\x26\0\x01b\0\x011\x26\0\x01b\0\x010\x03\0\x04text";
    asker.send_publish(0, "request", properties, b"?");
    let heard = responder.receive_publish();
    let sorted = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes.sort_unstable();
        bytes
    };
    assert_eq!(sorted(&heard.properties), sorted(properties));
    assert!(heard.properties.windows(14).any(|window| window == b"\x26\0\x01b\0\x011\x26\0\x01b\0\x010"));
    assert!(heard.properties.windows(5).any(|window| window == b"\x09\0\x02\0\xff"));
    responder.send_publish(0, "answer", b"\x09\0\x02\0\xff", b"!");
    let answer = asker.receive_publish();
    assert_eq!((&answer.properties[..], &answer.payload[..]), (&b"\x09\0\x02\0\xff"[..], &b"!"[..]));
}

#[test]
fn who_asks_and_who_answers_on_one_topic_hear_only_each_other() {
    let (_place, server) = serve();
    let mut asker = Client::connect(&server, "asker");
    asker.subscribe("t", 2 | NO_LOCAL);
    let mut responder = Client::connect(&server, "responder");
    responder.subscribe("t", 2 | NO_LOCAL);
    let properties = b"\x08\0\x01t\x09\0\x03334";
    asker.send_publish(0, "t", properties, b"request");
    let request = responder.receive_publish();
    assert_eq!((&request.payload[..], request.properties.len()), (&b"request"[..], properties.len()));
    responder.send_publish(0, "t", b"\x09\0\x03334", b"response");
    assert_eq!(asker.receive_payloads(1), ["response"]);
    asker.expect_nothing();
    responder.expect_nothing();
}
