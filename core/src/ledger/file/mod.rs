//! The ledger in files: append-only segments of a log, and snapshots.
//!
//! ```text
//! lock          locked by the process, as the directory itself is; names the format, and the last group at the last orderly end
//! snapshot-7    all records, as they were when segment 7 was begun or later
//! log-7         groups, each at a block boundary, each with its number and the checksum of the one before
//! log-8         …
//! log-9         prepared: no group yet, or old ones of a segment that was used before
//! reserve       random bytes that only take room
//! seeding       exists while a new store does not have all keys with which it begins
//! ```
//!
//! - **Frames** ([`frame`], pure): a group, or a part of a snapshot, with its checksum over the store's random number, its
//!   own number, the checksum of the frame before, and its body ([`codec`], pure).
//! - **Commit** ([`ledger`]): one write and one sync of a segment that has its whole length already. If the next segment is
//!   not prepared, the commit creates a short one.
//! - **Work** ([`work`]): the next segment, the snapshot, the reserve, and files that go. [`ledger::FileLedger::take_work`]
//!   hands one piece out, another thread does it without a lock, and [`ledger::FileLedger::handle_done`] takes its result.
//! - **Snapshot** ([`snapshot`]): begins with a new segment. The caller walks its records in bounded steps, and ends the
//!   snapshot when the log is durable up to what the last step has seen; this number is in the snapshot. A failed commit
//!   cancels it. It is complete once it has its name; then older segments and snapshots go.
//! - **Opening** (`reading`): the newest snapshot, then the groups that continue the chain. After an unclean end, files are
//!   synced and read from the disk, and the ledger goes on in a new segment.
//! - **Failed write or sync**: the segment is abandoned, and no commit succeeds before a new segment and a new snapshot are
//!   on disk. No write follows a failed one in the same file.
//! - **Full disk**: the reserve is as long as the next snapshot, and as what deletions write before it. Without that room only
//!   deletions are accepted.
//! - **Damage**: a group that is not intact and has a later one behind it, a log that ends before what a snapshot or the lock
//!   file names, and any frame of a snapshot that is not intact: the files are refused, with the place ([`offline`]).
//! - **Copy** ([`copy`]): of a store that another process may use meanwhile.

pub mod codec;
pub mod copy;
#[cfg(test)]
mod copy_tests;
mod directory;
pub mod disk;
pub mod entry;
#[cfg(test)]
mod failure_tests;
pub mod frame;
pub mod ledger;
mod mark;
pub mod offline;
#[cfg(test)]
mod offline_tests;
pub mod policy;
mod reading;
pub mod seeding;
#[cfg(test)]
pub mod simulated;
pub mod snapshot;
#[cfg(test)]
mod tests;
pub mod work;
