//! What the service's lock protects: the store, the commit queue, and the responses for duplicate detection.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::broker::Peer;
use crate::protocol::timestamp::COUNTER_MAX;
use crate::protocol::{ErrorReply, Key, Message, Reply, Request};
use crate::server::commit_queue::{
    BeforeImage, CommitQueue, IfFailed, RepeatableWrite, Unfinished, WriteIdentity,
};
use crate::server::delivery::{Outbound, Publisher, ReplyTo, Response};
use crate::server::duplicate_detection::{self, DuplicateDetection};
use crate::server::event::Event;
use crate::server::exchange::participant::{Participant, Rows};
use crate::server::service::cluster_state::{ClusterState, new_duplicates};
use crate::server::service::statistics::{DiskStatistics, ServiceStatistics};
use crate::server::service::tombstones::Tombstones;
use crate::store::{Change, Now, Store, StoreRequest, StoreResponse, Version};

/// How far the ceiling of versions is ahead of the clock, in milliseconds: for so long after a crash, new versions may be
/// ahead of the clock. A version that is further ahead, because that of a client is, waits for a commit.
const LEASE_MS: u64 = 10_000;
/// How long after the last write the ceiling follows the clock, in milliseconds. Later, the next write waits for a commit.
const IDLE_MS: u64 = 600_000;

/// One commit: all changes that were made while the previous commit was on its way to the disk.
#[derive(Debug)]
pub(super) struct CommitGroup {
    pub(super) changes: Vec<Change>,
    /// Rows of the exchange, and the last of its steps.
    pub(super) rows: Rows,
    pub(super) step: u64,
    /// Sequence number of the last change.
    pub(super) sequence: u64,
    /// The version above which keys without a record continue after a crash.
    pub(super) ceiling: Version,
}

/// The least time between two reports of forgotten replies, in milliseconds.
const FORGOTTEN_REPORT_MS: u64 = 60_000;
/// Keys that are committed at once after a failure, and as many rows.
const STALE_KEYS_MAX: usize = 1_000;

const NOT_AUTHORIZED: Reply = Reply::Error(ErrorReply::NotAuthorized);

pub(super) struct State {
    pub(super) store: Store,
    pub(super) duplicates: DuplicateDetection,
    /// How many forgotten responses have been reported, and when the next ones may be, in monotonic milliseconds.
    reported_forgotten: u64,
    reports_forgotten_ms: u64,
    /// `None` without a disk, unless the store is in a cluster.
    pub(super) commit_queue: Option<CommitQueue>,
    pub(super) tombstones: Tombstones,
    /// `None` unless the store is in a cluster.
    pub(super) cluster: Option<Box<ClusterState>>,
    /// `None` if the store takes part in no exchange.
    pub(super) exchange: Option<Box<Participant>>,
    /// Whether keys may be in memory only although there is a disk.
    has_memory_keys: bool,
    /// When the expiry task wakes by itself, in monotonic milliseconds.
    pub(super) expiry_wakes_ms: u64,
    pub(super) is_closing: bool,
    /// Whether a thread of connections commits, or has it done, when it has handled the packets that have arrived.
    is_turn_running: bool,
    /// Differs in each run of a store and, in a cluster, in each ownership: see [`ScanToken`](super::scan_token::ScanToken).
    life: u64,
    /// Whether the commit thread is to take what is uncommitted.
    pub(super) is_commit_due: bool,
    /// Whether the commit thread must be woken.
    pub(super) is_commit_thread_idle: bool,
}

/// What became of a request.
#[derive(Debug)]
pub(super) enum Handled {
    /// It was answered, or will be after a commit.
    Answered,
    /// It was answered: authorization for this key failed.
    NotAuthorized(Key),
    /// It was not applied and is not answered, for the reason given if there is one to report: another instance of the
    /// cluster answers it, or may do so.
    Ignored(Option<&'static str>),
}

impl State {
    pub(super) fn new(store: Store, has_disk: bool, has_memory_keys: bool) -> Self {
        let duplicates = new_duplicates(store.limits());
        Self {
            store,
            duplicates,
            reported_forgotten: 0,
            reports_forgotten_ms: 0,
            commit_queue: has_disk.then(CommitQueue::default),
            tombstones: Tombstones::default(),
            cluster: None,
            exchange: None,
            has_memory_keys,
            expiry_wakes_ms: 0,
            is_closing: false,
            is_turn_running: false,
            life: 0,
            is_commit_due: false,
            is_commit_thread_idle: false,
        }
    }

    pub(super) fn life(&self) -> u64 {
        self.life
    }

    pub(super) fn set_life(&mut self, life: u64) {
        self.life = life;
    }

    pub(super) fn statistics(&self) -> ServiceStatistics {
        let waiting_for_commit = self.commit_queue.as_ref().map_or(0, CommitQueue::waiting);
        let queue = self.commit_queue.as_ref();
        ServiceStatistics {
            store: self.store.statistics(),
            waiting_for_commit,
            recorded_bytes: self.duplicates.bytes(),
            recorded_bytes_max: self.duplicates.bytes_max(),
            recorded_forgotten: self.duplicates.forgotten(),
            disk: queue
                .filter(|queue| !queue.confirms_all())
                .map(|queue| DiskStatistics { is_short_of_room: queue.is_short_of_room() }),
            cluster: self.cluster_statistics(),
        }
    }

    pub(super) fn has_uncommitted(&self) -> bool {
        self.commit_queue.as_ref().is_some_and(CommitQueue::has_uncommitted)
    }

    /// Whether a commit of what is uncommitted must be arranged. Returns true once per group.
    pub(super) fn begin_turn(&mut self) -> bool {
        self.has_uncommitted() && !std::mem::replace(&mut self.is_turn_running, true)
    }

    /// Makes the next change be committed after the turn in which it is made.
    pub(super) fn end_turn(&mut self) {
        (self.is_turn_running, self.is_commit_due) = (false, false);
    }

    /// Handles a request of `from` and sends its response and notifications, now or after the commit. `message` is the
    /// message that the request arrived in.
    pub(super) fn handle_request(
        &mut self,
        publisher: &dyn Publisher,
        from: &Peer,
        request: StoreRequest,
        reply_to: ReplyTo,
        message: &Message,
        now: Now,
    ) -> Handled {
        if let Some(reason) = self.ignored_for() {
            return Handled::Ignored(reason);
        }
        match written_key(&request.request).cloned() {
            Some(key) => {
                let fingerprint =
                    self.duplicates.fingerprint(&reply_to.response_topic, &reply_to.correlation, message);
                let identity = WriteIdentity { fingerprint, expiry_s: message.expiry_s, refusals: 0 };
                self.handle_write(publisher, from, request, key, reply_to, identity, now)
            }
            None => self.handle_read(publisher, request, reply_to, now),
        }
    }

    /// Handles SET, DEL and VDEL, each applied once however often it is delivered (protocol §1).
    #[expect(clippy::too_many_arguments, reason = "the parts of one request")]
    fn handle_write(
        &mut self,
        publisher: &dyn Publisher,
        from: &Peer,
        mut request: StoreRequest,
        key: Key,
        reply_to: ReplyTo,
        identity: WriteIdentity,
        now: Now,
    ) -> Handled {
        let fingerprint = identity.fingerprint;
        let again = self.repeatable_write(from, &request, identity);
        if let Some(response) = self.duplicates.recognize(from, fingerprint, now.monotonic_ms) {
            // The first delivery may not be committed yet, and its response may still fail.
            self.send(publisher, Outbound::from((reply_to, response)), Some(&key), None);
            self.repeat_last_if_refused(again);
            return Handled::Answered;
        }
        if self.was_answered(fingerprint) {
            // Its response was discarded: it is older than those that are recorded.
            return Handled::Answered;
        }
        let takes_part = self.prepare_write(&mut request, &key);
        let is_persistent = request.persist || self.store.is_persistent(&key);
        let deletes = !matches!(request.request, Request::Set { .. });
        let queue = self.commit_queue.as_ref();
        let error = queue.and_then(|queue| queue.write_error(&key, is_persistent, deletes));
        // A deletion needs no room: one that is refused again would be refused for ever.
        let error = error.or((identity.refusals > 1).then_some(ErrorReply::QuotaExceeded));
        if let Some(error) = error {
            self.reject(publisher, reply_to, error.clone());
            self.repeat_last_if_refused(again);
            self.record_refusal(from, identity, error, now);
            return Handled::Answered;
        }
        let before = self.commit_queue.is_some().then(|| self.before_image(&key, now));
        let StoreResponse { reply, version, expired, mut change, .. } =
            self.store.handle_request(request, now);
        if let Some(expired) = expired {
            self.send_expired(publisher, expired, now);
        }
        if let Some(change) = change.as_mut().filter(|_| takes_part) {
            // The key may have been in memory only, until the walk. Its deletion has a row all the same.
            change.persist = true;
        }
        let queued = change.as_ref().zip(self.commit_queue.as_ref());
        if let Some(error) = queued.and_then(|(change, queue)| queue.ceiling_error(change)) {
            self.store.restore(&key, before.and_then(|(_, earlier)| earlier));
            Outbound::from((reply_to, Response::error(error))).send(publisher);
            return Handled::Answered;
        }
        let is_recorded = takes_part
            || self.exchange.as_ref().is_some_and(|participant| participant.exchange.has_leftovers());
        if let Some(change) = change.as_ref().filter(|_| is_recorded) {
            self.record_change(publisher, change, now);
        }
        let response = Response::new(&reply, version);
        let before = before.filter(|_| change.is_some());
        let outbound = Outbound { response: Some((reply_to, response.clone())), change };
        let sequence = self.send(publisher, outbound, Some(&key), before);
        if let Some(queue) = self.commit_queue.as_mut().filter(|_| sequence > 0) {
            queue.hold_last(from.hold_acknowledgement());
        }
        if let Some(again) = again {
            self.repeat_last_if_refused(Some(again));
            self.note_response(&from.client_id, identity, &response, sequence, now);
        }
        self.duplicates.record(from, fingerprint, response, identity.expiry_s, now.monotonic_ms, sequence);
        if reply == NOT_AUTHORIZED { Handled::NotAuthorized(key) } else { Handled::Answered }
    }

    /// Handles all requests that change no key.
    fn handle_read(
        &mut self,
        publisher: &dyn Publisher,
        request: StoreRequest,
        reply_to: ReplyTo,
        now: Now,
    ) -> Handled {
        let key = match &request.request {
            Request::Get { key } | Request::KeyNotify { key, .. } => Some(key.clone()),
            _ => None,
        };
        let mut if_failed = IfFailed::Send;
        if let Some(queue) = &self.commit_queue {
            // A read of an expired key removes it, and that change waits for a commit like any other.
            let alive = key.as_ref().filter(|key| !self.is_expired(key, now));
            if queue.must_wait(alive) {
                if let Some(error) = queue.error_if_full() {
                    Outbound::from((reply_to, Response::error(error))).send(publisher);
                    return Handled::Answered;
                }
                if queue.confirms_all() || !matches!(request.request, Request::KeyNotify { .. }) {
                    if_failed = IfFailed::Repeat(Box::new(request.clone()));
                }
            }
        }
        let watch = match self.begin_watch(&request) {
            Ok(watch) => watch,
            Err(error) => {
                self.reject(publisher, reply_to, error);
                return Handled::Answered;
            }
        };
        let StoreResponse { reply, payload, version, expired, .. } = self.store.handle_request(request, now);
        if let Some(expired) = expired {
            self.send_expired(publisher, expired, now);
        }
        let outbound = Outbound::from((reply_to, Response::with_payload(payload, &reply, version)));
        let outbound = match &mut self.commit_queue {
            Some(queue) => queue.enqueue_read(outbound, key.as_ref(), if_failed),
            None => Some(outbound),
        };
        if let Some(outbound) = outbound {
            outbound.send(publisher);
        }
        if let Some(watch) = watch {
            self.note_watch(watch);
        }
        key.filter(|_| reply == NOT_AUTHORIZED).map_or(Handled::Answered, Handled::NotAuthorized)
    }

    /// Returns the number of commits that have failed.
    pub(super) fn commit_failures(&self) -> u64 {
        self.commit_queue.as_ref().map_or(0, CommitQueue::failures)
    }

    /// Sends the page of a SCAN: it may show any change, so that it waits for the commits of all.
    pub(super) fn send_page(&mut self, publisher: &dyn Publisher, page: Outbound) {
        let queue = self.commit_queue.as_ref().filter(|queue| queue.must_wait(None));
        match queue.and_then(CommitQueue::error_if_full) {
            Some(error) => {
                let response = page.response.map(|(to, _)| (to, Response::error(error)));
                Outbound { response, change: None }.send(publisher);
            }
            None => _ = self.send(publisher, page, None, None),
        }
    }

    /// Sends an error that depends on the state: in a cluster, after a confirmation.
    pub(super) fn reject(&mut self, publisher: &dyn Publisher, reply_to: ReplyTo, error: ErrorReply) {
        let outbound = Outbound::from((reply_to, Response::error(error)));
        match self.commit_queue.as_mut().filter(|queue| queue.confirms_all()) {
            Some(queue) => _ = queue.enqueue_read(outbound, None, IfFailed::Send),
            None => outbound.send(publisher),
        }
    }

    fn send_expired(&mut self, publisher: &dyn Publisher, expired: Change, now: Now) {
        let key = expired.key.clone();
        self.record_expired(publisher, &key, now);
        self.send(publisher, expired.into(), Some(&key), None);
    }

    /// Sends now or, if that depends on changes that are not committed, later: see [`CommitQueue::enqueue`]. Returns the
    /// sequence number of the change that it waits for, 0 if it does not wait.
    pub(super) fn send(
        &mut self,
        publisher: &dyn Publisher,
        outbound: Outbound,
        key: Option<&Key>,
        before: Option<BeforeImage>,
    ) -> u64 {
        self.note_row(outbound.change.as_ref());
        let outbound = match &mut self.commit_queue {
            Some(queue) => queue.enqueue(outbound, key, before),
            None => Some(outbound),
        };
        match outbound {
            Some(outbound) => outbound.send(publisher),
            None => return self.commit_queue.as_ref().map_or(0, CommitQueue::sequence),
        }
        0
    }

    fn is_expired(&self, key: &Key, now: Now) -> bool {
        let deadline_ms = self.store.read(key).and_then(|(_, stored)| stored.deadline_ms);
        deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now.monotonic_ms)
    }

    /// Handles the end of a client's connection. Returns what is to be dropped without the lock.
    pub(super) fn handle_disconnect(&mut self, peer: &Peer) -> Option<Box<duplicate_detection::Client>> {
        self.store.handle_disconnect(peer.connection);
        if let Some(exchange) = &mut self.exchange {
            exchange.handle_disconnect(peer.connection);
        }
        self.duplicates.handle_disconnect(peer)
    }

    /// Discards the responses of requests that can no longer be delivered again. Must be called about once a second.
    /// Returns what is to be reported of forgotten ones.
    pub(super) fn discard_expired_responses(&mut self, now: Now) -> Option<Event> {
        self.duplicates.discard_expired(now.monotonic_ms);
        let count = self.duplicates.forgotten().saturating_sub(self.reported_forgotten);
        if count == 0 || now.monotonic_ms < self.reports_forgotten_ms {
            return None;
        }
        self.reported_forgotten = self.duplicates.forgotten();
        self.reports_forgotten_ms = now.monotonic_ms.saturating_add(FORGOTTEN_REPORT_MS);
        let owner = self.duplicates.largest_owner().map_or_else(|| "".into(), Arc::clone);
        Some(Event::RepliesForgotten { count, owner })
    }

    /// Removes expired keys, unless the commit queue is half full. Returns when to do so again, in monotonic
    /// milliseconds.
    pub(super) fn expire(&mut self, publisher: &dyn Publisher, now: Now) -> u64 {
        if self.may_expire() {
            for change in self.store.poll_expired(now) {
                self.send_expired(publisher, change, now);
            }
        }
        self.expiry_wakes_ms = self.next_expiry().unwrap_or(u64::MAX);
        self.expiry_wakes_ms
    }

    /// Returns when the next keys are to be removed, in monotonic milliseconds; `None` if there are none, or if the
    /// commit queue must drain first.
    pub(super) fn next_expiry(&self) -> Option<u64> {
        if self.may_expire() { self.store.next_expiry() } else { None }
    }

    fn may_expire(&self) -> bool {
        !self.commit_queue.as_ref().is_some_and(CommitQueue::is_half_full)
            && self.cluster.as_ref().is_none_or(|cluster| cluster.is_serving())
    }

    /// Returns the state of a key before a change. A key that has expired is absent: its expiry is not rolled back.
    pub(super) fn before_image(&self, key: &Key, now: Now) -> BeforeImage {
        let is_alive = |deadline_ms| deadline_ms > now.monotonic_ms;
        let before = self.store.read(key).filter(|(_, stored)| stored.deadline_ms.is_none_or(is_alive));
        (key.clone(), before)
    }

    /// Takes what the next commit must have; `None` if nothing waits for one, and none is due.
    ///
    /// A key in memory does not wait for a commit if its version is below the ceiling that is on disk, above which the
    /// store continues after a crash. So the ceiling must stay ahead of the clock while such keys are written.
    pub(super) fn take_group(&mut self, now: Now) -> Option<CommitGroup> {
        self.end_turn();
        let queue = self.commit_queue.as_mut()?;
        if let Some((mut changes, sequence)) = queue.take_group() {
            let (rows, step) =
                self.exchange.as_mut().map(|exchange| exchange.take_rows()).unwrap_or_default();
            let ceiling = self.complete(&mut changes, now);
            return Some(CommitGroup { changes, rows, step, sequence, ceiling });
        }
        let (on_disk, greatest) = (queue.ceiling(), self.store.greatest_version());
        let is_in_use = !self.is_closing && greatest.ms.saturating_add(IDLE_MS) > now.wall_ms;
        let is_due = is_in_use && self.next_ceiling(now).ms.saturating_sub(on_disk.ms) >= LEASE_MS / 2;
        is_due.then(|| self.empty_group(now))
    }

    /// Returns a group without changes of clients.
    pub(super) fn empty_group(&mut self, now: Now) -> CommitGroup {
        let sequence = self.commit_queue.as_ref().map_or(0, CommitQueue::sequence);
        let mut changes = Vec::new();
        let ceiling = self.complete(&mut changes, now);
        CommitGroup { changes, rows: Rows::new(), step: 0, sequence, ceiling }
    }

    /// Completes the changes of a commit by those of the tombstones, and returns its ceiling.
    pub(super) fn complete(&mut self, changes: &mut Vec<Change>, now: Now) -> Version {
        let (ceiling, store) = (self.next_ceiling(now), &self.store);
        let greatest = store.greatest_version();
        self.tombstones.complete(changes, ceiling, greatest, |key| store.is_persistent(key))
    }

    /// Lowers the ceiling when the service closes, because no version of a key without a record is sent from now on: to
    /// the greatest version given out, unless that belongs to a client that is ahead. Returns `None` if it is no higher.
    pub(super) fn lower_ceiling(&mut self) -> Option<Version> {
        let ceiling = self.store.greatest_version();
        let queue = self.commit_queue.as_mut().filter(|queue| queue.ceiling() > ceiling)?;
        queue.set_ceiling(ceiling);
        Some(ceiling)
    }

    /// Returns the ceiling for the next commit: at least what is on disk already.
    ///
    /// It follows the store's clock, not the versions of clients that are ahead: after a crash, the versions of all keys
    /// are above it. Versions that are further ahead are in the record or the tombstone of their key. On a disk without
    /// room for tombstones, it follows all versions.
    pub(super) fn next_ceiling(&self, now: Now) -> Version {
        let (greatest, clock_ms) = (self.store.greatest_version(), self.store.wall_ms().max(now.wall_ms));
        let queue = self.commit_queue.as_ref();
        // A clock that is behind those of an earlier process: new keys continue above these.
        let above_floor_ms = self.store.floor().ms.saturating_add(1);
        let ms = clock_ms.saturating_add(LEASE_MS).max(above_floor_ms);
        let follows_all = queue.is_some_and(CommitQueue::is_short_of_room);
        let ms = if follows_all { ms.max(greatest.ms) } else { ms };
        let lease = Version { ms, counter: COUNTER_MAX };
        let ceiling = if self.has_memory_keys { lease } else { greatest.min(lease) };
        ceiling.max(queue.map(CommitQueue::ceiling).unwrap_or_default())
    }

    /// Handles the commit of a group in steps: see [`CommitQueue::handle_commit`].
    #[must_use]
    pub(super) fn handle_commit(
        &mut self,
        sequence: u64,
        ceiling: Version,
        publisher: &dyn Publisher,
    ) -> bool {
        let queue = self.commit_queue.as_mut();
        queue.is_some_and(|queue| queue.handle_commit(sequence, ceiling, publisher))
    }

    /// Handles a failed commit: rolls back every change that is not on disk.
    pub(super) fn handle_commit_failure(&mut self, publisher: &dyn Publisher, now: Now) {
        let Some(queue) = &mut self.commit_queue else { return };
        // The turn has nothing left to commit.
        self.is_turn_running = false;
        let last = queue.sequence();
        let (committed, unfinished) = queue.handle_commit_failure(&mut self.store, 0);
        self.duplicates.handle_rollback(committed, last, now.monotonic_ms);
        if let Some(exchange) = &mut self.exchange {
            exchange.handle_commit_failure();
        }
        // An expiry is not rolled back, but its rows are.
        let rolled_back = self.commit_queue.iter().flat_map(CommitQueue::rolled_back_keys);
        let expired = rolled_back.filter(|key| self.store.read(key).is_none());
        for key in expired.cloned().collect::<Vec<_>>() {
            self.record_expired(publisher, &key, now);
        }
        self.finish(publisher, unfinished, now, false);
    }

    /// Does what a failed commit leaves to be done for clients. `is_for_good`: another attempt fails as this one has.
    pub(super) fn finish(
        &mut self,
        publisher: &dyn Publisher,
        unfinished: Vec<Unfinished>,
        now: Now,
        is_for_good: bool,
    ) {
        for unfinished in unfinished {
            match unfinished {
                Unfinished::Send(outbound) if self.cluster.is_some() => {
                    self.send(publisher, *outbound, None, None);
                }
                Unfinished::Send(outbound) => outbound.send(publisher),
                Unfinished::Repeat(reply_to, request) => {
                    self.handle_read(publisher, *request, reply_to, now);
                }
                Unfinished::RepeatWrite(reply_to, write) => {
                    let RepeatableWrite { request, from, mut identity } = *write;
                    identity.refusals = identity.refusals.saturating_add(u8::from(is_for_good));
                    if let Some(key) = written_key(&request.request).cloned() {
                        self.handle_write(publisher, &from, request, key, reply_to, identity, now);
                    }
                }
            }
        }
    }

    /// Whether persistent keys may be deleted only.
    pub(super) fn set_short_of_room(&mut self, is_short_of_room: bool) {
        if let Some(queue) = &mut self.commit_queue {
            queue.set_short_of_room(is_short_of_room);
        }
    }

    /// Returns, after a failure, the current state of keys and rows of which the disk may hold another one: a portion,
    /// because the disk may be nearly full.
    ///
    /// With an exchange, everything that was rolled back is the first portion, because rows and the values that they are
    /// about agree on disk; it is no larger than the groups that have failed. Later ones have the keys that have expired
    /// since, which do not depend on each other, each with its row.
    pub(super) fn stale_changes(&self) -> (Vec<Change>, Rows) {
        let keys = |max| self.commit_queue.iter().flat_map(CommitQueue::rolled_back_keys).take(max);
        let mut keys: Vec<_> = match &self.exchange {
            // The value of a row may have expired since.
            Some(exchange) => {
                let keys: BTreeSet<_> = keys(usize::MAX).chain(exchange.rolled_back_keys()).collect();
                keys.into_iter().cloned().collect()
            }
            None => keys(STALE_KEYS_MAX).cloned().collect(),
        };
        if keys.is_empty() {
            let expired = self.commit_queue.iter().flat_map(CommitQueue::expired_keys);
            keys.extend(expired.take(STALE_KEYS_MAX).cloned());
        }
        let rows = self.exchange.as_ref().map(|exchange| exchange.stale_rows(&keys, STALE_KEYS_MAX));
        let change = |key: Key| {
            let persistent = self.store.read(&key).filter(|(_, stored)| stored.persist);
            let content = persistent.map(|(_, stored)| stored);
            let version = self.store.last_version(&key).unwrap_or_default();
            Change { key, version, content, persist: true, watchers: Vec::new(), notification: None }
        };
        (keys.into_iter().map(change).collect(), rows.unwrap_or_default())
    }

    /// Handles the commit of [`State::stale_changes`]. Returns whether changes are accepted again.
    pub(super) fn handle_recovery(&mut self, (changes, rows): (&[Change], &Rows), ceiling: Version) -> bool {
        let has_stale_rows =
            self.exchange.as_mut().is_some_and(|exchange| !exchange.handle_rows_recovered(rows));
        let keys: Vec<_> = changes.iter().map(|change| change.key.clone()).collect();
        let queue = self.commit_queue.as_mut();
        let is_recovered = queue.is_none_or(|queue| queue.handle_recovery(&keys, ceiling, has_stale_rows));
        if let Some(exchange) = self.exchange.as_mut().filter(|_| is_recovered) {
            exchange.handle_recovery();
        }
        is_recovered
    }
}

/// Returns the key that a request may change.
fn written_key(request: &Request) -> Option<&Key> {
    match request {
        Request::Set { key, .. } | Request::Del { key } | Request::VDel { key, .. } => Some(key),
        Request::Get { .. } | Request::KeyNotify { .. } | Request::Scan { .. } => None,
    }
}
