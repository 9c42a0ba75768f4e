//! SIGKILL under load: every acknowledged write survives. The fault scenario `kills` has more of them.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;
use std::thread;

use super::common::{Place, Server, StreamedProcess};
use crate::a_watchdog::bounded;

const ROUNDS: usize = 5;
const LINES: usize = 2_000;
const KEYS: usize = 300;

#[test]
fn acknowledged_writes_survive_five_kills_under_load() {
    let place = Place::new();
    let mut server = Server::start(&place, &["-q", "--data", "kept"]);
    let mut kept = BTreeMap::new();
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        let mut command = place.command(&["-b", &server.url(), "batch", "-", "-j", "--retries", "0"]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let feed = thread::spawn(move || {
            for number in 0..LINES {
                if writeln!(input, "set k{} {round}-{number}", number % KEYS).is_err() {
                    return;
                }
            }
        });
        let batch = StreamedProcess::read(child);
        // The kill comes at another point in each round: before the first reply or after hundreds of them.
        let mut answers: Vec<_> = (0..round * 37 % 400).map(|_| batch.line()).collect();
        server.kill();
        let (rest, _, code) = batch.end();
        assert_ne!(code, Some(0), "the load was interrupted");
        answers.extend(rest);
        bounded(|| feed.join()).unwrap();
        for (number, answer) in
            answers.iter().filter(|answer| answer.contains("\"applied\":true")).enumerate()
        {
            let key = format!("k{}", number % KEYS);
            assert!(answer.contains(&format!("\"key\":\"{key}\"")), "{answer}");
            kept.insert(key, (round, number));
            acknowledged += 1;
        }
        server.start_again(&place, &["-q", "--data", "kept"]);
        check(&place, &server, &kept);
    }
    assert!(acknowledged > ROUNDS * 50, "only {acknowledged} acknowledged writes");
}

/// Checks that each key has its last acknowledged value or a later, unacknowledged one.
fn check(place: &Place, server: &Server, kept: &BTreeMap<String, (usize, usize)>) {
    let lines: String = kept.keys().map(|key| format!("get {key}\n")).collect();
    let mut command = place.command(&["-b", &server.url(), "batch", "-"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let feed = thread::spawn(move || input.write_all(lines.as_bytes()).unwrap());
    let output = bounded(|| child.wait_with_output()).unwrap();
    bounded(|| feed.join()).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let values = String::from_utf8(output.stdout).unwrap();
    let mut values = values.lines();
    for (key, (round, number)) in kept {
        let value = values.next().unwrap();
        let (of_round, of_number) =
            value.split_once('-').unwrap_or_else(|| panic!("{key} is lost: {value:?}"));
        let [of_round, of_number]: [usize; 2] = [of_round, of_number].map(|number| number.parse().unwrap());
        assert!(
            (of_round, of_number) >= (*round, *number),
            "{key} reverted from {round}-{number} to {value}"
        );
        assert_eq!(*key, format!("k{}", of_number % KEYS), "the value belongs to another key");
    }
}
