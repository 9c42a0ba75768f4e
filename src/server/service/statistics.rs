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
    /// `None` without a disk.
    pub disk: Option<DiskStatistics>,
    /// `None` unless the store is in a cluster.
    pub cluster: Option<ClusterStatistics>,
}

impl ServiceStatistics {
    /// Returns the sum of the statistics of two shards.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let cluster = self.cluster.zip(other.cluster).map(|(one, other)| ClusterStatistics {
            is_serving: one.is_serving || other.is_serving,
            is_short_of_room: one.is_short_of_room || other.is_short_of_room,
        });
        Self {
            store: self.store.plus(other.store),
            waiting_for_commit: self.waiting_for_commit.saturating_add(other.waiting_for_commit),
            recorded_bytes: self.recorded_bytes.saturating_add(other.recorded_bytes),
            recorded_bytes_max: self.recorded_bytes_max.saturating_add(other.recorded_bytes_max),
            // Only a store without shards has a disk.
            disk: self.disk.or(other.disk),
            cluster,
        }
    }
}

/// Statistics of the storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStatistics {
    /// Whether there is no room for the reserve, so that keys can only be deleted.
    pub is_short_of_room: bool,
}
