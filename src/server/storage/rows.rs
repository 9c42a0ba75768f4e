//! Rows of an exchange on disk: their table, and their entries in the groups of the write-ahead log.
//!
//! A row is opaque here. Its address orders it; a checksum covers both, so that a corrupt row is never taken for another
//! one.

use bytes::{Buf, BufMut, Bytes};
use redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition, WriteTransaction};

use super::error::StorageErrorKind;
use super::record::{CHECKSUM_SEED, EncodedRows, RecordTooLong, extend_checksum};

/// Maps the address of a row to its checksum and the row. Its name on disk is older than the word row.
const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("notes");
const CHECKSUM_BYTES: usize = 8;
/// Length of an address or a row in a group. The address of a key's row is longer than the longest key.
const LENGTH_BYTES: usize = 4;

/// Writes changed rows. Returns the bytes of the deleted ones.
pub fn write(write: &WriteTransaction, rows: &EncodedRows) -> Result<u64, StorageErrorKind> {
    let mut table = write.open_table(ROWS)?;
    let mut deleted_bytes = 0_u64;
    for (address, row) in rows {
        match row {
            Some(row) => insert(&mut table, address, row)?,
            None => {
                let bytes = table.remove(address.as_ref())?.map_or(0, |row| row.value().len());
                deleted_bytes = deleted_bytes.saturating_add(bytes as u64);
            }
        }
    }
    Ok(deleted_bytes)
}

/// Writes `portions` of rows to a new table. Returns false, and creates no table, if there is none.
pub fn create(
    write: &WriteTransaction,
    mut portions: impl FnMut() -> Option<Vec<(Bytes, Bytes)>>,
) -> Result<bool, StorageErrorKind> {
    let mut has_rows = false;
    while let Some(portion) = portions() {
        if portion.is_empty() {
            continue;
        }
        has_rows = true;
        let mut table = write.open_table(ROWS)?;
        for (address, row) in portion {
            insert(&mut table, &address, &row)?;
        }
    }
    Ok(has_rows)
}

/// Removes the table with all rows.
pub fn remove(write: &WriteTransaction) -> Result<(), StorageErrorKind> {
    write.delete_table(ROWS)?;
    Ok(())
}

fn insert(table: &mut Table<'_, &[u8], &[u8]>, address: &[u8], row: &[u8]) -> Result<(), StorageErrorKind> {
    // A sum of lengths in memory does not overflow.
    let mut reserved = table.insert_reserve(address, CHECKSUM_BYTES.saturating_add(row.len()))?;
    let mut out = reserved.as_mut();
    out.put_u64(checksum(address, row));
    out.put_slice(row);
    Ok(())
}

/// Calls `each` with the address and the bytes of every row, in the order of the addresses.
///
/// # Errors
/// The table cannot be read, or has a row that no store has written.
pub fn read(database: &Database, mut each: impl FnMut(&[u8], &[u8])) -> Result<(), StorageErrorKind> {
    for entry in database.begin_read()?.open_table(ROWS)?.iter()? {
        let (address, stored) = entry?;
        each(address.value(), intact(address.value(), stored.value())?);
    }
    Ok(())
}

/// Returns the row at an address.
///
/// # Errors
/// As for [`read`].
pub fn get(database: &Database, address: &[u8]) -> Result<Option<Bytes>, StorageErrorKind> {
    let stored = database.begin_read()?.open_table(ROWS)?.get(address)?;
    stored.map(|stored| intact(address, stored.value()).map(Bytes::copy_from_slice)).transpose()
}

/// Returns the row of an entry of the table.
fn intact<'a>(address: &[u8], mut stored: &'a [u8]) -> Result<&'a [u8], StorageErrorKind> {
    let is_intact = stored.try_get_u64().is_ok_and(|sum| sum == checksum(address, stored));
    let corrupt = || StorageErrorKind::Corrupt("a row of the exchange is malformed".to_owned());
    is_intact.then_some(stored).ok_or_else(corrupt)
}

fn checksum(address: &[u8], row: &[u8]) -> u64 {
    extend_checksum(extend_checksum(CHECKSUM_SEED, address), row)
}

/// Returns the length of what [`put_entry`] appends, without the kind.
pub fn entry_bytes(address: &[u8], row: Option<&Bytes>) -> usize {
    let part_bytes = |part: &[u8]| LENGTH_BYTES.saturating_add(part.len());
    part_bytes(address).saturating_add(row.map_or(0, |row| part_bytes(row)))
}

/// Appends a changed row to a group.
pub fn put_entry(group: &mut Vec<u8>, address: &[u8], row: Option<&Bytes>) -> Result<(), RecordTooLong> {
    put_part(group, address)?;
    row.map_or(Ok(()), |row| put_part(group, row))
}

/// Takes the address or the row that [`put_entry`] appended.
pub fn take_part(from: &mut &[u8]) -> Option<Bytes> {
    let len = usize::try_from(from.try_get_u32().ok()?).ok()?;
    let (part, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(Bytes::copy_from_slice(part))
}

fn put_part(group: &mut Vec<u8>, part: &[u8]) -> Result<(), RecordTooLong> {
    group.put_u32(u32::try_from(part.len()).map_err(|_| RecordTooLong)?);
    group.put_slice(part);
    Ok(())
}
