//! The thread that writes to the disk: changes in groups, and the way back when the disk has failed.

use std::time::Duration;

use super::super::delivery::Outlet;
use super::super::event::Event;
use super::Service;
use crate::clock;
use crate::server::commit_queue::CommitQueue;
use crate::server::storage::{Storage, StorageError};
use crate::store::{Change, Now, Store, Version};

/// How long a version may be given out without being on the disk, if nothing else goes there: that of a key that is not
/// kept. It matters only if the clock has gone back after a restart.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);
/// How long after a failure the disk is tried again; then twice as long each time.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How many keys are fetched under one lock when all are written anew.
const PORTION_KEYS: usize = 1_000;

/// What the writer has to do next.
pub(super) struct Work {
    pub(super) changes: Vec<Change>,
    /// The number of the last change.
    pub(super) ticket: u64,
    /// The greatest version given out by now.
    pub(super) greatest: Version,
}

/// Fills a store with what the disk holds. Says by how many milliseconds the clock has gone back since, if it has.
pub(super) fn load(journal: &mut Storage, store: &mut Store, now: Now) -> Result<Option<u64>, StorageError> {
    journal.load(now, |key, version, content| store.restore(&key, Some((version, content))))?;
    let past = journal.metadata();
    store.raise_floor(past.greatest_version);
    Ok(past.wall_ms.checked_sub(now.wall_ms).filter(|by_ms| *by_ms > 0))
}

impl Service {
    /// Commits changes in groups, as many as have come while the disk was busy, until the service closes.
    pub(super) fn save(&self, mut journal: Storage, outlet: &dyn Outlet) {
        while let Some(work) = self.next_work(journal.metadata().greatest_version) {
            if !self.commit(&mut journal, &work, self.now(), outlet) && !self.recover(&mut journal) {
                return;
            }
        }
        // If there is no room to put them in order, the files are whole as they are.
        let _ = journal.close();
    }

    pub(super) fn commit(&self, journal: &mut Storage, work: &Work, now: Now, outlet: &dyn Outlet) -> bool {
        let begun = clock::monotonic();
        let result = journal.commit(&work.changes, work.greatest, now);
        outlet.count_commit(clock::monotonic().saturating_duration_since(begun));
        let mut state = self.lock();
        match &result {
            Ok(()) => state.handle_saved(work.ticket, outlet),
            Err(_) => state.handle_failure(outlet),
        }
        self.wake_timer(&mut state);
        drop(state);
        if let Err(error) = &result {
            (self.events)(Event::NotPersisted { reason: error.to_string() });
        }
        result.is_ok()
    }

    /// Waits for what must be committed; none when the service has closed and nothing is left.
    fn next_work(&self, noted: Version) -> Option<Work> {
        let mut state = self.lock();
        let mut is_overdue = false;
        loop {
            let greatest = state.engine.greatest_version();
            let is_behind = greatest > noted && (is_overdue || state.closing);
            let is_closing = state.closing;
            let backlog = state.backlog.as_mut()?;
            if let Some((changes, ticket)) = backlog.fetch() {
                return Some(Work { changes, ticket, greatest });
            }
            if is_behind {
                return Some(Work { changes: Vec::new(), ticket: backlog.ticket(), greatest });
            }
            if is_closing {
                return None;
            }
            let waited = self.has_unsaved.wait_timeout(state, NOTE_INTERVAL);
            let (woken, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
            (state, is_overdue) = (woken, timeout.timed_out());
        }
    }

    /// Tries until the disk works again; gives up when the service closes, and says so.
    fn recover(&self, journal: &mut Storage) -> bool {
        let mut pause = PAUSE_MIN;
        while !self.closes_within(pause) {
            let begun = clock::monotonic();
            if self.try_again(journal, self.now()).is_ok() {
                (self.events)(Event::PersistedAgain);
                return true;
            }
            // A large file takes its time: most of it must be left to others.
            let taken = clock::monotonic().saturating_duration_since(begun);
            pause = pause.saturating_mul(2).min(PAUSE_MAX).max(taken.saturating_mul(4));
        }
        false
    }

    fn closes_within(&self, pause: Duration) -> bool {
        let is_open = |state: &mut super::State| !state.closing;
        let waited = self.has_unsaved.wait_timeout_while(self.lock(), pause, is_open);
        waited.unwrap_or_else(std::sync::PoisonError::into_inner).0.closing
    }

    /// Brings the file up to date, and takes changes again. Requests are answered all the while, those only refused
    /// that need the disk: so nothing that is kept changes, but for what expires.
    pub(super) fn try_again(&self, journal: &mut Storage, now: Now) -> Result<(), StorageError> {
        if !journal.is_open() && !journal.must_rewrite() {
            // If it turns out to be damaged, what is in memory is better.
            let reopened = journal.reopen();
            if !journal.must_rewrite() {
                reopened?;
            }
        }
        if !journal.is_open() {
            let mut next = Some(0);
            let portion = || {
                let (kept, then) = self.lock().engine.persistent_from(next?, PORTION_KEYS);
                next = then;
                Some(kept)
            };
            journal.rewrite(portion, now)?;
        }
        loop {
            let (changes, greatest) = {
                let state = self.lock();
                (state.outdated().unwrap_or_default(), state.engine.greatest_version())
            };
            journal.commit(&changes, greatest, now)?;
            if self.lock().handle_recovery(&changes) {
                return Ok(());
            }
        }
    }

    pub(super) fn wake_writer(&self, state: &super::State) {
        if state.backlog.as_ref().is_some_and(CommitQueue::has_unsaved) {
            self.has_unsaved.notify_one();
        }
    }
}
