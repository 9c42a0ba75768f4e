//! What subscriptions of the owner's promise: all filters or none, again after a loss, and gaps told.

use std::time::{Duration, Instant};

use super::*;
use crate::client::{Outcome, ReasonCode};

struct Bench {
    listeners: Subscribers,
    heard: mpsc::Receiver<Result<Heard, Error>>,
    begun: oneshot::Receiver<Result<Qos, Error>>,
    start: Instant,
}

impl Bench {
    fn new(capacity: usize) -> Self {
        let (sender, heard) = mpsc::channel(capacity);
        let (begin, begun) = oneshot::channel();
        let mut listeners = Subscribers::default();
        listeners.begin(vec!["a/#".to_owned(), "b".to_owned()], sender, begin, true);
        Self { listeners, heard, begun, start: crate::clock::monotonic() }
    }

    fn in_force(capacity: usize) -> Self {
        let mut bench = Self::new(capacity);
        bench.subscribe_all(0);
        assert_eq!(bench.begun.try_recv(), Ok(Ok(Qos::AtLeastOnce)));
        bench
    }

    fn at(&self, ms: u64) -> Reading {
        Reading { wall_ms: 1000 + ms, monotonic: self.start + Duration::from_millis(ms) }
    }

    fn asked(&mut self) -> Vec<(String, ListenTicket)> {
        std::iter::from_fn(|| self.listeners.poll_filter()).collect()
    }

    fn subscribe_all(&mut self, ms: u64) {
        let now = self.at(ms);
        for (_, ticket) in self.asked() {
            self.listeners.handle_subscribed(&ticket, Ok(Qos::AtLeastOnce), now);
        }
    }

    fn message(&mut self, topic: &str, ms: u64) -> bool {
        let now = self.at(ms);
        self.listeners.handle_message(&Message { topic: topic.to_owned(), ..Message::default() }, now)
    }

    /// What has been handed over: topics, and the rest by name.
    fn told(&mut self) -> Vec<String> {
        self.listeners.deliver();
        let told = std::iter::from_fn(|| self.heard.try_recv().ok());
        told.map(|heard| match heard {
            Ok(Heard::Message { message, .. }) => message.topic,
            Ok(Heard::Lost { since_ms, cause }) => format!("lost {since_ms} {cause}"),
            Ok(Heard::Gap { since_ms, until_ms }) => format!("gap {since_ms} {until_ms}"),
            Err(error) => error.to_string(),
        })
        .collect()
    }
}

fn timeout() -> Error {
    Error::Timeout { target: "h".into(), after: Duration::from_secs(1), outcome: Outcome::Unchanged }
}

#[test]
fn it_begins_when_all_filters_are_in_force_and_not_before() {
    let mut bench = Bench::new(8);
    let asked = bench.asked();
    assert_eq!(asked.iter().map(|(filter, _)| filter.as_str()).collect::<Vec<_>>(), ["a/#", "b"]);
    let now = bench.at(0);
    bench.listeners.handle_subscribed(&asked[0].1, Ok(Qos::AtLeastOnce), now);
    assert!(bench.begun.try_recv().is_err());
    assert!(bench.message("a/1", 1));
    bench.listeners.handle_subscribed(&asked[1].1, Ok(Qos::AtLeastOnce), now);
    assert_eq!(bench.begun.try_recv(), Ok(Ok(Qos::AtLeastOnce)));
    assert!(bench.message("a/2", 2) && bench.message("b", 3) && !bench.message("c", 4));
    assert_eq!(bench.told(), ["a/2", "b"]);
}

#[test]
fn one_refused_filter_refuses_all() {
    let mut bench = Bench::new(8);
    let asked = bench.asked();
    let reason = ReasonCode { code: ReasonCode::NOT_AUTHORIZED, text: None };
    let error = Error::SubscribeRefused { filter: "a/#".to_owned(), reason };
    let now = bench.at(0);
    bench.listeners.handle_subscribed(&asked[0].1, Err(error.clone()), now);
    bench.listeners.handle_subscribed(&asked[1].1, Ok(Qos::AtLeastOnce), now);
    assert_eq!(bench.begun.try_recv(), Ok(Err(error)));
    assert!(!bench.message("b", 1));
}

#[test]
fn a_loss_is_told_at_once_and_the_gap_when_all_is_in_force_again() {
    let mut bench = Bench::in_force(8);
    bench.message("b", 1);
    bench.listeners.handle_lost(1002, "reset");
    bench.listeners.handle_lost(1003, "refused");
    assert_eq!(bench.told(), ["b", "lost 1002 reset"]);
    bench.listeners.handle_connected();
    let asked = bench.asked();
    let now = bench.at(10);
    bench.listeners.handle_subscribed(&asked[0].1, Ok(Qos::AtLeastOnce), now);
    assert!(bench.message("a/early", 11));
    bench.listeners.handle_subscribed(&asked[1].1, Err(timeout()), now);
    assert_eq!(bench.told(), [""; 0]);
    bench.subscribe_all(20);
    bench.message("a/again", 21);
    assert_eq!(bench.told(), ["gap 1002 1020", "a/again"]);
}

#[test]
fn a_full_channel_holds_the_session_up_and_nothing_is_lost() {
    let mut bench = Bench::in_force(1);
    for topic in ["a/1", "a/2", "a/3"] {
        bench.message(topic, 1);
    }
    assert!(bench.listeners.deliver().is_some());
    let told: Vec<_> = std::iter::from_fn(|| Some(bench.told()).filter(|told| !told.is_empty())).collect();
    assert_eq!(told.concat(), ["a/1", "a/2", "a/3"]);
    assert!(bench.listeners.deliver().is_none());
}

#[test]
fn who_has_left_is_forgotten() {
    let mut bench = Bench::in_force(1);
    bench.heard.close();
    bench.message("b", 1);
    assert!(bench.listeners.deliver().is_none());
    let left: Vec<_> = std::iter::from_fn(|| bench.listeners.poll_left()).collect();
    assert_eq!(left, ["b", "a/#"]);
    assert!(bench.listeners.active.is_empty());
}

#[test]
fn what_still_comes_for_one_who_has_left_is_nobody_s_in_this_connection() {
    let mut bench = Bench::in_force(1);
    assert_eq!(bench.listeners.poll_left(), None);
    bench.heard.close();
    while bench.listeners.poll_left().is_some() {}
    assert!(bench.message("a/1", 1) && !bench.message("c", 1));
    bench.listeners.handle_connected();
    assert!(!bench.message("a/1", 1));
}

#[test]
fn a_filter_that_somebody_else_has_is_not_taken_back() {
    let mut bench = Bench::in_force(1);
    let (sender, _others) = mpsc::channel(1);
    bench.listeners.begin(vec!["b".to_owned()], sender, oneshot::channel().0, true);
    bench.heard.close();
    assert_eq!(bench.listeners.poll_left().as_deref(), Some("a/#"));
    assert_eq!(bench.listeners.poll_left(), None);
}

#[test]
fn where_one_filter_is_refused_the_others_are_taken_back() {
    let mut bench = Bench::new(8);
    let asked = bench.asked();
    let now = bench.at(0);
    bench.listeners.handle_subscribed(&asked[0].1, Ok(Qos::AtLeastOnce), now);
    bench.listeners.handle_subscribed(&asked[1].1, Err(timeout()), now);
    assert_eq!(bench.listeners.poll_left().as_deref(), Some("a/#"));
    assert_eq!(bench.listeners.poll_left(), None);
}

#[tokio::test]
async fn the_end_of_the_session_comes_after_what_was_heard() {
    let mut bench = Bench::in_force(1);
    bench.message("a/1", 1);
    bench.message("b", 1);
    bench.listeners.handle_closed(&Error::Closed);
    let mut told = Vec::new();
    while let Some(heard) = bench.heard.recv().await {
        told.push(heard.map(|_| ()));
    }
    assert_eq!(told, [Ok(()), Ok(()), Err(Error::Closed)]);
}
