//! Work on the files of a store that no server has open: verify, recover, remove a fencing token.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use bytes::Bytes;

use super::codec::{self, Part};
use super::directory::Directory;
use super::disk::{Disk, log_name, new_name, snapshot_name};
use super::entry::{CommitMetadata, Entry, EntryGroup, Place};
use super::frame::{self, Kind};
use super::ledger::{FileLedger, read_from_disk};
use super::policy::Policy;
use super::reading::{self, Contents};
use crate::ledger::lowering::{LoweredVersions, is_ahead};
use crate::ledger::{KeyState, StorageError, StorageErrorKind};
use crate::platform;
use crate::protocol::{Key, Timestamp};
use crate::store::{Now, Version};

/// Name of the directory, inside the directory of a corrupt store, to which [`recover`] writes.
pub const RECOVERED_DIRECTORY: &str = "recovered";
/// Bytes of the changed keys of one group: the length of a group has 32 bits.
const GROUP_BYTES: u64 = 16 * 1024 * 1024;

/// How much of a store can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Integrity {
    /// Everything.
    Intact,
    /// A part of the snapshot cannot be read: keys are missing, or have the value that a group has set.
    IncompleteSnapshot {
        corruption: String,
        /// Number of records that are missing, if the end of the snapshot can be read.
        lost: Option<usize>,
    },
    /// The snapshot is intact; of the log, not everything can be read.
    IncompleteLog { corruption: String },
}

/// Contents and integrity of a store's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// Path of the directory.
    pub path: PathBuf,
    /// Size of the snapshot in bytes; 0 if there is none.
    pub snapshot_bytes: u64,
    /// Length of the groups since the snapshot in bytes.
    pub log_bytes: u64,
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
    /// Number of rows of the exchange that the store takes part in; `None` if it takes part in none.
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

/// What can be read of the files.
pub(super) struct Inspection {
    pub(super) report: VerifyReport,
    keys: BTreeMap<Key, KeyState>,
    metadata: CommitMetadata,
}

/// Reads all files of the store in `directory` and reports what they hold. Changes nothing.
///
/// # Errors
/// There is no store, its files cannot be read, another process has them open, or they have another format. Corruption
/// is no error here: see [`VerifyReport::integrity`].
pub fn verify(directory: &Path, wall_ms: u64) -> Result<VerifyReport, StorageError> {
    Ok(inspect(&lock_existing(directory, false)?, wall_ms)?.report)
}

/// Writes what can be read of a corrupt store to a new one in [`RECOVERED_DIRECTORY`] inside `directory`, and returns
/// the path of that directory; writes nothing if the store is intact. The corrupt files are not changed. The new store has
/// no rows of an exchange: they would have to agree with its values.
///
/// # Errors
/// Those of [`verify`]; no record can be read; the new store exists already or cannot be written.
pub fn recover(directory: &Path, wall_ms: u64) -> Result<(VerifyReport, Option<PathBuf>), StorageError> {
    // Until the end: a server must not start on the directory meanwhile.
    let locked = lock_existing(directory, false)?;
    let Inspection { report, keys, metadata } = inspect(&locked, wall_ms)?;
    if report.integrity == Integrity::Intact {
        return Ok((report, None));
    }
    let to = directory.join(RECOVERED_DIRECTORY);
    let error = |kind| StorageError { path: to.clone(), kind };
    if to.try_exists().map_err(|cause| error(cause.into()))? {
        return Err(error(StorageErrorKind::Io(io::ErrorKind::AlreadyExists.into())));
    }
    if keys.is_empty() {
        let nothing = StorageErrorKind::Corrupt("no key in it can be read".to_owned());
        return Err(StorageError { path: report.path, kind: nothing });
    }
    // Under another name until it is complete: without its keys, it would be opened as a store that has none.
    let new = directory.join(new_name(RECOVERED_DIRECTORY));
    match fs::remove_dir_all(&new) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(error(cause.into())),
        _ => {}
    }
    write_recovered(&new, keys, metadata, wall_ms)?;
    let renamed = fs::rename(&new, &to).and_then(|()| platform::sync_directory(directory));
    renamed.map_err(|cause| error(cause.into()))?;
    Ok((report, Some(to)))
}

/// Creates a store with these keys.
fn write_recovered(
    to: &Path,
    keys: BTreeMap<Key, KeyState>,
    metadata: CommitMetadata,
    wall_ms: u64,
) -> Result<(), StorageError> {
    let mut ledger = FileLedger::open(to)?;
    ledger.set_metadata(metadata);
    let mut snapshot = ledger.begin_rewrite(Now { wall_ms, monotonic_ms: 0 })?;
    for (key, state) in keys {
        let entry = encode(to, key, &state)?;
        let written = snapshot.write(&[entry]);
        written.map_err(|kind| StorageError { path: to.to_owned(), kind })?;
    }
    ledger.finish_rewrite(snapshot)?;
    ledger.close();
    Ok(())
}

/// Removes the fencing token of a key, whatever its version.
///
/// # Errors
/// Those of [`verify`], corruption, and failure to write the files.
pub fn clear_fence(directory: &Path, key: &Key, wall_ms: u64) -> Result<ClearFenceOutcome, StorageError> {
    let mut ledger = open_existing(directory)?;
    let mut found = None;
    ledger.load_states(|loaded, state| {
        if loaded == *key && !state.is_tombstone() {
            found = Some(state);
        }
    })?;
    let Some(mut state) = found else { return Ok(ClearFenceOutcome::KeyNotFound) };
    let Some(fence) = state.fence.take() else { return Ok(ClearFenceOutcome::NotFenced) };
    let entry = encode(directory, key.clone(), &state)?;
    let ceiling = ledger.metadata().ceiling;
    ledger.append(&[entry], ceiling, Now { wall_ms, monotonic_ms: 0 })?;
    ledger.close();
    Ok(ClearFenceOutcome::Cleared(fence))
}

/// Removes all rows of an exchange and returns their number: the store is one of its own again, with all its keys.
///
/// # Errors
/// Those of [`verify`], corruption, and failure to write the files.
pub fn leave_exchange(directory: &Path, wall_ms: u64) -> Result<usize, StorageError> {
    let mut ledger = open_existing(directory)?;
    ledger.load_states(|_, _| {})?;
    let mut entries = Vec::new();
    ledger.load_rows(|address, _| entries.push(Entry { place: Place::Row(address), content: None }));
    if !entries.is_empty() {
        let ceiling = ledger.metadata().ceiling;
        ledger.append(&entries, ceiling, Now { wall_ms, monotonic_ms: 0 })?;
        ledger.close();
    }
    Ok(entries.len())
}

/// Lowers versions and fencing tokens that are more than 60 s ahead of the clock to the present: versions that clients
/// refuse, because the clock was ahead when they were given out.
///
/// # Errors
/// Those of [`verify`], corruption, and failure to write the files.
pub fn lower_versions(directory: &Path, wall_ms: u64) -> Result<LoweredVersions, StorageError> {
    let mut ledger = open_existing(directory)?;
    let (mut lowered, mut greatest) = (LoweredVersions::default(), Version { ms: wall_ms, counter: 0 });
    let mut changed = Vec::new();
    ledger.load_states(|key, mut state| {
        if state.is_tombstone() {
            // The ceiling is at least as great afterwards.
            if is_ahead(state.version.ms, wall_ms) {
                changed.push((key, None));
            }
            return;
        }
        let before = lowered;
        lowered = lowered.lower(&mut state, wall_ms);
        greatest = greatest.max(state.version);
        if lowered != before {
            changed.push((key, Some(state)));
        }
    })?;
    let mut ceiling = ledger.metadata().ceiling;
    if is_ahead(ceiling.ms, wall_ms) {
        (lowered.floor, ceiling) = (true, greatest);
    }
    let entry = |(key, state): (Key, Option<KeyState>)| match state {
        Some(state) => encode(directory, key, &state),
        None => Ok(Entry { place: Place::Key(key), content: None }),
    };
    let entries = changed.into_iter().map(entry).collect::<Result<Vec<_>, _>>()?;
    if lowered.floor || !entries.is_empty() {
        append_portions(&mut ledger, &entries, ceiling, Now { wall_ms, monotonic_ms: 0 })?;
        ledger.close();
    }
    Ok(lowered)
}

/// Appends entries in groups of limited length. Only the last one has the new ceiling: until then, no key may have a version
/// above it.
fn append_portions(
    ledger: &mut FileLedger,
    entries: &[Entry],
    ceiling: Version,
    now: Now,
) -> Result<(), StorageError> {
    let (before, mut rest) = (ledger.metadata().ceiling, entries);
    loop {
        let mut bytes = 0_u64;
        let len = rest.iter().take_while(|entry| {
            let fits = bytes < GROUP_BYTES;
            bytes = bytes.saturating_add(entry.live_bytes());
            fits
        });
        let (portion, left) = rest.split_at(len.count());
        if left.is_empty() {
            return ledger.append(portion, ceiling, now);
        }
        ledger.append(portion, before, now)?;
        rest = left;
    }
}

fn encode(directory: &Path, key: Key, state: &KeyState) -> Result<Entry, StorageError> {
    Entry::of_key(key, state).map_err(|error| StorageError { path: directory.to_owned(), kind: error.into() })
}

/// Opens a store that exists.
fn open_existing(directory: &Path) -> Result<FileLedger, StorageError> {
    FileLedger::open_on(Arc::new(lock_existing(directory, true)?), Policy::default())
}

fn lock_existing(directory: &Path, is_writable: bool) -> Result<Directory, StorageError> {
    let locked = Directory::lock_existing(directory, is_writable);
    locked.map_err(|kind| StorageError { path: directory.to_owned(), kind })
}

fn inspect(directory: &Directory, wall_ms: u64) -> Result<Inspection, StorageError> {
    inspect_on(directory, wall_ms).map_err(|kind| StorageError { path: directory.path(), kind })
}

pub(super) fn inspect_on(disk: &dyn Disk, wall_ms: u64) -> Result<Inspection, StorageErrorKind> {
    let (mut contents, _) = read_from_disk(disk)?;
    if contents.names.logs.is_empty() && contents.names.snapshots.is_empty() {
        return Err(StorageErrorKind::Missing);
    }
    let corruption = contents.corruption.take();
    let (mut keys, mut rows) = (BTreeMap::new(), BTreeSet::new());
    let has_beginning =
        contents.snapshot.is_some() || contents.names.logs.first() == Some(&1) || contents.chain.number > 0;
    let integrity = match (read_snapshot(disk, &contents, &mut keys, &mut rows)?, corruption) {
        (Some((corruption, lost)), _) => Integrity::IncompleteSnapshot { corruption, lost },
        (None, Some(corruption)) if has_beginning => Integrity::IncompleteLog { corruption },
        (None, Some(corruption)) => Integrity::IncompleteSnapshot { corruption, lost: None },
        (None, None) => Integrity::Intact,
    };
    if integrity != Integrity::Intact {
        apply_beyond(disk, &mut contents)?;
    }
    for (key, content) in std::mem::take(&mut contents.keys) {
        match content.and_then(KeyState::decode) {
            Some(state) => drop(keys.insert(key, state)),
            None => drop(keys.remove(&key)),
        }
    }
    for (address, content) in std::mem::take(&mut contents.rows) {
        let _ = if content.is_some() { rows.insert(address) } else { rows.remove(&address) };
    }
    Ok(describe(disk, &contents, integrity, keys, rows.len(), wall_ms))
}

fn describe(
    disk: &dyn Disk,
    contents: &Contents,
    integrity: Integrity,
    mut keys: BTreeMap<Key, KeyState>,
    rows: usize,
    wall_ms: u64,
) -> Inspection {
    let metadata = contents.metadata;
    let greatest = keys.values().map(|state| state.version).fold(metadata.ceiling, Version::max);
    keys.retain(|_, state| !state.is_tombstone());
    let versions = keys.values().map(|state| state.version);
    let versions = versions.clone().min().zip(versions.max());
    let count = |is: &dyn Fn(&KeyState) -> bool| keys.values().filter(|state| is(state)).count();
    let clock_ms = metadata.clock_ms_at(wall_ms, disk.moment());
    let report = VerifyReport {
        path: disk.path(),
        snapshot_bytes: contents.snapshot.map_or(0, |snapshot| snapshot.bytes),
        log_bytes: contents.log_bytes,
        integrity,
        keys: keys.len(),
        key_bytes: keys.keys().map(|key| key.as_bytes().len() as u64).sum(),
        value_bytes: keys.values().map(|state| state.value.len() as u64).sum(),
        fenced: count(&|state| state.fence.is_some()),
        expiring: count(&|state| state.deadline.is_some()),
        expired: count(&|state| state.deadline.is_some_and(|deadline| deadline.clock_ms <= clock_ms)),
        rows: (rows > 0).then_some(rows),
        versions,
        greatest,
        written_ms: metadata.wall_ms,
    };
    Inspection { report, keys, metadata: CommitMetadata { ceiling: greatest, ..metadata } }
}

/// Reads the records of a snapshot. Returns its corruption, if any, and the number of records that are missing then.
fn read_snapshot(
    disk: &dyn Disk,
    contents: &Contents,
    keys: &mut BTreeMap<Key, KeyState>,
    rows: &mut BTreeSet<Bytes>,
) -> Result<Option<(String, Option<usize>)>, StorageErrorKind> {
    let Some(snapshot) = &contents.snapshot else { return Ok(None) };
    let name = snapshot_name(snapshot.number);
    let mut take = |entry: Entry| {
        match (entry.place, entry.content) {
            (Place::Key(key), Some(content)) => {
                let state = KeyState::decode(content);
                keys.insert(key, state.ok_or_else(|| StorageErrorKind::malformed_record(&name))?);
            }
            (Place::Row(address), Some(_)) => drop(rows.insert(address)),
            _ => {}
        }
        Ok(())
    };
    let corruption = match reading::read_snapshot(disk, snapshot, &mut take) {
        Ok(_) => return Ok(None),
        Err(StorageErrorKind::Corrupt(corruption)) => corruption,
        Err(other) => return Err(other),
    };
    // Each frame that is intact counts.
    let (bytes, _) = reading::read_file(disk, &name)?;
    let mut found = 0_usize;
    for (_, frame) in frame::intact(Kind::Snapshot, &bytes, contents.store) {
        if let Some(Part::Entries(entries)) = codec::take_part(bytes.slice_ref(frame.body)) {
            found = found.saturating_add(entries.len());
            // One that is malformed is left out.
            entries.into_iter().for_each(|entry| _ = take(entry));
        }
    }
    let entries = snapshot.end.and_then(|end| usize::try_from(end.entries).ok());
    Ok(Some((corruption, entries.map(|entries| entries.saturating_sub(found)))))
}

/// Applies the intact groups that do not continue the chain, in the order of their numbers.
fn apply_beyond(disk: &dyn Disk, contents: &mut Contents) -> Result<(), StorageErrorKind> {
    let mut groups = BTreeMap::<u64, EntryGroup>::new();
    let (mut store, mut last) = (contents.store, contents.chain.number);
    for segment in contents.segments.clone() {
        let (bytes, _) = reading::read_file(disk, &log_name(segment.number))?;
        if store.is_none()
            && let Some(first) = frame::parse(Kind::Group, &bytes)
        {
            // Neither end of a snapshot can be read: its segment begins with the group that followed, and may have older ones
            // behind its own.
            last = first.chain.number.saturating_sub(1);
        }
        for (_, frame) in frame::intact(Kind::Group, &bytes, store) {
            if *store.get_or_insert(frame.store) != frame.store || frame.chain.number <= last {
                continue;
            }
            // Of two with the same number, the one in the later segment counts.
            let group = codec::take_group(frame.chain.number, bytes.slice_ref(frame.body));
            groups.extend(group.map(|group| (group.number, group)));
        }
    }
    groups.into_values().for_each(|group| contents.apply(group));
    Ok(())
}
