//! The simulated world: instances, clients, the network between them and etcd, and its faults.

pub mod clock_search;

use std::collections::{BTreeMap, BTreeSet};

use super::Mistake;
use super::application::Application;
use super::archive::{Allowance, Archive};
use super::etcd::Etcd;
use super::requests::{Ledger, Operation, Reply, Request, RequestId};
use crate::ledger::etcd::action::{Action, ActionId, ActionKind, ActionResult, WatchRange};
use crate::ledger::etcd::operation::{EtcdError, Operation as Change, Txn, WatchBatch, key_after};
use crate::ledger::etcd::{Head, Layout, MemberState, encode_request, encode_run};
use crate::ledger::file::simulated::SeededRandom;
use crate::protocol::Key;
use crate::server::cluster::{ClusterEvent, Effect, Instance, InstanceSettings, Role};
use crate::server::simulation::figures;
use crate::store::Now;

const WALL_MS: u64 = 1_700_000_000_000;
const NAMES: [&str; 3] = ["a", "b", "c"];
const CLIENTS: u64 = 4;
const KEYS: u64 = 5;
/// The time with faults, and the time after it in which all must work again: longer than an owner that was asked to resign leaves
/// the store to others, whose watches may both have lost that.
const FAULTS_MS: u64 = 12_000;
const CALM_MS: u64 = 14_000;
/// etcd's client reports an unknown outcome after this time.
const TIMEOUT_MS: u64 = 1_000;
const LEASE_MS: u64 = 2_000;
/// The time between two announcements of a clock.
const ANNOUNCEMENT_MS: u64 = 1_000;
/// A greater step of the machine's clock is not followed at once by the time of its store.
const STEP_MAX_MS: i64 = 60_000;

figures! {
    answers: 6_000, reads: 1_500, duplicates: 800, commits: 5_000, takeovers: 170, stops: 50,
    crashes: 150, pauses: 200, unreached: 60, cuts: 200, clock_jumps: 150, lost: 250, doubled: 80, compactions: 70,
    gaps: 10, reloads: 400, no_space: 20, pauses_of_owners: 5, served_again: 4, resignations: 50, handovers: 20, expired: 150,
    stale_reads: 15, clocks_off: 10,
}

enum Event {
    /// An operation arrives at etcd.
    Arrive {
        node: usize,
        run: u64,
        id: ActionId,
        kind: ActionKind,
        is_copy: bool,
    },
    Reply {
        node: usize,
        run: u64,
        id: ActionId,
        result: ActionResult,
    },
    /// A watch delivers what there is.
    Tick {
        node: usize,
        run: u64,
        id: ActionId,
    },
    EndWatch {
        node: usize,
        run: u64,
        id: ActionId,
    },
    Wake {
        node: usize,
        run: u64,
    },
    Request {
        node: usize,
        id: RequestId,
    },
    Answer {
        id: RequestId,
        reply: Reply,
    },
    /// A client sends its next request, or the one again that it waits for.
    Client {
        client: u64,
        waits_for: Option<RequestId>,
    },
    Leases,
    Fault,
    Start {
        node: usize,
    },
}

struct Running {
    instance: Instance,
    application: Application,
    run: u64,
    started_ms: u64,
    open: BTreeSet<ActionId>,
    /// Boot time: the monotonic clock counts from another moment in each run.
    monotonic_ms: u64,
    wake_ms: Option<u64>,
    /// What its time is ahead, or behind.
    wall_offset_ms: i64,
}

#[derive(Default)]
struct Node {
    running: Option<Running>,
    paused_until: u64,
    cut_until: u64,
    /// Clients do not reach it until then: it has no connection with the broker.
    unreached_until: u64,
    /// What the clock of the machine is ahead, or behind.
    wall_offset_ms: i64,
    announced_ms: u64,
    seen_ms: u64,
    /// The run that its member key has.
    member_run: u64,
    /// The last ownership.
    epoch: u64,
}

struct Watcher {
    range: WatchRange,
    next: u64,
    /// Whether a delivery is on its way.
    is_due: bool,
}

#[derive(Clone, Copy, Default)]
struct Client {
    waiting: Option<RequestId>,
    clock_offset_ms: i64,
}

/// The clocks that are hours off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wild {
    None,
    /// That of one instance.
    One(usize),
    All,
    /// None is off by hours, but that of one instance is set up to a minute ahead, and back.
    Steps(usize),
}

pub struct World {
    random: SeededRandom,
    pub ms: u64,
    order: u64,
    events: BTreeMap<(u64, u64), Event>,
    etcd: Etcd,
    archive: Archive,
    layout: Layout,
    ledger: Ledger,
    nodes: Vec<Node>,
    watchers: BTreeMap<(usize, u64, ActionId), Watcher>,
    /// Operations that etcd has refused for good: their copies are not applied later.
    refused: BTreeSet<(usize, u64, ActionId)>,
    clients: Vec<Client>,
    next_number: u64,
    next_run: u64,
    allowance: Allowance,
    /// The clocks of instances differ by hours.
    wild_clocks: Wild,
    /// etcd answers reads with earlier states.
    has_stale_reads: bool,
    has_space_faults: bool,
    is_calm: bool,
    is_quiet: bool,
    mistake: Option<Mistake>,
    /// Whether versions are ahead of the right time, if that is looked at.
    is_ahead: Option<bool>,
    pub figures: Figures,
    pub is_traced: bool,
}

impl World {
    pub fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        let mut random = SeededRandom::new(seed);
        let wild_clocks = match random.below(8) {
            0 => Wild::All,
            1 => Wild::One(usize::try_from(random.below(3)).unwrap()),
            _ => Wild::None,
        };
        let has_space_faults = random.below(4) == 0;
        Self {
            has_stale_reads: random.below(4) == 0,
            has_space_faults,
            wild_clocks,
            allowance: Allowance { no_space: has_space_faults },
            ms: 0,
            order: 0,
            events: BTreeMap::new(),
            etcd: Etcd::default(),
            archive: Archive::default(),
            layout: Layout::new("c"),
            ledger: Ledger::default(),
            nodes: NAMES.iter().map(|_| Node::default()).collect(),
            watchers: BTreeMap::new(),
            refused: BTreeSet::new(),
            clients: vec![Client::default(); usize::try_from(CLIENTS).unwrap()],
            next_number: 0,
            next_run: 0,
            is_calm: false,
            is_quiet: false,
            mistake,
            is_ahead: None,
            figures: Figures::default(),
            is_traced: false,
            random,
        }
    }

    /// Returns a world in which the clock of one instance is set ahead and back, while all processes run and reach etcd.
    pub fn with_clock_steps(seed: u64) -> Self {
        let mut world = Self::new(seed, None);
        let node = usize::try_from(world.random.below(3)).unwrap();
        (world.wild_clocks, world.has_space_faults) = (Wild::Steps(node), false);
        world
    }

    fn trace(&self, text: impl FnOnce() -> String) {
        if self.is_traced {
            println!("{:>6} {}", self.ms, text());
        }
    }

    fn below(&mut self, count: u64) -> u64 {
        self.random.below(count)
    }

    fn chance(&mut self, percent: u64) -> bool {
        !self.is_calm && self.below(100) < percent
    }

    fn at(&mut self, ms: u64, event: Event) {
        self.order += 1;
        self.events.insert((ms.max(self.ms), self.order), event);
    }

    fn after(&mut self, delay_ms: u64, event: Event) {
        self.at(self.ms + delay_ms, event);
    }

    fn latency(&mut self) -> u64 {
        if self.chance(3) { 1 + self.below(3_000) } else { 1 + self.below(8) }
    }

    fn clock_offset(&mut self, node: usize) -> i64 {
        let is_wild = self.wild_clocks == Wild::All || self.wild_clocks == Wild::One(node);
        let range = if is_wild { 7_200_000 } else { 12_000 };
        i64::try_from(self.below(2 * range)).unwrap() - i64::try_from(range).unwrap()
    }

    fn now_of(&self, node: usize) -> Now {
        let running = self.nodes[node].running.as_ref().unwrap();
        let monotonic_ms = self.ms + running.monotonic_ms;
        Now { wall_ms: self.wall_ms(running.wall_offset_ms), monotonic_ms }
    }

    fn wall_ms(&self, offset_ms: i64) -> u64 {
        (WALL_MS + self.ms).checked_add_signed(offset_ms).unwrap()
    }

    /// Runs the faults, then a calm time in which all must work.
    pub fn run(&mut self) -> Result<(), String> {
        for node in 0..self.nodes.len() {
            self.nodes[node].wall_offset_ms = self.clock_offset(node);
            let delay = self.below(300);
            self.after(delay, Event::Start { node });
        }
        for client in 0..CLIENTS {
            let behind = i64::try_from(self.below(80_000)).unwrap() - 50_000;
            self.clients[usize::try_from(client).unwrap()].clock_offset_ms = behind;
            self.after(client, Event::Client { client, waits_for: None });
        }
        self.after(100, Event::Leases);
        self.after(500, Event::Fault);
        let end_ms = FAULTS_MS + CALM_MS;
        self.run_until(FAULTS_MS)?;
        self.calm_down();
        self.run_until(end_ms - 2_000)?;
        let answered = self.figures.answers;
        self.run_until(end_ms)?;
        if self.figures.answers == answered {
            return Err("no instance answers after the faults".to_owned());
        }
        self.is_quiet = true;
        self.figures.expired = self.archive.expired;
        self.run_until(end_ms + 4_000)?;
        self.check_end()
    }

    fn run_until(&mut self, end_ms: u64) -> Result<(), String> {
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 >= end_ms {
                break;
            }
            let ((ms, _), event) = entry.remove_entry();
            self.ms = ms;
            self.handle(event)?;
        }
        self.ms = end_ms;
        Ok(())
    }

    fn calm_down(&mut self) {
        self.is_calm = true;
        (self.etcd.is_full, self.etcd.is_low) = (false, false);
        self.set_clocks_right();
        for node in 0..self.nodes.len() {
            let Node { paused_until, cut_until, unreached_until, running, .. } = &mut self.nodes[node];
            (*paused_until, *cut_until, *unreached_until) = (0, 0, 0);
            let run = running.as_ref().map(|running| running.run);
            if let Some(run) = run {
                self.after(1, Event::Wake { node, run });
            }
            if self.nodes[node].running.is_none() {
                self.after(1, Event::Start { node });
            }
        }
    }

    /// Makes the clocks agree with each other and with the head. A single one that is off, and has done no harm, stays so.
    fn set_clocks_right(&mut self) {
        if let Wild::Steps(node) = self.wild_clocks {
            self.nodes[node].wall_offset_ms = 0;
            return;
        }
        let ahead_ms = self.archive.head.wall_ms.saturating_sub(WALL_MS + self.ms);
        if self.wild_clocks == Wild::None || (self.wild_clocks != Wild::All && ahead_ms < 12_000) {
            return;
        }
        for node in &mut self.nodes {
            node.wall_offset_ms = i64::try_from(ahead_ms).unwrap();
            if let Some(running) = &mut node.running {
                running.wall_offset_ms = node.wall_offset_ms;
            }
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        // A process that is paused handles everything afterwards, in its order.
        if let Some(node) = self.receiver(&event)
            && self.nodes[node].paused_until > self.ms
        {
            let until = self.nodes[node].paused_until;
            self.at(until, event);
            return Ok(());
        }
        match event {
            Event::Arrive { node, run, id, kind, is_copy } => self.arrive(node, run, id, kind, is_copy)?,
            Event::Reply { node, run, id, result } => {
                let Some(running) = self.running(node, run) else { return Ok(()) };
                if running.open.remove(&id) {
                    let now = self.now_of(node);
                    self.running(node, run).unwrap().instance.handle_answer(id, result, now);
                    self.drive(node)?;
                }
            }
            Event::Tick { node, run, id } => self.tick(node, run, id)?,
            Event::EndWatch { node, run, id } => {
                if self.watchers.remove(&(node, run, id)).is_some() {
                    self.watched(node, run, id, Err(unknown()))?;
                }
            }
            Event::Wake { node, run } => {
                let Some(running) = self.running(node, run) else { return Ok(()) };
                running.wake_ms = None;
                self.drive(node)?;
            }
            Event::Request { node, id } => self.request(node, id)?,
            Event::Answer { id, reply } => self.answer(id, reply),
            Event::Client { client, waits_for } => self.act(client, waits_for),
            Event::Leases => self.keep_leases(),
            Event::Fault => {
                if !self.is_calm {
                    self.fault();
                    let delay = 100 + self.below(800);
                    self.after(delay, Event::Fault);
                }
            }
            Event::Start { node } => self.start(node)?,
        }
        Ok(())
    }

    /// Returns the instance whose process handles an event.
    fn receiver(&self, event: &Event) -> Option<usize> {
        match event {
            Event::Reply { node, .. }
            | Event::Tick { node, .. }
            | Event::EndWatch { node, .. }
            | Event::Wake { node, .. }
            | Event::Request { node, .. } => Some(*node),
            _ => None,
        }
    }

    fn running(&mut self, node: usize, run: u64) -> Option<&mut Running> {
        self.nodes[node].running.as_mut().filter(|running| running.run == run)
    }

    fn start(&mut self, node: usize) -> Result<(), String> {
        if self.nodes[node].running.is_some() {
            return Ok(());
        }
        self.next_run += 1;
        let run = self.next_run;
        let settings = InstanceSettings {
            layout: self.layout.clone(),
            instance: NAMES[node].into(),
            run,
            hash_key: [1; 32],
            confirms_by_commit: self.has_stale_reads,
            compacts: true,
        };
        let monotonic_ms = self.below(1_000_000_000);
        self.trace(|| format!("{} starts: run {run}", NAMES[node]));
        self.nodes[node].running = Some(Running {
            instance: Instance::new(settings),
            application: Application::new(self.mistake),
            run,
            started_ms: self.ms,
            open: BTreeSet::new(),
            monotonic_ms,
            wake_ms: None,
            wall_offset_ms: self.nodes[node].wall_offset_ms,
        });
        self.drive(node)
    }

    /// Polls an instance and its application until nothing is left to do.
    fn drive(&mut self, node: usize) -> Result<(), String> {
        let machine_ms = self.nodes[node].wall_offset_ms;
        let running = self.nodes[node].running.as_mut().unwrap();
        if (machine_ms - running.wall_offset_ms).abs() <= STEP_MAX_MS {
            running.wall_offset_ms = machine_ms;
        }
        let now = self.now_of(node);
        let mut running = self.nodes[node].running.take().unwrap();
        running.instance.set_machine_clock(self.wall_ms(machine_ms), now);
        let mut answers = Vec::new();
        let mut actions = Vec::new();
        running.application.expire_all(now);
        running.instance.set_reached(self.nodes[node].unreached_until <= self.ms, now);
        loop {
            if let Some(effect) = running.instance.poll_effect() {
                self.count(node, &effect);
                let is_handover = matches!(effect, Effect::Report(ClusterEvent::Resigned { .. }))
                    && running.instance.status().role != Role::Closed;
                self.figures.handovers += u64::from(is_handover);
                answers.extend(running.application.handle_effect(effect));
            } else if running.instance.wants_group()
                && let Some(group) = running.application.take_group()
            {
                running.instance.commit(group, now);
            } else if let Some(action) = running.instance.poll_action(now) {
                actions.push(action);
            } else {
                break;
            }
        }
        let expiry_ms = running.application.next_expiry();
        let deadline_ms = [running.instance.next_deadline(), expiry_ms].into_iter().flatten().min();
        let run = running.run;
        if let Some(deadline_ms) = deadline_ms {
            let at = deadline_ms.saturating_sub(running.monotonic_ms).max(self.ms + 1);
            if running.wake_ms.is_none_or(|wake_ms| wake_ms > at) {
                running.wake_ms = Some(at);
                self.at(at, Event::Wake { node, run });
            }
        }
        if running.instance.is_closed() && running.open.is_empty() {
            // The process ends, and starts again.
            self.figures.resignations += 1;
            self.end(node, run);
        } else {
            self.nodes[node].running = Some(running);
        }
        for action in actions {
            self.send(node, run, action);
        }
        answers.into_iter().try_for_each(|(id, reply)| self.give(node, id, reply))
    }

    fn end(&mut self, node: usize, run: u64) {
        self.watchers.retain(|(at, of, _), _| (*at, *of) != (node, run));
        let delay = 50 + self.below(4_000);
        self.after(delay, Event::Start { node });
    }

    fn count(&mut self, node: usize, effect: &Effect) {
        match effect {
            Effect::Serve { epoch, .. } if self.nodes[node].epoch == *epoch => self.figures.served_again += 1,
            Effect::Serve { epoch, .. } => {
                self.nodes[node].epoch = *epoch;
                self.figures.takeovers += 1;
            }
            Effect::Stop => self.figures.stops += 1,
            Effect::Pause => self.figures.pauses_of_owners += 1,
            Effect::Reset => self.figures.reloads += 1,
            Effect::Committed { .. } => self.figures.commits += 1,
            Effect::Report(ClusterEvent::WatchGap) => self.figures.gaps += 1,
            Effect::Report(ClusterEvent::ClockOff { .. }) => self.figures.clocks_off += 1,
            _ => {}
        }
        if !matches!(effect, Effect::Apply(_)) {
            self.trace(|| format!("{}: {effect:?}", NAMES[node]));
        }
    }

    fn send(&mut self, node: usize, run: u64, Action { id, mut kind }: Action) {
        self.trace(|| format!("{} asks {id:?}: {}", NAMES[node], describe(&kind)));
        if let ActionKind::CancelWatch(watch) = kind {
            self.watchers.remove(&(node, run, watch));
            return;
        }
        if let (ActionKind::Txn(txn), Some(Mistake::NoComparison)) = (&mut kind, self.mistake) {
            txn.conditions.clear();
        }
        if let ActionKind::Watch(range) = kind {
            let next = range.revision;
            self.watchers.insert((node, run, id), Watcher { range, next, is_due: true });
            let delay = self.latency();
            self.after(delay, Event::Tick { node, run, id });
            return;
        }
        let Some(running) = self.running(node, run) else { return };
        running.open.insert(id);
        self.after(TIMEOUT_MS, Event::Reply { node, run, id, result: Err(unknown()) });
        if self.chance(2) {
            self.figures.doubled += 1;
            let delay = self.below(4_000);
            self.after(delay, Event::Arrive { node, run, id, kind: kind.clone(), is_copy: true });
        }
        if self.nodes[node].cut_until > self.ms || self.chance(2) {
            self.figures.lost += 1;
            return;
        }
        let delay = self.latency();
        self.after(delay, Event::Arrive { node, run, id, kind, is_copy: false });
    }

    fn arrive(
        &mut self,
        node: usize,
        run: u64,
        id: ActionId,
        kind: ActionKind,
        is_copy: bool,
    ) -> Result<(), String> {
        if self.refused.contains(&(node, run, id)) {
            return Ok(());
        }
        let mut result = self.etcd.perform(&kind);
        if let ActionKind::Read(read) = &kind
            && read.revision.is_none()
            && self.has_stale_reads
            && self.etcd.revision > self.etcd.compacted
            && self.chance(20)
        {
            self.figures.stale_reads += 1;
            let behind = self.random.below((self.etcd.revision - self.etcd.compacted).min(20));
            let answer = self.etcd.read_at(read, self.etcd.revision - behind);
            result = Ok(crate::ledger::etcd::action::Answer::Read(answer));
        }
        if matches!(result, Err(EtcdError::NoSpace)) {
            self.refused.insert((node, run, id));
        }
        self.advance()?;
        if is_copy || self.nodes[node].cut_until > self.ms || self.chance(2) {
            return Ok(());
        }
        let delay = self.latency();
        self.after(delay, Event::Reply { node, run, id, result });
        Ok(())
    }

    /// Handles a change of etcd: checks it, and has the watches deliver it.
    fn advance(&mut self) -> Result<(), String> {
        self.archive.advance(&self.etcd, &self.layout, &self.ledger, self.ms)?;
        self.check_versions()?;
        let is_behind = |watcher: &Watcher| !watcher.is_due && watcher.next <= self.etcd.revision;
        let behind = self.watchers.iter_mut().filter(|(_, watcher)| is_behind(watcher));
        let behind: Vec<_> = behind.map(|(of, watcher)| (*of, watcher.is_due = true).0).collect();
        for (node, run, id) in behind {
            let delay = self.latency();
            self.after(delay, Event::Tick { node, run, id });
        }
        Ok(())
    }

    fn tick(&mut self, node: usize, run: u64, id: ActionId) -> Result<(), String> {
        if self.nodes[node].cut_until > self.ms {
            let delay = self.nodes[node].cut_until - self.ms + 100;
            self.after(delay, Event::EndWatch { node, run, id });
            return Ok(());
        }
        let loses = !self.has_space_faults && self.chance(1);
        let Some(watcher) = self.watchers.get_mut(&(node, run, id)) else { return Ok(()) };
        let mut result = self.etcd.watch(&watcher.range, watcher.next);
        match &mut result {
            Ok(batch) => {
                (watcher.next, watcher.is_due) = (self.etcd.revision + 1, false);
                if loses && !batch.events.is_empty() {
                    // A defect of etcd: a change of a transaction is not delivered.
                    let at = usize::try_from(self.random.below(batch.events.len() as u64)).unwrap();
                    batch.events.remove(at);
                }
            }
            Err(_) => drop(self.watchers.remove(&(node, run, id))),
        }
        self.watched(node, run, id, result)
    }

    fn watched(
        &mut self,
        node: usize,
        run: u64,
        id: ActionId,
        result: Result<WatchBatch, EtcdError>,
    ) -> Result<(), String> {
        if self.running(node, run).is_none() {
            return Ok(());
        }
        let now = self.now_of(node);
        self.running(node, run).unwrap().instance.handle_watch(id, result, now);
        self.drive(node)
    }

    fn request(&mut self, node: usize, id: RequestId) -> Result<(), String> {
        if self.nodes[node].running.is_none() || self.nodes[node].unreached_until > self.ms {
            return Ok(());
        }
        let now = self.now_of(node);
        let running = self.nodes[node].running.as_mut().unwrap();
        let answer = running.application.handle_request(id, &self.ledger, now);
        if let Some((id, reply)) = answer {
            self.give(node, id, reply)?;
        }
        self.drive(node)
    }

    /// Checks an answer of an instance, and sends it to the client.
    fn give(&mut self, node: usize, id: RequestId, reply: Reply) -> Result<(), String> {
        self.trace(|| format!("{} answers {id:?}: {reply:?}", NAMES[node]));
        self.archive.check_answer(id, &reply, &self.ledger, self.allowance)?;
        self.figures.answers += 1;
        match &reply {
            Reply::Written { is_duplicate, .. } => {
                self.figures.duplicates += u64::from(*is_duplicate);
                self.ledger.answers.entry(id).or_insert_with(|| reply.clone());
            }
            Reply::Read { .. } => self.figures.reads += 1,
            Reply::Registered | Reply::NoSpace => {}
        }
        if !self.chance(5) {
            let delay = self.latency();
            self.after(delay, Event::Answer { id, reply });
        }
        Ok(())
    }

    /// Handles an answer at its client.
    fn answer(&mut self, id: RequestId, reply: Reply) {
        let at = usize::try_from(id.client).unwrap();
        if self.clients[at].waiting != Some(id) {
            return;
        }
        self.clients[at].waiting = None;
        // The broker delivers it once more, because the acknowledgement was lost.
        if matches!(reply, Reply::Written { .. }) && self.chance(15) {
            let delay = self.below(10_000);
            self.deliver(id, delay);
        }
        if !self.is_quiet {
            let delay = self.below(if self.is_calm { 1_000 } else { 200 });
            self.after(delay, Event::Client { client: id.client, waits_for: None });
        }
    }

    /// Delivers a request to all instances.
    fn deliver(&mut self, id: RequestId, delay_ms: u64) {
        for node in 0..self.nodes.len() {
            let delay = delay_ms + self.latency();
            self.after(delay, Event::Request { node, id });
        }
    }

    /// A client sends a request, or waits for the answer to the last one.
    fn act(&mut self, client: u64, waits_for: Option<RequestId>) {
        let at = usize::try_from(client).unwrap();
        if self.clients[at].waiting != waits_for {
            return;
        }
        if let Some(id) = self.clients[at].waiting {
            if self.ms < self.ledger.requests[&id].sent_ms + 6_000 {
                self.deliver(id, 0);
                self.after(700, Event::Client { client, waits_for });
                return;
            }
            self.clients[at].waiting = None;
        }
        if self.is_quiet {
            return;
        }
        self.next_number += 1;
        let id = RequestId { client, number: self.next_number };
        let key = Key::new(format!("k{}", self.random.below(KEYS))).unwrap();
        let operation = self.operation(id, &key);
        let wall_ms = WALL_MS + self.ms;
        let timestamp_ms = wall_ms.checked_add_signed(self.clients[at].clock_offset_ms).unwrap();
        let (sent_ms, revision) = (self.ms, self.etcd.revision);
        // The timestamps of a client must not be ahead of every instance.
        let timestamp_ms = if self.wild_clocks != Wild::None { 0 } else { timestamp_ms.min(wall_ms) };
        self.trace(|| format!("{id:?} is {key:?} {operation:?}"));
        self.ledger.requests.insert(id, Request { key, operation, timestamp_ms, sent_ms, revision });
        self.clients[at].waiting = Some(id);
        self.deliver(id, 0);
        self.after(700, Event::Client { client, waits_for: Some(id) });
    }

    fn operation(&mut self, id: RequestId, key: &Key) -> Operation {
        let fence = (self.below(6) == 0).then(|| WALL_MS - 100_000 + self.ms);
        match self.below(20) {
            0..9 => {
                let ttl_ms = (self.below(4) == 0).then(|| 20 + self.random.below(3_000));
                let is_nx = self.below(4) == 0;
                Operation::Set { value: format!("{}.{}", id.client, id.number), ttl_ms, is_nx, fence }
            }
            9..12 => Operation::Del { fence: Some(WALL_MS - 100_000 + self.ms) },
            12 => {
                let sets = self.ledger.requests.values().rev().filter(|request| request.key == *key);
                let value = sets.take(20).find_map(|request| match &request.operation {
                    Operation::Set { value, .. } => Some(value.clone()),
                    _ => None,
                });
                Operation::VDel { value: value.unwrap_or_default() }
            }
            13..15 => Operation::Register { is_registered: self.below(2) == 0 },
            _ => Operation::Get,
        }
    }

    /// The member keys: an instance keeps its own alive, and etcd deletes those whose leases have ended.
    fn keep_leases(&mut self) {
        // Minutes pass in a search of clocks, in which nothing depends on it.
        self.after(if self.is_ahead.is_some() { 1_000 } else { 250 }, Event::Leases);
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let (key, clock) = (self.layout.member(NAMES[at]), self.layout.clock(NAMES[at]));
            let is_reached =
                node.running.is_some() && node.paused_until <= self.ms && node.cut_until <= self.ms;
            let is_there = !self.etcd.pairs_of((key.clone(), key_after(&key))).is_empty();
            let run = node.running.as_ref().map_or(0, |running| running.run);
            let operations = if is_reached {
                node.seen_ms = self.ms;
                let wall_ms = (WALL_MS + self.ms).checked_add_signed(node.wall_offset_ms).unwrap();
                let value = MemberState { wall_ms, off_ms: 0, reads_at: 0 }.encode();
                let announcement = Change::Put { key: clock, value, lease: Some(1) };
                if !is_there || node.member_run != run {
                    vec![Change::Put { key, value: encode_run(run), lease: Some(1) }, announcement]
                } else if node.announced_ms + ANNOUNCEMENT_MS <= self.ms {
                    vec![announcement]
                } else {
                    Vec::new()
                }
            } else if is_there && node.seen_ms + LEASE_MS < self.ms {
                vec![Change::Delete { key }, Change::Delete { key: clock }]
            } else {
                Vec::new()
            };
            if !operations.is_empty() {
                let txn = Txn { operations, ..Txn::default() };
                // Without space it is tried again.
                if self.etcd.perform(&ActionKind::Txn(txn)).is_ok() {
                    (node.member_run, node.announced_ms) = (run, self.ms);
                }
            }
        }
        self.advance().unwrap();
    }

    fn fault(&mut self) {
        let node = usize::try_from(self.below(3)).unwrap();
        let until = self.ms + 100 + self.below(4_000);
        if let Wild::Steps(node) = self.wild_clocks {
            return self.step_clock(node, until);
        }
        match self.below(20) {
            0..3 => {
                self.trace(|| format!("{} crashes", NAMES[node]));
                if let Some(running) = self.nodes[node].running.take() {
                    self.figures.crashes += 1;
                    self.nodes[node].paused_until = 0;
                    self.end(node, running.run);
                }
            }
            3..6 => {
                self.trace(|| format!("{} is paused until {until}", NAMES[node]));
                self.figures.pauses += 1;
                self.nodes[node].paused_until = until;
            }
            6..9 => {
                self.trace(|| format!("{} is cut off until {until}", NAMES[node]));
                self.figures.cuts += 1;
                self.nodes[node].cut_until = until;
            }
            9..11 => {
                self.figures.clock_jumps += 1;
                self.nodes[node].wall_offset_ms = self.clock_offset(node);
            }
            11 => {
                self.figures.compactions += 1;
                let revision = self.etcd.revision.saturating_sub(self.below(10));
                self.etcd.compact(revision);
            }
            12..14 if self.has_space_faults => {
                self.etcd.is_full = !self.etcd.is_full;
                self.etcd.is_low = self.below(2) == 0;
                self.figures.no_space += u64::from(self.etcd.is_full);
                self.trace(|| format!("etcd is full: {}", self.etcd.is_full));
            }
            14 => {
                let run = self.nodes[node].running.as_mut().map(|running| {
                    running.instance.resign();
                    running.run
                });
                self.trace(|| format!("{} resigns", NAMES[node]));
                if let Some(run) = run {
                    self.after(0, Event::Wake { node, run });
                }
            }
            16 => self.unreach(node, until),
            17 => (0..self.nodes.len()).for_each(|node| self.unreach(node, until)),
            18..20 => {
                // A request of the operator; without space, etcd refuses it.
                let head = self
                    .etcd
                    .pairs_of(self.layout.state())
                    .into_iter()
                    .find(|pair| pair.key == self.layout.head());
                let Some(head) = head.map(|pair| Head::decode(&pair.value).unwrap()) else { return };
                let (key, value) = (self.layout.request(), encode_request(head.epoch));
                self.trace(|| format!("the owner of epoch {} is asked to resign", head.epoch));
                let operations = vec![Change::Put { key, value, lease: None }];
                let _ = self.etcd.perform(&ActionKind::Txn(Txn { operations, ..Txn::default() }));
                self.advance().unwrap();
            }
            _ => {
                let watchers: Vec<_> = self.watchers.keys().copied().collect();
                for (node, run, id) in watchers {
                    self.after(1, Event::EndWatch { node, run, id });
                }
            }
        }
    }

    /// Sets a clock ahead or back, or makes another instance take over.
    fn step_clock(&mut self, node: usize, until: u64) {
        // Before, not all instances know each other's clocks.
        if self.ms < 5_000 {
            return;
        }
        if self.below(3) == 0 {
            let other = usize::try_from(self.below(3)).unwrap();
            return self.unreach(other, until);
        }
        self.figures.clock_jumps += 1;
        let is_ahead = self.nodes[node].wall_offset_ms > 12_000;
        self.nodes[node].wall_offset_ms =
            if is_ahead { 0 } else { i64::try_from(43_000 + self.below(16_000)).unwrap() };
        self.trace(|| format!("the clock of {} is set to {}", NAMES[node], self.nodes[node].wall_offset_ms));
        if let Some(run) = self.nodes[node].running.as_ref().map(|running| running.run) {
            self.after(0, Event::Wake { node, run });
        }
    }

    /// Cuts an instance off from the broker.
    fn unreach(&mut self, node: usize, until: u64) {
        self.trace(|| format!("{} is not reached until {until}", NAMES[node]));
        self.figures.unreached += 1;
        self.nodes[node].unreached_until = until;
        if let Some(run) = self.nodes[node].running.as_ref().map(|running| running.run) {
            self.after(0, Event::Wake { node, run });
            self.at(until, Event::Wake { node, run });
        }
    }

    fn check_end(&mut self) -> Result<(), String> {
        let mut roles = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let running = node.running.as_ref().ok_or("an instance does not run")?;
            let role = running.instance.status().role;
            roles.push(role);
            if !matches!(role, Role::Owner | Role::Follower) {
                return Err(format!("{} is {role:?} in the end", NAMES[at]));
            }
            self.check_state(at, &running.application)?;
        }
        if roles.iter().filter(|role| **role == Role::Owner).count() != 1 {
            return Err(format!("not one owner in the end: {roles:?}"));
        }
        Ok(())
    }

    /// Compares an application with etcd.
    fn check_state(&self, at: usize, application: &Application) -> Result<(), String> {
        use crate::ledger::etcd::codec::{Reception, decode_row};
        use crate::ledger::etcd::layout::Place;
        let (mut keys, mut registrations) = (BTreeSet::new(), BTreeSet::new());
        for pair in self.etcd.pairs_of(self.layout.state()) {
            match self.layout.place(&pair.key) {
                Some(Place::Row(key)) => {
                    let row = decode_row(&key, &pair.value, Reception::Watched, Now::default()).unwrap();
                    let stored = application.store.read(&key);
                    let is_same = stored.is_some_and(|(version, stored)| {
                        (version, stored.value, stored.fence) == (row.0, row.1.value, row.1.fence)
                    });
                    if !is_same {
                        return Err(format!("{} differs from etcd in {key:?}", NAMES[at]));
                    }
                    keys.insert(key);
                }
                Some(Place::Registration { key, client_id }) => {
                    registrations.insert((key, client_id.into()));
                }
                _ => {}
            }
        }
        if application.store.len() != keys.len() || application.registrations != registrations {
            return Err(format!("{} has keys or registrations that etcd has not", NAMES[at]));
        }
        Ok(())
    }
}

fn unknown() -> EtcdError {
    EtcdError::Unknown { reason: "timeout".to_owned() }
}

fn describe(kind: &ActionKind) -> String {
    match kind {
        ActionKind::Txn(txn) => {
            let guards: Vec<_> = txn.conditions.iter().map(|condition| condition.mod_revision).collect();
            format!("transaction of {} if {guards:?}", txn.operations.len())
        }
        other => format!("{other:?}"),
    }
}
