//! Recovery after a failure, and the work that no commit waits for: segments, snapshots, the reserve.

use std::sync::Arc;

use super::{FileLedger, Room};
use crate::ledger::file::disk::{RESERVE_NAME, log_name, snapshot_name};
use crate::ledger::file::frame::Chain;
use crate::ledger::file::snapshot::{Epoch, SnapshotWriter, Written};
use crate::ledger::file::work::{Done, Filling, OpenSegment, Preparation, Purpose, Work, release_reserve};
use crate::ledger::{StorageError, StorageErrorKind};
use crate::store::Now;

/// The time between a snapshot that has failed and the next attempt; it doubles with each one. An attempt that has taken long is
/// followed by a longer pause, because it has written much.
const SNAPSHOT_PAUSE_MIN_MS: u64 = 1_000;
const SNAPSHOT_PAUSE_MAX_MS: u64 = 60_000;
/// Length of the log of a few deletions: after these, the snapshot of a small store that has no room left is written anew, because
/// no more keys may be there to delete.
const SMALL_LOG_BYTES: u64 = 16 * 1024;
/// What a snapshot has besides its entries, at least.
const SNAPSHOT_OVERHEAD_BYTES: u64 = 64 * 1024;

/// The piece of work that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DueWork {
    Removal,
    Probe(Purpose),
    Segment,
    Snapshot,
    Reserve,
}

impl FileLedger {
    /// Whether only deletions may be committed, because there may be no room for a snapshot of anything else.
    #[must_use]
    pub fn is_short_of_room(&self) -> bool {
        self.room.is_short
    }

    /// Whether groups are refused for lack of room: all but deletions, or those that are as long as one that was.
    #[must_use]
    pub fn lacks_room(&self) -> bool {
        self.room.is_short || self.room.refused_bytes > 0
    }

    /// Gives the reserve back to the disk, after a commit has failed for lack of room. It comes back when there is room.
    pub fn release_reserve(&mut self) {
        release_reserve(&*self.disk);
        self.reserve = None;
        self.room = Room {
            is_lacking: true,
            is_short: true,
            refused_bytes: self.room.refused_bytes,
            ..Room::default()
        };
    }

    /// Cancels all work, because the store is about to be closed.
    pub fn cancel_work(&mut self) {
        self.epoch.cancel();
        self.is_working = false;
    }

    /// Begins the recovery from a failed write or sync, or the snapshot of an orderly end: a new segment, and a snapshot of all
    /// that is durable. The caller writes its records and calls [`FileLedger::finish_rewrite`]. Other work is cancelled.
    ///
    /// # Errors
    /// The segment cannot be created. The state on disk is as before.
    pub fn begin_rewrite(&mut self, now: Now) -> Result<SnapshotWriter, StorageError> {
        self.cancel_work();
        self.disk.check().map_err(|kind| self.error(kind))?;
        self.remove_last_attempt();
        // Each attempt has files of its own.
        self.last_segment = self.last_segment.saturating_add(1);
        let number = self.last_segment;
        // The snapshot shows what has expired since the last group. The next process may find no other group, and its clock
        // must not show an earlier time.
        self.metadata = self.metadata_at(self.metadata.ceiling, now);
        let preparation = Preparation {
            disk: Arc::clone(&self.disk),
            epoch: self.epoch.clone(),
            number,
            bytes: self.policy.first_bytes,
            least_bytes: self.policy.first_bytes,
            used: None,
            reserve_bytes: None,
        };
        let segment = preparation.prepare().map_err(|kind| self.error(kind))?;
        self.prepared.push_back(segment);
        // The chain of a new store begins with its number.
        self.store();
        Ok(self.snapshot_writer((number, self.chain), now))
    }

    /// Removes the files of the attempt before. Its snapshot may be in place, and needs its segment: it goes first.
    fn remove_last_attempt(&mut self) {
        for segment in self.prepared.drain(..) {
            let names = [snapshot_name(segment.number), log_name(segment.number)];
            let is_gone = |name: &String| match self.disk.remove(name) {
                Err(kind) => kind.is_not_found(),
                Ok(()) => true,
            };
            if !names.iter().all(is_gone) {
                self.obsolete.extend(names);
            }
        }
    }

    /// Completes the snapshot of [`FileLedger::begin_rewrite`]; commits are possible again.
    ///
    /// # Errors
    /// It is unknown whether the snapshot is in place. The next attempt begins with [`FileLedger::begin_rewrite`].
    pub fn finish_rewrite(&mut self, snapshot: SnapshotWriter) -> Result<(), StorageError> {
        let written = snapshot.finish(self.chain.number, self.metadata).map_err(|kind| self.error(kind))?;
        if !self.mark.is_set {
            // The first commit of all has failed.
            self.disk.sync_own_name().map_err(|error| self.error(error.into()))?;
            self.set_mark(None);
        }
        if let Some(segment) = self.prepared.pop_front() {
            self.activate(segment);
        }
        self.has_failed = false;
        // No write follows a failed one: the abandoned segment is not used again.
        let number = written.snapshot.number;
        let abandoned = self.used.iter().filter(|(used, _)| *used < number).map(|(used, _)| log_name(*used));
        self.obsolete.extend(abandoned);
        self.used.retain(|(used, _)| *used >= number);
        // One that has failed may be in place nevertheless.
        self.obsolete.extend(self.snapshot_from.take().map(|(failed, _)| snapshot_name(failed)));
        self.handle_snapshot(&written);
        Ok(())
    }

    fn snapshot_writer(&mut self, from: (u64, Chain), now: Now) -> SnapshotWriter {
        let (clock, store) = (self.clock(now), self.store());
        let older = self.snapshot.map(|snapshot| snapshot.number);
        SnapshotWriter::new(Arc::clone(&self.disk), self.epoch.clone(), from, store, clock, older)
    }

    /// Whether [`FileLedger::take_work`] would return something.
    #[must_use]
    pub fn has_work(&self, now: Now) -> bool {
        self.due_work(now).is_some()
    }

    fn due_work(&self, now: Now) -> Option<DueWork> {
        let is_young = self.commits < self.policy.commits_before && self.room == Room::default();
        if self.is_working || self.has_failed || is_young || self.room.is_exhausted {
            return None;
        }
        let is_snapshot_due = self.is_snapshot_due(now);
        let begins_segment = is_snapshot_due && self.snapshot_from.is_none();
        // Without room for a segment, a snapshot may have room all the same.
        let comes_first = is_snapshot_due && self.room.is_lacking;
        if !self.obsolete.is_empty() {
            Some(DueWork::Removal)
        } else if comes_first && !self.room.is_probed {
            Some(DueWork::Probe(Purpose::Snapshot))
        } else if self.prepared.is_empty() && (begins_segment || (self.is_half_used() && !comes_first)) {
            Some(DueWork::Segment)
        } else if is_snapshot_due {
            Some(DueWork::Snapshot)
        } else if self.is_reserve_due() || (self.room.is_lacking && self.room.may_be_more) {
            Some(DueWork::Reserve)
        } else {
            self.room.is_probe_due.then_some(DueWork::Probe(Purpose::Group))
        }
    }

    /// Makes work due that a process that ends soon leaves out: a lack of room is reported although nothing is written.
    pub fn settle(&mut self) {
        if self.store.is_some() {
            self.commits = self.commits.max(self.policy.commits_before);
        }
    }

    /// Makes work due that has failed for lack of room. Some time must have passed.
    pub fn retry_work(&mut self) {
        self.room.is_exhausted = false;
        self.room.may_be_more |= self.room.is_short;
        self.room.is_probe_due = self.room.refused_bytes > 0;
    }

    /// Returns the next piece of work, if any. Only one is under way at a time. `store_bytes` is what the persistent keys take at
    /// present, or somewhat more.
    pub fn take_work(&mut self, now: Now, store_bytes: u64) -> Option<Work> {
        let due = self.due_work(now)?;
        // Otherwise the next commit fails, which reports it.
        self.disk.check().ok()?;
        let (disk, epoch) = (Arc::clone(&self.disk), self.epoch.clone());
        let work = match due {
            DueWork::Removal => Work::Remove(disk, std::mem::take(&mut self.obsolete)),
            DueWork::Probe(Purpose::Snapshot) => {
                Work::Probe(disk, epoch, Purpose::Snapshot, self.missing_bytes(store_bytes))
            }
            DueWork::Probe(Purpose::Group) => {
                self.room.is_probe_due = false;
                Work::Probe(disk, epoch, Purpose::Group, self.room.refused_bytes)
            }
            DueWork::Segment => Work::Prepare(self.preparation()),
            DueWork::Snapshot => Work::Snapshot(Box::new(self.begin_snapshot(now)?)),
            DueWork::Reserve => {
                if self.room.is_lacking {
                    self.room.may_be_more = false;
                }
                let (bytes, is_in_place) = (self.reserve_bytes(), self.reserve.is_some());
                Work::Reserve(Filling { disk, epoch, bytes, is_in_place })
            }
        };
        self.is_working = true;
        Some(work)
    }

    /// Begins a snapshot with the next segment. One that follows a failed attempt begins with the same one, so that many attempts
    /// take no more segments than one: the log has all changes since.
    fn begin_snapshot(&mut self, now: Now) -> Option<SnapshotWriter> {
        let from = match self.snapshot_from {
            Some(from) => from,
            None => {
                let segment = self.prepared.pop_front()?;
                let from = (segment.number, self.chain);
                self.activate(segment);
                from
            }
        };
        self.room.is_probed = false;
        self.snapshot_from = Some(from);
        self.snapshot_begun_ms = now.monotonic_ms;
        Some(self.snapshot_writer(from, now))
    }

    /// Returns the room that a snapshot needs besides that of the reserve.
    fn missing_bytes(&self, store_bytes: u64) -> u64 {
        let needed = store_bytes
            .saturating_add(store_bytes / 16)
            .min(self.live_bytes.saturating_add(self.live_bytes / 16));
        needed
            .saturating_add(SNAPSHOT_OVERHEAD_BYTES.min(self.policy.first_bytes))
            .saturating_sub(self.reserve_in_place())
    }

    fn is_reserve_due(&self) -> bool {
        let wanted = self.reserve_bytes();
        let tolerated = self.policy.deletion_bytes(self.live_bytes) / 4;
        let is_short = self.reserve.is_none_or(|bytes| bytes.saturating_add(tolerated) < wanted);
        let is_long = self.reserve_in_place() > wanted.saturating_mul(2);
        // Without room, it is tried again after a snapshot.
        (is_long || is_short) && !self.room.is_lacking
    }

    fn preparation(&mut self) -> Preparation {
        self.last_segment = self.last_segment.saturating_add(1);
        let last_bytes = self.active.as_ref().map_or(0, |segment| segment.bytes);
        let least_bytes = self.policy.first_bytes;
        let in_place = self.reserve_in_place();
        let may_shrink = self.room.is_lacking && in_place > 0;
        Preparation {
            disk: Arc::clone(&self.disk),
            epoch: self.epoch.clone(),
            number: self.last_segment,
            bytes: if self.room.is_lacking { least_bytes } else { self.policy.next_bytes(last_bytes) },
            least_bytes,
            used: self.free.pop(),
            reserve_bytes: may_shrink.then(|| in_place.saturating_sub(least_bytes.saturating_mul(2))),
        }
    }

    fn is_half_used(&self) -> bool {
        self.active.as_ref().is_none_or(|segment| segment.at >= segment.bytes / 2)
    }

    fn is_snapshot_due(&self, now: Now) -> bool {
        self.is_log_long() && now.monotonic_ms >= self.snapshot_retry_ms
    }

    fn is_log_long(&self) -> bool {
        let least = if self.room.is_lacking {
            let usual_bytes = self.policy.deletion_bytes(self.live_bytes) / 4;
            let small_bytes = (self.live_bytes_of_snapshot() / 16).max(SMALL_LOG_BYTES);
            // First the reserve is tried again: commits and snapshots of a small store could follow each other without end.
            let is_small_due = self.room.is_short && !self.room.may_be_more;
            if is_small_due { usual_bytes.min(small_bytes) } else { usual_bytes }
        } else {
            self.policy.snapshot_bytes.max(self.live_bytes_of_snapshot())
        };
        self.log_bytes >= least
    }

    /// Whether an orderly end should write a snapshot first, so that the next start has less to read.
    #[must_use]
    pub fn is_snapshot_due_at_end(&self) -> bool {
        let live_bytes = self.live_bytes_of_snapshot();
        let is_cheap = live_bytes <= self.policy.snapshot_bytes && self.log_bytes >= self.policy.close_bytes;
        let is_due = self.log_bytes >= live_bytes && (is_cheap || self.is_log_long());
        is_due && self.is_open() && !self.room.is_lacking
    }

    fn live_bytes_of_snapshot(&self) -> u64 {
        self.snapshot.map_or(0, |snapshot| snapshot.bytes)
    }

    fn reserve_in_place(&self) -> u64 {
        self.reserve.unwrap_or(0)
    }

    /// Returns how long the reserve should be: as the next snapshot, and what deletions need before it.
    fn reserve_bytes(&self) -> u64 {
        // The frames of a snapshot are filled up to whole blocks.
        let snapshot_bytes = self.live_bytes.saturating_add(self.live_bytes / 16);
        snapshot_bytes.saturating_add(self.policy.deletion_bytes(self.live_bytes))
    }

    /// Handles the end of [`FileLedger::take_work`]. Returns the error of a snapshot, if not for lack of room.
    pub fn handle_done(&mut self, done: Done, now: Now) -> Option<StorageError> {
        match done {
            Done::Removed => self.is_working = false,
            Done::Prepared(epoch, result) => self.handle_prepared(&epoch, result),
            Done::Reserve(epoch, result) if !epoch.is_over() => self.handle_reserve(result, now),
            Done::Probed(epoch, Purpose::Snapshot, room_bytes) if !epoch.is_over() => {
                self.is_working = false;
                self.room.is_probed = room_bytes.is_some();
                if room_bytes.is_none() {
                    self.snapshot_retry_ms = now.monotonic_ms.saturating_add(SNAPSHOT_PAUSE_MIN_MS);
                }
            }
            Done::Probed(epoch, Purpose::Group, room_bytes) if !epoch.is_over() => {
                self.is_working = false;
                if room_bytes.is_some_and(|bytes| bytes >= self.room.refused_bytes) {
                    self.room.refused_bytes = 0;
                    self.room.is_lacking = self.room.is_short;
                }
            }
            Done::Snapshot(epoch, result) if !epoch.is_over() => {
                self.is_working = false;
                match result {
                    Ok(written) => {
                        self.recycle(written.snapshot.number);
                        self.handle_snapshot(&written);
                    }
                    Err(kind) if kind.is_lack_of_room() => {
                        // Without the reserve there may be room for the next attempt.
                        if self.reserve_in_place() == 0 {
                            self.pause_snapshots(now);
                        }
                        self.release_reserve();
                    }
                    Err(kind) => {
                        self.pause_snapshots(now);
                        return Some(self.error(kind));
                    }
                }
            }
            Done::Reserve(..) | Done::Snapshot(..) | Done::Probed(..) => {}
        }
        None
    }

    /// Lets some time pass before the next attempt.
    fn pause_snapshots(&mut self, now: Now) {
        let taken_ms = now.monotonic_ms.saturating_sub(self.snapshot_begun_ms);
        let pause_ms =
            self.snapshot_pause_ms.saturating_mul(2).clamp(SNAPSHOT_PAUSE_MIN_MS, SNAPSHOT_PAUSE_MAX_MS);
        self.snapshot_pause_ms = pause_ms;
        self.snapshot_retry_ms = now.monotonic_ms.saturating_add(pause_ms.max(taken_ms.saturating_mul(4)));
    }

    fn handle_prepared(&mut self, epoch: &Epoch, result: Result<OpenSegment, StorageErrorKind>) {
        let is_over = epoch.is_over();
        self.is_working &= is_over;
        match result {
            // A later segment is in use meanwhile: groups must be in the order of the segments.
            Ok(segment)
                if is_over || self.active.as_ref().is_some_and(|active| active.number > segment.number) =>
            {
                self.obsolete.push(log_name(segment.number));
            }
            Ok(segment) => {
                if self.reserve.is_some() && self.room.is_lacking {
                    // It may have been shortened.
                    self.reserve = self.disk.open(RESERVE_NAME).and_then(|file| Ok(file.bytes()?)).ok();
                }
                self.prepared.push_back(segment);
            }
            Err(kind) if kind.is_lack_of_room() && !is_over => {
                if self.room.is_lacking {
                    // Neither with a shorter reserve.
                    let was_in_place = self.reserve.is_some();
                    self.release_reserve();
                    self.room.is_exhausted = !was_in_place;
                }
                self.room.is_lacking = true;
            }
            // The commit that needs the segment creates it, or fails.
            Err(_) => self.room.is_exhausted |= !is_over,
        }
    }

    fn handle_reserve(&mut self, result: Result<(u64, u64), StorageErrorKind>, now: Now) {
        self.is_working = false;
        match result {
            Ok((bytes, wanted)) => {
                self.reserve = Some(bytes);
                let tolerated = self.policy.deletion_bytes(self.live_bytes) / 4;
                if bytes.saturating_add(tolerated) >= wanted {
                    let refused_bytes = self.room.refused_bytes;
                    self.room = Room { refused_bytes, is_probe_due: refused_bytes > 0, ..Room::default() };
                    return;
                }
                if !self.free.is_empty() {
                    // These segments take the room.
                    let free = self.free.drain(..).map(|(number, _)| log_name(number));
                    self.obsolete.extend(free);
                    return;
                }
            }
            Err(_) => {
                release_reserve(&*self.disk);
                self.reserve = None;
            }
        }
        self.room.is_lacking = true;
        // Otherwise a snapshot comes next, and then the reserve again.
        if !self.is_snapshot_due(now) {
            (self.room.is_short, self.room.is_exhausted) = (true, true);
        }
    }

    /// Collects the segments before this one to use them again, or marks them for removal.
    fn recycle(&mut self, first: u64) {
        let bytes_max = self.policy.snapshot_bytes.saturating_add(self.policy.segment_bytes);
        let mut free_bytes: u64 = self.free.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
        let least_bytes = self.policy.next_bytes(self.active.as_ref().map_or(0, |segment| segment.bytes));
        for (number, bytes) in self.used.extract_if(.., |(number, _)| *number < first) {
            let is_usual = bytes >= least_bytes && bytes <= self.policy.segment_bytes;
            if is_usual && !self.room.is_lacking && free_bytes.saturating_add(bytes) <= bytes_max {
                free_bytes = free_bytes.saturating_add(bytes);
                self.free.push((number, bytes));
            } else {
                self.obsolete.push(log_name(number));
            }
        }
    }

    fn handle_snapshot(&mut self, written: &Written) {
        self.snapshot = Some(written.snapshot);
        self.room.may_be_more = true;
        self.is_changed = true;
        (self.snapshot_from, self.snapshot_pause_ms, self.snapshot_retry_ms) = (None, 0, 0);
        self.live_bytes = written.live_bytes;
        // What has been committed since it was begun is in the segments from its own on.
        let first = written.snapshot.number;
        let active = self.active.as_ref().map_or(0, |segment| segment.at);
        let full =
            self.used.iter().filter(|(number, _)| *number >= first).rev().skip(1).map(|(_, bytes)| *bytes);
        self.log_bytes = full.fold(active, u64::saturating_add);
    }
}
