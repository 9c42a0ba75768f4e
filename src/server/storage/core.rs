//! Tables and write-ahead log of one store, as one unit: open, load, commit, checkpoint, recover.

mod open;

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use self::open::Open;
use super::error::{StorageError, StorageErrorKind};
use super::files::{Directory, FileSystem, StorageFiles, TABLES_NAME, name_wal};
use super::panic_guard::catch_panics;
use super::record::{CommitMetadata, EncodedChanges, EncodedGroup, EncodedRows, OLD_FORMAT_VERSION, Record};
use super::staged_backend::SyncFailure;
use super::tables::{Checkpoint, NO_GENERATION, Tables};
use super::wal::{WAL_BYTES, Wal, WalPolicy};
use crate::protocol::Key;
use crate::store::{Change, Now, PersistentEntry, StoredValue, Version};

/// Length of the reserve, in lengths of the write-ahead log: a checkpoint in portions takes less.
const RESERVE_LOGS: u64 = 4;
/// Length of the reserve with the default length of the log.
pub const RESERVE_BYTES: u64 = WAL_BYTES as u64 * RESERVE_LOGS;
/// After which part of the file has been deleted a compaction is worth its time.
const COMPACTION_SHARE: u64 = 64;

/// A difference between the clocks that is no rounding.
const CLOCK_STEP_MS: u64 = 1_000;

/// The files of one store, open. No other process can open them meanwhile.
#[derive(Debug)]
pub struct Storage {
    files: StorageFiles,
    policy: WalPolicy,
    /// `None` after a failed commit: see [`Storage::reopen`].
    open: Option<Open>,
    sync_failure: SyncFailure,
    metadata: CommitMetadata,
    /// A reading of the store's clock, and of the monotonic clock at the same time.
    clock: OnceCell<(u64, u64)>,
    /// Length of the tables' file after the last commit.
    tables_len: u64,
    reserve: Reserve,
    /// Bytes of the records that were deleted since the last compaction.
    deleted_bytes: u64,
}

/// State of the file that keeps room for deletions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserve {
    /// The store is too small to be what fills a disk.
    Unneeded,
    InPlace,
    /// There is no room for it, or not for all of it.
    Missing,
}

impl Storage {
    /// Opens the store in a directory; creates both, readable by their owner only, if they are missing.
    ///
    /// # Errors
    /// [`StorageError`]. Corrupt files have not been changed.
    pub fn open(directory: &Path) -> Result<Self, StorageError> {
        let error = |kind| StorageError { path: directory.join(TABLES_NAME), kind };
        Self::open_in(Box::new(Directory::lock(directory).map_err(error)?), WalPolicy::default())
    }

    /// Opens or creates a store in any file system. Every process that opens them must have the same policy.
    ///
    /// # Errors
    /// [`StorageError`]. Corrupt files have not been changed.
    pub fn open_in(file_system: Box<dyn FileSystem>, policy: WalPolicy) -> Result<Self, StorageError> {
        let mut files = StorageFiles::new(file_system);
        let sync_failure = SyncFailure::default();
        let opened = catch_panics(|| {
            let existing = match open_existing(&mut files, policy, &sync_failure, u64::MAX) {
                Err(kind) if kind.is_lack_of_room() => {
                    files.release_reserve();
                    open_existing(&mut files, policy, &sync_failure, u64::MAX)
                }
                other => other,
            };
            if let Some(opened) = existing? {
                return Ok(opened);
            }
            let obsolete_generation = Some(NO_GENERATION);
            let checkpoint = Checkpoint { obsolete_generation, ..Checkpoint::default() };
            let tables = create_tables(&mut files, &sync_failure, || None, || None, checkpoint)?;
            Ok((Open::new(tables, obsolete_generation), checkpoint.metadata))
        });
        match opened {
            Ok((open, metadata)) => {
                files.mark();
                let mut storage = Self {
                    files,
                    policy,
                    tables_len: open.tables.len(),
                    open: Some(open),
                    sync_failure,
                    metadata,
                    clock: OnceCell::new(),
                    reserve: Reserve::Unneeded,
                    deleted_bytes: 0,
                };
                storage.fill_reserve();
                Ok(storage)
            }
            Err(kind) => Err(StorageError { path: files.path(), kind }),
        }
    }

    /// Returns the metadata of the last commit.
    #[must_use]
    pub fn metadata(&self) -> CommitMetadata {
        self.metadata
    }

    /// Returns the path of the tables.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.files.path()
    }

    /// Calls `each` with every key, and returns the keys with a tombstone and their last versions. A deadline that has passed since its record was written is at `now` or before. One
    /// that has not passed is at most its original time to live away, even if the wall clock has gone back since.
    ///
    /// # Errors
    /// The files cannot be read, or hold a record that no store has written.
    pub fn load(
        &self,
        now: Now,
        mut each: impl FnMut(Key, Version, StoredValue),
    ) -> Result<Vec<(Key, Version)>, StorageError> {
        let (clock_ms, mut tombstones) = (self.clock_ms(now), Vec::new());
        self.each_record(|record| {
            if record.is_tombstone() {
                tombstones.push((record.key, record.version));
            } else {
                let stored = record.stored_value(now, clock_ms);
                each(record.key, record.version, stored);
            }
        })?;
        Ok(tombstones)
    }

    /// Calls `each` with every record, tombstones included.
    pub(super) fn each_record(&self, mut each: impl FnMut(Record)) -> Result<(), StorageError> {
        let read = || {
            let Open { tables, pending, .. } = self.open.as_ref().ok_or_else(closed)?;
            tables.read(|record| {
                if !pending.changes.contains_key(&record.key) {
                    each(record);
                }
            })?;
            let changes = pending.changes.values().flatten();
            changes.filter_map(|record| Record::decode(record)).for_each(each);
            Ok(())
        };
        catch_panics(read).map_err(|kind| self.error(kind))
    }

    /// Returns the record of a key, or `None` if it is absent.
    pub(super) fn record(&self, key: &Key) -> Result<Option<Record>, StorageError> {
        let read = || {
            let Open { tables, pending, .. } = self.open.as_ref().ok_or_else(closed)?;
            let record = match pending.changes.get(key) {
                Some(record) => record.as_ref().and_then(|record| Record::decode(record)),
                None => tables.record(key)?,
            };
            Ok(record.filter(|record| !record.is_tombstone()))
        };
        catch_panics(read).map_err(|kind| self.error(kind))
    }

    /// Whether rows have been committed, even if none is left: the store takes part in an exchange. False while the files
    /// are closed after a failure.
    #[must_use]
    pub fn has_rows(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.tables.has_rows())
    }

    /// Returns the row at an address.
    ///
    /// # Errors
    /// As for [`Storage::load_rows`].
    pub fn row(&self, address: &Bytes) -> Result<Option<Bytes>, StorageError> {
        let read = || {
            let Open { tables, pending, .. } = self.open.as_ref().ok_or_else(closed)?;
            pending.rows.get(address).map_or_else(|| tables.row(address), |row| Ok(row.clone()))
        };
        catch_panics(read).map_err(|kind| self.error(kind))
    }

    /// Calls `each` with the address and the bytes of every row, in the order of the addresses.
    ///
    /// # Errors
    /// The files cannot be read, or hold a row that no store has written.
    pub fn load_rows(&self, mut each: impl FnMut(Bytes, Bytes)) -> Result<(), StorageError> {
        let read = || {
            let Open { tables, pending, .. } = self.open.as_ref().ok_or_else(closed)?;
            let mut pending = pending.rows.iter().peekable();
            let mut take = |(address, row): (&Bytes, &Option<Bytes>)| {
                row.iter().for_each(|row| each(address.clone(), row.clone()));
            };
            tables.read_rows(|address, row| {
                while let Some(changed) = pending.next_if(|(changed, _)| changed.as_ref() < address) {
                    take(changed);
                }
                match pending.next_if(|(changed, _)| changed.as_ref() == address) {
                    Some(changed) => take(changed),
                    None => take((&Bytes::copy_from_slice(address), &Some(Bytes::copy_from_slice(row)))),
                }
            })?;
            pending.for_each(take);
            Ok(())
        };
        catch_panics(read).map_err(|kind| self.error(kind))
    }

    /// Commits changes in their order and rows, all or none, and waits until they are on disk.
    ///
    /// After a crash, keys without a record continue above `ceiling`, or above the one on disk if that is greater. A key
    /// that holds nothing on disk after its change, and whose version is greater, gets a tombstone.
    ///
    /// # Errors
    /// It is unknown which of the changes are on disk. Every commit fails until [`Storage::reopen`] or
    /// [`Storage::rewrite`] succeeds.
    pub fn commit(
        &mut self,
        changes: &[Change],
        rows: EncodedRows,
        ceiling: Version,
        now: Now,
    ) -> Result<(), StorageError> {
        let ceiling = self.metadata.ceiling.max(ceiling);
        let clock_ms = self.clock_ms(now);
        let metadata = CommitMetadata { ceiling, wall_ms: now.wall_ms, clock_ms };
        let encode = |change: &Change| {
            let Change { key, version, content, .. } = change;
            let record = match content {
                _ if needs_tombstone(change, ceiling) => Some(Record::tombstone(key, *version)),
                Some(stored) if change.persist => Some(Record::new(key, *version, stored, now, clock_ms)),
                _ => None,
            };
            Ok((key.clone(), record.map(|record| record.encode()).transpose()?))
        };
        let committed = catch_panics(|| {
            let changes = changes.iter().map(encode).collect::<Result<_, StorageErrorKind>>()?;
            let group = EncodedGroup { changes, rows };
            let open = self.open.as_mut().ok_or_else(closed)?;
            let is_short_of_room = self.reserve == Reserve::Missing;
            self.deleted_bytes = self.deleted_bytes.saturating_add(open.commit(
                group,
                metadata,
                &mut self.files,
                self.policy,
                &self.sync_failure,
                is_short_of_room,
            )?);
            let least = reserve_bytes(self.policy).max(open.tables.len().div_euclid(COMPACTION_SHARE));
            if is_short_of_room && self.deleted_bytes >= least {
                self.deleted_bytes = 0;
                self.files.release_reserve();
                open.tables.compact()?;
            }
            Ok(open.tables.len())
        });
        match committed {
            Ok(tables_len) => {
                (self.metadata, self.tables_len) = (metadata, tables_len);
                self.fill_reserve();
                Ok(())
            }
            // The state of the open files is unknown: a further write could hide what the failed one has left.
            Err(kind) => {
                self.open = None;
                Err(self.error(kind))
            }
        }
    }

    /// Sets the ceiling of the next commit or rewrite: at least the greatest version given out to a key without a record.
    pub fn set_ceiling(&mut self, ceiling: Version) {
        self.metadata.ceiling = ceiling;
    }

    /// Whether only deletions may be committed, because there may be no room for a checkpoint of anything else.
    #[must_use]
    pub fn is_short_of_room(&self) -> bool {
        self.reserve == Reserve::Missing
    }

    /// Gives the reserve back to the disk, after a commit has failed for lack of room. It comes back with a commit after
    /// which there is room for it.
    pub fn release_reserve(&mut self) {
        self.files.release_reserve();
        self.reserve = Reserve::Missing;
    }

    fn fill_reserve(&mut self) {
        let bytes = reserve_bytes(self.policy);
        let is_due = match self.reserve {
            Reserve::Unneeded => self.tables_len >= bytes,
            Reserve::InPlace => false,
            Reserve::Missing => true,
        };
        if is_due {
            let filled = self.files.fill_reserve(bytes);
            self.reserve = if filled.is_ok() { Reserve::InPlace } else { Reserve::Missing };
        }
    }

    /// Whether commits are possible.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the files can no longer be trusted and only [`Storage::rewrite`] helps: a sync failed, or they turned
    /// out to be corrupt.
    #[must_use]
    pub fn must_rewrite(&self) -> bool {
        self.sync_failure.has_occurred()
    }

    /// Gives the files up, because a commit has panicked: only [`Storage::rewrite`] helps.
    pub fn abandon(&mut self) {
        self.open = None;
        self.sync_failure.note();
    }

    /// Opens the files again after a failed commit. They may or may not hold its changes.
    ///
    /// # Errors
    /// [`StorageError`]; after corruption, [`Storage::must_rewrite`] holds.
    pub fn reopen(&mut self) -> Result<(), StorageError> {
        let mut open = |len_max| {
            let opened =
                catch_panics(|| open_existing(&mut self.files, self.policy, &self.sync_failure, len_max))?;
            opened.ok_or_else(|| StorageErrorKind::Corrupt("it is missing".to_owned()))
        };
        // The failed commit may have appended to the tables, on a disk that has no room left. The appended part is cut
        // off. If the tables are corrupt without it, the commit did reach them, and they are opened as they are.
        let opened =
            open(self.tables_len).or_else(|kind| if kind.is_corrupt() { open(u64::MAX) } else { Err(kind) });
        match opened {
            Ok((open, metadata)) => {
                self.metadata.ceiling = self.metadata.ceiling.max(metadata.ceiling);
                self.open = Some(open);
                Ok(())
            }
            Err(kind) => {
                if kind.is_corrupt() {
                    self.sync_failure.note();
                }
                Err(self.error(kind))
            }
        }
    }

    /// Replaces all files by new tables with the entries of `portions` and with `rows`, each of which ends with `None`.
    /// They have no tombstones: the ceiling must be at least every version given out.
    ///
    /// # Errors
    /// The old files are still in place, unless the failure came while they were replaced.
    pub fn rewrite(
        &mut self,
        mut portions: impl FnMut() -> Option<Vec<PersistentEntry>>,
        rows: impl FnMut() -> Option<Vec<(Bytes, Bytes)>>,
        now: Now,
    ) -> Result<(), StorageError> {
        let clock_ms = self.clock_ms(now);
        let records = || {
            let record = |(key, version, stored)| Record::new(&key, version, &stored, now, clock_ms);
            Some(portions()?.into_iter().map(record).collect())
        };
        let metadata = CommitMetadata { wall_ms: now.wall_ms, clock_ms, ..self.metadata };
        // After a failed sync it is unknown with which generation the log begins, and none is needed any more.
        let checkpoint = Checkpoint { metadata, wal_generation: None, obsolete_generation: None };
        self.open = None;
        // A failed sync of the old files says nothing about the new one.
        let sync_failure = SyncFailure::default();
        match catch_panics(|| create_tables(&mut self.files, &sync_failure, records, rows, checkpoint)) {
            Ok(tables) => {
                self.files.remove_wal();
                (self.tables_len, self.metadata, self.sync_failure) = (tables.len(), metadata, sync_failure);
                self.open = Some(Open::new(tables, checkpoint.obsolete_generation));
                Ok(())
            }
            Err(kind) => Err(self.error(kind)),
        }
    }

    /// Closes the files after a last checkpoint, which makes the write-ahead log superfluous.
    ///
    /// # Errors
    /// The checkpoint failed. No change is lost: the write-ahead log still has them.
    pub fn close(self) -> Result<(), StorageError> {
        self.close_with(EncodedChanges::new())
    }

    /// Closes the files after a last checkpoint that has `changes` too.
    pub(super) fn close_with(mut self, changes: EncodedChanges) -> Result<(), StorageError> {
        let Some(mut open) = self.open.take().filter(|open| open.wal.is_some() || !changes.is_empty()) else {
            return Ok(());
        };
        let closed = catch_panics(|| {
            open.pending.changes.extend(changes);
            open.tables.commit(&open.pending, open.last_checkpoint(self.metadata))
        });
        closed.map_err(|kind| self.error(kind))?;
        self.files.remove_wal();
        Ok(())
    }

    /// Closes the files after a last checkpoint that removes all rows: the store takes part in no exchange any more.
    pub(super) fn close_without_rows(mut self) -> Result<(), StorageError> {
        let closed = catch_panics(|| {
            let open = self.open.as_mut().ok_or_else(closed)?;
            let checkpoint = open.last_checkpoint(self.metadata);
            open.tables.commit_without_rows(&open.pending.changes, checkpoint)
        });
        closed.map_err(|kind| self.error(kind))?;
        self.files.remove_wal();
        Ok(())
    }

    /// Returns a function that returns whether a sync has failed, also after [`Storage::close`].
    #[cfg(test)]
    pub fn sync_watch(&self) -> impl Fn() -> bool + use<> {
        let sync_failure = self.sync_failure.clone();
        move || sync_failure.has_occurred()
    }

    /// Returns the number of groups in the write-ahead log, or `None` if there is no log.
    #[cfg(test)]
    pub fn wal_groups(&self) -> Option<u64> {
        self.open.as_ref()?.wal.as_ref().map(Wal::groups)
    }

    /// Returns what the store's clock shows: see [`CommitMetadata::clock_ms_at`].
    fn clock_ms(&self, now: Now) -> u64 {
        let begin = || (self.metadata.clock_ms_at(now.wall_ms), now.monotonic_ms);
        let (clock_ms, monotonic_ms) = *self.clock.get_or_init(begin);
        clock_ms.saturating_add(now.monotonic_ms.saturating_sub(monotonic_ms))
    }

    /// Whether the wall clock has been set since the last commit. The next start would take the difference for time in
    /// which no process ran, so it must be committed soon.
    pub fn clock_was_set(&self, now: Now) -> bool {
        let expected_ms = self.metadata.clock_ms_at(now.wall_ms);
        let is_set = self.clock_ms(now).abs_diff(expected_ms) > CLOCK_STEP_MS;
        // A wall clock that is behind the last commit does not move the store's clock.
        is_set || now.wall_ms.saturating_add(CLOCK_STEP_MS) < self.metadata.wall_ms
    }

    fn error(&self, kind: StorageErrorKind) -> StorageError {
        StorageError { path: self.files.path(), kind }
    }
}

/// Whether a change leaves nothing of its key on disk but a version that is ahead of the ceiling.
#[must_use]
pub fn needs_tombstone(change: &Change, ceiling: Version) -> bool {
    !(change.persist && change.content.is_some()) && change.version > ceiling
}

fn reserve_bytes(policy: WalPolicy) -> u64 {
    (policy.bytes as u64).saturating_mul(RESERVE_LOGS)
}

/// Opens the tables, without the bytes beyond `len_max`, and the write-ahead log that they name. Returns `None` if
/// there is no store. Nothing is written before all files have proved to be intact.
fn open_existing(
    files: &mut StorageFiles,
    policy: WalPolicy,
    sync_failure: &SyncFailure,
    len_max: u64,
) -> Result<Option<(Open, CommitMetadata)>, StorageErrorKind> {
    let Some(inner) = files.open_tables()? else { return Ok(None) };
    let (tables, checkpoint, format) = Tables::open(inner, sync_failure, len_max)?;
    let mut open = Open::new(tables, checkpoint.obsolete_generation);
    let (wal, recovered) =
        Wal::open(files.open_wal()?, policy, sync_failure, &checkpoint, format).map_err(name_wal)?;
    let metadata = recovered.metadata.unwrap_or(checkpoint.metadata);
    (open.wal, open.pending) = (wal, recovered.changes);
    open.tables.release()?;
    // The process that created the files may have been killed before their names were durable.
    files.sync_names()?;
    if format == OLD_FORMAT_VERSION {
        // A log of the previous format cannot be continued.
        open.tables.commit(&open.pending, Checkpoint { metadata, ..Checkpoint::default() })?;
        open = Open::new(open.tables, None);
    }
    if open.wal.is_none() {
        // A log that the tables do not name yet, or no longer, takes room and is never read.
        files.remove_wal();
    }
    Ok(Some((open, metadata)))
}

/// Creates tables that are in place with all their records and rows, or not at all.
pub(super) fn create_tables(
    files: &mut StorageFiles,
    sync_failure: &SyncFailure,
    portions: impl FnMut() -> Option<Vec<Record>>,
    rows: impl FnMut() -> Option<Vec<(Bytes, Bytes)>>,
    checkpoint: Checkpoint,
) -> Result<Tables, StorageErrorKind> {
    let created = files
        .create_new_tables()
        .and_then(|inner| Tables::create(inner, sync_failure, portions, rows, checkpoint));
    let installed = created.and_then(|tables| {
        files.install_new_tables()?;
        Ok(tables)
    });
    if installed.is_err() {
        files.discard_new_tables();
    }
    installed
}

fn closed() -> StorageErrorKind {
    StorageErrorKind::Other("it is closed after a failure".to_owned())
}

#[cfg(test)]
mod rows_tests;
#[cfg(test)]
mod tests;
