//! What the operator of a cluster on etcd sees and does: `mqkv store status`.

use super::common::Place;
use super::common::cluster::ServedCluster;

fn at(place: &Place, urls: &[String], words: &[&str]) -> String {
    let urls = urls.join(",");
    place.run(&[&["store", words[0], "--etcd", &urls], &words[1..]].concat())
}

fn on(cluster: &ServedCluster, words: &[&str]) -> String {
    at(&cluster.place, &cluster.etcd.urls(), words)
}

#[test]
#[ignore = "needs Debian's etcd-server"]
fn the_status_names_the_owner_and_the_instances_that_follow() {
    let cluster = ServedCluster::new(1, &[]);
    let absent = on(&cluster, &["status"]);
    assert!(absent.contains("error: cluster not found: default; this etcd has none"), "{absent}");
    assert!(absent.ends_with("--- exit 1\n"), "{absent}");
    let owner = cluster.start_owner("a");
    let standby = cluster.start_standby("b");
    cluster.set("k", "v");
    let shown = on(&cluster, &["status"]);
    for line in [
        "cluster default: 2 members, 1 shard, 1 key\n",
        "\na       owner\n",
        "\nb       follows\n",
        " leader  3.",
    ] {
        assert!(shown.contains(line), "{line}{shown}");
    }
    assert!(shown.ends_with("--- exit 0\n"), "{shown}");
    assert!(
        shown.lines().filter(|line| !line.starts_with("warning: ")).all(|line| line.len() <= 80),
        "{shown}"
    );
    let record = on(&cluster, &["status", "-j"]);
    assert!(record.contains(r#""op":"store-status","cluster":"default","served":true,"#), "{record}");
    assert!(record.contains(r#"{"shard":0,"owner":"a","present":true,"epoch":1,"#), "{record}");
    let other = on(&cluster, &["status", "--cluster", "prod"]);
    assert!(other.contains("error: cluster not found: prod; this etcd has default"), "{other}");
    assert!(other.ends_with("--- exit 1\n"), "{other}");
    assert_eq!((standby.stop(), owner.stop()), (Some(0), Some(0)));
    let unserved = on(&cluster, &["status", "-q"]);
    assert!(unserved.contains("0      -") && unserved.ends_with("--- exit 1\n"), "{unserved}");
    let unserved = on(&cluster, &["status"]);
    assert!(unserved.contains("error: no owner, and no instance is running"), "{unserved}");
}

#[test]
#[ignore = "needs Debian's etcd-server"]
fn a_member_of_etcd_that_does_not_answer_is_reported_and_the_rest_is_shown() {
    let mut cluster = ServedCluster::new(3, &[]);
    let _owner = cluster.start_owner("a");
    cluster.etcd.kill(2);
    let shown = on(&cluster, &["status"]);
    assert!(shown.contains("unreachable") && shown.contains("\nwarning: connection refused: "), "{shown}");
    assert!(shown.ends_with("--- exit 0\n"), "{shown}");
}

#[test]
#[ignore = "needs Debian's etcd-server"]
fn variables_name_the_cluster_where_no_option_does() {
    let cluster = ServedCluster::new(1, &[]);
    let _owner = cluster.start_owner("a");
    let urls = cluster.etcd.urls().join(",");
    let run = |words: &[&str], name: &str| {
        let mut command = cluster.place.command(words);
        command.env("MQKV_ETCD", &urls).env("MQKV_CLUSTER", name);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(run(&["store", "status"], "default").starts_with("cluster default: 1 member"));
    assert_eq!(run(&["store", "status"], "prod"), "");
    assert!(
        run(&["store", "status", "--cluster", "default"], "prod").starts_with("cluster default: 1 member")
    );
}
