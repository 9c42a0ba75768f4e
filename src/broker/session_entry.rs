//! A client's place in the broker: its session, and the connection that serves it now, if there is one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use super::Ending;
use super::packet::Will;
use super::publication::Delivery;
use super::reason::Reason;
use super::registry::Arrival;
use super::session::{Outgoing, Session};
use super::subscriptions::{Options, SessionId};
use crate::clock;
use crate::protocol::ConnectionId;
use crate::protocol::message::Qos;
use crate::server::authorization::Permissions;
use crate::server::event::Event;
use crate::server::identity::Principal;

/// One accepted connection, as the rest of the broker sees it.
#[derive(Debug)]
pub struct Link {
    /// Which one.
    pub id: ConnectionId,
    /// Wakes the connection's task.
    pub wake: Notify,
    ending: OnceLock<Ending>,
    stage: AtomicU8,
}

/// How far a connection has come to its end where the broker is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It goes on.
    Open,
    /// What was read is to be handled, and no other message.
    Draining,
    /// That has been handled.
    Drained,
    /// It ends once everything has been sent.
    Finishing,
}

impl Link {
    /// A connection that has not been told to end.
    #[must_use]
    pub fn new(id: ConnectionId) -> Self {
        Self { id, wake: Notify::new(), ending: OnceLock::new(), stage: AtomicU8::new(Stage::Open as u8) }
    }

    /// Brings the connection further to its end; it never goes back.
    pub fn advance(&self, stage: Stage) {
        self.stage.fetch_max(stage as u8, Ordering::AcqRel);
        self.wake.notify_one();
    }

    /// Whether the connection has come as far as this.
    #[must_use]
    pub fn has_come_to(&self, stage: Stage) -> bool {
        self.stage.load(Ordering::Acquire) >= stage as u8
    }

    /// Tells the connection to end; the first reason given counts.
    pub fn end(&self, reason: Reason, text: &str) {
        // Who came second has nothing to add.
        let _ = self.ending.set(Ending::Cut { reason, text: text.to_owned() });
        self.wake.notify_one();
    }

    /// How the connection was told to end.
    #[must_use]
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.get()
    }
}

/// Whether a client can be given a message now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It is connected and has room for it.
    Ready,
    /// It is connected, but has no room.
    Full,
    /// It is not connected, or about to be cut off.
    Away {
        /// Whether a message can wait for it.
        has_room: bool,
    },
}

/// A client's place, as long as its session lives.
#[derive(Debug)]
pub struct SessionEntry {
    /// The session.
    pub id: SessionId,
    /// Whose it is.
    pub client_id: Arc<str>,
    desk: Mutex<SessionState>,
}

/// What changes at a seat.
#[derive(Debug)]
pub struct SessionState {
    /// The messages.
    pub session: Session,
    /// The connection that serves the client now.
    pub link: Option<Arc<Link>>,
    /// What to publish if the client does not come back in time.
    pub will: Option<Will>,
    /// How long the session outlives the connection, in seconds.
    pub expiry_s: u32,
    /// When the will is due, while there is no connection.
    pub will_at: Option<Instant>,
    /// When the session ends, while there is no connection.
    pub ends_at: Option<Instant>,
    /// Since when there is no connection.
    pub away_since: Option<Instant>,
    /// Who the session belongs to.
    pub principal: Principal,
    /// What the rules let its client do; none: there are none for it.
    pub pass: Option<Arc<Permissions>>,
    /// What is subscribed to, also where no rule allows it any more and it brings nothing.
    pub filters: HashMap<String, Options>,
    /// What the filters are charged for.
    pub filter_bytes: usize,
    /// Whether the connection's task has seen all there is, and must be woken for more.
    is_idle: bool,
    /// Whether the operator has been told that messages are dropped.
    is_overflowing: bool,
}

impl SessionEntry {
    /// A seat that nobody has taken yet.
    #[must_use]
    pub fn new(id: SessionId, client_id: Arc<str>, session: Session) -> Self {
        let desk = SessionState {
            session,
            link: None,
            will: None,
            expiry_s: 0,
            will_at: None,
            ends_at: None,
            away_since: None,
            principal: Principal::default(),
            pass: None,
            filters: HashMap::new(),
            filter_bytes: 0,
            is_idle: false,
            is_overflowing: false,
        };
        Self { id, client_id, desk: Mutex::new(desk) }
    }

    /// Locks what changes. Taken after the registry's lock, never before it.
    pub fn desk(&self) -> MutexGuard<'_, SessionState> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `f` on the session, if this connection still is the one that serves it.
    pub fn with_session<R>(&self, connection: ConnectionId, f: impl FnOnce(&mut Session) -> R) -> Option<R> {
        let mut desk = self.desk();
        desk.is_served_by(connection).then(|| f(&mut desk.session))
    }

    /// Whether the connection's task has seen all there is, and has not been woken for more.
    pub fn is_at_rest(&self, connection: ConnectionId) -> bool {
        let desk = self.desk();
        desk.is_idle && desk.is_served_by(connection)
    }

    /// The connection's task works on its own and need not be woken. Says whether there may be something to send: not if
    /// the task has seen all there is, and has not been woken for more.
    pub fn work(&self, connection: ConnectionId) -> bool {
        let mut desk = self.desk();
        let may_have_more = !desk.is_idle;
        if desk.is_served_by(connection) {
            desk.is_idle = false;
        }
        may_have_more
    }

    /// What to send next; with `or_rest`, if there is nothing, the task must be woken for more.
    pub fn poll_outgoing(&self, connection: ConnectionId, now: Instant, or_rest: bool) -> Option<Outgoing> {
        let mut desk = self.desk();
        if !desk.is_served_by(connection) {
            return None;
        }
        let outgoing = desk.session.poll_outgoing(now);
        if outgoing.is_none() {
            desk.is_overflowing = false;
            desk.is_idle = or_rest;
        }
        outgoing
    }

    /// Whether the client can be given a message of so many bytes, as charged by `Publication::bytes`.
    pub fn readiness(&self, bytes: usize) -> Readiness {
        let desk = self.desk();
        match (desk.is_connected(), desk.session.has_room(bytes)) {
            (true, true) => Readiness::Ready,
            (true, false) => Readiness::Full,
            (false, has_room) => Readiness::Away { has_room },
        }
    }

    /// Gives the client a message; cuts its connection off if it does not read, drops the message if it is away.
    ///
    /// False if there is no room for it.
    pub fn offer(&self, delivery: Delivery, events: &mut Vec<Event>) -> bool {
        let mut desk = self.desk();
        let is_needed = delivery.qos > Qos::AtMostOnce;
        if desk.link.is_none() && !is_needed {
            return true;
        }
        let publication = Arc::clone(&delivery.publication);
        if !desk.session.has_room(publication.bytes) {
            desk.session.make_room(publication.bytes, clock::monotonic());
        }
        if desk.session.enqueue(delivery).is_ok() {
            if desk.is_idle
                && let Some(link) = &desk.link
            {
                link.wake.notify_one();
                desk.is_idle = false;
            }
            return true;
        }
        if is_needed && let Some(link) = &desk.link {
            link.end(Reason::QuotaExceeded, "too many messages wait for this client");
        }
        if !desk.is_overflowing {
            desk.is_overflowing = true;
            events.push(Event::Dropped {
                client_id: Arc::clone(&self.client_id),
                topic: publication.message.topic.clone(),
                reason: "too many messages wait for this client; not reported again until it catches up",
            });
        }
        false
    }
}

impl SessionState {
    /// Whether the client is connected, and not about to be cut off.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.ending().is_none())
    }

    fn is_served_by(&self, connection: ConnectionId) -> bool {
        self.link.as_ref().is_some_and(|link| link.id == connection)
    }

    /// A connection takes the seat.
    pub fn sit_down(&mut self, link: Arc<Link>, arrival: Arrival) {
        self.link = Some(link);
        self.principal = arrival.principal;
        self.pass = arrival.pass;
        self.will = arrival.will;
        self.expiry_s = arrival.expiry_s;
        self.will_at = None;
        self.ends_at = None;
        self.away_since = None;
        self.is_idle = false;
        self.session.handle_connect(arrival.receive_maximum);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::publication::Publication;
    use super::super::session::Limits;
    use super::*;
    use crate::protocol::message::Message;

    #[test]
    fn a_client_that_is_away_is_not_kept_from_a_message_by_those_that_have_expired() {
        let limits = Limits { messages_max: 1, bytes_max: 1_000 };
        let seat = SessionEntry::new(SessionId(1), "a".into(), Session::new(limits));
        let now = clock::monotonic();
        let long_ago = now.checked_sub(Duration::from_secs(10)).unwrap();
        for (expiry_s, came) in [(Some(1), long_ago), (None, now)] {
            let message = Message { qos: Qos::AtLeastOnce, expiry_s, ..Message::default() };
            let publication = Arc::new(Publication::new(message, came));
            let subscription_ids = Vec::new();
            let delivery =
                Delivery { publication, qos: Qos::AtLeastOnce, retain: false, subscription_ids, group: None };
            let mut events = Vec::new();
            assert!(seat.offer(delivery, &mut events), "{events:?}");
        }
    }
}
