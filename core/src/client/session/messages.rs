//! Publication of the owner's messages by a session (pure).

use bytes::Bytes;

use super::Session;
use super::event::Event;
use crate::client::error::{Error, Outcome, ReasonCode};
use crate::client::packet::Outgoing;

impl<T> Session<T> {
    /// Queues a message, with QoS 1. Its end is an [`Event::Published`] with this ticket.
    ///
    /// It is sent at most once, in the order of the calls of this function and [`Session::send`]. It has no deadline: it ends
    /// with the PUBACK, or with the connection.
    pub fn publish(&mut self, topic: String, payload: Bytes, ticket: T) {
        let id = self.next_id();
        self.messages.add(id, topic, payload, ticket);
        self.unsent.push_back(id);
    }

    pub(super) fn next_message(&mut self, id: u64) -> Option<Outgoing> {
        self.unsent.pop_front();
        let message = Box::new(self.messages.take(id)?);
        let packet_id = self.next_packet_id();
        self.unacknowledged.insert(packet_id, id);
        Some(Outgoing::Publish { packet_id, message })
    }

    /// Fails all messages. After a loss, the owner decides what to publish again: the broker may have the messages.
    pub(super) fn fail_messages(&mut self, error: impl Fn(&Self, Outcome) -> Error) {
        while let Some(id) = self.messages.first() {
            self.end_message(id, |session, outcome| Err(error(session, outcome)));
        }
        let requests = &self.requests;
        self.unsent.retain(|id| requests.contains_key(id));
    }

    pub(super) fn end_message(
        &mut self,
        id: u64,
        result: impl FnOnce(&Self, Outcome) -> Result<ReasonCode, Error>,
    ) {
        if let Some((ticket, outcome)) = self.messages.remove(id) {
            let result = result(self, outcome);
            self.events.push_back(Event::Published { ticket, result });
        }
    }
}
