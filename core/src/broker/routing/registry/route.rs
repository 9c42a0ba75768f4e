//! Routing of messages to their subscribers, in bounded steps.

use std::sync::Arc;
use std::time::Instant;

use super::{Registry, Subscription};
use crate::broker::event::Event;
use crate::broker::publication::Publication;
use crate::broker::routing::route::{Found, FoundSessions, Route, SharedRoute, Stage};
use crate::broker::routing::subscriptions::Search;
use crate::broker::session::entry::{SessionEntry, SessionId};
use crate::mqtt::packet::SubscriptionOptions;
use crate::protocol::ConnectionId;

/// The most subscriptions and sessions that one [`Registry::route_some`] looks at, because other connections wait
/// meanwhile: some tens of microseconds. Nearly every message needs one step.
pub(super) const ROUTE_STEPS_MAX: usize = 512;

impl Registry {
    /// Begins to route a message to its subscribers, and to `to` whether or not it subscribes.
    ///
    /// The subscriptions of `to` decide the QoS and the identifiers of its copy, except shared ones: a copy of their group
    /// goes to another member. Without any, it has the QoS of the message.
    ///
    /// If the connection of `to` is closed, its client does not get the message either: messages for the client's next
    /// connection are pushed to that one.
    #[must_use]
    pub fn begin_route(
        &self,
        from: Option<ConnectionId>,
        to: Option<(ConnectionId, &str)>,
        publication: Arc<Publication>,
    ) -> Route {
        let session_of = |connection| self.connections.get(&connection).map(|(entry, _)| entry.id);
        let open = to.and_then(|(connection, _)| Some((connection, session_of(connection)?)));
        let closed = || to.and_then(|(_, client_id)| self.sessions.get(client_id)).map(|entry| entry.id);
        Route {
            from: from.and_then(session_of),
            to: open.map(|(connection, _)| connection),
            addressee: open.map(|(_, session)| session).or_else(closed),
            sequence: u64::MAX,
            publication,
            stage: Stage::Begin,
            count: 0,
            charge: None,
        }
    }

    /// Begins to route the message that was retained last. Clients that subscribe from now on find it among the retained
    /// ones.
    #[must_use]
    pub fn begin_retained_route(&self, from: Option<ConnectionId>, publication: Arc<Publication>) -> Route {
        Route { sequence: self.retained.sequence(), ..self.begin_route(from, None, publication) }
    }

    /// Does the next step; returns whether there are more.
    pub fn route_some(&self, route: &mut Route, now: Instant, events: &mut Vec<Event>) -> bool {
        let mut steps = ROUTE_STEPS_MAX;
        while steps > 0 && !route.is_complete() {
            route.stage = match std::mem::replace(&mut route.stage, Stage::Complete) {
                Stage::Begin => self.route_at_once(route, &mut steps, now, events),
                Stage::Find { search, first, found, revocations } => {
                    self.find_sessions(route, search, (first, found), revocations, &mut steps)
                }
                Stage::Deliver { found, revocations } => {
                    steps = steps.saturating_sub(1);
                    self.deliver_next(route, found, revocations, now, events)
                }
                Stage::Shared(mut search) => {
                    let except = route.addressee;
                    route.count = route.count.saturating_add(self.shared_subscriptions.route_some(
                        &route.publication,
                        except,
                        (&mut search, &mut steps),
                        now,
                        events,
                    ));
                    if search.is_complete() { Stage::Complete } else { Stage::Shared(search) }
                }
                Stage::Complete => Stage::Complete,
            };
        }
        !route.is_complete()
    }

    /// Finds the subscriptions of a message and delivers it, if they are found in one step.
    fn route_at_once(
        &self,
        route: &mut Route,
        steps: &mut usize,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Stage {
        // Nearly every message matches one subscription: that one is kept without an allocation.
        let mut first: Option<(SessionId, &Arc<SessionEntry>, SubscriptionOptions)> = None;
        let mut matches = Vec::new();
        let mut search = Search::default();
        self.subscriptions.search(
            &route.publication.message.topic,
            &mut search,
            steps,
            |session, subscription| {
                if route.is_for(session, subscription.options.no_local, subscription.since) {
                    let Subscription { entry, options, .. } = subscription;
                    match first {
                        None => first = Some((session, entry, *options)),
                        Some(_) => matches.push((session, entry, *options)),
                    }
                }
            },
        );
        if !search.is_complete() {
            *steps = 0;
            return self.find(SessionId(0));
        }
        let matches = if matches.is_empty() {
            first.as_slice()
        } else {
            matches.splice(..0, first);
            matches.sort_by_key(|(session, ..)| *session);
            &matches
        };
        // A session with several matching subscriptions gets the message once, at the highest of their QoS and with all
        // of their identifiers (MQTT 5, 3.3.4).
        let mut is_addressed = false;
        for same in matches.chunk_by(|(one, ..), (other, ..)| one == other) {
            let Some((session, entry, _)) = same.first() else { continue };
            is_addressed |= route.addressee == Some(*session);
            let options = || same.iter().map(|(_, _, options)| options);
            let qos = options().map(|options| options.qos).max().unwrap_or_default();
            let retain = options().any(|options| options.retain_as_published);
            let subscription_ids = options().filter_map(|options| options.identifier).collect();
            route.give(entry, (qos, retain), subscription_ids, now, events);
        }
        self.address(route, is_addressed, now, events)
    }

    /// Begins to find the sessions from `first` on.
    fn find(&self, first: SessionId) -> Stage {
        let (search, found) = (Search::default(), FoundSessions::default());
        Stage::Find { search, first, found, revocations: self.revocations }
    }

    fn find_sessions(
        &self,
        route: &Route,
        mut search: Search<SessionId>,
        (first, mut found): (SessionId, FoundSessions),
        revocations: u64,
        steps: &mut usize,
    ) -> Stage {
        self.subscriptions.search(
            &route.publication.message.topic,
            &mut search,
            steps,
            |session, subscription| {
                if session < first
                    || !found.takes(session)
                    || !route.is_for(session, subscription.options.no_local, subscription.since)
                {
                    return;
                }
                found.add(session, &subscription.entry, subscription.options);
            },
        );
        route.limit(&mut found);
        match search.is_complete() {
            true => Stage::Deliver { found, revocations },
            false => Stage::Find { search, first, found, revocations },
        }
    }

    fn deliver_next(
        &self,
        route: &mut Route,
        mut found: FoundSessions,
        revocations: u64,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Stage {
        let Some((session, of_session)) = found.pop_first() else {
            if let Some(rest) = found.rest {
                return self.find(rest);
            }
            let is_addressed = route.to.is_none();
            return self.address(route, is_addressed, now, events);
        };
        if revocations != self.revocations {
            // A client has lost its permission for a subscription since.
            return self.find(session);
        }
        let Found { entry, qos, retain, subscription_ids } = of_session;
        route.give(&entry, (qos, retain), subscription_ids, now, events);
        if route.addressee == Some(session) {
            route.to = None;
        }
        Stage::Deliver { found, revocations }
    }

    /// Gives the message to the connection that gets it in any case, unless it `is_addressed` already.
    fn address(&self, route: &mut Route, is_addressed: bool, now: Instant, events: &mut Vec<Event>) -> Stage {
        let to = route.to.take().filter(|_| !is_addressed);
        if let Some((entry, _)) = to.and_then(|to| self.connections.get(&to)) {
            route.give(entry, (route.publication.message.qos, false), Vec::new(), now, events);
        }
        if self.shared_subscriptions.is_empty() { Stage::Complete } else { Stage::Shared(Search::default()) }
    }

    /// Whether a message of a topic needs more than one step to be routed.
    #[must_use]
    pub fn has_many_subscriptions(&self, topic: &str) -> bool {
        let (mut search, mut steps) = (Search::default(), ROUTE_STEPS_MAX);
        self.subscriptions.search(topic, &mut search, &mut steps, |_, _| {});
        !search.is_complete()
    }

    /// Returns the retained message that is still being routed to the subscribers of a topic.
    #[must_use]
    pub fn unfinished_route(&self, topic: &str) -> Option<&SharedRoute> {
        self.unfinished_routes.get(topic)
    }

    /// Notes that a retained message needs more steps.
    pub fn add_unfinished_route(&mut self, topic: &str, route: &SharedRoute) {
        self.unfinished_routes.insert(topic.into(), Arc::clone(route));
    }

    /// Notes that a retained message has been routed.
    pub fn remove_unfinished_route(&mut self, topic: &str, route: &SharedRoute) {
        if self.unfinished_routes.get(topic).is_some_and(|unfinished| Arc::ptr_eq(unfinished, route)) {
            self.unfinished_routes.remove(topic);
        }
    }

    /// Routes a message in as many steps as it needs; returns the number of sessions that get it.
    #[cfg(test)]
    pub fn route(
        &self,
        from: Option<ConnectionId>,
        to: Option<(ConnectionId, &str)>,
        publication: &Arc<Publication>,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> usize {
        let mut route = self.begin_route(from, to, Arc::clone(publication));
        while self.route_some(&mut route, now, events) {}
        route.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::memory::Account;
    use crate::broker::publication::Delivery;
    use crate::broker::routing::registry::tests::{request, subscribe};
    use crate::broker::session::entry::SessionRequest;
    use crate::broker::session::state_machine::Outgoing;
    use crate::broker::settings::Settings;
    use crate::mqtt::packet::{RetainHandling, SubscriptionRequest};
    use crate::protocol::message::{Message, Qos};

    fn subscription(filter: String, qos: Qos, identifier: u32) -> SubscriptionRequest {
        let options = SubscriptionOptions {
            qos,
            no_local: false,
            retain_as_published: false,
            identifier: Some(identifier),
        };
        SubscriptionRequest { filter, options, retain_handling: RetainHandling::Always }
    }

    /// Returns a registry with sessions that have all filters that match one topic.
    fn overlapping(sessions: u64, levels: u32, now: Instant) -> (Registry, String, u32) {
        let mut registry = Registry::new(&Settings::default());
        let level = |index: u32, is_any: bool| if is_any { "+".to_owned() } else { index.to_string() };
        let topic: Vec<_> = (0..levels).map(|index| level(index, false)).collect();
        for session in 0..sessions {
            registry.attach(request(session, &session.to_string(), 60, None), now).unwrap();
            let filters = (0..1_u32 << levels).map(|bits| {
                let filter: Vec<_> = (0..levels).map(|index| level(index, bits >> index & 1 == 1)).collect();
                let qos = if bits == 5 { Qos::AtLeastOnce } else { Qos::AtMostOnce };
                subscription(filter.join("/"), qos, bits + 1)
            });
            subscribe(&mut registry, session, filters.collect(), now);
        }
        (registry, topic.join("/"), 1 << levels)
    }

    fn publication(topic: &str, retain: bool, now: Instant) -> Arc<Publication> {
        let (topic, payload) = (topic.to_owned().into(), b"1".to_vec().into());
        let message = Message { topic, payload, qos: Qos::ExactlyOnce, retain, ..Message::default() };
        Arc::new(Publication::new(message, now))
    }

    /// Returns the deliveries that wait for a connection.
    fn received(registry: &Registry, connection: u64, now: Instant) -> Vec<Delivery> {
        let entry = &registry.connections[&ConnectionId(connection)].0;
        let next = || entry.poll_outgoing(ConnectionId(connection), now, false);
        let delivery = |(outgoing, _)| match outgoing {
            Outgoing::Publish { delivery, .. } => delivery,
            Outgoing::Release(_) => panic!("a PUBREL"),
        };
        std::iter::from_fn(next).map(delivery).collect()
    }

    #[test]
    fn a_retained_publish_over_many_overlapping_filters_is_handled_in_bounded_steps() {
        const SESSIONS: u64 = 40;
        let now = crate::clock::monotonic();
        let (mut registry, topic, filters) = overlapping(SESSIONS, 6, now);
        for retain in [false, true] {
            let publication = publication(&topic, retain, now);
            if retain {
                registry.retain(&publication, &Account::test("a", 1 << 30), now).unwrap();
            }
            let mut route = registry.begin_route(None, None, publication);
            let mut steps = 1;
            while registry.route_some(&mut route, now, &mut Vec::new()) {
                steps += 1;
            }
            let all = SESSIONS as usize * filters as usize;
            assert!(all > 4 * ROUTE_STEPS_MAX && steps > all / ROUTE_STEPS_MAX, "{steps} steps of {all}");
            assert_eq!(route.count(), SESSIONS as usize);
            for session in 0..SESSIONS {
                let received = received(&registry, session, now);
                assert_eq!(received.len(), 1, "once for all of its subscriptions");
                assert_eq!(received[0].qos, Qos::AtLeastOnce, "at the highest QoS");
                let mut identifiers = received[0].subscription_ids.clone();
                identifiers.sort_unstable();
                assert_eq!(identifiers, (1..=filters).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_client_that_subscribes_while_a_retained_message_is_routed_gets_it_once() {
        const SESSIONS: u64 = 40;
        let now = crate::clock::monotonic();
        let (mut registry, topic, _) = overlapping(SESSIONS, 6, now);
        registry.attach(request(SESSIONS, "late", 60, None), now).unwrap();
        let publication = publication(&topic, true, now);
        registry.retain(&publication, &Account::test("a", 1 << 30), now).unwrap();
        let mut route = registry.begin_retained_route(None, publication);
        assert!(registry.route_some(&mut route, now, &mut Vec::new()));
        subscribe(&mut registry, SESSIONS, vec![subscription("#".to_owned(), Qos::AtLeastOnce, 1)], now);
        while registry.route_some(&mut route, now, &mut Vec::new()) {}
        let received = received(&registry, SESSIONS, now);
        assert_eq!(received.iter().map(|delivery| delivery.retain).collect::<Vec<_>>(), [true]);
    }

    #[test]
    fn a_client_that_replaces_its_subscription_while_a_retained_message_is_routed_gets_it_once() {
        const SESSIONS: u64 = 600;
        let now = crate::clock::monotonic();
        let (mut registry, topic, _) = overlapping(SESSIONS, 1, now);
        let publication = publication(&topic, true, now);
        registry.retain(&publication, &Account::test("a", 1 << 30), now).unwrap();
        let mut route = registry.begin_retained_route(None, publication);
        assert!(registry.route_some(&mut route, now, &mut Vec::new()));
        let kinds = [RetainHandling::Never, RetainHandling::IfNew, RetainHandling::Always];
        let replacing = || (SESSIONS - kinds.len() as u64..).zip(kinds);
        for (session, retain_handling) in replacing() {
            let filters = ["+".to_owned(), topic.clone()];
            let replaced = filters.map(|filter| SubscriptionRequest {
                retain_handling,
                ..subscription(filter, Qos::AtLeastOnce, 1)
            });
            subscribe(&mut registry, session, replaced.into(), now);
        }
        while registry.route_some(&mut route, now, &mut Vec::new()) {}
        for (session, retain_handling) in replacing() {
            let received = received(&registry, session, now).len();
            // The retained message is sent for each filter.
            let expected = if retain_handling == RetainHandling::Always { 2 } else { 1 };
            assert_eq!(received, expected, "{retain_handling:?}");
        }
    }

    #[test]
    fn a_message_in_steps_reaches_its_addressee_once_and_not_a_subscriber_that_lost_its_permission() {
        const SESSIONS: u64 = 600;
        let now = crate::clock::monotonic();
        let (mut registry, topic, _) = overlapping(SESSIONS, 3, now);
        registry.attach(request(SESSIONS, "addressee", 60, None), now).unwrap();
        for to in [(ConnectionId(SESSIONS), "addressee"), (ConnectionId(2), "2")] {
            let mut route = registry.begin_route(None, Some(to), publication(&topic, false, now));
            let mut is_revoked = false;
            while registry.route_some(&mut route, now, &mut Vec::new()) {
                // Some sessions have got it by then.
                if !is_revoked && matches!(route.stage, Stage::Deliver { .. }) {
                    is_revoked = true;
                    let (entry, _) = registry.connections[&ConnectionId(SESSIONS - 1)].clone();
                    assert!(route.count() > 0);
                    entry.lock().permissions = Some(Arc::new(Denied));
                    registry.reauthorize(&entry, now, |_, _| false);
                }
            }
            for session in 0..=SESSIONS {
                let count = received(&registry, session, now).len();
                let is_addressee = to.0 == ConnectionId(SESSIONS);
                let is_last = session == SESSIONS - 1;
                let expected = usize::from(if session == SESSIONS { is_addressee } else { !is_last });
                assert_eq!(count, expected, "session {session}");
            }
            assert!(is_revoked);
        }
    }

    /// Permits nothing.
    #[derive(Debug)]
    struct Denied;

    impl crate::broker::permissions::Permissions for Denied {
        fn may_connect(&self) -> bool {
            true
        }

        fn may_publish(&self, _: &str) -> bool {
            false
        }

        fn may_subscribe(&self, _: &str) -> bool {
            false
        }

        fn may_receive(&self, _: &str) -> bool {
            false
        }

        fn generation(&self) -> u64 {
            0
        }

        fn refresh(&self) {}
    }

    #[test]
    fn many_groups_of_shared_subscriptions_get_a_message_in_bounded_steps() {
        let now = crate::clock::monotonic();
        let mut registry = Registry::new(&Settings::default());
        let groups = 2 * ROUTE_STEPS_MAX;
        for session in 0..2 {
            let request: SessionRequest = request(session, &session.to_string(), 60, None);
            registry.attach(request, now).unwrap();
            let half = (groups / 2) as u32;
            let filters = (0..half).map(|group| {
                subscription(format!("$share/g{session}-{group}/t"), Qos::AtMostOnce, group + 1)
            });
            subscribe(&mut registry, session, filters.collect(), now);
        }
        let mut route = registry.begin_route(None, None, publication("t", false, now));
        assert!(registry.route_some(&mut route, now, &mut Vec::new()));
        assert!(route.count() <= ROUTE_STEPS_MAX);
        while registry.route_some(&mut route, now, &mut Vec::new()) {}
        assert_eq!(route.count(), groups);
    }
}
