//! Groups: what one commit makes durable.

use super::record::Record;
use crate::store::Version;

/// The records of one commit.
///
/// Requests that only read are a part of it by its number alone: they are answered when the group is committed. A group
/// without records confirms them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// In their order, each with the sequence number of its step. Records of one step stay in one transaction.
    pub records: Vec<(u64, Record)>,
    /// The sequence number of the last step: at least those of all records.
    pub sequence: u64,
    /// The version above which keys without a record continue after a crash. etcd has another one.
    pub ceiling: Version,
}
