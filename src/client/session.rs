//! One MQTT session as a state machine: packet ids, correlation, deadlines, keep-alive, resubscription (pure).

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};

use super::ask::{Access, Ask, Response};
use super::error::{Error, LossCause, Outcome, ReasonCode};
use super::packet::{Granted, Incoming, Outgoing};
use crate::clock::Reading;
use crate::net::secret::Secret;
use crate::protocol::message::{self, Message, Qos};
use crate::protocol::{Timestamp, topic};
use reauthentication::Reauthentication;

mod reauthentication;
mod response;
mod unsubscribe;

/// How long a read waits for an answer that may have been lost to a subscription not yet in force.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How long an answer may follow a broker's word that nobody takes requests.
///
/// The word is not proof: a broker that has the store inside may not count it as a subscriber.
const NO_STORE_AFTER: Duration = Duration::from_secs(1);
/// As good as for ever, and no clock overflows.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// MQTT's reason for a publish that nobody subscribes to.
const NO_MATCHING_SUBSCRIBERS: u8 = 0x10;
/// Reason codes from here on are failures (MQTT 5, 2.4).
const FAILURE_MIN: u8 = 0x80;

/// What the session tells its owner.
#[derive(Debug)]
pub enum Event<T> {
    /// A request has its answer.
    Answer {
        /// What came with the request.
        ticket: T,
        /// The answer.
        result: Result<Response, Error>,
    },
    /// A subscription is in force, or is not.
    Subscribed {
        /// What came with the subscription.
        ticket: T,
        /// What was granted, or why it is not.
        result: Result<Qos, Error>,
    },
    /// A message came that is no response.
    Message(Message),
    /// The broker has taken a newer token, or has not said so in time.
    Authenticated {
        /// Whether it has.
        is_confirmed: bool,
    },
}

/// The broker has been silent for one and a half keep-alives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent {
    /// When its last packet came.
    pub since: Instant,
}

/// What a session is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the broker is, for messages.
    pub target: String,
    /// The MQTT client id.
    pub client_id: String,
    /// From asking to the answer.
    pub request_timeout: Duration,
    /// How many requests may be unanswered at a time.
    pub inflight_max: usize,
    /// Eight random bytes: no two sessions share correlation data.
    pub prefix: u64,
    /// The node's clock before its first tick.
    pub clock: Timestamp,
}

/// One MQTT session.
///
/// Contract: after every call that takes `now`, drain [`Session::poll_outgoing`] and [`Session::poll_event`], then
/// wait for the network or for [`Session::poll_timeout`], whichever comes first. `T` is what the owner wants back with
/// an answer. Requests are sent in the order in which they were asked; a write waits until the subscription to the
/// responses is in force, a read does not and is asked once more if its answer stays out.
#[derive(Debug)]
pub struct Session<T> {
    config: Config,
    response_topic: String,
    clock: Timestamp,
    link: Option<Link>,
    subscription: Subscription,
    next_request: u64,
    next_packet_id: u16,
    requests: HashMap<u64, Pending<T>>,
    /// Requests not yet sent, in order.
    waiting: VecDeque<u64>,
    /// Subscriptions of the owner's that the broker has not answered, by packet id.
    subscribing: HashMap<u16, (String, T)>,
    /// The ends of subscriptions that the broker has not answered, by packet id.
    unsubscribing: BTreeSet<u16>,
    /// Unacknowledged publishes by packet id.
    unacknowledged: HashMap<u16, u64>,
    timers: BTreeSet<(Instant, u64, Timer)>,
    reauthentication: Reauthentication,
    outgoing: VecDeque<Outgoing>,
    events: VecDeque<Event<T>>,
}

#[derive(Debug)]
struct Link {
    granted: Granted,
    last_received: Instant,
    last_sent: Instant,
    pinged: bool,
}

/// The subscription to the responses.
#[derive(Debug, PartialEq, Eq)]
enum Subscription {
    None,
    Sent(u16),
    Active,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    AskAgain,
    NoStore,
    Deadline,
    /// Of a subscription; its number is a packet id.
    Subscription,
    /// Of a newer token.
    Authentication,
}

#[derive(Debug)]
struct Pending<T> {
    ask: Ask,
    ticket: T,
    deadline: Instant,
    sent: bool,
    acknowledged: bool,
    /// Sent before the subscription was in force: the answer may have been lost.
    hasty: bool,
}

impl<T> Session<T> {
    /// A session that is not connected yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let config = Config { request_timeout: config.request_timeout.min(REQUEST_TIMEOUT_MAX), ..config };
        Self {
            response_topic: topic::response(&config.client_id),
            clock: config.clock.clone(),
            config,
            link: None,
            subscription: Subscription::None,
            next_request: 0,
            next_packet_id: 0,
            requests: HashMap::new(),
            waiting: VecDeque::new(),
            subscribing: HashMap::new(),
            unsubscribing: BTreeSet::new(),
            unacknowledged: HashMap::new(),
            timers: BTreeSet::new(),
            reauthentication: Reauthentication::default(),
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Asks a request; its answer comes as an [`Event::Answer`] with this ticket.
    pub fn ask(&mut self, ask: Ask, ticket: T, now: Reading) {
        let id = self.next_request;
        self.next_request = id.wrapping_add(1);
        let deadline = now.monotonic.checked_add(self.config.request_timeout).unwrap_or(now.monotonic);
        self.timers.insert((deadline, id, Timer::Deadline));
        let pending = Pending { ask, ticket, deadline, sent: false, acknowledged: false, hasty: false };
        self.requests.insert(id, pending);
        self.waiting.push_back(id);
    }

    /// Subscribes, in this connection; the answer comes as an [`Event::Subscribed`], or never if the connection is lost.
    pub fn subscribe(&mut self, filter: String, ticket: T, now: Reading) {
        let packet_id = self.next_packet_id();
        self.outgoing.push_back(Outgoing::Subscribe { packet_id, filter: filter.clone() });
        if filter == self.response_topic && self.subscription == Subscription::None {
            self.subscription = Subscription::Sent(packet_id);
        }
        self.subscribing.insert(packet_id, (filter, ticket));
        self.start_timer(packet_id.into(), Timer::Subscription, self.config.request_timeout, now);
    }

    /// Shows the broker a newer token. Without a connection there is nothing to do: the next one begins with it.
    pub fn authenticate(&mut self, token: Secret, now: Reading) {
        if self.link.is_some() {
            let token = self.reauthentication.handle_token(token);
            self.send_token(token, now);
        }
    }

    fn send_token(&mut self, token: Option<Secret>, now: Reading) {
        if let Some(token) = token {
            self.outgoing.push_back(Outgoing::Authenticate { token });
            self.start_timer(0, Timer::Authentication, self.config.request_timeout, now);
        }
    }

    /// The broker has judged a token, or lets us wait for too long; a newer one may have come meanwhile.
    fn end_authentication(&mut self, is_confirmed: bool, now: Reading) {
        if self.reauthentication.is_under_way() {
            self.timers.retain(|(_, _, timer)| *timer != Timer::Authentication);
            self.events.push_back(Event::Authenticated { is_confirmed });
            let next = self.reauthentication.handle_end();
            self.send_token(next, now);
        }
    }

    /// Whether another request would not only wait: the owner's back-pressure.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.requests.len() < self.config.inflight_max
    }

    /// The broker has let us in: subscriptions and waiting requests go out.
    pub fn handle_connected(&mut self, granted: Granted, now: Reading) {
        let Reading { monotonic, .. } = now;
        self.link = Some(Link { granted, last_received: monotonic, last_sent: monotonic, pinged: false });
    }

    /// The connection is lost. Writes that were sent fail with an unknown outcome; all else waits for the next one.
    pub fn handle_lost(&mut self, cause: &LossCause) {
        self.link = None;
        self.subscription = Subscription::None;
        self.subscribing.clear();
        self.unsubscribing.clear();
        self.unacknowledged.clear();
        self.reauthentication = Reauthentication::default();
        self.outgoing.clear();
        // What the broker of that connection has said, or not said, means nothing for the next one.
        self.timers.retain(|(_, _, timer)| *timer == Timer::Deadline);
        let mut sent: Vec<u64> =
            self.requests.iter().filter(|(_, pending)| pending.sent).map(|(id, _)| *id).collect();
        sent.sort_unstable();
        for id in sent.into_iter().rev() {
            let access = self.requests.get(&id).map(|pending| pending.ask.access);
            if access == Some(Access::Read) {
                self.send_again(id);
            } else {
                self.fail(id, |session, outcome| session.lost(cause, outcome));
            }
        }
    }

    /// Takes back requests that nobody wants an answer to any more.
    pub fn withdraw(&mut self, is_unwanted: impl Fn(&T) -> bool) {
        let mut unwanted: Vec<(u64, Instant)> = Vec::new();
        self.requests.retain(|id, pending| {
            let wanted = !is_unwanted(&pending.ticket);
            if !wanted {
                unwanted.push((*id, pending.deadline));
            }
            wanted
        });
        for (id, deadline) in unwanted {
            self.timers.remove(&(deadline, id, Timer::Deadline));
        }
        let requests = &self.requests;
        self.waiting.retain(|id| requests.contains_key(id));
    }

    /// There will be no connection any more: every request fails.
    pub fn handle_closed(&mut self, error: impl Fn(Outcome) -> Error) {
        let ids: Vec<u64> = self.requests.keys().copied().collect();
        for id in ids {
            self.fail(id, |_, outcome| error(outcome));
        }
    }

    /// The error of a request whose connection was lost.
    pub fn lost(&self, cause: &LossCause, outcome: Outcome) -> Error {
        Error::Lost { target: self.config.target.clone(), cause: cause.clone(), outcome }
    }

    /// A publish from [`Session::poll_outgoing`] is larger than the broker takes, and was not sent.
    pub fn handle_too_large(&mut self, packet_id: u16, size: usize, max: usize) {
        if let Some(id) = self.unacknowledged.remove(&packet_id) {
            self.fail(id, |_, _| Error::TooLarge { size, max });
        }
    }

    /// A packet came.
    pub fn handle_incoming(&mut self, incoming: Incoming, now: Reading) {
        if let Some(link) = &mut self.link {
            link.last_received = now.monotonic;
            link.pinged = false;
        }
        match incoming {
            Incoming::Publish { packet_id, message } => {
                self.outgoing.extend(packet_id.map(|packet_id| Outgoing::PubAck { packet_id }));
                if message.topic == self.response_topic {
                    self.handle_response(message, now);
                } else {
                    self.events.push_back(Event::Message(message));
                }
            }
            Incoming::PubAck { packet_id, reason } => self.handle_puback(packet_id, reason, now),
            Incoming::SubAck { packet_id, reason } => self.handle_suback(packet_id, reason, now),
            Incoming::UnsubAck { packet_id, .. } => drop(self.unsubscribing.remove(&packet_id)),
            Incoming::Pong => {}
            Incoming::Authenticated => self.end_authentication(true, now),
        }
    }

    fn handle_response(&mut self, message: Message, now: Reading) {
        let Some(id) = message.correlation.as_deref().and_then(|data| self.request_id(data)) else {
            return; // an answer that came too late, or to somebody else's question
        };
        let takes_any = self.requests.get(&id).is_some_and(|it| it.ask.stamps.timestamp.is_some());
        match response::version(&message, now.wall_ms, takes_any) {
            Ok(version) => {
                if let Some(version) = version.as_ref().filter(|it| !it.is_too_far_ahead(now.wall_ms)) {
                    self.clock = self.clock.merge(version, now.wall_ms);
                }
                let has_status = message.user_property(message::STATUS).is_some();
                self.answer(id, |_, _| Ok(Response { payload: message.payload, version, has_status }));
            }
            Err(trouble) => self.fail(id, |_, outcome| trouble.into_error(outcome)),
        }
    }

    fn handle_puback(&mut self, packet_id: u16, reason: ReasonCode, now: Reading) {
        let Some(id) = self.unacknowledged.remove(&packet_id) else {
            return;
        };
        let Some(pending) = self.requests.get_mut(&id) else {
            return; // answered before it was acknowledged
        };
        pending.acknowledged = true;
        if reason.code >= FAILURE_MIN {
            self.fail(id, |_, _| Error::PublishRefused { reason });
        } else if reason.code == NO_MATCHING_SUBSCRIBERS {
            self.start_timer(id, Timer::NoStore, NO_STORE_AFTER, now);
        } else if pending.hasty && self.subscription == Subscription::Active {
            self.start_timer(id, Timer::AskAgain, ASK_AGAIN_AFTER, now);
        }
    }

    fn handle_suback(&mut self, packet_id: u16, reason: ReasonCode, now: Reading) {
        if let Some((filter, ticket)) = self.subscribing.remove(&packet_id) {
            let refused = reason.code >= FAILURE_MIN;
            let granted = if reason.code == 0 { Qos::AtMostOnce } else { Qos::AtLeastOnce };
            let reason = reason.clone();
            let result = if refused { Err(Error::SubscribeRefused { filter, reason }) } else { Ok(granted) };
            self.events.push_back(Event::Subscribed { ticket, result });
        }
        if self.subscription != Subscription::Sent(packet_id) {
            return;
        }
        if reason.code >= FAILURE_MIN {
            self.subscription = Subscription::None;
            let filter = self.response_topic.clone();
            self.handle_closed(|_| Error::SubscribeRefused {
                filter: filter.clone(),
                reason: reason.clone(),
            });
            return;
        }
        self.subscription = Subscription::Active;
        let hasty = |(_, pending): &(&u64, &Pending<T>)| pending.hasty && pending.acknowledged;
        let hasty: Vec<u64> = self.requests.iter().filter(hasty).map(|(id, _)| *id).collect();
        for id in hasty {
            self.start_timer(id, Timer::AskAgain, ASK_AGAIN_AFTER, now);
        }
    }

    /// Time has passed: deadlines fall, the broker is probed.
    ///
    /// # Errors
    /// [`Silent`] if the connection is to be given up.
    pub fn handle_timeout(&mut self, now: Reading) -> Result<(), Silent> {
        while let Some((_, id, timer)) = self.timers.first().copied().filter(|(at, ..)| *at <= now.monotonic)
        {
            self.timers.pop_first();
            let target = self.config.target.clone();
            match timer {
                Timer::Deadline => {
                    let after = self.config.request_timeout;
                    self.fail(id, |_, outcome| Error::Timeout { target, after, outcome });
                }
                Timer::NoStore => self.fail(id, |_, outcome| Error::NoStore { target, outcome }),
                Timer::AskAgain => self.send_again(id),
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
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        let keep_alive = link.granted.keep_alive;
        if keep_alive.is_zero() {
            return Ok(());
        }
        let silent = now.monotonic.saturating_duration_since(link.last_received);
        let idle = now.monotonic.saturating_duration_since(link.last_sent);
        if silent >= one_and_a_half(keep_alive) {
            return Err(Silent { since: link.last_received });
        }
        if (silent >= keep_alive && !link.pinged) || idle >= keep_alive {
            link.pinged = true;
            link.last_sent = now.monotonic;
            self.outgoing.push_back(Outgoing::Ping);
        }
        Ok(())
    }

    /// When [`Session::handle_timeout`] wants to be called, if nothing comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timer = self.timers.first().map(|(at, ..)| *at);
        let probe = self.link.as_ref().filter(|link| !link.granted.keep_alive.is_zero()).and_then(|link| {
            let keep_alive = link.granted.keep_alive;
            let patience = if link.pinged { one_and_a_half(keep_alive) } else { keep_alive };
            let silent = link.last_received.checked_add(patience)?;
            Some(silent.min(link.last_sent.checked_add(keep_alive)?))
        });
        timer.into_iter().chain(probe).min()
    }

    /// The owner does not read for now, so the broker's silence means nothing.
    pub fn excuse_silence(&mut self, now: Reading) {
        if let Some(link) = &mut self.link {
            link.last_received = now.monotonic;
            link.pinged = false;
        }
    }

    /// What to send next, if anything.
    pub fn poll_outgoing(&mut self, now: Reading) -> Option<Outgoing> {
        self.link.as_ref()?;
        // Subscriptions and acknowledgements go before the requests that rely on them.
        let outgoing = self.outgoing.pop_front();
        let outgoing = outgoing.or_else(|| self.next_subscription());
        let outgoing = outgoing.or_else(|| self.next_request(now))?;
        self.link.as_mut()?.last_sent = now.monotonic;
        Some(outgoing)
    }

    /// What to tell the owner next, if anything.
    pub fn poll_event(&mut self) -> Option<Event<T>> {
        self.events.pop_front()
    }

    fn next_subscription(&mut self) -> Option<Outgoing> {
        if self.subscription != Subscription::None || self.waiting.is_empty() {
            return None;
        }
        let packet_id = self.next_packet_id();
        self.subscription = Subscription::Sent(packet_id);
        Some(Outgoing::Subscribe { packet_id, filter: self.response_topic.clone() })
    }

    fn next_request(&mut self, now: Reading) -> Option<Outgoing> {
        let receive_max = usize::from(self.link.as_ref()?.granted.receive_max);
        if self.unacknowledged.len() >= receive_max {
            return None;
        }
        let id = *self.waiting.front()?;
        let active = self.subscription == Subscription::Active;
        let pending = self.requests.get(&id)?;
        if pending.ask.access == Access::Write && !active {
            return None;
        }
        self.waiting.pop_front();
        let packet_id = self.next_packet_id();
        self.clock = self.clock.tick(now.wall_ms);
        let message = self.message(id, now)?;
        let pending = self.requests.get_mut(&id)?;
        pending.sent = true;
        pending.acknowledged = false;
        pending.hasty = !active;
        self.unacknowledged.insert(packet_id, id);
        Some(Outgoing::Publish { packet_id, message })
    }

    /// The request as it is published (protocol §1).
    fn message(&self, id: u64, now: Reading) -> Option<Message> {
        let Pending { ask, deadline, .. } = self.requests.get(&id)?;
        let left = deadline.saturating_duration_since(now.monotonic);
        let expiry_s = left.as_millis().div_ceil(1000).max(1);
        let client_id = &self.config.client_id;
        let mut user_properties = vec![
            (message::SOURCE.into(), client_id.clone().into()),
            (
                message::TIMESTAMP.into(),
                ask.stamps.timestamp.as_ref().unwrap_or(&self.clock).to_text().into(),
            ),
            (message::PROTOCOL_VERSION.into(), message::PROTOCOL_VERSION_1.into()),
            (message::PARTITION.into(), client_id.clone().into()),
            (message::HIGH_PRIORITY.into(), "".into()),
        ];
        if let Some(fence) = &ask.stamps.fence {
            user_properties.push((message::FENCE.into(), fence.to_text().into()));
        }
        if ask.stamps.persist {
            user_properties.push((message::PERSIST.into(), "true".into()));
        }
        Some(Message {
            topic: topic::REQUEST.to_owned(),
            payload: ask.payload.clone(),
            qos: Qos::AtLeastOnce,
            response_topic: Some(self.response_topic.clone()),
            correlation: Some(self.correlation(id)),
            content_type: Some(message::CONTENT_TYPE.into()),
            expiry_s: u32::try_from(expiry_s).ok(),
            user_properties,
            ..Message::default()
        })
    }

    /// Sixteen bytes, as the SDKs' UUIDs have; the second half is the request's number.
    fn correlation(&self, id: u64) -> Bytes {
        let mut data = BytesMut::with_capacity(16);
        data.put_u64(self.config.prefix);
        data.put_u64(id);
        data.freeze()
    }

    fn request_id(&self, correlation: &[u8]) -> Option<u64> {
        let (prefix, id) = correlation.split_first_chunk::<8>()?;
        let id = u64::from_be_bytes(id.try_into().ok()?);
        (u64::from_be_bytes(*prefix) == self.config.prefix && self.requests.contains_key(&id)).then_some(id)
    }

    /// Packet ids are 1 to 65,535, and none that is still in use.
    fn next_packet_id(&mut self) -> u16 {
        loop {
            self.next_packet_id = self.next_packet_id.wrapping_add(1);
            let id = self.next_packet_id;
            let used = self.unacknowledged.contains_key(&id)
                || self.subscribing.contains_key(&id)
                || self.unsubscribing.contains(&id)
                || self.subscription == Subscription::Sent(id);
            if id != 0 && !used {
                return id;
            }
        }
    }

    fn send_again(&mut self, id: u64) {
        // One that waits already would be in the queue twice.
        if let Some(pending) = self.requests.get_mut(&id).filter(|pending| pending.sent) {
            pending.sent = false;
            self.waiting.push_front(id);
        }
    }

    fn start_timer(&mut self, id: u64, timer: Timer, after: Duration, now: Reading) {
        self.timers.extend(now.monotonic.checked_add(after).map(|at| (at, id, timer)));
    }

    fn fail(&mut self, id: u64, error: impl FnOnce(&Self, Outcome) -> Error) {
        self.answer(id, |session, outcome| Err(error(session, outcome)));
    }

    fn answer(&mut self, id: u64, result: impl FnOnce(&Self, Outcome) -> Result<Response, Error>) {
        let Some(pending) = self.requests.remove(&id) else {
            return;
        };
        if !pending.sent {
            self.waiting.retain(|waiting| *waiting != id);
        }
        self.timers.remove(&(pending.deadline, id, Timer::Deadline));
        let outcome =
            if pending.sent { pending.ask.access.outcome_when_unanswered() } else { Outcome::Unchanged };
        let result = result(self, outcome);
        self.events.push_back(Event::Answer { ticket: pending.ticket, result });
    }
}

fn one_and_a_half(keep_alive: Duration) -> Duration {
    keep_alive.saturating_mul(3).checked_div(2).unwrap_or(keep_alive)
}

#[cfg(test)]
mod tests;
