//! Statistics of a running broker. The sessions may be many, so that other tasks run between bounded steps.

use std::sync::Arc;

use tokio::task::yield_now;

use super::handle::Broker;
use super::session::entry::SessionEntry;
use super::statistics::{ClientStatistics, Statistics};

/// The most sessions that are looked up under one lock, because other connections wait meanwhile.
const SESSIONS_PER_LOCK_MAX: usize = 256;

impl Broker {
    /// Returns all sessions, some at a time, each time with the lock taken anew. A session that exists throughout is
    /// returned once.
    pub(super) fn sessions(&self) -> impl Iterator<Item = Vec<Arc<SessionEntry>>> + '_ {
        let mut last = None;
        std::iter::from_fn(move || {
            let some = self.read().sessions_after(last, SESSIONS_PER_LOCK_MAX);
            last = some.last().map(|entry| entry.id);
            last.is_some().then_some(some)
        })
    }

    /// Returns how much the broker holds. Sessions that begin or end meanwhile may be counted or not.
    pub async fn statistics(&self) -> Statistics {
        self.each_client(|_| {}).await
    }

    /// Calls `visit` for each session, and returns how much the broker holds.
    pub async fn each_client(&self, mut visit: impl FnMut(ClientStatistics) + Send) -> Statistics {
        let connections_max = usize::try_from(self.settings().connections_max).unwrap_or(usize::MAX);
        let mut statistics = Statistics { connections_max, ..self.read().totals() };
        for sessions in self.sessions() {
            for entry in &sessions {
                let client = ClientStatistics::of(entry);
                statistics.add(&client);
                visit(client);
            }
            yield_now().await;
        }
        statistics
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use crate::broker::routing::registry::tests::request;
    use crate::broker::session::connection_handle::CloseReason;
    use crate::broker::{Broker, Hooks, Settings};
    use crate::protocol::ConnectionId;

    #[tokio::test]
    async fn a_walk_through_many_sessions_has_bounded_steps_and_visits_each_session_once() {
        const SESSIONS: u64 = 1_000;
        let broker = Broker::new(Settings::default(), Hooks::new(Arc::new(())));
        for number in 0..SESSIONS {
            broker.attach(request(number, &format!("c{number}"), 10, None)).unwrap();
        }
        let mut visited = BTreeSet::new();
        for step in broker.sessions() {
            assert!(step.len() <= super::SESSIONS_PER_LOCK_MAX, "{} sessions under one lock", step.len());
            for entry in step {
                assert!(
                    visited.insert(Arc::clone(&entry.client_id)),
                    "{} was visited twice",
                    entry.client_id
                );
            }
            // The lock is free between the steps: sessions end and begin.
            broker.detach(ConnectionId(0), &CloseReason::NotReading);
            broker.detach(ConnectionId(SESSIONS - 1), &CloseReason::NotReading);
        }
        assert_eq!(visited.len(), SESSIONS as usize - 1, "all but the last one, which has ended");
        assert_eq!(broker.statistics().await.sessions, SESSIONS as usize - 2);
    }
}
