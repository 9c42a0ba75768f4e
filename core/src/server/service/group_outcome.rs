//! Commits of the service's state: what a group has, and what a commit sends.

use super::state::State;
use crate::clock;
use crate::ledger::{Group, LedgerKind, Record, ResponseRecord};
use crate::protocol::timestamp::COUNTER_MAX;
use crate::server::delivery::{Publisher, Response};
use crate::server::duplicate_detection::{Fingerprint, RestoredResponse};
use crate::store::{Now, Version};

/// How far the ceiling of versions is ahead of the clock, in milliseconds: for so long after a crash, new versions may be
/// ahead of the clock. A version that is further ahead, because that of a client is, waits for a commit.
const LEASE_MS: u64 = 10_000;
/// How long after the last write the ceiling follows the clock, in milliseconds. Later, the next write waits for a commit.
const IDLE_MS: u64 = 600_000;

impl State {
    /// Takes what the next commit must have; `None` if nothing waits for one, and none is due, or after the end of the ledger.
    ///
    /// A key in memory does not wait for a commit if its version is below the ceiling that is on disk, above which the
    /// store continues after a crash. So the ceiling must stay ahead of the clock while such keys are written.
    pub(super) fn take_group(&mut self, now: Now) -> Option<Group> {
        self.end_turn();
        if self.has_ended {
            return None;
        }
        let group = self.commit_queue.take_group();
        // A group ends with its segment.
        self.is_commit_due = self.commit_queue.has_uncommitted();
        match self.ledger() {
            LedgerKind::Memory => None,
            LedgerKind::File => {
                let Some(mut group) = group else {
                    let is_due = self.is_ceiling_due(now) && self.commit_queue.has_room_for(0, false);
                    return is_due.then(|| self.empty_group(now));
                };
                self.complete(&mut group, now);
                Some(group)
            }
            LedgerKind::Etcd => {
                let group = group.filter(|_| self.cluster.is_serving)?;
                self.cluster.under_way =
                    (!group.records.is_empty()).then(|| (group.sequence, clock::monotonic()));
                Some(group)
            }
        }
    }

    fn is_ceiling_due(&self, now: Now) -> bool {
        let (on_disk, greatest) = (self.commit_queue.ceiling(), self.store.greatest_version());
        let is_in_use = !self.is_closing && greatest.ms.saturating_add(IDLE_MS) > now.wall_ms;
        is_in_use && self.next_ceiling(now).ms.saturating_sub(on_disk.ms) >= LEASE_MS / 2
    }

    /// Returns a group without records of clients.
    pub(super) fn empty_group(&mut self, now: Now) -> Group {
        let mut group = self.commit_queue.take_empty_group();
        self.complete(&mut group, now);
        group
    }

    /// Completes a group by its ceiling and the tombstones.
    fn complete(&mut self, group: &mut Group, now: Now) {
        if let Some(exchange) = self.exchange.as_mut().filter(|_| !self.commit_queue.has_uncommitted()) {
            exchange.handle_taken();
        }
        let (ceiling, greatest) = (self.next_ceiling(now), self.store.greatest_version());
        group.ceiling = self.tombstones.complete(&mut group.records, ceiling, greatest);
    }

    /// Lowers the ceiling when the service closes, because no version of a key without a record is sent from now on: to
    /// the greatest version given out, unless that belongs to a client that is ahead. Returns `None` if it is no higher.
    pub(super) fn lower_ceiling(&mut self) -> Option<Version> {
        let ceiling = self.store.greatest_version();
        let is_higher = self.commit_queue.ceiling() > ceiling;
        is_higher.then(|| {
            self.commit_queue.set_ceiling(ceiling);
            ceiling
        })
    }

    /// Returns the ceiling for the next commit: at least what is on disk already.
    ///
    /// It follows the store's clock, not the versions of clients that are ahead: after a crash, the versions of all keys
    /// are above it. Versions that are further ahead are in the record or the tombstone of their key. On a disk without
    /// room for tombstones, it follows all versions.
    pub(super) fn next_ceiling(&self, now: Now) -> Version {
        let (greatest, clock_ms) = (self.store.greatest_version(), self.store.wall_ms().max(now.wall_ms));
        // A clock that is behind those of an earlier process: new keys continue above these.
        let above_floor_ms = self.store.floor().ms.saturating_add(1);
        let ms = clock_ms.saturating_add(LEASE_MS).max(above_floor_ms);
        let follows_all = self.refuses_growth();
        let ms = if follows_all { ms.max(greatest.ms) } else { ms };
        let lease = Version { ms, counter: COUNTER_MAX };
        let ceiling = if self.has_memory_keys { lease } else { greatest.min(lease) };
        ceiling.max(self.commit_queue.ceiling())
    }

    /// Handles the commit of a group in steps: see [`CommitQueue::handle_commit`](crate::ledger::CommitQueue::handle_commit).
    #[must_use]
    pub(super) fn handle_commit(
        &mut self,
        sequence: u64,
        ceiling: Version,
        publisher: &dyn Publisher,
    ) -> bool {
        let Self { commit_queue, cluster, exchange, .. } = self;
        if let Some((_, taken)) = cluster.under_way.take_if(|(last, _)| *last <= sequence) {
            publisher.count_commit(clock::monotonic().saturating_duration_since(taken));
        }
        let has_more = commit_queue.handle_commit(sequence, ceiling, |answer| {
            let events = answer.send(publisher);
            if let Some(exchange) = exchange {
                exchange.report(events);
            }
        });
        if !has_more && let Some(exchange) = exchange {
            exchange.handle_committed();
        }
        has_more
    }

    /// Applies a record that another owner has committed.
    pub(super) fn restore(&mut self, record: Record, now: Now) {
        match record {
            Record::Key(record) => self.store.restore(&record.key.clone(), record.into_versioned()),
            Record::Registration(record) => self.restore_registration(&record),
            Record::Response(record) => {
                let ResponseRecord { client_id, fingerprint, payload, version, outcome, until_ms } = record;
                let response = Response::restored(&payload, version, outcome);
                let fingerprint = Fingerprint(fingerprint);
                self.cluster.answered.note(fingerprint, now.monotonic_ms);
                let restored = RestoredResponse { client_id, fingerprint, response, until_ms };
                self.duplicates.restore(restored, now.monotonic_ms);
            }
            Record::Exchange(id, row) => {
                if let Some(participant) = &mut self.exchange {
                    participant.exchange.restore(id, row.map(|row| *row));
                }
            }
        }
    }
}
