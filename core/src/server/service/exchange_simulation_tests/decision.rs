//! What the root makes of the changes of a leaf, compared with what the leaf's clients have seen.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use super::checks::{Ledger, Made, text};
use super::node::{NAMES, name};
use super::world::World;
use crate::exchange::frame::{LinkFrame, Proposal};
use crate::exchange::names::ChangeId;
use crate::exchange::row::{DecisionKind, Record, RecordKind, Row, RowId};
use crate::protocol::Key;

/// A CHANGES frame, and the root before it handles it.
pub struct Before {
    items: Vec<Proposal>,
    /// The change ids of the root's records of the keys.
    held: HashMap<Key, Option<ChangeId>>,
    /// The keys of which the leaf may have forgotten the record, because it has expired.
    forgotten: HashSet<Key>,
    /// The last change of the leaf's stream that is decided, and its change id.
    applied: u64,
    last: ChangeId,
}

impl World {
    /// Returns what the root holds of the changes in a frame; `None` if it is no CHANGES.
    pub fn before_decision(&self, at: usize, payload: &Bytes) -> Option<Before> {
        let Ok(LinkFrame::Changes(changes)) = LinkFrame::decode(payload) else { return None };
        let root = self.process(0);
        let held = |item: &Proposal| {
            (item.key.clone(), root.root(|root| root.record(&item.key).map(|record| record.change_id)))
        };
        let row = root.with_exchange(|exchange| exchange.row(&RowId::Leaf(name(NAMES[at]))));
        let Some(Row::Leaf(row)) = row else { return None };
        let held = changes.items.iter().map(held).collect();
        let purged = root.with_exchange(|exchange| match exchange.row(&RowId::Node) {
            Some(Row::Root(root)) => root.purged,
            row => panic!("{row:?}"),
        });
        let is_forgotten = |record: &Record| match record.kind {
            RecordKind::Lasting => false,
            RecordKind::Expiring => record.owner.as_ref().is_some_and(|owner| owner.as_str() == NAMES[at]),
            RecordKind::Tombstone => true,
        };
        let keys = changes.items.iter().map(|item| item.key.clone());
        let forgotten = keys.filter(|key| {
            let record = root.root(|root| root.record(key).cloned());
            record.is_some_and(|record| record.ver <= purged && is_forgotten(&record))
        });
        let forgotten = forgotten.collect();
        Some(Before { items: changes.items, held, forgotten, applied: row.applied, last: row.change_id })
    }

    /// I2: what is accepted was made on what the root holds. I4: what was made on that is accepted. I6: the changes of
    /// a leaf are decided in their order, without a gap.
    pub fn check_decision(&self, at: usize, before: Before) -> Result<(), String> {
        let Before { items, mut held, mut forgotten, applied, mut last } = before;
        let (root, leaf) = (self.process(0), name(NAMES[at]));
        for item in items.iter().filter(|item| item.seq > applied && !item.flags.is_restored) {
            let change_id = item.change_id(&leaf);
            let id = RowId::Decision(leaf.clone(), item.seq);
            let Some(Row::Decision(decision)) = root.with_exchange(|exchange| exchange.row(&id)) else {
                break;
            };
            let (key, flags) = (&item.key, &item.flags);
            let error = |invariant: &str, what: &str| {
                let made = self.ledger.made(change_id);
                Err(format!("{invariant}: {} of {} is {what}: {item:?}, {made:?}", text(key), NAMES[at]))
            };
            let Some(made) = self.ledger.made(change_id) else { return error("I6", "decided, but not made") };
            let now = held[key];
            let may_change = root.root(|root| root.rules().may_change(key, &leaf));
            match decision.kind {
                DecisionKind::Accepted { .. } => {
                    let is_absent = forgotten.remove(key) && flags.is_base_absent && !flags.is_again;
                    let is_based = self.ledger.may_be_accepted(at, made, now)
                        || (is_absent && self.ledger.may_be_accepted(at, made, None));
                    let is_valid = is_based && !flags.is_lost && may_change;
                    if now != Some(change_id) && (!is_valid || (now.is_none() && flags.is_again)) {
                        return error("I2", &format!("accepted, but the root holds {now:?}"));
                    }
                    held.insert(key.clone(), Some(change_id));
                }
                DecisionKind::Refused(reason) => {
                    // A base that the root has refused when it was offered again is none, although it had been accepted.
                    let is_refused = self.ledger.is_settled(made.base) || self.is_refused(at, made.base);
                    let is_free = now.is_some() || !(flags.is_again || is_refused);
                    if self.ledger.must_be_accepted(at, key, made, now)
                        && is_free
                        && may_change
                        && !flags.is_lost
                    {
                        return error("I4", &format!("refused ({reason:?}), but the root holds {now:?}"));
                    }
                }
            }
            if let Some(between) = self.ledger.skipped(at, last, change_id)? {
                return error("I6", &format!("decided before {between:?}"));
            }
            last = change_id;
        }
        Ok(())
    }

    /// Whether the root has refused a change, whether or not that is committed.
    fn is_refused(&self, at: usize, change_id: ChangeId) -> bool {
        let decision = |seq| {
            let id = RowId::Decision(name(NAMES[at]), seq);
            self.process(0).with_exchange(|exchange| exchange.row(&id))
        };
        let is_refused =
            |row| matches!(row, Some(Row::Decision(it)) if matches!(it.kind, DecisionKind::Refused(_)));
        self.ledger.proposed_as(at, change_id).any(|seq| is_refused(decision(seq)))
    }

    /// I6: a leaf has each record up to its cursor.
    pub fn check_cursor(&self, at: usize) -> Result<(), String> {
        let (Some(root), Some(leaf)) = (&self.nodes[0].process, &self.nodes[at].process) else {
            return Ok(());
        };
        let row = leaf.leaf(|leaf| leaf.row().clone());
        let (cursor, is_same_history) = root.with_exchange(|exchange| {
            let Some(Row::Root(root)) = exchange.row(&RowId::Node) else { panic!() };
            let Some(Row::Terms(terms)) = exchange.row(&RowId::Terms) else { return (0, false) };
            let term = terms.iter().rev().find(|term| term.first <= row.last_ver).map(|term| term.run);
            let is_one_root = row.root == Some(root.identity.store) && row.last_ver <= root.ver;
            // The records of keys that have left the rules and come back are not named before the resync.
            let has_rules = !root.is_sweep_due && root.rules_ver <= row.cursor;
            (row.cursor, is_one_root && has_rules && term == Some(row.term))
        });
        let has_rules =
            leaf.leaf(|leaf| leaf.rules().cloned()) == Some(root.root(|root| root.rules().clone()));
        for key in self.keys.iter().filter(|key| is_same_history && has_rules && leaf.concerns(key)) {
            let record = root.root(|root| root.record(key).cloned()).filter(|record| record.ver <= cursor);
            let note = leaf.leaf(|leaf| leaf.note(key).copied());
            let is_covered = |record: &Record| match note {
                Some(note) => (note.ver, note.change_id) == (record.ver, record.change_id),
                // A leaf drops the note of a value that has expired before the root purges its record.
                None => record.kind != RecordKind::Lasting,
            };
            if let Some(record) = record.filter(|record| !is_covered(record)) {
                let name = NAMES[at];
                return Err(format!("I6: {name} has {note:?} of {} at {row:?}, root: {record:?}", text(key)));
            }
        }
        Ok(())
    }
}

impl Ledger {
    /// Whether the root may accept a change while it holds this.
    fn may_be_accepted(&self, at: usize, made: &Made, held: Option<ChangeId>) -> bool {
        let is_gone = |base| base == ChangeId::NIL || self.made(base).is_some_and(|base| !base.is_lasting);
        match held {
            Some(held) => made.base == held,
            // A base of which nothing is left: the clients saw no value, or one that has expired since.
            None => is_gone(made.base) || self.rejoined.contains(&at),
        }
    }

    /// Whether the root must accept a change while it holds this, but for rules and changes that are offered again.
    fn must_be_accepted(&self, at: usize, key: &Key, made: &Made, held: Option<ChangeId>) -> bool {
        // The root had a deletion that it has purged since. One that the root has refused is no base.
        let is_purged = |change_id| {
            let base =
                self.made(change_id).filter(|base| base.value.is_none() && !self.without_rule.contains(key));
            change_id == ChangeId::NIL || base.is_some_and(|base| base.at == 0 || self.is_accepted(change_id))
        };
        match held {
            // What the clients of a leaf saw of the root that it has left is no base at the new one.
            _ if self.rejoined.contains(&at) => made.base == ChangeId::NIL && held.is_none(),
            Some(held) => made.base == held,
            None => is_purged(made.base),
        }
    }

    /// Returns an acknowledged change between two of a leaf that has no decision.
    ///
    /// # Errors
    /// The second one was made before the first one.
    fn skipped(&self, at: usize, last: ChangeId, next: ChangeId) -> Result<Option<ChangeId>, String> {
        let number = |change_id| self.made(change_id).filter(|made| made.at == at).map(|made| made.number);
        let (Some(last), Some(next)) = (number(last), number(next)) else { return Ok(None) };
        if last >= next {
            return Err(format!("I6: {} has its change {next} decided after {last}", NAMES[at]));
        }
        if self.untracked.contains(&at) {
            return Ok(None);
        }
        Ok(self.of_node(at, last + 1..next).find(|change_id| self.is_open(*change_id)))
    }
}
