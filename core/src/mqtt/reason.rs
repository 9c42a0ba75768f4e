//! Reason codes of MQTT 5.

use std::fmt;

/// Reason code that this broker sends (MQTT 5, 2.4). The discriminant is the byte on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReasonCode {
    /// Also normal disconnection and granted QoS 0.
    Success = 0x00,
    NoMatchingSubscribers = 0x10,
    NoSubscriptionExisted = 0x11,
    UnspecifiedError = 0x80,
    MalformedPacket = 0x81,
    ProtocolError = 0x82,
    ImplementationSpecific = 0x83,
    UnsupportedProtocolVersion = 0x84,
    ClientIdNotValid = 0x85,
    BadUserNameOrPassword = 0x86,
    NotAuthorized = 0x87,
    ServerBusy = 0x89,
    ServerShuttingDown = 0x8B,
    BadAuthenticationMethod = 0x8C,
    KeepAliveTimeout = 0x8D,
    SessionTakenOver = 0x8E,
    TopicFilterInvalid = 0x8F,
    TopicNameInvalid = 0x90,
    PacketIdNotFound = 0x92,
    ReceiveMaximumExceeded = 0x93,
    TopicAliasInvalid = 0x94,
    PacketTooLarge = 0x95,
    QuotaExceeded = 0x97,
    AdministrativeAction = 0x98,
    ConnectionRateExceeded = 0x9F,
}

impl ReasonCode {
    /// Returns the byte on the wire.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns whether the code reports a failure: all codes from 0x80 on do (MQTT 5, 2.4).
    #[must_use]
    pub fn is_error(self) -> bool {
        self.code() >= 0x80
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Success => "success",
            Self::NoMatchingSubscribers => "no matching subscribers",
            Self::NoSubscriptionExisted => "no subscription existed",
            Self::UnspecifiedError => "unspecified error",
            Self::MalformedPacket => "malformed packet",
            Self::ProtocolError => "protocol error",
            Self::ImplementationSpecific => "implementation specific error",
            Self::UnsupportedProtocolVersion => "unsupported protocol version",
            Self::ClientIdNotValid => "client id not valid",
            Self::BadUserNameOrPassword => "bad user name or password",
            Self::NotAuthorized => "not authorized",
            Self::ServerBusy => "server busy",
            Self::ServerShuttingDown => "server shutting down",
            Self::BadAuthenticationMethod => "bad authentication method",
            Self::KeepAliveTimeout => "keep alive timeout",
            Self::SessionTakenOver => "session taken over",
            Self::TopicFilterInvalid => "topic filter invalid",
            Self::TopicNameInvalid => "topic name invalid",
            Self::PacketIdNotFound => "packet id not found",
            Self::ReceiveMaximumExceeded => "receive maximum exceeded",
            Self::TopicAliasInvalid => "topic alias invalid",
            Self::PacketTooLarge => "packet too large",
            Self::QuotaExceeded => "quota exceeded",
            Self::AdministrativeAction => "administrative action",
            Self::ConnectionRateExceeded => "connection rate exceeded",
        };
        write!(f, "{text} (0x{:02X})", self.code())
    }
}
