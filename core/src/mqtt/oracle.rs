//! The MQTT crate's decoder as the oracle of tests: what ours accepts, it decodes alike. The fuzz target includes this
//! file, so it names only what the library exports.

use bytes::BytesMut;
use rumqttc::mqttbytes::QoS;
use rumqttc::mqttbytes::v5::{self, ConnectAuth, Packet};

use super::packet::{
    Connect, Incoming, Publish, RetainHandling, Sensitive, SubscriptionOptions, SubscriptionRequest, Will,
};
use super::version::ProtocolVersion;
use crate::protocol::message::{Message, Qos};

/// Decodes a packet of a client with the crate, or returns why it does not.
///
/// The crate has no MQTT 3.1.1. A packet of that version becomes one of MQTT 5 when empty properties are inserted, which
/// is done here without our decoder.
pub fn decode(version: ProtocolVersion, bytes: &[u8]) -> Result<Incoming, String> {
    let mut input = match version {
        ProtocolVersion::V5 => with_property_length(bytes),
        ProtocolVersion::V311 => as_v5(bytes).ok_or("no fields for the properties")?,
    };
    let packet = Packet::read(&mut input, None).map_err(|error| error.to_string())?;
    if !input.is_empty() {
        return Err("bytes are left".to_owned());
    }
    let mut packet = incoming(packet);
    if let (ProtocolVersion::V311, Incoming::Connect(connect)) = (version, &mut packet) {
        connect.version = version;
        // The level follows the name, of six bytes, and the first byte of the packet with its length.
        let level_at = 7 + bytes.iter().skip(1).take_while(|byte| **byte & 0x80 != 0).count() + 1;
        connect.is_bridge = bytes.get(level_at) == Some(&0x84);
        connect.session_expiry_s = if connect.clean_start { 0 } else { u32::MAX };
    }
    Ok(packet)
}

/// The crate requires the length of the properties of a DISCONNECT where it may be left out (MQTT 5, 3.14.2.2.1).
fn with_property_length(bytes: &[u8]) -> BytesMut {
    match bytes {
        [0xE0, 1, reason] => BytesMut::from(&[0xE0, 2, *reason, 0][..]),
        bytes => BytesMut::from(bytes),
    }
}

fn as_v5(bytes: &[u8]) -> Option<BytesMut> {
    let (first, rest) = bytes.split_first()?;
    let header = rest.iter().position(|byte| byte & 0x80 == 0)?;
    let body = rest.get(header + 1..)?;
    // Where the length of a string is, and where what follows the string begins.
    let behind = |at: usize| {
        let length = u16::from_be_bytes([*body.get(at)?, *body.get(at + 1)?]);
        Some(at + 2 + usize::from(length))
    };
    let mut body_v5 = body.to_vec();
    let mut insert = |at: usize| (at <= body_v5.len()).then(|| body_v5.insert(at, 0));
    match first >> 4 {
        1 => {
            let name_end = behind(0)?;
            let (level, flags) = (*body.get(name_end)?, *body.get(name_end + 1)?);
            if level & 0x7F != 4 {
                return None;
            }
            let client_id_end = behind(name_end + 4)?;
            if flags & 0b100 != 0 {
                insert(client_id_end)?;
            }
            insert(name_end + 4)?;
            *body_v5.get_mut(name_end)? = 5;
        }
        3 => {
            let topic_end = behind(0)?;
            insert(if first & 0b110 == 0 { topic_end } else { topic_end + 2 })?;
        }
        8 | 10 => insert(2)?,
        _ => {}
    }
    let mut packet = BytesMut::from(&[*first][..]);
    let mut length = body_v5.len();
    while length > 0x7F {
        packet.extend_from_slice(&[u8::try_from(length & 0x7F).ok()? | 0x80]);
        length >>= 7;
    }
    packet.extend_from_slice(&[u8::try_from(length).ok()?]);
    packet.extend_from_slice(&body_v5);
    Some(packet)
}

fn incoming(packet: Packet) -> Incoming {
    match packet {
        Packet::Connect(packet, will, login) => Incoming::Connect(Box::new(connect(packet, will, login))),
        Packet::Publish(packet) => Incoming::Publish(publish(packet)),
        Packet::PubAck(packet) => Incoming::PubAck(packet.pkid),
        Packet::PubRec(packet) => {
            Incoming::PubRec { packet_id: packet.pkid, is_accepted: (packet.reason as u8) < 0x80 }
        }
        Packet::PubRel(packet) => Incoming::PubRel(packet.pkid),
        Packet::PubComp(packet) => Incoming::PubComp(packet.pkid),
        Packet::Subscribe(packet) => subscribe(packet),
        Packet::Unsubscribe(packet) => {
            Incoming::Unsubscribe { packet_id: packet.pkid, filters: packet.filters }
        }
        Packet::PingReq => Incoming::PingReq,
        Packet::Disconnect(packet) => Incoming::Disconnect {
            is_normal: packet.reason_code == v5::DisconnectReasonCode::NormalDisconnection,
            session_expiry_s: packet.properties.and_then(|properties| properties.session_expiry_interval),
        },
        Packet::Auth(packet) => {
            let properties = packet.properties.unwrap_or_default();
            Incoming::Auth {
                is_reauthentication: packet.code == v5::AuthReasonCode::ReAuthenticate,
                method: properties.method,
                data: properties.data.map(|data| Sensitive::from(data.to_vec())),
            }
        }
        Packet::ConnAck(_) => Incoming::Unexpected("CONNACK"),
        Packet::SubAck(_) => Incoming::Unexpected("SUBACK"),
        Packet::UnsubAck(_) => Incoming::Unexpected("UNSUBACK"),
        Packet::PingResp => Incoming::Unexpected("PINGRESP"),
    }
}

fn connect(packet: v5::Connect, will: Option<v5::LastWill>, login: ConnectAuth) -> Connect {
    let properties = packet.properties.unwrap_or_default();
    let (username, password) = match login {
        ConnectAuth::None => (None, None),
        ConnectAuth::Username { username } => (Some(username), None),
        ConnectAuth::Password { password } => (None, Some(password)),
        ConnectAuth::UsernamePassword { username, password } => (Some(username), Some(password)),
    };
    Connect {
        version: ProtocolVersion::V5,
        is_bridge: false,
        client_id: packet.client_id,
        clean_start: packet.clean_start,
        keep_alive_s: packet.keep_alive,
        session_expiry_s: properties.session_expiry_interval.unwrap_or(0),
        receive_maximum: properties.receive_maximum.unwrap_or(u16::MAX),
        packet_bytes_max: properties.max_packet_size,
        topic_alias_max: properties.topic_alias_max.unwrap_or(0),
        authentication_method: properties.authentication_method,
        authentication_data: properties.authentication_data.map(|data| Sensitive::from(data.to_vec())),
        username,
        password: password.map(|password| Sensitive::from(password.to_vec())),
        will: will.map(last_will),
    }
}

fn last_will(packet: v5::LastWill) -> Will {
    let mut message = Message {
        topic: String::from_utf8_lossy(&packet.topic).into_owned().into(),
        payload: packet.message,
        qos: qos(packet.qos),
        retain: packet.retain,
        ..Message::default()
    };
    let mut delay_s = 0;
    if let Some(properties) = packet.properties {
        delay_s = properties.delay_interval.unwrap_or(0);
        message.response_topic = properties.response_topic;
        message.correlation = properties.correlation_data;
        message.content_type = properties.content_type.map(Into::into);
        message.expiry_s = properties.message_expiry_interval;
        message.payload_format = properties.payload_format_indicator;
        message.user_properties = properties.user_properties.into_iter().collect();
    }
    Will { message, delay_s }
}

/// Converts a PUBLISH of the crate, in either direction.
pub fn publish(packet: v5::Publish) -> Publish {
    let mut message = Message {
        topic: String::from_utf8_lossy(&packet.topic).into_owned().into(),
        payload: packet.payload,
        qos: qos(packet.qos),
        retain: packet.retain,
        ..Message::default()
    };
    let mut topic_alias = None;
    if let Some(properties) = packet.properties {
        topic_alias = properties.topic_alias;
        message.response_topic = properties.response_topic;
        message.correlation = properties.correlation_data;
        message.content_type = properties.content_type.map(Into::into);
        message.expiry_s = properties.message_expiry_interval;
        message.payload_format = properties.payload_format_indicator;
        message.user_properties = properties.user_properties.into_iter().collect();
    }
    Publish { packet_id: packet.pkid, topic_alias, message }
}

fn subscribe(packet: v5::Subscribe) -> Incoming {
    let identifier = packet.properties.and_then(|properties| properties.id);
    let identifier = identifier.and_then(|identifier| u32::try_from(identifier).ok());
    let requests = packet.filters.into_iter().map(|wanted| SubscriptionRequest {
        filter: wanted.path,
        options: SubscriptionOptions {
            qos: qos(wanted.qos),
            no_local: wanted.nolocal,
            retain_as_published: wanted.preserve_retain,
            identifier,
        },
        retain_handling: match wanted.retain_forward_rule {
            v5::RetainForwardRule::OnEverySubscribe => RetainHandling::Always,
            v5::RetainForwardRule::OnNewSubscribe => RetainHandling::IfNew,
            v5::RetainForwardRule::Never => RetainHandling::Never,
        },
    });
    Incoming::Subscribe { packet_id: packet.pkid, requests: requests.collect() }
}

fn qos(qos: QoS) -> Qos {
    match qos {
        QoS::AtMostOnce => Qos::AtMostOnce,
        QoS::AtLeastOnce => Qos::AtLeastOnce,
        QoS::ExactlyOnce => Qos::ExactlyOnce,
    }
}
