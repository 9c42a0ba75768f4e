//! Views for operators. Keys may be many, so that requests are handled between bounded steps.

use tokio::task::yield_now;

use super::application::Service;
use super::scan::SKIPPED_MAX;
use super::statistics::ServiceStatistics;
use crate::protocol::{ConnectionId, Key};
use crate::store::{KeyView, KeyWalk};

impl Service {
    #[must_use]
    pub fn statistics(&self) -> ServiceStatistics {
        self.shared.lock().statistics()
    }

    /// Whether responses or notifications wait for a commit.
    #[must_use]
    pub(in crate::server) fn is_waiting_for_commit(&self) -> bool {
        self.statistics().waiting_for_commit > 0
    }

    /// Calls `visit` for the keys of a walk, committed or not.
    pub async fn walk_keys(&self, walk: &mut KeyWalk, mut visit: impl FnMut(KeyView<'_>) + Send) {
        let mut skipped = 0_u32;
        while !walk.is_complete() {
            self.walk_step(walk, &mut skipped, &mut visit);
            yield_now().await;
        }
    }

    /// Does one step of a walk, unless other requests wait. They do not delay it for ever: see [`SKIPPED_MAX`].
    fn walk_step(&self, walk: &mut KeyWalk, skipped: &mut u32, visit: impl FnMut(KeyView<'_>)) {
        let now = self.shared.now();
        let state = match self.shared.lock_for_step() {
            None if *skipped < SKIPPED_MAX => {
                *skipped = skipped.saturating_add(1);
                return;
            }
            state => state.unwrap_or_else(|| self.shared.lock()),
        };
        *skipped = 0;
        state.store.walk(walk, now, visit);
    }

    /// Calls `read` for a key, committed or not; returns `None` if it is absent.
    pub fn view_key<T>(&self, key: &Key, read: impl FnOnce(KeyView<'_>) -> T) -> Option<T> {
        let now = self.shared.now();
        self.shared.lock().store.view(key, now).map(read)
    }

    /// Returns for each of a few connections the number of keys that it watches.
    #[must_use]
    pub fn watches_of(&self, connections: &[Option<ConnectionId>]) -> Vec<usize> {
        let state = self.shared.lock();
        let count = |connection: &Option<ConnectionId>| {
            connection.map_or(0, |connection| state.store.watches_of(connection))
        };
        connections.iter().map(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Persistence;
    use super::super::tests::{TestService, get, set};
    use super::*;
    use crate::protocol::Reply;

    /// More than one step looks at.
    const KEYS: usize = 3_000;

    fn filled() -> TestService {
        let test = TestService::new(Persistence::None);
        for number in 0..KEYS {
            test.request(&set(&format!("k{number:04}"), "v"));
        }
        test
    }

    #[test]
    fn requests_are_answered_between_the_steps_of_a_walk() {
        let test = filled();
        let (mut walk, mut seen, mut steps) = (KeyWalk::new("", 0).unwrap(), 0, 0);
        while !walk.is_complete() {
            test.service.walk_step(&mut walk, &mut 0, |_| seen += 1);
            assert_eq!(test.reply(&get("k0000")), Reply::Value("v".into()));
            steps += 1;
        }
        assert_eq!((seen, steps), (KEYS, 3));
    }

    #[test]
    fn a_step_is_left_out_while_the_state_is_in_use_but_not_for_ever() {
        let test = filled();
        let (mut walk, mut skipped) = (KeyWalk::new("", 0).unwrap(), 0);
        let state = test.service.shared.lock();
        for _ in 0..SKIPPED_MAX {
            test.service.walk_step(&mut walk, &mut skipped, |_| panic!("without the lock"));
        }
        drop(state);
        assert_eq!((walk.seen(), skipped), (0, SKIPPED_MAX));
        test.service.walk_step(&mut walk, &mut skipped, |_| {});
        assert_eq!((walk.seen() > 0, skipped), (true, 0));
    }
}
