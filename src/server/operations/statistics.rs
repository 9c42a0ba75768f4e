//! Who is at the broker, and what waits there: looked up when somebody asks.

use std::sync::Arc;

/// How much a broker holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Clients that are connected.
    pub connected: usize,
    /// Sessions, those included whose clients are away.
    pub sessions: usize,
    /// Subscriptions of all sessions.
    pub subscriptions: usize,
    /// Retained messages.
    pub retained: usize,
    /// Bytes of retained messages, as they are charged for.
    pub retained_bytes: usize,
    /// Messages that wait for clients or for their acknowledgements.
    pub queued: usize,
    /// Bytes of those, as they are charged for.
    pub queued_bytes: usize,
}

/// A client as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its client id.
    pub client_id: Arc<str>,
    /// Whether it is connected.
    pub is_connected: bool,
    /// How many filters it subscribes to.
    pub subscriptions: usize,
    /// Messages that wait for it or for its acknowledgement.
    pub queued: usize,
}
