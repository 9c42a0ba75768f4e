//! SUBSCRIBE and UNSUBSCRIBE (MQTT 5, 3.8 to 3.11).

use super::*;

#[tokio::test]
async fn no_local_excludes_the_clients_own_messages() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(SubscribeFilter { nolocal: true, ..filter("a") }).await;
    client.publish(qos_1("a", 1)).await;
    assert_eq!(client.receive_puback().await, PubAckReason::NoMatchingSubscribers);
    client.expect_nothing().await;
    server.broker().publish(None, Message { topic: "a".into(), ..Message::default() });
    assert_eq!(client.receive_topics(1).await, ["a"]);
}

#[tokio::test]
async fn a_wildcard_subscription_ends_with_unsubscribe() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("a/#")).await;
    client.publish(qos_0("a/b/c")).await;
    assert_eq!(client.receive_topics(1).await, ["a/b/c"]);
    let filters = vec!["a/#".to_owned(), "other".to_owned()];
    client.send(Packet::Unsubscribe(Unsubscribe { pkid: 1, filters, properties: None })).await;
    let Packet::UnsubAck(unsuback) = client.receive().await else { panic!("no UNSUBACK") };
    assert_eq!(unsuback.reasons, [UnsubAckReason::Success, UnsubAckReason::NoSubscriptionExisted]);
    client.publish(qos_0("a/b/c")).await;
    client.expect_nothing().await;
}

#[tokio::test]
async fn each_rejected_filter_has_its_reason_code() {
    let server = start_with(Settings { subscriptions_per_session_max: 1, ..Settings::default() }).await;
    let mut client = Client::connect(&server, "a").await;
    for (path, expected) in [
        ("a/#/b", SubscribeReasonCode::TopicFilterInvalid),
        ("$share/g", SubscribeReasonCode::TopicFilterInvalid),
        ("a", SubscribeReasonCode::Success(QoS::AtLeastOnce)),
        ("a", SubscribeReasonCode::Success(QoS::AtLeastOnce)),
        ("b", SubscribeReasonCode::QuotaExceeded),
    ] {
        assert_eq!(client.subscribe_with(filter(path), None).await.return_codes, [expected], "{path}");
    }
}

#[tokio::test]
async fn retained_messages_are_sent_according_to_retain_handling() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(retained("r/1", "one")).await;
    client.publish(retained("r/2", "two")).await;
    client.publish(retained("r/2", "")).await;
    client.subscribe(filter("r/+")).await;
    let received = client.receive_publish().await;
    assert_eq!(
        (&received.topic[..], &received.payload[..], received.retain),
        (&b"r/1"[..], &b"one"[..], true)
    );
    client.expect_nothing().await;
    let with = |rule| SubscribeFilter { retain_forward_rule: rule, ..filter("r/+") };
    client.subscribe(with(RetainForwardRule::OnNewSubscribe)).await;
    client.expect_nothing().await;
    client.subscribe(with(RetainForwardRule::Never)).await;
    client.expect_nothing().await;
    client.subscribe(with(RetainForwardRule::OnEverySubscribe)).await;
    assert_eq!(client.receive_topics(1).await, ["r/1"]);
}

#[tokio::test]
async fn a_filter_that_is_repeated_in_one_packet_brings_the_retained_messages_once() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(retained("r/1", "one")).await;
    let filters: Vec<_> = ["r/1", "r/+"].repeat(20).into_iter().map(filter).collect();
    client.send(Packet::Subscribe(Subscribe { pkid: 1, filters, properties: None })).await;
    assert!(matches!(client.receive().await, Packet::SubAck(suback) if suback.return_codes.len() == 40));
    assert_eq!(client.receive_topics(2).await, ["r/1", "r/1"]);
    client.expect_nothing().await;
}

#[tokio::test]
async fn a_packet_with_more_filters_than_the_limit_closes_the_connection() {
    let server = start().await;
    let packet = |first: u8, head: &[u8], filter: &[u8]| {
        let filters = filter.repeat(65_537);
        let length = head.len() + filters.len();
        let [a, b, c] = [0, 7, 14].map(|shift| u8::try_from(length >> shift & 0x7F).unwrap());
        [&[first, a | 0x80, b | 0x80, c], head, &filters].concat()
    };
    for (first, filter) in [(0x82, &b"\0\x01a\0"[..]), (0xa2, b"\0\x01a")] {
        let mut client = Client::connect(&server, "a").await;
        client.send_bytes(&packet(first, b"\0\x01\0", filter)).await;
        assert_eq!(client.receive_disconnect().await, DisconnectReasonCode::QuotaExceeded);
        let mut old = Client::unconnected(&server);
        old.send_bytes(b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01a").await;
        assert_eq!(old.receive_bytes(4).await, b"\x20\x02\0\0");
        old.send_bytes(&packet(first, b"\0\x01", filter)).await;
        assert_eq!(old.receive_to_end().await, b"");
    }
}

#[tokio::test]
async fn the_memory_of_a_sessions_filters_is_limited_and_unsubscribe_frees_it() {
    let server = start_with(Settings { subscriptions_per_session_max: 100, ..Settings::default() }).await;
    let mut client = Client::connect(&server, "a").await;
    let granted = SubscribeReasonCode::Success(QoS::AtLeastOnce);
    for (filters, room) in [
        ((0..100).map(|number| format!("{number:060000}")).collect::<Vec<_>>(), 8),
        ((0..100).map(|number| format!("{number}{}/#", "/a".repeat(190))).collect(), 29),
    ] {
        let subscribe = Subscribe {
            pkid: 1,
            filters: filters.iter().map(|path| filter(path)).collect(),
            properties: None,
        };
        let unsubscribe = Unsubscribe { pkid: 2, filters, properties: None };
        for _ in 0..2 {
            client.send(Packet::Subscribe(subscribe.clone())).await;
            let Packet::SubAck(suback) = client.receive().await else { panic!("no SUBACK") };
            assert_eq!(suback.return_codes.iter().filter(|code| **code == granted).count(), room);
            client.send(Packet::Unsubscribe(unsubscribe.clone())).await;
            let Packet::UnsubAck(_) = client.receive().await else { panic!("no UNSUBACK") };
        }
    }
}

#[tokio::test]
async fn a_packet_with_more_filters_than_a_session_may_have_is_rejected() {
    let server = start_with(Settings { subscriptions_per_session_max: 2, ..Settings::default() }).await;
    let mut client = Client::connect(&server, "a").await;
    let subscribe = Subscribe { pkid: 1, filters: vec![filter("a"); 3], properties: None };
    client.send(Packet::Subscribe(subscribe)).await;
    let Packet::SubAck(suback) = client.receive().await else { panic!("no SUBACK") };
    assert_eq!(suback.return_codes, [SubscribeReasonCode::QuotaExceeded; 3]);
    client.publish(qos_0("a")).await;
    client.expect_nothing().await;
    let filters = vec!["a".to_owned(); 3];
    client.send(Packet::Unsubscribe(Unsubscribe { pkid: 2, filters, properties: None })).await;
    let Packet::UnsubAck(unsuback) = client.receive().await else { panic!("no UNSUBACK") };
    assert_eq!(unsuback.reasons, [UnsubAckReason::ImplementationSpecificError; 3]);
    // As many as it may have are within the limit.
    let subscribe = Subscribe { pkid: 3, filters: vec![filter("a"); 2], properties: None };
    client.send(Packet::Subscribe(subscribe)).await;
    let Packet::SubAck(suback) = client.receive().await else { panic!("no SUBACK") };
    assert_eq!(suback.return_codes, [SubscribeReasonCode::Success(QoS::AtLeastOnce); 2]);
    let filters = vec!["a".to_owned(); 2];
    client.send(Packet::Unsubscribe(Unsubscribe { pkid: 4, filters, properties: None })).await;
    let Packet::UnsubAck(unsuback) = client.receive().await else { panic!("no UNSUBACK") };
    assert_eq!(unsuback.reasons, [UnsubAckReason::Success, UnsubAckReason::NoSubscriptionExisted]);
}

#[tokio::test]
async fn many_filters_in_one_packet_are_answered_in_their_order_under_its_packet_id() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    let qos = [QoS::ExactlyOnce, QoS::AtMostOnce, QoS::AtLeastOnce];
    let mut filters: Vec<_> =
        ["a", "b", "c"].into_iter().zip(qos).map(|(path, qos)| SubscribeFilter::new(path, qos)).collect();
    filters.insert(1, filter("a#"));
    client.send(Packet::Subscribe(Subscribe { pkid: 700, filters, properties: None })).await;
    let Packet::SubAck(suback) = client.receive().await else { panic!("no SUBACK") };
    assert_eq!(suback.pkid, 700);
    let [a, b, c] = qos.map(SubscribeReasonCode::Success);
    assert_eq!(suback.return_codes, [a, SubscribeReasonCode::TopicFilterInvalid, b, c]);
    let filters = ["b", "x", "a", "b"].map(str::to_owned).to_vec();
    client.send(Packet::Unsubscribe(Unsubscribe { pkid: 701, filters, properties: None })).await;
    let Packet::UnsubAck(unsuback) = client.receive().await else { panic!("no UNSUBACK") };
    assert_eq!(unsuback.pkid, 701);
    let none = UnsubAckReason::NoSubscriptionExisted;
    assert_eq!(unsuback.reasons, [UnsubAckReason::Success, none, UnsubAckReason::Success, none]);
}

#[tokio::test]
async fn a_message_is_delivered_at_the_lower_qos_of_message_and_subscription() {
    let server = start().await;
    let levels = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];
    let mut client = Client::connect(&server, "a").await;
    for granted in levels {
        client.subscribe(SubscribeFilter::new("a", granted)).await;
        for published in [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce] {
            server.broker().publish(None, message("a", published));
            let received = client.receive_publish().await.qos;
            assert_eq!(received as u8, (granted as u8).min(published as u8), "{granted:?} {published:?}");
        }
    }
}

#[tokio::test]
async fn a_repeated_subscription_replaces_the_first_and_brings_one_message() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe_with(SubscribeFilter::new("a/+", QoS::ExactlyOnce), Some(1)).await;
    client.subscribe_with(SubscribeFilter::new("a/+", QoS::AtMostOnce), Some(268_435_455)).await;
    server.broker().publish(None, message("a/b", Qos::ExactlyOnce));
    let received = client.receive_publish().await;
    assert_eq!(received.qos, QoS::AtMostOnce);
    assert_eq!(received.properties.unwrap().subscription_identifiers, [268_435_455]);
    client.subscribe(filter("a/+")).await;
    server.broker().publish(None, message("a/b", Qos::AtMostOnce));
    assert!(client.receive_publish().await.properties.is_none());
    client.expect_nothing().await;
}

#[tokio::test]
async fn queued_messages_are_delivered_after_their_subscription_has_ended() {
    let server = start().await;
    let mut options = ConnectOptions::persistent("a");
    options.properties.receive_maximum = Some(1);
    let (mut client, _) = Client::connect_with(&server, options).await;
    client.subscribe(filter("a")).await;
    for _ in 0..2 {
        server.broker().publish(None, message("a", Qos::AtLeastOnce));
    }
    let first = client.receive_publish().await.pkid;
    client
        .send(Packet::Unsubscribe(Unsubscribe { pkid: 1, filters: vec!["a".to_owned()], properties: None }))
        .await;
    assert!(matches!(client.receive().await, Packet::UnsubAck(_)));
    assert_eq!(server.broker().publish(None, message("a", Qos::AtLeastOnce)), 0);
    client.send(Packet::PubAck(PubAck::new(first, None))).await;
    assert_eq!(client.receive_topics(1).await, ["a"]);
    client.expect_nothing().await;
}

#[tokio::test]
async fn filters_are_compared_character_by_character() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("a/+")).await;
    for other in ["a/b", "a/#", "A/+", "a/+/", "+/+"] {
        client
            .send(Packet::Unsubscribe(Unsubscribe {
                pkid: 1,
                filters: vec![other.to_owned()],
                properties: None,
            }))
            .await;
        let Packet::UnsubAck(unsuback) = client.receive().await else { panic!("no UNSUBACK") };
        assert_eq!(unsuback.reasons, [UnsubAckReason::NoSubscriptionExisted], "{other}");
    }
    client.publish(qos_0("a/b")).await;
    assert_eq!(client.receive_topics(1).await, ["a/b"]);
}

#[tokio::test]
async fn wildcards_at_the_start_do_not_match_topics_with_a_dollar() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    for path in ["#", "+/a", "+", "/#"] {
        client.subscribe(filter(path)).await;
    }
    for topic in ["$SYS", "$SYS/a", "$x/a", "$"] {
        client.publish(qos_0(topic)).await;
        client.expect_nothing().await;
    }
    client.subscribe(filter("$x/+")).await;
    client.publish(qos_0("$x/a")).await;
    assert_eq!(client.receive_topics(1).await, ["$x/a"]);
    client.publish(qos_0("a/$SYS")).await;
    assert_eq!(client.receive_topics(1).await, ["a/$SYS"]);
}

#[tokio::test]
async fn topics_and_filters_match_as_in_the_examples_of_the_standard() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    for (path, topic, matches) in [
        ("sport/tennis/player1/#", "sport/tennis/player1", true),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true),
        ("sport/#", "sport", true),
        ("sport/tennis/+", "sport/tennis/player1", true),
        ("sport/tennis/+", "sport/tennis/player1/ranking", false),
        ("sport/+", "sport", false),
        ("sport/+", "sport/", true),
        ("+/+", "/finance", true),
        ("/+", "/finance", true),
        ("+", "/finance", false),
        ("+/tennis/#", "sport/tennis", true),
        ("sport/+/player1", "sport/tennis/player1", true),
        ("ACCOUNTS", "Accounts", false),
        ("a//b", "a/b", false),
    ] {
        client.subscribe(filter(path)).await;
        client.publish(qos_0(topic)).await;
        assert_eq!(
            client.receive_topics(usize::from(matches)).await.len(),
            usize::from(matches),
            "{path} {topic}"
        );
        client.expect_nothing().await;
        let filters = vec![path.to_owned()];
        client.send(Packet::Unsubscribe(Unsubscribe { pkid: 1, filters, properties: None })).await;
        assert!(matches!(client.receive().await, Packet::UnsubAck(_)));
    }
}

#[tokio::test]
async fn an_answer_beyond_the_maximum_packet_size_closes_the_connection() {
    let server = start().await;
    let mut options = ConnectOptions::new("a");
    options.properties.max_packet_size = Some(40);
    let (mut client, _) = Client::connect_with(&server, options).await;
    let filters = vec![filter("a"); 40];
    client.send(Packet::Subscribe(Subscribe { pkid: 1, filters, properties: None })).await;
    assert_eq!(client.receive_disconnect().await, DisconnectReasonCode::PacketTooLarge);
}

/// Publishes retained messages with two levels.
fn retain_many(server: &Server, count: usize) {
    for number in 0..count {
        let topic = format!("t{number:05}/x").into();
        let payload = "1".into();
        server.broker().publish(None, Message { topic, payload, retain: true, ..Message::default() });
    }
}

#[tokio::test]
async fn other_clients_are_served_while_a_subscribe_searches_many_retained_messages() {
    let server = start().await;
    retain_many(&server, 5_000);
    let mut searching = Client::connect(&server, "a").await;
    let mut other = Client::connect(&server, "b").await;
    let filters: Vec<_> = (0..20).map(|number| filter(&format!("+/y{number}"))).collect();
    searching.send(Packet::Subscribe(Subscribe { pkid: 1, filters, properties: None })).await;
    for _ in 0..10 {
        other.expect_nothing().await;
    }
    let answer = tokio::time::timeout(Duration::ZERO, searching.receive()).await;
    assert!(answer.is_err(), "the search is over: {answer:?}");
    assert!(matches!(searching.receive().await, Packet::SubAck(suback) if suback.return_codes.len() == 20));
    searching.expect_nothing().await;
}

#[tokio::test]
async fn many_retained_messages_follow_the_suback_in_their_order_and_before_the_next_answer() {
    let server = start().await;
    retain_many(&server, 2_000);
    let mut client = Client::connect(&server, "a").await;
    let filters = vec![SubscribeFilter::new("+/x", QoS::AtMostOnce)];
    client.send(Packet::Subscribe(Subscribe { pkid: 1, filters, properties: None })).await;
    client.send(Packet::PingReq).await;
    assert!(matches!(client.receive().await, Packet::SubAck(_)));
    let expected: Vec<_> = (0..2_000).map(|number| format!("t{number:05}/x")).collect();
    assert_eq!(client.receive_topics(2_000).await, expected);
    assert_eq!(client.receive().await, Packet::PingResp);
}
