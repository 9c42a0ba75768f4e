//! Task of a store that takes part in an exchange: sends frames to leaves, handles timeouts, and reports events.

use std::time::Duration;

use bytes::Bytes;
use tokio::task::yield_now;

use super::shared::Shared;
use crate::clock;
use crate::exchange::effects::Event;
use crate::protocol::Message;
use crate::protocol::exchange::ConflictReport;
use crate::protocol::exchange::topic as topics;
use crate::protocol::message::Qos;
use crate::server::delivery::Publisher;
use crate::server::event::exchange::ExchangeEvent;
use crate::server::exchange::command;
use crate::server::exchange::participant::Route;

/// The time between two looks at links and tombstones, in milliseconds.
const UPKEEP_INTERVAL_MS: u64 = 1_000;

/// What a step under the lock leaves to be done without it.
struct StepOutcome {
    events: Vec<ExchangeEvent>,
    /// Whether there is more to do at once.
    is_busy: bool,
    /// When the next step is due, in monotonic milliseconds.
    due_ms: u64,
}

/// Runs until the task is aborted. `exchange` is the name of the exchange.
pub(super) async fn run(shared: &Shared, publisher: &dyn Publisher, exchange: &str, is_root: bool) {
    let mut upkeep_ms = 0;
    loop {
        let StepOutcome { events, is_busy, due_ms } =
            step(shared, publisher, exchange, is_root, &mut upkeep_ms);
        for event in events {
            if let ExchangeEvent::Link(Event::Conflict { id, conflict }) = &event {
                let at_ms = shared.now().wall_ms;
                let report = ConflictReport { at_ms, ..command::conflict_report(*id, conflict, None) };
                let message = message(topics::conflicts(exchange), report.encode());
                publisher.publish(message, clock::monotonic());
            }
            (shared.events)(event.into());
        }
        if is_busy {
            yield_now().await;
            continue;
        }
        let wait_ms = due_ms.saturating_sub(shared.now().monotonic_ms).clamp(1, UPKEEP_INTERVAL_MS);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(wait_ms)) => {}
            () = shared.exchange_changed.notified() => {}
        }
    }
}

fn step(
    shared: &Shared,
    publisher: &dyn Publisher,
    exchange: &str,
    is_root: bool,
    upkeep_ms: &mut u64,
) -> StepOutcome {
    let now = shared.now();
    let mut state = shared.lock();
    if state.exchange_due_ms() <= now.monotonic_ms || *upkeep_ms <= now.monotonic_ms {
        *upkeep_ms = now.monotonic_ms.saturating_add(UPKEEP_INTERVAL_MS);
        state.handle_exchange_timeout(publisher, now);
    }
    let mut is_busy = state.walk(publisher, now);
    // A leaf's frames are sent by its uplink.
    if is_root && let Some((payload, route)) = state.poll_frame(now) {
        is_busy = true;
        // The connection may have ended meanwhile.
        if let Some(Route { connection, leaf, .. }) = route {
            publisher.deliver(connection, message(topics::down(exchange, leaf.as_str()), payload));
        }
    }
    let events = state.exchange.as_mut().map(|exchange| exchange.take_events()).unwrap_or_default();
    let due_ms = state.exchange_due_ms().min(*upkeep_ms);
    shared.wake_commit_thread(&mut state);
    drop(state);
    if !is_root {
        shared.uplink_changed.notify_one();
    }
    StepOutcome { events, is_busy, due_ms }
}

fn message(topic: String, payload: Bytes) -> Message {
    Message { topic: topic.into(), payload, qos: Qos::AtLeastOnce, ..Message::default() }
}
