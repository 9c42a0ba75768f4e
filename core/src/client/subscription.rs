//! The handle of a subscription.

use tokio::sync::mpsc;

use super::error::Error;
use super::subscriptions::SubscriptionEvent;
use crate::protocol::message::Qos;

/// A subscription that runs in the session's task. Dropping it ends it; the broker is sent UNSUBSCRIBE when the session's
/// task next runs.
#[derive(Debug)]
pub struct Subscription {
    events: mpsc::Receiver<Result<SubscriptionEvent, Error>>,
    granted_qos: Qos,
}

impl Subscription {
    pub(super) fn new(events: mpsc::Receiver<Result<SubscriptionEvent, Error>>, granted_qos: Qos) -> Self {
        Self { events, granted_qos }
    }

    /// Returns the lowest QoS that the broker granted to one of the filters. QoS 1 was requested.
    #[must_use]
    pub fn granted_qos(&self) -> Qos {
        self.granted_qos
    }

    /// Returns the next event. Cancel safe.
    ///
    /// # Errors
    /// The [`Error`] that ended the subscription.
    pub async fn next(&mut self) -> Result<SubscriptionEvent, Error> {
        self.events.recv().await.unwrap_or(Err(Error::Closed))
    }
}
