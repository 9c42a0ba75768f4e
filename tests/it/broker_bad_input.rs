//! Whoever misbehaves towards the broker is cut off, and nobody else notices.

use std::fs;
use std::io::Write;
use std::net::TcpStream;

use super::common::wire::{self, Publish};
use super::common::{Place, Raw, Server};

fn serve() -> (Place, Server) {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    (place, server)
}

/// A client that is let in.
fn connect(server: &Server, client_id: &str) -> Raw {
    let mut client = Raw::connect(server.port());
    client.say(&wire::connect(client_id));
    assert_eq!(client.hear().unwrap().name(), "CONNACK");
    client
}

fn is_served(client: &mut Raw) {
    client.say(&wire::PINGREQ);
    assert_eq!(client.hear().unwrap().name(), "PINGRESP");
}

#[test]
fn two_hundred_quick_reconnects_with_one_client_id_all_succeed() {
    let (_place, server) = serve();
    let mut last = connect(&server, "a");
    for _ in 0..200 {
        // The one before it is not said goodbye to.
        last = connect(&server, "a");
    }
    last.say(&wire::subscribe(1, "t"));
    assert_eq!(last.hear().unwrap().name(), "SUBACK");
    let mut other = connect(&server, "b");
    other.say(&wire::publish_qos_0("t", b"x"));
    assert_eq!(last.hear().unwrap().name(), "PUBLISH");
    is_served(&mut last);
}

#[test]
fn connections_that_say_nothing_or_half_a_packet_are_in_nobodys_way() {
    let (_place, server) = serve();
    let idle: Vec<_> = (0..200_usize)
        .map(|number| {
            let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
            let hello = wire::connect("half");
            stream.write_all(&hello[..number % hello.len()]).unwrap();
            stream
        })
        .collect();
    let mut client = connect(&server, "a");
    is_served(&mut client);
    drop(idle);
    is_served(&mut client);
}

/// How much memory a process has at present, in KB.
fn resident_kb(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_reader_that_stalls_is_cut_off_and_costs_no_more_than_its_queue() {
    const MESSAGE_BYTES: usize = 1024 * 1024;
    let (_place, server) = serve();
    let mut stalled = connect(&server, "stalled");
    stalled.say(&wire::subscribe(1, "t"));
    assert_eq!(stalled.hear().unwrap().name(), "SUBACK");
    let mut publisher = connect(&server, "publisher");
    let message = |packet_id| Publish {
        topic: "t".to_owned(),
        packet_id,
        payload: vec![b'x'; MESSAGE_BYTES],
        ..Publish::default()
    };
    // Twice what may wait for one client.
    let mut is_alone = 0;
    for packet_id in 1..=256 {
        publisher.say(&message(packet_id).encode());
        let puback = publisher.hear().unwrap();
        assert_eq!(puback.packet_id(), packet_id);
        is_alone += u16::from(puback.body.get(2) == Some(&0x10));
    }
    assert!(is_alone > 100, "{is_alone} messages found the reader gone");
    // Its queue holds 128 MB; a message may keep more of the buffer alive that it was read into than it is charged for.
    let most = resident_kb(&server);
    assert!(most < 320 * 1024, "{most} KB");
    is_served(&mut publisher);
}
