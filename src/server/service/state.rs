//! What the service's lock protects: the engine, and what waits for the disk.

use crate::protocol::{ErrorReply, Key, Message, Reply, Request};
use crate::store::{Change, Now, StoreRequest, StoreResponse, StoreStatistics};

use super::super::delivery::{Answer, Asker, Delivery, Outlet};
use super::super::engine::Engine;
use crate::server::commit_queue::{CommitQueue, Undo};
use crate::server::duplicate_detection::DuplicateDetection;

const NOT_AUTHORIZED: Reply = Reply::Error(ErrorReply::NotAuthorized);

pub(super) struct State {
    pub(super) engine: Box<dyn Engine>,
    repeats: DuplicateDetection,
    /// None if nothing is kept on disk.
    pub(super) backlog: Option<CommitQueue>,
    /// When the timer wakes by itself, in monotonic milliseconds.
    pub(super) timer_ms: u64,
    pub(super) closing: bool,
}

/// How much a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stock {
    /// Keys, keys and values in bytes, registrations of watchers.
    pub tally: StoreStatistics,
    /// How many answers and notifications wait for the disk.
    pub waiting_for_disk: usize,
}

impl State {
    pub(super) fn stock(&self) -> Stock {
        let waiting_for_disk = self.backlog.as_ref().map_or(0, CommitQueue::waiting);
        Stock { tally: self.engine.tally(), waiting_for_disk }
    }

    pub(super) fn new(engine: Box<dyn Engine>, has_disk: bool) -> Self {
        Self {
            engine,
            repeats: DuplicateDetection::default(),
            backlog: has_disk.then(CommitQueue::default),
            timer_ms: 0,
            closing: false,
        }
    }

    /// Has the engine decide, and sends what comes of it; returns the key that the rules keep from the client, if that is
    /// what has come of it. `message` is what the request came in.
    pub(super) fn answer(
        &mut self,
        outlet: &dyn Outlet,
        call: StoreRequest,
        asker: Asker,
        message: &Message,
        now: Now,
    ) -> Option<Key> {
        match write_key(&call.request).cloned() {
            Some(key) => self.write(outlet, call, &key, asker, message, now).then_some(key),
            None => self.read(outlet, call, asker, now),
        }
    }

    /// SET, DEL and VDEL: applied once, however often they are delivered. True if the rules do not let the client.
    fn write(
        &mut self,
        outlet: &dyn Outlet,
        call: StoreRequest,
        key: &Key,
        asker: Asker,
        message: &Message,
        now: Now,
    ) -> bool {
        let fingerprint = self.repeats.fingerprint(&call.client_id, &asker, message);
        if let Some(answer) = self.repeats.recall(fingerprint, now.monotonic_ms) {
            self.send(outlet, Delivery::from((asker, answer)), Some(key), None);
            return false;
        }
        let error = self
            .backlog
            .as_ref()
            .and_then(|backlog| backlog.error_of_write(key, call.persist || self.engine.is_persistent(key)));
        if let Some(error) = error {
            Delivery::from((asker, Answer::error(error))).send(outlet);
            return false;
        }
        let undo = self.backlog.is_some().then(|| self.undo(key, now));
        let StoreResponse { reply, version, expired, change } = self.engine.handle_request(call, now);
        if let Some(expired) = expired {
            self.send_expired(outlet, expired);
        }
        let answer = Answer::new(&reply, version);
        let undo = undo.filter(|_| change.is_some());
        let delivery = Delivery { answer: Some((asker, answer.clone())), change };
        let ticket = self.send(outlet, delivery, Some(key), undo);
        self.repeats.remember(fingerprint, answer, message.expiry_s, now.monotonic_ms, ticket);
        reply == NOT_AUTHORIZED
    }

    /// Everything that changes no key; returns the one that the rules do not let the client read.
    fn read(&mut self, outlet: &dyn Outlet, call: StoreRequest, asker: Asker, now: Now) -> Option<Key> {
        let key = match &call.request {
            Request::Get { key } | Request::KeyNotify { key, .. } => Some(key.clone()),
            _ => None,
        };
        // The end of a key that is due is a change, which waits like any other.
        let error = self
            .backlog
            .as_ref()
            .and_then(|backlog| backlog.error_of_read(key.as_ref().filter(|key| !self.is_due(key, now))));
        if let Some(error) = error {
            Delivery::from((asker, Answer::error(error))).send(outlet);
            return None;
        }
        let StoreResponse { reply, version, expired, .. } = self.engine.handle_request(call, now);
        if let Some(expired) = expired {
            self.send_expired(outlet, expired);
        }
        let answer = Answer::new(&reply, version);
        self.send(outlet, Delivery::from((asker, answer)), key.as_ref(), None);
        key.filter(|_| reply == NOT_AUTHORIZED)
    }

    fn send_expired(&mut self, outlet: &dyn Outlet, expired: Change) {
        let key = expired.key.clone();
        self.send(outlet, expired.into(), Some(&key), None);
    }

    /// Sends now or, if that depends on what is not on the disk yet, then: see [`CommitQueue::hold`]. Says which change it
    /// waits for, 0 if for none.
    pub(super) fn send(
        &mut self,
        outlet: &dyn Outlet,
        delivery: Delivery,
        key: Option<&Key>,
        undo: Option<Undo>,
    ) -> u64 {
        let delivery = match &mut self.backlog {
            Some(backlog) => backlog.hold(delivery, key, undo),
            None => Some(delivery),
        };
        match delivery {
            Some(delivery) => delivery.send(outlet),
            None => return self.backlog.as_ref().map_or(0, CommitQueue::ticket),
        }
        0
    }

    fn is_due(&self, key: &Key, now: Now) -> bool {
        let deadline_ms = self.engine.read(key).and_then(|(_, content)| content.deadline_ms);
        deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now.monotonic_ms)
    }

    /// Removes what is due, unless too much waits for the disk; says when to come again, in monotonic milliseconds.
    pub(super) fn expire_due(&mut self, outlet: &dyn Outlet, now: Now) -> u64 {
        if self.may_expire() {
            for change in self.engine.poll_expired(now) {
                self.send_expired(outlet, change);
            }
        }
        self.timer_ms = self.next_expiry().unwrap_or(u64::MAX);
        self.timer_ms
    }

    /// When keys are to be removed next, in monotonic milliseconds; never, while too much waits for the disk.
    pub(super) fn next_expiry(&self) -> Option<u64> {
        if self.may_expire() { self.engine.next_expiry() } else { None }
    }

    fn may_expire(&self) -> bool {
        !self.backlog.as_ref().is_some_and(CommitQueue::is_half_full)
    }

    /// What the key is now; a key whose time is over is gone whatever happens.
    fn undo(&self, key: &Key, now: Now) -> Undo {
        let lives = |deadline_ms| deadline_ms > now.monotonic_ms;
        let was = self.engine.read(key).filter(|(_, content)| content.deadline_ms.is_none_or(lives));
        (key.clone(), was)
    }

    /// The changes up to this one are on the disk.
    pub(super) fn handle_saved(&mut self, ticket: u64, outlet: &dyn Outlet) {
        if let Some(backlog) = &mut self.backlog {
            backlog.handle_saved(ticket, outlet);
        }
    }

    /// What the disk should be told of the keys of which it may hold something that is out of date; none, if it has not
    /// failed.
    pub(super) fn outdated(&self) -> Option<Vec<Change>> {
        let keys = self.backlog.as_ref()?.outdated()?;
        let change = |key: Key| {
            let kept = self.engine.read(&key).filter(|(_, content)| content.persist);
            let (version, content) =
                kept.map(|(version, content)| (version, Some(content))).unwrap_or_default();
            Change { key, version, content, persist: true, watchers: Vec::new() }
        };
        Some(keys.into_iter().map(change).collect())
    }

    /// The disk works again, and holds this: says whether changes are taken again.
    pub(super) fn handle_recovery(&mut self, changes: &[Change]) -> bool {
        let keys: Vec<_> = changes.iter().map(|change| change.key.clone()).collect();
        self.backlog.as_mut().is_none_or(|backlog| backlog.handle_recovery(&keys))
    }

    /// The disk has failed: what is not on it has not happened.
    pub(super) fn handle_failure(&mut self, outlet: &dyn Outlet) {
        if let Some(backlog) = &mut self.backlog {
            let saved = backlog.handle_failure(&mut *self.engine, outlet);
            self.repeats.forget_after(saved);
        }
    }
}

/// The key that a request may change.
fn write_key(request: &Request) -> Option<&Key> {
    match request {
        Request::Set { key, .. } | Request::Del { key } | Request::VDel { key, .. } => Some(key),
        Request::Get { .. } | Request::KeyNotify { .. } | Request::Scan { .. } => None,
    }
}
