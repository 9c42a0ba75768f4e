//! An instance that starts on the records of a cluster in etcd.

use mqkv::ledger::etcd::Layout;
use mqkv::ledger::etcd::operation::{Operation, Txn};

use super::super::common::cluster::ServedCluster;
use super::etcd::{VERSION, recorded_pairs, rows};

#[test]
#[ignore = "needs Debian's etcd-server"]
fn an_instance_takes_over_what_every_version_has_written_to_etcd() {
    for pairs in recorded_pairs() {
        let cluster = ServedCluster::new(1, &[]);
        let layout = Layout::new("default");
        // Members are there with the lease of their process only.
        let pairs = pairs.into_iter().filter(|(key, _)| *key == layout.meta() || layout.is_state(key));
        let operations = pairs.map(|(key, value)| Operation::Put { key, value, lease: None }).collect();
        let txn = Txn { operations, ..Txn::default() };
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            cluster.etcd.client().await.txn(&txn).await.unwrap();
        });
        let _owner = cluster.start_owner("a");
        for (key, stored) in rows() {
            let key = hex::encode(key.as_bytes());
            let found = cluster.run(&["get", "--key-hex", &key, "-o", "hex"]);
            assert_eq!(found, format!("--- stdout\n{}\n--- exit 0\n", hex::encode(&stored.value)));
        }
        assert!(cluster.version("fenced").contains(&VERSION.ms.to_string()), "{}", cluster.version("fenced"));
        let unfenced = cluster.run(&["set", "fenced", "x"]);
        assert!(unfenced.contains("a fencing token is required"), "{unfenced}");
        cluster.set("line1/temp", "22");
    }
}
