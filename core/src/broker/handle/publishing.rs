//! Publication of messages, in as many steps as their routing needs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::{Broker, Continuation, Verdict};
use crate::broker::event::Event;
use crate::broker::handle::Peer;
use crate::broker::memory::{Account, Charge, MemoryKind};
use crate::broker::publication::Publication;
use crate::broker::routing::registry::{DueWill, Registry};
use crate::broker::routing::route::{self, Route, SharedRoute};
use crate::clock;
use crate::mqtt::ReasonCode;
use crate::protocol::ConnectionId;
use crate::protocol::message::{Message, Qos};

/// The result of a publication.
#[derive(Debug)]
pub enum Published {
    /// The number of sessions that have got the message.
    Complete(usize),
    /// The message has more subscriptions than one step looks at.
    Unfinished(Publishing),
}

/// A message that is published in bounded steps, between which other clients are served.
#[derive(Debug)]
pub struct Publishing {
    route: SharedRoute,
    /// The message, if `route` is the one of an earlier retained message of its topic. The next publisher helps that one
    /// to its end: the retained message of a topic must be the last one that a subscriber gets.
    next: Option<(Retaining, Charge)>,
}

/// A message that is to be retained and routed.
#[derive(Debug)]
struct Retaining {
    publication: Arc<Publication>,
    from: Option<ConnectionId>,
    owner: Arc<Account>,
    /// Whether it is a message of a client, refused without room. Otherwise it is routed, and its topic has no retained message
    /// instead of an outdated one.
    is_refusable: bool,
}

impl Retaining {
    /// Whether it is a message of a client whose session was taken over from the connection that sent it. The client sends
    /// it again, and then others, which it must not replace. A message of QoS 2 is not sent again: its packet id is in the
    /// session.
    fn is_superseded(&self, registry: &Registry) -> bool {
        self.is_refusable
            && self.publication.message.qos != Qos::ExactlyOnce
            && self.from.is_some_and(|from| registry.handle(from).is_none())
    }
}

impl Publishing {
    /// Does the next step; returns the number of sessions that have got the message after the last one.
    ///
    /// # Errors
    /// The reason code to reject the message with; then it was not published.
    pub fn step(&mut self, broker: &Broker) -> Result<Option<usize>, ReasonCode> {
        let Some(count) = broker.route_shared(&self.route) else { return Ok(None) };
        // It is charged again if it waits for another one.
        let Some(next) = self.next.take().map(|(next, _)| next) else { return Ok(Some(count)) };
        Ok(match broker.retain(next, clock::monotonic())? {
            Published::Complete(count) => Some(count),
            Published::Unfinished(unfinished) => {
                *self = unfinished;
                None
            }
        })
    }
}

impl Continuation for Publishing {
    fn step(&mut self, broker: &Broker) -> Option<Verdict> {
        match self.step(broker) {
            Ok(None) => None,
            Ok(Some(_)) => Some(Verdict::Consumed),
            Err(reason) => Some(Verdict::Refused(reason)),
        }
    }
}

impl Broker {
    /// Publishes a message to its subscribers; returns the number of sessions that get it.
    ///
    /// The session of `from` is left out where its subscription has the option No Local.
    pub fn publish(&self, from: Option<ConnectionId>, message: Message) -> usize {
        self.publish_at(from, message, clock::monotonic())
    }

    /// As [`Broker::publish`]; the caller has read the time.
    pub fn publish_at(&self, from: Option<ConnectionId>, message: Message, now: Instant) -> usize {
        let mut published = self.begin_own(from, &self.inner.own, message, now);
        loop {
            match published {
                Ok(Published::Complete(count)) => return count,
                Ok(Published::Unfinished(mut unfinished)) => {
                    published = match unfinished.step(self) {
                        Ok(Some(count)) => Ok(Published::Complete(count)),
                        Ok(None) => Ok(Published::Unfinished(unfinished)),
                        Err(reason) => Err(reason),
                    };
                }
                Err(_) => return 0,
            }
        }
    }

    /// Publishes a Will Message that is due. If it has many subscribers, the expiry task does its other steps, so that the
    /// other connections of this thread do not wait for them.
    pub(super) fn publish_will(&self, DueWill { message, owner }: DueWill) {
        let published = self.begin_own(None, &owner, message, clock::monotonic());
        if let Ok(Published::Unfinished(publishing)) = published {
            self.unfinished_wills().push_back(Box::new(publishing));
            self.inner.deadline.notify_one();
        }
    }

    /// Does the next step of the Will Messages with many subscribers; returns whether there are more.
    pub(in crate::broker) fn route_wills(&self) -> bool {
        let Some(mut first) = self.unfinished_wills().pop_front() else { return false };
        if first.step(self).is_none() {
            self.unfinished_wills().push_front(first);
        }
        !self.unfinished_wills().is_empty()
    }

    fn unfinished_wills(&self) -> MutexGuard<'_, VecDeque<Box<dyn Continuation>>> {
        self.inner.unfinished_wills.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the first step of a message that is published in any case.
    fn begin_own(
        &self,
        from: Option<ConnectionId>,
        owner: &Arc<Account>,
        message: Message,
        now: Instant,
    ) -> Result<Published, ReasonCode> {
        let publication = Arc::new(Publication::new(message, now));
        if publication.message.retain {
            let owner = Arc::clone(owner);
            return self.retain(Retaining { publication, from, owner, is_refusable: false }, now);
        }
        let route = self.begin_route(from, None, publication, now);
        Ok(if route.is_complete() { Published::Complete(route.count()) } else { unfinished(route, owner) })
    }

    /// Publishes a client's message to its subscribers, or does the first step of it.
    ///
    /// # Errors
    /// The reason code to reject the message with; then it was not published.
    pub(in crate::broker) fn publish_from(
        &self,
        from: &Peer,
        message: Message,
    ) -> Result<Published, ReasonCode> {
        let now = clock::monotonic();
        let publication = Arc::new(Publication::new(message, now));
        // A small one is left to the queues of its receivers.
        if publication.is_large() && !self.inner.memory.has_room(MemoryKind::Sessions, publication.bytes) {
            return Err(self.refuse(from, &publication));
        }
        if publication.message.retain {
            let owner = self.inner.memory.account(&from.owner);
            // Before it is stored.
            if !route::has_room(&owner, &publication)
                && self.read().has_many_subscriptions(&publication.message.topic)
            {
                return Err(self.refuse(from, &publication));
            }
            let from = Some(from.connection);
            return self.retain(Retaining { publication, from, owner, is_refusable: true }, now);
        }
        let route = self.begin_route(Some(from.connection), None, publication, now);
        if route.is_complete() {
            return Ok(Published::Complete(route.count()));
        }
        let owner = self.inner.memory.account(&from.owner);
        if route.is_refusable() && !route::has_room(&owner, route.publication()) {
            return Err(self.refuse(from, route.publication()));
        }
        Ok(unfinished(route, &owner))
    }

    /// Reports that there is no memory for a client's message; returns the reason code to reject it with.
    fn refuse(&self, from: &Peer, publication: &Publication) -> ReasonCode {
        let (client_id, topic) = (Arc::clone(&from.client_id), publication.message.topic.to_string());
        self.report([Event::Dropped { client_id, topic, reason: "no memory is left for messages" }]);
        ReasonCode::QuotaExceeded
    }

    /// Stores a retained message, and begins to route it.
    fn retain(&self, retaining: Retaining, now: Instant) -> Result<Published, ReasonCode> {
        let mut registry = self.write();
        if retaining.is_superseded(&registry) {
            // The acknowledgement is not sent.
            return Err(ReasonCode::UnspecifiedError);
        }
        if let Some(route) = registry.unfinished_route(&retaining.publication.message.topic) {
            let route = Arc::clone(route);
            drop(registry);
            let Retaining { publication, owner, is_refusable, .. } = &retaining;
            if *is_refusable && !owner.has_room(MemoryKind::Sessions, publication.bytes) {
                self.report([Event::NotRetained { topic: publication.message.topic.to_string() }]);
                return Err(ReasonCode::QuotaExceeded);
            }
            let charge = Charge::new(owner, MemoryKind::Sessions, publication.bytes);
            return Ok(Published::Unfinished(Publishing { route, next: Some((retaining, charge)) }));
        }
        let Retaining { publication, from, owner, is_refusable } = retaining;
        let mut events = Vec::new();
        let mut published = Err(ReasonCode::QuotaExceeded);
        let is_retained = registry.retain(&publication, &owner, now).is_ok();
        if !is_retained && !is_refusable {
            registry.remove_retained(&publication.message.topic);
        }
        if is_retained || !is_refusable {
            // The first step is under the same lock, so that nearly every message needs one.
            let mut route = registry.begin_retained_route(from, Arc::clone(&publication));
            published = Ok(if registry.route_some(&mut route, now, &mut events) {
                route.charge_to(&owner);
                let route = Arc::new(Mutex::new(route));
                registry.add_unfinished_route(&publication.message.topic, &route);
                Published::Unfinished(Publishing { route, next: None })
            } else {
                Published::Complete(route.count())
            });
        }
        events.extend(registry.take_events());
        drop(registry);
        self.report(events);
        published
    }

    /// Routes a message that the broker delivers at once; returns the number of sessions that get it. The lock is given
    /// back between the steps.
    pub(super) fn route(
        &self,
        from: Option<ConnectionId>,
        to: Option<(ConnectionId, &str)>,
        publication: Arc<Publication>,
        now: Instant,
    ) -> usize {
        let mut route = self.begin_route(from, to, publication, now);
        while !route.is_complete() {
            self.route_some(&mut route, now);
        }
        route.count()
    }

    /// Does the first step of a message.
    fn begin_route(
        &self,
        from: Option<ConnectionId>,
        to: Option<(ConnectionId, &str)>,
        publication: Arc<Publication>,
        now: Instant,
    ) -> Route {
        let mut events = Vec::new();
        let registry = self.read();
        let mut route = registry.begin_route(from, to, publication);
        registry.route_some(&mut route, now, &mut events);
        drop(registry);
        self.report(events);
        route
    }

    fn route_some(&self, route: &mut Route, now: Instant) -> bool {
        let mut events = Vec::new();
        let has_more = self.read().route_some(route, now, &mut events);
        route.update_charge();
        self.report(events);
        has_more
    }

    /// Does the next step of a message that several clients may wait for; returns the number of sessions that have got it
    /// after the last one.
    fn route_shared(&self, shared: &SharedRoute) -> Option<usize> {
        let mut route = shared.lock().unwrap_or_else(PoisonError::into_inner);
        if self.route_some(&mut route, clock::monotonic()) {
            return None;
        }
        if let Some(topic) = route.retained_topic() {
            self.write().remove_unfinished_route(topic, shared);
        }
        Some(route.count())
    }
}

/// Returns a message that needs more steps, and charges its owner for it.
fn unfinished(mut route: Route, owner: &Arc<Account>) -> Published {
    route.charge_to(owner);
    Published::Unfinished(Publishing { route: Arc::new(Mutex::new(route)), next: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::handle::Hooks;
    use crate::broker::routing::registry::tests::request;
    use crate::broker::session::connection_handle::CloseReason;
    use crate::broker::session::entry::{SessionEntry, SessionRequest};
    use crate::broker::session::state_machine::Outgoing;
    use crate::broker::settings::Settings;
    use crate::mqtt::packet::{RetainHandling, SubscriptionOptions, SubscriptionRequest, Will};

    const SUBSCRIBERS: u64 = 2_000;

    /// Returns a broker with many subscribers of one topic, and a client.
    fn broker() -> (Broker, Vec<Arc<SessionEntry>>, Peer) {
        let broker = Broker::new(Settings::default(), Hooks::new(Arc::new(())));
        let owner = broker.memory().account("subscribers");
        let attach = |connection: u64| {
            let client_id = format!("c{connection}");
            let request =
                SessionRequest { owner: Arc::clone(&owner), ..request(connection, &client_id, 10, None) };
            broker.attach(request).unwrap().entry
        };
        let entries: Vec<_> = (0..SUBSCRIBERS).map(attach).collect();
        for connection in 0..SUBSCRIBERS {
            let options = SubscriptionOptions {
                qos: Qos::AtLeastOnce,
                no_local: false,
                retain_as_published: false,
                identifier: None,
            };
            let (filter, retain_handling) = ("t/+".to_owned(), RetainHandling::Never);
            let requests = vec![SubscriptionRequest { filter, options, retain_handling }];
            broker.change(|registry| registry.subscribe(ConnectionId(connection), requests));
        }
        let peer = publisher(&broker, SUBSCRIBERS);
        (broker, entries, peer)
    }

    /// Connects the publisher, which takes over from its earlier connection.
    fn publisher(broker: &Broker, connection: u64) -> Peer {
        broker.attach(request(connection, "publisher", 10, None)).unwrap();
        Peer {
            connection: ConnectionId(connection),
            client_id: "publisher".into(),
            principal: crate::broker::principal::Principal::default(),
            identity: [].into(),
            owner: "publisher".into(),
            permissions: None,
            session: crate::broker::handle::SessionPhase::New,
            message_number: 0,
            confirmed: 0,
            handle: None,
        }
    }

    fn message(payload: &'static str, retain: bool) -> Message {
        let payload = bytes::Bytes::from_static(payload.as_bytes());
        Message { topic: "t/1".into(), payload, qos: Qos::AtLeastOnce, retain, ..Message::default() }
    }

    /// Returns the payloads that a subscriber gets.
    fn received(connection: u64, entry: &SessionEntry) -> Vec<String> {
        let next = || entry.poll_outgoing(ConnectionId(connection), clock::monotonic(), false);
        let payload = |(outgoing, _)| match outgoing {
            Outgoing::Publish { delivery, .. } => {
                String::from_utf8(delivery.publication.message.payload.to_vec()).unwrap()
            }
            Outgoing::Release(_) => panic!("a PUBREL"),
        };
        std::iter::from_fn(next).map(payload).collect()
    }

    fn unfinished(published: Result<Published, ReasonCode>) -> Publishing {
        match published.unwrap() {
            Published::Unfinished(unfinished) => unfinished,
            Published::Complete(count) => panic!("{count} sessions in one step"),
        }
    }

    #[test]
    fn the_retained_message_of_a_topic_is_the_last_one_that_any_subscriber_gets_however_many_there_are() {
        let (broker, entries, peer) = broker();
        let mut first = unfinished(broker.publish_from(&peer, message("1", true)));
        let mut second = unfinished(broker.publish_from(&peer, message("2", true)));
        let mut third = unfinished(broker.publish_from(&peer, message("3", true)));
        // The third one does all steps of the others, and its client sees its end first.
        let mut count = None;
        while count.is_none() {
            count = third.step(&broker).unwrap();
        }
        assert_eq!(count, Some(SUBSCRIBERS as usize));
        for publishing in [&mut first, &mut second] {
            while publishing.step(&broker).unwrap().is_none() {}
        }
        let last = received(0, &entries[0]).last().cloned();
        for (connection, entry) in (0..).zip(&entries).skip(1) {
            let received = received(connection, entry);
            assert_eq!(received.len(), 3, "each message once");
            assert_eq!(received.last(), last.as_ref());
        }
        let read = broker.read();
        assert!(read.unfinished_route("t/1").is_none());
        drop(read);
        // The last one is what a later subscriber finds.
        assert_eq!(broker.publish(None, message("own", true)), SUBSCRIBERS as usize);
        assert!((0..).zip(&entries).all(|(connection, entry)| received(connection, entry) == ["own"]));
    }

    /// Returns what leaves a publisher no room for a message with many subscriptions.
    fn without_room(broker: &Broker) -> Charge {
        let owner = broker.memory().account("publisher");
        Charge::new(&owner, MemoryKind::Sessions, broker.memory().bytes_max() / 2)
    }

    #[test]
    fn a_message_with_many_subscribers_is_charged_to_its_publisher_and_refused_without_room() {
        let (broker, entries, peer) = broker();
        let used = || broker.memory().used_by(MemoryKind::Sessions);
        for retain in [false, true] {
            let held = without_room(&broker);
            let refused = broker.publish_from(&peer, message("0", retain));
            assert!(matches!(refused, Err(ReasonCode::QuotaExceeded)), "{refused:?}");
            let few = Message { topic: "few".into(), ..message("0", false) };
            assert!(matches!(broker.publish_from(&peer, few), Ok(Published::Complete(0))));
            drop(held);

            let before = used();
            let mut publishing = unfinished(broker.publish_from(&peer, message("1", retain)));
            let after_one = used();
            assert!(after_one > before);
            while !matches!(publishing.step(&broker), Ok(Some(_)))
                && publishing.route.lock().unwrap().count() == 0
            {}
            let sessions = size_of::<Arc<SessionEntry>>() * SUBSCRIBERS as usize;
            assert!(used() > before + sessions, "{} bytes", used() - before);
            while !matches!(publishing.step(&broker), Ok(Some(_))) {}
            assert!((0..).zip(&entries).all(|(connection, entry)| received(connection, entry) == ["1"]));
            drop(publishing);
        }
    }

    #[test]
    fn a_retained_message_that_waits_for_another_one_is_charged_to_its_publisher() {
        let (broker, _entries, peer) = broker();
        let payload = bytes::Bytes::from(vec![0; 100_000]);
        let _first = unfinished(broker.publish_from(&peer, message("1", true)));
        let used = broker.memory().used_by(MemoryKind::Sessions);
        let second = Message { payload, ..message("", true) };
        let waiting = unfinished(broker.publish_from(&peer, second));
        assert!(broker.memory().used_by(MemoryKind::Sessions) >= used + 100_000);
        drop(waiting);
        assert_eq!(broker.memory().used_by(MemoryKind::Sessions), used);
    }

    #[test]
    fn a_message_whose_publisher_has_no_more_room_reaches_each_of_its_many_subscribers_once() {
        let (broker, entries, peer) = broker();
        for retain in [false, true] {
            let mut publishing = unfinished(broker.publish_from(&peer, message("1", retain)));
            let _held = without_room(&broker);
            let before = broker.memory().used_by(MemoryKind::Sessions);
            let mut count = None;
            while count.is_none() {
                if publishing.route.lock().unwrap().count() == 0 {
                    assert_eq!(broker.memory().used_by(MemoryKind::Sessions), before);
                }
                count = publishing.step(&broker).unwrap();
            }
            assert_eq!(count, Some(SUBSCRIBERS as usize));
            assert!((0..).zip(&entries).all(|(connection, entry)| received(connection, entry) == ["1"]));
        }
    }

    #[test]
    fn a_retained_message_that_waits_is_dropped_if_its_client_has_another_connection_unless_it_has_qos_2() {
        for (qos, expected) in
            [(Qos::AtLeastOnce, &["1", "again", "last"][..]), (Qos::ExactlyOnce, &["1", "last", "first"])]
        {
            let (broker, entries, peer) = broker();
            let _route = unfinished(broker.publish_from(&peer, message("1", true)));
            let message = |payload| Message { qos, ..message(payload, true) };
            let mut waiting = unfinished(broker.publish_from(&peer, message("first")));
            let peer = publisher(&broker, SUBSCRIBERS + 1);
            // A client does not repeat a message of QoS 2 that the session has.
            let again = (qos == Qos::AtLeastOnce).then_some("again");
            for payload in again.into_iter().chain(["last"]) {
                let mut publishing = unfinished(broker.publish_from(&peer, message(payload)));
                while publishing.step(&broker).unwrap().is_none() {}
            }
            let published = loop {
                match waiting.step(&broker) {
                    Ok(None) => {}
                    result => break result,
                }
            };
            assert_eq!(published.is_ok(), qos == Qos::ExactlyOnce);
            assert!((0..).zip(&entries).all(|(connection, entry)| received(connection, entry) == expected));
        }
    }

    #[tokio::test]
    async fn a_will_with_many_subscribers_is_published_in_steps_between_which_other_tasks_run() {
        let (broker, entries, _) = broker();
        let (_open, closing) = tokio::sync::watch::channel(false);
        tokio::spawn(crate::broker::expiry_task::run(broker.clone(), closing));
        for (connection, retain) in (SUBSCRIBERS + 1..).zip([false, true]) {
            let will = Some(Will { message: message("will", retain), delay_s: 0 });
            let request = SessionRequest { will, ..request(connection, "dying", 0, None) };
            broker.attach(request).unwrap();
            broker.detach(ConnectionId(connection), &CloseReason::ConnectionLost("test".to_owned()));
            assert!(received(0, &entries[0]).is_empty());
            let mut turns = 0;
            while !broker.unfinished_wills().is_empty() {
                turns += 1;
                tokio::task::yield_now().await;
            }
            assert!(turns >= SUBSCRIBERS / 512, "{turns} turns");
            assert!((0..).zip(&entries).all(|(connection, entry)| received(connection, entry) == ["will"]));
        }
    }

    #[test]
    fn other_clients_change_the_registry_between_the_steps_of_a_message_with_many_subscribers() {
        let (broker, entries, peer) = broker();
        for retain in [false, true] {
            let mut publishing = unfinished(broker.publish_from(&peer, message("1", retain)));
            let (mut steps, mut count) = (1, None);
            while count.is_none() {
                // It needs the lock for itself.
                drop(broker.write());
                count = publishing.step(&broker).unwrap();
                steps += 1;
            }
            assert_eq!(count, Some(SUBSCRIBERS as usize));
            assert!(steps >= SUBSCRIBERS / 512, "{steps} steps");
            assert!((0..).zip(&entries).all(|(connection, entry)| received(connection, entry) == ["1"]));
        }
    }
}
