//! PUBLISH: topics, properties, retained messages, aliases (MQTT 5, 3.3).

use super::*;

#[tokio::test]
async fn a_message_reaches_its_subscribers_with_all_its_properties() {
    let server = start().await;
    let mut subscriber = Client::connect(&server, "subscriber").await;
    let suback = subscriber.subscribe_with(filter("a/+"), Some(7)).await;
    assert_eq!(suback.return_codes, [SubscribeReasonCode::Success(QoS::AtLeastOnce)]);
    let mut publisher = Client::connect(&server, "publisher").await;
    let sent = with_properties(qos_1("a/b", 3), |properties| {
        properties.payload_format_indicator = Some(1);
        properties.message_expiry_interval = Some(100);
        properties.response_topic = Some("back".to_owned());
        properties.correlation_data = Some(Bytes::from_static(b"\0\xff"));
        properties.content_type = Some("text".to_owned());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        properties.user_properties = vec![pair("b", "1"), pair("a", "2"), pair("b", "0"), pair("", "")];
    });
    publisher.publish(sent.clone()).await;
    assert_eq!(publisher.receive_puback().await, PubAckReason::Success);
    let received = subscriber.receive_publish().await;
    assert_eq!((received.qos, received.dup, received.retain), (QoS::AtLeastOnce, false, false));
    assert_eq!((&received.topic[..], &received.payload[..]), (&b"a/b"[..], &b"payload"[..]));
    let mut expected = sent.properties.unwrap();
    expected.subscription_identifiers = vec![7];
    assert_eq!(received.properties.unwrap(), expected);
}

#[tokio::test]
async fn overlapping_subscriptions_bring_one_message_with_all_identifiers() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe_with(SubscribeFilter::new("a/#", QoS::AtMostOnce), Some(1)).await;
    client.subscribe_with(filter("a/b"), Some(2)).await;
    let mut other = Client::connect(&server, "b").await;
    other.subscribe_with(filter("a/b"), Some(456_789)).await;
    client.publish(qos_1("a/b", 1)).await;
    assert_eq!(client.receive_puback().await, PubAckReason::Success);
    let received = client.receive_publish().await;
    assert_eq!(received.qos, QoS::AtLeastOnce);
    let mut identifiers = received.properties.unwrap().subscription_identifiers;
    identifiers.sort_unstable();
    assert_eq!(identifiers, [1, 2]);
    client.expect_nothing().await;
    assert_eq!(other.receive_publish().await.properties.unwrap().subscription_identifiers, [456_789]);
}

#[tokio::test]
async fn the_retain_flag_is_forwarded_only_with_retain_as_published() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("plain")).await;
    client.subscribe(SubscribeFilter { preserve_retain: true, ..filter("kept") }).await;
    client.publish(retained("plain", "1")).await;
    assert!(!client.receive_publish().await.retain);
    client.publish(retained("kept", "1")).await;
    assert!(client.receive_publish().await.retain);
    client.publish(qos_0("kept")).await;
    assert!(!client.receive_publish().await.retain);
}

#[tokio::test]
async fn messages_beyond_the_maximum_packet_size_are_dropped_and_others_are_sent() {
    let server = start().await;
    let mut options = ConnectOptions::new("a");
    options.properties.max_packet_size = Some(100);
    // A dropped message does not count for the Receive Maximum.
    options.properties.receive_maximum = Some(1);
    let (mut client, _) = Client::connect_with(&server, options).await;
    client.subscribe(filter("#")).await;
    client.publish(Publish { payload: Bytes::from(vec![b'x'; 200]), ..qos_1("large", 1) }).await;
    assert_eq!(client.receive_puback().await, PubAckReason::Success);
    client.publish(qos_1("small", 2)).await;
    assert_eq!(client.receive_puback().await, PubAckReason::Success);
    assert_eq!(client.receive_topics(1).await, ["small"]);
}

#[tokio::test]
async fn a_large_message_passes_through_a_small_pipe_in_both_directions() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("large")).await;
    let payload = Bytes::from(vec![b'x'; 3_000_000]);
    client.publish(Publish { payload: payload.clone(), ..qos_1("large", 1) }).await;
    // The second message is written before the first one is read.
    client.publish(Publish { payload: payload.clone(), ..qos_1("other", 2) }).await;
    assert_eq!(client.receive_puback().await, PubAckReason::Success);
    assert_eq!(client.receive_publish().await.payload, payload);
    assert_eq!(client.receive_puback().await, PubAckReason::NoMatchingSubscribers);
}

#[tokio::test]
async fn a_topic_alias_stands_for_the_topic_it_was_given() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("#")).await;
    let alias = |topic| with_properties(qos_0(topic), |properties| properties.topic_alias = Some(3));
    client.publish(alias("long/topic")).await;
    client.publish(alias("")).await;
    let received = client.receive_publish().await;
    assert_eq!(received.properties.and_then(|properties| properties.topic_alias), None);
    assert_eq!(client.receive_topics(1).await, ["long/topic"]);
}

#[tokio::test]
async fn expired_messages_do_not_wait_for_a_session() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    client.subscribe(filter("#")).await;
    client.disconnect().await;
    let message =
        |topic: &str, expiry_s| Message { topic: topic.to_owned().into(), expiry_s, ..Message::default() };
    for (topic, expiry_s) in [("old", Some(0)), ("new", Some(1000)), ("kept", None)] {
        let message = Message { qos: Qos::AtLeastOnce, ..message(topic, expiry_s) };
        assert_eq!(server.broker().publish(None, message), 1);
    }
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    assert_eq!(client.receive_topics(2).await, ["new", "kept"]);
    client.expect_nothing().await;
}

#[tokio::test]
async fn a_publish_of_qos_0_has_no_packet_id_no_dup_flag_and_an_empty_property_length() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("a")).await;
    client.send_bytes(b"\x30\x05\0\x01a\0x").await;
    assert_eq!(client.receive_bytes(7).await, b"\x30\x05\0\x01a\0x");
}

#[tokio::test]
async fn a_byte_order_mark_stays_where_it_is_and_nothing_is_normalized() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    // The letter ä as one code point and as two.
    for topic in ["\u{FEFF}a", "\u{E4}", "a\u{308}"] {
        client.subscribe(filter(topic)).await;
    }
    for (topic, count) in [("\u{FEFF}a", 1), ("a", 0), ("\u{E4}", 1), ("a\u{308}", 1), ("A\u{308}", 0)] {
        client.publish(qos_0(topic)).await;
        assert_eq!(client.receive_topics(count).await, vec![topic; count]);
        client.expect_nothing().await;
    }
}

#[tokio::test]
async fn only_messages_with_the_retain_flag_are_retained() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(qos_0("plain")).await;
    client.publish(retained("kept", "first")).await;
    client.publish(qos_0("kept")).await;
    client.subscribe(filter("#")).await;
    let received = client.receive_publish().await;
    assert_eq!((&received.topic[..], &received.payload[..]), (&b"kept"[..], &b"first"[..]));
    client.publish(retained("kept", "second")).await;
    assert_eq!(client.receive_topics(1).await, ["kept"]);
    let mut late = Client::connect(&server, "late").await;
    late.subscribe(filter("#")).await;
    assert_eq!(late.receive_publish().await.payload, "second");
    late.expect_nothing().await;
}

#[tokio::test]
async fn a_retained_message_keeps_its_qos_and_its_properties() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    let sent = with_properties(Publish { retain: true, ..qos_1("kept", 1) }, |properties| {
        properties.content_type = Some("text".to_owned());
        properties.user_properties = vec![("a".to_owned(), "b".to_owned())];
    });
    client.publish(sent.clone()).await;
    client.receive_puback().await;
    for (granted, expected) in [
        (QoS::ExactlyOnce, QoS::AtLeastOnce),
        (QoS::AtLeastOnce, QoS::AtLeastOnce),
        (QoS::AtMostOnce, QoS::AtMostOnce),
    ] {
        client.subscribe(SubscribeFilter::new("kept", granted)).await;
        let received = client.receive_publish().await;
        assert_eq!((received.qos, received.retain), (expected, true));
        assert_eq!(received.properties, sent.properties);
    }
}

/// An acknowledgement with success would be a promise to keep the message for later subscribers.
#[tokio::test]
async fn a_retained_message_without_room_is_refused_and_neither_stored_nor_delivered() {
    let server = start_with(Settings { retained_messages_max: 1, ..Settings::default() }).await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(retained("first", "1")).await;
    client.subscribe(filter("#")).await;
    assert_eq!(client.receive_topics(1).await, ["first"]);
    for (publish, is_acknowledged) in [
        (Publish { retain: true, ..qos_0("second") }, false),
        (Publish { retain: true, ..qos_1("second", 1) }, true),
    ] {
        client.publish(publish).await;
        if is_acknowledged {
            assert_eq!(client.receive_puback().await, PubAckReason::QuotaExceeded);
        }
        client.expect_nothing().await;
    }
    client.publish(Publish { retain: true, ..qos_2("second", 2) }).await;
    assert_eq!(client.receive_bytes(6).await, [0x50, 4, 0, 2, 0x97, 0]);
    client.publish(Publish { retain: true, ..qos_1("first", 3) }).await;
    assert_eq!(client.receive_puback().await, PubAckReason::Success);
    assert_eq!(client.receive_topics(1).await, ["first"]);
    client.publish(qos_1("second", 4)).await;
    assert_eq!(client.receive_puback().await, PubAckReason::Success);
    assert_eq!(client.receive_topics(1).await, ["second"]);
}

#[tokio::test]
async fn a_will_without_room_is_delivered_and_its_topic_retains_no_outdated_message() {
    let server = start_with(Settings { memory_bytes_max: 8 * 1024, ..Settings::default() }).await;
    let broker = server.broker();
    let retained = |payload: &'static [u8]| {
        let payload = Bytes::from_static(payload);
        Message { retain: true, payload, ..message("state", Qos::AtMostOnce) }
    };
    broker.publish(None, retained(b"online"));
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("state")).await;
    assert_eq!(client.receive_publish().await.payload, "online");
    assert_eq!(broker.publish(None, retained(&[b'x'; 1_000])), 1);
    assert_eq!(client.receive_publish().await.payload.len(), 1_000);
    client.subscribe(filter("state")).await;
    client.expect_nothing().await;
}

#[tokio::test]
async fn an_expired_retained_message_is_not_sent() {
    let server = start().await;
    let broker = server.broker();
    for (topic, expiry_s) in [("old", Some(0)), ("new", Some(1000))] {
        let payload = Bytes::from_static(b"x");
        broker.publish(None, Message { retain: true, expiry_s, payload, ..message(topic, Qos::AtMostOnce) });
    }
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("#")).await;
    let received = client.receive_publish().await;
    assert_eq!(&received.topic[..], b"new");
    assert!(received.properties.unwrap().message_expiry_interval.is_some_and(|left| left <= 1000));
    client.expect_nothing().await;
}

#[tokio::test]
async fn every_topic_alias_up_to_the_maximum_is_accepted_and_ends_with_its_connection() {
    let server = start_with(Settings { topic_alias_max: 3, ..Settings::default() }).await;
    let alias =
        |topic: &str, alias| with_properties(qos_0(topic), |properties| properties.topic_alias = Some(alias));
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    client.subscribe(filter("#")).await;
    for number in 1..=3 {
        client.publish(alias(&format!("topic/{number}"), number)).await;
    }
    for number in (1..=3).rev() {
        client.publish(alias("", number)).await;
    }
    let expected = [1, 2, 3, 3, 2, 1].map(|number| format!("topic/{number}"));
    assert_eq!(client.receive_topics(6).await, expected);
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    client.publish(alias("", 1)).await;
    assert_eq!(client.receive_disconnect().await, DisconnectReasonCode::ProtocolError);
}

/// Returns the topic and the alias of the next message.
async fn receive_alias(client: &mut Client) -> (String, Option<u16>) {
    let publish = client.receive_publish().await;
    let topic = String::from_utf8(publish.topic.to_vec()).unwrap();
    (topic, publish.properties.and_then(|properties| properties.topic_alias))
}

#[tokio::test]
async fn the_broker_assigns_topic_aliases_up_to_the_clients_maximum() {
    let server = start().await;
    let options = |alias_max| {
        let mut options = ConnectOptions::persistent("a");
        options.properties.topic_alias_max = alias_max;
        options
    };
    let (mut client, _) = Client::connect_with(&server, options(Some(1))).await;
    client.subscribe(SubscribeFilter::new("#", QoS::AtMostOnce)).await;
    let first = ("some/topic".to_owned(), Some(1));
    let again = (String::new(), Some(1));
    let other = ("another/topic".to_owned(), None);
    for (topic, expected) in
        [("some/topic", &first), ("some/topic", &again), ("another/topic", &other), ("some/topic", &again)]
    {
        client.publish(qos_0(topic)).await;
        assert_eq!(receive_alias(&mut client).await, *expected);
    }
    // The aliases of the next connection start again, and it may accept none.
    for (alias_max, expected) in [(Some(1), Some(1)), (Some(0), None), (None, None)] {
        (client, _) = Client::connect_with(&server, options(alias_max)).await;
        client.publish(qos_0("some/topic")).await;
        assert_eq!(receive_alias(&mut client).await, ("some/topic".to_owned(), expected));
    }
}

#[tokio::test]
async fn a_message_of_each_qos_is_sent_with_a_topic_alias() {
    let server = start().await;
    let mut options = ConnectOptions::new("a");
    options.properties.topic_alias_max = Some(1);
    let (mut client, _) = Client::connect_with(&server, options).await;
    client.subscribe(SubscribeFilter::new("#", QoS::ExactlyOnce)).await;
    for (qos, topic) in [(Qos::AtMostOnce, "some/topic"), (Qos::AtLeastOnce, ""), (Qos::ExactlyOnce, "")] {
        server.broker().publish(None, message("some/topic", qos));
        assert_eq!(receive_alias(&mut client).await, (topic.to_owned(), Some(1)), "{qos:?}");
    }
}

#[tokio::test]
async fn a_topic_whose_message_could_not_be_sent_has_no_alias() {
    let server = start().await;
    let mut options = ConnectOptions::new("a");
    options.properties.topic_alias_max = Some(5);
    options.properties.max_packet_size = Some(100);
    let (mut client, _) = Client::connect_with(&server, options).await;
    client.subscribe(SubscribeFilter::new("#", QoS::AtMostOnce)).await;
    client.publish(Publish { payload: Bytes::from(vec![b'x'; 200]), ..qos_0("some/topic") }).await;
    client.publish(qos_0("some/topic")).await;
    assert_eq!(receive_alias(&mut client).await, ("some/topic".to_owned(), Some(1)));
}

#[tokio::test]
async fn a_request_gets_its_answer_by_response_topic_and_correlation_data() {
    let server = start().await;
    let mut responder = Client::connect(&server, "responder").await;
    responder.subscribe(filter("request")).await;
    let mut asker = Client::connect(&server, "asker").await;
    asker.subscribe(filter("answer/asker")).await;
    let request = with_properties(qos_0("request"), |properties| {
        properties.response_topic = Some("answer/asker".to_owned());
        properties.correlation_data = Some(Bytes::from_static(b"\0\x01"));
    });
    asker.publish(request).await;
    let asked = responder.receive_publish().await.properties.unwrap();
    let answer = with_properties(qos_0(&asked.response_topic.unwrap()), |properties| {
        properties.correlation_data = asked.correlation_data;
    });
    responder.publish(answer).await;
    let answered = asker.receive_publish().await;
    assert_eq!(answered.properties.unwrap().correlation_data.as_deref(), Some(&b"\0\x01"[..]));
}

#[tokio::test]
async fn a_message_that_no_queue_has_room_for_is_rejected_and_disconnects_no_subscriber() {
    let settings =
        Settings { session_queue_bytes_max: 5_001, packet_bytes_max: 5_000, ..Settings::default() };
    let server = start_with(settings).await;
    let mut reader = Client::connect(&server, "reader").await;
    reader.subscribe(filter("a")).await;
    let mut writer = Client::connect(&server, "writer").await;
    writer.publish(Publish { payload: vec![0; 4_980].into(), ..qos_1("a", 1) }).await;
    assert_eq!(writer.receive_puback().await, PubAckReason::QuotaExceeded);
    reader.expect_nothing().await;
}
