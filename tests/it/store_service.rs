//! `mqkv store`: the state store behind a broker that has none.

use nix::sys::signal::Signal;

use super::common::plain_broker::PlainBroker;
use super::common::wire::{self, Publish};
use super::common::{Place, RawClient, Relay, Server, StreamedProcess};
use super::mosquitto::{mosquitto, mosquitto_again, mosquitto_at};

const REQUEST: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

/// A running `mqkv store`; killed when dropped.
pub(super) struct Store {
    process: StreamedProcess,
    ready: String,
}

impl Store {
    /// Starts a store at a broker and waits until it serves.
    pub(super) fn start(place: &Place, url: &str, options: &[&str]) -> Self {
        let words = [&["store", "-v", "-b", url], options].concat();
        let process = StreamedProcess::start(&mut place.command(&words));
        loop {
            let line = process.log_line();
            if line.starts_with("serving ") {
                return Self { process, ready: line };
            }
        }
    }

    fn log_line_with(&self, text: &str) -> String {
        loop {
            let line = self.process.log_line();
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Stops the store and returns its exit code.
    fn stop(self) -> Option<i32> {
        self.process.signal(Signal::SIGTERM);
        self.process.end().2
    }
}

/// Sends SET, GET, DEL, a condition, a lock and a listing through a broker.
fn check_verbs(place: &Place, url: &str) {
    let run = |words: &[&str]| place.run_at(url, words);
    assert_eq!(run(&["set", "line1/temp", "21.5"]), "--- exit 0\n");
    assert_eq!(place.bytes_at(url, &["get", "line1/temp"]), b"21.5");
    assert!(run(&["set", "line1/temp", "1", "--nx"]).ends_with("--- exit 1\n"));
    assert_eq!(run(&["keys", "line*"]), "--- stdout\nline1/temp\n--- exit 0\n");
    assert_eq!(run(&["lock", "jobs", "--", "true"]), "--- exit 0\n");
    assert_eq!(run(&["del", "line1/temp", "-q"]), "--- exit 0\n");
    assert!(run(&["get", "line1/temp"]).ends_with("--- exit 1\n"));
    let lines: Vec<String> = (0..2_000).map(|number| format!("set bulk/{number} {number}\n")).collect();
    let words = ["batch", "-", "-q", "-b", url];
    let batch = place.run_with_input(&words, lines.concat().as_bytes());
    assert!(batch.ends_with("--- exit 0\n"), "{batch}");
    assert_eq!(run(&["keys", "bulk/*", "--count"]), "--- stdout\n2000\n--- exit 0\n");
}

#[test]
fn a_store_behind_a_broker_serves_all_verbs_and_stops_with_success() {
    let place = Place::new();
    let broker = PlainBroker::start();
    let none = place.run_at(&broker.url(), &["get", "k"]);
    assert!(none.contains("no state store at") && none.ends_with("--- exit 69\n"), "{none}");
    let store = Store::start(&place, &broker.url(), &[]);
    assert!(store.ready.contains(REQUEST) && store.ready.contains("clients as claimed, in memory"));
    check_verbs(&place, &broker.url());
    assert_eq!(store.stop(), Some(0));
    assert!(place.run_at(&broker.url(), &["get", "k"]).ends_with("--- exit 69\n"));
}

#[test]
fn watchers_behind_a_broker_get_each_change() {
    let place = Place::new();
    let broker = PlainBroker::start();
    let _store = Store::start(&place, &broker.url(), &[]);
    let watch = StreamedProcess::start(&mut place.command(&["watch", "k", "-b", &broker.url()]));
    watch.line();
    assert_eq!(place.run_at(&broker.url(), &["set", "k", "1"]), "--- exit 0\n");
    assert!(watch.line().ends_with("SET\tk\t1"));
    assert_eq!(place.run_at(&broker.url(), &["set", "k", "2", "--ttl", "100ms"]), "--- exit 0\n");
    assert!(watch.line().ends_with("SET\tk\t2"));
    assert!(watch.line().ends_with("DELETE\tk"), "the store notifies of an expiry by itself");
}

#[test]
fn a_second_store_at_a_broker_does_not_start() {
    let place = Place::new();
    let broker = PlainBroker::start();
    let store = Store::start(&place, &broker.url(), &[]);
    let second = place.run(&["store", "-b", &broker.url()]);
    assert!(second.contains("another state store answers at 127.0.0.1:"), "{second}");
    assert!(second.ends_with("--- exit 69\n"), "{second}");
    assert_eq!(place.run_at(&broker.url(), &["set", "k", "v"]), "--- exit 0\n", "the first one still serves");
    drop(store);
    let own = Server::start(&place, &["-q"]);
    assert!(place.run(&["store", "-b", &own.url()]).ends_with("--- exit 69\n"), "serve has a store itself");
}

#[test]
fn data_in_a_directory_is_there_after_a_restart_of_the_store() {
    let place = Place::new();
    let broker = PlainBroker::start();
    let store = Store::start(&place, &broker.url(), &["--data", "state"]);
    assert_eq!(place.run_at(&broker.url(), &["set", "k", "v"]), "--- exit 0\n");
    assert!(store.ready.contains("persistent in state"), "{}", store.ready);
    drop(store);
    let _store = Store::start(&place, &broker.url(), &["--data", "state"]);
    assert_eq!(place.bytes_at(&broker.url(), &["get", "k"]), b"v");
}

#[test]
fn a_store_connects_again_after_its_broker_was_restarted() {
    let place = Place::new();
    let mut broker = PlainBroker::start();
    let store = Store::start(&place, &broker.url(), &[]);
    assert_eq!(place.run_at(&broker.url(), &["set", "k", "v"]), "--- exit 0\n");
    broker.restart();
    store.log_line_with("no connection to 127.0.0.1:");
    store.log_line_with("again without its session: requests may be lost");
    assert_eq!(place.bytes_at(&broker.url(), &["get", "k"]), b"v");
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn the_first_session_continues_after_a_restart_of_mosquitto() {
    let place = Place::new();
    let folder = place.path("").display().to_string();
    let (broker, [port]) = mosquitto_at(&place, |[port]| {
        format!(
            "listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location {folder}\n"
        )
    });
    let store = Store::start(&place, &format!("mqtt://127.0.0.1:{port}"), &[]);
    broker.terminate();
    let _broker = mosquitto_again(&place, &[port]);
    store.log_line_with("its session has continued");
}

#[test]
fn requests_during_a_lost_connection_are_answered_once_the_session_continues() {
    let place = Place::new();
    let broker = PlainBroker::start();
    let relay = Relay::start(broker.port());
    let store = Store::start(&place, &relay.url(), &["--keep-alive", "1s"]);
    relay.cut();
    store.log_line_with("no connection to 127.0.0.1:");
    let url = broker.url();
    let words = ["set", "k", "v", "-b", &url, "--timeout", "60s"];
    let pending = StreamedProcess::start(&mut place.command(&words));
    relay.restore();
    store.log_line_with("its session has continued");
    assert_eq!(pending.end().2, Some(0));
    assert_eq!(place.bytes_at(&broker.url(), &["get", "k"]), b"v");
}

/// A client of the broker that sends requests itself.
struct Requester {
    client: RawClient,
    next: u16,
    topic: &'static str,
    response: String,
}

impl Requester {
    fn connect(broker: &PlainBroker, id: &str, topic: &'static str) -> Self {
        let mut client = RawClient::connect(broker.port());
        client.send(&wire::connect(id));
        assert_eq!(client.receive().unwrap().name(), "CONNACK");
        let response = format!("clients/{id}/services/{REQUEST}/response");
        client.send(&wire::subscribe(1, &response));
        assert_eq!(client.receive().unwrap().name(), "SUBACK");
        Self { client, next: 2, topic, response }
    }

    fn send(&mut self, payload: &str, properties: &[(&str, &str)]) {
        let user_properties =
            properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let publish = Publish {
            topic: self.topic.to_owned(),
            packet_id: self.next,
            response_topic: self.response.clone(),
            correlation: self.next.to_be_bytes().to_vec(),
            user_properties,
            payload: payload.as_bytes().to_vec(),
        };
        self.client.send(&publish.encode());
        self.next += 1;
    }

    /// Waits for the next response or notification.
    fn answer(&mut self) -> String {
        loop {
            let packet = self.client.receive().unwrap();
            if packet.name() == "PUBLISH" {
                let publish = Publish::decode(&packet);
                self.client.send(&wire::puback(publish.packet_id, 0));
                return String::from_utf8(publish.payload).unwrap();
            }
        }
    }
}

const GET: &str = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
const WATCH: &str = "*2\r\n$9\r\nKEYNOTIFY\r\n$1\r\nk\r\n";

#[test]
fn a_request_whose_clients_disagree_is_dropped_and_reported() {
    let place = Place::new();
    let broker = PlainBroker::start();
    let store = Store::start(&place, &broker.url(), &[]);
    let mut client = Requester::connect(&broker, "press-7", REQUEST);
    client.send(GET, &[("__srcId", "press-8")]);
    let line = store.log_line_with("is dropped");
    assert!(line.contains("its response topic and its __srcId name different clients"), "{line}");
    client.send(GET, &[("__srcId", "press-7")]);
    assert_eq!(client.answer(), "$-1\r\n");
}

#[test]
fn the_watches_of_a_client_end_when_the_broker_has_no_subscription_for_its_notifications() {
    let place = Place::new();
    let broker = PlainBroker::start();
    let store = Store::start(&place, &broker.url(), &[]);
    let mut client = Requester::connect(&broker, "press-7", REQUEST);
    client.send(WATCH, &[]);
    assert_eq!(client.answer(), "+OK\r\n");
    assert_eq!(place.run_at(&broker.url(), &["set", "k", "v"]), "--- exit 0\n");
    store.log_line_with("press-7 has no subscription to the notifications of k: its watch has ended");
    client.send(GET, &[]);
    assert_eq!(client.answer(), "$1\r\nv\r\n", "it is a client again");
}

#[test]
fn with_a_topic_for_each_client_the_rules_apply_to_the_client_of_the_topic() {
    let place = Place::new();
    let broker = PlainBroker::start();
    place.write(
        "rules",
        "rules:\n- principals: {clientIds: [press-7]}\n  brokerResources:\n  - {method: Publish, topics: [\"clients/#\"]}\n  \
         stateStoreResources:\n  - {method: Read, keyType: Pattern, keys: [\"*\"]}\n",
    );
    let options = ["--requests", "mqkv/in/+", "--authz", "rules"];
    let store = Store::start(&place, &broker.url(), &options);
    assert!(store.ready.contains("mqkv/in/+, clients by topic"), "{}", store.ready);
    let mut allowed = Requester::connect(&broker, "press-7", "mqkv/in/press-7");
    allowed.send(GET, &[]);
    assert_eq!(allowed.answer(), "$-1\r\n");
    let mut other = Requester::connect(&broker, "press-7b", "mqkv/in/press-8");
    other.send(GET, &[("__srcId", "press-7")]);
    store.log_line_with("press-8 may not have its answer published to");
    place.write(
        "rules",
        "rules:\n- principals: {clientIds: [unknown]}\n  brokerResources:\n  - method: Connect\n",
    );
    store.process.signal(Signal::SIGHUP);
    store.log_line_with("rules reloaded: 1");
    allowed.send(GET, &[]);
    store.log_line_with("press-7 may not have its answer published to");
}

#[test]
fn options_that_contradict_each_other_and_unreachable_brokers_are_reported() {
    let place = Place::new();
    let usage = place.run(&["store", "-b", "mqtt://127.0.0.1:1", "--authz", "rules"]);
    assert!(
        usage.contains("--authz requires --identity topic") && usage.ends_with("--- exit 2\n"),
        "{usage}"
    );
    let embedded = place.run(&["store", "--embedded"]);
    assert!(embedded.ends_with("--- exit 2\n"), "{embedded}");
    let shared = place.run(&["store", "--requests", "$share/a/b"]);
    assert!(shared.contains("shared subscription") && shared.ends_with("--- exit 2\n"), "{shared}");
    let refused = place.run(&["store", "-b", "mqtt://127.0.0.1:1"]);
    assert!(refused.contains("refused") && refused.ends_with("--- exit 69\n"), "{refused}");
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn a_store_behind_mosquitto_serves_all_verbs_and_watchers() {
    let place = Place::new();
    let (_broker, url) = mosquitto(&place);
    let store = Store::start(&place, &url, &["--data", "state"]);
    check_verbs(&place, &url);
    let watch = StreamedProcess::start(&mut place.command(&["watch", "k", "-b", &url]));
    watch.line();
    assert_eq!(place.run_at(&url, &["set", "k", "1"]), "--- exit 0\n");
    assert!(watch.line().ends_with("SET\tk\t1"));
    let bench = place.run_at(&url, &["bench", "mix", "--count", "2000", "--inflight", "64", "-q"]);
    assert!(bench.ends_with("--- exit 0\n"), "{bench}");
    assert_eq!(store.stop(), Some(0));
}
