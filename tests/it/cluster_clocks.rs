//! Clocks of instances that are off: who owns the store, and how versions that are ahead are lowered.

use std::process::Command;

use super::common::cluster::{Instance, ServedCluster};
use super::common::wait_until;
use crate::a_watchdog::bounded;

/// Makes a command see a wall clock that is an hour ahead. The program `faketime` would be a process around it.
fn hour_ahead(mut command: Command) -> Command {
    command.env("LD_PRELOAD", "/usr/$LIB/faketime/libfaketime.so.1");
    command.env("FAKETIME", "+3600s").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command
}

fn start_ahead(cluster: &ServedCluster, name: &str) -> Instance {
    cluster.start_by(name, hour_ahead)
}

fn on(cluster: &ServedCluster, words: &[&str]) -> String {
    let urls = cluster.etcd.urls().join(",");
    cluster.place.run(&[&["store", words[0], "--etcd", &urls], &words[1..]].concat())
}

#[test]
#[ignore = "needs Debian's etcd-server and faketime"]
fn an_instance_whose_clock_is_an_hour_ahead_owns_nothing_and_says_so() {
    let cluster = ServedCluster::new(1, &[]);
    let owner = cluster.start_owner("a");
    cluster.set("k", "v");
    let ahead = start_ahead(&cluster, "b");
    let line = ahead.log_line_with("it owns nothing until it is corrected");
    assert!(line.contains(" ahead of the cluster's"), "{line}");
    wait_until("it has announced that", || {
        on(&cluster, &["status"])
            .contains("\nb       follows, and owns nothing: its clock is 3600 s ahead\n")
            .then_some(())
    });
    let doctor = on_doctor(&cluster);
    assert!(doctor.contains("the clock of instance b is 3600 s ahead: it owns nothing"), "{doctor}");
    let metrics = ahead.get("/metrics").unwrap();
    assert!(metrics.contains("\nmqkv_cluster_clock_off_seconds 3"), "{metrics}");
    owner.kill();
    wait_until("the owner is gone", || on(&cluster, &["status"]).contains("a (gone)").then_some(()));
    let doctor = on_doctor(&cluster);
    assert!(doctor.contains("set its clock"), "{doctor}");
    // An instance with a right clock takes over at once.
    let right = cluster.start_owner("c");
    assert_eq!(cluster.get("k"), "v");
    assert!(on(&cluster, &["status"]).contains("\nc       owner\n"));
    drop((ahead, right));
}

fn on_doctor(cluster: &ServedCluster) -> String {
    let urls = cluster.etcd.urls().join(",");
    cluster.place.run(&["doctor", "--etcd", &urls, "--read-only"])
}

#[test]
#[ignore = "needs Debian's etcd-server and faketime"]
fn a_store_that_is_an_hour_ahead_is_exported_and_its_versions_are_lowered() {
    let cluster = ServedCluster::new(1, &[]);
    let ahead = start_ahead(&cluster, "a");
    ahead.log_line_with("listening on ");
    let set = cluster.place.command(&["set", "k", "v", "-q", "-b", &cluster.url()]);
    let set = bounded(|| hour_ahead(set).status()).unwrap();
    assert!(set.success());
    let refused = cluster.run(&["get", "k"]);
    assert!(refused.contains("s ahead of this machine's"), "{refused}");
    let exported = cluster.run(&["export"]);
    assert!(exported.contains(r#""key":"k""#) && exported.ends_with("--- exit 0\n"), "{exported}");
    let owned = on(&cluster, &["lower-versions"]);
    assert!(
        owned.contains("error: instance a owns the store") && owned.ends_with("--- exit 69\n"),
        "{owned}"
    );
    assert_eq!(ahead.stop(), Some(0));
    let right = cluster.start("b");
    let line = right.log_line_with("it owns nothing until it is corrected");
    assert!(line.contains(" behind the cluster's"), "{line}");
    let lowered = on(&cluster, &["lower-versions"]);
    assert!(
        lowered.contains("lowered to the present time: the versions of 1 key, 0 fencing tokens"),
        "{lowered}"
    );
    assert!(lowered.ends_with("--- exit 0\n"), "{lowered}");
    right.log_line_with("listening on ");
    assert_eq!(cluster.get("k"), "v");
    cluster.set("k", "w");
    let checked = on(&cluster, &["check"]);
    assert!(checked.contains("condition: intact"), "{checked}");
    let again = on(&cluster, &["lower-versions", "--cluster", "other"]);
    assert!(again.contains("cluster not found: other") && again.ends_with("--- exit 1\n"), "{again}");
}
