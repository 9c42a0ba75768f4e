//! Delivery of retained messages for new subscriptions, in bounded steps.

use std::sync::Arc;
use std::time::Instant;

use super::{Registry, Subscription};
use crate::broker::event::Event;
use crate::broker::publication::{Delivery, Publication};
use crate::broker::routing::retained::Search;
use crate::broker::session::entry::SessionEntry;
use crate::mqtt::packet::SubscriptionOptions;
use crate::protocol::ConnectionId;

/// The most steps of one [`Registry::deliver_retained`], because other connections wait meanwhile: some tens of
/// microseconds.
const RETAINED_STEPS_MAX: usize = 256;

/// The retained messages that are still to be queued for new subscriptions of a client.
#[derive(Debug)]
pub struct RetainedDelivery {
    connection: ConnectionId,
    /// The topic filters, the next one last.
    filters: Vec<String>,
    /// The search for the next one.
    search: Search,
}

impl RetainedDelivery {
    /// Returns the delivery for filters in their order.
    #[must_use]
    pub fn new(connection: ConnectionId, mut filters: Vec<String>) -> Self {
        filters.reverse();
        Self { connection, filters, search: Search::default() }
    }
}

impl Registry {
    /// Queues retained messages for new subscriptions, in bounded steps; returns whether there are more, so that it
    /// must be called again. Between two calls, other clients publish.
    ///
    /// For each topic, the client gets the newest message, as a retained or as a routed one but not as both, and no
    /// older message after a newer one. A message that is published after the subscription is routed to the client, and
    /// the search skips it because its sequence number is greater than the subscription's. A message that was published
    /// before is found, unless one that was routed has replaced it: a publication is retained and routed under one
    /// write lock. What is routed meanwhile is held behind all that is found, so that it also follows the retained
    /// message of its topic if it is not retained itself. A subscription that has ended, for lack of permission too, gets
    /// nothing more; one that began again has a new sequence number, so that messages which were not routed to it
    /// meanwhile are found. If filters of one packet overlap that were added in different steps, a message that was
    /// published between these is both routed and found.
    #[must_use]
    pub fn deliver_retained(
        &self,
        delivery: &mut RetainedDelivery,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> bool {
        // A connection that has lost its session holds nothing: the next one has released it.
        let Some((entry, handle)) = self.connections.get(&delivery.connection) else { return false };
        let has_more = handle.close_reason().is_none() && self.search_retained(entry, delivery, now, events);
        if !has_more {
            entry.lock().session.release();
        }
        has_more
    }

    /// Returns whether the search must go on.
    fn search_retained(
        &self,
        entry: &SessionEntry,
        delivery: &mut RetainedDelivery,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> bool {
        let mut steps = RETAINED_STEPS_MAX;
        while steps > 0 {
            let Some(filter) = delivery.filters.last() else { return false };
            let mut has_room = true;
            let subscription = self.subscriptions.get(filter, entry.id);
            if let Some(Subscription { options, since, .. }) = subscription {
                self.retained.search(
                    filter,
                    &mut delivery.search,
                    now,
                    &mut steps,
                    |publication, sequence| {
                        if sequence <= *since {
                            has_room = queue_retained(entry, *options, publication, now, events);
                        }
                        has_room
                    },
                );
            }
            if !has_room {
                // Further searches would be of no use.
                return false;
            }
            if subscription.is_some() && !delivery.search.is_complete() {
                return true;
            }
            delivery.filters.pop();
            delivery.search = Search::default();
            steps = steps.saturating_sub(1);
        }
        !delivery.filters.is_empty()
    }
}

/// Queues a retained message for a new subscription; returns whether the queue had room for it.
fn queue_retained(
    entry: &SessionEntry,
    options: SubscriptionOptions,
    publication: &Arc<Publication>,
    now: Instant,
    events: &mut Vec<Event>,
) -> bool {
    let publication = Arc::clone(publication);
    let qos = publication.message.qos.min(options.qos);
    let subscription_ids = options.identifier.into_iter().collect();
    let delivery = Delivery { publication, qos, retain: true, subscription_ids, group: None, share: None };
    entry.enqueue_retained(delivery, now, events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::memory::Account;
    use crate::broker::routing::registry::Subscribed;
    use crate::broker::routing::registry::tests::request;
    use crate::broker::session::state_machine::Outgoing;
    use crate::broker::settings::Settings;
    use crate::mqtt::packet::{RetainHandling, SubscriptionRequest};
    use crate::protocol::message::{Message, Qos};

    const AT_MOST_ONCE: SubscriptionOptions = SubscriptionOptions {
        qos: Qos::AtMostOnce,
        no_local: false,
        retain_as_published: false,
        identifier: None,
    };

    fn subscription(filter: &str) -> SubscriptionRequest {
        let retain_handling = RetainHandling::Always;
        SubscriptionRequest { filter: filter.to_owned(), options: AT_MOST_ONCE, retain_handling }
    }

    /// Publishes a retained message whose payload is a number.
    fn publish_retained(registry: &mut Registry, topic: &str, number: u32, now: Instant) {
        let payload = number.to_string().into();
        let message = Message { topic: topic.to_owned().into(), payload, retain: true, ..Message::default() };
        let publication = Arc::new(Publication::new(message, now));
        registry.retain(&publication, &Account::test("a", 1 << 30), now).unwrap();
        registry.route(None, None, &publication, now, &mut Vec::new());
    }

    /// Returns topic, payload and retain flag of the queued messages.
    fn queued(entry: &SessionEntry, connection: u64, now: Instant) -> Vec<(String, u32, bool)> {
        let poll = || entry.poll_outgoing(ConnectionId(connection), now, false);
        let messages = std::iter::from_fn(poll).map(|(outgoing, _)| match outgoing {
            Outgoing::Publish { delivery, .. } => {
                let message = &delivery.publication.message;
                let number = std::str::from_utf8(&message.payload).unwrap().parse().unwrap();
                (message.topic.to_string(), number, delivery.retain)
            }
            Outgoing::Release(packet_id) => panic!("a PUBREL of {packet_id}"),
        });
        messages.collect()
    }

    #[test]
    fn a_step_of_a_delivery_of_retained_messages_looks_at_few_topics() {
        let now = crate::clock::monotonic();
        let mut registry = Registry::new(&Settings::default());
        let entry = registry.attach(request(1, "a", 0, None), now).unwrap().entry;
        for number in 0..2_000 {
            publish_retained(&mut registry, &format!("t/{number}/x"), number, now);
        }
        let fruitless = (0..100).map(|number| subscription(&format!("+/+/y{number}")));
        let requests = fruitless.chain([subscription("t/7/+")]).collect();
        let Subscribed { results, retained } = registry.subscribe(ConnectionId(1), requests);
        assert!(results.iter().all(Result::is_ok));
        let mut delivery = RetainedDelivery::new(ConnectionId(1), retained);
        let mut calls = 1;
        while registry.deliver_retained(&mut delivery, now, &mut Vec::new()) {
            calls += 1;
        }
        // Each of the 100 filters looks at each topic.
        assert!(calls >= 100 * 2_000 / RETAINED_STEPS_MAX, "{calls}");
        assert_eq!(queued(&entry, 1, now), [("t/7/x".to_owned(), 7, true)]);
    }

    #[test]
    fn a_message_that_is_published_during_the_delivery_of_retained_ones_comes_once_and_as_the_last() {
        let now = crate::clock::monotonic();
        let mut registry = Registry::new(&Settings::default());
        let entry = registry.attach(request(1, "a", 0, None), now).unwrap().entry;
        let topic = |number: usize| format!("t/{number:04}");
        for number in 0..1_000 {
            publish_retained(&mut registry, &topic(number), 1, now);
        }
        let retained = registry.subscribe(ConnectionId(1), vec![subscription("t/#")]).retained;
        let mut delivery = RetainedDelivery::new(ConnectionId(1), retained);
        assert!(registry.deliver_retained(&mut delivery, now, &mut Vec::new()));
        for (number, value) in [(0, 2), (500, 2), (999, 2), (999, 3), (1_000, 1)] {
            publish_retained(&mut registry, &topic(number), value, now);
        }
        let message = Message { topic: topic(600).into(), payload: "2".into(), ..Message::default() };
        registry.route(None, None, &Arc::new(Publication::new(message, now)), now, &mut Vec::new());
        while registry.deliver_retained(&mut delivery, now, &mut Vec::new()) {}
        publish_retained(&mut registry, &topic(7), 2, now);
        let received = queued(&entry, 1, now);
        let of = |number| {
            let of_topic = received.iter().filter(|(of, ..)| *of == topic(number));
            of_topic.map(|(_, value, retain)| (*value, *retain)).collect::<Vec<_>>()
        };
        assert_eq!(of(0), [(1, true), (2, false)]);
        assert_eq!(of(7), [(1, true), (2, false)]);
        assert_eq!(of(500), [(2, false)], "the newer one was routed, and replaced the older one");
        assert_eq!(of(600), [(1, true), (2, false)], "what is not retained follows what is");
        assert_eq!(of(999), [(2, false), (3, false)]);
        assert_eq!(of(1_000), [(1, false)]);
        assert_eq!(received.len(), 1_000 + 5);
    }

    #[test]
    fn retained_messages_of_a_subscription_that_begins_again_are_found_and_of_one_that_has_ended_are_not() {
        let now = crate::clock::monotonic();
        for is_again in [false, true] {
            let mut registry = Registry::new(&Settings::default());
            let entry = registry.attach(request(1, "a", 0, None), now).unwrap().entry;
            publish_retained(&mut registry, "t/1", 1, now);
            let retained = registry.subscribe(ConnectionId(1), vec![subscription("t/+")]).retained;
            registry.remove_subscription("t/+", entry.id);
            publish_retained(&mut registry, "t/1", 2, now);
            if is_again {
                registry.insert_subscription(&entry, "t/+", AT_MOST_ONCE, RetainHandling::Never, true);
            }
            let mut delivery = RetainedDelivery::new(ConnectionId(1), retained);
            assert!(!registry.deliver_retained(&mut delivery, now, &mut Vec::new()));
            let expected: &[_] = if is_again { &[("t/1".to_owned(), 2, true)] } else { &[] };
            assert_eq!(queued(&entry, 1, now), expected);
        }
    }
}
