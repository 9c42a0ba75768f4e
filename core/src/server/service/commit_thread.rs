//! Commits of changes in groups, by a thread or after a turn of a connection's thread, and recovery when the disk has failed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use super::ledger_work;
use super::shared::{Committer, Shared};
use super::state::State;
use super::tombstones::Tombstones;
use crate::broker::workers;
use crate::clock;
use crate::ledger::{CommitMetadata, FileLedger, Group, LedgerKind, Record, StorageError};
use crate::protocol::timestamp::SKEW_MAX_MS;
use crate::server::delivery::Publisher;
use crate::server::event::Event;
use crate::store::{Now, Store};

/// The longest time between two looks at whether the ceiling of versions must be raised, and whether the wall clock was set.
const IDLE_COMMIT_INTERVAL: Duration = Duration::from_secs(1);
/// The time between a failure and the first attempt to recover; it doubles with each attempt.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(50);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Fills a store from the disk. Returns the keys with a tombstone and, if the wall clock is behind the last commit, by how
/// many milliseconds.
pub(super) fn load(
    storage: &mut FileLedger,
    store: &mut Store,
    now: Now,
) -> Result<(Tombstones, Option<u64>), StorageError> {
    let load = |key, version, stored| store.restore(&key, Some((version, stored)));
    let mut tombstones = Tombstones::default();
    for (key, version) in storage.load(now, load)? {
        store.restore_removed(&key, version);
        tombstones.note(&key, version);
    }
    let CommitMetadata { ceiling, wall_ms, .. } = storage.metadata();
    store.raise_floor(ceiling);
    // Clients may have been ahead by as much as the store accepts.
    let written_ms = wall_ms.max(ceiling.ms.saturating_sub(SKEW_MAX_MS));
    Ok((tombstones, written_ms.checked_sub(now.wall_ms).filter(|by_ms| *by_ms > 0)))
}

/// Puts a ceiling of versions on disk before the first request, so that no write to a key in memory waits for it. If that
/// fails, these wait until a commit succeeds.
pub(super) fn commit_first_ceiling(storage: &mut FileLedger, state: &mut State, now: Now) {
    let ceiling = state.next_ceiling(now);
    let is_on_disk = storage.metadata().ceiling >= ceiling || storage.commit(&[], ceiling, now).is_ok();
    if is_on_disk {
        state.commit_queue.set_ceiling(ceiling);
    }
    state.set_room(storage);
}

/// Commits groups until the service closes, and has another thread do the work of the ledger.
pub(super) fn run(shared: &Shared) {
    thread::scope(|scope| {
        let mut worker: Option<ScopedJoinHandle<'_, ()>> = None;
        commit_until_closing(shared, |storage| {
            if let Some(ended) = worker.take_if(|worker| worker.is_finished()) {
                report_panic(shared, ended);
                storage.cancel_work();
            }
            if storage.has_work(shared.now()) {
                if worker.is_none() {
                    let thread = thread::Builder::new().name("ledger".to_owned());
                    // Without it, commits create their segments themselves.
                    worker = thread.spawn_scoped(scope, || ledger_work::run(shared)).ok();
                }
                shared.ledger_work.begin();
            }
        });
        if let Some(Committer { storage, .. }) = &mut *shared.committer() {
            storage.cancel_work();
        }
        shared.ledger_work.end();
        worker.into_iter().for_each(|worker| report_panic(shared, worker));
    });
    close(shared);
}

/// Reports that the thread of the ledger has panicked, if it has. Commits go on without it.
fn report_panic(shared: &Shared, worker: ScopedJoinHandle<'_, ()>) {
    if worker.join().is_err() {
        shared.ledger_work.end_turn();
        (shared.events)(Event::SnapshotFailed { reason: "the thread of the ledger has panicked".to_owned() });
    }
}

/// Calls `look_after` between commits: the ledger may have work for another thread.
fn commit_until_closing(shared: &Shared, mut look_after: impl FnMut(&mut FileLedger)) {
    let mut retried = clock::monotonic();
    loop {
        let is_overdue = wait(shared);
        let locked = shared.committer.lock();
        let has_panicked = locked.is_err();
        let mut committer = locked.unwrap_or_else(PoisonError::into_inner);
        let Some(Committer { storage, publisher }) = &mut *committer else { return };
        if has_panicked {
            shared.committer.clear_poison();
            handle_panic(shared, storage, &**publisher);
        }
        if !commit_all(shared, storage, is_overdue, &**publisher) {
            return;
        }
        let now = clock::monotonic();
        if now.saturating_duration_since(retried) >= IDLE_COMMIT_INTERVAL {
            retried = now;
            if shared.owes_report.swap(false, Ordering::Relaxed) {
                shared.report_room(storage);
            }
            storage.settle();
            if storage.lacks_room() {
                storage.retry_work();
            }
        }
        look_after(storage);
        drop(committer);
        let state = shared.lock();
        // The last groups are committed first.
        if state.is_closing && !state.commit_queue.has_uncommitted() {
            break;
        }
        drop(state);
        shared.ledger_work.leave_ledger();
    }
}

/// Commits a ceiling that is no higher than needed, and closes the files.
fn close(shared: &Shared) {
    let Some(Committer { mut storage, .. }) = shared.committer().take() else { return };
    let lowered = shared.lock().lower_ceiling();
    if let Some(ceiling) = lowered {
        // The store starts with the versions of the clock again. If that fails, they are ahead of it for some seconds.
        storage.set_ceiling(ceiling);
        let _ = storage.commit(&[], ceiling, shared.now_unchecked());
    }
    if storage.is_snapshot_due_at_end() {
        // If it fails, the log still has all changes.
        let _ = write_last_snapshot(shared, &mut storage);
    }
    storage.close();
}

fn write_last_snapshot(shared: &Shared, storage: &mut FileLedger) -> Result<(), StorageError> {
    let mut snapshot = storage.begin_rewrite(shared.now_unchecked())?;
    let written = ledger_work::write_all(shared, &mut snapshot, |_| true);
    written.map_err(|kind| StorageError { path: storage.path(), kind })?;
    storage.finish_rewrite(snapshot)
}

/// Waits until a commit is due, or the service closes. Returns true if neither has happened for some time.
fn wait(shared: &Shared) -> bool {
    let state = shared.lock();
    // Noted before each wait: a connection's thread may commit what this one was woken for, and the next signal must come too.
    let is_idle = |state: &mut State| {
        state.is_commit_thread_idle = !state.is_commit_due && !state.is_closing;
        state.is_commit_thread_idle
    };
    let waited = shared.has_uncommitted.wait_timeout_while(state, IDLE_COMMIT_INTERVAL, is_idle);
    let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
    state.is_commit_thread_idle = false;
    timeout.timed_out()
}

/// Commits the groups that are due, and recovers if that fails, until the thread of the ledger has or waits for something to do.
/// Returns false if the service closes before it has recovered.
fn commit_all(
    shared: &Shared,
    storage: &mut FileLedger,
    mut is_overdue: bool,
    publisher: &dyn Publisher,
) -> bool {
    // A connection's thread leaves the recovery to this one.
    let has_failed = || shared.lock().commit_queue.has_failed();
    let mut is_working = (storage.is_open() && !has_failed()) || recover(shared, storage, publisher);
    while is_working && let Some(group) = next_group(shared, storage, std::mem::take(&mut is_overdue)) {
        is_working = commit(shared, storage, group, shared.now_unchecked(), publisher)
            || recover(shared, storage, publisher);
        if shared.ledger_work.is_waiting() || storage.has_work(shared.now()) {
            break;
        }
    }
    is_working
}

/// Arranges that what is uncommitted is committed after the packets that have arrived on this thread's connections have
/// been handled: one commit for all of them takes less time than several.
pub(super) fn commit_after_turn(shared: &Arc<Shared>, mut state: MutexGuard<'_, State>) {
    if !state.begin_turn() {
        return;
    }
    if state.ledger() == LedgerKind::Etcd {
        // The owner task takes all that waits when the last commit is done.
        shared.make_commit_due(&mut state);
    } else {
        let at_end = Arc::clone(shared);
        if !workers::run_after_turn(move || end_turn(&at_end)) {
            shared.wake_commit_thread(&mut state);
        }
    }
}

/// Commits what is uncommitted, in this thread if that delays no other connection: to wake the commit thread, and to be
/// woken by it, takes a third of the time of a commit.
fn end_turn(shared: &Shared) {
    if workers::may_block()
        && let Ok(mut committer) = shared.committer.try_lock()
        && let Some(Committer { storage, publisher }) = committer.as_mut().filter(|it| it.storage.is_open())
    {
        let group = shared.lock().take_group(shared.now());
        let mut commit = |group| commit(shared, storage, group, shared.now_unchecked(), &**publisher);
        if group.is_some_and(|group| !workers::block(|| commit(group))) {
            shared.make_commit_due(&mut shared.lock());
        }
        drop(committer);
        workers::block(|| shared.ledger_work.leave_ledger());
        return;
    }
    shared.wake_commit_thread(&mut shared.lock());
}

/// Handles a panic of a connection's thread in a commit: it may have come before the group was on disk, so the commit
/// counts as failed, and the files are written anew.
fn handle_panic(shared: &Shared, storage: &mut FileLedger, publisher: &dyn Publisher) {
    storage.abandon_segment();
    shared.lock().handle_commit_failure(publisher, shared.now_unchecked());
    shared.wake_exchange();
    (shared.events)(Event::NotPersisted { reason: "a commit has panicked".to_owned() });
}

/// Commits one group and sends what waits for it. Returns false if the commit failed.
pub(super) fn commit(
    shared: &Shared,
    storage: &mut FileLedger,
    group: Group,
    now: Now,
    publisher: &dyn Publisher,
) -> bool {
    let result = commit_group(shared, storage, group, now, publisher);
    if let Err(error) = &result {
        (shared.events)(Event::NotPersisted { reason: error.to_string() });
    }
    result.is_ok()
}

fn commit_group(
    shared: &Shared,
    storage: &mut FileLedger,
    group: Group,
    now: Now,
    publisher: &dyn Publisher,
) -> Result<(), StorageError> {
    let begun = clock::monotonic();
    let Group { records, sequence, ceiling } = group;
    let has_rows = records.iter().any(|(_, record)| matches!(record, Record::Exchange(..)));
    // The lock is not held: requests are handled during the sync, and form the next group.
    let result = storage.commit(&records, ceiling, now);
    publisher.count_commit(clock::monotonic().saturating_duration_since(begun));
    let mut state = shared.lock();
    let did_wait = state.does_exchange_wait();
    match &result {
        Ok(()) => {
            drop(state);
            state = shared.handle_commit(sequence, ceiling, publisher);
            // Most commits of a store whose rules concern few keys are of no interest to its task.
            if did_wait || has_rows {
                shared.wake_exchange();
            }
        }
        Err(_) => {
            state.handle_commit_failure(publisher, now);
            shared.wake_exchange();
        }
    }
    state.set_room(storage);
    if storage.has_work(now) {
        shared.make_commit_due(&mut state);
    }
    shared.wake_expiry_task(&mut state);
    result
}

/// Returns the next group if its commit is due, or if it `is_overdue`.
pub(super) fn next_group(shared: &Shared, storage: &FileLedger, is_overdue: bool) -> Option<Group> {
    // A commit finds out too, and nothing else commits.
    let is_replaced = is_overdue && storage.is_replaced();
    let mut state = shared.lock();
    let now = shared.now();
    // Before it is due, requests that have arrived would miss the group.
    if (state.is_commit_due || is_overdue || state.is_closing)
        && let Some(group) = state.take_group(now)
    {
        return Some(group);
    }
    let was_set = || storage.clock_was_set(shared.now_unchecked());
    let is_due = is_replaced || ((is_overdue || state.is_closing) && was_set());
    is_due.then(|| state.empty_group(now))
}

/// Retries until the disk works again. Returns false if the service closes before.
fn recover(shared: &Shared, storage: &mut FileLedger, publisher: &dyn Publisher) -> bool {
    let (mut pause, mut reported) = (RETRY_PAUSE_MIN, String::new());
    // A snapshot that is cancelled gives its room back.
    shared.ledger_work.notify();
    while !closes_within(shared, pause) {
        let begun = clock::monotonic();
        let Err(error) = try_recover(shared, storage, publisher, shared.now()) else {
            // What there is room for is known after the next work.
            if storage.lacks_room() && !storage.is_short_of_room() {
                shared.owes_report.store(true, Ordering::Relaxed);
            } else {
                shared.report_room(storage);
            }
            return true;
        };
        let reason = error.to_string();
        if reason != reported {
            (shared.events)(Event::NotPersisted { reason: reason.clone() });
            reported = reason;
        }
        if error.kind.is_lack_of_room() {
            // The next attempt has the room of the reserve.
            storage.release_reserve();
        }
        // An attempt that writes large files takes time on the disk, most of which must be left to other processes.
        let taken = clock::monotonic().saturating_duration_since(begun);
        pause = pause.saturating_mul(2).min(RETRY_PAUSE_MAX).max(taken.saturating_mul(4));
    }
    false
}

fn closes_within(shared: &Shared, pause: Duration) -> bool {
    let is_open = |state: &mut State| !state.is_closing;
    let waited = shared.has_uncommitted.wait_timeout_while(shared.lock(), pause, is_open);
    waited.unwrap_or_else(PoisonError::into_inner).0.is_closing
}

/// Brings the files up to date and accepts changes of persistent keys again.
///
/// Requests are handled meanwhile; only writes to persistent keys are rejected. Therefore the persistent keys do not
/// change while they are copied, except by expiry. The expiries, and at least an empty group, are committed last: it shows
/// that the disk works, and it comes in place of the failed group, if the disk has that all the same.
pub(super) fn try_recover(
    shared: &Shared,
    storage: &mut FileLedger,
    publisher: &dyn Publisher,
    now: Now,
) -> Result<(), StorageError> {
    // Tombstones that the failed group would have removed may not be in memory any more.
    storage.set_ceiling(storage.metadata().ceiling.max(shared.lock().store.greatest_version()));
    if !storage.is_open() {
        let mut snapshot = storage.begin_rewrite(now)?;
        let written = ledger_work::write_all(shared, &mut snapshot, |_| true);
        written.map_err(|kind| StorageError { path: storage.path(), kind })?;
        storage.finish_rewrite(snapshot)?;
    }
    while shared.lock().commit_queue.has_failed() {
        let group = shared.lock().recovery_group(now);
        commit_group(shared, storage, group, now, publisher)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a_watchdog::bounded;
    use crate::store::Limits;

    /// Otherwise the answers of the next group come when the wait ends: up to a second later.
    #[test]
    fn the_thread_is_woken_again_after_a_connections_thread_has_committed_what_it_was_woken_for() {
        let state = State::new(Store::new(Limits::default()), LedgerKind::File, false, false);
        let shared = Shared::new(state, Arc::new(|_| {}), clock::now());
        // Several attempts: on a busy machine the wait may end by itself.
        let is_woken = (0..5).any(|_| {
            thread::scope(|scope| {
                let waiting = scope.spawn(|| wait(&shared));
                let becomes_idle = || {
                    while !waiting.is_finished() && !shared.lock().is_commit_thread_idle {
                        thread::sleep(Duration::from_millis(1));
                    }
                    !waiting.is_finished()
                };
                let is_idle_again = becomes_idle() && {
                    let mut state = shared.lock();
                    shared.make_commit_due(&mut state);
                    state.end_turn();
                    drop(state);
                    becomes_idle()
                };
                shared.make_commit_due(&mut shared.lock());
                let is_overdue = bounded(|| waiting.join()).unwrap();
                shared.lock().end_turn();
                is_idle_again && !is_overdue
            })
        });
        assert!(is_woken);
    }
}
