//! Connection handles: what the rest of the broker sees of a connection, and how it closes one.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::Notify;

use crate::broker::authentication::Credential;
use crate::mqtt::ReasonCode;
use crate::protocol::ConnectionId;

/// The reason string for [`CloseReason::NotReading`].
pub const NOT_READING: &str = "the client does not read its messages, and memory is scarce";

/// Why a connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client has sent a DISCONNECT.
    ClientDisconnect {
        /// Whether the Will Message is published all the same (reason code 0x04).
        publishes_will: bool,
        /// A new session expiry interval in seconds, if the client has sent one.
        session_expiry_s: Option<u32>,
    },
    /// The server closes the connection, with a DISCONNECT.
    ServerDisconnect {
        reason: ReasonCode,
        /// The reason string.
        text: String,
    },
    /// The server closes the connection and ends the session: memory is scarce, and the client does not read.
    NotReading,
    /// The network connection was lost.
    ConnectionLost(String),
}

impl CloseReason {
    /// Whether the client's Will Message is published (MQTT 5, 3.1.2.5).
    #[must_use]
    pub fn publishes_will(&self) -> bool {
        match self {
            Self::ClientDisconnect { publishes_will, .. } => *publishes_will,
            // All clients are disconnected, so no client would receive the message.
            Self::ServerDisconnect { reason, .. } => *reason != ReasonCode::ServerShuttingDown,
            Self::NotReading | Self::ConnectionLost(_) => true,
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientDisconnect { .. } => write!(f, "closed by the client"),
            Self::ServerDisconnect { reason, text } => write!(f, "{reason}: {text}"),
            Self::NotReading => write!(f, "{}: {NOT_READING}", ReasonCode::QuotaExceeded),
            Self::ConnectionLost(text) => write!(f, "connection lost: {text}"),
        }
    }
}

/// How far a connection has come when the broker drains. A connection passes the phases in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DrainPhase {
    /// The broker does not drain.
    Open,
    /// The packets that were read are handled, and no others.
    Draining,
    /// These packets have been handled.
    Drained,
    /// The connection closes once all its messages have been sent.
    Finishing,
}

/// An accepted connection, shared by its task and the rest of the broker.
#[derive(Debug)]
pub struct ConnectionHandle {
    pub id: ConnectionId,
    /// Wakes the connection's task.
    pub wake: Notify,
    close_reason: OnceLock<CloseReason>,
    phase: AtomicU8,
    /// Of the client's user.
    credential: Mutex<Option<Arc<dyn Credential>>>,
    certificate_expiry_s: OnceLock<u64>,
}

impl ConnectionHandle {
    #[must_use]
    pub fn new(id: ConnectionId) -> Self {
        let phase = AtomicU8::new(DrainPhase::Open as u8);
        Self {
            id,
            wake: Notify::new(),
            close_reason: OnceLock::new(),
            phase,
            credential: Mutex::default(),
            certificate_expiry_s: OnceLock::new(),
        }
    }

    /// Notes when the client's certificate expires, once, in seconds since 1970.
    pub fn set_certificate_expiry(&self, expiry_s: Option<u64>) {
        if let Some(expiry_s) = expiry_s {
            let _ = self.certificate_expiry_s.set(expiry_s);
        }
    }

    /// Notes the credential that the client has authenticated with last.
    pub fn set_credential(&self, credential: Option<Arc<dyn Credential>>) {
        *self.credential.lock().unwrap_or_else(PoisonError::into_inner) = credential;
    }

    /// Closes the connection if what its client has authenticated with is no longer valid; returns whether it is closed.
    pub fn close_if_invalid(&self, now_s: u64) -> bool {
        let credential = self.credential.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let text = if credential.is_some_and(|credential| !credential.is_valid()) {
            "the password or token is no longer valid"
        } else if self.certificate_expiry_s.get().is_some_and(|expiry_s| *expiry_s < now_s) {
            "the client certificate has expired"
        } else {
            return false;
        };
        self.close(ReasonCode::NotAuthorized, text);
        true
    }

    /// Moves the connection to a later phase; an earlier one changes nothing.
    pub fn advance(&self, phase: DrainPhase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
        self.wake.notify_one();
    }

    #[must_use]
    pub fn has_reached(&self, phase: DrainPhase) -> bool {
        self.phase.load(Ordering::Acquire) >= phase as u8
    }

    /// Requests that the connection's task closes it with a DISCONNECT.
    pub fn close(&self, reason: ReasonCode, text: &str) {
        // The first request decides; an error means that there was one.
        let _ = self.close_reason.set(CloseReason::ServerDisconnect { reason, text: text.to_owned() });
        self.wake.notify_one();
    }

    /// Returns why the connection is to be closed, if it is.
    #[must_use]
    pub fn close_reason(&self) -> Option<&CloseReason> {
        self.close_reason.get()
    }
}
