//! Shared subscriptions: groups of sessions of which one gets each message (MQTT 5, 4.8.2).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hashbrown::HashMap;

use super::subscriptions::Subscriptions;
use crate::broker::event::Event;
use crate::broker::publication::{Delivery, GroupId, Publication};
use crate::broker::session::entry::{Readiness, SessionEntry, SessionId};
use crate::mqtt::filter;
use crate::mqtt::packet::SubscriptionOptions;

/// All groups. A group is identified by its share name and topic filter, that is by `$share/NAME/FILTER` as a whole.
#[derive(Debug, Default)]
pub struct SharedSubscriptions {
    ids: HashMap<Box<str>, GroupId>,
    groups: HashMap<GroupId, Group>,
    subscriptions: Subscriptions<GroupId, ()>,
    next_group: u64,
}

impl SharedSubscriptions {
    /// Adds a session to the group of a valid shared filter, or changes its options there; returns whether it is new.
    pub fn insert(&mut self, shared: &str, entry: Arc<SessionEntry>, options: SubscriptionOptions) -> bool {
        let Some(filter) = filter::shared(shared) else { return false };
        let id = self.ids.get(shared).copied().unwrap_or_else(|| {
            let id = GroupId(self.next_group);
            // 64 bits do not overflow: each group takes a SUBSCRIBE.
            self.next_group = self.next_group.wrapping_add(1);
            self.ids.insert(shared.into(), id);
            self.subscriptions.insert(filter, id, ());
            id
        });
        self.groups.entry(id).or_default().members.insert(entry.id, (entry, options)).is_none()
    }

    /// Removes a session from a group; returns whether it was a member.
    pub fn remove(&mut self, shared: &str, session: SessionId) -> bool {
        let Some(id) = self.ids.get(shared).copied() else { return false };
        let Some(group) = self.groups.get_mut(&id) else { return false };
        let existed = group.members.remove(&session).is_some();
        if group.members.is_empty() {
            self.ids.remove(shared);
            self.groups.remove(&id);
            if let Some(filter) = filter::shared(shared) {
                self.subscriptions.remove(filter, id);
            }
        }
        existed
    }

    /// Returns a group, or None once it has lost its last member.
    #[must_use]
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(&id)
    }

    #[must_use]
    pub fn has_match(&self, topic: &str) -> bool {
        self.subscriptions.has_match(topic)
    }

    /// Gives a message to one session of each matching group, but not to `except`; returns the number of sessions.
    pub fn route(
        &self,
        publication: &Arc<Publication>,
        except: Option<SessionId>,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> usize {
        let mut count = 0_usize;
        self.subscriptions.for_each_match(&publication.message.topic, |id, ()| {
            let is_delivered =
                self.group(id).is_some_and(|group| group.deliver(id, publication, except, now, events));
            count = count.saturating_add(usize::from(is_delivered));
        });
        count
    }
}

/// The sessions of one shared subscription.
#[derive(Debug)]
pub struct Group {
    members: BTreeMap<SessionId, (Arc<SessionEntry>, SubscriptionOptions)>,
    /// The session that got the last message. Two threads that read and set it at the same time give two messages to one
    /// session: no message is lost, so no lock is needed.
    last: AtomicU64,
}

impl Default for Group {
    fn default() -> Self {
        // The greatest id, so that the first session is next.
        Self { members: BTreeMap::new(), last: AtomicU64::new(u64::MAX) }
    }
}

impl Group {
    /// Gives a message to the next session that is connected and has room for it, otherwise to another one. Returns
    /// false if there is no session but `except`.
    pub fn deliver(
        &self,
        id: GroupId,
        publication: &Arc<Publication>,
        except: Option<SessionId>,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some((entry, options)) = self.next(publication.bytes, except) else { return false };
        self.last.store(entry.id.0, Ordering::Relaxed);
        let message = &publication.message;
        let delivery = Delivery {
            publication: Arc::clone(publication),
            qos: message.qos.min(options.qos),
            retain: message.retain && options.retain_as_published,
            subscription_ids: options.identifier.into_iter().collect(),
            group: Some(id),
        };
        entry.enqueue(delivery, now, events);
        true
    }

    /// Gives a message that is queued for one session to another one that is connected and has room for it. Returns
    /// false if there is none: then the message stays in its queue.
    pub fn hand_over(
        &self,
        id: GroupId,
        publication: &Arc<Publication>,
        instead_of: SessionId,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> bool {
        let next = self.next(publication.bytes, Some(instead_of));
        let is_ready = next.is_some_and(|(entry, _)| entry.readiness(publication.bytes) == Readiness::Ready);
        is_ready && self.deliver(id, publication, Some(instead_of), now, events)
    }

    /// Returns the next session in turn, of those that can best be given a message of `bytes`.
    fn next(
        &self,
        bytes: usize,
        except: Option<SessionId>,
    ) -> Option<&(Arc<SessionEntry>, SubscriptionOptions)> {
        let last = SessionId(self.last.load(Ordering::Relaxed));
        let after = self.members.range((Bound::Excluded(last), Bound::Unbounded));
        let in_turn = after.chain(self.members.range(..=last)).map(|(_, member)| member);
        // The connection of a session without room is closed if it gets the message, so it is the choice only if no
        // member has room. A message for a disconnected session without room would be lost.
        let (mut full, mut disconnected, mut lost) = (None, None, None);
        for member in in_turn.filter(|(entry, _)| Some(entry.id) != except) {
            match member.0.readiness(bytes) {
                Readiness::Ready => return Some(member),
                Readiness::Full => full = full.or(Some(member)),
                Readiness::Disconnected { has_room: true } => disconnected = disconnected.or(Some(member)),
                Readiness::Disconnected { has_room: false } => lost = lost.or(Some(member)),
            }
        }
        full.or(disconnected).or(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::super::registry::{Registry, tests::request};
    use super::*;
    use crate::broker::settings::Settings;
    use crate::clock;
    use crate::mqtt::packet::{RetainHandling, SubscriptionRequest};
    use crate::protocol::ConnectionId;
    use crate::protocol::message::{Message, Qos};

    /// Connects a client and subscribes it at QoS 1.
    fn join(registry: &mut Registry, connection: u64, client_id: &str, filter: &str, now: Instant) {
        registry.attach(request(connection, client_id, 60, None), now).unwrap();
        let options = SubscriptionOptions {
            qos: Qos::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            identifier: None,
        };
        let (filter, retain_handling) = (filter.to_owned(), RetainHandling::Never);
        let request = SubscriptionRequest { filter, options, retain_handling };
        registry.subscribe(ConnectionId(connection), vec![request], now, &mut Vec::new());
    }

    /// Returns a registry with two members of one group, whose queues have room for three messages.
    fn group_of_two() -> (Registry, Instant) {
        let now = clock::monotonic();
        let mut registry = Registry::new(&Settings { session_queue_messages_max: 3, ..Settings::default() });
        join(&mut registry, 1, "a", "$share/g/t", now);
        join(&mut registry, 2, "b", "$share/g/t", now);
        (registry, now)
    }

    /// Returns the number of queued messages of each client, in the order of the client ids.
    fn queued(registry: &Registry) -> Vec<usize> {
        let mut clients = registry.clients(10);
        clients.sort_by(|one, other| one.client_id.cmp(&other.client_id));
        clients.iter().map(|client| client.queued).collect()
    }

    fn publish(registry: &Registry, topic: &str, count: usize, now: Instant) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..count {
            let message = Message { topic: topic.to_owned(), qos: Qos::AtLeastOnce, ..Message::default() };
            registry.route(None, None, &Arc::new(Publication::new(message, now)), now, &mut events);
        }
        events
    }

    #[test]
    fn a_member_that_disconnects_leaves_the_others_no_more_than_they_have_room_for() {
        let (mut registry, now) = group_of_two();
        assert!(publish(&registry, "t", 4, now).is_empty());
        assert_eq!(queued(&registry), [2, 2]);
        registry.detach(ConnectionId(1), true, None, now);
        assert_eq!(queued(&registry), [1, 3]);
        assert!(
            registry.handle(ConnectionId(2)).unwrap().close_reason().is_none(),
            "the connection stays open"
        );
        assert!(registry.take_events().is_empty());
    }

    #[test]
    fn a_disconnected_member_with_room_is_preferred_to_one_without() {
        let (mut registry, now) = group_of_two();
        join(&mut registry, 2, "b", "own", now);
        for connection in [1, 2] {
            registry.detach(ConnectionId(connection), true, None, now);
        }
        assert!(publish(&registry, "own", 3, now).is_empty());
        assert!(publish(&registry, "t", 3, now).is_empty());
        assert_eq!(queued(&registry), [3, 3]);
    }
}
