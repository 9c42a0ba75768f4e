//! Packets that a client sends, and the contents of those that a server sends.

use std::fmt;

use super::version::ProtocolVersion;
use crate::protocol::message::{Message, Qos};

/// Maximum number of topic filters of one SUBSCRIBE or UNSUBSCRIBE. The largest packet has room for millions, and each
/// takes many times its bytes on the wire.
pub const FILTERS_MAX: usize = 65_536;

/// Maximum number of user properties of one PUBLISH or Will Message. The largest packet has room for millions of empty
/// ones, and every search for one passes those before it.
pub const USER_PROPERTIES_MAX: usize = 8_192;

/// Packet from a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    Connect(Box<Connect>),
    Publish(Publish),
    /// Packet identifier.
    PubAck(u16),
    PubRec {
        packet_id: u16,
        /// Whether the reason code is below 0x80.
        is_accepted: bool,
    },
    /// Packet identifier.
    PubRel(u16),
    /// Packet identifier.
    PubComp(u16),
    Subscribe {
        packet_id: u16,
        /// At least one, at most [`FILTERS_MAX`].
        requests: Vec<SubscriptionRequest>,
    },
    Unsubscribe {
        packet_id: u16,
        /// At least one, at most [`FILTERS_MAX`]; not validated as filters.
        filters: Vec<String>,
    },
    PingReq,
    Disconnect {
        /// Whether the reason code is 0x00: the server then deletes the Will Message (MQTT 5, 3.14.4).
        is_normal: bool,
        /// New session expiry interval in seconds.
        session_expiry_s: Option<u32>,
    },
    Auth {
        /// Whether the reason code is 0x19, re-authenticate.
        is_reauthentication: bool,
        method: Option<String>,
        data: Option<Sensitive>,
    },
    /// Name of a packet type that only a server sends. Its contents are not decoded.
    Unexpected(&'static str),
}

/// CONNECT (MQTT 5, 3.1). A CONNECT of MQTT 3.1.1 has the values that MQTT 5 gives to absent properties.
#[derive(Debug, PartialEq, Eq)]
pub struct Connect {
    pub version: ProtocolVersion,
    /// Whether the client is a bridge of MQTT 3.1.1, which sets the highest bit of the protocol level.
    pub is_bridge: bool,
    /// Empty if the server is to assign one.
    pub client_id: String,
    pub clean_start: bool,
    /// In seconds; 0 turns the keep-alive off.
    pub keep_alive_s: u16,
    /// In seconds; `u32::MAX` is no expiry.
    pub session_expiry_s: u32,
    /// At least 1.
    pub receive_maximum: u16,
    /// Maximum Packet Size of the client in bytes, at least 1.
    pub packet_bytes_max: Option<u32>,
    /// 0 if the client accepts no topic alias.
    pub topic_alias_max: u16,
    pub authentication_method: Option<String>,
    pub authentication_data: Option<Sensitive>,
    pub username: Option<String>,
    /// May be present without a user name (MQTT 5, 3.1.2.9).
    pub password: Option<Sensitive>,
    pub will: Option<Will>,
}

/// Will Message and its delay (MQTT 5, 3.1.2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will {
    pub message: Message,
    /// Will Delay Interval in seconds.
    pub delay_s: u32,
}

/// PUBLISH from a client (MQTT 5, 3.3).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Publish {
    /// 0 at QoS 0, at least 1 otherwise.
    pub packet_id: u16,
    /// At least 1.
    pub topic_alias: Option<u16>,
    /// Its topic is empty if the client sent only the topic alias.
    pub message: Message,
}

/// Topic filter of a SUBSCRIBE with its options (MQTT 5, 3.8.3).
#[derive(Debug, PartialEq, Eq)]
pub struct SubscriptionRequest {
    /// Not validated as a filter.
    pub filter: String,
    pub options: SubscriptionOptions,
    pub retain_handling: RetainHandling,
}

/// Options of a subscription that count for each message (MQTT 5, 3.8.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionOptions {
    /// Maximum QoS of the messages.
    pub qos: Qos,
    /// Whether messages that the subscriber itself published are left out.
    pub no_local: bool,
    /// Whether the RETAIN flag is forwarded as it was published.
    pub retain_as_published: bool,
    /// Subscription Identifier, at least 1.
    pub identifier: Option<u32>,
}

/// Retain Handling option: whether a SUBSCRIBE brings the retained messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetainHandling {
    Always,
    /// Only if the subscription did not exist.
    IfNew,
    Never,
}

/// Password or authentication data. `Debug` does not print the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Sensitive(Vec<u8>);

impl Sensitive {
    /// Returns the memory of the buffer.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Returns the buffer itself: no copy stays behind in memory.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl From<Vec<u8>> for Sensitive {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Sensitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sensitive(..)")
    }
}

/// CONNACK of an accepted connection (MQTT 5, 3.2.2). MQTT 3.1.1 has only the session flag.
#[derive(Debug, Default)]
pub struct ConnAck {
    pub session_present: bool,
    /// Session expiry in seconds, if it is not the one that the client requested.
    pub session_expiry_s: Option<u32>,
    /// Number of PUBLISH of QoS 1 and 2 that the server accepts unacknowledged.
    pub receive_maximum: u16,
    /// Maximum Packet Size of the server in bytes.
    pub packet_bytes_max: u32,
    /// Client id that the server assigned.
    pub assigned_client_id: Option<String>,
    pub topic_alias_max: u16,
    /// Keep-alive in seconds, if it is not the one that the client requested.
    pub keep_alive_s: Option<u16>,
    pub authentication_method: Option<String>,
}

/// PUBLISH to one client.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingPublish<'a> {
    /// Message whose topic, payload and properties are sent. The other fields have precedence over its own.
    pub message: &'a Message,
    pub qos: Qos,
    pub retain: bool,
    /// Whether the PUBLISH was sent before.
    pub dup: bool,
    /// None at QoS 0.
    pub packet_id: Option<u16>,
    /// Remaining message expiry interval in seconds.
    pub expiry_s: Option<u32>,
    pub alias: Option<TopicAlias>,
    /// Identifiers of the matching subscriptions.
    pub subscription_ids: &'a [u32],
    /// Maximum Packet Size of the client in bytes.
    pub bytes_max: Option<u32>,
}

/// Topic alias of an outgoing PUBLISH (MQTT 5, 3.3.2.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicAlias {
    /// At least 1.
    pub number: u16,
    /// Whether the client does not know the alias yet: the PUBLISH then has the topic name too.
    pub is_new: bool,
}
