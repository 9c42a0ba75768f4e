//! Shared subscriptions (MQTT 5, 4.8.2).

use super::*;

async fn member(server: &Server, client_id: &'static str) -> Client {
    let (mut client, _) = Client::connect_with(server, Hello::lasting(client_id)).await;
    client.subscribe(SubscribeFilter::new("$share/g/a/+", QoS::ExactlyOnce)).await;
    client
}

#[tokio::test]
async fn each_message_goes_to_one_of_a_group_in_turn() {
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
        assert_eq!(client.hear_topics(3).await, expected);
        client.hear_nothing().await;
    }
    let all: Vec<_> = (0..9).map(|number| format!("a/{number}")).collect();
    assert_eq!(alone.hear_topics(9).await, all);
    assert_eq!(outside.hear_topics(9).await, all);
}

#[tokio::test]
async fn a_member_gets_what_its_subscription_grants_and_its_identifier() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe_with(SubscribeFilter::new("$share/g/a", QoS::AtMostOnce), Some(5)).await;
    client.subscribe_with(SubscribeFilter::new("a", QoS::AtLeastOnce), Some(6)).await;
    server.broker().publish(None, message("a", Qos::ExactlyOnce));
    let mut heard = [client.hear_publish().await, client.hear_publish().await]
        .map(|publish| (publish.qos as u8, publish.properties.unwrap().subscription_identifiers));
    heard.sort();
    assert_eq!(heard, [(0, vec![5]), (1, vec![6])]);
}

#[tokio::test]
async fn retained_messages_are_not_sent_to_a_share() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(retained("a/b", "kept")).await;
    client.subscribe(filter("$share/g/a/b")).await;
    client.hear_nothing().await;
    client.publish(retained("a/b", "new")).await;
    let heard = client.hear_publish().await;
    assert_eq!((&heard.payload[..], heard.retain), (&b"new"[..], false));
}

#[tokio::test]
async fn a_share_needs_a_name_and_a_filter() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    for path in ["$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/g#/a", "$share/g/a#"] {
        let suback = client.subscribe_with(filter(path), None).await;
        assert_eq!(suback.return_codes, [SubscribeReasonCode::TopicFilterInvalid], "{path}");
    }
}

#[tokio::test]
async fn who_leaves_the_share_gets_nothing_more_of_it() {
    let server = start().await;
    let (mut a, mut b) = (member(&server, "a").await, member(&server, "b").await);
    let filters = vec!["$share/g/a/+".to_owned(), "a/+".to_owned()];
    a.say(Packet::Unsubscribe(Unsubscribe { pkid: 1, filters, properties: None })).await;
    let Packet::UnsubAck(unsuback) = a.hear().await else { panic!("no UNSUBACK") };
    assert_eq!(unsuback.reasons, [UnsubAckReason::Success, UnsubAckReason::NoSubscriptionExisted]);
    for _ in 0..4 {
        server.broker().publish(None, message("a/1", Qos::AtLeastOnce));
    }
    assert_eq!(b.hear_topics(4).await, ["a/1"; 4]);
    a.hear_nothing().await;
    b.disconnect().await;
    let (_, connack) = Client::connect_with(&server, Hello { clean_start: true, ..Hello::new("b") }).await;
    assert!(!connack.session_present);
    assert_eq!(server.broker().publish(None, message("a/1", Qos::AtLeastOnce)), 0);
}

#[tokio::test]
async fn whoever_is_away_is_passed_over_and_the_last_one_waits() {
    let server = start().await;
    let (mut a, b) = (member(&server, "a").await, member(&server, "b").await);
    b.disconnect().await;
    for _ in 0..4 {
        server.broker().publish(None, message("a/1", Qos::AtLeastOnce));
    }
    assert_eq!(a.hear_topics(4).await, ["a/1"; 4]);
    a.disconnect().await;
    assert_eq!(server.broker().publish(None, message("a/2", Qos::AtLeastOnce)), 1);
    let (mut a, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    let (mut b, _) = Client::connect_with(&server, Hello::lasting("b")).await;
    let mut heard = 0;
    for client in [&mut a, &mut b] {
        client.say(Packet::PingReq).await;
        while let Packet::Publish(_) = client.hear().await {
            heard += 1;
        }
    }
    assert_eq!(heard, 1);
}

/// A member that takes one message at a time, with one of two under way and the other waiting.
async fn with_two_messages(server: &Server, qos: Qos) -> (Client, Client) {
    let mut hello = Hello::lasting("a");
    hello.properties.receive_maximum = Some(1);
    let (mut a, _) = Client::connect_with(server, hello).await;
    a.subscribe(SubscribeFilter::new("$share/g/a/+", QoS::ExactlyOnce)).await;
    for topic in ["a/sent", "a/waits"] {
        server.broker().publish(None, message(topic, qos));
    }
    assert_eq!(&a.hear_publish().await.topic[..], b"a/sent");
    a.hear_nothing().await;
    let b = member(server, "b").await;
    (a, b)
}

#[tokio::test]
async fn what_waits_for_whoever_goes_away_is_given_to_another_and_the_rest_when_it_comes_back() {
    let server = start().await;
    let (a, mut b) = with_two_messages(&server, Qos::ExactlyOnce).await;
    drop(a);
    assert_eq!(&b.hear_publish().await.topic[..], b"a/waits");
    b.hear_nothing().await;
    let (mut a, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    let again = a.hear_publish().await;
    assert_eq!((&again.topic[..], again.dup), (&b"a/sent"[..], true));
    a.hear_nothing().await;
}

#[tokio::test]
async fn what_a_session_leaves_at_its_end_is_given_to_another_unless_qos_2_was_sent() {
    for (qos, expected) in
        [(Qos::AtLeastOnce, vec!["a/sent", "a/waits"]), (Qos::ExactlyOnce, vec!["a/waits"])]
    {
        let server = start().await;
        let (_a, mut b) = with_two_messages(&server, qos).await;
        // A clean start ends the session at once.
        let clean = Hello { clean_start: true, ..Hello::new("a") };
        let (mut a, _) = Client::connect_with(&server, clean).await;
        let mut heard = Vec::new();
        for _ in &expected {
            let publish = b.hear_publish().await;
            assert!(!publish.dup, "it is new to this one");
            heard.push(String::from_utf8(publish.topic.to_vec()).unwrap());
        }
        assert_eq!(heard, expected);
        b.hear_nothing().await;
        a.hear_nothing().await;
    }
}

#[tokio::test]
async fn what_waits_for_who_never_comes_back_is_given_to_another_when_its_session_expires() {
    let server = start().await;
    member(&server, "a").await.disconnect().await;
    for (topic, qos) in [("a/1", Qos::AtLeastOnce), ("a/2", Qos::ExactlyOnce)] {
        assert_eq!(server.broker().publish(None, message(topic, qos)), 1);
    }
    let mut b = member(&server, "b").await;
    b.hear_nothing().await;
    server.broker().handle_deadlines(crate::clock::monotonic() + Duration::from_secs(4_000));
    assert_eq!(b.hear_topics(2).await, ["a/1", "a/2"]);
    b.hear_nothing().await;
}

#[tokio::test]
async fn what_one_of_them_refuses_nobody_else_gets() {
    let server = start().await;
    let (mut a, mut b) = (member(&server, "a").await, member(&server, "b").await);
    server.broker().publish(None, message("a/1", Qos::AtLeastOnce));
    server.broker().publish(None, message("a/2", Qos::ExactlyOnce));
    let [high, low] = a.hear_publish().await.pkid.to_be_bytes();
    a.say_bytes(&[0x40, 4, high, low, 0x97, 0]).await;
    let [high, low] = b.hear_publish().await.pkid.to_be_bytes();
    b.say_bytes(&[0x50, 4, high, low, 0x97, 0]).await;
    for client in [a, b] {
        let mut client = client;
        client.hear_nothing().await;
        client.disconnect().await;
    }
    let mut late = member(&server, "late").await;
    late.hear_nothing().await;
}

#[tokio::test]
async fn a_member_without_room_is_passed_over_and_not_cut_off() {
    let settings = Settings { session_queue_messages_max: 2, ..Settings::default() };
    let server = start_with(settings).await;
    let (mut a, mut b) = (member(&server, "a").await, member(&server, "b").await);
    // Nothing of it is acknowledged: two for each.
    for _ in 0..4 {
        server.broker().publish(None, message("a/1", Qos::AtLeastOnce));
    }
    a.hear_publish().await;
    a.hear_publish().await;
    assert_eq!(b.hear_topics(2).await, ["a/1"; 2]);
    b.hear_nothing().await;
    for _ in 0..2 {
        server.broker().publish(None, message("a/2", Qos::AtLeastOnce));
    }
    assert_eq!(b.hear_topics(2).await, ["a/2"; 2]);
    a.hear_nothing().await;
}

#[tokio::test]
async fn a_push_is_not_given_to_its_addressee_a_second_time_by_a_share() {
    let (server, _) = start_echo().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("$share/g/answer/+")).await;
    let mut other = Client::connect(&server, "b").await;
    other.subscribe(filter("$share/g/answer/+")).await;
    for packet_id in 1..=3 {
        client.publish(qos_1("answer/1", packet_id)).await;
        client.hear_puback().await;
        assert_eq!(client.hear_topics(1).await, ["answer/1"]);
    }
    client.hear_nothing().await;
    assert_eq!(other.hear_topics(3).await, ["answer/1"; 3]);
}
