//! Bytes to packets and back: the only file that names the MQTT crate's types.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use rumqttc::mqttbytes::v5::{
    Auth, AuthProperties, AuthReasonCode, ConnAck, ConnAckProperties, ConnectAuth, ConnectReturnCode,
    Disconnect, DisconnectProperties, DisconnectReasonCode, Packet, PingResp, PubAck, PubAckReason, PubComp,
    PubCompReason, PubRec, PubRecReason, PubRel, PubRelReason, RetainForwardRule, SubAck,
    SubscribeReasonCode, UnsubAck, UnsubAckReason,
};
use rumqttc::mqttbytes::{self, QoS, v5};

use super::dialect::ProtocolVersion;
use super::filter;
use super::intake;
use super::packet::SubscriptionOptions;
use super::packet::{Connect, Fault, Incoming, Publish, RetainHandling, SubscriptionRequest, Will};
use super::reason::Reason;
use super::strict;
use crate::net::Secret;
use crate::protocol::message::{Message, PropertyText, Qos};

/// Payloads up to this size are copied out of the read buffer, so that it can be used again at once.
pub const COPIED_BYTES_MAX: usize = 4096;

/// A payload is copied as well if it is a smaller part than this of the read buffer: what is kept of a message must not
/// keep much more than that alive.
const COPIED_PART: usize = 4;

/// The shortest packet: its kind, and that there is no more.
const HEADER_BYTES_MIN: usize = 2;

/// What is at the start of the bytes that came in.
#[derive(Debug)]
pub enum Decoded {
    /// A packet, taken off.
    Packet(Incoming),
    /// Not a whole packet yet: at least so many bytes are missing.
    Missing(usize),
}

/// The packet does not fit the client's Maximum Packet Size, or has a string that MQTT cannot carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsendable;

/// How many bytes are missing for the packet at the start of `input`; 0 if there are enough.
///
/// # Errors
///
/// A [`Fault`] when no packet can begin like this, or when it announces more than `bytes_max`.
pub fn missing(input: &[u8], bytes_max: u32) -> Result<usize, Fault> {
    match mqttbytes::check(input.iter(), Some(bytes_max)) {
        Ok(_) => Ok(0),
        Err(mqttbytes::Error::InsufficientBytes(missing)) => Ok(missing.max(1)),
        Err(error) => Err(fault(&error)),
    }
}

/// Takes the packet off the start of `input`.
///
/// # Errors
///
/// A [`Fault`] when the bytes are no packet that a client may send, or one larger than `bytes_max`.
pub fn decode(input: &mut BytesMut, bytes_max: u32) -> Result<Decoded, Fault> {
    if input.is_empty() {
        return Ok(Decoded::Missing(HEADER_BYTES_MIN));
    }
    if let Some(publish) = intake::take(input, bytes_max) {
        return Ok(Decoded::Packet(Incoming::Publish(publish)));
    }
    // The other packet that comes with every request, in the one form that all clients have for a success.
    if let [0x40, 0x02, high, low, ..] = **input
        && (high, low) != (0, 0)
        && bytes_max >= 4
    {
        input.advance(4);
        return Ok(Decoded::Packet(Incoming::PubAck(u16::from_be_bytes([high, low]))));
    }
    decode_carefully(input, bytes_max)
}

/// The same for packets of all kinds, and for those with which something is wrong.
///
/// # Errors
///
/// As [`decode`].
pub fn decode_carefully(input: &mut BytesMut, bytes_max: u32) -> Result<Decoded, Fault> {
    match missing(input, bytes_max)? {
        0 => {}
        missing => return Ok(Decoded::Missing(missing)),
    }
    // The crate wants a property length even where MQTT lets it be left out (3.14.2.2.1).
    if let [0xE0, 0x01, reason, ..] = **input {
        drop(input.split_to(3));
        DisconnectReasonCode::try_from(reason).map_err(|error| fault(&error))?;
        return Ok(Decoded::Packet(Incoming::Disconnect { is_normal: reason == 0, session_expiry_s: None }));
    }
    strict::check(input)?;
    let kept = input.capacity();
    let packet = Packet::read(input, Some(bytes_max)).map_err(|error| fault(&error))?;
    incoming(packet, kept).map(Decoded::Packet)
}

fn fault(error: &mqttbytes::Error) -> Fault {
    use mqttbytes::Error as E;
    let reason = match error {
        E::ProtocolViolation(reason) if *reason == DisconnectReasonCode::TopicAliasInvalid => {
            Reason::TopicAliasInvalid
        }
        E::ProtocolViolation(_)
        | E::ProtocolError
        | E::PacketIdZero
        | E::EmptySubscription
        // In the options of a subscription (3.8.3.1).
        | E::InvalidQoS(_)
        | E::InvalidRetainForwardRule(_) => Reason::ProtocolError,
        E::PayloadSizeLimitExceeded { .. } => Reason::PacketTooLarge,
        E::InvalidProtocol | E::InvalidProtocolLevel(_) => Reason::UnsupportedProtocolVersion,
        _ => Reason::MalformedPacket,
    };
    Fault::new(reason, error.to_string())
}

/// `kept` is how large the buffer is that the packet is a part of.
fn incoming(packet: Packet, kept: usize) -> Result<Incoming, Fault> {
    Ok(match packet {
        Packet::Connect(packet, will, login) => {
            Incoming::Connect(Box::new(connect(packet, will, login, kept)?))
        }
        Packet::Publish(packet) => Incoming::Publish(publish(packet, kept)?),
        Packet::PubAck(packet) => Incoming::PubAck(packet.pkid),
        Packet::PubRec(packet) => {
            let is_accepted =
                matches!(packet.reason, PubRecReason::Success | PubRecReason::NoMatchingSubscribers);
            Incoming::PubRec { packet_id: packet.pkid, is_accepted }
        }
        Packet::PubRel(packet) => Incoming::PubRel(packet.pkid),
        Packet::PubComp(packet) => Incoming::PubComp(packet.pkid),
        Packet::Subscribe(packet) => subscribe(packet),
        Packet::Unsubscribe(packet) => {
            if packet.filters.is_empty() {
                return Err(Fault::new(Reason::ProtocolError, "an UNSUBSCRIBE without a filter"));
            }
            Incoming::Unsubscribe { packet_id: packet.pkid, filters: packet.filters }
        }
        Packet::PingReq => Incoming::PingReq,
        Packet::Disconnect(packet) => Incoming::Disconnect {
            is_normal: packet.reason_code == DisconnectReasonCode::NormalDisconnection,
            session_expiry_s: packet.properties.and_then(|properties| properties.session_expiry_interval),
        },
        Packet::Auth(packet) => {
            let properties = packet.properties.unwrap_or_default();
            Incoming::Auth {
                is_new: packet.code == AuthReasonCode::ReAuthenticate,
                method: properties.method,
                data: properties.data.map(secret),
            }
        }
        Packet::ConnAck(_) => Incoming::Unexpected("CONNACK"),
        Packet::SubAck(_) => Incoming::Unexpected("SUBACK"),
        Packet::UnsubAck(_) => Incoming::Unexpected("UNSUBACK"),
        Packet::PingResp => Incoming::Unexpected("PINGRESP"),
    })
}

fn connect(
    packet: v5::Connect,
    will: Option<v5::LastWill>,
    login: ConnectAuth,
    kept: usize,
) -> Result<Connect, Fault> {
    let properties = packet.properties.unwrap_or_default();
    if properties.max_packet_size == Some(0) {
        return Err(Fault::new(Reason::ProtocolError, "a Maximum Packet Size of 0"));
    }
    let (username, password) = match login {
        ConnectAuth::None => (None, None),
        ConnectAuth::Username { username } => (Some(username), None),
        ConnectAuth::Password { password } => (None, Some(secret(password))),
        ConnectAuth::UsernamePassword { username, password } => (Some(username), Some(secret(password))),
    };
    Ok(Connect {
        dialect: ProtocolVersion::Mqtt5,
        client_id: packet.client_id,
        clean_start: packet.clean_start,
        keep_alive_s: packet.keep_alive,
        session_expiry_s: properties.session_expiry_interval.unwrap_or(0),
        receive_maximum: properties.receive_maximum.unwrap_or(u16::MAX),
        packet_bytes_max: properties.max_packet_size,
        topic_alias_max: properties.topic_alias_max.unwrap_or(0),
        authentication_method: properties.authentication_method,
        authentication_data: properties.authentication_data.map(secret),
        username,
        password,
        will: will.map(|will| last_will(will, kept)).transpose()?,
    })
}

fn last_will(packet: v5::LastWill, kept: usize) -> Result<Will, Fault> {
    let mut message = Message {
        topic: text(&packet.topic)?,
        payload: detached(packet.message, kept),
        qos: qos_in(packet.qos),
        retain: packet.retain,
        ..Message::default()
    };
    let mut delay_s = 0;
    if let Some(properties) = packet.properties {
        delay_s = properties.delay_interval.unwrap_or(0);
        message.response_topic = properties.response_topic;
        message.correlation = properties.correlation_data.map(|data| detached(data, kept));
        message.content_type = properties.content_type.map(Into::into);
        message.expiry_s = properties.message_expiry_interval;
        message.payload_format = properties.payload_format_indicator;
        message.user_properties = texts(properties.user_properties);
    }
    check(&message)?;
    if message.topic.is_empty() || filter::has_wildcard(&message.topic) {
        return Err(Fault::new(Reason::TopicNameInvalid, "a will's topic that is empty or has a wildcard"));
    }
    Ok(Will { message, delay_s })
}

fn publish(packet: v5::Publish, kept: usize) -> Result<Publish, Fault> {
    let payload = detached(packet.payload, kept);
    let mut message = Message {
        topic: text(&packet.topic)?,
        payload,
        qos: qos_in(packet.qos),
        retain: packet.retain,
        ..Message::default()
    };
    let mut topic_alias = None;
    if let Some(properties) = packet.properties {
        if !properties.subscription_identifiers.is_empty() {
            return Err(Fault::new(Reason::ProtocolError, "a subscription identifier from a client"));
        }
        topic_alias = properties.topic_alias;
        message.response_topic = properties.response_topic;
        message.correlation = properties.correlation_data.map(|data| detached(data, kept));
        message.content_type = properties.content_type.map(Into::into);
        message.expiry_s = properties.message_expiry_interval;
        message.payload_format = properties.payload_format_indicator;
        message.user_properties = texts(properties.user_properties);
    }
    check(&message)?;
    Ok(Publish { packet_id: packet.pkid, topic_alias, message, has_expired: false })
}

/// Refuses what the crate lets through.
fn check(message: &Message) -> Result<(), Fault> {
    if message.payload_format.is_some_and(|format| format > 1) {
        return Err(Fault::new(Reason::ProtocolError, "a payload format above 1"));
    }
    if message.response_topic.as_ref().is_some_and(|topic| topic.is_empty() || filter::has_wildcard(topic)) {
        return Err(Fault::new(Reason::ProtocolError, "a response topic that is empty or has a wildcard"));
    }
    Ok(())
}

fn subscribe(packet: v5::Subscribe) -> Incoming {
    let identifier = packet
        .properties
        .and_then(|properties| properties.id)
        .and_then(|identifier| u32::try_from(identifier).ok());
    let requests = packet.filters.into_iter().map(|wanted| SubscriptionRequest {
        filter: wanted.path,
        options: SubscriptionOptions {
            qos: qos_in(wanted.qos),
            no_local: wanted.nolocal,
            retain_as_published: wanted.preserve_retain,
            identifier,
        },
        retain_handling: match wanted.retain_forward_rule {
            RetainForwardRule::OnEverySubscribe => RetainHandling::Always,
            RetainForwardRule::OnNewSubscribe => RetainHandling::IfNew,
            RetainForwardRule::Never => RetainHandling::Never,
        },
    });
    Incoming::Subscribe { packet_id: packet.pkid, requests: requests.collect() }
}

fn texts(pairs: Vec<(String, String)>) -> Vec<(PropertyText, PropertyText)> {
    pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn secret(bytes: Bytes) -> Secret {
    Secret::new(bytes.to_vec())
}

fn text(bytes: &[u8]) -> Result<String, Fault> {
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|_| Fault::new(Reason::MalformedPacket, "a topic that is not UTF-8"))
}

/// Bytes that may be kept: a copy, unless they are much and a good part of the `kept` bytes that they keep alive.
#[must_use]
pub fn detached(bytes: Bytes, kept: usize) -> Bytes {
    let is_small = bytes.len() <= COPIED_BYTES_MAX || bytes.len().saturating_mul(COPIED_PART) < kept;
    if is_small { Bytes::copy_from_slice(&bytes) } else { bytes }
}

fn qos_in(qos: QoS) -> Qos {
    match qos {
        QoS::AtMostOnce => Qos::AtMostOnce,
        QoS::AtLeastOnce => Qos::AtLeastOnce,
        QoS::ExactlyOnce => Qos::ExactlyOnce,
    }
}

fn qos_out(qos: Qos) -> QoS {
    match qos {
        Qos::AtMostOnce => QoS::AtMostOnce,
        Qos::AtLeastOnce => QoS::AtLeastOnce,
        Qos::ExactlyOnce => QoS::ExactlyOnce,
    }
}

/// What the CONNACK of an accepted connection says (MQTT 5, 3.2.2).
#[derive(Debug, Default)]
pub struct Accepted {
    /// Whether an earlier session goes on.
    pub session_present: bool,
    /// The client id, if the client left it to the server.
    pub assigned_client_id: Option<String>,
    /// The session expiry, if not the one asked for.
    pub session_expiry_s: Option<u32>,
    /// The keep-alive, if not the one asked for.
    pub keep_alive_s: Option<u16>,
    /// How much the server takes unacknowledged.
    pub receive_maximum: u16,
    /// The largest packet that the server takes, in bytes.
    pub packet_bytes_max: u32,
    /// The greatest topic alias that the server takes.
    pub topic_alias_max: u16,
    /// The method of enhanced authentication that the client came in by.
    pub authentication_method: Option<String>,
}

/// Writes the CONNACK of success.
pub fn encode_connack(accepted: Accepted, output: &mut BytesMut) {
    let properties = ConnAckProperties {
        session_expiry_interval: accepted.session_expiry_s,
        receive_max: Some(accepted.receive_maximum),
        max_packet_size: Some(accepted.packet_bytes_max),
        assigned_client_identifier: accepted.assigned_client_id,
        topic_alias_max: Some(accepted.topic_alias_max),
        server_keep_alive: accepted.keep_alive_s,
        authentication_method: accepted.authentication_method,
        ..no_properties()
    };
    let (session_present, code) = (accepted.session_present, ConnectReturnCode::Success);
    put_control(&Packet::ConnAck(ConnAck { session_present, code, properties: Some(properties) }), output);
}

/// Writes the CONNACK of a refusal, with its reason in words if the client takes so many bytes.
pub fn encode_refusal(reason: Reason, text: &str, bytes_max: Option<u32>, output: &mut BytesMut) {
    let code = match reason {
        Reason::MalformedPacket => ConnectReturnCode::MalformedPacket,
        Reason::ProtocolError => ConnectReturnCode::ProtocolError,
        Reason::UnsupportedProtocolVersion => ConnectReturnCode::UnsupportedProtocolVersion,
        Reason::ClientIdNotValid => ConnectReturnCode::ClientIdentifierNotValid,
        Reason::BadUserNameOrPassword => ConnectReturnCode::BadUserNamePassword,
        Reason::NotAuthorized => ConnectReturnCode::NotAuthorized,
        Reason::ServerBusy => ConnectReturnCode::ServerBusy,
        Reason::ServerShuttingDown => ConnectReturnCode::ServerUnavailable,
        Reason::BadAuthenticationMethod => ConnectReturnCode::BadAuthenticationMethod,
        Reason::TopicNameInvalid => ConnectReturnCode::TopicNameInvalid,
        Reason::PacketTooLarge => ConnectReturnCode::PacketTooLarge,
        Reason::QuotaExceeded => ConnectReturnCode::QuotaExceeded,
        _ => ConnectReturnCode::UnspecifiedError,
    };
    let properties = Some(ConnAckProperties { reason_string: Some(text.to_owned()), ..no_properties() });
    let refusal = |properties| Packet::ConnAck(ConnAck { session_present: false, code, properties });
    if put(&refusal(properties), bytes_max, output).is_err() {
        put_control(&refusal(None), output);
    }
}

/// Writes a DISCONNECT; without its words if they would not fit the client's Maximum Packet Size.
pub fn encode_disconnect(reason: Reason, text: &str, bytes_max: Option<u32>, output: &mut BytesMut) {
    let code =
        DisconnectReasonCode::try_from(reason.code()).unwrap_or(DisconnectReasonCode::UnspecifiedError);
    let properties = DisconnectProperties {
        session_expiry_interval: None,
        reason_string: Some(text.to_owned()),
        user_properties: Vec::new(),
        server_reference: None,
    };
    let in_words = Packet::Disconnect(Disconnect::new_with_properties(code, properties));
    if put(&in_words, bytes_max, output).is_err() {
        // A client that does not even take this is told nothing.
        let _ = put(&Packet::Disconnect(Disconnect::new(code)), bytes_max, output);
    }
}

/// Writes a PUBACK.
pub fn encode_puback(packet_id: u16, reason: Reason, output: &mut BytesMut) {
    let reason = match reason {
        Reason::Success => {
            // Goes out with every answer: two bytes and the id, as the crate has it too.
            output.put_slice(&[0x40, 0x02]);
            output.put_u16(packet_id);
            return;
        }
        Reason::NoMatchingSubscribers => PubAckReason::NoMatchingSubscribers,
        Reason::NotAuthorized => PubAckReason::NotAuthorized,
        Reason::QuotaExceeded => PubAckReason::QuotaExceeded,
        _ => PubAckReason::UnspecifiedError,
    };
    put_control(&Packet::PubAck(PubAck { pkid: packet_id, reason, properties: None }), output);
}

/// Writes a PUBREC.
pub fn encode_pubrec(packet_id: u16, reason: Reason, output: &mut BytesMut) {
    let reason = match reason {
        Reason::Success => PubRecReason::Success,
        Reason::NoMatchingSubscribers => PubRecReason::NoMatchingSubscribers,
        Reason::NotAuthorized => PubRecReason::NotAuthorized,
        Reason::QuotaExceeded => PubRecReason::QuotaExceeded,
        _ => PubRecReason::UnspecifiedError,
    };
    put_control(&Packet::PubRec(PubRec { pkid: packet_id, reason, properties: None }), output);
}

/// Writes a PUBREL; `is_known` is whether the packet id is under way.
pub fn encode_pubrel(packet_id: u16, is_known: bool, output: &mut BytesMut) {
    let reason = if is_known { PubRelReason::Success } else { PubRelReason::PacketIdentifierNotFound };
    put_control(&Packet::PubRel(PubRel { pkid: packet_id, reason, properties: None }), output);
}

/// Writes a PUBCOMP; `is_known` is whether such a message had come in.
pub fn encode_pubcomp(packet_id: u16, is_known: bool, output: &mut BytesMut) {
    let reason = if is_known { PubCompReason::Success } else { PubCompReason::PacketIdentifierNotFound };
    put_control(&Packet::PubComp(PubComp { pkid: packet_id, reason, properties: None }), output);
}

/// Writes a SUBACK: per filter the granted QoS or why not.
pub fn encode_suback(packet_id: u16, results: &[Result<Qos, Reason>], output: &mut BytesMut) {
    let code = |result: &Result<Qos, Reason>| match result {
        Ok(qos) => SubscribeReasonCode::Success(qos_out(*qos)),
        Err(reason) => {
            SubscribeReasonCode::try_from(reason.code()).unwrap_or(SubscribeReasonCode::Unspecified)
        }
    };
    let return_codes = results.iter().map(code).collect();
    put_control(&Packet::SubAck(SubAck { pkid: packet_id, return_codes, properties: None }), output);
}

/// Writes an UNSUBACK: per filter what became of it.
pub fn encode_unsuback(packet_id: u16, results: &[Reason], output: &mut BytesMut) {
    let reason = |result: &Reason| match result {
        Reason::Success => UnsubAckReason::Success,
        Reason::NoSubscriptionExisted => UnsubAckReason::NoSubscriptionExisted,
        _ => UnsubAckReason::ImplementationSpecificError,
    };
    let reasons = results.iter().map(reason).collect();
    put_control(&Packet::UnsubAck(UnsubAck { pkid: packet_id, reasons, properties: None }), output);
}

/// Writes an AUTH of success.
pub fn encode_auth(method: &str, output: &mut BytesMut) {
    let properties = AuthProperties { method: Some(method.to_owned()), ..AuthProperties::default() };
    put_control(&Packet::Auth(Auth::new(AuthReasonCode::Success, Some(properties))), output);
}

/// Writes a PINGRESP.
pub fn encode_pingresp(output: &mut BytesMut) {
    let before = output.len();
    if PingResp::write(output).is_err() {
        output.truncate(before);
    }
}

fn put(packet: &Packet, bytes_max: Option<u32>, output: &mut BytesMut) -> Result<(), Unsendable> {
    let before = output.len();
    packet.write(output, bytes_max).map(drop).map_err(|_| {
        // The crate may have written a part before it saw what is wrong.
        output.truncate(before);
        Unsendable
    })
}

/// For packets made by this broker, of which none can be wrong.
fn put_control(packet: &Packet, output: &mut BytesMut) {
    let sent = put(packet, None, output);
    debug_assert!(sent.is_ok(), "{packet:?}");
}

const fn no_properties() -> ConnAckProperties {
    ConnAckProperties {
        session_expiry_interval: None,
        receive_max: None,
        max_qos: None,
        retain_available: None,
        max_packet_size: None,
        assigned_client_identifier: None,
        topic_alias_max: None,
        reason_string: None,
        user_properties: Vec::new(),
        wildcard_subscription_available: None,
        subscription_identifiers_available: None,
        shared_subscription_available: None,
        server_keep_alive: None,
        response_information: None,
        server_reference: None,
        authentication_method: None,
        authentication_data: None,
    }
}

/// The crate's own types, for tests that play the client.
#[cfg(test)]
pub mod wire {
    pub use rumqttc::mqttbytes::QoS;
    pub use rumqttc::mqttbytes::v5::*;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One packet of each kind with a body, to be damaged.
    fn samples() -> Vec<BytesMut> {
        let connect: &[u8] = &[
            0x10, 0x2A, 0, 4, b'M', b'Q', b'T', b'T', 5, 0xEE, 0, 60, 11, 17, 0, 0, 0, 9, 33, 0, 5, 34, 0, 3,
            0, 1, b'a', 5, 24, 0, 0, 0, 1, 0, 1, b'w', 0, 1, b'm', 0, 1, b'u', 0, 0,
        ];
        let publish: &[u8] = &[0x33, 0x12, 0, 1, b'a', 0, 1, 11, 1, 1, 8, 0, 1, b'r', 9, 0, 2, 1, 2, b'p'];
        let subscribe: &[u8] = &[0x82, 0x0A, 0, 1, 2, 11, 5, 0, 2, b'a', b'/', 0x2D];
        let unsubscribe: &[u8] = &[0xA2, 0x06, 0, 1, 0, 0, 1, b'a'];
        let puback: &[u8] = &[0x40, 0x04, 0, 1, 0x10, 0];
        let pubrel: &[u8] = &[0x62, 0x04, 0, 1, 0x92, 0];
        let disconnect: &[u8] = &[0xE0, 0x07, 4, 5, 17, 0, 0, 0, 0];
        let auth: &[u8] = &[0xF0, 0x06, 0x19, 4, 21, 0, 1, b'x'];
        [connect, publish, subscribe, unsubscribe, puback, pubrel, disconnect, auth]
            .map(BytesMut::from)
            .to_vec()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn damaged_bytes_are_a_fault_or_a_packet_and_never_a_panic(
            sample in 0usize..8,
            damage in proptest::collection::vec((0usize..48, any::<u8>()), 0..4),
            keep in 0usize..48,
        ) {
            let mut input = samples()[sample].clone();
            for (at, byte) in damage {
                if at != 1 && at < input.len() {
                    input[at] = byte;
                }
            }
            if keep > 2 && keep < input.len() {
                input.truncate(keep);
                input[1] = u8::try_from(keep - 2).unwrap();
            }
            let before = input.len();
            match decode(&mut input, 1000) {
                Ok(Decoded::Packet(_)) => prop_assert!(input.len() < before),
                Ok(Decoded::Missing(missing)) => prop_assert!(missing > 0 && input.len() == before),
                Err(fault) => prop_assert!(fault.reason.code() >= 0x80),
            }
        }
    }

    #[test]
    fn the_undamaged_samples_are_packets() {
        for sample in samples() {
            let decoded = decode(&mut sample.clone(), 1000);
            assert!(matches!(decoded, Ok(Decoded::Packet(_))), "{sample:?}: {decoded:?}");
        }
    }

    #[test]
    fn the_fields_of_a_connect_are_read_in_their_order() {
        let head = b"\x10\x20\0\x04MQTT\x05\xf6\0\x3c\x05\x11\0\0\0\x09";
        let fields = b"\0\x01a\0\0\x01w\0\x01m\0\x01u\0\x01p";
        let mut bytes = BytesMut::from(&[&head[..], fields].concat()[..]);
        let decoded = decode(&mut bytes, 1000).unwrap();
        let Decoded::Packet(Incoming::Connect(connect)) = decoded else { panic!("{decoded:?}") };
        assert_eq!((connect.client_id.as_str(), connect.username.as_deref()), ("a", Some("u")));
        let will = connect.will.unwrap().message;
        assert_eq!(
            (will.topic.as_str(), &will.payload[..], will.qos, will.retain),
            ("w", &b"m"[..], Qos::ExactlyOnce, true)
        );
        assert_eq!(connect.password.unwrap().bytes(), b"p");
        assert_eq!((connect.keep_alive_s, connect.session_expiry_s, connect.clean_start), (60, 9, true));
    }

    #[test]
    fn what_is_kept_keeps_little_more_alive() {
        let buffer = Bytes::from(vec![b'x'; 100_000]);
        let is_copy = |bytes: usize, kept| {
            let part = buffer.slice(..bytes);
            detached(part.clone(), kept).as_ptr() != part.as_ptr()
        };
        assert!(is_copy(COPIED_BYTES_MAX, COPIED_BYTES_MAX));
        assert!(is_copy(24_999, 100_000));
        assert!(!is_copy(25_000, 100_000));
        assert!(!is_copy(COPIED_BYTES_MAX + 1, 8_192));
    }

    #[test]
    fn a_disconnect_too_long_for_the_client_goes_without_words() {
        let mut output = BytesMut::new();
        encode_disconnect(Reason::QuotaExceeded, &"long ".repeat(100), Some(50), &mut output);
        assert_eq!(&output[..], [0xE0, 0x02, 0x97, 0x00]);
    }
}
