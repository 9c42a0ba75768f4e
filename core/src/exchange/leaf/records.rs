//! Applies what the root has decided (S10): records and decisions.

use super::super::frame::{Item, RecordItem};
use super::{
    BTreeSet, Cause, ChangeId, Conflict, Effects, Entry, EntryState, Key, Leaf, LostContent, Note, Reason,
    ResyncKind, Values,
};

/// The most notes of tombstones that one step drops, because requests wait meanwhile.
const DROPPED_PER_STEP_MAX: usize = 256;

impl Leaf {
    pub(super) fn take_items(
        &mut self,
        items: Vec<Item>,
        now_ms: u64,
        values: &dyn Values,
        effects: &mut Effects,
    ) -> Result<(), Cause> {
        for item in items {
            match item {
                Item::Record(record) => self.take_record(record, false, now_ms, values, effects),
                Item::Accepted { seq, ver } => self.accepted(seq, ver, now_ms, effects)?,
                Item::Refused { seq, reason, record } => {
                    self.refused(seq, reason, record, now_ms, values, effects)?;
                }
            }
        }
        Ok(())
    }

    /// Takes the oldest entry out; `None` if its decision was applied before.
    fn pop(&mut self, seq: u64, effects: &mut Effects) -> Result<Option<Entry>, Cause> {
        if seq <= self.row.acked {
            return Ok(None);
        }
        let oldest = self.outbox.first_key_value().filter(|(oldest, _)| **oldest == seq);
        let entry = oldest.map(|(_, entry)| entry.clone()).ok_or(Cause::Gap)?;
        self.put_entry(seq, None, effects);
        (self.row.acked, self.row.acked_change_id) = (seq, entry.change_id);
        Ok(Some(entry))
    }

    fn accepted(&mut self, seq: u64, ver: u64, now_ms: u64, effects: &mut Effects) -> Result<(), Cause> {
        let Some(entry) = self.pop(seq, effects)? else { return Ok(()) };
        self.row.counts.accepted = self.row.counts.accepted.saturating_add(1);
        // A key may have left the rules since: it is local.
        if !self.concerns(&entry.key) || !self.is_news(&entry.key, ver) {
            return Ok(());
        }
        // A record that is older than this change had replaced it: also one of a restored root, after the change was settled.
        let is_older = |note: &Note| note.ver < ver && note.change_id != entry.change_id;
        let is_replaced = match entry.state {
            EntryState::Lost => true,
            EntryState::Settled => self.notes.get(&entry.key).is_some_and(is_older),
            EntryState::Live | EntryState::Restored => false,
        };
        if is_replaced && !self.live.contains_key(&entry.key) {
            effects.value(entry.key.clone(), entry.content(now_ms));
        }
        // Within a resync, the decision does not show whether the root still has the record: if so, it names it.
        let is_unnamed = self.row.resync.is_some_and(|resync| ver <= resync.horizon);
        let epoch = self.row.epoch.wrapping_sub(is_unnamed.into());
        let note = Note { ver, change_id: entry.change_id, until: entry.value_until(), epoch };
        self.put_note(entry.key, Some(note), effects);
        Ok(())
    }

    fn refused(
        &mut self,
        seq: u64,
        reason: Reason,
        record: Option<RecordItem>,
        now_ms: u64,
        values: &dyn Values,
        effects: &mut Effects,
    ) -> Result<(), Cause> {
        let Some(entry) = self.pop(seq, effects)? else { return Ok(()) };
        if entry.state == EntryState::Restored {
            return Ok(());
        }
        self.row.counts.refused = self.row.counts.refused.saturating_add(1);
        let conflict = Conflict {
            key: entry.key.clone(),
            leaf: self.row.identity.node.clone(),
            change_id: entry.change_id,
            reason,
            lost: LostContent::of(entry.value),
            winner: record.as_ref().map_or(0, |record| record.ver),
            owner: record.as_ref().and_then(|record| record.owner.clone()),
            at_ms: now_ms,
        };
        self.conflict(conflict, effects);
        if entry.state != EntryState::Live {
            return Ok(());
        }
        match record.filter(|record| record.key == entry.key) {
            Some(record) => self.take_record(record, true, now_ms, values, effects),
            None => {
                self.lose(&entry.key, u64::MAX, EntryState::Lost, effects);
                self.put_note(entry.key.clone(), None, effects);
                // A key that left the rules stays, as a local one.
                if self.concerns(&entry.key) {
                    effects.value(entry.key, None);
                }
            }
        }
        Ok(())
    }

    /// Applies a record. `is_forced`: it replaces a live change that is refused.
    fn take_record(
        &mut self,
        record: RecordItem,
        is_forced: bool,
        now_ms: u64,
        values: &dyn Values,
        effects: &mut Effects,
    ) {
        let RecordItem { key, ver, change_id, owner, content } = record;
        if !is_forced && !self.is_news(&key, ver) {
            return;
        }
        let note = self.note_of(&key);
        let had_live = self.live.contains_key(&key) || is_forced;
        let own = self.by_change_id.get(&change_id).copied();
        let is_known = note.is_some_and(|note| note.change_id == change_id);
        match own {
            // The change and those before it are accepted; later ones are based on it.
            Some(own) => self.lose(&key, own, EntryState::Settled, effects),
            // A resync, and a root whose commit has failed, name a record again. Changes that are based on it go on.
            None if is_known && !is_forced => {}
            None => self.lose(&key, u64::MAX, EntryState::Lost, effects),
        }
        // A resync also repairs a value that is not the one of its note.
        let is_same =
            || values.content(&key).map(|own| own.value) == content.as_ref().map(|new| new.value.clone());
        let is_shown = !had_live && is_known && (self.row.resync.is_none() || is_same());
        let until = match note {
            // The value stays, and so does the time at which it expires: a frame may come late.
            Some(note) if is_shown => note.until,
            _ => content.as_ref().map_or(0, |content| content.until(now_ms)),
        };
        if !self.live.contains_key(&key) && !is_shown {
            if !had_live && own.is_none() {
                self.report_replaced(&key, note, &content, (ver, owner), now_ms, values, effects);
            }
            effects.value(key.clone(), content);
        }
        self.put_note(key, Some(Note { ver, change_id, until, epoch: self.row.epoch }), effects);
    }

    /// Reports a local value that a record replaces although no change of it is pending: when the leaf joins, or when
    /// the root was restored.
    #[expect(clippy::too_many_arguments, reason = "the parts of one record")]
    fn report_replaced(
        &mut self,
        key: &Key,
        note: Option<Note>,
        content: &Option<super::Content>,
        (winner, owner): (u64, Option<super::super::names::Name>),
        now_ms: u64,
        values: &dyn Values,
        effects: &mut Effects,
    ) {
        let is_restored = self.row.resync.is_some_and(|resync| resync.kind == ResyncKind::Restored);
        let reason = match note {
            None => Reason::Joined,
            Some(note) if is_restored && note.ver >= winner => Reason::Restored,
            Some(_) => return,
        };
        let Some(local) = values.content(key) else { return };
        if content.as_ref().is_some_and(|content| content.value == local.value) {
            return;
        }
        let leaf = self.row.identity.node.clone();
        let change_id = note.map_or(ChangeId::NIL, |note| note.change_id);
        if reason == Reason::Restored {
            self.offer_restored(key, &local.value, effects);
        }
        let (key, lost) = (key.clone(), LostContent::Value(local.value));
        self.conflict(Conflict { key, leaf, change_id, reason, lost, winner, owner, at_ms: now_ms }, effects);
    }

    /// Whether a version of a key is newer than the leaf's, or the first one since a resync began.
    fn is_news(&self, key: &Key, ver: u64) -> bool {
        self.notes.get(key).is_none_or(|note| ver > note.ver || note.epoch != self.row.epoch)
    }

    /// Ends the life of a key's changes up to `last`.
    pub(super) fn lose(&mut self, key: &Key, last: u64, state: EntryState, effects: &mut Effects) {
        let live = self.live.get(key).into_iter().flat_map(BTreeSet::iter);
        let seqs: Vec<_> = live.copied().take_while(|seq| *seq <= last).collect();
        for seq in seqs {
            let Some(entry) = self.outbox.get(&seq).cloned() else { continue };
            self.put_entry(seq, Some(Entry { state, ..entry }), effects);
        }
    }

    /// Drops notes of tombstones that the root has purged: "no record" means the same. A note that is the base of a
    /// pending change stays.
    pub(super) fn drop_tombstones(&mut self, purged: u64, effects: &mut Effects) {
        let old = self.tombstones.range(..=purged).filter(|(_, key)| !self.live.contains_key(*key));
        let old: Vec<_> = old.take(DROPPED_PER_STEP_MAX).map(|(_, key)| key.clone()).collect();
        for key in old {
            self.put_note(key, None, effects);
        }
    }
}
