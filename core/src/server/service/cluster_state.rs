//! A service as an instance of its store: whether it serves, and what it knows of the others.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use tokio::sync::Notify;

use super::answered_writes::AnsweredWrites;
use super::removed_versions::RemovedVersions;
use super::settings::recorded_bytes_max;
use crate::server::cluster_key::ClusterKey;
use crate::server::duplicate_detection::DuplicateDetection;
use crate::store::Limits;

/// The longest value in a cluster, in bytes: etcd takes 1.5 MiB with the key and the response.
pub const CLUSTER_VALUE_BYTES_MAX: usize = 1024 * 1024;

/// An instance of a store: it serves or follows. Without etcd it is the only one, and always serves.
#[derive(Debug)]
pub(super) struct ClusterState {
    /// `None` until the instance has joined.
    pub(super) key: Option<ClusterKey>,
    /// Whether clients are known by their ids only, as behind a broker: their watches are registrations in etcd. Other
    /// watches end with the connection, and so with the instance.
    pub(super) has_registrations: bool,
    pub(super) is_serving: bool,
    /// Whether the owner reads the state again, and will serve then.
    pub(super) is_paused: bool,
    /// How often the instance has lost the ownership: what was begun before is not answered.
    pub(super) losses: u64,
    /// The last step of the group under way, if it changes anything, and when it was taken.
    pub(super) under_way: Option<(u64, Instant)>,
    pub(super) answered: AnsweredWrites,
    /// Of the keys that were removed since the state was read.
    pub(super) removed: RemovedVersions,
}

impl ClusterState {
    pub(super) fn new(has_registrations: bool, is_serving: bool) -> Self {
        Self {
            key: None,
            has_registrations,
            is_serving,
            is_paused: false,
            losses: 0,
            under_way: None,
            answered: AnsweredWrites::default(),
            removed: RemovedVersions::default(),
        }
    }
}

/// The same without the lock of the state.
#[derive(Debug)]
pub(super) struct ClusterSignals {
    /// Signaled when there is a group to take for etcd.
    pub(super) has_group: Notify,
    /// Signaled when the instance begins or ceases to serve.
    pub(super) role_changed: Notify,
    pub(super) is_serving: AtomicBool,
    /// Whether the watches of clients are registrations in etcd.
    pub(super) has_registrations: bool,
    pub(super) key: OnceLock<ClusterKey>,
}

impl ClusterSignals {
    pub(super) fn new(state: &ClusterState) -> Self {
        Self {
            has_group: Notify::new(),
            role_changed: Notify::new(),
            is_serving: AtomicBool::new(state.is_serving),
            has_registrations: state.has_registrations,
            key: OnceLock::new(),
        }
    }
}

/// Statistics of an instance of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterStatistics {
    /// Whether the instance answers requests.
    pub is_serving: bool,
    /// Whether etcd has no room, so that keys can only be deleted.
    pub is_short_of_room: bool,
}

/// Returns an empty memory of responses, as large as a store with these limits may have.
pub(super) fn new_duplicates(limits: &Limits) -> DuplicateDetection {
    DuplicateDetection::new(usize::try_from(recorded_bytes_max(limits)).unwrap_or(usize::MAX))
}
