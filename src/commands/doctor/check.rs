//! What the doctor checks, and what came of it, as data.

use std::time::Duration;

use super::super::error::{CommandError, Kind};
use crate::client::probe::{AddressSource, ConnackProperties};
use crate::net::tls::TlsHandshake;
use crate::protocol::Key;

/// One of the checks; they stand in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// The files that belong to the settings can be used; told only where they cannot.
    Settings,
    /// The host has an address.
    Dns,
    /// An address answers.
    Tcp,
    /// TLS is spoken, and the certificates are good.
    Tls,
    /// A WebSocket is spoken; told only where one is.
    Ws,
    /// The broker lets the client in.
    Connack,
    /// Answers can be subscribed to.
    Subscribe,
    /// The store answers.
    Request,
    /// The store's clock and this machine's agree.
    Clock,
    /// A watcher is told of changes.
    Notifications,
}

impl Check {
    /// Those of a connection on which, or on which no, WebSocket is spoken.
    pub fn all(has_web_socket: bool) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |check| has_web_socket || *check != Self::Ws)
    }

    const ALL: [Self; 9] = [
        Self::Dns,
        Self::Tcp,
        Self::Tls,
        Self::Ws,
        Self::Connack,
        Self::Subscribe,
        Self::Request,
        Self::Clock,
        Self::Notifications,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Dns => "dns",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Ws => "ws",
            Self::Connack => "connack",
            Self::Subscribe => "subscribe",
            Self::Request => "request",
            Self::Clock => "clock",
            Self::Notifications => "notifications",
        }
    }
}

/// What came of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Which one.
    pub check: Check,
    /// How long it took; none where it was not made.
    pub elapsed: Option<Duration>,
    /// What was seen, also where it is not good.
    pub seen: Option<Seen>,
    /// What to think of it.
    pub status: Status,
}

/// What to think of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// All is well.
    Ok,
    /// It works, and will not for everybody or not for long.
    Warn(Vec<Advice>),
    /// It does not work.
    Fail(Box<CommandError>),
    /// It was not made.
    Skipped(String),
}

/// What is not as it should be, and does not keep anything from working.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// One sentence.
    pub message: String,
    /// What to try.
    pub hint: String,
}

/// What was seen in a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The host's addresses, and how they were found.
    Addresses {
        /// In the order in which they are tried.
        addresses: Vec<String>,
        /// How they were found.
        source: AddressSource,
    },
    /// Which address answers.
    Way {
        /// That one, if any.
        reached: Option<String>,
        /// Those that do not, with what the system said.
        missed: Vec<(String, String)>,
    },
    /// A TLS handshake.
    Tls {
        /// What it has shown.
        sight: Box<TlsHandshake>,
        /// When, in seconds since 1970.
        now_s: u64,
    },
    /// A WebSocket.
    WebSocket {
        /// Its path.
        path: String,
    },
    /// What the broker grants.
    ConnackProperties {
        /// Whom it has let in.
        client_id: String,
        /// The grants.
        terms: Box<ConnackProperties>,
    },
    /// The subscription to the answers.
    Subscription {
        /// The topic.
        topic: String,
        /// The granted QoS.
        qos: u8,
    },
    /// The answer to the GET of a key that does not exist.
    Answer {
        /// The key.
        key: Key,
    },
    /// How far the store's clock is ahead of this machine's.
    Clock {
        /// In milliseconds; negative: behind.
        ahead_ms: i64,
        /// What it may be off by, in milliseconds.
        margin_ms: u64,
    },
    /// How long it took to hear of changes, from asking for them.
    Notified {
        /// Of a SET.
        set: Duration,
        /// Of a DEL.
        delete: Duration,
    },
}

impl Checked {
    /// With what kind of failure it ended, if with one.
    #[must_use]
    pub fn failure(&self) -> Option<Kind> {
        match &self.status {
            Status::Fail(error) => Some(error.kind),
            _ => None,
        }
    }
}
