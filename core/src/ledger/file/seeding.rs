//! The keys with which a new store begins.

use std::sync::Arc;

use super::disk::{Disk, SEEDING_NAME};
use crate::ledger::{StorageError, StorageErrorKind};

/// A store that does not have all keys with which it begins. No client has been served.
#[derive(Debug)]
pub struct Seeding(Arc<dyn Disk>);

impl Seeding {
    /// Returns the store if it has a seed and is new, or if an earlier process has not set all keys of it. Without a seed, none is
    /// set later either.
    pub(super) fn begin(
        disk: Arc<dyn Disk>,
        is_new: bool,
        has_seed: bool,
    ) -> Result<Option<Self>, StorageErrorKind> {
        let is_seeding = disk.names()?.iter().any(|name| name == SEEDING_NAME);
        if !has_seed && is_seeding {
            Self(disk).remove()?;
            return Ok(None);
        }
        if has_seed && is_new && !is_seeding {
            disk.create(SEEDING_NAME)?;
            disk.sync_names()?;
        }
        Ok((has_seed && (is_new || is_seeding)).then_some(Self(disk)))
    }

    /// Records that all keys are committed.
    ///
    /// # Errors
    /// The directory cannot be changed.
    pub fn finish(self) -> Result<(), StorageError> {
        self.remove().map_err(|kind| StorageError { path: self.0.path(), kind })
    }

    fn remove(&self) -> Result<(), StorageErrorKind> {
        self.0.remove(SEEDING_NAME)?;
        Ok(self.0.sync_names()?)
    }
}
