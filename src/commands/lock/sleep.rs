//! Waits for instants of a clock that goes on while the machine sleeps, which no timer does.

use std::time::{Duration, Instant};

use tokio::time::sleep;

/// How long it may take until somebody notices that the machine has slept.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Waits until the clock is there.
pub async fn until(due: Instant, now: fn() -> Instant) {
    loop {
        let left = due.saturating_duration_since(now());
        if left.is_zero() {
            return;
        }
        sleep(left.min(LOOK_EVERY)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::time::timeout;

    use super::*;

    static SLEPT_S: AtomicU64 = AtomicU64::new(0);

    #[expect(clippy::disallowed_methods, reason = "the verbs know no clock")]
    fn now() -> Instant {
        Instant::now() + Duration::from_secs(SLEPT_S.load(Ordering::SeqCst))
    }

    #[tokio::test]
    async fn an_end_that_has_passed_while_the_timers_stood_still_is_noticed() {
        const HOUR: Duration = Duration::from_secs(3600);
        let waiting = tokio::spawn(until(now() + HOUR, now));
        tokio::task::yield_now().await;
        SLEPT_S.store(7200, Ordering::SeqCst);
        timeout(HOUR / 60, waiting).await.unwrap().unwrap();
    }
}
