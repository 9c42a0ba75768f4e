//! The rules of the store: (state, who, request, now) → (reply, notifications, what to keep on disk).

pub mod authorization;
mod condition;
mod entries;
mod entry;
mod expiry;
mod glob;
mod limits;
mod page;
mod request;
mod scan;
mod versions;
mod watchers;

#[cfg(test)]
mod tests;

use std::num::NonZeroU64;

use bytes::Bytes;

use crate::protocol::timestamp::TimestampError;
use crate::protocol::{Condition, ConnectionId, ErrorReply, Key, Reply, Request, Timestamp, Value, topic};

use authorization::check;
use condition::{Decision, Held, Wish, decide};
use entries::Entries;
use entry::Entry;
use expiry::{Expiry, Slot};
use versions::Versions;
use watchers::Watchers;

pub use entry::{StoredValue, Version};
pub use limits::{KEY_COST_BYTES, Limits};
pub use page::{KeySummary, Page, StoreStatistics};
pub use request::{Change, Now, StoreRequest, StoreResponse};
pub use watchers::Watcher;

/// A key that is to be kept on disk, with its version and what it holds.
pub type PersistentEntry = (Key, Version, StoredValue);

/// The most keys that one [`Store::poll_expired`] removes: a million that expire at once must not hold up requests.
pub const EXPIRED_PER_POLL_MAX: usize = 1_000;

/// The state store as a state machine.
///
/// Feed it requests ([`Store::handle_request`]) and the ends of connections ([`Store::handle_disconnect`]), each with
/// the time; ask it what has expired ([`Store::poll_expired`]), at the latest at [`Store::next_expiry`]. A key past its
/// deadline is never served, polled or not. Every change is reported once, in the order in which it happened: the
/// caller tells the watchers, after the reply to the request that caused it, and keeps it on disk.
#[derive(Debug, Default)]
pub struct Store {
    limits: Limits,
    entries: Entries,
    expiry: Expiry,
    versions: Versions,
    watchers: Watchers,
    monotonic_ms: u64,
}

/// The words of a SET.
struct Set {
    key: Key,
    value: Value,
    condition: Option<Condition>,
    ttl_ms: Option<NonZeroU64>,
    persist: bool,
}

impl Store {
    /// An empty store.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Decides about a request, in the order of protocol §5: key length, timestamps, authorization, fence, condition.
    pub fn handle_request(&mut self, call: StoreRequest, now: Now) -> StoreResponse {
        let wall_ms = self.observe(now);
        let StoreRequest { connection, client_id, permissions, request, timestamp, fence, persist } = call;
        let (reads, writes) =
            (permissions.as_ref().map(|all| &all.read), permissions.as_ref().map(|all| &all.write));
        let outcome = match request {
            Request::Set { key, value, condition, ttl_ms } => self
                .check_lengths(&key, &value)
                .and_then(|()| Ok((check_timestamp(timestamp, wall_ms)?, check_fence(fence, wall_ms)?)))
                .and_then(|stamps| check(writes, &key).map(|()| stamps))
                .map(|(timestamp, fence)| {
                    self.set(Set { key, value, condition, ttl_ms, persist }, &timestamp, fence)
                }),
            Request::Get { key } => {
                self.check_key(&key).and_then(|()| check(reads, &key)).map(|()| self.get(&key))
            }
            Request::Del { key } => self
                .check_key(&key)
                .and_then(|()| check_fence(fence, wall_ms))
                .and_then(|fence| check(writes, &key).map(|()| fence))
                .map(|fence| self.remove(&key, Wish::Del, fence.as_ref())),
            Request::VDel { key, value } => self
                .check_lengths(&key, &value)
                .and_then(|()| check_fence(fence, wall_ms))
                .and_then(|fence| check(writes, &key).map(|()| fence))
                .map(|fence| self.remove(&key, Wish::VDel(&value), fence.as_ref())),
            Request::KeyNotify { key, stop: true } => {
                let watched = self.watchers.remove(&key, connection);
                Ok(if watched { Reply::Done } else { Reply::Count(0) }.into())
            }
            Request::KeyNotify { key, stop: false } => self
                .check_key(&key)
                .and_then(|()| check(reads, &key))
                .and_then(|()| self.watch(&key, Watcher { connection, client_id })),
            Request::Scan { pattern, token } => {
                let shown =
                    |slot, key: &[u8]| !self.is_due(slot) && reads.is_none_or(|keys| keys.contains(key));
                Ok(scan::scan(&self.entries, &pattern, token.as_deref(), shown).into())
            }
        };
        outcome.unwrap_or_else(StoreResponse::refused)
    }

    /// Forgets what no rule allows to be watched any more.
    pub fn revoke_watches(&mut self, may_watch: impl Fn(ConnectionId, &Key) -> bool) {
        self.watchers.retain(may_watch);
    }

    /// Forgets what a connection watches.
    pub fn handle_disconnect(&mut self, connection: ConnectionId) {
        self.watchers.remove_all(connection);
    }

    /// Removes what has expired, at most [`EXPIRED_PER_POLL_MAX`] keys: if there is more, [`Store::next_expiry`] is
    /// not later than now.
    pub fn poll_expired(&mut self, now: Now) -> Vec<Change> {
        self.observe(now);
        let due = std::iter::from_fn(|| self.first_due().and_then(|slot| self.expire(slot)));
        due.take(EXPIRED_PER_POLL_MAX).collect()
    }

    /// When the next key expires, in monotonic milliseconds.
    #[must_use]
    pub fn next_expiry(&self) -> Option<u64> {
        self.expiry.first().map(|(deadline_ms, _)| deadline_ms)
    }

    /// How many keys there are, those included that have expired and were not polled.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a key holds, expired or not: to be put back with [`Store::restore`].
    #[must_use]
    pub fn read(&self, key: &Key) -> Option<(Version, StoredValue)> {
        let slot = self.entries.find(key.as_bytes())?;
        Some(self.content(slot, self.entries.get(slot)?))
    }

    fn content(&self, slot: Slot, entry: &Entry) -> (Version, StoredValue) {
        let content = StoredValue {
            value: entry.to_value(),
            fence: entry.fence().cloned(),
            deadline_ms: self.expiry.get(slot),
            persist: entry.is_persistent(),
        };
        (entry.version(), content)
    }

    /// Whether a key is to be kept on disk.
    #[must_use]
    pub fn is_persistent(&self, key: &Key) -> bool {
        let slot = self.entries.find(key.as_bytes());
        slot.and_then(|slot| self.entries.get(slot)).is_some_and(Entry::is_persistent)
    }

    /// What is to be kept on disk, some of it: from a place on, 0 at first, up to about so many keys, and the place to
    /// go on from, none at the end. A key that lives all the while is among what comes, whatever happens in between.
    #[must_use]
    pub fn persistent_from(&self, from: u32, keys_max: usize) -> (Vec<PersistentEntry>, Option<u32>) {
        let mut found = Vec::new();
        for (slot, entry) in self.entries.iter_from(from) {
            if found.len() >= keys_max {
                return (found, Some(slot));
            }
            // A vacant slot is not persistent, and has no key.
            if entry.is_persistent()
                && let Ok(key) = Key::new(Bytes::copy_from_slice(entry.key()))
            {
                let (version, content) = self.content(slot, entry);
                found.push((key, version, content));
            }
        }
        (found, None)
    }

    /// Makes a key what it was, at a start or because a change of it has failed; tells nobody.
    pub fn restore(&mut self, key: &Key, was: Option<(Version, StoredValue)>) {
        if let Some(slot) = self.entries.find(key.as_bytes()) {
            self.expiry.set(slot, None);
            self.entries.remove(slot);
        }
        if let Some((version, content)) = was {
            let mut entry = Entry::new(key, &content.value, version, content.fence);
            if content.persist {
                entry.persist();
            }
            let slot = self.entries.insert(entry);
            self.expiry.set(slot, content.deadline_ms);
            self.versions.raise_greatest(version);
        }
    }

    /// The greatest version ever given out.
    #[must_use]
    pub fn greatest_version(&self) -> Version {
        self.versions.greatest()
    }

    /// Gives a key that is absent only versions after this one: the greatest that was given out in an earlier life.
    pub fn raise_floor(&mut self, floor: Version) {
        self.versions.raise_floor(floor);
    }

    fn observe(&mut self, now: Now) -> u64 {
        self.monotonic_ms = self.monotonic_ms.max(now.monotonic_ms);
        self.versions.observe(now.wall_ms)
    }

    fn check_key(&self, key: &Key) -> Result<(), ErrorReply> {
        let fits = key.as_bytes().len() <= self.limits.key_bytes_max;
        fits.then_some(()).ok_or(ErrorReply::KeyTooLong)
    }

    fn check_lengths(&self, key: &Key, value: &Value) -> Result<(), ErrorReply> {
        self.check_key(key)?;
        let fits = value.len() <= self.limits.value_bytes_max;
        fits.then_some(()).ok_or(ErrorReply::ValueTooLong)
    }

    /// Whether a key and its value fit in, in the place of what the key holds. What takes no more than that always does.
    fn has_room(&self, held: Option<&Entry>, set: &Set) -> bool {
        let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
        let bytes = match held {
            Some(held) if set.value.len() <= held.value().len() => return true,
            Some(held) => count(set.value.len().saturating_sub(held.value().len())),
            None if self.entries.len() >= self.limits.keys_max() => return false,
            None => {
                count(set.key.as_bytes().len().saturating_add(set.value.len())).saturating_add(KEY_COST_BYTES)
            }
        };
        let costs = count(self.entries.len()).saturating_mul(KEY_COST_BYTES);
        let taken = self.entries.bytes().saturating_add(costs);
        taken.saturating_add(bytes) <= self.limits.memory_bytes_max
    }

    fn get(&mut self, key: &Key) -> StoreResponse {
        let (found, expired) = self.find(key);
        let Some(entry) = found.and_then(|slot| self.entries.get(slot)) else {
            return StoreResponse { expired, ..Reply::Absent.into() };
        };
        StoreResponse { version: Some(entry.version()), ..Reply::Value(entry.to_value()).into() }
    }

    fn set(&mut self, set: Set, timestamp: &Timestamp, fence: Option<Timestamp>) -> StoreResponse {
        let (found, mut expired) = self.find(&set.key);
        let held = found.and_then(|slot| self.entries.get(slot));
        match decide(Wish::Set(set.condition, &set.value), fence.as_ref(), held.map(Held::from)) {
            Decision::Apply => {}
            Decision::Refuse(refusal) => {
                return StoreResponse { expired, ..StoreResponse::refused(refusal) };
            }
            Decision::NotApplied | Decision::Absent => {
                return StoreResponse {
                    version: held.map(Entry::version),
                    expired,
                    ..Reply::NotApplied.into()
                };
            }
        }
        let last = held.map(Entry::version);
        // Once kept on disk, a key stays there until it is gone: a SET that does not ask for it must not leave an older
        // value there, which would be back after a restart, and takes nothing from whoever has asked.
        let persist = set.persist || held.is_some_and(Entry::is_persistent);
        if !self.has_room(held, &set) {
            // There may be once something that has expired is gone.
            expired = expired.or_else(|| self.first_due().and_then(|slot| self.expire(slot)));
            let held = found.and_then(|slot| self.entries.get(slot));
            if expired.is_none() || !self.has_room(held, &set) {
                return StoreResponse { expired, ..StoreResponse::refused(ErrorReply::QuotaExceeded) };
            }
        }
        let version = self.versions.next(set.key.as_bytes(), last, timestamp);
        let deadline_ms = set.ttl_ms.map(|ttl_ms| self.monotonic_ms.saturating_add(ttl_ms.get()));
        let slot = self.write(found, &set, version, fence.clone());
        if persist {
            self.entries.persist(slot);
        }
        self.expiry.set(slot, deadline_ms);
        let change = Change {
            version,
            watchers: self.watchers.of(set.key.as_bytes()),
            content: Some(StoredValue { value: set.value, fence, deadline_ms, persist }),
            persist,
            key: set.key,
        };
        StoreResponse { reply: Reply::Done, version: Some(version), expired, change: Some(change) }
    }

    fn write(&mut self, found: Option<Slot>, set: &Set, version: Version, fence: Option<Timestamp>) -> Slot {
        match found {
            Some(slot) => {
                self.entries.overwrite(slot, &set.value, version, fence);
                slot
            }
            None => self.entries.insert(Entry::new(&set.key, &set.value, version, fence)),
        }
    }

    /// DEL and VDEL.
    fn remove(&mut self, key: &Key, wish: Wish<'_>, fence: Option<&Timestamp>) -> StoreResponse {
        let (found, expired) = self.find(key);
        let held = found.and_then(|slot| self.entries.get(slot));
        let version = held.map(Entry::version);
        let reply = match decide(wish, fence, held.map(Held::from)) {
            Decision::Apply => {
                let change = found.and_then(|slot| self.take(slot, key.clone()));
                return StoreResponse { reply: Reply::Count(1), version, expired, change };
            }
            Decision::Refuse(refusal) => {
                return StoreResponse { expired, ..StoreResponse::refused(refusal) };
            }
            Decision::NotApplied => Reply::NotApplied,
            Decision::Absent => Reply::Count(0),
        };
        StoreResponse { version, expired, ..reply.into() }
    }

    fn watch(&mut self, key: &Key, watcher: Watcher) -> Result<StoreResponse, ErrorReply> {
        if topic::notify(&watcher.client_id, key).is_none() {
            return Err(ErrorReply::KeyTooLongToWatch);
        }
        let added = self.watchers.add(key, watcher, &self.limits);
        added.map(|()| Reply::Done.into()).map_err(|_| ErrorReply::QuotaExceeded)
    }

    /// Where a key is; if its time is over, it goes now.
    fn find(&mut self, key: &Key) -> (Option<Slot>, Option<Change>) {
        match self.entries.find(key.as_bytes()) {
            Some(slot) if self.is_due(slot) => (None, self.expire(slot)),
            found => (found, None),
        }
    }

    /// Looks at the earliest deadline first: as long as that is ahead, no other needs to be fetched.
    fn is_due(&self, slot: Slot) -> bool {
        self.first_due().is_some()
            && self.expiry.get(slot).is_some_and(|deadline_ms| deadline_ms <= self.monotonic_ms)
    }

    fn first_due(&self) -> Option<Slot> {
        let (deadline_ms, slot) = self.expiry.first()?;
        (deadline_ms <= self.monotonic_ms).then_some(slot)
    }

    fn expire(&mut self, slot: Slot) -> Option<Change> {
        let key = Key::new(Bytes::copy_from_slice(self.entries.get(slot)?.key())).ok()?;
        self.take(slot, key)
    }

    fn take(&mut self, slot: Slot, key: Key) -> Option<Change> {
        self.expiry.set(slot, None);
        let entry = self.entries.remove(slot)?;
        let (version, persist) = (entry.version(), entry.is_persistent());
        self.versions.remove(key.as_bytes(), version);
        let watchers = self.watchers.of(key.as_bytes());
        Some(Change { key, version, content: None, persist, watchers })
    }
}

impl<'a> From<&'a Entry> for Held<'a> {
    fn from(entry: &'a Entry) -> Self {
        Self { value: entry.value(), fence: entry.fence() }
    }
}

/// Only a SET needs `__ts`; elsewhere it is not looked at (protocol §0 row 8).
fn check_timestamp(
    timestamp: Option<Result<Timestamp, TimestampError>>,
    wall_ms: u64,
) -> Result<Timestamp, ErrorReply> {
    let timestamp =
        timestamp.ok_or(ErrorReply::MissingTimestamp)?.map_err(|_| ErrorReply::MalformedTimestamp)?;
    if timestamp.is_too_far_ahead(wall_ms) {
        return Err(ErrorReply::TimestampTooFarAhead);
    }
    Ok(timestamp)
}

fn check_fence(
    fence: Option<Result<Timestamp, TimestampError>>,
    wall_ms: u64,
) -> Result<Option<Timestamp>, ErrorReply> {
    let fence = fence.transpose().map_err(|_| ErrorReply::MalformedTimestamp)?;
    if fence.as_ref().is_some_and(|fence| fence.is_too_far_ahead(wall_ms)) {
        return Err(ErrorReply::FenceTooFarAhead);
    }
    Ok(fence)
}
