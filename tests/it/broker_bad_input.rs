//! Clients that misbehave: the broker disconnects them and serves all others.

use std::fs;
use std::thread;

use super::common::wire::{self, ConnectOptions, Packet, Publish};
use super::common::{LoggedServer, Place, RawClient, Server};
use crate::a_watchdog::bounded;

/// Connects a client.
fn connect(port: u16, client_id: &str) -> RawClient {
    let mut client = RawClient::connect(port);
    client.send(&wire::connect(client_id));
    assert_eq!(client.receive().unwrap().name(), "CONNACK");
    client
}

fn is_served(client: &mut RawClient) {
    client.send(&wire::PINGREQ);
    assert_eq!(client.receive().unwrap().name(), "PINGRESP");
}

/// Connects a client with a persistent session. Returns whether the session was present.
fn reconnect(port: u16, client_id: &str) -> (RawClient, bool) {
    let mut client = RawClient::connect(port);
    let head = b"\0\x04MQTT\x05\0\0\0\x05\x11\0\0\x0e\x10";
    client.send(&wire::packet(0x10, [&head[..], &wire::text(client_id)].concat()));
    let connack = client.receive().unwrap();
    assert_eq!((connack.name(), connack.body[1]), ("CONNACK", 0));
    (client, connack.body[0] == 1)
}

/// Waits until a counter of the server below `$SYS/broker/` has a value.
fn wait_for_count(port: u16, counter: &str, expected: u32) {
    let mut reader = connect(port, "reader");
    reader.send(&wire::subscribe(1, &format!("$SYS/broker/{counter}")));
    let expected = expected.to_string().into_bytes();
    while !reader
        .receive()
        .is_some_and(|packet| packet.name() == "PUBLISH" && packet.body.ends_with(&expected))
    {}
}

#[test]
fn two_hundred_quick_reconnects_with_one_client_id_all_succeed_and_leave_one_session() {
    let place = Place::new();
    let server = Server::start(&place, &["-q", "--sys-interval", "20ms"]);
    let port = server.port();
    let (mut last, is_present) = reconnect(port, "a");
    assert!(!is_present);
    last.send(&wire::subscribe(1, "t"));
    assert_eq!(last.receive().unwrap().name(), "SUBACK");
    for _ in 0..200 {
        let (next, is_present) = reconnect(port, "a");
        assert!(is_present);
        let disconnect = last.receive().unwrap();
        assert_eq!((disconnect.name(), disconnect.body[0]), ("DISCONNECT", 0x8E));
        assert_eq!(last.receive(), None);
        last = next;
    }
    let mut other = connect(port, "b");
    other.send(&Publish { topic: "t".to_owned(), packet_id: 1, ..Publish::default() }.encode());
    assert_eq!(last.receive().unwrap().name(), "PUBLISH");
    is_served(&mut last);
    drop(other);
    // The other session is the one of the reader of the counter.
    wait_for_count(port, "clients/total", 2);
}

#[test]
fn concurrent_connects_with_one_client_id_all_succeed_and_one_stays_connected() {
    let place = Place::new();
    let server = Server::start(&place, &["-q", "--sys-interval", "20ms"]);
    let port = server.port();
    let all =
        (0..4).map(|_| thread::spawn(move || (0..50).map(|_| reconnect(port, "a").0).collect::<Vec<_>>()));
    let all: Vec<_> =
        all.collect::<Vec<_>>().into_iter().flat_map(|thread| bounded(|| thread.join()).unwrap()).collect();
    let mut served = 0;
    for mut client in all {
        client.send(&wire::PINGREQ);
        match client.receive().unwrap() {
            packet if packet.name() == "PINGRESP" => served += 1,
            disconnect => assert_eq!((disconnect.name(), disconnect.body[0]), ("DISCONNECT", 0x8E)),
        }
    }
    assert_eq!(served, 1);
    wait_for_count(port, "clients/total", 2);
}

/// Returns the peak resident memory of a process in KB.
fn resident_kb(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_stalled_subscriber_is_disconnected_and_takes_no_more_memory_than_its_queue() {
    const MESSAGE_BYTES: usize = 1024 * 1024;
    let place = Place::new();
    let server = LoggedServer::start(&place, &["--listen", "127.0.0.1:0"]);
    let mut stalled = connect(server.port(0), "stalled");
    stalled.send(&wire::subscribe(1, "t"));
    assert_eq!(stalled.receive().unwrap().name(), "SUBACK");
    let mut publisher = connect(server.port(0), "publisher");
    let message = |packet_id| Publish {
        topic: "t".to_owned(),
        packet_id,
        payload: vec![b'x'; MESSAGE_BYTES],
        ..Publish::default()
    };
    // Twice the limit of a client's queue.
    let mut without_subscriber = 0;
    for packet_id in 1..=256 {
        publisher.send(&message(packet_id).encode());
        let puback = publisher.receive().unwrap();
        assert_eq!(puback.packet_id(), packet_id);
        without_subscriber += u16::from(puback.body.get(2) == Some(&0x10));
    }
    assert!(without_subscriber > 100, "{without_subscriber} messages without a subscriber");
    // The queue holds 128 MB. A message may keep alive more of its input buffer than its size in the queue.
    let most = resident_kb(server.id());
    assert!(most < 320 * 1024, "{most} KB");
    is_served(&mut publisher);
    let line = server.log_line_with("stalled disconnected");
    assert_eq!(
        line,
        "stalled disconnected: quota exceeded (0x97): too many messages are queued for this client"
    );
    assert!(stalled.rest().len() < 128 * MESSAGE_BYTES, "only the contents of the socket buffers");
}

#[test]
fn a_subscriber_that_never_acknowledges_is_disconnected_with_a_reason() {
    let place = Place::new();
    let server = Server::start(&place, &["-q", "--queue-bytes-max", "1M"]);
    let mut reader = connect(server.port(), "reader");
    reader.send(&wire::subscribe(1, "t"));
    assert_eq!(reader.receive().unwrap().name(), "SUBACK");
    let mut publisher = connect(server.port(), "publisher");
    let (payload, mut received) = (vec![b'x'; 64 * 1024], 0);
    let disconnect = (1..).find_map(|packet_id| {
        publisher.send(
            &Publish { topic: "t".to_owned(), packet_id, payload: payload.clone(), ..Publish::default() }
                .encode(),
        );
        assert_eq!(publisher.receive().unwrap().name(), "PUBACK");
        let packet = reader.receive().unwrap();
        received += 1;
        (packet.name() != "PUBLISH").then_some(packet)
    });
    assert_eq!(
        disconnect,
        Some(Packet {
            first: 0xE0,
            body: disconnect_body(0x97, "too many messages are queued for this client")
        })
    );
    assert!((8..=16).contains(&received), "{received} messages of 64 KB");
    assert_eq!(reader.receive(), None);
    is_served(&mut publisher);
}

/// Returns a request for the value of a key.
fn get(client_id: &str, key: &str) -> Vec<u8> {
    let payload = format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).into_bytes();
    Publish {
        topic: REQUEST.to_owned(),
        packet_id: 1,
        response_topic: format!("clients/{client_id}/services/statestore/response"),
        correlation: b"1".to_vec(),
        payload,
        ..Publish::default()
    }
    .encode()
}

const REQUEST: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

#[test]
fn two_hundred_clients_that_read_no_answers_take_no_more_memory_than_the_limit_and_others_are_served() {
    const VALUE_BYTES: usize = 1024 * 1024;
    let place = Place::new();
    let server = LoggedServer::start(&place, &["--listen", "127.0.0.1:0", "--memory-max", "128M"]);
    let url = format!("mqtt://127.0.0.1:{}", server.port(0));
    place.write("value", "x".repeat(VALUE_BYTES));
    assert_eq!(place.run_at(&url, &["set", "large", "-f", "value"]), "--- exit 0\n");
    let before = resident_kb(server.id());
    let greedy: Vec<_> = (0..200)
        .map(|number| {
            let client_id = format!("greedy-{number}");
            let mut client = RawClient::connect(server.port(0));
            client.send(
                &ConnectOptions { client_id: &client_id, keeps_session: true, ..Default::default() }.encode(),
            );
            assert_eq!(client.receive().unwrap().name(), "CONNACK");
            client.send(&wire::subscribe(1, &format!("clients/{client_id}/#")));
            assert_eq!(client.receive().unwrap().name(), "SUBACK");
            for _ in 0..20 {
                client.send(&get(&client_id, "large"));
            }
            client
        })
        .collect();
    server.log_line_with("disconnected: quota exceeded (0x97)");
    for number in 0..10 {
        let key = format!("key-{number}");
        assert_eq!(place.run_at(&url, &["set", &key, "v"]), "--- exit 0\n");
        assert_eq!(place.run_at(&url, &["get", &key]), "--- stdout\nv(no line feed)\n--- exit 0\n");
    }
    // 48 MB for the broker; some answers are in the hands of a thread, and the allocator keeps what was released.
    let taken = resident_kb(server.id()).saturating_sub(before);
    assert!(taken < 96 * 1024, "{taken} KB");
    drop(greedy);
}

/// The body of a DISCONNECT with a reason string.
fn disconnect_body(reason: u8, reason_string: &str) -> Vec<u8> {
    let properties = [&[0x1F], &wire::text(reason_string)[..]].concat();
    [&[reason], &wire::length(properties.len())[..], &properties].concat()
}
