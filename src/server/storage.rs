//! Persistent storage: tables of all keys and a write-ahead log of the changes since their last checkpoint.
//!
//! A commit appends one group to the write-ahead log and waits for one sync. When the log is full, a checkpoint writes
//! its changes to the tables, and the log starts again. [`Storage::open`] recovers from whatever a crash leaves.
//!
//! A store that takes part in an exchange has rows too, in the same groups and tables.

mod core;
mod error;
mod files;
pub mod offline;
mod panic_guard;
pub(super) mod record;
mod rows;
#[cfg(test)]
pub mod simulated;
mod staged_backend;
mod tables;
mod wal;

pub use self::core::{RESERVE_BYTES, Storage, needs_tombstone};
pub use error::{StorageError, StorageErrorKind};
pub use files::{FileSystem, TABLES_NAME};
pub use record::{CommitMetadata, EncodedRows};
pub use wal::WalPolicy;
