//! Shared subscriptions (MQTT 5, 4.8.2).

use super::*;

async fn member(server: &Server, client_id: &'static str) -> Client {
    let (mut client, _) = Client::connect_with(server, ConnectOptions::persistent(client_id)).await;
    client.subscribe(SubscribeFilter::new("$share/g/a/+", QoS::ExactlyOnce)).await;
    client
}

#[tokio::test]
async fn each_message_goes_to_one_member_of_a_group_in_turn() {
    let server = start().await;
    let mut members = [member(&server, "a").await, member(&server, "b").await, member(&server, "c").await];
    let mut alone = Client::connect(&server, "alone").await;
    alone.subscribe(filter("$share/other/#")).await;
    let mut outside = Client::connect(&server, "outside").await;
    outside.subscribe(filter("a/#")).await;
    for number in 0..9 {
        assert_eq!(server.broker().publish(None, message(&format!("a/{number}"), Qos::AtLeastOnce)), 3);
    }
    for (first, client) in members.iter_mut().enumerate() {
        let expected = [first, first + 3, first + 6].map(|number| format!("a/{number}"));
        assert_eq!(client.receive_topics(3).await, expected);
        client.expect_nothing().await;
    }
    let all: Vec<_> = (0..9).map(|number| format!("a/{number}")).collect();
    assert_eq!(alone.receive_topics(9).await, all);
    assert_eq!(outside.receive_topics(9).await, all);
}

#[tokio::test]
async fn a_member_gets_messages_at_its_granted_qos_with_its_identifier() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe_with(SubscribeFilter::new("$share/g/a", QoS::AtMostOnce), Some(5)).await;
    client.subscribe_with(SubscribeFilter::new("a", QoS::AtLeastOnce), Some(6)).await;
    server.broker().publish(None, message("a", Qos::ExactlyOnce));
    let mut received = [client.receive_publish().await, client.receive_publish().await]
        .map(|publish| (publish.qos as u8, publish.properties.unwrap().subscription_identifiers));
    received.sort();
    assert_eq!(received, [(0, vec![5]), (1, vec![6])]);
}

#[tokio::test]
async fn retained_messages_are_not_sent_for_shared_subscriptions() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    // The second one is the topic with the name of the filter.
    for topic in ["a/b", "$share/g/a/b"] {
        client.publish(retained(topic, "kept")).await;
    }
    client.subscribe(filter("$share/g/a/b")).await;
    client.expect_nothing().await;
    client.publish(retained("a/b", "new")).await;
    let received = client.receive_publish().await;
    assert_eq!((&received.payload[..], received.retain), (&b"new"[..], false));
    client.subscribe(SubscribeFilter { preserve_retain: true, ..filter("$share/g/a/b") }).await;
    for (publish, retain) in [(retained("a/b", "new"), true), (qos_0("a/b"), false)] {
        client.publish(publish).await;
        assert_eq!(client.receive_publish().await.retain, retain);
    }
}

#[tokio::test]
async fn a_shared_subscription_needs_a_share_name_and_a_topic_filter() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    for path in ["$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/g#/a", "$share/g/a#"] {
        let suback = client.subscribe_with(filter(path), None).await;
        assert_eq!(suback.return_codes, [SubscribeReasonCode::TopicFilterInvalid], "{path}");
    }
}

#[tokio::test]
async fn a_member_that_unsubscribes_gets_no_more_messages_of_the_group() {
    let server = start().await;
    let (mut a, mut b) = (member(&server, "a").await, member(&server, "b").await);
    let filters = vec!["$share/g/a/+".to_owned(), "a/+".to_owned()];
    a.send(Packet::Unsubscribe(Unsubscribe { pkid: 1, filters, properties: None })).await;
    let Packet::UnsubAck(unsuback) = a.receive().await else { panic!("no UNSUBACK") };
    assert_eq!(unsuback.reasons, [UnsubAckReason::Success, UnsubAckReason::NoSubscriptionExisted]);
    for _ in 0..4 {
        server.broker().publish(None, message("a/1", Qos::AtLeastOnce));
    }
    assert_eq!(b.receive_topics(4).await, ["a/1"; 4]);
    a.expect_nothing().await;
    b.disconnect().await;
    let (_, connack) =
        Client::connect_with(&server, ConnectOptions { clean_start: true, ..ConnectOptions::new("b") }).await;
    assert!(!connack.session_present);
    assert_eq!(server.broker().publish(None, message("a/1", Qos::AtLeastOnce)), 0);
}

#[tokio::test]
async fn disconnected_members_get_messages_only_if_no_member_is_connected() {
    let server = start().await;
    let (mut a, b) = (member(&server, "a").await, member(&server, "b").await);
    b.disconnect().await;
    for _ in 0..4 {
        server.broker().publish(None, message("a/1", Qos::AtLeastOnce));
    }
    assert_eq!(a.receive_topics(4).await, ["a/1"; 4]);
    a.disconnect().await;
    assert_eq!(server.broker().publish(None, message("a/2", Qos::AtLeastOnce)), 1);
    let (mut a, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    let (mut b, _) = Client::connect_with(&server, ConnectOptions::persistent("b")).await;
    let mut received = 0;
    for client in [&mut a, &mut b] {
        client.send(Packet::PingReq).await;
        while let Packet::Publish(_) = client.receive().await {
            received += 1;
        }
    }
    assert_eq!(received, 1);
}

/// Returns a member with one message in flight and one queued, and a second member.
async fn with_two_messages(server: &Server, qos: Qos) -> (Client, Client) {
    let mut options = ConnectOptions::persistent("a");
    options.properties.receive_maximum = Some(1);
    let (mut a, _) = Client::connect_with(server, options).await;
    a.subscribe(SubscribeFilter::new("$share/g/a/+", QoS::ExactlyOnce)).await;
    for topic in ["a/sent", "a/waits"] {
        server.broker().publish(None, message(topic, qos));
    }
    assert_eq!(&a.receive_publish().await.topic[..], b"a/sent");
    a.expect_nothing().await;
    let b = member(server, "b").await;
    (a, b)
}

#[tokio::test]
async fn queued_messages_of_a_member_that_disconnects_go_to_another_and_sent_ones_wait_for_it() {
    let server = start().await;
    let (a, mut b) = with_two_messages(&server, Qos::ExactlyOnce).await;
    drop(a);
    assert_eq!(&b.receive_publish().await.topic[..], b"a/waits");
    b.expect_nothing().await;
    let (mut a, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    let again = a.receive_publish().await;
    assert_eq!((&again.topic[..], again.dup), (&b"a/sent"[..], true));
    a.expect_nothing().await;
}

#[tokio::test]
async fn unacknowledged_messages_of_an_ended_session_go_to_another_member_unless_sent_at_qos_2() {
    for (qos, expected) in
        [(Qos::AtLeastOnce, vec!["a/sent", "a/waits"]), (Qos::ExactlyOnce, vec!["a/waits"])]
    {
        let server = start().await;
        let (_a, mut b) = with_two_messages(&server, qos).await;
        // A clean start ends the session at once.
        let clean = ConnectOptions { clean_start: true, ..ConnectOptions::new("a") };
        let (mut a, _) = Client::connect_with(&server, clean).await;
        let mut received = Vec::new();
        for _ in &expected {
            let publish = b.receive_publish().await;
            assert!(!publish.dup, "it is new to this member");
            received.push(String::from_utf8(publish.topic.to_vec()).unwrap());
        }
        assert_eq!(received, expected);
        b.expect_nothing().await;
        a.expect_nothing().await;
    }
}

#[tokio::test]
async fn queued_messages_of_an_expired_session_go_to_another_member() {
    let server = start().await;
    member(&server, "a").await.disconnect().await;
    for (topic, qos) in [("a/1", Qos::AtLeastOnce), ("a/2", Qos::ExactlyOnce)] {
        assert_eq!(server.broker().publish(None, message(topic, qos)), 1);
    }
    let mut b = member(&server, "b").await;
    b.expect_nothing().await;
    server.broker().handle_deadlines(crate::clock::monotonic() + Duration::from_secs(4_000));
    assert_eq!(b.receive_topics(2).await, ["a/1", "a/2"]);
    b.expect_nothing().await;
}

#[tokio::test]
async fn a_message_that_a_member_rejects_goes_to_no_other_member() {
    let server = start().await;
    let (mut a, mut b) = (member(&server, "a").await, member(&server, "b").await);
    server.broker().publish(None, message("a/1", Qos::AtLeastOnce));
    server.broker().publish(None, message("a/2", Qos::ExactlyOnce));
    let [high, low] = a.receive_publish().await.pkid.to_be_bytes();
    a.send_bytes(&[0x40, 4, high, low, 0x97, 0]).await;
    let [high, low] = b.receive_publish().await.pkid.to_be_bytes();
    b.send_bytes(&[0x50, 4, high, low, 0x97, 0]).await;
    for client in [a, b] {
        let mut client = client;
        client.expect_nothing().await;
        client.disconnect().await;
    }
    let mut late = member(&server, "late").await;
    late.expect_nothing().await;
}

#[tokio::test]
async fn a_member_without_room_is_skipped_and_not_disconnected() {
    let settings = Settings { session_queue_messages_max: 2, ..Settings::default() };
    let server = start_with(settings).await;
    let (mut a, mut b) = (member(&server, "a").await, member(&server, "b").await);
    // No message is acknowledged, so each member gets two.
    for _ in 0..4 {
        server.broker().publish(None, message("a/1", Qos::AtLeastOnce));
    }
    a.receive_publish().await;
    a.receive_publish().await;
    assert_eq!(b.receive_topics(2).await, ["a/1"; 2]);
    b.expect_nothing().await;
    for _ in 0..2 {
        server.broker().publish(None, message("a/2", Qos::AtLeastOnce));
    }
    assert_eq!(b.receive_topics(2).await, ["a/2"; 2]);
    a.expect_nothing().await;
}

#[tokio::test]
async fn a_push_is_not_delivered_again_by_a_shared_subscription() {
    let (server, _) = start_echo().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("$share/g/answer/+")).await;
    let mut other = Client::connect(&server, "b").await;
    other.subscribe(filter("$share/g/answer/+")).await;
    for packet_id in 1..=3 {
        client.publish(qos_1("answer/1", packet_id)).await;
        client.receive_puback().await;
        assert_eq!(client.receive_topics(1).await, ["answer/1"]);
    }
    client.expect_nothing().await;
    assert_eq!(other.receive_topics(3).await, ["answer/1"; 3]);
}
