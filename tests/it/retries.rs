//! `--retries`: it limits the attempts at the first connection, not the reconnects.

use super::common::fake_broker::FakeBrokers;
use super::common::{Place, Server, StreamedProcess, wire};

#[test]
fn retries_wait_for_a_broker_that_starts_late() {
    let place = Place::new();
    let mut server = Server::start(&place, &["-q"]);
    let url = server.url();
    assert_eq!(place.run_at(&url, &["set", "k", "v"]), "--- exit 0\n");
    server.kill();
    let words = ["set", "k", "late", "-b", &url, "--retries", "1000000", "--trace", "-j"];
    let late = StreamedProcess::start(&mut place.command(&words));
    // The first attempt has failed and another one is scheduled.
    while !late.error_line().contains("\"again_ms\":") {}
    server.start_again(&place, &["-q"]);
    assert!(late.line().contains("\"applied\":true"));
    assert_eq!(late.end().2, Some(0));
    assert_eq!(place.bytes_at(&url, &["get", "k"]), b"late");
}

#[test]
fn retries_end_after_their_number() {
    let place = Place::new();
    let mut server = Server::start(&place, &["-q"]);
    server.kill();
    for (retries, tries) in [("0", 1), ("2", 3)] {
        let shown = place.run_at(&server.url(), &["get", "k", "--retries", retries, "--trace=trace"]);
        assert!(shown.contains("error: connection refused: BROKER\n"), "{shown}");
        assert!(shown.ends_with("--- exit 69\n"), "{shown}");
        let trace = std::fs::read_to_string(place.path("trace")).unwrap();
        assert_eq!(trace.matches("connecting to").count(), tries);
        std::fs::remove_file(place.path("trace")).unwrap();
    }
}

#[test]
fn each_failed_attempt_is_printed_with_verbose() {
    let place = Place::new();
    let mut server = Server::start(&place, &["-q"]);
    server.kill();
    let shown = place.run_at(&server.url(), &["ping", "--retries", "2", "-v"]);
    for number in [1, 2] {
        let line = format!("attempt {number} of 3 failed: connection refused: BROKER; the next one in ");
        assert!(shown.contains(&line), "{shown}");
    }
    assert!(!shown.contains("attempt 3"), "{shown}");
    assert!(!place.run_at(&server.url(), &["ping", "--retries", "2"]).contains("attempt"));
}

#[test]
fn only_temporary_rejections_are_retried() {
    let place = Place::new();
    // 0x97 may be about the early packets: the attempt without them is no retry.
    for (reason, tries) in [(0x88, 4), (0x89, 4), (0x9F, 4), (0x84, 1), (0x85, 1), (0x97, 5), (0x87, 1)] {
        let broker = FakeBrokers::start(move |_, connection| {
            connection.expect("CONNECT");
            connection.send(&wire::connack(reason, &[]));
            connection.listen();
        });
        let shown = place.run_at(&broker.url(), &["get", "k", "--retries", "3"]);
        assert!(shown.contains("BROKER rejected the connection"), "{shown}");
        assert_eq!(broker.count(), tries, "0x{reason:02X}");
    }
}

#[test]
fn a_busy_broker_is_retried_until_it_accepts() {
    let place = Place::new();
    let broker = FakeBrokers::start(|number, connection| {
        if number < 3 {
            connection.expect("CONNECT");
            connection.send(&wire::connack(0x89, &[]));
        } else {
            let request = connection.serve();
            connection.answer(&request, "$1\r\nv\r\n", &[]);
        }
        connection.listen();
    });
    let shown = place.run_at(&broker.url(), &["get", "k", "--retries", "2"]);
    assert_eq!(shown, "--- stdout\nv(no line feed)\n--- exit 0\n");
    assert_eq!(broker.count(), 3);
}

#[test]
fn a_watch_reconnects_without_counting_retries() {
    let place = Place::new();
    let mut server = Server::start(&place, &["-q"]);
    let words = ["watch", "k", "-j", "-b", &server.url(), "--retries", "0", "--trace"];
    let watch = StreamedProcess::start(&mut place.command(&words));
    assert!(watch.line().contains("\"event\":\"current\""));
    server.kill();
    for _ in 0..3 {
        while !watch.error_line().contains("\"again_ms\":") {}
    }
    server.start_again(&place, &["-q"]);
    assert!(watch.line().contains("\"event\":\"gap\""));
}

#[test]
fn a_connection_cut_before_connack_is_retried() {
    let place = Place::new();
    let broker = FakeBrokers::start(|number, connection| {
        connection.expect("CONNECT");
        if number == 3 {
            // Half a CONNACK.
            connection.send(&wire::connack(0, &[])[..2]);
        }
    });
    let shown = place.run_at(&broker.url(), &["set", "k", "v", "--retries", "3"]);
    let message = "connection closed by the other side: BROKER";
    assert!(shown.contains(&format!("error: {message}\n  nothing was changed\n")), "{shown}");
    assert!(shown.ends_with("--- exit 69\n"), "{shown}");
    // The attempt after the first one is made at once, without early packets, and is no retry.
    assert_eq!(broker.count(), 5);
}
