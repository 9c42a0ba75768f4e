//! Sessions with rules and users: the effect of changed rules, and the identity that owns a session.

use nix::sys::signal::Signal;

use super::common::wire::{self, ConnectOptions, PINGREQ, Publish};
use super::common::{LoggedServer, Place, RawClient};

/// `keeper` and `other` may subscribe to `talk/+`, where `chief` publishes. `keeper` may have a will on `will`.
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
    assert_eq!(server.log_line_with("rules reloaded"), "rules reloaded: 2");
}

/// Connects; returns the client, the reason code and whether a session was present.
fn connect_with(server: &LoggedServer, connect: ConnectOptions<'_>) -> (RawClient, u8, bool) {
    let mut client = RawClient::connect(server.port(0));
    client.send(&connect.encode());
    let connack = client.receive().unwrap();
    assert_eq!(connack.name(), "CONNACK");
    (client, connack.body[1], connack.body[0] == 1)
}

fn persistent(client_id: &str) -> ConnectOptions<'_> {
    ConnectOptions { client_id, keeps_session: true, ..ConnectOptions::default() }
}

fn accepted(server: &LoggedServer, connect: ConnectOptions<'_>) -> RawClient {
    let (client, reason, _) = connect_with(server, connect);
    assert_eq!(reason, 0);
    client
}

fn subscribe(client: &mut RawClient, filter: &str) {
    client.send(&wire::subscribe(1, filter));
    assert_eq!(client.receive().unwrap().body.last(), Some(&1), "{filter}");
}

/// Publishes, waits for the PUBACK, and returns whether there was a matching subscriber.
fn publish(client: &mut RawClient, topic: &str) -> bool {
    let publish = Publish { topic: topic.to_owned(), packet_id: 7, ..Publish::default() };
    client.send(&publish.encode());
    let puback = client.receive().unwrap();
    assert_eq!(puback.name(), "PUBACK");
    puback.body.get(2).copied().unwrap_or(0) == 0
}

/// Receives a message, acknowledges it and returns its topic.
fn receive_topic(client: &mut RawClient) -> String {
    let publish = Publish::decode(&client.receive().unwrap());
    client.send(&wire::puback(publish.packet_id, 0));
    publish.topic
}

/// Returns two clients, of which the second one has subscribed to all that the first one publishes.
fn chief_and_keeper(server: &LoggedServer) -> (RawClient, RawClient) {
    let chief = accepted(server, persistent("chief"));
    let mut keeper = accepted(server, persistent("keeper"));
    subscribe(&mut keeper, "talk/+");
    subscribe(&mut keeper, "ping");
    (chief, keeper)
}

/// Closes the network connection, which leaves the session, and waits until the server has logged it.
fn drop_connection(client: RawClient, server: &LoggedServer, client_id: &str) {
    drop(client);
    server.log_line_with(&format!("{client_id} disconnected"));
}

#[test]
fn a_subscription_that_no_rule_allows_any_more_delivers_nothing_and_disconnects_no_client() {
    let place = place();
    let server = with_rules(&place);
    let (mut chief, mut keeper) = chief_and_keeper(&server);
    reload(&place, &server, &RULES.replace("\"talk/+\", ", ""));
    assert!(!publish(&mut chief, "talk/1"), "no subscriber");
    assert!(publish(&mut chief, "ping"));
    assert_eq!(receive_topic(&mut keeper), "ping");
    reload(&place, &server, RULES);
    assert!(publish(&mut chief, "talk/2"));
    assert_eq!(receive_topic(&mut keeper), "talk/2", "not the message published in between");
    keeper.send(&PINGREQ);
    assert_eq!(keeper.receive().unwrap().name(), "PINGRESP");
}

#[test]
fn a_subscription_that_is_no_longer_allowed_is_logged() {
    let place = place();
    let server = with_rules(&place);
    let mut keeper = accepted(&server, persistent("keeper"));
    subscribe(&mut keeper, "talk/+");
    place.write("rules", RULES.replace("\"talk/+\", ", ""));
    server.signal(Signal::SIGHUP);
    let line = server.log_line_with("may not");
    assert_eq!(line, "keeper may not keep its subscription to talk/+: no rule allows it");
}

#[test]
fn a_session_that_resumes_after_a_change_of_rules_gets_only_what_they_allow() {
    let place = place();
    let server = with_rules(&place);
    let (mut chief, keeper) = chief_and_keeper(&server);
    drop_connection(keeper, &server, "keeper");
    assert!(publish(&mut chief, "talk/before") && publish(&mut chief, "ping"));
    reload(&place, &server, &RULES.replace("\"talk/+\", ", ""));
    assert!(!publish(&mut chief, "talk/after"));
    let (mut keeper, _, session_present) = connect_with(&server, persistent("keeper"));
    assert!(session_present);
    assert_eq!(receive_topic(&mut keeper), "ping", "not the queued message that is no longer allowed");
    assert!(!publish(&mut chief, "talk/again"));
}

#[test]
fn a_message_in_flight_is_not_sent_again_after_its_permission_was_revoked() {
    let place = place();
    let server = with_rules(&place);
    let (mut chief, mut keeper) = chief_and_keeper(&server);
    assert!(publish(&mut chief, "talk/1") && publish(&mut chief, "ping"));
    for topic in ["talk/1", "ping"] {
        assert_eq!(Publish::decode(&keeper.receive().unwrap()).topic, topic, "not acknowledged");
    }
    reload(&place, &server, &RULES.replace("\"talk/+\", ", ""));
    drop_connection(keeper, &server, "keeper");
    let (mut keeper, _, session_present) = connect_with(&server, persistent("keeper"));
    assert!(session_present);
    assert_eq!(receive_topic(&mut keeper), "ping", "not talk/1");
}

#[test]
fn a_share_continues_without_a_member_that_lost_its_permission() {
    let place = place();
    let server = with_rules(&place);
    let mut chief = accepted(&server, persistent("chief"));
    let mut keeper = accepted(&server, persistent("keeper"));
    subscribe(&mut keeper, "$share/g/talk/+");
    drop_connection(keeper, &server, "keeper");
    assert!(publish(&mut chief, "talk/waits"));
    let mut member = accepted(&server, persistent("other"));
    subscribe(&mut member, "$share/g/talk/+");
    reload(&place, &server, &RULES.replace("[keeper, other]", "[other]"));
    assert_eq!(receive_topic(&mut member), "talk/waits");
    for topic in ["talk/1", "talk/2"] {
        assert!(publish(&mut chief, topic));
        assert_eq!(receive_topic(&mut member), topic);
    }
}

#[test]
fn a_will_is_published_only_if_its_client_still_has_the_permission() {
    let place = place();
    let server = with_rules(&place);
    let mut chief = accepted(&server, persistent("chief"));
    subscribe(&mut chief, "#");
    let mut connect = wire::text("MQTT");
    // Clean Start and a will of QoS 1.
    connect.extend([5, 0x0E, 0, 0, 0]);
    connect.extend([wire::text("keeper"), vec![0], wire::text("will"), wire::text("gone")].concat());
    let connect = wire::packet(0x10, connect);
    for (rules, is_published) in [(RULES.to_owned(), true), (RULES.replace("[will]", "[other]"), false)] {
        let mut keeper = RawClient::connect(server.port(0));
        keeper.send(&connect);
        assert_eq!(keeper.receive().unwrap().body[1], 0);
        reload(&place, &server, &rules);
        drop_connection(keeper, &server, "keeper");
        // `chief` receives its own message after the will, if there is one.
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
    keeper.send(&connect);
    assert_eq!(keeper.receive().unwrap().body[1], 0x87, "by the new rules");
    let line = server.log_line_with(" rejected: ");
    assert!(line.ends_with("no rule permits this client to publish its Will Message"), "{line}");
}

const USERS_AND_ANONYMOUS: [&str; 4] = ["--users", "users", "--listen", "mqtt://127.0.0.1:0?anonymous=yes"];

fn ann() -> ConnectOptions<'static> {
    ConnectOptions { user: Some("ann"), password: Some(b"p1"), ..persistent("line") }
}

fn bob() -> ConnectOptions<'static> {
    ConnectOptions { user: Some("bob"), password: Some(b"p2"), ..persistent("line") }
}

#[test]
fn another_identity_cannot_take_over_a_session_that_is_connected() {
    let place = place();
    let server = LoggedServer::start(&place, &USERS_AND_ANONYMOUS);
    let mut first = accepted(&server, ann());
    for connect in [bob(), persistent("line"), ConnectOptions { keeps_session: false, ..bob() }] {
        let (mut other, reason, _) = connect_with(&server, connect);
        assert_eq!((reason, other.receive()), (0x87, None));
        let line = server.log_line_with("another user is connected with this client id");
        assert!(line.contains("line from PORT") && line.contains(" rejected: "), "{line}");
    }
    first.send(&PINGREQ);
    assert_eq!(first.receive().unwrap().name(), "PINGRESP");
    let (mut second, reason, session_present) = connect_with(&server, ann());
    assert_eq!((reason, session_present), (0, true), "the same user takes over");
    assert_eq!(first.receive().unwrap().body[0], 0x8E);
    second.send(&PINGREQ);
    assert_eq!(second.receive().unwrap().name(), "PINGRESP");
}

#[test]
fn another_identity_with_the_same_client_id_gets_a_new_session() {
    let place = place();
    let server = LoggedServer::start(&place, &USERS_AND_ANONYMOUS);
    let mut chief = accepted(&server, persistent("chief"));
    let mut first = accepted(&server, ann());
    subscribe(&mut first, "talk");
    drop_connection(first, &server, "line");
    assert!(publish(&mut chief, "talk"));
    let (mut other, reason, session_present) = connect_with(&server, bob());
    assert_eq!((reason, session_present), (0, false));
    other.send(&PINGREQ);
    assert_eq!(other.receive().unwrap().name(), "PINGRESP", "not the queued message");
    assert!(!publish(&mut chief, "talk"), "the subscription is gone");
}

#[test]
fn an_authenticated_client_takes_over_from_an_anonymous_one() {
    let place = place();
    let server = LoggedServer::start(&place, &USERS_AND_ANONYMOUS);
    let mut anonymous = accepted(&server, persistent("line"));
    let (_, reason, session_present) = connect_with(&server, ann());
    assert_eq!((reason, session_present), (0, false));
    assert_eq!(anonymous.receive().unwrap().body[0], 0x8E);
}
