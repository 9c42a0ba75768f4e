//! The checks of `doctor` and their results, as data (pure).

use std::time::Duration;

use serde::Serialize;

use super::members;
use crate::client::probe::{AddressSource, ConnackProperties};
use crate::client::{SentToken, TlsHandshake};
use crate::commands::error::{CommandError, Kind};
use crate::commands::preparation::PreparationStep;
use crate::protocol::Key;
use crate::render::json;

/// A check, in the order in which they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// The files of the settings are valid. Reported only if they are not.
    Settings,
    /// A port of this machine leads to the broker. Reported only of a broker in a cluster, as the next one.
    Forward,
    /// The CAs of the broker are known.
    Ca,
    /// There is a token. Reported only if the client authenticates with one.
    Token,
    /// The host name has an address.
    Dns,
    /// An address accepts connections.
    Tcp,
    /// The TLS handshake succeeds, and the certificates are valid.
    Tls,
    /// The WebSocket handshake succeeds. Reported only if the connection uses one.
    Ws,
    /// The broker accepts the client.
    Connack,
    /// The broker supports QoS 1. Reported only if it does not.
    Qos,
    /// The client may subscribe to its replies.
    Subscribe,
    /// The store answers a request.
    Request,
    /// The clocks of the store and of this machine agree.
    Clock,
    /// A watcher gets notifications.
    Notifications,
    /// The broker answers packets that are sent together with CONNECT.
    Early,
    /// The members of etcd answer, and have a leader.
    EtcdMembers,
    /// The versions of etcd.
    EtcdVersion,
    /// No member of etcd reports an alarm, or uses over 90 % of its quota.
    EtcdAlarms,
    /// The size of the database of etcd, against its quota.
    EtcdSize,
    /// etcd answers a read.
    EtcdRead,
    /// etcd accepts the longest commit of a store.
    EtcdCommit,
    /// The store of the cluster has an owner.
    Cluster,
}

impl Check {
    /// Returns the checks of a connection with or without a WebSocket.
    pub fn all(has_web_socket: bool) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |check| has_web_socket || *check != Self::Ws)
    }

    const ALL: [Self; 10] = [
        Self::Dns,
        Self::Tcp,
        Self::Tls,
        Self::Ws,
        Self::Connack,
        Self::Subscribe,
        Self::Request,
        Self::Clock,
        Self::Notifications,
        Self::Early,
    ];

    /// Returns the name in the output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Forward => PreparationStep::Forward.name(),
            Self::Ca => PreparationStep::Ca.name(),
            Self::Token => PreparationStep::Token.name(),
            Self::Dns => "dns",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Ws => "ws",
            Self::Connack => "connack",
            Self::Qos => "qos",
            Self::Subscribe => "subscribe",
            Self::Request => "request",
            Self::Clock => "clock",
            Self::Notifications => "notifications",
            Self::Early => "early",
            Self::EtcdMembers => "members",
            Self::EtcdVersion => "version",
            Self::EtcdAlarms => "alarms",
            Self::EtcdSize => "size",
            Self::EtcdRead => "read",
            Self::EtcdCommit => "commit",
            Self::Cluster => "cluster",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    pub check: Check,
    /// The time that the check took; None if it was skipped.
    pub elapsed: Option<Duration>,
    /// What the check observed, whether it passed or not.
    pub detail: Option<Detail>,
    pub status: Status,
}

/// The status of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    Ok,
    /// It works, but not for every client, or not for long.
    Warn(Vec<Warning>),
    Fail(Box<CommandError>),
    /// It was not made, for this reason.
    Skipped(String),
}

/// A problem that does not make a check fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

/// What a check observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Detail {
    /// The token, as far as it states something about itself.
    #[serde(serialize_with = "members::token")]
    Token(Box<SentToken>),
    /// A step before the connection, as text.
    Prepared {
        #[serde(rename = "prepared")]
        text: String,
    },
    /// The addresses of the host.
    Addresses {
        /// In the order in which they are tried.
        addresses: Vec<String>,
        #[serde(serialize_with = "members::source")]
        source: AddressSource,
    },
    /// The attempts to connect.
    Tcp {
        /// The address that has accepted the connection.
        #[serde(skip_serializing_if = "Option::is_none")]
        reached: Option<String>,
        /// The other addresses that were tried, with the errors of the system.
        #[serde(rename = "missed", serialize_with = "members::missed")]
        failed: Vec<(String, String)>,
    },
    /// The TLS handshake.
    #[serde(serialize_with = "members::tls")]
    Tls {
        handshake: Box<TlsHandshake>,
        /// The time of the handshake, in seconds since the Unix epoch.
        now_s: u64,
    },
    /// The WebSocket handshake.
    WebSocket { path: String },
    /// The properties of the CONNACK.
    #[serde(serialize_with = "members::connack")]
    Connack { client_id: String, properties: Box<ConnackProperties> },
    /// The subscription to the replies.
    Subscription {
        topic: String,
        /// The granted QoS.
        qos: u8,
    },
    /// The answer to a GET of a key that does not exist.
    Answer {
        #[serde(flatten, serialize_with = "json::key")]
        key: Key,
    },
    /// The difference between the clocks.
    Clock {
        /// Milliseconds by which the store is ahead of this machine; negative if it is behind.
        ahead_ms: i64,
        /// The uncertainty of the measurement, in milliseconds.
        margin_ms: u64,
    },
    /// The times from a request to its notification.
    Notified {
        #[serde(rename = "set_ms", serialize_with = "json::ms")]
        set: Duration,
        #[serde(rename = "delete_ms", serialize_with = "json::ms")]
        delete: Duration,
    },
    /// Whether packets before CONNACK are answered, without another attempt.
    Early {
        #[serde(rename = "answered")]
        is_answered: bool,
    },
    /// What etcd reports, as text.
    Etcd {
        #[serde(rename = "etcd")]
        text: String,
    },
}

impl From<PreparationStep> for Check {
    fn from(step: PreparationStep) -> Self {
        match step {
            PreparationStep::Forward => Self::Forward,
            PreparationStep::Ca => Self::Ca,
            PreparationStep::Token => Self::Token,
        }
    }
}

impl CheckResult {
    /// Returns the kind of the failure, if the check failed.
    #[must_use]
    pub fn failure(&self) -> Option<Kind> {
        match &self.status {
            Status::Fail(error) => Some(error.kind),
            _ => None,
        }
    }
}
