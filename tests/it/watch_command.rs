//! `watch -- CMD`: a command for each change.

use nix::sys::signal::Signal;

use super::common::{Place, Relay, Server};
use super::watch::{STOP, ok, watch};

/// Prints the variables of the change, and the value in brackets.
const SHOW: &str = "printf '%s %s %s %s [' $MQKV_EVENT $MQKV_KEY $MQKV_FOUND $MQKV_SEQ; cat; echo ]";

/// Returns `SHOW` with a wait for a file after each change.
fn show_and_wait_for(file: &str) -> String {
    // The wait is bounded, so that a failed test leaves no process behind.
    let wait = format!("n=0; until test -e {file} || test $((n=n+1)) -gt 3000; do sleep 0.01; done");
    format!("{SHOW}; test $MQKV_EVENT = initial || {{ {wait}; }}")
}

/// Starts a watch of `k` and waits until the command prints the initial value.
fn watch_k(place: &Place, url: &str, words: &[&str], script: &str) -> super::common::StreamedProcess {
    let options = ["k", "--exec-on", "initial,set,del"];
    let running = watch(place, url, &[&options[..], words, &["--", "sh", "-c", script]].concat());
    assert_eq!(running.line(), "initial k false 1 []");
    running
}

#[test]
fn a_command_gets_the_value_on_its_input_and_the_rest_in_its_environment() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    let script = format!("{SHOW}; test -n \"$MQKV_VERSION\" && echo \"${{MQKV_VERSION##*:}}\"; true");
    let running = watch_k(&place, &url, &["-c", "2"], &script);
    ok(&place, &url, &["set", "k", "two words"]);
    assert_eq!(running.line(), "set k true 2 [two words]");
    assert_eq!(running.line(), "StateStore");
    ok(&place, &url, &["del", "k"]);
    let (lines, words, code) = running.end();
    assert_eq!(lines, ["delete k false 3 []", "StateStore"]);
    assert_eq!((words, code), (vec![], Some(0)));
}

#[test]
fn the_initial_value_runs_no_command_unless_requested() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    ok(&place, &url, &["set", "k", "on"]);
    let (lines, words, code) = watch(&place, &url, &["k", "--until", "set", "--", "sh", "-c", SHOW]).end();
    assert_eq!((lines, words, code), (vec![], vec![], Some(0)));
    let words = ["k", "--until", "set", "--exec-on", "initial", "--", "sh", "-c", SHOW];
    let (lines, ..) = watch(&place, &url, &words).end();
    assert_eq!(lines, ["initial k true 1 [on]"]);
}

#[test]
fn changes_of_a_key_collapse_into_the_latest_while_the_command_runs() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let relay = Relay::start(server.port());
    let url = server.url();
    let script = show_and_wait_for("go");
    let running = watch_k(&place, &relay.url(), &["other", "-c", "6"], &script);
    assert_eq!(running.line(), "initial other false 2 []");
    ok(&place, &url, &["set", "k", "1"]);
    assert_eq!(running.line(), "set k true 3 [1]");
    for (key, value) in [("k", "2"), ("other", "a"), ("k", "3"), ("other", "b"), ("k", "4")] {
        ok(&place, &url, &["set", key, value]);
    }
    // The watch is stopped when the last change has been received.
    relay.wait_for(STOP);
    place.write("go", "");
    let (lines, words, code) = running.end();
    assert_eq!(lines, ["set k true 8 [4]", "set other true 7 [b]"]);
    assert_eq!((words, code), (vec![], Some(0)));
}

#[test]
fn a_failing_command_is_reported_and_the_watch_continues() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    let running = watch_k(&place, &url, &["-c", "2"], &format!("{SHOW}; exit 3"));
    assert_eq!(running.error_line(), "warning: the command for k failed: exit status 3");
    ok(&place, &url, &["set", "k", "1"]);
    ok(&place, &url, &["set", "k", "2"]);
    let (_, words, code) = running.end();
    assert!(words.iter().all(|line| line == "warning: the command for k failed: exit status 3"), "{words:?}");
    assert_eq!(code, Some(0));
}

#[test]
fn with_exit_on_error_the_watch_ends_with_the_status_of_a_command_that_fails() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    for (end, code, cause) in [
        ("exit 3", 3, "exit status 3"),
        ("kill -KILL $$", 137, "ended by signal 9"),
        ("exit 255", 255, "exit status 255"),
    ] {
        let script = format!("{SHOW}; test $MQKV_EVENT = initial || {end}");
        let running = watch_k(&place, &url, &["--exit-on-error"], &script);
        ok(&place, &url, &["set", "k", "1"]);
        let (lines, words, status) = running.end();
        assert_eq!(lines, ["set k true 2 [1]"]);
        assert_eq!(
            (words, status),
            (vec![format!("warning: the command for k failed: {cause}")], Some(code))
        );
        ok(&place, &url, &["del", "k"]);
    }
    let words = place.run_at(&url, &["watch", "k", "--exit-on-error"]);
    assert!(words.ends_with("--- exit 2\n"), "without a command: {words}");
}

#[test]
fn with_exit_on_error_changes_that_wait_run_no_command_and_the_last_one_counts_too() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let relay = Relay::start(server.port());
    let url = server.url();
    let script = format!("{}; test $MQKV_EVENT = initial", show_and_wait_for("go"));
    let running = watch_k(&place, &relay.url(), &["-c", "2", "--exit-on-error"], &script);
    ok(&place, &url, &["set", "k", "1"]);
    assert_eq!(running.line(), "set k true 2 [1]");
    ok(&place, &url, &["set", "k", "2"]);
    // The number of -c is reached while the command runs.
    relay.wait_for(STOP);
    place.write("go", "");
    let (lines, words, code) = running.end();
    assert_eq!(lines, [""; 0]);
    assert_eq!((words.len(), code), (1, Some(1)), "{words:?}");
}

#[test]
fn with_exit_on_error_a_signal_to_the_watch_decides_its_status() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let script = format!("trap 'exit 3' TERM; {}", show_and_wait_for("never"));
    let running = watch_k(&place, &server.url(), &["--exit-on-error"], &script);
    ok(&place, &server.url(), &["set", "k", "1"]);
    assert_eq!(running.line(), "set k true 2 [1]");
    running.signal(Signal::SIGTERM);
    let (_, _, code) = running.end();
    assert_eq!(code, Some(143));
}

#[test]
fn a_command_that_cannot_be_run_ends_the_watch() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    place.write("plain", "no program");
    for (command, message, expected) in [
        ("./missing", "error: cannot run ./missing: command not found", 127),
        ("./plain", "error: cannot run ./plain: Permission denied (os error 13)", 126),
    ] {
        let (lines, words, code) = watch(&place, &url, &["k", "--exec-on", "initial", "--", command]).end();
        assert_eq!((lines, code), (vec![], Some(expected)));
        assert_eq!(words, [message]);
    }
}

#[test]
fn a_large_value_is_passed_whole_or_not_at_all() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    place.write("large", vec![b'x'; 1_000_000]);
    ok(&place, &url, &["set", "k", "-f", "large"]);
    for (script, line) in [("wc -c | tr -d ' '", "1000000"), ("echo ignored", "ignored")] {
        let words = ["k", "--until", "set", "--exec-on", "initial", "--", "sh", "-c", script];
        let (lines, words, code) = watch(&place, &url, &words).end();
        assert_eq!(lines, [line]);
        assert_eq!((words, code), (vec![], Some(0)));
    }
}

#[test]
fn a_command_that_never_reads_blocks_nothing() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    place.write("large", vec![b'x'; 1_000_000]);
    ok(&place, &url, &["set", "k", "-f", "large"]);
    // The background process keeps the standard input open but not the outputs, because the test waits for their end.
    let script = "(for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do test -e go && break; sleep 0.5; done) <&0 >&- 2>&- & echo done";
    let words = ["k", "--until", "set", "--exec-on", "initial", "--", "sh", "-c", script];
    let (lines, words, code) = watch(&place, &url, &words).end();
    place.write("go", "");
    assert_eq!(lines, ["done"]);
    assert_eq!((words, code), (vec![], Some(0)));
}

#[test]
fn a_signal_reaches_the_command_and_its_end_is_waited_for() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let script = format!("trap 'echo caught; exit 0' TERM; {}", show_and_wait_for("never"));
    let running = watch_k(&place, &server.url(), &[], &script);
    ok(&place, &server.url(), &["set", "k", "1"]);
    assert_eq!(running.line(), "set k true 2 [1]");
    running.signal(Signal::SIGTERM);
    // Some shells report that their child was terminated, so standard error is not compared.
    let (lines, _, code) = running.end();
    assert_eq!((lines, code), (vec!["caught".to_owned()], Some(143)));
}

#[test]
fn a_key_of_any_bytes_goes_into_the_environment() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    let script = "printf %s \"$MQKV_KEY\" | od -An -tx1";
    for (key, shown) in [("ff0a20", " ff 0a 20"), ("6100", " 61 5c 78 30 30")] {
        let words = ["--key-hex", key, "--until", "del", "--exec-on", "initial", "--", "sh", "-c", script];
        let (lines, words, code) = watch(&place, &url, &words).end();
        assert_eq!(lines, [shown]);
        assert_eq!((words, code), (vec![], Some(0)));
    }
}

#[test]
fn a_gap_is_reported_and_the_missed_change_runs_the_command() {
    let place = Place::new();
    let mut server = Server::start(&place, &["-q"]);
    ok(&place, &server.url(), &["set", "k", "1"]);
    let words = ["k", "-c", "1", "--exec-on", "initial,resync", "--", "sh", "-c", SHOW];
    let running = watch(&place, &server.url(), &words);
    assert_eq!(running.line(), "initial k true 1 [1]");
    server.kill();
    assert!(running.error_line().starts_with("connection lost: "));
    server.start_again(&place, &["-q"]);
    assert!(running.error_line().contains("  GAP      "));
    let (lines, words, code) = running.end();
    assert_eq!((lines, words, code), (vec!["resync k false 2 []".to_owned()], vec![], Some(0)));
}
