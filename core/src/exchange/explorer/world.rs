//! A root, its leaves, and the channels between them, with a disk for each.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use super::super::effects::{Effects, Event, Values};
use super::super::frame::{
    Changes, Content, Flags, Hello, LinkFrame, OLDEST_VERSION, Proposal, Proposed, STALL_MS, VERSION,
};
use super::super::leaf::{JoinPolicy, Leaf};
use super::super::names::{ChangeId, Name, Serial};
use super::super::root::Root;
use super::super::row::{Identity, Row, RowId};
use super::super::rules::tests::{all_keys, keys};
use super::super::rules::{Patterns, Position, Rules, Text};
use super::Model;
use super::controls::Control;
use crate::protocol::Key;

/// The difference between the runs of two processes of a node. A failed commit adds one to the run of a root.
const RUN_STEP: u64 = 10;

/// What may happen, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    pub leaves: usize,
    pub root_sets: u8,
    pub root_deletes: u8,
    /// For each leaf.
    pub leaf_sets: u8,
    pub leaf_deletes: u8,
    pub losses: u8,
    pub drops: u8,
    pub duplicates: u8,
    pub reorders: u8,
    /// Frames that arrive after their link has ended.
    pub late: u8,
    pub leaf_crashes: u8,
    pub root_crashes: u8,
    pub failed_commits: u8,
    pub leaf_restores: u8,
    pub root_restores: u8,
    /// Resyncs that operators ask for, on either side.
    pub resyncs: u8,
    /// New, empty roots that the leaves accept.
    pub new_roots: u8,
    /// The rules lose the key, or get it back.
    pub rule_changes: u8,
    /// Changes of another leaf, with the serial of the last change of the first one, or the next one.
    pub forgeries: u8,
    /// Whether a restored leaf goes on with the random number of the process before.
    pub repeats_runs: bool,
    /// Whether commits are actions of their own.
    pub is_lazy: bool,
    pub control: Option<Control>,
}

impl Bounds {
    /// One leaf, and no event at all.
    pub const NONE: Self = Self {
        leaves: 1,
        root_sets: 0,
        root_deletes: 0,
        leaf_sets: 0,
        leaf_deletes: 0,
        losses: 0,
        drops: 0,
        duplicates: 0,
        reorders: 0,
        late: 0,
        leaf_crashes: 0,
        root_crashes: 0,
        failed_commits: 0,
        leaf_restores: 0,
        root_restores: 0,
        resyncs: 0,
        new_roots: 0,
        rule_changes: 0,
        forgeries: 0,
        repeats_runs: false,
        is_lazy: false,
        control: None,
    };
}

/// A leaf that connects more often makes no progress.
const CONNECTIONS_MAX: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    RootSet,
    RootDelete,
    LeafSet(usize),
    LeafDelete(usize),
    Up(usize),
    Down(usize),
    Connect(usize),
    Lose(usize),
    LoseButOne(usize),
    Drop(usize, bool),
    Duplicate(usize, bool),
    Reorder(usize, bool),
    Commit(Option<usize>),
    FailCommit(Option<usize>),
    Crash(Option<usize>),
    Backup(Option<usize>),
    Restore(Option<usize>),
    Resync(usize, bool),
    NewRoot,
    ChangeRules,
    /// With the next serial, or the last one.
    Forge(bool),
    Timeout,
    EarlyPurge,
}

/// A key, and its value before and after.
type ValueWrite = (Key, Option<Bytes>, Option<Bytes>);
type Disk = (BTreeMap<RowId, Row>, BTreeMap<Key, Bytes>);

/// A node's store and disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Site {
    pub values: BTreeMap<Key, Bytes>,
    disk: Disk,
    /// Uncommitted steps: the rows, and the values before and after.
    pending: Vec<(UncommittedStep, Vec<ValueWrite>)>,
    backup: Option<Box<Disk>>,
}

/// The part of [`Effects`] that waits for the commit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct UncommittedStep {
    step: u64,
    rows: Vec<super::super::row::RowChange>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub left: Bounds,
    /// The changes that each leaf has left: sets and deletions.
    changes: Vec<(u8, u8)>,
    pub root: Root,
    pub root_site: Site,
    pub leaves: Vec<(Leaf, Site)>,
    pub up: Vec<VecDeque<LinkFrame>>,
    pub down: Vec<VecDeque<LinkFrame>>,
    connected: Vec<bool>,
    links: Vec<u64>,
    runs: Vec<u64>,
    made: u8,
    /// The change ids that the root's record has had, in the order of commits.
    history: Vec<ChangeId>,
    /// The values that the root has had, and those that clients of leaves have set.
    root_values: BTreeSet<Bytes>,
    leaf_values: BTreeSet<Bytes>,
    /// The bases of the changes of leaves, as their clients saw them.
    bases: BTreeMap<ChangeId, ChangeId>,
    /// The serial of the last change of the first leaf.
    last_serial: Option<Serial>,
    /// The number of changes that were forged.
    forged: u64,
    /// Whether the counters of a leaf hold: not after its backup was restored.
    is_restored: bool,
    /// Whether the rules have the key.
    has_rule: bool,
    root_store: u64,
}

impl Values for Site {
    fn content(&self, key: &Key) -> Option<Content> {
        self.values.get(key).map(|value| Content { value: value.clone(), ttl_ms: None })
    }

    fn has_room(&self, _: &Key, _: &Content) -> bool {
        true
    }
}

fn key() -> Key {
    Key::new("k").unwrap()
}

pub fn name(at: usize) -> Name {
    Name::new(["a", "b", "c"][at]).unwrap()
}

fn identity(node: Name, store: u64) -> Identity {
    Identity { exchange: Name::new("plant").unwrap(), node, store }
}

pub fn new_root(run: u64) -> Root {
    root_with(all_keys(), 1, run)
}

fn root_with(rules: Rules, store: u64, run: u64) -> Root {
    let admit = vec![Text { text: "*".to_owned(), at: Position::default() }];
    let admit = Patterns::parse(&admit, Position::default(), "admit").unwrap();
    Root::new(identity(Name::new("root").unwrap(), store), rules, admit, run)
}

fn rules(has_rule: bool) -> Rules {
    if has_rule { all_keys() } else { keys(&["other"]) }
}

pub fn new_leaf(at: usize, run: u64) -> Leaf {
    Leaf::new(identity(name(at), 10 + at as u64), JoinPolicy::default(), run, 1_000 * (at as u64 + 1))
}

impl Site {
    fn new(rows: Vec<(RowId, Row)>) -> Self {
        Self { disk: (rows.into_iter().collect(), BTreeMap::new()), ..Self::default() }
    }

    fn apply(&mut self, effects: &Effects, own: Option<(Key, Option<Bytes>)>) {
        let others = effects
            .values
            .iter()
            .map(|change| (change.key.clone(), change.content.as_ref().map(|content| content.value.clone())));
        let mut values = Vec::new();
        for (key, after) in own.into_iter().chain(others) {
            let before = match after.clone() {
                Some(value) => self.values.insert(key.clone(), value),
                None => self.values.remove(&key),
            };
            values.push((key, before, after));
        }
        if effects.step > 0 {
            self.pending.push((UncommittedStep { step: effects.step, rows: effects.rows.clone() }, values));
        } else if !values.is_empty() {
            assert!(effects.values.is_empty(), "a value without a row");
            // The key is local.
            self.pending.push((UncommittedStep { step: 0, rows: Vec::new() }, values));
        }
    }

    /// Commits all steps as one group. Returns the last one, and the change ids of records.
    fn commit(&mut self) -> (u64, Vec<ChangeId>) {
        let (mut last, mut change_ids) = (0, Vec::new());
        for (effects, values) in std::mem::take(&mut self.pending) {
            last = last.max(effects.step);
            for change in effects.rows {
                if let (Some(Row::Record(record)), before) = (&change.after, &change.before)
                    && !matches!(before, Some(Row::Record(before)) if before.change_id == record.change_id)
                {
                    change_ids.push(record.change_id);
                }
                // What is on disk is what the codec makes of it.
                match change.after {
                    Some(row) => {
                        let row = Row::decode(&row.encode()).unwrap();
                        self.disk.0.insert(RowId::decode(&change.id.encode()).unwrap(), row)
                    }
                    None => self.disk.0.remove(&change.id),
                };
            }
            for (key, _, after) in values {
                match after {
                    Some(value) => self.disk.1.insert(key, value),
                    None => self.disk.1.remove(&key),
                };
            }
        }
        (last, change_ids)
    }

    /// Undoes all uncommitted steps. Returns whether the rules are among the rows that are back.
    fn undo(&mut self, mut restore: impl FnMut(RowId, Option<Row>)) -> bool {
        let mut are_rules_back = false;
        for (effects, values) in std::mem::take(&mut self.pending).into_iter().rev() {
            for change in effects.rows.into_iter().rev() {
                are_rules_back |= change.id == RowId::Rules;
                restore(change.id, change.before);
            }
            for (key, before, _) in values.into_iter().rev() {
                match before {
                    Some(value) => self.values.insert(key, value),
                    None => self.values.remove(&key),
                };
            }
        }
        are_rules_back
    }

    /// Starts again from the disk, in the order of the table.
    fn load(&mut self, mut restore: impl FnMut(RowId, Option<Row>)) {
        self.pending.clear();
        self.values = self.disk.1.clone();
        let mut rows = self.rows();
        rows.sort_by_key(|(id, _)| id.encode());
        for (id, row) in rows {
            restore(id, Some(row));
        }
    }

    pub fn rows(&self) -> Vec<(RowId, Row)> {
        self.disk.0.clone().into_iter().collect()
    }
}

impl World {
    pub fn new(bounds: Bounds) -> Self {
        let root = new_root(100);
        let leaves = (0..bounds.leaves).map(|at| new_leaf(at, 1_000 * (at as u64 + 2)));
        let leaves: Vec<_> = leaves.map(|leaf| (leaf.clone(), Site::new(leaf.first_rows()))).collect();
        let none = || vec![VecDeque::new(); bounds.leaves];
        let mut world = Self {
            left: bounds,
            changes: vec![(bounds.leaf_sets, bounds.leaf_deletes); bounds.leaves],
            root_site: Site::new(root.first_rows()),
            root,
            leaves,
            up: none(),
            down: none(),
            connected: vec![false; bounds.leaves],
            links: (0..bounds.leaves).map(|at| 10_000 * (at as u64 + 1)).collect(),
            runs: (0..=bounds.leaves).map(|at| 1_000 * (at as u64 + 1)).collect(),
            made: 0,
            history: Vec::new(),
            root_values: BTreeSet::new(),
            leaf_values: BTreeSet::new(),
            bases: BTreeMap::new(),
            last_serial: None,
            forged: 0,
            is_restored: false,
            has_rule: true,
            root_store: 1,
        };
        // All have joined before the exploration begins.
        for at in 0..bounds.leaves {
            world.connect(at);
            while let Some(action) = world.progress().first().copied() {
                world.perform(&action).unwrap();
            }
        }
        world
    }

    fn connect(&mut self, at: usize) {
        self.links[at] += 100;
        self.connected[at] = true;
        self.leaves[at].0.handle_connected(self.links[at], 0);
        self.pump();
    }

    /// Ends the connection on both sides.
    fn disconnect(&mut self, at: usize) {
        self.connected[at] = false;
        self.leaves[at].0.handle_lost();
        for link in [self.links[at], self.links[at] + 1] {
            self.root.handle_lost(&name(at), link);
        }
        self.up[at].clear();
        self.down[at].clear();
    }

    fn take_root(&mut self, effects: &Effects, own: Option<(Key, Option<Bytes>)>) {
        self.root_site.apply(effects, own);
        for event in &effects.events {
            if let Event::Ended { leaf, link, .. } = event {
                let Some(at) = self.place(leaf) else { continue };
                if self.connected[at] && (*link == self.links[at] || *link == self.links[at] + 1) {
                    let is_replaced =
                        effects.events.iter().any(|event| matches!(event, Event::Linked { .. }));
                    if !is_replaced {
                        self.disconnect(at);
                    }
                }
            }
        }
        self.commit_at_once(None);
    }

    pub fn take_leaf(&mut self, at: usize, effects: &Effects, own: Option<(Key, Option<Bytes>)>) {
        self.leaves[at].1.apply(effects, own);
        if !self.leaves[at].0.has_link() && self.connected[at] {
            self.disconnect(at);
        }
        self.commit_at_once(Some(at));
    }

    fn commit_at_once(&mut self, site: Option<usize>) {
        if !self.left.is_lazy || self.left.control == Some(Control::EarlyAck) {
            if self.left.is_lazy {
                // The control: frames leave although nothing is on disk.
                match site {
                    None => self.root.handle_saved(u64::MAX / 2),
                    Some(at) => self.leaves[at].0.handle_saved(u64::MAX / 2),
                }
            } else {
                self.commit(site);
            }
        }
        self.pump();
    }

    fn commit(&mut self, site: Option<usize>) {
        match site {
            None => {
                let written = self.root_site.pending.iter().flat_map(|(_, values)| values.iter());
                self.root_values.extend(written.filter_map(|(_, _, after)| after.clone()));
                let (step, change_ids) = self.root_site.commit();
                self.root.handle_saved(step);
                self.history.extend(change_ids);
            }
            Some(at) => {
                let (leaf, site) = &mut self.leaves[at];
                let (step, _) = site.commit();
                leaf.handle_saved(step);
            }
        }
    }

    pub fn commit_all(&mut self) {
        self.sites().for_each(|site| self.commit(site));
    }

    /// Moves the frames that the nodes have to the channels, and runs the walks that are due.
    fn pump(&mut self) {
        if self.root.is_purge_due() {
            let effects = self.root.handle_timeout(0);
            self.root_site.apply(&effects, None);
            if !self.left.is_lazy {
                self.commit(None);
            }
        }
        while let Some((leaf, frame)) = self.root.poll_outgoing(0, &self.root_site) {
            if let Some(at) = self.place(&leaf).filter(|at| self.connected[*at]) {
                self.down[at].push_back(frame);
            }
        }
        if self.root.is_walk_due() {
            if let Some(content) = self.root_site.content(&key()) {
                let effects = self.root.handle_found(&key(), &content);
                self.root_site.apply(&effects, None);
            }
            let effects = self.root.handle_walked();
            self.root_site.apply(&effects, None);
            if !self.left.is_lazy {
                self.commit(None);
            }
        }
        for at in 0..self.leaves.len() {
            let (leaf, site) = &mut self.leaves[at];
            if leaf.is_walk_due() {
                let found = site.content(&key());
                if let Some(content) = found {
                    let effects = leaf.handle_found(&key(), &content, 0, site);
                    site.apply(&effects, None);
                }
                let effects = leaf.handle_walked();
                site.apply(&effects, None);
                if !self.left.is_lazy {
                    self.commit(Some(at));
                }
            }
            while let Some(frame) = self.leaves[at].0.poll_outgoing("", 0) {
                if self.connected[at] {
                    Control::sent(self, at, &frame);
                    self.up[at].push_back(frame);
                }
            }
        }
    }

    fn site(&self, site: Option<usize>) -> &Site {
        site.map_or(&self.root_site, |at| &self.leaves[at].1)
    }

    fn sites(&self) -> impl Iterator<Item = Option<usize>> + use<> {
        std::iter::once(None).chain((0..self.leaves.len()).map(Some))
    }

    /// Actions that bring the world on without a fault.
    pub fn progress(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for at in 0..self.leaves.len() {
            if !self.connected[at] {
                actions.push(Action::Connect(at));
            }
            if !self.up[at].is_empty() {
                actions.push(Action::Up(at));
            }
            if !self.down[at].is_empty() {
                actions.push(Action::Down(at));
            }
        }
        let uncommitted = self.sites().filter(|site| !self.site(*site).pending.is_empty());
        actions.extend(uncommitted.map(Action::Commit));
        // The next digest is due later.
        let is_due = |timeout: Option<u64>| timeout.is_some_and(|due| due <= STALL_MS);
        let is_waiting = is_due(self.root.poll_timeout())
            || self.leaves.iter().any(|(leaf, _)| is_due(leaf.poll_timeout()));
        if actions.is_empty() && is_waiting {
            actions.push(Action::Timeout);
        }
        actions
    }

    fn restart(&mut self, site: Option<usize>) {
        match site {
            None => {
                (0..self.leaves.len()).for_each(|at| self.disconnect(at));
                self.runs[0] += RUN_STEP;
                self.root = root_with(rules(self.has_rule), self.root_store, self.runs[0]);
                self.root_site.load(|id, row| self.root.restore(id, row));
            }
            Some(at) => {
                self.disconnect(at);
                if !self.left.repeats_runs {
                    self.runs[at + 1] += RUN_STEP;
                }
                let (leaf, site) = &mut self.leaves[at];
                *leaf = new_leaf(at, self.runs[at + 1]);
                site.load(|id, row| leaf.restore(id, row));
            }
        }
    }

    fn change(&mut self, leaf: Option<usize>, value: Option<Bytes>) {
        let content = value.clone().map(|value| Content { value, ttl_ms: None });
        match leaf {
            None => {
                let effects = self.root.handle_change(&key(), content.as_ref());
                self.take_root(&effects, Some((key(), value)));
            }
            Some(at) => {
                self.leaf_values.extend(value.clone());
                let leaf = &mut self.leaves[at].0;
                let before = leaf.pending(&key()).map(|(_, entry)| entry.change_id);
                let before = before.or(leaf.note(&key()).map(|note| note.change_id)).unwrap_or_default();
                let effects = leaf.handle_change(&key(), content.as_ref(), 0);
                if let Some((_, made)) = leaf.pending(&key()) {
                    self.bases.insert(made.change_id, before);
                    self.last_serial = Some(made.serial);
                }
                self.take_leaf(at, &effects, Some((key(), value)));
            }
        }
    }

    /// Another leaf proposes a change with a serial of the first one, based on what the root has.
    fn forge(&mut self, is_next: bool) {
        let Some(serial) = self.last_serial else { return };
        let serial = Serial { counter: serial.counter + u64::from(is_next), ..serial };
        let forger = Name::new("forger").unwrap();
        let link = 900_000 + self.forged;
        let hello = Hello {
            version: VERSION,
            exchange: Name::new("plant").unwrap(),
            leaf: forger.clone(),
            store: 99,
            run: 99,
            link,
            stream: 99,
            acked: self.forged,
            cursor: 0,
            last_ver: 0,
            term: 0,
            rules: 0,
            software: String::new(),
            oldest_version: OLDEST_VERSION,
            is_resync: false,
            horizon: 0,
            last_seq: self.forged,
            is_busy: false,
        };
        let base = self.root.record(&key()).map_or(ChangeId::NIL, |record| record.change_id);
        self.forged += 1;
        let content =
            self.value().map_or(Proposed::Deletion, |value| Proposed::Value(Content { value, ttl_ms: None }));
        let flags = Flags { is_base_absent: base == ChangeId::NIL, ..Flags::default() };
        let proposal = Proposal { seq: self.forged, key: key(), serial, base, flags, content };
        let changes = Changes { link, n: 1, items: vec![proposal] };
        for frame in [LinkFrame::Hello(hello), LinkFrame::Changes(changes)] {
            let effects = self.root.handle_frame(&forger, &Bytes::new(), frame, 0, &self.root_site);
            self.take_root(&effects, None);
        }
        self.root.handle_lost(&forger, link);
    }

    fn place(&self, leaf: &Name) -> Option<usize> {
        (0..self.leaves.len()).find(|at| name(*at) == *leaf)
    }

    fn value(&mut self) -> Option<Bytes> {
        self.made += 1;
        Some(Bytes::from(vec![self.made]))
    }

    fn channel(&mut self, at: usize, is_up: bool) -> &mut VecDeque<LinkFrame> {
        if is_up { &mut self.up[at] } else { &mut self.down[at] }
    }

    fn faults(&self, actions: &mut Vec<Action>) {
        let left = &self.left;
        for at in 0..self.leaves.len() {
            if left.losses > 0 && self.connected[at] {
                actions.push(Action::Lose(at));
                if left.late > 0 && !(self.up[at].is_empty() && self.down[at].is_empty()) {
                    actions.push(Action::LoseButOne(at));
                }
            }
            for is_up in [true, false] {
                let len = if is_up { self.up[at].len() } else { self.down[at].len() };
                if left.drops > 0 && len > 0 {
                    actions.push(Action::Drop(at, is_up));
                }
                if left.duplicates > 0 && len > 0 {
                    actions.push(Action::Duplicate(at, is_up));
                }
                if left.reorders > 0 && len > 1 {
                    actions.push(Action::Reorder(at, is_up));
                }
            }
        }
        for at in (0..self.leaves.len()).filter(|_| left.resyncs > 0) {
            actions.extend([Action::Resync(at, false), Action::Resync(at, true)]);
        }
        if left.new_roots > 0 {
            actions.push(Action::NewRoot);
        }
        if left.rule_changes > 0 {
            actions.push(Action::ChangeRules);
        }
        if left.forgeries > 0 && self.last_serial.is_some() {
            actions.extend([Action::Forge(false), Action::Forge(true)]);
        }
        for site in self.sites() {
            let (crashes, restores) = match site {
                None => (left.root_crashes, left.root_restores),
                Some(_) => (left.leaf_crashes, left.leaf_restores),
            };
            if crashes > 0 {
                actions.push(Action::Crash(site));
            }
            if left.failed_commits > 0 && !self.site(site).pending.is_empty() {
                actions.push(Action::FailCommit(site));
            }
            match self.site(site).backup {
                None if restores > 0 => actions.push(Action::Backup(site)),
                Some(_) if restores > 0 => actions.push(Action::Restore(site)),
                _ => {}
            }
        }
    }
}

impl Model for World {
    type Action = Action;

    fn actions(&self) -> Vec<Action> {
        let mut actions = self.progress();
        if self.left.root_sets > 0 {
            actions.push(Action::RootSet);
        }
        if self.left.root_deletes > 0 && self.root_site.values.contains_key(&key()) {
            actions.push(Action::RootDelete);
        }
        for (at, (sets, deletes)) in self.changes.iter().enumerate() {
            if *sets > 0 {
                actions.push(Action::LeafSet(at));
            }
            if *deletes > 0 && self.leaves[at].1.values.contains_key(&key()) {
                actions.push(Action::LeafDelete(at));
            }
        }
        if self.left.control == Some(Control::EarlyPurge) && self.root.key_is_tombstone(&key()) {
            actions.push(Action::EarlyPurge);
        }
        self.faults(&mut actions);
        actions
    }

    fn perform(&mut self, action: &Action) -> Result<(), String> {
        match *action {
            Action::RootSet => {
                self.left.root_sets -= 1;
                let value = self.value();
                self.change(None, value);
            }
            Action::RootDelete => {
                self.left.root_deletes -= 1;
                self.change(None, None);
            }
            Action::LeafSet(at) => {
                self.changes[at].0 -= 1;
                let value = self.value();
                self.change(Some(at), value);
            }
            Action::LeafDelete(at) => {
                self.changes[at].1 -= 1;
                self.change(Some(at), None);
            }
            Action::Up(at) => {
                let frame = self.up[at].pop_front().unwrap();
                let frame = Control::up(self, at, frame);
                let frame = LinkFrame::decode(&frame.encode()).unwrap();
                let effects = self.root.handle_frame(&name(at), &Bytes::new(), frame, 0, &self.root_site);
                self.take_root(&effects, None);
            }
            Action::Down(at) => {
                let frame = self.down[at].pop_front().unwrap();
                let frame = Control::down(self, at, frame);
                let frame = LinkFrame::decode(&frame.encode()).unwrap();
                let (leaf, site) = &mut self.leaves[at];
                let effects = leaf.handle_frame(frame, 0, site);
                self.take_leaf(at, &effects, None);
            }
            Action::Connect(at) => {
                if self.links[at] > 10_000 * (at as u64 + 1) + 100 * CONNECTIONS_MAX {
                    return Err("links end again and again".to_owned());
                }
                self.connect(at);
            }
            Action::Lose(at) => {
                self.left.losses -= 1;
                self.disconnect(at);
            }
            Action::LoseButOne(at) => {
                self.left.losses -= 1;
                self.left.late -= 1;
                let kept = (self.up[at].pop_front(), self.down[at].pop_front());
                self.disconnect(at);
                self.up[at].extend(kept.0);
                self.down[at].extend(kept.1);
            }
            Action::Drop(at, is_up) => {
                self.left.drops -= 1;
                self.channel(at, is_up).pop_front();
            }
            Action::Duplicate(at, is_up) => {
                self.left.duplicates -= 1;
                let channel = self.channel(at, is_up);
                let frame = channel.front().unwrap().clone();
                channel.push_back(frame);
            }
            Action::Reorder(at, is_up) => {
                self.left.reorders -= 1;
                self.channel(at, is_up).swap(0, 1);
            }
            Action::Commit(site) => {
                self.commit(site);
                self.pump();
            }
            Action::FailCommit(site) => {
                self.left.failed_commits -= 1;
                match site {
                    None => {
                        let are_rules_back = self.root_site.undo(|id, row| self.root.restore(id, row));
                        let effects = self.root.handle_commit_failed(are_rules_back);
                        self.take_root(&effects, None);
                    }
                    Some(at) => {
                        let (leaf, site) = &mut self.leaves[at];
                        let are_rules_back = site.undo(|id, row| leaf.restore(id, row));
                        let effects = leaf.handle_commit_failed(are_rules_back);
                        self.take_leaf(at, &effects, None);
                    }
                }
            }
            Action::Crash(site) => {
                match site {
                    None => self.left.root_crashes -= 1,
                    Some(_) => self.left.leaf_crashes -= 1,
                }
                self.restart(site);
            }
            Action::Backup(site) => {
                let disk = Some(Box::new(self.site(site).disk.clone()));
                match site {
                    None => self.root_site.backup = disk,
                    Some(at) => self.leaves[at].1.backup = disk,
                }
            }
            Action::Restore(site) => {
                match site {
                    None => self.left.root_restores -= 1,
                    Some(_) => self.left.leaf_restores -= 1,
                }
                self.is_restored = true;
                if site.is_none() {
                    self.history.clear();
                }
                let target = match site {
                    None => &mut self.root_site,
                    Some(at) => &mut self.leaves[at].1,
                };
                target.disk = *target.backup.take().unwrap();
                self.restart(site);
            }
            Action::Resync(at, is_root) => {
                self.left.resyncs -= 1;
                if is_root {
                    let effects = self.root.resync(&name(at));
                    self.take_root(&effects, None);
                } else {
                    let effects = self.leaves[at].0.resync(false);
                    self.take_leaf(at, &effects, None);
                }
            }
            Action::NewRoot => {
                self.left.new_roots -= 1;
                (0..self.leaves.len()).for_each(|at| self.disconnect(at));
                self.runs[0] += RUN_STEP;
                self.root_store += 1;
                self.is_restored = true;
                self.history.clear();
                self.root = root_with(rules(self.has_rule), self.root_store, self.runs[0]);
                self.root_site = Site::new(self.root.first_rows());
                for at in 0..self.leaves.len() {
                    let effects = self.leaves[at].0.resync(true);
                    self.take_leaf(at, &effects, None);
                    // The operator waits for the answer.
                    self.commit(Some(at));
                }
            }
            Action::ChangeRules => {
                self.left.rule_changes -= 1;
                self.has_rule = !self.has_rule;
                self.is_restored = true;
                self.history.clear();
                let effects = self.root.set_rules(rules(self.has_rule));
                self.take_root(&effects, None);
            }
            Action::Forge(is_next) => {
                self.left.forgeries -= 1;
                self.forge(is_next);
            }
            Action::Timeout => {
                let effects = self.root.handle_timeout(STALL_MS);
                self.take_root(&effects, None);
                for at in 0..self.leaves.len() {
                    let (leaf, site) = &mut self.leaves[at];
                    let effects = leaf.handle_timeout(STALL_MS, site);
                    self.take_leaf(at, &effects, None);
                }
            }
            Action::EarlyPurge => {
                let effects = self.root.purge_early();
                self.take_root(&effects, None);
            }
        }
        for (at, change_id) in self.history.iter().enumerate() {
            if self.history[..at].contains(change_id) {
                return Err("a change was accepted twice".to_owned());
            }
            // I2, I3: what is accepted was made on what the root holds.
            let base = self.bases.get(change_id).copied().unwrap_or_default();
            let before = at.checked_sub(1).map_or(ChangeId::NIL, |before| self.history[before]);
            if base != ChangeId::NIL && base != before && !self.is_restored {
                return Err("a change on an obsolete base was accepted".to_owned());
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        if !self.progress().is_empty() {
            return Ok(());
        }
        // I5: what a client of a leaf has set was at the root, or is a conflict.
        let conflicts = self.leaves.iter().flat_map(|(leaf, _)| leaf.conflicts().since(0));
        let lost: Vec<_> = conflicts.filter_map(|(_, conflict)| conflict.lost.value()).collect();
        let is_gone = |value: &Bytes| !self.root_values.contains(value) && !lost.contains(&value);
        if self.leaf_values.iter().any(is_gone) && !self.is_restored && !self.left.is_lazy {
            return Err("a value was lost silently".to_owned());
        }
        for (leaf, site) in &self.leaves {
            if leaf.outbox().0 > 0 {
                return Err("a change has no decision".to_owned());
            }
            if site.values != self.root_site.values && self.has_rule {
                return Err("the values differ".to_owned());
            }
            // The controls have to be found without the digest.
            let digest = self.root.digest(&leaf.row().identity.node);
            if digest != Some(leaf.digest()) && self.left.control.is_none() {
                return Err("the digests differ".to_owned());
            }
            let counts = leaf.row().counts;
            let is_crashed = self.left.is_lazy;
            if counts.made != counts.accepted + counts.refused + counts.merged && !self.is_restored {
                return Err("the counters differ".to_owned());
            }
            let accepted =
                self.history.iter().filter(|change_id| self.bases.contains_key(change_id)).count() as u64;
            if counts.accepted > accepted && !self.is_restored {
                return Err("the root does not have a change that it accepted".to_owned());
            }
            // I5: each refused change is a conflict at the leaf.
            if (leaf.conflicts().len() as u64) < counts.refused && !self.is_restored && !is_crashed {
                return Err("a change was refused silently".to_owned());
            }
        }
        Ok(())
    }
}
