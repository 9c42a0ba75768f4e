//! Whether clients reach an instance: an owner that they do not reach gives the shard up if there is another member.

use super::action::{Action, ActionId, ActionKind, ActionResult, Answer, Call, Ids};
use super::layout::Layout;
use super::operation::RangeRead;
use crate::store::Now;

/// How long clients may not reach an owner before it looks for another member.
const GRACE_MS: u64 = 500;
/// Between two looks for another member.
const LOOK_PAUSE_MS: u64 = 1_000;
/// The most members that are read: one of them is another one.
const MEMBERS_READ: u32 = 2;

/// The reach of an instance: behind a broker, whether it is connected.
#[derive(Debug)]
pub struct Reach {
    layout: Layout,
    instance: String,
    /// Since when clients do not reach it, in monotonic milliseconds.
    lost_ms: Option<u64>,
    /// The read of the members; `None` before the first one.
    look: Option<Call>,
}

impl Reach {
    /// Of an instance that clients reach.
    pub fn new(layout: Layout, instance: &str) -> Self {
        Self { layout, instance: instance.to_owned(), lost_ms: None, look: None }
    }

    pub fn is_lost(&self) -> bool {
        self.lost_ms.is_some()
    }

    pub fn set(&mut self, is_reached: bool, now: Now) {
        if is_reached {
            (self.lost_ms, self.look) = (None, None);
        } else {
            self.lost_ms.get_or_insert(now.monotonic_ms);
        }
    }

    /// Returns the operation of an owner.
    pub fn poll_action(&mut self, now: Now, ids: &mut Ids) -> Option<Action> {
        let due_ms = self.lost_ms?.saturating_add(GRACE_MS);
        let layout = &self.layout;
        self.look.get_or_insert_with(|| Call::new(members(layout), due_ms)).poll(now.monotonic_ms, ids)
    }

    /// Returns when an owner must poll, in monotonic milliseconds.
    pub fn next_deadline(&self) -> Option<u64> {
        let lost_ms = self.lost_ms?;
        match &self.look {
            Some(look) => look.next_deadline(),
            None => Some(lost_ms.saturating_add(GRACE_MS)),
        }
    }

    pub fn awaits(&self, id: ActionId) -> bool {
        self.look.as_ref().is_some_and(|look| look.is(id))
    }

    /// Handles an answer. Returns whether there is another member.
    pub fn handle_answer(&mut self, result: ActionResult, now: Now) -> bool {
        let due_ms = now.monotonic_ms.saturating_add(LOOK_PAUSE_MS);
        self.look = Some(Call::new(members(&self.layout), due_ms));
        // Without an answer, the next look shows it.
        let own = self.layout.member(&self.instance);
        let members = result.and_then(Answer::into_read);
        members.is_ok_and(|members| members.pairs.iter().any(|pair| pair.key != own))
    }
}

fn members(layout: &Layout) -> ActionKind {
    let (from, to) = layout.members();
    ActionKind::Read(RangeRead { from, to, limit: MEMBERS_READ, revision: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::cluster::operation::{EtcdError, Pair, RangeAnswer};

    fn at(monotonic_ms: u64) -> Now {
        Now { wall_ms: 0, monotonic_ms }
    }

    fn answer(names: &[&str]) -> ActionResult {
        let key = |name: &&str| Layout::new("c").member(name);
        let pair = |name| Pair { key: key(name), value: Default::default(), mod_revision: 1 };
        let pairs = names.iter().map(pair).collect();
        Ok(Answer::Read(RangeAnswer { revision: 1, pairs, has_more: false }))
    }

    #[test]
    fn an_owner_that_is_not_reached_looks_for_another_member_after_a_while_and_again() {
        let (mut reach, mut ids) = (Reach::new(Layout::new("c"), "a"), Ids::default());
        assert_eq!((reach.poll_action(at(0), &mut ids), reach.next_deadline()), (None, None));
        reach.set(false, at(10));
        reach.set(false, at(300));
        assert_eq!(reach.next_deadline(), Some(10 + GRACE_MS));
        assert_eq!(reach.poll_action(at(9 + GRACE_MS), &mut ids), None);
        let action = reach.poll_action(at(10 + GRACE_MS), &mut ids).unwrap();
        assert!(reach.awaits(action.id) && !reach.handle_answer(answer(&["a"]), at(600)));
        assert_eq!(reach.next_deadline(), Some(600 + LOOK_PAUSE_MS));
        reach.poll_action(at(600 + LOOK_PAUSE_MS), &mut ids).unwrap();
        let unknown = EtcdError::Unknown { reason: String::new() };
        assert!(!reach.handle_answer(Err(unknown), at(2_000)));
        reach.poll_action(at(2_000 + LOOK_PAUSE_MS), &mut ids).unwrap();
        assert!(reach.handle_answer(answer(&["a", "b"]), at(3_100)));
        reach.set(true, at(3_200));
        assert!(!reach.is_lost() && reach.next_deadline().is_none());
        assert_eq!(reach.poll_action(at(9_000), &mut ids), None);
    }
}
