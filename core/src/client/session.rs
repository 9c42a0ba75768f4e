//! An MQTT session as a state machine: packet ids, correlation, deadlines, keep-alive, resubscription (pure).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::{Error, LossCause, Outcome, ReasonCode};
use super::outgoing_request::{OutgoingRequest, Requester, correlation};
use super::packet::{ConnectionLimits, Incoming, Outgoing};
use super::request::{Access, RawRequest, Response};
use crate::clock::Reading;
use crate::protocol::message::Qos;
use crate::protocol::{Timestamp, topic};
use deadlines::Deadlines;
use early_packets::EarlyPackets;
use keep_alive::KeepAlive;
use numbers::NumberMap;
use publishing::Messages;
use reauthentication::Reauthentication;

mod authentication;
mod cancel;
mod deadlines;
mod early;
mod early_packets;
mod event;
pub(super) mod keep_alive;
mod messages;
mod numbers;
mod publishing;
pub(super) mod reauthentication;
mod refusal;
mod response;

pub use event::{Event, KeepAliveTimeout};

/// Delay before a read is sent again whose response may have been published before the subscription was in force.
const RESEND_AFTER: Duration = Duration::from_millis(500);
/// How long a response may follow a PUBACK with "no matching subscribers". Such a PUBACK does not prove that there is no
/// store: a broker with an internal store may not count it as a subscriber.
const NO_STORE_AFTER: Duration = Duration::from_secs(1);
/// A hundred years: practically no timeout, and within the range of the clock.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// The most publishes without a PUBACK, whatever the broker allows. It leaves packet ids for subscriptions: a request that has
/// timed out keeps its packet id until the broker acknowledges it.
const UNACKNOWLEDGED_MAX: usize = 60_000;
/// Reason codes from this one on are failures (MQTT 5, 2.4).
const FAILURE_MIN: u8 = 0x80;

/// Configuration of a session.
#[derive(Clone, Debug)]
pub struct Config {
    /// `host:port`, for messages.
    pub target: String,
    pub client_id: String,
    /// What the client authenticates with, for messages.
    pub identity: String,
    /// Time limit of each request and subscription.
    pub request_timeout: Duration,
    /// The most requests and messages without an answer; see [`Session::has_room`].
    pub inflight_max: usize,
    /// The random first half of the correlation data, by which the session recognizes its own responses.
    pub prefix: u64,
    /// The hybrid logical clock before its first tick.
    pub clock: Timestamp,
}

/// An MQTT session with a broker, through losses of its connection. `T` identifies a request to the owner.
///
/// Contract: after every call that takes `now`, the owner drains [`Session::poll_outgoing`] and [`Session::poll_event`], then
/// waits for a packet or for [`Session::poll_timeout`], whichever comes first. It reports connections and their loss with
/// [`Session::handle_connected`] and [`Session::handle_lost`].
///
/// Requests are sent in the order of [`Session::send`]. A write is sent at most once, and not before the subscription to the
/// response topic is in force, because a lost response would leave its outcome unknown. A read is sent together with the
/// subscription, to save a round trip, and is sent again if its response may have been lost. Before the CONNACK, the owner may
/// drain [`Session::poll_early`], to save another one.
#[derive(Debug)]
pub struct Session<T> {
    config: Config,
    requester: Arc<Requester>,
    clock: Timestamp,
    connection: Option<Connected>,
    /// Whether there has been a connection.
    is_started: bool,
    early: EarlyPackets,
    last_packet_ms: u64,
    response_subscription: ResponseSubscription,
    next_request: u64,
    next_packet_id: u16,
    requests: NumberMap<u64, Pending<T>>,
    /// Messages without a PUBACK. Their numbers are those of requests, too.
    messages: Messages<T>,
    /// Requests and messages that have not been sent, in order.
    unsent: VecDeque<u64>,
    /// Subscriptions without a SUBACK, by packet id.
    subscribing: NumberMap<u16, (String, T)>,
    /// Packet ids of UNSUBSCRIBEs without an UNSUBACK.
    unsubscribing: BTreeSet<u16>,
    /// Requests and messages without a PUBACK, by packet id.
    unacknowledged: NumberMap<u16, u64>,
    /// The deadlines of the requests.
    deadlines: Deadlines,
    timers: BTreeSet<(Instant, u64, Timer)>,
    reauthentication: Reauthentication,
    /// Packet ids of received messages whose PUBACK has not been sent.
    unsent_pubacks: VecDeque<u16>,
    outgoing: VecDeque<Outgoing>,
    events: VecDeque<Event<T>>,
}

#[derive(Debug)]
struct Connected {
    receive_max: u16,
    keep_alive: KeepAlive,
}

/// State of the subscription to the response topic.
#[derive(Debug, PartialEq, Eq)]
enum ResponseSubscription {
    None,
    Sent { packet_id: u16 },
    Active,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Resend,
    NoStore,
    /// The deadline of a SUBACK. The timer's number is the packet id.
    Subscription,
    /// The deadline of a re-authentication. The timer's number is 0.
    Authentication,
    /// The time limit of the SUBACK to a SUBSCRIBE that was sent before CONNACK. The timer's number is 0.
    Early,
}

#[derive(Debug)]
struct Pending<T> {
    request: RawRequest,
    ticket: T,
    deadline: Instant,
    is_sent: bool,
    is_acknowledged: bool,
    /// It was sent before the subscription was in force: its response may have been lost.
    is_early: bool,
}

impl<T> Session<T> {
    /// Returns a session without a connection.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let config = Config { request_timeout: config.request_timeout.min(REQUEST_TIMEOUT_MAX), ..config };
        Self {
            requester: Arc::new(Requester {
                client_id: config.client_id.clone(),
                response_topic: topic::response(&config.client_id),
                clock: config.clock.clone(),
            }),
            clock: config.clock.clone(),
            config,
            connection: None,
            is_started: false,
            early: EarlyPackets::default(),
            last_packet_ms: 0,
            response_subscription: ResponseSubscription::None,
            next_request: 0,
            next_packet_id: 0,
            requests: NumberMap::default(),
            messages: Messages::new(),
            unsent: VecDeque::new(),
            subscribing: NumberMap::default(),
            unsubscribing: BTreeSet::new(),
            unacknowledged: NumberMap::default(),
            deadlines: Deadlines::default(),
            timers: BTreeSet::new(),
            reauthentication: Reauthentication::default(),
            unsent_pubacks: VecDeque::new(),
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Queues a request. Its end is an [`Event::Answer`] with this ticket.
    ///
    /// Its time begins now, or with the first connection, for which the owner has a time limit of its own.
    pub fn send(&mut self, request: RawRequest, ticket: T, now: Reading) {
        let id = self.next_id();
        let deadline = self.deadline(now);
        if self.is_started {
            self.deadlines.add(deadline, id);
        }
        let pending =
            Pending { request, ticket, deadline, is_sent: false, is_acknowledged: false, is_early: false };
        self.requests.insert(id, pending);
        self.unsent.push_back(id);
    }

    fn deadline(&self, now: Reading) -> Instant {
        now.monotonic.checked_add(self.config.request_timeout).unwrap_or(now.monotonic)
    }

    fn next_id(&mut self) -> u64 {
        let id = self.next_request;
        self.next_request = id.wrapping_add(1);
        id
    }

    /// Subscribes for the current connection. The answer is an [`Event::Subscribed`]; there is none if the connection is lost.
    pub fn subscribe(&mut self, filter: String, ticket: T, now: Reading) {
        let packet_id = self.next_packet_id();
        self.outgoing.push_back(Outgoing::Subscribe { packet_id, filter: filter.clone() });
        if filter == self.requester.response_topic && self.response_subscription == ResponseSubscription::None
        {
            self.response_subscription = ResponseSubscription::Sent { packet_id };
        }
        self.subscribing.insert(packet_id, (filter, ticket));
        self.start_timer(packet_id.into(), Timer::Subscription, self.config.request_timeout, now);
    }

    /// Unsubscribes, except from the response topic, which the session needs.
    pub fn unsubscribe(&mut self, filter: String) {
        if filter != self.requester.response_topic {
            let packet_id = self.next_packet_id();
            self.unsubscribing.insert(packet_id);
            self.outgoing.push_back(Outgoing::Unsubscribe { packet_id, filter });
        }
    }

    /// Returns whether fewer requests and messages are pending than the configuration allows. While not, the owner should
    /// accept no more.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.requests.len().saturating_add(self.messages.len()) < self.config.inflight_max
    }

    /// Returns the broker's Receive Maximum; None without a connection.
    #[must_use]
    pub fn receive_max(&self) -> Option<u16> {
        self.connection.as_ref().map(|connection| connection.receive_max)
    }

    /// Handles a CONNACK. Subscriptions and unsent requests are sent next.
    pub fn handle_connected(&mut self, limits: ConnectionLimits, now: Reading) {
        let ConnectionLimits { receive_max, keep_alive } = limits;
        self.last_packet_ms = now.wall_ms;
        self.connection =
            Some(Connected { receive_max, keep_alive: KeepAlive::new(keep_alive, now.monotonic) });
        if !std::mem::replace(&mut self.is_started, true) {
            let deadline = self.deadline(now);
            self.requests.values_mut().for_each(|pending| pending.deadline = deadline);
            let mut ids: Vec<u64> = self.requests.keys().copied().collect();
            ids.sort_unstable();
            ids.into_iter().for_each(|id| self.deadlines.add(deadline, id));
        }
        self.start_early_timer(now);
    }

    /// Handles the loss of the connection, or a failed attempt to connect. Messages fail, and so do writes that were sent, with
    /// an unknown outcome; other requests wait for the next connection.
    pub fn handle_lost(&mut self, cause: &LossCause) {
        self.connection = None;
        self.early = EarlyPackets::default();
        self.response_subscription = ResponseSubscription::None;
        self.subscribing.clear();
        self.unsubscribing.clear();
        self.unacknowledged.clear();
        self.reauthentication = Reauthentication::default();
        self.unsent_pubacks.clear();
        self.outgoing.clear();
        // All timers wait for packets of the lost connection.
        self.timers.clear();
        self.fail_messages(|session, outcome| session.lost_error(cause, outcome));
        let mut sent: Vec<u64> =
            self.requests.iter().filter(|(_, pending)| pending.is_sent).map(|(id, _)| *id).collect();
        sent.sort_unstable();
        for id in sent.into_iter().rev() {
            let access = self.requests.get(&id).map(|pending| pending.request.access);
            if access == Some(Access::Read) {
                self.resend(id);
            } else {
                self.fail(id, |session, outcome| session.lost_error(cause, outcome));
            }
        }
    }

    /// Handles the end of the session: fails every request and message.
    pub fn handle_closed(&mut self, error: impl Fn(Outcome) -> Error) {
        self.fail_requests(&error);
        self.fail_messages(|_, outcome| error(outcome));
    }

    fn fail_requests(&mut self, error: impl Fn(Outcome) -> Error) {
        let ids: Vec<u64> = self.requests.keys().copied().collect();
        for id in ids {
            self.fail(id, |_, outcome| error(outcome));
        }
    }

    /// Returns the error of a request whose connection was lost.
    pub fn lost_error(&self, cause: &LossCause, outcome: Outcome) -> Error {
        Error::Lost { target: self.config.target.clone(), cause: cause.clone(), outcome }
    }

    /// Returns the time of the last packet of the connection, or of the last connection (wall clock, milliseconds): after it
    /// the broker may have dropped what it had for this client.
    #[must_use]
    pub fn last_packet_ms(&self) -> u64 {
        self.last_packet_ms
    }

    /// Handles a packet from [`Session::poll_outgoing`] that is larger than the broker accepts, and was not sent.
    pub fn handle_too_large(&mut self, packet_id: u16, size: usize, max: usize, now: Reading) {
        if let Some(id) = self.unacknowledged.remove(&packet_id) {
            self.fail(id, |_, _| Error::TooLarge { size, max });
            self.end_message(id, |_, _| Err(Error::TooLarge { size, max }));
        } else {
            // A SUBSCRIBE, which gets no SUBACK: all that waits for it would end with a timeout.
            self.handle_suback(packet_id, ReasonCode::too_large(size, max), now);
        }
    }

    /// Handles a received packet.
    pub fn handle_incoming(&mut self, incoming: Incoming, now: Reading) {
        self.handle_received(now);
        match incoming {
            Incoming::Publish { packet_id, message } => {
                self.unsent_pubacks.extend(packet_id);
                if message.topic == self.requester.response_topic {
                    self.handle_response_message(&message, now);
                } else {
                    self.events.push_back(Event::Message(Box::new(message)));
                }
            }
            Incoming::PubAck { packet_id, reason } => self.handle_puback(packet_id, reason, now),
            Incoming::SubAck { packet_id, reason } => self.handle_suback(packet_id, reason, now),
            Incoming::UnsubAck { packet_id, .. } => drop(self.unsubscribing.remove(&packet_id)),
            Incoming::Pong => {}
            Incoming::Authenticated => self.end_authentication(true, now),
        }
    }

    fn handle_received(&mut self, now: Reading) {
        self.last_packet_ms = now.wall_ms;
        if let Some(connection) = &mut self.connection {
            connection.keep_alive.handle_received(now.monotonic);
        }
    }

    fn handle_puback(&mut self, packet_id: u16, reason: ReasonCode, now: Reading) {
        self.early.handle_acknowledged(packet_id);
        let Some(id) = self.unacknowledged.remove(&packet_id) else {
            return;
        };
        let Some(pending) = self.requests.get_mut(&id) else {
            // The PUBACK of a message, or of a request whose response arrived before.
            let is_refused = reason.code >= FAILURE_MIN;
            let result = if is_refused { Err(Error::PublishRefused { reason }) } else { Ok(reason) };
            return self.end_message(id, |_, _| result);
        };
        pending.is_acknowledged = true;
        if reason.code >= FAILURE_MIN {
            self.fail(id, |_, _| Error::PublishRefused { reason });
        } else if reason.code == ReasonCode::NO_MATCHING_SUBSCRIBERS {
            self.start_timer(id, Timer::NoStore, NO_STORE_AFTER, now);
        } else if pending.is_early && self.response_subscription == ResponseSubscription::Active {
            self.start_timer(id, Timer::Resend, RESEND_AFTER, now);
        }
    }

    fn handle_suback(&mut self, packet_id: u16, reason: ReasonCode, now: Reading) {
        self.early.handle_acknowledged(packet_id);
        if let Some((filter, ticket)) = self.subscribing.remove(&packet_id) {
            let is_refused = reason.code >= FAILURE_MIN;
            let granted = if reason.code == 0 { Qos::AtMostOnce } else { Qos::AtLeastOnce };
            let reason = reason.clone();
            let result =
                if is_refused { Err(Error::SubscribeRefused { filter, reason }) } else { Ok(granted) };
            self.events.push_back(Event::Subscribed { ticket, result });
        }
        if self.response_subscription != (ResponseSubscription::Sent { packet_id }) {
            return;
        }
        if reason.code >= FAILURE_MIN {
            self.response_subscription = ResponseSubscription::None;
            let filter = self.requester.response_topic.clone();
            self.fail_requests(|_| Error::SubscribeRefused {
                filter: filter.clone(),
                reason: reason.clone(),
            });
            return;
        }
        self.response_subscription = ResponseSubscription::Active;
        let is_early = |(_, pending): &(&u64, &Pending<T>)| pending.is_early && pending.is_acknowledged;
        let early: Vec<u64> = self.requests.iter().filter(is_early).map(|(id, _)| *id).collect();
        for id in early {
            self.start_timer(id, Timer::Resend, RESEND_AFTER, now);
        }
    }

    /// Handles the passing of time: deadlines, and the keep-alive.
    ///
    /// # Errors
    /// [`KeepAliveTimeout`]: the owner must close the connection.
    pub fn handle_timeout(&mut self, now: Reading) -> Result<(), KeepAliveTimeout> {
        while let Some((_, id, timer)) = self.timers.first().copied().filter(|(at, ..)| *at <= now.monotonic)
        {
            self.timers.pop_first();
            let target = self.config.target.clone();
            match timer {
                Timer::NoStore => self.fail(id, |_, _| Error::NoStore { target }),
                Timer::Resend => self.resend(id),
                Timer::Early => self.handle_early_timeout(),
                Timer::Authentication => self.end_authentication(false, now),
                Timer::Subscription => {
                    let late = u16::try_from(id).ok().and_then(|id| self.subscribing.remove(&id));
                    let (after, outcome) = (self.config.request_timeout, Outcome::Unchanged);
                    self.events.extend(late.map(|(_, ticket)| Event::Subscribed {
                        ticket,
                        result: Err(Error::Timeout { target, after, outcome }),
                    }));
                }
            }
        }
        while let Some(id) = self.deadlines.pop_due(now.monotonic) {
            self.fail(id, |session, outcome| Error::Timeout {
                target: session.config.target.clone(),
                after: session.config.request_timeout,
                outcome,
            });
        }
        if let Some(connection) = &mut self.connection
            && connection.keep_alive.handle_timeout(now.monotonic)?
        {
            self.outgoing.push_back(Outgoing::Ping);
        }
        Ok(())
    }

    /// Returns the time at which [`Session::handle_timeout`] must be called, if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timer = self.timers.first().map(|(at, ..)| *at);
        let ping = self.connection.as_ref().and_then(|connection| connection.keep_alive.poll_timeout());
        timer.into_iter().chain(self.deadlines.first()).chain(ping).min()
    }

    /// Handles that the owner does not read from the connection now: the broker is not silent only because it is not read.
    pub fn handle_reading_paused(&mut self, now: Reading) {
        if let Some(connection) = &mut self.connection {
            connection.keep_alive.handle_received(now.monotonic);
        }
    }

    /// Returns the next packet to send.
    pub fn poll_outgoing(&mut self, now: Reading) -> Option<Outgoing> {
        self.connection.as_ref()?;
        // Subscriptions and acknowledgements precede the requests that depend on them.
        if let Some(packet_id) = self.unsent_pubacks.pop_front() {
            self.handle_sent(now);
            return Some(Outgoing::PubAck { packet_id });
        }
        let outgoing = self.outgoing.pop_front().or_else(|| self.next_subscription());
        if outgoing.is_some() {
            self.handle_sent(now);
            return outgoing;
        }
        let publish = self.next_publish(now);
        if publish.is_some() {
            self.handle_sent(now);
        }
        publish
    }

    fn handle_sent(&mut self, now: Reading) {
        if let Some(connection) = &mut self.connection {
            connection.keep_alive.handle_sent(now.monotonic);
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event<T>> {
        self.events.pop_front()
    }

    fn needs_subscription(&self) -> bool {
        self.response_subscription == ResponseSubscription::None && !self.requests.is_empty()
    }

    fn next_subscription(&mut self) -> Option<Outgoing> {
        if !self.needs_subscription() {
            return None;
        }
        let packet_id = self.next_packet_id();
        self.response_subscription = ResponseSubscription::Sent { packet_id };
        Some(Outgoing::Subscribe { packet_id, filter: self.requester.response_topic.clone() })
    }

    /// Returns the next request or message, unless it has to wait.
    fn next_publish(&mut self, now: Reading) -> Option<Outgoing> {
        let receive_max = usize::from(self.connection.as_ref()?.receive_max).min(UNACKNOWLEDGED_MAX);
        if self.unacknowledged.len() >= receive_max {
            return None;
        }
        let id = *self.unsent.front()?;
        let is_subscribed = self.is_subscribed();
        let Some(pending) = self.requests.get(&id) else {
            return self.next_message(id);
        };
        if pending.request.access == Access::Write && !is_subscribed {
            return None;
        }
        self.next_request(id, now)
    }

    /// Returns the first unsent request, `id`.
    fn next_request(&mut self, id: u64, now: Reading) -> Option<Outgoing> {
        self.unsent.pop_front();
        let packet_id = self.next_packet_id();
        self.clock.advance(now.wall_ms);
        let is_early = !self.is_subscribed();
        let pending = self.requests.get_mut(&id)?;
        // The time of a request begins with the first connection.
        let left = match self.is_started {
            true => pending.deadline.saturating_duration_since(now.monotonic),
            false => self.config.request_timeout,
        };
        let (correlation, clock) = (correlation(self.config.prefix, id), &self.clock);
        let request = OutgoingRequest::new(&self.requester, &mut pending.request, correlation, clock, left);
        pending.is_sent = true;
        pending.is_acknowledged = false;
        pending.is_early = is_early;
        self.unacknowledged.insert(packet_id, id);
        Some(Outgoing::Request { packet_id, request })
    }

    fn is_subscribed(&self) -> bool {
        self.response_subscription == ResponseSubscription::Active
    }

    /// Returns an unused packet id, 1 to 65,535. There always is one, because of [`UNACKNOWLEDGED_MAX`].
    fn next_packet_id(&mut self) -> u16 {
        loop {
            self.next_packet_id = self.next_packet_id.wrapping_add(1);
            let id = self.next_packet_id;
            let is_used = self.unacknowledged.contains_key(&id)
                || self.subscribing.contains_key(&id)
                || self.unsubscribing.contains(&id)
                || self.response_subscription == (ResponseSubscription::Sent { packet_id: id });
            if id != 0 && !is_used {
                return id;
            }
        }
    }

    fn resend(&mut self, id: u64) {
        // An unsent request is in the queue already.
        if let Some(pending) = self.requests.get_mut(&id).filter(|pending| pending.is_sent) {
            pending.is_sent = false;
            self.unsent.push_front(id);
        }
    }

    fn start_timer(&mut self, id: u64, timer: Timer, after: Duration, now: Reading) {
        self.timers.extend(now.monotonic.checked_add(after).map(|at| (at, id, timer)));
    }

    /// Removes the deadlines of requests that have ended.
    fn forget_deadlines(&mut self) {
        let requests = &self.requests;
        self.deadlines.handle_ended(requests.len(), |id| requests.contains_key(&id));
    }

    fn fail(&mut self, id: u64, error: impl FnOnce(&Self, Outcome) -> Error) {
        self.answer(id, |session, outcome| Err(error(session, outcome)));
    }

    fn answer(&mut self, id: u64, result: impl FnOnce(&Self, Outcome) -> Result<Response, Error>) {
        let Some(pending) = self.requests.remove(&id) else {
            return;
        };
        if !pending.is_sent {
            self.unsent.retain(|unsent| *unsent != id);
        }
        self.forget_deadlines();
        let outcome = if pending.is_sent {
            pending.request.access.outcome_when_unanswered()
        } else {
            Outcome::Unchanged
        };
        let result = result(self, outcome);
        self.events.push_back(Event::Answer { ticket: pending.ticket, result });
    }
}

#[cfg(test)]
mod tests;
