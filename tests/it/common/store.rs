//! A store of the tests, for one connection: it does what a store does, except where it is told otherwise.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // a panic here is a failed test

use mqkv::protocol::request::CommandCase;
use mqkv::protocol::{Key, Reply, Request, Timestamp, topic};

use super::fake::{Line, answer};
use super::wire::{self, Publish};

/// What is odd about it.
#[derive(Clone)]
pub struct Oddity {
    /// The properties of its CONNACK.
    pub connack: Vec<u8>,
    /// The reason of its SUBACKs.
    pub suback: u8,
    /// How far its clock is ahead, in milliseconds.
    pub ahead_ms: i64,
    /// What it says to a verb instead of the answer.
    pub says: Option<(&'static str, &'static str)>,
    /// The user property that its answers lack.
    pub lacks: &'static str,
    /// The change that no watcher is told of.
    pub keeps_quiet_of: &'static str,
}

/// Nothing is odd.
pub const SOUND: Oddity =
    Oddity { connack: Vec::new(), suback: 1, ahead_ms: 0, says: None, lacks: "", keeps_quiet_of: "" };

/// Serves until the client leaves; the verbs that it was asked, with their keys.
pub fn serve(line: &mut Line, oddity: &Oddity) -> Vec<String> {
    let client_id = connect(line, &oddity.connack);
    let mut asked = Vec::new();
    while let Some(packet) = line.next() {
        match packet.name() {
            "SUBSCRIBE" => line.send(&wire::suback(packet.packet_id(), oddity.suback)),
            "PUBLISH" => {
                let publish = Publish::decode(&packet);
                let request = Request::decode(&publish.payload.clone().into(), CommandCase::Strict).unwrap();
                let key = request.key().unwrap().clone();
                asked.push(format!("{} {}", request.verb(), String::from_utf8_lossy(key.as_bytes())));
                reply(line, &publish, &request, oddity);
                tell(line, &client_id, &key, &request, oddity);
            }
            _ => {}
        }
    }
    asked
}

fn connect(line: &mut Line, properties: &[u8]) -> String {
    let connect = line.expect("CONNECT");
    line.send(&wire::connack(0, properties));
    // Protocol name, version, flags and keep-alive; then the properties, whose length fits into one byte.
    let body = &connect.body[10..];
    let id = &body[1 + usize::from(body[0])..];
    let len = usize::from(u16::from_be_bytes([id[0], id[1]]));
    String::from_utf8(id[2..2 + len].to_vec()).unwrap()
}

fn reply(line: &mut Line, publish: &Publish, request: &Request, oddity: &Oddity) {
    let now_ms = i64::try_from(mqkv::clock::wall_ms()).unwrap();
    let clock = Timestamp::of_store(u64::try_from(now_ms + oddity.ahead_ms).unwrap(), 0);
    let sent: Timestamp = publish.user_property("__ts").unwrap().parse().unwrap();
    let is_refused = sent.is_too_far_ahead(clock.ms);
    let (payload, has_version) = match request {
        Request::Set { .. } if is_refused => {
            let text = "the request timestamp is too far in the future; \
                        ensure that the client and broker system clocks are synchronized";
            (format!("-ERR {text}\r\n"), false)
        }
        Request::Set { .. } => (text(&Reply::Done), true),
        Request::Del { .. } => (text(&Reply::Count(1)), true),
        Request::KeyNotify { .. } => (text(&Reply::Done), false),
        _ => (text(&Reply::Absent), false),
    };
    let payload = match oddity.says {
        Some((verb, _)) if verb != request.verb() => payload,
        Some((_, instead)) => instead.to_owned(),
        None => payload,
    };
    let version = clock.to_string();
    let mut properties = vec![("__stat", "200")];
    if has_version {
        properties.push(("__ts", &version));
    }
    properties.retain(|(name, _)| *name != oddity.lacks);
    line.send(&wire::puback(publish.packet_id, 0));
    if payload == "silence" {
        return;
    }
    let mut answer = answer(publish, &payload, &properties);
    answer.user_properties.retain(|(name, _)| name != oddity.lacks);
    line.send(&answer.encode());
}

fn tell(line: &mut Line, client_id: &str, key: &Key, request: &Request, oddity: &Oddity) {
    let payload = match request {
        Request::Set { .. } => "*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$1\r\nv\r\n",
        Request::Del { .. } => "*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n",
        _ => return,
    };
    if request.verb() == oddity.keeps_quiet_of {
        return;
    }
    let version = Timestamp::of_store(mqkv::clock::wall_ms(), 0).to_string();
    let notification = Publish {
        topic: topic::notify(client_id, key).unwrap(),
        packet_id: 2,
        user_properties: vec![("__ts".to_owned(), version)],
        payload: payload.as_bytes().to_vec(),
        ..Publish::default()
    };
    line.send(&notification.encode());
}

fn text(reply: &Reply) -> String {
    String::from_utf8(reply.encode().to_vec()).unwrap()
}
