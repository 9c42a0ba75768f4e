//! State of a link at a leaf.

use std::collections::VecDeque;

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
    /// The last change of each CHANGES that has not got all its verdicts.
    pub(super) in_flight: VecDeque<u64>,
    pub(super) progress_ms: u64,
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
            in_flight: VecDeque::new(),
            progress_ms: now_ms,
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
}
