//! Trace records of the MQTT crate's packets, and the numbers of its reason codes.

use rumqttc::mqttbytes::v5;

use crate::client::authentication::Credentials;
use crate::client::error::ReasonCode;
use crate::client::trace::{ConnectPacket, Packet, Property};

/// A CONNECT without a Maximum Packet Size has no limit (3.1.2.11.4). Ours always has one.
const PACKET_BYTES_UNLIMITED: u32 = u32::MAX;

pub(super) fn traced_connect(connect: &v5::Connect, credentials: &Credentials) -> ConnectPacket {
    let properties = connect.properties.clone().unwrap_or_default();
    let (username, has_password) = match credentials {
        Credentials::Password { username, password } => (Some(username.clone()), password.is_some()),
        Credentials::None | Credentials::Token(_) => (None, false),
    };
    ConnectPacket {
        client_id: connect.client_id.clone(),
        keep_alive_s: connect.keep_alive,
        clean_start: connect.clean_start,
        session_expiry_s: properties.session_expiry_interval.unwrap_or(0),
        packet_bytes_max: properties.max_packet_size.unwrap_or(PACKET_BYTES_UNLIMITED),
        username,
        has_password,
        method: properties.authentication_method,
        data_bytes: properties.authentication_data.map(|data| data.len()),
    }
}

pub(super) fn traced_connack(connack: &v5::ConnAck) -> Packet {
    let mut reason = ReasonCode { code: connack_code(connack.code), text: None };
    let mut properties = Vec::new();
    if let Some(present) = connack.properties.clone() {
        reason.text = present.reason_string;
        let numbers = [
            ("session-expiry", present.session_expiry_interval),
            ("receive-max", present.receive_max.map(u32::from)),
            ("qos-max", present.max_qos.map(u32::from)),
            ("retain", present.retain_available.map(u32::from)),
            ("packet-bytes-max", present.max_packet_size),
            ("topic-alias-max", present.topic_alias_max.map(u32::from)),
            ("wildcard-subscriptions", present.wildcard_subscription_available.map(u32::from)),
            ("subscription-ids", present.subscription_identifiers_available.map(u32::from)),
            ("shared-subscriptions", present.shared_subscription_available.map(u32::from)),
            ("keep-alive", present.server_keep_alive.map(u32::from)),
        ];
        let number = |(name, number): (_, Option<u32>)| Some(Property::Number(name, number?));
        properties.extend(numbers.into_iter().filter_map(number));
        let texts = [
            ("client-id", present.assigned_client_identifier),
            ("response-information", present.response_information),
            ("server-reference", present.server_reference),
            ("method", present.authentication_method),
        ];
        let text = |(name, text): (_, Option<String>)| Some(Property::Text(name, text?));
        properties.extend(texts.into_iter().filter_map(text));
        properties.extend(present.authentication_data.map(|data| Property::Secret("data", data.len())));
        let user = |(name, value)| Property::User(name, value);
        properties.extend(present.user_properties.into_iter().map(user));
    }
    Packet::ConnAck { reason, session_present: connack.session_present, properties }
}

pub(super) fn traced_auth(auth: &v5::Auth) -> Packet {
    let properties = auth.properties.clone().unwrap_or_default();
    let code = match auth.code {
        v5::AuthReasonCode::Success => 0x00,
        v5::AuthReasonCode::Continue => 0x18,
        v5::AuthReasonCode::ReAuthenticate => ReasonCode::REAUTHENTICATE,
    };
    Packet::Auth {
        reason: ReasonCode { code, text: properties.reason },
        method: properties.method,
        data_bytes: properties.data.map(|data| data.len()),
    }
}

/// Returns the number of a CONNACK's reason code. The crate's enum has none.
pub(super) fn connack_code(code: v5::ConnectReturnCode) -> u8 {
    use v5::ConnectReturnCode as Code;
    match code {
        Code::Success => 0x00,
        Code::UnspecifiedError => 0x80,
        Code::MalformedPacket => 0x81,
        Code::ProtocolError => 0x82,
        Code::ImplementationSpecificError => 0x83,
        Code::RefusedProtocolVersion | Code::UnsupportedProtocolVersion => 0x84,
        Code::BadClientId | Code::ClientIdentifierNotValid => 0x85,
        Code::BadUserNamePassword => 0x86,
        Code::NotAuthorized => 0x87,
        Code::ServiceUnavailable | Code::ServerUnavailable => 0x88,
        Code::ServerBusy => 0x89,
        Code::Banned => 0x8A,
        Code::BadAuthenticationMethod => 0x8C,
        Code::TopicNameInvalid => 0x90,
        Code::PacketTooLarge => 0x95,
        Code::QuotaExceeded => 0x97,
        Code::PayloadFormatInvalid => 0x99,
        Code::RetainNotSupported => 0x9A,
        Code::QoSNotSupported => 0x9B,
        Code::UseAnotherServer => 0x9C,
        Code::ServerMoved => 0x9D,
        Code::ConnectionRateExceeded => 0x9F,
    }
}

/// Returns the number of a SUBACK's reason code. The crate's enum has none.
pub(super) fn suback_code(code: v5::SubscribeReasonCode) -> u8 {
    use v5::SubscribeReasonCode as Code;
    match code {
        Code::Success(qos) => qos as u8,
        Code::Failure | Code::Unspecified => 0x80,
        Code::ImplementationSpecific => 0x83,
        Code::NotAuthorized => 0x87,
        Code::TopicFilterInvalid => 0x8F,
        Code::PkidInUse => 0x91,
        Code::QuotaExceeded => 0x97,
        Code::SharedSubscriptionsNotSupported => 0x9E,
        Code::SubscriptionIdNotSupported => 0xA1,
        Code::WildcardSubscriptionsNotSupported => 0xA2,
    }
}
