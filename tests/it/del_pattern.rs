//! `del --pattern`: the question, what is deleted, and what is reported of it.

use std::iter;
use std::process::Stdio;
use std::sync::mpsc::channel;

use nix::sys::signal::Signal;

use super::common::fake_broker::{Connection, FakeBroker};
use super::common::wire::Publish;
use super::common::{CTRL_C, CTRL_D, Place, Process, Server, Terminal};
use crate::a_watchdog::bounded;

/// Starts a server with the keys `line1/a` to `line1/e`, `line2/a` and `lin*`.
fn server(place: &Place) -> Server {
    let server = Server::start(place, &["-q"]);
    let lines = "set line1/a 1\nset line1/b 2\nset line1/c 3\nset line1/d 4\nset line1/e 5\nset line2/a 6\nset 'lin*' 7\n";
    assert_eq!(
        place.run_at_with_input(&server.url(), &["batch", "-", "-q"], lines.as_bytes()),
        "--- exit 0\n"
    );
    server
}

/// Runs a command line, split at white space.
#[track_caller]
fn run(place: &Place, server: &Server, line: &str) -> String {
    place.run_at(&server.url(), &line.split_whitespace().collect::<Vec<_>>())
}

#[track_caller]
fn keys(place: &Place, server: &Server) -> String {
    run(place, server, "keys --sort")
        .replace("--- stdout\n", "")
        .replace("--- exit 0\n", "")
        .replace('\n', " ")
}

#[test]
fn a_pattern_is_recognized_with_the_option_only() {
    let place = Place::new();
    let server = server(&place);
    let all = "lin* line1/a line1/b line1/c line1/d line1/e line2/a ";
    let hint = |key: &str| {
        format!(
            "--- stderr\nerror: key not found: {key}\n\
             hint: del takes keys, not patterns; for a pattern: mqkv del --pattern '{key}'\n--- exit 1\n"
        )
    };
    assert_eq!(run(&place, &server, "del line?/*"), hint("line?/*"));
    assert_eq!(run(&place, &server, "del line?/* --ignore-missing"), "--- exit 0\n");
    assert_eq!(keys(&place, &server), all);
    assert_eq!(run(&place, &server, "del lin*"), "--- exit 0\n", "it is a key");
    assert_eq!(keys(&place, &server), all.replace("lin* ", ""));
    assert_eq!(
        run(&place, &server, "del --pattern line1/[a-c] line2/* --yes"),
        "--- stderr\ndeleted 4 keys\n--- exit 0\n"
    );
    assert_eq!(keys(&place, &server), "line1/d line1/e ");
    assert_eq!(run(&place, &server, "del --pattern * -y -q"), "--- exit 0\n");
    assert_eq!(keys(&place, &server), "");
}

#[test]
fn without_a_terminal_nothing_is_deleted_unless_the_question_is_answered_by_an_option() {
    let place = Place::new();
    let server = server(&place);
    let refused = "--- stderr\nerror: cannot ask whether to delete the keys: standard input is not a terminal\n\
                   hint: --yes deletes without a question, --dry-run prints the keys\n--- exit 2\n";
    assert_eq!(run(&place, &server, "del --pattern line1/*"), refused);
    // A script does the same at a terminal.
    let lines = "del --pattern line1/a\nget line1/a\n";
    place.write("lines", lines);
    let refused = "error: lines:1: cannot ask whether to delete the keys: a script asks no question\n";
    for words in [&["batch", "lines"][..], &["batch", "lines", "--dry-run"]] {
        let terminal = Terminal::start(place.command(&[words, &["-b", &server.url()]].concat()));
        terminal.shows(refused.trim_end());
    }
    place.write("lines", "del --pattern line1/* --yes\nget line1/a\n");
    assert_eq!(
        run(&place, &server, "batch lines"),
        "--- stdout\n\n--- stderr\nlines:1: deleted 5 keys\nerror: lines:2: key not found: line1/a\n--- exit 1\n"
    );
    for (line, error) in [
        ("del --pattern", "error: KEY is missing\nhint: mqkv del --pattern PATTERN...\n"),
        ("del a --yes", "error: --pattern is missing\nhint: mqkv del --pattern --yes KEY...\n"),
        ("del --pattern -k a", "error: the argument '--pattern' cannot be used with '--key <KEY>'"),
    ] {
        let shown = run(&place, &server, line);
        assert!(
            shown.starts_with(&format!("--- stderr\n{error}")) && shown.ends_with("--- exit 2\n"),
            "{shown}"
        );
    }
    let empty = place.run_at(&server.url(), &["del", "--pattern", "", "--yes"]);
    assert_eq!(
        empty,
        "--- stderr\nerror: the pattern is empty\n  nothing was changed\nhint: use '*' to match every key\n--- exit 2\n"
    );
}

#[test]
fn a_dry_run_prints_the_keys_and_deletes_none() {
    let place = Place::new();
    let server = server(&place);
    let line = "del --pattern line2/* line1/[ab] line1/a --dry-run";
    assert_eq!(
        run(&place, &server, line),
        "--- stdout\nline1/a\nline1/b\nline2/a\n--- stderr\nwould delete 3 keys\n--- exit 0\n"
    );
    let json = run(&place, &server, &format!("{line} -j"));
    assert!(json.starts_with(
        "--- stdout\n{\"v\":1,\"op\":\"del\",\"key\":\"line1/a\",\"deleted\":0,\"dry_run\":true}\n"
    ));
    let summary =
        "{\"v\":1,\"op\":\"del\",\"matched\":3,\"deleted\":0,\"missing\":0,\"dry_run\":true}\n--- exit 0\n";
    assert!(json.ends_with(summary), "{json}");
    assert!(keys(&place, &server).starts_with("lin* line1/a line1/b "));
}

#[test]
fn no_match_is_a_no_like_an_absent_key() {
    let place = Place::new();
    let server = server(&place);
    assert_eq!(
        run(&place, &server, "del --pattern no/* none* --yes"),
        "--- stderr\nerror: no key matches: no/*, none*\n--- exit 1\n"
    );
    assert_eq!(
        run(&place, &server, "del --pattern line1 --dry-run"),
        "--- stderr\nerror: no key matches: line1\n\
         hint: a pattern matches the whole key; for a prefix: mqkv del --pattern 'line1*'\n--- exit 1\n"
    );
    assert_eq!(run(&place, &server, "del --pattern no/* -y -q"), "--- exit 1\n");
    assert_eq!(
        run(&place, &server, "del --pattern no/* --yes --ignore-missing"),
        "--- stderr\ndeleted 0 keys\n--- exit 0\n"
    );
}

#[test]
fn fenced_keys_are_reported_and_all_others_are_deleted() {
    let place = Place::new();
    let server = server(&place);
    let lock = ["lock", "gate", "--once", "--holder", "me", "--ttl", "1h"];
    let token = String::from_utf8(place.bytes_at(&server.url(), &lock)).unwrap();
    let token = token.split_whitespace().next().unwrap();
    for key in ["line1/a", "line1/d"] {
        assert_eq!(place.run_at(&server.url(), &["set", key, "v", "--fence", token]), "--- exit 0\n");
    }
    assert_eq!(
        run(&place, &server, "del --pattern line1/* --yes"),
        "--- stderr\ndeleted 3 keys\n\
         error: the store refused the request: a fencing token is required for this request\n  \
         2 of 5 keys failed: line1/a, line1/d\n\
         hint: use the token of the lock's holder: --fence TOKEN\n--- exit 76\n"
    );
    let with_token = place.with_variable("MQKV_FENCING_TOKEN", token);
    assert_eq!(
        run(&with_token, &server, "del --pattern line1/* --yes --fence-env"),
        "--- stderr\ndeleted 2 keys\n--- exit 0\n"
    );
}

#[test]
fn the_question_shows_number_and_names_and_only_yes_deletes() {
    let place = Place::new();
    let server = server(&place);
    let start = |words: &[&str]| {
        let mut command = place.command(&[&["del", "-b", &server.url(), "--pattern"], words].concat());
        command.stdin(Stdio::inherit());
        Terminal::start(command)
    };
    let question = "delete 5 keys (line1/a, line1/b, line1/c, …)? [y/N]";
    for answer in ["", "n", "yesterday", "x"] {
        let mut terminal = start(&["line1/*"]);
        terminal.shows(question);
        terminal.line(answer);
        terminal.shows("deleted 0 keys");
        assert_eq!(terminal.end(), Some(1), "{answer}");
    }
    let mut terminal = start(&["line1/*"]);
    terminal.shows(question);
    terminal.keys(CTRL_D);
    assert!(terminal.shows("deleted 0 keys").contains(&format!("{question}\ndeleted 0 keys")));
    assert_eq!(terminal.end(), Some(1));
    let terminal = start(&["line1/*"]);
    terminal.shows(question);
    terminal.keys(CTRL_C);
    let screen = terminal.shows("nothing was changed");
    assert!(
        screen.contains("^C\nerror: interrupted before the answer: SIGINT\n  the session was closed\n"),
        "{screen}"
    );
    assert_eq!(keys(&place, &server), "lin* line1/a line1/b line1/c line1/d line1/e line2/a ");
    let mut terminal = start(&["line1/*", "-j"]);
    terminal.shows(question);
    terminal.line("YES");
    terminal.shows("{\"v\":1,\"op\":\"del\",\"matched\":5,\"deleted\":5,");
    assert_eq!(terminal.end(), Some(0));
    let mut terminal = start(&["*", "-q"]);
    terminal.shows("delete ALL 2 keys (lin*, line2/a)? [y/N]");
    terminal.line("y");
    assert_eq!(terminal.end(), Some(0));
    assert_eq!(keys(&place, &server), "");
}

#[test]
fn the_prompt_asks_the_same_question_and_goes_on_after_it() {
    let place = Place::new();
    let server = server(&place);
    let terminal = Terminal::start(place.command(&["shell", "-b", &server.url()]));
    let prompt = format!("127.0.0.1:{}>", server.port());
    terminal.ends_with(&prompt);
    let question = "delete 5 keys (line1/a, line1/b, line1/c, …)? [y/N]";
    terminal.start_command("del --pattern line1/*");
    terminal.ends_with(question);
    terminal.keys(CTRL_C);
    let screen = terminal.ends_with(&prompt);
    assert!(screen.contains("^C\ncanceled\n"), "{screen}");
    // The line that follows is for the prompt.
    terminal.line("get line1/a");
    terminal.shows("\n1\n");
    terminal.ends_with(&prompt);
    terminal.start_command("del --pattern line1/*");
    terminal.wait_for("the second question", |screen| screen.lines().last() == Some(question));
    terminal.line("y");
    terminal.shows("deleted 5 keys");
    terminal.ends_with(&prompt);
    terminal.line("del --pattern line2/* --yes");
    terminal.shows("deleted 1 key");
    terminal.press_ctrl_d();
    assert_eq!(keys(&place, &server), "lin* ");
}

/// A broker that lists `count` keys, answers `answered` of the deletions with `:1`, and then sends `end` once all that are in flight have arrived.
fn broker_with_keys(
    count: usize,
    mut end: impl FnMut(&mut Connection) + Send + 'static,
    answers: &'static [&'static str],
) -> FakeBroker<()> {
    FakeBroker::start(move |connection: &mut Connection| {
        let scan = connection.serve();
        let keys: String = (0..count).map(|number| format!("$4\r\nk{number:03}\r\n")).collect();
        connection.answer(&scan, &format!("*1\r\n*{count}\r\n{keys}"), &[]);
        let requests: Vec<_> = iter::from_fn(|| connection.next())
            .filter(|packet| packet.name() == "PUBLISH")
            .take(count.min(64))
            .collect();
        for (request, reply) in requests.iter().zip(answers) {
            connection.answer(&Publish::decode(request), reply, &[]);
        }
        end(connection);
        connection.listen();
    })
}

#[test]
fn keys_that_vanish_between_list_and_deletion_are_counted() {
    let broker = broker_with_keys(3, |_| {}, &[":1\r\n", ":0\r\n", ":1\r\n"]);
    let words = ["del", "--pattern", "k*", "--yes"];
    assert_eq!(
        Place::new().run_at(&broker.url(), &words),
        "--- stderr\ndeleted 2 keys; 1 key was deleted meanwhile\n--- exit 0\n"
    );
    broker.end();
}

#[test]
fn an_interrupt_in_the_middle_reports_what_was_deleted() {
    let (sender, silent) = channel();
    // 64 requests are in flight before the first answer; each answer that has arrived lets another one follow.
    let wait_for_next = move |connection: &mut Connection| {
        let published = iter::from_fn(|| connection.next()).filter(|packet| packet.name() == "PUBLISH");
        assert_eq!(published.take(10).count(), 10);
        sender.send(()).unwrap();
    };
    let broker = broker_with_keys(100, wait_for_next, &[":1\r\n"; 10]);
    let place = Place::new();
    let mut run = Process::start(place.command(&["del", "--pattern", "k*", "--yes", "-b", &broker.url()]));
    bounded(|| silent.recv()).unwrap();
    run.signal(Signal::SIGINT);
    let exit = run.end();
    assert!(
        exit.errors.starts_with("deleted 10 keys\nerror: interrupted before the answer: SIGINT\n"),
        "{exit:?}"
    );
    assert!(exit.errors.contains(" of 100 keys failed: k010, k011, k012, k013, k014, ...\n"), "{exit:?}");
    assert!(exit.errors.contains(" of them were not sent\n"), "{exit:?}");
    assert!(exit.errors.ends_with("  the write may or may not have happened\n"), "{exit:?}");
    assert_eq!(exit.signal, Some(2));
    broker.end();
}

#[test]
fn a_refusal_of_the_store_itself_ends_the_deletion() {
    let broker = broker_with_keys(100, |_| {}, &["-ERR the request failed\r\n"; 64]);
    let shown = Place::new().run_at(&broker.url(), &["del", "--pattern", "k*", "--yes"]);
    assert!(
        shown.contains(
            "64 of 100 keys failed: k000, k001, k002, k003, k004, ...\n  36 of them were not sent\n"
        ),
        "{shown}"
    );
    broker.end();
}

#[test]
fn a_store_that_cannot_list_its_keys_is_reported_with_what_works() {
    let fake = FakeBroker::start(|connection| {
        let request = connection.serve();
        connection.answer(&request, "-ERR unknown command\r\n", &[]);
        connection.listen();
    });
    assert_eq!(
        Place::new().run_at(&fake.url(), &["del", "--pattern", "*", "--yes"]),
        "--- stderr\nerror: cannot list keys: the store of this broker does not support SCAN\n  \
         nothing was changed\nhint: name the keys: mqkv del KEY...\n--- exit 76\n"
    );
    fake.end();
}
