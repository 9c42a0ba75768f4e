//! What a session tells whoever traces it: every packet, every try to connect, every loss. Secrets are left out here.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::error::ReasonCode;
use super::packet::{Incoming, Outgoing};
use crate::clock;
use crate::protocol::Message;
use crate::protocol::connection::K8S_SAT;

/// One thing that a trace tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Traced {
    /// A connection is tried for.
    Connecting {
        /// `host:port` as asked for.
        target: String,
    },
    /// There is one, and nothing has been said of MQTT.
    Connected {
        /// The address and port, where there is one.
        address: Option<String>,
        /// The version of TLS, if it is spoken.
        tls: Option<&'static str>,
    },
    /// A packet goes out.
    Sent(Packet),
    /// A packet has come.
    Received(Packet),
    /// A connection could not be made, or is lost.
    Lost {
        /// Why.
        cause: String,
        /// When the next one is tried for; none: never.
        again_in: Option<Duration>,
    },
    /// The token in the file is a new one, and the broker is shown it.
    NewToken,
    /// The broker has not said what it thinks of a new token; the session goes on.
    TokenUnanswered,
    /// A request was not sent: it has more bytes than the broker takes.
    TooLarge {
        /// The packet's size in bytes.
        size: usize,
        /// The broker's limit in bytes.
        max: usize,
    },
}

/// A packet of MQTT 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// CONNECT
    Connect(ConnectSeen),
    /// CONNACK
    ConnAck {
        /// Whether the broker lets the client in.
        reason: ReasonCode,
        /// Whether it has kept a session.
        session_present: bool,
        /// What it grants beside.
        properties: Vec<Property>,
    },
    /// PUBLISH
    Publish {
        /// None for QoS 0.
        packet_id: Option<u16>,
        /// The message.
        message: Message,
    },
    /// PUBACK
    PubAck {
        /// The message's packet identifier.
        packet_id: u16,
        /// Whether it was taken.
        reason: ReasonCode,
    },
    /// SUBSCRIBE, QoS 1
    Subscribe {
        /// MQTT's packet identifier.
        packet_id: u16,
        /// The topic filter.
        filter: String,
    },
    /// SUBACK
    SubAck {
        /// The subscription's packet identifier.
        packet_id: u16,
        /// The granted QoS, or why not.
        reason: ReasonCode,
    },
    /// UNSUBSCRIBE
    Unsubscribe {
        /// MQTT's packet identifier.
        packet_id: u16,
        /// The topic filter.
        filter: String,
    },
    /// UNSUBACK
    UnsubAck {
        /// The packet identifier of what asked for it.
        packet_id: u16,
        /// Success, or why not.
        reason: ReasonCode,
    },
    /// PINGREQ
    PingReq,
    /// PINGRESP
    PingResp,
    /// AUTH
    Auth {
        /// Where the exchange stands.
        reason: ReasonCode,
        /// The method, where it is named.
        method: Option<String>,
        /// How many bytes of data there are, which are secret.
        data_bytes: Option<usize>,
    },
    /// DISCONNECT
    Disconnect {
        /// Why.
        reason: ReasonCode,
    },
    /// A packet that nobody expects; its name.
    Other(String),
}

/// What a CONNECT says, but for its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectSeen {
    /// The client id.
    pub client_id: String,
    /// Keep-alive in seconds.
    pub keep_alive_s: u16,
    /// Whether the broker shall forget an earlier session.
    pub clean_start: bool,
    /// How long it shall keep this one, in seconds.
    pub session_expiry_s: u32,
    /// The largest packet that the client takes, in bytes.
    pub packet_bytes_max: u32,
    /// The user's name.
    pub username: Option<String>,
    /// Whether there is a password.
    pub has_password: bool,
    /// The method of enhanced authentication.
    pub method: Option<String>,
    /// How many bytes of data there are for it, which are secret.
    pub data_bytes: Option<usize>,
}

/// A property by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Property {
    /// A number, or yes (1) or no (0).
    Number(&'static str, u32),
    /// A text.
    Text(&'static str, String),
    /// So many bytes, which are secret.
    Secret(&'static str, usize),
    /// A user property.
    User(String, String),
}

impl From<&Outgoing> for Packet {
    fn from(outgoing: &Outgoing) -> Self {
        match outgoing {
            Outgoing::Publish { packet_id, message } => {
                Self::Publish { packet_id: Some(*packet_id), message: message.clone() }
            }
            Outgoing::Subscribe { packet_id, filter } => {
                Self::Subscribe { packet_id: *packet_id, filter: filter.clone() }
            }
            Outgoing::Unsubscribe { packet_id, filter } => {
                Self::Unsubscribe { packet_id: *packet_id, filter: filter.clone() }
            }
            Outgoing::PubAck { packet_id } => {
                Self::PubAck { packet_id: *packet_id, reason: ReasonCode { code: 0, text: None } }
            }
            Outgoing::Ping => Self::PingReq,
            Outgoing::Authenticate { token } => Self::Auth {
                reason: ReasonCode { code: ReasonCode::REAUTHENTICATE, text: None },
                method: Some(K8S_SAT.to_owned()),
                data_bytes: Some(token.bytes().len()),
            },
        }
    }
}

impl From<&Incoming> for Packet {
    fn from(incoming: &Incoming) -> Self {
        match incoming {
            Incoming::Publish { packet_id, message } => {
                Self::Publish { packet_id: *packet_id, message: message.clone() }
            }
            Incoming::PubAck { packet_id, reason } => {
                Self::PubAck { packet_id: *packet_id, reason: reason.clone() }
            }
            Incoming::SubAck { packet_id, reason } => {
                Self::SubAck { packet_id: *packet_id, reason: reason.clone() }
            }
            Incoming::UnsubAck { packet_id, reason } => {
                Self::UnsubAck { packet_id: *packet_id, reason: reason.clone() }
            }
            Incoming::Pong => Self::PingResp,
            Incoming::Authenticated => {
                let reason = ReasonCode { code: 0, text: None };
                Self::Auth { reason, method: None, data_bytes: None }
            }
        }
    }
}

/// Tells what happens, while it is on. Clones share everything.
#[derive(Clone)]
pub struct Tracer {
    is_on: Arc<AtomicBool>,
    tell: Arc<Tell>,
}

/// Takes what is told, and when that was, in milliseconds since the Unix epoch. It is called by the task that keeps the
/// session alive: it must not block.
pub type Tell = dyn Fn(&Traced, u64) + Send + Sync;

impl Tracer {
    /// A tracer that is on, or not yet.
    #[must_use]
    pub fn new(is_on: bool, tell: impl Fn(&Traced, u64) + Send + Sync + 'static) -> Self {
        Self { is_on: Arc::new(AtomicBool::new(is_on)), tell: Arc::new(tell) }
    }

    /// Whether it is on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Turns it on or off.
    pub fn turn(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }
}

/// Tells something, if anybody listens: it is not even made otherwise.
pub(super) fn tell(tracer: Option<&Tracer>, traced: impl FnOnce() -> Traced) {
    if let Some(tracer) = tracer.filter(|tracer| tracer.is_on()) {
        (tracer.tell)(&traced(), clock::wall_ms());
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Tracer").field("is_on", &self.is_on).finish_non_exhaustive()
    }
}
