//! State of a link at a leaf.

use std::collections::VecDeque;

use super::super::frame::{SILENCE_MS, STALL_MS};

/// A link with the root.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) id: u64,
    pub(super) phase: Phase,
    /// The last RECORDS.
    pub(super) received_n: u64,
    /// The last RECORDS that an ACK has acknowledged.
    pub(super) acked_n: u64,
    pub(super) sent_n: u64,
    /// The last change that is sent.
    pub(super) sent_seq: u64,
    /// The next change, if it is larger than the root accepts.
    pub(super) too_large: Option<u64>,
    /// The last change of each CHANGES that has not got all its decisions.
    pub(super) in_flight: VecDeque<u64>,
    pub(super) progress_ms: u64,
    /// The time of the root's last frame.
    pub(super) heard_ms: u64,
    /// The root's last version, by its last RECORDS.
    pub(super) last_ver: u64,
    /// Whether the last HELLO or ACK reported that the leaf is busy.
    pub(super) reported_busy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Hello,
    Waiting,
    Welcome,
}

impl Link {
    pub(super) fn new(id: u64, now_ms: u64) -> Self {
        Self {
            id,
            phase: Phase::Hello,
            received_n: 0,
            acked_n: 0,
            sent_n: 0,
            sent_seq: 0,
            too_large: None,
            in_flight: VecDeque::new(),
            progress_ms: now_ms,
            heard_ms: now_ms,
            last_ver: 0,
            reported_busy: false,
        }
    }

    pub(super) fn received(&self) -> (u64, u64) {
        (self.id, self.received_n)
    }

    pub(super) fn is_welcome(&self) -> bool {
        self.phase == Phase::Welcome
    }

    /// Whether the link waits for a frame of the root.
    pub(super) fn is_waiting(&self) -> bool {
        self.phase == Phase::Waiting || !self.in_flight.is_empty()
    }

    /// Returns the time at which the link ends unless the root is heard.
    pub(super) fn timeout(&self) -> Option<u64> {
        let stalled = self.is_waiting().then(|| self.progress_ms.saturating_add(STALL_MS));
        let silent = self.is_welcome().then(|| self.heard_ms.saturating_add(SILENCE_MS));
        stalled.into_iter().chain(silent).min()
    }
}
