//! QoS 1 and 2, in both directions (MQTT 5, 3.4 to 3.7, 4.3 and 4.4).

use super::*;

#[tokio::test]
async fn qos_0_is_not_acknowledged_and_a_puback_reports_no_matching_subscribers() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(qos_0("unsubscribed")).await;
    client.publish(qos_1("unsubscribed", 1)).await;
    assert_eq!(client.receive_puback().await, PubAckReason::NoMatchingSubscribers);
}

#[tokio::test]
async fn qos_2_is_published_once_however_often_it_is_sent() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(SubscribeFilter::new("a", QoS::ExactlyOnce)).await;
    client.publish(qos_2("a", 5)).await;
    assert_eq!(client.receive().await, Packet::PubRec(PubRec::new(5, None)));
    let received = client.receive_publish().await;
    assert_eq!((received.qos, received.pkid), (QoS::ExactlyOnce, 1));
    client.publish(Publish { dup: true, ..qos_2("a", 5) }).await;
    assert_eq!(client.receive().await, Packet::PubRec(PubRec::new(5, None)));
    client.expect_nothing().await;
    client.send(Packet::PubRel(PubRel::new(5, None))).await;
    assert_eq!(client.receive().await, Packet::PubComp(PubComp::new(5, None)));
    // The client may send its PUBREC again until it has received the PUBREL.
    for _ in 0..2 {
        client.send(Packet::PubRec(PubRec::new(1, None))).await;
        assert_eq!(client.receive().await, Packet::PubRel(PubRel::new(1, None)));
    }
    client.send(Packet::PubComp(PubComp::new(1, None))).await;
    client.send(Packet::PubRec(PubRec::new(1, None))).await;
    let unknown = PubRel { pkid: 1, reason: PubRelReason::PacketIdentifierNotFound, properties: None };
    assert_eq!(client.receive().await, Packet::PubRel(unknown));
}

#[tokio::test]
async fn each_qos_has_its_acknowledgement_with_the_packet_id_that_was_sent() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(SubscribeFilter { nolocal: true, ..filter("a") }).await;
    let mut other = Client::connect(&server, "other").await;
    other.subscribe(filter("a")).await;
    for (bytes, answer) in [
        (&b"\x32\x06\0\x01a\x12\x34\0"[..], &b"\x40\x02\x12\x34"[..]),
        (b"\x34\x06\0\x01a\x12\x35\0", b"\x50\x02\x12\x35"),
        (b"\x62\x02\x12\x35", b"\x70\x02\x12\x35"),
        (b"\x62\x02\x12\x35", b"\x70\x04\x12\x35\x92\0"),
        (b"\x50\x02\x7f\xff", b"\x62\x04\x7f\xff\x92\0"),
    ] {
        client.send_bytes(bytes).await;
        assert_eq!(client.receive_bytes(answer.len()).await, answer, "{bytes:?}");
    }
}

#[tokio::test]
async fn a_packet_id_is_free_again_after_its_acknowledgement() {
    let server = start().await;
    let mut subscriber = Client::connect(&server, "subscriber").await;
    subscriber.subscribe(SubscribeFilter::new("a", QoS::AtMostOnce)).await;
    let mut client = Client::connect(&server, "a").await;
    for dup in [false, true, false] {
        client.publish(Publish { dup, ..qos_1("a", 1) }).await;
        client.receive_puback().await;
        client.publish(Publish { dup, ..qos_2("a", 2) }).await;
        assert!(matches!(client.receive().await, Packet::PubRec(_)));
        client.send(Packet::PubRel(PubRel::new(2, None))).await;
        assert!(matches!(client.receive().await, Packet::PubComp(_)));
    }
    assert_eq!(subscriber.receive_topics(6).await, ["a"; 6]);
    subscriber.expect_nothing().await;
}

#[tokio::test]
async fn a_packet_id_is_free_again_after_an_error() {
    let (server, _) = start_echo().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(SubscribeFilter::new("a", QoS::AtMostOnce)).await;
    // Rejected by the broker, by the broker again, and by the application.
    for (topic, reason) in [("$SYS/a", 0x87), ("$SYS/a", 0x87), ("refuse", 0x97)] {
        client.publish(qos_2(topic, 1)).await;
        assert_eq!(client.receive_bytes(6).await, [0x50, 4, 0, 1, reason, 0], "{topic}");
    }
    client.publish(qos_2("a", 1)).await;
    assert!(matches!(client.receive().await, Packet::PubRec(_)));
    assert_eq!(client.receive_topics(1).await, ["a"]);
}

#[tokio::test]
async fn the_dup_flag_of_the_publisher_is_not_forwarded() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("a")).await;
    client.publish(Publish { dup: true, ..qos_1("a", 1) }).await;
    client.receive_puback().await;
    assert!(!client.receive_publish().await.dup);
}

#[tokio::test]
async fn no_packet_id_is_used_for_two_messages_at_the_same_time() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(SubscribeFilter::new("#", QoS::ExactlyOnce)).await;
    let mut ids = std::collections::BTreeSet::new();
    for number in 0..100 {
        let qos = if number % 2 == 0 { Qos::AtLeastOnce } else { Qos::ExactlyOnce };
        server.broker().publish(None, message("a", qos));
        let publish = client.receive_publish().await;
        assert!(publish.pkid > 0 && ids.insert(publish.pkid), "{}", publish.pkid);
    }
}

#[tokio::test]
async fn messages_of_one_topic_and_qos_keep_their_order_also_when_they_are_sent_again() {
    let server = start().await;
    for (qos, path) in [(QoS::AtMostOnce, "q0"), (QoS::AtLeastOnce, "q1"), (QoS::ExactlyOnce, "q2")] {
        let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
        client.subscribe(SubscribeFilter::new(path, qos)).await;
        let mut publisher = Client::connect(&server, "publisher").await;
        for number in 0..50_u16 {
            let publish = Publish { payload: number.to_string().into(), ..qos_2(path, number + 1) };
            publisher.publish(publish).await;
            assert!(matches!(publisher.receive().await, Packet::PubRec(_)));
        }
        let numbers =
            |publish: Publish| String::from_utf8(publish.payload.to_vec()).unwrap().parse::<u16>().unwrap();
        for number in 0..50_u16 {
            assert_eq!(numbers(client.receive_publish().await), number);
        }
        let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
        if qos > QoS::AtMostOnce {
            for number in 0..50_u16 {
                let publish = client.receive_publish().await;
                assert!(publish.dup);
                assert_eq!(numbers(publish), number);
            }
        }
        client
            .send(Packet::Unsubscribe(Unsubscribe {
                pkid: 1,
                filters: vec![path.to_owned()],
                properties: None,
            }))
            .await;
        assert!(matches!(client.receive().await, Packet::UnsubAck(_)));
        let (_, connack) = Client::connect_with(
            &server,
            ConnectOptions { clean_start: true, ..ConnectOptions::persistent("a") },
        )
        .await;
        assert!(!connack.session_present);
        publisher.disconnect().await;
    }
}

#[tokio::test]
async fn a_qos_2_message_is_not_published_again_by_pubrel_nor_sent_again_after_pubrec() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    client.subscribe(SubscribeFilter::new("a", QoS::ExactlyOnce)).await;
    client.publish(qos_2("a", 1)).await;
    assert!(matches!(client.receive().await, Packet::PubRec(_)));
    let packet_id = client.receive_publish().await.pkid;
    client.send(Packet::PubRec(PubRec::new(packet_id, None))).await;
    assert!(matches!(client.receive().await, Packet::PubRel(_)));
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    assert_eq!(client.receive().await, Packet::PubRel(PubRel::new(packet_id, None)));
    // The packet ids that this client has used are known too.
    client.publish(Publish { dup: true, ..qos_2("a", 1) }).await;
    assert!(matches!(client.receive().await, Packet::PubRec(_)));
    client.expect_nothing().await;
    client.send(Packet::PubComp(PubComp::new(packet_id, None))).await;
    client.send(Packet::PubRel(PubRel::new(1, None))).await;
    assert!(matches!(client.receive().await, Packet::PubComp(_)));
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    client.expect_nothing().await;
}

#[tokio::test]
async fn a_message_that_the_client_rejects_is_not_sent_again() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    client.subscribe(SubscribeFilter::new("#", QoS::ExactlyOnce)).await;
    server.broker().publish(None, message("a", Qos::AtLeastOnce));
    let packet_id = client.receive_publish().await.pkid;
    client
        .send(Packet::PubAck(PubAck {
            pkid: packet_id,
            reason: PubAckReason::QuotaExceeded,
            properties: None,
        }))
        .await;
    server.broker().publish(None, message("b", Qos::ExactlyOnce));
    let [high, low] = client.receive_publish().await.pkid.to_be_bytes();
    client.send_bytes(&[0x50, 4, high, low, 0x97, 0]).await;
    client.expect_nothing().await;
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    client.expect_nothing().await;
}

#[tokio::test]
async fn a_message_sent_before_its_expiry_is_sent_again_after_it() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    client.subscribe(SubscribeFilter::new("#", QoS::ExactlyOnce)).await;
    let expiring = Message { expiry_s: Some(1), ..message("a", Qos::ExactlyOnce) };
    server.broker().publish(None, expiring);
    let packet_id = client.receive_publish().await.pkid;
    let is_over = crate::clock::monotonic() + Duration::from_millis(1_100);
    tokio::time::sleep_until(is_over.into()).await;
    let (mut client, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    let again = client.receive_publish().await;
    assert_eq!((again.pkid, again.dup), (packet_id, true));
    assert_eq!(again.properties.unwrap().message_expiry_interval, Some(0));
}

#[tokio::test]
async fn a_message_with_an_expiry_interval_of_0_is_acknowledged() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(SubscribeFilter::new("#", QoS::ExactlyOnce)).await;
    client
        .publish(with_properties(qos_2("a", 1), |properties| properties.message_expiry_interval = Some(0)))
        .await;
    assert!(matches!(client.receive().await, Packet::PubRec(_)));
    client.send(Packet::PubRel(PubRel::new(1, None))).await;
    assert!(matches!(client.receive().await, Packet::PubComp(_)));
    client.expect_nothing().await;
}

#[tokio::test]
async fn acknowledgements_have_no_reason_string_and_no_user_property() {
    let server = start().await;
    let mut options = ConnectOptions::new("a");
    options.properties.request_problem_info = Some(0);
    let (mut client, _) = Client::connect_with(&server, options).await;
    for (bytes, answer) in [
        (&b"\x32\x06\0\x01a\0\x01\0"[..], &b"\x40\x04\0\x01\x10\0"[..]),
        (b"\x34\x06\0\x01a\0\x02\0", b"\x50\x04\0\x02\x10\0"),
        (b"\x62\x02\0\x09", b"\x70\x04\0\x09\x92\0"),
        (b"\x50\x02\0\x09", b"\x62\x04\0\x09\x92\0"),
        (b"\x82\x09\0\x03\0\0\x03a/+\0", b"\x90\x04\0\x03\0\0"),
        (b"\xa2\x06\0\x04\0\0\x01b", b"\xb0\x04\0\x04\0\x11"),
    ] {
        client.send_bytes(bytes).await;
        assert_eq!(client.receive_bytes(answer.len()).await, answer, "{bytes:?}");
    }
    client.expect_nothing().await;
}
