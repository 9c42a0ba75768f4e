//! SUBSCRIBE and UNSUBSCRIBE (MQTT 5, 3.8 to 3.11).

use super::*;

#[tokio::test]
async fn no_local_keeps_a_clients_own_messages_away() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(SubscribeFilter { nolocal: true, ..filter("a") }).await;
    client.publish(qos_1("a", 1)).await;
    assert_eq!(client.hear_puback().await, PubAckReason::NoMatchingSubscribers);
    client.hear_nothing().await;
    server.broker().publish(None, Message { topic: "a".to_owned(), ..Message::default() });
    assert_eq!(client.hear_topics(1).await, ["a"]);
}

#[tokio::test]
async fn a_wildcard_subscription_ends_with_unsubscribe() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("a/#")).await;
    client.publish(qos_0("a/b/c")).await;
    assert_eq!(client.hear_topics(1).await, ["a/b/c"]);
    let filters = vec!["a/#".to_owned(), "other".to_owned()];
    client.say(Packet::Unsubscribe(Unsubscribe { pkid: 1, filters, properties: None })).await;
    let Packet::UnsubAck(unsuback) = client.hear().await else { panic!("no UNSUBACK") };
    assert_eq!(unsuback.reasons, [UnsubAckReason::Success, UnsubAckReason::NoSubscriptionExisted]);
    client.publish(qos_0("a/b/c")).await;
    client.hear_nothing().await;
}

#[tokio::test]
async fn filters_that_are_not_accepted_are_answered_one_by_one() {
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
async fn retained_messages_come_as_retain_handling_says() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(retained("r/1", "one")).await;
    client.publish(retained("r/2", "two")).await;
    client.publish(retained("r/2", "")).await;
    client.subscribe(filter("r/+")).await;
    let heard = client.hear_publish().await;
    assert_eq!((&heard.topic[..], &heard.payload[..], heard.retain), (&b"r/1"[..], &b"one"[..], true));
    client.hear_nothing().await;
    let with = |rule| SubscribeFilter { retain_forward_rule: rule, ..filter("r/+") };
    client.subscribe(with(RetainForwardRule::OnNewSubscribe)).await;
    client.hear_nothing().await;
    client.subscribe(with(RetainForwardRule::Never)).await;
    client.hear_nothing().await;
    client.subscribe(with(RetainForwardRule::OnEverySubscribe)).await;
    assert_eq!(client.hear_topics(1).await, ["r/1"]);
}

#[tokio::test]
async fn a_filter_that_is_repeated_in_one_packet_brings_the_retained_messages_once() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(retained("r/1", "one")).await;
    let filters = ["r/1", "r/+", "r/1", "r/+"].map(filter).to_vec();
    client.say(Packet::Subscribe(Subscribe { pkid: 1, filters, properties: None })).await;
    assert!(matches!(client.hear().await, Packet::SubAck(suback) if suback.return_codes.len() == 4));
    assert_eq!(client.hear_topics(2).await, ["r/1", "r/1"]);
    client.hear_nothing().await;
}

#[tokio::test]
async fn more_filters_in_one_packet_than_any_may_have_end_the_connection() {
    let server = start().await;
    let packet = |first: u8, head: &[u8], filter: &[u8]| {
        let filters = filter.repeat(65_537);
        let length = head.len() + filters.len();
        let [a, b, c] = [0, 7, 14].map(|shift| u8::try_from(length >> shift & 0x7F).unwrap());
        [&[first, a | 0x80, b | 0x80, c], head, &filters].concat()
    };
    for (first, filter) in [(0x82, &b"\0\x01a\0"[..]), (0xa2, b"\0\x01a")] {
        let mut client = Client::connect(&server, "a").await;
        client.say_bytes(&packet(first, b"\0\x01\0", filter)).await;
        assert_eq!(client.hear_disconnect().await, DisconnectReasonCode::QuotaExceeded);
        let mut old = Client::silent(&server);
        old.say_bytes(b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01a").await;
        assert_eq!(old.hear_bytes(4).await, b"\x20\x02\0\0");
        old.say_bytes(&packet(first, b"\0\x01", filter)).await;
        assert_eq!(old.hear_rest().await, b"");
    }
}

#[tokio::test]
async fn the_filters_of_a_session_are_bounded_in_what_they_take_and_that_comes_back() {
    let server = start_with(Settings { subscriptions_per_session_max: 100, ..Settings::default() }).await;
    let mut client = Client::connect(&server, "a").await;
    let granted = SubscribeReasonCode::Success(QoS::AtLeastOnce);
    for (filters, room) in [
        ((0..100).map(|number| format!("{number:060000}")).collect::<Vec<_>>(), 17),
        ((0..100).map(|number| format!("{number}{}/#", "/a".repeat(190))).collect(), 21),
    ] {
        let subscribe = Subscribe {
            pkid: 1,
            filters: filters.iter().map(|path| filter(path)).collect(),
            properties: None,
        };
        let unsubscribe = Unsubscribe { pkid: 2, filters, properties: None };
        for _ in 0..2 {
            client.say(Packet::Subscribe(subscribe.clone())).await;
            let Packet::SubAck(suback) = client.hear().await else { panic!("no SUBACK") };
            assert_eq!(suback.return_codes.iter().filter(|code| **code == granted).count(), room);
            client.say(Packet::Unsubscribe(unsubscribe.clone())).await;
            let Packet::UnsubAck(_) = client.hear().await else { panic!("no UNSUBACK") };
        }
    }
}

#[tokio::test]
async fn more_filters_in_one_packet_than_a_session_may_have_are_refused() {
    let server = start_with(Settings { subscriptions_per_session_max: 2, ..Settings::default() }).await;
    let mut client = Client::connect(&server, "a").await;
    let subscribe = Subscribe { pkid: 1, filters: vec![filter("a"); 3], properties: None };
    client.say(Packet::Subscribe(subscribe)).await;
    let Packet::SubAck(suback) = client.hear().await else { panic!("no SUBACK") };
    assert_eq!(suback.return_codes, [SubscribeReasonCode::QuotaExceeded; 3]);
    client.publish(qos_0("a")).await;
    client.hear_nothing().await;
    let filters = vec!["a".to_owned(); 3];
    client.say(Packet::Unsubscribe(Unsubscribe { pkid: 2, filters, properties: None })).await;
    let Packet::UnsubAck(unsuback) = client.hear().await else { panic!("no UNSUBACK") };
    assert_eq!(unsuback.reasons, [UnsubAckReason::ImplementationSpecificError; 3]);
}

#[tokio::test]
async fn many_filters_in_one_packet_are_answered_in_their_order_under_its_packet_id() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    let qos = [QoS::ExactlyOnce, QoS::AtMostOnce, QoS::AtLeastOnce];
    let mut filters: Vec<_> =
        ["a", "b", "c"].into_iter().zip(qos).map(|(path, qos)| SubscribeFilter::new(path, qos)).collect();
    filters.insert(1, filter("a#"));
    client.say(Packet::Subscribe(Subscribe { pkid: 700, filters, properties: None })).await;
    let Packet::SubAck(suback) = client.hear().await else { panic!("no SUBACK") };
    assert_eq!(suback.pkid, 700);
    let [a, b, c] = qos.map(SubscribeReasonCode::Success);
    assert_eq!(suback.return_codes, [a, SubscribeReasonCode::TopicFilterInvalid, b, c]);
    let filters = ["b", "x", "a", "b"].map(str::to_owned).to_vec();
    client.say(Packet::Unsubscribe(Unsubscribe { pkid: 701, filters, properties: None })).await;
    let Packet::UnsubAck(unsuback) = client.hear().await else { panic!("no UNSUBACK") };
    assert_eq!(unsuback.pkid, 701);
    let none = UnsubAckReason::NoSubscriptionExisted;
    assert_eq!(unsuback.reasons, [UnsubAckReason::Success, none, UnsubAckReason::Success, none]);
}

#[tokio::test]
async fn the_lower_qos_of_message_and_subscription_counts() {
    let server = start().await;
    let levels = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];
    let mut client = Client::connect(&server, "a").await;
    for granted in levels {
        client.subscribe(SubscribeFilter::new("a", granted)).await;
        for published in [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce] {
            server.broker().publish(None, message("a", published));
            let heard = client.hear_publish().await.qos;
            assert_eq!(heard as u8, (granted as u8).min(published as u8), "{granted:?} {published:?}");
        }
    }
}

#[tokio::test]
async fn a_subscription_made_again_replaces_the_first_and_brings_one_message() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe_with(SubscribeFilter::new("a/+", QoS::ExactlyOnce), Some(1)).await;
    client.subscribe_with(SubscribeFilter::new("a/+", QoS::AtMostOnce), Some(268_435_455)).await;
    server.broker().publish(None, message("a/b", Qos::ExactlyOnce));
    let heard = client.hear_publish().await;
    assert_eq!(heard.qos, QoS::AtMostOnce);
    assert_eq!(heard.properties.unwrap().subscription_identifiers, [268_435_455]);
    client.subscribe(filter("a/+")).await;
    server.broker().publish(None, message("a/b", Qos::AtMostOnce));
    assert!(client.hear_publish().await.properties.is_none());
    client.hear_nothing().await;
}

#[tokio::test]
async fn what_waits_is_delivered_though_its_subscription_has_ended() {
    let server = start().await;
    let mut hello = Hello::lasting("a");
    hello.properties.receive_maximum = Some(1);
    let (mut client, _) = Client::connect_with(&server, hello).await;
    client.subscribe(filter("a")).await;
    for _ in 0..2 {
        server.broker().publish(None, message("a", Qos::AtLeastOnce));
    }
    let first = client.hear_publish().await.pkid;
    client
        .say(Packet::Unsubscribe(Unsubscribe { pkid: 1, filters: vec!["a".to_owned()], properties: None }))
        .await;
    assert!(matches!(client.hear().await, Packet::UnsubAck(_)));
    assert_eq!(server.broker().publish(None, message("a", Qos::AtLeastOnce)), 0);
    client.say(Packet::PubAck(PubAck::new(first, None))).await;
    assert_eq!(client.hear_topics(1).await, ["a"]);
    client.hear_nothing().await;
}

#[tokio::test]
async fn filters_are_compared_character_by_character() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("a/+")).await;
    for other in ["a/b", "a/#", "A/+", "a/+/", "+/+"] {
        client
            .say(Packet::Unsubscribe(Unsubscribe {
                pkid: 1,
                filters: vec![other.to_owned()],
                properties: None,
            }))
            .await;
        let Packet::UnsubAck(unsuback) = client.hear().await else { panic!("no UNSUBACK") };
        assert_eq!(unsuback.reasons, [UnsubAckReason::NoSubscriptionExisted], "{other}");
    }
    client.publish(qos_0("a/b")).await;
    assert_eq!(client.hear_topics(1).await, ["a/b"]);
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
        client.hear_nothing().await;
    }
    client.subscribe(filter("$x/+")).await;
    client.publish(qos_0("$x/a")).await;
    assert_eq!(client.hear_topics(1).await, ["$x/a"]);
    client.publish(qos_0("a/$SYS")).await;
    assert_eq!(client.hear_topics(1).await, ["a/$SYS"]);
}

#[tokio::test]
async fn topics_and_filters_match_as_the_standard_shows() {
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
            client.hear_topics(usize::from(matches)).await.len(),
            usize::from(matches),
            "{path} {topic}"
        );
        client.hear_nothing().await;
        let filters = vec![path.to_owned()];
        client.say(Packet::Unsubscribe(Unsubscribe { pkid: 1, filters, properties: None })).await;
        assert!(matches!(client.hear().await, Packet::UnsubAck(_)));
    }
}

#[tokio::test]
async fn an_answer_that_the_client_does_not_take_ends_the_connection() {
    let server = start().await;
    let mut hello = Hello::new("a");
    hello.properties.max_packet_size = Some(40);
    let (mut client, _) = Client::connect_with(&server, hello).await;
    let filters = vec![filter("a"); 40];
    client.say(Packet::Subscribe(Subscribe { pkid: 1, filters, properties: None })).await;
    assert_eq!(client.hear_disconnect().await, DisconnectReasonCode::PacketTooLarge);
}
