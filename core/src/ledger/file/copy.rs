//! Copy of the files of a store that another process may use meanwhile. Nothing is locked.
//!
//! - The snapshot never changes, and is read after the log: it was opened before, so that it may be removed meanwhile.
//! - The segments are read from the last to the first. When one has groups, the earlier ones have all of theirs: so the groups that
//!   are copied are the first ones, without a gap. Those that were acknowledged before the copy began are among them.
//! - A segment that is no longer needed gets another name and other groups. So all segments must still have their names when they
//!   have been read; otherwise the copy begins again.
//! - The copy is what a power cut would have left: its last group may be torn. It is read from the disk before it gets its name.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, thread};

use bytes::Bytes;

use super::directory::{Directory, sync_parents};
use super::disk::{Disk, DiskFile, LOCK_NAME, Names, SEEDING_NAME, log_name, new_name, snapshot_name};
use super::entry::Place;
use super::reading::{self, Contents};
use crate::ledger::{KeyState, StorageError, StorageErrorKind};
use crate::{platform, random};

/// How often the copy begins.
const ATTEMPTS_MAX: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);
const PART_BYTES: usize = 1024 * 1024;

/// Result of [`copy`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Size of the snapshot in bytes; 0 if there is none.
    pub snapshot_bytes: u64,
    /// Length of the groups since the snapshot in bytes.
    pub log_bytes: u64,
    pub keys: usize,
    /// Wall clock at the last commit, in Unix milliseconds; 0 if unknown.
    pub written_ms: u64,
    /// Files and directories that do not belong to the store, and were not copied.
    pub others: Vec<String>,
}

/// Copies the store in `directory` to `to`, which gets its name when the copy is complete, verified and durable. `to` must not
/// exist, or be an empty directory. The files belong to the owner of `directory`, if this process may give them to it.
///
/// # Errors
/// There is no store; its files cannot be read, are corrupt, or change in each attempt; the copy cannot be written, or
/// `is_canceled` has returned true. Then nothing is left of it.
pub fn copy(directory: &Path, to: &Path, is_canceled: &dyn Fn() -> bool) -> Result<CopyReport, StorageError> {
    let of_target = |kind| StorageError { path: to.to_owned(), kind };
    let source =
        Directory::unlocked(directory).map_err(|kind| StorageError { path: directory.to_owned(), kind })?;
    let new = Temporary::create(to).map_err(|error| of_target(error.into()))?;
    let target = Directory::lock(&new.0).map_err(of_target)?;
    let copying =
        Copying { source: &source, target: &target, part_bytes: PART_BYTES, pause: PAUSE, is_canceled };
    let report = copying.run().map_err(|error| match error.path == new.0 {
        true => of_target(error.kind),
        false => error,
    })?;
    give_to_owner_of(directory, &new.0);
    // Windows does not rename an open directory.
    drop(target);
    fs::rename(&new.0, to).and_then(|()| sync_parents(to)).map_err(|error| of_target(error.into()))?;
    Ok(report)
}

/// A directory that is removed if it has not got another name.
struct Temporary(PathBuf);

impl Temporary {
    /// Creates a directory beside another one, readable by its owner only.
    fn create(beside: &Path) -> io::Result<Self> {
        let mut name = beside.file_name().unwrap_or_default().to_owned();
        name.push(new_name(&format!("-{:08x}", random::u64() >> 32)));
        let path = beside.with_file_name(name);
        platform::create_new_private_directory(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Gives the files of `to` the owner of `directory`, as `cp -a` does. Only the administrator may.
fn give_to_owner_of(directory: &Path, to: &Path) {
    let Ok(owner) = fs::metadata(directory) else { return };
    let files = fs::read_dir(to).into_iter().flatten().flatten().map(|entry| entry.path());
    files.chain([to.to_owned()]).for_each(|path| _ = platform::copy_owner(&owner, &path));
}

/// An attempt that has not succeeded, because the files have changed: what is wrong with the copy, if that was seen in it.
#[derive(Debug, Default)]
struct Changed(Option<String>);

/// A copy from one disk to another.
pub(super) struct Copying<'a> {
    pub source: &'a dyn Disk,
    pub target: &'a dyn Disk,
    /// Bytes that are copied at once.
    pub part_bytes: usize,
    /// Time between two attempts.
    pub pause: Duration,
    pub is_canceled: &'a dyn Fn() -> bool,
}

impl Copying<'_> {
    pub fn run(&self) -> Result<CopyReport, StorageError> {
        let mut before = None;
        for _ in 0..ATTEMPTS_MAX {
            match self.attempt()? {
                Ok(report) => return Ok(report),
                // Files that change have another gap each time.
                Err(Changed(Some(corruption))) if before.as_ref() == Some(&corruption) => {
                    return Err(self.of_source(StorageErrorKind::Corrupt(corruption)));
                }
                Err(Changed(corruption)) => before = corruption,
            }
            thread::sleep(self.pause);
        }
        Err(self.of_source(StorageErrorKind::Changing(ATTEMPTS_MAX)))
    }

    fn of_source(&self, kind: StorageErrorKind) -> StorageError {
        StorageError { path: self.source.path(), kind }
    }

    fn of_target(&self, kind: StorageErrorKind) -> StorageError {
        StorageError { path: self.target.path(), kind }
    }

    fn attempt(&self) -> Result<Result<CopyReport, Changed>, StorageError> {
        self.clear().map_err(|kind| self.of_target(kind))?;
        let before = self.source.names().map_err(|error| self.of_source(error.into()))?;
        // What the lock file names was durable when it was written, so the log that is read later has it.
        let (mark, _, names) = reading::look(self.source).map_err(|kind| self.of_source(kind))?;
        if names.logs.is_empty() && names.snapshots.is_empty() {
            return Err(self.of_source(StorageErrorKind::Missing));
        }
        let newest = names.snapshots.last().copied();
        let mut files = newest.map(snapshot_name).into_iter().collect::<Vec<_>>();
        let first = newest.unwrap_or(1);
        files.extend(names.logs.into_iter().filter(|number| *number >= first).map(log_name));
        let mut opened = Vec::new();
        for name in files {
            match self.source.open(&name) {
                Ok(file) => opened.push((name, file)),
                Err(kind) if kind.is_not_found() => return Ok(Err(Changed::default())),
                Err(kind) => return Err(self.of_source(kind.of_file(&name))),
            }
        }
        let is_segment = |number: usize| number > 0 || newest.is_none();
        for (_, (name, file)) in opened.iter().enumerate().rev().filter(|(number, _)| is_segment(*number)) {
            self.copy_file(name, &**file)?;
        }
        let after = self.source.names().map_err(|error| self.of_source(error.into()))?;
        if !self.are_in_place(&opened, newest.is_some(), &before, &after)? {
            return Ok(Err(Changed::default()));
        }
        if let (Some(_), Some((name, file))) = (newest, opened.first()) {
            self.copy_file(name, &**file)?;
        }
        let result = self.complete(&mark, after.iter().any(|name| name == SEEDING_NAME));
        match result {
            Ok(report) => Ok(Ok(CopyReport { others: others(after), ..report })),
            Err(StorageErrorKind::Corrupt(corruption)) => Ok(Err(Changed(Some(corruption)))),
            Err(kind) => Err(self.of_target(kind)),
        }
    }

    /// Removes what an earlier attempt has left.
    fn clear(&self) -> Result<(), StorageErrorKind> {
        for name in self.target.names()?.iter().filter(|name| *name != LOCK_NAME) {
            self.target.remove(name)?;
        }
        Ok(())
    }

    /// Whether the segments still have the names that they had when they were opened, and a seed is neither begun nor complete since.
    fn are_in_place(
        &self,
        opened: &[(String, Box<dyn DiskFile>)],
        has_snapshot: bool,
        before: &[String],
        after: &[String],
    ) -> Result<bool, StorageError> {
        for (name, file) in opened.iter().skip(usize::from(has_snapshot)) {
            let is_same = self.source.open(name).and_then(|now| Ok(now.identity()? == file.identity()?));
            match is_same {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(kind) if kind.is_not_found() => return Ok(false),
                Err(kind) => return Err(self.of_source(kind.of_file(name))),
            }
        }
        let is_seeding = |names: &[String]| names.iter().any(|name| name == SEEDING_NAME);
        Ok(is_seeding(before) == is_seeding(after))
    }

    fn copy_file(&self, name: &str, file: &dyn DiskFile) -> Result<(), StorageError> {
        let of_source = |error: io::Error| self.of_source(StorageErrorKind::from(error).of_file(name));
        let of_target = |error: io::Error| self.of_target(StorageErrorKind::from(error).of_file(name));
        let bytes = file.bytes().map_err(of_source)?;
        let copy = self.target.create(name).map_err(|kind| self.of_target(kind.of_file(name)))?;
        copy.set_len(bytes).map_err(of_target)?;
        let (mut at, mut part) = (0, vec![0; self.part_bytes]);
        while at < bytes {
            if (self.is_canceled)() {
                return Err(self.of_target(io::Error::from(io::ErrorKind::Interrupted).into()));
            }
            let left = usize::try_from(bytes.saturating_sub(at)).unwrap_or(usize::MAX);
            part.truncate(left);
            file.read(at, &mut part).map_err(of_source)?;
            // The rest of a segment is zeros, which take no room in the copy.
            if part.iter().any(|byte| *byte != 0) {
                copy.write(at, &part).map_err(of_target)?;
            }
            at = at.saturating_add(part.len() as u64);
        }
        copy.sync().map_err(of_target)?;
        match copy.drop_cache() {
            // As at a start: some systems have no such call.
            Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(of_target(error)),
            _ => Ok(()),
        }
    }

    /// Verifies the copy, removes what is behind the groups, and makes it durable.
    fn complete(&self, mark: &[u8], is_seeding: bool) -> Result<CopyReport, StorageErrorKind> {
        let target = self.target;
        let lock = target.open(LOCK_NAME)?;
        lock.set_len(0)?;
        target.write_lock(mark)?;
        lock.sync()?;
        if is_seeding {
            target.create(SEEDING_NAME)?.sync()?;
        }
        let contents = reading::read(target)?;
        if let Some(corruption) = contents.corruption {
            return Err(StorageErrorKind::Corrupt(corruption));
        }
        let keys = count_keys(target, &contents)?;
        for (number, segment) in contents.segments.iter().enumerate() {
            let name = log_name(segment.number);
            // The first one belongs to the snapshot.
            match segment.end == 0 && number > 0 {
                true => target.remove(&name)?,
                false => {
                    let file = target.open(&name)?;
                    file.set_len(segment.end)?;
                    file.sync()?;
                }
            }
        }
        target.sync_names()?;
        Ok(CopyReport {
            snapshot_bytes: contents.snapshot.map_or(0, |snapshot| snapshot.bytes),
            log_bytes: contents.log_bytes,
            keys,
            written_ms: contents.metadata.wall_ms,
            others: Vec::new(),
        })
    }
}

/// Reads the snapshot, and counts the keys of the store.
fn count_keys(disk: &dyn Disk, contents: &Contents) -> Result<usize, StorageErrorKind> {
    let count = |content: &Bytes| match KeyState::decode(content.clone()) {
        Some(state) => Ok(usize::from(!state.is_tombstone())),
        None => Err(StorageErrorKind::malformed_record("the copy")),
    };
    let mut keys = 0_usize;
    for content in contents.keys.values().flatten() {
        keys = keys.saturating_add(count(content)?);
    }
    if let Some(snapshot) = &contents.snapshot {
        reading::read_snapshot(disk, snapshot, |entry| {
            if let (Place::Key(key), Some(content)) = (&entry.place, &entry.content)
                && !contents.keys.contains_key(key)
            {
                keys = keys.saturating_add(count(content)?);
            }
            Ok(())
        })?;
    }
    Ok(keys)
}

/// Returns the names that no store has.
fn others(names: Vec<String>) -> Vec<String> {
    let mut others: Vec<_> = names.into_iter().filter(|name| !Names::has(name)).collect();
    others.sort_unstable();
    others
}
