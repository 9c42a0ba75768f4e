//! The packets of a session that are sent together with CONNECT, before the broker has accepted the client (pure).

use std::time::Duration;

use super::event::Event;
use super::{ResponseSubscription, Session, Timer};
use crate::client::packet::Outgoing;
use crate::client::request::Access;
use crate::clock::Reading;
use crate::protocol::topic;

/// How long a SUBACK may follow the CONNACK if the SUBSCRIBE was sent before it, or half of the request timeout if that is shorter.
/// The packets have crossed the network by then, so that this is only the time in which the broker handles a SUBSCRIBE.
const SUBACK_AFTER: Duration = Duration::from_secs(1);

impl<T> Session<T> {
    /// Returns the next packet to send together with CONNECT: the subscription to the response topic, then small reads. The broker
    /// drops them if it rejects the client; [`Session::handle_lost`] queues the reads again.
    ///
    /// Not for a CONNECT with an authentication method, which only AUTH and DISCONNECT may follow before CONNACK (MQTT 5,
    /// 3.1.2.11.9).
    pub fn poll_early(&mut self, now: Reading) -> Option<Outgoing> {
        let outgoing = if self.needs_subscription() {
            let has_room = self.early.add_subscription(self.requester.response_topic.len());
            has_room.then(|| self.next_subscription()).flatten()
        } else {
            self.next_early_read(now)
        };
        if let Some(Outgoing::Subscribe { packet_id, .. } | Outgoing::Request { packet_id, .. }) = &outgoing {
            self.early.handle_sent(*packet_id);
        }
        outgoing
    }

    fn next_early_read(&mut self, now: Reading) -> Option<Outgoing> {
        let id = *self.unsent.front()?;
        let request = &self.requests.get(&id)?.request;
        // A message has the client id in two properties, besides its response topic.
        let envelope =
            self.requester.response_topic.len().saturating_mul(3).saturating_add(topic::REQUEST.len());
        let bytes = envelope.saturating_add(request.payload.len());
        if request.access == Access::Write || !self.early.add_read(bytes) {
            return None;
        }
        self.next_request(id, now)
    }

    /// Returns whether the broker has not acknowledged all packets that were sent before its CONNACK. Until then they may be the
    /// cause of a loss: their number, or the size of one of them, may violate the limits of the CONNACK.
    #[must_use]
    pub fn has_unacknowledged_early_packets(&self) -> bool {
        !self.early.unacknowledged().is_empty()
    }

    /// Starts the time limit of the SUBACK, if the SUBSCRIBE was sent before the CONNACK.
    pub(super) fn start_early_timer(&mut self, now: Reading) {
        if self.has_unacknowledged_early_packets() {
            let half = self.config.request_timeout.checked_div(2).unwrap_or(SUBACK_AFTER);
            self.start_timer(0, Timer::Early, SUBACK_AFTER.min(half), now);
        }
    }

    /// Sends again what the broker has dropped, if it has not answered the SUBSCRIBE. If it has, it reads early packets, and the
    /// answers to the reads behind the SUBSCRIBE are only late.
    pub(super) fn handle_early_timeout(&mut self) {
        let ResponseSubscription::Sent { packet_id } = self.response_subscription else { return };
        if !self.early.unacknowledged().contains(&packet_id) {
            return;
        }
        self.response_subscription = ResponseSubscription::None;
        let early = std::mem::take(&mut self.early);
        for packet_id in early.unacknowledged().iter().rev() {
            if let Some(id) = self.unacknowledged.remove(packet_id) {
                self.resend(id);
            }
        }
        self.events.push_back(Event::EarlyPacketsDropped);
    }
}
