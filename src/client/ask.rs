//! A request ready to be sent, and a response not yet interpreted.

use bytes::Bytes;

use super::error::Outcome;
use crate::protocol::Timestamp;

/// Whether a request may change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It only reads: it may be asked twice.
    Read,
    /// It may change the store: without an answer its outcome is unknown.
    Write,
}

impl Access {
    /// What a command's first word may do; a word that we do not know may do anything.
    #[must_use]
    pub fn of(verb: &[u8]) -> Self {
        match verb {
            b"GET" | b"SCAN" | b"KEYNOTIFY" => Self::Read,
            _ => Self::Write,
        }
    }

    /// What is known of such a request when it was sent and no answer came.
    #[must_use]
    pub fn outcome_when_unanswered(self) -> Outcome {
        match self {
            Self::Read => Outcome::Unchanged,
            Self::Write => Outcome::Unknown,
        }
    }
}

/// A request, ready to be sent.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The request's payload.
    pub payload: Bytes,
    /// Whether it may change something.
    pub access: Access,
    /// What travels beside the payload.
    pub stamps: Stamps,
}

/// What travels beside a request's payload.
#[derive(Clone, Debug, Default)]
pub struct Stamps {
    /// The fencing token (protocol §5).
    pub fence: Option<Timestamp>,
    /// Whether the store shall keep the value on disk (protocol §7).
    pub persist: bool,
    /// What stands in for the session's clock (protocol §1). Such a request is outside of it: the answer's version is
    /// taken as sent, however far it is ahead.
    pub timestamp: Option<Timestamp>,
}

/// A response, not yet interpreted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The payload as sent.
    pub payload: Bytes,
    /// The version that came with it.
    pub version: Option<Timestamp>,
    /// Whether it has a status, without which Microsoft's clients do not take it (protocol §2).
    pub has_status: bool,
}
