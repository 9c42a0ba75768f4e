//! Counters and state of an instance of a cluster, for metrics and the status page.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::broker::counters::Counter;
use crate::clock;
use crate::server::cluster::{ClusterEvent, Status};

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
    /// Taken for each commit, so that nothing slow may happen under the lock.
    state: Mutex<InstanceState>,
}

/// An instance of a cluster, at present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceState {
    /// `None` without a cluster, and before the instance runs.
    pub status: Option<Status>,
    pub held: Held,
    /// When the last commit was received.
    pub sequence_changed: Option<Instant>,
}

/// Requests that are held while another instance answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub requests: u64,
    pub bytes: u64,
}

impl ClusterMetrics {
    pub fn set_status(&self, status: Status) {
        let now = clock::monotonic();
        let mut state = self.lock();
        if state.status.as_ref().is_none_or(|known| known.seq != status.seq) {
            state.sequence_changed = Some(now);
        }
        state.status = Some(status);
    }

    pub fn set_held(&self, held: Held) {
        self.lock().held = held;
    }

    #[must_use]
    pub fn state(&self) -> InstanceState {
        self.lock().clone()
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
    fn lock(&self) -> MutexGuard<'_, InstanceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
