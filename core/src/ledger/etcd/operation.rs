//! Operations on etcd, as far as the store needs them: what the machines ask for, and what they are given (pure).
//!
//! Keys are those of etcd, with the prefix of the cluster. A revision counts all transactions of etcd that change something.

use std::fmt;

use bytes::Bytes;

/// The most operations of one [`Txn`]: etcd's default limit is 128.
pub const OPERATIONS_MAX: usize = 120;
/// The most bytes of keys and values of one [`Txn`]: etcd's default limit is 1.5 MiB.
pub const TXN_BYTES_MAX: usize = 1024 * 1024;

/// A condition of a [`Txn`]: the key was changed last at this revision. 0: there is no such key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub key: Bytes,
    pub mod_revision: u64,
}

/// A change of a [`Txn`]. Two changes of one transaction must not concern the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Put {
        key: Bytes,
        value: Bytes,
        /// The lease with which the key ends, if any.
        lease: Option<u64>,
    },
    Delete {
        key: Bytes,
    },
    /// Deletes all keys from `from` on and below `to`.
    DeleteRange {
        from: Bytes,
        to: Bytes,
    },
}

/// A transaction: if all conditions hold, all operations are applied; otherwise the keys of `otherwise` are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    pub conditions: Vec<Condition>,
    pub operations: Vec<Operation>,
    pub otherwise: Vec<Bytes>,
}

/// The answer to a [`Txn`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnAnswer {
    /// The revision of etcd after the transaction.
    pub revision: u64,
    pub outcome: TxnOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnOutcome {
    /// The operations were applied, at [`TxnAnswer::revision`] if there were any.
    Applied,
    /// A condition did not hold: the pairs of [`Txn::otherwise`], in its order.
    NotApplied(Vec<Option<Pair>>),
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub key: Bytes,
    pub value: Bytes,
    /// The revision of its last change.
    pub mod_revision: u64,
}

/// A read of the keys from `from` on and below `to`, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRead {
    pub from: Bytes,
    pub to: Bytes,
    /// The most pairs of the answer; 0: all.
    pub limit: u32,
    /// The state at this revision; `None`: the latest one, linearizable.
    pub revision: Option<u64>,
}

impl RangeRead {
    /// Returns the read of one key.
    #[must_use]
    pub fn one(key: Bytes, revision: Option<u64>) -> Self {
        let to = key_after(&key);
        Self { from: key, to, limit: 1, revision }
    }
}

/// The answer to a [`RangeRead`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeAnswer {
    /// The revision of etcd at the read.
    pub revision: u64,
    pub pairs: Vec<Pair>,
    /// The number of pairs after these, which the limit excludes.
    pub more: u64,
}

/// Changes that a watch has received, in the order of their revisions. All changes of one revision come together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchBatch {
    /// The revision of etcd up to which everything has been received.
    pub revision: u64,
    pub events: Vec<WatchEvent>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    pub key: Bytes,
    /// `None`: the key was deleted.
    pub value: Option<Bytes>,
    pub mod_revision: u64,
}

/// Whether etcd has space for more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    #[default]
    Enough,
    /// Most of the quota is in use: values are not written any more, so that everything else works on.
    Low,
    /// etcd takes deletions only, until an operator has made space and has disarmed the alarm.
    Exhausted,
}

/// The size of etcd's database, as the member shows it that has least space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EtcdSize {
    pub space: Space,
    /// The size of the file.
    pub database_bytes: u64,
    /// The part of it that has data.
    pub used_bytes: u64,
    /// `None`: etcd does not report it.
    pub quota_bytes: Option<u64>,
    /// The number of alarms, whatever they are about.
    pub alarms: u32,
}

impl From<Space> for EtcdSize {
    fn from(space: Space) -> Self {
        Self { space, ..Self::default() }
    }
}

/// Why an operation has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdError {
    /// There was no answer, or one that leaves open whether the operation was applied: it must be asked for again.
    Unknown { reason: String },
    /// etcd has reached its quota, and was not changed.
    NoSpace,
    /// The history before this revision is gone: of a watch, or of a read at a revision.
    Compacted { revision: u64 },
    /// etcd has refused the operation for good, and was not changed: permissions, limits, a malformed request.
    Refused { reason: String },
}

impl EtcdError {
    /// Whether the user lacks a permission.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Refused { reason } if reason.ends_with("permission denied"))
    }

    /// Whether etcd takes no requests of this size, or with so many operations.
    #[must_use]
    pub fn is_about_size(&self) -> bool {
        let ends = ["request is too large", "too many operations in txn request"];
        matches!(self, Self::Refused { reason } if ends.iter().any(|end| reason.ends_with(end)))
    }
}

impl fmt::Display for EtcdError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { reason } | Self::Refused { reason } => out.write_str(reason),
            Self::NoSpace => out.write_str("etcd has reached its quota"),
            Self::Compacted { revision } => write!(out, "etcd was compacted up to revision {revision}"),
        }
    }
}

impl std::error::Error for EtcdError {}

/// Returns the next key in the order of bytes.
#[must_use]
pub fn key_after(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

/// Returns the end of the range of all keys with this prefix; empty, which is the end of all keys, if there is none.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let kept = prefix.iter().rposition(|byte| *byte < u8::MAX);
    let mut end = kept.and_then(|last| prefix.get(..=last)).unwrap_or_default().to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_a_prefix_ends_before_the_next_key_that_has_another_one() {
        for (prefix, end) in [(&b"/a/"[..], &b"/a0"[..]), (b"a\xff", b"b"), (b"\xff\xff", b""), (b"", b"")] {
            assert_eq!(prefix_end(prefix), end, "{prefix:?}");
        }
    }
}
