//! The state store as the application of a broker: reads requests from messages and sends the responses.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use hashbrown::HashMap;

use super::background::BackgroundTasks;
use super::cluster_state::CLUSTER_VALUE_BYTES_MAX;
use super::commit_thread;
use super::scan::RunningScan;
use super::settings::{Persistence, StoreSettings};
use super::shared::Shared;
use super::state::{Handled, State};
use super::tombstones::Tombstones;
use crate::broker::{self, Application, Broker, Peer, SYS, Verdict};
use crate::exchange::fingerprint::PreparedHashes;
use crate::ledger::{FileLedger, LedgerKind, Seeding, StorageError};
use crate::mqtt::ReasonCode;
use crate::protocol::message::{DETAILS, FENCE, PERSIST, PREFIX, Qos, TIMESTAMP};
use crate::protocol::{ConnectionId, Key, Message, Request, Timestamp, UserProperties, exchange, topic};
use crate::server::authorization::{Authorizer, ClientPermissions};
use crate::server::delivery::{BrokerPublisher, Outbound, Publisher, ReplyTo, Response};
use crate::server::event::Event;
use crate::server::event::EventSink;
use crate::server::exchange::membership::Membership;
use crate::server::exchange::opening;
use crate::server::exchange::participant::Seeds;
use crate::server::metrics::{Metrics, Verb};
use crate::store::{Limits, Now, Store, StoreRequest, WatchOptions};
use crate::{clock, random};

/// The state store as the application of a broker.
pub struct Service {
    pub(super) shared: Arc<Shared>,
    /// Permissions of the connections that watch keys, if there are rules. Locked before the state, never after it.
    watch_permissions: Mutex<HashMap<ConnectionId, Arc<ClientPermissions>>>,
    /// The rules for the registrations of clients without a connection, in a cluster behind a broker.
    pub(super) registration_rules: OnceLock<Arc<Authorizer>>,
    /// The storage until [`Service::start_background_tasks`].
    pub(super) storage: Mutex<Option<FileLedger>>,
    seeding: Mutex<Option<Seeding>>,
    /// Whether all keys are persistent, whatever their SET asks for.
    persists_all: bool,
    metrics: Arc<Metrics>,
    /// `None` if the store takes part in no exchange.
    pub(super) membership: Option<Membership>,
}

impl Service {
    /// Opens the store and loads what is on disk.
    ///
    /// # Errors
    /// [`StorageError`]: the files cannot be read.
    pub fn open(
        settings: StoreSettings,
        events: EventSink,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, StorageError> {
        let (persists_all, directory) = match &settings.persistence {
            Persistence::None => (false, None),
            Persistence::Custom(directory) => (false, Some(directory)),
            Persistence::All(directory) => (true, Some(directory)),
        };
        let storage = directory.map(|directory| FileLedger::open(directory)).transpose()?;
        let seeding =
            storage.as_ref().map(|storage| storage.seeding(settings.has_seed)).transpose()?.flatten();
        let seeds = Seeds { store: random::u64(), run: random::u64(), stream: random::u64() };
        let service =
            Self::with_storage(&settings, persists_all, storage, events, metrics, clock::now(), seeds)?;
        *service.seeding() = seeding;
        Ok(service)
    }

    /// Returns what is left to do for a store that begins with keys.
    pub(in crate::server) fn seeding(&self) -> MutexGuard<'_, Option<Seeding>> {
        self.seeding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn with_storage(
        settings: &StoreSettings,
        persists_all: bool,
        mut storage: Option<FileLedger>,
        events: EventSink,
        metrics: Arc<Metrics>,
        reading: clock::Reading,
        seeds: Seeds,
    ) -> Result<Arc<Self>, StorageError> {
        let mut store = Store::new(settings.limits);
        let now = Now { wall_ms: reading.wall_ms, monotonic_ms: 0 };
        let mut tombstones = Tombstones::default();
        if let Some(storage) = &mut storage {
            let (loaded, behind_ms) = commit_thread::load(storage, &mut store, now)?;
            tombstones = loaded;
            behind_ms.into_iter().for_each(|by_ms| events(Event::ClockBehind { by_ms }));
        }
        let ledger = if storage.is_some() { LedgerKind::File } else { LedgerKind::Memory };
        let mut state = State::new(store, ledger, false, !persists_all);
        state.tombstones = tombstones;
        state.set_life(seeds.run);
        if let Some(storage) = &mut storage {
            state.exchange = opening::open(storage, settings.exchange.as_ref(), seeds, now)?.map(Box::new);
            commit_thread::commit_first_ceiling(storage, &mut state, now);
        }
        let membership = settings.exchange.as_ref().map(|settings| Membership::new(settings, seeds.run));
        let shared = Arc::new(Shared::new(state, events, reading));
        let service = Self::assemble(persists_all, shared, metrics);
        Ok(Arc::new(Self { storage: Mutex::new(storage), membership, ..service }))
    }

    /// Returns the store of an instance of a cluster, which follows. All keys are persistent, whatever the settings have.
    /// `has_registrations`: whether clients are known by their ids only, as behind a broker; their watches are in etcd then.
    pub fn in_cluster(
        settings: &StoreSettings,
        has_registrations: bool,
        events: EventSink,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let value_bytes_max = settings.limits.value_bytes_max.min(CLUSTER_VALUE_BYTES_MAX);
        let limits = Limits { value_bytes_max, ..settings.limits };
        let state = State::new(Store::new(limits), LedgerKind::Etcd, has_registrations, false);
        let shared = Arc::new(Shared::new(state, events, clock::now()));
        Arc::new(Self::assemble(true, shared, metrics))
    }

    fn assemble(persists_all: bool, shared: Arc<Shared>, metrics: Arc<Metrics>) -> Self {
        Self {
            shared,
            watch_permissions: Mutex::default(),
            registration_rules: OnceLock::new(),
            storage: Mutex::default(),
            seeding: Mutex::default(),
            persists_all,
            metrics,
            membership: None,
        }
    }

    /// Starts the expiry of keys and the commits. Until then, changes of persistent keys are not answered. Must be
    /// called once, within a tokio runtime.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start_background_tasks(
        &self,
        publisher: impl Publisher + Clone + 'static,
    ) -> std::io::Result<BackgroundTasks> {
        let storage = self.storage.lock().unwrap_or_else(PoisonError::into_inner).take();
        let membership = self.membership.clone();
        BackgroundTasks::start(Arc::clone(&self.shared), storage, membership, publisher)
    }

    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Handles a message that a client has published.
    pub(super) fn handle_message(
        &self,
        publisher: &dyn Publisher,
        from: &Peer,
        mut message: Message,
        now: Instant,
    ) -> Verdict {
        if message.topic != topic::REQUEST {
            return self.handle_other_topic(publisher, from, message, now);
        }
        let handled = self.handle_request_message(publisher, from, &mut message, now, true);
        handled.unwrap_or_else(|scan| Verdict::Continue(scan))
    }

    /// Handles a request that a client has published at another broker. Returns a scan that has not been answered yet.
    ///
    /// Of what the service decides beside the response, that broker carries nothing out: a refusal is a response, the rest is
    /// reported by events.
    pub(in crate::server) fn handle_external_request(
        &self,
        publisher: &dyn Publisher,
        from: &Peer,
        mut message: Message,
        now: Instant,
    ) -> Option<Box<RunningScan>> {
        // Nothing is answered twice, also not what depends on no key.
        if !self.is_serving() {
            return None;
        }
        // A watch of a prefix ends with its connection, of which nothing is known here.
        match self.handle_request_message(publisher, from, &mut message, now, false) {
            Err(scan) => Some(scan),
            Ok(Verdict::Disconnect { text: reason, .. }) => {
                let client_id = Arc::clone(&from.client_id);
                (self.shared.events)(Event::Unanswerable { client_id, reason });
                None
            }
            Ok(_) => None,
        }
    }

    fn handle_request_message(
        &self,
        publisher: &dyn Publisher,
        from: &Peer,
        message: &mut Message,
        now: Instant,
        watches_prefixes: bool,
    ) -> Result<Verdict, Box<RunningScan>> {
        match self.reply_to(publisher, from, message, now) {
            Ok(reply_to) => self.handle_request(publisher, from, message, reply_to, watches_prefixes),
            Err(verdict) => Ok(*verdict),
        }
    }

    /// Takes from a request where its response goes. `Err`: it cannot be answered.
    pub(super) fn reply_to(
        &self,
        publisher: &dyn Publisher,
        from: &Peer,
        message: &mut Message,
        now: Instant,
    ) -> Result<ReplyTo, Box<Verdict>> {
        let response_topic = message.response_topic.as_deref();
        if response_topic.is_some_and(topic::is_reserved_for_response) {
            let text = "the response topic is reserved for the state store".to_owned();
            return Err(Verdict::Disconnect { reason: ReasonCode::TopicNameInvalid, text }.into());
        }
        match check_request_properties(message) {
            // The store publishes the response on behalf of the client, which may not be a way around the rules.
            Ok(()) if !from.may_publish(response_topic.unwrap_or_default()) => {
                publish_monitor_copy(publisher, from, message, None);
                let topic = message.response_topic.take().unwrap_or_default();
                (self.shared.events)(from.not_authorized("have its answer published to", topic).into());
                Err(Verdict::Refused(ReasonCode::NotAuthorized).into())
            }
            Ok(()) => Ok(ReplyTo {
                response_topic: message.response_topic.take().unwrap_or_default(),
                correlation: message.correlation.take().unwrap_or_default(),
                verb: Verb::default(),
                received: now,
                details: None,
            }),
            Err(reason) => {
                publish_monitor_copy(publisher, from, message, None);
                let (client_id, reason) = (Arc::clone(&from.client_id), reason.to_owned());
                (self.shared.events)(Event::Unanswerable { client_id, reason });
                Err(Verdict::Refused(ReasonCode::ImplementationSpecific).into())
            }
        }
    }

    /// Rejects messages to the store's own topics: a client could forge notifications there.
    fn handle_other_topic(
        &self,
        publisher: &dyn Publisher,
        from: &Peer,
        message: Message,
        now: Instant,
    ) -> Verdict {
        if message.topic.starts_with(exchange::topic::PREFIX) {
            return self.handle_exchange_message(publisher, from, message, now);
        }
        if !message.topic.starts_with(topic::RESERVED) {
            return Verdict::Route(message);
        }
        let (client_id, reason) = (Arc::clone(&from.client_id), "only the state store publishes there");
        (self.shared.events)(
            broker::Event::Dropped { client_id, topic: message.topic.into_owned(), reason }.into(),
        );
        Verdict::Refused(ReasonCode::NotAuthorized)
    }

    fn handle_request(
        &self,
        publisher: &dyn Publisher,
        from: &Peer,
        message: &Message,
        mut reply_to: ReplyTo,
        watches_prefixes: bool,
    ) -> Result<Verdict, Box<RunningScan>> {
        let request = match Request::decode(&message.payload) {
            Ok(request) => request,
            Err(error) => {
                publish_monitor_copy(publisher, from, message, Some(&reply_to));
                Outbound::from((reply_to, Response::error(error.error_reply()))).send(publisher);
                return Ok(Verdict::Consumed);
            }
        };
        let verb = verb(&request);
        reply_to.verb = verb;
        let asks_for = |name| message.user_property(name) == Some("true");
        let watch = WatchOptions {
            is_prefix: verb == Verb::KeyNotify && watches_prefixes && asks_for(PREFIX),
            details: verb == Verb::KeyNotify && asks_for(DETAILS),
        };
        reply_to.details = (watch.is_prefix || asks_for(DETAILS)).then(UserProperties::default);
        if let Request::Scan { pattern, token } = &request {
            return self.scan(publisher, from, message, (pattern, token.as_deref()), reply_to);
        }
        // Only writes have timestamps that matter (protocol §0 row 8); others are not parsed.
        let is_write = matches!(verb, Verb::Set | Verb::Del | Verb::VDel);
        let property = |name| if is_write { message.user_property(name) } else { None };
        let mut request = StoreRequest {
            permissions: None,
            connection: self.watching_connection(from),
            client_id: Arc::clone(&from.client_id),
            owner: Arc::clone(&from.owner),
            request,
            timestamp: property(TIMESTAMP).map(Timestamp::parse_time),
            fence: property(FENCE).map(str::parse),
            encoded: None,
            refusal: None,
            persist: self.persists_all || property(PERSIST) == Some("true"),
            watch,
        };
        request.encode_long_value();
        let _hashes = self.prepare_hashes(&request.request);
        let now = self.shared.at(reply_to.received);
        if let Request::KeyNotify { stop: false, .. } = &request.request
            && let Some(permissions) = ClientPermissions::of(from)
        {
            self.watch_permissions().insert(request.connection, permissions);
        }
        let mut state = self.shared.lock();
        // The permissions are read under the lock: otherwise a reload could revoke the watches between the check and
        // the start of a watch, which would then outlive its rule.
        request.permissions = ClientPermissions::key_permissions_of(from);
        // The copy is published under the lock, so that monitors see requests in the order in which they are handled.
        publish_monitor_copy(publisher, from, message, Some(&reply_to));
        let handled = state.handle_request(publisher, from, request, reply_to, message, now);
        self.shared.wake_expiry_task(&mut state);
        commit_thread::commit_after_turn(&self.shared, state);
        Ok(match handled {
            Handled::Answered => Verdict::Consumed,
            Handled::NotAuthorized(key) => {
                let what = if is_write { "write" } else { "read" };
                let key = String::from_utf8_lossy(key.as_bytes()).into_owned();
                let (client_id, principal) = (Arc::clone(&from.client_id), from.principal.describe());
                (self.shared.events)(Event::KeyNotAuthorized { client_id, principal, what, key });
                Verdict::Consumed
            }
            Handled::Ignored(reason) => {
                if let Some(reason) = reason {
                    self.report_ignored(from, reason);
                }
                Verdict::Consumed
            }
        })
    }

    /// Computes the digest of a long value before the lock is taken, if an exchange may need it.
    fn prepare_hashes(&self, request: &Request) -> Option<PreparedHashes> {
        match request {
            Request::Set { value, .. } if self.membership.is_some() => Some(PreparedHashes::of([value])),
            _ => None,
        }
    }

    fn report_ignored(&self, from: &Peer, reason: &'static str) {
        let (client_id, topic) = (Arc::clone(&from.client_id), topic::REQUEST.to_owned());
        (self.shared.events)(broker::Event::Dropped { client_id, topic, reason }.into());
    }

    /// Starts a SCAN, whose first step answers it in a small store.
    fn scan(
        &self,
        publisher: &dyn Publisher,
        from: &Peer,
        message: &Message,
        (pattern, token): (&[u8], Option<&[u8]>),
        reply_to: ReplyTo,
    ) -> Result<Verdict, Box<RunningScan>> {
        let shared = (Arc::clone(&self.shared), Arc::clone(&self.metrics));
        let scan = {
            // Under the lock, as for all other requests: monitors see them in the order in which they are handled.
            let mut state = self.shared.lock();
            if let Some(error) = state.error_while_paused() {
                drop(state);
                Outbound::from((reply_to, Response::error(error))).send(publisher);
                return Ok(Verdict::Consumed);
            }
            if let Some(reason) = state.ignored_for() {
                drop(state);
                reason.into_iter().for_each(|reason| self.report_ignored(from, reason));
                return Ok(Verdict::Consumed);
            }
            publish_monitor_copy(publisher, from, message, Some(&reply_to));
            match RunningScan::begin(&state, pattern, token) {
                Ok(scan) => RunningScan::new(shared, &state, from.clone(), (scan, reply_to)),
                Err(error) => {
                    state.reject(publisher, reply_to, error);
                    self.shared.wake_commit_thread(&mut state);
                    return Ok(Verdict::Consumed);
                }
            }
        };
        let mut scan = Box::new(scan);
        if scan.advance(publisher) { Ok(Verdict::Consumed) } else { Err(scan) }
    }

    /// Ends all watches of keys that the rules no longer allow, and makes those of prefixes follow the rules.
    ///
    /// A watch that starts meanwhile is checked with the rules in force: see `handle_request`.
    pub fn revoke_watches(&self) {
        let watch_permissions: Vec<_> =
            self.watch_permissions().iter().map(|(id, permissions)| (*id, Arc::clone(permissions))).collect();
        for (connection, permissions) in watch_permissions {
            // The rules are applied without the lock, and the keys are read in parts, because requests wait meanwhile.
            let permissions = permissions.key_permissions();
            self.shared.lock().store.set_prefix_permissions(connection, &permissions);
            let mut last = None;
            loop {
                let keys = self.shared.lock().store.watched_keys(connection, last.as_ref());
                if keys.is_empty() {
                    break;
                }
                let is_revoked = |key: &&Key| !permissions.read.contains(key.as_bytes());
                let revoked: Vec<_> = keys.iter().filter(is_revoked).cloned().collect();
                if !revoked.is_empty() {
                    self.end_watches(connection, &revoked);
                }
                last = keys.into_iter().next_back();
            }
        }
    }

    /// Returns the number of connections whose permissions are held for their watches.
    #[cfg(test)]
    pub(super) fn watched_connections(&self) -> usize {
        self.watch_permissions().len()
    }

    pub(super) fn watch_permissions(&self) -> MutexGuard<'_, HashMap<ConnectionId, Arc<ClientPermissions>>> {
        self.watch_permissions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Application for Service {
    fn handle_publish(&self, broker: &Broker, from: &Peer, message: Message, now: Instant) -> Verdict {
        self.handle_message(&BrokerPublisher { broker, metrics: &*self.metrics }, from, message, now)
    }

    fn monitored_topic(&self) -> Option<&str> {
        Some(topic::REQUEST)
    }

    /// Rejects wills on topics of the store and of exchanges: the broker publishes a will without asking the application, so that it
    /// could forge a notification or a frame, or be a request without a response.
    fn check_will(&self, will: &Message) -> Result<(), String> {
        if topic::is_reserved_for_response(&will.topic) {
            return Err("the topic of the will is reserved for the state store".to_owned());
        }
        Ok(())
    }

    /// A client may always subscribe to its own notifications: KEYNOTIFY is what the rules decide about.
    fn is_own_filter(&self, client_id: &str, filter: &str) -> bool {
        topic::is_notification_filter_of(client_id, filter)
    }

    fn handle_disconnect(&self, _: &Broker, peer: &Peer) {
        self.disconnect(peer);
    }
}

impl Service {
    /// Whether a client watches any key or prefix.
    pub(in crate::server) fn is_watching(&self, peer: &Peer) -> bool {
        self.shared.lock().store.is_watching(self.watching_connection(peer))
    }

    /// Returns the ids of all clients that watch keys.
    pub(in crate::server) fn watching_clients(&self) -> Vec<Arc<str>> {
        self.shared.lock().store.watching_clients()
    }

    /// Ends the watch of a key by a client, which has a connection if it has sent requests here. Returns false if the
    /// client is not known.
    pub(in crate::server) fn end_watch(
        &self,
        client_id: &str,
        connection: Option<ConnectionId>,
        key: &Key,
    ) -> bool {
        let connection = self.registered_connection(client_id).or(connection);
        if let Some(connection) = connection {
            self.end_watches(connection, std::slice::from_ref(key));
        }
        connection.is_some()
    }

    /// Ends the watches of a connection.
    pub(in crate::server) fn disconnect(&self, peer: &Peer) {
        let connection = self.watching_connection(peer);
        if peer.permissions.is_some() {
            self.watch_permissions().remove(&connection);
        }
        let forgotten = self.shared.lock().handle_disconnect(peer);
        drop(forgotten);
        if connection != peer.connection {
            return self.end_all_watches(connection);
        }
        // The first call may leave watches.
        while self.shared.lock().store.handle_disconnect(peer.connection) {}
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Service").finish_non_exhaustive()
    }
}

/// Publishes a copy of a request to its subscribers, before its response. `taken` is what has been taken from `message`.
///
/// Requests are addressed to the service and not routed, but `mqkv monitor` and other diagnostic MQTT clients rely on
/// seeing them.
fn publish_monitor_copy(publisher: &dyn Publisher, from: &Peer, message: &Message, taken: Option<&ReplyTo>) {
    if publisher.has_monitors() {
        let mut copy = message.clone();
        if let Some(ReplyTo { response_topic, correlation, .. }) = taken {
            copy.response_topic = Some(response_topic.clone());
            copy.correlation = Some(correlation.clone());
        }
        publisher.publish_monitor_copy(from.connection, copy);
    }
}

fn verb(request: &Request) -> Verb {
    match request {
        Request::Set { .. } => Verb::Set,
        Request::Get { .. } => Verb::Get,
        Request::Del { .. } => Verb::Del,
        Request::VDel { .. } => Verb::VDel,
        Request::KeyNotify { .. } => Verb::KeyNotify,
        Request::Scan { .. } => Verb::Scan,
    }
}

/// Returns the reason why a request cannot be answered, if there is one (protocol §1).
fn check_request_properties(message: &Message) -> Result<(), &'static str> {
    if message.qos != Qos::AtLeastOnce {
        return Err("its QoS is not 1");
    }
    let response_topic = message.response_topic.as_deref().ok_or("it has no response topic")?;
    // A stored value would appear as information of the broker about itself.
    if response_topic.starts_with(SYS) {
        return Err("its response topic is reserved for the broker");
    }
    message.correlation.as_ref().map(drop).ok_or("it has no correlation data")
}
