//! A service's MQTT session as a state machine: messages both ways with QoS 1, through losses of the connection (pure).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::window::{MESSAGE_BYTES, Publish, Window, memory_bytes};
use crate::client::error::{Error, LossCause, Outcome, ReasonCode};
use crate::client::packet::{ConnectionLimits, Incoming, MalformedMessage, Outgoing};
use crate::client::session::keep_alive::KeepAlive;
use crate::client::session::reauthentication::Reauthentication;
use crate::net::secret::Secret;
use crate::protocol::Message;

/// The packet id of SUBSCRIBE and UNSUBSCRIBE, of which at most one is unanswered. Messages have lower ones.
const SUBSCRIPTION_PACKET_ID: u16 = u16::MAX;
/// The bytes of held messages at which the connection is not read any more.
const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The number of packets that wait to be sent at which the connection is not read any more.
const OUTGOING_MAX: usize = 65_536;
/// Reason codes from this one on are failures (MQTT 5, 2.4).
const FAILURE_MIN: u8 = 0x80;

/// Configuration of a session.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// `host:port`, for messages.
    pub(super) target: String,
    /// The topic filters to subscribe to.
    pub(super) filters: Vec<String>,
    /// The Receive Maximum of the CONNECT, and the number of held messages at which others with QoS 0 are dropped.
    pub(super) receive_max: u16,
    /// Time limit of SUBACKs and of a re-authentication.
    pub(super) answer_timeout: Duration,
}

/// A service's MQTT session, through losses of its connection.
///
/// Contract: the owner reports connections and their loss with [`Session::handle_connected`] and [`Session::handle_lost`]. While
/// [`Session::wants_input`], it reads a packet, and after each it drains [`Session::poll_event`], then
/// [`Session::poll_message`] as far as the service has room. Then it sends [`Session::poll_outgoing`] and
/// [`Session::poll_publish`], and adds messages while [`Session::wants_message`]. An error of any call is the loss of the
/// connection.
///
/// A received message is acknowledged when it has been polled, in the order of arrival. A message to publish is sent again on
/// each new connection until it is acknowledged, whether the broker has resumed the session or not.
#[derive(Debug)]
pub(super) struct Session {
    config: Config,
    connection: Option<KeepAlive>,
    phase: Phase,
    /// Whether the broker's session has all subscriptions.
    is_subscribed: bool,
    /// Whether the service has unsubscribed.
    is_leaving: bool,
    /// Whether received messages are ignored.
    is_closing: bool,
    window: Window,
    /// Received messages that have not been polled, with their packet ids. None: QoS 0.
    held: VecDeque<(Option<u16>, Held)>,
    held_bytes: usize,
    /// PINGREQs without a PINGRESP.
    pings: u32,
    suback_deadline: Option<Instant>,
    authentication_deadline: Option<Instant>,
    reauthentication: Reauthentication,
    outgoing: VecDeque<Outgoing>,
    events: VecDeque<Event>,
}

/// A received message.
#[derive(Debug)]
enum Held {
    Message(Message),
    Malformed(MalformedMessage),
}

impl Held {
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Message(message) => memory_bytes(message),
            Self::Malformed(MalformedMessage { topic, text, .. }) => {
                MESSAGE_BYTES.saturating_add(text.len()).saturating_add(topic.as_ref().map_or(0, String::len))
            }
        }
    }
}

/// State of the subscriptions of the current connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// This filter has no SUBACK, and those after it have not been sent.
    Subscribing(usize),
    Subscribed,
    /// This filter has no UNSUBACK.
    Unsubscribing(usize),
    /// All UNSUBACKs have arrived. A broker that had more messages than the Receive Maximum allows sends the next ones as
    /// messages are acknowledged (3.10.4): it has none left if a round trip brings none.
    Draining {
        has_received: bool,
    },
    Unsubscribed,
}

/// An event of a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The subscriptions are in force, or not wanted any more. Messages may follow.
    Ready,
    /// A message cannot be decoded. It is acknowledged.
    Malformed(MalformedMessage),
    /// The end of a message to publish that has a tag, or an error.
    Published { tag: u64, result: Result<ReasonCode, Error> },
    /// Nothing is subscribed to any more, and all messages have been polled.
    Unsubscribed,
    /// A re-authentication has ended; not confirmed: the broker has not answered in time.
    Authenticated { is_confirmed: bool },
}

impl Session {
    /// Returns a session without a connection.
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            connection: None,
            phase: Phase::Subscribing(0),
            is_subscribed: false,
            is_leaving: false,
            is_closing: false,
            window: Window::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            pings: 0,
            suback_deadline: None,
            authentication_deadline: None,
            reauthentication: Reauthentication::default(),
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Handles a CONNACK.
    pub(super) fn handle_connected(&mut self, limits: ConnectionLimits, is_resumed: bool, now: Instant) {
        self.connection = Some(KeepAlive::new(limits.keep_alive, now));
        self.window.handle_connected(limits.receive_max, is_resumed);
        self.is_subscribed &= is_resumed;
        match (self.is_leaving, self.is_subscribed) {
            (false, true) => self.become_ready(Phase::Subscribed),
            (false, false) => self.subscribe(0, now),
            (true, _) if is_resumed => {
                self.become_ready(Phase::Subscribed);
                self.unsubscribe(0);
            }
            (true, _) => {
                self.become_ready(Phase::Unsubscribed);
                self.events.push_back(Event::Unsubscribed);
            }
        }
    }

    /// Handles the loss of the connection, or a failed attempt to connect. `refusal` is the cause, if a published message may be
    /// its reason.
    pub(super) fn handle_lost(&mut self, refusal: Option<LossCause>) {
        self.connection = None;
        let dropped = self.window.handle_lost(refusal.is_some());
        if let (Some(tag), Some(cause)) = (dropped, refusal) {
            let (target, outcome) = (self.config.target.clone(), Outcome::Unknown);
            let result = Err(Error::Lost { target, cause, outcome });
            self.events.push_back(Event::Published { tag, result });
        }
        // The broker sends them again if it resumes the session. Otherwise it has lost others, too; held any longer, these could
        // fill the room that the SUBACKs of the next connection need.
        self.held.clear();
        self.held_bytes = 0;
        self.pings = 0;
        (self.suback_deadline, self.authentication_deadline) = (None, None);
        self.reauthentication = Reauthentication::default();
        self.outgoing.clear();
    }

    /// Unsubscribes from everything, which [`Event::Unsubscribed`] reports.
    pub(super) fn leave(&mut self) {
        self.is_leaving = true;
        match self.phase {
            Phase::Subscribed if self.connection.is_some() => self.unsubscribe(0),
            Phase::Unsubscribed if self.connection.is_some() => self.events.push_back(Event::Unsubscribed),
            // As soon as it has subscribed, or with the next connection.
            _ => {}
        }
    }

    /// Ignores received messages from now on, without acknowledging them.
    pub(super) fn close(&mut self) {
        (self.is_leaving, self.is_closing) = (true, true);
        self.held.clear();
        self.held_bytes = 0;
    }

    fn subscribe(&mut self, at: usize, now: Instant) {
        match self.config.filters.get(at).cloned() {
            Some(filter) => {
                let packet_id = SUBSCRIPTION_PACKET_ID;
                self.outgoing.push_back(Outgoing::Subscribe { packet_id, filter });
                self.phase = Phase::Subscribing(at);
                self.suback_deadline = now.checked_add(self.config.answer_timeout);
            }
            None => {
                self.is_subscribed = true;
                self.become_ready(Phase::Subscribed);
                if self.is_leaving {
                    self.unsubscribe(0);
                }
            }
        }
    }

    fn become_ready(&mut self, phase: Phase) {
        self.phase = phase;
        self.suback_deadline = None;
        self.events.push_back(Event::Ready);
    }

    fn unsubscribe(&mut self, at: usize) {
        match self.config.filters.get(at).cloned() {
            Some(filter) => {
                let packet_id = SUBSCRIPTION_PACKET_ID;
                self.outgoing.push_back(Outgoing::Unsubscribe { packet_id, filter });
                self.phase = Phase::Unsubscribing(at);
            }
            None => {
                self.phase = Phase::Draining { has_received: true };
                self.drain();
            }
        }
    }

    /// Continues [`Phase::Draining`] if nothing has to be waited for.
    fn drain(&mut self) {
        if let Phase::Draining { has_received } = self.phase
            && self.pings == 0
            && self.held.is_empty()
        {
            if has_received {
                // It follows the PUBACKs of the messages.
                self.phase = Phase::Draining { has_received: false };
                self.ping();
            } else {
                self.phase = Phase::Unsubscribed;
                self.events.push_back(Event::Unsubscribed);
            }
        }
    }

    fn ping(&mut self) {
        self.pings = self.pings.saturating_add(1);
        self.outgoing.push_back(Outgoing::Ping);
    }

    /// Returns whether the next packet may be handled now.
    pub(super) fn wants_input(&self) -> bool {
        // Held messages are bounded by bytes alone: Mosquitto sends more than the Receive Maximum after an UNSUBSCRIBE, and the
        // PUBACKs that the service may be waiting for are behind them. PUBACKs must not grow if the broker does not read.
        self.held_bytes < HELD_BYTES_MAX && self.outgoing.len() < OUTGOING_MAX
    }

    /// Returns whether the connection is not read any more because of held messages, although packets behind them may be needed:
    /// PUBACKs, or a SUBACK. The next connection would be the same.
    pub(super) fn is_blocked(&self) -> bool {
        let is_waiting = self.window.is_full() || matches!(self.phase, Phase::Subscribing(_));
        self.connection.is_some() && self.held_bytes >= HELD_BYTES_MAX && is_waiting
    }

    /// Handles that the owner does not read from the connection now.
    pub(super) fn handle_reading_paused(&mut self, now: Instant) {
        // The broker is not silent only because it is not read. But if the window is full, the PUBACKs that would make room may
        // be what is not read: then only a new connection helps, on which the messages of the window are the first ones.
        if let Some(connection) = self.connection.as_mut().filter(|_| !self.window.is_full()) {
            connection.handle_received(now);
        }
    }

    /// Handles a received packet.
    ///
    /// # Errors
    /// The broker refused a subscription.
    pub(super) fn handle_incoming(&mut self, incoming: Incoming, now: Instant) -> Result<(), Error> {
        if let Some(connection) = &mut self.connection {
            connection.handle_received(now);
        }
        match incoming {
            Incoming::Publish { packet_id, message } => self.hold(packet_id, Held::Message(message)),
            Incoming::PubAck { packet_id, reason } => {
                let is_refused = reason.code >= FAILURE_MIN;
                let result = if is_refused { Err(Error::PublishRefused { reason }) } else { Ok(reason) };
                self.end_message(packet_id, result);
            }
            Incoming::SubAck { packet_id: SUBSCRIPTION_PACKET_ID, reason } => {
                self.handle_suback(reason, now)?;
            }
            Incoming::UnsubAck { packet_id: SUBSCRIPTION_PACKET_ID, .. } => {
                if let Phase::Unsubscribing(at) = self.phase {
                    self.unsubscribe(at.saturating_add(1));
                }
            }
            Incoming::SubAck { .. } | Incoming::UnsubAck { .. } => {}
            Incoming::Pong => {
                self.pings = self.pings.saturating_sub(1);
                self.drain();
            }
            Incoming::Authenticated => self.end_authentication(true, now),
        }
        Ok(())
    }

    /// Handles a received message that cannot be decoded. It is acknowledged in the order of arrival.
    pub(super) fn handle_malformed(&mut self, message: MalformedMessage, now: Instant) {
        if let Some(connection) = &mut self.connection {
            connection.handle_received(now);
        }
        self.hold(message.packet_id, Held::Malformed(message));
    }

    fn hold(&mut self, packet_id: Option<u16>, message: Held) {
        if let Phase::Draining { has_received } = &mut self.phase {
            *has_received = true;
        }
        // Messages with QoS 0 have no Receive Maximum, and may be lost.
        let is_excess = packet_id.is_none() && self.held.len() >= self.config.receive_max.into();
        if !self.is_closing && !is_excess {
            self.held_bytes = self.held_bytes.saturating_add(message.memory_bytes());
            self.held.push_back((packet_id, message));
        }
    }

    fn handle_suback(&mut self, reason: ReasonCode, now: Instant) -> Result<(), Error> {
        let Phase::Subscribing(at) = self.phase else { return Ok(()) };
        let filter = || self.config.filters.get(at).cloned().unwrap_or_default();
        match reason.code {
            // With QoS 0, requests could be lost.
            0 => Err(Error::QosTooLow { filter: filter() }),
            FAILURE_MIN.. => Err(Error::SubscribeRefused { filter: filter(), reason }),
            _ => {
                self.subscribe(at.saturating_add(1), now);
                Ok(())
            }
        }
    }

    /// Handles a message of [`Session::poll_publish`] that is larger than the broker accepts, and was not sent.
    pub(super) fn handle_too_large(&mut self, packet_id: u16, size: usize, max: usize) {
        self.end_message(packet_id, Err(Error::TooLarge { size, max }));
    }

    fn end_message(&mut self, packet_id: u16, result: Result<ReasonCode, Error>) {
        if let Some(tag) = self.window.remove(packet_id).filter(|tag| *tag != 0 || result.is_err()) {
            self.events.push_back(Event::Published { tag, result });
        }
    }

    /// Re-authenticates with a new token. Without a connection it does nothing: the next CONNECT has the new token.
    pub(super) fn authenticate(&mut self, token: Secret, now: Instant) {
        if self.connection.is_some() {
            let token = self.reauthentication.handle_token(token);
            self.send_token(token, now);
        }
    }

    fn send_token(&mut self, token: Option<Secret>, now: Instant) {
        if let Some(token) = token {
            self.outgoing.push_back(Outgoing::Authenticate { token });
            self.authentication_deadline = now.checked_add(self.config.answer_timeout);
        }
    }

    /// Ends a re-authentication, and starts the next one if there has been another token meanwhile.
    fn end_authentication(&mut self, is_confirmed: bool, now: Instant) {
        if self.reauthentication.is_under_way() {
            self.authentication_deadline = None;
            self.events.push_back(Event::Authenticated { is_confirmed });
            let next = self.reauthentication.handle_end();
            self.send_token(next, now);
        }
    }

    /// Handles the passing of time: deadlines, and the keep-alive.
    ///
    /// # Errors
    /// The connection is dead.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Result<(), Error> {
        let is_due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        let target = || self.config.target.clone();
        if is_due(self.suback_deadline) {
            let (after, outcome) = (self.config.answer_timeout, Outcome::Unchanged);
            return Err(Error::Timeout { target: target(), after, outcome });
        }
        if let Some(connection) = &mut self.connection {
            let is_ping_due = connection.handle_timeout(now).map_err(|timeout| {
                let silence = now.saturating_duration_since(timeout.since).as_secs();
                let cause = LossCause::Other(format!("no packet from the broker for {silence} s"));
                Error::Lost { target: target(), cause, outcome: Outcome::Unchanged }
            })?;
            if is_ping_due {
                self.ping();
            }
        }
        if is_due(self.authentication_deadline) {
            self.end_authentication(false, now);
        }
        Ok(())
    }

    /// Returns the time at which [`Session::handle_timeout`] must be called, if nothing happens before.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let ping = self.connection.as_ref().and_then(KeepAlive::poll_timeout);
        [self.suback_deadline, self.authentication_deadline, ping].into_iter().flatten().min()
    }

    /// Returns the next event.
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns whether [`Session::poll_message`] has something to do.
    pub(super) fn has_message(&self) -> bool {
        self.is_ready() && !self.held.is_empty()
    }

    /// Returns the next received message, which the service must have handled before the next [`Session::poll_outgoing`]. If that
    /// is malformed, it returns None, and [`Session::poll_event`] returns [`Event::Malformed`].
    pub(super) fn poll_message(&mut self) -> Option<Message> {
        if !self.is_ready() {
            return None;
        }
        let (packet_id, message) = self.held.pop_front()?;
        self.held_bytes = self.held_bytes.saturating_sub(message.memory_bytes());
        self.outgoing.extend(packet_id.map(|packet_id| Outgoing::PubAck { packet_id }));
        self.drain();
        match message {
            Held::Message(message) => Some(message),
            Held::Malformed(message) => {
                self.events.push_back(Event::Malformed(message));
                None
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.connection.is_some() && !matches!(self.phase, Phase::Subscribing(_))
    }

    /// Returns the next packet to send that is no PUBLISH.
    pub(super) fn poll_outgoing(&mut self, now: Instant) -> Option<Outgoing> {
        let connection = self.connection.as_mut()?;
        let outgoing = self.outgoing.pop_front()?;
        connection.handle_sent(now);
        Some(outgoing)
    }

    /// Returns the next message to send.
    pub(super) fn poll_publish(&mut self, now: Instant) -> Option<Publish<'_>> {
        let connection = self.connection.as_mut()?;
        let publish = self.window.poll()?;
        connection.handle_sent(now);
        Some(publish)
    }

    /// Returns whether another message to publish can be sent at once.
    pub(super) fn wants_message(&self) -> bool {
        self.is_ready() && self.window.has_room()
    }

    /// Adds a message to publish, while [`Session::wants_message`]. If `tag` is not 0, or it is not delivered, an
    /// [`Event::Published`] is its end.
    pub(super) fn publish(&mut self, message: Message, tag: u64) {
        self.window.add(message, tag);
    }

    /// Returns whether all messages are acknowledged.
    pub(super) fn is_idle(&self) -> bool {
        self.window.is_empty()
    }
}

#[cfg(test)]
mod tests;
