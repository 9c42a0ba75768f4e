//! Wills (MQTT 5, 3.1.2.5).

use super::*;

#[tokio::test]
async fn a_will_is_published_when_the_connection_breaks_and_not_after_a_goodbye() {
    let server = start().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("will/#")).await;
    for (client_id, says_goodbye) in [("a", true), ("b", false)] {
        let hello = Hello { will: Some(will(&format!("will/{client_id}"), 0)), ..Hello::lasting(client_id) };
        let (client, _) = Client::connect_with(&server, hello).await;
        if says_goodbye {
            client.disconnect().await;
        }
    }
    assert_eq!(watcher.hear_topics(1).await, ["will/b"]);
    watcher.hear_nothing().await;
}

#[tokio::test]
async fn a_delayed_will_waits_for_the_client_to_come_back() {
    let server = start().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("will/#")).await;
    let hello = |delay_s| Hello { will: Some(will("will/a", delay_s)), ..Hello::lasting("a") };
    drop(Client::connect_with(&server, hello(3600)).await);
    let (back, connack) = Client::connect_with(&server, hello(1)).await;
    assert!(connack.session_present);
    watcher.hear_nothing().await;
    drop(back);
    assert_eq!(watcher.hear_topics(1).await, ["will/a"]);
}

#[tokio::test]
async fn a_will_is_published_once_as_it_was_left() {
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
        drop(Client::connect_with(&server, Hello { will: Some(will), ..Hello::lasting("a") }).await);
        let heard = watcher.hear_publish().await;
        assert_eq!((heard.qos, heard.retain, &heard.payload[..]), (qos, retain, &b"gone"[..]));
        let said = heard.properties.unwrap();
        assert_eq!(said.payload_format_indicator, properties.payload_format_indicator);
        assert_eq!(said.message_expiry_interval, properties.message_expiry_interval);
        assert_eq!(
            (said.content_type, said.response_topic),
            (properties.content_type, properties.response_topic)
        );
        assert_eq!(
            (said.correlation_data, said.user_properties),
            (properties.correlation_data, properties.user_properties)
        );
    }
    // It went with the session's first connection.
    drop(Client::connect_with(&server, Hello::lasting("a")).await);
    let mut late = Client::connect(&server, "late").await;
    late.subscribe(filter("will")).await;
    assert!(late.hear_publish().await.retain);
    late.hear_nothing().await;
    watcher.hear_nothing().await;
}

#[tokio::test]
async fn a_will_comes_also_after_a_take_over_a_protocol_error_and_a_goodbye_that_asks_for_it() {
    let server = start().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("will")).await;
    let hello = || Hello { will: Some(will("will", 0)), ..Hello::new("a") };
    let (mut client, _) = Client::connect_with(&server, hello()).await;
    let (mut next, _) = Client::connect_with(&server, hello()).await;
    assert_eq!(client.hear_disconnect().await, DisconnectReasonCode::SessionTakenOver);
    assert_eq!(watcher.hear_topics(1).await, ["will"]);
    next.say_bytes(b"\xd0\0").await;
    assert_eq!(next.hear_disconnect().await, DisconnectReasonCode::ProtocolError);
    assert_eq!(watcher.hear_topics(1).await, ["will"]);
    let (mut next, _) = Client::connect_with(&server, hello()).await;
    next.say_bytes(b"\xe0\x02\x04\0").await;
    assert_eq!(next.hear_any().await, None);
    assert_eq!(watcher.hear_topics(1).await, ["will"]);
}

#[tokio::test]
async fn a_goodbye_takes_the_will_with_it_also_where_the_client_closes_before_it_has_read_all() {
    let (gone, mut reasons) = tokio::sync::mpsc::unbounded_channel();
    let tell = move |event| {
        if let Event::Disconnected { reason, .. } = event {
            // Nobody listens any more at the end.
            let _ = gone.send(reason);
        }
    };
    let hooks = Hooks { events: Arc::new(tell), ..Hooks::new(Arc::new(())) };
    let server = Server::start(Settings::default(), hooks).await.unwrap();
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("will")).await;
    let large = || Message { payload: vec![0; 1024 * 1024].into(), ..message("busy", Qos::AtMostOnce) };
    for (message, still_reads) in
        [(message("busy", Qos::AtMostOnce), false), (large(), false), (large(), true)]
    {
        let hello = Hello { will: Some(will("will", 0)), ..Hello::new("a") };
        let (mut client, _) = Client::connect_with(&server, hello).await;
        client.subscribe(filter("busy")).await;
        server.broker().publish(None, message);
        client.say_bytes(b"\xe0\0").await;
        if still_reads {
            client.stream.shutdown().await.unwrap();
            client.hear_rest().await;
        } else {
            drop(client);
        }
        assert_eq!(reasons.recv().await.unwrap(), "it disconnected");
        watcher.hear_nothing().await;
    }
}
