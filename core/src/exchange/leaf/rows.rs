//! Rows of the leaf: loading, rollback, and writing all of them anew.

use std::ops::Bound;

use super::super::rows::{Kind, rest};
use super::{Key, Leaf, Row, RowId};

impl Leaf {
    /// Returns the rows that a new leaf begins with.
    #[must_use]
    pub fn first_rows(&self) -> Vec<(RowId, Row)> {
        self.rows_from(None, usize::MAX)
    }

    /// Puts a row back: while loading, or after a failed commit. Rows of a root are ignored.
    pub fn restore(&mut self, id: RowId, row: Option<Row>) {
        match (id, row) {
            (RowId::Node, Some(Row::LeafNode(row))) => {
                if self.steps.is_loading() {
                    self.offered = row.last_seq;
                }
                self.row = row;
                self.sweep = self.row.resync.and(self.sweep.take());
                if self.steps.is_loading() {
                    self.saved = self.progress();
                }
                self.begin_sweep();
            }
            (RowId::Rules, Some(Row::Rules(rules))) => self.rules = Some(rules),
            (RowId::Rules, None) => self.rules = None,
            (RowId::Key(key), Some(Row::Note(note))) => self.set_note(key, Some(note)),
            (RowId::Key(key), None) => self.set_note(key, None),
            (RowId::Entry(seq), Some(Row::Entry(entry))) => self.set_entry(seq, Some(entry)),
            (RowId::Entry(seq), None) => self.set_entry(seq, None),
            (RowId::Conflict(id), row) => self.conflicts.restore(id, row),
            _ => {}
        }
    }

    /// Returns the current row of an address.
    #[must_use]
    pub fn row_of(&self, id: &RowId) -> Option<Row> {
        match id {
            RowId::Node => Some(self.node()),
            RowId::Rules => self.rules.clone().map(Row::Rules),
            RowId::Key(key) => self.notes.get(key).copied().map(Row::Note),
            RowId::Entry(seq) => self.outbox.get(seq).cloned().map(Row::Entry),
            RowId::Conflict(id) => self.conflicts.get(*id).cloned().map(Row::Conflict),
            RowId::Terms | RowId::Leaf(_) | RowId::Decision(..) => None,
        }
    }

    /// Returns at most `max` of the current rows after an address, in the order of [`RowId`].
    #[must_use]
    pub fn rows_from(&self, last: Option<&RowId>, max: usize) -> Vec<(RowId, Row)> {
        let single = [RowId::Node, RowId::Rules, RowId::Terms].into_iter();
        let single = single.filter(|id| last.is_none_or(|last| id > last));
        let single = single.filter_map(|id| Some((id.clone(), self.row_of(&id)?)));
        let rest = single.chain(self.notes_from(last)).chain(self.entries_from(last));
        rest.chain(self.conflicts.rows_from(last)).take(max).collect()
    }

    fn notes_from<'a>(&'a self, last: Option<&'a RowId>) -> impl Iterator<Item = (RowId, Row)> + 'a {
        let key = |id: &'a RowId| if let RowId::Key(key) = id { Some(key) } else { None };
        let from = rest(last, Kind::Key, key).into_iter();
        let notes = from.flat_map(|from| self.notes.range::<Key, _>((from, Bound::Unbounded)));
        notes.map(|(key, note)| (RowId::Key(key.clone()), Row::Note(*note)))
    }

    fn entries_from<'a>(&'a self, last: Option<&'a RowId>) -> impl Iterator<Item = (RowId, Row)> + 'a {
        let seq = |id: &RowId| if let RowId::Entry(seq) = id { Some(*seq) } else { None };
        let from = rest(last, Kind::Entry, seq).into_iter();
        let entries = from.flat_map(|from| self.outbox.range((from, Bound::Unbounded)));
        entries.map(|(seq, entry)| (RowId::Entry(*seq), Row::Entry(entry.clone())))
    }

    /// Returns what a restart keeps.
    #[cfg(test)]
    pub(in super::super) fn on_disk(&self) -> Self {
        let mut leaf = Self {
            offered: self.row.last_seq,
            link: None,
            ended: None,
            unreachable: None,
            too_large_reported: None,
            merged: super::UncommittedRemovals::default(),
            hello_after: 0,
            sweep: None,
            is_walk_cut: false,
            source: super::SerialSource::new(0),
            steps: super::Steps::new(),
            ..self.clone()
        };
        leaf.saved = leaf.progress();
        leaf.begin_sweep();
        leaf
    }
}
