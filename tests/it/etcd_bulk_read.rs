//! Bulk reads of etcd: what they cost, counted in requests and keys.

use bytes::Bytes;
use mqkv::ledger::etcd::bulk_read::BulkRead;
use mqkv::ledger::etcd::operation::{Operation, RangeRead, Txn};
use mqkv::server::etcd::Etcd;

use super::common::Place;
use super::common::etcd::EtcdCluster;

/// Two groups of keys with a long beginning in common, and values of some hundred bytes.
fn row(number: u32) -> Operation {
    let key = format!("s/k/line{}/machine{number:07}/temperature", number % 2);
    Operation::Put { key: key.into(), value: vec![b'v'; 200].into(), lease: None }
}

async fn fill(etcd: &Etcd, keys: u32) {
    let numbers: Vec<_> = (0..keys).collect();
    for part in numbers.chunks(100) {
        let operations = part.iter().map(|number| row(*number)).collect();
        etcd.txn(&Txn { operations, ..Txn::default() }).await.unwrap();
    }
}

/// Reads all, and returns the number of keys, of requests, and of the keys that etcd has counted for them.
async fn read(etcd: &Etcd, revision: u64) -> [u64; 3] {
    let (from, to) = (Bytes::from_static(b"s/"), Bytes::from_static(b"s0"));
    let mut bulk = BulkRead::new((from, to), revision);
    let (mut requests, mut counted) = (0, 0);
    loop {
        let answer = etcd.read(&bulk.next_read()).await.unwrap();
        requests += 1;
        counted += answer.pairs.len() as u64 + answer.more;
        assert!(answer.pairs.iter().all(|pair| pair.value.len() == 200), "at the revision");
        if bulk.handle_page(&answer) {
            return [bulk.pairs(), requests, counted];
        }
    }
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn the_cost_of_a_read_grows_as_the_number_of_keys_does() {
    let place = Place::new();
    let cluster = EtcdCluster::start(&place, 3);
    let etcd = cluster.client().await;
    for keys in [10_000, 60_000] {
        fill(&etcd, keys).await;
        let head = RangeRead::one(Bytes::from_static(b"h"), None);
        let revision = etcd.read(&head).await.unwrap().revision;
        // The state at the revision is read, whichever member answers, and whatever is written meanwhile.
        let later = Operation::Put { key: "s/k/line0/later".into(), value: "".into(), lease: None };
        etcd.txn(&Txn { operations: vec![later.clone()], ..Txn::default() }).await.unwrap();
        let [pairs, requests, counted] = read(&etcd, revision).await;
        let Operation::Put { key, .. } = later else { panic!() };
        etcd.txn(&Txn { operations: vec![Operation::Delete { key }], ..Txn::default() }).await.unwrap();
        assert_eq!(pairs, u64::from(keys));
        // With pages of 1,000 up to the end of the range, etcd would count 30 keys for each of 60,000, and more for more.
        assert!(requests < 40 + u64::from(keys) / 200, "{requests} requests for {keys} keys");
        assert!(counted < 16 * u64::from(keys), "{counted} counted for {keys} keys");
    }
}
