//! The state store's own topics, as MQTT clients see them.

use mqkv::protocol::{Key, Request, topic};

use super::client::{Client, RETAIN, serve};
use crate::common::wire::text;

const QOS_1: u8 = 0x02;
const QOS_2: u8 = 0x04;

/// Sends a request, with the client's own response topic.
fn request(client: &mut Client, flags: u8, request: &Request) {
    let properties = [&[0x08], &text("answers")[..], &[0x09, 0, 1, b'c']].concat();
    client.send_publish(QOS_1 | flags, topic::REQUEST, &properties, &request.encode());
    assert_eq!(client.receive().name(), "PUBACK");
}

#[test]
fn a_message_below_the_topic_of_the_notifications_is_rejected() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    client.subscribe(&topic::notify_filter("b"), 1);
    let topic = topic::notify("b", &Key::new("k").unwrap()).unwrap();
    for (qos, answer) in [(QOS_1, "PUBACK"), (QOS_2, "PUBREC")] {
        client.send_publish(qos, &topic, b"", b"forged");
        let packet = client.receive();
        assert_eq!((packet.name(), packet.body[2]), (answer, 0x87));
    }
    client.expect_nothing();
}

#[test]
fn a_request_with_the_retain_flag_is_answered_and_not_retained() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    client.subscribe("answers", 1);
    request(&mut client, RETAIN, &Request::Get { key: Key::new("k").unwrap() });
    assert_eq!(client.receive_payloads(1), ["$-1\r\n"]);
    client.subscribe(topic::REQUEST, 1);
    client.expect_nothing();
}
