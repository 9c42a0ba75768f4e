//! `watch --prefix`: all keys that begin with a prefix, also new ones.

use super::common::{Place, Server, StreamedProcess};
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
    // The next listing finds it, and a key that was deleted is still watched.
    ok(&place, &url, &["set", "a*b/3", "late"]);
    assert_eq!(next(&running), "SET\ta*b/3\tlate");
    ok(&place, &url, &["set", "a*b/2", "again"]);
    ok(&place, &url, &["del", "a*b/3"]);
    assert_eq!(rest(running), (vec!["SET\ta*b/2\tagain".to_owned(), "DELETE\ta*b/3".to_owned()], Some(0)));
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
    let words = ["--prefix", "k/", "-c", "1", "--", "/bin/sh", "-c", script];
    let running = watch(&place, &server.url(), &words);
    std::thread::sleep(std::time::Duration::from_millis(300));
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
    place.write("seed", (0..10_001).map(line).collect::<String>());
    let server = Server::start(&place, &["-q", "--seed", "seed"]);
    assert_eq!(
        place.run(&["watch", "--prefix", "k", "-b", &server.url()]),
        "--- stderr\nerror: cannot watch k: more than 10000 keys begin with it\nhint: use a longer prefix\n--- exit 76\n"
    );
}
