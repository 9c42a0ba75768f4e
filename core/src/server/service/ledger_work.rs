//! Work of the ledger that no commit waits for: a thread that does it, and the walk of a snapshot through the state.

use std::sync::TryLockError;
use std::thread;
use std::time::Duration;

use super::shared::{Committer, Shared};
use super::state::State;
use crate::clock;
use crate::exchange::row::RowId;
use crate::ledger::file::snapshot::{SnapshotWriter, Written};
use crate::ledger::file::work::{Done, PAUSE_MAX};
use crate::ledger::{FileLedger, KeyRecord, Record, StorageErrorKind};
use crate::protocol::Key;
use crate::server::event::Event;
use crate::store::Version;

/// Records and bytes that are read under one lock, because requests wait meanwhile.
const RECORDS_PER_STEP: usize = 256;
const BYTES_PER_STEP: usize = 256 * 1024;

/// Does the work of the ledger until the service closes.
pub(super) fn run(shared: &Shared) {
    while shared.ledger_work.wait() {
        let take = |ledger: &mut FileLedger| {
            let store_bytes = shared.lock().store.persistent_bytes();
            ledger.take_work(shared.now(), store_bytes)
        };
        while let Some(Some(work)) = with_ledger(shared, || false, take) {
            let done = match work.run() {
                Ok(done) => Some(done),
                Err(snapshot) => write_snapshot(shared, *snapshot),
            };
            let handle =
                |done| with_ledger(shared, || false, |ledger| ledger.handle_done(done, shared.now()));
            if let Some(Some(error)) = done.and_then(handle) {
                (shared.events)(Event::SnapshotFailed { reason: error.to_string() });
            }
        }
    }
}

/// Calls `action` with the ledger when no commit is under way. Returns `None` if the service closes, or if `is_cancelled`.
///
/// It does not wait for the lock: a recovery holds it for long, and cancels what is under way.
fn with_ledger<T>(
    shared: &Shared,
    is_cancelled: impl Fn() -> bool,
    action: impl FnOnce(&mut FileLedger) -> T,
) -> Option<T> {
    let signal = &shared.ledger_work;
    let locked = loop {
        if is_cancelled() || signal.is_closing() {
            break None;
        }
        signal.begin_turn();
        match shared.committer.try_lock() {
            Ok(committer) => break Some(committer),
            // The commit thread handles the panic first.
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => signal.wait_for_turn(),
        }
    };
    let result = locked.and_then(|mut committer| {
        let Committer { storage, .. } = committer.as_mut()?;
        let (was_short_of_room, lacked_room) = (storage.is_short_of_room(), storage.lacks_room());
        let result = action(storage);
        if was_short_of_room != storage.is_short_of_room() || lacked_room != storage.lacks_room() {
            shared.lock().set_room(storage);
        }
        if was_short_of_room != storage.is_short_of_room() {
            shared.report_room(storage);
        }
        Some(result)
    });
    signal.end_turn();
    result
}

/// Writes a snapshot beside all requests and commits. Returns `None` if it is cancelled.
fn write_snapshot(shared: &Shared, mut snapshot: SnapshotWriter) -> Option<Done> {
    let epoch = snapshot.epoch();
    let is_cancelled = || epoch.is_over() || shared.ledger_work.is_closing();
    let goes_on = |taken: Duration| {
        // Half of the disk's time is left to commits. And a thread that sleeps often is seldom preempted while it holds the
        // lock: on a busy machine, all requests waited for its next time slice.
        thread::sleep(taken.min(PAUSE_MAX));
        !is_cancelled()
    };
    let written = write_all(shared, &mut snapshot, goes_on).and_then(|()| snapshot.sync());
    if is_cancelled() {
        return None;
    }
    let result = match written {
        Ok(()) => finish(shared, snapshot, is_cancelled)?,
        Err(kind) => Err(kind),
    };
    Some(Done::Snapshot(epoch, result))
}

/// Ends a snapshot when the log is durable up to all that its records show.
fn finish(
    shared: &Shared,
    snapshot: SnapshotWriter,
    is_cancelled: impl Fn() -> bool,
) -> Option<Result<Written, StorageErrorKind>> {
    let mut needed = None;
    loop {
        let durable = |ledger: &mut FileLedger| {
            // No commit is under way: what is not durable is in the next group.
            needed = needed.or_else(|| needed_number(ledger, &shared.lock()));
            let number = ledger.number();
            needed.is_some_and(|needed| number >= needed).then(|| (number, ledger.metadata()))
        };
        if let Some((number, metadata)) = with_ledger(shared, &is_cancelled, durable)? {
            return Some(snapshot.finish(number, metadata));
        }
        shared.wake_commit_thread(&mut shared.lock());
        shared.ledger_work.pause();
    }
}

/// Returns the number of the group that has all that the state shows; `None` if several will have it, after a failure.
pub(super) fn needed_number(ledger: &FileLedger, state: &State) -> Option<u64> {
    let queue = &state.commit_queue;
    (!queue.has_failed()).then(|| ledger.number().saturating_add(u64::from(queue.has_uncommitted())))
}

/// Writes all records in bounded steps, between which requests are handled. Calls `goes_on` after each step with the time that it
/// has taken, and ends early if that returns false.
pub(super) fn write_all(
    shared: &Shared,
    snapshot: &mut SnapshotWriter,
    goes_on: impl Fn(Duration) -> bool,
) -> Result<(), StorageErrorKind> {
    let mut walk = Walk::default();
    loop {
        let (now, begun) = (shared.now(), clock::monotonic());
        let Some(records) = walk.next(&shared.lock_after_others(), RECORDS_PER_STEP) else { return Ok(()) };
        snapshot.write_records(&records, now)?;
        if !goes_on(clock::monotonic().saturating_duration_since(begun)) {
            return Ok(());
        }
    }
}

/// A walk through all that is persistent, in steps. It returns each record as it is at its step.
#[derive(Debug)]
pub(super) enum Walk {
    /// The last tombstone. They come first: a key that has a record later counts as such.
    Tombstones(Option<(Version, Key)>),
    /// The position in the store.
    Keys(u32),
    /// The last row.
    Rows(Option<RowId>),
    End,
}

impl Default for Walk {
    fn default() -> Self {
        Self::Tombstones(None)
    }
}

impl Walk {
    /// Returns up to `max` further records; `None` at the end.
    pub(super) fn next(&mut self, state: &State, max: usize) -> Option<Vec<(u64, Record)>> {
        let records: Vec<_> = match self {
            Self::Tombstones(last) => {
                let tombstones = state.tombstones.after(last.as_ref(), max);
                let next = tombstones.last().cloned();
                *self = if next.is_some() { Self::Tombstones(next) } else { Self::Keys(0) };
                let is_absent = |(_, key): &(Version, Key)| !state.store.is_persistent(key);
                let record = |(version, key)| Record::Key(KeyRecord { key, version, content: None });
                tombstones.into_iter().filter(is_absent).map(record).collect()
            }
            Self::Keys(from) => {
                let (keys, next) = state.store.persistent_from(*from, max, BYTES_PER_STEP);
                *self = next.map_or(Self::Rows(None), Self::Keys);
                let record =
                    |(key, version, stored)| Record::Key(KeyRecord { key, version, content: Some(stored) });
                keys.into_iter().map(record).collect()
            }
            Self::Rows(last) => {
                let rows =
                    state.exchange.as_ref().map(|exchange| exchange.exchange.rows_from(last.as_ref(), max));
                let rows = rows.unwrap_or_default();
                *self = rows.last().map_or(Self::End, |(id, _)| Self::Rows(Some(id.clone())));
                rows.into_iter().map(|(id, row)| Record::Exchange(id, Some(Box::new(row)))).collect()
            }
            Self::End => return None,
        };
        Some(records.into_iter().map(|record| (0, record)).collect())
    }
}
