//! The part of the service's state that depends on other instances: responses and registrations in etcd, and what another owner has
//! committed.

use std::sync::Arc;

use crate::broker::Peer;
use crate::ledger::{LedgerKind, Record, RegistrationRecord, ResponseRecord};
use crate::protocol::{ConnectionId, ErrorReply, Key, Request};
use crate::server::cluster_key::ClusterKey;
use crate::server::delivery::Response;
use crate::server::duplicate_detection::{DuplicateDetection, Fingerprint, lifetime_ms};
use crate::server::service::cluster_state::ClusterState;
use crate::server::service::removed_versions::RemovedVersions;
use crate::server::service::state::State;
use crate::server::waiting_answer::WriteIdentity;
use crate::store::{Now, Store, StoreRequest, Version, Watcher};

impl State {
    /// Whether requests are ignored at present, with the reason if there is one to report.
    pub(super) fn ignored_for(&self) -> Option<Option<&'static str>> {
        if !self.cluster.is_serving {
            return Some(None);
        }
        // Elsewhere an error is the answer. With etcd, that would have to wait, too.
        let is_ignored = self.ledger() == LedgerKind::Etcd && self.commit_queue.is_full();
        is_ignored.then_some(Some("too many requests wait for etcd"))
    }

    /// Returns the error with which reads are refused while the owner reads the state again, because etcd has no space. Behind a broker
    /// all requests are held meanwhile; the clients of `serve` have no other instance. A write may be one that was delivered before
    /// and committed: it gets no answer.
    pub(super) fn error_while_paused(&self) -> Option<ErrorReply> {
        let ClusterState { is_paused, has_registrations, .. } = self.cluster;
        (is_paused && !has_registrations).then_some(ErrorReply::QuotaExceeded)
    }

    /// Adds the response to a write to the present step.
    pub(super) fn record_response(
        &mut self,
        client_id: &Arc<str>,
        identity: WriteIdentity,
        response: &Response,
        now: Now,
    ) {
        if self.ledger() == LedgerKind::Etcd {
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

    /// Records the refusal of a write in the present step, as an answer is recorded. An instance that takes over must not apply
    /// a write that another one has refused.
    pub(super) fn record_refusal(
        &mut self,
        from: &Peer,
        identity: WriteIdentity,
        response: &Response,
        now: Now,
    ) {
        if self.cluster.has_registrations {
            self.record_response(&from.client_id, identity, response, now);
            let WriteIdentity { fingerprint, expiry_s } = identity;
            let sequence = self.commit_queue.sequence();
            self.duplicates.record(from, fingerprint, response.clone(), expiry_s, now.monotonic_ms, sequence);
        }
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
        if !self.cluster.has_registrations {
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
    pub(super) fn record_watch(&mut self, before: &RegistrationRecord) {
        let Some(Watcher { connection, .. }) = self.watcher_of(before) else { return };
        let is_registered = self.store.watching_client(&before.key, connection).is_some();
        if is_registered != before.is_registered {
            let after = RegistrationRecord { is_registered, ..before.clone() };
            self.commit_queue.add_record(None, Record::Registration(after));
        }
    }

    /// Ends watches of a connection, also in etcd, without a request of it. A follower leaves that to the owner.
    pub(super) fn end_watches(&mut self, connection: ConnectionId, keys: &[Key]) {
        let ClusterState { has_registrations, is_serving, .. } = self.cluster;
        if has_registrations && !is_serving {
            return;
        }
        for key in keys {
            let client_id = self.store.watching_client(key, connection).cloned();
            self.store.revoke_watch(connection, key);
            if let Some(client_id) = client_id.filter(|_| has_registrations) {
                let ended = RegistrationRecord { key: key.clone(), client_id, is_registered: false };
                self.commit_queue.begin_step();
                self.commit_queue.add_record(None, Record::Registration(ended));
            }
        }
    }

    pub(super) fn restore_registration(&mut self, record: &RegistrationRecord) {
        if let Some(watcher) = self.watcher_of(record) {
            self.store.restore_watch(&record.key, watcher, record.is_registered);
        }
    }

    fn watcher_of(&self, record: &RegistrationRecord) -> Option<Watcher> {
        let connection = self.cluster.key?.connection_of(&record.client_id);
        Some(Watcher { connection, client_id: Arc::clone(&record.client_id), details: false })
    }

    /// Sets the key of the cluster, before its state is received.
    pub(super) fn join(&mut self, key: ClusterKey) {
        self.cluster.key = Some(key);
        self.duplicates.set_cluster_key(key);
    }

    /// Handles that the instance follows another owner: nothing that waits is answered, and the state is received anew.
    /// Returns what is to be dropped without the lock.
    pub(super) fn reset(&mut self) -> (Store, DuplicateDetection) {
        let cluster = &mut self.cluster;
        cluster.is_serving = false;
        cluster.losses = cluster.losses.saturating_add(1);
        cluster.under_way = None;
        cluster.removed = RemovedVersions::default();
        self.commit_queue.clear();
        self.end_turn();
        let mut store = Store::new(*self.store.limits());
        if !self.cluster.has_registrations {
            store.take_watches(&mut self.store);
        }
        let duplicates = self.duplicates.emptied();
        (std::mem::replace(&mut self.store, store), std::mem::replace(&mut self.duplicates, duplicates))
    }

    /// Applies what another owner has committed.
    pub(super) fn apply_committed(&mut self, record: Record, now: Now) {
        let ClusterState { removed, is_serving: false, .. } = &mut self.cluster else { return };
        if let Record::Key(record) = &record {
            match self.store.last_version(&record.key) {
                Some(last) if record.content.is_none() => removed.note(&record.key, last),
                _ => removed.note_present(&record.key),
            }
        }
        self.restore(record, now);
    }

    /// Whether another instance has handled this write lately.
    pub(super) fn was_answered(&self, fingerprint: Fingerprint) -> bool {
        self.cluster.answered.contains(fingerprint)
    }

    /// Begins to answer requests: see [`Effect::Serve`](crate::server::cluster::Effect::Serve).
    pub(super) fn serve(&mut self, epoch: u64, floor: Version, greatest: Version, wall_ms: u64) {
        // The state of an ownership that is read again is another one.
        self.set_life(epoch.wrapping_add(self.cluster.losses.wrapping_shl(40)));
        self.cluster.is_serving = true;
        let (removed, forgotten) = std::mem::take(&mut self.cluster.removed).into_parts();
        self.store.raise_clock(wall_ms);
        self.store.raise_floor(floor.max(forgotten.min(greatest)));
        removed.for_each(|(key, last)| self.store.restore_removed(&key, last.min(greatest)));
    }
}
