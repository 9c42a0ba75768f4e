//! Clients of MQTT 3.1.1, also together with clients of MQTT 5.

use super::*;

const CLEAN: u8 = 0x02;
const PERSISTENT: u8 = 0;

/// Connects a client; returns it and the bytes of its CONNACK.
async fn begin(server: &Server, client_id: &str, flags: u8, rest: &[u8]) -> (Client, Vec<u8>) {
    let mut client = Client::unconnected(server);
    let id = [&[0, u8::try_from(client_id.len()).unwrap()], client_id.as_bytes()].concat();
    let body = [b"\0\x04MQTT\x04", &[flags, 0, 0][..], &id, rest].concat();
    client.send_bytes(&[&[0x10, u8::try_from(body.len()).unwrap()], &body[..]].concat()).await;
    let connack = client.receive_bytes(4).await;
    (client, connack)
}

async fn connect(server: &Server, client_id: &str) -> Client {
    let (client, connack) = begin(server, client_id, CLEAN, b"").await;
    assert_eq!(connack, [0x20, 2, 0, 0]);
    client
}

/// Sends bytes and expects an answer.
async fn ask(client: &mut Client, question: &[u8], answer: &[u8]) {
    client.send_bytes(question).await;
    assert_eq!(client.receive_bytes(answer.len()).await, answer, "to {question:?}");
}

/// Checks that no packet is pending: the next one is the answer to a ping.
async fn expect_nothing(client: &mut Client) {
    ask(client, b"\xc0\0", b"\xd0\0").await;
}

#[tokio::test]
async fn a_client_of_3_1_1_subscribes_publishes_and_receives_at_every_qos() {
    let server = start().await;
    let mut client = connect(&server, "a").await;
    ask(&mut client, b"\x82\x0b\0\x07\0\x01a\x02\0\x02#a\0", b"\x90\x04\0\x07\x02\x80").await;
    ask(&mut client, b"\x30\x04\0\x01ax", b"\x30\x04\0\x01ax").await;
    ask(&mut client, b"\x32\x06\0\x01a\0\x09x", b"\x40\x02\0\x09\x32\x06\0\x01a\0\x01x").await;
    client.send_bytes(b"\x40\x02\0\x01").await;
    ask(&mut client, b"\x34\x06\0\x01a\0\x0ax", b"\x50\x02\0\x0a\x34\x06\0\x01a\0\x02x").await;
    ask(&mut client, b"\x3c\x06\0\x01a\0\x0ax", b"\x50\x02\0\x0a").await;
    ask(&mut client, b"\x62\x02\0\x0a", b"\x70\x02\0\x0a").await;
    ask(&mut client, b"\x50\x02\0\x02", b"\x62\x02\0\x02").await;
    client.send_bytes(b"\x70\x02\0\x02").await;
    ask(&mut client, b"\xa2\x05\0\x0b\0\x01a", b"\xb0\x02\0\x0b").await;
    ask(&mut client, b"\x32\x06\0\x01a\0\x0cx", b"\x40\x02\0\x0c").await;
    expect_nothing(&mut client).await;
    client.send_bytes(b"\xe0\0").await;
    assert_eq!(client.receive_to_end().await, b"");
}

#[tokio::test]
async fn messages_pass_between_the_versions_without_properties() {
    let server = start().await;
    let mut old = connect(&server, "old").await;
    ask(&mut old, b"\x82\x06\0\x01\0\x01a\x01", b"\x90\x03\0\x01\x01").await;
    let (mut new, _) = Client::connect_with(&server, ConnectOptions::new("new")).await;
    new.subscribe(filter("b")).await;
    let publish = with_properties(qos_1("a", 1), |properties| {
        properties.content_type = Some("text".to_owned());
        properties.topic_alias = Some(1);
        properties.user_properties = vec![("a".to_owned(), "b".to_owned())];
    });
    new.publish(publish).await;
    assert_eq!(new.receive_puback().await, PubAckReason::Success);
    assert_eq!(old.receive_bytes(14).await, b"\x32\x0c\0\x01a\0\x01payload");
    old.send_bytes(b"\x30\x04\0\x01bx").await;
    let received = new.receive_publish().await;
    assert_eq!((&received.payload[..], received.properties), (&b"x"[..], None));
}

#[tokio::test]
async fn retained_messages_and_topics_with_a_dollar_are_handled_as_in_mqtt_5() {
    let server = start().await;
    let mut client = connect(&server, "a").await;
    client.send_bytes(b"\x31\x05\0\x01ax1").await;
    ask(&mut client, b"\x82\x06\0\x01\0\x01#\0", b"\x90\x03\0\x01\0\x31\x05\0\x01ax1").await;
    client.send_bytes(b"\x30\x06\0\x04$SYS").await;
    ask(&mut client, b"\x31\x03\0\x01a", b"\x30\x03\0\x01a").await;
    let mut late = connect(&server, "late").await;
    ask(&mut late, b"\x82\x06\0\x01\0\x01#\0", b"\x90\x03\0\x01\0").await;
    expect_nothing(&mut late).await;
}

#[tokio::test]
async fn a_session_without_clean_session_persists() {
    let server = start().await;
    let (mut client, connack) = begin(&server, "a", PERSISTENT, b"").await;
    assert_eq!(connack, [0x20, 2, 0, 0]);
    ask(&mut client, b"\x82\x06\0\x01\0\x01a\x01", b"\x90\x03\0\x01\x01").await;
    client.send_bytes(b"\xe0\0").await;
    assert_eq!(client.receive_to_end().await, b"");
    assert_eq!(server.broker().publish(None, message("a", Qos::AtLeastOnce)), 1);
    let (mut client, connack) = begin(&server, "a", PERSISTENT, b"").await;
    assert_eq!(connack, [0x20, 2, 1, 0]);
    assert_eq!(client.receive_bytes(7).await, b"\x32\x05\0\x01a\0\x01");
    drop(client);
    let (mut client, _) = begin(&server, "a", PERSISTENT, b"").await;
    assert_eq!(client.receive_bytes(7).await, b"\x3a\x05\0\x01a\0\x01", "sent again");
    let (mut clean, connack) = begin(&server, "a", CLEAN, b"").await;
    assert_eq!(connack, [0x20, 2, 0, 0]);
    assert_eq!(client.receive_to_end().await, b"", "there is no DISCONNECT to be sent");
    expect_nothing(&mut clean).await;
}

#[tokio::test]
async fn a_will_of_3_1_1_is_published_when_the_connection_is_lost_and_not_after_a_disconnect() {
    let server = start().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("#")).await;
    for (client_id, disconnects) in [("a", true), ("b", false)] {
        let will = [b"\0\x01", client_id.as_bytes(), b"\0\x04gone"].concat();
        let (mut client, _) = begin(&server, client_id, CLEAN | 0x0C, &will).await;
        if disconnects {
            client.send_bytes(b"\xe0\0").await;
            assert_eq!(client.receive_to_end().await, b"");
        }
    }
    let received = watcher.receive_publish().await;
    assert_eq!(
        (&received.topic[..], &received.payload[..], received.qos),
        (&b"b"[..], &b"gone"[..], QoS::AtLeastOnce)
    );
}

#[tokio::test]
async fn a_client_of_3_1_1_is_disconnected_after_its_keep_alive_and_for_malformed_packets() {
    let server = start().await;
    let mut unconnected = Client::unconnected(&server);
    unconnected.send_bytes(b"\x10\x0d\0\x04MQTT\x04\x02\0\x01\0\x01s").await;
    assert_eq!(unconnected.receive_to_end().await, [0x20, 2, 0, 0]);
    for bytes in [
        &b"\x36\x05\0\x01a\0\x01"[..],
        b"\xf0\x02\x19\0",
        b"\x10\x0d\0\x04MQTT\x04\x02\0\x01\0\x01a",
        b"\x82\x02\0\x01",
    ] {
        let mut client = connect(&server, "a").await;
        client.send_bytes(bytes).await;
        assert_eq!(client.receive_to_end().await, b"", "{bytes:?}");
    }
}

#[tokio::test]
async fn other_versions_and_invalid_client_ids_are_rejected_with_their_return_codes() {
    let server = start().await;
    for (options, code) in [
        (&b"\x10\x0f\0\x06MQIsdp\x03\x02\0\0\0\x01a"[..], 1),
        (b"\x10\x0d\0\x04MQTT\x03\x02\0\0\0\x01a", 1),
        (b"\x10\x0c\0\x04MQTT\x04\0\0\0\0\0", 2),
    ] {
        let mut client = Client::unconnected(&server);
        client.send_bytes(options).await;
        assert_eq!(client.receive_to_end().await, [0x20, 2, 0, code], "{options:?}");
    }
    let (mut nameless, connack) = begin(&server, "", CLEAN, b"").await;
    assert_eq!(connack, [0x20, 2, 0, 0]);
    expect_nothing(&mut nameless).await;
}

#[tokio::test]
async fn no_keep_alive_is_imposed_on_a_client_of_3_1_1_that_cannot_learn_of_it() {
    let server = start_with(Settings { keep_alive_s_max: 1, ..Settings::default() }).await;
    let mut client = connect(&server, "a").await;
    tokio::time::sleep(Duration::from_millis(1_700)).await;
    expect_nothing(&mut client).await;
}

#[tokio::test]
async fn a_bridge_is_accepted_and_gets_none_of_its_messages_back() {
    let server = start().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    for path in ["$SYS/#", "t/#"] {
        watcher.subscribe(SubscribeFilter::new(path, QoS::AtMostOnce)).await;
    }
    let status = b"\0\x1e$SYS/broker/connection/x/state";
    // The level has the bit of a bridge; a retained will of QoS 1.
    let head = b"\0\x04MQTT\x84\x2c\0\0\0\x01x";
    let connect = [&[0x10, 48][..], head, status, b"\0\x010"].concat();
    let mut bridge = Client::unconnected(&server);
    ask(&mut bridge, &connect, b"\x20\x02\0\0").await;
    ask(&mut bridge, &[&[0x33, 35][..], status, b"\0\x011"].concat(), b"\x40\x02\0\x01").await;
    ask(&mut bridge, b"\x82\x06\0\x02\0\x01#\0", b"\x90\x03\0\x02\0").await;
    ask(&mut bridge, b"\x82\x0f\0\x03\0\x0a$share/g/s\0", b"\x90\x03\0\x03\0").await;
    bridge.send_bytes(b"\x30\x06\0\x03t/ax").await;
    expect_nothing(&mut bridge).await;
    assert_eq!(watcher.receive_topics(1).await, ["t/a"]);
    for (retain, first) in [(true, 0x31), (false, 0x30)] {
        let payload = Bytes::from_static(b"y");
        let message = Message { retain, payload, ..message("t/b", Qos::AtMostOnce) };
        assert_eq!(server.broker().publish(None, message), 2);
        assert_eq!(bridge.receive_bytes(8).await, [&[first][..], b"\x06\0\x03t/by"].concat());
        assert_eq!(watcher.receive_topics(1).await, ["t/b"]);
    }
    drop(bridge);
    let (mut next, connack) = begin(&server, "x", PERSISTENT, b"").await;
    assert_eq!(connack, [0x20, 2, 1, 0]);
    ask(&mut next, b"\x30\x06\0\x03t/cx", b"").await;
    expect_nothing(&mut next).await;
    assert_eq!(watcher.receive_topics(1).await, ["t/c"]);
    watcher.expect_nothing().await;
}

#[tokio::test]
async fn messages_and_wills_on_the_topics_of_bridges_are_dropped_also_in_mqtt_5() {
    let server = start().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("$SYS/#")).await;
    let topic = "$SYS/broker/connection/x/state";
    let options = ConnectOptions { will: Some(will(topic, 0)), ..ConnectOptions::new("x") };
    let (mut client, _) = Client::connect_with(&server, options).await;
    client.publish(Publish { retain: true, ..qos_1(topic, 1) }).await;
    assert_eq!(client.receive_puback().await, PubAckReason::NoMatchingSubscribers);
    client.publish(qos_1("$SYS/broker/connection", 2)).await;
    assert_eq!(client.receive_puback().await, PubAckReason::NotAuthorized);
    drop(client);
    let (mut next, connack) = Client::connect_with(&server, ConnectOptions::new("x")).await;
    assert!(!connack.session_present);
    next.subscribe(filter("$SYS/broker/connection/#")).await;
    next.expect_nothing().await;
    watcher.expect_nothing().await;
}

#[tokio::test]
async fn a_session_can_be_taken_over_between_the_versions() {
    let server = start().await;
    let (mut new, _) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    new.subscribe(filter("a")).await;
    let (old, connack) = begin(&server, "a", PERSISTENT, b"").await;
    assert_eq!(connack, [0x20, 2, 1, 0]);
    assert_eq!(new.receive_disconnect().await, DisconnectReasonCode::SessionTakenOver);
    let (mut new, connack) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    assert!(connack.session_present);
    assert_eq!(old.receive_to_end().await, b"");
    new.publish(qos_0("a")).await;
    assert_eq!(new.receive_topics(1).await, ["a"]);
}
