//! Others leave as many replies as they can: client ids and writes of their neighbors are never refused.

use std::io::Read;
use std::net::Shutdown;
use std::thread;

use crate::client::{Client, Connection, Origin, Reply, Verb, request_packet, set_once};
use crate::effort::Effort;
use crate::good_client::{self, MIB, Refusals, TIMEOUT, beside, raise_file_limit};
use crate::server::{Server, users};

/// Replies have a sixteenth of it, so that few fill it.
const MEMORY_MAX: &str = "64M";
const MEMORY_BYTES_MAX: u64 = (64 + 128) * MIB;
/// Below the Receive Maximum, so that no request of a connection counts as acknowledged.
const WRITES_PER_CONNECTION: usize = 1_000;
/// More than the replies that are recorded for one client id.
const WRITES_PER_ID: usize = 6_000;
/// The client ids of the neighbor that the others use, and new ones.
const IDS: usize = 20;
const PROBES: usize = 200;

struct Attack {
    name: &'static str,
    victim: Origin,
    fill: fn(u16, Effort),
}

const ATTACKS: &[Attack] = &[
    Attack {
        name: "replies under the client ids of another address",
        victim: Origin::HERE,
        fill: foreign_ids,
    },
    Attack { name: "replies under the client ids of another user", victim: ANN, fill: ids_of_another_user },
    Attack { name: "replies under many client ids", victim: Origin::HERE, fill: many_ids },
    Attack { name: "replies of 15 addresses", victim: Origin::HERE, fill: fifteen_addresses },
    Attack {
        name: "idle clients that have acknowledged everything",
        victim: Origin::HERE,
        fill: idle_clients,
    },
];

const ANN: Origin = Origin::user("ann");
const EVE: Origin = Origin::user("eve");

pub fn run(effort: Effort) -> Result<String, String> {
    raise_file_limit()?;
    good_client::detects()?;
    detects()?;
    let mut failures = 0;
    for Attack { name, victim, fill } in ATTACKS {
        let server = start(&["--memory-max", MEMORY_MAX]);
        let port = server.port();
        let (mut measured, ()) = beside(&server, *victim, |_| fill(port, effort), |_| Refusals::default());
        measured.refusals.add(probe(port, *victim));
        failures += usize::from(!measured.report(name, effort, MEMORY_BYTES_MAX));
    }
    match failures {
        0 => Ok(format!(
            "{} attacks, each with {PROBES} writes of others; refusals were detected",
            ATTACKS.len()
        )),
        _ => Err(format!("{failures} of {} attacks locked others out", ATTACKS.len())),
    }
}

fn start(options: &[&str]) -> Server {
    let users = users(["ann".to_owned(), "eve".to_owned()]);
    Server::start_with_file("users", &users, &[&["--users", "users"], options].concat())
}

fn victim_id(number: usize) -> String {
    format!("victim-{}", number % IDS)
}

/// Writes with the client ids that others have used, and with new ones.
fn probe(port: u16, origin: Origin) -> Refusals {
    let mut refusals = Refusals::default();
    for number in 0..PROBES {
        let id = if number % 2 == 0 { victim_id(number / 2) } else { format!("new-{number}") };
        refusals.note(set_once(origin, port, &id, &format!("probe/{}", number % IDS), "1", TIMEOUT));
    }
    refusals
}

/// Checks that refused writes are noticed: the store has room for half of the keys.
fn detects() -> Result<(), String> {
    let server = start(&["--keys-max", "10"]);
    match probe(server.port(), ANN).is_empty() {
        false => Ok(()),
        true => Err("a store without room was not noticed".to_owned()),
    }
}

/// Sends SETs without acknowledging their responses, and leaves when all are applied.
fn leave_replies(origin: Origin, port: u16, client_id: &str, writes: usize) {
    let mut left = writes;
    while left > 0 {
        let count = left.min(WRITES_PER_CONNECTION);
        left -= count;
        let Ok((mut connection, _)) = Connection::accepted(origin, port, client_id, true, TIMEOUT) else {
            return;
        };
        let mut bytes = Vec::new();
        for number in 0..count {
            let payload = Verb::Set("x".to_owned()).encode(&format!("fill/{}", number % IDS));
            let (packet_id, correlation) =
                (u16::try_from(number + 1).unwrap(), (left + number).to_be_bytes());
            bytes.extend(request_packet(client_id, "unread", packet_id, &correlation, payload, false));
        }
        let _ = connection.send(&bytes);
        let _ = connection.stream().shutdown(Shutdown::Write);
        let _ = connection.stream().read_to_end(&mut Vec::new());
    }
}

fn foreign_ids(port: u16, _: Effort) {
    (0..IDS).for_each(|number| leave_replies(Origin::at(2), port, &victim_id(number), WRITES_PER_ID));
}

fn ids_of_another_user(port: u16, _: Effort) {
    (0..IDS).for_each(|number| leave_replies(EVE, port, &victim_id(number), WRITES_PER_ID));
}

fn many_ids(port: u16, effort: Effort) {
    for number in 0..effort.pick(20, 60) {
        leave_replies(Origin::at(2), port, &format!("filler-{number}"), WRITES_PER_CONNECTION);
    }
}

fn fifteen_addresses(port: u16, effort: Effort) {
    thread::scope(|scope| {
        for address in 2..=16 {
            scope.spawn(move || {
                for number in 0..effort.pick(2, 20) {
                    let id = format!("filler-{address}-{number}");
                    leave_replies(Origin::at(address), port, &id, WRITES_PER_CONNECTION);
                }
            });
        }
    });
}

/// Most of them stay connected.
fn idle_clients(port: u16, effort: Effort) {
    let mut connected = Vec::new();
    for number in 0..effort.pick(5_000, 9_000) {
        let mut client = Client::new(&format!("idle-{number}"), port);
        let response = client.request(&format!("idle/{}", number % IDS), &Verb::Set("x".to_owned()), TIMEOUT);
        if response.is_ok_and(|response| response.reply == Reply::Done) && number % 5 != 0 {
            connected.push(client);
        }
    }
}
