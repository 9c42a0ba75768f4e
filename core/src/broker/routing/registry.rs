//! Registry: sessions by client id, open connections, subscriptions, retained messages, deadlines.

mod direct_delivery;
mod ending;
mod reauthorization;
pub mod retained_delivery;
pub mod route;
mod statistics;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};

use super::ended::EndedSession;
use super::filter_memory::{self, NODE_BYTES};
use super::retained::{Full, RetainedMessages};
use super::route::SharedRoute;
use super::shared_subscriptions::SharedSubscriptions;
use super::subscriptions::Subscriptions;
use crate::broker::event::Event;
use crate::broker::memory::{Account, MemoryBudget, MemoryKind, SESSION_SHARE_BYTES};
use crate::broker::publication::{Delivery, Publication};
use crate::broker::session::connection_handle::{ConnectionHandle, DrainPhase};
use crate::broker::session::entry::{self, SessionEntry, SessionId, SessionRequest, SessionState};
use crate::broker::session::state_machine::{Limits, Session};
use crate::broker::settings::Settings;
use crate::mqtt::ReasonCode;
use crate::mqtt::filter;
use crate::mqtt::packet::{RetainHandling, SubscriptionOptions, SubscriptionRequest};
use crate::protocol::ConnectionId;
use crate::protocol::message::{Message, Qos};

type SessionsByTime = BTreeMap<(Instant, SessionId), Arc<SessionEntry>>;

/// The session that a connection was given.
#[derive(Debug)]
pub struct AttachedSession {
    pub entry: Arc<SessionEntry>,
    pub handle: Arc<ConnectionHandle>,
    /// Whether an earlier session is resumed.
    pub is_resumed: bool,
    /// Whether the client's permissions may differ from those of its earlier connection.
    pub needs_reauthorization: bool,
    /// The Will Message of an earlier connection or session that has ended, to be published.
    pub will: Option<DueWill>,
}

/// A Will Message that is to be published.
#[derive(Debug)]
pub struct DueWill {
    pub message: Message,
    /// The owner of its session.
    pub owner: Arc<Account>,
}

/// A subscription that is not shared.
#[derive(Debug)]
struct Subscription {
    entry: Arc<SessionEntry>,
    options: SubscriptionOptions,
    /// Sequence number of the last retained message when the client subscribed, and its retained messages were last sent:
    /// later ones were routed to it.
    since: u64,
}

/// The result of a SUBSCRIBE.
#[derive(Debug)]
pub struct Subscribed {
    /// The granted QoS or the reason code of each request.
    pub results: Vec<Result<Qos, ReasonCode>>,
    /// The filters whose retained messages are to be delivered.
    pub retained: Vec<String>,
}

/// The most sessions that one [`Registry::handle_deadlines`] ends, because all connections wait meanwhile.
const ENDED_PER_CALL_MAX: usize = 16;
/// It ends no other one once the ended ones had so many subscriptions and messages.
const REMOVED_PER_CALL_ENOUGH: usize = 64;

/// What all connections share. Pure: time is an argument.
///
/// Lock order: the registry, then a session entry. Two entries are locked at the same time only under the registry's
/// write lock, where no other thread can lock them in the other order.
#[derive(Debug)]
pub struct Registry {
    limits: Limits,
    memory: Arc<MemoryBudget>,
    sessions_max: usize,
    subscriptions_max: usize,
    /// The limit for the topic filters of one session, in bytes as charged by [`filter_memory::bytes`].
    filter_bytes_max: usize,
    sessions: HashMap<Arc<str>, Arc<SessionEntry>>,
    /// The same sessions, so that a walk through them can go on where it stopped: see [`Registry::sessions_after`].
    sessions_by_id: BTreeMap<SessionId, Arc<SessionEntry>>,
    connections: HashMap<ConnectionId, (Arc<SessionEntry>, Arc<ConnectionHandle>)>,
    /// Connections that have lost their session to another one, until they end.
    taken_over: HashSet<ConnectionId>,
    subscriptions: Subscriptions<SessionId, Subscription>,
    pub(super) shared_subscriptions: SharedSubscriptions,
    retained: RetainedMessages,
    /// Retained messages with many subscriptions that are being routed, by topic.
    unfinished_routes: HashMap<Box<str>, SharedRoute>,
    /// How often a subscription has lost its permission.
    revocations: u64,
    /// Disconnected sessions, by the time when their Will Message is due or when they expire.
    deadlines: SessionsByTime,
    /// Disconnected sessions by their owner and by the time when they were disconnected.
    disconnected: HashMap<Arc<str>, SessionsByTime>,
    next_session: u64,
    /// Sessions that have ended, with what is still to be done for them.
    ended: VecDeque<EndedSession>,
    is_closed: bool,
    /// Events of the last change. They are reported after the lock has been released.
    events: Vec<Event>,
}

impl Registry {
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self {
            limits: Limits::from(settings),
            memory: Arc::new(MemoryBudget::new(settings.memory_bytes_max, settings.connections_max)),
            sessions_max: settings.sessions_max,
            subscriptions_max: settings.subscriptions_per_session_max,
            filter_bytes_max: filter_memory::bytes_max(settings.subscriptions_per_session_max),
            sessions: HashMap::new(),
            sessions_by_id: BTreeMap::new(),
            connections: HashMap::new(),
            taken_over: HashSet::new(),
            subscriptions: Subscriptions::default(),
            shared_subscriptions: SharedSubscriptions::default(),
            retained: RetainedMessages::new(settings.retained_messages_max),
            unfinished_routes: HashMap::new(),
            revocations: 0,
            deadlines: BTreeMap::new(),
            disconnected: HashMap::new(),
            next_session: 0,
            ended: VecDeque::new(),
            is_closed: false,
            events: Vec::new(),
        }
    }

    /// Gives a connection its session, and takes the session over from an earlier connection (MQTT 5, 3.1.4).
    ///
    /// A session belongs to the principal that created it. A client with the same client id and another principal is
    /// rejected while an authenticated owner is connected; afterwards it gets a new session.
    ///
    /// A new session ends another one only if that has the same owner: see [`SessionRequest::owner`].
    ///
    /// # Errors
    /// The reason code to reject the connection with.
    pub fn attach(&mut self, request: SessionRequest, now: Instant) -> Result<AttachedSession, ReasonCode> {
        if self.is_closed {
            return Err(ReasonCode::ServerShuttingDown);
        }
        let bytes = entry::bytes_of_new(&request.client_id, request.will.as_ref());
        let bytes = bytes.saturating_sub(SESSION_SHARE_BYTES);
        if bytes > 0 && !request.owner.has_room(MemoryKind::Sessions, bytes) {
            return Err(ReasonCode::QuotaExceeded);
        }
        let is_new = !self.sessions.contains_key(&request.client_id);
        let (resumed, mut will) = self.take_over(&request, now)?;
        let is_resumed = resumed.is_some();
        let needs_reauthorization = resumed.as_ref().is_some_and(|entry| {
            let state = entry.lock();
            state.permissions.is_some() != request.permissions.is_some()
                || state.principal != request.principal
        });
        let entry = match resumed {
            Some(entry) => entry,
            None => {
                if is_new {
                    // There is no earlier session of this client, so `will` is None so far.
                    will = self.make_room_for(request.owner.owner(), now)?;
                }
                self.new_entry(&request)
            }
        };
        let revoked = entry.lock().session.take_revoked();
        self.redistribute(revoked, entry.id, now);
        let handle = Arc::new(ConnectionHandle::new(request.connection));
        self.connections.insert(request.connection, (Arc::clone(&entry), Arc::clone(&handle)));
        {
            let mut state = entry.lock();
            state.attach(Arc::clone(&handle), request, now);
            self.shared_subscriptions.handle_connection(state.filters.keys(), entry.id, true);
        }
        Ok(AttachedSession { entry, handle, is_resumed, needs_reauthorization, will })
    }

    /// Closes the client's earlier connection. Returns its session, if the new connection resumes it, and a Will
    /// Message that is due.
    fn take_over(
        &mut self,
        request: &SessionRequest,
        now: Instant,
    ) -> Result<(Option<Arc<SessionEntry>>, Option<DueWill>), ReasonCode> {
        let Some(entry) = self.sessions.get(&request.client_id).map(Arc::clone) else {
            return Ok((None, None));
        };
        let mut state = entry.lock();
        let is_owner = state.principal.is_same_as(&request.principal);
        if !is_owner && state.principal.is_authenticated() && state.is_connected() {
            return Err(ReasonCode::NotAuthorized);
        }
        let last = state.handle.take();
        if let Some(last) = &last {
            last.close(ReasonCode::SessionTakenOver, "another connection uses this client id");
            // The messages of the session no longer concern this connection.
            last.set_backlogged(false);
            self.connections.remove(&last.id);
            self.taken_over.insert(last.id);
        }
        self.cancel_deadlines(&entry, &state);
        // A session with an expiry interval of 0 ends with its connection, also if the takeover has just closed it.
        let is_kept = state.settle_is_known() && (last.is_none() || state.expiry_s > 0);
        let is_resumed = is_owner && !request.clean_start && is_kept;
        // A resumed session cancels a delayed Will Message (MQTT 5, 3.1.3.2.2); one without a delay is due.
        let will = state.will.take().filter(|will| !is_resumed || will.delay_s == 0);
        let will = will.and_then(|will| self.authorized_will(&entry, &state, will));
        drop(state);
        if !is_resumed {
            self.remove_entry(&entry, now);
        }
        Ok((is_resumed.then_some(entry), will))
    }

    /// Makes room for a new session of an owner: ends the one that has been disconnected for the longest time, if there
    /// are too many, and returns its Will Message. An owner may have as many without a connection as are left free.
    ///
    /// Sessions of other owners stay: their messages have been acknowledged.
    fn make_room_for(&mut self, owner: &str, now: Instant) -> Result<Option<DueWill>, ReasonCode> {
        let own = self.disconnected.get(owner);
        let free = self.sessions_max.saturating_sub(self.sessions.len());
        if own.map_or(0, BTreeMap::len) < free {
            return Ok(None);
        }
        let entry = own.and_then(|own| own.first_key_value()).map(|(_, entry)| Arc::clone(entry));
        let entry = entry.ok_or(ReasonCode::QuotaExceeded)?;
        let mut state = entry.lock();
        let will = state.will.take().and_then(|will| self.authorized_will(&entry, &state, will));
        drop(state);
        self.remove_entry(&entry, now);
        Ok(will)
    }

    /// Handles the end of a connection; returns its Will Message, if that is due now.
    ///
    /// Does nothing if the session has been taken over from the connection.
    pub fn detach(
        &mut self,
        connection: ConnectionId,
        publishes_will: bool,
        expiry_s: Option<u32>,
        now: Instant,
    ) -> Option<DueWill> {
        self.taken_over.remove(&connection);
        let (entry, _) = self.connections.remove(&connection)?;
        let mut state = entry.lock();
        state.detach();
        state.expiry_s = expiry_s.unwrap_or(state.expiry_s);
        if !publishes_will {
            state.will = None;
        }
        let expiry_s = state.expiry_s;
        let will = state.will.take_if(|will| expiry_s == 0 || will.delay_s == 0);
        let will = will.and_then(|will| self.authorized_will(&entry, &state, will));
        if expiry_s == 0 {
            drop(state);
            self.remove_entry(&entry, now);
            return will;
        }
        self.shared_subscriptions.handle_connection(state.filters.keys(), entry.id, false);
        let after = |seconds: u32| now.checked_add(Duration::from_secs(u64::from(seconds)));
        state.disconnected_since = Some(now);
        let of_owner = self.disconnected.entry(Arc::clone(state.owner().owner())).or_default();
        of_owner.insert((now, entry.id), Arc::clone(&entry));
        state.ends_at = after(expiry_s).filter(|_| expiry_s != u32::MAX);
        state.will_at = state.will.as_ref().and_then(|will| after(will.delay_s.min(expiry_s)));
        for at in [state.will_at, state.ends_at].into_iter().flatten() {
            self.deadlines.insert((at, entry.id), Arc::clone(&entry));
        }
        // Messages that were sent wait for the client to reconnect. Queued messages of a shared subscription need not
        // wait if another member of the group has room for them.
        let Self { shared_subscriptions, events, .. } = self;
        state.session.drop_queued(|Delivery { publication, group, .. }| {
            let group = group.and_then(|id| Some((id, shared_subscriptions.group(id)?)));
            group.is_some_and(|(id, group)| group.hand_over(id, publication, entry.id, now, events))
        });
        state.update_charge();
        will
    }

    /// Gives messages of shared subscriptions that a session does not get to other members of their groups.
    fn redistribute(&mut self, deliveries: Vec<Delivery>, instead_of: SessionId, now: Instant) {
        for Delivery { publication, group: id, .. } in deliveries {
            let group = id.and_then(|id| Some((id, self.shared_subscriptions.group(id)?)));
            if let Some((id, group)) = group {
                group.deliver(id, &publication, Some(instead_of), now, &mut self.events);
            }
        }
    }

    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Ends expired sessions, a few of them; returns the Will Messages that are due, to be published. If more have
    /// expired, [`Registry::next_deadline`] is not later than `now`.
    pub fn handle_deadlines(&mut self, now: Instant) -> Vec<DueWill> {
        let mut wills = Vec::new();
        let mut removed = 0_usize;
        for _ in 0..ENDED_PER_CALL_MAX {
            if removed >= REMOVED_PER_CALL_ENOUGH {
                break;
            }
            let Some(first) = self.deadlines.first_entry().filter(|first| first.key().0 <= now) else {
                break;
            };
            let entry = first.remove();
            let mut state = entry.lock();
            let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            if is_due(state.will_at) {
                state.will_at = None;
                wills.extend(state.will.take().and_then(|will| self.authorized_will(&entry, &state, will)));
            }
            if is_due(state.ends_at) {
                state.ends_at = None;
                let (messages, _) = state.session.size();
                removed = removed.saturating_add(state.filters.len()).saturating_add(messages);
                drop(state);
                self.remove_entry(&entry, now);
            }
        }
        wills
    }

    /// Returns when [`Registry::handle_deadlines`] has something to do next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first_key_value().map(|((at, _), _)| *at)
    }

    /// Subscribes a connection's session. The matching retained messages are then queued by
    /// [`Registry::deliver_retained`], once per distinct filter.
    pub fn subscribe(&mut self, connection: ConnectionId, requests: Vec<SubscriptionRequest>) -> Subscribed {
        let Some((entry, _)) = self.connections.get(&connection).cloned() else {
            let results = requests.iter().map(|_| Err(ReasonCode::UnspecifiedError)).collect();
            return Subscribed { results, retained: Vec::new() };
        };
        let mut retained = Vec::new();
        let subscribe = |SubscriptionRequest { filter, options, retain_handling }| {
            if self.subscribe_one(&entry, &filter, options, retain_handling)? {
                retained.push(filter);
            }
            Ok(options.qos)
        };
        let results = requests.into_iter().map(subscribe).collect();
        if !retained.is_empty() {
            entry.lock().session.hold();
        }
        Subscribed { results, retained }
    }

    /// Adds one subscription; returns whether its retained messages are to be sent.
    fn subscribe_one(
        &mut self,
        entry: &Arc<SessionEntry>,
        filter: &str,
        options: SubscriptionOptions,
        retain_handling: RetainHandling,
    ) -> Result<bool, ReasonCode> {
        let is_shared = filter::is_shared(filter);
        let is_valid = if is_shared { filter::shared(filter).is_some() } else { filter::is_valid(filter) };
        if !is_valid {
            return Err(ReasonCode::TopicFilterInvalid);
        }
        {
            let mut state = entry.lock();
            if !state.filters.contains_key(filter) {
                let most = filter_memory::bytes_at_most(filter);
                let is_within = state.filter_bytes().saturating_add(most) <= self.filter_bytes_max;
                let has_room = state.filters.len() < self.subscriptions_max && is_within;
                if !has_room || !state.may_hold_more(most) {
                    return Err(ReasonCode::QuotaExceeded);
                }
                state.charge_filters(filter_memory::bytes(filter), 0);
            }
            state.filters.insert(filter.to_owned(), options);
        }
        let (is_new, node_bytes) = self.insert_subscription(entry, filter, options, retain_handling, true);
        entry.lock().charge_filters(node_bytes, 0);
        Ok(match retain_handling {
            // Retained messages are not sent for shared subscriptions (MQTT 5, 4.8.2).
            _ if is_shared => false,
            RetainHandling::Always => true,
            RetainHandling::IfNew => is_new,
            RetainHandling::Never => false,
        })
    }

    /// Adds a subscription to the routing tables, or changes its options there; returns whether it was not there before, and
    /// the bytes of new nodes, which the session must be charged for.
    ///
    /// A subscription that is replaced keeps its sequence number unless its retained messages are sent: a retained message
    /// that is being routed would otherwise reach the client in neither way (MQTT 5, 3.8.4).
    fn insert_subscription(
        &mut self,
        entry: &Arc<SessionEntry>,
        filter: &str,
        options: SubscriptionOptions,
        retain_handling: RetainHandling,
        is_connected: bool,
    ) -> (bool, usize) {
        let entry = Arc::clone(entry);
        if filter::is_shared(filter) {
            return (self.shared_subscriptions.insert(filter, entry, options, is_connected), 0);
        }
        let replaced = match retain_handling {
            RetainHandling::Always => None,
            RetainHandling::IfNew | RetainHandling::Never => self.subscriptions.get(filter, entry.id),
        };
        let since = replaced.map_or_else(|| self.retained.sequence(), |replaced| replaced.since);
        let (is_new, created) =
            self.subscriptions.insert(filter, entry.id, Subscription { entry, options, since });
        (is_new, created.saturating_mul(NODE_BYTES))
    }

    /// Removes subscriptions; returns the reason code of each.
    pub fn unsubscribe(&mut self, connection: ConnectionId, filters: &[String]) -> Vec<ReasonCode> {
        let Some((entry, _)) = self.connections.get(&connection).cloned() else {
            return vec![ReasonCode::NoSubscriptionExisted; filters.len()];
        };
        let unsubscribe = |filter: &String| {
            if !entry.lock().remove_filter(filter) {
                return ReasonCode::NoSubscriptionExisted;
            }
            self.remove_subscription(filter, entry.id);
            entry.lock().charge_filters(0, filter_memory::bytes(filter));
            ReasonCode::Success
        };
        filters.iter().map(unsubscribe).collect()
    }

    /// Stores a retained message of an owner, or removes the one of its topic if its payload is empty. Without room nothing
    /// changes.
    ///
    /// # Errors
    /// There is no room for this owner.
    pub fn retain(
        &mut self,
        publication: &Arc<Publication>,
        owner: &Arc<Account>,
        now: Instant,
    ) -> Result<(), Full> {
        let retained = self.retained.handle_publish(publication, owner, now);
        if retained.is_err() {
            self.events.push(Event::NotRetained { topic: publication.message.topic.to_string() });
        }
        retained
    }

    /// Removes the retained message of a topic.
    pub fn remove_retained(&mut self, topic: &str) {
        self.retained.remove(topic);
    }

    /// Whether any subscription matches a topic.
    #[must_use]
    pub fn has_subscribers(&self, topic: &str) -> bool {
        self.subscriptions.has_match(topic) || self.shared_subscriptions.has_match(topic)
    }

    #[must_use]
    pub fn handle(&self, connection: ConnectionId) -> Option<&Arc<ConnectionHandle>> {
        self.connections.get(&connection).map(|(_, handle)| handle)
    }

    /// Rejects new connections, and stops the others from reading.
    pub fn drain(&mut self) {
        self.is_closed = true;
        for (_, handle) in self.connections.values() {
            handle.advance(DrainPhase::Draining);
        }
    }

    /// Whether every connection has handled the packets that it had read. A connection that is to be closed may still
    /// handle one, so it counts until it has ended.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let mut handles = self.connections.values().map(|(_, handle)| handle);
        self.taken_over.is_empty() && handles.all(|handle| handle.has_reached(DrainPhase::Drained))
    }

    /// Closes all connections, each once its messages have been sent.
    pub fn finish(&self) {
        for (_, handle) in self.connections.values() {
            handle.advance(DrainPhase::Finishing);
        }
    }

    /// Closes all connections and rejects new ones.
    pub fn close(&mut self) {
        self.is_closed = true;
        for (_, handle) in self.connections.values() {
            handle.close(ReasonCode::ServerShuttingDown, "the server stops");
        }
    }

    fn new_entry(&mut self, SessionRequest { client_id, owner, .. }: &SessionRequest) -> Arc<SessionEntry> {
        let id = SessionId(self.next_session);
        // 64 bits do not overflow: each session takes a CONNECT.
        self.next_session = self.next_session.wrapping_add(1);
        let entry = Arc::new(SessionEntry::new(id, Arc::clone(client_id), Session::new(self.limits), owner));
        self.sessions.insert(Arc::clone(client_id), Arc::clone(&entry));
        self.sessions_by_id.insert(id, Arc::clone(&entry));
        entry
    }

    /// Removes a subscription from the routing tables; returns whether it was there. No entry may be locked: other sessions
    /// may be charged for its nodes from now on.
    fn remove_subscription(&mut self, filter: &str, session: SessionId) -> bool {
        if filter::is_shared(filter) {
            return self.shared_subscriptions.remove(filter, session);
        }
        let Self { subscriptions, sessions_by_id, .. } = self;
        subscriptions.remove(filter, session, |session, is_charged| {
            if let Some(entry) = sessions_by_id.get(&session) {
                let (more, less) = if is_charged { (NODE_BYTES, 0) } else { (0, NODE_BYTES) };
                entry.lock().charge_filters(more, less);
            }
        })
    }

    /// Removes a session from the tables of the disconnected ones.
    fn cancel_deadlines(&mut self, entry: &SessionEntry, state: &SessionState) {
        for at in [state.will_at, state.ends_at].into_iter().flatten() {
            self.deadlines.remove(&(at, entry.id));
        }
        if let Some(since) = state.disconnected_since
            && let Some(of_owner) = self.disconnected.get_mut(state.owner().owner())
        {
            of_owner.remove(&(since, entry.id));
            if of_owner.is_empty() {
                self.disconnected.remove(state.owner().owner());
            }
        }
    }
}

#[cfg(test)]
pub(in crate::broker) mod tests {
    use super::retained_delivery::RetainedDelivery;
    use super::*;
    use crate::broker::principal::Principal;
    use crate::broker::session::entry::Connack;
    use crate::broker::{ClientStatistics, Statistics};
    use crate::mqtt::packet::Will;

    fn registry() -> Registry {
        Registry::new(&Settings { sessions_max: 2, ..Settings::default() })
    }

    pub fn request(
        connection: u64,
        client_id: &str,
        expiry_s: u32,
        will_delay_s: Option<u32>,
    ) -> SessionRequest {
        let message = Message { topic: "will".into(), ..Message::default() };
        SessionRequest {
            connection: ConnectionId(connection),
            remote: "192.0.2.1:1024".into(),
            client_id: client_id.into(),
            principal: Principal::default(),
            owner: Account::test("test", 1 << 30),
            permissions: None,
            clean_start: false,
            receive_maximum: 10,
            will: will_delay_s.map(|delay_s| Will { message, delay_s }),
            expiry_s,
            connack: None,
        }
    }

    impl Registry {
        /// As [`Registry::attach`]; the client has sent something since its CONNACK.
        pub fn attach_known(
            &mut self,
            request: SessionRequest,
            now: Instant,
        ) -> Result<AttachedSession, ReasonCode> {
            let attached = self.attach(request, now)?;
            attached.entry.resume(attached.handle.id, true);
            Ok(attached)
        }
    }

    #[derive(Debug)]
    struct FakeConnack {
        is_acknowledged: bool,
    }

    impl Connack for FakeConnack {
        fn is_acknowledged(&self) -> bool {
            self.is_acknowledged
        }
    }

    pub fn clients(registry: &Registry) -> Vec<ClientStatistics> {
        registry.sessions_after(None, usize::MAX).iter().map(|entry| ClientStatistics::of(entry)).collect()
    }

    pub fn statistics(registry: &Registry) -> Statistics {
        let mut statistics = registry.totals();
        clients(registry).iter().for_each(|client| statistics.add(client));
        statistics
    }

    /// Subscribes a connection and queues the retained messages.
    pub fn subscribe(
        registry: &mut Registry,
        connection: u64,
        requests: Vec<SubscriptionRequest>,
        now: Instant,
    ) -> Vec<Result<Qos, ReasonCode>> {
        let Subscribed { results, retained } = registry.subscribe(ConnectionId(connection), requests);
        let mut delivery = RetainedDelivery::new(ConnectionId(connection), retained);
        while registry.deliver_retained(&mut delivery, now, &mut Vec::new()) {}
        results
    }

    /// Subscribes a connection at QoS 1.
    pub fn subscribe_to(registry: &mut Registry, connection: u64, filter: &str, now: Instant) {
        let options = SubscriptionOptions {
            qos: Qos::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            identifier: None,
        };
        let (filter, retain_handling) = (filter.to_owned(), RetainHandling::Always);
        let request = SubscriptionRequest { filter, options, retain_handling };
        let results = subscribe(registry, connection, vec![request], now);
        assert_eq!(results, [Ok(Qos::AtLeastOnce)]);
    }

    fn detach(registry: &mut Registry, connection: u64, now: Instant) -> Option<Message> {
        registry.detach(ConnectionId(connection), true, None, now).map(|will| will.message)
    }

    #[test]
    fn a_session_ends_at_its_deadline_and_not_before() {
        let start = crate::clock::monotonic();
        let mut registry = registry();
        registry.attach_known(request(1, "a", 10, None), start).unwrap();
        assert_eq!(registry.next_deadline(), None);
        detach(&mut registry, 1, start);
        assert_eq!(registry.next_deadline(), Some(start + Duration::from_secs(10)));
        registry.handle_deadlines(start + Duration::from_secs(9));
        assert_eq!(registry.sessions.len(), 1);
        registry.handle_deadlines(start + Duration::from_secs(10));
        assert_eq!((registry.sessions.len(), registry.next_deadline()), (0, None));
    }

    #[test]
    fn a_session_is_resumed_if_its_client_knows_of_it_and_is_a_new_one_otherwise() {
        // Clean Start of the first connection, whether its CONNACK was acknowledged, if that is known.
        for (clean_start, connack, is_known) in [
            (false, None, false),
            (false, Some(false), false),
            (false, Some(true), true),
            (true, None, true),
            (true, Some(false), true),
        ] {
            for is_taken_over in [true, false] {
                let start = crate::clock::monotonic();
                let mut registry = registry();
                let connack = connack.map(|is_acknowledged| FakeConnack { is_acknowledged });
                let connack = connack.map(|connack| Box::new(connack) as Box<dyn Connack>);
                let first = SessionRequest { clean_start, connack, ..request(1, "a", 10, None) };
                let first = registry.attach(first, start).unwrap().entry;
                if !is_taken_over {
                    detach(&mut registry, 1, start);
                }
                let second = registry.attach(request(2, "a", 10, None), start).unwrap();
                assert_eq!((second.is_resumed, second.entry.id == first.id), (is_known, is_known));
                assert_eq!(registry.sessions.len(), 1);
            }
        }
    }

    #[test]
    fn a_client_that_reconnects_cancels_its_deadlines() {
        let start = crate::clock::monotonic();
        let mut registry = registry();
        registry.attach_known(request(1, "a", 10, Some(5)), start).unwrap();
        assert_eq!(detach(&mut registry, 1, start), None);
        let attached = registry.attach_known(request(2, "a", 10, None), start).unwrap();
        assert!(attached.is_resumed && attached.will.is_none());
        assert_eq!(registry.next_deadline(), None);
        assert!(registry.handle_deadlines(start + Duration::from_secs(60)).is_empty());
        assert_eq!(registry.sessions.len(), 1);
    }

    #[test]
    fn a_delayed_will_is_due_after_its_delay_or_at_the_end_of_the_session() {
        for (expiry_s, delay_s, due_s) in [(10, 5, 5), (5, 10, 5), (u32::MAX, 7, 7)] {
            let start = crate::clock::monotonic();
            let mut registry = registry();
            registry.attach_known(request(1, "a", expiry_s, Some(delay_s)), start).unwrap();
            assert_eq!(detach(&mut registry, 1, start), None);
            assert!(registry.handle_deadlines(start + Duration::from_secs(due_s - 1)).is_empty());
            assert_eq!(registry.handle_deadlines(start + Duration::from_secs(due_s)).len(), 1);
        }
    }

    #[test]
    fn a_will_is_due_at_once_if_the_session_ends_with_the_connection() {
        let start = crate::clock::monotonic();
        let mut registry = registry();
        registry.attach_known(request(1, "a", 0, Some(60)), start).unwrap();
        assert!(detach(&mut registry, 1, start).is_some());
        assert!(registry.sessions.is_empty());
        registry.attach_known(request(2, "b", u32::MAX, Some(0)), start).unwrap();
        assert!(detach(&mut registry, 2, start).is_some(), "or if it has no delay");
        assert_eq!(registry.next_deadline(), None, "the session does not expire");
    }

    #[test]
    fn statistics_count_subscriptions_and_queued_messages_of_all_sessions() {
        let start = crate::clock::monotonic();
        let mut registry = registry();
        registry.attach_known(request(1, "a", 10, None), start).unwrap();
        registry.attach_known(request(2, "b", 10, None), start).unwrap();
        assert!(!registry.has_subscribers("t"));
        for (connection, filter) in [(1, "t"), (2, "$share/g/u"), (2, "other")] {
            subscribe_to(&mut registry, connection, filter, start);
        }
        assert!(registry.has_subscribers("t") && registry.has_subscribers("u"));
        detach(&mut registry, 2, start);
        let mut bytes = 0;
        for topic in ["t", "t", "u"] {
            let message =
                Message { topic: topic.to_owned().into(), qos: Qos::AtLeastOnce, ..Message::default() };
            let publication = Arc::new(Publication::new(message, start));
            assert_eq!(registry.route(None, None, &publication, start, &mut Vec::new()), 1);
            bytes += publication.bytes;
        }
        let Statistics { connected, sessions, subscriptions, queued, queued_bytes, .. } =
            statistics(&registry);
        assert_eq!(
            (connected, sessions, subscriptions, queued, queued_bytes, registry.connections()),
            (1, 2, 3, 3, bytes, 1)
        );
        let client = |client: &ClientStatistics| (client.is_connected(), client.subscriptions, client.queued);
        assert_eq!(clients(&registry).iter().map(client).collect::<Vec<_>>(), [(true, 1, 2), (false, 2, 1)]);
    }

    #[test]
    fn the_will_of_a_connection_that_is_taken_over_is_published_unless_its_session_goes_on_and_it_has_a_delay()
     {
        // The session expiry interval, Clean Start of the new connection, the delay of the will.
        for (expiry_s, clean_start, delay_s, is_published) in [
            (10, false, 0, true),
            (10, false, 60, false),
            (10, true, 0, true),
            (10, true, 60, true),
            (0, false, 0, true),
            (0, false, 60, true),
        ] {
            let start = crate::clock::monotonic();
            let mut registry = registry();
            registry.attach_known(request(1, "a", expiry_s, Some(delay_s)), start).unwrap();
            let next = SessionRequest { clean_start, ..request(2, "a", expiry_s, None) };
            let attached = registry.attach_known(next, start).unwrap();
            let case = (expiry_s, clean_start, delay_s);
            assert_eq!(attached.will.is_some(), is_published, "{case:?}");
            assert_eq!(attached.is_resumed, expiry_s > 0 && !clean_start, "{case:?}");
            assert!(detach(&mut registry, 1, start).is_none() && detach(&mut registry, 2, start).is_none());
            assert!(registry.handle_deadlines(start + Duration::from_secs(100)).is_empty(), "{case:?}");
        }
    }

    #[test]
    fn another_user_is_rejected_while_the_owner_is_connected_and_gets_a_new_session_afterwards() {
        let start = crate::clock::monotonic();
        let request = |connection, user: Option<&str>| {
            let mut request = request(connection, "a", 10, None);
            request.principal.user = user.map(Into::into);
            request
        };
        // The owner, the other user, and whether the owner's connection is closed in its favor.
        for (owner, other, is_closed) in
            [(Some("ann"), Some("bob"), false), (Some("ann"), None, false), (None, Some("ann"), true)]
        {
            let mut registry = registry();
            let handle = registry.attach_known(request(1, owner), start).unwrap().handle;
            let attached = registry.attach_known(request(2, other), start);
            assert_eq!(handle.close_reason().is_some(), is_closed, "{owner:?} {other:?}");
            if is_closed {
                assert!(!attached.unwrap().is_resumed, "{owner:?} {other:?}");
                continue;
            }
            assert_eq!(attached.unwrap_err(), ReasonCode::NotAuthorized, "{owner:?} {other:?}");
            detach(&mut registry, 1, start);
            assert!(!registry.attach_known(request(3, other), start).unwrap().is_resumed);
            assert_eq!(registry.sessions.len(), 1);
        }
    }

    #[test]
    fn a_session_without_expiry_interval_is_not_taken_over() {
        let start = crate::clock::monotonic();
        let mut registry = registry();
        registry.attach_known(request(1, "a", 0, Some(60)), start).unwrap();
        let attached = registry.attach_known(request(2, "a", 0, None), start).unwrap();
        assert!(!attached.is_resumed && attached.will.is_some());
    }

    #[test]
    fn a_connection_whose_session_was_taken_over_changes_nothing() {
        let start = crate::clock::monotonic();
        let mut registry = registry();
        registry.attach_known(request(1, "a", 10, None), start).unwrap();
        registry
            .attach_known(SessionRequest { clean_start: true, ..request(2, "a", 10, None) }, start)
            .unwrap();
        assert_eq!(detach(&mut registry, 1, start), None);
        let options = SubscriptionOptions {
            qos: Qos::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            identifier: None,
        };
        let request =
            SubscriptionRequest { filter: "#".to_owned(), options, retain_handling: RetainHandling::Always };
        let results = subscribe(&mut registry, 1, vec![request], start);
        assert_eq!(results, [Err(ReasonCode::UnspecifiedError)]);
        let publication = Arc::new(Publication::new(Message::default(), start));
        assert_eq!(registry.route(None, None, &publication, start, &mut Vec::new()), 0);
        assert!(registry.handle(ConnectionId(2)).is_some_and(|handle| handle.close_reason().is_none()));
    }

    #[test]
    fn retained_messages_are_not_searched_once_the_queue_is_full_or_the_connection_closes() {
        let start = crate::clock::monotonic();
        let mut registry = Registry::new(&Settings { session_queue_bytes_max: 1_000, ..Settings::default() });
        let handle = registry.attach_known(request(1, "a", 0, None), start).unwrap().handle;
        for (topic, bytes) in [("r/1", 1), ("r/2", 1_000), ("r/3", 1)] {
            let payload = vec![b'x'; bytes].into();
            let message = Message { topic: topic.to_owned().into(), payload, ..Message::default() };
            let publication = Arc::new(Publication::new(message, start));
            registry.retain(&publication, &Account::test("a", 1 << 30), start).unwrap();
        }
        let queued = |registry: &mut Registry, filters: &[&str]| {
            let options = SubscriptionOptions {
                qos: Qos::AtMostOnce,
                no_local: false,
                retain_as_published: false,
                identifier: None,
            };
            let requests = filters.iter().map(|filter| SubscriptionRequest {
                filter: (*filter).to_owned(),
                options,
                retain_handling: RetainHandling::Always,
            });
            let results = subscribe(registry, 1, requests.collect(), start);
            assert!(results.iter().all(Result::is_ok));
            let entry = Arc::clone(&registry.connections[&ConnectionId(1)].0);
            std::iter::from_fn(|| entry.poll_outgoing(ConnectionId(1), start, false)).count()
        };
        assert_eq!(queued(&mut registry, &["r/#", "r/3"]), 1);
        handle.close(ReasonCode::AdministrativeAction, "go");
        assert_eq!(queued(&mut registry, &["r/1"]), 0);
    }

    #[test]
    fn a_push_to_a_connection_that_was_taken_over_does_not_reach_its_successor() {
        let start = crate::clock::monotonic();
        for clean_start in [false, true] {
            let mut registry = registry();
            registry.attach_known(request(1, "a", 10, None), start).unwrap();
            registry
                .attach_known(SessionRequest { clean_start, ..request(2, "a", 10, None) }, start)
                .unwrap();
            registry.attach_known(request(3, "b", 10, None), start).unwrap();
            for connection in [2, 3] {
                subscribe_to(&mut registry, connection, "#", start);
            }
            let message = Message { topic: "t".into(), ..Message::default() };
            let publication = Arc::new(Publication::new(message, start));
            let push = |registry: &Registry, to| {
                registry.route(None, Some((ConnectionId(to), "a")), &publication, start, &mut Vec::new())
            };
            assert_eq!((push(&registry, 1), push(&registry, 2)), (1, 2));
            detach(&mut registry, 1, start);
            assert_eq!(push(&registry, 1), 1, "also after the old connection has ended");
            detach(&mut registry, 2, start);
            assert_eq!(push(&registry, 2), 1, "also if there is no other connection");
        }
    }

    #[test]
    fn the_number_of_sessions_is_limited() {
        let start = crate::clock::monotonic();
        let mut registry = registry();
        registry.attach_known(request(1, "a", 10, None), start).unwrap();
        registry.attach_known(request(2, "b", 10, None), start).unwrap();
        assert_eq!(
            registry.attach_known(request(3, "c", 10, None), start).unwrap_err(),
            ReasonCode::QuotaExceeded
        );
        registry.attach_known(request(4, "a", 10, None), start).unwrap();
    }

    fn request_of(connection: u64, client_id: &str, owner: &str) -> SessionRequest {
        SessionRequest {
            owner: Account::test(owner, 1 << 30),
            ..request(connection, client_id, u32::MAX, None)
        }
    }

    #[test]
    fn a_flood_of_sessions_ends_only_sessions_of_its_own_owner() {
        let start = crate::clock::monotonic();
        let mut registry = Registry::new(&Settings { sessions_max: 10, ..Settings::default() });
        for client_id in ["a", "b", "c"] {
            registry.attach_known(request_of(1, client_id, "user ann"), start).unwrap();
            detach(&mut registry, 1, start);
        }
        for connection in 2..100 {
            let client_id = format!("flood-{connection}");
            registry.attach_known(request_of(connection, &client_id, "10.0.0.1"), start).unwrap();
            detach(&mut registry, connection, start);
            assert!(registry.sessions.len() <= 3 + 4, "at most half of the rest for one owner");
        }
        for client_id in ["a", "b", "c"] {
            assert!(registry.attach_known(request_of(100, client_id, "user ann"), start).unwrap().is_resumed);
            detach(&mut registry, 100, start);
        }
        let flood: Vec<_> = (96..100).map(|number| format!("flood-{number}")).collect();
        assert!(flood.iter().all(|client_id| registry.sessions.contains_key(&**client_id)), "the latest");
    }

    #[test]
    fn a_new_session_is_refused_if_all_others_belong_to_other_owners() {
        let start = crate::clock::monotonic();
        let mut registry = Registry::new(&Settings { sessions_max: 4, ..Settings::default() });
        for (connection, owner) in [(1, "one"), (2, "one"), (3, "two"), (4, "two")] {
            registry.attach_known(request_of(connection, &format!("c{connection}"), owner), start).unwrap();
        }
        (1..=4).for_each(|connection| drop(detach(&mut registry, connection, start)));
        let refused = registry.attach_known(request_of(5, "new", "three"), start).unwrap_err();
        assert_eq!((refused, registry.sessions.len()), (ReasonCode::QuotaExceeded, 4));
        registry.attach_known(request_of(6, "new", "two"), start).unwrap();
        assert!(!registry.sessions.contains_key("c3") && registry.sessions.contains_key("c1"));
    }

    #[test]
    fn the_session_that_has_been_disconnected_longest_makes_room_for_a_new_one() {
        let start = crate::clock::monotonic();
        let later = |seconds| start + Duration::from_secs(seconds);
        let mut registry = registry();
        registry.attach_known(request(1, "first", u32::MAX, Some(60)), start).unwrap();
        registry.attach_known(request(2, "second", u32::MAX, None), start).unwrap();
        detach(&mut registry, 2, later(1));
        detach(&mut registry, 1, later(2));
        assert!(registry.attach_known(request(3, "second", u32::MAX, None), start).unwrap().is_resumed);
        let attached = registry.attach_known(request(4, "third", u32::MAX, None), start).unwrap();
        assert!(!attached.is_resumed && attached.will.is_some(), "the first one's will");
        assert_eq!((registry.sessions.len(), registry.disconnected.len()), (2, 0));
        assert_eq!(registry.next_deadline(), None);
        assert_eq!(
            registry.attach_known(request(5, "fourth", 0, None), start).unwrap_err(),
            ReasonCode::QuotaExceeded
        );
        detach(&mut registry, 3, later(3));
        assert!(!registry.attach_known(request(6, "first", 0, None), start).unwrap().is_resumed);
        detach(&mut registry, 6, later(4));
        assert_eq!((registry.sessions.len(), registry.disconnected.len()), (1, 0));
    }

    #[test]
    fn a_closed_or_draining_registry_rejects_every_connection() {
        let start = crate::clock::monotonic();
        let (mut registry, mut draining) = (registry(), registry());
        let attached = registry.attach_known(request(1, "a", 10, None), start).unwrap();
        registry.close();
        assert!(attached.handle.close_reason().is_some());
        draining.drain();
        for mut registry in [registry, draining] {
            assert_eq!(
                registry.attach_known(request(2, "b", 10, None), start).unwrap_err(),
                ReasonCode::ServerShuttingDown
            );
        }
    }

    #[test]
    fn many_sessions_that_expire_together_end_in_several_steps() {
        let start = crate::clock::monotonic();
        let later = start + Duration::from_secs(10);
        let count = ENDED_PER_CALL_MAX * 2 + 1;
        let mut registry = Registry::new(&Settings { sessions_max: count * 2, ..Settings::default() });
        for number in 0..count as u64 {
            registry.attach_known(request(number, &number.to_string(), 10, None), start).unwrap();
            detach(&mut registry, number, start);
        }
        for left in [ENDED_PER_CALL_MAX + 1, 1, 0] {
            assert!(registry.next_deadline().is_some_and(|at| at <= later));
            registry.handle_deadlines(later);
            assert_eq!(registry.sessions.len(), left);
        }
        assert_eq!(registry.next_deadline(), None);
    }

    #[test]
    fn sessions_with_many_subscriptions_that_expire_together_end_one_by_one() {
        let start = crate::clock::monotonic();
        let later = start + Duration::from_secs(10);
        let mut registry = Registry::new(&Settings::default());
        for number in 0..3 {
            registry.attach(request(number, &number.to_string(), 10, None), start).unwrap();
            for filter in 0..REMOVED_PER_CALL_ENOUGH {
                subscribe_to(&mut registry, number, &format!("t/{filter}/+"), start);
            }
            detach(&mut registry, number, start);
        }
        for left in [2, 1, 0] {
            registry.handle_deadlines(later);
            assert_eq!(registry.sessions.len(), left);
        }
        assert!(!registry.has_subscribers("t/1/x"));
    }

    #[test]
    fn sessions_with_many_messages_that_expire_together_end_one_by_one() {
        let start = crate::clock::monotonic();
        let later = start + Duration::from_secs(10);
        let mut registry = Registry::new(&Settings::default());
        for number in 0..3 {
            registry.attach_known(request(number, &number.to_string(), 10, None), start).unwrap();
            subscribe_to(&mut registry, number, "t", start);
            detach(&mut registry, number, start);
        }
        for _ in 0..REMOVED_PER_CALL_ENOUGH {
            let message = Message { topic: "t".into(), qos: Qos::AtLeastOnce, ..Message::default() };
            registry.route(None, None, &Arc::new(Publication::new(message, start)), start, &mut Vec::new());
        }
        for left in [2, 1, 0] {
            registry.handle_deadlines(later);
            assert_eq!(registry.sessions.len(), left);
        }
    }
}
