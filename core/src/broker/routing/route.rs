//! Route: a message on its way to its subscribers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::subscriptions::Search;
use crate::broker::event::Event;
use crate::broker::memory::{Account, Charge, MemoryKind};
use crate::broker::publication::{Delivery, GroupId, Publication};
use crate::broker::session::entry::{SessionEntry, SessionId};
use crate::mqtt::packet::SubscriptionOptions;
use crate::protocol::ConnectionId;
use crate::protocol::message::Qos;

/// The bytes charged for a session that is found: its place in a tree, which may be half empty.
const FOUND_BYTES: usize = 2 * (size_of::<SessionId>() + size_of::<Found>());
/// The bytes charged for a Subscription Identifier: their list may have room for twice as many.
const SUBSCRIPTION_ID_BYTES: usize = 2 * size_of::<u32>();
/// The bytes that a message with many subscriptions may take for the sessions that are found, however little room its
/// owner has: it is delivered to so many at a time.
const FOUND_BYTES_MIN: usize = 512 * FOUND_BYTES;

/// A message on its way to its subscribers.
///
/// A message with few subscriptions is delivered in the step that finds them. Otherwise the sessions are found first, in
/// several steps, because a session with several subscriptions gets the message once; then it is delivered, in several
/// steps. Without room for all sessions, the last of them are found once the others have got it. Between two steps clients subscribe and unsubscribe: a message that was published before an UNSUBSCRIBE may
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
    /// What it holds between two steps. None: it needs only one, or the broker does all of them at once.
    pub(super) charge: Option<Charge>,
}

/// A retained message that is still being routed. The next one on its topic follows it.
pub type SharedRoute = Arc<Mutex<Route>>;

/// The sessions that get a message, and what they take.
#[derive(Debug, Default)]
pub(super) struct FoundSessions {
    by_id: BTreeMap<SessionId, Found>,
    bytes: usize,
    /// The sessions from here on are found once the others have got the message, because there was no room for them.
    pub(super) rest: Option<SessionId>,
}

impl FoundSessions {
    /// Whether a session is among those that are to be found now.
    pub(super) fn takes(&self, session: SessionId) -> bool {
        self.rest.is_none_or(|rest| session < rest)
    }

    pub(super) fn add(
        &mut self,
        session: SessionId,
        entry: &Arc<SessionEntry>,
        options: SubscriptionOptions,
    ) {
        let bytes = &mut self.bytes;
        let of_session = self.by_id.entry(session).or_insert_with(|| {
            *bytes = bytes.saturating_add(FOUND_BYTES);
            Found {
                entry: Arc::clone(entry),
                qos: Qos::default(),
                retain: false,
                subscription_ids: Vec::new(),
            }
        });
        of_session.qos = of_session.qos.max(options.qos);
        of_session.retain |= options.retain_as_published;
        if let Some(identifier) = options.identifier {
            *bytes = bytes.saturating_add(SUBSCRIPTION_ID_BYTES);
            of_session.subscription_ids.push(identifier);
        }
    }

    pub(super) fn pop_first(&mut self) -> Option<(SessionId, Found)> {
        let (session, found) = self.by_id.pop_first()?;
        self.bytes = self.bytes.saturating_sub(found.bytes());
        Some((session, found))
    }

    /// Leaves the last session for later.
    fn leave_last(&mut self) {
        if let Some((session, found)) = self.by_id.pop_last() {
            self.bytes = self.bytes.saturating_sub(found.bytes());
            self.rest = Some(session);
        }
    }
}

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

impl Found {
    fn bytes(&self) -> usize {
        self.subscription_ids.len().saturating_mul(SUBSCRIPTION_ID_BYTES).saturating_add(FOUND_BYTES)
    }
}

/// Whether an owner has room for a message with many subscriptions.
///
/// A client without it is refused with Quota exceeded (0x97) for such a message. Its owner then has large queues, or some
/// hundreds of such messages at once.
#[must_use]
pub fn has_room(owner: &Account, publication: &Publication) -> bool {
    owner.has_room(MemoryKind::Sessions, publication.bytes.saturating_add(FOUND_BYTES_MIN))
}

impl Route {
    /// Whether no session has got the message, but many may.
    #[must_use]
    pub fn is_refusable(&self) -> bool {
        self.count == 0 && matches!(self.stage, Stage::Find { .. })
    }

    #[must_use]
    pub fn publication(&self) -> &Arc<Publication> {
        &self.publication
    }

    /// Charges an owner for what the route holds from now on.
    pub fn charge_to(&mut self, owner: &Arc<Account>) {
        self.charge = Some(Charge::new(owner, MemoryKind::Sessions, self.bytes()));
    }

    /// Charges the owner for what the route holds after a step.
    pub fn update_charge(&mut self) {
        let bytes = self.bytes();
        if let Some(charge) = &mut self.charge {
            charge.set(bytes);
        }
    }

    fn bytes(&self) -> usize {
        match &self.stage {
            Stage::Find { found, .. } | Stage::Deliver { found, .. } => self.bytes_with(found),
            Stage::Begin | Stage::Shared(_) => self.publication.bytes,
            Stage::Complete => 0,
        }
    }

    fn bytes_with(&self, found: &FoundSessions) -> usize {
        self.publication.bytes.saturating_add(found.bytes.max(FOUND_BYTES_MIN))
    }

    /// Leaves sessions for later while the owner has no room for all that are found. It has room for those of the last
    /// step, so that a step does not leave many.
    pub(super) fn limit(&self, found: &mut FoundSessions) {
        let Some(charge) = &self.charge else { return };
        while found.bytes > FOUND_BYTES_MIN
            && found.by_id.len() > 1
            && !charge.may_hold(self.bytes_with(found))
        {
            found.leave_last();
        }
    }

    /// Whether there are no more steps.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Complete)
    }

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
