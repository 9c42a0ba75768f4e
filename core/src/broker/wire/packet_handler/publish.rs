//! Messages from the client.

use std::time::Instant;

use super::PacketHandler;
use crate::broker::handle::Verdict;
use crate::broker::session::connection_handle::{CloseReason, DrainPhase};
use crate::mqtt::ReasonCode;
use crate::mqtt::packet::Publish;
use crate::protocol::message::Qos;

impl PacketHandler {
    pub(super) fn handle_publish(
        &mut self,
        mut publish: Publish,
        has_expired: bool,
        now: Instant,
    ) -> Result<(), CloseReason> {
        self.traffic.count_publish_received();
        if self.handle.has_reached(DrainPhase::Drained) {
            // The message arrived too late. It is not acknowledged, so the client sends it again on its next connection.
            return Ok(());
        }
        // By reference: a message has hundreds of bytes, and each move copies them.
        let Publish { packet_id, topic_alias, message } = &mut publish;
        let (packet_id, qos) = (*packet_id, message.qos);
        let resolved = self.inbound_aliases.resolve(*topic_alias, &mut message.topic);
        resolved.map_err(|(reason, text)| CloseReason::ServerDisconnect { reason, text: text.to_owned() })?;
        let is_new = match qos {
            Qos::AtMostOnce => true,
            Qos::AtLeastOnce => {
                self.unwritten_acknowledgements = self.unwritten_acknowledgements.saturating_add(1);
                self.check_receive_maximum()?;
                self.peer.message_number = self.peer.message_number.saturating_add(1);
                // The client may not have more messages without an acknowledgement (MQTT 5, 4.9).
                let unconfirmed_max = u64::from(self.broker.settings().receive_maximum);
                let confirmed = self.peer.message_number.saturating_sub(unconfirmed_max);
                self.peer.confirmed = self.peer.confirmed.max(confirmed);
                true
            }
            Qos::ExactlyOnce => {
                let arrived = self.entry.with_session(self.peer.connection, |session| {
                    (session.handle_incoming(packet_id), session.incoming())
                });
                let Some((is_new, incoming)) = arrived else { return Ok(()) };
                self.incoming = incoming;
                self.check_receive_maximum()?;
                is_new
            }
        };
        let verdict =
            if is_new { self.publish(publish.message, has_expired, now) } else { Verdict::Consumed };
        self.finish_publish(packet_id, qos, verdict)
    }

    /// Checks the Receive Maximum. Only messages count whose acknowledgement the client cannot have received, so a client
    /// that observes the maximum never exceeds it here.
    fn check_receive_maximum(&self) -> Result<(), CloseReason> {
        let unacknowledged = self.unwritten_acknowledgements.saturating_add(self.incoming);
        if unacknowledged > usize::from(self.broker.settings().receive_maximum) {
            let text = "more unacknowledged messages than the Receive Maximum".to_owned();
            return Err(CloseReason::ServerDisconnect { reason: ReasonCode::ReceiveMaximumExceeded, text });
        }
        Ok(())
    }
}
