//! One owner takes what it can of the broker's memory: another one connects, subscribes, writes and publishes nevertheless.

use std::io;
use std::time::{Duration, Instant};

use crate::client::{Connection, Origin, set_once, subscribe_all};
use crate::effort::Effort;
use crate::good_client::{self, MIB, Progress, Refusals, TIMEOUT, beside, raise_file_limit};
use crate::server::Server;
use crate::wire::{self, Packet, Publish};

/// `--memory-max` has its default of 1 GiB.
const MEMORY_BYTES_MAX: u64 = (1024 + 128) * MIB;
const SESSIONS: usize = 117;
const FILTERS: usize = 1_000;
/// Each level costs a byte to send.
const LEVELS: usize = 15;
const RETAINED: usize = 20_000;
const GREEDY: Origin = Origin::at(2);

struct Attack {
    name: &'static str,
    run: fn(u16, &Progress),
}

const ATTACKS: &[Attack] = &[
    Attack { name: "117 sessions with 1,000 filters", run: connected_sessions },
    Attack { name: "117 sessions with 1,000 filters, offline", run: offline_sessions },
    Attack { name: "20,000 retained messages of one byte", run: retained_messages },
];

pub fn run(effort: Effort) -> Result<String, String> {
    raise_file_limit()?;
    good_client::detects()?;
    detects()?;
    let (probes_min, time_min) = effort.pick((100, Duration::ZERO), (2_000, Duration::from_secs(20)));
    let mut failures = 0;
    for Attack { name, run } in ATTACKS {
        let server = Server::start(&[]);
        let port = server.port();
        let others = |progress: &Progress| {
            progress.wait_until_filled();
            let (mut refusals, until) = (Refusals::default(), Instant::now() + time_min);
            let mut probes = 0;
            while probes < probes_min || Instant::now() < until {
                refusals.note(use_broker(port, probes));
                probes += 1;
            }
            refusals
        };
        let attack = |progress: &Progress| run(port, progress);
        let (measured, ()) = beside(&server, Origin::HERE, attack, others);
        failures += usize::from(!measured.report(name, effort, MEMORY_BYTES_MAX));
    }
    match failures {
        0 => Ok(format!(
            "{} attacks, each with at least {probes_min} clients of another owner; refusals were detected",
            ATTACKS.len()
        )),
        _ => Err(format!("{failures} of {} attacks refused others", ATTACKS.len())),
    }
}

/// Connects, subscribes, sets a key and publishes a retained message, as a new client.
fn use_broker(port: u16, number: usize) -> Result<(), String> {
    let id = format!("modest-{number}");
    set_once(Origin::HERE, port, &id, "modest", "1", TIMEOUT)?;
    let failed = |error: io::Error| format!("retained PUBLISH: {error}");
    let deadline = Instant::now() + TIMEOUT;
    let (mut connection, _) =
        Connection::accepted(Origin::HERE, port, &id, false, TIMEOUT).map_err(failed)?;
    connection.send(&retained(&format!("modest/{}", number % 50), 1)).map_err(failed)?;
    let puback = connection.receive_type("PUBACK", deadline).map_err(failed)?;
    match puback.body.get(2).copied().unwrap_or_default() {
        reason @ 0x80.. => Err(format!("retained PUBLISH: PUBACK {reason:02X}")),
        _ => Ok(()),
    }
}

/// Encodes a retained message of one byte.
fn retained(topic: &str, packet_id: u16) -> Vec<u8> {
    let publish = Publish { topic: topic.to_owned(), packet_id, payload: vec![b'x'], ..Publish::default() };
    let mut bytes = publish.encode();
    bytes[0] |= 1;
    bytes
}

/// Checks that a broker without room for another client is noticed.
fn detects() -> Result<(), String> {
    let server = Server::start(&["--connections-max", "1"]);
    let _only = Connection::accepted(GREEDY, server.port(), "only", false, TIMEOUT).unwrap();
    match use_broker(server.port(), 0) {
        Err(_) => Ok(()),
        Ok(()) => Err("a broker without room for another client was not noticed".to_owned()),
    }
}

/// Makes the sessions as fast as it can: nothing is waited for.
fn subscribe_in_sessions(port: u16) -> Vec<Connection> {
    let mut connections = Vec::new();
    for session in 0..SESSIONS {
        let Ok((mut connection, _)) =
            Connection::accepted(GREEDY, port, &format!("greedy-{session}"), true, TIMEOUT)
        else {
            continue;
        };
        let filters = (0..FILTERS).map(|number| format!("{session:03}{number:03}{}+", "/".repeat(LEVELS)));
        let _ = connection.send(&subscribe_all(1, filters));
        connections.push(connection);
    }
    for connection in &mut connections {
        let _: io::Result<Packet> =
            connection.receive_type("SUBACK", Instant::now() + Duration::from_secs(10));
    }
    connections
}

fn connected_sessions(port: u16, progress: &Progress) {
    let connections = subscribe_in_sessions(port);
    progress.set_filled();
    progress.wait_until_over();
    drop(connections);
}

fn offline_sessions(port: u16, progress: &Progress) {
    drop(subscribe_in_sessions(port));
    progress.set_filled();
    progress.wait_until_over();
}

fn retained_messages(port: u16, progress: &Progress) {
    let Ok((mut connection, _)) = Connection::accepted(GREEDY, port, "greedy", false, TIMEOUT) else {
        return;
    };
    for first in (0..RETAINED).step_by(100) {
        let batch =
            (0..100_u16).map(|number| retained(&format!("r/{}", first + usize::from(number)), number + 1));
        let _ = connection.send(&batch.collect::<Vec<_>>().concat());
        for _ in 0..100 {
            if connection.receive_type("PUBACK", Instant::now() + TIMEOUT).is_err() {
                break;
            }
        }
    }
    let _ = connection.send(&wire::PINGREQ);
    progress.set_filled();
    progress.wait_until_over();
}
