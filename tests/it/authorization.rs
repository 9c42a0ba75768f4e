//! `mqkv serve --authz`: permissions of clients, rejections, and reloading the rules.

use nix::sys::signal::Signal;

use super::common::pki::Ca;
use super::common::wire::{self, Packet, Publish};
use super::common::{LoggedServer, Place, RawClient, StreamedProcess};

const TAIL: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";
const NOTIFY: &str = "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8";

/// `press` may read and write the keys below its own client id and read `shared`. `guest` may only connect. `chief`
/// may do everything.
const RULES: &str = r##"
rules:
- principals: {clientIds: [press, press-2]}
  brokerResources:
  - method: Connect
  - {method: Publish, topics: ["TAIL", "clients/{principal.clientId}/#", "talk"]}
  - {method: Subscribe, topics: ["clients/{principal.clientId}/#", "talk/+"]}
  stateStoreResources:
  - {method: ReadWrite, keyType: Pattern, keys: ["{principal.clientId}/*"]}
  - {method: Read, keyType: String, keys: [shared]}
- principals: {clientIds: [guest]}
  brokerResources: [{method: Connect}]
- principals: {usernames: [chief]}
  brokerResources:
  - method: Connect
  - {method: Publish, topics: ["#"]}
  - {method: Subscribe, topics: ["#"]}
  stateStoreResources: [{method: ReadWrite, keyType: Pattern, keys: ["*"]}]
"##;

fn place() -> Place {
    let place = Place::new();
    place.write("rules", RULES.replace("TAIL", TAIL));
    place.write("password", "p");
    assert_eq!(
        place.run_with_input(&["serve", "user", "add", "users", "chief", "-q"], b"p\n"),
        "--- exit 0\n"
    );
    place
}

fn serve(place: &Place) -> LoggedServer {
    let listen = ["--listen", "mqtt://127.0.0.1:0?anonymous=yes"];
    LoggedServer::start(place, &[&["--authz", "rules", "--users", "users"], &listen[..]].concat())
}

fn run(place: &Place, server: &LoggedServer, line: &str) -> String {
    let url = format!("mqtt://127.0.0.1:{}", server.port(0));
    let words: Vec<&str> = line.split(' ').chain(["-b", &url]).collect();
    place.run(&words).replace(&url["mqtt://".len()..], "BROKER")
}

/// Connects a client at packet level.
fn raw(server: &LoggedServer, client_id: &str) -> RawClient {
    let mut client = RawClient::connect(server.port(0));
    client.send(&wire::connect(client_id));
    assert_eq!(client.receive().unwrap().body[1], 0, "{client_id} is accepted");
    client
}

fn suback(client: &mut RawClient, filter: &str) -> u8 {
    client.send(&wire::subscribe(1, filter));
    *client.receive().unwrap().body.last().unwrap()
}

#[test]
fn rules_limit_which_keys_a_client_reads_and_writes() {
    let place = place();
    let server = serve(&place);
    let chief = "-u chief --password-file password -q";
    assert_eq!(run(&place, &server, &format!("set shared s {chief}")), "--- exit 0\n");
    assert_eq!(run(&place, &server, &format!("set press/a 1 {chief}")), "--- exit 0\n");
    assert_eq!(run(&place, &server, &format!("set hidden h {chief}")), "--- exit 0\n");
    assert_eq!(run(&place, &server, "set press/b 2 -i press"), "--- exit 0\n");
    assert_eq!(run(&place, &server, "get shared -i press"), "--- stdout\ns(no line feed)\n--- exit 0\n");
    let left_out = "hint: keys that the rules of the server do not let this client read are left out\n";
    let keys = run(&place, &server, "keys -i press");
    assert_eq!(keys, format!("--- stdout\nshared\npress/a\npress/b\n--- stderr\n{left_out}--- exit 0\n"));
    let keys = run(&place, &server, "keys press/* -i press");
    assert_eq!(keys, "--- stdout\npress/a\npress/b\n--- exit 0\n", "the rules let it read all of these");
    assert!(!run(&place, &server, "keys -u chief --password-file password").contains("left out"));
    let exported = run(&place, &server, "export -i press");
    assert!(exported.contains("exported 3 keys\n") && exported.contains(left_out), "{exported}");
    let dry_run = run(&place, &server, "del --pattern * --dry-run -i press");
    assert!(dry_run.contains(left_out) && dry_run.contains("would delete 3 keys\n"), "{dry_run}");
    let refused = |id: &str, verb: &str, key: &str| {
        let (outcome, method) = match verb {
            "read" => ("", "Read"),
            _ => ("  nothing was changed\n", "Write"),
        };
        format!(
            "--- stderr\nerror: not authorized: client id {id} may not {verb} the key {key}\n{outcome}\
             hint: the rules of the store need one with the method {method} for client id {id} and this key\n--- exit 77\n"
        )
    };
    assert_eq!(run(&place, &server, "set shared t -i press"), refused("press", "write", "shared"));
    assert_eq!(run(&place, &server, "del press/a -i press-2"), refused("press-2", "write", "press/a"));
    assert_eq!(run(&place, &server, "get press/a -i press-2"), refused("press-2", "read", "press/a"));
    assert_eq!(run(&place, &server, "watch press/a -i press-2 -c 1"), refused("press-2", "read", "press/a"));
    for line in
        ["press may not write", "press-2 may not write", "press-2 may not read", "press-2 may not read"]
    {
        let key = if line.starts_with("press ") { "shared" } else { "press/a" };
        assert_eq!(server.log_line_with("may not"), format!("{line} the key {key}: no rule allows it"));
    }
    let deleted = run(&place, &server, "del --pattern * --yes -i press");
    let expected = "deleted 2 keys\nerror: not authorized: client id press may not write the key shared\n  \
                    1 of 3 keys failed: shared\n";
    assert!(
        deleted.contains(left_out) && deleted.contains(expected) && deleted.ends_with("--- exit 77\n"),
        "{deleted}"
    );
    let left = run(&place, &server, "keys --sort -u chief --password-file password");
    assert_eq!(left, "--- stdout\nhidden\nshared\n--- exit 0\n");
    assert!(server.log_line_with("may not").contains("shared"));
    let url = format!("mqtt://127.0.0.1:{}", server.port(0));
    place.run(&["get", "--key-hex", "ff0a", "-i", "press", "-b", &url]);
    let line = server.log_line_with("may not");
    assert_eq!(line, "press may not read the key \u{FFFD}\\n: no rule allows it");
}

#[test]
fn permissions_follow_from_the_attributes_of_a_certificate() {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    for (name, names) in [("server", ["127.0.0.1"]), ("seven", ["press-7"]), ("eight", ["press-8"])] {
        ca.issue(&place, name, &names);
    }
    place.write(
        "rules",
        r##"
rules:
- principals: {attributes: [{CN: rcgen self signed cert, DNS: press-7}, {DNS: press-8, O: Werk}]}
  brokerResources:
  - method: Connect
  - {method: Publish, topics: ["#"]}
  - {method: Subscribe, topics: ["#"]}
  stateStoreResources: [{method: ReadWrite, keyType: Pattern, keys: ["{principal.attributes.DNS}/*"]}]
"##,
    );
    let tls = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--client-ca", "ca.pem"];
    let listen = ["--authz", "rules", "--listen", "mqtts://127.0.0.1:0"];
    let server = LoggedServer::start(&place, &[&tls[..], &listen].concat());
    let url = format!("mqtts://127.0.0.1:{}", server.port(0));
    let set = |key: &str, name: &str| {
        let files = ["-T", "ca.pem", "-C", &format!("{name}.pem"), "-K", &format!("{name}.key")];
        place.run(&[&["set", key, "v", "-q", "-b", &url], &files[..]].concat())
    };
    assert_eq!(set("press-7/k", "seven"), "--- exit 0\n");
    let shown = set("press-8/k", "seven");
    assert!(
        shown.contains("not authorized: the certificate of seven.pem may not write the key press-8/k")
            && shown.ends_with("--- exit 77\n"),
        "{shown}"
    );
    let shown = set("press-8/k", "eight");
    assert!(
        shown.contains("no rule permits this client to connect") && shown.ends_with("--- exit 77\n"),
        "{shown}"
    );
}

#[test]
fn a_denied_connect_or_publish_is_reported_to_the_client_and_in_the_log() {
    let place = place();
    let server = serve(&place);
    let shown = run(&place, &server, "get k -i unlisted");
    assert!(
        shown.contains("rejected the connection: not authorized (0x87)") && shown.ends_with("--- exit 77\n")
    );
    let hint = "hint: the rules of the broker need one with the method Connect for client id unlisted\n";
    assert!(shown.contains(hint), "{shown}");
    assert_eq!(
        server.log_line_with(" rejected: "),
        "unlisted from PORT rejected: not authorized (0x87): no rule permits this client to connect"
    );
    let shown = run(&place, &server, "get k -i guest");
    assert!(shown.contains("not authorized (0x87)") && shown.ends_with("--- exit 77\n"), "{shown}");
    let line = server.log_line_with("may not");
    assert!(line.starts_with("guest may not ") && line.ends_with(": no rule allows it"), "{line}");
}

#[test]
fn a_user_with_keys_of_its_own_only_can_check_the_connection() {
    let place = place();
    place.run_with_input(&["serve", "user", "add", "users", "ann", "-q"], b"p\n");
    let rules =
        RULES.replace("usernames: [chief]", "usernames: [ann]").replace("keys: [\"*\"]", "keys: [\"ann/*\"]");
    place.write("rules", rules.replace("TAIL", TAIL));
    let server = serve(&place);
    let ann = "-u ann --password-file password";
    assert_eq!(run(&place, &server, &format!("set ann/k v {ann}")), "--- exit 0\n");
    let shown = run(&place, &server, &format!("get other {ann}"));
    assert!(shown.contains("error: not authorized: user ann may not read the key other\n"), "{shown}");
    let shown = run(&place, &server, &format!("ping {ann}"));
    assert!(shown.starts_with("--- stdout\n") && shown.ends_with("--- exit 0\n"), "{shown}");
    for doctor in ["doctor --read-only", "doctor"] {
        let shown = run(&place, &server, &format!("{doctor} {ann}"));
        assert!(shown.contains("warn\trequest\t") && shown.contains("ok\tearly\t"), "{shown}");
        assert!(shown.ends_with("--- exit 0\n"), "{shown}");
    }
    let url = format!("mqtt://127.0.0.1:{}", server.port(0));
    let words = ["context", "add", "own", "-b", &url, "-u", "ann", "--password-file", "password"];
    assert_eq!(place.run(&words), "--- exit 0\n");
    let shown = place.run(&["context", "test", "own"]);
    assert!(shown.starts_with("--- stdout\n") && shown.ends_with("--- exit 0\n"), "{shown}");
}

#[test]
fn a_user_that_no_rule_lets_connect_is_not_asked_to_authenticate() {
    let place = place();
    place.run_with_input(&["serve", "user", "add", "users", "ann", "-q"], b"p\n");
    let server = serve(&place);
    let shown = run(&place, &server, "get k -u ann --password-file password");
    assert!(
        shown.ends_with(
            "\nhint: the rules of the broker need one with the method Connect for user ann\n--- exit 77\n"
        ),
        "{shown}"
    );
}

#[test]
fn subscriptions_and_messages_need_a_rule_except_for_the_clients_own_notifications() {
    let place = place();
    let server = serve(&place);
    let mut press = raw(&server, "press");
    for (filter, answer) in [
        ("talk/x", 1),
        ("talk/+", 1),
        ("talk/#", 0x87),
        ("#", 0x87),
        ("$share/g/talk/+", 1),
        ("$share/g/#", 0x87),
        ("clients/press/x", 1),
        ("clients/press-2/x", 0x87),
    ] {
        assert_eq!(suback(&mut press, filter), answer, "{filter}");
    }
    for (id, answer) in [("7072657373", 1), ("press", 1), ("67756573747", 0x87), ("+", 0x87)] {
        assert_eq!(suback(&mut press, &format!("{NOTIFY}/{id}/command/notify/#")), answer, "{id}");
    }
    let mut publish = |topic: &str| {
        let publish = Publish { topic: topic.to_owned(), packet_id: 7, ..Publish::default() };
        press.send(&publish.encode());
        let puback = press.receive().unwrap();
        assert_eq!(puback.name(), "PUBACK");
        puback.body.get(2).copied().unwrap_or(0)
    };
    assert_eq!(publish("talk"), 0x10, "no subscriber, but publishing is allowed");
    assert_eq!(publish("talk/loud"), 0x87);
    // QoS 2: the PUBREC has the reason, which frees the packet identifier.
    for _ in 0..2 {
        press.send(&wire::packet(0x34, [wire::text("talk/loud"), vec![0, 9, 0]].concat()));
        let Packet { first, body } = press.receive().unwrap();
        assert_eq!((first, &body[..3]), (0x50, &[0, 9, 0x87][..]));
    }
}

#[test]
fn the_store_publishes_no_answer_to_a_topic_that_the_client_may_not_publish_to() {
    let place = place();
    let server = serve(&place);
    let mut press = raw(&server, "press");
    let mut send_request = |response_topic: &str| {
        let request = Publish {
            topic: TAIL.to_owned(),
            packet_id: 3,
            response_topic: response_topic.to_owned(),
            correlation: b"c".to_vec(),
            payload: b"*2\r\n$3\r\nGET\r\n$6\r\nshared\r\n".to_vec(),
            ..Publish::default()
        };
        press.send(&request.encode());
        let puback = press.receive().unwrap();
        puback.body.get(2).copied().unwrap_or(0)
    };
    assert_eq!(send_request("clients/guest/answers"), 0x87);
    assert_eq!(send_request("clients/press/answers"), 0);
    let line = server.log_line_with("may not");
    assert_eq!(line, "press may not have its answer published to clients/guest/answers: no rule allows it");
}

#[test]
fn a_watch_of_a_prefix_reports_the_keys_that_the_rules_in_force_allow() {
    let place = place();
    let server = serve(&place);
    let url = format!("mqtt://127.0.0.1:{}", server.port(0));
    let set = |key: &str, value: &str| {
        let words = format!("set {key} {value} -u chief --password-file password -q");
        assert_eq!(run(&place, &server, &words), "--- exit 0\n");
    };
    set("press/a", "1");
    set("press-2/a", "1");
    let words = ["watch", "--prefix", "press", "-i", "press", "-c", "2", "-b", &url];
    let watch = StreamedProcess::start(&mut place.command(&words));
    assert!(watch.line().ends_with("CURRENT\tpress/a\t1"));
    set("press-2/b", "2");
    set("press/b", "2");
    assert!(watch.line().ends_with("SET\tpress/b\t2"));
    place.write("rules", RULES.replace("TAIL", TAIL).replace("{principal.clientId}/*", "press-2/*"));
    server.signal(Signal::SIGHUP);
    server.log_line_with("rules reloaded");
    set("press/a", "3");
    set("press-2/b", "3");
    let (lines, errors, code) = watch.end();
    assert!(lines.len() == 1 && lines[0].ends_with("SET\tpress-2/b\t3"), "{lines:?}");
    assert_eq!((errors, code), (vec![], Some(0)));
}

#[test]
fn sighup_reloads_the_rules_for_connected_clients_and_keeps_the_old_ones_on_an_error() {
    let place = place();
    let server = serve(&place);
    let url = format!("mqtt://127.0.0.1:{}", server.port(0));
    let chief = "-u chief --password-file password -q";
    let set = |value: &str| run(&place, &server, &format!("set press/a {value} {chief}"));
    assert_eq!(set("1"), "--- exit 0\n");
    let watch = StreamedProcess::start(&mut place.command(&["watch", "press/a", "-i", "press", "-b", &url]));
    assert!(watch.line().ends_with("\tpress/a\t1"));
    place.write("rules", "rules:\n- principals: {}\n  brokerResource: []\n");
    server.signal(Signal::SIGHUP);
    let line = server.log_line_with("rules");
    assert_eq!(
        line,
        "rules:3: unknown name brokerResource in a rule: expected principals, brokerResources, stateStoreResources; the \
         previous rules stay in force"
    );
    assert_eq!(set("2"), "--- exit 0\n");
    assert!(watch.line().ends_with("\tpress/a\t2"));
    place.write("rules", RULES.replace("TAIL", TAIL).replace("{principal.clientId}/*", "own/*"));
    server.signal(Signal::SIGHUP);
    assert_eq!(server.log_line_with("rules"), "rules reloaded: 3");
    assert_eq!(set("3"), "--- exit 0\n");
    let shown = run(&place, &server, "set press/a 4 -i press-2");
    assert!(shown.ends_with("--- exit 77\n"), "{shown}");
    watch.signal(Signal::SIGINT);
    let (lines, _, _) = watch.end();
    assert!(!lines.iter().any(|line| line.ends_with("\t3")), "{lines:?}");
}

#[test]
fn a_client_id_with_a_separator_reaches_no_keys_of_another_client_and_is_logged_once() {
    let place = place();
    place.write(
        "rules",
        RULES
            .replace("TAIL", TAIL)
            .replace("press-2]", "press/sub]")
            .replace("talk/+", "{principal.clientId}/#"),
    );
    let server = serve(&place);
    assert_eq!(run(&place, &server, "set press/sub/k 1 -i press"), "--- exit 0\n");
    for _ in 0..2 {
        drop(raw(&server, "press/sub"));
    }
    drop(raw(&server, "guest"));
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line: &String| !line.starts_with("guest disconnected")) {
        lines.push(server.log_line());
    }
    let line = "the rule for clients/{principal.clientId}/# does not apply to press/sub: the value of {principal.clientId} has \
                a separator or is reserved";
    assert_eq!(lines.iter().filter(|logged| logged.contains("does not apply")).collect::<Vec<_>>(), [line]);
    let mut client = raw(&server, "press/sub");
    client.send(&wire::subscribe(1, "press/sub/x"));
    assert_eq!(client.receive().unwrap().body.last(), Some(&0x87));
}

#[test]
fn rules_for_users_without_users_are_reported_at_the_start() {
    let place = place();
    let warning = |options: &[&str]| {
        let options = [&["serve", "-v", "--authz", "rules", "--listen", "127.0.0.1:0"], options].concat();
        let server = StreamedProcess::start(&mut place.command(&options));
        let lines = std::iter::from_fn(|| Some(server.log_line()));
        lines.take_while(|line| !line.starts_with("listening on ")).find(|line| line.contains("name users"))
    };
    let missing = "warning: the rules of --authz name users, but no client has a user: --users and --sat-tokens are missing";
    assert_eq!(warning(&[]).as_deref(), Some(missing));
    assert_eq!(warning(&["--users", "users"]), None);
    place.write("rules", "rules:\n- principals: {clientIds: [a]}\n  brokerResources: [{method: Connect}]\n");
    assert_eq!(warning(&[]), None);
}

#[test]
fn invalid_or_unreadable_rules_are_rejected_at_the_start() {
    let place = place();
    place.write("unclosed", "rules:\n- principals: {clientIds: [a]}\n  stateStoreResources:\n  - {method: Read, keyType: Pattern, keys: [\"a[\"]}\n");
    place.write("look", "rules:\n- principals: {clientIds: [a]}\n  stateStoreResources:\n  - {method: Look, keyType: Binary, keys: [\"a\"]}\n");
    place.write("base64", "rules:\n- principals: {clientIds: [a]}\n  stateStoreResources:\n  - {method: Read, keyType: Binary, keys: [\"a\"]}\n");
    place.write("empty", "rules:\n- principals: {}\n  brokerResources: [{method: Connect}]\n");
    for (file, words, code) in [
        ("empty", "empty:2: principals is empty: expected one of clientIds, usernames, attributes", 78),
        ("unclosed", "unclosed:4: a[ is not a valid pattern: unclosed [", 78),
        ("look", "look:4: unknown method Look: expected Read, Write, ReadWrite", 78),
        ("base64", "base64:4: a is not base64: ", 78),
        ("gone", "cannot read gone: No such file or directory", 74),
    ] {
        let shown = place.run(&["serve", "--listen", "127.0.0.1:0", "--authz", file]);
        assert!(shown.contains(&format!("error: {words}")), "{shown}");
        assert!(shown.ends_with(&format!("--- exit {code}\n")), "{shown}");
    }
}
