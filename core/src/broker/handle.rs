//! The handle of a broker, and the traits of the program that it is a part of.

mod direct_delivery;
mod peer;
pub mod publishing;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

pub use self::peer::{Peer, SessionPhase};
use super::authentication::{Authenticator, Credential};
use super::counters::Counters;
use super::event::{Event, EventSink};
use super::memory::{Account, MemoryBudget};
use super::permissions::AccessControl;
use super::publication::Publication;
use super::settings::Settings;
use crate::broker::routing::registry::retained_delivery::RetainedDelivery;
use crate::broker::routing::registry::{AttachedSession, Registry, Subscribed};
use crate::broker::session::connection_handle::{CloseReason, ConnectionHandle};
use crate::broker::session::entry::{SessionEntry, SessionRequest};
use crate::clock;
use crate::mqtt::ReasonCode;
use crate::mqtt::filter;
use crate::mqtt::packet::SubscriptionRequest;
use crate::protocol::ConnectionId;
use crate::protocol::message::Message;

/// The start of the topics with the broker's own statistics. Clients must not publish there: they could forge them.
pub const SYS: &str = "$SYS/";
/// Why a message of a client on such a topic is rejected.
pub const SYS_IS_RESERVED: &str = "only the broker publishes there";
/// The start of the topics on which bridges of Mosquitto announce whether they are connected. Messages and wills there
/// are accepted, because a bridge does not connect otherwise, and dropped.
pub const BRIDGE_STATUS: &str = "$SYS/broker/connection/";

/// The most topic filters that one [`Broker::subscribe`] or [`Broker::unsubscribe`] may get, because other connections wait
/// meanwhile: some tens of microseconds with sixteen levels each.
pub(super) const FILTERS_PER_STEP_MAX: usize = 8;

/// What the application decides about a message from a client.
#[derive(Debug)]
pub enum Verdict {
    /// The message is routed to its subscribers.
    Route(Message),
    /// The application has handled the message: it is acknowledged, and not routed.
    Consumed,
    /// The message is not routed, and the acknowledgement has this reason code.
    Refused(ReasonCode),
    /// The message is handled in bounded steps, between which other clients are served.
    Continue(Box<dyn Continuation>),
    /// The client is disconnected.
    Disconnect {
        reason: ReasonCode,
        /// The reason string.
        text: String,
    },
}

/// The rest of the handling of a message. The other messages of its client wait until it is complete.
pub trait Continuation: fmt::Debug + Send {
    /// Does the next step; returns the verdict, which is not `Continue`, after the last one.
    fn step(&mut self, broker: &Broker) -> Option<Verdict>;

    /// Returns how long to wait before the next step; zero: until other connections of the thread have had their turn.
    fn pause(&self) -> Duration {
        Duration::ZERO
    }
}

/// The application that the broker serves. All of its functions may call the broker: it holds no lock meanwhile.
pub trait Application: Send + Sync + 'static {
    /// Handles a message from a client, received at `now`, in the task of its connection, before it is routed. Messages
    /// that are pushed to `from` meanwhile are sent together with the acknowledgement.
    fn handle_publish(&self, broker: &Broker, from: &Peer, message: Message, now: Instant) -> Verdict;

    /// Returns the one topic whose messages the application consumes, and copies to its subscribers: see
    /// [`Broker::publish_monitor_copy`].
    fn monitored_topic(&self) -> Option<&str> {
        None
    }

    /// Checks a Will Message. When it is published later, it does not pass [`Application::handle_publish`].
    ///
    /// # Errors
    ///
    /// Why the client may not have it.
    fn check_will(&self, _will: &Message) -> Result<(), String> {
        Ok(())
    }

    /// Whether a topic filter belongs to a client, so that it needs no permission for it.
    fn is_own_filter(&self, _client_id: &str, _filter: &str) -> bool {
        false
    }

    /// Handles the end of a connection: called once for each that was accepted, after its last message.
    ///
    /// When a session is taken over, messages of the new connection may come before this call for the old one:
    /// distinguish them by [`Peer::connection`], not by the client id.
    fn handle_disconnect(&self, broker: &Broker, peer: &Peer);
}

/// Routes every message.
impl Application for () {
    fn handle_publish(&self, _: &Broker, _: &Peer, message: Message, _: Instant) -> Verdict {
        Verdict::Route(message)
    }

    fn handle_disconnect(&self, _: &Broker, _: &Peer) {}
}

/// What a broker is given by the program that it is a part of.
#[derive(Clone)]
pub struct Hooks {
    pub application: Arc<dyn Application>,
    pub authenticator: Arc<dyn Authenticator>,
    /// None: every client may do everything.
    pub access_control: Option<Arc<dyn AccessControl>>,
    pub events: EventSink,
    pub counters: Arc<Counters>,
}

impl Hooks {
    /// Returns the hooks of a broker that knows no users and no rules, and discards its events.
    #[must_use]
    pub fn new(application: Arc<dyn Application>) -> Self {
        Self {
            application,
            authenticator: Arc::new(()),
            access_control: None,
            events: Arc::new(|_| {}),
            counters: Arc::default(),
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}

/// A handle of the broker: cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct Broker {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    hooks: Hooks,
    registry: RwLock<Registry>,
    memory: Arc<MemoryBudget>,
    /// The owner of what the server publishes itself.
    own: Arc<Account>,
    /// Whether the monitored topic has a subscriber. Updated with every change of the subscriptions, so that a message
    /// costs one load while there is none: no lock, no search in the trie.
    has_monitors: AtomicBool,
    /// Will Messages with many subscribers, for the expiry task.
    unfinished_wills: Mutex<VecDeque<Box<dyn Continuation>>>,
    /// Notifies the expiry task of a new deadline, of a Will Message, or of sessions that have ended.
    deadline: Notify,
    /// Notifies [`Broker::drain`] of a connection that has drained or closed.
    drained: Notify,
}

/// Returns the number of the next connection.
#[must_use]
pub fn next_connection_id() -> ConnectionId {
    static LAST: AtomicU64 = AtomicU64::new(0);
    // 64 bits do not overflow: 2^64 connections take centuries.
    ConnectionId(LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1))
}

impl Broker {
    #[must_use]
    pub fn new(settings: Settings, hooks: Hooks) -> Self {
        let registry = Registry::new(&settings);
        let memory = Arc::clone(registry.memory());
        let own = memory.account("the server");
        let registry = RwLock::new(registry);
        let has_monitors = AtomicBool::new(false);
        let (deadline, drained) = (Notify::new(), Notify::new());
        let inner = Inner {
            settings,
            hooks,
            registry,
            memory,
            own,
            has_monitors,
            unfinished_wills: Mutex::default(),
            deadline,
            drained,
        };
        Self { inner: Arc::new(inner) }
    }

    #[must_use]
    pub fn memory(&self) -> &Arc<MemoryBudget> {
        &self.inner.memory
    }

    /// Delivers a message to one connection exactly once, whether or not it subscribes to the topic; and to all other
    /// sessions that subscribe to it.
    ///
    /// If the client subscribes to the topic, the message has the granted QoS at most and the identifiers of its
    /// subscriptions (MQTT 5, 3.3.4 and 3.8.4).
    ///
    /// If the connection is closed, the client `client_id` does not get the message at all.
    pub fn push(&self, to: ConnectionId, client_id: &str, message: Message) {
        let now = clock::monotonic();
        let publication = Arc::new(Publication::new(message, now));
        self.route(None, Some((to, client_id)), publication, now);
    }

    /// Whether the topic of [`Application::monitored_topic`] has a subscriber.
    #[must_use]
    pub fn has_monitors(&self) -> bool {
        self.inner.has_monitors.load(Ordering::Acquire)
    }

    /// Delivers a message that the application consumes to the subscribers of its topic, so that a monitor sees it.
    ///
    /// The message is not retained, whatever its retain flag: a later subscriber must not take it for a new one.
    pub fn publish_monitor_copy(&self, from: ConnectionId, message: Message) {
        let now = clock::monotonic();
        let publication = Arc::new(Publication::new(message, now));
        self.route(Some(from), None, publication, now);
    }

    /// Closes a connection with a DISCONNECT, if it is still open.
    pub fn disconnect(&self, connection: ConnectionId, reason: ReasonCode, text: &str) {
        if let Some(handle) = self.read().handle(connection) {
            handle.close(reason, text);
        }
    }

    /// Notes the credential of a connection. A credential that has become invalid since it was checked closes the
    /// connection: [`Broker::close_invalid`] may have missed it.
    pub(super) fn set_credential(&self, handle: &ConnectionHandle, credential: Option<Arc<dyn Credential>>) {
        if credential.is_some() {
            handle.set_credential(credential);
            handle.close_if_invalid(clock::wall_ms() / 1_000);
        }
    }

    /// Closes the connections whose clients have authenticated with what is no longer valid; returns their number.
    pub fn close_invalid(&self) -> usize {
        let now_s = clock::wall_ms() / 1_000;
        // Without the lock: a credential is compared with a long list.
        self.sessions()
            .flatten()
            .filter_map(|entry| entry.lock().handle.clone())
            .filter(|handle| handle.close_reason().is_none() && handle.close_if_invalid(now_s))
            .count()
    }

    /// Gives a connection its session.
    ///
    /// # Errors
    ///
    /// The reason code to reject the connection with.
    pub(super) fn attach(&self, request: SessionRequest) -> Result<AttachedSession, ReasonCode> {
        let now = clock::monotonic();
        let mut attached = self.change(|registry| registry.attach(request, now))?;
        if attached.needs_reauthorization {
            self.reauthorize(&attached.entry);
        }
        if let Some(will) = attached.will.take() {
            self.publish_will(will);
        }
        Ok(attached)
    }

    /// Takes the session of a closed connection back.
    pub(super) fn detach(&self, connection: ConnectionId, close_reason: &CloseReason) {
        let expiry_s = close_reason
            .session_expiry_s()
            .map(|seconds| seconds.min(self.inner.settings.session_expiry_s_max));
        let now = clock::monotonic();
        let publishes_will = close_reason.publishes_will();
        let will = self.change(|registry| registry.detach(connection, publishes_will, expiry_s, now));
        self.inner.deadline.notify_one();
        self.note_drained();
        if let Some(will) = will {
            self.publish_will(will);
        }
    }

    /// Subscribes a client to the topic filters that it has permission for: some of its packet, at most
    /// [`FILTERS_PER_STEP_MAX`]. After the last ones, their retained messages must be delivered: see
    /// [`Broker::deliver_retained`].
    pub(super) fn subscribe(
        &self,
        peer: &Peer,
        entry: &Arc<SessionEntry>,
        requests: Vec<SubscriptionRequest>,
    ) -> Subscribed {
        let Some(permissions) = &peer.permissions else {
            return self.change(|registry| registry.subscribe(peer.connection, requests));
        };
        let generation = permissions.generation();
        let is_allowed = |request: &SubscriptionRequest| {
            let filter = filter::shared(&request.filter).unwrap_or(&request.filter);
            self.is_own(&peer.client_id, filter) || permissions.may_subscribe(filter)
        };
        let allowed: Vec<bool> = requests.iter().map(is_allowed).collect();
        let (mut granted, mut refused) = (Vec::new(), Vec::new());
        for (request, is_allowed) in requests.into_iter().zip(&allowed) {
            if *is_allowed { granted.push(request) } else { refused.push(request.filter) }
        }
        self.report(refused.into_iter().map(|filter| peer.not_authorized("subscribe to", filter)));
        let Subscribed { results, retained } =
            self.change(|registry| registry.subscribe(peer.connection, granted));
        let mut results = results.into_iter();
        if permissions.generation() != generation {
            // The rules changed meanwhile. Their re-authorization of all sessions may have come before the subscriptions
            // were added, and so have missed them.
            self.reauthorize(entry);
        }
        let result = |is_allowed: &bool| match is_allowed {
            true => results.next().unwrap_or(Err(ReasonCode::UnspecifiedError)),
            false => Err(ReasonCode::NotAuthorized),
        };
        Subscribed { results: allowed.iter().map(result).collect(), retained }
    }

    /// Does one bounded step of a delivery of retained messages; returns whether there are more.
    pub(super) fn deliver_retained(&self, delivery: &mut RetainedDelivery) -> bool {
        let now = clock::monotonic();
        let mut events = Vec::new();
        let has_more = self.read().deliver_retained(delivery, now, &mut events);
        self.report(events);
        has_more
    }

    /// Removes subscriptions: some of a packet, at most [`FILTERS_PER_STEP_MAX`].
    pub(super) fn unsubscribe(&self, connection: ConnectionId, filters: &[String]) -> Vec<ReasonCode> {
        self.change(|registry| registry.unsubscribe(connection, filters))
    }

    /// Applies changed rules to all sessions, their subscriptions and their queued messages.
    pub fn reauthorize_all(&self) {
        self.sessions().flatten().for_each(|entry| self.reauthorize(&entry));
    }

    fn reauthorize(&self, entry: &Arc<SessionEntry>) {
        // Evaluates the rules before the lock is taken, which every connection waits for.
        let permissions = entry.lock().permissions.clone();
        if let Some(permissions) = permissions {
            permissions.refresh();
        }
        let now = clock::monotonic();
        self.change(|registry| {
            registry.reauthorize(entry, now, |client_id, topic| self.is_own(client_id, topic));
        });
    }

    /// Whether a topic or a topic filter is the client's own, for which it needs no permission.
    fn is_own(&self, client_id: &str, topic: &str) -> bool {
        self.inner.hooks.application.is_own_filter(client_id, topic)
    }

    /// Ends expired sessions and publishes the Will Messages that are due, or begins to: see [`Broker::route_wills`];
    /// returns the next deadline.
    pub(super) fn handle_deadlines(&self, now: Instant) -> Option<Instant> {
        let (wills, next) =
            self.change(|registry| (registry.handle_deadlines(now), registry.next_deadline()));
        for will in wills {
            self.publish_will(will);
        }
        next
    }

    /// Waits until there may be an earlier deadline than before.
    pub(super) async fn deadline_changed(&self) {
        self.inner.deadline.notified().await;
    }

    /// Rejects new connections and stops reading from the others; returns when every packet that was read by now has
    /// been handled.
    pub(super) async fn drain(&self) {
        self.write().drain();
        while !self.read().is_drained() {
            self.inner.drained.notified().await;
        }
    }

    /// Closes the connections of a drained broker, each once its messages have been sent.
    pub(super) fn finish(&self) {
        self.read().finish();
    }

    /// Notifies [`Broker::drain`] that a connection has drained or closed.
    pub(super) fn note_drained(&self) {
        self.inner.drained.notify_one();
    }

    /// Returns the number of connected clients.
    pub(super) fn connections(&self) -> usize {
        self.read().connections()
    }

    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.inner.hooks.counters
    }

    /// Closes all connections and rejects new ones.
    pub(super) fn close(&self) {
        self.write().close();
    }

    /// Checks a Will Message with the application.
    ///
    /// # Errors
    ///
    /// Why the client may not have it.
    pub(super) fn check_will(&self, will: &Message) -> Result<(), String> {
        if will.topic.starts_with(SYS) {
            return Err(SYS_IS_RESERVED.to_owned());
        }
        self.inner.hooks.application.check_will(will)
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    pub(super) fn hooks(&self) -> &Hooks {
        &self.inner.hooks
    }

    /// Passes events to the operator.
    pub(super) fn report(&self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            (self.inner.hooks.events)(event);
        }
    }

    /// Runs a change of the registry that may change the subscriptions, then some of what the end of sessions leaves to be
    /// done, so that it does not pile up. The expiry task does the rest: this thread has other connections to serve.
    fn change<T>(&self, change: impl FnOnce(&mut Registry) -> T) -> T {
        let (result, has_ended) =
            self.change_once(|registry| (change(registry), registry.has_ended_sessions()));
        if has_ended && self.end_sessions() && self.end_sessions() {
            self.inner.deadline.notify_one();
        }
        result
    }

    /// Does a step of what the end of sessions leaves to be done; returns whether there is more.
    pub(super) fn end_sessions(&self) -> bool {
        self.read().has_ended_sessions()
            && self.change_once(|registry| registry.handle_ended_sessions(clock::monotonic()))
    }

    fn change_once<T>(&self, change: impl FnOnce(&mut Registry) -> T) -> T {
        let mut registry = self.write();
        let result = change(&mut registry);
        let topic = self.inner.hooks.application.monitored_topic();
        let has_monitors = topic.is_some_and(|topic| registry.has_subscribers(topic));
        self.inner.has_monitors.store(has_monitors, Ordering::Release);
        let events = registry.take_events();
        // The sink of the events is foreign code, so it is not called under the lock.
        drop(registry);
        self.report(events);
        result
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Registry> {
        self.inner.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Registry> {
        self.inner.registry.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}
