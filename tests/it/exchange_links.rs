//! Links between running nodes of an exchange: lost ones, refused ones, and those of killed nodes.

use std::fs;

use nix::sys::signal::Signal;

use super::common::exchange::{Node, ROOT, leaf_file};
use super::common::pki::Ca;
use super::common::wire::{self, Publish};
use super::common::{Place, RawClient, wait_until};

const TLS: [&str; 6] = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--client-ca", "ca.pem"];

/// Copies a data folder while no process uses it.
fn copy(place: &Place, from: &str, to: &str) {
    fs::create_dir(place.path(to)).unwrap();
    for file in fs::read_dir(place.path(from)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), place.path(to).join(file.file_name())).unwrap();
    }
}

#[test]
fn a_change_at_either_node_reaches_the_other_and_its_watchers() {
    let place = Place::new();
    let root = Node::root(&place, &[]);
    let leaf = root.leaf("press-7");
    root.log("leaf press-7 has joined the exchange");
    leaf.log("leaf press-7 is linked with the root");
    let (at_leaf, at_root) = (leaf.watch("recipe/1"), root.watch("line/1"));
    root.set("recipe/1", "steel");
    assert!(at_leaf.line().ends_with("SET\trecipe/1\tsteel"));
    leaf.set("line/1", "80");
    assert!(at_root.line().ends_with("SET\tline/1\t80"));
    leaf.wait_for("recipe/1", "steel");
    assert_eq!(leaf.run(&["del", "line/1", "-q"]), "--- exit 0\n");
    assert!(at_root.line().ends_with("DELETE\tline/1"));
    root.wait_synchronized("press-7");
    leaf.set("other", "1");
    let missing = "--- stderr\nerror: key not found: other\n--- exit 1\n";
    assert_eq!(root.run(&["get", "other"]), missing, "no rule has a pattern for it");
}

#[test]
fn a_change_that_loses_is_reported_at_both_nodes_and_its_value_kept() {
    let place = Place::new();
    let mut root = Node::root(&place, &[]);
    let mut leaf = root.leaf("press-7");
    root.wait_synchronized("press-7");
    leaf.set("line/1", "75");
    root.wait_for("line/1", "75");
    root.wait_synchronized("press-7");
    leaf.kill();
    root.set("line/1", "80");
    root.kill();
    leaf.start_again();
    leaf.log("cannot connect to the root of the exchange");
    let watch = leaf.watch("line/1");
    leaf.set("line/1", "81");
    assert!(watch.line().ends_with("SET\tline/1\t81"), "a leaf shows its own change at once");
    root.start_again();
    assert!(watch.line().ends_with("SET\tline/1\t80"), "the root wins");
    let conflict = "the change of line/1 by leaf press-7 has lost: the root has changed the key; version 2 of the root \
        stays in force";
    root.log(conflict);
    leaf.log(conflict);
    root.wait_synchronized("press-7");
    assert!(leaf.run(&["exchange", "resync"]).ends_with("--- exit 0\n"));
    leaf.log("an operator has requested a resync: all records are compared again");
    assert!(root.run(&["exchange", "resync", "press-7"]).ends_with("--- exit 0\n"));
    root.log("an operator has requested a resync of leaf press-7");
    for node in [&root, &leaf] {
        let conflicts = node.run(&["exchange", "conflicts"]);
        assert!(conflicts.contains("\tline/1\tpress-7\troot-wins\t2\tthe root\t81\n"), "{conflicts}");
        let value = node.run(&["exchange", "value", "1"]);
        assert_eq!(value, "--- stdout\n81(no line feed)\n--- exit 0\n");
    }
}

#[test]
fn a_set_at_a_leaf_without_a_link_reports_that_its_change_waits_for_the_root() {
    let place = Place::new();
    let mut root = Node::root(&place, &[]);
    let leaf = root.leaf("press-7");
    root.wait_synchronized("press-7");
    let waits = |key: &str| {
        let shown = leaf.run(&["set", key, "1", "-j"]);
        assert!(shown.contains("\"applied\":true"), "{shown}");
        shown.contains("\"pending\":true")
    };
    assert!(!waits("line/1"));
    root.kill();
    wait_until("the leaf has noticed the loss", || waits("line/1").then_some(()));
    assert!(!waits("other"), "the key takes no part");
    let shown = leaf.run(&["raw", "SET", "line/1", "2", "--trace"]);
    assert!(!shown.contains("mqkv-pending"), "the request does not ask for it: {shown}");
    root.start_again();
    root.wait_for("line/1", "2");
    wait_until("the change does not wait", || (!waits("line/1")).then_some(()));
}

#[test]
fn no_change_is_lost_when_a_node_is_killed() {
    let place = Place::new();
    let mut root = Node::root(&place, &[]);
    let mut leaf = root.leaf("press-7");
    root.wait_synchronized("press-7");
    root.kill();
    leaf.set("line/1", "offline");
    leaf.kill();
    root.start_again();
    root.set("recipe/1", "steel");
    root.kill();
    leaf.start_again();
    leaf.set("line/2", "again");
    root.start_again();
    root.wait_for("line/1", "offline");
    root.wait_for("line/2", "again");
    leaf.wait_for("recipe/1", "steel");
    root.wait_synchronized("press-7");
    leaf.kill();
    leaf.start_again();
    leaf.wait_for("recipe/1", "steel");
    root.wait_synchronized("press-7");
    let status = leaf.run(&["exchange", "status"]);
    assert!(status.contains("2 made, 2 accepted, 0 refused, 0 merged"), "{status}");
}

#[test]
fn a_leaf_that_may_not_join_is_reported_and_others_are_unaffected() {
    let place = Place::new();
    let root = Node::root(&place, &[]);
    let leaf = root.leaf("press-7");
    root.wait_synchronized("press-7");

    let unknown = root.leaf("mill");
    root.log("leaf mill was refused: the leaf is neither known nor admitted: mqkv exchange add-leaf mill");
    unknown.log("the leaf is neither known nor admitted; at the root: mqkv exchange add-leaf mill");
    assert!(root.run(&["exchange", "add-leaf", "mill"]).ends_with("--- exit 0\n"));
    root.wait_synchronized("mill");

    place.write("press-8.toml", leaf_file("press-8", &root.url("mqtt")).replace("plant", "plants"));
    let other = Node::start(&place, "press-8", &[]);
    other.log("cannot connect to the root of the exchange: no root of the exchange plants at");

    place.write("twin.toml", leaf_file("press-7", &root.url("mqtt")));
    let twin = Node::start(&place, "twin", &[]);
    root.log("leaf press-7 was refused: another data folder has this name: mqkv exchange add-leaf press-7 --replace");
    twin.log("another data folder has this name");

    leaf.set("line/1", "unaffected");
    root.wait_for("line/1", "unaffected");
    unknown.wait_for("line/1", "unaffected");
}

#[test]
fn of_a_copied_folder_only_the_node_that_is_linked_is_served() {
    let place = Place::new();
    let root = Node::root(&place, &[]);
    let mut leaf = root.leaf("press-7");
    root.wait_synchronized("press-7");
    leaf.kill();
    copy(&place, "press-7", "copy");
    leaf.start_again();
    root.wait_synchronized("press-7");
    place.write("copy.toml", leaf_file("press-7", &root.url("mqtt")));
    let copy = Node::start(&place, "copy", &[]);
    root.log("leaf press-7 was refused: another process with a copy of this data folder is linked");
    copy.log("another process with a copy of this data folder is linked");
    leaf.set("line/1", "80");
    root.wait_for("line/1", "80");
}

#[test]
fn a_folder_is_not_served_with_the_file_of_another_node() {
    let place = Place::new();
    let mut root = Node::root(&place, &[]);
    root.kill();
    place.write("leaf.toml", leaf_file("press-7", "mqtt://127.0.0.1:1"));
    place.write("other.toml", ROOT.replace("plant", "mine"));
    for file in ["leaf.toml", "other.toml"] {
        let listen = ["serve", "--listen", "127.0.0.1:0", "--data", "root", "--exchange", file];
        let refused = place.run(&listen);
        assert!(refused.contains("root belongs to the root of the exchange plant"), "{refused}");
        assert!(refused.ends_with("--- exit 74\n"), "{refused}");
    }
}

#[test]
fn frames_of_another_client_do_not_affect_the_link_of_a_leaf() {
    let place = Place::new();
    let root = Node::root(&place, &[]);
    let leaf = root.leaf("press-7");
    leaf.log("leaf press-7 is linked with the root");
    root.wait_synchronized("press-7");
    let mut client = RawClient::connect(root.port);
    client.send(&wire::connect("garbage"));
    client.receive().unwrap();
    for (id, payload) in [(1, &b"garbage"[..]), (2, b"*3\r\n+HELLO\r\n"), (3, b"")] {
        let topic = "mqkv/exchange/v1/plant/up/press-7".to_owned();
        let publish = Publish { topic, packet_id: id, payload: payload.to_vec(), ..Publish::default() };
        client.send(&publish.encode());
        assert_eq!(client.receive().unwrap().name(), "PUBACK");
    }
    leaf.set("line/1", "80");
    root.wait_for("line/1", "80");
    root.process().signal(Signal::SIGTERM);
    let mut lines = std::iter::repeat_with(|| root.process().log_line());
    let ended = lines.find(|line| line.contains("was ended") || line.contains("stopping"));
    assert!(ended.is_some_and(|line| !line.contains("was ended")));
}

#[test]
fn a_leaf_needs_the_permission_for_its_topics() {
    const RULES: &str = r##"
rules:
- principals: {usernames: [press-7]}
  brokerResources:
  - method: Connect
  - {method: Publish, topics: ["mqkv/exchange/v1/plant/up/press-7"]}
  - {method: Subscribe, topics: ["mqkv/exchange/v1/plant/down/press-7"]}
- principals: {usernames: [press-8]}
  brokerResources:
  - method: Connect
  - {method: Subscribe, topics: ["mqkv/exchange/v1/plant/down/#"]}
- principals: {usernames: [press-9]}
  brokerResources:
  - method: Connect
  - {method: Publish, topics: ["mqkv/exchange/v1/plant/up/#"]}
- principals: {usernames: [thief]}
  brokerResources:
  - method: Connect
  - {method: Publish, topics: ["mqkv/exchange/v1/plant/up/#"]}
  - {method: Subscribe, topics: ["mqkv/exchange/v1/plant/down/#"]}
"##;
    let place = Place::new();
    place.write("rules", RULES);
    place.write("secret", "p");
    for name in ["press-7", "press-8", "press-9", "thief"] {
        let added = place.run_with_input(&["serve", "user", "add", "users", name, "-q"], b"p\n");
        assert_eq!(added, "--- exit 0\n");
    }
    let root = Node::root(&place, &["--users", "users", "--authz", "rules"]);
    let login = |name| format!("username = \"{name}\"\npassword_file = \"secret\"\n");
    let [mut seven, eight, nine] =
        ["press-7", "press-8", "press-9"].map(|name| root.leaf_with(name, &login(name)));
    seven.log("leaf press-7 is linked with the root");
    seven.kill();
    let no = "not authorized";
    assert!(eight.log("cannot connect to the root").contains(no));
    assert!(nine.log("cannot connect to the root").contains(no));
    // The name belongs to the user that joined with it.
    place.write("thief.toml", leaf_file("press-7", &root.url("mqtt")) + &login("thief"));
    copy(&place, "press-7", "thief");
    let thief = Node::start(&place, "thief", &[]);
    thief.log("another client identity has this name");
    root.log("leaf press-7 was refused: another client identity has this name");
}

#[test]
fn an_operator_without_a_permission_learns_which_one_is_missing() {
    const RULES: &str = r##"
rules:
- principals: {usernames: [ann, bob]}
  brokerResources:
  - {method: Connect}
  - {method: Publish, topics: ["mqkv/exchange/v1/command", "clients/{principal.clientId}/#"]}
  - {method: Subscribe, topics: ["clients/{principal.clientId}/#"]}
- principals: {usernames: [ann]}
  stateStoreResources:
  - {method: Read, keyType: Pattern, keys: ["*"]}
- principals: {usernames: [eve]}
  brokerResources:
  - {method: Connect}
"##;
    let place = Place::new();
    place.write("rules", RULES);
    place.write("secret", "p");
    for name in ["ann", "bob", "eve"] {
        place.run_with_input(&["serve", "user", "add", "users", name, "-q"], b"p\n");
    }
    let root = Node::root(&place, &["--users", "users", "--authz", "rules"]);
    let key = |name: &str| root.run(&["exchange", "key", "line/1", "-u", name, "--password-file", "secret"]);
    assert!(key("ann").contains("state:     absent"), "{}", key("ann"));
    let refused = key("bob");
    assert!(refused.contains("error: no permission to read the key\n"), "{refused}");
    assert!(
        refused.contains("hint: this client needs in the rules of --authz: stateStoreResources"),
        "{refused}"
    );
    assert!(refused.ends_with("--- exit 76\n"), "{refused}");
    let refused = key("eve");
    assert!(
        refused.contains("mqkv/exchange/v1/command") && refused.contains("clients/CLIENT-ID/#"),
        "{refused}"
    );
}

#[test]
fn a_restored_root_lists_what_its_leaves_have_lost() {
    let place = Place::new();
    let mut root = Node::root(&place, &[]);
    let leaf = root.leaf("press-7");
    root.set("recipe/1", "old");
    root.wait_synchronized("press-7");
    root.kill();
    copy(&place, "root", "backup");
    root.start_again();
    root.set("recipe/1", "new");
    leaf.wait_for("recipe/1", "new");
    root.kill();
    fs::remove_dir_all(place.path("root")).unwrap();
    copy(&place, "backup", "root");
    root.start_again();
    leaf.wait_for("recipe/1", "old");
    root.wait_synchronized("press-7");
    assert!(leaf.run(&["exchange", "resync"]).ends_with("--- exit 0\n"));
    leaf.log("an operator has requested a resync: all records are compared again");
    assert!(root.run(&["exchange", "resync", "press-7"]).ends_with("--- exit 0\n"));
    root.log("an operator has requested a resync of leaf press-7");
    for node in [&root, &leaf] {
        let conflicts = node.run(&["exchange", "conflicts"]);
        assert!(conflicts.contains("\trecipe/1\tpress-7\trestored\t"), "{conflicts}");
        assert!(node.run(&["exchange", "value", "1"]).contains("new"));
    }
    assert!(leaf.run(&["exchange", "status"]).contains("0 made, 0 accepted, 0 refused"));
}

#[test]
fn a_leaf_authenticates_the_root_and_itself_with_certificates() {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    ca.issue(&place, "server", &["127.0.0.1"]);
    ca.issue(&place, "press-7", &["press-7"]);
    Ca::new(&place, "other.pem");
    let root = Node::root(&place, &TLS);
    let url = root.url("mqtts");
    let files = "certfile = \"press-7.pem\"\nkeyfile = \"press-7.key\"\n";
    place.write("press-7.toml", leaf_file("press-7", &url) + files + "cafile = \"ca.pem\"\n");
    place.write("press-8.toml", leaf_file("press-8", &url) + files + "cafile = \"other.pem\"\n");
    place.write("press-9.toml", leaf_file("press-9", &url) + "cafile = \"ca.pem\"\n");
    let [seven, eight, nine] = ["press-7", "press-8", "press-9"].map(|name| Node::start(&place, name, &[]));
    seven.log("leaf press-7 is linked with the root");
    assert!(eight.log("cannot connect to the root").contains("unknown CA"));
    assert!(nine.log("cannot connect to the root").contains("certificate"));
    seven.set("line/1", "80");
    root.log("has joined the exchange");
    seven.process().signal(Signal::SIGTERM);
    root.log("leaf press-7 is offline");
}

#[test]
fn the_file_of_another_node_is_not_taken_for_new_rules() {
    let place = Place::new();
    let root = Node::root(&place, &[]);
    let leaf = root.leaf("press-7");
    root.log("leaf press-7 has joined the exchange");
    root.wait_synchronized("press-7");
    let other = ROOT.replace("change = \"root\"", "change = \"leaves\"").replace("\"root\"", "\"other\"");
    let other = other.replace("role = \"other\"", "role = \"root\"");
    place.write("root.toml", &other);
    root.process().signal(Signal::SIGHUP);
    root.log("the file is now the one of other of the exchange plant; the previous rules");
    assert!(leaf.run(&["set", "recipe/1", "x"]).ends_with("--- exit 76\n"));
    place.write("root.toml", other.replace("node = \"other\"", "node = \"root\""));
    root.process().signal(Signal::SIGHUP);
    root.log("rules of the exchange reloaded: 2");
    wait_until("the leaf may change the recipe", || {
        (leaf.run(&["set", "recipe/1", "x"]) == "--- exit 0\n").then_some(())
    });
}
