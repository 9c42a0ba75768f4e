//! `--trace`: the packets on the wire; a failing trace does not affect the command.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use super::common::bounded::bounded_transcript;
use super::common::fake_broker::FakeBroker;
use super::common::pki::Ca;
use super::common::{Place, Server, StreamedProcess, Terminal, wire};
use crate::a_watchdog::bounded;

/// Returns the first words of each line without the parts that differ between runs: time, correlation, versions and
/// ports.
fn first_words(trace: &str, words: usize) -> Vec<String> {
    let beginning = |line: &str| {
        let (time, rest) = line.split_at(24);
        assert!(time.chars().all(|c| c.is_ascii_digit() || "-T:.Z".contains(c)), "{line}");
        rest.split_whitespace().take(words).collect::<Vec<_>>().join(" ")
    };
    trace.lines().map(beginning).collect()
}

fn trace_of(place: &Place) -> String {
    let trace = fs::read_to_string(place.path("trace")).unwrap();
    fs::remove_file(place.path("trace")).unwrap();
    trace
}

#[test]
fn each_packet_of_a_verb_is_shown_decoded() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let words = ["set", "line1/temp", "21.5 °C", "--ttl", "30s", "-i", "me", "--trace=trace"];
    assert_eq!(place.run_at(&server.url(), &words), "--- exit 0\n");
    let trace = trace_of(&place).replace(&server.port().to_string(), "PORT");
    let at = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";
    assert_eq!(
        first_words(&trace, 4),
        [
            "-- connecting to 127.0.0.1:PORT",
            "-- connected to 127.0.0.1:PORT",
            "-> CONNECT client-id=me clean-start",
            "-> SUBSCRIBE id=1 qos=1",
            "<- CONNACK reason=success receive-max=1024",
            "<- SUBACK id=1 qos=1",
            "-> PUBLISH id=2 request",
            "<- PUBACK id=2 reason=success",
            "<- PUBLISH id=1 reply",
            "-> PUBACK id=1 reason=success",
            "-> DISCONNECT reason=success",
        ]
    );
    assert!(trace.contains(" keep-alive=10 session-expiry=0 packet-bytes-max="), "{trace}");
    assert!(trace.contains(&format!(" filter=clients/me/services/{at}/response\n")), "{trace}");
    let request = format!(
        " request [SET line1/temp \"21.5 °C\" PX 30000] size=63 qos=1 topic={at} response-topic=clients/me/services/{at}/response correlation="
    );
    assert!(trace.contains(&request), "{trace}");
    assert!(trace.contains(" content-type=application/octet-stream expiry=10 __srcId=me __ts="), "{trace}");
    assert!(trace.contains(" reply [OK] size=5 qos=1 topic=clients/me/services/"), "{trace}");
}

#[test]
fn notifications_are_shown_with_their_key() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let words = ["watch", "a b", "-c", "1", "-i", "me", "--trace=trace", "-b", &server.url()];
    let watch = StreamedProcess::start(&mut place.command(&words));
    assert!(watch.line().contains("CURRENT"));
    assert_eq!(place.run_at(&server.url(), &["set", "a b", "v"]), "--- exit 0\n");
    assert_eq!(watch.end().2, Some(0));
    let trace = trace_of(&place);
    let notification = " notification [SET v] key=\"a b\" size=43 qos=1 topic=clients/statestore/v1/\
                        FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/6D65/command/notify/612062 ";
    assert!(trace.contains(" request [KEYNOTIFY \"a b\"] ") && trace.contains(notification), "{trace}");
}

#[test]
fn a_trace_is_json_with_json_and_its_private_file_is_appended_to() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    for _ in 0..2 {
        let shown = place.run_at(&server.url(), &["get", "k", "-j", "-i", "me", "--trace=trace"]);
        assert!(shown.starts_with("--- stdout\n{\"v\":1,\"op\":\"get\""), "{shown}");
    }
    assert_eq!(fs::metadata(place.path("trace")).unwrap().permissions().mode() & 0o777, 0o600);
    let trace = trace_of(&place);
    assert_eq!(trace.lines().count(), 2 * 11, "{trace}");
    assert!(trace.lines().all(|line| line.starts_with("{\"v\":1,\"trace\":\"") && line.ends_with('}')));
    assert!(
        trace.contains("\"packet\":\"PUBLISH\",\"id\":2,\"kind\":\"request\",\"words\":[\"GET\",\"k\"],")
    );
}

#[test]
fn a_trace_is_on_standard_error_before_the_error() {
    let place = Place::new();
    let broker = FakeBroker::start(|connection| {
        connection.expect("CONNECT");
        connection.send(&wire::connack(0x87, &[0x1F, 0, 2, b'n', b'o']));
        connection.listen();
    });
    let shown = place.run_at(&broker.url(), &["get", "k", "-i", "me", "--trace"]);
    let words = shown.strip_prefix("--- stderr\n").unwrap();
    let lines: Vec<&str> = words.lines().collect();
    // Behind the CONNECT with its SUBSCRIBE and PUBLISH.
    assert!(lines[5].ends_with("  <-  CONNACK reason=\"not authorized (0x87)\" text=no"), "{shown}");
    assert!(lines[6].contains("  --  no connection: BROKER rejected the connection"), "{shown}");
    assert_eq!(lines[7], "error: BROKER rejected the connection: not authorized (0x87): no");
    broker.end();
}

#[test]
fn the_tls_version_and_each_attempt_are_shown() {
    let place = Place::new();
    Ca::new(&place, "ca.pem").issue(&place, "server", &["localhost"]);
    let options = ["-q", "--tls-cert", "server.pem", "--tls-key", "server.key"];
    let mut server = Server::start(&place, &options);
    let port = server.port().to_string();
    let words = ["get", "k", "-n", "localhost", "-p", &port, "-T", "ca.pem", "--trace=trace"];
    assert_eq!(place.run_bounded(&words), "--- stderr\nerror: key not found: k\n--- exit 1\n");
    let trace = trace_of(&place).replace(&port, "PORT");
    assert!(trace.contains("  --  connecting to localhost:PORT\n"), "{trace}");
    assert!(trace.contains("  --  connected to 127.0.0.1:PORT, TLS 1.3\n"), "{trace}");
    server.kill();
    place.run_bounded(&[&words[..], &["--retries", "1"]].concat());
    let trace = trace_of(&place);
    let lost = "  --  no connection: connection refused: localhost:";
    assert_eq!(trace.matches(lost).count(), 2, "{trace}");
    assert_eq!(trace.matches(" ms\n").count(), 1, "{trace}");
}

#[test]
fn a_trace_that_cannot_start_is_reported_and_one_that_fails_later_ends_nothing() {
    let place = Place::new();
    let shown = place.run_bounded(&["--embedded", "get", "k", "--trace=no/such"]);
    let message = "cannot write the trace to no/such: No such file or directory (os error 2)";
    assert_eq!(shown, format!("--- stderr\nerror: {message}\n--- exit 74\n"));
    let shown = place.run_bounded(&["--embedded", "get", "k", "--trace=/dev/full"]);
    let words = "warning: the trace ends: cannot write /dev/full: No space left on device (os error 28)\n";
    // The trace has its own thread, so that either line may be the first.
    let answer = "error: key not found: k\n";
    let orders = [[words, answer], [answer, words]]
        .map(|[first, second]| format!("--- stderr\n{first}{second}--- exit 1\n"));
    assert!(orders.contains(&shown), "{shown}");
    // The read end of the pipe is closed, or open and never read.
    for reads in [false, true] {
        let (unread, end) = std::io::pipe().unwrap();
        let kept = reads.then_some(unread);
        let value = "x".repeat(300);
        let mut batch = String::new();
        for number in 0..1000 {
            batch.push_str(&format!("set k{number} {value}\n"));
        }
        place.write("batch", batch);
        let mut command = place.command(&["--embedded", "batch", "batch", "-q", "--trace"]);
        command.stderr(end).stdout(Stdio::null());
        assert_eq!(bounded_transcript(&mut command), "--- exit 0\n");
        drop(kept);
    }
}

#[test]
fn a_trace_file_needs_an_equals_sign() {
    let place = Place::new();
    let shown = place.run_bounded(&["--embedded", "--trace", "get", "k", "-q"]);
    assert!(shown.contains("CONNECT") && shown.ends_with("--- exit 1\n"), "{shown}");
    let shown = place.run_bounded(&["decode", "hlc", "1:2:n", "--trace"]);
    assert!(shown.ends_with("--- exit 0\n") && !shown.contains("CONNECT"), "{shown}");
}

#[test]
fn a_trace_at_the_prompt_is_switched_and_appears_above_the_line() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let words = ["shell", "-b", &server.url(), "-i", "me"];
    let mut terminal = Terminal::of_size(place.command(&words), 60, 200);
    terminal.shows("connected to");
    terminal.line("set k one");
    terminal.shows("stored k");
    assert!(!terminal.screen().contains("PUBLISH"));
    terminal.line("\\trace on");
    terminal.shows("trace is on");
    terminal.line("get k");
    terminal.shows(" request [GET k] ");
    terminal.shows(" reply [one] ");
    terminal.line("\\trace off");
    terminal.shows("trace is off");
    terminal.line("set other two");
    let screen = terminal.shows("stored other");
    assert!(!screen.contains("[SET other"), "{screen}");
    terminal.line("get k --trace");
    terminal.shows("--trace is not available at the prompt");
    terminal.shows("hint: \\trace on");
    terminal.press_ctrl_d();
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn the_help_describes_what_a_trace_shows() {
    let output =
        bounded(|| Command::new(env!("CARGO_BIN_EXE_mqkv")).args(["help", "options"]).output()).unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("--trace[=FILE]") && help.contains("Passwords and tokens are omitted"), "{help}");
}
