//! What decides about requests: the service knows no more of it than this.

use crate::protocol::{ConnectionId, Key};
use crate::store::{
    Change, Now, Page, PersistentEntry, Store, StoreRequest, StoreResponse, StoreStatistics, StoredValue,
    Version,
};

/// Decides about requests and says what came of each. The store in this process is the first of its kind.
pub trait Engine: Send + 'static {
    /// Decides about a request.
    fn handle_request(&mut self, call: StoreRequest, now: Now) -> StoreResponse;

    /// Forgets what a connection watches.
    fn handle_disconnect(&mut self, connection: ConnectionId);

    /// Forgets the watches that are not allowed any more.
    fn revoke_watches(&mut self, may_watch: &dyn Fn(ConnectionId, &Key) -> bool);

    /// Removes what has expired, perhaps not all at once.
    fn poll_expired(&mut self, now: Now) -> Vec<Change>;

    /// When to poll next, in monotonic milliseconds.
    fn next_expiry(&self) -> Option<u64>;

    /// What a key holds, to be put back should a change of it fail.
    fn read(&self, key: &Key) -> Option<(Version, StoredValue)>;

    /// Makes a key what it was; tells nobody.
    fn restore(&mut self, key: &Key, was: Option<(Version, StoredValue)>);

    /// How much there is.
    fn tally(&self) -> StoreStatistics;

    /// At most so many keys from a place on, for somebody to look at.
    fn page(&self, from: u32, keys_max: usize, now: Now) -> Page;

    /// Whether a key is to be kept on disk.
    fn is_persistent(&self, key: &Key) -> bool;

    /// What is to be kept on disk, in portions: see [`Store::persistent_from`].
    fn persistent_from(&self, from: u32, keys_max: usize) -> (Vec<PersistentEntry>, Option<u32>);

    /// The greatest version ever given out.
    fn greatest_version(&self) -> Version;
}

impl Engine for Store {
    fn handle_request(&mut self, call: StoreRequest, now: Now) -> StoreResponse {
        Self::handle_request(self, call, now)
    }

    fn handle_disconnect(&mut self, connection: ConnectionId) {
        Self::handle_disconnect(self, connection);
    }

    fn revoke_watches(&mut self, may_watch: &dyn Fn(ConnectionId, &Key) -> bool) {
        Self::revoke_watches(self, may_watch);
    }

    fn poll_expired(&mut self, now: Now) -> Vec<Change> {
        Self::poll_expired(self, now)
    }

    fn next_expiry(&self) -> Option<u64> {
        Self::next_expiry(self)
    }

    fn read(&self, key: &Key) -> Option<(Version, StoredValue)> {
        Self::read(self, key)
    }

    fn restore(&mut self, key: &Key, was: Option<(Version, StoredValue)>) {
        Self::restore(self, key, was);
    }

    fn tally(&self) -> StoreStatistics {
        Self::statistics(self)
    }

    fn page(&self, from: u32, keys_max: usize, now: Now) -> Page {
        Self::page(self, from, keys_max, now)
    }

    fn is_persistent(&self, key: &Key) -> bool {
        Self::is_persistent(self, key)
    }

    fn persistent_from(&self, from: u32, keys_max: usize) -> (Vec<PersistentEntry>, Option<u32>) {
        Self::persistent_from(self, from, keys_max)
    }

    fn greatest_version(&self) -> Version {
        Self::greatest_version(self)
    }
}
