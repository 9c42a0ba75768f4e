//! Packet that is handled in several steps.

use std::time::Duration;
use std::vec::IntoIter;

use tokio::time::sleep;

use crate::broker::handle::Continuation;
use crate::broker::handle::publishing::Publishing;
use crate::broker::routing::registry::Subscribed;
use crate::broker::routing::registry::retained_delivery::RetainedDelivery;
use crate::broker::wire::turns::wait_for_step;
use crate::mqtt::ReasonCode;
use crate::mqtt::packet::SubscriptionRequest;
use crate::protocol::message::Qos;

/// A packet whose handling has more steps. Between them, the thread serves other connections.
#[derive(Debug)]
pub enum Unfinished {
    /// A SUBSCRIBE with more topic filters than one step adds: the ones that are left, and the result of the others.
    Subscribe { packet_id: u16, requests: IntoIter<SubscriptionRequest>, subscribed: Subscribed },
    /// A SUBSCRIBE whose retained messages are queued. It is answered afterwards, so that a client which loses its
    /// connection before does not count on them.
    Retained { packet_id: u16, results: Vec<Result<Qos, ReasonCode>>, delivery: RetainedDelivery },
    /// An UNSUBSCRIBE with more topic filters than one step removes: the ones that are left, and the results of the others.
    Unsubscribe { packet_id: u16, filters: IntoIter<String>, results: Vec<ReasonCode> },
    /// A PUBLISH that the application handles.
    Publish { packet_id: u16, qos: Qos, continuation: Box<dyn Continuation> },
    /// A PUBLISH that is routed.
    Route { packet_id: u16, qos: Qos, publishing: Publishing },
}

impl Unfinished {
    /// Returns how long to wait before the next step.
    pub fn pause(&self) -> Duration {
        match self {
            Self::Publish { continuation, .. } => continuation.pause(),
            _ => Duration::ZERO,
        }
    }

    /// Whether the rest is done although the connection was lost: what has begun is visible to other clients, or to the
    /// next connection of this one.
    pub fn outlasts_connection(&self) -> bool {
        matches!(self, Self::Subscribe { .. } | Self::Unsubscribe { .. } | Self::Route { .. })
    }

    /// Returns the memory of what is left of the packet. A route has a charge of its own.
    pub fn bytes(&self) -> usize {
        let bytes = |filter: &String| filter.capacity().saturating_add(size_of::<SubscriptionRequest>());
        match self {
            Self::Subscribe { requests, .. } => {
                requests.as_slice().iter().map(|request| bytes(&request.filter)).sum()
            }
            Self::Unsubscribe { filters, .. } => filters.as_slice().iter().map(bytes).sum(),
            _ => 0,
        }
    }
}

/// Waits before the next step of a packet.
pub async fn wait(pause: Duration) {
    if pause.is_zero() { wait_for_step().await } else { sleep(pause).await }
}
