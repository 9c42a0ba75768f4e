//! Bytes from a client to packets, validated while they are decoded.

mod connect;
mod publish;
mod response;

use bytes::{Buf, BytesMut};

use super::error::{Cause, DecodeError};
use super::header::{self, FixedHeader, Framing};
use super::packet::{
    FILTERS_MAX, Incoming, Publish, RetainHandling, Sensitive, SubscriptionOptions, SubscriptionRequest,
};
use super::property;
use super::reader::{Reader, qos};
use super::reason::ReasonCode;
use super::version::ProtocolVersion;
use crate::protocol::message::Qos;
use publish::Sender;
pub use response::{BorrowedResponse, response_of_server};

const PUBACK: u8 = 0x40;

/// Result of decoding the start of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Packet, whose bytes were removed from the input.
    Packet(Incoming),
    /// At least so many more bytes are needed; more than 0.
    Missing(usize),
}

/// Decodes the first packet of a connection. If it is a CONNECT, its protocol level chooses the version.
///
/// # Errors
///
/// As [`decode`]. A CONNECT of MQTT 3.1 or older is an error in the format of MQTT 3.1.1.
///
/// # Examples
///
/// ```
/// # extern crate mqkv_core as mqkv;
/// use bytes::BytesMut;
/// use mqkv::mqtt::decode::{Decoded, decode_first};
/// use mqkv::mqtt::{Incoming, ProtocolVersion};
///
/// let mut input = BytesMut::from(&b"\x10\x0D\0\x04MQTT\x04\x02\0\0\0\x01a"[..]);
/// let Decoded::Packet(Incoming::Connect(connect)) = decode_first(&mut input, 1_000)? else {
///     panic!("no CONNECT");
/// };
/// assert_eq!(connect.version, ProtocolVersion::V311);
/// assert_eq!(connect.client_id, "a");
/// # Ok::<(), mqkv::mqtt::DecodeError>(())
/// ```
pub fn decode_first(input: &mut BytesMut, bytes_max: u32) -> Result<Decoded, DecodeError> {
    let version = match header::read(input, bytes_max, ProtocolVersion::V5)? {
        Framing::Missing(missing) => return Ok(Decoded::Missing(missing)),
        Framing::Whole(header) => connect::version(header.first, body(input, header)),
    };
    decode(version, input, bytes_max)
}

/// Decodes the packet at the start of the input and removes it.
///
/// A PUBLISH copies its payload, or shares the input's buffer if the payload is large enough for that. What the packet
/// allocates is bounded by its bytes.
///
/// # Errors
///
/// The bytes are not a packet that a client may send, or it exceeds `bytes_max`; the input is then unchanged.
///
/// # Examples
///
/// ```
/// # extern crate mqkv_core as mqkv;
/// use bytes::BytesMut;
/// use mqkv::mqtt::decode::{Decoded, decode};
/// use mqkv::mqtt::{Incoming, ProtocolVersion, ReasonCode};
///
/// let mut input = BytesMut::from(&b"\x30\x06\0\x01a\0hi\xC0"[..]);
/// let Decoded::Packet(Incoming::Publish(publish)) = decode(ProtocolVersion::V5, &mut input, 1_000)? else {
///     panic!("no PUBLISH");
/// };
/// assert_eq!((&*publish.message.topic, &publish.message.payload[..]), ("a", &b"hi"[..]));
/// assert_eq!(decode(ProtocolVersion::V5, &mut input, 1_000)?, Decoded::Missing(1));
///
/// let mut input = BytesMut::from(&b"\x30\x04\0\x01#\0"[..]);
/// let error = decode(ProtocolVersion::V5, &mut input, 1_000).unwrap_err();
/// assert_eq!(error.reason, ReasonCode::MalformedPacket);
/// # Ok::<(), mqkv::mqtt::DecodeError>(())
/// ```
pub fn decode(
    version: ProtocolVersion,
    input: &mut BytesMut,
    bytes_max: u32,
) -> Result<Decoded, DecodeError> {
    let header = match header::read(input, bytes_max, version)? {
        Framing::Missing(missing) => return Ok(Decoded::Missing(missing)),
        Framing::Whole(header) => header,
    };
    // MQTT 3.1.1 does not require the shortest length.
    if !header.is_minimal && version == ProtocolVersion::V5 {
        return Err(Cause::IntegerNotMinimal.error(version));
    }
    let body = body(input, header);
    if publish::is_type(header.first) {
        let mut publish = Publish::default();
        let payload_start = publish::decode(Sender::Client, version, header, body, &mut publish)
            .map_err(|cause| cause.error(version))?;
        publish::take(&mut publish, payload_start, header, input);
        return Ok(Decoded::Packet(Incoming::Publish(publish)));
    }
    // Clients send a PUBACK for each response, as often as a PUBLISH. Within `packet` it takes twice as long: every
    // result there has the size of the largest packet, and is moved.
    if header.first == PUBACK {
        let packet_id = puback(version, body).map_err(|cause| cause.error(version))?;
        input.advance(header.packet_bytes);
        return Ok(Decoded::Packet(Incoming::PubAck(packet_id)));
    }
    let packet = packet(version, header.first, body).map_err(|cause| cause.error(version))?;
    input.advance(header.packet_bytes);
    Ok(Decoded::Packet(packet))
}

/// Returns whether the input starts with a PUBLISH, complete or not.
#[must_use]
pub fn is_publish(input: &[u8]) -> bool {
    input.first().is_some_and(|first| publish::is_type(*first))
}

/// Decodes the PUBLISH of a server (MQTT 5) at the start of the input and removes it. It may have subscription
/// identifiers, which are skipped. Returns the number of missing bytes if it is not complete.
///
/// # Errors
///
/// As [`decode`].
pub fn publish_of_server(
    input: &mut BytesMut,
    bytes_max: u32,
) -> Result<Result<Publish, usize>, DecodeError> {
    const VERSION: ProtocolVersion = ProtocolVersion::V5;
    let header = match header::read(input, bytes_max, VERSION)? {
        Framing::Missing(missing) => return Ok(Err(missing)),
        Framing::Whole(header) => header,
    };
    let mut publish = Publish::default();
    let payload_start = publish::decode(Sender::Server, VERSION, header, body(input, header), &mut publish)
        .map_err(|cause| cause.error(VERSION))?;
    publish::take(&mut publish, payload_start, header, input);
    Ok(Ok(publish))
}

/// A PUBLISH that was removed by [`skip_publish_of_server`].
#[derive(Debug, PartialEq, Eq)]
pub struct SkippedPublish {
    /// None at QoS 0.
    pub packet_id: Option<u16>,
    /// None if it is not UTF-8.
    pub topic: Option<String>,
}

/// Removes a PUBLISH that [`publish_of_server`] rejects from the start of the input, and decodes no more of it than its
/// topic name and packet identifier. Returns None, and leaves the input unchanged, if it is not complete, if these two
/// cannot be read, or if its QoS is 2 or 3.
pub fn skip_publish_of_server(input: &mut BytesMut, bytes_max: u32) -> Option<SkippedPublish> {
    let Ok(Framing::Whole(header)) = header::read(input, bytes_max, ProtocolVersion::V5) else { return None };
    if !publish::is_type(header.first) {
        return None;
    }
    let mut body = body(input, header);
    let topic = str::from_utf8(body.binary().ok()?).ok().map(str::to_owned);
    let packet_id = match qos(header.first >> 1 & 0b11)? {
        Qos::AtMostOnce => None,
        Qos::AtLeastOnce => Some(body.packet_id().ok()?),
        Qos::ExactlyOnce => return None,
    };
    input.advance(header.packet_bytes);
    Some(SkippedPublish { packet_id, topic })
}

/// Checks that a CONNECT, as far as it has arrived, has at most `bytes_max` bytes besides its credentials: user name,
/// password and authentication data.
///
/// # Errors
///
/// It has more.
pub fn check_connect(input: &[u8], bytes_max: usize) -> Result<(), DecodeError> {
    if input.len().saturating_sub(connect::credential_bytes(input)) <= bytes_max {
        return Ok(());
    }
    let text = format!("CONNECT has more than {bytes_max} bytes besides its credentials").into();
    Err(DecodeError { reason: ReasonCode::PacketTooLarge, text, version: connect::version_of_packet(input) })
}

/// Returns how many bytes are missing for the packet at the start of the input at least; 0 if it is complete.
///
/// # Errors
///
/// The length is malformed, or the packet exceeds `bytes_max`.
pub fn missing(input: &[u8], bytes_max: u32) -> Result<usize, DecodeError> {
    match header::read(input, bytes_max, ProtocolVersion::V5)? {
        Framing::Missing(missing) => Ok(missing),
        Framing::Whole(_) => Ok(0),
    }
}

/// Returns the packet without its fixed header.
fn body(input: &[u8], header: FixedHeader) -> Reader<'_> {
    // The framing has found the packet complete.
    Reader::new(input.get(header.header_bytes..header.packet_bytes).unwrap_or_default())
}

/// Decodes a packet that is neither PUBLISH nor PUBACK.
fn packet(version: ProtocolVersion, first: u8, mut body: Reader<'_>) -> Result<Incoming, Cause> {
    use ProtocolVersion::{V5, V311};
    let body = &mut body;
    let packet = match (first, version) {
        (0x10, _) => Incoming::Connect(Box::new(connect::decode(version, body)?)),
        (0x50, _) => {
            let (packet_id, reason) = acknowledgement(version, body, is_publish_reason)?;
            Incoming::PubRec { packet_id, is_accepted: reason < 0x80 }
        }
        (0x62, _) => Incoming::PubRel(acknowledgement(version, body, is_release_reason)?.0),
        (0x70, _) => Incoming::PubComp(acknowledgement(version, body, is_release_reason)?.0),
        (0x82, _) => subscribe(version, body)?,
        (0xA2, _) => unsubscribe(version, body)?,
        (0xC0, _) => Incoming::PingReq,
        (0xE0, _) => disconnect(version, body)?,
        (0xF0, V5) => auth(body)?,
        (0x20, V5) => return Ok(Incoming::Unexpected("CONNACK")),
        (0x90, V5) => return Ok(Incoming::Unexpected("SUBACK")),
        (0xB0, V5) => return Ok(Incoming::Unexpected("UNSUBACK")),
        (0xD0, V5) => return Ok(Incoming::Unexpected("PINGRESP")),
        (0x20 | 0x90 | 0xB0 | 0xD0, V311) => return Err(Cause::ServerPacket),
        _ => return Err(Cause::TypeOrFlags),
    };
    body.end()?;
    Ok(packet)
}

fn puback(version: ProtocolVersion, mut body: Reader<'_>) -> Result<u16, Cause> {
    let (packet_id, _) = acknowledgement(version, &mut body, is_publish_reason)?;
    body.end()?;
    Ok(packet_id)
}

/// Decodes the packet identifier and the reason code of a PUBACK, PUBREC, PUBREL or PUBCOMP (MQTT 5, 3.4 to 3.7). The
/// reason code and the properties may be left out.
fn acknowledgement(
    version: ProtocolVersion,
    body: &mut Reader<'_>,
    is_reason: fn(u8) -> bool,
) -> Result<(u16, u8), Cause> {
    let packet_id = body.packet_id()?;
    if body.is_empty() || version == ProtocolVersion::V311 {
        return Ok((packet_id, 0));
    }
    let reason = body.u8()?;
    if !is_reason(reason) {
        return Err(Cause::ReasonCode(reason));
    }
    if !body.is_empty() {
        let mut reason_string = None;
        property::read_each(body, |id, value| match id {
            property::REASON_STRING => property::set(&mut reason_string, id, value.string()?),
            property::USER_PROPERTY => property::skip_user_property(value),
            _ => Err(Cause::PropertyNotAllowed(id)),
        })?;
    }
    Ok((packet_id, reason))
}

/// Returns whether a PUBACK or PUBREC may have this reason code (MQTT 5, 3.4.2.1 and 3.5.2.1).
fn is_publish_reason(code: u8) -> bool {
    matches!(code, 0x00 | 0x10 | 0x80 | 0x83 | 0x87 | 0x90 | 0x91 | 0x97 | 0x99)
}

/// Returns whether a PUBREL or PUBCOMP may have this reason code (MQTT 5, 3.6.2.1 and 3.7.2.1).
fn is_release_reason(code: u8) -> bool {
    matches!(code, 0x00 | 0x92)
}

/// Returns whether a DISCONNECT may have this reason code (MQTT 5, 3.14.2.1). Codes that only a server should send are
/// accepted: a client that sends one disconnects in any case.
fn is_disconnect_reason(code: u8) -> bool {
    matches!(code, 0x00 | 0x04 | 0x80..=0x83 | 0x87 | 0x89 | 0x8B | 0x8D..=0x90 | 0x93..=0xA2)
}

fn subscribe(version: ProtocolVersion, body: &mut Reader<'_>) -> Result<Incoming, Cause> {
    let packet_id = body.packet_id()?;
    let mut identifier = None;
    if version == ProtocolVersion::V5 {
        property::read_each(body, |id, value| match id {
            property::SUBSCRIPTION_ID => match value.varint()? {
                0 => Err(Cause::PropertyValue(id)),
                number => property::set(&mut identifier, id, number),
            },
            property::USER_PROPERTY => property::skip_user_property(value),
            _ => Err(Cause::PropertyNotAllowed(id)),
        })?;
    }
    let mut requests = Vec::new();
    while !body.is_empty() {
        let filter = body.string()?;
        let (options, retain_handling) = subscription_options(version, body.u8()?, identifier)?;
        if requests.len() == FILTERS_MAX {
            return Err(Cause::TooManyFilters);
        }
        requests.push(SubscriptionRequest { filter: filter.to_owned(), options, retain_handling });
    }
    if requests.is_empty() {
        return Err(Cause::FilterMissing);
    }
    Ok(Incoming::Subscribe { packet_id, requests })
}

fn subscription_options(
    version: ProtocolVersion,
    byte: u8,
    identifier: Option<u32>,
) -> Result<(SubscriptionOptions, RetainHandling), Cause> {
    let reserved = if version == ProtocolVersion::V5 { 0b1100_0000 } else { 0b1111_1100 };
    if byte & reserved != 0 {
        return Err(Cause::OptionsReserved);
    }
    let retain_handling = match byte >> 4 {
        0 => RetainHandling::Always,
        1 => RetainHandling::IfNew,
        2 => RetainHandling::Never,
        _ => return Err(Cause::RetainHandling),
    };
    let options = SubscriptionOptions {
        qos: qos(byte & 0b11).ok_or(Cause::SubscriptionQos)?,
        no_local: byte & 0b100 != 0,
        retain_as_published: byte & 0b1000 != 0,
        identifier,
    };
    Ok((options, retain_handling))
}

fn unsubscribe(version: ProtocolVersion, body: &mut Reader<'_>) -> Result<Incoming, Cause> {
    let packet_id = body.packet_id()?;
    if version == ProtocolVersion::V5 {
        property::read_each(body, |id, value| match id {
            property::USER_PROPERTY => property::skip_user_property(value),
            _ => Err(Cause::PropertyNotAllowed(id)),
        })?;
    }
    let mut filters = Vec::new();
    while !body.is_empty() {
        let filter = body.string()?;
        if filters.len() == FILTERS_MAX {
            return Err(Cause::TooManyFilters);
        }
        filters.push(filter.to_owned());
    }
    if filters.is_empty() {
        return Err(Cause::FilterMissing);
    }
    Ok(Incoming::Unsubscribe { packet_id, filters })
}

/// Decodes a DISCONNECT (MQTT 5, 3.14.2). The reason code may be left out, and the properties too.
fn disconnect(version: ProtocolVersion, body: &mut Reader<'_>) -> Result<Incoming, Cause> {
    let mut session_expiry_s = None;
    if body.is_empty() || version == ProtocolVersion::V311 {
        return Ok(Incoming::Disconnect { is_normal: true, session_expiry_s });
    }
    let reason = body.u8()?;
    if !is_disconnect_reason(reason) {
        return Err(Cause::ReasonCode(reason));
    }
    if !body.is_empty() {
        let (mut reason_string, mut server_reference) = (None, None);
        property::read_each(body, |id, value| match id {
            property::SESSION_EXPIRY => property::set(&mut session_expiry_s, id, value.u32()?),
            property::REASON_STRING => property::set(&mut reason_string, id, value.string()?),
            property::SERVER_REFERENCE => property::set(&mut server_reference, id, value.string()?),
            property::USER_PROPERTY => property::skip_user_property(value),
            _ => Err(Cause::PropertyNotAllowed(id)),
        })?;
    }
    Ok(Incoming::Disconnect { is_normal: reason == 0, session_expiry_s })
}

/// Decodes an AUTH (MQTT 5, 3.15.2). Without a reason code it is a success, which only a server sends.
fn auth(body: &mut Reader<'_>) -> Result<Incoming, Cause> {
    if body.is_empty() {
        return Err(Cause::ReasonMissing);
    }
    let reason = body.u8()?;
    if !matches!(reason, 0x00 | 0x18 | 0x19) {
        return Err(Cause::ReasonCode(reason));
    }
    let (mut method, mut data, mut reason_string) = (None, None, None);
    property::read_each(body, |id, value| match id {
        property::AUTHENTICATION_METHOD => property::set(&mut method, id, value.string()?.to_owned()),
        property::AUTHENTICATION_DATA => {
            property::set(&mut data, id, Sensitive::from(value.binary()?.to_vec()))
        }
        property::REASON_STRING => property::set(&mut reason_string, id, value.string()?),
        property::USER_PROPERTY => property::skip_user_property(value),
        _ => Err(Cause::PropertyNotAllowed(id)),
    })?;
    Ok(Incoming::Auth { is_reauthentication: reason == 0x19, method, data })
}

#[cfg(test)]
mod tests;
