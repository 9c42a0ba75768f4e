//! The broker's application, and the server as a whole.

use super::*;

#[tokio::test]
async fn a_push_arrives_once_with_or_without_a_subscription_and_reaches_other_subscribers() {
    let (server, _) = start_echo().await;
    let mut other = Client::connect(&server, "other").await;
    other.subscribe(filter("answer/#")).await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(qos_1("answer/1", 1)).await;
    assert_eq!(client.receive_puback().await, PubAckReason::Success);
    assert_eq!(client.receive_topics(1).await, ["answer/1"]);
    client.subscribe(SubscribeFilter::new("answer/+", QoS::AtMostOnce)).await;
    client.subscribe(filter("#")).await;
    client.publish(qos_1("answer/2", 2)).await;
    assert_eq!(client.receive_puback().await, PubAckReason::Success);
    let received = client.receive_publish().await;
    assert_eq!((&received.topic[..], received.qos), (&b"answer/2"[..], QoS::AtLeastOnce));
    client.expect_nothing().await;
    assert_eq!(other.receive_topics(2).await, ["answer/1", "answer/2"]);
}

#[tokio::test]
async fn a_push_has_the_granted_qos_and_the_identifiers_of_the_subscriptions_that_match_it() {
    let (server, _) = start_echo().await;
    let mut client = Client::connect(&server, "a").await;
    let (zero, one) = (QoS::AtMostOnce, QoS::AtLeastOnce);
    let at = SubscribeFilter::new::<&str>;
    // The client receives the message from the application, so it is not its own.
    let no_local = SubscribeFilter { nolocal: true, ..at("answer/1", QoS::ExactlyOnce) };
    let steps: [(_, _, _, &[usize]); 5] = [
        (at("other", zero), Some(1), one, &[]),
        // Its message goes to one of the members, which may be another client.
        (at("$share/g/answer/1", zero), Some(2), one, &[]),
        (at("answer/+", zero), Some(3), zero, &[3]),
        (at("answer/#", zero), None, zero, &[3]),
        (no_local, Some(4), one, &[3, 4]),
    ];
    for (filter, id, qos, expected) in steps {
        client.subscribe_with(filter.clone(), id).await;
        client.publish(qos_1("answer/1", 1)).await;
        assert_eq!(client.receive_puback().await, PubAckReason::Success);
        let received = client.receive_publish().await;
        let mut ids = received.properties.unwrap_or_default().subscription_identifiers;
        ids.sort_unstable();
        assert_eq!((received.qos, &ids[..]), (qos, expected), "{filter:?}");
        client.expect_nothing().await;
    }
}

#[tokio::test]
async fn the_application_can_disconnect_a_client() {
    let (server, echo) = start_echo().await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(qos_1("leave", 1)).await;
    assert_eq!(client.receive_disconnect().await, DisconnectReasonCode::NotAuthorized);
    assert_eq!(echo.disconnected.lock().unwrap().len(), 1);
    let mut client = Client::connect(&server, "a").await;
    client.publish(qos_1("x", 1)).await;
    client.receive_puback().await;
    let connection = echo.senders.lock().unwrap().last().unwrap().connection;
    server.broker().disconnect(connection, ReasonCode::AdministrativeAction, "enough");
    assert_eq!(client.receive_disconnect().await, DisconnectReasonCode::AdministrativeAction);
}

#[tokio::test]
async fn a_panic_in_the_application_closes_only_its_connection() {
    let (server, echo) = start_echo().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("will")).await;
    let options = ConnectOptions { will: Some(will("will", 0)), ..ConnectOptions::persistent("a") };
    let (mut client, _) = Client::connect_with(&server, options).await;
    client.publish(qos_1("fail", 1)).await;
    assert_eq!(client.receive_any().await, None);
    assert_eq!(echo.disconnected.lock().unwrap().len(), 1);
    assert_eq!(watcher.receive_topics(1).await, ["will"]);
    let (_, connack) = Client::connect_with(&server, ConnectOptions::persistent("a")).await;
    assert!(connack.session_present);
}

#[tokio::test]
async fn an_answer_and_its_acknowledgement_are_sent_in_one_write() {
    let (server, _) = start_echo().await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(qos_1("answer/a", 1)).await;
    let mut bytes = vec![0; 1000];
    let read = client.stream.read(&mut bytes).await.unwrap();
    assert_eq!((bytes[0], bytes[4] & 0xF0), (0x40, 0x30), "{:?}", &bytes[..read]);
}

#[tokio::test]
async fn acknowledgements_that_are_held_back_are_sent_when_the_first_one_is_released() {
    let (server, echo) = start_echo().await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(qos_1("hold", 1)).await;
    client.publish(qos_1("hold", 2)).await;
    wait_for_held(&echo, 2).await;
    expect_no_write(&mut client).await;
    drop(echo.held.lock().unwrap().remove(0));
    assert_eq!(client.receive_bytes(8).await, [0x40, 2, 0, 1, 0x40, 2, 0, 2]);
    // One that has been sent releases no later one.
    client.publish(qos_1("hold", 3)).await;
    wait_for_held(&echo, 2).await;
    drop(echo.held.lock().unwrap().remove(0));
    expect_no_write(&mut client).await;
    echo.held.lock().unwrap().clear();
    assert_eq!(client.receive_bytes(4).await, [0x40, 2, 0, 3]);
    client.expect_nothing().await;
}

/// A client that goes a little beyond the Receive Maximum would be disconnected for them.
#[tokio::test]
async fn half_of_the_receive_maximum_is_not_held_back() {
    let (server, echo) = start_echo_with(Settings { receive_maximum: 4, ..Settings::default() }).await;
    let mut client = Client::connect(&server, "a").await;
    for id in [1, 3, 5] {
        let held = usize::from(id);
        client.publish(qos_1("hold", id)).await;
        wait_for_held(&echo, held).await;
        expect_no_write(&mut client).await;
        client.publish(qos_1("hold", id + 1)).await;
        wait_for_held(&echo, held + 1).await;
        let ids = [id, id + 1].map(|id| id.to_le_bytes()[0]);
        assert_eq!(client.receive_bytes(8).await, [0x40, 2, 0, ids[0], 0x40, 2, 0, ids[1]]);
    }
}

#[tokio::test]
async fn an_acknowledgement_that_is_held_back_is_sent_with_any_other_packet() {
    let (server, echo) = start_echo().await;
    let mut client = Client::connect(&server, "a").await;
    client.publish(qos_1("hold", 1)).await;
    wait_for_held(&echo, 1).await;
    client.publish(qos_1("answer/a", 2)).await;
    let mut bytes = vec![0; 1000];
    let read = client.stream.read(&mut bytes).await.unwrap();
    assert!(read > 8, "both acknowledgements and the answer");
    assert_eq!(bytes[..8], [0x40, 2, 0, 1, 0x40, 2, 0, 2]);
    assert_eq!(bytes[8] & 0xF0, 0x30, "the answer, in the same write");
    // One that is held back later is not written with it.
    client.publish(qos_1("hold", 3)).await;
    wait_for_held(&echo, 2).await;
    client.send(Packet::PingReq).await;
    assert_eq!(client.receive_bytes(6).await, [0x40, 2, 0, 3, 0xD0, 0]);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_refused_until_another_one_closes() {
    let server = start_with(Settings { connections_max: 1, ..Settings::default() }).await;
    let client = Client::connect(&server, "a").await;
    assert_eq!(Client::unconnected(&server).receive_any().await, None);
    client.disconnect().await;
    loop {
        let mut next = Client::unconnected(&server);
        // The task of the old connection may end a moment after its client saw it close.
        if next.stream.write_all(&[0xC0, 0x00]).await.is_ok() {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn tcp_is_served_on_a_free_port_by_several_servers() {
    let listening =
        |address| Settings { listeners: vec![ListenerSettings::plain(address)], ..Settings::default() };
    let settings = || listening("127.0.0.1:0".parse().unwrap());
    let (one, two) = (start_with(settings()).await, start_with(settings()).await);
    assert_ne!(one.addresses(), two.addresses());
    let stream = std::net::TcpStream::connect(one.addresses()[0]).unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut stream = tokio::net::TcpStream::from_std(stream).unwrap();
    stream.write_all(&[0x10, 0x0E, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 60, 0, 0, 1, b'a']).await.unwrap();
    let mut first = [0; 1];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(first, [0x20]);
    let taken = listening(one.addresses()[0]);
    let error = Server::start(taken, Hooks::new(Arc::new(()))).await.unwrap_err();
    assert!(error.to_string().starts_with("cannot listen on 127.0.0.1:"), "{error}");
    one.shutdown().await;
    two.shutdown().await;
}
