//! Compaction of etcd's history, by one instance each five minutes.

use bytes::Bytes;

use crate::ledger::etcd::action::{Action, ActionId, ActionKind, ActionResult, Answer, Call, Ids};
use crate::ledger::etcd::commit::put;
use crate::ledger::etcd::operation::{Condition, EtcdError, Txn, TxnOutcome};
use crate::store::Now;

/// The time between two compactions, and the least history that remains.
const COMPACTION_MS: u64 = 300_000;

/// Compacts etcd up to the revision of the look before, but not beyond one at which a member reads the state.
///
/// All instances compare and swap one key, as the API servers of Kubernetes do; the one that succeeds compacts. An instance that
/// lags by more than this reads the state again.
#[derive(Debug)]
pub struct Upkeep {
    key: Bytes,
    /// The revision at which the key was changed last.
    seen: u64,
    /// The revision of etcd at the last look.
    last: u64,
    call: Call,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Swap,
    Compact,
}

impl Upkeep {
    pub fn new(key: Bytes, now: Now) -> Self {
        let call = Call::new(swap(&key, 0, 0), now.monotonic_ms);
        Self { key, seen: 0, last: 0, call, stage: Stage::Swap }
    }

    pub fn poll_action(&mut self, now: Now, ids: &mut Ids) -> Option<Action> {
        self.call.poll(now.monotonic_ms, ids)
    }

    pub fn next_deadline(&self) -> Option<u64> {
        self.call.next_deadline()
    }

    pub fn awaits(&self, id: ActionId) -> bool {
        self.call.is(id)
    }

    /// Handles an answer. After a failure, the next look comes. `least_read` is the least revision at which a member reads. Returns why
    /// etcd has refused a compaction.
    pub fn handle_answer(
        &mut self,
        result: ActionResult,
        least_read: Option<u64>,
        now: Now,
    ) -> Option<EtcdError> {
        if self.stage == Stage::Compact {
            self.wait(now);
            return match result {
                Err(error @ EtcdError::Refused { .. }) => Some(error),
                _ => None,
            };
        }
        match result.and_then(Answer::into_txn) {
            Ok(answer) => {
                let target = std::mem::replace(&mut self.last, answer.revision);
                let target = least_read.map_or(target, |least_read| target.min(least_read));
                match answer.outcome {
                    TxnOutcome::Applied => {
                        self.seen = answer.revision;
                        if target > 0 {
                            self.stage = Stage::Compact;
                            self.call = Call::new(ActionKind::Compact { revision: target }, 0);
                            return None;
                        }
                    }
                    TxnOutcome::NotApplied(pairs) => {
                        let pair = pairs.into_iter().next().flatten();
                        self.seen = pair.map_or(0, |pair| pair.mod_revision);
                    }
                }
                self.wait(now);
            }
            Err(EtcdError::Unknown { .. }) => self.call.retry_late(now.monotonic_ms),
            Err(_) => self.wait(now),
        }
        None
    }

    fn wait(&mut self, now: Now) {
        self.stage = Stage::Swap;
        let due_ms = now.monotonic_ms.saturating_add(COMPACTION_MS);
        self.call = Call::new(swap(&self.key, self.seen, self.last), due_ms);
    }
}

fn swap(key: &Bytes, seen: u64, revision: u64) -> ActionKind {
    ActionKind::Txn(Txn {
        conditions: vec![Condition { key: key.clone(), mod_revision: seen }],
        operations: vec![put(key.clone(), revision.to_string().into())],
        otherwise: vec![key.clone()],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::etcd::operation::{Pair, TxnAnswer};

    fn poll(upkeep: &mut Upkeep, now_ms: u64) -> Option<ActionKind> {
        let now = Now { wall_ms: 0, monotonic_ms: now_ms };
        upkeep.poll_action(now, &mut Ids::default()).map(|action| action.kind)
    }

    fn answer(upkeep: &mut Upkeep, revision: u64, outcome: TxnOutcome, now_ms: u64) {
        let now = Now { wall_ms: 0, monotonic_ms: now_ms };
        upkeep.handle_answer(Ok(Answer::Txn(TxnAnswer { revision, outcome })), None, now);
    }

    /// Returns one that waits for the answer to its second look.
    fn at_second_look() -> Upkeep {
        let mut upkeep = Upkeep::new(Bytes::from_static(b"c"), Now::default());
        poll(&mut upkeep, 0);
        answer(&mut upkeep, 100, TxnOutcome::Applied, 0);
        poll(&mut upkeep, COMPACTION_MS);
        upkeep
    }

    #[test]
    fn history_of_some_minutes_is_kept() {
        let key = Bytes::from_static(b"c");
        let mut upkeep = Upkeep::new(key.clone(), Now::default());
        assert_eq!(poll(&mut upkeep, 0), Some(swap(&key, 0, 0)));
        answer(&mut upkeep, 100, TxnOutcome::Applied, 0);
        assert_eq!(poll(&mut upkeep, COMPACTION_MS - 1), None);
        assert_eq!(poll(&mut upkeep, COMPACTION_MS), Some(swap(&key, 100, 100)));
        answer(&mut upkeep, 200, TxnOutcome::Applied, COMPACTION_MS);
        assert_eq!(poll(&mut upkeep, COMPACTION_MS), Some(ActionKind::Compact { revision: 100 }));
        let later = Now { wall_ms: 0, monotonic_ms: COMPACTION_MS + 1 };
        assert_eq!(upkeep.handle_answer(Ok(Answer::Compacted), None, later), None);
        assert_eq!(poll(&mut upkeep, 2 * COMPACTION_MS + 1), Some(swap(&key, 200, 200)));
    }

    #[test]
    fn a_compaction_that_etcd_refuses_is_reported_and_tried_again() {
        let mut upkeep = at_second_look();
        answer(&mut upkeep, 200, TxnOutcome::Applied, COMPACTION_MS);
        let error = EtcdError::Refused { reason: "permission denied".to_owned() };
        let refused = Err(error.clone());
        let now = Now { wall_ms: 0, monotonic_ms: COMPACTION_MS };
        assert_eq!(upkeep.handle_answer(refused, None, now), Some(error));
        assert!(poll(&mut upkeep, 2 * COMPACTION_MS).is_some());
    }

    #[test]
    fn history_that_a_member_reads_is_kept() {
        let mut upkeep = at_second_look();
        let swapped = TxnAnswer { revision: 200, outcome: TxnOutcome::Applied };
        upkeep.handle_answer(Ok(Answer::Txn(swapped)), Some(80), Now::default());
        assert_eq!(poll(&mut upkeep, COMPACTION_MS), Some(ActionKind::Compact { revision: 80 }));
    }

    #[test]
    fn an_instance_that_loses_the_swap_does_not_compact() {
        let key = Bytes::from_static(b"c");
        let mut upkeep = Upkeep::new(key.clone(), Now::default());
        poll(&mut upkeep, 0);
        let pair = Pair { key: key.clone(), value: Bytes::new(), mod_revision: 90 };
        answer(&mut upkeep, 100, TxnOutcome::NotApplied(vec![Some(pair)]), 0);
        assert_eq!(poll(&mut upkeep, COMPACTION_MS), Some(swap(&key, 90, 100)));
    }
}
