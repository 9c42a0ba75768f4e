//! Task that removes what has expired, notifies the watchers of keys, and follows the wall clock.

use std::time::Duration;

use super::shared::Shared;
use crate::server::delivery::Publisher;

/// The time between two looks at the wall clock and at expired responses, in milliseconds.
const UPKEEP_INTERVAL_MS: u64 = 1_000;

/// Removes expired keys, follows the wall clock and discards expired responses until the task is aborted.
pub(super) async fn run(shared: &Shared, publisher: &dyn Publisher) {
    let (mut wall_clock, mut upkeep_ms) = (shared.wall_clock(), 0);
    loop {
        let now = shared.now();
        if now.monotonic_ms >= upkeep_ms {
            upkeep_ms = now.monotonic_ms.saturating_add(UPKEEP_INTERVAL_MS);
            shared.observe_wall_clock(&mut wall_clock);
            let forgotten = shared.lock().discard_expired_responses(now);
            forgotten.into_iter().for_each(|event| (shared.events)(event));
        }
        let next_ms = expire(shared, publisher);
        // Waits at least for a millisecond, so that requests are handled between two polls of many expired keys.
        let wait_ms = next_ms.saturating_sub(shared.now().monotonic_ms).clamp(1, UPKEEP_INTERVAL_MS);
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
    shared.wake_commit_thread(&mut state);
    next_ms
}
