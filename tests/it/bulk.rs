//! Many lines and many keys: `batch`, `keys`, `export`, `import`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::thread;

use nix::sys::signal::Signal;

use super::common::bounded::wait_for_exit;
use super::common::fake_broker::FakeBroker;
use super::common::wire::Publish;
use super::common::{Place, Server, peak_bytes};
use crate::a_watchdog::bounded;

/// A pseudo-random sequence with a fixed seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, len_max: u64) -> Vec<u8> {
        let len = self.next() % (len_max + 1);
        (0..len).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

fn batch(place: &Place, server: &Server, options: &[&str], lines: &str) -> String {
    place.run_at_with_input(&server.url(), &[&["batch", "-"], options].concat(), lines.as_bytes())
}

#[test]
fn answers_keep_the_order_of_the_lines_and_each_line_sees_the_effects_of_earlier_ones() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let (mut lines, mut answers, mut errors) = (String::new(), String::new(), String::new());
    for number in 0..500 {
        write!(lines, "set k {number}\nget k\ndel k\nget k\n").unwrap();
        write!(answers, "{number}\n\n").unwrap();
        writeln!(errors, "error: standard input:{}: key not found: k", 4 * number + 4).unwrap();
    }
    assert_eq!(
        batch(&place, &server, &[], &lines),
        format!("--- stdout\n{answers}--- stderr\n{errors}--- exit 1\n")
    );
    assert_eq!(
        batch(&place, &server, &["--inflight", "1"], "set k v\nget k\n"),
        "--- stdout\nv\n--- exit 0\n"
    );
}

#[test]
fn operators_of_a_shell_are_an_error_and_no_keys() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    batch(&place, &server, &[], "set a 1\nset b 2\nset del 3\n");
    for line in ["del a && del b", "del a ; del b", "del a > b"] {
        let answer = batch(&place, &server, &[], line);
        assert!(
            answer.contains(" is not supported in a line\n") && answer.ends_with("--- exit 2\n"),
            "{answer}"
        );
    }
    assert_eq!(batch(&place, &server, &[], "keys --count"), "--- stdout\n3\n--- exit 0\n");
}

#[test]
fn a_line_of_several_requests_is_ordered_with_the_lines_around_it() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let lines = "set a 1\nset b 2\ndel a b\nset a 3\nkeys\nget a\nget b\n";
    assert_eq!(
        batch(&place, &server, &[], lines),
        "--- stdout\na\n3\n\n--- stderr\nerror: standard input:7: key not found: b\n--- exit 1\n"
    );
}

#[test]
fn json_in_a_line_keeps_its_quotes_or_is_refused() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let lines = r#"set j {"a":"x\"y\\"}
vdel j {"a":1}
get j
raw SET r ["it's"]
get r
"#;
    let answers = "--- stdout\n{\"a\":\"x\\\\\"y\\\\\\\\\"}\n+OK\n[\"it's\"]\n";
    let shown = batch(&place, &server, &["--keep-going"], lines);
    assert!(shown.starts_with(answers) && shown.ends_with("--- exit 1\n"), "{shown}");
    for line in [r#"set j {"a": 1}"#, r#"set j {"a": "b"}"#, r#"vdel j {"a": 1}"#, "set j 'a'b"] {
        let shown = batch(&place, &server, &[], line);
        assert!(shown.ends_with("--- exit 2\n") && !shown.contains("stdout"), "{line}: {shown}");
    }
}

#[test]
fn lines_use_shell_quoting_or_protocol_syntax() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let lines =
        "# a comment\n\n  SET 'a key' \"x\\ny\\x00\\\\\" NX PX 60000\nGET \"a key\"\r\nset a -5\nget a";
    assert_eq!(batch(&place, &server, &[], lines), "--- stdout\nx\\x0Ay\\x00\\\\\n-5\n--- exit 0\n");
}

#[test]
fn the_first_error_ends_a_batch_and_reports_what_was_sent() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    assert_eq!(
        batch(&place, &server, &[], "set a 1\ngte a\nset a 2\n"),
        "--- stderr\nerror: standard input:2: unknown command 'gte'\n  no later line was sent\nhint: did you mean 'get'?\n\
         hint: mqkv help\n--- exit 2\n"
    );
    assert_eq!(
        batch(&place, &server, &[], "set a 1 --ttl 5\nset a 2\n"),
        "--- stderr\nerror: standard input:1: invalid value '5' for '--ttl <DURATION>': a duration needs a unit, \
         for example 5s\n  no later line was sent\nhint: mqkv help set\n--- exit 2\n"
    );
    assert_eq!(place.bytes_at(&server.url(), &["get", "a"]), b"1");
}

#[test]
fn requests_sent_before_the_first_error_was_seen_are_awaited_and_reported() {
    let fake = FakeBroker::start(|connection| {
        let mut requests = vec![connection.serve()];
        while requests.len() < 4 {
            requests.push(connection.request());
        }
        for (request, answer) in
            requests.iter().zip(["-ERR syntax error\r\n", "+OK\r\n", "$1\r\n1\r\n", "$-1\r\n"])
        {
            connection.answer(request, answer, &[]);
        }
        connection.listen();
    });
    assert_eq!(
        Place::new().run_at_with_input(
            &fake.url(),
            &["batch", "-"],
            b"set a 1\nset b 1\n\nget b\nget none\n"
        ),
        "--- stdout\n1\n\n--- stderr\nerror: standard input:5: key not found: none\n\
         error: standard input:1: the store refused the request: syntax error\n  \
         lines 2 to 5 were sent: 2 succeeded, 1 with a negative answer; no later line was sent\n--- exit 76\n"
    );
    fake.end();
}

#[test]
fn keep_going_runs_all_lines_and_exits_with_the_greatest_code() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let lines = "get none\nset a 1 --fence 999999999999999:00000:x\nset\nget \"a\nset a 2\nget a\n";
    let shown = batch(&place, &server, &["--keep-going"], lines);
    assert!(
        shown.starts_with(
            "--- stdout\n\n2\n--- stderr\nerror: standard input:1: key not found: none\n\
             error: standard input:2: the store refused the request: "
        ),
        "{shown}"
    );
    assert!(shown.contains("\nerror: standard input:3: KEY is missing\n"), "{shown}");
    assert!(shown.contains("\nerror: standard input:4: unclosed quote \" at column 5\n"), "{shown}");
    assert!(shown.contains("\nerror: 3 of 6 lines failed\n  worst error: standard input:2: "), "{shown}");
    assert!(shown.ends_with("--- exit 76\n"), "{shown}");
}

#[test]
fn json_lines_are_answered_with_their_ids() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let lines = concat!(
        r#"{"id":"one","op":"set","key":"/w==","key_encoding":"base64","value":"v","condition":"nx"}"#,
        "\n",
        r#"{"id":[2],"op":"get","key":"/w==","key_encoding":"base64"}"#,
        "\n\n",
        r#"{"op":"vdel","key":"none","value":""}"#,
        "\n",
        r#"{"id":5,"op":"set","key":"k"}"#,
        "\n",
        r#"{"id":6,"op":"get","#,
    );
    assert_eq!(
        batch(&place, &server, &["--format", "jsonl", "--keep-going"], lines),
        concat!(
            "--- stdout\n",
            r#"{"v":1,"id":"one","line":1,"op":"set","key":"/w==","key_encoding":"base64","applied":true,"condition":"nx","version":"VERSION"}"#,
            "\n",
            r#"{"v":1,"id":[2],"line":2,"op":"get","key":"/w==","key_encoding":"base64","found":true,"value":"v","encoding":"utf-8","size":1,"version":"VERSION"}"#,
            "\n",
            r#"{"v":1,"line":4,"op":"vdel","key":"none","deleted":0,"reason":"missing"}"#,
            "\n",
            r#"{"v":1,"id":5,"line":5,"error":{"kind":"data","code":65,"message":"line 5: missing member \"value\"","file":"-","line":5,"retryable":false}}"#,
            "\n",
            r#"{"v":1,"line":6,"error":{"kind":"data","code":65,"message":"line 6: invalid JSON: unexpected end of line","file":"-","line":6,"causes":["the file ends within this line"],"retryable":false}}"#,
            "\n--- stderr\n",
            r#"{"v":1,"error":{"kind":"data","code":65,"message":"2 of 5 lines failed","causes":["worst error: standard input:5: missing member \"value\""],"retryable":false}}"#,
            "\n--- exit 65\n"
        )
    );
}

#[test]
fn a_line_of_a_batch_reads_no_standard_input_and_starts_no_batch() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let shown = batch(&place, &server, &[], "set k -\nset k v\n");
    assert!(shown.contains("error: standard input:1: standard input cannot be read from here\n"), "{shown}");
    let shown = batch(&place, &server, &[], "set k\n");
    assert!(shown.contains("hint: '' is the empty value\n"), "{shown}");
    let shown = batch(&place, &server, &[], "batch other\n");
    assert!(shown.contains("error: standard input:1: 'batch' is not available in a script\n"), "{shown}");
    assert!(shown.ends_with("--- exit 2\n"), "{shown}");
    assert_eq!(
        place.run_at(&server.url(), &["batch", "none"]),
        "--- stderr\nerror: cannot read none: No such file or directory (os error 2)\n--- exit 74\n"
    );
}

#[test]
fn an_invalid_line_is_reported_without_a_connection() {
    let place = Place::new();
    let shown = place.run_at_with_input("mqtt://127.0.0.1:1", &["batch", "-"], b"gte k\n");
    assert!(shown.contains("unknown command 'gte'"), "{shown}");
    let shown = place.run_at_with_input("mqtt://127.0.0.1:1", &["batch", "-"], b"get k\n");
    assert!(shown.contains("error: connection refused: "), "{shown}");
    assert!(shown.ends_with("--- exit 69\n"), "{shown}");
}

/// Writes a line again and again until the pipe is closed or `bytes_max` is reached. The thread returns the number of
/// bytes.
fn write_repeatedly(child: &mut Child, line: String, bytes_max: usize) -> thread::JoinHandle<usize> {
    let mut stdin = child.stdin.take().unwrap();
    thread::spawn(move || {
        let mut written = 0;
        while written < bytes_max && stdin.write_all(line.as_bytes()).is_ok() {
            written += line.len();
        }
        written
    })
}

#[test]
fn a_store_that_does_not_answer_stops_the_input_and_memory_stays_bounded() {
    const LINE_BYTES: usize = 32 * 1024;
    const INPUT_BYTES: usize = 1024 * 1024 * 1024;
    let place = Place::new();
    let server = Server::start(&place, &[]);
    // A timeout that a busy machine does not reach: the first answer would be missing. Requests time out twice below.
    let words = ["batch", "-", "--keep-going", "--timeout", "2s", "-b", &server.url()];
    let mut child = place
        .command(&words)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"set a 1\nget a\n").unwrap();
    let mut line = String::new();
    bounded(|| stdout.read_line(&mut line)).unwrap();
    assert_eq!(line, "1\n", "an answer does not wait for the end of the input");
    server.signal(Signal::SIGSTOP);
    child.stdin = Some(stdin);
    let written = write_repeatedly(&mut child, format!("set k {}\n", "v".repeat(LINE_BYTES)), INPUT_BYTES);
    thread::sleep(std::time::Duration::from_secs(5));
    let resident = peak_bytes(&child);
    child.kill().unwrap();
    wait_for_exit(&mut child);
    let written = bounded(|| written.join()).unwrap();
    server.signal(Signal::SIGCONT);
    assert!(resident < 100 * 1024 * 1024, "{resident} bytes in memory after {written} bytes of input");
    assert!(written < INPUT_BYTES / 2, "{written}");
}

#[test]
fn keys_are_listed_and_an_empty_list_is_success() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    batch(&place, &server, &[], "set \"a\\n\" 1\nset a\\\\b 2\nset ab 3\nset \"\\xff\" 4\n");
    let listed = |words: &[&str]| {
        let bytes = place.bytes_at(&server.url(), &[&["keys"], words].concat());
        let separator = if words.contains(&"-0") { '\0' } else { '\n' };
        let text = String::from_utf8(bytes).unwrap();
        let mut keys: Vec<_> = text.split_terminator(separator).map(str::to_owned).collect();
        keys.sort();
        keys
    };
    assert_eq!(listed(&[]), ["\\xFF", "a\\\\b", "a\\x0A", "ab"]);
    assert_eq!(listed(&["-0", "a*"]), ["a\n", "a\\b", "ab"]);
    assert_eq!(listed(&["?b"]), ["ab"]);
    assert_eq!(listed(&["--limit", "2"]).len(), 2);
    assert_eq!(listed(&["ab", "-j"]), [r#"{"v":1,"op":"keys","key":"ab"}"#]);
    let at = |words: &[&str]| place.run_at(&server.url(), words);
    assert_eq!(at(&["keys", "zz*"]), "--- exit 0\n");
    assert_eq!(
        at(&["keys", ""]),
        "--- stderr\nerror: the pattern is empty\nhint: use '*' to match every key\n--- exit 2\n"
    );
    assert!(at(&["keys", "["]).ends_with("--- exit 76\n"));
}

#[test]
fn a_store_without_scan_is_reported() {
    for words in [&["keys"][..], &["export"]] {
        let fake = FakeBroker::start(|connection| {
            let request = connection.serve();
            connection.answer(&request, "-ERR unknown command\r\n", &[]);
            connection.listen();
        });
        assert_eq!(
            Place::new().run_at(&fake.url(), words),
            "--- stderr\nerror: cannot list keys: the store of this broker does not support SCAN\n\
             hint: list the keys in a file, one per line: mqkv export --keys-from FILE\n--- exit 76\n"
        );
        fake.end();
    }
}

#[test]
fn a_key_that_is_deleted_during_an_export_is_left_out() {
    let fake = FakeBroker::start(|connection| {
        let scan = connection.serve();
        connection.answer(&scan, "*1\r\n*1\r\n$1\r\na\r\n", &[]);
        while let Some(packet) = connection.next() {
            if packet.name() == "PUBLISH" {
                connection.answer(&Publish::decode(&packet), "$-1\r\n", &[]);
            }
        }
    });
    assert_eq!(
        Place::new().run_at(&fake.url(), &["export"]),
        "--- stderr\nexported 0 keys; 1 key was deleted meanwhile\n\
         --- exit 0\n"
    );
    fake.end();
    let place = Place::new();
    let server = Server::start(&place, &[]);
    batch(&place, &server, &[], "set a 1\nset b 2\n");
    place.write("keys", "a\nnone\n\nb");
    assert_eq!(
        place.run_at(&server.url(), &["export", "--keys-from", "keys"]),
        "--- stdout\n\
         {\"v\":1,\"op\":\"export\",\"key\":\"a\",\"value\":\"1\",\"encoding\":\"utf-8\",\"version\":\"VERSION\"}\n\
         {\"v\":1,\"op\":\"export\",\"key\":\"b\",\"value\":\"2\",\"encoding\":\"utf-8\",\"version\":\"VERSION\"}\n\
         --- stderr\nexported 2 keys; 1 key was not found\n\
         --- exit 0\n"
    );
    place.write("keys", "a\nC:\\temp\n");
    let shown = place.run_at(&server.url(), &["export", "--keys-from", "keys"]);
    assert!(shown.contains("error: keys:2: unknown escape at column 3: "), "{shown}");
    assert!(shown.ends_with("--- exit 65\n"), "{shown}");
}

/// Returns the lines of an export by their text before the version.
fn entries(export: &[u8]) -> BTreeMap<String, String> {
    let text = std::str::from_utf8(export).unwrap();
    text.lines()
        .map(|line| (line.split(",\"version\"").next().unwrap().to_owned(), line.to_owned()))
        .collect()
}

/// Runs a verb with its standard output in a file. Returns standard error and the exit code.
fn run_into(place: &Place, file: &str, words: &[&str]) -> String {
    let output = fs::File::create(place.path(file)).unwrap();
    let output = bounded(|| place.command(words).stdout(output).output()).unwrap();
    format!("{}exit {:?}", String::from_utf8_lossy(&output.stderr), output.status.code())
}

#[test]
fn keys_and_values_of_random_bytes_survive_export_and_import() {
    round_trip(2_000);
}

#[test]
#[ignore = "takes half a minute; .ci/run runs it"]
fn thirty_thousand_keys_survive_export_and_import() {
    round_trip(30_000);
}

fn round_trip(count: usize) {
    let place = Place::new();
    let from = Server::start(&place, &[]);
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    let (mut lines, mut names) = (Vec::new(), Vec::new());
    for number in 0..count {
        let mut key = numbers.bytes(12);
        key.extend_from_slice(format!("/{number}").as_bytes());
        let quoted = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
        writeln!(lines, "set \"{}\" \"{}\"", quoted(&key), quoted(&numbers.bytes(24))).unwrap();
        writeln!(names, "{}", quoted(&key)).unwrap();
    }
    place.write("lines", lines);
    place.write("names", names);
    // Without a time limit: so many lines take long on a busy machine.
    assert_eq!(place.run(&["batch", "lines", "-b", &from.url()]), "--- exit 0\n");
    let (from_url, words) = (from.url(), ["export", "--keys-from", "names", "-b"]);
    let exported = format!("exported {count} keys\nexit Some(0)");
    assert_eq!(run_into(&place, "one", &[&words[..], &[from_url.as_str()]].concat()), exported);
    drop(from);
    let to = Server::start(&place, &[]);
    assert_eq!(
        place.run(&["import", "one", "-b", &to.url()]),
        format!("--- stderr\nwrote {count} keys (with new versions, without times to live)\n--- exit 0\n")
    );
    assert_eq!(run_into(&place, "two", &[&words[..], &[to.url().as_str()]].concat()), exported);
    let one = entries(&fs::read(place.path("one")).unwrap());
    let two = entries(&fs::read(place.path("two")).unwrap());
    assert_eq!(one.len(), count);
    assert!(one.keys().eq(two.keys()), "the second export differs from the first");
    // SCAN lists all keys too, page by page.
    let listed = place.bytes_at(&to.url(), &["keys"]);
    assert_eq!(listed.split(|byte| *byte == b'\n').count() - 1, count);
    assert_eq!(run_into(&place, "all", &["export", "-b", &to.url()]).lines().last(), Some("exit Some(0)"));
    assert_eq!(entries(&fs::read(place.path("all")).unwrap()).len(), count);
}

#[test]
fn an_import_checks_its_file_and_keeps_existing_keys_with_nx() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let at = |words: &[&str]| place.run_at(&server.url(), words);
    place.write("good", "{\"key\":\"a\",\"value\":\"1\",\"later\":true}\n\n{\"key\":\"b\",\"value\":\"AP8=\",\"encoding\":\"base64\",\"ttl_ms\":60000}");
    assert_eq!(
        place.run_at("mqtt://127.0.0.1:1", &["import", "good", "--dry-run"]),
        "--- stderr\nwould write 2 keys\n--- exit 0\n"
    );
    assert_eq!(at(&["set", "a", "0"]), "--- exit 0\n");
    assert_eq!(
        at(&["import", "good", "--nx"]),
        "--- stderr\nwrote 1 key; skipped 1 key (with new versions, 1 with a time to live)\n--- exit 0\n"
    );
    assert_eq!(place.bytes_at(&server.url(), &["get", "a"]), b"0");
    assert_eq!(place.bytes_at(&server.url(), &["get", "b"]), b"\x00\xff");
    assert_eq!(
        at(&["import", "good", "-j"]),
        "--- stdout\n{\"v\":1,\"op\":\"import\",\"written\":2,\"with_ttl\":1,\"left\":0,\"expired\":0,\"failed\":0,\"dry_run\":false}\n--- exit 0\n"
    );
    place.write("bad", "{\"key\":\"a\",\"value\":\"9\"}\nset b 2\n{\"key\":\"c\",\"val");
    assert_eq!(
        at(&["import", "bad"]),
        "--- stderr\nwrote 1 key; 1 failed (with new versions, without times to live)\n\
         error: bad:2: not a JSON object\n  no later line was sent\n\
         hint: each line is an object: {\"key\":\"line1/temp\",\"value\":\"21.5\"}\n\
         hint: mqkv batch FILE runs lines such as: set KEY VALUE\n\
         hint: correct line 2, then continue from there: mqkv help import\n--- exit 65\n"
    );
    assert_eq!(
        at(&["import", "bad", "--keep-going"]),
        "--- stderr\nerror: bad:2: not a JSON object\n\
         hint: each line is an object: {\"key\":\"line1/temp\",\"value\":\"21.5\"}\n\
         hint: mqkv batch FILE runs lines such as: set KEY VALUE\n\
         error: bad:3: invalid JSON: unexpected end of line\n  the file ends within this line\n\
         wrote 1 key; 2 failed (with new versions, without times to live)\n\
         error: 2 of 3 lines failed\n  worst error: bad:2: not a JSON object\n--- exit 65\n"
    );
    assert_eq!(place.bytes_at(&server.url(), &["get", "a"]), b"9");
}

#[test]
fn a_lock_and_a_fenced_key_are_the_same_after_a_restore() {
    let (mqkv, place) = (env!("CARGO_BIN_EXE_mqkv"), Place::new());
    let from = Server::start(&place, &["-q"]);
    let url = from.url();
    let at = |url: &str, words: &[&str]| place.run_at(url, words);
    let fenced = ["lock", "l", "--", mqkv, "set", "fenced", "1", "--fence-env", "-b", &url];
    assert_eq!(at(&url, &fenced), "--- exit 0\n");
    assert_eq!(at(&url, &["set", "leased", "1", "--ttl", "1h"]), "--- exit 0\n");
    assert_eq!(at(&url, &["set", "plain", "1"]), "--- exit 0\n");
    let export = ["lock", "l", "--ttl", "2s", "-q", "-b", &url, "--", mqkv, "export", "-b", &url];
    let shown = run_into(&place, "all", &export);
    assert_eq!(shown, "exported 4 keys (2 with a time to live)\nexit Some(0)");
    let past = "{\"key\":\"past\",\"value\":\"1\",\"expires\":\"2025-11-20T20:13:59.958Z\"}\n";
    let exported = fs::read(place.path("all")).unwrap();
    place.write("all", [&exported[..], past.as_bytes()].concat());

    let seeded = Server::start(&place, &["-q", "--seed", "all"]);
    let kept = Server::start(&place, &["-q", "--seed", "all", "--data", "data"]);
    let imported = Server::start(&place, &["-q"]);
    let summary = at(&imported.url(), &["import", "all"]);
    assert!(summary.contains("; left out 1 key that has expired"), "{summary}");
    for to in [seeded.url(), kept.url(), imported.url()] {
        assert!(at(&to, &["get", "past"]).ends_with("--- exit 1\n"));
        let leased = at(&to, &["get", "leased", "-j"]);
        assert!(leased.contains(",\"ttl_ms\":") && !leased.contains("fence"), "{leased}");
        let fenced = at(&to, &["get", "fenced", "-j"]);
        assert!(fenced.contains(",\"fence\":") && !fenced.contains("ttl_ms"), "{fenced}");
        assert!(at(&to, &["set", "fenced", "2"]).contains("a fencing token is required"));
        let plain = at(&to, &["get", "plain", "-j"]);
        assert!(plain.ends_with("\"size\":1,\"version\":\"VERSION\"}\n--- exit 0\n"), "{plain}");
        // The lock ends, however long the restore has taken.
        assert_eq!(at(&to, &["lock", "l", "-q", "-w", "60s", "--", "true"]), "--- exit 0\n");
    }
    // The same export once more: its token is not older than that of the key.
    assert!(at(&imported.url(), &["import", "all"]).ends_with("--- exit 0\n"));
}

#[test]
fn an_export_of_a_store_that_does_not_report_times_to_live_says_so() {
    let fake = FakeBroker::start(|connection| {
        let scan = connection.serve();
        connection.answer(&scan, "*1\r\n*1\r\n$1\r\na\r\n", &[]);
        while let Some(packet) = connection.next() {
            if packet.name() == "PUBLISH" {
                let request = Publish::decode(&packet);
                assert_eq!(request.user_property("mqkv-details"), Some("true"));
                connection.answer(&request, "$1\r\n1\r\n", &[]);
            }
        }
    });
    assert_eq!(
        Place::new().run_at(&fake.url(), &["export"]),
        "--- stdout\n{\"v\":1,\"op\":\"export\",\"key\":\"a\",\"value\":\"1\",\"encoding\":\"utf-8\"}\n\
         --- stderr\nexported 1 key (without times to live)\n--- exit 0\n"
    );
    fake.end();
}

#[test]
fn an_import_that_a_fenced_key_stops_has_a_line_that_works() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let at = |words: &[&str]| place.run_at(&server.url(), words);
    let (mqkv, url) = (env!("CARGO_BIN_EXE_mqkv"), server.url());
    let fenced =
        |words: &[&str]| at(&[&["lock", "l", "--", mqkv], words, &["--fence-env", "-b", &url]].concat());
    assert_eq!(fenced(&["set", "f", "1"]), "--- exit 0\n");
    place.write("two", "{\"key\":\"f\",\"value\":\"2\"}\n{\"key\":\"g\",\"value\":\"2\"}\n");
    let refused = "a fencing token is required for this request";
    let hint = "delete the fenced key: mqkv lock LOCK -- mqkv del KEY --fence-env";
    let shown = at(&["import", "two", "--inflight", "1"]);
    assert_eq!(
        shown,
        format!(
            "--- stderr\nwrote 0 keys; 1 failed\nerror: two:1: the store refused the request: {refused}\n  \
             no later line was sent\nhint: {hint}\n\
             hint: then continue from line 1, or write all other lines: --keep-going\n--- exit 76\n"
        )
    );
    let shown = at(&["import", "two", "--keep-going"]);
    assert!(shown.contains("wrote 1 key; 1 failed (with new versions, without times to live)\n"), "{shown}");
    assert_eq!(fenced(&["del", "f"]), "--- exit 0\n");
    assert_eq!(at(&["import", "two", "-q"]), "--- exit 0\n");
    assert_eq!(place.bytes_at(&server.url(), &["get", "f"]), b"2");
}

#[test]
fn a_broken_pipe_ends_keys_and_export_without_an_error() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let lines: String = (0..5000).map(|number| format!("set k/{number} {number}\n")).collect();
    assert_eq!(batch(&place, &server, &[], &lines), "--- exit 0\n");
    for words in [&["keys"][..], &["export"]] {
        let url = server.url();
        let mut child = place.command(&[words, &["-b", &url]].concat()).spawn().unwrap();
        drop(child.stdout.take());
        let output = bounded(|| child.wait_with_output()).unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{words:?}");
    }
}

#[test]
fn a_full_disk_leaves_only_whole_lines() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let value = "v".repeat(1000);
    let lines: String = (0..100).map(|number| format!("set k/{number} {value}\n")).collect();
    assert_eq!(batch(&place, &server, &[], &lines), "--- exit 0\n");
    let output = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = bounded(|| place.command(&["export", "-b", &server.url()]).stdout(output).output()).unwrap();
    assert_eq!(output.status.code(), Some(74));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "error: cannot write to standard output: No space left on device (os error 28)\n"
    );
    // A limit on the size of files, in blocks of 512 bytes or 1 KiB, truncates a write as a full disk does.
    let script = "trap '' XFSZ; ulimit -f 20; exec \"$0\" export -b \"$1\" >> out";
    place.write("out", "before\n");
    let output = bounded(|| {
        Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_mqkv"), &server.url()])
            .current_dir(place.folder())
            .output()
    })
    .unwrap();
    assert_eq!(output.status.code(), Some(74), "{}", String::from_utf8_lossy(&output.stderr));
    let written = fs::read_to_string(place.path("out")).unwrap();
    assert!(written.starts_with("before\n{") && written.len() > 5000, "{written}");
    assert!(written.ends_with("}\n") && written.lines().skip(1).all(|line| line.ends_with('}')), "{written}");
}

#[test]
fn keys_are_sorted_and_counted_on_request() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    assert_eq!(batch(&place, &server, &[], "set b 1\nset a/2 1\nset a/1 1\n"), "--- exit 0\n");
    let run = |words: &[&str]| place.run_at(&server.url(), words);
    assert_eq!(run(&["keys", "--sort"]), "--- stdout\na/1\na/2\nb\n--- exit 0\n");
    assert_eq!(run(&["keys", "--sort", "--limit", "2"]), "--- stdout\na/1\na/2\n--- exit 0\n");
    assert_eq!(run(&["keys", "a/*", "--count"]), "--- stdout\n2\n--- exit 0\n");
    assert_eq!(
        run(&["keys", "--count", "-j"]),
        "--- stdout\n{\"v\":1,\"op\":\"keys\",\"count\":3}\n--- exit 0\n"
    );
    let hint = "hint: a pattern matches the whole key; for a prefix: mqkv keys 'a/*'\n";
    assert_eq!(run(&["keys", "a/"]), format!("--- stderr\n{hint}--- exit 0\n"));
    assert_eq!(run(&["keys", "b"]), "--- stdout\nb\n--- exit 0\n");
    let exported = "exported 0 keys\n";
    let hint = hint.replace("keys 'a", "export 'a");
    assert_eq!(run(&["export", "a/"]), format!("--- stderr\n{exported}{hint}--- exit 0\n"));
    assert_eq!(run(&["export", "a/?/?"]), format!("--- stderr\n{exported}--- exit 0\n"));
}

#[test]
fn an_export_without_versions_depends_on_the_values_alone() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    assert_eq!(batch(&place, &server, &[], "set k v\n"), "--- exit 0\n");
    let shown = place.run_at(&server.url(), &["export", "--no-version", "-q"]);
    let entry = "{\"v\":1,\"op\":\"export\",\"key\":\"k\",\"value\":\"v\",\"encoding\":\"utf-8\"}";
    assert_eq!(shown, format!("--- stdout\n{entry}\n--- exit 0\n"));
}

#[test]
fn a_dry_run_of_a_batch_checks_all_lines_without_a_broker() {
    let place = Place::new();
    let run = |options: &[&str], lines: &str| {
        place.run_at_with_input(
            "mqtt://127.0.0.1:1",
            &[&["batch", "-", "--dry-run"], options].concat(),
            lines.as_bytes(),
        )
    };
    assert_eq!(
        run(&[], "set a 1\nGET a\ndel a b\n# note\nping\n"),
        "--- stderr\n4 lines are valid\n--- exit 0\n"
    );
    assert_eq!(
        run(&[], "set a 1\ngte a\nget a\n"),
        "--- stderr\nerror: standard input:2: unknown command 'gte'\nhint: did you mean 'get'?\nhint: mqkv help\n--- exit 2\n",
        "a single failure is reported once"
    );
    let shown = run(&[], "set a 1\nset a\nget\n");
    assert!(
        shown.starts_with("--- stderr\nerror: standard input:2: ") && shown.ends_with("--- exit 2\n"),
        "{shown}"
    );
    let shown = run(&[], "set a\nget\nlock x\nset a 1\n");
    assert!((1..=3).all(|line| shown.contains(&format!("error: standard input:{line}: "))), "{shown}");
    assert!(shown.contains("error: 3 of 4 lines failed\n") && !shown.contains("sent"), "{shown}");
    let json = "{\"v\":1,\"op\":\"batch\",\"lines\":1,\"dry_run\":true}\n";
    assert_eq!(run(&["-j"], "get a\n"), format!("--- stdout\n{json}--- exit 0\n"));
}

#[test]
fn a_line_of_another_kind_is_reported_with_what_was_expected() {
    let place = Place::new();
    let run =
        |words: &[&str], lines: &str| place.run_at_with_input("mqtt://127.0.0.1:1", words, lines.as_bytes());
    let entry = "hint: each line is an object: {\"key\":\"line1/temp\",\"value\":\"21.5\"}\n";
    assert_eq!(
        run(&["import", "-"], "1\n2\n3\n"),
        format!(
            "--- stderr\nwrote 0 keys; 1 failed\nerror: standard input:1: not a JSON object\n  no later line was sent\n{entry}\
             hint: correct line 1, then continue from there: mqkv help import\n--- exit 65\n"
        )
    );
    let of_batch = run(&["import", "-"], "SET k v\n");
    assert!(of_batch.contains("hint: mqkv batch FILE runs lines such as: set KEY VALUE\n"), "{of_batch}");
    let object = run(&["batch", "-"], "{\"op\":\"get\",\"key\":\"k\"}\n");
    assert!(
        object.starts_with("--- stderr\nerror: standard input:1: a JSON object is not a command\n"),
        "{object}"
    );
    assert!(object.contains("hint: mqkv batch --format jsonl FILE runs JSON objects\n"), "{object}");
    let entry = run(&["batch", "-"], "{\"key\":\"k\",\"value\":\"v\"}\n");
    assert!(entry.contains("hint: mqkv import FILE writes the keys of JSON objects\n"), "{entry}");
    let plain = run(&["batch", "-", "--format", "jsonl"], "get k\n");
    assert!(plain.contains("omit --format jsonl for lines such as: set KEY VALUE"), "{plain}");
}

#[test]
fn standard_input_without_a_verb_names_its_verbs_and_not_batch() {
    let place = Place::new();
    let shown = place.run_at_with_input("mqtt://127.0.0.1:1", &[], b"watch k\n");
    assert_eq!(
        shown,
        "--- stderr\nerror: standard input:1: 'watch' is not available in a script\n  no later line was sent\n\
         hint: verbs of a script: get, set, del, vdel, keys, unlock, holder, ping, raw, exchange, decode\n--- exit 2\n"
    );
}

#[test]
fn keys_that_are_not_utf8_are_listed_exported_and_imported() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let url = server.url();
    let run = |words: &[&str]| place.run_at(&url, words);
    assert_eq!(run(&["set", "a", "1"]), "--- exit 0\n");
    assert_eq!(run(&["set", "--key-hex", "61ff0a", "--value", "2"]), "--- exit 0\n");
    assert_eq!(run(&["keys", "--sort"]), "--- stdout\na\na\\xFF\\x0A\n--- exit 0\n");
    assert_eq!(run(&["keys", "--count", "a?*"]), "--- stdout\n1\n--- exit 0\n");
    let shown = run(&["export", "--no-version", "a?*"]);
    let entry = "{\"v\":1,\"op\":\"export\",\"key\":\"Yf8K\",\"key_encoding\":\"base64\",\"value\":\"2\",\"encoding\":\"utf-8\"}";
    assert_eq!(
        shown,
        format!("--- stdout\n{entry}\n--- stderr\nexported 1 key (without times to live)\n--- exit 0\n")
    );
    let all = place.bytes_at(&url, &["export", "-q"]);
    assert_eq!(run(&["del", "a"]), "--- exit 0\n");
    assert_eq!(run(&["del", "--key-hex", "61ff0a"]), "--- exit 0\n");
    assert_eq!(place.run_at_with_input(&url, &["import", "-q"], &all), "--- exit 0\n");
    assert_eq!(place.bytes_at(&url, &["get", "--key-hex", "61ff0a"]), b"2");
    assert_eq!(run(&["keys", "--count"]), "--- stdout\n2\n--- exit 0\n");
}

/// Returns the text as editors and shells of other systems write it: with a byte order mark, in UTF-8 and in UTF-16.
fn foreign(text: &str) -> [Vec<u8>; 2] {
    let marked = format!("\u{FEFF}{}", text.replace('\n', "\r\n"));
    let wide = marked.encode_utf16().flat_map(u16::to_le_bytes).collect();
    [marked.into_bytes(), wide]
}

#[test]
fn text_of_other_systems_is_read_alike_by_all_verbs_and_no_first_line_is_lost() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let at = |words: &[&str], input: &[u8]| {
        let url = server.url();
        place.run_with_input(&[words, &["-b", &url]].concat(), input)
    };
    for (verb, text, shown) in [
        ("batch", "set a 1\nset b 2", "--- exit 0\n"),
        (
            "import",
            "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":\"2\"}",
            "--- stderr\nwrote 2 keys (with new versions, without times to live)\n--- exit 0\n",
        ),
        (
            "export --no-version --keys-from",
            "a\nb",
            "--- stdout\n{\"v\":1,\"op\":\"export\",\"key\":\"a\",\"value\":\"1\",\"encoding\":\"utf-8\"}\n\
             {\"v\":1,\"op\":\"export\",\"key\":\"b\",\"value\":\"2\",\"encoding\":\"utf-8\"}\n--- stderr\nexported 2 keys",
        ),
    ] {
        let [marked, wide] = foreign(text);
        place.write("marked", &marked);
        place.write("wide", &wide);
        let words: Vec<&str> = verb.split(' ').collect();
        for (file, input) in [("marked", &b""[..]), ("-", &marked)] {
            let found = at(&[&words[..], &[file]].concat(), input);
            assert!(found.starts_with(shown), "{verb} {file}: {found}");
        }
        for (file, name, input) in [("wide", "wide", &b""[..]), ("-", "standard input", &wide)] {
            let found = at(&[&words[..], &[file]].concat(), input);
            let expected = format!("{name}:1: the text is encoded in UTF-16; UTF-8 is required\n");
            let hint = "hint: convert it: iconv -f UTF-16 -t UTF-8\n";
            assert!(found.contains(&expected) && found.contains(hint), "{verb} {file}: {found}");
            assert!(found.ends_with("--- exit 65\n"), "{verb} {file}: {found}");
        }
    }
    // The bytes of a value are never changed.
    for value in foreign("v\n") {
        place.write("value", &value);
        assert_eq!(at(&["set", "v", "-f", "value"], b""), "--- exit 0\n");
        assert_eq!(place.bytes_at(&server.url(), &["get", "v"]), value);
        assert_eq!(at(&["set", "v", "-"], &value), "--- exit 0\n");
        assert_eq!(place.bytes_at(&server.url(), &["get", "v"]), value);
    }
}
