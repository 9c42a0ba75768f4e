//! What can go wrong between a request and its answer.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

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
        trouble: WebSocketError,
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
        trouble: TlsError,
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

/// Why there is no TLS with a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsError {
    /// Its certificate is no longer valid.
    Expired {
        /// For how many whole days, where known.
        days: Option<u64>,
    },
    /// Its certificate is not valid yet.
    NotValidYet {
        /// For how many whole days still, where known.
        days: Option<u64>,
    },
    /// Its certificate was signed by nobody who is trusted.
    UnknownCa,
    /// Its certificate is somebody else's.
    WrongName {
        /// The name that was looked for, where known.
        wanted: Option<String>,
        /// The names that it has, where known; escaped.
        names: Vec<String>,
    },
    /// Something else is wrong with its certificate.
    Certificate(String),
    /// It wants a client certificate, and there is none.
    ClientCertificateRequired,
    /// It does not take the client's certificate, with its alert.
    ClientCertificateRefused(String),
    /// It does not go on with the handshake, with its alert.
    HandshakeRefused(String),
    /// Plain MQTT was spoken to it, and it wants TLS.
    Wanted,
    /// It speaks something else.
    NotTls,
    /// The connection ended in the middle of the handshake.
    Cut(String),
    /// It says nothing.
    Silent(Duration),
    /// Anything else.
    Other(String),
}

/// Why there is no WebSocket with a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebSocketError {
    /// It answered with this HTTP status instead.
    Status(u16),
    /// It does not speak MQTT in its WebSockets.
    NoSubprotocol,
    /// What it answered is not HTTP.
    NotHttp,
    /// The connection ended in the middle of the handshake.
    Cut(String),
    /// It says nothing.
    Silent(Duration),
    /// Anything else.
    Other(String),
}

/// Why TLS cannot be spoken at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsSetupError {
    /// A file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: String,
    },
    /// A file does not hold what it should.
    Nonsense {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, behind its name.
        what: &'static str,
        /// What to try next.
        hint: Option<String>,
    },
    /// The platform trusts nobody.
    NoRoots,
    /// No certificate can have this name.
    Name(String),
    /// Anything else.
    Other(String),
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
            Self::Tls { target, trouble, .. } => trouble.write(out, target),
            Self::WebSocket { target, trouble } => trouble.write(out, target),
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

impl TlsError {
    fn write(&self, out: &mut fmt::Formatter<'_>, target: &str) -> fmt::Result {
        match self {
            Self::Expired { days: None } => write!(out, "the certificate of {target} has expired"),
            Self::Expired { days: Some(days) } => {
                write!(out, "the certificate of {target} has expired {} ago", days_text(*days))
            }
            Self::NotValidYet { days: None } => write!(out, "the certificate of {target} is not valid yet"),
            Self::NotValidYet { days: Some(days) } => {
                write!(out, "the certificate of {target} is not valid yet, for another {}", days_text(*days))
            }
            Self::UnknownCa => write!(out, "the certificate of {target} is from an unknown CA"),
            Self::WrongName { wanted, names } => {
                write!(out, "the certificate of {target} is ")?;
                match (names.as_slice(), wanted) {
                    ([], Some(_)) => out.write_str("for no host (it has no subjectAltName), ")?,
                    ([], None) => {}
                    _ => write!(out, "for {}, ", names.join(" and "))?,
                }
                write!(out, "not for {}", wanted.as_deref().unwrap_or("this host"))
            }
            Self::Certificate(cause) => write!(out, "the certificate of {target} cannot be used: {cause}"),
            Self::ClientCertificateRequired => write!(out, "{target} wants a client certificate"),
            Self::ClientCertificateRefused(alert) => {
                write!(out, "{target} refused this client's certificate: {alert}")
            }
            Self::HandshakeRefused(alert) => write!(out, "{target} refused the TLS handshake: {alert}"),
            Self::Wanted => write!(out, "{target} wants TLS, and was spoken to without"),
            Self::NotTls => write!(out, "{target} does not speak TLS"),
            Self::Cut(cause) => write!(out, "{target} did not finish the TLS handshake: {cause}"),
            Self::Silent(after) => {
                write!(out, "{target} accepted the connection but said nothing of TLS within {after:?}")
            }
            Self::Other(cause) => write!(out, "no TLS with {target}: {cause}"),
        }
    }
}

impl WebSocketError {
    fn write(&self, out: &mut fmt::Formatter<'_>, target: &str) -> fmt::Result {
        match self {
            Self::Status(status) => write!(out, "{target} has no WebSocket there: it answered HTTP {status}"),
            Self::NoSubprotocol => write!(out, "{target} does not speak MQTT in its WebSockets"),
            Self::NotHttp => write!(out, "{target} has no WebSockets: it does not speak HTTP"),
            Self::Cut(cause) => write!(out, "{target} did not finish the WebSocket handshake: {cause}"),
            Self::Silent(after) => {
                write!(
                    out,
                    "{target} accepted the connection but said nothing of WebSockets within {after:?}"
                )
            }
            Self::Other(cause) => write!(out, "no WebSocket with {target}: {}", cause.escape_debug()),
        }
    }
}

fn days_text(days: u64) -> String {
    match days {
        0 => "less than a day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

impl fmt::Display for TlsSetupError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, cause } => write!(out, "cannot read {}: {cause}", path.display()),
            Self::Nonsense { path, what, .. } => write!(out, "{} {what}", path.display()),
            Self::NoRoots => out.write_str("this machine has no certificates of CAs to trust"),
            Self::Name(name) => write!(out, "no certificate can be for {}", name.escape_debug()),
            Self::Other(cause) => out.write_str(cause),
        }
    }
}

impl std::error::Error for TlsSetupError {}

impl TlsSetupError {
    /// The text with what to try next, where there is one line for both.
    #[must_use]
    pub fn with_hint(&self) -> String {
        match self {
            Self::Nonsense { hint: Some(hint), .. } => format!("{self} (try: {hint})"),
            _ => self.to_string(),
        }
    }
}
