//! What must survive a restart, on disk: the only file that names the storage crate.

use std::cell::Cell;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, TableDefinition};

use crate::protocol::{Key, Timestamp, Value};
use crate::store::{Change, Content, Now, Version};

/// The file's name in the directory that the operator names.
pub const FILE_NAME: &str = "store.redb";
/// The layout of the tables below. Another one is refused, never guessed at.
const FORMAT: u64 = 1;
/// The map in memory serves; the file is read once.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// A row: milliseconds and counter of the version, deadline, fence, value.
///
/// A deadline is the Unix milliseconds at which it passes, and how many were left when it was written.
type Row = (u64, u32, Option<(u64, u64)>, Option<&'static str>, &'static [u8]);

const FORMATS: TableDefinition<(), u64> = TableDefinition::new("format");
const ENTRIES: TableDefinition<&[u8], Row> = TableDefinition::new("entries");
/// The greatest version ever given out: a key that is gone must not come back with a lower one (protocol §4).
const GREATEST: TableDefinition<(), (u64, u32)> = TableDefinition::new("greatest");

/// The open file of one server. No other process can open it meanwhile.
#[derive(Debug)]
pub struct Journal {
    database: Database,
    path: PathBuf,
    greatest: Version,
}

/// Why the file cannot be opened, read or written.
#[derive(Debug)]
pub struct JournalError {
    /// The file.
    pub path: PathBuf,
    /// The trouble.
    pub kind: JournalErrorKind,
}

/// What can be wrong with the file.
#[derive(Debug)]
pub enum JournalErrorKind {
    /// Another process has it open.
    InUse,
    /// It holds something else than it should, in these words.
    Damaged(String),
    /// It was written by another version of this program, in this format.
    OtherFormat(u64),
    /// The system refused.
    Io(io::Error),
    /// The storage crate refused, in these words.
    Other(String),
}

impl Journal {
    /// Opens the file in a directory; makes both, for their owner only, where they are missing.
    ///
    /// # Errors
    /// [`JournalError`] of any kind.
    pub fn open(directory: &Path) -> Result<Self, JournalError> {
        let path = directory.join(FILE_NAME);
        match guarded(|| Self::open_file(directory, &path)) {
            Ok((database, greatest)) => Ok(Self { database, path, greatest }),
            Err(kind) => Err(JournalError { path, kind }),
        }
    }

    fn open_file(directory: &Path, path: &Path) -> Result<(Database, Version), JournalErrorKind> {
        create_directory(directory)?;
        let file =
            owned(OpenOptions::new().read(true).write(true).create(true).truncate(false)).open(path)?;
        let mut database = Database::builder().set_cache_size(CACHE_BYTES).create_file(file)?;
        // The crate believes its pages: one that is damaged would be a panic later.
        database.check_integrity()?;
        sync_directory(directory)?;
        let write = database.begin_write()?;
        let greatest = {
            let mut formats = write.open_table(FORMATS)?;
            let format = formats.get(())?.map(|format| format.value());
            match format {
                Some(FORMAT) => {}
                Some(other) => return Err(JournalErrorKind::OtherFormat(other)),
                None => drop(formats.insert((), FORMAT)?),
            }
            write.open_table(ENTRIES)?;
            let greatest = write.open_table(GREATEST)?.get(())?.map(|greatest| greatest.value());
            let (ms, counter) = greatest.unwrap_or_default();
            Version { ms, counter }
        };
        write.commit()?;
        Ok((database, greatest))
    }

    /// The greatest version that was ever committed.
    #[must_use]
    pub fn greatest_version(&self) -> Version {
        self.greatest
    }

    /// Hands over every key. A deadline that has passed meanwhile is at `now` or before; one that lies ahead is at
    /// most as far away as it was when it was written, should the machine's clock have gone back since.
    ///
    /// # Errors
    /// [`JournalError`] if the file cannot be read or holds what no store has written.
    pub fn load(&self, now: Now, mut each: impl FnMut(Key, Version, Content)) -> Result<(), JournalError> {
        let damaged = |error: &dyn fmt::Display| JournalErrorKind::Damaged(error.to_string());
        let rows = || {
            let read = self.database.begin_read()?;
            for row in read.open_table(ENTRIES)?.iter()? {
                let (key, row) = row?;
                let (ms, counter, deadline, fence, value) = row.value();
                let key = Key::new(key.value().to_vec()).map_err(|error| damaged(&error))?;
                let fence = fence.map(str::parse::<Timestamp>).transpose();
                let content = Content {
                    value: Value::copy_from_slice(value),
                    fence: fence.map_err(|error| damaged(&error))?,
                    deadline_ms: deadline.map(|deadline| monotonic_deadline(deadline, now)),
                };
                each(key, Version { ms, counter }, content);
            }
            Ok(())
        };
        guarded(rows).map_err(|kind| self.error(kind))
    }

    /// Commits changes in their order, all or none; when this returns, they are on the disk.
    ///
    /// # Errors
    /// [`JournalError`]: none of them may be believed to be there, and no later one will be taken.
    pub fn commit<'a>(
        &mut self,
        changes: impl IntoIterator<Item = &'a Change>,
        now: Now,
    ) -> Result<(), JournalError> {
        guarded(|| self.write(changes, now)).map_err(|kind| self.error(kind))
    }

    fn write<'a>(
        &mut self,
        changes: impl IntoIterator<Item = &'a Change>,
        now: Now,
    ) -> Result<(), JournalErrorKind> {
        let write = self.database.begin_write()?;
        {
            let mut entries = write.open_table(ENTRIES)?;
            for Change { key, version, content, .. } in changes {
                self.greatest = self.greatest.max(*version);
                let Some(content) = content else {
                    entries.remove(key.as_bytes())?;
                    continue;
                };
                let fence = content.fence.as_ref().map(Timestamp::to_string);
                let deadline = content.deadline_ms.map(|at| wall_deadline(at, now));
                let row = (version.ms, version.counter, deadline, fence.as_deref(), &content.value[..]);
                entries.insert(key.as_bytes(), row)?;
            }
            let Version { ms, counter } = self.greatest;
            write.open_table(GREATEST)?.insert((), (ms, counter))?;
        }
        write.commit()?;
        Ok(())
    }

    fn error(&self, kind: JournalErrorKind) -> JournalError {
        JournalError { path: self.path.clone(), kind }
    }
}

/// Rounded up by the millisecond that two truncated clocks may differ by: late rather than early.
fn wall_deadline(monotonic_ms: u64, now: Now) -> (u64, u64) {
    let left_ms = monotonic_ms.saturating_sub(now.monotonic_ms).saturating_add(1);
    (now.wall_ms.saturating_add(left_ms), left_ms)
}

fn monotonic_deadline((wall_ms, left_ms): (u64, u64), now: Now) -> u64 {
    let left_ms = wall_ms.saturating_sub(now.wall_ms).min(left_ms);
    now.monotonic_ms.saturating_add(left_ms)
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Damage that the storage crate does not see coming is a panic of its. It becomes an error, and is told as one.
fn guarded<T>(action: impl FnOnce() -> Result<T, JournalErrorKind>) -> Result<T, JournalErrorKind> {
    static HUSHED: Once = Once::new();
    HUSHED.call_once(|| {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                tell(panic);
            }
        }));
    });
    GUARDED.set(true);
    let caught = catch_unwind(AssertUnwindSafe(action));
    GUARDED.set(false);
    caught.unwrap_or_else(|_| Err(JournalErrorKind::Damaged("a page makes no sense".to_owned())))
}

#[cfg(unix)]
fn owned(options: &mut OpenOptions) -> &mut OpenOptions {
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600)
}

#[cfg(not(unix))]
fn owned(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

fn create_directory(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory).map_err(|error| match error.kind() {
        // What exists is something else.
        io::ErrorKind::AlreadyExists => io::ErrorKind::NotADirectory.into(),
        _ => error,
    })
}

/// Makes sure that the file can still be found after a power cut.
fn sync_directory(directory: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

impl From<io::Error> for JournalErrorKind {
    fn from(error: io::Error) -> Self {
        // What is no file of this kind is reported so.
        if error.kind() == io::ErrorKind::InvalidData {
            Self::Damaged(error.to_string())
        } else {
            Self::Io(error)
        }
    }
}

impl From<redb::Error> for JournalErrorKind {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::DatabaseAlreadyOpen => Self::InUse,
            redb::Error::Io(error) => error.into(),
            error @ (redb::Error::Corrupted(_)
            | redb::Error::TableTypeMismatch { .. }
            | redb::Error::TableIsMultimap(_)
            | redb::Error::TypeDefinitionChanged { .. }
            | redb::Error::UpgradeRequired(_)) => Self::Damaged(error.to_string()),
            error => Self::Other(error.to_string()),
        }
    }
}

macro_rules! from_each {
    ($($error:ty),*) => {
        $(impl From<$error> for JournalErrorKind {
            fn from(error: $error) -> Self {
                redb::Error::from(error).into()
            }
        })*
    };
}

from_each!(DatabaseError, StorageError, redb::TransactionError, redb::TableError, redb::CommitError);

impl fmt::Display for JournalError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.kind {
            JournalErrorKind::InUse => write!(out, "{path} is in use by another process"),
            JournalErrorKind::Damaged(what) => write!(out, "{path} is damaged or no store: {what}"),
            JournalErrorKind::OtherFormat(format) => {
                write!(out, "{path} has format {format}; this version reads and writes format {FORMAT}")
            }
            JournalErrorKind::Io(error) => write!(out, "cannot use {path}: {error}"),
            JournalErrorKind::Other(what) => write!(out, "cannot use {path}: {what}"),
        }
    }
}

impl std::error::Error for JournalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            JournalErrorKind::Io(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const NOW: Now = Now { wall_ms: 1_000_000, monotonic_ms: 5_000 };

    fn change(key: &'static str, version_ms: u64, content: Option<Content>) -> Change {
        let version = Version { ms: version_ms, counter: 7 };
        Change { key: Key::new(key).unwrap(), version, content, persist: false, watchers: vec![] }
    }

    fn content(value: &'static str, ttl_ms: Option<u64>) -> Content {
        let deadline_ms = ttl_ms.map(|ttl_ms| NOW.monotonic_ms + ttl_ms);
        Content { value: value.into(), fence: Some(Timestamp::of_store(9, 2)), deadline_ms }
    }

    fn all(journal: &Journal, now: Now) -> Vec<(Key, Version, Content)> {
        let mut all = Vec::new();
        journal.load(now, |key, version, content| all.push((key, version, content))).unwrap();
        all
    }

    fn kind(directory: &Path) -> JournalErrorKind {
        Journal::open(directory).unwrap_err().kind
    }

    #[test]
    fn what_was_committed_is_there_when_the_file_is_opened_again() {
        let home = TempDir::new().unwrap();
        let directory = home.path().join("made/when/missing");
        let mut journal = Journal::open(&directory).unwrap();
        let changes = [
            change("gone", 40, Some(content("v", None))),
            change("kept", 20, Some(content("old", None))),
            change("kept", 30, Some(content("v", None))),
            change("gone", 40, None),
        ];
        journal.commit(&changes, NOW).unwrap();
        drop(journal);
        let journal = Journal::open(&directory).unwrap();
        let kept = (Key::new("kept").unwrap(), Version { ms: 30, counter: 7 }, content("v", None));
        assert_eq!(all(&journal, NOW), [kept]);
        assert_eq!(journal.greatest_version(), Version { ms: 40, counter: 7 });
    }

    #[test]
    fn a_deadline_is_kept_late_rather_than_early() {
        let home = TempDir::new().unwrap();
        let mut journal = Journal::open(home.path()).unwrap();
        journal.commit(&[change("k", 1, Some(content("v", Some(100))))], NOW).unwrap();
        let left = |wall_ms| {
            let now = Now { wall_ms, monotonic_ms: 3 };
            all(&journal, now)[0].2.deadline_ms.unwrap() - now.monotonic_ms
        };
        assert_eq!(left(NOW.wall_ms), 101);
        assert_eq!(left(NOW.wall_ms + 60), 41);
        assert_eq!(left(NOW.wall_ms + 1_000), 0);
        assert_eq!(left(0), 101, "the machine does not know the time yet");
    }

    #[test]
    fn a_second_opener_is_refused() {
        let home = TempDir::new().unwrap();
        let _first = Journal::open(home.path()).unwrap();
        let error = Journal::open(home.path()).unwrap_err();
        assert!(matches!(error.kind, JournalErrorKind::InUse));
        assert!(error.to_string().ends_with("store.redb is in use by another process"), "{error}");
    }

    #[test]
    fn another_format_is_refused() {
        let home = TempDir::new().unwrap();
        let journal = Journal::open(home.path()).unwrap();
        let write = journal.database.begin_write().unwrap();
        write.open_table(FORMATS).unwrap().insert((), 2).unwrap();
        write.commit().unwrap();
        drop(journal);
        assert!(matches!(kind(home.path()), JournalErrorKind::OtherFormat(2)));
    }

    #[test]
    fn what_is_no_store_is_refused() {
        let home = TempDir::new().unwrap();
        for garbage in ["x".repeat(10), "x".repeat(100_000)] {
            fs::write(home.path().join(FILE_NAME), garbage).unwrap();
            assert!(matches!(kind(home.path()), JournalErrorKind::Damaged(_)));
        }
        let occupied = home.path().join(FILE_NAME);
        assert!(matches!(kind(&occupied), JournalErrorKind::Io(_)));
    }

    /// Cuts and flips at many places: an error or an older state, never a panic.
    #[test]
    fn a_damaged_file_is_no_reason_to_panic() {
        let home = TempDir::new().unwrap();
        let mut journal = Journal::open(home.path()).unwrap();
        for round in 0..20 {
            journal.commit(&[change("k", round, Some(content("v", None)))], NOW).unwrap();
        }
        drop(journal);
        let path = home.path().join(FILE_NAME);
        let whole = fs::read(&path).unwrap();
        let damage = (0..60).flat_map(|part| {
            let at = whole.len() * part / 60;
            let mut flipped = whole.clone();
            flipped[at..(at + 64).min(whole.len())].iter_mut().for_each(|byte| *byte ^= 0x55);
            [whole[..at].to_vec(), flipped]
        });
        for bytes in damage {
            fs::write(&path, bytes).unwrap();
            if let Ok(mut journal) = Journal::open(home.path()) {
                let _ = journal.load(NOW, |_, _, _| {});
                let _ = journal.commit(&[change("k", 99, None)], NOW);
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_the_file() {
        use std::os::unix::fs::PermissionsExt;
        let home = TempDir::new().unwrap();
        let directory = home.path().join("new");
        let _journal = Journal::open(&directory).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&directory.join(FILE_NAME))), (0o700, 0o600));
    }
}
