//! Lowering of versions in etcd that are ahead of the clock, as `data lower-versions` does on disk (pure).
//!
//! It takes the store over as an instance does, and each of its transactions compares the revision of the head: no instance commits
//! meanwhile. Instances with right clocks do not take over from it, because the head is ahead of their clocks until the last one.

use bytes::Bytes;

use super::overview::Member;
use crate::ledger::etcd::codec::{DecodeError, EncodedResponses, Head, Owner, Reception, lower_row};
use crate::ledger::etcd::commit::{guarded, put};
use crate::ledger::etcd::layout::{Layout, Place};
use crate::ledger::etcd::operation::{Condition, OPERATIONS_MAX, Operation, Pair, TXN_BYTES_MAX, Txn};
use crate::ledger::lowering::{LoweredVersions, is_ahead};
use crate::store::{Now, Version};

/// The owner in the heads that are written. No member has this name.
const OWNER: &str = "lower-versions";

/// The work, from the takeover on.
#[derive(Debug)]
pub struct Lowering {
    layout: Layout,
    /// The head that the next transaction replaces, and the revision of its last change.
    head: Head,
    revision: u64,
    wall_ms: u64,
    lowered: LoweredVersions,
    /// The greatest version that stays.
    greatest: Version,
    changes: Vec<Operation>,
    bytes: usize,
}

impl Lowering {
    /// Returns the work for a store with this head, which was changed last at `revision`; `None` if it is not ahead of the clock.
    #[must_use]
    pub fn new(layout: Layout, (head, revision): (Head, u64), wall_ms: u64) -> Option<Self> {
        let greatest = Version { ms: wall_ms, counter: 0 };
        let is_ahead = is_ahead(head.greatest.ms, wall_ms) || is_ahead(head.wall_ms, wall_ms);
        let (lowered, changes) = (LoweredVersions::default(), Vec::new());
        is_ahead.then_some(Self { layout, head, revision, wall_ms, lowered, greatest, changes, bytes: 0 })
    }

    /// Returns the transaction that takes the store over, with the head that it writes. It is not applied if a member with the name of
    /// the owner has come since `members` were read: one of another run may be there, after the owner has crashed.
    #[must_use]
    pub fn takeover(&self, run: u64, members: &[Member]) -> (Txn, Head) {
        let head = Head { epoch: self.head.epoch.saturating_add(1), ..self.next_head(Some(run), 0) };
        let (mut txn, head) = self.txn(head, Vec::new());
        if let Some(owner) = &self.head.owner {
            let member = members.iter().find(|member| member.name == owner.instance);
            let mod_revision = member.map_or(0, |member| member.mod_revision);
            txn.conditions.push(Condition { key: self.layout.member(&owner.instance), mod_revision });
        }
        (txn, head)
    }

    /// Notes that a transaction of this work has written its head at a revision.
    pub fn handle_committed(&mut self, head: Head, revision: u64) {
        (self.head, self.revision) = (head, revision);
    }

    /// Lowers a record of the state. Returns a transaction that must be committed before the next one, if there is one.
    ///
    /// # Errors
    /// The record is not valid.
    pub fn lower(&mut self, pair: &Pair) -> Result<Option<(Txn, Head)>, DecodeError> {
        let value = match self.layout.place(&pair.key).ok_or(DecodeError::Malformed)? {
            Place::Row(key) => {
                let (lowered, version, value) = lower_row(&key, &pair.value, self.lowered, self.wall_ms)?;
                self.lowered = lowered;
                self.greatest = self.greatest.max(version);
                value
            }
            Place::Responses { .. } => self.lowered_responses(&pair.value)?,
            Place::Registration { .. }
            | Place::Head
            | Place::Member(_)
            | Place::Clock(_)
            | Place::Request => None,
        };
        let Some(value) = value else { return Ok(None) };
        let bytes = pair.key.len().saturating_add(value.len());
        let is_full = self.changes.len().saturating_add(2) > OPERATIONS_MAX
            || self.bytes.saturating_add(bytes) > TXN_BYTES_MAX;
        let txn = (is_full && !self.changes.is_empty()).then(|| self.commit());
        self.changes.push(put(pair.key.clone(), value));
        self.bytes = self.bytes.saturating_add(bytes);
        Ok(txn)
    }

    /// Returns responses with lowered versions; `None` if they have none that is ahead.
    fn lowered_responses(&mut self, value: &Bytes) -> Result<Option<Bytes>, DecodeError> {
        let start = Now::default();
        let decoded = EncodedResponses::decode(value, Reception::Watched, start)?;
        let (mut encoded, mut is_changed) = (EncodedResponses::default(), false);
        for mut response in decoded.responses {
            if let Some(version) = &mut response.version {
                if is_ahead(version.ms, self.wall_ms) {
                    (*version, is_changed) = (Version { ms: self.wall_ms, counter: 0 }, true);
                }
                self.greatest = self.greatest.max(*version);
            }
            encoded.push(&response, start, self.head.clock_ms);
        }
        Ok(is_changed.then(|| EncodedResponses::default().encode_with(&encoded)))
    }

    /// Returns a transaction with the changes that wait.
    fn commit(&mut self) -> (Txn, Head) {
        let (changes, run) =
            (std::mem::take(&mut self.changes), self.head.owner.as_ref().map(|owner| owner.run));
        self.bytes = 0;
        self.txn(self.next_head(run, changes.len()), changes)
    }

    /// Returns the last transaction: with the changes that wait, and a head without an owner that is not ahead any more.
    #[must_use]
    pub fn finish(mut self) -> (Txn, Head, LoweredVersions) {
        self.lowered.floor = is_ahead(self.head.greatest.ms, self.wall_ms);
        let changes = std::mem::take(&mut self.changes);
        let head = self.next_head(None, changes.len());
        let head = Head {
            // Instances that follow miss a number, so that they read the state again: what they hold must not keep the greater
            // versions.
            seq: head.seq.saturating_add(1),
            greatest: self.greatest,
            wall_ms: head.wall_ms.min(self.wall_ms),
            ..head
        };
        let (txn, head) = self.txn(head, changes);
        (txn, head, self.lowered)
    }

    fn next_head(&self, run: Option<u64>, puts: usize) -> Head {
        Head {
            owner: run.map(|run| Owner { instance: OWNER.to_owned(), run }),
            seq: self.head.seq.saturating_add(1),
            puts: u32::try_from(puts).unwrap_or(u32::MAX),
            deletions: 0,
            attempt: 0,
            ..self.head.clone()
        }
    }

    fn txn(&self, head: Head, changes: Vec<Operation>) -> (Txn, Head) {
        let operations = [put(self.layout.head(), head.encode())].into_iter().chain(changes).collect();
        (guarded(&self.layout, self.revision, operations), head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ResponseRecord;
    use crate::ledger::etcd::codec::{decode_row, encode_row};
    use crate::protocol::reply::Outcome;
    use crate::protocol::{Key, Timestamp};
    use crate::store::StoredValue;

    const WALL_MS: u64 = 1_700_000_000_000;
    const AHEAD_MS: u64 = WALL_MS + 3_600_000;

    fn layout() -> Layout {
        Layout::new("c")
    }

    fn version(ms: u64) -> Version {
        Version { ms, counter: 3 }
    }

    fn head() -> Head {
        let owner = Some(Owner { instance: "a".to_owned(), run: 7 });
        let (greatest, wall_ms) = (version(AHEAD_MS), AHEAD_MS);
        Head { owner, epoch: 2, seq: 9, greatest, wall_ms, clock_ms: 500, ..Head::default() }
    }

    fn work() -> Lowering {
        Lowering::new(layout(), (head(), 50), WALL_MS).unwrap()
    }

    fn row(name: &str, ms: u64, fence_ms: Option<u64>) -> Pair {
        let key = Key::new(name.to_owned()).unwrap();
        let fence = fence_ms.map(|ms| Timestamp::of_store(ms, 0));
        let stored = StoredValue { value: "v".into(), fence, deadline_ms: Some(900), persist: true };
        let value = encode_row(&key, version(ms), &stored, Now::default(), 400).unwrap();
        Pair { key: layout().row(&key), value, mod_revision: 50 }
    }

    fn put_of(txn: &Txn, at: usize) -> (Bytes, Bytes) {
        let Operation::Put { key, value, .. } = txn.operations[at].clone() else { panic!() };
        (key, value)
    }

    #[test]
    fn a_store_that_is_not_ahead_of_the_clock_stays_as_it_is() {
        let near = Head { greatest: version(WALL_MS + 60_000), wall_ms: WALL_MS, ..head() };
        assert!(Lowering::new(layout(), (near, 50), WALL_MS).is_none());
        assert!(Lowering::new(layout(), (Head::default(), 50), WALL_MS).is_none());
    }

    #[test]
    fn the_takeover_is_refused_while_the_owner_is_a_member_or_another_head_is_there() {
        let (txn, taken) = work().takeover(77, &[]);
        let owner_gone = Condition { key: layout().member("a"), mod_revision: 0 };
        assert_eq!(txn.conditions, [Condition { key: layout().head(), mod_revision: 50 }, owner_gone]);
        assert_eq!((taken.epoch, taken.seq, taken.greatest), (3, 10, version(AHEAD_MS)));
        assert_eq!(put_of(&txn, 0), (layout().head(), taken.encode()));
        // The owner was killed, and runs again under its name.
        let again = Member { name: "a".to_owned(), run: 8, mod_revision: 49, clock_off_ms: 0 };
        let (txn, _) = work().takeover(77, &[again]);
        assert_eq!(txn.conditions[1], Condition { key: layout().member("a"), mod_revision: 49 });
    }

    #[test]
    fn versions_and_fencing_tokens_that_are_ahead_become_the_present_and_others_stay() {
        let mut work = work();
        let (_, taken) = work.takeover(77, &[]);
        work.handle_committed(taken, 51);
        for pair in [
            row("ahead", AHEAD_MS, Some(AHEAD_MS)),
            row("within", WALL_MS + 60_000, None),
            row("past", 5, None),
        ] {
            assert_eq!(work.lower(&pair), Ok(None));
        }
        let (txn, last, lowered) = work.finish();
        assert_eq!(lowered, LoweredVersions { keys: 1, fences: 1, floor: true });
        assert_eq!(txn.conditions, [Condition { key: layout().head(), mod_revision: 51 }]);
        assert_eq!(
            (last.owner.clone(), last.wall_ms, last.greatest),
            (None, WALL_MS, version(WALL_MS + 60_000))
        );
        assert_eq!((last.epoch, last.puts), (3, 1));
        assert_eq!(last.seq, 12, "a number is missed, so that instances read the state again");
        let (key, value) = put_of(&txn, 1);
        let key_of_row = Key::new("ahead").unwrap();
        assert_eq!((txn.operations.len(), key), (2, layout().row(&key_of_row)));
        let (version, stored) = decode_row(&key_of_row, &value, Reception::Watched, Now::default()).unwrap();
        assert_eq!(version, Version { ms: WALL_MS, counter: 0 });
        assert_eq!(stored.fence.map(|fence| fence.ms), Some(WALL_MS));
        assert_eq!(stored.deadline_ms, Some(901), "the time to live stays");
    }

    #[test]
    fn recorded_answers_do_not_bring_a_version_back() {
        let mut work = work();
        let response = ResponseRecord {
            client_id: "client".into(),
            fingerprint: 8,
            payload: "+OK".into(),
            version: Some(version(AHEAD_MS)),
            outcome: Outcome::Ok,
            until_ms: 70_000,
        };
        let mut encoded = EncodedResponses::default();
        encoded.push(&response, Now::default(), 400);
        let value = EncodedResponses::default().encode_with(&encoded);
        let pair = Pair { key: layout().responses(9), value, mod_revision: 50 };
        assert_eq!(work.lower(&pair), Ok(None));
        let (txn, ..) = work.finish();
        let decoded =
            EncodedResponses::decode(&put_of(&txn, 1).1, Reception::Watched, Now::default()).unwrap();
        let expected = ResponseRecord { version: Some(Version { ms: WALL_MS, counter: 0 }), ..response };
        assert_eq!(decoded.responses, [expected]);
    }

    #[test]
    fn many_changes_are_several_transactions_of_which_each_replaces_the_head() {
        let mut work = work();
        let mut committed = Vec::new();
        for number in 0..300 {
            if let Some((txn, head)) = work.lower(&row(&format!("{number:03}"), AHEAD_MS, None)).unwrap() {
                assert!(txn.operations.len() <= OPERATIONS_MAX);
                assert_eq!(head.puts as usize + 1, txn.operations.len());
                assert_eq!((head.seq, head.wall_ms), (10 + committed.len() as u64, AHEAD_MS));
                work.handle_committed(head, 51 + committed.len() as u64);
                committed.push(txn.operations.len() - 1);
            }
        }
        let (txn, _, lowered) = work.finish();
        assert_eq!(committed.iter().sum::<usize>() + txn.operations.len() - 1, 300);
        assert_eq!((committed.len(), lowered.keys), (2, 300));
        assert_eq!(txn.conditions[0].mod_revision, 52);
    }
}
