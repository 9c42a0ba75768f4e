//! Trace of a session: its packets, connection attempts and losses, without secrets.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::error::ReasonCode;
use super::packet::{Incoming, Outgoing};
use crate::clock;
use crate::protocol::Message;
use crate::protocol::connection::K8S_SAT;

/// An event of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// A connection attempt starts; `target` is `host:port` of the settings.
    Connecting {
        target: String,
    },
    /// The stream is connected; MQTT has not started.
    Connected {
        /// The broker's address and port. None: not on the network.
        address: Option<String>,
        /// The TLS version. None: without TLS.
        tls: Option<&'static str>,
        /// Whether a TLS session of this process was resumed.
        is_resumed: bool,
    },
    Sent(Packet),
    Received(Packet),
    /// A connection was lost, or an attempt has failed.
    Lost {
        cause: String,
        /// Delay before the next attempt. None: there is none.
        again_in: Option<Duration>,
    },
    /// The broker has not acknowledged packets that were sent before its CONNACK: the next ones are sent after it.
    EarlyPacketsRefused,
    /// The token file has changed; the broker is sent the new token.
    NewToken,
    /// The broker has not answered to a new token in time. The session continues.
    TokenUnanswered,
    /// A request was larger than the broker accepts, and was not sent. Sizes in bytes of the packet.
    TooLarge {
        size: usize,
        max: usize,
    },
}

/// An MQTT 5 packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    Connect(ConnectPacket),
    ConnAck {
        reason: ReasonCode,
        session_present: bool,
        properties: Vec<Property>,
    },
    Publish {
        /// None for QoS 0.
        packet_id: Option<u16>,
        message: Message,
    },
    PubAck {
        packet_id: u16,
        reason: ReasonCode,
    },
    Subscribe {
        packet_id: u16,
        filter: String,
    },
    SubAck {
        packet_id: u16,
        reason: ReasonCode,
    },
    Unsubscribe {
        packet_id: u16,
        filter: String,
    },
    UnsubAck {
        packet_id: u16,
        reason: ReasonCode,
    },
    PingReq,
    PingResp,
    Auth {
        reason: ReasonCode,
        method: Option<String>,
        /// Length of the authentication data, which is secret.
        data_bytes: Option<usize>,
    },
    Disconnect {
        reason: ReasonCode,
    },
    /// An unexpected packet, by the name of its type.
    Other(String),
}

/// A CONNECT without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectPacket {
    pub client_id: String,
    pub keep_alive_s: u16,
    pub clean_start: bool,
    pub session_expiry_s: u32,
    /// The client's Maximum Packet Size, in bytes.
    pub packet_bytes_max: u32,
    pub username: Option<String>,
    pub has_password: bool,
    /// The authentication method.
    pub method: Option<String>,
    /// Length of the authentication data, which is secret.
    pub data_bytes: Option<usize>,
}

/// An MQTT property by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Property {
    /// A number, or 1 or 0 for a flag.
    Number(&'static str, u32),
    Text(&'static str, String),
    /// The length of a secret value, in bytes.
    Secret(&'static str, usize),
    /// A user property.
    User(String, String),
}

impl From<&Outgoing> for Packet {
    fn from(outgoing: &Outgoing) -> Self {
        match outgoing {
            Outgoing::Request { packet_id, request } => {
                Self::Publish { packet_id: Some(*packet_id), message: request.message() }
            }
            Outgoing::Publish { packet_id, message } => {
                Self::Publish { packet_id: Some(*packet_id), message: (**message).clone() }
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

/// Sends events to a sink while it is enabled. Clones share the sink and the switch.
#[derive(Clone)]
pub struct Tracer {
    is_enabled: Arc<AtomicBool>,
    sink: Arc<TraceSink>,
}

/// Receives an event and its time, in milliseconds since the Unix epoch. It is called by the session's task and must not
/// block.
pub type TraceSink = dyn Fn(&TraceEvent, u64) + Send + Sync;

impl Tracer {
    #[must_use]
    pub fn new(is_enabled: bool, sink: impl Fn(&TraceEvent, u64) + Send + Sync + 'static) -> Self {
        Self { is_enabled: Arc::new(AtomicBool::new(is_enabled)), sink: Arc::new(sink) }
    }

    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    pub fn set_enabled(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Relaxed);
    }
}

/// Sends an event, if there is a tracer and it is enabled. Only then is the event built.
pub(super) fn emit(tracer: Option<&Tracer>, event: impl FnOnce() -> TraceEvent) {
    if let Some(tracer) = tracer.filter(|tracer| tracer.is_enabled()) {
        (tracer.sink)(&event(), clock::wall_ms());
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Tracer").field("is_enabled", &self.is_enabled).finish_non_exhaustive()
    }
}
