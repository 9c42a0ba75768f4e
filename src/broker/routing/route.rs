//! Route: a message on its way to its subscribers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::subscriptions::Search;
use crate::broker::event::Event;
use crate::broker::publication::{Delivery, GroupId, Publication};
use crate::broker::session::entry::{SessionEntry, SessionId};
use crate::protocol::ConnectionId;
use crate::protocol::message::Qos;

/// A message on its way to its subscribers.
///
/// A message with few subscriptions is delivered in the step that finds them. Otherwise the sessions are found first, in
/// several steps, because a session with several subscriptions gets the message once; then it is delivered, in several
/// steps. Between two steps clients subscribe and unsubscribe: a message that was published before an UNSUBSCRIBE may
/// arrive after it, as one that is queued.
#[derive(Debug)]
pub struct Route {
    pub(super) publication: Arc<Publication>,
    pub(super) from: Option<SessionId>,
    /// The connection that gets the message whether or not it subscribes, until its session has got it.
    pub(super) to: Option<ConnectionId>,
    /// The session of that connection, or that of its client if it is closed.
    pub(super) addressee: Option<SessionId>,
    /// Sequence number of a retained message: who subscribes later finds it among the retained ones.
    pub(super) sequence: u64,
    pub(super) stage: Stage,
    /// The number of sessions that have got it.
    pub(super) count: usize,
}

/// A retained message that is still being routed. The next one on its topic follows it.
pub type SharedRoute = Arc<Mutex<Route>>;

pub(super) type FoundSessions = BTreeMap<SessionId, Found>;

#[derive(Debug)]
pub(super) enum Stage {
    Begin,
    /// The sessions from `first` on are found.
    Find {
        search: Search<SessionId>,
        first: SessionId,
        found: FoundSessions,
        revocations: u64,
    },
    Deliver {
        found: FoundSessions,
        revocations: u64,
    },
    /// The groups of shared subscriptions, each of which gets the message when it is found.
    Shared(Search<GroupId>),
    Complete,
}

/// A session that gets a message at the highest QoS of its matching subscriptions, with all of their identifiers (MQTT 5,
/// 3.3.4).
#[derive(Debug)]
pub(super) struct Found {
    pub(super) entry: Arc<SessionEntry>,
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) subscription_ids: Vec<u32>,
}

impl Route {
    /// Returns the number of sessions that have got the message.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the topic of a message that is retained.
    #[must_use]
    pub fn retained_topic(&self) -> Option<&str> {
        let message = &self.publication.message;
        message.retain.then_some(&*message.topic)
    }

    pub(super) fn is_for(&self, session: SessionId, no_local: bool, since: u64) -> bool {
        let is_own = no_local && self.from == Some(session);
        let is_successor = self.to.is_none() && self.addressee == Some(session);
        !is_own && !is_successor && since < self.sequence
    }

    pub(super) fn give(
        &mut self,
        entry: &SessionEntry,
        (qos, retain): (Qos, bool),
        subscription_ids: Vec<u32>,
        now: Instant,
        events: &mut Vec<Event>,
    ) {
        self.count = self.count.saturating_add(1);
        let message = &self.publication.message;
        let delivery = Delivery {
            publication: Arc::clone(&self.publication),
            qos: qos.min(message.qos),
            retain: message.retain && retain,
            subscription_ids,
            group: None,
            share: None,
        };
        entry.enqueue(delivery, now, events);
    }
}
