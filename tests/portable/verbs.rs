//! Every verb: its output, its JSON, and the exit codes.

use crate::a_watchdog::bounded;
use crate::place::{Place, Running, wait_for};

#[test]
fn a_value_is_written_read_and_deleted() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mqkv = |words: &[&str]| place.run(&[&["-b", &server.broker], words].concat());
    let prints = |words: &[&str], text: &str| {
        let ran = mqkv(words);
        assert_eq!((ran.code, ran.stdout.trim_end(), ran.stderr.as_str()), (Some(0), text, ""), "{words:?}");
    };
    prints(&["set", "line1/temp", "21.5"], "");
    prints(&["get", "line1/temp"], "21.5");
    prints(&["set", "line1/name", "Grüße"], "");
    prints(&["get", "line1/name"], "Grüße");
    prints(&["keys", "--sort"], "line1/name\nline1/temp");
    prints(&["set", "line1/temp", "22"], "");
    prints(&["set", "line1/temp", "22", "--nex"], "");
    assert_eq!(mqkv(&["set", "line1/temp", "23", "--nex"]).code, Some(1));
    assert_eq!(mqkv(&["set", "line1/temp", "23", "--nx"]).code, Some(1));
    assert_eq!(mqkv(&["vdel", "line1/temp", "21.5"]).code, Some(1));
    prints(&["vdel", "line1/temp", "22"], "");
    prints(&["del", "line1/name"], "");
    assert_eq!(mqkv(&["get", "line1/name"]).code, Some(1));
    assert_eq!(mqkv(&["del", "line1/name"]).code, Some(1));
    let json = mqkv(&["get", "k", "-j"]).stdout;
    assert_eq!(json.trim_end(), r#"{"v":1,"op":"get","key":"k","found":false}"#);
}

#[test]
fn the_bytes_of_a_value_pass_unchanged_through_pipes() {
    let place = Place::new();
    let server = place.serve(&[]);
    // Line ends, an end of file in old consoles, bytes that are no UTF-8.
    let value: Vec<u8> = (0..=255).chain(*b"\r\n\x1a\r\n").collect();
    place.write("value", &value);
    place.output(&["-b", &server.broker, "set", "k", "--file", "value"]);
    let mut command = place.command(&["-b", &server.broker, "get", "k", "-o", "raw"]);
    assert_eq!(bounded(|| command.output()).unwrap().stdout, value);
    let ran = place.run_with_input(&["-b", &server.broker, "set", "piped", "-"], b"a\r\nb\r\n");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(place.output(&["-b", &server.broker, "get", "piped", "-o", "hex"]), "610d0a620d0a");
}

#[test]
fn a_lock_is_held_shown_and_released() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mqkv = |words: &[&str]| place.run(&[&["-b", &server.broker], words].concat());
    assert_eq!(mqkv(&["lock", "deploy", "--once", "--holder", "ci-1", "--ttl", "1m"]).code, Some(0));
    assert!(mqkv(&["holder", "deploy"]).stdout.starts_with("ci-1"));
    assert_eq!(mqkv(&["lock", "deploy", "--once", "--holder", "ci-2", "-w", "0"]).code, Some(1));
    assert_eq!(mqkv(&["unlock", "deploy", "--holder", "ci-1"]).code, Some(0));
    assert_eq!(mqkv(&["holder", "deploy"]).code, Some(1));
}

#[test]
fn changes_are_watched_until_a_state() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mut command = place.command(&["-b", &server.broker, "watch", "k", "--until", "value=done", "-j"]);
    let mut watch = Running(command.spawn().unwrap());
    // The first lines: the watch has begun, and there is no value.
    watch.line();
    place.output(&["-b", &server.broker, "set", "k", "begun"]);
    place.output(&["-b", &server.broker, "set", "k", "done"]);
    assert_eq!(watch.code(), Some(0));
}

#[test]
fn keys_are_exported_and_imported() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mqkv = |words: &[&str]| place.run(&[&["-b", &server.broker], words].concat());
    for key in ["a", "b", "c"] {
        assert_eq!(mqkv(&["set", key, "v"]).code, Some(0));
    }
    let lines = mqkv(&["export"]).stdout;
    assert_eq!(lines.lines().count(), 3, "{lines}");
    // As an editor of Windows leaves it: with a mark at the beginning and CR LF.
    place.write("keys.jsonl", format!("\u{feff}{}", lines.replace('\n', "\r\n")));
    assert_eq!(mqkv(&["del", "--pattern", "*", "--yes"]).code, Some(0));
    let ran = mqkv(&["import", "keys.jsonl"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(mqkv(&["keys", "--sort"]).stdout.lines().collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[test]
fn a_batch_of_ten_thousand_lines_runs_in_order() {
    let place = Place::new();
    let server = place.serve(&[]);
    let lines: String = (0..5_000).map(|n| format!("set k {n}\r\nget k\r\n")).collect();
    let ran = place.run_with_input(&["-b", &server.broker, "batch", "-"], lines.as_bytes());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let expected: Vec<_> = (0..5_000).map(|n| n.to_string()).collect();
    assert_eq!(ran.stdout.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn the_prompt_reads_lines_from_a_pipe() {
    let place = Place::new();
    let server = place.serve(&[]);
    let input = b"set k v\r\nget k\r\n";
    let ran = place.run_with_input(&["-b", &server.broker, "shell"], input);
    assert_eq!((ran.code, ran.stdout.trim_end()), (Some(0), "v"), "{ran:?}");
}

#[test]
fn the_connection_is_measured_and_diagnosed() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mqkv = |words: &[&str]| place.run(&[&["-b", &server.broker], words].concat());
    assert_eq!(mqkv(&["ping", "-c", "2"]).code, Some(0));
    let doctor = mqkv(&["doctor"]);
    assert_eq!(doctor.code, Some(0), "{doctor:?}");
    let bench = mqkv(&["bench", "set", "-c", "100", "-j"]);
    assert_eq!(bench.code, Some(0), "{bench:?}");
    assert_eq!(mqkv(&["raw", "GET", "k"]).stdout.trim_end(), "(nil)");
}

#[test]
fn requests_are_monitored() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mut command = place.command(&["-b", &server.broker, "monitor", "-j", "-c", "1"]);
    let mut monitor = Running(command.spawn().unwrap());
    // The monitor may still be subscribing.
    wait_for(|| {
        place.output(&["-b", &server.broker, "set", "k", "v"]);
        monitor.0.try_wait().unwrap()
    });
    assert_eq!(monitor.code(), Some(0));
}

#[test]
fn what_needs_no_broker_is_printed() {
    let place = Place::new();
    assert!(place.output(&["--version"]).starts_with("mqkv "));
    assert!(place.output(&["decode", "hlc", "1696374425000:0:Client1"]).contains("Client1"));
    for shell in ["bash", "zsh", "fish", "powershell"] {
        assert!(place.output(&["completions", shell]).contains("mqkv"), "{shell}");
    }
    assert!(place.output(&["man"]).contains(".TH"));
    assert!(place.output(&["help", "exit-codes"]).contains("124"));
    assert!(place.output(&["get", "--help"]).contains("Usage: mqkv get"));
}

#[test]
fn an_error_has_its_exit_code_on_each_system() {
    let place = Place::new();
    place.write("data", "not a frame");
    place.write("bad.toml", "unknown = 1\n");
    // A free port could be another test's a moment later.
    let closed_broker = "mqtt://127.0.0.1:1";
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_broker = format!("mqtt://{}", silent.local_addr().unwrap());
    for (words, code) in [
        (&["gett", "k"][..], 2),
        (&["decode", "frame", "--file", "data"], 65),
        (&["-b", closed_broker, "get", "k"], 69),
        (&["--embedded", "set", "k", "--file", "missing"], 74),
        (&["--config", "bad.toml", "--embedded", "get", "k"], 78),
        (&["-b", &silent_broker, "--timeout", "200ms", "--connect-timeout", "200ms", "get", "k"], 124),
        (&["--embedded", "lock", "k", "--", "mqkv-no-such-command"], 127),
    ] {
        let ran = place.run(words);
        assert_eq!(ran.code, Some(code), "{words:?}: {ran:?}");
        assert!(ran.stderr.starts_with("error: "), "{words:?}: {ran:?}");
    }
}
