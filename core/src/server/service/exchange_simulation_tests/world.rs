//! The simulated world: nodes, connections, the frames on their way, and what clients do.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use super::super::tests::{del, message, peer, set_with};
use super::checks::Ledger;
use super::mistakes::Mistake;
use super::node::{NAMES, Node, Process, name};
use crate::broker::Peer;
use crate::exchange::effects::Event;
use crate::exchange::frame::{IDLE_MS, LinkFrame, Records};
use crate::exchange::leaf::Leaf;
use crate::exchange::names::ChangeId;
use crate::exchange::row::{Row, RowId};
use crate::ledger::file::simulated::SeededRandom;
use crate::ledger::{Group, Record};
use crate::protocol::{Condition, ConnectionId, Key, Reply, Request, Timestamp};
use crate::server::delivery::ReplyTo;
use crate::server::event::exchange::ExchangeEvent;
use crate::server::exchange::uplink::FrameOutcome;
use crate::server::metrics::Verb;
use crate::server::simulation::figures;
use crate::store::{StoreRequest, WatchOptions};
use crate::{clock, server::exchange::participant::Route};

/// The steps of a seed.
const STEPS: u64 = 300;
/// The first number of the connections of leaves.
const FIRST_CONNECTION: u64 = 1_000;
pub const DAY_MS: u64 = 24 * 3_600_000;
/// The time after which an idle link compares digests.
const DIGEST_MS: u64 = 600_000;
/// The longest time to live.
const TTL_MAX_MS: u64 = 40 * DAY_MS;

/// The connection of a leaf with the root, and the frames on their way.
#[derive(Default)]
pub struct Connection {
    pub number: Option<u64>,
    pub up: Vec<Bytes>,
    pub down: Vec<Bytes>,
}

pub struct World {
    pub random: SeededRandom,
    /// The time since the Unix epoch.
    pub ms: u64,
    pub step: u64,
    /// The root, then the leaves.
    pub nodes: Vec<Node>,
    /// One per leaf; the first one is unused.
    pub connections: Vec<Connection>,
    /// Ended connections, of which the root has not heard.
    pub lost_connections: Vec<u64>,
    last_connection: u64,
    pub keys: Vec<Key>,
    last_request: u64,
    /// The key of each request, and the change that it has made.
    requests: HashMap<u64, (Key, Option<ChangeId>)>,
    pub ledger: Ledger,
    pub mistake: Option<Mistake>,
    pub figures: Figures,
    pub is_traced: bool,
    /// Whether all faults have ended.
    pub is_calm: bool,
    /// The last version that the root has committed.
    pub committed_ver: u64,
    /// A frame that left too early.
    early_frame: Option<String>,
    /// The leaves that have compared a digest since all faults ended.
    pub compared: HashSet<usize>,
    /// The leaves that may report that their records differ.
    pub damaged: HashSet<usize>,
}

figures! {
    requests: 10_000, acknowledged: 2_000, commits: 2_000, frames: 2_000, links: 500,
    lost: 100, doubled: 100, reordered: 20, late: 50,
    power_cuts: 100, kills: 30, early_ends: 10, failed_commits: 50, recoveries: 30, full_disks: 50,
    months_offline: 20, expired: 200, restored_leaves: 5, restored_roots: 2, replaced_leaves: 5,
    dropped_leaves: 20, changed_rules: 50, resyncs: 100, conflicts: 500,
    accepted: 300, refused: 300, merged: 100, new_roots: 20, digests: 400, repaired: 100,
}

impl World {
    pub fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        let mut random = SeededRandom::new(seed);
        let leaves = 2 + usize::try_from(random.below(2)).unwrap();
        let mut nodes = (0..=leaves).map(|at| Node::new(at, random.below(DAY_MS))).collect::<Vec<_>>();
        if mistake == Some(Mistake::DiscardsOwnKeys) {
            nodes.iter_mut().for_each(Node::discard_own_keys);
        }
        if mistake == Some(Mistake::IgnoresSyncs) {
            nodes.iter().for_each(|node| node.disk.set_faults(|faults| faults.ignores_syncs = true));
        }
        let key = |text: String| Key::new(text).unwrap();
        let keys = [("root", 3), ("one", 4), ("line", 7), ("moved", 4), ("local", 2)];
        let keys =
            keys.iter().flat_map(|(rule, count)| (0..*count).map(move |at| key(format!("{rule}/{at}"))));
        Self {
            random,
            ms: 1_700_000_000_000,
            step: 0,
            connections: nodes.iter().map(|_| Connection::default()).collect(),
            nodes,
            lost_connections: Vec::new(),
            last_connection: FIRST_CONNECTION,
            keys: keys.collect(),
            last_request: 0,
            requests: HashMap::new(),
            ledger: Ledger::default(),
            mistake,
            figures: Figures::default(),
            is_traced: false,
            is_calm: false,
            committed_ver: 0,
            early_frame: None,
            compared: HashSet::new(),
            damaged: HashSet::new(),
        }
    }

    pub fn trace(&self, text: impl FnOnce() -> String) {
        if self.is_traced {
            println!("{:>4} {} {}", self.step, self.ms - 1_700_000_000_000, text());
        }
    }

    pub fn below(&mut self, count: u64) -> u64 {
        self.random.below(count)
    }

    /// Returns a number less than `count`, for an index.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }

    pub fn process(&self, at: usize) -> &Process {
        self.nodes[at].process.as_ref().unwrap()
    }

    /// Runs all steps, ends all faults, and checks the end.
    pub fn run(&mut self) -> Result<(), String> {
        for at in 0..self.nodes.len() {
            self.start(at)?;
        }
        while self.step < STEPS {
            self.step += 1;
            self.ms += self.random.below(40);
            self.act()?;
        }
        self.settle()?;
        // Values that expire differ until they have.
        self.ms += TTL_MAX_MS + 2 * DAY_MS;
        self.settle()?;
        self.check_end()?;
        self.check_digests()?;
        if self.below(4) == 0 {
            self.check_new_root()?;
        }
        self.restart_all()?;
        let (accepted, settled) = self.ledger.summary();
        self.figures.accepted += accepted;
        self.figures.refused += settled;
        Ok(())
    }

    fn act(&mut self) -> Result<(), String> {
        let at = self.index(self.nodes.len());
        let leaf = 1 + self.index(self.nodes.len() - 1);
        match self.below(100) {
            0..30 => self.request(at)?,
            30..48 => {
                self.commit(at)?;
                // The frames are delayed.
                self.poll();
            }
            48..54 => self.carry(leaf)?,
            54..70 => self.disturb(leaf)?,
            70..80 => self.work(at)?,
            80..88 => self.connect(leaf),
            88..90 => self.disconnect(leaf),
            _ => self.fault(at, leaf)?,
        }
        if self.below(4) == 0 {
            self.check_node(at)?;
        }
        self.early_frame.take().map_or(Ok(()), Err)
    }

    /// A client of a node reads or changes a key.
    fn request(&mut self, at: usize) -> Result<(), String> {
        let key = self.index(self.keys.len());
        // A burst of changes of one key, which are merged.
        let count = if self.below(100) == 0 { 130 } else { 1 };
        (0..count).try_for_each(|_| self.request_for(at, self.keys[key].clone()))
    }

    fn request_for(&mut self, at: usize, key: Key) -> Result<(), String> {
        self.last_request += 1;
        let id = self.last_request;
        let len = [1, 40, 300, 3_000][self.index(4)];
        let value = format!("{id}{}", ".".repeat(len));
        let text = super::checks::text(&key);
        let ttl_ms = [50, 5_000, 3_600_000, TTL_MAX_MS][self.index(4)];
        let request = match self.below(12) {
            0..5 => set_with(&text, &value, None, 0),
            5 => set_with(&text, &value, Some(Condition::Absent), 0),
            6 => set_with(&text, &value, Some(Condition::AbsentOrEqual), 0),
            7 | 8 => set_with(&text, &value, None, ttl_ms),
            _ => del(&text),
        };
        let persist = self.below(2) == 0;
        let Some(process) = &self.nodes[at].process else { return Ok(()) };
        self.figures.requests += 1;
        let now = process.now(self.ms);
        let call = StoreRequest {
            connection: ConnectionId(1),
            permissions: None,
            client_id: "client".into(),
            owner: "client".into(),
            request: request.clone(),
            timestamp: Some(Ok(Timestamp::of_store(now.wall_ms, 0))),
            fence: None,
            encoded: None,
            refusal: None,
            watch: WatchOptions::default(),
            persist,
        };
        let message = message(&request);
        let (verb, received, correlation) =
            (Verb::Set, clock::monotonic(), message.correlation.clone().unwrap());
        let reply_to = ReplyTo { response_topic: id.to_string(), correlation, verb, received, details: None };
        let takes_part = process.concerns(&key);
        let (before, merged) = (process.change_id(&key), self.merged(at));
        process.with(self.ms, |state, publisher, now| {
            state.handle_request(publisher, &peer(1), call, reply_to, &message, now);
        });
        let after = process.change_id(&key);
        let made = after.filter(|change_id| takes_part && !self.ledger.is_known(*change_id));
        let mut base = before.unwrap_or(ChangeId::NIL);
        if self.merged(at) > merged {
            self.figures.merged += 1;
            self.ledger.note_settled(base);
            // The change takes the place of the one before it.
            base = self.ledger.made(base).unwrap().base;
        }
        if let Some(change_id) = made {
            let content = match &request {
                Request::Set { ttl_ms, .. } => Some((Bytes::from(value), ttl_ms.is_none())),
                _ => None,
            };
            self.ledger.note_made(at, change_id, base, content);
        }
        // A deletion at a root without leaves leaves nothing.
        if takes_part && (at > 0 || after.is_some()) {
            self.requests.insert(id, (key, made));
        }
        self.trace(|| format!("{} {request:?} -> {made:?}", NAMES[at]).chars().take(150).collect());
        self.note_replies(at)
    }

    fn merged(&self, at: usize) -> u64 {
        if at == 0 { 0 } else { self.process(at).leaf(|leaf| leaf.row().counts.merged) }
    }

    fn note_replies(&mut self, at: usize) -> Result<(), String> {
        let Some(process) = &self.nodes[at].process else { return Ok(()) };
        for (to, message) in process.sent_messages.take() {
            let Some((key, made)) = message
                .topic
                .parse()
                .ok()
                .filter(|_| to.is_none())
                .and_then(|id: u64| self.requests.remove(&id))
            else {
                continue;
            };
            let is_done = match Reply::decode(&message.payload) {
                Ok(Reply::Done) => true,
                Ok(Reply::Count(count)) => count > 0,
                _ => false,
            };
            // After a failed commit, the rules may be back that the key takes no part in. Then it was set in memory.
            if is_done && (!process.has_failed || process.concerns(&key)) {
                let change_id =
                    made.ok_or_else(|| format!("{} acknowledged a change without an id", NAMES[at]))?;
                self.figures.acknowledged += 1;
                self.ledger.note_acknowledged(change_id);
            }
        }
        Ok(())
    }

    pub fn commit(&mut self, at: usize) -> Result<(), String> {
        let Some(process) = &mut self.nodes[at].process else { return Ok(()) };
        if process.has_failed {
            self.figures.recoveries += u64::from(process.try_recover(self.ms));
            process.has_failed = process.with(self.ms, |state, _, _| state.commit_queue.has_failed());
            if at == 0 && !process.has_failed {
                self.committed_ver = process.root(crate::exchange::root::Root::ver);
            }
            return self.end_if_off(at);
        }
        let is_short = process.storage.is_short_of_room();
        let taken = process.with(self.ms, |state, _, now| {
            state.take_group(now).or_else(|| is_short.then(|| state.empty_group(now)))
        });
        let Some(mut group) = taken else { return Ok(()) };
        // Requests are handled while the disk is busy.
        if !self.is_calm && self.below(3) == 0 {
            for _ in 0..self.below(4) {
                let key = self.index(self.keys.len());
                self.request_for(at, self.keys[key].clone())?;
            }
        }
        let Some(process) = &mut self.nodes[at].process else { return Ok(()) };
        if self.mistake == Some(Mistake::CommitsRowsBeforeValues) {
            let (records, now) = (std::mem::take(&mut group.records), process.now(self.ms));
            let (rows, values): (Vec<_>, Vec<_>) =
                records.into_iter().partition(|(_, it)| matches!(it, Record::Exchange(..)));
            group.records = values;
            if process.storage.commit(&rows, group.ceiling, now).is_err() {
                return self.end_if_off(at);
            }
        }
        let kept = (self.mistake == Some(Mistake::KeepsRowsOfFailedCommits))
            .then(|| process.with_exchange(|exchange| exchange.clone()));
        let rows = rows_of(&group);
        let is_committed = process.commit(group, self.ms);
        process.work(self.ms);
        if is_committed {
            self.figures.commits += 1;
            self.ledger.note_committed(&rows)?;
            if let Some(ver) = rows.iter().rev().find_map(|(_, row)| root_ver(row)) {
                self.committed_ver = ver;
            }
        } else {
            process.has_failed = true;
            if let Some(kept) = kept {
                process.with_exchange(|exchange| *exchange = kept);
            }
            self.figures.failed_commits += u64::from(!self.nodes[at].disk.is_off());
        }
        self.trace(|| format!("{} commits {} rows: {is_committed}", NAMES[at], rows.len()));
        self.note_replies(at)?;
        self.end_if_off(at)
    }

    /// Does what is due by time.
    pub fn work(&mut self, at: usize) -> Result<(), String> {
        let Some(process) = &self.nodes[at].process else { return Ok(()) };
        let before = process.with(self.ms, |state, _, _| state.store.statistics().keys);
        let (after, events) = process.with(self.ms, |state, publisher, now| {
            state.expire(publisher, now);
            let after = state.store.statistics().keys;
            state.handle_exchange_timeout(publisher, now);
            while state.walk(publisher, now) {}
            (after, state.exchange.as_mut().unwrap().take_events())
        });
        self.figures.expired += u64::try_from(before.saturating_sub(after)).unwrap();
        self.figures.conflicts += events
            .iter()
            .filter(|event| matches!(event, ExchangeEvent::Link(Event::Conflict { .. })))
            .count() as u64;
        self.trace(|| format!("{} works: {events:?}", NAMES[at]).chars().take(400).collect());
        // The walk has taken keys over.
        let found =
            self.keys.iter().filter_map(|key| Some((process.place(key)?, process.change_id(key)?, key)));
        let mut found: Vec<_> = found.filter(|(_, change_id, _)| !self.ledger.is_known(*change_id)).collect();
        found.sort_unstable();
        for (_, change_id, key) in found {
            // What it finds beside a deletion is based on that.
            let of_leaf = |leaf: &Leaf| leaf.pending(key).map_or(ChangeId::NIL, |(_, entry)| entry.base);
            let base = if at > 0 { process.leaf(of_leaf) } else { ChangeId::NIL };
            self.ledger.note_made(at, change_id, base, process.content(key, self.ms));
        }
        let has_differed =
            events.iter().any(|event| matches!(event, ExchangeEvent::Link(Event::Diverged { .. })));
        if has_differed && !self.damaged.remove(&at) {
            return Err(format!("{} has other records than the digest of the root", NAMES[at]));
        }
        self.end_link_if_over(at);
        Ok(())
    }

    pub fn connect(&mut self, at: usize) {
        if self.connections[at].number.is_some() || self.nodes[0].process.is_none() {
            return;
        }
        let Some(process) = &self.nodes[at].process else { return };
        let link = self.random.below(u64::MAX >> 1);
        process.with(self.ms, |state, _, now| {
            state.exchange.as_mut().unwrap().handle_connected(link, now.monotonic_ms);
        });
        self.figures.links += 1;
        self.last_connection += 1;
        self.connections[at].number = Some(self.last_connection);
        self.trace(|| format!("{} connects", NAMES[at]));
        if self.below(2) == 0 {
            self.connections[at].up.clear();
            self.connections[at].down.clear();
        } else {
            self.figures.late += (self.connections[at].up.len() + self.connections[at].down.len()) as u64;
        }
    }

    /// Ends a connection. The root hears of it now or later.
    pub fn disconnect(&mut self, at: usize) {
        let Some(number) = self.connections[at].number.take() else { return };
        self.trace(|| format!("{} disconnects", NAMES[at]));
        if let Some(process) = &self.nodes[at].process {
            process.with(self.ms, |state, _, _| state.exchange.as_mut().unwrap().handle_uplink_lost());
        }
        self.lost_connections.push(number);
        if self.below(3) > 0 {
            self.forget_connections();
        }
    }

    /// The root hears of ended connections.
    pub fn forget_connections(&mut self) {
        for number in std::mem::take(&mut self.lost_connections) {
            if let Some(process) = &self.nodes[0].process {
                process.with(self.ms, |state, _, _| state.handle_disconnect(&peer(number)));
            }
        }
    }

    /// A leaf without a link ends its connection.
    fn end_link_if_over(&mut self, at: usize) {
        let Some(process) = self.nodes[at].process.as_ref().filter(|_| at > 0) else { return };
        if !process.with(self.ms, |state, _, _| state.exchange.as_ref().unwrap().has_link()) {
            self.disconnect(at);
        }
    }

    /// Takes the frames that the nodes send. Returns whether there were any.
    pub fn poll(&mut self) -> bool {
        let mut is_polled = false;
        for at in 0..self.nodes.len() {
            let Some(process) = &self.nodes[at].process else { continue };
            if self.mistake == Some(Mistake::SendsBeforeCommit) {
                process.with_exchange(|exchange| exchange.handle_saved(u64::MAX));
            }
            while let Some((payload, route)) = process.with(self.ms, |state, _, now| state.poll_frame(now)) {
                is_polled = true;
                if at > 0 {
                    self.connections[at].up.push(payload);
                } else if let Some(Route { connection, leaf, .. }) = route {
                    if let Ok(LinkFrame::Records(records)) = LinkFrame::decode(&payload)
                        && records.to > self.committed_ver
                    {
                        let (to, ver) = (records.to, self.committed_ver);
                        self.early_frame = Some(format!("{to} is sent, {ver} is committed"));
                    }
                    let to = NAMES.iter().position(|name| *name == leaf.as_str()).unwrap();
                    if self.connections[to].number == Some(connection.0) {
                        self.connections[to].down.push(payload);
                    }
                }
            }
        }
        is_polled
    }

    /// Carries the frames of a leaf in both directions, and commits.
    fn carry(&mut self, at: usize) -> Result<(), String> {
        for _ in 0..self.below(6) {
            self.poll();
            for _ in 0..self.connections[at].up.len() {
                self.deliver_up(at, 0)?;
            }
            self.commit(0)?;
            self.poll();
            for _ in 0..self.connections[at].down.len() {
                self.deliver_down(at, 0)?;
            }
            self.commit(at)?;
        }
        Ok(())
    }

    /// Delivers a frame that the leaf has sent.
    pub fn deliver_up(&mut self, at: usize, index: usize) -> Result<(), String> {
        if index >= self.connections[at].up.len() {
            return Ok(());
        }
        let payload = self.connections[at].up.remove(index);
        let Some(number) = self.connections[at].number else { return Ok(()) };
        if self.nodes[0].process.is_none() {
            return Ok(());
        }
        let payload = self.mistaken_up(at, payload);
        self.figures.frames += 1;
        self.ledger.note_proposed(at, &payload);
        let before = self.before_decision(at, &payload);
        let from = Peer { client_id: NAMES[at].into(), ..peer(number) };
        let outcome = self.process(0).with(self.ms, |state, publisher, now| {
            state.handle_leaf_frame(publisher, &from, (&name(NAMES[at]), &Bytes::new()), &payload, now)
        });
        self.trace(|| format!("{} -> root: {}", NAMES[at], show(&payload)));
        if outcome == FrameOutcome::Busy {
            self.connections[at].up.insert(index, payload);
            return self.commit(0);
        }
        before.map_or(Ok(()), |before| self.check_decision(at, before))
    }

    /// Delivers a frame that the root has sent.
    pub fn deliver_down(&mut self, at: usize, index: usize) -> Result<(), String> {
        if index >= self.connections[at].down.len() {
            return Ok(());
        }
        let payload = self.connections[at].down.remove(index);
        if self.connections[at].number.is_none() {
            return Ok(());
        }
        let payload = self.mistaken_down(payload);
        let Some(process) = &self.nodes[at].process else { return Ok(()) };
        self.figures.frames += 1;
        let epoch = process.leaf(|leaf| leaf.row().epoch);
        let outcome =
            process.with(self.ms, |state, publisher, now| state.handle_root_frame(publisher, &payload, now));
        self.figures.resyncs += u64::from(process.leaf(|leaf| leaf.row().epoch) - epoch);
        self.trace(|| format!("root -> {}: {}", NAMES[at], show(&payload)));
        if matches!(LinkFrame::decode(&payload), Ok(LinkFrame::Records(Records { digest: Some(_), .. }))) {
            self.figures.digests += 1;
            self.compared.insert(at);
        }
        if outcome == FrameOutcome::Busy {
            self.connections[at].down.insert(index, payload);
            return self.commit(at);
        }
        self.end_link_if_over(at);
        Ok(())
    }

    /// Ends all faults, and begins all links anew.
    pub fn settle(&mut self) -> Result<(), String> {
        self.is_calm = true;
        for at in 0..self.nodes.len() {
            self.end_faults(at);
            for _ in 0..10 {
                self.start(at)?;
                self.commit(at)?;
            }
        }
        for at in 1..self.nodes.len() {
            self.disconnect(at);
            self.connections[at] = Connection::default();
        }
        self.forget_connections();
        self.rest()
    }

    /// Lets links be idle until the root has sent its digests.
    pub fn idle(&mut self) -> Result<(), String> {
        self.compared.clear();
        for _ in 0..=DIGEST_MS / IDLE_MS {
            self.ms += IDLE_MS;
            self.rest()?;
        }
        Ok(())
    }

    /// Carries frames until there are none and all leaves are linked.
    fn rest(&mut self) -> Result<(), String> {
        for round in 0..2_000 {
            let mut is_idle = true;
            for at in 0..self.nodes.len() {
                self.work(at)?;
                self.commit(at)?;
            }
            for at in 1..self.nodes.len() {
                if self.connections[at].number.is_none() {
                    // The root refuses another process while it hears the one before.
                    self.ms += 1_000;
                    is_idle = false;
                    self.help_if_refused(at)?;
                    self.connect(at);
                    self.connections[at].up.clear();
                    self.connections[at].down.clear();
                }
            }
            self.forget_connections();
            is_idle &= !self.poll();
            for at in 1..self.nodes.len() {
                for _ in 0..self.connections[at].up.len() {
                    is_idle = false;
                    self.deliver_up(at, 0)?;
                }
                for _ in 0..self.connections[at].down.len() {
                    is_idle = false;
                    self.deliver_down(at, 0)?;
                }
            }
            if is_idle && !self.has_work() {
                self.trace(|| format!("it is at rest after {round} rounds"));
                return Ok(());
            }
            self.ms += 1;
        }
        Err("it does not come to rest".to_owned())
    }

    fn has_work(&self) -> bool {
        let is_busy = |process: &Process| {
            process.has_failed
                || process.with(self.ms, |state, _, now| {
                    state.commit_queue.has_uncommitted() || state.exchange_due_ms() <= now.monotonic_ms
                })
                || process.with_exchange(|exchange| exchange.is_walk_due())
        };
        self.nodes.iter().filter_map(|node| node.process.as_ref()).any(is_busy)
    }
}

/// Returns the rows in their order. One that is removed again in the same group is among them.
fn rows_of(group: &Group) -> Vec<(RowId, Option<Row>)> {
    let row = |(_, record): &(u64, Record)| match record {
        Record::Exchange(id, row) => Some((id.clone(), row.as_deref().cloned())),
        _ => None,
    };
    group.records.iter().filter_map(row).collect()
}

fn root_ver(row: &Option<Row>) -> Option<u64> {
    if let Some(Row::Root(row)) = row { Some(row.ver) } else { None }
}

fn show(payload: &Bytes) -> String {
    let frame = LinkFrame::decode(payload);
    format!("{frame:?}").chars().take(1_500).collect()
}
