//! Packet that is handled in several steps.

use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::sleep;

use crate::broker::handle::Continuation;
use crate::broker::handle::publishing::Publishing;
use crate::broker::routing::registry::retained_delivery::RetainedDelivery;
use crate::mqtt::ReasonCode;
use crate::protocol::message::Qos;

/// A packet whose handling has more steps. Between them, the thread serves other connections.
#[derive(Debug)]
pub enum Unfinished {
    /// A SUBSCRIBE. It is answered when the retained messages have been queued, so that a client which loses its
    /// connection before does not count on them.
    Subscribe { packet_id: u16, results: Vec<Result<Qos, ReasonCode>>, delivery: RetainedDelivery },
    /// A PUBLISH that the application handles.
    Publish { packet_id: u16, qos: Qos, continuation: Box<dyn Continuation> },
    /// A PUBLISH that is routed. It is completed if the connection is lost before, because some of its subscribers have the
    /// message.
    Route { packet_id: u16, qos: Qos, publishing: Publishing },
}

impl Unfinished {
    /// Returns how long to wait before the next step.
    pub fn pause(&self) -> Duration {
        match self {
            Self::Subscribe { .. } | Self::Route { .. } => Duration::ZERO,
            Self::Publish { continuation, .. } => continuation.pause(),
        }
    }
}

/// Waits before the next step of a packet.
pub async fn wait(pause: Duration) {
    if pause.is_zero() { yield_now().await } else { sleep(pause).await }
}
