//! PINGREQ, keep-alive, DISCONNECT, AUTH, and closed connections (MQTT 5, 3.12 to 3.15).

use super::*;
use crate::a_watchdog::bounded;

#[tokio::test]
async fn a_client_that_sends_nothing_is_disconnected_after_one_and_a_half_keep_alives() {
    let server = start().await;
    let before = crate::clock::monotonic();
    let (mut client, _) =
        Client::connect_with(&server, ConnectOptions { keep_alive: 1, ..ConnectOptions::new("a") }).await;
    assert_eq!(client.receive_disconnect().await, DisconnectReasonCode::KeepAliveTimeout);
    assert!(crate::clock::monotonic().duration_since(before) >= Duration::from_millis(1_490));
}

#[tokio::test]
async fn a_connection_without_a_connect_is_closed() {
    let settings = Settings { connect_timeout: Duration::from_millis(20), ..Settings::default() };
    let server = start_with(settings).await;
    assert_eq!(Client::unconnected(&server).receive_any().await, None);
}

#[tokio::test]
async fn a_disconnect_may_omit_its_property_length() {
    let server = start().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("will")).await;
    let (mut client, _) = Client::connect_with(
        &server,
        ConnectOptions { will: Some(will("will", 0)), ..ConnectOptions::new("a") },
    )
    .await;
    client.send_bytes(&[0xE0, 0x01, 0x04]).await;
    assert_eq!(client.receive_any().await, None);
    assert_eq!(watcher.receive_topics(1).await, ["will"]);
}

#[tokio::test]
async fn a_shutdown_disconnects_every_client_and_does_not_wait_for_unconnected_ones() {
    let echo = Arc::new(Echo::default());
    // Only the shutdown closes the connections, no timeout.
    let settings = Settings { connect_timeout: Duration::from_secs(3600), ..Settings::default() };
    let server = Server::start(settings, Hooks::new(Arc::<Echo>::clone(&echo))).await.unwrap();
    let mut connected = Client::connect(&server, "a").await;
    let mut unconnected = Client::unconnected(&server);
    server.shutdown().await;
    assert_eq!(echo.disconnected.lock().unwrap().len(), 1);
    assert!(connected.stream.write_all(b"\xc0\0").await.is_err(), "the connection has closed");
    assert_eq!(connected.receive_disconnect().await, DisconnectReasonCode::ServerShuttingDown);
    assert_eq!(connected.receive_any().await, None);
    assert_eq!(unconnected.receive_any().await, None);
}

/// Handles a message only when the test wants it.
struct Waiting {
    /// The connection of each message that is handled.
    started: tokio::sync::mpsc::UnboundedSender<ConnectionId>,
    /// A message is handled for each of these.
    ends: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl Application for Waiting {
    fn handle_publish(&self, _: &Broker, from: &Peer, _: Message, _: Instant) -> Verdict {
        self.started.send(from.connection).unwrap();
        bounded(|| self.ends.lock().unwrap().recv()).unwrap();
        Verdict::Consumed
    }

    fn handle_disconnect(&self, _: &Broker, _: &Peer) {}
}

#[tokio::test]
async fn a_drain_waits_for_a_message_that_is_handled_also_if_its_connection_is_to_be_closed() {
    enum Ending {
        None,
        Disconnect,
        Takeover,
    }
    for ending in [Ending::None, Ending::Disconnect, Ending::Takeover] {
        let (started, mut handled) = tokio::sync::mpsc::unbounded_channel();
        let (end, ends) = std::sync::mpsc::channel();
        // The connection is served by another thread than this one.
        let listeners = vec![ListenerSettings::plain("127.0.0.1:0".parse().unwrap())];
        let settings = Settings { threads: 1, listeners, ..Settings::default() };
        let hooks = Hooks::new(Arc::new(Waiting { started, ends: Mutex::new(ends) }));
        let server = Server::start(settings, hooks).await.unwrap();
        let mut client = tokio::net::TcpStream::connect(server.addresses()[0]).await.unwrap();
        client.write_all(b"\x10\x0e\0\x04MQTT\x05\x02\0\0\0\0\x01a\x30\x05\0\x01t\0x").await.unwrap();
        let connection = handled.recv().await.unwrap();
        let mut next = None;
        match ending {
            Ending::None => {}
            Ending::Disconnect => {
                server.broker().disconnect(connection, ReasonCode::AdministrativeAction, "go");
            }
            Ending::Takeover => next = Some(Client::connect(&server, "a").await),
        }
        let mut drain = std::pin::pin!(server.drain());
        let is_pending = tokio::select! {
            biased;
            () = &mut drain => false,
            () = tokio::task::yield_now() => true,
        };
        assert!(is_pending, "the message is not handled yet");
        end.send(()).unwrap();
        drain.await;
        drop(next);
    }
}

#[tokio::test]
async fn a_drained_broker_closes_a_connection_once_all_its_messages_have_been_sent() {
    // Longer than a connection that is closed may take to write its last bytes.
    const SLOW: Duration = Duration::from_millis(200);
    let server = start().await;
    let mut options = ConnectOptions::new("a");
    options.properties.receive_maximum = Some(1);
    let (mut client, _) = Client::connect_with(&server, options).await;
    client.subscribe(filter("t")).await;
    let payload = Bytes::from(vec![b'x'; 200_000]);
    for _ in 0..2 {
        server.broker().publish(None, Message { payload: payload.clone(), ..message("t", Qos::AtLeastOnce) });
    }
    let is_finished = std::cell::Cell::new(false);
    let reading = async {
        for _ in 0..2 {
            tokio::time::sleep(SLOW).await;
            let publish = client.receive_publish().await;
            assert_eq!(publish.payload, payload);
            assert!(!is_finished.get(), "the broker waits for its connections");
            client.send(Packet::PubAck(PubAck::new(publish.pkid, None))).await;
        }
        assert_eq!(client.receive_disconnect().await, DisconnectReasonCode::ServerShuttingDown);
    };
    let finishing = async {
        server.drain().await;
        server.finish().await;
        is_finished.set(true);
    };
    tokio::join!(finishing, reading);
}

#[tokio::test]
async fn a_drained_broker_handles_and_acknowledges_no_other_message() {
    let (server, echo) = start_echo().await;
    let mut client = Client::connect(&server, "a").await;
    server.drain().await;
    client.publish(qos_1("t", 1)).await;
    client.expect_nothing().await;
    assert!(echo.senders.lock().unwrap().is_empty());
}

/// The length of a message that does not fit into the buffer of a connection.
const LARGE_BYTES: usize = 1024 * 1024;

/// Connects a client with a keep-alive of 1 s and sends it a message that it has not read.
async fn with_unread_message(server: &Server) -> Client {
    let options = ConnectOptions { keep_alive: 1, ..ConnectOptions::new("a") };
    let (mut client, _) = Client::connect_with(server, options).await;
    client.subscribe(SubscribeFilter::new("t", QoS::AtMostOnce)).await;
    let payload = vec![b'x'; LARGE_BYTES].into();
    server.broker().publish(None, Message { payload, ..message("t", Qos::AtMostOnce) });
    client
}

#[tokio::test]
async fn packets_keep_a_client_alive_also_while_they_wait_for_its_reading() {
    let server = start().await;
    let mut client = with_unread_message(&server).await;
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        client.send_bytes(b"\xc0\0").await;
    }
    assert_eq!(client.receive_publish().await.payload.len(), LARGE_BYTES);
    for _ in 0..5 {
        assert_eq!(client.receive().await, Packet::PingResp);
    }
}

#[tokio::test]
async fn a_client_that_reads_slowly_is_alive_while_the_broker_reads_nothing() {
    const PINGS: usize = 40_000;
    let server = start().await;
    let mut client = with_unread_message(&server).await;
    // More packets than the broker reads before its output has been written.
    client.send_bytes(&b"\xc0\0".repeat(PINGS)).await;
    let mut received = 0;
    while received < LARGE_BYTES {
        tokio::time::sleep(Duration::from_millis(100)).await;
        received += client.receive_bytes(LARGE_BYTES / 25).await.len();
    }
    // The header of the message, and some of the answers.
    let rest = client.receive_bytes(PINGS / 2).await;
    assert!(
        rest.ends_with(b"\xd0\0\xd0\0") || rest.ends_with(b"\0\xd0\0\xd0"),
        "{:?}",
        rest.last_chunk::<8>()
    );
}

#[tokio::test]
async fn a_ping_is_answered_and_keeps_a_client_alive() {
    let server = start().await;
    let (mut client, _) =
        Client::connect_with(&server, ConnectOptions { keep_alive: 1, ..ConnectOptions::new("a") }).await;
    let end = crate::clock::monotonic() + Duration::from_secs(2);
    while crate::clock::monotonic() < end {
        ping(&mut client).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn each_ping_keeps_a_client_alive_however_many_packets_precede_it() {
    let server = start().await;
    let mut clients = Vec::new();
    // With one of them, the turn of the connection ends: it is for 64 packets.
    for pings in 0..64 {
        // The broker assigns the client id.
        let options = ConnectOptions { keep_alive: 2, ..ConnectOptions::new("") };
        let (mut client, _) = Client::connect_with(&server, options).await;
        for _ in 0..pings {
            ping(&mut client).await;
        }
        clients.push(client);
    }
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(1_600)).await;
        for client in &mut clients {
            ping(client).await;
        }
    }
}

async fn ping(client: &mut Client) {
    client.send_bytes(b"\xc0\0").await;
    assert_eq!(client.receive_bytes(2).await, b"\xd0\0");
}

#[tokio::test]
async fn the_keep_alive_is_counted_from_the_last_packet() {
    let server = start().await;
    let (mut client, _) =
        Client::connect_with(&server, ConnectOptions { keep_alive: 1, ..ConnectOptions::new("a") }).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    let before = crate::clock::monotonic();
    ping(&mut client).await;
    assert_eq!(client.receive_disconnect().await, DisconnectReasonCode::KeepAliveTimeout);
    assert!(crate::clock::monotonic().duration_since(before) >= Duration::from_millis(1_490));
}

#[tokio::test]
async fn bytes_without_a_complete_packet_keep_no_client_alive() {
    let server = start().await;
    let (mut client, _) =
        Client::connect_with(&server, ConnectOptions { keep_alive: 1, ..ConnectOptions::new("a") }).await;
    let before = crate::clock::monotonic();
    // A PUBLISH of 127 bytes, of which one arrives every 100 ms.
    client.send_bytes(b"\x30\x7f").await;
    let (mut reader, mut writer) = tokio::io::split(client.stream);
    let trickle = async {
        while writer.write_all(b"\0").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let mut received = Vec::new();
    tokio::select! {
        () = trickle => {}
        read = reader.read_to_end(&mut received) => drop(read.unwrap()),
    }
    assert_eq!(received.get(2), Some(&0x8D), "a DISCONNECT for the keep-alive: {received:?}");
    let elapsed = crate::clock::monotonic().duration_since(before);
    assert!((Duration::from_millis(1_400)..Duration::from_secs(8)).contains(&elapsed), "{elapsed:?}");
}

#[tokio::test]
async fn a_large_packet_may_take_longer_than_its_keep_alive() {
    let server = start().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("a")).await;
    let (mut client, _) =
        Client::connect_with(&server, ConnectOptions { keep_alive: 1, ..ConnectOptions::new("a") }).await;
    // 16 KiB in 2 s, without another packet.
    let body = [&b"\0\x01a\0"[..], &[b'x'; 16 * 1024]].concat();
    client.send_bytes(b"\x30\x84\x80\x01").await;
    for part in body.chunks(1024) {
        client.send_bytes(part).await;
        tokio::time::sleep(Duration::from_millis(125)).await;
    }
    assert_eq!(watcher.receive_publish().await.payload.len(), 16 * 1024);
    client.expect_nothing().await;
}

#[tokio::test]
async fn a_disconnect_of_the_server_has_a_reason_string_and_no_expiry_and_is_the_last_packet() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    client.send_bytes(b"\xd0\0\xc0\0\xc0\0").await;
    let Packet::Disconnect(disconnect) = client.receive().await else { panic!("no DISCONNECT") };
    assert_eq!(disconnect.reason_code, DisconnectReasonCode::ProtocolError);
    let properties = disconnect.properties.unwrap();
    assert_eq!((properties.session_expiry_interval, properties.user_properties.len()), (None, 0));
    assert_eq!(properties.reason_string.as_deref(), Some("an unexpected PINGRESP"));
    assert_eq!(client.receive_any().await, None);
}

#[tokio::test]
async fn packets_behind_a_disconnect_are_not_handled() {
    let (server, echo) = start_echo().await;
    let mut client = Client::connect(&server, "a").await;
    client.send_bytes(b"\xe0\0\x30\x05\0\x01a\0x").await;
    assert_eq!(client.receive_any().await, None);
    assert!(echo.senders.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_thousand_connections_without_a_connect_are_closed_and_delay_no_client() {
    let settings = Settings { connect_timeout: Duration::from_millis(200), ..Settings::default() };
    let server = start_with(settings).await;
    let mut client = Client::connect(&server, "a").await;
    let unconnected: Vec<_> = (0..1000).map(|_| Client::unconnected(&server)).collect();
    client.expect_nothing().await;
    for one in unconnected {
        assert_eq!(one.receive_to_end().await, b"");
    }
    client.expect_nothing().await;
}
