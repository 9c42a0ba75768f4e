//! What waits for the disk: changes that are not committed, and every answer that depends on them.

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::protocol::{ErrorReply, Key};
use crate::store::{Change, StoredValue, Version};

use super::delivery::{Answer, Delivery, Outlet};
use super::engine::Engine;

/// The most deliveries that wait.
const DELIVERIES_MAX: usize = 65_536;
/// The most bytes of keys, values and answers that wait.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// What a key was before a change, to be put back should it not reach the disk.
pub type Undo = (Key, Option<(Version, StoredValue)>);

/// The queue in front of the disk: nobody learns of a change before it is committed, and what goes out keeps its order.
#[derive(Debug, Default)]
pub struct CommitQueue {
    waiting: VecDeque<Waiting>,
    /// The latest change of each key that has one waiting.
    unsettled: HashMap<Key, u64>,
    /// What the writer has not fetched yet.
    unsaved: Vec<Change>,
    bytes: usize,
    /// The number of the latest change.
    ticket: u64,
    saved: u64,
    /// After a failure of the disk, until it works again: what it may hold of these keys is out of date.
    failure: Option<BTreeSet<Key>>,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    delivery: Delivery,
    undo: Option<Undo>,
}

impl CommitQueue {
    /// Why no write to this key is taken now, if so. One that concerns the disk needs one that works; the others wait
    /// only behind such a one, to the same key.
    pub fn error_of_write(&self, key: &Key, persist: bool) -> Option<ErrorReply> {
        if persist && self.failure.is_some() {
            return Some(ErrorReply::NotPersisted);
        }
        if persist || self.must_wait(Some(key)) { self.error_if_full() } else { None }
    }

    /// Why no read of this key, or of all if that is none, is taken now, if so: one that does not wait always is.
    pub fn error_of_read(&self, key: Option<&Key>) -> Option<ErrorReply> {
        if self.must_wait(key) { self.error_if_full() } else { None }
    }

    /// Whether no more than requests should be added: what happens by itself can wait until this has drained.
    pub fn is_half_full(&self) -> bool {
        self.waiting.len() >= DELIVERIES_MAX / 2 || self.bytes >= BYTES_MAX / 2
    }

    fn error_if_full(&self) -> Option<ErrorReply> {
        let is_full = self.waiting.len() >= DELIVERIES_MAX || self.bytes >= BYTES_MAX;
        is_full.then_some(ErrorReply::QuotaExceeded)
    }

    /// Whether what depends on this key, or on all if that is none, has to wait.
    fn must_wait(&self, key: Option<&Key>) -> bool {
        match key {
            Some(key) => self.unsettled.contains_key(key),
            None => !self.waiting.is_empty(),
        }
    }

    /// Whether there is something to be committed.
    pub fn has_unsaved(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// How many deliveries wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The number of the latest change.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Puts a delivery in the queue; gives it back if it need not wait. It waits if it is about a change for the disk,
    /// or for such changes of the key that it depends on; of all keys, if that is none.
    pub fn hold(&mut self, delivery: Delivery, key: Option<&Key>, undo: Option<Undo>) -> Option<Delivery> {
        let change = delivery.change.as_ref().filter(|change| change.persist);
        if let Some(outdated) = &mut self.failure {
            outdated.extend(change.map(|change| change.key.clone()));
            return Some(delivery);
        }
        if change.is_none() && !self.must_wait(key) {
            return Some(delivery);
        }
        if let Some(change) = change {
            self.ticket = self.ticket.saturating_add(1);
            self.unsettled.insert(change.key.clone(), self.ticket);
            self.unsaved.push(change.clone());
        }
        self.bytes = self.bytes.saturating_add(size(&delivery));
        self.waiting.push_back(Waiting { ticket: self.ticket, delivery, undo });
        None
    }

    /// Everything that is to be committed next, if there is something, and the number of its last change.
    pub fn fetch(&mut self) -> Option<(Vec<Change>, u64)> {
        let unsaved = std::mem::take(&mut self.unsaved);
        (!unsaved.is_empty()).then_some((unsaved, self.ticket))
    }

    /// The changes up to this one are on the disk: what waited for them goes out.
    pub fn handle_saved(&mut self, ticket: u64, outlet: &dyn Outlet) {
        self.saved = ticket;
        while let Some(waiting) = self.waiting.pop_front_if(|waiting| waiting.ticket <= ticket) {
            self.bytes = self.bytes.saturating_sub(size(&waiting.delivery));
            if let Some(Change { key, .. }) = &waiting.delivery.change
                && self.unsettled.get(key) == Some(&waiting.ticket)
            {
                self.unsettled.remove(key);
            }
            waiting.delivery.send(outlet);
        }
    }

    /// The disk has failed: what waits for it has not happened, and nothing for it is taken until
    /// [`CommitQueue::handle_recovery`]. Says which change was the last to be saved.
    ///
    /// Keys that have expired stay gone, for no answer says otherwise.
    pub fn handle_failure(&mut self, engine: &mut dyn Engine, outlet: &dyn Outlet) -> u64 {
        let Self { saved, ticket, waiting, unsettled, .. } = std::mem::take(self);
        (self.saved, self.ticket) = (saved, ticket);
        self.failure = Some(unsettled.into_keys().collect());
        for waiting in waiting.iter().rev() {
            if let Some((key, was)) = &waiting.undo {
                engine.restore(key, was.clone());
            }
        }
        for Waiting { delivery: Delivery { answer, change }, undo, .. } in waiting {
            let answer = answer.map(|(asker, _)| (asker, Answer::error(ErrorReply::NotPersisted)));
            let change = change.filter(|change| undo.is_none() && engine.read(&change.key).is_none());
            Delivery { answer, change }.send(outlet);
        }
        saved
    }
}

/// The way back after a failure.
impl CommitQueue {
    /// The keys of which the disk may hold something that is out of date, in their order; none, if it has not failed.
    pub fn outdated(&self) -> Option<Vec<Key>> {
        self.failure.as_ref().map(|keys| keys.iter().cloned().collect())
    }

    /// The disk works, and holds what is true of these keys. Says whether changes are taken again: not yet, if others
    /// have become out of date meanwhile.
    pub fn handle_recovery(&mut self, keys: &[Key]) -> bool {
        if let Some(outdated) = &mut self.failure {
            for key in keys {
                outdated.remove(key);
            }
        }
        self.failure.take_if(|outdated| outdated.is_empty());
        self.failure.is_none()
    }
}

fn size(delivery: &Delivery) -> usize {
    let answer = delivery.answer.as_ref().map_or(0, |(_, answer)| answer.payload_len());
    let change = delivery.change.as_ref().map_or(0, |change| {
        let value = change.content.as_ref().map_or(0, |content| content.value.len());
        value.saturating_add(change.key.as_bytes().len())
    });
    answer.saturating_add(change)
}
