//! The keys in the tables of the storage crate: opened only when all of it makes sense, and written in transactions.

use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition, WriteTransaction};

use super::Past;
use super::disk::{Disk, Doubt};
use super::error::StorageErrorKind;
use crate::protocol::Key;
use crate::server::storage::record::Row;
use crate::server::storage::wal::Entries;
use crate::store::Version;

/// The layout of the tables below, and of the log. Another one is refused, never guessed at.
pub const FORMAT: u64 = 3;
/// The map in memory serves; the file is read once.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

pub const FORMATS: TableDefinition<(), u64> = TableDefinition::new("format");
/// The key again, and a [`Row`].
pub const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");
/// [`Mark`]: milliseconds and counter of the greatest version, the clock, and the tag.
const MARKS: TableDefinition<(), (u64, u32, u64, Option<u64>)> = TableDefinition::new("mark");

/// The file of the storage crate, open.
#[derive(Debug)]
pub struct Tables {
    database: Database,
    disk: Disk,
}

/// Up to where the tables go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// What was known when they were written.
    pub past: Past,
    /// What the groups of the log begin with that are to be added to them; none, if they are all there is.
    pub tag: Option<u64>,
}

impl Tables {
    /// Opens what is there, without what is beyond a length. Nothing of it is touched before [`Tables::release`].
    ///
    /// # Errors
    /// [`StorageErrorKind`]: it cannot be read, makes no sense, or is of another format.
    pub fn open(
        below: Box<dyn StorageBackend>,
        doubt: &Doubt,
        len_max: u64,
    ) -> Result<(Self, Mark), StorageErrorKind> {
        let disk = Disk::holding(below, doubt)?;
        if disk.len()? > len_max {
            disk.set_len(len_max)?;
        }
        let database = check(&disk)?;
        let mark = read_mark(&database)?;
        Ok((Self { database, disk }, mark))
    }

    /// Writes what has put the file in order, if it had to be.
    ///
    /// # Errors
    /// The system's.
    pub fn release(&self) -> Result<(), StorageErrorKind> {
        Ok(self.disk.release()?)
    }

    /// Makes a file that is there with all its rows, or not at all.
    ///
    /// # Errors
    /// The system's.
    pub fn create(
        below: Box<dyn StorageBackend>,
        doubt: &Doubt,
        mut portions: impl FnMut() -> Option<Vec<Row>>,
        past: Past,
    ) -> Result<Self, StorageErrorKind> {
        let disk = Disk::direct(below, doubt);
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
        write_mark(&write, Mark { past, tag: None })?;
        write.commit()?;
        Ok(Self { database, disk })
    }

    /// Commits entries, all or none; when this returns, they are on the disk.
    ///
    /// # Errors
    /// The system's; nothing more is to be done with what is open then: the storage crate would refuse it.
    pub fn commit(&self, entries: &Entries, mark: Mark) -> Result<(), StorageErrorKind> {
        let write = self.database.begin_write()?;
        {
            let mut rows = write.open_table(ROWS)?;
            for (key, row) in entries {
                match row {
                    Some(row) => drop(rows.insert(key.as_bytes(), row.as_slice())?),
                    None => drop(rows.remove(key.as_bytes())?),
                }
            }
        }
        write_mark(&write, mark)?;
        Ok(write.commit()?)
    }

    /// Hands over each row.
    ///
    /// # Errors
    /// It cannot be read, or holds what no store has written.
    pub fn read(&self, each: impl FnMut(Row)) -> Result<(), StorageErrorKind> {
        read(&self.database, each)
    }

    /// That of one key.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn row(&self, key: &Key) -> Result<Option<Row>, StorageErrorKind> {
        let row = self.database.begin_read()?.open_table(ROWS)?.get(key.as_bytes())?;
        Ok(row.and_then(|row| Row::decode(row.value())))
    }

    /// How long the file is; if that cannot be known, there is no limit.
    pub fn len(&self) -> u64 {
        self.disk.len().unwrap_or(u64::MAX)
    }
}

/// Opens and reads everything: the storage crate believes its pages, and one that is damaged would be a panic later.
///
/// # Errors
/// [`StorageErrorKind`]: it cannot be read, or makes no sense.
pub fn check(disk: &Disk) -> Result<Database, StorageErrorKind> {
    let mut database = open_unchecked(disk)?;
    if !database.check_integrity()? {
        return Err(StorageErrorKind::Corrupt("what was written last makes no sense".to_owned()));
    }
    Ok(database)
}

/// Opens what may make no sense: whatever is done with it can be a panic.
///
/// # Errors
/// [`StorageErrorKind`]: not even that can be done.
pub fn open_unchecked(disk: &Disk) -> Result<Database, StorageErrorKind> {
    Ok(Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(disk.clone())?)
}

/// Reads up to where the tables go.
///
/// # Errors
/// It cannot be read, or is of another format.
pub fn read_mark(database: &Database) -> Result<Mark, StorageErrorKind> {
    let read = database.begin_read()?;
    match read.open_table(FORMATS)?.get(())?.map(|format| format.value()) {
        Some(FORMAT) => {}
        Some(other) => return Err(StorageErrorKind::UnsupportedFormat(other)),
        None => return Err(StorageErrorKind::Corrupt("it has no format".to_owned())),
    }
    let mark = read.open_table(MARKS)?.get(())?.map(|mark| mark.value());
    let mark = mark.ok_or_else(|| StorageErrorKind::Corrupt("it has no mark".to_owned()));
    let (ms, counter, wall_ms, tag) = mark?;
    Ok(Mark { past: Past { greatest: Version { ms, counter }, wall_ms }, tag })
}

fn write_mark(write: &WriteTransaction, mark: Mark) -> Result<(), StorageErrorKind> {
    let Mark { past: Past { greatest: Version { ms, counter }, wall_ms }, tag } = mark;
    write.open_table(MARKS)?.insert((), (ms, counter, wall_ms, tag))?;
    Ok(())
}

/// Hands over each row.
///
/// # Errors
/// It cannot be read, or holds what no store has written.
pub fn read(database: &Database, mut each: impl FnMut(Row)) -> Result<(), StorageErrorKind> {
    for entry in database.begin_read()?.open_table(ROWS)?.iter()? {
        let (key, row) = entry?;
        let row = Row::decode(row.value()).filter(|row| row.key.as_bytes() == key.value());
        each(row.ok_or_else(|| StorageErrorKind::Corrupt("a row makes no sense".to_owned()))?);
    }
    Ok(())
}
