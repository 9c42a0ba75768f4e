//! Task that removes keys at their deadlines and notifies their watchers.

use std::time::Duration;

use super::shared::Shared;
use crate::server::delivery::Publisher;

/// Removes expired keys until the task is aborted.
pub(super) async fn run(shared: &Shared, publisher: &dyn Publisher) {
    loop {
        let next_ms = expire(shared, publisher);
        // Waits at least for a millisecond, so that requests are handled between two polls of many expired keys.
        let wait_ms = next_ms.saturating_sub(shared.now().monotonic_ms).max(1);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(wait_ms)) => {}
            () = shared.has_earlier_deadline.notified() => {}
        }
    }
}

/// Removes expired keys, and returns when the next ones expire, in monotonic milliseconds.
fn expire(shared: &Shared, publisher: &dyn Publisher) -> u64 {
    let now = shared.now();
    let mut state = shared.lock();
    let next_ms = state.expire(publisher, now);
    shared.wake_commit_thread(&state);
    next_ms
}
