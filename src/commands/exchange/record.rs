//! Records of `exchange`.

use bytes::Bytes;

use crate::protocol::Key;
use crate::protocol::exchange::{ConflictReport, KeyReport, LeafState, Lost, OwnReport, RootReport};

/// A record of `exchange`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeRecord {
    /// The state of a root.
    Root {
        /// Whether only one leaf was asked for.
        is_one_leaf: bool,
        /// The fewest leaves that must be synchronised.
        leaves_min: u64,
        report: RootReport,
    },
    /// The state of a leaf itself.
    Leaf(OwnReport),
    NoLeaf {
        name: String,
    },
    Key {
        key: Key,
        report: KeyReport,
    },
    Conflict {
        conflict: ConflictReport,
        /// Milliseconds since the Unix epoch.
        now_ms: u64,
    },
    NoConflict {
        id: u64,
    },
    Value {
        id: u64,
        /// The bytes that lost, or what lost without any.
        value: Result<Bytes, Lost>,
    },
    Cleared {
        count: u64,
    },
    LeafAdded {
        name: String,
        /// Whether it could join before.
        is_known: bool,
    },
    LeafDropped {
        name: String,
        is_known: bool,
    },
    Resync {
        /// `None`: all leaves of a root, or the leaf itself.
        name: Option<String>,
        /// The number of leaves; `None`: there is no leaf of this name.
        count: Option<u64>,
        /// Whether the leaf leaves its root, to join a new one.
        is_new_root: bool,
    },
    Reconnect {
        /// Whether the leaf had no link.
        is_needed: bool,
    },
}

impl ExchangeRecord {
    /// Returns whether the answer is no.
    #[must_use]
    pub fn is_no(&self) -> bool {
        match self {
            Self::Root { report, leaves_min, .. } => {
                !report.is_synchronised() || present(report) < *leaves_min
            }
            Self::Leaf(report) => !report.is_synchronised,
            Self::NoLeaf { .. } | Self::NoConflict { .. } => true,
            Self::Value { value, .. } => value.is_err(),
            Self::LeafDropped { is_known, .. } => !is_known,
            Self::Resync { count, .. } => count.is_none(),
            Self::Key { .. }
            | Self::Conflict { .. }
            | Self::Cleared { .. }
            | Self::LeafAdded { .. }
            | Self::Reconnect { .. } => false,
        }
    }
}

/// Returns the number of leaves of a report that have ever been linked.
pub fn present(report: &RootReport) -> u64 {
    let leaves = report.leaves.iter().filter(|leaf| leaf.state != LeafState::Expected);
    u64::try_from(leaves.count()).unwrap_or(u64::MAX)
}
