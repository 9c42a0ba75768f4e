//! What must survive a restart, on disk: tables of all keys, and a log of what has changed since. Read once, written in
//! groups.

mod disk;
mod error;
mod medium;
pub mod offline;
mod panic_guard;
mod record;
#[cfg(test)]
pub mod simulated;
mod tables;
#[cfg(test)]
mod tests;
mod wal;

use std::io;
use std::path::{Path, PathBuf};

use crate::protocol::Key;
use crate::store::{Change, Now, PersistentEntry, StoredValue, Version};

use disk::Doubt;
pub use error::{StorageError, StorageErrorKind};
use medium::{Folder, Medium};
use panic_guard::guarded;
use record::Row;
use tables::{Mark, Tables};
pub use wal::LogPolicy;
use wal::{Entries, Log};

/// The file's name in the directory that the operator names.
pub const FILE_NAME: &str = "store.redb";
/// That of the log beside it.
const LOG_NAME: &str = "store.log";
/// Whoever has this one locked has the directory.
const LOCK_NAME: &str = "store.lock";
/// What is not finished yet.
const NEW_NAME: &str = "store.redb.new";

/// The files of one server. No other process can open them meanwhile.
#[derive(Debug)]
pub struct Storage {
    medium: Box<dyn Medium>,
    policy: LogPolicy,
    /// None after a failure: see [`Storage::reopen`].
    open: Option<Open>,
    /// Whether what the system says is in the files cannot be believed.
    doubt: Doubt,
    past: Past,
    /// How long the file of the tables was after the last commit.
    len: u64,
}

#[derive(Debug)]
struct Open {
    tables: Tables,
    /// None, if the tables are all there is.
    log: Option<Log>,
    /// What the log holds and the tables do not.
    pending: Entries,
    /// How many commits there were without a log.
    bare: u32,
}

/// What is known of the time before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// The greatest version ever given out: a key that is gone must not come back with a lower one (protocol §4).
    pub greatest: Version,
    /// What the clock said at the last commit, in Unix milliseconds; 0 if there was none.
    pub wall_ms: u64,
}

impl Storage {
    /// Opens the files in a directory; makes it, and the first of them, for their owner only, where they are missing.
    ///
    /// # Errors
    /// [`StorageError`] of any kind. What is not whole has not been touched.
    pub fn open(directory: &Path) -> Result<Self, StorageError> {
        let error = |kind| StorageError { path: directory.join(FILE_NAME), kind };
        Self::open_on(Box::new(Folder::take(directory).map_err(error)?), LogPolicy::default())
    }

    /// The same wherever the files are. The policy must be that of whoever had them before.
    ///
    /// # Errors
    /// [`StorageError`] of any kind.
    pub fn open_on(mut medium: Box<dyn Medium>, policy: LogPolicy) -> Result<Self, StorageError> {
        let doubt = Doubt::default();
        let opened = guarded(|| {
            let there = connect(&mut *medium, policy, &doubt, u64::MAX)?;
            let made =
                || Ok((Open::of(make(&mut *medium, &doubt, || None, Past::default())?), Past::default()));
            there.map_or_else(made, Ok)
        });
        match opened {
            Ok((open, past)) => {
                let len = open.tables.len();
                Ok(Self { medium, policy, open: Some(open), doubt, past, len })
            }
            Err(kind) => Err(StorageError { path: medium.path(), kind }),
        }
    }

    /// What is known of the time before, and of what has been committed since.
    #[must_use]
    pub fn past(&self) -> Past {
        self.past
    }

    /// The file of the tables.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.medium.path()
    }

    /// Hands over every key. A deadline that has passed meanwhile is at `now` or before; one that lies ahead is at
    /// most as far away as it was when it was written, should the machine's clock have gone back since.
    ///
    /// # Errors
    /// [`StorageError`] if the file cannot be read or holds what no store has written.
    pub fn load(
        &self,
        now: Now,
        mut each: impl FnMut(Key, Version, StoredValue),
    ) -> Result<(), StorageError> {
        let mut hand_over = |row: Row| {
            let content = row.content(now);
            each(row.key, row.version, content);
        };
        let read = || {
            let Open { tables, pending, .. } = self.open.as_ref().ok_or_else(closed)?;
            tables.read(|row| {
                if !pending.contains_key(&row.key) {
                    hand_over(row);
                }
            })?;
            pending.values().flatten().filter_map(|row| Row::decode(row)).for_each(hand_over);
            Ok(())
        };
        guarded(read).map_err(|kind| self.error(kind))
    }

    /// The row of one key, if there is such a key.
    fn row(&self, key: &Key) -> Result<Option<Row>, StorageError> {
        let read = || {
            let Open { tables, pending, .. } = self.open.as_ref().ok_or_else(closed)?;
            match pending.get(key) {
                Some(row) => Ok(row.as_ref().and_then(|row| Row::decode(row))),
                None => tables.row(key),
            }
        };
        guarded(read).map_err(|kind| self.error(kind))
    }

    /// Commits changes in their order, all or none, and the greatest version that there is; when this returns, they are
    /// on the disk.
    ///
    /// # Errors
    /// [`StorageError`]: it is not known what of them is there, and no later one is taken before
    /// [`Storage::reopen`] or [`Storage::rewrite`].
    pub fn commit(&mut self, changes: &[Change], greatest: Version, now: Now) -> Result<(), StorageError> {
        let versions = changes.iter().map(|change| change.version);
        let greatest = versions.fold(self.past.greatest.max(greatest), Version::max);
        let past = Past { greatest, wall_ms: now.wall_ms };
        let entry = |Change { key, version, content, .. }: &Change| {
            let row = content.as_ref().map(|content| Row::new(key, *version, content, now).encode());
            (key.clone(), row)
        };
        let entries = changes.iter().map(entry).collect();
        let committed = guarded(|| {
            let open = self.open.as_mut().ok_or_else(closed)?;
            open.commit(entries, past, &mut *self.medium, self.policy, &self.doubt)?;
            Ok(open.tables.len())
        });
        match committed {
            Ok(len) => {
                (self.past, self.len) = (past, len);
                Ok(())
            }
            // After a failure nothing more is to be done with what is open.
            Err(kind) => {
                self.open = None;
                Err(self.error(kind))
            }
        }
    }

    /// Whether it takes changes.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether only [`Storage::rewrite`] leads back to files that can be believed: after a sync that has failed, the
    /// system takes for written what is not (the man page of fsync has it, "error handling").
    #[must_use]
    pub fn must_rewrite(&self) -> bool {
        self.doubt.is_there()
    }

    /// Opens the files again after a failure. The changes of the commit that has failed may be in them or not.
    ///
    /// # Errors
    /// [`StorageError`]; if they have shown to be damaged, they must be rewritten.
    pub fn reopen(&mut self) -> Result<(), StorageError> {
        // What the failed commit has put at the end takes room, on a disk that has none. If it cannot be done without,
        // it has not failed altogether.
        let mut connect = |len_max| {
            let there = guarded(|| connect(&mut *self.medium, self.policy, &self.doubt, len_max))?;
            there.ok_or_else(|| StorageErrorKind::Corrupt("it is missing".to_owned()))
        };
        let opened =
            connect(self.len).or_else(|kind| if kind.is_corrupt() { connect(u64::MAX) } else { Err(kind) });
        match opened {
            Ok((open, past)) => {
                self.past.greatest = self.past.greatest.max(past.greatest);
                self.open = Some(open);
                Ok(())
            }
            Err(kind) => {
                if kind.is_corrupt() {
                    self.doubt.raise();
                }
                Err(self.error(kind))
            }
        }
    }

    /// Puts a new file in the place of all that there is, with what comes in portions until there is no more.
    ///
    /// # Errors
    /// [`StorageError`]; the files that were there are there still, as far as that can be known.
    pub fn rewrite(
        &mut self,
        mut portions: impl FnMut() -> Option<Vec<PersistentEntry>>,
        now: Now,
    ) -> Result<(), StorageError> {
        let rows = || {
            let kept = portions()?;
            let row = |(key, version, content)| Row::new(&key, version, &content, now);
            Some(kept.into_iter().map(row).collect())
        };
        let past = Past { wall_ms: now.wall_ms, ..self.past };
        self.open = None;
        // It is new, and so are its doubts.
        let doubt = Doubt::default();
        match guarded(|| make(&mut *self.medium, &doubt, rows, past)) {
            Ok(tables) => {
                self.medium.remove_log();
                (self.len, self.past, self.doubt) = (tables.len(), past, doubt);
                self.open = Some(Open::of(tables));
                Ok(())
            }
            Err(kind) => Err(self.error(kind)),
        }
    }

    /// Ends it in good order: the tables are all there is then.
    ///
    /// # Errors
    /// [`StorageError`]; nothing is lost: what the tables lack is in the log.
    pub fn close(self) -> Result<(), StorageError> {
        self.close_with(Entries::new())
    }

    fn close_with(mut self, entries: Entries) -> Result<(), StorageError> {
        let Some(mut open) = self.open.take().filter(|open| open.log.is_some() || !entries.is_empty()) else {
            return Ok(());
        };
        let closed = guarded(|| {
            open.pending.extend(entries);
            open.tables.commit(&open.pending, Mark { past: self.past, tag: None })
        });
        closed.map_err(|kind| self.error(kind))?;
        self.medium.remove_log();
        Ok(())
    }

    /// How many groups the log holds; none, if there is no log.
    #[cfg(test)]
    pub fn logged(&self) -> Option<u64> {
        self.open.as_ref()?.log.as_ref().map(Log::groups)
    }

    fn error(&self, kind: StorageErrorKind) -> StorageError {
        StorageError { path: self.medium.path(), kind }
    }
}

impl Open {
    fn of(tables: Tables) -> Self {
        Self { tables, log: None, pending: Entries::new(), bare: 0 }
    }

    /// Into the log while there is room, and with all that is in it into the tables when there is none.
    fn commit(
        &mut self,
        entries: Entries,
        past: Past,
        medium: &mut dyn Medium,
        policy: LogPolicy,
        doubt: &Doubt,
    ) -> Result<(), StorageErrorKind> {
        if let Some(log) = &mut self.log
            && log.append(&entries, past)?
        {
            self.pending.extend(entries);
            return Ok(());
        }
        self.pending.extend(entries);
        self.bare = self.bare.saturating_add(1);
        if self.log.is_none() && self.bare >= policy.commits_before {
            self.bare = 0;
            self.log = begin_log(medium, policy, doubt);
        }
        let tag = self.log.is_some().then(|| medium.draw_tag());
        self.tables.commit(&self.pending, Mark { past, tag })?;
        self.pending.clear();
        if let (Some(log), Some(tag)) = (&mut self.log, tag) {
            log.restart(tag);
        }
        Ok(())
    }
}

/// It saves time, nothing else: without room for it, or whatever is the matter, the tables do.
fn begin_log(medium: &mut dyn Medium, policy: LogPolicy, doubt: &Doubt) -> Option<Log> {
    let begun = medium.create_log().and_then(|below| Ok(Log::create(below, policy, doubt)?));
    if begun.is_err() {
        medium.remove_log();
    }
    begun.ok()
}

/// Opens what is there, if anything is, the tables without what is beyond a length, and touches it only once it has shown
/// to be whole.
fn connect(
    medium: &mut dyn Medium,
    policy: LogPolicy,
    doubt: &Doubt,
    len_max: u64,
) -> Result<Option<(Open, Past)>, StorageErrorKind> {
    let Some(below) = medium.open()? else {
        // The tables are there before a log is, and are never taken away.
        if medium.log().map_err(of_log)?.is_some() {
            return Err(without_tables());
        }
        return Ok(None);
    };
    let (tables, Mark { mut past, tag }) = Tables::open(below, doubt, len_max)?;
    let mut open = Open::of(tables);
    if let Some(tag) = tag {
        let below = medium.log().map_err(of_log)?;
        let below = below.ok_or_else(|| StorageErrorKind::CorruptWal(format!("{LOG_NAME} is missing")))?;
        let (log, found) = Log::open(below, policy, doubt, tag).map_err(of_log)?;
        past = found.past.unwrap_or(past);
        open.log = Some(log);
        open.pending = found.entries;
    }
    open.tables.release()?;
    if tag.is_none() {
        // One that they never came to name, or name no more, takes room.
        medium.remove_log();
    }
    Ok(Some((open, past)))
}

/// Makes a file that is there with all its rows, or not at all.
fn make(
    medium: &mut dyn Medium,
    doubt: &Doubt,
    portions: impl FnMut() -> Option<Vec<Row>>,
    past: Past,
) -> Result<Tables, StorageErrorKind> {
    let made = medium.create().and_then(|below| Tables::create(below, doubt, portions, past));
    let made = made.and_then(|tables| {
        medium.install()?;
        Ok(tables)
    });
    if made.is_err() {
        medium.discard();
    }
    made
}

fn without_tables() -> StorageErrorKind {
    StorageErrorKind::Corrupt(format!("it is missing, and {LOG_NAME} is not"))
}

/// The error will name the tables.
fn of_log(kind: StorageErrorKind) -> StorageErrorKind {
    match kind {
        StorageErrorKind::Io(error) => {
            StorageErrorKind::Io(io::Error::new(error.kind(), format!("{LOG_NAME}: {error}")))
        }
        other => other,
    }
}

fn closed() -> StorageErrorKind {
    StorageErrorKind::Other("it is closed after a failure".to_owned())
}
