//! The one task for all deadlines: sessions that expire and wills that are due.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::Broker;
use crate::clock;

/// When there is no deadline at all.
const NEVER: Duration = Duration::from_secs(3600);

/// Does what is due, until the server stops.
pub async fn sweep(broker: Broker, mut closing: watch::Receiver<bool>) {
    loop {
        let next = broker.sweep(clock::monotonic());
        let wait = async {
            match next {
                Some(at) => sleep_until(Instant::from_std(at)).await,
                None => sleep(NEVER).await,
            }
        };
        tokio::select! {
            _ = closing.wait_for(|is_closing| *is_closing) => return,
            () = broker.inner.deadline.notified() => {}
            () = wait => {}
        }
    }
}
