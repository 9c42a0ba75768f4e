//! Requests of this process to a store without a disk.

use std::fmt;
use std::sync::Arc;

use super::application::Service;
use super::shared::Shared;
use crate::protocol::{ConnectionId, Reply, Request, Timestamp};
use crate::store::StoreRequest;

/// A store without a disk: its replies wait for no commit, so that they need no connection.
///
/// It is for requests before the server accepts connections: they are sent to no monitor, and cause no notifications.
pub struct MemoryStore<'a>(&'a Shared);

impl Service {
    /// Returns the store if it has no disk.
    #[must_use]
    pub fn memory_store(&self) -> Option<MemoryStore<'_>> {
        let has_disk = self.shared.lock().commit_queue.is_some();
        (!has_disk).then_some(MemoryStore(&self.shared))
    }
}

impl MemoryStore<'_> {
    /// Handles a request. The rules do not apply to it.
    pub fn handle(&self, request: Request) -> Reply {
        let now = self.0.now();
        let mut request = StoreRequest {
            connection: ConnectionId(0),
            client_id: Arc::default(),
            owner: Arc::default(),
            permissions: None,
            request,
            timestamp: Some(Ok(Timestamp::of_store(now.wall_ms, 0))),
            fence: None,
            encoded: None,
            persist: false,
            refusal: None,
        };
        request.encode_long_value();
        let mut state = self.0.lock();
        let response = state.store.handle_request(request, now);
        self.0.wake_expiry_task(&mut state);
        response.reply
    }
}

impl fmt::Debug for MemoryStore<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}
