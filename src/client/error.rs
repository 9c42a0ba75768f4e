//! What can go wrong between a request and its answer.

use std::fmt;
use std::time::Duration;

use crate::protocol::refusal::Refusal;

/// Why there is no answer, or none that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
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
        cause: String,
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
    /// The broker has nobody who takes requests to the store.
    NoStore {
        /// `host:port` as asked for.
        target: String,
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
    Refused(Refusal),
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

impl ReasonCode {
    /// `Not authorized`
    pub const NOT_AUTHORIZED: u8 = 0x87;

    /// Whether the code is about who the client is or what it may do.
    #[must_use]
    pub fn is_authorization(&self) -> bool {
        matches!(self.code, 0x86 | Self::NOT_AUTHORIZED | 0x8A | 0x8C)
    }

    fn name(&self) -> Option<&'static str> {
        Some(match self.code {
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
            Self::Resolve { target, cause } => write!(out, "cannot find {target}: {cause}"),
            Self::Connect { target, cause } => write!(out, "cannot connect to {target}: {cause}"),
            Self::Rejected { target, reason } => write!(out, "{target} refused the connection: {reason}"),
            Self::NoConnack { target, after } => {
                write!(out, "{target} accepted the connection but said nothing within {after:?}")
            }
            Self::NotMqtt { target, cause } => write!(out, "{target} does not speak MQTT 5: {cause}"),
            Self::Lost { target, cause, .. } => write!(out, "lost the connection to {target}: {cause}"),
            Self::Timeout { target, after, .. } => write!(out, "no answer from {target} within {after:?}"),
            Self::NoStore { target } => {
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
