//! Flow control, and clients that do not read (MQTT 5, 4.9).

use super::*;

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected_and_does_not_delay_others() {
    let closed = Arc::new(Mutex::new(Vec::new()));
    let events = Arc::clone(&closed);
    let settings = Settings { session_queue_messages_max: 10, ..Settings::default() };
    let events: EventSink = Arc::new(move |event| {
        if let Event::Disconnected { client_id, reason } = event {
            events.lock().unwrap().push((client_id, reason));
        }
    });
    let hooks = Hooks { events, ..Hooks::new(Arc::new(())) };
    let server = Server::start(settings, hooks).await.unwrap();
    let mut stalled = Client::connect(&server, "stalled").await;
    stalled.subscribe(filter("a")).await;
    let mut publisher = Client::connect(&server, "publisher").await;
    let payload = Bytes::from(vec![b'x'; 50_000]);
    for packet_id in 1..50 {
        publisher.publish(Publish { payload: payload.clone(), ..qos_1("a", packet_id) }).await;
        publisher.receive_puback().await;
    }
    publisher.publish(qos_1("a", 50)).await;
    assert_eq!(publisher.receive_puback().await, PubAckReason::NoMatchingSubscribers);
    let closed = closed.lock().unwrap();
    assert_eq!(closed.len(), 1);
    assert!(
        closed[0].0.as_ref() == "stalled" && closed[0].1.starts_with("quota exceeded (0x97)"),
        "{closed:?}"
    );
}

/// Answers each message with a push of 16 KB to the sender.
struct Generous;

impl Application for Generous {
    fn handle_publish(&self, broker: &Broker, from: &Peer, message: Message, _: Instant) -> Verdict {
        broker.push(
            from.connection,
            &from.client_id,
            Message { payload: vec![b'x'; 16 * 1024].into(), ..message },
        );
        Verdict::Consumed
    }

    fn handle_disconnect(&self, _: &Broker, _: &Peer) {}
}

/// Starts a server whose queue limit is a sixth of the answers to 100 messages.
async fn start_generous() -> Server {
    let bytes_max = 256 * 1024;
    let settings =
        Settings { session_queue_bytes_max: bytes_max, packet_bytes_max: 64 * 1024, ..Settings::default() };
    Server::start(settings, Hooks::new(Arc::new(Generous))).await.unwrap()
}

fn numbered_requests(count: u16) -> BytesMut {
    let mut requests = BytesMut::new();
    for packet_id in 1..=count {
        Packet::Publish(qos_1("get", packet_id)).write(&mut requests, None).unwrap();
    }
    requests
}

#[tokio::test]
async fn a_client_that_sends_many_requests_and_acknowledges_the_answers_gets_all_in_order() {
    let server = start_generous().await;
    let mut client = Client::connect(&server, "a").await;
    client.send_bytes(&numbered_requests(100)).await;
    let (mut answers, mut acknowledged) = (0, Vec::new());
    while answers < 100 || acknowledged.len() < 100 {
        match client.receive().await {
            Packet::Publish(answer) => {
                answers += 1;
                client.send(Packet::PubAck(PubAck::new(answer.pkid, None))).await;
            }
            Packet::PubAck(puback) => acknowledged.push(puback.pkid),
            other => panic!("unexpected {other:?}"),
        }
    }
    assert!(acknowledged.into_iter().eq(1..=100));
    client.expect_nothing().await;
}

#[tokio::test]
async fn a_client_that_never_acknowledges_is_still_read_from_and_disconnected_in_the_end() {
    let server = start_generous().await;
    let mut client = Client::connect(&server, "a").await;
    client.send_bytes(&numbered_requests(20)).await;
    // Four answers are more than a quarter of the queue limit.
    for _ in 0..4 {
        client.receive_puback().await;
        client.receive_publish().await;
    }
    client.expect_nothing().await;
    client.send_bytes(&numbered_requests(200)).await;
    loop {
        match client.receive().await {
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
async fn a_request_that_expires_while_it_is_deferred_is_not_applied() {
    let server = start_generous().await;
    let mut client = Client::connect(&server, "a").await;
    client.send_bytes(&numbered_requests(4)).await;
    let mut answers = Vec::new();
    for _ in 0..4 {
        client.receive_puback().await;
        answers.push(client.receive_publish().await.pkid);
    }
    for (packet_id, expiry_s) in [(5, 1), (6, 100)] {
        let expiring =
            |properties: &mut PublishProperties| properties.message_expiry_interval = Some(expiry_s);
        client.publish(with_properties(qos_1("get", packet_id), expiring)).await;
    }
    client.expect_nothing().await;
    let is_over = crate::clock::monotonic() + Duration::from_millis(1_100);
    tokio::time::sleep_until(is_over.into()).await;
    for packet_id in answers {
        client.send(Packet::PubAck(PubAck::new(packet_id, None))).await;
    }
    // Both are acknowledged. Only the second one is answered, with the rest of its expiry interval.
    client.receive_puback().await;
    client.receive_puback().await;
    let answer = client.receive_publish().await.properties.unwrap();
    assert!(answer.message_expiry_interval.is_some_and(|left| left < 100), "{answer:?}");
    client.expect_nothing().await;
}

#[tokio::test]
async fn the_clients_receive_maximum_is_not_exceeded() {
    let server = start().await;
    let mut options = ConnectOptions::new("a");
    options.properties.receive_maximum = Some(2);
    let (mut client, _) = Client::connect_with(&server, options).await;
    client.subscribe(filter("#")).await;
    let mut publisher = Client::connect(&server, "publisher").await;
    for packet_id in 1..=3 {
        publisher.publish(qos_1("a", packet_id)).await;
        publisher.receive_puback().await;
    }
    let first = client.receive_publish().await.pkid;
    client.receive_publish().await;
    client.expect_nothing().await;
    client.send(Packet::PubAck(PubAck::new(first, None))).await;
    client.receive_publish().await;
}

#[tokio::test]
async fn a_message_of_qos_2_counts_for_the_receive_maximum_until_pubcomp_or_a_pubrec_with_an_error() {
    let server = start().await;
    let mut options = ConnectOptions::new("a");
    options.properties.receive_maximum = Some(1);
    let (mut client, _) = Client::connect_with(&server, options).await;
    client.subscribe(SubscribeFilter::new("#", QoS::ExactlyOnce)).await;
    for topic in ["a", "b", "c"] {
        server.broker().publish(None, message(topic, Qos::ExactlyOnce));
    }
    let first = client.receive_publish().await;
    assert_eq!(&first.topic[..], b"a");
    client.send(Packet::PubRec(PubRec::new(first.pkid, None))).await;
    assert_eq!(client.receive().await, Packet::PubRel(PubRel::new(first.pkid, None)));
    client.expect_nothing().await;
    client.send(Packet::PubComp(PubComp::new(first.pkid, None))).await;
    let second = client.receive_publish().await;
    assert_eq!(&second.topic[..], b"b");
    client.expect_nothing().await;
    let [high, low] = second.pkid.to_be_bytes();
    client.send_bytes(&[0x50, 4, high, low, 0x83, 0]).await;
    assert_eq!(&client.receive_publish().await.topic[..], b"c");
}

#[tokio::test]
async fn a_client_that_exceeds_the_receive_maximum_is_disconnected() {
    let server = start_with(Settings { receive_maximum: 2, ..Settings::default() }).await;
    let mut client = Client::connect(&server, "a").await;
    for packet_id in 1..=5 {
        client.publish(qos_1("a", packet_id)).await;
        client.receive_puback().await;
    }
    for packet_id in 1..=2 {
        client.publish(qos_2("a", packet_id)).await;
        assert!(matches!(client.receive().await, Packet::PubRec(_)));
    }
    client.publish(qos_2("a", 3)).await;
    assert_eq!(client.receive_disconnect().await, DisconnectReasonCode::ReceiveMaximumExceeded);
    let mut client = Client::connect(&server, "a").await;
    client.send_bytes(&numbered_requests(3)).await;
    for _ in 0..2 {
        client.receive_puback().await;
    }
    assert_eq!(client.receive_disconnect().await, DisconnectReasonCode::ReceiveMaximumExceeded);
}

#[tokio::test]
async fn the_application_is_given_how_many_acknowledgements_the_client_has_received() {
    let echo = Arc::new(Echo::default());
    let hooks = Hooks::new(Arc::<Echo>::clone(&echo));
    let server = Server::start(Settings { receive_maximum: 3, ..Settings::default() }, hooks).await.unwrap();
    let mut client = Client::connect(&server, "a").await;
    for packet_id in 1..=5 {
        client.publish(qos_1("a", packet_id)).await;
        client.receive_puback().await;
    }
    client.publish(qos_1("answer/a", 6)).await;
    let mut answer = None;
    for _ in 0..2 {
        if let Packet::Publish(publish) = client.receive().await {
            answer = Some(publish.pkid);
        }
    }
    // A client that acknowledges a message has received what precedes it.
    client.send(Packet::PubAck(PubAck::new(answer.unwrap(), None))).await;
    client.publish(qos_1("a", 7)).await;
    client.receive_puback().await;
    let senders = echo.senders.lock().unwrap();
    let numbers: Vec<_> = senders.iter().map(|peer| (peer.message_number, peer.confirmed)).collect();
    assert_eq!(numbers, [(1, 0), (2, 0), (3, 0), (4, 1), (5, 2), (6, 3), (7, 6)]);
}
