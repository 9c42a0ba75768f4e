//! Reports of the steps of a connection attempt.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::token_claims::SentToken;
use crate::clock;
use crate::net::tls::TlsHandshake;

/// A channel for the steps of a connection attempt. The default has no receiver, and then nothing is observed.
#[derive(Clone, Debug, Default)]
pub struct ConnectionProbe(Option<mpsc::UnboundedSender<Observation>>);

/// A completed step and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// On the monotonic clock.
    pub at: Instant,
    pub step: ConnectionStep,
}

/// A step of a connection attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionStep {
    /// The token file was read.
    TokenRead(Box<SentToken>),
    /// The host name has addresses, in the order in which they are tried.
    Resolved { addresses: Vec<IpAddr>, source: AddressSource },
    /// An address could not be connected to.
    ConnectFailed { address: SocketAddr, cause: String },
    /// A TCP connection was made.
    Connected { address: SocketAddr },
    /// A TLS handshake ended, successfully or not.
    TlsHandshake(Box<TlsHandshake>),
    /// A WebSocket was opened at this path.
    WebSocketOpened { path: String },
    /// The broker has not acknowledged packets that were sent before its CONNACK. `cause` is the cause of a failed attempt or of a
    /// lost connection; None if the connection is still there, and they are sent again.
    EarlyPacketsRefused { cause: Option<String> },
    /// The broker accepted the CONNECT.
    Accepted(Box<ConnackProperties>),
}

/// How the addresses of a host were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// The host is an address.
    Given,
    /// `localhost` is this machine by definition (RFC 6761).
    Loopback,
    /// The system's resolver.
    Resolver,
}

/// The properties of a CONNACK (MQTT 5, 3.2.2.3), with the default values of absent ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnackProperties {
    pub qos_max: u8,
    pub retain: bool,
    /// The largest packet that the broker accepts, in bytes. None: no limit.
    pub packet_bytes_max: Option<u32>,
    pub receive_max: u16,
    pub session_expiry_s: u32,
    /// The keep-alive in force. Zero: none.
    pub keep_alive: Duration,
    /// The client id that the broker assigned, if the client had none.
    pub assigned_id: Option<String>,
    pub topic_aliases_max: u16,
    pub wildcards: bool,
    pub subscription_ids: bool,
    pub shared_subscriptions: bool,
}

impl ConnectionProbe {
    /// Returns a probe and the receiver of its observations.
    #[must_use]
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Observation>) {
        // Unbounded is safe: a connection attempt has a handful of steps and a few addresses.
        let (sender, observations) = mpsc::unbounded_channel();
        (Self(Some(sender)), observations)
    }

    /// Returns whether the probe has a receiver.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.0.is_some()
    }

    /// Sends a step to the receiver, if there is one.
    pub(super) fn observe(&self, step: impl FnOnce() -> ConnectionStep) {
        if let Some(sender) = &self.0 {
            // An error means that the receiver was dropped, which ends the observation.
            let _ = sender.send(Observation { at: clock::monotonic(), step: step() });
        }
    }
}
