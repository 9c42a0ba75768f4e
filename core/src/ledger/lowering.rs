//! Lowering of versions that were given out while the clock was ahead, in files and in etcd: the only way in which versions go back.

use super::key_state::KeyState;
use crate::protocol::timestamp::SKEW_MAX_MS;
use crate::store::Version;

/// What was more than 60 s ahead of the clock, so that clients refuse it, and was lowered to the present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoweredVersions {
    pub keys: usize,
    pub fences: usize,
    /// Whether the version was lowered above which new keys continue.
    pub floor: bool,
}

impl LoweredVersions {
    /// Lowers the version and the fencing token of a key that are ahead to the present. Returns the counts with it.
    #[must_use]
    pub fn lower(mut self, state: &mut KeyState, wall_ms: u64) -> Self {
        if is_ahead(state.version.ms, wall_ms) {
            state.version = Version { ms: wall_ms, counter: 0 };
            self.keys = self.keys.saturating_add(1);
        }
        if let Some(fence) = state.fence.as_mut().filter(|fence| is_ahead(fence.ms, wall_ms)) {
            (fence.ms, fence.counter) = (wall_ms, 0);
            self.fences = self.fences.saturating_add(1);
        }
        self
    }
}

/// Whether clients refuse a version of this time.
#[must_use]
pub fn is_ahead(ms: u64, wall_ms: u64) -> bool {
    ms > wall_ms.saturating_add(SKEW_MAX_MS)
}
