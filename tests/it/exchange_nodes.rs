//! A root and its leaves, as an operator uses them.

use std::fs;

use nix::sys::signal::Signal;

use super::common::exchange::{Node, ROOT, leaf_file};
use super::common::fake_broker::FakeBrokers;
use super::common::{Place, Server, StreamedProcess, wait_until};

fn value(text: &str) -> String {
    format!("--- stdout\n{text}(no line feed)\n--- exit 0\n")
}

#[test]
fn a_status_that_is_waited_for_connects_again_until_the_node_listens() {
    let place = Place::new();
    let broker = FakeBrokers::start(|_, _| {});
    let words = ["exchange", "status", "--wait", "60s", "-b", &broker.url()];
    let _waiting = StreamedProcess::start(&mut place.command(&words));
    // One that is not waited for makes two attempts at most.
    wait_until("a fourth attempt", || (broker.count() >= 4).then_some(()));
}

#[test]
fn changes_of_root_and_leaf_reach_the_other() {
    let place = Place::new();
    let root = Node::root(&place, &[]);
    let leaf = root.leaf("press-7");
    let waited = root.run(&["exchange", "status", "press-7", "-w", "20s"]);
    assert!(waited.starts_with("--- stdout\npress-7\tsynchronized\t0\t0\t0\t"), "{waited}");
    root.run(&["set", "recipe/1", "gold"]);
    leaf.run(&["set", "line/2", "75"]);
    root.settle();
    assert_eq!(leaf.run(&["get", "recipe/1"]), value("gold"));
    wait_until("the change is accepted", || (root.run(&["get", "line/2"]) == value("75")).then_some(()));
    let key = root.run(&["exchange", "key", "line/2", "-j"]);
    assert!(
        key.contains(
            "\"state\":\"synchronized\",\"rule\":2,\"rule_keys\":[\"line/**\"],\"change\":\"leaves\""
        ),
        "{key}"
    );
    assert!(key.contains("\"by\":\"press-7\""), "{key}");
}

#[test]
fn a_change_that_the_rules_forbid_is_refused_with_76() {
    let place = Place::new();
    let root = Node::root(&place, &[]);
    let leaf = root.leaf("press-7");
    root.wait_synchronized("press-7");
    assert_eq!(
        leaf.run(&["set", "recipe/1", "x"]),
        "--- stderr\nerror: the store refused the request: only the root of the exchange changes this key\n  \
         nothing was changed\nhint: change it at the root, or let leaves change it by a rule of the root\n--- exit 76\n"
    );
    for node in [&root, &leaf] {
        let leased = node.run(&["set", "line/2", "x", "--nx", "--ttl", "5s"]);
        assert!(
            leased.contains("neither a lease nor a fencing token") && leased.ends_with("exit 76\n"),
            "{leased}"
        );
    }
}

#[test]
fn an_unknown_leaf_joins_when_an_operator_adds_it() {
    let place = Place::new();
    let root = Node::root(&place, &[]);
    let leaf = root.leaf("mill");
    wait_until("the leaf is refused", || {
        let status = leaf.run(&["exchange", "status"]);
        let reason = "neither known nor admitted;\n           at the root: mqkv exchange add-leaf mill\n";
        status.contains(reason).then_some(())
    });
    assert!(root.run(&["exchange", "status", "mill"]).ends_with("error: leaf not found: mill\n--- exit 1\n"));
    let expected = "--- stderr\nerror: timed out after 1ms: leaf not found: mill\n--- exit 124\n";
    assert_eq!(root.run(&["exchange", "status", "mill", "--wait", "1ms"]), expected);
    assert_eq!(root.run(&["exchange", "add-leaf", "mill"]), "--- exit 0\n");
    root.settle();
    assert!(leaf.run(&["exchange", "status"]).ends_with("--- exit 0\n"));
    assert_eq!(root.run(&["exchange", "drop-leaf", "mill"]), "--- exit 0\n");
    assert!(root.run(&["exchange", "drop-leaf", "mill"]).ends_with("--- exit 1\n"));
    let refused = leaf.run(&["exchange", "drop-leaf", "mill"]);
    assert!(
        refused.contains("only the root of the exchange has leaves") && refused.ends_with("exit 76\n"),
        "{refused}"
    );
}

#[test]
fn a_conflict_is_listed_read_and_cleared_at_both_nodes() {
    let place = Place::new();
    let mut root = Node::root(&place, &[]);
    let leaf = root.leaf("press-7");
    let other = root.leaf("press-9");
    for name in ["press-7", "press-9"] {
        root.wait_synchronized(name);
    }
    root.kill();
    leaf.run(&["set", "line/2", "80"]);
    other.run(&["set", "line/2", "75"]);
    root.start_again();
    for name in ["press-7", "press-9"] {
        root.wait_synchronized(name);
    }
    let conflicts = wait_until("there is a conflict", || {
        let conflicts = root.run(&["exchange", "conflicts", "-j"]);
        conflicts.contains("\"op\":\"exchange-conflict\"").then_some(conflicts)
    });
    assert!(
        conflicts.contains("\"id\":1,") && conflicts.contains("\"reason\":\"first-leaf-wins\""),
        "{conflicts}"
    );
    let (lost, won, loser) = match conflicts.contains("\"leaf\":\"press-7\"") {
        true => ("80", "75", &leaf),
        false => ("75", "80", &other),
    };
    wait_until("the loser has the value", || (loser.run(&["get", "line/2"]) == value(won)).then_some(()));
    for node in [&root, loser] {
        let run = |words: &[&str]| node.run(words);
        assert_eq!(run(&["exchange", "value", "1"]), value(lost));
        assert!(run(&["exchange", "value", "2"]).ends_with("error: conflict not found: 2\n--- exit 1\n"));
        assert_eq!(run(&["exchange", "clear", "1"]), "--- exit 0\n");
        assert!(run(&["exchange", "clear", "1"]).ends_with("--- exit 1\n"));
        assert_eq!(run(&["exchange", "clear", "--all"]), "--- exit 0\n");
        assert_eq!(run(&["exchange", "conflicts"]), "--- exit 0\n");
    }
}

#[test]
fn the_first_bytes_of_a_long_value_that_lost_are_in_the_json_of_its_conflict() {
    let place = Place::new();
    let mut root = Node::root(&place, &[]);
    let mut leaf = root.leaf("press-7");
    root.wait_synchronized("press-7");
    leaf.kill();
    root.set("line/1", "root");
    root.kill();
    leaf.start_again();
    leaf.set("line/1", &"x".repeat(300));
    root.start_again();
    root.wait_synchronized("press-7");
    let start = format!("{{\"size\":300,\"start\":\"{}\",\"encoding\":\"utf-8\"}}", "x".repeat(256));
    for node in [&root, &leaf] {
        let conflicts = node.run(&["exchange", "conflicts", "-j"]);
        assert!(conflicts.contains(&format!("\"lost\":{start}")), "{conflicts}");
    }
}

#[test]
fn a_leaf_that_has_never_been_linked_refuses_writes_until_it_is() {
    let place = Place::new();
    let mut root = Node::root(&place, &[]);
    root.kill();
    let leaf = root.leaf("press-7");
    for words in [&["set", "line/1", "x"][..], &["del", "other"]] {
        let refused = leaf.run(words);
        let cause = "the store refused the request: this leaf has not joined its exchange yet";
        assert!(refused.contains(cause) && refused.contains("before_join"), "{refused}");
        assert!(refused.ends_with("--- exit 76\n"), "{refused}");
    }
    assert!(leaf.run(&["get", "line/1"]).ends_with("--- exit 1\n"));
    let early = root.leaf_with("press-9", "before_join = \"accept\"\n");
    early.set("line/9", "early");
    early.set("other", "local");
    root.start_again();
    root.wait_synchronized("press-7");
    leaf.set("line/1", "80");
    root.wait_for("line/1", "80");
    root.wait_for("line/9", "early");
    assert_eq!(early.run(&["get", "other"]), value("local"));
}

#[test]
fn a_leaf_connects_at_once_when_an_operator_asks_for_it() {
    let place = Place::new();
    let mut root = Node::root(&place, &[]);
    root.kill();
    let leaf = root.leaf("press-7");
    leaf.log("cannot connect to the root of the exchange");
    root.start_again();
    wait_until("the leaf is linked", || {
        let asked = leaf.run(&["exchange", "reconnect", "-j"]);
        assert!(asked.contains("\"op\":\"exchange-reconnect\"") && asked.ends_with("exit 0\n"), "{asked}");
        asked.contains("\"connected\":true").then_some(())
    });
    root.wait_synchronized("press-7");
    let refused = root.run(&["exchange", "reconnect"]);
    assert!(refused.contains("only a leaf of the exchange has a root") && refused.ends_with("exit 76\n"));
}

#[test]
fn a_root_is_not_synchronized_before_the_leaves_that_are_asked_for_have_joined() {
    let place = Place::new();
    let root = Node::root(&place, &[]);
    assert!(root.run(&["exchange", "status", "--wait", "1ms"]).ends_with("--- exit 0\n"), "it has no leaf");
    let expected = "--- stderr\nerror: not synchronized: 0 of 2 required leaves joined\n--- exit 1\n";
    assert_eq!(root.run(&["exchange", "status", "--leaves", "2"]), expected);
    let waited = root.run(&["exchange", "status", "--leaves", "1", "--wait", "1ms"]);
    assert!(waited.ends_with("error: timed out after 1ms\n--- exit 124\n"), "{waited}");
    let leaf = root.leaf("press-7");
    let waited = root.run(&["exchange", "status", "--leaves", "1", "--wait", "60s"]);
    assert!(waited.contains("press-7\tsynchronized\t") && waited.ends_with("--- exit 0\n"), "{waited}");
    let refused = leaf.run(&["exchange", "status", "--leaves", "1"]);
    assert!(refused.contains("only the root of the exchange has leaves") && refused.ends_with("exit 76\n"));
}

#[test]
fn a_leaf_that_the_file_of_the_root_names_is_expected_until_it_comes() {
    let place = Place::new();
    place.write("plant.toml", ROOT.replace("[\"press-*\"]", "[\"press-*\", \"mill\"]"));
    let root = Node::start(&place, "plant", &[]);
    let status = root.run(&["exchange", "status", "--wait", "1ms"]);
    assert!(status.starts_with("--- stdout\nmill\texpected\t0\t?\t0\t?\n--- stderr\n"), "{status}");
    assert!(status.contains("error: not synchronized: mill\n"), "{status}");
    assert!(status.ends_with("--- exit 124\n"), "{status}");
    let _leaf = root.leaf("mill");
    root.settle();
}

#[test]
fn sighup_reads_the_rules_of_a_root_again() {
    let place = Place::new();
    let root = Node::root(&place, &[]);
    let leaf = root.leaf("press-7");
    root.wait_synchronized("press-7");
    place.write("root.toml", ROOT.replace("change = \"root\"", "change = \"leaves\""));
    root.process().signal(Signal::SIGHUP);
    wait_until("the leaf may change the recipe", || {
        (leaf.run(&["set", "recipe/1", "x"]) == "--- exit 0\n").then_some(())
    });
    root.settle();
    wait_until("the root has the change", || (root.run(&["get", "recipe/1"]) == value("x")).then_some(()));
}

#[test]
fn sighup_at_a_leaf_logs_whether_its_file_needs_a_restart() {
    let place = Place::new();
    let root = Node::root(&place, &[]);
    let leaf = root.leaf("press-7");
    leaf.process().signal(Signal::SIGHUP);
    leaf.log("a leaf gets its rules from the root");
    let file = leaf_file("press-7", &root.url("mqtt"));
    place.write("press-7.toml", file.clone() + "on_join = \"discard\"\n");
    leaf.process().signal(Signal::SIGHUP);
    leaf.log("the file of the exchange has changed: restart this leaf to apply it");
    place.write("press-7.toml", file + "on_join = \"keep\"\n");
    leaf.process().signal(Signal::SIGHUP);
    assert!(leaf.log("this leaf goes on with the file of its start").contains("press-7.toml:5:"));
    root.wait_synchronized("press-7");
}

#[test]
fn a_leaf_that_is_offline_is_shown_with_the_time_since_its_last_frame() {
    let place = Place::new();
    let mut root = Node::root(&place, &[]);
    let mut leaf = root.leaf("press-7");
    root.wait_synchronized("press-7");
    leaf.kill();
    let status = |root: &Node<'_>| {
        wait_until("the leaf is offline", || {
            let status = root.run(&["exchange", "status", "-j"]);
            status.contains("\"state\":\"offline\"").then_some(status)
        })
    };
    assert!(status(&root).contains("\"heard_ms\":"), "{}", status(&root));
    root.kill();
    root.start_again();
    assert!(!status(&root).contains("\"heard_ms\":"), "{}", status(&root));
}

#[test]
fn the_status_of_a_root_has_all_of_its_many_leaves() {
    let place = Place::new();
    let root = Node::root(&place, &[]);
    // One step of the root looks at 64.
    for number in 0..64 {
        root.run(&["exchange", "add-leaf", &format!("l-{number}")]);
        if number == 62 {
            assert_eq!(root.run(&["exchange", "status"]).matches("\texpected\t").count(), 63);
        }
    }
    assert_eq!(root.run(&["exchange", "status"]).matches("\texpected\t").count(), 64);
    root.run(&["exchange", "add-leaf", "more"]);
    assert_eq!(root.run(&["exchange", "status"]).matches("\texpected\t").count(), 65);
}

#[test]
fn a_write_that_is_larger_than_the_root_accepts_is_refused_at_the_leaf() {
    let place = Place::new();
    let root = Node::root(&place, &["--queue-bytes-max", "1M"]);
    let leaf = root.leaf("press-7");
    root.wait_synchronized("press-7");
    place.write("large", "x".repeat(600_000));
    let refused = leaf.run(&["set", "line/1", "--file", "large"]);
    assert!(refused.contains("the value is too long") && refused.ends_with("exit 76\n"), "{refused}");
    assert!(leaf.run(&["set", "local", "--file", "large"]).ends_with("exit 0\n"));
}

#[test]
fn a_change_that_the_root_does_not_accept_in_a_packet_is_named() {
    let place = Place::new();
    let mut root = Node::root(&place, &["--queue-bytes-max", "1M"]);
    let mut leaf = root.leaf("press-7");
    root.wait_synchronized("press-7");
    root.kill();
    // A leaf that has not been connected since its start does not have the limit.
    leaf.kill();
    leaf.start_again();
    place.write("large", "x".repeat(600_000));
    assert!(leaf.run(&["set", "line/1", "--file", "large"]).ends_with("exit 0\n"));
    root.start_again();
    leaf.log("the changes of leaf press-7 wait: a change takes 600262 bytes in a packet");
    let status = leaf.run(&["exchange", "status", "-j"]);
    assert!(status.contains("\"state\":\"blocked\"") && status.contains("line/1"), "{status}");
    root.set("recipe/1", "gold");
    leaf.wait_for("recipe/1", "gold");
}

#[test]
fn a_folder_of_a_node_is_served_as_that_node_only() {
    let place = Place::new();
    let mut root = Node::root(&place, &[]);
    root.kill();
    let hint = "mqkv serve --data root --leave-exchange";
    for words in
        [&["serve", "--data", "root", "--listen", "127.0.0.1:0"][..], &["--embedded=root", "get", "k"]]
    {
        let refused = place.run(words);
        assert!(refused.contains("belongs to the root of the exchange plant"), "{refused}");
        assert!(refused.contains(hint) && refused.ends_with("--- exit 74\n"), "{refused}");
    }
    let left = place.run(&["serve", "--data", "root", "--leave-exchange"]);
    assert_eq!(left, "--- stderr\nroot is a store of its own again; its keys are unchanged\n--- exit 0\n");
    assert_eq!(place.run(&["--embedded=root", "set", "k", "v"]), "--- exit 0\n");
}

#[test]
fn a_leaf_reports_why_it_cannot_reach_its_root() {
    let place = Place::new();
    let mut root = Node::root(&place, &[]);
    let leaf = root.leaf("press-7");
    root.wait_synchronized("press-7");
    root.kill();
    let reason = format!("\nreason:    connection refused: 127.0.0.1:{}\n", root.port);
    wait_until("the reason is reported", || {
        let status = leaf.run(&["exchange", "status"]);
        (status.contains("\nstate:     offline\n") && status.contains(&reason)).then_some(())
    });
    root.start_again();
    root.wait_synchronized("press-7");
    let status = leaf.run(&["exchange", "status"]);
    assert!(!status.contains("reason:") && status.ends_with("--- exit 0\n"), "{status}");
}

#[test]
fn following_conflicts_reports_a_lost_connection_once() {
    let place = Place::new();
    let mut root = Node::root(&place, &[]);
    root.kill();
    let mut leaf = root.leaf_with("press-7", "before_join = \"accept\"\n");
    leaf.set("recipe/1", "own");
    root.start_again();
    root.wait_synchronized("press-7");
    let words = ["exchange", "conflicts", "--follow", "-b", &leaf.url("mqtt"), "-t", "3s"];
    let following = StreamedProcess::start(&mut place.command(&words));
    assert!(following.line().contains("\trecipe/1\tpress-7\tjoined\t"));
    leaf.kill();
    let lost = following.error_line();
    assert!(lost.starts_with("connection lost: ") && lost.ends_with("; reconnecting"), "{lost}");
    // The next request fails, too.
    assert!(leaf.run(&["ping"]).ends_with("--- exit 69\n"));
    leaf.start_again();
    following.signal(Signal::SIGINT);
    assert_eq!(following.end().1, Vec::<String>::new());
}

#[test]
fn a_leaf_joins_a_new_root_when_an_operator_asks_for_it() {
    let place = Place::new();
    let mut root = Node::root(&place, &[]);
    let leaf = root.leaf("press-7");
    root.wait_synchronized("press-7");
    leaf.set("line/1", "80");
    root.wait_for("line/1", "80");
    root.kill();
    fs::remove_dir_all(place.path("root")).unwrap();
    root.start_again();
    wait_until("the leaf has found another root", || {
        leaf.run(&["exchange", "status"]).contains("mqkv exchange resync --new-root").then_some(())
    });
    let joining = leaf.run(&["exchange", "resync", "--new-root", "-o", "text"]);
    let joins = "the leaf joins the root that it reaches next, and offers its keys";
    assert_eq!(joining, format!("--- stdout\n{joins}\n--- exit 0\n"));
    root.wait_synchronized("press-7");
    root.wait_for("line/1", "80");
}

#[test]
fn a_store_without_an_exchange_answers_so() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    assert_eq!(
        place.run_at(&server.url(), &["exchange", "status"]),
        "--- stderr\nerror: this store takes no part in an exchange\n\
         hint: start the store with: mqkv serve --data DIR --exchange FILE\n--- exit 76\n"
    );
}
