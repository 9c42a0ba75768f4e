//! Decoding of CONNECT.

use bytes::Bytes;

use crate::mqtt::error::Cause;
use crate::mqtt::packet::{Connect, Sensitive, Will};
use crate::mqtt::property;
use crate::mqtt::reader::{Reader, qos};
use crate::mqtt::version::ProtocolVersion;
use crate::protocol::message::{Message, Qos};

const CONNECT: u8 = 0x10;

const RESERVED: u8 = 0b0000_0001;
const CLEAN_START: u8 = 0b0000_0010;
const WILL: u8 = 0b0000_0100;
const WILL_RETAIN: u8 = 0b0010_0000;
const PASSWORD: u8 = 0b0100_0000;
const USERNAME: u8 = 0b1000_0000;

/// A bridge, which forwards messages in both directions between two brokers, sets this bit of the protocol level. The
/// standard does not have it; Mosquitto's bridges of MQTT 3.1.1 do.
const BRIDGE: u8 = 0x80;

/// Returns the version in which to decode the first packet and to answer it. Names and levels before MQTT 3.1.1 are
/// answered in its format, unknown ones in that of MQTT 5.
pub(super) fn version(first: u8, mut body: Reader<'_>) -> ProtocolVersion {
    let name = body.binary();
    let level = body.u8().map(|level| level & !BRIDGE);
    match (name, level) {
        (Ok(b"MQTT"), Ok(0..=4)) | (Ok(b"MQIsdp"), Ok(_)) if first == CONNECT => ProtocolVersion::V311,
        _ => ProtocolVersion::V5,
    }
}

/// Returns the version of a CONNECT that has arrived in part.
pub(super) fn version_of_packet(input: &[u8]) -> ProtocolVersion {
    let mut body = Reader::new(input);
    match (body.u8(), body.varint()) {
        (Ok(first), Ok(_)) => version(first, body),
        _ => ProtocolVersion::V5,
    }
}

/// Returns how many bytes of a CONNECT, as far as it has arrived, are user name, password and authentication data.
pub(super) fn credential_bytes(input: &[u8]) -> usize {
    let mut bytes = 0;
    // The end of what has arrived. Malformed packets are left to the decoder.
    let _ = count_credentials(Reader::new(input), &mut bytes);
    bytes
}

fn count_credentials(mut packet: Reader<'_>, bytes: &mut usize) -> Result<(), Cause> {
    let packet = &mut packet;
    packet.u8()?;
    packet.varint()?;
    packet.binary()?;
    let is_v5 = packet.u8()? == 5;
    let flags = packet.u8()?;
    packet.u16()?;
    if is_v5 {
        let mut properties = available(packet)?;
        while !properties.is_empty() {
            match properties.u8()? {
                property::SESSION_EXPIRY | property::MAXIMUM_PACKET_SIZE => _ = properties.u32()?,
                property::RECEIVE_MAXIMUM | property::TOPIC_ALIAS_MAXIMUM => _ = properties.u16()?,
                property::REQUEST_RESPONSE_INFORMATION | property::REQUEST_PROBLEM_INFORMATION => {
                    properties.u8()?;
                }
                property::AUTHENTICATION_METHOD => _ = properties.binary()?,
                property::AUTHENTICATION_DATA => count_credential(&mut properties, bytes)?,
                property::USER_PROPERTY => _ = (properties.binary()?, properties.binary()?),
                id => return Err(Cause::PropertyNotAllowed(id)),
            }
        }
    }
    packet.binary()?;
    if flags & WILL != 0 {
        if is_v5 {
            available(packet)?;
        }
        packet.binary()?;
        packet.binary()?;
    }
    for flag in [USERNAME, PASSWORD] {
        if flags & flag != 0 {
            count_credential(packet, bytes)?;
        }
    }
    Ok(())
}

/// Returns the properties, as far as they have arrived.
fn available<'a>(packet: &mut Reader<'a>) -> Result<Reader<'a>, Cause> {
    let length = usize::try_from(packet.varint()?).map_err(|_| Cause::EndsEarly)?;
    Ok(Reader::new(packet.bytes(length.min(packet.len()))?))
}

fn count_credential(reader: &mut Reader<'_>, bytes: &mut usize) -> Result<(), Cause> {
    let length = usize::from(reader.u16()?).min(reader.len());
    *bytes = bytes.saturating_add(reader.bytes(length)?.len());
    Ok(())
}

/// Properties of a CONNECT, without those of its will (MQTT 5, 3.1.2.11).
#[derive(Default)]
struct Properties {
    session_expiry_s: Option<u32>,
    receive_maximum: Option<u16>,
    packet_bytes_max: Option<u32>,
    topic_alias_max: Option<u16>,
    authentication_method: Option<String>,
    authentication_data: Option<Sensitive>,
}

pub(super) fn decode(version: ProtocolVersion, body: &mut Reader<'_>) -> Result<Connect, Cause> {
    let is_v5 = version == ProtocolVersion::V5;
    let is_bridge = match (body.string()?, body.u8()?, version) {
        ("MQTT", 5, ProtocolVersion::V5) => false,
        ("MQTT", level, ProtocolVersion::V311) if level & !BRIDGE == 4 => level & BRIDGE != 0,
        ("MQTT", level, _) => return Err(Cause::ProtocolLevel(level)),
        _ => return Err(Cause::ProtocolName),
    };
    let flags = body.u8()?;
    let has = |flag: u8| flags & flag != 0;
    let will_qos = qos(flags >> 3 & 0b11).ok_or(Cause::ConnectFlags)?;
    let has_lone_will_flag = !has(WILL) && (has(WILL_RETAIN) || will_qos > Qos::AtMostOnce);
    if has(RESERVED) || has_lone_will_flag {
        return Err(Cause::ConnectFlags);
    }
    if !is_v5 && has(PASSWORD) && !has(USERNAME) {
        return Err(Cause::PasswordWithoutUsername);
    }
    let clean_start = has(CLEAN_START);
    let keep_alive_s = body.u16()?;
    let properties = if is_v5 { properties(body)? } else { Properties::default() };
    let client_id = body.string()?;
    if !is_v5 && client_id.is_empty() && !clean_start {
        return Err(Cause::ClientIdMissing);
    }
    let will = if has(WILL) { Some(will(version, body, will_qos, has(WILL_RETAIN))?) } else { None };
    let username = if has(USERNAME) { Some(body.string()?.to_owned()) } else { None };
    let password = if has(PASSWORD) { Some(Sensitive::from(body.binary()?.to_vec())) } else { None };
    // A session of MQTT 3.1.1 ends with its connection or never (MQTT 5, 3.1.2.11.2).
    let session_expiry_s = if is_v5 || clean_start { 0 } else { u32::MAX };
    Ok(Connect {
        version,
        is_bridge,
        client_id: client_id.to_owned(),
        clean_start,
        keep_alive_s,
        session_expiry_s: properties.session_expiry_s.unwrap_or(session_expiry_s),
        receive_maximum: properties.receive_maximum.unwrap_or(u16::MAX),
        packet_bytes_max: properties.packet_bytes_max,
        topic_alias_max: properties.topic_alias_max.unwrap_or(0),
        authentication_method: properties.authentication_method,
        authentication_data: properties.authentication_data,
        username,
        password,
        will,
    })
}

fn properties(body: &mut Reader<'_>) -> Result<Properties, Cause> {
    let mut properties = Properties::default();
    let (mut response_information, mut problem_information) = (None, None);
    property::read_each(body, |id, value| match id {
        property::SESSION_EXPIRY => property::set(&mut properties.session_expiry_s, id, value.u32()?),
        property::RECEIVE_MAXIMUM => match value.u16()? {
            0 => Err(Cause::PropertyValue(id)),
            maximum => property::set(&mut properties.receive_maximum, id, maximum),
        },
        property::MAXIMUM_PACKET_SIZE => match value.u32()? {
            0 => Err(Cause::PropertyValue(id)),
            maximum => property::set(&mut properties.packet_bytes_max, id, maximum),
        },
        property::TOPIC_ALIAS_MAXIMUM => property::set(&mut properties.topic_alias_max, id, value.u16()?),
        // This broker gives no response information, and sends reasons in words only where they are always allowed.
        property::REQUEST_RESPONSE_INFORMATION => {
            property::set(&mut response_information, id, property::flag(id, value)?)
        }
        property::REQUEST_PROBLEM_INFORMATION => {
            property::set(&mut problem_information, id, property::flag(id, value)?)
        }
        property::AUTHENTICATION_METHOD => {
            property::set(&mut properties.authentication_method, id, value.string()?.to_owned())
        }
        property::AUTHENTICATION_DATA => {
            property::set(&mut properties.authentication_data, id, Sensitive::from(value.binary()?.to_vec()))
        }
        property::USER_PROPERTY => property::skip_user_property(value),
        _ => Err(Cause::PropertyNotAllowed(id)),
    })?;
    Ok(properties)
}

fn will(version: ProtocolVersion, body: &mut Reader<'_>, qos: Qos, retain: bool) -> Result<Will, Cause> {
    let mut message = Message { qos, retain, ..Message::default() };
    let mut delay_s = None;
    if version == ProtocolVersion::V5 {
        property::read_each(body, |id, value| match id {
            property::WILL_DELAY => property::set(&mut delay_s, id, value.u32()?),
            _ => property::read_of_message(id, value, &mut message),
        })?;
    }
    message.topic = match body.topic_name() {
        Ok(topic) if topic.is_empty() => return Err(Cause::WillTopic),
        Err(Cause::TopicWildcard) => return Err(Cause::WillTopic),
        topic => topic?,
    };
    message.payload = Bytes::copy_from_slice(body.binary()?);
    Ok(Will { message, delay_s: delay_s.unwrap_or(0) })
}
