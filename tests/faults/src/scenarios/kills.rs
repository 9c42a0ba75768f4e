//! SIGKILL under load: every acknowledged write is there after the restart, in both modes of persistence.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::client::{Client, Connection, Origin, Reply, Response, Verb, Version, request_packet};
use crate::effort::Effort;
use crate::random::Random;
use crate::server::Server;
use crate::wire::{self, Publish};

const WRITERS: u64 = 3;
const KEYS_PER_WRITER: u64 = 40;
/// Requests in flight per writer.
const WINDOW: u64 = 16;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A SET or a DEL of one key.
#[derive(Clone, Debug)]
struct Write {
    /// The value of a SET.
    value: Option<String>,
    is_acknowledged: bool,
    version: Option<Version>,
}

/// The writes of each key since the last check, in order; the first one is the state at that check.
type Writes = BTreeMap<String, Vec<Write>>;

pub fn run(effort: Effort) -> Result<String, String> {
    detects_a_loss()?;
    let rounds = effort.pick(12, 400);
    let (mut acknowledged, mut interrupted) = (0, 0);
    for persist in [&["--data", "data"][..], &["--data", "data", "--persist", "custom"]] {
        let mut server = Server::start(persist);
        let mut writes = Writes::new();
        for round in 0..rounds {
            let mut random = Random::new(round);
            write(server.port(), round, &mut writes, |_| {
                thread::sleep(Duration::from_millis(10 + random.below(140)));
                server.kill();
            });
            server.start_again();
            acknowledged += count(&writes, true);
            interrupted += count(&writes, false);
            check(server.port(), &mut writes).map_err(|error| format!("round {round}: {error}"))?;
        }
    }
    if acknowledged < rounds * 100 || interrupted == 0 {
        return Err(format!("only {acknowledged} acknowledged and {interrupted} interrupted writes"));
    }
    Ok(format!(
        "{} kills, {acknowledged} acknowledged writes, none lost ({interrupted} were interrupted); a store that goes back \
         to earlier files was detected",
        2 * rounds
    ))
}

fn count(writes: &Writes, acknowledged: bool) -> u64 {
    let of_key = |writes: &Vec<Write>| {
        writes.iter().skip(1).filter(|write| write.is_acknowledged == acknowledged).count() as u64
    };
    writes.values().map(of_key).sum()
}

/// Writes from several clients until `kill` has returned, which has the number of acknowledged writes as its argument.
fn write(port: u16, round: u64, writes: &mut Writes, kill: impl FnOnce(&AtomicU64)) {
    let acknowledged = &AtomicU64::new(0);
    thread::scope(|scope| {
        let start = |writer| scope.spawn(move || write_until_lost(port, writer, round, acknowledged));
        let writers: Vec<_> = (0..WRITERS).map(start).collect();
        kill(acknowledged);
        for writer in writers {
            for (key, new) in writer.join().unwrap() {
                let begin = Write { value: None, is_acknowledged: true, version: None };
                writes.entry(key).or_insert_with(|| vec![begin]).extend(new);
            }
        }
    });
}

/// Keeps requests in flight until the connection is lost.
fn write_until_lost(port: u16, writer: u64, round: u64, acknowledged: &AtomicU64) -> Writes {
    let id = format!("writer{writer}");
    let (mut writes, mut random) = (Writes::new(), Random::new(round ^ (writer << 32)));
    let accepted = Connection::accepted(Origin::HERE, port, &id, false, TIMEOUT);
    let Ok((mut connection, _)) = accepted else { return writes };
    let topic = format!("clients/{id}/response");
    let _ = connection.send(&wire::subscribe(1, &topic));
    let (mut sent, mut answered) = (0_u64, 0_u64);
    loop {
        let mut output = Vec::new();
        while sent < answered + WINDOW {
            let key = format!("{id}/k{}", sent % KEYS_PER_WRITER);
            let value = (!random.one_in(6)).then(|| format!("{round}-{sent}"));
            let verb = value.clone().map_or(Verb::Del, Verb::Set);
            let packet_id = u16::try_from(2 + sent % 50_000).unwrap();
            let correlation = sent.to_be_bytes();
            output.extend(request_packet(&id, &topic, packet_id, &correlation, verb.encode(&key), true));
            writes.entry(key).or_default().push(Write { value, is_acknowledged: false, version: None });
            sent += 1;
        }
        if !output.is_empty() && connection.send(&output).is_err() {
            return writes;
        }
        let Ok(packet) = connection.receive(Instant::now() + TIMEOUT) else { return writes };
        if packet.name() == "PUBLISH" {
            let publish = Publish::decode(&packet);
            let _ = connection.send(&wire::puback(publish.packet_id, 0));
            let number = u64::from_be_bytes(publish.correlation.as_slice().try_into().unwrap());
            let response = Response::decode(&publish);
            assert!(matches!(response.reply, Reply::Done | Reply::Number(0 | 1)), "{response:?}");
            let of_key = writes.get_mut(&format!("{id}/k{}", number % KEYS_PER_WRITER)).unwrap();
            let write = &mut of_key[usize::try_from(number / KEYS_PER_WRITER).unwrap()];
            write.is_acknowledged = true;
            write.version = response.version.filter(|_| write.value.is_some());
            answered += 1;
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Checks that each key is as after its last acknowledged write or a later one; then forgets the earlier ones.
fn check(port: u16, writes: &mut Writes) -> Result<(), String> {
    let mut client = Client::new("checker", port);
    for (key, writes) in writes {
        let found = client.request(key, &Verb::Get, TIMEOUT).map_err(|_| "no answer".to_owned())?;
        let value = match &found.reply {
            Reply::Value(value) => Some(value.clone()),
            Reply::Absent => None,
            other => return Err(format!("{key}: {other:?}")),
        };
        let last = writes.iter().rposition(|write| write.is_acknowledged).unwrap_or(0);
        let is_as_after = |write: &Write| {
            write.value == value && (write.version.is_none() || write.version == found.version)
        };
        if !writes[last..].iter().any(is_as_after) {
            return Err(format!("{key} is {found:?}, and was acknowledged as {:?}", writes[last]));
        }
        *writes = vec![Write { value, is_acknowledged: true, version: found.version }];
    }
    Ok(())
}

/// Checks that a loss of acknowledged writes is detected: the server starts with files of an earlier moment.
fn detects_a_loss() -> Result<(), String> {
    let mut server = Server::start(&["--data", "data"]);
    let mut writes = Writes::new();
    let data = server.folder().join("data");
    let earlier = server.folder().join("earlier");
    write(server.port(), 0, &mut writes, |acknowledged| {
        wait_for_more(acknowledged);
        // Files of one moment: nothing is written meanwhile.
        server.signal(Signal::SIGSTOP);
        copy(&data, &earlier);
        server.signal(Signal::SIGCONT);
        wait_for_more(acknowledged);
        server.kill();
    });
    fs::remove_dir_all(&data).unwrap();
    copy(&earlier, &data);
    server.start_again();
    match check(server.port(), &mut writes) {
        Err(_) => Ok(()),
        Ok(()) => Err("a store that goes back to earlier files was not detected".to_owned()),
    }
}

/// Waits until as many more writes are acknowledged as can be on their way, twice.
fn wait_for_more(acknowledged: &AtomicU64) {
    let goal = acknowledged.load(Ordering::Relaxed) + 2 * WRITERS * WINDOW;
    let deadline = Instant::now() + TIMEOUT;
    while acknowledged.load(Ordering::Relaxed) < goal && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Copies a directory; holes in files stay holes.
pub fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}
