//! Shared subscriptions: groups of sessions of which one gets each message (MQTT 5, 4.8.2).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;

use super::filter;
use super::publication::{Delivery, Publication};
use super::seat::{Readiness, Seat};
use super::subscriptions::{Options, SessionId, Subscriptions};
use crate::server::event::Event;

/// Names a group within one broker; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(u64);

/// All groups: one for each shared filter, which is to say for each name and what it shares.
#[derive(Debug, Default)]
pub struct Shares {
    ids: HashMap<Box<str>, GroupId>,
    groups: HashMap<GroupId, Group>,
    subscriptions: Subscriptions<GroupId, ()>,
    next_group: u64,
}

impl Shares {
    /// Adds a session to the group of a valid shared filter, or gives it other options there; true if it is new.
    pub fn insert(&mut self, shared: &str, seat: Arc<Seat>, options: Options) -> bool {
        let Some(filter) = filter::shared(shared) else { return false };
        let id = self.ids.get(shared).copied().unwrap_or_else(|| {
            let id = GroupId(self.next_group);
            self.next_group = self.next_group.saturating_add(1);
            self.ids.insert(shared.into(), id);
            self.subscriptions.insert(filter, id, ());
            id
        });
        self.groups.entry(id).or_default().members.insert(seat.id, (seat, options)).is_none()
    }

    /// Takes a session out of a group; false if it was not there.
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

    /// A group, as long as it has members.
    #[must_use]
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(&id)
    }

    /// Whether any group shares a topic's messages.
    #[must_use]
    pub fn has_match(&self, topic: &str) -> bool {
        self.subscriptions.has_match(topic)
    }

    /// Gives a message to one session of each group that shares it; says how many got it. `except` has it already.
    pub fn route(
        &self,
        publication: &Arc<Publication>,
        except: Option<SessionId>,
        events: &mut Vec<Event>,
    ) -> usize {
        let mut count = 0_usize;
        self.subscriptions.for_each_match(&publication.message.topic, |id, ()| {
            let offered = self.group(id).is_some_and(|group| group.offer(id, publication, except, events));
            count = count.saturating_add(usize::from(offered));
        });
        count
    }
}

/// The sessions that share messages.
#[derive(Debug)]
pub struct Group {
    members: BTreeMap<SessionId, (Arc<Seat>, Options)>,
    /// Whose turn it was last. Whoever reads and sets it at the same time gives two messages to one: nothing is lost.
    last: AtomicU64,
}

impl Default for Group {
    fn default() -> Self {
        // The first one's turn is next.
        Self { members: BTreeMap::new(), last: AtomicU64::new(u64::MAX) }
    }
}

impl Group {
    /// Gives a message to the next session that is connected and has room for it; if there is none, to one that is
    /// away. False if there is nobody at all.
    pub fn offer(
        &self,
        id: GroupId,
        publication: &Arc<Publication>,
        except: Option<SessionId>,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some((seat, options)) = self.next(publication.bytes, except) else { return false };
        self.last.store(seat.id.0, Ordering::Relaxed);
        let message = &publication.message;
        let delivery = Delivery {
            publication: Arc::clone(publication),
            qos: message.qos.min(options.qos),
            retain: message.retain && options.retain_as_published,
            subscription_ids: options.identifier.into_iter().collect(),
            group: Some(id),
        };
        seat.offer(delivery, events);
        true
    }

    /// Whether another session than this one is connected.
    #[must_use]
    pub fn has_another(&self, session: SessionId) -> bool {
        let mut others = self.members.values().filter(|(seat, _)| seat.id != session);
        others.any(|(seat, _)| seat.readiness(0) != Readiness::Away)
    }

    fn next(&self, bytes: usize, except: Option<SessionId>) -> Option<&(Arc<Seat>, Options)> {
        let last = SessionId(self.last.load(Ordering::Relaxed));
        let after = self.members.range((Bound::Excluded(last), Bound::Unbounded));
        let in_turn = after.chain(self.members.range(..=last)).map(|(_, member)| member);
        // A session that has no room is cut off for it only if nobody else can take its turn.
        let (mut full, mut away) = (None, None);
        for member in in_turn.filter(|(seat, _)| Some(seat.id) != except) {
            match member.0.readiness(bytes) {
                Readiness::Ready => return Some(member),
                Readiness::Full => full = full.or(Some(member)),
                Readiness::Away => away = away.or(Some(member)),
            }
        }
        full.or(away)
    }
}
