//! What the tracker promises, with simulated time.

use super::*;
use crate::protocol::message::STATUS;
use crate::protocol::{UserProperties, Value};

const TOPIC: &str = "clients/me/services/statestore/_any_/command/invoke/response";

struct Bench {
    tracker: Tracker,
    start: Instant,
}

impl Bench {
    fn new() -> Self {
        let filters = vec![topic::REQUEST.to_owned(), "clients/#".to_owned()];
        Self { tracker: Tracker::new(filters), start: origin() }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    fn see(&mut self, message: Message, ms: u64) -> TrafficEvent {
        self.try_see(message, ms).unwrap()
    }

    fn try_see(&mut self, message: Message, ms: u64) -> Option<TrafficEvent> {
        let now = self.at(ms);
        self.tracker.handle_message(message, now)
    }

    fn request(&mut self, message: Message, ms: u64) -> DecodedRequest {
        match self.see(message, ms) {
            TrafficEvent::Request(seen) => seen,
            other => panic!("{other:?}"),
        }
    }

    fn reply(&mut self, message: Message, ms: u64) -> DecodedReply {
        match self.see(message, ms) {
            TrafficEvent::Reply(seen) => seen,
            other => panic!("{other:?}"),
        }
    }

    /// Keys of the requests that are given up at this time.
    fn unanswered(&mut self, ms: u64) -> Vec<Option<Key>> {
        let now = self.at(ms);
        let given_up = std::iter::from_fn(|| self.tracker.poll_unanswered(now));
        given_up.map(|event| event.key().cloned()).collect()
    }
}

fn key(name: &str) -> Key {
    Key::new(name.to_owned()).unwrap()
}

fn get(name: &str, correlation: &'static str) -> Message {
    Message {
        topic: topic::REQUEST.into(),
        payload: Request::Get { key: key(name) }.encode(),
        response_topic: Some(TOPIC.to_owned()),
        correlation: Some(correlation.into()),
        expiry_s: Some(10),
        user_properties: UserProperties::from_iter([(SOURCE, "me")]),
        ..Message::default()
    }
}

fn answer(correlation: &'static str) -> Message {
    Message {
        topic: TOPIC.into(),
        payload: Reply::Value(Value::from("21.5")).encode(),
        correlation: Some(correlation.into()),
        user_properties: UserProperties::from_iter([(STATUS, "200"), (TIMESTAMP, "1:2:StateStore")]),
        ..Message::default()
    }
}

#[test]
fn a_reply_names_the_client_of_its_request_and_the_duration() {
    let mut bench = Bench::new();
    let one = bench.request(get("a", "1"), 0);
    bench.request(get("b", "2"), 1);
    assert_eq!((one.summary.verb, one.problem), (Some("GET"), None));
    let reply = bench.reply(answer("2"), 5);
    assert_eq!(
        reply.summary,
        RequestSummary { client: Some("me".into()), verb: Some("GET"), key: Some(key("b")) }
    );
    assert_eq!(reply.elapsed, Some(Duration::from_millis(4)));
    assert_eq!(reply.version.as_deref(), Some("1:2:StateStore"));
    assert_eq!(bench.reply(answer("1"), 7).elapsed, Some(Duration::from_millis(7)));
    assert_eq!(bench.tracker.poll_timeout(), None);
    assert_eq!((bench.tracker.bytes, bench.tracker.numbers.len()), (0, 0));
}

#[test]
fn a_reply_without_its_request_names_the_client_of_its_topic() {
    let mut bench = Bench::new();
    bench.request(get("a", "1"), 0);
    let other = Message {
        topic: "clients/a/b/services/statestore/_any_/command/invoke/response".into(),
        ..answer("1")
    };
    let reply = bench.reply(other, 1);
    assert_eq!(reply.summary, RequestSummary { client: Some("a/b".into()), verb: None, key: None });
    assert_eq!(reply.elapsed, None);
}

#[test]
fn a_response_topic_of_any_shape_is_known_by_its_request() {
    let mut bench = Bench::new();
    let odd = Message { response_topic: Some("clients/odd".to_owned()), ..get("a", "1") };
    assert_eq!(bench.request(odd, 0).problem, None);
    let odd = || Message { topic: "clients/odd".into(), ..answer("1") };
    assert_eq!(bench.reply(odd(), 1).summary.key, Some(key("a")));
    assert_eq!(bench.try_see(odd(), 2), None);
}

#[test]
fn a_request_is_given_up_after_its_expiry_and_a_moment() {
    let mut bench = Bench::new();
    bench.request(get("a", "1"), 0);
    bench.request(Message { expiry_s: None, ..get("b", "2") }, 0);
    assert_eq!(bench.tracker.poll_timeout(), Some(bench.at(11_000)));
    assert!(bench.unanswered(10_999).is_empty());
    assert_eq!(bench.unanswered(11_000), [Some(key("a"))]);
    assert_eq!(bench.unanswered(31_000), [Some(key("b"))]);
    assert_eq!(bench.reply(answer("1"), 31_001).elapsed, None);
}

#[test]
fn a_request_that_is_delivered_again_has_two_replies() {
    let mut bench = Bench::new();
    bench.request(get("a", "1"), 0);
    bench.request(get("a", "1"), 3);
    for ms in [4, 5] {
        assert_eq!(bench.reply(answer("1"), ms).elapsed, Some(Duration::from_millis(ms)));
    }
    assert_eq!(bench.reply(answer("1"), 6).elapsed, None);
}

#[test]
fn no_reply_is_waited_for_that_cannot_come_or_cannot_be_seen() {
    let mut bench = Bench::new();
    let at_most_once = Message { qos: Qos::AtMostOnce, ..get("a", "1") };
    let elsewhere = Message { response_topic: Some("elsewhere".to_owned()), ..get("a", "1") };
    for (message, problem) in [
        (at_most_once, "no reply: its QoS is not 1"),
        (Message { response_topic: None, ..get("a", "1") }, "no reply: it has no response topic"),
        (Message { correlation: None, ..get("a", "1") }, "no reply: it has no correlation data"),
        (elsewhere, "reply not visible: its topic is not subscribed"),
    ] {
        assert_eq!(bench.request(message, 0).problem, Some(problem));
    }
    assert_eq!(bench.tracker.poll_timeout(), None);
}

#[test]
fn after_a_loss_nothing_is_missed_that_may_have_gone_by() {
    let mut bench = Bench::new();
    bench.request(get("a", "1"), 0);
    bench.tracker.handle_lost();
    assert_eq!(bench.tracker.poll_timeout(), None);
    assert_eq!(bench.request(get("b", "2"), 5).problem, None);
    assert_eq!(bench.reply(answer("2"), 6).summary.key, Some(key("b")));
}

#[test]
fn requests_without_end_are_forgotten_from_the_oldest() {
    let mut bench = Bench::new();
    let correlation = |number: usize| Some(Bytes::from(number.to_string()));
    for number in 0..=PENDING_MAX {
        bench.request(Message { correlation: correlation(number), ..get("a", "") }, 0);
    }
    assert_eq!(bench.tracker.pending.len(), PENDING_MAX);
    assert_eq!(bench.reply(Message { correlation: correlation(0), ..answer("") }, 1).elapsed, None);
    assert!(bench.reply(Message { correlation: correlation(1), ..answer("") }, 1).elapsed.is_some());
    let large = "k".repeat(60_000);
    for number in 0..1000 {
        bench.request(Message { correlation: correlation(number), ..get(&large, "") }, 0);
    }
    assert!(bench.tracker.bytes <= PENDING_BYTES_MAX && bench.tracker.pending.len() < 1000);
    assert_eq!(bench.tracker.numbers.len(), bench.tracker.pending.len());
    assert_eq!(bench.tracker.deadlines.len(), bench.tracker.pending.len());
}

#[test]
fn notifications_and_malformed_messages_are_events_and_other_topics_are_not() {
    let mut bench = Bench::new();
    let watched = topic::notify("w", &key("k")).unwrap();
    let message =
        Message { topic: watched.into(), payload: Notification::Delete.encode(), ..Message::default() };
    let TrafficEvent::Notification(seen) = bench.see(message, 0) else { panic!() };
    assert_eq!((&seen.client[..], seen.key, seen.change), (&b"w"[..], key("k"), Ok(Notification::Delete)));
    let nonsense = bench.request(Message { payload: "x".into(), ..get("a", "1") }, 0);
    assert_eq!((nonsense.summary.verb, nonsense.summary.client), (None, Some("me".into())));
    assert!(nonsense.request.is_err());
    assert!(bench.reply(Message { payload: "?".into(), ..answer("1") }, 1).reply.is_err());
    let other = Message { topic: "clients/me/other".into(), ..Message::default() };
    assert_eq!(bench.try_see(other, 0), None);
}

#[expect(clippy::disallowed_methods, reason = "any time will do: from here on the test moves it")]
fn origin() -> Instant {
    Instant::now()
}
