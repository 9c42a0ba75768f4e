//! Malformed answers of the store, and answers to other requests.

use super::common::Place;
use super::common::fake_broker::{FakeBroker, answer};
use super::common::wire::Publish;

const UNKNOWN: &str = "  the write may or may not have happened\n";
const SYNCHRONIZE: &str = "hint: synchronize the clocks of this machine and of the broker with NTP\n";

/// Runs a line against a store that answers with this payload and these properties. A property `+N` stands for a
/// version N milliseconds ahead of the one in the request.
fn run(line: &str, payload: &'static str, properties: &'static [(&'static str, &'static str)]) -> String {
    let fake = FakeBroker::start(move |connection| {
        let request = connection.serve();
        let sent: u64 = request.user_property("__ts").unwrap().split(':').next().unwrap().parse().unwrap();
        let ahead = |value: &str| match value.strip_prefix('+') {
            Some(ms) => format!("{}:0:StateStore", sent.saturating_add(ms.parse().unwrap())),
            None => value.to_owned(),
        };
        let properties: Vec<_> = properties.iter().map(|(name, value)| (*name, ahead(value))).collect();
        let properties: Vec<_> = properties.iter().map(|(name, value)| (*name, value.as_str())).collect();
        connection.answer(&request, payload, &properties);
        connection.listen();
    });
    let words: Vec<&str> = line.split_whitespace().collect();
    let shown = Place::new().run_at(&fake.url(), &[&["--timeout", "1h"], &words[..]].concat());
    fake.end();
    shown
}

fn error(message: &str, more: &str) -> String {
    format!("--- stderr\nerror: {message}\n{more}--- exit 76\n")
}

#[test]
fn garbage_is_a_malformed_reply() {
    for garbage in [
        "",
        "hello",
        "$",
        "$5\r\nabc\r\n",
        "$18446744073709551615\r\n1",
        "$\r\n\r\n",
        "+OK",
        "*99999999\r\n",
        ":1:\r\n",
    ] {
        let shown = run("get k", garbage, &[]);
        assert!(
            shown.starts_with("--- stderr\nerror: malformed reply from the store: "),
            "{garbage:?}: {shown}"
        );
        assert!(shown.ends_with("--- exit 76\n") && !shown.contains("write"), "{garbage:?}: {shown}");
        let shown = run("set k v", garbage, &[]);
        assert!(shown.contains(UNKNOWN) && shown.ends_with("--- exit 76\n"), "{garbage:?}: {shown}");
    }
}

#[test]
fn a_reply_to_another_verb_is_malformed() {
    let malformed = |cause: &str| format!("malformed reply from the store: {cause}");
    assert_eq!(run("get k", "+OK\r\n", &[]), error(&malformed("+OK is not a reply to GET"), ""));
    assert_eq!(run("set k v", ":-1\r\n", &[]), error(&malformed("-1 is not a reply to SET"), UNKNOWN));
    assert_eq!(run("del k", "$1\r\nv\r\n", &[]), error(&malformed("a value is not a reply to DEL"), UNKNOWN));
    assert_eq!(run("vdel k v", ":2\r\n", &[]), error(&malformed("a count is not a reply to VDEL"), UNKNOWN));
}

#[test]
fn a_list_of_keys_whose_tokens_repeat_ends_with_an_error() {
    let fake = FakeBroker::start(|connection| {
        connection.accept_client();
        connection.subscribe(1);
        while let Some(packet) = connection.next() {
            if packet.name() != "PUBLISH" {
                continue;
            }
            connection.answer(&Publish::decode(&packet), "*2\r\n*1\r\n$1\r\nk\r\n$1\r\nt\r\n", &[]);
        }
    });
    assert_eq!(
        Place::new().run_at(&fake.url(), &["keys"]),
        "--- stdout\nk\n--- stderr\nerror: malformed reply from the store: the tokens of SCAN repeat, so the list of \
         keys has no end\n--- exit 76\n"
    );
    fake.end();
}

#[test]
fn an_unknown_status_version_or_timestamp_is_reported() {
    let malformed = |cause: &str| format!("malformed reply from the store: {cause}");
    assert_eq!(run("get k", "$1\r\nv\r\n", &[("__stat", "500")]), error(&malformed("status 500"), ""));
    assert_eq!(
        run("set k v", "+OK\r\n", &[("__stat", "\u{1b}[2J")]),
        error(&malformed("status \\u{1b}[2J"), UNKNOWN)
    );
    assert_eq!(
        run("get k", "$1\r\nv\r\n", &[("__protVer", "2.0")]),
        error(&malformed("protocol version 2.0"), "")
    );
    assert_eq!(
        run("get k", "$1\r\nv\r\n", &[("__ts", "yesterday")]),
        error(&malformed("version yesterday: a timestamp has three parts, MILLISECONDS:COUNTER:NODE"), "")
    );
}

#[test]
fn a_version_more_than_a_minute_ahead_is_an_error() {
    // The client's clock advances between its request and the answer; the margins of seconds allow for that.
    assert_eq!(
        run("get k", "$1\r\nv\r\n", &[("__ts", "+55000")]),
        "--- stdout\nv(no line feed)\n--- exit 0\n"
    );
    let ahead = |shown: &str| {
        shown.starts_with("--- stderr\nerror: the store's clock is ")
            && shown.contains(" s ahead of this machine's; the limit is 60 s\n")
    };
    let shown = run("get k", "$1\r\nv\r\n", &[("__ts", "+90000")]);
    assert!(ahead(&shown) && shown.ends_with(&format!("60 s\n{SYNCHRONIZE}--- exit 76\n")), "{shown}");
    let shown = run("set k v", "+OK\r\n", &[("__ts", "+90000")]);
    assert!(ahead(&shown) && shown.ends_with(&format!("{UNKNOWN}{SYNCHRONIZE}--- exit 76\n")), "{shown}");
}

#[test]
fn each_encoding_of_not_applied_is_accepted() {
    assert_eq!(run("set k v --nx", "-1\r\n", &[]), "--- stderr\nerror: not stored: k exists\n--- exit 1\n");
    assert_eq!(run("set k v --nx", "$-1\r\n", &[]), "--- stderr\nerror: not stored: k exists\n--- exit 1\n");
    assert_eq!(run("set k v --nx", ":0\r\n", &[]), "--- stderr\nerror: not stored: k exists\n--- exit 1\n");
    assert_eq!(
        run("vdel k v", "-1\r\n", &[]),
        "--- stderr\nerror: not deleted: k has another value\n--- exit 1\n"
    );
}

#[test]
fn the_error_text_of_the_store_is_printed_with_control_characters_escaped() {
    assert_eq!(
        run("set k v", "-ERR the\x1b[2J moon is full\r\n", &[]),
        error("the store refused the request: the\\u{1b}[2J moon is full", "  nothing was changed\n")
    );
    let shown = run("get k", "-ERR not authorized\r\n", &[]);
    assert!(
        shown.contains("not authorized: client id ")
            && shown.contains(" may not read the key k\nhint: ")
            && shown.ends_with("--- exit 77\n"),
        "{shown}"
    );
}

#[test]
fn an_answer_to_another_request_is_ignored() {
    let fake = FakeBroker::start(|connection| {
        let request = connection.serve();
        for correlation in [&b""[..], b"x", &[0; 16], &[request.correlation.as_slice(), b"x"].concat()] {
            let mut other = request.clone();
            other.correlation = correlation.to_vec();
            connection.send(&answer(&other, "+OK\r\n", &[]).encode());
        }
        // The right correlation data on another topic.
        let mut other = answer(&request, "+OK\r\n", &[]);
        other.topic = "clients/another/client".to_owned();
        connection.send(&other.encode());
        connection.listen();
    });
    let shown = Place::new().run_at(&fake.url(), &["set", "k", "v", "--timeout", "1s"]);
    fake.end();
    assert!(shown.starts_with("--- stderr\nerror: no answer from BROKER within 1s\n"), "{shown}");
    assert!(shown.contains(UNKNOWN) && shown.ends_with("--- exit 124\n"), "{shown}");
}

#[test]
fn an_answer_before_the_puback_is_accepted() {
    let fake = FakeBroker::start(|connection| {
        let request = connection.serve();
        connection.send(&answer(&request, "+OK\r\n", &[]).encode());
        connection.listen()
    });
    assert_eq!(Place::new().run_at(&fake.url(), &["set", "k", "v", "--timeout", "1h"]), "--- exit 0\n");
    assert_eq!(fake.end(), ["PUBACK", "DISCONNECT"]);
}

#[test]
fn a_delete_of_several_keys_lists_those_without_an_answer() {
    let fake = FakeBroker::start(|connection| {
        let first = connection.serve();
        connection.answer(&first, ":1\r\n", &[]);
        connection.listen();
    });
    let shown = Place::new().run_at(&fake.url(), &["del", "a", "b", "c", "-o", "text", "--timeout", "1s"]);
    fake.end();
    // The order of the requests is up to the scheduler.
    assert!(shown.starts_with("--- stdout\ndeleted "), "{shown}");
    assert!(
        shown.contains("--- stderr\nerror: no answer from BROKER within 1s\n  2 of 3 keys failed: "),
        "{shown}"
    );
    assert!(shown.contains(UNKNOWN) && shown.ends_with("--- exit 124\n"), "{shown}");
}
