//! Requests of the operator: an owner that is asked to gives the store up, to another instance.

use bytes::Bytes;

use super::action::{Action, ActionId, ActionKind, ActionResult, Answer, Call, Ids};
use super::codec::decode_request;
use super::operation::RangeRead;
use crate::store::Now;

/// Between two looks of an owner for a request.
const LOOK_MS: u64 = 1_000;
/// So long an instance that was asked leaves the store to others, in milliseconds.
pub const LEFT_MS: u64 = 10_000;

/// An owner's looks for a request, which is a key with a lease. An owner watches nothing, so it reads the key each second.
#[derive(Debug)]
pub struct Handover {
    key: Bytes,
    /// `None` while the instance is not the owner.
    look: Option<Call>,
    /// Whether the owner was asked.
    is_asked: bool,
}

impl Handover {
    /// `key` is that of the request.
    pub fn new(key: Bytes) -> Self {
        Self { key, look: None, is_asked: false }
    }

    /// Begins to look, as the owner.
    pub fn begin(&mut self, now: Now) {
        let read = RangeRead::one(self.key.clone(), None);
        let due_ms = now.monotonic_ms.saturating_add(LOOK_MS);
        self.look = Some(Call::new(ActionKind::Read(read), due_ms));
    }

    /// Looks no more. Returns whether the owner was asked.
    pub fn end(&mut self) -> bool {
        self.look = None;
        std::mem::take(&mut self.is_asked)
    }

    pub fn poll_action(&mut self, now: Now, ids: &mut Ids) -> Option<Action> {
        self.look.as_mut()?.poll(now.monotonic_ms, ids)
    }

    /// Returns when to poll, in monotonic milliseconds.
    pub fn next_deadline(&self) -> Option<u64> {
        self.look.as_ref()?.next_deadline()
    }

    pub fn awaits(&self, id: ActionId) -> bool {
        self.look.as_ref().is_some_and(|look| look.is(id))
    }

    /// Handles the answer to a look, of the owner with this epoch. Returns whether it is asked to give the store up.
    pub fn handle_answer(&mut self, result: ActionResult, epoch: u64, now: Now) -> bool {
        self.begin(now);
        // A request for an earlier ownership was granted, or came too late.
        let read = result.and_then(Answer::into_read);
        self.is_asked = read.is_ok_and(|read| {
            read.pairs
                .first()
                .is_some_and(|pair| pair.key == self.key && decode_request(&pair.value) == Some(epoch))
        });
        self.is_asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::cluster::codec::encode_request;
    use crate::server::cluster::layout::Layout;
    use crate::server::cluster::operation::{EtcdError, Pair, RangeAnswer};

    fn at(monotonic_ms: u64) -> Now {
        Now { wall_ms: 0, monotonic_ms }
    }

    fn answer(pairs: Vec<Pair>) -> ActionResult {
        Ok(Answer::Read(RangeAnswer { revision: 9, pairs, has_more: false }))
    }

    #[test]
    fn an_owner_looks_each_second_and_heeds_a_request_for_its_own_epoch() {
        let key = Layout::new("c").request();
        let (mut handover, mut ids) = (Handover::new(key.clone()), Ids::default());
        assert_eq!(handover.poll_action(at(5_000), &mut ids), None, "it is not the owner");
        handover.begin(at(5_000));
        let pair = |epoch| Pair { key: key.clone(), value: encode_request(epoch), mod_revision: 1 };
        let other = Pair { value: Bytes::from_static(b"\x01"), ..pair(7) };
        let unknown = Err(EtcdError::Unknown { reason: String::new() });
        let looks = [
            (answer(Vec::new()), false),
            (unknown, false),
            (answer(vec![pair(6)]), false),
            (answer(vec![other]), false),
            (answer(vec![pair(7)]), true),
        ];
        for (number, (result, is_asked)) in (1..).zip(looks) {
            let now = at(5_000 + number * LOOK_MS);
            assert_eq!(handover.poll_action(at(now.monotonic_ms - 1), &mut ids), None);
            let action = handover.poll_action(now, &mut ids).unwrap();
            assert!(handover.awaits(action.id));
            assert_eq!(handover.handle_answer(result, 7, now), is_asked);
            assert_eq!(handover.next_deadline(), Some(now.monotonic_ms + LOOK_MS));
        }
        assert!(handover.end() && !handover.end());
        assert_eq!(handover.next_deadline(), None);
    }
}
