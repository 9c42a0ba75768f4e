//! `serve` in one terminal, the verbs in another: their output without errors.

use super::common::wait_until;
use super::common::{Place, Server};

/// Starts a server and returns it with the working directory of its clients.
fn pair() -> (Place, Server) {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    (place, server)
}

/// Runs a command line, split at white space.
#[track_caller]
fn run(place: &Place, server: &Server, line: &str) -> String {
    place.run_at(&server.url(), &line.split_whitespace().collect::<Vec<_>>())
}

#[test]
fn a_value_set_in_one_terminal_is_read_in_another() {
    let (place, server) = pair();
    let run = |line: &str| run(&place, &server, line);
    assert_eq!(run("set a 1"), "--- exit 0\n");
    assert_eq!(run("get a"), "--- stdout\n1(no line feed)\n--- exit 0\n");
    assert_eq!(run("get b"), "--- stderr\nerror: key not found: b\n--- exit 1\n");
    assert_eq!(run("get b --default none"), "--- stdout\nnone(no line feed)\n--- exit 0\n");
    assert_eq!(
        run("set line1/temp 21.5 --ttl 30s -o text"),
        "--- stdout\nstored line1/temp (4 bytes, expires in 30s)\n--- exit 0\n"
    );
    assert_eq!(run("get line1/temp -o text"), "--- stdout\n21.5\n--- exit 0\n");
    let verbose = run("get line1/temp -o text -v");
    assert!(verbose.starts_with("--- stdout\n21.5  VERSION  expires in "), "{verbose}");
    assert_eq!(run("get b -o text"), "--- stderr\nerror: key not found: b\n--- exit 1\n");
    assert_eq!(run("get b -o text -q"), "--- exit 1\n");
}

#[test]
fn every_format_shows_the_same_value() {
    let (place, server) = pair();
    let run = |line: &str| run(&place, &server, line);
    assert_eq!(run("set k --hex 00ff0a"), "--- exit 0\n");
    assert_eq!(run("get k -o text"), "--- stdout\n\\x00\\xFF\n\n--- exit 0\n");
    assert_eq!(run("get k -o raw"), "--- stdout\n\\x00\\xff\\n(no line feed)\n--- exit 0\n");
    assert_eq!(run("get k -o hex"), "--- stdout\n00ff0a\n--- exit 0\n");
    assert_eq!(run("get k -o base64"), "--- stdout\nAP8K\n--- exit 0\n");
    let json = "--- stdout\n{\"v\":1,\"op\":\"get\",\"key\":\"k\",\"found\":true,\"value\":\"AP8K\",\
                \"encoding\":\"base64\",\"size\":3,\"version\":\"VERSION\"}\n--- exit 0\n";
    for format in ["-j", "-o json", "--output=jsonl"] {
        assert_eq!(run(&format!("get k {format}")), json, "{format}");
    }
    assert_eq!(run("set k 21.5"), "--- exit 0\n");
    assert_eq!(
        run("get k -j"),
        "--- stdout\n{\"v\":1,\"op\":\"get\",\"key\":\"k\",\"found\":true,\"value\":\"21.5\",\
         \"encoding\":\"utf-8\",\"size\":4,\"version\":\"VERSION\"}\n--- exit 0\n"
    );
    assert_eq!(
        run("get no -j"),
        "--- stdout\n{\"v\":1,\"op\":\"get\",\"key\":\"no\",\"found\":false}\n--- exit 1\n"
    );
}

#[test]
fn a_write_reports_its_result_as_json() {
    let (place, server) = pair();
    let run = |line: &str| run(&place, &server, line);
    let json = |record: &str, code: u8| format!("--- stdout\n{{\"v\":1,{record}}}\n--- exit {code}\n");
    assert_eq!(
        run("set k v --ttl 30s -j"),
        json("\"op\":\"set\",\"key\":\"k\",\"applied\":true,\"version\":\"VERSION\",\"ttl_ms\":30000", 0)
    );
    assert_eq!(
        run("set k w --nx -j"),
        json(
            "\"op\":\"set\",\"key\":\"k\",\"applied\":false,\"condition\":\"nx\",\"version\":\"VERSION\"",
            1
        )
    );
    assert_eq!(
        run("vdel k w -j"),
        json(
            "\"op\":\"vdel\",\"key\":\"k\",\"deleted\":0,\"reason\":\"value-differs\",\"version\":\"VERSION\"",
            1
        )
    );
    assert_eq!(
        run("vdel k v -j"),
        json("\"op\":\"vdel\",\"key\":\"k\",\"deleted\":1,\"version\":\"VERSION\"", 0)
    );
    assert_eq!(run("del k -j"), json("\"op\":\"del\",\"key\":\"k\",\"deleted\":0,\"reason\":\"missing\"", 1));
}

#[test]
fn an_unmet_condition_changes_nothing() {
    let (place, server) = pair();
    let run = |line: &str| run(&place, &server, line);
    assert_eq!(run("set job worker-3 --nx"), "--- exit 0\n");
    assert_eq!(run("set job worker-4 --nx"), "--- stderr\nerror: not stored: job exists\n--- exit 1\n");
    assert_eq!(
        run("set job worker-4 --if-absent -o text"),
        "--- stderr\nerror: not stored: job exists\n--- exit 1\n"
    );
    assert_eq!(run("set job worker-3 --nex"), "--- exit 0\n");
    assert_eq!(
        run("set job worker-4 --if-absent-or-equal -o text"),
        "--- stderr\nerror: not stored: job has another value\n--- exit 1\n"
    );
    assert_eq!(run("set job worker-4 --nex -o text -q"), "--- exit 1\n");
    assert_eq!(run("get job"), "--- stdout\nworker-3(no line feed)\n--- exit 0\n");
    assert_eq!(run("set free worker-4 --nex"), "--- exit 0\n");
}

#[test]
fn a_key_with_a_time_to_live_expires() {
    let (place, server) = pair();
    let run = |line: &str| run(&place, &server, line);
    assert_eq!(run("set k v --ttl 300ms"), "--- exit 0\n");
    wait_until("the key expires", || {
        (run("get k") == "--- stderr\nerror: key not found: k\n--- exit 1\n").then_some(())
    });
    assert_eq!(run("set k w --nx --ttl 1h"), "--- exit 0\n");
    // A SET without a time to live removes the previous one.
    assert_eq!(run("set k x --ttl 1ms"), "--- exit 0\n");
    assert_eq!(run("set k y"), "--- exit 0\n");
    assert_eq!(run("get k"), "--- stdout\ny(no line feed)\n--- exit 0\n");
}

#[test]
fn a_value_is_accepted_in_every_form() {
    let (place, server) = pair();
    let url = server.url();
    place.write("file", b"from a file\n");
    let set = |words: &[&str], input: &[u8], value: &[u8]| {
        let shown = place.run_at_with_input(&url, &[&["set", "k"], words].concat(), input);
        assert_eq!(shown, "--- exit 0\n", "{words:?}");
        assert_eq!(place.bytes_at(&url, &["get", "k"]), value, "{words:?}");
    };
    set(&["word"], b"", b"word");
    set(&[""], b"", b"");
    set(&["-5"], b"", b"-5");
    set(&["--value", "-abc"], b"", b"-abc");
    set(&["--value", "-"], b"not this", b"-");
    set(&["--", "--ttl"], b"", b"--ttl");
    set(&["@file"], b"", b"@file");
    set(&["-"], b"from\0a pipe\n", b"from\0a pipe\n");
    set(&["-", "--strip-newline"], b"from a pipe\r\n", b"from a pipe");
    set(&["-f", "file"], b"", b"from a file\n");
    set(&["--file", "file", "--strip-newline"], b"", b"from a file");
    set(&["--valuefile", "file"], b"", b"from a file\n");
    set(&["-f", "-"], b"from a pipe", b"from a pipe");
    set(&["--hex", "00fF"], b"", b"\x00\xff");
    set(&["--base64", "AP8="], b"", b"\x00\xff");
    set(&["v", "--persist"], b"", b"v");
}

#[test]
fn a_key_is_accepted_in_every_form() {
    let (place, server) = pair();
    let run = |line: &str| run(&place, &server, line);
    for key in ["-k a/b", "--key a/b", "--key-hex 612f62", "--key-base64 YS9i", "a/b"] {
        assert_eq!(run(&format!("set {key} v")), "--- exit 0\n", "{key}");
        assert_eq!(run(&format!("get {key}")), "--- stdout\nv(no line feed)\n--- exit 0\n", "{key}");
        assert_eq!(run(&format!("vdel {key} v")), "--- exit 0\n", "{key}");
        assert_eq!(run("get a/b"), "--- stderr\nerror: key not found: a/b\n--- exit 1\n", "{key}");
    }
    assert_eq!(run("set -5 -5"), "--- exit 0\n");
    assert_eq!(run("del -5 -o text"), "--- stdout\ndeleted -5\n--- exit 0\n");
}

#[test]
fn several_keys_are_deleted_at_once() {
    let (place, server) = pair();
    let run = |line: &str| run(&place, &server, line);
    for key in ["a", "b", "c"] {
        assert_eq!(run(&format!("set {key} v")), "--- exit 0\n");
    }
    assert_eq!(
        run("del a no b -o text"),
        "--- stdout\ndeleted a\ndeleted b\n--- stderr\nerror: key not found: no\n--- exit 1\n"
    );
    assert_eq!(run("rm c no --ignore-missing"), "--- exit 0\n");
    assert_eq!(run("delete a"), "--- stderr\nerror: key not found: a\n--- exit 1\n");
    assert_eq!(run("delete a --ignore-missing"), "--- exit 0\n");
    let many: Vec<String> = (0..300).map(|number| format!("k{number}")).collect();
    let many: Vec<&str> = ["del", "-j"].into_iter().chain(many.iter().map(String::as_str)).collect();
    let shown = place.run_at(&server.url(), &many);
    assert_eq!(shown.lines().filter(|line| line.contains("\"reason\":\"missing\"")).count(), 300);
    let last = "{\"v\":1,\"op\":\"del\",\"key\":\"k299\",\"deleted\":0,\"reason\":\"missing\"}\n--- exit 1\n";
    assert!(shown.ends_with(last), "in the order of the keys");
}

#[test]
fn a_key_is_deleted_only_with_its_value() {
    let (place, server) = pair();
    let run = |line: &str| run(&place, &server, line);
    assert_eq!(run("set k v"), "--- exit 0\n");
    assert_eq!(run("vdel k w"), "--- stderr\nerror: not deleted: k has another value\n--- exit 1\n");
    assert_eq!(run("vdel k w -o text"), "--- stderr\nerror: not deleted: k has another value\n--- exit 1\n");
    assert_eq!(run("vdel k v -o text"), "--- stdout\ndeleted k\n--- exit 0\n");
    assert_eq!(run("vdel k v -o text"), "--- stderr\nerror: key not found: k\n--- exit 1\n");
}

#[test]
fn a_ping_reports_the_connect_time_and_the_round_trip() {
    let (place, server) = pair();
    let shown = run(&place, &server, "ping -c 2");
    let lines: Vec<&str> = shown.lines().collect();
    let [head, first, second, exit] = lines[..] else { panic!("{shown}") };
    assert_eq!((head, exit), ("--- stdout", "--- exit 0"));
    assert!(first.starts_with("BROKER  connect ") && first.contains(" ms  round trip "), "{first}");
    assert!(second.starts_with("BROKER  round trip ") && second.ends_with(" ms"), "{second}");
    let shown = run(&place, &server, "ping -j");
    assert!(
        shown.starts_with("--- stdout\n{\"v\":1,\"op\":\"ping\",\"broker\":\"BROKER\",\"seq\":1,"),
        "{shown}"
    );
    assert!(shown.contains("\"connect_ms\":") && shown.contains("\"round_trip_ms\":"), "{shown}");
}

#[test]
fn raw_words_show_the_reply_as_sent() {
    let (place, server) = pair();
    let run = |line: &str| run(&place, &server, line);
    assert_eq!(run("raw SET k v NEX PX 60000"), "--- stdout\n+OK\n--- exit 0\n");
    assert_eq!(run("raw SET k w NX"), "--- stdout\n:-1\n--- exit 0\n");
    assert_eq!(run("raw GET k"), "--- stdout\n\"v\"\n--- exit 0\n");
    assert_eq!(run("raw GET k -v"), "--- stdout\n\"v\"  VERSION\n--- exit 0\n");
    assert_eq!(run("raw GET no"), "--- stdout\n(nil)\n--- exit 0\n");
    assert_eq!(run("raw -o raw GET k"), "--- stdout\n$1\\r\nv\\r\n--- exit 0\n");
    assert_eq!(run("raw -o hex GET k"), "--- stdout\n24310d0a760d0a\n--- exit 0\n");
    assert_eq!(
        run("raw -j GET k"),
        "--- stdout\n{\"v\":1,\"op\":\"raw\",\"reply\":{\"type\":\"bulk\",\"value\":\"v\",\"encoding\":\"utf-8\"},\
         \"version\":\"VERSION\"}\n--- exit 0\n"
    );
    assert_eq!(run("raw SCAN k*"), "--- stdout\n1) 1) \"k\"\n--- exit 0\n");
    assert_eq!(run("raw DEL k"), "--- stdout\n:1\n--- exit 0\n");
    assert_eq!(
        run("raw get k"),
        "--- stdout\n-ERR unknown command\n--- stderr\nerror: the store refused the request: unknown command\n  \
         nothing was changed\nhint: commands are GET, SET, DEL, VDEL, KEYNOTIFY, SCAN, in upper case\n--- exit 76\n"
    );
    assert_eq!(
        run("raw GET"),
        "--- stdout\n-ERR wrong number of arguments\n--- stderr\n\
         error: the store refused the request: wrong number of arguments\n--- exit 76\n"
    );
}

#[test]
fn the_command_lines_of_microsofts_tool_work_unchanged() {
    let (place, server) = pair();
    let url = server.url();
    let port = url.rsplit(':').next().unwrap();
    place.write("in", b"from a file");
    let run = |line: &str| {
        let line = format!("{line} -n 127.0.0.1 -p {port} --notls");
        place.run_bounded(&line.split_whitespace().collect::<Vec<_>>())
    };
    assert_eq!(run("set -k K --value V"), "--- exit 0\n");
    assert_eq!(run("get -k K"), "--- stdout\nV(no line feed)\n--- exit 0\n");
    assert_eq!(run("set -k K -f in"), "--- exit 0\n");
    assert_eq!(run("get -k K -f out"), "--- exit 0\n");
    assert_eq!(std::fs::read(place.path("out")).unwrap(), b"from a file");
    assert_eq!(run("set --key K --valuefile in"), "--- exit 0\n");
    assert_eq!(run("get --key K --valuefile out2"), "--- exit 0\n");
    assert_eq!(std::fs::read(place.path("out2")).unwrap(), b"from a file");
    assert_eq!(run("delete -k K"), "--- exit 0\n");
    assert_eq!(run("delete -k K"), "--- stderr\nerror: key not found: K\n--- exit 1\n");
    assert_eq!(run("get -k K"), "--- stderr\nerror: key not found: K\n--- exit 1\n");
}

#[test]
fn a_file_is_written_whole_and_reported() {
    let (place, server) = pair();
    let run = |line: &str| run(&place, &server, line);
    assert_eq!(run("set k v"), "--- exit 0\n");
    assert_eq!(run("get k -f out -o text"), "--- stdout\nwrote out (1 byte)\n--- exit 0\n");
    assert_eq!(
        run("get k -f out -j"),
        "--- stdout\n{\"v\":1,\"op\":\"get\",\"key\":\"k\",\"found\":true,\"file\":\"out\",\"size\":1,\
         \"version\":\"VERSION\"}\n--- exit 0\n"
    );
    // A missing key does not modify the file.
    assert_eq!(run("get no -f out"), "--- stderr\nerror: key not found: no\n--- exit 1\n");
    assert_eq!(std::fs::read(place.path("out")).unwrap(), b"v");
}

#[test]
fn several_keys_are_printed_in_order_one_line_each() {
    let (place, server) = pair();
    let run = |line: &str| run(&place, &server, line);
    assert_eq!(run("set a --value one"), "--- exit 0\n");
    assert_eq!(run("set b --hex 610a62"), "--- exit 0\n");
    let missing = "--- stderr\nerror: key not found: no\n--- exit 1\n";
    assert_eq!(run("get b no a"), format!("--- stdout\na\\x0Ab\n\none\n{missing}"));
    assert_eq!(run("get b no a -o text"), format!("--- stdout\nb  a\\x0Ab\na  one\n{missing}"));
    assert_eq!(run("get a a --default x"), "--- stdout\none\none\n--- exit 0\n");
    assert_eq!(run("get no a --default x -o hex"), "--- stdout\n78\n6f6e65\n--- exit 0\n");
    let refused = run("get a b -f out");
    assert!(refused.contains("error: -f takes the value of one key") && refused.ends_with("--- exit 2\n"));
    assert_eq!(run("del no --ignore-missing -o text"), "--- exit 0\n", "an ignored key is not reported");
}

#[test]
fn a_value_of_several_lines_is_readable_on_a_terminal() {
    let (place, server) = pair();
    let run = |line: &str| run(&place, &server, line);
    assert_eq!(run("set k --hex 7b0a09226d223a1b"), "--- exit 0\n");
    assert_eq!(run("get k -o text"), "--- stdout\n{\n\t\"m\":\\x1B\n--- exit 0\n");
}
