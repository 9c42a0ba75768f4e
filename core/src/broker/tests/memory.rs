//! The memory that clients make the broker hold.

use std::future::pending;

use tokio::net::TcpStream;

use super::*;
use crate::broker::memory::Charge;
use crate::broker::{Authenticated, Authenticator, Credential, MemoryKind, PendingCheck};
use crate::net::Secret;

const MEGABYTE: usize = 1024 * 1024;

/// Every check of a password takes for ever.
struct Slow;

impl Authenticator for Slow {
    fn has_users(&self) -> bool {
        true
    }

    fn supports_method(&self, _: &str) -> bool {
        false
    }

    fn check_password(&self, _: &str, _: String, _: Secret) -> PendingCheck {
        Box::pin(pending())
    }

    fn check_data(&self, _: &str, _: Secret) -> PendingCheck {
        Box::pin(pending())
    }
}

async fn start_with_memory(memory_bytes_max: usize) -> Server {
    let settings = Settings {
        memory_bytes_max,
        packet_bytes_max: 1 << 20,
        session_queue_bytes_max: 2 << 20,
        ..Settings::default()
    };
    Server::start(settings, Hooks::new(Arc::new(Echo::default()))).await.unwrap()
}

async fn wait_until(mut is_true: impl FnMut() -> bool) {
    let wait = async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), wait).await.expect("it did not happen");
}

fn large(topic: &str, bytes: usize) -> Publish {
    Publish { payload: vec![b'x'; bytes].into(), ..qos_1(topic, 1) }
}

/// Sends a message; the broker may have closed the connection.
async fn send(client: &mut Client, publish: Publish) {
    let mut bytes = BytesMut::new();
    Packet::Publish(publish).write(&mut bytes, None).unwrap();
    let _ = tokio::time::timeout(Duration::from_secs(10), client.stream.write_all(&bytes)).await.unwrap();
}

#[tokio::test]
async fn answers_that_are_not_read_are_bounded_together_and_other_clients_are_served() {
    let server = start_with_memory(4 * MEGABYTE).await;
    let memory = Arc::clone(server.broker().memory());
    let mut greedy = Vec::new();
    for _ in 0..30 {
        let mut client = Client::connect(&server, "").await;
        // Two answers: one is written until the client's buffer is full, the other one is queued.
        for _ in 0..2 {
            send(&mut client, large("answer/1", 200_000)).await;
        }
        greedy.push(client);
        assert!(memory.used() <= 4 * MEGABYTE, "{} bytes", memory.used());
    }
    assert!(memory.used() > MEGABYTE, "{} bytes", memory.used());
    let mut modest = Client::connect(&server, "modest").await;
    for _ in 0..10 {
        modest.publish(qos_1("answer/2", 1)).await;
        modest.receive_puback().await;
        assert_eq!(modest.receive_topics(1).await, ["answer/2"]);
    }
    let mut refused = 0;
    for client in greedy {
        refused += usize::from(client.reads_to_the_end().await);
    }
    assert!((5..30).contains(&refused), "{refused} are disconnected");
    drop(modest);
    wait_until(|| memory.used() == 0).await;
}

#[tokio::test]
async fn a_clients_message_without_memory_is_refused() {
    let server = start_with_memory(4 * MEGABYTE).await;
    let mut client = Client::connect(&server, "a").await;
    let others = Charge::new(
        &server.broker().memory().account("others"),
        MemoryKind::Sessions,
        3 * MEGABYTE - 100_000,
    );
    client.publish(large("t", 200_000)).await;
    assert_eq!(client.receive_puback().await, PubAckReason::QuotaExceeded);
    client.publish(large("t", 1_000)).await;
    assert_eq!(client.receive_puback().await, PubAckReason::NoMatchingSubscribers);
    drop(others);
    client.publish(large("t", 200_000)).await;
    assert_eq!(client.receive_puback().await, PubAckReason::NoMatchingSubscribers);
}

#[tokio::test]
async fn messages_for_clients_of_an_owner_that_are_not_connected_leave_two_thirds_of_the_memory_to_others() {
    let server = start_with_memory(8 * MEGABYTE).await;
    let memory = Arc::clone(server.broker().memory());
    for client_id in ["a", "b", "c", "d"] {
        let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent(client_id)).await;
        client.subscribe(filter(&format!("{client_id}/#"))).await;
        client.disconnect().await;
    }
    let mut publisher = Client::connect(&server, "publisher").await;
    for number in 0..200 {
        publisher.publish(large(["a/t", "b/t", "c/t", "d/t"][number % 4], 50_000)).await;
        assert_eq!(publisher.receive_puback().await, PubAckReason::Success);
    }
    let third = 8 * MEGABYTE * 6 / 8 / 3;
    let used = memory.used_by(MemoryKind::Sessions);
    assert!(used > third - 300_000 && used < third + 100_000, "{used} bytes");
    publisher.subscribe(filter("echo")).await;
    publisher.publish(large("echo", 500_000)).await;
    publisher.receive_puback().await;
    assert_eq!(publisher.receive_publish().await.payload.len(), 500_000);
}

#[tokio::test]
async fn matched_subscription_identifiers_are_charged() {
    let server = start_with_memory(8 * MEGABYTE).await;
    let memory = Arc::clone(server.broker().memory());
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    for id in 1..=500_usize {
        let levels = (0..9).map(|bit| if id >> bit & 1 == 0 { "t" } else { "+" }).collect::<Vec<_>>();
        client.subscribe_with(filter(&levels.join("/")), Some(id)).await;
    }
    client.disconnect().await;
    let before = memory.used_by(MemoryKind::Sessions);
    for _ in 0..100 {
        server.broker().publish(None, message("t/t/t/t/t/t/t/t/t", Qos::AtLeastOnce));
    }
    let each = (memory.used_by(MemoryKind::Sessions) - before) / 100;
    assert!(each >= 500 * size_of::<u32>(), "{each} bytes for each message");
    assert_eq!(server.broker().statistics().await.queued, 100);
}

#[tokio::test]
async fn subscriptions_and_wills_are_charged_until_the_session_ends() {
    let server = start_with_memory(8 * MEGABYTE).await;
    let memory = Arc::clone(server.broker().memory());
    let will = LastWill { message: vec![b'w'; 60_000].into(), ..will("w", 0) };
    let (mut client, _) =
        Client::connect_with(&server, ConnectOptions { will: Some(will), ..ConnectOptions::new("a") }).await;
    assert!(memory.used_by(MemoryKind::Sessions) > 55_000);
    client.subscribe(filter(&"t".repeat(30_000))).await;
    assert!(memory.used_by(MemoryKind::Sessions) > 80_000);
    client.disconnect().await;
    wait_until(|| memory.used() == 0).await;
}

#[tokio::test]
async fn partial_packets_are_bounded_together() {
    let server = start_with_memory(4 * MEGABYTE).await;
    let memory = Arc::clone(server.broker().memory());
    let mut clients = Vec::new();
    for _ in 0..40 {
        let mut client = Client::connect(&server, "").await;
        // 300 KB of a packet of 1 MB.
        let bytes = [&b"\x30\xC0\x84\x3D\0\x01t\0"[..], &vec![b'x'; 300_000]].concat();
        // The broker may close the connection meanwhile.
        let _ = client.stream.write_all(&bytes).await;
        assert!(memory.used() <= 4 * MEGABYTE, "{} bytes", memory.used());
        clients.push(client);
    }
    assert!(memory.used_by(MemoryKind::Connections) > MEGABYTE);
    Client::connect(&server, "modest").await.expect_nothing().await;
    drop(clients);
    wait_until(|| memory.used() == 0).await;
}

async fn start_with_strangers(memory_bytes_max: usize) -> Server {
    let listener =
        ListenerSettings { is_anonymous: false, ..ListenerSettings::plain("127.0.0.1:0".parse().unwrap()) };
    let settings = Settings { listeners: vec![listener], memory_bytes_max, ..Settings::default() };
    let hooks = Hooks { authenticator: Arc::new(Slow), ..Hooks::new(Arc::new(())) };
    Server::start(settings, hooks).await.unwrap()
}

/// Encodes a CONNECT with a will, user name and password.
fn connect_bytes(will_payload: usize, password: usize) -> Vec<u8> {
    let text = |len: usize| [&u16::try_from(len).unwrap().to_be_bytes()[..], &vec![b'x'; len]].concat();
    let body =
        [&b"\0\x04MQTT\x05\xC6\0\0\0\0\x01c\0\0\x01w"[..], &text(will_payload), &text(3), &text(password)];
    let body = body.concat();
    let length =
        [0, 7, 14].map(|shift| (body.len() >> shift & 0x7F) as u8 | if shift < 14 { 0x80 } else { 0 });
    [&[0x10][..], &length, &body].concat()
}

#[tokio::test]
async fn a_connect_of_a_stranger_may_be_long_only_by_its_credentials() {
    let server = start_with_strangers(64 * MEGABYTE).await;
    let memory = Arc::clone(server.broker().memory());
    for (will_payload, password, is_accepted) in
        [(1_000, 65_000, true), (20_000, 10, false), (20_000, 65_000, false)]
    {
        let mut stream = TcpStream::connect(server.addresses()[0]).await.unwrap();
        stream.write_all(&connect_bytes(will_payload, password)).await.unwrap();
        if is_accepted {
            wait_until(|| memory.used_by(MemoryKind::Unauthenticated) > 10_000).await;
            continue;
        }
        let mut connack = [0; 4];
        stream.read_exact(&mut connack).await.unwrap();
        assert_eq!((connack[0], connack[3]), (0x20, 0x95));
    }
    server.shutdown().await;
}

#[tokio::test]
async fn strangers_that_wait_for_their_authentication_are_bounded_together() {
    let server = start_with_strangers(4 * MEGABYTE).await;
    let memory = Arc::clone(server.broker().memory());
    let limit = 4 * MEGABYTE / 8;
    let mut streams = Vec::new();
    for _ in 0..60 {
        let mut stream = TcpStream::connect(server.addresses()[0]).await.unwrap();
        // The broker may close the connection meanwhile.
        let _ = stream.write_all(&connect_bytes(10_000, 10_000)).await;
        streams.push(stream);
    }
    wait_until(|| memory.used_by(MemoryKind::Unauthenticated) > limit / 4).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let used = memory.used_by(MemoryKind::Unauthenticated);
    assert!(used <= limit / 2, "{used} bytes of one address");
    let mut refused = 0;
    for stream in &mut streams {
        let mut connack = [0; 4];
        let read = tokio::time::timeout(Duration::from_millis(20), stream.read_exact(&mut connack)).await;
        // A connection is closed at once if there is not even memory for a handshake.
        let is_refused = read.is_ok_and(|read| read.is_err() || (connack[0], connack[3]) == (0x20, 0x97));
        refused += usize::from(is_refused);
    }
    assert!((40..60).contains(&refused), "{refused} are refused");
    drop(streams);
    wait_until(|| memory.used() == 0).await;
    server.shutdown().await;
}

/// Every user is valid.
#[derive(Debug)]
struct AnyUser;

impl Credential for AnyUser {
    fn is_valid(&self) -> bool {
        true
    }
}

impl Authenticator for AnyUser {
    fn has_users(&self) -> bool {
        true
    }

    fn supports_method(&self, _: &str) -> bool {
        false
    }

    fn check_password(&self, _: &str, user: String, _: Secret) -> PendingCheck {
        Box::pin(async move { Ok(Authenticated { user: user.into(), credential: Arc::new(AnyUser) }) })
    }

    fn check_data(&self, _: &str, _: Secret) -> PendingCheck {
        Box::pin(pending())
    }
}

async fn start_with_users(settings: Settings) -> Server {
    let hooks = Hooks { authenticator: Arc::new(AnyUser), ..Hooks::new(Arc::new(Echo::default())) };
    Server::start(settings, hooks).await.unwrap()
}

/// Connects as a user, with a session that lasts for an hour.
async fn connect_as(server: &Server, user: &str, client_id: &str) -> Client {
    let text = |text: &str| [&[0, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let body = [b"\0\x04MQTT\x05\xC0\0\0\x05\x11\0\0\x0E\x10", &text(client_id)[..], &text(user), &text("p")];
    let body = body.concat();
    let mut client = Client::unconnected(server);
    client.send_bytes(&[&[0x10, u8::try_from(body.len()).unwrap()], &body[..]].concat()).await;
    match client.receive().await {
        Packet::ConnAck(connack) => assert_eq!(connack.code, ConnectReturnCode::Success),
        other => panic!("no CONNACK but {other:?}"),
    }
    client
}

/// Subscribes to many long filters; returns how many are granted, None if the client is disconnected.
async fn subscribe_to_many(client: &mut Client, name: &str) -> Option<usize> {
    let filters = (0..200).map(|number| {
        let filter = format!("{}/{name}/{number}", "x".repeat(1_000));
        SubscribeFilter::new(filter, QoS::AtLeastOnce)
    });
    let filters = filters.collect();
    client.send(Packet::Subscribe(Subscribe { pkid: 1, filters, properties: None })).await;
    match client.receive().await {
        Packet::SubAck(suback) => {
            let is_granted = |code: &&SubscribeReasonCode| matches!(code, SubscribeReasonCode::Success(_));
            Some(suback.return_codes.iter().filter(is_granted).count())
        }
        // There is not even memory for the packet.
        Packet::Disconnect(_) => None,
        other => panic!("no SUBACK but {other:?}"),
    }
}

#[tokio::test]
async fn one_user_with_any_number_of_sessions_leaves_room_for_another() {
    let settings = Settings { memory_bytes_max: 4 * MEGABYTE, ..Settings::default() };
    let server = start_with_users(settings).await;
    let mut ann = connect_as(&server, "ann", "ann").await;
    let mut granted = Vec::new();
    for number in 0..20 {
        let name = format!("bob{number}");
        let mut client = connect_as(&server, "bob", &name).await;
        let all = subscribe_to_many(&mut client, &name).await;
        granted.push(all);
        if all.is_some() && number % 2 == 0 {
            client.disconnect().await;
        }
    }
    let (first, last) = (granted[0], granted[19].unwrap_or(0));
    assert!(first == Some(200) && last < 200, "{granted:?}");
    let held = server.broker().memory().used_by(MemoryKind::Sessions);
    let half = 4 * MEGABYTE * 6 / 8 / 2;
    assert!(held > half / 2 && held < half + 50_000, "{held} bytes");
    for _ in 0..10 {
        ann.publish(qos_1("answer/1", 1)).await;
        ann.receive_puback().await;
        assert_eq!(ann.receive_topics(1).await, ["answer/1"]);
    }
    assert_eq!(subscribe_to_many(&mut ann, "ann").await, Some(200), "of the half that is left");
    let mut new = connect_as(&server, "carl", "carl").await;
    assert_eq!(subscribe_to_many(&mut new, "carl").await, Some(200));
}

#[tokio::test]
async fn a_connected_client_of_an_owner_at_its_bound_still_gets_answers_and_a_few_subscriptions() {
    let server = start_with_memory(4 * MEGABYTE).await;
    let owner = server.broker().memory().account("memory");
    let _sessions = Charge::new(&owner, MemoryKind::Sessions, 3 * MEGABYTE);
    let _connections = Charge::new(&owner, MemoryKind::Connections, MEGABYTE);
    assert!(!owner.has_room(MemoryKind::Sessions, 0));
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("own/+/state")).await;
    client.publish(qos_1("answer/1", 1)).await;
    client.receive_puback().await;
    assert_eq!(client.receive_topics(1).await, ["answer/1"]);
}

#[tokio::test]
async fn retained_messages_of_one_user_do_not_refuse_those_of_another() {
    let settings = Settings { retained_messages_max: 40, ..Settings::default() };
    let server = start_with_users(settings).await;
    let mut bob = connect_as(&server, "bob", "bob").await;
    let mut stored = Vec::new();
    for number in 0..40 {
        bob.publish(Publish { retain: true, ..qos_1(&format!("bob/{number}"), 1) }).await;
        stored.push(bob.receive_puback().await != PubAckReason::QuotaExceeded);
    }
    assert_eq!(stored.iter().filter(|stored| **stored).count(), 20);
    let mut ann = connect_as(&server, "ann", "ann").await;
    for number in 0..10 {
        ann.publish(Publish { retain: true, ..qos_1(&format!("ann/{number}"), 1) }).await;
        assert_ne!(ann.receive_puback().await, PubAckReason::QuotaExceeded);
    }
    bob.publish(Publish { retain: true, ..qos_1("bob/new", 1) }).await;
    assert_eq!(bob.receive_puback().await, PubAckReason::QuotaExceeded);
}
