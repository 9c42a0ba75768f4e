//! Shared subscriptions: groups of sessions of which one gets each message (MQTT 5, 4.8.2).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::subscriptions::{Search, Subscriptions};
use super::table::Table;
use crate::broker::event::Event;
use crate::broker::publication::{Delivery, GroupId, Publication};
use crate::broker::session::entry::{Readiness, SessionEntry, SessionId};
use crate::mqtt::filter;
use crate::mqtt::packet::SubscriptionOptions;

/// The most members of a group that are looked at for one message.
const CANDIDATES_MAX: usize = 64;

/// All groups. A group is identified by its share name and topic filter, that is by `$share/NAME/FILTER` as a whole.
#[derive(Debug, Default)]
pub struct SharedSubscriptions {
    ids: Table<GroupId>,
    groups: BTreeMap<GroupId, Group>,
    subscriptions: Subscriptions<GroupId, ()>,
    next_group: u64,
}

impl SharedSubscriptions {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Adds a session to the group of a valid shared filter, or changes its options there; returns whether it is new.
    pub fn insert(
        &mut self,
        shared: &str,
        entry: Arc<SessionEntry>,
        options: SubscriptionOptions,
        is_connected: bool,
    ) -> bool {
        let Some(filter) = filter::shared(shared) else { return false };
        let id = self.ids.get(shared).copied().unwrap_or_else(|| {
            let id = GroupId(self.next_group);
            // 64 bits do not overflow: each group takes a SUBSCRIBE.
            self.next_group = self.next_group.wrapping_add(1);
            self.ids.insert(shared, id);
            self.subscriptions.insert(filter, id, ());
            id
        });
        let group = self.groups.entry(id).or_default();
        let is_new = group.remove(entry.id).is_none();
        group.members_mut(is_connected).insert(entry.id, (entry, options));
        is_new
    }

    /// Notes that a session with these topic filters has connected or disconnected.
    pub fn handle_connection<'a>(
        &mut self,
        filters: impl Iterator<Item = &'a String>,
        session: SessionId,
        is_connected: bool,
    ) {
        for shared in filters.filter(|filter| filter::is_shared(filter)) {
            let group = self.ids.get(shared).and_then(|id| self.groups.get_mut(id));
            if let Some(group) = group
                && let Some(member) = group.remove(session)
            {
                group.members_mut(is_connected).insert(session, member);
            }
        }
    }

    /// Removes a session from a group; returns whether it was a member.
    pub fn remove(&mut self, shared: &str, session: SessionId) -> bool {
        let Some(id) = self.ids.get(shared).copied() else { return false };
        let Some(group) = self.groups.get_mut(&id) else { return false };
        let existed = group.remove(session).is_some();
        if group.connected.is_empty() && group.disconnected.is_empty() {
            self.ids.remove(shared);
            self.groups.remove(&id);
            if let Some(filter) = filter::shared(shared) {
                self.subscriptions.remove(filter, id, |_, _| ());
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

    /// Gives a message to one session of each matching group, but not to `except`, until the steps of the search are used
    /// up; returns the number of sessions.
    pub fn route_some(
        &self,
        publication: &Arc<Publication>,
        except: Option<SessionId>,
        (search, steps): (&mut Search<GroupId>, &mut usize),
        now: Instant,
        events: &mut Vec<Event>,
    ) -> usize {
        let mut count = 0_usize;
        self.subscriptions.search(&publication.message.topic, search, steps, |id, ()| {
            let is_delivered =
                self.group(id).is_some_and(|group| group.deliver(id, publication, except, now, events));
            count = count.saturating_add(usize::from(is_delivered));
        });
        count
    }
}

type Member = (Arc<SessionEntry>, SubscriptionOptions);

/// The sessions of one shared subscription.
///
/// The connected ones are found without looking at the others, however many there are.
#[derive(Debug)]
pub struct Group {
    connected: BTreeMap<SessionId, Member>,
    disconnected: BTreeMap<SessionId, Member>,
    /// The session that got the last message. Two threads that read and set it at the same time give two messages to one
    /// session: no message is lost, so no lock is needed.
    last: AtomicU64,
}

impl Default for Group {
    fn default() -> Self {
        // The greatest id, so that the first session is next.
        Self { connected: BTreeMap::new(), disconnected: BTreeMap::new(), last: AtomicU64::new(u64::MAX) }
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
        let next = match self.connected_member(publication.bytes, except) {
            // The connection of a session without room is closed if it gets the message, so it is the choice only if no
            // member is found that has room.
            (None, full) => full.or_else(|| self.disconnected_member(publication.bytes, except)),
            (ready, _) => ready,
        };
        next.is_some_and(|member| {
            self.give(member, id, publication, now, events);
            true
        })
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
        let (ready, _) = self.connected_member(publication.bytes, Some(instead_of));
        ready.is_some_and(|member| {
            self.give(member, id, publication, now, events);
            true
        })
    }

    fn give(
        &self,
        (entry, options): &Member,
        id: GroupId,
        publication: &Arc<Publication>,
        now: Instant,
        events: &mut Vec<Event>,
    ) {
        self.last.store(entry.id.0, Ordering::Relaxed);
        let message = &publication.message;
        let delivery = Delivery {
            publication: Arc::clone(publication),
            qos: message.qos.min(options.qos),
            retain: message.retain && options.retain_as_published,
            subscription_ids: options.identifier.into_iter().collect(),
            group: Some(id),
            share: None,
        };
        entry.enqueue(delivery, now, events);
    }

    fn members_mut(&mut self, is_connected: bool) -> &mut BTreeMap<SessionId, Member> {
        if is_connected { &mut self.connected } else { &mut self.disconnected }
    }

    fn remove(&mut self, session: SessionId) -> Option<Member> {
        self.connected.remove(&session).or_else(|| self.disconnected.remove(&session))
    }

    /// Returns the next connected session in turn that has room for a message of `bytes`; and the first one that has
    /// none.
    fn connected_member(
        &self,
        bytes: usize,
        except: Option<SessionId>,
    ) -> (Option<&Member>, Option<&Member>) {
        let mut full = None;
        for member in self.in_turn(&self.connected, except) {
            match member.0.readiness(bytes) {
                Readiness::Ready => return (Some(member), full),
                Readiness::Full => full = full.or(Some(member)),
                // Its connection is about to be closed.
                Readiness::Disconnected { .. } => {}
            }
        }
        (None, full)
    }

    /// Returns the next session in turn that is not connected and has room for a message of `bytes`, otherwise one that
    /// has none: for that one the message is lost.
    fn disconnected_member(&self, bytes: usize, except: Option<SessionId>) -> Option<&Member> {
        let closing = self.in_turn(&self.connected, except);
        let mut candidates = closing.chain(self.in_turn(&self.disconnected, except)).peekable();
        let first = candidates.peek().copied();
        let has_room = |member: &&Member| {
            matches!(member.0.readiness(bytes), Readiness::Ready | Readiness::Disconnected { has_room: true })
        };
        candidates.find(has_room).or(first)
    }

    /// Returns the next members in turn, but not `except`: no more than [`CANDIDATES_MAX`], because all connections wait
    /// meanwhile. Members get messages in turn, so if that many have no room, hardly any other one has.
    fn in_turn<'a>(
        &self,
        members: &'a BTreeMap<SessionId, Member>,
        except: Option<SessionId>,
    ) -> impl Iterator<Item = &'a Member> {
        let last = SessionId(self.last.load(Ordering::Relaxed));
        let after = members.range((Bound::Excluded(last), Bound::Unbounded));
        let in_turn = after.chain(members.range(..=last)).map(|(_, member)| member);
        in_turn.filter(move |(entry, _)| Some(entry.id) != except).take(CANDIDATES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::super::registry::{Registry, tests::clients, tests::request, tests::subscribe};
    use super::*;
    use crate::broker::settings::Settings;
    use crate::clock;
    use crate::mqtt::packet::{RetainHandling, SubscriptionRequest};
    use crate::protocol::ConnectionId;
    use crate::protocol::message::{Message, Qos};

    /// Connects a client and subscribes it at QoS 1.
    fn join(registry: &mut Registry, connection: u64, client_id: &str, filter: &str, now: Instant) {
        registry.attach_known(request(connection, client_id, 60, None), now).unwrap();
        let options = SubscriptionOptions {
            qos: Qos::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            identifier: None,
        };
        let (filter, retain_handling) = (filter.to_owned(), RetainHandling::Never);
        let request = SubscriptionRequest { filter, options, retain_handling };
        subscribe(registry, connection, vec![request], now);
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
        clients(registry).iter().map(|client| client.queued).collect()
    }

    fn publish(registry: &Registry, topic: &str, count: usize, now: Instant) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..count {
            let message =
                Message { topic: topic.to_owned().into(), qos: Qos::AtLeastOnce, ..Message::default() };
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
    fn a_message_looks_at_few_members_however_many_have_no_connection_or_no_room() {
        let now = clock::monotonic();
        let settings = Settings { session_queue_messages_max: 1, ..Settings::default() };
        let mut registry = Registry::new(&settings);
        let members = 3 * CANDIDATES_MAX as u64;
        for number in 0..members {
            join(&mut registry, number, &number.to_string(), "$share/g/t", now);
            registry.detach(ConnectionId(number), true, None, now);
        }
        join(&mut registry, members, "connected", "$share/g/t", now);
        let group = registry.shared_subscriptions.group(GroupId(0)).unwrap();
        assert_eq!((group.connected.len(), group.disconnected.len()), (1, members as usize));
        assert_eq!(group.in_turn(&group.disconnected, None).count(), CANDIDATES_MAX);
        assert!(publish(&registry, "t", 1, now).is_empty());
        let queued =
            |registry: &Registry| clients(registry).into_iter().map(|client| client.queued).sum::<usize>();
        let entry = Arc::clone(&group.connected.values().next().unwrap().0);
        assert_eq!((queued(&registry), entry.lock().session.size().0), (1, 1), "the connected one is found");
        registry.detach(ConnectionId(members), true, None, now);
        assert!(publish(&registry, "t", members as usize, now).is_empty());
        assert_eq!(queued(&registry), members as usize + 1, "each of the others gets one in turn");
        let group = registry.shared_subscriptions.group(GroupId(0)).unwrap();
        assert!(group.connected.is_empty());
    }

    #[test]
    fn a_member_is_found_by_its_connection_through_all_changes() {
        let (mut registry, now) = group_of_two();
        let sizes = |registry: &Registry| {
            let group = registry.shared_subscriptions.group(GroupId(0));
            group.map(|group| (group.connected.len(), group.disconnected.len()))
        };
        registry.detach(ConnectionId(1), true, None, now);
        assert_eq!(sizes(&registry), Some((1, 1)));
        registry.attach_known(request(3, "a", 60, None), now).unwrap();
        assert_eq!(sizes(&registry), Some((2, 0)), "a session is resumed");
        registry.attach_known(request(4, "a", 60, None), now).unwrap();
        assert_eq!(sizes(&registry), Some((2, 0)), "a session is taken over");
        join(&mut registry, 4, "a", "$share/g/t", now);
        assert_eq!(sizes(&registry), Some((2, 0)), "a subscription is repeated");
        registry.attach_known(request(5, "a", 0, None), now).unwrap();
        registry.detach(ConnectionId(5), true, None, now);
        assert_eq!(sizes(&registry), Some((1, 0)), "a session has ended");
        registry.unsubscribe(ConnectionId(2), &["$share/g/t".to_owned()]);
        assert_eq!(sizes(&registry), None);
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
