//! Lengths of the files.

/// The most room that is reserved for deletions, besides that of the next snapshot.
pub const RESERVE_BYTES: u64 = 4 * 1024 * 1024;

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
    pub reserve_bytes: u64,
    /// Commits of a process before segments are prepared and room is reserved.
    pub commits_before: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            first_bytes: 64 * 1024,
            segment_bytes: 4 * 1024 * 1024,
            snapshot_bytes: 16 * 1024 * 1024,
            close_bytes: 4 * 1024 * 1024,
            reserve_bytes: RESERVE_BYTES,
            commits_before: 8,
        }
    }
}

impl Policy {
    /// Returns the length of the segment after one of this length.
    #[must_use]
    pub fn next_bytes(self, last_bytes: u64) -> u64 {
        last_bytes.saturating_mul(4).clamp(self.first_bytes, self.segment_bytes)
    }

    /// Returns the room that is reserved besides that of a snapshot of `live_bytes`. A quarter of it is written, by deletions
    /// or before the lack of room is known, until a snapshot gives it back; another one may be missing.
    #[must_use]
    pub fn deletion_bytes(self, live_bytes: u64) -> u64 {
        let least_bytes = self.first_bytes.saturating_mul(12);
        live_bytes.clamp(least_bytes, self.reserve_bytes.max(least_bytes))
    }
}
