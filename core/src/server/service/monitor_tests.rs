//! Requests and notifications as other MQTT clients see them, packet by packet.

use std::sync::Arc;

use bytes::Bytes;

use tempfile::TempDir;

use super::tests::RecordingPublisher;
use super::*;
use crate::broker::test_client::wire::{Packet, Publish, QoS, SubscribeFilter, Unsubscribe};
use crate::broker::test_client::{Client, ConnectOptions, filter, qos_0, qos_1, with_properties};
use crate::broker::{Hooks, Server, Settings};
use crate::exchange::Exchange;
use crate::exchange::effects::Values;
use crate::exchange::leaf::{JoinPolicy, Leaf};
use crate::exchange::names::Name;
use crate::exchange::row::Identity;
use crate::exchange::rules::Patterns;
use crate::exchange::rules::tests::plant;
use crate::protocol::{Key, Reply, Request, Value, topic};
use crate::server::delivery::BrokerPublisher;
use crate::server::exchange::settings::{ExchangeSettings, Role};
use crate::server::metrics::Metrics;

async fn start() -> (Server, BackgroundTasks) {
    start_service(Service::open(StoreSettings::default(), Arc::new(|_| {}), Arc::default()).unwrap()).await
}

async fn start_service(service: Arc<Service>) -> (Server, BackgroundTasks) {
    let hooks = Hooks::new(Arc::<Service>::clone(&service));
    let server = Server::start(Settings::default(), hooks).await.unwrap();
    let running = service
        .start_background_tasks(BrokerPublisher {
            broker: server.broker().clone(),
            metrics: Arc::<Metrics>::default(),
        })
        .unwrap();
    (server, running)
}

fn set(key: &'static str, value: &'static str) -> Bytes {
    let (key, value) = (Key::new(key).unwrap(), Value::from(value));
    Request::Set { key, value, condition: None, ttl_ms: None }.encode()
}

fn watch(key: &'static str) -> Bytes {
    Request::KeyNotify { key: Key::new(key).unwrap(), stop: false }.encode()
}

fn request(payload: Bytes, packet_id: u16) -> Publish {
    let publish = with_properties(qos_1(topic::REQUEST, packet_id), |properties| {
        properties.message_expiry_interval = Some(10);
        properties.response_topic = Some("answers".to_owned());
        properties.correlation_data = Some(Bytes::from(packet_id.to_be_bytes().to_vec()));
        properties.content_type = Some("application/octet-stream".to_owned());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        properties.user_properties = vec![pair("b", "1"), pair("__ts", "1:0:n"), pair("b", "0")];
    });
    Publish { payload, ..publish }
}

fn topic_of(publish: &Publish) -> &str {
    std::str::from_utf8(&publish.topic).unwrap()
}

/// Returns the messages among the next packets: acknowledgements and messages may overtake each other.
async fn receive_messages(client: &mut Client, packets: usize) -> Vec<Publish> {
    let mut messages = Vec::new();
    for _ in 0..packets {
        match client.receive().await {
            Packet::Publish(publish) => messages.push(publish),
            Packet::PubAck(_) => {}
            other => panic!("{other:?}"),
        }
    }
    messages
}

#[tokio::test]
async fn a_subscriber_sees_a_request_unchanged_and_before_its_answer() {
    let (server, _running) = start().await;
    for wide in ["#", topic::REQUEST, "+/v1/+/command/#"] {
        let mut other = Client::connect(&server, "other").await;
        other.subscribe(filter(wide)).await;
        other.subscribe(filter("answers")).await;
        let mut requester = Client::connect(&server, "requester").await;
        let sent = request(set("k", "v"), 7);
        requester.publish(sent.clone()).await;
        requester.receive_puback().await;
        let seen = other.receive_publish().await;
        assert_eq!((topic_of(&seen), &seen.payload), (topic::REQUEST, &sent.payload), "{wide}");
        assert_eq!((seen.qos, seen.retain, &seen.properties), (QoS::AtLeastOnce, false, &sent.properties));
        let answer = other.receive_publish().await;
        assert_eq!(topic_of(&answer), "answers");
        assert_eq!(Reply::decode(&answer.payload).unwrap(), Reply::Done);
        other.disconnect().await;
        requester.disconnect().await;
    }
}

#[tokio::test]
async fn a_client_that_subscribes_to_requests_gets_its_own_once_or_with_no_local_never() {
    let (server, _running) = start().await;
    let mut requester = Client::connect(&server, "requester").await;
    requester.subscribe(filter("#")).await;
    requester.subscribe(filter(topic::REQUEST)).await;
    requester.publish(request(set("k", "v"), 1)).await;
    let topics: Vec<_> =
        receive_messages(&mut requester, 3).await.iter().map(|seen| topic_of(seen).to_owned()).collect();
    assert_eq!(topics, [topic::REQUEST, "answers"]);
    requester.expect_nothing().await;
    let mut no_local = Client::connect(&server, "no_local").await;
    no_local.subscribe(SubscribeFilter { nolocal: true, ..filter("statestore/#") }).await;
    no_local.publish(request(set("k", "v"), 1)).await;
    no_local.receive_puback().await;
    no_local.expect_nothing().await;
}

#[tokio::test]
async fn malformed_and_unanswerable_requests_are_copied_too() {
    let (server, _running) = start().await;
    let mut other = Client::connect(&server, "other").await;
    other.subscribe(filter("statestore/#")).await;
    let mut requester = Client::connect(&server, "requester").await;
    requester.publish(qos_0(topic::REQUEST)).await;
    requester.publish(request(Bytes::from_static(b"*0\r\n"), 2)).await;
    requester.receive_puback().await;
    let seen = [other.receive_publish().await, other.receive_publish().await];
    assert_eq!(seen.each_ref().map(|seen| &seen.payload[..]), [&b"payload"[..], b"*0\r\n"]);
    assert_eq!(seen.map(|seen| seen.qos), [QoS::AtMostOnce, QoS::AtLeastOnce]);
    other.expect_nothing().await;
}

#[tokio::test]
async fn a_request_with_the_retain_flag_is_not_retained() {
    let (server, _running) = start().await;
    let mut requester = Client::connect(&server, "requester").await;
    let mut other = Client::connect(&server, "other").await;
    other.subscribe(filter("#")).await;
    requester.publish(Publish { retain: true, ..request(set("k", "v"), 1) }).await;
    requester.receive_puback().await;
    assert_eq!(other.receive_topics(2).await, [topic::REQUEST, "answers"]);
    let mut late = Client::connect(&server, "late").await;
    late.subscribe(filter("#")).await;
    late.expect_nothing().await;
}

#[tokio::test]
async fn a_notification_reaches_other_subscribers_and_the_watcher_once() {
    let (server, _running) = start().await;
    let mut other = Client::connect(&server, "other").await;
    other.subscribe(filter("clients/#")).await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("clients/#")).await;
    watcher.publish(request(watch("k"), 1)).await;
    watcher.receive_puback().await;
    watcher.publish(request(set("k", "v"), 2)).await;
    let notified = receive_messages(&mut watcher, 2).await;
    watcher.expect_nothing().await;
    let seen = other.receive_publish().await;
    let expected = topic::notify("watcher", &Key::new("k").unwrap()).unwrap();
    assert_eq!((topic_of(&notified[0]), topic_of(&seen)), (&expected[..], &expected[..]));
    other.expect_nothing().await;
}

#[tokio::test]
async fn requests_are_copied_only_while_a_client_subscribes_to_them() {
    let (server, _running) = start().await;
    let broker = server.broker();
    let mut other = Client::connect(&server, "other").await;
    other.subscribe(filter("clients/#")).await;
    assert!(!broker.has_monitors());
    other.subscribe(filter("statestore/#")).await;
    assert!(broker.has_monitors());
    let filters = vec!["statestore/#".to_owned()];
    other.send(Packet::Unsubscribe(Unsubscribe { pkid: 1, filters, properties: None })).await;
    other.receive().await;
    assert!(!broker.has_monitors());
    let (mut lasting, _) = Client::connect_with(&server, ConnectOptions::persistent("lasting")).await;
    lasting.subscribe(filter("#")).await;
    lasting.disconnect().await;
    // Its session queues the requests that it misses.
    assert!(broker.has_monitors());
    let clean = ConnectOptions { clean_start: true, ..ConnectOptions::new("lasting") };
    let (_clean, _) = Client::connect_with(&server, clean).await;
    assert!(!broker.has_monitors());
}

#[tokio::test]
async fn a_frame_of_the_root_reaches_the_connection_of_its_leaf_only() {
    let home = TempDir::new().unwrap();
    let name = |text| Name::new(text).unwrap();
    let role = Role::Root { rules: plant(), admit: Patterns::default() };
    let exchange = Some(ExchangeSettings { exchange: name("plant"), node: name("root"), role });
    let persistence = Persistence::Custom(home.path().to_owned());
    let settings = StoreSettings { persistence, exchange, ..StoreSettings::default() };
    let service = Service::open(settings, Arc::new(|_| {}), Arc::default()).unwrap();
    let recorded = RecordingPublisher::default();
    let add_leaf = |exchange: &mut Exchange, _, _: &dyn Values| match exchange {
        Exchange::Root(root) => ((), root.add_leaf(&name("press-7"), false)),
        Exchange::Leaf(_) => panic!(),
    };
    service.shared.lock().with_exchange(&recorded, service.shared.now(), add_leaf);
    let (server, _running) = start_service(service).await;
    let mut other = Client::connect(&server, "other").await;
    other.subscribe(filter("#")).await;
    other.subscribe(filter("mqkv/exchange/v1/plant/down/#")).await;
    let mut leaf = Client::connect(&server, "leaf").await;
    let identity = Identity { exchange: name("plant"), node: name("press-7"), store: 1 };
    let mut node = Leaf::new(identity, JoinPolicy::default(), 2, 3);
    node.handle_connected(4, 0);
    let payload = node.poll_outgoing("test", 0).unwrap().encode();
    leaf.publish(Publish { payload, ..qos_1("mqkv/exchange/v1/plant/up/press-7", 1) }).await;
    let welcome = receive_messages(&mut leaf, 2).await;
    assert_eq!(topic_of(&welcome[0]), "mqkv/exchange/v1/plant/down/press-7");
    other.expect_nothing().await;
}
