//! Settings of a broker: listeners and limits.

use std::net::SocketAddr;
use std::time::Duration;

use crate::net::tls::ServerTls;

/// The least and the greatest number of connections that wait for room.
const WAITING_MIN: u32 = 16;
const WAITING_MAX: u32 = 256;

/// The settings of a broker. The defaults suit a small machine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// May be empty: see `Server::pipe`.
    pub listeners: Vec<ListenerSettings>,
    /// The largest packet accepted from a client, in bytes with its header; announced in CONNACK.
    pub packet_bytes_max: u32,
    /// The most bytes that clients may make the broker hold: see `MemoryBudget`.
    pub memory_bytes_max: usize,
    /// The most connections at one time, also those that have not sent a CONNECT yet.
    pub connections_max: u32,
    /// The most sessions, with and without a connection. An owner, which is a user, a certificate or the address of
    /// anonymous clients, may have as many without a connection as are left free. One more ends its session that has been
    /// without a connection for the longest time, and is refused if it has none.
    pub sessions_max: usize,
    /// The most messages in the queue of one session, also those that are sent and not acknowledged.
    pub session_queue_messages_max: usize,
    /// The most bytes in the queue of one session, also those that are sent and not acknowledged; must exceed
    /// [`Settings::packet_bytes_max`]. When the queue holds a quarter of it, the client's own messages wait as well.
    pub session_queue_bytes_max: usize,
    /// The time limit of a new connection for each of: the TLS handshake, the WebSocket handshake, the CONNECT, and its
    /// authentication.
    pub connect_timeout: Duration,
    /// How many PUBLISH packets of QoS 1 and 2 a client may have unacknowledged; announced in CONNACK.
    pub receive_maximum: u16,
    /// The greatest topic alias of a client; 0 allows none. Announced in CONNACK.
    pub topic_alias_max: u16,
    /// The longest keep-alive in seconds, imposed also on clients that request none; 0 imposes nothing.
    pub keep_alive_s_max: u16,
    /// The longest expiry interval of a session, in seconds; `u32::MAX` is unlimited.
    pub session_expiry_s_max: u32,
    /// The most retained messages. The owner of one is the client that has published it last; an owner may have as many as
    /// are left free: half of them if it is the only one. One more is refused with 0x97. No more than fit into the
    /// queue of a client that subscribes to all.
    pub retained_messages_max: usize,
    /// The most subscriptions of one session.
    pub subscriptions_per_session_max: usize,
    /// Number of threads that serve connections from the network; 0: the caller's runtime serves them.
    pub threads: usize,
}

/// The settings of one listener. Connections in memory have those of [`ListenerSettings::plain`].
#[derive(Clone, Debug)]
pub struct ListenerSettings {
    /// The address to listen on; port 0 takes any free port.
    pub address: SocketAddr,
    /// None: plain TCP.
    pub tls: Option<ServerTls>,
    /// None: MQTT directly on the stream.
    pub web_socket: Option<WebSocketSettings>,
    /// Whether clients may connect without user name, token and certificate.
    pub is_anonymous: bool,
}

/// The settings of WebSockets on a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebSocketSettings {
    /// The only path that is served; None: every path.
    pub path: Option<String>,
    /// Host names of this server, besides its addresses.
    pub names: Vec<String>,
    /// Origins of the web pages that may connect, besides pages of this machine and of this server; `*` is every origin.
    /// Clients that are no browsers send no origin.
    pub origins: Vec<String>,
}

impl ListenerSettings {
    /// Returns the settings of a listener without TLS that accepts anonymous clients.
    #[must_use]
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, tls: None, web_socket: None, is_anonymous: true }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            packet_bytes_max: 64 * 1024 * 1024,
            memory_bytes_max: 384 * 1024 * 1024,
            connections_max: 10_000,
            sessions_max: 20_000,
            session_queue_messages_max: 20_000,
            session_queue_bytes_max: 128 * 1024 * 1024,
            connect_timeout: Duration::from_secs(10),
            receive_maximum: 1_024,
            topic_alias_max: 16,
            keep_alive_s_max: 0,
            session_expiry_s_max: u32::MAX,
            retained_messages_max: 20_000,
            subscriptions_per_session_max: 1_000,
            threads: 0,
        }
    }
}

impl Settings {
    /// Returns how many connections above the limit may wait for the end of the logins that make room for them; one more is
    /// refused. A login that is to end needs one turn of its thread for it, so a client gets there while the thread is blocked, and
    /// can connect again at once.
    #[must_use]
    pub fn waiting_max(&self) -> u32 {
        (self.connections_max / 4).clamp(WAITING_MIN, WAITING_MAX)
    }

    /// Lowers the limit on connections to as many as there are sockets for, those that wait included.
    #[must_use]
    pub fn within_sockets(self, sockets: u64) -> Self {
        let waiting = sockets.div_ceil(5).clamp(WAITING_MIN.into(), WAITING_MAX.into());
        let connections_max = u32::try_from(sockets.saturating_sub(waiting)).unwrap_or(u32::MAX).max(1);
        Self { connections_max: self.connections_max.min(connections_max), ..self }
    }

    /// Checks that the limits do not contradict each other.
    ///
    /// # Errors
    ///
    /// The contradiction.
    pub fn check(&self) -> Result<(), &'static str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_pass_their_own_check() {
        assert_eq!(Settings::default().check(), Ok(()));
    }

    #[test]
    fn connections_and_those_that_wait_are_no_more_than_the_sockets() {
        for sockets in 17..20_000 {
            let settings = Settings { connections_max: u32::MAX, ..Settings::default() };
            let limited = settings.within_sockets(sockets);
            let all = u64::from(limited.connections_max) + u64::from(limited.waiting_max());
            assert!(all <= sockets && all + 1 >= sockets, "{sockets}: {limited:?}");
        }
        assert_eq!(Settings::default().within_sockets(3).connections_max, 1);
        assert_eq!(Settings::default().within_sockets(u64::MAX).connections_max, 10_000);
    }

    #[test]
    fn a_queue_that_cannot_hold_the_largest_packet_is_refused() {
        let settings = Settings { session_queue_bytes_max: 10, packet_bytes_max: 10, ..Settings::default() };
        assert!(settings.check().is_err());
    }
}
