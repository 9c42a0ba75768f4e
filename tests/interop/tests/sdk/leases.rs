//! Leases and locks of the SDK's.

use std::cmp::Ordering;
use std::time::Duration;

use azure_iot_operations_services::leased_lock::ErrorKind;
use azure_iot_operations_services::state_store::{self, Operation, ServiceError, SetOptions};
use mqkv_interop::{Guest, Mqkv, order, within};

const PATIENCE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_lease_is_held_by_one_and_released_by_its_holder() {
    let server = Mqkv::start(&[]);
    let [one, other] = ["one", "other"].map(|name| Guest::join(server.port(), name));
    let [lease, wanted] = [&one, &other].map(|guest| guest.lease("lease"));
    let token = lease.acquire(HOUR, PATIENCE, None).await.unwrap();
    assert_eq!(lease.current_lease_fencing_token(), Some(token.clone()));
    assert_eq!(other.get_with_version("lease").await.version, Some(token.clone()));
    let refused = wanted.acquire(HOUR, PATIENCE, None).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::LeaseAlreadyHeld), "{refused}");
    wanted.release(PATIENCE).await.unwrap();
    assert_eq!(wanted.get_holder(PATIENCE).await.unwrap().unwrap(), b"one", "only the holder releases");
    let again = lease.acquire(HOUR, PATIENCE, None).await.unwrap();
    assert_eq!(order(&token, &again), Ordering::Less);
    lease.release(PATIENCE).await.unwrap();
    assert_eq!(wanted.get_holder(PATIENCE).await.unwrap(), None);
    let theirs = wanted.acquire(HOUR, PATIENCE, None).await.unwrap();
    assert_eq!(order(&again, &theirs), Ordering::Less);
    for guest in [one, other] {
        guest.leave().await;
    }
}

#[tokio::test]
async fn a_lease_that_is_renewed_outlives_its_time_with_ever_newer_tokens() {
    let server = Mqkv::start(&[]);
    let [one, other] = ["one", "other"].map(|name| Guest::join(server.port(), name));
    let [lease, wanted] = [&one, &other].map(|guest| guest.lease("lease"));
    let mut observation = wanted.observe(PATIENCE).await.unwrap();
    let (time, every) = (Duration::from_secs(4), Duration::from_millis(600));
    let mut token = lease.acquire(time, PATIENCE, Some(every)).await.unwrap();
    assert_eq!(Guest::notification(&mut observation).await.version, token);
    // Longer than its time.
    for _ in 0..8 {
        let renewed = Guest::notification(&mut observation).await;
        assert_eq!(renewed.operation, Operation::Set(b"one".to_vec()));
        assert_eq!(order(&token, &renewed.version), Ordering::Less);
        assert_eq!(renewed.version.counter, 0, "a write to no other key raises the counter");
        token = renewed.version;
        one.set("another", "v").await;
    }
    lease.release(PATIENCE).await.unwrap();
    let mut told = Guest::notification(&mut observation).await;
    if told.operation != Operation::Del {
        // One more renewal was on its way.
        told = Guest::notification(&mut observation).await;
    }
    assert_eq!(told.operation, Operation::Del);
    assert_eq!(lease.current_lease_fencing_token(), None);
    for guest in [one, other] {
        guest.leave().await;
    }
}

#[tokio::test]
async fn a_lease_that_nobody_renews_goes_to_who_waits() {
    let server = Mqkv::start(&[]);
    let [one, other] = ["one", "other"].map(|name| Guest::join(server.port(), name));
    let old = one.lease("lease").acquire(Duration::from_secs(1), PATIENCE, None).await.unwrap();
    let new = within(other.lock("lease").lock(HOUR, PATIENCE, None)).await.unwrap();
    assert_eq!(order(&old, &new), Ordering::Less);
    assert_eq!(one.get("lease").await.unwrap(), b"other");
    for guest in [one, other] {
        guest.leave().await;
    }
}

#[tokio::test]
async fn a_lock_goes_from_one_to_the_other_and_its_token_fences_the_first_one_off() {
    let server = Mqkv::start(&[]);
    let [one, other] = ["one", "other"].map(|name| Guest::join(server.port(), name));
    let [lock, wanted] = [&one, &other].map(|guest| guest.lock("lock"));
    let old = lock.lock(HOUR, PATIENCE, None).await.unwrap();
    let write = |guest: &Guest, value: &'static str, token| {
        let store = std::sync::Arc::clone(&guest.store);
        async move { store.set("k".into(), value.into(), PATIENCE, Some(token), SetOptions::default()).await }
    };
    assert!(write(&one, "of one", old.clone()).await.unwrap().response);
    // It waits until it is told.
    let waiting = tokio::spawn({
        let wanted = wanted.clone();
        async move { wanted.lock(HOUR, PATIENCE, None).await }
    });
    lock.unlock(PATIENCE).await.unwrap();
    let new = within(waiting).await.unwrap().unwrap();
    assert_eq!(order(&old, &new), Ordering::Less);
    assert!(write(&other, "of other", new.clone()).await.unwrap().response);
    let refused = write(&one, "too late", old).await.unwrap_err();
    let state_store::ErrorKind::ServiceError(ServiceError::FencingTokenLowerVersion) = refused.kind() else {
        panic!("{refused:?}");
    };
    assert_eq!(other.get("k").await.unwrap(), b"of other");
    wanted.unlock(PATIENCE).await.unwrap();
    for guest in [one, other] {
        guest.leave().await;
    }
}

#[tokio::test]
async fn five_that_wait_for_a_lock_hold_it_one_after_the_other() {
    let server = Mqkv::start(&[]);
    let counter = Guest::join(server.port(), "counter");
    counter.set("count", "0").await;
    let tasks: Vec<_> = (0..5)
        .map(|number| {
            let guest = Guest::join(server.port(), &format!("guest-{number}"));
            tokio::spawn(async move {
                let lock = guest.lock("lock");
                let token = lock.lock(HOUR, PATIENCE, Some(Duration::from_secs(1))).await.unwrap();
                let count = String::from_utf8(guest.get("count").await.unwrap()).unwrap();
                let next = (count.parse::<u32>().unwrap() + 1).to_string();
                let set = guest.set_with("count", next, Some(token), SetOptions::default()).await;
                assert!(set.unwrap().response);
                lock.unlock(PATIENCE).await.unwrap();
                guest.leave().await;
            })
        })
        .collect();
    for task in tasks {
        within(task).await.unwrap();
    }
    assert_eq!(counter.get("count").await.unwrap(), b"5");
    assert_eq!(counter.get("lock").await, None);
    counter.leave().await;
}
