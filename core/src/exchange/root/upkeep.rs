//! What the root does beside its links: new rules, the digest of its records, purged tombstones.

use std::ops::Bound;

use super::super::digest;
use super::super::row::RecordKind;
use super::{
    Cause, Effects, Key, Name, PURGED_PER_STEP_MAX, Record, Root, Row, RowId, Rules, TOMBSTONES_MAX,
};

/// The most records that one step of a sweep looks at, because requests wait meanwhile.
const SWEPT_PER_STEP_MAX: usize = 256;

impl Root {
    /// Replaces the rules. Every link ends, and its leaf does a resync with the new rules. Records of keys that leave
    /// the rules are removed, their values stay; keys that enter the rules are taken over by the walk.
    pub fn set_rules(&mut self, rules: Rules) -> Effects {
        if rules == self.rules {
            return Effects::default();
        }
        self.rules_digest = rules.digest();
        self.rules = rules;
        let mut effects = self.end_all(Cause::RulesChanged);
        self.adopt(&mut effects);
        self.finish(effects)
    }

    /// Whether the rules are not those of the rows: the configuration has changed between two starts.
    pub(super) fn is_adoption_due(&self) -> bool {
        self.stored_digest != self.rules_digest
    }

    /// Whether there may be records of keys that have left the rules.
    #[must_use]
    pub fn has_leftovers(&self) -> bool {
        self.sweep.is_some() || self.is_adoption_due()
    }

    /// Begins to use the rules of the configuration. What is written or removed under them is in no earlier commit: after a
    /// restart with other rules, nothing would show that the records are not those of the stored rules.
    pub(super) fn adopt_if_due(&mut self, effects: &mut Effects) {
        if self.is_adoption_due() {
            self.adopt(effects);
        }
    }

    /// Begins to use the rules.
    fn adopt(&mut self, effects: &mut Effects) {
        let before = self.node();
        let stored = std::mem::replace(&mut self.stored_rules, self.rules.clone());
        self.stored_digest = self.rules_digest;
        effects.row(RowId::Rules, Some(Row::Rules(stored)), Some(Row::Rules(self.rules.clone())));
        // The version has no record: it is the one from which on the keys of these rules are complete.
        self.row.rules_ver = self.next_ver(effects);
        self.rule_vers = vec![self.row.ver; self.rules.iter().count()];
        (self.row.is_sweep_due, self.row.is_walk_due) = (true, true);
        self.begin_sweep();
        self.put_node(before, effects);
    }

    /// Begins to remove the records of keys without a rule, if that is due, and to count the others.
    pub(super) fn begin_sweep(&mut self) {
        self.sweep = None;
        if self.row.is_sweep_due {
            self.begin_count();
        }
    }

    /// Begins to count all records, by the rules that are in use.
    pub(super) fn begin_count(&mut self) {
        self.sweep = Some(Bound::Unbounded);
        self.digests = vec![0; self.rules.iter().count()];
    }

    /// Looks at some records.
    pub(super) fn sweep(&mut self, effects: &mut Effects) {
        let Some(from) = self.sweep.clone() else { return };
        let records = self.records.range((from, Bound::Unbounded)).take(SWEPT_PER_STEP_MAX);
        let records: Vec<_> = records.map(|(key, record)| (key.clone(), record.clone())).collect();
        for (key, record) in &records {
            match self.rules.find_with_index(key) {
                Some((rule, _)) => self.count(Some(rule), key, record),
                None => self.put_record(key.clone(), None, effects),
            }
        }
        if let Some((last, _)) = records.last().filter(|_| records.len() == SWEPT_PER_STEP_MAX) {
            self.sweep = Some(Bound::Excluded(last.clone()));
            return;
        }
        let before = self.node();
        (self.sweep, self.row.is_sweep_due) = (None, false);
        self.put_node(before, effects);
    }

    /// Whether the digests contain a key: the sweep has passed it.
    pub(super) fn is_counted(&self, key: &Key) -> bool {
        match &self.sweep {
            None => true,
            Some(Bound::Excluded(last)) => key <= last,
            Some(_) => false,
        }
    }

    /// Adds a record to the digest of its rule, or takes it out. Expiring values are in no digest: each node removes
    /// them at its own time.
    pub(super) fn count(&mut self, rule: Option<usize>, key: &Key, record: &Record) {
        if record.kind == RecordKind::Lasting
            && let Some(sum) = rule.and_then(|rule| self.digests.get_mut(rule))
        {
            *sum ^= digest::record(key, record.change_id);
        }
    }

    /// Returns the digest of the records that concern a leaf, or `None` while it is not known.
    pub(in super::super) fn digest(&self, leaf: &Name) -> Option<u64> {
        let concerned = self.rules.iter().zip(&self.digests).filter(|(rule, _)| rule.concerns(leaf));
        let is_known = self.sweep.is_none() && !self.is_adoption_due();
        is_known.then(|| concerned.fold(0, |sum, (_, digest)| sum ^ digest))
    }

    /// Has a leaf named all records, whatever it has: an operator asks for it.
    pub fn resync(&mut self, name: &Name) -> Effects {
        let mut effects = Effects::default();
        self.end(name, Cause::Resync, &mut effects);
        if let Some(leaf) = self.leaves.get(name) {
            let row = super::LeafRow { is_resync_due: true, ..leaf.row.clone() };
            self.put_leaf(name, row, &mut effects);
        }
        self.finish(effects)
    }

    /// Removes tombstones that every leaf has received, and the oldest ones beyond [`TOMBSTONES_MAX`].
    pub(super) fn purge(&mut self, effects: &mut Effects) {
        if !std::mem::take(&mut self.is_purge_due) || self.tombstones.is_empty() {
            return;
        }
        let received = self.leaves.values().map(|leaf| leaf.row.cursor).min().unwrap_or(u64::MAX);
        let mut lost = 0;
        let before = self.node();
        for purged in 0..=PURGED_PER_STEP_MAX {
            let Some(oldest) = self.tombstones.first().copied() else { break };
            if oldest > received && self.tombstones.len() <= TOMBSTONES_MAX {
                break;
            }
            if purged == PURGED_PER_STEP_MAX {
                self.is_purge_due = true;
                break;
            }
            let Some(key) = self.index.get(&oldest).cloned() else { break };
            self.put_record(key, None, effects);
            self.row.purged = self.row.purged.max(oldest);
            lost = if oldest > received { oldest } else { lost };
        }
        self.put_node(before, effects);
        if lost > 0 {
            let missed = self.links.iter().filter(|(_, link)| link.sent.max(link.complete_at) < lost);
            for name in missed.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
                self.end(&name, Cause::Purged, effects);
            }
        }
    }
}
