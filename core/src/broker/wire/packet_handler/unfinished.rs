//! Packet that is handled in several steps.

use std::collections::BTreeSet;
use std::time::Duration;
use std::vec::IntoIter;

use tokio::task::yield_now;
use tokio::time::sleep;

use crate::broker::handle::Continuation;
use crate::broker::handle::publishing::Publishing;
use crate::broker::routing::registry::retained_delivery::RetainedDelivery;
use crate::broker::wire::deferred_packets::LISTED_BYTES;
use crate::broker::wire::turns;
use crate::mqtt::ReasonCode;
use crate::mqtt::packet::SubscriptionRequest;
use crate::protocol::message::Qos;

/// A packet whose handling has more steps. Between them, the thread serves other connections.
#[derive(Debug)]
pub enum Unfinished {
    /// A SUBSCRIBE with more topic filters than one step adds: the ones that are left, the results of the others, and those
    /// of them whose retained messages are to be delivered.
    Subscribe {
        packet: Unanswered,
        requests: IntoIter<SubscriptionRequest>,
        results: Vec<Result<Qos, ReasonCode>>,
        retained: BTreeSet<String>,
    },
    /// A SUBSCRIBE whose retained messages are queued. It is answered afterwards, so that a client which loses its
    /// connection before does not count on them.
    Retained { packet: Unanswered, results: Vec<Result<Qos, ReasonCode>>, delivery: RetainedDelivery },
    /// An UNSUBSCRIBE with more topic filters than one step removes: the ones that are left, and the results of the others.
    Unsubscribe { packet: Unanswered, filters: IntoIter<String>, results: Vec<ReasonCode> },
    /// A PUBLISH that the application handles.
    Publish { packet_id: u16, qos: Qos, continuation: Box<dyn Continuation> },
    /// A PUBLISH that is routed. It is completed if the connection is closed before, because some of its subscribers have the
    /// message.
    Route { packet_id: u16, qos: Qos, publishing: Publishing },
}

/// A SUBSCRIBE or UNSUBSCRIBE.
#[derive(Clone, Copy, Debug)]
pub struct Unanswered {
    pub packet_id: u16,
    /// About the memory that its topic filters and their results take, charged until the answer.
    bytes: usize,
}

impl Unanswered {
    pub fn new<'a>(packet_id: u16, filters: impl Iterator<Item = &'a String>) -> Self {
        let bytes = filters.map(|filter| filter.len().saturating_add(LISTED_BYTES)).sum();
        Self { packet_id, bytes }
    }
}

/// What happens before the next step of a packet.
#[derive(Clone, Copy, Debug)]
pub enum Pause {
    /// Other connections of the thread have their turn.
    Yield,
    /// The same, and other packets of this kind have their step.
    Turn,
    Sleep(Duration),
}

impl Pause {
    pub async fn wait(self) {
        match self {
            Self::Yield => yield_now().await,
            Self::Turn => turns::wait_for_step().await,
            Self::Sleep(duration) => sleep(duration).await,
        }
    }
}

impl Unfinished {
    pub fn pause(&self) -> Pause {
        match self {
            // A step costs as much as some tens of requests.
            Self::Subscribe { .. } | Self::Unsubscribe { .. } => Pause::Turn,
            Self::Retained { .. } | Self::Route { .. } => Pause::Yield,
            Self::Publish { continuation, .. } => match continuation.pause() {
                Duration::ZERO => Pause::Yield,
                duration => Pause::Sleep(duration),
            },
        }
    }

    /// Whether it is completed if the connection is lost before, as a packet of one step would have been.
    pub fn outlasts_loss(&self) -> bool {
        matches!(self, Self::Subscribe { .. } | Self::Unsubscribe { .. } | Self::Route { .. })
    }

    /// Returns the memory of a packet. A route has a charge of its own.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Subscribe { packet, .. }
            | Self::Retained { packet, .. }
            | Self::Unsubscribe { packet, .. } => packet.bytes,
            Self::Publish { .. } | Self::Route { .. } => 0,
        }
    }
}
