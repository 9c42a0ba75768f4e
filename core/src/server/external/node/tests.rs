//! Tests of the room for requests at the service of an external broker.

use std::task::Poll;

use tokio::task::yield_now;

use super::*;
use crate::ledger::{Record, RegistrationRecord};
use crate::protocol::{Key, Request};
use crate::server::cluster::Effect;
use crate::server::event::Event;
use crate::server::service::StoreSettings;
use crate::store::Version;

/// More requests than the service has room for.
const REQUESTS: usize = 80_000;

struct TestNode {
    service: Arc<Service>,
    node: Arc<Node>,
    events: Arc<Mutex<Vec<Event>>>,
}

/// An instance of a cluster that follows.
fn follower() -> TestNode {
    let events = Arc::new(Mutex::new(Vec::new()));
    let shown = Arc::clone(&events);
    let sink: EventSink = Arc::new(move |event| shown.lock().unwrap().push(event));
    let service = Service::in_cluster(&StoreSettings::default(), true, Arc::clone(&sink), Arc::default());
    let (requests, held_for) = (RequestFilter::default(), Some(Duration::from_secs(60)));
    let node = Node::new(Arc::clone(&service), requests, None, held_for, sink, "broker".to_owned());
    let test = TestNode { service, node: Arc::new(node), events };
    test.effect(Effect::Joined { hash_key: [1; 32] });
    test
}

impl TestNode {
    fn effect(&self, effect: Effect) {
        assert_eq!(self.service.handle_cluster_effect(effect, &self.node.publisher()), None);
    }

    fn serve(&self) {
        self.effect(Effect::Serve {
            epoch: 1,
            floor: Version::default(),
            greatest: Version::default(),
            wall_ms: 0,
        });
    }

    /// Confirms whatever waits, and returns the number of messages that are published.
    fn confirm(&self) -> usize {
        if let Some(group) = self.service.take_cluster_group() {
            self.effect(Effect::Committed { sequence: group.sequence });
        }
        std::iter::from_fn(|| self.node.poll_message()).count()
    }

    fn receive(&self) {
        let key = Key::new("k").unwrap();
        self.node.handle_message(Message {
            topic: topic::REQUEST.into(),
            response_topic: Some(topic::response("client")),
            correlation: Some("1".into()),
            payload: Request::Get { key }.encode(),
            ..Message::default()
        });
    }
}

#[tokio::test]
async fn held_requests_that_have_no_room_at_once_are_answered_when_there_is_room() {
    let test = follower();
    (0..REQUESTS).for_each(|_| test.receive());
    let node = Arc::clone(&test.node);
    let releases = tokio::spawn(async move { node.run_releases().await });
    test.serve();
    let mut answered = 0;
    while answered < REQUESTS {
        yield_now().await;
        answered += test.confirm();
        assert!(test.events.lock().unwrap().is_empty(), "none is dropped");
    }
    assert!(!test.node.is_busy() && test.node.has_room());
    releases.abort();
}

#[tokio::test]
async fn no_request_is_read_that_etcd_would_have_to_be_waited_for_without_room() {
    let test = follower();
    test.serve();
    let read = (0..REQUESTS).take_while(|_| test.node.has_room()).map(|_| test.receive()).count();
    assert!(read > 0 && read < REQUESTS && test.events.lock().unwrap().is_empty());
    assert_eq!(test.confirm(), read);
    assert!(test.node.has_room());
}

#[tokio::test]
async fn an_instance_that_has_lost_the_store_without_room_reads_requests_again() {
    let test = follower();
    let node = Arc::clone(&test.node);
    let releases = tokio::spawn(async move { node.run_releases().await });
    test.serve();
    while test.node.has_room() {
        test.receive();
    }
    yield_now().await;
    let mut changed = std::pin::pin!(test.node.changed().notified());
    // Whatever was signaled before.
    while std::future::poll_fn(|cx| Poll::Ready(changed.as_mut().poll(cx))).await.is_ready() {
        changed.set(test.node.changed().notified());
    }
    test.effect(Effect::Stop);
    changed.await;
    assert!(test.node.has_room());
    releases.abort();
}

#[tokio::test]
async fn the_clients_with_registrations_of_an_earlier_owner_are_known_to_the_next_one() {
    let test = follower();
    for number in 0..3 {
        let client_id = format!("client{number}").into();
        let record = RegistrationRecord { key: Key::new("k").unwrap(), client_id, is_registered: true };
        test.effect(Effect::Apply(Record::Registration(record)));
    }
    let node = Arc::clone(&test.node);
    let releases = tokio::spawn(async move { node.run_releases().await });
    yield_now().await;
    assert_eq!(test.node.clients().connection_of("client1"), None);
    test.serve();
    while test.node.clients().connection_of("client1").is_none() {
        yield_now().await;
    }
    releases.abort();
}
