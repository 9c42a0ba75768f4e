//! Transactions, reads, compaction and the quota of a real etcd.

use bytes::Bytes;
use mqkv::ledger::etcd::action::WatchRange;
use mqkv::ledger::etcd::operation::{
    Condition, EtcdError, Operation, Pair, RangeRead, Txn, TxnAnswer, TxnOutcome, prefix_end,
};
use mqkv::server::etcd::{Etcd, EtcdSettings, has_stale_read_fix};

use super::common::Place;
use super::common::etcd::{EtcdCluster, chosen_program, connect};

pub(super) fn key(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(super) fn put(at: &str, value: impl AsRef<[u8]>) -> Operation {
    Operation::Put { key: key(at), value: Bytes::copy_from_slice(value.as_ref()), lease: None }
}

/// Returns a transaction that changes `head` if this was the revision of its last change.
pub(super) fn chained(head: &str, mod_revision: u64, operations: Vec<Operation>) -> Txn {
    Txn {
        conditions: vec![Condition { key: key(head), mod_revision }],
        operations,
        otherwise: vec![key(head)],
    }
}

#[track_caller]
pub(super) fn revision_of_applied(answer: Result<TxnAnswer, EtcdError>) -> u64 {
    let answer = answer.unwrap();
    assert_eq!(answer.outcome, TxnOutcome::Applied);
    answer.revision
}

pub(super) fn all(prefix: &str, limit: u32, revision: Option<u64>) -> RangeRead {
    RangeRead { from: key(prefix), to: prefix_end(prefix.as_bytes()), limit, revision }
}

pub(super) fn watched(prefix: &str, revision: u64) -> WatchRange {
    WatchRange { from: key(prefix), to: prefix_end(prefix.as_bytes()), revision }
}

async fn one_member(place: &Place) -> (EtcdCluster, Etcd) {
    let cluster = EtcdCluster::start(place, 1);
    let etcd = cluster.client().await;
    (cluster, etcd)
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn a_transaction_is_applied_if_its_conditions_hold_and_reads_otherwise() {
    let place = Place::new();
    let (_cluster, etcd) = one_member(&place).await;
    let first = revision_of_applied(etcd.txn(&chained("h", 0, vec![put("h", "1"), put("k", "v")])).await);
    let mut second = chained("h", first, vec![put("h", "2"), Operation::Delete { key: key("k") }]);
    second.otherwise = vec![key("absent"), key("h"), key("k")];
    let revision = revision_of_applied(etcd.txn(&second).await);
    assert!(revision > first);
    // The same one again: it shows that it was applied before.
    let pair = Pair { key: key("h"), value: key("2"), mod_revision: revision };
    let again = etcd.txn(&second).await.unwrap();
    assert_eq!(again.outcome, TxnOutcome::NotApplied(vec![None, Some(pair.clone()), None]));
    assert_eq!(again.revision, revision, "a transaction that was not applied changed something");
    // A condition without an operation is a confirmation.
    revision_of_applied(etcd.txn(&chained("h", revision, Vec::new())).await);
    let changed = etcd.txn(&chained("h", first, Vec::new())).await.unwrap();
    assert_eq!(changed.outcome, TxnOutcome::NotApplied(vec![Some(pair)]));
    // All conditions must hold.
    let mut both = chained("h", revision, vec![put("h", "3")]);
    both.conditions.push(Condition { key: key("k"), mod_revision: first });
    assert!(matches!(etcd.txn(&both).await.unwrap().outcome, TxnOutcome::NotApplied(_)));
    let range = Operation::DeleteRange { from: key("a"), to: key("z") };
    revision_of_applied(etcd.txn(&chained("h", revision, vec![range])).await);
    assert_eq!(etcd.read(&all("", 0, None)).await.unwrap().pairs, []);
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn what_etcd_refuses_for_good_is_refused_and_changes_nothing() {
    let place = Place::new();
    let (_cluster, etcd) = one_member(&place).await;
    let many = (0..200).map(|index| put(&format!("k{index}"), "v")).collect();
    let large = vec![put("k", vec![0; 2 * 1024 * 1024])];
    for (operations, cause) in [
        (many, "too many operations in txn request"),
        (vec![put("k", "1"), put("k", "2")], "duplicate key given in txn request"),
        (large, "request is too large"),
        (vec![put("", "1")], "key is not provided"),
    ] {
        let refused = etcd.txn(&chained("h", 0, operations)).await.unwrap_err();
        assert!(
            matches!(&refused, EtcdError::Refused { reason } if reason.ends_with(cause)),
            "{cause}: {refused}"
        );
    }
    assert_eq!(etcd.read(&all("", 0, None)).await.unwrap().pairs, []);
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn pages_of_a_range_show_the_state_at_one_revision() {
    let place = Place::new();
    let (_cluster, etcd) = one_member(&place).await;
    for part in 0..25 {
        let rows = (0..100).map(|index| put(&format!("s/{:04}", part * 100 + index), "old"));
        revision_of_applied(etcd.txn(&chained("h", 0, rows.collect())).await);
    }
    revision_of_applied(etcd.txn(&chained("h", 0, vec![put("t", "after the range")])).await);
    let first = etcd.read(&all("s/", 1000, None)).await.unwrap();
    assert_eq!(first.more, 1500);
    let change = vec![put("s/0000", "new"), put("s/2499", "new"), Operation::Delete { key: key("s/2000") }];
    revision_of_applied(etcd.txn(&chained("h", 0, change)).await);
    let mut pairs = first.pairs;
    let mut pages = 1;
    let mut more = first.more;
    while more > 0 {
        let mut from = pairs.last().unwrap().key.to_vec();
        from.push(0);
        let page = RangeRead { from: from.into(), ..all("s/", 1000, Some(first.revision)) };
        let page = etcd.read(&page).await.unwrap();
        more = page.more;
        pairs.extend(page.pairs);
        pages += 1;
    }
    assert_eq!((pages, pairs.len()), (3, 2500));
    assert!(pairs.iter().all(|pair| pair.value == "old"));
    assert!(pairs.is_sorted_by_key(|pair| pair.key.clone()));
    // Without a limit, the client reads the pages itself.
    let at_once = etcd.read(&all("s/", 0, Some(first.revision))).await.unwrap();
    assert_eq!((at_once.pairs, at_once.more), (pairs, 0));
    assert_eq!(etcd.read(&all("s/", 0, None)).await.unwrap().pairs.len(), 2499);
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn a_page_that_would_be_too_large_has_fewer_pairs() {
    let place = Place::new();
    let (_cluster, etcd) = one_member(&place).await;
    for index in 0..40 {
        let row = put(&format!("s/{index:02}"), vec![7; 1024 * 1024]);
        revision_of_applied(etcd.txn(&chained("h", 0, vec![row])).await);
    }
    let page = etcd.read(&all("s/", 1000, None)).await.unwrap();
    assert!(page.more > 0 && page.pairs.len() < 40, "{} pairs", page.pairs.len());
    assert_eq!(etcd.read(&all("s/", 0, None)).await.unwrap().pairs.len(), 40);
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn history_that_was_compacted_is_reported() {
    let place = Place::new();
    let (_cluster, etcd) = one_member(&place).await;
    let mut revisions = vec![0];
    for index in 1..=10 {
        let last = revisions[index - 1];
        revisions.push(revision_of_applied(etcd.txn(&chained("s/h", last, vec![put("s/h", "v")])).await));
    }
    etcd.compact(revisions[8]).await.unwrap();
    let compacted = |revision| Err(EtcdError::Compacted { revision });
    assert_eq!(etcd.compact(revisions[8]).await, compacted(revisions[8]));
    assert_eq!(etcd.read(&all("s/", 0, Some(revisions[7]))).await.map(drop), compacted(revisions[7]));
    assert_eq!(etcd.read(&all("s/", 0, Some(revisions[8]))).await.unwrap().pairs.len(), 1);
    assert!(matches!(etcd.compact(revisions[10] + 100).await, Err(EtcdError::Refused { .. })));
    assert_eq!(etcd.watch(&watched("s/", revisions[3])).next().await.map(drop), compacted(revisions[8]));
    let batch = etcd.watch(&watched("s/", revisions[9])).next().await.unwrap();
    assert_eq!((batch.revision, batch.events.len()), (revisions[10], 2));
}

/// Changes a head until the quota is reached; returns its number, which must be that of the transactions that were applied.
async fn fill(etcd: &Etcd, head: &str) -> u64 {
    let (mut count, mut revision) = (0_u64, 0);
    loop {
        let value = [count.to_string().into_bytes(), vec![b' '; 20_000]].concat();
        let txn = chained(head, revision, vec![put(head, value)]);
        match etcd.txn(&txn).await {
            Ok(TxnAnswer { outcome: TxnOutcome::Applied, revision: at }) => revision = at,
            Ok(TxnAnswer { outcome: TxnOutcome::NotApplied(pairs), .. }) => {
                // Only this task changes the head: the transaction was applied, and has reached the quota.
                let pair = pairs[0].clone().unwrap();
                assert!(pair.value.starts_with(format!("{count} ").as_bytes()), "another change");
                revision = pair.mod_revision;
            }
            Err(EtcdError::NoSpace) => return count,
            Err(error) => panic!("{error}"),
        }
        count += 1;
    }
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn at_the_quota_nothing_is_put_and_no_fate_is_wrong_but_deletions_work() {
    let place = Place::new();
    let quota = ["--quota-backend-bytes", "8388608"];
    let cluster = EtcdCluster::start_with(&place, 1, "http", &quota);
    let etcd = cluster.client().await;
    let writers = (0..16).map(|index| {
        let etcd = etcd.clone();
        tokio::spawn(async move {
            let head = format!("h{index}");
            (fill(&etcd, &head).await, head)
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        let (count, head) = writer.await.unwrap();
        let pairs = etcd.read(&all(&head, 0, None)).await.unwrap().pairs;
        let stored = pairs.iter().find(|pair| pair.key == head).map(|pair| pair.value.clone());
        let expected = count.checked_sub(1).map(|last| format!("{last} "));
        assert_eq!(
            stored.map(|value| value.split(|byte| *byte == b' ').next().unwrap().to_vec()),
            expected.map(|last| last.trim_end().as_bytes().to_vec()),
            "{head}"
        );
    }
    let status = etcd.status().await.remove(0).1.unwrap();
    assert!(status.alarms.iter().any(|alarm| alarm.contains("NOSPACE")), "{status:?}");
    let head = etcd.read(&all("h0", 1, None)).await.unwrap().pairs.remove(0);
    let name = "h0";
    let with_put =
        chained(name, head.mod_revision, vec![put("other", "v"), Operation::Delete { key: key(name) }]);
    assert_eq!(etcd.txn(&with_put).await, Err(EtcdError::NoSpace));
    let deletion = chained(name, head.mod_revision, vec![Operation::Delete { key: key(name) }]);
    revision_of_applied(etcd.txn(&deletion).await);
}

/// Starts three members, and kills one that is not the leader. Returns a client, the leader and the one that is dead.
async fn with_dead_member(place: &Place) -> (EtcdCluster, Etcd, usize, usize) {
    let mut cluster = EtcdCluster::start(place, 3);
    let etcd = cluster.client().await;
    let leader = cluster.leader(&etcd).await;
    let dead = (leader + 1) % 3;
    cluster.kill(dead);
    (cluster, etcd, leader, dead)
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn each_endpoint_reports_its_status() {
    let place = Place::new();
    let (cluster, etcd, leader, dead) = with_dead_member(&place).await;
    // The first request may notice the loss of its connection only.
    etcd.status().await;
    let all = etcd.status().await;
    assert_eq!(all.len(), 3);
    for (index, (address, status)) in all.into_iter().enumerate() {
        assert!(cluster.urls()[index].ends_with(&address), "{address}");
        if index == dead {
            let error = status.unwrap_err();
            assert_eq!(error, EtcdError::Unknown { reason: format!("connection refused: {address}") });
            continue;
        }
        let status = status.unwrap();
        assert_eq!((status.is_leader, status.has_leader), (index == leader, true));
        assert!(status.database_bytes >= status.used_bytes && status.used_bytes > 0, "{status:?}");
        // The tests run with Debian's etcd, and with one that `.ci/run` has chosen for its reads.
        let is_chosen = chosen_program().is_some();
        assert_eq!((status.alarms.len(), has_stale_read_fix(&status.version)), (0, is_chosen), "{status:?}");
    }
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn one_endpoint_of_three_may_be_dead_from_the_start() {
    let place = Place::new();
    let (cluster, ..) = with_dead_member(&place).await;
    for first in 0..3 {
        let mut endpoints = cluster.urls();
        endpoints.rotate_left(first);
        let etcd = connect(&EtcdSettings { endpoints, ..EtcdSettings::default() }).await;
        let head = format!("h{first}");
        revision_of_applied(etcd.txn(&chained(&head, 0, vec![put(&head, "1")])).await);
    }
}
