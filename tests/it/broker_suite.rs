//! The broker over real sockets, in the steps of the Paho project's interoperability suite for MQTT 5.

use std::collections::VecDeque;

use super::common::wire::{Packet, length, packet, text};
use super::common::{Place, Raw, Server};

const CLEAN: u8 = 0x02;
const RETAIN: u8 = 0x01;
const DUP: u8 = 0x08;

const NO_LOCAL: u8 = 0x04;
const RETAIN_AS_PUBLISHED: u8 = 0x08;
const RETAINED_IF_NEW: u8 = 0x10;
const RETAINED_NEVER: u8 = 0x20;

fn serve() -> (Place, Server) {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    (place, server)
}

struct Client {
    raw: Raw,
    next_id: u16,
    /// What came before what was waited for.
    heard: VecDeque<Packet>,
}

/// A PUBLISH that was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Heard {
    flags: u8,
    topic: String,
    id: u16,
    properties: Vec<u8>,
    payload: Vec<u8>,
}

impl Heard {
    fn qos(&self) -> u8 {
        self.flags >> 1 & 3
    }
}

impl Client {
    /// A client with these properties of its CONNECT, and a will's fields behind the client id; and its CONNACK's body.
    fn begin(server: &Server, id: &str, flags: u8, properties: &[u8], will: &[u8]) -> (Self, Vec<u8>) {
        let mut raw = Raw::connect(server.port());
        let head = [&text("MQTT")[..], &[5, flags, 0, 0], &length(properties.len()), properties].concat();
        raw.say(&packet(0x10, [&head[..], &text(id), will].concat()));
        let connack = raw.hear().unwrap();
        assert_eq!((connack.name(), connack.body[1]), ("CONNACK", 0));
        (Self { raw, next_id: 1, heard: VecDeque::new() }, connack.body)
    }

    fn connect(server: &Server, id: &str) -> Self {
        Self::begin(server, id, CLEAN, b"", b"").0
    }

    /// With a session that lasts, and whether there was one.
    fn lasting(server: &Server, id: &str, properties: &[u8]) -> (Self, bool) {
        let properties = [b"\x11\0\0\x0e\x10", properties].concat();
        let (client, connack) = Self::begin(server, id, 0, &properties, b"");
        (client, connack[0] == 1)
    }

    fn hear(&mut self) -> Packet {
        self.heard.pop_front().unwrap_or_else(|| self.raw.hear().unwrap())
    }

    /// The PUBREL of a message, whatever comes before it.
    fn hear_pubrel(&mut self, id: u16) {
        loop {
            let packet = self.raw.hear().unwrap();
            if packet.name() == "PUBREL" {
                return assert_eq!(packet.packet_id(), id);
            }
            self.heard.push_back(packet);
        }
    }

    fn hear_publish(&mut self) -> Heard {
        let packet = self.hear();
        assert_eq!(packet.name(), "PUBLISH", "{packet:?}");
        let (flags, body) = (packet.first & 0x0F, &packet.body[..]);
        let field = usize::from(u16::from_be_bytes([body[0], body[1]]));
        let (topic, mut rest) = (String::from_utf8(body[2..2 + field].to_vec()).unwrap(), &body[2 + field..]);
        let mut id = 0;
        if flags & 6 != 0 {
            id = u16::from_be_bytes([rest[0], rest[1]]);
            rest = &rest[2..];
        }
        let (properties, payload) = rest[1..].split_at(usize::from(rest[0]));
        Heard { flags, topic, id, properties: properties.to_vec(), payload: payload.to_vec() }
    }

    /// The payloads of the next messages, each acknowledged.
    fn hear_payloads(&mut self, count: usize) -> Vec<String> {
        let mut payloads = Vec::new();
        for _ in 0..count {
            let heard = self.hear_publish();
            self.acknowledge(&heard);
            payloads.push(String::from_utf8(heard.payload).unwrap());
        }
        payloads
    }

    fn acknowledge(&mut self, heard: &Heard) {
        let id = heard.id.to_be_bytes();
        match heard.qos() {
            0 => {}
            1 => self.raw.say(&packet(0x40, id.to_vec())),
            _ => {
                self.raw.say(&packet(0x50, id.to_vec()));
                self.hear_pubrel(heard.id);
                self.raw.say(&packet(0x70, id.to_vec()));
            }
        }
    }

    /// Nothing is on its way: the answer to a ping is the next packet.
    fn hear_nothing(&mut self) {
        self.raw.say(&[0xC0, 0]);
        assert_eq!(self.hear().name(), "PINGRESP");
    }

    fn id(&mut self) -> [u8; 2] {
        self.next_id += 1;
        self.next_id.to_be_bytes()
    }

    fn say_publish(&mut self, flags: u8, topic: &str, properties: &[u8], payload: &[u8]) {
        let mut body = text(topic);
        if flags & 6 != 0 {
            body.extend(self.id());
        }
        body.extend(length(properties.len()));
        body.extend([properties, payload].concat());
        self.raw.say(&packet(0x30 | flags, body));
    }

    /// Publishes and waits until it is done.
    fn publish(&mut self, flags: u8, topic: &str, payload: &str) {
        self.say_publish(flags, topic, b"", payload.as_bytes());
        match flags >> 1 & 3 {
            0 => self.hear_nothing(),
            1 => assert_eq!(self.hear().name(), "PUBACK"),
            _ => {
                let pubrec = self.hear();
                assert_eq!(pubrec.name(), "PUBREC");
                self.raw.say(&packet(0x62, pubrec.body[..2].to_vec()));
                assert_eq!(self.hear().name(), "PUBCOMP");
            }
        }
    }

    /// The reason for a filter, with these options; an identifier of 0 is none.
    fn subscribe_with(&mut self, filter: &str, options: u8, identifier: u8) -> u8 {
        let id = self.id();
        let properties: &[u8] = if identifier == 0 { b"" } else { &[0x0B, identifier] };
        let body = [&id[..], &length(properties.len()), properties, &text(filter), &[options]].concat();
        self.raw.say(&packet(0x82, body));
        let suback = self.hear();
        assert_eq!((suback.name(), &suback.body[..3]), ("SUBACK", &[id[0], id[1], 0][..]));
        suback.body[3]
    }

    fn subscribe(&mut self, filter: &str, options: u8) {
        assert_eq!(self.subscribe_with(filter, options, 0), options & 3);
    }

    fn unsubscribe(&mut self, filter: &str) -> u8 {
        let id = self.id();
        self.raw.say(&packet(0xA2, [&id[..], &[0], &text(filter)].concat()));
        let unsuback = self.hear();
        assert_eq!((unsuback.name(), &unsuback.body[..3]), ("UNSUBACK", &[id[0], id[1], 0][..]));
        unsuback.body[3]
    }

    /// Says goodbye with these properties, and waits until the broker has closed.
    fn leave(mut self, properties: &[u8]) {
        self.raw.say(&packet(0xE0, [&[0][..], &length(properties.len()), properties].concat()));
        assert_eq!(self.raw.hear(), None);
    }

    /// The reason why the broker disconnects.
    fn disconnected(mut self) -> u8 {
        let packet = self.hear();
        assert_eq!((packet.name(), self.raw.hear()), ("DISCONNECT", None));
        packet.body[0]
    }
}

#[test]
fn messages_of_each_qos_arrive() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    client.subscribe("t/#", 2);
    for qos in 0..3 {
        client.say_publish(qos << 1, "t/a", b"", &[b'0' + qos]);
        if qos > 0 {
            let answer = client.hear();
            assert_eq!(answer.name(), if qos == 1 { "PUBACK" } else { "PUBREC" });
        }
        let heard = client.hear_publish();
        assert_eq!((heard.qos(), &heard.payload[..]), (qos, &[b'0' + qos][..]));
        client.acknowledge(&heard);
    }
    client.leave(b"");
}

#[test]
fn retained_messages_wait_for_whoever_subscribes() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    for qos in 0..3 {
        client.publish(RETAIN | qos << 1, &format!("t/{qos}"), &format!("qos {qos}"));
    }
    client.subscribe("t/+", 2);
    let mut heard: Vec<_> = (0..3).map(|_| client.hear_publish()).collect();
    for message in &heard {
        client.acknowledge(message);
    }
    heard.sort_by(|one, other| one.topic.cmp(&other.topic));
    let said: Vec<_> = heard.iter().map(|heard| (heard.flags, &heard.payload[..])).collect();
    assert_eq!(said, [(1, &b"qos 0"[..]), (3, b"qos 1"), (5, b"qos 2")]);
    let mut other = Client::connect(&server, "b");
    for qos in 0..3 {
        other.publish(RETAIN | qos << 1, &format!("t/{qos}"), "");
    }
    other.subscribe("t/+", 2);
    other.hear_nothing();
}

/// A will on `will` of QoS 1, with these properties: the flags of CONNECT and its fields.
fn will(properties: &[u8]) -> (u8, Vec<u8>) {
    let fields = [&length(properties.len())[..], properties, &text("will"), &text("gone")].concat();
    (CLEAN | 0x0C, fields)
}

#[test]
fn a_will_is_heard_when_a_connection_breaks() {
    let (_place, server) = serve();
    let mut watcher = Client::connect(&server, "watcher");
    watcher.subscribe("will", 2);
    let (flags, fields) = will(b"\x26\0\x01a\0\x01b");
    Client::begin(&server, "a", flags, b"", &fields).0.leave(b"");
    drop(Client::begin(&server, "b", flags, b"", &fields));
    let heard = watcher.hear_publish();
    assert_eq!(
        (heard.qos(), &heard.payload[..], &heard.properties[..]),
        (1, &b"gone"[..], &b"\x26\0\x01a\0\x01b"[..])
    );
    watcher.hear_nothing();
}

#[test]
fn a_will_waits_for_its_delay_or_the_sessions_end() {
    let (_place, server) = serve();
    let mut watcher = Client::connect(&server, "watcher");
    watcher.subscribe("will", 2);
    // A delay of an hour, and a session of a second: that ends first.
    let (flags, fields) = will(b"\x18\0\0\x0e\x10");
    drop(Client::begin(&server, "a", flags, b"\x11\0\0\0\x01", &fields));
    watcher.hear_nothing();
    assert_eq!(watcher.hear_payloads(1), ["gone"]);
    // Who comes back in time takes it with it.
    drop(Client::begin(&server, "a", flags & !CLEAN, b"\x11\0\0\x0e\x10", &fields));
    let (back, is_present) = Client::lasting(&server, "a", b"");
    assert!(is_present);
    back.leave(b"");
    watcher.hear_nothing();
}

#[test]
fn a_client_without_an_id_is_given_one() {
    let (_place, server) = serve();
    let id = |connack: &[u8]| {
        let at = connack.iter().position(|byte| *byte == 0x12).unwrap();
        let len = usize::from(u16::from_be_bytes([connack[at + 1], connack[at + 2]]));
        String::from_utf8(connack[at + 3..at + 3 + len].to_vec()).unwrap()
    };
    let (one, first) = Client::begin(&server, "", CLEAN, b"\x11\0\0\x0e\x10", b"");
    let (_two, second) = Client::begin(&server, "", 0, b"", b"");
    let first = id(&first);
    assert_ne!(first, id(&second));
    one.leave(b"");
    assert!(Client::lasting(&server, &first, b"").1, "it is a client id like any other");
}

#[test]
fn messages_wait_for_a_session_that_is_away() {
    let (_place, server) = serve();
    let (mut client, is_present) = Client::lasting(&server, "a", b"");
    assert!(!is_present);
    client.subscribe("t/#", 2);
    client.leave(b"");
    let mut other = Client::connect(&server, "b");
    for qos in 0..3 {
        other.publish(qos << 1, &format!("t/{qos}"), &format!("qos {qos}"));
    }
    let (mut client, is_present) = Client::lasting(&server, "a", b"");
    assert!(is_present);
    assert_eq!(client.hear_payloads(2), ["qos 1", "qos 2"]);
    client.hear_nothing();
}

#[test]
fn overlapping_subscriptions_bring_the_highest_qos_and_all_identifiers_once() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    assert_eq!(client.subscribe_with("t/#", 2, 1), 2);
    assert_eq!(client.subscribe_with("t/+", 1, 2), 1);
    client.publish(RETAIN, "other", "x");
    client.say_publish(4, "t/a", b"", b"x");
    assert_eq!(client.hear().name(), "PUBREC");
    let heard = client.hear_publish();
    assert_eq!(heard.qos(), 2);
    let mut identifiers: Vec<_> = heard.properties.chunks(2).map(<[u8]>::to_vec).collect();
    identifiers.sort();
    assert_eq!(identifiers, [[0x0B, 1], [0x0B, 2]]);
    client.acknowledge(&heard);
    client.hear_nothing();
}

#[test]
fn what_was_not_acknowledged_is_sent_again_after_a_reconnect() {
    let (_place, server) = serve();
    let (mut client, _) = Client::lasting(&server, "a", b"");
    client.subscribe("t", 2);
    let mut other = Client::connect(&server, "b");
    for payload in ["one", "two"] {
        other.publish(4, "t", payload);
    }
    let sent = [client.hear_publish(), client.hear_publish()];
    drop(client);
    let (mut client, _) = Client::lasting(&server, "a", b"");
    for heard in sent {
        let again = client.hear_publish();
        assert_eq!(again, Heard { flags: heard.flags | DUP, ..heard });
        client.raw.say(&packet(0x50, again.id.to_be_bytes().to_vec()));
        client.hear_pubrel(again.id);
    }
    drop(client);
    let (mut client, _) = Client::lasting(&server, "a", b"");
    for _ in 0..2 {
        let pubrel = client.hear();
        assert_eq!(pubrel.name(), "PUBREL");
        client.raw.say(&packet(0x70, pubrel.body[..2].to_vec()));
    }
    client.hear_nothing();
}

#[test]
fn topics_with_a_dollar_are_hidden_from_wildcards() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    client.subscribe("#", 2);
    client.subscribe("+/x", 2);
    client.publish(0, "$x/x", "hidden");
    client.subscribe("$x/#", 2);
    client.say_publish(0, "$x/x", b"", b"seen");
    assert_eq!(client.hear_payloads(1), ["seen"]);
    client.hear_nothing();
}

#[test]
fn a_subscription_ends_when_it_is_ended() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    client.subscribe("t/a", 2);
    client.subscribe("t/#", 2);
    assert_eq!((client.unsubscribe("t/#"), client.unsubscribe("t/#")), (0, 0x11));
    client.publish(2, "t/b", "gone");
    client.say_publish(0, "t/a", b"", b"still there");
    assert_eq!(client.hear_payloads(1), ["still there"]);
}

#[test]
fn a_session_lasts_as_long_as_was_said_last() {
    let (_place, server) = serve();
    let (client, _) = Client::lasting(&server, "a", b"");
    client.leave(b"");
    let (client, is_present) = Client::lasting(&server, "a", b"");
    assert!(is_present);
    client.leave(b"\x11\0\0\0\0");
    assert!(!Client::lasting(&server, "a", b"").1, "it was ended by the goodbye");
    drop(Client::connect(&server, "a"));
    let (client, is_present) = Client::lasting(&server, "a", b"");
    assert!(!is_present, "it was ended by a clean start");
    drop(client);
    let (client, connack) = Client::begin(&server, "a", 0, b"", b"");
    assert_eq!(connack[0], 1);
    client.leave(b"");
    assert!(!Client::lasting(&server, "a", b"").1, "without an expiry it ends with its connection");
}

#[test]
fn a_share_gives_each_message_to_one() {
    let (_place, server) = serve();
    let mut members = [Client::connect(&server, "a"), Client::connect(&server, "b")];
    for client in &mut members {
        client.subscribe("$share/group/t/#", 2);
        client.subscribe("t/0", 1);
    }
    let mut publisher = Client::connect(&server, "publisher");
    for number in 0..10 {
        publisher.publish(4, &format!("t/{number}"), &number.to_string());
    }
    let mut all = Vec::new();
    for mut client in members {
        // Its five, and once more what both have subscribed to.
        let payloads = client.hear_payloads(6);
        assert!(payloads.contains(&"0".to_owned()));
        all.extend(payloads);
        client.hear_nothing();
    }
    all.sort();
    let expected: Vec<_> = [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9].iter().map(u8::to_string).collect();
    assert_eq!(all, expected);
}

#[test]
fn aliases_are_taken_from_clients_and_given_to_them() {
    let (_place, server) = serve();
    let (mut client, connack) = Client::begin(&server, "a", CLEAN, b"\x22\0\x01", b"");
    assert!(connack.windows(3).any(|window| window == b"\x22\0\x10"), "{connack:?}");
    client.subscribe("long/#", 0);
    for (topic, alias) in [("long/topic", 2), ("", 2), ("", 2)] {
        client.say_publish(0, topic, &[0x23, 0, alias], b"x");
    }
    let heard = [client.hear_publish(), client.hear_publish(), client.hear_publish()];
    assert_eq!(heard.each_ref().map(|heard| heard.topic.as_str()), ["long/topic", "", ""]);
    assert!(heard.iter().all(|heard| heard.properties == b"\x23\0\x01"), "{heard:?}");
    client.say_publish(0, "", b"\x23\0\x05", b"x");
    assert_eq!(client.disconnected(), 0x82);
}

#[test]
fn packets_keep_to_the_maximum_of_whoever_gets_them() {
    let (_place, server) = serve();
    let (mut small, _) = Client::begin(&server, "small", CLEAN, b"\x27\0\0\0\x64", b"");
    small.subscribe("t", 2);
    let mut other = Client::connect(&server, "b");
    other.publish(2, "t", &"x".repeat(100));
    other.publish(2, "t", "fits");
    assert_eq!(small.hear_payloads(1), ["fits"]);
    // The limit of the broker is 64 MB: a header is enough to say more.
    other.raw.say(b"\x30\xff\xff\xff\x7f");
    assert_eq!(other.disconnected(), 0x95);
}

#[test]
fn nobody_gets_more_at_once_than_it_takes() {
    let (_place, server) = serve();
    let (mut client, _) = Client::begin(&server, "a", CLEAN, b"\x21\0\x02", b"");
    client.subscribe("t", 2);
    let mut other = Client::connect(&server, "b");
    for number in 0..5 {
        other.publish(4, "t", &number.to_string());
    }
    let first = [client.hear_publish(), client.hear_publish()];
    client.hear_nothing();
    for heard in &first {
        client.acknowledge(heard);
    }
    assert_eq!(client.hear_payloads(3), ["2", "3", "4"]);
    // The other way: the broker takes 1024 without their release.
    for _ in 0..1025 {
        other.say_publish(4, "t", b"", b"");
    }
    let last = loop {
        let packet = other.hear();
        if packet.name() != "PUBREC" {
            break packet;
        }
    };
    assert_eq!((last.name(), last.body[0]), ("DISCONNECT", 0x93));
}

#[test]
fn the_options_of_a_subscription_count() {
    let (_place, server) = serve();
    let mut client = Client::connect(&server, "a");
    client.subscribe("mine", 2 | NO_LOCAL);
    client.publish(2, "mine", "not heard");
    client.subscribe("plain", 2);
    client.subscribe("kept", 2 | RETAIN_AS_PUBLISHED);
    for topic in ["plain", "kept"] {
        client.say_publish(RETAIN, topic, b"", b"x");
    }
    assert_eq!([client.hear_publish().flags, client.hear_publish().flags], [0, RETAIN]);
    let mut late = Client::connect(&server, "b");
    late.subscribe("kept", 2 | RETAINED_NEVER);
    late.hear_nothing();
    late.subscribe("kept", 2 | RETAINED_IF_NEW);
    late.hear_nothing();
    late.subscribe("plain", 2 | RETAINED_IF_NEW);
    assert_eq!(late.hear_publish().topic, "plain");
    late.subscribe("kept", 2);
    assert_eq!(late.hear_publish().topic, "kept");
}

#[test]
fn requests_and_answers_keep_all_that_they_say() {
    let (_place, server) = serve();
    let mut responder = Client::connect(&server, "responder");
    responder.subscribe("request", 2);
    let mut asker = Client::connect(&server, "asker");
    asker.subscribe("answer", 2);
    // Payload format, expiry, content type, response topic, correlation, user properties twice and in their order.
    let properties =
        b"\x01\x01\x02\0\0\x0e\x10\x08\0\x06answer\x09\0\x02\0\xff\x26\0\x01b\0\x011\x26\0\x01b\0\x010\x03\0\x04text";
    asker.say_publish(0, "request", properties, b"?");
    let heard = responder.hear_publish();
    let sorted = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes.sort_unstable();
        bytes
    };
    assert_eq!(sorted(&heard.properties), sorted(properties));
    assert!(heard.properties.windows(14).any(|window| window == b"\x26\0\x01b\0\x011\x26\0\x01b\0\x010"));
    assert!(heard.properties.windows(5).any(|window| window == b"\x09\0\x02\0\xff"));
    responder.say_publish(0, "answer", b"\x09\0\x02\0\xff", b"!");
    let answer = asker.hear_publish();
    assert_eq!((&answer.properties[..], &answer.payload[..]), (&b"\x09\0\x02\0\xff"[..], &b"!"[..]));
}

#[test]
fn a_message_that_expires_before_its_reader_comes_is_gone() {
    let (_place, server) = serve();
    let (mut client, _) = Client::lasting(&server, "a", b"");
    client.subscribe("t", 1);
    client.leave(b"");
    let mut other = Client::connect(&server, "b");
    for (expiry, payload) in [(0, "old"), (100, "new")] {
        other.say_publish(2, "t", &[2, 0, 0, 0, expiry], payload.as_bytes());
        assert_eq!(other.hear().name(), "PUBACK");
    }
    let (mut client, _) = Client::lasting(&server, "a", b"");
    let heard = client.hear_publish();
    assert_eq!((&heard.payload[..], &heard.properties[..4]), (&b"new"[..], &[2, 0, 0, 0][..]));
    assert!((1..=100).contains(&heard.properties[4]));
    client.acknowledge(&heard);
    client.hear_nothing();
}

#[test]
fn clients_of_mqtt_3_1_1_are_served_beside_the_others() {
    let (_place, server) = serve();
    let mut old = Raw::connect(server.port());
    old.say(b"\x10\x0f\0\x04MQTT\x04\x02\0\0\0\x03old");
    assert_eq!(old.hear_bytes(4), b"\x20\x02\0\0");
    old.say(b"\x82\x06\0\x01\0\x01t\x01");
    assert_eq!(old.hear_bytes(5), b"\x90\x03\0\x01\x01");
    let mut new = Client::connect(&server, "new");
    new.subscribe("t", 0);
    new.say_publish(2, "t", b"\x03\0\x04text", b"x");
    assert_eq!(new.hear().name(), "PUBACK");
    assert_eq!(new.hear_publish().properties, b"\x03\0\x04text");
    assert_eq!(old.hear_bytes(8), b"\x32\x06\0\x01t\0\x01x");
    old.say(b"\x30\x04\0\x01ty");
    assert_eq!(new.hear_payloads(1), ["y"]);
}
