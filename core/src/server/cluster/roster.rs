//! The members of a cluster and the request of an operator, as one instance sees them: it reads them once, then receives changes
//! by a watch.

use std::collections::BTreeMap;

use super::clocks::{Clocks, OtherClocks};
use crate::ledger::etcd::action::{
    Action, ActionId, ActionKind, ActionResult, Answer, Call, Ids, WatchRange,
};
use crate::ledger::etcd::codec::{MemberState, decode_request, decode_run};
use crate::ledger::etcd::layout::{Layout, Place};
use crate::ledger::etcd::operation::{EtcdError, Pair, RangeRead, WatchBatch};
use crate::store::Now;

/// The most keys that are looked at: two of each member.
const KEYS_MAX: u32 = 2_000;

/// The key of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub run: u64,
    /// The revision of its last change.
    pub mod_revision: u64,
}

/// After this time all are read again, in milliseconds: a watch that has lost a change would hide for ever that an owner is gone,
/// or that this instance is a member.
const READ_AGAIN_MS: u64 = 10_000;

/// So long a compaction waits for a member that reads the state, in milliseconds: a member that reads for longer begins again. In this
/// time etcd returns some 100 million keys.
const READ_MS_MAX: u64 = 1_800_000;

/// The members. They are hints: what must hold is compared in the transaction that depends on it.
#[derive(Debug)]
pub struct Roster {
    layout: Layout,
    phase: Phase,
    members: BTreeMap<String, Member>,
    requested_epoch: Option<u64>,
    clocks: Clocks,
    /// The revision at which each member reads the state, 0 if it does not, and since when it is known, in monotonic milliseconds.
    reads: BTreeMap<String, (u64, u64)>,
    /// The revision up to which everything was received.
    revision: u64,
    /// When all are read again, in monotonic milliseconds.
    read_again_ms: u64,
    /// A watch that is not needed any more.
    ended: Option<ActionId>,
}

#[derive(Debug)]
enum Phase {
    Reading(Call),
    Watching(Call),
}

impl Roster {
    /// Begins to read the members.
    pub fn new(layout: Layout) -> Self {
        let phase = Phase::Reading(read(&layout));
        Self {
            layout,
            phase,
            members: BTreeMap::new(),
            clocks: Clocks::default(),
            reads: BTreeMap::new(),
            requested_epoch: None,
            revision: 0,
            read_again_ms: 0,
            ended: None,
        }
    }

    /// Whether the members were read, and their changes are received.
    pub fn is_known(&self) -> bool {
        matches!(self.phase, Phase::Watching(_))
    }

    /// Reads the members again: etcd has lost changes of the watch, or has discarded them.
    pub fn read_again(&mut self) {
        if let Phase::Watching(call) = &self.phase {
            self.ended = call.in_flight();
            self.phase = Phase::Reading(read(&self.layout));
        }
    }

    pub fn members(&self) -> &BTreeMap<String, Member> {
        &self.members
    }

    /// Returns the epoch of the ownership that an operator asks to end, if there is a request.
    pub fn requested_epoch(&self) -> Option<u64> {
        self.requested_epoch
    }

    /// Returns the least revision at which a member reads the state, unless it has read there for too long.
    pub fn least_read(&self, now: Now) -> Option<u64> {
        let reads = self.reads.iter().filter(|(member, (reads_at, since_ms))| {
            let read_ms = now.monotonic_ms.saturating_sub(*since_ms);
            *reads_at > 0 && read_ms < READ_MS_MAX && self.members.contains_key(*member)
        });
        reads.map(|(_, (reads_at, _))| *reads_at).min()
    }

    /// Returns the wall clocks of the others: see [`Clocks::others`].
    pub fn clocks_of_others(&self, instance: &str, is_owner: bool, now: Now) -> OtherClocks {
        self.clocks.others(instance, is_owner, |name| self.members.contains_key(name), now)
    }

    pub fn poll_action(&mut self, now: Now, ids: &mut Ids) -> Option<Action> {
        if self.read_again_ms <= now.monotonic_ms {
            self.read_again();
        }
        if let Some(ended) = self.ended.take() {
            return Some(Action { id: ids.next_id(), kind: ActionKind::CancelWatch(ended) });
        }
        let (Phase::Reading(call) | Phase::Watching(call)) = &mut self.phase;
        call.poll(now.monotonic_ms, ids)
    }

    /// Returns when to poll, in monotonic milliseconds; `None` while an operation is under way.
    pub fn next_deadline(&self) -> Option<u64> {
        let (Phase::Reading(call) | Phase::Watching(call)) = &self.phase;
        let read_again = matches!(self.phase, Phase::Watching(_)).then_some(self.read_again_ms);
        if self.ended.is_some() { Some(0) } else { call.next_deadline().into_iter().chain(read_again).min() }
    }

    pub fn awaits(&self, id: ActionId) -> bool {
        let (Phase::Reading(call) | Phase::Watching(call)) = &self.phase;
        call.is(id)
    }

    /// Handles the answer to the read.
    pub fn handle_answer(&mut self, result: ActionResult, now: Now) {
        let Phase::Reading(call) = &mut self.phase else { return };
        match result.and_then(Answer::into_read) {
            Ok(answer) => {
                self.members.clear();
                self.requested_epoch = None;
                self.clocks.discard_old(now);
                for Pair { key, value, mod_revision } in answer.pairs {
                    self.set(&key, Some(&value), mod_revision, now);
                }
                self.revision = answer.revision;
                self.read_again_ms = now.monotonic_ms.saturating_add(READ_AGAIN_MS);
                self.phase = Phase::Watching(Call::new(self.watch(), 0));
            }
            // What etcd refuses here, it refuses for the state, too, and that is reported.
            Err(EtcdError::Refused { .. }) => call.retry_late(now.monotonic_ms),
            Err(EtcdError::Unknown { .. } | EtcdError::Compacted { .. } | EtcdError::NoSpace) => {
                call.retry(now.monotonic_ms);
            }
        }
    }

    /// Handles what the watch has received, or its end.
    pub fn handle_watch(&mut self, result: Result<WatchBatch, EtcdError>, now: Now) {
        let again = self.watch();
        let Phase::Watching(call) = &mut self.phase else { return };
        match result {
            Ok(batch) => {
                call.succeed();
                let received = self.revision;
                // A watch that begins again may repeat what was received.
                for event in batch.events.iter().filter(|event| event.mod_revision > received) {
                    self.set(&event.key, event.value.as_deref(), event.mod_revision, now);
                }
                self.revision = self.revision.max(batch.revision);
            }
            Err(EtcdError::Compacted { .. }) => self.read_again(),
            Err(EtcdError::Refused { .. }) => {
                call.replace(again);
                call.retry_late(now.monotonic_ms);
            }
            Err(EtcdError::Unknown { .. } | EtcdError::NoSpace) => {
                call.replace(again);
                call.retry(now.monotonic_ms);
            }
        }
    }

    fn set(&mut self, key: &[u8], value: Option<&[u8]>, mod_revision: u64, now: Now) {
        match (self.layout.place(key), value) {
            (Some(Place::Clock(instance)), value) => self.set_state(instance, value, mod_revision, now),
            (Some(Place::Member(instance)), Some(value)) => {
                let member = Member { run: decode_run(value), mod_revision };
                self.members.insert(instance, member);
            }
            (Some(Place::Member(instance)), None) => _ = self.members.remove(&instance),
            (Some(Place::Request), value) => self.requested_epoch = value.and_then(decode_request),
            _ => {}
        }
    }

    fn set_state(&mut self, instance: String, value: Option<&[u8]>, mod_revision: u64, now: Now) {
        match value.map(MemberState::decode) {
            Some(Ok(state)) => {
                let known = self.reads.get(&instance).filter(|(reads_at, _)| *reads_at == state.reads_at);
                let since_ms = known.map_or(now.monotonic_ms, |(_, since_ms)| *since_ms);
                self.reads.insert(instance.clone(), (state.reads_at, since_ms));
                self.clocks.note(instance, state.wall_ms, mod_revision, now);
            }
            Some(Err(_)) | None => _ = self.reads.remove(&instance),
        }
    }

    fn watch(&self) -> ActionKind {
        let (from, to) = self.layout.roster();
        ActionKind::Watch(WatchRange { from, to, revision: self.revision.saturating_add(1) })
    }
}

fn read(layout: &Layout) -> Call {
    let (from, to) = layout.roster();
    Call::read(RangeRead { from, to, limit: KEYS_MAX, revision: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::etcd::codec::encode_run;
    use crate::ledger::etcd::operation::{RangeAnswer, WatchEvent};

    const NOW: Now = Now { wall_ms: 1_000, monotonic_ms: 100 };

    fn layout() -> Layout {
        Layout::new("c")
    }

    fn poll(roster: &mut Roster, ids: &mut Ids) -> Option<ActionKind> {
        roster.poll_action(NOW, ids).map(|action| action.kind)
    }

    fn event(instance: &str, run: Option<u64>, mod_revision: u64) -> WatchEvent {
        WatchEvent { key: layout().member(instance), value: run.map(encode_run), mod_revision }
    }

    fn names(roster: &Roster) -> Vec<(&str, u64, u64)> {
        let each = roster.members().iter();
        each.map(|(name, member)| (name.as_str(), member.run, member.mod_revision)).collect()
    }

    #[test]
    fn members_are_read_once_and_then_watched() {
        let (mut roster, mut ids) = (Roster::new(layout()), Ids::default());
        assert!(matches!(poll(&mut roster, &mut ids), Some(ActionKind::Read(_))) && !roster.is_known());
        let pair = |name: &str| Pair { key: layout().member(name), value: encode_run(7), mod_revision: 3 };
        let pairs = vec![pair("a"), pair("b")];
        roster.handle_answer(Ok(Answer::Read(RangeAnswer { revision: 20, pairs, more: 0 })), NOW);
        assert!(roster.is_known());
        let Some(ActionKind::Watch(range)) = poll(&mut roster, &mut ids) else { panic!() };
        assert_eq!((range.from, range.revision), (layout().roster().0, 21));
        let events = vec![event("b", None, 21), event("c", Some(9), 22)];
        roster.handle_watch(Ok(WatchBatch { revision: 22, events }), NOW);
        assert_eq!(names(&roster), [("a", 7, 3), ("c", 9, 22)]);
        // Repeated by a watch that begins again.
        let events = vec![event("b", Some(7), 20), event("a", None, 21)];
        roster.handle_watch(Ok(WatchBatch { revision: 22, events }), NOW);
        assert_eq!(names(&roster), [("a", 7, 3), ("c", 9, 22)]);
    }

    #[test]
    fn members_are_read_again_after_a_while_as_a_watch_may_have_lost_a_change() {
        let (mut roster, mut ids) = (Roster::new(layout()), Ids::default());
        poll(&mut roster, &mut ids);
        let pairs = vec![Pair { key: layout().member("a"), value: encode_run(7), mod_revision: 3 }];
        roster.handle_answer(Ok(Answer::Read(RangeAnswer { revision: 20, pairs, more: 0 })), NOW);
        poll(&mut roster, &mut ids);
        let due_ms = NOW.monotonic_ms + READ_AGAIN_MS;
        assert_eq!(roster.next_deadline(), Some(due_ms));
        let later = Now { monotonic_ms: due_ms, ..NOW };
        let mut kinds = Vec::new();
        while let Some(action) = roster.poll_action(later, &mut ids) {
            kinds.push(action.kind);
        }
        assert!(matches!(kinds[..], [ActionKind::CancelWatch(_), ActionKind::Read(_)]), "{kinds:?}");
        let gone = RangeAnswer { revision: 30, pairs: Vec::new(), more: 0 };
        roster.handle_answer(Ok(Answer::Read(gone)), later);
        assert!(roster.is_known() && roster.members().is_empty());
    }

    #[test]
    fn members_are_read_again_after_a_compaction_of_what_the_watch_lacks() {
        let (mut roster, mut ids) = (Roster::new(layout()), Ids::default());
        poll(&mut roster, &mut ids);
        let answer = RangeAnswer { revision: 20, pairs: Vec::new(), more: 0 };
        roster.handle_answer(Ok(Answer::Read(answer)), NOW);
        poll(&mut roster, &mut ids);
        roster.handle_watch(Err(EtcdError::Unknown { reason: String::new() }), NOW);
        let Some(ActionKind::Watch(range)) = poll(&mut roster, &mut ids) else { panic!() };
        assert_eq!(range.revision, 21);
        roster.handle_watch(Err(EtcdError::Compacted { revision: 30 }), NOW);
        assert!(!roster.is_known());
        assert!(matches!(poll(&mut roster, &mut ids), Some(ActionKind::CancelWatch(_))));
        assert!(matches!(poll(&mut roster, &mut ids), Some(ActionKind::Read(_))));
    }

    #[test]
    fn a_member_that_reads_the_state_is_known_for_a_bounded_time() {
        let mut roster = Roster::new(layout());
        roster.poll_action(NOW, &mut Ids::default());
        let read = RangeAnswer { revision: 20, pairs: Vec::new(), more: 0 };
        roster.handle_answer(Ok(Answer::Read(read)), NOW);
        let mut announce = |name: &str, reads_at, revision, now| {
            let value = MemberState { reads_at, ..MemberState::default() }.encode();
            let state = WatchEvent { key: layout().clock(name), value: Some(value), mod_revision: revision };
            let events = vec![state, event(name, Some(7), revision)];
            roster.handle_watch(Ok(WatchBatch { revision, events }), now);
            roster.least_read(now)
        };
        let at = |ms: u64| Now { monotonic_ms: NOW.monotonic_ms + ms, ..NOW };
        assert_eq!(announce("a", 0, 21, at(0)), None);
        assert_eq!(announce("b", 15, 22, at(0)), Some(15));
        assert_eq!(announce("a", 18, 23, at(5)), Some(15));
        assert_eq!(announce("b", 15, 24, at(READ_MS_MAX)), Some(18), "for too long");
        assert_eq!(announce("b", 30, 25, at(READ_MS_MAX)), Some(18), "it has begun again");
        assert_eq!(announce("a", 0, 26, at(READ_MS_MAX)), Some(30));
    }
}
