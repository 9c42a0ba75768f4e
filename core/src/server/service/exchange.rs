//! The part of the service's state in an exchange: what its clients change, and what other nodes have decided.

use bytes::Bytes;

use super::state::State;
use crate::broker::Peer;
use crate::exchange::effects::{Effects, Values};
use crate::exchange::frame::Content;
use crate::exchange::leaf::ChangeError;
use crate::exchange::names::Name;
use crate::exchange::row::RowChange;
use crate::exchange::{self, Exchange};
use crate::ledger::{CommitQueue, KeyRecord, Record, Undo};
use crate::protocol::message::PENDING;
use crate::protocol::{Condition, ErrorReply, Key, Request, UserProperties};
use crate::server::delivery::Publisher;
use crate::server::exchange::participant::Route;
use crate::server::exchange::uplink::FrameOutcome;
use crate::server::waiting_answer::WaitingAnswer;
use crate::store::{Change, Now, Store, StoreRequest, StoreResponse};

/// The most keys of the store that one step of a walk looks at, because requests wait meanwhile.
const KEYS_PER_STEP: usize = 256;

/// The values of the store, as the exchange reads them.
struct StoreValues<'a> {
    store: &'a Store,
    now: Now,
    is_short_of_room: bool,
}

impl<'a> StoreValues<'a> {
    fn new(store: &'a Store, queue: &CommitQueue<WaitingAnswer>, now: Now) -> Self {
        Self { store, now, is_short_of_room: queue.is_short_of_room() }
    }
}

impl Values for StoreValues<'_> {
    fn content(&self, key: &Key) -> Option<Content> {
        self.store.content(key, self.now).map(|(value, ttl_ms)| Content { value, ttl_ms })
    }

    fn has_room(&self, key: &Key, content: &Content) -> bool {
        !self.is_short_of_room && self.store.has_room_for(key, &content.value)
    }
}

fn copy(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

impl State {
    /// Whether the changes of a key are replicated. Then the key is persistent.
    pub(super) fn takes_part(&self, key: &Key) -> bool {
        self.exchange.as_ref().is_some_and(|participant| participant.exchange.concerns(key))
    }

    /// Whether changes of all keys must be recorded, because they may have left the rules.
    pub(super) fn has_leftovers(&self) -> bool {
        self.exchange.as_ref().is_some_and(|participant| participant.exchange.has_leftovers())
    }

    /// Makes the store persist the key of a write that takes part, or refuse the write.
    pub(super) fn prepare_write(&self, request: &mut StoreRequest, key: &Key, takes_part: bool) {
        let Some(participant) = &self.exchange else { return };
        if !takes_part && participant.exchange.has_rules() {
            return;
        }
        request.persist |= takes_part;
        let (is_lease, bytes) = match &request.request {
            Request::Set { value, condition, ttl_ms, .. } => {
                let is_conditional = matches!(condition, Some(Condition::Absent | Condition::AbsentOrEqual));
                (is_conditional && ttl_ms.is_some(), value.len())
            }
            _ => (false, 0),
        };
        request.refusal = if takes_part && (is_lease || request.fence.is_some()) {
            Some(ErrorReply::NotReplicated)
        } else {
            participant.exchange.check_change(key, bytes).err().map(|error| match error {
                ChangeError::NotJoined => ErrorReply::NotJoined,
                ChangeError::RootOnly => ErrorReply::RootOnly,
                ChangeError::OutboxFull => ErrorReply::QuotaExceeded,
                ChangeError::TooLarge => ErrorReply::ValueTooLong,
            })
        };
    }

    /// Records a change that a client has made. Reports in `details`, if there are any, that it waits for the root.
    pub(super) fn record_change(
        &mut self,
        publisher: &dyn Publisher,
        change: &Change,
        details: Option<&mut UserProperties>,
        now: Now,
    ) {
        let Some(participant) = &mut self.exchange else { return };
        let left_ms = |deadline_ms: u64| deadline_ms.saturating_sub(now.monotonic_ms);
        let content = change.content.as_ref().map(|stored| Content {
            // A long value is shared with the store. The packet of any other would stay in memory, as that of the key.
            value: if change.notification.is_some() { stored.value.clone() } else { copy(&stored.value) },
            ttl_ms: stored.deadline_ms.map(left_ms),
        });
        let Ok(key) = Key::new(copy(change.key.as_bytes())) else { return };
        let now_ms = participant.now_ms(now.monotonic_ms);
        let effects = participant.exchange.handle_change(&key, content.as_ref(), now_ms);
        if let Some(details) = details.filter(|_| participant.exchange.is_held_up(&key)) {
            *details = [(PENDING, "true")].into_iter().collect();
        }
        self.apply(publisher, effects, now);
    }

    /// Records that a key has expired.
    pub(super) fn record_expired(&mut self, publisher: &dyn Publisher, key: &Key, now: Now) {
        let Some(participant) = &mut self.exchange else { return };
        let now_ms = participant.now_ms(now.monotonic_ms);
        let effects = participant.exchange.handle_expired(key, now_ms);
        self.apply(publisher, effects, now);
    }

    /// Handles a frame that a leaf has sent to this root.
    pub(super) fn handle_leaf_frame(
        &mut self,
        publisher: &dyn Publisher,
        from: &Peer,
        (leaf, principal): (&Name, &Bytes),
        payload: &Bytes,
        now: Now,
    ) -> FrameOutcome {
        self.handle_frame(publisher, exchange::LinkPeer::Leaf(leaf, principal), Some(from), payload, now)
    }

    /// Handles a frame that the root has sent to this leaf.
    pub(super) fn handle_root_frame(
        &mut self,
        publisher: &dyn Publisher,
        payload: &Bytes,
        now: Now,
    ) -> FrameOutcome {
        self.handle_frame(publisher, exchange::LinkPeer::Root, None, payload, now)
    }

    fn handle_frame(
        &mut self,
        publisher: &dyn Publisher,
        peer: exchange::LinkPeer<'_>,
        from: Option<&Peer>,
        payload: &Bytes,
        now: Now,
    ) -> FrameOutcome {
        self.commit_queue.begin_step();
        let (is_full, has_failed) = (self.is_exchange_full(), self.commit_queue.has_failed());
        let Some(participant) = &mut self.exchange else { return FrameOutcome::Handled };
        match peer {
            // Leaves repeat what is not acknowledged once the disk works again.
            exchange::LinkPeer::Leaf(..) if has_failed => {
                let effects = participant.exchange.handle_frame_unsaved(peer, payload);
                if let Some(from) = from {
                    participant.note_routes(&effects, from.connection);
                }
                self.apply(publisher, effects, now);
                return FrameOutcome::Handled;
            }
            _ if is_full || has_failed => return FrameOutcome::Busy,
            _ => {}
        }
        let values = StoreValues::new(&self.store, &self.commit_queue, now);
        if let (exchange::LinkPeer::Leaf(leaf, _), Some(from)) = (peer, from)
            && !participant.accepts(from.connection, leaf, payload)
        {
            return FrameOutcome::Handled;
        }
        let now_ms = participant.now_ms(now.monotonic_ms);
        let effects = participant.exchange.handle_frame(peer, payload, now_ms, &values);
        if let Some(from) = from {
            participant.note_routes(&effects, from.connection);
        }
        self.apply(publisher, effects, now);
        FrameOutcome::Handled
    }

    /// Calls the exchange with the values of the store, and applies the effects: a step by itself. Returns `None` without an
    /// exchange.
    pub(super) fn with_exchange<T>(
        &mut self,
        publisher: &dyn Publisher,
        now: Now,
        call: impl FnOnce(&mut Exchange, u64, &dyn Values) -> (T, Effects),
    ) -> Option<T> {
        self.commit_queue.begin_step();
        self.call_exchange(publisher, now, call)
    }

    /// Does the same within the present step.
    fn call_exchange<T>(
        &mut self,
        publisher: &dyn Publisher,
        now: Now,
        call: impl FnOnce(&mut Exchange, u64, &dyn Values) -> (T, Effects),
    ) -> Option<T> {
        let participant = self.exchange.as_mut()?;
        let values = StoreValues::new(&self.store, &self.commit_queue, now);
        let now_ms = participant.now_ms(now.monotonic_ms);
        let (result, effects) = call(&mut participant.exchange, now_ms, &values);
        self.apply(publisher, effects, now);
        Some(result)
    }

    /// Adds the rows and the values of a step of the exchange to the present step, and writes the values. Its events are
    /// reported when they are committed.
    pub(super) fn apply(&mut self, publisher: &dyn Publisher, effects: Effects, now: Now) {
        let Some(participant) = &mut self.exchange else { return };
        participant.note(&effects);
        let Effects { step, rows, values, events } = effects;
        for RowChange { id, before, after } in rows {
            let before = Record::Exchange(id.clone(), before.map(Box::new));
            let after = Record::Exchange(id, after.map(Box::new));
            self.commit_queue.add_record(Some(Undo::Restore(before)), after);
        }
        if step == 0 {
            participant.report(events);
        } else if !events.is_empty() {
            self.answer(publisher, WaitingAnswer::Events(events));
        }
        for value in values {
            let before = KeyRecord::new(value.key.clone(), self.read(&value.key, now));
            let content = value.content.map(|Content { value, ttl_ms }| (value, ttl_ms));
            let StoreResponse { expired, change, .. } = self.store.apply(value.key, content, now);
            // The exchange has taken the key's new state already.
            if let Some(expired) = expired {
                self.send_change(publisher, expired, None);
            }
            if let Some(change) = change {
                self.send_change(publisher, change, Some(before));
            }
        }
    }

    /// Handles that the rows of a failed commit are back.
    pub(super) fn handle_rows_restored(&mut self, publisher: &dyn Publisher, are_rules_back: bool, now: Now) {
        let Some(participant) = &mut self.exchange else { return };
        let effects = participant.handle_commit_failure(are_rules_back);
        debug_assert!(effects.values.is_empty(), "the end of links changes no values");
        self.commit_queue.begin_step();
        self.apply(publisher, effects, now);
    }

    /// Takes a part of the store's keys into the exchange. Returns whether there are more.
    pub(super) fn walk(&mut self, publisher: &dyn Publisher, now: Now) -> bool {
        let ready = self.exchange.as_ref().filter(|_| self.is_exchange_ready());
        let Some(from) = ready.and_then(|participant| participant.walk()) else { return false };
        let (keys, next) = self.store.keys_from(from, KEYS_PER_STEP);
        for key in keys {
            if !self.takes_part(&key) {
                continue;
            }
            self.commit_queue.begin_step();
            if let Some(change) = self.store.persist(&key) {
                self.send_change(publisher, change, None);
            }
            self.call_exchange(publisher, now, |exchange, now_ms, values| match values.content(&key) {
                Some(content) => ((), exchange.handle_found(&key, &content, now_ms, values)),
                None => ((), Effects::default()),
            });
        }
        if let Some(participant) = &mut self.exchange {
            let effects = participant.set_walk(next);
            self.commit_queue.begin_step();
            self.apply(publisher, effects, now);
        }
        next.is_some()
    }

    /// Handles what is due by time.
    pub(super) fn handle_exchange_timeout(&mut self, publisher: &dyn Publisher, now: Now) {
        // A sweep removes values.
        if self.is_exchange_ready() {
            self.with_exchange(publisher, now, |exchange, now_ms, values| {
                ((), exchange.handle_timeout(now_ms, values))
            });
        }
    }

    /// Returns when the exchange is to be called, in monotonic milliseconds; the greatest number: not before something
    /// happens.
    pub(super) fn exchange_due_ms(&self) -> u64 {
        let participant = self.exchange.as_ref().filter(|_| self.is_exchange_ready());
        participant.and_then(|participant| participant.due_ms()).unwrap_or(u64::MAX)
    }

    /// Whether a frame of a leaf would be put off: a look that costs no digests.
    pub(super) fn must_leaf_frames_wait(&self) -> bool {
        self.is_exchange_full() && !self.commit_queue.has_failed()
    }

    /// Whether commits must take what waits for them before more is taken from other nodes.
    fn is_exchange_full(&self) -> bool {
        self.commit_queue.is_half_full() || self.commit_queue.has_many_rows()
    }

    /// Whether changes of the exchange can be committed.
    fn is_exchange_ready(&self) -> bool {
        !self.commit_queue.has_failed() && !self.is_exchange_full()
    }

    /// Whether a commit lets the exchange go on: frames or a walk may wait for room in the queue.
    pub(super) fn does_exchange_wait(&self) -> bool {
        let has_walk = self.exchange.as_ref().is_some_and(|participant| participant.walk().is_some());
        has_walk || self.is_exchange_full()
    }

    /// Returns the next frame, and the connection that it is for at the root.
    pub(super) fn poll_frame(&mut self, now: Now) -> Option<(Bytes, Option<Route>)> {
        let participant = self.exchange.as_mut()?;
        let values = StoreValues::new(&self.store, &self.commit_queue, now);
        let (outgoing, route) = participant.poll_outgoing(now.monotonic_ms, &values)?;
        Some((outgoing.payload, route))
    }
}
