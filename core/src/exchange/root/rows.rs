//! Rows of the root: loading, rollback, and writing all of them anew.

use std::ops::Bound;

use super::super::rows::{Kind, rest};
use super::{Key, Leaf, Name, Root, Row, RowId};

impl Root {
    /// Puts a row back: while loading, or after a failed commit. Rows of a leaf are ignored.
    pub fn restore(&mut self, id: RowId, row: Option<Row>) {
        match (id, row) {
            (RowId::Node, Some(Row::Root(row))) => {
                if self.steps.is_loading() {
                    self.saved_ver = row.ver;
                }
                let is_sweep_due = std::mem::replace(&mut self.row, row).is_sweep_due;
                if self.row.is_sweep_due != is_sweep_due {
                    self.begin_sweep();
                }
            }
            (RowId::Rules, Some(Row::Rules(rules))) => {
                (self.stored_digest, self.stored_rules) = (rules.digest(), rules);
            }
            (RowId::Terms, Some(Row::Terms(terms))) => self.terms = terms,
            (RowId::Terms, None) => self.terms.clear(),
            (RowId::Key(key), Some(Row::Record(record))) => self.set_record(key, Some(record)),
            (RowId::Key(key), None) => self.set_record(key, None),
            (RowId::Leaf(name), Some(Row::Leaf(row))) => {
                let is_loading = self.steps.is_loading();
                let leaf = self.leaves.entry(name).or_insert_with(|| Leaf::new(row.clone()));
                leaf.saved = if is_loading { row.applied } else { leaf.saved };
                leaf.row = row;
            }
            (RowId::Leaf(name), None) => {
                self.leaves.remove(&name);
            }
            (RowId::Decision(name, seq), row) => {
                let Some(leaf) = self.leaves.get_mut(&name) else { return };
                match row {
                    Some(Row::Decision(decision)) => leaf.decisions.insert(seq, decision),
                    _ => leaf.decisions.remove(&seq),
                };
            }
            (RowId::Conflict(id), row) => self.conflicts.restore(id, row),
            _ => {}
        }
    }

    /// Returns the rows that a new root begins with.
    #[must_use]
    pub fn first_rows(&self) -> Vec<(RowId, Row)> {
        self.rows_from(None, usize::MAX)
    }

    /// Returns the current row of an address.
    #[must_use]
    pub fn row_of(&self, id: &RowId) -> Option<Row> {
        match id {
            RowId::Node => Some(self.node()),
            RowId::Rules => Some(Row::Rules(self.stored_rules.clone())),
            RowId::Terms => (!self.terms.is_empty()).then(|| Row::Terms(self.terms.clone())),
            RowId::Key(key) => self.records.get(key).cloned().map(Row::Record),
            RowId::Leaf(name) => self.leaves.get(name).map(|leaf| Row::Leaf(leaf.row.clone())),
            RowId::Decision(name, seq) => {
                self.leaves.get(name)?.decisions.get(seq).cloned().map(Row::Decision)
            }
            RowId::Conflict(id) => self.conflicts.get(*id).cloned().map(Row::Conflict),
            RowId::Entry(_) => None,
        }
    }

    /// Returns at most `max` of the current rows after an address, in the order of [`RowId`].
    #[must_use]
    pub fn rows_from(&self, last: Option<&RowId>, max: usize) -> Vec<(RowId, Row)> {
        let single = [RowId::Node, RowId::Rules, RowId::Terms].into_iter();
        let single = single.filter(|id| last.is_none_or(|last| id > last));
        let single = single.filter_map(|id| Some((id.clone(), self.row_of(&id)?)));
        let rest = single.chain(self.records_from(last)).chain(self.leaves_from(last));
        rest.chain(self.decisions_from(last)).chain(self.conflicts.rows_from(last)).take(max).collect()
    }

    fn records_from<'a>(&'a self, last: Option<&'a RowId>) -> impl Iterator<Item = (RowId, Row)> + 'a {
        let key = |id: &'a RowId| if let RowId::Key(key) = id { Some(key) } else { None };
        let from = rest(last, Kind::Key, key).into_iter();
        let records = from.flat_map(|from| self.records.range::<Key, _>((from, Bound::Unbounded)));
        records.map(|(key, record)| (RowId::Key(key.clone()), Row::Record(record.clone())))
    }

    fn leaves_from<'a>(&'a self, last: Option<&'a RowId>) -> impl Iterator<Item = (RowId, Row)> + 'a {
        let name = |id: &'a RowId| if let RowId::Leaf(name) = id { Some(name) } else { None };
        let from = rest(last, Kind::Leaf, name).into_iter();
        let leaves = from.flat_map(|from| self.leaves.range::<Name, _>((from, Bound::Unbounded)));
        leaves.map(|(name, leaf)| (RowId::Leaf(name.clone()), Row::Leaf(leaf.row.clone())))
    }

    fn decisions_from<'a>(&'a self, last: Option<&'a RowId>) -> impl Iterator<Item = (RowId, Row)> + 'a {
        let part =
            |id: &'a RowId| if let RowId::Decision(name, seq) = id { Some((name, *seq)) } else { None };
        let place = rest(last, Kind::Decision, part);
        let (first, seq) = match place {
            Some(Bound::Excluded((name, seq)) | Bound::Included((name, seq))) => {
                (Bound::Included(name), Bound::Excluded(seq))
            }
            _ => (Bound::Unbounded, Bound::Unbounded),
        };
        let leaves =
            place.into_iter().flat_map(move |_| self.leaves.range::<Name, _>((first, Bound::Unbounded)));
        leaves.flat_map(move |(name, leaf)| {
            // Those of the first leaf go on; those of the others begin.
            let from = if first == Bound::Included(name) { seq } else { Bound::Unbounded };
            let decisions = leaf.decisions.range((from, Bound::Unbounded));
            decisions
                .map(|(seq, decision)| (RowId::Decision(name.clone(), *seq), Row::Decision(decision.clone())))
        })
    }

    /// Returns what a restart keeps.
    #[cfg(test)]
    pub(in super::super) fn on_disk(&self) -> Self {
        let (row, rules, admit) = (self.row.clone(), self.rules.clone(), self.admit.clone());
        let (records, index) = (self.records.clone(), self.index.clone());
        let leaves = self.leaves.iter().map(|(name, leaf)| {
            let (row, decisions) = (leaf.row.clone(), leaf.decisions.clone());
            (name.clone(), Leaf { decisions, ..Leaf::new(row) })
        });
        let mut root = Self {
            saved_ver: row.ver,
            row,
            stored_rules: self.stored_rules.clone(),
            stored_digest: self.stored_digest,
            digests: self.digests.clone(),
            terms: self.terms.clone(),
            records,
            index,
            tombstones: self.tombstones.clone(),
            leaves: leaves.collect(),
            conflicts: self.conflicts.clone(),
            ..Self::new(self.row.identity.clone(), rules, admit, 0)
        };
        root.begin_sweep();
        root
    }
}
