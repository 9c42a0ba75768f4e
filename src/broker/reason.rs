//! The reason codes of MQTT 5 that this broker gives or understands.

use std::fmt;

/// Why a packet was answered as it was (MQTT 5, 2.4). The number is the one on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// Success, normal disconnection, granted QoS 0.
    Success = 0x00,
    /// The message was taken, but nobody subscribes to it.
    NoMatchingSubscribers = 0x10,
    /// UNSUBSCRIBE from what was not subscribed to.
    NoSubscriptionExisted = 0x11,
    /// None of the others.
    UnspecifiedError = 0x80,
    /// The packet cannot be decoded.
    MalformedPacket = 0x81,
    /// The packet is well formed, but must not come here or like this.
    ProtocolError = 0x82,
    /// The packet is valid, but not accepted by this implementation.
    ImplementationSpecific = 0x83,
    /// Not MQTT 5.
    UnsupportedProtocolVersion = 0x84,
    /// The client id is not allowed.
    ClientIdNotValid = 0x85,
    /// The user name or password is wrong.
    BadUserNameOrPassword = 0x86,
    /// The client may not do this.
    NotAuthorized = 0x87,
    /// The server cannot serve another one now.
    ServerBusy = 0x89,
    /// The server stops.
    ServerShuttingDown = 0x8B,
    /// The authentication method is not known.
    BadAuthenticationMethod = 0x8C,
    /// Nothing was heard for 1.5 times the keep-alive.
    KeepAliveTimeout = 0x8D,
    /// Another connection with the same client id.
    SessionTakenOver = 0x8E,
    /// The filter is not accepted.
    TopicFilterInvalid = 0x8F,
    /// The topic is not accepted.
    TopicNameInvalid = 0x90,
    /// No such packet id is in flight.
    PacketIdNotFound = 0x92,
    /// More unacknowledged messages than the Receive Maximum.
    ReceiveMaximumExceeded = 0x93,
    /// A topic alias out of bounds.
    TopicAliasInvalid = 0x94,
    /// The packet exceeds the Maximum Packet Size.
    PacketTooLarge = 0x95,
    /// A limit of this server is exceeded.
    QuotaExceeded = 0x97,
    /// The operator wants it so.
    AdministrativeAction = 0x98,
    /// The payload is not what its format says.
    PayloadFormatInvalid = 0x99,
}

impl Reason {
    /// The number on the wire.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Whether it says that something failed (MQTT 5, 2.4).
    #[must_use]
    pub fn is_refusal(self) -> bool {
        self.code() >= 0x80
    }
}

impl fmt::Display for Reason {
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
            Self::PayloadFormatInvalid => "payload format invalid",
        };
        write!(f, "{text} (0x{:02X})", self.code())
    }
}
