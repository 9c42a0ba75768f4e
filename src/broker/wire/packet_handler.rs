//! What a connection says and hears after its CONNECT, without the socket: packets in, bytes out.

mod authentication;
mod final_input;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;

use self::authentication::{Again, Authentication};
use super::connect_error::ConnectError;
use crate::broker::authentication::{ConnectionInfo, Denial};
use crate::broker::event::Event;
use crate::broker::handle::{Broker, Peer, SYS, SYS_IS_RESERVED, Verdict, next_connection_id};
use crate::broker::principal::Principal;
use crate::broker::publication;
use crate::broker::routing::registry::AttachedSession;
use crate::broker::session::connection_handle::{CloseReason, ConnectionHandle, DrainPhase};
use crate::broker::session::entry::{SessionEntry, SessionRequest};
use crate::broker::session::state_machine::{Limits, Outgoing};
use crate::broker::wire::deferred_packets::DeferredPackets;
use crate::broker::wire::topic_aliases::{InboundAliases, OutboundAliases};
use crate::broker::wire::traffic_counters::TrafficCounters;
use crate::clock;
use crate::mqtt::packet::{ConnAck, Connect, OutgoingPublish, Publish, SubscriptionRequest};
use crate::mqtt::{DecodeError, Decoded, Incoming, ProtocolVersion, ReasonCode, decode, encode, filter};
use crate::net::Secret;
use crate::protocol::message::{Message, Qos};
use crate::random;

/// With so many bytes to write, no other packet is handled and no other message taken from the queue.
const OUTPUT_BYTES_ENOUGH: usize = 64 * 1024;

/// While packets have to wait for the output, so much is read beside the first whole packet, and no more.
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// One accepted connection. Dropping it gives its entry back and tells the application.
#[derive(Debug)]
pub struct PacketHandler {
    broker: Broker,
    peer: Peer,
    entry: Arc<SessionEntry>,
    handle: Arc<ConnectionHandle>,
    version: ProtocolVersion,
    /// The client's Maximum Packet Size, in bytes.
    packet_bytes_max: Option<u32>,
    /// How the client came in, if by a method of enhanced authentication: then it may do so again.
    authentication: Option<Authentication>,
    /// What the client said at first, in seconds.
    session_expiry_s: u32,
    keep_alive: Option<Duration>,
    inbound_aliases: InboundAliases,
    outbound_aliases: OutboundAliases,
    deferred: DeferredPackets,
    /// PUBACKs of which none has been written to the socket.
    unwritten_acknowledgements: usize,
    output: BytesMut,
    traffic: TrafficCounters,
    close_reason: CloseReason,
}

impl PacketHandler {
    /// Accepts a CONNECT: takes the client's entry and answers with a CONNACK.
    ///
    /// # Errors
    ///
    /// Why the connection is refused.
    pub fn begin(
        broker: &Broker,
        connect: Connect,
        principal: Principal,
        info: &ConnectionInfo,
    ) -> Result<Self, ConnectError> {
        let (settings, version) = (broker.settings(), connect.version);
        let assigned_client_id = connect.client_id.is_empty().then(new_client_id);
        let client_id: Arc<str> = assigned_client_id.as_ref().unwrap_or(&connect.client_id).as_str().into();
        let session_expiry_s = connect.session_expiry_s.min(settings.session_expiry_s_max);
        let keep_alive_s = match (connect.keep_alive_s, settings.keep_alive_s_max) {
            (wanted, 0) => wanted,
            // It cannot be told of another one.
            (wanted, _) if version == ProtocolVersion::V311 => wanted,
            (0, max) => max,
            (wanted, max) => wanted.min(max),
        };
        let access_control = broker.hooks().access_control.as_ref().filter(|_| !info.bypasses_permissions);
        let permissions = access_control.map(|access| Arc::clone(access).permissions(&client_id, &principal));
        let peer = Peer { connection: next_connection_id(), client_id, principal, permissions };
        if let Some(will) = &connect.will {
            let refuse = |text| ConnectError { reason: ReasonCode::TopicNameInvalid, text, version };
            broker.check_will(&will.message).map_err(refuse)?;
        }
        let refuse =
            |text: &str| ConnectError { reason: ReasonCode::NotAuthorized, text: text.to_owned(), version };
        if peer.permissions.as_ref().is_some_and(|permissions| !permissions.may_connect()) {
            return Err(refuse("no rule lets this client come in"));
        }
        if connect.will.as_ref().is_some_and(|will| !peer.may_publish(&will.message.topic)) {
            return Err(refuse("no rule lets this client publish to the topic of its will"));
        }
        let request = SessionRequest {
            connection: peer.connection,
            client_id: Arc::clone(&peer.client_id),
            principal: peer.principal.clone(),
            permissions: peer.permissions.clone(),
            clean_start: connect.clean_start,
            receive_maximum: connect.receive_maximum,
            will: connect.will,
            expiry_s: session_expiry_s,
        };
        let AttachedSession { entry, handle, session_present, .. } =
            broker.attach(request).map_err(|reason| match reason {
                ReasonCode::NotAuthorized => refuse("somebody else is connected with this client id"),
                reason => ConnectError { reason, text: reason.to_string(), version },
            })?;
        let accepted = ConnAck {
            session_present,
            assigned_client_id,
            session_expiry_s: (session_expiry_s != connect.session_expiry_s).then_some(session_expiry_s),
            keep_alive_s: (keep_alive_s != connect.keep_alive_s).then_some(keep_alive_s),
            receive_maximum: settings.receive_maximum,
            packet_bytes_max: settings.packet_bytes_max,
            topic_alias_max: settings.topic_alias_max,
            authentication_method: connect.authentication_method.clone(),
        };
        let mut output = BytesMut::new();
        encode::connack(version, &accepted, &mut output);
        let mut handler = Self {
            broker: broker.clone(),
            peer,
            entry,
            handle,
            version,
            packet_bytes_max: connect.packet_bytes_max,
            authentication: connect.authentication_method.map(Authentication::new),
            session_expiry_s,
            keep_alive: (keep_alive_s > 0)
                .then(|| Duration::from_millis(u64::from(keep_alive_s).saturating_mul(1_500))),
            inbound_aliases: InboundAliases::new(settings.topic_alias_max),
            outbound_aliases: OutboundAliases::new(connect.topic_alias_max),
            deferred: DeferredPackets::new(Limits::from(settings).quarter_bytes()),
            unwritten_acknowledgements: 0,
            output,
            traffic: TrafficCounters::after_connack(),
            close_reason: CloseReason::ConnectionLost("its task failed".to_owned()),
        };
        let connack_bytes = handler.output.len();
        if is_beyond(connack_bytes, handler.packet_bytes_max) {
            handler.close_reason =
                CloseReason::ClientDisconnect { publishes_will: false, session_expiry_s: Some(0) };
            let text = "a CONNACK exceeds the client's Maximum Packet Size".to_owned();
            return Err(ConnectError { reason: ReasonCode::PacketTooLarge, text, version });
        }
        broker.counters().connections.add(1);
        let connections = u64::try_from(broker.connections()).unwrap_or(u64::MAX);
        broker.counters().connections_max.raise(connections);
        broker.report([Event::Connected {
            client_id: Arc::clone(&handler.peer.client_id),
            remote: info.remote.clone(),
            principal: handler.peer.principal.describe(),
            session_present,
        }]);
        Ok(handler)
    }

    /// After how long a silence the client counts as gone: 1.5 times the keep-alive.
    #[must_use]
    pub fn keep_alive(&self) -> Option<Duration> {
        self.keep_alive
    }

    /// The connection, to be woken and ended by others.
    #[must_use]
    pub fn handle(&self) -> &Arc<ConnectionHandle> {
        &self.handle
    }

    /// What is to be written to the socket.
    pub fn output(&mut self) -> &mut BytesMut {
        &mut self.output
    }

    /// Returns the method and the data of an AUTH that must be checked now; the result goes to
    /// [`PacketHandler::handle_checked`]. The client may send other packets meanwhile.
    pub fn poll_authentication(&mut self) -> Option<(&str, Option<Secret>)> {
        let Authentication { method, again } = self.authentication.as_mut()?;
        if !matches!(again, Again::Asked(_)) {
            return None;
        }
        match std::mem::replace(again, Again::Checking) {
            Again::Asked(data) => Some((method, data)),
            Again::No | Again::Checking => None,
        }
    }

    /// A token has been checked: this is who bears it.
    ///
    /// # Errors
    ///
    /// Why the client may not stay.
    pub fn handle_checked(&mut self, checked: Result<Arc<str>, Denial>) -> Result<(), Denial> {
        let bearer = checked?;
        // The session has the rights of whoever began it.
        if self.peer.principal.user.as_deref() != Some(&*bearer) {
            return Err(Denial {
                reason: ReasonCode::NotAuthorized,
                reason_string: "this token is somebody else's",
                log_text: format!("its new token is that of {bearer}"),
            });
        }
        if let Some(authentication) = &mut self.authentication {
            authentication.again = Again::No;
            encode::auth(&authentication.method, &mut self.output);
        }
        self.broker.report([Event::Reauthenticated { client_id: Arc::clone(&self.peer.client_id) }]);
        Ok(())
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether there is so much to write that packets have to wait.
    #[must_use]
    pub fn has_enough_output(&self) -> bool {
        self.output.len() >= OUTPUT_BYTES_ENOUGH
    }

    /// Whether bytes should be read from the socket, having read `input` so far.
    #[must_use]
    pub fn wants_input(&self, input: &[u8]) -> bool {
        // A peer that writes before it reads must be read from even when packets have to wait, or both would
        // wait for ever: so up to a whole packet, which is bounded, or a few small ones.
        let is_incomplete =
            || decode::missing(input, self.broker.settings().packet_bytes_max).is_ok_and(|n| n > 0);
        !self.has_enough_output() || input.len() < READ_AHEAD_BYTES || is_incomplete()
    }

    /// Whether the connection ends now: the broker is drained, and everything has been written.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let is_sent = || self.entry.with_session(self.peer.connection, |session| session.is_sent());
        self.handle.has_reached(DrainPhase::Finishing) && self.output.is_empty() && is_sent().unwrap_or(true)
    }

    /// Some output has been written to the socket.
    pub fn handle_written(&mut self) {
        self.traffic.add_to(self.broker.counters());
        // From now on the client may have any of them, and count on it.
        self.unwritten_acknowledgements = 0;
        if self.output.is_empty() && self.output.capacity() > OUTPUT_BYTES_ENOUGH.saturating_mul(2) {
            self.output = BytesMut::new();
        }
    }

    /// Handles all packets that came in and takes what waits for the client, until there is enough to write.
    ///
    /// Messages wait for as long as the client has much to acknowledge: their answers would fill its queue, and have
    /// it cut off, before the acknowledgements that it sends behind them are seen.
    ///
    /// Says how many bytes are missing for the next packet.
    ///
    /// # Errors
    ///
    /// How the connection ends.
    pub fn handle_input(&mut self, input: &mut BytesMut) -> Result<usize, CloseReason> {
        if input.is_empty() && self.deferred.is_empty() && self.entry.is_idle(self.peer.connection) {
            // Nothing has happened but that something was written.
            self.note_drained();
            return Ok(1);
        }
        let mut may_have_more = self.entry.resume(self.peer.connection);
        let mut now = clock::monotonic();
        loop {
            if may_have_more {
                self.take_outgoing(now, false);
            }
            may_have_more = true;
            if self.has_enough_output() || self.handle.close_reason().is_some() {
                return Ok(1);
            }
            if self.may_resume()
                && let Some((packet, has_expired)) = self.deferred.pop(now)
            {
                self.handle_packet(packet, has_expired)?;
                now = clock::monotonic();
                continue;
            }
            let before = input.len();
            match decode::decode(self.version, input, self.broker.settings().packet_bytes_max) {
                Ok(Decoded::Packet(packet)) if self.deferred.must_wait(&packet, || self.is_backlogged()) => {
                    self.deferred.push(packet, before.saturating_sub(input.len()), now);
                }
                Ok(Decoded::Packet(packet)) => {
                    self.handle_packet(packet, false)?;
                    now = clock::monotonic();
                }
                Ok(Decoded::Missing(missing)) => {
                    self.take_outgoing(now, true);
                    // What was just taken may have been what made the client laden.
                    if !self.may_resume() {
                        self.note_drained();
                        return Ok(missing);
                    }
                }
                Err(DecodeError { reason, text, .. }) => {
                    return Err(CloseReason::ServerDisconnect { reason, text: text.into_owned() });
                }
            }
        }
    }

    /// Ends the handler and says what is still to be written.
    #[must_use]
    pub fn end(mut self, close_reason: CloseReason) -> BytesMut {
        if let CloseReason::ServerDisconnect { reason, text } = &close_reason {
            encode::disconnect(self.version, *reason, text, self.packet_bytes_max, &mut self.output);
        }
        self.close_reason = close_reason;
        std::mem::take(&mut self.output)
    }

    /// Whether a packet that waits may be handled; it must be if no other one may wait, or none would be read.
    fn may_resume(&self) -> bool {
        !self.deferred.is_empty() && (self.deferred.is_full() || !self.is_backlogged())
    }

    fn is_backlogged(&self) -> bool {
        self.entry.with_session(self.peer.connection, |session| session.is_backlogged()).unwrap_or(false)
    }

    fn take_outgoing(&mut self, now: Instant, or_rest: bool) {
        while !self.has_enough_output()
            && let Some(outgoing) = self.entry.poll_outgoing(self.peer.connection, now, or_rest)
        {
            self.send(outgoing, now);
        }
    }

    fn send(&mut self, outgoing: Outgoing, now: Instant) {
        let (packet_id, dup, delivery) = match outgoing {
            Outgoing::Release(packet_id) => {
                encode::pubrel(self.version, packet_id, true, &mut self.output);
                return;
            }
            Outgoing::Publish { packet_id, dup, delivery } => (packet_id, dup, delivery),
        };
        let topic = &delivery.publication.message.topic;
        let alias = self.outbound_aliases.of(topic);
        let publish = OutgoingPublish {
            message: &delivery.publication.message,
            qos: delivery.qos,
            retain: delivery.retain,
            dup,
            packet_id,
            expiry_s: delivery.publication.remaining_s(now),
            alias,
            subscription_ids: &delivery.subscription_ids,
            bytes_max: self.packet_bytes_max,
        };
        if encode::publish(self.version, &publish, &mut self.output).is_ok() {
            if let Some(alias) = alias {
                self.outbound_aliases.handle_sent(topic, alias);
            }
            self.traffic.count_publish_sent();
            return;
        }
        // As if it had been delivered (MQTT 5, 3.1.2.11.4).
        if let Some(packet_id) = packet_id {
            self.entry.with_session(self.peer.connection, |session| session.abandon(packet_id));
        }
        self.report_drop(topic.clone(), "it exceeds the client's Maximum Packet Size");
    }

    /// Everything that was read before the broker began to drain has been handled.
    fn note_drained(&self) {
        if self.handle.has_reached(DrainPhase::Draining) && !self.handle.has_reached(DrainPhase::Drained) {
            self.handle.advance(DrainPhase::Drained);
            self.broker.note_drained();
        }
    }

    /// Handles a packet, whose answer must fit the client's Maximum Packet Size (MQTT 5, 3.1.2.11.4).
    fn handle_packet(&mut self, packet: Incoming, has_expired: bool) -> Result<(), CloseReason> {
        let before = self.output.len();
        self.traffic.count_received();
        self.answer(packet, has_expired)?;
        let bytes = self.output.len().saturating_sub(before);
        if is_beyond(bytes, self.packet_bytes_max) {
            self.output.truncate(before);
            let text = "the answer exceeds the client's Maximum Packet Size".to_owned();
            return Err(CloseReason::ServerDisconnect { reason: ReasonCode::PacketTooLarge, text });
        }
        // No packet has more than one for an answer.
        if bytes > 0 {
            self.traffic.count_sent();
        }
        Ok(())
    }

    fn answer(&mut self, packet: Incoming, has_expired: bool) -> Result<(), CloseReason> {
        let connection = self.peer.connection;
        match packet {
            Incoming::Publish(publish) => self.handle_publish(publish, has_expired)?,
            Incoming::PubAck(packet_id) => {
                self.entry.with_session(connection, |session| session.handle_puback(packet_id));
            }
            Incoming::PubRec { packet_id, is_accepted } => {
                let is_known = self
                    .entry
                    .with_session(connection, |session| session.handle_pubrec(packet_id, is_accepted))
                    .unwrap_or(false);
                // A refusal ends the exchange, there is nothing to release (MQTT 5, 4.3.3).
                if is_accepted {
                    encode::pubrel(self.version, packet_id, is_known, &mut self.output);
                }
            }
            Incoming::PubRel(packet_id) => {
                let released =
                    self.entry.with_session(connection, |session| session.handle_pubrel(packet_id));
                // Else its successor answers for what is under way, whatever this one is told.
                if let Some(is_known) = released {
                    encode::pubcomp(self.version, packet_id, is_known, &mut self.output);
                }
            }
            Incoming::PubComp(packet_id) => {
                self.entry.with_session(connection, |session| session.handle_pubcomp(packet_id));
            }
            Incoming::Subscribe { packet_id, requests } => {
                let is_local = |request: &SubscriptionRequest| request.options.no_local;
                if requests.iter().any(|request| is_local(request) && filter::is_shared(&request.filter)) {
                    return Err(protocol_error("no local messages of a shared subscription"));
                }
                let results = self.broker.subscribe(&self.peer, &self.entry, requests);
                encode::suback(self.version, packet_id, &results, &mut self.output);
            }
            Incoming::Unsubscribe { packet_id, filters } => {
                let results = self.broker.unsubscribe(connection, &filters);
                encode::unsuback(self.version, packet_id, &results, &mut self.output);
            }
            Incoming::PingReq => encode::pingresp(&mut self.output),
            Incoming::Disconnect { is_normal, session_expiry_s } => {
                if self.session_expiry_s == 0 && session_expiry_s.is_some_and(|seconds| seconds > 0) {
                    return Err(protocol_error("a session expiry that CONNECT did not ask for"));
                }
                return Err(CloseReason::ClientDisconnect { publishes_will: !is_normal, session_expiry_s });
            }
            Incoming::Auth { is_reauthentication, method, data } => {
                let data = data.map(|data| Secret::new(data.into_bytes()));
                self.handle_auth(is_reauthentication, method.as_deref(), data)?;
            }
            Incoming::Connect(_) => return Err(protocol_error("a second CONNECT")),
            Incoming::Unexpected(name) => return Err(protocol_error(&format!("an unexpected {name}"))),
        }
        Ok(())
    }

    fn handle_publish(&mut self, publish: Publish, has_expired: bool) -> Result<(), CloseReason> {
        self.traffic.count_publish_received();
        if self.handle.has_reached(DrainPhase::Drained) {
            // It came too late, and is never acknowledged.
            return Ok(());
        }
        let Publish { packet_id, topic_alias, mut message } = publish;
        let resolved = self.inbound_aliases.resolve(topic_alias, &mut message.topic);
        resolved.map_err(|(reason, text)| CloseReason::ServerDisconnect { reason, text: text.to_owned() })?;
        match message.qos {
            Qos::AtMostOnce => _ = self.publish(message, has_expired)?,
            Qos::AtLeastOnce => {
                self.unwritten_acknowledgements = self.unwritten_acknowledgements.saturating_add(1);
                let incoming = self.entry.with_session(self.peer.connection, |session| session.incoming());
                self.check_receive_maximum(incoming.unwrap_or(0))?;
                let reason = self.publish(message, has_expired)?;
                encode::puback(self.version, packet_id, reason, &mut self.output);
            }
            Qos::ExactlyOnce => {
                let arrived = self.entry.with_session(self.peer.connection, |session| {
                    (session.handle_incoming(packet_id), session.incoming())
                });
                let Some((is_new, incoming)) = arrived else { return Ok(()) };
                self.check_receive_maximum(incoming)?;
                let reason = if is_new { self.publish(message, has_expired)? } else { ReasonCode::Success };
                if reason.is_error() {
                    // There will be no PUBREL for it (MQTT 5, 4.3.3).
                    self.entry.with_session(self.peer.connection, |session| session.handle_pubrel(packet_id));
                }
                encode::pubrec(self.version, packet_id, reason, &mut self.output);
            }
        }
        Ok(())
    }

    fn handle_auth(
        &mut self,
        is_reauthentication: bool,
        method: Option<&str>,
        data: Option<Secret>,
    ) -> Result<(), CloseReason> {
        let Some(authentication) = &mut self.authentication else {
            return Err(protocol_error("an AUTH, where CONNECT had no authentication method"));
        };
        if method != Some(&authentication.method) {
            return Err(protocol_error("an AUTH with another method than that of CONNECT"));
        }
        if !is_reauthentication {
            return Err(protocol_error("an AUTH that goes on with what was not begun"));
        }
        if !matches!(authentication.again, Again::No) {
            return Err(protocol_error("an AUTH before the last one was answered"));
        }
        authentication.again = Again::Asked(data);
        Ok(())
    }

    /// Counts only what the client cannot have an acknowledgement of, so it never hits one that keeps to the rule.
    fn check_receive_maximum(&self, incoming: usize) -> Result<(), CloseReason> {
        let unacknowledged = self.unwritten_acknowledgements.saturating_add(incoming);
        if unacknowledged > usize::from(self.broker.settings().receive_maximum) {
            let text = "more unacknowledged messages than the Receive Maximum".to_owned();
            return Err(CloseReason::ServerDisconnect { reason: ReasonCode::ReceiveMaximumExceeded, text });
        }
        Ok(())
    }

    fn report_drop(&self, topic: String, reason: &'static str) {
        self.broker.report([Event::Dropped { client_id: Arc::clone(&self.peer.client_id), topic, reason }]);
    }

    fn publish(&self, message: Message, has_expired: bool) -> Result<ReasonCode, CloseReason> {
        if message.topic.starts_with(SYS) {
            self.report_drop(message.topic, SYS_IS_RESERVED);
            return Ok(ReasonCode::NotAuthorized);
        }
        if has_expired {
            self.report_drop(message.topic, "it expired while its sender had much to acknowledge");
            return Ok(ReasonCode::Success);
        }
        if !self.peer.may_publish(&message.topic) {
            self.broker.report([self.peer.not_authorized("publish to", message.topic)]);
            return Ok(ReasonCode::NotAuthorized);
        }
        if !publication::is_within(&message, self.broker.settings().session_queue_bytes_max) {
            // Whoever it is for would be cut off.
            self.report_drop(message.topic, "no queue has room for so many user properties");
            return Ok(ReasonCode::QuotaExceeded);
        }
        match self.broker.hooks().application.handle_publish(&self.broker, &self.peer, message) {
            Verdict::Route(message) => match self.broker.publish(Some(self.peer.connection), message) {
                0 => Ok(ReasonCode::NoMatchingSubscribers),
                _ => Ok(ReasonCode::Success),
            },
            Verdict::Consumed => Ok(ReasonCode::Success),
            Verdict::Refused(reason) => Ok(reason),
            Verdict::Disconnect { reason, text } => Err(CloseReason::ServerDisconnect { reason, text }),
        }
    }
}

impl Drop for PacketHandler {
    fn drop(&mut self) {
        self.traffic.add_to(self.broker.counters());
        self.broker.hooks().application.handle_disconnect(&self.broker, &self.peer);
        self.broker.detach(self.peer.connection, &self.close_reason);
        let client_id = Arc::clone(&self.peer.client_id);
        self.broker.report([Event::Disconnected { client_id, reason: self.close_reason.to_string() }]);
    }
}

fn is_beyond(bytes: usize, bytes_max: Option<u32>) -> bool {
    bytes_max.and_then(|bytes_max| usize::try_from(bytes_max).ok()).is_some_and(|bytes_max| bytes > bytes_max)
}

fn protocol_error(text: &str) -> CloseReason {
    CloseReason::ServerDisconnect { reason: ReasonCode::ProtocolError, text: text.to_owned() }
}

/// A client id that nobody guesses, and that no other client has.
fn new_client_id() -> String {
    format!("mqkv-{:016x}", random::u64())
}
