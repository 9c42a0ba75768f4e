//! Tests of the session with simulated time, latency and loss.

use bytes::Bytes;

use super::*;
use crate::client::request::RequestProperties;
use crate::mqtt::decode;
use crate::net::Secret;
use crate::protocol::ResponseProperties;
use crate::protocol::message::{
    CONTENT_TYPE, KEY_FENCE, Message, PROTOCOL_VERSION, STATUS, STATUS_OK, TIME_TO_LIVE, TIMESTAMP,
};

const TIMEOUT: Duration = Duration::from_secs(10);
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const SUCCESS: ReasonCode = ReasonCode { code: 0, text: None };

/// Returns a request as the message that it is.
fn with_message(outgoing: Outgoing) -> Outgoing {
    match outgoing {
        Outgoing::Request { packet_id, request } => {
            Outgoing::Publish { packet_id, message: Box::new(request.message()) }
        }
        other => other,
    }
}

/// A session with a simulated broker and a simulated clock.
struct Bench {
    session: Session<&'static str>,
    start: Instant,
    now_ms: u64,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self::unconnected();
        bench.connect(16);
        bench
    }

    fn unconnected() -> Self {
        Self {
            session: Session::new(Config {
                target: "broker:1883".to_owned(),
                client_id: "me".to_owned(),
                identity: "client id me".to_owned(),
                request_timeout: TIMEOUT,
                inflight_max: 4,
                prefix: 7,
                clock: Timestamp::zero("node".to_owned()).unwrap(),
            }),
            start: crate::clock::monotonic(),
            now_ms: 0,
        }
    }

    fn now(&self) -> Reading {
        let monotonic = self.start + Duration::from_millis(self.now_ms);
        Reading { wall_ms: 1_700_000_000_000 + self.now_ms, monotonic }
    }

    fn connect(&mut self, receive_max: u16) {
        let now = self.now();
        self.session.handle_connected(ConnectionLimits { receive_max, keep_alive: KEEP_ALIVE }, now);
    }

    fn send(&mut self, access: Access, ticket: &'static str) {
        self.send_bytes(access, 1, ticket);
    }

    fn send_bytes(&mut self, access: Access, len: usize, ticket: &'static str) {
        let request = RawRequest { payload: vec![b'x'; len].into(), access, properties: None };
        let now = self.now();
        self.session.send(request, ticket, now);
    }

    fn publish(&mut self, ticket: &'static str) {
        self.session.publish("up".to_owned(), Bytes::from_static(b"x"), ticket);
    }

    /// Returns the ends of messages.
    fn published(&mut self) -> Vec<(&'static str, Result<ReasonCode, Error>)> {
        let published = |event| match event {
            Event::Published { ticket, result } => (ticket, result),
            other => panic!("not the end of a message: {other:?}"),
        };
        std::iter::from_fn(|| self.session.poll_event()).map(published).collect()
    }

    fn advance(&mut self, ms: u64) -> Result<(), KeepAliveTimeout> {
        self.now_ms += ms;
        let now = self.now();
        self.session.handle_timeout(now)
    }

    fn sent(&mut self) -> Vec<Outgoing> {
        let now = self.now();
        std::iter::from_fn(|| self.session.poll_outgoing(now)).map(with_message).collect()
    }

    fn sent_early(&mut self) -> Vec<Outgoing> {
        let now = self.now();
        std::iter::from_fn(|| self.session.poll_early(now)).map(with_message).collect()
    }

    fn receive(&mut self, incoming: Incoming) {
        let now = self.now();
        self.session.handle_incoming(incoming, now);
    }

    /// Returns the sent packets, and acknowledges every SUBSCRIBE among them.
    fn sent_and_subscribed(&mut self) -> Vec<Outgoing> {
        let sent = self.sent();
        for packet in &sent {
            if let Outgoing::Subscribe { packet_id, .. } = packet {
                self.receive(Incoming::SubAck { packet_id: *packet_id, reason: SUCCESS });
            }
        }
        sent
    }

    fn answer(&mut self, request: &Outgoing, properties: &[(&str, &str)]) {
        let Outgoing::Publish { message, .. } = request else { panic!("no request: {request:?}") };
        let text = |name| properties.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
        let response = decode::BorrowedResponse {
            packet_id: 1,
            correlation: message.correlation.as_deref().unwrap(),
            payload: b"+OK\r\n",
            properties: ResponseProperties {
                status: text(STATUS),
                protocol_version: text(PROTOCOL_VERSION),
                timestamp: text(TIMESTAMP),
                time_to_live: text(TIME_TO_LIVE),
                key_fence: text(KEY_FENCE),
                ..ResponseProperties::default()
            },
            packet_bytes: 0,
        };
        let now = self.now();
        self.session.handle_received_response(&response, now);
    }

    /// Answers with a message, as if the response had unusual properties.
    fn answer_as_message(&mut self, request: &Outgoing, properties: &[(&str, &str)]) {
        let Outgoing::Publish { message, .. } = request else { panic!("no request: {request:?}") };
        let message = Message {
            topic: message.response_topic.clone().unwrap().into(),
            payload: Bytes::from_static(b"+OK\r\n"),
            correlation: message.correlation.clone(),
            user_properties: properties.iter().copied().collect(),
            ..Message::default()
        };
        self.receive(Incoming::Publish { packet_id: Some(1), message });
    }

    fn answers(&mut self) -> Vec<(&'static str, Result<Response, Error>)> {
        let answer = |event| match event {
            Event::Answer { ticket, result } => (ticket, result),
            other => panic!("not an answer: {other:?}"),
        };
        std::iter::from_fn(|| self.session.poll_event()).map(answer).collect()
    }
}

/// Returns the packet ids of the PUBLISH packets.
fn packet_ids(sent: &[Outgoing]) -> Vec<u16> {
    let packet_id = |packet: &Outgoing| match packet {
        Outgoing::Publish { packet_id, .. } => Some(*packet_id),
        _ => None,
    };
    sent.iter().filter_map(packet_id).collect()
}

fn shapes(sent: &[Outgoing]) -> String {
    let shape = |packet: &Outgoing| match packet {
        Outgoing::Request { .. } | Outgoing::Publish { .. } => "PUBLISH",
        Outgoing::Subscribe { .. } => "SUBSCRIBE",
        Outgoing::Unsubscribe { .. } => "UNSUBSCRIBE",
        Outgoing::PubAck { .. } => "PUBACK",
        Outgoing::Ping => "PINGREQ",
        Outgoing::Authenticate { .. } => "AUTH",
    };
    sent.iter().map(shape).collect::<Vec<_>>().join(" ")
}

const GOOD: &[(&str, &str)] = &[(STATUS, STATUS_OK)];

#[test]
fn a_read_is_sent_with_the_subscription() {
    let mut bench = Bench::new();
    bench.send(Access::Read, "r");
    assert_eq!(shapes(&bench.sent()), "SUBSCRIBE PUBLISH");
}

#[test]
fn a_write_waits_until_the_subscription_is_in_force() {
    let mut bench = Bench::new();
    bench.send(Access::Write, "w");
    assert_eq!(shapes(&bench.sent_and_subscribed()), "SUBSCRIBE");
    assert_eq!(shapes(&bench.sent()), "PUBLISH");
}

#[test]
fn a_response_means_the_same_whether_or_not_it_is_decoded_as_a_message() {
    for properties in
        [GOOD, &[(STATUS, "500")], &[(PROTOCOL_VERSION, "2.0")], &[(TIMESTAMP, "1:0:n")], &[(TIMESTAMP, "x")]]
    {
        let [short, whole] = [Bench::answer, Bench::answer_as_message].map(|answer| {
            let mut bench = Bench::new();
            bench.send(Access::Read, "r");
            let sent = bench.sent_and_subscribed();
            answer(&mut bench, &sent[1], properties);
            assert_eq!(shapes(&bench.sent()), "PUBACK");
            bench.answers()
        });
        assert_eq!(short, whole);
        assert_eq!(short.len(), 1);
    }
}

#[test]
fn a_read_after_a_write_is_sent_after_it() {
    let mut bench = Bench::new();
    bench.send(Access::Write, "w");
    bench.send(Access::Read, "r");
    assert_eq!(shapes(&bench.sent()), "SUBSCRIBE");
}

#[test]
fn a_request_has_the_properties_of_the_protocol() {
    let mut bench = Bench::new();
    let fence: Timestamp = "1:2:StateStore".parse().unwrap();
    let properties = RequestProperties { fence: Some(fence), persist: true, ..RequestProperties::default() };
    let request = RawRequest {
        payload: Bytes::from_static(b"x"),
        access: Access::Read,
        properties: properties.shared(),
    };
    let now = bench.now();
    bench.session.send(request, "r", now);
    let sent = bench.sent();
    let Outgoing::Publish { message, packet_id } = &sent[1] else { panic!() };
    assert_ne!(*packet_id, 0);
    assert_eq!(message.topic, topic::REQUEST);
    assert_eq!(message.response_topic.as_deref(), Some(topic::response("me").as_str()));
    assert_eq!(message.correlation.as_ref().map(Bytes::len), Some(16));
    assert_eq!(message.content_type.as_deref(), Some(CONTENT_TYPE));
    assert_eq!(message.expiry_s, Some(10));
    let properties: Vec<_> = message.user_properties.iter().map(|(n, v)| format!("{n}={v}")).collect();
    assert_eq!(
        properties,
        [
            "__srcId=me",
            "__ts=001700000000000:00000:node",
            "__protVer=1.0",
            "$partition=me",
            "$high_priority=",
            "__ft=000000000000001:00002:StateStore",
            "aio-persistence=true",
        ]
    );
}

#[test]
fn responses_in_any_order_are_matched_with_their_requests() {
    let mut bench = Bench::new();
    for ticket in ["a", "b", "c"] {
        bench.send(Access::Read, ticket);
    }
    let sent = bench.sent_and_subscribed();
    for request in [&sent[3], &sent[1], &sent[2]] {
        bench.answer(request, GOOD);
    }
    let tickets: Vec<_> = bench.answers().into_iter().map(|(ticket, _)| ticket).collect();
    assert_eq!(tickets, ["c", "a", "b"]);
}

#[test]
fn a_response_to_another_session_is_ignored() {
    let mut bench = Bench::new();
    bench.send(Access::Read, "r");
    let mut sent = bench.sent_and_subscribed();
    for correlation in [&b""[..], b"short", &[0; 16], &[7; 17]] {
        let Outgoing::Publish { message, .. } = &mut sent[1] else { panic!() };
        message.correlation = Some(Bytes::copy_from_slice(correlation));
        let foreign = sent[1].clone();
        bench.answer(&foreign, GOOD);
    }
    assert!(bench.answers().is_empty());
}

#[test]
fn a_duplicate_response_is_ignored() {
    let mut bench = Bench::new();
    bench.send(Access::Read, "r");
    let sent = bench.sent_and_subscribed();
    bench.answer(&sent[1], GOOD);
    bench.answer(&sent[1], GOOD);
    assert_eq!(bench.answers().len(), 1);
    assert_eq!(shapes(&bench.sent()), "PUBACK PUBACK");
}

#[test]
fn a_write_without_a_response_times_out_with_an_unknown_outcome() {
    let mut bench = Bench::new();
    bench.send(Access::Write, "w");
    bench.sent_and_subscribed();
    bench.sent();
    bench.advance(9_999).unwrap();
    assert!(bench.answers().is_empty());
    bench.advance(1).unwrap();
    let error =
        Error::Timeout { target: "broker:1883".to_owned(), after: TIMEOUT, outcome: Outcome::Unknown };
    assert_eq!(bench.answers(), [("w", Err(error))]);
}

#[test]
fn a_write_that_was_not_sent_times_out_as_unchanged() {
    let mut bench = Bench::new();
    bench.send(Access::Write, "w");
    bench.sent();
    bench.advance(10_000).unwrap();
    let (_, result) = bench.answers().remove(0);
    assert!(matches!(result, Err(Error::Timeout { outcome: Outcome::Unchanged, .. })), "{result:?}");
    assert_eq!(shapes(&bench.sent_and_subscribed()), "", "and is not sent later");
}

#[test]
fn a_read_sent_before_the_subscription_was_in_force_is_sent_once_more() {
    let mut bench = Bench::new();
    bench.send(Access::Read, "r");
    let sent = bench.sent_and_subscribed();
    let Outgoing::Publish { packet_id, .. } = sent[1] else { panic!() };
    bench.receive(Incoming::PubAck { packet_id, reason: SUCCESS });
    bench.advance(499).unwrap();
    assert_eq!(shapes(&bench.sent()), "");
    bench.advance(1).unwrap();
    let again = bench.sent();
    assert_eq!(shapes(&again), "PUBLISH");
    let Outgoing::Publish { packet_id, .. } = again[0] else { panic!() };
    bench.receive(Incoming::PubAck { packet_id, reason: SUCCESS });
    bench.advance(5_000).unwrap();
    assert_eq!(shapes(&bench.sent()), "", "once");
    bench.answer(&again[0], GOOD);
    assert_eq!(bench.answers().len(), 1);
}

#[test]
fn a_write_is_never_sent_twice() {
    let mut bench = Bench::new();
    bench.send(Access::Write, "w");
    bench.sent_and_subscribed();
    let sent = bench.sent();
    let Outgoing::Publish { packet_id, .. } = sent[0] else { panic!() };
    bench.receive(Incoming::PubAck { packet_id, reason: SUCCESS });
    for _ in 0..9 {
        bench.advance(1_000).unwrap();
        assert_eq!(shapes(&bench.sent()), "");
    }
}

#[test]
fn requests_without_a_puback_are_limited_by_receive_maximum() {
    let mut bench = Bench::new();
    bench.connect(2);
    for ticket in ["a", "b", "c"] {
        bench.send(Access::Read, ticket);
    }
    let sent = bench.sent_and_subscribed();
    assert_eq!(shapes(&sent), "SUBSCRIBE PUBLISH PUBLISH");
    let Outgoing::Publish { packet_id, .. } = sent[1] else { panic!() };
    bench.receive(Incoming::PubAck { packet_id, reason: SUCCESS });
    assert_eq!(shapes(&bench.sent()), "PUBLISH");
}

#[test]
fn a_full_window_is_reported_to_the_owner() {
    let mut bench = Bench::new();
    for ticket in ["a", "b", "c", "d"] {
        assert!(bench.session.has_room());
        bench.send(Access::Read, ticket);
    }
    assert!(!bench.session.has_room());
}

#[test]
fn a_missing_store_is_reported_one_second_after_no_matching_subscribers() {
    let mut bench = Bench::new();
    bench.send(Access::Read, "r");
    let sent = bench.sent_and_subscribed();
    let Outgoing::Publish { packet_id, .. } = sent[1] else { panic!() };
    let reason = ReasonCode { code: ReasonCode::NO_MATCHING_SUBSCRIBERS, text: None };
    bench.receive(Incoming::PubAck { packet_id, reason });
    assert!(bench.answers().is_empty());
    bench.advance(1_000).unwrap();
    assert_eq!(bench.answers(), [("r", Err(Error::NoStore { target: "broker:1883".to_owned() }))]);
}

#[test]
fn a_refused_publish_or_subscription_fails_its_requests() {
    let denied = ReasonCode { code: ReasonCode::NOT_AUTHORIZED, text: Some("no".to_owned()) };
    let mut bench = Bench::new();
    bench.send(Access::Read, "r");
    let sent = bench.sent();
    let Outgoing::Publish { packet_id, .. } = sent[1] else { panic!() };
    bench.receive(Incoming::PubAck { packet_id, reason: denied.clone() });
    assert_eq!(bench.answers(), [("r", Err(Error::PublishRefused { reason: denied.clone() }))]);

    let mut bench = Bench::new();
    bench.send(Access::Write, "w");
    let sent = bench.sent();
    let Outgoing::Subscribe { packet_id, .. } = sent[0] else { panic!() };
    bench.receive(Incoming::SubAck { packet_id, reason: denied.clone() });
    let filter = topic::response("me");
    assert_eq!(bench.answers(), [("w", Err(Error::SubscribeRefused { filter, reason: denied }))]);
}

#[test]
fn a_refused_subscription_to_the_response_topic_is_requested_again() {
    let denied = ReasonCode { code: ReasonCode::NOT_AUTHORIZED, text: None };
    let mut bench = Bench::new();
    bench.send(Access::Write, "refused");
    let sent = bench.sent();
    let Outgoing::Subscribe { packet_id, .. } = sent[0] else { panic!() };
    bench.receive(Incoming::SubAck { packet_id, reason: denied });
    assert_eq!(bench.answers().len(), 1);
    bench.send(Access::Write, "w");
    assert_eq!(shapes(&bench.sent_and_subscribed()), "SUBSCRIBE");
    assert_eq!(shapes(&bench.sent()), "PUBLISH");
}

#[test]
fn an_invalid_response_is_an_error() {
    for properties in [
        &[(STATUS, "500")][..],
        &[(STATUS, STATUS_OK), ("__protVer", "2.0")],
        &[(STATUS, STATUS_OK), (TIMESTAMP, "yesterday")],
    ] {
        let mut bench = Bench::new();
        bench.send(Access::Write, "w");
        bench.sent_and_subscribed();
        let sent = bench.sent();
        bench.answer(&sent[0], properties);
        let (_, result) = bench.answers().remove(0);
        assert!(matches!(result, Err(Error::MalformedReply { outcome: Outcome::Unknown, .. })), "{result:?}");
    }
}

#[test]
fn a_version_more_than_sixty_seconds_ahead_is_refused() {
    for (version, skewed) in [("1700000060000:0:StateStore", false), ("1700000060001:0:StateStore", true)] {
        let mut bench = Bench::new();
        bench.send(Access::Read, "r");
        let sent = bench.sent_and_subscribed();
        bench.answer(&sent[1], &[(STATUS, STATUS_OK), (TIMESTAMP, version)]);
        let (_, result) = bench.answers().remove(0);
        assert_eq!(matches!(result, Err(Error::ClockSkew { .. })), skewed, "{result:?}");
    }
}

#[test]
fn a_request_with_its_own_timestamp_accepts_any_version_and_leaves_the_clock() {
    let mut bench = Bench::new();
    let own = Timestamp::zero("own".to_owned()).unwrap().tick(5);
    let properties = RequestProperties { timestamp: Some(own), ..RequestProperties::default() };
    let now = bench.now();
    bench.session.send(
        RawRequest {
            payload: Bytes::from_static(b"x"),
            access: Access::Read,
            properties: properties.shared(),
        },
        "own",
        now,
    );
    let sent = bench.sent_and_subscribed();
    let Outgoing::Publish { message, .. } = &sent[1] else { panic!() };
    assert_eq!(message.user_property(TIMESTAMP), Some("000000000000005:00000:own"));
    bench.answer(&sent[1], &[(TIMESTAMP, "1700000090000:0:StateStore")]);
    let (_, result) = bench.answers().remove(0);
    let response = result.unwrap();
    assert_eq!((response.version.unwrap().ms, response.has_status), (1_700_000_090_000, false));
    bench.send(Access::Read, "b");
    let sent = bench.sent();
    let Some(Outgoing::Publish { message, .. }) = sent.last() else { panic!() };
    assert!(message.user_property(TIMESTAMP).unwrap().starts_with("001700000000000:"), "{message:?}");
}

#[test]
fn a_subscription_to_the_response_topic_also_serves_the_session() {
    let mut bench = Bench::new();
    let now = bench.now();
    bench.session.subscribe(topic::response("me"), "own", now);
    assert_eq!(shapes(&bench.sent_and_subscribed()), "SUBSCRIBE");
    let event = bench.session.poll_event();
    assert!(matches!(event, Some(Event::Subscribed { ticket: "own", result: Ok(_) })), "{event:?}");
    bench.send(Access::Write, "w");
    assert_eq!(shapes(&bench.sent()), "PUBLISH");
}

#[test]
fn the_clock_follows_the_store_and_never_goes_back() {
    let mut bench = Bench::new();
    bench.send(Access::Read, "a");
    let sent = bench.sent_and_subscribed();
    bench.answer(&sent[1], &[(STATUS, STATUS_OK), (TIMESTAMP, "1700000030000:5:StateStore")]);
    bench.send(Access::Read, "b");
    let sent = bench.sent();
    let Some(Outgoing::Publish { message, .. }) = sent.last() else { panic!() };
    assert_eq!(message.user_property(TIMESTAMP), Some("001700000030000:00007:node"));
}

#[test]
fn a_lost_connection_fails_writes_as_unknown_and_resends_reads() {
    let mut bench = Bench::new();
    bench.send(Access::Read, "warm-up");
    let sent = bench.sent_and_subscribed();
    bench.answer(&sent[1], GOOD);
    bench.answers();
    bench.send(Access::Write, "w");
    bench.send(Access::Read, "r");
    bench.sent();
    bench.session.handle_lost(&"cable cut".to_owned().into());
    let answers = bench.answers();
    assert!(
        matches!(answers[..], [("w", Err(Error::Lost { outcome: Outcome::Unknown, .. }))]),
        "{answers:?}"
    );
    assert_eq!(shapes(&bench.sent()), "", "nothing is sent without a connection");
    bench.connect(16);
    assert_eq!(shapes(&bench.sent()), "SUBSCRIBE PUBLISH");
}

#[test]
fn a_cancelled_request_is_neither_resent_nor_answered() {
    let mut bench = Bench::new();
    bench.send(Access::Read, "unwanted");
    bench.send(Access::Read, "wanted");
    bench.sent();
    bench.session.handle_lost(&"gone".to_owned().into());
    bench.session.cancel(|ticket| *ticket == "unwanted");
    bench.connect(16);
    assert_eq!(shapes(&bench.sent()), "SUBSCRIBE PUBLISH");
    bench.advance(10_000).unwrap();
    let events = std::iter::from_fn(|| bench.session.poll_event()).map(|event| match event {
        Event::Answer { ticket, .. } => ticket,
        other => panic!("{other:?}"),
    });
    assert_eq!(events.collect::<Vec<_>>(), ["wanted"]);
}

#[test]
fn a_silent_broker_is_pinged_and_given_up_after_one_and_a_half_keep_alives() {
    let mut bench = Bench::new();
    bench.advance(29_999).unwrap();
    assert_eq!(shapes(&bench.sent()), "");
    bench.advance(1).unwrap();
    assert_eq!(shapes(&bench.sent()), "PINGREQ");
    bench.advance(14_999).unwrap();
    assert_eq!(bench.advance(1), Err(KeepAliveTimeout { since: bench.start }));
}

#[test]
fn a_ping_is_not_repeated_while_its_answer_is_awaited() {
    let mut bench = Bench::new();
    bench.advance(30_000).unwrap();
    assert_eq!(shapes(&bench.sent()), "PINGREQ");
    let given_up = bench.start + Duration::from_secs(45);
    assert_eq!(bench.session.poll_timeout(), Some(given_up), "no timer before the broker is given up");
    bench.advance(1).unwrap();
    assert_eq!(shapes(&bench.sent()), "");
    bench.receive(Incoming::Pong);
    bench.advance(29_999).unwrap();
    assert_eq!(shapes(&bench.sent()), "PINGREQ", "and an answered one is followed by the next");
}

#[test]
fn a_client_that_only_receives_pings_too() {
    let mut bench = Bench::new();
    bench.advance(20_000).unwrap();
    bench.receive(Incoming::Pong);
    bench.advance(9_999).unwrap();
    assert_eq!(shapes(&bench.sent()), "");
    bench.advance(1).unwrap();
    assert_eq!(shapes(&bench.sent()), "PINGREQ");
}

#[test]
fn without_a_keep_alive_a_silent_broker_is_not_given_up() {
    let mut bench = Bench::new();
    let now = bench.now();
    bench.session.handle_connected(ConnectionLimits { receive_max: 1, keep_alive: Duration::ZERO }, now);
    bench.advance(1_000_000).unwrap();
    assert_eq!((shapes(&bench.sent()).as_str(), bench.session.poll_timeout()), ("", None));
}

#[test]
fn the_time_of_the_last_packet_outlasts_pauses_and_losses() {
    let mut bench = Bench::new();
    let last_ms = |bench: &Bench| bench.session.last_packet_ms() - 1_700_000_000_000;
    assert_eq!(last_ms(&bench), 0, "the CONNACK");
    bench.advance(2_000).unwrap();
    bench.receive(Incoming::Pong);
    bench.advance(3_000).unwrap();
    let now = bench.now();
    bench.session.handle_reading_paused(now);
    bench.send(Access::Read, "r");
    bench.sent();
    assert_eq!(last_ms(&bench), 2_000);
    bench.session.handle_lost(&"cable cut".to_owned().into());
    bench.advance(1_000).unwrap();
    assert_eq!(last_ms(&bench), 2_000);
    bench.connect(16);
    assert_eq!(last_ms(&bench), 6_000);
}

#[test]
fn the_keep_alive_is_suspended_while_the_connection_is_not_read() {
    let mut bench = Bench::new();
    bench.advance(44_999).unwrap();
    let now = bench.now();
    bench.session.handle_reading_paused(now);
    bench.advance(44_999).unwrap();
}

#[test]
fn a_broker_that_is_silent_after_a_pause_is_pinged() {
    let mut bench = Bench::new();
    bench.advance(10_000).unwrap();
    let now = bench.now();
    bench.session.handle_reading_paused(now);
    bench.advance(5_000).unwrap();
    bench.session.unsubscribe("a".to_owned());
    assert_eq!(shapes(&bench.sent()), "UNSUBSCRIBE");
    bench.advance(25_000).unwrap();
    assert_eq!(shapes(&bench.sent()), "PINGREQ");
}

#[test]
fn a_subscription_is_answered_once() {
    let mut bench = Bench::new();
    let now = bench.now();
    bench.session.subscribe("a/#".to_owned(), "ok", now);
    bench.session.subscribe("b/#".to_owned(), "refused", now);
    bench.session.subscribe("c/#".to_owned(), "late", now);
    bench.session.subscribe("d/#".to_owned(), "ok with QoS 1", now);
    let ids: Vec<u16> = bench
        .sent()
        .iter()
        .map(|packet| match packet {
            Outgoing::Subscribe { packet_id, .. } => *packet_id,
            other => panic!("{other:?}"),
        })
        .collect();
    let denied = ReasonCode { code: ReasonCode::NOT_AUTHORIZED, text: None };
    bench.receive(Incoming::SubAck { packet_id: ids[0], reason: SUCCESS });
    bench.receive(Incoming::SubAck { packet_id: ids[1], reason: denied });
    bench.receive(Incoming::SubAck { packet_id: ids[3], reason: ReasonCode { code: 1, text: None } });
    bench.advance(10_000).unwrap();
    let results: Vec<_> = std::iter::from_fn(|| bench.session.poll_event())
        .map(|event| match event {
            Event::Subscribed { ticket, result } => (ticket, result.map_err(|error| error.to_string())),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(results.len(), 4);
    assert_eq!(results[0], ("ok", Ok(Qos::AtMostOnce)));
    assert!(results[1].1.as_ref().is_err_and(|error| error.contains("b/#")), "{results:?}");
    assert_eq!(results[2], ("ok with QoS 1", Ok(Qos::AtLeastOnce)));
    assert!(results[3].0 == "late" && results[3].1.is_err(), "{results:?}");
}

#[test]
fn unsubscribe_never_removes_the_subscription_to_the_response_topic() {
    let mut bench = Bench::new();
    bench.session.unsubscribe(topic::response("me"));
    assert_eq!(shapes(&bench.sent()), "");
    bench.session.unsubscribe("a/#".to_owned());
    let sent = bench.sent();
    let [Outgoing::Unsubscribe { packet_id, filter }] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(filter, "a/#");
    bench.receive(Incoming::UnsubAck { packet_id: *packet_id, reason: SUCCESS });
    assert!(bench.session.unsubscribing.is_empty() && bench.session.poll_event().is_none());
}

#[test]
fn a_broker_that_answers_pings_is_not_given_up() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        bench.advance(30_000).unwrap();
        assert_eq!(shapes(&bench.sent()), "PINGREQ");
        bench.receive(Incoming::Pong);
    }
}

#[test]
fn poll_timeout_returns_the_next_deadline() {
    let mut bench = Bench::new();
    assert_eq!(bench.session.poll_timeout(), Some(bench.start + KEEP_ALIVE));
    bench.send(Access::Read, "r");
    assert_eq!(bench.session.poll_timeout(), Some(bench.start + TIMEOUT));
}

#[test]
fn the_deadline_of_an_answered_or_cancelled_request_is_forgotten() {
    let mut bench = Bench::new();
    bench.send(Access::Read, "answered");
    bench.send(Access::Read, "cancelled");
    let sent = bench.sent_and_subscribed();
    bench.answer(&sent[1], GOOD);
    bench.session.cancel(|ticket| *ticket == "cancelled");
    assert_eq!(bench.session.poll_timeout(), Some(bench.start + KEEP_ALIVE));
}

#[test]
fn messages_are_acknowledged_if_they_have_a_packet_id() {
    let mut bench = Bench::new();
    let message = Message { topic: "a".into(), ..Message::default() };
    bench.receive(Incoming::Publish { packet_id: Some(7), message: message.clone() });
    bench.receive(Incoming::Publish { packet_id: None, message });
    assert!(matches!(bench.sent()[..], [Outgoing::PubAck { packet_id: 7 }]));
    let is_message = |event| matches!(event, Some(Event::Message(_)));
    assert!(is_message(bench.session.poll_event()) && is_message(bench.session.poll_event()));
}

#[test]
fn requests_fail_if_the_subscription_to_their_responses_is_too_large_for_the_broker() {
    let mut bench = Bench::new();
    bench.connect(1);
    bench.send(Access::Write, "a");
    let sent = bench.sent();
    let Outgoing::Subscribe { packet_id, .. } = sent[0] else { panic!("{sent:?}") };
    bench.session.handle_too_large(packet_id, 9, 8, bench.now());
    let reason = ReasonCode { code: 0x95, text: Some("9 bytes; the broker accepts at most 8".to_owned()) };
    let answers = bench.answers();
    assert!(
        matches!(&answers[..], [("a", Err(Error::SubscribeRefused { reason: refused, .. }))] if *refused == reason),
        "{answers:?}"
    );
}

#[test]
fn a_request_that_is_too_large_fails_and_frees_its_packet_id() {
    let mut bench = Bench::new();
    bench.connect(1);
    bench.send(Access::Read, "large");
    bench.send(Access::Read, "next");
    let sent = bench.sent();
    let Outgoing::Publish { packet_id, .. } = sent[1] else { panic!("{sent:?}") };
    bench.session.handle_too_large(packet_id, 9, 8, bench.now());
    assert_eq!(bench.answers(), [("large", Err(Error::TooLarge { size: 9, max: 8 }))]);
    assert_eq!(shapes(&bench.sent()), "PUBLISH");
}

#[test]
fn the_end_of_the_session_fails_every_request_with_its_outcome() {
    let mut bench = Bench::new();
    bench.send(Access::Read, "warm-up");
    bench.sent_and_subscribed();
    bench.send(Access::Write, "sent");
    bench.sent();
    bench.send(Access::Write, "unsent");
    bench.session.handle_closed(bench_error);
    let mut answers = bench.answers();
    answers.sort_by_key(|(ticket, _)| *ticket);
    let outcomes = answers.into_iter().map(|(ticket, result)| (ticket, result.unwrap_err()));
    let expected = [
        ("sent", bench_error(Outcome::Unknown)),
        ("unsent", bench_error(Outcome::Unchanged)),
        ("warm-up", bench_error(Outcome::Unchanged)),
    ];
    assert!(outcomes.eq(expected));
    assert!(bench.session.has_room() && bench.sent().is_empty());
}

fn bench_error(outcome: Outcome) -> Error {
    Error::Timeout { target: "h:1".to_owned(), after: Duration::from_secs(1), outcome }
}

#[test]
fn reads_are_sent_again_in_their_order_after_a_loss() {
    let mut bench = Bench::new();
    for ticket in ["a", "b", "c", "d", "e", "f"] {
        bench.send(Access::Read, ticket);
    }
    bench.sent_and_subscribed();
    bench.session.handle_lost(&"cable cut".to_owned().into());
    bench.connect(16);
    for packet in bench.sent_and_subscribed() {
        bench.answer_if_request(&packet);
    }
    let tickets: Vec<_> = bench.answers().into_iter().map(|(ticket, _)| ticket).collect();
    assert_eq!(tickets, ["a", "b", "c", "d", "e", "f"]);
}

impl Bench {
    fn answer_if_request(&mut self, packet: &Outgoing) {
        if matches!(packet, Outgoing::Publish { .. }) {
            self.answer(packet, GOOD);
        }
    }
}

#[test]
fn nothing_of_a_lost_connection_is_used_on_the_next_one() {
    let mut bench = Bench::new();
    bench.connect(1);
    let now = bench.now();
    bench.session.subscribe("a/#".to_owned(), "a", now);
    bench.send(Access::Read, "r");
    let sent = bench.sent();
    let Outgoing::Subscribe { packet_id, .. } = sent[0] else { panic!("{sent:?}") };
    bench.session.unsubscribe("b/#".to_owned());
    bench.session.handle_lost(&"cable cut".to_owned().into());
    assert!(bench.session.unsubscribing.is_empty() && bench.session.subscribing.is_empty());
    bench.connect(1);
    assert_eq!(shapes(&bench.sent()), "SUBSCRIBE PUBLISH", "no UNSUBSCRIBE, and the read has room");
    bench.receive(Incoming::SubAck { packet_id, reason: SUCCESS });
    bench.advance(10_000).unwrap();
    assert_eq!(bench.answers().len(), 1, "the read; the subscription has no answer");
}

#[test]
fn a_sent_packet_postpones_the_next_ping() {
    let mut bench = Bench::new();
    bench.advance(25_000).unwrap();
    bench.session.unsubscribe("a".to_owned());
    assert_eq!(shapes(&bench.sent()), "UNSUBSCRIBE");
    bench.receive(Incoming::Pong);
    bench.advance(29_999).unwrap();
    assert_eq!(shapes(&bench.sent()), "");
    bench.advance(1).unwrap();
    assert_eq!(shapes(&bench.sent()), "PINGREQ");
}

#[test]
fn a_read_acknowledged_before_the_suback_is_sent_again_after_it() {
    let mut bench = Bench::new();
    bench.send(Access::Read, "acknowledged");
    bench.send(Access::Read, "pending");
    let sent = bench.sent();
    let (Outgoing::Subscribe { packet_id: subscription, .. }, Outgoing::Publish { packet_id, .. }) =
        (&sent[0], &sent[1])
    else {
        panic!("{sent:?}")
    };
    bench.receive(Incoming::PubAck { packet_id: *packet_id, reason: SUCCESS });
    bench.advance(5_000).unwrap();
    assert_eq!(shapes(&bench.sent()), "", "not before the subscription is in force");
    bench.receive(Incoming::SubAck { packet_id: *subscription, reason: SUCCESS });
    bench.advance(500).unwrap();
    assert_eq!(shapes(&bench.sent()), "PUBLISH", "the other one is not acknowledged yet");
}

#[test]
fn an_expiry_is_the_time_left_in_whole_seconds_rounded_up() {
    let mut bench = Bench::new();
    bench.send(Access::Write, "w");
    bench.advance(9_001).unwrap();
    bench.sent_and_subscribed();
    let sent = bench.sent();
    let Outgoing::Publish { message, .. } = &sent[0] else { panic!("{sent:?}") };
    assert_eq!(message.expiry_s, Some(1));
}

#[test]
fn the_longest_timeout_is_within_the_range_of_the_clock() {
    let mut bench = Bench::new();
    let config = Config { request_timeout: Duration::MAX, ..bench.session.config.clone() };
    bench.session = Session::new(config);
    bench.connect(16);
    bench.send(Access::Read, "r");
    bench.advance(1_000_000).unwrap_err();
    assert!(bench.answers().is_empty());
}

#[test]
fn packet_ids_remain_for_subscriptions_however_many_requests_are_unacknowledged() {
    let mut bench = Bench::new();
    bench.connect(u16::MAX);
    for _ in 0..=u16::MAX {
        bench.send(Access::Read, "r");
    }
    assert_eq!(bench.sent().len(), 1 + UNACKNOWLEDGED_MAX);
    let now = bench.now();
    bench.session.subscribe("a/#".to_owned(), "a", now);
    assert_eq!(shapes(&bench.sent()), "SUBSCRIBE");
}

#[test]
fn packet_ids_in_use_are_not_reused() {
    let mut bench = Bench::new();
    bench.connect(u16::MAX);
    let mut used = std::collections::HashSet::new();
    bench.send(Access::Read, "pending");
    for _ in 0..70_000 {
        bench.send(Access::Read, "r");
        for packet in bench.sent_and_subscribed() {
            let Outgoing::Publish { packet_id, .. } = packet else { continue };
            assert!(packet_id != 0 && used.insert(packet_id), "{packet_id} is in use");
            bench.answer(&packet, GOOD);
            if used.len() > 1 {
                bench.receive(Incoming::PubAck { packet_id, reason: SUCCESS });
                used.remove(&packet_id);
            }
        }
        bench.answers();
    }
}

#[test]
fn the_packet_ids_of_pending_subscriptions_and_unsubscriptions_are_not_reused() {
    let mut bench = Bench::new();
    bench.connect(u16::MAX);
    let now = bench.now();
    bench.session.subscribe("a/#".to_owned(), "a", now);
    bench.session.unsubscribe("b/#".to_owned());
    bench.send(Access::Read, "r");
    let mut pending = Vec::new();
    for packet in bench.sent() {
        match packet {
            Outgoing::Subscribe { packet_id, .. } | Outgoing::Unsubscribe { packet_id, .. } => {
                pending.push(packet_id);
            }
            Outgoing::Publish { packet_id, .. } => {
                bench.receive(Incoming::PubAck { packet_id, reason: SUCCESS });
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        pending.len(),
        3,
        "two subscriptions, one of them to the response topic, and one unsubscription"
    );
    for _ in 0..=u16::MAX {
        bench.send(Access::Read, "r");
        for packet in bench.sent() {
            let Outgoing::Publish { packet_id, .. } = packet else { panic!("{packet:?}") };
            assert!(!pending.contains(&packet_id), "{packet_id} is in use");
            bench.answer(&packet, GOOD);
            bench.receive(Incoming::PubAck { packet_id, reason: SUCCESS });
        }
        bench.sent();
        bench.answers();
    }
}

#[test]
fn a_read_with_a_pending_resend_is_sent_once_after_a_loss() {
    let mut bench = Bench::new();
    bench.connect(1);
    bench.send(Access::Read, "r");
    let sent = bench.sent_and_subscribed();
    let Outgoing::Publish { packet_id, .. } = sent[1] else { panic!() };
    bench.receive(Incoming::PubAck { packet_id, reason: SUCCESS });
    bench.session.handle_lost(&"cable cut".to_owned().into());
    bench.advance(1_000).unwrap();
    bench.connect(1);
    let sent = bench.sent_and_subscribed();
    assert_eq!(shapes(&sent), "SUBSCRIBE PUBLISH");
    let Outgoing::Publish { packet_id, .. } = sent[1] else { panic!() };
    bench.receive(Incoming::PubAck { packet_id, reason: SUCCESS });
    bench.answer(&sent[1], GOOD);
    assert_eq!(bench.answers().len(), 1);
    bench.send(Access::Read, "next");
    assert!(shapes(&bench.sent()).contains("PUBLISH"), "what follows is not held up");
}

#[test]
fn no_matching_subscribers_is_forgotten_with_the_connection() {
    let mut bench = Bench::new();
    bench.send(Access::Read, "r");
    let sent = bench.sent_and_subscribed();
    let Outgoing::Publish { packet_id, .. } = sent[1] else { panic!() };
    let reason = ReasonCode { code: ReasonCode::NO_MATCHING_SUBSCRIBERS, text: None };
    bench.receive(Incoming::PubAck { packet_id, reason });
    bench.session.handle_lost(&"cable cut".to_owned().into());
    bench.connect(16);
    bench.advance(2_000).unwrap();
    assert!(bench.answers().is_empty());
}

fn tokens(sent: &[Outgoing]) -> Vec<&[u8]> {
    fn token(packet: &Outgoing) -> &[u8] {
        match packet {
            Outgoing::Authenticate { token } => token.bytes(),
            other => panic!("no token: {other:?}"),
        }
    }
    sent.iter().map(token).collect()
}

impl Bench {
    fn authenticate(&mut self, token: &str) {
        let now = self.now();
        self.session.authenticate(Secret::new(token.into()), now);
    }

    fn confirmed(&mut self) -> Option<bool> {
        match self.session.poll_event() {
            Some(Event::Authenticated { is_confirmed }) => Some(is_confirmed),
            None => None,
            Some(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_new_token_is_sent_at_once_and_confirmed() {
    let mut bench = Bench::new();
    bench.authenticate("two\n");
    assert_eq!(tokens(&bench.sent()), [b"two\n"]);
    bench.receive(Incoming::Authenticated);
    assert_eq!(bench.confirmed(), Some(true));
    bench.advance(u64::try_from(TIMEOUT.as_millis()).unwrap()).unwrap();
    assert_eq!(bench.confirmed(), None, "its deadline is gone");
}

#[test]
fn each_token_has_its_own_deadline() {
    let mut bench = Bench::new();
    bench.authenticate("one");
    bench.sent();
    bench.receive(Incoming::Authenticated);
    assert_eq!(bench.confirmed(), Some(true));
    bench.advance(6_000).unwrap();
    bench.authenticate("two");
    bench.sent();
    bench.advance(9_999).unwrap();
    assert_eq!(bench.confirmed(), None);
    bench.advance(1).unwrap();
    assert_eq!(bench.confirmed(), Some(false));
}

#[test]
fn one_token_is_sent_at_a_time_and_then_only_the_newest() {
    let mut bench = Bench::new();
    for token in ["one", "two", "three"] {
        bench.authenticate(token);
    }
    assert_eq!(tokens(&bench.sent()), [b"one"]);
    bench.receive(Incoming::Authenticated);
    assert_eq!(tokens(&bench.sent()), [b"three"]);
    bench.receive(Incoming::Authenticated);
    assert_eq!((bench.confirmed(), bench.confirmed(), bench.confirmed()), (Some(true), Some(true), None));
    assert!(bench.sent().is_empty());
}

#[test]
fn an_unanswered_token_is_reported_and_the_session_continues() {
    let mut bench = Bench::new();
    bench.authenticate("one");
    bench.authenticate("two");
    bench.sent();
    let timeout_ms = u64::try_from(TIMEOUT.as_millis()).unwrap();
    bench.advance(timeout_ms - 1).unwrap();
    assert_eq!(bench.confirmed(), None);
    bench.advance(1).unwrap();
    assert_eq!(bench.confirmed(), Some(false));
    assert_eq!(tokens(&bench.sent()), [b"two"]);
    bench.send(Access::Read, "r");
    assert_eq!(shapes(&bench.sent()), "SUBSCRIBE PUBLISH");
}

#[test]
fn a_token_is_forgotten_with_its_connection() {
    let mut bench = Bench::new();
    bench.authenticate("one");
    bench.authenticate("two");
    bench.session.handle_lost(&"reset".to_owned().into());
    bench.authenticate("three");
    bench.connect(16);
    assert!(bench.sent().is_empty(), "the next connection has read the file");
    bench.receive(Incoming::Authenticated);
    assert_eq!(bench.confirmed(), None, "no authentication was requested");
    bench.advance(u64::try_from(TIMEOUT.as_millis()).unwrap()).unwrap();
    assert_eq!(bench.confirmed(), None);
    bench.authenticate("four");
    assert_eq!(tokens(&bench.sent()), [b"four"]);
}

#[test]
fn a_message_has_qos_1_and_no_properties_and_needs_no_subscription() {
    let mut bench = Bench::new();
    bench.publish("m");
    let sent = bench.sent();
    assert_eq!(shapes(&sent), "PUBLISH");
    let Outgoing::Publish { message, .. } = &sent[0] else { panic!() };
    let expected = Message { topic: "up".into(), payload: Bytes::from_static(b"x"), ..Message::default() };
    assert_eq!(**message, expected);
    bench.receive(Incoming::PubAck { packet_id: packet_ids(&sent)[0], reason: SUCCESS });
    bench.receive(Incoming::PubAck { packet_id: packet_ids(&sent)[0], reason: SUCCESS });
    assert_eq!(bench.published(), [("m", Ok(SUCCESS))], "once");
}

#[test]
fn requests_and_messages_are_sent_in_the_order_of_the_calls() {
    let mut bench = Bench::new();
    bench.publish("first");
    bench.send(Access::Write, "w");
    bench.publish("last");
    let sent = bench.sent_and_subscribed();
    assert_eq!(shapes(&sent), "SUBSCRIBE PUBLISH", "the write waits for the subscription");
    let sent = bench.sent();
    let topics = sent.iter().map(|packet| match packet {
        Outgoing::Publish { message, .. } => &*message.topic,
        other => panic!("{other:?}"),
    });
    assert_eq!(topics.collect::<Vec<_>>(), [topic::REQUEST, "up"]);
}

#[test]
fn messages_count_for_receive_maximum_and_for_the_window() {
    let mut bench = Bench::new();
    bench.connect(2);
    for ticket in ["a", "b", "c"] {
        bench.publish(ticket);
    }
    let sent = bench.sent();
    assert_eq!(shapes(&sent), "PUBLISH PUBLISH");
    assert!(bench.session.has_room());
    bench.publish("d");
    assert!(!bench.session.has_room());
    bench.receive(Incoming::PubAck { packet_id: packet_ids(&sent)[0], reason: SUCCESS });
    assert!(bench.session.has_room());
    assert_eq!(shapes(&bench.sent()), "PUBLISH");
}

#[test]
fn a_message_ends_with_the_reason_of_its_puback() {
    let denied = ReasonCode { code: ReasonCode::NOT_AUTHORIZED, text: Some("no".to_owned()) };
    let unheard = ReasonCode { code: ReasonCode::NO_MATCHING_SUBSCRIBERS, text: None };
    let mut bench = Bench::new();
    bench.publish("unheard");
    bench.publish("denied");
    bench.publish("too large");
    let ids = packet_ids(&bench.sent());
    bench.receive(Incoming::PubAck { packet_id: ids[0], reason: unheard.clone() });
    bench.receive(Incoming::PubAck { packet_id: ids[1], reason: denied.clone() });
    bench.session.handle_too_large(ids[2], 9, 8, bench.now());
    let ends = [
        ("unheard", Ok(unheard)),
        ("denied", Err(Error::PublishRefused { reason: denied })),
        ("too large", Err(Error::TooLarge { size: 9, max: 8 })),
    ];
    assert_eq!(bench.published(), ends);
}

#[test]
fn a_lost_connection_fails_messages_which_are_not_sent_again() {
    let mut bench = Bench::new();
    bench.connect(1);
    bench.publish("sent");
    bench.publish("waiting");
    assert_eq!(shapes(&bench.sent()), "PUBLISH");
    let cause: LossCause = "cable cut".to_owned().into();
    bench.session.handle_lost(&cause);
    let error = |outcome| Error::Lost { target: "broker:1883".to_owned(), cause: cause.clone(), outcome };
    let ends = [("sent", Err(error(Outcome::Unknown))), ("waiting", Err(error(Outcome::Unchanged)))];
    assert_eq!(bench.published(), ends);
    bench.connect(16);
    assert_eq!(shapes(&bench.sent()), "");
    bench.publish("next");
    assert_eq!(shapes(&bench.sent()), "PUBLISH");
}

#[test]
fn a_message_waits_for_a_connection_and_ends_with_the_session() {
    let mut bench = Bench::new();
    bench.session.handle_lost(&"cable cut".to_owned().into());
    bench.publish("waiting");
    bench.session.cancel(|ticket| *ticket == "other");
    bench.connect(16);
    assert_eq!(shapes(&bench.sent()), "PUBLISH");
    bench.publish("unsent");
    bench.session.handle_closed(|_| Error::Closed);
    assert_eq!(bench.published(), [("waiting", Err(Error::Closed)), ("unsent", Err(Error::Closed))]);
    assert_eq!(shapes(&bench.sent()), "");
}

#[test]
fn a_refused_subscription_to_the_response_topic_fails_no_message() {
    let mut bench = Bench::new();
    bench.send(Access::Write, "w");
    bench.publish("m");
    let sent = bench.sent();
    let Outgoing::Subscribe { packet_id, .. } = sent[0] else { panic!() };
    let denied = ReasonCode { code: ReasonCode::NOT_AUTHORIZED, text: None };
    bench.receive(Incoming::SubAck { packet_id, reason: denied });
    assert_eq!(bench.answers().len(), 1);
    assert_eq!(shapes(&bench.sent()), "PUBLISH");
}

#[test]
fn before_connack_only_the_subscription_and_small_reads_are_sent() {
    let mut bench = Bench::unconnected();
    bench.publish("m");
    assert_eq!(shapes(&bench.sent_early()), "");
    let mut bench = Bench::unconnected();
    bench.send(Access::Write, "w");
    bench.send(Access::Read, "after the write");
    assert_eq!(shapes(&bench.sent_early()), "SUBSCRIBE");
    let mut bench = Bench::unconnected();
    bench.send(Access::Read, "r");
    bench.send_bytes(Access::Read, 4096, "large");
    bench.send(Access::Read, "after the large one");
    assert_eq!(shapes(&bench.sent_early()), "SUBSCRIBE PUBLISH");
    let mut bench = Bench::unconnected();
    (0..20).for_each(|_| bench.send(Access::Read, "r"));
    assert_eq!(packet_ids(&bench.sent_early()).len(), 8);
}

#[test]
fn a_long_client_id_sends_nothing_before_connack() {
    let mut bench = Bench::unconnected();
    Arc::get_mut(&mut bench.session.requester).unwrap().response_topic = "x".repeat(5000);
    bench.send(Access::Read, "r");
    assert_eq!(shapes(&bench.sent_early()), "");
    bench.connect(16);
    assert_eq!(shapes(&bench.sent()), "SUBSCRIBE PUBLISH");
}

#[test]
fn packets_before_connack_are_answered_after_it_and_not_sent_again() {
    let mut bench = Bench::unconnected();
    bench.send(Access::Read, "r");
    bench.send(Access::Write, "w");
    let sent = bench.sent_early();
    bench.connect(16);
    assert_eq!(shapes(&bench.sent()), "");
    bench.receive(Incoming::SubAck { packet_id: 1, reason: SUCCESS });
    bench.receive(Incoming::PubAck { packet_id: 2, reason: SUCCESS });
    assert_eq!(packet_ids(&bench.sent()), [3]);
    bench.answer(&sent[1], GOOD);
    assert!(matches!(bench.answers()[..], [("r", Ok(_))]));
}

#[test]
fn the_receive_maximum_of_connack_counts_the_reads_before_it() {
    let mut bench = Bench::unconnected();
    for ticket in ["a", "b", "c"] {
        bench.send(Access::Read, ticket);
    }
    assert_eq!(packet_ids(&bench.sent_early()), [2, 3, 4]);
    bench.send(Access::Read, "d");
    bench.connect(2);
    assert_eq!(shapes(&bench.sent()), "");
    bench.receive(Incoming::PubAck { packet_id: 2, reason: SUCCESS });
    assert_eq!(shapes(&bench.sent()), "");
    bench.receive(Incoming::PubAck { packet_id: 3, reason: SUCCESS });
    assert_eq!(shapes(&bench.sent()), "PUBLISH");
}

#[test]
fn reads_of_a_failed_attempt_to_connect_are_sent_with_the_next_one() {
    let mut bench = Bench::unconnected();
    bench.send(Access::Read, "r");
    bench.send(Access::Write, "w");
    bench.sent_early();
    assert!(bench.session.has_unacknowledged_early_packets());
    bench.session.handle_lost(&"closed".to_owned().into());
    assert!(!bench.session.has_unacknowledged_early_packets());
    assert!(bench.answers().is_empty());
    bench.connect(16);
    assert_eq!(shapes(&bench.sent()), "SUBSCRIBE PUBLISH");
}

impl Bench {
    fn subscribed(&mut self, packet_id: u16) {
        self.receive(Incoming::SubAck { packet_id, reason: SUCCESS });
    }

    fn acknowledged(&mut self, packet_id: u16) {
        self.receive(Incoming::PubAck { packet_id, reason: SUCCESS });
    }

    fn reports_dropped_packets(&mut self) -> bool {
        match self.session.poll_event() {
            Some(Event::EarlyPacketsDropped) => true,
            None => false,
            Some(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn each_early_packet_may_be_the_cause_of_a_loss_until_it_is_acknowledged() {
    let mut bench = Bench::unconnected();
    assert!(!bench.session.has_unacknowledged_early_packets());
    (0..3).for_each(|_| bench.send(Access::Read, "r"));
    let sent = bench.sent_early();
    bench.connect(16);
    bench.receive(Incoming::Pong);
    bench.subscribed(1);
    bench.acknowledged(3);
    bench.acknowledged(2);
    bench.answer(&sent[1], GOOD);
    assert!(bench.session.has_unacknowledged_early_packets(), "4");
    bench.acknowledged(4);
    assert!(!bench.session.has_unacknowledged_early_packets());
}

#[test]
fn early_packets_that_the_broker_has_dropped_are_sent_again_in_their_order() {
    let mut bench = Bench::unconnected();
    bench.send(Access::Read, "a");
    bench.send(Access::Read, "b");
    bench.send(Access::Write, "w");
    let sent = bench.sent_early();
    assert_eq!((shapes(&sent).as_str(), packet_ids(&sent)), ("SUBSCRIBE PUBLISH PUBLISH", vec![2, 3]));
    bench.connect(2);
    bench.receive(Incoming::Pong);
    bench.advance(999).unwrap();
    assert_eq!((shapes(&bench.sent()).as_str(), bench.reports_dropped_packets()), ("", false));
    bench.advance(1).unwrap();
    assert!(bench.reports_dropped_packets());
    assert!(!bench.session.has_unacknowledged_early_packets(), "a loss has another cause");
    // The dropped reads no longer count for Receive Maximum.
    let again = bench.sent();
    assert_eq!((shapes(&again).as_str(), packet_ids(&again)), ("SUBSCRIBE PUBLISH PUBLISH", vec![5, 6]));
    bench.advance(5_000).unwrap();
    assert_eq!((shapes(&bench.sent()).as_str(), bench.reports_dropped_packets()), ("", false), "once");
    bench.subscribed(4);
    bench.acknowledged(5);
    assert_eq!(packet_ids(&bench.sent()), [7], "the write");
    bench.answer(&again[1], GOOD);
    bench.answer(&again[2], GOOD);
    assert!(matches!(bench.answers()[..], [("a", Ok(_)), ("b", Ok(_))]));
}

#[test]
fn early_packets_of_a_reconnect_are_sent_again_too() {
    let mut bench = Bench::new();
    bench.send(Access::Read, "r");
    bench.sent_and_subscribed();
    bench.session.handle_lost(&"gone".to_owned().into());
    assert_eq!(shapes(&bench.sent_early()), "SUBSCRIBE PUBLISH");
    bench.connect(16);
    bench.advance(1_000).unwrap();
    assert!(bench.reports_dropped_packets());
    let again = bench.sent_and_subscribed();
    bench.answer(&again[1], GOOD);
    assert!(matches!(bench.answers()[..], [("r", Ok(_))]));
    bench.send(Access::Write, "w");
    assert_eq!(shapes(&bench.sent()), "PUBACK PUBLISH");
}

#[test]
fn a_short_timeout_leaves_time_for_the_answer_to_packets_that_are_sent_again() {
    let mut bench = Bench::unconnected();
    bench.session.config.request_timeout = Duration::from_millis(600);
    bench.send(Access::Read, "r");
    bench.sent_early();
    bench.connect(16);
    bench.advance(300).unwrap();
    assert_eq!(shapes(&bench.sent()), "SUBSCRIBE PUBLISH");
}

#[test]
fn a_slow_answer_to_an_early_read_behind_a_suback_is_waited_for() {
    let mut bench = Bench::unconnected();
    bench.send(Access::Read, "r");
    let sent = bench.sent_early();
    bench.connect(16);
    bench.subscribed(1);
    bench.advance(5_000).unwrap();
    assert_eq!((shapes(&bench.sent()).as_str(), bench.reports_dropped_packets()), ("", false));
    bench.acknowledged(2);
    bench.answer(&sent[1], GOOD);
    assert!(matches!(bench.answers()[..], [("r", Ok(_))]));
}

#[test]
fn a_suback_that_is_too_late_changes_nothing() {
    let mut bench = Bench::unconnected();
    bench.send(Access::Read, "r");
    let early = bench.sent_early();
    bench.connect(16);
    bench.advance(1_000).unwrap();
    assert!(bench.reports_dropped_packets());
    let again = bench.sent();
    bench.subscribed(1);
    bench.acknowledged(2);
    bench.answer(&early[1], GOOD);
    assert!(matches!(bench.answers()[..], [("r", Ok(_))]));
    bench.subscribed(3);
    bench.answer(&again[1], GOOD);
    assert!(bench.answers().is_empty());
}

#[test]
fn a_write_that_was_sent_beside_an_unacknowledged_early_read_has_an_unknown_outcome_after_a_loss() {
    let mut bench = Bench::unconnected();
    bench.send(Access::Read, "r");
    bench.send(Access::Write, "w");
    bench.sent_early();
    bench.connect(16);
    bench.subscribed(1);
    assert_eq!(shapes(&bench.sent()), "PUBLISH");
    assert!(bench.session.has_unacknowledged_early_packets());
    bench.session.handle_lost(&"receive maximum exceeded".to_owned().into());
    assert!(matches!(bench.answers()[..], [("w", Err(Error::Lost { outcome: Outcome::Unknown, .. }))]));
    bench.connect(16);
    assert_eq!(shapes(&bench.sent_and_subscribed()), "SUBSCRIBE PUBLISH");
    assert_eq!(shapes(&bench.sent()), "", "the write is not repeated");
}

#[test]
fn a_read_that_is_sent_before_the_first_connack_expires_after_the_whole_timeout() {
    let mut bench = Bench::unconnected();
    bench.send(Access::Read, "r");
    bench.advance(9_900).unwrap();
    let sent = bench.sent_early();
    let Outgoing::Publish { message, .. } = &sent[1] else { panic!("{sent:?}") };
    assert_eq!(message.expiry_s, Some(10), "its time begins with the CONNACK");
}

#[test]
fn the_time_of_a_request_begins_with_the_first_connection() {
    let mut bench = Bench::unconnected();
    bench.send(Access::Read, "r");
    bench.sent_early();
    bench.advance(10_000).unwrap();
    assert_eq!(bench.session.poll_timeout(), None);
    bench.connect(16);
    bench.subscribed(1);
    bench.advance(9_999).unwrap();
    assert!(bench.answers().is_empty());
    bench.advance(1).unwrap();
    assert!(matches!(bench.answers()[..], [("r", Err(Error::Timeout { .. }))]));
    // After a loss, the time goes on.
    bench.send(Access::Read, "waiting");
    bench.session.handle_lost(&"gone".to_owned().into());
    bench.advance(10_000).unwrap();
    assert!(matches!(bench.answers()[..], [("waiting", Err(Error::Timeout { .. }))]));
}

#[test]
fn canceled_requests_at_the_head_of_the_queue_are_not_sent() {
    let mut bench = Bench::unconnected();
    bench.connect(1);
    bench.send(Access::Read, "sent");
    let sent = bench.sent_and_subscribed();
    for ticket in ["dropped", "dropped", "next", "dropped"] {
        bench.send(Access::Read, ticket);
    }
    bench.session.cancel_next(|ticket| *ticket == "dropped");
    assert_eq!(bench.session.requests.len(), 3, "one is behind a request that is sent");
    let Some(Outgoing::Publish { packet_id, .. }) = sent.last() else { panic!("{sent:?}") };
    bench.receive(Incoming::PubAck { packet_id: *packet_id, reason: SUCCESS });
    assert!(matches!(bench.sent()[..], [Outgoing::Publish { .. }]));
    bench.session.cancel_next(|ticket| *ticket == "dropped");
    assert!(bench.session.unsent.is_empty());
}
