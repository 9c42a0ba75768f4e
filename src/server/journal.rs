//! What must survive a restart, on disk: one file, written in groups, read once.

mod disk;
mod error;
mod guard;
mod medium;
pub mod offline;
mod row;
#[cfg(test)]
pub mod simulated;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use redb::{
    Database, ReadableDatabase, ReadableTable, StorageBackend as _, TableDefinition, WriteTransaction,
};

use crate::protocol::Key;
use crate::store::{Change, Content, Kept, Now, Version};

use disk::Disk;
pub use error::{JournalError, JournalErrorKind};
use guard::guarded;
use medium::{Folder, Medium};
use row::Row;

/// The file's name in the directory that the operator names.
pub const FILE_NAME: &str = "store.redb";
/// Whoever has this one locked has the directory.
const LOCK_NAME: &str = "store.lock";
/// What is not finished yet.
const NEW_NAME: &str = "store.redb.new";
/// The layout of the tables below. Another one is refused, never guessed at.
const FORMAT: u64 = 2;
/// The map in memory serves; the file is read once.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// By how much the clock may be behind that the file knows.
const PAST_AGE_MS_MAX: u64 = 1_000;

const FORMATS: TableDefinition<(), u64> = TableDefinition::new("format");
/// The key again, and a [`Row`].
const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");
/// [`Past`]: milliseconds and counter of the greatest version, and the clock. Where the rows say it as well, it is left as
/// it is for a while: it is one page more to be written, of few.
const PAST: TableDefinition<(), (u64, u32, u64)> = TableDefinition::new("past");

/// The file of one server. No other process can open it meanwhile.
#[derive(Debug)]
pub struct Journal {
    medium: Box<dyn Medium>,
    /// None after a failure: see [`Journal::reopen`].
    open: Option<Open>,
    /// Whether what the system says is in the file cannot be believed.
    is_doubtful: bool,
    past: Past,
    /// How long the file was after the last commit.
    len: u64,
}

#[derive(Debug)]
struct Open {
    database: Database,
    disk: Disk,
}

/// What is known of the time before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// The greatest version ever given out: a key that is gone must not come back with a lower one (protocol §4).
    /// Until [`Journal::load`] that of a row may be greater.
    pub greatest: Version,
    /// What the clock said at a commit, the last one or one at most [`PAST_AGE_MS_MAX`] before it, in Unix milliseconds;
    /// 0 if there was none.
    pub wall_ms: u64,
}

impl Journal {
    /// Opens the file in a directory; makes both, for their owner only, where they are missing.
    ///
    /// # Errors
    /// [`JournalError`] of any kind. A file that is not whole has not been touched.
    pub fn open(directory: &Path) -> Result<Self, JournalError> {
        let error = |kind| JournalError { path: directory.join(FILE_NAME), kind };
        Self::open_on(Box::new(Folder::take(directory).map_err(error)?))
    }

    /// The same wherever the file is.
    ///
    /// # Errors
    /// [`JournalError`] of any kind.
    pub fn open_on(mut medium: Box<dyn Medium>) -> Result<Self, JournalError> {
        match guarded(|| connect(&mut *medium, u64::MAX)) {
            Ok((open, past)) => {
                let len = open.len();
                Ok(Self { medium, open: Some(open), is_doubtful: false, past, len })
            }
            Err(kind) => Err(JournalError { path: medium.path(), kind }),
        }
    }

    /// What is known of the time before, and of what has been committed since.
    #[must_use]
    pub fn past(&self) -> Past {
        self.past
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.medium.path()
    }

    /// Hands over every key. A deadline that has passed meanwhile is at `now` or before; one that lies ahead is at
    /// most as far away as it was when it was written, should the machine's clock have gone back since.
    ///
    /// # Errors
    /// [`JournalError`] if the file cannot be read or holds what no store has written.
    pub fn load(
        &mut self,
        now: Now,
        mut each: impl FnMut(Key, Version, Content),
    ) -> Result<(), JournalError> {
        let mut greatest = self.past.greatest;
        let read = || {
            let open = self.open.as_ref().ok_or_else(closed)?;
            rows(&open.database, |row| {
                let content = row.content(now);
                greatest = greatest.max(row.version);
                each(row.key, row.version, content);
            })
        };
        guarded(read).map_err(|kind| self.error(kind))?;
        self.past.greatest = greatest;
        Ok(())
    }

    /// Commits changes in their order, all or none, and the greatest version that there is; when this returns, they are
    /// on the disk.
    ///
    /// # Errors
    /// [`JournalError`]: it is not known what of them is there, and no later one is taken before
    /// [`Journal::reopen`] or [`Journal::rewrite`].
    pub fn commit(&mut self, changes: &[Change], greatest: Version, now: Now) -> Result<(), JournalError> {
        let latest = changes.iter().map(|change| change.version).max().unwrap_or_default();
        let greatest = self.past.greatest.max(greatest).max(latest);
        // Of keys that are removed no row says what version they had.
        let is_removal = changes.iter().any(|change| change.content.is_none());
        let is_said = latest == greatest && !is_removal;
        let is_recent = now.wall_ms.abs_diff(self.past.wall_ms) < PAST_AGE_MS_MAX;
        let wall_ms = if is_said && is_recent { self.past.wall_ms } else { now.wall_ms };
        let past = Past { greatest, wall_ms };
        let committed = guarded(|| {
            let write = self.open.as_ref().ok_or_else(closed)?.database.begin_write()?;
            {
                let mut rows = write.open_table(ROWS)?;
                for Change { key, version, content, .. } in changes {
                    match content {
                        Some(content) => {
                            let row = Row::new(key, *version, content, now).encode();
                            rows.insert(key.as_bytes(), row.as_slice())?;
                        }
                        None => drop(rows.remove(key.as_bytes())?),
                    }
                }
            }
            if !(is_said && is_recent) {
                write_past(&write, past)?;
            }
            write.commit()?;
            Ok(())
        });
        match committed {
            Ok(()) => {
                self.past = past;
                self.len = self.open.as_ref().map_or(u64::MAX, Open::len);
            }
            Err(kind) => return Err(self.fail(kind)),
        }
        Ok(())
    }

    /// Whether it takes changes.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether only [`Journal::rewrite`] leads back to a file that can be believed: after a sync that has failed, the
    /// system takes for written what is not (the man page of fsync has it, "error handling").
    #[must_use]
    pub fn must_rewrite(&self) -> bool {
        self.is_doubtful
    }

    /// Opens the file again after a failure. The changes of the commit that has failed may be in it or not.
    ///
    /// # Errors
    /// [`JournalError`]; if the file has shown to be damaged, it must be rewritten.
    pub fn reopen(&mut self) -> Result<(), JournalError> {
        // What the failed commit has put at the end takes room, on a disk that has none. If it cannot be done without,
        // it has not failed altogether.
        let opened = guarded(|| connect(&mut *self.medium, self.len));
        let opened = opened.or_else(|kind| match kind {
            JournalErrorKind::Damaged(_) => guarded(|| connect(&mut *self.medium, u64::MAX)),
            kind => Err(kind),
        });
        match opened {
            Ok((open, past)) => {
                self.past.greatest = self.past.greatest.max(past.greatest);
                self.open = Some(open);
                Ok(())
            }
            Err(kind) => {
                self.is_doubtful |= matches!(kind, JournalErrorKind::Damaged(_));
                Err(self.error(kind))
            }
        }
    }

    /// Puts a new file in the place of this one, with what comes in portions until there is no more.
    ///
    /// # Errors
    /// [`JournalError`]; the file that was there is there still, as far as that can be known.
    pub fn rewrite(
        &mut self,
        mut portions: impl FnMut() -> Option<Vec<Kept>>,
        now: Now,
    ) -> Result<(), JournalError> {
        let rows = || {
            let kept = portions()?;
            let row = |(key, version, content)| Row::new(&key, version, &content, now);
            Some(kept.into_iter().map(row).collect())
        };
        let past = Past { wall_ms: now.wall_ms, ..self.past };
        self.open = None;
        match guarded(|| make(&mut *self.medium, rows, past)) {
            Ok(open) => {
                self.len = open.len();
                (self.open, self.is_doubtful, self.past) = (Some(open), false, past);
                Ok(())
            }
            Err(kind) => Err(self.error(kind)),
        }
    }

    /// After a failure nothing more is to be done with what is open: the storage crate would refuse it anyway.
    fn fail(&mut self, kind: JournalErrorKind) -> JournalError {
        if let Some(open) = self.open.take() {
            self.is_doubtful |= open.disk.has_failed_sync();
        }
        self.error(kind)
    }

    fn error(&self, kind: JournalErrorKind) -> JournalError {
        JournalError { path: self.medium.path(), kind }
    }
}

impl Open {
    /// How long the file is; if that cannot be known, nothing is cut off.
    fn len(&self) -> u64 {
        self.disk.len().unwrap_or(u64::MAX)
    }
}

/// Opens what is there, without what is beyond a length, and touches it only once it has shown to be whole; makes it
/// where nothing is.
fn connect(medium: &mut dyn Medium, len_max: u64) -> Result<(Open, Past), JournalErrorKind> {
    let Some(below) = medium.open()? else {
        let open = make(medium, || None, Past::default())?;
        return Ok((open, Past::default()));
    };
    let disk = Disk::holding(below)?;
    if disk.len()? > len_max {
        disk.set_len(len_max)?;
    }
    let database = check(&disk)?;
    let past = read_past(&database)?;
    disk.release()?;
    Ok((Open { database, disk }, past))
}

/// Opens and reads everything: the storage crate believes its pages, and one that is damaged would be a panic later.
fn check(disk: &Disk) -> Result<Database, JournalErrorKind> {
    let mut database = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(disk.clone())?;
    if !database.check_integrity()? {
        return Err(JournalErrorKind::Damaged("what was written last makes no sense".to_owned()));
    }
    Ok(database)
}

/// Makes a file that is there with all its rows, or not at all.
fn make(
    medium: &mut dyn Medium,
    portions: impl FnMut() -> Option<Vec<Row>>,
    past: Past,
) -> Result<Open, JournalErrorKind> {
    let made = make_beside(medium, portions, past).and_then(|open| {
        medium.install()?;
        Ok(open)
    });
    if made.is_err() {
        medium.discard();
    }
    made
}

fn make_beside(
    medium: &mut dyn Medium,
    mut portions: impl FnMut() -> Option<Vec<Row>>,
    past: Past,
) -> Result<Open, JournalErrorKind> {
    let disk = Disk::direct(medium.create()?);
    let database = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(disk.clone())?;
    let write = database.begin_write()?;
    write.open_table(FORMATS)?.insert((), FORMAT)?;
    {
        let mut rows = write.open_table(ROWS)?;
        while let Some(portion) = portions() {
            for row in portion {
                rows.insert(row.key.as_bytes(), row.encode().as_slice())?;
            }
        }
    }
    write_past(&write, past)?;
    write.commit()?;
    Ok(Open { database, disk })
}

fn write_past(write: &WriteTransaction, past: Past) -> Result<(), JournalErrorKind> {
    let Past { greatest: Version { ms, counter }, wall_ms } = past;
    write.open_table(PAST)?.insert((), (ms, counter, wall_ms))?;
    Ok(())
}

fn read_past(database: &Database) -> Result<Past, JournalErrorKind> {
    let read = database.begin_read()?;
    match read.open_table(FORMATS)?.get(())?.map(|format| format.value()) {
        Some(FORMAT) => {}
        Some(other) => return Err(JournalErrorKind::OtherFormat(other)),
        None => return Err(JournalErrorKind::Damaged("it has no format".to_owned())),
    }
    let past = read.open_table(PAST)?.get(())?.map(|past| past.value());
    let (ms, counter, wall_ms) = past.unwrap_or_default();
    Ok(Past { greatest: Version { ms, counter }, wall_ms })
}

fn rows(database: &Database, mut each: impl FnMut(Row)) -> Result<(), JournalErrorKind> {
    for entry in database.begin_read()?.open_table(ROWS)?.iter()? {
        let (key, row) = entry?;
        let row = Row::decode(row.value()).filter(|row| row.key.as_bytes() == key.value());
        each(row.ok_or_else(|| JournalErrorKind::Damaged("a row makes no sense".to_owned()))?);
    }
    Ok(())
}

fn closed() -> JournalErrorKind {
    JournalErrorKind::Other("it is closed after a failure".to_owned())
}
