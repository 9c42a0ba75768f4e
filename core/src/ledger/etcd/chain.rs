//! The owner's chain of commits: each compares the revision of the one before, so that memory and etcd agree.

use std::collections::VecDeque;

use super::action::{Action, ActionId, ActionResult, Call, Ids};
use super::codec::{EncodedResponses, Head, StoreClock};
use super::commit::{Part, divide, guarded, put};
use super::layout::Layout;
use super::operation::{EtcdError, Pair, RangeRead, TxnOutcome, prefix_end};
use super::responses::{OldRecords, ResponseIndex};
use crate::ledger::Group;
use crate::store::Now;

/// An owner without requests looks this often whether it is still the owner.
const IDLE_CONFIRMATION_MS: u64 = 1_000;
/// After this time without a commit, the ownership is confirmed by one: its head shows the store's clock to an instance that
/// begins to follow.
const CLOCK_COMMIT_MS: u64 = 10_000;
/// The same while etcd has no space: the commit shows whether it has some again.
const SPACE_ATTEMPT_MS: u64 = 60_000;
/// The pause after etcd has refused a commit for good that nothing waits for.
const REFUSAL_PAUSE_MS: u64 = 100;
/// The most bytes of responses that wait for space in etcd; without room, later ones are not stored for a successor.
const CARRIED_BYTES_MAX: usize = 256 * 1024;

/// The commits of one ownership. At most one transaction is under way.
///
/// A transaction whose outcome is unknown is sent again, unchanged, until it is known: while the head has not changed since the
/// last commit, no attempt was applied, and at most one ever is. If etcd refuses the repetition for lack of space, it is given up,
/// and the state is read again. An attempt of it could still arrive once there is space, also after its requests were delivered
/// again and refused: then the next comparison of the head fails, and the state is read once more.
#[derive(Debug)]
pub struct Chain {
    layout: Layout,
    /// The last committed head, and the revision of its commit.
    head: Head,
    revision: u64,
    /// The greatest revision of etcd at which a transaction was applied.
    applied_revision: u64,
    /// The store's clock.
    clock: StoreClock,
    /// When the head's clock is old, in monotonic milliseconds.
    clock_commit_ms: u64,
    parts: VecDeque<Part>,
    work: Option<Work>,
    responses: ResponseIndex,
    /// Responses that were given without a commit, because etcd has no space.
    carried: EncodedResponses,
    is_short_of_space: bool,
    /// Whether a read is confirmed by a commit, because etcd may answer a read with a stale state.
    confirms_by_commit: bool,
    is_resigning: bool,
    /// When to confirm the ownership without a group.
    look_ms: u64,
    /// No operation begins before, because etcd has refused one for good.
    resume_ms: u64,
}

#[derive(Debug)]
struct Work {
    call: Call,
    kind: WorkKind,
}

#[derive(Debug)]
enum WorkKind {
    /// A commit of a part, with the head that it writes.
    Commit { part: Part, next: Head, old: Option<OldRecords>, answers: Option<u64> },
    /// The deletions of a part, without a change of the head.
    Deletions { part: Part, answers: Option<u64> },
    /// A read of the head.
    Confirmation { answers: Option<u64> },
    /// A head without an owner.
    Resignation { next: Head },
}

/// What the chain reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainEvent {
    /// All up to this sequence number is committed and confirmed.
    Committed(u64),
    /// etcd has no space for what is uncommitted, or has another state of this ownership than memory: the state must be read again.
    Uncommitted,
    /// Whether etcd has no space.
    Space { is_short: bool },
    /// etcd has refused an operation for good.
    Error { reason: String },
    /// Another owner may have committed, or memory may differ from etcd.
    Lost,
    /// The head names no owner any more, or etcd does not take such a head.
    Resigned,
}

impl Chain {
    /// Begins with the owner's first head, which was written at `revision`, the store's clock, and the responses in etcd.
    pub fn new(
        layout: Layout,
        (head, revision): (Head, u64),
        clock: StoreClock,
        responses: ResponseIndex,
        confirms_by_commit: bool,
        now: Now,
    ) -> Self {
        Self {
            layout,
            head,
            revision,
            applied_revision: revision,
            clock,
            clock_commit_ms: now.monotonic_ms.saturating_add(CLOCK_COMMIT_MS),
            parts: VecDeque::new(),
            work: None,
            responses,
            carried: EncodedResponses::default(),
            is_short_of_space: false,
            confirms_by_commit,
            is_resigning: false,
            look_ms: now.monotonic_ms.saturating_add(IDLE_CONFIRMATION_MS),
            resume_ms: 0,
        }
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Returns the greatest revision of etcd that shows a part of what was committed.
    pub fn applied_revision(&self) -> u64 {
        self.applied_revision
    }

    /// Whether a group can be committed next.
    pub fn wants_group(&self) -> bool {
        let answers = self.work.as_ref().and_then(|work| work.kind.answers());
        !self.is_resigning && self.parts.is_empty() && answers.is_none()
    }

    /// Commits a group after what is under way. All that has come up to now is confirmed with it.
    ///
    /// # Errors
    /// The group is too long for any commit.
    pub fn commit(&mut self, group: Group, now: Now) -> Result<(), ChainEvent> {
        let parts = divide(group, &self.layout, now, self.clock.at(now));
        self.parts.extend(parts.ok_or(ChainEvent::Lost)?);
        Ok(())
    }

    /// Gives the ownership up after what is under way.
    pub fn resign(&mut self) {
        self.is_resigning = true;
    }

    pub fn is_short_of_space(&self) -> bool {
        self.is_short_of_space
    }

    /// Sets whether etcd takes deletions only, as etcd itself reports it.
    pub fn set_short_of_space(&mut self, is_short: bool) {
        self.is_short_of_space = is_short;
    }

    /// Whether there are responses that were given without a commit, and etcd has space for them.
    fn has_late_responses(&self) -> bool {
        !self.is_short_of_space && !self.carried.is_empty()
    }

    pub fn is_resigning(&self) -> bool {
        self.is_resigning
    }

    /// Whether all groups are committed, and the ownership is given up next.
    pub fn is_drained(&self) -> bool {
        let is_resignation = |work: &Work| matches!(work.kind, WorkKind::Resignation { .. });
        self.is_resigning && self.parts.is_empty() && self.work.as_ref().is_none_or(is_resignation)
    }

    pub fn poll_action(&mut self, now: Now, ids: &mut Ids) -> Option<Action> {
        if self.work.is_none() {
            self.work = self.next_work(now, ids).map(|kind| self.work(kind));
        }
        self.work.as_mut()?.call.poll(now.monotonic_ms, ids)
    }

    /// Returns when to poll, in monotonic milliseconds; `None` while an operation is under way.
    pub fn next_deadline(&self) -> Option<u64> {
        let due_ms = match &self.work {
            Some(work) => return work.call.next_deadline(),
            None if self.is_resigning || !self.parts.is_empty() => 0,
            None if self.has_late_responses() => 0,
            None => self.look_ms,
        };
        Some(due_ms.max(self.resume_ms))
    }

    fn next_work(&mut self, now: Now, ids: &mut Ids) -> Option<WorkKind> {
        if now.monotonic_ms < self.resume_ms {
            return None;
        }
        if let Some(part) = self.parts.pop_front() {
            let answers = Some(part.sequence);
            return Some(if part.is_empty() {
                self.confirmation(answers, now, ids)
            } else if self.is_short_of_space && !part.has_puts() && now.monotonic_ms < self.clock_commit_ms {
                WorkKind::Deletions { part, answers }
            } else {
                self.commit_of(part, answers, now, ids)
            });
        }
        if self.is_resigning {
            let next = self.next_head(&Part::empty(0), now, ids);
            return Some(WorkKind::Resignation { next: Head { owner: None, ..next } });
        }
        if self.has_late_responses() {
            return Some(self.commit_of(Part::empty(0), None, now, ids));
        }
        (self.look_ms <= now.monotonic_ms).then(|| self.confirmation(None, now, ids))
    }

    fn confirmation(&mut self, answers: Option<u64>, now: Now, ids: &mut Ids) -> WorkKind {
        if now.monotonic_ms < self.clock_commit_ms {
            if !self.confirms_by_commit {
                return WorkKind::Confirmation { answers };
            } else if self.is_short_of_space {
                return WorkKind::Deletions { part: Part::empty(0), answers };
            }
        }
        self.commit_of(Part::empty(0), answers, now, ids)
    }

    fn commit_of(&mut self, mut part: Part, answers: Option<u64>, now: Now, ids: &mut Ids) -> WorkKind {
        part.carry(std::mem::take(&mut self.carried));
        let next = self.next_head(&part, now, ids);
        let old = self.responses.old(next.clock_ms);
        WorkKind::Commit { part, next, old, answers }
    }

    fn next_head(&self, part: &Part, now: Now, ids: &mut Ids) -> Head {
        let (attempt, clock_ms) = (ids.next_id().0, self.clock.at(now));
        Head { attempt, clock_ms, ..part.next_head(&self.head, now.wall_ms) }
    }

    fn work(&self, kind: WorkKind) -> Work {
        Work { call: self.call(&kind), kind }
    }

    fn call(&self, kind: &WorkKind) -> Call {
        let head = self.layout.head();
        match kind {
            WorkKind::Commit { part, next, old, .. } => {
                Call::txn(part.txn(&self.layout, self.revision, next, *old))
            }
            WorkKind::Deletions { part, .. } => Call::txn(part.deletions(&self.layout, self.revision)),
            WorkKind::Confirmation { .. } => {
                let to = prefix_end(&head);
                Call::read(RangeRead { from: head, to, limit: 1, revision: None })
            }
            WorkKind::Resignation { next } => {
                Call::txn(guarded(&self.layout, self.revision, vec![put(head, next.encode())]))
            }
        }
    }

    pub fn awaits(&self, id: ActionId) -> bool {
        self.work.as_ref().is_some_and(|work| work.call.is(id))
    }

    /// Handles the answer to the action under way.
    pub fn handle_answer(&mut self, result: ActionResult, now: Now) -> Vec<ChainEvent> {
        let Some(work) = self.work.take() else { return Vec::new() };
        let found = match (&work.kind, result) {
            (_, Err(error)) => Err(error),
            (WorkKind::Confirmation { .. }, Ok(answer)) => answer.into_read().map(|read| {
                let head = read.pairs.into_iter().find(|pair| pair.key == self.layout.head());
                let is_same = head.as_ref().is_some_and(|head| head.mod_revision == self.revision);
                if is_same { Ok(self.revision) } else { Err(head) }
            }),
            (_, Ok(answer)) => answer.into_txn().map(|answer| match answer.outcome {
                TxnOutcome::Applied => {
                    self.applied_revision = self.applied_revision.max(answer.revision);
                    Ok(if work.kind.writes_head() { answer.revision } else { self.revision })
                }
                TxnOutcome::NotApplied(pairs) => Err(pairs.into_iter().next().flatten()),
            }),
        };
        match found {
            Ok(Ok(revision)) => self.finish(work.kind, revision, now),
            Ok(Err(head)) => self.handle_other_head(work.kind, head, now),
            Err(error) => self.handle_error(work, error, now),
        }
    }

    /// Handles another head than that of the last commit.
    fn handle_other_head(&mut self, kind: WorkKind, pair: Option<Pair>, now: Now) -> Vec<ChainEvent> {
        let Some(Pair { value, mod_revision, .. }) = pair else { return vec![ChainEvent::Lost] };
        self.applied_revision = self.applied_revision.max(mod_revision);
        match Head::decode(&value) {
            // An earlier attempt was applied.
            Ok(head) if kind.next_head() == Some(&head) => self.finish(kind, mod_revision, now),
            // An attempt that was given up was applied late.
            Ok(head) if head.owner == self.head.owner && head.epoch == self.head.epoch => {
                if matches!(kind, WorkKind::Resignation { .. }) {
                    (self.head, self.revision) = (head, mod_revision);
                    return Vec::new();
                }
                self.give_up()
            }
            _ => vec![ChainEvent::Lost],
        }
    }

    /// Gives up what is uncommitted.
    fn give_up(&mut self) -> Vec<ChainEvent> {
        self.parts.clear();
        vec![ChainEvent::Uncommitted]
    }

    fn finish(&mut self, kind: WorkKind, revision: u64, now: Now) -> Vec<ChainEvent> {
        self.revision = revision;
        self.look_ms = now.monotonic_ms.saturating_add(IDLE_CONFIRMATION_MS);
        let mut events: Vec<_> = kind.answers().map(ChainEvent::Committed).into_iter().collect();
        match kind {
            WorkKind::Commit { part, next, old, .. } => {
                if let Some(old) = old {
                    self.responses.handle_deleted(old.last_seq);
                }
                if let Some(record) = part.indexed(next.seq) {
                    self.responses.push(record);
                }
                self.head = next;
                self.clock_commit_ms = now.monotonic_ms.saturating_add(CLOCK_COMMIT_MS);
                if std::mem::take(&mut self.is_short_of_space) {
                    events.push(ChainEvent::Space { is_short: false });
                }
            }
            WorkKind::Deletions { part, .. } => self.carry(part),
            WorkKind::Confirmation { .. } => {}
            WorkKind::Resignation { next } => {
                self.head = next;
                events.push(ChainEvent::Resigned);
            }
        }
        events
    }

    /// Keeps responses until etcd has space for them.
    fn carry(&mut self, part: Part) {
        let mut responses = part.into_responses();
        if self.carried.len().saturating_add(responses.len()) <= CARRIED_BYTES_MAX {
            self.carried.append(&mut responses);
        }
    }

    fn handle_error(&mut self, mut work: Work, error: EtcdError, now: Now) -> Vec<ChainEvent> {
        let is_read = matches!(work.kind, WorkKind::Confirmation { .. });
        let events = match error {
            EtcdError::NoSpace if work.kind.writes_head() => {
                return self.handle_lack_of_space(work.kind, now);
            }
            EtcdError::Refused { reason } => {
                let error = ChainEvent::Error { reason };
                if !is_read {
                    return [error].into_iter().chain(self.handle_refusal(work.kind, now)).collect();
                }
                work.call.retry_late(now.monotonic_ms);
                vec![error]
            }
            // Versions before 3.4.20 and 3.5.7 refuse deletions, too.
            EtcdError::NoSpace => {
                work.call.retry_late(now.monotonic_ms);
                Vec::new()
            }
            EtcdError::Unknown { .. } | EtcdError::Compacted { .. } => {
                work.call.retry(now.monotonic_ms);
                Vec::new()
            }
        };
        self.work = Some(work);
        events
    }

    /// Handles that etcd has no space for a commit.
    fn handle_lack_of_space(&mut self, mut kind: WorkKind, now: Now) -> Vec<ChainEvent> {
        let mut events = Vec::new();
        if !std::mem::replace(&mut self.is_short_of_space, true) {
            events.push(ChainEvent::Space { is_short: true });
        }
        self.clock_commit_ms = now.monotonic_ms.saturating_add(SPACE_ATTEMPT_MS);
        self.take_carried_back(&mut kind);
        match kind {
            WorkKind::Commit { part, answers: Some(answers), .. } if !part.has_puts() => {
                self.work = Some(self.work(WorkKind::Deletions { part, answers: Some(answers) }));
            }
            WorkKind::Resignation { .. } => events.push(ChainEvent::Resigned),
            kind if kind.answers().is_some() => events.extend(self.give_up()),
            _ => self.look_ms = now.monotonic_ms.saturating_add(IDLE_CONFIRMATION_MS),
        }
        events
    }

    /// Handles that etcd has refused a transaction for good. What waits for it is not answered: the next ownership ends attempts that
    /// have no outcome. It would need space, so without any the same ownership goes on.
    fn handle_refusal(&mut self, mut kind: WorkKind, now: Now) -> Vec<ChainEvent> {
        self.take_carried_back(&mut kind);
        match kind {
            WorkKind::Resignation { .. } => vec![ChainEvent::Resigned],
            kind if kind.answers().is_some() && self.is_short_of_space => self.give_up(),
            kind if kind.answers().is_some() => vec![ChainEvent::Lost],
            _ => {
                self.resume_ms = now.monotonic_ms.saturating_add(REFUSAL_PAUSE_MS);
                self.look_ms = now.monotonic_ms.saturating_add(IDLE_CONFIRMATION_MS);
                Vec::new()
            }
        }
    }

    fn take_carried_back(&mut self, kind: &mut WorkKind) {
        if let WorkKind::Commit { part, .. } = kind {
            self.carried = part.take_carried();
        }
    }
}

impl WorkKind {
    fn writes_head(&self) -> bool {
        self.next_head().is_some()
    }

    fn next_head(&self) -> Option<&Head> {
        match self {
            Self::Commit { next, .. } | Self::Resignation { next } => Some(next),
            Self::Deletions { .. } | Self::Confirmation { .. } => None,
        }
    }

    /// Returns the sequence number that is answered when the work is done.
    fn answers(&self) -> Option<u64> {
        match self {
            Self::Commit { answers, .. }
            | Self::Deletions { answers, .. }
            | Self::Confirmation { answers } => *answers,
            Self::Resignation { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
