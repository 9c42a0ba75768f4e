//! State of a link at the root.

use std::collections::VecDeque;

use super::super::frame::{STALL_MS, Start};

/// The time between two digests of a link.
pub(super) const DIGEST_MS: u64 = 600_000;

/// A link with a leaf.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) id: u64,
    pub(super) run: u64,
    /// Whether the leaf begins a resync.
    pub(super) is_resync: bool,
    /// Waits until this step is committed.
    pub(super) welcome: Option<(u64, WelcomeStart)>,
    /// The last CHANGES.
    pub(super) received_n: u64,
    pub(super) sent_n: u64,
    /// Numbers of the RECORDS that are not acknowledged.
    pub(super) in_flight: VecDeque<u64>,
    /// All records up to this version are sent.
    pub(super) sent: u64,
    /// The last change of which the verdict is sent.
    pub(super) sent_seq: u64,
    /// The leaf misses no tombstone up to this version, although it may not have received it: the horizon of a resync.
    pub(super) complete_at: u64,
    /// The time of the last digest, or of the beginning of the link.
    pub(super) digest_ms: u64,
    /// Whether a digest is sent as soon as the leaf has everything else.
    pub(super) is_digest_due: bool,
    pub(super) heard_ms: u64,
    /// The time of the last progress while something is unacknowledged.
    pub(super) progress_ms: u64,
}

/// The beginning of the stream of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WelcomeStart {
    pub(super) start: Start,
    pub(super) from: u64,
    pub(super) has_rules: bool,
    pub(super) version: u64,
}

impl Link {
    /// Whether the leaf has not acknowledged anything for too long.
    pub(super) fn is_stalled(&self, now_ms: u64) -> bool {
        !self.in_flight.is_empty() && now_ms.saturating_sub(self.progress_ms) >= STALL_MS
    }

    /// Returns the time at which the link is stalled or its next digest is due.
    pub(super) fn timeout(&self) -> Option<u64> {
        let stalled = (!self.in_flight.is_empty()).then(|| self.progress_ms.saturating_add(STALL_MS));
        let digest = (!self.is_digest_due).then(|| self.digest_ms.saturating_add(DIGEST_MS));
        stalled.into_iter().chain(digest).min()
    }

    pub(super) fn heard_ms(&self) -> u64 {
        self.heard_ms
    }
}
