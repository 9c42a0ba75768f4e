//! A backup of the state in etcd, and what is there after it is restored.

use std::process::{Command, Stdio};

use super::common::Place;
use super::common::cluster::ServedCluster;
use crate::a_watchdog::bounded;

/// Runs `etcdctl`, which must succeed.
fn etcdctl(place: &Place, words: &[&str]) {
    let mut command = Command::new("/usr/bin/etcdctl");
    command.args(words).env_clear().env("ETCDCTL_API", "3").current_dir(place.folder());
    let output = bounded(|| command.stdin(Stdio::null()).output());
    let output = output.unwrap_or_else(|error| panic!("{error}: apt-get install etcd-client"));
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "needs Debian's etcd-server and etcd-client"]
fn a_restored_snapshot_is_the_state_of_its_time_and_new_versions_are_above_all_that_clients_have_seen() {
    let mut cluster = ServedCluster::new(1, &[]);
    let (owner, standby) = (cluster.start_owner("a"), cluster.start_standby("b"));
    cluster.set("k", "before");
    cluster.set("kept", "v");
    let kept = cluster.version("kept");
    let url = cluster.etcd.urls().remove(0);
    etcdctl(&cluster.place, &["--endpoints", &url, "snapshot", "save", "backup"]);
    cluster.set("k", "after");
    cluster.set("new", "v");
    assert!(cluster.run(&["del", "kept"]).ends_with("--- exit 0\n"));
    let seen = [cluster.version("k"), cluster.version("new")];
    assert_eq!((standby.stop(), owner.stop()), (Some(0), Some(0)));
    cluster.etcd.kill(0);
    let place = &cluster.place;
    cluster.etcd.restore(0, |options| {
        etcdctl(place, &[&["snapshot", "restore", "backup"], options].concat());
    });
    // The members of the snapshot count until their leases have ended.
    let (_owner, _standby) = (cluster.start_owner("a"), cluster.start_standby("b"));
    assert_eq!((cluster.get("k"), cluster.get("kept")), ("before".to_owned(), "v".to_owned()));
    assert_eq!(cluster.version("kept"), kept, "what has not changed has its version");
    assert!(cluster.run(&["get", "new"]).ends_with("--- exit 1\n"));
    cluster.set("k", "again");
    cluster.set("new", "again");
    for (key, seen) in ["k", "new"].into_iter().zip(seen) {
        assert!(cluster.version(key) > seen, "{key}: {} after {seen}", cluster.version(key));
    }
    let urls = cluster.etcd.urls().join(",");
    let checked = cluster.place.run(&["store", "check", "--etcd", &urls]);
    assert!(checked.contains("condition: intact"), "{checked}");
}
