//! Packet handler: the packets of one connection from its CONNECT on, without the stream: bytes in, bytes out.

mod authentication;
mod end;
mod final_input;
mod publish;
mod reauthentication;
mod steps;
#[cfg(test)]
mod tests;
mod unfinished;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;

use self::authentication::Authentication;
pub use self::unfinished::Pause;
use self::unfinished::{Unanswered, Unfinished};
use super::connect_error::ConnectError;
use crate::broker::authentication::{ClientIdentity, ConnectionInfo};
use crate::broker::event::Event;
use crate::broker::handle::{BRIDGE_STATUS, Broker, Peer, SessionPhase, next_connection_id};
use crate::broker::routing::registry::AttachedSession;
use crate::broker::session::connection_handle::{CloseReason, ConnectionHandle, DrainPhase};
use crate::broker::session::entry::{Connack, SessionEntry, SessionRequest};
use crate::broker::session::state_machine::{Limits, Outgoing};
use crate::broker::wire::deferred_packets::DeferredPackets;
use crate::broker::wire::topic_aliases::{InboundAliases, OutboundAliases};
use crate::broker::wire::traffic_counters::TrafficCounters;
use crate::mqtt::packet::{ConnAck, Connect, OutgoingPublish, SubscriptionRequest};
use crate::mqtt::{DecodeError, Decoded, Incoming, ProtocolVersion, ReasonCode, decode, encode, filter};
use crate::net::Secret;
use crate::platform::SentMark;
use crate::protocol::message::Qos;
use crate::{clock, random};

/// With this much output, no other packet is handled and no other message is taken from the queue.
const OUTPUT_BYTES_ENOUGH: usize = 64 * 1024;

/// The most packets that a connection handles before the others of its thread have their turn: some hundreds of
/// microseconds for writes to the store.
const PACKETS_PER_TURN_MAX: usize = 64;

/// The output buffer that a connection keeps while it has nothing to write, also when memory is scarce.
const OUTPUT_BYTES_KEPT: usize = 16 * 1024;

/// How much is read ahead while packets wait for the output to be written, if the input holds a whole packet.
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// An accepted connection. Dropping it detaches the session and notifies the application.
#[derive(Debug)]
pub struct PacketHandler {
    broker: Broker,
    peer: Peer,
    entry: Arc<SessionEntry>,
    handle: Arc<ConnectionHandle>,
    version: ProtocolVersion,
    /// Whether the client is a bridge to another broker.
    is_bridge: bool,
    /// The client's Maximum Packet Size, in bytes.
    packet_bytes_max: Option<u32>,
    /// None: the client has not used enhanced authentication, so it cannot re-authenticate.
    authentication: Option<Authentication>,
    /// The session expiry interval of the CONNECT.
    session_expiry_s: u32,
    keep_alive: Option<Duration>,
    inbound_aliases: InboundAliases,
    outbound_aliases: OutboundAliases,
    deferred: DeferredPackets,
    /// The packet that is being handled in steps. No other one is handled meanwhile, and no message sent.
    unfinished: Option<Unfinished>,
    /// The number of packets that were handled in the present turn of the connection.
    handled: usize,
    /// PUBACKs that have not been written to the stream.
    unwritten_acknowledgements: usize,
    /// The number of acknowledgements that were held back until the last PUBACK or write.
    held: u64,
    /// The number of those that were held back until the last write.
    written: u64,
    /// The bytes of the output that were held back.
    held_bytes: usize,
    /// The number of QoS 2 messages from the client that wait for their PUBREL.
    incoming: usize,
    /// A message that the client has not acknowledged, and how many PUBACKs precede it in the stream: once the client
    /// acknowledges it, it has received these.
    probe: Option<(u16, u64)>,
    output: BytesMut,
    /// The memory of the output buffer: its capacity is less once a part has been written.
    output_bytes: usize,
    traffic: TrafficCounters,
    close_reason: CloseReason,
}

impl PacketHandler {
    /// Accepts a CONNECT: attaches the client's session and answers with a CONNACK.
    ///
    /// # Errors
    ///
    /// Why the connection is rejected.
    pub fn accept(
        broker: &Broker,
        connect: Connect,
        identity: ClientIdentity,
        info: &ConnectionInfo,
    ) -> Result<Self, ConnectError> {
        let (settings, version) = (broker.settings(), connect.version);
        let assigned_client_id = connect.client_id.is_empty().then(new_client_id);
        let client_id: Arc<str> = assigned_client_id.as_ref().unwrap_or(&connect.client_id).as_str().into();
        let session_expiry_s = connect.session_expiry_s.min(settings.session_expiry_s_max);
        let keep_alive_s = match (connect.keep_alive_s, settings.keep_alive_s_max) {
            (requested, 0) => requested,
            // A CONNACK of MQTT 3.1.1 cannot announce another keep-alive.
            (requested, _) if version == ProtocolVersion::V311 => requested,
            (0, max) => max,
            (requested, max) => requested.min(max),
        };
        let ClientIdentity { principal, credential } = identity;
        let access_control = broker.hooks().access_control.as_ref().filter(|_| !info.bypasses_permissions);
        let permissions = access_control.map(|access| Arc::clone(access).permissions(&client_id, &principal));
        let connection = next_connection_id();
        let owner = principal.owner(&info.remote);
        let mut peer = Peer {
            connection,
            client_id,
            identity: principal.identity().into(),
            principal,
            owner,
            permissions,
            session: SessionPhase::New,
            message_number: 0,
            confirmed: 0,
            handle: None,
        };
        let will = connect.will.filter(|will| !will.message.topic.starts_with(BRIDGE_STATUS));
        if let Some(will) = &will {
            let reject = |text| ConnectError { reason: ReasonCode::TopicNameInvalid, text, version };
            broker.check_will(&will.message).map_err(reject)?;
        }
        let reject =
            |text: &str| ConnectError { reason: ReasonCode::NotAuthorized, text: text.to_owned(), version };
        if peer.permissions.as_ref().is_some_and(|permissions| !permissions.may_connect()) {
            return Err(reject("no rule permits this client to connect"));
        }
        if will.as_ref().is_some_and(|will| !peer.may_publish(&will.message.topic)) {
            return Err(reject("no rule permits this client to publish its Will Message"));
        }
        let may_be_unknown = !connect.clean_start && session_expiry_s > 0;
        let mark = info.socket.filter(|_| may_be_unknown).and_then(SentMark::at_end);
        let request = SessionRequest {
            remote: info.remote.as_str().into(),
            connection: peer.connection,
            client_id: Arc::clone(&peer.client_id),
            principal: peer.principal.clone(),
            owner: broker.memory().account(&peer.owner),
            permissions: peer.permissions.clone(),
            clean_start: connect.clean_start,
            receive_maximum: connect.receive_maximum,
            will,
            expiry_s: session_expiry_s,
            connack: mark.map(|mark| Box::new(mark) as Box<dyn Connack>),
        };
        let AttachedSession { entry, handle, is_resumed: session_present, .. } =
            broker.attach(request).map_err(|reason| match reason {
                ReasonCode::NotAuthorized => reject("another user is connected with this client id"),
                ReasonCode::QuotaExceeded => {
                    let text = "there is no room for another session".to_owned();
                    ConnectError { reason: ReasonCode::QuotaExceeded, text, version }
                }
                reason => ConnectError { reason, text: reason.to_string(), version },
            })?;
        let incoming = entry.lock().session.incoming();
        if session_present {
            peer.session = SessionPhase::Resumed;
        }
        handle.set_certificate_expiry(info.certificate_expiry_s);
        peer.handle = Some(Arc::clone(&handle));
        broker.set_credential(&handle, credential);
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
            is_bridge: connect.is_bridge,
            packet_bytes_max: connect.packet_bytes_max,
            authentication: connect.authentication_method.map(Authentication::new),
            session_expiry_s,
            keep_alive: (keep_alive_s > 0)
                .then(|| Duration::from_millis(u64::from(keep_alive_s).saturating_mul(1_500))),
            inbound_aliases: InboundAliases::new(settings.topic_alias_max),
            outbound_aliases: OutboundAliases::new(connect.topic_alias_max),
            deferred: DeferredPackets::new(Limits::from(settings).quarter_bytes()),
            unfinished: None,
            handled: 0,
            unwritten_acknowledgements: 0,
            held: 0,
            written: 0,
            held_bytes: 0,
            incoming,
            probe: None,
            output_bytes: output.capacity(),
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

    /// Returns 1.5 times the keep-alive: how long the client may send nothing (MQTT 5, 3.1.2.10).
    #[must_use]
    pub fn keep_alive(&self) -> Option<Duration> {
        self.keep_alive
    }

    #[must_use]
    pub fn handle(&self) -> &Arc<ConnectionHandle> {
        &self.handle
    }

    /// Returns the bytes to be written to the stream.
    pub fn output(&mut self) -> &mut BytesMut {
        &mut self.output
    }

    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether there is so much output that packets wait for it to be written.
    #[must_use]
    pub fn has_enough_output(&self) -> bool {
        self.output.len() >= OUTPUT_BYTES_ENOUGH
    }

    /// Whether a packet is being handled in steps: then [`PacketHandler::handle_input`] must be called again once other
    /// connections have had their turn.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.unfinished.is_some()
    }

    /// Returns what to wait for before the next step of such a packet.
    #[must_use]
    pub fn pause(&self) -> Option<Pause> {
        self.unfinished.as_ref().map(Unfinished::pause)
    }

    /// Whether bytes should be read from the stream, with `input` as unhandled input so far.
    #[must_use]
    pub fn wants_input(&self, input: &[u8]) -> bool {
        // A client that writes everything before it reads must be read from even while packets wait for the output, or
        // both sides would wait for ever: up to a whole packet, whose size is limited, or some small ones.
        let is_incomplete =
            || decode::missing(input, self.broker.settings().packet_bytes_max).is_ok_and(|n| n > 0);
        let waits = self.has_enough_output() || self.is_unfinished();
        !waits || input.len() < READ_AHEAD_BYTES || is_incomplete()
    }

    /// Whether the connection of a drained broker can be closed: everything has been written.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let is_sent = || self.entry.with_session(self.peer.connection, |session| session.is_sent());
        self.handle.has_reached(DrainPhase::Finishing) && self.output.is_empty() && is_sent().unwrap_or(true)
    }

    /// Notes that bytes of the output have been written to the stream.
    pub fn handle_written(&mut self) {
        self.traffic.add_to(self.broker.counters());
        // From now on the client may have received any of them, and rely on it.
        self.unwritten_acknowledgements = 0;
        self.held_bytes = 0;
        self.held = self.handle.held();
        self.written = self.held;
        let kept = if self.broker.memory().is_scarce() {
            OUTPUT_BYTES_KEPT
        } else {
            OUTPUT_BYTES_ENOUGH.saturating_mul(2)
        };
        if self.output.is_empty() && self.output_bytes > kept {
            self.output = BytesMut::new();
            self.output_bytes = 0;
        }
    }

    /// Returns the memory of the buffers of this connection.
    #[must_use]
    pub fn held_bytes(&mut self) -> usize {
        self.output_bytes = self.output_bytes.max(self.output.capacity());
        let unfinished = self.unfinished.as_ref().map_or(0, Unfinished::bytes);
        [self.output_bytes, self.deferred.bytes(), self.inbound_aliases.bytes(), unfinished]
            .into_iter()
            .fold(0, usize::saturating_add)
    }

    /// Handles packets and takes queued messages until there is enough output, no input is left, the turn of the connection
    /// is over, or one step of a packet with several has been done; returns the number of bytes that are missing for the next
    /// packet.
    ///
    /// Messages of a client that must acknowledge many are deferred: their answers would fill its queue, so that it
    /// would be disconnected, before the acknowledgements behind them are handled.
    ///
    /// # Errors
    ///
    /// Why the connection is closed.
    pub fn handle_input(&mut self, input: &mut BytesMut) -> Result<usize, CloseReason> {
        let has_packets = !input.is_empty() || !self.deferred.is_empty() || self.is_unfinished();
        if !has_packets && self.entry.is_idle(self.peer.connection) {
            // The task was only woken because output has been written.
            self.note_drained();
            return Ok(1);
        }
        let mut may_have_more = self.entry.resume(self.peer.connection, !input.is_empty());
        self.finish_packet()?;
        let mut now = clock::monotonic();
        loop {
            if self.is_unfinished() {
                return Ok(1);
            }
            if may_have_more {
                self.take_outgoing(now, false);
            }
            if self.has_enough_output() || self.handle.close_reason().is_some() || !self.begin_packet() {
                return Ok(1);
            }
            if self.may_resume()
                && let Some((packet, has_expired)) = self.deferred.pop(now)
            {
                self.handle_packet(packet, has_expired, now)?;
                now = clock::monotonic();
                may_have_more = true;
                continue;
            }
            let before = input.len();
            match decode::decode(self.version, input, self.broker.settings().packet_bytes_max) {
                Ok(Decoded::Packet(packet))
                    if self.deferred.must_defer(&packet, || self.handle.is_backlogged()) =>
                {
                    self.deferred.push(packet, before.saturating_sub(input.len()), now);
                }
                Ok(Decoded::Packet(Incoming::PubAck(packet_id))) => {
                    may_have_more = self.handle_puback(packet_id);
                    continue;
                }
                Ok(Decoded::Packet(packet)) => {
                    self.handle_packet(packet, false, now)?;
                    now = clock::monotonic();
                }
                Ok(Decoded::Missing(missing)) => {
                    self.take_outgoing(now, true);
                    // Messages of QoS 0 that were just taken no longer count for the backlog.
                    if !self.may_resume() {
                        self.note_drained();
                        return Ok(missing);
                    }
                }
                Err(DecodeError { reason, text, .. }) => {
                    return Err(CloseReason::ServerDisconnect { reason, text: text.into_owned() });
                }
            }
            may_have_more = true;
        }
    }

    /// Whether a deferred packet may be handled. It must be if no other one can be deferred, or none would be read.
    fn may_resume(&self) -> bool {
        !self.deferred.is_empty() && (self.deferred.is_full() || !self.handle.is_backlogged())
    }

    /// Takes queued messages. With `becomes_idle`, the task is woken for the next one.
    fn take_outgoing(&mut self, now: Instant, becomes_idle: bool) {
        while !self.has_enough_output()
            && let Some((outgoing, has_more)) =
                self.entry.poll_outgoing(self.peer.connection, now, becomes_idle)
        {
            self.send(outgoing, now);
            if !has_more && !becomes_idle {
                break;
            }
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
            // Every message with QoS 1 that has been handled has its PUBACK in the stream by now.
            if let (None, Some(packet_id), Qos::AtLeastOnce) = (self.probe, packet_id, delivery.qos) {
                self.probe = Some((packet_id, self.peer.message_number));
            }
            self.traffic.count_publish_sent();
            return;
        }
        // The message counts as delivered (MQTT 5, 3.1.2.11.4).
        if let Some(packet_id) = packet_id {
            self.entry.with_session(self.peer.connection, |session| session.abandon(packet_id));
        }
        self.report_drop(topic, "it exceeds the client's Maximum Packet Size");
    }

    /// Notes that the input that was read before the broker drained has been handled.
    fn note_drained(&self) {
        if self.handle.has_reached(DrainPhase::Draining) && !self.handle.has_reached(DrainPhase::Drained) {
            self.handle.advance(DrainPhase::Drained);
            self.broker.note_drained();
        }
    }

    /// Handles a packet that was received at `now`, or resumed then.
    fn handle_packet(
        &mut self,
        packet: Incoming,
        has_expired: bool,
        now: Instant,
    ) -> Result<(), CloseReason> {
        let before = self.output.len();
        self.traffic.count_received();
        self.answer(packet, has_expired, now)?;
        self.check_answer(before)
    }

    /// Handles a PUBACK; returns whether there are messages to be sent.
    fn handle_puback(&mut self, packet_id: u16) -> bool {
        self.traffic.count_received();
        if let Some((_, preceding)) = self.probe.take_if(|(probe, _)| *probe == packet_id) {
            self.peer.confirmed = self.peer.confirmed.max(preceding);
        }
        self.entry.handle_puback(self.peer.connection, packet_id)
    }

    /// Checks that an answer fits the client's Maximum Packet Size (MQTT 5, 3.1.2.11.4).
    fn check_answer(&mut self, before: usize) -> Result<(), CloseReason> {
        let bytes = self.output.len().saturating_sub(before);
        if is_beyond(bytes, self.packet_bytes_max) {
            self.output.truncate(before);
            let text = "the answer exceeds the client's Maximum Packet Size".to_owned();
            return Err(CloseReason::ServerDisconnect { reason: ReasonCode::PacketTooLarge, text });
        }
        // A packet has at most one answer.
        if bytes > 0 {
            self.traffic.count_sent();
        }
        Ok(())
    }

    fn answer(&mut self, packet: Incoming, has_expired: bool, now: Instant) -> Result<(), CloseReason> {
        let connection = self.peer.connection;
        match packet {
            Incoming::Publish(publish) => self.handle_publish(publish, has_expired, now)?,
            Incoming::PubAck(packet_id) => _ = self.handle_puback(packet_id),
            Incoming::PubRec { packet_id, is_accepted } => {
                let is_known = self
                    .entry
                    .with_session(connection, |session| session.handle_pubrec(packet_id, is_accepted))
                    .unwrap_or(false);
                // An error ends the exchange, without a PUBREL (MQTT 5, 4.3.3).
                if is_accepted {
                    encode::pubrel(self.version, packet_id, is_known, &mut self.output);
                }
            }
            Incoming::PubRel(packet_id) => {
                let released = self.entry.with_session(connection, |session| {
                    (session.handle_pubrel(packet_id), session.incoming())
                });
                // After a takeover, the session belongs to the new connection, and this one acknowledges nothing.
                if let Some((is_known, incoming)) = released {
                    self.incoming = incoming;
                    encode::pubcomp(self.version, packet_id, is_known, &mut self.output);
                }
            }
            Incoming::PubComp(packet_id) => {
                self.entry.with_session(connection, |session| session.handle_pubcomp(packet_id));
            }
            Incoming::Subscribe { packet_id, mut requests } => {
                let is_local = |request: &SubscriptionRequest| request.options.no_local;
                if requests.iter().any(|request| is_local(request) && filter::is_shared(&request.filter)) {
                    return Err(protocol_error("No Local on a shared subscription"));
                }
                if self.is_bridge {
                    requests.iter_mut().for_each(subscribe_as_bridge);
                }
                if requests.len() > self.broker.settings().subscriptions_per_session_max {
                    let results = vec![Err(ReasonCode::QuotaExceeded); requests.len()];
                    encode::suback(self.version, packet_id, &results, &mut self.output);
                } else {
                    self.count_filters(requests.len());
                    let packet = Unanswered::new(packet_id, requests.iter().map(|request| &request.filter));
                    self.subscribe(packet, requests.into_iter(), Vec::new(), BTreeSet::new());
                }
            }
            Incoming::Unsubscribe { packet_id, filters } => {
                // No session has so many subscriptions: some filters are not subscribed to, or repeated.
                if filters.len() > self.broker.settings().subscriptions_per_session_max {
                    let results = vec![ReasonCode::ImplementationSpecific; filters.len()];
                    encode::unsuback(self.version, packet_id, &results, &mut self.output);
                } else {
                    self.count_filters(filters.len());
                    let packet = Unanswered::new(packet_id, filters.iter());
                    self.unsubscribe(packet, filters.into_iter(), Vec::new());
                }
            }
            Incoming::PingReq => encode::pingresp(&mut self.output),
            Incoming::Disconnect { is_normal, session_expiry_s } => {
                if self.session_expiry_s == 0 && session_expiry_s.is_some_and(|seconds| seconds > 0) {
                    return Err(protocol_error("a session expiry interval after a CONNECT with 0"));
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

    fn report_drop(&self, topic: &str, reason: &'static str) {
        let (client_id, topic) = (Arc::clone(&self.peer.client_id), topic.to_owned());
        self.broker.report([Event::Dropped { client_id, topic, reason }]);
    }
}

/// The first packet behind the mark. The socket is closed after the session has been detached.
impl Connack for SentMark {
    fn is_acknowledged(&self) -> bool {
        self.is_passed()
    }
}

/// Sets the options that MQTT 3.1.1 does not have: a bridge gets none of the messages back that it has published, which
/// would otherwise circulate for ever, and retained messages stay retained in the other broker.
fn subscribe_as_bridge(request: &mut SubscriptionRequest) {
    request.options.no_local = true;
    request.options.retain_as_published = true;
}

fn is_beyond(bytes: usize, bytes_max: Option<u32>) -> bool {
    bytes_max.and_then(|bytes_max| usize::try_from(bytes_max).ok()).is_some_and(|bytes_max| bytes > bytes_max)
}

fn protocol_error(text: &str) -> CloseReason {
    CloseReason::ServerDisconnect { reason: ReasonCode::ProtocolError, text: text.to_owned() }
}

/// Returns a client id that is random, so that no other client has or guesses it.
fn new_client_id() -> String {
    format!("mqkv-{:016x}", random::u64())
}
