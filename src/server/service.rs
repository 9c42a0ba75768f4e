//! From message to request, through the engine, to the response and the notifications.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::clock;
use crate::protocol::message::{FENCE, PERSIST, Qos, TIMESTAMP};
use crate::protocol::request::CommandCase;
use crate::protocol::{ConnectionId, Message, Request, Timestamp, topic};
use crate::store::{Limits, Now, Page, Store, StoreRequest};

use super::authorization::ClientPermissions;
use super::delivery::{Answer, Asker, BrokerOutlet, Delivery, Outlet};
use super::event::Event;
use super::event::EventSink;
use super::operations::OperationsSettings;
use super::operations::metrics::{Metrics, Verb};
use crate::broker::{self, Application, Broker, Peer, SYS, Verdict};
use crate::mqtt::ReasonCode;
use crate::server::storage::{Storage, StorageError};

#[cfg(test)]
mod disk_tests;
#[cfg(test)]
mod overheard_tests;
#[cfg(test)]
mod power_cut_tests;
mod state;
#[cfg(test)]
mod tests;
mod writer;

use state::State;
pub use state::Stock;

/// What goes to the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing: the values are in memory, as in the product (protocol §7).
    #[default]
    None,
    /// What a SET asks for with `aio-persistence`, before it is answered, in a file in this directory; and then all
    /// that happens to that key, until it is gone.
    Custom(PathBuf),
    /// Every change, before it is answered, in a file in this directory.
    All(PathBuf),
}

/// The settings of the state store in a server.
#[derive(Clone, Debug, Default)]
pub struct StoreSettings {
    /// How much the store takes.
    pub limits: Limits,
    /// Whether commands in lower case are taken.
    pub case: CommandCase,
    /// What goes to the disk.
    pub persistence: Persistence,
    /// What operators get to see, and where.
    pub operations: OperationsSettings,
}

/// The state store as the application behind a broker.
///
/// One lock is held from the decision about a request until its answer and its notifications have been handed to the
/// broker: that is what keeps the notifications of a key in the order of its versions. The broker may be called under
/// the lock; the broker calls the service without any of its own.
pub struct Service {
    state: Mutex<State>,
    /// Of those who watch keys, where there are rules. Taken before `state`, never after it.
    passes: Mutex<HashMap<ConnectionId, Arc<ClientPermissions>>>,
    /// Where the journal waits for [`Service::run`].
    journal: Mutex<Option<Storage>>,
    has_unsaved: Condvar,
    has_earlier_deadline: Notify,
    /// Whether all keys are kept on disk, asked for or not.
    keeps_all: bool,
    case: CommandCase,
    events: EventSink,
    metrics: Arc<Metrics>,
    origin: Instant,
}

/// The service's work in the background: expiry and the disk. Dropping it commits what waits, and ends both.
#[derive(Debug)]
pub struct Running {
    service: Arc<Service>,
    timer: JoinHandle<()>,
    writer: Option<thread::JoinHandle<()>>,
}

impl Service {
    /// Opens the store with what the disk holds of it.
    ///
    /// # Errors
    /// [`StorageError`] if that cannot be read.
    pub fn open(
        settings: StoreSettings,
        events: EventSink,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, StorageError> {
        let (keeps_all, directory) = match &settings.persistence {
            Persistence::None => (false, None),
            Persistence::Custom(directory) => (false, Some(directory)),
            Persistence::All(directory) => (true, Some(directory)),
        };
        let journal = directory.map(|directory| Storage::open(directory)).transpose()?;
        Self::with_journal(&settings, keeps_all, journal, events, metrics, clock::now())
    }

    fn with_journal(
        settings: &StoreSettings,
        keeps_all: bool,
        mut journal: Option<Storage>,
        events: EventSink,
        metrics: Arc<Metrics>,
        reading: clock::Reading,
    ) -> Result<Arc<Self>, StorageError> {
        let mut store = Store::new(settings.limits);
        if let Some(journal) = &mut journal {
            let now = Now { wall_ms: reading.wall_ms, monotonic_ms: 0 };
            if let Some(by_ms) = writer::load(journal, &mut store, now)? {
                events(Event::ClockBehind { by_ms });
            }
        }
        let state = State::new(Box::new(store), journal.is_some());
        Ok(Arc::new(Self {
            state: Mutex::new(state),
            passes: Mutex::default(),
            journal: Mutex::new(journal),
            has_unsaved: Condvar::new(),
            has_earlier_deadline: Notify::new(),
            keeps_all,
            case: settings.case,
            events,
            metrics,
            origin: reading.monotonic,
        }))
    }

    /// Starts what happens by itself: keys expire, and changes go to the disk. Until then, changes that must go there
    /// are not answered. Must be called once, within a tokio runtime.
    ///
    /// # Errors
    /// If the system starts no other thread.
    pub fn run(self: &Arc<Self>, outlet: impl Outlet + Clone + 'static) -> std::io::Result<Running> {
        let journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner).take();
        let writer = journal.map(|journal| {
            let (service, outlet) = (Arc::clone(self), outlet.clone());
            let thread = thread::Builder::new().name("journal".to_owned());
            thread.spawn(move || service.save(journal, &outlet))
        });
        let writer = writer.transpose()?;
        let service = Arc::clone(self);
        let timer = tokio::spawn(async move { service.expire(&outlet).await });
        Ok(Running { service: Arc::clone(self), timer, writer })
    }

    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// How much there is now.
    #[must_use]
    pub fn stock(&self) -> Stock {
        self.lock().stock()
    }

    /// Some keys, as they are now, the disk not asked: at most so many from a place on, and the place of the next.
    #[must_use]
    pub fn page(&self, from: u32, keys_max: usize) -> Page {
        let now = self.now();
        self.lock().engine.page(from, keys_max, now)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Now {
        let reading = clock::now();
        let since = reading.monotonic.saturating_duration_since(self.origin);
        Now { wall_ms: reading.wall_ms, monotonic_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX) }
    }

    /// Takes a message from a client.
    fn take(&self, outlet: &dyn Outlet, from: &Peer, mut message: Message) -> Verdict {
        if message.topic != topic::REQUEST {
            return self.take_other(from, message);
        }
        let response_topic = message.response_topic.take();
        if response_topic.as_deref().is_some_and(topic::is_reserved_for_response) {
            let text = "the response topic is the state store's own".to_owned();
            return Verdict::Disconnect { reason: ReasonCode::TopicNameInvalid, text };
        }
        match read_asker(&message, response_topic.as_deref()) {
            Ok(_) if !from.may_publish(response_topic.as_deref().unwrap_or_default()) => {
                // The store would publish there in the client's stead.
                show(outlet, from, &message, response_topic.as_deref());
                let (client_id, what) = (Arc::clone(&from.client_id), "have its answer published to");
                let topic = response_topic.unwrap_or_default();
                (self.events)(broker::Event::NotAuthorized { client_id, what, topic }.into());
                return Verdict::Refused(ReasonCode::NotAuthorized);
            }
            Ok(correlation) => {
                let response_topic = response_topic.unwrap_or_default();
                let (verb, since) = (Verb::default(), clock::monotonic());
                let asker = Asker { response_topic, correlation, verb, since };
                self.answer(outlet, from, &message, asker);
            }
            Err(reason) => {
                show(outlet, from, &message, response_topic.as_deref());
                let (client_id, reason) = (Arc::clone(&from.client_id), reason.to_owned());
                (self.events)(Event::Unanswerable { client_id, reason });
            }
        }
        Verdict::Consumed
    }

    /// Nobody but the store may tell of changes: what a client publishes there is acknowledged and goes nowhere.
    fn take_other(&self, from: &Peer, message: Message) -> Verdict {
        if !message.topic.starts_with(topic::RESERVED) {
            return Verdict::Route(message);
        }
        let (client_id, reason) = (Arc::clone(&from.client_id), "only the state store publishes there");
        (self.events)(broker::Event::Dropped { client_id, topic: message.topic, reason }.into());
        Verdict::Consumed
    }

    fn answer(&self, outlet: &dyn Outlet, from: &Peer, message: &Message, mut asker: Asker) {
        let request = match Request::decode(&message.payload, self.case) {
            Ok(request) => request,
            Err(error) => {
                show(outlet, from, message, Some(&asker.response_topic));
                let answer = Some((asker, Answer::error(error.error_reply())));
                return Delivery { answer, change: None }.send(outlet);
            }
        };
        let verb = verb(&request);
        asker.verb = verb;
        // Nothing else is judged by them.
        let is_write = matches!(verb, Verb::Set | Verb::Del | Verb::VDel);
        let stamp = |name| message.user_property(name).filter(|_| is_write);
        let parsed = |name| stamp(name).map(str::parse::<Timestamp>);
        let mut call = StoreRequest {
            permissions: None,
            connection: from.connection,
            client_id: Arc::clone(&from.client_id),
            request,
            timestamp: parsed(TIMESTAMP),
            fence: parsed(FENCE),
            persist: self.keeps_all || message.user_property(PERSIST) == Some("true"),
        };
        let now = self.now();
        if let Request::KeyNotify { stop: false, .. } = &call.request
            && let Some(permissions) = ClientPermissions::of(from)
        {
            self.passes().insert(call.connection, permissions);
        }
        let mut state = self.lock();
        // Under the lock, so that no watch begins that other rules have just ended.
        call.permissions = ClientPermissions::key_permissions_of(from);
        // Under the lock, so that requests are overheard in the order in which the store decides them.
        show(outlet, from, message, Some(&asker.response_topic));
        let refused = state.answer(outlet, call, asker, message, now);
        self.wake_writer(&state);
        self.wake_timer(&mut state);
        drop(state);
        if let Some(key) = refused {
            let what = if is_write { "write" } else { "read" };
            let key = String::from_utf8_lossy(key.as_bytes()).into_owned();
            (self.events)(Event::KeyNotAuthorized { client_id: Arc::clone(&from.client_id), what, key });
        }
    }

    /// The rules may have changed: whoever may not read a key any more is no longer told of it.
    pub fn revoke(&self) {
        let passes = self.passes();
        // Reckons what the rules come to for each, before anybody waits.
        passes.values().for_each(|pass| drop(pass.key_permissions()));
        self.lock().engine.revoke_watches(&|connection, key| {
            passes.get(&connection).is_none_or(|pass| pass.key_permissions().read.contains(key.as_bytes()))
        });
    }

    fn passes(&self) -> MutexGuard<'_, HashMap<ConnectionId, Arc<ClientPermissions>>> {
        self.passes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_timer(&self, state: &mut State) {
        if let Some(next_ms) = state.next_expiry()
            && next_ms < state.timer_ms
        {
            state.timer_ms = next_ms;
            self.has_earlier_deadline.notify_one();
        }
    }

    /// Removes keys at their deadlines, for ever.
    async fn expire(&self, outlet: &dyn Outlet) {
        loop {
            let next_ms = self.expire_due(outlet);
            // If there was more than one poll takes, requests come between.
            let wait_ms = next_ms.saturating_sub(self.now().monotonic_ms).max(1);
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(wait_ms)) => {}
                () = self.has_earlier_deadline.notified() => {}
            }
        }
    }

    /// Removes what is due, tells of it, and says when more will be.
    fn expire_due(&self, outlet: &dyn Outlet) -> u64 {
        let now = self.now();
        let mut state = self.lock();
        let next_ms = state.expire_due(outlet, now);
        self.wake_writer(&state);
        next_ms
    }
}

impl Application for Service {
    fn handle_publish(&self, broker: &Broker, from: &Peer, message: Message) -> Verdict {
        self.take(&BrokerOutlet { broker, metrics: &*self.metrics }, from, message)
    }

    fn monitored_topic(&self) -> Option<&str> {
        Some(topic::REQUEST)
    }

    /// A will would pass by the service: it could forge a notification, or ask without being answered.
    fn check_will(&self, will: &Message) -> Result<(), String> {
        if will.topic == topic::REQUEST || will.topic.starts_with(topic::RESERVED) {
            return Err("the topic of the will is the state store's own".to_owned());
        }
        Ok(())
    }

    /// A client is always told of the keys that it watches.
    fn is_own_filter(&self, client_id: &str, filter: &str) -> bool {
        topic::is_notification_filter_of(client_id, filter)
    }

    fn handle_disconnect(&self, _: &Broker, peer: &Peer) {
        if peer.permissions.is_some() {
            self.passes().remove(&peer.connection);
        }
        self.lock().engine.handle_disconnect(peer.connection);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.timer.abort();
        self.service.lock().closing = true;
        self.service.has_unsaved.notify_all();
        if let Some(writer) = self.writer.take() {
            // A writer that has panicked has nothing left to commit.
            let _ = writer.join();
        }
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Service").field("case", &self.case).finish_non_exhaustive()
    }
}

/// Lets whoever subscribes to the requests see one, before its answer. The message has lost its response topic.
///
/// The service is the only one that requests are for, so they are not routed; but a broker shows a message to all that
/// subscribe to it, and `mqkv monitor`, like any MQTT tool that looks for a fault, relies on that.
fn show(outlet: &dyn Outlet, from: &Peer, message: &Message, response_topic: Option<&str>) {
    if outlet.is_overheard() {
        let response_topic = response_topic.map(str::to_owned);
        outlet.overhear(from.connection, Message { response_topic, ..message.clone() });
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

/// What a request needs to be answered at all, or what it lacks (protocol §1). Returns its correlation data.
fn read_asker(message: &Message, response_topic: Option<&str>) -> Result<Bytes, &'static str> {
    if message.qos != Qos::AtLeastOnce {
        return Err("its QoS is not 1");
    }
    let response_topic = response_topic.ok_or("it names no response topic")?;
    if response_topic.is_empty() || topic::has_wildcard(response_topic) {
        return Err("its response topic is empty or has a wildcard");
    }
    if response_topic.starts_with(SYS) {
        return Err("its response topic is the broker's own");
    }
    message.correlation.clone().ok_or("it has no correlation data")
}
