//! Facts about a client's connection.

use std::sync::OnceLock;
use std::time::Duration;

/// Facts about a client's first connection.
#[derive(Debug)]
pub struct ConnectionInfo {
    /// `host:port` of the settings.
    pub target: String,
    pub client_id: String,
    accepted: OnceLock<Accepted>,
}

#[derive(Debug)]
struct Accepted {
    elapsed: Duration,
    tls: Option<&'static str>,
    receive_max: u16,
}

impl ConnectionInfo {
    pub(super) fn new(target: String, client_id: String) -> Self {
        Self { target, client_id, accepted: OnceLock::new() }
    }

    /// Handles a CONNACK. Only the first one counts.
    pub(super) fn handle_accepted(&self, elapsed: Duration, tls: Option<&'static str>, receive_max: u16) {
        let _ = self.accepted.set(Accepted { elapsed, tls, receive_max });
    }

    /// Returns whether the broker has accepted the client.
    pub(super) fn is_accepted(&self) -> bool {
        self.accepted.get().is_some()
    }

    /// Returns the time from the first packet to the broker's CONNACK; None before it.
    #[must_use]
    pub fn connect_elapsed(&self) -> Option<Duration> {
        self.accepted.get().map(|accepted| accepted.elapsed)
    }

    /// Returns the TLS version, `1.2` or `1.3`. None: without TLS, or before the CONNACK.
    #[must_use]
    pub fn tls(&self) -> Option<&'static str> {
        self.accepted.get()?.tls
    }

    /// Returns the broker's Receive Maximum (MQTT 5, 3.2.2.3.3); None before the CONNACK.
    #[must_use]
    pub fn receive_max(&self) -> Option<u16> {
        self.accepted.get().map(|accepted| accepted.receive_max)
    }
}
