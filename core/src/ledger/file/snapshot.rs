//! Writing of a snapshot, in portions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::codec::{self, End};
use super::disk::{Disk, DiskFile, new_name, snapshot_name};
use super::entry::{CommitMetadata, Entry, entries_of};
use super::frame::{self, Chain, Kind};
use super::reading::Snapshot;
use crate::ledger::{Record, RecordTooLong, StorageErrorKind};
use crate::store::{Now, Version};

/// Length of the entries that are written at once.
const FRAME_BYTES: usize = 64 * 1024;
/// Bytes after which a snapshot is synced, so that no commit waits for much of it on the disk.
pub(super) const SYNC_BYTES: u64 = 1024 * 1024;

/// Background work counts as cancelled after a failed commit.
#[derive(Clone, Debug, Default)]
pub struct Epoch {
    current: Arc<AtomicU64>,
    number: u64,
}

impl Epoch {
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.current.load(Ordering::Relaxed) != self.number
    }

    /// Cancels all work that has begun.
    pub fn cancel(&mut self) {
        self.number = self.current.fetch_add(1, Ordering::Relaxed).saturating_add(1);
    }
}

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

/// A snapshot that is being written. Its file is removed if it is not completed.
#[derive(Debug)]
pub struct SnapshotWriter {
    disk: Arc<dyn Disk>,
    epoch: Epoch,
    number: u64,
    base: Chain,
    store: u64,
    clock: ClockReading,
    /// The snapshot that this one replaces.
    older: Option<u64>,
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
        epoch: Epoch,
        (number, base): (u64, Chain),
        store: u64,
        clock: ClockReading,
        older: Option<u64>,
    ) -> Self {
        Self {
            disk,
            epoch,
            number,
            base,
            store,
            clock,
            older,
            file: None,
            at: 0,
            synced_at: 0,
            chain: Chain { number: 0, sum: number },
            body: Vec::new(),
            entries: 0,
            live_bytes: 0,
        }
    }

    /// Returns an epoch that is over if a commit has failed since the beginning: then this snapshot may have what was rolled back.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch.clone()
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
        self.sync_file()?;
        let in_place = disk.rename(&new_name(&name), &name).and_then(|()| Ok(disk.sync_names()?));
        in_place.map_err(|kind| self.error(kind))?;
        self.file = None;
        if let Some(older) = self.older {
            // One that stays is removed by the next start: it is not the newest.
            let _ = disk.remove(&snapshot_name(older));
        }
        let snapshot = Snapshot { number: self.number, bytes: self.at, base: self.base, end: Some(end) };
        Ok(Written { snapshot, live_bytes: self.live_bytes })
    }

    fn begin(&mut self) -> Result<(), StorageErrorKind> {
        if self.file.is_none() {
            let name = new_name(&self.name());
            self.file = Some(self.disk.create(&name).map_err(|kind| kind.of_file(&name))?);
            frame::begin(&mut self.body);
            codec::put_begin(&mut self.body, self.base);
            self.write_frame()?;
        }
        Ok(())
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
        if self.file.is_some() {
            // A file that cannot be removed is never read.
            let _ = self.disk.remove(&new_name(&self.name()));
        }
    }
}
