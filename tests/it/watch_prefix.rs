//! `watch --prefix`: all keys that begin with a prefix, also new ones.

use super::common::plain_broker::PlainBroker;
use super::common::{Place, Server, StreamedProcess};
use super::mosquitto::mosquitto;
use super::store_service::Store;
use super::watch::{ok, rest, watch, without_time};

/// Returns the next record without its time.
fn next(running: &StreamedProcess) -> String {
    without_time(&running.line()).to_owned()
}

#[test]
fn all_keys_with_the_prefix_are_watched_also_new_ones_and_no_others() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    for key in ["a*b/2", "a*b/1", "a*b", "axb/3"] {
        ok(&place, &url, &["set", key, "old"]);
    }
    let running = watch(&place, &url, &["--prefix", "a*b/", "-c", "5"]);
    assert_eq!([next(&running), next(&running)], ["CURRENT\ta*b/1\told", "CURRENT\ta*b/2\told"]);
    ok(&place, &url, &["set", "axb/3", "unseen"]);
    ok(&place, &url, &["set", "a*b/1", "new"]);
    assert_eq!(next(&running), "SET\ta*b/1\tnew");
    ok(&place, &url, &["del", "a*b/2"]);
    assert_eq!(next(&running), "DELETE\ta*b/2");
    ok(&place, &url, &["set", "a*b/3", "late"]);
    assert_eq!(next(&running), "SET\ta*b/3\tlate");
    ok(&place, &url, &["set", "a*b/2", "again"]);
    ok(&place, &url, &["del", "a*b/3"]);
    assert_eq!(rest(running), (vec!["SET\ta*b/2\tagain".to_owned(), "DELETE\ta*b/3".to_owned()], Some(0)));
}

#[test]
fn a_server_notifies_of_every_change_of_keys_that_exist_for_a_moment_only() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    ok(&place, &url, &["set", "k/0", "old"]);
    let running = watch(&place, &url, &["--prefix", "k/", "--until", "value=end"]);
    assert_eq!(next(&running), "CURRENT\tk/0\told");
    let change = |number: usize| format!("set k/{number} a\nset k/{number} b\ndel k/{number}\n");
    let batch: String = (1..=100).map(change).chain(["set k/end end\n".to_owned()]).collect();
    let words = ["batch", "-", "-q", "-b", &url, "--inflight", "1"];
    assert_eq!(place.run_with_input(&words, batch.as_bytes()), "--- exit 0\n");
    let of = |number| {
        let key = format!("k/{number}");
        [format!("SET\t{key}\ta"), format!("SET\t{key}\tb"), format!("DELETE\t{key}")]
    };
    let expected = (1..=100).flat_map(of).chain(["SET\tk/end\tend".to_owned()]).collect();
    assert_eq!(rest(running), (expected, Some(0)));
}

/// Changes keys behind a broker whose store watches single keys, and checks what a watch of their prefix reports.
fn check_with_listings(place: &Place, url: &str) {
    ok(place, url, &["set", "k/1", "old"]);
    let running = watch(place, url, &["--prefix", "k/", "-c", "4"]);
    assert_eq!(running.error_line(), "watching the keys that begin with k/; new keys within 3 s");
    assert_eq!(next(&running), "CURRENT\tk/1\told");
    ok(place, url, &["set", "k/2", "late"]);
    assert_eq!(next(&running), "SET\tk/2\tlate");
    for (key, words) in [("k/1", &["set", "k/1", "new"][..]), ("k/2", &["del", "k/2"])] {
        ok(place, url, words);
        assert!(next(&running).contains(key));
    }
    // It was deleted, and is still watched.
    ok(place, url, &["set", "k/2", "again"]);
    assert_eq!(rest(running), (vec!["SET\tk/2\tagain".to_owned()], Some(0)));
    let empty = watch(place, url, &["--prefix", "none/"]);
    let notice = "no key that this client may read begins with none/ yet; new keys within 3 s";
    assert_eq!(empty.error_line(), notice);
}

#[test]
fn a_store_that_watches_single_keys_is_listed_again_and_standard_error_has_the_interval() {
    let place = Place::new();
    let broker = PlainBroker::start();
    let _store = Store::start(&place, &broker.url(), &[]);
    check_with_listings(&place, &broker.url());
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn the_store_behind_mosquitto_is_listed_again() {
    let place = Place::new();
    let (_broker, url) = mosquitto(&place);
    let _store = Store::start(&place, &url, &[]);
    check_with_listings(&place, &url);
}

#[test]
fn a_watch_without_keys_waits_for_the_first_one() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let running = watch(&place, &server.url(), &["--prefix", "job/", "--until", "value=done"]);
    assert_eq!(running.error_line(), "no key that this client may read begins with job/ yet");
    ok(&place, &server.url(), &["set", "job/7", "done"]);
    assert_eq!(rest(running), (vec!["SET\tjob/7\tdone".to_owned()], Some(0)));
}

#[test]
fn keys_that_were_created_while_the_connection_was_lost_are_found() {
    let place = Place::new();
    let options = ["--data", "state", "-q"];
    let mut server = Server::start(&place, &options);
    let url = server.url();
    ok(&place, &url, &["set", "k/1", "old"]);
    let running = watch(&place, &url, &["--prefix", "k/", "-c", "3"]);
    assert_eq!(next(&running), "CURRENT\tk/1\told");
    server.kill();
    assert!(running.error_line().starts_with("connection lost: "));
    server.start_again(&place, &options);
    ok(&place, &url, &["set", "k/2", "new"]);
    ok(&place, &url, &["set", "k/1", "other"]);
    let mut records: Vec<String> = (0..3).map(|_| next(&running)).collect();
    assert!(records.remove(0).starts_with("GAP\t\t"), "{records:?}");
    // Whether the first key is changed before it is read again, is not determined.
    records.sort_unstable();
    assert_eq!(records[1], "SET\tk/2\tnew", "{records:?}");
    assert!(records[0].ends_with("\tk/1\tother"), "{records:?}");
}

#[test]
fn a_command_runs_for_new_keys() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    ok(&place, &server.url(), &["set", "k/1", "old"]);
    let script = "echo \"$MQKV_EVENT $MQKV_KEY $(/bin/cat)\"";
    let words = ["--prefix", "k/", "-c", "1", "--exec-on", "initial,set", "--", "/bin/sh", "-c", script];
    let running = watch(&place, &server.url(), &words);
    assert_eq!(running.line(), "initial k/1 old");
    ok(&place, &server.url(), &["set", "k/2", "new"]);
    assert_eq!(running.end(), (vec!["set k/2 new".to_owned()], vec![], Some(0)));
}

#[test]
fn a_pattern_in_place_of_a_key_causes_a_hint() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let words = |pattern: &str| {
        let (_, words, _) = watch(&place, &server.url(), &[pattern, "--until", "del"]).end();
        words
    };
    let hint = "hint: watch takes keys, not patterns; for a prefix: mqkv watch --prefix";
    assert_eq!(words("line1/*"), [format!("{hint} 'line1/'")]);
    assert_eq!(words("*"), [format!("{hint} ''")]);
    assert_eq!(words("line1/"), [""; 0]);
    // A key of this name is meant if it exists.
    ok(&place, &server.url(), &["set", "k/*", "v"]);
    assert_eq!(watch(&place, &server.url(), &["k/*", "--until", "set"]).end().1, [""; 0]);
}

#[test]
fn a_prefix_and_keys_exclude_each_other() {
    let place = Place::new();
    for words in [&["watch", "k", "--prefix", "k"][..], &["watch", "-k", "k", "--prefix", "k"]] {
        let shown = place.run(words);
        assert!(shown.contains("--prefix <P>'") && shown.contains(" cannot be used with "), "{shown}");
        assert!(shown.ends_with("--- exit 2\n"), "{shown}");
    }
}

#[test]
fn more_keys_than_the_maximum_are_not_watched() {
    let place = Place::new();
    let line = |number| format!("{{\"v\":1,\"key\":\"k/{number}\",\"value\":\"v\"}}\n");
    place.write("seed", (0..10_000).map(line).collect::<String>());
    let server = Server::start(&place, &["-q", "--seed", "seed"]);
    let running = watch(&place, &server.url(), &["--prefix", "k"]);
    assert_eq!(next(&running), "CURRENT\tk/0\tv");
    ok(&place, &server.url(), &["set", "k/one-more", "v"]);
    let error = ["error: cannot watch k: more than 10000 keys begin with it", "hint: use a longer prefix"];
    let (_, words, code) = running.end();
    assert_eq!((words, code), (error.map(str::to_owned).to_vec(), Some(76)));
    let words = ["watch", "--prefix", "k", "-b", &server.url()];
    let [error, hint] = error;
    assert_eq!(place.run(&words), format!("--- stderr\n{error}\n{hint}\n--- exit 76\n"));
}
