//! Simulated state of a cluster: applies groups at once, as etcd and the chain of commits do with time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use super::application::Service;
use super::tests::RecordingPublisher;
use crate::clock;
use crate::ledger::{Group, KeyRecord, Record, RegistrationRecord, ResponseRecord};
use crate::protocol::Key;
use crate::server::cluster::Effect;
use crate::server::delivery::Publisher;
use crate::store::{StoredValue, Version};

/// The committed state of a cluster, which all its instances share.
#[derive(Clone, Default)]
pub(super) struct SimulatedLedger(Arc<Mutex<Ledger>>);

#[derive(Clone, Default)]
pub(super) struct Ledger {
    /// Deadlines are in Unix milliseconds.
    pub(super) rows: BTreeMap<Key, (Version, StoredValue)>,
    pub(super) registrations: BTreeSet<RegistrationRecord>,
    pub(super) responses: Vec<ResponseRecord>,
    pub(super) greatest: Version,
    /// The number of the last ownership.
    epoch: u64,
    /// Whether only deletions are accepted.
    pub(super) is_full: bool,
    /// Number of groups that were committed or confirmed.
    pub(super) groups: usize,
}

impl SimulatedLedger {
    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap()
    }

    pub(super) fn copy(&self) -> Self {
        Self(Arc::new(Mutex::new(self.lock().clone())))
    }

    /// Commits a group. Returns false if there is no room for it.
    pub(super) fn commit(&self, service: &Service, group: &Group) -> bool {
        let mut ledger = self.lock();
        let puts = |record: &Record| match record {
            Record::Key(record) => record.content.is_some(),
            Record::Registration(record) => record.is_registered,
            Record::Response(_) | Record::Exchange(..) => false,
        };
        if ledger.is_full && group.records.iter().any(|(_, record)| puts(record)) {
            return false;
        }
        assert!(group.records.is_sorted_by_key(|(sequence, _)| *sequence), "{group:?}");
        assert!(group.records.iter().all(|(sequence, _)| *sequence <= group.sequence), "{group:?}");
        ledger.groups += 1;
        group.records.iter().for_each(|(_, record)| ledger.apply(moved(record.clone(), service, true)));
        true
    }

    /// Takes all groups of an owner and decides them.
    pub(super) fn decide_all(&self, service: &Service, publisher: &dyn Publisher) {
        while let Some(group) = service.take_cluster_group() {
            self.decide(service, &group, publisher);
        }
    }

    /// Decides a group. Returns whether it is committed; otherwise the state is served again as it was before.
    pub(super) fn decide(&self, service: &Service, group: &Group, publisher: &dyn Publisher) -> bool {
        let (sequence, is_committed) = (group.sequence, self.commit(service, group));
        if is_committed {
            service.handle_cluster_effect(Effect::Committed { sequence }, publisher);
        } else {
            self.serve_again(service);
        }
        is_committed
    }

    /// Has an owner drop what is uncommitted, and serve the state again, without space.
    pub(super) fn serve_again(&self, service: &Service) {
        let publisher = RecordingPublisher::default();
        for effect in [Effect::Pause, Effect::Reset] {
            service.handle_cluster_effect(effect, &publisher);
        }
        self.load(service);
        service.handle_cluster_effect(Effect::ShortOfSpace(true), &publisher);
        let epoch = self.lock().epoch;
        self.serve_as(service, epoch);
    }

    /// Passes the whole state to a follower.
    pub(super) fn load(&self, service: &Service) {
        let ledger = self.lock().clone();
        let rows = ledger.rows.into_iter();
        let rows = rows.map(|(key, stored)| Record::Key(KeyRecord::new(key, Some(stored))));
        let registrations = ledger.registrations.into_iter().map(Record::Registration);
        let responses = ledger.responses.into_iter().map(Record::Response);
        for record in rows.chain(registrations).chain(responses) {
            let effect = Effect::Apply(moved(record, service, false));
            service.handle_cluster_effect(effect, &RecordingPublisher::default());
        }
    }

    /// Makes a follower that has the whole state the owner.
    pub(super) fn serve(&self, service: &Service) {
        let epoch = self.lock().epoch + 1;
        self.lock().epoch = epoch;
        self.serve_as(service, epoch);
    }

    fn serve_as(&self, service: &Service, epoch: u64) {
        let greatest = self.lock().greatest;
        service.serve_cluster(epoch, greatest, greatest, clock::wall_ms());
    }
}

impl Ledger {
    fn apply(&mut self, record: Record) {
        match record {
            Record::Key(KeyRecord { key, version, content: Some(stored) }) => {
                self.greatest = self.greatest.max(version);
                self.rows.insert(key, (version, stored));
            }
            Record::Key(KeyRecord { key, content: None, .. }) => _ = self.rows.remove(&key),
            Record::Registration(record) => {
                let registration = RegistrationRecord { is_registered: true, ..record.clone() };
                if record.is_registered {
                    self.registrations.insert(registration);
                } else {
                    assert!(self.registrations.remove(&registration), "{record:?}");
                }
            }
            Record::Response(record) => self.responses.push(record),
            Record::Exchange(..) => panic!("{record:?}"),
        }
    }
}

/// Moves the deadline of a record from the clock of an instance to the wall clock, or back.
pub(super) fn moved(mut record: Record, service: &Service, to_wall: bool) -> Record {
    let now = service.cluster_now();
    let (from_ms, to_ms) =
        if to_wall { (now.monotonic_ms, now.wall_ms) } else { (now.wall_ms, now.monotonic_ms) };
    let moved = |deadline_ms: &mut u64| *deadline_ms = (*deadline_ms + to_ms).saturating_sub(from_ms);
    match &mut record {
        Record::Key(KeyRecord { content: Some(stored), .. }) => {
            stored.deadline_ms.iter_mut().for_each(moved);
        }
        Record::Response(record) => moved(&mut record.until_ms),
        Record::Key(_) | Record::Registration(_) | Record::Exchange(..) => {}
    }
    record
}
