//! Packets of a server to bytes.

use bytes::{BufMut, BytesMut};

use super::packet::{ConnAck, OutgoingPublish};
use super::property;
use super::reason::ReasonCode;
use super::version::ProtocolVersion;
pub use super::writer::Unsendable;
use super::writer::{Length, PacketSlot, Sink};
use crate::protocol::message::Qos;

const CONNACK: u8 = 0x20;
const PUBLISH: u8 = 0x30;
const PUBACK: u8 = 0x40;
const PUBREC: u8 = 0x50;
const PUBREL: u8 = 0x62;
const PUBCOMP: u8 = 0x70;
const SUBACK: u8 = 0x90;
const UNSUBACK: u8 = 0xB0;
const PINGRESP: u8 = 0xD0;
const DISCONNECT: u8 = 0xE0;
const AUTH: u8 = 0xF0;

const SUCCESS: u8 = ReasonCode::Success as u8;

/// Writes the CONNACK of an accepted connection.
pub fn connack(version: ProtocolVersion, accepted: &ConnAck, output: &mut BytesMut) {
    let flags = u8::from(accepted.session_present);
    if version == ProtocolVersion::V311 {
        output.put_slice(&[CONNACK, 2, flags, SUCCESS]);
        return;
    }
    put_own(CONNACK, &[flags, SUCCESS], output, |sink| put_connack_properties(accepted, sink));
}

/// Writes the CONNACK of a rejected connection. Its Reason String is left out if the packet would exceed `bytes_max`.
///
/// MQTT 3.1.1 has few return codes: where none fits, nothing is written and the connection is only closed.
pub fn connack_error(
    version: ProtocolVersion,
    reason: ReasonCode,
    text: &str,
    bytes_max: Option<u32>,
    output: &mut BytesMut,
) {
    if version == ProtocolVersion::V311 {
        if let Some(code) = return_code(reason) {
            output.put_slice(&[CONNACK, 2, 0, code]);
        }
        return;
    }
    let head = [0, connack_code(reason)];
    if put_with_reason_string(CONNACK, &head, text, bytes_max, output).is_err() {
        put_own(CONNACK, &head, output, |_| {});
    }
}

/// Writes a PUBLISH.
///
/// # Errors
///
/// [`Unsendable`] if it exceeds the client's Maximum Packet Size or one of its texts 65,535 bytes; nothing is written.
pub fn publish(
    version: ProtocolVersion,
    publish: &OutgoingPublish<'_>,
    output: &mut BytesMut,
) -> Result<(), Unsendable> {
    let has_properties = version == ProtocolVersion::V5;
    let message = publish.message;
    let topic = if publish.alias.is_none_or(|alias| alias.is_new) { &*message.topic } else { "" };
    let mut properties = Length::default();
    if has_properties {
        if message.user_properties.encoded().is_none() {
            return Err(Unsendable);
        }
        put_publish_properties(publish, &mut properties);
    }
    let properties_bytes = properties.sendable()?;
    let mut body = Length::default();
    body.text(topic.as_bytes());
    body.add(if publish.packet_id.is_some() { 2 } else { 0 });
    if has_properties {
        body.varint(properties_bytes);
    }
    body.append(&properties);
    let first = PUBLISH | publish_flags(publish);
    let mut place = put_header(first, &body, message.payload.len(), publish.bytes_max, output)?;
    place.text(topic.as_bytes());
    if let Some(packet_id) = publish.packet_id {
        place.raw(&packet_id.to_be_bytes());
    }
    if has_properties {
        place.varint(properties_bytes);
        put_publish_properties(publish, &mut place);
    }
    place.end();
    output.put_slice(&message.payload);
    Ok(())
}

/// Writes a PUBLISH with QoS 1 whose topic, packet identifier and properties are encoded already.
///
/// # Errors
///
/// [`Unsendable`] if it exceeds the Maximum Packet Size; nothing is written.
pub fn publish_encoded(
    head: &[u8],
    payload: &[u8],
    bytes_max: Option<u32>,
    output: &mut BytesMut,
) -> Result<(), Unsendable> {
    let mut body = Length::default();
    body.raw(head);
    let first = PUBLISH | (Qos::AtLeastOnce as u8) << 1;
    put_header(first, &body, payload.len(), bytes_max, output)?.raw(head);
    output.put_slice(payload);
    Ok(())
}

/// Writes a PUBACK.
pub fn puback(version: ProtocolVersion, packet_id: u16, reason: ReasonCode, output: &mut BytesMut) {
    acknowledgement(version, PUBACK, packet_id, publish_code(reason), output);
}

/// Writes a PUBREC.
pub fn pubrec(version: ProtocolVersion, packet_id: u16, reason: ReasonCode, output: &mut BytesMut) {
    acknowledgement(version, PUBREC, packet_id, publish_code(reason), output);
}

/// Writes a PUBREL; `is_known` is whether the message is in flight.
pub fn pubrel(version: ProtocolVersion, packet_id: u16, is_known: bool, output: &mut BytesMut) {
    acknowledgement(version, PUBREL, packet_id, release_code(is_known), output);
}

/// Writes a PUBCOMP; `is_known` is whether the message was received and not yet released.
pub fn pubcomp(version: ProtocolVersion, packet_id: u16, is_known: bool, output: &mut BytesMut) {
    acknowledgement(version, PUBCOMP, packet_id, release_code(is_known), output);
}

/// Writes a SUBACK: for each filter the granted QoS or the reason why the subscription failed.
pub fn suback(
    version: ProtocolVersion,
    packet_id: u16,
    results: &[Result<Qos, ReasonCode>],
    output: &mut BytesMut,
) {
    let code = |result: &Result<Qos, ReasonCode>| match (result, version) {
        (Ok(qos), _) => *qos as u8,
        (Err(reason), ProtocolVersion::V5) => suback_code(*reason),
        (Err(_), ProtocolVersion::V311) => ReasonCode::UnspecifiedError.code(),
    };
    put_results(version, SUBACK, packet_id, results.iter().map(code), output);
}

/// Writes an UNSUBACK: in MQTT 5 with a reason code for each filter.
pub fn unsuback(version: ProtocolVersion, packet_id: u16, results: &[ReasonCode], output: &mut BytesMut) {
    let results = if version == ProtocolVersion::V5 { results } else { &[] };
    put_results(version, UNSUBACK, packet_id, results.iter().map(|reason| unsuback_code(*reason)), output);
}

/// Writes a PINGRESP.
pub fn pingresp(output: &mut BytesMut) {
    output.put_slice(&[PINGRESP, 0]);
}

/// Writes a DISCONNECT. Its Reason String is left out if the packet would exceed `bytes_max`, and the packet if it
/// exceeds that even so. A server of MQTT 3.1.1 sends none.
pub fn disconnect(
    version: ProtocolVersion,
    reason: ReasonCode,
    text: &str,
    bytes_max: Option<u32>,
    output: &mut BytesMut,
) {
    if version == ProtocolVersion::V311 {
        return;
    }
    let head = [disconnect_code(reason)];
    if put_with_reason_string(DISCONNECT, &head, text, bytes_max, output).is_err() {
        let _ = put(DISCONNECT, &head, bytes_max, output, |_| {});
    }
}

/// Writes an AUTH of success, which ends a re-authentication (MQTT 5, 4.12.1).
pub fn auth(method: &str, output: &mut BytesMut) {
    put_own(AUTH, &[SUCCESS], output, |sink| {
        sink.property(property::AUTHENTICATION_METHOD, method.as_bytes())
    });
}

/// Writes a PUBACK, PUBREC, PUBREL or PUBCOMP. The reason code of a success is left out, as by most clients.
fn acknowledgement(version: ProtocolVersion, first: u8, packet_id: u16, code: u8, output: &mut BytesMut) {
    let [high, low] = packet_id.to_be_bytes();
    if code == SUCCESS || version == ProtocolVersion::V311 {
        output.put_slice(&[first, 2, high, low]);
    } else {
        // The last byte is the length of the properties.
        output.put_slice(&[first, 4, high, low, code, 0]);
    }
}

/// Writes a SUBACK or UNSUBACK.
fn put_results(
    version: ProtocolVersion,
    first: u8,
    packet_id: u16,
    codes: impl ExactSizeIterator<Item = u8>,
    output: &mut BytesMut,
) {
    // The packet identifier, and in MQTT 5 the length of the properties.
    let mut head = [0; 3];
    let [high, low, _] = &mut head;
    [*high, *low] = packet_id.to_be_bytes();
    let head = if version == ProtocolVersion::V5 { &head[..] } else { head.split_at(2).0 };
    let mut body = Length::default();
    body.raw(head);
    body.add(codes.len());
    // It has no more codes than its question had filters, `FILTERS_MAX`, so it fits.
    if let Ok(mut place) = put_header(first, &body, 0, None, output) {
        place.raw(head);
        codes.for_each(|code| place.raw(&[code]));
        place.end();
    }
}

fn publish_flags(publish: &OutgoingPublish<'_>) -> u8 {
    u8::from(publish.dup) << 3 | (publish.qos as u8) << 1 | u8::from(publish.retain)
}

fn put_publish_properties(publish: &OutgoingPublish<'_>, sink: &mut impl Sink) {
    let message = publish.message;
    if let Some(format) = message.payload_format {
        sink.raw(&[property::PAYLOAD_FORMAT, format]);
    }
    if let Some([a, b, c, d]) = publish.expiry_s.map(u32::to_be_bytes) {
        sink.raw(&[property::MESSAGE_EXPIRY, a, b, c, d]);
    }
    if let Some([a, b]) = publish.alias.map(|alias| alias.number.to_be_bytes()) {
        sink.raw(&[property::TOPIC_ALIAS, a, b]);
    }
    if let Some(topic) = &message.response_topic {
        sink.property(property::RESPONSE_TOPIC, topic.as_bytes());
    }
    if let Some(correlation) = &message.correlation {
        sink.property(property::CORRELATION_DATA, correlation);
    }
    sink.raw(message.user_properties.encoded().unwrap_or_default());
    for id in publish.subscription_ids {
        sink.raw(&[property::SUBSCRIPTION_ID]);
        sink.varint(*id);
    }
    if let Some(content_type) = &message.content_type {
        sink.property(property::CONTENT_TYPE, content_type.as_bytes());
    }
}

fn put_connack_properties(accepted: &ConnAck, sink: &mut dyn Sink) {
    if let Some([a, b, c, d]) = accepted.session_expiry_s.map(u32::to_be_bytes) {
        sink.raw(&[property::SESSION_EXPIRY, a, b, c, d]);
    }
    let [a, b] = accepted.receive_maximum.to_be_bytes();
    sink.raw(&[property::RECEIVE_MAXIMUM, a, b]);
    let [a, b, c, d] = accepted.packet_bytes_max.to_be_bytes();
    sink.raw(&[property::MAXIMUM_PACKET_SIZE, a, b, c, d]);
    if let Some(client_id) = &accepted.assigned_client_id {
        sink.property(property::ASSIGNED_CLIENT_ID, client_id.as_bytes());
    }
    let [a, b] = accepted.topic_alias_max.to_be_bytes();
    sink.raw(&[property::TOPIC_ALIAS_MAXIMUM, a, b]);
    if let Some([a, b]) = accepted.keep_alive_s.map(u16::to_be_bytes) {
        sink.raw(&[property::SERVER_KEEP_ALIVE, a, b]);
    }
    if let Some(method) = &accepted.authentication_method {
        sink.property(property::AUTHENTICATION_METHOD, method.as_bytes());
    }
}

/// Writes a packet with a Reason String.
fn put_with_reason_string(
    first: u8,
    head: &[u8],
    text: &str,
    bytes_max: Option<u32>,
    output: &mut BytesMut,
) -> Result<(), Unsendable> {
    // No string of MQTT has this character (1.5.4); the text may quote a client.
    if text.contains('\0') {
        return Err(Unsendable);
    }
    put(first, head, bytes_max, output, |sink| sink.property(property::REASON_STRING, text.as_bytes()))
}

/// Writes a packet whose texts are this broker's own, or came in a packet: they always fit.
fn put_own(first: u8, head: &[u8], output: &mut BytesMut, properties: impl Fn(&mut dyn Sink)) {
    let written = put(first, head, None, output, properties);
    debug_assert!(written.is_ok(), "packet type 0x{first:02X}");
}

/// Writes a packet of MQTT 5 that consists of some bytes and properties.
///
/// # Errors
///
/// As [`publish`].
fn put(
    first: u8,
    head: &[u8],
    bytes_max: Option<u32>,
    output: &mut BytesMut,
    properties: impl Fn(&mut dyn Sink),
) -> Result<(), Unsendable> {
    let mut length = Length::default();
    properties(&mut length);
    let properties_bytes = length.sendable()?;
    let mut body = Length::default();
    body.raw(head);
    body.varint(properties_bytes);
    body.append(&length);
    let mut place = put_header(first, &body, 0, bytes_max, output)?;
    place.raw(head);
    place.varint(properties_bytes);
    properties(&mut place);
    place.end();
    Ok(())
}

/// Writes the fixed header for a packet with this body and, behind it, a payload. Returns the place of the body; there is room
/// for the payload.
///
/// # Errors
///
/// As [`publish`].
fn put_header<'a>(
    first: u8,
    body: &Length,
    payload_bytes: usize,
    bytes_max: Option<u32>,
    output: &'a mut BytesMut,
) -> Result<PacketSlot<'a>, Unsendable> {
    let mut rest = Length::default();
    rest.append(body);
    rest.add(payload_bytes);
    let rest_bytes = rest.sendable()?;
    let mut header = Length::default();
    header.raw(&[first]);
    header.varint(rest_bytes);
    rest.append(&header);
    if bytes_max.is_some_and(|bytes_max| rest.exceeds(bytes_max)) {
        return Err(Unsendable);
    }
    header.append(body);
    let mut place = PacketSlot::new(output, header.bytes(), payload_bytes);
    place.raw(&[first]);
    place.varint(rest_bytes);
    Ok(place)
}

/// Returns the return code of MQTT 3.1.1 for a reason, if it has one (3.2.2.3).
fn return_code(reason: ReasonCode) -> Option<u8> {
    match reason {
        ReasonCode::UnsupportedProtocolVersion => Some(1),
        ReasonCode::ClientIdNotValid => Some(2),
        ReasonCode::ServerBusy
        | ReasonCode::ServerShuttingDown
        | ReasonCode::QuotaExceeded
        | ReasonCode::ConnectionRateExceeded => Some(3),
        ReasonCode::BadUserNameOrPassword => Some(4),
        ReasonCode::NotAuthorized | ReasonCode::TopicNameInvalid => Some(5),
        _ => None,
    }
}

/// Returns the reason code of a CONNACK, which has not every reason code (MQTT 5, 3.2.2.2).
fn connack_code(reason: ReasonCode) -> u8 {
    /// Server unavailable; in a DISCONNECT the server's end has a code of its own.
    const SERVER_UNAVAILABLE: u8 = 0x88;
    match reason {
        ReasonCode::ServerShuttingDown => SERVER_UNAVAILABLE,
        ReasonCode::MalformedPacket
        | ReasonCode::ProtocolError
        | ReasonCode::UnsupportedProtocolVersion
        | ReasonCode::ClientIdNotValid
        | ReasonCode::BadUserNameOrPassword
        | ReasonCode::NotAuthorized
        | ReasonCode::ServerBusy
        | ReasonCode::BadAuthenticationMethod
        | ReasonCode::TopicNameInvalid
        | ReasonCode::PacketTooLarge
        | ReasonCode::QuotaExceeded
        | ReasonCode::ConnectionRateExceeded => reason.code(),
        _ => ReasonCode::UnspecifiedError.code(),
    }
}

/// Returns the reason code of a PUBACK or PUBREC (MQTT 5, 3.4.2.1 and 3.5.2.1).
fn publish_code(reason: ReasonCode) -> u8 {
    match reason {
        ReasonCode::Success
        | ReasonCode::NoMatchingSubscribers
        | ReasonCode::ImplementationSpecific
        | ReasonCode::NotAuthorized
        | ReasonCode::QuotaExceeded => reason.code(),
        _ => ReasonCode::UnspecifiedError.code(),
    }
}

/// Returns the reason code of a PUBREL or PUBCOMP (MQTT 5, 3.6.2.1 and 3.7.2.1).
fn release_code(is_known: bool) -> u8 {
    if is_known { SUCCESS } else { ReasonCode::PacketIdNotFound.code() }
}

/// Returns the reason code of a failed subscription (MQTT 5, 3.9.3).
fn suback_code(reason: ReasonCode) -> u8 {
    match reason {
        ReasonCode::ImplementationSpecific
        | ReasonCode::NotAuthorized
        | ReasonCode::TopicFilterInvalid
        | ReasonCode::QuotaExceeded => reason.code(),
        _ => ReasonCode::UnspecifiedError.code(),
    }
}

/// Returns the reason code of one filter of an UNSUBACK (MQTT 5, 3.11.3).
fn unsuback_code(reason: ReasonCode) -> u8 {
    match reason {
        ReasonCode::Success | ReasonCode::NoSubscriptionExisted => reason.code(),
        _ => ReasonCode::ImplementationSpecific.code(),
    }
}

/// Returns the reason code of a DISCONNECT, which has not every reason code (MQTT 5, 3.14.2.1).
fn disconnect_code(reason: ReasonCode) -> u8 {
    match reason {
        ReasonCode::NoMatchingSubscribers
        | ReasonCode::NoSubscriptionExisted
        | ReasonCode::UnsupportedProtocolVersion
        | ReasonCode::ClientIdNotValid
        | ReasonCode::BadUserNameOrPassword
        | ReasonCode::BadAuthenticationMethod
        | ReasonCode::PacketIdNotFound => ReasonCode::UnspecifiedError.code(),
        _ => reason.code(),
    }
}

#[cfg(test)]
mod tests;
