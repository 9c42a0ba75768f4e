//! Histories of clients of `mqkv store --etcd` are linearizable while processes are killed and paused, links go down,
//! and clocks jump. Needs root, and namespaces of its own: `.ci/cluster`.

pub mod clocks;
mod faults;
pub mod keys;
mod network;
mod processes;
mod traffic;

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use self::faults::{FAULTS, Fault};
use self::processes::{BROKER_PORT, Cluster, wait_for};
use self::traffic::{Figures, Traffic};
use crate::effort::Effort;
use crate::proxy::{Lie, Proxy};
use crate::random::Random;

const SEGMENT: Duration = Duration::from_secs(10);

/// Tests a cluster. `MQKV_SEED` repeats the faults of an earlier run, if not what the processes make of them, and
/// `MQKV_FAULT` chooses those whose name contains it.
pub fn run(effort: Effort) -> Result<String, String> {
    check_namespaces()?;
    let seed = match std::env::var("MQKV_SEED") {
        Ok(seed) => seed.parse().map_err(|_| format!("MQKV_SEED is no number: {seed}"))?,
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs(),
    };
    println!("cluster: seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(folder.path())?;
    for lie in [Lie::StaleRead, Lie::LostWrite, Lie::DoubleWrite] {
        detects(lie, seed)?;
    }
    let traffic = Traffic::start(BROKER_PORT, "faults", seed, SEGMENT);
    let until = Instant::now() + effort.pick(Duration::from_secs(150), Duration::from_hours(2));
    let (injected, figures) = (inject_until(until, &mut cluster, &traffic, seed), traffic.figures.clone());
    let faults = injected.and_then(|faults| traffic.end().map(|()| faults));
    let faults = faults.map_err(|failure| cluster.with_logs(format!("seed {seed}: {failure}")))?;
    let Figures { segments, operations, unknown, .. } = &*figures;
    Ok(format!(
        "{} segments with {} operations ({} with an unknown outcome) linearizable over {faults} faults; 3 of 3 lies \
         detected",
        segments.load(Ordering::SeqCst),
        operations.load(Ordering::SeqCst),
        unknown.load(Ordering::SeqCst),
    ))
}

/// Whatever is left when the program ends, the kernel ends with its namespaces.
fn check_namespaces() -> Result<(), String> {
    match std::process::id() {
        1 => Ok(()),
        _ => Err("it needs namespaces of its own: run .ci/cluster".to_owned()),
    }
}

/// Checks that a cluster with this defect is detected, without any fault.
fn detects(lie: Lie, seed: u64) -> Result<(), String> {
    let proxy = Proxy::start(BROKER_PORT, Some(lie), seed);
    let traffic = Traffic::start(proxy.port(), &format!("{lie:?}"), seed, Duration::from_secs(1));
    wait_for("", || traffic.has_failed().then_some(())).ok();
    match traffic.end() {
        Err(_) => Ok(()),
        Ok(()) => Err(format!("{lie:?} was not detected; {} lies", proxy.lies())),
    }
}

/// Injects each fault, in a random order, and again until the time is over. Returns their number.
fn inject_until(
    until: Instant,
    cluster: &mut Cluster,
    traffic: &Traffic,
    seed: u64,
) -> Result<usize, String> {
    let mut random = Random::new(seed);
    let mut faults = 0;
    loop {
        let chosen = std::env::var("MQKV_FAULT").unwrap_or_default();
        let mut order = FAULTS.to_vec();
        order.retain(|fault| fault.to_string().contains(&chosen));
        for last in (1..order.len()).rev() {
            order.swap(last, usize::try_from(random.below(last as u64 + 1)).unwrap());
        }
        for fault in order {
            inject(fault, cluster, traffic, &mut random).map_err(|error| format!("{fault}: {error}"))?;
            faults += 1;
        }
        if Instant::now() >= until {
            return Ok(faults);
        }
    }
}

/// Injects a fault and waits until the cluster answers again.
fn inject(fault: Fault, cluster: &mut Cluster, traffic: &Traffic, random: &mut Random) -> Result<(), String> {
    sleep(Duration::from_millis(500 + random.below(2_500)));
    wait_for("a store that was started again does not serve", || cluster.is_ready().then_some(()))?;
    let figures = &traffic.figures;
    let unknown_before = figures.unknown.load(Ordering::SeqCst);
    figures.begin_gap();
    let begun = Instant::now();
    let duration = fault.duration(random);
    let victims = fault.begin(cluster, random)?;
    sleep(duration);
    fault.end(cluster, &victims)?;
    let ended = Instant::now();
    let is_answered = || (figures.is_answered_since(ended) || traffic.has_failed()).then_some(());
    wait_for("no request is answered after the fault", is_answered)?;
    let names: Vec<_> = victims.iter().map(|victim| cluster.processes[*victim].name.as_str()).collect();
    println!(
        "  {:.1} to {:.1} s: {fault} ({}): {:.1} s without an answer, {} unknown outcomes",
        figures.seconds(begun),
        figures.seconds(ended),
        names.join(", "),
        figures.longest_gap().as_secs_f64(),
        figures.unknown.load(Ordering::SeqCst) - unknown_before,
    );
    cluster.check_running()?;
    if traffic.has_failed() { Err("a history is wrong".to_owned()) } else { Ok(()) }
}
