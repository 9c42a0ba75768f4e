//! `mqkv store --etcd --shards N`: each shard of the keys has an owner of its own.

use std::collections::BTreeSet;

use super::common::cluster::Instance;
use super::common::etcd::EtcdCluster;
use super::common::{Place, wait_until};
use super::mosquitto::{KilledOnDrop, mosquitto};

const SHARDS: usize = 4;
const KEYS: usize = 200;

/// An etcd and a broker for instances.
struct Site {
    place: Place,
    etcd: EtcdCluster,
    url: String,
    _broker: KilledOnDrop,
}

impl Site {
    fn new() -> Self {
        let place = Place::new();
        let (broker, url) = mosquitto(&place);
        let etcd = EtcdCluster::start(&place, 1);
        Self { place, etcd, url, _broker: broker }
    }

    fn start(&self, name: &str, options: &[&str]) -> Instance {
        let id = format!("store-{name}");
        Instance::start(
            &self.place,
            &self.etcd,
            name,
            &[&["store", "-b", &self.url, "-i", &id], options].concat(),
        )
    }

    /// Starts an instance, and waits until it owns all shards.
    fn start_owner(&self, name: &str) -> Instance {
        let owner = self.start(name, &["--shards", &SHARDS.to_string()]);
        let mut owned = BTreeSet::new();
        while owned.len() < SHARDS {
            owned.insert(shard_in(&owner.log_line_with("is the owner now")));
        }
        owner
    }

    fn run(&self, words: &[&str]) -> String {
        self.place.run_at(&self.url, words)
    }

    /// Writes all keys.
    fn fill(&self) {
        let lines: String = (0..KEYS).map(|number| format!("set k/{number} {number}\n")).collect();
        self.place.write("lines", lines);
        assert!(self.run(&["batch", "lines", "-q"]).ends_with("--- exit 0\n"));
    }

    fn keys(&self) -> BTreeSet<String> {
        let shown = self.place.bytes_at(&self.url, &["keys", "k/*", "-t", "30s"]);
        let text = String::from_utf8(shown).unwrap();
        let keys: Vec<_> = text.lines().map(str::to_owned).collect();
        let all: BTreeSet<_> = keys.iter().cloned().collect();
        assert_eq!(all.len(), keys.len(), "each key once");
        all
    }
}

/// Returns the shard that a line of the log is about.
fn shard_in(line: &str) -> String {
    let (_, rest) = line.split_once("shard ").unwrap_or_else(|| panic!("{line}"));
    rest.split(':').next().unwrap().to_owned()
}

#[test]
#[ignore = "needs Debian's etcd-server and mosquitto"]
fn keys_of_all_shards_are_read_listed_and_taken_over() {
    let site = Site::new();
    let owner = site.start_owner("a");
    site.fill();
    assert_eq!(site.keys().len(), KEYS);
    assert_eq!(owner.health().unwrap(), "200 ok");
    // It takes the number of shards from the cluster.
    let standby = site.start("b", &[]);
    standby.log_line_with("serving ");
    owner.kill();
    assert_eq!(site.keys().len(), KEYS);
    for number in [0, 7, 42, KEYS - 1] {
        let value = site.place.bytes_at(&site.url, &["get", &format!("k/{number}"), "-t", "30s"]);
        assert_eq!(value, number.to_string().as_bytes());
    }
    assert_eq!(site.run(&["del", "k/7", "-q"]), "--- exit 0\n");
    assert_eq!(site.keys().len(), KEYS - 1);
    assert_eq!(standby.stop(), Some(0));
}

#[test]
#[ignore = "needs Debian's etcd-server and mosquitto; takes half a minute"]
fn instances_share_the_shards_and_each_key_is_answered_by_the_owner_of_its_shard() {
    let site = Site::new();
    let first = site.start_owner("a");
    site.fill();
    let second = site.start("b", &[]);
    // It has been there for half a minute then.
    let moved = shard_in(&second.log_line_with("is the owner now"));
    while shard_in(&first.log_line_with("has given the ownership up")) != moved {}
    // Others may move at the same time, which interrupts a scan.
    let listed = || site.run(&["keys", "k/*", "--count"]).ends_with("--- exit 0\n").then_some(());
    wait_until("all shards have an owner", listed);
    assert_eq!(site.keys().len(), KEYS);
    assert_eq!([first.health().unwrap(), second.health().unwrap()], ["200 ok", "200 ok"]);
    let lines: String = (0..KEYS).map(|number| format!("get k/{number}\n")).collect();
    site.place.write("lines", lines);
    let shown = site.place.bytes_at(&site.url, &["batch", "lines"]);
    let values: Vec<_> = (0..KEYS).map(|number| number.to_string()).collect();
    assert_eq!(String::from_utf8(shown).unwrap().lines().collect::<Vec<_>>(), values);
    second.kill();
    assert_eq!(site.keys().len(), KEYS);
}

#[test]
#[ignore = "needs Debian's etcd-server and mosquitto"]
fn another_number_of_shards_ends_the_start_with_its_cause() {
    let site = Site::new();
    let _owner = site.start_owner("a");
    for words in [&["store", "-b", &site.url, "--shards", "3"][..], &["serve", "--listen", "127.0.0.1:0"]] {
        let urls = site.etcd.urls().join(",");
        let shown = site.place.run(&[words, &["--etcd", &urls, "--instance", "other"]].concat());
        assert!(shown.contains("4 shards instead of "), "{shown}");
        assert!(shown.contains("--shards") && shown.ends_with("--- exit 65\n"), "{shown}");
    }
    let shown = site.run(&["store", "--shards", "2"]);
    assert!(shown.contains("--shards requires --etcd\n") && shown.ends_with("--- exit 2\n"), "{shown}");
}
