//! The SDK behind Mosquitto while the owner of `mqkv store --etcd` is killed every few seconds.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use azure_iot_operations_protocol::common::aio_protocol_error::{AIOProtocolError, AIOProtocolErrorKind};
use azure_iot_operations_services::leased_lock;
use azure_iot_operations_services::state_store::{self, Operation, SetOptions};
use mqkv_interop::{Cluster, SdkClient, order, within};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// Longer than a takeover.
const TIMEOUT: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3_600);
const KILLS: usize = 5;

/// Panics unless the error is a timeout: the outcome of a request without an answer is unknown.
#[track_caller]
fn must_be_timeout(error: &AIOProtocolError) {
    assert_eq!(error.kind, AIOProtocolErrorKind::Timeout, "{error}");
}

/// Returns the result; `None` if there was no answer.
#[track_caller]
fn answered<T>(result: Result<T, state_store::Error>) -> Option<T> {
    match result.as_ref().map_err(state_store::Error::kind) {
        Err(state_store::ErrorKind::AIOProtocolError(error)) => must_be_timeout(error),
        Err(error) => panic!("{error}"),
        Ok(_) => {}
    }
    result.ok()
}

/// As [`answered`], for a lock.
#[track_caller]
fn lock_answered<T>(result: Result<T, leased_lock::Error>) -> Option<T> {
    match result.as_ref().map_err(leased_lock::Error::kind) {
        Err(leased_lock::ErrorKind::AIOProtocolError(error)) => must_be_timeout(error),
        Err(error) => panic!("{error}"),
        Ok(_) => {}
    }
    result.ok()
}

/// Kills owners until it is over.
async fn kill_owners(mut cluster: Cluster, is_over: Arc<AtomicBool>) -> Cluster {
    for _ in 0..KILLS {
        sleep(Duration::from_secs(2)).await;
        cluster = spawn_blocking(move || {
            cluster.replace_owner();
            cluster
        })
        .await
        .unwrap();
    }
    is_over.store(true, SeqCst);
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn while_owners_are_killed_nothing_acknowledged_is_lost() {
    let cluster = spawn_blocking(Cluster::start).await.unwrap();
    let (port, is_over) = (cluster.port(), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (0..4)
        .map(|number| {
            let (client, is_over) =
                (SdkClient::connect(port, &format!("writer-{number}")), Arc::clone(&is_over));
            tokio::spawn(async move {
                let (mut acknowledged, mut last) = (Vec::new(), None);
                for step in 0.. {
                    if is_over.load(SeqCst) {
                        break;
                    }
                    let (key, value) = (format!("w{number}/{step}"), format!("value {number}/{step}"));
                    let set = client.store.set(
                        key.clone().into(),
                        value.clone().into(),
                        TIMEOUT,
                        None,
                        SetOptions::default(),
                    );
                    let Some(set) = answered(set.await) else { continue };
                    assert!(set.response);
                    let version = set.version.unwrap();
                    assert!(
                        last.is_none_or(|last| order(&last, &version) == Ordering::Less),
                        "versions rise"
                    );
                    if let Some(got) = answered(client.store.get(key.clone().into(), TIMEOUT).await) {
                        assert_eq!(got.response, Some(value.clone().into()));
                        assert_eq!(got.version.as_ref(), Some(&version));
                    }
                    last = Some(version);
                    acknowledged.push((key, value));
                }
                client.disconnect().await;
                acknowledged
            })
        })
        .collect();
    let cluster = kill_owners(cluster, is_over).await;
    let reader = SdkClient::connect(port, "reader");
    for writer in writers {
        let acknowledged = within(writer).await.unwrap();
        assert!(acknowledged.len() > KILLS, "{} sets", acknowledged.len());
        for (key, value) in acknowledged {
            assert_eq!(reader.get(key.clone()).await, Some(value.into()), "{key}");
        }
    }
    reader.disconnect().await;
    drop(cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_owners_are_killed_a_lock_excludes_and_an_observation_goes_on() {
    let cluster = spawn_blocking(Cluster::start).await.unwrap();
    let (port, is_over) = (cluster.port(), Arc::new(AtomicBool::new(false)));
    let observer = SdkClient::connect(port, "observer");
    observer.set("count", "0").await;
    let mut observation = observer.observe("count").await;
    let workers: Vec<_> = (0..3)
        .map(|number| {
            let (client, is_over) =
                (SdkClient::connect(port, &format!("worker-{number}")), Arc::clone(&is_over));
            tokio::spawn(async move {
                let (lock, mut increments, mut unknown) = (client.lease("lock"), 0_u32, 0_u32);
                while !is_over.load(SeqCst) {
                    let token = match lock.acquire(HOUR, TIMEOUT, None).await {
                        Err(error) if matches!(error.kind(), leased_lock::ErrorKind::LeaseAlreadyHeld) => {
                            sleep(Duration::from_millis(20)).await;
                            continue;
                        }
                        acquired => lock_answered(acquired),
                    };
                    let Some(token) = token else { continue };
                    // The lock is held until its release is known.
                    if let Some(got) = answered(client.store.get("count".into(), TIMEOUT).await) {
                        let count: u32 = String::from_utf8(got.response.unwrap()).unwrap().parse().unwrap();
                        let next = (count + 1).to_string();
                        let set = client.store.set(
                            "count".into(),
                            next.into(),
                            TIMEOUT,
                            Some(token),
                            SetOptions::default(),
                        );
                        match answered(set.await) {
                            Some(set) => increments += u32::from(set.response),
                            None => unknown += 1,
                        }
                    }
                    while lock_answered(lock.release(TIMEOUT).await).is_none() {}
                }
                client.disconnect().await;
                (increments, unknown)
            })
        })
        .collect();
    let cluster = kill_owners(cluster, is_over).await;
    let (mut increments, mut unknown) = (0, 0);
    for worker in workers {
        let (of_one, unknown_of_one) = within(worker).await.unwrap();
        (increments, unknown) = (increments + of_one, unknown + unknown_of_one);
    }
    let count = String::from_utf8(observer.get("count").await.unwrap()).unwrap();
    let possible = increments..=increments + unknown;
    assert!(
        increments > 0 && possible.contains(&count.parse().unwrap()),
        "{count} of {possible:?} increments"
    );
    let token = observer.lease("lock").acquire(HOUR, TIMEOUT, None).await.unwrap();
    let last = observer.set_with("count", "last", Some(token), SetOptions::default()).await;
    let last = last.unwrap().version.unwrap();
    let (mut seen, mut version) = (HashSet::new(), None);
    loop {
        let notification = SdkClient::notification(&mut observation).await;
        let Operation::Set(value) = notification.operation else { panic!("{notification:?}") };
        assert!(seen.insert(value.clone()), "a change that is notified twice");
        let newer = notification.version;
        assert!(version.is_none_or(|version| order(&version, &newer) == Ordering::Less), "versions rise");
        if value == b"last" {
            assert_eq!(newer, last);
            break;
        }
        version = Some(newer);
    }
    observer.disconnect().await;
    drop(cluster);
}
