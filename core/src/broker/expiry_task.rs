//! Expiry task: handles the deadlines of sessions and of delayed Will Messages, and routes Will Messages with many
//! subscribers, and ends sessions in steps.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};

use super::handle::Broker;
use crate::clock;

/// How long to sleep when there is no deadline; a new one wakes the task.
const NO_DEADLINE: Duration = Duration::from_secs(3600);

/// Handles deadlines until the server stops.
pub async fn run(broker: Broker, mut closing: watch::Receiver<bool>) {
    loop {
        let next = broker.handle_deadlines(clock::monotonic());
        if (broker.route_wills() | broker.end_sessions()) && !*closing.borrow() {
            yield_now().await;
            continue;
        }
        let wait = async {
            match next {
                Some(at) => sleep_until(Instant::from_std(at)).await,
                None => sleep(NO_DEADLINE).await,
            }
        };
        tokio::select! {
            _ = closing.wait_for(|is_closing| *is_closing) => return,
            () = broker.deadline_changed() => {}
            () = wait => {}
        }
    }
}
