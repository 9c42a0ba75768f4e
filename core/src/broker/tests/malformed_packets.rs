//! Malformed packets and protocol errors, each with its reason (MQTT 5, 4.13).

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use super::*;

/// Bytes that a client must not send, and the reason code of the DISCONNECT.
const CASES: [(&str, &[u8], DisconnectReasonCode); 63] = {
    use DisconnectReasonCode::{
        MalformedPacket as Malformed, PacketTooLarge, ProtocolError as Protocol, TopicAliasInvalid,
    };
    [
        ("a reserved packet type", b"\x00\0", Malformed),
        ("reserved flags of PINGREQ", b"\xc1\0", Malformed),
        ("reserved flags of SUBSCRIBE", b"\x80\x07\0\x01\0\0\x01a\0", Malformed),
        ("reserved flags of UNSUBSCRIBE", b"\xa0\x06\0\x01\0\0\x01a", Malformed),
        ("reserved flags of PUBACK", b"\x41\x02\0\x01", Malformed),
        ("reserved flags of PUBREC", b"\x52\x02\0\x01", Malformed),
        ("reserved flags of PUBREL", b"\x60\x02\0\x01", Malformed),
        ("reserved flags of PUBCOMP", b"\x74\x02\0\x01", Malformed),
        ("reserved flags of DISCONNECT", b"\xe1\0", Malformed),
        ("reserved flags of AUTH", b"\xf1\x02\x19\0", Malformed),
        ("a length of five bytes", b"\x30\xff\xff\xff\xff\x01", Malformed),
        ("a length with a byte too many", b"\xc0\x80\0", Malformed),
        ("more than is taken", b"\x30\xff\xff\xff\x7f", PacketTooLarge),
        ("QoS 3", b"\x36\x06\0\x01a\0\x01\0", Malformed),
        ("a repetition at QoS 0", b"\x38\x04\0\x01a\0", Malformed),
        ("a PUBLISH without anything", b"\x30\0", Malformed),
        ("a topic beyond the packet", b"\x30\x03\0\x09a", Malformed),
        ("a topic that is not UTF-8", b"\x30\x04\0\x01\xff\0", Malformed),
        ("a surrogate in a topic", b"\x30\x06\0\x03\xed\xa0\x80\0", Malformed),
        ("the character 0 in a topic", b"\x30\x04\0\x01\0\0", Malformed),
        ("a wildcard in a topic", b"\x30\x04\0\x01#\0", Malformed),
        ("a packet id that is missing", b"\x32\x03\0\x01a", Malformed),
        ("packet id 0", b"\x32\x06\0\x01a\0\0\0", Protocol),
        ("properties that are missing", b"\x32\x05\0\x01a\0\x01", Malformed),
        ("no topic and no alias", b"\x30\x03\0\0\0", Protocol),
        ("an alias that stands for nothing", b"\x30\x06\0\0\x03\x23\0\x01", Protocol),
        ("a topic alias too great", b"\x30\x07\0\x01a\x03\x23\0\x11", TopicAliasInvalid),
        ("topic alias 0", b"\x30\x07\0\x01a\x03\x23\0\0", TopicAliasInvalid),
        ("a payload format above 1", b"\x30\x06\0\x01a\x02\x01\x02", Protocol),
        ("a wildcard in a response topic", b"\x30\x08\0\x01a\x04\x08\0\x01+", Protocol),
        ("a response topic that is not UTF-8", b"\x30\x08\0\x01a\x04\x08\0\x01\xff", Malformed),
        ("a content type that is not UTF-8", b"\x30\x08\0\x01a\x04\x03\0\x01\xff", Malformed),
        ("a user property whose name is not UTF-8", b"\x30\x0a\0\x01a\x06\x26\0\x01\xff\0\0", Malformed),
        ("a user property whose value is not UTF-8", b"\x30\x0a\0\x01a\x06\x26\0\0\0\x01\xff", Malformed),
        (
            "a value that is not UTF-8 in SUBSCRIBE",
            b"\x82\x0d\0\x01\x06\x26\0\0\0\x01\xff\0\x01a\0",
            Malformed,
        ),
        ("a value that is not UTF-8 in PUBACK", b"\x40\x0a\0\x01\0\x06\x26\0\0\0\x01\xff", Malformed),
        ("a user property without a value", b"\x30\x08\0\x01a\x04\x26\0\x01x", Malformed),
        ("a subscription identifier from a client", b"\x30\x06\0\x01a\x02\x0b\x01", Protocol),
        ("an expiry that comes twice", b"\x30\x0e\0\x01a\x0a\x02\0\0\0\x01\x02\0\0\0\x01", Protocol),
        ("a property beyond the properties", b"\x30\x08\0\x01a\x02\x23\0\x01x", Malformed),
        ("properties beyond the packet", b"\x30\x05\0\x01a\x09\x23", Malformed),
        ("a property that does not exist", b"\x30\x06\0\x01a\x02\x7f\0", Malformed),
        ("a property of CONNECT", b"\x30\x07\0\x01a\x03\x21\0\x01", Malformed),
        ("a SUBSCRIBE without a filter", b"\x82\x03\0\x01\0", Protocol),
        ("a SUBSCRIBE with packet id 0", b"\x82\x07\0\0\0\0\x01a\0", Protocol),
        ("a filter without options", b"\x82\x06\0\x01\0\0\x01a", Malformed),
        ("a filter that is not UTF-8", b"\x82\x07\0\x01\0\0\x01\xff\0", Malformed),
        ("reserved options", b"\x82\x07\0\x01\0\0\x01a\x40", Malformed),
        ("a subscription of QoS 3", b"\x82\x07\0\x01\0\0\x01a\x03", Protocol),
        ("a retain handling of 3", b"\x82\x07\0\x01\0\0\x01a\x30", Protocol),
        ("subscription identifier 0", b"\x82\x09\0\x01\x02\x0b\0\0\x01a\0", Protocol),
        ("two subscription identifiers", b"\x82\x0b\0\x01\x04\x0b\x01\x0b\x02\0\x01a\0", Protocol),
        ("no local messages of a share", b"\x82\x10\0\x01\0\0\x0a$share/g/a\x04", Protocol),
        ("an UNSUBSCRIBE without a filter", b"\xa2\x03\0\x01\0", Protocol),
        ("an UNSUBSCRIBE with packet id 0", b"\xa2\x06\0\0\0\0\x01a", Protocol),
        ("an UNSUBSCRIBE that is not UTF-8", b"\xa2\x06\0\x01\0\0\x01\xff", Malformed),
        ("a PUBACK with an unknown reason", b"\x40\x03\0\x01\x01", Malformed),
        ("a PUBACK with bytes behind it", b"\x40\x05\0\x01\0\0x", Malformed),
        ("a PINGREQ with a body", b"\xc0\x01\0", Malformed),
        ("a second CONNECT", b"\x10\x0e\0\x04MQTT\x05\x02\0\0\0\0\x01a", Protocol),
        ("a CONNACK from a client", b"\x20\x03\0\0\0", Protocol),
        ("a PINGRESP from a client", b"\xd0\0", Protocol),
        ("an unexpected AUTH", b"\xf0\x02\x19\0", Protocol),
    ]
};

#[tokio::test]
async fn a_malformed_packet_closes_the_connection_with_its_reason_code() {
    let server = start().await;
    let mut other = Client::connect(&server, "other").await;
    for (what, bytes, expected) in CASES {
        let mut client = Client::connect(&server, "a").await;
        client.send_bytes(bytes).await;
        let received = client.receive().await;
        assert!(
            matches!(&received, Packet::Disconnect(disconnect) if disconnect.reason_code == expected),
            "{what}: {received:?}"
        );
        assert_eq!(client.receive_any().await, None, "{what}");
        other.expect_nothing().await;
    }
}

#[tokio::test]
async fn random_damage_in_packets_does_not_affect_other_clients() {
    let server = start().await;
    let mut other = Client::connect(&server, "other").await;
    other.subscribe(filter("other/#")).await;
    let mut runner =
        TestRunner::new_with_rng(ProptestConfig::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let damage = (0..CASES.len(), vec((any::<Index>(), any::<u8>()), 0..6), any::<bool>());
    for number in 0..400_u16 {
        let (case, damage, sends_connect) = damage.new_tree(&mut runner).unwrap().current();
        let mut bytes = CASES[case].1.to_vec();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let mut client = Client::unconnected(&server);
        if sends_connect {
            client.send_connect(ConnectOptions::new("a")).await;
            assert!(matches!(client.receive().await, Packet::ConnAck(_)));
        }
        // The broker may close the connection before everything is written.
        let _ = client.stream.write_all(&bytes).await;
        let _ = client.stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = client.stream.read_to_end(&mut answer).await;
        other.publish(qos_1("other/a", number + 1)).await;
        assert_eq!(other.receive_puback().await, PubAckReason::Success);
        assert_eq!(other.receive_topics(1).await, ["other/a"]);
    }
}

#[tokio::test]
async fn a_packet_that_is_too_large_is_rejected_before_it_is_read() {
    let server = start_with(Settings { packet_bytes_max: 1000, ..Settings::default() }).await;
    let mut client = Client::connect(&server, "a").await;
    client.send_bytes(&[0x30, 0x80, 0x80, 0x80, 0x01]).await;
    assert_eq!(client.receive_disconnect().await, DisconnectReasonCode::PacketTooLarge);
}
