//! Commits of the service's state: what a group has, what a commit sends, and what a failed one undoes.

use std::collections::BTreeSet;

use super::state::State;
use crate::clock;
use crate::exchange::row::RowId;
use crate::ledger::{Failed, FileLedger, Group, KeyRecord, LedgerKind, Record, ResponseRecord, Undo};
use crate::protocol::ErrorReply;
use crate::protocol::timestamp::COUNTER_MAX;
use crate::server::delivery::{Outbound, Publisher, Response};
use crate::server::duplicate_detection::{Fingerprint, RestoredResponse};
use crate::server::waiting_answer::{WaitingAnswer, WaitingWrite};
use crate::store::{Now, Version};

/// How far the ceiling of versions is ahead of the clock, in milliseconds: for so long after a crash, new versions may be
/// ahead of the clock. A version that is further ahead, because that of a client is, waits for a commit.
const LEASE_MS: u64 = 10_000;
/// How long after the last write the ceiling follows the clock, in milliseconds. Later, the next write waits for a commit.
const IDLE_MS: u64 = 600_000;

impl State {
    /// Takes what the next commit must have; `None` if nothing waits for one, and none is due, or if the disk fails.
    ///
    /// A key in memory does not wait for a commit if its version is below the ceiling that is on disk, above which the
    /// store continues after a crash. So the ceiling must stay ahead of the clock while such keys are written.
    pub(super) fn take_group(&mut self, now: Now) -> Option<Group> {
        self.end_turn();
        if self.commit_queue.has_failed() {
            return None;
        }
        let group = self.commit_queue.take_group();
        match self.ledger() {
            LedgerKind::Memory => None,
            LedgerKind::File => {
                let Some(mut group) = group else {
                    return self.is_ceiling_due(now).then(|| self.empty_group(now));
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

    /// Takes a portion of what has changed while the disk failed: an empty group if nothing has.
    pub(super) fn recovery_group(&mut self, now: Now) -> Group {
        let Some(mut group) = self.commit_queue.take_group() else { return self.empty_group(now) };
        self.complete(&mut group, now);
        group
    }

    /// Returns a group without records of clients.
    pub(super) fn empty_group(&mut self, now: Now) -> Group {
        let mut group = Group { sequence: self.commit_queue.sequence(), ..Group::default() };
        self.complete(&mut group, now);
        group
    }

    /// Completes a group by its ceiling and the tombstones.
    fn complete(&mut self, group: &mut Group, now: Now) {
        if let Some(exchange) = self.exchange.as_mut().filter(|_| !self.commit_queue.has_uncommitted()) {
            exchange.handle_taken();
        }
        let (ceiling, store) = (self.next_ceiling(now), &self.store);
        let greatest = store.greatest_version();
        let is_persistent = |key: &_| store.is_persistent(key);
        group.ceiling = self.tombstones.complete(&mut group.records, ceiling, greatest, is_persistent);
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
        let follows_all = self.commit_queue.is_short_of_room();
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

    /// Handles a failed commit: puts all uncommitted records back, from the last to the first, and handles the requests that
    /// waited again. They are answered if they only read; others are refused.
    pub(super) fn handle_commit_failure(&mut self, publisher: &dyn Publisher, now: Now) {
        self.end_turn();
        let Failed { committed, last, undo, answers } = self.commit_queue.take_all_undone();
        self.duplicates.handle_rollback(committed, last, now.monotonic_ms);
        let (mut repeated, mut are_rules_back) = (Vec::new(), false);
        for undo in undo.into_iter().rev() {
            are_rules_back |= matches!(undo.record(), Record::Exchange(RowId::Rules, _));
            match undo {
                Undo::Restore(record) => self.restore(record, now),
                Undo::Repeat(record) => repeated.push(record),
            }
        }
        self.handle_rows_restored(publisher, are_rules_back, now);
        repeated.reverse();
        self.repeat(publisher, repeated, now);
        answers.into_iter().for_each(|answer| self.handle_again(publisher, answer, now));
    }

    /// Adds again, as it is now, what a failed commit had and is not undone: in one step the rows that depend on others, then
    /// each key with its row.
    fn repeat(&mut self, publisher: &dyn Publisher, records: Vec<Record>, now: Now) {
        let (mut keys, mut rows) = (BTreeSet::new(), BTreeSet::new());
        for record in records {
            self.commit_queue.begin_step();
            match record {
                Record::Key(KeyRecord { key, .. }) | Record::Exchange(RowId::Key(key), _) => {
                    keys.insert(key);
                }
                Record::Exchange(id, _) => _ = rows.insert(id),
                Record::Registration(_) | Record::Response(_) => {}
            }
        }
        self.commit_queue.begin_step();
        rows.into_iter().for_each(|id| self.repeat_row(id));
        for key in keys {
            self.commit_queue.begin_step();
            if self.store.read(&key).is_none() {
                // An expiry is not undone, but its rows may be.
                self.record_expired(publisher, &key, now);
            }
            let persistent = self.store.read(&key).filter(|(_, stored)| stored.persist);
            let version = self.store.last_version(&key).unwrap_or_default();
            let content = persistent.map(|(_, stored)| stored);
            self.repeat_record(Record::Key(KeyRecord { key: key.clone(), version, content }));
            self.repeat_row(RowId::Key(key));
        }
    }

    fn repeat_row(&mut self, id: RowId) {
        let Some(participant) = &self.exchange else { return };
        let row = participant.exchange.row(&id).map(Box::new);
        self.repeat_record(Record::Exchange(id, row));
    }

    fn repeat_record(&mut self, record: Record) {
        self.commit_queue.add_record(Some(Undo::Repeat(record.clone())), record);
    }

    /// Handles again what waited for a commit that has failed.
    fn handle_again(&mut self, publisher: &dyn Publisher, answer: WaitingAnswer, now: Now) {
        match answer {
            WaitingAnswer::Write(Outbound { response: Some((reply_to, _)), .. }, Some(write), _) => {
                let WaitingWrite { request, from, identity } = *write;
                self.handle_write(publisher, &from, request, reply_to, identity, now);
            }
            WaitingAnswer::Read(reply_to, _, request) => {
                _ = self.handle_read(publisher, *request, reply_to, now)
            }
            WaitingAnswer::View(reply_to, _) => self.reject(publisher, reply_to, ErrorReply::NotPersisted),
            answer @ WaitingAnswer::Independent(..) => {
                self.commit_queue.begin_step();
                self.answer(publisher, answer);
            }
            // An expiry needs no commit to be true. Any other change is undone.
            WaitingAnswer::Notifications(change) => {
                if change.content.is_none() && self.store.read(&change.key).is_none() {
                    self.commit_queue.begin_step();
                    self.answer(publisher, WaitingAnswer::Notifications(change));
                }
            }
            WaitingAnswer::Events(_) | WaitingAnswer::Write(..) => {}
        }
    }

    /// Applies a record without a check: one that another owner has committed, or one that is put back.
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

    /// Notes what the disk has room for.
    pub(super) fn set_room(&mut self, storage: &FileLedger) {
        self.lacks_room = storage.lacks_room();
        self.commit_queue.set_short_of_room(storage.is_short_of_room());
    }
}
