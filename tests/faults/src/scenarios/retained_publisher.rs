//! A user publishes retained messages that match many filters of its offline sessions: others are served in time.

use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Connection, DISCONNECT, Origin, subscribe_all};
use crate::effort::Effort;
use crate::good_client::{self, MIB, Progress, Refusals, TIMEOUT, beside};
use crate::server::Server;
use crate::wire::Publish;

/// `--memory-max` has its default of 1 GiB.
const MEMORY_BYTES_MAX: u64 = (1024 + 128) * MIB;
const SESSIONS: usize = 100;
const FILTERS: usize = 1_000;
const LEVELS: usize = 10;
/// The median beside the publisher is at most so many times the quiet one, or below what other programs can cause.
const P50_QUIET_FACTOR: u32 = 10;
const P50_NOISE: Duration = Duration::from_millis(4);
const PUBLISHER: Origin = Origin::at(2);

pub fn run(effort: Effort) -> Result<String, String> {
    good_client::detects()?;
    let server = Server::start(&[]);
    let port = server.port();
    for session in 0..SESSIONS {
        leave_session(port, &format!("offline-{session}"));
    }
    let lasts = |_: &Progress| {
        thread::sleep(Duration::from_secs(effort.pick(3, 20)));
        Refusals::default()
    };
    let (measured, published) =
        beside(&server, Origin::HERE, |progress: &Progress| publish(port, progress), lasts);
    let name =
        format!("{published} retained messages for {SESSIONS} offline sessions with {FILTERS} filters");
    let is_in_time = measured.report(&name, effort, MEMORY_BYTES_MAX);
    // Each message delays a few requests, more of them than one in a hundred.
    let p50_max = (measured.quiet.p50 * P50_QUIET_FACTOR).max(P50_NOISE);
    match is_in_time && measured.beside.p50 <= p50_max {
        true if published > 0 => {
            Ok("others were served in time; a server that stands still was detected".to_owned())
        }
        true => Err("nothing was published".to_owned()),
        false => Err("the publisher slowed others down".to_owned()),
    }
}

/// Leaves a session whose filters all match the topic: each has `+` or `a` at each level.
fn leave_session(port: u16, client_id: &str) {
    let Ok((mut connection, _)) = Connection::accepted(PUBLISHER, port, client_id, true, TIMEOUT) else {
        return;
    };
    let filter = |number: usize| {
        let levels = (0..LEVELS).map(|level| if number >> level & 1 == 1 { "+" } else { "a" });
        levels.collect::<Vec<_>>().join("/")
    };
    let _ = connection.send(&subscribe_all(1, (0..FILTERS).map(filter)));
    let _ = connection.receive_type("SUBACK", Instant::now() + TIMEOUT);
    let _ = connection.send(&DISCONNECT);
}

/// Publishes retained messages, each when the one before is acknowledged; returns their number.
fn publish(port: u16, progress: &Progress) -> u64 {
    let Ok((mut connection, _)) = Connection::accepted(PUBLISHER, port, "publisher", false, TIMEOUT) else {
        return 0;
    };
    let topic = ["a"; LEVELS].join("/");
    let mut bytes = Publish { topic, packet_id: 1, payload: vec![b'x'], ..Publish::default() }.encode();
    bytes[0] |= 1;
    let mut published = 0;
    while !progress.is_over()
        && connection.send(&bytes).is_ok()
        && connection.receive_type("PUBACK", Instant::now() + TIMEOUT).is_ok()
    {
        published += 1;
    }
    published
}
