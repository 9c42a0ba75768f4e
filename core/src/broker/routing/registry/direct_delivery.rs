//! Delivery of a message to one connection, without regard to subscriptions.

use std::sync::Arc;
use std::time::Instant;

use super::Registry;
use crate::broker::event::Event;
use crate::broker::publication::{Delivery, Publication};
use crate::protocol::ConnectionId;

impl Registry {
    /// Queues a message for one connection and for no other session, whatever these subscribe to. It is dropped if the
    /// connection is closed.
    pub fn deliver(
        &self,
        to: ConnectionId,
        publication: &Arc<Publication>,
        now: Instant,
        events: &mut Vec<Event>,
    ) {
        let Some((entry, _)) = self.connections.get(&to) else { return };
        let (publication, qos) = (Arc::clone(publication), publication.message.qos);
        let subscription_ids = Vec::new();
        entry.enqueue(
            Delivery { publication, qos, retain: false, subscription_ids, group: None, share: None },
            now,
            events,
        );
    }
}
