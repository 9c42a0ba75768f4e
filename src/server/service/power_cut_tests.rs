//! The power goes, again and again, in the middle of whatever the disk does: what was acknowledged is there afterwards,
//! nothing is there that was not written, and no version goes back. A disk that ignores_syncs is caught by the same checks.

use std::collections::{BTreeMap, HashMap};

use super::tests::{Notes, del, get, message, set_with, version};
use super::writer::Work;
use super::*;
use crate::protocol::{Condition, Key, Reply};
use crate::server::storage::WalPolicy;
use crate::server::storage::simulated::{SeededRandom, SimulatedDisk};
use crate::store::Version;

/// What a key holds, as far as it can be compared.
type Held = (Version, Bytes, Option<Timestamp>);
/// One that is made soon, and is soon full.
const LOG: WalPolicy = WalPolicy { commits_before: 3, bytes: 128 * 1024 };

/// What is kept.
type Kept = BTreeMap<Key, Held>;

/// A store on a disk that loses its power now and then.
struct World {
    random: SeededRandom,
    disk: SimulatedDisk,
    keeps_all: bool,
    /// What must be there, and what may be there instead, all of it: a commit that was not over when the power went.
    acknowledged: Kept,
    unfinished: Option<Kept>,
    /// The last version that a client has seen of each key that was kept.
    seen: HashMap<Key, Version>,
    wall_ms: u64,
    figures: Figures,
}

/// What has been tried, so that nobody takes nothing for a success.
#[derive(Debug, Default)]
struct Figures {
    cuts: u64,
    commits: u64,
    acknowledged: u64,
    /// How many cuts came while the file was opened.
    early: u64,
    /// How often a commit that was cut short was there afterwards.
    finished: u64,
    failures: u64,
    recoveries: u64,
    /// How often the tables needed a log to be as acknowledged.
    logged: u64,
    /// How often the log was full.
    emptied: u64,
    /// How often the process was killed, and the power stayed.
    kills: u64,
    /// How often there was an orderly end, or the beginning of one.
    ends: u64,
}

/// A time between two cuts.
struct Life {
    service: Arc<Service>,
    journal: Storage,
    notes: Notes,
    now: Now,
}

impl World {
    fn new(seed: u64, keeps_all: bool, ignores_syncs: bool) -> Self {
        let disk = SimulatedDisk::default();
        disk.set_faults(|faults| faults.ignores_syncs = ignores_syncs);
        Self {
            random: SeededRandom::new(seed),
            disk,
            keeps_all,
            acknowledged: Kept::new(),
            unfinished: None,
            seen: HashMap::new(),
            wall_ms: 1_700_000_000_000,
            figures: Figures::default(),
        }
    }

    /// One life, from what the last cut has left to the next one.
    fn live(&mut self) -> Result<(), String> {
        // Every fourth power cut may come while the file is made, or put in order after the last one.
        let cut_after =
            if self.random.below(4) == 0 { self.random.below(200) } else { self.random.below(1_200) };
        let is_early = cut_after < 200;
        self.disk.set_faults(|faults| faults.cut_after = is_early.then_some(cut_after));
        let mut life = match self.begin() {
            Err(_) if self.disk.is_off() => {
                self.end(true);
                self.figures.early += 1;
                return Ok(());
            }
            other => other?,
        };
        self.disk.set_faults(|faults| faults.cut_after = faults.cut_after.or(Some(cut_after)));
        while !self.disk.is_off() {
            self.draw_faults();
            (0..=self.random.below(8)).for_each(|_| self.ask(&mut life));
            self.commit(&mut life);
            if self.random.below(300) == 0 {
                self.figures.ends += 1;
                let is_believed = !life.journal.must_rewrite();
                let _ = life.journal.close();
                self.end(is_believed);
                return Ok(());
            }
        }
        // What a failed sync has left in memory is not known to who comes after a kill.
        let is_believed = !life.journal.must_rewrite();
        drop(life);
        self.end(is_believed);
        Ok(())
    }

    /// The power goes, or the process alone.
    fn end(&mut self, may_be_killed: bool) {
        self.figures.cuts += 1;
        if may_be_killed && self.random.below(3) == 0 {
            self.figures.kills += 1;
            self.disk = self.disk.after_kill();
        } else {
            self.disk = self.disk.after_power_cut(&mut self.random);
        }
    }

    /// Opens what the cut has left, and checks it.
    fn begin(&mut self) -> Result<Life, String> {
        // The clock may have gone back meanwhile.
        self.wall_ms = (self.wall_ms + self.random.below(20_000)).saturating_sub(5_000);
        let now = Now { wall_ms: self.wall_ms, monotonic_ms: 0 };
        let journal = Storage::open_files(Box::new(self.disk.clone()), LOG)
            .map_err(|error| format!("cannot be opened: {error}"))?;
        let mut kept = Kept::new();
        let each = |key, version, content: crate::store::StoredValue| {
            drop(kept.insert(key, (version, content.value, content.fence)));
        };
        journal.load(now, each).map_err(|error| format!("cannot be read: {error}"))?;
        self.figures.logged += u64::from(journal.wal_groups().is_some_and(|groups| groups > 0));
        let has_finished = self.unfinished.as_ref() == Some(&kept);
        if !has_finished && kept != self.acknowledged {
            return Err(difference(&self.acknowledged, self.unfinished.as_ref(), &kept));
        }
        self.figures.finished += u64::from(has_finished && kept != self.acknowledged);
        (self.acknowledged, self.unfinished) = (kept, None);
        let greatest = self.seen.values().copied().max().unwrap_or_default();
        if journal.metadata().greatest_version < greatest {
            return Err(format!(
                "the greatest version went back from {greatest:?} to {:?}",
                journal.metadata().greatest_version
            ));
        }
        let reading = clock::Reading { wall_ms: self.wall_ms, monotonic: clock::monotonic() };
        let settings = StoreSettings::default();
        let service = Service::with_journal(
            &settings,
            self.keeps_all,
            Some(journal),
            Arc::new(|_| {}),
            Arc::default(),
            reading,
        );
        let service = service.map_err(|error| error.to_string())?;
        let journal = service.journal.lock().unwrap().take().unwrap();
        Ok(Life { service, journal, notes: Notes::default(), now })
    }

    /// Now and then the disk is full, or a sync fails.
    fn draw_faults(&mut self) {
        let (kind, room) = (self.random.below(40), self.random.below(6) * 100_000);
        self.disk.set_faults(|faults| match kind {
            0 => faults.fails_next_sync = true,
            1 => faults.bytes_max = Some(room),
            2..10 => faults.bytes_max = None,
            _ => {}
        });
    }

    fn ask(&mut self, life: &mut Life) {
        life.now.wall_ms += self.random.below(3);
        life.now.monotonic_ms += 1;
        self.wall_ms = life.now.wall_ms;
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
        let call = StoreRequest {
            connection: ConnectionId(1),
            permissions: None,
            client_id: "client".into(),
            request: request.clone(),
            timestamp: Some(Ok(Timestamp::of_store(life.now.wall_ms + self.random.below(50), 0))),
            fence: (self.random.below(3) == 0).then(|| Ok(Timestamp::of_store(life.now.wall_ms, 1))),
            persist: self.keeps_all || self.random.below(2) == 0,
        };
        let message = message(&request);
        // The answer says what it was about.
        let (verb, since) = (Verb::Set, clock::monotonic());
        let correlation = message.correlation.clone().unwrap();
        let asker = Asker { response_topic: name, correlation, verb, since };
        life.service.lock().answer(&life.notes, call, asker, &message, life.now);
        // What need not wait is of keys that are not kept.
        life.notes.take();
    }

    fn commit(&mut self, life: &mut Life) {
        let work = {
            let mut state = life.service.lock();
            let greatest = state.engine.greatest_version();
            let fetched = state.backlog.as_mut().unwrap().fetch();
            let Some((changes, ticket)) = fetched else { return };
            Work { changes, ticket, greatest }
        };
        let after = kept(life);
        self.unfinished = Some(after.clone());
        let begun = self.acknowledged.clone();
        let logged = life.journal.wal_groups();
        if life.service.commit(&mut life.journal, &work, life.now, &life.notes) {
            self.figures.emptied += u64::from(logged > life.journal.wal_groups());
            self.figures.commits += 1;
            self.acknowledged = after;
            self.unfinished = None;
            let sent =
                life.notes.take().into_iter().filter(|(to, _)| to.is_none()).map(|(_, message)| message);
            for answer in sent.filter(|answer| Reply::decode(&answer.payload) != Ok(Reply::Absent)) {
                if let Some(version) = answer.user_property(TIMESTAMP).map(|_| version(&answer)) {
                    let key = Key::new(answer.topic.clone()).unwrap();
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
            return;
        }
        assert!(kept(life) == begun, "what was refused has not happened");
        life.notes.take();
        self.figures.failures += 1;
        while !self.disk.is_off() {
            // While it does not work, the rest goes on, and nothing that is kept is changed.
            self.ask(life);
            self.disk.set_faults(|faults| faults.bytes_max = faults.bytes_max.map(|room| room + 200_000));
            if life.service.try_again(&mut life.journal, life.now).is_ok() {
                assert!(kept(life) == begun, "nothing was taken meanwhile");
                self.unfinished = None;
                self.figures.recoveries += 1;
                return;
            }
        }
    }
}

fn kept(life: &Life) -> Kept {
    let (kept, next) = life.service.lock().engine.persistent_from(0, usize::MAX);
    assert_eq!(next, None);
    let held = |(key, version, content): crate::store::PersistentEntry| {
        (key, (version, content.value, content.fence))
    };
    kept.into_iter().map(held).collect()
}

fn difference(acknowledged: &Kept, unfinished: Option<&Kept>, found: &Kept) -> String {
    let lost = acknowledged.iter().filter(|(key, held)| found.get(*key) != Some(*held)).count();
    let never = found.iter().filter(|(key, held)| {
        acknowledged.get(*key) != Some(*held) && unfinished.is_none_or(|kept| kept.get(*key) != Some(*held))
    });
    let never = never.count();
    format!("of {} keys {lost} are not as acknowledged, {never} are as they never were", acknowledged.len())
}

/// So many cuts of many worlds, each of some; every other world keeps only what is asked for.
fn cut(cuts: u64) {
    const CUTS_OF_A_WORLD: u64 = 20;
    let mut sum = Figures::default();
    for seed in 0..cuts.div_ceil(CUTS_OF_A_WORLD) {
        let mut world = World { figures: sum, ..World::new(seed, seed % 2 == 0, false) };
        for cut in 0..CUTS_OF_A_WORLD {
            world.live().unwrap_or_else(|error| panic!("seed {seed}, after cut {cut}: {error}"));
        }
        world.begin().unwrap_or_else(|error| panic!("seed {seed}, after the last cut: {error}"));
        sum = world.figures;
    }
    println!("{sum:?}");
    assert!(sum.cuts >= cuts && sum.commits > cuts && sum.acknowledged > sum.commits, "{sum:?}");
    assert!(sum.logged > cuts / 3 && sum.emptied > cuts / 10, "{sum:?}");
    assert!(sum.kills > cuts / 5 && sum.ends > cuts / 10, "{sum:?}");
    assert!(
        sum.early > cuts / 20 && sum.finished > 0 && sum.failures > cuts / 10 && sum.recoveries > cuts / 10,
        "{sum:?}"
    );
}

#[test]
fn two_hundred_power_cuts_lose_nothing_that_was_acknowledged() {
    cut(200);
}

#[test]
#[ignore = "takes its time: see CONTRIBUTING.md"]
fn a_thousand_power_cuts_lose_nothing_that_was_acknowledged() {
    cut(1_000);
}

#[test]
fn a_disk_that_only_says_that_it_has_synced_is_caught() {
    let caught = (0..10).filter(|seed| {
        let mut world = World::new(*seed, true, true);
        (0..5).any(|_| world.live().is_err())
    });
    assert!(caught.count() >= 9, "the checks see what is lost");
}
