//! Members of a cluster: keys with a lease in a real etcd.

use std::time::Duration;

use mqkv::server::etcd::{Etcd, Member, MemberEvent};
use tokio::runtime::{Builder, Runtime};

use super::common::Place;
use super::common::etcd::EtcdCluster;
use super::etcd_requests::{all, key};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn is_there(etcd: &Etcd) -> bool {
    etcd.read(&all("m/", 0, None)).await.is_ok_and(|answer| !answer.pairs.is_empty())
}

async fn wait_until_there(etcd: &Etcd, expected: bool) {
    for _ in 0..300 {
        let answer = etcd.read(&all("m/", 0, None)).await;
        if answer.is_ok_and(|answer| answer.pairs.is_empty() != expected) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the key of the member is not {}", if expected { "there" } else { "gone" });
}

#[test]
#[ignore = "needs Debian's etcd-server"]
fn a_member_that_does_not_renew_its_lease_disappears_and_comes_back() {
    let place = Place::new();
    let cluster = EtcdCluster::start(&place, 1);
    // Its tasks run only while something blocks on this runtime: else the member is as in a paused process.
    let paused = runtime();
    let observer = runtime();
    let etcd = observer.block_on(cluster.client());
    let mut member = paused.block_on(async {
        let etcd = cluster.client().await;
        let mut member = Member::start(&etcd, key("m/one"), key("value"), 5);
        assert!(member.changed().await);
        // Longer than the lease.
        tokio::time::sleep(Duration::from_secs(8)).await;
        assert!(member.is_present());
        assert!(is_there(&etcd).await, "the lease was not renewed");
        member
    });
    observer.block_on(wait_until_there(&etcd, false));
    paused.block_on(async {
        assert!(!member.changed().await, "the loss was not reported");
        while !member.is_present() {
            member.changed().await;
        }
    });
    let pairs = observer.block_on(etcd.read(&all("m/", 0, None))).unwrap().pairs;
    assert_eq!((pairs[0].key.clone(), pairs[0].value.clone()), (key("m/one"), key("value")));
    paused.block_on(member.close());
    assert_eq!(
        observer.block_on(etcd.read(&all("m/", 0, None))).unwrap().pairs,
        [],
        "a closed member is still there"
    );
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn a_dropped_member_leaves_at_once_and_another_one_survives_the_loss_of_its_endpoint() {
    let place = Place::new();
    let mut cluster = EtcdCluster::start(&place, 3);
    let etcd = cluster.client().await;
    let mut member = Member::start(&etcd, key("m/one"), key(""), 600);
    assert!(member.changed().await && is_there(&etcd).await);
    drop(member);
    wait_until_there(&etcd, false).await;
    let mut member = Member::start(&etcd, key("m/two"), key(""), 5);
    assert!(member.changed().await);
    cluster.kill(0);
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(member.is_present());
    // The client of this test may still be at the endpoint that is gone.
    wait_until_there(&etcd, true).await;
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn a_member_does_not_take_its_key_from_another_process_and_has_it_again_after_that() {
    let place = Place::new();
    let cluster = EtcdCluster::start(&place, 1);
    let etcd = cluster.client().await;
    let mut first = Member::start(&etcd, key("m/one"), key("first"), 600);
    assert!(first.changed().await);
    let mut second = Member::start(&etcd, key("m/one"), key("second"), 600);
    let failure = loop {
        if let MemberEvent::Renewals(Some(failure)) = second.event().await {
            break failure.to_string();
        }
    };
    assert!(failure.contains("another process"), "{failure}");
    let pairs = etcd.read(&all("m/", 0, None)).await.unwrap().pairs;
    assert!(pairs[0].value == key("first") && !second.is_present());
    first.close().await;
    assert!(second.changed().await);
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn a_member_reports_the_time_of_its_lease_that_etcd_has_granted() {
    let place = Place::new();
    let cluster = EtcdCluster::start(&place, 1);
    let etcd = cluster.client().await;
    let mut member = Member::start(&etcd, key("m/one"), key("first"), 60);
    assert_eq!(member.event().await, MemberEvent::Granted { granted_s: 60 });
    member.close().await;
}
