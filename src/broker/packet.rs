//! The packets that come from a client, as this broker sees them: no type of the codec's crate.

use std::time::Duration;

use super::dialect::ProtocolVersion;
use super::reason::Reason;
use crate::net::Secret;
use crate::protocol::message::{Message, Qos};

/// The most filters of one SUBSCRIBE or UNSUBSCRIBE: there is room for millions, which take many times their bytes.
pub const FILTERS_MAX: usize = 65_536;

/// A packet from a client.
#[derive(Debug)]
pub enum Incoming {
    /// CONNECT.
    Connect(Box<Connect>),
    /// PUBLISH.
    Publish(Publish),
    /// PUBACK.
    PubAck(u16),
    /// PUBREC.
    PubRec {
        /// Which message.
        packet_id: u16,
        /// Whether its reason code is below 0x80.
        is_accepted: bool,
    },
    /// PUBREL.
    PubRel(u16),
    /// PUBCOMP.
    PubComp(u16),
    /// SUBSCRIBE.
    Subscribe {
        /// Of the SUBACK.
        packet_id: u16,
        /// At least one.
        requests: Vec<SubscriptionRequest>,
    },
    /// UNSUBSCRIBE.
    Unsubscribe {
        /// Of the UNSUBACK.
        packet_id: u16,
        /// At least one.
        filters: Vec<String>,
    },
    /// PINGREQ.
    PingReq,
    /// DISCONNECT.
    Disconnect {
        /// Whether the will must not be published: reason code 0x00.
        is_normal: bool,
        /// A new session expiry interval, in seconds.
        session_expiry_s: Option<u32>,
    },
    /// AUTH (MQTT 5, 3.15).
    Auth {
        /// Whether it begins to authenticate again: reason code 0x19.
        is_new: bool,
        /// The method.
        method: Option<String>,
        /// The data.
        data: Option<Secret>,
    },
    /// A packet that only a server sends: its name.
    Unexpected(&'static str),
}

/// CONNECT (MQTT 5, 3.1).
#[derive(Debug)]
pub struct Connect {
    /// The version that the client speaks.
    pub dialect: ProtocolVersion,
    /// May be empty: then the server assigns one.
    pub client_id: String,
    /// To drop an earlier session.
    pub clean_start: bool,
    /// In seconds; 0 is none.
    pub keep_alive_s: u16,
    /// How long the session outlives the connection, in seconds; `u32::MAX` is for ever.
    pub session_expiry_s: u32,
    /// How many messages of QoS 1 and 2 the client takes unacknowledged.
    pub receive_maximum: u16,
    /// The largest packet that the client takes, in bytes.
    pub packet_bytes_max: Option<u32>,
    /// The greatest topic alias that the client takes; 0 is none.
    pub topic_alias_max: u16,
    /// The method of enhanced authentication, if the client wants any.
    pub authentication_method: Option<String>,
    /// The data of enhanced authentication.
    pub authentication_data: Option<Secret>,
    /// The user's name.
    pub username: Option<String>,
    /// The password; it may come without a name.
    pub password: Option<Secret>,
    /// What to publish when the client goes without a word.
    pub will: Option<Will>,
}

/// What is published when a connection ends abnormally (MQTT 5, 3.1.2.5).
#[derive(Clone, Debug)]
pub struct Will {
    /// The message.
    pub message: Message,
    /// How long the client has to come back before it is published, in seconds.
    pub delay_s: u32,
}

/// PUBLISH (MQTT 5, 3.3).
#[derive(Debug)]
pub struct Publish {
    /// 0 with QoS 0, else at least 1.
    pub packet_id: u16,
    /// Stands for a topic, or gives a topic this number; at least 1.
    pub topic_alias: Option<u16>,
    /// The message; its topic is empty if only the alias was sent.
    pub message: Message,
    /// Whether it waited here until its expiry had passed.
    pub has_expired: bool,
}

impl Publish {
    /// It has waited to be handled, and its expiry has run (MQTT 5, 3.3.2.3.3).
    pub fn handle_wait(&mut self, waited: Duration) {
        let Some(expiry_s) = self.message.expiry_s else { return };
        let waited_s = u32::try_from(waited.as_secs()).unwrap_or(u32::MAX);
        // An SDK that counts in whole seconds makes a 0 of half a second.
        self.has_expired = waited_s >= expiry_s.max(1);
        self.message.expiry_s = Some(expiry_s.saturating_sub(waited_s));
    }
}

/// One filter of a SUBSCRIBE (MQTT 5, 3.8.3).
#[derive(Debug)]
pub struct SubscriptionRequest {
    /// As sent, not validated.
    pub filter: String,
    /// The options to subscribe with.
    pub options: SubscriptionOptions,
    /// Which retained messages to send.
    pub retain_handling: RetainHandling,
}

/// The options of a subscription (MQTT 5, 3.8.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionOptions {
    /// The maximum QoS of the messages.
    pub qos: Qos,
    /// Whether the client does not get its own messages.
    pub no_local: bool,
    /// Whether messages keep their retain flag.
    pub retain_as_published: bool,
    /// The Subscription Identifier.
    pub identifier: Option<u32>,
}

/// Whether a subscription brings the retained messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetainHandling {
    /// Each time.
    Always,
    /// Only if the subscription did not exist.
    IfNew,
    /// Not at all.
    Never,
}

/// Why bytes from a client are not a packet to accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The reason code to end the connection with.
    pub reason: Reason,
    /// The same in words.
    pub text: String,
    /// The version in which to say so.
    pub dialect: ProtocolVersion,
}

impl Fault {
    /// A fault of an MQTT 5 client.
    #[must_use]
    pub fn new(reason: Reason, text: impl Into<String>) -> Self {
        Self { reason, text: text.into(), dialect: ProtocolVersion::Mqtt5 }
    }

    /// A packet has more than [`FILTERS_MAX`] filters.
    #[must_use]
    pub fn too_many_filters() -> Self {
        Self::new(Reason::QuotaExceeded, format!("more than {FILTERS_MAX} filters in one packet"))
    }
}
