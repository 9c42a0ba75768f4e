//! Replies that are recorded for writes that may be delivered again: no write is refused for them.

use super::common::wire::{self, ConnectOptions, Publish};
use super::common::{Place, RawClient, http};
use super::operations_admin::serve;

const REQUEST: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

/// Returns the port of a URL.
fn port_of(url: &str) -> u16 {
    url.rsplit(':').next().unwrap().parse().unwrap()
}

/// Connects a client. Returns whether its session was present.
fn connect(port: u16, client_id: &str, keeps_session: bool) -> (RawClient, bool) {
    let mut client = RawClient::connect(port);
    client.send(&ConnectOptions { client_id, keeps_session, ..ConnectOptions::default() }.encode());
    let connack = client.receive().unwrap();
    assert_eq!((connack.name(), connack.body[1]), ("CONNACK", 0));
    (client, connack.body[0] == 1)
}

/// Sends `SET k v NX`. Returns the reason code of the PUBACK.
fn write(client: &mut RawClient, number: u16) -> u8 {
    let set = Publish {
        topic: REQUEST.to_owned(),
        packet_id: 1,
        response_topic: "answers".to_owned(),
        correlation: number.to_be_bytes().to_vec(),
        user_properties: vec![("__ts".to_owned(), "1:0:c".to_owned())],
        payload: b"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\nNX\r\n".to_vec(),
    };
    client.send(&set.encode());
    let puback = client.receive().unwrap();
    assert_eq!(puback.name(), "PUBACK");
    puback.body.get(2).copied().unwrap_or(0)
}

/// Returns a number of `/metrics`.
fn metric(port: u16, name: &str) -> u64 {
    let (_, body) = http::get(port, "/metrics");
    let line = body.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_script_that_connects_for_each_write_is_never_refused_and_leaves_no_replies() {
    let place = Place::new();
    let (_server, url, metrics) = serve(&place, &[]);
    let port = port_of(&url);
    for number in 0..4_200 {
        let (mut client, _) = connect(port, "script", false);
        // PUBACK 0x10: it subscribes to nothing.
        let reason = write(&mut client, number);
        assert!(matches!(reason, 0 | 0x10), "{reason:#x} after {number} writes");
        client.send(&wire::disconnect(0));
        assert_eq!(client.receive(), None);
    }
    let numbers = ["mqkv_recorded_reply_bytes", "mqkv_recorded_replies_forgotten_total"];
    assert_eq!(numbers.map(|name| metric(metrics, name)), [0, 0]);
}

#[test]
fn a_write_is_recognized_after_a_lost_connection_and_not_after_its_client_has_ended_the_session() {
    let place = Place::new();
    let (_server, url, _) = serve(&place, &[]);
    let port = port_of(&url);
    let (mut reader, _) = connect(port, "reader", false);
    reader.send(&wire::subscribe(1, "answers"));
    assert_eq!(reader.receive().unwrap().name(), "SUBACK");
    let mut answer = || {
        let publish = Publish::decode(&reader.receive().unwrap());
        let version = publish.user_property("__ts").map(str::to_owned);
        (String::from_utf8(publish.payload).unwrap(), version)
    };
    let (mut client, _) = connect(port, "a", true);
    write(&mut client, 1);
    let first = answer();
    assert_eq!(first.0, "+OK\r\n");
    drop(client);
    let (mut client, is_present) = connect(port, "a", true);
    assert!(is_present);
    write(&mut client, 1);
    assert_eq!(answer(), first);
    // DISCONNECT with a Session Expiry Interval of 0.
    client.send(&wire::packet(0xE0, vec![0, 5, 0x11, 0, 0, 0, 0]));
    assert_eq!(client.receive(), None);
    let (mut client, is_present) = connect(port, "a", true);
    assert!(!is_present);
    write(&mut client, 1);
    assert_eq!(answer(), (":-1\r\n".to_owned(), first.1));
}
