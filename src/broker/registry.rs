//! All that connections share: sessions by client id, live connections, subscriptions, retained messages, deadlines.

mod reauthorization;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};

use super::filter;
use super::packet::{RetainHandling, SubscriptionRequest, Will};
use super::publication::{Delivery, Publication};
use super::reason::Reason;
use super::retained::Retained;
use super::session::{Limits, Session};
use super::subscriptions::{Options, SessionId, Subscriptions};
use crate::broker::session_entry::{Link, SessionEntry, SessionState, Stage};
use crate::broker::shared_subscriptions::Shares;
use crate::protocol::ConnectionId;
use crate::protocol::message::{Message, Qos};
use crate::server::authorization::Permissions;
use crate::server::event::Event;
use crate::server::identity::Principal;
use crate::server::operations::statistics::{Client, Statistics};
use crate::server::settings::Settings;

/// A connection that asks for its seat.
#[derive(Debug)]
pub struct Arrival {
    /// Which one.
    pub connection: ConnectionId,
    /// Whose.
    pub client_id: Arc<str>,
    /// Who that has shown to be.
    pub principal: Principal,
    /// What the rules let it do; none: there are none for it.
    pub pass: Option<Arc<Permissions>>,
    /// Not to go on with an earlier session.
    pub clean_start: bool,
    /// The client's Receive Maximum.
    pub receive_maximum: u16,
    /// The client's will.
    pub will: Option<Will>,
    /// How long the session outlives the connection, in seconds.
    pub expiry_s: u32,
}

/// A connection that got its seat.
#[derive(Debug)]
pub struct Attached {
    /// The seat.
    pub seat: Arc<SessionEntry>,
    /// The connection.
    pub link: Arc<Link>,
    /// Whether an earlier session goes on.
    pub session_present: bool,
    /// Whether the rules may let it have something else than it had before.
    pub is_to_be_judged: bool,
    /// The will of the connection or session that had to go.
    pub will: Option<Message>,
}

/// What connections share. Lock order: this, then a seat's desk.
#[derive(Debug)]
pub struct Registry {
    limits: Limits,
    sessions_max: usize,
    subscriptions_max: usize,
    /// Of a session, as charged by [`filter::bytes`].
    filter_bytes_max: usize,
    seats: HashMap<Arc<str>, Arc<SessionEntry>>,
    links: HashMap<ConnectionId, (Arc<SessionEntry>, Arc<Link>)>,
    subscriptions: Subscriptions<SessionId, (Arc<SessionEntry>, Options)>,
    shares: Shares,
    retained: Retained,
    /// When a seat without a connection is due for its will or its end.
    deadlines: BTreeMap<(Instant, SessionId), Arc<SessionEntry>>,
    /// The seats without a connection, by the time since when.
    away: BTreeMap<(Instant, SessionId), Arc<SessionEntry>>,
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
            seats: HashMap::new(),
            links: HashMap::new(),
            subscriptions: Subscriptions::default(),
            shares: Shares::default(),
            retained: Retained::new(settings.retained_messages_max, settings.retained_bytes_max),
            deadlines: BTreeMap::new(),
            away: BTreeMap::new(),
            next_session: 0,
            is_closed: false,
            events: Vec::new(),
        }
    }

    /// Gives a connection its seat, and takes it from an earlier one (MQTT 5, 3.1.4).
    ///
    /// A session is for whoever began it: somebody else gets none of it, and does not end a connection of somebody who
    /// has said who he is.
    ///
    /// # Errors
    ///
    /// The reason to refuse the connection with.
    pub fn attach(&mut self, arrival: Arrival) -> Result<Attached, Reason> {
        if self.is_closed {
            return Err(Reason::ServerShuttingDown);
        }
        let (kept, mut will) = self.make_way(&arrival)?;
        let session_present = kept.is_some();
        let is_to_be_judged = kept.as_ref().is_some_and(|seat| {
            let desk = seat.desk();
            desk.pass.is_some() != arrival.pass.is_some() || desk.principal != arrival.principal
        });
        let seat = match kept {
            Some(seat) => seat,
            None => {
                if self.seats.len() >= self.sessions_max {
                    // The client had no session before, and so there is no other will yet.
                    will = self.end_longest_away()?;
                }
                self.new_seat(&arrival.client_id)
            }
        };
        let link = Arc::new(Link::new(arrival.connection));
        self.links.insert(arrival.connection, (Arc::clone(&seat), Arc::clone(&link)));
        seat.desk().sit_down(Arc::clone(&link), arrival);
        Ok(Attached { seat, link, session_present, is_to_be_judged, will })
    }

    /// Ends what the client's earlier connection left: its seat, if that can be taken over, and a will that is due.
    fn make_way(
        &mut self,
        arrival: &Arrival,
    ) -> Result<(Option<Arc<SessionEntry>>, Option<Message>), Reason> {
        let Some(seat) = self.seats.get(&arrival.client_id).map(Arc::clone) else {
            return Ok((None, None));
        };
        let mut desk = seat.desk();
        let is_owner = desk.principal.is_same_as(&arrival.principal);
        if !is_owner && desk.principal.is_somebody() && desk.is_connected() {
            return Err(Reason::NotAuthorized);
        }
        let last = desk.link.take();
        if let Some(last) = &last {
            last.end(Reason::SessionTakenOver, "another connection uses this client id");
            self.links.remove(&last.id);
        }
        self.forget_absence(&seat, &desk);
        // A session that was not to outlive its connection ends with it, also when that was just cut.
        let goes_on = is_owner && !arrival.clean_start && (last.is_none() || desk.expiry_s > 0);
        let will = desk.will.take().filter(|will| !goes_on || (last.is_some() && will.delay_s == 0));
        let will = will.and_then(|will| self.judge_will(&seat, &desk, will));
        drop(desk);
        if !goes_on {
            self.remove_seat(&seat);
        }
        Ok((goes_on.then_some(seat), will))
    }

    /// Ends the session that has been without a connection the longest; the message to publish is its will.
    fn end_longest_away(&mut self) -> Result<Option<Message>, Reason> {
        let (_, seat) = self.away.pop_first().ok_or(Reason::QuotaExceeded)?;
        let mut desk = seat.desk();
        let will = desk.will.take().and_then(|will| self.judge_will(&seat, &desk, will));
        drop(desk);
        self.remove_seat(&seat);
        Ok(will)
    }

    /// A connection is over; the message to publish is its will, if that is due now.
    ///
    /// Does nothing if the connection had lost its seat before.
    pub fn detach(
        &mut self,
        connection: ConnectionId,
        keeps_will: bool,
        expiry_s: Option<u32>,
        now: Instant,
    ) -> Option<Message> {
        let (seat, _) = self.links.remove(&connection)?;
        let mut desk = seat.desk();
        desk.link = None;
        desk.expiry_s = expiry_s.unwrap_or(desk.expiry_s);
        if !keeps_will {
            desk.will = None;
        }
        let expiry_s = desk.expiry_s;
        let will = desk.will.take_if(|will| expiry_s == 0 || will.delay_s == 0);
        let will = will.and_then(|will| self.judge_will(&seat, &desk, will));
        if expiry_s == 0 {
            drop(desk);
            self.remove_seat(&seat);
            return will;
        }
        let after = |seconds: u32| now.checked_add(Duration::from_secs(u64::from(seconds)));
        desk.away_since = Some(now);
        self.away.insert((now, seat.id), Arc::clone(&seat));
        desk.ends_at = after(expiry_s).filter(|_| expiry_s != u32::MAX);
        desk.will_at = desk.will.as_ref().and_then(|will| after(will.delay_s.min(expiry_s)));
        for at in [desk.will_at, desk.ends_at].into_iter().flatten() {
            self.deadlines.insert((at, seat.id), Arc::clone(&seat));
        }
        // What has been sent waits for the client to come back, the rest need not if others have room for it.
        let Self { shares, events, .. } = self;
        desk.session.drop_queued(|Delivery { publication, group, .. }| {
            let group = group.and_then(|id| Some((id, shares.group(id)?)));
            group.is_some_and(|(id, group)| group.hand_over(id, publication, seat.id, events))
        });
        will
    }

    /// Gives the others in its groups what a session does not get.
    fn share(&mut self, deliveries: Vec<Delivery>, instead_of: &SessionEntry) {
        for Delivery { publication, group: id, .. } in deliveries {
            let group = id.and_then(|id| Some((id, self.shares.group(id)?)));
            if let Some((id, group)) = group {
                group.offer(id, &publication, Some(instead_of.id), &mut self.events);
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
            let seat = entry.remove();
            let mut desk = seat.desk();
            let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            if is_due(desk.will_at) {
                desk.will_at = None;
                wills.extend(desk.will.take().and_then(|will| self.judge_will(&seat, &desk, will)));
            }
            if is_due(desk.ends_at) {
                desk.ends_at = None;
                drop(desk);
                self.remove_seat(&seat);
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
        let Some((seat, link)) = self.links.get(&connection).cloned() else {
            return requests.iter().map(|_| Err(Reason::UnspecifiedError)).collect();
        };
        // Each walk through the retained messages holds everybody up, so none is made in vain.
        let (mut given, mut has_room) = (HashSet::new(), true);
        let subscribe = |SubscriptionRequest { filter, options, retain_handling }| {
            let wants_retained = self.subscribe_one(&seat, &filter, options, retain_handling)?;
            if wants_retained && has_room && link.ending().is_none() && !given.contains(&filter) {
                has_room = self.give_retained(&seat, &filter, options, now, events);
                given.insert(filter);
            }
            Ok(options.qos)
        };
        requests.into_iter().map(subscribe).collect()
    }

    /// Adds one subscription; says whether it brings the retained messages.
    fn subscribe_one(
        &mut self,
        seat: &Arc<SessionEntry>,
        filter: &str,
        options: Options,
        retain_handling: RetainHandling,
    ) -> Result<bool, Reason> {
        let is_shared = filter::is_shared(filter);
        let is_valid = if is_shared { filter::shared(filter).is_some() } else { filter::is_valid(filter) };
        if !is_valid {
            return Err(Reason::TopicFilterInvalid);
        }
        {
            let mut desk = seat.desk();
            if !desk.filters.contains_key(filter) {
                let bytes = desk.filter_bytes.saturating_add(filter::bytes(filter));
                if desk.filters.len() >= self.subscriptions_max || bytes > self.filter_bytes_max {
                    return Err(Reason::QuotaExceeded);
                }
                desk.filter_bytes = bytes;
            }
            desk.filters.insert(filter.to_owned(), options);
        }
        let is_new = self.insert_subscription(seat, filter, options);
        Ok(match retain_handling {
            // None of a group would know which it is (MQTT 5, 4.8.2).
            _ if is_shared => false,
            RetainHandling::Always => true,
            RetainHandling::IfNew => is_new,
            RetainHandling::Never => false,
        })
    }

    /// Has a subscription bring messages; true if it has not done so before.
    fn insert_subscription(&mut self, seat: &Arc<SessionEntry>, filter: &str, options: Options) -> bool {
        if filter::is_shared(filter) {
            return self.shares.insert(filter, Arc::clone(seat), options);
        }
        self.subscriptions.insert(filter, seat.id, (Arc::clone(seat), options))
    }

    /// Gives a session the retained messages that a filter matches; false if there was no room for one.
    fn give_retained(
        &self,
        seat: &SessionEntry,
        filter: &str,
        options: Options,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> bool {
        self.retained.matching(filter, now).all(|publication| {
            let publication = Arc::clone(publication);
            let qos = publication.message.qos.min(options.qos);
            let subscription_ids = options.identifier.into_iter().collect();
            seat.offer(Delivery { publication, qos, retain: true, subscription_ids, group: None }, events)
        })
    }

    /// Ends subscriptions; says of each whether it existed.
    pub fn unsubscribe(&mut self, connection: ConnectionId, filters: &[String]) -> Vec<Reason> {
        let Some((seat, _)) = self.links.get(&connection).cloned() else {
            return vec![Reason::NoSubscriptionExisted; filters.len()];
        };
        let mut desk = seat.desk();
        let mut unsubscribe = |filter: &String| {
            let existed = desk.filters.remove(filter).is_some();
            if existed {
                desk.filter_bytes = desk.filter_bytes.saturating_sub(filter::bytes(filter));
            }
            self.remove_subscription(filter, seat.id);
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
        events: &mut Vec<Event>,
    ) -> usize {
        let session_of = |connection| self.links.get(&connection).map(|(seat, _)| seat);
        let from = from.and_then(session_of);
        let addressee = to.map(|(connection, client_id)| (session_of(connection), client_id));
        let (to, addressee) = match addressee {
            Some((Some(seat), _)) => (Some(seat), Some(seat.id)),
            Some((None, client_id)) => (None, self.seats.get(client_id).map(|seat| seat.id)),
            None => (None, None),
        };
        let message = &publication.message;
        let mut count = usize::from(to.is_some());
        if let Some(seat) = to {
            let (publication, subscription_ids) = (Arc::clone(publication), Vec::new());
            let delivery =
                Delivery { publication, qos: message.qos, retain: false, subscription_ids, group: None };
            seat.offer(delivery, events);
        }
        // Nearly every message matches one subscription, and then there is nothing to be collected.
        let mut first: Option<(SessionId, &Arc<SessionEntry>, Options)> = None;
        let mut matches = Vec::new();
        self.subscriptions.for_each_match(&message.topic, |session, (seat, options)| {
            let is_own = options.no_local && from.is_some_and(|from| from.id == session);
            if !is_own && addressee != Some(session) {
                match first {
                    None => first = Some((session, seat, *options)),
                    Some(_) => matches.push((session, seat, *options)),
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
            let Some((_, seat, _)) = same.first() else {
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
            seat.offer(delivery, events);
        }
        count.saturating_add(self.shares.route(publication, addressee, events))
    }

    /// Whether a message on this topic would find anybody.
    #[must_use]
    pub fn has_subscribers(&self, topic: &str) -> bool {
        self.subscriptions.has_match(topic) || self.shares.has_match(topic)
    }

    /// A live connection.
    #[must_use]
    pub fn link(&self, connection: ConnectionId) -> Option<&Arc<Link>> {
        self.links.get(&connection).map(|(_, link)| link)
    }

    /// Lets no other connection in, and takes no other message from those that there are.
    pub fn drain(&mut self) {
        self.is_closed = true;
        for (_, link) in self.links.values() {
            link.advance(Stage::Draining);
        }
    }

    /// Whether every connection has handled what it had read.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let is_drained = |link: &Arc<Link>| link.has_come_to(Stage::Drained) || link.ending().is_some();
        self.links.values().all(|(_, link)| is_drained(link))
    }

    /// Ends connections, each once it has been sent what there is for it.
    pub fn finish(&self) {
        for (_, link) in self.links.values() {
            link.advance(Stage::Finishing);
        }
    }

    /// How much there is.
    #[must_use]
    pub fn census(&self) -> Statistics {
        let (retained, retained_bytes) = self.retained.size();
        let mut census = Statistics {
            connected: self.links.len(),
            sessions: self.seats.len(),
            retained,
            retained_bytes,
            ..Statistics::default()
        };
        for seat in self.seats.values() {
            let desk = seat.desk();
            let (messages, bytes) = desk.session.size();
            census.subscriptions = census.subscriptions.saturating_add(desk.filters.len());
            census.queued = census.queued.saturating_add(messages);
            census.queued_bytes = census.queued_bytes.saturating_add(bytes);
        }
        census
    }

    /// How many clients are connected.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.links.len()
    }

    /// Some clients, in no order that means anything.
    #[must_use]
    pub fn clients(&self, clients_max: usize) -> Vec<Client> {
        let client = |seat: &Arc<SessionEntry>| {
            let desk = seat.desk();
            Client {
                client_id: Arc::clone(&seat.client_id),
                is_connected: desk.link.is_some(),
                subscriptions: desk.filters.len(),
                queued: desk.session.size().0,
            }
        };
        self.seats.values().take(clients_max).map(client).collect()
    }

    /// Ends all connections and lets no other one in.
    pub fn close(&mut self) {
        self.is_closed = true;
        for (_, link) in self.links.values() {
            link.end(Reason::ServerShuttingDown, "the server stops");
        }
    }

    fn new_seat(&mut self, client_id: &Arc<str>) -> Arc<SessionEntry> {
        let id = SessionId(self.next_session);
        self.next_session = self.next_session.saturating_add(1);
        let seat = Arc::new(SessionEntry::new(id, Arc::clone(client_id), Session::new(self.limits)));
        self.seats.insert(Arc::clone(client_id), Arc::clone(&seat));
        seat
    }

    fn remove_seat(&mut self, seat: &Arc<SessionEntry>) {
        let (filters, shared) = {
            let mut desk = seat.desk();
            self.forget_absence(seat, &desk);
            (std::mem::take(&mut desk.filters), desk.session.end())
        };
        for filter in filters.keys() {
            self.remove_subscription(filter, seat.id);
        }
        self.share(shared, seat);
        self.seats.remove(&seat.client_id);
    }

    fn remove_subscription(&mut self, filter: &str, session: SessionId) -> bool {
        if filter::is_shared(filter) {
            self.shares.remove(filter, session)
        } else {
            self.subscriptions.remove(filter, session)
        }
    }

    fn forget_absence(&mut self, seat: &SessionEntry, desk: &SessionState) {
        for at in [desk.will_at, desk.ends_at].into_iter().flatten() {
            self.deadlines.remove(&(at, seat.id));
        }
        if let Some(since) = desk.away_since {
            self.away.remove(&(since, seat.id));
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn registry() -> Registry {
        Registry::new(&Settings { sessions_max: 2, ..Settings::default() })
    }

    pub fn arrival(connection: u64, client_id: &str, expiry_s: u32, will_delay_s: Option<u32>) -> Arrival {
        let message = Message { topic: "will".to_owned(), ..Message::default() };
        Arrival {
            connection: ConnectionId(connection),
            client_id: client_id.into(),
            principal: Principal::default(),
            pass: None,
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
        registry.attach(arrival(1, "a", 10, None)).unwrap();
        assert_eq!(registry.next_deadline(), None);
        detach(&mut registry, 1, start);
        assert_eq!(registry.next_deadline(), Some(start + Duration::from_secs(10)));
        registry.handle_deadlines(start + Duration::from_secs(9));
        assert_eq!(registry.seats.len(), 1);
        registry.handle_deadlines(start + Duration::from_secs(10));
        assert_eq!((registry.seats.len(), registry.next_deadline()), (0, None));
    }

    #[test]
    fn a_client_that_comes_back_stops_the_clocks() {
        let start = crate::clock::monotonic();
        let mut registry = registry();
        registry.attach(arrival(1, "a", 10, Some(5))).unwrap();
        assert_eq!(detach(&mut registry, 1, start), None);
        let attached = registry.attach(arrival(2, "a", 10, None)).unwrap();
        assert!(attached.session_present && attached.will.is_none());
        assert_eq!(registry.next_deadline(), None);
        assert!(registry.handle_deadlines(start + Duration::from_secs(60)).is_empty());
        assert_eq!(registry.seats.len(), 1);
    }

    #[test]
    fn a_delayed_will_is_due_at_its_delay_or_at_the_sessions_end() {
        for (expiry_s, delay_s, due_s) in [(10, 5, 5), (5, 10, 5), (u32::MAX, 7, 7)] {
            let start = crate::clock::monotonic();
            let mut registry = registry();
            registry.attach(arrival(1, "a", expiry_s, Some(delay_s))).unwrap();
            assert_eq!(detach(&mut registry, 1, start), None);
            assert!(registry.handle_deadlines(start + Duration::from_secs(due_s - 1)).is_empty());
            assert_eq!(registry.handle_deadlines(start + Duration::from_secs(due_s)).len(), 1);
        }
    }

    #[test]
    fn a_will_is_due_at_once_when_the_session_ends_with_the_connection() {
        let start = crate::clock::monotonic();
        let mut registry = registry();
        registry.attach(arrival(1, "a", 0, Some(60))).unwrap();
        assert!(detach(&mut registry, 1, start).is_some());
        assert!(registry.seats.is_empty());
    }

    #[test]
    fn a_session_not_to_outlive_its_connection_is_not_taken_over() {
        let mut registry = registry();
        registry.attach(arrival(1, "a", 0, Some(60))).unwrap();
        let attached = registry.attach(arrival(2, "a", 0, None)).unwrap();
        assert!(!attached.session_present && attached.will.is_some());
    }

    #[test]
    fn a_connection_that_lost_its_seat_changes_nothing_any_more() {
        let start = crate::clock::monotonic();
        let mut registry = registry();
        registry.attach(arrival(1, "a", 10, None)).unwrap();
        registry.attach(Arrival { clean_start: true, ..arrival(2, "a", 10, None) }).unwrap();
        assert_eq!(detach(&mut registry, 1, start), None);
        let options =
            Options { qos: Qos::AtLeastOnce, no_local: false, retain_as_published: false, identifier: None };
        let request =
            SubscriptionRequest { filter: "#".to_owned(), options, retain_handling: RetainHandling::Always };
        let results = registry.subscribe(ConnectionId(1), vec![request], start, &mut Vec::new());
        assert_eq!(results, [Err(Reason::UnspecifiedError)]);
        let publication = Arc::new(Publication::new(Message::default(), start));
        assert_eq!(registry.route(None, None, &publication, &mut Vec::new()), 0);
        assert!(registry.link(ConnectionId(2)).is_some_and(|link| link.ending().is_none()));
    }

    #[test]
    fn no_retained_message_is_looked_for_once_there_is_no_room_or_the_connection_ends() {
        let start = crate::clock::monotonic();
        let mut registry = Registry::new(&Settings { session_queue_bytes_max: 1_000, ..Settings::default() });
        let link = registry.attach(arrival(1, "a", 0, None)).unwrap().link;
        for (topic, bytes) in [("r/1", 1), ("r/2", 1_000), ("r/3", 1)] {
            let payload = vec![b'x'; bytes].into();
            let message = Message { topic: topic.to_owned(), payload, ..Message::default() };
            registry.retain(&Arc::new(Publication::new(message, start)), start, &mut Vec::new());
        }
        let queued = |registry: &mut Registry, filters: &[&str]| {
            let options = Options {
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
            let seat = Arc::clone(&registry.links[&ConnectionId(1)].0);
            std::iter::from_fn(|| seat.poll_outgoing(ConnectionId(1), start, false)).count()
        };
        assert_eq!(queued(&mut registry, &["r/1", "r/1"]), 1);
        assert_eq!(queued(&mut registry, &["r/#", "r/3"]), 1);
        link.end(Reason::AdministrativeAction, "go");
        assert_eq!(queued(&mut registry, &["r/1"]), 0);
    }

    #[test]
    fn a_push_to_a_connection_that_was_taken_over_is_not_given_to_its_successor() {
        let start = crate::clock::monotonic();
        for clean_start in [false, true] {
            let mut registry = registry();
            registry.attach(arrival(1, "a", 10, None)).unwrap();
            registry.attach(Arrival { clean_start, ..arrival(2, "a", 10, None) }).unwrap();
            registry.attach(arrival(3, "b", 10, None)).unwrap();
            let options = Options {
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
                registry.route(None, Some((ConnectionId(to), "a")), &publication, &mut Vec::new())
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
        let mut registry = registry();
        registry.attach(arrival(1, "a", 10, None)).unwrap();
        registry.attach(arrival(2, "b", 10, None)).unwrap();
        assert_eq!(registry.attach(arrival(3, "c", 10, None)).unwrap_err(), Reason::QuotaExceeded);
        registry.attach(arrival(4, "a", 10, None)).unwrap();
    }

    #[test]
    fn the_session_that_has_been_away_longest_makes_room_for_another_one() {
        let start = crate::clock::monotonic();
        let later = |seconds| start + Duration::from_secs(seconds);
        let mut registry = registry();
        registry.attach(arrival(1, "first", u32::MAX, Some(60))).unwrap();
        registry.attach(arrival(2, "second", u32::MAX, None)).unwrap();
        detach(&mut registry, 2, later(1));
        detach(&mut registry, 1, later(2));
        assert!(registry.attach(arrival(3, "second", u32::MAX, None)).unwrap().session_present);
        let attached = registry.attach(arrival(4, "third", u32::MAX, None)).unwrap();
        assert!(!attached.session_present && attached.will.is_some(), "the first one's will");
        assert_eq!((registry.seats.len(), registry.away.len()), (2, 0));
        assert_eq!(registry.next_deadline(), None);
        assert_eq!(registry.attach(arrival(5, "fourth", 0, None)).unwrap_err(), Reason::QuotaExceeded);
        detach(&mut registry, 3, later(3));
        assert!(!registry.attach(arrival(6, "first", 0, None)).unwrap().session_present);
        detach(&mut registry, 6, later(4));
        assert_eq!((registry.seats.len(), registry.away.len()), (1, 0));
    }

    #[test]
    fn a_closed_registry_lets_nobody_in() {
        let mut registry = registry();
        let attached = registry.attach(arrival(1, "a", 10, None)).unwrap();
        registry.close();
        assert!(attached.link.ending().is_some());
        assert_eq!(registry.attach(arrival(2, "b", 10, None)).unwrap_err(), Reason::ServerShuttingDown);
    }
}
