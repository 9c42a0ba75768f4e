//! Errors of requests and connections.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::denial::Denial;
use super::token_claims::SentToken;
use crate::files::text::EncodingError;
use crate::net::io_error;
pub(super) use crate::net::io_error::io_error_text;
use crate::net::tls::TlsError;
use crate::net::websocket::WebSocketError;
use crate::protocol::error_reply::ErrorReply;

/// The cause of a failed request or connection. `target` is `host:port` of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A file contains no valid password or token.
    Credentials { path: PathBuf, cause: CredentialError },
    /// The WebSocket handshake failed.
    WebSocket { target: String, cause: WebSocketError },
    /// The token has expired, and no other one is there.
    NoToken { cause: String },
    /// The tunnel to the broker is not open.
    NotForwarded { target: String, cause: String },
    /// The host name could not be resolved.
    Resolve { target: String, cause: String },
    /// No TCP connection could be made, or it was lost before CONNACK.
    Connect {
        target: String,
        /// Of the broker's URL.
        scheme: &'static str,
        cause: String,
    },
    /// The TLS handshake failed.
    Tls {
        target: String,
        cause: TlsError,
        /// Whether a WebSocket was to be opened on the connection.
        in_web_socket: bool,
    },
    /// The TLS files could not be read again for a reconnect.
    TlsFiles { cause: String },
    /// The broker rejected the CONNECT.
    Rejected {
        target: String,
        reason: ReasonCode,
        /// The client, by what it authenticates with. Without credentials it is None, or the client id if no rule permits it.
        identity: Option<Box<str>>,
        /// The token that was sent, if the client authenticates with one.
        token: Option<Box<SentToken>>,
    },
    /// A connection was made, but the broker sent no CONNACK within this time.
    NoConnack { target: String, after: Duration },
    /// The server does not speak MQTT 5.
    NotMqtt { target: String, cause: String },
    /// The server is an MQTT broker, but lacks what requests to the store need. Nothing was sent to the store.
    Unsuitable { target: String, cause: UnsuitableCause },
    /// The connection was lost before the response arrived.
    Lost { target: String, cause: LossCause, outcome: Outcome },
    /// No response arrived within this time.
    Timeout { target: String, after: Duration, outcome: Outcome },
    /// The broker reported that it has delivered the request to no subscriber, and no response arrived.
    NoStore { target: String },
    /// The broker refused the request in its PUBACK.
    PublishRefused { reason: ReasonCode },
    /// The broker refused a subscription that the request needs.
    SubscribeRefused { filter: String, reason: ReasonCode },
    /// The broker granted only QoS 0 to a subscription that needs QoS 1.
    QosTooLow { filter: String },
    /// The store refused the request.
    Refused(ErrorReply),
    /// The store refused the request because no rule allows it.
    Denied(Box<Denial>),
    /// The store's response is malformed.
    MalformedReply { cause: String, outcome: Outcome },
    /// The response's version is further ahead of the local clock than the protocol allows (protocol §2).
    ClockSkew { ahead_ms: u64, outcome: Outcome },
    /// The request is larger than the broker accepts. It was not sent. Sizes in bytes of the packet.
    TooLarge { size: usize, max: usize },
    /// An empty pattern matches no key. Nothing was sent.
    EmptyPattern,
    /// The session was closed by this client.
    Closed,
}

/// What a broker lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsuitableCause {
    /// MQTT 5.
    Version,
    /// QoS 1: its Maximum QoS is 0.
    Qos,
}

/// The cause of an invalid password or token file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialError {
    /// The file cannot be read.
    Unreadable(String),
    Empty,
    /// The file has more than this number of bytes.
    TooLong(usize),
    /// The text of the file cannot be read, or the broker would not know it.
    Encoding(EncodingError),
}

/// The cause of a lost connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// The broker sent a DISCONNECT with this reason.
    Disconnect(ReasonCode),
    Other(String),
}

/// What is known about the effect of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It changed nothing: it was not sent, or it only reads.
    Unchanged,
    /// It may or may not have been applied.
    Unknown,
}

/// A reason code (MQTT 5, 2.4) and the reason string that came with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonCode {
    pub code: u8,
    pub text: Option<String>,
}

impl Error {
    /// The cause of an [`Error::Connect`] if nothing listens on the port.
    pub const CONNECTION_REFUSED: &str = io_error::CONNECTION_REFUSED;

    /// The causes of an [`Error::Connect`] if the other side has accepted the connection, and ended it before a CONNACK.
    pub const CONNECTION_ENDED: [&str; 2] = io_error::CONNECTION_ENDED;

    /// Returns whether a reconnect would fail with the same error.
    pub(super) fn is_fatal(&self) -> bool {
        match self {
            Self::Rejected { reason, .. } => reason.is_authorization(),
            Self::WebSocket { cause, .. } => matches!(cause, WebSocketError::Status(401 | 403)),
            Self::Tls { cause, .. } => {
                matches!(
                    cause,
                    TlsError::ClientCertificateRequired | TlsError::ClientCertificateRejected { .. }
                )
            }
            _ => false,
        }
    }

    /// Returns whether a retry of the first connection may succeed. Files, certificates and names do not change by themselves.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::NoToken { .. }
            | Self::NotForwarded { .. }
            | Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::NoConnack { .. } => true,
            Self::Tls { cause, .. } => matches!(cause, TlsError::Interrupted(_) | TlsError::TimedOut(_)),
            Self::WebSocket { cause, .. } => {
                matches!(
                    cause,
                    WebSocketError::Interrupted(_)
                        | WebSocketError::TimedOut(_)
                        | WebSocketError::Status(500..)
                )
            }
            Self::Rejected { reason, .. } => reason.is_transient(),
            _ => false,
        }
    }
}

impl LossCause {
    /// Returns whether another client has connected with this client id (session takeover).
    #[must_use]
    pub fn is_takeover(&self) -> bool {
        self.reason().is_some_and(|reason| reason.code == ReasonCode::SESSION_TAKEN_OVER)
    }

    /// Returns the reason of the broker's DISCONNECT, if it sent one.
    pub(super) fn reason(&self) -> Option<&ReasonCode> {
        match self {
            Self::Disconnect(reason) => Some(reason),
            Self::Other(_) => None,
        }
    }
}

impl From<String> for LossCause {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnect(reason) => write!(out, "the broker ended the connection: {reason}"),
            Self::Other(text) => out.write_str(text),
        }
    }
}

impl ReasonCode {
    pub const NO_MATCHING_SUBSCRIBERS: u8 = 0x10;
    pub const UNSUPPORTED_VERSION: u8 = 0x84;
    pub const BAD_CLIENT_ID: u8 = 0x85;
    pub const BAD_LOGIN: u8 = 0x86;
    pub const NOT_AUTHORIZED: u8 = 0x87;
    pub const REAUTHENTICATE: u8 = 0x19;
    pub const SESSION_TAKEN_OVER: u8 = 0x8E;
    pub const BAD_METHOD: u8 = 0x8C;
    pub const PACKET_TOO_LARGE: u8 = 0x95;
    pub const QUOTA_EXCEEDED: u8 = 0x97;

    /// Returns the reason why a packet of `size` bytes is not sent to a broker that accepts at most `max`.
    pub(super) fn too_large(size: usize, max: usize) -> Self {
        let text = format!("{size} bytes; the broker accepts at most {max}");
        Self { code: Self::PACKET_TOO_LARGE, text: Some(text) }
    }

    /// Adds the server that the client is to use instead.
    pub(super) fn with_server(mut self, server: Option<String>) -> Self {
        if let Some(server) = server {
            self.text = Some(self.text.map_or(server.clone(), |text| format!("{text}: {server}")));
        }
        self
    }

    /// Returns whether the broker names another server to use.
    #[must_use]
    pub fn names_server(&self) -> bool {
        const USE_ANOTHER_SERVER: u8 = 0x9C;
        const SERVER_MOVED: u8 = 0x9D;
        matches!(self.code, USE_ANOTHER_SERVER | SERVER_MOVED) && self.text.is_some()
    }

    /// Returns whether the code is about the client's identity or permissions.
    #[must_use]
    pub fn is_authorization(&self) -> bool {
        const BANNED: u8 = 0x8A;
        matches!(self.code, Self::BAD_LOGIN | Self::NOT_AUTHORIZED | BANNED | Self::BAD_METHOD)
    }

    /// Returns whether the broker does not accept the credentials, as far as the code shows.
    #[must_use]
    pub fn is_about_credentials(&self) -> bool {
        matches!(self.code, Self::BAD_LOGIN | Self::NOT_AUTHORIZED) && !self.is_by_rules()
    }

    /// Returns whether the rules of the broker do not let the client connect.
    #[must_use]
    pub fn is_by_rules(&self) -> bool {
        self.code == Self::NOT_AUTHORIZED
            && self.text.as_deref().is_some_and(|text| text.starts_with("no rule permits"))
    }

    /// Returns whether the code may be about the form, the number or the size of packets, not about the client or the broker.
    pub(super) fn may_be_about_packets(&self) -> bool {
        const UNSPECIFIED_ERROR: u8 = 0x80;
        const MALFORMED_PACKET: u8 = 0x81;
        const PROTOCOL_ERROR: u8 = 0x82;
        const IMPLEMENTATION_SPECIFIC_ERROR: u8 = 0x83;
        const RECEIVE_MAXIMUM_EXCEEDED: u8 = 0x93;
        const MESSAGE_RATE_TOO_HIGH: u8 = 0x96;
        matches!(
            self.code,
            UNSPECIFIED_ERROR
                | MALFORMED_PACKET
                | PROTOCOL_ERROR
                | IMPLEMENTATION_SPECIFIC_ERROR
                | RECEIVE_MAXIMUM_EXCEEDED
                | Self::PACKET_TOO_LARGE
                | MESSAGE_RATE_TOO_HIGH
                | Self::QUOTA_EXCEEDED
        )
    }

    /// Returns whether the same packet may be accepted later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        const SERVER_UNAVAILABLE: u8 = 0x88;
        const SERVER_BUSY: u8 = 0x89;
        const CONNECTION_RATE_EXCEEDED: u8 = 0x9F;
        matches!(
            self.code,
            SERVER_UNAVAILABLE | SERVER_BUSY | CONNECTION_RATE_EXCEEDED | Self::QUOTA_EXCEEDED
        )
    }

    /// Returns whether `mqkv serve` has as many connections as it accepts.
    #[must_use]
    pub fn is_about_connections(&self) -> bool {
        self.code == Self::QUOTA_EXCEEDED && self.text.as_deref() == Some("too many connections")
    }

    /// Returns whether a reason string adds nothing to the name of the code.
    fn is_name(&self, text: &str) -> bool {
        /// What `mqkv serve` sends with the code.
        const SHUTDOWN: (u8, &str) = (0x8B, "the server stops");
        (self.code, text) == SHUTDOWN || self.name().is_some_and(|name| name.eq_ignore_ascii_case(text))
    }

    fn name(&self) -> Option<&'static str> {
        Some(match self.code {
            0x00 => "success",
            0x18 => "continue authentication",
            0x19 => "re-authenticate",
            0x10 => "no matching subscribers",
            0x80 => "unspecified error",
            0x81 => "malformed packet",
            0x82 => "protocol error",
            0x83 => "implementation specific error",
            0x84 => "unsupported protocol version",
            0x85 => "client identifier not valid",
            0x86 => "bad user name or password",
            0x87 => "not authorized",
            0x88 => "server unavailable",
            0x89 => "server busy",
            0x8A => "banned",
            0x8B => "server shutting down",
            0x8C => "bad authentication method",
            0x8D => "keep alive timeout",
            0x8E => "session taken over",
            0x8F => "topic filter invalid",
            0x90 => "topic name invalid",
            0x91 => "packet identifier in use",
            0x93 => "receive maximum exceeded",
            0x94 => "topic alias invalid",
            0x95 => "packet too large",
            0x96 => "message rate too high",
            0x97 => "quota exceeded",
            0x98 => "administrative action",
            0x99 => "payload format invalid",
            0x9A => "retain not supported",
            0x9B => "QoS not supported",
            0x9C => "use another server",
            0x9D => "server moved",
            0x9E => "shared subscriptions not supported",
            0x9F => "connection rate exceeded",
            0xA0 => "maximum connect time",
            0xA1 => "subscription identifiers not supported",
            0xA2 => "wildcard subscriptions not supported",
            _ => return None,
        })
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(out, "{name} (0x{:02X})", self.code)?,
            None => write!(out, "reason 0x{:02X}", self.code)?,
        }
        match &self.text {
            Some(text) if !self.is_name(text) => write!(out, ": {}", text.escape_debug()),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credentials { path, cause } => match cause {
                CredentialError::Unreadable(cause) => write!(out, "cannot read {}: {cause}", path.display()),
                CredentialError::Empty => write!(out, "{} is empty", path.display()),
                CredentialError::Encoding(error) => write!(out, "{} {error}", path.display()),
                CredentialError::TooLong(max) => {
                    write!(out, "{} is too long for a secret: more than {max} bytes", path.display())
                }
            },
            Self::NoToken { cause } => out.write_str(cause),
            Self::NotForwarded { target, cause } => write!(out, "cannot connect to {target}: {cause}"),
            Self::Resolve { target, cause } => write!(out, "cannot resolve {target}: {cause}"),
            Self::Connect { target, cause, .. } => write!(out, "{cause}: {target}"),
            Self::Tls { target, cause, .. } => cause.write(out, target),
            Self::WebSocket { target, cause } => cause.write(out, target),
            Self::TlsFiles { cause } => out.write_str(cause),
            Self::Rejected { target, reason, .. } => {
                write!(out, "{target} rejected the connection: {reason}")
            }
            Self::NoConnack { target, after } => {
                write!(out, "no CONNACK from {target} within {after:?}")
            }
            Self::NotMqtt { target, cause } => write!(out, "{target} does not speak MQTT 5: {cause}"),
            Self::Unsuitable { target, cause: UnsuitableCause::Version } => {
                write!(out, "{target} does not speak MQTT 5: the broker supports older versions only")
            }
            Self::Unsuitable { target, cause: UnsuitableCause::Qos } => {
                write!(out, "{target} supports only QoS 0, but requests to the store need QoS 1")
            }
            Self::Lost { target, cause, .. } => write!(out, "lost the connection to {target}: {cause}"),
            Self::Timeout { target, after, .. } => write!(out, "no answer from {target} within {after:?}"),
            Self::NoStore { target } => {
                write!(out, "no state store at {target}: no subscriber to its request topic")
            }
            Self::PublishRefused { reason } => write!(out, "the broker refused the request: {reason}"),
            Self::SubscribeRefused { filter, reason } => {
                write!(out, "the broker refused the subscription to {}: {reason}", filter.escape_debug())
            }
            Self::QosTooLow { filter } => {
                write!(out, "the broker grants only QoS 0 to the subscription to {}", filter.escape_debug())
            }
            Self::Refused(refusal) => {
                write!(out, "the store refused the request: {}", refusal.text().escape_debug())
            }
            Self::Denied(denial) => denial.fmt(out),
            Self::MalformedReply { cause, .. } => write!(out, "malformed reply from the store: {cause}"),
            Self::ClockSkew { ahead_ms, .. } => {
                let seconds = ahead_ms / 1000;
                write!(out, "the store's clock is {seconds} s ahead of this machine's; the limit is 60 s")
            }
            Self::TooLarge { size, max } => {
                write!(out, "request too large: {size} bytes; the broker accepts at most {max}")
            }
            Self::EmptyPattern => out.write_str("the pattern is empty"),
            Self::Closed => out.write_str("the session was closed"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_printed_once() {
        let shown = |code, text: &str| ReasonCode { code, text: Some(text.to_owned()) }.to_string();
        assert_eq!(shown(0x8B, "the server stops"), "server shutting down (0x8B)");
        assert_eq!(shown(0x87, "Not authorized"), "not authorized (0x87)");
        assert_eq!(shown(0x87, "unknown token"), "not authorized (0x87): unknown token");
    }
}
