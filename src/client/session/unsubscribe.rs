//! The end of a subscription within a connection (pure).

use super::Session;
use crate::client::packet::Outgoing;

impl<T> Session<T> {
    /// Takes a subscription back, but never that to the responses: the session lives by it.
    pub fn unsubscribe(&mut self, filter: String) {
        if filter != self.response_topic {
            let packet_id = self.next_packet_id();
            self.unsubscribing.insert(packet_id);
            self.outgoing.push_back(Outgoing::Unsubscribe { packet_id, filter });
        }
    }
}
