//! Statistics: what the broker holds at one moment.

use std::sync::Arc;

/// How much the broker holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Connected clients.
    pub connected: usize,
    /// Sessions, also those without a connection.
    pub sessions: usize,
    /// Subscriptions of all sessions.
    pub subscriptions: usize,
    /// Retained messages.
    pub retained: usize,
    /// Bytes of retained messages, as charged by `Publication::bytes`.
    pub retained_bytes: usize,
    /// Messages that are queued for clients, or sent and not acknowledged.
    pub queued: usize,
    /// Bytes of these messages, as charged by `Publication::bytes`.
    pub queued_bytes: usize,
}

/// One session for the list of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientStatistics {
    pub client_id: Arc<str>,
    pub is_connected: bool,
    /// Number of subscriptions.
    pub subscriptions: usize,
    /// Messages that are queued, or sent and not acknowledged.
    pub queued: usize,
}
