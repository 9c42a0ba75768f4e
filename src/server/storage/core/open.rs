//! The tables and the write-ahead log behind them, open: commits go to the log until it is full.

use super::super::error::StorageErrorKind;
use super::super::files::StorageFiles;
use super::super::record::{CommitMetadata, EncodedGroup};
use super::super::staged_backend::SyncFailure;
use super::super::tables::{Checkpoint, NO_GENERATION, Tables};
use super::super::wal::{Wal, WalPolicy};

/// Entries and bytes of a portion. The storage crate writes about four pages for each entry.
const PORTION_ENTRIES: usize = 64;
const PORTION_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub struct Open {
    pub tables: Tables,
    pub wal: Option<Wal>,
    /// The changes that are in the write-ahead log and not in the tables.
    pub pending: EncodedGroup,
    /// Commits since the start while there is no write-ahead log.
    commits_without_wal: u32,
    /// See [`Checkpoint::obsolete_generation`].
    obsolete_generation: Option<u64>,
}

impl Open {
    pub fn new(tables: Tables, obsolete_generation: Option<u64>) -> Self {
        Self {
            tables,
            wal: None,
            pending: EncodedGroup::default(),
            commits_without_wal: 0,
            obsolete_generation,
        }
    }

    /// Returns the generation with which the log begins, if a checkpoint makes all its groups obsolete.
    fn obsolete_generation(&self) -> Option<u64> {
        let wal = self.wal.as_ref().filter(|wal| wal.groups() > 0);
        wal.map(Wal::generation).or(self.obsolete_generation)
    }

    /// Returns the checkpoint with which an orderly end makes the log superfluous.
    pub fn last_checkpoint(&self, metadata: CommitMetadata) -> Checkpoint {
        Checkpoint { metadata, wal_generation: None, obsolete_generation: self.obsolete_generation() }
    }

    /// Appends a group to the write-ahead log; if there is none or it is full, writes a checkpoint instead. Returns the
    /// bytes of the records and rows that were deleted from the tables.
    pub fn commit(
        &mut self,
        changes: EncodedGroup,
        metadata: CommitMetadata,
        files: &mut StorageFiles,
        policy: WalPolicy,
        sync_failure: &SyncFailure,
        is_short_of_room: bool,
    ) -> Result<u64, StorageErrorKind> {
        // The first rows change the format of the tables, which a group in the log cannot do.
        let is_new_format = !changes.rows.is_empty() && !self.tables.has_rows();
        if !is_new_format
            && let Some(wal) = &mut self.wal
            && wal.append(&changes, metadata)?
        {
            self.pending.extend(changes);
            return Ok(0);
        }
        let mut deleted_bytes = 0;
        if is_short_of_room {
            files.release_reserve();
            deleted_bytes = self.apply_in_portions(metadata)?;
        }
        self.pending.extend(changes);
        self.commits_without_wal = self.commits_without_wal.saturating_add(1);
        if !is_short_of_room && self.wal.is_none() && self.commits_without_wal >= policy.commits_before {
            self.commits_without_wal = 0;
            self.wal = create_wal(files, policy, sync_failure);
            if self.wal.is_some() {
                self.obsolete_generation = Some(NO_GENERATION);
            }
        }
        // One transaction puts the changes into the tables and names the generation of the log that follows. A crash
        // before its end leaves the old generation with its groups, and a crash after it makes them obsolete at once:
        // there is no moment at which a group could be lost or applied to newer tables.
        let wal_generation = self.wal.is_some().then(|| files.draw_wal_generation());
        let obsolete_generation = self.obsolete_generation();
        let checkpoint = Checkpoint { metadata, wal_generation, obsolete_generation };
        deleted_bytes = self.tables.commit(&self.pending, checkpoint)?.saturating_add(deleted_bytes);
        self.obsolete_generation = obsolete_generation;
        self.pending.clear();
        if let (Some(wal), Some(generation)) = (&mut self.wal, wal_generation) {
            wal.restart(generation);
        }
        Ok(deleted_bytes)
    }

    /// Writes what is in the write-ahead log to the tables in small transactions, each of which reuses the pages that the
    /// ones before have freed. The log stays valid: after a crash, its groups are applied once more.
    fn apply_in_portions(&mut self, metadata: CommitMetadata) -> Result<u64, StorageErrorKind> {
        let wal_generation = self.wal.as_ref().map(Wal::generation);
        let obsolete_generation = self.obsolete_generation;
        let mut deleted_bytes = 0_u64;
        while !self.pending.is_empty() {
            let portion = self.pending.take_portion(PORTION_ENTRIES, PORTION_BYTES);
            let checkpoint = Checkpoint { metadata, wal_generation, obsolete_generation };
            deleted_bytes = deleted_bytes.saturating_add(self.tables.commit(&portion, checkpoint)?);
        }
        Ok(deleted_bytes)
    }
}

/// Creates a write-ahead log if that is possible. It only saves time: without room for it, every commit goes to the
/// tables.
fn create_wal(files: &mut StorageFiles, policy: WalPolicy, sync_failure: &SyncFailure) -> Option<Wal> {
    let created = files.create_wal().and_then(|inner| Ok(Wal::create(inner, policy, sync_failure)?));
    if created.is_err() {
        files.remove_wal();
    }
    created.ok()
}
