//! The broker as its clients see it, packet by packet.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt;

use super::codec::wire::{
    ConnectReturnCode, Disconnect, DisconnectProperties, DisconnectReasonCode, LastWill, LastWillProperties,
    Packet, PubAck, PubAckReason, PubComp, PubRec, PubRel, PubRelReason, Publish, QoS, RetainForwardRule,
    Subscribe, SubscribeFilter, SubscribeReasonCode, UnsubAckReason, Unsubscribe,
};
use super::reason::Reason;
use super::test_client::{Client, Hello, filter, qos_0, qos_1, retained, with_properties};
use super::{Application, Broker, ConnectionId, Peer, Verdict};
use crate::protocol::message::{Message, Qos};
use crate::server::{Event, ListenerSettings, Server, Settings};

async fn start() -> Server {
    start_with(Settings::default()).await
}

async fn start_with(settings: Settings) -> Server {
    Server::start(settings, Arc::new(())).await.unwrap()
}

fn qos_2(topic: &str, packet_id: u16) -> Publish {
    Publish { qos: QoS::ExactlyOnce, ..qos_1(topic, packet_id) }
}

fn will(topic: &str, delay_s: u32) -> LastWill {
    let properties = LastWillProperties {
        delay_interval: Some(delay_s),
        payload_format_indicator: None,
        message_expiry_interval: None,
        content_type: None,
        response_topic: None,
        correlation_data: None,
        user_properties: Vec::new(),
    };
    LastWill::new(topic, "gone", QoS::AtLeastOnce, false, Some(properties))
}

/// Answers on `answer/…` by a push to the sender, consumes `consume`, and throws out on `leave`.
#[derive(Default)]
struct Echo {
    gone: Mutex<Vec<ConnectionId>>,
    seen: Mutex<Vec<Peer>>,
}

impl Application for Echo {
    fn handle_publish(&self, broker: &Broker, from: &Peer, message: Message) -> Verdict {
        self.seen.lock().unwrap().push(from.clone());
        if message.topic == "leave" {
            return Verdict::Disconnect { reason: Reason::NotAuthorized, text: "go".to_owned() };
        }
        assert_ne!(message.topic, "fail", "as the test wants it");
        if message.topic.starts_with("answer/") {
            broker.push(from.connection, message);
            return Verdict::Consumed;
        }
        Verdict::Route(message)
    }

    fn handle_disconnect(&self, _: &Broker, peer: &Peer) {
        self.gone.lock().unwrap().push(peer.connection);
    }
}

async fn start_echo() -> (Server, Arc<Echo>) {
    let echo = Arc::new(Echo::default());
    (Server::start(Settings::default(), Arc::clone(&echo) as Arc<dyn Application>).await.unwrap(), echo)
}

#[tokio::test]
async fn a_connack_announces_the_limits() {
    let server = start().await;
    let (mut client, connack) = Client::connect_with(&server, Hello::new("a")).await;
    assert_eq!((connack.code, connack.session_present), (ConnectReturnCode::Success, false));
    let properties = connack.properties.unwrap();
    assert_eq!(properties.receive_max, Some(1024));
    assert_eq!(properties.max_packet_size, Some(64 * 1024 * 1024));
    assert_eq!(properties.topic_alias_max, Some(16));
    assert_eq!(properties.assigned_client_identifier, None);
    client.hear_nothing().await;
    client.disconnect().await;
}

#[tokio::test]
async fn a_client_without_an_id_gets_one() {
    let server = start().await;
    let (_one, first) = Client::connect_with(&server, Hello::new("")).await;
    let (_two, second) = Client::connect_with(&server, Hello::new("")).await;
    let ids = [first, second].map(|connack| connack.properties.unwrap().assigned_client_identifier.unwrap());
    assert!(ids[0].starts_with("mqkv-") && ids[0] != ids[1], "{ids:?}");
}

#[tokio::test]
async fn a_message_reaches_its_subscribers_with_all_its_properties() {
    let server = start().await;
    let mut subscriber = Client::connect(&server, "subscriber").await;
    let suback = subscriber.subscribe_with(filter("a/+"), Some(7)).await;
    assert_eq!(suback.return_codes, [SubscribeReasonCode::Success(QoS::AtLeastOnce)]);
    let mut publisher = Client::connect(&server, "publisher").await;
    let sent = with_properties(qos_1("a/b", 3), |properties| {
        properties.payload_format_indicator = Some(1);
        properties.message_expiry_interval = Some(100);
        properties.response_topic = Some("back".to_owned());
        properties.correlation_data = Some(Bytes::from_static(b"\0\xff"));
        properties.content_type = Some("text".to_owned());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        properties.user_properties = vec![pair("b", "1"), pair("a", "2"), pair("b", "0"), pair("", "")];
    });
    publisher.publish(sent.clone()).await;
    assert_eq!(publisher.hear_puback().await, PubAckReason::Success);
    let heard = subscriber.hear_publish().await;
    assert_eq!((heard.qos, heard.dup, heard.retain), (QoS::AtLeastOnce, false, false));
    assert_eq!((&heard.topic[..], &heard.payload[..]), (&b"a/b"[..], &b"payload"[..]));
    let mut expected = sent.properties.unwrap();
    expected.subscription_identifiers = vec![7];
    assert_eq!(heard.properties.unwrap(), expected);
}

#[tokio::test]
async fn overlapping_subscriptions_bring_one_message_with_all_identifiers() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe_with(SubscribeFilter::new("a/#", QoS::AtMostOnce), Some(1)).await;
    client.subscribe_with(filter("a/b"), Some(2)).await;
    client.publish(qos_1("a/b", 1)).await;
    assert_eq!(client.hear_puback().await, PubAckReason::Success);
    let heard = client.hear_publish().await;
    assert_eq!(heard.qos, QoS::AtLeastOnce);
    let mut identifiers = heard.properties.unwrap().subscription_identifiers;
    identifiers.sort_unstable();
    assert_eq!(identifiers, [1, 2]);
    client.hear_nothing().await;
}

#[tokio::test]
async fn qos_0_is_not_acknowledged_and_nobody_subscribing_is_said_to_qos_1() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(qos_0("nobody")).await;
    client.publish(qos_1("nobody", 1)).await;
    assert_eq!(client.hear_puback().await, PubAckReason::NoMatchingSubscribers);
}

#[tokio::test]
async fn qos_2_is_published_once_however_often_it_is_sent() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(SubscribeFilter::new("a", QoS::ExactlyOnce)).await;
    client.publish(qos_2("a", 5)).await;
    assert_eq!(client.hear().await, Packet::PubRec(PubRec::new(5, None)));
    let heard = client.hear_publish().await;
    assert_eq!((heard.qos, heard.pkid), (QoS::ExactlyOnce, 1));
    client.publish(Publish { dup: true, ..qos_2("a", 5) }).await;
    assert_eq!(client.hear().await, Packet::PubRec(PubRec::new(5, None)));
    client.hear_nothing().await;
    client.say(Packet::PubRel(PubRel::new(5, None))).await;
    assert_eq!(client.hear().await, Packet::PubComp(PubComp::new(5, None)));
    client.say(Packet::PubRec(PubRec::new(1, None))).await;
    assert_eq!(client.hear().await, Packet::PubRel(PubRel::new(1, None)));
    client.say(Packet::PubComp(PubComp::new(1, None))).await;
    client.say(Packet::PubRec(PubRec::new(1, None))).await;
    let unknown = PubRel { pkid: 1, reason: PubRelReason::PacketIdentifierNotFound, properties: None };
    assert_eq!(client.hear().await, Packet::PubRel(unknown));
}

#[tokio::test]
async fn no_local_keeps_a_clients_own_messages_away() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(SubscribeFilter { nolocal: true, ..filter("a") }).await;
    client.publish(qos_1("a", 1)).await;
    assert_eq!(client.hear_puback().await, PubAckReason::NoMatchingSubscribers);
    client.hear_nothing().await;
    server.broker().publish(None, Message { topic: "a".to_owned(), ..Message::default() });
    assert_eq!(client.hear_topics(1).await, ["a"]);
}

#[tokio::test]
async fn a_wildcard_subscription_ends_with_unsubscribe() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("a/#")).await;
    client.publish(qos_0("a/b/c")).await;
    assert_eq!(client.hear_topics(1).await, ["a/b/c"]);
    let filters = vec!["a/#".to_owned(), "other".to_owned()];
    client.say(Packet::Unsubscribe(Unsubscribe { pkid: 1, filters, properties: None })).await;
    let Packet::UnsubAck(unsuback) = client.hear().await else { panic!("no UNSUBACK") };
    assert_eq!(unsuback.reasons, [UnsubAckReason::Success, UnsubAckReason::NoSubscriptionExisted]);
    client.publish(qos_0("a/b/c")).await;
    client.hear_nothing().await;
}

#[tokio::test]
async fn filters_that_are_not_accepted_are_answered_one_by_one() {
    let server = start_with(Settings { subscriptions_per_session_max: 1, ..Settings::default() }).await;
    let mut client = Client::connect(&server, "a").await;
    for (path, expected) in [
        ("a/#/b", SubscribeReasonCode::TopicFilterInvalid),
        ("$share/g/a", SubscribeReasonCode::SharedSubscriptionsNotSupported),
        ("a", SubscribeReasonCode::Success(QoS::AtLeastOnce)),
        ("a", SubscribeReasonCode::Success(QoS::AtLeastOnce)),
        ("b", SubscribeReasonCode::QuotaExceeded),
    ] {
        assert_eq!(client.subscribe_with(filter(path), None).await.return_codes, [expected], "{path}");
    }
}

#[tokio::test]
async fn retained_messages_come_as_retain_handling_says() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(retained("r/1", "one")).await;
    client.publish(retained("r/2", "two")).await;
    client.publish(retained("r/2", "")).await;
    client.subscribe(filter("r/+")).await;
    let heard = client.hear_publish().await;
    assert_eq!((&heard.topic[..], &heard.payload[..], heard.retain), (&b"r/1"[..], &b"one"[..], true));
    client.hear_nothing().await;
    let with = |rule| SubscribeFilter { retain_forward_rule: rule, ..filter("r/+") };
    client.subscribe(with(RetainForwardRule::OnNewSubscribe)).await;
    client.hear_nothing().await;
    client.subscribe(with(RetainForwardRule::Never)).await;
    client.hear_nothing().await;
    client.subscribe(with(RetainForwardRule::OnEverySubscribe)).await;
    assert_eq!(client.hear_topics(1).await, ["r/1"]);
}

#[tokio::test]
async fn a_filter_that_is_repeated_in_one_packet_brings_the_retained_messages_once() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(retained("r/1", "one")).await;
    let filters = ["r/1", "r/+", "r/1", "r/+"].map(filter).to_vec();
    client.say(Packet::Subscribe(Subscribe { pkid: 1, filters, properties: None })).await;
    assert!(matches!(client.hear().await, Packet::SubAck(suback) if suback.return_codes.len() == 4));
    assert_eq!(client.hear_topics(2).await, ["r/1", "r/1"]);
    client.hear_nothing().await;
}

#[tokio::test]
async fn more_filters_in_one_packet_than_a_session_may_have_are_refused() {
    let server = start_with(Settings { subscriptions_per_session_max: 2, ..Settings::default() }).await;
    let mut client = Client::connect(&server, "a").await;
    let subscribe = Subscribe { pkid: 1, filters: vec![filter("a"); 3], properties: None };
    client.say(Packet::Subscribe(subscribe)).await;
    let Packet::SubAck(suback) = client.hear().await else { panic!("no SUBACK") };
    assert_eq!(suback.return_codes, [SubscribeReasonCode::QuotaExceeded; 3]);
    client.publish(qos_0("a")).await;
    client.hear_nothing().await;
    let filters = vec!["a".to_owned(); 3];
    client.say(Packet::Unsubscribe(Unsubscribe { pkid: 2, filters, properties: None })).await;
    let Packet::UnsubAck(unsuback) = client.hear().await else { panic!("no UNSUBACK") };
    assert_eq!(unsuback.reasons, [UnsubAckReason::ImplementationSpecificError; 3]);
}

#[tokio::test]
async fn the_retain_flag_is_forwarded_only_if_asked_for() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("plain")).await;
    client.subscribe(SubscribeFilter { preserve_retain: true, ..filter("kept") }).await;
    client.publish(retained("plain", "1")).await;
    assert!(!client.hear_publish().await.retain);
    client.publish(retained("kept", "1")).await;
    assert!(client.hear_publish().await.retain);
}

#[tokio::test]
async fn a_session_goes_on_with_what_was_queued_and_what_was_not_acknowledged() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    client.subscribe(filter("#")).await;
    let mut publisher = Client::connect(&server, "publisher").await;
    publisher.publish(qos_1("first", 1)).await;
    publisher.hear_puback().await;
    let unacknowledged = client.hear_publish().await.pkid;
    drop(client);
    publisher.publish(qos_0("lost")).await;
    publisher.publish(qos_1("second", 2)).await;
    assert_eq!(publisher.hear_puback().await, PubAckReason::Success);
    let (mut client, connack) = Client::connect_with(&server, Hello::lasting("a")).await;
    assert!(connack.session_present);
    let again = client.hear_publish().await;
    assert_eq!((again.pkid, again.dup, &again.topic[..]), (unacknowledged, true, &b"first"[..]));
    let mut topics = Vec::new();
    // Whether `lost` came before the broker saw the connection end is up to the scheduler.
    while topics.last().is_none_or(|topic| topic != "second") {
        topics.extend(client.hear_topics(1).await);
    }
    client.hear_nothing().await;
}

#[tokio::test]
async fn a_clean_start_leaves_nothing_of_the_session() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    client.subscribe(filter("#")).await;
    client.disconnect().await;
    let clean = Hello { clean_start: true, ..Hello::lasting("a") };
    let (mut client, connack) = Client::connect_with(&server, clean).await;
    assert!(!connack.session_present);
    client.publish(qos_1("a", 1)).await;
    assert_eq!(client.hear_puback().await, PubAckReason::NoMatchingSubscribers);
}

#[tokio::test]
async fn a_session_ends_with_its_connection_or_its_expiry() {
    let server = start().await;
    let mut hello = Hello::new("a");
    hello.properties.session_expiry_interval = Some(1);
    let (client, _) = Client::connect_with(&server, hello).await;
    client.disconnect().await;
    let (client, connack) = Client::connect_with(&server, Hello::lasting("a")).await;
    assert!(connack.session_present);
    let mut client = client;
    let properties = DisconnectProperties {
        session_expiry_interval: Some(0),
        reason_string: None,
        user_properties: Vec::new(),
        server_reference: None,
    };
    let reason = DisconnectReasonCode::NormalDisconnection;
    client.say(Packet::Disconnect(Disconnect::new_with_properties(reason, properties))).await;
    assert_eq!(client.hear_any().await, None);
    let (_, connack) = Client::connect_with(&server, Hello::lasting("a")).await;
    assert!(!connack.session_present);
}

#[tokio::test]
async fn the_same_client_id_takes_the_session_over() {
    let (server, echo) = start_echo().await;
    let (mut old, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    old.subscribe(filter("a")).await;
    let (mut new, connack) = Client::connect_with(&server, Hello::lasting("a")).await;
    assert!(connack.session_present);
    assert_eq!(old.hear_disconnect().await, DisconnectReasonCode::SessionTakenOver);
    assert_eq!(echo.gone.lock().unwrap().len(), 1);
    new.publish(qos_1("a", 1)).await;
    assert_eq!(new.hear_puback().await, PubAckReason::Success);
    assert_eq!(new.hear_topics(1).await, ["a"]);
}

#[tokio::test]
async fn a_late_disconnect_does_not_drop_its_successor() {
    let (server, echo) = start_echo().await;
    let (mut old, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    old.publish(qos_1("x", 1)).await;
    old.hear_puback().await;
    let (mut new, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    old.say(Packet::Disconnect(Disconnect::new(DisconnectReasonCode::NormalDisconnection))).await;
    while old.hear_any().await.is_some() {}
    new.publish(qos_1("answer/a", 1)).await;
    assert_eq!(new.hear_puback().await, PubAckReason::Success);
    assert_eq!(new.hear_topics(1).await, ["answer/a"]);
    let seen = echo.seen.lock().unwrap().clone();
    assert!(seen[0].connection < seen[1].connection);
    assert_eq!(*echo.gone.lock().unwrap(), [seen[0].connection]);
}

#[tokio::test]
async fn a_will_is_published_when_the_connection_breaks_and_not_after_a_goodbye() {
    let server = start().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("will/#")).await;
    for (client_id, says_goodbye) in [("a", true), ("b", false)] {
        let hello = Hello { will: Some(will(&format!("will/{client_id}"), 0)), ..Hello::lasting(client_id) };
        let (client, _) = Client::connect_with(&server, hello).await;
        if says_goodbye {
            client.disconnect().await;
        }
    }
    assert_eq!(watcher.hear_topics(1).await, ["will/b"]);
    watcher.hear_nothing().await;
}

#[tokio::test]
async fn a_delayed_will_waits_for_the_client_to_come_back() {
    let server = start().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("will/#")).await;
    let hello = |delay_s| Hello { will: Some(will("will/a", delay_s)), ..Hello::lasting("a") };
    drop(Client::connect_with(&server, hello(3600)).await);
    let (back, connack) = Client::connect_with(&server, hello(1)).await;
    assert!(connack.session_present);
    watcher.hear_nothing().await;
    drop(back);
    assert_eq!(watcher.hear_topics(1).await, ["will/a"]);
}

#[tokio::test]
async fn a_silent_client_is_cut_off_after_one_and_a_half_keep_alives() {
    let server = start().await;
    let before = crate::clock::monotonic();
    let (mut client, _) = Client::connect_with(&server, Hello { keep_alive: 1, ..Hello::new("a") }).await;
    assert_eq!(client.hear_disconnect().await, DisconnectReasonCode::KeepAliveTimeout);
    assert!(before.elapsed() >= Duration::from_millis(1_490));
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    let settings = Settings { connect_timeout: Duration::from_millis(20), ..Settings::default() };
    let server = start_with(settings).await;
    assert_eq!(Client::silent(&server).hear_any().await, None);
}

#[tokio::test]
async fn malformed_packets_end_their_connection_with_the_reason() {
    use DisconnectReasonCode::{MalformedPacket, ProtocolError, TopicAliasInvalid};
    let server = start().await;
    let mut other = Client::connect(&server, "other").await;
    let cases: [(&str, &[u8], DisconnectReasonCode); 14] = [
        ("reserved packet type", &[0x00, 0x00], MalformedPacket),
        ("reserved flags", &[0xC1, 0x00], MalformedPacket),
        ("a length of five bytes", &[0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], MalformedPacket),
        ("QoS 3", &[0x36, 0x06, 0, 1, b'a', 0, 1, 0], MalformedPacket),
        ("a topic beyond the packet", &[0x30, 0x03, 0, 9, b'a'], MalformedPacket),
        ("a topic that is not UTF-8", &[0x30, 0x04, 0, 1, 0xFF, 0], MalformedPacket),
        ("a wildcard in a topic", &[0x30, 0x04, 0, 1, b'#', 0], MalformedPacket),
        ("packet id 0", &[0x32, 0x06, 0, 1, b'a', 0, 0, 0], ProtocolError),
        ("no topic and no alias", &[0x30, 0x03, 0, 0, 0], ProtocolError),
        ("a topic alias too great", &[0x30, 0x07, 0, 1, b'a', 3, 35, 0, 17], TopicAliasInvalid),
        ("a payload format above 1", &[0x30, 0x06, 0, 1, b'a', 2, 1, 2], ProtocolError),
        ("a wildcard in a response topic", &[0x30, 0x08, 0, 1, b'a', 4, 8, 0, 1, b'+'], ProtocolError),
        ("a SUBSCRIBE without a filter", &[0x82, 0x03, 0, 1, 0], ProtocolError),
        ("a PINGRESP from a client", &[0xD0, 0x00], ProtocolError),
    ];
    for (what, bytes, expected) in cases {
        let mut client = Client::connect(&server, "a").await;
        client.say_bytes(bytes).await;
        assert_eq!(client.hear_disconnect().await, expected, "{what}");
    }
    other.hear_nothing().await;
}

#[tokio::test]
async fn a_disconnect_may_leave_its_property_length_out() {
    let server = start().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("will")).await;
    let (mut client, _) =
        Client::connect_with(&server, Hello { will: Some(will("will", 0)), ..Hello::new("a") }).await;
    client.say_bytes(&[0xE0, 0x01, 0x04]).await;
    assert_eq!(client.hear_any().await, None);
    assert_eq!(watcher.hear_topics(1).await, ["will"]);
}

#[tokio::test]
async fn other_protocols_are_refused_each_in_its_own_way() {
    let server = start().await;
    let mut v4 = Client::silent(&server);
    v4.say_bytes(&[0x10, 0x0D, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 60, 0, 1, b'a']).await;
    let mut answer = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut v4.stream, &mut answer).await.unwrap();
    assert_eq!(answer, [0x20, 0x02, 0x00, 0x01]);
    let mut v6 = Client::silent(&server);
    v6.say_bytes(&[0x10, 0x0E, 0, 4, b'M', b'Q', b'T', b'T', 6, 2, 0, 60, 0, 0, 1, b'a']).await;
    let Packet::ConnAck(connack) = v6.hear().await else { panic!("no CONNACK") };
    assert_eq!(connack.code, ConnectReturnCode::UnsupportedProtocolVersion);
    let mut http = Client::silent(&server);
    http.say_bytes(b"GET / HTTP/1.1\r\n\r\n").await;
    assert_eq!(http.hear_any().await, None);
    let mut hello = Hello::new("a");
    hello.properties.authentication_method = Some("K8S-SAT".to_owned());
    let (_, connack) = Client::connect_with(&server, hello).await;
    assert_eq!(connack.code, ConnectReturnCode::BadAuthenticationMethod);
}

#[tokio::test]
async fn a_packet_too_large_is_refused_before_it_is_read() {
    let server = start_with(Settings { packet_bytes_max: 1000, ..Settings::default() }).await;
    let mut client = Client::connect(&server, "a").await;
    client.say_bytes(&[0x30, 0x80, 0x80, 0x80, 0x01]).await;
    assert_eq!(client.hear_disconnect().await, DisconnectReasonCode::PacketTooLarge);
}

#[tokio::test]
async fn what_a_client_cannot_take_is_dropped_and_the_rest_comes() {
    let server = start().await;
    let mut hello = Hello::new("a");
    hello.properties.max_packet_size = Some(100);
    let (mut client, _) = Client::connect_with(&server, hello).await;
    client.subscribe(filter("#")).await;
    client.publish(Publish { payload: Bytes::from(vec![b'x'; 200]), ..qos_1("large", 1) }).await;
    assert_eq!(client.hear_puback().await, PubAckReason::Success);
    client.publish(qos_1("small", 2)).await;
    assert_eq!(client.hear_puback().await, PubAckReason::Success);
    assert_eq!(client.hear_topics(1).await, ["small"]);
}

#[tokio::test]
async fn a_large_message_passes_through_a_small_pipe_both_ways() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("large")).await;
    let payload = Bytes::from(vec![b'x'; 3_000_000]);
    client.publish(Publish { payload: payload.clone(), ..qos_1("large", 1) }).await;
    // The second one is written before anything of the first is read.
    client.publish(Publish { payload: payload.clone(), ..qos_1("other", 2) }).await;
    assert_eq!(client.hear_puback().await, PubAckReason::Success);
    assert_eq!(client.hear_publish().await.payload, payload);
    assert_eq!(client.hear_puback().await, PubAckReason::NoMatchingSubscribers);
}

#[tokio::test]
async fn a_stalled_reader_is_cut_off_and_others_are_not_held_up() {
    let gone = Arc::new(Mutex::new(Vec::new()));
    let events = Arc::clone(&gone);
    let settings = Settings {
        session_queue_messages_max: 10,
        events: Arc::new(move |event| {
            if let Event::Gone { client_id, reason } = event {
                events.lock().unwrap().push((client_id, reason));
            }
        }),
        ..Settings::default()
    };
    let server = start_with(settings).await;
    let mut stalled = Client::connect(&server, "stalled").await;
    stalled.subscribe(filter("a")).await;
    let mut publisher = Client::connect(&server, "publisher").await;
    let payload = Bytes::from(vec![b'x'; 50_000]);
    for packet_id in 1..50 {
        publisher.publish(Publish { payload: payload.clone(), ..qos_1("a", packet_id) }).await;
        publisher.hear_puback().await;
    }
    publisher.publish(qos_1("a", 50)).await;
    assert_eq!(publisher.hear_puback().await, PubAckReason::NoMatchingSubscribers);
    let gone = gone.lock().unwrap();
    assert_eq!(gone.len(), 1);
    assert!(gone[0].0.as_ref() == "stalled" && gone[0].1.starts_with("quota exceeded (0x97)"), "{gone:?}");
}

/// Answers each message with a push of 16 KB to the sender.
struct Generous;

impl Application for Generous {
    fn handle_publish(&self, broker: &Broker, from: &Peer, message: Message) -> Verdict {
        broker.push(from.connection, Message { payload: vec![b'x'; 16 * 1024].into(), ..message });
        Verdict::Consumed
    }

    fn handle_disconnect(&self, _: &Broker, _: &Peer) {}
}

/// The bound is a sixth of what it answers to 100 messages.
async fn start_generous() -> Server {
    let bytes_max = 256 * 1024;
    let settings =
        Settings { session_queue_bytes_max: bytes_max, packet_bytes_max: 64 * 1024, ..Settings::default() };
    Server::start(settings, Arc::new(Generous)).await.unwrap()
}

fn numbered_requests(count: u16) -> BytesMut {
    let mut requests = BytesMut::new();
    for packet_id in 1..=count {
        Packet::Publish(qos_1("get", packet_id)).write(&mut requests, None).unwrap();
    }
    requests
}

#[tokio::test]
async fn who_asks_much_at_once_and_acknowledges_the_answers_gets_all_of_them_in_order() {
    let server = start_generous().await;
    let mut client = Client::connect(&server, "a").await;
    client.say_bytes(&numbered_requests(100)).await;
    let (mut answers, mut acknowledged) = (0, Vec::new());
    while answers < 100 || acknowledged.len() < 100 {
        match client.hear().await {
            Packet::Publish(answer) => {
                answers += 1;
                client.say(Packet::PubAck(PubAck::new(answer.pkid, None))).await;
            }
            Packet::PubAck(puback) => acknowledged.push(puback.pkid),
            other => panic!("unexpected {other:?}"),
        }
    }
    assert!(acknowledged.into_iter().eq(1..=100));
    client.hear_nothing().await;
}

#[tokio::test]
async fn who_asks_on_without_acknowledging_is_still_heard_and_cut_off_in_the_end() {
    let server = start_generous().await;
    let mut client = Client::connect(&server, "a").await;
    client.say_bytes(&numbered_requests(20)).await;
    // With four answers, more than a quarter of the bound waits.
    for _ in 0..4 {
        client.hear_puback().await;
        client.hear_publish().await;
    }
    client.hear_nothing().await;
    client.say_bytes(&numbered_requests(200)).await;
    loop {
        match client.hear().await {
            Packet::Publish(_) | Packet::PubAck(_) => {}
            Packet::Disconnect(last) => {
                assert_eq!(last.reason_code, DisconnectReasonCode::QuotaExceeded);
                break;
            }
            other => panic!("unexpected {other:?}"),
        }
    }
}

#[tokio::test]
async fn no_more_is_sent_than_the_clients_receive_maximum() {
    let server = start().await;
    let mut hello = Hello::new("a");
    hello.properties.receive_maximum = Some(2);
    let (mut client, _) = Client::connect_with(&server, hello).await;
    client.subscribe(filter("#")).await;
    let mut publisher = Client::connect(&server, "publisher").await;
    for packet_id in 1..=3 {
        publisher.publish(qos_1("a", packet_id)).await;
        publisher.hear_puback().await;
    }
    let first = client.hear_publish().await.pkid;
    client.hear_publish().await;
    client.hear_nothing().await;
    client.say(Packet::PubAck(PubAck::new(first, None))).await;
    client.hear_publish().await;
}

#[tokio::test]
async fn more_unacknowledged_messages_than_announced_end_the_connection() {
    let server = start_with(Settings { receive_maximum: 2, ..Settings::default() }).await;
    let mut client = Client::connect(&server, "a").await;
    for packet_id in 1..=2 {
        client.publish(qos_2("a", packet_id)).await;
        assert!(matches!(client.hear().await, Packet::PubRec(_)));
    }
    client.publish(qos_2("a", 3)).await;
    assert_eq!(client.hear_disconnect().await, DisconnectReasonCode::ReceiveMaximumExceeded);
}

#[tokio::test]
async fn a_topic_alias_stands_for_the_topic_it_was_given() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("#")).await;
    let alias = |topic| with_properties(qos_0(topic), |properties| properties.topic_alias = Some(3));
    client.publish(alias("long/topic")).await;
    client.publish(alias("")).await;
    let heard = client.hear_publish().await;
    assert_eq!(heard.properties.and_then(|properties| properties.topic_alias), None);
    assert_eq!(client.hear_topics(1).await, ["long/topic"]);
}

#[tokio::test]
async fn a_push_arrives_once_whether_subscribed_or_not_and_reaches_other_subscribers() {
    let (server, _) = start_echo().await;
    let mut other = Client::connect(&server, "other").await;
    other.subscribe(filter("answer/#")).await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(qos_1("answer/1", 1)).await;
    assert_eq!(client.hear_puback().await, PubAckReason::Success);
    assert_eq!(client.hear_topics(1).await, ["answer/1"]);
    client.subscribe(SubscribeFilter::new("answer/+", QoS::AtMostOnce)).await;
    client.subscribe(filter("#")).await;
    client.publish(qos_1("answer/2", 2)).await;
    assert_eq!(client.hear_puback().await, PubAckReason::Success);
    let heard = client.hear_publish().await;
    assert_eq!((&heard.topic[..], heard.qos), (&b"answer/2"[..], QoS::AtLeastOnce));
    client.hear_nothing().await;
    assert_eq!(other.hear_topics(2).await, ["answer/1", "answer/2"]);
}

#[tokio::test]
async fn the_application_may_throw_a_client_out() {
    let (server, echo) = start_echo().await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(qos_1("leave", 1)).await;
    assert_eq!(client.hear_disconnect().await, DisconnectReasonCode::NotAuthorized);
    assert_eq!(echo.gone.lock().unwrap().len(), 1);
    let mut client = Client::connect(&server, "a").await;
    client.publish(qos_1("x", 1)).await;
    client.hear_puback().await;
    let connection = echo.seen.lock().unwrap().last().unwrap().connection;
    server.broker().disconnect(connection, Reason::AdministrativeAction, "enough");
    assert_eq!(client.hear_disconnect().await, DisconnectReasonCode::AdministrativeAction);
}

#[tokio::test]
async fn a_panic_in_the_application_costs_only_its_connection() {
    let (server, echo) = start_echo().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("will")).await;
    let hello = Hello { will: Some(will("will", 0)), ..Hello::lasting("a") };
    let (mut client, _) = Client::connect_with(&server, hello).await;
    client.publish(qos_1("fail", 1)).await;
    assert_eq!(client.hear_any().await, None);
    assert_eq!(echo.gone.lock().unwrap().len(), 1);
    assert_eq!(watcher.hear_topics(1).await, ["will"]);
    let (_, connack) = Client::connect_with(&server, Hello::lasting("a")).await;
    assert!(connack.session_present);
}

#[tokio::test]
async fn an_answer_and_its_acknowledgement_come_in_one_write() {
    let (server, _) = start_echo().await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(qos_1("answer/a", 1)).await;
    let mut bytes = vec![0; 1000];
    let read = tokio::io::AsyncReadExt::read(&mut client.stream, &mut bytes).await.unwrap();
    assert_eq!((bytes[0], bytes[4] & 0xF0), (0x40, 0x30), "{:?}", &bytes[..read]);
}

#[tokio::test]
async fn expired_messages_do_not_wait_for_a_session() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    client.subscribe(filter("#")).await;
    client.disconnect().await;
    let message = |topic: &str, expiry_s| Message { topic: topic.to_owned(), expiry_s, ..Message::default() };
    for (topic, expiry_s) in [("old", Some(0)), ("new", Some(1000)), ("kept", None)] {
        let message = Message { qos: Qos::AtLeastOnce, ..message(topic, expiry_s) };
        assert_eq!(server.broker().publish(None, message), 1);
    }
    let (mut client, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    assert_eq!(client.hear_topics(2).await, ["new", "kept"]);
    client.hear_nothing().await;
}

#[tokio::test]
async fn a_shutdown_tells_everyone_and_takes_milliseconds() {
    let (server, echo) = start_echo().await;
    let mut connected = Client::connect(&server, "a").await;
    let mut silent = Client::silent(&server);
    let before = crate::clock::monotonic();
    let ((), reason) = tokio::join!(server.shutdown(), connected.hear_disconnect());
    assert_eq!(reason, DisconnectReasonCode::ServerShuttingDown);
    assert_eq!(silent.hear_any().await, None);
    assert_eq!(echo.gone.lock().unwrap().len(), 1);
    assert!(before.elapsed() < Duration::from_millis(500), "{:?}", before.elapsed());
}

#[tokio::test]
async fn too_many_connections_are_turned_away_and_room_comes_back() {
    let server = start_with(Settings { connections_max: 1, ..Settings::default() }).await;
    let client = Client::connect(&server, "a").await;
    assert_eq!(Client::silent(&server).hear_any().await, None);
    client.disconnect().await;
    loop {
        let mut next = Client::silent(&server);
        // The old one's task may need a moment to end after its peer saw it close.
        if next.stream.write_all(&[0xC0, 0x00]).await.is_ok() {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn tcp_is_served_on_a_free_port_by_several_servers() {
    let listening =
        |address| Settings { listeners: vec![ListenerSettings::plain(address)], ..Settings::default() };
    let settings = || listening("127.0.0.1:0".parse().unwrap());
    let (one, two) = (start_with(settings()).await, start_with(settings()).await);
    assert_ne!(one.addresses(), two.addresses());
    let stream = std::net::TcpStream::connect(one.addresses()[0]).unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut stream = tokio::net::TcpStream::from_std(stream).unwrap();
    stream.write_all(&[0x10, 0x0E, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 60, 0, 0, 1, b'a']).await.unwrap();
    let mut first = [0; 1];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut first).await.unwrap();
    assert_eq!(first, [0x20]);
    let taken = listening(one.addresses()[0]);
    let error = Server::start(taken, Arc::new(())).await.unwrap_err();
    assert!(error.to_string().starts_with("cannot listen on 127.0.0.1:"), "{error}");
    one.shutdown().await;
    two.shutdown().await;
}
