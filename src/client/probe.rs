//! What is seen on the way to a broker, one step after the other, for whoever looks on.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::clock;
use crate::net::certificate::{Certificate, NoCertificate};

/// Where what is seen goes; by default nowhere, and then nothing is looked at.
#[derive(Clone, Debug, Default)]
pub struct ConnectionProbe(Option<mpsc::UnboundedSender<Observation>>);

/// What was seen, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// When the step was done, on the monotonic clock.
    pub at: Instant,
    /// What was seen.
    pub finding: Finding,
}

/// What a step on the way to a broker has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The host has addresses.
    Resolved {
        /// In the order in which they are tried.
        addresses: Vec<IpAddr>,
        /// How they were found.
        source: AddressSource,
    },
    /// An address does not answer.
    Missed {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        cause: String,
    },
    /// An address answers.
    Reached {
        /// The address.
        address: SocketAddr,
    },
    /// A TLS handshake is over, well or not.
    Secured(Box<TlsSight>),
    /// The broker takes MQTT in a WebSocket.
    Upgraded {
        /// The WebSocket's path.
        path: String,
    },
    /// The broker lets the client in.
    Accepted(Box<Terms>),
}

/// How the addresses of a host were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// The host is an address.
    Given,
    /// `localhost` is this machine by definition (RFC 6761).
    Loopback,
    /// The system's resolver was asked.
    Resolver,
}

/// What was seen of a TLS handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSight {
    /// `1.2` or `1.3`, once agreed on.
    pub version: Option<&'static str>,
    /// The cipher suite, once agreed on.
    pub cipher: Option<String>,
    /// Whom the client trusts.
    pub roots: Roots,
    /// The broker's certificate, and those that it sent to lead to its CA. That they are true is said by the
    /// handshake's end alone.
    pub chain: Vec<Result<Certificate, NoCertificate>>,
    /// Whether the broker asked for a client certificate.
    pub asks_for_client: bool,
    /// The client's own certificate, if it has one; sent if the broker asks.
    pub client: Option<Result<Certificate, NoCertificate>>,
}

/// Whom a client trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// The CAs of this machine.
    Platform {
        /// How many they are.
        count: usize,
    },
    /// Those in a file, and no others.
    File(PathBuf),
    /// Whoever answers.
    Anybody,
}

/// What a broker grants in its CONNACK (MQTT 5, 3.2.2.3), with what holds where it says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The highest QoS.
    pub qos_max: u8,
    /// Whether it keeps retained messages.
    pub retain: bool,
    /// The largest packet that it takes, in bytes; none: no limit of its own.
    pub packet_bytes_max: Option<u32>,
    /// How many publishes may be unacknowledged.
    pub receive_max: u16,
    /// How long it keeps the session after the connection, in seconds.
    pub session_expiry_s: u32,
    /// The keep-alive in force; zero: none.
    pub keep_alive: Duration,
    /// The client id that it gave, where the client had none.
    pub assigned_id: Option<String>,
    /// How many topic aliases it takes.
    pub topic_aliases_max: u16,
    /// Whether filters may have wildcards.
    pub wildcards: bool,
    /// Whether it knows subscription identifiers.
    pub subscription_ids: bool,
    /// Whether it knows shared subscriptions.
    pub shared_subscriptions: bool,
}

impl ConnectionProbe {
    /// An examiner, and where its observations come out.
    #[must_use]
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Observation>) {
        // A connection has a handful of steps, and addresses a few: nothing here can grow.
        let (sender, observations) = mpsc::unbounded_channel();
        (Self(Some(sender)), observations)
    }

    /// Whether anybody looks on.
    #[must_use]
    pub fn looks_on(&self) -> bool {
        self.0.is_some()
    }

    /// Tells what was seen, if anybody looks on.
    pub(super) fn tell(&self, finding: impl FnOnce() -> Finding) {
        if let Some(sender) = &self.0 {
            // Whoever has left does not want to know.
            let _ = sender.send(Observation { at: clock::monotonic(), finding: finding() });
        }
    }
}
