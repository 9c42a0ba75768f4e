//! `mqkv store --etcd`: instances behind Mosquitto, of which one answers.

use super::common::cluster::Instance;
use super::common::etcd::EtcdCluster;
use super::common::{Place, Process, Relay, StreamedProcess, wait_until};
use super::mosquitto::{KilledOnDrop, mosquitto, mosquitto_again};

/// Two instances behind Mosquitto.
struct Stores {
    owner: Instance,
    standby: Instance,
    url: String,
    etcd: EtcdCluster,
    _broker: KilledOnDrop,
    place: Place,
}

impl Stores {
    fn start() -> Self {
        let place = Place::new();
        let (broker, url) = mosquitto(&place);
        let etcd = EtcdCluster::start(&place, 1);
        let owner = Instance::start_store(&place, &etcd, "a", &url);
        owner.log_line_with("is the owner now");
        let standby = Instance::start_store(&place, &etcd, "b", &url);
        standby.log_line_with("serving ");
        Self { owner, standby, url, etcd, _broker: broker, place }
    }

    fn process(&self, words: &[&str]) -> Process {
        Process::start(self.place.command(&[&["-b", &self.url], words].concat()))
    }
}

#[test]
#[ignore = "needs Debian's etcd-server and mosquitto"]
fn one_of_two_instances_answers_and_both_are_reported() {
    let stores = Stores::start();
    let run = |words: &[&str]| stores.place.run_at(&stores.url, words);
    assert_eq!(run(&["set", "k", "v"]), "--- exit 0\n");
    assert_eq!(stores.place.bytes_at(&stores.url, &["get", "k"]), b"v");
    assert!(run(&["set", "k", "w", "--nx"]).ends_with("--- exit 1\n"));
    assert_eq!(stores.owner.health().unwrap(), "200 ok");
    // A request to one of two instances is handled: both subscribe.
    let health = stores.standby.health().unwrap();
    assert_eq!(health, "503 standby: this instance does not own the store");
    assert_eq!(stores.owner.stop(), Some(0));
    assert_eq!(stores.place.bytes_at(&stores.url, &["get", "k"]), b"v");
    assert_eq!(stores.standby.health().unwrap(), "200 ok");
    assert_eq!(stores.standby.stop(), Some(0));
}

#[test]
#[ignore = "needs Debian's etcd-server and mosquitto"]
fn a_watch_goes_on_over_a_kill_of_the_owner() {
    let Stores { owner, standby, url, etcd: _etcd, _broker, place } = Stores::start();
    let watch = StreamedProcess::start(&mut place.command(&["watch", "k", "-b", &url]));
    watch.line();
    assert_eq!(place.run_at(&url, &["set", "k", "1"]), "--- exit 0\n");
    assert!(watch.line().ends_with("SET\tk\t1"));
    owner.kill();
    standby.log_line_with("is the owner now");
    assert_eq!(place.run_at(&url, &["set", "k", "2"]), "--- exit 0\n");
    assert!(watch.line().ends_with("SET\tk\t2"));
    assert_eq!(place.run_at(&url, &["del", "k", "-q"]), "--- exit 0\n");
    assert!(watch.line().ends_with("DELETE\tk"));
}

#[test]
#[ignore = "needs Debian's etcd-server and mosquitto"]
fn requests_that_are_sent_without_an_owner_are_answered_by_the_next_one_once() {
    let stores = Stores::start();
    let lines: String = (0..50).map(|number| format!("set b/{number} v --nx\n")).collect();
    stores.place.write("lines", lines);
    assert_eq!(stores.place.run_at(&stores.url, &["set", "k", "v"]), "--- exit 0\n");
    let watch = StreamedProcess::start(&mut stores.place.command(&["watch", "n", "-b", &stores.url]));
    watch.line();
    stores.owner.process.signal(nix::sys::signal::Signal::SIGKILL);
    let set = stores.process(&["set", "n", "1", "--nx", "--timeout", "30s"]);
    let batch = stores.process(&["batch", "lines", "--timeout", "30s"]);
    let get = stores.process(&["get", "k", "--timeout", "30s"]);
    for process in [set, batch, get] {
        let ended = process.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    stores.standby.log_line_with("is the owner now");
    assert!(watch.line().ends_with("SET\tn\t1"));
    assert_eq!(stores.place.run_at(&stores.url, &["del", "n", "-q"]), "--- exit 0\n");
    assert!(watch.line().ends_with("DELETE\tn"), "one notification of one SET");
}

#[test]
#[ignore = "needs Debian's etcd-server and mosquitto"]
fn an_instance_that_was_paused_beyond_its_lease_follows_the_next_owner() {
    let stores = Stores::start();
    let run = |words: &[&str]| stores.place.run_at(&stores.url, words);
    assert_eq!(run(&["set", "k", "old"]), "--- exit 0\n");
    stores.owner.process.signal(nix::sys::signal::Signal::SIGSTOP);
    stores.standby.log_line_with("is the owner now");
    assert_eq!(run(&["set", "k", "new"]), "--- exit 0\n");
    stores.owner.process.signal(nix::sys::signal::Signal::SIGCONT);
    stores.owner.log_line_with("has lost the ownership");
    assert_eq!(stores.place.bytes_at(&stores.url, &["get", "k"]), b"new");
    stores.standby.process.signal(nix::sys::signal::Signal::SIGKILL);
    stores.owner.log_line_with("is the owner now");
    assert_eq!(stores.place.bytes_at(&stores.url, &["get", "k"]), b"new");
}

#[test]
#[ignore = "needs Debian's etcd-server and mosquitto"]
fn without_etcd_no_instance_answers_until_it_is_back() {
    let stores = Stores::start();
    let run = |words: &[&str]| stores.place.run_at(&stores.url, words);
    assert_eq!(run(&["set", "k", "1"]), "--- exit 0\n");
    stores.etcd.pause(0);
    let get = run(&["get", "k", "--timeout", "500ms"]);
    assert!(get.ends_with("--- exit 124\n"), "{get}");
    stores.owner.log_line_with("etcd is unavailable");
    stores.etcd.resume(0);
    wait_until("it answers", || run(&["set", "k", "2"]).ends_with("--- exit 0\n").then_some(()));
    assert_eq!(stores.place.bytes_at(&stores.url, &["get", "k"]), b"2");
}

#[test]
#[ignore = "needs Debian's etcd-server and mosquitto"]
fn an_owner_that_has_lost_the_broker_gives_the_store_up_to_one_that_has_it() {
    let place = Place::new();
    let (_broker, url) = mosquitto(&place);
    let etcd = EtcdCluster::start(&place, 1);
    let relay = Relay::start(url.rsplit(':').next().unwrap().parse().unwrap());
    let owner = Instance::start_store(&place, &etcd, "a", &relay.url());
    owner.log_line_with("is the owner now");
    let standby = Instance::start_store(&place, &etcd, "b", &url);
    standby.log_line_with("serving ");
    assert_eq!(place.run_at(&url, &["set", "k", "v"]), "--- exit 0\n");
    relay.cut();
    // Its connections end; new ones get no answer.
    drop(relay);
    owner.log_line_with("has given the ownership up");
    standby.log_line_with("is the owner now");
    assert_eq!(place.bytes_at(&url, &["get", "k", "--timeout", "30s"]), b"v");
    assert_eq!(owner.health().unwrap(), "503 the connection with the broker is lost");
    standby.stop();
}

#[test]
#[ignore = "needs Debian's etcd-server and mosquitto"]
fn after_a_restart_of_the_broker_an_instance_answers_again() {
    let Stores { owner, standby, url, etcd: _etcd, _broker, place } = Stores::start();
    assert_eq!(place.run_at(&url, &["set", "k", "v"]), "--- exit 0\n");
    drop(_broker);
    owner.log_line_with("has given the ownership up");
    let port = url.rsplit(':').next().unwrap().parse().unwrap();
    let _broker = mosquitto_again(&place, &[port]);
    let get = || place.run_at(&url, &["get", "k", "--timeout", "1s"]);
    wait_until("an instance answers", || get().starts_with("--- stdout\nv").then_some(()));
    let healthy = [&owner, &standby].map(|instance| instance.health().unwrap() == "200 ok");
    assert_eq!(healthy.iter().filter(|is_healthy| **is_healthy).count(), 1);
}

#[test]
#[ignore = "needs Debian's etcd-server and mosquitto"]
fn a_store_that_is_not_of_the_cluster_keeps_its_first_instance_from_starting() {
    let place = Place::new();
    let (_broker, url) = mosquitto(&place);
    let etcd = EtcdCluster::start(&place, 1);
    let other = StreamedProcess::start(&mut place.command(&["store", "-v", "-b", &url]));
    while !other.log_line().starts_with("serving ") {}
    let urls = etcd.urls().join(",");
    let shown = place.run(&["store", "-b", &url, "-i", "one", "--instance", "one", "--etcd", &urls]);
    assert!(shown.contains("error: another state store answers at 127.0.0.1:"), "{shown}");
    assert!(shown.contains("hint: ") && shown.ends_with("--- exit 69\n"), "{shown}");
}
