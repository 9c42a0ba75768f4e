//! What a step of a node asks of the service.

use crate::protocol::Key;

use super::frame::Content;
use super::names::Name;
use super::row::{Conflict, Row, RowChange, RowId};

/// The results of one step. Rows and values belong to one commit group, in their order (S4, S5).
///
/// The service reports the step to `handle_saved` once the group is committed: no frame that depends on it leaves
/// before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Effects {
    /// The number of the step; 0 if there is nothing to commit.
    pub step: u64,
    pub rows: Vec<RowChange>,
    /// Values to write to the store, without conditions.
    pub values: Vec<ValueChange>,
    pub events: Vec<Event>,
}

/// A value that another node decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueChange {
    pub key: Key,
    /// `None`: the key is deleted.
    pub content: Option<Content>,
}

/// Something to report, or to do with a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A leaf joined for the first time.
    Joined { leaf: Name },
    /// The link is established.
    Linked { leaf: Name, link: u64 },
    /// The link has ended. The root sends REFUSED; the leaf closes the connection.
    Ended { leaf: Name, link: u64, cause: Cause },
    /// The root has refused or ended the link of this leaf. Reported again if the reason changes, or after a link.
    EndedByRoot { leaf: Name, end: LinkEnd },
    /// A HELLO was refused; the frame follows with `poll_outgoing`.
    Refused { leaf: Name, link: u64, cause: Cause },
    /// The leaf's records were not the root's: it does a resync.
    Diverged { leaf: Name },
    /// A change of the leaf is larger than a frame that the root accepts: it waits, and all later ones do.
    TooLarge { leaf: Name, key: Key, bytes: usize, bytes_max: usize },
    /// A change lost.
    Conflict { id: u64, conflict: Conflict },
}

/// The reason why a link is refused or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// No common version of the frames.
    Version,
    /// The other node takes part in another exchange.
    OtherExchange,
    /// The name of the leaf is not the one of its topic.
    OtherLeaf,
    /// The leaf is neither known nor admitted.
    UnknownLeaf,
    /// Another data folder uses the name of this leaf.
    OtherStore,
    /// Another identity uses the name of this leaf.
    OtherPrincipal,
    /// Another process uses the data folder of this leaf now.
    SecondRun,
    /// The root is not the one that the leaf has joined.
    OtherRoot,
    /// There is no room for another leaf.
    TooManyLeaves,
    /// The identity has as many leaves as may join by themselves.
    TooManyOfIdentity,
    /// The bytes are no frame.
    Malformed,
    /// The frame is not expected now.
    Unexpected,
    /// Frames are missing, repeated or out of order.
    Gap,
    /// More is unacknowledged than allowed.
    Window,
    /// The store has no room for the change.
    Blocked,
    /// No progress within [`STALL_MS`](super::frame::STALL_MS).
    Stalled,
    /// A commit failed.
    NotCommitted,
    /// The rules have changed.
    RulesChanged,
    /// A newer link replaces this one.
    Replaced,
    /// The leaf was dropped.
    Dropped,
    /// An operator has asked for a resync.
    Resync,
    /// The records of the root and of the leaf differ.
    Diverged,
    /// A tombstone that the leaf has not received had to make room.
    Purged,
}

/// The end of a link at a leaf.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LinkEnd {
    /// [`Cause::as_str`], of the root if it has refused the link; or `unreachable`.
    pub code: String,
    pub text: String,
}

/// The values of the store.
pub trait Values {
    /// Returns the value of a key with the time that it has left.
    fn content(&self, key: &Key) -> Option<Content>;

    /// Whether the limits of the store let another node's value in.
    fn has_room(&self, key: &Key, content: &Content) -> bool;
}

impl Effects {
    /// Notes that a row changes, unless it does not.
    pub(super) fn row(&mut self, id: RowId, before: Option<Row>, after: Option<Row>) {
        if before != after {
            self.rows.push(RowChange { id, before, after });
        }
    }

    pub(super) fn value(&mut self, key: Key, content: Option<Content>) {
        self.values.push(ValueChange { key, content });
    }
}

impl Cause {
    /// Returns the code of REFUSED, of events and of metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::OtherExchange => "other-exchange",
            Self::OtherLeaf => "other-leaf",
            Self::UnknownLeaf => "unknown-leaf",
            Self::OtherStore => "other-store",
            Self::OtherPrincipal => "other-principal",
            Self::SecondRun => "second-run",
            Self::OtherRoot => "other-root",
            Self::TooManyLeaves => "too-many-leaves",
            Self::TooManyOfIdentity => "too-many-of-identity",
            Self::Malformed => "malformed",
            Self::Unexpected => "unexpected",
            Self::Gap => "gap",
            Self::Window => "window",
            Self::Blocked => "blocked",
            Self::Stalled => "stalled",
            Self::NotCommitted => "not-committed",
            Self::RulesChanged => "rules-changed",
            Self::Replaced => "replaced",
            Self::Dropped => "dropped",
            Self::Resync => "resync",
            Self::Diverged => "diverged",
            Self::Purged => "purged",
        }
    }

    /// Returns the reason in words, for events and for the other side.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Version => "the two programs have no common version of the exchange; update the older one",
            Self::OtherExchange => "the other node takes part in another exchange",
            Self::OtherLeaf => "the name of the leaf is not the one of its topic",
            Self::UnknownLeaf => "the leaf is neither known nor admitted",
            Self::OtherStore => "another data folder has this name",
            Self::OtherPrincipal => "another client identity has this name",
            Self::SecondRun => "another process with a copy of this data folder is linked",
            Self::OtherRoot => {
                "the root has another store than the one joined; to join it: mqkv exchange resync --new-root"
            }
            Self::TooManyLeaves => "the root has no room for another leaf",
            Self::TooManyOfIdentity => "this client identity has as many leaves as may join unasked",
            Self::Malformed => "a frame cannot be decoded",
            Self::Unexpected => "a frame was not expected",
            Self::Gap => "frames are missing, repeated or out of order",
            Self::Window => "more is unacknowledged than allowed",
            Self::Blocked => "the store has no room for a change",
            Self::Stalled => "the other node has made no progress for 15 seconds",
            Self::NotCommitted => "a commit failed",
            Self::RulesChanged => "the rules have changed",
            Self::Replaced => "a newer link replaces this one",
            Self::Dropped => "the leaf was dropped",
            Self::Resync => "an operator has asked for a resync",
            Self::Diverged => "the records of the root and of the leaf differ",
            Self::Purged => "a deletion that the leaf has not received had to make room",
        }
    }
}

/// Returns why a change cannot be sent, for operators.
#[must_use]
pub fn too_large_text(key: &Key, bytes: usize, bytes_max: usize) -> String {
    const SHOWN_CHARS_MAX: usize = 100;
    let key: String = String::from_utf8_lossy(key.as_bytes()).chars().take(SHOWN_CHARS_MAX).collect();
    format!("a change takes {bytes} bytes in a packet, the root accepts {bytes_max}: {key}")
}

impl LinkEnd {
    /// Whether this store or the root's has no room: the exchange stands, and nothing is skipped.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.code == Cause::Blocked.as_str()
    }
}
