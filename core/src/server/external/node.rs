//! The service at the end of the connection with an external broker.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore, watch};

use super::clients::Clients;
use super::held_requests::HeldRequests;
use super::outbox::{ExternalPublisher, Outbox, Recipient};
use super::requests::RequestFilter;
use crate::broker::{AccessControl, Peer, Principal, SessionPhase, next_connection_id};
use crate::client::{self, ReasonCode, ServiceConnected, ServiceNode};
use crate::clock;
use crate::protocol::{Message, topic};
use crate::server::authorization::Authorizer;
use crate::server::event::EventSink;
use crate::server::event::external::ExternalEvent;
use crate::server::service::{RunningScan, Service};

/// The most bytes of requests that are held.
const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The most scans that run beside other requests; meanwhile no request is read.
const SCANS_MAX: usize = 64;
/// The most held requests, or clients of an earlier owner, that are handled in one step, between which others are received.
const HANDLED_PER_STEP_MAX: usize = 256;

/// The requests of the last seconds, while another instance answers.
struct Held {
    /// Locked while requests are handled, so that they stay in order.
    requests: Mutex<HeldRequests>,
    /// Whether held requests may wait for room, and the signal that there may be some.
    waits_for_room: AtomicBool,
    has_room: Notify,
}

impl Held {
    fn new(held_for: Duration) -> Self {
        let requests = Mutex::new(HeldRequests::new(held_for, HELD_BYTES_MAX));
        Self { requests, waits_for_room: AtomicBool::new(false), has_room: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, HeldRequests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signals to the held requests that there may be room.
    fn note_room(&self) {
        if self.waits_for_room.load(Ordering::SeqCst) {
            self.has_room.notify_one();
        }
    }
}

pub(super) struct Node {
    service: Arc<Service>,
    publisher: ExternalPublisher,
    outbox: Arc<Outbox>,
    requests: RequestFilter,
    /// The rules, if the topic of a request names its client.
    authorizer: Option<Arc<Authorizer>>,
    events: EventSink,
    /// The broker, as it is shown.
    target: String,
    clients: Mutex<Clients>,
    /// In a cluster.
    held: Option<Arc<Held>>,
    /// Whether there is a connection with subscriptions.
    is_connected: watch::Sender<bool>,
    /// A permit for each scan that runs beside other requests.
    scans: Arc<Semaphore>,
    /// The last failure that was reported, until the connection is there again.
    failure: Mutex<Option<String>>,
    started: Instant,
}

impl Node {
    pub(super) fn new(
        service: Arc<Service>,
        requests: RequestFilter,
        authorizer: Option<Arc<Authorizer>>,
        held_for: Option<Duration>,
        events: EventSink,
        target: String,
    ) -> Self {
        let outbox = Arc::new(Outbox::new(Arc::clone(&events)));
        let publisher = ExternalPublisher::new(Arc::clone(&outbox), Arc::clone(service.metrics()));
        let scans = Arc::new(Semaphore::new(SCANS_MAX));
        let (clients, failure, started) = (Mutex::default(), Mutex::default(), clock::monotonic());
        let held = held_for.map(|held_for| Arc::new(Held::new(held_for)));
        Self {
            service,
            publisher,
            outbox,
            requests,
            authorizer,
            events,
            target,
            clients,
            held,
            is_connected: watch::Sender::new(false),
            scans,
            failure,
            started,
        }
    }

    pub(super) fn publisher(&self) -> ExternalPublisher {
        self.publisher.clone()
    }

    pub(super) fn reached(&self) -> watch::Receiver<bool> {
        self.is_connected.subscribe()
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, event: ExternalEvent) {
        (self.events)(event.into());
    }

    /// Returns a client that was not known.
    fn connect(&self, client_id: Arc<str>) -> Peer {
        let principal = Principal::default();
        let access_control = self.authorizer.clone();
        let permissions = access_control.map(|authorizer| authorizer.permissions(&client_id, &principal));
        // Without a level for the client id, any id can be claimed: all clients are one owner.
        let owner =
            if self.requests.has_client() { Arc::clone(&client_id) } else { Arc::from(&*self.target) };
        let connection = next_connection_id();
        Peer {
            connection,
            client_id,
            principal,
            identity: [].into(),
            owner,
            permissions,
            // Of sessions at another broker nothing is known.
            session: SessionPhase::Resumed,
            message_number: 0,
            confirmed: 0,
            handle: None,
        }
    }

    fn peer_of(&self, client_id: &str, now: Instant) -> Peer {
        // The conversion cannot fail within 584 million years.
        let now_ms = now.saturating_duration_since(self.started).as_millis();
        let now_ms = u64::try_from(now_ms).unwrap_or(u64::MAX);
        let mut clients = self.clients();
        let connect = |client_id| self.connect(client_id);
        let is_watching = |peer: &Peer| self.service.is_watching(peer);
        let (peer, forgotten) = clients.handle_request(client_id, now_ms, connect, is_watching);
        self.outbox.note_request(clients.last());
        drop(clients);
        for forgotten in forgotten {
            if is_watching(&forgotten) {
                self.report(ExternalEvent::TooManyWatchers { client_id: Arc::clone(&forgotten.client_id) });
            }
            self.service.disconnect(&forgotten);
        }
        peer
    }

    /// Handles the requests that were held whenever this instance of a cluster becomes the owner. Returns at once without a cluster.
    pub(super) async fn run_releases(&self) {
        let service = &self.service;
        let Some(held) = &self.held else { return };
        let (mut was_following, mut watchers) = (true, Vec::new());
        loop {
            let is_following = !service.is_serving();
            if is_following {
                watchers.clear();
            } else if was_following {
                watchers = service.watching_clients();
            }
            was_following = is_following;
            // Before the look at the room: what makes room later signals it.
            held.waits_for_room.store(true, Ordering::SeqCst);
            let has_more = {
                let mut requests = held.lock();
                self.release(&mut requests);
                let is_done = requests.is_empty() || !service.is_serving();
                if is_done {
                    held.waits_for_room.store(false, Ordering::SeqCst);
                }
                !is_done && self.has_room_for_request()
            };
            self.adopt(&mut watchers);
            if has_more || !watchers.is_empty() {
                tokio::task::yield_now().await;
                continue;
            }
            // The connection may have waited for the held requests, or for those of an ownership that was lost.
            self.outbox.changed().notify_one();
            tokio::select! {
                () = service.role_changed() => {}
                () = held.has_room.notified() => {}
            }
        }
    }

    /// Makes some of the clients known whose registrations are those of an earlier owner, so that their number is bounded as that
    /// of others.
    fn adopt(&self, watchers: &mut Vec<Arc<str>>) {
        let rest = watchers.len().saturating_sub(HANDLED_PER_STEP_MAX);
        for client_id in watchers.drain(rest..) {
            self.peer_of(&client_id, clock::monotonic());
        }
    }

    /// Handles some of the held requests, if this instance answers them, as far as there is room.
    fn release(&self, held: &mut HeldRequests) {
        let service = &self.service;
        let is_following = !service.is_serving();
        held.set_released(!is_following, clock::monotonic());
        for _ in 0..HANDLED_PER_STEP_MAX {
            if !service.is_serving() || !self.has_room_for_request() {
                break;
            }
            let Some(message) = held.pop(clock::monotonic()) else { break };
            self.handle_request(message, clock::monotonic());
        }
        service.metrics().cluster.set_held(held.held());
    }

    /// Whether a request can be handled: whether there is room for its response, here and in the service.
    fn has_room_for_request(&self) -> bool {
        self.outbox.has_room() && self.scans.available_permits() > 0 && self.service.has_room()
    }

    /// Whether acknowledged requests are still being handled: those that were held, and scans.
    pub(super) fn is_busy(&self) -> bool {
        let has_held = |held: &Arc<Held>| self.service.is_serving() && !held.lock().is_empty();
        self.scans.available_permits() < SCANS_MAX || self.held.as_ref().is_some_and(has_held)
    }

    fn handle_request(&self, mut message: Message, now: Instant) {
        let peer = match self.requests.client_of(&message) {
            Ok(client_id) => self.peer_of(client_id, now),
            Err(reason) => {
                let (topic, reason) = (message.topic.into_owned(), reason.to_string());
                return self.report(ExternalEvent::NoClient { topic, reason });
            }
        };
        message.topic = topic::REQUEST.into();
        if let Some(scan) = self.service.handle_external_request(&self.publisher, &peer, message, now) {
            self.run_scan(scan);
        }
    }

    /// Answers a scan in steps, between which other requests are handled. No further one is read without a permit.
    fn run_scan(&self, mut scan: Box<RunningScan>) {
        let (publisher, outbox) = (self.publisher.clone(), Arc::clone(&self.outbox));
        let permit = Arc::clone(&self.scans).try_acquire_owned();
        let held = self.held.clone();
        tokio::spawn(async move {
            while !scan.advance(&publisher) {
                tokio::task::yield_now().await;
            }
            drop(permit);
            held.iter().for_each(|held| held.note_room());
            outbox.changed().notify_one();
        });
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Node").field("target", &self.target).finish_non_exhaustive()
    }
}

impl ServiceNode for Node {
    fn handle_connected(&self, connected: &ServiceConnected) {
        self.is_connected.send_replace(true);
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        if failure.is_some() {
            let (target, is_resumed) = (self.target.clone(), connected.is_resumed);
            self.report(ExternalEvent::Connected { target, is_resumed });
        }
    }

    fn handle_lost(&self, cause: &client::Error) {
        self.is_connected.send_replace(false);
        let reason = cause.to_string();
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = failure.as_ref() != Some(&reason);
        *failure = Some(reason.clone());
        drop(failure);
        if is_new {
            self.report(ExternalEvent::Lost { target: self.target.clone(), reason });
        }
    }

    fn handle_message(&self, message: Message) {
        // A retained message is of an earlier time: its response is not awaited any more.
        if message.retain {
            return;
        }
        let now = clock::monotonic();
        let Some(held) = &self.held else { return self.handle_request(message, now) };
        let mut held = held.lock();
        if held.is_empty() && self.service.is_serving() {
            return self.handle_request(message, now);
        }
        held.set_released(self.service.is_serving(), now);
        held.push(message, now);
        self.release(&mut held);
    }

    fn handle_malformed(&self, topic: Option<String>, text: String) {
        let topic = topic.unwrap_or_else(|| self.requests.filter().to_owned());
        self.report(ExternalEvent::NoClient { topic, reason: format!("malformed message: {text}") });
    }

    fn poll_message(&self) -> Option<(Message, u64)> {
        let message = self.outbox.poll()?;
        // Each response comes past here, also those that wait for etcd.
        self.held.iter().for_each(|held| held.note_room());
        Some(message)
    }

    fn handle_published(&self, tag: u64, result: Result<ReasonCode, client::Error>) {
        let recipient = self.outbox.take_recipient(tag);
        let is_gone = matches!(&result, Ok(reason) if reason.code == ReasonCode::NO_MATCHING_SUBSCRIBERS);
        if let Err(error) = result {
            self.report(ExternalEvent::NotPublished { reason: error.to_string() });
        }
        let Some(Recipient { client_id, key: Some(key), last_request }) = recipient.filter(|_| is_gone)
        else {
            return;
        };
        // The product ends the watches of a client with its connection, of which nothing is known here. A client that has
        // sent a request since may have subscribed.
        let clients = self.clients();
        if clients.has_request_since(&client_id, last_request) {
            return;
        }
        let connection = clients.connection_of(&client_id);
        drop(clients);
        if self.service.end_watch(&client_id, connection, &key) {
            let key = String::from_utf8_lossy(key.as_bytes()).into_owned();
            self.report(ExternalEvent::WatchEnded { client_id: client_id.into(), key });
        }
    }

    fn has_room(&self) -> bool {
        // Without an answer, a request only takes the place of an earlier one.
        !self.service.is_serving() || self.has_room_for_request()
    }

    fn changed(&self) -> &Notify {
        self.outbox.changed()
    }
}

#[cfg(test)]
mod tests;
