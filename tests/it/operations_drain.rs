//! Shutdown of `serve`: requests that were received are answered first.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::thread::spawn;

use mqkv::protocol::{Key, Request, Timestamp, topic};
use nix::sys::signal::Signal;

use super::common::wire::{self, Packet, Publish};
use super::common::{Place, RawClient, Server, StreamedProcess, http, wait_until};
use crate::a_watchdog::bounded;

/// The packets that one client of a loaded server counted.
#[derive(Debug, Default)]
struct Seen {
    sent: usize,
    acknowledged: BTreeSet<String>,
    answered: BTreeSet<String>,
    disconnect_reason: Option<u8>,
}

/// Sets keys, 20 requests at a time, until the server closes the connection.
fn load(port: u16, name: &str) -> Seen {
    const CONCURRENT: usize = 20;
    let mut raw = RawClient::connect(port);
    let response_topic = format!("answers/{name}");
    raw.send(&wire::connect(name));
    raw.send(&wire::subscribe(1, &response_topic));
    let mut seen = Seen::default();
    let mut keys = Vec::new();
    loop {
        while seen.answered.len() + CONCURRENT > keys.len() {
            let number = keys.len();
            let key = format!("{name}-{number}");
            let request = Request::Set {
                key: Key::new(key.clone()).unwrap(),
                value: "v".into(),
                condition: None,
                ttl_ms: None,
            };
            let publish = Publish {
                topic: topic::REQUEST.to_owned(),
                packet_id: u16::try_from(number % 60_000 + 1).unwrap(),
                response_topic: response_topic.clone(),
                correlation: key.clone().into_bytes(),
                user_properties: vec![(
                    "__ts".to_owned(),
                    Timestamp::of_store(mqkv::clock::wall_ms(), 0).to_string(),
                )],
                payload: request.encode().to_vec(),
            };
            keys.push(key);
            raw.send(&publish.encode());
        }
        let Some(packet) = raw.receive() else { break };
        match packet.name() {
            "PUBACK" => {
                let number = usize::from(packet.packet_id()) - 1;
                seen.acknowledged.insert(keys[number].clone());
            }
            "PUBLISH" => {
                let publish = Publish::decode(&packet);
                assert_eq!(publish.payload, b"+OK\r\n");
                seen.answered.insert(String::from_utf8(publish.correlation).unwrap());
                raw.send(&wire::puback(publish.packet_id, 0));
            }
            "DISCONNECT" => seen.disconnect_reason = packet.body.first().copied(),
            _ => {}
        }
    }
    seen.sent = keys.len();
    seen
}

#[test]
fn under_load_every_acknowledged_request_is_answered_and_durable() {
    for options in [&["--data", "data"][..], &[]] {
        let place = Place::new();
        let mut server = Server::start(&place, options);
        let port = server.port();
        let clients: Vec<_> = (0..4).map(|number| spawn(move || load(port, &format!("c{number}")))).collect();
        wait_until("there are keys", || {
            (place.bytes_at(&server.url(), &["keys"]).len() > 2_000).then_some(())
        });
        server.signal(Signal::SIGTERM);
        assert_eq!(server.end(), Some(0));
        let seen: Vec<Seen> = clients.into_iter().map(|client| bounded(|| client.join()).unwrap()).collect();
        for seen in &seen {
            assert_eq!(seen.disconnect_reason, Some(0x8B), "{seen:?}");
            let unanswered: Vec<_> = seen.acknowledged.difference(&seen.answered).collect();
            assert!(unanswered.is_empty(), "{unanswered:?}");
            assert!(seen.sent > seen.answered.len(), "the shutdown came under load");
        }
        if !options.is_empty() {
            server.start_again(&place, options);
            let kept = String::from_utf8(place.bytes_at(&server.url(), &["keys"])).unwrap();
            let kept: BTreeSet<&str> = kept.lines().collect();
            for key in seen.iter().flat_map(|seen| &seen.answered) {
                assert!(kept.contains(key.as_str()), "{key}");
            }
        }
    }
}

/// Connects a client with Receive Maximum 1 that has acknowledged none of its two messages.
fn stuck(port: u16) -> RawClient {
    let mut raw = RawClient::connect(port);
    // Clean start, Receive Maximum 1.
    let body = [&b"\0\x04MQTT\x05\x02\0\0\x03\x21\0\x01"[..], b"\0\x05stuck"].concat();
    raw.send(&Packet { first: 0x10, body }.encode());
    raw.send(&wire::subscribe(1, "t"));
    for packet_id in [1, 2] {
        raw.send(&Publish { topic: "t".to_owned(), packet_id, ..Publish::default() }.encode());
    }
    let mut publishes = 0;
    let mut acknowledgements = 0;
    while publishes < 1 || acknowledgements < 2 {
        match raw.receive().unwrap().name() {
            "PUBLISH" => publishes += 1,
            "PUBACK" => acknowledgements += 1,
            _ => {}
        }
    }
    raw
}

/// Starts a server and shuts it down while a client acknowledges nothing; returns both and the admin port.
fn draining(place: &Place, drain: &str) -> (StreamedProcess, RawClient, u16) {
    let words = ["serve", "--listen", "127.0.0.1:0", "--admin", "0", "--log", "text", "--port-file", "port"];
    let words = [&words[..], &["--drain", drain]].concat();
    let mut command = place.command(&words);
    let server = StreamedProcess::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let ready = server.log_line();
    let port = |before: &str| -> u16 {
        let rest = ready.split(before).nth(1).unwrap();
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    let (broker, admin) = (port("listening on 127.0.0.1:"), port("http://127.0.0.1:"));
    let client = stuck(broker);
    assert!(server.log_line().contains("stuck connected"));
    assert!(http::get(admin, "/healthz").0.starts_with("HTTP/1.1 200 "));
    server.signal(Signal::SIGTERM);
    assert_eq!(server.log_line(), "stopping: answering pending requests");
    (server, client, admin)
}

#[test]
fn clients_are_disconnected_while_a_server_drains_and_a_second_signal_exits_at_once() {
    let place = Place::new();
    let (server, _client, admin) = draining(&place, "10m");
    let (head, body) = http::get(admin, "/healthz");
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert_eq!(body, "draining\n");
    assert!(!place.path("port").exists(), "a later server may write it from now on");
    server.signal(Signal::SIGTERM);
    assert_eq!(server.end().2, Some(143));
}

#[test]
fn a_client_that_reads_nothing_delays_the_shutdown_no_longer_than_drain() {
    let place = Place::new();
    let (server, mut client, _) = draining(&place, "50ms");
    let disconnect = client.receive().unwrap();
    assert_eq!((disconnect.name(), disconnect.body[0]), ("DISCONNECT", 0x8B));
    let (_, words, code) = server.end();
    assert!(words.iter().any(|line| line.contains("were answered within 50ms")), "{words:?}");
    assert_eq!(code, Some(0));
}

#[test]
fn a_client_that_acknowledges_late_receives_its_whole_queue() {
    let place = Place::new();
    let (server, mut client, _) = draining(&place, "10m");
    client.send(&wire::puback(1, 0));
    let second = client.receive().unwrap();
    assert_eq!(second.name(), "PUBLISH");
    assert_eq!(client.receive().unwrap().name(), "DISCONNECT");
    assert_eq!(server.end().2, Some(0));
}
