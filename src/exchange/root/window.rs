//! State of a link at the root.

use std::collections::VecDeque;

use super::super::frame::Start;

/// A link with a leaf.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) id: u64,
    pub(super) run: u64,
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
}

impl Link {
    pub(super) fn heard_ms(&self) -> u64 {
        self.heard_ms
    }
}
