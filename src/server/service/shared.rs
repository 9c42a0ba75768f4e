//! State that the broker's connections, the commit thread and the expiry task share.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use super::state::State;
use crate::clock;
use crate::server::event::EventSink;
use crate::store::Now;

/// The state behind its lock, and the signals that go with it.
///
/// The lock is held from the handling of a request until its response and its notifications have been handed to the
/// broker. That keeps the notifications of a key in the order of its versions, whichever threads the requests arrive
/// on. The broker may be called under the lock; it calls the service without holding a lock of its own.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Signalled when there are changes to commit, and at the end.
    pub(super) has_uncommitted: Condvar,
    /// Signalled when a key expires before the time at which the expiry task would wake.
    pub(super) has_earlier_deadline: Notify,
    pub(super) events: EventSink,
    /// The zero of the store's monotonic clock.
    origin: Instant,
}

impl Shared {
    pub(super) fn new(state: State, events: EventSink, origin: Instant) -> Self {
        let (has_uncommitted, has_earlier_deadline) = (Condvar::new(), Notify::new());
        Self { state: Mutex::new(state), has_uncommitted, has_earlier_deadline, events, origin }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Now {
        let reading = clock::now();
        let since = reading.monotonic.saturating_duration_since(self.origin);
        // The conversion cannot fail within 584 million years.
        Now { wall_ms: reading.wall_ms, monotonic_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX) }
    }

    pub(super) fn wake_commit_thread(&self, state: &State) {
        if state.has_uncommitted() {
            self.has_uncommitted.notify_one();
        }
    }

    pub(super) fn wake_expiry_task(&self, state: &mut State) {
        if let Some(next_ms) = state.next_expiry()
            && next_ms < state.expiry_wakes_ms
        {
            state.expiry_wakes_ms = next_ms;
            self.has_earlier_deadline.notify_one();
        }
    }
}
