//! Counters and state of an instance of a cluster, for metrics and the status page.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::broker::counters::Counter;
use crate::server::cluster::{ClusterEvent, Role, Status};

/// What is known of the cluster without asking etcd.
#[derive(Debug, Default)]
pub struct ClusterMetrics {
    /// Keys that were written or deleted in commits.
    pub rows: Counter,
    /// Confirmations of reads without changes.
    pub confirmations: Counter,
    pub takeovers: Counter,
    pub losses: Counter,
    pub resignations: Counter,
    /// The state of each shard; empty without a cluster. Taken for each commit, so that nothing slow may happen under the lock.
    shards: Mutex<BTreeMap<u32, ShardState>>,
}

/// A shard, as this instance sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardState {
    /// `None` before the instance runs.
    pub status: Option<Status>,
    pub held: Held,
}

/// Requests that are held while another instance answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub requests: u64,
    pub bytes: u64,
}

impl ShardState {
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.role == Role::Owner)
    }
}

impl ClusterMetrics {
    pub fn set_status(&self, shard: u32, status: Status) {
        self.lock().entry(shard).or_default().status = Some(status);
    }

    pub fn set_held(&self, shard: u32, held: Held) {
        self.lock().entry(shard).or_default().held = held;
    }

    /// Returns the shards in the order of their numbers; none without a cluster.
    #[must_use]
    pub fn shards(&self) -> Vec<(u32, ShardState)> {
        self.lock().iter().map(|(shard, state)| (*shard, state.clone())).collect()
    }

    /// Counts an event.
    pub fn count_event(&self, event: &ClusterEvent) {
        match event {
            ClusterEvent::TookOver { .. } => self.takeovers.add(1),
            ClusterEvent::LostOwnership { .. } => self.losses.add(1),
            ClusterEvent::Resigned { .. } => self.resignations.add(1),
            _ => {}
        }
    }

    /// Each change is that of one value: a panic leaves a valid state.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, ShardState>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
