//! What a server is told at its start: where it listens, its limits, and where its events go.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::authorization::Authorizer;
use super::event::Event;
use super::identity::Identities;
use super::operations::metrics::Metrics;
use crate::net::tls::ServerTls;

/// Takes everything an operator should hear of. Called from any thread; must be quick.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// The settings of one server. The defaults suit a small machine.
#[derive(Clone)]
pub struct Settings {
    /// The doors; none is fine (see `Server::pipe`).
    pub listeners: Vec<ListenerSettings>,
    /// Who may come in, where a door is not open to everybody. What a client says of itself is checked at all doors.
    pub identities: Arc<Identities>,
    /// The rules for who may do what; none: everybody may do everything.
    pub authorizer: Option<Arc<Authorizer>>,
    /// The largest packet taken from a client, in bytes with its header; announced in CONNACK.
    pub packet_bytes_max: u32,
    /// The most connections at one time, those that have not sent a CONNECT yet included.
    pub connections_max: u32,
    /// The most sessions kept, with and without a connection; for one more, the one that has been without a connection
    /// the longest ends.
    pub sessions_max: usize,
    /// The most messages that wait for one session, sent and not acknowledged ones included.
    pub session_queue_messages_max: usize,
    /// The most bytes that wait for one session, sent and not acknowledged ones included; must exceed
    /// [`Settings::packet_bytes_max`]. With a quarter of it waiting, the client's own messages wait as well.
    pub session_queue_bytes_max: usize,
    /// How long a new connection may take for each of: the TLS handshake, that of the WebSocket, and its CONNECT; and
    /// how long it waits for what it says of itself to be checked.
    pub connect_timeout: Duration,
    /// How many PUBLISH packets of QoS 1 and 2 a client may have unacknowledged; announced in CONNACK.
    pub receive_maximum: u16,
    /// The greatest topic alias a client may use; 0 allows none. Announced in CONNACK.
    pub topic_alias_max: u16,
    /// The longest keep-alive in seconds, imposed also on clients that ask for none; 0 imposes nothing.
    pub keep_alive_s_max: u16,
    /// The longest a session is kept without a connection, in seconds; `u32::MAX` is for ever.
    pub session_expiry_s_max: u32,
    /// The most retained messages.
    pub retained_messages_max: usize,
    /// The most bytes of retained messages.
    pub retained_bytes_max: usize,
    /// The most subscriptions of one session.
    pub subscriptions_per_session_max: usize,
    /// How many threads serve connections from the network; 0: the caller's runtime does.
    pub threads: usize,
    /// Where events go.
    pub events: EventSink,
    /// Where the broker, and what sits behind it, count.
    pub metrics: Arc<Metrics>,
}

/// One door: where it is, what is spoken there, and to whom it is open. Connections in memory are as through a door
/// of the default settings.
#[derive(Clone, Debug)]
pub struct ListenerSettings {
    /// The address to listen on; port 0 takes any free port.
    pub address: SocketAddr,
    /// TLS; none: plain.
    pub tls: Option<ServerTls>,
    /// WebSockets instead of MQTT on the stream itself.
    pub web_socket: Option<WebSocketSettings>,
    /// Whether those may come in who say nothing of who they are, and have no certificate.
    pub is_anonymous: bool,
}

/// What is served in WebSockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebSocketSettings {
    /// The only path at which they are served; none: at all of them.
    pub path: Option<String>,
    /// The names by which this server may be asked for, where not by its address.
    pub names: Vec<String>,
    /// The origins of the pages that browsers may ask from, besides those of this machine and of this server; `*` is
    /// every one. Who is no browser says of no page.
    pub origins: Vec<String>,
}

impl ListenerSettings {
    /// A door for everybody, and MQTT without TLS.
    #[must_use]
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, tls: None, web_socket: None, is_anonymous: true }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            identities: Arc::default(),
            authorizer: None,
            packet_bytes_max: 64 * 1024 * 1024,
            connections_max: 10_000,
            sessions_max: 20_000,
            session_queue_messages_max: 20_000,
            session_queue_bytes_max: 128 * 1024 * 1024,
            connect_timeout: Duration::from_secs(10),
            receive_maximum: 1_024,
            topic_alias_max: 16,
            keep_alive_s_max: 0,
            session_expiry_s_max: u32::MAX,
            retained_messages_max: 10_000,
            retained_bytes_max: 256 * 1024 * 1024,
            subscriptions_per_session_max: 1_000,
            threads: 0,
            events: Arc::new(|_| {}),
            metrics: Arc::default(),
        }
    }
}

impl Settings {
    /// Says what is wrong with these settings, or that nothing is.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let packet_bytes_max = usize::try_from(self.packet_bytes_max).unwrap_or(usize::MAX);
        if self.session_queue_bytes_max <= packet_bytes_max {
            return Err("session_queue_bytes_max must exceed packet_bytes_max");
        }
        if self.receive_maximum == 0 {
            return Err("receive_maximum must not be 0");
        }
        if self.packet_bytes_max == 0 {
            return Err("packet_bytes_max must not be 0");
        }
        if self.connections_max == 0 {
            return Err("connections_max must not be 0");
        }
        Ok(())
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("listeners", &self.listeners)
            .field("packet_bytes_max", &self.packet_bytes_max)
            .field("connections_max", &self.connections_max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_pass_their_own_check() {
        assert_eq!(Settings::default().check(), Ok(()));
    }

    #[test]
    fn a_queue_that_cannot_hold_the_largest_packet_is_refused() {
        let settings = Settings { session_queue_bytes_max: 10, packet_bytes_max: 10, ..Settings::default() };
        assert!(settings.check().is_err());
    }
}
