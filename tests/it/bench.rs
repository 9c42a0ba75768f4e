//! `bench`: what it counts, what it leaves behind, and how it ends when the broker fails.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use mqkv::protocol::Request;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::common::fake_broker::FakeBrokers;
use super::common::wire::{self, Publish};
use super::common::{CTRL_C, Exit, Place, Process, Server, Terminal, wait_until};
use crate::a_watchdog::bounded;

/// One client and one key, so that the requests have one order.
const ALONE: &str = "--clients 1 --inflight 1 --keys 1 --warmup 0";
/// Instead of an answer: the connection is closed.
const CLOSE: &str = "close";
/// The requests that prepare such a bench: a GET and a SET.
const PREPARED: usize = 2;

/// Runs `bench` with these words.
fn run(place: &Place, line: &str) -> Exit {
    let words: Vec<&str> = line.split_whitespace().collect();
    Process::start(place.command(&[&["bench"], &words[..]].concat())).end()
}

/// Runs `bench -j` and returns its record, its errors, and its exit code.
#[track_caller]
fn record(place: &Place, line: &str) -> (Value, Vec<Value>, Option<i32>) {
    let exit = run(place, &format!("-j {line}"));
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{exit:?}"));
    let records: Vec<Value> = exit.output.lines().map(parse).collect();
    let [record] = records.as_slice() else { panic!("{exit:?}") };
    (record.clone(), exit.errors.lines().map(parse).collect(), exit.code)
}

/// CONNACK with a Receive Maximum of 1.
const RECEIVE_MAXIMUM_1: &[u8] = &[0x21, 0, 1];

/// A store for any number of connections.
struct Store {
    broker: FakeBrokers,
    log: Arc<Mutex<Log>>,
}

/// What a store has received.
#[derive(Default)]
struct Log {
    /// The requests, each with the number of its connection, which counts from 1.
    requests: Vec<(usize, Request)>,
    /// The connections that have ended.
    ended: BTreeSet<usize>,
}

impl Store {
    /// Starts a store. `answer` gets the number of each request, from 1, and returns None for no answer, or [`CLOSE`].
    fn start(answer: impl FnMut(usize, &Request) -> Option<&'static str> + Send + 'static) -> Self {
        let answer = Mutex::new(answer);
        Self::with_properties(&[], move |log, _, request| {
            let mut answer = answer.lock().unwrap();
            let number = log.lock().unwrap().requests.len();
            answer(number, request)
        })
    }

    /// Starts a store with these properties of CONNACK. `answer` runs in a thread of each connection, and gets its number.
    fn with_properties(
        properties: &'static [u8],
        answer: impl Fn(&Mutex<Log>, usize, &Request) -> Option<&'static str> + Send + Sync + 'static,
    ) -> Self {
        let log = Arc::<Mutex<Log>>::default();
        let shared = Arc::clone(&log);
        let broker = FakeBrokers::start(move |at, connection| {
            connection.expect("CONNECT");
            connection.send(&wire::connack(0, properties));
            while let Some(packet) = connection.next() {
                match packet.name() {
                    "SUBSCRIBE" => connection.send(&wire::suback(packet.packet_id(), 1)),
                    "PUBLISH" => {
                        let publish = Publish::decode(&packet);
                        let payload = publish.payload.clone().into();
                        let request = Request::decode(&payload).unwrap();
                        shared.lock().unwrap().requests.push((at, request.clone()));
                        match answer(&shared, at, &request) {
                            Some(CLOSE) => return,
                            Some(payload) => connection.answer(&publish, payload, &[]),
                            None => connection.send(&wire::puback(publish.packet_id, 0)),
                        }
                    }
                    _ => {}
                }
            }
            shared.lock().unwrap().ended.insert(at);
        });
        Self { broker, log }
    }

    fn url(&self) -> String {
        self.broker.url()
    }

    /// Returns the requests so far.
    fn requests(&self) -> Vec<Request> {
        self.log.lock().unwrap().requests.iter().map(|(_, request)| request.clone()).collect()
    }

    /// Returns the numbers of the connections that have sent requests.
    fn connections(&self) -> BTreeSet<usize> {
        self.log.lock().unwrap().requests.iter().map(|(connection, _)| *connection).collect()
    }
}

/// The answer of a store that has every key.
fn ok(request: &Request) -> Option<&'static str> {
    Some(match request {
        Request::Get { .. } => "$1\r\nx\r\n",
        Request::Del { .. } => ":1\r\n",
        _ => "+OK\r\n",
    })
}

#[test]
fn each_workload_performs_the_operations_and_leaves_other_keys_alone() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    place.run_at(&server.url(), &["set", "mqkv-bench/mine", "v"]);
    let url = server.url();
    for (workload, names) in [
        ("set", &["set"][..]),
        ("get", &["get"]),
        ("mix", &["mix", "get", "set"]),
        ("lock", &["lock", "acquire", "release"]),
        ("watch", &["watch", "set"]),
    ] {
        let line = format!("{workload} -c 60 --clients 3 --inflight 2 -b {url}");
        let (record, errors, code) = record(&place, &line);
        assert_eq!((code, errors.len()), (Some(0), 0), "{record} {errors:?}");
        assert_eq!((&record["workload"], &record["answered"]), (&workload.into(), &60.into()), "{record}");
        assert_eq!((&record["failed"], &record["end"]), (&0.into(), &"done".into()), "{record}");
        assert_eq!((&record["clients"], &record["inflight"]), (&3.into(), &2.into()), "{record}");
        let latency = record["latency"].as_object().unwrap();
        assert_eq!(latency.keys().collect::<Vec<_>>(), names, "{record}");
        let parts: u64 = latency.values().skip(1).map(|part| part["count"].as_u64().unwrap()).sum();
        let expected = match workload {
            "lock" => 120,
            "mix" | "watch" => 60,
            _ => 0,
        };
        assert_eq!((&latency[workload]["count"], parts), (&60.into(), expected), "{record}");
        let bands = latency[workload]["bands"].as_array().unwrap();
        assert_eq!(bands.iter().map(|band| band["count"].as_u64().unwrap()).sum::<u64>(), 60, "{record}");
        assert_eq!(record["keys_deleted"], true, "{record}");
        assert_eq!(place.bytes_at(&url, &["keys"]), b"mqkv-bench/mine\n", "{workload}");
    }
}

#[test]
fn an_embedded_store_needs_no_broker_and_the_result_is_a_table() {
    let exit = run(&Place::new(), "set --embedded -c 100 --clients 2 --keys 7 --size 1K");
    assert_eq!((exit.code, exit.errors.as_str()), (Some(0), ""), "{exit:?}");
    let lines: Vec<&str> = exit.output.lines().collect();
    assert_eq!(lines[0], "workload    set, 7 keys, 1024 bytes each");
    assert_eq!(lines[1], "load        2 clients, 1 in flight each");
    assert_eq!(lines[2], "broker      embedded store");
    assert!(lines[4].starts_with("operations  100, "), "{exit:?}");
    assert_eq!(lines[5], "failed      0");
    assert!(lines.iter().any(|line| line.starts_with("latency, ms     count     mean")), "{exit:?}");
    assert!(lines.iter().all(|line| line.len() <= 80), "{exit:?}");
}

#[test]
fn a_time_limit_ends_the_measurement_with_and_without_a_rate() {
    let place = Place::new();
    for line in ["-d 50ms --warmup 10ms", "-d 50ms --warmup 0 --rate 1000"] {
        let (record, _, code) = record(&place, &format!("--embedded --clients 2 {line}"));
        assert_eq!(
            (code, &record["end"], &record["failed"]),
            (Some(0), &"done".into(), &0.into()),
            "{record}"
        );
        assert!(record["answered"].as_u64().unwrap() > 0, "{record}");
        assert_eq!(record["duration_ms"], 50.0, "{record}");
        if line.contains("--rate") {
            assert_eq!((&record["rate"], &record["due"]), (&1000.into(), &50.into()), "{record}");
            let sent = record["answered"].as_u64().unwrap() + record["unsent"].as_u64().unwrap();
            assert_eq!(sent, 50, "{record}");
        }
    }
}

#[test]
fn a_rate_that_is_not_met_is_reported_and_counts_what_was_not_sent() {
    let place = Place::new();
    let line = "--embedded --clients 1 --inflight 1 --warmup 0 -d 100ms --rate 1000000";
    let (record, _, code) = record(&place, line);
    assert_eq!(
        (code, &record["rate_met"], &record["due"]),
        (Some(0), &false.into(), &100_000.into()),
        "{record}"
    );
    let (answered, unsent) = (record["answered"].as_u64().unwrap(), record["unsent"].as_u64().unwrap());
    assert_eq!(
        (answered + unsent, &record["latency"]["mix"]["count"]),
        (100_000, &100_000.into()),
        "{record}"
    );
    let exit = run(&place, line);
    assert!(exit.errors.starts_with("warning: the rate of 1000000 per second was not met: "), "{exit:?}");
    assert!(exit.output.contains("\nnot sent    "), "{exit:?}");
    assert_eq!(exit.code, Some(0), "{exit:?}");
}

#[test]
fn a_99th_percentile_above_the_limit_exits_with_1() {
    let place = Place::new();
    let exit = run(&place, "--embedded -c 50 --clients 1 --max-p99 1us");
    assert!(exit.errors.starts_with("error: the 99th percentile is "), "{exit:?}");
    assert!(exit.errors.ends_with(" ms, above 1us\n"), "{exit:?}");
    assert_eq!(exit.code, Some(1), "{exit:?}");
    let (record, errors, code) = record(&place, "--embedded -c 50 --clients 1 --max-p99 1h");
    assert_eq!((code, errors.len(), &record["p99_met"]), (Some(0), 0, &true.into()), "{record}");
    assert_eq!(record["max_p99_ms"], 3_600_000.0, "{record}");
}

#[test]
fn operations_that_the_store_refuses_are_counted_and_exit_with_76() {
    let fake = Store::start(|number, request| match number {
        4 | 5 => Some("-ERR quota exceeded\r\n"),
        _ => ok(request),
    });
    let (record, errors, code) = record(&Place::new(), &format!("set -c 6 {ALONE} -b {}", fake.url()));
    assert_eq!((code, &record["answered"], &record["failed"]), (Some(76), &4.into(), &2.into()), "{record}");
    assert_eq!((&record["end"], &record["latency"]["set"]["count"]), (&"done".into(), &4.into()), "{record}");
    let failure = &record["failures"][0];
    assert_eq!((&failure["kind"], &failure["count"]), (&"refused".into(), &2.into()), "{record}");
    let message = "2 operations failed: the store refused the request: quota exceeded";
    assert_eq!(errors[0]["error"]["message"], message);
    let requests = fake.requests();
    assert!(matches!(requests.last(), Some(Request::Del { .. })), "{requests:?}");
    let ttls = requests.iter().filter_map(|request| match request {
        Request::Set { ttl_ms, .. } => Some(ttl_ms.is_some()),
        _ => None,
    });
    assert_eq!(ttls.collect::<Vec<_>>(), [true; 7], "every SET has an expiry");
}

#[test]
fn a_store_that_refuses_the_keys_is_not_measured() {
    let fake = Store::start(|_, request| match request {
        Request::Set { .. } => Some("-ERR quota exceeded\r\n"),
        request => ok(request),
    });
    let exit = run(&Place::new(), &format!("set -c 6 {ALONE} -b {}", fake.url()));
    assert_eq!((exit.code, exit.output.as_str()), (Some(76), ""), "{exit:?}");
    assert!(exit.errors.starts_with("error: the store refused the request: quota exceeded\n"), "{exit:?}");
    assert!(matches!(fake.requests().last(), Some(Request::Del { .. })));
}

#[test]
fn a_store_that_stops_answering_ends_the_bench_with_124() {
    let fake = Store::start(|number, request| ok(request).filter(|_| number <= PREPARED + 3));
    let line = format!("set -c 1000 {ALONE} --timeout 2s -b {}", fake.url());
    let exit = run(&Place::new(), &line);
    assert_eq!(exit.code, Some(124), "{exit:?}");
    assert!(exit.output.contains("; ended early: no answer\noperations  3, "), "{exit:?}");
    assert!(exit.output.contains("\nfailed      1\n         1  timeout: no answer from "), "{exit:?}");
    assert!(exit.output.contains("\nset                 4 "), "a timeout has a latency: {exit:?}");
    assert!(
        exit.errors.contains("* may be left: the store does not answer; they expire within 1d\n"),
        "{exit:?}"
    );
    assert!(exit.errors.contains("error: 1 operation failed: no answer from "), "{exit:?}");
    assert_eq!(fake.requests().len(), PREPARED + 4);
}

#[test]
fn a_lost_connection_ends_the_bench_with_69_and_what_was_measured_is_printed() {
    let fake = Store::start(|number, request| if number == PREPARED + 4 { Some(CLOSE) } else { ok(request) });
    let (record, errors, code) = record(&Place::new(), &format!("set -d 1h {ALONE} -b {}", fake.url()));
    assert_eq!((code, &record["answered"], &record["failed"]), (Some(69), &3.into(), &1.into()), "{record}");
    assert_eq!(
        (&record["end"], &record["failures"][0]["kind"]),
        (&"failed".into(), &"unavailable".into()),
        "{record}"
    );
    assert_eq!((&record["keys_deleted"], &record["unanswered"]), (&false.into(), &0.into()), "{record}");
    assert_eq!(errors[0]["error"]["code"], 69);
    let cause = record["keys_left_because"].as_str().unwrap();
    assert!(cause.starts_with("lost the connection to "), "the lost SET may come later: {record}");
    let requests = fake.requests();
    assert!(matches!(requests.last(), Some(Request::Del { .. })), "on a second connection: {requests:?}");
}

#[test]
fn a_missing_notification_is_a_timeout() {
    let fake = Store::start(|_, request| match request {
        Request::Get { .. } => Some("$-1\r\n"),
        request => ok(request),
    });
    let line = "watch -c 3 --clients 1 --warmup 0 --timeout 1s -b";
    let (record, _, code) = record(&Place::new(), &format!("{line} {}", fake.url()));
    assert_eq!(
        (code, &record["answered"], &record["end"]),
        (Some(124), &0.into(), &"unanswered".into()),
        "{record}"
    );
    assert_eq!(record["failures"][0]["message"], "no notification of a SET within 1s", "{record}");
}

#[test]
fn a_key_that_another_client_deletes_is_an_answer_of_no() {
    let fake = Store::start(|number, request| match request {
        Request::Get { .. } if number == 5 => Some("$-1\r\n"),
        request => ok(request),
    });
    let exit = run(&Place::new(), &format!("get -c 10 {ALONE} -b {}", fake.url()));
    assert_eq!(exit.code, Some(1), "{exit:?}");
    assert_eq!(exit.errors, "error: negative answer to 1 operation: a key was deleted or has expired\n");
    assert!(exit.output.contains("operations  9, "), "{exit:?}");
}

/// The number of the request that [`store_with_notice`] reports: after those of a short bench before.
const NOTICED: usize = 20;

/// A store that reports when it has received a request in the middle of the measurement.
fn store_with_notice() -> (Store, Receiver<()>) {
    let (begins, begun) = channel();
    let fake = Store::start(move |number, request| {
        if number == NOTICED {
            begins.send(()).unwrap();
        }
        ok(request)
    });
    (fake, begun)
}

#[test]
fn a_signal_ends_the_bench_prints_what_was_measured_and_deletes_the_keys() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let (fake, begun) = store_with_notice();
        let mut process = start_set(&format!("{ALONE} -j"), &fake, &begun);
        process.signal(signal);
        let exit = process.end();
        assert_eq!((exit.code, exit.errors.as_str()), (Some(code), ""), "{exit:?}");
        let record: Value = serde_json::from_str(&exit.output).unwrap();
        assert_eq!(
            (&record["end"], &record["keys_deleted"]),
            (&"interrupted".into(), &true.into()),
            "{record}"
        );
        assert!(record["answered"].as_u64().unwrap() >= 8, "{record}");
        assert!(matches!(fake.requests().last(), Some(Request::Del { .. })));
    }
}

#[test]
fn invalid_settings_are_usage_errors() {
    let place = Place::new();
    for (line, message) in [
        ("lock --keys 5", "error: lock has no --keys: each operation in flight has its own\n"),
        ("lock --size 5B", "error: lock has no --size: the value is the holder's name\n"),
        ("--size 5", "a size below 1024 bytes needs a unit: 5B, 5K, 5M or 5G"),
        ("--size 300M", "error: a value has at most 268173312 bytes\n"),
        ("-d 5", "a duration needs a unit, for example 5s"),
        ("-d 5s -c 1", "cannot be used with"),
        (
            "--clients 10000 --inflight 10",
            "error: too many operations in flight: --clients 10000 with --inflight 10\n",
        ),
        ("--rate 0", "expected a number from 1 to 1000000"),
        ("scan", "invalid value 'scan'"),
    ] {
        let exit = run(&place, line);
        assert_eq!((exit.code, exit.output.as_str()), (Some(2), ""), "{line}: {exit:?}");
        assert!(exit.errors.contains(message), "{line}: {exit:?}");
    }
}

#[test]
fn a_read_only_context_refuses_it() {
    let place = Place::new();
    place.run(&["context", "add", "prod", "-b", "mqtt://127.0.0.1:1", "--read-only"]);
    let exit = run(&place, "get -x prod");
    assert_eq!(exit.code, Some(78), "{exit:?}");
    assert!(exit.errors.starts_with("error: the context prod is read-only\n"), "{exit:?}");
}

#[test]
fn on_a_terminal_a_line_shows_the_progress_and_ctrl_c_ends_it_and_erases_the_line() {
    for columns in [60, 80] {
        let (fake, begun) = store_with_notice();
        let line = format!("bench set -d 1h {ALONE} -b {}", fake.url());
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut terminal = Terminal::of_size(Place::new().command(&words), 60, columns);
        bounded(|| begun.recv()).unwrap();
        let screen = terminal
            .wait_for("the progress", |screen| screen.contains("   0%  ") && screen.contains("/s  p99 "));
        assert_eq!(screen.lines().count(), 1, "{screen}");
        terminal.keys(CTRL_C);
        let screen = terminal.shows("; interrupted\noperations  ");
        assert!(screen.starts_with("workload "), "the line and the echo of Ctrl-C are left:\n{screen}");
        assert_eq!(terminal.end(), Some(130));
    }
}

/// Starts a long `bench set`, and waits until the store has reported a SET.
fn start_set(options: &str, fake: &Store, begun: &Receiver<()>) -> Process {
    let line = format!("bench set -d 1h {options} -b {}", fake.url());
    let words: Vec<&str> = line.split_whitespace().collect();
    let process = Process::start(Place::new().command(&words));
    bounded(|| begun.recv()).unwrap();
    process
}

/// A store that answers the second client's SETs only after it has received a DEL. Reports each SET.
fn store_with_sets_in_flight() -> (Store, Receiver<()>) {
    let (begins, begun) = channel();
    let fake = Store::with_properties(RECEIVE_MAXIMUM_1, move |log, connection, request| {
        match request {
            Request::Set { .. } if connection == 2 => {
                let _ = begins.send(());
                let is_del = |(_, request): &(usize, Request)| matches!(request, Request::Del { .. });
                wait_until("DEL", || log.lock().unwrap().requests.iter().any(is_del).then_some(()));
            }
            Request::Del { .. } => {
                wait_until("the second client's end", || log.lock().unwrap().ended.get(&2).copied());
            }
            _ => {}
        }
        ok(request)
    });
    (fake, begun)
}

#[test]
fn clients_are_closed_before_the_keys_are_deleted_and_keys_may_be_left_if_operations_are_in_flight() {
    let (fake, begun) = store_with_sets_in_flight();
    let mut process = start_set("--clients 2 --inflight 8 --keys 1 --warmup 0 -j", &fake, &begun);
    process.signal(Signal::SIGINT);
    let exit = process.end();
    assert_eq!((exit.code, exit.errors.as_str()), (Some(130), ""), "{exit:?}");
    let record: Value = serde_json::from_str(&exit.output).unwrap();
    assert_eq!(record["keys_deleted"], false, "{record}");
    assert_eq!(record["keys_left_because"], "operations in flight were not answered", "{record}");
    assert!(matches!(fake.requests().last(), Some(Request::Del { .. })), "{exit:?}");
}

#[test]
fn a_second_signal_ends_it_without_a_deletion() {
    let (fake, begun) = store_with_sets_in_flight();
    let mut process = start_set("--clients 2 --inflight 8 --keys 1 --warmup 0", &fake, &begun);
    // Two different ones: a second SIGINT before the first is handled would be lost.
    process.signal(Signal::SIGINT);
    process.signal(Signal::SIGTERM);
    let exit = process.end();
    assert!(matches!(exit.code, Some(130 | 143)), "{exit:?}");
    assert!(exit.errors.contains("/* may be left: interrupted; they expire within 1h 10m\n"), "{exit:?}");
    assert!(!fake.requests().iter().any(|request| matches!(request, Request::Del { .. })));
}

#[test]
fn a_receive_maximum_below_the_operations_in_flight_is_reported() {
    let place = Place::new();
    let fake = Store::with_properties(RECEIVE_MAXIMUM_1, |_, _, request| ok(request));
    let with = |options: &str| format!("{options} -c 20 --clients 1 -b {}", fake.url());
    let (report, errors, code) = record(&place, &with("set --inflight 3"));
    assert_eq!((code, errors.len()), (Some(0), 0), "{report}");
    let figures = |record: &Value| {
        ["inflight", "receive_max", "inflight_met"].map(|name| record[name].to_string()).join(" ")
    };
    assert_eq!(figures(&report), "3 1 false");
    let exit = run(&place, &with("set --inflight 3"));
    let warning = "warning: --inflight 3 is above the broker's Receive Maximum of 1: ";
    assert!(exit.errors.starts_with(warning), "{exit:?}");
    let (report, ..) = record(&place, &with("lock --inflight 1"));
    assert_eq!(figures(&report), "1 1 true");
    // The default of 64 adapts.
    let (report, ..) = record(&place, &with("set --rate 1000"));
    assert_eq!(figures(&report), "1 1 true");
}

#[test]
fn the_prompt_runs_it_with_clients_of_its_own_and_ctrl_c_returns_to_the_prompt() {
    let (fake, begun) = store_with_notice();
    let url = fake.url();
    let prompt = format!("{}>", url.trim_start_matches("mqtt://"));
    let mut terminal = Terminal::start(Place::new().command(&["shell", "-b", &url]));
    terminal.ends_with(&prompt);
    terminal.line(&format!("BENCH set -c 5 {ALONE}"));
    terminal.shows("operations  5, ");
    terminal.ends_with(&prompt);
    terminal.start_command(&format!("bench set -d 1h {ALONE}"));
    bounded(|| begun.recv()).unwrap();
    terminal.keys(CTRL_C);
    let screen = terminal.shows("; interrupted\n");
    assert!(!screen.contains("^Cworkload"), "{screen}");
    terminal.ends_with(&prompt);
    terminal.press_ctrl_d();
    assert_eq!(terminal.end(), Some(0));
    let requests = fake.requests();
    assert!(matches!(requests.last(), Some(Request::Del { .. })), "{requests:?}");
    assert!(!fake.connections().contains(&1), "the session of the prompt has sent requests");
}
