//! The file while no server has it: what is in it, what can be saved of it, and fences that nobody holds any more.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata};

use super::disk::{Disk, Doubt};
use super::error::{StorageError, StorageErrorKind};
use super::medium::{Folder, open_regular};
use super::tables::{Mark, ROWS, check, open_unchecked, read_mark};
use super::{FILE_NAME, LOG_NAME, Past, Storage, make, tables, without_tables};
use crate::protocol::{Key, Timestamp};
use crate::server::storage::panic_guard::guarded;
use crate::server::storage::record::{Found, Row, next_mark};
use crate::server::storage::wal;
use crate::server::storage::wal::{Entries, LogPolicy};
use crate::store::Version;

/// The folder, within that of the damaged file, that takes what was saved.
pub const RECOVERED_DIRECTORY: &str = "salvaged";
/// How much of a file is read at once.
const READ_BYTES: usize = 1024 * 1024;

/// How far a file can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Integrity {
    /// It is whole, or was after what a crash leaves had been put in order.
    Intact,
    /// Its order can be read except for a gap. Keys that were found in the gap may be older than they should be, or
    /// deleted long ago.
    Gap {
        /// What is wrong with it.
        corruption: String,
        /// How many keys were found in the gap.
        recovered: usize,
        /// How many keys there should be and are not found anywhere, as far as that is known.
        lost: Option<usize>,
    },
    /// It is whole up to a time; of what was written last, in the log, not everything can be read.
    IncompleteWal {
        /// What is wrong with it.
        corruption: String,
    },
    /// There is no order: what was found is the newest of each key that is anywhere in the file, deleted ones too.
    Unordered {
        /// What is wrong with it.
        corruption: String,
    },
}

/// What is in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// The file.
    pub path: PathBuf,
    /// How many bytes it has.
    pub file_bytes: u64,
    /// How many bytes the log beside it has; none, if there is none.
    pub wal_bytes: Option<u64>,
    /// How far it can be read.
    pub integrity: Integrity,
    /// How many keys there are.
    pub keys: usize,
    /// How many bytes they have together.
    pub key_bytes: u64,
    /// How many bytes their values have together.
    pub value_bytes: u64,
    /// How many keys a token protects.
    pub fenced: usize,
    /// How many keys run out some day.
    pub expiring: usize,
    /// How many of those have run out by now.
    pub expired: usize,
    /// The least and the greatest version of the values.
    pub versions: Option<(Version, Version)>,
    /// The greatest version ever given out, as far as it is known.
    pub greatest: Version,
    /// When it was written last, in Unix milliseconds; 0 if that is not known.
    pub written_ms: u64,
}

/// What has become of a fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClearFenceOutcome {
    /// This token protects the key no more.
    Cleared(Timestamp),
    /// There was none.
    NotFenced,
    /// There is no such key.
    KeyNotFound,
}

struct Findings {
    report: VerifyReport,
    rows: BTreeMap<Key, Row>,
    past: Past,
}

/// Looks at the file in a folder, and changes nothing.
///
/// # Errors
/// There is none, it cannot be read, another process has it, or it is of another format.
pub fn verify(directory: &Path, wall_ms: u64) -> Result<VerifyReport, StorageError> {
    Ok(inspect(directory, wall_ms)?.report)
}

/// Writes what can be read of a damaged file to a new one, in a folder within its folder; nothing, if it is whole.
/// Returns the folder.
///
/// # Errors
/// As for [`report`]; or there is nothing to be saved, or the new file is there already or cannot be written.
pub fn recover(directory: &Path, wall_ms: u64) -> Result<(VerifyReport, Option<PathBuf>), StorageError> {
    let Findings { report, rows, past } = inspect(directory, wall_ms)?;
    if report.integrity == Integrity::Intact {
        return Ok((report, None));
    }
    let to = directory.join(RECOVERED_DIRECTORY);
    let error = |kind| StorageError { path: to.join(FILE_NAME), kind };
    if to.join(FILE_NAME).exists() {
        return Err(error(StorageErrorKind::Io(ErrorKind::AlreadyExists.into())));
    }
    if rows.is_empty() {
        let nothing = StorageErrorKind::Corrupt("no key in it can be read".to_owned());
        return Err(StorageError { path: report.path, kind: nothing });
    }
    let mut folder = Folder::take(&to).map_err(error)?;
    let mut rows = Some(rows.into_values().collect());
    guarded(|| make(&mut folder, &Doubt::default(), || rows.take(), past)).map_err(error)?;
    Ok((report, Some(to)))
}

/// Takes the token from a key, whoever holds it.
///
/// # Errors
/// As for [`report`], or the file cannot be written.
pub fn clear_fence(directory: &Path, key: &Key) -> Result<ClearFenceOutcome, StorageError> {
    let path = directory.join(FILE_NAME);
    if !path.exists() {
        return Err(StorageError { path, kind: StorageErrorKind::Missing });
    }
    let journal = Storage::open(directory)?;
    let Some(Row { fence, version, deadline, value, key }) = journal.row(key)? else {
        return Ok(ClearFenceOutcome::KeyNotFound);
    };
    let Some(fence) = fence else { return Ok(ClearFenceOutcome::NotFenced) };
    let row = Row { fence: None, version, deadline, value, key };
    journal.close_with(Entries::from([(row.key.clone(), Some(row.encode()))]))?;
    Ok(ClearFenceOutcome::Cleared(fence))
}

fn inspect(directory: &Path, wall_ms: u64) -> Result<Findings, StorageError> {
    let path = directory.join(FILE_NAME);
    read(&path, wall_ms).map_err(|kind| StorageError { path, kind })
}

fn read(path: &Path, wall_ms: u64) -> Result<Findings, StorageErrorKind> {
    let log = fs::metadata(path.with_file_name(LOG_NAME)).ok();
    let has_log = log.is_some();
    let file_bytes = match open(path)? {
        Some(file) => file.metadata()?.len(),
        None if has_log => 0,
        None => return Err(StorageErrorKind::Missing),
    };
    let whole = if file_bytes == 0 && has_log { Err(without_tables()) } else { guarded(|| read_whole(path)) };
    let (integrity, found, past) = match whole {
        Ok(read) => read,
        Err(StorageErrorKind::Corrupt(damage)) => read_damaged(path, damage)?,
        Err(other) => return Err(other),
    };
    let versions = found.values().map(|row| row.version);
    let versions = versions.clone().min().zip(versions.max());
    let greatest = past.greatest.max(versions.unwrap_or_default().1);
    let bytes = |len: fn(&Row) -> usize| found.values().map(|row| len(row) as u64).sum();
    let count = |is: &dyn Fn(&Row) -> bool| found.values().filter(|row| is(row)).count();
    let report = VerifyReport {
        path: path.to_owned(),
        file_bytes,
        wal_bytes: log.filter(fs::Metadata::is_file).map(|log| log.len()),
        integrity,
        keys: found.len(),
        key_bytes: bytes(|row| row.key.as_bytes().len()),
        value_bytes: bytes(|row| row.value.len()),
        fenced: count(&|row| row.fence.is_some()),
        expiring: count(&|row| row.deadline.is_some()),
        expired: count(&|row| row.deadline.is_some_and(|deadline| deadline.wall_ms <= wall_ms)),
        versions,
        greatest,
        written_ms: past.wall_ms,
    };
    Ok(Findings { report, rows: found, past: Past { greatest, ..past } })
}

/// What is there, if anything is, and is a file.
fn open(path: &Path) -> Result<Option<File>, StorageErrorKind> {
    match open_regular(File::options().read(true), path) {
        Ok(file) => Ok(Some(file)),
        Err(StorageErrorKind::Io(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn disk(path: &Path) -> Result<Disk, StorageErrorKind> {
    let file = open(path)?.ok_or(StorageErrorKind::Missing)?;
    Ok(Disk::read_only(Box::new(FileBackend::new(file)?))?)
}

/// Why the log gives back no more than it does.
fn unread(kind: StorageErrorKind, path: &Path) -> String {
    StorageError { path: path.with_file_name(LOG_NAME), kind }.to_string()
}

fn read_whole(path: &Path) -> Result<(Integrity, BTreeMap<Key, Row>, Past), StorageErrorKind> {
    let database = check(&disk(path)?)?;
    let mark = read_mark(&database)?;
    let mut found = BTreeMap::new();
    tables::read(&database, |row| drop(found.insert(row.key.clone(), row)))?;
    let (past, damage) = add_log(path, mark, &mut found);
    let integrity =
        damage.map_or(Integrity::Intact, |damage| Integrity::IncompleteWal { corruption: damage });
    Ok((integrity, found, past))
}

/// Adds what was written last. What of it cannot be read, is said.
fn add_log(path: &Path, Mark { past, tag }: Mark, rows: &mut BTreeMap<Key, Row>) -> (Past, Option<String>) {
    let Some(tag) = tag else { return (past, None) };
    let policy = LogPolicy::default();
    let mut bytes = Vec::new();
    let read = open(&path.with_file_name(LOG_NAME)).and_then(|log| {
        let read = log.map(|log| log.take(policy.bytes as u64).read_to_end(&mut bytes));
        Ok(read.transpose()?.is_some())
    });
    let found = wal::find((!matches!(read, Ok(false))).then_some(&bytes), policy, tag);
    // What is before a place that the disk does not give back is something, and the tables are more.
    let unread = read.err().map(|kind| unread(kind, path));
    for (key, row) in found.entries {
        match row.and_then(|row| Row::decode(&row)) {
            Some(row) => drop(rows.insert(key, row)),
            None => drop(rows.remove(&key)),
        }
    }
    (found.past.unwrap_or(past), unread.or(found.damage))
}

fn read_damaged(
    path: &Path,
    mut corruption: String,
) -> Result<(Integrity, BTreeMap<Key, Row>, Past), StorageErrorKind> {
    let mut ordered = BTreeMap::new();
    let mut gap = None;
    let mut mark = None;
    let mut should_be = None;
    // What is not checked is opened as the storage crate left it, and read until a page makes no sense.
    let opened = guarded(|| {
        let database = open_unchecked(&disk(path)?)?;
        mark = guarded(|| read_mark(&database)).ok();
        should_be = guarded(|| Ok(database.begin_read()?.open_table(ROWS)?.len()?)).ok();
        gap = read_to_the_gap(&database, &mut ordered)?;
        Ok(())
    });
    let is_ordered = opened.is_ok();
    let mut rows = BTreeMap::new();
    scan(path, &mut rows)?;
    let (mut found, mut lost) = (0, None);
    if is_ordered {
        let (from, to) = gap.as_ref().map_or((None, None), |(from, to)| (from.as_ref(), to.as_ref()));
        for (key, row) in std::mem::replace(&mut rows, ordered) {
            let is_behind = from.is_none_or(|from| key > *from);
            let is_within = gap.is_some() && is_behind && to.is_none_or(|to| key < *to);
            if is_within && !rows.contains_key(&key) {
                found = usize::saturating_add(found, 1);
                rows.insert(key, row);
            }
        }
        let should_be = should_be.and_then(|count| usize::try_from(count).ok());
        lost = should_be.map(|count| count.saturating_sub(rows.len()));
    }
    let past = match mark {
        Some(mark) => {
            let (past, late) = add_log(path, mark, &mut rows);
            corruption.extend(late.map(|late| format!("; {late}")));
            past
        }
        None => {
            let scanned = scan(&path.with_file_name(LOG_NAME), &mut rows);
            corruption.extend(scanned.err().map(|kind| format!("; {}", unread(kind, path))));
            Past::default()
        }
    };
    let integrity = if is_ordered {
        Integrity::Gap { corruption, recovered: found, lost }
    } else {
        Integrity::Unordered { corruption }
    };
    Ok((integrity, rows, past))
}

/// The keys around what cannot be read: the last one before, and the first one after.
type Gap = (Option<Key>, Option<Key>);

/// Reads from both ends until a page makes no sense.
fn read_to_the_gap(
    database: &Database,
    into: &mut BTreeMap<Key, Row>,
) -> Result<Option<Gap>, StorageErrorKind> {
    let table = database.begin_read()?.open_table(ROWS)?;
    let mut gap = (None, None);
    let take = |entry: redb::Result<_>, into: &mut BTreeMap<Key, Row>| {
        let (key, row): (redb::AccessGuard<'_, &[u8]>, redb::AccessGuard<'_, &[u8]>) = entry?;
        let row = Row::decode(row.value()).filter(|row| row.key.as_bytes() == key.value());
        let row = row.ok_or_else(|| StorageErrorKind::Corrupt("a row makes no sense".to_owned()))?;
        let key = row.key.clone();
        into.insert(key.clone(), row);
        Ok::<_, StorageErrorKind>(key)
    };
    let forward = guarded(|| {
        for entry in table.iter()? {
            gap.0 = Some(take(entry, into)?);
        }
        Ok(())
    });
    if forward.is_ok() {
        return Ok(None);
    }
    // It ends at the same page, or at another one further behind.
    let _ = guarded(|| {
        for entry in table.iter()?.rev() {
            gap.1 = Some(take(entry, into)?);
        }
        Ok(())
    });
    Ok(Some(gap))
}

/// Looks for rows wherever they are in a file, if it is there, and keeps the newest of each key.
fn scan(path: &Path, found: &mut BTreeMap<Key, Row>) -> Result<(), StorageErrorKind> {
    let Some(mut file) = open(path)? else { return Ok(()) };
    let mut bytes = Vec::new();
    let mut is_at_end = false;
    // How many bytes are wanted at the place where a row may begin.
    let mut wanted = READ_BYTES;
    loop {
        while !is_at_end && bytes.len() < wanted {
            let before = bytes.len();
            (&mut file).take(READ_BYTES as u64).read_to_end(&mut bytes)?;
            is_at_end = bytes.len() == before;
        }
        let mut done = 0;
        wanted = READ_BYTES;
        while let Some(at) = bytes.get(done..).and_then(next_mark) {
            done = done.saturating_add(at);
            match Row::find(bytes.get(done..).unwrap_or_default()) {
                Found::Row(row, len) => {
                    done = done.saturating_add(len);
                    let is_newer = found.get(&row.key).is_none_or(|known| known.version < row.version);
                    if is_newer {
                        found.insert(row.key.clone(), *row);
                    }
                }
                Found::Cut(len) if !is_at_end => {
                    wanted = len.max(READ_BYTES);
                    break;
                }
                Found::Cut(_) | Found::Nothing => done = done.saturating_add(1),
            }
        }
        if is_at_end {
            return Ok(());
        }
        // Without a row that is cut, all but the beginning of a mark has been looked at.
        let rest = bytes.get(done..).unwrap_or_default();
        let keep = if next_mark(rest).is_some() { rest.len() } else { rest.len().min(3) };
        bytes.drain(..bytes.len().saturating_sub(keep));
    }
}
