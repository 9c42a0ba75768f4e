//! The session's MQTT packets, independent of the MQTT crate.

use std::time::Duration;

use super::error::ReasonCode;
use super::outgoing_request::OutgoingRequest;
use crate::net::secret::Secret;
use crate::protocol::Message;

/// A packet from the session to the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// A request, QoS 1.
    Request {
        packet_id: u16,
        request: OutgoingRequest,
    },
    /// A message of the owner, QoS 1. In a box: nearly all packets are requests and acknowledgements, and smaller.
    Publish {
        packet_id: u16,
        message: Box<Message>,
    },
    /// With a maximum QoS of 1.
    Subscribe {
        packet_id: u16,
        filter: String,
    },
    Unsubscribe {
        packet_id: u16,
        filter: String,
    },
    PubAck {
        packet_id: u16,
    },
    Ping,
    /// Re-authentication with a new token, AUTH 0x19 (protocol §8).
    Authenticate {
        token: Secret,
    },
}

/// A packet from the broker to the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    Publish {
        /// None for QoS 0.
        packet_id: Option<u16>,
        message: Message,
    },
    PubAck {
        packet_id: u16,
        reason: ReasonCode,
    },
    SubAck {
        packet_id: u16,
        /// The granted QoS, or a failure.
        reason: ReasonCode,
    },
    UnsubAck {
        packet_id: u16,
        reason: ReasonCode,
    },
    Pong,
    /// Re-authentication has succeeded, AUTH 0x00.
    Authenticated,
}

/// A message whose PUBLISH is malformed, and was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedMessage {
    /// None for QoS 0.
    pub packet_id: Option<u16>,
    /// None if it is not UTF-8.
    pub topic: Option<String>,
    /// The decoder's error.
    pub text: String,
}

/// The properties of a CONNACK that a session must respect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The most publishes without a PUBACK.
    pub receive_max: u16,
    /// The keep-alive in force. Zero: none.
    pub keep_alive: Duration,
}
