//! Statistics of the registry.

use std::sync::Arc;

use super::Registry;
use crate::broker::memory::MemoryBudget;
use crate::broker::session::entry::SessionEntry;
use crate::broker::statistics::{ClientStatistics, Statistics};

impl Registry {
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let (retained, retained_bytes) = self.retained.size();
        let mut statistics = Statistics {
            connected: self.connections.len(),
            sessions: self.sessions.len(),
            retained,
            retained_bytes,
            ..Statistics::default()
        };
        for entry in self.sessions.values() {
            let state = entry.lock();
            let (messages, bytes) = state.session.size();
            statistics.subscriptions = statistics.subscriptions.saturating_add(state.filters.len());
            statistics.queued = statistics.queued.saturating_add(messages);
            statistics.queued_bytes = statistics.queued_bytes.saturating_add(bytes);
        }
        statistics
    }

    /// Returns at most `clients_max` clients, in no particular order.
    #[must_use]
    pub fn clients(&self, clients_max: usize) -> Vec<ClientStatistics> {
        let client = |entry: &Arc<SessionEntry>| {
            let state = entry.lock();
            ClientStatistics {
                client_id: Arc::clone(&entry.client_id),
                is_connected: state.handle.is_some(),
                subscriptions: state.filters.len(),
                queued: state.session.size().0,
            }
        };
        self.sessions.values().take(clients_max).map(client).collect()
    }

    /// Returns the number of connected clients.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    #[must_use]
    pub fn memory(&self) -> &Arc<MemoryBudget> {
        &self.memory
    }
}
