//! Statistics of a service.

use super::cluster_state::ClusterStatistics;
use crate::store::StoreStatistics;

/// Statistics of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceStatistics {
    pub store: StoreStatistics,
    /// Number of responses and notifications that wait for a commit.
    pub waiting_for_commit: usize,
    /// Memory of the responses for duplicate detection, in bytes, and its limit.
    pub recorded_bytes: usize,
    /// The limit of this memory.
    pub recorded_bytes_max: usize,
    /// Number of these responses that were forgotten for lack of room although their requests may be delivered again.
    pub recorded_forgotten: u64,
    /// `None` without a disk.
    pub disk: Option<DiskStatistics>,
    /// `None` unless the store is in a cluster.
    pub cluster: Option<ClusterStatistics>,
}

/// Statistics of the storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStatistics {
    /// Whether there is no room for the reserve, so that keys can only be deleted.
    pub is_short_of_room: bool,
    /// Whether writes are refused for lack of room: all but deletions, or those of values as long as one that was.
    pub lacks_room: bool,
}
