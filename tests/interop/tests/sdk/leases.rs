//! The SDK's leases and locks.

use std::cmp::Ordering;
use std::time::Duration;

use azure_iot_operations_services::leased_lock::ErrorKind;
use azure_iot_operations_services::state_store::{self, Operation, ServiceError, SetOptions};
use mqkv_interop::{Mqkv, SdkClient, order, within};

const TIMEOUT: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_lease_is_held_by_one_and_released_by_its_holder() {
    let server = Mqkv::start(&[]);
    let [one, other] = ["one", "other"].map(|name| SdkClient::connect(server.port(), name));
    let [lease, wanted] = [&one, &other].map(|client| client.lease("lease"));
    let token = lease.acquire(HOUR, TIMEOUT, None).await.unwrap();
    assert_eq!(lease.current_lease_fencing_token(), Some(token.clone()));
    assert_eq!(other.get_with_version("lease").await.version, Some(token.clone()));
    let refused = wanted.acquire(HOUR, TIMEOUT, None).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::LeaseAlreadyHeld), "{refused}");
    wanted.release(TIMEOUT).await.unwrap();
    assert_eq!(wanted.get_holder(TIMEOUT).await.unwrap().unwrap(), b"one", "only the holder releases");
    let again = lease.acquire(HOUR, TIMEOUT, None).await.unwrap();
    assert_eq!(order(&token, &again), Ordering::Less);
    lease.release(TIMEOUT).await.unwrap();
    assert_eq!(wanted.get_holder(TIMEOUT).await.unwrap(), None);
    let third = wanted.acquire(HOUR, TIMEOUT, None).await.unwrap();
    assert_eq!(order(&again, &third), Ordering::Less);
    for client in [one, other] {
        client.disconnect().await;
    }
}

#[tokio::test]
async fn a_renewed_lease_outlives_its_duration_with_ever_newer_tokens() {
    let server = Mqkv::start(&[]);
    let [one, other] = ["one", "other"].map(|name| SdkClient::connect(server.port(), name));
    let [lease, wanted] = [&one, &other].map(|client| client.lease("lease"));
    let mut observation = wanted.observe(TIMEOUT).await.unwrap();
    let (time, every) = (Duration::from_secs(4), Duration::from_millis(600));
    let mut token = lease.acquire(time, TIMEOUT, Some(every)).await.unwrap();
    assert_eq!(SdkClient::notification(&mut observation).await.version, token);
    // Longer than its duration.
    for _ in 0..8 {
        let renewed = SdkClient::notification(&mut observation).await;
        assert_eq!(renewed.operation, Operation::Set(b"one".to_vec()));
        assert_eq!(order(&token, &renewed.version), Ordering::Less);
        assert_eq!(renewed.version.counter, 0, "a write to another key does not raise the counter");
        token = renewed.version;
        one.set("another", "v").await;
    }
    lease.release(TIMEOUT).await.unwrap();
    let mut notification = SdkClient::notification(&mut observation).await;
    if notification.operation != Operation::Del {
        // One more renewal was in flight.
        notification = SdkClient::notification(&mut observation).await;
    }
    assert_eq!(notification.operation, Operation::Del);
    assert_eq!(lease.current_lease_fencing_token(), None);
    for client in [one, other] {
        client.disconnect().await;
    }
}

#[tokio::test]
async fn an_expired_lease_goes_to_the_client_that_waits_for_it() {
    let server = Mqkv::start(&[]);
    let [one, other] = ["one", "other"].map(|name| SdkClient::connect(server.port(), name));
    let old = one.lease("lease").acquire(Duration::from_secs(1), TIMEOUT, None).await.unwrap();
    let new = within(other.lock("lease").lock(HOUR, TIMEOUT, None)).await.unwrap();
    assert_eq!(order(&old, &new), Ordering::Less);
    assert_eq!(one.get("lease").await.unwrap(), b"other");
    for client in [one, other] {
        client.disconnect().await;
    }
}

#[tokio::test]
async fn a_lock_goes_to_the_next_client_and_its_token_fences_the_previous_one_off() {
    let server = Mqkv::start(&[]);
    let [one, other] = ["one", "other"].map(|name| SdkClient::connect(server.port(), name));
    let [lock, wanted] = [&one, &other].map(|client| client.lock("lock"));
    let old = lock.lock(HOUR, TIMEOUT, None).await.unwrap();
    let write = |client: &SdkClient, value: &'static str, token| {
        let store = std::sync::Arc::clone(&client.store);
        async move { store.set("k".into(), value.into(), TIMEOUT, Some(token), SetOptions::default()).await }
    };
    assert!(write(&one, "of one", old.clone()).await.unwrap().response);
    // It waits for the notification of the release.
    let waiting = tokio::spawn({
        let wanted = wanted.clone();
        async move { wanted.lock(HOUR, TIMEOUT, None).await }
    });
    lock.unlock(TIMEOUT).await.unwrap();
    let new = within(waiting).await.unwrap().unwrap();
    assert_eq!(order(&old, &new), Ordering::Less);
    assert!(write(&other, "of other", new.clone()).await.unwrap().response);
    let refused = write(&one, "too late", old).await.unwrap_err();
    let state_store::ErrorKind::ServiceError(ServiceError::FencingTokenLowerVersion) = refused.kind() else {
        panic!("{refused:?}");
    };
    assert_eq!(other.get("k").await.unwrap(), b"of other");
    wanted.unlock(TIMEOUT).await.unwrap();
    for client in [one, other] {
        client.disconnect().await;
    }
}

#[tokio::test]
async fn five_clients_that_wait_for_a_lock_hold_it_one_after_the_other() {
    let server = Mqkv::start(&[]);
    let counter = SdkClient::connect(server.port(), "counter");
    counter.set("count", "0").await;
    let tasks: Vec<_> = (0..5)
        .map(|number| {
            let client = SdkClient::connect(server.port(), &format!("client-{number}"));
            tokio::spawn(async move {
                let lock = client.lock("lock");
                let token = lock.lock(HOUR, TIMEOUT, Some(Duration::from_secs(1))).await.unwrap();
                let count = String::from_utf8(client.get("count").await.unwrap()).unwrap();
                let next = (count.parse::<u32>().unwrap() + 1).to_string();
                let set = client.set_with("count", next, Some(token), SetOptions::default()).await;
                assert!(set.unwrap().response);
                lock.unlock(TIMEOUT).await.unwrap();
                client.disconnect().await;
            })
        })
        .collect();
    for task in tasks {
        within(task).await.unwrap();
    }
    assert_eq!(counter.get("count").await.unwrap(), b"5");
    assert_eq!(counter.get("lock").await, None);
    counter.disconnect().await;
}
