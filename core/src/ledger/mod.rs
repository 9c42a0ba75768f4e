//! What makes changes durable: records, groups of records, the queue of what is not durable yet, the ledger in files and the one in
//! etcd.

mod error;
pub mod etcd;
pub mod file;
pub mod group;
mod key_state;
pub mod lowering;
pub mod queue;
pub mod record;

pub use error::{RecordTooLong, StorageError, StorageErrorKind};
pub use file::copy;
pub use file::entry::CommitMetadata;
pub use file::ledger::FileLedger;
pub use file::offline;
pub use file::policy::{Policy, RESERVE_BYTES};
pub use file::seeding::Seeding;
pub use group::Group;
pub use key_state::{Deadline, KeyState};
pub use lowering::LoweredVersions;
pub use queue::{CommitQueue, DependsOn, Failed, LedgerKind, Undo};
pub use record::{KeyRecord, Record, RegistrationRecord, ResponseRecord};
