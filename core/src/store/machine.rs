//! The store: checks, conditions, leases, fencing tokens, watches and expiry of all keys.

mod replicated;

use std::sync::Arc;

use std::num::NonZeroU64;

use bytes::Bytes;

use crate::protocol::{
    Condition, ConnectionId, EncodedValue, ErrorReply, Key, Reply, Request, Timestamp, Value, topic,
};

use super::authorization::KeyPermissions;
use super::checks::{
    CurrentEntry, Verdict, Write, check_fence, check_key_length, check_lengths, check_permission,
    check_timestamp, evaluate,
};
use super::deadlines::{Deadlines, Slot};
use super::entries::Entries;
use super::entry::{Entry, StoredValue, Version, cost};
use super::key_walk::SLOTS_PER_CALL_MAX;
use super::limits::Limits;
use super::prefix_watchers::{PrefixWatch, PrefixWatchers, prefix_of};
use super::request::{Change, Now, StoreRequest, StoreResponse, WatchOptions};
use super::scan::Scan;
use super::versions::Versions;
use super::watchers::{Watcher, Watchers};

/// A persistent key with its version and what it holds.
pub type PersistentEntry = (Key, Version, StoredValue);

/// The most keys that one [`Store::poll_expired`] removes: a million keys that expire together must not delay requests.
pub const EXPIRED_PER_POLL_MAX: usize = 1_000;

/// The state store as a state machine.
///
/// The caller passes requests to [`Store::handle_request`] and ended connections to [`Store::handle_disconnect`], and
/// calls [`Store::poll_expired`] at [`Store::next_expiry`] at the latest. Each call has the time as an argument. A key
/// past its deadline is never returned, polled or not. Every [`Change`] is returned once, in the order in which the
/// changes happened. The caller notifies the watchers after it has sent the reply, and persists the change.
///
/// ```
/// # extern crate mqkv_core as mqkv;
/// use mqkv::protocol::{ConnectionId, Key, Reply, Request, Timestamp};
/// use mqkv::store::{Limits, Now, Store, StoreRequest, WatchOptions};
///
/// let mut store = Store::new(Limits::default());
/// let now = Now { wall_ms: 1_700_000_000_000, monotonic_ms: 0 };
/// let mut handle = |request| {
///     let request = StoreRequest {
///         connection: ConnectionId(1),
///         client_id: "client".into(),
///         owner: "client".into(),
///         permissions: None,
///         request,
///         timestamp: Some(Ok(Timestamp::of_store(now.wall_ms, 0))),
///         fence: None,
///         persist: false,
///         watch: WatchOptions::default(),
///         encoded: None,
///         refusal: None,
///     };
///     store.handle_request(request, now).reply
/// };
/// let key = Key::new("line1/temp")?;
/// let set = Request::Set { key: key.clone(), value: "21.5".into(), condition: None, ttl_ms: None };
/// assert_eq!(handle(set), Reply::Done);
/// assert_eq!(handle(Request::Get { key }), Reply::Value("21.5".into()));
/// # Ok::<(), mqkv::protocol::key::KeyError>(())
/// ```
#[derive(Debug, Default)]
pub struct Store {
    pub(super) limits: Limits,
    pub(super) entries: Entries,
    pub(super) deadlines: Deadlines,
    versions: Versions,
    pub(super) watchers: Watchers,
    pub(super) prefix_watchers: PrefixWatchers,
    monotonic_ms: u64,
}

/// Arguments of a SET.
struct Set {
    key: Key,
    value: Value,
    condition: Option<Condition>,
    ttl_ms: Option<NonZeroU64>,
    encoded: Option<EncodedValue>,
    persist: bool,
}

impl Store {
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Handles a request, after its `checks` in the order of protocol §5.
    ///
    /// A SCAN takes long: see [`Scan`], which does the same in bounded calls.
    pub fn handle_request(&mut self, request: StoreRequest, now: Now) -> StoreResponse {
        self.check_and_handle(request, now).unwrap_or_else(StoreResponse::error)
    }

    fn check_and_handle(&mut self, request: StoreRequest, now: Now) -> Result<StoreResponse, ErrorReply> {
        let wall_ms = self.advance_clocks(now);
        let StoreRequest {
            connection,
            client_id,
            owner,
            permissions,
            timestamp,
            fence,
            encoded,
            persist,
            watch: WatchOptions { is_prefix, details },
            refusal,
            request,
        } = request;
        let readable = permissions.as_ref().map(|permissions| &permissions.read);
        let writable = permissions.as_ref().map(|permissions| &permissions.write);
        let check_write = |key: &Key| {
            check_permission(writable, key)?;
            refusal.map_or(Ok(()), Err)
        };
        Ok(match request {
            Request::Set { key, value, condition, ttl_ms } => {
                check_lengths(&key, &value, &self.limits)?;
                let timestamp = check_timestamp(timestamp, wall_ms)?;
                let fence = check_fence(fence, wall_ms)?;
                check_write(&key)?;
                self.set(Set { key, value, condition, ttl_ms, encoded, persist }, &timestamp, fence)
            }
            Request::Get { key } => {
                check_key_length(&key, &self.limits)?;
                check_permission(readable, &key)?;
                self.get(&key)
            }
            Request::Del { key } => {
                check_key_length(&key, &self.limits)?;
                let fence = check_fence(fence, wall_ms)?;
                check_write(&key)?;
                self.delete(&key, Write::Del, fence.as_ref())
            }
            Request::VDel { key, value } => {
                check_lengths(&key, &value, &self.limits)?;
                let fence = check_fence(fence, wall_ms)?;
                check_write(&key)?;
                self.delete(&key, Write::VDel(&value), fence.as_ref())
            }
            Request::KeyNotify { key: pattern, stop: true } if is_prefix => {
                let was_watched = self.prefix_watchers.remove(prefix_of(&pattern)?.as_bytes(), connection);
                if was_watched { Reply::Done } else { Reply::Count(0) }.into()
            }
            // The keys are authorized when they are notified.
            Request::KeyNotify { key: pattern, stop: false } if is_prefix => {
                let watcher = Watcher { connection, client_id, details };
                let added = self
                    .prefix_watchers
                    .add(prefix_of(&pattern)?.as_bytes(), PrefixWatch { watcher, owner, permissions });
                added.map(|()| Reply::Done.into()).map_err(|_| ErrorReply::QuotaExceeded)?
            }
            Request::KeyNotify { key, stop: true } => {
                let was_watched = self.watchers.remove(&key, connection);
                if was_watched { Reply::Done } else { Reply::Count(0) }.into()
            }
            Request::KeyNotify { key, stop: false } => {
                check_key_length(&key, &self.limits)?;
                check_permission(readable, &key)?;
                self.watch(&key, Watcher { connection, client_id, details }, &owner)?
            }
            Request::Scan { pattern, token } => {
                let mut scan = Scan::new(&pattern, token.as_deref())?;
                while !scan.is_complete() {
                    self.scan(&mut scan, now);
                    scan.retain_readable(readable);
                }
                scan.into_reply().into()
            }
        })
    }

    /// Looks at some more keys for a page of a SCAN.
    pub fn scan(&mut self, scan: &mut Scan, now: Now) {
        self.advance_clocks(now);
        scan.advance(&self.entries, |slot| self.is_expired(slot));
    }

    /// Returns the client ids of all connections that watch keys, in no order.
    #[must_use]
    pub fn watching_clients(&self) -> Vec<Arc<str>> {
        self.watchers.clients()
    }

    /// Returns the next keys that a connection watches, in their order and a few at a time; none after the last one.
    #[must_use]
    pub fn watched_keys(&self, connection: ConnectionId, last: Option<&Key>) -> Vec<Key> {
        self.watchers.keys_after(connection, last)
    }

    /// Whether a connection watches any key or prefix.
    #[must_use]
    pub fn is_watching(&self, connection: ConnectionId) -> bool {
        self.watches_of(connection) > 0
    }

    /// Replaces the permissions of a connection that watches prefixes.
    pub fn set_prefix_permissions(&mut self, connection: ConnectionId, permissions: &Arc<KeyPermissions>) {
        self.prefix_watchers.set_permissions(connection, permissions);
    }

    /// Ends the watch of a key.
    pub fn revoke_watch(&mut self, connection: ConnectionId, key: &Key) {
        self.watchers.remove(key, connection);
    }

    /// Takes over all watches of another store.
    pub fn take_watches(&mut self, other: &mut Self) {
        self.watchers = std::mem::take(&mut other.watchers);
        self.prefix_watchers = std::mem::take(&mut other.prefix_watchers);
    }

    /// Ends watches of a connection that has ended (protocol §3), a few at a time; returns whether there are more.
    pub fn handle_disconnect(&mut self, connection: ConnectionId) -> bool {
        self.prefix_watchers.remove_all(connection);
        self.watchers.remove_some(connection)
    }

    /// Removes expired keys, at most [`EXPIRED_PER_POLL_MAX`]. If more have expired, [`Store::next_expiry`] is not
    /// later than `now`.
    pub fn poll_expired(&mut self, now: Now) -> Vec<Change> {
        self.advance_clocks(now);
        self.versions.forget_passed(EXPIRED_PER_POLL_MAX);
        let expired = std::iter::from_fn(|| self.first_expired().and_then(|slot| self.expire(slot)));
        expired.take(EXPIRED_PER_POLL_MAX).collect()
    }

    /// Returns when [`Store::poll_expired`] has work to do, in monotonic milliseconds: the earliest deadline, or the past.
    #[must_use]
    pub fn next_expiry(&self) -> Option<u64> {
        if self.versions.has_passed() {
            return Some(0);
        }
        self.deadlines.first().map(|(deadline_ms, _)| deadline_ms)
    }

    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the number of keys, including expired ones that were not polled.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns what a key holds, expired or not, for [`Store::restore`].
    #[must_use]
    pub fn read(&self, key: &Key) -> Option<(Version, StoredValue)> {
        let slot = self.entries.find(key.as_bytes())?;
        Some(self.stored(slot, self.entries.get(slot)?))
    }

    fn stored(&self, slot: Slot, entry: &Entry) -> (Version, StoredValue) {
        let stored = StoredValue {
            value: entry.to_value(),
            fence: entry.fence().cloned(),
            deadline_ms: self.deadlines.get(slot),
            persist: entry.is_persistent(),
        };
        (entry.version(), stored)
    }

    #[must_use]
    pub fn is_persistent(&self, key: &Key) -> bool {
        let slot = self.entries.find(key.as_bytes());
        slot.and_then(|slot| self.entries.get(slot)).is_some_and(Entry::is_persistent)
    }

    /// Returns up to `keys_max` persistent entries from the position `from` on, 0 at first, and the position of the next
    /// ones, or `None` at the end. None follows after `bytes_max` bytes of values. A bounded number of positions is looked at,
    /// which may have no such entry: other requests wait meanwhile. A key that exists throughout is returned exactly once,
    /// whatever changes between the calls.
    #[must_use]
    pub fn persistent_from(
        &self,
        from: u32,
        keys_max: usize,
        bytes_max: usize,
    ) -> (Vec<PersistentEntry>, Option<u32>) {
        let (mut found, mut bytes) = (Vec::new(), 0_usize);
        for (seen, (slot, entry)) in self.entries.iter_from(from).enumerate() {
            if seen >= SLOTS_PER_CALL_MAX || found.len() >= keys_max || bytes >= bytes_max {
                return (found, Some(slot));
            }
            // A vacant slot is not persistent and has an empty key.
            if entry.is_persistent()
                && let Ok(key) = Key::new(Bytes::copy_from_slice(entry.key()))
            {
                let (version, stored) = self.stored(slot, entry);
                bytes = bytes.saturating_add(stored.value.len());
                found.push((key, version, stored));
            }
        }
        (found, None)
    }

    /// Returns what the persistent entries take in a file, in bytes, or somewhat more.
    #[must_use]
    pub fn persistent_bytes(&self) -> u64 {
        self.entries.persistent_bytes()
    }

    /// Sets a key to an earlier state, at the start or because a change of it could not be committed. Returns no
    /// [`Change`], because no watcher knows of the one that is undone.
    pub fn restore(&mut self, key: &Key, earlier: Option<(Version, StoredValue)>) {
        if let Some(slot) = self.entries.find(key.as_bytes()) {
            self.deadlines.set(slot, None);
            self.entries.remove(slot);
        }
        if let Some((version, stored)) = earlier {
            let mut entry = Entry::new(key, (&stored.value, None), version, stored.fence);
            if stored.persist {
                entry.set_persistent();
            }
            let slot = self.entries.insert(entry);
            self.deadlines.set(slot, stored.deadline_ms);
            self.versions.raise_greatest(version);
        }
    }

    /// Returns the greatest version ever given out.
    #[must_use]
    pub fn greatest_version(&self) -> Version {
        self.versions.greatest()
    }

    /// Returns the last version of a key that is present, or was removed and had a version ahead of the clock.
    #[must_use]
    pub fn last_version(&self, key: &Key) -> Option<Version> {
        let slot = self.entries.find(key.as_bytes());
        let version = slot.and_then(|slot| self.entries.get(slot)).map(Entry::version);
        version.or_else(|| self.versions.removed(key.as_bytes()))
    }

    /// Remembers the last version of a key that an earlier process has removed.
    pub fn restore_removed(&mut self, key: &Key, last: Version) {
        self.versions.raise_greatest(last);
        self.versions.remember_removed(key, last);
    }

    /// Returns the wall clock that versions follow, in Unix milliseconds: it never goes back.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        self.versions.wall_ms()
    }

    /// Returns what [`Store::raise_floor`] has set.
    #[must_use]
    pub fn floor(&self) -> Version {
        self.versions.floor()
    }

    /// Makes every absent key get a version greater than `floor` when it is set: an earlier process may have given it to
    /// the key.
    pub fn raise_floor(&mut self, floor: Version) {
        self.versions.raise_floor(floor);
    }

    /// Neither clock goes back inside the store, whatever the machine's clocks do.
    fn advance_clocks(&mut self, now: Now) -> u64 {
        self.monotonic_ms = self.monotonic_ms.max(now.monotonic_ms);
        self.versions.advance_clock(now.wall_ms)
    }

    /// Whether a SET stays within the limits. One that takes no more memory than what it replaces always does, so that a
    /// lease can be renewed in a full store.
    fn has_room(&self, current: Option<&Entry>, key: &Key, value: &[u8], fence: Option<&Timestamp>) -> bool {
        if current.is_none() && self.entries.len() >= self.limits.keys_max() {
            return false;
        }
        let needed = cost(key.as_bytes(), value, fence);
        let freed = current.map_or(0, Entry::cost);
        // A sum that saturates is over every limit.
        let used = self.entries.cost().saturating_sub(freed).saturating_add(self.versions.cost());
        needed <= freed || used.saturating_add(needed) <= self.limits.memory_bytes_max
    }

    /// Returns the memory that the limit counts.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.entries.cost().saturating_add(self.versions.cost())
    }

    fn get(&mut self, key: &Key) -> StoreResponse {
        let (found, expired) = self.find(key);
        let Some(entry) = found.and_then(|slot| self.entries.get(slot)) else {
            return StoreResponse { expired, ..Reply::Absent.into() };
        };
        let payload = entry.encoded().map(EncodedValue::reply);
        StoreResponse { payload, version: Some(entry.version()), ..Reply::Value(entry.to_value()).into() }
    }

    fn set(&mut self, mut set: Set, timestamp: &Timestamp, fence: Option<Timestamp>) -> StoreResponse {
        let (found, mut expired) = self.find(&set.key);
        let current = found.and_then(|slot| self.entries.get(slot));
        let write = Write::Set(set.condition, &set.value);
        match evaluate(write, fence.as_ref(), current.map(CurrentEntry::from)) {
            Verdict::Apply => {}
            Verdict::Reject(error) => {
                return StoreResponse { expired, ..StoreResponse::error(error) };
            }
            Verdict::ConditionFailed | Verdict::Absent => {
                let version = current.map(Entry::version);
                return StoreResponse { version, expired, ..Reply::NotApplied.into() };
            }
        }
        // A key that was once persisted stays persistent until it is deleted or expires. A SET that does not ask for
        // it would otherwise leave an older value on disk, which would return after a restart (protocol §12).
        set.persist |= current.is_some_and(Entry::is_persistent);
        if !self.has_room(current, &set.key, &set.value, fence.as_ref()) {
            // There may be room once an expired key is removed, and the versions that the clock has passed are forgotten.
            self.versions.forget_passed(EXPIRED_PER_POLL_MAX);
            expired = expired.or_else(|| self.first_expired().and_then(|slot| self.expire(slot)));
            let current = found.and_then(|slot| self.entries.get(slot));
            if !self.has_room(current, &set.key, &set.value, fence.as_ref()) {
                return StoreResponse { expired, ..StoreResponse::error(ErrorReply::QuotaExceeded) };
            }
        }
        let (version, change) = self.put(found, set, timestamp, fence);
        StoreResponse { version: Some(version), expired, change: Some(change), ..Reply::Done.into() }
    }

    /// Writes a value without any check.
    fn put(
        &mut self,
        found: Option<Slot>,
        mut set: Set,
        timestamp: &Timestamp,
        fence: Option<Timestamp>,
    ) -> (Version, Change) {
        let persist = set.persist;
        let last = found.and_then(|slot| self.entries.get(slot)).map(Entry::version);
        let version = self.versions.next(set.key.as_bytes(), last, timestamp);
        // The clock counts whole milliseconds, so that up to one more has passed since it was read: without the extra
        // millisecond a lease could end before its time. A deadline that saturates lies 584 million years ahead: the key
        // never expires.
        let deadline_ms =
            set.ttl_ms.map(|ttl_ms| self.monotonic_ms.saturating_add(ttl_ms.get()).saturating_add(1));
        let slot = self.write(found, &mut set, version, fence.clone());
        if persist {
            self.entries.set_persistent(slot);
        }
        self.deadlines.set(slot, deadline_ms);
        let encoded = self.entries.get(slot).and_then(Entry::encoded);
        // A long value is shared with the entry. Its packet would stay in memory otherwise.
        let (value, notification) = match encoded {
            Some(encoded) => (encoded.value(), Some(encoded.notification())),
            None => (set.value, None),
        };
        let change = Change {
            version,
            watchers: self.watchers_of(set.key.as_bytes()),
            content: Some(StoredValue { value, fence, deadline_ms, persist }),
            notification,
            ttl_ms: set.ttl_ms,
            persist,
            key: set.key,
        };
        (version, change)
    }

    fn write(
        &mut self,
        found: Option<Slot>,
        set: &mut Set,
        version: Version,
        fence: Option<Timestamp>,
    ) -> Slot {
        let value = (&set.value[..], set.encoded.take());
        match found {
            Some(slot) => {
                self.entries.overwrite(slot, value, version, fence);
                slot
            }
            None => self.entries.insert(Entry::new(&set.key, value, version, fence)),
        }
    }

    /// Handles DEL and VDEL.
    fn delete(&mut self, key: &Key, write: Write<'_>, fence: Option<&Timestamp>) -> StoreResponse {
        let (found, expired) = self.find(key);
        let current = found.and_then(|slot| self.entries.get(slot));
        let version = current.map(Entry::version);
        let reply = match evaluate(write, fence, current.map(CurrentEntry::from)) {
            Verdict::Apply => {
                let change = found.and_then(|slot| self.remove(slot, key.clone()));
                return StoreResponse { version, expired, change, ..Reply::Count(1).into() };
            }
            Verdict::Reject(error) => {
                return StoreResponse { expired, ..StoreResponse::error(error) };
            }
            Verdict::ConditionFailed => Reply::NotApplied,
            Verdict::Absent => Reply::Count(0),
        };
        StoreResponse { version, expired, ..reply.into() }
    }

    fn watch(&mut self, key: &Key, watcher: Watcher, owner: &Arc<str>) -> Result<StoreResponse, ErrorReply> {
        if topic::notify(&watcher.client_id, key).is_none() {
            return Err(ErrorReply::KeyTooLongToWatch);
        }
        let added = self.watchers.add(key, watcher, owner, &self.limits);
        added.map(|()| Reply::Done.into()).map_err(|_| ErrorReply::QuotaExceeded)
    }

    /// Returns the connections to notify of a key.
    fn watchers_of(&self, key: &[u8]) -> Vec<Watcher> {
        let mut watchers = self.watchers.of(key);
        self.prefix_watchers.add_to(&mut watchers, key);
        watchers
    }

    /// Returns the slot of a key. A key that has expired is removed, and its change returned.
    fn find(&mut self, key: &Key) -> (Option<Slot>, Option<Change>) {
        match self.entries.find(key.as_bytes()) {
            Some(slot) if self.is_expired(slot) => (None, self.expire(slot)),
            found => (found, None),
        }
    }

    /// Looks at the earliest deadline first: while that is ahead, no other needs to be read from memory.
    fn is_expired(&self, slot: Slot) -> bool {
        self.first_expired().is_some()
            && self.deadlines.get(slot).is_some_and(|deadline_ms| deadline_ms <= self.monotonic_ms)
    }

    fn first_expired(&self) -> Option<Slot> {
        let (deadline_ms, slot) = self.deadlines.first()?;
        (deadline_ms <= self.monotonic_ms).then_some(slot)
    }

    fn expire(&mut self, slot: Slot) -> Option<Change> {
        let key = Key::new(Bytes::copy_from_slice(self.entries.get(slot)?.key())).ok()?;
        self.remove(slot, key)
    }

    fn remove(&mut self, slot: Slot, key: Key) -> Option<Change> {
        self.deadlines.set(slot, None);
        let entry = self.entries.remove(slot)?;
        let (version, persist) = (entry.version(), entry.is_persistent());
        self.versions.remember_removed(&key, version);
        let watchers = self.watchers_of(key.as_bytes());
        Some(Change { key, version, content: None, persist, watchers, notification: None, ttl_ms: None })
    }
}

impl<'a> From<&'a Entry> for CurrentEntry<'a> {
    fn from(entry: &'a Entry) -> Self {
        Self { value: entry.value(), fence: entry.fence() }
    }
}

#[cfg(test)]
mod tests;
