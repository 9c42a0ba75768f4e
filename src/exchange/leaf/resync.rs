//! Resync: the root names all its records; what it has not named by the horizon is gone.

use std::ops::Bound;

use super::super::frame::Start;
use super::{ChangeError, Conflict, Content, Effects, Key, Leaf, Mutex, OnJoin, Reason, Resync, Values};

/// The most notes that one step of a sweep looks at, because requests wait meanwhile.
const NOTES_PER_STEP_MAX: usize = 256;

impl Leaf {
    /// Begins a resync. It goes on at the cursor after a lost link or a restart.
    pub(super) fn begin_resync(&mut self, resync: Resync) {
        // 4 billion resyncs do not happen.
        self.row.epoch = self.row.epoch.wrapping_add(1);
        (self.row.cursor, self.row.term, self.row.resync) = (0, 0, Some(resync));
        self.sweep = None;
        self.hello_after = self.steps.next();
    }

    /// Begins the sweep if the root has named all records up to the horizon.
    pub(super) fn begin_sweep(&mut self) {
        let is_due = self.row.resync.is_some_and(|resync| self.row.cursor >= resync.horizon);
        if is_due && self.sweep.is_none() {
            self.sweep = Some(Bound::Unbounded);
        }
    }

    /// Removes some notes that the root has not named, with their values.
    pub(super) fn sweep(&mut self, now_ms: u64, values: &dyn Values, effects: &mut Effects) {
        let (Some(from), Some(resync)) = (self.sweep.take(), self.row.resync) else { return };
        let notes = self.notes.range((from, Bound::Unbounded)).take(NOTES_PER_STEP_MAX);
        let notes: Vec<_> = notes.map(|(key, note)| (key.clone(), *note)).collect();
        for (key, note) in &notes {
            // A pending change gets its verdict in any case.
            if note.epoch == self.row.epoch || self.live.contains_key(key) {
                continue;
            }
            self.put_note(key.clone(), None, effects);
            if note.until == 0 || !self.concerns(key) {
                continue;
            }
            if resync.start == Start::Restored {
                self.discard(key, note.mutex, Reason::Restored, now_ms, values, effects);
            } else {
                effects.value(key.clone(), None);
            }
        }
        if let Some((last, _)) = notes.last().filter(|_| notes.len() == NOTES_PER_STEP_MAX) {
            self.sweep = Some(Bound::Excluded(last.clone()));
            return;
        }
        let before = self.node();
        (self.row.resync, self.row.is_walk_due) = (None, true);
        self.put_node(before, effects);
    }

    /// Whether the service has to call `handle_found` for each key of its store, then `handle_walked`.
    #[must_use]
    pub fn is_walk_due(&self) -> bool {
        self.row.is_walk_due
    }

    /// Takes a key of the store that the exchange does not have: what only the leaf has is offered when it joins.
    pub fn handle_found(
        &mut self,
        key: &Key,
        content: &Content,
        now_ms: u64,
        values: &dyn Values,
    ) -> Effects {
        let mut effects = Effects::default();
        if self.concerns(key) && !self.notes.contains_key(key) && !self.live.contains_key(key) {
            match (self.on_join, self.check_change(key, content.value.len())) {
                (OnJoin::Offer, Ok(())) => self.append(key, Some(content), now_ms, &mut effects),
                // The walk is repeated after the next resync; until then the key is shown, and changes are refused.
                (_, Err(ChangeError::OutboxFull)) => {}
                (OnJoin::Discard, Ok(())) | (_, Err(ChangeError::RootOnly)) => {
                    self.discard(key, Mutex::NIL, Reason::Joined, now_ms, values, &mut effects);
                }
            }
        }
        self.finish(effects)
    }

    /// Reports that `handle_found` was called for each key of the store.
    pub fn handle_walked(&mut self) -> Effects {
        let mut effects = Effects::default();
        let before = self.node();
        self.row.is_walk_due = false;
        self.put_node(before, &mut effects);
        self.finish(effects)
    }

    /// Deletes a value that the root does not have, and records it as a conflict.
    fn discard(
        &mut self,
        key: &Key,
        mutex: Mutex,
        reason: Reason,
        now_ms: u64,
        values: &dyn Values,
        effects: &mut Effects,
    ) {
        if let Some(content) = values.content(key) {
            let leaf = self.row.identity.node.clone();
            let value = Some(content.value);
            let conflict = Conflict {
                key: key.clone(),
                leaf,
                mutex,
                reason,
                value,
                winner: 0,
                owner: None,
                at_ms: now_ms,
            };
            self.conflict(conflict, effects);
        }
        effects.value(key.clone(), None);
    }
}
