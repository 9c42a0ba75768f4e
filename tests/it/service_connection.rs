//! A service connection with the broker of this project, whose connections are cut.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mqkv::broker::{Hooks, Server, Settings};
use mqkv::client::{
    self, Client, Error, ReasonCode, ServiceConnected, ServiceConnection, ServiceNode, ServiceSettings,
    SubscriptionEvent, Target,
};
use mqkv::protocol::Message;
use tokio::io::copy_bidirectional;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::common::{Place, RawClient, wire};
use super::mosquitto::mosquitto_at;

/// A test that takes longer hangs.
const HANG: Duration = Duration::from_secs(60);

/// A service that sends each message back, to `answers`.
#[derive(Default)]
struct Echo {
    answers: Mutex<VecDeque<Message>>,
    resumed: Mutex<Vec<bool>>,
    handled: AtomicUsize,
    malformed: Mutex<Vec<Option<String>>>,
    is_busy: AtomicBool,
    changed: Notify,
}

impl ServiceNode for Echo {
    fn handle_connected(&self, accepted: &ServiceConnected) {
        self.resumed.lock().unwrap().push(accepted.is_resumed);
    }

    fn handle_lost(&self, _: &Error) {}

    fn handle_message(&self, message: Message) {
        self.handled.fetch_add(1, Ordering::Relaxed);
        let answer = Message { topic: "answers".into(), ..message };
        self.answers.lock().unwrap().push_back(answer);
    }

    fn handle_malformed(&self, topic: Option<String>, _: String) {
        self.malformed.lock().unwrap().push(topic);
    }

    fn poll_message(&self) -> Option<(Message, u64)> {
        Some((self.answers.lock().unwrap().pop_front()?, 1))
    }

    fn handle_published(&self, _: u64, result: Result<ReasonCode, Error>) {
        let code = result.unwrap().code;
        assert!([0, ReasonCode::NO_MATCHING_SUBSCRIBERS].contains(&code), "{code}");
    }

    fn has_room(&self) -> bool {
        !self.is_busy.load(Ordering::Relaxed) && self.answers.lock().unwrap().len() < 8
    }

    fn changed(&self) -> &Notify {
        &self.changed
    }
}

/// Connections to a broker that can be cut.
#[derive(Clone)]
struct Wire {
    server: Arc<Server>,
    last: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Wire {
    fn target(&self) -> Target {
        let wire = self.clone();
        Target::Pipe(Arc::new(move || {
            let (client, mut ours) = tokio::io::duplex(1024);
            let mut broker = wire.server.pipe();
            let relay = tokio::spawn(async move { drop(copy_bidirectional(&mut ours, &mut broker).await) });
            *wire.last.lock().unwrap() = Some(relay);
            client
        }))
    }

    fn cut(&self) {
        if let Some(relay) = self.last.lock().unwrap().take() {
            relay.abort();
        }
    }
}

async fn start(target: Target, echo: &Arc<Echo>) -> ServiceConnection {
    let settings = ServiceSettings {
        client: client::Settings::new(target, "service".to_owned()),
        filters: vec!["requests".to_owned()],
        session_expiry: Duration::from_secs(30),
        receive_max: 16,
    };
    ServiceConnection::start(settings, Arc::clone(echo)).await.unwrap()
}

#[tokio::test]
async fn no_message_is_lost_when_connections_are_cut_and_resumed() {
    const MESSAGES: u32 = 300;
    let server = Arc::new(Server::start(Settings::default(), Hooks::new(Arc::new(()))).await.unwrap());
    let wire = Wire { server: Arc::clone(&server), last: Arc::default() };
    let echo = Arc::new(Echo::default());
    let connection = start(wire.target(), &echo).await;
    let pipe = Arc::clone(&server);
    let target = Target::Pipe(Arc::new(move || pipe.pipe()));
    let client = Client::connect(client::Settings::new(target, "client".to_owned())).await.unwrap();
    let mut answers = client.subscribe(vec!["answers".to_owned()]).await.unwrap();
    let publish = async {
        for number in 0..MESSAGES {
            let payload = number.to_be_bytes().to_vec().into();
            let mut published = client.publish("requests".to_owned(), payload).await.unwrap();
            assert_eq!(published.acknowledged().await.unwrap().code, 0);
            if number % 60 == 30 {
                wire.cut();
            }
        }
    };
    let receive = async {
        let (mut seen, mut first_ones) = (BTreeSet::new(), Vec::new());
        while first_ones.len() < MESSAGES as usize {
            let SubscriptionEvent::Message { message, .. } = answers.next().await.unwrap() else { continue };
            let number = u32::from_be_bytes(message.payload[..].try_into().unwrap());
            if seen.insert(number) {
                first_ones.push(number);
            }
        }
        first_ones
    };
    let both = async { tokio::join!(publish, receive) };
    let ((), first_ones) = timeout(HANG, both).await.unwrap();
    assert_eq!(first_ones, (0..MESSAGES).collect::<Vec<_>>());
    assert!(connection.close(HANG).await);
    let resumed = echo.resumed.lock().unwrap().clone();
    assert!(!resumed[0] && resumed.len() > 1 && resumed[1..].iter().all(|is_resumed| *is_resumed));
}

#[tokio::test]
#[ignore = "needs Debian's mosquitto"]
async fn a_graceful_end_handles_what_mosquitto_has_queued() {
    const MESSAGES: usize = 200;
    let place = Place::new();
    let config = |[port]: [u16; 1]| format!("listener {port} 127.0.0.1\nallow_anonymous true\n");
    let (_mosquitto, [port]) = mosquitto_at(&place, config);
    let target = Target::Tcp { host: "127.0.0.1".to_owned(), port };
    let echo = Arc::new(Echo::default());
    echo.is_busy.store(true, Ordering::Relaxed);
    let mut connection = start(target.clone(), &echo).await;
    let client = Client::connect(client::Settings::new(target, "client".to_owned())).await.unwrap();
    for _ in 0..MESSAGES {
        let mut published = client.publish("requests".to_owned(), "x".into()).await.unwrap();
        assert_eq!(published.acknowledged().await.unwrap().code, 0);
    }
    assert_eq!(echo.handled.load(Ordering::Relaxed), 0);
    // More than Mosquitto has in flight: it sends the others as these are acknowledged, also after the UNSUBSCRIBE.
    let room = async {
        tokio::task::yield_now().await;
        echo.is_busy.store(false, Ordering::Relaxed);
        echo.changed.notify_one();
    };
    let (is_unsubscribed, ()) = tokio::join!(connection.unsubscribe(HANG), room);
    assert!(is_unsubscribed);
    assert_eq!(echo.handled.load(Ordering::Relaxed), MESSAGES);
    assert!(connection.close(HANG).await);
}

#[tokio::test]
#[ignore = "needs Debian's mosquitto"]
async fn a_message_that_mosquitto_forwards_but_cannot_be_decoded_does_not_end_the_connection() {
    let place = Place::new();
    let config = |[port]: [u16; 1]| format!("listener {port} 127.0.0.1\nallow_anonymous true\n");
    let (_mosquitto, [port]) = mosquitto_at(&place, config);
    let target = Target::Tcp { host: "127.0.0.1".to_owned(), port };
    let echo = Arc::new(Echo::default());
    let connection = start(target.clone(), &echo).await;
    let client = Client::connect(client::Settings::new(target, "client".to_owned())).await.unwrap();
    let mut answers = client.subscribe(vec!["answers".to_owned()]).await.unwrap();
    let mut raw = RawClient::connect(port);
    raw.send(&wire::connect("raw"));
    assert_eq!(raw.receive().unwrap().name(), "CONNACK");
    // An empty response topic, and more user properties than are decoded.
    for (packet_id, properties) in [(1, b"\x08\0\0".to_vec()), (2, b"\x26\0\0\0\0".repeat(8193))] {
        let body = [wire::text("requests"), vec![0, packet_id], wire::length(properties.len()), properties];
        raw.send(&wire::packet(0x32, body.concat()));
        assert_eq!(raw.receive().unwrap().name(), "PUBACK");
    }
    let mut published = client.publish("requests".to_owned(), "x".into()).await.unwrap();
    assert_eq!(published.acknowledged().await.unwrap().code, 0);
    let answer =
        async { while !matches!(answers.next().await.unwrap(), SubscriptionEvent::Message { .. }) {} };
    timeout(HANG, answer).await.unwrap();
    assert_eq!(*echo.malformed.lock().unwrap(), [(); 2].map(|()| Some("requests".to_owned())));
    assert_eq!(*echo.resumed.lock().unwrap(), [false], "one connection");
    assert!(connection.close(HANG).await);
}
