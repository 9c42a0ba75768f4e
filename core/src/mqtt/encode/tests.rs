//! The encoder, with both decoders on its packets: our own and the MQTT crate's.

use proptest::prelude::*;
use rumqttc::mqttbytes::QoS;
use rumqttc::mqttbytes::v5::{
    AuthReasonCode, ConnectReturnCode, DisconnectReasonCode, Packet, PubAckReason, PubCompReason,
    PubRecReason, PubRelReason, SubscribeReasonCode, UnsubAckReason,
};

use super::super::decode::{Decoded, decode};
use super::super::oracle;
use super::super::packet::{FILTERS_MAX, Incoming, Publish, TopicAlias};
use super::*;
use crate::protocol::UserProperties;
use crate::protocol::message::Message;

const V5: ProtocolVersion = ProtocolVersion::V5;
const V311: ProtocolVersion = ProtocolVersion::V311;

const REASONS: [ReasonCode; 24] = [
    ReasonCode::Success,
    ReasonCode::NoMatchingSubscribers,
    ReasonCode::NoSubscriptionExisted,
    ReasonCode::UnspecifiedError,
    ReasonCode::MalformedPacket,
    ReasonCode::ProtocolError,
    ReasonCode::ImplementationSpecific,
    ReasonCode::UnsupportedProtocolVersion,
    ReasonCode::ClientIdNotValid,
    ReasonCode::BadUserNameOrPassword,
    ReasonCode::NotAuthorized,
    ReasonCode::ServerBusy,
    ReasonCode::ServerShuttingDown,
    ReasonCode::BadAuthenticationMethod,
    ReasonCode::KeepAliveTimeout,
    ReasonCode::SessionTakenOver,
    ReasonCode::TopicFilterInvalid,
    ReasonCode::TopicNameInvalid,
    ReasonCode::PacketIdNotFound,
    ReasonCode::ReceiveMaximumExceeded,
    ReasonCode::TopicAliasInvalid,
    ReasonCode::PacketTooLarge,
    ReasonCode::QuotaExceeded,
    ReasonCode::AdministrativeAction,
];

fn reason() -> impl Strategy<Value = ReasonCode> {
    prop::sample::select(REASONS.to_vec())
}

fn qos() -> impl Strategy<Value = Qos> {
    prop_oneof![Just(Qos::AtMostOnce), Just(Qos::AtLeastOnce), Just(Qos::ExactlyOnce)]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zä$]{0,20}", "[a-z]{120,140}", Just("x".repeat(65_535))]
}

fn some<T: Clone + std::fmt::Debug>(strategy: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    prop::option::of(strategy)
}

prop_compose! {
    fn message()(
        topic in "[a-z/]{1,200}",
        payload in prop_oneof![0_usize..300, 16_000_usize..17_000],
        qos in qos(),
        retain in any::<bool>(),
        response_topic in some("[a-z]{1,20}"),
        correlation in some(prop::collection::vec(any::<u8>(), 0..20)),
        content_type in some(text()),
        expiry_s in some(any::<u32>()),
        payload_format in some(0_u8..2),
        user_properties in prop::collection::vec((text(), text()), 0..4),
    ) -> Message {
        let (payload, correlation) = (vec![b'p'; payload].into(), correlation.map(Into::into));
        let content_type = content_type.map(Into::into);
        let user_properties = user_properties.into_iter().collect();
        Message {
            topic: topic.into(), payload, qos, retain, response_topic, correlation, content_type, expiry_s, payload_format,
            user_properties,
        }
    }
}

/// A message as it was published, with packet identifier 7 if it has one.
fn outgoing(message: &Message) -> OutgoingPublish<'_> {
    OutgoingPublish {
        message,
        qos: message.qos,
        retain: message.retain,
        dup: false,
        packet_id: (message.qos > Qos::AtMostOnce).then_some(7),
        expiry_s: message.expiry_s,
        alias: None,
        subscription_ids: &[],
        bytes_max: None,
    }
}

/// Decodes one packet with the crate, which must use all bytes.
fn by_crate(mut bytes: BytesMut) -> Packet {
    let packet = Packet::read(&mut bytes, None).unwrap();
    assert!(bytes.is_empty(), "{packet:?}");
    packet
}

fn encoded(encode: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut output = BytesMut::new();
    encode(&mut output);
    output
}

proptest! {
    #[test]
    fn a_publish_is_decoded_to_the_same_message(message in message(), dup in any::<bool>()) {
        let dup = dup && message.qos > Qos::AtMostOnce;
        let outgoing = OutgoingPublish { dup, ..outgoing(&message) };
        let expected = || Publish {
            packet_id: outgoing.packet_id.unwrap_or(0), topic_alias: None, message: message.clone(),
        };
        let mut output = BytesMut::new();
        publish(V5, &outgoing, &mut output).unwrap();
        prop_assert_eq!(output[0] & 0b1000 != 0, dup);
        let Packet::Publish(decoded) = by_crate(output.clone()) else { panic!("no PUBLISH") };
        prop_assert_eq!(decoded.dup, dup);
        prop_assert_eq!(oracle::publish(decoded), expected());
        let decoded = decode(V5, &mut output, u32::MAX).unwrap();
        prop_assert_eq!(decoded, Decoded::Packet(Incoming::Publish(expected())));
        prop_assert!(output.is_empty());
    }

    #[test]
    fn a_publish_of_mqtt_3_1_1_is_decoded_to_the_same_message_without_its_properties(message in message()) {
        let mut output = BytesMut::new();
        let ids = [1];
        let outgoing = OutgoingPublish { subscription_ids: &ids, ..outgoing(&message) };
        publish(V311, &outgoing, &mut output).unwrap();
        let message = Message {
            topic: message.topic.clone(), payload: message.payload.clone(), qos: message.qos, retain: message.retain,
            ..Message::default()
        };
        let packet = Incoming::Publish(Publish {
            packet_id: outgoing.packet_id.unwrap_or(0), topic_alias: None, message,
        });
        let by_crate = oracle::decode(V311, &output);
        prop_assert_eq!(by_crate.as_ref(), Ok(&packet));
        prop_assert_eq!(decode(V311, &mut output, u32::MAX).unwrap(), Decoded::Packet(packet));
    }

    #[test]
    fn a_publish_of_exactly_the_maximum_is_written_and_a_longer_one_leaves_the_output_as_it_was(
        message in message(),
        version in prop::sample::select(vec![V5, V311]),
    ) {
        let mut output = BytesMut::from(&b"before"[..]);
        publish(version, &outgoing(&message), &mut output).unwrap();
        let len = u32::try_from(output.len() - 6).unwrap();
        output.truncate(6);
        let too_small = OutgoingPublish { bytes_max: Some(len - 1), ..outgoing(&message) };
        prop_assert_eq!(publish(version, &too_small, &mut output), Err(Unsendable));
        prop_assert_eq!(&output[..], b"before");
        publish(version, &OutgoingPublish { bytes_max: Some(len), ..outgoing(&message) }, &mut output).unwrap();
    }

    #[test]
    fn a_connack_is_decoded_to_the_same_limits(
        session_present in any::<bool>(),
        session_expiry_s in some(any::<u32>()),
        receive_maximum in 1..=u16::MAX,
        packet_bytes_max in 1..=u32::MAX,
        assigned_client_id in some("[a-z]{1,20}"),
        topic_alias_max in any::<u16>(),
        keep_alive_s in some(any::<u16>()),
        authentication_method in some("[A-Z]{1,20}"),
    ) {
        let accepted = ConnAck {
            session_present, session_expiry_s, receive_maximum, packet_bytes_max, assigned_client_id, topic_alias_max,
            keep_alive_s, authentication_method,
        };
        let Packet::ConnAck(decoded) = by_crate(encoded(|output| connack(V5, &accepted, output))) else {
            panic!("no CONNACK")
        };
        prop_assert_eq!((decoded.session_present, decoded.code), (session_present, ConnectReturnCode::Success));
        let properties = decoded.properties.unwrap();
        prop_assert_eq!(properties.session_expiry_interval, session_expiry_s);
        prop_assert_eq!(properties.receive_max, Some(receive_maximum));
        prop_assert_eq!(properties.max_packet_size, Some(packet_bytes_max));
        prop_assert_eq!(properties.assigned_client_identifier, accepted.assigned_client_id.clone());
        prop_assert_eq!(properties.topic_alias_max, Some(topic_alias_max));
        prop_assert_eq!(properties.server_keep_alive, keep_alive_s);
        prop_assert_eq!(properties.authentication_method, accepted.authentication_method.clone());
        let unset = (properties.max_qos, properties.retain_available, properties.reason_string);
        prop_assert_eq!(unset, (None, None, None));
    }

    #[test]
    fn a_rejecting_connack_fits_the_client_by_leaving_its_reason_string_out(
        reason in reason(),
        text in text(),
        bytes_max in some(0..200_u32),
    ) {
        let output = encoded(|output| connack_error(V5, reason, &text, bytes_max, output));
        let bytes = u32::try_from(output.len()).unwrap();
        let Packet::ConnAck(decoded) = by_crate(output) else { panic!("no CONNACK") };
        prop_assert!(!decoded.session_present && decoded.code != ConnectReturnCode::Success);
        match decoded.properties {
            Some(properties) => {
                prop_assert_eq!(properties.reason_string, Some(text));
                prop_assert!(bytes_max.is_none_or(|bytes_max| bytes <= bytes_max));
            }
            // With its Reason String the packet has up to ten bytes more than the text, at these lengths.
            None => prop_assert!(bytes_max.is_some_and(|bytes_max| text.len() + 10 > bytes_max.try_into().unwrap())),
        }
    }

    #[test]
    fn a_disconnect_fits_the_client_or_is_left_out(
        reason in reason(),
        text in text(),
        bytes_max in some(0..200_u32),
    ) {
        let output = encoded(|output| disconnect(V5, reason, &text, bytes_max, output));
        prop_assert!(bytes_max.is_none_or(|bytes_max| output.len() <= bytes_max.try_into().unwrap()));
        if output.is_empty() {
            prop_assert!(bytes_max.unwrap() < 4);
            return Ok(());
        }
        let Packet::Disconnect(decoded) = by_crate(output) else { panic!("no DISCONNECT") };
        let code = decoded.reason_code as u8;
        prop_assert!(code == reason.code() || code == 0x80);
        if let Some(properties) = decoded.properties {
            prop_assert_eq!(properties.reason_string, Some(text));
        }
    }

    #[test]
    fn subscription_results_are_decoded_in_their_order(
        packet_id in 1..=u16::MAX,
        results in prop::collection::vec(prop_oneof![qos().prop_map(Ok), reason().prop_map(Err)], 1..200),
    ) {
        let Packet::SubAck(decoded) = by_crate(encoded(|output| suback(V5, packet_id, &results, output))) else {
            panic!("no SUBACK")
        };
        prop_assert_eq!(decoded.pkid, packet_id);
        let expected: Vec<_> = results.iter().map(|result| match result {
            Ok(Qos::AtMostOnce) => SubscribeReasonCode::Success(QoS::AtMostOnce),
            Ok(Qos::AtLeastOnce) => SubscribeReasonCode::Success(QoS::AtLeastOnce),
            Ok(Qos::ExactlyOnce) => SubscribeReasonCode::Success(QoS::ExactlyOnce),
            Err(reason) if reason.is_error() => SubscribeReasonCode::try_from(reason.code())
                .unwrap_or(SubscribeReasonCode::Unspecified),
            Err(_) => SubscribeReasonCode::Unspecified,
        }).collect();
        prop_assert_eq!(decoded.return_codes, expected);
        let reasons: Vec<_> = results.iter().filter_map(|result| result.err()).collect();
        prop_assume!(!reasons.is_empty());
        let Packet::UnsubAck(decoded) = by_crate(encoded(|output| unsuback(V5, packet_id, &reasons, output))) else {
            panic!("no UNSUBACK")
        };
        let expected: Vec<_> = reasons.iter().map(|reason| match reason {
            ReasonCode::Success => UnsubAckReason::Success,
            ReasonCode::NoSubscriptionExisted => UnsubAckReason::NoSubscriptionExisted,
            _ => UnsubAckReason::ImplementationSpecificError,
        }).collect();
        prop_assert_eq!((decoded.pkid, decoded.reasons), (packet_id, expected));
    }
}

#[test]
fn each_reason_has_a_code_that_its_packet_may_have() {
    for reason in REASONS {
        let error = |output: &mut BytesMut| connack_error(V5, reason, "", None, output);
        let Packet::ConnAck(decoded) = by_crate(encoded(error)) else { panic!("no CONNACK") };
        let expected = match reason {
            ReasonCode::MalformedPacket => ConnectReturnCode::MalformedPacket,
            ReasonCode::ProtocolError => ConnectReturnCode::ProtocolError,
            ReasonCode::UnsupportedProtocolVersion => ConnectReturnCode::UnsupportedProtocolVersion,
            ReasonCode::ClientIdNotValid => ConnectReturnCode::ClientIdentifierNotValid,
            ReasonCode::BadUserNameOrPassword => ConnectReturnCode::BadUserNamePassword,
            ReasonCode::NotAuthorized => ConnectReturnCode::NotAuthorized,
            ReasonCode::ServerBusy => ConnectReturnCode::ServerBusy,
            ReasonCode::ServerShuttingDown => ConnectReturnCode::ServerUnavailable,
            ReasonCode::BadAuthenticationMethod => ConnectReturnCode::BadAuthenticationMethod,
            ReasonCode::TopicNameInvalid => ConnectReturnCode::TopicNameInvalid,
            ReasonCode::PacketTooLarge => ConnectReturnCode::PacketTooLarge,
            ReasonCode::QuotaExceeded => ConnectReturnCode::QuotaExceeded,
            _ => ConnectReturnCode::UnspecifiedError,
        };
        assert_eq!(decoded.code, expected, "{reason}");

        let Packet::Disconnect(decoded) =
            by_crate(encoded(|output| disconnect(V5, reason, "", None, output)))
        else {
            panic!("no DISCONNECT")
        };
        let expected = DisconnectReasonCode::try_from(reason.code());
        assert_eq!(
            decoded.reason_code,
            expected.unwrap_or(DisconnectReasonCode::UnspecifiedError),
            "{reason}"
        );

        let Packet::PubAck(decoded) = by_crate(encoded(|output| puback(V5, 258, reason, output))) else {
            panic!("no PUBACK")
        };
        let expected = match reason {
            ReasonCode::Success => PubAckReason::Success,
            ReasonCode::NoMatchingSubscribers => PubAckReason::NoMatchingSubscribers,
            ReasonCode::ImplementationSpecific => PubAckReason::ImplementationSpecificError,
            ReasonCode::NotAuthorized => PubAckReason::NotAuthorized,
            ReasonCode::QuotaExceeded => PubAckReason::QuotaExceeded,
            _ => PubAckReason::UnspecifiedError,
        };
        assert_eq!((decoded.pkid, decoded.reason, decoded.properties), (258, expected, None), "{reason}");

        let Packet::PubRec(decoded) = by_crate(encoded(|output| pubrec(V5, 258, reason, output))) else {
            panic!("no PUBREC")
        };
        assert_eq!(decoded.pkid, 258);
        assert_eq!(decoded.reason, PubRecReason::try_from(expected as u8).unwrap(), "{reason}");
    }
    for is_known in [true, false] {
        let Packet::PubRel(decoded) = by_crate(encoded(|output| pubrel(V5, 258, is_known, output))) else {
            panic!("no PUBREL")
        };
        assert_eq!((decoded.pkid, decoded.reason == PubRelReason::Success), (258, is_known));
        let Packet::PubComp(decoded) = by_crate(encoded(|output| pubcomp(V5, 258, is_known, output))) else {
            panic!("no PUBCOMP")
        };
        assert_eq!((decoded.pkid, decoded.reason == PubCompReason::Success), (258, is_known));
    }
    assert_eq!(by_crate(encoded(pingresp)), Packet::PingResp);
    let Packet::Auth(decoded) = by_crate(encoded(|output| auth("K8S-SAT", output))) else {
        panic!("no AUTH")
    };
    assert_eq!(decoded.code, AuthReasonCode::Success);
    assert_eq!(decoded.properties.unwrap().method.as_deref(), Some("K8S-SAT"));
}

#[test]
fn acknowledgements_leave_out_the_reason_code_of_a_success() {
    let output = encoded(|output| {
        puback(V5, 258, ReasonCode::Success, output);
        pubrec(V5, 258, ReasonCode::Success, output);
        pubrel(V5, 258, true, output);
        pubcomp(V5, 258, true, output);
        puback(V5, 258, ReasonCode::NotAuthorized, output);
    });
    let expected = b"\x40\x02\x01\x02\x50\x02\x01\x02\x62\x02\x01\x02\x70\x02\x01\x02\x40\x04\x01\x02\x87\0";
    assert_eq!(&output[..], expected);
}

#[test]
fn packets_of_mqtt_3_1_1_have_no_reason_codes_but_those_of_connack_and_suback() {
    let output = encoded(|output| {
        connack(V311, &ConnAck { session_present: true, ..ConnAck::default() }, output);
        connack_error(V311, ReasonCode::BadUserNameOrPassword, "text", None, output);
        connack_error(V311, ReasonCode::MalformedPacket, "text", None, output);
        unsuback(V311, 0x0102, &[ReasonCode::NotAuthorized], output);
        suback(V311, 1, &[Ok(Qos::ExactlyOnce), Err(ReasonCode::QuotaExceeded)], output);
        puback(V311, 3, ReasonCode::NotAuthorized, output);
        pubrec(V311, 3, ReasonCode::NotAuthorized, output);
        pubrel(V311, 3, false, output);
        pubcomp(V311, 3, false, output);
        disconnect(V311, ReasonCode::ServerBusy, "text", None, output);
    });
    let expected = [
        &b"\x20\x02\x01\x00\x20\x02\0\x04\xb0\x02\x01\x02\x90\x04\0\x01\x02\x80"[..],
        b"\x40\x02\0\x03\x50\x02\0\x03\x62\x02\0\x03\x70\x02\0\x03",
    ];
    assert_eq!(&output[..], expected.concat());
}

#[test]
fn the_longest_suback_is_written() {
    let output = encoded(|output| suback(V5, 1, &vec![Ok(Qos::AtMostOnce); FILTERS_MAX], output));
    let Packet::SubAck(decoded) = by_crate(output) else { panic!("no SUBACK") };
    assert_eq!(decoded.return_codes.len(), FILTERS_MAX);
}

#[test]
fn a_text_above_65_535_bytes_cannot_be_sent() {
    let long = || "x".repeat(65_536);
    let property = UserProperties::from_iter([("", long())]);
    for message in [
        Message { topic: long().into(), ..Message::default() },
        Message { content_type: Some(long().into()), ..Message::default() },
        Message { correlation: Some(long().into()), ..Message::default() },
        Message { user_properties: property, ..Message::default() },
    ] {
        let mut output = BytesMut::from(&b"before"[..]);
        assert_eq!(publish(V5, &outgoing(&message), &mut output), Err(Unsendable));
        assert_eq!(&output[..], b"before");
    }
}

#[test]
fn a_reason_string_that_mqtt_cannot_carry_is_left_out() {
    for text in ["\0", &"x".repeat(65_536)] {
        let output = encoded(|output| disconnect(V5, ReasonCode::QuotaExceeded, text, None, output));
        assert_eq!(&output[..], [0xE0, 0x02, 0x97, 0x00]);
        let output = encoded(|output| connack_error(V5, ReasonCode::ServerBusy, text, None, output));
        assert_eq!(&output[..], [0x20, 0x03, 0x00, 0x89, 0x00]);
    }
}

#[test]
fn a_disconnect_above_the_maximum_packet_size_has_no_reason_string() {
    let mut output = BytesMut::new();
    disconnect(V5, ReasonCode::QuotaExceeded, &"long ".repeat(100), Some(50), &mut output);
    assert_eq!(&output[..], [0xE0, 0x02, 0x97, 0x00]);
}

#[test]
fn a_publish_carries_topic_aliases_and_subscription_identifiers() {
    let message = Message { topic: "t".into(), qos: Qos::AtMostOnce, ..Message::default() };
    let ids = [1, 268_435_455];
    let mut output = BytesMut::new();
    for is_new in [true, false] {
        let alias = Some(TopicAlias { number: 258, is_new });
        let outgoing = OutgoingPublish { alias, subscription_ids: &ids, ..outgoing(&message) };
        publish(V5, &outgoing, &mut output).unwrap();
    }
    let properties = b"\x0A\x23\x01\x02\x0B\x01\x0B\xFF\xFF\xFF\x7F";
    let expected = [b"\x30\x0E\0\x01t", &properties[..], b"\x30\x0D\0\0", properties].concat();
    assert_eq!(&output[..], expected);
}
