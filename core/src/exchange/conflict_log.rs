//! Log of the changes that lost, bounded in number and bytes (I5, I9).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;

use crate::protocol::Key;

use super::effects::{Effects, Event};
use super::frame::Reason;
use super::names::Name;
use super::row::{Conflict, LostContent, Row, RowId};
use super::rows::{Kind, rest};

/// The most conflicts that a node keeps.
pub const CONFLICTS_MAX: usize = 10_000;
/// The most bytes of keys and values of the conflicts that a node keeps.
pub const CONFLICT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The conflicts of a node. The oldest ones make room for others and are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConflictLog {
    conflicts: BTreeMap<u64, Conflict>,
    /// The number of conflicts of each leaf that has one.
    by_leaf: BTreeMap<Name, usize>,
    /// Those of values that went because the root was restored.
    restored: BTreeMap<Key, BTreeSet<u64>>,
    bytes: usize,
}

impl ConflictLog {
    /// Appends a conflict and drops the oldest ones beyond the bounds. A value above [`CONFLICT_BYTES_MAX`] alone is
    /// kept until the next conflict. `id` is greater than all before, also than those that are gone. Returns the number of
    /// conflicts that were dropped, which the row of the node counts.
    pub(super) fn append(&mut self, id: u64, mut conflict: Conflict, effects: &mut Effects) -> u64 {
        if let LostContent::Value(value) = &mut conflict.lost {
            // It can share the memory of its frame, which is not counted.
            *value = Bytes::copy_from_slice(value);
        }
        let mut dropped = 0;
        effects.row(RowId::Conflict(id), None, Some(Row::Conflict(conflict.clone())));
        self.restore(id, Some(Row::Conflict(conflict.clone())));
        effects.events.push(Event::Conflict { id, conflict });
        while self.conflicts.len() > CONFLICTS_MAX
            || (self.bytes > CONFLICT_BYTES_MAX && self.conflicts.len() > 1)
        {
            let Some(oldest) = self.conflicts.keys().next().copied() else { break };
            self.remove(oldest, effects);
            dropped = u64::saturating_add(dropped, 1);
        }
        dropped
    }

    /// Removes a conflict that an operator has dealt with. Returns whether it was there.
    pub(super) fn remove(&mut self, id: u64, effects: &mut Effects) -> bool {
        let Some(removed) = self.conflicts.get(&id).cloned() else { return false };
        self.restore(id, None);
        effects.row(RowId::Conflict(id), Some(Row::Conflict(removed)), None);
        true
    }

    /// Puts a row back. Anything but a conflict removes it.
    pub(super) fn restore(&mut self, id: u64, row: Option<Row>) {
        if let Some(before) = self.conflicts.remove(&id) {
            self.bytes = self.bytes.saturating_sub(size(&before));
            let left = self.of_leaf(&before.leaf).saturating_sub(1);
            self.by_leaf.insert(before.leaf.clone(), left);
            if left == 0 {
                self.by_leaf.remove(&before.leaf);
            }
            if let Some(ids) = self.restored.get_mut(&before.key) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.restored.remove(&before.key);
                }
            }
        }
        if let Some(Row::Conflict(conflict)) = row {
            self.bytes = self.bytes.saturating_add(size(&conflict));
            let count = self.of_leaf(&conflict.leaf).saturating_add(1);
            self.by_leaf.insert(conflict.leaf.clone(), count);
            if conflict.reason == Reason::Restored {
                self.restored.entry(conflict.key.clone()).or_default().insert(id);
            }
            self.conflicts.insert(id, conflict);
        }
    }

    /// Whether a leaf has lost this value of the key because the root was restored: all leaves that had it report it, and
    /// would take the room of all other conflicts.
    pub(super) fn has_restored(&self, key: &Key, lost: &LostContent) -> bool {
        /// More backups are not put back one after the other.
        const LATEST_MAX: usize = 8;
        let latest = self.restored.get(key).into_iter().flat_map(|ids| ids.iter().rev().take(LATEST_MAX));
        let mut conflicts = latest.filter_map(|id| self.conflicts.get(id));
        lost.value().is_some() && conflicts.any(|conflict| conflict.lost == *lost)
    }

    #[must_use]
    pub fn get(&self, id: u64) -> Option<&Conflict> {
        self.conflicts.get(&id)
    }

    /// Returns the conflicts after an id, in the order in which they were found.
    pub fn since(&self, id: u64) -> impl Iterator<Item = (u64, &Conflict)> {
        self.conflicts.range(id.saturating_add(1)..).map(|(id, conflict)| (*id, conflict))
    }

    /// Returns the conflicts, the last one first.
    pub fn latest(&self) -> impl Iterator<Item = (u64, &Conflict)> {
        self.conflicts.iter().rev().map(|(id, conflict)| (*id, conflict))
    }

    pub(super) fn rows_from<'a>(
        &'a self,
        last: Option<&'a RowId>,
    ) -> impl Iterator<Item = (RowId, Row)> + 'a {
        let id = |id: &RowId| if let RowId::Conflict(id) = id { Some(*id) } else { None };
        let from = rest(last, Kind::Conflict, id).into_iter();
        let conflicts = from.flat_map(|from| self.conflicts.range((from, Bound::Unbounded)));
        conflicts.map(|(id, conflict)| (RowId::Conflict(*id), Row::Conflict(conflict.clone())))
    }

    /// Returns the number of conflicts of a leaf.
    #[must_use]
    pub fn of_leaf(&self, leaf: &Name) -> usize {
        self.by_leaf.get(leaf).copied().unwrap_or(0)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.conflicts.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.conflicts.is_empty()
    }
}

fn size(conflict: &Conflict) -> usize {
    /// The rest of a conflict, and its place in the table.
    const OVERHEAD_BYTES: usize = 256;
    let value = conflict.lost.value().map_or(0, Bytes::len);
    value.saturating_add(conflict.key.as_bytes().len()).saturating_add(OVERHEAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::super::names::ChangeId;
    use super::*;

    fn conflict(value: usize) -> Conflict {
        Conflict {
            key: Key::new("k").unwrap(),
            leaf: Name::new("press").unwrap(),
            change_id: ChangeId::NIL,
            reason: Reason::RootWins,
            lost: LostContent::Value(vec![0; value].into()),
            winner: 1,
            owner: None,
            at_ms: 0,
        }
    }

    #[test]
    fn the_oldest_conflicts_make_room_and_are_counted() {
        let (mut log, mut effects) = (ConflictLog::default(), Effects::default());
        let ids = 1..=CONFLICTS_MAX as u64 + 1;
        let dropped: u64 = ids.map(|id| log.append(id, conflict(1), &mut effects)).sum();
        assert_eq!((log.len(), dropped, log.since(0).next().unwrap().0), (CONFLICTS_MAX, 1, 2));
        let removed = effects.rows.last().unwrap();
        assert!(removed.id == RowId::Conflict(1) && removed.after.is_none() && removed.before.is_some());
        let dropped = log.append(u64::MAX, conflict(CONFLICT_BYTES_MAX), &mut effects);
        assert_eq!(dropped, CONFLICTS_MAX as u64);
        assert_eq!((log.len(), log.of_leaf(&Name::new("press").unwrap())), (1, 1));
    }

    #[test]
    fn a_value_does_not_hold_the_memory_of_its_frame() {
        let frame = Bytes::from(vec![b'x'; 10_000]);
        let (mut log, mut effects) = (ConflictLog::default(), Effects::default());
        log.append(1, Conflict { lost: LostContent::Value(frame.slice(1..3)), ..conflict(0) }, &mut effects);
        drop(effects);
        assert_eq!(log.get(1).unwrap().lost.value().unwrap().as_ref(), b"xx");
        assert!(frame.is_unique());
    }

    #[test]
    fn a_conflict_can_be_removed_once() {
        let (mut log, mut effects) = (ConflictLog::default(), Effects::default());
        log.append(1, conflict(5), &mut effects);
        assert!(!log.remove(u64::MAX, &mut effects), "an operator may ask for any id");
        assert!(log.get(1).is_some() && log.remove(1, &mut effects) && !log.remove(1, &mut effects));
        assert!(log.is_empty() && log.bytes == 0 && log.by_leaf.is_empty());
    }

    #[test]
    fn a_value_that_went_with_a_restored_root_is_known_until_it_is_removed() {
        let (mut log, mut effects) = (ConflictLog::default(), Effects::default());
        let lost = |text: &'static str| LostContent::Value(text.into());
        for (id, text) in [(1, "a"), (2, "b")] {
            log.append(
                id,
                Conflict { reason: Reason::Restored, lost: lost(text), ..conflict(0) },
                &mut effects,
            );
        }
        log.append(3, Conflict { lost: lost("c"), ..conflict(0) }, &mut effects);
        let key = conflict(0).key;
        let known = |log: &ConflictLog| ["a", "b", "c"].map(|text| log.has_restored(&key, &lost(text)));
        assert_eq!(known(&log), [true, true, false]);
        assert!(!log.has_restored(&key, &LostContent::Unsent), "the value is not known");
        assert!(log.remove(1, &mut effects));
        assert_eq!(known(&log), [false, true, false]);
        assert!(log.remove(2, &mut effects) && log.restored.is_empty());
    }
}
