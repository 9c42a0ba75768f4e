//! An MQTT 5 broker that serves one application behind it; nothing here knows the state store.

pub mod authentication;
pub mod busy_poll;
pub mod busy_poll_stream;
pub mod codec;
pub mod connection;
pub mod deferred_packets;
pub mod dialect;
pub mod expiry_task;
pub mod filter;
pub mod intake;
pub mod listener;
pub mod mqtt311;
pub mod packet;
pub mod packet_handler;
pub mod publication;
pub mod publish;
pub mod reason;
pub mod registry;
pub mod retained;
pub mod session;
pub mod session_entry;
pub mod shared_subscriptions;
pub mod strict;
pub mod subscriptions;
pub mod topic_aliases;
pub mod traffic_counters;
pub mod workers;

#[cfg(test)]
pub(crate) mod test_client;
#[cfg(test)]
mod wire_tests;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use tokio::sync::Notify;

use self::packet::SubscriptionRequest;
use self::publication::Publication;
use self::reason::Reason;
use self::registry::{Arrival, Attached, Registry};
use crate::broker::session_entry::SessionEntry;
use crate::clock;
use crate::protocol::ConnectionId;
use crate::protocol::message::{Message, Qos};
use crate::server::authorization::Permissions;
use crate::server::event::Event;
use crate::server::identity::Principal;
use crate::server::operations::metrics::Metrics;
use crate::server::operations::statistics::{Client, Statistics};
use crate::server::settings::Settings;

/// Where the broker tells of itself; a client that publishes there could pass for it.
pub const SYS: &str = "$SYS/";
/// Why a client may not.
const ONLY_THE_BROKER: &str = "only the broker publishes there";

/// Returns the number of the next connection.
fn next_connection_id() -> ConnectionId {
    static LAST: AtomicU64 = AtomicU64::new(0);
    ConnectionId(LAST.fetch_add(1, Ordering::Relaxed).saturating_add(1))
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The connection; a client that comes again has another one.
    pub connection: ConnectionId,
    /// The client.
    pub client_id: Arc<str>,
    /// Who it has shown to be.
    pub principal: Principal,
    /// What the rules let it do; none: there are no rules.
    pub pass: Option<Arc<Permissions>>,
}

impl Peer {
    /// Whether it may publish to a topic.
    #[must_use]
    pub fn may_publish(&self, topic: &str) -> bool {
        self.pass.as_ref().is_none_or(|pass| pass.may_publish(topic))
    }

    /// That no rule lets it do this.
    fn refusal(&self, what: &'static str, topic: String) -> Event {
        Event::NotAuthorized { client_id: Arc::clone(&self.client_id), what, topic }
    }
}

/// What becomes of a message that a client has published.
#[derive(Debug)]
pub enum Verdict {
    /// It goes to whoever subscribes to it.
    Route(Message),
    /// It has been dealt with; the client gets its acknowledgement, nobody gets the message.
    Consumed,
    /// Nobody gets the message; the client gets this with its acknowledgement.
    Refused(Reason),
    /// The client is disconnected.
    Disconnect {
        /// The reason code to give.
        reason: Reason,
        /// The same in words.
        text: String,
    },
}

/// What sits behind the broker. It may call the broker from all of its functions.
pub trait Application: Send + Sync + 'static {
    /// Takes a message from a client, in the task of its connection, before it is routed and acknowledged.
    ///
    /// What is pushed to `from` meanwhile goes out together with the acknowledgement.
    fn handle_publish(&self, broker: &Broker, from: &Peer, message: Message) -> Verdict;

    /// The one topic whose messages it consumes and yet lets others overhear: see [`Broker::overhear`].
    fn overheard_topic(&self) -> Option<&str> {
        None
    }

    /// Says why a client may not leave this will, if it may not: a will is routed without another look at it.
    ///
    /// # Errors
    /// The reason in words.
    fn check_will(&self, _will: &Message) -> Result<(), String> {
        Ok(())
    }

    /// Whether a filter is the client's own by what it is, whatever the rules say.
    fn is_own_filter(&self, _client_id: &str, _filter: &str) -> bool {
        false
    }

    /// A connection is over: called once for each that was accepted, after its last message.
    ///
    /// When a client's next connection takes over, messages of that one may come before this: tell them apart
    /// by [`Peer::connection`], not by the client id.
    fn handle_disconnect(&self, broker: &Broker, peer: &Peer);
}

/// Nothing behind the broker: every message is routed.
impl Application for () {
    fn handle_publish(&self, _: &Broker, _: &Peer, message: Message) -> Verdict {
        Verdict::Route(message)
    }

    fn handle_disconnect(&self, _: &Broker, _: &Peer) {}
}

/// How a connection comes to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The client said goodbye.
    Left {
        /// Whether its will is to be published all the same.
        keeps_will: bool,
        /// How long the session lives on, if not as long as said before; in seconds.
        session_expiry_s: Option<u32>,
    },
    /// The server ends it, and says so in a DISCONNECT.
    Cut {
        /// The reason code.
        reason: Reason,
        /// The same in words.
        text: String,
    },
    /// It broke.
    Lost(String),
}

impl Ending {
    fn keeps_will(&self) -> bool {
        match self {
            Self::Left { keeps_will, .. } => *keeps_will,
            // All clients go at once, and there is nobody left to tell.
            Self::Cut { reason, .. } => *reason != Reason::ServerShuttingDown,
            Self::Lost(_) => true,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left { .. } => write!(f, "it disconnected"),
            Self::Cut { reason, text } => write!(f, "{reason}: {text}"),
            Self::Lost(text) => write!(f, "connection lost: {text}"),
        }
    }
}

/// The broker: a handle that is cheap to clone and may be used from any thread.
#[derive(Clone)]
pub struct Broker {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    application: Arc<dyn Application>,
    registry: RwLock<Registry>,
    /// Whether anybody subscribes to the topic that may be overheard. Kept with each change of the subscriptions, so
    /// that a message costs no more than this look while nobody does: no lock, no walk through the trie.
    is_overheard: AtomicBool,
    /// Tells the sweeper that there is a new deadline.
    deadline: Notify,
    /// Tells who drains the broker that a connection has come further.
    drained: Notify,
}

impl Broker {
    pub(super) fn new(settings: Settings, application: Arc<dyn Application>) -> Self {
        let registry = RwLock::new(Registry::new(&settings));
        let is_overheard = AtomicBool::new(false);
        let (deadline, drained) = (Notify::new(), Notify::new());
        let inner = Inner { settings, application, registry, is_overheard, deadline, drained };
        Self { inner: Arc::new(inner) }
    }

    /// Publishes a message to whoever subscribes to it; says how many sessions that are.
    ///
    /// Subscriptions without local messages are left out for the session of `from`.
    pub fn publish(&self, from: Option<ConnectionId>, message: Message) -> usize {
        self.deliver(from, None, message)
    }

    /// Delivers a message to one connection exactly once, whether it subscribes to it or not, at the message's
    /// QoS; and to all other sessions that subscribe to it.
    ///
    /// A connection that is over gets nothing, and then its client `client_id` does not either.
    pub fn push(&self, to: ConnectionId, client_id: &str, message: Message) {
        self.deliver(None, Some((to, client_id)), message);
    }

    /// Whether anybody subscribes to the topic that the application lets others overhear.
    #[must_use]
    pub fn is_overheard(&self) -> bool {
        self.inner.is_overheard.load(Ordering::Acquire)
    }

    /// Delivers a message that the application consumes to whoever subscribes to its topic, as if it were routed;
    /// but it is not kept, whatever its retain flag says, for nobody is to consume it a second time.
    pub fn overhear(&self, from: ConnectionId, message: Message) {
        let publication = Arc::new(Publication::new(message, clock::monotonic()));
        let mut events = Vec::new();
        self.read().route(Some(from), None, &publication, &mut events);
        self.tell(events);
    }

    /// Ends a connection with a DISCONNECT, if it still is there.
    pub fn disconnect(&self, connection: ConnectionId, reason: Reason, text: &str) {
        if let Some(link) = self.read().link(connection) {
            link.end(reason, text);
        }
    }

    fn deliver(
        &self,
        from: Option<ConnectionId>,
        to: Option<(ConnectionId, &str)>,
        message: Message,
    ) -> usize {
        let now = clock::monotonic();
        let publication = Arc::new(Publication::new(message, now));
        let mut events = Vec::new();
        let count = if publication.message.retain {
            // Under one lock, so that a subscriber gets the message either as a retained one or as a new one.
            let mut registry = self.write();
            registry.retain(&publication, now, &mut events);
            registry.route(from, to, &publication, &mut events)
        } else {
            self.read().route(from, to, &publication, &mut events)
        };
        self.tell(events);
        count
    }

    fn attach(&self, arrival: Arrival) -> Result<Attached, Reason> {
        let mut attached = self.change(|registry| registry.attach(arrival))?;
        if attached.is_to_be_judged {
            self.judge(&attached.seat);
        }
        if let Some(will) = attached.will.take() {
            self.publish(None, will);
        }
        Ok(attached)
    }

    fn detach(&self, connection: ConnectionId, ending: &Ending) {
        let session_expiry_s = match ending {
            Ending::Left { session_expiry_s, .. } => *session_expiry_s,
            Ending::Cut { .. } | Ending::Lost(_) => None,
        };
        let expiry_s = session_expiry_s.map(|seconds| seconds.min(self.inner.settings.session_expiry_s_max));
        let now = clock::monotonic();
        let will = self.change(|registry| registry.detach(connection, ending.keeps_will(), expiry_s, now));
        self.inner.deadline.notify_one();
        self.note_drained();
        if let Some(will) = will {
            self.publish(None, will);
        }
    }

    /// Subscribes a client to what the rules let it subscribe to.
    fn subscribe_as(
        &self,
        peer: &Peer,
        seat: &Arc<SessionEntry>,
        requests: Vec<SubscriptionRequest>,
    ) -> Vec<Result<Qos, Reason>> {
        let Some(pass) = &peer.pass else { return self.subscribe(peer.connection, requests) };
        let generation = pass.generation();
        let is_allowed = |request: &SubscriptionRequest| {
            let filter = filter::shared(&request.filter).unwrap_or(&request.filter);
            self.is_own(&peer.client_id, filter) || pass.may_subscribe(filter)
        };
        let allowed: Vec<bool> = requests.iter().map(is_allowed).collect();
        let (mut granted, mut refused) = (Vec::new(), Vec::new());
        for (request, is_allowed) in requests.into_iter().zip(&allowed) {
            if *is_allowed { granted.push(request) } else { refused.push(request.filter) }
        }
        self.tell(refused.into_iter().map(|filter| peer.refusal("subscribe to", filter)));
        let mut results = self.subscribe(peer.connection, granted).into_iter();
        if pass.generation() != generation {
            // Other rules came in between, and may have been there before the subscription was.
            self.judge(seat);
        }
        let result = |is_allowed: &bool| match is_allowed {
            true => results.next().unwrap_or(Err(Reason::UnspecifiedError)),
            false => Err(Reason::NotAuthorized),
        };
        allowed.iter().map(result).collect()
    }

    fn subscribe(
        &self,
        connection: ConnectionId,
        requests: Vec<SubscriptionRequest>,
    ) -> Vec<Result<Qos, Reason>> {
        // Before the lock, which everybody waits for: a packet has room for many filters.
        if requests.len() > self.inner.settings.subscriptions_per_session_max {
            return vec![Err(Reason::QuotaExceeded); requests.len()];
        }
        let mut events = Vec::new();
        let now = clock::monotonic();
        let results = self.change(|registry| registry.subscribe(connection, requests, now, &mut events));
        self.tell(events);
        results
    }

    fn unsubscribe(&self, connection: ConnectionId, filters: &[String]) -> Vec<Reason> {
        // No session has so many, so some are not its own or come twice.
        if filters.len() > self.inner.settings.subscriptions_per_session_max {
            return vec![Reason::ImplementationSpecific; filters.len()];
        }
        self.change(|registry| registry.unsubscribe(connection, filters))
    }

    /// The rules may have changed: no session gets any more what its client may not have.
    pub(super) fn judge_all(&self) {
        let seats = self.read().seats();
        seats.iter().for_each(|seat| self.judge(seat));
    }

    fn judge(&self, seat: &Arc<SessionEntry>) {
        // Reckons what the rules come to for it, before anybody waits.
        let pass = seat.desk().pass.clone();
        drop(pass.map(|pass| pass.key_permissions()));
        self.change(|registry| registry.judge(seat, |client_id, topic| self.is_own(client_id, topic)));
    }

    /// Whether a filter or topic is a client's own, whatever the rules say.
    fn is_own(&self, client_id: &str, topic: &str) -> bool {
        self.inner.application.is_own_filter(client_id, topic)
    }

    /// Does what is due now, and says when there is more to do.
    fn sweep(&self, now: Instant) -> Option<Instant> {
        let (wills, next) =
            self.change(|registry| (registry.handle_deadlines(now), registry.next_deadline()));
        for will in wills {
            self.publish(None, will);
        }
        next
    }

    /// Lets nobody else in, takes no message from a client any more but those that were read by now, and waits until
    /// these have been handled.
    pub(super) async fn drain(&self) {
        self.write().drain();
        while !self.read().is_drained() {
            self.inner.drained.notified().await;
        }
    }

    /// Ends the connections of a drained broker, each once it has been sent what there is for it.
    pub(super) fn finish(&self) {
        self.read().finish();
    }

    /// Says that a connection has come further in its draining, or to its end.
    fn note_drained(&self) {
        self.inner.drained.notify_one();
    }

    /// How much there is.
    #[must_use]
    pub fn census(&self) -> Statistics {
        self.read().census()
    }

    /// How many clients are connected.
    fn connections(&self) -> u64 {
        u64::try_from(self.read().connections()).unwrap_or(u64::MAX)
    }

    /// Some clients, as many as may be shown.
    #[must_use]
    pub fn clients(&self, clients_max: usize) -> Vec<Client> {
        self.read().clients(clients_max)
    }

    /// Where the broker counts.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.inner.settings.metrics
    }

    /// Ends all connections and lets no other one in.
    pub(super) fn close(&self) {
        self.write().close();
    }

    fn check_will(&self, will: &Message) -> Result<(), String> {
        if will.topic.starts_with(SYS) {
            return Err(ONLY_THE_BROKER.to_owned());
        }
        self.inner.application.check_will(will)
    }

    fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    fn tell(&self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            (self.inner.settings.events)(event);
        }
    }

    /// Changes what connections share where that may change who subscribes.
    fn change<T>(&self, change: impl FnOnce(&mut Registry) -> T) -> T {
        let mut registry = self.write();
        let result = change(&mut registry);
        let topic = self.inner.application.overheard_topic();
        let is_overheard = topic.is_some_and(|topic| registry.has_subscribers(topic));
        self.inner.is_overheard.store(is_overheard, Ordering::Release);
        let events = registry.take_events();
        drop(registry);
        self.tell(events);
        result
    }

    fn read(&self) -> RwLockReadGuard<'_, Registry> {
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
