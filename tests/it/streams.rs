//! Standard streams that are closed, full or missing, and signals.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;

use super::common::bounded::{bounded_transcript, signal, wait_for_exit};
use super::common::fake_broker::FakeBroker;
use super::common::{Place, Server, wait_until, wire};
use crate::a_watchdog::bounded;

/// More bytes than any pipe buffers.
const BIG: usize = 4 * 1024 * 1024;

#[test]
fn a_closed_pipe_is_not_an_error() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    place.write("big", vec![b'x'; BIG]);
    assert_eq!(place.run_at(&server.url(), &["set", "big", "-f", "big"]), "--- exit 0\n");
    for format in ["raw", "text", "hex", "json"] {
        let mut child = place.command(&["get", "big", "-o", format, "-b", &server.url()]).spawn().unwrap();
        // head -c 1
        let mut stdout = child.stdout.take().unwrap();
        bounded(|| stdout.read_exact(&mut [0])).unwrap();
        drop(stdout);
        assert_eq!(wait_for_exit(&mut child).code(), Some(0), "{format}");
        let mut words = String::new();
        bounded(|| child.stderr.take().unwrap().read_to_string(&mut words)).unwrap();
        assert_eq!(words, "", "{format}");
    }
}

#[test]
fn a_full_device_exits_with_74() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    assert_eq!(place.run_at(&server.url(), &["set", "k", "v"]), "--- exit 0\n");
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let error = "--- stderr\nerror: cannot write to standard output: No space left on device (os error 28)\n\
                 --- exit 74\n";
    for words in [&["get", "k"][..], &["get", "k", "-o", "text"], &["ping"], &["raw", "GET", "k"]] {
        let mut command = place.command(&[words, &["-b", &server.url()]].concat());
        assert_eq!(bounded_transcript(command.stdout(full())), error, "{words:?}");
    }
    assert_eq!(bounded_transcript(place.command(&["help"]).stdout(full())), error);
    let mut command = place.command(&["get", "k", "-f", "/dev/full", "-b", &server.url()]);
    assert_eq!(
        bounded_transcript(&mut command),
        "--- stderr\nerror: cannot write /dev/full: No space left on device (os error 28)\n--- exit 74\n"
    );
}

#[test]
fn a_write_whose_output_fails_exits_with_74_and_reports_that_it_happened() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = place.command(&["set", "k", "v", "-j", "-b", &server.url()]);
    let shown = bounded_transcript(command.stdout(full));
    assert_eq!(
        shown,
        "--- stderr\n{\"v\":1,\"error\":{\"kind\":\"file\",\"code\":74,\"message\":\"cannot write to standard \
         output: No space left on device (os error 28)\",\"causes\":[\"the store has answered; only the output \
         failed\"],\"retryable\":false}}\n--- exit 74\n"
    );
    assert_eq!(place.bytes_at(&server.url(), &["get", "k"]), b"v");
}

#[test]
fn streams_closed_from_the_start_cause_no_panic() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    assert_eq!(place.run_at(&url, &["set", "k", "v"]), "--- exit 0\n");
    let closed = |words: &str| {
        let line = format!("exec {} -b {url} {words}", env!("CARGO_BIN_EXE_mqkv"));
        let mut command = Command::new("sh");
        command.args(["-c", &line]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        bounded_transcript(command.current_dir(place.folder()))
    };
    // `/dev/null` is empty. A closed one would look the same, but has not been given.
    let no_input = "--- stderr\nerror: cannot read standard input: it is closed\n--- exit 74\n";
    for line in ["set k - <&-", "batch - <&-", "import - <&-", "decode frame - <&-"] {
        assert_eq!(closed(line), no_input, "{line}");
    }
    assert_eq!(closed("set empty - </dev/null"), "--- exit 0\n");
    assert_eq!(place.bytes_at(&url, &["get", "empty"]), b"");
    assert_eq!(closed("get k 2>&-"), "--- stdout\nv(no line feed)\n--- exit 0\n");
    assert_eq!(closed("get no -o text 2>&-"), "--- exit 1\n");
    let shown = closed("get k >&-");
    assert!(!shown.contains("panicked"), "{shown}");
    assert_eq!(closed("nonsense 2>&- >&-"), "--- exit 2\n");
}

#[test]
fn a_folder_as_standard_input_exits_with_74() {
    let place = Place::new();
    let mut command = place.command(&["set", "k", "-"]);
    assert_eq!(
        bounded_transcript(command.stdin(File::open(place.folder()).unwrap())),
        "--- stderr\nerror: cannot read standard input: Is a directory (os error 21)\n--- exit 74\n"
    );
}

#[test]
fn a_signal_ends_a_hanging_request() {
    for (name, number) in [("INT", 2), ("TERM", 15)] {
        let (hanging, hangs) = mpsc::channel();
        let fake = FakeBroker::start(move |connection| {
            let request = connection.serve();
            connection.send(&wire::puback(request.packet_id, 0));
            hanging.send(()).unwrap();
            connection.listen()
        });
        let place = Place::new();
        let mut child = place.command(&["set", "k", "v", "-t", "1h", "-b", &fake.url()]).spawn().unwrap();
        bounded(|| hangs.recv()).unwrap();
        signal(&child, name);
        // A shell reports 128 + number.
        assert_eq!(wait_for_exit(&mut child).signal(), Some(number));
        fake.end();
    }
}

#[test]
fn a_signal_ends_a_hanging_connection() {
    let (hanging, hangs) = mpsc::channel();
    let fake = FakeBroker::start(move |connection| {
        connection.expect("CONNECT");
        hanging.send(()).unwrap();
        connection.listen()
    });
    let place = Place::new();
    let url = fake.url();
    let mut child = place.command(&["get", "k", "--connect-timeout", "1h", "-b", &url]).spawn().unwrap();
    bounded(|| hangs.recv()).unwrap();
    signal(&child, "INT");
    assert_eq!(wait_for_exit(&mut child).signal(), Some(2));
    fake.end();
}

#[test]
fn a_signal_shuts_a_server_down() {
    for name in ["INT", "TERM", "HUP"] {
        let place = Place::new();
        let words = ["serve", "--listen", "127.0.0.1:0", "--port-file", "port", "--data", "kept"];
        let mut child = place.command(&words).spawn().unwrap();
        wait_until("it listens", || place.path("port").is_file().then_some(()));
        let port = std::fs::read_to_string(place.path("port")).unwrap();
        let url = format!("mqtt://127.0.0.1:{}", port.trim());
        assert_eq!(place.run_at(&url, &["set", "k", "v"]), "--- exit 0\n");
        signal(&child, name);
        assert_eq!(wait_for_exit(&mut child).code(), Some(0), "{name}");
        assert_eq!(
            place.run_bounded(&["--embedded=kept", "get", "k"]),
            "--- stdout\nv(no line feed)\n--- exit 0\n"
        );
    }
}
