//! The files of one store, open: opening, loading, commits, the end.

mod upkeep;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::codec;
use super::directory::Directory;
use super::disk::{Disk, log_name, snapshot_name};
use super::entry::{CommitMetadata, Entry, Place, entries_of};
use super::frame::{self, Chain, Kind};
use super::mark::Mark;
use super::policy::Policy;
use super::reading::{self, Contents, Snapshot};
use super::seeding::Seeding;
use super::snapshot::{ClockReading, Epoch};
use super::work::OpenSegment;
use crate::ledger::{KeyState, Record, RecordTooLong, StorageError, StorageErrorKind};
use crate::protocol::Key;
use crate::store::{Now, StoredValue, Version};

/// A difference between the clocks that is no rounding.
const CLOCK_STEP_MS: u64 = 1_000;

/// The time between two checks of the directory; a commit that prepares nothing needs no name.
const CHECK_INTERVAL_MS: u64 = 1_000;

/// The most memory that is retained for the next group.
const GROUP_BYTES_RETAINED: usize = 4 * 1024 * 1024;

/// The files of one store, open. No other process can open them meanwhile.
#[derive(Debug)]
pub struct FileLedger {
    disk: Arc<dyn Disk>,
    policy: Policy,
    /// `None` until something is committed to a new store.
    store: Option<u64>,
    mark: Mark,
    /// The last durable group.
    chain: Chain,
    metadata: CommitMetadata,
    /// Begins with the first call that needs it.
    clock: Option<ClockReading>,
    /// What was read at the start, until it is loaded.
    contents: Contents,
    rows: BTreeMap<Bytes, Bytes>,
    snapshot: Option<Snapshot>,
    /// The segment that groups are written to; `None` if the next group begins one.
    active: Option<OpenSegment>,
    /// The segment to go on in after an orderly end: its number, its length, and the end of its last group.
    to_continue: Option<(u64, u64, u64)>,
    prepared: VecDeque<OpenSegment>,
    /// Numbers and lengths of the segments since the snapshot.
    used: Vec<(u64, u64)>,
    /// Segments that are no longer needed, and are used again.
    free: Vec<(u64, u64)>,
    /// Files that are no longer needed.
    obsolete: Vec<String>,
    /// The greatest number of a segment.
    last_segment: u64,
    /// Length of the groups since the snapshot.
    log_bytes: u64,
    /// Length of the entries in the snapshot, and of those that were set since: at least that of the live ones.
    live_bytes: u64,
    /// Groups of this process.
    commits: u64,
    /// When the directory is checked again, in monotonic milliseconds.
    check_due_ms: u64,
    /// Length of the file that reserves room for deletions and for the next snapshot; `None` if this process has not synced it.
    reserve: Option<u64>,
    room: Room,
    /// The segment with which a snapshot was begun that is not in place, and the last group before it.
    snapshot_from: Option<(u64, Chain)>,
    /// When it was begun, the pause after its last failure, and when it may be tried again: in monotonic milliseconds.
    snapshot_begun_ms: u64,
    snapshot_pause_ms: u64,
    snapshot_retry_ms: u64,
    epoch: Epoch,
    is_working: bool,
    /// Whether anything was written.
    is_changed: bool,
    /// After a failed write or sync, until [`FileLedger::finish_rewrite`]. No write follows in the same file.
    has_failed: bool,
    /// The encoded group, whose memory is used again.
    group: Vec<u8>,
}

/// What is known of the room on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Room {
    /// A segment or the reserve could not be made: a snapshot may give room back.
    is_lacking: bool,
    /// Only deletions may be committed, because there may be no room for a snapshot of anything else.
    is_short: bool,
    /// Nothing more can be done before the next commit, or some time.
    is_exhausted: bool,
    /// There may be more of it: a snapshot has given some back, or time has passed.
    may_be_more: bool,
    /// Length of the longest group that there was no room for, until one as long is committed, or there is room for it; 0 if
    /// there is none. Shorter groups are committed meanwhile.
    refused_bytes: u64,
    /// Whether a check for that room is due.
    is_probe_due: bool,
    /// Whether there is room for a snapshot, as a check has shown.
    is_probed: bool,
}

impl FileLedger {
    /// Opens the store in a directory; creates the directory, readable by its owner only, if it is missing.
    ///
    /// # Errors
    /// [`StorageError`]. Corrupt files have not been changed.
    pub fn open(directory: &Path) -> Result<Self, StorageError> {
        let error = |kind| StorageError { path: directory.to_owned(), kind };
        Self::open_on(Arc::new(Directory::lock(directory).map_err(error)?), Policy::default())
    }

    /// Opens or creates a store on any disk.
    ///
    /// # Errors
    /// [`StorageError`]. Corrupt files have not been changed.
    pub fn open_on(disk: Arc<dyn Disk>, policy: Policy) -> Result<Self, StorageError> {
        let path = disk.path();
        let error = |kind| StorageError { path: path.clone(), kind };
        let (mut contents, is_clean) = read_from_disk(&*disk).map_err(error)?;
        if let Some(corruption) = contents.corruption.take() {
            return Err(error(StorageErrorKind::Corrupt(corruption)));
        }
        let first = contents.snapshot.map_or(1, |snapshot| snapshot.number);
        let names = &contents.names;
        let mut obsolete: Vec<_> = names.new.clone();
        obsolete.extend(
            names.snapshots.iter().filter(|number| **number < first).map(|number| snapshot_name(*number)),
        );
        obsolete.extend(names.logs.iter().filter(|number| **number < first).map(|number| log_name(*number)));
        let (mut used, mut prepared) = (Vec::new(), VecDeque::new());
        let last_used = contents.segments.iter().rposition(|segment| segment.end > 0);
        let mut to_continue = None;
        for (at, segment) in contents.segments.iter().enumerate() {
            let is_unused = last_used.map_or(at > 0, |last| at > last);
            if !is_unused {
                used.push((segment.number, segment.bytes));
                // After an unclean end, what a failed write has left may be behind the last group.
                to_continue = is_clean.then_some((segment.number, segment.bytes, segment.end));
            } else if is_clean {
                let file = disk.open(&log_name(segment.number)).map_err(error)?;
                prepared.push_back(OpenSegment { number: segment.number, file, bytes: segment.bytes, at: 0 });
            } else {
                obsolete.push(log_name(segment.number));
            }
        }
        let has_reserve = names.has_reserve;
        let live_bytes =
            contents.set_bytes.saturating_add(contents.snapshot.map_or(0, |snapshot| snapshot.bytes));
        Ok(Self {
            disk,
            policy,
            store: contents.store,
            mark: contents.mark,
            chain: contents.chain,
            metadata: contents.metadata,
            clock: None,
            rows: BTreeMap::new(),
            snapshot: contents.snapshot,
            active: None,
            to_continue,
            prepared,
            used,
            free: Vec::new(),
            obsolete,
            last_segment: contents.names.logs.last().copied().unwrap_or(0),
            log_bytes: contents.log_bytes,
            live_bytes,
            commits: 0,
            check_due_ms: 0,
            // After an unclean end it may not be on disk.
            reserve: (is_clean && has_reserve).then_some(0),
            room: Room::default(),
            snapshot_from: None,
            snapshot_begun_ms: 0,
            snapshot_pause_ms: 0,
            snapshot_retry_ms: 0,
            epoch: Epoch::default(),
            is_working: false,
            is_changed: false,
            has_failed: false,
            group: Vec::new(),
            contents,
        })
    }

    /// Returns the metadata of the last group.
    #[must_use]
    pub fn metadata(&self) -> CommitMetadata {
        self.metadata
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.disk.path()
    }

    /// Returns whether keys are to be set before clients are served. Must be called before the first commit.
    ///
    /// # Errors
    /// The directory cannot be read or changed.
    pub fn seeding(&self, has_seed: bool) -> Result<Option<Seeding>, StorageError> {
        let seeding = Seeding::begin(Arc::clone(&self.disk), self.store.is_none(), has_seed);
        seeding.map_err(|kind| StorageError { path: self.path(), kind })
    }

    /// Returns the number of the last durable group.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.chain.number
    }

    /// Calls `each` with every key, and returns the keys with a tombstone and their last versions. A deadline that has passed
    /// since its record was written is at `now` or before. One that has not passed is at most its original time to live away.
    /// Must be called once, before the first commit.
    ///
    /// # Errors
    /// The snapshot cannot be read, or is corrupt.
    pub fn load(
        &mut self,
        now: Now,
        mut each: impl FnMut(Key, Version, StoredValue),
    ) -> Result<Vec<(Key, Version)>, StorageError> {
        let (clock_ms, mut tombstones) = (self.clock_ms(now), Vec::new());
        self.load_states(|key, state| {
            if state.is_tombstone() {
                tombstones.push((key, state.version));
            } else {
                let version = state.version;
                each(key, version, state.stored_value(now, clock_ms));
            }
        })?;
        Ok(tombstones)
    }

    /// Calls `each` with every key, those with a tombstone included: see [`FileLedger::load`].
    pub(super) fn load_states(&mut self, mut each: impl FnMut(Key, KeyState)) -> Result<(), StorageError> {
        let (keys, changed_rows) =
            (std::mem::take(&mut self.contents.keys), std::mem::take(&mut self.contents.rows));
        let mut rows = BTreeMap::new();
        let mut take = |key: Key, content: Bytes, file: &str| {
            let state = KeyState::decode(content);
            each(key, state.ok_or_else(|| StorageErrorKind::malformed_record(file))?);
            Ok::<_, StorageErrorKind>(())
        };
        let load = || {
            if let Some(snapshot) = &self.snapshot {
                let name = snapshot_name(snapshot.number);
                let bytes = reading::read_snapshot(&*self.disk, snapshot, |entry| {
                    match (entry.place, entry.content) {
                        (Place::Key(key), Some(content)) if !keys.contains_key(&key) => {
                            take(key, content, &name)?;
                        }
                        (Place::Row(address), Some(content)) => drop(rows.insert(address, content)),
                        _ => {}
                    }
                    Ok(())
                })?;
                self.live_bytes = self.contents.set_bytes.saturating_add(bytes);
            }
            // In an order that does not differ from start to start: SCAN shows it.
            let mut keys: Vec<_> = keys.into_iter().collect();
            keys.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            for (key, content) in keys {
                content.map_or(Ok(()), |content| take(key, content, "the log"))?;
            }
            Ok(())
        };
        load().map_err(|kind| self.error(kind))?;
        for (address, content) in changed_rows {
            match content {
                Some(content) => drop(rows.insert(address, content)),
                None => drop(rows.remove(&address)),
            }
        }
        self.rows = rows;
        Ok(())
    }

    /// Whether there are rows: the store takes part in an exchange. They are known between [`FileLedger::load`] and
    /// [`FileLedger::load_rows`].
    #[must_use]
    pub fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Returns the row at an address, before [`FileLedger::load_rows`].
    #[must_use]
    pub fn row(&self, address: &Bytes) -> Option<Bytes> {
        self.rows.get(address).cloned()
    }

    /// Calls `each` with the address and the bytes of every row, in the order of the addresses. Must be called once.
    pub fn load_rows(&mut self, mut each: impl FnMut(Bytes, Bytes)) {
        std::mem::take(&mut self.rows).into_iter().for_each(|(address, row)| each(address, row));
    }

    /// Commits records in their order, all or none, and waits until they are on disk.
    ///
    /// After a crash, keys without a record continue above `ceiling`, or above the one on disk if that is greater. A key
    /// that holds nothing on disk, and whose version is greater, gets a tombstone.
    ///
    /// # Errors
    /// It is unknown whether the group is on disk. Every commit fails until [`FileLedger::finish_rewrite`], unless
    /// [`FileLedger::is_open`].
    pub fn commit(
        &mut self,
        records: &[(u64, Record)],
        ceiling: Version,
        now: Now,
    ) -> Result<(), StorageError> {
        let ceiling = self.metadata.ceiling.max(ceiling);
        let entries = entries_of(records, ceiling, now, self.clock_ms(now));
        let entries = entries.map_err(|error| self.error(error.into()))?;
        self.append(&entries, ceiling, now)
    }

    /// Appends a group with these entries.
    pub(super) fn append(
        &mut self,
        entries: &[Entry],
        ceiling: Version,
        now: Now,
    ) -> Result<(), StorageError> {
        let metadata = self.metadata_at(ceiling, now);
        let appended = self.check(now).and_then(|()| self.append_group(entries, metadata));
        appended.map_err(|kind| self.error(kind))?;
        self.metadata = metadata;
        Ok(())
    }

    /// Checks once in a while that the directory is in place: what is written to one that was removed or moved may be lost.
    fn check(&mut self, now: Now) -> Result<(), StorageErrorKind> {
        if !self.has_failed && now.monotonic_ms >= self.check_due_ms {
            self.disk.check().inspect_err(|_| self.abandon_segment())?;
            self.check_due_ms = now.monotonic_ms.saturating_add(CHECK_INTERVAL_MS);
        }
        Ok(())
    }

    /// Whether the directory, or its lock file, was moved, removed or replaced: the next commit fails.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        self.disk.check().is_err()
    }

    fn append_group(&mut self, entries: &[Entry], metadata: CommitMetadata) -> Result<(), StorageErrorKind> {
        if self.has_failed {
            return Err(StorageErrorKind::Other("it is closed after a failure".to_owned()));
        }
        let store = self.store();
        self.group.clear();
        frame::begin(&mut self.group);
        codec::put_group(&mut self.group, &metadata, entries)?;
        let chain = frame::end(&mut self.group, Kind::Group, store, self.chain).ok_or(RecordTooLong)?;
        self.continue_segment()?;
        let group_bytes = self.group.len() as u64;
        let has_room = |segment: &OpenSegment| segment.bytes.saturating_sub(segment.at) >= group_bytes;
        if !self.active.as_ref().is_some_and(has_room)
            && let Some(segment) = self.prepared.pop_front_if(|segment| has_room(segment))
        {
            self.activate(segment);
        }
        match self.active.as_mut().filter(|segment| has_room(segment)) {
            Some(segment) => {
                let written = segment.file.write(segment.at, &self.group).and_then(|()| segment.file.sync());
                if let Err(error) = written {
                    let name = log_name(segment.number);
                    self.abandon_segment();
                    return Err(StorageErrorKind::from(error).of_file(&name));
                }
                segment.at = segment.at.saturating_add(group_bytes);
            }
            None => self.append_to_new_segment()?,
        }
        self.group.clear();
        self.group.shrink_to(GROUP_BYTES_RETAINED);
        self.chain = chain;
        self.is_changed = true;
        self.commits = self.commits.saturating_add(1);
        self.log_bytes = self.log_bytes.saturating_add(group_bytes);
        let set_bytes = entries.iter().map(Entry::live_bytes).fold(0, u64::saturating_add);
        self.live_bytes = self.live_bytes.saturating_add(set_bytes);
        self.room.is_exhausted = false;
        if group_bytes >= self.room.refused_bytes {
            self.room.refused_bytes = 0;
        }
        Ok(())
    }

    /// Goes on in the last segment of an earlier process, or, after an unclean end, in a new one.
    fn continue_segment(&mut self) -> Result<(), StorageErrorKind> {
        if let Some((number, bytes, at)) = self.to_continue.take() {
            let file = self.disk.open(&log_name(number))?;
            self.active = Some(OpenSegment { number, file, bytes, at });
        }
        Ok(())
    }

    fn activate(&mut self, segment: OpenSegment) {
        self.used.push((segment.number, segment.bytes));
        self.active = Some(segment);
    }

    /// Creates a segment whose first group is the encoded one: the next segment is not prepared yet, or too short.
    fn append_to_new_segment(&mut self) -> Result<(), StorageErrorKind> {
        let number = self.last_segment.saturating_add(1);
        let name = log_name(number);
        let group_bytes = self.group.len() as u64;
        let last_bytes = self.active.as_ref().map_or(0, |segment| segment.bytes);
        let bytes = self.policy.next_bytes(last_bytes).max(group_bytes);
        let is_new = !self.mark.is_set;
        let disk = Arc::clone(&self.disk);
        let create = |bytes: u64, group: &mut Vec<u8>| {
            let file = disk.create(&name)?;
            group.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
            file.write(0, group)?;
            file.sync()?;
            disk.sync_names()?;
            if is_new {
                disk.sync_own_name()?;
            }
            Ok(OpenSegment { number, file, bytes, at: group_bytes })
        };
        let created = create(bytes, &mut self.group).or_else(|kind: StorageErrorKind| {
            let _ = disk.remove(&name);
            if kind.is_lack_of_room() && bytes > group_bytes {
                self.group.truncate(usize::try_from(group_bytes).unwrap_or(usize::MAX));
                create(group_bytes, &mut self.group).inspect_err(|_| _ = disk.remove(&name))
            } else {
                Err(kind)
            }
        });
        match created {
            Ok(segment) => {
                self.last_segment = number;
                if is_new {
                    self.set_mark(None);
                }
                // Groups must be in the order of the segments: one that was too short comes under a later number.
                self.free.extend(self.prepared.drain(..).map(|segment| (segment.number, segment.bytes)));
                self.activate(segment);
                Ok(())
            }
            Err(kind) => {
                // The file with the group is removed, and no other one was written to.
                if kind.is_lack_of_room() {
                    // A snapshot may have seen what is rolled back.
                    self.cancel_work();
                    self.room.is_lacking = true;
                    self.room.refused_bytes = self.room.refused_bytes.max(group_bytes);
                } else {
                    self.last_segment = number;
                    self.abandon_segment();
                }
                Err(kind.of_file(&name))
            }
        }
    }

    /// Abandons the segment and all work, because it is unknown what was written: see [`FileLedger::begin_rewrite`].
    pub fn abandon_segment(&mut self) {
        self.has_failed = true;
        self.cancel_work();
        self.active = None;
        self.obsolete.extend(self.snapshot_from.take().map(|(number, _)| snapshot_name(number)));
        let prepared = self.prepared.drain(..).map(|segment| log_name(segment.number));
        self.obsolete.extend(prepared);
    }

    /// Sets the ceiling of the next commit or snapshot: at least the greatest version given out to a key without a record.
    pub fn set_ceiling(&mut self, ceiling: Version) {
        self.metadata.ceiling = ceiling;
    }

    /// Returns the length of the groups since the snapshot.
    #[cfg(test)]
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// Sets what the next snapshot has besides its records.
    pub(super) fn set_metadata(&mut self, metadata: CommitMetadata) {
        self.metadata = metadata;
    }

    /// Whether commits are possible.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.has_failed
    }

    /// Returns the random number of the store.
    fn store(&mut self) -> u64 {
        if let Some(store) = self.store {
            return store;
        }
        let store = self.disk.random();
        self.store = Some(store);
        self.chain = Chain::begin(store);
        store
    }

    /// Closes the files, and notes the last group: the next start reads them without a sync and goes on in this segment.
    pub fn close(mut self) {
        if !self.has_failed && self.is_changed {
            self.set_mark(Some(self.chain));
            // A process that ends soon has no other time for it.
            self.obsolete.iter().for_each(|name| _ = self.disk.remove(name));
        }
    }

    /// Notes that there is a store, and the last group at an orderly end. No sync is needed: the mark is true whenever it
    /// gets to the disk, and without it the next start reads everything from there.
    fn set_mark(&mut self, closed: Option<Chain>) {
        if self.disk.write_lock(Mark::encode(closed).as_bytes()).is_ok() {
            self.mark.is_set = true;
        }
    }

    /// Returns what the store's clock shows: see [`CommitMetadata::clock_ms_at`].
    pub fn clock_ms(&mut self, now: Now) -> u64 {
        self.clock(now).clock_ms(now)
    }

    fn clock(&mut self, now: Now) -> ClockReading {
        let (metadata, disk) = (self.metadata, &self.disk);
        *self.clock.get_or_insert_with(|| ClockReading {
            clock_ms: metadata.clock_ms_at(now.wall_ms, disk.moment()),
            monotonic_ms: now.monotonic_ms,
        })
    }

    fn metadata_at(&mut self, ceiling: Version, now: Now) -> CommitMetadata {
        let clock_ms = self.clock_ms(now);
        CommitMetadata { ceiling, wall_ms: now.wall_ms, clock_ms, moment: self.disk.moment() }
    }

    /// Whether the wall clock has been set since the last commit. After a restart of the machine, the next start would take
    /// the difference for time in which no process ran, so it must be committed soon.
    #[must_use]
    pub fn clock_was_set(&self, now: Now) -> bool {
        let Some(clock) = self.clock.filter(|_| self.metadata.wall_ms > 0) else { return false };
        let elapsed_ms = clock.clock_ms(now).saturating_sub(self.metadata.clock_ms);
        let by_wall_ms = now.wall_ms.saturating_sub(self.metadata.wall_ms);
        elapsed_ms.abs_diff(by_wall_ms) > CLOCK_STEP_MS
            || now.wall_ms.saturating_add(CLOCK_STEP_MS) < self.metadata.wall_ms
    }

    fn error(&self, kind: StorageErrorKind) -> StorageError {
        StorageError { path: self.disk.path(), kind }
    }
}

/// Reads all files but the records of the snapshot. Returns whether the last process has ended in order.
///
/// After any other end, the system may have in memory what a failed sync has not written, and what a killed process has not
/// synced: both are written or forgotten first.
pub(super) fn read_from_disk(disk: &dyn Disk) -> Result<(Contents, bool), StorageErrorKind> {
    let contents = reading::read(disk)?;
    if contents.is_clean() {
        if !contents.names.logs.is_empty() {
            // A process that was killed before its first commit may have made files, or renamed some.
            disk.sync_names()?;
        }
        return Ok((contents, true));
    }
    for segment in &contents.segments {
        let name = log_name(segment.number);
        let file = disk.open(&name)?;
        let dropped = file.sync().and_then(|()| match file.drop_cache() {
            // Some systems have no such call, among them sandboxes: see docs/guarantees.md.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            dropped => dropped,
        });
        dropped.map_err(|error| StorageErrorKind::from(error).of_file(&name))?;
    }
    disk.sync_names()?;
    if !contents.mark.is_set {
        // The first commit of all was interrupted.
        disk.sync_own_name()?;
    }
    Ok((reading::read(disk)?, false))
}
