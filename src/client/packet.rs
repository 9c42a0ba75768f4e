//! What a session and its broker say to each other: MQTT without an MQTT crate.

use std::time::Duration;

use super::error::ReasonCode;
use crate::net::secret::Secret;
use crate::protocol::Message;

/// What the session sends to the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// A request, QoS 1.
    Publish {
        /// MQTT's packet identifier.
        packet_id: u16,
        /// The request.
        message: Message,
    },
    /// A subscription, QoS 1.
    Subscribe {
        /// MQTT's packet identifier.
        packet_id: u16,
        /// The topic filter.
        filter: String,
    },
    /// The end of a subscription.
    Unsubscribe {
        /// MQTT's packet identifier.
        packet_id: u16,
        /// The topic filter.
        filter: String,
    },
    /// The acknowledgement of a message.
    PubAck {
        /// The message's packet identifier.
        packet_id: u16,
    },
    /// A question whether the broker is still there.
    Ping,
    /// A newer token, AUTH 0x19 (protocol §8).
    Authenticate {
        /// The token.
        token: Secret,
    },
}

/// What the session hears from the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A message.
    Publish {
        /// MQTT's packet identifier; none for QoS 0.
        packet_id: Option<u16>,
        /// The message.
        message: Message,
    },
    /// The broker has taken a request, or refuses it.
    PubAck {
        /// The request's packet identifier.
        packet_id: u16,
        /// Success, or why not.
        reason: ReasonCode,
    },
    /// The broker has taken a subscription, or refuses it.
    SubAck {
        /// The subscription's packet identifier.
        packet_id: u16,
        /// The granted QoS, or why not.
        reason: ReasonCode,
    },
    /// The broker has ended a subscription, or says why not.
    UnsubAck {
        /// The packet identifier of what asked for it.
        packet_id: u16,
        /// Success, or why not.
        reason: ReasonCode,
    },
    /// The broker is still there.
    Pong,
    /// The broker has taken a newer token, AUTH 0x00.
    Authenticated,
}

/// What a broker grants in its CONNACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// How many publishes may be unacknowledged.
    pub receive_max: u16,
    /// The keep-alive in force; zero: none.
    pub keep_alive: Duration,
}
