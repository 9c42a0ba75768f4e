//! What a client needs to know before it connects.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;

use super::authentication::Authentication;
use super::trace::Tracer;
use crate::client::probe::ConnectionProbe;
use crate::net::tls::ClientTls;

/// Where the broker is and how to talk to it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the broker is.
    pub target: Target,
    /// TLS, for a target on the network; none: plain.
    pub tls: Option<ClientTls>,
    /// The path of the WebSocket in which MQTT is spoken, for a target on the network; none: without one.
    pub web_socket: Option<String>,
    /// Who the client says it is, beside its certificate.
    pub authentication: Authentication,
    /// The MQTT client id: one of its own for every run, or two runs take over each other's session.
    pub client_id: String,
    /// From the first packet to the broker's CONNACK: all steps on the way have it together.
    pub connect_timeout: Duration,
    /// How often the first connection is tried for again, where another try may help.
    pub connect_retries: u32,
    /// From asking to the answer, for each request.
    pub request_timeout: Duration,
    /// How long the connection may be silent before it is probed, in whole seconds; zero: never probed.
    pub keep_alive: Duration,
    /// How many requests may be unanswered at a time.
    pub inflight_max: usize,
    /// The largest packet that the client takes, in bytes.
    pub packet_bytes_max: u32,
    /// What to do when an established connection is lost.
    pub reconnect: Reconnect,
    /// Who looks on while connecting.
    pub probe: ConnectionProbe,
    /// How often a session that reconnects looks whether its token has changed.
    pub token_look_every: Duration,
    /// Who is told of every packet, if anybody.
    pub tracer: Option<Tracer>,
}

/// Where a broker is.
#[derive(Clone)]
pub enum Target {
    /// A host name or address, and a port.
    Tcp {
        /// Name or address, without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// A broker inside this process; each call makes a connection.
    Pipe(Arc<dyn Fn() -> DuplexStream + Send + Sync>),
}

/// What to do when an established connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconnect {
    /// Give up: right for one request.
    Never,
    /// Try again, at first after [`Reconnect::DELAY_MIN`], then after twice the last delay, with jitter.
    WithBackoff,
}

impl Reconnect {
    /// The first delay.
    pub const DELAY_MIN: Duration = Duration::from_millis(100);
    /// The longest delay.
    pub const DELAY_MAX: Duration = Duration::from_secs(5);
}

impl Settings {
    /// Settings for a target, with the defaults of the command line.
    #[must_use]
    pub fn new(target: Target, client_id: String) -> Self {
        Self {
            target,
            tls: None,
            web_socket: None,
            authentication: Authentication::None,
            client_id,
            connect_timeout: Duration::from_secs(5),
            connect_retries: 0,
            request_timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(10),
            inflight_max: 64,
            packet_bytes_max: 256 * 1024 * 1024,
            reconnect: Reconnect::Never,
            probe: ConnectionProbe::default(),
            token_look_every: Duration::from_secs(1),
            tracer: None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(out, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(out, "{host}:{port}"),
            Self::Pipe(_) => out.write_str("embedded store"),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Target({self})")
    }
}
