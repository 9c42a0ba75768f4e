//! MQTT 3.1.1: bytes to the same packets as those of MQTT 5, and back without what it does not know.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::codec::Decoded;
use super::dialect::ProtocolVersion;
use super::filter;
use super::packet::SubscriptionOptions;
use super::packet::{
    Connect, FILTERS_MAX, Fault, Incoming, Publish, RetainHandling, SubscriptionRequest, Will,
};
use super::publish::put_varint;
use super::reason::Reason;
use crate::net::Secret;
use crate::protocol::message::{Message, Qos};

const CLEAN_SESSION: u8 = 0b0000_0010;
const WILL: u8 = 0b0000_0100;
const WILL_RETAIN: u8 = 0b0010_0000;
const PASSWORD: u8 = 0b0100_0000;
const USERNAME: u8 = 0b1000_0000;

/// Whether a whole packet is a CONNECT of MQTT 3 or older: then it is answered in its way.
#[must_use]
pub fn is_connect(packet: &[u8]) -> bool {
    let Some(name_at) =
        packet.iter().skip(1).position(|byte| byte & 0x80 == 0).map(|at| at.saturating_add(2))
    else {
        return false;
    };
    let is_named = |name: &[u8], levels: std::ops::RangeInclusive<u8>| {
        let at = packet.get(name_at..).unwrap_or_default();
        // A bridge sets the first bit of its level.
        at.strip_prefix(name).and_then(<[u8]>::first).is_some_and(|level| levels.contains(&(level & 0x7F)))
    };
    is_named(b"\0\x04MQTT", 0..=4) || is_named(b"\0\x06MQIsdp", 0..=0x7F)
}

/// Takes the packet, which is whole, off the start of `input`; `detach` makes a payload independent of it.
///
/// # Errors
///
/// A [`Fault`] when the bytes are no packet that a client of MQTT 3.1.1 may send.
pub fn decode(input: &mut BytesMut, detach: impl Fn(Bytes) -> Bytes) -> Result<Decoded, Fault> {
    let (first, head) = head(input)?;
    let length = input.len().min(head.1);
    let mut body = input.split_to(length).freeze();
    body.advance(head.0.min(length));
    let packet = packet(first, &mut body, detach)?;
    if body.has_remaining() {
        return Err(malformed("bytes behind the end of the packet"));
    }
    Ok(Decoded::Packet(packet))
}

/// The first byte, and the lengths of the header and of the packet with it.
fn head(input: &[u8]) -> Result<(u8, (usize, usize)), Fault> {
    let (first, rest) = input.split_first().ok_or_else(too_short)?;
    let mut length = 0_usize;
    for (byte, (count, shift)) in rest.iter().zip([(2_usize, 0_u32), (3, 7), (4, 14), (5, 21)]) {
        length |= usize::from(byte & 0x7F).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok((*first, (count, count.saturating_add(length))));
        }
    }
    Err(malformed("a length that cannot be"))
}

fn packet(first: u8, body: &mut Bytes, detach: impl Fn(Bytes) -> Bytes) -> Result<Incoming, Fault> {
    Ok(match first {
        0x10 => Incoming::Connect(Box::new(connect(body, detach)?)),
        0x30..=0x3F => Incoming::Publish(publish(first, body, detach)?),
        0x40 => Incoming::PubAck(packet_id(body)?),
        0x50 => Incoming::PubRec { packet_id: packet_id(body)?, is_accepted: true },
        0x62 => Incoming::PubRel(packet_id(body)?),
        0x70 => Incoming::PubComp(packet_id(body)?),
        0x82 => subscribe(body)?,
        0xA2 => {
            let packet_id = packet_id(body)?;
            let mut filters = vec![text(body)?];
            while body.has_remaining() {
                filters.push(text(body)?);
                check_count(filters.len())?;
            }
            Incoming::Unsubscribe { packet_id, filters }
        }
        0xC0 => Incoming::PingReq,
        0xE0 => Incoming::Disconnect { is_normal: true, session_expiry_s: None },
        0x20 => return Err(malformed("a CONNACK from a client")),
        0x90 => return Err(malformed("a SUBACK from a client")),
        0xB0 => return Err(malformed("an UNSUBACK from a client")),
        0xD0 => return Err(malformed("a PINGRESP from a client")),
        _ => return Err(malformed("a packet type or flags that cannot be")),
    })
}

fn connect(body: &mut Bytes, detach: impl Fn(Bytes) -> Bytes) -> Result<Connect, Fault> {
    let name = text(body)?;
    let level = byte(body)?;
    if name != "MQTT" || level != 4 {
        let text = format!("protocol {name} of level {level}, which is not spoken here");
        return Err(Fault {
            reason: Reason::UnsupportedProtocolVersion,
            text,
            dialect: ProtocolVersion::Mqtt311,
        });
    }
    let flags = byte(body)?;
    let keep_alive_s = number(body)?;
    let client_id = text(body)?;
    let has = |flag: u8| flags & flag != 0;
    let will_qos = qos(flags >> 3 & 0b11)?;
    if has(1) || (!has(WILL) && (has(WILL_RETAIN) || will_qos > Qos::AtMostOnce)) {
        return Err(malformed("flags that cannot be"));
    }
    if has(PASSWORD) && !has(USERNAME) {
        return Err(malformed("a password without a user name"));
    }
    let clean_start = has(CLEAN_SESSION);
    if client_id.is_empty() && !clean_start {
        let text = "a session that is to last without a client id".to_owned();
        return Err(Fault { reason: Reason::ClientIdNotValid, text, dialect: ProtocolVersion::Mqtt311 });
    }
    let will = if has(WILL) {
        let topic = topic(body)?;
        let (payload, qos, retain) = (detach(field(body)?), will_qos, has(WILL_RETAIN));
        Some(Will { message: Message { topic, payload, qos, retain, ..Message::default() }, delay_s: 0 })
    } else {
        None
    };
    let username = has(USERNAME).then(|| text(body)).transpose()?;
    let password = has(PASSWORD).then(|| field(body)).transpose()?;
    Ok(Connect {
        dialect: ProtocolVersion::Mqtt311,
        client_id,
        clean_start,
        keep_alive_s,
        // A session lasts for ever or not at all (MQTT 5, 3.1.2.11.2).
        session_expiry_s: if clean_start { 0 } else { u32::MAX },
        receive_maximum: u16::MAX,
        packet_bytes_max: None,
        topic_alias_max: 0,
        authentication_method: None,
        authentication_data: None,
        username,
        password: password.map(|password| Secret::new(password.to_vec())),
        will,
    })
}

fn publish(first: u8, body: &mut Bytes, detach: impl Fn(Bytes) -> Bytes) -> Result<Publish, Fault> {
    let qos = qos(first >> 1 & 0b11)?;
    if qos == Qos::AtMostOnce && first & 0b1000 != 0 {
        return Err(malformed("a repetition at QoS 0"));
    }
    let topic = topic(body)?;
    let packet_id = if qos > Qos::AtMostOnce { packet_id(body)? } else { 0 };
    let payload = detach(body.split_to(body.len()));
    let message = Message { topic, payload, qos, retain: first & 1 != 0, ..Message::default() };
    Ok(Publish { packet_id, topic_alias: None, message, has_expired: false })
}

fn subscribe(body: &mut Bytes) -> Result<Incoming, Fault> {
    let packet_id = packet_id(body)?;
    let mut requests = Vec::new();
    while requests.is_empty() || body.has_remaining() {
        let (filter, qos) = (text(body)?, qos(byte(body)?)?);
        let options =
            SubscriptionOptions { qos, no_local: false, retain_as_published: false, identifier: None };
        requests.push(SubscriptionRequest { filter, options, retain_handling: RetainHandling::Always });
        check_count(requests.len())?;
    }
    Ok(Incoming::Subscribe { packet_id, requests })
}

fn check_count(filters: usize) -> Result<(), Fault> {
    if filters > FILTERS_MAX {
        return Err(Fault { dialect: ProtocolVersion::Mqtt311, ..Fault::too_many_filters() });
    }
    Ok(())
}

fn topic(body: &mut Bytes) -> Result<String, Fault> {
    let topic = text(body)?;
    if topic.is_empty() || filter::has_wildcard(&topic) {
        return Err(malformed("a topic that is empty or has a wildcard"));
    }
    Ok(topic)
}

fn packet_id(body: &mut Bytes) -> Result<u16, Fault> {
    match number(body)? {
        0 => Err(malformed("packet id 0")),
        packet_id => Ok(packet_id),
    }
}

fn qos(bits: u8) -> Result<Qos, Fault> {
    match bits {
        0 => Ok(Qos::AtMostOnce),
        1 => Ok(Qos::AtLeastOnce),
        2 => Ok(Qos::ExactlyOnce),
        _ => Err(malformed("a QoS above 2")),
    }
}

fn byte(body: &mut Bytes) -> Result<u8, Fault> {
    body.try_get_u8().map_err(|_| too_short())
}

fn number(body: &mut Bytes) -> Result<u16, Fault> {
    body.try_get_u16().map_err(|_| too_short())
}

fn field(body: &mut Bytes) -> Result<Bytes, Fault> {
    let length = usize::from(number(body)?);
    if length > body.len() {
        return Err(too_short());
    }
    Ok(body.split_to(length))
}

fn text(body: &mut Bytes) -> Result<String, Fault> {
    let bytes = field(body)?;
    match std::str::from_utf8(&bytes) {
        Ok(text) if !text.contains('\0') => Ok(text.to_owned()),
        _ => Err(malformed("a text that is not UTF-8, or has the character 0")),
    }
}

fn too_short() -> Fault {
    malformed("a packet that ends too soon")
}

fn malformed(text: &str) -> Fault {
    Fault { reason: Reason::MalformedPacket, text: text.to_owned(), dialect: ProtocolVersion::Mqtt311 }
}

/// Writes the CONNACK of success.
pub fn encode_connack(session_present: bool, output: &mut BytesMut) {
    output.put_slice(&[0x20, 2, u8::from(session_present), 0]);
}

/// Writes the CONNACK of a refusal, if there is a code for the reason; otherwise the connection is closed without.
pub fn encode_refusal(reason: Reason, output: &mut BytesMut) {
    let code = match reason {
        Reason::UnsupportedProtocolVersion => 1,
        Reason::ClientIdNotValid => 2,
        Reason::ServerBusy | Reason::ServerShuttingDown | Reason::QuotaExceeded => 3,
        Reason::BadUserNameOrPassword => 4,
        Reason::NotAuthorized | Reason::TopicNameInvalid => 5,
        _ => return,
    };
    output.put_slice(&[0x20, 2, 0, code]);
}

/// Writes a PUBACK, PUBREC, PUBREL, PUBCOMP or UNSUBACK: its first byte, and whose it is.
pub fn encode_acknowledgement(first: u8, packet_id: u16, output: &mut BytesMut) {
    output.put_slice(&[first, 2]);
    output.put_u16(packet_id);
}

/// Writes a SUBACK: per filter the granted QoS, or that it failed.
pub fn encode_suback(packet_id: u16, results: &[Result<Qos, Reason>], output: &mut BytesMut) {
    output.put_u8(0x90);
    put_varint(results.len().saturating_add(2), output);
    output.put_u16(packet_id);
    output.extend(results.iter().map(|result| result.map_or(0x80, |qos| qos as u8)));
}

#[cfg(test)]
mod tests;
