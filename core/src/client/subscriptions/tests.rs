//! Subscriptions: all filters or none, subscribed again after a reconnect, with gaps reported.

use std::time::{Duration, Instant};

use super::*;
use crate::client::{Outcome, ReasonCode};

struct Bench {
    subscriptions: Subscriptions,
    events: mpsc::Receiver<Result<SubscriptionEvent, Error>>,
    confirmed: oneshot::Receiver<Result<Qos, Error>>,
    start: Instant,
}

impl Bench {
    fn new(capacity: usize) -> Self {
        let (sender, events) = mpsc::channel(capacity);
        let (confirmation, confirmed) = oneshot::channel();
        let mut subscriptions = Subscriptions::default();
        subscriptions.add(vec!["a/#".to_owned(), "b".to_owned()], sender, confirmation, true);
        Self { subscriptions, events, confirmed, start: crate::clock::monotonic() }
    }

    fn in_force(capacity: usize) -> Self {
        let mut bench = Self::new(capacity);
        bench.subscribe_all(0);
        assert_eq!(bench.confirmed.try_recv(), Ok(Ok(Qos::AtLeastOnce)));
        bench
    }

    fn at(&self, ms: u64) -> Reading {
        Reading { wall_ms: 1000 + ms, monotonic: self.start + Duration::from_millis(ms) }
    }

    fn subscribed(&mut self) -> Vec<(String, FilterTicket)> {
        std::iter::from_fn(|| self.subscriptions.poll_subscribe()).collect()
    }

    fn subscribe_all(&mut self, ms: u64) {
        let now = self.at(ms);
        for (_, ticket) in self.subscribed() {
            self.subscriptions.handle_subscribed(&ticket, Ok(Qos::AtLeastOnce), now);
        }
    }

    fn message(&mut self, topic: &str, ms: u64) -> bool {
        let now = self.at(ms);
        self.subscriptions
            .handle_message(&Message { topic: topic.to_owned().into(), ..Message::default() }, now)
    }

    /// Delivers pending events and returns them: messages by topic, others by name.
    fn delivered(&mut self) -> Vec<String> {
        self.subscriptions.deliver();
        let delivered = std::iter::from_fn(|| self.events.try_recv().ok());
        delivered
            .map(|event| match event {
                Ok(SubscriptionEvent::Message { message, .. }) => message.topic.into_owned(),
                Ok(SubscriptionEvent::Lost { since_ms, cause }) => format!("lost {since_ms} {cause}"),
                Ok(SubscriptionEvent::Gap { since_ms, until_ms }) => format!("gap {since_ms} {until_ms}"),
                Err(error) => error.to_string(),
            })
            .collect()
    }
}

fn timeout() -> Error {
    Error::Timeout { target: "h".into(), after: Duration::from_secs(1), outcome: Outcome::Unchanged }
}

#[test]
fn a_subscription_starts_when_all_filters_are_in_force() {
    let mut bench = Bench::new(8);
    let sent = bench.subscribed();
    assert_eq!(sent.iter().map(|(filter, _)| filter.as_str()).collect::<Vec<_>>(), ["a/#", "b"]);
    let now = bench.at(0);
    bench.subscriptions.handle_subscribed(&sent[0].1, Ok(Qos::AtLeastOnce), now);
    assert!(bench.confirmed.try_recv().is_err());
    assert!(bench.message("a/1", 1));
    bench.subscriptions.handle_subscribed(&sent[1].1, Ok(Qos::AtLeastOnce), now);
    assert_eq!(bench.confirmed.try_recv(), Ok(Ok(Qos::AtLeastOnce)));
    assert!(bench.message("a/2", 2) && bench.message("b", 3) && !bench.message("c", 4));
    assert_eq!(bench.delivered(), ["a/2", "b"]);
}

#[test]
fn one_refused_filter_fails_the_whole_subscription() {
    let mut bench = Bench::new(8);
    let sent = bench.subscribed();
    let reason = ReasonCode { code: ReasonCode::NOT_AUTHORIZED, text: None };
    let error = Error::SubscribeRefused { filter: "a/#".to_owned(), reason };
    let now = bench.at(0);
    bench.subscriptions.handle_subscribed(&sent[0].1, Err(error.clone()), now);
    bench.subscriptions.handle_subscribed(&sent[1].1, Ok(Qos::AtLeastOnce), now);
    assert_eq!(bench.confirmed.try_recv(), Ok(Err(error)));
    assert!(!bench.message("b", 1));
}

#[test]
fn a_loss_is_reported_at_once_and_the_gap_when_all_filters_are_in_force_again() {
    let mut bench = Bench::in_force(8);
    bench.message("b", 1);
    bench.subscriptions.handle_lost(1002, "reset");
    bench.subscriptions.handle_lost(1003, "refused");
    assert_eq!(bench.delivered(), ["b", "lost 1002 reset"]);
    bench.subscriptions.handle_connected();
    let sent = bench.subscribed();
    let now = bench.at(10);
    bench.subscriptions.handle_subscribed(&sent[0].1, Ok(Qos::AtLeastOnce), now);
    assert!(bench.message("a/early", 11));
    bench.subscriptions.handle_subscribed(&sent[1].1, Err(timeout()), now);
    assert_eq!(bench.delivered(), [""; 0]);
    bench.subscribe_all(20);
    bench.message("a/again", 21);
    assert_eq!(bench.delivered(), ["gap 1002 1020", "a/again"]);
}

#[test]
fn a_full_channel_blocks_the_session_and_loses_nothing() {
    let mut bench = Bench::in_force(1);
    for topic in ["a/1", "a/2", "a/3"] {
        bench.message(topic, 1);
    }
    assert!(bench.subscriptions.deliver().is_some());
    let delivered: Vec<_> =
        std::iter::from_fn(|| Some(bench.delivered()).filter(|delivered| !delivered.is_empty())).collect();
    assert_eq!(delivered.concat(), ["a/1", "a/2", "a/3"]);
    assert!(bench.subscriptions.deliver().is_none());
}

#[test]
fn a_dropped_subscription_is_unsubscribed_and_removed() {
    let mut bench = Bench::in_force(1);
    bench.events.close();
    bench.message("b", 1);
    assert!(bench.subscriptions.deliver().is_none());
    let filters: Vec<_> = std::iter::from_fn(|| bench.subscriptions.poll_unsubscribe()).collect();
    assert_eq!(filters, ["b", "a/#"]);
    assert!(bench.subscriptions.active.is_empty());
}

#[test]
fn messages_for_a_dropped_subscription_are_discarded_until_a_reconnect() {
    let mut bench = Bench::in_force(1);
    assert_eq!(bench.subscriptions.poll_unsubscribe(), None);
    bench.events.close();
    while bench.subscriptions.poll_unsubscribe().is_some() {}
    assert!(bench.message("a/1", 1) && !bench.message("c", 1));
    bench.subscriptions.handle_connected();
    assert!(!bench.message("a/1", 1));
}

#[test]
fn a_filter_of_another_subscription_is_not_unsubscribed() {
    let mut bench = Bench::in_force(1);
    let (sender, _others) = mpsc::channel(1);
    bench.subscriptions.add(vec!["b".to_owned()], sender, oneshot::channel().0, true);
    bench.events.close();
    assert_eq!(bench.subscriptions.poll_unsubscribe().as_deref(), Some("a/#"));
    assert_eq!(bench.subscriptions.poll_unsubscribe(), None);
}

#[test]
fn when_one_filter_is_refused_the_others_are_unsubscribed() {
    let mut bench = Bench::new(8);
    let sent = bench.subscribed();
    let now = bench.at(0);
    bench.subscriptions.handle_subscribed(&sent[0].1, Ok(Qos::AtLeastOnce), now);
    bench.subscriptions.handle_subscribed(&sent[1].1, Err(timeout()), now);
    assert_eq!(bench.subscriptions.poll_unsubscribe().as_deref(), Some("a/#"));
    assert_eq!(bench.subscriptions.poll_unsubscribe(), None);
}

#[tokio::test]
async fn the_error_of_the_session_is_delivered_after_pending_messages() {
    let mut bench = Bench::in_force(1);
    bench.message("a/1", 1);
    bench.message("b", 1);
    bench.subscriptions.handle_closed(&Error::Closed);
    let mut delivered = Vec::new();
    while let Some(event) = bench.events.recv().await {
        delivered.push(event.map(|_| ()));
    }
    assert_eq!(delivered, [Ok(()), Ok(()), Err(Error::Closed)]);
}
