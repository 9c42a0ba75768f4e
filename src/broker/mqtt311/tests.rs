//! What is read and written of MQTT 3.1.1.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::dialect::Sending;
use super::super::publication::{Delivery, Publication};
use super::*;

fn read(bytes: &[u8]) -> Result<Incoming, Fault> {
    match decode(&mut BytesMut::from(bytes), |payload| payload)? {
        Decoded::Packet(packet) => Ok(packet),
        Decoded::Missing(missing) => panic!("{missing} bytes are missing"),
    }
}

const CONNECT: &[u8] = b"\x10\x1e\0\x04MQTT\x04\xf6\0\x3c\0\x01a\0\x01w\0\x02\xff\0\0\x04user\0\x01\0";

/// One packet of each kind that a client sends.
const SAMPLES: [&[u8]; 11] = [
    CONNECT,
    b"\x31\x06\0\x01apay",
    b"\x3a\x05\0\x01a\0\x07",
    b"\x40\x02\0\x01",
    b"\x50\x02\0\x01",
    b"\x62\x02\0\x01",
    b"\x70\x02\0\x01",
    b"\x82\x0b\0\x01\0\x02a/\x01\0\x01#\x02",
    b"\xa2\x08\0\x01\0\x01a\0\x01b",
    b"\xc0\0",
    b"\xe0\0",
];

#[test]
fn a_connect_says_what_one_of_mqtt_5_says() {
    let Incoming::Connect(connect) = read(CONNECT).unwrap() else { panic!("no CONNECT") };
    assert_eq!((&*connect.client_id, connect.clean_start, connect.keep_alive_s), ("a", true, 60));
    assert_eq!((connect.session_expiry_s, connect.username.as_deref()), (0, Some("user")));
    let will = connect.will.unwrap().message;
    assert_eq!(
        (&*will.topic, &will.payload[..], will.qos, will.retain),
        ("w", &b"\xff\0"[..], Qos::ExactlyOnce, true)
    );
    assert_eq!(connect.password.unwrap().bytes(), b"\0");
    let lasting = read(b"\x10\x0d\0\x04MQTT\x04\x00\0\0\0\x01a").unwrap();
    assert!(
        matches!(lasting, Incoming::Connect(connect) if connect.session_expiry_s == u32::MAX && connect.will.is_none())
    );
}

#[test]
fn all_packets_of_a_client_are_read() {
    for sample in SAMPLES {
        assert!(read(sample).is_ok(), "{sample:?}: {:?}", read(sample));
    }
    let Incoming::Publish(publish) = read(SAMPLES[2]).unwrap() else { panic!("no PUBLISH") };
    assert_eq!(
        (publish.packet_id, publish.message.qos, publish.message.retain),
        (7, Qos::AtLeastOnce, false)
    );
    let Incoming::Subscribe { requests, .. } = read(SAMPLES[7]).unwrap() else { panic!("no SUBSCRIBE") };
    assert_eq!(requests[1].filter, "#");
}

#[test]
fn what_cannot_be_is_malformed() {
    for (what, bytes) in [
        ("QoS 3", &b"\x36\x05\0\x01a\0\x01"[..]),
        ("a repetition at QoS 0", b"\x38\x03\0\x01a"),
        ("no topic", b"\x30\x02\0\0"),
        ("a wildcard in a topic", b"\x30\x03\0\x01+"),
        ("packet id 0", b"\x32\x05\0\x01a\0\0"),
        ("a character 0", b"\x30\x03\0\x01\0"),
        ("what is not UTF-8", b"\x30\x03\0\x01\xff"),
        ("no packet id", b"\x40\0"),
        ("flags of PUBREL", b"\x60\x02\0\x01"),
        ("a SUBSCRIBE without a filter", b"\x82\x02\0\x01"),
        ("reserved bits of a subscription", b"\x82\x06\0\x01\0\x01a\x04"),
        ("an UNSUBSCRIBE without a filter", b"\xa2\x02\0\x01"),
        ("a PINGREQ with a body", b"\xc0\x01\0"),
        ("a PINGRESP", b"\xd0\0"),
        ("AUTH, which came later", b"\xf0\0"),
        ("the reserved flag of CONNECT", b"\x10\x0d\0\x04MQTT\x04\x03\0\0\0\x01a"),
        ("a password alone", b"\x10\x10\0\x04MQTT\x04\x42\0\0\0\x01a\0\x01p"),
        ("a retained will that is none", b"\x10\x0d\0\x04MQTT\x04\x22\0\0\0\x01a"),
    ] {
        let fault = read(bytes).unwrap_err();
        assert_eq!(
            (fault.reason, fault.dialect),
            (Reason::MalformedPacket, ProtocolVersion::Mqtt311),
            "{what}"
        );
    }
}

#[test]
fn older_versions_are_known_and_refused_as_such() {
    for bytes in [
        &b"\x10\x0f\0\x06MQIsdp\x03\x02\0\0\0\x01a"[..],
        b"\x10\x0d\0\x04MQTT\x03\x02\0\0\0\x01a",
        b"\x10\x0d\0\x04MQTT\x84\x02\0\0\0\x01a",
    ] {
        assert!(is_connect(bytes));
        assert_eq!(read(bytes).unwrap_err().reason, Reason::UnsupportedProtocolVersion, "{bytes:?}");
    }
    for bytes in [
        &b"\x10\x0d\0\x04MQTT\x05\x02\0\0\0\x01a"[..],
        b"\x10\x0d\0\x04MQTT\x06\x02\0\0\0\x01a",
        b"\x10\x02\0\x04",
        b"\x10",
    ] {
        assert!(!is_connect(bytes), "{bytes:?}");
    }
}

#[test]
fn a_lasting_session_needs_a_client_id() {
    let fault = read(b"\x10\x0c\0\x04MQTT\x04\x00\0\0\0\0").unwrap_err();
    assert_eq!(fault.reason, Reason::ClientIdNotValid);
    assert!(read(b"\x10\x0c\0\x04MQTT\x04\x02\0\0\0\0").is_ok());
}

#[test]
fn answers_are_as_short_as_they_were_then() {
    let mut output = BytesMut::new();
    encode_connack(true, &mut output);
    encode_refusal(Reason::BadUserNameOrPassword, &mut output);
    encode_refusal(Reason::MalformedPacket, &mut output);
    encode_acknowledgement(0xB0, 0x0102, &mut output);
    encode_suback(1, &[Ok(Qos::ExactlyOnce), Err(Reason::QuotaExceeded)], &mut output);
    assert_eq!(&output[..], b"\x20\x02\x01\0\x20\x02\0\x04\xb0\x02\x01\x02\x90\x04\0\x01\x02\x80");
}

proptest! {
    #[test]
    fn a_message_that_is_written_is_read_again(
        topic in "[a-z/]{1,20}",
        byte in any::<u8>(),
        length in 0_usize..20_000,
        qos in 0_u8..3,
        retain in any::<bool>(),
        packet_id in 1_u16..,
    ) {
        let qos = qos_of(qos);
        let message = Message { topic, payload: vec![byte; length].into(), qos, retain, content_type: Some("x".into()), ..Message::default() };
        let publication = Arc::new(Publication::new(message.clone(), crate::clock::monotonic()));
        let delivery = Delivery { publication, qos, retain, subscription_ids: vec![1], group: None };
        let packet_id = (qos > Qos::AtMostOnce).then_some(packet_id);
        let mut output = BytesMut::new();
        let dup = qos > Qos::AtMostOnce;
        let sending = Sending { delivery: &delivery, packet_id, dup, expiry_s: None, alias: None, bytes_max: None };
        ProtocolVersion::Mqtt311.publish(sending, &mut output).unwrap();
        let Incoming::Publish(publish) = read(&output).unwrap() else { panic!("no PUBLISH") };
        prop_assert_eq!(publish.packet_id, packet_id.unwrap_or(0));
        prop_assert_eq!(publish.message, Message { content_type: None, ..message });
    }

    #[test]
    fn damaged_bytes_are_a_fault_or_a_packet_and_never_a_panic(
        sample in 0_usize..SAMPLES.len(),
        damage in proptest::collection::vec((0_usize..32, any::<u8>()), 0..4),
    ) {
        let mut bytes = SAMPLES[sample].to_vec();
        for (at, byte) in damage {
            if at != 1 && at < bytes.len() {
                bytes[at] = byte;
            }
        }
        if let Err(fault) = read(&bytes) {
            prop_assert!(fault.reason.code() >= 0x80);
        }
    }
}

fn qos_of(bits: u8) -> Qos {
    qos(bits).unwrap()
}
