//! `monitor`: the traffic of other processes that it shows, and its exit.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // a panic here is a failed test

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::Command;

use mqkv::client::{Client, SetOptions, Settings, Target};
use mqkv::net::runtime_thread::RuntimeThread;
use mqkv::protocol::{Key, Value};

use nix::sys::signal::Signal;

use super::common::bounded::wait_for_exit;
use super::common::{
    ConnectionScript, Place, Server, StreamedProcess, subscription_broker, wire::publish_qos_0,
};
use crate::a_watchdog::bounded;

const REQUEST: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

fn monitor(place: &Place, url: &str, words: &[&str]) -> Command {
    place.command(&[&["monitor", "-b", url], words].concat())
}

/// Starts a monitor and waits until its subscriptions are granted.
fn listening(place: &Place, url: &str, words: &[&str]) -> StreamedProcess {
    let follow = StreamedProcess::start(&mut monitor(place, url, words));
    let line = follow.error_line();
    assert!(line.starts_with("listening at 127.0.0.1:"), "{line}");
    follow
}

/// Returns the columns without the time, and with versions and milliseconds replaced.
fn masked(line: &str) -> String {
    let mut columns: Vec<_> = line.split('\t').map(str::to_owned).collect();
    assert_eq!(columns.len(), 11, "{line}");
    assert_eq!(columns[0].len(), "0000-00-00T00:00:00.000Z".len(), "{line}");
    if !columns[7].is_empty() {
        assert!(columns[7].ends_with(":StateStore"), "{line}");
        columns[7] = "VERSION".to_owned();
    }
    if !columns[9].is_empty() {
        assert!(columns[9].parse::<f64>().unwrap() >= 0.0, "{line}");
        columns[9] = "MS".to_owned();
    }
    columns[1..].join("|")
}

fn client(url: &str, client_id: &str) -> (RuntimeThread, Client) {
    let (host, port) = url.strip_prefix("mqtt://").unwrap().split_once(':').unwrap();
    let target = Target::Tcp { host: host.to_owned(), port: port.parse().unwrap() };
    let runtime = RuntimeThread::start("client").unwrap();
    let client =
        runtime.handle().block_on(Client::connect(Settings::new(target, client_id.to_owned()))).unwrap();
    (runtime, client)
}

#[test]
fn requests_and_responses_of_other_processes_are_shown_in_order() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let url = server.url();
    let follow = listening(&place, &url, &["-c", "14"]);
    for words in [
        &["set", "k", "21.5", "--ttl", "30s", "--persist"][..],
        &["get", "k"],
        &["set", "k", "x", "--nx"],
        &["set", "f", "\x1b[2J", "--fence", "1:0:n"],
        &["set", "f", "y"],
        &["del", "k"],
        &["raw", "NONSENSE", "a"],
    ] {
        // A client id may contain slashes.
        place.run(&[&["-b", &url, "-i", "plc/7"], words].concat());
    }
    let (lines, words, code) = follow.end();
    assert_eq!((words, code), (Vec::new(), Some(0)));
    assert_eq!(
        lines.iter().map(|line| masked(line)).collect::<Vec<_>>(),
        [
            "REQUEST|plc/7|SET|k|PX 30000 persist|4||||21.5",
            "REPLY|plc/7|SET|k|OK||VERSION||MS|",
            "REQUEST|plc/7|GET|k||||||",
            "REPLY|plc/7|GET|k||4|VERSION||MS|21.5",
            "REQUEST|plc/7|SET|k|NX|1||||x",
            "REPLY|plc/7|SET|k|not applied||VERSION||MS|",
            "REQUEST|plc/7|SET|f||4||000000000000001:00000:n||\\x1B[2J",
            "REPLY|plc/7|SET|f|OK||VERSION||MS|",
            "REQUEST|plc/7|SET|f||1||||y",
            "REPLY|plc/7|SET|f|refused: a fencing token is required for this request||||MS|",
            "REQUEST|plc/7|DEL|k||||||",
            "REPLY|plc/7|DEL|k|deleted||VERSION||MS|",
            "REQUEST|plc/7|||invalid request: unknown command|25||||*2\\x0D\\x0A$8\\x0D\\x0ANONSENSE\\x0D\\x0A$1\\x0D\\x0Aa\\x0D\\x0A",
            "REPLY|plc/7|||refused: unknown command||||MS|",
        ]
    );
}

#[test]
fn notifications_are_shown_and_other_keys_can_be_filtered_out() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let url = server.url();
    let follow = listening(&place, &url, &["--key", "line1/*"]);
    let mut watch = place.command(&["watch", "line1/temp", "other", "-b", &url, "-i", "w"]);
    let watch = StreamedProcess::start(&mut watch);
    for _ in 0..2 {
        watch.line();
    }
    let first: Vec<_> = (0..4).map(|_| masked(&follow.line())).collect();
    assert!(first.contains(&"REQUEST|w|KEYNOTIFY|line1/temp||||||".to_owned()), "{first:?}");
    assert!(first.contains(&"REPLY|w|GET|line1/temp|key not found||||MS|".to_owned()), "{first:?}");
    drop(follow);
    let follow = listening(&place, &url, &["--client", "w", "-c", "2"]);
    for words in [["set", "line1/temp", "1"], ["del", "line1/temp", "-q"]] {
        place.run(&[&["-b", &url], &words[..]].concat());
    }
    let (lines, _, code) = follow.end();
    assert_eq!(
        lines.iter().map(|line| masked(line)).collect::<Vec<_>>(),
        ["NOTIFY|w|SET|line1/temp||1|VERSION|||1", "NOTIFY|w|DELETE|line1/temp|||VERSION|||"]
    );
    assert_eq!(code, Some(0));
}

#[test]
fn many_requests_are_json_lines_in_order_each_with_its_reply() {
    const COUNT: usize = 500;
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let url = server.url();
    let follow = StreamedProcess::start(&mut monitor(&place, &url, &["-j", "-c", &(2 * COUNT).to_string()]));
    assert!(follow.line().contains("\"event\":\"listening\""));
    let (runtime, writer) = client(&url, "w");
    runtime.handle().block_on(async {
        let sets = (0..COUNT).map(|number| {
            let writer = writer.clone();
            let key = Key::new(number.to_string()).unwrap();
            async move { writer.set(&key, &Value::from("v"), SetOptions::default()).await.unwrap() }
        });
        let mut running = tokio::task::JoinSet::new();
        sets.for_each(|set| drop(running.spawn(set)));
        running.join_all().await;
        writer.close().await;
    });
    let (lines, words, code) = follow.end();
    assert_eq!((lines.len(), words, code), (2 * COUNT, Vec::new(), Some(0)));
    let mut requested = VecDeque::new();
    let mut keys: Vec<usize> = Vec::new();
    for (line, seq) in lines.iter().zip(1..) {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| record[name].as_str().unwrap().to_owned();
        assert_eq!((record["v"].as_u64(), record["seq"].as_u64()), (Some(1), Some(seq)));
        match text("event").as_str() {
            "request" => {
                keys.push(text("key").parse().unwrap());
                requested.push_back((text("correlation"), text("key")));
            }
            "reply" => {
                let answered = (text("correlation"), text("key"));
                assert_eq!((requested.pop_front(), text("reply")), (Some(answered), "done".into()));
                assert!(record["ms"].is_number() && record["version"].is_string());
            }
            other => panic!("{other}"),
        }
    }
    assert!(requested.is_empty());
    keys.sort_unstable();
    assert_eq!(keys, (0..COUNT).collect::<Vec<_>>());
}

fn refuse_all(_: &str) -> u8 {
    0x87
}

fn refuse_clients(filter: &str) -> u8 {
    if filter == "clients/#" { 0x87 } else { 1 }
}

fn refuse_wide_and_any(filter: &str) -> u8 {
    if filter == "clients/#" || filter.contains("_any_") { 0x87 } else { 1 }
}

fn grant(_: &str) -> u8 {
    1
}

fn script(suback_reason: fn(&str) -> u8, subscriptions: usize) -> ConnectionScript {
    ConnectionScript { suback_reason, subscriptions, publishes: Vec::new(), stays_connected: true }
}

#[test]
fn a_rejected_subscription_exits_with_77_and_names_the_topic() {
    let place = Place::new();
    for (suback_reason, count, filter) in [
        (refuse_all as fn(&str) -> u8, 2, REQUEST),
        (refuse_wide_and_any, 8, "clients/+/services/statestore/_any_/command/invoke/response"),
    ] {
        let url = subscription_broker(vec![script(suback_reason, count)]);
        assert_eq!(
            place.run(&["monitor", "-b", &url]),
            format!(
                "--- stderr\nerror: the broker refused the subscription to {filter}: not authorized (0x87)\n\
                 hint: this client id (-i) needs the permission to subscribe; \
                 see `mqkv monitor --help` for all topics\n--- exit 77\n"
            )
        );
    }
}

#[test]
fn without_permission_for_all_clients_the_topics_of_the_sdks_are_shown() {
    let place = Place::new();
    let response = "clients/c/services/statestore/_any_/command/invoke/response";
    let publishes = publish_qos_0(response, b"-ERR syntax error\r\n");
    let url = subscription_broker(vec![ConnectionScript { publishes, ..script(refuse_clients, 8) }]);
    let follow = StreamedProcess::start(&mut monitor(&place, &url, &["-c", "1"]));
    assert_eq!(
        follow.error_line(),
        "the broker refused the subscription to clients/#: not authorized (0x87); \
         only replies on the topics of the SDKs are visible"
    );
    assert!(follow.error_line().ends_with(&format!("/command/invoke/response, clients/+/{REQUEST}")));
    let (lines, _, code) = follow.end();
    assert_eq!(masked(&lines[0]), "REPLY|c|||refused: syntax error, request not seen|||||");
    assert_eq!(code, Some(0));
}

#[test]
fn a_lost_connection_is_reported_at_once_and_its_gap_after_the_reconnect() {
    let place = Place::new();
    let publishes = publish_qos_0("clients/c/statestore/_any_/command/invoke", b"+OK\r\n");
    let lost = ConnectionScript { stays_connected: false, ..script(grant, 2) };
    let url = subscription_broker(vec![lost, ConnectionScript { publishes, ..script(grant, 2) }]);
    let follow = listening(&place, &url, &["-c", "1"]);
    assert!(follow.error_line().starts_with("connection lost: "));
    let gap = follow.line();
    assert!(gap.contains("\tGAP\t"), "{gap}");
    assert_eq!(masked(&follow.line()), "REPLY|c|||OK, request not seen|||||");
    assert_eq!(follow.end().2, Some(0));
}

#[test]
fn a_closed_pipe_ends_the_monitor_without_an_error_even_without_traffic() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let mut child = monitor(&place, &server.url(), &[]).spawn().unwrap();
    let mut words = BufReader::new(child.stderr.take().unwrap());
    bounded(|| words.read_line(&mut String::new())).unwrap();
    drop(child.stdout.take());
    assert_eq!(wait_for_exit(&mut child).code(), Some(0));
    let mut rest = String::new();
    bounded(|| words.read_to_string(&mut rest)).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn signals_end_the_monitor_with_their_exit_codes() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let follow = listening(&place, &server.url(), &[]);
        follow.signal(signal);
        assert_eq!(follow.end(), (Vec::new(), Vec::new(), Some(code)));
    }
}

#[test]
fn a_timeout_exits_with_0_or_with_124_if_records_are_missing() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let url = server.url();
    assert_eq!(place.run(&["monitor", "-b", &url, "-q", "-w", "10ms"]), "--- exit 0\n");
    assert_eq!(
        place.run(&["monitor", "-b", &url, "-q", "-w", "10ms", "-c", "2"]),
        "--- stderr\nerror: timed out after 10ms: 0 of 2 records received\n--- exit 124\n"
    );
}
