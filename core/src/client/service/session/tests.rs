//! Tests of a service's session with a simulated broker, simulated time and losses of the connection.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;

use super::super::window::{MESSAGE_PACKET_IDS, WINDOW_BYTES_MAX};
use super::*;

const KEEP_ALIVE: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const SUCCESS: ReasonCode = ReasonCode { code: 0, text: None };
/// The Receive Maximum of the client, and that of the broker.
const CLIENT_RECEIVE_MAX: u16 = 2;
const BROKER_RECEIVE_MAX: u16 = 3;

fn message(number: u32) -> Message {
    Message {
        topic: "t".into(),
        payload: Bytes::copy_from_slice(&number.to_be_bytes()),
        ..Message::default()
    }
}

fn number(message: &Message) -> u32 {
    u32::from_be_bytes(message.payload[..].try_into().unwrap())
}

fn new_session(receive_max: u16) -> Session {
    let filters = vec!["a/#".to_owned(), "b".to_owned()];
    let target = "broker:1883".to_owned();
    Session::new(Config { target, filters, receive_max, answer_timeout: ANSWER_TIMEOUT })
}

/// A packet of the client.
#[derive(Debug)]
enum Sent {
    Packet(Outgoing),
    Publish { packet_id: u16, number: u32 },
}

/// A broker that stores the session, or forgets it.
#[derive(Debug, Default)]
struct Broker {
    has_session: bool,
    subscribed: BTreeSet<String>,
    /// PUBLISHes of the client without a PUBACK.
    unacknowledged: VecDeque<u16>,
    /// The numbers of the messages of the client, as they arrived.
    received: Vec<u32>,
    /// Messages to the client, with packet ids, and those behind them.
    in_flight: VecDeque<(u16, u32)>,
    queue: VecDeque<u32>,
    next_packet_id: u16,
    /// What the client must receive: messages of a session that was not forgotten.
    owed: Vec<u32>,
}

/// A session between a simulated service and a simulated broker.
struct World {
    session: Session,
    now: Instant,
    is_connected: bool,
    to_broker: VecDeque<Sent>,
    to_client: VecDeque<Incoming>,
    broker: Broker,
    /// Messages that the service has not published yet, and the number of all.
    to_publish: VecDeque<u32>,
    produced: u32,
    requested: u32,
    has_room: bool,
    /// The numbers of the messages that the service has handled.
    handled: Vec<u32>,
    published: Vec<u32>,
    is_ready: bool,
    is_unsubscribed: bool,
    /// The messages without a PUBACK, by packet id, and the number of those that were sent on this connection.
    packet_ids: BTreeMap<u16, u32>,
    sent_now: BTreeSet<u16>,
    /// The messages that were sent in the broker's current session.
    sent_in_session: BTreeSet<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The service has a message to publish.
    Produce,
    /// Another client publishes a message to the service.
    Request,
    ToBroker,
    ToClient,
    /// The broker acknowledges the n-th message without a PUBACK.
    Acknowledge(usize),
    Room(bool),
    Lose {
        forgets: bool,
    },
    Connect,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            session: new_session(CLIENT_RECEIVE_MAX),
            now: crate::clock::monotonic(),
            is_connected: false,
            to_broker: VecDeque::new(),
            to_client: VecDeque::new(),
            broker: Broker::default(),
            to_publish: VecDeque::new(),
            produced: 0,
            requested: 0,
            has_room: true,
            handled: Vec::new(),
            published: Vec::new(),
            is_ready: false,
            is_unsubscribed: false,
            packet_ids: BTreeMap::new(),
            sent_now: BTreeSet::new(),
            sent_in_session: BTreeSet::new(),
        };
        world.step(Step::Connect);
        world
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Produce => {
                self.to_publish.push_back(self.produced);
                self.produced += 1;
            }
            Step::Request => {
                if self.broker.subscribed.len() == 2 {
                    self.broker.queue.push_back(self.requested);
                    self.broker.owed.push(self.requested);
                }
                self.requested += 1;
            }
            Step::ToBroker => {
                if let Some(sent) = self.to_broker.pop_front() {
                    self.handle_sent(sent);
                }
            }
            Step::ToClient => {
                if self.session.wants_input()
                    && let Some(incoming) = self.to_client.pop_front()
                {
                    if let Incoming::PubAck { packet_id, .. } = incoming {
                        self.packet_ids.remove(&packet_id);
                        self.sent_now.remove(&packet_id);
                    }
                    self.session.handle_incoming(incoming, self.now).unwrap();
                }
            }
            Step::Acknowledge(position) => {
                if let Some(packet_id) = self.broker.unacknowledged.remove(position) {
                    self.to_client.push_back(Incoming::PubAck { packet_id, reason: SUCCESS });
                }
            }
            Step::Room(has_room) => self.has_room = has_room,
            Step::Lose { forgets } => self.lose(forgets),
            Step::Connect => self.connect(),
        }
        self.fill();
        self.pump();
    }

    fn lose(&mut self, forgets: bool) {
        if std::mem::take(&mut self.is_connected) {
            self.session.handle_lost(None);
            self.is_ready = false;
            self.to_broker.clear();
            self.to_client.clear();
            self.sent_now.clear();
        }
        if forgets {
            let broker = &mut self.broker;
            // What it had not acknowledged, and had not even sent, is lost with the session.
            let lost = broker.in_flight.drain(..).map(|(_, number)| number).chain(broker.queue.drain(..));
            let lost: BTreeSet<u32> = lost.collect();
            broker.owed.retain(|number| !lost.contains(number));
            broker.has_session = false;
            broker.subscribed.clear();
            self.sent_in_session.clear();
        }
    }

    fn connect(&mut self) {
        if std::mem::replace(&mut self.is_connected, true) {
            return;
        }
        let is_resumed = std::mem::replace(&mut self.broker.has_session, true);
        self.broker.unacknowledged.clear();
        let again = self.broker.in_flight.iter();
        self.to_client = again.map(|(packet_id, number)| publish(*packet_id, *number)).collect();
        let limits = ConnectionLimits { receive_max: BROKER_RECEIVE_MAX, keep_alive: KEEP_ALIVE };
        self.session.handle_connected(limits, is_resumed, self.now);
    }

    fn handle_sent(&mut self, sent: Sent) {
        match sent {
            Sent::Publish { packet_id, number } => {
                self.broker.received.push(number);
                self.broker.unacknowledged.push_back(packet_id);
            }
            Sent::Packet(Outgoing::PubAck { packet_id }) => {
                let first = self.broker.in_flight.pop_front();
                assert_eq!(first.map(|(id, _)| id), Some(packet_id), "PUBACKs in the order of arrival");
            }
            Sent::Packet(Outgoing::Subscribe { packet_id, filter }) => {
                self.broker.subscribed.insert(filter);
                let reason = ReasonCode { code: 1, text: None };
                self.to_client.push_back(Incoming::SubAck { packet_id, reason });
            }
            Sent::Packet(Outgoing::Unsubscribe { packet_id, filter }) => {
                self.broker.subscribed.remove(&filter);
                self.to_client.push_back(Incoming::UnsubAck { packet_id, reason: SUCCESS });
            }
            Sent::Packet(Outgoing::Ping) => self.to_client.push_back(Incoming::Pong),
            Sent::Packet(other) => panic!("{other:?}"),
        }
        self.fill();
    }

    /// Sends messages of the broker's queue, within the client's Receive Maximum.
    fn fill(&mut self) {
        let broker = &mut self.broker;
        while self.is_connected
            && broker.in_flight.len() < CLIENT_RECEIVE_MAX.into()
            && let Some(number) = broker.queue.pop_front()
        {
            broker.next_packet_id = broker.next_packet_id % 5 + 1;
            broker.in_flight.push_back((broker.next_packet_id, number));
            self.to_client.push_back(publish(broker.next_packet_id, number));
        }
    }

    /// Does what the owner of the session does after each packet.
    fn pump(&mut self) {
        loop {
            while let Some(event) = self.session.poll_event() {
                match event {
                    Event::Ready => assert!(!std::mem::replace(&mut self.is_ready, true), "ready twice"),
                    Event::Published { tag, result } => {
                        assert_eq!(result, Ok(SUCCESS));
                        self.published.push(u32::try_from(tag).unwrap() - 1);
                    }
                    Event::Unsubscribed => self.is_unsubscribed = true,
                    Event::Authenticated { .. } | Event::Malformed(_) => panic!("{event:?}"),
                }
            }
            if !self.session.has_message() || !self.has_room {
                break;
            }
            assert!(self.is_ready, "no message before the subscriptions are in force");
            self.handled.push(number(&self.session.poll_message().unwrap()));
        }
        loop {
            if let Some(outgoing) = self.session.poll_outgoing(self.now) {
                self.to_broker.push_back(Sent::Packet(outgoing));
            } else if let Some(publish) = self.session.poll_publish(self.now) {
                let (packet_id, number) = (publish.packet_id, number(publish.message));
                assert_eq!(publish.is_duplicate, !self.sent_in_session.insert(number), "DUP of {number}");
                let other = self.packet_ids.insert(packet_id, number).filter(|other| *other != number);
                assert_eq!(other, None, "packet id {packet_id} is in use");
                assert!(self.sent_now.insert(packet_id), "{number} twice on a connection");
                assert!(self.sent_now.len() <= BROKER_RECEIVE_MAX.into(), "over the Receive Maximum");
                self.to_broker.push_back(Sent::Publish { packet_id, number });
            } else if self.session.wants_message()
                && let Some(number) = self.to_publish.pop_front()
            {
                self.session.publish(message(number), u64::from(number) + 1);
            } else {
                break;
            }
        }
    }

    /// Lets everything arrive.
    fn settle(&mut self) {
        self.step(Step::Room(true));
        self.step(Step::Connect);
        for _ in 0..10_000 {
            let is_settled = self.to_broker.is_empty()
                && self.to_client.is_empty()
                && self.broker.unacknowledged.is_empty();
            if is_settled {
                return;
            }
            [Step::ToBroker, Step::Acknowledge(0), Step::ToClient]
                .into_iter()
                .for_each(|step| self.step(step));
        }
        panic!("it does not settle");
    }

    /// Checks that everything was delivered, at least once and in order.
    fn check(mut self) {
        self.settle();
        assert!(self.session.is_idle() && self.to_publish.is_empty());
        let expected: Vec<u32> = (0..self.produced).collect();
        assert_eq!(first_ones(&self.broker.received), expected, "messages of the service");
        self.published.sort_unstable();
        assert_eq!(self.published, expected, "one end for each");
        // Messages of a forgotten session may or may not have arrived.
        let handled = first_ones(&self.handled);
        assert!(handled.is_sorted(), "{handled:?}");
        let handled: BTreeSet<u32> = handled.into_iter().collect();
        assert!(self.broker.owed.iter().all(|number| handled.contains(number)), "{:?}", self.broker.owed);
        assert!(self.is_unsubscribed || self.broker.subscribed.len() == 2);
    }
}

fn publish(packet_id: u16, number: u32) -> Incoming {
    Incoming::Publish { packet_id: Some(packet_id), message: message(number) }
}

/// Returns the numbers without those that were there before.
fn first_ones(numbers: &[u32]) -> Vec<u32> {
    let mut seen = BTreeSet::new();
    numbers.iter().copied().filter(|number| seen.insert(*number)).collect()
}

/// A run in which every kind of packet is under way at some time.
fn script() -> Vec<Step> {
    let mut steps = vec![Step::Produce, Step::ToBroker, Step::ToClient, Step::ToBroker, Step::ToClient];
    for turn in 0..8 {
        steps.extend([
            Step::Request,
            Step::Produce,
            Step::Room(turn % 3 != 1),
            Step::Produce,
            Step::ToBroker,
        ]);
        steps.extend([Step::ToClient, Step::Request, Step::Acknowledge(turn % 2), Step::ToBroker]);
        steps.extend([Step::ToClient, Step::ToClient, Step::ToBroker]);
    }
    steps
}

#[test]
fn everything_arrives_in_order_wherever_the_connection_is_lost() {
    let script = script();
    for at in 0..=script.len() {
        for forgets in [false, true] {
            // The second loss meets messages that are being sent again.
            for then in [1, 2, 5] {
                let mut world = World::new();
                for (number, step) in script.iter().enumerate() {
                    if number == at || number == at + then {
                        world.step(Step::Lose { forgets: forgets && number == at });
                        world.step(Step::Connect);
                    }
                    world.step(*step);
                }
                world.check();
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Produce),
        4 => Just(Step::Request),
        8 => Just(Step::ToBroker),
        8 => Just(Step::ToClient),
        6 => (0..3usize).prop_map(Step::Acknowledge),
        2 => any::<bool>().prop_map(Step::Room),
        1 => any::<bool>().prop_map(|forgets| Step::Lose { forgets }),
        2 => Just(Step::Connect),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn everything_arrives_in_order_through_random_losses(steps in prop::collection::vec(step(), 1..300)) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| world.step(step));
        world.check();
    }

    #[test]
    fn unsubscribing_hands_over_what_the_broker_still_has(
        steps in prop::collection::vec(step(), 1..60),
        later in prop::collection::vec(step(), 0..60),
    ) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| world.step(step));
        world.session.leave();
        later.into_iter().for_each(|step| world.step(step));
        world.settle();
        prop_assert!(world.is_unsubscribed);
        prop_assert!(world.broker.subscribed.is_empty());
        world.check();
    }
}

#[test]
fn unsubscribed_is_reported_after_the_messages_that_the_receive_maximum_held_back() {
    let mut world = World::new();
    world.settle();
    (0..5).for_each(|_| world.step(Step::Request));
    world.session.leave();
    world.pump();
    while !world.is_unsubscribed {
        [Step::ToBroker, Step::ToClient].into_iter().for_each(|step| world.step(step));
    }
    assert_eq!(world.handled, [0, 1, 2, 3, 4]);
    world.settle();
    assert!(world.broker.in_flight.is_empty(), "all are acknowledged");
}

/// A connected session that has sent its first SUBSCRIBE, without a model of the broker.
fn connected(receive_max: u16) -> (Session, Instant) {
    let (mut session, now) = (new_session(receive_max), crate::clock::monotonic());
    connect(&mut session, BROKER_RECEIVE_MAX, false, now);
    (session, now)
}

fn connect(session: &mut Session, receive_max: u16, is_resumed: bool, now: Instant) {
    session.handle_connected(ConnectionLimits { receive_max, keep_alive: KEEP_ALIVE }, is_resumed, now);
}

fn suback(session: &mut Session, code: u8, now: Instant) -> Result<(), Error> {
    let packet_id = match session.poll_outgoing(now) {
        Some(Outgoing::Subscribe { packet_id, .. }) => packet_id,
        other => panic!("no SUBSCRIBE but {other:?}"),
    };
    let reason = ReasonCode { code, text: None };
    session.handle_incoming(Incoming::SubAck { packet_id, reason }, now)
}

/// A connected session whose subscriptions are in force.
fn ready(receive_max: u16) -> (Session, Instant) {
    let (mut session, now) = connected(receive_max);
    suback(&mut session, 1, now).unwrap();
    suback(&mut session, 1, now).unwrap();
    assert_eq!(session.poll_event(), Some(Event::Ready));
    (session, now)
}

fn numbers_sent(session: &mut Session, now: Instant) -> Vec<u32> {
    std::iter::from_fn(|| session.poll_publish(now).map(|publish| number(publish.message))).collect()
}

#[test]
fn a_refused_subscription_and_one_with_qos_0_are_errors() {
    for granted in [0, 0x87] {
        let (mut session, now) = connected(9);
        suback(&mut session, 1, now).unwrap();
        let error = suback(&mut session, granted, now).unwrap_err();
        match granted {
            0 => assert_eq!(error, Error::QosTooLow { filter: "b".to_owned() }),
            code => {
                let reason = ReasonCode { code, text: None };
                assert_eq!(error, Error::SubscribeRefused { filter: "b".to_owned(), reason });
            }
        }
        assert_eq!(session.poll_event(), None);
    }
}

#[test]
fn a_missing_suback_and_a_silent_broker_are_losses() {
    let (mut session, now) = connected(9);
    let due = session.poll_timeout().unwrap();
    assert_eq!(due, now + ANSWER_TIMEOUT);
    assert!(matches!(session.handle_timeout(due), Err(Error::Timeout { after: ANSWER_TIMEOUT, .. })));
    let (mut session, now) = ready(9);
    assert_eq!(session.poll_timeout(), Some(now + KEEP_ALIVE));
    session.handle_timeout(now + KEEP_ALIVE).unwrap();
    assert_eq!(session.poll_outgoing(now + KEEP_ALIVE), Some(Outgoing::Ping));
    let due = session.poll_timeout().unwrap();
    let error = session.handle_timeout(due).unwrap_err();
    assert_eq!(error.to_string(), "lost the connection to broker:1883: no packet from the broker for 15 s");
}

#[test]
fn a_broker_is_not_silent_because_it_is_not_read_unless_its_pubacks_are_missing() {
    for is_full in [false, true] {
        let (mut session, now) = ready(9);
        for number in 0..if is_full { BROKER_RECEIVE_MAX.into() } else { 1 } {
            session.publish(message(number), 1);
        }
        numbers_sent(&mut session, now);
        let later = now + KEEP_ALIVE;
        session.handle_timeout(later).unwrap();
        session.handle_reading_paused(later);
        assert_eq!(session.handle_timeout(later + KEEP_ALIVE / 2).is_err(), is_full);
    }
}

#[test]
fn pubacks_behind_messages_that_find_no_room_are_handled() {
    let (mut session, now) = ready(2);
    session.publish(message(0), 7);
    assert_eq!(numbers_sent(&mut session, now), [0]);
    for packet_id in [1, 2] {
        assert!(session.wants_input());
        session.handle_incoming(publish(packet_id, packet_id.into()), now).unwrap();
    }
    assert!(session.wants_input());
    session.handle_incoming(Incoming::PubAck { packet_id: 1, reason: SUCCESS }, now).unwrap();
    assert_eq!(session.poll_event(), Some(Event::Published { tag: 7, result: Ok(SUCCESS) }));
    assert_eq!(session.poll_outgoing(now), None, "the held messages are not acknowledged");
    let held: Vec<_> = std::iter::from_fn(|| session.poll_message()).map(|held| number(&held)).collect();
    assert_eq!(held, [1, 2]);
    let acknowledged = std::iter::from_fn(|| session.poll_outgoing(now)).collect::<Vec<_>>();
    assert_eq!(acknowledged, [Outgoing::PubAck { packet_id: 1 }, Outgoing::PubAck { packet_id: 2 }]);
}

#[test]
fn held_messages_are_bounded_in_number_and_bytes() {
    let (mut session, now) = ready(2);
    let mut held = 0;
    while session.wants_input() {
        session.handle_incoming(publish(1, 0), now).unwrap();
        held += 1;
    }
    assert!(held > 2, "a broker that exceeds the Receive Maximum is read on");
    assert!(held * MESSAGE_BYTES <= HELD_BYTES_MAX + MESSAGE_BYTES);
    // Messages with QoS 0 do not count for the Receive Maximum, so they are dropped instead.
    let (mut session, now) = ready(2);
    for _ in 0..9 {
        assert!(session.wants_input());
        session.handle_incoming(Incoming::Publish { packet_id: None, message: message(0) }, now).unwrap();
    }
    assert_eq!(std::iter::from_fn(|| session.poll_message()).count(), 2);
    let (mut session, now) = ready(9);
    let large = Message { payload: vec![0; HELD_BYTES_MAX].into(), ..message(0) };
    session.handle_incoming(Incoming::Publish { packet_id: Some(1), message: large }, now).unwrap();
    assert!(!session.wants_input());
    assert!(session.poll_message().is_some() && session.wants_input());
}

#[test]
fn pubacks_that_the_broker_does_not_read_stop_the_reading() {
    let (mut session, now) = ready(2);
    let mut handled = 0;
    while session.wants_input() {
        session.handle_incoming(publish(1, 0), now).unwrap();
        assert!(session.poll_message().is_some());
        handled += 1;
    }
    assert_eq!(handled, OUTGOING_MAX);
    session.poll_outgoing(now).unwrap();
    assert!(session.wants_input());
}

#[test]
fn the_result_of_a_message_with_a_tag_and_every_error_is_reported() {
    let (mut session, now) = ready(9);
    [(0, 1), (1, 0), (2, 2)].into_iter().for_each(|(number, tag)| session.publish(message(number), tag));
    assert_eq!(numbers_sent(&mut session, now), [0, 1, 2]);
    let reason = |code| ReasonCode { code, text: None };
    session.handle_incoming(Incoming::PubAck { packet_id: 1, reason: reason(0x10) }, now).unwrap();
    session.handle_too_large(2, 11, 10);
    session.handle_incoming(Incoming::PubAck { packet_id: 3, reason: reason(0x97) }, now).unwrap();
    assert_eq!(session.poll_event(), Some(Event::Published { tag: 1, result: Ok(reason(0x10)) }));
    let too_large = Err(Error::TooLarge { size: 11, max: 10 });
    assert_eq!(session.poll_event(), Some(Event::Published { tag: 0, result: too_large }));
    let refused = Err(Error::PublishRefused { reason: reason(0x97) });
    assert_eq!(session.poll_event(), Some(Event::Published { tag: 2, result: refused }));
    assert_eq!(session.poll_event(), None);
    assert!(session.is_idle());
    session.publish(message(3), 0);
    assert_eq!(numbers_sent(&mut session, now), [3]);
    session.handle_incoming(Incoming::PubAck { packet_id: 4, reason: SUCCESS }, now).unwrap();
    assert_eq!(session.poll_event(), None, "success without a tag");
    // A PUBACK of nothing that was sent.
    session.handle_incoming(Incoming::PubAck { packet_id: 3, reason: SUCCESS }, now).unwrap();
    assert_eq!(session.poll_event(), None);
}

#[test]
fn messages_are_sent_again_within_a_smaller_receive_maximum() {
    let (mut session, now) = ready(9);
    (0..3).for_each(|number| session.publish(message(number), 0));
    assert_eq!(numbers_sent(&mut session, now), [0, 1, 2]);
    session.handle_lost(None);
    assert_eq!((numbers_sent(&mut session, now), session.wants_message()), (vec![], false));
    connect(&mut session, 1, true, now);
    for number in 0..3 {
        assert_eq!(numbers_sent(&mut session, now), [number]);
        assert!(!session.wants_message());
        let packet_id = u16::try_from(number).unwrap() + 1;
        session.handle_incoming(Incoming::PubAck { packet_id, reason: SUCCESS }, now).unwrap();
    }
    assert!(session.wants_message() && session.is_idle());
}

#[test]
fn packet_ids_of_messages_start_again_before_those_of_subscriptions() {
    let (mut session, now) = ready(9);
    for number in 0..u32::from(MESSAGE_PACKET_IDS) * 2 + 5 {
        session.publish(message(number), 1);
        let packet_id = session.poll_publish(now).unwrap().packet_id;
        assert_eq!(u32::from(packet_id), number % u32::from(MESSAGE_PACKET_IDS) + 1);
        session.handle_incoming(Incoming::PubAck { packet_id, reason: SUCCESS }, now).unwrap();
        assert!(matches!(session.poll_event(), Some(Event::Published { .. })));
    }
    assert!(session.is_idle());
}

#[test]
fn the_window_has_one_message_for_each_packet_id() {
    let (mut session, now) = ready(9);
    session.handle_lost(None);
    connect(&mut session, u16::MAX, false, now);
    suback(&mut session, 1, now).unwrap();
    suback(&mut session, 1, now).unwrap();
    let mut sent = BTreeSet::new();
    while session.wants_message() {
        session.publish(message(0), 0);
        assert!(sent.insert(session.poll_publish(now).unwrap().packet_id));
    }
    assert_eq!(sent.len(), usize::from(MESSAGE_PACKET_IDS));
    assert!(!sent.contains(&SUBSCRIPTION_PACKET_ID));
    // Packet ids are free again when the oldest message is acknowledged.
    session.handle_incoming(Incoming::PubAck { packet_id: 2, reason: SUCCESS }, now).unwrap();
    assert!(!session.wants_message());
    session.handle_incoming(Incoming::PubAck { packet_id: 1, reason: SUCCESS }, now).unwrap();
    assert!(session.wants_message());
}

#[test]
fn a_closing_session_ignores_messages_and_still_publishes() {
    let (mut session, now) = ready(9);
    session.publish(message(0), 0);
    session.handle_incoming(publish(1, 0), now).unwrap();
    session.close();
    session.handle_incoming(publish(2, 1), now).unwrap();
    assert!(!session.has_message());
    assert_eq!((session.poll_outgoing(now), numbers_sent(&mut session, now)), (None, vec![0]));
    // Without a session at the broker nothing is subscribed to again.
    session.handle_lost(None);
    connect(&mut session, 1, false, now);
    assert_eq!((session.poll_outgoing(now), numbers_sent(&mut session, now)), (None, vec![0]));
}

#[test]
fn new_tokens_are_sent_one_at_a_time_and_a_missing_answer_does_not_end_the_connection() {
    let (mut session, now) = ready(9);
    let token = |text: &str| Secret::new(text.as_bytes().to_vec());
    session.authenticate(token("one"), now);
    session.authenticate(token("two"), now);
    assert_eq!(session.poll_outgoing(now), Some(Outgoing::Authenticate { token: token("one") }));
    assert_eq!(session.poll_outgoing(now), None);
    session.handle_incoming(Incoming::Authenticated, now).unwrap();
    assert_eq!(session.poll_event(), Some(Event::Authenticated { is_confirmed: true }));
    assert_eq!(session.poll_outgoing(now), Some(Outgoing::Authenticate { token: token("two") }));
    session.handle_timeout(now + ANSWER_TIMEOUT).unwrap();
    assert_eq!(session.poll_event(), Some(Event::Authenticated { is_confirmed: false }));
}

/// Returns the errors of dropped messages, by tag.
fn dropped(session: &mut Session) -> Vec<(u64, String)> {
    std::iter::from_fn(|| session.poll_event())
        .filter_map(|event| match event {
            Event::Published { tag, result } => Some((tag, result.err()?.to_string())),
            _ => None,
        })
        .collect()
}

#[test]
fn a_message_with_which_the_connection_is_lost_three_times_in_a_row_is_dropped() {
    let (mut session, now) = ready(9);
    let refusal = || Some(LossCause::Other("closed".to_owned()));
    (0..3).for_each(|number| session.publish(message(number), number.into()));
    assert_eq!(numbers_sent(&mut session, now), [0, 1, 2]);
    session.handle_lost(refusal());
    // Failed attempts do not count, nor losses for other reasons.
    session.handle_lost(refusal());
    connect(&mut session, 9, true, now);
    assert_eq!(numbers_sent(&mut session, now), [0, 1, 2]);
    session.handle_lost(None);
    connect(&mut session, 9, true, now);
    assert_eq!(numbers_sent(&mut session, now), [0, 1, 2]);
    session.handle_lost(refusal());
    // The last time it is sent alone, so that no other message can be the reason.
    connect(&mut session, 9, true, now);
    assert_eq!((numbers_sent(&mut session, now), session.wants_message()), (vec![0], false));
    assert_eq!(dropped(&mut session), []);
    session.handle_lost(refusal());
    assert_eq!(dropped(&mut session), [(0, "lost the connection to broker:1883: closed".to_owned())]);
    connect(&mut session, 9, true, now);
    assert_eq!(numbers_sent(&mut session, now), [1, 2]);
    // A PUBACK ends the row.
    session.handle_lost(refusal());
    connect(&mut session, 9, true, now);
    assert_eq!(numbers_sent(&mut session, now), [1, 2]);
    session.handle_lost(refusal());
    connect(&mut session, 9, true, now);
    assert_eq!(numbers_sent(&mut session, now), [1]);
    session.handle_incoming(Incoming::PubAck { packet_id: 2, reason: SUCCESS }, now).unwrap();
    assert_eq!(numbers_sent(&mut session, now), [2]);
    session.handle_lost(refusal());
    assert_eq!(dropped(&mut session), []);
    connect(&mut session, 9, true, now);
    assert_eq!(numbers_sent(&mut session, now), [2]);
}

#[test]
fn the_window_is_bounded_in_bytes() {
    let (mut session, now) = ready(9);
    session.handle_lost(None);
    connect(&mut session, u16::MAX, true, now);
    let bytes = WINDOW_BYTES_MAX / 8;
    let mut user_properties = crate::protocol::UserProperties::default();
    (0..bytes / 60_000).for_each(|_| user_properties.push("n", &"v".repeat(60_000)));
    for large in [
        Message { payload: vec![0; bytes].into(), ..message(0) },
        Message { correlation: Some(vec![0; bytes].into()), ..message(0) },
        Message { response_topic: Some("t".repeat(bytes)), ..message(0) },
        Message { content_type: Some("t".repeat(bytes).into()), ..message(0) },
        Message { user_properties, ..message(0) },
    ] {
        let mut packet_ids = Vec::new();
        while session.wants_message() {
            session.publish(large.clone(), 0);
            packet_ids.push(session.poll_publish(now).unwrap().packet_id);
        }
        // A clone of user properties has no room for more.
        assert!((8..=9).contains(&packet_ids.len()), "{packet_ids:?}");
        for packet_id in packet_ids {
            session.handle_incoming(Incoming::PubAck { packet_id, reason: SUCCESS }, now).unwrap();
        }
        assert!(session.wants_message());
    }
    // At least one message, however large.
    session.publish(Message { payload: vec![0; WINDOW_BYTES_MAX * 2].into(), ..message(0) }, 0);
    assert!(session.poll_publish(now).is_some() && !session.wants_message());
}

#[test]
fn malformed_messages_are_acknowledged_in_the_order_of_arrival() {
    let (mut session, now) = ready(9);
    let malformed = |packet_id| MalformedMessage {
        packet_id,
        topic: Some("t".to_owned()),
        text: "malformed packet".to_owned(),
    };
    session.handle_incoming(publish(4, 0), now).unwrap();
    session.handle_malformed(malformed(Some(2)), now);
    session.handle_malformed(malformed(None), now);
    session.handle_incoming(publish(3, 1), now).unwrap();
    assert_eq!((session.poll_outgoing(now), session.poll_event()), (None, None));
    let mut handled = Vec::new();
    while session.has_message() {
        handled.extend(session.poll_message().map(|message| number(&message)));
    }
    assert_eq!(handled, [0, 1]);
    for packet_id in [4, 2, 3] {
        assert_eq!(session.poll_outgoing(now), Some(Outgoing::PubAck { packet_id }));
    }
    for packet_id in [Some(2), None] {
        assert_eq!(session.poll_event(), Some(Event::Malformed(malformed(packet_id))));
    }
    assert_eq!(session.held_bytes, 0);
}

#[test]
fn held_messages_count_with_all_their_parts() {
    let (mut session, now) = ready(9);
    let half = HELD_BYTES_MAX / 2;
    let large = Message {
        response_topic: Some("t".repeat(half)),
        correlation: Some(vec![0; half].into()),
        ..message(0)
    };
    session.handle_incoming(Incoming::Publish { packet_id: Some(1), message: large }, now).unwrap();
    assert!(!session.wants_input());
}
