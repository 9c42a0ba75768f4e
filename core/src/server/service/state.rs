//! What the service's lock protects: the store, the commit queue, and the responses for duplicate detection.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::broker::{HeldAcknowledgement, Peer};
use crate::ledger::{CommitQueue, DependsOn, KeyRecord, LedgerKind, Record, Undo};
use crate::protocol::message::PREFIX;
use crate::protocol::{Details, ErrorReply, Key, Message, Reply, Request, UserProperties};
use crate::server::delivery::{Outbound, Publisher, ReplyTo, Response};
use crate::server::duplicate_detection::{self, DuplicateDetection};
use crate::server::event::Event;
use crate::server::exchange::participant::Participant;
use crate::server::service::cluster_state::{ClusterState, ClusterStatistics, new_duplicates};
use crate::server::service::statistics::{DiskStatistics, ServiceStatistics};
use crate::server::service::tombstones::Tombstones;
use crate::server::waiting_answer::{WaitingAnswer, WaitingWrite, WriteIdentity};
use crate::store::{Change, Now, Store, StoreRequest, StoreResponse, StoredValue, Version};

/// The least time between two reports of forgotten replies, in milliseconds.
const FORGOTTEN_REPORT_MS: u64 = 60_000;

const NOT_AUTHORIZED: Reply = Reply::Error(ErrorReply::NotAuthorized);

pub(super) struct State {
    pub(super) store: Store,
    pub(super) duplicates: DuplicateDetection,
    /// How many forgotten responses have been reported, and when the next ones may be, in monotonic milliseconds.
    reported_forgotten: u64,
    reports_forgotten_ms: u64,
    pub(super) commit_queue: CommitQueue<WaitingAnswer>,
    pub(super) tombstones: Tombstones,
    pub(super) cluster: ClusterState,
    /// `None` if the store takes part in no exchange.
    pub(super) exchange: Option<Box<Participant>>,
    /// Whether keys may be in memory only although there is a disk.
    pub(super) has_memory_keys: bool,
    /// Whether writes are refused for lack of room on the disk: all but deletions, or some.
    pub(super) lacks_room: bool,
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
    /// Returns the state of an instance: with etcd it follows at first, otherwise it serves.
    pub(super) fn new(
        store: Store,
        ledger: LedgerKind,
        has_registrations: bool,
        has_memory_keys: bool,
    ) -> Self {
        let duplicates = new_duplicates(store.limits());
        Self {
            store,
            duplicates,
            reported_forgotten: 0,
            reports_forgotten_ms: 0,
            commit_queue: CommitQueue::new(ledger),
            tombstones: Tombstones::default(),
            cluster: ClusterState::new(has_registrations, ledger != LedgerKind::Etcd),
            exchange: None,
            has_memory_keys,
            lacks_room: false,
            expiry_wakes_ms: 0,
            is_closing: false,
            is_turn_running: false,
            life: 0,
            is_commit_due: false,
            is_commit_thread_idle: false,
        }
    }

    pub(super) fn ledger(&self) -> LedgerKind {
        self.commit_queue.ledger()
    }

    pub(super) fn life(&self) -> u64 {
        self.life
    }

    pub(super) fn set_life(&mut self, life: u64) {
        self.life = life;
    }

    pub(super) fn statistics(&self) -> ServiceStatistics {
        let (queue, is_serving) = (&self.commit_queue, self.cluster.is_serving);
        let is_short_of_room = queue.is_short_of_room();
        let has = |ledger| self.ledger() == ledger;
        ServiceStatistics {
            store: self.store.statistics(),
            waiting_for_commit: queue.waiting(),
            recorded_bytes: self.duplicates.bytes(),
            recorded_bytes_max: self.duplicates.bytes_max(),
            recorded_forgotten: self.duplicates.forgotten(),
            disk: has(LedgerKind::File)
                .then_some(DiskStatistics { is_short_of_room, lacks_room: self.lacks_room }),
            cluster: has(LedgerKind::Etcd).then_some(ClusterStatistics { is_serving, is_short_of_room }),
        }
    }

    /// Whether a commit of what is uncommitted must be arranged. Returns true once per group.
    pub(super) fn begin_turn(&mut self) -> bool {
        self.commit_queue.has_uncommitted() && !std::mem::replace(&mut self.is_turn_running, true)
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
        if written_key(&request.request).is_none()
            && let Some(error) = self.error_while_paused()
        {
            Outbound::from((reply_to, Response::error(error))).send(publisher);
            return Handled::Answered;
        }
        if let Some(reason) = self.ignored_for() {
            return Handled::Ignored(reason);
        }
        if written_key(&request.request).is_none() {
            return self.handle_read(publisher, request, reply_to, now);
        }
        let fingerprint =
            self.duplicates.fingerprint(&reply_to.response_topic, &reply_to.correlation, message);
        let identity = WriteIdentity { fingerprint, expiry_s: message.expiry_s };
        self.handle_write(publisher, from, request, reply_to, identity, now)
    }

    /// Handles SET, DEL and VDEL, each applied once however often it is delivered (protocol §1).
    pub(super) fn handle_write(
        &mut self,
        publisher: &dyn Publisher,
        from: &Peer,
        mut request: StoreRequest,
        mut reply_to: ReplyTo,
        identity: WriteIdentity,
        now: Now,
    ) -> Handled {
        let Some(key) = written_key(&request.request).cloned() else { return Handled::Answered };
        self.commit_queue.begin_step();
        if let Some(response) = self.duplicates.recognize(from, identity.fingerprint, now.monotonic_ms) {
            // The first delivery may not be committed yet, and its response may still fail.
            let waits = self.commit_queue.waits(DependsOn::Key(&key));
            let write = (waits && self.undoes()).then(|| WaitingWrite::new(request, from, identity));
            self.answer_write(publisher, Outbound::from((reply_to, response)), waits, write, None);
            return Handled::Answered;
        }
        if self.was_answered(identity.fingerprint) {
            // Its response was discarded: it is older than those that are recorded.
            return Handled::Answered;
        }
        let takes_part = self.takes_part(&key);
        let is_persistent = request.persist || takes_part || self.store.is_persistent(&key);
        let deletes = !matches!(request.request, Request::Set { .. });
        if let Some(error) = self.commit_queue.write_error(&key, is_persistent, deletes) {
            self.refuse_write(publisher, from, reply_to, identity, error, now);
            return Handled::Answered;
        }
        let before = self.may_be_undone(&request, &key, is_persistent, now).then(|| {
            (
                WaitingWrite::new(request.clone(), from, identity),
                KeyRecord::new(key.clone(), self.read(&key, now)),
            )
        });
        self.prepare_write(&mut request, &key, takes_part);
        let StoreResponse { reply, version, expired, mut change, .. } =
            self.store.handle_request(request, now);
        if let Some(expired) = expired {
            self.send_expired(publisher, expired, now);
            self.commit_queue.begin_step();
        }
        if let Some(change) = change.as_mut().filter(|_| takes_part) {
            // The key may have been in memory only, until the walk. Its deletion has a row all the same.
            change.persist = true;
        }
        if let Some(error) = change.as_ref().and_then(|change| self.commit_queue.ceiling_error(change)) {
            self.store.restore(&key, before.and_then(|(_, before)| before.into_versioned()));
            Outbound::from((reply_to, Response::error(error))).send(publisher);
            return Handled::Answered;
        }
        if let Some(change) = change.as_ref().filter(|_| takes_part || self.has_leftovers()) {
            self.record_change(publisher, change, reply_to.details.as_mut(), now);
        }
        let depends_on = change.as_ref().map_or(DependsOn::Key(&key), DependsOn::Change);
        let waits = self.commit_queue.waits(depends_on);
        debug_assert!(before.is_some() || !(waits && self.undoes()), "a write that waits can be undone");
        let (mut write, mut acknowledgement) = (None, None);
        let response = Response::new(&reply, version);
        if waits {
            let (again, before) = before.unzip();
            if let Some(change) = &change {
                let undo = before.map(|before| Undo::Restore(Record::Key(before)));
                self.commit_queue.add_record(undo, change.into());
            }
            self.record_response(&from.client_id, identity, &response, now);
            (write, acknowledgement) = (again, from.hold_acknowledgement());
        }
        let outbound = Outbound { response: Some((reply_to, response.clone())), change };
        let sequence = self.answer_write(publisher, outbound, waits, write, acknowledgement);
        let WriteIdentity { fingerprint, expiry_s } = identity;
        self.duplicates.record(from, fingerprint, response, expiry_s, now.monotonic_ms, sequence);
        if reply == NOT_AUTHORIZED { Handled::NotAuthorized(key) } else { Handled::Answered }
    }

    fn refuse_write(
        &mut self,
        publisher: &dyn Publisher,
        from: &Peer,
        reply_to: ReplyTo,
        identity: WriteIdentity,
        error: ErrorReply,
        now: Now,
    ) {
        let (response, waits) = (Response::error(error), self.commit_queue.waits(DependsOn::Nothing));
        self.record_refusal(from, identity, &response, now);
        self.answer_write(publisher, Outbound::from((reply_to, response)), waits, None, None);
    }

    /// Whether a write may have to be undone, because its response may wait for a commit of the file.
    fn may_be_undone(&self, request: &StoreRequest, key: &Key, is_persistent: bool, now: Now) -> bool {
        let sent_ms = match &request.timestamp {
            Some(Ok(timestamp)) => timestamp.ms,
            _ => 0,
        };
        // The next version of a key is no later than these, or one millisecond later than its last one.
        let greatest_ms = self.store.greatest_version().ms.saturating_add(1);
        let latest_ms = sent_ms.max(greatest_ms).max(self.store.wall_ms()).max(now.wall_ms);
        self.commit_queue.may_wait(key, is_persistent, latest_ms)
    }

    /// Whether a commit that fails is undone, and what waited for it is handled again.
    fn undoes(&self) -> bool {
        self.ledger() == LedgerKind::File
    }

    /// Sends the response to a write and its notifications or, if they wait, adds them to the present step. Returns the sequence number
    /// of the step that they wait for, or 0.
    fn answer_write(
        &mut self,
        publisher: &dyn Publisher,
        outbound: Outbound,
        waits: bool,
        write: Option<Box<WaitingWrite>>,
        acknowledgement: Option<HeldAcknowledgement>,
    ) -> u64 {
        if waits {
            return self.answer(publisher, WaitingAnswer::Write(outbound, write, acknowledgement));
        }
        outbound.send(publisher);
        0
    }

    /// Handles all requests that change no key.
    pub(super) fn handle_read(
        &mut self,
        publisher: &dyn Publisher,
        request: StoreRequest,
        mut reply_to: ReplyTo,
        now: Now,
    ) -> Handled {
        self.commit_queue.begin_step();
        let waits = self.commit_queue.waits(DependsOn::AllKeys);
        // A copy of the key takes an allocation. Without one, the read waits for all keys if it removes its own.
        let is_key_needed = waits || request.permissions.is_some() || reply_to.details.is_some();
        let key = match &request.request {
            Request::Get { key } | Request::KeyNotify { key, .. } if is_key_needed => Some(key.clone()),
            _ => None,
        };
        let mut again = None;
        if waits {
            // A read of an expired key removes it, and that change waits for a commit like any other.
            let alive = key.as_ref().filter(|key| !self.is_expired(key, now));
            if self.commit_queue.waits(alive.map_or(DependsOn::AllKeys, DependsOn::Key)) {
                if let Some(error) = self.commit_queue.error_if_full() {
                    Outbound::from((reply_to, Response::error(error))).send(publisher);
                    return Handled::Answered;
                }
                // What has begun to be watched stays so.
                let is_repeated = self.undoes() && !matches!(request.request, Request::KeyNotify { .. });
                again = is_repeated.then(|| Box::new(request.clone()));
            }
        }
        let watch = match self.begin_watch(&request) {
            Ok(watch) => watch,
            Err(error) => {
                self.reject(publisher, reply_to, error);
                return Handled::Answered;
            }
        };
        let is_prefix = request.watch.is_prefix;
        let StoreResponse { reply, payload, version, expired, .. } = self.store.handle_request(request, now);
        if let Some(expired) = expired {
            self.send_expired(publisher, expired, now);
            self.commit_queue.begin_step();
        }
        watch.into_iter().for_each(|before| self.record_watch(&before));
        if let Some(details) = &mut reply_to.details {
            // Also in place of those of the first time, if the read is handled again.
            *details = match (&key, &reply) {
                (Some(key), Reply::Value(_)) => self.details(key, now),
                (_, Reply::Done | Reply::Count(_)) if is_prefix => [(PREFIX, "true")].into_iter().collect(),
                _ => UserProperties::default(),
            };
        }
        let response = Response::with_payload(payload, &reply, version);
        let waits = self.commit_queue.waits(key.as_ref().map_or(DependsOn::AllKeys, DependsOn::Key));
        match again {
            _ if !waits => Outbound::from((reply_to, response)).send(publisher),
            Some(request) => _ = self.answer(publisher, WaitingAnswer::Read(reply_to, response, request)),
            // What the read came upon is true also if the commit fails.
            None => _ = self.answer(publisher, WaitingAnswer::Independent(reply_to, response)),
        }
        key.filter(|_| reply == NOT_AUTHORIZED).map_or(Handled::Answered, Handled::NotAuthorized)
    }

    /// Sends the page of a SCAN: it may show any change, so that it waits for the commits of all.
    pub(super) fn send_page(&mut self, publisher: &dyn Publisher, reply_to: ReplyTo, page: Response) {
        self.commit_queue.begin_step();
        if !self.commit_queue.waits(DependsOn::AllKeys) {
            Outbound::from((reply_to, page)).send(publisher);
        } else if let Some(error) = self.commit_queue.error_if_full() {
            Outbound::from((reply_to, Response::error(error))).send(publisher);
        } else {
            self.answer(publisher, WaitingAnswer::View(reply_to, page));
        }
    }

    /// Sends an error that depends on the state: in a cluster, after a confirmation.
    pub(super) fn reject(&mut self, publisher: &dyn Publisher, reply_to: ReplyTo, error: ErrorReply) {
        self.commit_queue.begin_step();
        let response = Response::error(error);
        if self.commit_queue.waits(DependsOn::Nothing) {
            self.answer(publisher, WaitingAnswer::Independent(reply_to, response));
        } else {
            Outbound::from((reply_to, response)).send(publisher);
        }
    }

    /// Adds an answer to the present step, or sends it if commits fail. Returns the sequence number of the step that it waits for, or 0.
    pub(super) fn answer(&mut self, publisher: &dyn Publisher, answer: WaitingAnswer) -> u64 {
        let bytes = answer.bytes();
        let Some(answer) = self.commit_queue.add_answer(answer, bytes) else {
            return self.commit_queue.sequence();
        };
        let events = answer.send(publisher);
        if let Some(exchange) = &mut self.exchange {
            exchange.report(events);
        }
        0
    }

    pub(super) fn send_expired(&mut self, publisher: &dyn Publisher, expired: Change, now: Now) {
        self.commit_queue.begin_step();
        self.record_expired(publisher, &expired.key, now);
        self.send_change(publisher, expired, None);
    }

    /// Adds a change that no request has made to the present step, or sends its notifications if they need not wait. Without
    /// a record before it, the change stays if its commit fails.
    pub(super) fn send_change(
        &mut self,
        publisher: &dyn Publisher,
        change: Change,
        before: Option<KeyRecord>,
    ) {
        if !self.commit_queue.waits(DependsOn::Change(&change)) {
            return Outbound::from(change).send(publisher);
        }
        let record = Record::from(&change);
        let undo = self.undoes().then(|| match before {
            Some(before) => Undo::Restore(Record::Key(before)),
            None => Undo::Repeat(record.clone()),
        });
        self.commit_queue.add_record(undo, record);
        self.answer(publisher, WaitingAnswer::Notifications(change));
    }

    /// Returns what a key holds. One that has expired is absent: its expiry is not undone.
    pub(super) fn read(&self, key: &Key, now: Now) -> Option<(Version, StoredValue)> {
        let is_alive = |deadline_ms| deadline_ms > now.monotonic_ms;
        self.store.read(key).filter(|(_, stored)| stored.deadline_ms.is_none_or(is_alive))
    }

    /// Returns the user properties with the details of a key; none if it does not exist.
    fn details(&self, key: &Key, now: Now) -> UserProperties {
        let Some((_, StoredValue { fence, deadline_ms, .. })) = self.store.read(key) else {
            return UserProperties::default();
        };
        // A deadline has one millisecond more than the time to live. One that has not passed leaves at least one.
        let left_ms =
            |deadline_ms: u64| deadline_ms.saturating_sub(now.monotonic_ms).saturating_sub(1).max(1);
        Details { ttl_ms: deadline_ms.map(left_ms).and_then(NonZeroU64::new), fence }.properties()
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
        !self.commit_queue.is_half_full() && self.cluster.is_serving
    }
}

/// Returns the key that a request may change.
fn written_key(request: &Request) -> Option<&Key> {
    match request {
        Request::Set { key, .. } | Request::Del { key } | Request::VDel { key, .. } => Some(key),
        Request::Get { .. } | Request::KeyNotify { .. } | Request::Scan { .. } => None,
    }
}
