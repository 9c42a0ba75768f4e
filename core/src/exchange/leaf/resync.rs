//! Resync: the root names all its records; what it has not named by the horizon is gone.

use std::ops::Bound;

use super::super::frame::DECISIONS_MAX;
use super::{
    Bytes, Cause, ChangeError, ChangeId, Conflict, Content, Effects, EntryState, FOREVER, Key, Leaf,
    LostContent, OnJoin, Reason, Resync, ResyncKind, Values,
};

/// The most notes that one step of a sweep looks at, because requests wait meanwhile.
const NOTES_PER_STEP_MAX: usize = 256;

impl Leaf {
    /// Has the next link begin with a resync: an operator asks for it. With `is_new_root`, the leaf leaves its root:
    /// it joins the root of the next link, whichever that is, and offers what it has.
    pub fn resync(&mut self, is_new_root: bool) -> Effects {
        let mut effects = Effects::default();
        self.end(Cause::Resync, &mut effects);
        let before = self.node();
        let kind = if is_new_root { ResyncKind::NewRoot } else { ResyncKind::Missed };
        self.row.due = self.row.due.max(Some(kind));
        if is_new_root {
            self.leave_root(&mut effects);
        }
        self.put_node(before, &mut effects);
        self.finish(effects)
    }

    /// Forgets the root. Its notes are those of an older epoch from here on: they count as absent, and go with the
    /// resync.
    fn leave_root(&mut self, effects: &mut Effects) {
        // The changes that it has accepted, of which the decisions are on their way, are within its window.
        let decided = self.outbox.iter().take(DECISIONS_MAX);
        let settled = decided.filter(|(_, entry)| entry.state == EntryState::Settled);
        for seq in settled.map(|(seq, _)| *seq).collect::<Vec<_>>() {
            self.put_entry(seq, None, effects);
            self.row.counts.accepted = self.row.counts.accepted.saturating_add(1);
        }
        // The number after a random one is random, too.
        self.row.stream = self.row.stream.wrapping_add(1);
        (self.row.root, self.row.acked, self.row.acked_change_id) = (None, 0, ChangeId::NIL);
        (self.row.cursor, self.row.last_ver, self.row.term, self.row.resync) = (0, 0, 0, None);
        // The new root has never seen the changes that wait: they are not `again`.
        (self.row.again_to, self.row.rejoin_to, self.offered) = (0, self.row.last_seq, 0);
        self.row.epoch = self.row.epoch.wrapping_add(1);
        self.sweep = None;
    }

    /// Begins a resync. It goes on at the cursor after a lost link or a restart.
    pub(super) fn begin_resync(&mut self, kind: ResyncKind, horizon: u64) {
        // What an incomplete one has not found yet is found by this one.
        let incomplete = self.row.resync.map(|resync| resync.kind);
        let kind = Some(kind).max(incomplete).max(self.row.due.take()).unwrap_or(kind);
        // 4 billion resyncs do not happen.
        self.row.epoch = self.row.epoch.wrapping_add(1);
        (self.row.cursor, self.row.resync) = (0, Some(Resync { horizon, kind }));
        self.sweep = None;
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
        let before = self.node();
        let notes = self.notes.range((from, Bound::Unbounded)).take(NOTES_PER_STEP_MAX);
        let notes: Vec<_> = notes.map(|(key, note)| (key.clone(), *note)).collect();
        for (key, note) in &notes {
            // A pending change gets its decision in any case.
            if note.epoch == self.row.epoch || self.live.contains_key(key) {
                continue;
            }
            self.put_note(key.clone(), None, effects);
            if note.until == 0 || !self.concerns(key) {
                continue;
            }
            match resync.kind {
                ResyncKind::Missed => effects.value(key.clone(), None),
                ResyncKind::Restored => {
                    self.discard(key, note.change_id, Reason::Restored, now_ms, values, effects);
                }
                // The walk offers it.
                ResyncKind::NewRoot => {}
            }
        }
        if let Some((last, _)) = notes.last().filter(|_| notes.len() == NOTES_PER_STEP_MAX) {
            self.sweep = Some(Bound::Excluded(last.clone()));
        } else {
            (self.row.resync, self.row.is_walk_due) = (None, true);
        }
        self.put_node(before, effects);
    }

    /// Whether the service has to call `handle_found` for each key of its store, then `handle_walked`.
    #[must_use]
    pub fn is_walk_due(&self) -> bool {
        // While the outbox is full, a walk finds no room for what it has not offered.
        self.row.is_walk_due && !self.is_half_full()
    }

    /// Takes a key of the store of which the exchange has no value: what only the leaf has is offered when it joins, and what was
    /// set while the key took no part.
    pub fn handle_found(
        &mut self,
        key: &Key,
        content: &Content,
        now_ms: u64,
        values: &dyn Values,
    ) -> Effects {
        let mut effects = Effects::default();
        let has_value = match self.pending(key) {
            // Its value may have expired: then this one was set while the key took no part.
            Some((_, entry)) => entry.value_until() > now_ms,
            None => self.notes.get(key).is_some_and(|note| note.until > 0),
        };
        if self.concerns(key) && !has_value {
            match (self.on_join, self.check_change(key, content.value.len())) {
                // One that is too large is kept, and shown as what holds up the others.
                (OnJoin::Offer, Ok(()) | Err(ChangeError::TooLarge)) => {
                    self.append(key, Some(content), now_ms, &mut effects);
                }
                (_, Err(ChangeError::OutboxFull)) => self.is_walk_cut = true,
                // A key without rules does not get here.
                (_, Err(ChangeError::NotJoined)) => {}
                (OnJoin::Discard, Ok(()) | Err(ChangeError::TooLarge)) | (_, Err(ChangeError::RootOnly)) => {
                    let before = self.node();
                    self.discard(key, ChangeId::NIL, Reason::Joined, now_ms, values, &mut effects);
                    self.put_node(before, &mut effects);
                }
            }
        }
        self.finish(effects)
    }

    /// Reports that `handle_found` was called for each key of the store. The walk is repeated if the outbox had no room.
    pub fn handle_walked(&mut self) -> Effects {
        let mut effects = Effects::default();
        let before = self.node();
        self.row.is_walk_due = std::mem::take(&mut self.is_walk_cut);
        self.put_node(before, &mut effects);
        self.finish(effects)
    }

    /// Has the root record a value that goes because the root was restored: its operators have no other list of what the
    /// leaves lose. The caller writes the row of the leaf.
    ///
    /// Changes of clients have the outbox first: while over half of it is taken, only the conflict at the leaf has the value.
    pub(super) fn offer_restored(&mut self, key: &Key, value: &Bytes, effects: &mut Effects) {
        if !self.is_half_full() {
            let value = Some(value.clone());
            self.put_next(key, ChangeId::NIL, EntryState::Restored, value, FOREVER, effects);
        }
    }

    /// Deletes a value that the root does not have, and records it as a conflict. The caller writes the row of the leaf.
    fn discard(
        &mut self,
        key: &Key,
        change_id: ChangeId,
        reason: Reason,
        now_ms: u64,
        values: &dyn Values,
        effects: &mut Effects,
    ) {
        if let Some(content) = values.content(key) {
            let leaf = self.row.identity.node.clone();
            if reason == Reason::Restored {
                self.offer_restored(key, &content.value, effects);
            }
            let conflict = Conflict {
                key: key.clone(),
                leaf,
                change_id,
                reason,
                lost: LostContent::Value(content.value),
                winner: 0,
                owner: None,
                at_ms: now_ms,
            };
            self.conflict(conflict, effects);
        }
        effects.value(key.clone(), None);
    }
}
