//! Requests of this process to a store without a disk.

use std::sync::Arc;

use super::application::Service;
use crate::ledger::LedgerKind;
use crate::protocol::{ConnectionId, Reply, Request, Timestamp};
use crate::store::{StoreRequest, WatchOptions};

impl Service {
    /// Returns a function that handles requests of this process with their fencing tokens, if the store has no disk: its replies wait for no commit, so
    /// that they need no connection.
    ///
    /// It is for requests before the server accepts connections: the rules do not apply to them, they are sent to no monitor,
    /// and cause no notifications.
    #[must_use]
    pub fn memory_store(&self) -> Option<impl Fn(Request, Option<Timestamp>) -> Reply> {
        let is_in_memory = self.shared.lock().ledger() == LedgerKind::Memory;
        is_in_memory.then_some(|request, fence| self.handle_in_memory(request, fence))
    }

    fn handle_in_memory(&self, request: Request, fence: Option<Timestamp>) -> Reply {
        let now = self.shared.now();
        let mut request = StoreRequest {
            connection: ConnectionId(0),
            client_id: Arc::default(),
            owner: Arc::default(),
            permissions: None,
            request,
            timestamp: Some(Ok(Timestamp::of_store(now.wall_ms, 0))),
            fence: fence.map(Ok),
            encoded: None,
            persist: false,
            refusal: None,
            watch: WatchOptions::default(),
        };
        request.encode_long_value();
        let mut state = self.shared.lock();
        let response = state.store.handle_request(request, now);
        self.shared.wake_expiry_task(&mut state);
        response.reply
    }
}
