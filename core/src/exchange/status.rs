//! What a node reports of itself: answers to `exchange status` and `exchange key`, metrics and the admin page.

use super::Exchange;
use super::effects::{Cause, LinkEnd, too_large_text};
use super::leaf::Leaf;
use super::names::Name;
use super::root::{KnownLeaf, Root};
use super::rules::{Change, Patterns, Rule};
use crate::protocol::Key;
use crate::protocol::exchange::{
    KeyReport, KeyState, LeafReport, LeafState, Origin, OwnReport, OwnState, RootReport, RuleReport,
};

/// The code of the end of a link without a cause of either node.
const UNREACHABLE: &str = "unreachable";

impl Root {
    #[cfg(test)]
    pub fn report(&self) -> RootReport {
        self.report_after(None, usize::MAX, 0)
    }

    /// Returns the most decisions that a leaf has not committed.
    #[cfg(test)]
    pub fn decisions_max(&self) -> usize {
        self.leaves_after(None).map(|leaf| leaf.decisions).max().unwrap_or_default()
    }

    /// Returns the state with at most `max` leaves, those after a name: the leaves of a root can be too many for one
    /// step.
    #[must_use]
    pub fn report_after(&self, last: Option<&Name>, max: usize, now_ms: u64) -> RootReport {
        let known = self.leaves_after(last).take(max).map(|leaf| self.leaf_report(&leaf, now_ms));
        let expected = self.expected_after(last).take(max).map(expected);
        let mut leaves: Vec<_> = known.chain(expected).collect();
        leaves.sort_by(|one, other| one.name.cmp(&other.name));
        leaves.truncate(max);
        self.report_with(leaves)
    }

    /// Returns the state with one leaf; `None` if there is no such leaf.
    #[must_use]
    pub fn report_of(&self, name: &Name, now_ms: u64) -> Option<RootReport> {
        let known = self.leaf(name).map(|leaf| self.leaf_report(&leaf, now_ms));
        let leaf = known.or_else(|| self.is_expected(name).then(|| expected(name)))?;
        Some(self.report_with(vec![leaf]))
    }

    fn leaf_report(&self, leaf: &KnownLeaf<'_>, now_ms: u64) -> LeafReport {
        let behind = if leaf.has_all { 0 } else { self.ver().saturating_sub(leaf.row.cursor) };
        let pending = leaf.pending.map(|pending| pending.saturating_add(count(leaf.decisions)));
        LeafReport {
            name: leaf.name.to_string(),
            state: match pending {
                _ if leaf.is_blocked => LeafState::Blocked,
                Some(0) if behind == 0 && !leaf.is_busy => LeafState::Synchronized,
                Some(_) => LeafState::Linked,
                None if leaf.row.store.is_some() => LeafState::Offline,
                None => LeafState::Expected,
            },
            behind,
            pending,
            conflicts: count(self.conflicts().of_leaf(leaf.name)),
            heard_ms: leaf.heard_ms.map(|heard_ms| now_ms.saturating_sub(heard_ms)),
            accepted: leaf.row.accepted,
            refused: leaf.row.refused,
        }
    }

    fn report_with(&self, leaves: Vec<LeafReport>) -> RootReport {
        let (identity, records, tombstones) = self.summary();
        RootReport {
            exchange: identity.exchange.to_string(),
            ver: self.ver(),
            records: count(records.saturating_sub(tombstones)),
            tombstones: count(tombstones),
            conflicts: count(self.conflicts().len()),
            dropped: self.dropped_conflicts(),
            leaves,
        }
    }

    pub(super) fn key_report(&self, key: &Key) -> KeyReport {
        let (rule, record) = (self.rules().find_with_index(key), self.record(key));
        let is_replicating = |rule: &Rule, ver| {
            let mut behind = self.leaves_after(None).filter(|leaf: &KnownLeaf<'_>| leaf.row.cursor < ver);
            behind.any(|leaf| rule.concerns(leaf.name))
        };
        KeyReport {
            state: match (rule, record) {
                (None, _) => KeyState::Local,
                (Some(_), None) => KeyState::Absent,
                (Some((_, rule)), Some(record)) if is_replicating(rule, record.ver) => KeyState::Replicating,
                (Some(_), Some(_)) => KeyState::Synchronized,
            },
            rule: rule.map(rule_report),
            ver: record.map_or(0, |record| record.ver),
            change_id: record.map(|record| record.change_id.to_bytes()),
            owner: record.map_or(Origin::Unknown, |record| match &record.owner {
                Some(leaf) => Origin::Leaf(leaf.to_string()),
                None => Origin::Root,
            }),
            pending: None,
        }
    }
}

/// Returns the report of a leaf that may join and has never come.
fn expected(name: &Name) -> LeafReport {
    LeafReport {
        name: name.to_string(),
        state: LeafState::Expected,
        behind: 0,
        pending: None,
        conflicts: 0,
        heard_ms: None,
        accepted: 0,
        refused: 0,
    }
}

impl Leaf {
    #[must_use]
    pub fn report(&self) -> OwnReport {
        let row = self.row();
        let (outbox, outbox_bytes) = self.outbox();
        let too_large = self.too_large().map(|(key, bytes, bytes_max)| LinkEnd {
            code: Cause::Blocked.as_str().to_owned(),
            text: too_large_text(key, bytes, bytes_max),
        });
        let unreachable =
            self.unreachable().map(|text| LinkEnd { code: UNREACHABLE.to_owned(), text: text.to_owned() });
        let ended = too_large.or(unreachable).or_else(|| self.ended().cloned());
        OwnReport {
            exchange: row.identity.exchange.to_string(),
            name: row.identity.node.to_string(),
            state: match (self.is_linked(), row.resync.is_some()) {
                _ if ended.as_ref().is_some_and(LinkEnd::is_blocked) => OwnState::Blocked,
                (false, _) => OwnState::Offline,
                (true, true) => OwnState::Resync,
                (true, false) => OwnState::Linked,
            },
            is_synchronized: self.is_linked() && outbox == 0 && !self.is_busy() && !self.is_behind(),
            received: row.cursor,
            outbox: count(outbox),
            outbox_bytes: count(outbox_bytes),
            made: row.counts.made,
            accepted: row.counts.accepted,
            refused: row.counts.refused,
            merged: row.counts.merged,
            conflicts: count(self.conflicts().len()),
            dropped: row.dropped_conflicts,
            ended: ended.map(|ended| ended.text),
        }
    }

    pub(super) fn key_report(&self, key: &Key) -> KeyReport {
        let (note, pending) = (self.note(key), self.pending(key));
        KeyReport {
            state: match (note, pending) {
                _ if !self.concerns(key) => KeyState::Local,
                (_, Some(_)) => KeyState::Proposed,
                (Some(_), None) => KeyState::Synchronized,
                (None, None) => KeyState::Absent,
            },
            // A leaf that has never been linked has no rules.
            rule: self.rules().and_then(|rules| rules.find_with_index(key)).map(rule_report),
            ver: note.map_or(0, |note| note.ver),
            change_id: note.filter(|note| note.ver > 0).map(|note| note.change_id.to_bytes()),
            owner: Origin::Unknown,
            pending: pending.map(|(_, entry)| entry.change_id.to_bytes()),
        }
    }
}

impl Exchange {
    #[must_use]
    pub fn key_report(&self, key: &Key) -> KeyReport {
        match self {
            Self::Root(root) => root.key_report(key),
            Self::Leaf(leaf) => leaf.key_report(key),
        }
    }
}

fn rule_report((index, rule): (usize, &Rule)) -> RuleReport {
    let texts = |patterns: &Patterns| patterns.texts().map(str::to_owned).collect();
    RuleReport {
        number: count(index).saturating_add(1),
        keys: texts(rule.keys()),
        is_for_leaves: rule.change() == Change::Leaves,
        leaves: rule.leaves().map(texts),
    }
}

fn count(count: usize) -> u64 {
    count as u64
}
