//! All that connections share: sessions by client id, live connections, subscriptions, retained messages, deadlines.

mod reauthorization;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};

use super::retained::RetainedMessages;
use super::shared_subscriptions::SharedSubscriptions;
use super::subscriptions::Subscriptions;
use crate::broker::event::Event;
use crate::broker::filter;
use crate::broker::packet::SubscriptionOptions;
use crate::broker::packet::{RetainHandling, SubscriptionRequest};
use crate::broker::publication::{Delivery, Publication};
use crate::broker::reason::Reason;
use crate::broker::session::connection_handle::{ConnectionHandle, DrainPhase};
use crate::broker::session::entry::SessionId;
use crate::broker::session::entry::{SessionEntry, SessionRequest, SessionState};
use crate::broker::session::state_machine::{Limits, Session};
use crate::broker::settings::Settings;
use crate::broker::statistics::{ClientStatistics, Statistics};
use crate::protocol::ConnectionId;
use crate::protocol::message::{Message, Qos};

/// A connection that got its entry.
#[derive(Debug)]
pub struct AttachedSession {
    /// The entry.
    pub entry: Arc<SessionEntry>,
    /// The connection.
    pub handle: Arc<ConnectionHandle>,
    /// Whether an earlier session goes on.
    pub session_present: bool,
    /// Whether the rules may let it have something else than it had before.
    pub needs_reauthorization: bool,
    /// The will of the connection or session that had to go.
    pub will: Option<Message>,
}

/// What connections share. Lock order: this, then a entry's state.
#[derive(Debug)]
pub struct Registry {
    limits: Limits,
    sessions_max: usize,
    subscriptions_max: usize,
    /// Of a session, as charged by [`filter::bytes`].
    filter_bytes_max: usize,
    sessions: HashMap<Arc<str>, Arc<SessionEntry>>,
    connections: HashMap<ConnectionId, (Arc<SessionEntry>, Arc<ConnectionHandle>)>,
    subscriptions: Subscriptions<SessionId, (Arc<SessionEntry>, SubscriptionOptions)>,
    shared_subscriptions: SharedSubscriptions,
    retained: RetainedMessages,
    /// When a entry without a connection is due for its will or its end.
    deadlines: BTreeMap<(Instant, SessionId), Arc<SessionEntry>>,
    /// The sessions without a connection, by the time since when.
    disconnected: BTreeMap<(Instant, SessionId), Arc<SessionEntry>>,
    next_session: u64,
    is_closed: bool,
    /// What is to be told of, once nobody waits for the lock any more.
    events: Vec<Event>,
}

impl Registry {
    /// Begins with nothing.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self {
            limits: Limits::from(settings),
            sessions_max: settings.sessions_max,
            subscriptions_max: settings.subscriptions_per_session_max,
            filter_bytes_max: filter::bytes_max(settings.subscriptions_per_session_max),
            sessions: HashMap::new(),
            connections: HashMap::new(),
            subscriptions: Subscriptions::default(),
            shared_subscriptions: SharedSubscriptions::default(),
            retained: RetainedMessages::new(settings.retained_messages_max, settings.retained_bytes_max),
            deadlines: BTreeMap::new(),
            disconnected: BTreeMap::new(),
            next_session: 0,
            is_closed: false,
            events: Vec::new(),
        }
    }

    /// Gives a connection its entry, and takes it from an earlier one (MQTT 5, 3.1.4).
    ///
    /// A session is for whoever began it: somebody else gets none of it, and does not end a connection of somebody who
    /// has said who he is.
    ///
    /// # Errors
    ///
    /// The reason to refuse the connection with.
    pub fn attach(&mut self, request: SessionRequest, now: Instant) -> Result<AttachedSession, Reason> {
        if self.is_closed {
            return Err(Reason::ServerShuttingDown);
        }
        let (kept, mut will) = self.take_over(&request, now)?;
        let session_present = kept.is_some();
        let needs_reauthorization = kept.as_ref().is_some_and(|entry| {
            let state = entry.lock();
            state.permissions.is_some() != request.permissions.is_some()
                || state.principal != request.principal
        });
        let entry = match kept {
            Some(entry) => entry,
            None => {
                if self.sessions.len() >= self.sessions_max {
                    // The client had no session before, and so there is no other will yet.
                    will = self.end_longest_disconnected(now)?;
                }
                self.new_entry(&request.client_id)
            }
        };
        let handle = Arc::new(ConnectionHandle::new(request.connection));
        self.connections.insert(request.connection, (Arc::clone(&entry), Arc::clone(&handle)));
        entry.lock().attach(Arc::clone(&handle), request);
        Ok(AttachedSession { entry, handle, session_present, needs_reauthorization, will })
    }

    /// Ends what the client's earlier connection left: its entry, if that can be taken over, and a will that is due.
    fn take_over(
        &mut self,
        request: &SessionRequest,
        now: Instant,
    ) -> Result<(Option<Arc<SessionEntry>>, Option<Message>), Reason> {
        let Some(entry) = self.sessions.get(&request.client_id).map(Arc::clone) else {
            return Ok((None, None));
        };
        let mut state = entry.lock();
        let is_owner = state.principal.is_same_as(&request.principal);
        if !is_owner && state.principal.is_authenticated() && state.is_connected() {
            return Err(Reason::NotAuthorized);
        }
        let last = state.handle.take();
        if let Some(last) = &last {
            last.close(Reason::SessionTakenOver, "another connection uses this client id");
            self.connections.remove(&last.id);
        }
        self.cancel_deadlines(&entry, &state);
        // A session that was not to outlive its connection ends with it, also when that was just cut.
        let goes_on = is_owner && !request.clean_start && (last.is_none() || state.expiry_s > 0);
        let will = state.will.take().filter(|will| !goes_on || (last.is_some() && will.delay_s == 0));
        let will = will.and_then(|will| self.authorized_will(&entry, &state, will));
        drop(state);
        if !goes_on {
            self.remove_entry(&entry, now);
        }
        Ok((goes_on.then_some(entry), will))
    }

    /// Ends the session that has been without a connection the longest; the message to publish is its will.
    fn end_longest_disconnected(&mut self, now: Instant) -> Result<Option<Message>, Reason> {
        let (_, entry) = self.disconnected.pop_first().ok_or(Reason::QuotaExceeded)?;
        let mut state = entry.lock();
        let will = state.will.take().and_then(|will| self.authorized_will(&entry, &state, will));
        drop(state);
        self.remove_entry(&entry, now);
        Ok(will)
    }

    /// A connection is over; the message to publish is its will, if that is due now.
    ///
    /// Does nothing if the connection had lost its entry before.
    pub fn detach(
        &mut self,
        connection: ConnectionId,
        publishes_will: bool,
        expiry_s: Option<u32>,
        now: Instant,
    ) -> Option<Message> {
        let (entry, _) = self.connections.remove(&connection)?;
        let mut state = entry.lock();
        state.handle = None;
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
        let after = |seconds: u32| now.checked_add(Duration::from_secs(u64::from(seconds)));
        state.disconnected_since = Some(now);
        self.disconnected.insert((now, entry.id), Arc::clone(&entry));
        state.ends_at = after(expiry_s).filter(|_| expiry_s != u32::MAX);
        state.will_at = state.will.as_ref().and_then(|will| after(will.delay_s.min(expiry_s)));
        for at in [state.will_at, state.ends_at].into_iter().flatten() {
            self.deadlines.insert((at, entry.id), Arc::clone(&entry));
        }
        // What has been sent waits for the client to come back, the rest need not if others have room for it.
        let Self { shared_subscriptions, events, .. } = self;
        state.session.drop_queued(|Delivery { publication, group, .. }| {
            let group = group.and_then(|id| Some((id, shared_subscriptions.group(id)?)));
            group.is_some_and(|(id, group)| group.hand_over(id, publication, entry.id, now, events))
        });
        will
    }

    /// Gives the others in its groups what a session does not get.
    fn redistribute(&mut self, deliveries: Vec<Delivery>, instead_of: SessionId, now: Instant) {
        for Delivery { publication, group: id, .. } in deliveries {
            let group = id.and_then(|id| Some((id, self.shared_subscriptions.group(id)?)));
            if let Some((id, group)) = group {
                group.deliver(id, &publication, Some(instead_of), now, &mut self.events);
            }
        }
    }

    /// What there is to be told of.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Ends the sessions and takes the wills that are due; the wills are to be published.
    pub fn handle_deadlines(&mut self, now: Instant) -> Vec<Message> {
        let mut wills = Vec::new();
        while let Some(entry) = self.deadlines.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let entry = entry.remove();
            let mut state = entry.lock();
            let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            if is_due(state.will_at) {
                state.will_at = None;
                wills.extend(state.will.take().and_then(|will| self.authorized_will(&entry, &state, will)));
            }
            if is_due(state.ends_at) {
                state.ends_at = None;
                drop(state);
                self.remove_entry(&entry, now);
            }
        }
        wills
    }

    /// When [`Registry::handle_deadlines`] has something to do next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first_key_value().map(|((at, _), _)| *at)
    }

    /// Subscribes a connection's session and gives it the retained messages that match, once per distinct filter.
    pub fn subscribe(
        &mut self,
        connection: ConnectionId,
        requests: Vec<SubscriptionRequest>,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Vec<Result<Qos, Reason>> {
        let Some((entry, handle)) = self.connections.get(&connection).cloned() else {
            return requests.iter().map(|_| Err(Reason::UnspecifiedError)).collect();
        };
        // Each walk through the retained messages holds everybody up, so none is made in vain.
        let (mut given, mut has_room) = (HashSet::new(), true);
        let subscribe = |SubscriptionRequest { filter, options, retain_handling }| {
            let wants_retained = self.subscribe_one(&entry, &filter, options, retain_handling)?;
            if wants_retained && has_room && handle.close_reason().is_none() && !given.contains(&filter) {
                has_room = self.queue_retained(&entry, &filter, options, now, events);
                given.insert(filter);
            }
            Ok(options.qos)
        };
        requests.into_iter().map(subscribe).collect()
    }

    /// Adds one subscription; says whether it brings the retained messages.
    fn subscribe_one(
        &mut self,
        entry: &Arc<SessionEntry>,
        filter: &str,
        options: SubscriptionOptions,
        retain_handling: RetainHandling,
    ) -> Result<bool, Reason> {
        let is_shared = filter::is_shared(filter);
        let is_valid = if is_shared { filter::shared(filter).is_some() } else { filter::is_valid(filter) };
        if !is_valid {
            return Err(Reason::TopicFilterInvalid);
        }
        {
            let mut state = entry.lock();
            if !state.filters.contains_key(filter) {
                let bytes = state.filter_bytes.saturating_add(filter::bytes(filter));
                if state.filters.len() >= self.subscriptions_max || bytes > self.filter_bytes_max {
                    return Err(Reason::QuotaExceeded);
                }
                state.filter_bytes = bytes;
            }
            state.filters.insert(filter.to_owned(), options);
        }
        let is_new = self.insert_subscription(entry, filter, options);
        Ok(match retain_handling {
            // None of a group would know which it is (MQTT 5, 4.8.2).
            _ if is_shared => false,
            RetainHandling::Always => true,
            RetainHandling::IfNew => is_new,
            RetainHandling::Never => false,
        })
    }

    /// Has a subscription bring messages; true if it has not done so before.
    fn insert_subscription(
        &mut self,
        entry: &Arc<SessionEntry>,
        filter: &str,
        options: SubscriptionOptions,
    ) -> bool {
        if filter::is_shared(filter) {
            return self.shared_subscriptions.insert(filter, Arc::clone(entry), options);
        }
        self.subscriptions.insert(filter, entry.id, (Arc::clone(entry), options))
    }

    /// Gives a session the retained messages that a filter matches; false if there was no room for one.
    fn queue_retained(
        &self,
        entry: &SessionEntry,
        filter: &str,
        options: SubscriptionOptions,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> bool {
        self.retained.matching(filter, now).all(|publication| {
            let publication = Arc::clone(publication);
            let qos = publication.message.qos.min(options.qos);
            let subscription_ids = options.identifier.into_iter().collect();
            entry.enqueue(
                Delivery { publication, qos, retain: true, subscription_ids, group: None },
                now,
                events,
            )
        })
    }

    /// Ends subscriptions; says of each whether it existed.
    pub fn unsubscribe(&mut self, connection: ConnectionId, filters: &[String]) -> Vec<Reason> {
        let Some((entry, _)) = self.connections.get(&connection).cloned() else {
            return vec![Reason::NoSubscriptionExisted; filters.len()];
        };
        let mut state = entry.lock();
        let mut unsubscribe = |filter: &String| {
            let existed = state.filters.remove(filter).is_some();
            if existed {
                state.filter_bytes = state.filter_bytes.saturating_sub(filter::bytes(filter));
            }
            self.remove_subscription(filter, entry.id);
            if existed { Reason::Success } else { Reason::NoSubscriptionExisted }
        };
        filters.iter().map(&mut unsubscribe).collect()
    }

    /// Keeps a retained message, or removes its topic's.
    pub fn retain(&mut self, publication: &Arc<Publication>, now: Instant, events: &mut Vec<Event>) {
        if self.retained.handle_publish(publication, now).is_err() {
            events.push(Event::NotRetained { topic: publication.message.topic.clone() });
        }
    }

    /// Gives a message to `to` whether it subscribes or not, and to all others that do; says how many got it.
    ///
    /// If the connection of `to` is over, its client gets nothing either: what another connection of it is to have is
    /// given to that one.
    pub fn route(
        &self,
        from: Option<ConnectionId>,
        to: Option<(ConnectionId, &str)>,
        publication: &Arc<Publication>,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> usize {
        let session_of = |connection| self.connections.get(&connection).map(|(entry, _)| entry);
        let from = from.and_then(session_of);
        let addressee = to.map(|(connection, client_id)| (session_of(connection), client_id));
        let (to, addressee) = match addressee {
            Some((Some(entry), _)) => (Some(entry), Some(entry.id)),
            Some((None, client_id)) => (None, self.sessions.get(client_id).map(|entry| entry.id)),
            None => (None, None),
        };
        let message = &publication.message;
        let mut count = usize::from(to.is_some());
        if let Some(entry) = to {
            let (publication, subscription_ids) = (Arc::clone(publication), Vec::new());
            let delivery =
                Delivery { publication, qos: message.qos, retain: false, subscription_ids, group: None };
            entry.enqueue(delivery, now, events);
        }
        // Nearly every message matches one subscription, and then there is nothing to be collected.
        let mut first: Option<(SessionId, &Arc<SessionEntry>, SubscriptionOptions)> = None;
        let mut matches = Vec::new();
        self.subscriptions.for_each_match(&message.topic, |session, (entry, options)| {
            let is_own = options.no_local && from.is_some_and(|from| from.id == session);
            if !is_own && addressee != Some(session) {
                match first {
                    None => first = Some((session, entry, *options)),
                    Some(_) => matches.push((session, entry, *options)),
                }
            }
        });
        let matches = if matches.is_empty() {
            first.as_slice()
        } else {
            matches.splice(..0, first);
            matches.sort_by_key(|(session, ..)| *session);
            &matches
        };
        for same in matches.chunk_by(|(one, ..), (other, ..)| one == other) {
            let Some((_, entry, _)) = same.first() else {
                continue;
            };
            count = count.saturating_add(1);
            let options = || same.iter().map(|(_, _, options)| options);
            let delivery = Delivery {
                publication: Arc::clone(publication),
                qos: options().map(|options| options.qos).max().unwrap_or_default().min(message.qos),
                retain: message.retain && options().any(|options| options.retain_as_published),
                subscription_ids: options().filter_map(|options| options.identifier).collect(),
                group: None,
            };
            entry.enqueue(delivery, now, events);
        }
        count.saturating_add(self.shared_subscriptions.route(publication, addressee, now, events))
    }

    /// Whether a message on this topic would find anybody.
    #[must_use]
    pub fn has_subscribers(&self, topic: &str) -> bool {
        self.subscriptions.has_match(topic) || self.shared_subscriptions.has_match(topic)
    }

    /// A live connection.
    #[must_use]
    pub fn handle(&self, connection: ConnectionId) -> Option<&Arc<ConnectionHandle>> {
        self.connections.get(&connection).map(|(_, handle)| handle)
    }

    /// Lets no other connection in, and takes no other message from those that there are.
    pub fn drain(&mut self) {
        self.is_closed = true;
        for (_, handle) in self.connections.values() {
            handle.advance(DrainPhase::Draining);
        }
    }

    /// Whether every connection has handled what it had read.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let is_drained = |handle: &Arc<ConnectionHandle>| {
            handle.has_reached(DrainPhase::Drained) || handle.close_reason().is_some()
        };
        self.connections.values().all(|(_, handle)| is_drained(handle))
    }

    /// Ends connections, each once it has been sent what there is for it.
    pub fn finish(&self) {
        for (_, handle) in self.connections.values() {
            handle.advance(DrainPhase::Finishing);
        }
    }

    /// How much there is.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let (retained, retained_bytes) = self.retained.size();
        let mut statistics = Statistics {
            connected: self.connections.len(),
            sessions: self.sessions.len(),
            retained,
            retained_bytes,
            ..Statistics::default()
        };
        for entry in self.sessions.values() {
            let state = entry.lock();
            let (messages, bytes) = state.session.size();
            statistics.subscriptions = statistics.subscriptions.saturating_add(state.filters.len());
            statistics.queued = statistics.queued.saturating_add(messages);
            statistics.queued_bytes = statistics.queued_bytes.saturating_add(bytes);
        }
        statistics
    }

    /// How many clients are connected.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Some clients, in no order that means anything.
    #[must_use]
    pub fn clients(&self, clients_max: usize) -> Vec<ClientStatistics> {
        let client = |entry: &Arc<SessionEntry>| {
            let state = entry.lock();
            ClientStatistics {
                client_id: Arc::clone(&entry.client_id),
                is_connected: state.handle.is_some(),
                subscriptions: state.filters.len(),
                queued: state.session.size().0,
            }
        };
        self.sessions.values().take(clients_max).map(client).collect()
    }

    /// Ends all connections and lets no other one in.
    pub fn close(&mut self) {
        self.is_closed = true;
        for (_, handle) in self.connections.values() {
            handle.close(Reason::ServerShuttingDown, "the server stops");
        }
    }

    fn new_entry(&mut self, client_id: &Arc<str>) -> Arc<SessionEntry> {
        let id = SessionId(self.next_session);
        self.next_session = self.next_session.saturating_add(1);
        let entry = Arc::new(SessionEntry::new(id, Arc::clone(client_id), Session::new(self.limits)));
        self.sessions.insert(Arc::clone(client_id), Arc::clone(&entry));
        entry
    }

    fn remove_entry(&mut self, entry: &Arc<SessionEntry>, now: Instant) {
        let (filters, shared) = {
            let mut state = entry.lock();
            self.cancel_deadlines(entry, &state);
            (std::mem::take(&mut state.filters), state.session.end())
        };
        for filter in filters.keys() {
            self.remove_subscription(filter, entry.id);
        }
        self.redistribute(shared, entry.id, now);
        self.sessions.remove(&entry.client_id);
    }

    fn remove_subscription(&mut self, filter: &str, session: SessionId) -> bool {
        if filter::is_shared(filter) {
            self.shared_subscriptions.remove(filter, session)
        } else {
            self.subscriptions.remove(filter, session)
        }
    }

    fn cancel_deadlines(&mut self, entry: &SessionEntry, state: &SessionState) {
        for at in [state.will_at, state.ends_at].into_iter().flatten() {
            self.deadlines.remove(&(at, entry.id));
        }
        if let Some(since) = state.disconnected_since {
            self.disconnected.remove(&(since, entry.id));
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::broker::packet::Will;
    use crate::broker::principal::Principal;

    fn registry() -> Registry {
        Registry::new(&Settings { sessions_max: 2, ..Settings::default() })
    }

    pub fn request(
        connection: u64,
        client_id: &str,
        expiry_s: u32,
        will_delay_s: Option<u32>,
    ) -> SessionRequest {
        let message = Message { topic: "will".to_owned(), ..Message::default() };
        SessionRequest {
            connection: ConnectionId(connection),
            client_id: client_id.into(),
            principal: Principal::default(),
            permissions: None,
            clean_start: false,
            receive_maximum: 10,
            will: will_delay_s.map(|delay_s| Will { message, delay_s }),
            expiry_s,
        }
    }

    fn detach(registry: &mut Registry, connection: u64, now: Instant) -> Option<Message> {
        registry.detach(ConnectionId(connection), true, None, now)
    }

    #[test]
    fn a_session_ends_at_its_deadline_and_not_before() {
        let start = crate::clock::monotonic();
        let mut registry = registry();
        registry.attach(request(1, "a", 10, None), start).unwrap();
        assert_eq!(registry.next_deadline(), None);
        detach(&mut registry, 1, start);
        assert_eq!(registry.next_deadline(), Some(start + Duration::from_secs(10)));
        registry.handle_deadlines(start + Duration::from_secs(9));
        assert_eq!(registry.sessions.len(), 1);
        registry.handle_deadlines(start + Duration::from_secs(10));
        assert_eq!((registry.sessions.len(), registry.next_deadline()), (0, None));
    }

    #[test]
    fn a_client_that_comes_back_stops_the_clocks() {
        let start = crate::clock::monotonic();
        let mut registry = registry();
        registry.attach(request(1, "a", 10, Some(5)), start).unwrap();
        assert_eq!(detach(&mut registry, 1, start), None);
        let attached = registry.attach(request(2, "a", 10, None), start).unwrap();
        assert!(attached.session_present && attached.will.is_none());
        assert_eq!(registry.next_deadline(), None);
        assert!(registry.handle_deadlines(start + Duration::from_secs(60)).is_empty());
        assert_eq!(registry.sessions.len(), 1);
    }

    #[test]
    fn a_delayed_will_is_due_at_its_delay_or_at_the_sessions_end() {
        for (expiry_s, delay_s, due_s) in [(10, 5, 5), (5, 10, 5), (u32::MAX, 7, 7)] {
            let start = crate::clock::monotonic();
            let mut registry = registry();
            registry.attach(request(1, "a", expiry_s, Some(delay_s)), start).unwrap();
            assert_eq!(detach(&mut registry, 1, start), None);
            assert!(registry.handle_deadlines(start + Duration::from_secs(due_s - 1)).is_empty());
            assert_eq!(registry.handle_deadlines(start + Duration::from_secs(due_s)).len(), 1);
        }
    }

    #[test]
    fn a_will_is_due_at_once_when_the_session_ends_with_the_connection() {
        let start = crate::clock::monotonic();
        let mut registry = registry();
        registry.attach(request(1, "a", 0, Some(60)), start).unwrap();
        assert!(detach(&mut registry, 1, start).is_some());
        assert!(registry.sessions.is_empty());
    }

    #[test]
    fn a_session_not_to_outlive_its_connection_is_not_taken_over() {
        let start = crate::clock::monotonic();
        let mut registry = registry();
        registry.attach(request(1, "a", 0, Some(60)), start).unwrap();
        let attached = registry.attach(request(2, "a", 0, None), start).unwrap();
        assert!(!attached.session_present && attached.will.is_some());
    }

    #[test]
    fn a_connection_that_lost_its_seat_changes_nothing_any_more() {
        let start = crate::clock::monotonic();
        let mut registry = registry();
        registry.attach(request(1, "a", 10, None), start).unwrap();
        registry.attach(SessionRequest { clean_start: true, ..request(2, "a", 10, None) }, start).unwrap();
        assert_eq!(detach(&mut registry, 1, start), None);
        let options = SubscriptionOptions {
            qos: Qos::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            identifier: None,
        };
        let request =
            SubscriptionRequest { filter: "#".to_owned(), options, retain_handling: RetainHandling::Always };
        let results = registry.subscribe(ConnectionId(1), vec![request], start, &mut Vec::new());
        assert_eq!(results, [Err(Reason::UnspecifiedError)]);
        let publication = Arc::new(Publication::new(Message::default(), start));
        assert_eq!(registry.route(None, None, &publication, start, &mut Vec::new()), 0);
        assert!(registry.handle(ConnectionId(2)).is_some_and(|handle| handle.close_reason().is_none()));
    }

    #[test]
    fn no_retained_message_is_looked_for_once_there_is_no_room_or_the_connection_ends() {
        let start = crate::clock::monotonic();
        let mut registry = Registry::new(&Settings { session_queue_bytes_max: 1_000, ..Settings::default() });
        let handle = registry.attach(request(1, "a", 0, None), start).unwrap().handle;
        for (topic, bytes) in [("r/1", 1), ("r/2", 1_000), ("r/3", 1)] {
            let payload = vec![b'x'; bytes].into();
            let message = Message { topic: topic.to_owned(), payload, ..Message::default() };
            registry.retain(&Arc::new(Publication::new(message, start)), start, &mut Vec::new());
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
            let results = registry.subscribe(ConnectionId(1), requests.collect(), start, &mut Vec::new());
            assert!(results.iter().all(Result::is_ok));
            let entry = Arc::clone(&registry.connections[&ConnectionId(1)].0);
            std::iter::from_fn(|| entry.poll_outgoing(ConnectionId(1), start, false)).count()
        };
        assert_eq!(queued(&mut registry, &["r/1", "r/1"]), 1);
        assert_eq!(queued(&mut registry, &["r/#", "r/3"]), 1);
        handle.close(Reason::AdministrativeAction, "go");
        assert_eq!(queued(&mut registry, &["r/1"]), 0);
    }

    #[test]
    fn a_push_to_a_connection_that_was_taken_over_is_not_given_to_its_successor() {
        let start = crate::clock::monotonic();
        for clean_start in [false, true] {
            let mut registry = registry();
            registry.attach(request(1, "a", 10, None), start).unwrap();
            registry.attach(SessionRequest { clean_start, ..request(2, "a", 10, None) }, start).unwrap();
            registry.attach(request(3, "b", 10, None), start).unwrap();
            let options = SubscriptionOptions {
                qos: Qos::AtLeastOnce,
                no_local: false,
                retain_as_published: false,
                identifier: None,
            };
            for connection in [2, 3] {
                let retain_handling = RetainHandling::Always;
                let request = SubscriptionRequest { filter: "#".to_owned(), options, retain_handling };
                registry.subscribe(ConnectionId(connection), vec![request], start, &mut Vec::new());
            }
            let message = Message { topic: "t".to_owned(), ..Message::default() };
            let publication = Arc::new(Publication::new(message, start));
            let push = |registry: &Registry, to| {
                registry.route(None, Some((ConnectionId(to), "a")), &publication, start, &mut Vec::new())
            };
            assert_eq!((push(&registry, 1), push(&registry, 2)), (1, 2));
            detach(&mut registry, 1, start);
            assert_eq!(push(&registry, 1), 1, "also when the old one's task has ended");
            detach(&mut registry, 2, start);
            assert_eq!(push(&registry, 2), 1, "nor when there is no other one");
        }
    }

    #[test]
    fn sessions_are_bounded() {
        let start = crate::clock::monotonic();
        let mut registry = registry();
        registry.attach(request(1, "a", 10, None), start).unwrap();
        registry.attach(request(2, "b", 10, None), start).unwrap();
        assert_eq!(registry.attach(request(3, "c", 10, None), start).unwrap_err(), Reason::QuotaExceeded);
        registry.attach(request(4, "a", 10, None), start).unwrap();
    }

    #[test]
    fn the_session_that_has_been_away_longest_makes_room_for_another_one() {
        let start = crate::clock::monotonic();
        let later = |seconds| start + Duration::from_secs(seconds);
        let mut registry = registry();
        registry.attach(request(1, "first", u32::MAX, Some(60)), start).unwrap();
        registry.attach(request(2, "second", u32::MAX, None), start).unwrap();
        detach(&mut registry, 2, later(1));
        detach(&mut registry, 1, later(2));
        assert!(registry.attach(request(3, "second", u32::MAX, None), start).unwrap().session_present);
        let attached = registry.attach(request(4, "third", u32::MAX, None), start).unwrap();
        assert!(!attached.session_present && attached.will.is_some(), "the first one's will");
        assert_eq!((registry.sessions.len(), registry.disconnected.len()), (2, 0));
        assert_eq!(registry.next_deadline(), None);
        assert_eq!(registry.attach(request(5, "fourth", 0, None), start).unwrap_err(), Reason::QuotaExceeded);
        detach(&mut registry, 3, later(3));
        assert!(!registry.attach(request(6, "first", 0, None), start).unwrap().session_present);
        detach(&mut registry, 6, later(4));
        assert_eq!((registry.sessions.len(), registry.disconnected.len()), (1, 0));
    }

    #[test]
    fn a_closed_registry_lets_nobody_in() {
        let start = crate::clock::monotonic();
        let mut registry = registry();
        let attached = registry.attach(request(1, "a", 10, None), start).unwrap();
        registry.close();
        assert!(attached.handle.close_reason().is_some());
        assert_eq!(
            registry.attach(request(2, "b", 10, None), start).unwrap_err(),
            Reason::ServerShuttingDown
        );
    }
}
