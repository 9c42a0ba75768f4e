//! A leaf with the permissions of a leaf sends frames with ids of changes that are not its own, or that it has used before:
//! no change of another leaf is lost without a conflict, and all nodes have the same values in the end.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::star::Star;
use crate::client::{Client, Connection, Origin, Reply, Verb};
use crate::effort::Effort;
use crate::wire::{self, Publish};

const TIMEOUT: Duration = Duration::from_secs(60);
/// The root answers a proposal at once, or never.
const DECISION_WITHIN: Duration = Duration::from_secs(2);
const CONVERGED_WITHIN: Duration = Duration::from_secs(10);
const FORGER: &str = "leaf-forger";
/// The run of the forger's process, its data folder, and its sequence of changes.
const RUN: u64 = 0xF0F0_F0F0_F0F0_F0F0;
/// The number of the honest leaf among the nodes of the star.
const HONEST: usize = 1;

pub fn run(effort: Effort) -> Result<String, String> {
    let forgeries = effort.pick(20, 100);
    let star = Star::start(0)?;
    let mut honest =
        Honest { star: &star, client: Client::new("honest", star.port(HONEST)), writes: Vec::new() };
    detects(&mut honest)?;
    let mut forger = Forger { port: star.port(0), links: 0 };

    // The honest leaf is linked, and gets some of the forged records before its own change.
    let changes = honest.forged(forgeries, "linked")?;
    forger.propose(&changes)?;
    changes.iter().try_for_each(|change| honest.set(&change.key, "honest"))?;
    star.settle_leaves()?;

    // It is offline.
    let reused = |change: u128, value: &'static str| -> Result<Vec<Change>, String> {
        let change = |number| {
            let key = format!("k/reused-{number}");
            let base = if value == "one" { 0 } else { id_at_root(&star, &key)? };
            Ok(Change { key, id: u128::from(RUN) << 64 | (2 * number as u128 + change), base, value })
        };
        (0..forgeries).map(change).collect()
    };
    forger.propose(&reused(1, "one")?)?;
    let changes = honest.forged(forgeries, "offline")?;
    star.take_link_down(HONEST);
    forger.propose(&changes)?;
    forger.propose(&reused(2, "two")?)?;
    forger.propose(&reused(1, "three")?)?;
    changes.iter().try_for_each(|change| honest.set(&change.key, "honest"))?;
    star.mqkv(0, &["exchange", "drop-leaf", FORGER])?;
    star.settle()?;
    let converged = converge(&star);
    let conflicts = honest.check();
    if let (Err(different), Err(lost)) = (&converged, &conflicts) {
        return Err(format!("{different}\n  {lost}"));
    }
    converged?;
    let conflicts = conflicts?;
    Ok(format!(
        "{forgeries} ids of the next changes of a linked leaf, {forgeries} of an offline one, {forgeries} reused ids: {} changes, \
         {conflicts} of them conflicts; all nodes have the same values; a divergent leaf and a lost change were detected",
        honest.writes.len()
    ))
}

/// Waits until all nodes have the same values: a difference may be repaired after it was found.
fn converge(star: &Star) -> Result<(), String> {
    let deadline = Instant::now() + CONVERGED_WITHIN;
    loop {
        match star.check() {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(500)),
        }
    }
}

/// Returns the id of the last change of a key, as anyone can see it at the root.
fn id_at_root(star: &Star, key: &str) -> Result<u128, String> {
    let report = star.mqkv(0, &["exchange", "key", key])?;
    let digits = report.lines().find_map(|line| line.strip_prefix("change id:")).map(str::trim);
    let id = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
    id.ok_or_else(|| format!("no id in {report}"))
}

/// The leaf whose changes must not be lost.
struct Honest<'a> {
    star: &'a Star,
    client: Client,
    /// Keys and values.
    writes: Vec<(String, String)>,
}

impl Honest<'_> {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let response = self.client.request(key, &Verb::Set(value.to_owned()), TIMEOUT);
        if response.as_ref().map(|response| &response.reply) != Ok(&Reply::Done) {
            return Err(format!("SET at the honest leaf: {response:?}"));
        }
        self.star.acknowledged[HONEST].fetch_add(1, Ordering::SeqCst);
        self.writes.push((key.to_owned(), value.to_owned()));
        Ok(())
    }

    /// Returns changes with the ids that the next ones of this leaf will have, as anyone can who sees one at the root.
    fn forged(&mut self, count: usize, name: &str) -> Result<Vec<Change>, String> {
        let probe = format!("k/probe-{name}");
        self.set(&probe, "probe")?;
        self.star.settle_leaves()?;
        let last = id_at_root(self.star, &probe)?;
        let change = |number: usize| Change {
            key: format!("k/{name}-{number}"),
            id: last.wrapping_add(1 + number as u128),
            base: 0,
            value: "forged",
        };
        Ok((0..count).map(change).collect())
    }

    /// Checks that each write is in force, or reported as a conflict; returns the number of conflicts.
    fn check(&self) -> Result<usize, String> {
        let conflicts = self.star.mqkv(HONEST, &["exchange", "conflicts"])?;
        let mut root = Client::new("reader", self.star.port(0));
        let (mut refused, mut lost) = (0, Vec::new());
        for (key, value) in &self.writes {
            let response = root.request(key, &Verb::Get, TIMEOUT).map(|response| response.reply);
            if response == Ok(Reply::Value(value.clone())) {
                continue;
            }
            match conflicts.contains(&format!("\t{key}\t")) {
                true => refused += 1,
                false => lost.push(key.as_str()),
            }
        }
        match lost.as_slice() {
            [] => Ok(refused),
            _ => Err(format!("{} changes are lost without a conflict: {}", lost.len(), lost.join(", "))),
        }
    }
}

/// A change that the forger proposes.
struct Change {
    key: String,
    /// Run and counter.
    id: u128,
    /// The id of the change that it replaces; 0 is none.
    base: u128,
    value: &'static str,
}

impl Change {
    fn encode((change, seq): (&Self, u64)) -> Vec<u8> {
        let Self { key, id, base, value } = change;
        let flags = if *base == 0 { "+absent\r\n" } else { "+\r\n" };
        let (id, base) = (bulk(&id.to_be_bytes()), bulk(&base.to_be_bytes()));
        let (key, value, no_ttl) = (bulk(key.as_bytes()), bulk(value.as_bytes()), b"$-1\r\n".to_vec());
        // A root that knows the seven elements only ignores the last one.
        array(&[integer(seq), key, id, base, flags.into(), value, no_ttl.clone(), no_ttl])
    }
}

/// A leaf that is no `mqkv`.
struct Forger {
    port: u16,
    links: u64,
}

impl Forger {
    /// Proposes changes, at most 128, on a link of its own. The root may refuse them.
    fn propose(&mut self, changes: &[Change]) -> Result<(), String> {
        self.links += 1;
        self.try_propose(changes).map_err(|error| format!("the forger's link: {error}"))
    }

    fn try_propose(&self, changes: &[Change]) -> io::Result<()> {
        let client_id = format!("mqkv-exchange-{FORGER}-{RUN:016x}");
        let mut connection = Connection::accepted(Origin::HERE, self.port, &client_id, false, TIMEOUT)?.0;
        connection.send(&wire::subscribe(1, &format!("mqkv/exchange/v1/plant/down/{FORGER}")))?;
        connection.receive_type("SUBACK", Instant::now() + TIMEOUT)?;
        self.send(&mut connection, &self.hello())?;
        let welcome = receive(&mut connection, &["+WELCOME\r\n"], TIMEOUT)?;
        let last = applied(&welcome) + changes.len() as u64;
        let items: Vec<_> = changes.iter().zip(applied(&welcome) + 1..).map(Change::encode).collect();
        let frame = [b"+CHANGES\r\n".to_vec(), self.link(), integer(1), array(&items)];
        self.send(&mut connection, &array(&frame))?;
        // The last decision; without one the root has ended the link.
        let decisions = ["A", "X"].map(|decision| format!("+{decision}\r\n:{last}\r\n"));
        let _ = receive(&mut connection, &decisions.each_ref().map(String::as_str), DECISION_WITHIN);
        Ok(())
    }

    fn link(&self) -> Vec<u8> {
        bulk(&self.links.to_be_bytes())
    }

    fn hello(&self) -> Vec<u8> {
        let (run, zero, nothing) = (bulk(&RUN.to_be_bytes()), integer(0), bulk(&[0; 8]));
        let mut elements = vec![b"+HELLO\r\n".to_vec(), integer(1), bulk(b"plant"), bulk(FORGER.as_bytes())];
        // Store, run, link, stream; acked, cursor, last_ver; term, rules.
        elements.extend([run.clone(), run.clone(), self.link(), run]);
        elements.extend([
            zero.clone(),
            zero.clone(),
            zero.clone(),
            nothing.clone(),
            nothing,
            bulk(b"forger"),
        ]);
        // Oldest version, resync, horizon, last_seq, busy.
        elements.extend([integer(1), zero.clone(), zero.clone(), zero.clone(), zero]);
        array(&elements)
    }

    fn send(&self, connection: &mut Connection, payload: &[u8]) -> io::Result<()> {
        let topic = format!("mqkv/exchange/v1/plant/up/{FORGER}");
        let publish = Publish { topic, packet_id: 2, payload: payload.to_vec(), ..Publish::default() };
        connection.send(&publish.encode())
    }
}

/// Receives frames until one contains one of these parts.
fn receive(connection: &mut Connection, parts: &[&str], within: Duration) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + within;
    loop {
        let publish = Publish::decode(&connection.receive_type("PUBLISH", deadline)?);
        connection.send(&wire::puback(publish.packet_id, 0))?;
        let has = |part: &str| publish.payload.windows(part.len()).any(|window| window == part.as_bytes());
        if parts.iter().any(|part| has(part)) {
            return Ok(publish.payload);
        }
        if has("+REFUSED\r\n") {
            return Err(io::Error::other(String::from_utf8_lossy(&publish.payload).into_owned()));
        }
    }
}

/// Returns the last change of the forger that the root has decided: the third element of WELCOME, after two ids.
fn applied(welcome: &[u8]) -> u64 {
    let ids = 2 * bulk(&[0; 8]).len();
    let begin = welcome.windows(10).position(|window| window == b"+WELCOME\r\n").unwrap() + 10 + ids;
    let digits = welcome[begin + 1..].iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn integer(number: u64) -> Vec<u8> {
    format!(":{number}\r\n").into_bytes()
}

fn array(elements: &[Vec<u8>]) -> Vec<u8> {
    [format!("*{}\r\n", elements.len()).as_bytes(), &elements.concat()].concat()
}

/// Checks that a leaf with other values is detected, and a change that is replaced without a conflict.
fn detects(honest: &mut Honest<'_>) -> Result<(), String> {
    let star = honest.star;
    honest.set("k/lost", "honest")?;
    star.settle_leaves()?;
    star.take_link_down(HONEST);
    let response =
        Client::new("root", star.port(0)).request("k/lost", &Verb::Set("root".to_owned()), TIMEOUT);
    assert_eq!(response.map(|response| response.reply), Ok(Reply::Done));
    match (star.check(), honest.check()) {
        (Err(different), Err(lost)) if different.contains("differs") && lost.contains("k/lost") => {}
        other => return Err(format!("a divergent leaf or a lost change was not detected: {other:?}")),
    }
    honest.writes.clear();
    star.settle_leaves()
}
