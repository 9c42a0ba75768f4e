//! The service as the leaf at the end of an uplink.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;

use super::shared::Shared;
use crate::random;
use crate::server::delivery::Publisher;
use crate::server::event::exchange::{ExchangeEvent, UplinkEvent};
use crate::server::exchange::uplink::{FrameOutcome, UplinkNode};

/// A leaf's service, with the publisher of the notifications that its root's changes cause.
pub(super) struct LeafNode<P> {
    pub(super) shared: Arc<Shared>,
    pub(super) publisher: P,
    /// The address of the root.
    pub(super) target: String,
}

impl<P: Publisher + 'static> UplinkNode for LeafNode<P> {
    fn handle_connected(&self, frame_bytes_max: usize) {
        let now = self.shared.now();
        if let Some(participant) = &mut self.shared.lock().exchange {
            participant.set_frame_bytes_max(frame_bytes_max);
            participant.handle_connected(random::u64(), now.monotonic_ms);
        }
    }

    fn handle_frame(&self, payload: &Bytes) -> FrameOutcome {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        let outcome = state.handle_root_frame(&self.publisher, payload, now);
        self.shared.wake_commit_thread(&mut state);
        self.shared.wake_expiry_task(&mut state);
        drop(state);
        // There may be events to report.
        self.shared.exchange_changed.notify_one();
        outcome
    }

    fn handle_lost(&self) {
        if let Some(participant) = &mut self.shared.lock().exchange {
            participant.handle_uplink_lost();
        }
        self.shared.exchange_changed.notify_one();
    }

    fn poll_frame(&self) -> Option<Bytes> {
        let now = self.shared.now();
        self.shared.lock().poll_frame(now).map(|(payload, _)| payload)
    }

    fn has_ended(&self) -> bool {
        self.shared.lock().exchange.as_ref().is_none_or(|participant| !participant.has_link())
    }

    fn changed(&self) -> &Notify {
        &self.shared.uplink_changed
    }

    fn retry(&self) -> &Notify {
        &self.shared.uplink_retry
    }

    fn handle_unreachable(&self, cause: String) {
        if let Some(participant) = &mut self.shared.lock().exchange {
            participant.handle_unreachable(cause);
        }
    }

    fn report(&self, event: UplinkEvent) {
        (self.shared.events)(ExchangeEvent::Uplink { target: self.target.clone(), event }.into());
    }
}
