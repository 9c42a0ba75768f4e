//! Tables of all keys, and of the rows of an exchange, in a file of the storage crate: opened only after a full check, written in transactions.

use bytes::{Buf, Bytes};
use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition, WriteTransaction};

use super::error::StorageErrorKind;
use super::record::{
    CommitMetadata, EncodedChanges, EncodedGroup, FORMAT_VERSION, OLD_FORMAT_VERSION, ROWS_FORMAT_VERSION,
    Record,
};
use super::rows;
use super::staged_backend::{StagedBackend, SyncFailure};
use crate::protocol::Key;
use crate::store::Version;

/// Small, because every read is served from memory: the file is read once, when the store starts.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

pub const FORMATS: TableDefinition<(), u64> = TableDefinition::new("format");
/// Maps a key to its encoded [`Record`], which repeats the key so that recovery needs no table.
pub const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");
/// [`Checkpoint`]: milliseconds and counter of the greatest version, the wall clock, the store's clock, the generation of
/// the log, and the generation that is obsolete.
const CHECKPOINTS: TableDefinition<(), CheckpointRow> = TableDefinition::new("checkpoint");
type CheckpointRow = (u64, u32, u64, u64, Option<u64>, Option<u64>);
/// [`Checkpoint`] of [`OLD_FORMAT_VERSION`], without the store's clock and the obsolete generation.
const OLD_CHECKPOINTS: TableDefinition<(), (u64, u32, u64, Option<u64>)> = TableDefinition::new("mark");

/// The tables, open.
#[derive(Debug)]
pub struct Tables {
    database: Database,
    backend: StagedBackend,
    has_rows: bool,
    /// The length of the file after the last commit.
    len: u64,
}

/// How far the tables go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Metadata of the last commit that is in the tables.
    pub metadata: CommitMetadata,
    /// Generation of the write-ahead log whose groups follow the tables; `None` if no log follows them.
    pub wal_generation: Option<u64>,
    /// Generation of the groups with which a log may begin whose content is in the tables. `None`: of any.
    pub obsolete_generation: Option<u64>,
}

/// Generation of no log.
pub const NO_GENERATION: u64 = 0;

impl Tables {
    /// Opens existing tables, ignoring all bytes beyond `len_max`, and returns their checkpoint and format. Nothing is
    /// written before [`Tables::release`].
    ///
    /// # Errors
    /// The file cannot be read, is corrupt, or has another format.
    pub fn open(
        inner: Box<dyn StorageBackend>,
        sync_failure: &SyncFailure,
        len_max: u64,
    ) -> Result<(Self, Checkpoint, u64), StorageErrorKind> {
        let backend = StagedBackend::staging(inner, sync_failure)?;
        if backend.len()? > len_max {
            backend.set_len(len_max)?;
        }
        let database = check(&backend)?;
        let (checkpoint, format) = read_checkpoint(&database)?;
        let has_rows = format == ROWS_FORMAT_VERSION;
        let len = len_of(&backend);
        Ok((Self { database, backend, has_rows, len }, checkpoint, format))
    }

    /// Writes the repairs that the storage crate made while it opened the file.
    pub fn release(&self) -> Result<(), StorageErrorKind> {
        Ok(self.backend.release()?)
    }

    /// Creates tables with portions of records and of rows in one transaction: all of them are there afterwards, or none.
    pub fn create(
        inner: Box<dyn StorageBackend>,
        sync_failure: &SyncFailure,
        mut portions: impl FnMut() -> Option<Vec<Record>>,
        rows: impl FnMut() -> Option<Vec<(Bytes, Bytes)>>,
        checkpoint: Checkpoint,
    ) -> Result<Self, StorageErrorKind> {
        let backend = StagedBackend::direct(inner, sync_failure);
        let database =
            Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(backend.clone())?;
        let write = begin_write(&database)?;
        {
            let mut records = write.open_table(RECORDS)?;
            while let Some(portion) = portions() {
                for record in portion {
                    records.insert(record.key.as_bytes(), record.encode()?.as_slice())?;
                }
            }
        }
        let has_rows = rows::create(&write, rows)?;
        write_checkpoint(&write, checkpoint, has_rows)?;
        write.commit()?;
        let len = len_of(&backend);
        Ok(Self { database, backend, has_rows, len })
    }

    /// Whether rows have been committed, even if none is left: the format.
    pub fn has_rows(&self) -> bool {
        self.has_rows
    }

    /// Commits changes, all or none, and waits until they are on disk. Returns the bytes of the deleted records and rows.
    ///
    /// # Errors
    /// The tables must not be used afterwards: the storage crate rejects every further transaction.
    pub fn commit(&mut self, group: &EncodedGroup, checkpoint: Checkpoint) -> Result<u64, StorageErrorKind> {
        let write = begin_write(&self.database)?;
        let mut deleted_bytes = write_records(&write, &group.changes)?;
        if !group.rows.is_empty() {
            deleted_bytes = deleted_bytes.saturating_add(rows::write(&write, &group.rows)?);
        }
        let has_rows = self.has_rows || !group.rows.is_empty();
        write_checkpoint(&write, checkpoint, has_rows)?;
        write.commit()?;
        (self.has_rows, self.len) = (has_rows, len_of(&self.backend));
        Ok(deleted_bytes)
    }

    /// Commits changes and removes all rows, in one transaction.
    ///
    /// # Errors
    /// As for [`Tables::commit`].
    pub fn commit_without_rows(
        &mut self,
        changes: &EncodedChanges,
        checkpoint: Checkpoint,
    ) -> Result<(), StorageErrorKind> {
        let write = begin_write(&self.database)?;
        write_records(&write, changes)?;
        rows::remove(&write)?;
        write_checkpoint(&write, checkpoint, false)?;
        write.commit()?;
        self.has_rows = false;
        Ok(())
    }

    /// Moves pages to the beginning of the file and cuts off the rest.
    ///
    /// # Errors
    /// As for [`Tables::commit`].
    pub fn compact(&mut self) -> Result<(), StorageErrorKind> {
        self.database.compact()?;
        self.len = len_of(&self.backend);
        Ok(())
    }

    /// Calls `each` with every record.
    pub fn read(&self, each: impl FnMut(Record)) -> Result<(), StorageErrorKind> {
        read(&self.database, each)
    }

    /// Calls `each` with the address and the bytes of every row, in the order of the addresses.
    pub fn read_rows(&self, each: impl FnMut(&[u8], &[u8])) -> Result<(), StorageErrorKind> {
        if self.has_rows { rows::read(&self.database, each) } else { Ok(()) }
    }

    pub fn row(&self, address: &[u8]) -> Result<Option<Bytes>, StorageErrorKind> {
        if self.has_rows { rows::get(&self.database, address) } else { Ok(None) }
    }

    pub fn record(&self, key: &Key) -> Result<Option<Record>, StorageErrorKind> {
        let record = self.database.begin_read()?.open_table(RECORDS)?.get(key.as_bytes())?;
        Ok(record.and_then(|record| Record::decode(record.value())))
    }

    /// Returns the length of the file after the last commit; `u64::MAX`, which cuts nothing off, if it cannot be read.
    pub fn len(&self) -> u64 {
        self.len
    }
}

fn len_of(backend: &StagedBackend) -> u64 {
    backend.len().unwrap_or(u64::MAX)
}

/// Opens the tables and verifies all pages. The storage crate trusts its pages, so that a corrupt one would be a panic
/// in a later transaction.
pub fn check(backend: &StagedBackend) -> Result<Database, StorageErrorKind> {
    let mut database = open_unchecked(backend)?;
    if !database.check_integrity()? {
        return Err(StorageErrorKind::Corrupt("the last transaction is malformed".to_owned()));
    }
    Ok(database)
}

/// Begins a transaction that is committed in two phases: the commit slot that becomes valid is on disk before it is named.
/// After a commit in one phase, the storage crate takes a corrupt slot or page for a commit that a crash interrupted, and
/// silently returns to the one before, which was acknowledged as well.
fn begin_write(database: &Database) -> Result<WriteTransaction, StorageErrorKind> {
    let mut write = database.begin_write()?;
    write.set_two_phase_commit(true);
    Ok(write)
}

/// Makes the storage crate try the newer one of the two commit slots first, if the header names the older one.
///
/// Either a crash came between the two phases of a commit, or the bit that names the slot is corrupt, which no checksum
/// covers. If the newer slot and its pages are intact, the commit is on disk, and it may have been acknowledged. If they
/// are not, it was not acknowledged, and the storage crate takes the older one. It compares the two only if the header
/// claims a commit in one phase, and writes the header anew before anything else.
fn prefer_newer_slot(backend: &StagedBackend) -> Result<(), StorageErrorKind> {
    const FLAGS_AT: usize = 9;
    const NAMES_SECOND: u8 = 1;
    const TWO_PHASE: u8 = 4;
    const SLOTS_AT: usize = 64;
    const SLOT_BYTES: usize = 128;
    const TRANSACTION_AT: usize = 104;
    let mut header = [0; SLOTS_AT + 2 * SLOT_BYTES];
    if backend.len()? < header.len() as u64 {
        return Ok(());
    }
    backend.read(0, &mut header)?;
    let transaction = |slot: usize| {
        let slot = header.get(SLOTS_AT..)?.chunks_exact(SLOT_BYTES).nth(slot)?;
        Some(slot.get(TRANSACTION_AT..)?.get_u64_le())
    };
    let Some(flags) = header.get(FLAGS_AT).copied() else { return Ok(()) };
    let named = usize::from(flags & NAMES_SECOND);
    // The transaction of a corrupt slot is unknown: such a file is refused when it is opened as it is.
    let is_named_intact = || {
        let copy = StagedBackend::read_only(Box::new(backend.clone()))?;
        Ok::<_, StorageErrorKind>(Database::builder().create_with_backend(copy).is_ok())
    };
    if flags & TWO_PHASE != 0 && transaction(named ^ 1) > transaction(named) && is_named_intact()? {
        backend.write(FLAGS_AT as u64, &[flags & !TWO_PHASE])?;
    }
    Ok(())
}

/// Opens tables that may be corrupt. Every use of them can panic: see [`super::panic_guard::catch_panics`].
pub fn open_unchecked(backend: &StagedBackend) -> Result<Database, StorageErrorKind> {
    prefer_newer_slot(backend)?;
    Ok(Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(backend.clone())?)
}

/// Returns the checkpoint and the format of the tables.
///
/// # Errors
/// The tables cannot be read, or have another format.
pub fn read_checkpoint(database: &Database) -> Result<(Checkpoint, u64), StorageErrorKind> {
    let read = database.begin_read()?;
    let missing = || StorageErrorKind::Corrupt("it has no checkpoint".to_owned());
    let format = read.open_table(FORMATS)?.get(())?.map(|format| format.value());
    let format = format.ok_or_else(|| StorageErrorKind::Corrupt("it has no format".to_owned()))?;
    let (ms, counter, wall_ms, clock_ms, wal_generation, obsolete_generation) = match format {
        FORMAT_VERSION | ROWS_FORMAT_VERSION => {
            read.open_table(CHECKPOINTS)?.get(())?.ok_or_else(missing)?.value()
        }
        OLD_FORMAT_VERSION => {
            let checkpoint = read.open_table(OLD_CHECKPOINTS)?.get(())?.ok_or_else(missing)?.value();
            let (ms, counter, wall_ms, wal_generation) = checkpoint;
            (ms, counter, wall_ms, wall_ms, wal_generation, None)
        }
        other => return Err(StorageErrorKind::UnsupportedFormat(other)),
    };
    let metadata = CommitMetadata { ceiling: Version { ms, counter }, wall_ms, clock_ms };
    Ok((Checkpoint { metadata, wal_generation, obsolete_generation }, format))
}

/// Returns the bytes of the deleted records.
fn write_records(write: &WriteTransaction, changes: &EncodedChanges) -> Result<u64, StorageErrorKind> {
    let mut records = write.open_table(RECORDS)?;
    let mut deleted_bytes = 0_u64;
    for (key, record) in changes {
        match record {
            Some(record) => drop(records.insert(key.as_bytes(), record.as_slice())?),
            None => {
                let bytes = records.remove(key.as_bytes())?.map_or(0, |record| record.value().len());
                deleted_bytes = deleted_bytes.saturating_add(bytes as u64);
            }
        }
    }
    Ok(deleted_bytes)
}

fn write_checkpoint(
    write: &WriteTransaction,
    checkpoint: Checkpoint,
    has_rows: bool,
) -> Result<(), StorageErrorKind> {
    let Checkpoint { metadata, wal_generation, obsolete_generation } = checkpoint;
    let CommitMetadata { ceiling: Version { ms, counter }, wall_ms, clock_ms } = metadata;
    let row = (ms, counter, wall_ms, clock_ms, wal_generation, obsolete_generation);
    write.open_table(CHECKPOINTS)?.insert((), row)?;
    // Replaces the previous format too.
    let format = if has_rows { ROWS_FORMAT_VERSION } else { FORMAT_VERSION };
    write.open_table(FORMATS)?.insert((), format)?;
    Ok(())
}

/// Calls `each` with every record.
///
/// # Errors
/// The tables cannot be read, or hold a record that no store has written.
pub fn read(database: &Database, mut each: impl FnMut(Record)) -> Result<(), StorageErrorKind> {
    for entry in database.begin_read()?.open_table(RECORDS)?.iter()? {
        let (key, record) = entry?;
        let record = Record::decode(record.value()).filter(|record| record.key.as_bytes() == key.value());
        each(record.ok_or_else(|| StorageErrorKind::Corrupt("a record is malformed".to_owned()))?);
    }
    Ok(())
}
