//! The service as an instance of a cluster: what the owner task calls.
//!
//! The instance follows at first. The owner task passes the effects of [`crate::server::cluster::Instance`] to
//! [`Service::handle_cluster_effect`], and the groups of [`Service::take_cluster_group`] to the instance.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::application::Service;
use super::cluster_state::ClusterSignals;
use crate::broker::{Peer, Principal};
use crate::ledger::etcd::CLUSTER_KEY_BYTES;
use crate::ledger::{Group, Record, RegistrationRecord};
use crate::protocol::{ConnectionId, Key};
use crate::server::authorization::{Authorizer, ClientPermissions};
use crate::server::cluster::Effect;
use crate::server::cluster::event::ClusterEvent;
use crate::server::cluster_key::ClusterKey;
use crate::server::delivery::Publisher;
use crate::store::{Now, Version};

impl Service {
    /// Returns the time of the service, on whose monotonic clock all deadlines are.
    #[must_use]
    pub fn cluster_now(&self) -> Now {
        self.shared.now()
    }

    /// Whether the service answers requests: in a cluster, one instance does at a time.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.shared.cluster.is_serving.load(Ordering::Acquire)
    }

    /// Does what the instance of the cluster asks for. Returns an event for the log.
    pub fn handle_cluster_effect(&self, effect: Effect, publisher: &dyn Publisher) -> Option<ClusterEvent> {
        match effect {
            Effect::Joined { hash_key } => self.join_cluster(&hash_key),
            Effect::Reset => self.reset_cluster_state(),
            Effect::Stop | Effect::Pause => {
                self.shared.lock().cluster.is_paused = effect == Effect::Pause;
                self.reset_cluster_state();
            }
            Effect::Apply(record) => self.apply_committed(record),
            Effect::Serve { epoch, floor, greatest, wall_ms } => {
                self.serve_cluster(epoch, floor, greatest, wall_ms);
            }
            Effect::Committed { sequence } => self.handle_cluster_commit(sequence, publisher),
            Effect::ShortOfSpace(is_short) => self.shared.lock().commit_queue.set_short_of_room(is_short),
            Effect::Report(event) => return Some(event),
        }
        None
    }

    /// Sets the key of the cluster, which all instances have, before its state is received.
    pub(super) fn join_cluster(&self, key: &[u8; CLUSTER_KEY_BYTES]) {
        let key = ClusterKey::new(key);
        // A second key could not be that of the same state.
        if self.shared.cluster.key.set(key).is_ok() {
            self.shared.lock().join(key);
        }
    }

    /// Waits until there may be a group to take. Cancel safe.
    pub async fn group_ready(&self) {
        self.shared.cluster.has_group.notified().await;
    }

    /// Waits until the instance begins or ceases to serve; for ever without a cluster. Cancel safe.
    pub(in crate::server) async fn role_changed(&self) {
        self.shared.cluster.role_changed.notified().await;
    }

    /// Whether there is room for another request that can wait elsewhere.
    pub(in crate::server) fn has_room(&self) -> bool {
        self.shared.lock().commit_queue.has_room()
    }

    /// Takes what the next commit must have. A group without records is to be confirmed only. The group before it must have
    /// been decided.
    #[must_use]
    pub fn take_cluster_group(&self) -> Option<Group> {
        let group = self.shared.lock().take_group(self.shared.now())?;
        let cluster = &self.metrics().cluster;
        match group.records.iter().filter(|(_, record)| matches!(record, Record::Key(_))).count() {
            0 if group.records.is_empty() => cluster.confirmations.add(1),
            rows => cluster.rows.add(rows as u64),
        }
        Some(group)
    }

    /// Handles the commit or confirmation of everything up to a step: what waits for it is sent.
    fn handle_cluster_commit(&self, sequence: u64, publisher: &dyn Publisher) {
        let mut state = self.shared.handle_commit(sequence, Version::default(), publisher);
        self.shared.wake_expiry_task(&mut state);
    }

    /// Discards the state and whatever waits for an answer: another instance owns the keys, or may do so, or the state is
    /// received anew. Nothing is answered until [`Service::serve_cluster`].
    pub(super) fn reset_cluster_state(&self) {
        let cluster = &self.shared.cluster;
        if cluster.has_registrations {
            self.watch_permissions().clear();
        }
        let mut state = self.shared.lock();
        cluster.is_serving.store(false, Ordering::Release);
        let discarded = state.reset();
        drop(state);
        cluster.role_changed.notify_one();
        // Neither requests nor the instance wait while millions of keys are freed. Without a thread they do.
        let _ = std::thread::Builder::new().name("discard".to_owned()).spawn(move || drop(discarded));
    }

    /// Makes [`Service::revoke_watches`] apply rules to the registrations of clients that have sent no request to this
    /// instance. It must be called before the instance joins, and once.
    pub fn set_registration_rules(&self, rules: Arc<Authorizer>) {
        let _ = self.registration_rules.set(rules);
    }

    /// Applies a change that another owner has committed.
    fn apply_committed(&self, record: Record) {
        let registration = match &record {
            Record::Registration(registration) => Some(registration.clone()),
            Record::Key(_) | Record::Response(_) | Record::Exchange(..) => None,
        };
        self.shared.lock_after_others().apply_committed(record, self.shared.now());
        if let Some(RegistrationRecord { client_id, .. }) = registration
            && let Some(rules) = self.registration_rules.get()
            && let Some(connection) = self.registered_connection(&client_id)
        {
            let mut permissions = self.watch_permissions();
            if self.shared.lock().store.is_watching(connection) {
                let of_client = || ClientPermissions::new(Arc::clone(rules), client_id, Principal::default());
                permissions.entry(connection).or_insert_with(|| Arc::new(of_client()));
            } else {
                permissions.remove(&connection);
            }
        }
    }

    /// Begins to answer requests, as the owner of all that was applied: see [`Effect::Serve`].
    pub(super) fn serve_cluster(&self, epoch: u64, floor: Version, greatest: Version, wall_ms: u64) {
        let (cluster, mut state) = (&self.shared.cluster, self.shared.lock());
        let was_paused = std::mem::take(&mut state.cluster.is_paused);
        state.serve(epoch, floor, greatest, wall_ms);
        cluster.is_serving.store(true, Ordering::Release);
        cluster.role_changed.notify_one();
        self.shared.wake_expiry_task(&mut state);
        drop(state);
        if was_paused {
            // What rules have ended may be among what was dropped.
            self.revoke_watches();
        }
    }

    /// Returns the connection that the watches of a client belong to: its own, unless only its id is known to all instances.
    pub(super) fn watching_connection(&self, peer: &Peer) -> ConnectionId {
        self.registered_connection(&peer.client_id).unwrap_or(peer.connection)
    }

    /// Returns the connection that all instances know a client by; `None` unless its watches are registrations.
    pub(super) fn registered_connection(&self, client_id: &str) -> Option<ConnectionId> {
        let ClusterSignals { key, has_registrations, .. } = &self.shared.cluster;
        has_registrations.then(|| key.get())?.map(|key| key.connection_of(client_id))
    }

    /// Ends watches of a connection without a request of it.
    pub(super) fn end_watches(&self, connection: ConnectionId, keys: &[Key]) {
        let mut state = self.shared.lock();
        state.end_watches(connection, keys);
        self.shared.wake_commit_thread(&mut state);
    }

    /// Ends all watches of a client that is gone. A follower leaves that to the owner.
    pub(super) fn end_all_watches(&self, connection: ConnectionId) {
        loop {
            let keys = self.shared.lock().store.watched_keys(connection, None);
            if keys.is_empty() || !self.is_serving() {
                return;
            }
            self.end_watches(connection, &keys);
        }
    }
}
