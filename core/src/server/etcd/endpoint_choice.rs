//! The endpoint of writes: the leader. The endpoint of reads at a revision: another member, so that the leader has time for writes.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::client::{Endpoint, EndpointStatus, Etcd, lock};
use super::error::Failure;
use crate::ledger::etcd::operation::EtcdError;

impl Etcd {
    /// Sends the next requests to the leader, if one has answered and no request has left the endpoint `before` meanwhile. Another member
    /// would forward each write to the leader.
    pub(super) fn prefer_leader(
        &self,
        before: &Arc<Endpoint>,
        all: &[(String, Result<EndpointStatus, EtcdError>)],
    ) {
        let leads = |status: &Result<EndpointStatus, _>| status.as_ref().is_ok_and(|status| status.is_leader);
        let mut endpoints = self.0.endpoints.iter().zip(all);
        if let Some((leader, _)) = endpoints.find(|(_, (_, status))| leads(status)) {
            let mut current = lock(&self.0.current);
            if Arc::ptr_eq(&current, before) {
                *current = Arc::clone(leader);
            }
        }
    }

    /// Keeps the endpoint for the next read, unless its answer was uncertain.
    pub(super) fn keep_reading_endpoint(&self, endpoint: &Arc<Endpoint>, failure: Option<&Failure>) {
        let is_kept = !failure.is_some_and(Failure::is_uncertain);
        *lock(&self.0.reading) = is_kept.then(|| Arc::clone(endpoint));
    }

    /// Returns the endpoint that was kept, or else the first one that answers as a member which is not the leader; without one, the
    /// current one.
    pub(super) async fn reading_endpoint(&self) -> Arc<Endpoint> {
        let kept = lock(&self.0.reading).clone();
        if let Some(endpoint) = kept {
            return endpoint;
        }
        let mut asked = JoinSet::new();
        for endpoint in &self.0.endpoints {
            let (etcd, endpoint) = (self.clone(), Arc::clone(endpoint));
            asked.spawn(async move { (etcd.status_of(&endpoint).await, endpoint) });
        }
        while let Some(answer) = asked.join_next().await {
            if let Ok((Ok(status), endpoint)) = answer
                && status.has_leader
                && !status.is_leader
            {
                return endpoint;
            }
        }
        self.current()
    }
}
