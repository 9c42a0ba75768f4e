//! Commit queue: changes that are not on disk or in etcd yet, and every response that depends on them.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::delivery::{Outbound, Publisher, ReplyTo, Response};
use super::duplicate_detection::Fingerprint;
use crate::broker::{HeldAcknowledgement, Peer};
use crate::protocol::{ErrorReply, Key, Request};
use crate::store::{Change, Store, StoreRequest, StoredValue, Version};

/// The most waiting responses and notifications.
const ITEMS_MAX: usize = 65_536;
/// The most bytes of waiting keys, values and responses.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// The most waiting responses and notifications that one step sends, because requests wait meanwhile.
const SENT_PER_STEP_MAX: usize = 256;

/// A key and its state before a change, for the rollback if the change cannot be committed.
pub type BeforeImage = (Key, Option<(Version, StoredValue)>);

/// Queue of changes in front of the disk, or of etcd.
///
/// A response or notification waits until the changes that it depends on are committed, because a client that has seen
/// a change must find it after a crash. What is sent keeps its order.
///
/// In a cluster everything waits, for a commit or a confirmation that begins after it was enqueued: another instance may
/// have become the owner and changed the keys since the last one.
#[derive(Debug, Default)]
pub struct CommitQueue {
    waiting: VecDeque<Waiting>,
    /// For each key with uncommitted changes, the sequence number of the last one.
    uncommitted: HashMap<Key, u64>,
    /// The changes that no commit group has taken yet.
    next_group: Vec<Change>,
    bytes: usize,
    /// Sequence number of the last change; in a cluster, of whatever waits. It counts from 1 and does not reach the end of
    /// 64 bits.
    sequence: u64,
    committed: u64,
    /// Whether everything waits: see [`CommitQueue`].
    confirms_all: bool,
    /// In a cluster, the sequence number of the last group.
    taken: u64,
    /// No greater version of a key without a record on disk may be sent: after a crash, such keys continue above it.
    ceiling: Version,
    /// Whether rows of the exchange wait for a commit.
    has_rows: bool,
    /// Number of failed commits.
    failures: u64,
    /// Whether persistent keys may be deleted only, because the disk or etcd has no room for more.
    is_short_of_room: bool,
    /// Set by a failed commit, until the disk works again.
    stale: Option<StaleKeys>,
}

/// Keys whose state on disk may be stale.
#[derive(Debug)]
struct StaleKeys {
    /// Those whose changes were rolled back: no more than the queue holds.
    rolled_back: BTreeSet<Key>,
    /// Those that have changed since: any number. While the disk fails, persistent keys change by expiry only, which no
    /// client has to wait for.
    expired: BTreeSet<Key>,
}

#[derive(Debug)]
struct Waiting {
    /// The change that must be committed first.
    sequence: u64,
    outbound: Outbound,
    before: Option<BeforeImage>,
    if_failed: IfFailed,
    /// Released after the response has been sent, or before it if the commit fails.
    acknowledgement: Option<HeldAcknowledgement>,
}

/// What becomes of a waiting response if the commit fails.
#[derive(Debug)]
pub enum IfFailed {
    /// The request is refused.
    Refuse,
    /// The response is sent: it does not depend on the change.
    Send,
    /// The request, which reads, is handled again: it may have seen a change that is rolled back.
    Repeat(Box<StoreRequest>),
    /// The write is handled again.
    RepeatWrite(Box<RepeatableWrite>),
}

/// A write that can be handled again.
#[derive(Clone, Debug)]
pub struct RepeatableWrite {
    pub request: StoreRequest,
    pub from: Peer,
    pub identity: WriteIdentity,
}

/// What identifies a write among those of its client, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct WriteIdentity {
    pub fingerprint: Fingerprint,
    /// The message expiry.
    pub expiry_s: Option<u32>,
    /// How often etcd has refused its commit.
    pub refusals: u8,
}

/// What a failed commit leaves to be done for a client.
#[derive(Debug)]
pub enum Unfinished {
    Send(Box<Outbound>),
    Repeat(ReplyTo, Box<StoreRequest>),
    RepeatWrite(ReplyTo, Box<RepeatableWrite>),
}

impl CommitQueue {
    /// Returns the queue of a store in a cluster.
    #[must_use]
    pub fn in_cluster() -> Self {
        Self { confirms_all: true, ..Self::default() }
    }

    /// Whether everything waits: see [`CommitQueue`].
    #[must_use]
    pub fn confirms_all(&self) -> bool {
        self.confirms_all
    }

    /// Returns the error with which a write to `key` is rejected at present, if any.
    ///
    /// A write to a persistent key needs a disk that works, room on it unless the write deletes, and room in the queue. A
    /// write to any other key needs room only if it waits for an earlier change of the same key.
    pub fn write_error(&self, key: &Key, is_persistent: bool, deletes: bool) -> Option<ErrorReply> {
        if is_persistent && (self.stale.is_some() || (self.is_short_of_room && !deletes)) {
            return Some(self.room_error());
        }
        if is_persistent || self.must_wait(Some(key)) { self.error_if_full() } else { None }
    }

    #[must_use]
    pub fn is_short_of_room(&self) -> bool {
        self.is_short_of_room
    }

    pub fn set_short_of_room(&mut self, is_short_of_room: bool) {
        self.is_short_of_room = is_short_of_room;
    }

    /// Returns the error for what needs room that is lacking.
    fn room_error(&self) -> ErrorReply {
        if self.confirms_all { ErrorReply::QuotaExceeded } else { ErrorReply::NotPersisted }
    }

    /// Whether requests may come that wait at their source without room. The last quarter is left to expiry, and to requests
    /// that have begun.
    pub fn has_room(&self) -> bool {
        let three_quarters = |limit: usize| limit.saturating_sub(limit / 4);
        self.waiting.len() < three_quarters(ITEMS_MAX) && self.bytes < three_quarters(BYTES_MAX)
    }

    /// Whether expiry must pause, so that the second half of the queue is left to requests.
    pub fn is_half_full(&self) -> bool {
        self.waiting.len() >= ITEMS_MAX / 2 || self.bytes >= BYTES_MAX / 2
    }

    /// Returns the error with which requests that must wait are rejected at present, if any. In a cluster there is none:
    /// see [`CommitQueue::is_full`].
    pub fn error_if_full(&self) -> Option<ErrorReply> {
        (!self.confirms_all && self.is_full()).then_some(ErrorReply::QuotaExceeded)
    }

    /// Whether there is no room for further requests. In a cluster these get no answer: an error would have to wait, too.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= ITEMS_MAX || self.bytes >= BYTES_MAX
    }

    /// Whether a response that depends on `key` (on all keys, if `None`) must wait for a commit.
    pub fn must_wait(&self, key: Option<&Key>) -> bool {
        match key {
            _ if self.confirms_all => true,
            Some(key) => self.uncommitted.contains_key(key),
            None => !self.waiting.is_empty(),
        }
    }

    /// Whether there is something to commit that no commit group has taken.
    pub fn has_uncommitted(&self) -> bool {
        self.has_rows || !self.next_group.is_empty() || self.is_unconfirmed()
    }

    /// Whether something waits for a confirmation that has not begun.
    fn is_unconfirmed(&self) -> bool {
        self.confirms_all && self.taken < self.sequence
    }

    /// Notes that the next group has something besides its changes, in a cluster. Returns its sequence number.
    pub fn note_addition(&mut self) -> u64 {
        self.sequence = self.sequence.saturating_add(1);
        self.sequence
    }

    /// Notes that rows of the exchange belong to the next group, with the changes that are in it.
    pub fn note_rows(&mut self) {
        if self.stale.is_none() {
            self.sequence = self.sequence.saturating_add(1);
            self.has_rows = true;
        }
    }

    /// Adds a response that waits for all changes and rows up to now, or returns it if it need not wait.
    pub fn enqueue_last(&mut self, outbound: Outbound) -> Option<Outbound> {
        if self.stale.is_some() || self.sequence == self.committed {
            return Some(outbound);
        }
        self.push(outbound, None, IfFailed::Refuse);
        None
    }

    /// Returns the version that is on disk as the one above which the store continues after a crash.
    pub fn ceiling(&self) -> Version {
        self.ceiling
    }

    /// Sets the version above which the store continues after a crash: one that is on disk, or less than that.
    pub fn set_ceiling(&mut self, ceiling: Version) {
        self.ceiling = ceiling;
    }

    /// Returns the error with which a change is rejected although its key is in memory only, if any: its version must not
    /// be sent before a commit, and no commit is possible, or the queue has no room.
    pub fn ceiling_error(&self, change: &Change) -> Option<ErrorReply> {
        if !self.is_above_ceiling(change) {
            return None;
        }
        if self.stale.is_some() { Some(ErrorReply::NotPersisted) } else { self.error_if_full() }
    }

    /// Whether the version of a change is new, and not covered by what is on disk.
    fn is_above_ceiling(&self, change: &Change) -> bool {
        change.content.is_some() && !change.persist && change.version > self.ceiling
    }

    /// Returns the number of waiting responses and notifications.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the sequence number of the last change.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Adds `outbound` to the queue, or returns it if it need not wait.
    ///
    /// It waits if it has a change of a persistent key or a version above the ceiling, or if `key`, on which it depends,
    /// has uncommitted changes. With `None` it depends on all keys. In a cluster it always waits.
    pub fn enqueue(
        &mut self,
        outbound: Outbound,
        key: Option<&Key>,
        before: Option<BeforeImage>,
    ) -> Option<Outbound> {
        let is_above_ceiling = outbound.change.as_ref().is_some_and(|change| self.is_above_ceiling(change));
        let change = outbound.change.as_ref().filter(|change| change.persist || is_above_ceiling);
        if let Some(stale) = &mut self.stale {
            stale.expired.extend(change.map(|change| change.key.clone()));
            return Some(outbound);
        }
        if change.is_none() && !self.must_wait(key) {
            return Some(outbound);
        }
        // In a cluster, the state has the changes of the next group.
        if let Some(change) = change.filter(|_| !self.confirms_all) {
            self.sequence = self.sequence.saturating_add(1);
            self.uncommitted.insert(change.key.clone(), self.sequence);
            self.next_group.push(change.clone());
        }
        self.push(outbound, before, IfFailed::Refuse);
        None
    }

    /// Adds the response of a request that reads `key` (all keys, if `None`), or returns it if it need not wait.
    pub fn enqueue_read(
        &mut self,
        outbound: Outbound,
        key: Option<&Key>,
        if_failed: IfFailed,
    ) -> Option<Outbound> {
        if !self.must_wait(key) {
            return Some(outbound);
        }
        self.push(outbound, None, if_failed);
        None
    }

    fn push(&mut self, outbound: Outbound, before: Option<BeforeImage>, if_failed: IfFailed) {
        if self.confirms_all {
            self.sequence = self.sequence.saturating_add(1);
        }
        let acknowledgement = None;
        let waiting = Waiting { sequence: self.sequence, outbound, before, if_failed, acknowledgement };
        self.bytes = self.bytes.saturating_add(waiting.bytes());
        self.waiting.push_back(waiting);
    }

    /// Holds back the acknowledgement of the last request, whose response waits.
    pub fn hold_last(&mut self, acknowledgement: Option<HeldAcknowledgement>) {
        if let Some(last) = self.waiting.back_mut() {
            last.acknowledgement = acknowledgement;
        }
    }

    /// Sets what becomes of the last response if the commit fails.
    pub fn set_last_if_failed(&mut self, if_failed: IfFailed) {
        if let Some(last) = self.waiting.back_mut() {
            self.bytes = self.bytes.saturating_sub(last.bytes());
            last.if_failed = if_failed;
            self.bytes = self.bytes.saturating_add(last.bytes());
        }
    }

    /// Takes all changes for the next commit group, with the sequence number of the last one; `None` if there is nothing
    /// to commit. The group may be empty: then a response waits for a confirmation. Changes of keys that are in memory only
    /// are in it if their version is greater than the ceiling.
    pub fn take_group(&mut self) -> Option<(Vec<Change>, u64)> {
        let has_uncommitted = self.has_uncommitted();
        (self.has_rows, self.taken) = (false, self.sequence);
        has_uncommitted.then(|| (std::mem::take(&mut self.next_group), self.sequence))
    }

    /// Handles the commit of all changes up to `sequence` and of a ceiling: sends some of what waited for them. Returns
    /// whether there is more; then it must be called again, before any other commit is handled.
    ///
    /// What is enqueued between two calls keeps its place: a key has uncommitted changes until the last one is sent.
    #[must_use]
    pub fn handle_commit(&mut self, sequence: u64, ceiling: Version, publisher: &dyn Publisher) -> bool {
        (self.committed, self.ceiling) = (sequence, ceiling);
        for _ in 0..SENT_PER_STEP_MAX {
            let Some(waiting) = self.waiting.pop_front_if(|waiting| waiting.sequence <= sequence) else {
                return false;
            };
            self.bytes = self.bytes.saturating_sub(waiting.bytes());
            if let Some(Change { key, .. }) = &waiting.outbound.change
                && self.uncommitted.get(key) == Some(&waiting.sequence)
            {
                self.uncommitted.remove(key);
            }
            waiting.outbound.send(publisher);
        }
        self.waiting.front().is_some_and(|waiting| waiting.sequence <= sequence)
    }

    /// Handles a failed commit: rolls back all uncommitted changes, from the last to the first, and answers their
    /// requests with an error. No change of a persistent key is accepted until [`CommitQueue::handle_recovery`].
    /// Returns the sequence number of the last committed change, and what is to be done now, in this order.
    ///
    /// Expired keys stay removed, and their watchers are notified: an expiry needs no commit to be true.
    ///
    /// In a cluster, etcd has refused the commit and was not changed: nothing is stale, and all requests are handled again, but
    /// for those up to `uncertain` that need room. These are dropped: an error could turn out to be wrong.
    pub fn handle_commit_failure(&mut self, store: &mut Store, uncertain: u64) -> (u64, Vec<Unfinished>) {
        let Self { committed, sequence, ceiling, failures, .. } = *self;
        let Self { is_short_of_room, confirms_all, waiting, uncommitted, .. } = std::mem::take(self);
        (self.committed, self.sequence, self.ceiling) = (committed, sequence, ceiling);
        self.failures = failures.saturating_add(1);
        (self.is_short_of_room, self.confirms_all, self.taken) = (is_short_of_room, confirms_all, sequence);
        if !confirms_all {
            let rolled_back = uncommitted.into_keys().collect();
            self.stale = Some(StaleKeys { rolled_back, expired: BTreeSet::new() });
        }
        for waiting in waiting.iter().rev() {
            if let Some((key, before)) = &waiting.before {
                store.restore(key, before.clone());
            }
        }
        let unfinished = |Waiting { outbound: Outbound { response, change }, before, if_failed, .. }| {
            let refuse = |(to, _)| (to, Response::error(ErrorReply::NotPersisted));
            match (if_failed, response) {
                (IfFailed::Repeat(request), Some((to, _))) => Unfinished::Repeat(to, request),
                (IfFailed::RepeatWrite(write), Some((to, _))) => Unfinished::RepeatWrite(to, write),
                (IfFailed::Send, response) => Unfinished::Send(Box::new(Outbound { response, change })),
                (_, response) => {
                    let is_true = |change: &Change| before.is_none() && store.read(&change.key).is_none();
                    let (response, change) = (response.map(refuse), change.filter(is_true));
                    Unfinished::Send(Box::new(Outbound { response, change }))
                }
            }
        };
        let is_answered = |waiting: &Waiting| waiting.sequence > uncertain || !waiting.needs_room();
        (committed, waiting.into_iter().filter(is_answered).map(unfinished).collect())
    }

    /// Drops everything that waits, without an answer: the instance does not own the keys any more.
    pub fn clear(&mut self) {
        let Self { sequence, failures, confirms_all, .. } = *self;
        // A commit that was under way is not handled any more: the numbers go on, so that it could not be taken for another.
        *self = Self { sequence, failures, confirms_all, ..Self::default() };
        (self.committed, self.taken) = (sequence, sequence);
    }

    /// Returns the number of failed commits.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Returns the keys whose changes a failed commit has rolled back, until they are recovered.
    pub fn rolled_back_keys(&self) -> impl Iterator<Item = &Key> {
        self.stale.iter().flat_map(|stale| &stale.rolled_back)
    }

    /// Returns the keys that have expired since a failed commit, until they are recovered.
    pub fn expired_keys(&self) -> impl Iterator<Item = &Key> {
        self.stale.iter().flat_map(|stale| &stale.expired)
    }

    /// Handles the commit of the current state of `keys` and of a ceiling after a failure. Returns whether changes are
    /// accepted again; not while there are more stale keys, or stale rows of the exchange.
    pub fn handle_recovery(&mut self, keys: &[Key], ceiling: Version, has_stale_rows: bool) -> bool {
        self.ceiling = ceiling;
        if let Some(stale) = &mut self.stale {
            for key in keys {
                // One that was rolled back may have expired while it was committed.
                if !stale.rolled_back.remove(key) {
                    stale.expired.remove(key);
                }
            }
        }
        let is_recovered = |stale: &mut StaleKeys| {
            stale.rolled_back.is_empty() && stale.expired.is_empty() && !has_stale_rows
        };
        if self.stale.take_if(is_recovered).is_some() {
            self.committed = self.sequence;
        }
        self.stale.is_none()
    }
}

impl Waiting {
    /// Whether it is the response to a request that adds something to the state.
    fn needs_room(&self) -> bool {
        let request = match &self.if_failed {
            IfFailed::Repeat(request) => &request.request,
            IfFailed::RepeatWrite(write) => &write.request.request,
            IfFailed::Refuse | IfFailed::Send => return false,
        };
        matches!(request, Request::Set { .. } | Request::KeyNotify { stop: false, .. })
    }

    fn bytes(&self) -> usize {
        let Self { outbound, if_failed, .. } = self;
        let request = match if_failed {
            IfFailed::Repeat(request) => request_bytes(request),
            IfFailed::RepeatWrite(write) => {
                // A change shares its value with the request.
                let value = match &write.request.request {
                    Request::Set { value, .. } if outbound.change.is_none() => value.len(),
                    _ => 0,
                };
                request_bytes(&write.request).saturating_add(value).saturating_add(size_of::<Peer>())
            }
            IfFailed::Refuse | IfFailed::Send => 0,
        };
        size(outbound).saturating_add(request)
    }
}

/// Returns the memory of a request, without a value that the change has, too.
fn request_bytes(request: &StoreRequest) -> usize {
    let text = match &request.request {
        Request::Get { key }
        | Request::KeyNotify { key, .. }
        | Request::Del { key }
        | Request::Set { key, .. } => key.as_bytes().len(),
        Request::VDel { key, value } => key.as_bytes().len().saturating_add(value.len()),
        Request::Scan { .. } => 0,
    };
    text.saturating_add(size_of::<StoreRequest>())
}

fn size(outbound: &Outbound) -> usize {
    let response = outbound.response.as_ref().map_or(0, |(_, response)| response.payload_len());
    let change = outbound.change.as_ref().map_or(0, |change| {
        let value = change.content.as_ref().map_or(0, |stored| stored.value.len());
        value.saturating_add(change.key.as_bytes().len())
    });
    response.saturating_add(change)
}
