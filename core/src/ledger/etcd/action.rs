//! What an instance asks of etcd, and calls that are repeated until they have an answer.

use bytes::Bytes;

use super::operation::{EtcdError, EtcdSize, RangeAnswer, RangeRead, Txn, TxnAnswer};

/// The pause after the second failure of a call; it doubles with each further one.
const RETRY_PAUSE_MIN_MS: u64 = 50;
const RETRY_PAUSE_MAX_MS: u64 = 1_000;

/// Number of an action among those of an instance, from 1 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionId(pub u64);

/// An operation on etcd that an instance asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    pub id: ActionId,
    pub kind: ActionKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionKind {
    Read(RangeRead),
    Txn(Txn),
    /// Receives all changes of a range. What it receives, or why it ends, goes to
    /// `Instance::handle_watch`; there is no other answer.
    Watch(WatchRange),
    /// Ends a watch. There is no answer.
    CancelWatch(ActionId),
    /// Discards the history before a revision.
    Compact {
        revision: u64,
    },
    /// Looks whether etcd has space.
    Space,
}

/// The keys from `from` on and below `to`, and the first revision whose changes are received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRange {
    pub from: Bytes,
    pub to: Bytes,
    pub revision: u64,
}

/// The answer to an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Read(RangeAnswer),
    Txn(TxnAnswer),
    Compacted,
    Space(EtcdSize),
}

pub type ActionResult = Result<Answer, EtcdError>;

impl Answer {
    /// # Errors
    /// [`EtcdError::Unknown`] for the answer to another kind of action.
    pub fn into_read(self) -> Result<RangeAnswer, EtcdError> {
        if let Self::Read(read) = self { Ok(read) } else { Err(mismatch()) }
    }

    /// # Errors
    /// [`EtcdError::Unknown`] for the answer to another kind of action.
    pub fn into_txn(self) -> Result<TxnAnswer, EtcdError> {
        if let Self::Txn(txn) = self { Ok(txn) } else { Err(mismatch()) }
    }
}

fn mismatch() -> EtcdError {
    EtcdError::Unknown { reason: "the answer belongs to another operation".to_owned() }
}

/// Gives out the numbers of actions.
#[derive(Debug, Default)]
pub struct Ids(u64);

impl Ids {
    pub fn next_id(&mut self) -> ActionId {
        self.0 = self.0.saturating_add(1);
        ActionId(self.0)
    }
}

/// An action that is asked for until it is answered. At most one of its attempts is under way.
#[derive(Debug)]
pub struct Call {
    kind: ActionKind,
    in_flight: Option<ActionId>,
    due_ms: u64,
    pause_ms: u64,
}

impl Call {
    /// `due_ms` is when it may begin, in monotonic milliseconds; 0: at once.
    pub fn new(kind: ActionKind, due_ms: u64) -> Self {
        Self { kind, in_flight: None, due_ms, pause_ms: 0 }
    }

    pub fn read(read: RangeRead) -> Self {
        Self::new(ActionKind::Read(read), 0)
    }

    pub fn txn(txn: Txn) -> Self {
        Self::new(ActionKind::Txn(txn), 0)
    }

    /// Returns the action if it is due and not under way.
    pub fn poll(&mut self, now_ms: u64, ids: &mut Ids) -> Option<Action> {
        if self.in_flight.is_some() || now_ms < self.due_ms {
            return None;
        }
        let id = ids.next_id();
        self.in_flight = Some(id);
        Some(Action { id, kind: self.kind.clone() })
    }

    pub fn is(&self, id: ActionId) -> bool {
        self.in_flight == Some(id)
    }

    pub fn in_flight(&self) -> Option<ActionId> {
        self.in_flight
    }

    /// Asks again: at once the first time, then after a pause.
    pub fn retry(&mut self, now_ms: u64) {
        self.in_flight = None;
        self.due_ms = now_ms.saturating_add(self.pause_ms);
        self.pause_ms = self.pause_ms.saturating_mul(2).clamp(RETRY_PAUSE_MIN_MS, RETRY_PAUSE_MAX_MS);
    }

    /// Asks for another action from the next time on.
    pub fn replace(&mut self, kind: ActionKind) {
        self.kind = kind;
    }

    /// Notes that the action works: the pauses begin anew.
    pub fn succeed(&mut self) {
        self.pause_ms = 0;
    }

    /// Asks again after the longest pause.
    pub fn retry_late(&mut self, now_ms: u64) {
        self.pause_ms = RETRY_PAUSE_MAX_MS;
        self.retry(now_ms);
    }

    /// Returns when to poll, in monotonic milliseconds; `None` while it is under way.
    pub fn next_deadline(&self) -> Option<u64> {
        self.in_flight.is_none().then_some(self.due_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_repeated_at_once_and_then_after_longer_pauses() {
        let (mut call, mut ids) = (Call::new(ActionKind::Compact { revision: 1 }, 5), Ids::default());
        assert_eq!(call.poll(4, &mut ids), None);
        let mut now_ms = 5;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let id = call.poll(now_ms, &mut ids).unwrap().id;
            assert!(call.is(id) && call.poll(now_ms, &mut ids).is_none() && call.next_deadline().is_none());
            call.retry(now_ms);
            assert!(!call.is(id));
            let due_ms = call.next_deadline().unwrap();
            pauses.push(due_ms - now_ms);
            now_ms = due_ms;
        }
        assert_eq!(pauses, [0, 50, 100, 200, 400, 800, 1_000, 1_000]);
    }
}
