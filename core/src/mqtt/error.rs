//! Errors of the decoder.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use super::packet::{FILTERS_MAX, USER_PROPERTIES_MAX};
use super::reason::ReasonCode;
use super::version::ProtocolVersion;

/// Reason to end the connection of a client whose bytes are not a valid packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Reason code for the CONNACK or DISCONNECT.
    pub reason: ReasonCode,
    /// Cause in words, for the log and for a Reason String.
    pub text: Cow<'static, str>,
    /// Protocol version to answer in: the client's, as far as its bytes show it.
    pub version: ProtocolVersion,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.text)
    }
}

impl Error for DecodeError {}

/// Cause of a [`DecodeError`].
///
/// Two bytes, so that a result of the reader stays in registers: with a `DecodeError` in each of them a PUBLISH takes
/// longer to decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    TypeOrFlags,
    ServerPacket,
    EndsEarly,
    TrailingBytes,
    IntegerTooLong,
    IntegerNotMinimal,
    NotUtf8,
    NullCharacter,
    TopicWildcard,
    TopicEmpty,
    QosReserved,
    DuplicateAtQos0,
    PacketIdZero,
    PropertyNotAllowed(u8),
    PropertyRepeated(u8),
    PropertyValue(u8),
    TopicAliasZero,
    SubscriptionIdFromClient,
    ReasonCode(u8),
    ReasonMissing,
    FilterMissing,
    TooManyFilters,
    TooManyUserProperties,
    OptionsReserved,
    SubscriptionQos,
    RetainHandling,
    ProtocolName,
    ProtocolLevel(u8),
    ConnectFlags,
    WillTopic,
    PasswordWithoutUsername,
    ClientIdMissing,
}

impl Cause {
    /// Returns the reason code, as MQTT 5 distinguishes malformed packets from protocol errors (4.13.1). MQTT 3.1.1
    /// knows neither, only the return codes of CONNACK.
    fn reason(self, version: ProtocolVersion) -> ReasonCode {
        match self {
            Self::ProtocolName | Self::ProtocolLevel(_) => ReasonCode::UnsupportedProtocolVersion,
            Self::ClientIdMissing => ReasonCode::ClientIdNotValid,
            Self::TooManyFilters | Self::TooManyUserProperties => ReasonCode::QuotaExceeded,
            _ if version == ProtocolVersion::V311 => ReasonCode::MalformedPacket,
            Self::WillTopic => ReasonCode::TopicNameInvalid,
            Self::TopicAliasZero => ReasonCode::TopicAliasInvalid,
            Self::PacketIdZero
            | Self::PropertyRepeated(_)
            | Self::PropertyValue(_)
            | Self::SubscriptionIdFromClient
            | Self::ReasonMissing
            | Self::FilterMissing
            | Self::SubscriptionQos
            | Self::RetainHandling => ReasonCode::ProtocolError,
            _ => ReasonCode::MalformedPacket,
        }
    }

    fn text(self) -> Cow<'static, str> {
        let text = match self {
            Self::TypeOrFlags => "packet type or its flags are reserved",
            Self::ServerPacket => "only a server sends this packet type",
            Self::EndsEarly => "packet ends before its last field",
            Self::TrailingBytes => "packet has bytes after its last field",
            Self::IntegerTooLong => "variable byte integer has more than four bytes",
            Self::IntegerNotMinimal => "variable byte integer has more bytes than it needs",
            Self::NotUtf8 => "string is not UTF-8",
            Self::NullCharacter => "string contains U+0000",
            Self::TopicWildcard => "topic name contains a wildcard",
            Self::TopicEmpty => "topic name is empty",
            Self::QosReserved => "QoS is 3",
            Self::DuplicateAtQos0 => "DUP flag is set at QoS 0",
            Self::PacketIdZero => "packet identifier is 0",
            Self::PropertyNotAllowed(id) => return format!("property 0x{id:02X} is not allowed here").into(),
            Self::PropertyRepeated(id) => return format!("property 0x{id:02X} is repeated").into(),
            Self::PropertyValue(id) => return format!("property 0x{id:02X} has an invalid value").into(),
            Self::TopicAliasZero => "topic alias is 0",
            Self::SubscriptionIdFromClient => "PUBLISH of a client has a subscription identifier",
            Self::ReasonCode(code) => return format!("reason code 0x{code:02X} is not allowed here").into(),
            Self::ReasonMissing => "AUTH has no reason code",
            Self::FilterMissing => "packet has no topic filter",
            Self::TooManyFilters => {
                return format!("packet has more than {FILTERS_MAX} topic filters").into();
            }
            Self::TooManyUserProperties => {
                return format!("packet has more than {USER_PROPERTIES_MAX} user properties").into();
            }
            Self::OptionsReserved => "reserved bits of subscription options are set",
            Self::SubscriptionQos => "QoS of a subscription is 3",
            Self::RetainHandling => "retain handling of a subscription is 3",
            Self::ProtocolName => "protocol name is not MQTT",
            Self::ProtocolLevel(level) => return format!("protocol level {level} is not supported").into(),
            Self::ConnectFlags => "connect flags are reserved or contradict each other",
            Self::WillTopic => "topic name of the Will Message is empty or contains a wildcard",
            Self::PasswordWithoutUsername => "CONNECT has a password without a user name",
            Self::ClientIdMissing => "persistent session needs a client id",
        };
        Cow::Borrowed(text)
    }

    /// Returns the error for a client of this version.
    #[cold]
    pub(super) fn error(self, version: ProtocolVersion) -> DecodeError {
        DecodeError { reason: self.reason(version), text: self.text(), version }
    }
}
