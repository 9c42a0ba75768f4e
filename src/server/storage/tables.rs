//! Tables of all keys in a file of the storage crate: opened only after a full check, written in transactions.

use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition, WriteTransaction};

use super::error::StorageErrorKind;
use super::record::{CommitMetadata, FORMAT_VERSION, Record};
use super::staged_backend::{StagedBackend, SyncFailure};
use super::wal::EncodedChanges;
use crate::protocol::Key;
use crate::store::Version;

/// Small, because every read is served from memory: the file is read once, when the store starts.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

pub const FORMATS: TableDefinition<(), u64> = TableDefinition::new("format");
/// Maps a key to its encoded [`Record`], which repeats the key so that recovery needs no table.
pub const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");
/// [`Checkpoint`]: milliseconds and counter of the greatest version, the wall clock, the generation of the log.
const CHECKPOINTS: TableDefinition<(), (u64, u32, u64, Option<u64>)> = TableDefinition::new("mark");

/// The tables, open.
#[derive(Debug)]
pub struct Tables {
    database: Database,
    backend: StagedBackend,
}

/// How far the tables go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Metadata of the last commit that is in the tables.
    pub metadata: CommitMetadata,
    /// Generation of the write-ahead log whose groups follow the tables; `None` if no log follows them.
    pub wal_generation: Option<u64>,
}

impl Tables {
    /// Opens existing tables, ignoring all bytes beyond `len_max`. Nothing is written before [`Tables::release`].
    ///
    /// # Errors
    /// The file cannot be read, is corrupt, or has another format.
    pub fn open(
        inner: Box<dyn StorageBackend>,
        sync_failure: &SyncFailure,
        len_max: u64,
    ) -> Result<(Self, Checkpoint), StorageErrorKind> {
        let backend = StagedBackend::staging(inner, sync_failure)?;
        if backend.len()? > len_max {
            backend.set_len(len_max)?;
        }
        let database = check(&backend)?;
        let checkpoint = read_checkpoint(&database)?;
        Ok((Self { database, backend }, checkpoint))
    }

    /// Writes the repairs that the storage crate made while it opened the file.
    pub fn release(&self) -> Result<(), StorageErrorKind> {
        Ok(self.backend.release()?)
    }

    /// Creates tables with `portions` of records in one transaction: all of them are there afterwards, or none.
    pub fn create(
        inner: Box<dyn StorageBackend>,
        sync_failure: &SyncFailure,
        mut portions: impl FnMut() -> Option<Vec<Record>>,
        metadata: CommitMetadata,
    ) -> Result<Self, StorageErrorKind> {
        let backend = StagedBackend::direct(inner, sync_failure);
        let database =
            Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(backend.clone())?;
        let write = database.begin_write()?;
        write.open_table(FORMATS)?.insert((), FORMAT_VERSION)?;
        {
            let mut records = write.open_table(RECORDS)?;
            while let Some(portion) = portions() {
                for record in portion {
                    records.insert(record.key.as_bytes(), record.encode()?.as_slice())?;
                }
            }
        }
        write_checkpoint(&write, Checkpoint { metadata, wal_generation: None })?;
        write.commit()?;
        Ok(Self { database, backend })
    }

    /// Commits changes, all or none, and waits until they are on disk.
    ///
    /// # Errors
    /// The tables must not be used afterwards: the storage crate rejects every further transaction.
    pub fn commit(&self, changes: &EncodedChanges, checkpoint: Checkpoint) -> Result<(), StorageErrorKind> {
        let write = self.database.begin_write()?;
        {
            let mut records = write.open_table(RECORDS)?;
            for (key, record) in changes {
                match record {
                    Some(record) => drop(records.insert(key.as_bytes(), record.as_slice())?),
                    None => drop(records.remove(key.as_bytes())?),
                }
            }
        }
        write_checkpoint(&write, checkpoint)?;
        Ok(write.commit()?)
    }

    /// Calls `each` with every record.
    pub fn read(&self, each: impl FnMut(Record)) -> Result<(), StorageErrorKind> {
        read(&self.database, each)
    }

    pub fn record(&self, key: &Key) -> Result<Option<Record>, StorageErrorKind> {
        let record = self.database.begin_read()?.open_table(RECORDS)?.get(key.as_bytes())?;
        Ok(record.and_then(|record| Record::decode(record.value())))
    }

    /// Returns the length of the file; `u64::MAX`, which cuts nothing off, if it cannot be read.
    pub fn len(&self) -> u64 {
        self.backend.len().unwrap_or(u64::MAX)
    }
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

/// Opens tables that may be corrupt. Every use of them can panic: see [`super::panic_guard::catch_panics`].
pub fn open_unchecked(backend: &StagedBackend) -> Result<Database, StorageErrorKind> {
    Ok(Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(backend.clone())?)
}

/// # Errors
/// The tables cannot be read, or have another format.
pub fn read_checkpoint(database: &Database) -> Result<Checkpoint, StorageErrorKind> {
    let read = database.begin_read()?;
    match read.open_table(FORMATS)?.get(())?.map(|format| format.value()) {
        Some(FORMAT_VERSION) => {}
        Some(other) => return Err(StorageErrorKind::UnsupportedFormat(other)),
        None => return Err(StorageErrorKind::Corrupt("it has no format".to_owned())),
    }
    let checkpoint = read.open_table(CHECKPOINTS)?.get(())?.map(|checkpoint| checkpoint.value());
    let checkpoint = checkpoint.ok_or_else(|| StorageErrorKind::Corrupt("it has no checkpoint".to_owned()));
    let (ms, counter, wall_ms, wal_generation) = checkpoint?;
    let metadata = CommitMetadata { greatest_version: Version { ms, counter }, wall_ms };
    Ok(Checkpoint { metadata, wal_generation })
}

fn write_checkpoint(write: &WriteTransaction, checkpoint: Checkpoint) -> Result<(), StorageErrorKind> {
    let Checkpoint { metadata: CommitMetadata { greatest_version, wall_ms }, wal_generation } = checkpoint;
    let Version { ms, counter } = greatest_version;
    write.open_table(CHECKPOINTS)?.insert((), (ms, counter, wall_ms, wal_generation))?;
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
