//! The attacks.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::{Attack, Run, Target};
use crate::client::{
    Client, Connection, DISCONNECT, Origin, Reply, Verb, encode, request_packet, subscribe_all,
};
use crate::good_client::TIMEOUT;
use crate::wire::{self, Publish, packet, text};

pub const ATTACKS: &[Attack] = &[
    Attack { name: "2,000 sessions without a client, small uploads", prepare: offline_queues },
    Attack { name: "120 strangers with wrong passwords, again and again", prepare: strangers },
    Attack { name: "many matching subscription identifiers", prepare: identifiers },
    Attack { name: "answers that are not read", prepare: unread_answers },
    Attack { name: "SUBSCRIBE over 10,000 retained messages", prepare: retained_walks },
    Attack { name: "5,000 offline members of a shared subscription", prepare: shared_members },
    Attack { name: "SCAN of 50,000 keys", prepare: scans },
    Attack { name: "GETs of 15 MB", prepare: large_values },
    Attack {
        name: "44 unfinished packets of 64 MB, half of them in WebSocket frames",
        prepare: unfinished_packets,
    },
    Attack { name: "500 Will Messages of 1 MB of properties", prepare: wills },
    Attack { name: "a packet of 60 MB of empty properties", prepare: empty_properties },
];

/// Connects; `None` if the server refuses or is too slow, as it may.
fn connect(port: u16, client_id: &str, keeps_session: bool) -> Option<Connection> {
    let accepted = Connection::accepted(Origin::HERE, port, client_id, keeps_session, TIMEOUT);
    accepted.ok().map(|(connection, _)| connection)
}

/// Creates sessions with one subscription and leaves them, `count` in all.
fn leave_sessions(port: u16, count: usize, prefix: &str, filter: &str) {
    for number in 0..count {
        let Some(mut connection) = connect(port, &format!("{prefix}{number}"), true) else { continue };
        let _ = connection.send(&wire::subscribe(1, filter));
        let _ = connection.receive_type("SUBACK", Instant::now() + TIMEOUT);
        let _ = connection.send(&DISCONNECT);
    }
}

/// Publishes with QoS 1, a few in flight.
fn publish_all(connection: &mut Connection, topic: &str, count: u16) {
    const WINDOW: u16 = 100;
    let publish = Publish { topic: topic.to_owned(), ..Publish::default() };
    let (mut sent, mut acknowledged) = (0_u16, 0_u16);
    for _ in 0..count {
        sent += 1;
        let packet_id = sent % 1_000 + 1;
        if connection.send(&Publish { packet_id, ..publish.clone() }.encode()).is_err() {
            return;
        }
        while sent - acknowledged >= WINDOW {
            if connection.receive_type("PUBACK", Instant::now() + TIMEOUT).is_err() {
                return;
            }
            acknowledged += 1;
        }
    }
    while sent != acknowledged {
        if connection.receive_type("PUBACK", Instant::now() + TIMEOUT).is_err() {
            return;
        }
        acknowledged += 1;
    }
}

/// Reads and drops everything.
fn discard(stream: &TcpStream) {
    let mut stream = stream.try_clone().unwrap();
    thread::spawn(move || {
        let mut bytes = vec![0; 1024 * 1024];
        while stream.read(&mut bytes).is_ok_and(|len| len > 0) {}
    });
}

fn offline_queues(target: &Target) -> Run {
    leave_sessions(target.port, 2_000, "offline", "f");
    Box::new(|target| {
        let Some(mut connection) = connect(target.port, "uploader", false) else { return };
        publish_all(&mut connection, "f", 6_000);
    })
}

/// Encodes a CONNECT with a Will Message with the most properties for the bytes: names and values are empty.
fn connect_with_will(client_id: &str, properties: usize, credentials: &[&str]) -> Vec<u8> {
    let properties = [0x26, 0, 0, 0, 0].repeat(properties);
    let mut body = text("MQTT");
    body.extend([5, if credentials.is_empty() { 0x06 } else { 0xC6 }, 0, 0, 0]);
    body.extend(text(client_id));
    body.extend(wire::length(properties.len()));
    body.extend(&properties);
    body.extend([text("will"), text("")].concat());
    body.extend(credentials.iter().flat_map(|word| text(word)));
    packet(0x10, body)
}

fn strangers(_: &Target) -> Run {
    Box::new(|target| {
        // The first have more properties than a packet may have. The passwords of the others are checked.
        let connects = [400_000, 8_000]
            .map(|properties| Arc::new(connect_with_will("stranger", properties, &["ann", "wrong"])));
        let strangers: Vec<_> = (0..120)
            .map(|number| {
                let (target, connect) = (target.clone(), Arc::clone(&connects[number % 2]));
                thread::spawn(move || {
                    loop {
                        if let Ok(mut connection) = Connection::open(target.port) {
                            let _ = connection.send(&connect);
                            let _ = connection.receive(Instant::now() + Duration::from_secs(15));
                        }
                        if target.progress.is_over() {
                            return;
                        }
                    }
                })
            })
            .collect();
        strangers.into_iter().for_each(|stranger| stranger.join().unwrap());
    })
}

fn identifiers(target: &Target) -> Run {
    // Each filter has `+` or `a` at each of ten levels: all match.
    for session in 0..20 {
        let Some(mut connection) = connect(target.port, &format!("identifiers{session}"), true) else {
            continue;
        };
        for number in 0..512_u16 {
            let levels: Vec<_> =
                (0..10).map(|level| if number >> level & 1 == 1 { "+" } else { "a" }).collect();
            let mut body = (number + 1).to_be_bytes().to_vec();
            // A subscription identifier of three bytes.
            body.extend([4, 0x0B, 0x80 | (number & 0x7F) as u8, 0x80, 1]);
            body.extend(text(&levels.join("/")));
            body.push(1);
            let _ = connection.send(&packet(0x82, body));
        }
        for _ in 0..512 {
            let _ = connection.receive_type("SUBACK", Instant::now() + TIMEOUT);
        }
        let _ = connection.send(&DISCONNECT);
    }
    Box::new(|target| {
        let Some(mut connection) = connect(target.port, "uploader", false) else { return };
        publish_all(&mut connection, &["a"; 10].join("/"), 6_000);
    })
}

fn unread_answers(target: &Target) -> Run {
    let value = "x".repeat(1024 * 1024);
    Client::new("owner", target.port).request("big", &Verb::Set(value), TIMEOUT).unwrap();
    Box::new(|target| {
        let mut connections = Vec::new();
        for number in 0..30 {
            let id = format!("unread{number}");
            let Some(mut connection) = connect(target.port, &id, false) else { continue };
            let topic = format!("clients/{id}/response");
            let mut bytes = wire::subscribe(1, &topic);
            for request in 0..120_u16 {
                let payload = Verb::Get.encode("big");
                bytes.extend(request_packet(
                    &id,
                    &topic,
                    request + 2,
                    &request.to_be_bytes(),
                    payload,
                    false,
                ));
            }
            let _ = connection.send(&bytes);
            connections.push(connection);
        }
        target.progress.wait_until_over();
    })
}

fn retained_walks(target: &Target) -> Run {
    let mut connection = connect(target.port, "retainer", false).unwrap();
    let mut bytes = Vec::new();
    for number in 0..10_000 {
        let mut body = text(&format!("r/{number}/a/b/c"));
        body.extend([0, b'x']);
        bytes.extend(packet(0x31, body));
    }
    connection.send(&bytes).unwrap();
    connection.send(&wire::PINGREQ).unwrap();
    connection.receive_type("PINGRESP", Instant::now() + TIMEOUT).unwrap();
    Box::new(|target| {
        let Some(mut connection) = connect(target.port, "walker", false) else { return };
        let subscribe = subscribe_all(1, (0..98).map(|number| format!("+/+/{number}/#")));
        while !target.progress.is_over() {
            let _ = connection.send(&subscribe);
            let _ = connection.receive_type("SUBACK", Instant::now() + TIMEOUT);
        }
    })
}

fn shared_members(target: &Target) -> Run {
    leave_sessions(target.port, 5_000, "member", "$share/group/jobs/#");
    Box::new(|target| {
        while !target.progress.is_over() {
            // The member that is connected gets the messages, does not acknowledge them, and leaves them to the others.
            let Some(mut member) = connect(target.port, "member", false) else { continue };
            let _ = member.send(&wire::subscribe(1, "$share/group/jobs/#"));
            let _ = member.receive_type("SUBACK", Instant::now() + TIMEOUT);
            let Some(mut publisher) = connect(target.port, "publisher", false) else { continue };
            publish_all(&mut publisher, "jobs/1", 2_000);
            let _ = member.stream().shutdown(Shutdown::Both);
        }
    })
}

fn scans(target: &Target) -> Run {
    let mut connection = connect(target.port, "loader", false).unwrap();
    discard(connection.stream());
    let value = "v";
    for number in 0..50_000_u32 {
        let payload = Verb::Set(value.to_owned())
            .encode(&format!("line{}/aaaaaaaaaaaaaaaaaaaaaaaa{number}", number % 100));
        let id = u16::try_from(number % 1_000 + 1).unwrap();
        let request = request_packet("loader", "unread", id, &number.to_be_bytes(), payload, false);
        connection.send(&request).unwrap();
    }
    // Until the last one is applied.
    while Client::new("loaded", target.port)
        .request("line99/aaaaaaaaaaaaaaaaaaaaaaaa49999", &Verb::Get, TIMEOUT)
        .is_ok_and(|response| response.reply == Reply::Absent)
    {
        thread::sleep(Duration::from_millis(20));
    }
    Box::new(|target| {
        let scanners: Vec<_> = (0..6)
            .map(|number| {
                let target = target.clone();
                thread::spawn(move || {
                    let id = format!("scanner{number}");
                    let Some(mut connection) = connect(target.port, &id, false) else { return };
                    let topic = format!("clients/{id}/response");
                    let _ = connection.send(&wire::subscribe(1, &topic));
                    for request in 0_u16.. {
                        if target.progress.is_over() {
                            return;
                        }
                        let payload = encode(&[b"SCAN", b"*a*a*a*a*a*a*a*a*b"]);
                        let id_of_packet = request % 1_000 + 2;
                        let _ = connection.send(&request_packet(
                            &id,
                            &topic,
                            id_of_packet,
                            &request.to_be_bytes(),
                            payload,
                            false,
                        ));
                        let Ok(answer) = connection.receive_type("PUBLISH", Instant::now() + TIMEOUT) else {
                            return;
                        };
                        let _ = connection.send(&wire::puback(Publish::decode(&answer).packet_id, 0));
                    }
                })
            })
            .collect();
        scanners.into_iter().for_each(|scanner| scanner.join().unwrap());
    })
}

fn large_values(target: &Target) -> Run {
    // The largest packet with this `--memory-max` has 16 MiB. A client whose packet is too large would send it again.
    let set = Verb::Set("x".repeat(15 * 1024 * 1024));
    let response = Client::new("owner", target.port).request("large", &set, TIMEOUT);
    assert_eq!(response.map(|response| response.reply), Ok(Reply::Done));
    Box::new(|target| {
        let mut connections = Vec::new();
        for number in 0..2 {
            let id = format!("large{number}");
            let Some(mut connection) = connect(target.port, &id, false) else { continue };
            discard(connection.stream());
            let _ = connection.send(&wire::subscribe(1, "unread"));
            connections.push((id, connection));
        }
        for number in 0_u16.. {
            if target.progress.is_over() {
                return;
            }
            for (id, connection) in &mut connections {
                let payload = Verb::Get.encode("large");
                let packet_id = number % 1_000 + 2;
                let _ = connection.send(&request_packet(
                    id,
                    "unread",
                    packet_id,
                    &number.to_be_bytes(),
                    payload,
                    false,
                ));
            }
            thread::sleep(Duration::from_millis(50));
        }
    })
}

fn unfinished_packets(_: &Target) -> Run {
    Box::new(|target| {
        // The first bytes of a PUBLISH of 64 MB, in a binary frame that is masked with zeros.
        let publish = [&[0x30, 0xF0, 0xFF, 0xFF, 0x1F, 0, 1, b't'][..], &vec![0; 16 * 1024 * 1024]].concat();
        let mut frame = vec![0x82, 0xFF];
        frame.extend((64 * 1024 * 1024_u64 - 64).to_be_bytes());
        frame.extend([0; 4]);
        let mut connections = Vec::new();
        for number in 0..22 {
            if let Some(mut connection) = connect(target.port, &format!("unfinished{number}"), false) {
                let _ = connection.send(&publish);
                connections.push(connection.stream().try_clone().unwrap());
            }
            if let Ok(mut stream) = connect_web_socket(target.web_socket_port, &format!("frames{number}")) {
                let _ = stream.write_all(&[&frame[..], &publish].concat());
                connections.push(stream);
            }
        }
        target.progress.wait_until_over();
    })
}

/// Opens a WebSocket and connects.
fn connect_web_socket(port: u16, client_id: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let handshake = format!(
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    );
    stream.write_all(handshake.as_bytes())?;
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    let connect = wire::connect(client_id);
    let frame = [&[0x82, 0x80 | u8::try_from(connect.len()).unwrap(), 0, 0, 0, 0][..], &connect].concat();
    stream.write_all(&frame)?;
    // The frame of the CONNACK.
    stream.read_exact(&mut [0; 4])?;
    Ok(stream)
}

fn wills(_: &Target) -> Run {
    Box::new(|target| {
        let mut connections = Vec::new();
        for number in 0..500 {
            let Ok(mut connection) = Connection::open(target.port) else { continue };
            let _ = connection.send(&connect_with_will(&format!("will{number}"), 200_000, &[]));
            let _ = connection.receive(Instant::now() + TIMEOUT);
            connections.push(connection);
            if target.progress.is_over() {
                return;
            }
        }
        target.progress.wait_until_over();
    })
}

fn empty_properties(_: &Target) -> Run {
    Box::new(|target| {
        let properties = [0x26, 0, 0, 0, 0].repeat(12_000_000);
        let mut body = text("t");
        body.extend(wire::length(properties.len()));
        body.extend(&properties);
        let publish = packet(0x30, body);
        while !target.progress.is_over() {
            let Some(mut connection) = connect(target.port, "properties", false) else { continue };
            let _ = connection.send(&publish);
            let _ = connection.send(&wire::PINGREQ);
            let _ = connection.receive(Instant::now() + TIMEOUT);
        }
    })
}
