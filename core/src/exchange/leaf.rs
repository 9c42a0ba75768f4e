//! A leaf: shows its own changes at once, proposes them, and takes what the root decides.

mod link;
mod records;
mod resync;
mod rows;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;

use crate::protocol::Key;

use super::conflict_log::ConflictLog;
use super::digest;
use super::effects::{Cause, Effects, Event, LinkEnd, Values};
use super::fingerprint::Fingerprint;
use super::frame::{Content, LinkFrame, Reason};
use super::names::{ChangeId, SerialSource};
use super::row::{
    Conflict, Counts, Entry, EntryState, FOREVER, Identity, LeafNodeRow, LostContent, Note, Resync,
    ResyncKind, Row, RowId,
};
use super::rules::{Change, Rules};
use super::steps::{Steps, UncommittedRemovals};
use window::Link;

/// The most bytes of keys and values in the outbox.
pub const OUTBOX_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The most changes in the outbox.
pub const OUTBOX_ENTRIES_MAX: usize = 262_144;
/// The most live changes of one key, but for those that may have been sent: a record that replaces them changes all in
/// one step.
pub const LIVE_PER_KEY_MAX: usize = 64;
/// What an entry of the outbox takes beside its key and value, with its places in the tables.
const ENTRY_OVERHEAD_BYTES: usize = 192;
/// The most bytes of a frame with one change beside its key and value.
const FRAME_OVERHEAD_BYTES: usize = 256;

/// A leaf of an exchange.
///
/// It has the same contract as [`Root`](super::root::Root): one step, one commit group; no frame before the commit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leaf {
    row: LeafNodeRow,
    /// `None` before the first WELCOME: which keys take part is not known yet.
    rules: Option<Rules>,
    on_join: OnJoin,
    before_join: BeforeJoin,
    notes: BTreeMap<Key, Note>,
    /// Keys by the version of their notes, for tombstones.
    tombstones: BTreeMap<u64, Key>,
    /// Changes without a decision, by their sequence numbers.
    outbox: BTreeMap<u64, Entry>,
    outbox_bytes: usize,
    /// Live entries by key.
    live: BTreeMap<Key, BTreeSet<u64>>,
    by_change_id: BTreeMap<ChangeId, u64>,
    /// The last change that may have been sent. After a start that is the last one: an older process, or the one
    /// before a restored backup, may have sent it.
    offered: u64,
    /// The digests of the notes of each epoch: a resync compares nothing until it has named them all.
    digests: BTreeMap<u32, u64>,
    conflicts: ConflictLog,
    link: Option<Link>,
    /// Why the last link has ended.
    ended: Option<LinkEnd>,
    /// Why there is no connection with the root, until the root answers again.
    unreachable: Option<String>,
    /// The last change that was reported as larger than the root accepts.
    too_large_reported: Option<u64>,
    /// The most bytes of a frame that the root has accepted by its last connection.
    frame_bytes_max: usize,
    /// The entries that were merged with later ones.
    merged: UncommittedRemovals,
    /// HELLO waits until this step is committed.
    hello_after: u64,
    /// Where the sweep at the end of a resync goes on.
    sweep: Option<Bound<Key>>,
    /// Whether the walk has found a key for which the outbox had no room.
    is_walk_cut: bool,
    source: SerialSource,
    steps: Steps<Progress>,
    saved: Progress,
}

/// What happens to a leaf's own keys when it joins and the root does not have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OnJoin {
    /// They are proposed.
    #[default]
    Offer,
    /// They are deleted, and recorded as conflicts.
    Discard,
}

/// What becomes of writes of clients before the leaf has been linked for the first time: it has no rules yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum BeforeJoin {
    /// They are refused, all of them: a rule of the root may forbid any, and the first link would then delete the key.
    #[default]
    Refuse,
    /// They are accepted, and treated by [`OnJoin`] and by the rules when the leaf joins.
    Accept,
}

/// How a leaf joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct JoinPolicy {
    pub on_join: OnJoin,
    pub before_join: BeforeJoin,
}

/// How far a leaf is, in memory or on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Progress {
    last_seq: u64,
    cursor: u64,
    last_ver: u64,
    term: u64,
    acked: u64,
    /// The last RECORDS of the link `link`.
    n: u64,
    link: u64,
}

/// The reason why a leaf refuses a request to change a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// The leaf has not been linked yet, so that it does not know the rule of the key.
    NotJoined,
    /// Only the root of the exchange changes this key.
    RootOnly,
    /// The outbox is full.
    OutboxFull,
    /// The root accepts no frame with this value.
    TooLarge,
}

impl Leaf {
    /// Returns a leaf that has not joined. `run` and `stream` are random; a stored row replaces the stream.
    #[must_use]
    pub fn new(identity: Identity, policy: JoinPolicy, run: u64, stream: u64) -> Self {
        let JoinPolicy { on_join, before_join } = policy;
        let row = LeafNodeRow {
            identity,
            root: None,
            cursor: 0,
            last_ver: 0,
            term: 0,
            acked: 0,
            acked_change_id: ChangeId::NIL,
            stream,
            last_seq: 0,
            again_to: 0,
            rejoin_to: 0,
            epoch: 0,
            resync: None,
            due: None,
            is_walk_due: false,
            counts: Counts::default(),
            last_conflict: 0,
            dropped_conflicts: 0,
        };
        Self {
            row,
            rules: None,
            on_join,
            before_join,
            notes: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            outbox: BTreeMap::new(),
            outbox_bytes: 0,
            live: BTreeMap::new(),
            by_change_id: BTreeMap::new(),
            offered: 0,
            digests: BTreeMap::new(),
            conflicts: ConflictLog::default(),
            link: None,
            ended: None,
            unreachable: None,
            too_large_reported: None,
            frame_bytes_max: usize::MAX,
            merged: UncommittedRemovals::default(),
            hello_after: 0,
            sweep: None,
            is_walk_cut: false,
            source: SerialSource::new(run),
            steps: Steps::new(),
            saved: Progress::default(),
        }
    }

    /// Reports that the rows of [`Effects`] are put back with `restore`: no uncommitted step is left. `are_rules_back`: the rules
    /// are among them.
    pub fn handle_commit_failed(&mut self, are_rules_back: bool) -> Effects {
        self.steps.handle_undone();
        self.merged.handle_undone();
        self.saved = Progress { link: 0, n: 0, ..self.progress() };
        // It may have passed notes that are back.
        self.sweep = None;
        self.begin_sweep();
        let mut effects = Effects::default();
        self.end(Cause::NotCommitted, &mut effects);
        if are_rules_back {
            // Meanwhile, clients may have set keys that took no part.
            let before = self.node();
            self.row.is_walk_due = true;
            self.put_node(before, &mut effects);
        }
        self.finish(effects)
    }

    /// Reports that all steps up to this one are committed.
    pub fn handle_saved(&mut self, step: u64) {
        while let Some(progress) = self.steps.pop_saved(step) {
            self.saved = progress;
        }
        self.merged.handle_saved(step);
    }

    /// Returns whether a client may change a key. `bytes`: the length of the value, 0 for a deletion.
    ///
    /// # Errors
    /// [`ChangeError`]: the request is refused before it changes the store.
    pub fn check_change(&self, key: &Key, bytes: usize) -> Result<(), ChangeError> {
        let name = &self.row.identity.node;
        let Some(rules) = &self.rules else {
            return if self.before_join == BeforeJoin::Refuse { Err(ChangeError::NotJoined) } else { Ok(()) };
        };
        let Some(rule) = rules.find(key).filter(|rule| rule.concerns(name)) else { return Ok(()) };
        if rule.change() == Change::Root {
            return Err(ChangeError::RootOnly);
        }
        let size = bytes.saturating_add(key.as_bytes().len()).saturating_add(ENTRY_OVERHEAD_BYTES);
        let is_full = self.outbox.len() >= OUTBOX_ENTRIES_MAX
            || self.outbox_bytes.saturating_add(size) > OUTBOX_BYTES_MAX;
        if is_full {
            return Err(ChangeError::OutboxFull);
        }
        if frame_bytes(key, bytes) > self.frame_bytes_max { Err(ChangeError::TooLarge) } else { Ok(()) }
    }

    /// Records a change that a client has made at this leaf; `None` deletes the key. The value and the entry of the
    /// outbox are one commit group (S4). The service has asked `check_change` before.
    pub fn handle_change(&mut self, key: &Key, content: Option<&Content>, now_ms: u64) -> Effects {
        let mut effects = Effects::default();
        if self.concerns(key) {
            self.append(key, content, now_ms, &mut effects);
        } else if self.has_leftovers() {
            // What is left of a key that has left the rules does not stand for this value, should it come back.
            self.lose(key, u64::MAX, EntryState::Lost, &mut effects);
            self.put_note(key.clone(), None, &mut effects);
        }
        self.finish(effects)
    }

    /// Records that a value has expired. That is no change: the change id and the version stay.
    pub fn handle_expired(&mut self, key: &Key, now_ms: u64) -> Effects {
        let mut effects = Effects::default();
        if let Some(note) = self.notes.get(key).copied().filter(|note| note.until > 0 && note.until <= now_ms)
        {
            self.put_note(key.clone(), Some(Note { until: 0, ..note }), &mut effects);
        }
        self.finish(effects)
    }

    /// Removes a conflict that an operator has dealt with.
    pub fn clear_conflict(&mut self, id: u64) -> Effects {
        let mut effects = Effects::default();
        self.conflicts.remove(id, &mut effects);
        self.finish(effects)
    }

    /// Whether there may be changes and notes of keys that have left the rules.
    #[must_use]
    pub fn has_leftovers(&self) -> bool {
        !self.outbox.is_empty() || self.row.resync.is_some()
    }

    fn append(&mut self, key: &Key, content: Option<&Content>, now_ms: u64, effects: &mut Effects) {
        let before = self.node();
        let live = self.live.get(key).map_or(0, BTreeSet::len);
        let last = self.live.get(key).and_then(BTreeSet::last).copied();
        let entry = last.and_then(|seq| self.outbox.get(&seq));
        let shared = self.note_of(key).map_or(ChangeId::NIL, |note| note.change_id);
        let mut base = entry.map_or(shared, |entry| entry.change_id);
        self.row.counts.made = self.row.counts.made.saturating_add(1);
        if let (Some(seq), Some(merged)) = (last, entry)
            && (self.outbox_bytes > OUTBOX_BYTES_MAX / 2 || live >= LIVE_PER_KEY_MAX)
            && seq > self.offered
        {
            // No other node can have seen it.
            base = merged.base;
            self.merged.insert(self.steps.next(), seq);
            self.put_entry(seq, None, effects);
            self.row.counts.merged = self.row.counts.merged.saturating_add(1);
        }
        let until = content.map_or(FOREVER, |content| content.until(now_ms));
        let value = content.map(|content| content.value.clone());
        self.put_next(key, base, EntryState::Live, value, until, effects);
        self.put_node(before, effects);
    }

    /// Puts an entry at the end of the outbox. The caller writes the row of the leaf.
    fn put_next(
        &mut self,
        key: &Key,
        base: ChangeId,
        state: EntryState,
        value: Option<Bytes>,
        until: u64,
        effects: &mut Effects,
    ) {
        let serial = self.source.next();
        let fingerprint = Fingerprint::of(value.as_ref(), until != FOREVER);
        let change_id = ChangeId::of(Some(&self.row.identity.node), serial, key, fingerprint);
        self.row.last_seq = self.row.last_seq.saturating_add(1);
        let entry = Entry { key: key.clone(), serial, change_id, base, state, value, until };
        self.put_entry(self.row.last_seq, Some(entry), effects);
    }

    /// Whether over half of the outbox is taken.
    fn is_half_full(&self) -> bool {
        self.outbox.len() > OUTBOX_ENTRIES_MAX / 2 || self.outbox_bytes > OUTBOX_BYTES_MAX / 2
    }

    /// Whether the key takes part, and concerns this leaf.
    #[must_use]
    pub fn concerns(&self, key: &Key) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.concerns(key, &self.row.identity.node))
    }

    fn node(&self) -> Row {
        Row::LeafNode(self.row.clone())
    }

    fn put_node(&self, before: Row, effects: &mut Effects) {
        effects.row(RowId::Node, Some(before), Some(self.node()));
    }

    fn put_note(&mut self, key: Key, note: Option<Note>, effects: &mut Effects) {
        let before = self.notes.get(&key).copied().map(Row::Note);
        effects.row(RowId::Key(key.clone()), before, note.map(Row::Note));
        self.set_note(key, note);
    }

    fn set_note(&mut self, key: Key, note: Option<Note>) {
        if let Some(before) = self.notes.remove(&key) {
            self.count(&key, before);
            if self.tombstones.get(&before.ver) == Some(&key) {
                self.tombstones.remove(&before.ver);
            }
        }
        let Some(note) = note else { return };
        self.count(&key, note);
        if note.until == 0 {
            self.tombstones.insert(note.ver, key.clone());
        }
        self.notes.insert(key, note);
    }

    /// Adds a note to the digest of its epoch, or takes it out. Expiring values are in no digest.
    fn count(&mut self, key: &Key, note: Note) {
        if note.until == FOREVER {
            let sum = self.digests.entry(note.epoch).or_default();
            *sum ^= digest::record(key, note.change_id);
            if *sum == 0 {
                self.digests.remove(&note.epoch);
            }
        }
    }

    /// Returns the digest of what the root has named.
    pub(super) fn digest(&self) -> u64 {
        self.digests.get(&self.row.epoch).copied().unwrap_or(0)
    }

    /// Whether the leaf has left its root, and the new one has not named all its records.
    fn is_rejoining(&self) -> bool {
        let resync = self.row.resync.map(|resync| resync.kind);
        self.row.due.max(resync) == Some(ResyncKind::NewRoot)
    }

    /// Returns the note of a key, unless it is of a root that the leaf has left.
    fn note_of(&self, key: &Key) -> Option<Note> {
        let is_valid = |note: &Note| note.epoch == self.row.epoch || !self.is_rejoining();
        self.notes.get(key).copied().filter(is_valid)
    }

    fn put_entry(&mut self, seq: u64, entry: Option<Entry>, effects: &mut Effects) {
        let before = self.outbox.get(&seq).cloned().map(Row::Entry);
        effects.row(RowId::Entry(seq), before, entry.clone().map(Row::Entry));
        self.set_entry(seq, entry);
    }

    fn set_entry(&mut self, seq: u64, entry: Option<Entry>) {
        if let Some(before) = self.outbox.remove(&seq) {
            self.outbox_bytes = self.outbox_bytes.saturating_sub(size(&before));
            self.by_change_id.remove(&before.change_id);
            if let Some(live) = self.live.get_mut(&before.key) {
                live.remove(&seq);
                if live.is_empty() {
                    self.live.remove(&before.key);
                }
            }
        }
        let Some(entry) = entry else { return };
        self.outbox_bytes = self.outbox_bytes.saturating_add(size(&entry));
        self.by_change_id.insert(entry.change_id, seq);
        if entry.state == EntryState::Live {
            self.live.entry(entry.key.clone()).or_default().insert(seq);
        }
        self.outbox.insert(seq, entry);
    }

    /// Records a conflict. The caller writes the row of the leaf.
    fn conflict(&mut self, conflict: Conflict, effects: &mut Effects) {
        self.row.last_conflict = self.row.last_conflict.saturating_add(1);
        let dropped = self.conflicts.append(self.row.last_conflict, conflict, effects);
        self.row.dropped_conflicts = self.row.dropped_conflicts.saturating_add(dropped);
    }

    fn progress(&self) -> Progress {
        let LeafNodeRow { last_seq, cursor, last_ver, term, acked, .. } = self.row;
        // Before WELCOME, the cursor may be ahead of a root that was restored: it must not be acknowledged on this link.
        let link = self.link.as_ref().filter(|link| link.is_welcome());
        let (link, n) = link.map_or((0, 0), Link::received);
        Progress { last_seq, cursor, last_ver, term, acked, n, link }
    }

    fn finish(&mut self, mut effects: Effects) -> Effects {
        let progress = self.progress();
        if effects.rows.is_empty() {
            // A frame without anything new is acknowledged, too.
            self.saved = self.steps.amend(progress).unwrap_or(self.saved);
        } else {
            self.steps.finish(&mut effects, progress);
        }
        effects
    }

    #[must_use]
    pub fn row(&self) -> &LeafNodeRow {
        &self.row
    }

    #[must_use]
    pub fn rules(&self) -> Option<&Rules> {
        self.rules.as_ref()
    }

    #[must_use]
    pub fn note(&self, key: &Key) -> Option<&Note> {
        self.notes.get(key)
    }

    /// Returns the changes without a decision: their number, and the bytes that they take.
    #[must_use]
    pub fn outbox(&self) -> (usize, usize) {
        (self.outbox.len(), self.outbox_bytes)
    }

    /// Returns the last live change of a key.
    #[must_use]
    pub fn pending(&self, key: &Key) -> Option<(u64, &Entry)> {
        let seq = *self.live.get(key)?.last()?;
        self.outbox.get(&seq).map(|entry| (seq, entry))
    }

    /// Whether there is a link, established or not.
    #[must_use]
    pub fn has_link(&self) -> bool {
        self.link.is_some()
    }

    /// Whether WELCOME has been received on the current link.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.link.as_ref().is_some_and(Link::is_welcome)
    }

    /// Returns the reason why the last link has ended, until another one is established.
    #[must_use]
    pub fn ended(&self) -> Option<&LinkEnd> {
        self.ended.as_ref()
    }

    /// Returns why there is no connection with the root.
    #[must_use]
    pub fn unreachable(&self) -> Option<&str> {
        self.unreachable.as_deref()
    }

    /// Returns the change that is larger than the root accepts, if one holds up the others: its key, the bytes of its frame,
    /// and the most bytes of a frame.
    #[must_use]
    pub fn too_large(&self) -> Option<(&Key, usize, usize)> {
        let entry = self.outbox.get(&self.link.as_ref()?.too_large?)?;
        let value = entry.value.as_ref().map_or(0, Bytes::len);
        Some((&entry.key, frame_bytes(&entry.key, value), self.frame_bytes_max))
    }

    /// Returns the number that the next RECORDS must have.
    #[cfg(test)]
    pub(super) fn next_n(&self) -> u64 {
        self.link.as_ref().map_or(0, |link| link.received_n + 1)
    }

    #[must_use]
    pub fn conflicts(&self) -> &ConflictLog {
        &self.conflicts
    }
}

/// Returns the most bytes of a frame with one change.
fn frame_bytes(key: &Key, value_bytes: usize) -> usize {
    value_bytes.saturating_add(key.as_bytes().len()).saturating_add(FRAME_OVERHEAD_BYTES)
}

fn size(entry: &Entry) -> usize {
    let value = entry.value.as_ref().map_or(0, Bytes::len);
    value.saturating_add(entry.key.as_bytes().len()).saturating_add(ENTRY_OVERHEAD_BYTES)
}

#[cfg(test)]
mod tests;
