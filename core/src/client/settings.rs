//! Settings of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::time::timeout;

use super::authentication::{Authentication, SecretReader};
use super::error::Error;
use super::forwarding::Forwarding;
use super::probe::ConnectionProbe;
use super::trace::Tracer;
use crate::net::tls::ClientTls;

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct Settings {
    pub target: Target,
    /// TLS configuration for a target on the network. None: without TLS.
    pub tls: Option<ClientTls>,
    /// The path of the WebSocket on the network. None: MQTT over TCP.
    pub web_socket: Option<String>,
    pub authentication: Authentication,
    /// Reads the files of `authentication`.
    pub secret_reader: SecretReader,
    /// The MQTT client id. It must be unique: two clients with one id take over each other's session.
    pub client_id: String,
    /// Time limit from the first packet to CONNACK, for all steps together.
    pub connect_timeout: Duration,
    /// Retries of the first connection, for errors that a retry may resolve.
    pub connect_retries: u32,
    /// Send nothing between CONNECT and CONNACK. Otherwise small reads and the subscription to their responses are sent together with
    /// CONNECT; after a broker that does not answer them, or does not accept them, the client is cautious by itself.
    pub is_cautious: bool,
    /// Time limit of each request, from the call to the response.
    pub request_timeout: Duration,
    /// The MQTT keep-alive, in whole seconds. Zero: none.
    pub keep_alive: Duration,
    /// The most requests without a response and messages without a PUBACK. Further ones wait; those of a [`Bulk`](super::Bulk)
    /// wait longest.
    pub inflight_max: usize,
    /// The most events that each watch and each subscription buffers. While more are pending, the connection is not read.
    pub events_max: usize,
    /// The largest packet that the client accepts, in bytes.
    pub packet_bytes_max: u32,
    pub reconnect: Reconnect,
    /// Receives the steps of each connection attempt.
    pub probe: ConnectionProbe,
    /// How often a session that reconnects checks whether its token file has changed.
    pub token_check_interval: Duration,
    /// Receives every packet.
    pub tracer: Option<Tracer>,
    /// The session that CONNECT requests.
    pub session: SessionSettings,
}

/// The session that a CONNECT requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// Clean Start: the broker discards a session of this client id.
    pub is_clean: bool,
    /// Session Expiry Interval, in whole seconds. Zero: the session ends with the connection.
    pub expiry: Duration,
    /// The most messages with QoS 1 that the broker may send without a PUBACK, at least 1.
    pub receive_max: u16,
}

/// A new session for each connection.
impl Default for SessionSettings {
    fn default() -> Self {
        Self { is_clean: true, expiry: Duration::ZERO, receive_max: u16::MAX }
    }
}

/// The address of a broker.
#[derive(Clone)]
pub enum Target {
    Tcp {
        /// A name, or an address without brackets.
        host: String,
        port: u16,
    },
    /// A broker behind a tunnel. TLS expects its name.
    Forwarded(Forwarding),
    /// A broker inside this process. Each call makes a connection.
    Pipe(Arc<dyn Fn() -> DuplexStream + Send + Sync>),
}

/// The reaction to the loss of an established connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconnect {
    /// End the session.
    Never,
    /// Reconnect after [`Reconnect::DELAY_MIN`], then after twice the last delay each time, with jitter.
    WithBackoff,
}

impl Reconnect {
    pub const DELAY_MIN: Duration = Duration::from_millis(100);
    pub const DELAY_MAX: Duration = Duration::from_secs(5);
}

impl Settings {
    /// Returns settings with the defaults of the command line.
    #[must_use]
    pub fn new(target: Target, client_id: String) -> Self {
        Self {
            target,
            tls: None,
            web_socket: None,
            authentication: Authentication::None,
            secret_reader: SecretReader::default(),
            client_id,
            connect_timeout: Duration::from_secs(5),
            connect_retries: 0,
            is_cautious: false,
            request_timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(10),
            inflight_max: 64,
            events_max: 1024,
            packet_bytes_max: 256 * 1024 * 1024,
            reconnect: Reconnect::Never,
            probe: ConnectionProbe::default(),
            token_check_interval: Duration::from_secs(1),
            tracer: None,
            session: SessionSettings::default(),
        }
    }

    /// Returns what the client authenticates with, for messages; None without credentials.
    pub(super) fn credentials(&self) -> Option<String> {
        match &self.authentication {
            Authentication::Password { username, .. } => Some(format!("user {username}")),
            Authentication::ServiceAccountToken { file } => {
                Some(format!("the account of {}", file.display()))
            }
            Authentication::SharedToken(token) => Some(token.account().to_owned()),
            Authentication::None => {
                let file = self.tls.as_ref()?.certificate_file()?;
                Some(format!("the certificate of {}", file.display()))
            }
        }
    }

    /// Returns the scheme of the broker's URL.
    pub(super) fn scheme(&self) -> &'static str {
        match (self.web_socket.is_some(), self.tls.is_some()) {
            (false, false) => "mqtt",
            (false, true) => "mqtts",
            (true, false) => "ws",
            (true, true) => "wss",
        }
    }

    /// Reads the TLS files again: certificates are renewed while the process runs. Passwords and tokens are read for each
    /// connection without this.
    pub(crate) async fn reload_tls(&self) -> Result<(), Error> {
        let Some(tls) = self.tls.clone() else { return Ok(()) };
        let within = self.connect_timeout;
        let reading = timeout(within, self.secret_reader.run(move || tls.reload()));
        let reloaded = reading.await.ok().flatten().ok_or_else(|| {
            let cause = format!("cannot read the TLS files: timed out after {within:?}");
            Error::TlsFiles { cause }
        })?;
        reloaded.map_err(|error| Error::TlsFiles { cause: error.to_string() })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(out, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(out, "{host}:{port}"),
            Self::Forwarded(Forwarding { host, port, .. }) => write!(out, "{host}:{port}"),
            Self::Pipe(_) => out.write_str("embedded store"),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Target({self})")
    }
}
