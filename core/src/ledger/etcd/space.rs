//! Space in etcd: an owner looks regularly whether more can be written.

use super::action::{Action, ActionId, ActionKind, ActionResult, Answer, Call, Ids};
use super::operation::{EtcdError, EtcdSize, Space};
use crate::store::Now;

/// Between two looks, in milliseconds.
const LOOK_MS: u64 = 5_000;

/// The same for a user without permission to read the status: then a write has to show whether there is space again, and it fails
/// with all that are committed with it if there is none.
const ATTEMPT_MS: u64 = 60_000;

/// The space in etcd, as an owner knows it.
#[derive(Debug)]
pub struct SpaceWatch {
    space: Space,
    size: Option<EtcdSize>,
    /// The user has no permission to read the status.
    is_refused: bool,
    look: Call,
}

impl SpaceWatch {
    /// Looks at once.
    pub fn new(now: Now) -> Self {
        Self {
            space: Space::Enough,
            size: None,
            is_refused: false,
            look: Call::new(ActionKind::Space, now.monotonic_ms),
        }
    }

    pub fn space(&self) -> Space {
        self.space
    }

    /// Returns what the last look has shown.
    pub fn size(&self) -> Option<EtcdSize> {
        self.size
    }

    /// Sets what an operation has shown. The next look comes later: one that is under way may be from before.
    pub fn set(&mut self, space: Space, now: Now) {
        self.space = space;
        let wait_ms = if self.is_refused { ATTEMPT_MS } else { LOOK_MS };
        self.look = Call::new(ActionKind::Space, now.monotonic_ms.saturating_add(wait_ms));
    }

    pub fn poll_action(&mut self, now: Now, ids: &mut Ids) -> Option<Action> {
        self.look.poll(now.monotonic_ms, ids)
    }

    /// Returns when to poll, in monotonic milliseconds.
    pub fn next_deadline(&self) -> Option<u64> {
        self.look.next_deadline()
    }

    pub fn awaits(&self, id: ActionId) -> bool {
        self.look.is(id)
    }

    /// Handles the answer to a look. Without one, what is known stays.
    pub fn handle_answer(&mut self, result: ActionResult, now: Now) {
        match result {
            Ok(Answer::Space(size)) => {
                (self.space, self.size, self.is_refused) = (size.space, Some(size), false);
            }
            // The next write shows whether there is space.
            Err(EtcdError::Refused { .. }) => (self.space, self.is_refused) = (Space::Enough, true),
            _ => {}
        }
        self.set(self.space, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(monotonic_ms: u64) -> Now {
        Now { monotonic_ms, ..Now::default() }
    }

    #[test]
    fn a_user_who_cannot_read_the_status_tries_a_write_once_a_minute_while_etcd_is_full() {
        let refused = || Err(EtcdError::Refused { reason: "permission denied".to_owned() });
        let mut space = SpaceWatch::new(at(0));
        space.handle_answer(refused(), at(0));
        assert_eq!(space.space(), Space::Enough);
        space.set(Space::Exhausted, at(1_000));
        assert_eq!(space.next_deadline(), Some(61_000));
        space.handle_answer(refused(), at(61_000));
        assert_eq!(space.space(), Space::Enough);
    }
}
