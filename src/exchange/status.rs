//! What a node shows of itself: `exchange status`, `exchange key`, metrics and the admin page.

use crate::protocol::Key;

use super::effects::{Cause, LinkEnd, too_large_text};
use super::leaf::Leaf;
use super::names::{Mutex, Name};
use super::root::{LeafState, Root};
use super::row::Counts;

/// The code of the end of a link without a cause of either node.
const UNREACHABLE: &str = "unreachable";

/// The state of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootStatus {
    pub exchange: Name,
    pub ver: u64,
    /// Records with a value.
    pub records: usize,
    pub tombstones: usize,
    pub conflicts: usize,
    pub leaves: Vec<LeafStatus>,
}

/// What a root knows of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafStatus {
    pub name: Name,
    /// Whether it has ever been linked.
    pub has_joined: bool,
    /// The time of the leaf's last frame since the process started.
    pub heard_ms: Option<u64>,
    /// Versions that the leaf has not committed; 0 if no other one concerns it.
    pub behind: u64,
    /// Changes of the leaf that are not judged, if a link is established: no more than this.
    pub unjudged: Option<u64>,
    /// Verdicts that the leaf has not committed.
    pub verdicts: usize,
    pub conflicts: usize,
    pub accepted: u64,
    pub refused: u64,
    /// Whether the root has no room for its next change.
    pub is_blocked: bool,
    /// Whether the root or the leaf has keys of its store to take over, or records to remove.
    pub is_busy: bool,
}

/// The state of a leaf itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnStatus {
    pub exchange: Name,
    pub name: Name,
    pub is_linked: bool,
    /// Whether the leaf has all records up to the root's last reported version, and all verdicts.
    pub is_synchronised: bool,
    /// The reason why the last link has ended, or none can be established, until one is and, if it was
    /// [`Blocked`](LinkEnd::is_blocked), until a frame is applied; or why the next change cannot be sent.
    pub ended: Option<LinkEnd>,
    pub cursor: u64,
    pub is_resync: bool,
    /// Changes without a verdict.
    pub outbox: usize,
    pub outbox_bytes: usize,
    pub counts: Counts,
    pub conflicts: usize,
}

/// What a node knows of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStatus {
    pub state: KeyState,
    /// The version of the root's record; 0 if there is none.
    pub ver: u64,
    pub mutex: Mutex,
    /// At the root: the leaf that made the record, `None` for the root itself.
    pub owner: Option<Name>,
    /// At a leaf: the mutex of the last change without a verdict.
    pub pending: Option<Mutex>,
}

/// The states of the data in an exchange (S13), as far as one node can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// No rule has a pattern for the key.
    Local,
    /// The key takes part, and there is neither a record nor a change.
    Absent,
    /// The node has what the root holds.
    Synchronised,
    /// A change waits for the root.
    Proposed,
    /// The root has committed a change that a leaf has not received.
    Captured,
}

impl Root {
    #[must_use]
    pub fn status(&self) -> RootStatus {
        self.status_after(None, usize::MAX)
    }

    /// Returns the state with at most `max` leaves, those after a name: the leaves of a root can be too many for one
    /// step.
    #[must_use]
    pub fn status_after(&self, last: Option<&Name>, max: usize) -> RootStatus {
        let expected = self.expected_after(last).take(max).map(LeafStatus::expected);
        let mut leaves: Vec<_> =
            self.leaves_after(last).take(max).map(|leaf| self.leaf_status(&leaf)).collect();
        leaves.extend(expected);
        leaves.sort_by(|one, other| one.name.cmp(&other.name));
        leaves.truncate(max);
        self.status_with(leaves)
    }

    /// Returns the state with one leaf; `None` if there is no such leaf.
    #[must_use]
    pub fn status_of(&self, name: &Name) -> Option<RootStatus> {
        let known = self.leaf(name).map(|leaf| self.leaf_status(&leaf));
        let leaf = known.or_else(|| self.is_expected(name).then(|| LeafStatus::expected(name)))?;
        Some(self.status_with(vec![leaf]))
    }

    fn leaf_status(&self, leaf: &LeafState<'_>) -> LeafStatus {
        LeafStatus {
            name: leaf.name.clone(),
            has_joined: leaf.row.store.is_some(),
            heard_ms: leaf.heard_ms,
            behind: if leaf.has_all { 0 } else { self.ver().saturating_sub(leaf.row.cursor) },
            unjudged: leaf.unjudged,
            verdicts: leaf.verdicts,
            conflicts: self.conflicts().of_leaf(leaf.name),
            accepted: leaf.row.accepted,
            refused: leaf.row.refused,
            is_blocked: leaf.is_blocked,
            is_busy: leaf.is_busy,
        }
    }

    fn status_with(&self, leaves: Vec<LeafStatus>) -> RootStatus {
        let (identity, records, tombstones) = self.summary();
        RootStatus {
            exchange: identity.exchange.clone(),
            ver: self.ver(),
            records: records.saturating_sub(tombstones),
            tombstones,
            conflicts: self.conflicts().len(),
            leaves,
        }
    }

    #[must_use]
    pub fn key_status(&self, key: &Key) -> KeyStatus {
        let record = self.record(key);
        let ver = record.map_or(0, |record| record.ver);
        let is_behind = |leaf: &LeafState<'_>| leaf.row.cursor < ver;
        let state = match (self.rules().find(key), record) {
            (None, _) => KeyState::Local,
            (Some(_), None) => KeyState::Absent,
            (Some(rule), Some(_)) => {
                let mut behind = self.leaves_after(None).filter(is_behind);
                let is_captured = behind.any(|leaf| rule.concerns(leaf.name));
                if is_captured { KeyState::Captured } else { KeyState::Synchronised }
            }
        };
        KeyStatus {
            state,
            ver,
            mutex: record.map_or(Mutex::NIL, |record| record.mutex),
            owner: record.and_then(|record| record.owner.clone()),
            pending: None,
        }
    }
}

impl LeafStatus {
    /// Returns the state of a leaf that may join and has never come.
    fn expected(name: &Name) -> Self {
        Self {
            name: name.clone(),
            has_joined: false,
            heard_ms: None,
            behind: 0,
            unjudged: None,
            verdicts: 0,
            conflicts: 0,
            accepted: 0,
            refused: 0,
            is_blocked: false,
            is_busy: false,
        }
    }

    /// Whether a link is established.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.unjudged.is_some()
    }

    /// Whether the leaf has all records and all verdicts, and has reported no other change.
    #[must_use]
    pub fn is_synchronised(&self) -> bool {
        self.behind == 0 && self.unjudged == Some(0) && self.verdicts == 0 && !self.is_busy
    }
}

impl Leaf {
    #[must_use]
    pub fn status(&self) -> OwnStatus {
        let row = self.row();
        let (outbox, outbox_bytes) = self.outbox();
        let too_large = self.too_large().map(|(key, bytes, bytes_max)| LinkEnd {
            code: Cause::Blocked.as_str().to_owned(),
            text: too_large_text(key, bytes, bytes_max),
        });
        let unreachable =
            self.unreachable().map(|text| LinkEnd { code: UNREACHABLE.to_owned(), text: text.to_owned() });
        OwnStatus {
            exchange: row.identity.exchange.clone(),
            name: row.identity.node.clone(),
            is_linked: self.is_linked(),
            is_synchronised: self.is_linked() && outbox == 0 && !self.is_busy() && !self.is_behind(),
            ended: too_large.or(unreachable).or_else(|| self.ended().cloned()),
            cursor: row.cursor,
            is_resync: row.resync.is_some(),
            outbox,
            outbox_bytes,
            counts: row.counts,
            conflicts: self.conflicts().len(),
        }
    }

    #[must_use]
    pub fn key_status(&self, key: &Key) -> KeyStatus {
        let (note, pending) = (self.note(key), self.pending(key));
        let state = match (note, pending) {
            _ if !self.concerns(key) => KeyState::Local,
            (_, Some(_)) => KeyState::Proposed,
            (Some(_), None) => KeyState::Synchronised,
            (None, None) => KeyState::Absent,
        };
        KeyStatus {
            state,
            ver: note.map_or(0, |note| note.ver),
            mutex: note.map_or(Mutex::NIL, |note| note.mutex),
            owner: None,
            pending: pending.map(|(_, entry)| entry.mutex),
        }
    }
}
