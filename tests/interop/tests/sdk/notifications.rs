//! What the SDK is told of changes, and how often.

use std::time::Duration;

use azure_iot_operations_services::state_store::{KeyObservation, Operation};
use mqkv_interop::{Guest, Mqkv};

fn set(value: &str) -> Operation {
    Operation::Set(value.into())
}

/// Everything up to the value that a test sets last.
async fn told_until_last(observation: &mut KeyObservation) -> Vec<Operation> {
    let mut told = Vec::new();
    loop {
        let operation = Guest::notification(observation).await.operation;
        if operation == set("last") {
            return told;
        }
        told.push(operation);
    }
}

#[tokio::test]
async fn each_change_is_told_once_and_in_order_with_its_version() {
    let server = Mqkv::start(&[]);
    let [watcher, writer] = ["watcher", "writer"].map(|name| Guest::join(server.port(), name));
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
        let told = Guest::notification(&mut observation).await;
        let operation = if number % 2 == 0 { set(&(number / 2).to_string()) } else { Operation::Del };
        assert_eq!(
            (told.key.as_slice(), told.operation, told.version),
            (b"k".as_slice(), operation, version)
        );
    }
    writer.set("k", "last").await;
    assert_eq!(told_until_last(&mut observation).await, []);
    for guest in [watcher, writer] {
        guest.leave().await;
    }
}

#[tokio::test]
async fn what_changes_nothing_is_not_told() {
    let server = Mqkv::start(&[]);
    let guest = Guest::join(server.port(), "guest");
    guest.set("k", "v").await;
    let mut observation = guest.observe("k").await;
    guest.get("k").await;
    guest.vdel("k", "another").await;
    guest.set("another", "v").await;
    assert_eq!(guest.del("missing").await.response, 0);
    guest.set("k", "last").await;
    assert_eq!(told_until_last(&mut observation).await, []);
    guest.leave().await;
}

#[tokio::test]
async fn who_changes_a_key_is_told_as_all_that_watch_it() {
    let server = Mqkv::start(&[]);
    let guests = ["a", "line-1/b", "~C.$3"].map(|name| Guest::join(server.port(), name));
    let mut observations = Vec::new();
    for guest in &guests {
        observations.push(guest.observe("k").await);
    }
    for (number, guest) in guests.iter().enumerate() {
        guest.set("k", number.to_string()).await;
    }
    guests[0].set("k", "last").await;
    for observation in &mut observations {
        assert_eq!(told_until_last(observation).await, ["0", "1", "2"].map(set));
    }
    for guest in guests {
        guest.leave().await;
    }
}

#[tokio::test]
async fn an_expiry_is_told_as_a_delete() {
    let server = Mqkv::start(&[]);
    let guest = Guest::join(server.port(), "guest");
    let mut observation = guest.observe("k").await;
    let version = guest.set_for("k", "v", Duration::from_millis(100)).await;
    for operation in [set("v"), Operation::Del] {
        let told = Guest::notification(&mut observation).await;
        assert_eq!((told.operation, &told.version), (operation, &version));
    }
    guest.set("k", "last").await;
    assert_eq!(told_until_last(&mut observation).await, []);
    guest.leave().await;
}

#[tokio::test]
async fn who_no_longer_watches_is_not_told() {
    let server = Mqkv::start(&[]);
    let guest = Guest::join(server.port(), "guest");
    assert!(!guest.unobserve("k").await, "nobody watched");
    let observation = guest.observe("k").await;
    assert!(
        guest.store.observe("k".into(), Duration::from_secs(10)).await.is_err(),
        "the SDK takes one only"
    );
    guest.set("k", "not read").await;
    assert!(guest.unobserve("k").await);
    drop(observation);
    guest.set("k", "not told").await;
    let mut observation = guest.observe("k").await;
    guest.set("k", "last").await;
    assert_eq!(told_until_last(&mut observation).await, []);
    guest.leave().await;
}

#[tokio::test]
async fn a_hundred_keys_are_watched_at_once() {
    let server = Mqkv::start(&[]);
    let [watcher, writer] = ["watcher", "writer"].map(|name| Guest::join(server.port(), name));
    let mut observations = Vec::new();
    for number in 0..100 {
        observations.push(watcher.observe(format!("k{number}")).await);
    }
    for number in (0..100).rev() {
        writer.set(format!("k{number}"), format!("v{number}")).await;
    }
    for (number, observation) in observations.iter_mut().enumerate() {
        assert_eq!(Guest::notification(observation).await.operation, set(&format!("v{number}")));
    }
    for guest in [watcher, writer] {
        guest.leave().await;
    }
}
