//! Turns of a connection, and handling of a packet in several steps.

use std::collections::BTreeSet;
use std::time::Instant;
use std::vec::IntoIter;

use super::unfinished::{Unanswered, Unfinished};
use super::{PACKETS_PER_TURN_MAX, PacketHandler};
use crate::broker::handle::publishing::{Published, Publishing};
use crate::broker::handle::{BRIDGE_STATUS, FILTERS_PER_STEP_MAX, SYS, SYS_IS_RESERVED, Verdict};
use crate::broker::publication;
use crate::broker::routing::registry::retained_delivery::RetainedDelivery;
use crate::broker::session::connection_handle::CloseReason;
use crate::mqtt::packet::SubscriptionRequest;
use crate::mqtt::{ReasonCode, encode};
use crate::protocol::message::{Message, Qos};

impl PacketHandler {
    /// Whether so many packets have been handled that the other connections of the thread are to have a turn. The next one
    /// begins then.
    ///
    /// The task of a connection could otherwise go on for as long as its client sends: with seven on a thread that sent a
    /// thousand writes each, the requests of others took 20 ms.
    pub fn ends_turn(&mut self) -> bool {
        let is_over = self.handled >= PACKETS_PER_TURN_MAX;
        if is_over {
            self.handled = 0;
        }
        is_over
    }

    /// Counts a packet that is about to be handled; returns false if the turn is over.
    pub(super) fn begin_packet(&mut self) -> bool {
        let may_begin = self.handled < PACKETS_PER_TURN_MAX;
        self.handled = self.handled.saturating_add(usize::from(may_begin));
        may_begin
    }

    /// Counts the topic filters of a packet that its first step handles: each of them costs as much as a packet.
    pub(super) fn count_filters(&mut self, filters: usize) {
        self.handled = self.handled.saturating_add(filters.min(FILTERS_PER_STEP_MAX));
    }

    /// Does the next step of an unfinished packet, and answers it after the last one.
    pub(super) fn finish_packet(&mut self) -> Result<(), CloseReason> {
        let Some(unfinished) = self.unfinished.take() else { return Ok(()) };
        let before = self.output.len();
        self.finish(unfinished)?;
        self.check_answer(before)
    }

    fn finish(&mut self, unfinished: Unfinished) -> Result<(), CloseReason> {
        match unfinished {
            Unfinished::Subscribe { packet, requests, results, retained } => {
                self.subscribe(packet, requests, results, retained);
            }
            Unfinished::Retained { packet, results, delivery } => {
                self.deliver_retained(packet, results, delivery);
            }
            Unfinished::Unsubscribe { packet, filters, results } => {
                self.unsubscribe(packet, filters, results);
            }
            Unfinished::Publish { packet_id, qos, mut continuation } => {
                let verdict = continuation.step(&self.broker).unwrap_or(Verdict::Continue(continuation));
                self.finish_publish(packet_id, qos, verdict)?;
            }
            Unfinished::Route { packet_id, qos, publishing } => {
                self.finish_route(packet_id, qos, publishing);
            }
        }
        Ok(())
    }

    fn finish_route(&mut self, packet_id: u16, qos: Qos, mut publishing: Publishing) {
        match publishing.step(&self.broker) {
            Ok(None) => self.unfinished = Some(Unfinished::Route { packet_id, qos, publishing }),
            Ok(Some(count)) => self.acknowledge(packet_id, qos, reason_of(count)),
            Err(reason) => self.acknowledge(packet_id, qos, reason),
        }
    }

    /// Completes the routing of a message, although its answer may be lost.
    pub async fn complete_route(&mut self) {
        self.complete(|unfinished| matches!(unfinished, Unfinished::Route { .. })).await;
    }

    /// Completes a packet of a lost connection.
    pub async fn complete_packet(&mut self) {
        self.complete(Unfinished::outlasts_loss).await;
    }

    async fn complete(&mut self, includes: fn(&Unfinished) -> bool) {
        while let Some(unfinished) = self.unfinished.take_if(|unfinished| includes(unfinished)) {
            let pause = unfinished.pause();
            // None of these closes the connection.
            let _: Result<(), CloseReason> = self.finish(unfinished);
            pause.wait().await;
        }
    }

    /// Adds some of the subscriptions of a packet, and delivers the retained messages of all after the last ones: once for a
    /// filter that is repeated.
    pub(super) fn subscribe(
        &mut self,
        packet: Unanswered,
        mut requests: IntoIter<SubscriptionRequest>,
        mut results: Vec<Result<Qos, ReasonCode>>,
        mut retained: BTreeSet<String>,
    ) {
        let some = requests.by_ref().take(FILTERS_PER_STEP_MAX).collect();
        let subscribed = self.broker.subscribe(&self.peer, &self.entry, some);
        results.extend(subscribed.results);
        retained.extend(subscribed.retained);
        if requests.as_slice().is_empty() {
            let delivery = RetainedDelivery::new(self.peer.connection, retained.into_iter().collect());
            self.deliver_retained(packet, results, delivery);
        } else {
            self.unfinished = Some(Unfinished::Subscribe { packet, requests, results, retained });
        }
    }

    fn deliver_retained(
        &mut self,
        packet: Unanswered,
        results: Vec<Result<Qos, ReasonCode>>,
        mut delivery: RetainedDelivery,
    ) {
        if self.broker.deliver_retained(&mut delivery) {
            self.unfinished = Some(Unfinished::Retained { packet, results, delivery });
        } else {
            encode::suback(self.version, packet.packet_id, &results, &mut self.output);
        }
    }

    /// Removes some of the subscriptions of a packet.
    pub(super) fn unsubscribe(
        &mut self,
        packet: Unanswered,
        mut filters: IntoIter<String>,
        mut results: Vec<ReasonCode>,
    ) {
        let some: Vec<_> = filters.by_ref().take(FILTERS_PER_STEP_MAX).collect();
        results.extend(self.broker.unsubscribe(self.peer.connection, &some));
        if filters.as_slice().is_empty() {
            encode::unsuback(self.version, packet.packet_id, &results, &mut self.output);
        } else {
            self.unfinished = Some(Unfinished::Unsubscribe { packet, filters, results });
        }
    }

    /// Whether there is output to be written now: acknowledgements that are held back are written with other output, or
    /// once the first of them is released. Half of the Receive Maximum is not held back: a client that goes a little
    /// beyond it would be disconnected for acknowledgements that it cannot have received.
    #[must_use]
    pub fn wants_output(&self) -> bool {
        let receive_maximum = usize::from(self.broker.settings().receive_maximum);
        self.output.len() > self.held_bytes
            || (!self.output.is_empty()
                && (self.unwritten_acknowledgements.saturating_mul(2) >= receive_maximum
                    || !self.handle.awaits_release(self.written)))
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
                Ok(Published::Complete(count)) => reason_of(count),
                Ok(Published::Unfinished(publishing)) => {
                    self.unfinished = Some(Unfinished::Route { packet_id, qos, publishing });
                    return Ok(());
                }
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
        self.acknowledge(packet_id, qos, reason);
        Ok(())
    }

    fn acknowledge(&mut self, packet_id: u16, qos: Qos, reason: ReasonCode) {
        match qos {
            Qos::AtMostOnce => {}
            Qos::AtLeastOnce => {
                let before = self.output.len();
                encode::puback(self.version, packet_id, reason, &mut self.output);
                let held = self.handle.held();
                if held != self.held {
                    self.held = held;
                    let bytes = self.output.len().saturating_sub(before);
                    self.held_bytes = self.held_bytes.saturating_add(bytes);
                }
            }
            Qos::ExactlyOnce => {
                if reason.is_error() {
                    // No PUBREL follows an error (MQTT 5, 4.3.3).
                    let released = self.entry.with_session(self.peer.connection, |session| {
                        session.handle_pubrel(packet_id);
                        session.incoming()
                    });
                    self.incoming = released.unwrap_or(self.incoming);
                }
                encode::pubrec(self.version, packet_id, reason, &mut self.output);
            }
        }
    }

    pub(super) fn publish(&self, message: Message, has_expired: bool, now: Instant) -> Verdict {
        if message.topic.starts_with(BRIDGE_STATUS) {
            return Verdict::Refused(ReasonCode::NoMatchingSubscribers);
        }
        if message.topic.starts_with(SYS) {
            self.report_drop(&message.topic, SYS_IS_RESERVED);
            return Verdict::Refused(ReasonCode::NotAuthorized);
        }
        if has_expired {
            self.report_drop(&message.topic, "it expired while its sender had many messages to acknowledge");
            return Verdict::Consumed;
        }
        if !self.peer.may_publish(&message.topic) {
            self.broker.report([self.peer.not_authorized("publish to", message.topic.into_owned())]);
            return Verdict::Refused(ReasonCode::NotAuthorized);
        }
        if !publication::is_within(&message, self.broker.settings().session_queue_bytes_max) {
            // Its subscribers would be disconnected because their queues have no room for it.
            self.report_drop(&message.topic, "no queue has room for it");
            return Verdict::Refused(ReasonCode::QuotaExceeded);
        }
        self.broker.hooks().application.handle_publish(&self.broker, &self.peer, message, now)
    }
}

/// Returns the reason code of a message that so many sessions have got.
fn reason_of(count: usize) -> ReasonCode {
    if count == 0 { ReasonCode::NoMatchingSubscribers } else { ReasonCode::Success }
}
