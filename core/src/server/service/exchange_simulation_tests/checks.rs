//! What must hold at any time, and in the end.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use bytes::Bytes;

use super::node::{NAMES, Process, name};
use super::world::World;
use crate::exchange::frame::LinkFrame;
use crate::exchange::names::ChangeId;
use crate::exchange::root::Root;
use crate::exchange::row::{DecisionKind, FOREVER, RecordKind, Row, RowId};
use crate::exchange::{Exchange, leaf, root};
use crate::protocol::Key;
use crate::protocol::exchange::{LeafReport, LeafState};

/// Expiry times of one value differ by rounding between nodes and restarts.
const ROUNDING_MS: u64 = 50;

/// All changes that were made, and what has become of them.
#[derive(Default)]
pub struct Ledger {
    made: HashMap<ChangeId, Made>,
    /// The changes of each node, in the order in which its clients made them.
    in_order: HashMap<usize, Vec<ChangeId>>,
    acknowledged: HashSet<ChangeId>,
    /// The version of each accepted change.
    accepted: HashMap<ChangeId, u64>,
    /// Changes that lost, or that a later one was merged with.
    settled: HashSet<ChangeId>,
    /// What a leaf has sent to the root of a change, by the leaf and the number of the change.
    proposed: HashMap<(usize, u64), Proposed>,
    /// The accepted change of each base.
    successors: HashMap<(Key, ChangeId), ChangeId>,
    /// Leaves of which changes may be lost: another folder took their place.
    pub untracked: HashSet<usize>,
    /// Keys that no rule of the root named for a while: it has dropped their records, also those of deletions.
    pub without_rule: HashSet<Key>,
    /// Leaves that have left their root, to join a new one.
    pub rejoined: HashSet<usize>,
    /// Whether the root was restored from a backup: then changes are decided again.
    pub is_root_restored: bool,
}

/// A change that a client of a node has made, or the node for a key that it had.
#[derive(Debug)]
pub struct Made {
    pub at: usize,
    /// `None`: a deletion.
    pub value: Option<Bytes>,
    /// Whether it left a value without expiry.
    pub is_lasting: bool,
    /// The last change of the key that the client could see.
    pub base: ChangeId,
    /// The number among the changes of the node.
    pub number: usize,
}

#[derive(Clone)]
struct Proposed {
    key: Key,
    change_id: ChangeId,
    base: ChangeId,
}

impl Ledger {
    pub fn is_known(&self, change_id: ChangeId) -> bool {
        self.made.contains_key(&change_id)
    }

    /// Notes a change with its value, and whether that does not expire.
    pub fn note_made(
        &mut self,
        at: usize,
        change_id: ChangeId,
        base: ChangeId,
        content: Option<(Bytes, bool)>,
    ) {
        let is_lasting = content.as_ref().is_some_and(|(_, is_lasting)| *is_lasting);
        let in_order = self.in_order.entry(at).or_default();
        let (number, value) = (in_order.len(), content.map(|(value, _)| value));
        in_order.push(change_id);
        self.made.insert(change_id, Made { at, value, is_lasting, base, number });
    }

    pub fn made(&self, change_id: ChangeId) -> Option<&Made> {
        self.made.get(&change_id)
    }

    /// Returns some of the changes of a node.
    pub fn of_node(&self, at: usize, numbers: Range<usize>) -> impl Iterator<Item = ChangeId> {
        self.in_order[&at][numbers].iter().copied()
    }

    pub fn is_accepted(&self, change_id: ChangeId) -> bool {
        self.accepted.contains_key(&change_id)
    }

    pub fn is_settled(&self, change_id: ChangeId) -> bool {
        self.settled.contains(&change_id)
    }

    /// Whether a change is acknowledged and has no decision yet.
    pub fn is_open(&self, change_id: ChangeId) -> bool {
        let is_decided = self.is_accepted(change_id) || self.is_settled(change_id);
        self.acknowledged.contains(&change_id) && !is_decided
    }

    pub fn note_acknowledged(&mut self, change_id: ChangeId) {
        self.acknowledged.insert(change_id);
    }

    pub fn note_settled(&mut self, change_id: ChangeId) {
        self.settled.insert(change_id);
    }

    /// Notes which changes a frame has, before the root handles it.
    pub fn note_proposed(&mut self, at: usize, payload: &Bytes) {
        let Ok(LinkFrame::Changes(changes)) = LinkFrame::decode(payload) else { return };
        for item in changes.items.into_iter().filter(|item| !item.flags.is_restored) {
            let change_id = item.change_id(&name(NAMES[at]));
            let base = if item.flags.is_base_absent { ChangeId::NIL } else { item.base };
            self.proposed.insert((at, item.seq), Proposed { key: item.key, change_id, base });
        }
    }

    /// Returns the numbers under which a leaf has sent a change.
    pub fn proposed_as(&self, at: usize, change_id: ChangeId) -> impl Iterator<Item = u64> {
        let of_change = move |(id, proposed): (&(usize, u64), &Proposed)| {
            (id.0 == at && proposed.change_id == change_id).then_some(id.1)
        };
        self.proposed.iter().filter_map(of_change)
    }

    /// Notes the decisions among the committed rows of the root.
    pub fn note_decisions<'a>(
        &mut self,
        rows: impl IntoIterator<Item = (&'a RowId, &'a Row)>,
    ) -> Result<(), String> {
        for (id, row) in rows {
            match (id, row) {
                (RowId::Decision(leaf, seq), Row::Decision(decision)) => {
                    let at = NAMES.iter().position(|name| *name == leaf.as_str()).unwrap();
                    let Some(proposed) = self.proposed.get(&(at, *seq)).cloned() else { continue };
                    match decision.kind {
                        DecisionKind::Accepted { ver } => self.note_accepted(at, proposed, ver)?,
                        DecisionKind::Refused(_) => drop(self.settled.insert(proposed.change_id)),
                    }
                }
                (RowId::Conflict(_), Row::Conflict(conflict)) => {
                    self.settled.insert(conflict.change_id);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn note_accepted(&mut self, at: usize, proposed: Proposed, ver: u64) -> Result<(), String> {
        let Proposed { key, change_id, base } = proposed;
        // A leaf that an operator has sent to a new root offers all its changes, also if it is the old root after all.
        if self.is_root_restored || self.rejoined.contains(&at) {
            self.accepted.insert(change_id, ver);
            return Ok(());
        }
        let earlier = *self.accepted.entry(change_id).or_insert(ver);
        if earlier != ver {
            return Err(format!("I8: {change_id:?} of {key:?} is accepted as {earlier} and as {ver}"));
        }
        let first = if base == ChangeId::NIL {
            change_id
        } else {
            *self.successors.entry((key, base)).or_insert(change_id)
        };
        if first != change_id {
            return Err(format!("I3: {first:?} and {change_id:?} are both accepted with the base {base:?}"));
        }
        Ok(())
    }

    pub fn note_committed(&mut self, rows: &[(RowId, Option<Row>)]) -> Result<(), String> {
        self.note_decisions(rows.iter().filter_map(|(id, row)| Some((id, row.as_ref()?))))
    }

    fn value(&self, change_id: ChangeId) -> Result<Option<Bytes>, String> {
        self.made(change_id)
            .map(|made| made.value.clone())
            .ok_or_else(|| format!("{change_id:?} was never made"))
    }

    pub fn summary(&self) -> (u64, u64) {
        (self.accepted.len() as u64, self.settled.len() as u64)
    }
}

impl World {
    /// I6: a leaf has what its cursor covers. I7: values and rows of a node agree. I9: what grows has bounds.
    pub fn check_node(&self, at: usize) -> Result<(), String> {
        if at > 0 {
            self.check_cursor(at)?;
        }
        let Some(process) = &self.nodes[at].process else { return Ok(()) };
        for key in &self.keys {
            self.check_key(process, key).map_err(|error| {
                let rows = process.with_exchange(|exchange| exchange.row(&RowId::Key(key.clone())));
                format!("I7: {} of {}: {error}; {rows:?}", text(key), NAMES[at])
            })?;
        }
        process.with_exchange(|exchange| match exchange {
            Exchange::Root(root) => {
                let report = root.report();
                let decisions = root.decisions_max();
                let is_bounded = decisions <= crate::exchange::frame::DECISIONS_MAX
                    && report.tombstones <= root::TOMBSTONES_MAX as u64;
                if is_bounded { Ok(()) } else { Err(format!("I9: {report:?}")) }
            }
            Exchange::Leaf(leaf) => {
                let (entries, bytes) = leaf.outbox();
                // At most so many changes of a key, but for those that were offered.
                let entries_max = leaf::LIVE_PER_KEY_MAX * self.keys.len() + 2 * 1_024;
                let is_bounded = entries <= entries_max && bytes <= leaf::OUTBOX_BYTES_MAX;
                if is_bounded { Ok(()) } else { Err(format!("I9: {entries} entries of {bytes} bytes")) }
            }
        })
    }

    fn check_key(&self, process: &Process, key: &Key) -> Result<(), String> {
        if !process.concerns(key) {
            return Ok(());
        }
        let shown = process.value(key, self.ms);
        // The value that the rows stand for, and whether it may have expired.
        let (change_id, may_be_gone, is_present) = process.with(self.ms, |state, _, now| {
            let participant = state.exchange.as_ref().unwrap();
            let now_ms = participant.now_ms(now.monotonic_ms);
            let is_near = |until: u64| until != FOREVER && until <= now_ms + ROUNDING_MS;
            // A value that has expired while no process ran is there for a moment after the start.
            let deadline_ms = state.store.read(key).and_then(|(_, stored)| stored.deadline_ms);
            let is_short = deadline_ms.is_some_and(|at_ms| at_ms <= now.monotonic_ms + ROUNDING_MS);
            let is_over = |until: u64| until != FOREVER && until + ROUNDING_MS <= now_ms && !is_short;
            match &participant.exchange {
                // What was set under rules that could not be committed is taken over by the walk.
                Exchange::Root(root) => match root.record(key) {
                    None => (None, true, root.is_walk_due() || root.poll_timeout() == Some(0)),
                    Some(record) => match record.kind {
                        RecordKind::Tombstone if root.is_walk_due() => (None, true, true),
                        RecordKind::Tombstone => (Some(record.change_id), true, false),
                        RecordKind::Lasting => (Some(record.change_id), false, true),
                        RecordKind::Expiring => (Some(record.change_id), true, true),
                    },
                },
                Exchange::Leaf(leaf) => match (leaf.pending(key), leaf.note(key)) {
                    (Some((_, entry)), _) if entry.value_until() <= now_ms && leaf.row().is_walk_due => {
                        (None, true, true)
                    }
                    (None, Some(note)) if note.until == 0 && leaf.row().is_walk_due => (None, true, true),
                    (Some((_, entry)), _) if entry.value.is_none() => (Some(entry.change_id), true, false),
                    (Some((_, entry)), _) => {
                        (Some(entry.change_id), is_near(entry.until), !is_over(entry.until))
                    }
                    (None, Some(note)) => {
                        (Some(note.change_id), note.until == 0 || is_near(note.until), !is_over(note.until))
                    }
                    (None, None) => {
                        let row = leaf.row();
                        (None, true, row.resync.is_some() || row.due.is_some() || row.is_walk_due)
                    }
                },
            }
        });
        match (change_id, shown) {
            (_, None) if may_be_gone => Ok(()),
            (_, None) => Err("there is no value".to_owned()),
            (None, Some(_)) if is_present => Ok(()),
            (Some(change_id), Some(shown))
                if is_present && self.ledger.value(change_id)?.as_ref() == Some(&shown) =>
            {
                Ok(())
            }
            (_, Some(shown)) => {
                let deadline = process.with(self.ms, |state, _, now| {
                    (state.store.read(key).map(|(_, stored)| stored.deadline_ms), now)
                });
                Err(format!("its value is {shown:?}, {deadline:?}"))
            }
        }
    }

    /// Checks what must hold when all faults have ended and nothing is left to be sent.
    #[expect(clippy::needless_range_loop, reason = "the number of a node is an index of several tables")]
    pub fn check_end(&mut self) -> Result<(), String> {
        for at in 0..self.nodes.len() {
            self.check_node(at)?;
        }
        let root = self.process(0);
        let report = root.root(Root::report);
        let is_late = |leaf: &LeafReport| leaf.state != LeafState::Synchronized;
        if report.tombstones > 0 || report.leaves.iter().any(is_late) {
            return Err(format!("I9: it is left with {report:?}"));
        }
        let routes = root.with(self.ms, |state, _, _| state.exchange.as_ref().unwrap().route_count());
        if routes > report.leaves.len() {
            return Err(format!("I9: it is left with {routes} routes"));
        }
        for at in 1..self.nodes.len() {
            let leaf = self.process(at);
            for key in self.keys.iter().filter(|key| root.concerns(key)) {
                let concerned = root.root(|root| root.rules().concerns(key, &self.nodes[at].name));
                if leaf.concerns(key) != concerned {
                    return Err(format!("I1: {} has other rules", NAMES[at]));
                }
                let (ours, theirs) = (root.value(key, self.ms), leaf.value(key, self.ms));
                if concerned
                    && (ours != theirs
                        || root.change_id(key) != leaf.change_id(key).filter(|_| ours.is_some()))
                {
                    let change_ids = (root.change_id(key), leaf.change_id(key));
                    return Err(format!(
                        "I1: {} of {}: {theirs:?}, root: {ours:?}, {change_ids:?}",
                        text(key),
                        NAMES[at]
                    ));
                }
            }
            let (counts, outbox) = leaf.leaf(|leaf| (leaf.row().counts, leaf.outbox().0));
            if outbox > 0 || counts.made != counts.accepted + counts.refused + counts.merged {
                return Err(format!("I5: {} has {outbox} changes left, {counts:?}", NAMES[at]));
            }
        }
        let Ledger { made, acknowledged, untracked, .. } = &self.ledger;
        let is_lost = |change_id: &&ChangeId| {
            let at = made[*change_id].at;
            at > 0 && !untracked.contains(&at) && self.ledger.is_open(**change_id)
        };
        if let Some(lost) = acknowledged.iter().find(is_lost) {
            return Err(format!("I5: {lost:?} has no decision: {:?}", made[lost]));
        }
        Ok(())
    }
}

impl World {
    /// What the root sends while nothing happens shows a leaf that it has other records, and the leaf repairs them.
    pub fn check_digests(&mut self) -> Result<(), String> {
        self.idle()?;
        let leaves = 1..self.nodes.len();
        if let Some(at) = leaves.clone().find(|at| !self.compared.contains(at)) {
            return Err(format!("{} has compared no digest", NAMES[at]));
        }
        self.damaged = leaves.filter(|at| self.damage(*at)).collect();
        self.figures.repaired += self.damaged.len() as u64;
        self.idle()?;
        if let Some(at) = self.damaged.iter().next() {
            return Err(format!("{} has not found that its records differ", NAMES[*at]));
        }
        self.check_end()
    }

    /// A new, empty root gets what the leaves may change; the rest is gone.
    pub fn check_new_root(&mut self) -> Result<(), String> {
        let rules = self.process(0).root(|root| root.rules().clone());
        let offered = |key: &Key| {
            let leaf = (1..self.nodes.len()).find(|at| rules.may_change(key, &self.nodes[*at].name))?;
            self.process(leaf).value(key, self.ms)
        };
        let expected: Vec<_> = self.keys.iter().map(offered).collect();
        self.replace_root()?;
        self.settle()?;
        let root = self.process(0);
        // The file of the root may have other rules, of which its process has not heard.
        let has_rules = root.root(|root| *root.rules() == rules);
        let concerned = self.keys.iter().zip(expected).filter(|(key, _)| has_rules && root.concerns(key));
        for (key, expected) in concerned {
            let value = root.value(key, self.ms);
            if value != expected {
                return Err(format!("the new root has {value:?} of {}, not {expected:?}", text(key)));
            }
        }
        self.check_end()
    }
}

pub fn text(key: &Key) -> String {
    String::from_utf8_lossy(key.as_bytes()).into_owned()
}
