//! Login: a connection before its CONNACK, with what it is charged, and its end when there is no room for another one.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::handshake_turns::run_in_turns;
use super::unfinished_logins::UnfinishedLogins;
use crate::broker::memory::Charge;
use crate::clock;

/// Why a connection was ended, for the log.
pub const ENDED: &str = "ended before its login was complete, to make room for others";

/// A connection that is accepted, with what it is charged until its client has authenticated. Dropped in this order.
#[derive(Debug)]
pub struct Login {
    pub charge: Charge,
    /// One of the connections.
    pub permit: OwnedSemaphorePermit,
    pub unfinished: Arc<UnfinishedLogin>,
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
        let id = self.lock().begin(address_group(address), Arc::clone(&signals));
        UnfinishedLogin { logins: self.clone(), id, signals, is_checked: AtomicBool::new(false) }
    }

    /// Ends a login so that there is room for `newcomer`: see [`UnfinishedLogins::take_for`].
    pub fn make_room(&self, newcomer: Option<&UnfinishedLogin>) -> Option<EndingLogin> {
        let newcomer = newcomer.map(|newcomer| newcomer.id);
        let signals = self.lock().take_for(newcomer, clock::monotonic())?;
        signals.end.notify_one();
        Some(EndingLogin(signals))
    }

    fn lock(&self) -> MutexGuard<'_, UnfinishedLogins<IpAddr, Arc<Signals>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnfinishedLogin {
    /// Ends another login so that there is room for this one.
    pub fn make_room(&self) -> Option<EndingLogin> {
        self.logins.make_room(Some(self))
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

/// Returns the address by which clients are counted: of IPv6 the first 64 bits, because one network has all of the rest.
fn address_group(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            const NETWORK: u128 = !(u64::MAX as u128);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_are_one_and_loopback_addresses_differ() {
        let group = |address: &str| address_group(address.parse().unwrap()).to_string();
        assert_eq!(group("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(group("2001:db8:1:2:ffff::1"), group("2001:db8:1:2:3:4:5:6"));
        assert_ne!(group("2001:db8:1:3::1"), group("2001:db8:1:2::1"));
        assert_eq!(group("::ffff:192.0.2.1"), "192.0.2.1");
        assert_ne!(group("127.0.0.1"), group("127.0.0.2"));
    }
}
