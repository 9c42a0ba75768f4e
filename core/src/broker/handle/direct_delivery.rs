//! Messages for one connection.

use std::sync::Arc;

use super::Broker;
use crate::broker::publication::Publication;
use crate::clock;
use crate::protocol::{ConnectionId, Message};

impl Broker {
    /// Delivers a message to one connection and to no other session, whatever these subscribe to.
    pub fn deliver(&self, to: ConnectionId, message: Message) {
        let now = clock::monotonic();
        let publication = Arc::new(Publication::new(message, now));
        let mut events = Vec::new();
        self.read().deliver(to, &publication, now, &mut events);
        self.report(events);
    }
}
