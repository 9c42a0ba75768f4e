//! The state store as the application of a broker: reads requests from messages and sends the responses.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hashbrown::HashMap;

use super::background::BackgroundTasks;
use super::commit_thread;
use super::scan::RunningScan;
use super::settings::{Persistence, StoreSettings};
use super::shared::Shared;
use super::state::{Handled, State};
use crate::broker::{self, Application, Broker, Peer, SYS, Verdict};
use crate::mqtt::ReasonCode;
use crate::protocol::message::{FENCE, PERSIST, Qos, TIMESTAMP};
use crate::protocol::request::CommandCase;
use crate::protocol::{ConnectionId, Message, Request, Timestamp, exchange, topic};
use crate::server::authorization::ClientPermissions;
use crate::server::delivery::{BrokerPublisher, Outbound, Publisher, ReplyTo, Response};
use crate::server::event::Event;
use crate::server::event::EventSink;
use crate::server::exchange::membership::Membership;
use crate::server::exchange::opening;
use crate::server::exchange::participant::Seeds;
use crate::server::operations::metrics::{Metrics, Verb};
use crate::server::storage::{Storage, StorageError};
use crate::store::{Now, Scan, Store, StoreRequest};
use crate::{clock, random};

/// The state store as the application of a broker.
pub struct Service {
    pub(super) shared: Arc<Shared>,
    /// Permissions of the connections that watch keys, if there are rules. Locked before the state, never after it.
    watch_permissions: Mutex<HashMap<ConnectionId, Arc<ClientPermissions>>>,
    /// The storage until [`Service::start_background_tasks`].
    pub(super) storage: Mutex<Option<Storage>>,
    /// Whether all keys are persistent, whatever their SET asks for.
    persists_all: bool,
    case: CommandCase,
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
        let storage = directory.map(|directory| Storage::open(directory)).transpose()?;
        let seeds = Seeds { store: random::u64(), run: random::u64(), stream: random::u64() };
        Self::with_storage(&settings, persists_all, storage, events, metrics, clock::now(), seeds)
    }

    pub(super) fn with_storage(
        settings: &StoreSettings,
        persists_all: bool,
        mut storage: Option<Storage>,
        events: EventSink,
        metrics: Arc<Metrics>,
        reading: clock::Reading,
        seeds: Seeds,
    ) -> Result<Arc<Self>, StorageError> {
        let mut store = Store::new(settings.limits);
        let now = Now { wall_ms: reading.wall_ms, monotonic_ms: 0 };
        if let Some(storage) = &storage
            && let Some(by_ms) = commit_thread::load(storage, &mut store, now)?
        {
            events(Event::ClockBehind { by_ms });
        }
        let mut state = State::new(store, storage.is_some(), !persists_all);
        if let Some(storage) = &mut storage {
            state.exchange = opening::open(storage, settings.exchange.as_ref(), seeds, now)?.map(Box::new);
            commit_thread::commit_first_ceiling(storage, &mut state, now);
        }
        Ok(Arc::new(Self {
            shared: Arc::new(Shared::new(state, events, reading)),
            watch_permissions: Mutex::default(),
            storage: Mutex::new(storage),
            persists_all,
            case: settings.case,
            metrics,
            membership: settings.exchange.as_ref().map(|settings| Membership::new(settings, seeds.run)),
        }))
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
    ) -> Verdict {
        if message.topic != topic::REQUEST {
            return self.handle_other_topic(publisher, from, message);
        }
        let response_topic = message.response_topic.take();
        match self.reply_to(publisher, from, &message, response_topic) {
            Ok(reply_to) => self.handle_request(publisher, from, &message, reply_to),
            Err(verdict) => *verdict,
        }
    }

    /// Returns where the response to a request goes. `Err`: it cannot be answered.
    pub(super) fn reply_to(
        &self,
        publisher: &dyn Publisher,
        from: &Peer,
        message: &Message,
        response_topic: Option<String>,
    ) -> Result<ReplyTo, Box<Verdict>> {
        if response_topic.as_deref().is_some_and(topic::is_reserved_for_response) {
            let text = "the response topic is reserved for the state store".to_owned();
            return Err(Verdict::Disconnect { reason: ReasonCode::TopicNameInvalid, text }.into());
        }
        match check_request_properties(message, response_topic.as_deref()) {
            // The store publishes the response on behalf of the client, which may not be a way around the rules.
            Ok(_) if !from.may_publish(response_topic.as_deref().unwrap_or_default()) => {
                publish_monitor_copy(publisher, from, message, response_topic.as_deref());
                let (client_id, what) = (Arc::clone(&from.client_id), "have its answer published to");
                let topic = response_topic.unwrap_or_default();
                (self.shared.events)(broker::Event::NotAuthorized { client_id, what, topic }.into());
                Err(Verdict::Refused(ReasonCode::NotAuthorized).into())
            }
            Ok(correlation) => {
                let response_topic = response_topic.unwrap_or_default();
                let (verb, received) = (Verb::default(), clock::monotonic());
                Ok(ReplyTo { response_topic, correlation, verb, received })
            }
            Err(reason) => {
                publish_monitor_copy(publisher, from, message, response_topic.as_deref());
                let (client_id, reason) = (Arc::clone(&from.client_id), reason.to_owned());
                (self.shared.events)(Event::Unanswerable { client_id, reason });
                Err(Verdict::Consumed.into())
            }
        }
    }

    /// Rejects messages to the store's own topics: a client could forge notifications there.
    fn handle_other_topic(&self, publisher: &dyn Publisher, from: &Peer, message: Message) -> Verdict {
        if message.topic.starts_with(exchange::topic::PREFIX) {
            return self.handle_exchange_message(publisher, from, message);
        }
        if !message.topic.starts_with(topic::RESERVED) {
            return Verdict::Route(message);
        }
        let (client_id, reason) = (Arc::clone(&from.client_id), "only the state store publishes there");
        (self.shared.events)(broker::Event::Dropped { client_id, topic: message.topic, reason }.into());
        Verdict::Refused(ReasonCode::NotAuthorized)
    }

    fn handle_request(
        &self,
        publisher: &dyn Publisher,
        from: &Peer,
        message: &Message,
        mut reply_to: ReplyTo,
    ) -> Verdict {
        let request = match Request::decode(&message.payload, self.case) {
            Ok(request) => request,
            Err(error) => {
                publish_monitor_copy(publisher, from, message, Some(&reply_to.response_topic));
                Outbound::from((reply_to, Response::error(error.error_reply()))).send(publisher);
                return Verdict::Consumed;
            }
        };
        let verb = verb(&request);
        reply_to.verb = verb;
        if let Request::Scan { pattern, token } = &request
            && let Ok(scan) = Scan::new(pattern, token.as_deref())
        {
            return self.scan(publisher, from, message, (scan, reply_to));
        }
        // Only writes have timestamps that matter (protocol §0 row 8); others are not parsed.
        let is_write = matches!(verb, Verb::Set | Verb::Del | Verb::VDel);
        let parse = |name| message.user_property(name).filter(|_| is_write).map(str::parse::<Timestamp>);
        let mut request = StoreRequest {
            permissions: None,
            connection: from.connection,
            client_id: Arc::clone(&from.client_id),
            request,
            timestamp: parse(TIMESTAMP),
            fence: parse(FENCE),
            encoded: None,
            refusal: None,
            persist: self.persists_all || message.user_property(PERSIST) == Some("true"),
        };
        request.encode_long_value();
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
        publish_monitor_copy(publisher, from, message, Some(&reply_to.response_topic));
        let handled = state.handle_request(publisher, from, request, reply_to, message, now);
        self.shared.wake_commit_thread(&state);
        self.shared.wake_expiry_task(&mut state);
        drop(state);
        match handled {
            Handled::Answered => Verdict::Consumed,
            Handled::NotAuthorized(key) => {
                let what = if is_write { "write" } else { "read" };
                let key = String::from_utf8_lossy(key.as_bytes()).into_owned();
                let client_id = Arc::clone(&from.client_id);
                (self.shared.events)(Event::KeyNotAuthorized { client_id, what, key });
                Verdict::Consumed
            }
            Handled::Refused => {
                let (client_id, topic) = (Arc::clone(&from.client_id), topic::REQUEST.to_owned());
                let reason = "too many writes have not been acknowledged by their clients";
                (self.shared.events)(broker::Event::Dropped { client_id, topic, reason }.into());
                Verdict::Refused(ReasonCode::QuotaExceeded)
            }
        }
    }

    /// Starts a SCAN, whose first step answers it in a small store.
    fn scan(
        &self,
        publisher: &dyn Publisher,
        from: &Peer,
        message: &Message,
        page: (Scan, ReplyTo),
    ) -> Verdict {
        {
            // Under the lock, as for all other requests: monitors see them in the order in which they are handled.
            let _state = self.shared.lock();
            publish_monitor_copy(publisher, from, message, Some(&page.1.response_topic));
        }
        let shared = (Arc::clone(&self.shared), Arc::clone(&self.metrics));
        let mut scan = RunningScan::new(shared, from.clone(), page);
        if scan.advance(publisher) { Verdict::Consumed } else { Verdict::Continue(Box::new(scan)) }
    }

    /// Ends all watches that the rules no longer allow.
    ///
    /// A watch that starts meanwhile is checked with the rules in force: see [`Service::handle_request`].
    pub fn revoke_watches(&self) {
        let watch_permissions: Vec<_> =
            self.watch_permissions().iter().map(|(id, permissions)| (*id, Arc::clone(permissions))).collect();
        for (connection, permissions) in watch_permissions {
            // The rules are applied without the lock, and the keys are read in parts, because requests wait meanwhile.
            let permissions = permissions.key_permissions();
            let mut last = None;
            loop {
                let keys = self.shared.lock().store.watched_keys(connection, last.as_ref());
                if keys.is_empty() {
                    break;
                }
                let revoked: Vec<_> =
                    keys.iter().filter(|key| !permissions.read.contains(key.as_bytes())).collect();
                if !revoked.is_empty() {
                    let mut state = self.shared.lock();
                    revoked.into_iter().for_each(|key| state.store.revoke_watch(connection, key));
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

    fn watch_permissions(&self) -> MutexGuard<'_, HashMap<ConnectionId, Arc<ClientPermissions>>> {
        self.watch_permissions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Application for Service {
    fn handle_publish(&self, broker: &Broker, from: &Peer, message: Message) -> Verdict {
        self.handle_message(&BrokerPublisher { broker, metrics: &*self.metrics }, from, message)
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
        if peer.permissions.is_some() {
            self.watch_permissions().remove(&peer.connection);
        }
        self.shared.lock().handle_disconnect(peer);
        // The first call may leave watches.
        while self.shared.lock().store.handle_disconnect(peer.connection) {}
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Service").field("case", &self.case).finish_non_exhaustive()
    }
}

/// Publishes a copy of a request to its subscribers, before its response. `message` has lost its response topic.
///
/// Requests are addressed to the service and not routed, but `mqkv monitor` and other diagnostic MQTT clients rely on
/// seeing them.
fn publish_monitor_copy(
    publisher: &dyn Publisher,
    from: &Peer,
    message: &Message,
    response_topic: Option<&str>,
) {
    if publisher.has_monitors() {
        let response_topic = response_topic.map(str::to_owned);
        publisher.publish_monitor_copy(from.connection, Message { response_topic, ..message.clone() });
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

/// Returns the correlation data of a request, or the reason why it cannot be answered (protocol §1).
fn check_request_properties(message: &Message, response_topic: Option<&str>) -> Result<Bytes, &'static str> {
    if message.qos != Qos::AtLeastOnce {
        return Err("its QoS is not 1");
    }
    let response_topic = response_topic.ok_or("it has no response topic")?;
    if response_topic.is_empty() || topic::has_wildcard(response_topic) {
        return Err("its response topic is empty or has a wildcard");
    }
    // A stored value would appear as information of the broker about itself.
    if response_topic.starts_with(SYS) {
        return Err("its response topic is reserved for the broker");
    }
    message.correlation.clone().ok_or("it has no correlation data")
}
