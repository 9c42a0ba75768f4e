//! The root: decides the changes of leaves in the order of its commits, and sends its records to them.

mod decide;
mod link;
mod rows;
mod upkeep;
mod window;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use crate::protocol::Key;

use super::conflict_log::ConflictLog;
use super::effects::{Cause, Effects, Event, Values};
use super::fingerprint::Fingerprint;
use super::frame::{Content, DECISIONS_MAX, LinkFrame, Refused};
use super::names::{ChangeId, Name, SerialSource};
use super::row::{Decision, Identity, LeafRow, Record, RecordKind, RootRow, Row, RowId, Term};
use super::rules::{Patterns, Rules};
use super::steps::{Steps, UncommittedRemovals};
use window::Link;

/// The most leaves of a root.
pub const LEAVES_MAX: usize = 1_000;
/// The most leaves of one client identity that may join by themselves: one client must not take the room of all others.
pub const LEAVES_PER_IDENTITY_MAX: usize = LEAVES_MAX / 2;
/// The most tombstones. The oldest ones go then, even if a leaf has not received them: it does a resync.
pub const TOMBSTONES_MAX: usize = 100_000;
/// The most tombstones that one step purges, because requests wait meanwhile.
const PURGED_PER_STEP_MAX: usize = 256;
/// The most terms. A leaf whose cursor is in an older one does a resync.
const TERMS_MAX: usize = 1_024;
/// The most refused HELLOs of which the answers wait to be sent. The leaves of others repeat theirs.
const REFUSALS_MAX: usize = 64;

/// The root of an exchange.
///
/// Each `handle_*` is one step: what it returns belongs to one commit group. `handle_saved` reports that a step is
/// committed; `poll_outgoing` returns only frames whose causes are. After a failed commit, the rows of
/// [`Effects`] are put back with `restore`, in reverse order, and `handle_commit_failed` ends the links.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Root {
    row: RootRow,
    rules_digest: u64,
    rules: Rules,
    /// The rules of the rows.
    stored_rules: Rules,
    stored_digest: u64,
    /// Where the sweep after a change of the rules goes on.
    sweep: Option<Bound<Key>>,
    /// The digest of the records of each rule, up to `sweep`.
    digests: Vec<u64>,
    /// Leaves that may join by themselves.
    admit: Patterns,
    /// Those of them that are names: they are expected.
    expected: BTreeSet<Name>,
    terms: Vec<Term>,
    records: BTreeMap<Key, Record>,
    /// Keys by the version of their records.
    index: BTreeMap<u64, Key>,
    /// For each rule, a version that no record of its keys is above.
    rule_vers: Vec<u64>,
    /// Versions of the records that are tombstones.
    tombstones: BTreeSet<u64>,
    /// Versions of replaced records.
    replaced: UncommittedRemovals,
    /// Whether there may be tombstones that no leaf needs any more.
    is_purge_due: bool,
    leaves: BTreeMap<Name, Leaf>,
    /// At most one per leaf.
    links: BTreeMap<Name, Link>,
    /// Links that may have something to send.
    ready: BTreeSet<Name>,
    /// The leaf that was served last: the next one comes after it.
    served: Option<Name>,
    /// Leaves whose WELCOME waits for a step.
    waiting: BTreeSet<(u64, Name)>,
    /// Answers to refused HELLOs.
    refusals: VecDeque<(Name, Refused)>,
    /// Notices of links that have ended: at most one per leaf, separate from the refusals so that none is lost.
    ended: BTreeMap<Name, Refused>,
    conflicts: ConflictLog,
    source: SerialSource,
    steps: Steps<Progress>,
    /// The last version that is committed.
    saved_ver: u64,
}

/// What the root keeps of a leaf.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Leaf {
    row: LeafRow,
    decisions: BTreeMap<u64, Decision>,
    /// The last change of which the decision is committed.
    saved: u64,
    /// Whether its last change found no room in the store.
    is_blocked: bool,
    /// The time of its last frame since the process started.
    heard_ms: Option<u64>,
}

/// The state of a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownLeaf<'a> {
    pub(super) name: &'a Name,
    pub(super) row: &'a LeafRow,
    /// The number of decisions that it has not acknowledged.
    pub(super) decisions: usize,
    /// The changes that it has made and that are not decided, if a link is established: no more than this.
    pub(super) pending: Option<u64>,
    /// The time of its last frame since the process started.
    pub(super) heard_ms: Option<u64>,
    pub(super) is_blocked: bool,
    /// Whether it has all records that concern it, whatever its cursor is.
    pub(super) has_all: bool,
    /// Whether the root or the leaf has keys of its store to take over, or records to remove.
    pub(super) is_busy: bool,
}

/// What a step of the root reaches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Progress {
    ver: u64,
    /// The leaf of which the last change is decided.
    decided: Option<(Name, u64)>,
}

impl Root {
    /// Returns a root without records. `run` is random, different for each start.
    #[must_use]
    pub fn new(identity: Identity, rules: Rules, admit: Patterns, run: u64) -> Self {
        Self {
            row: RootRow {
                identity,
                ver: 0,
                purged: 0,
                rules_ver: 0,
                is_sweep_due: false,
                is_walk_due: true,
                last_conflict: 0,
                dropped_conflicts: 0,
            },
            rules_digest: rules.digest(),
            stored_rules: rules.clone(),
            stored_digest: rules.digest(),
            sweep: None,
            digests: vec![0; rules.iter().count()],
            rule_vers: vec![0; rules.iter().count()],
            rules,
            expected: names_of(&admit),
            admit,
            terms: Vec::new(),
            records: BTreeMap::new(),
            index: BTreeMap::new(),
            tombstones: BTreeSet::new(),
            replaced: UncommittedRemovals::default(),
            is_purge_due: false,
            leaves: BTreeMap::new(),
            links: BTreeMap::new(),
            ready: BTreeSet::new(),
            served: None,
            waiting: BTreeSet::new(),
            refusals: VecDeque::new(),
            ended: BTreeMap::new(),
            conflicts: ConflictLog::default(),
            source: SerialSource::new(run),
            steps: Steps::new(),
            saved_ver: 0,
        }
    }

    /// Reports that the rows of [`Effects`] are put back with `restore`: no uncommitted step is left. `are_rules_back`: the rules
    /// are among them.
    pub fn handle_commit_failed(&mut self, are_rules_back: bool) -> Effects {
        self.steps.handle_undone();
        self.replaced.handle_undone();
        self.saved_ver = self.row.ver;
        // What could not be committed may be on the disk all the same, and in a backup of it. Versions that are given out again
        // are of another term; a number after a random one is random, too.
        self.source = SerialSource::new(self.source.run().wrapping_add(1));
        for leaf in self.leaves.values_mut() {
            leaf.saved = leaf.row.applied;
        }
        // The purge may have passed tombstones that are back.
        self.is_purge_due = true;
        // The digests may be those of rules that were not committed.
        self.begin_count();
        let mut effects = self.end_all(Cause::NotCommitted);
        if are_rules_back {
            // Meanwhile, clients may have set keys that took no part.
            let before = self.node();
            self.row.is_walk_due = true;
            self.put_node(before, &mut effects);
        }
        self.finish(effects)
    }

    /// Reports that all steps up to this one are committed.
    pub fn handle_saved(&mut self, step: u64) {
        let ver = self.saved_ver;
        while let Some(Progress { ver, decided }) = self.steps.pop_saved(step) {
            self.saved_ver = ver;
            let Some((name, applied)) = decided else { continue };
            if let Some(leaf) = self.leaves.get_mut(&name) {
                leaf.saved = applied;
                self.ready.insert(name);
            }
        }
        while self.waiting.first().is_some_and(|(awaited, _)| *awaited <= step) {
            self.ready.extend(self.waiting.pop_first().map(|(_, name)| name));
        }
        let is_replaced = self.replaced.handle_saved(step);
        if self.saved_ver != ver || is_replaced {
            let concerned = self.links.iter().filter(|(_, link)| self.has_news(link));
            let concerned: Vec<_> = concerned.map(|(name, _)| name.clone()).collect();
            self.ready.extend(concerned);
        }
    }

    /// Records a change that the root's own store has made (S6); `None`: the key is deleted.
    pub fn handle_change(&mut self, key: &Key, content: Option<&Content>) -> Effects {
        let mut effects = Effects::default();
        self.adopt_if_due(&mut effects);
        if self.concerns(key) {
            let expires = content.is_some_and(|content| content.ttl_ms.is_some());
            let fingerprint = Fingerprint::of(content.map(|content| &content.value), expires);
            let change_id = ChangeId::of(None, self.source.next(), key, fingerprint);
            self.write(key.clone(), change_id, None, RecordKind::of(content), &mut effects);
        } else if self.has_leftovers() {
            // The record does not stand for this value, should the key come back into the rules.
            self.put_record(key.clone(), None, &mut effects);
        }
        self.finish(effects)
    }

    /// Records that a value has expired. That is no change: the change id and the version stay.
    pub fn handle_expired(&mut self, key: &Key) -> Effects {
        let mut effects = Effects::default();
        let record = self.records.get(key).filter(|record| record.kind != RecordKind::Tombstone);
        if let Some(record) = record.cloned() {
            let record = Record { kind: RecordKind::Tombstone, ..record };
            self.put_record(key.clone(), Some(record), &mut effects);
        }
        self.finish(effects)
    }

    /// Whether the service has to call `handle_found` for each key of its store, then `handle_walked`.
    #[must_use]
    pub fn is_walk_due(&self) -> bool {
        self.row.is_walk_due
    }

    /// Takes a key of the store that has no record of a value yet: it was there before the exchange, or was set while it took no
    /// part.
    pub fn handle_found(&mut self, key: &Key, content: &Content) -> Effects {
        let is_known = self.records.get(key).is_some_and(|record| record.kind != RecordKind::Tombstone);
        if is_known { Effects::default() } else { self.handle_change(key, Some(content)) }
    }

    /// Reports that `handle_found` was called for each key of the store.
    pub fn handle_walked(&mut self) -> Effects {
        let mut effects = Effects::default();
        let before = self.node();
        self.row.is_walk_due = false;
        self.put_node(before, &mut effects);
        self.finish(effects)
    }

    /// Replaces the names of the leaves that may join by themselves.
    pub fn set_admit(&mut self, admit: Patterns) {
        self.expected = names_of(&admit);
        self.admit = admit;
    }

    /// Lets a leaf join. With `is_replaced`, another store and another identity take the name over.
    pub fn add_leaf(&mut self, name: &Name, is_replaced: bool) -> Effects {
        let mut effects = Effects::default();
        if is_replaced {
            self.forget(name, &mut effects);
        }
        if !self.leaves.contains_key(name) && self.leaves.len() < LEAVES_MAX {
            self.put_leaf(name, LeafRow::default(), &mut effects);
        }
        self.finish_of(name, effects)
    }

    /// Forgets a leaf: no tombstone waits for it any more.
    pub fn drop_leaf(&mut self, name: &Name) -> Effects {
        let mut effects = Effects::default();
        self.forget(name, &mut effects);
        self.is_purge_due = true;
        self.finish(effects)
    }

    /// Removes a conflict that an operator has dealt with.
    pub fn clear_conflict(&mut self, id: u64) -> Effects {
        let mut effects = Effects::default();
        self.conflicts.remove(id, &mut effects);
        self.finish(effects)
    }

    fn forget(&mut self, name: &Name, effects: &mut Effects) {
        self.end(name, Cause::Dropped, effects);
        let Some(leaf) = self.leaves.remove(name) else { return };
        for (seq, decision) in leaf.decisions {
            effects.row(RowId::Decision(name.clone(), seq), Some(Row::Decision(decision)), None);
        }
        effects.row(RowId::Leaf(name.clone()), Some(Row::Leaf(leaf.row)), None);
    }

    /// Makes a version of a key.
    fn write(
        &mut self,
        key: Key,
        change_id: ChangeId,
        owner: Option<Name>,
        kind: RecordKind,
        effects: &mut Effects,
    ) -> u64 {
        let before = self.node();
        let ver = self.next_ver(effects);
        self.put_node(before, effects);
        self.put_record(key, Some(Record { ver, change_id, owner, kind }), effects);
        ver
    }

    /// Gives a version out. The caller writes the row of the root.
    fn next_ver(&mut self, effects: &mut Effects) -> u64 {
        let ver = self.row.ver.saturating_add(1);
        self.row.ver = ver;
        if self.terms.last().is_none_or(|term| term.run != self.source.run()) {
            let before = (!self.terms.is_empty()).then(|| Row::Terms(self.terms.clone()));
            self.terms.push(Term { first: ver, run: self.source.run() });
            let excess = self.terms.len().saturating_sub(TERMS_MAX);
            self.terms.drain(..excess);
            effects.row(RowId::Terms, before, Some(Row::Terms(self.terms.clone())));
        }
        ver
    }

    fn node(&self) -> Row {
        Row::Root(self.row.clone())
    }

    fn put_node(&self, before: Row, effects: &mut Effects) {
        effects.row(RowId::Node, Some(before), Some(self.node()));
    }

    fn put_record(&mut self, key: Key, record: Option<Record>, effects: &mut Effects) {
        let before = self.records.get(&key).cloned();
        // A version that is not committed yet may be so before this step is. One that stays is named by frames all the same.
        let after = record.as_ref().map(|record| record.ver);
        if let Some(ver) = before.as_ref().map(|before| before.ver).filter(|ver| Some(*ver) != after) {
            self.replaced.insert(self.steps.next(), ver);
        }
        effects.row(RowId::Key(key.clone()), before.map(Row::Record), record.clone().map(Row::Record));
        self.set_record(key, record);
    }

    fn set_record(&mut self, key: Key, record: Option<Record>) {
        let rule = self.rules.find_with_index(&key).map(|(rule, _)| rule);
        let counted = rule.filter(|_| self.is_counted(&key));
        if let Some(before) = self.records.remove(&key) {
            self.index.remove(&before.ver);
            self.tombstones.remove(&before.ver);
            self.count(counted, &key, &before);
        }
        let Some(record) = record else { return };
        self.count(counted, &key, &record);
        if let Some(last) = rule.and_then(|rule| self.rule_vers.get_mut(rule)) {
            *last = record.ver.max(*last);
        }
        self.index.insert(record.ver, key.clone());
        if record.kind == RecordKind::Tombstone {
            self.tombstones.insert(record.ver);
            self.is_purge_due = true;
        }
        self.records.insert(key, record);
    }

    /// Returns the run that made a version, or 0 if that is not known.
    fn term(&self, ver: u64) -> u64 {
        let after = self.terms.partition_point(|term| term.first <= ver);
        after.checked_sub(1).and_then(|at| self.terms.get(at)).map_or(0, |term| term.run)
    }

    fn put_leaf(&mut self, name: &Name, row: LeafRow, effects: &mut Effects) {
        let leaf = self.leaves.get_mut(name);
        self.is_purge_due |= leaf.as_ref().is_some_and(|leaf| leaf.row.cursor != row.cursor);
        let before = leaf.as_ref().map(|leaf| Row::Leaf(leaf.row.clone()));
        effects.row(RowId::Leaf(name.clone()), before, Some(Row::Leaf(row.clone())));
        match leaf {
            Some(leaf) => leaf.row = row,
            None => drop(self.leaves.insert(name.clone(), Leaf::new(row))),
        }
    }

    fn finish(&mut self, mut effects: Effects) -> Effects {
        self.steps.finish(&mut effects, Progress { ver: self.row.ver, decided: None });
        effects
    }

    /// Finishes a step of a leaf.
    fn finish_of(&mut self, name: &Name, mut effects: Effects) -> Effects {
        let decided = self.leaves.get(name).map(|leaf| (name.clone(), leaf.row.applied));
        self.steps.finish(&mut effects, Progress { ver: self.row.ver, decided });
        effects
    }

    fn admits(&self, name: &Name) -> bool {
        self.admit.matches(name.as_str())
    }

    /// Returns the version of the last change.
    #[must_use]
    pub fn ver(&self) -> u64 {
        self.row.ver
    }

    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Whether the key takes part.
    #[must_use]
    pub fn concerns(&self, key: &Key) -> bool {
        self.rules.find(key).is_some()
    }

    #[must_use]
    pub fn has_leaf(&self, name: &Name) -> bool {
        self.leaves.contains_key(name)
    }

    pub fn leaf_names(&self) -> impl Iterator<Item = Name> {
        self.leaves.keys().cloned()
    }

    #[must_use]
    pub fn leaf_count(&self) -> usize {
        self.leaves.len()
    }

    #[must_use]
    pub fn record(&self, key: &Key) -> Option<&Record> {
        self.records.get(key)
    }

    #[must_use]
    pub fn conflicts(&self) -> &ConflictLog {
        &self.conflicts
    }

    /// Returns the number of conflicts that made room for others.
    #[must_use]
    pub fn dropped_conflicts(&self) -> u64 {
        self.row.dropped_conflicts
    }

    /// Returns what `exchange status` shows of the root itself: its name, the number of records and of tombstones.
    pub(super) fn summary(&self) -> (&Identity, usize, usize) {
        (&self.row.identity, self.records.len(), self.tombstones.len())
    }

    /// Returns the state of each leaf after a name, in the order of the names.
    pub(super) fn leaves_after(&self, last: Option<&Name>) -> impl Iterator<Item = KnownLeaf<'_>> {
        let first = last.map_or(Bound::Unbounded, Bound::Excluded);
        let leaves = self.leaves.range::<Name, _>((first, Bound::Unbounded));
        leaves.map(|(name, leaf)| self.state_of(name, leaf))
    }

    /// Returns the state of a leaf.
    pub(super) fn leaf(&self, name: &Name) -> Option<KnownLeaf<'_>> {
        self.leaves.get_key_value(name).map(|(name, leaf)| self.state_of(name, leaf))
    }

    /// Returns the leaves after a name that the file of the root names and that have never come, in the order of the names.
    pub(super) fn expected_after(&self, last: Option<&Name>) -> impl Iterator<Item = &Name> {
        let first = last.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.expected.range::<Name, _>((first, Bound::Unbounded));
        names.filter(|name| !self.leaves.contains_key(*name))
    }

    /// Whether the file of the root names a leaf that has never come.
    pub(super) fn is_expected(&self, name: &Name) -> bool {
        self.expected.contains(name) && !self.leaves.contains_key(name)
    }

    fn state_of<'a>(&'a self, name: &'a Name, leaf: &'a Leaf) -> KnownLeaf<'a> {
        let is_busy = self.row.is_walk_due || self.sweep.is_some() || self.is_adoption_due();
        let link = self.links.get(name).filter(|link| link.is_welcome());
        KnownLeaf {
            name,
            row: &leaf.row,
            decisions: leaf.decisions.len(),
            pending: link.map(|link| link.last_seq.saturating_sub(leaf.row.applied)),
            heard_ms: leaf.heard_ms,
            is_blocked: leaf.is_blocked,
            has_all: link.is_some_and(|link| link.is_acknowledged() && !self.has_news(link)),
            is_busy: is_busy || link.is_some_and(|link| link.is_busy),
        }
    }

    /// Reports that the connection of a leaf is lost, whatever link it had.
    #[cfg(test)]
    pub(super) fn handle_all_lost(&mut self, name: &Name) {
        self.links.remove(name);
    }

    /// Returns the number that the next CHANGES of a leaf must have.
    #[cfg(test)]
    pub(super) fn next_n(&self, name: &Name) -> u64 {
        self.links.get(name).map_or(0, |link| link.received_n + 1)
    }

    #[cfg(test)]
    pub(super) fn is_purge_due(&self) -> bool {
        self.is_purge_due
    }

    #[cfg(test)]
    pub(super) fn key_is_tombstone(&self, key: &Key) -> bool {
        self.records.get(key).is_some_and(|record| record.kind == RecordKind::Tombstone)
    }

    /// Removes all tombstones without keeping the horizon: a control of the explorer.
    #[cfg(test)]
    pub(super) fn purge_early(&mut self) -> Effects {
        let mut effects = Effects::default();
        while let Some(oldest) = self.tombstones.first().copied() {
            let key = self.index[&oldest].clone();
            self.put_record(key, None, &mut effects);
        }
        self.finish(effects)
    }
}

/// Returns the patterns that match one leaf only: the characters of patterns are none of names.
fn names_of(admit: &Patterns) -> BTreeSet<Name> {
    admit.texts().filter_map(|text| Name::new(text).ok()).collect()
}

impl Leaf {
    fn new(row: LeafRow) -> Self {
        Self { saved: row.applied, row, decisions: BTreeMap::new(), is_blocked: false, heard_ms: None }
    }
}

#[cfg(test)]
mod tests;
