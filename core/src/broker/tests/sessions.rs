//! Sessions: contents, expiry and takeover (MQTT 5, 4.1).

use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;

#[tokio::test]
async fn a_resumed_session_has_its_queued_and_unacknowledged_messages() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    client.subscribe(filter("#")).await;
    let mut publisher = Client::connect(&server, "publisher").await;
    publisher.publish(qos_1("first", 1)).await;
    publisher.receive_puback().await;
    let unacknowledged = client.receive_publish().await.pkid;
    drop(client);
    publisher.publish(qos_0("lost")).await;
    publisher.publish(qos_1("second", 2)).await;
    assert_eq!(publisher.receive_puback().await, PubAckReason::Success);
    let (mut client, connack) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    assert!(connack.session_present);
    let again = client.receive_publish().await;
    assert_eq!((again.pkid, again.dup, &again.topic[..]), (unacknowledged, true, &b"first"[..]));
    let mut topics = Vec::new();
    // The scheduler decides whether `lost` is published before the broker sees that the connection is closed.
    while topics.last().is_none_or(|topic| topic != "second") {
        topics.extend(client.receive_topics(1).await);
    }
    client.expect_nothing().await;
}

#[tokio::test]
async fn a_session_whose_connack_may_have_been_lost_is_not_reported_as_present() {
    let server = start().await;
    for _ in 0..3 {
        // The client sends nothing that shows that it has received the CONNACK.
        let (client, connack) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
        assert!(!connack.session_present);
        drop(client);
    }
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    client.publish(qos_1("a", 1)).await;
    client.receive_puback().await;
    for _ in 0..2 {
        client = {
            let (client, connack) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
            assert!(connack.session_present, "once known, it stays so");
            client
        };
    }
    drop(client);
}

#[tokio::test]
async fn a_clean_start_discards_the_session() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    client.subscribe(filter("#")).await;
    client.disconnect().await;
    let clean = ConnectOptions { clean_start: true, ..ConnectOptions::persistent("a") };
    let (mut client, connack) = Client::connect_with(&server, clean).await;
    assert!(!connack.session_present);
    client.publish(qos_1("a", 1)).await;
    assert_eq!(client.receive_puback().await, PubAckReason::NoMatchingSubscribers);
}

#[tokio::test]
async fn a_session_ends_with_its_connection_if_its_expiry_interval_is_0() {
    let server = start().await;
    let mut options = ConnectOptions::new("a");
    options.properties.session_expiry_interval = Some(1);
    let (client, _) = Client::connect_with(&server, options).await;
    client.disconnect().await;
    let (client, connack) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    assert!(connack.session_present);
    let mut client = client;
    let properties = DisconnectProperties {
        session_expiry_interval: Some(0),
        reason_string: None,
        user_properties: Vec::new(),
        server_reference: None,
    };
    let reason = DisconnectReasonCode::NormalDisconnection;
    client.send(Packet::Disconnect(Disconnect::new_with_properties(reason, properties))).await;
    assert_eq!(client.receive_any().await, None);
    let (_, connack) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    assert!(!connack.session_present);
}

#[tokio::test]
async fn a_second_connect_with_the_same_client_id_takes_over_the_session() {
    let (server, echo) = start_echo().await;
    let (mut old, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    old.subscribe(filter("a")).await;
    let (mut new, connack) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    assert!(connack.session_present);
    assert_eq!(old.receive_disconnect().await, DisconnectReasonCode::SessionTakenOver);
    assert_eq!(echo.disconnected.lock().unwrap().len(), 1);
    new.publish(qos_1("a", 1)).await;
    assert_eq!(new.receive_puback().await, PubAckReason::Success);
    assert_eq!(new.receive_topics(1).await, ["a"]);
}

#[tokio::test]
async fn a_late_disconnect_of_the_old_connection_does_not_close_the_new_one() {
    let (server, echo) = start_echo().await;
    let (mut old, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    old.publish(qos_1("x", 1)).await;
    old.receive_puback().await;
    let (mut new, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    old.send(Packet::Disconnect(Disconnect::new(DisconnectReasonCode::NormalDisconnection))).await;
    while old.receive_any().await.is_some() {}
    new.publish(qos_1("answer/a", 1)).await;
    assert_eq!(new.receive_puback().await, PubAckReason::Success);
    assert_eq!(new.receive_topics(1).await, ["answer/a"]);
    let senders = echo.senders.lock().unwrap().clone();
    assert!(senders[0].connection < senders[1].connection);
    assert_eq!(*echo.disconnected.lock().unwrap(), [senders[0].connection]);
}

#[tokio::test]
async fn two_hundred_takeovers_of_one_client_id_succeed_and_leave_one_session() {
    let (server, echo) = start_echo().await;
    let mut last = Client::connect_with(&server, ConnectOptions::persistent("a")).await.0;
    last.subscribe(filter("a")).await;
    for _ in 0..200 {
        let (next, connack) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
        assert_eq!((connack.code, connack.session_present), (ConnectReturnCode::Success, true));
        assert_eq!(last.receive_disconnect().await, DisconnectReasonCode::SessionTakenOver);
        last = next;
    }
    assert_eq!(server.broker().publish(None, message("a", Qos::AtLeastOnce)), 1);
    assert_eq!(last.receive_topics(1).await, ["a"]);
    assert_eq!(echo.disconnected.lock().unwrap().len(), 200);
}

#[tokio::test]
async fn a_session_does_not_expire_while_its_client_is_connected() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("a")).await;
    let later = crate::clock::monotonic() + Duration::from_secs(100_000);
    server.broker().handle_deadlines(later);
    client.publish(qos_0("a")).await;
    assert_eq!(client.receive_topics(1).await, ["a"]);
}

#[tokio::test]
async fn a_disconnect_may_change_the_expiry_interval_unless_it_was_0() {
    let server = start().await;
    let disconnect = |seconds| {
        let properties = DisconnectProperties {
            session_expiry_interval: Some(seconds),
            reason_string: None,
            user_properties: Vec::new(),
            server_reference: None,
        };
        let reason = DisconnectReasonCode::NormalDisconnection;
        Packet::Disconnect(Disconnect::new_with_properties(reason, properties))
    };
    let mut client = Client::connect(&server, "a").await;
    client.send(disconnect(10)).await;
    assert_eq!(client.receive_disconnect().await, DisconnectReasonCode::ProtocolError);
    let mut options = ConnectOptions::new("b");
    options.properties.session_expiry_interval = Some(1);
    let (mut client, _) = Client::connect_with(&server, options).await;
    client.send(disconnect(1000)).await;
    assert_eq!(client.receive_any().await, None);
    server.broker().handle_deadlines(crate::clock::monotonic() + Duration::from_secs(500));
    assert!(Client::connect_with(&server, ConnectOptions::new("b")).await.1.session_present);
    // The limit of the server applies to it too.
    let server = start_with(Settings { session_expiry_s_max: 60, ..Settings::default() }).await;
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("c")).await;
    client.send(disconnect(1000)).await;
    assert_eq!(client.receive_any().await, None);
    server.broker().handle_deadlines(crate::clock::monotonic() + Duration::from_secs(100));
    assert!(!Client::connect_with(&server, ConnectOptions::new("c")).await.1.session_present);
}

/// Acknowledges each message, and records what was known of each client at the end of its connection.
#[derive(Default)]
struct Ends(Mutex<Vec<(SessionPhase, u64)>>);

impl Application for Ends {
    fn handle_publish(&self, _: &Broker, _: &Peer, _: Message, _: Instant) -> Verdict {
        Verdict::Consumed
    }

    fn handle_disconnect(&self, _: &Broker, peer: &Peer) {
        self.0.lock().unwrap().push((peer.session, peer.confirmed));
    }
}

/// How a test ends a connection.
#[derive(Clone, Copy, Debug)]
enum End {
    Lost,
    /// A DISCONNECT, and its properties.
    Disconnect(&'static [u8]),
}

#[tokio::test]
async fn the_application_learns_which_messages_a_client_may_deliver_again() {
    let ends = Arc::new(Ends::default());
    let server = Server::start(Settings::default(), Hooks::new(Arc::<Ends>::clone(&ends))).await.unwrap();
    let normal = End::Disconnect(b"\xe0\0");
    let ending = End::Disconnect(b"\xe0\x07\0\x05\x11\0\0\0\0");
    // Session Expiry Interval and Clean Start, the end, and what is known then: the phase, and how many messages of one are
    // not delivered again.
    let steps = [
        (0, true, normal, (SessionPhase::Ended, 1)),
        (0, true, End::Lost, (SessionPhase::New, 1)),
        (9, false, End::Lost, (SessionPhase::New, 0)),
        (9, false, normal, (SessionPhase::Resumed, 0)),
        (0, false, End::Lost, (SessionPhase::Resumed, 1)),
        (9, false, End::Lost, (SessionPhase::New, 0)),
        (9, true, End::Lost, (SessionPhase::New, 0)),
        (9, false, ending, (SessionPhase::Ended, 1)),
        (9, false, normal, (SessionPhase::New, 0)),
    ];
    for (at, (expiry_s, clean_start, end, expected)) in steps.into_iter().enumerate() {
        let mut options = ConnectOptions { clean_start, ..ConnectOptions::new("a") };
        options.properties.session_expiry_interval = Some(expiry_s);
        let (mut client, _) = Client::connect_with(&server, options).await;
        client.publish(qos_1("t", 1)).await;
        assert_eq!(client.receive_puback().await, PubAckReason::Success);
        if let End::Disconnect(bytes) = end {
            client.send_bytes(bytes).await;
            assert_eq!(client.receive_any().await, None);
        }
        drop(client);
        while ends.0.lock().unwrap().len() <= at {
            tokio::task::yield_now().await;
        }
        assert_eq!(ends.0.lock().unwrap()[at], expected, "{at}");
    }
    // Clean Session of MQTT 3.1.1 ends the session with the connection.
    let mut old = Client::unconnected(&server);
    old.send_bytes(b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01a\x32\x05\0\x01t\0\x01\xe0\0").await;
    old.receive_to_end().await;
    while ends.0.lock().unwrap().len() <= steps.len() {
        tokio::task::yield_now().await;
    }
    assert_eq!(ends.0.lock().unwrap().last(), Some(&(SessionPhase::Ended, 1)));
}

/// The versions of MQTT, and whether a client of each can have a session that begins with Clean Start 1 and persists.
const VERSIONS: [(u8, bool); 2] = [(5, true), (4, false)];

/// Returns a CONNECT of the client `a` whose session persists.
fn raw_connect(version: u8, clean_start: bool) -> Vec<u8> {
    let expiry = if version == 5 { &b"\x05\x11\0\0\x0e\x10"[..] } else { b"" };
    let head = [&b"\0\x04MQTT"[..], &[version, u8::from(clean_start) << 1, 0, 0]].concat();
    let body = [&head, expiry, b"\0\x01a"].concat();
    [&[0x10, u8::try_from(body.len()).unwrap()], &body[..]].concat()
}

/// Starts a server with a listener; returns it with its events.
async fn start_tcp() -> (Server, UnboundedReceiver<Event>) {
    let (sender, received) = unbounded_channel();
    let events = Arc::new(move |event: Event| drop(sender.send(event)));
    let listeners = vec![ListenerSettings::plain("127.0.0.1:0".parse().unwrap())];
    let hooks = Hooks { events, ..Hooks::new(Arc::new(())) };
    (Server::start(Settings { listeners, ..Settings::default() }, hooks).await.unwrap(), received)
}

/// Connects the client `a` and reads the CONNACK; returns its Session Present.
async fn connect_by_tcp(server: &Server, version: u8, clean_start: bool) -> (TcpStream, bool) {
    let mut stream = TcpStream::connect(server.addresses()[0]).await.unwrap();
    stream.write_all(&raw_connect(version, clean_start)).await.unwrap();
    let mut head = [0; 2];
    stream.read_exact(&mut head).await.unwrap();
    let mut rest = vec![0; usize::from(head[1])];
    stream.read_exact(&mut rest).await.unwrap();
    assert_eq!((head[0], rest[1]), (0x20, 0), "version {version}");
    (stream, rest[0] == 1)
}

// Other systems do not report what has arrived.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_idle_session_whose_connack_has_arrived_is_resumed() {
    for (version, clean_start) in [(5, false), (5, true), (4, false)] {
        // Whether the server notices the end of the connection before the client comes back.
        for is_noticed in [true, false] {
            let (server, mut events) = start_tcp().await;
            let (first, session_present) = connect_by_tcp(&server, version, clean_start).await;
            assert!(!session_present);
            if is_noticed {
                drop(first);
                while !matches!(events.recv().await.unwrap(), Event::Disconnected { .. }) {}
            }
            let (_second, session_present) = connect_by_tcp(&server, version, false).await;
            assert!(session_present, "version {version}, Clean Start {clean_start}, {is_noticed}");
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_session_whose_connack_was_lost_is_not_resumed_unless_the_client_began_it_with_clean_start() {
    for (version, can_be_clean) in VERSIONS {
        for (is_reset, clean_start) in [(true, false), (false, false), (true, can_be_clean)] {
            let (server, mut events) = start_tcp().await;
            // The server's tasks do not run before the client is gone.
            let mut client = std::net::TcpStream::connect(server.addresses()[0]).unwrap();
            std::io::Write::write_all(&mut client, &raw_connect(version, clean_start)).unwrap();
            if is_reset {
                client.set_nonblocking(true).unwrap();
                TcpStream::from_std(client).unwrap().set_zero_linger().unwrap();
            } else {
                drop(client);
            }
            let connected = events.recv().await.unwrap();
            assert!(matches!(connected, Event::Connected { session_present: false, .. }));
            while !matches!(events.recv().await.unwrap(), Event::Disconnected { .. }) {}
            let (second, session_present) = connect_by_tcp(&server, version, false).await;
            assert_eq!(session_present, clean_start, "version {version}, {is_reset}");
            drop(second);
            assert!(connect_by_tcp(&server, version, false).await.1, "this CONNACK has arrived");
        }
    }
}
