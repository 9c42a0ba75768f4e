//! The limits of `serve` and the messages about them.

use std::io::Write;
use std::process::{Command, Stdio};

use super::common::bounded::bounded_transcript;
use super::common::wire::connect;
use super::common::{LoggedServer, Place, RawClient, Server, StreamedProcess, Terminal, line_in, wait_until};

const REFUSED: &str = "--- stderr\nerror: the store refused the request: the quota has been exceeded\n  nothing was changed\n\
                       hint: delete unused keys, or let them expire (--ttl)\n--- exit 76\n";

#[test]
fn verbose_output_lists_the_limits_at_the_start() {
    let place = Place::new();
    let limits = |options: &[&str]| {
        let words = [&["serve", "-v", "--listen", "127.0.0.1:0"], options].concat();
        StreamedProcess::start(&mut place.command(&words)).log_line()
    };
    assert_eq!(
        limits(&[]),
        "limits: 10000000 keys, 448M of memory for them and 384M for the broker, 64M per value, 10000 connections, \
         100000 watched keys and 128M of waiting messages per client, 64M per packet, 500 failed logins per address and minute, \
         64M of recorded replies"
    );
    let options = "--keys-max 5 --value-bytes-max 1000B --memory-max 2M --connections-max 9 --watches-max 3 \
                   --queue-bytes-max 1M --login-failures-max 7";
    assert_eq!(
        limits(&options.split_whitespace().collect::<Vec<_>>()),
        "limits: 5 keys, 896K of memory for them and 16M for the broker, 1000 per value, 9 connections, 3 watched keys \
         and 1M of waiting messages per client, 512K per packet, 7 failed logins per address and minute, \
         1M of recorded replies"
    );
    let on_disk = limits(&["--data", "data"]);
    assert!(on_disk.ends_with(", 64M of recorded replies, 4M of disk space for deletions"), "{on_disk}");
}

#[test]
fn a_key_over_the_limit_is_refused_until_another_is_deleted_or_expires() {
    let place = Place::new();
    let server = Server::start(&place, &["-q", "--keys-max", "2"]);
    let at = |words: &[&str]| place.run_at(&server.url(), words);
    assert_eq!(at(&["set", "a", "v"]), "--- exit 0\n");
    assert_eq!(at(&["set", "b", "v"]), "--- exit 0\n");
    assert_eq!(at(&["set", "c", "v"]), REFUSED);
    assert_eq!(at(&["set", "a", "another"]), "--- exit 0\n", "it exists already");
    assert_eq!(at(&["del", "b"]), "--- exit 0\n");
    assert_eq!(at(&["set", "c", "v", "--ttl", "100ms"]), "--- exit 0\n");
    wait_until("c expires", || (at(&["set", "d", "v"]) == "--- exit 0\n").then_some(()));
    assert_eq!(at(&["keys"]), "--- stdout\na\nd\n--- exit 0\n");
}

#[test]
fn memory_values_and_packets_are_bounded() {
    let place = Place::new();
    let options = ["-q", "--memory-max", "6000", "--value-bytes-max", "2K", "--queue-bytes-max", "64K"];
    let server = Server::start(&place, &options);
    let at = |words: &[&str]| place.run_at(&server.url(), words);
    for (name, len) in [("small", 2_048), ("large", 2_049), ("huge", 40_000)] {
        place.write(name, "x".repeat(len));
    }
    let large = "--- stderr\nerror: the store refused the request: the value is too long\n  nothing was changed\n\
                 hint: use a smaller value, or several keys\n--- exit 76\n";
    assert_eq!(at(&["set", "k", "-f", "large"]), large);
    let huge = at(&["set", "k", "-f", "huge"]);
    assert!(
        huge.contains("bytes; the broker accepts at most 32768") && huge.ends_with("--- exit 65\n"),
        "{huge}"
    );
    assert_eq!(at(&["set", "k", "-f", "small"]), "--- exit 0\n");
    assert_eq!(at(&["set", "other", "-f", "small"]), REFUSED);
    assert_eq!(at(&["del", "k"]), "--- exit 0\n");
    assert_eq!(at(&["set", "other", "-f", "small"]), "--- exit 0\n");
}

#[test]
fn connections_and_watched_keys_of_a_client_are_bounded() {
    let place = Place::new();
    let options = ["--listen", "127.0.0.1:0", "--watches-max", "1", "--connections-max", "1"];
    let server = LoggedServer::start(&place, &options);
    let url = format!("mqtt://127.0.0.1:{}", server.port(0));
    let shown = place.run_at(&url, &["watch", "a", "b", "-c", "1"]);
    let refused = "--- stderr\nerror: the store refused the request: the quota has been exceeded\n\
                   hint: watch fewer keys at once, or raise `mqkv serve --watches-max N`\n--- exit 76\n";
    assert_eq!(shown, refused);
    server.log_line_with("disconnected: ");
    let mut watch = place.command(&["-b", &url, "watch", "a"]);
    let watch = StreamedProcess::start(watch.stdin(Stdio::null()));
    server.log_line_with("connected from");
    let refused = "--- stderr\nerror: BROKER rejected the connection: quota exceeded (0x97): too many connections\n\
                   hint: close connections that are not needed, or raise `mqkv serve --connections-max N`\n--- exit 69\n";
    assert_eq!(place.run_at(&url, &["get", "a"]), refused);
    server.log_line_with(" refused: too many connections: at most 1 (--connections-max)");
    let checked = place.run_at(&url, &["doctor"]);
    assert!(checked.contains("too many connections") && checked.contains("--connections-max N"), "{checked}");
    drop(watch);
    server.log_line_with("disconnected: ");
    assert_eq!(place.run_at(&url, &["get", "a"]), "--- stderr\nerror: key not found: a\n--- exit 1\n");
}

#[test]
fn a_lock_over_the_limit_of_watches_suggests_fewer_watches() {
    let place = Place::new();
    let server = Server::start(&place, &["-q", "--watches-max", "1"]);
    let held = place.run_at(&server.url(), &["lock", "deploy", "--once", "-q"]);
    assert!(held.ends_with("--- exit 0\n"), "{held}");
    let terminal = Terminal::start(place.command(&["shell", "-b", &server.url()]));
    terminal.shows("exits");
    terminal.line("watch a");
    terminal.shows("[1 watch]>");
    terminal.line("lock deploy");
    terminal.shows("error: the store refused the request: the quota has been exceeded");
    terminal.shows("hint: watch fewer keys at once, or raise `mqkv serve --watches-max N`");
}

/// Returns a command with a limit on open files that leaves this many to sockets.
fn with_sockets(place: &Place, sockets: usize, options: &[&str]) -> Command {
    let mut shell = Command::new("sh");
    let limit = own_descriptors() + sockets;
    shell
        .args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")])
        .arg(place.command(&[]).get_program())
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(options)
        .current_dir(place.folder());
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

/// The server's own descriptors; their number grows with the processors.
fn own_descriptors() -> usize {
    128 + 4 * std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(16)
}

#[test]
fn a_limit_on_open_files_below_the_limit_on_connections_lowers_that_with_a_warning() {
    let place = Place::new();
    let first_line =
        |options: &[&str]| StreamedProcess::start(&mut with_sockets(&place, 100, options)).log_line();
    let warning = "warning: the limit on open files allows 80 connections";
    // A fifth of the sockets, or 256, are for connections that wait for room.
    let wanted = 10_000 + 256 + own_descriptors();
    assert_eq!(first_line(&[]), format!("{warning}: `ulimit -n {wanted}` allows all"));
    assert!(first_line(&["--connections-max", "80"]).starts_with("listening on "));
    assert!(first_line(&["--connections-max", "81"]).starts_with(warning));
}

#[test]
fn connections_leave_the_storage_the_descriptors_that_it_needs() {
    let place = Place::new();
    let options = ["--data", "data", "--port-file", "port", "--keys-max", "1000"];
    let server = StreamedProcess::start(&mut with_sockets(&place, 50, &options));
    assert!(server.log_line().starts_with("warning: the limit on open files allows 34 connections"));
    assert!(server.log_line().starts_with("listening on "));
    let port: u16 = line_in(&place.path("port")).parse().unwrap();
    let mut batch = place.command(&["-b", &format!("mqtt://127.0.0.1:{port}"), "batch"]);
    let mut batch = batch.stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = batch.stdin.take().unwrap();
    lines.write_all(b"set first v\nget first\n").unwrap();
    let client = StreamedProcess::read(batch);
    client.line();
    let idle: Vec<_> = (0..own_descriptors() + 100)
        .map(|number| {
            let mut idle = RawClient::connect(port);
            idle.send(&connect(&format!("idle-{number}")));
            idle
        })
        .collect();
    // Segments and a snapshot: each needs descriptors.
    let value = "x".repeat(100_000);
    for number in 0..300 {
        lines.write_all(format!("set k{} {value}\n", number % 20).as_bytes()).unwrap();
    }
    drop(lines);
    let (output, errors, code) = client.end();
    assert!(code == Some(0) && errors.is_empty(), "{output:?} {errors:?}");
    drop(idle);
    server.signal(nix::sys::signal::Signal::SIGTERM);
    let (_, log, code) = server.end();
    assert_eq!(code, Some(0));
    assert!(!log.iter().any(|line| line.contains("persistent writes")), "{log:?}");
}

#[test]
fn a_limit_on_memory_below_what_clients_can_make_the_server_hold_is_a_warning() {
    let place = Place::new();
    let first_line = |memory_max: &str| {
        let mut shell = Command::new("sh");
        let script = "ulimit -v 1000000; exec \"$0\" serve --listen 127.0.0.1:0 --memory-max $1";
        shell.args(["-c", script]).arg(place.command(&[]).get_program()).arg(memory_max);
        shell.current_dir(place.folder()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        StreamedProcess::start(&mut shell).log_line()
    };
    assert_eq!(
        first_line("700M"),
        "warning: the limit on memory (`ulimit -v`) is 1000000K, less than 1.5 times --memory-max 700M: a server that gets no memory \
         ends; lower --memory-max"
    );
    assert!(first_line("256M").starts_with("listening on "));
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_no_signal_and_not_passed_on() {
    let place = Place::new();
    let shown = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(place.command(&[]).get_program()).current_dir(place.folder());
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        bounded_transcript(&mut shell)
    };
    let written = shown("ulimit -f 1; \"$0\" man >page; echo $?");
    assert!(
        written.contains("cannot write to standard output: File too large") && written.contains("\n74\n"),
        "{written}"
    );
    let child = shown("exec \"$0\" serve -q --exec -- sh -c 'ulimit -f 1; yes >child'");
    assert!(child.ends_with("--- exit 153\n"), "{child}");
}

#[test]
fn running_out_of_file_descriptors_is_an_error_that_names_the_limit() {
    let place = Place::new();
    let shown = |limit: u32, words: &str| {
        let mut shell = Command::new("sh");
        let script = format!("ulimit -n {limit}; exec \"$0\" {words}");
        shell.args(["-c", &script]).arg(place.command(&[]).get_program()).current_dir(place.folder());
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        bounded_transcript(&mut shell)
    };
    let hint = "hint: raise the limit of open files: `ulimit -n`, or LimitNOFILE of the service\n";
    // Too few for the runtime, for the storage, for the threads.
    for (words, limits) in
        [("serve -q --listen 127.0.0.1:0 --data data", 5..14), ("-b mqtt://127.0.0.1:1 get k", 5..9)]
    {
        for limit in limits {
            let shown = shown(limit, words);
            assert!(
                shown.starts_with("--- stderr\nerror: cannot ") && shown.contains(hint),
                "{limit}: {shown}"
            );
            let has_code = shown.ends_with("--- exit 70\n") || shown.ends_with("--- exit 74\n");
            assert!(has_code && !shown.contains("panicked"), "{limit}: {shown}");
        }
    }
}
