//! PINGREQ, keep-alive, DISCONNECT, AUTH, and the end of connections (MQTT 5, 3.12 to 3.15).

use super::*;

#[tokio::test]
async fn a_silent_client_is_cut_off_after_one_and_a_half_keep_alives() {
    let server = start().await;
    let before = crate::clock::monotonic();
    let (mut client, _) = Client::connect_with(&server, Hello { keep_alive: 1, ..Hello::new("a") }).await;
    assert_eq!(client.hear_disconnect().await, DisconnectReasonCode::KeepAliveTimeout);
    assert!(crate::clock::monotonic().duration_since(before) >= Duration::from_millis(1_490));
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    let settings = Settings { connect_timeout: Duration::from_millis(20), ..Settings::default() };
    let server = start_with(settings).await;
    assert_eq!(Client::silent(&server).hear_any().await, None);
}

#[tokio::test]
async fn a_disconnect_may_leave_its_property_length_out() {
    let server = start().await;
    let mut watcher = Client::connect(&server, "watcher").await;
    watcher.subscribe(filter("will")).await;
    let (mut client, _) =
        Client::connect_with(&server, Hello { will: Some(will("will", 0)), ..Hello::new("a") }).await;
    client.say_bytes(&[0xE0, 0x01, 0x04]).await;
    assert_eq!(client.hear_any().await, None);
    assert_eq!(watcher.hear_topics(1).await, ["will"]);
}

#[tokio::test]
async fn a_shutdown_tells_everyone_and_waits_for_nobody() {
    let echo = Arc::new(Echo::default());
    // Nothing else ends them: neither is cut off for its silence.
    let settings = Settings { connect_timeout: Duration::from_secs(3600), ..Settings::default() };
    let server = Server::start(settings, Hooks::new(Arc::<Echo>::clone(&echo))).await.unwrap();
    let mut connected = Client::connect(&server, "a").await;
    let mut silent = Client::silent(&server);
    server.shutdown().await;
    assert_eq!(echo.gone.lock().unwrap().len(), 1);
    assert_eq!(connected.hear_disconnect().await, DisconnectReasonCode::ServerShuttingDown);
    assert_eq!(connected.hear_any().await, None);
    assert_eq!(silent.hear_any().await, None);
}

#[tokio::test]
async fn a_ping_is_answered_and_keeps_a_client_alive() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, Hello { keep_alive: 1, ..Hello::new("a") }).await;
    let end = crate::clock::monotonic() + Duration::from_secs(2);
    while crate::clock::monotonic() < end {
        client.say_bytes(b"\xc0\0").await;
        assert_eq!(client.hear_bytes(2).await, b"\xd0\0");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn the_silence_is_counted_from_what_was_heard_last() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, Hello { keep_alive: 1, ..Hello::new("a") }).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    let before = crate::clock::monotonic();
    client.say_bytes(b"\xc0\0").await;
    assert_eq!(client.hear_bytes(2).await, b"\xd0\0");
    assert_eq!(client.hear_disconnect().await, DisconnectReasonCode::KeepAliveTimeout);
    assert!(crate::clock::monotonic().duration_since(before) >= Duration::from_millis(1_490));
}

#[tokio::test]
async fn a_disconnect_of_the_server_has_a_reason_and_words_and_no_expiry_and_is_the_last_packet() {
    let server = start().await;
    let (mut client, _) = Client::connect_with(&server, Hello::lasting("a")).await;
    client.say_bytes(b"\xd0\0\xc0\0\xc0\0").await;
    let Packet::Disconnect(disconnect) = client.hear().await else { panic!("no DISCONNECT") };
    assert_eq!(disconnect.reason_code, DisconnectReasonCode::ProtocolError);
    let properties = disconnect.properties.unwrap();
    assert_eq!((properties.session_expiry_interval, properties.user_properties.len()), (None, 0));
    assert_eq!(properties.reason_string.as_deref(), Some("an unexpected PINGRESP"));
    assert_eq!(client.hear_any().await, None);
}

#[tokio::test]
async fn nothing_behind_a_goodbye_is_handled() {
    let (server, echo) = start_echo().await;
    let mut client = Client::connect(&server, "a").await;
    client.say_bytes(b"\xe0\0\x30\x05\0\x01a\0x").await;
    assert_eq!(client.hear_any().await, None);
    assert!(echo.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_thousand_connections_that_say_nothing_are_closed_and_hold_nobody_up() {
    let settings = Settings { connect_timeout: Duration::from_millis(200), ..Settings::default() };
    let server = start_with(settings).await;
    let mut client = Client::connect(&server, "a").await;
    let silent: Vec<_> = (0..1000).map(|_| Client::silent(&server)).collect();
    client.hear_nothing().await;
    for one in silent {
        assert_eq!(one.hear_rest().await, b"");
    }
    client.hear_nothing().await;
}
