//! The decoder on text vectors, damaged packets and limits, with the MQTT crate as its oracle.

use std::fmt::Debug;

use proptest::prelude::*;

use super::*;
use crate::mqtt::generators::{damaged, packet};
use crate::mqtt::oracle;
use crate::mqtt::packet::{Connect, Publish, USER_PROPERTIES_MAX, Will};
use crate::mqtt::reason::ReasonCode;
use crate::protocol::message::{Message, Qos};
use crate::protocol::vectors::{self, Case, escape};

const VERSIONS: [ProtocolVersion; 2] = [ProtocolVersion::V5, ProtocolVersion::V311];

fn version() -> impl Strategy<Value = ProtocolVersion> {
    prop::sample::select(VERSIONS.to_vec())
}

/// What `of` makes for each version, with the version.
fn any_version<T: Debug + 'static>(
    of: impl Fn(ProtocolVersion) -> BoxedStrategy<T>,
) -> impl Strategy<Value = (ProtocolVersion, T)> {
    let [v5, v311] = VERSIONS.map(|version| (Just(version), of(version)));
    prop_oneof![v5, v311]
}

/// Decodes one packet that makes up all the input.
fn read(version: ProtocolVersion, bytes: &[u8]) -> Result<Incoming, DecodeError> {
    let mut input = BytesMut::from(bytes);
    match decode(version, &mut input, u32::MAX)? {
        Decoded::Packet(packet) => {
            assert!(input.is_empty(), "{} bytes are left of {bytes:?}", input.len());
            Ok(packet)
        }
        Decoded::Missing(missing) => panic!("{missing} bytes are missing of {bytes:?}"),
    }
}

/// Decodes, and checks what holds for any input; then what the decoder accepted, as the crate does.
fn check(version: ProtocolVersion, bytes: &[u8], bytes_max: u32) -> Result<Decoded, DecodeError> {
    let mut input = BytesMut::from(bytes);
    let decoded = decode(version, &mut input, bytes_max);
    match &decoded {
        Ok(Decoded::Packet(packet)) => {
            let taken = bytes.len() - input.len();
            assert!(taken <= usize::try_from(bytes_max).unwrap());
            assert_eq!(input, bytes[taken..]);
            // The contents of the packets that only a server sends are not decoded.
            if !matches!(packet, Incoming::Unexpected(_)) {
                let expected = oracle::decode(version, &bytes[..taken]);
                assert_eq!(Ok(packet), expected.as_ref(), "{version:?} {}", escape(&bytes[..taken]));
            }
        }
        Ok(Decoded::Missing(missing)) => {
            assert!(*missing > 0 && input == bytes);
            assert_eq!(super::missing(bytes, bytes_max), Ok(*missing));
        }
        Err(error) => {
            assert!(error.reason.is_error() && error.version == version && input == bytes, "{error:?}");
        }
    }
    decoded
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_valid_packet_is_decoded_as_the_crate_decodes_it(
        (version, packet) in any_version(packet),
        trailing in prop::collection::vec(any::<u8>(), 0..3),
    ) {
        let bytes = [packet.bytes(), trailing.clone()].concat();
        let decoded = check(version, &bytes, u32::MAX);
        prop_assert!(matches!(decoded, Ok(Decoded::Packet(_))), "{decoded:?}");
    }

    #[test]
    fn a_part_of_a_packet_is_never_decoded_and_never_refused(
        (version, packet) in any_version(packet),
        end in any::<prop::sample::Index>(),
    ) {
        let bytes = packet.bytes();
        let part = &bytes[..end.index(bytes.len())];
        let Ok(Decoded::Missing(missing)) = check(version, part, u32::MAX) else { panic!("{part:?}") };
        prop_assert!(part.len() + missing <= bytes.len());
    }

    #[test]
    fn a_packet_is_accepted_up_to_the_maximum_and_refused_above_it(
        (version, packet) in any_version(packet),
    ) {
        let bytes = packet.bytes();
        let length = u32::try_from(bytes.len()).unwrap();
        prop_assert!(check(version, &bytes, length).is_ok());
        prop_assert_eq!(check(version, &bytes, length - 1).unwrap_err().reason, ReasonCode::PacketTooLarge);
    }

    #[test]
    fn a_connect_chooses_its_version_and_other_first_packets_are_of_mqtt_5(
        (version, packet) in any_version(packet),
    ) {
        let bytes = packet.bytes();
        let first = decode_first(&mut BytesMut::from(&bytes[..]), u32::MAX);
        let expected = if packet.first == 0x10 { version } else { ProtocolVersion::V5 };
        prop_assert_eq!(first, decode(expected, &mut BytesMut::from(&bytes[..]), u32::MAX));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_damaged_packet_is_an_error_or_what_the_crate_makes_of_it_and_never_a_panic(
        (version, bytes) in any_version(damaged),
        bytes_max in prop_oneof![Just(u32::MAX), 0..200_u32],
    ) {
        let _ = check(version, &bytes, bytes_max);
        let _ = decode_first(&mut BytesMut::from(&bytes[..]), bytes_max);
    }

    #[test]
    fn any_bytes_are_an_error_or_what_the_crate_makes_of_them_and_never_a_panic(
        version in version(),
        first in any::<u8>(),
        length in 0_u8..20,
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0..0x30_u8], 0..20),
    ) {
        let bytes = [&[first, length], &bytes[..]].concat();
        let _ = check(version, &bytes, u32::MAX);
    }

    #[test]
    fn any_properties_of_a_publish_are_an_error_or_what_the_crate_makes_of_them(
        first in 0x30_u8..0x40,
        properties in prop::collection::vec(prop_oneof![
            any::<u8>().prop_map(|format| vec![0x01, format % 3]),
            Just(vec![0x02, 0, 0, 0, 9]),
            Just(vec![0x0B, 5]),
            (0..3_u8).prop_map(|alias| vec![0x23, 0, alias]),
            (prop::sample::select(vec![0x03_u8, 0x08, 0x09, 0x1F]), "[a-c+#\0ä]{0,3}").prop_map(|(name, text)| {
                [&[name, 0, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
            }),
            Just(b"\x26\0\x04__ts\0\x031.0".to_vec()),
            Just(b"\x26\0\0\0\x01\xFF".to_vec()),
        ], 0..4),
        topic in "[ab/+#\0]{0,3}",
    ) {
        let properties = properties.concat();
        let lengths = [topic.len(), properties.len()].map(|length| u8::try_from(length).unwrap());
        let mut body = [&[0, lengths[0]], topic.as_bytes()].concat();
        if first & 0b0110 != 0 {
            body.extend([0, 1]);
        }
        body.extend([&[lengths[1]], &properties[..], b"payload"].concat());
        let bytes = [&[first, u8::try_from(body.len()).unwrap()], &body[..]].concat();
        let _ = check(ProtocolVersion::V5, &bytes, u32::MAX);
    }
}

/// One packet of each kind with a body: MQTT 5.
const SAMPLES: [&[u8]; 11] = [
    b"\x10\x2A\0\x04MQTT\x05\xEE\0\x3C\x0B\x11\0\0\0\x09\x21\0\x05\x22\0\x03\0\x01a\x05\x18\0\0\0\x01\0\x01w\0\x01m\0\x01u\0\0",
    b"\x33\x12\0\x01a\0\x01\x0B\x01\x01\x08\0\x01r\x09\0\x02\x01\x02p",
    b"\x33\x3E\0\x05$a/\xC3\xA4\0\x02\x30\x01\x01\x02\0\0\0\x09\x03\0\x02\xC3\xA4\x08\0\x03a/b\x09\0\x02\0\xFF\x23\0\x01\
        \x26\0\x04__ts\0\x031.0\x26\0\x05__per\0\0\xFF\0p\x80",
    b"\x30\x08\0\0\x03\x23\0\x01\x80p",
    b"\x82\x0A\0\x01\x02\x0B\x05\0\x02a/\x2D",
    b"\xA2\x06\0\x01\0\0\x01a",
    b"\x40\x04\0\x01\x10\0",
    b"\x40\x02\0\x01",
    b"\x62\x04\0\x01\x92\0",
    b"\xE0\x07\x04\x05\x11\0\0\0\0",
    b"\xF0\x06\x19\x04\x15\0\x01x",
];

/// One packet of each kind: MQTT 3.1.1.
const SAMPLES_311: [&[u8]; 11] = [
    b"\x10\x1D\0\x04MQTT\x04\xF6\0\x3C\0\x01a\0\x01w\0\x02\xFF\0\0\x04user\0\x01\0",
    b"\x31\x06\0\x01apay",
    b"\x3A\x05\0\x01a\0\x07",
    b"\x40\x02\0\x01",
    b"\x50\x02\0\x01",
    b"\x62\x02\0\x01",
    b"\x70\x02\0\x01",
    b"\x82\x0B\0\x01\0\x02a/\x01\0\x01#\x02",
    b"\xA2\x08\0\x01\0\x01a\0\x01b",
    b"\xC0\0",
    b"\xE0\0",
];

#[test]
fn each_byte_of_each_packet_may_be_changed_inserted_or_removed() {
    // Lengths in more bytes than they need.
    let long: [&[u8]; 3] = [b"\x30\x85\0\0\x01a\0p", b"\x30\x06\0\x01a\x80\0p", b"\x40\x82\0\0\x01"];
    for (version, samples) in
        [(ProtocolVersion::V5, [&SAMPLES[..], &long].concat()), (ProtocolVersion::V311, SAMPLES_311.to_vec())]
    {
        for sample in samples {
            let length = sample.len();
            let cut = (0..length).map(|end| sample[..end].to_vec());
            let changed = (0..length).flat_map(|at| {
                (0..=255).flat_map(move |byte| {
                    let (before, rest) = sample.split_at(at);
                    [[before, &[byte], &rest[1..]].concat(), [before, &[byte], rest].concat()]
                })
            });
            let removed = (0..length).map(|at| [&sample[..at], &sample[at + 1..]].concat());
            for input in cut.chain(changed).chain(removed) {
                for bytes_max in [length - 1, length, 1000] {
                    let _ = check(version, &input, u32::try_from(bytes_max).unwrap());
                }
            }
        }
    }
}

#[test]
fn each_kind_of_packet_is_accepted() {
    for (version, samples) in [(ProtocolVersion::V5, SAMPLES), (ProtocolVersion::V311, SAMPLES_311)] {
        for sample in samples {
            let decoded = check(version, sample, 1000);
            assert!(matches!(decoded, Ok(Decoded::Packet(_))), "{sample:?}: {decoded:?}");
        }
    }
}

#[test]
fn a_repeated_property_is_found_in_every_packet() {
    let alias = [0x23, 0, 1];
    let twice = [alias, alias].concat();
    let cases: [(u8, &[u8], &[u8]); 6] = [
        (0x30, &[0, 1, b'a'], &twice),
        (0x32, &[0, 1, b'a', 0, 1], &twice),
        (0x82, &[0, 1], &[0x0B, 1, 0x0B, 2]),
        (0x40, &[0, 1, 0], &[0x1F, 0, 0, 0x1F, 0, 0]),
        (0xE0, &[0], &[0x11, 0, 0, 0, 1, 0x11, 0, 0, 0, 1]),
        (0x10, b"\0\x04MQTT\x05\x02\0\0", &[0x21, 0, 1, 0x21, 0, 1]),
    ];
    for (first, head, properties) in cases {
        let (length, count) = (head.len() + 1 + properties.len(), properties.len());
        let lengths = [u8::try_from(length).unwrap(), u8::try_from(count).unwrap()];
        let packet = [&[first, lengths[0]], head, &[lengths[1]], properties].concat();
        let error = read(ProtocolVersion::V5, &packet).unwrap_err();
        assert_eq!(error.reason, ReasonCode::ProtocolError, "{packet:?}");
        assert!(error.text.ends_with("is repeated"), "{packet:?}: {error}");
    }
    let will = b"\x10\x18\0\x04MQTT\x05\x06\0\0\0\0\x01a\x04\x01\0\x01\0\0\x01w\0\0";
    assert_eq!(read(ProtocolVersion::V5, will).unwrap_err().reason, ReasonCode::ProtocolError);
}

#[test]
fn user_properties_may_be_repeated() {
    let pair = [0x26, 0, 0, 0, 0];
    let packet = [&[0x30, 14, 0, 1, b'a', 10][..], &pair, &pair].concat();
    assert!(read(ProtocolVersion::V5, &packet).is_ok());
}

#[test]
fn a_packet_has_a_maximum_of_filters() {
    for (first, filter) in [(0x82, &b"\0\0\0"[..]), (0xA2, b"\0\0")] {
        for (count, expected) in [(FILTERS_MAX, None), (FILTERS_MAX + 1, Some(ReasonCode::QuotaExceeded))] {
            for (version, head) in
                [(ProtocolVersion::V5, &b"\0\x01\0"[..]), (ProtocolVersion::V311, b"\0\x01")]
            {
                let body = [head, &filter.repeat(count)].concat();
                let bytes = crate::mqtt::generators::Raw { first, body }.bytes();
                assert_eq!(read(version, &bytes).err().map(|error| error.reason), expected);
            }
        }
    }
}

#[test]
fn a_message_has_a_maximum_of_user_properties() {
    for (count, low, expected) in
        [(USER_PROPERTIES_MAX, 0x80, None), (USER_PROPERTIES_MAX + 1, 0x85, Some(ReasonCode::QuotaExceeded))]
    {
        let length = [low, 0xC0, 0x02];
        let properties = [&length[..], &b"\x26\0\0\0\0".repeat(count)].concat();
        let connect = b"\0\x04MQTT\x05\x04\0\0\0\0\x01a";
        for (first, body) in [
            (0x30, [&b"\0\x01a"[..], &properties].concat()),
            (0x10, [&connect[..], &properties, b"\0\x01w\0\0"].concat()),
        ] {
            let bytes = crate::mqtt::generators::Raw { first, body }.bytes();
            assert_eq!(read(ProtocolVersion::V5, &bytes).err().map(|error| error.reason), expected);
        }
    }
}

#[test]
fn a_malformed_publish_of_a_server_is_skipped_if_its_topic_and_packet_id_can_be_read() {
    let skipped =
        |packet_id, topic: Option<&str>| Some(SkippedPublish { packet_id, topic: topic.map(str::to_owned) });
    let raw = |first, body: &[u8]| crate::mqtt::generators::Raw { first, body: body.to_vec() }.bytes();
    for (packet, expected) in [
        // An empty response topic, a repeated expiry, properties beyond the packet.
        (raw(0x32, b"\0\x01a\0\x07\x03\x08\0\0payload"), skipped(Some(7), Some("a"))),
        (raw(0x3A, b"\0\x01a\0\x07\x0A\x02\0\0\0\x01\x02\0\0\0\x01"), skipped(Some(7), Some("a"))),
        (raw(0x30, b"\0\x01a\x7F"), skipped(None, Some("a"))),
        (raw(0x32, b"\0\x01\xFF\0\x07\0"), skipped(Some(7), None)),
        (raw(0x32, b"\0\x01a\0\0\0"), None),
        (raw(0x32, b"\0\x01a\0"), None),
        (raw(0x32, b"\0\x09a\0\x07"), None),
        (raw(0x34, b"\0\x01#\0\x07\0"), None),
        (raw(0x36, b"\0\x01a\0\x07\0"), None),
    ] {
        let mut input = BytesMut::from(&packet[..]);
        input.extend_from_slice(b"next");
        let before = input.clone();
        assert!(publish_of_server(&mut input, 100).is_err(), "{packet:?}");
        assert_eq!(input, before, "an error leaves the input unchanged");
        assert_eq!(skip_publish_of_server(&mut input, 100), expected, "{packet:?}");
        let rest = if expected.is_some() { &b"next"[..] } else { &before };
        assert_eq!(input, rest);
        let mut incomplete = BytesMut::from(&packet[..packet.len() - 1]);
        assert_eq!(skip_publish_of_server(&mut incomplete, 100), None);
    }
    let large = raw(0x30, &[&b"\0\x01a\0"[..], &[0; 100]].concat());
    assert_eq!(skip_publish_of_server(&mut BytesMut::from(&large[..]), 100), None);
    assert_eq!(skip_publish_of_server(&mut BytesMut::from(&raw(0x40, b"\0\x07")[..]), 100), None);
}

#[test]
fn the_credentials_of_a_connect_are_counted_as_far_as_they_have_arrived() {
    let head = b"\x10\x32\0\x04MQTT\x05\xf6\0\x3c";
    let properties = b"\x17\x11\0\0\0\x09\x15\0\x01m\x16\0\x04data\x26\0\x01k\0\x01v";
    let rest = b"\0\x01a\0\0\x01w\0\x01m\0\x01u\0\x01p";
    let bytes = [&head[..], properties, rest].concat();
    let data_at = head.len() + 13;
    assert_eq!(&bytes[data_at..data_at + 4], b"data");
    for len in 0..=bytes.len() {
        let data = len.saturating_sub(data_at).min(4);
        let username = usize::from(len > bytes.len() - 4);
        let password = usize::from(len == bytes.len());
        let credentials = data + username + password;
        let others = len - credentials;
        for (bytes_max, is_within) in [(others, true), (others.saturating_sub(1), len == 0)] {
            let checked = check_connect(&bytes[..len], bytes_max);
            assert_eq!(checked.is_ok(), is_within, "{len}: {credentials}");
        }
    }
    let error = check_connect(&bytes, 10).unwrap_err();
    assert_eq!((error.reason, error.version), (ReasonCode::PacketTooLarge, ProtocolVersion::V5));
}

proptest! {
    #[test]
    fn the_credentials_of_every_connect_are_what_is_decoded(
        (version, packet) in any_version(packet),
    ) {
        let bytes = packet.bytes();
        if let Ok(Incoming::Connect(connect)) = read(version, &bytes) {
            let secret = |secret: Option<Sensitive>| secret.map_or(0, |secret| secret.into_bytes().len());
            let credentials = connect.username.map_or(0, |name| name.len())
                + secret(connect.password)
                + secret(connect.authentication_data);
            prop_assert!(check_connect(&bytes, bytes.len() - credentials).is_ok());
            prop_assert!(check_connect(&bytes, bytes.len() - credentials - 1).is_err());
        }
    }
}

#[test]
fn the_fields_of_a_connect_are_read_in_their_order() {
    let head = b"\x10\x20\0\x04MQTT\x05\xf6\0\x3c\x05\x11\0\0\0\x09";
    let fields = b"\0\x01a\0\0\x01w\0\x01m\0\x01u\0\x01p";
    let decoded = read(ProtocolVersion::V5, &[&head[..], fields].concat()).unwrap();
    let Incoming::Connect(connect) = decoded else { panic!("{decoded:?}") };
    assert_eq!((connect.client_id.as_str(), connect.username.as_deref()), ("a", Some("u")));
    let will = connect.will.unwrap().message;
    assert_eq!(
        (&*will.topic, &will.payload[..], will.qos, will.retain),
        ("w", &b"m"[..], Qos::ExactlyOnce, true)
    );
    assert_eq!(connect.password.unwrap().into_bytes(), b"p");
    assert_eq!((connect.keep_alive_s, connect.session_expiry_s, connect.clean_start), (60, 9, true));
}

#[test]
fn a_connect_of_mqtt_3_1_1_has_the_fields_of_one_of_mqtt_5() {
    let decoded = read(ProtocolVersion::V311, SAMPLES_311[0]).unwrap();
    let Incoming::Connect(connect) = decoded else { panic!("{decoded:?}") };
    assert_eq!((&*connect.client_id, connect.clean_start, connect.keep_alive_s), ("a", true, 60));
    assert_eq!((connect.session_expiry_s, connect.username.as_deref()), (0, Some("user")));
    let will = connect.will.unwrap().message;
    assert_eq!(
        (&*will.topic, &will.payload[..], will.qos, will.retain),
        ("w", &b"\xff\0"[..], Qos::ExactlyOnce, true)
    );
    assert_eq!(connect.password.unwrap().into_bytes(), b"\0");
    let persistent = read(ProtocolVersion::V311, b"\x10\x0d\0\x04MQTT\x04\x00\0\0\0\x01a").unwrap();
    assert!(
        matches!(persistent, Incoming::Connect(connect) if connect.session_expiry_s == u32::MAX && connect.will.is_none())
    );
}

#[test]
fn the_packets_of_mqtt_3_1_1_are_decoded() {
    let Incoming::Publish(publish) = read(ProtocolVersion::V311, SAMPLES_311[2]).unwrap() else {
        panic!("no PUBLISH")
    };
    assert_eq!(
        (publish.packet_id, publish.message.qos, publish.message.retain),
        (7, Qos::AtLeastOnce, false)
    );
    let Incoming::Subscribe { requests, .. } = read(ProtocolVersion::V311, SAMPLES_311[7]).unwrap() else {
        panic!("no SUBSCRIBE")
    };
    assert_eq!(requests[1].filter, "#");
}

#[test]
fn invalid_packets_of_mqtt_3_1_1_are_malformed() {
    for (what, bytes) in [
        ("QoS 3", &b"\x36\x05\0\x01a\0\x01"[..]),
        ("DUP at QoS 0", b"\x38\x03\0\x01a"),
        ("an empty topic name", b"\x30\x02\0\0"),
        ("a wildcard in a topic name", b"\x30\x03\0\x01+"),
        ("packet identifier 0", b"\x32\x05\0\x01a\0\0"),
        ("U+0000", b"\x30\x03\0\x01\0"),
        ("a string that is not UTF-8", b"\x30\x03\0\x01\xff"),
        ("no packet identifier", b"\x40\0"),
        ("flags of PUBREL", b"\x60\x02\0\x01"),
        ("a SUBSCRIBE without a filter", b"\x82\x02\0\x01"),
        ("reserved bits of subscription options", b"\x82\x06\0\x01\0\x01a\x04"),
        ("an UNSUBSCRIBE without a filter", b"\xa2\x02\0\x01"),
        ("a PINGREQ with a body", b"\xc0\x01\0"),
        ("a PINGRESP", b"\xd0\0"),
        ("AUTH, which MQTT 3.1.1 does not have", b"\xf0\0"),
        ("the reserved flag of CONNECT", b"\x10\x0d\0\x04MQTT\x04\x03\0\0\0\x01a"),
        ("a password without a user name", b"\x10\x10\0\x04MQTT\x04\x42\0\0\0\x01a\0\x01p"),
        ("a retained will without a will", b"\x10\x0d\0\x04MQTT\x04\x22\0\0\0\x01a"),
    ] {
        let error = read(ProtocolVersion::V311, bytes).unwrap_err();
        assert_eq!(
            (error.reason, error.version),
            (ReasonCode::MalformedPacket, ProtocolVersion::V311),
            "{what}"
        );
    }
}

#[test]
fn a_persistent_session_of_mqtt_3_1_1_needs_a_client_id() {
    let error = read(ProtocolVersion::V311, b"\x10\x0c\0\x04MQTT\x04\x00\0\0\0\0").unwrap_err();
    assert_eq!(error.reason, ReasonCode::ClientIdNotValid);
    assert!(read(ProtocolVersion::V311, b"\x10\x0c\0\x04MQTT\x04\x02\0\0\0\0").is_ok());
}

#[test]
fn versions_before_3_1_1_are_recognized_and_refused_in_its_format() {
    let first = |bytes: &[u8]| decode_first(&mut BytesMut::from(bytes), u32::MAX).unwrap_err();
    for bytes in [
        &b"\x10\x0f\0\x06MQIsdp\x03\x02\0\0\0\x01a"[..],
        b"\x10\x0d\0\x04MQTT\x03\x02\0\0\0\x01a",
        b"\x10\x0d\0\x04MQTT\x83\x02\0\0\0\x01a",
    ] {
        let error = first(bytes);
        assert_eq!(
            (error.reason, error.version),
            (ReasonCode::UnsupportedProtocolVersion, ProtocolVersion::V311),
            "{bytes:?}"
        );
    }
    for level in [0x06, 0x85] {
        let error = first(&[&b"\x10\x0e\0\x04MQTT"[..], &[level], b"\x02\0\0\0\0\x01a"].concat());
        assert_eq!(
            (error.reason, error.version),
            (ReasonCode::UnsupportedProtocolVersion, ProtocolVersion::V5),
            "{level}"
        );
    }
    assert_eq!(first(b"\x10\x02\0\x04").version, ProtocolVersion::V5);
    let level_5 =
        decode_first(&mut BytesMut::from(&b"\x10\x0e\0\x04MQTT\x05\x02\0\0\0\0\x01a"[..]), u32::MAX);
    let Ok(Decoded::Packet(Incoming::Connect(connect))) = level_5 else { panic!("{level_5:?}") };
    assert_eq!(connect.version, ProtocolVersion::V5);
}

#[test]
fn a_packet_has_room_for_the_maximum_number_of_filters_and_for_no_more() {
    for version in VERSIONS {
        let properties: &[u8] = if version == ProtocolVersion::V5 { b"\0" } else { b"" };
        for (first, filter) in [(0x82, &b"\0\x01a\0"[..]), (0xA2, b"\0\x01a")] {
            let decoded = |count: usize| {
                let body = [&b"\0\x01"[..], properties, &filter.repeat(count)].concat();
                let length = [0, 7, 14].map(|shift| u8::try_from(body.len() >> shift & 0x7F).unwrap());
                let [a, b, c] = length;
                read(version, &[&[first, a | 0x80, b | 0x80, c], &body[..]].concat())
            };
            let filters = match decoded(FILTERS_MAX).unwrap() {
                Incoming::Subscribe { requests, .. } => requests.len(),
                Incoming::Unsubscribe { filters, .. } => filters.len(),
                other => panic!("{other:?}"),
            };
            assert_eq!(filters, FILTERS_MAX);
            assert_eq!(decoded(FILTERS_MAX + 1).unwrap_err().reason, ReasonCode::QuotaExceeded);
        }
    }
}

#[test]
fn debug_output_contains_no_password_and_no_token() {
    let connect = b"\x10\x20\0\x04MQTT\x05\xC2\0\0\x0C\x15\0\x01m\x16\0\x05token\0\0\0\x01u\0\x02pw";
    let auth = b"\xF0\x0E\x19\x0C\x15\0\x01m\x16\0\x05token";
    for bytes in [&connect[..], auth] {
        let text = format!("{:?}", read(ProtocolVersion::V5, bytes).unwrap());
        assert!(text.contains("Sensitive(..)"), "{text}");
        assert!(!text.contains("token") && !text.contains("pw") && !text.contains("112"), "{text}");
    }
}

#[test]
fn vectors() {
    vectors::check(include_str!("../../../../tests/vectors/packet.txt"), run);
}

fn run(case: &Case<'_>) -> String {
    let bytes = case.bytes();
    let decoded = match case.operation() {
        ["v5"] => read(ProtocolVersion::V5, &bytes),
        ["v3.1.1"] => read(ProtocolVersion::V311, &bytes),
        ["first"] => match decode_first(&mut BytesMut::from(&bytes[..]), u32::MAX) {
            Ok(Decoded::Packet(packet)) => Ok(packet),
            Ok(Decoded::Missing(missing)) => return format!("{missing} missing"),
            Err(error) => Err(error),
        },
        _ => case.unknown(),
    };
    match decoded {
        Ok(packet) => describe(packet).join("\n"),
        Err(error) => error.to_string(),
    }
}

/// Returns the lines of a vector: the packet, then what it has beside its mandatory fields.
fn describe(packet: Incoming) -> Vec<String> {
    match packet {
        Incoming::Connect(connect) => describe_connect(*connect),
        Incoming::Publish(Publish { packet_id, topic_alias, message }) => {
            let mut lines = vec![format!("PUBLISH {packet_id}")];
            lines.extend(topic_alias.map(|alias| format!("topic alias {alias}")));
            lines.extend(describe_message(&message));
            lines
        }
        Incoming::PubAck(packet_id) => vec![format!("PUBACK {packet_id}")],
        Incoming::PubRec { packet_id, is_accepted } => {
            vec![format!("PUBREC {packet_id} {}", if is_accepted { "accepted" } else { "rejected" })]
        }
        Incoming::PubRel(packet_id) => vec![format!("PUBREL {packet_id}")],
        Incoming::PubComp(packet_id) => vec![format!("PUBCOMP {packet_id}")],
        Incoming::Subscribe { packet_id, requests } => {
            let mut lines = vec![format!("SUBSCRIBE {packet_id}")];
            lines.extend(requests.into_iter().map(
                |SubscriptionRequest { filter, options, retain_handling }| {
                    let mut line = format!("filter {filter} {:?} {retain_handling:?}", options.qos);
                    line.push_str(if options.no_local { " no-local" } else { "" });
                    line.push_str(if options.retain_as_published { " retain-as-published" } else { "" });
                    line + &options.identifier.map(|id| format!(" identifier {id}")).unwrap_or_default()
                },
            ));
            lines
        }
        Incoming::Unsubscribe { packet_id, filters } => {
            let mut lines = vec![format!("UNSUBSCRIBE {packet_id}")];
            lines.extend(filters.iter().map(|filter| format!("filter {filter}")));
            lines
        }
        Incoming::PingReq => vec!["PINGREQ".to_owned()],
        Incoming::Disconnect { is_normal, session_expiry_s } => {
            let mut lines = vec![format!("DISCONNECT {}", if is_normal { "normal" } else { "with will" })];
            lines.extend(session_expiry_s.map(|seconds| format!("session expiry {seconds}")));
            lines
        }
        Incoming::Auth { is_reauthentication, method, data } => {
            let kind = if is_reauthentication { "re-authenticate" } else { "other" };
            let mut lines = vec![format!("AUTH {kind}")];
            lines.extend(method.map(|method| format!("method {method}")));
            lines.extend(data.map(|data| format!("data {}", escape(&data.into_bytes()))));
            lines
        }
        Incoming::Unexpected(name) => vec![format!("unexpected {name}")],
    }
}

fn describe_connect(connect: Connect) -> Vec<String> {
    let bridge = if connect.is_bridge { " bridge" } else { "" };
    let mut lines = vec![format!("CONNECT {:?}{bridge}", connect.version)];
    if !connect.client_id.is_empty() {
        lines.push(format!("client id {}", connect.client_id));
    }
    lines.push(format!("clean start {}, keep-alive {}", connect.clean_start, connect.keep_alive_s));
    lines.push(format!(
        "session expiry {}, receive maximum {}, topic alias maximum {}",
        connect.session_expiry_s, connect.receive_maximum, connect.topic_alias_max
    ));
    lines.extend(connect.packet_bytes_max.map(|bytes| format!("maximum packet size {bytes}")));
    lines.extend(connect.authentication_method.map(|method| format!("method {method}")));
    lines.extend(connect.authentication_data.map(|data| format!("data {}", escape(&data.into_bytes()))));
    lines.extend(connect.username.map(|username| format!("user {username}")));
    lines.extend(connect.password.map(|password| format!("password {}", escape(&password.into_bytes()))));
    if let Some(Will { message, delay_s }) = connect.will {
        lines.push(format!("will after {delay_s} s"));
        lines.extend(describe_message(&message));
    }
    lines
}

fn describe_message(message: &Message) -> Vec<String> {
    let retain = if message.retain { " retain" } else { "" };
    let mut lines = vec![format!("topic {} {:?}{retain}", message.topic, message.qos)];
    lines.extend(message.response_topic.iter().map(|topic| format!("response topic {topic}")));
    lines.extend(message.correlation.iter().map(|data| format!("correlation data {}", escape(data))));
    lines.extend(message.content_type.iter().map(|text| format!("content type {text}")));
    lines.extend(message.expiry_s.map(|seconds| format!("expiry {seconds}")));
    lines.extend(message.payload_format.map(|format| format!("payload format {format}")));
    lines.extend(message.user_properties.iter().map(|(name, value)| format!("user property {name}={value}")));
    if !message.payload.is_empty() {
        lines.push(format!("payload {}", escape(&message.payload)));
    }
    lines
}
