//! Model of etcd: revisions, transactions, reads at a revision, watches, compaction, the quota.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;

use crate::ledger::etcd::action::{ActionKind, ActionResult, Answer, WatchRange};
use crate::ledger::etcd::operation::{
    EtcdError, OPERATIONS_MAX, Operation, Pair, RangeAnswer, RangeRead, Space, Txn, TxnAnswer, TxnOutcome,
    WatchBatch, WatchEvent,
};

/// etcd's limit for a request.
const REQUEST_BYTES_MAX: usize = 1_500_000;

#[derive(Default)]
pub struct Etcd {
    pub revision: u64,
    keys: BTreeMap<Bytes, (Bytes, u64)>,
    /// The changes of each revision, from 1 on.
    pub history: Vec<Vec<WatchEvent>>,
    pub compacted: u64,
    pub is_full: bool,
    /// Whether most of the quota is in use.
    pub is_low: bool,
}

impl Etcd {
    pub fn perform(&mut self, action: &ActionKind) -> ActionResult {
        match action {
            ActionKind::Read(read) => self.read(read).map(Answer::Read),
            ActionKind::Txn(txn) => self.txn(txn).map(Answer::Txn),
            ActionKind::Compact { revision } => {
                self.compact(*revision);
                Ok(Answer::Compacted)
            }
            ActionKind::Space => {
                let space = match (self.is_full, self.is_low) {
                    (true, _) => Space::Exhausted,
                    (false, true) => Space::Low,
                    (false, false) => Space::Enough,
                };
                Ok(Answer::Space(space.into()))
            }
            ActionKind::Watch(_) | ActionKind::CancelWatch(_) => panic!("it has no answer"),
        }
    }

    pub fn compact(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision.min(self.revision));
    }

    fn read(&self, read: &RangeRead) -> Result<RangeAnswer, EtcdError> {
        let at = read.revision.unwrap_or(self.revision);
        if at < self.compacted {
            return Err(EtcdError::Compacted { revision: self.compacted });
        }
        Ok(self.read_at(read, at))
    }

    /// Returns a read of an earlier state, as etcd without the fix of stale reads may answer.
    pub fn read_at(&self, read: &RangeRead, at: u64) -> RangeAnswer {
        let keys = if at == self.revision { Cow::Borrowed(&self.keys) } else { Cow::Owned(self.keys_at(at)) };
        let mut pairs: Vec<_> = keys
            .range(read.from.clone()..)
            .take_while(|(key, _)| read.to.is_empty() || **key < read.to)
            .map(|(key, (value, mod_revision))| Pair {
                key: key.clone(),
                value: value.clone(),
                mod_revision: *mod_revision,
            })
            .collect();
        let limit = if read.limit == 0 { usize::MAX } else { read.limit as usize };
        let more = pairs.len().saturating_sub(limit) as u64;
        pairs.truncate(limit);
        let revision = if read.revision.is_some() { self.revision } else { at };
        RangeAnswer { revision, pairs, more }
    }

    fn keys_at(&self, revision: u64) -> BTreeMap<Bytes, (Bytes, u64)> {
        let mut keys = BTreeMap::new();
        for event in self.history.iter().take(usize::try_from(revision).unwrap()).flatten() {
            match &event.value {
                Some(value) => drop(keys.insert(event.key.clone(), (value.clone(), event.mod_revision))),
                None => drop(keys.remove(&event.key)),
            }
        }
        keys
    }

    fn txn(&mut self, txn: &Txn) -> Result<TxnAnswer, EtcdError> {
        check_limits(txn);
        if self.is_full && txn.operations.iter().any(|operation| matches!(operation, Operation::Put { .. })) {
            return Err(EtcdError::NoSpace);
        }
        let revision_of = |key: &Bytes| self.keys.get(key).map_or(0, |(_, revision)| *revision);
        if txn.conditions.iter().any(|condition| revision_of(&condition.key) != condition.mod_revision) {
            let pair = |key: &Bytes| {
                let (value, mod_revision) = self.keys.get(key)?.clone();
                Some(Pair { key: key.clone(), value, mod_revision })
            };
            let outcome = TxnOutcome::NotApplied(txn.otherwise.iter().map(pair).collect());
            return Ok(TxnAnswer { revision: self.revision, outcome });
        }
        let mod_revision = self.revision + 1;
        let mut events = Vec::new();
        for operation in &txn.operations {
            match operation {
                Operation::Put { key, value, .. } => {
                    self.keys.insert(key.clone(), (value.clone(), mod_revision));
                    events.push(WatchEvent { key: key.clone(), value: Some(value.clone()), mod_revision });
                }
                Operation::Delete { key } => {
                    if self.keys.remove(key).is_some() {
                        events.push(WatchEvent { key: key.clone(), value: None, mod_revision });
                    }
                }
                Operation::DeleteRange { from, to } => {
                    let keys: Vec<_> =
                        self.keys.range(from.clone()..to.clone()).map(|(key, _)| key.clone()).collect();
                    for key in keys {
                        self.keys.remove(&key);
                        events.push(WatchEvent { key, value: None, mod_revision });
                    }
                }
            }
        }
        if !events.is_empty() {
            self.revision = mod_revision;
            self.history.push(events);
        }
        Ok(TxnAnswer { revision: self.revision, outcome: TxnOutcome::Applied })
    }

    /// Returns what a watch receives that has received everything before `next`.
    pub fn watch(&self, range: &WatchRange, next: u64) -> Result<WatchBatch, EtcdError> {
        if next <= self.compacted {
            return Err(EtcdError::Compacted { revision: self.compacted });
        }
        let first = usize::try_from(next - 1).unwrap();
        let all = self.history.iter().skip(first).flatten();
        let events = all.filter(|event| event.key >= range.from && event.key < range.to).cloned().collect();
        Ok(WatchBatch { revision: self.revision, events })
    }

    /// Returns the present pairs of a range.
    pub fn pairs_of(&self, (from, to): (Bytes, Bytes)) -> Vec<Pair> {
        self.read_at(&RangeRead { from, to, limit: 0, revision: None }, self.revision).pairs
    }
}

/// Checks what etcd itself refuses.
fn check_limits(txn: &Txn) {
    assert!(txn.operations.len() <= OPERATIONS_MAX, "{} operations", txn.operations.len());
    let mut keys = std::collections::BTreeSet::new();
    let mut bytes = 0;
    for operation in &txn.operations {
        match operation {
            Operation::Put { key, value, .. } => {
                bytes += key.len() + value.len();
                assert!(keys.insert(key), "two operations on {key:?}");
            }
            Operation::Delete { key } => assert!(keys.insert(key), "two operations on {key:?}"),
            Operation::DeleteRange { from, to } => {
                let is_within = keys.iter().any(|key| *key >= from && *key < to);
                assert!(!is_within, "an operation within a deleted range");
            }
        }
    }
    assert!(bytes <= REQUEST_BYTES_MAX, "{bytes} bytes");
}
