//! The files of one store, open: opening, loading, commits, the end.

mod log;
mod upkeep;

use std::collections::BTreeMap;
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
use super::reading::{self, Contents, Segment};
use super::seeding::Seeding;
use super::snapshot::ClockReading;
use super::work::OpenSegment;
use crate::ledger::{KeyState, Record, RecordTooLong, StorageError, StorageErrorKind};
use crate::protocol::Key;
use crate::store::{Now, StoredValue, Version};
use log::Log;
pub use upkeep::Lack;
use upkeep::Upkeep;

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
    log: Log,
    upkeep: Upkeep,
    /// Groups of this process.
    commits: u64,
    /// When the directory is checked again, in monotonic milliseconds.
    check_due_ms: u64,
    /// Whether anything was written.
    is_changed: bool,
    /// The encoded group, whose memory is used again.
    group: Vec<u8>,
}

impl FileLedger {
    /// Opens the store in a directory; creates the directory, readable by its owner only, if it is missing.
    ///
    /// # Errors
    /// [`StorageError`]. Corrupt files have not been changed.
    pub fn open(directory: &Path, policy: Policy) -> Result<Self, StorageError> {
        let error = |kind| StorageError { path: directory.to_owned(), kind };
        Self::open_on(Arc::new(Directory::lock(directory).map_err(error)?), policy)
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
        let unneeded = |numbers: &[u64]| numbers.iter().copied().filter(|number| *number < first).collect();
        let (snapshots, logs): (Vec<_>, Vec<_>) = (unneeded(&names.snapshots), unneeded(&names.logs));
        let mut obsolete: Vec<_> = logs.into_iter().map(log_name).collect();
        // One of these becomes the reserve, if there is none.
        obsolete.extend(names.new.iter().cloned().chain(snapshots.into_iter().map(snapshot_name)));
        let last_number = names.logs.last().copied().unwrap_or(0);
        let mut log = Log { last_number, bytes: contents.log_bytes, ..Log::default() };
        let open = |segment: &Segment| {
            let (number, bytes, at) = (segment.number, segment.bytes, segment.end);
            let file = disk.open(&log_name(number)).map_err(error)?;
            Ok(OpenSegment { number, file, bytes, at, is_blank: false })
        };
        let last_used = contents.segments.iter().rposition(|segment| segment.end > 0);
        // That of the snapshot stays, also without a group.
        let last_used = last_used.or_else(|| contents.snapshot.is_some().then_some(0));
        for (at, segment) in contents.segments.iter().enumerate() {
            let (is_used, is_last) =
                (last_used.is_some_and(|last| at <= last), last_used.is_some_and(|last| at == last));
            let is_open = is_clean && disk.is_writable();
            // A process that was killed may not have given one its length.
            let is_short = segment.bytes < policy.first_bytes;
            match (is_used, is_open) {
                (true, _) => log.used.push((segment.number, segment.bytes)),
                (false, _) if is_short => obsolete.push(log_name(segment.number)),
                (false, true) => log.prepared.push_back(open(segment)?),
                (false, false) => log.free.push((segment.number, segment.bytes)),
            }
            // After an unclean end, what a failed write has left may be behind the last group: it goes on in another segment.
            if is_last && is_open && segment.end < segment.bytes {
                (log.active, log.base) = (Some(open(segment)?), segment.base);
            }
        }
        let snapshot_bytes = contents.snapshot.map_or(0, |snapshot| snapshot.bytes);
        let live_bytes = contents.set_bytes.saturating_add(snapshot_bytes);
        let upkeep = Upkeep::new(&*disk, contents.snapshot, live_bytes, obsolete);
        Ok(Self {
            disk,
            policy,
            store: contents.store,
            mark: contents.mark,
            chain: contents.chain,
            metadata: contents.metadata,
            clock: None,
            rows: BTreeMap::new(),
            log,
            upkeep,
            commits: 0,
            check_due_ms: 0,
            is_changed: false,
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
            if let Some(snapshot) = &self.upkeep.snapshot {
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
                self.upkeep.live_bytes = self.contents.set_bytes.saturating_add(bytes);
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
    /// It is unknown whether the group is on disk. The ledger must be dropped: what the next start reads is true.
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
        if now.monotonic_ms >= self.check_due_ms {
            self.disk.check()?;
            self.check_due_ms = now.monotonic_ms.saturating_add(CHECK_INTERVAL_MS);
        }
        Ok(())
    }

    /// Checks that the directory, and its lock file, were not moved, removed or replaced.
    ///
    /// # Errors
    /// That of the next commit.
    pub fn check_place(&self) -> Result<(), StorageError> {
        self.disk.check().map_err(|kind| self.error(kind))
    }

    fn append_group(&mut self, entries: &[Entry], metadata: CommitMetadata) -> Result<(), StorageErrorKind> {
        let store = self.store();
        self.group.clear();
        frame::begin(&mut self.group);
        codec::put_group(&mut self.group, &metadata, entries)?;
        let chain = frame::end(&mut self.group, Kind::Group, store, self.chain).ok_or(RecordTooLong)?;
        let group_bytes = self.group.len() as u64;
        let is_ready = self.log.activate_for(group_bytes, self.chain);
        self.upkeep.obsolete.extend(self.log.dropped.drain(..).map(log_name));
        if !is_ready {
            // A command that writes once asks for no admission.
            let segment = self.preparation(group_bytes, true).prepare()?;
            self.log.add(segment);
            self.log.activate_for(group_bytes, self.chain);
        }
        let Some(segment) = &mut self.log.active else {
            return Err(StorageErrorKind::Io(io::ErrorKind::NotFound.into()));
        };
        let is_blank = std::mem::take(&mut segment.is_blank);
        if is_blank {
            self.group.resize(usize::try_from(segment.bytes).unwrap_or(usize::MAX), 0);
        }
        let written = segment.file.write(segment.at, &self.group).and_then(|()| segment.file.sync());
        written.map_err(|error| StorageErrorKind::from(error).of_file(&log_name(segment.number)))?;
        segment.at = segment.at.saturating_add(group_bytes);
        if is_blank {
            self.disk.sync_names()?;
        }
        if !self.mark.is_set {
            self.disk.sync_own_name()?;
            self.set_mark(None);
        }
        self.group.clear();
        self.group.shrink_to(GROUP_BYTES_RETAINED);
        self.chain = chain;
        (self.is_changed, self.upkeep.is_proven) = (true, true);
        self.commits = self.commits.saturating_add(1);
        self.log.bytes = self.log.bytes.saturating_add(group_bytes);
        let set_bytes = entries.iter().map(Entry::live_bytes).fold(0, u64::saturating_add);
        self.upkeep.note_set(set_bytes);
        Ok(())
    }

    /// Sets the ceiling of the next commit or snapshot: at least the greatest version given out to a key without a record.
    pub fn set_ceiling(&mut self, ceiling: Version) {
        self.metadata.ceiling = ceiling;
    }

    /// Returns the length of the groups since the snapshot.
    #[cfg(test)]
    pub fn log_bytes(&self) -> u64 {
        self.log.bytes
    }

    /// Sets what the next snapshot has besides its records.
    pub(super) fn set_metadata(&mut self, metadata: CommitMetadata) {
        self.metadata = metadata;
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
        let blank = self.log.prepared.iter().filter(|segment| segment.is_blank);
        blank.for_each(|segment| _ = self.disk.remove(&log_name(segment.number)));
        if self.is_changed {
            self.set_mark(Some(self.chain));
            // A process that ends soon has no other time for it.
            self.upkeep.obsolete.iter().for_each(|name| _ = self.disk.remove(name));
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
