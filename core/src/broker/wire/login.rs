//! Login: a connection before its CONNACK, with what it is charged, and its end when there is no room for another one.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::handshake_turns::run_in_turns;
use super::unfinished_logins::{Shortage, UnfinishedLogins};
use crate::broker::address::network;
use crate::broker::handle::Broker;
use crate::broker::memory::{Account, Charge, MemoryKind};
use crate::clock;

/// Why a connection was ended, for the log.
pub const ENDED: &str = "ended before its login was complete, to make room for others";

/// Why a connection over the limit is refused.
pub const TOO_MANY_CONNECTIONS: &str = "too many connections";

/// How long the server waits for a connection that is refused: it takes one of few places.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection that is accepted, with what it is charged until its client has authenticated. Dropped in this order.
#[derive(Debug)]
pub struct Login {
    pub charge: Charge,
    pub permit: Permit,
    pub unfinished: Arc<UnfinishedLogin>,
    /// Whether the connection is one too many: its CONNECT is answered with the reason, and it is closed.
    pub is_refused: bool,
}

impl Login {
    /// Returns how long the server waits for each handshake and for the CONNECT.
    #[must_use]
    pub fn time_limit(&self, broker: &Broker) -> Duration {
        let limit = broker.settings().connect_timeout;
        if self.is_refused { limit.min(REFUSAL_TIMEOUT) } else { limit }
    }
}

/// What a connection holds until it ends: one of the connections, and the memory that is reserved for it.
#[derive(Debug)]
pub struct Permit {
    _permit: OwnedSemaphorePermit,
    reserved: Charge,
}

impl Permit {
    #[must_use]
    pub fn new(permit: OwnedSemaphorePermit, reserved: Charge) -> Self {
        Self { _permit: permit, reserved }
    }

    /// Returns the account of the client's address.
    #[must_use]
    pub fn account(&self) -> &Arc<Account> {
        self.reserved.account()
    }
}

/// The unfinished logins of all listeners. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Logins(Arc<Mutex<UnfinishedLogins<IpAddr, Arc<Signals>>>>);

#[derive(Debug, Default)]
struct Signals {
    /// The login is to be ended.
    end: Notify,
    /// It has ended, and what it was charged is free.
    has_ended: Notify,
}

/// A login among the unfinished ones, until it is finished or dropped.
#[derive(Debug)]
pub struct UnfinishedLogin {
    logins: Logins,
    id: u64,
    signals: Arc<Signals>,
    /// Whether the server works for the login elsewhere, so that a wait is not for the client.
    is_checked: AtomicBool,
}

/// A login that is being ended.
#[derive(Debug)]
pub struct EndingLogin(Arc<Signals>);

impl EndingLogin {
    /// Waits until what the login was charged is free.
    pub async fn wait(self) {
        self.0.has_ended.notified().await;
    }
}

impl Logins {
    /// Adds a login of a client with this address.
    pub fn begin(&self, address: IpAddr) -> UnfinishedLogin {
        let signals = Arc::<Signals>::default();
        let id = self.lock().begin(network(address), Arc::clone(&signals));
        UnfinishedLogin { logins: self.clone(), id, signals, is_checked: AtomicBool::new(false) }
    }

    /// Ends a login so that there is room for `newcomer`: see [`UnfinishedLogins::take_for`].
    pub fn make_room(&self, newcomer: Option<&UnfinishedLogin>, shortage: Shortage) -> Option<EndingLogin> {
        let newcomer = newcomer.map(|newcomer| newcomer.id);
        let signals = self.lock().take_for(newcomer, shortage, clock::monotonic())?;
        signals.end.notify_one();
        Some(EndingLogin(signals))
    }

    fn lock(&self) -> MutexGuard<'_, UnfinishedLogins<IpAddr, Arc<Signals>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnfinishedLogin {
    /// Ends another login so that there is room for this one.
    pub fn make_room(&self, shortage: Shortage) -> Option<EndingLogin> {
        self.logins.make_room(Some(self), shortage)
    }

    /// Runs a part of the login in turns with others; returns None if the login is ended to make room.
    pub async fn run<T>(&self, part: impl Future<Output = T>) -> Option<T> {
        let set_waiting = |is_waiting: bool| {
            let since = (is_waiting && !self.is_checked.load(Ordering::Relaxed)).then(clock::monotonic);
            self.logins.lock().set_waiting(self.id, since);
        };
        tokio::select! {
            biased;
            () = self.ended() => None,
            result = run_in_turns(part, set_waiting) => Some(result),
        }
    }

    /// Waits until the login is to be ended.
    pub async fn ended(&self) {
        self.signals.end.notified().await;
    }

    /// Notes that the client is being authenticated, or that this is done.
    pub fn set_checked(&self, is_checked: bool) {
        self.is_checked.store(is_checked, Ordering::Relaxed);
    }

    /// Notes that the client is connected.
    pub fn finish(&self) {
        self.logins.lock().end(self.id);
    }
}

impl Drop for UnfinishedLogin {
    fn drop(&mut self) {
        self.finish();
        self.signals.has_ended.notify_one();
    }
}

/// Returns what there is no room in for a login that may not take `bytes`.
pub fn shortage(broker: &Broker, bytes: usize) -> Shortage {
    match broker.memory().has_room(MemoryKind::Unauthenticated, bytes) {
        true => Shortage::OfAddress,
        false => Shortage::OfServer,
    }
}
