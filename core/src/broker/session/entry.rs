//! Session entries: a client's session and its current connection, shared by all parts of the broker.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::connection_handle::ConnectionHandle;
use crate::broker::event::Event;
use crate::broker::memory::{Account, Charge, MemoryKind, SESSION_SHARE_BYTES};
use crate::broker::permissions::Permissions;
use crate::broker::principal::Principal;
use crate::broker::publication::{self, Delivery};
use crate::broker::session::state_machine::{Full, Outgoing, Session};
use crate::mqtt::ReasonCode;
use crate::mqtt::packet::{SubscriptionOptions, Will};
use crate::protocol::ConnectionId;
use crate::protocol::message::Qos;

/// The bytes charged for a session in addition to its contents.
const SESSION_BYTES: usize = 640;

/// Returns the bytes that a new session takes.
#[must_use]
pub fn bytes_of_new(client_id: &str, will: Option<&Will>) -> usize {
    let will = will.map_or(0, |will| publication::bytes_of(&will.message));
    // The tables of the broker and of the application share the client id.
    SESSION_BYTES.saturating_add(client_id.len()).saturating_add(will)
}

/// Number of a session, unique within one broker and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A connection's request for its session, from its CONNECT.
#[derive(Debug)]
pub struct SessionRequest {
    pub connection: ConnectionId,
    /// The client's address.
    pub remote: Arc<str>,
    pub client_id: Arc<str>,
    pub principal: Principal,
    /// Whose memory it is: see [`Principal::owner`].
    pub owner: Arc<Account>,
    /// None: the client may do everything.
    pub permissions: Option<Arc<dyn Permissions>>,
    /// Whether an earlier session is discarded.
    pub clean_start: bool,
    /// The client's Receive Maximum.
    pub receive_maximum: u16,
    pub will: Option<Will>,
    /// The session expiry interval, in seconds.
    pub expiry_s: u32,
    /// The CONNACK that will answer the CONNECT, if it can be seen whether it has arrived.
    pub connack: Option<Box<dyn Connack>>,
}

/// The CONNACK of a connection.
pub trait Connack: fmt::Debug + Send {
    /// Whether TCP has acknowledged it. Only called before the connection is detached from its session.
    fn is_acknowledged(&self) -> bool;
}

/// Whether a client can be given a message now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It is connected, and its queue has room.
    Ready,
    /// It is connected, and its queue is full.
    Full,
    /// It is not connected, or its connection is about to be closed.
    Disconnected {
        /// Whether its queue has room.
        has_room: bool,
    },
}

/// A session, as long as it exists.
#[derive(Debug)]
pub struct SessionEntry {
    pub id: SessionId,
    pub client_id: Arc<str>,
    state: Mutex<SessionState>,
}

/// The part of a session entry that changes.
#[derive(Debug)]
pub struct SessionState {
    pub session: Session,
    /// The connection that serves the session, if the client is connected.
    pub handle: Option<Arc<ConnectionHandle>>,
    /// The address of the last connection.
    pub remote: Arc<str>,
    /// When the client connected last; `None` before its first connection.
    pub connected_since: Option<Instant>,
    pub will: Option<Will>,
    /// The session expiry interval, in seconds.
    pub expiry_s: u32,
    /// When the Will Message is due, while the client is not connected.
    pub will_at: Option<Instant>,
    /// When the session expires, while the client is not connected.
    pub ends_at: Option<Instant>,
    /// When the client disconnected.
    pub disconnected_since: Option<Instant>,
    /// The owner of the session.
    pub principal: Principal,
    /// None: the client may do everything.
    pub permissions: Option<Arc<dyn Permissions>>,
    /// The subscriptions, also those that the rules no longer permit: these bring no messages until they are permitted
    /// again.
    pub filters: HashMap<String, SubscriptionOptions>,
    /// The bytes charged for the topic filters, by `filter_memory::bytes`.
    filter_bytes: usize,
    /// Whether the client knows of the session: see [`SessionState::settle_is_known`].
    is_known: bool,
    /// See [`SessionRequest::connack`]; None if the client knows of the session without it.
    connack: Option<Box<dyn Connack>>,
    /// Whether the connection's task has seen everything, so that it must be woken for more.
    is_idle: bool,
    /// Whether the session has ended. Its subscriptions may still be found.
    is_ended: bool,
    /// Whether a dropped message has been reported since the client last caught up.
    is_overflowing: bool,
    /// The bytes of client id and Will Message, and those that every session takes.
    fixed_bytes: usize,
    charge: Charge,
}

impl SessionEntry {
    /// Returns the entry of a session without a connection.
    #[must_use]
    pub fn new(id: SessionId, client_id: Arc<str>, session: Session, owner: &Arc<Account>) -> Self {
        let fixed_bytes = bytes_of_new(&client_id, None);
        let state = SessionState {
            session,
            handle: None,
            remote: "".into(),
            connected_since: None,
            will: None,
            expiry_s: 0,
            will_at: None,
            ends_at: None,
            disconnected_since: None,
            principal: Principal::default(),
            permissions: None,
            filters: HashMap::new(),
            filter_bytes: 0,
            is_known: false,
            connack: None,
            is_idle: false,
            is_ended: false,
            is_overflowing: false,
            fixed_bytes,
            charge: Charge::new(owner, MemoryKind::Sessions, 0),
        };
        Self { id, client_id, state: Mutex::new(state) }
    }

    /// Locks the state. The registry's lock is never taken after it.
    pub fn lock(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` with the session, if `connection` still serves it.
    ///
    /// After a takeover, packets of the old connection must not change the session: the client would count on a message
    /// that was not published, or use a packet id again that stands for another message.
    pub fn with_session<R>(&self, connection: ConnectionId, f: impl FnOnce(&mut Session) -> R) -> Option<R> {
        let mut state = self.lock();
        state.is_served_by(connection).then(|| {
            let result = f(&mut state.session);
            state.update_charge();
            result
        })
    }

    /// Whether the connection's task has seen everything, and has not been woken since.
    pub fn is_idle(&self, connection: ConnectionId) -> bool {
        let state = self.lock();
        state.is_idle && state.is_served_by(connection)
    }

    /// Notes that the connection's task runs and need not be woken, with input from the client or without. Returns whether
    /// there may be something to send.
    pub fn resume(&self, connection: ConnectionId, has_input: bool) -> bool {
        let mut state = self.lock();
        let may_have_more = !state.is_idle;
        if state.is_served_by(connection) {
            state.is_idle = false;
            state.is_known |= has_input;
        }
        may_have_more
    }

    /// Handles a PUBACK, if `connection` still serves the session. Returns whether there are messages to be sent, which
    /// may have waited for it.
    pub fn handle_puback(&self, connection: ConnectionId, packet_id: u16) -> bool {
        let acknowledged = self.with_session(connection, |session| {
            session.handle_puback(packet_id);
            session.has_unsent()
        });
        acknowledged.unwrap_or(false)
    }

    /// Returns what to send next, and whether there is more. With `becomes_idle`, a task that gets nothing is woken for
    /// the next message.
    pub fn poll_outgoing(
        &self,
        connection: ConnectionId,
        now: Instant,
        becomes_idle: bool,
    ) -> Option<(Outgoing, bool)> {
        let mut state = self.lock();
        if !state.is_served_by(connection) {
            return None;
        }
        let outgoing = state.session.poll_outgoing(now);
        state.update_charge();
        if outgoing.is_none() {
            state.is_overflowing = false;
            state.is_idle = becomes_idle;
        }
        outgoing.map(|outgoing| (outgoing, state.session.has_unsent()))
    }

    /// Returns whether the client can be given a message of `bytes`, as charged by `Publication::bytes`.
    pub fn readiness(&self, bytes: usize) -> Readiness {
        let state = self.lock();
        let has_room = !state.is_ended && state.session.has_room(bytes) && state.may_hold_more(bytes);
        match (state.is_connected(), has_room) {
            (true, true) => Readiness::Ready,
            (true, false) => Readiness::Full,
            (false, has_room) => Readiness::Disconnected { has_room },
        }
    }

    /// Queues a message for the client. Returns false if the queue has no room.
    ///
    /// Without room, a message of QoS 0 is dropped. One of QoS 1 or 2 must not be lost on a connection, so the
    /// connection is closed: the client does not read.
    pub fn enqueue(&self, delivery: Delivery, now: Instant, events: &mut Vec<Event>) -> bool {
        self.add(delivery, now, events, Session::enqueue)
    }

    /// Queues a retained message for a new subscription: see [`Session::hold`]. Returns false if the queue has no room.
    pub fn enqueue_retained(&self, delivery: Delivery, now: Instant, events: &mut Vec<Event>) -> bool {
        self.add(delivery, now, events, Session::enqueue_retained)
    }

    fn add(
        &self,
        mut delivery: Delivery,
        now: Instant,
        events: &mut Vec<Event>,
        enqueue: impl FnOnce(&mut Session, Delivery) -> Result<(), Full>,
    ) -> bool {
        let mut state = self.lock();
        let is_needed = delivery.qos > Qos::AtMostOnce;
        if state.is_ended || state.handle.is_none() && !is_needed {
            return true;
        }
        let bytes = delivery.bytes();
        if !state.session.has_room(bytes) {
            state.session.make_room(bytes, now);
            state.update_charge();
        }
        if state.may_hold_more(bytes) && state.session.has_room(bytes) {
            delivery.share = delivery.publication.share(state.owner());
            // There is room, so it cannot fail.
            let _ = enqueue(&mut state.session, delivery);
            state.update_charge();
            if state.is_idle
                && let Some(handle) = &state.handle
            {
                handle.wake();
                state.is_idle = false;
            }
            return true;
        }
        if is_needed && let Some(handle) = &state.handle {
            handle.close(ReasonCode::QuotaExceeded, "too many messages are queued for this client");
        }
        if !state.is_overflowing {
            state.is_overflowing = true;
            events.push(Event::Dropped {
                client_id: Arc::clone(&self.client_id),
                topic: delivery.publication.message.topic.to_string(),
                reason: "too many messages are queued for this client; not reported again until it catches up",
            });
        }
        false
    }
}

impl SessionState {
    /// Returns whether the client knows of the session, when its connection ends. A session that is not known is
    /// not resumed.
    ///
    /// Such a session began with Clean Start 0, is empty, and its CONNACK, with Session Present 0, may have been lost. Then
    /// the client may believe in a session that it had before a restart of the broker. If this one were reported as present,
    /// the client would deliver messages again that the earlier broker has handled. With Clean Start 1 it has discarded its
    /// earlier session, and input or an acknowledgement of TCP shows that the CONNACK has arrived.
    ///
    /// TCP acknowledges before the client reads. A client that ends in between has lost its earlier session too, unless it
    /// has it in a file; a proxy between both that acknowledges, and does not pass the CONNACK on, is not noticed either. If
    /// the acknowledgement itself is lost with the connection, Session Present 0 reports that the session is gone.
    pub fn settle_is_known(&mut self) -> bool {
        let connack = self.connack.take();
        self.is_known = self.is_known || connack.is_some_and(|connack| connack.is_acknowledged());
        self.is_known
    }

    /// Whether the client is connected, and its connection is not about to be closed.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.handle.as_ref().is_some_and(|handle| handle.close_reason().is_none())
    }

    fn is_served_by(&self, connection: ConnectionId) -> bool {
        self.handle.as_ref().is_some_and(|handle| handle.id == connection)
    }

    /// Whose session it is: see [`SessionRequest::owner`].
    #[must_use]
    pub fn owner(&self) -> &Arc<Account> {
        self.charge.account()
    }

    /// Whether the session may hold `bytes` more: a message as counted by [`Delivery::bytes`], or a topic filter.
    #[must_use]
    pub fn may_hold_more(&self, bytes: usize) -> bool {
        let bytes = self.chargeable(self.held_bytes().saturating_add(bytes));
        if self.handle.is_some() { self.charge.may_hold(bytes) } else { self.charge.may_wait(bytes) }
    }

    /// Returns what is charged of `bytes`: a part is reserved for the session of a connected client.
    fn chargeable(&self, bytes: usize) -> usize {
        bytes.saturating_sub(if self.handle.is_some() { SESSION_SHARE_BYTES } else { 0 })
    }

    /// Returns the bytes charged for the topic filters.
    #[must_use]
    pub fn filter_bytes(&self) -> usize {
        self.filter_bytes
    }

    /// Charges the session for topic filters: for so many bytes more, and so many less.
    pub fn charge_filters(&mut self, more: usize, less: usize) {
        self.filter_bytes = self.filter_bytes.saturating_add(more).saturating_sub(less);
        self.update_charge();
    }

    /// Removes a topic filter; returns false if there is none.
    pub fn remove_filter(&mut self, filter: &str) -> bool {
        let is_removed = self.filters.remove(filter).is_some();
        // The charge for filters counts a table that is not much larger than its content.
        if self.filters.len() < self.filters.capacity() / 4 {
            self.filters.shrink_to(self.filters.len().saturating_mul(2));
        }
        is_removed
    }

    /// Charges what the session holds now.
    pub fn update_charge(&mut self) {
        let is_needed = || self.handle.is_some() && !self.owner().budget().is_scarce();
        if self.session.has_spare_memory() && !is_needed() {
            self.session.release_spare_memory();
        }
        let bytes = self.chargeable(self.held_bytes());
        self.charge.set(bytes);
        if let Some(handle) = &self.handle {
            handle.set_backlogged(self.session.is_backlogged());
        }
    }

    fn held_bytes(&self) -> usize {
        self.fixed_bytes.saturating_add(self.filter_bytes).saturating_add(self.session.held_bytes())
    }

    /// Ends the session: it takes no message any more. Returns its topic filters and its unacknowledged messages.
    pub fn end(&mut self) -> (HashMap<String, SubscriptionOptions>, VecDeque<Delivery>) {
        self.is_ended = true;
        (std::mem::take(&mut self.filters), self.session.end())
    }

    /// Notes that no connection serves the session any more.
    pub fn detach(&mut self) {
        self.settle_is_known();
        if let Some(handle) = self.handle.take() {
            handle.set_backlogged(false);
        }
        self.session.release();
    }

    /// Makes a new connection serve the session.
    pub fn attach(&mut self, handle: Arc<ConnectionHandle>, request: SessionRequest, now: Instant) {
        self.fixed_bytes = bytes_of_new(&request.client_id, request.will.as_ref());
        self.handle = Some(handle);
        self.remote = request.remote;
        self.connected_since = Some(now);
        if !Arc::ptr_eq(&request.owner, self.owner()) {
            self.charge.move_to(&request.owner, MemoryKind::Sessions);
            self.session.move_shares(&request.owner);
        }
        self.principal = request.principal;
        self.permissions = request.permissions;
        self.will = request.will;
        self.expiry_s = request.expiry_s;
        self.will_at = None;
        self.ends_at = None;
        self.disconnected_since = None;
        self.is_idle = false;
        self.is_known |= request.clean_start;
        self.connack = request.connack.filter(|_| !self.is_known);
        self.session.handle_connect(request.receive_maximum);
        self.update_charge();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::broker::publication::Publication;
    use crate::broker::routing::registry::tests::request;
    use crate::broker::session::state_machine::Limits;
    use crate::clock;
    use crate::protocol::message::Message;

    const ID: ConnectionId = ConnectionId(1);

    /// Returns an entry with room for one message.
    fn entry() -> SessionEntry {
        let limits = Limits { messages_max: 1, bytes_max: 1_000 };
        SessionEntry::new(SessionId(1), "a".into(), Session::new(limits), &Account::test("a", 1_000_000))
    }

    /// Returns an entry with room for one message, and its connection.
    fn connected() -> (SessionEntry, Arc<ConnectionHandle>) {
        let (entry, handle) = (entry(), Arc::new(ConnectionHandle::new(ID)));
        entry.lock().handle = Some(Arc::clone(&handle));
        entry.lock().session.handle_connect(10);
        (entry, handle)
    }

    fn delivery(qos: Qos, expiry_s: Option<u32>, published: Instant) -> Delivery {
        let publication =
            Arc::new(Publication::new(Message { qos, expiry_s, ..Message::default() }, published));
        Delivery { publication, qos, retain: false, subscription_ids: Vec::new(), group: None, share: None }
    }

    #[test]
    fn an_empty_queue_keeps_its_places_and_is_charged_for_them_while_memory_is_not_scarce() {
        let owner = Account::test("a", 1_000_000);
        let budget = owner.budget();
        let limits = Limits { messages_max: 200, bytes_max: 1_000_000 };
        let entry = SessionEntry::new(SessionId(1), "a".into(), Session::new(limits), &owner);
        let now = clock::monotonic();
        entry.lock().handle = Some(Arc::new(ConnectionHandle::new(ID)));
        entry.lock().session.handle_connect(200);
        for _ in 0..200 {
            assert!(entry.enqueue(delivery(Qos::AtLeastOnce, None, now), now, &mut Vec::new()));
        }
        while entry.poll_outgoing(ID, now, false).is_some() {}
        (1..=200).for_each(|packet_id| {
            entry.with_session(ID, |session| session.handle_puback(packet_id)).unwrap()
        });
        assert_eq!(entry.lock().session.size(), (0, 0));
        assert!(budget.used() > 200 * size_of::<Delivery>(), "{}", budget.used());
        let _others = Charge::new(&owner, MemoryKind::Retained, 250_000);
        entry.with_session(ID, |_| ()).unwrap();
        assert!(budget.used_by(MemoryKind::Sessions) < 8_192, "{}", budget.used_by(MemoryKind::Sessions));
        assert!(!entry.lock().session.has_spare_memory());
    }

    #[test]
    fn a_connection_is_backlogged_until_its_messages_are_acknowledged_or_no_longer_its_own() {
        let (owner, now) = (Account::test("a", 1_000_000), clock::monotonic());
        let limits = Limits { messages_max: 200, bytes_max: 10_000 };
        let entry = SessionEntry::new(SessionId(1), "a".into(), Session::new(limits), &owner);
        let handle = Arc::new(ConnectionHandle::new(ID));
        entry.lock().handle = Some(Arc::clone(&handle));
        entry.lock().session.handle_connect(200);
        let fill = || {
            while !handle.is_backlogged() {
                assert!(entry.enqueue(delivery(Qos::AtLeastOnce, None, now), now, &mut Vec::new()));
            }
        };
        fill();
        while entry.poll_outgoing(ID, now, false).is_some() {}
        assert!(handle.is_backlogged());
        (1..=200).for_each(|packet_id| _ = entry.handle_puback(ID, packet_id));
        assert!(!handle.is_backlogged());
        fill();
        entry.lock().detach();
        assert!(!handle.is_backlogged());
    }

    #[test]
    fn all_messages_of_a_session_are_charged_to_the_owner_of_its_last_connection() {
        let (first, now) = (Account::test("first", 1_000_000), clock::monotonic());
        let second = first.budget().account("second");
        let limits = Limits { messages_max: 10, bytes_max: 1_000_000 };
        let entry = SessionEntry::new(SessionId(1), "a".into(), Session::new(limits), &first);
        let attach = |connection, owner: &Arc<Account>| {
            let owner = Arc::clone(owner);
            let request = SessionRequest { owner, ..request(connection, "a", 10, None) };
            let handle = Arc::new(ConnectionHandle::new(request.connection));
            entry.lock().attach(handle, request, now);
        };
        attach(1, &first);
        for _ in 0..2 {
            let message =
                Message { qos: Qos::AtLeastOnce, payload: vec![b'x'; 20_000].into(), ..Message::default() };
            let publication = Arc::new(Publication::new(message, now));
            let delivery = Delivery { publication, ..delivery(Qos::AtLeastOnce, None, now) };
            assert!(entry.enqueue(delivery, now, &mut Vec::new()));
        }
        assert!(entry.poll_outgoing(ID, now, false).is_some(), "one is in flight, the other one queued");
        assert!(first.used() > 40_000);
        attach(2, &second);
        assert_eq!(first.used(), 0);
        assert!(second.used() > 40_000);
    }

    #[test]
    fn only_messages_above_qos_0_are_queued_for_a_disconnected_client() {
        let (entry, now) = (entry(), clock::monotonic());
        for (qos, queued) in [(Qos::AtMostOnce, 0), (Qos::AtLeastOnce, 1)] {
            assert!(entry.enqueue(delivery(qos, None, now), now, &mut Vec::new()));
            assert_eq!(entry.lock().session.size().0, queued, "{qos:?}");
        }
    }

    #[test]
    fn a_client_that_does_not_read_loses_messages_of_qos_0_and_for_others_its_connection() {
        let now = clock::monotonic();
        for (qos, is_closed) in [(Qos::AtMostOnce, false), (Qos::AtLeastOnce, true)] {
            let (entry, handle) = connected();
            assert!(entry.enqueue(delivery(qos, None, now), now, &mut Vec::new()));
            assert_eq!(entry.readiness(1), Readiness::Full);
            assert!(!entry.enqueue(delivery(qos, None, now), now, &mut Vec::new()));
            assert_eq!(handle.close_reason().is_some(), is_closed, "{qos:?}");
        }
    }

    #[test]
    fn a_client_whose_connection_is_to_be_closed_counts_as_disconnected() {
        let (entry, handle) = connected();
        assert_eq!(entry.readiness(1), Readiness::Ready);
        handle.close(ReasonCode::AdministrativeAction, "go");
        assert_eq!(entry.readiness(1), Readiness::Disconnected { has_room: true });
    }

    #[test]
    fn dropped_messages_are_reported_once_until_the_client_catches_up() {
        let (entry, _handle) = connected();
        let (now, mut events) = (clock::monotonic(), Vec::new());
        for reports in [1, 2] {
            for _ in 0..3 {
                entry.enqueue(delivery(Qos::AtMostOnce, None, now), now, &mut events);
            }
            assert_eq!(events.len(), reports);
            while entry.poll_outgoing(ID, now, false).is_some() {}
        }
    }

    #[test]
    fn another_connection_than_the_present_one_gets_and_changes_nothing() {
        let (entry, _handle) = connected();
        let now = clock::monotonic();
        assert!(entry.enqueue(delivery(Qos::AtLeastOnce, None, now), now, &mut Vec::new()));
        assert!(entry.poll_outgoing(ConnectionId(2), now, true).is_none());
        assert!(entry.with_session(ConnectionId(2), |session| session.handle_puback(1)).is_none());
        assert!(entry.poll_outgoing(ID, now, true).is_some());
    }

    #[test]
    fn expired_messages_in_the_queue_of_a_disconnected_client_make_room_for_a_new_one() {
        let (entry, now) = (entry(), clock::monotonic());
        let long_ago = now.checked_sub(Duration::from_secs(10)).unwrap();
        for (expiry_s, published) in [(Some(1), long_ago), (None, now)] {
            let mut events = Vec::new();
            let delivery = delivery(Qos::AtLeastOnce, expiry_s, published);
            assert!(entry.enqueue(delivery, now, &mut events), "{events:?}");
        }
    }
}
