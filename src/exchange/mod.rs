//! Replication between a root store and its leaves, which are offline at times: a pure state machine.
//!
//! The root decides in the order of its commits. A leaf shows its own changes at once, proposes them, and steps back
//! where the root decides otherwise. Nothing is lost silently: each change of a leaf gets a verdict.

pub mod conflict;
pub mod effects;
mod elements;
#[cfg(test)]
mod explorer;
pub mod frame;
pub mod leaf;
pub mod names;
pub mod root;
pub mod row;
pub mod rules;
pub mod status;

use bytes::Bytes;

use crate::protocol::Key;

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
pub enum Peer<'a> {
    Root,
    /// The name in the topic, and the identity as the service encodes it.
    Leaf(&'a Name, &'a Bytes),
}

/// A frame to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The leaf at the other end, or this leaf.
    pub leaf: Name,
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

    /// Records a change that a client has made in the store; `None` deletes the key.
    pub fn handle_change(&mut self, key: &Key, content: Option<&Content>, now_ms: u64) -> Effects {
        match self {
            Self::Root(root) => root.handle_change(key, content.is_none()),
            Self::Leaf(leaf) => leaf.handle_change(key, content, now_ms),
        }
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
        peer: Peer<'_>,
        payload: &Bytes,
        now_ms: u64,
        values: &dyn Values,
    ) -> Effects {
        match (self, peer, LinkFrame::decode(payload)) {
            (Self::Root(root), Peer::Leaf(name, principal), Ok(frame)) => {
                root.handle_frame(name, principal, frame, now_ms, values)
            }
            (Self::Root(root), Peer::Leaf(name, _), Err(_)) => root.handle_malformed(name),
            (Self::Leaf(leaf), Peer::Root, Ok(frame)) => leaf.handle_frame(frame, now_ms, values),
            (Self::Leaf(leaf), Peer::Root, Err(_)) => leaf.handle_malformed(),
            (Self::Root(_), Peer::Root, _) | (Self::Leaf(_), Peer::Leaf(..), _) => Effects::default(),
        }
    }

    /// Reports that the connection of a link is lost; `link` is the id of [`effects::Event::Linked`].
    pub fn handle_lost(&mut self, peer: Peer<'_>, link: u64) {
        match (self, peer) {
            (Self::Root(root), Peer::Leaf(name, _)) => root.handle_lost(name, link),
            (Self::Leaf(leaf), Peer::Root) => leaf.handle_lost(),
            (Self::Root(_), Peer::Root) | (Self::Leaf(_), Peer::Leaf(..)) => {}
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
    pub fn handle_commit_failed(&mut self) -> Effects {
        match self {
            Self::Root(root) => root.handle_commit_failed(),
            Self::Leaf(leaf) => leaf.handle_commit_failed(),
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
        Some(Outgoing { leaf, payload: frame.encode() })
    }
}
