//! Simulated power cuts and kills at random moments: every acknowledged change is there afterwards, nothing
//! is there that was not written, and no version goes back. The same checks find a disk that ignores syncs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use super::commit_thread;
use super::ledger_steps_for_tests::LedgerSteps;
use super::ledger_work;
use super::tests::{RecordingPublisher, SEEDS, del, get, message, peer, set_with, version};
use super::*;
use crate::clock;
use crate::ledger::file::simulated::{self, SeededRandom, SimulatedDisk};
use crate::ledger::{FileLedger, Policy, StorageError};
use crate::protocol::message::TIMESTAMP;
use crate::protocol::{Condition, ConnectionId, Key, Reply, Timestamp};
use crate::server::delivery::ReplyTo;
use crate::server::metrics::Verb;
use crate::store::{Now, StoreRequest, Version, WatchOptions};

/// What a key holds, without its deadline.
type KeyState = (Version, Bytes, Option<Timestamp>);
const POLICY: Policy = Policy { snapshot_bytes: 128 * 1024, ..simulated::POLICY };

/// All persistent keys.
type PersistentKeys = BTreeMap<Key, KeyState>;

/// A store whose disk loses power.
struct Scenario {
    random: SeededRandom,
    disk: SimulatedDisk,
    persists_all: bool,
    /// Whether it is full at times, and syncs fail.
    has_failing_disk: bool,
    /// The acknowledged state, which must be on disk.
    acknowledged: PersistentKeys,
    interrupted: Option<PersistentKeys>,
    /// The last version that a client has seen of each key, persistent or not.
    seen: HashMap<Key, Version>,
    wall_ms: u64,
    /// The latest time that the wall clock has shown.
    clock_ms: u64,
    figures: Figures,
}

/// Counts of the events of a run, to prove that each kind has occurred.
#[derive(Debug, Default)]
struct Figures {
    cuts: u64,
    commits: u64,
    acknowledged: u64,
    /// Power cuts while the files were opened.
    early: u64,
    /// Interrupted commits that were on disk afterwards.
    finished: u64,
    failures: u64,
    recoveries: u64,
    /// Starts that had to apply groups of the log.
    logged: u64,
    snapshots: u64,
    /// Snapshots that were given up because a commit has failed.
    cancelled: u64,
    /// Processes that ended after a failed sync.
    failed_ends: u64,
    /// Kills of the process without a power cut.
    kills: u64,
    /// Orderly ends, or attempts at one.
    ends: u64,
    /// Starts after a client was ahead.
    ahead: u64,
}

/// A process between two power cuts.
struct Process {
    service: Arc<Service>,
    storage: FileLedger,
    steps: LedgerSteps,
    sent_messages: RecordingPublisher,
    now: Now,
}

impl Scenario {
    fn new(seed: u64, persists_all: bool, ignores_syncs: bool) -> Self {
        let disk = SimulatedDisk::default();
        disk.set_faults(|faults| faults.ignores_syncs = ignores_syncs);
        Self {
            random: SeededRandom::new(seed),
            disk,
            persists_all,
            has_failing_disk: !seed.is_multiple_of(3),
            acknowledged: PersistentKeys::new(),
            interrupted: None,
            seen: HashMap::new(),
            wall_ms: 1_700_000_000_000,
            clock_ms: 0,
            figures: Figures::default(),
        }
    }

    /// Runs one process, from the state that the last power cut has left to the next one.
    fn run_process(&mut self) -> Result<(), String> {
        // Every fourth power cut may come while the files are created or repaired.
        let is_early = self.random.below(4) == 0;
        let cut_after = self.random.below(if is_early { 30 } else { 1_200 });
        self.disk.set_faults(|faults| faults.cut_after = is_early.then_some(cut_after));
        let mut process = match self.begin() {
            Err(_) if self.disk.is_off() => {
                self.end();
                self.figures.early += 1;
                return Ok(());
            }
            other => other?,
        };
        self.disk.set_faults(|faults| faults.cut_after = faults.cut_after.or(Some(cut_after)));
        while !self.disk.is_off() {
            self.draw_faults();
            (0..=self.random.below(8)).for_each(|_| self.request(&mut process));
            self.work(&mut process);
            self.commit(&mut process);
            self.work(&mut process);
            if self.random.below(300) == 0 {
                self.figures.ends += 1;
                process.close();
                self.end();
                return Ok(());
            }
            // It is killed while it recovers from a failed write or sync.
            if !process.storage.is_open() {
                break;
            }
        }
        self.figures.failed_ends += u64::from(!process.storage.is_open());
        self.figures.snapshots += process.steps.snapshots;
        self.figures.cancelled += process.steps.cancelled;
        drop(process);
        self.end();
        Ok(())
    }

    /// Cuts the power, or kills the process alone.
    fn end(&mut self) {
        self.figures.cuts += 1;
        if self.random.below(3) == 0 {
            self.figures.kills += 1;
            self.disk = self.disk.after_kill();
        } else {
            self.disk = self.disk.after_power_cut(&mut self.random);
        }
    }

    /// Starts a process and checks the state on disk.
    fn begin(&mut self) -> Result<Process, String> {
        // The wall clock may have gone back.
        self.wall_ms = (self.wall_ms + self.random.below(20_000)).saturating_sub(5_000);
        let now = Now { wall_ms: self.wall_ms, monotonic_ms: 0 };
        // The first ceiling follows it, also if the power is cut before the first request.
        self.clock_ms = self.clock_ms.max(self.wall_ms);
        self.disk.pass(self.random.below(10_000));
        let open = || {
            let ledger = FileLedger::open_on(Arc::new(self.disk.clone()), POLICY);
            ledger.map_err(|error| format!("cannot be opened: {error}"))
        };
        let mut storage = open()?;
        let mut found = PersistentKeys::new();
        let each = |key, version, content: crate::store::StoredValue| {
            drop(found.insert(key, (version, content.value, content.fence)));
        };
        let tombstones = storage.load(now, each).map_err(|error| format!("cannot be read: {error}"))?;
        self.figures.logged += u64::from(storage.log_bytes() > 0);
        // The service loads it again.
        let (metadata, storage) = (storage.metadata(), open()?);
        let has_finished = self.interrupted.as_ref() == Some(&found);
        if !has_finished && found != self.acknowledged {
            return Err(difference(&self.acknowledged, self.interrupted.as_ref(), &found));
        }
        self.figures.finished += u64::from(has_finished && found != self.acknowledged);
        (self.acknowledged, self.interrupted) = (found, None);
        let (ceiling, tombstones) = (metadata.ceiling, BTreeMap::from_iter(tombstones));
        for (key, seen) in &self.seen {
            let absent = || tombstones.get(key).copied().unwrap_or_default().max(ceiling);
            let on_disk = self.acknowledged.get(key).map_or_else(absent, |(version, ..)| *version);
            if on_disk < *seen {
                return Err(format!("the version of {key:?} went back from {seen:?} to {on_disk:?}"));
            }
        }
        // Each start behind an earlier clock takes one millisecond.
        let is_ahead = |version: Version| version.ms > self.clock_ms + 10_000 + self.figures.cuts;
        self.figures.ahead += u64::from(self.seen.values().any(|seen| is_ahead(*seen)));
        if is_ahead(ceiling) && !self.has_failing_disk {
            return Err(format!("all keys continue above {ceiling:?}, where a client was"));
        }
        // The process may commit a ceiling and be cut before its first request.
        self.clock_ms = self.clock_ms.max(self.wall_ms);
        let reading = clock::Reading { wall_ms: self.wall_ms, monotonic: clock::monotonic() };
        let settings = StoreSettings::default();
        let service = Service::with_storage(
            &settings,
            self.persists_all,
            Some(storage),
            Arc::new(|_| {}),
            Arc::default(),
            reading,
            SEEDS,
        );
        let service = service.map_err(|error| error.to_string())?;
        let storage = service.storage.lock().unwrap().take().unwrap();
        let (steps, sent_messages) = (LedgerSteps::default(), RecordingPublisher::default());
        Ok(Process { service, storage, steps, sent_messages, now })
    }

    /// Sometimes fills the disk or lets a sync fail.
    fn draw_faults(&mut self) {
        let (kind, room) = (self.random.below(40), self.random.below(6) * 100_000);
        if !self.has_failing_disk {
            return;
        }
        self.disk.set_faults(|faults| match kind {
            0 => faults.fails_next_sync = true,
            1 => faults.bytes_max = Some(room),
            2..10 => faults.bytes_max = None,
            _ => {}
        });
    }

    fn request(&mut self, process: &mut Process) {
        process.now.wall_ms += self.random.below(3);
        process.now.monotonic_ms += 1;
        self.wall_ms = process.now.wall_ms;
        self.clock_ms = self.clock_ms.max(self.wall_ms);
        let name = format!("k{}", self.random.below(40));
        let len = [3, 40, 700, 5_000][usize::try_from(self.random.below(4)).unwrap()];
        let value = format!("{}{}", self.random.below(1_000_000), "v".repeat(len));
        let request = match self.random.below(10) {
            0..5 => set_with(&name, &value, None, 0),
            5 => set_with(&name, &value, Some(Condition::Absent), 0),
            6 => set_with(&name, &value, None, 3_600_000),
            7..9 => del(&name),
            _ => get(&name),
        };
        // The clocks of some clients are ahead.
        let ahead_ms = if self.random.below(8) == 0 { 59_000 } else { 50 };
        let call = StoreRequest {
            connection: ConnectionId(1),
            permissions: None,
            client_id: "client".into(),
            owner: "client".into(),
            request: request.clone(),
            timestamp: Some(Ok(Timestamp::of_store(process.now.wall_ms + self.random.below(ahead_ms), 0))),
            fence: (self.random.below(3) == 0).then(|| Ok(Timestamp::of_store(process.now.wall_ms, 1))),
            encoded: None,
            refusal: None,
            watch: WatchOptions::default(),
            persist: self.persists_all || self.random.below(2) == 0,
        };
        let message = message(&request);
        // The response topic is the key, so that the response identifies its key.
        let (verb, received) = (Verb::Set, clock::monotonic());
        let correlation = message.correlation.clone().unwrap();
        let reply_to = ReplyTo { response_topic: name, correlation, verb, received, details: None };
        process.service.shared.lock().handle_request(
            &process.sent_messages,
            &peer(1),
            call,
            reply_to,
            &message,
            process.now,
        );
        // Only responses about keys in memory were sent.
        self.note_seen(process);
    }

    /// Checks the versions that were sent, and notes them.
    fn note_seen(&mut self, process: &Process) {
        let sent = process.sent_messages.take().into_iter().filter(|(to, _)| to.is_none());
        let answers = sent.map(|(_, message)| message);
        for answer in answers.filter(|answer| Reply::decode(&answer.payload) != Ok(Reply::Absent)) {
            if let Some(version) = answer.user_property(TIMESTAMP).map(|_| version(&answer)) {
                let key = Key::new(answer.topic.to_string()).unwrap();
                let version = Version { ms: version.ms, counter: version.counter };
                let seen = self.seen.entry(key).or_default();
                let is_new = Reply::decode(&answer.payload) == Ok(Reply::Done);
                assert!(
                    version > *seen || (version == *seen && !is_new),
                    "{version:?} goes back from {seen:?}"
                );
                *seen = version;
                self.figures.acknowledged += 1;
            }
        }
    }

    /// Does some of the work that another thread does.
    fn work(&mut self, process: &mut Process) {
        let Process { service, storage, steps, now, .. } = process;
        steps.step(&service.shared, storage, *now, self.random.below(4));
    }

    fn commit(&mut self, process: &mut Process) {
        let taken = process.service.shared.lock().take_group(process.now);
        let Some(group) = taken else { return };
        let after = persistent_keys(process);
        self.interrupted = Some(after.clone());
        let begun = self.acknowledged.clone();
        if commit_thread::commit(
            &process.service.shared,
            &mut process.storage,
            group,
            process.now,
            &process.sent_messages,
        ) {
            self.figures.commits += 1;
            self.acknowledged = after;
            self.interrupted = None;
            self.note_seen(process);
            return;
        }
        assert!(persistent_keys(process) == begun, "a failed commit is rolled back");
        process.sent_messages.take();
        self.figures.failures += 1;
        while !self.disk.is_off() {
            if !process.storage.is_open() && self.random.below(6) == 0 {
                return;
            }
            // While the disk fails, other requests continue, and no persistent key changes.
            self.request(process);
            self.disk.set_faults(|faults| faults.bytes_max = faults.bytes_max.map(|room| room + 200_000));
            if try_recover(process).is_ok() {
                assert!(persistent_keys(process) == begun, "no change was accepted meanwhile");
                self.interrupted = None;
                self.figures.recoveries += 1;
                return;
            }
        }
    }
}

impl Process {
    /// Ends in order, with a last snapshot if one is due.
    fn close(mut self) {
        let shared = &self.service.shared;
        if self.storage.is_snapshot_due_at_end()
            && let Ok(mut snapshot) = self.storage.begin_rewrite(self.now)
            && ledger_work::write_all(shared, &mut snapshot, |_| true).is_ok()
        {
            let _ = self.storage.finish_rewrite(snapshot);
        }
        self.storage.close();
    }
}

fn try_recover(process: &mut Process) -> Result<(), StorageError> {
    let Process { service, storage, now, sent_messages, .. } = process;
    commit_thread::try_recover(&service.shared, storage, sent_messages, *now)
}

fn persistent_keys(process: &Process) -> PersistentKeys {
    let (found, next) = process.service.shared.lock().store.persistent_from(0, usize::MAX, usize::MAX);
    assert_eq!(next, None);
    let state_of = |(key, version, content): crate::store::PersistentEntry| {
        (key, (version, content.value, content.fence))
    };
    found.into_iter().map(state_of).collect()
}

fn difference(
    acknowledged: &PersistentKeys,
    interrupted: Option<&PersistentKeys>,
    found: &PersistentKeys,
) -> String {
    let lost = acknowledged.iter().filter(|(key, state_of)| found.get(*key) != Some(*state_of)).count();
    let never = found.iter().filter(|(key, state_of)| {
        acknowledged.get(*key) != Some(*state_of)
            && interrupted.is_none_or(|found| found.get(*key) != Some(*state_of))
    });
    let never = never.count();
    format!("of {} keys {lost} are not as acknowledged, {never} are as they never were", acknowledged.len())
}

/// Cuts the power `cuts` times, in several stores; every other store persists only what requests ask for.
fn cut(cuts: u64, first_seed: u64) {
    const CUTS_OF_A_WORLD: u64 = 20;
    let mut sum = Figures::default();
    for seed in first_seed..first_seed + cuts.div_ceil(CUTS_OF_A_WORLD) {
        let mut scenario = Scenario { figures: sum, ..Scenario::new(seed, seed % 2 == 0, false) };
        for cut in 0..CUTS_OF_A_WORLD {
            scenario.run_process().unwrap_or_else(|error| panic!("seed {seed}, after cut {cut}: {error}"));
        }
        scenario.begin().unwrap_or_else(|error| panic!("seed {seed}, after the last cut: {error}"));
        sum = scenario.figures;
    }
    println!("{sum:?}");
    assert!(sum.cuts >= cuts && sum.commits > cuts && sum.acknowledged > sum.commits, "{sum:?}");
    assert!(sum.logged > cuts / 3 && sum.snapshots > cuts / 2 && sum.cancelled > 0, "{sum:?}");
    assert!(sum.failed_ends > cuts / 100, "{sum:?}");
    assert!(sum.kills > cuts / 5 && sum.ends > cuts / 10, "{sum:?}");
    assert!(sum.ahead > cuts / 4, "{sum:?}");
    assert!(
        sum.early > cuts / 20 && sum.finished > 0 && sum.failures > cuts / 10 && sum.recoveries > cuts / 10,
        "{sum:?}"
    );
}

#[test]
fn power_cuts_lose_no_acknowledged_change() {
    cut(250, 0);
}

/// `MQKV_POWER_CUTS` is another number of power cuts, `MQKV_POWER_CUTS_SEED` the first seed, of 20 power cuts each.
#[test]
#[ignore = "takes minutes: see CONTRIBUTING.md"]
#[expect(clippy::disallowed_methods, reason = "the variables are the test's own")]
fn more_power_cuts_lose_no_acknowledged_change() {
    let number = |name, default| std::env::var(name).map_or(default, |number| number.parse().unwrap());
    cut(number("MQKV_POWER_CUTS", 20_000), number("MQKV_POWER_CUTS_SEED", 0));
}

#[test]
fn a_disk_that_ignores_syncs_is_detected() {
    let detected = (0..10).filter(|seed| {
        let mut scenario = Scenario::new(*seed, true, true);
        (0..5).any(|_| scenario.run_process().is_err())
    });
    assert!(detected.count() >= 9, "the checks find the loss");
}
