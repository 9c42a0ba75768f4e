//! Writing of a snapshot, in portions.

use std::sync::Arc;

use super::codec::{self, End};
use super::disk::{Disk, DiskFile, RESERVE_NAME, new_name, snapshot_name};
use super::entry::{CommitMetadata, Entry, entries_of};
use super::frame::{self, Chain, Kind};
use super::reading::Snapshot;
use super::work::promise;
use crate::ledger::{Record, RecordTooLong, StorageErrorKind};
use crate::store::{Now, Version};

/// Length of the entries that are written at once.
const FRAME_BYTES: usize = 64 * 1024;
/// Bytes after which a snapshot is synced, so that no commit waits for much of it on the disk.
const SYNC_BYTES: u64 = 1024 * 1024;

/// A reading of the store's clock, and of the monotonic clock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    pub clock_ms: u64,
    pub monotonic_ms: u64,
}

impl ClockReading {
    /// Returns what the store's clock shows.
    #[must_use]
    pub fn clock_ms(self, now: Now) -> u64 {
        self.clock_ms.saturating_add(now.monotonic_ms.saturating_sub(self.monotonic_ms))
    }
}

/// A snapshot that is being written, to the file of the reserve. That is put back if the snapshot is not completed; otherwise the
/// snapshot before it becomes the next one, so that a full disk needs no other room.
#[derive(Debug)]
pub struct SnapshotWriter {
    disk: Arc<dyn Disk>,
    number: u64,
    base: Chain,
    store: u64,
    clock: ClockReading,
    /// The file that is the next reserve: of the snapshot that this one replaces.
    second: String,
    /// Its length at most.
    bytes_max: u64,
    /// Until the first portion.
    opened: Option<Result<Box<dyn DiskFile>, StorageErrorKind>>,
    /// `None` before the first portion, and at the end.
    file: Option<Box<dyn DiskFile>>,
    at: u64,
    synced_at: u64,
    chain: Chain,
    body: Vec<u8>,
    entries: u64,
    live_bytes: u64,
}

/// A snapshot that is in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub snapshot: Snapshot,
    /// Length of its entries.
    pub live_bytes: u64,
}

impl SnapshotWriter {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        (number, base): (u64, Chain),
        store: u64,
        clock: ClockReading,
        second: String,
        bytes_max: u64,
    ) -> Self {
        Self {
            disk,
            number,
            base,
            store,
            clock,
            second,
            bytes_max,
            opened: None,
            file: None,
            at: 0,
            synced_at: 0,
            chain: Chain { number: 0, sum: number },
            body: Vec::new(),
            entries: 0,
            live_bytes: 0,
        }
    }

    fn name(&self) -> String {
        snapshot_name(self.number)
    }

    /// Appends records of keys and rows. A key without content is one with a tombstone.
    ///
    /// # Errors
    /// As for [`SnapshotWriter::write`].
    pub fn write_records(&mut self, records: &[(u64, Record)], now: Now) -> Result<(), StorageErrorKind> {
        let entries = entries_of(records, Version::default(), now, self.clock.clock_ms(now))?;
        self.write(&entries)
    }

    /// Appends entries.
    ///
    /// # Errors
    /// The file cannot be written, or an entry is too long.
    pub fn write(&mut self, entries: &[Entry]) -> Result<(), StorageErrorKind> {
        self.begin()?;
        for entry in entries {
            if self.body.is_empty() {
                frame::begin(&mut self.body);
                codec::put_entries(&mut self.body);
            }
            codec::put_entry(&mut self.body, entry)?;
            self.entries = self.entries.saturating_add(1);
            self.live_bytes = self.live_bytes.saturating_add(entry.live_bytes());
            if self.body.len() >= FRAME_BYTES {
                self.write_frame()?;
            }
            if self.at >= self.synced_at.saturating_add(SYNC_BYTES) {
                self.sync_file()?;
            }
        }
        Ok(())
    }

    /// Makes what was written durable, so that the end has less to do.
    ///
    /// # Errors
    /// The file cannot be written or synced.
    pub fn sync(&mut self) -> Result<(), StorageErrorKind> {
        self.begin()?;
        if !self.body.is_empty() {
            self.write_frame()?;
        }
        self.sync_file()
    }

    fn sync_file(&mut self) -> Result<(), StorageErrorKind> {
        self.synced_at = self.at;
        self.file.as_ref().map_or(Ok(()), |file| file.sync()).map_err(|error| self.error(error.into()))
    }

    /// Completes the snapshot and puts it in place. `number` and `metadata` are those of the last durable group, which has
    /// all that the entries show.
    ///
    /// # Errors
    /// It is unknown whether the snapshot is in place. The older one and its log are.
    pub fn finish(mut self, number: u64, metadata: CommitMetadata) -> Result<Written, StorageErrorKind> {
        self.sync()?;
        let end = End { entries: self.entries, number, metadata };
        frame::begin(&mut self.body);
        codec::put_end(&mut self.body, &end);
        self.write_frame()?;
        let (name, disk) = (self.name(), Arc::clone(&self.disk));
        let shortened = self.file.as_ref().map_or(Ok(()), |file| match file.bytes()? > self.at {
            true => file.set_len(self.at),
            // The room behind its end stays.
            false => Ok(()),
        });
        shortened.map_err(|error| self.error(error.into()))?;
        self.sync_file()?;
        let in_place = disk.rename(&new_name(&name), &name).and_then(|()| Ok(disk.sync_names()?));
        in_place.map_err(|kind| self.error(kind))?;
        self.file = None;
        if self.second != name {
            // One that stays is used by the next start: it is not the newest.
            let _ = disk.rename(&self.second, RESERVE_NAME);
        }
        let snapshot = Snapshot { number: self.number, bytes: self.at, base: self.base, end: Some(end) };
        Ok(Written { snapshot, live_bytes: self.live_bytes })
    }

    /// Opens the file: until then another one could be made of the reserve. Writing reports what has failed.
    pub(super) fn open_early(&mut self) {
        let name = new_name(&self.name());
        self.opened = Some(self.open(&name).map_err(|kind| kind.of_file(&name)));
    }

    fn begin(&mut self) -> Result<(), StorageErrorKind> {
        if self.file.is_none() {
            if self.opened.is_none() {
                self.open_early();
            }
            self.file = self.opened.take().transpose()?;
            frame::begin(&mut self.body);
            codec::put_begin(&mut self.body, self.base);
            self.write_frame()?;
        }
        Ok(())
    }

    /// Opens the file, with room for the whole snapshot.
    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, StorageErrorKind> {
        let open = || {
            let file = match self.disk.rename(RESERVE_NAME, name) {
                Err(kind) if kind.is_not_found() => self.disk.create(name)?,
                renamed => renamed.and_then(|()| self.disk.open(name))?,
            };
            if file.allocated()? < self.bytes_max {
                promise(&*file, self.bytes_max)?;
            }
            Ok(file)
        };
        open().inspect_err(|_| _ = self.disk.rename(name, RESERVE_NAME))
    }

    fn write_frame(&mut self) -> Result<(), StorageErrorKind> {
        self.chain =
            frame::end(&mut self.body, Kind::Snapshot, self.store, self.chain).ok_or(RecordTooLong)?;
        let written = self.file.as_ref().map_or(Ok(()), |file| file.write(self.at, &self.body));
        written.map_err(|error| self.error(error.into()))?;
        self.at = self.at.saturating_add(self.body.len() as u64);
        self.body.clear();
        Ok(())
    }

    fn error(&self, kind: StorageErrorKind) -> StorageErrorKind {
        kind.of_file(&self.name())
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        if self.file.is_some() || matches!(self.opened, Some(Ok(_))) {
            // One that keeps its name is never read.
            let _ = self.disk.rename(&new_name(&self.name()), RESERVE_NAME);
        }
    }
}
