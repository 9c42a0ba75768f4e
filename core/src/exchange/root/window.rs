//! State of a link at the root.

use std::collections::VecDeque;

use super::super::frame::{IDLE_MS, STALL_MS, Start};

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
    /// All records up to this version are sent, or do not concern the leaf.
    pub(super) sent: u64,
    /// The version up to which the last RECORDS is complete; the leaf may acknowledge no greater one.
    pub(super) reported_ver: u64,
    /// The greatest last version of a RECORDS that is sent: the leaf gets RECORDS up to there, with or without items.
    pub(super) last_ver: u64,
    /// The rules that concern the leaf, by their positions. They do not change while the link exists.
    pub(super) rules: Vec<usize>,
    /// The last change of which the decision is sent.
    pub(super) sent_seq: u64,
    /// The leaf misses no tombstone up to this version, although it may not have received it: the horizon of a resync.
    pub(super) complete_at: u64,
    /// The time of the last frame for the leaf.
    pub(super) sent_ms: u64,
    /// The time of the last digest, or of the beginning of the link.
    pub(super) digest_ms: u64,
    /// Whether RECORDS without items are sent as soon as the leaf has everything else: the link is idle, or a digest is
    /// due.
    pub(super) is_frame_due: bool,
    /// The leaf's last change, by its last HELLO or ACK.
    pub(super) last_seq: u64,
    /// Whether the leaf has keys to offer, or a resync to complete, by its last HELLO or ACK.
    pub(super) is_busy: bool,
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

    /// Returns the time at which the link is stalled, or a frame without items is due.
    pub(super) fn timeout(&self) -> Option<u64> {
        if !self.in_flight.is_empty() {
            return Some(self.progress_ms.saturating_add(STALL_MS));
        }
        let (idle, digest) = (self.sent_ms.saturating_add(IDLE_MS), self.digest_ms.saturating_add(DIGEST_MS));
        (!self.is_frame_due).then(|| idle.min(digest))
    }

    /// Whether WELCOME is sent.
    pub(super) fn is_welcome(&self) -> bool {
        self.welcome.is_none()
    }

    /// Whether the leaf has everything that is sent.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.in_flight.is_empty()
    }
}
