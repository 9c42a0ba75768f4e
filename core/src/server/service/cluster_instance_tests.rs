//! Services with the machines of their instances, on a small model of etcd.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bytes::Bytes;

use super::cluster_tests::client;
use super::tests::{TestService, del, get, key, message, set, set_with, value, version, watch};
use crate::ledger::etcd::Layout;
use crate::ledger::etcd::action::{ActionId, ActionKind, ActionResult, Answer, WatchRange};
use crate::ledger::etcd::encode_run;
use crate::ledger::etcd::operation::{
    EtcdError, Operation, Pair, RangeAnswer, RangeRead, Space, Txn, TxnAnswer, TxnOutcome, WatchBatch,
    WatchEvent,
};
use crate::protocol::{Condition, ErrorReply, Message, Reply, Request};
use crate::server::cluster::{Instance, InstanceSettings, Role};
use crate::store::Now;

/// etcd without faults, but for its quota.
#[derive(Default)]
struct Etcd {
    revision: u64,
    keys: BTreeMap<Bytes, Pair>,
    history: Vec<WatchEvent>,
    is_full: bool,
}

impl Etcd {
    fn read(&self, read: &RangeRead) -> RangeAnswer {
        assert!(read.revision.is_none_or(|revision| revision == self.revision));
        let pairs = self.keys.range(read.from.clone()..read.to.clone()).map(|(_, pair)| pair.clone());
        let limit = if read.limit == 0 { usize::MAX } else { read.limit as usize };
        let mut pairs: Vec<_> = pairs.collect();
        let more = pairs.len().saturating_sub(limit) as u64;
        pairs.truncate(limit);
        RangeAnswer { revision: self.revision, pairs, more }
    }

    fn txn(&mut self, txn: &Txn) -> Result<TxnAnswer, EtcdError> {
        let puts = |operation: &Operation| matches!(operation, Operation::Put { .. });
        if self.is_full && txn.operations.iter().any(puts) {
            return Err(EtcdError::NoSpace);
        }
        let revision_of = |key: &Bytes| self.keys.get(key).map_or(0, |pair| pair.mod_revision);
        if txn.conditions.iter().any(|condition| revision_of(&condition.key) != condition.mod_revision) {
            let pairs = txn.otherwise.iter().map(|key| self.keys.get(key).cloned()).collect();
            return Ok(TxnAnswer { revision: self.revision, outcome: TxnOutcome::NotApplied(pairs) });
        }
        self.revision += 1;
        for operation in &txn.operations {
            match operation {
                Operation::Put { key, value, .. } => self.put(key.clone(), value.clone()),
                Operation::Delete { key } => self.delete(key),
                Operation::DeleteRange { from, to } => {
                    let keys: Vec<_> =
                        self.keys.range(from.clone()..to.clone()).map(|(key, _)| key.clone()).collect();
                    keys.iter().for_each(|key| self.delete(key));
                }
            }
        }
        Ok(TxnAnswer { revision: self.revision, outcome: TxnOutcome::Applied })
    }

    fn put(&mut self, key: Bytes, value: Bytes) {
        let mod_revision = self.revision;
        self.keys.insert(key.clone(), Pair { key: key.clone(), value: value.clone(), mod_revision });
        self.history.push(WatchEvent { key, value: Some(value), mod_revision });
    }

    fn delete(&mut self, key: &Bytes) {
        if self.keys.remove(key).is_some() {
            self.history.push(WatchEvent { key: key.clone(), value: None, mod_revision: self.revision });
        }
    }

    fn perform(&mut self, action: &ActionKind) -> ActionResult {
        match action {
            ActionKind::Read(read) => Ok(Answer::Read(self.read(read))),
            ActionKind::Txn(txn) => self.txn(txn).map(Answer::Txn),
            ActionKind::Space if self.is_full => Ok(Answer::Space(Space::Exhausted.into())),
            ActionKind::Space => Ok(Answer::Space(Space::Enough.into())),
            _ => Ok(Answer::Compacted),
        }
    }
}

/// An instance with its service.
struct Node<'a> {
    etcd: &'a RefCell<Etcd>,
    name: &'static str,
    test: TestService,
    instance: Instance,
    watches: Vec<(ActionId, WatchRange)>,
    /// How far the monotonic clock of the machine is ahead, in milliseconds.
    ahead_ms: u64,
    /// The same of its wall clock.
    wall_ahead_ms: u64,
}

impl<'a> Node<'a> {
    fn join(etcd: &'a RefCell<Etcd>, name: &'static str, confirms_by_commit: bool) -> Self {
        let layout = Layout::new("c");
        let settings = InstanceSettings {
            layout,
            instance: name.into(),
            run: 1,
            hash_key: [name.as_bytes()[0]; 32],
            confirms_by_commit,
            compacts: false,
        };
        let (test, instance) = (TestService::joining(true), Instance::new(settings));
        let node = Self { etcd, name, test, instance, watches: Vec::new(), ahead_ms: 0, wall_ahead_ms: 0 };
        node.enter();
        node
    }

    fn enter(&self) {
        let mut etcd = self.etcd.borrow_mut();
        etcd.revision += 1;
        etcd.put(Layout::new("c").member(self.name), encode_run(1));
    }

    fn leave(&self) {
        let mut etcd = self.etcd.borrow_mut();
        etcd.revision += 1;
        etcd.delete(&Layout::new("c").member(self.name));
    }

    /// Does all that there is to do at present.
    fn run(&mut self) {
        let mut is_busy = true;
        while is_busy {
            is_busy = false;
            let now = self.test.service.cluster_now();
            let now = Now {
                wall_ms: now.wall_ms + self.wall_ahead_ms,
                monotonic_ms: now.monotonic_ms + self.ahead_ms,
            };
            while let Some(action) = self.instance.poll_action(now) {
                is_busy = true;
                match action.kind {
                    ActionKind::Watch(range) => self.watches.push((action.id, range)),
                    ActionKind::CancelWatch(watch) => self.watches.retain(|(id, _)| *id != watch),
                    kind => {
                        let answer = self.etcd.borrow_mut().perform(&kind);
                        self.instance.handle_answer(action.id, answer, now);
                    }
                }
            }
            for (id, range) in &mut self.watches {
                let etcd = self.etcd.borrow();
                while range.revision <= etcd.revision {
                    let is_received = |event: &&WatchEvent| {
                        event.mod_revision == range.revision
                            && event.key >= range.from
                            && event.key < range.to
                    };
                    let events = etcd.history.iter().filter(is_received).cloned().collect();
                    self.instance.handle_watch(*id, Ok(WatchBatch { revision: range.revision, events }), now);
                    range.revision += 1;
                    is_busy = true;
                }
            }
            while let Some(effect) = self.instance.poll_effect() {
                is_busy = true;
                self.test.service.handle_cluster_effect(effect, &self.test.sent_messages);
            }
            if self.instance.wants_group()
                && let Some(group) = self.test.service.take_cluster_group()
            {
                is_busy = true;
                self.instance.commit(group, now);
            }
        }
    }

    fn replies(&mut self, messages: &[Message]) -> Vec<Reply> {
        messages.iter().for_each(|message| _ = self.test.send_from(&client("client"), message.clone()));
        assert!(self.test.sent_messages.take().is_empty());
        self.run();
        self.test.sent_messages.replies()
    }

    fn rows(&self) -> Vec<(crate::protocol::Key, crate::store::Version, Bytes)> {
        let (entries, _) = self.test.service.shared.lock().store.persistent_from(0, usize::MAX, usize::MAX);
        let mut rows: Vec<_> =
            entries.into_iter().map(|(key, version, stored)| (key, version, stored.value)).collect();
        rows.sort();
        rows
    }
}

#[test]
fn services_hand_their_keys_answers_and_watches_over_by_etcd() {
    for confirms_by_commit in [false, true] {
        let etcd = RefCell::new(Etcd::default());
        let mut first = Node::join(&etcd, "a", confirms_by_commit);
        let mut second = Node::join(&etcd, "b", confirms_by_commit);
        first.ahead_ms = 1_000;
        first.run();
        first.ahead_ms = 2_000;
        first.run();
        second.run();
        assert_eq!(
            (first.instance.status().role, second.instance.status().role),
            (Role::Owner, Role::Follower)
        );

        let lock = message(&set_with("lock", "mine", Some(Condition::Absent), 3_600_000));
        let unlock = message(&del("gone"));
        let [put, gone] = ["k", "gone"].map(|name| message(&set(name, "v")));
        let requests = [message(&watch("k")), lock.clone(), put, gone, unlock.clone(), message(&get("k"))];
        let replies = [Reply::Done, Reply::Done, Reply::Done, Reply::Done, Reply::Count(1), value("v")];
        assert_eq!(first.replies(&requests), replies);
        let lost = message(&set("k", "lost"));
        first.test.send_from(&client("client"), lost.clone());

        first.leave();
        second.run();
        assert_eq!(second.instance.status().role, Role::Owner);
        first.run();
        assert_eq!(first.instance.status().role, Role::Follower);
        assert!(first.test.sent_messages.take().is_empty(), "the second one answers");
        assert_eq!(
            second.replies(&[lock, unlock, message(&get("k"))]),
            [Reply::Done, Reply::Count(1), value("v")]
        );
        let before = second.rows().iter().map(|(_, version, _)| *version).max().unwrap();
        second.test.send_from(&client("client"), lost);
        second.run();
        let sent = second.test.sent_messages.take();
        assert_eq!(
            sent.iter().map(|(to, _)| to.is_some()).collect::<Vec<_>>(),
            [false, true],
            "a notification"
        );
        let after = version(&sent[0].1);
        assert!((after.ms, after.counter) > (before.ms, before.counter));

        etcd.borrow_mut().is_full = true;
        let quota_exceeded = || Reply::Error(ErrorReply::QuotaExceeded);
        let vdel = Request::VDel { key: key("lock"), value: "mine".into() };
        let requests =
            [set("new", "v"), get("k"), vdel.clone(), watch("lock")].map(|request| message(&request));
        assert_eq!(second.replies(&requests), [], "clients deliver them again");
        assert_eq!(
            second.replies(&requests),
            [quota_exceeded(), value("lost"), Reply::Count(1), quota_exceeded()]
        );
        assert_eq!(
            second.replies(&[set("new", "v"), del("k")].map(|request| message(&request))),
            [quota_exceeded(), Reply::Count(1)]
        );
        etcd.borrow_mut().is_full = false;
        second.test.sent_messages.take();
        second.ahead_ms += 10_000;
        second.run();
        assert_eq!(second.replies(&[message(&set("new", "w"))]), [Reply::Done]);

        first.enter();
        first.run();
        assert_eq!(first.rows(), second.rows());
        second.leave();
        first.ahead_ms += 10_000;
        first.run();
        assert_eq!(first.instance.status().role, Role::Owner);
        assert_eq!(
            first.replies(&requests[2..3]),
            [Reply::Count(1)],
            "also what was deleted without space is known"
        );
        assert_eq!(first.replies(&[message(&get("new"))]), [value("w")]);
    }
}

#[test]
fn a_write_that_is_delivered_again_is_answered_by_a_new_owner_whose_clock_is_minutes_ahead() {
    let etcd = RefCell::new(Etcd::default());
    let mut first = Node::join(&etcd, "a", false);
    (first.ahead_ms, first.wall_ahead_ms) = (1_000, 0);
    first.run();
    let lock = Message {
        expiry_s: Some(10),
        ..message(&set_with("lock", "mine", Some(Condition::Absent), 3_600_000))
    };
    assert_eq!(first.replies(std::slice::from_ref(&lock)), [Reply::Done]);
    first.leave();
    // It reads the state, in which the answer has been for a moment, and whose time its own clock has passed.
    let mut second = Node::join(&etcd, "b", false);
    second.wall_ahead_ms = 200_000;
    second.run();
    second.ahead_ms = 1_000;
    second.run();
    assert_eq!(second.instance.status().role, Role::Owner);
    assert_eq!(second.replies(&[lock]), [Reply::Done]);
    assert_eq!(second.replies(&[message(&get("lock"))]), [value("mine")], "nor has it expired");
}
