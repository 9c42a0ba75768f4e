//! Sessions: what is kept, for how long, and who takes over (MQTT 5, 4.1).

use super::*;

#[tokio::test]
async fn a_session_goes_on_with_what_was_queued_and_what_was_not_acknowledged() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    client.subscribe(filter("#")).await;
    let mut publisher = Client::connect(&server, "publisher").await;
    publisher.publish(qos_1("first", 1)).await;
    publisher.hear_puback().await;
    let unacknowledged = client.hear_publish().await.pkid;
    drop(client);
    publisher.publish(qos_0("lost")).await;
    publisher.publish(qos_1("second", 2)).await;
    assert_eq!(publisher.hear_puback().await, PubAckReason::Success);
    let (mut client, connack) = Client::connect_with(&server, Hello::lasting("a")).await;
    assert!(connack.session_present);
    let again = client.hear_publish().await;
    assert_eq!((again.pkid, again.dup, &again.topic[..]), (unacknowledged, true, &b"first"[..]));
    let mut topics = Vec::new();
    // Whether `lost` came before the broker saw the connection end is up to the scheduler.
    while topics.last().is_none_or(|topic| topic != "second") {
        topics.extend(client.hear_topics(1).await);
    }
    client.hear_nothing().await;
}

#[tokio::test]
async fn a_clean_start_leaves_nothing_of_the_session() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    client.subscribe(filter("#")).await;
    client.disconnect().await;
    let clean = Hello { clean_start: true, ..Hello::lasting("a") };
    let (mut client, connack) = Client::connect_with(&server, clean).await;
    assert!(!connack.session_present);
    client.publish(qos_1("a", 1)).await;
    assert_eq!(client.hear_puback().await, PubAckReason::NoMatchingSubscribers);
}

#[tokio::test]
async fn a_session_ends_with_its_connection_or_its_expiry() {
    let server = start().await;
    let mut hello = Hello::new("a");
    hello.properties.session_expiry_interval = Some(1);
    let (client, _) = Client::connect_with(&server, hello).await;
    client.disconnect().await;
    let (client, connack) = Client::connect_with(&server, Hello::lasting("a")).await;
    assert!(connack.session_present);
    let mut client = client;
    let properties = DisconnectProperties {
        session_expiry_interval: Some(0),
        reason_string: None,
        user_properties: Vec::new(),
        server_reference: None,
    };
    let reason = DisconnectReasonCode::NormalDisconnection;
    client.say(Packet::Disconnect(Disconnect::new_with_properties(reason, properties))).await;
    assert_eq!(client.hear_any().await, None);
    let (_, connack) = Client::connect_with(&server, Hello::lasting("a")).await;
    assert!(!connack.session_present);
}

#[tokio::test]
async fn the_same_client_id_takes_the_session_over() {
    let (server, echo) = start_echo().await;
    let (mut old, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    old.subscribe(filter("a")).await;
    let (mut new, connack) = Client::connect_with(&server, Hello::lasting("a")).await;
    assert!(connack.session_present);
    assert_eq!(old.hear_disconnect().await, DisconnectReasonCode::SessionTakenOver);
    assert_eq!(echo.gone.lock().unwrap().len(), 1);
    new.publish(qos_1("a", 1)).await;
    assert_eq!(new.hear_puback().await, PubAckReason::Success);
    assert_eq!(new.hear_topics(1).await, ["a"]);
}

#[tokio::test]
async fn a_late_disconnect_does_not_drop_its_successor() {
    let (server, echo) = start_echo().await;
    let (mut old, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    old.publish(qos_1("x", 1)).await;
    old.hear_puback().await;
    let (mut new, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    old.say(Packet::Disconnect(Disconnect::new(DisconnectReasonCode::NormalDisconnection))).await;
    while old.hear_any().await.is_some() {}
    new.publish(qos_1("answer/a", 1)).await;
    assert_eq!(new.hear_puback().await, PubAckReason::Success);
    assert_eq!(new.hear_topics(1).await, ["answer/a"]);
    let seen = echo.seen.lock().unwrap().clone();
    assert!(seen[0].connection < seen[1].connection);
    assert_eq!(*echo.gone.lock().unwrap(), [seen[0].connection]);
}

#[tokio::test]
async fn two_hundred_reconnects_with_one_client_id_all_succeed_and_leave_one_session() {
    let (server, echo) = start_echo().await;
    let mut last = Client::connect_with(&server, Hello::lasting("a")).await.0;
    last.subscribe(filter("a")).await;
    for _ in 0..200 {
        let (next, connack) = Client::connect_with(&server, Hello::lasting("a")).await;
        assert_eq!((connack.code, connack.session_present), (ConnectReturnCode::Success, true));
        assert_eq!(last.hear_disconnect().await, DisconnectReasonCode::SessionTakenOver);
        last = next;
    }
    assert_eq!(server.broker().publish(None, message("a", Qos::AtLeastOnce)), 1);
    assert_eq!(last.hear_topics(1).await, ["a"]);
    assert_eq!(echo.gone.lock().unwrap().len(), 200);
}

#[tokio::test]
async fn a_session_lives_as_long_as_its_connection_whatever_its_expiry() {
    let server = start().await;
    let mut client = Client::connect(&server, "a").await;
    client.subscribe(filter("a")).await;
    let later = crate::clock::monotonic() + Duration::from_secs(100_000);
    server.broker().handle_deadlines(later);
    client.publish(qos_0("a")).await;
    assert_eq!(client.hear_topics(1).await, ["a"]);
}

#[tokio::test]
async fn an_expiry_that_a_disconnect_brings_counts_and_must_not_come_out_of_nothing() {
    let server = start().await;
    let disconnect = |seconds| {
        let properties = DisconnectProperties {
            session_expiry_interval: Some(seconds),
            reason_string: None,
            user_properties: Vec::new(),
            server_reference: None,
        };
        let reason = DisconnectReasonCode::NormalDisconnection;
        Packet::Disconnect(Disconnect::new_with_properties(reason, properties))
    };
    let mut client = Client::connect(&server, "a").await;
    client.say(disconnect(10)).await;
    assert_eq!(client.hear_disconnect().await, DisconnectReasonCode::ProtocolError);
    let mut hello = Hello::new("b");
    hello.properties.session_expiry_interval = Some(1);
    let (mut client, _) = Client::connect_with(&server, hello).await;
    client.say(disconnect(1000)).await;
    assert_eq!(client.hear_any().await, None);
    server.broker().handle_deadlines(crate::clock::monotonic() + Duration::from_secs(500));
    assert!(Client::connect_with(&server, Hello::new("b")).await.1.session_present);
}
