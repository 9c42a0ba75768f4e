//! Tables and write-ahead log of one store, as one unit: open, load, commit, checkpoint, recover.

use std::io;
use std::path::{Path, PathBuf};

use super::error::{StorageError, StorageErrorKind};
use super::files::{Directory, StorageFiles, TABLES_NAME, WAL_NAME};
use super::panic_guard::catch_panics;
use super::record::{CommitMetadata, Record};
use super::staged_backend::SyncFailure;
use super::tables::{Checkpoint, Tables};
use super::wal::{EncodedChanges, Wal, WalPolicy};
use crate::protocol::Key;
use crate::store::{Change, Now, PersistentEntry, StoredValue, Version};

/// The files of one store, open. No other process can open them meanwhile.
#[derive(Debug)]
pub struct Storage {
    files: Box<dyn StorageFiles>,
    policy: WalPolicy,
    /// `None` after a failed commit: see [`Storage::reopen`].
    open: Option<Open>,
    sync_failure: SyncFailure,
    metadata: CommitMetadata,
    /// Length of the tables' file after the last commit.
    tables_len: u64,
}

#[derive(Debug)]
struct Open {
    tables: Tables,
    wal: Option<Wal>,
    /// The changes that are in the write-ahead log and not in the tables.
    pending: EncodedChanges,
    /// Commits since the start while there is no write-ahead log.
    commits_without_wal: u32,
}

impl Storage {
    /// Opens the store in a directory; creates both, readable by their owner only, if they are missing.
    ///
    /// # Errors
    /// [`StorageError`]. Corrupt files have not been changed.
    pub fn open(directory: &Path) -> Result<Self, StorageError> {
        let error = |kind| StorageError { path: directory.join(TABLES_NAME), kind };
        Self::open_files(Box::new(Directory::lock(directory).map_err(error)?), WalPolicy::default())
    }

    /// Opens or creates a store in any files. Every process that opens them must have the same policy.
    ///
    /// # Errors
    /// [`StorageError`]. Corrupt files have not been changed.
    pub fn open_files(mut files: Box<dyn StorageFiles>, policy: WalPolicy) -> Result<Self, StorageError> {
        let sync_failure = SyncFailure::default();
        let opened = catch_panics(|| {
            if let Some(opened) = open_existing(&mut *files, policy, &sync_failure, u64::MAX)? {
                return Ok(opened);
            }
            let metadata = CommitMetadata::default();
            Ok((Open::new(create_tables(&mut *files, &sync_failure, || None, metadata)?), metadata))
        });
        match opened {
            Ok((open, metadata)) => {
                let tables_len = open.tables.len();
                Ok(Self { files, policy, open: Some(open), sync_failure, metadata, tables_len })
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

    /// Calls `each` with every key. A deadline that has passed since its record was written is at `now` or before. One
    /// that has not passed is at most its original time to live away, even if the wall clock has gone back since.
    ///
    /// # Errors
    /// The files cannot be read, or hold a record that no store has written.
    pub fn load(
        &self,
        now: Now,
        mut each: impl FnMut(Key, Version, StoredValue),
    ) -> Result<(), StorageError> {
        let mut hand_over = |record: Record| {
            let stored = record.stored_value(now);
            each(record.key, record.version, stored);
        };
        let read = || {
            let Open { tables, pending, .. } = self.open.as_ref().ok_or_else(closed)?;
            tables.read(|record| {
                if !pending.contains_key(&record.key) {
                    hand_over(record);
                }
            })?;
            pending.values().flatten().filter_map(|record| Record::decode(record)).for_each(hand_over);
            Ok(())
        };
        catch_panics(read).map_err(|kind| self.error(kind))
    }

    /// Returns the record of a key, or `None` if it is absent.
    pub(super) fn record(&self, key: &Key) -> Result<Option<Record>, StorageError> {
        let read = || {
            let Open { tables, pending, .. } = self.open.as_ref().ok_or_else(closed)?;
            match pending.get(key) {
                Some(record) => Ok(record.as_ref().and_then(|record| Record::decode(record))),
                None => tables.record(key),
            }
        };
        catch_panics(read).map_err(|kind| self.error(kind))
    }

    /// Commits changes in their order, all or none, and waits until they are on disk.
    ///
    /// `greatest_version` is the greatest version that the store has given out, also to keys that are not persistent.
    ///
    /// # Errors
    /// It is unknown which of the changes are on disk. Every commit fails until [`Storage::reopen`] or
    /// [`Storage::rewrite`] succeeds.
    pub fn commit(
        &mut self,
        changes: &[Change],
        greatest_version: Version,
        now: Now,
    ) -> Result<(), StorageError> {
        let versions = changes.iter().map(|change| change.version);
        let greatest_version =
            versions.fold(self.metadata.greatest_version.max(greatest_version), Version::max);
        let metadata = CommitMetadata { greatest_version, wall_ms: now.wall_ms };
        let encode = |Change { key, version, content, .. }: &Change| {
            let record = content.as_ref().map(|stored| Record::new(key, *version, stored, now).encode());
            Ok((key.clone(), record.transpose()?))
        };
        let committed = catch_panics(|| {
            let changes = changes.iter().map(encode).collect::<Result<_, StorageErrorKind>>()?;
            let open = self.open.as_mut().ok_or_else(closed)?;
            open.commit(changes, metadata, &mut *self.files, self.policy, &self.sync_failure)?;
            Ok(open.tables.len())
        });
        match committed {
            Ok(tables_len) => {
                (self.metadata, self.tables_len) = (metadata, tables_len);
                Ok(())
            }
            // The state of the open files is unknown: a further write could hide what the failed one has left.
            Err(kind) => {
                self.open = None;
                Err(self.error(kind))
            }
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

    /// Opens the files again after a failed commit. They may or may not hold its changes.
    ///
    /// # Errors
    /// [`StorageError`]; after corruption, [`Storage::must_rewrite`] holds.
    pub fn reopen(&mut self) -> Result<(), StorageError> {
        let mut open = |len_max| {
            let opened =
                catch_panics(|| open_existing(&mut *self.files, self.policy, &self.sync_failure, len_max))?;
            opened.ok_or_else(|| StorageErrorKind::Corrupt("it is missing".to_owned()))
        };
        // The failed commit may have appended to the tables, on a disk that has no room left. The appended part is cut
        // off. If the tables are corrupt without it, the commit did reach them, and they are opened as they are.
        let opened =
            open(self.tables_len).or_else(|kind| if kind.is_corrupt() { open(u64::MAX) } else { Err(kind) });
        match opened {
            Ok((open, metadata)) => {
                self.metadata.greatest_version =
                    self.metadata.greatest_version.max(metadata.greatest_version);
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

    /// Replaces all files by new tables with the entries of `portions`, which ends with `None`.
    ///
    /// # Errors
    /// The old files are still in place, unless the failure came while they were replaced.
    pub fn rewrite(
        &mut self,
        mut portions: impl FnMut() -> Option<Vec<PersistentEntry>>,
        now: Now,
    ) -> Result<(), StorageError> {
        let records = || {
            let record = |(key, version, stored)| Record::new(&key, version, &stored, now);
            Some(portions()?.into_iter().map(record).collect())
        };
        let metadata = CommitMetadata { wall_ms: now.wall_ms, ..self.metadata };
        self.open = None;
        // A failed sync of the old files says nothing about the new one.
        let sync_failure = SyncFailure::default();
        match catch_panics(|| create_tables(&mut *self.files, &sync_failure, records, metadata)) {
            Ok(tables) => {
                self.files.remove_wal();
                (self.tables_len, self.metadata, self.sync_failure) = (tables.len(), metadata, sync_failure);
                self.open = Some(Open::new(tables));
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
            open.pending.extend(changes);
            open.tables.commit(&open.pending, Checkpoint { metadata: self.metadata, wal_generation: None })
        });
        closed.map_err(|kind| self.error(kind))?;
        self.files.remove_wal();
        Ok(())
    }

    /// Returns the number of groups in the write-ahead log, or `None` if there is no log.
    #[cfg(test)]
    pub fn wal_groups(&self) -> Option<u64> {
        self.open.as_ref()?.wal.as_ref().map(Wal::groups)
    }

    fn error(&self, kind: StorageErrorKind) -> StorageError {
        StorageError { path: self.files.path(), kind }
    }
}

impl Open {
    fn new(tables: Tables) -> Self {
        Self { tables, wal: None, pending: EncodedChanges::new(), commits_without_wal: 0 }
    }

    /// Appends a group to the write-ahead log; if there is none or it is full, writes a checkpoint instead.
    fn commit(
        &mut self,
        changes: EncodedChanges,
        metadata: CommitMetadata,
        files: &mut dyn StorageFiles,
        policy: WalPolicy,
        sync_failure: &SyncFailure,
    ) -> Result<(), StorageErrorKind> {
        if let Some(wal) = &mut self.wal
            && wal.append(&changes, metadata)?
        {
            self.pending.extend(changes);
            return Ok(());
        }
        self.pending.extend(changes);
        self.commits_without_wal = self.commits_without_wal.saturating_add(1);
        if self.wal.is_none() && self.commits_without_wal >= policy.commits_before {
            self.commits_without_wal = 0;
            self.wal = create_wal(files, policy, sync_failure);
        }
        // One transaction puts the changes into the tables and names the generation of the log that follows. A crash
        // before its end leaves the old generation with its groups, and a crash after it makes them obsolete at once:
        // there is no moment at which a group could be lost or applied to newer tables.
        let wal_generation = self.wal.is_some().then(|| files.draw_wal_generation());
        self.tables.commit(&self.pending, Checkpoint { metadata, wal_generation })?;
        self.pending.clear();
        if let (Some(wal), Some(generation)) = (&mut self.wal, wal_generation) {
            wal.restart(generation);
        }
        Ok(())
    }
}

/// Creates a write-ahead log if that is possible. It only saves time: without room for it, every commit goes to the
/// tables.
fn create_wal(files: &mut dyn StorageFiles, policy: WalPolicy, sync_failure: &SyncFailure) -> Option<Wal> {
    let created = files.create_wal().and_then(|inner| Ok(Wal::create(inner, policy, sync_failure)?));
    if created.is_err() {
        files.remove_wal();
    }
    created.ok()
}

/// Opens the tables, without the bytes beyond `len_max`, and the write-ahead log that they name. Returns `None` if
/// there is no store. Nothing is written before all files have proved to be intact.
fn open_existing(
    files: &mut dyn StorageFiles,
    policy: WalPolicy,
    sync_failure: &SyncFailure,
    len_max: u64,
) -> Result<Option<(Open, CommitMetadata)>, StorageErrorKind> {
    let Some(inner) = files.open_tables()? else {
        // Tables are created before a log and never removed, so a log alone means that the tables were lost.
        if files.open_wal().map_err(name_wal)?.is_some() {
            return Err(wal_without_tables());
        }
        return Ok(None);
    };
    let (tables, Checkpoint { mut metadata, wal_generation }) = Tables::open(inner, sync_failure, len_max)?;
    let mut open = Open::new(tables);
    if let Some(generation) = wal_generation {
        let inner = files.open_wal().map_err(name_wal)?;
        let inner = inner.ok_or_else(|| StorageErrorKind::CorruptWal(format!("{WAL_NAME} is missing")))?;
        let (wal, recovered) = Wal::open(inner, policy, sync_failure, generation).map_err(name_wal)?;
        metadata = recovered.metadata.unwrap_or(metadata);
        open.wal = Some(wal);
        open.pending = recovered.changes;
    }
    open.tables.release()?;
    if wal_generation.is_none() {
        // A log that the tables do not name yet, or no longer, takes room and is never read.
        files.remove_wal();
    }
    Ok(Some((open, metadata)))
}

/// Creates tables that are in place with all their records, or not at all.
pub(super) fn create_tables(
    files: &mut dyn StorageFiles,
    sync_failure: &SyncFailure,
    portions: impl FnMut() -> Option<Vec<Record>>,
    metadata: CommitMetadata,
) -> Result<Tables, StorageErrorKind> {
    let created =
        files.create_new_tables().and_then(|inner| Tables::create(inner, sync_failure, portions, metadata));
    let installed = created.and_then(|tables| {
        files.install_new_tables()?;
        Ok(tables)
    });
    if installed.is_err() {
        files.discard_new_tables();
    }
    installed
}

pub(super) fn wal_without_tables() -> StorageErrorKind {
    StorageErrorKind::Corrupt(format!("it is missing, and {WAL_NAME} is not"))
}

/// Adds the name of the write-ahead log: [`StorageError`] names the tables.
fn name_wal(kind: StorageErrorKind) -> StorageErrorKind {
    match kind {
        StorageErrorKind::Io(error) => {
            StorageErrorKind::Io(io::Error::new(error.kind(), format!("{WAL_NAME}: {error}")))
        }
        other => other,
    }
}

fn closed() -> StorageErrorKind {
    StorageErrorKind::Other("it is closed after a failure".to_owned())
}

#[cfg(test)]
mod tests;
