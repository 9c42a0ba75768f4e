//! The part of the service's state in a cluster: responses and registrations in etcd, and what another owner has committed.

use std::sync::Arc;

use crate::broker::Peer;
use crate::ledger::{Record, RegistrationRecord, ResponseRecord, Undo};
use crate::protocol::{ConnectionId, ErrorReply, Key, Request};
use crate::server::cluster_key::ClusterKey;
use crate::server::delivery::{Publisher, Response};
use crate::server::duplicate_detection::{DuplicateDetection, Fingerprint, lifetime_ms};
use crate::server::service::cluster_state::{ClusterState, ClusterStatistics};
use crate::server::service::removed_versions::RemovedVersions;
use crate::server::service::state::State;
use crate::server::waiting_answer::WriteIdentity;
use crate::store::{Limits, Now, Store, StoreRequest, Version, Watcher};

impl State {
    /// Makes this the state of an instance of a cluster, which follows.
    pub(super) fn follow(&mut self, has_registrations: bool) {
        self.cluster = Some(Box::new(ClusterState::new(has_registrations)));
    }

    pub(super) fn cluster_statistics(&self) -> Option<ClusterStatistics> {
        let is_short_of_room = self.commit_queue.is_short_of_room();
        let cluster = self.cluster.as_ref()?;
        Some(ClusterStatistics { is_serving: cluster.is_serving, is_short_of_room })
    }

    /// Whether requests are ignored at present, with the reason if there is one to report.
    pub(super) fn ignored_for(&self) -> Option<Option<&'static str>> {
        let cluster = self.cluster.as_ref()?;
        if !cluster.is_serving {
            return Some(None);
        }
        self.commit_queue.is_full().then_some(Some("too many requests wait for etcd"))
    }

    /// Returns how often the instance has lost the ownership.
    pub(super) fn losses(&self) -> u64 {
        self.cluster.as_ref().map_or(0, |cluster| cluster.losses)
    }

    /// Adds the response to a write to the present step.
    pub(super) fn record_response(
        &mut self,
        client_id: &Arc<str>,
        identity: WriteIdentity,
        response: &Response,
        now: Now,
    ) {
        if self.cluster.is_some() {
            let record = ResponseRecord {
                client_id: Arc::clone(client_id),
                fingerprint: identity.fingerprint.0,
                payload: response.payload().clone(),
                version: response.version(),
                outcome: response.outcome(),
                until_ms: now.monotonic_ms.saturating_add(lifetime_ms(identity.expiry_s)),
            };
            self.commit_queue.add_record(None, Record::Response(record));
        }
    }

    /// Whether the watches of clients are registrations: then all instances receive each request, as behind a broker.
    fn has_registrations(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.has_registrations)
    }

    /// Records the refusal of a write in the present step, as an answer is recorded. An instance that takes over must not apply
    /// a write that another one has refused.
    pub(super) fn record_refusal(
        &mut self,
        from: &Peer,
        identity: WriteIdentity,
        response: &Response,
        now: Now,
    ) {
        if self.has_registrations() {
            self.record_response(&from.client_id, identity, response, now);
            let WriteIdentity { fingerprint, expiry_s, .. } = identity;
            let sequence = self.commit_queue.sequence();
            self.duplicates.record(from, fingerprint, response.clone(), expiry_s, now.monotonic_ms, sequence);
        }
    }

    /// Whether a request that changes no key is handled again if the commit that it waits for fails. A watch that is no
    /// registration stays.
    pub(super) fn is_handled_again(&self, request: &Request) -> bool {
        !matches!(request, Request::KeyNotify { .. }) || self.has_registrations()
    }

    /// Returns the registration before a KEYNOTIFY is handled, if the request is one and changes it.
    ///
    /// # Errors
    /// There is no room for it.
    pub(super) fn begin_watch(
        &self,
        request: &StoreRequest,
    ) -> Result<Option<RegistrationRecord>, ErrorReply> {
        let Request::KeyNotify { key, stop } = &request.request else { return Ok(None) };
        if !self.has_registrations() {
            return Ok(None);
        }
        let is_registered = self.store.watching_client(key, request.connection).is_some();
        if self.commit_queue.is_short_of_room() && !stop && !is_registered {
            return Err(ErrorReply::QuotaExceeded);
        }
        let client_id = Arc::clone(&request.client_id);
        Ok(Some(RegistrationRecord { key: key.clone(), client_id, is_registered }))
    }

    /// Adds the registration of a KEYNOTIFY that was handled to the present step, if it has changed.
    pub(super) fn record_watch(&mut self, before: RegistrationRecord) {
        let Some(Watcher { connection, .. }) = self.watcher_of(&before) else { return };
        let is_registered = self.store.watching_client(&before.key, connection).is_some();
        if is_registered != before.is_registered {
            let after = RegistrationRecord { is_registered, ..before.clone() };
            let undo = Undo::Restore(Record::Registration(before));
            self.commit_queue.add_record(Some(undo), Record::Registration(after));
        }
    }

    /// Ends watches of a connection, also in etcd, without a request of it. A follower leaves that to the owner.
    pub(super) fn end_watches(&mut self, connection: ConnectionId, keys: &[Key]) {
        let has_registrations = self.has_registrations();
        if has_registrations && self.cluster.as_ref().is_some_and(|cluster| !cluster.is_serving) {
            return;
        }
        for key in keys {
            let client_id = self.store.watching_client(key, connection).cloned();
            self.store.revoke_watch(connection, key);
            if let Some(client_id) = client_id.filter(|_| has_registrations) {
                let ended = RegistrationRecord { key: key.clone(), client_id, is_registered: false };
                let record = Record::Registration(ended);
                self.commit_queue.begin_step();
                self.commit_queue.add_record(Some(Undo::Repeat(record.clone())), record);
            }
        }
    }

    pub(super) fn restore_registration(&mut self, record: &RegistrationRecord) {
        if let Some(watcher) = self.watcher_of(record) {
            self.store.restore_watch(&record.key, watcher, record.is_registered);
        }
    }

    fn watcher_of(&self, record: &RegistrationRecord) -> Option<Watcher> {
        let connection = self.cluster.as_ref()?.key?.connection_of(&record.client_id);
        Some(Watcher { connection, client_id: Arc::clone(&record.client_id) })
    }

    /// Sets the key of the cluster, before its state is received.
    pub(super) fn join(&mut self, key: ClusterKey) {
        if let Some(cluster) = &mut self.cluster {
            cluster.key = Some(key);
            self.duplicates.set_cluster_key(key);
        }
    }

    /// Handles that the instance follows another owner: nothing that waits is answered, and the state is received anew.
    /// Returns what is to be dropped without the lock.
    pub(super) fn reset(&mut self) -> Option<(Store, DuplicateDetection)> {
        let cluster = self.cluster.as_mut()?;
        cluster.is_serving = false;
        cluster.losses = cluster.losses.saturating_add(1);
        cluster.under_way = None;
        cluster.removed = RemovedVersions::default();
        self.commit_queue.clear();
        self.end_turn();
        let limits: Limits = *self.store.limits();
        let duplicates = self.duplicates.emptied();
        Some((
            std::mem::replace(&mut self.store, Store::new(limits)),
            std::mem::replace(&mut self.duplicates, duplicates),
        ))
    }

    /// Applies what another owner has committed.
    pub(super) fn apply_committed(&mut self, record: Record, now: Now) {
        let Some(cluster) = self.cluster.as_mut().filter(|cluster| !cluster.is_serving) else { return };
        if let Record::Key(record) = &record {
            match self.store.last_version(&record.key) {
                Some(last) if record.content.is_none() => cluster.removed.note(&record.key, last),
                _ => cluster.removed.note_present(&record.key),
            }
        }
        self.restore(record, now);
    }

    /// Handles that etcd has refused the last group, and was not changed by it: see [`State::handle_commit_failure`].
    pub(super) fn handle_refusal(&mut self, uncertain: u64, publisher: &dyn Publisher, now: Now) {
        if self.cluster.as_ref().is_some_and(|cluster| cluster.is_serving) {
            self.handle_commit_failure(uncertain, publisher, now);
        }
    }

    /// Whether another instance has handled this write lately.
    pub(super) fn was_answered(&self, fingerprint: Fingerprint) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.answered.contains(fingerprint))
    }

    /// Begins to answer requests: see [`Effect::Serve`](crate::server::cluster::Effect::Serve).
    pub(super) fn serve(&mut self, epoch: u64, floor: Version, greatest: Version, wall_ms: u64) {
        self.set_life(epoch);
        if let Some(cluster) = &mut self.cluster {
            cluster.is_serving = true;
            let (removed, forgotten) = std::mem::take(&mut cluster.removed).into_parts();
            self.store.raise_clock(wall_ms);
            self.store.raise_floor(floor.max(forgotten.min(greatest)));
            removed.for_each(|(key, last)| self.store.restore_removed(&key, last.min(greatest)));
        }
    }
}
