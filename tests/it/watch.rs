//! `watch`: the current values of keys and each change, over real sockets.

use std::fs;
use std::process::Stdio;

use mqkv::client::{Client, SetOptions, Settings, Target};
use mqkv::protocol::Key;
use nix::sys::signal::Signal;

use super::common::{Place, Relay, Server, StreamedProcess, wait_until};
use crate::a_watchdog::bounded;

/// Starts a watch with the arguments `words`.
pub fn watch(place: &Place, url: &str, words: &[&str]) -> StreamedProcess {
    StreamedProcess::start(&mut place.command(&[&["watch", "-b", url], words].concat()))
}

/// Runs a verb that must succeed.
#[track_caller]
pub fn ok(place: &Place, url: &str, words: &[&str]) {
    assert_eq!(place.run(&[words, &["-b", url]].concat()), "--- exit 0\n", "{words:?}");
}

/// Returns a tab-separated record without its time, whose format it checks.
#[track_caller]
pub fn without_time(line: &str) -> &str {
    let (time, rest) = line.split_once('\t').unwrap_or_else(|| panic!("no columns: {line}"));
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000Z", "{line}");
    rest
}

/// Returns the remaining records of a watch, without their times, and its exit code.
#[track_caller]
pub fn rest(running: StreamedProcess) -> (Vec<String>, Option<i32>) {
    let (lines, words, code) = running.end();
    assert_eq!(words, [""; 0]);
    (lines.iter().map(|line| without_time(line).to_owned()).collect(), code)
}

#[test]
fn the_values_come_first_and_the_changes_follow_in_order() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    ok(&place, &url, &["set", "b", "1"]);
    let running = watch(&place, &url, &["a", "b", "-c", "5"]);
    assert_eq!(without_time(&running.line()), "CURRENT\ta");
    assert_eq!(without_time(&running.line()), "CURRENT\tb\t1");
    ok(&place, &url, &["set", "a", "2"]);
    ok(&place, &url, &["set", "b", "x\ty\n"]);
    ok(&place, &url, &["del", "a"]);
    ok(&place, &url, &["set", "a", ""]);
    ok(&place, &url, &["vdel", "a", ""]);
    assert_eq!(
        rest(running),
        (
            ["SET\ta\t2", "SET\tb\tx\\x09y\\x0A", "DELETE\ta", "SET\ta\t", "DELETE\ta"]
                .map(str::to_owned)
                .to_vec(),
            Some(0)
        )
    );
}

#[test]
fn text_is_the_format_on_a_terminal() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    ok(&place, &server.url(), &["set", "b", "1"]);
    let shown = watch(&place, &server.url(), &["a", "b", "-o", "text", "--until", "set"]);
    let (lines, ..) = shown.end();
    let lines: Vec<_> = lines.iter().map(|line| &line["2025-11-20T20:13:59.958Z".len()..]).collect();
    assert_eq!(lines, ["  CURRENT  a  (key not found)", "  CURRENT  b  1"]);
}

/// Returns a JSON line with versions and times replaced.
fn masked(line: &str) -> String {
    let mut out = String::new();
    for (at, part) in line.split('"').enumerate() {
        let is_version = part.ends_with(":StateStore");
        let is_time = part.len() == 24 && part.starts_with("20") && part.ends_with('Z');
        let part = if is_version { "VERSION" } else { part };
        let part = if is_time { "TIME" } else { part };
        out.push_str(if at == 0 { "" } else { "'" });
        out.push_str(part);
    }
    out
}

#[test]
fn json_is_one_object_a_line() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    ok(&place, &url, &["set", "k", "21.5"]);
    let running = watch(&place, &url, &["k", "no", "-j", "-c", "3"]);
    let first = [running.line(), running.line()];
    ok(&place, &url, &["set", "k", "--hex", "00ff"]);
    ok(&place, &url, &["set", "k", "z"]);
    ok(&place, &url, &["del", "k"]);
    let (lines, words, code) = running.end();
    assert_eq!((words, code), (Vec::<String>::new(), Some(0)));
    let lines: Vec<_> = first.iter().chain(&lines).map(|line| masked(line)).collect();
    assert_eq!(
        lines,
        [
            "{'v':1,'event':'current','key':'k','found':true,'value':'21.5','encoding':'utf-8',\
             'version':'VERSION','received':'TIME','seq':1}",
            "{'v':1,'event':'current','key':'no','found':false,'received':'TIME','seq':2}",
            "{'v':1,'event':'set','key':'k','value':'AP8=','encoding':'base64','version':'VERSION',\
             'received':'TIME','seq':3}",
            "{'v':1,'event':'set','key':'k','value':'z','encoding':'utf-8','version':'VERSION',\
             'received':'TIME','seq':4}",
            "{'v':1,'event':'delete','key':'k','version':'VERSION','received':'TIME','seq':5}",
        ]
    );
}

#[test]
fn a_condition_that_is_already_met_ends_the_watch_at_once() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    ok(&place, &url, &["set", "k", "on"]);
    for words in [["k", "--until", "set"], ["k", "--until", "value=on"], ["gone", "--until", "del"]] {
        let (lines, code) = rest(watch(&place, &url, &[&words[..], &["--no-initial"]].concat()));
        assert_eq!((lines, code), (vec![], Some(0)), "{words:?}");
    }
}

#[test]
fn a_watch_ends_with_the_change_that_meets_its_condition() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    let running = watch(&place, &url, &["a", "k", "--until", "value=on", "-w", "1m"]);
    assert_eq!(without_time(&running.line()), "CURRENT\ta");
    assert_eq!(without_time(&running.line()), "CURRENT\tk");
    ok(&place, &url, &["set", "k", "off"]);
    ok(&place, &url, &["set", "k", "on"]);
    ok(&place, &url, &["set", "k", "too late"]);
    assert_eq!(rest(running), (vec!["SET\tk\toff".to_owned(), "SET\tk\ton".to_owned()], Some(0)));
}

#[test]
fn a_timeout_exits_with_0_unless_a_condition_was_given() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    let run = |words: &[&str]| {
        let (lines, words, code) =
            watch(&place, &url, &[&["k", "--no-initial", "-w", "50ms"], words].concat()).end();
        assert_eq!(lines, [""; 0]);
        (words.join("\n"), code)
    };
    assert_eq!(run(&[]), (String::new(), Some(0)));
    assert_eq!(
        run(&["-c", "2"]),
        ("error: timed out after 50ms: 0 of 2 changes received".to_owned(), Some(124))
    );
    assert_eq!(
        run(&["--until", "set"]),
        ("error: timed out after 50ms: the state of --until was not reached".to_owned(), Some(124))
    );
}

#[test]
fn only_selected_events_are_printed_and_counted() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    ok(&place, &url, &["set", "k", "0"]);
    let running = watch(&place, &url, &["k", "gone", "--only", "del", "-c", "2"]);
    // The keys are read in this order: when the second one is printed, the first one has been read.
    assert_eq!(without_time(&running.line()), "CURRENT\tgone");
    for value in ["1", "2"] {
        ok(&place, &url, &["set", "k", value]);
        ok(&place, &url, &["del", "k"]);
    }
    assert_eq!(rest(running), (vec!["DELETE\tk".to_owned(), "DELETE\tk".to_owned()], Some(0)));
}

#[test]
fn raw_values_are_exact_bytes_and_other_events_go_to_standard_error() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    ok(&place, &url, &["set", "k", "--hex", "00ff0a"]);
    let url = url.as_str();
    assert_eq!(
        place.run(&["watch", "-b", url, "k", "--until", "set", "-o", "hex"]),
        "--- stdout\n00ff0a\n--- exit 0\n"
    );
    let shown = place.run(&["watch", "-b", url, "gone", "k", "--until", "set", "-o", "raw"]);
    assert!(shown.starts_with("--- stdout\n\\x00\\xff\\n"), "{shown}");
    assert!(shown.contains("  CURRENT  gone  (key not found)\n--- exit 0\n"), "{shown}");
}

#[test]
fn an_expiry_is_a_deletion() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let running = watch(&place, &server.url(), &["k", "-c", "2"]);
    assert_eq!(without_time(&running.line()), "CURRENT\tk");
    ok(&place, &server.url(), &["set", "k", "1", "--ttl", "50ms"]);
    assert_eq!(rest(running), (vec!["SET\tk\t1".to_owned(), "DELETE\tk".to_owned()], Some(0)));
}

/// The request that ends a watch of `k`.
pub const STOP: &[u8] = b"*3\r\n$9\r\nKEYNOTIFY\r\n$1\r\nk\r\n$4\r\nSTOP\r\n";

/// Checks that the client ended its watch and sent a DISCONNECT.
#[track_caller]
fn assert_nothing_left(relay: &Relay) {
    let packets = relay.wait_closed(1);
    assert_eq!(
        packets.last().and_then(|packet| packet.first()),
        Some(&0xE0),
        "the last packet is a DISCONNECT"
    );
    let stops = packets.iter().filter(|packet| packet.ends_with(STOP)).count();
    assert_eq!(stops, 1, "the watch was stopped at the store");
}

/// Returns whether the tests inherited that the signal is ignored, as shells do for background commands.
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0");
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal as i32 - 1)) != 0
}

#[test]
fn a_signal_stops_the_registrations() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGQUIT, 131), (Signal::SIGINT, 130)] {
        if is_ignored(signal) {
            continue;
        }
        let relay = Relay::start(server.port());
        let running = watch(&place, &relay.url(), &["k"]);
        assert_eq!(without_time(&running.line()), "CURRENT\tk");
        running.signal(signal);
        assert_eq!(rest(running), (vec![], Some(code)));
        assert_nothing_left(&relay);
    }
}

#[test]
fn a_closed_pipe_ends_the_watch_without_a_change() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let relay = Relay::start(server.port());
    let url = relay.url();
    let mut child = place.command(&["watch", "k", "-b", &url]).stdin(Stdio::null()).spawn().unwrap();
    // The pipe may close before or after the first record: the watch ends without a message in both cases.
    drop(child.stdout.take());
    let output = wait_until("the watch ends", || child.try_wait().unwrap());
    assert_eq!(output.code(), Some(0));
    assert_eq!(bounded(|| child.wait_with_output()).unwrap().stderr, b"");
    assert_nothing_left(&relay);
}

#[test]
fn a_thousand_keys_are_registered_concurrently() {
    const KEYS: usize = 1000;
    /// A lower bound of the concurrent requests, slightly below the limit.
    const WINDOW_MIN: usize = 200;
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let relay = Relay::start(server.port());
    relay.hold();
    let keys: Vec<String> = (0..KEYS).map(|number| format!("key/{number}")).collect();
    let mut words: Vec<&str> = keys.iter().map(String::as_str).collect();
    words.extend(["-c", "2"]);
    let running = watch(&place, &relay.url(), &words);
    wait_until("many requests are pending", || (relay.requests() >= WINDOW_MIN).then_some(()));
    relay.release();
    for key in &keys {
        assert_eq!(without_time(&running.line()), format!("CURRENT\t{key}"));
    }
    ok(&place, &server.url(), &["set", "key/0", "first"]);
    ok(&place, &server.url(), &["set", "key/999", "last"]);
    assert_eq!(
        rest(running),
        (vec!["SET\tkey/0\tfirst".to_owned(), "SET\tkey/999\tlast".to_owned()], Some(0))
    );
}

/// Sets the key to each of these numbers from another client, 64 at a time.
pub fn set_numbers(port: u16, key: &str, numbers: std::ops::Range<usize>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let target = Target::Tcp { host: "127.0.0.1".to_owned(), port };
        let client = Client::connect(Settings::new(target, format!("writer-{key}"))).await.unwrap();
        let key = Key::new(key.to_owned()).unwrap();
        let numbers: Vec<usize> = numbers.collect();
        for window in numbers.chunks(64) {
            // On one thread tasks start in the order in which they were spawned, and send their requests in that order.
            let sets = window.iter().map(|number| {
                let (client, key, value) = (client.clone(), key.clone(), number.to_string());
                tokio::spawn(async move { client.set(&key, &value.into(), SetOptions::default()).await })
            });
            for set in sets.collect::<Vec<_>>() {
                assert!(set.await.unwrap().unwrap().applied);
            }
        }
        client.close().await;
    });
}

#[test]
fn ten_thousand_changes_arrive_in_order_and_once() {
    const COUNT: usize = 10_000;
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let running = watch(&place, &server.url(), &["k", "-c", &COUNT.to_string()]);
    assert_eq!(without_time(&running.line()), "CURRENT\tk");
    set_numbers(server.port(), "k", 0..COUNT);
    let expected: Vec<String> = (0..COUNT).map(|number| format!("SET\tk\t{number}")).collect();
    let (lines, code) = rest(running);
    assert!(lines == expected, "{} lines, the first difference: {:?}", lines.len(), {
        lines.iter().zip(&expected).find(|(line, expected)| line != expected)
    });
    assert_eq!(code, Some(0));
}
