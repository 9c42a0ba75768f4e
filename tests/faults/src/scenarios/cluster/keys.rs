//! A second instance joins a store with many keys: it is ready soon, and the owner answers meanwhile.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::check_namespaces;
use super::processes::{BROKER_PORT, Cluster, wait_for};
use crate::client::{Client, Reply, Verb};
use crate::effort::Effort;
use crate::server::mqkv;

const FIRST: usize = Cluster::STORES.start;
const SECOND: usize = FIRST + 1;
const TIMEOUT: Duration = Duration::from_secs(60);
/// With 500,000 keys, which took 4 to 7 s.
const READY_MAX: Duration = Duration::from_secs(10);
/// What is left of the owner's rate meanwhile.
const RATE_MIN: f64 = 0.5;
/// With a second instance that never starts, the wait for it is cut short.
const CONTROL_TIME: Duration = Duration::from_secs(1);

pub fn run(effort: Effort) -> Result<String, String> {
    check_namespaces()?;
    let keys = effort.pick(20_000, 500_000);
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::without_stores(folder.path())?;
    cluster.start_stores(FIRST..SECOND)?;
    load(folder.path(), keys)?;
    let loaded = wait_for("no key was loaded", || cluster.metric(FIRST, "mqkv_keys"))?;
    if loaded < keys as u64 {
        return Err(format!("{loaded} of {keys} keys are loaded"));
    }
    if ready_within(&cluster, CONTROL_TIME).is_some() {
        return Err("an instance that does not run was found to be ready".to_owned());
    }
    let begun = Instant::now();
    let (before, _) =
        rate_while(|| thread::sleep(effort.pick(Duration::from_secs(2), Duration::from_secs(10))));
    let (meanwhile, ready) = rate_while(|| {
        cluster.processes[SECOND].set_clock(0);
        cluster.processes[SECOND].start()?;
        let ready = ready_within(&cluster, TIMEOUT * 5);
        ready.ok_or_else(|| cluster.with_logs("the second instance does not get ready".to_owned()))
    });
    let ready = ready?;
    cluster.check_running()?;
    let figures = format!(
        "{keys} keys; a second instance was ready after {:.1} s; {before:.0} writes a second before, {meanwhile:.0} \
         meanwhile: {:.2} of them, {:.0} s in all",
        ready.as_secs_f64(),
        meanwhile / before,
        begun.elapsed().as_secs_f64(),
    );
    // A short run reads too little for figures that are of use.
    let is_late = effort == Effort::Long && (ready > READY_MAX || meanwhile < before * RATE_MIN);
    if is_late { Err(format!("TOO SLOW: {figures}")) } else { Ok(figures) }
}

fn load(folder: &Path, keys: usize) -> Result<(), String> {
    let line = |number| {
        format!(
            "{{\"v\":1,\"op\":\"export\",\"key\":\"load/{number}\",\"value\":\"value-{number}\",\"encoding\":\"utf-8\"}}\n"
        )
    };
    fs::write(folder.join("keys.jsonl"), (0..keys).map(line).collect::<String>()).unwrap();
    let broker = format!("mqtt://127.0.0.1:{BROKER_PORT}");
    let output = mqkv(folder, &["import", "keys.jsonl", "-q", "-b", &broker]).output().unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("import: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Waits until the second instance has all keys, and all commits that the first one had when this began; returns how long
/// that took.
fn ready_within(cluster: &Cluster, within: Duration) -> Option<Duration> {
    const METRICS: [&str; 2] = ["mqkv_keys", "mqkv_cluster_sequence"];
    let begun = Instant::now();
    let of = |store| METRICS.map(|name| cluster.metric(store, name));
    let first = of(FIRST);
    while of(SECOND).iter().zip(&first).any(|(second, first)| second.is_none() || second < first) {
        if begun.elapsed() > within {
            return None;
        }
        thread::sleep(Duration::from_millis(20));
    }
    Some(begun.elapsed())
}

/// Returns the answered writes a second of one client meanwhile.
fn rate_while<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let (written, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Client::new("writer", BROKER_PORT);
            while !is_over.load(Ordering::SeqCst) {
                let response = client.request("rate", &Verb::Set("x".to_owned()), TIMEOUT);
                let is_done = response.is_ok_and(|response| response.reply == Reply::Done);
                written.fetch_add(u64::from(is_done), Ordering::SeqCst);
            }
        });
        let worked = work();
        let rate = written.load(Ordering::SeqCst) as f64 / begun.elapsed().as_secs_f64();
        is_over.store(true, Ordering::SeqCst);
        (rate, worked)
    })
}
