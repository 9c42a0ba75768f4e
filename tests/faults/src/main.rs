//! Fault scenarios against `mqkv serve`: `mqkv-faults [--long] [SCENARIO...]`.
//!
//! Each scenario also runs against a store that is broken on purpose, and fails if its checks do not detect it.

mod client;
mod effort;
mod good_client;
mod history;
mod proxy;
mod random;
mod scenarios;
mod server;
#[expect(dead_code, reason = "the tests of the binary use the rest")]
#[path = "../../it/common/wire.rs"]
mod wire;

#[path = "../../it/common/port.rs"]
mod port;

use std::process::ExitCode;
use std::time::Instant;

use effort::Effort;

type Scenario = fn(Effort) -> Result<String, String>;

const SCENARIOS: &[(&str, Scenario)] = &[
    ("linearizability", scenarios::linearizability::run),
    ("kills", scenarios::kills::run),
    ("power-cuts", scenarios::power_cuts::run),
    ("bit-flips", scenarios::bit_flips::run),
    ("hostile-clients", scenarios::hostile_clients::run),
    ("logins", scenarios::logins::run),
    ("one-shot", scenarios::one_shot::run),
    ("lock-out", scenarios::lock_out::run),
    ("budgets", scenarios::budgets::run),
    ("retained-publisher", scenarios::retained_publisher::run),
    ("half-open-tls", scenarios::half_open_tls::run),
    ("star", scenarios::star::run),
    ("forged-ids", scenarios::forged_ids::run),
];

/// Scenarios that run only if they are named: these need more than a binary.
const NAMED_SCENARIOS: &[(&str, Scenario)] = &[
    ("cluster", scenarios::cluster::run),
    ("cluster-keys", scenarios::cluster::keys::run),
    ("cluster-clocks", scenarios::cluster::clocks::run),
];

fn main() -> ExitCode {
    let (options, names): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let effort = if options.iter().any(|option| option == "--long") { Effort::Long } else { Effort::Short };
    let all = || SCENARIOS.iter().chain(NAMED_SCENARIOS);
    let is_known = |name: &String| all().any(|(known, _)| known == name);
    if options.iter().any(|option| option != "--long") || !names.iter().all(is_known) {
        let known: Vec<_> = all().map(|(name, _)| *name).collect();
        eprintln!("usage: mqkv-faults [--long] [SCENARIO...]\nscenarios: {}", known.join(", "));
        return ExitCode::from(2);
    }
    let mut failures = 0;
    let chosen = all().filter(|(name, _)| names.iter().any(|chosen| chosen == name));
    let chosen: Vec<_> = if names.is_empty() { SCENARIOS.iter().collect() } else { chosen.collect() };
    for (name, scenario) in chosen {
        let begun = Instant::now();
        let (word, text) = match scenario(effort) {
            Ok(text) => ("passed", text),
            Err(text) => {
                failures += 1;
                ("FAILED", text)
            }
        };
        println!("{name}: {word} in {:.1} s\n  {text}", begun.elapsed().as_secs_f64());
    }
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
