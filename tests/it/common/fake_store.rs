//! A fake state store for one connection, with faults to choose.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // a panic here is a failed test

use mqkv::protocol::{Key, Reply, Request, Timestamp, topic};

use super::fake_broker::{Connection, answer};
use super::wire::{self, Publish};

/// How the store differs from a correct one.
#[derive(Clone)]
pub struct Faults {
    /// The encoded properties of its CONNACK.
    pub connack: Vec<u8>,
    /// The reason code of its SUBACKs.
    pub suback: u8,
    /// How far its clock is ahead, in milliseconds.
    pub clock_ahead_ms: i64,
    /// Whether its versions stand still, as they do after its clock was set back.
    pub stands_still: bool,
    /// A verb and the payload of the reply to it; `silence` for none.
    pub reply_instead: Option<(&'static str, &'static str)>,
    /// The user property that its responses lack.
    pub missing_property: &'static str,
    /// The verb after which it sends no notification.
    pub unnotified_verb: &'static str,
}

pub const NO_FAULTS: Faults = Faults {
    connack: Vec::new(),
    suback: 1,
    clock_ahead_ms: 0,
    stands_still: false,
    reply_instead: None,
    missing_property: "",
    unnotified_verb: "",
};

/// Serves until the client closes the connection. Returns the verbs of the requests, with their keys.
pub fn serve(connection: &mut Connection, faults: &Faults) -> Vec<String> {
    let client_id = connect(connection, &faults.connack);
    let mut requests = Vec::new();
    let mut is_watched = false;
    let start_ms = mqkv::clock::wall_ms();
    while let Some(packet) = connection.next() {
        match packet.name() {
            "SUBSCRIBE" => connection.send(&wire::suback(packet.packet_id(), faults.suback)),
            "PUBLISH" => {
                let publish = Publish::decode(&packet);
                let request = Request::decode(&publish.payload.clone().into()).unwrap();
                let key = request.key().unwrap().clone();
                requests.push(format!("{} {}", request.verb(), String::from_utf8_lossy(key.as_bytes())));
                let now_ms = if faults.stands_still { start_ms } else { mqkv::clock::wall_ms() };
                reply(connection, &publish, &request, faults, now_ms);
                is_watched |= matches!(request, Request::KeyNotify { .. });
                if is_watched {
                    // Of two changes in one millisecond, the second has the higher version.
                    let version = Timestamp::of_store(now_ms, u32::try_from(requests.len()).unwrap());
                    notify(connection, &client_id, &key, &request, &version, faults);
                }
            }
            _ => {}
        }
    }
    requests
}

fn connect(connection: &mut Connection, properties: &[u8]) -> String {
    let connect = connection.expect("CONNECT");
    connection.send(&wire::connack(0, properties));
    // After protocol name, version, flags and keep-alive: the properties, whose length fits into one byte.
    let body = &connect.body[10..];
    let id = &body[1 + usize::from(body[0])..];
    let len = usize::from(u16::from_be_bytes([id[0], id[1]]));
    String::from_utf8(id[2..2 + len].to_vec()).unwrap()
}

fn reply(connection: &mut Connection, publish: &Publish, request: &Request, faults: &Faults, now_ms: u64) {
    let now_ms = i64::try_from(now_ms).unwrap();
    let clock = Timestamp::of_store(u64::try_from(now_ms + faults.clock_ahead_ms).unwrap(), 0);
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
    let payload = match faults.reply_instead {
        Some((verb, _)) if verb != request.verb() => payload,
        Some((_, instead)) => instead.to_owned(),
        None => payload,
    };
    let version = clock.to_string();
    let mut properties = vec![("__stat", "200")];
    if has_version {
        properties.push(("__ts", &version));
    }
    properties.retain(|(name, _)| *name != faults.missing_property);
    connection.send(&wire::puback(publish.packet_id, 0));
    if payload == "silence" {
        return;
    }
    let mut answer = answer(publish, &payload, &properties);
    answer.user_properties.retain(|(name, _)| name != faults.missing_property);
    connection.send(&answer.encode());
}

fn notify(
    connection: &mut Connection,
    client_id: &str,
    key: &Key,
    request: &Request,
    version: &Timestamp,
    faults: &Faults,
) {
    let payload = match request {
        Request::Set { .. } => "*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n$1\r\nv\r\n",
        Request::Del { .. } => "*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n",
        _ => return,
    };
    if request.verb() == faults.unnotified_verb {
        return;
    }
    let notification = Publish {
        topic: topic::notify(client_id, key).unwrap(),
        packet_id: 2,
        user_properties: vec![("__ts".to_owned(), version.to_string())],
        payload: payload.as_bytes().to_vec(),
        ..Publish::default()
    };
    connection.send(&notification.encode());
}

fn text(reply: &Reply) -> String {
    String::from_utf8(reply.encode().to_vec()).unwrap()
}
