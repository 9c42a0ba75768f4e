//! Commits of the service's state: what a group has, what a commit sends, and what a failed one undoes.

use std::collections::BTreeSet;

use super::state::State;
use crate::clock;
use crate::exchange::row::RowId;
use crate::ledger::{Address, Failed, Group, KeyRecord, LedgerKind, Record, ResponseRecord, Undo};
use crate::protocol::ErrorReply;
use crate::protocol::timestamp::COUNTER_MAX;
use crate::server::delivery::{Publisher, Response};
use crate::server::duplicate_detection::{Fingerprint, RestoredResponse};
use crate::server::waiting_answer::{WaitingAnswer, WaitingWrite};
use crate::store::{Now, Version};

/// How far the ceiling of versions is ahead of the clock, in milliseconds: for so long after a crash, new versions may be
/// ahead of the clock. A version that is further ahead, because that of a client is, waits for a commit.
const LEASE_MS: u64 = 10_000;
/// How long after the last write the ceiling follows the clock, in milliseconds. Later, the next write waits for a commit.
const IDLE_MS: u64 = 600_000;
/// Addresses that are committed at once after a failure.
const STALE_MAX: usize = 1_000;

impl State {
    /// Takes what the next commit must have; `None` if nothing waits for one, and none is due.
    ///
    /// A key in memory does not wait for a commit if its version is below the ceiling that is on disk, above which the
    /// store continues after a crash. So the ceiling must stay ahead of the clock while such keys are written.
    pub(super) fn take_group(&mut self, now: Now) -> Option<Group> {
        self.end_turn();
        let group = self.commit_queue.take_group();
        match self.ledger() {
            LedgerKind::Memory => None,
            LedgerKind::File => {
                let Some(mut group) = group else {
                    return self.is_ceiling_due(now).then(|| self.empty_group(now));
                };
                if let Some(exchange) = &mut self.exchange {
                    exchange.handle_taken();
                }
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
        let mut group = Group { sequence: self.commit_queue.sequence(), ..Group::default() };
        self.complete(&mut group, now);
        group
    }

    /// Completes a group by its ceiling and the tombstones.
    fn complete(&mut self, group: &mut Group, now: Now) {
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
    /// waited again. They are answered if they only read; without room, others are refused. Of those that etcd may still
    /// commit, up to the step `uncertain`, no write and no registration is answered: an error could turn out to be wrong.
    pub(super) fn handle_commit_failure(&mut self, uncertain: u64, publisher: &dyn Publisher, now: Now) {
        self.end_turn();
        let Failed { committed, last, undo, answers } = self.commit_queue.fail();
        self.duplicates.handle_rollback(committed, last, now.monotonic_ms);
        self.cluster.under_way = None;
        let (mut repeated, mut keys, mut are_rules_back) = (Vec::new(), BTreeSet::new(), false);
        for undo in undo.into_iter().rev() {
            match undo.record() {
                Record::Exchange(RowId::Rules, _) => are_rules_back = true,
                Record::Key(record) if self.exchange.is_some() => _ = keys.insert(record.key.clone()),
                _ => {}
            }
            match undo {
                Undo::Restore(record) => self.restore(record, now),
                Undo::Repeat(record) => repeated.push(record),
            }
        }
        self.handle_rows_restored(publisher, are_rules_back, &keys, now);
        for record in repeated.into_iter().rev() {
            let is_true = match &record {
                Record::Key(record) => self.store.read(&record.key).is_none(),
                _ => true,
            };
            if is_true {
                self.commit_queue.begin_step();
                self.commit_queue.add_record(Some(Undo::Repeat(record.clone())), record);
            }
        }
        let was_short_of_room = self.commit_queue.is_short_of_room();
        self.commit_queue.set_short_of_room(true);
        for (sequence, answer) in answers {
            if sequence > uncertain || !answer.needs_room() {
                self.handle_again(publisher, answer, !was_short_of_room, now);
            }
        }
        self.commit_queue.set_short_of_room(was_short_of_room);
    }

    /// Handles again what waited for a commit that has failed. `is_for_good`: for lack of room it has not, so that another
    /// attempt fails as this one has.
    fn handle_again(
        &mut self,
        publisher: &dyn Publisher,
        answer: WaitingAnswer,
        is_for_good: bool,
        now: Now,
    ) {
        match answer {
            WaitingAnswer::Write(outbound, write, _) => {
                let WaitingWrite { request, from, mut identity } = *write;
                identity.refusals = identity.refusals.saturating_add(u8::from(is_for_good));
                if let Some((reply_to, _)) = outbound.response {
                    self.handle_write(publisher, &from, request, reply_to, identity, now);
                }
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
            WaitingAnswer::Events(_) => {}
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

    /// Whether persistent keys may be deleted only.
    pub(super) fn set_short_of_room(&mut self, is_short_of_room: bool) {
        self.commit_queue.set_short_of_room(is_short_of_room);
    }

    /// Returns, after a failure, a group of what the disk may hold in another state, as it is now: a portion, see
    /// [`CommitQueue::take_stale`](crate::ledger::CommitQueue::take_stale).
    pub(super) fn stale_group(&mut self, now: Now) -> Group {
        let addresses = self.commit_queue.take_stale(STALE_MAX, self.exchange.is_some());
        let mut records = Vec::new();
        for address in addresses {
            let row = match address {
                Address::Key(key) => {
                    let persistent = self.store.read(&key).filter(|(_, stored)| stored.persist);
                    let version = self.store.last_version(&key).unwrap_or_default();
                    let content = persistent.map(|(_, stored)| stored);
                    records.push((0, Record::Key(KeyRecord { key: key.clone(), version, content })));
                    RowId::Key(key)
                }
                Address::Exchange(id) => id,
            };
            if let Some(participant) = &self.exchange {
                let current = participant.exchange.row(&row).map(Box::new);
                records.push((0, Record::Exchange(row, current)));
            }
        }
        let mut group = Group { records, ..Group::default() };
        self.complete(&mut group, now);
        group
    }

    /// Handles the commit of [`State::stale_group`]. Returns whether changes are accepted again.
    pub(super) fn handle_recovery(&mut self, ceiling: Version) -> bool {
        let is_recovered = self.commit_queue.handle_recovery(ceiling);
        if let Some(exchange) = self.exchange.as_mut().filter(|_| is_recovered) {
            exchange.handle_recovery();
        }
        is_recovered
    }

    /// Returns the number of commits that have failed.
    pub(super) fn commit_failures(&self) -> u64 {
        self.commit_queue.failures()
    }

    /// Whether there is a disk, or another instance may take over.
    pub(super) fn is_in_memory(&self) -> bool {
        self.ledger() == LedgerKind::Memory
    }
}
