//! Rows that an exchange keeps on disk, in the same commit group as the values (§4).
//!
//! The state of a node is its rows: loading and undoing both put rows back.

use bytes::Bytes;

use crate::protocol::Key;

use super::frame::{Content, Proposed, Reason};
use super::names::{ChangeId, Name, Serial};
use super::rules::Rules;

/// The address of a row in the table `notes`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowId {
    Node,
    Rules,
    Terms,
    Key(Key),
    Entry(u64),
    Leaf(Name),
    Decision(Name, u64),
    Conflict(u64),
}

/// A row of the table `notes`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Row {
    Root(RootRow),
    LeafNode(LeafNodeRow),
    Rules(Rules),
    Terms(Vec<Term>),
    Record(Record),
    Note(Note),
    Entry(Entry),
    Leaf(LeafRow),
    Decision(Decision),
    Conflict(Conflict),
}

/// A change of a row, with the row before it for the rollback if the change cannot be committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RowChange {
    pub id: RowId,
    pub before: Option<Row>,
    pub after: Option<Row>,
}

/// The identity of a node and of its data folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub exchange: Name,
    pub node: Name,
    /// Random, made with the folder.
    pub store: u64,
}

/// The root itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RootRow {
    pub identity: Identity,
    /// The last version given out.
    pub ver: u64,
    /// Tombstones up to this version are gone.
    pub purged: u64,
    /// The version at which the rules were replaced. A leaf with an older cursor may have missed changes of keys that
    /// have left the rules and come back.
    pub rules_ver: u64,
    /// Whether records of keys that have left the rules are still to be removed.
    pub is_sweep_due: bool,
    /// Whether keys of the store that have no record yet are still to be taken over.
    pub is_walk_due: bool,
    /// The number of the last conflict, which may be gone.
    pub last_conflict: u64,
    /// The number of conflicts that made room for others.
    pub dropped_conflicts: u64,
}

/// The run of the root that made the versions from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    pub first: u64,
    pub run: u64,
}

/// What the root holds of a key, beside the value in the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    pub ver: u64,
    pub change_id: ChangeId,
    /// The leaf that made it; `None`: the root.
    pub owner: Option<Name>,
    pub kind: RecordKind,
}

/// What a record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// A value without expiry.
    Lasting,
    /// A value that each node removes at its own time.
    Expiring,
    /// The key is deleted, or its value has expired.
    Tombstone,
}

/// The most earlier streams of a leaf that the root knows.
pub const EARLIER_STREAMS_MAX: usize = 16;

/// What the root knows of a leaf.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct LeafRow {
    /// The identity of the leaf's data folder; `None` until its first HELLO.
    pub store: Option<u64>,
    /// The identity that the listener authenticated, as the service encodes it.
    pub principal: Bytes,
    pub stream: u64,
    /// The streams before it, at most [`EARLIER_STREAMS_MAX`]: a leaf that comes with one of them was restored from a backup.
    pub earlier_streams: Vec<u64>,
    /// The last change of the stream that is decided.
    pub applied: u64,
    /// The change id of the change `applied`.
    pub change_id: ChangeId,
    /// The last change of which the decision is dropped.
    pub pruned: u64,
    /// The leaf has committed all records up to this version.
    pub cursor: u64,
    pub accepted: u64,
    pub refused: u64,
    /// Whether an operator has asked for a resync that the leaf has not begun.
    pub is_resync_due: bool,
}

/// The root's answer to a change, until the leaf has committed it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    pub key: Key,
    /// The root's version after the decision: records up to it are sent before the decision.
    pub at: u64,
    pub kind: DecisionKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecisionKind {
    Accepted { ver: u64 },
    Refused(Reason),
}

/// The leaf itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeafNodeRow {
    pub identity: Identity,
    /// The identity of the root's data folder; `None` before the first WELCOME.
    pub root: Option<u64>,
    /// All records up to this version are applied.
    pub cursor: u64,
    /// The root's last version in the last RECORDS: a record that is missing up to `cursor` was replaced by then.
    pub last_ver: u64,
    /// The run of the root that made the version `last_ver`.
    pub term: u64,
    /// The last change of which the decision is applied.
    pub acked: u64,
    /// The change id of the change `acked`.
    pub acked_change_id: ChangeId,
    pub stream: u64,
    /// The last change of the stream.
    pub last_seq: u64,
    /// Changes up to this one may have been decided in an earlier stream.
    pub again_to: u64,
    /// Changes up to this one may be based on records of a root that the leaf has left.
    pub rejoin_to: u64,
    /// Number of resyncs that were begun. A note of an older epoch has not been named since.
    pub epoch: u32,
    /// The resync that is not complete.
    pub resync: Option<Resync>,
    /// The resync that the next link begins with.
    pub due: Option<ResyncKind>,
    /// Whether keys of the store that the exchange does not have yet are still to be offered.
    pub is_walk_due: bool,
    pub counts: Counts,
    /// The number of the last conflict, which may be gone.
    pub last_conflict: u64,
    /// The number of conflicts that made room for others.
    pub dropped_conflicts: u64,
}

/// A resync until the root has named all its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resync {
    pub horizon: u64,
    pub kind: ResyncKind,
}

/// What becomes of a key that the root does not name in a resync. Of two, the later one includes the earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResyncKind {
    /// The root has deleted it.
    Missed,
    /// The root was restored from a backup: it is deleted, and recorded as a conflict.
    Restored,
    /// The root is a new one: it is offered.
    NewRoot,
}

/// Counters of a leaf's changes: `made = accepted + refused + merged +` those in the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Counts {
    pub made: u64,
    pub accepted: u64,
    pub refused: u64,
    pub merged: u64,
}

/// What a leaf knows of the root's record of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    pub ver: u64,
    pub change_id: ChangeId,
    /// The time when the record's value expires; 0 for a tombstone, [`FOREVER`] without expiry.
    pub until: u64,
    pub epoch: u32,
}

/// The expiry time of a value that does not expire.
pub const FOREVER: u64 = i64::MAX as u64;

/// A change of a leaf that waits for its decision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub key: Key,
    pub serial: Serial,
    /// The id that the root makes of the serial, the key and the value.
    pub change_id: ChangeId,
    pub base: ChangeId,
    pub state: EntryState,
    /// `None`: the key is deleted.
    pub value: Option<Bytes>,
    /// The time when the value expires, or [`FOREVER`].
    pub until: u64,
}

/// What has become of an entry before its decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryState {
    /// The leaf shows it, or a later one that is based on it.
    Live,
    /// A record showed that it was accepted.
    Settled,
    /// A record has replaced it.
    Lost,
    /// It is no change, but a value that went because the root was restored, which the root is to record, too.
    Restored,
}

/// A change that lost (I5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conflict {
    pub key: Key,
    pub leaf: Name,
    pub change_id: ChangeId,
    pub reason: Reason,
    pub lost: LostContent,
    /// The version that won; 0 if there is no record.
    pub winner: u64,
    /// The leaf that made the winner; `None`: the root.
    pub owner: Option<Name>,
    /// The time of the decision in milliseconds.
    pub at_ms: u64,
}

/// The content of a change that lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LostContent {
    Deletion,
    Value(Bytes),
    /// At the root: a value that had expired before the change arrived.
    Expired,
    /// At the root: a value that the leaf has not sent, because it was too large. The conflict at the leaf has it.
    Unsent,
}

impl LostContent {
    #[must_use]
    pub fn of(value: Option<Bytes>) -> Self {
        value.map_or(Self::Deletion, Self::Value)
    }

    /// Returns what is lost if a change of a leaf is refused.
    #[must_use]
    pub fn of_proposed(proposed: &Proposed) -> Self {
        match proposed {
            Proposed::Deletion => Self::Deletion,
            Proposed::Value(content) => Self::Value(content.value.clone()),
            Proposed::Expired(_) => Self::Expired,
            Proposed::Unsent(..) => Self::Unsent,
        }
    }

    /// Returns the bytes that the node has.
    #[must_use]
    pub fn value(&self) -> Option<&Bytes> {
        if let Self::Value(value) = self { Some(value) } else { None }
    }
}

impl RecordKind {
    /// Returns the kind of a record with this value.
    #[must_use]
    pub fn of(content: Option<&Content>) -> Self {
        match content {
            None => Self::Tombstone,
            Some(Content { ttl_ms: None, .. }) => Self::Lasting,
            Some(Content { ttl_ms: Some(_), .. }) => Self::Expiring,
        }
    }
}

impl Content {
    /// Returns the time when the value expires.
    #[must_use]
    pub fn until(&self, now_ms: u64) -> u64 {
        self.ttl_ms.map_or(FOREVER, |ttl_ms| now_ms.saturating_add(ttl_ms).min(FOREVER))
    }

    /// Returns a value with the time that it has left, or `None` if it has expired.
    #[must_use]
    pub fn at(value: &Bytes, until: u64, now_ms: u64) -> Option<Self> {
        let ttl_ms = (until != FOREVER).then(|| until.saturating_sub(now_ms));
        (ttl_ms != Some(0)).then(|| Self { value: value.clone(), ttl_ms })
    }
}

impl Entry {
    /// Returns what the change leaves at a time: its value, or `None` if it deleted the key or the value has expired.
    #[must_use]
    pub fn content(&self, now_ms: u64) -> Option<Content> {
        Content::at(self.value.as_ref()?, self.until, now_ms)
    }

    /// Returns the time until which the key has a value.
    #[must_use]
    pub fn value_until(&self) -> u64 {
        if self.value.is_some() { self.until } else { 0 }
    }
}

mod codec;
#[cfg(test)]
mod tests;
