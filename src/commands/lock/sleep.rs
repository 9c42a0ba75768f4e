//! Sleeps until instants of the clock that keeps running while the machine is suspended.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::clock;
use crate::platform::Timer;

/// The longest sleep without a timer of the system. The runtime's timers stand still while the machine is suspended, so
/// this is how late the end of a suspension is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Sleeps until an instant of [`clock::boottime`]; without one, for ever.
pub async fn sleep_until_some(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Sleeps until an instant of [`clock::boottime`].
pub async fn sleep_until(due: Instant) {
    // It ends at once when the machine wakes, before a command has run for long without its lock.
    if let Ok(timer) = Timer::new() {
        let _ = timer.sleep(due.saturating_duration_since(clock::boottime())).await;
    }
    sleep_until_by(due, clock::boottime).await;
}

async fn sleep_until_by(due: Instant, now: fn() -> Instant) {
    loop {
        let left = due.saturating_duration_since(now());
        if left.is_zero() {
            return;
        }
        sleep(left.min(SLEEP_MAX)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::time::timeout;

    use super::*;

    static SUSPENDED_S: AtomicU64 = AtomicU64::new(0);

    fn now() -> Instant {
        clock::monotonic() + Duration::from_secs(SUSPENDED_S.load(Ordering::SeqCst))
    }

    #[tokio::test]
    async fn an_instant_that_has_passed_during_a_suspension_ends_the_sleep() {
        const HOUR: Duration = Duration::from_secs(3600);
        let sleeping = tokio::spawn(sleep_until_by(now() + HOUR, now));
        tokio::task::yield_now().await;
        SUSPENDED_S.store(7200, Ordering::SeqCst);
        timeout(HOUR / 60, sleeping).await.unwrap().unwrap();
    }
}
