//! Commits of changes in groups, by a thread or after a turn of a connection's thread. One that fails ends the ledger.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use super::ledger_work;
use super::shared::{Committer, LedgerEnd, Shared};
use super::state::State;
use super::tombstones::Tombstones;
use super::work_signal::WorkSignal;
use crate::broker::workers;
use crate::clock;
use crate::ledger::{CommitMetadata, FileLedger, Group, LedgerKind, Record, StorageError};
use crate::protocol::timestamp::SKEW_MAX_MS;
use crate::server::delivery::Publisher;
use crate::server::event::Event;
use crate::store::{Now, Store};

/// The longest time between two looks at whether the ceiling of versions must be raised, and whether the wall clock was set.
const IDLE_COMMIT_INTERVAL: Duration = Duration::from_secs(1);
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

/// Puts a ceiling of versions on disk before the first request, so that no write to a key in memory waits for it. Without room,
/// these are refused until there is some.
///
/// # Errors
/// It is unknown whether the ceiling is on disk.
pub(super) fn commit_first_ceiling(
    storage: &mut FileLedger,
    state: &mut State,
    now: Now,
) -> Result<(), StorageError> {
    let ceiling = state.next_ceiling(now);
    if storage.metadata().ceiling >= ceiling {
        state.commit_queue.set_ceiling(ceiling);
    } else {
        storage.claim_first();
        if storage.lack().is_none() {
            storage.commit(&[], ceiling, now)?;
            state.commit_queue.set_ceiling(ceiling);
        }
    }
    Ok(())
}

/// Commits groups until the service closes, and has another thread do the work of the ledger.
pub(super) fn run(shared: &Shared) {
    if catch_unwind(AssertUnwindSafe(|| commit_beside_work(shared))).is_err() {
        shared.end_ledger(LedgerEnd::Panicked);
    }
}

fn commit_beside_work(shared: &Shared) {
    thread::scope(|scope| {
        // The scope waits for the other thread, also after a panic of this one.
        let _end = EndOfWork(&shared.ledger_work);
        let mut worker: Option<ScopedJoinHandle<'_, ()>> = None;
        commit_until_closing(shared, |storage| {
            if let Some(ended) = worker.take_if(|worker| worker.is_finished()) {
                report_panic(shared, ended);
                storage.cancel_work();
            }
            if storage.has_work(shared.now()) {
                if worker.is_none() {
                    let thread = thread::Builder::new().name("ledger".to_owned());
                    // Without it, requests get their segments themselves.
                    worker = thread.spawn_scoped(scope, || ledger_work::run(shared)).ok();
                }
                shared.ledger_work.begin();
            }
        });
        shared.ledger_work.end();
        worker.into_iter().for_each(|worker| report_panic(shared, worker));
        if let Some(Committer { storage, .. }) = &mut *shared.committer() {
            storage.cancel_work();
        }
    });
    close(shared);
}

/// Ends the thread of the ledger when it is dropped.
struct EndOfWork<'a>(&'a WorkSignal);

impl Drop for EndOfWork<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
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
    let mut settled = clock::monotonic();
    // The first segments are prepared at once.
    shared.make_commit_due(&mut shared.lock());
    loop {
        let is_overdue = wait(shared);
        if shared.committer.is_poisoned() {
            return shared.end_ledger(LedgerEnd::Panicked);
        }
        let mut locked = shared.committer();
        let Some(Committer { storage, publisher: Some(publisher) }) = &mut *locked else { return };
        if let Err(error) = commit_all(shared, storage, is_overdue, &**publisher) {
            *locked = None;
            return shared.end_ledger(LedgerEnd::Failed(error));
        }
        let now = clock::monotonic();
        if now.saturating_duration_since(settled) >= IDLE_COMMIT_INTERVAL {
            settled = now;
            storage.settle();
        }
        look_after(storage);
        drop(locked);
        let state = shared.lock();
        // The last groups are committed first.
        if state.has_ended || (state.is_closing && !state.commit_queue.has_uncommitted()) {
            break;
        }
        drop(state);
        shared.ledger_work.leave_ledger();
    }
}

/// Commits a ceiling that is no higher than needed, and closes the files.
fn close(shared: &Shared) {
    let Some(Committer { mut storage, .. }) = shared.committer().take() else { return };
    let mut state = shared.lock();
    if state.has_ended {
        return;
    }
    let has_room = state.commit_queue.has_room_for(0, false);
    let lowered = if has_room { state.lower_ceiling() } else { None };
    drop(state);
    if let Some(ceiling) = lowered {
        // The store starts with the versions of the clock again. If that fails, they are ahead of it for some seconds.
        storage.set_ceiling(ceiling);
        if let Err(error) = storage.commit(&[], ceiling, shared.now_unchecked()) {
            return shared.end_ledger(LedgerEnd::Failed(error));
        }
    }
    if storage.is_snapshot_due_at_end() {
        // If it fails, the log still has all changes.
        let _ = write_last_snapshot(shared, &mut storage);
    }
    storage.close();
}

fn write_last_snapshot(shared: &Shared, storage: &mut FileLedger) -> Result<(), StorageError> {
    let mut snapshot = storage.begin_last_snapshot(shared.now_unchecked())?;
    let written = ledger_work::write_all(shared, &mut snapshot, |_| true);
    written.map_err(|kind| StorageError { path: storage.path(), kind })?;
    storage.finish_last_snapshot(snapshot)
}

/// Waits until a commit is due, or the service closes. Returns true if neither has happened for some time.
fn wait(shared: &Shared) -> bool {
    let state = shared.lock();
    // Noted before each wait: a connection's thread may commit what this one was woken for, and the next signal must come too.
    let is_idle = |state: &mut State| {
        state.is_commit_thread_idle = !state.is_commit_due && !state.is_closing && !state.has_ended;
        state.is_commit_thread_idle
    };
    let waited = shared.has_uncommitted.wait_timeout_while(state, IDLE_COMMIT_INTERVAL, is_idle);
    let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
    state.is_commit_thread_idle = false;
    timeout.timed_out()
}

/// Commits the groups that are due, until the thread of the ledger has or waits for something to do.
fn commit_all(
    shared: &Shared,
    storage: &mut FileLedger,
    mut is_overdue: bool,
    publisher: &dyn Publisher,
) -> Result<(), StorageError> {
    if is_overdue {
        storage.check_place()?;
    }
    while let Some(group) = next_group(shared, storage, std::mem::take(&mut is_overdue)) {
        commit(shared, storage, group, shared.now_unchecked(), publisher)?;
        if shared.ledger_work.is_waiting() || storage.has_work(shared.now()) {
            break;
        }
    }
    Ok(())
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
        && let Some(Committer { storage, publisher: Some(publisher) }) = &mut *committer
    {
        let group = shared.lock().take_group(shared.now());
        let mut commit = |group| commit(shared, storage, group, shared.now_unchecked(), &**publisher);
        if let Some(Err(error)) = group.map(|group| workers::block(|| commit(group))) {
            *committer = None;
            drop(committer);
            shared.end_ledger(LedgerEnd::Failed(error));
            return shared.make_commit_due(&mut shared.lock());
        }
        drop(committer);
        workers::block(|| shared.ledger_work.leave_ledger());
        return;
    }
    shared.wake_commit_thread(&mut shared.lock());
}

/// Commits one group and sends what waits for it.
///
/// # Errors
/// It is unknown whether the group is on disk: the ledger has ended.
pub(super) fn commit(
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
    storage.commit(&records, ceiling, now)?;
    publisher.count_commit(clock::monotonic().saturating_duration_since(begun));
    let did_wait = shared.lock().does_exchange_wait();
    let mut state = shared.handle_commit(sequence, ceiling, publisher);
    let report = state.set_room(storage, now);
    if state.is_commit_due || storage.has_work(now) {
        shared.make_commit_due(&mut state);
    }
    shared.wake_expiry_task(&mut state);
    drop(state);
    // Most commits of a store whose rules concern few keys are of no interest to its task.
    if did_wait || has_rows {
        shared.wake_exchange();
    }
    shared.report(report);
    Ok(())
}

/// Returns the next group if its commit is due, or if it `is_overdue`.
pub(super) fn next_group(shared: &Shared, storage: &FileLedger, is_overdue: bool) -> Option<Group> {
    let mut state = shared.lock();
    let now = shared.now();
    // Before it is due, requests that have arrived would miss the group.
    if (state.is_commit_due || is_overdue || state.is_closing)
        && let Some(group) = state.take_group(now)
    {
        return Some(group);
    }
    let was_set = || storage.clock_was_set(shared.now_unchecked());
    let may_commit = !state.has_ended && state.commit_queue.has_room_for(0, false);
    let is_due = may_commit && (is_overdue || state.is_closing) && was_set();
    is_due.then(|| state.empty_group(now))
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
        let shared = Shared::new(state, None, Arc::new(|_| {}), clock::now());
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
