//! The service connection with a broker whose packets each test writes itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{Notify, mpsc, watch as observe};
use tokio::time::timeout;

use super::*;
use crate::client::error::{Error, ReasonCode};
use crate::client::settings::{Settings, Target};
use crate::client::trace::{Packet, TraceEvent, Tracer};
use crate::mqtt::packet::{ConnAck, Connect, OutgoingPublish};
use crate::mqtt::{self, Decoded, Incoming, ProtocolVersion, decode, encode};
use crate::protocol::Message;
use crate::protocol::message::Qos;

/// A test that takes longer hangs.
const HANG: Duration = Duration::from_secs(60);
const V5: ProtocolVersion = ProtocolVersion::V5;
const EXPIRY: Duration = Duration::from_secs(30);

fn message(topic: &str) -> Message {
    Message { topic: topic.to_owned().into(), payload: "payload".into(), ..Message::default() }
}

/// A service that answers each message with one to `answer/` and the topic.
struct Node {
    state: observe::Sender<State>,
    changed: Notify,
}

#[derive(Clone, Debug, Default)]
struct State {
    connected: Vec<ServiceConnected>,
    lost: Vec<String>,
    handled: Vec<String>,
    malformed: Vec<(Option<String>, String)>,
    to_publish: VecDeque<(Message, u64)>,
    published: Vec<(u64, Result<ReasonCode, Error>)>,
    is_busy: bool,
    /// The messages to publish at which there is no room for another one; 0: no limit.
    answers_max: usize,
}

impl Node {
    fn new() -> Arc<Self> {
        Arc::new(Self { state: observe::Sender::new(State::default()), changed: Notify::new() })
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        self.state.send_modify(change);
        self.changed.notify_one();
    }

    async fn wait_for(&self, condition: impl FnMut(&State) -> bool) -> State {
        let mut state = self.state.subscribe();
        let met = timeout(HANG, state.wait_for(condition)).await.map(|state| state.unwrap().clone());
        met.unwrap_or_else(|_| panic!("{:?}", self.state.borrow()))
    }
}

impl ServiceNode for Node {
    fn handle_connected(&self, accepted: &ServiceConnected) {
        self.state.send_modify(|state| state.connected.push(*accepted));
    }

    fn handle_lost(&self, cause: &Error) {
        self.state.send_modify(|state| state.lost.push(cause.to_string()));
    }

    fn handle_message(&self, message: Message) {
        self.state.send_modify(|state| {
            assert!(!state.is_busy);
            let answer = Message { topic: format!("answer/{}", message.topic).into(), ..message.clone() };
            state.to_publish.push_back((answer, u64::try_from(state.handled.len()).unwrap() + 1));
            state.handled.push(message.topic.into_owned());
        });
    }

    fn handle_malformed(&self, topic: Option<String>, text: String) {
        self.state.send_modify(|state| state.malformed.push((topic, text)));
    }

    fn poll_message(&self) -> Option<(Message, u64)> {
        let mut next = None;
        self.state.send_if_modified(|state| {
            next = state.to_publish.pop_front();
            next.is_some()
        });
        next
    }

    fn handle_published(&self, tag: u64, result: Result<ReasonCode, Error>) {
        self.state.send_modify(|state| state.published.push((tag, result)));
    }

    fn has_room(&self) -> bool {
        let state = self.state.borrow();
        !state.is_busy && (state.answers_max == 0 || state.to_publish.len() < state.answers_max)
    }

    fn changed(&self) -> &Notify {
        &self.changed
    }
}

/// The broker's end of one connection.
struct Peer {
    stream: DuplexStream,
    input: BytesMut,
}

impl Peer {
    async fn read(&mut self) -> usize {
        timeout(HANG, self.stream.read_buf(&mut self.input)).await.unwrap().unwrap()
    }

    /// Returns the next packet, and whether it has the DUP flag.
    async fn receive_with_dup(&mut self) -> (Incoming, bool) {
        loop {
            let is_duplicate = self.input.first().is_some_and(|first| first & 0x08 != 0);
            match decode::decode(V5, &mut self.input, u32::MAX).unwrap() {
                Decoded::Packet(packet) => return (packet, is_duplicate),
                Decoded::Missing(_) => assert_ne!(self.read().await, 0, "the client closed"),
            }
        }
    }

    async fn receive(&mut self) -> Incoming {
        self.receive_with_dup().await.0
    }

    /// Returns topic, packet id and DUP flag of a PUBLISH.
    async fn receive_publish(&mut self) -> (String, u16, bool) {
        match self.receive_with_dup().await {
            (Incoming::Publish(publish), is_duplicate) => {
                (publish.message.topic.into_owned(), publish.packet_id, is_duplicate)
            }
            other => panic!("no PUBLISH but {other:?}"),
        }
    }

    async fn send(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let mut output = BytesMut::new();
        write(&mut output);
        timeout(HANG, self.stream.write_all(&output)).await.unwrap().unwrap();
    }

    async fn accept(&mut self, session_present: bool) -> Connect {
        let connect = match self.receive().await {
            Incoming::Connect(connect) => *connect,
            other => panic!("no CONNECT but {other:?}"),
        };
        let receive_maximum = 4;
        let connack =
            ConnAck { session_present, receive_maximum, packet_bytes_max: 1000, ..ConnAck::default() };
        self.send(|output| encode::connack(V5, &connack, output)).await;
        connect
    }

    async fn grant(&mut self, result: Result<Qos, mqtt::ReasonCode>) -> String {
        let Incoming::Subscribe { packet_id, requests } = self.receive().await else {
            panic!("no SUBSCRIBE");
        };
        assert_eq!(requests[0].options.qos, Qos::AtLeastOnce);
        self.send(|output| encode::suback(V5, packet_id, &[result], output)).await;
        requests[0].filter.clone()
    }

    async fn acknowledge(&mut self, packet_id: u16) {
        self.send(|output| encode::puback(V5, packet_id, mqtt::ReasonCode::Success, output)).await;
    }
}

fn put_publish(packet_id: u16, topic: &str, output: &mut BytesMut) {
    put_message(packet_id, &message(topic), output);
}

fn put_message(packet_id: u16, message: &Message, output: &mut BytesMut) {
    let publish = OutgoingPublish {
        message,
        qos: Qos::AtLeastOnce,
        retain: false,
        dup: false,
        packet_id: Some(packet_id),
        expiry_s: None,
        alias: None,
        subscription_ids: &[],
        bytes_max: None,
    };
    encode::publish(V5, &publish, output).unwrap();
}

/// Writes a PUBLISH with QoS 1 and some properties, valid or not.
fn put_raw_publish(packet_id: u16, topic: &str, properties: &[u8], output: &mut BytesMut) {
    let varint = |number: usize| -> Vec<u8> {
        let digits: Vec<_> =
            [0, 7, 14].iter().map(|shift| number >> shift).take_while(|rest| *rest > 0).collect();
        let last = digits.len().saturating_sub(1);
        let byte =
            |(at, rest): (usize, &usize)| u8::try_from(rest & 0x7F).unwrap() | u8::from(at < last) << 7;
        digits.iter().enumerate().map(byte).collect()
    };
    let topic_bytes = u16::try_from(topic.len()).unwrap().to_be_bytes();
    let properties_bytes = varint(properties.len());
    let head = [&topic_bytes[..], topic.as_bytes(), &packet_id.to_be_bytes(), &properties_bytes].concat();
    let packet_bytes = varint(head.len() + properties.len());
    output.extend_from_slice(&[&[0x32], &packet_bytes[..], &head, properties].concat());
}

/// The network of a test: returns the broker's end of each connection.
struct Network(mpsc::UnboundedReceiver<DuplexStream>);

impl Network {
    async fn next(&mut self) -> Peer {
        let stream = timeout(HANG, self.0.recv()).await.unwrap().unwrap();
        Peer { stream, input: BytesMut::new() }
    }

    /// Accepts the connection that begins a session, and the next one, which uses it.
    async fn begin_session(&mut self) -> Peer {
        let connect = self.next().await.accept(false).await;
        assert_eq!((connect.clean_start, connect.session_expiry_s), (true, 30));
        let mut peer = self.next().await;
        let connect = peer.accept(true).await;
        assert_eq!(
            (connect.clean_start, connect.session_expiry_s, connect.receive_maximum),
            (false, 30, 100)
        );
        peer
    }
}

fn network() -> (ServiceSettings, Network) {
    let (sender, peers) = mpsc::unbounded_channel();
    let target = Target::Pipe(Arc::new(move || {
        let (client, broker) = tokio::io::duplex(64 * 1024);
        sender.send(broker).unwrap();
        client
    }));
    let client = Settings::new(target, "service".to_owned());
    let filters = vec!["requests".to_owned()];
    (ServiceSettings { client, filters, session_expiry: EXPIRY, receive_max: 100 }, Network(peers))
}

/// Starts a connection that is subscribed, and returns the broker's end of it.
async fn start(node: &Arc<Node>) -> (ServiceConnection, Peer, Network) {
    let (settings, mut network) = network();
    let accept = async {
        let mut peer = network.begin_session().await;
        assert_eq!(peer.grant(Ok(Qos::AtLeastOnce)).await, "requests");
        peer
    };
    let (connection, peer) = tokio::join!(ServiceConnection::start(settings, Arc::clone(node)), accept);
    (connection.unwrap(), peer, network)
}

#[tokio::test]
async fn a_batch_of_messages_is_acknowledged_and_answered_in_one_write() {
    let node = Node::new();
    let (_connection, mut peer, _network) = start(&node).await;
    let accepted = ServiceConnected { is_resumed: false, receive_max: 4, packet_bytes_max: Some(1000) };
    assert_eq!(node.wait_for(|_| true).await.connected, [accepted]);
    peer.send(|output| (1..=3).for_each(|number| put_publish(number, &format!("{number}"), output))).await;
    peer.read().await;
    for number in 1..=3 {
        assert_eq!(
            decode::decode(V5, &mut peer.input, u32::MAX),
            Ok(Decoded::Packet(Incoming::PubAck(number)))
        );
    }
    for number in 1..=3 {
        assert!(!peer.input.is_empty(), "more than one write");
        assert_eq!(peer.receive_publish().await, (format!("answer/{number}"), number, false));
    }
    for packet_id in 1..=3 {
        peer.acknowledge(packet_id).await;
    }
    let success = Ok(ReasonCode { code: 0, text: None });
    let published = node.wait_for(|state| state.published.len() == 3).await.published;
    assert_eq!(published, [(1, success.clone()), (2, success.clone()), (3, success)]);
}

#[tokio::test]
async fn room_that_publishing_makes_is_used_at_once() {
    let node = Node::new();
    let (_connection, mut peer, _network) = start(&node).await;
    node.change(|state| state.answers_max = 1);
    peer.send(|output| (1..=3).for_each(|number| put_publish(number, &format!("{number}"), output))).await;
    for number in 1..=3 {
        assert_eq!(peer.receive().await, Incoming::PubAck(number));
        assert_eq!(peer.receive_publish().await.0, format!("answer/{number}"));
    }
}

#[tokio::test]
async fn a_lost_connection_is_resumed_and_unacknowledged_messages_are_sent_again() {
    let node = Node::new();
    let (connection, mut peer, mut network) = start(&node).await;
    node.change(|state| state.to_publish.extend([(message("first"), 0), (message("second"), 7)]));
    assert_eq!(peer.receive_publish().await, ("first".to_owned(), 1, false));
    assert_eq!(peer.receive_publish().await, ("second".to_owned(), 2, false));
    peer.acknowledge(1).await;
    // An answer shows that the PUBACK has been read.
    peer.send(|output| put_publish(9, "x", output)).await;
    assert_eq!(peer.receive().await, Incoming::PubAck(9));
    drop(peer);
    let mut peer = network.next().await;
    let connect = peer.accept(true).await;
    assert_eq!((connect.clean_start, connect.session_expiry_s), (false, 30));
    assert_eq!(peer.receive_publish().await, ("second".to_owned(), 2, true));
    let (topic, packet_id, _) = peer.receive_publish().await;
    assert_eq!((topic.as_str(), packet_id), ("answer/x", 3));
    peer.acknowledge(2).await;
    let state = node.wait_for(|state| !state.published.is_empty()).await;
    assert_eq!((state.published[0].0, state.connected[1].is_resumed), (7, true));
    assert_eq!(state.lost, ["lost the connection to embedded store: connection closed by the other side"]);
    // A broker without the session.
    drop(peer);
    let mut peer = network.next().await;
    peer.accept(false).await;
    let (mut is_subscribed, mut packet_ids) = (false, Vec::new());
    while !is_subscribed || packet_ids.is_empty() {
        match peer.receive_with_dup().await {
            (Incoming::Subscribe { packet_id, .. }, _) => {
                is_subscribed = true;
                peer.send(|output| encode::suback(V5, packet_id, &[Ok(Qos::AtLeastOnce)], output)).await;
            }
            (Incoming::Publish(publish), false) => packet_ids.push(publish.packet_id),
            other => panic!("{other:?}"),
        }
    }
    peer.acknowledge(packet_ids[0]).await;
    node.wait_for(|state| state.connected.len() == 3).await;
    let close = connection.close(HANG);
    let disconnect = async {
        let disconnect = peer.receive().await;
        assert_eq!(disconnect, Incoming::Disconnect { is_normal: true, session_expiry_s: Some(0) });
        assert_eq!(peer.read().await, 0);
    };
    assert!(tokio::join!(close, disconnect).0);
}

#[tokio::test]
async fn messages_wait_while_the_node_has_no_room() {
    let node = Node::new();
    let (_connection, mut peer, _network) = start(&node).await;
    node.change(|state| state.is_busy = true);
    peer.send(|output| put_publish(1, "x", output)).await;
    // It is published all the same, and its PUBACK behind the message is read.
    node.change(|state| state.to_publish.push_back((message("first"), 5)));
    assert_eq!(peer.receive_publish().await.0, "first");
    peer.acknowledge(1).await;
    assert_eq!(node.wait_for(|state| !state.published.is_empty()).await.handled, [""; 0]);
    node.change(|state| state.is_busy = false);
    assert_eq!(peer.receive().await, Incoming::PubAck(1));
    assert_eq!(peer.receive_publish().await.0, "answer/x");
}

#[tokio::test]
async fn a_graceful_end_answers_what_has_arrived_before() {
    let node = Node::new();
    let (mut connection, mut peer, _network) = start(&node).await;
    let broker = async {
        let Incoming::Unsubscribe { packet_id, filters } = peer.receive().await else { panic!() };
        assert_eq!(filters, ["requests"]);
        // Messages that the broker has begun to send before, and after.
        peer.send(|output| put_publish(1, "before", output)).await;
        peer.send(|output| encode::unsuback(V5, packet_id, &[mqtt::ReasonCode::Success], output)).await;
        peer.send(|output| put_publish(2, "after", output)).await;
        loop {
            match peer.receive().await {
                Incoming::PingReq => peer.send(encode::pingresp).await,
                Incoming::PubAck(_) => {}
                Incoming::Publish(publish) => peer.acknowledge(publish.packet_id).await,
                other => break other,
            }
        }
    };
    let end = async {
        assert!(connection.unsubscribe(HANG).await);
        assert_eq!(node.wait_for(|_| true).await.handled, ["before", "after"]);
        assert!(connection.close(HANG).await);
    };
    let (disconnect, ()) = tokio::join!(broker, end);
    assert_eq!(disconnect, Incoming::Disconnect { is_normal: true, session_expiry_s: Some(0) });
    assert_eq!(node.wait_for(|_| true).await.published.len(), 2);
}

#[tokio::test]
async fn closing_does_not_wait_for_pubacks_longer_than_allowed() {
    let node = Node::new();
    let (connection, mut peer, _network) = start(&node).await;
    node.change(|state| state.to_publish.push_back((message("first"), 0)));
    assert_eq!(peer.receive_publish().await.0, "first");
    assert!(!connection.close(Duration::from_millis(1)).await);
    assert!(matches!(peer.receive().await, Incoming::Disconnect { .. }));
}

#[tokio::test]
async fn a_refused_subscription_or_connection_is_an_error_of_the_start() {
    let (settings, mut network) = network();
    let refuse = async {
        let mut peer = network.begin_session().await;
        peer.grant(Ok(Qos::AtMostOnce)).await;
        peer
    };
    let (started, _peer) = tokio::join!(ServiceConnection::start(settings.clone(), Node::new()), refuse);
    assert_eq!(started.unwrap_err(), Error::QosTooLow { filter: "requests".to_owned() });
    let (started, ()) = tokio::join!(ServiceConnection::start(settings, Node::new()), async {
        network.next().await;
    });
    assert!(matches!(started.unwrap_err(), Error::Connect { .. }));
}

#[tokio::test]
async fn a_session_takeover_ends_the_connection_for_good() {
    let node = Node::new();
    let (mut connection, mut peer, mut network) = start(&node).await;
    peer.send(|output| encode::disconnect(V5, mqtt::ReasonCode::SessionTakenOver, "", None, output)).await;
    let error = timeout(HANG, connection.ended()).await.unwrap();
    assert!(matches!(&error, Error::Lost { cause, .. } if cause.is_takeover()), "{error:?}");
    assert_eq!(network.0.recv().await.map(|_| ()), None, "no other attempt, and the task has ended");
    assert!(!connection.unsubscribe(HANG).await);
    assert!(!connection.close(HANG).await);
}

#[tokio::test]
async fn a_refused_reconnect_is_reported_and_tried_again() {
    let node = Node::new();
    let (_connection, peer, mut network) = start(&node).await;
    drop(peer);
    let mut peer = network.next().await;
    peer.receive().await;
    let reason = mqtt::ReasonCode::NotAuthorized;
    peer.send(|output| encode::connack_error(V5, reason, "wait", None, output)).await;
    let mut peer = network.next().await;
    peer.accept(true).await;
    let state = node.wait_for(|state| state.connected.len() == 2).await;
    assert_eq!(state.lost[1], "embedded store rejected the connection: not authorized (0x87): wait");
}

#[tokio::test]
async fn a_malformed_message_is_acknowledged_and_reported_and_the_connection_stays() {
    const EMPTY_RESPONSE_TOPIC: &[u8] = b"\x08\0\0";
    let node = Node::new();
    let (_connection, mut peer, _network) = start(&node).await;
    let user_properties = b"\x26\0\0\0\0".repeat(8193);
    peer.send(|output| {
        put_publish(1, "x", output);
        put_raw_publish(2, "poison", EMPTY_RESPONSE_TOPIC, output);
        put_raw_publish(3, "requests", &user_properties, output);
        put_publish(4, "y", output);
    })
    .await;
    let mut acknowledged = Vec::new();
    while acknowledged.len() < 4 {
        match peer.receive().await {
            Incoming::PubAck(packet_id) => acknowledged.push(packet_id),
            Incoming::Publish(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(acknowledged, [1, 2, 3, 4]);
    let state = node.wait_for(|_| true).await;
    let reported = |topic: &str, text: &str| (Some(topic.to_owned()), format!("malformed packet: {text}"));
    let expected = [
        reported("poison", "property 0x08 has an invalid value"),
        reported("requests", "packet has more than 8192 user properties"),
    ];
    assert_eq!((state.malformed, state.handled), (expected.to_vec(), vec!["x".to_owned(), "y".to_owned()]));
    assert_eq!(state.lost, [""; 0]);
}

#[tokio::test]
async fn a_packet_that_cannot_be_read_twice_in_a_row_ends_the_session_of_the_broker() {
    let node = Node::new();
    let (_connection, mut peer, mut network) = start(&node).await;
    for is_new in [false, true, false] {
        // PUBLISH with the packet id 0.
        peer.send(|output| put_raw_publish(0, "x", b"\x01\0", output)).await;
        if is_new {
            peer = network.begin_session().await;
            assert_eq!(peer.grant(Ok(Qos::AtLeastOnce)).await, "requests");
        } else {
            peer = network.next().await;
            assert!(!peer.accept(true).await.clean_start);
        }
    }
    // Losses for other reasons do not count.
    drop(peer);
    let mut peer = network.next().await;
    assert!(!peer.accept(true).await.clean_start);
}

#[tokio::test]
async fn a_message_that_makes_the_broker_close_the_connection_is_dropped_and_reported() {
    let node = Node::new();
    let (_connection, mut peer, mut network) = start(&node).await;
    node.change(|state| state.to_publish.extend([(message("secret"), 0), (message("answer"), 7)]));
    for _ in 0..3 {
        assert_eq!(peer.receive_publish().await.0, "secret");
        let reason = mqtt::ReasonCode::NotAuthorized;
        peer.send(|output| encode::disconnect(V5, reason, "no", None, output)).await;
        peer = network.next().await;
        peer.accept(true).await;
    }
    let (topic, packet_id, _) = peer.receive_publish().await;
    assert_eq!(topic, "answer");
    peer.acknowledge(packet_id).await;
    let published = node.wait_for(|state| state.published.len() == 2).await.published;
    let (tag, error) = (published[0].0, published[0].1.clone().unwrap_err().to_string());
    let expected =
        "lost the connection to embedded store: the broker ended the connection: not authorized (0x87): no";
    assert_eq!((tag, error.as_str()), (0, expected));
    assert_eq!(published[1], (7, Ok(ReasonCode { code: 0, text: None })));
}

#[tokio::test]
async fn closing_without_a_connection_waits_only_if_there_is_something_to_publish() {
    let node = Node::new();
    let (connection, peer, _network) = start(&node).await;
    drop(peer);
    node.wait_for(|state| !state.lost.is_empty()).await;
    assert!(timeout(HANG, connection.close(HANG * 60)).await.unwrap());
    let node = Node::new();
    let (connection, peer, mut network) = start(&node).await;
    drop(peer);
    node.wait_for(|state| !state.lost.is_empty()).await;
    node.change(|state| state.to_publish.push_back((message("last"), 0)));
    let broker = async {
        let mut peer = network.next().await;
        peer.accept(true).await;
        loop {
            match peer.receive().await {
                Incoming::Publish(publish) => {
                    assert_eq!(publish.message.topic, "last");
                    peer.acknowledge(publish.packet_id).await;
                }
                Incoming::Unsubscribe { .. } => {}
                other => break other,
            }
        }
    };
    let (is_drained, disconnect) = tokio::join!(connection.close(HANG), broker);
    assert!(is_drained);
    assert_eq!(disconnect, Incoming::Disconnect { is_normal: true, session_expiry_s: Some(0) });
}

#[tokio::test]
async fn the_session_is_ended_also_if_the_caller_does_not_wait_for_it() {
    let node = Node::new();
    let (connection, mut peer, _network) = start(&node).await;
    node.change(|state| state.to_publish.push_back((message("first"), 0)));
    assert_eq!(peer.receive_publish().await.0, "first");
    // Longer than a busy machine takes to the first poll.
    let close = connection.close(Duration::from_millis(500));
    timeout(Duration::ZERO, close).await.unwrap_err();
    let disconnect = Incoming::Disconnect { is_normal: true, session_expiry_s: Some(0) };
    assert_eq!(peer.receive().await, disconnect);
}

#[tokio::test]
async fn fewer_messages_are_requested_after_a_loss_with_too_many_in_front_of_pubacks() {
    const MESSAGES: u16 = 64;
    let node = Node::new();
    let (mut settings, mut network) = network();
    let received = observe::Sender::new(0);
    let count = received.clone();
    settings.client.tracer = Some(Tracer::new(true, move |event, _| {
        if matches!(event, TraceEvent::Received(Packet::Publish { .. })) {
            count.send_modify(|count| *count += 1);
        }
    }));
    let accept = async {
        let mut peer = network.begin_session().await;
        peer.grant(Ok(Qos::AtLeastOnce)).await;
        peer
    };
    let (connection, mut peer) = tokio::join!(ServiceConnection::start(settings, Arc::clone(&node)), accept);
    node.change(|state| {
        state.is_busy = true;
        state.to_publish.extend((0..4).map(|tag| (message("first"), tag)));
    });
    for _ in 0..4 {
        assert_eq!(peer.receive_publish().await.0, "first");
    }
    let large = Message { payload: vec![0; 1024 * 1024].into(), ..message("requests") };
    for packet_id in 1..=MESSAGES {
        peer.send(|output| put_message(packet_id, &large, output)).await;
    }
    timeout(HANG, received.subscribe().wait_for(|count| *count == MESSAGES)).await.unwrap().unwrap();
    drop(peer);
    // The connection is not read, so its end is seen when something is written.
    let mut connection = connection.unwrap();
    let (_, connect) = tokio::join!(connection.unsubscribe(Duration::from_millis(1)), async {
        network.next().await.accept(true).await
    });
    assert_eq!(connect.receive_maximum, 50);
}
