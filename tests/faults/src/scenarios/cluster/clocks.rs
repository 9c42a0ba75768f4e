//! Instances whose clocks are an hour ahead own nothing: the store answers, its versions are near the present, and no key
//! ends early.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;

use super::check_namespaces;
use super::processes::{self, BROKER_PORT, Cluster, wait_for};
use crate::client::{Client, Reply, Verb};
use crate::effort::Effort;
use crate::server::mqkv;

const HOUR_S: i32 = 3_600;
/// How far versions may be ahead: clocks that are further ahead count for nothing.
const AHEAD_MS_MAX: u64 = 60_000;
/// More than a lease, and the time after which an instance with a wrong clock is noticed.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// Longer than the lease of an owner.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(5);
/// Versions follow a clock that was set ahead after a minute.
const STEP_COUNTS_WITHIN: Duration = Duration::from_secs(90);
/// Longer than what the last case may leave the versions ahead: meanwhile the clocks that are right are behind the store's, and an
/// instance that is further ahead takes it over.
const AHEAD_AT_MOST: Duration = Duration::from_secs(100);
const CONTROL_PORT: u16 = 1884;

pub fn run(effort: Effort) -> Result<String, String> {
    check_namespaces()?;
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(folder.path())?;
    detects(folder.path())?;
    let rounds = effort.pick(1, 5);
    let mut figures = Vec::new();
    for round in 0..rounds {
        if round > 0 {
            sleep(AHEAD_AT_MOST);
        }
        figures = play(&mut cluster, effort).map_err(|error| cluster.with_logs(error))?;
    }
    Ok(format!(
        "{rounds} rounds, the last: {}; a version and an end that are wrong were detected",
        figures.join("; ")
    ))
}

/// Plays all cases, also after one that fails.
fn play(cluster: &mut Cluster, effort: Effort) -> Result<Vec<String>, String> {
    let mut cases = vec![
        ("a follower an hour ahead", a_follower_joins(cluster)),
        ("an owner that starts an hour ahead", the_owner_starts_ahead(cluster)),
    ];
    if effort == Effort::Long {
        cases.push(("an owner whose clock is set", the_clock_of_the_owner_is_set(cluster)));
    }
    // Last: two of three clocks that agree may be believed, and leave versions ahead.
    cases.push(("followers 90 s ahead", a_key_expires(cluster, effort)));
    let named = |(name, result): (&str, Result<String, String>)| match result {
        Ok(text) => (format!("{name}: {text}"), false),
        Err(text) => (format!("{name}: {text}"), true),
    };
    let (texts, failed): (Vec<_>, Vec<_>) = cases.into_iter().map(named).unzip();
    if failed.contains(&true) { Err(texts.join("; ")) } else { Ok(texts) }
}

/// Returns the owner, once all instances serve: the wrong clock of an earlier case counts until its instance has started again, and
/// the majority would be wrong with another one.
fn settled_owner(cluster: &Cluster) -> Result<usize, String> {
    wait_for("an instance does not serve", || cluster.is_ready().then_some(()))?;
    wait_for("no instance owns the store", || cluster.owner())
}

/// An instance joins with a clock an hour ahead, then all others are killed.
fn a_follower_joins(cluster: &mut Cluster) -> Result<String, String> {
    let owner = settled_owner(cluster)?;
    let ahead = Cluster::STORES.into_iter().rfind(|store| *store != owner).unwrap();
    restart_with_clock(cluster, ahead, HOUR_S)?;
    sleep(Duration::from_secs(3));
    let others: Vec<_> = Cluster::STORES.filter(|store| *store != ahead).collect();
    for other in &others {
        cluster.processes[*other].end(Signal::SIGKILL);
    }
    answers_without(cluster, ahead, &others)
}

/// The owner is killed, and starts again with a clock an hour ahead, while the others run. One that starts alone has nothing to compare
/// its clock with: docs/scale-out.md.
fn the_owner_starts_ahead(cluster: &mut Cluster) -> Result<String, String> {
    let ahead = settled_owner(cluster)?;
    restart_with_clock(cluster, ahead, HOUR_S)?;
    answers_without(cluster, ahead, &[])
}

/// Leaves the store to the instance that is ahead, then starts the others, which have ended.
fn answers_without(cluster: &mut Cluster, ahead: usize, others: &[usize]) -> Result<String, String> {
    sleep(TAKEN_OVER_WITHIN);
    for other in others {
        cluster.processes[*other].start()?;
    }
    let waited = write_near_the_present();
    restart_with_clock(cluster, ahead, 0)?;
    let corrected = write_near_the_present();
    Ok(format!("answered after {:.1} s by others, {:.1} s once its clock is right", waited?, corrected?))
}

/// The clock of the owner is set an hour ahead, for so long that it counts.
fn the_clock_of_the_owner_is_set(cluster: &mut Cluster) -> Result<String, String> {
    let owner = settled_owner(cluster)?;
    cluster.processes[owner].set_clock(HOUR_S);
    let until = Instant::now() + STEP_COUNTS_WITHIN;
    while Instant::now() < until {
        write_near_the_present()?;
        sleep(Duration::from_millis(200));
    }
    restart_with_clock(cluster, owner, 0)?;
    write_near_the_present()?;
    Ok(format!("answered for {} s", STEP_COUNTS_WITHIN.as_secs()))
}

/// The owner is killed while those that may take over have clocks that are ahead.
fn a_key_expires(cluster: &mut Cluster, effort: Effort) -> Result<String, String> {
    let ttl = effort.pick(Duration::from_secs(12), Duration::from_secs(90));
    let owner = settled_owner(cluster)?;
    let others: Vec<_> = Cluster::STORES.filter(|store| *store != owner).collect();
    // The owner has the commit, so that its clock counts for the key.
    set_expiring(BROKER_PORT, ttl)?;
    let begun = Instant::now();
    for other in &others {
        restart_with_clock(cluster, *other, 90)?;
    }
    sleep(Duration::from_secs(3));
    cluster.processes[owner].end(Signal::SIGKILL);
    let taken_over = stays_until(BROKER_PORT, begun + ttl / 2);
    // If no other instance owns the store, the killed one does again.
    cluster.processes[owner].start()?;
    let restarted = stays_until(BROKER_PORT, begun + ttl - Duration::from_secs(1));
    for other in others {
        restart_with_clock(cluster, other, 0)?;
    }
    let answers = taken_over? + restarted?;
    match answers {
        0 => Err("no read was answered before the end of the key".to_owned()),
        _ => Ok(format!("a key with a time to live of {} s was in {answers} reads", ttl.as_secs())),
    }
}

fn start_with_clock(cluster: &mut Cluster, store: usize, offset_s: i32) -> Result<(), String> {
    cluster.processes[store].set_clock(offset_s);
    cluster.processes[store].start()
}

/// Kills an instance and starts it again: a clock that is set counts later.
fn restart_with_clock(cluster: &mut Cluster, store: usize, offset_s: i32) -> Result<(), String> {
    cluster.processes[store].end(Signal::SIGKILL);
    start_with_clock(cluster, store, offset_s)
}

/// Writes until it is answered; returns the seconds that it took.
fn write_near_the_present() -> Result<f64, String> {
    let begun = Instant::now();
    let ahead_ms = write(BROKER_PORT)?;
    match ahead_ms {
        ..=AHEAD_MS_MAX => Ok(begun.elapsed().as_secs_f64()),
        _ => Err(format!("a version is {} s ahead", ahead_ms / 1_000)),
    }
}

/// Sets a key; returns by how many milliseconds its version is ahead of this machine's clock.
fn write(port: u16) -> Result<u64, String> {
    let begun = Instant::now();
    let mut client = Client::new("clocks", port);
    loop {
        let response = client.request("clocks", &Verb::Set("x".to_owned()), Duration::from_secs(5));
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        match response {
            Ok(response) if response.reply == Reply::Done => {
                let (version_ms, _) = response.version.ok_or("a response without a version")?;
                return Ok(version_ms.saturating_sub(u64::try_from(now_ms).unwrap()));
            }
            _ if begun.elapsed() > ANSWERED_WITHIN => {
                return Err(format!("a SET was not answered: {response:?}"));
            }
            _ => {}
        }
    }
}

fn set_expiring(port: u16, ttl: Duration) -> Result<(), String> {
    let (broker, ttl) = (format!("mqtt://127.0.0.1:{port}"), format!("{}ms", ttl.as_millis()));
    let words = ["set", "expiring", "x", "--ttl", &ttl, "-q", "-b", &broker];
    let output = mqkv("/".as_ref(), &words).output().unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("set --ttl: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Reads the key until this time; returns how many reads were answered.
///
/// # Errors
/// The key is gone.
fn stays_until(port: u16, until: Instant) -> Result<u32, String> {
    let mut client = Client::new("reader", port);
    let mut answers = 0;
    while Instant::now() < until {
        let left = until.saturating_duration_since(Instant::now());
        match client.request("expiring", &Verb::Get, left.min(Duration::from_secs(1))) {
            Ok(response) if response.reply == Reply::Value("x".to_owned()) => answers += 1,
            Ok(response) => return Err(format!("the key has ended early: {:?}", response.reply)),
            Err(_) => {}
        }
        sleep(Duration::from_millis(50));
    }
    Ok(answers)
}

/// Checks that a key that ends early is detected, and versions an hour ahead, at a store of its own.
fn detects(folder: &Path) -> Result<(), String> {
    let mut store = processes::serve(folder, CONTROL_PORT)?;
    store.set_clock(0);
    store.start()?;
    write(CONTROL_PORT)?;
    set_expiring(CONTROL_PORT, Duration::from_millis(500))?;
    if stays_until(CONTROL_PORT, Instant::now() + Duration::from_secs(2)).is_ok() {
        return Err("a key that ends early was not detected".to_owned());
    }
    store.end(Signal::SIGKILL);
    store.set_clock(HOUR_S);
    store.start()?;
    match write(CONTROL_PORT)? {
        ..=AHEAD_MS_MAX => Err("a clock an hour ahead was not detected".to_owned()),
        _ => Ok(()),
    }
}
