//! QoS 1 and 2, each way (MQTT 5, 3.4 to 3.7, 4.3 and 4.4).

use super::*;

#[tokio::test]
async fn qos_0_is_not_acknowledged_and_nobody_subscribing_is_said_to_qos_1() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(qos_0("nobody")).await;
    client.publish(qos_1("nobody", 1)).await;
    assert_eq!(client.hear_puback().await, PubAckReason::NoMatchingSubscribers);
}

#[tokio::test]
async fn qos_2_is_published_once_however_often_it_is_sent() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(SubscribeFilter::new("a", QoS::ExactlyOnce)).await;
    client.publish(qos_2("a", 5)).await;
    assert_eq!(client.hear().await, Packet::PubRec(PubRec::new(5, None)));
    let heard = client.hear_publish().await;
    assert_eq!((heard.qos, heard.pkid), (QoS::ExactlyOnce, 1));
    client.publish(Publish { dup: true, ..qos_2("a", 5) }).await;
    assert_eq!(client.hear().await, Packet::PubRec(PubRec::new(5, None)));
    client.hear_nothing().await;
    client.say(Packet::PubRel(PubRel::new(5, None))).await;
    assert_eq!(client.hear().await, Packet::PubComp(PubComp::new(5, None)));
    client.say(Packet::PubRec(PubRec::new(1, None))).await;
    assert_eq!(client.hear().await, Packet::PubRel(PubRel::new(1, None)));
    client.say(Packet::PubComp(PubComp::new(1, None))).await;
    client.say(Packet::PubRec(PubRec::new(1, None))).await;
    let unknown = PubRel { pkid: 1, reason: PubRelReason::PacketIdentifierNotFound, properties: None };
    assert_eq!(client.hear().await, Packet::PubRel(unknown));
}

#[tokio::test]
async fn each_qos_has_its_answer_with_the_packet_id_that_was_sent() {
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
        client.say_bytes(bytes).await;
        assert_eq!(client.hear_bytes(answer.len()).await, answer, "{bytes:?}");
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
        client.hear_puback().await;
        client.publish(Publish { dup, ..qos_2("a", 2) }).await;
        assert!(matches!(client.hear().await, Packet::PubRec(_)));
        client.say(Packet::PubRel(PubRel::new(2, None))).await;
        assert!(matches!(client.hear().await, Packet::PubComp(_)));
    }
    assert_eq!(subscriber.hear_topics(6).await, ["a"; 6]);
    subscriber.hear_nothing().await;
}

#[tokio::test]
async fn a_packet_id_is_free_again_after_a_refusal() {
    let (server, _) = start_echo().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(SubscribeFilter::new("a", QoS::AtMostOnce)).await;
    // By the broker, for one more time, and by what is behind it.
    for (topic, reason) in [("$SYS/a", 0x87), ("$SYS/a", 0x87), ("refuse", 0x97)] {
        client.publish(qos_2(topic, 1)).await;
        assert_eq!(client.hear_bytes(6).await, [0x50, 4, 0, 1, reason, 0], "{topic}");
    }
    client.publish(qos_2("a", 1)).await;
    assert!(matches!(client.hear().await, Packet::PubRec(_)));
    assert_eq!(client.hear_topics(1).await, ["a"]);
}

#[tokio::test]
async fn a_repetition_is_not_passed_on_as_one() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("a")).await;
    client.publish(Publish { dup: true, ..qos_1("a", 1) }).await;
    client.hear_puback().await;
    assert!(!client.hear_publish().await.dup);
}

#[tokio::test]
async fn no_packet_id_is_used_for_two_messages_at_a_time() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(SubscribeFilter::new("#", QoS::ExactlyOnce)).await;
    let mut ids = std::collections::BTreeSet::new();
    for number in 0..100 {
        let qos = if number % 2 == 0 { Qos::AtLeastOnce } else { Qos::ExactlyOnce };
        server.broker().publish(None, message("a", qos));
        let publish = client.hear_publish().await;
        assert!(publish.pkid > 0 && ids.insert(publish.pkid), "{}", publish.pkid);
    }
}

#[tokio::test]
async fn messages_of_one_topic_and_qos_keep_their_order_also_when_they_are_sent_again() {
    let server = start().await;
    for (qos, path) in [(QoS::AtMostOnce, "q0"), (QoS::AtLeastOnce, "q1"), (QoS::ExactlyOnce, "q2")] {
        let (mut client, _) = Client::connect_with(&server, Hello::lasting("a")).await;
        client.subscribe(SubscribeFilter::new(path, qos)).await;
        let mut publisher = Client::connect(&server, "publisher").await;
        for number in 0..50_u16 {
            let publish = Publish { payload: number.to_string().into(), ..qos_2(path, number + 1) };
            publisher.publish(publish).await;
            assert!(matches!(publisher.hear().await, Packet::PubRec(_)));
        }
        let numbers =
            |publish: Publish| String::from_utf8(publish.payload.to_vec()).unwrap().parse::<u16>().unwrap();
        for number in 0..50_u16 {
            assert_eq!(numbers(client.hear_publish().await), number);
        }
        let (mut client, _) = Client::connect_with(&server, Hello::lasting("a")).await;
        if qos > QoS::AtMostOnce {
            for number in 0..50_u16 {
                let publish = client.hear_publish().await;
                assert!(publish.dup);
                assert_eq!(numbers(publish), number);
            }
        }
        client
            .say(Packet::Unsubscribe(Unsubscribe {
                pkid: 1,
                filters: vec![path.to_owned()],
                properties: None,
            }))
            .await;
        assert!(matches!(client.hear().await, Packet::UnsubAck(_)));
        let (_, connack) =
            Client::connect_with(&server, Hello { clean_start: true, ..Hello::lasting("a") }).await;
        assert!(!connack.session_present);
        publisher.disconnect().await;
    }
}

#[tokio::test]
async fn what_was_received_is_not_published_again_by_its_release_nor_sent_again_after_it() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    client.subscribe(SubscribeFilter::new("a", QoS::ExactlyOnce)).await;
    client.publish(qos_2("a", 1)).await;
    assert!(matches!(client.hear().await, Packet::PubRec(_)));
    let packet_id = client.hear_publish().await.pkid;
    client.say(Packet::PubRec(PubRec::new(packet_id, None))).await;
    assert!(matches!(client.hear().await, Packet::PubRel(_)));
    let (mut client, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    assert_eq!(client.hear().await, Packet::PubRel(PubRel::new(packet_id, None)));
    // What this client has sent is known too.
    client.publish(Publish { dup: true, ..qos_2("a", 1) }).await;
    assert!(matches!(client.hear().await, Packet::PubRec(_)));
    client.hear_nothing().await;
    client.say(Packet::PubComp(PubComp::new(packet_id, None))).await;
    client.say(Packet::PubRel(PubRel::new(1, None))).await;
    assert!(matches!(client.hear().await, Packet::PubComp(_)));
    let (mut client, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    client.hear_nothing().await;
}

#[tokio::test]
async fn what_a_client_refuses_is_not_sent_again() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    client.subscribe(SubscribeFilter::new("#", QoS::ExactlyOnce)).await;
    server.broker().publish(None, message("a", Qos::AtLeastOnce));
    let packet_id = client.hear_publish().await.pkid;
    client
        .say(Packet::PubAck(PubAck {
            pkid: packet_id,
            reason: PubAckReason::QuotaExceeded,
            properties: None,
        }))
        .await;
    server.broker().publish(None, message("b", Qos::ExactlyOnce));
    let [high, low] = client.hear_publish().await.pkid.to_be_bytes();
    client.say_bytes(&[0x50, 4, high, low, 0x97, 0]).await;
    client.hear_nothing().await;
    let (mut client, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    client.hear_nothing().await;
}

#[tokio::test]
async fn what_was_sent_in_time_is_sent_again_even_if_it_has_expired_since() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    client.subscribe(SubscribeFilter::new("#", QoS::ExactlyOnce)).await;
    let expiring = Message { expiry_s: Some(1), ..message("a", Qos::ExactlyOnce) };
    server.broker().publish(None, expiring);
    let packet_id = client.hear_publish().await.pkid;
    let is_over = crate::clock::monotonic() + Duration::from_millis(1_100);
    tokio::time::sleep_until(is_over.into()).await;
    let (mut client, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    let again = client.hear_publish().await;
    assert_eq!((again.pkid, again.dup), (packet_id, true));
    assert_eq!(again.properties.unwrap().message_expiry_interval, Some(0));
}

#[tokio::test]
async fn a_message_that_comes_expired_is_acknowledged_like_any_other() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(SubscribeFilter::new("#", QoS::ExactlyOnce)).await;
    client
        .publish(with_properties(qos_2("a", 1), |properties| properties.message_expiry_interval = Some(0)))
        .await;
    assert!(matches!(client.hear().await, Packet::PubRec(_)));
    client.say(Packet::PubRel(PubRel::new(1, None))).await;
    assert!(matches!(client.hear().await, Packet::PubComp(_)));
    client.hear_nothing().await;
}

#[tokio::test]
async fn no_acknowledgement_has_words_or_properties() {
    let server = start().await;
    let mut hello = Hello::new("a");
    hello.properties.request_problem_info = Some(0);
    let (mut client, _) = Client::connect_with(&server, hello).await;
    for (bytes, answer) in [
        (&b"\x32\x06\0\x01a\0\x01\0"[..], &b"\x40\x04\0\x01\x10\0"[..]),
        (b"\x34\x06\0\x01a\0\x02\0", b"\x50\x04\0\x02\x10\0"),
        (b"\x62\x02\0\x09", b"\x70\x04\0\x09\x92\0"),
        (b"\x50\x02\0\x09", b"\x62\x04\0\x09\x92\0"),
        (b"\x82\x09\0\x03\0\0\x03a/+\0", b"\x90\x04\0\x03\0\0"),
        (b"\xa2\x06\0\x04\0\0\x01b", b"\xb0\x04\0\x04\0\x11"),
    ] {
        client.say_bytes(bytes).await;
        assert_eq!(client.hear_bytes(answer.len()).await, answer, "{bytes:?}");
    }
    client.hear_nothing().await;
}
