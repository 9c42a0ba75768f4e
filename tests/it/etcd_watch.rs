//! Watches of a real etcd.

use mqkv::ledger::etcd::operation::{EtcdError, Operation, TxnOutcome, WatchEvent};
use mqkv::server::etcd::{Etcd, EtcdSettings};

use super::common::Place;
use super::common::etcd::{EtcdCluster, connect, until_known};
use super::etcd_requests::{chained, key, put, revision_of_applied, watched};

/// Watches until this many changes have come, over the loss of watches, and returns them with the number of losses.
async fn changes(etcd: &Etcd, from_revision: u64, count: usize) -> (Vec<WatchEvent>, usize) {
    let (mut events, mut losses, mut next) = (Vec::new(), 0, from_revision);
    let mut watch = etcd.watch(&watched("s/", next));
    while events.len() < count {
        match watch.next().await {
            Ok(batch) => {
                assert!(batch.revision >= next, "the revision went back");
                assert!(batch.events.iter().all(|event| event.mod_revision <= batch.revision));
                next = batch.revision + 1;
                events.extend(batch.events);
            }
            Err(EtcdError::Unknown { .. }) => {
                losses += 1;
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                watch = etcd.watch(&watched("s/", next));
            }
            Err(error) => panic!("{error}"),
        }
    }
    (events, losses)
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn a_watch_receives_all_changes_of_a_revision_together() {
    let place = Place::new();
    let cluster = EtcdCluster::start(&place, 1);
    let etcd = cluster.client().await;
    let mut watch = etcd.watch(&watched("s/", 2));
    let mut revisions = Vec::new();
    // Each revision has 900 KB: etcd splits its responses at 2 MB, in the midst of a revision.
    for _ in 0..12 {
        let rows = (0..9).map(|index| put(&format!("s/{index}"), vec![1; 100_000]));
        revisions.push(revision_of_applied(etcd.txn(&chained("h", 0, rows.collect())).await));
    }
    let check = |events: &[WatchEvent]| {
        let mut rest = events;
        while let Some(first) = rest.first() {
            let same = rest.iter().take_while(|event| event.mod_revision == first.mod_revision).count();
            assert_eq!(same, 9, "revision {} is incomplete", first.mod_revision);
            rest = &rest[same..];
        }
    };
    for mut watch in [
        etcd.watch(&watched("s/", revisions[0])),
        std::mem::replace(&mut watch, etcd.watch(&watched("s/", 2))),
    ] {
        let mut seen = Vec::new();
        while seen.last() != revisions.last() {
            let batch = watch.next().await.unwrap();
            check(&batch.events);
            seen.extend(batch.events.iter().step_by(9).map(|event| event.mod_revision));
        }
        assert_eq!(seen, revisions);
    }
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn a_watch_sees_puts_and_deletions_of_its_prefix_only() {
    let place = Place::new();
    let cluster = EtcdCluster::start(&place, 1);
    let etcd = cluster.client().await;
    let mut watch = etcd.watch(&watched("s/", 1));
    revision_of_applied(etcd.txn(&chained("h", 0, vec![put("r/a", "no"), put("t", "no")])).await);
    let first = revision_of_applied(etcd.txn(&chained("h", 0, vec![put("s/a", "1"), put("s/b", "2")])).await);
    let mut batch = watch.next().await.unwrap();
    // Progress may be reported before.
    while batch.events.is_empty() {
        batch = watch.next().await.unwrap();
    }
    let event = |at: &str, value: Option<&str>, mod_revision| WatchEvent {
        key: key(at),
        value: value.map(key),
        mod_revision,
    };
    assert_eq!(batch.revision, first);
    assert_eq!(batch.events, [event("s/a", Some("1"), first), event("s/b", Some("2"), first)]);
    let deletion = Operation::Delete { key: key("s/a") };
    let second = revision_of_applied(etcd.txn(&chained("h", 0, vec![deletion])).await);
    assert_eq!(watch.next().await.unwrap().events, [event("s/a", None, second)]);
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn a_watch_misses_nothing_when_its_member_is_killed_or_paused() {
    let place = Place::new();
    let mut cluster = EtcdCluster::start(&place, 3);
    let writer = cluster.client().await;
    let leader = cluster.leader(&writer).await;
    let mut endpoints = cluster.urls();
    // The watch begins at a follower.
    endpoints.rotate_left((leader + 1) % 3);
    let watcher = connect(&EtcdSettings { endpoints, ..EtcdSettings::default() }).await;
    let watching = tokio::spawn(async move { changes(&watcher, 1, 400).await });
    let mut head = 0;
    for index in 0..200 {
        match index {
            50 => cluster.kill((leader + 1) % 3),
            100 => cluster.restart((leader + 1) % 3),
            150 => cluster.pause((leader + 2) % 3),
            _ => {}
        }
        let number = index.to_string();
        let txn = chained("s/h", head, vec![put("s/h", &number), put("s/k", &number)]);
        let (answer, _) = until_known(&writer, &txn).await;
        let answer = answer.unwrap();
        head = match answer.outcome {
            TxnOutcome::Applied => answer.revision,
            TxnOutcome::NotApplied(pairs) => pairs[0].as_ref().unwrap().mod_revision,
        };
    }
    let (events, losses) = watching.await.unwrap();
    cluster.resume((leader + 2) % 3);
    let values =
        events.iter().map(|event| String::from_utf8_lossy(event.value.as_ref().unwrap()).into_owned());
    let expected = (0..200).flat_map(|index: u32| [index.to_string(), index.to_string()]);
    assert_eq!(values.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    assert!(events.is_sorted_by_key(|event| event.mod_revision));
    assert!(losses >= 2, "the watch was lost {losses} times");
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn a_watch_through_a_member_without_a_leader_ends() {
    let place = Place::new();
    let mut cluster = EtcdCluster::start(&place, 3);
    let etcd = cluster.client().await;
    // Progress notifications of a leaderless member must not keep it alive.
    let mut watch = etcd.watch(&watched("s/", 1));
    revision_of_applied(etcd.txn(&chained("h", 0, vec![put("s/a", "1")])).await);
    watch.next().await.unwrap();
    cluster.kill(1);
    cluster.kill(2);
    let error = loop {
        if let Err(error) = watch.next().await {
            break error;
        }
    };
    assert!(matches!(error, EtcdError::Unknown { .. }), "{error}");
}
