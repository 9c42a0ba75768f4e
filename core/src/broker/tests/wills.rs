//! Will Messages (MQTT 5, 3.1.2.5).

use super::*;

#[tokio::test]
async fn a_will_is_published_when_the_connection_is_lost_and_not_after_a_disconnect() {
    let server = start().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("will/#")).await;
    for (client_id, disconnects) in [("a", true), ("b", false)] {
        let options = ConnectOptions {
            will: Some(will(&format!("will/{client_id}"), 0)),
            ..ConnectOptions::persistent(client_id)
        };
        let (client, _) = Client::connect_with(&server, options).await;
        if disconnects {
            client.disconnect().await;
        }
    }
    assert_eq!(watcher.receive_topics(1).await, ["will/b"]);
    watcher.expect_nothing().await;
}

#[tokio::test]
async fn a_delayed_will_is_not_published_if_the_client_reconnects_in_time() {
    let server = start().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("will/#")).await;
    let options =
        |delay_s| ConnectOptions { will: Some(will("will/a", delay_s)), ..ConnectOptions::persistent("a") };
    let (mut client, _) = Client::connect_with(&server, options(3600)).await;
    client.expect_nothing().await;
    drop(client);
    let (back, _) = Client::connect_with(&server, options(1)).await;
    watcher.expect_nothing().await;
    drop(back);
    assert_eq!(watcher.receive_topics(1).await, ["will/a"]);
}

#[tokio::test]
async fn a_will_is_published_once_with_all_its_properties() {
    let server = start().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher
        .subscribe(SubscribeFilter {
            preserve_retain: true,
            ..SubscribeFilter::new("will", QoS::ExactlyOnce)
        })
        .await;
    for (qos, retain) in [(QoS::AtMostOnce, true), (QoS::AtLeastOnce, false), (QoS::ExactlyOnce, true)] {
        let properties = LastWillProperties {
            delay_interval: None,
            payload_format_indicator: Some(1),
            message_expiry_interval: Some(60),
            content_type: Some("text".to_owned()),
            response_topic: Some("back".to_owned()),
            correlation_data: Some(Bytes::from_static(b"\xff")),
            user_properties: vec![("b".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())],
        };
        let will = LastWill::new("will", "gone", qos, retain, Some(properties.clone()));
        drop(
            Client::connect_with(
                &server,
                ConnectOptions { will: Some(will), ..ConnectOptions::persistent("a") },
            )
            .await,
        );
        let received = watcher.receive_publish().await;
        assert_eq!((received.qos, received.retain, &received.payload[..]), (qos, retain, &b"gone"[..]));
        let properties_received = received.properties.unwrap();
        assert_eq!(properties_received.payload_format_indicator, properties.payload_format_indicator);
        assert_eq!(properties_received.message_expiry_interval, properties.message_expiry_interval);
        assert_eq!(
            (properties_received.content_type, properties_received.response_topic),
            (properties.content_type, properties.response_topic)
        );
        assert_eq!(
            (properties_received.correlation_data, properties_received.user_properties),
            (properties.correlation_data, properties.user_properties)
        );
    }
    // The will ended with the session's first connection.
    drop(Client::connect_with(&server, ConnectOptions::persistent("a")).await);
    let mut late = Client::connect(&server, "late").await;
    late.subscribe(filter("will")).await;
    assert!(late.receive_publish().await.retain);
    late.expect_nothing().await;
    watcher.expect_nothing().await;
}

#[tokio::test]
async fn a_will_is_published_after_a_takeover_a_protocol_error_and_a_disconnect_with_will() {
    let server = start().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("will")).await;
    let options = || ConnectOptions { will: Some(will("will", 0)), ..ConnectOptions::new("a") };
    let (mut client, _) = Client::connect_with(&server, options()).await;
    let (mut next, _) = Client::connect_with(&server, options()).await;
    assert_eq!(client.receive_disconnect().await, DisconnectReasonCode::SessionTakenOver);
    assert_eq!(watcher.receive_topics(1).await, ["will"]);
    next.send_bytes(b"\xd0\0").await;
    assert_eq!(next.receive_disconnect().await, DisconnectReasonCode::ProtocolError);
    assert_eq!(watcher.receive_topics(1).await, ["will"]);
    let (mut next, _) = Client::connect_with(&server, options()).await;
    next.send_bytes(b"\xe0\x02\x04\0").await;
    assert_eq!(next.receive_any().await, None);
    assert_eq!(watcher.receive_topics(1).await, ["will"]);
}

/// Starts a server; returns it with the reasons for which clients are disconnected.
async fn start_with_reasons() -> (Server, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let (sender, reasons) = tokio::sync::mpsc::unbounded_channel();
    let report = move |event| {
        if let Event::Disconnected { reason, .. } = event {
            // The receiver has been dropped at the end of a test.
            let _ = sender.send(reason);
        }
    };
    let hooks = Hooks { events: Arc::new(report), ..Hooks::new(Arc::new(())) };
    (Server::start(Settings::default(), hooks).await.unwrap(), reasons)
}

#[tokio::test]
async fn a_disconnect_behind_many_packets_discards_the_will_however_busy_the_thread_is() {
    let (server, mut reasons) = start_with_reasons().await;
    let options = ConnectOptions { will: Some(will("will", 0)), ..ConnectOptions::new("a") };
    let (mut client, _) = Client::connect_with(&server, options).await;
    client.subscribe(filter("busy")).await;
    // It fills the output, so that the packets behind it wait.
    let payload = vec![0; 1024 * 1024].into();
    server.broker().publish(None, Message { payload, ..message("busy", Qos::AtMostOnce) });
    client.send_bytes(&[&b"\xc0\0".repeat(1_000)[..], b"\xe0\0"].concat()).await;
    let busy = tokio::spawn(async {
        loop {
            std::thread::sleep(Duration::from_millis(20));
            tokio::task::yield_now().await;
        }
    });
    drop(client);
    assert_eq!(reasons.recv().await.unwrap(), "closed by the client");
    busy.abort();
}

#[tokio::test]
async fn a_disconnect_discards_the_will_even_if_the_client_closes_before_it_has_read_everything() {
    let (server, mut reasons) = start_with_reasons().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("will")).await;
    let large = || Message { payload: vec![0; 1024 * 1024].into(), ..message("busy", Qos::AtMostOnce) };
    for (message, reads_on) in [(message("busy", Qos::AtMostOnce), false), (large(), false), (large(), true)]
    {
        let options = ConnectOptions { will: Some(will("will", 0)), ..ConnectOptions::new("a") };
        let (mut client, _) = Client::connect_with(&server, options).await;
        client.subscribe(filter("busy")).await;
        server.broker().publish(None, message);
        client.send_bytes(b"\xe0\0").await;
        if reads_on {
            client.stream.shutdown().await.unwrap();
            client.receive_to_end().await;
        } else {
            drop(client);
        }
        assert_eq!(reasons.recv().await.unwrap(), "closed by the client");
        watcher.expect_nothing().await;
    }
}
