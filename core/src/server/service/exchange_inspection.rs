//! Views of the exchange for operators. A root can have many leaves, so that requests are handled between bounded steps.

use tokio::task::yield_now;

use super::application::Service;
use super::shared::Shared;
use crate::exchange::Exchange;
use crate::exchange::names::Name;
use crate::exchange::row::Conflict;
use crate::protocol::exchange::{OwnReport, RootReport};
use crate::server::exchange::command::LEAVES_PER_STEP_MAX;

/// The state of a node of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeReport {
    Root(RootReport),
    Leaf(OwnReport),
}

impl Service {
    /// Whether the store takes part in an exchange.
    #[must_use]
    pub fn takes_part(&self) -> bool {
        self.membership.is_some()
    }

    /// Returns the state of the node; `None` without an exchange.
    pub async fn exchange_report(&self) -> Option<NodeReport> {
        let (mut leaves, mut last) = (Vec::new(), None);
        loop {
            let (report, next) = report_step(&self.shared, last.as_ref())?;
            let NodeReport::Root(mut root) = report else { return Some(report) };
            leaves.append(&mut root.leaves);
            if next.is_none() {
                return Some(NodeReport::Root(RootReport { leaves, ..root }));
            }
            last = next;
            yield_now().await;
        }
    }

    /// Returns a few conflicts with their ids, the last one first.
    #[must_use]
    pub fn latest_conflicts(&self, max: usize) -> Vec<(u64, Conflict)> {
        let state = self.shared.lock();
        let conflicts =
            state.exchange.iter().flat_map(|participant| participant.exchange.conflicts().latest());
        conflicts.take(max).map(|(id, conflict)| (id, conflict.clone())).collect()
    }
}

/// Returns the state of the node with some leaves, those after `last`, and the name after which it goes on.
pub(super) fn report_step(shared: &Shared, last: Option<&Name>) -> Option<(NodeReport, Option<Name>)> {
    let now = shared.now();
    let state = shared.lock();
    let participant = state.exchange.as_ref()?;
    Some(match &participant.exchange {
        Exchange::Leaf(leaf) => (NodeReport::Leaf(leaf.report()), None),
        Exchange::Root(root) => {
            let now_ms = participant.now_ms(now.monotonic_ms);
            let report = root.report_after(last, LEAVES_PER_STEP_MAX, now_ms);
            let is_full = report.leaves.len() == LEAVES_PER_STEP_MAX;
            let next = report.leaves.last().filter(|_| is_full);
            let next = next.and_then(|leaf| Name::new(&leaf.name).ok());
            (NodeReport::Root(report), next)
        }
    })
}
