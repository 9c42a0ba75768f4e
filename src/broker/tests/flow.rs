//! Flow control, and readers that stall (MQTT 5, 4.9).

use super::*;

#[tokio::test]
async fn a_stalled_reader_is_cut_off_and_others_are_not_held_up() {
    let gone = Arc::new(Mutex::new(Vec::new()));
    let events = Arc::clone(&gone);
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
        broker.push(
            from.connection,
            &from.client_id,
            Message { payload: vec![b'x'; 16 * 1024].into(), ..message },
        );
        Verdict::Consumed
    }

    fn handle_disconnect(&self, _: &Broker, _: &Peer) {}
}

/// The bound is a sixth of what it answers to 100 messages.
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
async fn a_request_that_expires_while_its_sender_has_much_to_acknowledge_is_not_applied() {
    let server = start_generous().await;
    let mut client = Client::connect(&server, "a").await;
    client.say_bytes(&numbered_requests(4)).await;
    let mut answers = Vec::new();
    for _ in 0..4 {
        client.hear_puback().await;
        answers.push(client.hear_publish().await.pkid);
    }
    for (packet_id, expiry_s) in [(5, 1), (6, 100)] {
        let expiring =
            |properties: &mut PublishProperties| properties.message_expiry_interval = Some(expiry_s);
        client.publish(with_properties(qos_1("get", packet_id), expiring)).await;
    }
    client.hear_nothing().await;
    let is_over = crate::clock::monotonic() + Duration::from_millis(1_100);
    tokio::time::sleep_until(is_over.into()).await;
    for packet_id in answers {
        client.say(Packet::PubAck(PubAck::new(packet_id, None))).await;
    }
    // The first one is acknowledged, and only the other one is answered, with what is left of its time.
    client.hear_puback().await;
    client.hear_puback().await;
    let answer = client.hear_publish().await.properties.unwrap();
    assert!(answer.message_expiry_interval.is_some_and(|left| left < 100), "{answer:?}");
    client.hear_nothing().await;
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
