//! The work that no commit waits for, segments, snapshots and the reserve, and the room that follows from it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::{fmt, io};

use super::FileLedger;
use crate::ledger::file::disk::{Disk, RESERVE_NAME, SECOND_RESERVE_NAME, log_name, snapshot_name};
use crate::ledger::file::frame::{BLOCK_BYTES, Chain};
use crate::ledger::file::reading::Snapshot;
use crate::ledger::file::snapshot::{SnapshotWriter, Written};
use crate::ledger::file::work::{Done, OpenSegment, Preparation, Reservation, Reserved, Work, prove};
use crate::ledger::room::Room;
use crate::ledger::{StorageError, StorageErrorKind};
use crate::protocol::ErrorReply;
use crate::store::Now;

/// The time between a snapshot that has failed and the next attempt; it doubles with each one. An attempt that has taken long is
/// followed by a longer pause, because it has written much.
const SNAPSHOT_PAUSE_MIN_MS: u64 = 1_000;
const SNAPSHOT_PAUSE_MAX_MS: u64 = 60_000;

/// Snapshots, the reserve, and what keeps the log from growing.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    pub snapshot: Option<Snapshot>,
    /// The segment with which a snapshot was begun that is not in place, and the last group before it.
    begun_from: Option<(u64, Chain)>,
    /// When it was begun, the pause after its last failure, and when it may be tried again: in monotonic milliseconds.
    begun_ms: u64,
    pause_ms: u64,
    retry_ms: u64,
    /// Length of the entries in the snapshot, and of those that were set since: at least that of the live ones.
    pub live_bytes: u64,
    /// Length of the entries that were set since a snapshot was begun.
    set_bytes: u64,
    /// About what the live ones take; `None` if that is not known.
    stored_bytes: Option<u64>,
    /// Room of the file that the next snapshot is written to, and of the one after that; and of the one that it is being written to.
    reserved: Reserved,
    in_use: u64,
    /// Files that are no longer needed.
    pub obsolete: Vec<String>,
    /// What is under way.
    working: Option<DueWork>,
    /// Whether this process has written to the disk: one that cannot be written is known before the first change.
    pub is_proven: bool,
    /// Why there is no segment or no reserve, and whether it is time for another attempt.
    lack: Option<Lack>,
    is_retry_due: bool,
}

impl Upkeep {
    pub fn new(disk: &dyn Disk, snapshot: Option<Snapshot>, live_bytes: u64, obsolete: Vec<String>) -> Self {
        let mut upkeep = Self { snapshot, live_bytes, obsolete, ..Self::default() };
        upkeep.look_at_reserve(disk);
        upkeep
    }

    fn look_at_reserve(&mut self, disk: &dyn Disk) {
        let room = |name: &str| disk.open(name).and_then(|file| Ok(file.allocated()?)).unwrap_or(0);
        (self.in_use, self.reserved) =
            (0, Reserved { first: room(RESERVE_NAME), second: room(&self.second()) });
    }

    /// Returns the name of the file that is the reserve after the next snapshot.
    fn second(&self) -> String {
        self.snapshot
            .map_or_else(|| SECOND_RESERVE_NAME.to_owned(), |snapshot| snapshot_name(snapshot.number))
    }

    /// Notes that entries of this length were set.
    pub fn note_set(&mut self, bytes: u64) {
        self.live_bytes = self.live_bytes.saturating_add(bytes);
        self.set_bytes = self.set_bytes.saturating_add(bytes);
    }
}

/// Why a ledger has no more room at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The disk, a quota or the limit of a file.
    Full,
    /// The disk cannot be written.
    Unwritable(String),
}

/// The piece of work that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DueWork {
    Reserve,
    Removal,
    Segment,
    Snapshot,
}

impl fmt::Display for Lack {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => out.write_str("the disk is full, and keys can only be deleted"),
            Self::Unwritable(cause) => out.write_str(cause),
        }
    }
}

impl Lack {
    fn reply(&self) -> ErrorReply {
        match self {
            Self::Full => ErrorReply::DiskFull,
            Self::Unwritable(_) => ErrorReply::NotPersisted,
        }
    }
}

impl FileLedger {
    /// Returns the room for groups. What grows the store leaves the last segment to deletions: when that is begun, a snapshot can free
    /// the others.
    #[must_use]
    pub fn room(&self, now: Now) -> Room {
        let is_young = self.is_young();
        let segments = if is_young || self.upkeep.is_proven { self.log.room() } else { VecDeque::new() };
        let last_bytes = self.log.prepared.back().map_or(u64::MAX, |segment| segment.bytes);
        let spare_bytes = if is_young { self.policy.first_bytes / 4 } else { last_bytes };
        let growth_bytes = if is_young { u64::MAX } else { self.growth_bytes() };
        let is_coming = self.upkeep.working.is_some() || self.has_work(now);
        let lack = self.upkeep.lack.as_ref().map(Lack::reply);
        Room { segments, spare_bytes, growth_bytes, is_coming, lack }
    }

    /// Returns why there is no more room at present.
    #[must_use]
    pub fn lack(&self) -> Option<&Lack> {
        self.upkeep.lack.as_ref()
    }

    /// Gets room for a group of this length besides those that are not committed: first to grow, then a segment. It may take several
    /// calls. Returns false if that is under way.
    pub fn claim(&mut self, bytes: u64, pending_bytes: u64) -> bool {
        let is_under_way = matches!(self.upkeep.working, Some(DueWork::Reserve | DueWork::Segment));
        if !is_under_way {
            self.try_claim(bytes, pending_bytes).unwrap_or_else(|kind| self.set_lack(kind));
        }
        !is_under_way
    }

    /// Gets room for the first group of a process, if there is none.
    pub fn claim_first(&mut self) {
        if !self.upkeep.is_proven || self.log.room().iter().all(|bytes| *bytes < BLOCK_BYTES as u64) {
            self.try_claim(0, 0).unwrap_or_else(|kind| self.set_lack(kind));
        }
    }

    fn try_claim(&mut self, bytes: u64, pending_bytes: u64) -> Result<(), StorageErrorKind> {
        self.disk.check()?;
        if !self.is_young() && !self.upkeep.is_proven && self.prove()? {
            return Ok(());
        }
        let growth_bytes = bytes.saturating_add(pending_bytes);
        if self.is_young() || !self.upkeep.is_proven || self.growth_bytes() >= growth_bytes {
            let bytes = bytes.saturating_add(self.policy.first_bytes / 4);
            let segment = self.preparation(bytes, self.is_young()).prepare()?;
            self.add_segment(segment);
        } else {
            self.upkeep.reserved = self.reservation(growth_bytes).reserve()?;
        }
        Ok(())
    }

    /// Writes to a segment that an earlier process has prepared. Returns false if there is none.
    fn prove(&mut self) -> Result<bool, StorageErrorKind> {
        let Some(segment) = self.log.prepared.back() else { return Ok(false) };
        prove(&*segment.file).map_err(|kind| kind.of_file(&log_name(segment.number)))?;
        self.upkeep.is_proven = true;
        Ok(true)
    }

    fn is_young(&self) -> bool {
        self.commits < self.policy.commits_before
    }

    fn set_lack(&mut self, kind: StorageErrorKind) {
        self.upkeep.is_retry_due = false;
        self.upkeep.lack = Some(match kind.is_lack_of_room() {
            true => Lack::Full,
            false => Lack::Unwritable(self.error(kind).to_string()),
        });
    }

    /// Notes about what the live records take, if that is known.
    pub fn note_stored(&mut self, bytes: Option<u64>) {
        self.upkeep.stored_bytes = bytes;
    }

    /// Makes work due that a process that ends soon leaves out, and what has failed for lack of room. Must be called about once a
    /// second.
    pub fn settle(&mut self) {
        if self.store.is_some() {
            self.commits = self.commits.max(self.policy.commits_before);
        }
        self.upkeep.is_retry_due = true;
        if !self.is_reserve_short() && !self.is_segment_short() {
            // What was refused was long: it may have room now.
            self.upkeep.lack = None;
        }
    }

    /// Forgets the work under way, because the thread that does it has ended.
    pub fn cancel_work(&mut self) {
        if self.upkeep.working.take().is_some() {
            self.upkeep.look_at_reserve(&*self.disk);
        }
    }

    /// Whether [`FileLedger::take_work`] would return something.
    #[must_use]
    pub fn has_work(&self, now: Now) -> bool {
        self.due_work(now).is_some()
    }

    fn due_work(&self, now: Now) -> Option<DueWork> {
        if self.upkeep.working.is_some() || self.is_young() {
            return None;
        }
        let may_grow = self.upkeep.lack.is_none() || self.upkeep.is_retry_due;
        let is_reserve_due = may_grow && (self.is_reserve_long() || self.is_reserve_short());
        let has_free = !self.log.free.is_empty() && self.log.prepared.is_empty();
        let is_segment_due = self.is_segment_short() && (may_grow || has_free);
        if is_reserve_due {
            Some(DueWork::Reserve)
        } else if !self.upkeep.obsolete.is_empty() {
            Some(DueWork::Removal)
        } else if is_segment_due {
            Some(DueWork::Segment)
        } else {
            let may_begin = self.next_snapshot().is_some() || !self.log.prepared.is_empty();
            (may_begin && self.is_snapshot_due(now)).then_some(DueWork::Snapshot)
        }
    }

    /// Returns the segment that the next snapshot begins with, and the last group before it: that of a failed attempt, because the log
    /// has all changes since, or the active one. `None`: the present snapshot has begun with it, so that it takes another one.
    fn next_snapshot(&self) -> Option<(u64, Chain)> {
        let number = |segment: &OpenSegment| segment.number;
        let present = self.upkeep.snapshot.map(|snapshot| snapshot.number);
        let active = self.log.active.as_ref().map(number).filter(|number| Some(*number) != present);
        self.upkeep.begun_from.or_else(|| Some((active?, self.log.base)))
    }

    /// Whether there are fewer segments than one for the next snapshot, one that follows the active one, and one for the first group.
    fn is_segment_short(&self) -> bool {
        let wanted = 1_usize
            .saturating_add(usize::from(self.log.active.is_none()))
            .saturating_add(usize::from(self.log.is_half_used()));
        !self.upkeep.is_proven || self.log.prepared.len() < wanted
    }

    fn add_segment(&mut self, segment: OpenSegment) {
        self.upkeep.is_proven |= !segment.is_blank;
        let (number, bytes) = (segment.number, segment.bytes);
        if !self.log.add(segment) {
            self.log.free.push((number, bytes));
        }
    }

    /// Returns the next piece of work, if any. Only one is under way at a time. `pending_bytes` is the length of the groups that are
    /// not committed: a snapshot begins with a segment that has room for them. The room is another one afterwards.
    pub fn take_work(&mut self, now: Now, pending_bytes: u64) -> Option<Work> {
        let due = self.due_work(now)?;
        let has_room = self.log.prepared.front().is_some_and(|next| next.bytes >= pending_bytes);
        if due == DueWork::Snapshot && self.next_snapshot().is_none() && !has_room {
            return None;
        }
        // Otherwise the next commit fails, which reports it.
        self.disk.check().ok()?;
        let work = match due {
            DueWork::Removal => {
                Work::Remove(Arc::clone(&self.disk), std::mem::take(&mut self.upkeep.obsolete))
            }
            DueWork::Segment => Work::Prepare(self.preparation(self.policy.first_bytes, false)),
            DueWork::Snapshot => Work::Snapshot(Box::new(self.begin_snapshot(now)?)),
            DueWork::Reserve => Work::Reserve(self.reservation(0)),
        };
        self.upkeep.working = Some(due);
        Some(work)
    }

    /// Returns the preparation of the next segment, with room for a group of this length.
    pub(super) fn preparation(&mut self, group_bytes: u64, is_blank: bool) -> Preparation {
        let is_lacking = self.upkeep.lack.is_some();
        let least_bytes = self.policy.first_bytes.max(group_bytes);
        let usual_bytes = self.policy.next_bytes(self.log.last_bytes(), self.live_bytes()).max(group_bytes);
        let used = self.log.free.iter().rposition(|(_, bytes)| *bytes >= group_bytes);
        Preparation {
            disk: Arc::clone(&self.disk),
            number: self.log.next_number(),
            bytes: if is_lacking { least_bytes } else { usual_bytes },
            least_bytes,
            used: used.map(|at| self.log.free.remove(at)),
            is_proof: !self.upkeep.is_proven,
            is_blank,
        }
    }

    /// Returns the change of the reserve that covers all segments, and a group of this length besides.
    fn reservation(&mut self, group_bytes: u64) -> Reservation {
        // Those of snapshots are the last ones.
        let is_snapshot = |name: &String| name.starts_with("snapshot-");
        let used = self.upkeep.obsolete.pop_if(|name| self.upkeep.reserved.first == 0 && is_snapshot(name));
        Reservation {
            disk: Arc::clone(&self.disk),
            in_use: self.upkeep.in_use,
            second: self.upkeep.second(),
            bytes: self.reserve_for(self.room_bytes().saturating_add(group_bytes)),
            least_bytes: self.reserve_for(group_bytes.max(self.policy.first_bytes)),
            used,
        }
    }

    /// Begins a snapshot: opens its file, which is the reserve.
    fn begin_snapshot(&mut self, now: Now) -> Option<SnapshotWriter> {
        // The chain of a new store begins with its number.
        let store = self.store();
        let from = match self.next_snapshot() {
            Some(from) => from,
            None => (self.log.activate_next(self.chain)?, self.chain),
        };
        (self.upkeep.begun_from, self.upkeep.begun_ms) = (Some(from), now.monotonic_ms);
        self.upkeep.in_use = std::mem::take(&mut self.upkeep.reserved.first);
        self.upkeep.set_bytes = 0;
        let clock = self.clock(now);
        let second = self.upkeep.second();
        let bytes_max = self.policy.snapshot_bytes_of(self.live_bytes());
        let mut writer = SnapshotWriter::new(Arc::clone(&self.disk), from, store, clock, second, bytes_max);
        writer.open_early();
        Some(writer)
    }

    /// Begins a snapshot of all that is durable, in a process that does no other work. The caller writes its records and calls
    /// [`FileLedger::finish_last_snapshot`].
    ///
    /// # Errors
    /// The segment cannot be created. The state on disk is as before.
    pub fn begin_last_snapshot(&mut self, now: Now) -> Result<SnapshotWriter, StorageError> {
        self.disk.check().map_err(|kind| self.error(kind))?;
        if self.upkeep.begun_from.is_none() {
            // The next start has no groups to read.
            if self.log.prepared.is_empty() {
                let segment = self.preparation(self.policy.first_bytes, false).prepare();
                let segment = segment.map_err(|kind| self.error(kind))?;
                self.add_segment(segment);
            }
            self.store();
            self.upkeep.begun_from = self.log.activate_next(self.chain).map(|number| (number, self.chain));
        }
        let begun = self.begin_snapshot(now);
        begun.ok_or_else(|| self.error(StorageErrorKind::Other("there is no segment".to_owned())))
    }

    /// Completes the snapshot of [`FileLedger::begin_last_snapshot`].
    ///
    /// # Errors
    /// It is unknown whether the snapshot is in place. The log has all changes.
    pub fn finish_last_snapshot(&mut self, snapshot: SnapshotWriter) -> Result<(), StorageError> {
        let written = snapshot.finish(self.chain.number, self.metadata).map_err(|kind| self.error(kind))?;
        if !self.mark.is_set {
            self.disk.sync_own_name().map_err(|error| self.error(error.into()))?;
        }
        self.handle_snapshot(&written);
        Ok(())
    }

    fn is_snapshot_due(&self, now: Now) -> bool {
        self.is_log_long() && now.monotonic_ms >= self.upkeep.retry_ms
    }

    fn is_log_long(&self) -> bool {
        let is_long = self.log.bytes >= self.policy.snapshot_bytes.max(self.snapshot_bytes());
        // Without room, a snapshot gives some back: that of the log once its last segment is begun, or that of deleted values.
        let live_bytes = self.upkeep.live_bytes;
        let deleted = self.upkeep.stored_bytes.map_or(0, |stored| live_bytes.saturating_sub(stored));
        let gives_back = (self.log.prepared.is_empty() && self.log.used.len() > 1)
            || (self.log.bytes > 0 && deleted > self.policy.first_bytes.max(live_bytes / 8));
        is_long || (self.upkeep.lack.is_some() && gives_back)
    }

    /// Whether an orderly end should write a snapshot first, so that the next start has less to read.
    #[must_use]
    pub fn is_snapshot_due_at_end(&self) -> bool {
        let live_bytes = self.snapshot_bytes();
        let is_cheap = live_bytes <= self.policy.snapshot_bytes && self.log.bytes >= self.policy.close_bytes;
        let is_due = self.log.bytes >= live_bytes && (is_cheap || self.is_log_long());
        is_due && self.upkeep.lack.is_none()
    }

    fn snapshot_bytes(&self) -> u64 {
        self.upkeep.snapshot.map_or(0, |snapshot| snapshot.bytes)
    }

    /// Returns what the next snapshot has at present, or somewhat more.
    fn live_bytes(&self) -> u64 {
        let live_bytes = self.upkeep.live_bytes;
        self.upkeep.stored_bytes.map_or(live_bytes, |stored| stored.min(live_bytes))
    }

    fn room_bytes(&self) -> u64 {
        self.log.room().into_iter().fold(0, u64::saturating_add)
    }

    /// Returns how much room each of the two files must take if the store grows by so much: that of a snapshot.
    fn reserve_for(&self, growth_bytes: u64) -> u64 {
        self.policy.snapshot_bytes_of(self.live_bytes().saturating_add(growth_bytes))
    }

    fn reserved_bytes(&self) -> u64 {
        let Reserved { first, second } = self.upkeep.reserved;
        first.saturating_add(self.upkeep.in_use).min(second)
    }

    /// Returns by how much the store may grow with the present reserve: the inverse of `reserve_for`, and no less than what that was
    /// given.
    fn growth_bytes(&self) -> u64 {
        let records = self.reserved_bytes().saturating_sub(self.policy.first_bytes);
        records.saturating_sub(records / 17).saturating_sub(self.live_bytes())
    }

    fn is_reserve_short(&self) -> bool {
        self.growth_bytes() < self.room_bytes()
    }

    fn is_reserve_long(&self) -> bool {
        self.upkeep.reserved.first > self.reserve_for(self.room_bytes()).saturating_mul(2)
    }

    /// Handles the end of [`FileLedger::take_work`]. Returns the error of a snapshot.
    pub fn handle_done(&mut self, done: Done, now: Now) -> Option<StorageError> {
        self.upkeep.working = None;
        let mut is_stuck = false;
        let result = match done {
            Done::Removed => Ok(()),
            Done::Prepared(segment) => segment.map(|segment| self.add_segment(segment)),
            Done::Reserved(reserved) => reserved.map(|reserved| {
                let before = std::mem::replace(&mut self.upkeep.reserved, reserved);
                // Some of the room is had, and no more can be.
                is_stuck = before == reserved && self.is_reserve_short();
            }),
            Done::Snapshot(Ok(written)) => {
                self.handle_snapshot(&written);
                // It may have given room back.
                self.upkeep.lack = None;
                return None;
            }
            Done::Snapshot(Err(kind)) => {
                self.upkeep.look_at_reserve(&*self.disk);
                self.pause_snapshots(now);
                return Some(self.error(kind));
            }
        };
        match result {
            Err(kind) => self.set_lack(kind),
            Ok(()) if is_stuck => self.set_lack(StorageErrorKind::Io(io::ErrorKind::StorageFull.into())),
            Ok(()) if self.is_reserve_short() || self.is_segment_short() => {}
            Ok(()) => self.upkeep.lack = None,
        }
        None
    }

    /// Lets some time pass before the next attempt.
    fn pause_snapshots(&mut self, now: Now) {
        let taken_ms = now.monotonic_ms.saturating_sub(self.upkeep.begun_ms);
        let pause_ms =
            self.upkeep.pause_ms.saturating_mul(2).clamp(SNAPSHOT_PAUSE_MIN_MS, SNAPSHOT_PAUSE_MAX_MS);
        self.upkeep.pause_ms = pause_ms;
        self.upkeep.retry_ms = now.monotonic_ms.saturating_add(pause_ms.max(taken_ms.saturating_mul(4)));
    }

    fn handle_snapshot(&mut self, written: &Written) {
        let Written { snapshot, live_bytes } = *written;
        // A full disk needs one segment again; the others make room.
        let free_max = match self.upkeep.lack {
            Some(_) => 0,
            None => self.policy.snapshot_bytes.saturating_add(self.policy.segment_bytes),
        };
        let obsolete = self.log.handle_snapshot(snapshot.number, self.policy, free_max);
        self.upkeep.obsolete.extend(obsolete);
        self.upkeep.snapshot = Some(snapshot);
        self.upkeep.live_bytes = live_bytes.saturating_add(self.upkeep.set_bytes);
        (self.upkeep.begun_from, self.upkeep.pause_ms, self.upkeep.retry_ms) = (None, 0, 0);
        self.upkeep.look_at_reserve(&*self.disk);
        self.is_changed = true;
    }
}
