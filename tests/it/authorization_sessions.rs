//! Sessions where there are rules and users: what is left of one when the rules change, and whose it is.

use nix::sys::signal::Signal;

use super::common::wire::{self, ConnectOptions, PINGREQ, Publish};
use super::common::{LoggedServer, Place, RawClient};

/// `keeper` and `other` hear `talk/+`, on which `chief` publishes; `keeper` may leave a will on `will`.
const RULES: &str = r##"
rules:
- principals: {clientIds: [keeper, other]}
  brokerResources:
  - method: Connect
  - {method: Publish, topics: [will]}
  - {method: Subscribe, topics: ["talk/+", ping]}
- principals: {clientIds: [chief]}
  brokerResources:
  - method: Connect
  - {method: Publish, topics: ["#"]}
  - {method: Subscribe, topics: ["#"]}
"##;

fn place() -> Place {
    let place = Place::new();
    place.write("rules", RULES);
    for (name, password) in [("ann", "p1"), ("bob", "p2")] {
        let add = ["serve", "user", "add", "users", name, "-q"];
        assert_eq!(place.run_with_input(&add, password.as_bytes()), "--- exit 0\n");
    }
    place
}

fn with_rules(place: &Place) -> LoggedServer {
    LoggedServer::start(place, &["--authz", "rules", "--listen", "127.0.0.1:0"])
}

/// Replaces the rules and waits until they are in force.
fn reload(place: &Place, server: &LoggedServer, rules: &str) {
    place.write("rules", rules);
    server.signal(Signal::SIGHUP);
    assert_eq!(server.log_line_with("the rules were read again"), "the rules were read again: 2");
}

/// Says hello; the client, the reason code, and whether its session goes on.
fn come(server: &LoggedServer, hello: ConnectOptions<'_>) -> (RawClient, u8, bool) {
    let mut client = RawClient::connect(server.port(0));
    client.send(&hello.encode());
    let connack = client.receive().unwrap();
    assert_eq!(connack.name(), "CONNACK");
    (client, connack.body[1], connack.body[0] == 1)
}

fn lasting(client_id: &str) -> ConnectOptions<'_> {
    ConnectOptions { client_id, keeps_session: true, ..ConnectOptions::default() }
}

fn let_in(server: &LoggedServer, hello: ConnectOptions<'_>) -> RawClient {
    let (client, reason, _) = come(server, hello);
    assert_eq!(reason, 0);
    client
}

fn subscribe(client: &mut RawClient, filter: &str) {
    client.send(&wire::subscribe(1, filter));
    assert_eq!(client.receive().unwrap().body.last(), Some(&1), "{filter}");
}

/// Publishes and waits until it has gone where it goes; says whether anybody got it.
fn say(client: &mut RawClient, topic: &str) -> bool {
    let publish = Publish { topic: topic.to_owned(), packet_id: 7, ..Publish::default() };
    client.send(&publish.encode());
    let puback = client.receive().unwrap();
    assert_eq!(puback.name(), "PUBACK");
    puback.body.get(2).copied().unwrap_or(0) == 0
}

/// The next message's topic, acknowledged.
fn heard(client: &mut RawClient) -> String {
    let publish = Publish::decode(&client.receive().unwrap());
    client.send(&wire::puback(publish.packet_id, 0));
    publish.topic
}

/// Goes without ending the session, and waits until the server knows.
fn leave(client: RawClient, server: &LoggedServer, client_id: &str) {
    drop(client);
    server.log_line_with(&format!("{client_id} is gone"));
}

#[test]
fn a_subscription_brings_nothing_while_no_rule_allows_it_and_nobody_is_disconnected() {
    let place = place();
    let server = with_rules(&place);
    let mut chief = let_in(&server, lasting("chief"));
    let mut keeper = let_in(&server, lasting("keeper"));
    subscribe(&mut keeper, "talk/+");
    subscribe(&mut keeper, "ping");
    reload(&place, &server, &RULES.replace("\"talk/+\", ", ""));
    assert!(!say(&mut chief, "talk/1"), "nobody gets it");
    assert!(say(&mut chief, "ping"));
    assert_eq!(heard(&mut keeper), "ping");
    reload(&place, &server, RULES);
    assert!(say(&mut chief, "talk/2"));
    assert_eq!(heard(&mut keeper), "talk/2", "not what was said meanwhile");
    keeper.send(&PINGREQ);
    assert_eq!(keeper.receive().unwrap().name(), "PINGRESP");
}

#[test]
fn the_operator_is_told_of_a_subscription_that_is_no_longer_allowed() {
    let place = place();
    let server = with_rules(&place);
    let mut keeper = let_in(&server, lasting("keeper"));
    subscribe(&mut keeper, "talk/+");
    place.write("rules", RULES.replace("\"talk/+\", ", ""));
    server.signal(Signal::SIGHUP);
    let told = server.log_line_with("may not");
    assert_eq!(told, "keeper may not keep its subscription to talk/+: no rule allows it");
}

#[test]
fn whoever_is_away_when_the_rules_change_comes_back_to_what_is_allowed() {
    let place = place();
    let server = with_rules(&place);
    let mut chief = let_in(&server, lasting("chief"));
    let mut keeper = let_in(&server, lasting("keeper"));
    subscribe(&mut keeper, "talk/+");
    subscribe(&mut keeper, "ping");
    leave(keeper, &server, "keeper");
    assert!(say(&mut chief, "talk/before") && say(&mut chief, "ping"));
    reload(&place, &server, &RULES.replace("\"talk/+\", ", ""));
    assert!(!say(&mut chief, "talk/after"));
    let (mut keeper, _, session_present) = come(&server, lasting("keeper"));
    assert!(session_present);
    assert_eq!(heard(&mut keeper), "ping", "nothing of what waited and is no longer allowed");
    assert!(!say(&mut chief, "talk/again"));
}

#[test]
fn a_group_goes_on_without_the_member_that_may_not_share_any_more() {
    let place = place();
    let server = with_rules(&place);
    let mut chief = let_in(&server, lasting("chief"));
    let mut keeper = let_in(&server, lasting("keeper"));
    subscribe(&mut keeper, "$share/g/talk/+");
    leave(keeper, &server, "keeper");
    assert!(say(&mut chief, "talk/waits"));
    let mut helper = let_in(&server, lasting("other"));
    subscribe(&mut helper, "$share/g/talk/+");
    reload(&place, &server, &RULES.replace("[keeper, other]", "[other]"));
    assert_eq!(heard(&mut helper), "talk/waits");
    for topic in ["talk/1", "talk/2"] {
        assert!(say(&mut chief, topic));
        assert_eq!(heard(&mut helper), topic);
    }
}

#[test]
fn a_will_is_published_only_where_the_client_still_may() {
    let place = place();
    let server = with_rules(&place);
    let mut chief = let_in(&server, lasting("chief"));
    subscribe(&mut chief, "#");
    let mut hello = wire::text("MQTT");
    // Clean start and a will of QoS 1.
    hello.extend([5, 0x0E, 0, 0, 0]);
    hello.extend([wire::text("keeper"), vec![0], wire::text("will"), wire::text("gone")].concat());
    let hello = wire::packet(0x10, hello);
    for (rules, is_published) in [(RULES.to_owned(), true), (RULES.replace("[will]", "[other]"), false)] {
        let mut keeper = RawClient::connect(server.port(0));
        keeper.send(&hello);
        assert_eq!(keeper.receive().unwrap().body[1], 0);
        reload(&place, &server, &rules);
        leave(keeper, &server, "keeper");
        // Its own message comes back behind the will, if there is one.
        chief.send(&Publish { topic: "end".to_owned(), packet_id: 7, ..Publish::default() }.encode());
        let mut topics = Vec::new();
        while topics.last().is_none_or(|topic| topic != "end") {
            let packet = chief.receive().unwrap();
            if packet.name() == "PUBLISH" {
                let publish = Publish::decode(&packet);
                chief.send(&wire::puback(publish.packet_id, 0));
                topics.push(publish.topic);
            }
        }
        assert_eq!(topics.contains(&"will".to_owned()), is_published, "{topics:?}");
    }
    let mut keeper = RawClient::connect(server.port(0));
    keeper.send(&hello);
    assert_eq!(keeper.receive().unwrap().body[1], 0x87, "by the rules that are in force now");
    let told = server.log_line_with("not let in");
    assert!(told.ends_with("no rule lets this client publish to the topic of its will"), "{told}");
}

const OPEN_TO_ALL: [&str; 4] = ["--users", "users", "--listen", "mqtt://127.0.0.1:0?anonymous=yes"];

fn ann() -> ConnectOptions<'static> {
    ConnectOptions { user: Some("ann"), password: Some(b"p1"), ..lasting("line") }
}

fn bob() -> ConnectOptions<'static> {
    ConnectOptions { user: Some("bob"), password: Some(b"p2"), ..lasting("line") }
}

#[test]
fn nobody_takes_over_the_connection_of_somebody_else() {
    let place = place();
    let server = LoggedServer::start(&place, &OPEN_TO_ALL);
    let mut first = let_in(&server, ann());
    for hello in [bob(), lasting("line"), ConnectOptions { keeps_session: false, ..bob() }] {
        let (mut other, reason, _) = come(&server, hello);
        assert_eq!((reason, other.receive()), (0x87, None));
        let told = server.log_line_with("line from PORT is not let in");
        assert!(told.contains("somebody else is connected with this client id"), "{told}");
    }
    first.send(&PINGREQ);
    assert_eq!(first.receive().unwrap().name(), "PINGRESP");
    let (mut second, reason, session_present) = come(&server, ann());
    assert_eq!((reason, session_present), (0, true), "the same user may");
    assert_eq!(first.receive().unwrap().body[0], 0x8E);
    second.send(&PINGREQ);
    assert_eq!(second.receive().unwrap().name(), "PINGRESP");
}

#[test]
fn a_session_is_for_whoever_began_it_and_somebody_else_gets_none_of_it() {
    let place = place();
    let server = LoggedServer::start(&place, &OPEN_TO_ALL);
    let mut chief = let_in(&server, lasting("chief"));
    let mut first = let_in(&server, ann());
    subscribe(&mut first, "talk");
    leave(first, &server, "line");
    assert!(say(&mut chief, "talk"));
    let (mut other, reason, session_present) = come(&server, bob());
    assert_eq!((reason, session_present), (0, false));
    other.send(&PINGREQ);
    assert_eq!(other.receive().unwrap().name(), "PINGRESP", "and not what waited");
    assert!(!say(&mut chief, "talk"), "nobody subscribes any more");
}

#[test]
fn whoever_says_who_he_is_does_not_wait_for_a_nobody_with_his_client_id() {
    let place = place();
    let server = LoggedServer::start(&place, &OPEN_TO_ALL);
    let mut nobody = let_in(&server, lasting("line"));
    let (_, reason, session_present) = come(&server, ann());
    assert_eq!((reason, session_present), (0, false));
    assert_eq!(nobody.receive().unwrap().body[0], 0x8E);
}
