//! Handling of a packet in several steps.

use super::PacketHandler;
use super::unfinished::Unfinished;
use crate::broker::handle::{BRIDGE_STATUS, SYS, SYS_IS_RESERVED, Verdict};
use crate::broker::publication;
use crate::broker::routing::registry::retained_delivery::RetainedDelivery;
use crate::broker::session::connection_handle::CloseReason;
use crate::mqtt::{ReasonCode, encode};
use crate::protocol::message::{Message, Qos};

impl PacketHandler {
    /// Does the next step of an unfinished packet, and answers it after the last one.
    pub(super) fn finish_packet(&mut self) -> Result<(), CloseReason> {
        let before = self.output.len();
        match self.unfinished.take() {
            None => return Ok(()),
            Some(Unfinished::Subscribe { packet_id, results, delivery }) => {
                self.finish_subscribe(packet_id, results, delivery);
            }
            Some(Unfinished::Publish { packet_id, qos, mut continuation }) => {
                let verdict = continuation.step(&self.broker).unwrap_or(Verdict::Continue(continuation));
                self.finish_publish(packet_id, qos, verdict)?;
            }
        }
        self.check_answer(before)
    }

    pub(super) fn finish_subscribe(
        &mut self,
        packet_id: u16,
        results: Vec<Result<Qos, ReasonCode>>,
        mut delivery: RetainedDelivery,
    ) {
        if self.broker.deliver_retained(&mut delivery) {
            self.unfinished = Some(Unfinished::Subscribe { packet_id, results, delivery });
        } else {
            encode::suback(self.version, packet_id, &results, &mut self.output);
        }
    }

    /// Acknowledges a message, unless its handling has more steps.
    pub(super) fn finish_publish(
        &mut self,
        packet_id: u16,
        qos: Qos,
        verdict: Verdict,
    ) -> Result<(), CloseReason> {
        let reason = match verdict {
            Verdict::Route(message) => match self.broker.publish_from(&self.peer, message) {
                Ok(0) => ReasonCode::NoMatchingSubscribers,
                Ok(_) => ReasonCode::Success,
                Err(reason) => reason,
            },
            Verdict::Consumed => ReasonCode::Success,
            Verdict::Refused(reason) => reason,
            Verdict::Disconnect { reason, text } => {
                return Err(CloseReason::ServerDisconnect { reason, text });
            }
            Verdict::Continue(continuation) => {
                self.unfinished = Some(Unfinished::Publish { packet_id, qos, continuation });
                return Ok(());
            }
        };
        match qos {
            Qos::AtMostOnce => {}
            Qos::AtLeastOnce => encode::puback(self.version, packet_id, reason, &mut self.output),
            Qos::ExactlyOnce => {
                if reason.is_error() {
                    // No PUBREL follows an error (MQTT 5, 4.3.3).
                    self.entry.with_session(self.peer.connection, |session| session.handle_pubrel(packet_id));
                }
                encode::pubrec(self.version, packet_id, reason, &mut self.output);
            }
        }
        Ok(())
    }

    pub(super) fn publish(&self, message: Message, has_expired: bool) -> Verdict {
        if message.topic.starts_with(BRIDGE_STATUS) {
            return Verdict::Refused(ReasonCode::NoMatchingSubscribers);
        }
        if message.topic.starts_with(SYS) {
            self.report_drop(message.topic, SYS_IS_RESERVED);
            return Verdict::Refused(ReasonCode::NotAuthorized);
        }
        if has_expired {
            self.report_drop(message.topic, "it expired while its sender had many messages to acknowledge");
            return Verdict::Consumed;
        }
        if !self.peer.may_publish(&message.topic) {
            self.broker.report([self.peer.not_authorized("publish to", message.topic)]);
            return Verdict::Refused(ReasonCode::NotAuthorized);
        }
        if !publication::is_within(&message, self.broker.settings().session_queue_bytes_max) {
            // Its subscribers would be disconnected because their queues have no room for it.
            self.report_drop(message.topic, "no queue has room for so many user properties");
            return Verdict::Refused(ReasonCode::QuotaExceeded);
        }
        self.broker.hooks().application.handle_publish(&self.broker, &self.peer, message)
    }
}
