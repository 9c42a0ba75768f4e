//! The packets of a session that are sent together with CONNECT, before the broker has accepted the client (pure).

use super::Session;
use crate::client::packet::Outgoing;
use crate::client::request::Access;
use crate::clock::Reading;
use crate::protocol::topic;

impl<T> Session<T> {
    /// Returns the next packet to send together with CONNECT: the subscription to the response topic, then small reads. The broker
    /// drops them if it rejects the client; [`Session::handle_lost`] queues the reads again.
    ///
    /// Not for a CONNECT with an authentication method, which only AUTH and DISCONNECT may follow before CONNACK (MQTT 5,
    /// 3.1.2.11.9).
    pub fn poll_early(&mut self, now: Reading) -> Option<Outgoing> {
        if self.needs_subscription() {
            let has_room = self.early.add_subscription(self.response_topic.len());
            return has_room.then(|| self.next_subscription()).flatten();
        }
        let id = *self.unsent.front()?;
        let request = &self.requests.get(&id)?.request;
        // A message has the client id in two properties, besides its response topic.
        let envelope = self.response_topic.len().saturating_mul(3).saturating_add(topic::REQUEST.len());
        let bytes = envelope.saturating_add(request.payload.len());
        if request.access == Access::Write || !self.early.add_read(bytes) {
            return None;
        }
        self.next_request(id, now)
    }

    /// Returns whether packets were sent before CONNACK, and the broker has not answered any of them.
    #[must_use]
    pub fn has_unanswered_early_packets(&self) -> bool {
        self.early.are_unanswered()
    }
}
