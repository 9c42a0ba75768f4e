//! Work on the files of a store that no server has open: verify, recover, remove a fencing token.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata};

use super::core::{Storage, create_tables};
use super::error::{StorageError, StorageErrorKind};
use super::files::{Directory, StorageFiles, TABLES_NAME, WAL_NAME, check_presence, is_marked, open_regular};
use super::panic_guard::catch_panics;
use super::record::{
    CommitMetadata, EncodedChanges, EncodedRows, ParsedRecord, ROWS_FORMAT_VERSION, Record, find_magic,
};
use super::rows;
use super::staged_backend::{StagedBackend, SyncFailure};
use super::tables::{self, Checkpoint, RECORDS, check, open_unchecked, read_checkpoint};
use super::wal::{self, WalPolicy};
use crate::protocol::timestamp::SKEW_MAX_MS;
use crate::protocol::{Key, Timestamp};
use crate::store::{Now, Version};

/// Name of the directory, inside the directory of a corrupt store, to which [`recover`] writes.
pub const RECOVERED_DIRECTORY: &str = "recovered";
/// Bytes read at once while a file is searched for records.
const READ_BYTES: usize = 1024 * 1024;

/// How much of a store can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Integrity {
    /// Everything, once an interrupted transaction has been rolled back.
    Intact,
    /// The table can be read in its order except for a gap. Records that were found in the gap may be outdated, or
    /// their keys deleted.
    Gap {
        corruption: String,
        /// Number of records found in the gap.
        recovered: usize,
        /// Number of keys that are missing, if the length of the table is known.
        lost: Option<usize>,
    },
    /// The tables are intact; of the write-ahead log, not everything can be read.
    IncompleteWal { corruption: String },
    /// All keys can be read; of the rows of the exchange, not everything can.
    IncompleteRows { corruption: String },
    /// The table has no readable order: of each key, the newest record anywhere in the file was taken, also of keys
    /// that had been deleted.
    Unordered { corruption: String },
}

/// Contents and integrity of a store's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// Path of the tables.
    pub path: PathBuf,
    /// Size of the tables in bytes.
    pub file_bytes: u64,
    /// Size of the write-ahead log in bytes; `None` if there is none.
    pub wal_bytes: Option<u64>,
    pub integrity: Integrity,
    pub keys: usize,
    /// Total length of the keys in bytes.
    pub key_bytes: u64,
    /// Total length of the values in bytes.
    pub value_bytes: u64,
    /// Number of keys that a fencing token protects.
    pub fenced: usize,
    /// Number of keys with a time to live.
    pub expiring: usize,
    /// Number of keys whose time to live is over.
    pub expired: usize,
    /// Number of rows of the exchange that the store takes part in; `None` if it takes part in none, or if that cannot be
    /// read.
    pub rows: Option<usize>,
    /// The least and the greatest version of the keys.
    pub versions: Option<(Version, Version)>,
    /// No version that was given out is greater, as far as the files show it.
    pub greatest: Version,
    /// Wall clock at the last commit, in Unix milliseconds; 0 if unknown.
    pub written_ms: u64,
}

/// Result of [`clear_fence`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClearFenceOutcome {
    /// The removed fencing token.
    Cleared(Timestamp),
    /// The key has no fencing token.
    NotFenced,
    KeyNotFound,
}

struct Inspection {
    report: VerifyReport,
    records: BTreeMap<Key, Record>,
    metadata: CommitMetadata,
}

/// What can be read of the files.
struct Content {
    integrity: Integrity,
    records: BTreeMap<Key, Record>,
    /// Addresses of the rows; `None` if the store has none, or if that cannot be read.
    rows: Option<BTreeSet<Bytes>>,
    metadata: CommitMetadata,
}

/// Reads all files of the store in `directory` and reports what they hold. Changes nothing.
///
/// # Errors
/// There is no store, its files cannot be read, another process has them open, or they have another format. Corruption
/// is no error here: see [`VerifyReport::integrity`].
pub fn verify(directory: &Path, wall_ms: u64) -> Result<VerifyReport, StorageError> {
    Ok(inspect(directory, wall_ms)?.report)
}

/// Writes what can be read of a corrupt store to a new one in [`RECOVERED_DIRECTORY`] inside `directory`, and returns
/// the path of that directory; writes nothing if the store is intact. The corrupt files are not changed. The new store has
/// no rows of an exchange: they would have to agree with its values.
///
/// # Errors
/// Those of [`verify`]; no record can be read; the new store exists already or cannot be written.
pub fn recover(directory: &Path, wall_ms: u64) -> Result<(VerifyReport, Option<PathBuf>), StorageError> {
    let Inspection { report, records, metadata } = inspect(directory, wall_ms)?;
    if report.integrity == Integrity::Intact {
        return Ok((report, None));
    }
    let to = directory.join(RECOVERED_DIRECTORY);
    let error = |kind| StorageError { path: to.join(TABLES_NAME), kind };
    if to.join(TABLES_NAME).exists() {
        return Err(error(StorageErrorKind::Io(ErrorKind::AlreadyExists.into())));
    }
    if records.is_empty() {
        let nothing = StorageErrorKind::Corrupt("no key in it can be read".to_owned());
        return Err(StorageError { path: report.path, kind: nothing });
    }
    let mut files = StorageFiles::new(Box::new(Directory::lock(&to).map_err(error)?));
    let mut records = Some(records.into_values().collect());
    let checkpoint = Checkpoint { metadata, ..Checkpoint::default() };
    catch_panics(|| {
        create_tables(&mut files, &SyncFailure::default(), || records.take(), || None, checkpoint)
    })
    .map_err(error)?;
    Ok((report, Some(to)))
}

/// Removes the fencing token of a key, whatever its version.
///
/// # Errors
/// Those of [`verify`], corruption, and failure to write the files.
pub fn clear_fence(directory: &Path, key: &Key) -> Result<ClearFenceOutcome, StorageError> {
    let path = directory.join(TABLES_NAME);
    if !path.exists() {
        return Err(StorageError { path, kind: StorageErrorKind::Missing });
    }
    let storage = Storage::open(directory)?;
    let Some(mut record) = storage.record(key)? else {
        return Ok(ClearFenceOutcome::KeyNotFound);
    };
    let Some(fence) = record.fence.take() else { return Ok(ClearFenceOutcome::NotFenced) };
    let encoded = record.encode().map_err(|error| StorageError { path, kind: error.into() })?;
    storage.close_with(EncodedChanges::from([(record.key, Some(encoded))]))?;
    Ok(ClearFenceOutcome::Cleared(fence))
}

/// Removes all rows of an exchange and returns their number: the store is one of its own again, with all its keys.
///
/// # Errors
/// Those of [`verify`], corruption, and failure to write the files.
pub fn leave_exchange(directory: &Path) -> Result<usize, StorageError> {
    let path = directory.join(TABLES_NAME);
    if !path.exists() {
        return Err(StorageError { path, kind: StorageErrorKind::Missing });
    }
    let storage = Storage::open(directory)?;
    if !storage.has_rows() {
        return Ok(0);
    }
    let mut count = 0_usize;
    storage.load_rows(|_, _| count = count.saturating_add(1))?;
    storage.close_without_rows()?;
    Ok(count)
}

/// Result of [`lower_versions`]: what was more than 60 s ahead of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoweredVersions {
    pub keys: usize,
    pub fences: usize,
    /// Whether the version was lowered above which new keys continue.
    pub floor: bool,
}

impl LoweredVersions {
    /// Lowers the version and the fencing token of a record that are ahead to the present. Returns the counts with it.
    #[must_use]
    pub(in crate::server) fn lower(mut self, record: &mut Record, wall_ms: u64) -> Self {
        if is_ahead(record.version.ms, wall_ms) {
            record.version = Version { ms: wall_ms, counter: 0 };
            self.keys = self.keys.saturating_add(1);
        }
        if let Some(fence) = record.fence.as_mut().filter(|fence| is_ahead(fence.ms, wall_ms)) {
            (fence.ms, fence.counter) = (wall_ms, 0);
            self.fences = self.fences.saturating_add(1);
        }
        self
    }
}

fn is_ahead(ms: u64, wall_ms: u64) -> bool {
    ms > wall_ms.saturating_add(SKEW_MAX_MS)
}

/// Lowers versions and fencing tokens that are more than 60 s ahead of the clock to the present: versions that clients
/// refuse, because the clock was ahead when they were given out. This is the only way in which versions go back.
///
/// # Errors
/// Those of [`verify`], corruption, and failure to write the files.
pub fn lower_versions(directory: &Path, wall_ms: u64) -> Result<LoweredVersions, StorageError> {
    let path = directory.join(TABLES_NAME);
    if !path.exists() {
        return Err(StorageError { path, kind: StorageErrorKind::Missing });
    }
    let now = Version { ms: wall_ms, counter: 0 };
    let mut storage = Storage::open(directory)?;
    let (mut lowered, mut greatest) = (LoweredVersions::default(), now);
    let (mut changes, mut failed) = (EncodedChanges::new(), None);
    storage.each_record(|mut record| {
        if record.is_tombstone() {
            // The ceiling is at least as great afterwards.
            if is_ahead(record.version.ms, wall_ms) {
                changes.insert(record.key, None);
            }
            return;
        }
        let before = lowered;
        lowered = lowered.lower(&mut record, wall_ms);
        greatest = greatest.max(record.version);
        if lowered != before {
            match record.encode() {
                Ok(encoded) => drop(changes.insert(record.key, Some(encoded))),
                Err(error) => failed = Some(error),
            }
        }
    })?;
    if let Some(error) = failed {
        return Err(StorageError { path, kind: error.into() });
    }
    if is_ahead(storage.metadata().ceiling.ms, wall_ms) {
        lowered.floor = true;
        storage.set_ceiling(greatest);
        storage.commit(&[], EncodedRows::new(), greatest, Now { wall_ms, monotonic_ms: 0 })?;
    }
    storage.close_with(changes)?;
    Ok(lowered)
}

fn inspect(directory: &Path, wall_ms: u64) -> Result<Inspection, StorageError> {
    let path = directory.join(TABLES_NAME);
    read(&path, wall_ms).map_err(|kind| StorageError { path, kind })
}

fn read(path: &Path, wall_ms: u64) -> Result<Inspection, StorageErrorKind> {
    let wal = fs::metadata(path.with_file_name(WAL_NAME)).ok();
    let file_bytes = open(path)?.map(|file| file.metadata()).transpose()?.map(|metadata| metadata.len());
    let is_marked = path.parent().is_some_and(is_marked);
    let present = check_presence(file_bytes, is_marked, || Ok(wal.is_some()));
    if file_bytes.is_none() && present.is_ok() {
        return Err(StorageErrorKind::Missing);
    }
    let intact = present.and_then(|()| catch_panics(|| read_intact(path)));
    let file_bytes = file_bytes.unwrap_or(0);
    let Content { integrity, mut records, rows, metadata } = match intact {
        Ok(content) => content,
        Err(StorageErrorKind::Corrupt(corruption)) => read_corrupt(path, corruption)?,
        Err(other) => return Err(other),
    };
    let greatest = records.values().map(|record| record.version).fold(metadata.ceiling, Version::max);
    records.retain(|_, record| !record.is_tombstone());
    let versions = records.values().map(|record| record.version);
    let versions = versions.clone().min().zip(versions.max());
    let bytes = |len: fn(&Record) -> usize| records.values().map(|record| len(record) as u64).sum();
    let count = |is: &dyn Fn(&Record) -> bool| records.values().filter(|record| is(record)).count();
    let clock_ms = metadata.clock_ms_at(wall_ms);
    let report = VerifyReport {
        path: path.to_owned(),
        file_bytes,
        wal_bytes: wal.filter(fs::Metadata::is_file).map(|wal| wal.len()),
        integrity,
        keys: records.len(),
        key_bytes: bytes(|record| record.key.as_bytes().len()),
        value_bytes: bytes(|record| record.value.len()),
        fenced: count(&|record| record.fence.is_some()),
        expiring: count(&|record| record.deadline.is_some()),
        expired: count(&|record| record.deadline.is_some_and(|deadline| deadline.clock_ms <= clock_ms)),
        rows: rows.map(|rows| rows.len()),
        versions,
        greatest,
        written_ms: metadata.wall_ms,
    };
    let metadata = CommitMetadata { ceiling: greatest, ..metadata };
    Ok(Inspection { report, records, metadata })
}

/// Opens a regular file; `None` if it does not exist.
fn open(path: &Path) -> Result<Option<File>, StorageErrorKind> {
    match open_regular(File::options().read(true), path) {
        Ok(file) => Ok(Some(file)),
        Err(StorageErrorKind::Io(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn open_backend(path: &Path) -> Result<StagedBackend, StorageErrorKind> {
    let file = open(path)?.ok_or(StorageErrorKind::Missing)?;
    Ok(StagedBackend::read_only(Box::new(FileBackend::new(file)?))?)
}

/// Returns an error of the write-ahead log as text.
fn wal_error(kind: StorageErrorKind, path: &Path) -> String {
    StorageError { path: path.with_file_name(WAL_NAME), kind }.to_string()
}

fn read_intact(path: &Path) -> Result<Content, StorageErrorKind> {
    let database = check(&open_backend(path)?)?;
    let (checkpoint, format) = read_checkpoint(&database)?;
    let mut records = BTreeMap::new();
    tables::read(&database, |record| drop(records.insert(record.key.clone(), record)))?;
    let (mut rows, rows_corruption) = read_rows(&database, format)?;
    let (metadata, corruption) = apply_wal(path, checkpoint, format, &mut records, rows.as_mut());
    let integrity = match (corruption, rows_corruption) {
        (None, None) => Integrity::Intact,
        (None, Some(corruption)) => Integrity::IncompleteRows { corruption },
        (Some(mut corruption), rows_corruption) => {
            corruption.extend(rows_corruption.map(|rows_corruption| format!("; {rows_corruption}")));
            Integrity::IncompleteWal { corruption }
        }
    };
    Ok(Content { integrity, records, rows, metadata })
}

/// Returns the addresses of all rows in the tables, up to the first one that is corrupt, and the corruption. Tables without
/// an exchange have none.
fn read_rows(
    database: &Database,
    format: u64,
) -> Result<(Option<BTreeSet<Bytes>>, Option<String>), StorageErrorKind> {
    if format != ROWS_FORMAT_VERSION {
        return Ok((None, None));
    }
    let mut addresses = BTreeSet::new();
    let read = catch_panics(|| {
        rows::read(database, |address, _| {
            addresses.insert(Bytes::copy_from_slice(address));
        })
    });
    match read {
        Ok(()) => Ok((Some(addresses), None)),
        Err(StorageErrorKind::Corrupt(corruption)) => Ok((Some(addresses), Some(corruption))),
        Err(other) => Err(other),
    }
}

/// Applies the groups of the write-ahead log that follow the checkpoint, as far as they can be read. Returns the
/// metadata after them, and the corruption of the log, if any; a log that belongs to other tables is corrupt too.
fn apply_wal(
    path: &Path,
    checkpoint: Checkpoint,
    format: u64,
    records: &mut BTreeMap<Key, Record>,
    rows: Option<&mut BTreeSet<Bytes>>,
) -> (CommitMetadata, Option<String>) {
    let policy = WalPolicy::default();
    let mut bytes = Vec::new();
    let read = open(&path.with_file_name(WAL_NAME)).and_then(|file| {
        let read = file.map(|file| file.take(policy.bytes as u64).read_to_end(&mut bytes));
        Ok(read.transpose()?.is_some())
    });
    // After a read error, the groups before it still count.
    let bytes = (!matches!(read, Ok(false))).then_some(bytes.as_slice());
    let mut recovered = wal::recover(bytes, policy, &checkpoint, format);
    let mut unreadable = read.err().map(|kind| wal_error(kind, path));
    if recovered.is_foreign {
        // It is unknown which of the two are older: of each key, the newest record counts.
        let searched = search_records(&path.with_file_name(WAL_NAME), records);
        unreadable = unreadable.or(searched.err().map(|kind| wal_error(kind, path)));
        recovered.changes.clear();
    }
    for (key, record) in recovered.changes.changes {
        match record.and_then(|record| Record::decode(&record)) {
            Some(record) => drop(records.insert(key, record)),
            None => drop(records.remove(&key)),
        }
    }
    if let Some(rows) = rows {
        for (address, row) in recovered.changes.rows {
            if row.is_some() {
                rows.insert(address)
            } else {
                rows.remove(&address)
            };
        }
    }
    (recovered.metadata.unwrap_or(checkpoint.metadata), unreadable.or(recovered.corruption))
}

fn read_corrupt(path: &Path, mut corruption: String) -> Result<Content, StorageErrorKind> {
    let mut ordered = BTreeMap::new();
    let mut gap = None;
    let mut checkpoint = None;
    let mut expected_len = None;
    let (mut rows, mut rows_corruption) = (None, None);
    // Opened without a check, tables with one corrupt page can be read up to that page.
    let opened = catch_panics(|| {
        let database = open_unchecked(&open_backend(path)?)?;
        checkpoint = catch_panics(|| read_checkpoint(&database)).ok();
        expected_len = catch_panics(|| Ok(database.begin_read()?.open_table(RECORDS)?.len()?)).ok();
        gap = read_up_to_gap(&database, &mut ordered)?;
        if let Some((_, format)) = checkpoint {
            (rows, rows_corruption) = read_rows(&database, format).unwrap_or_default();
        }
        Ok(())
    });
    let is_ordered = opened.is_ok();
    let mut records = BTreeMap::new();
    search_records(path, &mut records)?;
    let (mut recovered, mut lost) = (0_usize, None);
    if is_ordered {
        // Outside the gap the table is right, and other records in the file are outdated. Inside the gap, a record of
        // unknown age is better than none.
        let (from, to) = gap.as_ref().map_or((None, None), |(from, to)| (from.as_ref(), to.as_ref()));
        for (key, record) in std::mem::replace(&mut records, ordered) {
            let is_after = from.is_none_or(|from| key > *from);
            let is_within = gap.is_some() && is_after && to.is_none_or(|to| key < *to);
            if is_within && !records.contains_key(&key) {
                recovered = recovered.saturating_add(1);
                records.insert(key, record);
            }
        }
        let expected_len = expected_len.and_then(|count| usize::try_from(count).ok());
        lost = expected_len.map(|count| count.saturating_sub(records.len()));
    }
    let metadata = match checkpoint {
        Some((checkpoint, format)) => {
            let (metadata, wal_corruption) = apply_wal(path, checkpoint, format, &mut records, rows.as_mut());
            if let Some(wal_corruption) = wal_corruption {
                rows_corruption = None;
                corruption.extend(["; ", &wal_corruption]);
            }
            metadata
        }
        None => {
            // The generation is unknown: records of the log count like those of the tables, by their version.
            let searched = search_records(&path.with_file_name(WAL_NAME), &mut records);
            corruption.extend(searched.err().map(|kind| format!("; {}", wal_error(kind, path))));
            CommitMetadata::default()
        }
    };
    let integrity = match rows_corruption {
        // Everything else can be read.
        Some(corruption) if is_ordered && gap.is_none() => Integrity::IncompleteRows { corruption },
        _ if is_ordered => Integrity::Gap { corruption, recovered, lost },
        _ => Integrity::Unordered { corruption },
    };
    Ok(Content { integrity, records, rows, metadata })
}

/// The last key before an unreadable part of the table, and the first one after it.
type Gap = (Option<Key>, Option<Key>);

/// Reads the table from both ends until a page is malformed. Returns `None` if there is no gap.
fn read_up_to_gap(
    database: &Database,
    into: &mut BTreeMap<Key, Record>,
) -> Result<Option<Gap>, StorageErrorKind> {
    let table = database.begin_read()?.open_table(RECORDS)?;
    let mut gap = (None, None);
    let take = |entry: redb::Result<_>, into: &mut BTreeMap<Key, Record>| {
        let (key, record): (redb::AccessGuard<'_, &[u8]>, redb::AccessGuard<'_, &[u8]>) = entry?;
        let record = Record::decode(record.value()).filter(|record| record.key.as_bytes() == key.value());
        let record = record.ok_or_else(|| StorageErrorKind::Corrupt("a record is malformed".to_owned()))?;
        let key = record.key.clone();
        into.insert(key.clone(), record);
        Ok::<_, StorageErrorKind>(key)
    };
    let forward = catch_panics(|| {
        for entry in table.iter()? {
            gap.0 = Some(take(entry, into)?);
        }
        Ok(())
    });
    if forward.is_ok() {
        return Ok(None);
    }
    // The backward pass fails at the same page, or at a later one if several are malformed. Either bounds the gap.
    let _ = catch_panics(|| {
        for entry in table.iter()?.rev() {
            gap.1 = Some(take(entry, into)?);
        }
        Ok(())
    });
    Ok(Some(gap))
}

/// Searches a whole file for records and adds the newest one of each key. A missing file has none.
fn search_records(path: &Path, found: &mut BTreeMap<Key, Record>) -> Result<(), StorageErrorKind> {
    let Some(mut file) = open(path)? else { return Ok(()) };
    let mut bytes = Vec::new();
    let mut is_at_end = false;
    // Bytes needed from the place where a record may begin.
    let mut wanted = READ_BYTES;
    loop {
        while !is_at_end && bytes.len() < wanted {
            let before = bytes.len();
            (&mut file).take(READ_BYTES as u64).read_to_end(&mut bytes)?;
            is_at_end = bytes.len() == before;
        }
        let mut done = 0_usize;
        wanted = READ_BYTES;
        while let Some(at) = bytes.get(done..).and_then(find_magic) {
            done = done.saturating_add(at);
            match Record::parse(bytes.get(done..).unwrap_or_default()) {
                ParsedRecord::Record(record, len) => {
                    done = done.saturating_add(len);
                    let is_newer = found.get(&record.key).is_none_or(|known| known.version < record.version);
                    if is_newer {
                        found.insert(record.key.clone(), *record);
                    }
                }
                ParsedRecord::Truncated(len) if !is_at_end => {
                    wanted = len.max(READ_BYTES);
                    break;
                }
                ParsedRecord::Truncated(_) | ParsedRecord::Invalid => done = done.saturating_add(1),
            }
        }
        if is_at_end {
            return Ok(());
        }
        // If no record is truncated, only the last three bytes are needed: they may begin the magic bytes.
        let rest = bytes.get(done..).unwrap_or_default();
        let keep = if find_magic(rest).is_some() { rest.len() } else { rest.len().min(3) };
        bytes.drain(..bytes.len().saturating_sub(keep));
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::super::files::LOCK_NAME;
    use super::*;
    use crate::store::{Change, StoredValue};

    const NOW_MS: u64 = 1_700_000_000_000;
    const HOUR_MS: u64 = 3_600_000;

    fn version(ms: u64) -> Version {
        Version { ms, counter: 3 }
    }

    fn change(name: &'static str, version_ms: u64, fence_ms: Option<u64>) -> Change {
        let content = StoredValue {
            value: "v".into(),
            fence: fence_ms.map(|ms| Timestamp::of_store(ms, 7)),
            deadline_ms: None,
            persist: true,
        };
        Change {
            key: Key::new(name).unwrap(),
            version: version(version_ms),
            content: Some(content),
            persist: true,
            watchers: Vec::new(),
            notification: None,
        }
    }

    fn fill(changes: &[Change], greatest_ms: u64) -> TempDir {
        fill_with(changes, EncodedRows::new(), greatest_ms)
    }

    fn fill_with(changes: &[Change], rows: EncodedRows, greatest_ms: u64) -> TempDir {
        let home = TempDir::new().unwrap();
        let mut storage = Storage::open(home.path()).unwrap();
        let now = Now { wall_ms: greatest_ms, monotonic_ms: 0 };
        storage.commit(changes, rows, version(greatest_ms), now).unwrap();
        storage.close().unwrap();
        home
    }

    /// Rows that fill some pages.
    fn many_rows() -> EncodedRows {
        (0..200).map(|number| (format!("k/{number:03}").into(), Some(vec![b'r'; 100].into()))).collect()
    }

    fn rows(directory: &Path) -> usize {
        let mut count = 0;
        Storage::open(directory).unwrap().load_rows(|_, _| count += 1).unwrap();
        count
    }

    #[test]
    fn versions_far_ahead_are_lowered_to_the_present_and_others_stay() {
        let ahead_ms = NOW_MS + HOUR_MS;
        let changes = [
            change("ahead", ahead_ms, Some(ahead_ms)),
            change("within", NOW_MS + SKEW_MAX_MS, Some(NOW_MS + SKEW_MAX_MS)),
            change("behind", NOW_MS - HOUR_MS, None),
            change("fenced", NOW_MS - 1, Some(ahead_ms)),
        ];
        let home = fill(&changes, ahead_ms + 5);
        let lowered = lower_versions(home.path(), NOW_MS).unwrap();
        assert_eq!(lowered, LoweredVersions { keys: 1, fences: 2, floor: true });
        let Inspection { records, report, .. } = inspect(home.path(), NOW_MS).unwrap();
        let state = |name: &'static str| {
            let record = &records[&Key::new(name).unwrap()];
            let fence = record.fence.as_ref().map(|fence| (fence.ms, fence.counter));
            (record.version.ms.saturating_sub(NOW_MS), fence)
        };
        assert_eq!(state("ahead"), (0, Some((NOW_MS, 0))));
        assert_eq!(state("within"), (SKEW_MAX_MS, Some((NOW_MS + SKEW_MAX_MS, 7))));
        assert_eq!(state("behind"), (0, None));
        assert_eq!(state("fenced"), (0, Some((NOW_MS, 0))));
        assert_eq!(report.greatest, version(NOW_MS + SKEW_MAX_MS));
        assert_eq!(lower_versions(home.path(), NOW_MS).unwrap(), LoweredVersions::default());
    }

    #[test]
    fn tables_that_were_there_are_lost_and_others_are_missing() {
        let home = fill(&[], NOW_MS);
        fs::remove_file(home.path().join(TABLES_NAME)).unwrap();
        let _ = fs::remove_file(home.path().join(WAL_NAME));
        let kind = || verify(home.path(), NOW_MS).unwrap_err().kind;
        assert!(matches!(kind(), StorageErrorKind::Lost(_)), "{:?}", kind());
        // A start that was interrupted before it created the tables leaves an empty file.
        fs::write(home.path().join(LOCK_NAME), "").unwrap();
        assert!(matches!(kind(), StorageErrorKind::Missing), "{:?}", kind());
    }

    #[test]
    fn the_versions_of_deleted_keys_are_lowered_too() {
        let home = fill(&[], NOW_MS + HOUR_MS);
        let lowered = lower_versions(home.path(), NOW_MS).unwrap();
        assert_eq!(lowered, LoweredVersions { floor: true, ..LoweredVersions::default() });
        let greatest = inspect(home.path(), NOW_MS).unwrap().report.greatest;
        assert_eq!(greatest, Version { ms: NOW_MS, counter: 0 });
    }

    #[test]
    fn rows_are_counted_in_tables_and_log() {
        let home = fill(&[change("k", 1, None)], NOW_MS);
        assert_eq!(verify(home.path(), NOW_MS).unwrap().rows, None);
        let mut storage = Storage::open(home.path()).unwrap();
        let mut commit = |rows| {
            let now = Now { wall_ms: NOW_MS, monotonic_ms: 0 };
            storage.commit(&[], rows, Version::default(), now).unwrap();
            storage.wal_groups()
        };
        while commit(EncodedRows::from([("a".into(), Some("r".into())), ("b".into(), Some("r".into()))]))
            != Some(1)
        {}
        commit(EncodedRows::from([("b".into(), None), ("c".into(), Some("r".into())), ("d".into(), None)]));
        drop(storage);
        let report = verify(home.path(), NOW_MS).unwrap();
        assert_eq!((report.integrity, report.rows, report.keys), (Integrity::Intact, Some(2), 1));
    }

    #[test]
    fn rows_stay_when_a_fence_is_cleared_and_versions_are_lowered() {
        let changes = [change("ahead", NOW_MS + HOUR_MS, Some(NOW_MS)), change("fenced", 1, Some(1))];
        let home = fill_with(&changes, many_rows(), NOW_MS + HOUR_MS);
        clear_fence(home.path(), &Key::new("fenced").unwrap()).unwrap();
        assert!(lower_versions(home.path(), NOW_MS).unwrap().floor);
        assert_eq!(rows(home.path()), many_rows().len());
    }

    #[test]
    fn a_store_that_leaves_an_exchange_keeps_its_keys() {
        let home = fill_with(&[change("k", 1, None)], many_rows(), NOW_MS);
        assert_eq!(leave_exchange(home.path()).unwrap(), many_rows().len());
        let report = verify(home.path(), NOW_MS).unwrap();
        assert_eq!((report.integrity, report.rows, report.keys), (Integrity::Intact, None, 1));
        assert_eq!((rows(home.path()), leave_exchange(home.path()).unwrap()), (0, 0));
        let missing = leave_exchange(&home.path().join("other")).unwrap_err();
        assert!(matches!(missing.kind, StorageErrorKind::Missing));
    }

    #[test]
    fn a_store_whose_rows_alone_are_corrupt_is_recovered_without_them() {
        let changes = [change("k", 1, None), change("l", 1, None)];
        let home = fill_with(&changes, many_rows(), NOW_MS);
        let path = home.path().join(TABLES_NAME);
        let whole = fs::read(&path).unwrap();
        let row = whole.windows(100).position(|bytes| bytes.iter().all(|byte| *byte == b'r')).unwrap();
        for at in [row - 8, row, row + 99] {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(&path, &bytes).unwrap();
            let report = verify(home.path(), NOW_MS).unwrap();
            let corruption = "a row of the exchange is malformed".to_owned();
            assert_eq!((report.integrity, report.keys), (Integrity::IncompleteRows { corruption }, 2));
            assert!(report.rows.is_some_and(|rows| rows < many_rows().len()), "{:?}", report.rows);
            assert!(Storage::open(home.path()).is_err_and(|error| error.kind.is_corrupt()));
            let (_, to) = recover(home.path(), NOW_MS).unwrap();
            let recovered = verify(to.as_ref().unwrap(), NOW_MS).unwrap();
            assert_eq!((recovered.integrity, recovered.rows, recovered.keys), (Integrity::Intact, None, 2));
            fs::remove_dir_all(to.unwrap()).unwrap();
        }
    }

    /// The pages are intact, and a row is not what was written.
    #[test]
    fn a_row_with_another_checksum_is_corruption() {
        let home = fill_with(&[change("k", 1, None)], many_rows(), NOW_MS);
        let database = Database::open(home.path().join(TABLES_NAME)).unwrap();
        let write = database.begin_write().unwrap();
        let notes = redb::TableDefinition::<&[u8], &[u8]>::new("notes");
        let moved = write.open_table(notes).unwrap().remove(&b"k/007"[..]).unwrap().unwrap().value().to_vec();
        write.open_table(notes).unwrap().insert(&b"k/008"[..], &moved[..]).unwrap();
        write.commit().unwrap();
        drop(database);
        let report = verify(home.path(), NOW_MS).unwrap();
        assert!(matches!(report.integrity, Integrity::IncompleteRows { .. }), "{report:?}");
        let storage = Storage::open(home.path()).unwrap();
        assert!(storage.load_rows(|_, _| {}).is_err_and(|error| error.kind.is_corrupt()));
    }
}
