//! Statistics: what the broker holds at one moment.

use std::sync::Arc;
use std::time::Instant;

use super::principal::Principal;
use super::session::entry::SessionEntry;
use crate::protocol::ConnectionId;

/// How much the broker holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Connected clients.
    pub connected: usize,
    /// Limit of the number of connections.
    pub connections_max: usize,
    /// Sessions, also those without a connection.
    pub sessions: usize,
    pub sessions_max: usize,
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

impl Statistics {
    /// Adds what one session holds.
    pub fn add(&mut self, client: &ClientStatistics) {
        self.subscriptions = self.subscriptions.saturating_add(client.subscriptions);
        self.queued = self.queued.saturating_add(client.queued);
        self.queued_bytes = self.queued_bytes.saturating_add(client.queued_bytes);
    }
}

/// A client's session, for the list of clients.
#[derive(Clone, Debug)]
pub struct ClientStatistics {
    pub client_id: Arc<str>,
    pub principal: Principal,
    /// `None` while the client is not connected.
    pub connection: Option<ConnectionId>,
    /// The client's address, also after its connection has ended.
    pub remote: Arc<str>,
    /// When the client connected or, if it is not connected, disconnected.
    pub since: Option<Instant>,
    /// Number of subscriptions.
    pub subscriptions: usize,
    /// Messages that are queued, or sent and not acknowledged.
    pub queued: usize,
    /// Bytes of these messages, as charged by `Publication::bytes`.
    pub queued_bytes: usize,
}

impl ClientStatistics {
    #[must_use]
    pub fn of(entry: &SessionEntry) -> Self {
        let state = entry.lock();
        let (queued, queued_bytes) = state.session.size();
        Self {
            client_id: Arc::clone(&entry.client_id),
            principal: state.principal.clone(),
            connection: state.handle.as_ref().map(|handle| handle.id),
            remote: Arc::clone(&state.remote),
            since: state.disconnected_since.or(state.connected_since),
            subscriptions: state.filters.len(),
            queued,
            queued_bytes,
        }
    }

    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }
}
