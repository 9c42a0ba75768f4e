//! Lengths of the files.

use super::frame::BLOCK_BYTES;

/// Lengths of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Length of the first segment of a log: a process that writes little and ends needs no more. Each further one is four
    /// times as long as the one before, up to the greatest length.
    pub first_bytes: u64,
    pub segment_bytes: u64,
    /// Length of the log, since the last snapshot, at which the next one is due, if the live records are not longer.
    pub snapshot_bytes: u64,
    /// The same at an orderly end, because the next start reads the log.
    pub close_bytes: u64,
    /// Commits of a process before segments are prepared and room is reserved. 0 for one that serves clients: a disk that cannot be
    /// written is known before the first change.
    pub commits_before: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            first_bytes: 64 * 1024,
            segment_bytes: 4 * 1024 * 1024,
            snapshot_bytes: 16 * 1024 * 1024,
            close_bytes: 4 * 1024 * 1024,
            commits_before: 0,
        }
    }
}

impl Policy {
    /// Returns the policy of a process that ends soon, and seldom writes more than once.
    #[must_use]
    pub fn of_one_command() -> Self {
        Self { commits_before: 8, ..Self::default() }
    }

    /// Returns the length of the segment after one of this length, in a store with live records of this length. Those of a small store
    /// are short: it may be on a small disk.
    #[must_use]
    pub fn next_bytes(self, last_bytes: u64, live_bytes: u64) -> u64 {
        let most =
            (live_bytes / 4).max(self.first_bytes.saturating_mul(16)).next_multiple_of(BLOCK_BYTES as u64);
        last_bytes.saturating_mul(4).min(most).clamp(self.first_bytes, self.segment_bytes)
    }

    /// Returns the length that a snapshot of records of this length does not exceed: its frames are filled up to whole blocks.
    #[must_use]
    pub fn snapshot_bytes_of(self, live_bytes: u64) -> u64 {
        live_bytes.saturating_add(live_bytes / 16).saturating_add(self.first_bytes)
    }
}
