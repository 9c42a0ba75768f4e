//! Candidates: when an instance takes the store over, and when it releases it.
//!
//! Members decide only when a takeover is tried. That at most one succeeds, and that no commit of the previous owner
//! follows it, is due to the comparison of the head's revision.

use std::collections::BTreeMap;

use super::roster::Member;
use crate::ledger::etcd::action::{Action, ActionId, ActionResult, Answer, Call, Ids};
use crate::ledger::etcd::codec::{Head, Owner, StoreClock};
use crate::ledger::etcd::commit::{guarded, put};
use crate::ledger::etcd::layout::Layout;
use crate::ledger::etcd::operation::{Condition, EtcdError, Pair, TxnOutcome};
use crate::store::Now;

/// The time between the first attempts of two candidates.
const RANK_PAUSE_MS: u64 = 100;
/// The pause after an attempt that etcd has refused.
const RETRY_PAUSE_MS: u64 = 1_000;
/// The time in which the watch must receive the head that an attempt has written, or has found.
const RECEPTION_MS: u64 = 1_000;

#[derive(Debug)]
pub struct Candidate {
    layout: Layout,
    owner: Owner,
    attempt: Option<Attempt>,
    /// Whether nothing is taken over, because clients do not reach the instance, or because its clock is off.
    is_waiting: bool,
    /// Since when the store may be taken over, in monotonic milliseconds.
    since_ms: Option<u64>,
    /// Not before this time, in monotonic milliseconds.
    pause_ms: u64,
    /// The store is left to others until this time, in monotonic milliseconds, while the head has no later epoch than this.
    left_until_ms: u64,
    left_epoch: u64,
    /// Whether etcd has other members than those that were seen.
    has_wrong_members: bool,
    /// Why etcd has refused the last attempt.
    refusal: Option<EtcdError>,
}

#[derive(Debug)]
struct Attempt {
    /// `None`: it was answered, and the watch will receive another head.
    call: Option<Call>,
    /// When the watch must have received it, in monotonic milliseconds.
    overdue_ms: u64,
    /// The revision of the head that it replaces.
    seen: u64,
}

/// What a candidate sees of the store.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub head: Option<&'a (Head, u64)>,
    pub members: &'a BTreeMap<String, Member>,
    /// The store's clock.
    pub clock: StoreClock,
}

impl Candidate {
    pub fn new(layout: Layout, owner: Owner) -> Self {
        Self {
            layout,
            owner,
            attempt: None,
            is_waiting: false,
            since_ms: None,
            pause_ms: 0,
            left_until_ms: 0,
            left_epoch: 0,
            has_wrong_members: false,
            refusal: None,
        }
    }

    /// Sets whether nothing is taken over.
    pub fn set_waiting(&mut self, is_waiting: bool) {
        if self.is_waiting && !is_waiting {
            // The pauses count from now on, so that not the first instance that is reached again takes everything.
            self.since_ms = None;
        }
        self.is_waiting = is_waiting;
    }

    /// Leaves the store, whose head has this epoch, to others until another one has owned it, or until this time, in monotonic
    /// milliseconds.
    pub fn leave_until(&mut self, ms: u64, epoch: u64) {
        (self.left_until_ms, self.left_epoch) = (ms, epoch);
    }

    /// Forgets the attempt: the store was taken over, by this instance or another, or is read again.
    pub fn reset(&mut self) {
        (self.attempt, self.since_ms) = (None, None);
    }

    /// Looks at a store that has changed, or that time has passed for.
    pub fn handle_view(&mut self, view: View<'_>, now: Now) {
        let revision = view.head.map_or(0, |(_, revision)| *revision);
        if self.attempt.as_ref().is_some_and(|attempt| attempt.seen != revision) {
            self.reset();
        }
        // That owner may have given it up again: a watch may deliver both changes at once.
        if view.head.is_some_and(|(head, _)| head.epoch > self.left_epoch) {
            self.left_until_ms = 0;
        }
        if self.pause(view).is_none() {
            self.since_ms = None;
        } else {
            self.since_ms.get_or_insert(now.monotonic_ms);
        }
    }

    pub fn poll_action(&mut self, view: View<'_>, now: Now, ids: &mut Ids) -> Option<Action> {
        self.handle_view(view, now);
        if self.attempt.is_none() && self.due_ms(view).is_some_and(|due_ms| due_ms <= now.monotonic_ms) {
            self.attempt = Some(self.next_attempt(view, now));
        }
        self.attempt.as_mut()?.call.as_mut()?.poll(now.monotonic_ms, ids)
    }

    /// Returns when to poll, in monotonic milliseconds; `None` if the store is not to be taken over.
    pub fn next_deadline(&self, view: View<'_>) -> Option<u64> {
        match &self.attempt {
            Some(Attempt { call: Some(call), .. }) => call.next_deadline(),
            Some(attempt) => Some(attempt.overdue_ms),
            None => self.due_ms(view),
        }
    }

    fn due_ms(&self, view: View<'_>) -> Option<u64> {
        let since_ms = self.since_ms.filter(|_| !self.is_waiting || self.has_head(view))?;
        let due_ms = since_ms.saturating_add(self.pause(view)?);
        Some(due_ms.max(self.pause_ms).max(self.left_until_ms))
    }

    /// Whether the head names this run, which owns nothing any more: etcd did not take the resignation, or not in time.
    fn has_head(&self, view: View<'_>) -> bool {
        view.head.is_some_and(|(head, _)| head.owner.as_ref() == Some(&self.owner))
    }

    /// Takes the store over; or names no owner, because all others leave the store to an instance that may not take it over again.
    fn next_attempt(&self, view: View<'_>, now: Now) -> Attempt {
        let (head, seen) = view.head.cloned().unwrap_or_default();
        let clock_ms = view.clock.at(now);
        let next = Head { seq: head.seq.saturating_add(1), clock_ms, puts: 0, deletions: 0, ..head };
        let next = if self.is_waiting {
            // The clock of this instance may be off: that of the head stays.
            Head { owner: None, ..next }
        } else {
            let owner = Some(self.owner.clone());
            Head {
                owner,
                epoch: next.epoch.saturating_add(1),
                wall_ms: next.wall_ms.max(now.wall_ms),
                ..next
            }
        };
        let key = self.layout.head();
        let mut txn = guarded(&self.layout, seen, vec![put(key, next.encode())]);
        // The watch of the members may be behind that of the state: an owner that is a member is left alone.
        if let Some(owner) = view.head.and_then(|(head, _)| head.owner.as_ref())
            && *owner != self.owner
        {
            let key = self.layout.member(&owner.instance);
            let mod_revision = view.members.get(&owner.instance).map_or(0, |member| member.mod_revision);
            txn.conditions.push(Condition { key, mod_revision });
        }
        Attempt { call: Some(Call::txn(txn)), overdue_ms: 0, seen }
    }

    /// Returns once whether the members must be read again.
    pub fn take_wrong_members(&mut self) -> bool {
        std::mem::take(&mut self.has_wrong_members)
    }

    /// Returns how long this instance leaves the store to others, in milliseconds; `None` if it must not take it over.
    fn pause(&self, view: View<'_>) -> Option<u64> {
        // All others would take the store over from an owner that is no member: after a pause of etcd that has ended all
        // leases, instances would do so in turn until all are members again, and each takeover discards requests.
        if view.members.get(&self.owner.instance).is_none_or(|member| member.run != self.owner.run) {
            return None;
        }
        let Some((Head { owner: Some(owner), .. }, _)) = view.head else {
            return Some(self.rank(view.members, None));
        };
        if *owner == self.owner {
            return Some(0);
        }
        // Another run of the same name is another instance.
        if view.members.get(&owner.instance).is_some_and(|member| member.run == owner.run) {
            return None;
        }
        let rank = self.rank(view.members, Some(&owner.instance));
        // An instance that was started again holds no requests of its clients; the others do.
        let is_own = owner.instance == self.owner.instance;
        let last = if is_own { RANK_PAUSE_MS.saturating_mul(view.members.len() as u64) } else { 0 };
        Some(rank.max(last))
    }

    /// Returns the pause of this instance among the candidates, which try in the order of their names.
    fn rank(&self, members: &BTreeMap<String, Member>, gone: Option<&str>) -> u64 {
        let others = members.keys().filter(|member| gone != Some(member));
        let before = others.take_while(|member| **member < self.owner.instance).count();
        RANK_PAUSE_MS.saturating_mul(before as u64)
    }

    pub fn awaits(&self, id: ActionId) -> bool {
        self.attempt.as_ref().and_then(|attempt| attempt.call.as_ref()).is_some_and(|call| call.is(id))
    }

    /// Handles the answer to a takeover. Whether it has succeeded is known when the watch receives it. Returns why etcd has
    /// refused it, if that is new.
    pub fn handle_answer(&mut self, result: ActionResult, now: Now) -> Option<EtcdError> {
        let Some(Attempt { call, overdue_ms, seen }) = &mut self.attempt else { return None };
        match result.and_then(Answer::into_txn).map(|answer| answer.outcome) {
            Ok(TxnOutcome::NotApplied(found)) if revision_of(&found) == *seen => {
                // The owner is a member after all, which the next look at the members shows.
                self.refusal = None;
                self.reset();
                self.pause_ms = now.monotonic_ms.saturating_add(RANK_PAUSE_MS);
                self.has_wrong_members = true;
                None
            }
            Ok(_) => {
                // Applied or not, another head is there.
                self.refusal = None;
                (*call, *overdue_ms) = (None, now.monotonic_ms.saturating_add(RECEPTION_MS));
                None
            }
            Err(EtcdError::Unknown { .. } | EtcdError::Compacted { .. }) => {
                if let Some(call) = call {
                    call.retry(now.monotonic_ms);
                }
                None
            }
            Err(error @ (EtcdError::NoSpace | EtcdError::Refused { .. })) => {
                self.attempt = None;
                self.pause_ms = now.monotonic_ms.saturating_add(RETRY_PAUSE_MS);
                // The next attempts fail alike.
                let is_known = self.refusal.replace(error.clone()) == Some(error.clone());
                (!is_known).then_some(error)
            }
        }
    }

    /// Whether the watch has not received the head that the attempt has written or found: it has lost changes.
    pub fn is_overdue(&self, now: Now) -> bool {
        let attempt = self.attempt.as_ref().filter(|attempt| attempt.call.is_none());
        attempt.is_some_and(|attempt| attempt.overdue_ms <= now.monotonic_ms)
    }
}

/// Returns the revision of the head that a transaction has found, 0 without one.
fn revision_of(found: &[Option<Pair>]) -> u64 {
    found.first().and_then(Option::as_ref).map_or(0, |pair| pair.mod_revision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::etcd::action::ActionKind;
    use crate::ledger::etcd::operation::{Operation, TxnAnswer, TxnOutcome};

    const NAMES: [&str; 3] = ["a", "b", "c"];

    fn candidate_of(instance: &str, run: u64) -> Candidate {
        Candidate::new(Layout::new("c"), Owner { instance: instance.to_owned(), run })
    }

    fn candidate(instance: &str) -> Candidate {
        candidate_of(instance, 7)
    }

    /// Members of the runs that [`head`] names.
    fn members(names: &[&str]) -> BTreeMap<String, Member> {
        names.iter().map(|name| ((*name).to_owned(), Member { run: 7, mod_revision: 20 })).collect()
    }

    fn head(owner: Option<&str>) -> (Head, u64) {
        let owner = owner.map(|owner| Owner { instance: owner.to_owned(), run: 7 });
        (Head { owner, epoch: 3, seq: 9, ..Head::default() }, 50)
    }

    fn pauses(members: &BTreeMap<String, Member>, head: Option<&(Head, u64)>) -> [Option<u64>; 3] {
        NAMES.map(|name| candidate(name).pause(View { head, members, clock: StoreClock::default() }))
    }

    #[test]
    fn a_present_owner_is_left_alone_also_by_another_run_of_its_name() {
        let (all, head) = (members(&NAMES), head(Some("a")));
        let view = View { head: Some(&head), members: &all, clock: StoreClock::default() };
        assert_eq!(
            [candidate("b"), candidate("c"), candidate_of("a", 8)].map(|one| one.pause(view)),
            [None; 3]
        );
    }

    #[test]
    fn an_owner_that_was_started_again_comes_after_those_that_hold_requests() {
        let mut all = members(&NAMES);
        all.insert("a".to_owned(), Member { run: 8, mod_revision: 30 });
        let head = head(Some("a"));
        let view = View { head: Some(&head), members: &all, clock: StoreClock::default() };
        let pauses = [candidate("b"), candidate("c"), candidate_of("a", 8)].map(|one| one.pause(view));
        assert_eq!(pauses, [Some(0), Some(100), Some(300)]);
        let alone = BTreeMap::from([("a".to_owned(), Member { run: 8, mod_revision: 30 })]);
        let view = View { head: Some(&head), members: &alone, clock: StoreClock::default() };
        assert_eq!(candidate_of("a", 8).pause(view), Some(100));
    }

    #[test]
    fn a_store_without_an_owner_is_taken_over_in_an_order_that_all_agree_on() {
        let all = members(&NAMES);
        for head in [None, Some(head(None))] {
            assert_eq!(pauses(&all, head.as_ref()), [Some(0), Some(100), Some(200)]);
        }
        let rest = members(&["b", "c"]);
        assert_eq!(pauses(&rest, Some(&head(Some("a")))), [None, Some(0), Some(100)]);
    }

    #[test]
    fn an_instance_that_is_no_member_takes_nothing_over_as_all_others_would_take_it_from_it() {
        let (none, earlier_run) =
            (members(&[]), BTreeMap::from([("a".to_owned(), Member { run: 6, mod_revision: 1 })]));
        for members in [&none, &earlier_run] {
            for head in [None, Some(head(None)), Some(head(Some("a"))), Some(head(Some("b")))] {
                assert_eq!(
                    candidate("a").pause(View { head: head.as_ref(), members, clock: StoreClock::default() }),
                    None
                );
            }
        }
    }

    #[test]
    fn a_takeover_replaces_the_head_that_was_seen_and_is_tried_again_if_its_outcome_is_unknown() {
        let (alone, head) = (members(&["a"]), head(None));
        let view = View { head: Some(&head), members: &alone, clock: StoreClock::default() };
        let (mut candidate, mut ids) = (candidate("a"), Ids::default());
        let now = Now { wall_ms: 77, monotonic_ms: 5 };
        let first = candidate.poll_action(view, now, &mut ids).unwrap();
        let ActionKind::Txn(txn) = &first.kind else { panic!() };
        assert_eq!(txn.conditions[0].mod_revision, 50);
        assert!(candidate.awaits(first.id));
        candidate.handle_answer(Err(EtcdError::Unknown { reason: String::new() }), now);
        let again = candidate.poll_action(view, now, &mut ids).unwrap();
        assert_eq!(again.kind, first.kind);
        let outcome = TxnOutcome::NotApplied(vec![None]);
        candidate.handle_answer(Ok(Answer::Txn(TxnAnswer { revision: 60, outcome })), now);
        assert_eq!(candidate.poll_action(view, now, &mut ids), None);
        assert_eq!(candidate.next_deadline(view), Some(1_005));
        assert!(!candidate.is_overdue(now) && candidate.is_overdue(Now { wall_ms: 77, monotonic_ms: 1_005 }));
    }

    #[test]
    fn an_instance_that_clients_do_not_reach_begins_no_takeover_until_they_do() {
        let (alone, head) = (members(&["a"]), head(None));
        let view = View { head: Some(&head), members: &alone, clock: StoreClock::default() };
        let (mut candidate, mut ids) = (candidate("a"), Ids::default());
        candidate.set_waiting(true);
        assert_eq!(candidate.poll_action(view, Now::default(), &mut ids), None);
        assert_eq!(candidate.next_deadline(view), None);
        candidate.set_waiting(false);
        let first = candidate.poll_action(view, Now::default(), &mut ids).unwrap();
        candidate.set_waiting(true);
        candidate.handle_answer(Err(EtcdError::Unknown { reason: String::new() }), Now::default());
        let again = candidate.poll_action(view, Now::default(), &mut ids).unwrap();
        assert_eq!(again.kind, first.kind, "what has begun is ended");
    }

    #[test]
    fn an_instance_that_may_not_own_the_store_releases_it_if_the_head_still_names_it() {
        let (both, head) = (members(&["a", "b"]), head(Some("a")));
        let view = View { head: Some(&head), members: &both, clock: StoreClock::default() };
        let (mut candidate, mut ids) = (candidate("a"), Ids::default());
        candidate.set_waiting(true);
        let now = Now { wall_ms: 77, monotonic_ms: 5 };
        let released = |action: Option<Action>| {
            let ActionKind::Txn(txn) = action.unwrap().kind else { panic!() };
            assert_eq!(txn.conditions[0].mod_revision, 50);
            let [Operation::Put { value, .. }] = &txn.operations[..] else { panic!("{txn:?}") };
            Head::decode(value).unwrap()
        };
        let action = candidate.poll_action(view, now, &mut ids).unwrap();
        let id = action.id;
        let next = released(Some(action));
        assert_eq!((next.owner, next.epoch, next.seq, next.wall_ms), (None, head.0.epoch, head.0.seq + 1, 0));
        // etcd is still full, and is asked again.
        candidate.handle_answer(Err(EtcdError::NoSpace), now);
        assert!(!candidate.awaits(id) && candidate.poll_action(view, now, &mut ids).is_none());
        let later = Now { monotonic_ms: 5 + RETRY_PAUSE_MS, ..now };
        assert_eq!(released(candidate.poll_action(view, later, &mut ids)).owner, None);
    }

    #[test]
    fn an_owner_whose_member_key_is_not_received_yet_is_left_alone() {
        let (none, head) = (members(&["b"]), head(Some("a")));
        let view = View { head: Some(&head), members: &none, clock: StoreClock::default() };
        let (mut candidate, mut ids) = (candidate("b"), Ids::default());
        let now = Now { wall_ms: 77, monotonic_ms: 5 };
        let ActionKind::Txn(txn) = candidate.poll_action(view, now, &mut ids).unwrap().kind else { panic!() };
        let member = Condition { key: Layout::new("c").member("a"), mod_revision: 0 };
        assert_eq!(txn.conditions[1], member);
        let found = Pair { key: txn.conditions[0].key.clone(), value: "".into(), mod_revision: 50 };
        let outcome = TxnOutcome::NotApplied(vec![Some(found)]);
        candidate.handle_answer(Ok(Answer::Txn(TxnAnswer { revision: 60, outcome })), now);
        assert_eq!(candidate.poll_action(view, now, &mut ids), None);
        let all = members(&["a", "b"]);
        assert_eq!(
            candidate.next_deadline(View { head: Some(&head), members: &all, clock: StoreClock::default() }),
            None
        );
    }

    #[test]
    fn a_store_that_was_left_to_others_is_taken_over_at_once_when_its_next_owner_is_gone() {
        let (both, alone) = (members(&["a", "b"]), members(&["a"]));
        let (free, mut taken) = (head(None), (head(Some("b")).0, 51));
        let epoch = free.0.epoch;
        taken.0.epoch += 1;
        let at = |monotonic_ms: u64| Now { wall_ms: 0, monotonic_ms };
        let (mut left, mut ids) = (candidate("a"), Ids::default());
        left.leave_until(10_000, epoch);
        let mut poll = |head, members, now_ms| {
            left.poll_action(
                View { head: Some(head), members, clock: StoreClock::default() },
                at(now_ms),
                &mut ids,
            )
            .is_some()
        };
        assert!(!poll(&free, &alone, 1_000));
        assert!(!poll(&taken, &both, 2_000));
        assert!(poll(&taken, &alone, 3_000));
        // The next owner has given it up before it was seen.
        let mut free_again = (head(None).0, 52);
        free_again.0.epoch += 1;
        let mut left = candidate("a");
        left.leave_until(10_000, epoch);
        let seen = View { head: Some(&free), members: &alone, clock: StoreClock::default() };
        assert!(left.poll_action(seen, at(1_000), &mut ids).is_none());
        let seen = View { head: Some(&free_again), members: &alone, clock: StoreClock::default() };
        assert!(left.poll_action(seen, at(2_000), &mut ids).is_some());
    }

    #[test]
    fn the_attempt_ends_when_another_head_is_received() {
        let (alone, first) = (members(&["a"]), head(None));
        let (mut candidate, mut ids) = (candidate("a"), Ids::default());
        let now = Now::default();
        let view = View { head: Some(&first), members: &alone, clock: StoreClock::default() };
        let action = candidate.poll_action(view, now, &mut ids).unwrap();
        let other = (head(Some("b")).0, 51);
        let present = members(&["a", "b"]);
        let view = View { head: Some(&other), members: &present, clock: StoreClock::default() };
        assert_eq!(candidate.poll_action(view, now, &mut ids), None);
        assert!(!candidate.awaits(action.id));
        assert_eq!(candidate.next_deadline(view), None);
    }
}
