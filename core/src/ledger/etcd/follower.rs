//! A follower: reads the state at one revision, then receives all changes by a watch, without a gap.

use std::collections::VecDeque;

use bytes::Bytes;

use super::action::{Action, ActionId, ActionKind, ActionResult, Answer, Call, Ids, WatchRange};
use super::bulk_read::BulkRead;
use super::codec::{
    DecodeError, DecodedResponses, EncodedResponses, Head, Owner, Reception, StoreClock, decode_presence,
    decode_row,
};
use super::layout::{Layout, Place};
use super::operation::{EtcdError, Pair, RangeAnswer, RangeRead, WatchBatch, WatchEvent};
use super::responses::{IndexedRecord, ResponseIndex};
use crate::ledger::{KeyRecord, Record, RegistrationRecord};
use crate::store::{Now, Version};

/// How often the progress of a read is reported, in milliseconds.
const PROGRESS_MS: u64 = 5_000;
/// So long an earlier state than the known one is not accepted, in milliseconds.
const STALE_MS: u64 = 10_000;
/// The pause before a state with a corrupt record is read again.
const CORRUPT_PAUSE_MS: u64 = 10_000;

/// The state of a follower. Rows, registrations and responses go to the application; the follower keeps only what a takeover
/// needs.
#[derive(Debug)]
pub struct Follower {
    layout: Layout,
    phase: Phase,
    /// The head with the revision of its last change; `None`: there is none yet.
    head: Option<(Head, u64)>,
    /// The store's clock, by the last head that was received.
    clock: StoreClock,
    /// The owner and the number of the last ownership of this instance, whose clock goes on.
    owned: Option<(Owner, u64)>,
    /// No state before this revision is the present one, and until when that is heeded, in monotonic milliseconds: etcd may have been
    /// restored.
    least_revision: (u64, u64),
    responses: ResponseIndex,
    /// The greatest version at the revision of the read: keys that were removed before it may have had it.
    floor: Version,
    /// The revision up to which everything was received.
    revision: u64,
    /// Watches that are not needed any more.
    ended: Vec<ActionId>,
}

#[derive(Debug)]
enum Phase {
    Suspended,
    /// Reads the head, whose answer has the revision of all pages.
    ReadingHead(Call),
    /// Reads the state, all pages at one revision.
    Reading {
        call: Call,
        bulk: BulkRead,
        /// When its progress is reported next, in monotonic milliseconds.
        report_ms: u64,
    },
    /// Receives changes.
    Watching(Call),
}

/// What the follower reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowerEvent {
    /// All that was reported before is obsolete: the state is read again.
    Reset,
    Record(Record),
    /// So many keys of etcd were read.
    Progress {
        keys: u64,
    },
    /// The watch has lost changes, and the state is read again.
    Gap,
    Corrupt {
        key: Bytes,
    },
    Error {
        reason: String,
    },
}

/// Why a change cannot be applied.
enum Failure {
    Gap,
    Corrupt(Bytes),
}

impl Follower {
    /// Begins to read the state.
    pub fn new(layout: Layout) -> Self {
        let mut follower = Self {
            layout,
            phase: Phase::Suspended,
            head: None,
            clock: StoreClock::default(),
            owned: None,
            least_revision: (0, 0),
            responses: ResponseIndex::default(),
            floor: Version::default(),
            revision: 0,
            ended: Vec::new(),
        };
        follower.read_again(0);
        follower
    }

    /// Whether the state was read, and its changes are received.
    pub fn is_following(&self) -> bool {
        matches!(self.phase, Phase::Watching(_))
    }

    /// Returns the revision at which the state is read; `None` if it is not.
    pub fn reads_at(&self) -> Option<u64> {
        match &self.phase {
            Phase::Reading { bulk, .. } => Some(bulk.revision()),
            Phase::Suspended | Phase::ReadingHead(_) | Phase::Watching(_) => None,
        }
    }

    /// Returns the number of keys of etcd that were read, while the state is read; otherwise 0.
    pub fn keys_read(&self) -> u64 {
        match &self.phase {
            Phase::Reading { bulk, .. } => bulk.pairs(),
            Phase::Suspended | Phase::ReadingHead(_) | Phase::Watching(_) => 0,
        }
    }

    /// Returns a version that no key has passed that was removed before the state was read. The application knows the later ones.
    pub fn floor(&self) -> Version {
        self.floor
    }

    /// Returns the head with the revision of its last change.
    pub fn head(&self) -> Option<&(Head, u64)> {
        self.head.as_ref()
    }

    /// Returns the store's clock, which is never ahead of that of an owner.
    pub fn clock(&self) -> StoreClock {
        self.clock
    }

    /// Ends the watch, because the instance is the owner; returns the responses in etcd.
    pub fn suspend(&mut self) -> ResponseIndex {
        self.end_watch();
        self.phase = Phase::Suspended;
        self.owned = self.head.as_ref().and_then(|(head, _)| Some((head.owner.clone()?, head.epoch)));
        std::mem::take(&mut self.responses)
    }

    /// Reads the state again, from `due_ms` on, as it was at a revision or later.
    pub fn read_again_since(&mut self, revision: u64, due_ms: u64) {
        self.read_again(due_ms);
        self.least_revision = (revision, due_ms.saturating_add(STALE_MS));
    }

    /// Reads the state again, from `due_ms` on.
    pub fn read_again(&mut self, due_ms: u64) {
        self.end_watch();
        let head = RangeRead::one(self.layout.head(), None);
        self.phase = Phase::ReadingHead(Call::new(ActionKind::Read(head), due_ms));
    }

    fn end_watch(&mut self) {
        if let Phase::Watching(call) = &self.phase {
            self.ended.extend(call.in_flight());
        }
    }

    pub fn poll_action(&mut self, now: Now, ids: &mut Ids) -> Option<Action> {
        if let Some(ended) = self.ended.pop() {
            return Some(Action { id: ids.next_id(), kind: ActionKind::CancelWatch(ended) });
        }
        match &mut self.phase {
            Phase::Suspended => None,
            Phase::ReadingHead(call) | Phase::Reading { call, .. } | Phase::Watching(call) => {
                call.poll(now.monotonic_ms, ids)
            }
        }
    }

    /// Returns when to poll, in monotonic milliseconds; `None` while an operation is under way.
    pub fn next_deadline(&self) -> Option<u64> {
        match &self.phase {
            _ if !self.ended.is_empty() => Some(0),
            Phase::Suspended => None,
            Phase::ReadingHead(call) | Phase::Reading { call, .. } | Phase::Watching(call) => {
                call.next_deadline()
            }
        }
    }

    pub fn awaits(&self, id: ActionId) -> bool {
        match &self.phase {
            Phase::Suspended => false,
            Phase::ReadingHead(call) | Phase::Reading { call, .. } | Phase::Watching(call) => call.is(id),
        }
    }

    /// Handles the answer to a read.
    pub fn handle_answer(&mut self, result: ActionResult, now: Now) -> Vec<FollowerEvent> {
        let is_head = matches!(self.phase, Phase::ReadingHead(_));
        let (least_revision, until_ms) = self.least_revision;
        let is_stale = |answer: &RangeAnswer| answer.revision < least_revision && now.monotonic_ms < until_ms;
        let (Phase::ReadingHead(call) | Phase::Reading { call, .. }) = &mut self.phase else {
            return Vec::new();
        };
        match result.and_then(Answer::into_read) {
            Ok(answer) if is_head && is_stale(&answer) => {
                call.retry(now.monotonic_ms);
                Vec::new()
            }
            Ok(answer) if is_head => self.handle_head(answer, now),
            Ok(answer) => self.handle_page(answer, now),
            Err(EtcdError::Compacted { .. }) => {
                self.read_again(0);
                Vec::new()
            }
            Err(EtcdError::Unknown { .. } | EtcdError::NoSpace) => {
                call.retry(now.monotonic_ms);
                Vec::new()
            }
            Err(EtcdError::Refused { reason }) => {
                call.retry_late(now.monotonic_ms);
                vec![FollowerEvent::Error { reason }]
            }
        }
    }

    /// Begins to read the pages, in the state that the head was read in.
    fn handle_head(&mut self, answer: RangeAnswer, now: Now) -> Vec<FollowerEvent> {
        (self.head, self.responses) = (None, ResponseIndex::default());
        let mut events = vec![FollowerEvent::Reset];
        for pair in answer.pairs {
            if let Err(key) = self.receive(pair, now) {
                events.push(FollowerEvent::Corrupt { key });
                return events;
            }
        }
        self.floor = self.head.as_ref().map(|(head, _)| head.greatest).unwrap_or_default();
        let range = self.layout.state();
        let bulk = BulkRead::new(range, answer.revision);
        let call = Call::new(ActionKind::Read(bulk.next_read()), 0);
        let report_ms = now.monotonic_ms.saturating_add(PROGRESS_MS);
        self.phase = Phase::Reading { call, bulk, report_ms };
        events
    }

    fn handle_page(&mut self, answer: RangeAnswer, now: Now) -> Vec<FollowerEvent> {
        let Phase::Reading { call, bulk, report_ms } = &mut self.phase else { return Vec::new() };
        let mut events = Vec::new();
        if bulk.handle_page(&answer) {
            self.revision = bulk.revision();
            self.phase = Phase::Watching(Call::new(self.watch(), 0));
        } else {
            *call = Call::new(ActionKind::Read(bulk.next_read()), 0);
            if *report_ms <= now.monotonic_ms {
                *report_ms = now.monotonic_ms.saturating_add(PROGRESS_MS);
                events.push(FollowerEvent::Progress { keys: bulk.pairs() });
            }
        }
        for pair in answer.pairs {
            match self.receive(pair, now) {
                Ok(records) => events.extend(records.into_iter().map(FollowerEvent::Record)),
                Err(key) => {
                    events.push(FollowerEvent::Corrupt { key });
                    return events;
                }
            }
        }
        events
    }

    /// Handles a pair that was read. If it is corrupt, its key is the error, and all is read again after a pause.
    fn receive(&mut self, pair: Pair, now: Now) -> Result<Vec<Record>, Bytes> {
        let key = pair.key.clone();
        self.handle_pair(pair, now).map_err(|_| {
            self.read_again(now.monotonic_ms.saturating_add(CORRUPT_PAUSE_MS));
            key
        })
    }

    fn handle_pair(&mut self, pair: Pair, now: Now) -> Result<Vec<Record>, DecodeError> {
        let Pair { key, value, mod_revision } = pair;
        let place = self.layout.place(&key).ok_or(DecodeError::Malformed)?;
        if place == Place::Head {
            self.set_head(Head::decode(&value)?, mod_revision, now);
            return Ok(Vec::new());
        }
        // The clock counts from the head on, which is older than its reception: nothing ends early.
        self.records(place, Some(&value), Reception::Read { clock_ms: self.clock.at(now) }, now)
    }

    fn set_head(&mut self, head: Head, mod_revision: u64, now: Now) {
        if self.head.as_ref().is_none_or(|(_, known)| *known != mod_revision) {
            // Without space in etcd, no head shows the clock.
            let is_owned =
                |(owner, epoch): &(Owner, u64)| head.owner.as_ref() == Some(owner) && head.epoch == *epoch;
            if !self.owned.as_ref().is_some_and(is_owned) {
                self.clock = StoreClock::new(head.clock_ms, now);
            }
            self.head = Some((head, mod_revision));
        }
    }

    /// Returns the records of a change of one key of etcd.
    fn records(
        &mut self,
        place: Place,
        value: Option<&Bytes>,
        reception: Reception,
        now: Now,
    ) -> Result<Vec<Record>, DecodeError> {
        match place {
            Place::Head | Place::Member(_) | Place::Clock(_) | Place::Request => {}
            Place::Row(key) => {
                let content = value.map(|value| decode_row(&key, value, reception, now)).transpose()?;
                return Ok(vec![Record::Key(KeyRecord::new(key, content))]);
            }
            Place::Registration { key, client_id } => {
                value.map(|value| decode_presence(value)).transpose()?;
                let (client_id, is_registered) = (client_id.into(), value.is_some());
                return Ok(vec![Record::Registration(RegistrationRecord { key, client_id, is_registered })]);
            }
            Place::Responses { seq } => {
                let Some(value) = value else {
                    self.responses.handle_deleted(seq);
                    return Ok(Vec::new());
                };
                let decoded = EncodedResponses::decode(value, reception, now)?;
                let DecodedResponses { until_ms, responses } = decoded;
                let count = u32::try_from(responses.len()).unwrap_or(u32::MAX);
                self.responses.push(IndexedRecord { seq, count, until_ms });
                return Ok(responses.into_iter().map(Record::Response).collect());
            }
        }
        Ok(Vec::new())
    }

    fn watch(&self) -> ActionKind {
        let (from, to) = self.layout.state();
        ActionKind::Watch(WatchRange { from, to, revision: self.revision.saturating_add(1) })
    }

    /// Handles what the watch has received, or its end.
    pub fn handle_watch(&mut self, result: Result<WatchBatch, EtcdError>, now: Now) -> Vec<FollowerEvent> {
        let batch = match result {
            Ok(batch) => batch,
            Err(EtcdError::Compacted { .. }) => {
                self.phase = Phase::Suspended;
                self.read_again(0);
                return Vec::new();
            }
            Err(error) => return self.handle_watch_error(error, now),
        };
        let mut events = Vec::new();
        let mut changes = VecDeque::from(batch.events);
        while let Some(first) = changes.pop_front() {
            let revision = first.mod_revision;
            let mut together = vec![first];
            while let Some(next) = changes.pop_front_if(|next| next.mod_revision == revision) {
                together.push(next);
            }
            // A watch that begins again may repeat what was received.
            if revision <= self.revision {
                continue;
            }
            match self.handle_revision(together, now) {
                Ok(records) => events.extend(records.into_iter().map(FollowerEvent::Record)),
                Err(failure) => {
                    let (event, pause_ms) = match failure {
                        Failure::Gap => (FollowerEvent::Gap, 0),
                        Failure::Corrupt(key) => (FollowerEvent::Corrupt { key }, CORRUPT_PAUSE_MS),
                    };
                    events.push(event);
                    self.read_again(now.monotonic_ms.saturating_add(pause_ms));
                    return events;
                }
            }
            self.revision = revision;
        }
        self.revision = self.revision.max(batch.revision);
        if let Phase::Watching(call) = &mut self.phase {
            call.succeed();
        }
        events
    }

    fn handle_watch_error(&mut self, error: EtcdError, now: Now) -> Vec<FollowerEvent> {
        let again = self.watch();
        let Phase::Watching(call) = &mut self.phase else { return Vec::new() };
        call.replace(again);
        let mut events = Vec::new();
        if let EtcdError::Refused { reason } = error {
            call.retry_late(now.monotonic_ms);
            events.push(FollowerEvent::Error { reason });
        } else {
            call.retry(now.monotonic_ms);
        }
        events
    }

    /// Handles all changes of one transaction.
    fn handle_revision(&mut self, changes: Vec<WatchEvent>, now: Now) -> Result<Vec<Record>, Failure> {
        let layout = self.layout.clone();
        let mut records = Vec::new();
        let (mut head, mut puts, mut deletions) = (None, 0_u32, 0_u32);
        for WatchEvent { key, value, mod_revision } in changes {
            let Some(place) = layout.place(&key) else {
                if layout.is_state(&key) {
                    return Err(Failure::Corrupt(key));
                }
                continue;
            };
            let is_old_response = matches!(place, Place::Responses { .. }) && value.is_none();
            match &place {
                Place::Head => {
                    // Without a head, the state was deleted by hand.
                    let value = value.as_ref().ok_or(Failure::Gap)?;
                    let decoded = Head::decode(value).map_err(|_| Failure::Corrupt(key.clone()))?;
                    head = Some((decoded, mod_revision));
                }
                Place::Member(_) | Place::Clock(_) | Place::Request => {}
                _ if is_old_response => {}
                _ if value.is_some() => puts = puts.saturating_add(1),
                _ => deletions = deletions.saturating_add(1),
            }
            let result = self.records(place, value.as_ref(), Reception::Watched, now);
            records.extend(result.map_err(|_| Failure::Corrupt(key))?);
        }
        let Some((next, revision)) = head else {
            // Without space, etcd takes deletions only.
            return if puts == 0 { Ok(records) } else { Err(Failure::Gap) };
        };
        let last_seq = self.head.as_ref().map_or(0, |(head, _)| head.seq);
        if next.seq != last_seq.saturating_add(1) || (puts, deletions) != (next.puts, next.deletions) {
            return Err(Failure::Gap);
        }
        self.set_head(next, revision, now);
        Ok(records)
    }
}

#[cfg(test)]
mod tests;
