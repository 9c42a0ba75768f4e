//! Whoever misbehaves towards the broker is cut off, and nobody else notices.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::common::pki::Ca;
use super::common::wire::{self, Packet, Publish};
use super::common::{LoggedServer, Place, RawClient, Server, wait_until};

/// A client that is let in.
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

/// A connection of a client with a session that lasts, and whether there was one.
fn reconnect(port: u16, client_id: &str) -> (RawClient, bool) {
    let mut client = RawClient::connect(port);
    let head = b"\0\x04MQTT\x05\0\0\0\x05\x11\0\0\x0e\x10";
    client.send(&wire::packet(0x10, [&head[..], &wire::text(client_id)].concat()));
    let connack = client.receive().unwrap();
    assert_eq!((connack.name(), connack.body[1]), ("CONNACK", 0));
    (client, connack.body[0] == 1)
}

/// Waits until the server counts so many of these.
fn count(port: u16, what: &str, expected: u32) {
    let mut reader = connect(port, "reader");
    reader.send(&wire::subscribe(1, &format!("$SYS/broker/{what}")));
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
        let goodbye = last.receive().unwrap();
        assert_eq!((goodbye.name(), goodbye.body[0]), ("DISCONNECT", 0x8E));
        assert_eq!(last.receive(), None);
        last = next;
    }
    let mut other = connect(port, "b");
    other.send(&Publish { topic: "t".to_owned(), packet_id: 1, ..Publish::default() }.encode());
    assert_eq!(last.receive().unwrap().name(), "PUBLISH");
    is_served(&mut last);
    drop(other);
    // With that of who counts.
    count(port, "clients/total", 2);
}

#[test]
fn many_at_once_with_one_client_id_all_succeed_and_one_of_them_stays() {
    let place = Place::new();
    let server = Server::start(&place, &["-q", "--sys-interval", "20ms"]);
    let port = server.port();
    let all =
        (0..4).map(|_| thread::spawn(move || (0..50).map(|_| reconnect(port, "a").0).collect::<Vec<_>>()));
    let all: Vec<_> = all.collect::<Vec<_>>().into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let mut served = 0;
    for mut client in all {
        client.send(&wire::PINGREQ);
        match client.receive().unwrap() {
            packet if packet.name() == "PINGRESP" => served += 1,
            goodbye => assert_eq!((goodbye.name(), goodbye.body[0]), ("DISCONNECT", 0x8E)),
        }
    }
    assert_eq!(served, 1);
    count(port, "clients/total", 2);
}

/// How many connections this process may well open, if it is not more than so many.
fn as_many_as(wanted: u64) -> usize {
    const OTHER_TESTS: u64 = 400;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    assert!(hard > OTHER_TESTS, "no more than {hard} files: nothing would be shown");
    usize::try_from(hard.saturating_sub(OTHER_TESTS).min(wanted)).unwrap()
}

#[test]
fn a_thousand_connections_that_say_nothing_or_half_of_it_are_closed_and_nobody_else_notices() {
    let place = Place::new();
    Ca::new(&place, "ca.pem").issue(&place, "server", &["localhost"]);
    let wanted = as_many_as(1000);
    let doors =
        ["--listen", "mqtt://127.0.0.1:0", "--listen", "mqtts://127.0.0.1:0", "--listen", "ws://127.0.0.1:0"];
    let options = ["--tls-cert", "server.pem", "--tls-key", "server.key"];
    let server = LoggedServer::start(&place, &[&doors[..], &options].concat());
    let port = server.port(0);
    let mut client = connect(port, "a");
    let hello = wire::connect("half");
    let beginnings =
        [(0, &hello[..]), (1, b"\x16\x03\x01\0\xA5\x01"), (2, b"GET /mqtt HTTP/1.1\r\nHost: h\r\n")];
    let begun = (0..wanted).map(|number| {
        let (door, said) = beginnings[number % 3];
        let mut stream = TcpStream::connect(("127.0.0.1", server.port(door))).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // Nothing at all from every third.
        stream.write_all(&said[..number / 3 % 3 * said.len() / 3]).unwrap();
        stream
    });
    let begun: Vec<_> = begun.collect();
    is_served(&mut client);
    for mut stream in begun {
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        // In TLS it is an alert that says so.
        assert!(heard.is_empty() || heard[0] == 0x15, "{heard:02X?}");
    }
    is_served(&mut client);
    let open = || fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap().count();
    wait_until("nothing is left of them", || (open() < 100).then_some(()));
}

/// How much memory a process has had at most, in KB.
fn resident_kb(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_reader_that_stalls_is_cut_off_and_costs_no_more_than_its_queue() {
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
    // Twice what may wait for one client.
    let mut is_alone = 0;
    for packet_id in 1..=256 {
        publisher.send(&message(packet_id).encode());
        let puback = publisher.receive().unwrap();
        assert_eq!(puback.packet_id(), packet_id);
        is_alone += u16::from(puback.body.get(2) == Some(&0x10));
    }
    assert!(is_alone > 100, "{is_alone} messages found the reader gone");
    // Its queue holds 128 MB; a message may keep more of the buffer alive that it was read into than it is charged for.
    let most = resident_kb(server.id());
    assert!(most < 320 * 1024, "{most} KB");
    is_served(&mut publisher);
    let told = server.log_line_with("stalled is gone");
    assert_eq!(told, "stalled is gone: quota exceeded (0x97): too many messages wait for this client");
    assert!(stalled.rest().len() < 128 * MESSAGE_BYTES, "what the socket held, and then the end");
}

#[test]
fn who_reads_and_never_acknowledges_hears_why_it_is_cut_off() {
    let place = Place::new();
    let server = Server::start(&place, &["-q", "--queue-bytes-max", "1M"]);
    let mut reader = connect(server.port(), "reader");
    reader.send(&wire::subscribe(1, "t"));
    assert_eq!(reader.receive().unwrap().name(), "SUBACK");
    let mut publisher = connect(server.port(), "publisher");
    let (payload, mut heard) = (vec![b'x'; 64 * 1024], 0);
    let goodbye = (1..).find_map(|packet_id| {
        publisher.send(
            &Publish { topic: "t".to_owned(), packet_id, payload: payload.clone(), ..Publish::default() }
                .encode(),
        );
        assert_eq!(publisher.receive().unwrap().name(), "PUBACK");
        let packet = reader.receive().unwrap();
        heard += 1;
        (packet.name() != "PUBLISH").then_some(packet)
    });
    assert_eq!(
        goodbye,
        Some(Packet { first: 0xE0, body: goodbye_of(0x97, "too many messages wait for this client") })
    );
    assert!((8..=16).contains(&heard), "{heard} messages of 64 KB");
    assert_eq!(reader.receive(), None);
    is_served(&mut publisher);
}

/// The body of a DISCONNECT with words.
fn goodbye_of(reason: u8, words: &str) -> Vec<u8> {
    let words = [&[0x1F], &wire::text(words)[..]].concat();
    [&[reason], &wire::length(words.len())[..], &words].concat()
}
