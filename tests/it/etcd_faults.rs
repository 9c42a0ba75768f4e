//! Transactions while members of a real etcd are killed and paused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mqkv::ledger::etcd::operation::{EtcdError, TxnOutcome};
use mqkv::server::etcd::{Etcd, EtcdSettings};

use super::common::Place;
use super::common::etcd::{EtcdCluster, connect, until_known};
use super::etcd_requests::{all, chained, put, revision_of_applied, watched};

const ROUNDS: usize = 20;

/// Increments a counter by compare-and-swap until it must stop, and returns its last value.
///
/// After an uncertain answer the same transaction is asked for again: either it is applied now, or the head shows that it was
/// applied before. Only this task changes the counter.
async fn count_up(etcd: &Etcd, head: &str, is_over: &AtomicBool) -> u64 {
    let (mut count, mut revision) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        let next = (count + 1).to_string();
        let txn = chained(head, revision, vec![put(head, &next)]);
        let (answer, unknown) = until_known(etcd, &txn).await;
        let answer = answer.unwrap();
        revision = match answer.outcome {
            TxnOutcome::Applied => answer.revision,
            TxnOutcome::NotApplied(mut pairs) => {
                let pair = pairs.remove(0).unwrap();
                assert!(unknown > 0 && pair.value == next, "{head}: {:?} after {count}", pair.value);
                pair.mod_revision
            }
        };
        count += 1;
    }
    count
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn every_transaction_has_one_fate_while_members_are_killed_and_paused() {
    let place = Place::new();
    let mut cluster = EtcdCluster::start(&place, 3);
    let etcd = cluster.client().await;
    let is_over = Arc::new(AtomicBool::new(false));
    let counters = ["c/a", "c/b", "c/c"].map(|head| {
        let (etcd, is_over) = (etcd.clone(), Arc::clone(&is_over));
        tokio::spawn(async move { (head, count_up(&etcd, head, &is_over).await) })
    });
    for round in 0..ROUNDS {
        let leader = cluster.leader(&etcd).await;
        // Three of four times the leader is hit.
        let hit = if round % 4 == 3 { (leader + 1) % 3 } else { leader };
        if round % 2 == 0 {
            cluster.kill(hit);
            tokio::time::sleep(Duration::from_millis(700)).await;
            cluster.restart(hit);
        } else {
            cluster.pause(hit);
            tokio::time::sleep(Duration::from_millis(1500)).await;
            cluster.resume(hit);
        }
        // All three must follow a leader again: with two lost members etcd has no quorum.
        let is_complete = async || {
            etcd.status()
                .await
                .iter()
                .all(|(_, status)| status.as_ref().is_ok_and(|status| status.has_leader))
        };
        while !is_complete().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let mut counts = Vec::new();
    for counter in counters {
        counts.push(counter.await.unwrap());
    }
    let total: u64 = counts.iter().map(|(_, count)| count).sum();
    let state = etcd.read(&all("c/", 0, None)).await.unwrap();
    // The history has each increment once.
    let (mut events, mut next) = (Vec::new(), 1);
    while next <= state.revision {
        let mut watch = etcd.watch(&watched("c/", next));
        while let Ok(batch) = watch.next().await {
            next = batch.revision + 1;
            events.extend(batch.events);
            if events.len() as u64 >= total {
                break;
            }
        }
        if events.len() as u64 >= total {
            break;
        }
    }
    for (head, count) in counts {
        assert!(count >= ROUNDS as u64, "{head} has counted to {count} only");
        let of_head = events.iter().filter(|event| event.key == head);
        let values: Vec<_> =
            of_head.map(|event| String::from_utf8_lossy(event.value.as_ref().unwrap())).collect();
        assert_eq!(values, (1..=count).map(|value| value.to_string()).collect::<Vec<_>>(), "{head}");
        let stored = state.pairs.iter().find(|pair| pair.key == head).unwrap();
        assert_eq!(stored.value, count.to_string());
    }
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn an_endpoint_that_hangs_is_left_after_one_request() {
    let place = Place::new();
    let cluster = EtcdCluster::start(&place, 3);
    let etcd = cluster.client().await;
    let leader = cluster.leader(&etcd).await;
    let paused = (leader + 1) % 3;
    let mut endpoints = cluster.urls();
    endpoints.rotate_left(paused);
    let etcd = connect(&EtcdSettings { endpoints, ..EtcdSettings::default() }).await;
    revision_of_applied(etcd.txn(&chained("h", 0, vec![put("h", "0")])).await);
    cluster.pause(paused);
    // Requests that are in flight together leave it together, and skip no endpoint.
    let requests = (0..8).map(|_| {
        let etcd = etcd.clone();
        tokio::spawn(async move { etcd.read(&all("h", 1, None)).await })
    });
    for request in requests.collect::<Vec<_>>() {
        let error = request.await.unwrap().unwrap_err();
        assert!(
            matches!(&error, EtcdError::Unknown { reason } if reason.contains("no answer after")),
            "{error}"
        );
    }
    for _ in 0..50 {
        assert_eq!(etcd.read(&all("h", 1, None)).await.unwrap().pairs[0].value, "0");
    }
    cluster.resume(paused);
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn requests_go_to_the_leader_once_its_size_is_known() {
    let place = Place::new();
    let cluster = EtcdCluster::start(&place, 3);
    let leader = cluster.leader(&cluster.client().await).await;
    let paused = (leader + 1) % 3;
    let mut endpoints = cluster.urls();
    endpoints.rotate_left(paused);
    let etcd = connect(&EtcdSettings { endpoints, ..EtcdSettings::default() }).await;
    etcd.size().await.unwrap();
    cluster.pause(paused);
    revision_of_applied(etcd.txn(&chained("h", 0, vec![put("h", "1")])).await);
    cluster.resume(paused);
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn without_a_quorum_every_answer_is_uncertain() {
    let place = Place::new();
    let mut cluster = EtcdCluster::start(&place, 3);
    let etcd = cluster.client().await;
    let revision = revision_of_applied(etcd.txn(&chained("h", 0, vec![put("h", "1")])).await);
    cluster.kill(1);
    cluster.kill(2);
    let txn = chained("h", revision, vec![put("h", "2")]);
    for _ in 0..6 {
        let error = etcd.txn(&txn).await.unwrap_err();
        assert!(matches!(error, EtcdError::Unknown { .. }), "{error}");
    }
    cluster.restart(1);
    let (answer, _) = until_known(&etcd, &txn).await;
    match answer.unwrap().outcome {
        TxnOutcome::Applied => {}
        TxnOutcome::NotApplied(pairs) => assert_eq!(pairs[0].as_ref().unwrap().value, "2"),
    }
}
