//! What can go wrong between a request and its answer.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::net::tls::TlsError;
use crate::net::websocket::WebSocketError;
use crate::protocol::error_reply::ErrorReply;

/// Why there is no answer, or none that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A file with a password or a token does not hold one.
    Credentials {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: CredentialError,
    },
    /// There is no WebSocket with the broker.
    WebSocket {
        /// `host:port` as asked for.
        target: String,
        /// What is wrong.
        cause: WebSocketError,
    },
    /// The host name has no address.
    Resolve {
        /// `host:port` as asked for.
        target: String,
        /// What the resolver said.
        cause: String,
    },
    /// No connection could be made.
    Connect {
        /// `host:port` as asked for.
        target: String,
        /// What the system said.
        cause: String,
    },
    /// There is a connection, but no TLS on it.
    Tls {
        /// `host:port` as asked for.
        target: String,
        /// What came between.
        cause: TlsError,
        /// Whether a WebSocket was wanted on it.
        in_web_socket: bool,
    },
    /// The broker did not let the client in.
    Rejected {
        /// `host:port` as asked for.
        target: String,
        /// The CONNACK's reason.
        reason: ReasonCode,
    },
    /// A connection was made, but the broker did not say CONNACK in time.
    NoConnack {
        /// `host:port` as asked for.
        target: String,
        /// How long the client waited.
        after: Duration,
    },
    /// Whatever listens there does not speak MQTT 5.
    NotMqtt {
        /// `host:port` as asked for.
        target: String,
        /// What was wrong with its bytes.
        cause: String,
    },
    /// The connection ended before the answer came.
    Lost {
        /// `host:port` as asked for.
        target: String,
        /// Why it ended.
        cause: LossCause,
        /// What is known of the request.
        outcome: Outcome,
    },
    /// No answer came in time.
    Timeout {
        /// `host:port` as asked for.
        target: String,
        /// How long the client waited.
        after: Duration,
        /// What is known of the request.
        outcome: Outcome,
    },
    /// The broker says that nobody takes requests to the store, and no answer has come.
    NoStore {
        /// `host:port` as asked for.
        target: String,
        /// What is known of the request: the broker's word is no proof.
        outcome: Outcome,
    },
    /// The broker refused to take the request.
    PublishRefused {
        /// The PUBACK's reason.
        reason: ReasonCode,
    },
    /// The broker refused a subscription that the request needs.
    SubscribeRefused {
        /// The topic filter.
        filter: String,
        /// The SUBACK's reason.
        reason: ReasonCode,
    },
    /// The store refused the request.
    Refused(ErrorReply),
    /// The store's answer makes no sense.
    MalformedReply {
        /// What is wrong with it.
        cause: String,
        /// What is known of the request.
        outcome: Outcome,
    },
    /// The answer's version is further ahead of this machine's clock than the protocol allows (protocol §2).
    ClockSkew {
        /// How far ahead, in milliseconds.
        ahead_ms: u64,
        /// What is known of the request.
        outcome: Outcome,
    },
    /// The request is larger than the broker takes; nothing was sent.
    TooLarge {
        /// The packet's size in bytes.
        size: usize,
        /// The broker's limit in bytes.
        max: usize,
    },
    /// A pattern without a character matches no key; nothing was sent.
    EmptyPattern,
    /// The session was closed on this side.
    Closed,
}

/// Why a file holds no password and no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialError {
    /// It cannot be read; what the system said.
    Unreadable(String),
    /// There is nothing in it.
    Empty,
    /// It has more bytes than MQTT can carry, which are so many.
    TooLong(usize),
}

/// Why a connection was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// The broker has ended it, with a DISCONNECT of this reason.
    Ended(ReasonCode),
    /// Anything else, in words.
    Other(String),
}

/// What is known of a request that has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did not change anything: it was not sent, or only reads.
    Unchanged,
    /// It may or may not have been carried out.
    Unknown,
}

/// A reason code of MQTT 5 (section 2.4) and the text that came with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonCode {
    /// The code.
    pub code: u8,
    /// The broker's own words, if any.
    pub text: Option<String>,
}

impl Error {
    /// The cause of an [`Error::Connect`] where nobody listens.
    pub const REFUSED: &str = "connection refused";
}

impl LossCause {
    /// Whether somebody else has connected with this client id.
    #[must_use]
    pub fn is_takeover(&self) -> bool {
        matches!(self, Self::Ended(reason) if reason.code == ReasonCode::SESSION_TAKEN_OVER)
    }
}

impl From<String> for LossCause {
    fn from(words: String) -> Self {
        Self::Other(words)
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(reason) => write!(out, "the broker ended the connection: {reason}"),
            Self::Other(words) => out.write_str(words),
        }
    }
}

impl ReasonCode {
    /// `Client Identifier not valid`
    pub const BAD_CLIENT_ID: u8 = 0x85;
    /// `Bad User Name or Password`
    pub const BAD_LOGIN: u8 = 0x86;
    /// `Not authorized`
    pub const NOT_AUTHORIZED: u8 = 0x87;
    /// `Re-authenticate`, of an AUTH
    pub const REAUTHENTICATE: u8 = 0x19;
    /// `Session taken over`
    pub const SESSION_TAKEN_OVER: u8 = 0x8E;
    /// `Bad authentication method`
    pub const BAD_METHOD: u8 = 0x8C;

    /// Whether the code is about who the client is or what it may do.
    #[must_use]
    pub fn is_authorization(&self) -> bool {
        matches!(self.code, Self::BAD_LOGIN | Self::NOT_AUTHORIZED | 0x8A | Self::BAD_METHOD)
    }

    /// Whether the broker may think better of it by itself.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        const SERVER_UNAVAILABLE: u8 = 0x88;
        const SERVER_BUSY: u8 = 0x89;
        const CONNECTION_RATE_EXCEEDED: u8 = 0x9F;
        matches!(self.code, SERVER_UNAVAILABLE | SERVER_BUSY | CONNECTION_RATE_EXCEEDED)
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
            0x9C => "use another server",
            0x9D => "server moved",
            0x9F => "connection rate exceeded",
            0xA0 => "maximum connect time",
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
            Some(text) => write!(out, ": {}", text.escape_debug()),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credentials { path, cause } => match cause {
                CredentialError::Unreadable(cause) => write!(out, "cannot read {}: {cause}", path.display()),
                CredentialError::Empty => write!(out, "{} is empty", path.display()),
                CredentialError::TooLong(max) => {
                    write!(out, "{} has more than {max} bytes, too long for a secret", path.display())
                }
            },
            Self::Resolve { target, cause } => write!(out, "cannot find {target}: {cause}"),
            Self::Connect { target, cause } => write!(out, "cannot connect to {target}: {cause}"),
            Self::Tls { target, cause, .. } => cause.write(out, target),
            Self::WebSocket { target, cause } => cause.write(out, target),
            Self::Rejected { target, reason } => write!(out, "{target} refused the connection: {reason}"),
            Self::NoConnack { target, after } => {
                write!(out, "{target} accepted the connection but said nothing within {after:?}")
            }
            Self::NotMqtt { target, cause } => write!(out, "{target} does not speak MQTT 5: {cause}"),
            Self::Lost { target, cause, .. } => write!(out, "lost the connection to {target}: {cause}"),
            Self::Timeout { target, after, .. } => write!(out, "no answer from {target} within {after:?}"),
            Self::NoStore { target, .. } => {
                write!(out, "no state store at {target}: nobody there takes its requests")
            }
            Self::PublishRefused { reason } => write!(out, "the broker refused the request: {reason}"),
            Self::SubscribeRefused { filter, reason } => {
                write!(out, "the broker refused the subscription to {}: {reason}", filter.escape_debug())
            }
            Self::Refused(refusal) => {
                write!(out, "the store refused: {}", refusal.text().escape_debug())
            }
            Self::MalformedReply { cause, .. } => write!(out, "the store's reply makes no sense: {cause}"),
            Self::ClockSkew { ahead_ms, .. } => {
                let seconds = ahead_ms / 1000;
                write!(out, "the store's clock is {seconds} s ahead of this machine's; the limit is 60 s")
            }
            Self::TooLarge { size, max } => {
                write!(out, "the request has {size} bytes; the broker takes at most {max}")
            }
            Self::EmptyPattern => out.write_str("the pattern is empty"),
            Self::Closed => out.write_str("the session was closed"),
        }
    }
}

impl std::error::Error for Error {}
