//! Exchange files, and the verbs of `exchange` that work without a node.

use std::fs;

use super::common::Place;
use super::common::exchange::{ROOT, leaf_file};

const WRONG: &str = "\
exchange = \"Plant\"
nod = \"root\"
role = \"root\"
[[rule]]
keys = [\"recipe/***\"]
";

/// The mistakes of [`WRONG`].
const MISTAKES: &str = "\
error: wrong.toml:1:12: exchange: a name has 1 to 64 of the characters a-z 0-9 . _ -
  wrong.toml:2:1: unknown key nod; did you mean node?
  wrong.toml:4:1: the rule has no 'change'
  wrong.toml:5:9: invalid pattern \"recipe/***\"
  wrong.toml: node is missing
";

fn place() -> Place {
    let place = Place::new();
    // The last rule is for some leaves only.
    place.write("root.toml", format!("{ROOT}leaves = [\"press-*\"]\n"));
    place.write("leaf.toml", leaf_file("press-7", "mqtt://plant:1884"));
    place.write("wrong.toml", WRONG);
    place
}

#[test]
fn check_reports_all_mistakes_of_a_file() {
    let place = place();
    let checked = place.run(&["exchange", "check", "wrong.toml"]);
    assert_eq!(checked, format!("--- stderr\n{MISTAKES}--- exit 78\n"));
    let checked = place.run(&["exchange", "check", "none.toml"]);
    assert_eq!(
        checked,
        "--- stderr\nerror: cannot read none.toml: No such file or directory (os error 2)\n--- exit 74\n"
    );
    place.write("cut.toml", "exchange = \"plant\nnode = 1\n");
    let checked = place.run(&["exchange", "check", "cut.toml"]);
    assert!(checked.starts_with("--- stderr\nerror: cut.toml:1:"), "{checked}");
}

#[test]
fn check_describes_a_valid_file() {
    let place = place();
    assert_eq!(
        place.run(&["exchange", "check", "root.toml"]),
        "--- stdout\nroot.toml: valid; root of plant, 2 rules, admits press-*\n--- exit 0\n"
    );
    assert_eq!(
        place.run(&["exchange", "check", "leaf.toml"]),
        "--- stdout\nleaf.toml: valid; leaf press-7 of plant, root at mqtt://plant:1884\n--- exit 0\n"
    );
    assert_eq!(
        place.run(&["exchange", "check", "root.toml", "-j"]),
        "--- stdout\n{\"v\":1,\"op\":\"exchange-check\",\"exchange\":\"plant\",\"node\":\"root\",\"role\":\"root\",\
         \"rules\":2,\"admit\":[\"press-*\"]}\n--- exit 0\n"
    );
}

#[test]
fn check_shows_which_rule_holds_for_a_key() {
    let place = place();
    assert_eq!(
        place.run(&["exchange", "check", "root.toml", "recipe/1", "line/2/setpoint", "other"]),
        "--- stdout\nrecipe/1: rule 1 in line 5, change by root, sent to all leaves\n\
         line/2/setpoint: rule 2 in line 8, change by leaves, sent to press-*\n\
         --- stderr\nerror: no rule for other: the key takes no part\n--- exit 1\n"
    );
    assert_eq!(
        place.run(&["exchange", "check", "root.toml", "line/2/setpoint", "-j"]),
        "--- stdout\n{\"v\":1,\"op\":\"exchange-check\",\"key\":\"line/2/setpoint\",\"found\":true,\"rule\":2,\
         \"line\":8,\"change\":\"leaves\",\"leaves\":[\"press-*\"]}\n--- exit 0\n"
    );
    let of_leaf = place.run(&["exchange", "check", "leaf.toml", "a"]);
    assert!(
        of_leaf.contains("the file of a leaf has no rules") && of_leaf.ends_with("exit 2\n"),
        "{of_leaf}"
    );
}

#[test]
fn serve_refuses_an_exchange_file_with_mistakes() {
    let place = place();
    let served = place.run(&["serve", "--data", "d", "--exchange", "wrong.toml"]);
    assert_eq!(served, format!("--- stderr\n{MISTAKES}--- exit 78\n"));
    assert!(!place.path("d").exists());
}

#[test]
fn an_exchange_needs_a_data_directory() {
    let place = place();
    for words in [&["serve", "--exchange", "root.toml"][..], &["serve", "--leave-exchange"]] {
        let served = place.run(words);
        assert!(served.starts_with("--- stderr\nerror: --data DIR is missing\n"), "{served}");
        assert!(served.ends_with("--- exit 2\n"), "{served}");
    }
}

#[test]
fn a_leaf_needs_the_files_of_its_connection() {
    let place = place();
    let leaf = leaf_file("press-7", "mqtts://plant:1884");
    fs::create_dir(place.path("conf")).unwrap();
    place.write("conf/leaf.toml", format!("{leaf}cafile = \"ca.crt\"\n"));
    let served = place.run(&["serve", "--data", "d", "--exchange", "conf/leaf.toml"]);
    assert!(served.contains("conf/ca.crt") && served.ends_with("--- exit 74\n"), "{served}");
}

#[test]
fn leaving_an_exchange_needs_a_store() {
    let place = place();
    let left = place.run(&["serve", "--data", "d", "--leave-exchange"]);
    assert!(left.starts_with("--- stderr\nerror: there is no store in d\n"), "{left}");
    place.run(&["--embedded=d", "set", "k", "v"]);
    let left = place.run(&["serve", "--data", "d", "--leave-exchange"]);
    assert_eq!(left, "--- stderr\nd takes part in no exchange; nothing was changed\n--- exit 0\n");
    let left = place.run(&["serve", "--data", "d", "--leave-exchange", "-j"]);
    assert_eq!(left, "--- stdout\n{\"v\":1,\"op\":\"leave-exchange\",\"rows\":0}\n--- exit 0\n");
}

#[test]
fn a_read_only_context_refuses_the_verbs_that_change() {
    let place = place();
    fs::create_dir_all(place.path(".config/mqkv")).unwrap();
    // Port 1 is not listened on.
    place.write(
        ".config/mqkv/config.toml",
        "[context.prod]\nbroker = 'mqtt://127.0.0.1:1'\nread_only = true\n",
    );
    for words in
        [&["clear", "--all"][..], &["clear", "1"], &["add-leaf", "a"], &["drop-leaf", "a"], &["resync"]]
    {
        let refused = place.run(&[&["-x", "prod", "exchange"], words].concat());
        assert!(
            refused.contains("the context prod is read-only") && refused.ends_with("exit 78\n"),
            "{refused}"
        );
    }
    for words in [&["status"][..], &["key", "k"], &["conflicts"], &["value", "1"]] {
        let tried = place.run(&[&["-x", "prod", "exchange"], words].concat());
        assert!(tried.contains("connection refused") && tried.ends_with("exit 69\n"), "{tried}");
    }
}
