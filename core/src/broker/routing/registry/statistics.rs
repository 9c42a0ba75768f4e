//! Statistics of the registry, and the walk through its sessions.

use std::ops::Bound;
use std::sync::Arc;

use super::Registry;
use crate::broker::memory::MemoryBudget;
use crate::broker::session::entry::{SessionEntry, SessionId};
use crate::broker::statistics::Statistics;

impl Registry {
    /// Returns the statistics that need no walk through the sessions.
    #[must_use]
    pub fn totals(&self) -> Statistics {
        let (retained, retained_bytes) = self.retained.size();
        Statistics {
            connected: self.connections.len(),
            sessions: self.sessions.len(),
            sessions_max: self.sessions_max,
            retained,
            retained_bytes,
            ..Statistics::default()
        }
    }

    /// Returns the next sessions, in the order in which they began; none after the last one.
    #[must_use]
    pub fn sessions_after(&self, last: Option<SessionId>, sessions_max: usize) -> Vec<Arc<SessionEntry>> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.sessions_by_id.range((from, Bound::Unbounded));
        later.take(sessions_max).map(|(_, entry)| Arc::clone(entry)).collect()
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
