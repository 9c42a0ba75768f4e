//! The part of the service's state in a cluster: what its groups have, and what another owner has committed.

use std::sync::Arc;

use crate::broker::Peer;
use crate::clock;
use crate::protocol::{ConnectionId, ErrorReply, Key, Request};
use crate::server::cluster::{Group, Item, RegistrationChange, ResponseRecord, RowChange};
use crate::server::cluster_key::ClusterKey;
use crate::server::commit_queue::{CommitQueue, IfFailed, RepeatableWrite, WriteIdentity};
use crate::server::delivery::{Publisher, Response};
use crate::server::duplicate_detection::{DuplicateDetection, Fingerprint, RestoredResponse, lifetime_ms};
use crate::server::service::cluster_state::{
    ClusterState, ClusterStatistics, PendingWatch, UncommittedWatch,
};
use crate::server::service::removed_versions::RemovedVersions;
use crate::server::service::state::State;
use crate::store::{Change, Limits, Now, Store, StoreRequest, Version, Watcher};

impl State {
    /// Makes this the state of an instance of a cluster, which follows.
    pub(super) fn follow(&mut self, has_registrations: bool) {
        self.commit_queue = Some(CommitQueue::in_cluster());
        self.cluster = Some(Box::new(ClusterState::new(has_registrations)));
    }

    pub(super) fn cluster_statistics(&self) -> Option<ClusterStatistics> {
        let cluster = self.cluster.as_ref()?;
        let is_short_of_room = self.commit_queue.as_ref().is_some_and(CommitQueue::is_short_of_room);
        Some(ClusterStatistics { is_serving: cluster.is_serving, is_short_of_room })
    }

    /// Whether requests are ignored at present, with the reason if there is one to report.
    pub(super) fn ignored_for(&self) -> Option<Option<&'static str>> {
        let cluster = self.cluster.as_ref()?;
        if !cluster.is_serving {
            return Some(None);
        }
        let is_full = self.commit_queue.as_ref().is_some_and(CommitQueue::is_full);
        is_full.then_some(Some("too many requests wait for etcd"))
    }

    /// Whether there is room for another request, and for the changes that others make meanwhile.
    pub(super) fn has_room(&self) -> bool {
        self.commit_queue.as_ref().is_none_or(CommitQueue::has_room)
    }

    /// Returns how often the instance has lost the ownership.
    pub(super) fn losses(&self) -> u64 {
        self.cluster.as_ref().map_or(0, |cluster| cluster.losses)
    }

    /// Returns the request of a write, so that it can be handled again; None without a cluster.
    pub(super) fn repeatable_write(
        &self,
        from: &Peer,
        request: &StoreRequest,
        identity: WriteIdentity,
    ) -> Option<Box<RepeatableWrite>> {
        self.cluster.as_ref()?;
        // An acknowledgement is held back once, by the connection's task.
        let from = Peer { handle: None, ..from.clone() };
        Some(Box::new(RepeatableWrite { request: request.clone(), from, identity }))
    }

    /// Makes the last write be handled again if etcd refuses the commit.
    pub(super) fn repeat_last_if_refused(&mut self, write: Option<Box<RepeatableWrite>>) {
        if let Some((queue, write)) = self.commit_queue.as_mut().zip(write) {
            queue.set_last_if_failed(IfFailed::RepeatWrite(write));
        }
    }

    /// Adds a changed key to the next group, with the number of what is enqueued next.
    pub(super) fn note_row(&mut self, change: Option<&Change>) {
        if let Some(cluster) = &mut self.cluster
            && let Some(change) = change
            && let Some(queue) = &self.commit_queue
        {
            let sequence = queue.sequence().saturating_add(1);
            cluster.items.push((sequence, Item::Row(RowChange::from(change))));
        }
    }

    /// Adds the response to a write to the next group.
    pub(super) fn note_response(
        &mut self,
        client_id: &Arc<str>,
        identity: WriteIdentity,
        response: &Response,
        sequence: u64,
        now: Now,
    ) {
        if let Some(cluster) = &mut self.cluster {
            let until_ms = now.monotonic_ms.saturating_add(lifetime_ms(identity.expiry_s));
            let record = ResponseRecord {
                client_id: Arc::clone(client_id),
                fingerprint: identity.fingerprint.0,
                payload: response.payload().clone(),
                version: response.version(),
                outcome: response.outcome(),
                until_ms,
            };
            cluster.items.push((sequence, Item::Response(record)));
        }
    }

    /// Whether all instances receive each request, as behind a broker. One that takes over must not apply a write that another
    /// one has refused.
    fn is_received_by_all(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.has_registrations)
    }

    /// Records the refusal of a write, whose response was enqueued last, as an answer is recorded.
    pub(super) fn record_refusal(
        &mut self,
        from: &Peer,
        identity: WriteIdentity,
        error: ErrorReply,
        now: Now,
    ) {
        if self.is_received_by_all() {
            let sequence = self.commit_queue.as_ref().map_or(0, CommitQueue::sequence);
            let response = Response::error(error);
            self.note_response(&from.client_id, identity, &response, sequence, now);
            let WriteIdentity { fingerprint, expiry_s, .. } = identity;
            self.duplicates.record(from, fingerprint, response, expiry_s, now.monotonic_ms, sequence);
        }
    }

    /// Begins a KEYNOTIFY whose registration belongs to the next group, if the request is one.
    ///
    /// # Errors
    /// There is no room for it.
    pub(super) fn begin_watch(&self, request: &StoreRequest) -> Result<Option<PendingWatch>, ErrorReply> {
        if !self.cluster.as_ref().is_some_and(|cluster| cluster.has_registrations) {
            return Ok(None);
        }
        let Request::KeyNotify { key, stop } = &request.request else { return Ok(None) };
        let was_registered = self.store.watching_client(key, request.connection).is_some();
        let is_short_of_room = self.commit_queue.as_ref().is_some_and(CommitQueue::is_short_of_room);
        if is_short_of_room && !stop && !was_registered {
            return Err(ErrorReply::QuotaExceeded);
        }
        let watcher = Watcher { connection: request.connection, client_id: Arc::clone(&request.client_id) };
        Ok(Some(PendingWatch { key: key.clone(), watcher, was_registered }))
    }

    /// Adds the registration of a KEYNOTIFY that was handled to the next group, if it has changed.
    pub(super) fn note_watch(&mut self, watch: PendingWatch) {
        let PendingWatch { key, watcher: Watcher { connection, client_id }, was_registered } = watch;
        let is_registered = self.store.watching_client(&key, connection).is_some();
        let sequence = self.commit_queue.as_ref().map_or(0, CommitQueue::sequence);
        if is_registered != was_registered {
            self.note_registration(sequence, RegistrationChange { key, client_id, is_registered }, true);
        }
    }

    fn note_registration(&mut self, sequence: u64, change: RegistrationChange, is_requested: bool) {
        if let Some(cluster) = &mut self.cluster {
            cluster.items.push((sequence, Item::Registration(change.clone())));
            cluster.uncommitted.push_back(UncommittedWatch { sequence, change, is_requested });
        }
    }

    /// Ends watches of a connection, also in etcd, without a request of it. A follower leaves that to the owner.
    pub(super) fn end_watches(&mut self, connection: ConnectionId, keys: &[Key]) {
        let has_registrations = match &self.cluster {
            Some(cluster) if cluster.has_registrations && !cluster.is_serving => return,
            cluster => cluster.as_ref().is_some_and(|cluster| cluster.has_registrations),
        };
        for key in keys {
            let client_id = self.store.watching_client(key, connection).cloned();
            self.store.revoke_watch(connection, key);
            if let Some(client_id) = client_id.filter(|_| has_registrations)
                && let Some(queue) = &mut self.commit_queue
            {
                let sequence = queue.note_addition();
                let change = RegistrationChange { key: key.clone(), client_id, is_registered: false };
                self.note_registration(sequence, change, false);
            }
        }
    }

    /// Takes what the next commit must have, or what waits for a confirmation; `None` if there is neither.
    pub(super) fn take_cluster_group(&mut self) -> Option<Group> {
        self.end_turn();
        let (queue, cluster) = self.commit_queue.as_mut().zip(self.cluster.as_mut())?;
        let (_, sequence) = queue.take_group().filter(|_| cluster.is_serving)?;
        cluster.under_way = (!cluster.items.is_empty()).then(|| (sequence, clock::monotonic()));
        Some(Group { items: std::mem::take(&mut cluster.items), sequence })
    }

    /// Handles the commit or confirmation of everything up to `sequence` in steps: see [`CommitQueue::handle_commit`].
    #[must_use]
    pub(super) fn handle_cluster_commit(&mut self, sequence: u64, publisher: &dyn Publisher) -> bool {
        let Some((queue, cluster)) = self.commit_queue.as_mut().zip(self.cluster.as_mut()) else {
            return false;
        };
        if let Some((_, taken)) = cluster.under_way.take_if(|(last, _)| *last <= sequence) {
            publisher.count_commit(clock::monotonic().saturating_duration_since(taken));
        }
        while cluster.uncommitted.pop_front_if(|watch| watch.sequence <= sequence).is_some() {}
        queue.handle_commit(sequence, Version::default(), publisher)
    }

    /// Handles that etcd has refused a group, and was not changed by it: rolls back all that is not committed, and handles its
    /// requests again, which are answered after the next confirmation. Of these, SET and KEYNOTIFY are refused; those up to
    /// `uncertain` get no answer, because they may still be committed.
    pub(super) fn handle_cluster_refusal(&mut self, uncertain: u64, publisher: &dyn Publisher, now: Now) {
        let Some((queue, cluster)) = self.commit_queue.as_mut().zip(self.cluster.as_mut()) else { return };
        let (last, is_serving) = (queue.sequence(), cluster.is_serving);
        if !is_serving {
            return;
        }
        let was_short_of_room = queue.is_short_of_room();
        queue.set_short_of_room(true);
        cluster.under_way = None;
        cluster.items.clear();
        let watches = std::mem::take(&mut cluster.uncommitted);
        let key = cluster.key;
        let (committed, unfinished) = queue.handle_commit_failure(&mut self.store, uncertain);
        self.duplicates.handle_rollback(committed, last, now.monotonic_ms);
        for UncommittedWatch { change, is_requested, .. } in watches.iter().rev() {
            if *is_requested && let Some(watcher) = watcher_of(key, change) {
                self.store.restore_watch(&change.key, watcher, !change.is_registered);
            }
        }
        for UncommittedWatch { change, is_requested, .. } in watches {
            // No request ends it again.
            if !is_requested && let Some(queue) = &mut self.commit_queue {
                let sequence = queue.note_addition();
                self.note_registration(sequence, change, false);
            }
        }
        // Deletions are possible without room.
        self.finish(publisher, unfinished, now, !was_short_of_room);
        self.set_short_of_room(was_short_of_room);
        self.end_turn();
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
        cluster.items.clear();
        cluster.uncommitted.clear();
        cluster.removed = RemovedVersions::default();
        if let Some(queue) = &mut self.commit_queue {
            queue.clear();
        }
        self.end_turn();
        let limits: Limits = *self.store.limits();
        let duplicates = self.duplicates.emptied();
        Some((
            std::mem::replace(&mut self.store, Store::new(limits)),
            std::mem::replace(&mut self.duplicates, duplicates),
        ))
    }

    /// Applies what another owner has committed.
    pub(super) fn apply_committed(&mut self, item: Item, now: Now) {
        let Some(cluster) = self.cluster.as_mut().filter(|cluster| !cluster.is_serving) else { return };
        let key = cluster.key;
        match item {
            Item::Row(RowChange { key, content }) => {
                let persistent = content.map(|(version, mut stored)| {
                    stored.persist = true;
                    (version, stored)
                });
                match self.store.last_version(&key) {
                    Some(last) if persistent.is_none() => cluster.removed.note(&key, last),
                    _ => cluster.removed.note_present(&key),
                }
                self.store.restore(&key, persistent);
            }
            Item::Registration(change) => {
                if let Some(watcher) = watcher_of(key, &change) {
                    self.store.restore_watch(&change.key, watcher, change.is_registered);
                }
            }
            Item::Response(record) => {
                let ResponseRecord { client_id, fingerprint, payload, version, outcome, until_ms } = record;
                let response = Response::restored(&payload, version, outcome);
                let fingerprint = Fingerprint(fingerprint);
                if let Some(cluster) = &mut self.cluster {
                    cluster.answered.note(fingerprint, now.monotonic_ms);
                }
                let restored = RestoredResponse { client_id, fingerprint, response, until_ms };
                self.duplicates.restore(restored, now.monotonic_ms);
            }
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

fn watcher_of(key: Option<ClusterKey>, change: &RegistrationChange) -> Option<Watcher> {
    let connection = key?.connection_of(&change.client_id);
    Some(Watcher { connection, client_id: Arc::clone(&change.client_id) })
}
