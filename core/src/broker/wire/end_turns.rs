//! Turns of ends: connections that end at the same time leave the thread to the others.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::yield_now;

/// The most connections of a thread that end before its other tasks have a turn: some hundreds of microseconds.
const ENDS_PER_TURN_MAX: usize = 16;

thread_local! {
    static TURNS: Arc<Semaphore> = Arc::new(Semaphore::new(ENDS_PER_TURN_MAX));
}

/// Waits until a connection of this thread may end.
///
/// Tasks run in the order in which they became ready. When a client closes thousands of connections at once, each request
/// that comes later would wait for the end of all of them: 140 ms for 3,600.
pub async fn wait_for_turn() {
    let turns = TURNS.with(Arc::clone);
    // An error means that the semaphore is closed, which it never is.
    let _turn = turns.acquire().await;
    yield_now().await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const COUNT: usize = 20 * ENDS_PER_TURN_MAX;

    #[tokio::test]
    async fn of_many_connections_that_end_at_once_a_few_end_before_other_tasks_run() {
        let ended = Arc::<AtomicUsize>::default();
        let end = |ended: Arc<AtomicUsize>| async move {
            wait_for_turn().await;
            ended.fetch_add(1, Ordering::Relaxed);
        };
        let ends: Vec<_> = (0..COUNT).map(|_| tokio::spawn(end(Arc::clone(&ended)))).collect();
        let mut before = 0;
        while before < COUNT {
            yield_now().await;
            let now = ended.load(Ordering::Relaxed);
            assert!(now - before <= 2 * ENDS_PER_TURN_MAX, "{} at once", now - before);
            before = now;
        }
        for end in ends {
            end.await.unwrap();
        }
    }
}
