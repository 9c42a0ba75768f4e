//! What the service's lock protects: the store, the commit queue, and the responses for duplicate detection.

use crate::protocol::{ErrorReply, Key, Message, Reply, Request};
use crate::server::commit_queue::{BeforeImage, CommitQueue};
use crate::server::delivery::{Outbound, Publisher, ReplyTo, Response};
use crate::server::duplicate_detection::DuplicateDetection;
use crate::store::{Change, Now, Store, StoreRequest, StoreResponse, StoreStatistics};

const NOT_AUTHORIZED: Reply = Reply::Error(ErrorReply::NotAuthorized);

pub(super) struct State {
    pub(super) store: Store,
    duplicates: DuplicateDetection,
    /// `None` without a disk.
    pub(super) commit_queue: Option<CommitQueue>,
    /// When the expiry task wakes by itself, in monotonic milliseconds.
    pub(super) expiry_wakes_ms: u64,
    pub(super) is_closing: bool,
}

/// Statistics of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceStatistics {
    pub store: StoreStatistics,
    /// Number of responses and notifications that wait for a commit.
    pub waiting_for_commit: usize,
}

impl State {
    pub(super) fn new(store: Store, has_disk: bool) -> Self {
        Self {
            store,
            duplicates: DuplicateDetection::default(),
            commit_queue: has_disk.then(CommitQueue::default),
            expiry_wakes_ms: 0,
            is_closing: false,
        }
    }

    pub(super) fn statistics(&self) -> ServiceStatistics {
        let waiting_for_commit = self.commit_queue.as_ref().map_or(0, CommitQueue::waiting);
        ServiceStatistics { store: self.store.statistics(), waiting_for_commit }
    }

    pub(super) fn has_uncommitted(&self) -> bool {
        self.commit_queue.as_ref().is_some_and(CommitQueue::has_uncommitted)
    }

    /// Handles a request and sends its response and notifications, now or after the commit. If authorization failed,
    /// returns the key. `message` is the message that the request arrived in.
    pub(super) fn handle_request(
        &mut self,
        publisher: &dyn Publisher,
        request: StoreRequest,
        reply_to: ReplyTo,
        message: &Message,
        now: Now,
    ) -> Option<Key> {
        match written_key(&request.request).cloned() {
            Some(key) => self.handle_write(publisher, request, &key, reply_to, message, now).then_some(key),
            None => self.handle_read(publisher, request, reply_to, now),
        }
    }

    /// Handles SET, DEL and VDEL, each applied once however often it is delivered (protocol §1). Returns whether
    /// authorization failed.
    fn handle_write(
        &mut self,
        publisher: &dyn Publisher,
        request: StoreRequest,
        key: &Key,
        reply_to: ReplyTo,
        message: &Message,
        now: Now,
    ) -> bool {
        let fingerprint = self.duplicates.fingerprint(&request.client_id, &reply_to, message);
        if let Some(response) = self.duplicates.find(fingerprint, now.monotonic_ms) {
            // The first delivery may not be committed yet, and its response may still fail.
            self.send(publisher, Outbound::from((reply_to, response)), Some(key), None);
            return false;
        }
        let error = self
            .commit_queue
            .as_ref()
            .and_then(|queue| queue.write_error(key, request.persist || self.store.is_persistent(key)));
        if let Some(error) = error {
            Outbound::from((reply_to, Response::error(error))).send(publisher);
            return false;
        }
        let before = self.commit_queue.is_some().then(|| self.before_image(key, now));
        let StoreResponse { reply, version, expired, change } = self.store.handle_request(request, now);
        if let Some(expired) = expired {
            self.send_expired(publisher, expired);
        }
        let response = Response::new(&reply, version);
        let before = before.filter(|_| change.is_some());
        let outbound = Outbound { response: Some((reply_to, response.clone())), change };
        let sequence = self.send(publisher, outbound, Some(key), before);
        self.duplicates.record(fingerprint, response, message.expiry_s, now.monotonic_ms, sequence);
        reply == NOT_AUTHORIZED
    }

    /// Handles all requests that change no key. If authorization failed, returns the key.
    fn handle_read(
        &mut self,
        publisher: &dyn Publisher,
        request: StoreRequest,
        reply_to: ReplyTo,
        now: Now,
    ) -> Option<Key> {
        let key = match &request.request {
            Request::Get { key } | Request::KeyNotify { key, .. } => Some(key.clone()),
            _ => None,
        };
        // A read of an expired key removes it, and that change waits for a commit like any other.
        let error = self
            .commit_queue
            .as_ref()
            .and_then(|queue| queue.read_error(key.as_ref().filter(|key| !self.is_expired(key, now))));
        if let Some(error) = error {
            Outbound::from((reply_to, Response::error(error))).send(publisher);
            return None;
        }
        let StoreResponse { reply, version, expired, .. } = self.store.handle_request(request, now);
        if let Some(expired) = expired {
            self.send_expired(publisher, expired);
        }
        let response = Response::new(&reply, version);
        self.send(publisher, Outbound::from((reply_to, response)), key.as_ref(), None);
        key.filter(|_| reply == NOT_AUTHORIZED)
    }

    fn send_expired(&mut self, publisher: &dyn Publisher, expired: Change) {
        let key = expired.key.clone();
        self.send(publisher, expired.into(), Some(&key), None);
    }

    /// Sends now or, if that depends on changes that are not committed, later: see [`CommitQueue::enqueue`]. Returns the
    /// sequence number of the change that it waits for, 0 if it does not wait.
    fn send(
        &mut self,
        publisher: &dyn Publisher,
        outbound: Outbound,
        key: Option<&Key>,
        before: Option<BeforeImage>,
    ) -> u64 {
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

    /// Removes expired keys, unless the commit queue is half full. Returns when to do so again, in monotonic
    /// milliseconds.
    pub(super) fn expire(&mut self, publisher: &dyn Publisher, now: Now) -> u64 {
        if self.may_expire() {
            for change in self.store.poll_expired(now) {
                self.send_expired(publisher, change);
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
    }

    /// Returns the state of a key before a change. A key that has expired is absent: its expiry is not rolled back.
    fn before_image(&self, key: &Key, now: Now) -> BeforeImage {
        let is_alive = |deadline_ms| deadline_ms > now.monotonic_ms;
        let before = self.store.read(key).filter(|(_, stored)| stored.deadline_ms.is_none_or(is_alive));
        (key.clone(), before)
    }

    /// Handles the commit of all changes up to a sequence number.
    pub(super) fn handle_commit(&mut self, sequence: u64, publisher: &dyn Publisher) {
        if let Some(queue) = &mut self.commit_queue {
            queue.handle_commit(sequence, publisher);
        }
    }

    /// Handles a failed commit: rolls back every change that is not on disk.
    pub(super) fn handle_commit_failure(&mut self, publisher: &dyn Publisher) {
        if let Some(queue) = &mut self.commit_queue {
            let committed = queue.handle_commit_failure(&mut self.store, publisher);
            self.duplicates.discard_after(committed);
        }
    }

    /// Returns, after a failure, the current state of all keys of which the disk may hold another one; `None` without a
    /// failure.
    pub(super) fn stale_changes(&self) -> Option<Vec<Change>> {
        let keys = self.commit_queue.as_ref()?.stale_keys()?;
        let change = |key: Key| {
            let persistent = self.store.read(&key).filter(|(_, stored)| stored.persist);
            let (version, content) =
                persistent.map(|(version, stored)| (version, Some(stored))).unwrap_or_default();
            Change { key, version, content, persist: true, watchers: Vec::new() }
        };
        Some(keys.into_iter().map(change).collect())
    }

    /// Handles the commit of [`State::stale_changes`]. Returns whether changes are accepted again.
    pub(super) fn handle_recovery(&mut self, changes: &[Change]) -> bool {
        let keys: Vec<_> = changes.iter().map(|change| change.key.clone()).collect();
        self.commit_queue.as_mut().is_none_or(|queue| queue.handle_recovery(&keys))
    }
}

/// Returns the key that a request may change.
fn written_key(request: &Request) -> Option<&Key> {
    match request {
        Request::Set { key, .. } | Request::Del { key } | Request::VDel { key, .. } => Some(key),
        Request::Get { .. } | Request::KeyNotify { .. } | Request::Scan { .. } => None,
    }
}
