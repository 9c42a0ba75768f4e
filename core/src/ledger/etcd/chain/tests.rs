//! Tests of the chain of commits, answer by answer.

use super::*;
use crate::ledger::etcd::action::{ActionKind, Answer};
use crate::ledger::etcd::codec::Owner;
use crate::ledger::etcd::operation::{Operation, RangeAnswer, Txn, TxnAnswer};
use crate::ledger::{KeyRecord, Record, ResponseRecord};
use crate::protocol::Key;
use crate::protocol::reply::Outcome;
use crate::store::{StoredValue, Version};

const NOW: Now = Now { wall_ms: 1_000, monotonic_ms: 100 };

struct Testbed {
    chain: Chain,
    ids: Ids,
    now: Now,
}

fn layout() -> Layout {
    Layout::new("c")
}

fn owner(instance: &str) -> Option<Owner> {
    Some(Owner { instance: instance.to_owned(), run: 1 })
}

fn testbed(confirms_by_commit: bool) -> Testbed {
    let head = Head { owner: owner("a"), epoch: 4, seq: 9, ..Head::default() };
    let chain = Chain::new(
        layout(),
        (head, 50),
        StoreClock::default(),
        ResponseIndex::default(),
        confirms_by_commit,
        NOW,
    );
    Testbed { chain, ids: Ids::default(), now: NOW }
}

fn row(key: &str, is_present: bool) -> Record {
    let stored = StoredValue { value: "v".into(), fence: None, deadline_ms: None, persist: true };
    let content = is_present.then_some((Version { ms: 7, counter: 0 }, stored));
    Record::Key(KeyRecord::new(Key::new(key.to_owned()).unwrap(), content))
}

fn group(records: Vec<(u64, Record)>, sequence: u64) -> Group {
    Group { records, sequence, ..Group::default() }
}

fn unknown() -> EtcdError {
    EtcdError::Unknown { reason: "timeout".to_owned() }
}

fn refused() -> EtcdError {
    EtcdError::Refused { reason: "permission denied".to_owned() }
}

impl Testbed {
    fn poll(&mut self) -> Option<ActionKind> {
        self.chain.poll_action(self.now, &mut self.ids).map(|action| action.kind)
    }

    fn txn(&mut self) -> Txn {
        let Some(ActionKind::Txn(txn)) = self.poll() else { panic!("no transaction is due") };
        txn
    }

    fn commit(&mut self, records: Vec<(u64, Record)>, sequence: u64) -> Txn {
        assert!(self.chain.wants_group());
        self.chain.commit(group(records, sequence), self.now).unwrap();
        self.txn()
    }

    fn applied(&mut self, revision: u64) -> Vec<ChainEvent> {
        let answer = Answer::Txn(TxnAnswer { revision, outcome: TxnOutcome::Applied });
        self.chain.handle_answer(Ok(answer), self.now)
    }

    /// Answers that a transaction was not applied, because of this head.
    fn not_applied(&mut self, head: &Head, mod_revision: u64) -> Vec<ChainEvent> {
        let pair = Pair { key: layout().head(), value: head.encode(), mod_revision };
        let outcome = TxnOutcome::NotApplied(vec![Some(pair)]);
        let answer = Answer::Txn(TxnAnswer { revision: mod_revision, outcome });
        self.chain.handle_answer(Ok(answer), self.now)
    }

    fn fails(&mut self, error: EtcdError) -> Vec<ChainEvent> {
        self.chain.handle_answer(Err(error), self.now)
    }

    fn read(&mut self, mod_revision: u64) -> Vec<ChainEvent> {
        let head = self.chain.head.clone();
        self.read_head(&head, mod_revision)
    }

    fn read_head(&mut self, head: &Head, mod_revision: u64) -> Vec<ChainEvent> {
        let pair = Pair { key: layout().head(), value: head.encode(), mod_revision };
        let answer = RangeAnswer { revision: 99, pairs: vec![pair], more: 0 };
        self.chain.handle_answer(Ok(Answer::Read(answer)), self.now)
    }
}

/// Returns the head that a transaction writes.
fn head_of(txn: &Txn) -> Head {
    let Operation::Put { value, .. } = &txn.operations[0] else { panic!() };
    Head::decode(value).unwrap()
}

#[test]
fn each_commit_compares_the_revision_of_the_one_before() {
    let mut testbed = testbed(false);
    let first = testbed.commit(vec![(1, row("a", true))], 3);
    assert_eq!((first.conditions[0].mod_revision, head_of(&first).seq), (50, 10));
    assert!(!testbed.chain.wants_group());
    assert_eq!(testbed.applied(60), [ChainEvent::Committed(3)]);
    let second = testbed.commit(vec![(4, row("a", false))], 4);
    assert_eq!((second.conditions[0].mod_revision, head_of(&second).seq), (60, 11));
}

#[test]
fn a_transaction_of_unknown_outcome_is_sent_again_until_it_is_known() {
    let mut testbed = testbed(false);
    let txn = testbed.commit(vec![(1, row("a", true))], 1);
    assert_eq!(testbed.fails(unknown()), []);
    assert_eq!(testbed.txn(), txn);
    assert_eq!(testbed.not_applied(&head_of(&txn), 55), [ChainEvent::Committed(1)], "an attempt was applied");
    let next = testbed.commit(vec![(2, row("a", true))], 2);
    assert_eq!(next.conditions[0].mod_revision, 55);
}

#[test]
fn another_head_ends_the_ownership() {
    let own = Head { owner: owner("a"), epoch: 4, seq: 10, ..Head::default() };
    let others = [
        Head { owner: owner("b"), epoch: 5, ..own.clone() },
        Head { owner: Some(Owner { instance: "a".to_owned(), run: 2 }), ..own.clone() },
        Head { epoch: 5, ..own.clone() },
        Head { owner: None, ..own },
    ];
    for other in others {
        let mut testbed = testbed(false);
        testbed.commit(vec![(1, row("a", true))], 1);
        assert_eq!(testbed.not_applied(&other, 60), [ChainEvent::Lost], "{other:?}");
    }
    let mut testbed = testbed(false);
    testbed.commit(vec![(1, row("a", true))], 1);
    let outcome = TxnOutcome::NotApplied(vec![None]);
    let answer = Answer::Txn(TxnAnswer { revision: 60, outcome });
    assert_eq!(testbed.chain.handle_answer(Ok(answer), NOW), [ChainEvent::Lost]);
}

#[test]
fn a_group_that_only_reads_is_confirmed_by_a_read_of_the_head_or_by_a_commit_of_it() {
    let mut by_read = testbed(false);
    by_read.chain.commit(group(Vec::new(), 5), NOW).unwrap();
    assert!(matches!(by_read.poll(), Some(ActionKind::Read(read)) if read.revision.is_none()));
    assert_eq!(by_read.read(50), [ChainEvent::Committed(5)]);
    by_read.chain.commit(group(Vec::new(), 6), NOW).unwrap();
    by_read.poll();
    assert_eq!(by_read.read_head(&Head { owner: owner("b"), ..Head::default() }, 51), [ChainEvent::Lost]);

    let mut by_commit = testbed(true);
    let txn = by_commit.commit(Vec::new(), 5);
    assert_eq!((txn.operations.len(), head_of(&txn).seq), (1, 10));
    assert_eq!(by_commit.applied(51), [ChainEvent::Committed(5)]);
}

#[test]
fn a_confirmation_under_way_does_not_confirm_what_came_later() {
    let mut testbed = testbed(false);
    testbed.now.monotonic_ms += IDLE_CONFIRMATION_MS;
    assert!(matches!(testbed.poll(), Some(ActionKind::Read(_))));
    assert!(testbed.chain.wants_group());
    testbed.chain.commit(group(Vec::new(), 7), NOW).unwrap();
    assert_eq!(testbed.read(50), []);
    assert!(matches!(testbed.poll(), Some(ActionKind::Read(_))));
    assert_eq!(testbed.read(50), [ChainEvent::Committed(7)]);
}

#[test]
fn without_space_a_group_is_given_up_and_deletions_are_committed_without_a_head() {
    let mut testbed = testbed(false);
    testbed.commit(vec![(1, row("a", true)), (2, row("b", false))], 3);
    let given_up = [ChainEvent::Space { is_short: true }, ChainEvent::Uncommitted];
    assert_eq!(testbed.fails(EtcdError::NoSpace), given_up);
    let txn = testbed.commit(vec![(4, row("b", false))], 4);
    assert!(matches!(&txn.operations[..], [Operation::Delete { .. }]));
    assert_eq!(txn.conditions[0].mod_revision, 50);
    assert_eq!(testbed.applied(70), [ChainEvent::Committed(4)]);
    testbed.chain.set_short_of_space(false);
    let next = testbed.commit(vec![(5, row("a", true))], 5);
    assert_eq!((next.conditions[0].mod_revision, head_of(&next).seq), (50, 10));
    assert_eq!(testbed.applied(71), [ChainEvent::Committed(5)]);
}

#[test]
fn responses_that_were_given_without_space_are_committed_as_soon_as_there_is_some() {
    let mut testbed = testbed(false);
    testbed.chain.set_short_of_space(true);
    let response = ResponseRecord {
        client_id: "client".into(),
        fingerprint: 7,
        payload: "+OK".into(),
        version: None,
        outcome: Outcome::Ok,
        until_ms: 60_000,
    };
    let deletion = testbed.commit(vec![(1, row("a", false)), (1, Record::Response(response))], 1);
    assert!(matches!(&deletion.operations[..], [Operation::Delete { .. }]));
    assert_eq!(testbed.applied(60), [ChainEvent::Committed(1)]);
    assert_eq!(testbed.poll(), None);
    testbed.chain.set_short_of_space(false);
    assert_eq!(testbed.chain.next_deadline(), Some(0));
    let late = testbed.txn();
    let expected = [layout().head(), layout().responses(10)];
    assert!(
        late.operations.iter().zip(&expected).all(|(operation, expected)| {
            matches!(operation, Operation::Put { key, .. } if key == expected)
        })
    );
    assert_eq!((late.operations.len(), testbed.applied(61)), (2, Vec::new()));
    assert_eq!(testbed.poll(), None);
}

#[test]
fn an_attempt_that_was_given_up_without_space_and_arrives_late_makes_the_state_be_read_again() {
    let mut testbed = testbed(false);
    let txn = testbed.commit(vec![(1, row("a", true)), (2, row("b", false))], 3);
    assert_eq!(testbed.fails(unknown()), []);
    assert_eq!(testbed.txn(), txn);
    let given_up = [ChainEvent::Space { is_short: true }, ChainEvent::Uncommitted];
    assert_eq!(testbed.fails(EtcdError::NoSpace), given_up);
    let deletion = testbed.commit(vec![(4, row("b", false))], 4);
    assert_eq!(testbed.not_applied(&head_of(&txn), 70), [ChainEvent::Uncommitted]);
    assert!(matches!(&deletion.operations[..], [Operation::Delete { .. }]));
    testbed.chain.set_short_of_space(false);
    let next = testbed.commit(vec![(5, row("a", true))], 5);
    assert_ne!(head_of(&next), head_of(&txn), "neither can be taken for the other");
    assert_eq!(testbed.not_applied(&head_of(&txn), 70), [ChainEvent::Uncommitted]);
    testbed.chain.commit(group(Vec::new(), 6), NOW).unwrap();
    testbed.poll();
    assert_eq!(testbed.read(70), [ChainEvent::Uncommitted]);
    testbed.chain.resign();
    testbed.txn();
    assert_eq!(testbed.not_applied(&head_of(&txn), 70), []);
    let resignation = testbed.txn();
    assert_eq!(resignation.conditions[0].mod_revision, 70);
    assert_eq!(testbed.applied(71), [ChainEvent::Resigned]);
}

#[test]
fn without_space_a_commit_a_minute_shows_whether_there_is_some_and_fails_nothing_that_waits() {
    let mut testbed = testbed(false);
    testbed.commit(vec![(1, row("a", true))], 1);
    testbed.fails(EtcdError::NoSpace);
    testbed.now.monotonic_ms += SPACE_ATTEMPT_MS - 1;
    testbed.chain.commit(group(Vec::new(), 2), testbed.now).unwrap();
    assert!(matches!(testbed.poll(), Some(ActionKind::Read(_))));
    assert_eq!(testbed.read(50), [ChainEvent::Committed(2)]);
    testbed.now.monotonic_ms += 1;
    let attempt = testbed.commit(Vec::new(), 3);
    assert!(matches!(&attempt.operations[..], [Operation::Put { .. }]));
    assert_eq!(testbed.fails(EtcdError::NoSpace), []);
    assert!(matches!(&testbed.txn().operations[..], [Operation::Delete { .. }]));
    assert_eq!(testbed.applied(60), [ChainEvent::Committed(3)]);
    testbed.now.monotonic_ms += SPACE_ATTEMPT_MS;
    testbed.txn();
    assert_eq!(testbed.applied(61), [ChainEvent::Space { is_short: false }]);
}

#[test]
fn a_resignation_of_unknown_outcome_ends_too_without_space() {
    let mut testbed = testbed(false);
    testbed.chain.resign();
    testbed.txn();
    testbed.fails(unknown());
    testbed.txn();
    let resigned = [ChainEvent::Space { is_short: true }, ChainEvent::Resigned];
    assert_eq!(testbed.fails(EtcdError::NoSpace), resigned);
}

#[test]
fn a_refusal_ends_the_ownership_if_an_answer_waits_for_the_commit() {
    let error = ChainEvent::Error { reason: "permission denied".to_owned() };
    let mut waited_for = testbed(false);
    waited_for.commit(vec![(1, row("a", true))], 1);
    assert_eq!(waited_for.fails(refused()), [error.clone(), ChainEvent::Lost]);
    let mut without_space = testbed(false);
    without_space.chain.set_short_of_space(true);
    without_space.commit(vec![(1, row("a", false))], 1);
    assert_eq!(without_space.fails(EtcdError::NoSpace), [], "etcd 3.4.19 refuses deletions, too");
    assert_eq!(without_space.poll(), None, "it is asked for again after a pause");
    without_space.now.monotonic_ms = without_space.chain.next_deadline().unwrap();
    without_space.txn();
    assert_eq!(without_space.fails(refused()), [error.clone(), ChainEvent::Uncommitted]);
    let mut resigning = testbed(false);
    resigning.chain.resign();
    resigning.txn();
    assert_eq!(resigning.fails(refused()), [error.clone(), ChainEvent::Resigned]);
    let mut idle = testbed(true);
    idle.now.monotonic_ms = idle.chain.next_deadline().unwrap();
    idle.txn();
    assert_eq!(idle.fails(refused()), [error]);
    assert_eq!(idle.poll(), None, "the same refusal would come at once");
    idle.now.monotonic_ms = idle.chain.next_deadline().unwrap();
    idle.txn();
}

#[test]
fn the_ownership_is_given_up_after_the_last_group() {
    let mut testbed = testbed(false);
    testbed.commit(vec![(1, row("a", true))], 1);
    testbed.chain.resign();
    assert!(!testbed.chain.is_drained() && !testbed.chain.wants_group());
    assert_eq!(testbed.applied(60), [ChainEvent::Committed(1)]);
    assert!(testbed.chain.is_drained());
    let txn = testbed.txn();
    assert_eq!((head_of(&txn).owner, head_of(&txn).seq), (None, 11));
    assert_eq!(testbed.applied(61), [ChainEvent::Resigned]);
}

#[test]
fn an_owner_without_writes_shows_the_clock_of_the_store_now_and_then_by_a_commit() {
    let mut testbed = testbed(false);
    let mut commits = Vec::new();
    for second in 1..=20 {
        let elapsed_ms = second * IDLE_CONFIRMATION_MS;
        testbed.now.monotonic_ms = NOW.monotonic_ms + elapsed_ms;
        // The wall clock goes back meanwhile.
        testbed.now.wall_ms = 0;
        match testbed.poll() {
            Some(ActionKind::Txn(txn)) => {
                let head = head_of(&txn);
                assert_eq!((head.clock_ms, head.wall_ms), (NOW.monotonic_ms + elapsed_ms, 0));
                testbed.applied(50 + second);
                commits.push(second);
            }
            Some(ActionKind::Read(_)) => {
                let revision = testbed.chain.revision;
                assert_eq!(testbed.read(revision), []);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(commits, [10, 20]);
}
