//! Records: addresses and what they hold.

use std::sync::Arc;

use bytes::Bytes;

use crate::exchange::row::{Row, RowId};
use crate::protocol::Key;
use crate::protocol::reply::Outcome;
use crate::store::{Change, StoredValue, Version};

/// What an address holds from a commit on.
///
/// A record is whole: to apply it twice, or after a later one was left out, gives the same state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Key(KeyRecord),
    Registration(RegistrationRecord),
    Response(ResponseRecord),
    /// A row of the exchange; `None`: there is none.
    Exchange(RowId, Option<Box<Row>>),
}

/// A key that was written, or was deleted or has expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    pub key: Key,
    /// The version of the value, or the last one of an absent key, if that is known.
    pub version: Version,
    /// `None`: the key is absent. Deadlines are on the monotonic clock of the instance that has the record.
    pub content: Option<StoredValue>,
}

/// A client's registration for a key, by KEYNOTIFY.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegistrationRecord {
    pub key: Key,
    pub client_id: Arc<str>,
    pub is_registered: bool,
}

/// The response to a write, for another delivery of the same request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseRecord {
    pub client_id: Arc<str>,
    /// Identifies the request in all instances of a cluster.
    pub fingerprint: u64,
    pub payload: Bytes,
    pub version: Option<Version>,
    pub outcome: Outcome,
    /// When it expires, in monotonic milliseconds of the instance that has the record.
    pub until_ms: u64,
}

impl KeyRecord {
    /// Returns the record of a key with a value and its version, or of an absent one.
    #[must_use]
    pub fn new(key: Key, content: Option<(Version, StoredValue)>) -> Self {
        match content {
            Some((version, stored)) => Self { key, version, content: Some(stored) },
            None => Self { key, version: Version::default(), content: None },
        }
    }

    /// Returns the value with its version, as [`Store::restore`](crate::store::Store::restore) takes it.
    #[must_use]
    pub fn into_versioned(self) -> Option<(Version, StoredValue)> {
        self.content.map(|stored| (self.version, stored))
    }

    /// Whether the key has a value that no disk has.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.content.as_ref().is_some_and(|stored| !stored.persist)
    }

    /// Whether the disk has nothing of the key but a version that is ahead of `ceiling`.
    #[must_use]
    pub fn needs_tombstone(&self, ceiling: Version) -> bool {
        self.content.as_ref().is_none_or(|stored| !stored.persist) && self.version > ceiling
    }
}

impl From<&Change> for KeyRecord {
    fn from(Change { key, version, content, .. }: &Change) -> Self {
        Self { key: key.clone(), version: *version, content: content.clone() }
    }
}

impl From<&Change> for Record {
    fn from(change: &Change) -> Self {
        Self::Key(change.into())
    }
}
