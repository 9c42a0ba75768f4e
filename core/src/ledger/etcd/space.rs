//! Space in etcd: an owner looks regularly whether more can be written.

use super::action::{Action, ActionId, ActionKind, ActionResult, Answer, Call, Ids};
use super::operation::{EtcdSize, Space};
use crate::store::Now;

/// Between two looks, in milliseconds.
const LOOK_MS: u64 = 5_000;

/// The space in etcd, as an owner knows it.
#[derive(Debug)]
pub struct SpaceWatch {
    space: Space,
    size: Option<EtcdSize>,
    look: Call,
}

impl SpaceWatch {
    /// Looks at once.
    pub fn new(now: Now) -> Self {
        Self { space: Space::Enough, size: None, look: Call::new(ActionKind::Space, now.monotonic_ms) }
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
        self.look = Call::new(ActionKind::Space, now.monotonic_ms.saturating_add(LOOK_MS));
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

    /// Handles the answer to a look. Without one, as for a user who may not read the status, what is known stays.
    pub fn handle_answer(&mut self, result: ActionResult, now: Now) {
        if let Ok(Answer::Space(size)) = result {
            (self.space, self.size) = (size.space, Some(size));
        }
        self.set(self.space, now);
    }
}
