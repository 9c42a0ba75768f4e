//! Replication between a root store and its leaves, which are offline at times: a pure state machine.
//!
//! The root decides in the order of its commits. A leaf shows its own changes at once, proposes them, and steps back
//! where the root decides otherwise. Nothing is lost silently: each change of a leaf gets a decision.

pub mod conflict_log;
mod digest;
pub mod effects;
mod elements;
#[cfg(test)]
mod explorer;
pub mod fingerprint;
pub mod frame;
#[cfg(test)]
mod generators;
pub mod leaf;
pub mod names;
pub mod root;
pub mod row;
mod rows;
pub mod rules;
pub mod status;
mod steps;
#[cfg(test)]
mod testbed;

use bytes::Bytes;

use crate::protocol::Key;

use conflict_log::ConflictLog;
use effects::{Effects, Values};
use frame::{Content, LinkFrame};
use leaf::{ChangeError, Leaf};
use names::Name;
use root::Root;
use row::{Row, RowId};

/// The version of this software, for the log of the other side.
const SOFTWARE: &str = env!("CARGO_PKG_VERSION");

/// One node of an exchange, for a service that does not distinguish them.
///
/// Each `handle_*` is one step. The rows and values of its [`Effects`] belong to one commit group, together with the
/// change that caused it; `handle_saved` reports that the group is committed. `poll_outgoing` returns only frames whose
/// causes are committed. `now_ms` is a clock that goes on over restarts.
#[derive(Clone, Debug)]
pub enum Exchange {
    Root(Box<Root>),
    Leaf(Box<Leaf>),
}

/// The other side of a link, as the service has authenticated it.
#[derive(Clone, Copy, Debug)]
pub enum LinkPeer<'a> {
    Root,
    /// The name in the topic, and the identity as the service encodes it.
    Leaf(&'a Name, &'a Bytes),
}

/// A frame to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The leaf at the other end, or this leaf.
    pub leaf: Name,
    /// The connection that it is for: the link of [`effects::Event::Linked`] or [`effects::Event::Refused`].
    pub link: u64,
    pub payload: Bytes,
}

impl Exchange {
    /// Puts a row back: while loading, in the order of the table, or after a failed commit, in reverse order.
    pub fn restore(&mut self, id: RowId, row: Option<Row>) {
        match self {
            Self::Root(root) => root.restore(id, row),
            Self::Leaf(leaf) => leaf.restore(id, row),
        }
    }

    /// Returns whether a client may change a key; `bytes` is the length of the value.
    ///
    /// # Errors
    /// [`ChangeError`]: the request is refused before it changes the store.
    pub fn check_change(&self, key: &Key, bytes: usize) -> Result<(), ChangeError> {
        match self {
            Self::Root(_) => Ok(()),
            Self::Leaf(leaf) => leaf.check_change(key, bytes),
        }
    }

    /// Whether the node knows which keys take part: a leaf gets its rules with its first link.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        match self {
            Self::Root(_) => true,
            Self::Leaf(leaf) => leaf.rules().is_some(),
        }
    }

    /// Whether `handle_change` must also be called for keys that no rule concerns, because they may have left the rules.
    #[must_use]
    pub fn has_leftovers(&self) -> bool {
        match self {
            Self::Root(root) => root.has_leftovers(),
            Self::Leaf(leaf) => leaf.has_leftovers(),
        }
    }

    /// Records a change that a client has made in the store; `None` deletes the key.
    pub fn handle_change(&mut self, key: &Key, content: Option<&Content>, now_ms: u64) -> Effects {
        match self {
            Self::Root(root) => root.handle_change(key, content),
            Self::Leaf(leaf) => leaf.handle_change(key, content, now_ms),
        }
    }

    /// Whether this is a leaf without a link that has a change of the key for its root.
    #[must_use]
    pub fn is_held_up(&self, key: &Key) -> bool {
        matches!(self, Self::Leaf(leaf) if !leaf.is_linked() && leaf.pending(key).is_some())
    }

    pub fn handle_expired(&mut self, key: &Key, now_ms: u64) -> Effects {
        match self {
            Self::Root(root) => root.handle_expired(key),
            Self::Leaf(leaf) => leaf.handle_expired(key, now_ms),
        }
    }

    /// Handles the payload of a message of the other side. A malformed one ends the link.
    pub fn handle_frame(
        &mut self,
        peer: LinkPeer<'_>,
        payload: &Bytes,
        now_ms: u64,
        values: &dyn Values,
    ) -> Effects {
        match (self, peer, LinkFrame::decode(payload)) {
            (Self::Root(root), LinkPeer::Leaf(name, principal), Ok(frame)) => {
                root.handle_frame(name, principal, frame, now_ms, values)
            }
            (Self::Root(root), LinkPeer::Leaf(name, principal), Err(_)) => {
                root.handle_malformed(name, principal)
            }
            (Self::Leaf(leaf), LinkPeer::Root, Ok(frame)) => leaf.handle_frame(frame, now_ms, values),
            (Self::Leaf(leaf), LinkPeer::Root, Err(_)) => leaf.handle_malformed(),
            (Self::Root(_), LinkPeer::Root, _) | (Self::Leaf(_), LinkPeer::Leaf(..), _) => Effects::default(),
        }
    }

    /// Handles the payload of a message of a leaf while commits fail: HELLO is refused, the rest is ignored.
    pub fn handle_frame_unsaved(&mut self, peer: LinkPeer<'_>, payload: &Bytes) -> Effects {
        match (self, peer, LinkFrame::decode(payload)) {
            (Self::Root(root), LinkPeer::Leaf(name, principal), Ok(frame)) => {
                root.handle_frame_unsaved(name, principal, &frame)
            }
            _ => Effects::default(),
        }
    }

    /// Reports that the connection of a link is lost; `link` is the id of [`effects::Event::Linked`].
    pub fn handle_lost(&mut self, peer: LinkPeer<'_>, link: u64) {
        match (self, peer) {
            (Self::Root(root), LinkPeer::Leaf(name, _)) => root.handle_lost(name, link),
            (Self::Leaf(leaf), LinkPeer::Root) => leaf.handle_lost(),
            (Self::Root(_), LinkPeer::Root) | (Self::Leaf(_), LinkPeer::Leaf(..)) => {}
        }
    }

    /// Reports that all steps up to this one are committed.
    pub fn handle_saved(&mut self, step: u64) {
        match self {
            Self::Root(root) => root.handle_saved(step),
            Self::Leaf(leaf) => leaf.handle_saved(step),
        }
    }

    /// Reports that a commit has failed and all uncommitted rows are put back with `restore`.
    pub fn handle_commit_failed(&mut self, are_rules_back: bool) -> Effects {
        match self {
            Self::Root(root) => root.handle_commit_failed(are_rules_back),
            Self::Leaf(leaf) => leaf.handle_commit_failed(are_rules_back),
        }
    }

    pub fn handle_timeout(&mut self, now_ms: u64, values: &dyn Values) -> Effects {
        match self {
            Self::Root(root) => root.handle_timeout(now_ms),
            Self::Leaf(leaf) => leaf.handle_timeout(now_ms, values),
        }
    }

    /// Returns the time at which `handle_timeout` is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        match self {
            Self::Root(root) => root.poll_timeout(),
            Self::Leaf(leaf) => leaf.poll_timeout(),
        }
    }

    /// Returns the next frame to send. The caller polls until there is none.
    pub fn poll_outgoing(&mut self, now_ms: u64, values: &dyn Values) -> Option<Outgoing> {
        let (leaf, frame) = match self {
            Self::Root(root) => root.poll_outgoing(now_ms, values)?,
            Self::Leaf(leaf) => (leaf.row().identity.node.clone(), leaf.poll_outgoing(SOFTWARE, now_ms)?),
        };
        Some(Outgoing { leaf, link: frame.link(), payload: frame.encode() })
    }

    /// Whether the service has to call `handle_found` for each key of its store, then `handle_walked`.
    #[must_use]
    pub fn is_walk_due(&self) -> bool {
        match self {
            Self::Root(root) => root.is_walk_due(),
            Self::Leaf(leaf) => leaf.is_walk_due(),
        }
    }

    /// Takes a key of the store over that the exchange does not have yet.
    pub fn handle_found(
        &mut self,
        key: &Key,
        content: &Content,
        now_ms: u64,
        values: &dyn Values,
    ) -> Effects {
        match self {
            Self::Root(root) => root.handle_found(key, content),
            Self::Leaf(leaf) => leaf.handle_found(key, content, now_ms, values),
        }
    }

    /// Reports that `handle_found` was called for each key of the store.
    pub fn handle_walked(&mut self) -> Effects {
        match self {
            Self::Root(root) => root.handle_walked(),
            Self::Leaf(leaf) => leaf.handle_walked(),
        }
    }

    /// Whether the key takes part at this node: at a leaf, the rule also concerns the leaf.
    #[must_use]
    pub fn concerns(&self, key: &Key) -> bool {
        match self {
            Self::Root(root) => root.concerns(key),
            Self::Leaf(leaf) => leaf.concerns(key),
        }
    }

    #[must_use]
    pub fn conflicts(&self) -> &ConflictLog {
        match self {
            Self::Root(root) => root.conflicts(),
            Self::Leaf(leaf) => leaf.conflicts(),
        }
    }

    /// Returns the number of conflicts that made room for others.
    #[must_use]
    pub fn dropped_conflicts(&self) -> u64 {
        match self {
            Self::Root(root) => root.dropped_conflicts(),
            Self::Leaf(leaf) => leaf.row().dropped_conflicts,
        }
    }

    /// Removes a conflict that an operator has dealt with.
    pub fn clear_conflict(&mut self, id: u64) -> Effects {
        match self {
            Self::Root(root) => root.clear_conflict(id),
            Self::Leaf(leaf) => leaf.clear_conflict(id),
        }
    }

    /// Returns the rows that a new node begins with.
    #[must_use]
    pub fn first_rows(&self) -> Vec<(RowId, Row)> {
        match self {
            Self::Root(root) => root.first_rows(),
            Self::Leaf(leaf) => leaf.first_rows(),
        }
    }

    /// Returns the current row of an address: the one that must be on disk once all steps are committed.
    #[must_use]
    pub fn row(&self, id: &RowId) -> Option<Row> {
        match self {
            Self::Root(root) => root.row_of(id),
            Self::Leaf(leaf) => leaf.row_of(id),
        }
    }

    /// Returns at most `max` of the current rows after an address, in the order of [`RowId`]. `restore` of all of them
    /// makes the same node.
    #[must_use]
    pub fn rows_from(&self, last: Option<&RowId>, max: usize) -> Vec<(RowId, Row)> {
        match self {
            Self::Root(root) => root.rows_from(last, max),
            Self::Leaf(leaf) => leaf.rows_from(last, max),
        }
    }

    /// Whether both nodes are the same after a restart.
    #[cfg(test)]
    fn is_same_on_disk(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Root(root), Self::Root(other)) => root.on_disk() == other.on_disk(),
            (Self::Leaf(leaf), Self::Leaf(other)) => leaf.on_disk() == other.on_disk(),
            _ => false,
        }
    }
}
