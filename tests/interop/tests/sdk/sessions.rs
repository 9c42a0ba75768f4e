//! The SDK's session after its network connection is closed.

use std::time::Duration;

use azure_iot_operations_services::state_store::{Operation, SetCondition, SetOptions};
use mqkv_interop::{Mqkv, Relay, SdkClient, within};

#[tokio::test]
async fn a_reconnect_resumes_the_session_but_not_the_observations() {
    let server = Mqkv::start(&[]);
    let relay = Relay::start(server.port()).await;
    let client = SdkClient::connect(relay.port(), "guest");
    let other = SdkClient::connect(server.port(), "other");
    let mut observation = client.observe("k").await;
    other.set("k", "before").await;
    assert_eq!(SdkClient::notification(&mut observation).await.operation, Operation::Set(b"before".to_vec()));
    relay.cut();
    let end = within(observation.recv_notification()).await;
    assert!(end.is_none(), "the SDK ends its observations");
    other.set("k", "between").await;
    relay.restore();
    assert_eq!(client.get("k").await.unwrap(), b"between");
    assert_eq!(relay.sessions_present(), [false, true]);
    let mut observation = client.observe("k").await;
    other.set("k", "after").await;
    assert_eq!(
        SdkClient::notification(&mut observation).await.operation,
        Operation::Set(b"after".to_vec()),
        "missed changes are not notified later"
    );
    for client in [client, other] {
        client.disconnect().await;
    }
}

#[tokio::test]
async fn a_session_survives_many_reconnects() {
    let server = Mqkv::start(&[]);
    let relay = Relay::start(server.port()).await;
    let client = SdkClient::connect(relay.port(), "guest");
    for number in 0..10 {
        client.set("k", number.to_string()).await;
        relay.cut();
        relay.restore();
        assert_eq!(client.get("k").await.unwrap(), number.to_string().as_bytes());
    }
    let sessions_present = relay.sessions_present();
    assert!(!sessions_present[0] && sessions_present[1..].iter().all(|is_present| *is_present));
    client.disconnect().await;
}

#[tokio::test]
async fn a_write_whose_response_is_lost_is_applied_once_and_answered() {
    let server = Mqkv::start(&[]);
    let relay = Relay::start(server.port()).await;
    let client = SdkClient::connect(relay.port(), "guest");
    let other = SdkClient::connect(server.port(), "other");
    client.get("k").await;
    let mut observation = other.observe("k").await;
    relay.drop_responses();
    let (answer, ()) = tokio::join!(client.set_if("k", "v", SetCondition::OnlyIfDoesNotExist), async {
        within(relay.response_dropped()).await;
        relay.cut();
        relay.restore();
    });
    assert!(answer.response, "the second delivery is not a second request");
    assert_eq!(relay.sessions_present().last(), Some(&true));
    other.set("k", "last").await;
    for value in ["v", "last"] {
        let notification = SdkClient::notification(&mut observation).await;
        assert_eq!(notification.operation, Operation::Set(value.into()));
    }
    for client in [client, other] {
        client.disconnect().await;
    }
}

#[tokio::test]
async fn a_late_redelivery_of_a_write_does_not_undo_a_newer_one() {
    let server = Mqkv::start(&[]);
    let relay = Relay::start(server.port()).await;
    let client = SdkClient::connect(relay.port(), "guest");
    let other = SdkClient::connect(server.port(), "other");
    client.get("k").await;
    relay.drop_responses();
    // The SDK gives up when the request expires, but still delivers it again after the reconnect.
    let expiry = Duration::from_secs(1);
    let answer = client.store.set("k".into(), "old".into(), expiry, None, SetOptions::default()).await;
    assert!(answer.is_err(), "{answer:?}");
    within(relay.response_dropped()).await;
    relay.cut();
    other.set("k", "new").await;
    relay.restore();
    assert_eq!(client.get("k").await.unwrap(), b"new");
    for client in [client, other] {
        client.disconnect().await;
    }
}

#[tokio::test]
async fn operations_wait_for_the_reconnect() {
    let server = Mqkv::start(&[]);
    let relay = Relay::start(server.port()).await;
    let client = SdkClient::connect(relay.port(), "guest");
    client.set("k", "v").await;
    relay.cut();
    let (version, ()) = tokio::join!(client.set("k", "w"), async {
        tokio::task::yield_now().await;
        relay.restore();
    });
    let got = client.get_with_version("k").await;
    assert_eq!((got.response.as_deref(), got.version), (Some(b"w".as_slice()), Some(version)));
    client.disconnect().await;
}
