//! `watch` across lost connections: each loss and each gap is reported.

use std::io::Read;
use std::thread::sleep;
use std::time::Duration;

use mqkv::client::{Client, Settings, Target};
use mqkv::protocol::{Key, Reply, Request, Timestamp};
use mqkv::render::duration::rfc3339;
use nix::sys::signal::Signal;

use super::common::{Place, Relay, Server, StreamedProcess};
use super::watch::{ok, set_numbers, watch, without_time};
use crate::a_watchdog::bounded;

/// Options that shorten the detection of a loss and the reconnect.
const IMPATIENT: [&str; 4] = ["--keep-alive", "1s", "--connect-timeout", "1s"];

#[test]
fn a_restarted_broker_causes_one_gap_and_the_current_value() {
    const COUNT: usize = 2_000;
    let place = Place::new();
    let mut server = Server::start(&place, &["-q"]);
    let last = (COUNT - 1).to_string();
    let running = watch(&place, &server.url(), &["k", "--until", &format!("value={last}")]);
    assert_eq!(without_time(&running.line()), "CURRENT\tk");
    set_numbers(server.port(), "k", 0..COUNT / 2);
    for number in 0..COUNT / 2 {
        assert_eq!(without_time(&running.line()), format!("SET\tk\t{number}"));
    }
    server.kill();
    let lost = running.error_line();
    assert!(lost.starts_with("connection lost: ") && lost.ends_with("; reconnecting"), "{lost}");
    server.start_again(&place, &["-q"]);
    set_numbers(server.port(), "k", COUNT / 2..COUNT);
    let (lines, words, code) = running.end();
    assert_eq!((words, code), (vec![], Some(0)));
    let lines: Vec<_> = lines.iter().map(|line| without_time(line)).collect();
    assert!(lines[0].starts_with("GAP\t\t"), "{}", lines[0]);
    let after = &lines[1..];
    // The first record after the gap is the current value, which is any of the numbers; the others follow in order.
    assert!(after[0].starts_with("RESYNC\tk"), "{}", after[0]);
    let numbers: Vec<usize> =
        after.iter().filter_map(|line| line.split('\t').nth(2)).map(|value| value.parse().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, next| one + 1 == *next), "{numbers:?}");
    assert_eq!(numbers.last(), Some(&(COUNT - 1)));
    assert!(after[1..].iter().all(|line| line.starts_with("SET\t")), "{after:?}");
}

/// Sets a key as a client whose clock is 50 seconds ahead.
fn set_ahead(port: u16, key: &str, value: &'static str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let target = Target::Tcp { host: "127.0.0.1".to_owned(), port };
        let client = Client::connect(Settings::new(target, "ahead".to_owned())).await.unwrap();
        let key = Key::new(key.to_owned()).unwrap();
        let request = Request::Set { key, value: value.into(), condition: None, ttl_ms: None };
        let ahead = Timestamp::zero("ahead".to_owned()).unwrap().tick(mqkv::clock::wall_ms() + 50_000);
        assert_eq!(client.request_at(&request, ahead).await.unwrap().0, Reply::Done);
        client.close().await;
    });
}

#[test]
fn changes_of_a_store_that_starts_anew_with_older_versions_are_reported() {
    let place = Place::new();
    let mut server = Server::start(&place, &["-q"]);
    let running = watch(&place, &server.url(), &["k", "-c", "3"]);
    assert_eq!(without_time(&running.line()), "CURRENT\tk");
    set_ahead(server.port(), "k", "ahead");
    assert_eq!(without_time(&running.line()), "SET\tk\tahead");
    server.kill();
    server.start_again(&place, &["-q"]);
    assert!(without_time(&running.line()).starts_with("GAP\t\t"));
    assert_eq!(without_time(&running.line()), "RESYNC\tk");
    ok(&place, &server.url(), &["set", "k", "new"]);
    let (lines, _, code) = running.end();
    assert_eq!(lines.iter().map(|line| without_time(line)).collect::<Vec<_>>(), ["SET\tk\tnew"]);
    assert_eq!(code, Some(0));
}

#[test]
fn a_gap_begins_with_the_last_packet_from_the_broker() {
    let place = Place::new();
    let mut server = Server::start(&place, &["-q"]);
    let running = watch(&place, &server.url(), &["k", "-j"]);
    assert!(running.line().contains("\"current\""));
    let before = rfc3339(mqkv::clock::wall_ms()).unwrap();
    // The loss is noticed in a later millisecond.
    sleep(Duration::from_millis(20));
    server.kill();
    let since = |line: &str| line.split("\"since\":\"").nth(1).unwrap()[..before.len()].to_owned();
    let lost = since(&running.error_line());
    assert!(lost <= before, "{lost} {before}");
    server.start_again(&place, &["-q"]);
    assert_eq!(since(&running.line()), lost);
}

#[test]
fn a_session_that_was_taken_over_is_not_taken_back() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let begin = || {
        let running = watch(&place, &server.url(), &["k", "-i", "me"]);
        assert_eq!(without_time(&running.line()), "CURRENT\tk");
        running
    };
    let (first, second) = (begin(), begin());
    let (lines, words, code) = first.end();
    assert_eq!((lines, code), (vec![], Some(69)), "{words:?}");
    assert!(words[0].contains("the broker ended the connection: session taken over (0x8E)"), "{words:?}");
    assert!(words[1].starts_with("hint: use a unique client id with -i, or omit -i"), "{words:?}");
    // The first watch did not take the session back from the second one.
    ok(&place, &server.url(), &["set", "k", "v"]);
    assert_eq!(without_time(&second.line()), "SET\tk\tv");
}

#[test]
fn a_restart_without_changes_causes_only_a_gap() {
    let place = Place::new();
    let data = ["--data", "state", "-q"];
    let mut server = Server::start(&place, &data);
    ok(&place, &server.url(), &["set", "k", "kept"]);
    let running = watch(&place, &server.url(), &["k", "-c", "1", "-j"]);
    assert!(running.line().contains("\"current\""));
    server.kill();
    let lost = running.error_line();
    assert!(lost.starts_with("{\"v\":1,\"event\":\"lost\",\"since\":\"20"), "{lost}");
    server.start_again(&place, &data);
    let gap = running.line();
    assert!(gap.starts_with("{\"v\":1,\"event\":\"gap\",\"since\":\"20"), "{gap}");
    assert!(gap.ends_with(",\"seq\":2}"), "{gap}");
    ok(&place, &server.url(), &["set", "k", "new"]);
    let (lines, _, code) = running.end();
    assert_eq!((lines.len(), code), (1, Some(0)));
    assert!(lines[0].contains("\"event\":\"set\"") && lines[0].ends_with("\"seq\":3}"), "{}", lines[0]);
}

#[test]
fn a_silently_lost_connection_is_detected_and_reported() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let relay = Relay::start(server.port());
    ok(&place, &server.url(), &["set", "k", "1"]);
    let words = ["k", "-c", "1"];
    let running = watch(&place, &relay.url(), &[&words[..], &IMPATIENT].concat());
    assert_eq!(without_time(&running.line()), "CURRENT\tk\t1");
    relay.cut();
    // The keep-alive detected it: a request that timed out has another message.
    assert_eq!(running.error_line(), "connection lost: no packet from the broker for 1 s; reconnecting");
    ok(&place, &server.url(), &["set", "k", "2"]);
    relay.restore();
    let gap = running.line();
    assert!(without_time(&gap).starts_with("GAP\t\t"), "{gap}");
    let (lines, words, code) = running.end();
    assert_eq!((words, code), (vec![], Some(0)));
    assert_eq!(lines.iter().map(|line| without_time(line)).collect::<Vec<_>>(), ["RESYNC\tk\t2"]);
}

#[test]
fn a_stalled_reader_does_not_cost_the_connection() {
    /// Values of 30 kB each: more bytes than a pipe buffers.
    const CHANGES: usize = 10;
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let relay = Relay::start(server.port());
    place.write("large", vec![b'x'; 30_000]);
    let url = relay.url();
    let words = ["watch", "k", "-b", &url, "--until", "value=end", "--keep-alive", "1s"];
    let mut child = place.command(&words).spawn().unwrap();
    // Only one line is read, which shows that the watch is registered.
    let (mut first, mut byte) = (Vec::new(), [0]);
    while !first.ends_with(b"\n") {
        bounded(|| child.stdout.as_mut().unwrap().read_exact(&mut byte)).unwrap();
        first.extend(byte);
    }
    assert!(first.ends_with(b"\tCURRENT\tk\n"));
    for _ in 0..CHANGES {
        ok(&place, &server.url(), &["set", "k", "-f", "large"]);
    }
    ok(&place, &server.url(), &["set", "k", "end"]);
    // The broker closes the connection of a client without packets for 1.5 keep-alives.
    relay.wait_for_pings(3);
    let (lines, words, code) = StreamedProcess::read(child).end();
    assert_eq!((lines.len(), words, code), (CHANGES + 1, vec![], Some(0)));
}

#[test]
fn on_gap_fail_ends_the_watch() {
    let place = Place::new();
    let mut server = Server::start(&place, &["-q"]);
    let running = watch(&place, &server.url(), &["k", "--on-gap", "fail"]);
    assert_eq!(without_time(&running.line()), "CURRENT\tk");
    server.kill();
    let (lines, words, code) = running.end();
    assert_eq!((lines, code), (vec![], Some(69)));
    assert!(words[0].starts_with("error: lost the connection to 127.0.0.1:"), "{words:?}");
}

#[test]
fn a_signal_ends_a_watch_that_has_no_connection() {
    let place = Place::new();
    let mut server = Server::start(&place, &["-q"]);
    let running = watch(&place, &server.url(), &["k"]);
    assert_eq!(without_time(&running.line()), "CURRENT\tk");
    server.kill();
    running.error_line();
    running.signal(Signal::SIGTERM);
    let (lines, words, code) = running.end();
    assert_eq!((lines, words, code), (vec![], vec![], Some(143)));
}

#[test]
fn a_signal_ends_a_watch_whose_broker_does_not_answer() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let relay = Relay::start(server.port());
    let running = watch(&place, &relay.url(), &["k"]);
    assert_eq!(without_time(&running.line()), "CURRENT\tk");
    relay.cut();
    running.signal(Signal::SIGTERM);
    let (lines, words, code) = running.end();
    assert_eq!((lines, words, code), (vec![], vec![], Some(143)));
}
