//! The limits of `serve` and the messages about them.

use std::process::{Command, Stdio};

use super::common::bounded::bounded_transcript;
use super::common::{LoggedServer, Place, Server, StreamedProcess, Terminal, wait_until};

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
    let shown = place.run_at(&url, &["get", "a"]);
    assert!(shown.ends_with("--- exit 69\n"), "{shown}");
    server.log_line_with(" refused: too many connections");
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

#[test]
fn a_limit_on_open_files_below_the_limit_on_connections_is_a_warning() {
    // The server's own descriptors; their number grows with the processors.
    let own = 128 + 4 * std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(16);
    let limit = own + 100;
    let place = Place::new();
    let first_line = |options: &str| {
        let mut shell = Command::new("sh");
        let script = format!("ulimit -n {limit}; exec \"$0\" serve --listen 127.0.0.1:0 $1");
        shell
            .args(["-c", &script])
            .arg(place.command(&[]).get_program())
            .arg(options)
            .current_dir(place.folder());
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        StreamedProcess::start(&mut shell).log_line()
    };
    let wanted = 10_000 + own;
    let warning = "warning: the limit on open files allows about 100 connections";
    assert_eq!(first_line(""), format!("{warning}: `ulimit -n {wanted}` allows all"));
    assert!(first_line("--connections-max 100").starts_with("listening on "));
    assert!(first_line("--connections-max 101").contains(&format!("`ulimit -n {}`", limit + 1)));
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
        written.contains("write standard output: File too large") && written.contains("\n74\n"),
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
