//! Notifications to the SDK: order, versions, duplicates.

use std::time::Duration;

use azure_iot_operations_services::state_store::{KeyObservation, Operation};
use mqkv_interop::{Mqkv, SdkClient};

fn set(value: &str) -> Operation {
    Operation::Set(value.into())
}

/// Returns the operations up to the value that a test sets last.
async fn operations_until_last(observation: &mut KeyObservation) -> Vec<Operation> {
    let mut operations = Vec::new();
    loop {
        let operation = SdkClient::notification(observation).await.operation;
        if operation == set("last") {
            return operations;
        }
        operations.push(operation);
    }
}

#[tokio::test]
async fn each_change_is_notified_once_and_in_order_with_its_version() {
    let server = Mqkv::start(&[]);
    let [watcher, writer] = ["watcher", "writer"].map(|name| SdkClient::connect(server.port(), name));
    let mut observation = watcher.observe("k").await;
    let mut versions = Vec::new();
    for number in 0..20 {
        let version = writer.set("k", format!("{number}")).await;
        versions.extend([version.clone(), version]);
        match number % 2 {
            0 => assert_eq!(writer.del("k").await.response, 1),
            _ => assert_eq!(writer.vdel("k", &number.to_string()).await.response, 1),
        }
    }
    for (number, version) in versions.into_iter().enumerate() {
        let notification = SdkClient::notification(&mut observation).await;
        let operation = if number % 2 == 0 { set(&(number / 2).to_string()) } else { Operation::Del };
        assert_eq!(
            (notification.key.as_slice(), notification.operation, notification.version),
            (b"k".as_slice(), operation, version)
        );
    }
    writer.set("k", "last").await;
    assert_eq!(operations_until_last(&mut observation).await, []);
    for client in [watcher, writer] {
        client.disconnect().await;
    }
}

#[tokio::test]
async fn a_request_that_changes_nothing_is_not_notified() {
    let server = Mqkv::start(&[]);
    let client = SdkClient::connect(server.port(), "guest");
    client.set("k", "v").await;
    let mut observation = client.observe("k").await;
    client.get("k").await;
    client.vdel("k", "another").await;
    client.set("another", "v").await;
    assert_eq!(client.del("missing").await.response, 0);
    client.set("k", "last").await;
    assert_eq!(operations_until_last(&mut observation).await, []);
    client.disconnect().await;
}

#[tokio::test]
async fn the_client_that_changes_a_watched_key_is_notified_too() {
    let server = Mqkv::start(&[]);
    let clients = ["a", "line-1/b", "~C.$3"].map(|name| SdkClient::connect(server.port(), name));
    let mut observations = Vec::new();
    for client in &clients {
        observations.push(client.observe("k").await);
    }
    for (number, client) in clients.iter().enumerate() {
        client.set("k", number.to_string()).await;
    }
    clients[0].set("k", "last").await;
    for observation in &mut observations {
        assert_eq!(operations_until_last(observation).await, ["0", "1", "2"].map(set));
    }
    for client in clients {
        client.disconnect().await;
    }
}

#[tokio::test]
async fn an_expiry_is_notified_as_a_delete() {
    let server = Mqkv::start(&[]);
    let client = SdkClient::connect(server.port(), "guest");
    let mut observation = client.observe("k").await;
    let version = client.set_for("k", "v", Duration::from_millis(100)).await;
    for operation in [set("v"), Operation::Del] {
        let notification = SdkClient::notification(&mut observation).await;
        assert_eq!((notification.operation, &notification.version), (operation, &version));
    }
    client.set("k", "last").await;
    assert_eq!(operations_until_last(&mut observation).await, []);
    client.disconnect().await;
}

#[tokio::test]
async fn a_client_that_has_stopped_watching_is_not_notified() {
    let server = Mqkv::start(&[]);
    let client = SdkClient::connect(server.port(), "guest");
    assert!(!client.unobserve("k").await, "the key was not watched");
    let observation = client.observe("k").await;
    assert!(
        client.store.observe("k".into(), Duration::from_secs(10)).await.is_err(),
        "the SDK allows one observation per key"
    );
    client.set("k", "not read").await;
    assert!(client.unobserve("k").await);
    drop(observation);
    client.set("k", "not notified").await;
    let mut observation = client.observe("k").await;
    client.set("k", "last").await;
    assert_eq!(operations_until_last(&mut observation).await, []);
    client.disconnect().await;
}

#[tokio::test]
async fn a_hundred_keys_are_watched_at_once() {
    let server = Mqkv::start(&[]);
    let [watcher, writer] = ["watcher", "writer"].map(|name| SdkClient::connect(server.port(), name));
    let mut observations = Vec::new();
    for number in 0..100 {
        observations.push(watcher.observe(format!("k{number}")).await);
    }
    for number in (0..100).rev() {
        writer.set(format!("k{number}"), format!("v{number}")).await;
    }
    for (number, observation) in observations.iter_mut().enumerate() {
        assert_eq!(SdkClient::notification(observation).await.operation, set(&format!("v{number}")));
    }
    for client in [watcher, writer] {
        client.disconnect().await;
    }
}
