//! End of sessions, in bounded steps.

use std::sync::Arc;
use std::time::Instant;

use super::Registry;
use crate::broker::routing::ended::EndedSession;
use crate::broker::session::entry::SessionEntry;

/// The most subscriptions and messages of ended sessions that one step handles, because other connections wait meanwhile:
/// some hundreds of microseconds.
const STEPS_MAX: usize = 64;

impl Registry {
    /// Ends a session, and does the first step of what it leaves: see [`Registry::handle_ended_sessions`].
    pub(super) fn remove_entry(&mut self, entry: &Arc<SessionEntry>, now: Instant) {
        let (filters, undelivered) = {
            let mut state = entry.lock();
            self.cancel_deadlines(entry, &state);
            state.end()
        };
        self.sessions.remove(&entry.client_id);
        self.sessions_by_id.remove(&entry.id);
        let filters = filters.into_keys().collect::<Vec<_>>().into_iter();
        self.ended.push_back(EndedSession { entry: Arc::clone(entry), filters, undelivered });
        _ = self.handle_ended_sessions(now);
    }

    /// Whether [`Registry::handle_ended_sessions`] has something to do.
    #[must_use]
    pub fn has_ended_sessions(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Removes subscriptions of sessions that have ended, and gives their messages of shared subscriptions to others, some at
    /// a time; returns whether there are more.
    ///
    /// Until then messages still find the sessions, which take none: see [`SessionEntry::enqueue`].
    #[must_use]
    pub fn handle_ended_sessions(&mut self, now: Instant) -> bool {
        let mut steps = STEPS_MAX;
        while steps > 0
            && let Some(EndedSession { entry, mut filters, mut undelivered }) = self.ended.pop_front()
        {
            for filter in filters.by_ref().take(steps) {
                self.remove_subscription(&filter, entry.id);
                steps = steps.saturating_sub(1);
            }
            // After the session has left its groups, so that they do not choose it again.
            let some: Vec<_> = undelivered.drain(..steps.min(undelivered.len())).collect();
            // The session itself is a step, too.
            steps = steps.saturating_sub(some.len()).saturating_sub(1);
            self.redistribute(some, entry.id, now);
            if filters.len() > 0 || !undelivered.is_empty() {
                self.ended.push_front(EndedSession { entry, filters, undelivered });
                break;
            }
            let mut state = entry.lock();
            let bytes = state.filter_bytes();
            state.charge_filters(0, bytes);
        }
        !self.ended.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::publication::Publication;
    use crate::broker::routing::registry::tests::{request, subscribe_to};
    use crate::broker::settings::Settings;
    use crate::clock;
    use crate::protocol::ConnectionId;
    use crate::protocol::message::{Message, Qos};

    fn publish(registry: &Registry, topic: &str, now: Instant) -> Arc<Publication> {
        let message = Message { topic: topic.to_owned().into(), qos: Qos::AtLeastOnce, ..Message::default() };
        let publication = Arc::new(Publication::new(message, now));
        registry.route(None, None, &publication, now, &mut Vec::new());
        publication
    }

    #[test]
    fn a_session_with_many_subscriptions_and_messages_ends_in_steps_in_which_it_takes_no_message() {
        let now = clock::monotonic();
        let mut registry = Registry::new(&Settings::default());
        registry.attach_known(request(1, "a", 10, None), now).unwrap();
        registry.attach_known(request(2, "b", 10, None), now).unwrap();
        let count = 5 * STEPS_MAX;
        for number in 0..count {
            subscribe_to(&mut registry, 1, &format!("{number}/+"), now);
        }
        subscribe_to(&mut registry, 1, "$share/g/shared", now);
        let messages: Vec<_> = (0..count).map(|_| publish(&registry, "shared", now)).collect();
        subscribe_to(&mut registry, 2, "$share/g/shared", now);
        let entry = Arc::clone(&registry.connections[&ConnectionId(1)].0);
        let other = Arc::clone(&registry.connections[&ConnectionId(2)].0);
        registry.detach(ConnectionId(1), true, Some(0), now);
        let mut steps = 1;
        loop {
            for number in [0, count - 1] {
                let publication = publish(&registry, &format!("{number}/x"), now);
                assert_eq!(Arc::strong_count(&publication), 1, "no session has it");
            }
            // The group gives none to the session that has ended.
            let before = other.lock().session.size().0;
            publish(&registry, "shared", now);
            assert_eq!(other.lock().session.size().0, before + 1);
            if !registry.handle_ended_sessions(now) {
                break;
            }
            steps += 1;
        }
        assert!(steps >= 2 * count / STEPS_MAX, "{steps} steps");
        assert!(messages.iter().all(|message| Arc::strong_count(message) == 2), "the other one has them");
        assert_eq!((entry.lock().filter_bytes(), registry.has_subscribers("0/x")), (0, false));
    }
}
