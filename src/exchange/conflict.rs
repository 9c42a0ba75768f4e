//! Log of the changes that lost, bounded in number and bytes (I5, I9).

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use super::effects::{Effects, Event};
use super::names::Name;
use super::row::{Conflict, Row, RowId};
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
    bytes: usize,
    dropped: u64,
}

impl ConflictLog {
    /// Appends a conflict and drops the oldest ones beyond the bounds. A value above [`CONFLICT_BYTES_MAX`] alone is
    /// kept until the next conflict. `id` is greater than all before, also than those that are gone.
    pub(super) fn append(&mut self, id: u64, mut conflict: Conflict, effects: &mut Effects) {
        // A value can share the memory of its frame, which is not counted.
        conflict.value = conflict.value.map(|value| Bytes::copy_from_slice(&value));
        effects.row(RowId::Conflict(id), None, Some(Row::Conflict(conflict.clone())));
        self.restore(id, Some(Row::Conflict(conflict.clone())));
        effects.events.push(Event::Conflict { id, conflict });
        while self.conflicts.len() > CONFLICTS_MAX
            || (self.bytes > CONFLICT_BYTES_MAX && self.conflicts.len() > 1)
        {
            let Some(oldest) = self.conflicts.keys().next().copied() else { return };
            self.remove(oldest, effects);
            self.dropped = self.dropped.saturating_add(1);
        }
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
        }
        if let Some(Row::Conflict(conflict)) = row {
            self.bytes = self.bytes.saturating_add(size(&conflict));
            let count = self.of_leaf(&conflict.leaf).saturating_add(1);
            self.by_leaf.insert(conflict.leaf.clone(), count);
            self.conflicts.insert(id, conflict);
        }
    }

    /// Returns what a restart keeps.
    #[cfg(test)]
    pub(super) fn on_disk(&self) -> Self {
        Self { dropped: 0, ..self.clone() }
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

    /// Returns the number of conflicts that made room for others since the process started.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

fn size(conflict: &Conflict) -> usize {
    /// The rest of a conflict, and its place in the table.
    const OVERHEAD_BYTES: usize = 256;
    let value = conflict.value.as_ref().map_or(0, Bytes::len);
    value.saturating_add(conflict.key.as_bytes().len()).saturating_add(OVERHEAD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::super::frame::Reason;
    use super::super::names::Mutex;
    use super::*;
    use crate::protocol::Key;

    fn conflict(value: usize) -> Conflict {
        Conflict {
            key: Key::new("k").unwrap(),
            leaf: Name::new("press").unwrap(),
            mutex: Mutex::NIL,
            reason: Reason::RootWins,
            value: Some(vec![0; value].into()),
            winner: 1,
            owner: None,
            at_ms: 0,
        }
    }

    #[test]
    fn the_oldest_conflicts_make_room_and_are_counted() {
        let (mut log, mut effects) = (ConflictLog::default(), Effects::default());
        for id in 0..=CONFLICTS_MAX as u64 {
            log.append(id + 1, conflict(1), &mut effects);
        }
        assert_eq!((log.len(), log.dropped(), log.since(0).next().unwrap().0), (CONFLICTS_MAX, 1, 2));
        let removed = effects.rows.last().unwrap();
        assert!(removed.id == RowId::Conflict(1) && removed.after.is_none() && removed.before.is_some());
        log.append(u64::MAX, conflict(CONFLICT_BYTES_MAX), &mut effects);
        assert_eq!((log.len(), log.of_leaf(&Name::new("press").unwrap())), (1, 1));
    }

    #[test]
    fn a_value_does_not_hold_the_memory_of_its_frame() {
        let frame = Bytes::from(vec![b'x'; 10_000]);
        let (mut log, mut effects) = (ConflictLog::default(), Effects::default());
        log.append(1, Conflict { value: Some(frame.slice(1..3)), ..conflict(0) }, &mut effects);
        drop(effects);
        assert_eq!(log.get(1).unwrap().value.as_deref(), Some(&b"xx"[..]));
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
}
